/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention_blocked.h"

#include "kernels/cpu/attention_scores.h"
#include "kernels/random.h"

#include <string.h>

#if defined(__x86_64__)

enum { QUERIES = RB_BLOCK_QUERIES, KEYS = RB_BLOCK_KEYS, STEP = RB_BLOCK_STEP, WIDEST = 128 };

struct blocked {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    const struct rb_attention_tiles *tiles;
    struct rb_attention s;
};

/* What a block needs; one kernel runs at a time. */
struct room {
    float q[QUERIES * STEP], dy[QUERIES * STEP]; /* rows as tiles want them */
    float scores[QUERIES * STEP], d[QUERIES * STEP];
    uint32_t words[QUERIES * STEP];
    float k_turned[KEYS * WIDEST], v_turned[KEYS * WIDEST]; /* panels */
    float k[KEYS * WIDEST], v[KEYS * WIDEST];
    float q_panels[QUERIES * WIDEST], dy_panels[QUERIES * WIDEST];
    float inner[QUERIES];
    float rows[]; /* most and sum, of each query of a matrix */
};

/* One matrix, and where its numbers lie. */
struct matrix {
    const struct blocked *a;
    const struct rb_key *key;
    struct room *room;
    int64_t number;
    const float *dy, *q, *k, *v, *y, *l;
    float *dq, *dk, *dv;
    struct rb_attention_rows rows;
};

/* Queries [i, i + block.queries) and keys [j, j + block.keys). */
struct place {
    int64_t i, j;
    struct rb_attention_block block;
};

static int at_most(int64_t n, int most)
{
    return n < most ? (int)n : most;
}

/* The first queries that see any of the keys from j on, and those behind them; false: there are no
 * more. */
static bool first_queries(const struct blocked *a, int64_t j, struct place *place)
{
    const struct rb_attention *s = &a->s;

    place->j = j;
    place->i = s->causal ? j : 0;
    place->block.tiles = a->tiles;
    place->block.keys = at_most(s->keys - j, KEYS);
    place->block.queries = at_most(s->queries - place->i, QUERIES);
    place->block.ahead = s->causal ? 0 : KEYS;
    return place->block.queries > 0;
}

static bool next_queries(const struct blocked *a, struct place *place)
{
    place->block.ahead += place->block.queries;
    place->i += place->block.queries;
    place->block.queries = at_most(a->s.queries - place->i, QUERIES);
    return place->block.queries > 0;
}

static void copy_rows(const float *from, int n, int64_t width, float *to)
{
    for (int i = 0; i < n; i++)
        memcpy(to + i * STEP, from + i * width, (size_t)width * sizeof *to);
}

static struct rb_attention_words draw(const struct matrix *m, const struct place *place)
{
    const struct rb_attention *s = &m->a->s;
    const uint64_t row = (uint64_t)(m->number * s->queries + place->i);
    struct rb_attention_words words = {.words = m->room->words, .keys = s->keys};

    words.first = row * (uint64_t)s->keys + (uint64_t)place->j;
    for (int i = 0; i < place->block.queries && s->drops; i++) {
        const uint64_t first = words.first + (uint64_t)(i * s->keys);
        const size_t n = (size_t)rb_attention_seen(&place->block, i) + first % 4;

        rb_random_words(m->key, s->id, first - first % 4, m->room->words + i * STEP, n);
    }
    return words;
}

/* ---- Forward ---------------------------------------------------------------------------------*/

static void add_block(const struct matrix *m, const struct place *place)
{
    const struct rb_attention *s = &m->a->s;
    const struct rb_attention_block *block = &place->block;
    const int64_t i = place->i;
    struct room *room = m->room;
    const struct rb_attention_rows rows = {.most = m->rows.most + i,
                                           .sum = m->rows.sum + i,
                                           .y = m->rows.y + i * s->width,
                                           .width = s->width,
                                           .fresh = place->j == 0};
    const struct rb_attention_sum sum = {rows.y, s->width, s->width, rows.fresh};

    copy_rows(m->q + i * s->depth, block->queries, s->depth, room->q);
    rb_attention_scores(block, room->q, room->k_turned, s->depth, room->scores);
    rb_attention_soften(block, s->scale, room->scores, &rows);
    if (s->drops) {
        const struct rb_attention_words words = draw(m, place);

        rb_attention_drop(block, room->scores, s->least, &words);
    }
    rb_attention_mix(block, room->scores, room->v, &sum);
}

static void blocked_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct blocked *a = (const struct blocked *)kernel;
    const struct rb_attention *s = &a->s;
    struct matrix m = {.a = a, .key = key, .room = a->cpu->panels.memory};

    for (m.number = 0; m.number < s->batch; m.number++) {
        struct place place;

        m.q = (const float *)in[0] + m.number * s->queries * s->depth;
        m.k = (const float *)in[1] + m.number * s->keys * s->depth;
        m.v = (const float *)in[2] + m.number * s->keys * s->width;
        m.rows = (struct rb_attention_rows){
            .most = m.room->rows,
            .sum = m.room->rows + s->queries,
            .y = (float *)out[0] + m.number * s->queries * s->width,
            .width = s->width,
        };
        for (int64_t j = 0; j < s->keys; j += KEYS) {
            bool more = first_queries(a, j, &place);

            rb_pack_turned_columns(m.k + j * s->depth, s->depth, place.block.keys, s->depth,
                                   RB_BLOCK_COLUMNS, RB_BLOCK_COLUMNS * s->depth, m.room->k_turned);
            rb_pack_columns(m.v + j * s->width, s->width, s->width, place.block.keys,
                            RB_BLOCK_COLUMNS, RB_BLOCK_COLUMNS * place.block.keys, m.room->v);
            for (; more; more = next_queries(a, &place))
                add_block(&m, &place);
        }
        rb_attention_finish(&m.rows, s->queries, s->factor,
                            out[1] ? (float *)out[1] + m.number * s->queries : NULL);
    }
}

/* ---- Backward --------------------------------------------------------------------------------*/

/* dq, dk and dv of a block, each as far as it is wanted. */
static void add_gradients(const struct matrix *m, const struct place *place)
{
    const struct rb_attention *s = &m->a->s;
    const struct rb_attention_block *block = &place->block;
    const int64_t i = place->i, j = place->j;
    const bool first = i == (s->causal ? j : 0);
    struct room *room = m->room;

    if (m->dv) {
        const struct rb_attention_sum sum = {m->dv + j * s->width, s->width, s->width, first};

        rb_pack_columns(m->dy + i * s->width, s->width, s->width, block->queries, RB_BLOCK_COLUMNS,
                        RB_BLOCK_COLUMNS * block->queries, room->dy_panels);
        rb_attention_gather(block, room->scores, room->dy_panels, &sum);
    }
    if (m->dk) {
        const struct rb_attention_sum sum = {m->dk + j * s->depth, s->depth, s->depth, first};

        rb_pack_columns(m->q + i * s->depth, s->depth, s->depth, block->queries, RB_BLOCK_COLUMNS,
                        RB_BLOCK_COLUMNS * block->queries, room->q_panels);
        rb_attention_gather(block, room->d, room->q_panels, &sum);
    }
    if (m->dq) {
        const struct rb_attention_sum sum = {m->dq + i * s->depth, s->depth, s->depth, j == 0};

        rb_attention_mix(block, room->d, room->k, &sum);
    }
}

static void differentiate_block(const struct matrix *m, const struct place *place)
{
    const struct rb_attention *s = &m->a->s;
    const struct rb_attention_block *block = &place->block;
    const int64_t i = place->i;
    const float *dy = m->dy + i * s->width;
    const struct rb_attention_words words = draw(m, place);
    struct room *room = m->room;

    copy_rows(m->q + i * s->depth, block->queries, s->depth, room->q);
    copy_rows(dy, block->queries, s->width, room->dy);
    rb_attention_inner(dy, m->y + i * s->width, block->queries, s->width, room->inner);
    rb_attention_scores(block, room->q, room->k_turned, s->depth, room->scores);
    rb_attention_scores(block, room->dy, room->v_turned, s->width, room->d);
    rb_attention_differentiate(block, s, room->scores, room->d, m->l + i, room->inner, &words);
    add_gradients(m, place);
}

static float *of_matrix(void *gradient, int64_t number, int64_t elements)
{
    return gradient ? (float *)gradient + number * elements : NULL;
}

static void blocked_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                             const struct rb_key *key)
{
    const struct blocked *a = (const struct blocked *)kernel;
    const struct rb_attention *s = &a->s;
    const int64_t q = s->queries * s->depth, k = s->keys * s->depth, v = s->keys * s->width;
    struct matrix m = {.a = a, .key = key, .room = a->cpu->panels.memory};

    for (m.number = 0; m.number < s->batch; m.number++) {
        struct place place;

        m.dy = (const float *)in[0] + m.number * s->queries * s->width;
        m.q = (const float *)in[1] + m.number * q;
        m.k = (const float *)in[2] + m.number * k;
        m.v = (const float *)in[3] + m.number * v;
        m.y = (const float *)in[4] + m.number * s->queries * s->width;
        m.l = (const float *)in[5] + m.number * s->queries;
        m.dq = of_matrix(out[0], m.number, q);
        m.dk = of_matrix(out[1], m.number, k);
        m.dv = of_matrix(out[2], m.number, v);
        for (int64_t j = 0; j < s->keys; j += KEYS) {
            bool more = first_queries(a, j, &place);

            rb_pack_turned_columns(m.k + j * s->depth, s->depth, place.block.keys, s->depth,
                                   RB_BLOCK_COLUMNS, RB_BLOCK_COLUMNS * s->depth, m.room->k_turned);
            rb_pack_turned_columns(m.v + j * s->width, s->width, place.block.keys, s->width,
                                   RB_BLOCK_COLUMNS, RB_BLOCK_COLUMNS * s->width, m.room->v_turned);
            rb_pack_columns(m.k + j * s->depth, s->depth, s->depth, place.block.keys,
                            RB_BLOCK_COLUMNS, RB_BLOCK_COLUMNS * place.block.keys, m.room->k);
            for (; more; more = next_queries(a, &place))
                differentiate_block(&m, &place);
        }
    }
}

bool rb_cpu_attention_suits(const struct rb_attention *s)
{
    return rb_attention_tiles() && s->queries > 0 && s->keys > 0 && s->depth > 0 && s->width > 0 &&
           s->depth <= WIDEST && s->width <= WIDEST;
}

int rb_cpu_attention_blocked(struct rb_cpu *cpu, const struct rb_attention *s, bool forward,
                             struct rb_kernel **ret_kernel)
{
    struct blocked *blocked;

    if (rb_cpu_need(&cpu->panels, sizeof(struct room) + (size_t)(2 * s->queries) * sizeof(float)))
        return RB_ENOMEM;
    blocked = rb_cpu_kernel(sizeof *blocked, forward ? blocked_run : blocked_grad_run);
    blocked->cpu = cpu;
    blocked->tiles = rb_attention_tiles();
    blocked->s = *s;
    *ret_kernel = &blocked->base;
    return 0;
}

#else

bool rb_cpu_attention_suits(const struct rb_attention *s)
{
    (void)s;
    return false;
}

int rb_cpu_attention_blocked(struct rb_cpu *cpu, const struct rb_attention *s, bool forward,
                             struct rb_kernel **ret_kernel)
{
    (void)cpu;
    (void)s;
    (void)forward;
    (void)ret_kernel;
    return RB_EUNSUPPORTED;
}

#endif
