/* The loops over the classes of one sample. Included once for each number type and instruction set, with
 *
 *   REAL         float or double
 *   EXP(x)       e^x for x <= 0; 0 for -inf; NaN stays NaN
 *   NAME(x)      x with the suffix of this version
 *   TARGET       an attribute that names the instruction set, or nothing
 *
 * Every loop runs over the classes but the own one y: [0, y) and then (y, K). In a row of S the own column is erased, so
 * the second part begins one column earlier there ("erased coordinates"); in a row of a low-rank S it does not.
 *
 * Sums are taken in blocks: inside a block in REAL, one per vector lane, and over the blocks in double.
 */

enum { NAME(BLOCK) = 2048 };

static TARGET REAL NAME(largest)(const REAL *x, int64_t n)
{
    REAL most = -INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

/* out = exp(scale * x - top), its sum is returned. */
static TARGET double NAME(exponentials)(const REAL *x, REAL scale, REAL top, REAL *out, int64_t n)
{
    double total = 0;
    for (int64_t from = 0; from < n; from += NAME(BLOCK)) {
        int64_t to = from + NAME(BLOCK) < n ? from + NAME(BLOCK) : n;
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

/* One part of a sample's row: e goes to `out`, the sums are added to. `s` may be NULL. */
static TARGET void NAME(sums)(
    const REAL *z, REAL top, const REAL *aim, const REAL *s, REAL s_top, REAL *out, int64_t n, NAME(Sums) *sums)
{
    for (int64_t from = 0; from < n; from += NAME(BLOCK)) {
        int64_t to = from + NAME(BLOCK) < n ? from + NAME(BLOCK) : n;
        REAL sum_e = 0, sum_d = 0, sum_aim = 0, sum_s = 0;
        if (s) {
#pragma omp simd reduction(+ : sum_e, sum_d, sum_aim, sum_s)
            for (int64_t i = from; i < to; i++) {
                REAL d = z[i] - top, e = EXP(d);
                out[i] = e;
                sum_e += e;
                sum_d += d;
                sum_aim += aim[i] * d;
                sum_s += e * (s[i] - s_top);
            }
        } else {
#pragma omp simd reduction(+ : sum_e, sum_d, sum_aim)
            for (int64_t i = from; i < to; i++) {
                REAL d = z[i] - top, e = EXP(d);
                out[i] = e;
                sum_e += e;
                sum_d += d;
                sum_aim += aim[i] * d;
            }
        }
        sums->e += (double)sum_e;
        sums->d += (double)sum_d;
        sums->aim_d += (double)sum_aim;
        sums->e_s += (double)sum_s;
    }
}

/* The gradient of the logits from e, in place: by_e * e - constant - by_aim * aim. */
static TARGET void NAME(gradient)(
    REAL *dz, const REAL *aim, REAL by_e, REAL constant, REAL by_aim, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dz[i] = by_e * dz[i] - constant - by_aim * aim[i];
}

/* The same, and `mean` gains share * e, or becomes it if this is the first sample of its class. */
static TARGET void NAME(gradient_and_mean)(
    REAL *dz, const REAL *aim, REAL *mean, int first, REAL by_e, REAL constant, REAL by_aim, REAL share, int64_t n)
{
    if (first) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            REAL e = dz[i];
            mean[i] = share * e;
            dz[i] = by_e * e - constant - by_aim * aim[i];
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            REAL e = dz[i];
            mean[i] += share * e;
            dz[i] = by_e * e - constant - by_aim * aim[i];
        }
    }
}

/* The gradient of a row of S from the mean of p_res, in place: weight * q - mean. */
static TARGET void NAME(row_gradient)(REAL *mean, const REAL *q, REAL weight, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        mean[i] = weight * q[i] - mean[i];
}

static TARGET void NAME(add)(REAL *to, const REAL *x, REAL scale, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        to[i] += scale * x[i];
}

static TARGET void NAME(set)(REAL *to, const REAL *x, REAL scale, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        to[i] = scale * x[i];
}

/* A row of S as its class needs it: q and the aim of L_res as exponentials with the factors that make them sum to 1. */
typedef struct {
    REAL *q, *aim; /* the same array when the attraction is 1 */
    REAL top;
    double q_factor, aim_factor, log_sum;
    const REAL *left, *right; /* the row itself: before the own column, and after it */
} NAME(Label);

static TARGET void NAME(read_label)(
    NAME(Label) *label, const REAL *row, int64_t y, int64_t k, int full, double attraction)
{
    const int64_t after = k - 1 - y;
    label->left = row;
    label->right = row + y + (full ? 1 : 0);
    REAL a = NAME(largest)(label->left, y), b = NAME(largest)(label->right, after);
    label->top = a > b ? a : b;
    double sum = NAME(exponentials)(label->left, 1, label->top, label->q, y);
    sum += NAME(exponentials)(label->right, 1, label->top, label->q + y, after);
    label->log_sum = log(sum);
    label->q_factor = label->aim_factor = 1 / sum;
    if (label->aim == label->q)
        return;
    /* The largest of attraction * s: at the smallest s when the attraction is negative, so it is found afresh. */
    REAL tau = (REAL)attraction, top = -INFINITY;
    for (int part = 0; part < 2; part++) {
        const REAL *x = part ? label->right : label->left;
        int64_t n = part ? after : y;
#pragma omp simd reduction(max : top)
        for (int64_t i = 0; i < n; i++)
            top = tau * x[i] > top ? tau * x[i] : top;
    }
    sum = NAME(exponentials)(label->left, tau, top, label->aim, y);
    sum += NAME(exponentials)(label->right, tau, top, label->aim + y, after);
    label->aim_factor = 1 / sum;
}

/* What a sample's row gives beside its gradient. */
typedef struct {
    double hard, residual, update;
    int right;
} NAME(Values);

/* The values and the gradient of one sample.
 *
 * With top the largest of the other logits, sum = sum of e over the others, and M = max(z_y, top):
 *   p_res_i = e_i / sum,   p_i = e_i * exp(top - M) / Z,   Z = exp(z_y - M) + exp(top - M) * sum.
 * 1 - p_y is formed as the others' share of Z: as a difference it would lose everything when p_y is near 1.
 */
static TARGET NAME(Values) NAME(sample)(const Call *call, const REAL *z, REAL *dz, int64_t y, const NAME(Label) *label,
                                        REAL *mean, int first, double weight, double own_weight, double a)
{
    const int64_t k = call->k, after = k - 1 - y;
    const double hard_factor = call->hard_factor, factor = call->factor, smoothing = call->smoothing;
    const int learns = call->learns;
    NAME(Values) values = {0, 0, 0, 0};
    NAME(Sums) sums = {0, 0, 0, 0};
    REAL before_top = NAME(largest)(z, y), after_top = NAME(largest)(z + y + 1, after);
    REAL top = before_top > after_top ? before_top : after_top;
    NAME(sums)(z, top, label->aim, learns ? label->left : NULL, label->top, dz, y, &sums);
    NAME(sums)(z + y + 1, top, label->aim + y, learns ? label->right : NULL, label->top, dz + y + 1, after, &sums);

    double own = (double)z[y], most = own > (double)top ? own : (double)top, gap = (double)top - most;
    double others = exp(gap), total = exp(own - most) + others * sums.e, log_total = log(total);
    double log_own = (own - most) - log_total;
    values.right = z[y] > before_top && z[y] >= after_top; /* the first of equals is the prediction, as in argmax */
    values.hard = -log_own;
    if (smoothing != 0) {
        double mean_log = (sums.d + (double)(k - 1) * gap + (own - most)) / (double)k - log_total;
        values.hard = -(1 - smoothing) * log_own - smoothing * mean_log;
    }
    values.residual = log(sums.e) - label->aim_factor * sums.aim_d;
    values.update = learns ? label->log_sum - sums.e_s / sums.e : 0;

    REAL by_e = (REAL)(weight * (hard_factor * others / total + a * factor / sums.e));
    REAL constant = (REAL)(weight * hard_factor * smoothing / (double)k);
    REAL by_aim = (REAL)(weight * a * factor * label->aim_factor);
    REAL share = (REAL)(own_weight / sums.e);
    if (learns) {
        NAME(gradient_and_mean)(dz, label->aim, mean, first, by_e, constant, by_aim, share, y);
        NAME(gradient_and_mean)(dz + y + 1, label->aim + y, mean + y, first, by_e, constant, by_aim, share, after);
    } else {
        NAME(gradient)(dz, label->aim, by_e, constant, by_aim, y);
        NAME(gradient)(dz + y + 1, label->aim + y, by_e, constant, by_aim, after);
    }
    dz[y] = (REAL)(weight * hard_factor * (smoothing - smoothing / (double)k - others * sums.e / total));
    return values;
}

/* Whether the own class has the largest logit, the first of equals. */
static TARGET int NAME(is_right)(const REAL *z, int64_t y, int64_t k)
{
    return z[y] > NAME(largest)(z, y) && z[y] >= NAME(largest)(z + y + 1, k - 1 - y);
}

/* Samples [from, to) of the order by class: values, gradients, and the classes' rows of S. */
static TARGET void NAME(share_of_batch)(
    const Call *call, const Plan *plan, int64_t from, int64_t to, double a, void *memory, Share *share)
{
    const int64_t k = call->k, width = k - 1;
    const REAL *z = call->z, *class_weight = call->class_weight;
    REAL *dz = call->dz, *s = call->s, *ds = call->ds, *scratch = memory;
    NAME(Label) label = {scratch, call->attraction == 1 ? scratch : scratch + width, 0, 0, 0, 0, NULL, NULL};
    REAL *first_mean = scratch + 2 * width, *other_mean = scratch + 3 * width;
    int64_t at = from;
    while (at < to) {
        const int64_t y = call->y[plan->order[at]];
        int64_t end = at;
        if (call->low_rank)
            end = at + 1;
        else
            while (end < to && call->y[plan->order[end]] == y)
                end++;
        REAL *row = s + (call->low_rank ? plan->order[at] * k : y * width);
        REAL *mean = at == from ? first_mean : other_mean;
        NAME(read_label)(&label, row, y, k, call->low_rank, call->attraction);
        double own_total = 0;
        for (int64_t i = at; i < end; i++) {
            const int64_t n = plan->order[i];
            const double kept = plan->kept[n], by_class = class_weight ? (double)class_weight[y] : 1;
            const double weight = kept * by_class * plan->scale;
            const double of_class = plan->class_scale ? plan->class_scale[y] : plan->own_scale;
            const double own_weight = kept * of_class;
            NAME(Values) v = NAME(sample)(call, z + n * k, dz + n * k, y, &label, mean, i == at, weight, own_weight, a);
            own_total += own_weight;
            share->loss += weight * (call->hard_factor * v.hard + a * call->factor * v.residual);
            share->own += (call->sum ? kept : own_weight) * v.update;
            share->hard += kept * v.hard;
            share->residual += kept * v.residual;
            share->update += kept * v.update;
            share->hits += v.right ? kept : 0;
        }
        if (call->learns) {
            NAME(row_gradient)(mean, label.q, (REAL)(own_total * label.q_factor), width);
            const int shared = !call->low_rank && ((at == from && from > 0 && call->y[plan->order[at - 1]] == y) ||
                                                   (end == to && to < plan->count && call->y[plan->order[to]] == y));
            if (call->low_rank) {
                NAME(set)(row, mean, (REAL)call->factor, y);
                row[y] = 0;
                NAME(set)(row + y + 1, mean + y, (REAL)call->factor, width - y);
            } else if (shared) { /* another thread still reads this row, or has a part in it: wait for all */
                share->waiting[share->waits++] = (Waiting){y, mean};
            } else if (ds) {
                NAME(set)(ds + plan->place[y] * width, mean, (REAL)call->factor, width);
            } else {
                NAME(add)(row, mean, (REAL)(-call->step * call->factor), width);
            }
        }
        at = end;
    }
}
