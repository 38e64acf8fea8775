// SPDX-License-Identifier: Apache-2.0
/* Elements that go elsewhere: each output element asks where it comes from. */
#include "kernels/cuda/launch.h"

namespace
{

/* Nothing but a size decides how an element is copied. */
template <class T> struct take_body {
    struct rb_places from;
    const T *x;
    T *y;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = x[from.at(i)];
    }
};

template <class T> struct give_body {
    struct rb_places to;
    const T *x;
    T *y;

    RB_GPU void operator()(int64_t i) const
    {
        y[to.at(i)] = x[i];
    }
};

template <class T> struct trilu_body {
    int64_t rows, columns, k;
    bool upper;
    const T *x;
    T *y;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t column = i % columns, row = i / columns % rows;
        bool stays = upper ? column - row >= k : column - row <= k;

        y[i] = stays ? x[i] : 0;
    }
};

/* Call what a size stands for: work.moved<uint32_t>(...). */
template <class W>
void by_size(const W &work, size_t size, struct rb_cuda *cuda, const void *x, void *y)
{
    switch (size) {
    case 1:
        work.template moved<uint8_t>(cuda, x, y);
        break;
    case 2:
        work.template moved<uint16_t>(cuda, x, y);
        break;
    case 4:
        work.template moved<uint32_t>(cuda, x, y);
        break;
    default:
        work.template moved<uint64_t>(cuda, x, y);
    }
}

struct move : rb_work {
    struct rb_places places;
    int64_t n;
    size_t size;
    bool gives, cleared; /* the places are the output's; the output is zero elsewhere, */
    size_t bytes;        /* and has this many bytes */

    template <class T> void moved(struct rb_cuda *cuda, const void *x, void *y) const
    {
        struct take_body<T> take = {
            places, (const T *)x, (T *)y
        };
        struct give_body<T> give = {
            places, (const T *)x, (T *)y
        };

        if (gives)
            rb_each(cuda, n, give);
        else
            rb_each(cuda, n, take);
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        if (cleared)
            rb_gpu_zero(cuda->gpu, out[0], bytes);
        by_size(*this, size, cuda, in[0], out[0]);
    }
};

struct trilu : rb_work {
    int64_t n, rows, columns, k;
    bool upper;
    size_t size;

    template <class T> void moved(struct rb_cuda *cuda, const void *x, void *y) const
    {
        struct trilu_body<T> body = {
            rows, columns, k, upper, (const T *)x, (T *)y
        };

        rb_each(cuda, n, body);
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        by_size(*this, size, cuda, in[0], out[0]);
    }
};

/* Concat and Split: pieces of a whole, each with its places in it. */
struct parts : rb_work {
    struct piece {
        struct rb_places places;
        int64_t n;
    } * pieces;
    int n;
    bool split;
    size_t size;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        for (int i = 0; i < n; i++) {
            struct move one = {};

            if (!pieces[i].n || (split && !out[i]))
                continue;
            one.places = pieces[i].places;
            one.n = pieces[i].n;
            one.gives = !split;
            by_size(one, size, cuda, split ? in[0] : in[i], split ? out[i] : out[0]);
        }
    }

    void done()
    {
        free(pieces);
    }
};

/* The places of tensors of `dim` in a tensor that is stepped through with `step` from `base`. */
struct rb_places places_of(int rank, const int64_t *dim, const int64_t *step, int64_t base)
{
    struct rb_walk walk = {};

    walk.rank = rank;
    walk.operands = 1;
    walk.base[0] = base;
    memcpy(walk.dim, dim, sizeof(int64_t) * (size_t)rank);
    memcpy(walk.step[0], step, sizeof(int64_t) * (size_t)rank);
    rb_walk_merge(&walk);
    return rb_places_of(&walk, 0);
}

int make_move(struct rb_cuda *cuda, const struct rb_call *call, const struct rb_places &places,
              struct rb_kernel **ret_kernel)
{
    struct move work = {};

    work.places = places;
    work.n = rb_tensor_elements(&call->out[0]);
    work.size = rb_dtype_size(call->out[0].dtype);
    return rb_make(cuda, call, work, ret_kernel);
}

/* Base and steps in `whole` of a slice. */
int64_t slice_steps(const struct rb_call *call, const struct rb_tensor_type *whole, int64_t *step)
{
    const struct rb_attribute *starts = rb_call_attribute(call, "starts");
    const struct rb_attribute *steps = rb_call_attribute(call, "steps");
    int64_t base = 0;

    rb_walk_dense(whole, step);
    for (int a = 0; a < whole->rank; a++) {
        base += starts ? starts->ints[a] * step[a] : 0;
        step[a] *= steps ? steps->ints[a] : 1;
    }
    return base;
}

int make_trilu(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel)
{
    const struct rb_tensor_type *y = &call->out[0];
    struct trilu work = {};

    work.n = rb_tensor_elements(y);
    work.rows = y->dim[y->rank - 2];
    work.columns = y->dim[y->rank - 1];
    work.k = rb_call_int(call, "k", 0);
    work.upper = rb_call_int(call, "upper", 1) != 0;
    work.size = rb_dtype_size(y->dtype);
    return rb_make(cuda, call, work, ret_kernel);
}

} // namespace

int rb_cuda_copy(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *)
{
    int64_t n = rb_tensor_elements(&call->out[0]), step = 1;

    return make_move(cuda, call, places_of(1, &n, &step, 0), ret_kernel);
}

int rb_cuda_move(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    const struct rb_tensor_type *x = &call->in[0], *y = &call->out[0];
    int64_t from[RB_MAX_RANK] = {0}, step[RB_MAX_RANK] = {0}, base = 0;
    struct rb_walk walk;

    if (call->op == RB_OP_TRILU)
        return make_trilu(cuda, call, ret_kernel);
    if (call->op == RB_OP_EXPAND) {
        if (!rb_walk_broadcast(&walk, y, 1, x))
            return rb_call_refuse(call, RB_EINVAL, why, "the input does not broadcast");
        return make_move(cuda, call, rb_places_of(&walk, 0), ret_kernel);
    }
    if (call->op == RB_OP_SLICE) {
        base = slice_steps(call, x, step);
    } else if (y->rank > 0) {
        const struct rb_attribute *perm = rb_call_attribute(call, "perm");

        rb_walk_dense(x, from);
        for (int a = 0; a < y->rank; a++)
            step[a] = from[perm->ints[a]];
    }
    return make_move(cuda, call, places_of(y->rank, y->dim, step, base), ret_kernel);
}

int rb_cuda_slice_grad(struct rb_cuda *cuda, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *)
{
    const struct rb_tensor_type *dy = &call->in[0], *dx = &call->out[0];
    int64_t step[RB_MAX_RANK] = {0}, base = slice_steps(call, dx, step);
    struct move work = {};

    work.places = places_of(dy->rank, dy->dim, step, base);
    work.n = rb_tensor_elements(dy);
    work.size = rb_dtype_size(dx->dtype);
    work.gives = work.cleared = true;
    work.bytes = (size_t)rb_tensor_elements(dx) * work.size;
    return rb_make(cuda, call, work, ret_kernel);
}

int rb_cuda_parts(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *)
{
    bool split = call->op == RB_OP_SPLIT;
    const struct rb_tensor_type *whole = split ? call->in : call->out;
    const struct rb_tensor_type *part = split ? call->out : call->in;
    int axis = (int)rb_call_int(call, "axis", 0);
    int64_t step[RB_MAX_RANK] = {0}, begin = 0;
    struct parts work = {};

    rb_walk_dense(whole, step);
    work.n = split ? call->n_out : call->n_in;
    work.split = split;
    work.size = rb_dtype_size(whole->dtype);
    work.pieces = (struct parts::piece *)rb_alloc(sizeof(*work.pieces) * (size_t)(work.n + 1));
    for (int i = 0; i < work.n; i++) {
        work.pieces[i].places = places_of(part[i].rank, part[i].dim, step, begin * step[axis]);
        work.pieces[i].n = rb_tensor_elements(&part[i]);
        begin += part[i].dim[axis];
    }
    return rb_make(cuda, call, work, ret_kernel);
}
