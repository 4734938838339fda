/* The loops over the classes of one sample. Included once for each number type and instruction set, with
 *
 *   REAL         float or double
 *   EXP(x)       e^x for x <= 0; 0 for -inf; NaN stays NaN
 *   NAME(x)      x with the suffix of this version
 *   TARGET       an attribute that names the instruction set, or nothing
 *
 * Every loop runs over the classes but the own one y: [0, y) and then (y, K). In a row of S the own column is erased, so
 * the second part begins one column earlier there; in a row of a low-rank S it does not.
 *
 * Sums are taken in blocks: inside a block in REAL, one per vector lane, and over the blocks in double.
 */

enum { NAME(BLOCK) = 2048 };

/* The largest of scale * x. */
static TARGET REAL NAME(largest)(const REAL *x, REAL scale, int64_t n)
{
    REAL most = -INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++)
        most = scale * x[i] > most ? scale * x[i] : most;
    return most;
}

/* out = exp(scale * x - top), its sum is returned. */
static TARGET double NAME(exponentials)(const REAL *x, REAL scale, REAL top, REAL *out, int64_t n)
{
    double total = 0;
    for (int64_t from = 0; from < n; from += NAME(BLOCK)) {
        const int64_t to = from + NAME(BLOCK) < n ? from + NAME(BLOCK) : n;
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = from; i < to; i++) {
            REAL e = EXP(scale * x[i] - top);
            out[i] = e;
            sum += e;
        }
        total += (double)sum;
    }
    return total;
}

/* Sums over the other classes, with d = z - top and e = exp(d): of e, of d, of aim * d, and of e * (s - s_top). */
typedef struct {
    double e, d, aim_d, e_s;
} NAME(Sums);

/* One part of a sample's row: e goes to `out`, the sums are added to. */
static TARGET void NAME(sums)(
    const REAL *z, REAL top, const REAL *aim, const REAL *s, REAL s_top, REAL *out, int64_t n, NAME(Sums) *sums)
{
    for (int64_t from = 0; from < n; from += NAME(BLOCK)) {
        const int64_t to = from + NAME(BLOCK) < n ? from + NAME(BLOCK) : n;
        REAL sum_e = 0, sum_d = 0, sum_aim = 0, sum_s = 0;
#pragma omp simd reduction(+ : sum_e, sum_d, sum_aim, sum_s)
        for (int64_t i = from; i < to; i++) {
            REAL d = z[i] - top, e = EXP(d);
            out[i] = e;
            sum_e += e;
            sum_d += d;
            sum_aim += aim[i] * d;
            sum_s += e * (s[i] - s_top);
        }
        sums->e += (double)sum_e;
        sums->d += (double)sum_d;
        sums->aim_d += (double)sum_aim;
        sums->e_s += (double)sum_s;
    }
}

/* From e in dz: dz = by_e * e - constant - by_aim * aim, and the row's gradient loses share * e. */
static TARGET void NAME(gradients)(
    REAL *dz, const REAL *aim, REAL *row, REAL by_e, REAL constant, REAL by_aim, REAL share, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL e = dz[i];
        row[i] -= share * e;
        dz[i] = by_e * e - constant - by_aim * aim[i];
    }
}

/* to = keep * to + scale * x, where keep is 0 or 1. */
static TARGET void NAME(put)(REAL *to, int keep, const REAL *x, REAL scale, int64_t n)
{
    if (keep) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] += scale * x[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = scale * x[i];
    }
}

/* A row of S as its class needs it: q and the aim of L_res as exponentials with the factors that make them sum to 1. */
typedef struct {
    REAL *q, *aim; /* the same array when the attraction is 1 */
    REAL top;
    double q_factor, aim_factor, log_sum;
    const REAL *left, *right; /* the row itself: before the own column, and after it */
} NAME(Label);

static TARGET void NAME(read_label)(NAME(Label) *label, const REAL *row, int64_t y, const Call *call)
{
    const int64_t after = call->k - 1 - y;
    label->left = row;
    label->right = row + y + (call->low_rank ? 1 : 0);
    for (int aim = label->aim != label->q; aim >= 0; aim--) { /* the aim first, so that top is q's at the end */
        const REAL scale = aim ? (REAL)call->attraction : 1;
        REAL *out = aim ? label->aim : label->q;
        const REAL a = NAME(largest)(label->left, scale, y), b = NAME(largest)(label->right, scale, after);
        label->top = a > b ? a : b;
        const double sum = NAME(exponentials)(label->left, scale, label->top, out, y) +
                           NAME(exponentials)(label->right, scale, label->top, out + y, after);
        label->log_sum = log(sum);
        label->q_factor = 1 / sum;
        if (aim || label->aim == label->q)
            label->aim_factor = 1 / sum;
    }
}

/* The losses and the gradient of sample n, whose share in the gradient of its row goes to `row`.
 *
 * With top the largest of the other logits, sum = sum of e over the others, and M = max(z_y, top):
 *   p_res_i = e_i / sum,   p_i = e_i * exp(top - M) / Z,   Z = exp(z_y - M) + exp(top - M) * sum.
 * 1 - p_y is formed as the others' share of Z: as a difference it would lose everything when p_y is near 1.
 */
static TARGET void NAME(sample)(
    const Call *call, const Plan *plan, int64_t n, int64_t y, const NAME(Label) *label, REAL *row)
{
    const int64_t k = call->k, after = k - 1 - y;
    const REAL *z = (const REAL *)call->z + n * k;
    REAL *dz = (REAL *)call->dz + n * k;
    NAME(Sums) sums = {0, 0, 0, 0};
    const REAL before_top = NAME(largest)(z, 1, y), after_top = NAME(largest)(z + y + 1, 1, after);
    const REAL top = before_top > after_top ? before_top : after_top;
    NAME(sums)(z, top, label->aim, label->left, label->top, dz, y, &sums);
    NAME(sums)(z + y + 1, top, label->aim + y, label->right, label->top, dz + y + 1, after, &sums);

    const double own = (double)z[y], most = own > (double)top ? own : (double)top, gap = (double)top - most;
    const double others = exp(gap), total = exp(own - most) + others * sums.e, log_total = log(total);
    const double smoothing = call->smoothing, log_own = (own - most) - log_total;
    const double mean_log = (sums.d + (double)(k - 1) * gap + (own - most)) / (double)k - log_total;
    double *values = call->values + 4 * n;
    values[0] = smoothing != 0 ? -(1 - smoothing) * log_own - smoothing * mean_log : -log_own;
    values[1] = log(sums.e) - label->aim_factor * sums.aim_d;
    values[2] = label->log_sum - sums.e_s / sums.e;
    values[3] = z[y] > before_top && z[y] >= after_top; /* the first of equals is the prediction, as in argmax */

    const double weight = call->weights ? call->weight * call->weights[n] : call->weight;
    const double hard = weight * call->hard, residual = weight * call->residual;
    const REAL by_e = (REAL)(hard * others / total + residual / sums.e);
    const REAL constant = (REAL)(hard * smoothing / (double)k), by_aim = (REAL)(residual * label->aim_factor);
    const REAL share = (REAL)(own_share(call, plan, n) / sums.e);
    NAME(gradients)(dz, label->aim, row, by_e, constant, by_aim, share, y);
    NAME(gradients)(dz + y + 1, label->aim + y, row + y, by_e, constant, by_aim, share, after);
    dz[y] = (REAL)(hard * (smoothing - smoothing / (double)k - others * sums.e / total));
}

/* Samples [from, to) of the order by class: losses, gradients, and the classes' rows of S. */
static TARGET void NAME(part_of_batch)(const Call *call, const Plan *plan, int64_t from, int64_t to, Part *part)
{
    const int64_t k = call->k, width = k - 1;
    REAL *scratch = part->memory, *s = call->s;
    NAME(Label) label = {scratch, call->attraction == 1 ? scratch : scratch + width, 0, 0, 0, 0, NULL, NULL};
    for (int64_t at = from, end; at < to; at = end) {
        const int64_t y = call->y[plan->order[at]];
        REAL *row = s + (call->low_rank ? plan->order[at] * k : y * width);
        REAL *gradient = scratch + (at == from ? 2 : 3) * width; /* the first may have to wait, see below */
        double shares = 0;
        for (end = at; end < to && call->y[plan->order[end]] == y && (end == at || !call->low_rank); end++)
            shares += own_share(call, plan, plan->order[end]);
        NAME(read_label)(&label, row, y, call);
        NAME(put)(gradient, 0, label.q, (REAL)(shares * label.q_factor), width);
        for (int64_t i = at; i < end; i++)
            NAME(sample)(call, plan, plan->order[i], y, &label, gradient);
        if (call->low_rank) {
            NAME(put)(row, 0, gradient, 1, y);
            row[y] = 0;
            NAME(put)(row + y + 1, 0, gradient + y, 1, width - y);
        } else if ((at == from && from > 0 && call->y[plan->order[at - 1]] == y) ||
                   (end == to && to < plan->count && call->y[plan->order[to]] == y)) {
            /* Another thread still reads this row, or has a part in it: wait for all. */
            part->waiting[part->waits++] = (Waiting){y, gradient};
        } else if (call->ds) {
            NAME(put)((REAL *)call->ds + plan->place[y] * width, 0, gradient, 1, width);
        } else if (call->step != 0) {
            NAME(put)(row, 1, gradient, (REAL)-call->step, width);
        }
    }
}
