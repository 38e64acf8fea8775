/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention_blocked.h"

#include "kernels/cpu/attention_factors.h"
#include "kernels/cpu/attention_scores.h"
#include "kernels/cpu/bfloat.h"
#include "kernels/random.h"

#include <string.h>

#if defined(__x86_64__)

enum { QUERIES = RB_BLOCK_QUERIES, KEYS = RB_BLOCK_KEYS, STEP = RB_BLOCK_STEP, WIDEST = 128 };
enum { OUTPUTS = 3 };

struct blocked {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    const struct rb_attention_tiles *tiles;
    struct rb_attention s;
    bool pairs;              /* what is read is bfloat16 */
    bool short_out[OUTPUTS]; /* this output is */
};

/* What a block needs; one kernel runs at a time. */
struct room {
    rb_word q[QUERIES * STEP], dy[QUERIES * STEP]; /* rows as tiles want them */
    float scores[QUERIES * STEP], d[QUERIES * STEP];
    rb_word turned[QUERIES / 2 * STEP]; /* scores or d, pairs of queries */
    uint32_t words[QUERIES * STEP];
    rb_word k_turned[KEYS * WIDEST], v_turned[KEYS * WIDEST]; /* panels */
    rb_word k[KEYS * WIDEST], v[KEYS * WIDEST];
    rb_word q_panels[QUERIES * WIDEST], dy_panels[QUERIES * WIDEST];
    float inner[QUERIES];
    float dk[KEYS * WIDEST], dv[KEYS * WIDEST]; /* sums that are rounded when they are whole */
    float rows[]; /* most and sum, of each query of a matrix; sums of queries, like those */
};

/* What is summed, and where it goes rounded; NULL: it is summed where it belongs. */
struct sums {
    float *at;
    uint16_t *rounded;
};

/* One matrix, and where its numbers lie. */
struct matrix {
    const struct blocked *a;
    const struct rb_key *key;
    struct room *room;
    int64_t number;
    const void *dy, *q, *k, *v, *y;
    const float *l;
    struct sums dq, dk, dv; /* of all queries; of a block of keys */
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

/* Output `number`, from its n-th element on; summed in `room` if it is rounded. */
static struct sums sums_of(const struct blocked *a, void *const *out, int number, int64_t n,
                           float *room)
{
    if (!out[number])
        return (struct sums){0};
    return a->short_out[number] ? (struct sums){room, (uint16_t *)out[number] + n}
                                : (struct sums){(float *)out[number] + n, NULL};
}

static void round_sums(const struct sums *sums, int64_t n)
{
    if (sums->rounded)
        rb_cpu_narrow(sums->rounded, sums->at, n);
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
    const struct blocked *a = m->a;
    const struct rb_attention *s = &a->s;
    const struct rb_attention_block *block = &place->block;
    const int64_t i = place->i;
    struct room *room = m->room;
    const struct rb_attention_rows rows = {.most = m->rows.most + i,
                                           .sum = m->rows.sum + i,
                                           .y = m->rows.y + i * s->width,
                                           .width = s->width,
                                           .fresh = place->j == 0};
    const struct rb_attention_sum sum = {rows.y, s->width, s->width, rows.fresh};

    rb_attention_copy(a->pairs, rb_attention_row(a->pairs, m->q, i, s->depth), block->queries,
                      s->depth, room->q);
    rb_attention_scores(block, room->q, room->k_turned, rb_words(s->depth, a->pairs), room->scores);
    rb_attention_soften(block, s->scale, room->scores, &rows);
    if (s->drops) {
        const struct rb_attention_words words = draw(m, place);

        rb_attention_drop(block, room->scores, s->least, &words);
    }
    rb_attention_mix(block, rb_attention_along_keys(block, room->scores), room->v, &sum);
}

static void blocked_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct blocked *a = (const struct blocked *)kernel;
    const struct rb_attention *s = &a->s;
    struct matrix m = {.a = a, .key = key, .room = a->cpu->panels.memory};

    for (m.number = 0; m.number < s->batch; m.number++) {
        const int64_t n = s->queries * s->width;
        const struct sums y = sums_of(a, out, 0, m.number * n, m.room->rows + 2 * s->queries);
        struct place place;

        m.q = rb_attention_row(a->pairs, in[0], m.number * s->queries, s->depth);
        m.k = rb_attention_row(a->pairs, in[1], m.number * s->keys, s->depth);
        m.v = rb_attention_row(a->pairs, in[2], m.number * s->keys, s->width);
        m.rows = (struct rb_attention_rows){
            .most = m.room->rows,
            .sum = m.room->rows + s->queries,
            .y = y.at,
            .width = s->width,
        };
        for (int64_t j = 0; j < s->keys; j += KEYS) {
            bool more = first_queries(a, j, &place);

            rb_attention_pack_turned(a->pairs, rb_attention_row(a->pairs, m.k, j, s->depth),
                                     place.block.keys, s->depth, m.room->k_turned);
            rb_attention_pack(a->pairs, rb_attention_row(a->pairs, m.v, j, s->width),
                              place.block.keys, s->width, m.room->v);
            for (; more; more = next_queries(a, &place))
                add_block(&m, &place);
        }
        rb_attention_finish(&m.rows, s->queries, s->factor,
                            out[1] ? (float *)out[1] + m.number * s->queries : NULL);
        round_sums(&y, n);
    }
}

/* ---- Backward --------------------------------------------------------------------------------*/

/* dy times y of each query, into room->inner. */
static void find_inner(const struct matrix *m, const struct place *place)
{
    const int64_t width = m->a->s.width, n = place->block.queries * width;
    const void *dy = rb_attention_row(m->a->pairs, m->dy, place->i, width),
               *y = rb_attention_row(m->a->pairs, m->y, place->i, width);
    struct room *room = m->room;

    if (m->a->pairs) { /* nothing is in these yet */
        rb_cpu_widen(room->scores, dy, n);
        rb_cpu_widen(room->d, y, n);
        dy = room->scores;
        y = room->d;
    }
    rb_attention_inner(dy, y, place->block.queries, width, room->inner);
}

/* dq, dk and dv of a block, each as far as it is wanted. */
static void add_gradients(const struct matrix *m, const struct place *place)
{
    const struct blocked *a = m->a;
    const struct rb_attention *s = &a->s;
    const struct rb_attention_block *block = &place->block;
    const int64_t i = place->i;
    const bool first = i == (s->causal ? place->j : 0);
    struct room *room = m->room;

    if (m->dv.at) {
        const struct rb_attention_sum sum = {m->dv.at, s->width, s->width, first};

        rb_attention_pack(a->pairs, rb_attention_row(a->pairs, m->dy, i, s->width), block->queries,
                          s->width, room->dy_panels);
        rb_attention_gather(block, rb_attention_along_queries(block, room->scores, room->turned),
                            room->dy_panels, &sum);
    }
    if (m->dk.at) {
        const struct rb_attention_sum sum = {m->dk.at, s->depth, s->depth, first};

        rb_attention_pack(a->pairs, rb_attention_row(a->pairs, m->q, i, s->depth), block->queries,
                          s->depth, room->q_panels);
        rb_attention_gather(block, rb_attention_along_queries(block, room->d, room->turned),
                            room->q_panels, &sum);
    }
    if (m->dq.at) {
        const struct rb_attention_sum sum = {m->dq.at + i * s->depth, s->depth, s->depth,
                                             place->j == 0};

        rb_attention_mix(block, rb_attention_along_keys(block, room->d), room->k, &sum);
    }
}

static void differentiate_block(const struct matrix *m, const struct place *place)
{
    const struct blocked *a = m->a;
    const struct rb_attention *s = &a->s;
    const struct rb_attention_block *block = &place->block;
    const int64_t i = place->i;
    const struct rb_attention_words words = draw(m, place);
    struct room *room = m->room;

    rb_attention_copy(a->pairs, rb_attention_row(a->pairs, m->q, i, s->depth), block->queries,
                      s->depth, room->q);
    rb_attention_copy(a->pairs, rb_attention_row(a->pairs, m->dy, i, s->width), block->queries,
                      s->width, room->dy);
    find_inner(m, place);
    rb_attention_scores(block, room->q, room->k_turned, rb_words(s->depth, a->pairs), room->scores);
    rb_attention_scores(block, room->dy, room->v_turned, rb_words(s->width, a->pairs), room->d);
    rb_attention_differentiate(block, s, room->scores, room->d, m->l + i, room->inner, &words);
    add_gradients(m, place);
}

/* All gradients of the block of keys from j on and the queries that see any of them. */
static void differentiate_keys(struct matrix *m, void *const *out, int64_t j)
{
    const struct blocked *a = m->a;
    const struct rb_attention *s = &a->s;
    const int64_t first = m->number * s->keys + j;
    const void *k = rb_attention_row(a->pairs, m->k, j, s->depth),
               *v = rb_attention_row(a->pairs, m->v, j, s->width);
    struct room *room = m->room;
    struct place place;
    bool more = first_queries(a, j, &place);

    m->dk = sums_of(a, out, 1, first * s->depth, room->dk);
    m->dv = sums_of(a, out, 2, first * s->width, room->dv);
    rb_attention_pack_turned(a->pairs, k, place.block.keys, s->depth, room->k_turned);
    rb_attention_pack_turned(a->pairs, v, place.block.keys, s->width, room->v_turned);
    rb_attention_pack(a->pairs, k, place.block.keys, s->depth, room->k);
    for (; more; more = next_queries(a, &place))
        differentiate_block(m, &place);
    round_sums(&m->dk, place.block.keys * s->depth);
    round_sums(&m->dv, place.block.keys * s->width);
}

static void blocked_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                             const struct rb_key *key)
{
    const struct blocked *a = (const struct blocked *)kernel;
    const struct rb_attention *s = &a->s;
    struct matrix m = {.a = a, .key = key, .room = a->cpu->panels.memory};

    for (m.number = 0; m.number < s->batch; m.number++) {
        const int64_t query = m.number * s->queries, k = m.number * s->keys;

        m.dy = rb_attention_row(a->pairs, in[0], query, s->width);
        m.q = rb_attention_row(a->pairs, in[1], query, s->depth);
        m.k = rb_attention_row(a->pairs, in[2], k, s->depth);
        m.v = rb_attention_row(a->pairs, in[3], k, s->width);
        m.y = rb_attention_row(a->pairs, in[4], query, s->width);
        m.l = (const float *)in[5] + query;
        m.dq = sums_of(a, out, 0, query * s->depth, m.room->rows);
        for (int64_t j = 0; j < s->keys; j += KEYS)
            differentiate_keys(&m, out, j);
        round_sums(&m.dq, s->queries * s->depth);
    }
}

/* Rows of bfloat16 must be made of whole words (pairs). */
static bool fits_pairs(const struct rb_cpu *cpu, const struct rb_attention *s)
{
    return rb_cpu_rows_of_words(cpu, RB_BF16, s->depth) &&
           rb_cpu_rows_of_words(cpu, RB_BF16, s->width);
}

bool rb_cpu_attention_suits(const struct rb_cpu *cpu, const struct rb_call *call,
                            const struct rb_attention *s)
{
    return (call->in[0].dtype == RB_BF16 ? fits_pairs(cpu, s)
                                         : rb_attention_tiles(false) != NULL) &&
           s->queries > 0 && s->keys > 0 && s->depth > 0 && s->width > 0 && s->depth <= WIDEST &&
           s->width <= WIDEST;
}

int rb_cpu_attention_blocked(struct rb_cpu *cpu, const struct rb_call *call,
                             const struct rb_attention *s, struct rb_kernel **ret_kernel)
{
    const bool forward = call->op == RB_OP_ATTENTION;
    int64_t numbers = (forward ? 2 : 0) * s->queries;
    struct blocked *blocked;

    if (call->n_out > 0 && call->out[0].dtype == RB_BF16)
        numbers += s->queries * (forward ? s->width : s->depth);
    if (rb_cpu_need(&cpu->panels, sizeof(struct room) + (size_t)numbers * sizeof(float)))
        return RB_ENOMEM;
    blocked = rb_cpu_kernel(sizeof *blocked, forward ? blocked_run : blocked_grad_run);
    blocked->cpu = cpu;
    blocked->pairs = call->in[0].dtype == RB_BF16;
    blocked->tiles = rb_attention_tiles(blocked->pairs);
    blocked->s = *s;
    for (int i = 0; i < call->n_out && i < OUTPUTS; i++)
        blocked->short_out[i] = call->out[i].dtype == RB_BF16;
    *ret_kernel = &blocked->base;
    return 0;
}

#else

bool rb_cpu_attention_suits(const struct rb_cpu *cpu, const struct rb_call *call,
                            const struct rb_attention *s)
{
    (void)cpu;
    (void)call;
    (void)s;
    return false;
}

int rb_cpu_attention_blocked(struct rb_cpu *cpu, const struct rb_call *call,
                             const struct rb_attention *s, struct rb_kernel **ret_kernel)
{
    (void)cpu;
    (void)call;
    (void)s;
    (void)ret_kernel;
    return RB_EUNSUPPORTED;
}

#endif
