/* Adaptive label regularisation in one pass: each sample's losses, the gradient of the logits, and that of rows of S.
 *
 * Shapes: n samples, k classes; z (n, k); S (k, k-1), row y without its own column. A sample has one label or several,
 * each with a share of it: triples (row, class, share), c of them per row. The formulas are derived in
 * adaptive_labels/losses/closed_form.py. Samples with one label each are taken class by class: the class's row of S as
 * probabilities, each sample's losses and the gradient of its logits, and the gradient of L_upd by the row. Where a
 * sample has several labels, these are three loops: over the classes that occur, the samples, and the classes again.
 * No two threads share a class or a sample.
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

#ifdef _OPENMP
extern int omp_get_thread_num(void);
#else
static inline int omp_get_thread_num(void) { return 0; }
#endif

/* Raise it here and in kernel.py when the fields or the meaning of `Call` change. */
const int adaptive_labels_interface = 9;

/* The twin of `Call` in kernel.py: same fields, same order. */
typedef struct {
    int64_t n, k, c, threads, is_double;
    int64_t mean;                           /* the rows of ds are divided by their counts */
    double smoothing, attraction, residual; /* residual: the weight on L_res */
    double weight, own;     /* every sample's factor in the gradients of the logits and of S, beside the arrays' */
    const void *z;          /* (n, k) */
    const int64_t *y;       /* (n, c) */
    const double *shares;   /* (n, c), or NULL: all of it */
    const double *weights, *owns; /* (n,) or NULL; a sample with 0 in `owns` is left out */
    const void *s;          /* (k, k-1) */
    void *dz;               /* out: (n, k) */
    void *ds;               /* out: (distinct labels, k-1) */
    int64_t *labels;        /* out: the labels of the rows of ds, in order */
    double *counts;         /* out: for each row of ds the sum of its samples' shares times `own` */
    double *values;         /* out: (n, 3) L_hard, L_res, and the share of the predicted class */
    double sums[3];         /* out: their sums, those of samples that are left out or not finite apart */
    double update, samples; /* out: the sums of own * L_upd, and of own */
    int64_t count;          /* out: the number of distinct labels */
} Call;

/* What the loops hand on, by row of S (r), by sample (n), or by triple (n, c). */
typedef struct {
    char *scratch;             /* (threads, 4, k) */
    char *e, *q, *aim;         /* with several labels: (n, k) exponentials; (r, k) softmax(S); softmax(attraction S) */
    double *log_sum;           /* (r,) of the exponentials of each row of S */
    int64_t *place, *order;    /* (n, c) the triple's r; the triples in the order of their r */
    int64_t *start;            /* (r + 1,) where each r's begin */
    double *share, *by_e, *by_top; /* (n, c) the triple's weight in S, and the factors of its exponentials and its top */
    int64_t *top;              /* (n,) the predicted class */
    int64_t *next;             /* (k,) room for counting */
} Work;

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
#include "alr_loops.h"
#undef REAL
#undef EXP
#undef NAME
#undef TARGET

#define REAL float
#define EXP(x) fast_exp(x)
#define NAME(x) x##_float
#define TARGET
#include "alr_loops.h"
#undef NAME
#undef TARGET

#if defined(__x86_64__) && defined(__GNUC__) && !defined(ADAPTIVE_LABELS_PORTABLE)
#define NAME(x) x##_float_avx2
#define TARGET __attribute__((target("avx2,fma")))
#include "alr_loops.h"
#undef NAME
#undef TARGET
#define NAME(x) x##_float_avx512
#define TARGET __attribute__((target("avx512f,avx512dq,fma,prefer-vector-width=512")))
#include "alr_loops.h"
#undef NAME
#undef TARGET
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#ifdef ADAPTIVE_LABELS_AVX2 /* and no more */
#define HAS_AVX512 0
#else
#define HAS_AVX512 (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
#endif
#else
#define loops_float_avx2 loops_float
#define loops_float_avx512 loops_float
#define HAS_AVX2 0
#define HAS_AVX512 0
#endif

/* Sort the triples of the samples that count by class. */
static int make_plan(Call *call, Work *work)
{
    const int64_t c = call->c, triples = call->n * c;
    for (int64_t i = 0; i < triples; i++) {
        if (call->owns && !(call->owns[i / c] > 0))
            continue;
        if (call->y[i] < 0 || call->y[i] >= call->k)
            return BAD_LABEL;
        work->next[call->y[i]]++;
    }
    int64_t before = 0;
    for (int64_t y = 0; y < call->k; y++) {
        const int64_t many = work->next[y];
        work->next[y] = before;
        if (many) {
            call->labels[call->count] = y;
            work->start[call->count++] = before;
            before += many;
        }
    }
    work->start[call->count] = before;
    for (int64_t i = 0; i < triples; i++)
        if (!call->owns || call->owns[i / c] > 0)
            work->order[work->next[call->y[i]]++] = i;
    for (int64_t r = 0; r < call->count; r++)
        for (int64_t at = work->start[r]; at < work->start[r + 1]; at++)
            work->place[work->order[at]] = r;
    return OK;
}

/* Room that a thread keeps from call to call, up to 32 MB: fresh memory costs a page fault for every 4 KB. */
static _Thread_local char *room;
static _Thread_local size_t room_size;
enum { ROOM = 1 << 25 };

static char *take_room(size_t size)
{
    if (size > ROOM)
        return malloc(size);
    if (size > room_size) {
        free(room);
        room = malloc(size);
        room_size = room ? size : 0;
    }
    return room;
}

/* Do it. Returns OK, NO_MEMORY, or BAD_LABEL. */
int adaptive_labels_call(Call *call)
{
    const size_t n = (size_t)call->n, k = (size_t)call->k, triples = n * (size_t)call->c;
    const size_t rows = triples < k ? triples : k, size = call->is_double ? sizeof(double) : sizeof(float);
    const int64_t worthwhile = call->n * call->k / 16384 + 1; /* as many threads as have a worthwhile part each */
    const int threads = (int)(worthwhile > call->threads ? call->threads : worthwhile);
    const int aims = call->attraction != 1, several = call->c > 1;
    const size_t numbers = 5 * triples + n + 2 * rows + 1; /* of 8 bytes each */
    const size_t kept = several ? n + rows + (aims ? rows : 0) : 0;
    const size_t needed = (kept + 4 * (size_t)threads) * k * size + numbers * 8;
    char *memory = take_room(needed);
    int64_t *next = calloc(k, sizeof(int64_t));
    int status = memory && next ? OK : NO_MEMORY;
    if (status == OK) {
        Work work = {.next = next, .share = (double *)memory};
        work.by_e = work.share + triples;
        work.by_top = work.by_e + triples;
        work.log_sum = work.by_top + triples;
        work.place = (int64_t *)(work.log_sum + rows);
        work.order = work.place + triples;
        work.top = work.order + triples;
        work.start = work.top + n;
        work.scratch = (char *)(work.start + rows + 1);
        work.e = work.scratch + 4 * (size_t)threads * k * size;
        work.q = work.e + n * k * size;
        work.aim = aims ? work.q + rows * k * size : work.q;
        status = make_plan(call, &work);
        if (status == OK) {
            if (call->is_double)
                loops_double(call, &work, threads);
            else if (HAS_AVX512)
                loops_float_avx512(call, &work, threads);
            else if (HAS_AVX2)
                loops_float_avx2(call, &work, threads);
            else
                loops_float(call, &work, threads);
        }
    }
    if (needed > ROOM)
        free(memory);
    free(next);
    return status;
}
