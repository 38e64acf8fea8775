/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/window.h"

/* Far beyond any tensor, so that the sums and products below stay in range. */
static const int64_t far = (int64_t)1 << 30;

static int check_axis(const struct rb_call *call, const struct rb_window *w, bool pool, int i,
                      struct rb_why *why)
{
    int64_t span = w->dilation[i] * (w->kernel[i] - 1) + 1;
    int64_t room = w->in[i] + w->begin[i] + w->end[i] - span, most;

    if (pool && (w->begin[i] >= span || w->end[i] >= span))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "axis %d: the padding is not smaller than the window",
                              i + w->spatial - 1);
    if (w->out[i] == 0)
        return 0;
    if (room < 0)
        return rb_call_refuse(call, RB_EINVAL, why, "the kernel is larger than the padded input");
    most = (room + w->stride[i] - 1) / w->stride[i] + 1; /* rounded up */
    if (w->out[i] < room / w->stride[i] + 1 || w->out[i] > most)
        return rb_call_refuse(call, RB_EINVAL, why, "the output's spatial sizes do not fit");
    return 0;
}

/* Attributes that are lists over the spatial axes; `pads` has begins, then ends. */
static int read_lists(const struct rb_call *call, const struct rb_tensor_type *weights, int spatial,
                      struct rb_window *w, struct rb_why *why)
{
    int64_t kernel[3], stride[3], dilation[3], pads[6];
    int lead = 3 - spatial;
    int err = rb_call_ints(call, "strides", spatial, 1, stride, why);

    err = err ? err : rb_call_ints(call, "dilations", spatial, 1, dilation, why);
    err = err ? err : rb_call_ints(call, "pads", 2 * spatial, 0, pads, why);
    if (!err && !weights && !rb_call_attribute(call, "kernel"))
        err = rb_call_refuse(call, RB_EINVAL, why, "attribute 'kernel' is missing");
    if (!err && !weights)
        err = rb_call_ints(call, "kernel", spatial, 1, kernel, why);
    if (err)
        return err;
    for (int i = 0; i < 3; i++) {
        int k = i - lead;
        bool real = k >= 0;

        w->kernel[i] = !real ? 1 : weights ? weights->dim[2 + k] : kernel[k];
        w->stride[i] = real ? stride[k] : 1;
        w->dilation[i] = real ? dilation[k] : 1;
        w->begin[i] = real ? pads[k] : 0;
        w->end[i] = real ? pads[spatial + k] : 0;
        if (w->kernel[i] < 1 || w->kernel[i] > far || w->stride[i] < 1 || w->stride[i] > far ||
            w->dilation[i] < 1 || w->dilation[i] > far || w->begin[i] < 0 || w->begin[i] > far ||
            w->end[i] < 0 || w->end[i] > far || w->in[i] > far)
            return rb_call_refuse(call, RB_EINVAL, why,
                                  "kernel, strides, dilations or pads are out of range");
    }
    return 0;
}

int rb_window_spatial(const struct rb_call *call, const struct rb_tensor_type *weights)
{
    const struct rb_attribute *kernel = rb_call_attribute(call, "kernel");

    return weights ? weights->rank - 2 : kernel ? kernel->n_ints : 0;
}

int rb_window_read(const struct rb_call *call, const struct rb_tensor_type *x,
                   const struct rb_tensor_type *weights, const struct rb_tensor_type *y,
                   struct rb_window *ret_window, struct rb_why *why)
{
    struct rb_window w = {.spatial = x->rank - 2};
    int lead = 3 - w.spatial, err;

    if (w.spatial < 1 || w.spatial > 3 || y->rank != x->rank ||
        (weights && weights->rank != x->rank))
        return rb_call_refuse(call, RB_EUNSUPPORTED, why,
                              "tensors of one rank with 1 to 3 spatial axes are needed");
    w.n = x->dim[0];
    w.c = x->dim[1];
    for (int i = 0; i < 3; i++) {
        w.in[i] = i < lead ? 1 : x->dim[2 + i - lead];
        w.out[i] = i < lead ? 1 : y->dim[2 + i - lead];
    }
    err = read_lists(call, weights, w.spatial, &w, why);
    for (int i = 0; !err && i < 3; i++)
        err = check_axis(call, &w, !weights, i, why);
    if (!err && y->dim[0] != w.n)
        err = rb_call_refuse(call, RB_EINVAL, why, "input and output differ in samples");
    if (!err)
        *ret_window = w;
    return err;
}

/* Outputs [*ret_first, *ret_end) for which a kernel element is inside the input; for output 0 it is
 * at `at`. */
static void range(const struct rb_window *w, int axis, int64_t at, int64_t *ret_first,
                  int64_t *ret_end)
{
    int64_t stride = w->stride[axis], first, end;

    first = at >= 0 ? 0 : (-at + stride - 1) / stride;
    end = w->in[axis] - at <= 0 ? 0 : (w->in[axis] - at + stride - 1) / stride;
    end = end > w->out[axis] ? w->out[axis] : end;
    *ret_first = first < end ? first : end;
    *ret_end = end;
}

/* Where no output has element k inside the input, each output has it before the input or past it.
 * The last output that has it before the input says how far to jump: until its element enters the
 * input, the elements of earlier outputs do not either, and those of later outputs move further
 * away. */
int64_t rb_window_next(const struct rb_window *w, int axis, int64_t k, int64_t *ret_first,
                       int64_t *ret_end)
{
    int64_t dilation = w->dilation[axis], stride = w->stride[axis], at, last;

    for (; k < w->kernel[axis]; k += (-(at + last * stride) + dilation - 1) / dilation) {
        at = k * dilation - w->begin[axis]; /* of output 0 */
        range(w, axis, at, ret_first, ret_end);
        if (*ret_first < *ret_end)
            return k;
        if (at >= 0 || w->out[axis] == 0)
            break;
        last = (-at - 1) / stride;
        last = last < w->out[axis] ? last : w->out[axis] - 1;
    }
    return w->kernel[axis];
}
