/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and their gradients: through oneDNN, in the blocked layouts it prefers, so that
 * activations in blocks (proto/blocked.h) need not be turned around; as an outer product; or, where
 * there is AVX2 and no more, by Rubato's own tiles.  Where bfloat16 is not faster, or oneDNN lacks
 * it, a convolution of bfloat16 is one of float32 copies.
 *
 * call > [conv] > conv_outer, conv_direct, conv_weights, oneDNN */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/conv_direct.h"
#include "kernels/cpu/conv_outer.h"
#include "kernels/cpu/conv_weights.h"
#include "kernels/cpu/onednn.h"
#include "kernels/window.h"
#include "proto/blocked.h"

#include <stdlib.h>
#include <string.h>

struct conv {
    struct rb_kernel base;
    struct rb_dnnl_op *op; /* NULL: there is nothing to sum, the output is zero */
    int inputs;
    int output; /* index of the output's address */
    size_t bytes;
};

static void conv_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                     const struct rb_key *key)
{
    const struct conv *conv = (const struct conv *)kernel;
    void *addresses[4] = {NULL};

    (void)key;
    if (!conv->op) {
        memset(out[0], 0, conv->bytes);
        return;
    }
    for (int i = 0; i < conv->inputs; i++) /* oneDNN only reads these */
        addresses[i] = (void *)(uintptr_t)in[i];
    addresses[conv->output] = out[0];
    rb_dnnl_run(conv->op, addresses);
}

static void conv_free(struct rb_kernel *kernel)
{
    struct conv *conv = (struct conv *)kernel;

    rb_dnnl_free(conv->op);
    free(conv);
}

static int check_channels(const struct rb_call *call, const struct rb_dnnl_conv *how,
                          struct rb_why *why)
{
    if (how->group < 1 || how->w->dim[0] % how->group != 0 ||
        how->w->dim[1] > how->x->dim[1] / how->group ||
        how->w->dim[1] * how->group != how->x->dim[1] || how->y->dim[1] != how->w->dim[0])
        return rb_call_refuse(call, RB_EINVAL, why,
                              "the channels of input, weights, output and %lld groups do not fit",
                              (long long)how->group);
    if (how->bias && (call->in[2].rank != 1 || call->in[2].dim[0] != how->w->dim[0]))
        return rb_call_refuse(call, RB_EINVAL, why, "the bias must have one element a channel");
    return 0;
}

/* Which of the call's tensors is x, w and y. */
static enum rb_dnnl_conv_kind read_roles(const struct rb_call *call, struct rb_dnnl_conv *how)
{
    switch (call->op) {
    case RB_OP_CONV_GRAD_X:
        how->y = rb_call_in(call, 0);
        how->w = rb_call_in(call, 1);
        how->x = rb_call_out(call, 0);
        return RB_DNNL_CONV_GRAD_X;
    case RB_OP_CONV_GRAD_W:
        how->y = rb_call_in(call, 0);
        how->x = rb_call_in(call, 1);
        how->w = rb_call_out(call, 0);
        return RB_DNNL_CONV_GRAD_W;
    default:
        how->x = rb_call_in(call, 0);
        how->w = rb_call_in(call, 1);
        how->y = rb_call_out(call, 0);
        how->bias = rb_call_has_in(call, 2);
        return RB_DNNL_CONV;
    }
}

/* x and y without their blocks, in the places given. */
static void read_blocks(const struct rb_call *call, struct rb_dnnl_conv *how,
                        struct rb_tensor_type *x, struct rb_tensor_type *y)
{
    int spatial = rb_window_spatial(call, how->w);

    how->x_blocked = rb_blocked(how->x, spatial);
    how->y_blocked = rb_blocked(how->y, spatial);
    *x = rb_blocked_plain(how->x, spatial);
    *y = rb_blocked_plain(how->y, spatial);
    how->x = x;
    how->y = y;
}

/* One of Rubato's own kernels, for a convolution that is not empty.  RB_EUNSUPPORTED: none takes
 * it; RB_ENOMEM. */
static int make_own(struct rb_cpu *cpu, enum rb_dnnl_conv_kind kind, const struct rb_dnnl_conv *how,
                    const struct rb_window *window, struct rb_kernel **ret_kernel)
{
    const enum rb_dtype factors = kind == RB_DNNL_CONV ? how->x->dtype : how->y->dtype;
    const int64_t m = how->y->dim[1];
    int err = RB_EUNSUPPORTED;

    if (how->group != 1 || !how->y_blocked)
        return RB_EUNSUPPORTED;
    if (kind == RB_DNNL_CONV_GRAD_W && how->x_blocked && how->w->dtype == RB_F32)
        err = rb_cpu_conv_outer(cpu, window, m, factors, ret_kernel);
#if defined(__x86_64__)
    if (err != RB_EUNSUPPORTED || how->x->dtype != RB_F32 || how->w->dtype != RB_F32 ||
        how->y->dtype != RB_F32)
        return err;
    switch (kind) {
    case RB_DNNL_CONV:
        return rb_cpu_conv_direct(cpu, window, m, how->x_blocked, how->bias, ret_kernel);
    case RB_DNNL_CONV_GRAD_X:
        return rb_cpu_conv_direct_back(cpu, window, m, how->x_blocked, ret_kernel);
    case RB_DNNL_CONV_GRAD_W:
        return rb_cpu_conv_weights(cpu, window, m, how->x_blocked, ret_kernel);
    }
#endif
    return err;
}

/* Is there nothing to sum? */
static bool is_empty(const struct rb_dnnl_conv *how)
{
    return rb_tensor_elements(how->x) == 0 || rb_tensor_elements(how->w) == 0 ||
           rb_tensor_elements(how->y) == 0;
}

int rb_cpu_conv(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                struct rb_why *why)
{
    struct rb_dnnl_conv how = {.group = rb_call_int(call, "group", 1)};
    enum rb_dnnl_conv_kind kind = read_roles(call, &how);
    struct rb_tensor_type x, y;
    struct rb_window window;
    struct conv *conv;
    int err = rb_call_product(call, why);

    if (err)
        return err;
    if (call->in[0].dtype == RB_BF16 && cpu->bfloat != RB_DNNL_BFLOAT_FAST)
        return rb_cpu_widened(cpu, call, rb_cpu_conv, ret_kernel, why);
    read_blocks(call, &how, &x, &y);
    err = rb_window_read(call, how.x, how.w, how.y, &window, why);
    err = err ? err : check_channels(call, &how, why);
    if (err)
        return err;
    if (!is_empty(&how)) {
        err = make_own(cpu, kind, &how, &window, ret_kernel);
        if (err != RB_EUNSUPPORTED)
            return err ? rb_call_refuse(call, err, why, "no memory for windows") : 0;
        err = 0;
    }
    how.spatial = window.spatial;
    how.spare = (struct rb_dnnl_spare){call->spare_bytes, call->spare};
    for (int i = 0; i < window.spatial; i++) {
        int k = i + 3 - window.spatial;

        how.strides[i] = window.stride[k];
        how.dilations[i] = window.dilation[k];
        how.begins[i] = window.begin[k];
        /* What the windows really cover: a rounded-down output leaves some padding unused. */
        how.ends[i] = (window.out[k] - 1) * window.stride[k] +
                      (window.kernel[k] - 1) * window.dilation[k] + 1 - window.in[k] -
                      window.begin[k];
    }
    conv = rb_cpu_kernel(sizeof(*conv), conv_run);
    conv->base.free = conv_free;
    conv->bytes = (size_t)rb_tensor_elements(&call->out[0]) * rb_dtype_size(call->out[0].dtype);
    conv->inputs = kind == RB_DNNL_CONV ? (how.bias ? 3 : 2) : 2;
    conv->output = kind == RB_DNNL_CONV ? 3 : 2;
    if (!is_empty(&how))
        err = rb_dnnl_conv(cpu->dnnl, kind, &how, &conv->op, why);
    if (err) {
        conv_free(&conv->base);
        if (err == RB_EUNSUPPORTED && call->in[0].dtype == RB_BF16)
            return rb_cpu_widened(cpu, call, rb_cpu_conv, ret_kernel, why);
        return rb_why_add(why, err, "%s", rb_op_info(call->op)->name);
    }
    *ret_kernel = &conv->base;
    return 0;
}
