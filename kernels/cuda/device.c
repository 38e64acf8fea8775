/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a device: memory with two sides, one stream, arithmetic from the operator table. */
#include "base/arena.h"
#include "base/version.h"
#include "kernels/cuda/cuda.h"
#include "kernels/module.h"

#include <stdlib.h>
#include <string.h>

static const struct rb_device_ops cuda_ops;

static int cuda_open(int index, struct rb_device **ret_device, struct rb_why *why)
{
    struct rb_cuda *cuda = rb_alloc(sizeof *cuda);
    int err = rb_gpu_open(index, &cuda->gpu, why);

    if (!err) {
        cuda->partial = rb_gpu_alloc(cuda->gpu, RB_CUDA_PARTS * sizeof(double));
        if (!cuda->partial) {
            rb_gpu_close(cuda->gpu);
            err = rb_why_set(why, RB_ENOMEM, "GPU %d has no memory left", index);
        }
    }
    if (err) {
        free(cuda);
        return rb_why_add(why, err, "cuda device %d", index);
    }
    cuda->base.ops = &cuda_ops;
    pthread_mutex_init(&cuda->twins.lock, NULL);
    *ret_device = &cuda->base;
    return 0;
}

/* Kernels that were prepared before keep the memory that there was until there is more. */
static int need(struct rb_cuda *cuda, void **memory, size_t *room, size_t bytes, struct rb_why *why)
{
    void *more;

    if (bytes <= *room)
        return 0;
    more = rb_gpu_alloc(cuda->gpu, bytes);
    if (!more)
        return rb_why_set(why, RB_ENOMEM, "the GPU has no %zu bytes left, which a kernel needs",
                          bytes);
    rb_gpu_free(cuda->gpu, *memory);
    cuda->moves++;
    *memory = more;
    *room = bytes;
    return 0;
}

int rb_cuda_need(struct rb_cuda *cuda, size_t bytes, struct rb_why *why)
{
    return need(cuda, &cuda->scratch, &cuda->scratch_bytes, bytes, why);
}

int rb_cuda_need_spare(struct rb_cuda *cuda, size_t bytes, struct rb_why *why)
{
    return need(cuda, &cuda->spare, &cuda->spare_bytes, bytes, why);
}

static void cuda_close(struct rb_device *device)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;

    while (cuda->twins.n)
        rb_twins_release(cuda, cuda->twins.at[0].host);
    rb_gpu_free(cuda->gpu, cuda->scratch);
    rb_gpu_free(cuda->gpu, cuda->spare);
    rb_gpu_free(cuda->gpu, cuda->partial);
    rb_gpu_close(cuda->gpu);
    pthread_mutex_destroy(&cuda->twins.lock);
    free(cuda->twins.at);
    free(cuda);
}

static void *cuda_alloc(struct rb_device *device, size_t bytes)
{
    return rb_twins_alloc((struct rb_cuda *)device, bytes);
}

static void cuda_release(struct rb_device *device, void *memory)
{
    rb_twins_release((struct rb_cuda *)device, memory);
}

static void cuda_discard(struct rb_device *device, void *memory, size_t bytes)
{
    rb_twins_discard((struct rb_cuda *)device, memory, bytes);
}

static void cuda_pull(struct rb_device *device, void *memory, size_t bytes)
{
    rb_twins_pull((struct rb_cuda *)device, memory, bytes);
}

static void cuda_push(struct rb_device *device, void *memory, size_t bytes)
{
    rb_twins_push((struct rb_cuda *)device, memory, bytes);
}

static void cuda_copy(struct rb_device *device, void *to, const void *from, size_t bytes)
{
    rb_twins_copy((struct rb_cuda *)device, to, from, bytes);
}

static int cuda_check(struct rb_device *device, struct rb_why *why)
{
    return rb_gpu_check(((struct rb_cuda *)device)->gpu, why);
}

static bool has(const struct rb_call *call, enum rb_dtype dtype)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].dtype == dtype)
            return true;
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i].dtype == dtype)
            return true;
    return false;
}

static bool computes_mixed(const struct rb_call *call)
{
    switch (call->op) {
    case RB_OP_CAST:
    case RB_OP_MATMUL:
    case RB_OP_ATTENTION:
    case RB_OP_ATTENTION_GRAD:
    case RB_OP_CONV:
    case RB_OP_CONV_GRAD_X:
    case RB_OP_CONV_GRAD_W:
        return true;
    case RB_OP_LAYER_NORM: /* rounds */
        return call->in[0].dtype == RB_F32;
    case RB_OP_WHERE:
    case RB_OP_EQUAL:
    case RB_OP_LESS:
    case RB_OP_GREATER:
    case RB_OP_MOD:
        return false;
    default:
        return rb_op_info(call->op)->kind == RB_KIND_POINT;
    }
}

/* Which calls take numbers of 16 bits as they are: some operators take bfloat16, and those that
 * only move take any. */
static bool takes_short(const struct rb_call *call)
{
    enum rb_op_kind kind = rb_op_info(call->op)->kind;
    bool alike = true;

    for (int i = 0; i < call->n_out; i++)
        alike &= call->out[i].dtype == RB_NONE || call->out[i].dtype == call->in[0].dtype;
    if ((kind == RB_KIND_VIEW || kind == RB_KIND_MOVE) && alike && call->op != RB_OP_GATHER_GRAD &&
        call->op != RB_OP_SCATTER)
        return true;
    return call->op == RB_OP_CAST || (!has(call, RB_F16) && computes_mixed(call));
}

static int cuda_prepare(struct rb_device *device, const struct rb_call *call,
                        struct rb_kernel **ret_kernel, struct rb_why *why)
{
    rb_cuda_prepare *prepare = rb_cuda_table[call->op];

    if (!prepare)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "a GPU has no kernel for it");
    if (has(call, RB_F16) && !takes_short(call))
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "a GPU has no kernel for these types");
    if (has(call, RB_BF16) && !takes_short(call))
        prepare = rb_cuda_rounded;
    return prepare((struct rb_cuda *)device, call, ret_kernel, why);
}

static int count(int *ret_count, struct rb_why *why)
{
    return rb_gpu_count(ret_count, why);
}

static int describe(int index, struct rb_device_about *ret_about, struct rb_why *why)
{
    struct rb_gpu_about gpu;
    int err = rb_gpu_describe(index, &gpu, why);

    if (err)
        return err;
    memset(ret_about, 0, sizeof *ret_about);
    memcpy(ret_about->name, gpu.name, sizeof ret_about->name);
    memcpy(ret_about->numeric_class, gpu.numeric_class, sizeof ret_about->numeric_class);
    memcpy(ret_about->bus, gpu.bus, sizeof ret_about->bus);
    ret_about->bytes = gpu.bytes;
    return 0;
}

static const struct rb_device_ops cuda_ops = {
    .kind = "cuda",
    .count = count,
    .describe = describe,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .discard = cuda_discard,
    .pull = cuda_pull,
    .push = cuda_push,
    .copy = cuda_copy,
    .check = cuda_check,
    .prepare = cuda_prepare,
    .tape_start = rb_cuda_tape_start,
    .tape_end = rb_cuda_tape_end,
    .tape_play = rb_cuda_tape_play,
    .tape_free = rb_cuda_tape_free,
    .circle_ticket = rb_cuda_circle_ticket,
    .circle_enter = rb_cuda_circle_enter,
    .circle_ready = rb_cuda_circle_ready,
    .circle_sum = rb_cuda_circle_sum,
    .circle_move = rb_cuda_circle_move,
    .circle_leave = rb_cuda_circle_leave,
    .circle_stop = rb_cuda_circle_stop,
    .circle_shrink = rb_cuda_circle_shrink,
    .shelf_open = rb_cuda_shelf_open,
    .shelf_find = rb_cuda_shelf_find,
    .shelf_put = rb_cuda_shelf_put,
    .shelf_take = rb_cuda_shelf_take,
    .shelf_close = rb_cuda_shelf_close,
    .marks_new = rb_cuda_marks_new,
    .marks_set = rb_cuda_marks_set,
    .marks_between = rb_cuda_marks_between,
    .marks_reached = rb_cuda_marks_reached,
    .marks_free = rb_cuda_marks_free,
    .fixed_add = rb_cuda_fixed_add,
    .fixed_squares = rb_cuda_fixed_squares,
    .apply_adamw = rb_cuda_apply_adamw,
    .apply_sgd = rb_cuda_apply_sgd,
    .predict = rb_cuda_predict,
    .apply_statistic = rb_cuda_apply_statistic,
};

static const struct rb_module module = {RB_MODULE_ABI, RUBATO_VERSION, &cuda_ops};

__attribute__((visibility("default"))) const struct rb_module *rb_module_entry(void)
{
    return &module;
}
