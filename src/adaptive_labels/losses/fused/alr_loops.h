/* The loops of alr.c. Included once for each number type and instruction set, with
 *
 *   REAL         float or double
 *   EXP(x)       e^x for x <= 0; 0 for -inf; NaN stays NaN
 *   NAME(x)      x with the suffix of this version
 *   TARGET       an attribute that names the instruction set, or nothing
 *
 * Sums are taken in blocks: inside a block in REAL, one per vector lane, and over the blocks in double.
 */

enum { NAME(BLOCK) = 2048 };

/* The largest of sign * x. */
static TARGET REAL NAME(largest)(const REAL *x, REAL sign, int64_t n)
{
    REAL most = -INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++)
        most = sign * x[i] > most ? sign * x[i] : most;
    return most;
}

/* The first place of a number that is in x. */
static TARGET int64_t NAME(place)(const REAL *x, REAL number, int64_t n)
{
    for (int64_t from = 0; from < n; from += 64) {
        const int64_t to = from + 64 < n ? from + 64 : n;
        int here = 0;
#pragma omp simd reduction(| : here)
        for (int64_t i = from; i < to; i++)
            here |= x[i] == number;
        for (int64_t i = from; here && i < to; i++)
            if (x[i] == number)
                return i;
    }
    return 0;
}

/* out = exp(scale * x - top); its sum is returned. */
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

/* Of a part of a sample's row, with d = z - top: out = exp(d); the sums of exp(d), d and aim * d are added to. */
typedef struct {
    double e, d, aim;
} NAME(Sums);

static TARGET void NAME(sums)(const REAL *z, REAL top, const REAL *aim, REAL *out, int64_t n, NAME(Sums) *sums)
{
    for (int64_t from = 0; from < n; from += NAME(BLOCK)) {
        const int64_t to = from + NAME(BLOCK) < n ? from + NAME(BLOCK) : n;
        REAL sum_e = 0, sum_d = 0, sum_aim = 0;
#pragma omp simd reduction(+ : sum_e, sum_d, sum_aim)
        for (int64_t i = from; i < to; i++) {
            const REAL d = z[i] - top, e = EXP(d);
            out[i] = e;
            sum_e += e;
            sum_d += d;
            sum_aim += aim[i] * d;
        }
        sums->e += (double)sum_e;
        sums->d += (double)sum_d;
        sums->aim += (double)sum_aim;
    }
}

/* 32 bytes of numbers. Four such sums run side by side, since each addition waits for the one before. */
typedef REAL NAME(Lanes) __attribute__((vector_size(32), aligned(sizeof(REAL)), may_alias));
enum { NAME(LANES) = 32 / sizeof(REAL), NAME(STEP) = 4 * NAME(LANES) };

/* The sum of x * y. */
static TARGET double NAME(product)(const REAL *x, const REAL *y, int64_t n)
{
    double total = 0;
    int64_t i = 0;
    while (i + NAME(STEP) <= n) {
        const int64_t end = i + NAME(BLOCK) < n ? i + NAME(BLOCK) : n;
        NAME(Lanes) sums[4] = {0};
        for (; i + NAME(STEP) <= end; i += NAME(STEP))
            for (int j = 0; j < 4; j++) {
                const NAME(Lanes) a = *(const NAME(Lanes) *)(x + i + j * NAME(LANES));
                sums[j] += a * *(const NAME(Lanes) *)(y + i + j * NAME(LANES));
            }
        const NAME(Lanes) sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int j = 0; j < NAME(LANES); j++)
            total += (double)sum[j];
    }
    for (; i < n; i++)
        total += (double)(x[i] * y[i]);
    return total;
}

/* out += scale * x. */
static TARGET void NAME(add)(REAL *out, const REAL *x, REAL scale, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] += scale * x[i];
}

/* Row y of S as softmax(scale * S_y), 0 in its own column; returns log sum exp. */
static TARGET double NAME(probabilities)(const Call *call, int64_t y, REAL scale, REAL *out)
{
    const int64_t k = call->k, after = k - 1 - y;
    const REAL *left = (const REAL *)call->s + y * (k - 1), *right = left + y;
    const REAL top = scale * (scale < 0 ? -NAME(largest)(left, -1, k - 1) : NAME(largest)(left, 1, k - 1));
    const double sum = NAME(exponentials)(left, scale, top, out, y) +
                       NAME(exponentials)(right, scale, top, out + y + 1, after);
    const REAL factor = (REAL)(1 / sum);
    out[y] = 0;
#pragma omp simd
    for (int64_t i = 0; i < k; i++)
        out[i] *= factor;
    return (double)top + log(sum);
}

/* The losses and the gradient of sample n, whose first label aims at `aim`; its exponentials go to `e`, and what it
 * adds to the sum over its class to `sum`, unless that is NULL. The names are those of closed_form.py. */
static TARGET void NAME(sample)(const Call *call, Work *work, int64_t n, const REAL *aim, REAL *e, REAL *sum)
{
    const int64_t k = call->k, c = call->c, first = n * c;
    const REAL *z = (const REAL *)call->z + n * k, *aims = (const REAL *)work->aim;
    REAL *dz = (REAL *)call->dz + n * k;
    double *values = call->values + 3 * n;
    const double own = call->owns ? call->own * call->owns[n] : call->own;
    const double weight = call->weights ? call->weight * call->weights[n] : call->weight;
    const REAL largest = NAME(largest)(z, 1, k);
    const int64_t top = NAME(place)(z, largest, k), after = k - 1 - top;
    NAME(Sums) sums = {0, 0, 0}; /* the aims and logits relative to the largest logit */
    NAME(sums)(z, largest, aim, e, top, &sums);
    NAME(sums)(z + top + 1, largest, aim + top + 1, e + top + 1, after, &sums);
    if (!isfinite(sums.d) || !isfinite(largest)) {
        values[0] = NAN;
        values[1] = values[2] = 0;
        for (int64_t i = 0; i < k; i++)
            dz[i] = NAN;
        for (int64_t i = first; i < first + c; i++)
            work->share[i] = 0;
        return;
    }
    REAL second = largest; /* which the exponentials are relative to: the second largest only where they vanish */
    double sum_e = sums.e;
    if (sum_e < 1e-12) {
        const REAL left = NAME(largest)(z, 1, top), right = NAME(largest)(z + top + 1, 1, after);
        second = left > right ? left : right;
        sum_e = NAME(exponentials)(z, 1, second, e, top) + NAME(exponentials)(z + top + 1, 1, second, e + top + 1, after);
    }
    e[top] = 0;
    const double gap = exp((double)second - (double)z[top]), odds = sum_e * gap;
    const double others = odds / (1 + odds), factor = gap / (1 + odds), log_total = log1p(odds);
    const double smoothing = call->smoothing, a = call->residual;
    double hard = 0, residual = 0, excluded = 0, of_top = 0, shares = 0;
    for (int64_t i = first; i < first + c; i++) {
        const int64_t y = call->y[i];
        const double share = call->shares ? call->shares[i] : 1, rest = 1 - (double)e[y] * factor;
        const double without = y == top ? (double)second - (double)z[top] + log(sum_e) : log_total + log1p(rest - 1);
        shares += share;
        hard += share * (log_total + ((double)z[top] - (double)z[y]));
        double aim_d = sums.aim;
        if (i > first)
            aim_d = NAME(product)(aims + work->place[i] * k, z, k) - (double)z[top];
        residual += share * (without - aim_d);
        work->share[i] = own * share;
        if (y == top) {
            of_top += share;
            work->by_e[i] = own * share / sum_e;
            work->by_top[i] = 0;
        } else {
            excluded += share / rest;
            work->by_e[i] = own * share * factor / rest;
            work->by_top[i] = own * share * (1 - others) / rest;
        }
    }
    work->top[n] = top;
    values[0] = (1 - smoothing) * hard + smoothing * (log_total - sums.d / (double)k);
    values[1] = residual;
    values[2] = of_top;
    const double hards = (1 - smoothing) * shares + smoothing;
    const REAL by_e = (REAL)(weight * (hards * factor + a * (factor * excluded + of_top / sum_e)));
    const REAL constant = (REAL)(weight * smoothing / (double)k);
    const REAL by_aim = (REAL)(weight * a * (call->shares ? call->shares[first] : 1));
    if (sum) { /* the one label's class: what gather() does elsewhere */
        const REAL own_e = (REAL)work->by_e[first];
#pragma omp simd
        for (int64_t i = 0; i < k; i++) {
            sum[i] += own_e * e[i];
            dz[i] = by_e * e[i] - constant - by_aim * aim[i];
        }
        sum[top] += (REAL)work->by_top[first];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < k; i++)
            dz[i] = by_e * e[i] - constant - by_aim * aim[i];
    }
    dz[top] += (REAL)(weight * (1 - others) * (hards + a * excluded));
    for (int64_t i = first; i < first + c; i++) {
        const int64_t y = call->y[i];
        const double share = call->shares ? call->shares[i] : 1, p = (double)e[y] * factor;
        dz[y] -= (REAL)(weight * share * (1 - smoothing + (y == top ? 0 : a * p / (1 - p))));
        if (i > first)
            NAME(add)(dz, aims + work->place[i] * k, (REAL)(-weight * a * share), k);
    }
}

/* Add to the sum over a class what the triple i says, whose exponentials are `e`; returns its weight. */
static TARGET double NAME(gather)(const Call *call, const Work *work, int64_t i, const REAL *e, REAL *sum)
{
    if (work->share[i] == 0)
        return 0;
    NAME(add)(sum, e, (REAL)work->by_e[i], call->k);
    sum[work->top[i / call->c]] += (REAL)work->by_top[i];
    return work->share[i];
}

/* The gradient of L_upd by the row r of S, from its class's sum; returns its part of the loss. */
static TARGET double NAME(row)(const Call *call, int64_t r, const REAL *q, double log_sum, const REAL *sum, double count)
{
    const int64_t y = call->labels[r], width = call->k - 1;
    const REAL *s = (const REAL *)call->s + y * width;
    REAL *out = (REAL *)call->ds + r * width;
    call->counts[r] = count;
    const REAL scale = call->mean ? (REAL)(1 / (count + (count == 0))) : 1, share = (REAL)count * scale;
    const double attracted = NAME(product)(sum, s, y) + NAME(product)(sum + y + 1, s + y, width - y);
#pragma omp simd
    for (int64_t i = 0; i < y; i++)
        out[i] = share * q[i] - scale * sum[i];
#pragma omp simd
    for (int64_t i = y; i < width; i++)
        out[i] = share * q[i + 1] - scale * sum[i + 1];
    return count * log_sum - attracted;
}

static TARGET void NAME(loops)(Call *call, Work *work, int threads)
{
    const int64_t k = call->k, rows = call->count, one = call->c == 1;
    const int aims = call->attraction != 1;
    const REAL attraction = (REAL)call->attraction;
    double update = 0;
    if (!one) { /* what the samples of several classes need: all rows of S, and then all samples */
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int64_t r = 0; r < rows; r++) {
            work->log_sum[r] = NAME(probabilities)(call, call->labels[r], 1, (REAL *)work->q + r * k);
            if (aims)
                NAME(probabilities)(call, call->labels[r], attraction, (REAL *)work->aim + r * k);
        }
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int64_t n = 0; n < call->n; n++)
            if (!call->owns || call->owns[n] > 0)
                NAME(sample)(call, work, n, (REAL *)work->aim + work->place[n * call->c] * k, (REAL *)work->e + n * k, NULL);
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) reduction(+ : update) if (threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        REAL *scratch = (REAL *)work->scratch + omp_get_thread_num() * 4 * k, *sum = scratch, *e = scratch + k;
        const REAL *q = one ? scratch + 2 * k : (REAL *)work->q + r * k, *aim = aims ? scratch + 3 * k : q;
        double log_sum = one ? 0 : work->log_sum[r], count = 0;
        if (one) { /* one class after the other, all in the cache */
            log_sum = NAME(probabilities)(call, call->labels[r], 1, scratch + 2 * k);
            if (aims)
                NAME(probabilities)(call, call->labels[r], attraction, scratch + 3 * k);
        }
        memset(sum, 0, (size_t)k * sizeof(REAL));
        for (int64_t at = work->start[r]; at < work->start[r + 1]; at++) {
            const int64_t i = work->order[at];
            if (one) {
                NAME(sample)(call, work, i, aim, e, sum);
                count += work->share[i];
            } else
                count += NAME(gather)(call, work, i, (REAL *)work->e + i / call->c * k, sum);
        }
        update += NAME(row)(call, r, q, log_sum, sum, count);
    }
    call->update = update;
    for (int64_t n = 0; n < call->n; n++) {
        double *values = call->values + 3 * n;
        const double own = call->owns ? call->own * call->owns[n] : call->own;
        if (!(own > 0)) {
            values[0] = values[1] = values[2] = 0;
            memset((REAL *)call->dz + n * k, 0, (size_t)k * sizeof(REAL));
        }
        for (int i = 0; i < 3; i++)
            call->sums[i] += values[i];
        call->samples += isfinite(values[0]) ? own : 0;
    }
}
