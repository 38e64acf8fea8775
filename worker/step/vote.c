/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/vote.h"

#include <math.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "records and state travel as they lie in memory: little-endian"
#endif

/* A record: this head, then a bit a microbatch, then a result a microbatch, then a word a variable
 * whose highest bit is the overflow flag (bits of |g| leave it free), then squares by block. */
struct head {
    uint32_t rank, attempt;
    int64_t level;
    uint64_t agreement;
    uint32_t number, member;
    uint64_t digest;
    uint32_t collects, gives_up;
    uint32_t takes_first, takes;
    uint64_t computed;   /* ns */
    uint32_t pace, zero; /* us */
};

struct result {
    double loss;
    int64_t count, correct;
};

#define OVERFLOW_BIT UINT32_C(0x80000000)

static size_t map_bytes(const struct rb_vote_shape *shape)
{
    return ((size_t)shape->microbatches + 63) / 64 * 8;
}

static size_t result_at(const struct rb_vote_shape *shape, uint32_t microbatch)
{
    return sizeof(struct head) + map_bytes(shape) + microbatch * sizeof(struct result);
}

static size_t word_at(const struct rb_vote_shape *shape, uint32_t variable)
{
    return result_at(shape, shape->microbatches) + variable * sizeof(uint32_t);
}

/* Behind all else, so that a record means the same without them. */
static size_t squares_at(const struct rb_vote_shape *shape)
{
    return (word_at(shape, shape->variables) + 7) & ~(size_t)7;
}

size_t rb_vote_bytes(const struct rb_vote_shape *shape)
{
    return squares_at(shape) + shape->blocks * sizeof(double);
}

void rb_vote_start(const struct rb_vote_shape *shape, void *record, uint32_t rank, int64_t level,
                   uint32_t attempt)
{
    memset(record, 0, rb_vote_bytes(shape));
    rb_vote_again(record, rank, level, attempt);
}

void rb_vote_again(void *record, uint32_t rank, int64_t level, uint32_t attempt)
{
    struct head head = {.rank = rank, .attempt = attempt, .level = level};

    memcpy(record, &head, sizeof head);
}

static bool holds(const uint8_t *record, uint32_t microbatch)
{
    return record[sizeof(struct head) + microbatch / 8] >> microbatch % 8 & 1;
}

bool rb_vote_holds(const void *record, uint32_t microbatch)
{
    return holds(record, microbatch);
}

void rb_vote_microbatch(const struct rb_vote_shape *shape, void *record, uint32_t microbatch,
                        double loss, int64_t count, int64_t correct)
{
    struct result result = {loss, count, correct};
    uint8_t *bytes = record;

    bytes[sizeof(struct head) + microbatch / 8] |= (uint8_t)(1 << microbatch % 8);
    memcpy(bytes + result_at(shape, microbatch), &result, sizeof result);
}

void rb_vote_variable(const struct rb_vote_shape *shape, void *record, uint32_t variable,
                      uint32_t largest, bool overflow)
{
    uint32_t word = (largest & ~OVERFLOW_BIT) | (overflow ? OVERFLOW_BIT : 0);

    memcpy((uint8_t *)record + word_at(shape, variable), &word, sizeof word);
}

void rb_vote_computed(void *record, uint64_t ns, uint32_t microbatch_us)
{
    struct head head;

    memcpy(&head, record, sizeof head);
    head.computed = ns;
    head.pace = microbatch_us;
    memcpy(record, &head, sizeof head);
}

void rb_vote_squares(const struct rb_vote_shape *shape, void *record, const double *squares)
{
    memcpy((uint8_t *)record + squares_at(shape), squares, shape->blocks * sizeof *squares);
}

void rb_vote_finish(void *record, uint64_t agreement, const struct rb_vote_ready *ready)
{
    struct head head;

    memcpy(&head, record, sizeof head);
    head.agreement = agreement;
    head.number = ready->number;
    head.member = ready->member;
    head.digest = ready->member ? ready->digest : 0;
    head.collects = ready->collects;
    head.gives_up = ready->gives_up;
    head.takes_first = ready->takes_first;
    head.takes = ready->takes;
    memcpy(record, &head, sizeof head);
}

static const uint8_t *record_of(const struct rb_vote_shape *shape, const void *records,
                                uint32_t rank)
{
    return (const uint8_t *)records + rank * rb_vote_bytes(shape);
}

double rb_vote_square(const struct rb_vote_shape *shape, const void *records, uint32_t rank,
                      size_t block)
{
    double square;

    memcpy(&square, record_of(shape, records, rank) + squares_at(shape) + block * sizeof square,
           sizeof square);
    return square;
}

static struct head head_of(const uint8_t *record)
{
    struct head head;

    memcpy(&head, record, sizeof head);
    return head;
}

void rb_vote_takes(const struct rb_vote_shape *shape, const void *records, uint32_t rank,
                   struct rb_vote_ready *ret_ready)
{
    struct head head = head_of(record_of(shape, records, rank));

    ret_ready->takes_first = head.takes_first;
    ret_ready->takes = head.takes;
    ret_ready->gives_up = head.gives_up != 0;
}

bool rb_vote_stays(const struct rb_vote_shape *shape, const void *records, uint32_t rank)
{
    return head_of(record_of(shape, records, rank)).member != 0;
}

uint32_t rb_vote_pace(const struct rb_vote_shape *shape, const void *records, uint32_t rank)
{
    return head_of(record_of(shape, records, rank)).pace;
}

uint32_t rb_vote_moved(const struct rb_vote_shape *shape, const void *records,
                       const int32_t *owners)
{
    uint32_t moved = 0;

    for (uint32_t i = 0; i < shape->microbatches; i++)
        moved += !holds(record_of(shape, records, (uint32_t)owners[i]), i);
    return moved;
}

/* The lowest rank that asks for it. */
static int find_collector(const struct rb_vote_shape *shape, const void *records, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++)
        if (head_of(record_of(shape, records, r)).collects)
            return (int)r;
    return -1;
}

/* All records are of the same attempt, from the same state. */
static int check_heads(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                       int64_t level, uint32_t attempt, struct rb_why *why)
{
    uint64_t agreement = head_of(records).agreement;

    for (uint32_t r = 0; r < ranks; r++) {
        struct head head = head_of(record_of(shape, records, r));

        if (head.rank != r || head.level != level || head.attempt != attempt)
            return rb_why_set(why, RB_EINTERNAL,
                              "the vote after level %lld, attempt %u, holds a record of rank %u, "
                              "level %lld, attempt %u in the place of rank %u",
                              (long long)level, attempt, head.rank, (long long)head.level,
                              head.attempt, r);
        if (head.agreement != agreement)
            return rb_why_set(
                why, RB_EINTERNAL,
                "ranks 0 and %u have different exponents or counters after level %lld", r,
                (long long)level);
    }
    return 0;
}

/* The results of a microbatch from its one record of a stage. */
static int find_result(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                       uint32_t microbatch, uint32_t stage, struct result *ret_result,
                       struct rb_why *why)
{
    unsigned holders = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        const uint8_t *record = record_of(shape, records, r);

        if ((shape->stages && shape->stage[r] != stage) || !holds(record, microbatch))
            continue;
        holders++;
        memcpy(ret_result, record + result_at(shape, microbatch), sizeof *ret_result);
    }
    if (holders != 1)
        return rb_why_set(why, RB_EINTERNAL,
                          "microbatch %u is in the sums of %u ranks, it must be in one", microbatch,
                          holders);
    return 0;
}

/* Sum the results in index order. */
static int add_results(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                       struct rb_vote_decision *decision, struct rb_why *why)
{
    for (uint32_t i = 0; i < shape->microbatches; i++) {
        struct result result = {0};
        uint32_t stage = 0;

        do {
            int err = find_result(shape, records, ranks, i, stage, &result, why);

            if (err)
                return err;
        } while (++stage < shape->stages);
        decision->loss += result.loss;
        decision->count += result.count;
        decision->correct += result.correct;
    }
    return 0;
}

/* All ranks would flip to the same configuration, and some of them go on in it: a flip that leaves
 * all ranks behind would leave the state behind too. */
static bool all_flip(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                     uint32_t *ret_number)
{
    uint32_t number = head_of(records).number;
    uint64_t digest = 0;
    bool members = false;

    for (uint32_t r = 0; r < ranks; r++) {
        struct head head = head_of(record_of(shape, records, r));

        if (!head.number || head.number != number)
            return false;
        if (!head.member)
            continue;
        if (members && head.digest != digest)
            return false;
        members = true;
        digest = head.digest;
    }
    *ret_number = number;
    return members;
}

/* For observers: no decision depends on it. */
static struct rb_vote_times times_of(const struct rb_vote_shape *shape, const void *records,
                                     uint32_t ranks)
{
    struct rb_vote_times times = {0};
    double squares = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        double ns = (double)head_of(record_of(shape, records, r)).computed;

        times.mean += ns / ranks;
        times.most = fmax(times.most, ns);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        double off = (double)head_of(record_of(shape, records, r)).computed - times.mean;

        squares += off * off / ranks;
    }
    times.variation = times.mean > 0 ? sqrt(squares) / times.mean : 0;
    return times;
}

int rb_vote_decide(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                   int64_t level, uint32_t attempt, const struct rb_exponent *exponents,
                   const int32_t *limits, struct rb_vote_decision *ret_decision,
                   uint32_t *ret_largest, struct rb_why *why)
{
    struct rb_vote_decision decision = {.collector = -1};
    bool flagged = false, wild = false;
    int err = check_heads(shape, records, ranks, level, attempt, why);

    if (!err)
        err = add_results(shape, records, ranks, &decision, why);
    if (err)
        return err;
    for (uint32_t v = 0; v < shape->variables; v++) {
        uint32_t largest = 0, word;
        bool overflow = false;

        for (uint32_t r = 0; r < ranks; r++) {
            memcpy(&word, record_of(shape, records, r) + word_at(shape, v), sizeof word);
            overflow |= (word & OVERFLOW_BIT) != 0;
            if ((word & ~OVERFLOW_BIT) > largest)
                largest = word & ~OVERFLOW_BIT;
        }
        ret_largest[v] = largest;
        wild |= largest >= RB_EXPONENT_INFINITE || rb_exponent_beyond(largest, limits[v]);
        flagged |= rb_exponent_flagged(&exponents[v], largest, overflow);
    }
    decision.not_finite = wild || !isfinite(decision.loss);
    if (decision.not_finite || decision.count <= 0)
        decision.verdict = RB_VOTE_SKIP;
    else
        decision.verdict = flagged ? RB_VOTE_REDO : RB_VOTE_COMMIT;
    if (decision.verdict != RB_VOTE_REDO) {
        decision.flip = all_flip(shape, records, ranks, &decision.number);
        decision.collector = find_collector(shape, records, ranks);
    }
    decision.times = times_of(shape, records, ranks);
    *ret_decision = decision;
    return 0;
}
