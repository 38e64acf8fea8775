/* SPDX-License-Identifier: Apache-2.0 */
/* Sums.  Two ranks, or little to add: everyone sends everything to everyone and adds for itself,
 * one crossing.  Else everyone adds one segment of all vectors and sends it on while it grows: two
 * crossings, but only twice the vector through each rank's links whatever the size of the group.
 * Two ranks of one host do the same with much, as each adds half of it: they fetch from each other,
 * or should. */
#include "coll/group.h"

#include <string.h>

enum { SMALL = 8 * 1024, LARGE = 256 * 1024 };

static void exchange(struct rb_coll *coll, uint64_t tag, struct rb_summing *sum, size_t n)
{
    struct rb_frame frame = {RB_FRAME_SUM_WHOLE, tag, 4 * (uint64_t)n};

    for (int r = 0; r < coll->size; r++) {
        if (r == coll->rank)
            continue;
        rb_progress_offer(coll, r, frame, sum->in, frame.total, NULL);
        rb_progress_add(coll, r, frame, sum, frame.total);
    }
}

/* Where rank r's segment begins; segments are cut at multiples of 16 integers. */
static size_t cut(const struct rb_coll *coll, size_t n, int r)
{
    size_t each = (n / (size_t)coll->size + 15) & ~(size_t)15;
    size_t at = each * (size_t)r;

    return r == coll->size || at > n ? n : at;
}

static void scatter(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out, size_t n,
                    struct rb_summing *sum)
{
    struct rb_frame part = {RB_FRAME_SUM_PART, tag, 4 * (uint64_t)n};
    struct rb_frame total = {RB_FRAME_SUM_TOTAL, tag, 4 * (uint64_t)n};
    size_t mine = cut(coll, n, coll->rank);
    size_t count = cut(coll, n, coll->rank + 1) - mine;

    sum->in = in + mine;
    sum->out = out + mine;
    for (int r = 0; r < coll->size; r++) {
        size_t theirs = cut(coll, n, r), size = 4 * (cut(coll, n, r + 1) - theirs);

        if (r == coll->rank)
            continue;
        rb_progress_offer(coll, r, part, in + theirs, size, NULL);
        rb_progress_offer(coll, r, total, out + mine, 4 * count, &sum->complete);
        rb_progress_add(coll, r, part, sum, 4 * count);
        rb_progress_receive(coll, r, total, out + theirs, size);
    }
}

static bool is_exchanged(const struct rb_coll *coll, size_t bytes)
{
    if (coll->size == 2) /* the kind of a link is the same at both ends */
        return bytes < LARGE || !coll->link[!coll->rank]->ops->reach;
    return bytes <= SMALL;
}

int rb_coll_sum(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out, size_t n,
                struct rb_why *why)
{
    struct rb_summing sum = {.in = in, .out = out};
    int err = rb_progress_begin(coll, why);

    if (err)
        return err;
    if (n > SIZE_MAX / 8)
        return rb_why_set(why, RB_EINVAL, "a sum of %zu integers", n);
    if (coll->size == 1 && n)
        memcpy(out, in, 4 * n);
    else if (is_exchanged(coll, 4 * n))
        exchange(coll, tag, &sum, n);
    else
        scatter(coll, tag, in, out, n, &sum);
    return rb_progress_run(coll, why);
}
