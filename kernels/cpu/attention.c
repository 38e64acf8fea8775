/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: in blocks where the processor has tiles for them (attention_blocked.h), else a row of
 * scores at a time, by plain loops.
 *
 * call > [attention] > attention_blocked */
#include "kernels/attention.h"

#include "kernels/cpu/attention_blocked.h"
#include "kernels/cpu/bfloat.h"
#include "kernels/random.h"

#include <math.h>
#include <string.h>

struct attention {
    struct rb_kernel base;
    struct rb_cpu *cpu;
    struct rb_attention s;
};

/* Four rows of `keys` numbers. */
struct row {
    float *p, *kept, *d; /* probabilities; what dropout lets through, as a factor; gradients */
    uint32_t *words;
};

static struct row row_of(const struct attention *a)
{
    float *room = a->cpu->panels.memory;
    int64_t n = a->s.keys;

    return (struct row){room, room + n, room + 2 * n, (uint32_t *)(room + 3 * n)};
}

static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add(float *to, const float *from, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}

/* How many keys query i sees. */
static int64_t seen(const struct rb_attention *s, int64_t i)
{
    return s->causal ? i + 1 : s->keys;
}

static void find_scores(const struct rb_attention *s, const float *q, const float *k, int64_t n,
                        float *scores)
{
    for (int64_t j = 0; j < n; j++)
        scores[j] = s->scale * dot(q, k + j * s->depth, s->depth);
}

/* Words come in fours: from the block that the row starts in. */
static void find_kept(const struct rb_attention *s, const struct rb_key *key, int64_t first,
                      int64_t n, const struct row *row)
{
    for (int64_t j = 0; j < n; j++)
        row->kept[j] = s->factor;
    if (!s->drops)
        return;
    rb_random_words(key, s->id, (uint64_t)(first - first % 4), row->words, (size_t)(n + first % 4));
    for (int64_t j = 0; j < n; j++)
        row->kept[j] = row->words[first % 4 + j] >= s->least ? s->factor : 0;
}

static void attention_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                          const struct rb_key *key)
{
    const struct attention *a = (const struct attention *)kernel;
    const struct rb_attention *s = &a->s;
    struct row row = row_of(a);

    for (int64_t r = 0; r < s->batch * s->queries; r++) {
        int64_t matrix = r / s->queries, n = seen(s, r % s->queries);
        const float *k = (const float *)in[1] + matrix * s->keys * s->depth;
        const float *v = (const float *)in[2] + matrix * s->keys * s->width;
        float *y = (float *)out[0] + r * s->width, most = -INFINITY, sum = 0;

        find_scores(s, (const float *)in[0] + r * s->depth, k, n, row.p);
        find_kept(s, key, r * s->keys, n, &row);
        for (int64_t j = 0; j < n; j++)
            most = row.p[j] > most ? row.p[j] : most;
        for (int64_t j = 0; j < n; j++) {
            row.p[j] = expf(row.p[j] - most);
            sum += row.p[j];
        }
        memset(y, 0, (size_t)s->width * sizeof(*y));
        for (int64_t j = 0; j < n; j++)
            add(y, v + j * s->width, row.p[j] / sum * row.kept[j], s->width);
        if (out[1])
            ((float *)out[1])[r] = most + logf(sum);
    }
}

static void clear(float *to, int64_t n)
{
    if (to)
        memset(to, 0, (size_t)n * sizeof(*to));
}

static void grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                     const struct rb_key *key)
{
    const struct attention *a = (const struct attention *)kernel;
    const struct rb_attention *s = &a->s;
    const float *dy = in[0], *q = in[1], *y = in[4], *logs = in[5];
    struct row row = row_of(a);

    clear(out[0], s->batch * s->queries * s->depth);
    clear(out[1], s->batch * s->keys * s->depth);
    clear(out[2], s->batch * s->keys * s->width);
    for (int64_t r = 0; r < s->batch * s->queries; r++) {
        int64_t matrix = r / s->queries, n = seen(s, r % s->queries);
        int64_t at_k = matrix * s->keys * s->depth, at_v = matrix * s->keys * s->width;
        const float *k = (const float *)in[2] + at_k, *v = (const float *)in[3] + at_v;
        float inner = dot(dy + r * s->width, y + r * s->width, s->width);

        find_scores(s, q + r * s->depth, k, n, row.p);
        find_kept(s, key, r * s->keys, n, &row);
        for (int64_t j = 0; j < n; j++) {
            row.p[j] = expf(row.p[j] - logs[r]);
            row.d[j] = row.kept[j] * dot(dy + r * s->width, v + j * s->width, s->width);
            row.d[j] = row.p[j] * (row.d[j] - inner) * s->scale;
        }
        for (int64_t j = 0; j < n; j++) {
            if (out[0])
                add((float *)out[0] + r * s->depth, k + j * s->depth, row.d[j], s->depth);
            if (out[1])
                add((float *)out[1] + at_k + j * s->depth, q + r * s->depth, row.d[j], s->depth);
            if (out[2])
                add((float *)out[2] + at_v + j * s->width, dy + r * s->width,
                    row.p[j] * row.kept[j], s->width);
        }
    }
}

int rb_cpu_attention(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                     struct rb_why *why)
{
    struct rb_attention s;
    struct attention *attention;
    int err = rb_attention_read(call, &s, why);

    if (err)
        return err;
    if (rb_cpu_attention_suits(cpu, call, &s)) {
        err = rb_cpu_attention_blocked(cpu, call, &s, ret_kernel);
        return err ? rb_call_refuse(call, err, why, "no memory for a block of scores") : 0;
    }
    for (int i = 0; i < call->n_in + call->n_out; i++)
        if ((i < call->n_in ? &call->in[i] : &call->out[i - call->n_in])->dtype == RB_BF16)
            return rb_cpu_widened(cpu, call, rb_cpu_attention, ret_kernel, why);
    if (rb_cpu_need(&cpu->panels, (size_t)(4 * s.keys + 4) * sizeof(float)))
        return rb_call_refuse(call, RB_ENOMEM, why, "no memory for a row of scores");
    attention =
        rb_cpu_kernel(sizeof(*attention), call->op == RB_OP_ATTENTION ? attention_run : grad_run);
    attention->cpu = cpu;
    attention->s = s;
    *ret_kernel = &attention->base;
    return 0;
}
