/* Adaptive label regularisation in one pass: each sample's losses, the gradient of the logits, and the rows of S.
 *
 * Shapes: n samples, k classes; z (n, k); S (k, k-1), row y without its own column. The formulas are in
 * adaptive_labels/losses/residual.py; what this file computes for sample n with label y is
 *
 *   dL_hard/dz_i = p_i - t_i,       dL_res/dz_i = p_res_i - q_i (i != y),       dL_upd/dS_y = q - p_res
 *
 * times the samples' weights, which come with the call. Samples are taken in the order of their labels, so that
 * softmax(S_y) is computed once per class and a row of S is written by one thread only. Rows at the border of two
 * threads wait until both are done.
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

/* Raise it here and in kernel.py when the fields or the meaning of `Call` change. */
const int adaptive_labels_interface = 7;

/* The twin of `Call` in kernel.py: same fields, same order. */
typedef struct {
    int64_t n, k, threads, is_double, low_rank;
    int64_t by_class; /* the samples' factors `own` are divided by their sum over the class */
    double smoothing, attraction;
    double hard, residual; /* factors of L_hard and L_res in the gradient of the logits */
    double weight, own;    /* every sample's factor in the gradients of the logits and of S, beside the arrays' */
    double step;           /* S is moved against its gradient by this much; 0 leaves it alone */
    const void *z;
    const int64_t *y;
    const double *weights, *owns; /* (n,) or NULL; a sample with 0 in `owns` is left out */
    void *s;         /* S; with low_rank the samples' own rows (n, k), which become their gradients */
    void *dz;        /* out: (n, k) */
    void *ds;        /* out: (distinct labels, k-1), or rows of (k, k-1) if labels is NULL; NULL: S is moved */
    int64_t *labels; /* out: the labels of the rows of ds, in order */
    double *values;  /* out: (n, 4) L_hard, L_res, L_upd, and whether the prediction is right */
    double sums[4];  /* out: those of the columns of values */
    double update;   /* out: the sum of L_upd, each sample's times its factor in the gradient of S */
    int64_t count;   /* out: the number of distinct labels */
} Call;

/* The samples that count, by class. */
typedef struct {
    int64_t count, classes;
    int64_t *order; /* (count,) */
    int64_t *place; /* (k,) the row of ds of each class */
    double *totals; /* (k,) what the samples of each class have their factor `own` divided by, or NULL */
} Plan;

typedef struct {
    int64_t label;
    void *row;
} Waiting;

/* What one thread works with: room for four rows, and the rows of S that wait for the others. */
typedef struct {
    void *memory;
    int waits;
    Waiting waiting[2];
} Part;

static inline double own_share(const Call *call, const Plan *plan, int64_t n)
{
    const double own = call->owns ? call->own * call->owns[n] : call->own;
    return plan->totals && own != 0 ? own / plan->totals[call->y[n]] : own;
}

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
#define part_of_batch_float_avx2 part_of_batch_float
#define HAS_AVX2 0
#endif

/* Sort the samples that count by class; `next` is room for (k,) zeros. What is left out gets zeros. */
static int make_plan(Call *call, Plan *plan, int64_t *next)
{
    const size_t row = (size_t)call->k * (call->is_double ? sizeof(double) : sizeof(float));
    for (int64_t i = 0; i < call->n; i++) {
        if (call->y[i] < 0 || call->y[i] >= call->k)
            return BAD_LABEL;
        if (!call->owns || call->owns[i] > 0) {
            next[call->y[i]]++;
            if (plan->totals)
                plan->totals[call->y[i]] += call->owns ? call->owns[i] : 1;
            continue;
        }
        memset((char *)call->dz + (size_t)i * row, 0, row);
        memset(call->values + 4 * i, 0, 4 * sizeof(double));
        if (call->low_rank)
            memset((char *)call->s + (size_t)i * row, 0, row);
    }
    for (int64_t y = 0; y < call->k; y++) {
        const int64_t many = next[y];
        plan->place[y] = call->labels ? plan->classes : y;
        if (many && call->labels)
            call->labels[plan->classes] = y;
        plan->classes += many > 0;
        next[y] = plan->count;
        plan->count += many;
    }
    for (int64_t i = 0; i < call->n; i++)
        if (!call->owns || call->owns[i] > 0)
            plan->order[next[call->y[i]]++] = i;
    return OK;
}

/* Rows of S that two threads have a part in: added once all threads are done. `last` is the row added to before. */
static void settle(const Call *call, const Plan *plan, const Part *part, int64_t *last)
{
    const int64_t width = call->k - 1;
    for (int i = 0; i < part->waits && (call->ds || call->step != 0); i++) {
        const Waiting waiting = part->waiting[i];
        const int64_t at = (call->ds ? plan->place[waiting.label] : waiting.label) * width;
        const int keep = !call->ds || waiting.label == *last;
        const double scale = call->ds ? 1 : -call->step;
        void *to = call->ds ? call->ds : call->s;
        if (call->is_double)
            put_double((double *)to + at, keep, waiting.row, scale, width);
        else
            put_float((float *)to + at, keep, waiting.row, (float)scale, width);
        *last = waiting.label;
    }
}

static void work(const Call *call, const Plan *plan, int threads, Part *parts)
{
    const int fast = HAS_AVX2;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        const int64_t from = plan->count * t / threads, to = plan->count * (t + 1) / threads;
        if (call->is_double)
            part_of_batch_double(call, plan, from, to, &parts[t]);
        else if (fast)
            part_of_batch_float_avx2(call, plan, from, to, &parts[t]);
        else
            part_of_batch_float(call, plan, from, to, &parts[t]);
    }
    int64_t last = -1;
    for (int t = 0; t < threads; t++)
        settle(call, plan, &parts[t], &last);
}

/* Do it. Returns OK, NO_MEMORY, or BAD_LABEL; unless OK, S has not been changed. */
int adaptive_labels_call(Call *call)
{
    const size_t k = (size_t)call->k;
    Plan plan = {0, 0, malloc((size_t)(call->n + 1) * sizeof(int64_t)), malloc(k * sizeof(int64_t)), NULL};
    plan.totals = call->by_class ? calloc(k, sizeof(double)) : NULL;
    int64_t *next = calloc(k, sizeof(int64_t));
    const int has_room = plan.order && plan.place && next && (plan.totals || !call->by_class);
    int status = has_room ? make_plan(call, &plan, next) : NO_MEMORY;
    free(next);
    /* As many threads as have a worthwhile share each. */
    int64_t threads = plan.count * call->k / 16384 + 1;
    threads = threads > call->threads ? call->threads : threads;
    threads = threads > plan.count ? plan.count : threads;
    threads = threads > 1 ? threads : 1;
    const size_t size = call->is_double ? sizeof(double) : sizeof(float);
    const size_t room = ((size_t)4 * (size_t)call->k * size + 127) / 64 * 64; /* no cache line for two threads */
    Part *parts = calloc((size_t)threads, sizeof(Part));
    char *memory = malloc(room * (size_t)threads);
    if (!parts || !memory)
        status = NO_MEMORY;
    if (status == OK) {
        for (int64_t t = 0; t < threads; t++)
            parts[t].memory = memory + room * (size_t)t;
        work(call, &plan, (int)threads, parts);
        call->count = plan.classes;
        for (int64_t i = 0; i < 4 * call->n; i++)
            call->sums[i % 4] += call->values[i];
        for (int64_t i = 0; i < call->n; i++)
            call->update += own_share(call, &plan, i) * call->values[4 * i + 2];
    }
    free(parts);
    free(memory);
    free(plan.order);
    free(plan.place);
    free(plan.totals);
    return status;
}
