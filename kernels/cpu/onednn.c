/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/onednn_inside.h"

#include "base/arena.h"
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* From libgomp, which oneDNN brings along: the threads of what this thread starts. */
extern void omp_set_num_threads(int threads);

struct rb_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct rb_cpu_room room; /* for other layouts and scratch of the operation that runs */
    atomic_int failed;       /* the first dnnl_status_t that was no success */
};

/* An operation that needs no more than SMALL bytes has the device's room, which is likely to be in
 * a cache. */
enum { MAX_ARGUMENTS = 5, LINE = 64, SMALL = 4 << 20 };

/* One argument of the primitive.  Where the primitive wants another layout than the caller's, the
 * memory `inner` is ours and a reorder stands between the two. */
struct argument {
    int name;    /* DNNL_ARG_... */
    int address; /* index into the addresses of rb_dnnl_run; -1: scratch */
    bool output;
    bool in_room; /* inner is in the room, `place` bytes from its start */
    size_t place;
    dnnl_memory_t outer, inner; /* the same where no reorder is needed */
    dnnl_primitive_t reorder;
};

struct rb_dnnl_op {
    struct rb_dnnl *dnnl;
    bool slow; /* oneDNN has nothing but plain loops for it */
    dnnl_primitive_t primitive;
    size_t bytes;     /* that it needs of a room: */
    bool spares;      /* of its caller's, `spare` bytes from where the output goes, */
    ptrdiff_t spare;  /* or of the device's */
    int output;       /* index into the addresses of rb_dnnl_run */
    const void *room; /* where that was when it last ran */
    int n;
    struct argument arguments[MAX_ARGUMENTS];
};

int rb_dnnl_status(dnnl_status_t code, const char *what, struct rb_why *why)
{
    static const int errors[] = {
        [dnnl_success] = 0,
        [dnnl_out_of_memory] = RB_ENOMEM,
        [dnnl_invalid_arguments] = RB_EINVAL,
        [dnnl_unimplemented] = RB_EUNSUPPORTED,
    };
    int err = (size_t)code < RB_COUNT(errors) ? errors[code] : RB_EINTERNAL;

    if (err == RB_ENOMEM)
        return rb_why_set(why, err, "no memory for oneDNN to %s", what);
    return err ? rb_why_set(why, err, "oneDNN cannot %s (status %d)", what, (int)code) : 0;
}

int rb_dnnl_open(struct rb_dnnl **ret_dnnl, struct rb_why *why)
{
    struct rb_dnnl *dnnl = rb_alloc(sizeof(*dnnl));
    int err;

    omp_set_num_threads(1);
    err = rb_dnnl_status(dnnl_engine_create(&dnnl->engine, dnnl_cpu, 0), "open the CPU", why);
    if (!err)
        err = rb_dnnl_status(
            dnnl_stream_create(&dnnl->stream, dnnl->engine, dnnl_stream_default_flags),
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
    free(dnnl->room.memory);
    free(dnnl);
}

static bool is_padded(const dnnl_memory_desc_t *md)
{
    for (int i = 0; i < md->ndims; i++)
        if (md->padded_dims[i] != md->dims[i])
            return true;
    return false;
}

/* Memory of ours for an argument, from a room, so that none is allocated while the operation runs.
 * A padded layout has memory of the operation's own, so that pads stay zero. */
static int add_inner(struct rb_dnnl_op *op, struct argument *argument, const dnnl_memory_desc_t *md,
                     const char *what, struct rb_why *why)
{
    argument->in_room = !is_padded(md);
    argument->place = op->bytes;
    if (argument->in_room)
        op->bytes += (dnnl_memory_desc_get_size(md) + LINE - 1) / LINE * LINE;
    return rb_dnnl_status(
        dnnl_memory_create(&argument->inner, md, op->dnnl->engine,
                           argument->in_room ? DNNL_MEMORY_NONE : DNNL_MEMORY_ALLOCATE),
        what, why);
}

static int add_reorder(struct rb_dnnl_op *op, struct argument *argument,
                       const dnnl_memory_desc_t *outer, const dnnl_memory_desc_t *inner,
                       struct rb_why *why)
{
    dnnl_engine_t engine = op->dnnl->engine;
    const dnnl_memory_desc_t *from = argument->output ? inner : outer;
    const dnnl_memory_desc_t *to = argument->output ? outer : inner;
    dnnl_primitive_desc_t desc = NULL;
    int err = add_inner(op, argument, inner, "get memory for a layout", why);

    if (!err)
        err = rb_dnnl_status(
            dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL), "reorder",
            why);
    if (!err)
        err = rb_dnnl_status(dnnl_primitive_create(&argument->reorder, desc), "prepare a reorder",
                             why);
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
    err = rb_dnnl_status(
        dnnl_memory_create(&argument->outer, outer, op->dnnl->engine, DNNL_MEMORY_NONE),
        "describe memory", why);
    if (err)
        return err;
    if (!inner || dnnl_memory_desc_equal(inner, outer)) {
        argument->inner = argument->outer;
        return 0;
    }
    return add_reorder(op, argument, outer, inner, why);
}

static int add_scratchpad(struct rb_dnnl_op *op, const_dnnl_primitive_desc_t desc,
                          struct rb_why *why)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    struct argument *argument;

    if (!md || dnnl_memory_desc_get_size(md) == 0)
        return 0;
    argument = &op->arguments[op->n++];
    *argument = (struct argument){.name = DNNL_ARG_SCRATCHPAD, .address = -1};
    return add_inner(op, argument, md, "get scratch memory", why);
}

int rb_dnnl_describe(struct rb_dnnl *dnnl, const_dnnl_op_desc_t op_desc,
                     const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *ret_desc,
                     struct rb_why *why)
{
    dnnl_primitive_attr_t attributes = NULL;
    int err = rb_dnnl_status(dnnl_primitive_attr_create(&attributes), "make attributes", why);

    omp_set_num_threads(1);
    if (!err)
        err = rb_dnnl_status(
            dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
            "set the scratch mode", why);
    if (!err)
        err = rb_dnnl_status(
            dnnl_primitive_desc_create(ret_desc, op_desc, attributes, dnnl->engine, hint),
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

/* The device's room has moved where a later operation needed a larger one; a caller's moves with
 * the output. */
static void follow_room(struct rb_dnnl_op *op, void *const *addresses)
{
    char *room =
        op->spares ? (char *)addresses[op->output] + op->spare : (char *)op->dnnl->room.memory;

    if (op->room == room)
        return;
    for (int i = 0; i < op->n; i++)
        if (op->arguments[i].in_room)
            dnnl_memory_set_data_handle_v2(op->arguments[i].inner, room + op->arguments[i].place,
                                           op->dnnl->stream);
    op->room = room;
}

/* oneDNN's products allocate memory while they run, and there may be none. */
static void execute(struct rb_dnnl *dnnl, dnnl_primitive_t primitive, int n,
                    const dnnl_exec_arg_t *arguments)
{
    const dnnl_status_t status = dnnl_primitive_execute(primitive, dnnl->stream, n, arguments);
    int none = dnnl_success;

    if (status != dnnl_success)
        atomic_compare_exchange_strong(&dnnl->failed, &none, (int)status);
}

int rb_dnnl_check(struct rb_dnnl *dnnl, struct rb_why *why)
{
    return rb_dnnl_status((dnnl_status_t)atomic_load(&dnnl->failed), "compute", why);
}

void rb_dnnl_run(struct rb_dnnl_op *op, void *const *addresses)
{
    dnnl_exec_arg_t arguments[MAX_ARGUMENTS];
    dnnl_stream_t stream = op->dnnl->stream;

    omp_set_num_threads(1);
    follow_room(op, addresses);
    for (int i = 0; i < op->n; i++) {
        struct argument *a = &op->arguments[i];

        if (a->address >= 0)
            dnnl_memory_set_data_handle_v2(a->outer, addresses[a->address], stream);
        if (a->reorder && !a->output) {
            dnnl_exec_arg_t pair[] = {{DNNL_ARG_FROM, a->outer}, {DNNL_ARG_TO, a->inner}};

            execute(op->dnnl, a->reorder, 2, pair);
        }
        arguments[i] = (dnnl_exec_arg_t){a->name, a->inner};
    }
    execute(op->dnnl, op->primitive, op->n, arguments);
    for (int i = 0; i < op->n; i++) {
        struct argument *a = &op->arguments[i];

        if (a->reorder && a->output) {
            dnnl_exec_arg_t pair[] = {{DNNL_ARG_FROM, a->inner}, {DNNL_ARG_TO, a->outer}};

            execute(op->dnnl, a->reorder, 2, pair);
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

/* Takes the end of what is spared: the operation before is likely to have had its own memory there,
 * which is in a cache. */
static int get_room(struct rb_dnnl_op *op, struct rb_dnnl_spare spare, struct rb_why *why)
{
    op->spares = op->bytes > SMALL && op->bytes <= spare.bytes;
    if (op->spares)
        op->spare = spare.from + (ptrdiff_t)((spare.bytes - op->bytes) / LINE * LINE);
    if (!op->spares && rb_cpu_need(&op->dnnl->room, op->bytes))
        return rb_why_set(why, RB_ENOMEM, "no memory for layouts and scratch: %zu bytes",
                          op->bytes);
    return 0;
}

int rb_dnnl_op_new(struct rb_dnnl *dnnl, const_dnnl_op_desc_t op_desc,
                   const_dnnl_primitive_desc_t hint, const struct rb_dnnl_wanted *wanted, int n,
                   struct rb_dnnl_spare spare, struct rb_dnnl_op **ret_op, struct rb_why *why)
{
    struct rb_dnnl_op *op = rb_alloc(sizeof(*op));
    dnnl_primitive_desc_t desc = NULL;
    int err = rb_dnnl_describe(dnnl, op_desc, hint, &desc, why);

    op->dnnl = dnnl;
    op->slow = !err && is_slow(desc);
    for (int i = 0; !err && i < n; i++)
        if (wanted[i].layout) {
            err = add_argument(op, desc, wanted[i].name, wanted[i].address, wanted[i].output,
                               wanted[i].layout, why);
            op->output = wanted[i].output ? wanted[i].address : op->output;
        }
    if (!err)
        err = add_scratchpad(op, desc, why);
    if (!err)
        err = get_room(op, spare, why);
    if (!err)
        err = rb_dnnl_status(dnnl_primitive_create(&op->primitive, desc), "prepare this", why);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (err)
        rb_dnnl_free(op);
    else
        *ret_op = op;
    return err;
}

bool rb_dnnl_op_slow(const struct rb_dnnl_op *op)
{
    return op->slow;
}

int rb_dnnl_refuse_slow(struct rb_dnnl_op **op, enum rb_dtype factors, struct rb_why *why)
{
    if (factors != RB_BF16 || !(*op)->slow)
        return 0;
    rb_dnnl_free(RB_TAKE(*op));
    return rb_why_set(why, RB_EUNSUPPORTED, "oneDNN has plain loops alone for this");
}

/* ---- Layouts ---- */

static dnnl_data_type_t data_type(enum rb_dtype dtype)
{
    return dtype == RB_BF16 ? dnnl_bf16 : dnnl_f32;
}

int rb_dnnl_strided(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                    const int64_t *steps, struct rb_why *why)
{
    dnnl_dims_t sizes = {0}, strides = {0};

    memcpy(sizes, dims, (size_t)rank * sizeof(*dims));
    memcpy(strides, steps, (size_t)rank * sizeof(*steps));
    return rb_dnnl_status(
        dnnl_memory_desc_init_by_strides(md, rank, sizes, data_type(dtype), strides),
        "describe this layout", why);
}

int rb_dnnl_plain(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                  struct rb_why *why)
{
    int64_t steps[RB_DNNL_AXES], step = 1;

    for (int i = rank - 1; i >= 0; i--) {
        steps[i] = step;
        step *= dims[i];
    }
    return rb_dnnl_strided(md, dtype, rank, dims, steps, why);
}

int rb_dnnl_tagged(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                   dnnl_format_tag_t tag, struct rb_why *why)
{
    dnnl_dims_t sizes = {0};

    memcpy(sizes, dims, (size_t)rank * sizeof(*dims));
    return rb_dnnl_status(dnnl_memory_desc_init_by_tag(md, rank, sizes, data_type(dtype), tag),
                          "describe this layout", why);
}
