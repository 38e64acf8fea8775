/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/walk.h"

#include <string.h>

void rb_walk_dense(const struct rb_tensor_type *type, int64_t *ret_step)
{
    int64_t step = 1;

    for (int i = type->rank - 1; i >= 0; i--) {
        ret_step[i] = step;
        step *= type->dim[i];
    }
}

bool rb_walk_broadcast(struct rb_walk *walk, const struct rb_tensor_type *out, int n,
                       const struct rb_tensor_type *in)
{
    *walk = (struct rb_walk){.rank = out->rank, .operands = n + 1};
    memcpy(walk->dim, out->dim, sizeof(walk->dim));
    rb_walk_dense(out, walk->step[n]);
    for (int k = 0; k < n; k++) {
        int64_t step[RB_MAX_RANK];
        int shift = out->rank - in[k].rank;

        if (shift < 0)
            return false;
        rb_walk_dense(&in[k], step);
        for (int i = 0; i < in[k].rank; i++) {
            if (in[k].dim[i] != out->dim[shift + i] && in[k].dim[i] != 1)
                return false;
            walk->step[k][shift + i] = in[k].dim[i] == 1 ? 0 : step[i];
        }
    }
    rb_walk_merge(walk);
    return true;
}

/* May axis `outer` be one with the axis right inside it? */
static bool mergeable(const struct rb_walk *walk, int outer, int inner)
{
    for (int k = 0; k < walk->operands; k++)
        if (walk->step[k][outer] != walk->step[k][inner] * walk->dim[inner])
            return false;
    return true;
}

static void move_axis(struct rb_walk *walk, int to, int from)
{
    walk->dim[to] = walk->dim[from];
    for (int k = 0; k < walk->operands; k++)
        walk->step[k][to] = walk->step[k][from];
}

void rb_walk_merge(struct rb_walk *walk)
{
    int rank = 0;

    for (int i = 0; i < walk->rank; i++) {
        if (walk->dim[i] == 1)
            continue;
        if (rank > 0 && mergeable(walk, rank - 1, i)) {
            int64_t outer = walk->dim[rank - 1];

            move_axis(walk, rank - 1, i);
            walk->dim[rank - 1] *= outer;
            continue;
        }
        move_axis(walk, rank, i);
        rank++;
    }
    if (rank == 0) {
        walk->dim[0] = 1;
        for (int k = 0; k < walk->operands; k++)
            walk->step[k][0] = 1;
        rank = 1;
    }
    walk->rank = rank;
}

int64_t rb_walk_rows(const struct rb_walk *walk)
{
    int64_t rows = 1;

    for (int i = 0; i < walk->rank - 1; i++)
        rows *= walk->dim[i];
    return walk->dim[walk->rank - 1] > 0 ? rows : 0;
}

void rb_walk_start(const struct rb_walk *walk, struct rb_walk_at *at)
{
    memset(at->index, 0, sizeof(at->index));
    memcpy(at->offset, walk->base, sizeof(at->offset));
}

void rb_walk_next(const struct rb_walk *walk, struct rb_walk_at *at)
{
    for (int i = walk->rank - 2; i >= 0; i--) {
        for (int k = 0; k < walk->operands; k++)
            at->offset[k] += walk->step[k][i];
        if (++at->index[i] < walk->dim[i])
            return;
        for (int k = 0; k < walk->operands; k++)
            at->offset[k] -= walk->step[k][i] * walk->dim[i];
        at->index[i] = 0;
    }
}
