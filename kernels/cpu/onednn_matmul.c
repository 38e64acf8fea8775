/* SPDX-License-Identifier: Apache-2.0 */
/* Products by oneDNN, by whichever of its primitives is quickest. */
#include "kernels/cpu/onednn_inside.h"

static int plain_matmul(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                        struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    int rank = how->batch_axes + 2, err;
    int64_t bias_dim[RB_DNNL_AXES];
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    struct rb_dnnl_wanted wanted[] = {
        {DNNL_ARG_SRC, 0, false, &a},
        {DNNL_ARG_WEIGHTS, 1, false, &b},
        {DNNL_ARG_BIAS, 2, false, how->bias ? &bias : NULL},
        {DNNL_ARG_DST, 3, true, &c},
    };

    for (int i = 0; i < rank; i++)
        bias_dim[i] = i == rank - 1 ? how->c_dim[i] : 1;
    err = rb_dnnl_strided(&a, how->factors, rank, how->a_dim, how->a_step, why);
    err = err ? err : rb_dnnl_strided(&b, how->factors, rank, how->b_dim, how->b_step, why);
    err = err ? err : rb_dnnl_plain(&c, how->product, rank, how->c_dim, why);
    err = err ? err : rb_dnnl_plain(&bias, RB_F32, rank, bias_dim, why);
    if (!err)
        err = rb_dnnl_status(dnnl_matmul_desc_init(&desc, &a, &b, how->bias ? &bias : NULL, &c),
                             "multiply these", why);
    return err ? err
               : rb_dnnl_op_new(dnnl, &desc, NULL, wanted, RB_COUNT(wanted),
                                (struct rb_dnnl_spare){0}, ret_op, why);
}

/* The same as an inner product: rows of a times rows of a weight, which is b turned around. */
static int inner_product(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                         struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    const int64_t w_dim[2] = {how->b_dim[1], how->b_dim[0]};
    const int64_t w_step[2] = {how->b_step[1], how->b_step[0]};
    dnnl_memory_desc_t a, w, c, bias;
    dnnl_inner_product_desc_t desc;
    struct rb_dnnl_wanted wanted[] = {
        {DNNL_ARG_SRC, 0, false, &a},
        {DNNL_ARG_WEIGHTS, 1, false, &w},
        {DNNL_ARG_BIAS, 2, false, how->bias ? &bias : NULL},
        {DNNL_ARG_DST, 3, true, &c},
    };
    int err = rb_dnnl_strided(&a, how->factors, 2, how->a_dim, how->a_step, why);

    err = err ? err : rb_dnnl_strided(&w, how->factors, 2, w_dim, w_step, why);
    err = err ? err : rb_dnnl_plain(&c, how->product, 2, how->c_dim, why);
    err = err ? err : rb_dnnl_plain(&bias, RB_F32, 1, &how->c_dim[1], why);
    if (!err)
        err = rb_dnnl_status(dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &a,
                                                                  &w, how->bias ? &bias : NULL, &c),
                             "multiply these", why);
    return err ? err
               : rb_dnnl_op_new(dnnl, &desc, NULL, wanted, RB_COUNT(wanted),
                                (struct rb_dnnl_spare){0}, ret_op, why);
}

/* And as the gradient of one: c = (turned a) b is that of a weight from dy = a and x = b. */
static int weight_gradient(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                           struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    const int64_t dy_dim[2] = {how->a_dim[1], how->a_dim[0]};
    dnnl_memory_desc_t dy, x, w;
    dnnl_inner_product_desc_t desc, forward;
    dnnl_primitive_desc_t hint = NULL;
    struct rb_dnnl_wanted wanted[] = {
        {DNNL_ARG_DIFF_DST, 0, false, &dy},
        {DNNL_ARG_SRC, 1, false, &x},
        {DNNL_ARG_DIFF_WEIGHTS, 3, true, &w},
    };
    int err = rb_dnnl_plain(&dy, how->factors, 2, dy_dim, why);

    err = err ? err : rb_dnnl_plain(&x, how->factors, 2, how->b_dim, why);
    err = err ? err : rb_dnnl_plain(&w, how->product, 2, how->c_dim, why);
    if (!err)
        err = rb_dnnl_status(dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training,
                                                                  &x, &w, NULL, &dy),
                             "multiply these", why);
    if (!err)
        err =
            rb_dnnl_status(dnnl_inner_product_backward_weights_desc_init(&desc, &x, &w, NULL, &dy),
                           "multiply these", why);
    err = err ? err : rb_dnnl_describe(dnnl, &forward, NULL, &hint, why);
    err = err ? err
              : rb_dnnl_op_new(dnnl, &desc, hint, wanted, RB_COUNT(wanted),
                               (struct rb_dnnl_spare){0}, ret_op, why);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return err;
}

/* What oneDNN 2.6 has for the same product differs by up to two: measured on AVX-512, one core
 * (docs/performance-notes.md).  Shapes alone decide. */
int rb_dnnl_matmul(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                   struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    int64_t m = how->c_dim[0], n = how->c_dim[1], k = how->a_dim[1];
    bool flat = how->batch_axes == 0 && n > 1 && k > 1, plain_a = flat && how->a_step[1] == 1;
    bool plain_b = flat && how->b_step[1] == 1;
    int err = RB_EUNSUPPORTED;

    if (plain_a && (plain_b || m <= 2 || (m >= 1024 && n >= 2 * k)))
        err = inner_product(dnnl, how, ret_op, why);
    else if (how->batch_axes == 0 && how->a_step[0] == 1 && how->b_step[1] == 1 && k <= 32 &&
             m > 1 && n > 1 && !how->bias)
        err = weight_gradient(dnnl, how, ret_op, why);
    if (!err && !rb_dnnl_op_slow(*ret_op))
        return 0;
    if (!err)
        rb_dnnl_free(*ret_op);
    err = plain_matmul(dnnl, how, ret_op, why);
    return err ? err : rb_dnnl_refuse_slow(ret_op, how->factors, why);
}
