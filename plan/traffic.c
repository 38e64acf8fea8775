/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/traffic.h"

#include "base/arena.h"
#include "base/error.h"
#include "proto/needs.h"

#include <stdbool.h>
#include <stdlib.h>

enum { SMALL = 8 * 1024 }; /* bytes up to which each maker sends to all ranks: coll/sum.c */

/* While traffic is counted. */
struct counting {
    const Rb__Model *model;
    const Rb__Plan *plan;
    uint64_t *gives, *reads; /* by block: stages */
    struct rb_traffic *traffic;
};

static bool is_in(const struct counting *counting, size_t rank, uint64_t stages)
{
    return stages >> counting->plan->ranks[rank]->stage & 1;
}

/* Returns where the run of blocks that begins with `first` ends: in front of `end`, and needed by
 * the same stages.  ret_bytes: of these blocks and what lies between them. */
static size_t next_run(const struct counting *counting, const uint64_t *stages, size_t first,
                       size_t end, double *ret_bytes)
{
    Rb__Block *const *blocks = counting->model->blocks;
    size_t b = first + 1;

    while (b < end && stages[b] == stages[first])
        b++;
    *ret_bytes = 4 * (double)(blocks[b - 1]->first + blocks[b - 1]->count - blocks[first]->first);
    return b;
}

/* ---- All of the state everywhere -------------------------------------------------------------*/

/* With n ranks, of which k make the summands: of b bytes each maker sends
 *
 *     (n - 1) b        where it is little
 *     b                where it is alone; the others pass on (n - 2) / (n - 1) b
 *     (n - 1) / n b    of several, and then each rank as much of the sums */
static void count_all(struct counting *counting, uint64_t makers, double bytes)
{
    struct rb_traffic *traffic = counting->traffic;
    double n = traffic->ranks, k = 0, made, added;

    for (uint32_t r = 0; r < traffic->ranks; r++)
        k += is_in(counting, r, makers);
    made = bytes <= SMALL ? (n - 1) * bytes : k > 1 ? (n - 1) / n * bytes : bytes;
    added = bytes <= SMALL || k < 1 ? 0 : k > 1 ? (n - 1) / n * bytes : (n - 2) / (n - 1) * bytes;
    for (uint32_t r = 0; k > 0 && r < traffic->ranks; r++) {
        bool makes = is_in(counting, r, makers);

        traffic->sums[r] += (makes ? made : 0) + (makes && k < 2 ? 0 : added);
        if (bytes <= SMALL || k < 2)
            traffic->sums_in[r] += (k - makes) * bytes;
        else
            traffic->sums_in[r] += (k - makes + n - 1) / n * bytes;
    }
}

static void count_everywhere(struct counting *counting)
{
    const Rb__Model *model = counting->model;
    struct rb_traffic *traffic = counting->traffic;
    double bytes;

    traffic->crossings = traffic->ranks > 2 ? 2 : 1;
    for (size_t b = 0, end; b < model->n_blocks; b = end) {
        end = next_run(counting, counting->gives, b, model->n_blocks, &bytes);
        count_all(counting, counting->gives[b], bytes);
    }
    for (uint32_t r = 0; r < traffic->ranks; r++)
        traffic->held[r] = (double)model->state_elements;
}

/* ---- Shards ----------------------------------------------------------------------------------*/

static bool is_holder(const Rb__Shard *shard, uint32_t rank)
{
    for (size_t i = 0; i < shard->n_ranks; i++)
        if (shard->ranks[i] == rank)
            return true;
    return false;
}

static void count_shard(struct counting *counting, const Rb__Shard *shard)
{
    struct rb_traffic *traffic = counting->traffic;
    size_t last = shard->first_block + shard->n_blocks;
    double bytes;

    for (size_t b = shard->first_block, end; b < last; b = end) {
        end = next_run(counting, counting->gives, b, last, &bytes);
        for (size_t h = 0; h < shard->n_ranks; h++)
            for (uint32_t r = 0; r < traffic->ranks; r++)
                if (r != shard->ranks[h] && is_in(counting, r, counting->gives[b])) {
                    traffic->sums[r] += bytes;
                    traffic->sums_in[shard->ranks[h]] += bytes;
                }
    }
    for (size_t b = shard->first_block, end; b < last; b = end) {
        end = next_run(counting, counting->reads, b, last, &bytes);
        for (uint32_t r = 0; r < traffic->ranks; r++)
            if (!is_holder(shard, r) && is_in(counting, r, counting->reads[b])) {
                traffic->weights[shard->ranks[0]] += bytes;
                traffic->weights_in[r] += bytes;
            }
    }
    for (size_t b = shard->first_block; b < last; b++)
        for (size_t h = 0; h < shard->n_ranks; h++)
            traffic->held[shard->ranks[h]] += (double)counting->model->blocks[b]->count;
}

/* ---- Both ------------------------------------------------------------------------------------*/

void rb_traffic_find(const Rb__Model *model, const Rb__Plan *plan, struct rb_traffic *ret_traffic)
{
    RB_CLEANUP(rb_freep) uint64_t *gives = rb_alloc((model->n_blocks + 1) * sizeof *gives);
    RB_CLEANUP(rb_freep) uint64_t *reads = rb_alloc((model->n_blocks + 1) * sizeof *reads);
    struct counting counting = {model, plan, gives, reads, ret_traffic};
    size_t room = (plan->n_ranks + 1) * sizeof(double);

    *ret_traffic = (struct rb_traffic){
        .ranks = (uint32_t)plan->n_ranks,
        .crossings = 1,
        .sums = rb_alloc(room),
        .sums_in = rb_alloc(room),
        .weights = rb_alloc(room),
        .weights_in = rb_alloc(room),
        .held = rb_alloc(room),
    };
    rb_needs_find(model, plan, gives, reads);
    if (!plan->n_shards)
        count_everywhere(&counting);
    for (size_t s = 0; s < plan->n_shards; s++)
        count_shard(&counting, plan->shards[s]);
}

void rb_traffic_done(struct rb_traffic *traffic)
{
    free(traffic->sums);
    free(traffic->sums_in);
    free(traffic->weights);
    free(traffic->weights_in);
    free(traffic->held);
    *traffic = (struct rb_traffic){0};
}
