/* Adaptive label regularisation in one pass: the loss, the gradient of the logits, and the rows of S.
 *
 * Shapes: n samples, k classes; z (n, k); S (k, k-1), row y without its own column. The formulas are in
 * adaptive_labels/functional/alr.py; what this file computes for sample n with label y is
 *
 *   dL_hard/dz_i = p_i - t_i,       dL_res/dz_i = p_res_i - q_i (i != y),       dL_upd/dS_y = q - p_res
 *
 * Samples are taken in the order of their labels, so that softmax(S_y) is computed once a class and a row of S is
 * written by one thread only. Rows at the border of two threads wait until both are done.
 *
 * Plain C without any header of torch or Python: tensors come as addresses, through ctypes. OpenMP's symbols are left
 * open for the library that torch has loaded already, so that there is one pool of threads and not two.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define NO_MEMORY -1
#define BAD_LABEL 1

/* Raise it here and in kernels/__init__.py when the fields or the meaning of `Call` change. */
const int adaptive_labels_interface = 2;

/* The twin of `Call` in kernels/__init__.py: same fields, same order. */
typedef struct {
    int64_t n, k, ignore_index, threads;
    int64_t is_double, low_rank, learns, sum, by_class, moves, mode, held;
    double smoothing, hard_factor, factor, attraction, step, weight, momentum;
    const void *z;
    const int64_t *y;
    const void *class_weight, *sample_weight;
    void *s;         /* S; with low_rank the samples' own rows (n, k), which become their gradients */
    void *dz;        /* (n, k) */
    void *ds;        /* (distinct labels, k-1), or NULL: S itself is moved */
    int64_t *labels; /* the labels of the rows of ds */
    void *running, *pending, *epoch, *last_epoch; /* the state of the training accuracy */
    double values[6]; /* out: loss, hard, residual, update, weight, accuracy */
    int64_t count;    /* out: the number of distinct labels, or the position of a wrong one */
} Call;

/* Where the weight of L_res comes from: call->mode. */
enum { CONSTANT, RUNNING, BATCH, EPOCH, WAITING };

/* The samples by class, and the scales of their weights. */
typedef struct {
    int64_t count;        /* samples that are not left out */
    int64_t *order;       /* (count,) */
    double *kept;         /* (n,) the weights of the samples, 0 where left out */
    int64_t *place;       /* (k,) the row of ds of each class */
    double *class_scale;  /* (k,) or NULL */
    double scale, own_scale, samples;
    int64_t classes;
} Plan;

typedef struct {
    int64_t label;
    void *row;
} Waiting;

/* What one thread adds to the whole. */
typedef struct {
    double loss, own, hard, residual, update, hits;
    int waits;
    Waiting waiting[2];
} Share;

/* exp for x <= 0 in single precision, 1 ulp or so, in operations that a compiler can take eight at a time. */
static inline float fast_exp(float x)
{
    union {
        float f;
        int32_t i;
    } shifted, scale;
    const float clamped = x < -87.0f ? -87.0f : x;
    shifted.f = clamped * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    const float n = shifted.f - 12582912.0f;
    scale.i = (int32_t)((uint32_t)(shifted.i - 0x4B400000 + 127) << 23);
    float r = clamped - n * 0.693359375f;
    r -= n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return x < -87.0f ? 0.0f : (p * r * r + r + 1.0f) * scale.f;
}

#define REAL double
#define EXP(x) exp(x)
#define NAME(x) x##_double
#define TARGET
#include "alr_rows.h"
#undef REAL
#undef EXP
#undef NAME
#undef TARGET

#define REAL float
#define EXP(x) fast_exp(x)
#define NAME(x) x##_float
#define TARGET
#include "alr_rows.h"
#undef NAME
#undef TARGET

#if defined(__x86_64__) && defined(__GNUC__) && !defined(ADAPTIVE_LABELS_PORTABLE)
#define NAME(x) x##_float_avx2
#define TARGET __attribute__((target("avx2,fma")))
#include "alr_rows.h"
#undef NAME
#undef TARGET
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define share_of_batch_float_avx2 share_of_batch_float
#define is_right_float_avx2 is_right_float
#define HAS_AVX2 0
#endif

static double number(const Call *call, const void *array, int64_t i)
{
    return call->is_double ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static void put(const Call *call, void *array, int64_t i, double value)
{
    if (call->is_double)
        ((double *)array)[i] = value;
    else
        ((float *)array)[i] = (float)value;
}

static void forget(Plan *plan)
{
    free(plan->order);
    free(plan->kept);
    free(plan->place);
    free(plan->class_scale);
}

/* Sort the samples by class and sum their weights. */
static int make_plan(Call *call, Plan *plan)
{
    const int64_t n = call->n, k = call->k;
    memset(plan, 0, sizeof *plan);
    plan->order = malloc((size_t)(n + 1) * sizeof(int64_t));
    plan->kept = malloc((size_t)(n + 1) * sizeof(double));
    plan->place = malloc((size_t)k * sizeof(int64_t));
    int64_t *next = calloc((size_t)k, sizeof(int64_t));
    if (call->by_class)
        plan->class_scale = calloc((size_t)k, sizeof(double));
    if (!plan->order || !plan->kept || !plan->place || !next || (call->by_class && !plan->class_scale)) {
        free(next);
        return NO_MEMORY;
    }
    double weights = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t y = call->y[i];
        plan->kept[i] = 0;
        if (y == call->ignore_index)
            continue;
        if (y < 0 || y >= k) {
            call->count = i;
            free(next);
            return BAD_LABEL;
        }
        const double own = call->sample_weight ? number(call, call->sample_weight, i) : 1;
        plan->kept[i] = own;
        plan->samples += own;
        weights += own * (call->class_weight ? number(call, call->class_weight, y) : 1);
        if (plan->class_scale)
            plan->class_scale[y] += own;
        if (own > 0)
            next[y]++;
    }
    int64_t begins = 0;
    for (int64_t y = 0; y < k; y++) {
        const int64_t many = next[y];
        plan->place[y] = plan->classes;
        if (many && call->ds)
            call->labels[plan->classes] = y;
        plan->classes += many > 0;
        next[y] = begins;
        begins += many;
        if (plan->class_scale && plan->class_scale[y] > 0)
            plan->class_scale[y] = 1 / plan->class_scale[y];
    }
    plan->count = begins;
    for (int64_t i = 0; i < n; i++)
        if (plan->kept[i] > 0)
            plan->order[next[call->y[i]]++] = i;
    free(next);
    plan->scale = call->sum ? 1 : weights > 0 ? 1 / weights : 0;
    plan->own_scale = call->sum && !call->moves ? 1 : plan->samples > 0 ? 1 / plan->samples : 0;
    return OK;
}

/* The training accuracy of this batch. */
static double batch_accuracy(const Call *call, const Plan *plan, int fast, int threads)
{
    double hits = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : hits) if (threads > 1)
    for (int64_t i = 0; i < plan->count; i++) {
        const int64_t n = plan->order[i], y = call->y[n], at = n * call->k;
        int right;
        if (call->is_double)
            right = is_right_double((const double *)call->z + at, y, call->k);
        else if (fast)
            right = is_right_float_avx2((const float *)call->z + at, y, call->k);
        else
            right = is_right_float((const float *)call->z + at, y, call->k);
        hits += right ? plan->kept[n] : 0;
    }
    return plan->samples > 0 ? hits / plan->samples : 0;
}

/* The weight of L_res, once the last step's counts are in the running average. */
static double residual_weight(const Call *call, const Plan *plan, int fast, int threads)
{
    if (!call->held) {
        const double hits = number(call, call->pending, 0), samples = number(call, call->pending, 1);
        if (samples > 0) {
            const double running = number(call, call->running, 0);
            put(call, call->running, 0, call->momentum * running + (1 - call->momentum) * (hits / samples));
        }
        put(call, call->pending, 0, 0);
        put(call, call->pending, 1, 0);
    }
    const double known = number(call, call->running, 0);
    switch (call->mode) {
    case RUNNING:
        return 1 - known;
    case WAITING:
        return fmin(known, 1 - known);
    case BATCH:
        return 1 - batch_accuracy(call, plan, fast, threads);
    case EPOCH:
        return 1 - number(call, call->last_epoch, 0);
    default:
        return call->weight;
    }
}

/* Rows of S that two threads have a part in: each part is added once all threads are done. */
static void settle(const Call *call, const Plan *plan, const Share *share, int64_t *last)
{
    const int64_t width = call->k - 1;
    for (int i = 0; i < share->waits; i++) {
        const int64_t y = share->waiting[i].label;
        const int64_t at = call->ds ? plan->place[y] * width : y * width;
        const double scale = call->ds ? call->factor : -call->step * call->factor;
        void *to = call->ds ? call->ds : call->s;
        const int set = call->ds && y != *last;
        if (call->is_double)
            (set ? set_double : add_double)((double *)to + at, share->waiting[i].row, scale, width);
        else
            (set ? set_float : add_float)((float *)to + at, share->waiting[i].row, (float)scale, width);
        *last = y;
    }
}

static void count_hits(const Call *call, double hits, double samples)
{
    for (int i = 0; i < 2; i++) {
        const double more = i ? samples : hits;
        put(call, call->pending, i, number(call, call->pending, i) + more);
        put(call, call->epoch, i, number(call, call->epoch, i) + more);
    }
}

/* As many threads as have a worthwhile share each, and at least a sample. */
static int threads_for(const Call *call, const Plan *plan)
{
    int64_t threads = plan->count * call->k / 16384 + 1;
    if (threads > call->threads)
        threads = call->threads;
    if (threads > plan->count)
        threads = plan->count;
    return threads > 1 ? (int)threads : 1;
}

/* Do it. Returns OK, NO_MEMORY, or BAD_LABEL with its position in call->count; then nothing has been changed. */
int adaptive_labels_call(Call *call)
{
    Plan plan;
    const int status = make_plan(call, &plan);
    if (status != OK) {
        forget(&plan);
        return status;
    }
    const int threads = threads_for(call, &plan);
    const size_t size = call->is_double ? sizeof(double) : sizeof(float);
    const size_t room = ((size_t)4 * (size_t)call->k * size + 127) / 64 * 64; /* no cache line for two threads */
    Share *shares = calloc((size_t)threads, sizeof(Share));
    char *memory = malloc(room * (size_t)threads);
    if (!shares || !memory) {
        free(shares);
        free(memory);
        forget(&plan);
        return NO_MEMORY;
    }
    const int fast = HAS_AVX2;
    const double a = residual_weight(call, &plan, fast, threads);
    for (int64_t i = 0; i < call->n; i++) /* rows that are left out have no gradient */
        if (!(plan.kept[i] > 0)) {
            memset((char *)call->dz + (size_t)(i * call->k) * size, 0, (size_t)call->k * size);
            if (call->low_rank)
                memset((char *)call->s + (size_t)(i * call->k) * size, 0, (size_t)call->k * size);
        }
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        const int64_t from = plan.count * t / threads, to = plan.count * (t + 1) / threads;
        void *mine = memory + room * (size_t)t;
        if (call->is_double)
            share_of_batch_double(call, &plan, from, to, a, mine, &shares[t]);
        else if (fast)
            share_of_batch_float_avx2(call, &plan, from, to, a, mine, &shares[t]);
        else
            share_of_batch_float(call, &plan, from, to, a, mine, &shares[t]);
    }
    Share all = shares[0];
    int64_t last = -1;
    settle(call, &plan, &shares[0], &last);
    for (int t = 1; t < threads; t++) {
        settle(call, &plan, &shares[t], &last);
        all.loss += shares[t].loss;
        all.own += shares[t].own;
        all.hard += shares[t].hard;
        all.residual += shares[t].residual;
        all.update += shares[t].update;
        all.hits += shares[t].hits;
    }
    count_hits(call, all.hits, plan.samples);
    const double per_sample = plan.samples > 0 ? 1 / plan.samples : 0;
    call->values[0] = all.loss + call->factor * all.own;
    call->values[1] = all.hard * per_sample;
    call->values[2] = all.residual * per_sample;
    call->values[3] = all.update * per_sample;
    call->values[4] = a;
    call->values[5] = all.hits * per_sample;
    call->count = plan.classes;
    free(shares);
    free(memory);
    forget(&plan);
    return OK;
}
