/* SPDX-License-Identifier: Apache-2.0 */
/* What goes along one axis in order: positions of the largest, running sums, the k largest. */
#include "kernels/cpu/cpu.h"

#include <stdlib.h>

struct order {
    struct rb_kernel base;
    struct rb_call_split at;
    int64_t k;               /* TopK */
    bool values, places;     /* TopK: which outputs there are */
    bool smallest, last;     /* ArgMax, TopK */
    bool exclusive, reverse; /* CumSum */
    void *scratch;           /* TopK: positions of one line */
};

static void order_free(struct rb_kernel *kernel)
{
    free(((struct order *)kernel)->scratch);
    free(kernel);
}

/* Is a in front of b?  A NaN is in front of every number. */
#define BEFORE(a, b)                                                                               \
    ((a) != (a) ? (b) == (b) : (b) != (b) ? false : order->smallest ? (a) < (b) : (a) > (b))

#define ARG_MAX(suffix, T)                                                                         \
    static void arg_max_##suffix(struct rb_kernel *kernel, const void *const *in,                  \
                                 void *const *out, const struct rb_key *key)                       \
    {                                                                                              \
        const struct order *order = (const struct order *)kernel;                                  \
        const struct rb_call_split at = order->at;                                                 \
        int64_t *y = out[0];                                                                       \
        (void)key;                                                                                 \
        for (int64_t o = 0; o < at.outer; o++)                                                     \
            for (int64_t i = 0; i < at.inner; i++) {                                               \
                const T *x = (const T *)in[0] + o * at.n * at.inner + i;                           \
                int64_t best = 0;                                                                  \
                for (int64_t j = 1; j < at.n; j++) {                                               \
                    T a = x[j * at.inner], b = x[best * at.inner];                                 \
                    if (BEFORE(a, b) || (order->last && !BEFORE(b, a)))                            \
                        best = j;                                                                  \
                }                                                                                  \
                *y++ = best;                                                                       \
            }                                                                                      \
    }
ARG_MAX(f32, float)
ARG_MAX(f64, double)
ARG_MAX(i32, int32_t)
ARG_MAX(i64, int64_t)

#define CUM_SUM(suffix, T, U)                                                                      \
    static void cum_sum_##suffix(struct rb_kernel *kernel, const void *const *in,                  \
                                 void *const *out, const struct rb_key *key)                       \
    {                                                                                              \
        const struct order *order = (const struct order *)kernel;                                  \
        const struct rb_call_split at = order->at;                                                 \
        (void)key;                                                                                 \
        for (int64_t o = 0; o < at.outer; o++)                                                     \
            for (int64_t i = 0; i < at.inner; i++) {                                               \
                const T *x = (const T *)in[0] + o * at.n * at.inner + i;                           \
                T *y = (T *)out[0] + o * at.n * at.inner + i;                                      \
                U sum = 0;                                                                         \
                for (int64_t j = 0; j < at.n; j++) {                                               \
                    int64_t to = (order->reverse ? at.n - 1 - j : j) * at.inner;                   \
                    U before = sum;                                                                \
                    sum += (U)x[to];                                                               \
                    y[to] = (T)(order->exclusive ? before : sum);                                  \
                }                                                                                  \
            }                                                                                      \
    }
CUM_SUM(f32, float, float)
CUM_SUM(f64, double, double)
CUM_SUM(i32, int32_t, uint32_t)
CUM_SUM(i64, int64_t, uint64_t)

/* A heap of the k best so far, the worst of them on top; equal ones count by position.  Taking them
 * off one by one fills the output from its end. */
#define TOP_K(suffix, T)                                                                           \
    static bool behind_##suffix(const struct order *order, const T *x, int64_t a, int64_t b)       \
    {                                                                                              \
        T p = x[a * order->at.inner], q = x[b * order->at.inner];                                  \
        return BEFORE(q, p) || (!BEFORE(p, q) && a > b);                                           \
    }                                                                                              \
    static void sink_##suffix(const struct order *order, const T *x, int64_t *heap, int64_t n)     \
    {                                                                                              \
        int64_t at = 0, child, item = heap[0];                                                     \
        while ((child = 2 * at + 1) < n) {                                                         \
            if (child + 1 < n && behind_##suffix(order, x, heap[child + 1], heap[child]))          \
                child++;                                                                           \
            if (!behind_##suffix(order, x, heap[child], item))                                     \
                break;                                                                             \
            heap[at] = heap[child];                                                                \
            at = child;                                                                            \
        }                                                                                          \
        heap[at] = item;                                                                           \
    }                                                                                              \
    static void rise_##suffix(const struct order *order, const T *x, int64_t *heap, int64_t at)    \
    {                                                                                              \
        int64_t item = heap[at];                                                                   \
        for (; at && behind_##suffix(order, x, item, heap[(at - 1) / 2]); at = (at - 1) / 2)       \
            heap[at] = heap[(at - 1) / 2];                                                         \
        heap[at] = item;                                                                           \
    }                                                                                              \
    static void top_k_##suffix(struct rb_kernel *kernel, const void *const *in, void *const *out,  \
                               const struct rb_key *key)                                           \
    {                                                                                              \
        const struct order *order = (const struct order *)kernel;                                  \
        const struct rb_call_split at = order->at;                                                 \
        int64_t *heap = order->scratch, k = order->k;                                              \
        (void)key;                                                                                 \
        for (int64_t o = 0; k > 0 && o < at.outer; o++)                                            \
            for (int64_t i = 0; i < at.inner; i++) {                                               \
                const T *x = (const T *)in[0] + o * at.n * at.inner + i;                           \
                int64_t first = o * k * at.inner + i;                                              \
                for (int64_t j = 0; j < at.n; j++)                                                 \
                    if (j < k) {                                                                   \
                        heap[j] = j;                                                               \
                        rise_##suffix(order, x, heap, j);                                          \
                    } else if (behind_##suffix(order, x, heap[0], j)) {                            \
                        heap[0] = j;                                                               \
                        sink_##suffix(order, x, heap, k);                                          \
                    }                                                                              \
                for (int64_t j = k; j-- > 0;) {                                                    \
                    int64_t best = heap[0];                                                        \
                    heap[0] = heap[j];                                                             \
                    sink_##suffix(order, x, heap, j);                                              \
                    if (order->values)                                                             \
                        ((T *)out[0])[first + j * at.inner] = x[best * at.inner];                  \
                    if (order->places)                                                             \
                        ((int64_t *)out[1])[first + j * at.inner] = best;                          \
                }                                                                                  \
            }                                                                                      \
    }
TOP_K(f32, float)
TOP_K(f64, double)
TOP_K(i32, int32_t)
TOP_K(i64, int64_t)

static int order_new(const struct rb_call *call, rb_cpu_run *const runs[4], struct order **ret,
                     struct rb_why *why)
{
    const struct rb_tensor_type *x = rb_call_in(call, 0);
    struct order *order;
    int axis, err = rb_call_axis(call, "axis", x->rank, &axis, why);
    int run = x->dtype == RB_F32   ? 0
              : x->dtype == RB_F64 ? 1
              : x->dtype == RB_I32 ? 2
              : x->dtype == RB_I64 ? 3
                                   : -1;

    if (err)
        return err;
    if (call->n_in != 1)
        return rb_call_refuse(call, RB_EINVAL, why, "one input is needed");
    if (run < 0)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    order = rb_cpu_kernel(sizeof(*order), runs[run]);
    order->base.free = order_free;
    order->at = rb_call_split_at(x, axis);
    order->smallest = rb_call_int(call, "smallest", 0);
    order->last = rb_call_int(call, "last", 0);
    order->exclusive = rb_call_int(call, "exclusive", 0);
    order->reverse = rb_call_int(call, "reverse", 0);
    *ret = order;
    return 0;
}

int rb_cpu_arg_max(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    static rb_cpu_run *const runs[] = {arg_max_f32, arg_max_f64, arg_max_i32, arg_max_i64};
    struct order *order = NULL;
    int err = order_new(call, runs, &order, why);

    (void)cpu;
    if (err)
        return err;
    if (call->out[0].dtype != RB_I64 || call->n_out != 1 || order->at.n < 1 ||
        rb_tensor_elements(&call->out[0]) != order->at.outer * order->at.inner) {
        order_free(&order->base);
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another type or shape");
    }
    *ret_kernel = &order->base;
    return 0;
}

int rb_cpu_cum_sum(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    static rb_cpu_run *const runs[] = {cum_sum_f32, cum_sum_f64, cum_sum_i32, cum_sum_i64};
    struct order *order = NULL;
    int err = order_new(call, runs, &order, why);

    (void)cpu;
    if (err)
        return err;
    if (!rb_tensor_same(&call->out[0], &call->in[0]) || call->n_out != 1) {
        order_free(&order->base);
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another type or shape");
    }
    *ret_kernel = &order->base;
    return 0;
}

/* Do values and positions have the shape of the input but for the axis? */
static bool top_k_fits(const struct rb_call *call, struct order *order, int axis)
{
    struct rb_tensor_type want = call->in[0];
    const struct rb_tensor_type *y = rb_call_out(call, 0), *places = rb_call_out(call, 1);
    const struct rb_tensor_type *any = y->dtype != RB_NONE ? y : places;

    if (any->rank != want.rank || any->dim[axis] > want.dim[axis])
        return false;
    want.dim[axis] = order->k = any->dim[axis];
    order->values = y->dtype != RB_NONE;
    order->places = places->dtype != RB_NONE;
    if (y->dtype != RB_NONE && !rb_tensor_same(y, &want))
        return false;
    want.dtype = RB_I64;
    return places->dtype == RB_NONE || rb_tensor_same(places, &want);
}

int rb_cpu_top_k(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    static rb_cpu_run *const runs[] = {top_k_f32, top_k_f64, top_k_i32, top_k_i64};
    struct order *order = NULL;
    int err = order_new(call, runs, &order, why);

    (void)cpu;
    if (err)
        return err;
    if (!top_k_fits(call, order, (int)rb_call_int(call, "axis", 0)))
        err = rb_call_refuse(call, RB_EINVAL, why, "the outputs have other types or shapes");
    if (!err) {
        order->scratch = rb_cpu_scratch((size_t)order->k * sizeof(int64_t));
        if (!order->scratch)
            err = rb_call_refuse(call, RB_ENOMEM, why, "no memory");
    }
    if (err) {
        order_free(&order->base);
        return err;
    }
    *ret_kernel = &order->base;
    return 0;
}
