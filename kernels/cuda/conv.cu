// SPDX-License-Identifier: Apache-2.0
/* Convolutions as matrix products: the windows of some samples are written out as columns, and
 * multiplied.  How many samples at a time depends on the shape alone.
 *
 *     y[M, places] = w[M, depth] columns[depth, places]          depth: channels x kernel elements
 *     columns = w' dy, and each input sums what its windows hold of it
 *     dw += dy columns', sample after sample
 *
 * Factors are float32 or bfloat16, and so are the columns that are copied from one; those that are a
 * product are sums still, and float32.  Where cuDNN is there it may do all of it. */
#include "kernels/cuda/number.h"
#include "kernels/cuda/window.h"

namespace
{

enum { SCRATCH = 256 << 20 };

struct shape {
    struct rb_window w;
    int64_t group, m, c; /* of a group: outputs and inputs */
    int64_t in, out, kernel, depth;
};

/* Element [sample, depth, place] of the columns. */
template <class T> struct columns_body {
    struct shape s;
    const T *x; /* the group's channels of the first sample */
    T *columns;

    RB_GPU void operator()(int64_t i) const
    {
        const struct rb_window &w = s.w;
        int64_t d = i / s.out % s.depth, sample = i / s.out / s.depth, o[3], k[3], place = 0;
        bool inside = true;

        rb_plane_index(w.out, i % s.out, o);
        rb_plane_index(w.kernel, d % s.kernel, k);
        for (int a = 0; a < 3; a++) {
            int64_t at = o[a] * w.stride[a] + k[a] * w.dilation[a] - w.begin[a];

            inside = inside && at >= 0 && at < w.in[a];
            place = place * w.in[a] + at;
        }
        columns[i] = inside ? x[(sample * s.c * s.group + d / s.kernel) * s.in + place] : 0;
    }
};

/* Element [sample, channel, place] of the group's inputs: the sum of its places in the columns. */
struct inputs_body {
    struct shape s;
    const float *columns;
    void *x;
    bool is_short;

    RB_GPU void operator()(int64_t i) const
    {
        const struct rb_window &w = s.w;
        int64_t c = i / s.in % s.c, sample = i / s.in / s.c, index[3], o[3], k[3];
        struct rb_span span[3];
        float sum = 0;

        rb_plane_index(w.in, i % s.in, index);
        for (int a = 0; a < 3; a++)
            span[a] = rb_seeing(w, a, index[a]);
        for (o[0] = span[0].first; o[0] < span[0].end; o[0]++)
            for (o[1] = span[1].first; o[1] < span[1].end; o[1]++)
                for (o[2] = span[2].first; o[2] < span[2].end; o[2]++) {
                    bool sees = true;

                    for (int a = 0; a < 3; a++) {
                        k[a] = rb_element_of(w, a, o[a], index[a]);
                        sees = sees && k[a] >= 0;
                    }
                    if (sees)
                        sum += columns[((sample * s.c + c) * s.kernel +
                                        (k[0] * w.kernel[1] + k[1]) * w.kernel[2] + k[2]) *
                                           s.out +
                                       (o[0] * w.out[1] + o[1]) * w.out[2] + o[2]];
                }
        rb_real_put(x, is_short, (sample * s.c * s.group + c) * s.in + i % s.in, sum);
    }
};

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
    struct shape s;
    int op;
    bool bias, short_in, short_out;
    bool slices; /* call->slices */
    size_t out_bytes;
    struct rb_gpu_conv *whole; /* all at once, by the library; or NULL */
    int64_t chunk; /* samples at a time; 0: there is nothing to do */
    /* Of a chunk, and of the last one; for dw: the first sample's, and the others'. */
    struct rb_gpu_product *product, *last;

    int64_t samples() const
    {
        return s.w.n;
    }

    /* Element i of a factor, or of the result. */
    const char *in_at(const void *from, int64_t i) const
    {
        return (const char *)from + i * (short_in ? sizeof(uint16_t) : sizeof(float));
    }

    char *out_at(void *to, int64_t i) const
    {
        return (char *)to + i * (short_out ? sizeof(uint16_t) : sizeof(float));
    }

    template <class T>
    void columns_as(struct rb_cuda *cuda, const void *x, int64_t group, int64_t first, int64_t n)
    {
        struct columns_body<T> body = {s, (const T *)x + (first * s.group + group) * s.c * s.in,
                                       (T *)cuda->scratch};

        rb_each(cuda, n * s.depth * s.out, body);
    }

    void columns_of(struct rb_cuda *cuda, const void *x, int64_t group, int64_t first, int64_t n)
    {
        if (short_in)
            columns_as<uint16_t>(cuda, x, group, first, n);
        else
            columns_as<float>(cuda, x, group, first, n);
    }

    void forward(struct rb_cuda *cuda, const void *x, const void *w, void *y)
    {
        for (int64_t g = 0; g < s.group; g++)
            for (int64_t at = 0; at < samples(); at += chunk) {
                int64_t n = samples() - at < chunk ? samples() - at : chunk;

                columns_of(cuda, x, g, at, n);
                rb_gpu_product_run(n == chunk ? product : last, in_at(w, g * s.m * s.depth),
                                   cuda->scratch, NULL,
                                   out_at(y, (at * s.group + g) * s.m * s.out));
            }
    }

    void grad_x(struct rb_cuda *cuda, const void *dy, const void *w, void *dx)
    {
        float *columns = (float *)cuda->scratch;

        for (int64_t g = 0; g < s.group; g++)
            for (int64_t at = 0; at < samples(); at += chunk) {
                int64_t n = samples() - at < chunk ? samples() - at : chunk;
                struct inputs_body body = {
                    s, columns, out_at(dx, (at * s.group + g) * s.c * s.in), short_out};

                rb_gpu_product_run(n == chunk ? product : last, in_at(w, g * s.m * s.depth),
                                   in_at(dy, (at * s.group + g) * s.m * s.out), NULL, columns);
                rb_each(cuda, n * s.c * s.in, body);
            }
    }

    void grad_w(struct rb_cuda *cuda, const void *dy, const void *x, float *dw)
    {
        for (int64_t g = 0; g < s.group; g++)
            for (int64_t at = 0; at < samples(); at += chunk) {
                int64_t n = samples() - at < chunk ? samples() - at : chunk;

                columns_of(cuda, x, g, at, n);
                for (int64_t i = 0; i < n; i++)
                    rb_gpu_product_run(at + i == 0 ? product : last,
                                       in_at(dy, ((at + i) * s.group + g) * s.m * s.out),
                                       in_at(cuda->scratch, i * s.depth * s.out), NULL,
                                       dw + g * s.m * s.depth);
            }
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
        rb_gpu_product_free(last);
    }
};

int read_shape(const struct rb_call *call, struct conv *work, struct rb_why *why)
{
    bool forward = call->op == RB_OP_CONV, grad_x = call->op == RB_OP_CONV_GRAD_X;
    const struct rb_tensor_type *x = forward ? &call->in[0] : grad_x ? &call->out[0] : &call->in[1];
    const struct rb_tensor_type *w = forward || grad_x ? &call->in[1] : &call->out[0];
    const struct rb_tensor_type *y = forward ? &call->out[0] : &call->in[0];
    struct shape *s = &work->s;
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
    work->out_bytes =
        (size_t)rb_tensor_elements(&call->out[0]) * rb_dtype_size(call->out[0].dtype);
    return 0;
}

/* The product of `batch` samples; `more` adds to what is there. */
struct rb_gpu_product_shape product_of(const struct conv *work, int64_t batch, bool more)
{
    const struct shape *s = &work->s;
    struct rb_gpu_product_shape how = {};
    int64_t even = work->short_in ? 8 : 4;

    how.batch = batch;
    how.more = more;
    how.short_in = work->short_in;
    how.short_out = work->short_out && work->op == RB_OP_CONV;
    if (work->op == RB_OP_CONV) {
        how.m = s->m;
        how.k = s->depth;
        how.n = s->out;
        how.b_stride = s->depth * s->out;
        how.c_stride = s->group * s->m * s->out;
    } else if (work->op == RB_OP_CONV_GRAD_X) {
        how.m = s->depth;
        how.k = s->m;
        how.n = s->out;
        how.swap_a = true;
        how.b_stride = s->group * s->m * s->out;
        how.c_stride = s->depth * s->out;
    } else {
        how.m = s->m;
        how.k = s->out;
        how.n = s->depth;
        how.swap_b = true;
    }
    how.a_row = how.swap_a ? how.m : how.k;
    how.b_row = how.swap_b ? how.k : how.n;
    how.c_row = how.n;
    how.aligned = !work->slices && s->m * s->depth % even == 0 && s->m * s->out % even == 0 &&
                  s->depth * s->out % even == 0;
    return how;
}

int get_products(struct rb_cuda *cuda, struct conv *work, struct rb_why *why)
{
    bool grad_w = work->op == RB_OP_CONV_GRAD_W;
    int64_t rest = work->samples() % work->chunk;
    struct rb_gpu_product_shape how = product_of(work, grad_w ? 1 : work->chunk, false);
    int err = rb_gpu_product_new(cuda->gpu, &how, &work->product, why);

    if (!err && (grad_w || rest)) {
        how = product_of(work, grad_w ? 1 : rest, grad_w);
        err = rb_gpu_product_new(cuda->gpu, &how, &work->last, why);
    }
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
    int64_t sample, most;
    int err = read_shape(call, &work, why);

    if (err)
        return err;
    sample = work.s.depth * work.s.out * (int64_t)sizeof(float);
    if (sample == 0 || work.samples() == 0 || work.s.m == 0 || work.out_bytes == 0)
        return rb_make(cuda, call, work, ret_kernel);
    if (!get_whole(cuda, &work))
        return rb_make(cuda, call, work, ret_kernel);
    most = SCRATCH / sample;
    work.chunk = most < 1 ? 1 : most > work.samples() ? work.samples() : most;
    err = rb_cuda_need(cuda, (size_t)(work.chunk * sample), why);
    err = err ? err : get_products(cuda, &work, why);
    if (err) {
        work.done();
        return rb_why_add(why, err, "%s", rb_op_info(call->op)->name);
    }
    return rb_make(cuda, call, work, ret_kernel);
}
