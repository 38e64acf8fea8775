/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/onednn.h"

#include "base/arena.h"

#include <oneapi/dnnl/dnnl.h>

#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* From libgomp, which oneDNN brings along: the threads of what this thread starts. */
extern void omp_set_num_threads(int threads);

struct rb_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

enum { MAX_ARGUMENTS = 5 };

/* One argument of the primitive.  Where the primitive wants another layout than the caller's, the
 * memory `inner` is the operation's own and a reorder stands between the two. */
struct argument {
    int name;    /* DNNL_ARG_... */
    int address; /* index into the addresses of rb_dnnl_run; -1: the operation's own memory */
    bool output;
    dnnl_memory_t outer, inner; /* the same where no reorder is needed */
    dnnl_primitive_t reorder;
};

struct rb_dnnl_op {
    struct rb_dnnl *dnnl;
    bool slow; /* oneDNN has nothing but plain loops for it */
    dnnl_primitive_t primitive;
    int n;
    struct argument arguments[MAX_ARGUMENTS];
};

/* oneDNN's status as an error with a sentence. */
static int status(dnnl_status_t code, const char *what, struct rb_why *why)
{
    static const int errors[] = {
        [dnnl_success] = 0,
        [dnnl_out_of_memory] = RB_ENOMEM,
        [dnnl_invalid_arguments] = RB_EINVAL,
        [dnnl_unimplemented] = RB_EUNSUPPORTED,
    };
    int err = (size_t)code < RB_COUNT(errors) ? errors[code] : RB_EINTERNAL;

    return err ? rb_why_set(why, err, "oneDNN cannot %s (status %d)", what, (int)code) : 0;
}

const char *rb_dnnl_isa(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
        return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "other";
    }
}

/* AVX-512's dot product of pairs does twice the work of a multiply-add on AMD's processors and on
 * Intel's Cooper Lake.  Intel's later ones leave that to AMX, and where that is hidden from us they
 * do half the work: 86 GFLOP/s a core, and 160 in float32. */
static bool fast_dots(void)
{
#if defined(__x86_64__)
    enum { COOPER_LAKE = 0x55 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    bool intel;

    if (!__get_cpuid(0, &a, &b, &c, &d))
        return false;
    intel = b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx;
    if (!intel || !__get_cpuid(1, &a, &b, &c, &d))
        return !intel;
    return ((a >> 4 & 15) | (a >> 12 & 0xf0)) == COOPER_LAKE;
#else
    return false;
#endif
}

enum rb_dnnl_bfloat rb_dnnl_bfloat(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_avx512_core_bf16:
        return fast_dots() ? RB_DNNL_BFLOAT_FAST : RB_DNNL_BFLOAT_SLOW;
    case dnnl_cpu_isa_avx512_core_amx:
        return RB_DNNL_BFLOAT_FAST;
    default:
        return RB_DNNL_BFLOAT_NOT;
    }
}

void rb_dnnl_version(int ret_version[3])
{
    const dnnl_version_t *version = dnnl_version();

    ret_version[0] = version->major;
    ret_version[1] = version->minor;
    ret_version[2] = version->patch;
}

int rb_dnnl_open(struct rb_dnnl **ret_dnnl, struct rb_why *why)
{
    struct rb_dnnl *dnnl = rb_alloc(sizeof(*dnnl));
    int err;

    omp_set_num_threads(1);
    err = status(dnnl_engine_create(&dnnl->engine, dnnl_cpu, 0), "open the CPU", why);
    if (!err)
        err = status(dnnl_stream_create(&dnnl->stream, dnnl->engine, dnnl_stream_default_flags),
                     "make a stream", why);
    if (err)
        rb_dnnl_close(dnnl);
    else
        *ret_dnnl = dnnl;
    return err;
}

void rb_dnnl_close(struct rb_dnnl *dnnl)
{
    if (!dnnl)
        return;
    if (dnnl->stream)
        dnnl_stream_destroy(dnnl->stream);
    if (dnnl->engine)
        dnnl_engine_destroy(dnnl->engine);
    free(dnnl);
}

static int add_reorder(struct rb_dnnl_op *op, struct argument *argument,
                       const dnnl_memory_desc_t *outer, const dnnl_memory_desc_t *inner,
                       struct rb_why *why)
{
    dnnl_engine_t engine = op->dnnl->engine;
    const dnnl_memory_desc_t *from = argument->output ? inner : outer;
    const dnnl_memory_desc_t *to = argument->output ? outer : inner;
    dnnl_primitive_desc_t desc = NULL;
    int err = status(dnnl_memory_create(&argument->inner, inner, engine, DNNL_MEMORY_ALLOCATE),
                     "get memory for a layout", why);

    if (!err)
        err = status(dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL),
                     "reorder", why);
    if (!err)
        err = status(dnnl_primitive_create(&argument->reorder, desc), "prepare a reorder", why);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    return err;
}

/* Argument `name` comes from (or goes to) address number `address` with layout `outer`. */
static int add_argument(struct rb_dnnl_op *op, const_dnnl_primitive_desc_t desc, int name,
                        int address, bool output, const dnnl_memory_desc_t *outer,
                        struct rb_why *why)
{
    const dnnl_memory_desc_t *inner =
        dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, name);
    struct argument *argument = &op->arguments[op->n++];
    int err;

    *argument = (struct argument){.name = name, .address = address, .output = output};
    err = status(dnnl_memory_create(&argument->outer, outer, op->dnnl->engine, DNNL_MEMORY_NONE),
                 "describe memory", why);
    if (err)
        return err;
    if (!inner || dnnl_memory_desc_equal(inner, outer)) {
        argument->inner = argument->outer;
        return 0;
    }
    return add_reorder(op, argument, outer, inner, why);
}

/* The primitive keeps its scratch in memory of ours, allocated now and not while it runs. */
static int add_scratchpad(struct rb_dnnl_op *op, const_dnnl_primitive_desc_t desc,
                          struct rb_why *why)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    struct argument *argument;

    if (!md || dnnl_memory_desc_get_size(md) == 0)
        return 0;
    argument = &op->arguments[op->n++];
    *argument = (struct argument){.name = DNNL_ARG_SCRATCHPAD, .address = -1};
    return status(dnnl_memory_create(&argument->inner, md, op->dnnl->engine, DNNL_MEMORY_ALLOCATE),
                  "get scratch memory", why);
}

/* `hint`: for a gradient, its forward operation; or NULL. */
static int describe(struct rb_dnnl *dnnl, const_dnnl_op_desc_t op_desc,
                    const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *ret_desc,
                    struct rb_why *why)
{
    dnnl_primitive_attr_t attributes = NULL;
    int err = status(dnnl_primitive_attr_create(&attributes), "make attributes", why);

    omp_set_num_threads(1);
    if (!err)
        err = status(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
                     "set the scratch mode", why);
    if (!err)
        err = status(dnnl_primitive_desc_create(ret_desc, op_desc, attributes, dnnl->engine, hint),
                     "compute this", why);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    return err;
}

static bool is_slow(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;

    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name) ==
               dnnl_success &&
           name && strncmp(name, "ref", 3) == 0;
}

void rb_dnnl_run(struct rb_dnnl_op *op, void *const *addresses)
{
    dnnl_exec_arg_t arguments[MAX_ARGUMENTS];
    dnnl_stream_t stream = op->dnnl->stream;

    omp_set_num_threads(1);
    for (int i = 0; i < op->n; i++) {
        struct argument *a = &op->arguments[i];

        if (a->address >= 0)
            dnnl_memory_set_data_handle_v2(a->outer, addresses[a->address], stream);
        if (a->reorder && !a->output) {
            dnnl_exec_arg_t pair[] = {{DNNL_ARG_FROM, a->outer}, {DNNL_ARG_TO, a->inner}};

            dnnl_primitive_execute(a->reorder, stream, 2, pair);
        }
        arguments[i] = (dnnl_exec_arg_t){a->name, a->inner};
    }
    dnnl_primitive_execute(op->primitive, stream, op->n, arguments);
    for (int i = 0; i < op->n; i++) {
        struct argument *a = &op->arguments[i];

        if (a->reorder && a->output) {
            dnnl_exec_arg_t pair[] = {{DNNL_ARG_FROM, a->inner}, {DNNL_ARG_TO, a->outer}};

            dnnl_primitive_execute(a->reorder, stream, 2, pair);
        }
    }
    dnnl_stream_wait(stream);
}

void rb_dnnl_free(struct rb_dnnl_op *op)
{
    if (!op)
        return;
    for (int i = 0; i < op->n; i++) {
        struct argument *a = &op->arguments[i];

        if (a->reorder)
            dnnl_primitive_destroy(a->reorder);
        if (a->inner && a->inner != a->outer)
            dnnl_memory_destroy(a->inner);
        if (a->outer)
            dnnl_memory_destroy(a->outer);
    }
    if (op->primitive)
        dnnl_primitive_destroy(op->primitive);
    free(op);
}

/* What an operation is made from: its argument names with the caller's layouts. */
struct wanted {
    int name;
    int address;
    bool output;
    const dnnl_memory_desc_t *layout;
};

static int op_new(struct rb_dnnl *dnnl, const_dnnl_op_desc_t op_desc,
                  const_dnnl_primitive_desc_t hint, const struct wanted *wanted, int n,
                  struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    struct rb_dnnl_op *op = rb_alloc(sizeof(*op));
    dnnl_primitive_desc_t desc = NULL;
    int err = describe(dnnl, op_desc, hint, &desc, why);

    op->dnnl = dnnl;
    op->slow = !err && is_slow(desc);
    for (int i = 0; !err && i < n; i++)
        if (wanted[i].layout)
            err = add_argument(op, desc, wanted[i].name, wanted[i].address, wanted[i].output,
                               wanted[i].layout, why);
    if (!err)
        err = add_scratchpad(op, desc, why);
    if (!err)
        err = status(dnnl_primitive_create(&op->primitive, desc), "prepare this", why);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (err)
        rb_dnnl_free(op);
    else
        *ret_op = op;
    return err;
}

static dnnl_data_type_t data_type(enum rb_dtype dtype)
{
    return dtype == RB_BF16 ? dnnl_bf16 : dnnl_f32;
}

static int strided_layout(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank,
                          const int64_t *dims, const int64_t *steps, struct rb_why *why)
{
    dnnl_dims_t sizes = {0}, strides = {0};

    memcpy(sizes, dims, (size_t)rank * sizeof(*dims));
    memcpy(strides, steps, (size_t)rank * sizeof(*steps));
    return status(dnnl_memory_desc_init_by_strides(md, rank, sizes, data_type(dtype), strides),
                  "describe this layout", why);
}

static int plain_layout(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                        struct rb_why *why)
{
    int64_t steps[RB_DNNL_AXES], step = 1;

    for (int i = rank - 1; i >= 0; i--) {
        steps[i] = step;
        step *= dims[i];
    }
    return strided_layout(md, dtype, rank, dims, steps, why);
}

static int tagged_layout(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                         dnnl_format_tag_t tag, struct rb_why *why)
{
    dnnl_dims_t sizes = {0};

    memcpy(sizes, dims, (size_t)rank * sizeof(*dims));
    return status(dnnl_memory_desc_init_by_tag(md, rank, sizes, data_type(dtype), tag),
                  "describe this layout", why);
}

static int plain_matmul(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                        struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    int rank = how->batch_axes + 2, err;
    int64_t bias_dim[RB_DNNL_AXES];
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    struct wanted wanted[] = {
        {DNNL_ARG_SRC, 0, false, &a},
        {DNNL_ARG_WEIGHTS, 1, false, &b},
        {DNNL_ARG_BIAS, 2, false, how->bias ? &bias : NULL},
        {DNNL_ARG_DST, 3, true, &c},
    };

    for (int i = 0; i < rank; i++)
        bias_dim[i] = i == rank - 1 ? how->c_dim[i] : 1;
    err = strided_layout(&a, how->factors, rank, how->a_dim, how->a_step, why);
    err = err ? err : strided_layout(&b, how->factors, rank, how->b_dim, how->b_step, why);
    err = err ? err : plain_layout(&c, how->product, rank, how->c_dim, why);
    err = err ? err : plain_layout(&bias, RB_F32, rank, bias_dim, why);
    if (!err)
        err = status(dnnl_matmul_desc_init(&desc, &a, &b, how->bias ? &bias : NULL, &c),
                     "multiply these", why);
    return err ? err : op_new(dnnl, &desc, NULL, wanted, RB_COUNT(wanted), ret_op, why);
}

/* The same as an inner product: rows of a times rows of a weight, which is b turned around. */
static int inner_product(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                         struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    const int64_t w_dim[2] = {how->b_dim[1], how->b_dim[0]};
    const int64_t w_step[2] = {how->b_step[1], how->b_step[0]};
    dnnl_memory_desc_t a, w, c, bias;
    dnnl_inner_product_desc_t desc;
    struct wanted wanted[] = {
        {DNNL_ARG_SRC, 0, false, &a},
        {DNNL_ARG_WEIGHTS, 1, false, &w},
        {DNNL_ARG_BIAS, 2, false, how->bias ? &bias : NULL},
        {DNNL_ARG_DST, 3, true, &c},
    };
    int err = strided_layout(&a, how->factors, 2, how->a_dim, how->a_step, why);

    err = err ? err : strided_layout(&w, how->factors, 2, w_dim, w_step, why);
    err = err ? err : plain_layout(&c, how->product, 2, how->c_dim, why);
    err = err ? err : plain_layout(&bias, RB_F32, 1, &how->c_dim[1], why);
    if (!err)
        err = status(dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &a, &w,
                                                          how->bias ? &bias : NULL, &c),
                     "multiply these", why);
    return err ? err : op_new(dnnl, &desc, NULL, wanted, RB_COUNT(wanted), ret_op, why);
}

/* And as the gradient of one: c = (turned a) b is that of a weight from dy = a and x = b. */
static int weight_gradient(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                           struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    const int64_t dy_dim[2] = {how->a_dim[1], how->a_dim[0]};
    dnnl_memory_desc_t dy, x, w;
    dnnl_inner_product_desc_t desc, forward;
    dnnl_primitive_desc_t hint = NULL;
    struct wanted wanted[] = {
        {DNNL_ARG_DIFF_DST, 0, false, &dy},
        {DNNL_ARG_SRC, 1, false, &x},
        {DNNL_ARG_DIFF_WEIGHTS, 3, true, &w},
    };
    int err = plain_layout(&dy, how->factors, 2, dy_dim, why);

    err = err ? err : plain_layout(&x, how->factors, 2, how->b_dim, why);
    err = err ? err : plain_layout(&w, how->product, 2, how->c_dim, why);
    if (!err)
        err = status(dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, &x, &w,
                                                          NULL, &dy),
                     "multiply these", why);
    if (!err)
        err = status(dnnl_inner_product_backward_weights_desc_init(&desc, &x, &w, NULL, &dy),
                     "multiply these", why);
    err = err ? err : describe(dnnl, &forward, NULL, &hint, why);
    err = err ? err : op_new(dnnl, &desc, hint, wanted, RB_COUNT(wanted), ret_op, why);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return err;
}

/* Plain loops are slower than float32 copies are. */
static int refuse_slow(struct rb_dnnl_op **op, enum rb_dtype factors, struct rb_why *why)
{
    if (factors != RB_BF16 || !(*op)->slow)
        return 0;
    rb_dnnl_free(RB_TAKE(*op));
    return rb_why_set(why, RB_EUNSUPPORTED, "oneDNN has plain loops alone for this");
}

/* What oneDNN 2.6 has for the same product differs by up to two: measured on AVX-512, one core
 * (docs/benchmarks.md).  Shapes alone decide. */
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
    if (!err && !(*ret_op)->slow)
        return 0;
    if (!err)
        rb_dnnl_free(*ret_op);
    err = plain_matmul(dnnl, how, ret_op, why);
    return err ? err : refuse_slow(ret_op, how->factors, why);
}

/* An activation: samples, channels, spatial axes. */
static int activation_layout(dnnl_memory_desc_t *md, const struct rb_tensor_type *type,
                             bool blocked, struct rb_why *why)
{
    static const dnnl_format_tag_t tags[] = {[3] = dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c};

    if (!blocked)
        return plain_layout(md, type->dtype, type->rank, type->dim, why);
    return tagged_layout(md, type->dtype, type->rank, type->dim, tags[type->rank], why);
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
    err = err ? err : plain_layout(&ret->w, how->w->dtype, w_rank, w, why);
    err = err ? err : plain_layout(&ret->b, RB_F32, 1, how->w->dim, why);
    err = err ? err
              : tagged_layout(&ret->any_x, how->x->dtype, rank, how->x->dim, dnnl_format_tag_any,
                              why);
    err = err ? err
              : tagged_layout(&ret->any_y, how->y->dtype, rank, how->y->dim, dnnl_format_tag_any,
                              why);
    return err ? err
               : tagged_layout(&ret->any_w, how->w->dtype, w_rank, w, dnnl_format_tag_any, why);
}

int rb_dnnl_conv(struct rb_dnnl *dnnl, enum rb_dnnl_conv_kind kind, const struct rb_dnnl_conv *how,
                 struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    struct conv_layouts l;
    enum rb_dtype factors = kind == RB_DNNL_CONV ? how->x->dtype : how->y->dtype;
    int err = conv_layouts(how, &l, why);
    dnnl_convolution_desc_t desc;
    const struct wanted wanted[3][4] = {
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
    err = status(code, "convolve these", why);
    err = err ? err : op_new(dnnl, &desc, NULL, wanted[kind], 4, ret_op, why);
    return err ? err : refuse_slow(ret_op, factors, why);
}
