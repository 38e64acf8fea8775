// SPDX-License-Identifier: Apache-2.0
/* Attention in tiles: of the scores there is never more than a tile, in shared memory.
 *
 * call > [attention] > attention_forward, attention_backward > attention_tile */
#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_forward.h"

namespace
{

template <class T> struct attention : rb_work {
    struct rb_attention s;
    struct layout at;
    bool grad, together, short_out[3];

    int64_t tiles(int64_t rows) const
    {
        return s.batch * ((rows + at.rows - 1) / at.rows);
    }

    void set(struct rb_cuda *cuda, struct common<T> *body, const void *const *in,
             const struct rb_key *key) const
    {
        body->s = s;
        body->at = at;
        body->together = together;
        body->words = {rb_cuda_key_of(key), rb_cuda_tape_key(cuda)};
        body->q = (const T *)in[grad];
        body->k = (const T *)in[grad + 1];
        body->v = (const T *)in[grad + 2];
    }

    void forward(struct rb_cuda *cuda, const void *const *in, void *const *out,
                 const struct rb_key *key) const
    {
        struct forward_body<T> body;

        set(cuda, &body, in, key);
        body.y = out[0];
        body.short_y = short_out[0];
        body.l = (float *)out[1];
        rb_tiles(cuda, tiles(s.queries), at.bytes, body);
    }

    void backward(struct rb_cuda *cuda, const void *const *in, void *const *out,
                  const struct rb_key *key) const
    {
        struct inner_body<T> inner = {
            s.width, (const T *)in[0], (const T *)in[4], (float *)cuda->scratch
        };
        struct backward_body<T> body;

        set(cuda, &body, in, key);
        body.dy = (const T *)in[0];
        body.l = (const float *)in[5];
        body.inner = (const float *)cuda->scratch;
        body.dq = out[0];
        body.dk = out[1];
        body.dv = out[2];
        memcpy(body.short_out, short_out, sizeof(short_out));
        rb_rows(cuda, s.batch * s.queries, s.width, inner);
        body.of_queries = true;
        if (out[0])
            rb_tiles(cuda, tiles(s.queries), at.bytes, body);
        body.of_queries = false;
        if (out[1] || out[2])
            rb_tiles(cuda, tiles(s.keys), at.bytes, body);
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out,
             const struct rb_key *key)
    {
        if (grad)
            backward(cuda, in, out, key);
        else
            forward(cuda, in, out, key);
    }
};

template <class T>
int make(struct rb_cuda *cuda, const struct rb_call *call, const struct rb_attention *s,
         struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct attention<T> work = {
    };
    struct forward_body<T> forward;
    struct backward_body<T> backward;
    int err = 0;

    work.s = *s;
    work.grad = call->op == RB_OP_ATTENTION_GRAD;
    work.at = choose_layout(s, sizeof(T), work.grad);
    work.together = !call->slices && s->depth * sizeof(T) % sizeof(struct piece) == 0 &&
                    s->width * sizeof(T) % sizeof(struct piece) == 0;
    for (int i = 0; i < call->n_out && i < 3; i++)
        work.short_out[i] = call->out[i].dtype == RB_BF16;
    if (work.at.bytes > RB_TILE_MOST || work.tiles(s->queries) > INT32_MAX ||
        work.tiles(s->keys) > INT32_MAX)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "a GPU has no room for such rows");
    if (!rb_gpu_enter(cuda->gpu)) /* the limits set below are those of the thread's GPU */
        return rb_gpu_check(cuda->gpu, why);
    if (work.grad)
        err = rb_cuda_need(cuda, (size_t)(s->batch * s->queries + 1) * sizeof(float), why);
    if (err)
        return err;
    err = work.grad ? rb_tiles_allow(backward, work.at.bytes)
                    : rb_tiles_allow(forward, work.at.bytes);
    if (err)
        return rb_call_refuse(call, err, why, "this GPU has not as much shared memory");
    return rb_make(cuda, call, work, ret_kernel);
}

} // namespace

int rb_cuda_attention(struct rb_cuda *cuda, const struct rb_call *call,
                      struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct rb_attention s;
    int err = rb_attention_read(call, &s, why);

    if (err)
        return err;
    if (call->in[0].dtype == RB_BF16)
        return make<uint16_t>(cuda, call, &s, ret_kernel, why);
    return make<float>(cuda, call, &s, ret_kernel, why);
}
