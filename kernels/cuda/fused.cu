// SPDX-License-Identifier: Apache-2.0
/* Elementwise operators in one: a list of steps that all threads go through alike.
 *
 * What a step makes stays in registers for the next one; what a later one reads as well is kept
 * beside.  Inputs are read where a step wants them, several elements at once where all inputs lie
 * so. */
#include "kernels/cuda/scalar.h"

extern "C" {
#include "kernels/fused.h"
}

namespace
{

enum { TOGETHER = 4 };

template <class T, int V> struct alignas(sizeof(T) * V) pack {
    T at[V];
};

enum layout { DENSE, SINGLE, STRIDED };

struct input {
    const void *x;
    uint8_t dtype, layout;
    struct rb_places places; /* STRIDED */
};

struct step {
    uint8_t op, dtype, n;
    bool tanh_form, kept; /* a later step than the next reads it */
    int8_t from[RB_FUSED_SOURCES];
};

static_assert(RB_OP_COUNT < 256, "operators have a byte");

/* Sums and products are rounded where they stand: a product and a sum never become one. */
RB_GPU float plus(float a, float b)
{
#ifdef __CUDACC__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

RB_GPU float minus(float a, float b)
{
#ifdef __CUDACC__
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
}

RB_GPU float times(float a, float b)
{
#ifdef __CUDACC__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

RB_GPU float rounded(float x)
{
    return rb_bfloat_get(rb_bfloat_put(x));
}

template <int V> struct fused_body {
    int n_in, n;
    struct input in[RB_FUSED_INPUTS];
    struct step steps[RB_FUSED_STEPS];
    void *y;

    RB_GPU static float number(const struct input &from, int64_t i)
    {
        if (from.dtype == RB_BOOL)
            return ((const uint8_t *)from.x)[i] != 0 ? 1.0f : 0.0f;
        return rb_real_get(from.x, from.dtype == RB_BF16, i);
    }

    /* Elements i to i + V, which lie in one row. */
    RB_GPU static void load(const struct input &from, int64_t i, float *x)
    {
        if (from.layout == SINGLE) {
            float one = number(from, 0);

            for (int j = 0; j < V; j++)
                x[j] = one;
        } else if (from.layout == STRIDED) {
            int64_t at = from.places.at(i), along = from.places.step[from.places.rank - 1];

            for (int j = 0; j < V; j++)
                x[j] = number(from, at + j * along);
        } else if (from.dtype == RB_F32) {
            pack<float, V> p = *(const pack<float, V> *)((const float *)from.x + i);

            for (int j = 0; j < V; j++)
                x[j] = p.at[j];
        } else if (from.dtype == RB_BF16) {
            pack<uint16_t, V> p = *(const pack<uint16_t, V> *)((const uint16_t *)from.x + i);

            for (int j = 0; j < V; j++)
                x[j] = rb_bfloat_get(p.at[j]);
        } else {
            pack<uint8_t, V> p = *(const pack<uint8_t, V> *)((const uint8_t *)from.x + i);

            for (int j = 0; j < V; j++)
                x[j] = p.at[j] != 0 ? 1.0f : 0.0f;
        }
    }

    /* Operators that training is full of have a case of their own. */
    RB_GPU static void make(const struct step &s, const float *a, const float *b, const float *c,
                            float *r)
    {
        switch (s.op) {
        case RB_OP_ADD:
            for (int j = 0; j < V; j++)
                r[j] = plus(a[j], b[j]);
            break;
        case RB_OP_SUB:
            for (int j = 0; j < V; j++)
                r[j] = minus(a[j], b[j]);
            break;
        case RB_OP_MUL:
            for (int j = 0; j < V; j++)
                r[j] = times(a[j], b[j]);
            break;
        case RB_OP_RELU:
            for (int j = 0; j < V; j++)
                r[j] = one<float>(RB_OP_RELU, a[j], false);
            break;
        case RB_OP_RELU_GRAD:
            for (int j = 0; j < V; j++)
                r[j] = back<RB_OP_RELU_GRAD>(a[j], b[j], false);
            break;
        case RB_OP_WHERE:
            for (int j = 0; j < V; j++)
                r[j] = a[j] != 0 ? b[j] : c[j];
            break;
        case RB_OP_EQUAL:
        case RB_OP_LESS:
        case RB_OP_GREATER:
            for (int j = 0; j < V; j++)
                r[j] = holds<float>(s.op, a[j], b[j]) ? 1.0f : 0.0f;
            break;
        case RB_OP_CAST:
            for (int j = 0; j < V; j++)
                r[j] = a[j];
            break;
        default:
            for (int j = 0; j < V; j++)
                r[j] = of_floats(s.op, a[j], b[j], s.n == 2, s.tanh_form);
        }
        if (s.dtype == RB_BF16)
            for (int j = 0; j < V; j++)
                r[j] = rounded(r[j]);
    }

    RB_GPU void store(int64_t i, const float *r) const
    {
        uint8_t dtype = steps[n - 1].dtype;

        if (dtype == RB_F32) {
            pack<float, V> p;

            for (int j = 0; j < V; j++)
                p.at[j] = r[j];
            *(pack<float, V> *)((float *)y + i) = p;
        } else if (dtype == RB_BF16) {
            pack<uint16_t, V> p;

            for (int j = 0; j < V; j++)
                p.at[j] = rb_bfloat_put(r[j]);
            *(pack<uint16_t, V> *)((uint16_t *)y + i) = p;
        } else {
            pack<uint8_t, V> p;

            for (int j = 0; j < V; j++)
                p.at[j] = r[j] != 0;
            *(pack<uint8_t, V> *)((uint8_t *)y + i) = p;
        }
    }

    RB_GPU void operator()(int64_t group) const
    {
        float kept[RB_FUSED_STEPS][V], last[V] = {0};

        for (int k = 0; k < n; k++) {
            float v[RB_FUSED_SOURCES][V] = {};

#ifdef __CUDACC__
#pragma unroll
#endif
            for (int s = 0; s < RB_FUSED_SOURCES; s++) {
                int from = steps[k].from[s];

                if (from < 0)
                    continue;
                if (from < n_in)
                    load(in[from], group * V, v[s]);
                else
                    for (int j = 0; j < V; j++)
                        v[s][j] = from == n_in + k - 1 ? last[j] : kept[from - n_in][j];
            }
            make(steps[k], v[0], v[1], v[2], last);
            if (steps[k].kept)
                for (int j = 0; j < V; j++)
                    kept[k][j] = last[j];
        }
        store(group * V, last);
    }
};

struct fused : rb_work {
    struct fused_body<1> body;
    int64_t elements;
    bool together;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        if (together)
            launch<TOGETHER>(cuda, in, out);
        else
            launch<1>(cuda, in, out);
    }

    template <int V>
    void launch(struct rb_cuda *cuda, const void *const *in, void *const *out) const
    {
        struct fused_body<V> all = {};

        all.n_in = body.n_in;
        all.n = body.n;
        memcpy(all.steps, body.steps, sizeof(all.steps));
        for (int i = 0; i < body.n_in; i++) {
            all.in[i] = body.in[i];
            all.in[i].x = in[i];
        }
        all.y = out[0];
        rb_each(cuda, elements / V, all);
    }
};

void take_steps(const struct rb_fused *from, struct fused_body<1> *body)
{
    body->n_in = from->n_in;
    body->n = from->n;
    for (int k = 0; k < from->n; k++) {
        const struct rb_fused_step *one = &from->step[k];

        body->steps[k] = {(uint8_t)one->op, (uint8_t)one->dtype, (uint8_t)one->n, one->tanh_form,
                          false,            {-1, -1, -1}};
        for (int s = 0; s < one->n; s++) {
            int made = one->from[s] - from->n_in;

            body->steps[k].from[s] = (int8_t)one->from[s];
            if (made >= 0 && made < k - 1)
                body->steps[made].kept = true;
        }
    }
}

/* Where an input lies, and whether several of its elements may be taken at once. */
bool take_input(const struct rb_call *call, const struct rb_walk *walk, int i, struct input *ret)
{
    ret->dtype = (uint8_t)call->in[i].dtype;
    if (rb_tensor_elements(&call->in[i]) == 1) {
        ret->layout = SINGLE;
        return true;
    }
    if (rb_tensor_elements(&call->in[i]) == rb_tensor_elements(&call->out[0])) {
        ret->layout = DENSE;
        return true;
    }
    ret->layout = STRIDED;
    ret->places = rb_places_of(walk, i);
    return walk->dim[walk->rank - 1] % TOGETHER == 0;
}

} // namespace

int rb_cuda_fused(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    struct rb_fused steps;
    struct rb_walk walk;
    struct fused work = {};
    int err = rb_fused_read(call, &steps, why);

    if (err)
        return err;
    if (!rb_walk_broadcast(&walk, &call->out[0], call->n_in, call->in))
        return rb_call_refuse(call, RB_EINVAL, why, "the inputs do not broadcast");
    take_steps(&steps, &work.body);
    work.elements = rb_tensor_elements(&call->out[0]);
    work.together = !call->slices && work.elements % TOGETHER == 0;
    for (int i = 0; i < call->n_in; i++)
        work.together = take_input(call, &walk, i, &work.body.in[i]) && work.together;
    return rb_make(cuda, call, work, ret_kernel);
}
