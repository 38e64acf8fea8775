// SPDX-License-Identifier: Apache-2.0
/* Convolutions as matrix products: the windows of some samples are written out as columns, and
 * multiplied.  How many samples go at a time, and which part of a sample that is too large for
 * SCRATCH bytes, depends on the shape alone.
 *
 *     y[M, places] = w[M, depth] columns[depth, places]          depth: channels x kernel elements
 *     columns = w' dy, and each input sums what its windows hold of it
 *     dw += dy[M, samples x places] columns[depth, samples x places]'
 *
 * Factors are float32 or bfloat16, and so are columns that are copied from a factor; columns that
 * are a product are still sums, and float32.  Where cuDNN is there it may do all of it, but not
 * gradients of weights from bfloat16: it would round them to bfloat16, and they are summed once
 * more. */
#include "kernels/cuda/columns.h"

namespace
{

/* Bytes of memory for columns.  On the host there are so few that tests come to every way. */
#ifdef __CUDACC__
enum { SCRATCH = 256 << 20 };
#else
enum { SCRATCH = 64 << 10 };
#endif

/* Rows of the kernel's own matrices start at multiples of 16 bytes. */
static const int64_t EVEN = 8;

int64_t even(int64_t elements)
{
    return (elements + EVEN - 1) / EVEN * EVEN;
}

struct bias_body {
    int64_t channels, out;
    const float *bias;
    void *y;
    bool is_short;

    RB_GPU void operator()(int64_t i) const
    {
        rb_real_put(y, is_short, i, rb_real_get(y, is_short, i) + bias[i / out % channels]);
    }
};

struct conv : rb_work {
    struct rb_conv_shape s;
    int op;
    bool bias, short_in, short_out;
    bool slices; /* call->slices */
    size_t out_bytes;
    struct rb_gpu_conv *whole; /* all at once, by the library; or NULL */
    /* A tile: `chunk` samples, and of each `part` places, or channels where inputs are made.
     * `part` is all there are, or `chunk` is 1.  0: there is nothing to do. */
    int64_t chunk, part;
    int64_t row; /* of the columns, in elements */
    /* The product of a tile; of all tiles but the first where they are added up; of a last tile
     * that is smaller. */
    struct rb_gpu_product *product, *more, *last;

    int64_t samples() const
    {
        return s.w.n;
    }

    int64_t parts() const
    {
        return op == RB_OP_CONV_GRAD_X ? s.c : s.out;
    }

    int64_t factor() const
    {
        return short_in ? sizeof(uint16_t) : sizeof(float);
    }

    /* Element i of a factor, or of the result. */
    const char *in_at(const void *from, int64_t i) const
    {
        return (const char *)from + i * factor();
    }

    char *out_at(void *to, int64_t i) const
    {
        return (char *)to + i * (int64_t)(short_out ? sizeof(uint16_t) : sizeof(float));
    }

    struct rb_gpu_product *product_of(const struct rb_conv_tile &tile) const
    {
        if (tile.n != chunk || tile.len != part)
            return last;
        return more && tile.first + tile.from > 0 ? more : product;
    }

    template <class F> void each_tile(F body) const
    {
        for (int64_t g = 0; g < s.group; g++)
            for (int64_t at = 0; at < samples(); at += chunk)
                for (int64_t from = 0; from < parts(); from += part) {
                    struct rb_conv_tile tile = {
                        g, at, samples() - at < chunk ? samples() - at : chunk, from,
                        parts() - from < part ? parts() - from : part};

                    body(tile);
                }
    }

    template <class T>
    void columns_as(struct rb_cuda *cuda, const struct rb_conv_tile &tile, const void *x)
    {
        bool flat = op == RB_OP_CONV_GRAD_W; /* samples side by side */
        struct rb_columns_body<T> body = {
            s, tile, flat ? tile.len : s.depth *row, row, (const T *)x, (T *)cuda->scratch
        };

        rb_each(cuda, tile.n * s.depth * tile.len, body);
    }

    void columns_of(struct rb_cuda *cuda, const struct rb_conv_tile &tile, const void *x)
    {
        if (short_in)
            columns_as<uint16_t>(cuda, tile, x);
        else
            columns_as<float>(cuda, tile, x);
    }

    /* The rows lie behind the columns. */
    template <class T>
    const void *rows_as(struct rb_cuda *cuda, const struct rb_conv_tile &tile, const void *dy)
    {
        struct rb_gradient_rows_body<T> body = {
            s, tile, row, (const T *)dy, (T *)cuda->scratch + s.depth *row
        };

        rb_each(cuda, s.m * tile.n * tile.len, body);
        return body.rows;
    }

    void forward(struct rb_cuda *cuda, const void *x, const void *w, void *y)
    {
        each_tile([&](const struct rb_conv_tile &tile) {
            int64_t to = (tile.first * s.group + tile.group) * s.m * s.out + tile.from;

            columns_of(cuda, tile, x);
            rb_gpu_product_run(product_of(tile), in_at(w, tile.group * s.m * s.depth),
                               cuda->scratch, NULL, out_at(y, to));
        });
    }

    void grad_x(struct rb_cuda *cuda, const void *dy, const void *w, void *dx)
    {
        float *columns = (float *)cuda->scratch;

        each_tile([&](const struct rb_conv_tile &tile) {
            struct rb_inputs_body body = {s, tile, row, columns, dx, short_out};
            int64_t weights = tile.group * s.m * s.depth + tile.from * s.kernel;
            int64_t from = (tile.first * s.group + tile.group) * s.m * s.out;

            rb_gpu_product_run(product_of(tile), in_at(w, weights), in_at(dy, from), NULL, columns);
            rb_each(cuda, tile.n * tile.len * s.in, body);
        });
    }

    void grad_w(struct rb_cuda *cuda, const void *dy, const void *x, float *dw)
    {
        each_tile([&](const struct rb_conv_tile &tile) {
            const void *rows =
                short_in ? rows_as<uint16_t>(cuda, tile, dy) : rows_as<float>(cuda, tile, dy);

            columns_of(cuda, tile, x);
            rb_gpu_product_run(product_of(tile), rows, cuda->scratch, NULL,
                               dw + tile.group * s.m * s.depth);
        });
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        void *to = out[0];

        if (whole)
            rb_gpu_conv_run(whole, in[0], in[1], to, cuda->scratch);
        else if (!chunk)
            rb_gpu_zero(cuda->gpu, to, out_bytes);
        else if (op == RB_OP_CONV)
            forward(cuda, in[0], in[1], to);
        else if (op == RB_OP_CONV_GRAD_X)
            grad_x(cuda, in[0], in[1], to);
        else
            grad_w(cuda, in[0], in[1], (float *)to);
        if (bias) {
            struct bias_body body = {s.m * s.group, s.out, (const float *)in[2], to, short_out};

            rb_each(cuda, samples() * s.m * s.group * s.out, body);
        }
    }

    void done()
    {
        rb_gpu_conv_free(whole);
        rb_gpu_product_free(product);
        rb_gpu_product_free(more);
        rb_gpu_product_free(last);
    }
};

int read_shape(const struct rb_call *call, struct conv *work, struct rb_why *why)
{
    bool forward = call->op == RB_OP_CONV, grad_x = call->op == RB_OP_CONV_GRAD_X;
    const struct rb_tensor_type *x = forward ? &call->in[0] : grad_x ? &call->out[0] : &call->in[1];
    const struct rb_tensor_type *w = forward || grad_x ? &call->in[1] : &call->out[0];
    const struct rb_tensor_type *y = forward ? &call->out[0] : &call->in[0];
    struct rb_conv_shape *s = &work->s;
    int err;

    err = rb_call_product(call, why);
    if (err)
        return err;
    if (x->rank != w->rank || y->rank != w->rank) /* in blocks of channels */
        return rb_no_kernel(call, why);
    err = rb_window_read(call, x, w, y, &s->w, why);
    if (err)
        return err;
    s->group = rb_call_int(call, "group", 1);
    s->m = w->dim[0] / s->group;
    s->c = w->dim[1];
    s->in = s->w.in[0] * s->w.in[1] * s->w.in[2];
    s->out = s->w.out[0] * s->w.out[1] * s->w.out[2];
    s->kernel = s->w.kernel[0] * s->w.kernel[1] * s->w.kernel[2];
    s->depth = s->c * s->kernel;
    work->op = call->op;
    work->bias = forward && rb_call_has_in(call, 2);
    work->slices = call->slices;
    work->short_in = call->in[0].dtype == RB_BF16;
    work->short_out = call->out[0].dtype == RB_BF16;
    work->out_bytes = (size_t)rb_tensor_elements(&call->out[0]) * rb_dtype_size(call->out[0].dtype);
    return 0;
}

/* As many samples as fit in SCRATCH, or as much of one sample; returns the bytes that this takes.
 */
size_t fit(struct conv *work)
{
    const struct rb_conv_shape *s = &work->s;
    bool grad_x = work->op == RB_OP_CONV_GRAD_X, grad_w = work->op == RB_OP_CONV_GRAD_W;
    int64_t all = work->parts(), size = work->factor(), one, sample;

    one = grad_x   ? s->kernel * even(s->out) * (int64_t)sizeof(float)
          : grad_w ? (s->depth + s->m) * size
                   : s->depth * size;
    sample = one * all;
    work->chunk = sample > SCRATCH                     ? 1
                  : SCRATCH / sample < work->samples() ? SCRATCH / sample
                                                       : work->samples();
    work->part = all;
    if (sample > SCRATCH)
        work->part = grad_x ? SCRATCH / one : SCRATCH / one / EVEN * EVEN;
    if (work->part < 1)
        work->part = grad_x ? 1 : EVEN < all ? EVEN : all;
    work->row = even(grad_x ? s->out : grad_w ? work->chunk * work->part : work->part);
    if (grad_x)
        return (size_t)(work->chunk * work->part * one);
    return (size_t)((grad_w ? s->depth + s->m : work->chunk * s->depth) * work->row * size);
}

/* The product of a tile; `more` adds to what is there. */
struct rb_gpu_product_shape product_of(const struct conv *work, int64_t n, int64_t len, bool more)
{
    const struct rb_conv_shape *s = &work->s;
    struct rb_gpu_product_shape how = {};
    int64_t unit = work->short_in ? 8 : 4;

    how.batch = n;
    how.more = more;
    how.short_in = work->short_in;
    how.short_out = work->short_out && work->op == RB_OP_CONV;
    if (work->op == RB_OP_CONV) {
        how.m = s->m;
        how.k = how.a_row = s->depth;
        how.n = len;
        how.b_row = work->row;
        how.b_stride = s->depth * work->row;
        how.c_row = s->out;
        how.c_stride = s->group * s->m * s->out;
    } else if (work->op == RB_OP_CONV_GRAD_X) {
        how.m = len * s->kernel;
        how.k = s->m;
        how.n = how.b_row = s->out;
        how.swap_a = true;
        how.a_row = s->depth;
        how.b_stride = s->group * s->m * s->out;
        how.c_row = work->row;
        how.c_stride = how.m * work->row;
    } else {
        how.batch = 1;
        how.m = s->m;
        how.k = n * len;
        how.n = how.c_row = s->depth;
        how.swap_b = true;
        how.a_row = how.b_row = work->row;
    }
    /* Where the groups' weights, the samples' results and the tiles' weights start. */
    how.aligned = !work->slices && s->m * s->depth % unit == 0 && s->m * s->out % unit == 0 &&
                  (work->part == work->parts() || work->op != RB_OP_CONV_GRAD_X ||
                   work->part * s->kernel % unit == 0);
    return how;
}

int get_product(struct rb_cuda *cuda, const struct conv *work, int64_t n, int64_t len, bool more,
                struct rb_gpu_product **ret_product, struct rb_why *why)
{
    struct rb_gpu_product_shape how = product_of(work, n, len, more);

    return rb_gpu_product_new(cuda->gpu, &how, ret_product, why);
}

int get_products(struct rb_cuda *cuda, struct conv *work, struct rb_why *why)
{
    bool adds = work->op == RB_OP_CONV_GRAD_W;
    int64_t n = work->samples() % work->chunk, len = work->parts() % work->part;
    bool several = work->chunk < work->samples() || work->part < work->parts();
    int err = get_product(cuda, work, work->chunk, work->part, false, &work->product, why);

    if (!err && adds && several)
        err = get_product(cuda, work, work->chunk, work->part, true, &work->more, why);
    if (!err && (n || len))
        err = get_product(cuda, work, n ? n : work->chunk, len ? len : work->part, adds,
                          &work->last, why);
    return err;
}

/* The library's way, where it has one for this. */
int get_whole(struct rb_cuda *cuda, struct conv *work)
{
    const struct rb_window *w = &work->s.w;
    struct rb_gpu_conv_shape how = {};
    struct rb_why none = {};
    size_t bytes = 0;

    if (work->short_in != work->short_out || memcmp(w->begin, w->end, sizeof(w->begin)) != 0)
        return RB_EUNSUPPORTED;
    how.way = work->op == RB_OP_CONV          ? RB_GPU_CONV
              : work->op == RB_OP_CONV_GRAD_X ? RB_GPU_CONV_GRAD_X
                                              : RB_GPU_CONV_GRAD_W;
    how.is_short = work->short_in;
    how.samples = w->n;
    how.inputs = work->s.c * work->s.group;
    how.outputs = work->s.m * work->s.group;
    how.group = work->s.group;
    memcpy(how.in, w->in, sizeof(how.in));
    memcpy(how.out, w->out, sizeof(how.out));
    memcpy(how.kernel, w->kernel, sizeof(how.kernel));
    memcpy(how.stride, w->stride, sizeof(how.stride));
    memcpy(how.dilation, w->dilation, sizeof(how.dilation));
    memcpy(how.begin, w->begin, sizeof(how.begin));
    if (rb_gpu_conv_new(cuda->gpu, &how, &work->whole, &bytes, &none))
        return RB_EUNSUPPORTED;
    if (bytes <= SCRATCH && !rb_cuda_need(cuda, bytes, &none))
        return 0;
    rb_gpu_conv_free(work->whole);
    work->whole = NULL;
    return RB_EUNSUPPORTED;
}

} // namespace

int rb_cuda_conv(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    struct conv work = {};
    int err = read_shape(call, &work, why);

    if (err)
        return err;
    if (work.s.depth * work.s.out == 0 || work.samples() == 0 || work.s.m == 0 ||
        work.out_bytes == 0)
        return rb_make(cuda, call, work, ret_kernel);
    if (!get_whole(cuda, &work))
        return rb_make(cuda, call, work, ret_kernel);
    err = rb_cuda_need(cuda, fit(&work), why);
    err = err ? err : get_products(cuda, &work, why);
    if (err) {
        work.done();
        return rb_why_add(why, err, "%s", rb_op_info(call->op)->name);
    }
    return rb_make(cuda, call, work, ret_kernel);
}
