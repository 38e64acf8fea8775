/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One query: its scores, probabilities and what dropout makes of them. */
struct row {
    double *p, *dropped;
    double l;
};

static double dot(const rb_real *a, const rb_real *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The factors of dropout are those that the operator Dropout would have. */
static void find_factors(const struct rb_call *call, const struct rb_attention *s,
                         const struct rb_key *key, rb_real *factors)
{
    struct rb_tensor_type type = {RB_F32, 1, {s->batch * s->queries * s->keys}};
    struct rb_attribute attributes[2] = {{.key = "ratio"}, {.key = "key"}};
    const struct rb_attribute *ratio = rb_call_attribute(call, "ratio");
    int64_t id = s->id;
    struct rb_call drop = {.op = RB_OP_DROPOUT_GRAD,
                           .n_in = 1,
                           .n_out = 1,
                           .in = &type,
                           .out = &type,
                           .attributes = attributes,
                           .n_attributes = 2};
    const void *in[1] = {factors};
    void *out[1] = {factors};

    for (int64_t i = 0; i < type.dim[0]; i++)
        factors[i] = 1;
    if (!s->drops)
        return;
    attributes[0] = *ratio;
    attributes[1].ints = &id;
    attributes[1].n_ints = 1;
    rb_reference_dropout(&drop, in, out, key);
}

static void find_row(const struct rb_attention *s, const rb_real *q, const rb_real *k,
                     const rb_real *factors, int64_t i, const rb_real *l, struct row *row)
{
    double most = -INFINITY, sum = 0;
    int64_t n = s->causal ? i + 1 : s->keys;

    for (int64_t j = 0; j < s->keys; j++) {
        row->p[j] = j < n ? (double)s->scale * dot(q, k + j * s->depth, s->depth) : -INFINITY;
        most = fmax(most, row->p[j]);
    }
    for (int64_t j = 0; j < s->keys; j++)
        sum += exp(row->p[j] - most);
    row->l = l ? (double)*l : most + log(sum);
    for (int64_t j = 0; j < s->keys; j++) {
        row->p[j] = exp(row->p[j] - row->l);
        row->dropped[j] = row->p[j] * (double)factors[j];
    }
}

static void forward(const struct rb_attention *s, int64_t r, const struct row *row,
                    const rb_real *v, void *const *out)
{
    for (int64_t e = 0; e < s->width; e++) {
        double sum = 0;

        for (int64_t j = 0; j < s->keys; j++)
            sum += row->dropped[j] * (double)v[j * s->width + e];
        ((rb_real *)out[0])[r * s->width + e] = (rb_real)sum;
    }
    if (out[1])
        ((rb_real *)out[1])[r] = (rb_real)row->l;
}

/* sum += what query r adds to the gradients, in double. */
static void backward(const struct rb_attention *s, int64_t r, const struct row *row,
                     const rb_real *dy, const rb_real *y, const rb_real *q, const rb_real *k,
                     const rb_real *v, const rb_real *factors, double *const *sum)
{
    int64_t first = r / s->queries * s->keys;
    double inner = dot(dy, y, s->width);

    for (int64_t j = 0; j < s->keys; j++) {
        double dp = dot(dy, v + j * s->width, s->width) * (double)factors[j];
        double ds = row->p[j] * (dp - inner) * (double)s->scale;

        for (int64_t e = 0; e < s->width; e++)
            sum[2][(first + j) * s->width + e] += row->dropped[j] * (double)dy[e];
        for (int64_t d = 0; d < s->depth; d++) {
            sum[0][r * s->depth + d] += ds * (double)k[j * s->depth + d];
            sum[1][(first + j) * s->depth + d] += ds * (double)q[d];
        }
    }
}

static void go_through(const struct rb_call *call, const struct rb_attention *s,
                       const void *const *in, void *const *out, const rb_real *factors,
                       double *const *sum)
{
    bool grad = call->op == RB_OP_ATTENTION_GRAD;
    const rb_real *q = in[grad], *k = in[grad + 1], *v = in[grad + 2];
    struct row row = {malloc(sizeof(double) * (size_t)(s->keys + 1)),
                      malloc(sizeof(double) * (size_t)(s->keys + 1)), 0};

    for (int64_t r = 0; r < s->batch * s->queries; r++) {
        int64_t first = r / s->queries * s->keys;

        find_row(s, q + r * s->depth, k + first * s->depth, factors + r * s->keys, r % s->queries,
                 grad ? (const rb_real *)in[5] + r : NULL, &row);
        if (grad)
            backward(s, r, &row, (const rb_real *)in[0] + r * s->width,
                     (const rb_real *)in[4] + r * s->width, q + r * s->depth, k + first * s->depth,
                     v + first * s->width, factors + r * s->keys, sum);
        else
            forward(s, r, &row, v + first * s->width, out);
    }
    free(row.p);
    free(row.dropped);
}

void rb_reference_attention(const struct rb_call *call, const void *const *in, void *const *out,
                            const struct rb_key *key)
{
    struct rb_attention s;
    struct rb_why why;
    double *sum[3];
    rb_real *factors;

    if (rb_reference_widened(call, rb_reference_attention, in, out, key) ||
        rb_attention_read(call, &s, &why))
        return;
    int64_t sizes[3] = {s.batch * s.queries * s.depth, s.batch * s.keys * s.depth,
                        s.batch * s.keys * s.width};

    factors = malloc(sizeof(*factors) * (size_t)(s.batch * s.queries * s.keys + 1));
    for (int i = 0; i < 3; i++)
        sum[i] = calloc((size_t)sizes[i] + 1, sizeof(double));
    find_factors(call, &s, key, factors);
    go_through(call, &s, in, out, factors, sum);
    for (int i = 0; i < 3; i++) {
        for (int64_t e = 0; call->op == RB_OP_ATTENTION_GRAD && out[i] && e < sizes[i]; e++)
            ((rb_real *)out[i])[e] = (rb_real)sum[i][e];
        free(sum[i]);
    }
    free(factors);
}
