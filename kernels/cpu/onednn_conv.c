/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and their gradients by oneDNN. */
#include "kernels/cpu/onednn_inside.h"

/* An activation: samples, channels, spatial axes. */
static int activation_layout(dnnl_memory_desc_t *md, const struct rb_tensor_type *type,
                             bool blocked, struct rb_why *why)
{
    static const dnnl_format_tag_t tags[] = {[3] = dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c};

    if (!blocked)
        return rb_dnnl_plain(md, type->dtype, type->rank, type->dim, why);
    return rb_dnnl_tagged(md, type->dtype, type->rank, type->dim, tags[type->rank], why);
}

/* The layouts of a convolution: the caller's, and "any" for the primitive to choose. */
struct conv_layouts {
    dnnl_memory_desc_t x, w, b, y; /* the caller's */
    dnnl_memory_desc_t any_x, any_w, any_y;
    dnnl_dims_t dilations; /* oneDNN counts from 0 */
};

static int conv_layouts(const struct rb_dnnl_conv *how, struct conv_layouts *ret,
                        struct rb_why *why)
{
    int64_t grouped[RB_DNNL_AXES] = {how->group, how->w->dim[0] / how->group};
    bool groups = how->group != 1;
    const int64_t *w = groups ? grouped : how->w->dim;
    int rank = how->x->rank, w_rank = rank + groups, err;

    for (int i = 1; i < rank; i++)
        grouped[i + 1] = how->w->dim[i];
    for (int i = 0; i < how->spatial; i++)
        ret->dilations[i] = how->dilations[i] - 1;
    err = activation_layout(&ret->x, how->x, how->x_blocked, why);
    err = err ? err : activation_layout(&ret->y, how->y, how->y_blocked, why);
    err = err ? err : rb_dnnl_plain(&ret->w, how->w->dtype, w_rank, w, why);
    err = err ? err : rb_dnnl_plain(&ret->b, RB_F32, 1, how->w->dim, why);
    err = err ? err
              : rb_dnnl_tagged(&ret->any_x, how->x->dtype, rank, how->x->dim, dnnl_format_tag_any,
                               why);
    err = err ? err
              : rb_dnnl_tagged(&ret->any_y, how->y->dtype, rank, how->y->dim, dnnl_format_tag_any,
                               why);
    return err ? err
               : rb_dnnl_tagged(&ret->any_w, how->w->dtype, w_rank, w, dnnl_format_tag_any, why);
}

int rb_dnnl_conv(struct rb_dnnl *dnnl, enum rb_dnnl_conv_kind kind, const struct rb_dnnl_conv *how,
                 struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    struct conv_layouts l;
    enum rb_dtype factors = kind == RB_DNNL_CONV ? how->x->dtype : how->y->dtype;
    int err = conv_layouts(how, &l, why);
    dnnl_convolution_desc_t desc;
    const struct rb_dnnl_wanted wanted[3][4] = {
        [RB_DNNL_CONV] = {{DNNL_ARG_SRC, 0, false, &l.x},
                          {DNNL_ARG_WEIGHTS, 1, false, &l.w},
                          {DNNL_ARG_BIAS, 2, false, how->bias ? &l.b : NULL},
                          {DNNL_ARG_DST, 3, true, &l.y}},
        [RB_DNNL_CONV_GRAD_X] = {{DNNL_ARG_DIFF_DST, 0, false, &l.y},
                                 {DNNL_ARG_WEIGHTS, 1, false, &l.w},
                                 {DNNL_ARG_DIFF_SRC, 2, true, &l.x}},
        [RB_DNNL_CONV_GRAD_W] = {{DNNL_ARG_DIFF_DST, 0, false, &l.y},
                                 {DNNL_ARG_SRC, 1, false, &l.x},
                                 {DNNL_ARG_DIFF_WEIGHTS, 2, true, &l.w}},
    };
    dnnl_status_t code = dnnl_success;

    if (err)
        return err;
    switch (kind) {
    case RB_DNNL_CONV:
        code = dnnl_dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_training, dnnl_convolution_direct, &l.any_x, &l.any_w,
            how->bias ? &l.b : NULL, &l.any_y, how->strides, l.dilations, how->begins, how->ends);
        break;
    case RB_DNNL_CONV_GRAD_X:
        code = dnnl_dilated_convolution_backward_data_desc_init(
            &desc, dnnl_convolution_direct, &l.any_x, &l.any_w, &l.any_y, how->strides, l.dilations,
            how->begins, how->ends);
        break;
    case RB_DNNL_CONV_GRAD_W:
        code = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, dnnl_convolution_direct, &l.any_x, &l.any_w, NULL, &l.any_y, how->strides,
            l.dilations, how->begins, how->ends);
        break;
    }
    err = rb_dnnl_status(code, "convolve these", why);
    err = err ? err : rb_dnnl_op_new(dnnl, &desc, NULL, wanted[kind], 4, how->spare, ret_op, why);
    return err ? err : rb_dnnl_refuse_slow(ret_op, factors, why);
}
