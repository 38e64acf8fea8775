/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the state by the stages that count for them: those that make summands, or read it. */
#include "worker/stages/stage_inside.h"

#include "base/arena.h"
#include "proto/needs.h"

/* A part of a range in which the same stages count. */
struct piece {
    size_t first, end;
    size_t block; /* the first of those in it */
};

/* The next piece from *block on, inside [first, end); false: there is none. */
static bool next_piece(const Rb__Model *model, const uint64_t *stages, size_t first, size_t end,
                       size_t *block, struct piece *ret_piece)
{
    const Rb__Block *one = *block < model->n_blocks ? model->blocks[*block] : NULL;

    if (!one || one->first >= end)
        return false;
    ret_piece->block = *block;
    ret_piece->first = one->first > first ? (size_t)one->first : first;
    do {
        one = model->blocks[(*block)++];
        ret_piece->end =
            (size_t)(one->first + one->count) < end ? (size_t)(one->first + one->count) : end;
    } while (*block < model->n_blocks && model->blocks[*block]->first < end &&
             stages[*block] == stages[ret_piece->block]);
    return true;
}

/* ---- Who gives, and who reads ----------------------------------------------------------------*/

void rb_stage_find_blocks(struct rb_stage *stage, const Rb__Plan *plan, const Rb__Model *model)
{
    size_t n = model->n_blocks;

    stage->gives = rb_alloc((n + 1) * sizeof *stage->gives);
    stage->reads = rb_alloc((n + 1) * sizeof *stage->reads);
    stage->senders = rb_alloc(n * stage->ranks + 1);
    rb_needs_find(model, plan, stage->gives, stage->reads);
    for (size_t b = 0; b < n; b++)
        for (uint32_t r = 0; r < stage->ranks; r++)
            stage->senders[b * stage->ranks + r] = stage->gives[b] >> stage->of_rank[r] & 1;
}

/* ---- Moving it -------------------------------------------------------------------------------*/

size_t rb_stage_ranges(const struct rb_stage *stage, const Rb__Model *model,
                       const struct rb_coll_range *ranges, size_t n,
                       struct rb_coll_range **ret_ranges)
{
    struct rb_coll_range *cut = NULL;
    size_t room = 0, k = 0;

    for (size_t i = 0; i < n; i++) {
        size_t end = ranges[i].first + ranges[i].count, b = rb_needs_block(model, ranges[i].first);
        struct piece piece;

        while (next_piece(model, stage->gives, ranges[i].first, end, &b, &piece)) {
            if (k == room)
                cut = rb_realloc(cut, (room = room * 2 + 8) * sizeof *cut);
            cut[k++] = (struct rb_coll_range){
                .rank = ranges[i].rank,
                .first = piece.first,
                .count = piece.end - piece.first,
                .from = stage->senders + piece.block * stage->ranks,
            };
        }
    }
    *ret_ranges = cut;
    return k;
}

size_t rb_stage_moves(const struct rb_stage *stage, const Rb__Model *model, const float *weights,
                      const struct rb_coll_move *moves, size_t n, struct rb_coll_move **ret_moves)
{
    struct rb_coll_move *cut = NULL;
    size_t room = 0, k = 0;

    for (size_t i = 0; i < n; i++) {
        size_t first = (size_t)((const float *)moves[i].bytes - weights);
        size_t end = first + moves[i].size / sizeof *weights, b = rb_needs_block(model, first);
        struct piece piece;

        while (next_piece(model, stage->reads, first, end, &b, &piece)) {
            if (!(stage->reads[piece.block] >> stage->of_rank[moves[i].to] & 1))
                continue;
            if (k == room)
                cut = rb_realloc(cut, (room = room * 2 + 8) * sizeof *cut);
            cut[k++] = (struct rb_coll_move){
                .from = moves[i].from,
                .to = moves[i].to,
                .bytes = (float *)moves[i].bytes + (piece.first - first),
                .size = (piece.end - piece.first) * sizeof *weights,
            };
        }
    }
    *ret_moves = cut;
    return k;
}

int rb_stage_separate(const struct rb_stage *stage, const Rb__Model *model, struct rb_why *why)
{
    if (stage->ranks != stage->stages)
        return rb_why_set(why, RB_EUNSUPPORTED, "plan: %u ranks in %u stages without steps",
                          stage->ranks, stage->stages);
    for (size_t b = 0; b < model->n_blocks; b++)
        if ((stage->gives[b] | stage->reads[b]) & ~(UINT64_C(1) << rb_stage_maker(stage, b)))
            return rb_why_set(why, RB_EUNSUPPORTED, "plan: several stages need '%s'",
                              model->variables[model->blocks[b]->variable]->name);
    return 0;
}
