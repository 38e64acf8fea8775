/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/looks.h"

#include <math.h>
#include <string.h>

static float at(const struct rb_value *value, int64_t i)
{
    float x;

    memcpy(&x, (const uint8_t *)value->data + i * (int64_t)sizeof x, sizeof x);
    return x;
}

/* Rows and columns, axes of 1 aside; a vector is one column. */
static bool is_table(const struct rb_tensor_type *type, int64_t *ret_rows, int64_t *ret_columns)
{
    int64_t dim[2] = {1, 1};
    int n = 0;

    for (int i = 0; i < type->rank; i++) {
        if (type->dim[i] == 1)
            continue;
        if (n == 2)
            return false;
        dim[n++] = type->dim[i];
    }
    *ret_rows = dim[0];
    *ret_columns = dim[1];
    return n > 0;
}

/* `n` rows of a table, each `step` behind the one before, in one of its columns. */
struct column {
    const struct rb_value *value;
    int64_t columns, number, first, step, n;
};

static double in_row(const struct column *c, int64_t i)
{
    return (double)at(c->value, (c->first + i * c->step) * c->columns + c->number);
}

/* A wave of any phase has x[i - 1] + x[i + 1] = 2 cos(step) x[i]; so the largest x tells the step,
 * and all others must agree. */
static bool is_wave(const struct column *c)
{
    int64_t best = 1;
    double twice;

    for (int64_t i = 1; i + 1 < c->n; i++)
        if (fabs(in_row(c, i)) > fabs(in_row(c, best)))
            best = i;
    if (in_row(c, best) == 0)
        return in_row(c, 0) == 0 && in_row(c, c->n - 1) == 0;
    twice = (in_row(c, best - 1) + in_row(c, best + 1)) / in_row(c, best);
    if (fabs(twice) > 2.0001)
        return false;
    for (int64_t i = 1; i + 1 < c->n; i++)
        if (fabs(in_row(c, i - 1) + in_row(c, i + 1) - twice * in_row(c, i)) > 1e-4)
            return false;
    return true;
}

/* The rows are places of a square image, line by line: a wave from line to line that is constant
 * within each line, or a wave within lines that are all the same. */
static bool is_wave_of_image(const struct column *all, int64_t side)
{
    struct column lines = *all, places = *all;
    bool same_within = true, same_lines = true;

    lines.n = places.n = side;
    lines.step = side;
    for (int64_t i = 0; i < all->n; i++) {
        same_within &= in_row(all, i) == in_row(&lines, i / side);
        same_lines &= in_row(all, i) == in_row(&places, i % side);
    }
    return (same_within && is_wave(&lines)) || (same_lines && is_wave(&places));
}

/* Wide tables are judged by some of their columns. */
static bool all_columns(struct column c, int64_t side)
{
    enum { MOST_COLUMNS = 64 };
    int64_t step = c.columns > MOST_COLUMNS ? c.columns / MOST_COLUMNS : 1;

    for (c.number = 0; c.number < c.columns; c.number += step)
        if (side ? !is_wave_of_image(&c, side) : !is_wave(&c))
            return false;
    return true;
}

/* Positions of a sequence, or of an image; those of an image may follow a row of zeros, the class
 * token's. */
static bool are_waves(const struct rb_value *value)
{
    enum { LEAST_ROWS = 5, LEAST_COLUMNS = 4, LEAST_SIDE = 4 };
    struct column c = {.value = value, .step = 1};
    int64_t side;

    if (!is_table(&value->type, &c.n, &c.columns) || c.n < LEAST_ROWS || c.columns < LEAST_COLUMNS)
        return false;
    if (all_columns(c, 0))
        return true;
    side = (int64_t)sqrt((double)c.n);
    c.first = side * side + 1 == c.n;
    c.n -= c.first;
    for (int64_t i = 0; c.first && i < c.columns; i++)
        if (at(value, i) != 0)
            return false;
    return side >= LEAST_SIDE && side * side == c.n && all_columns(c, side);
}

static bool are_steps(const struct rb_value *value)
{
    enum { LEAST = 4 };
    int64_t n, columns;
    bool same_difference = true, same_quotient = true;
    double a, b, scale;

    if (!is_table(&value->type, &n, &columns) || columns != 1 || n < LEAST)
        return false;
    a = (double)at(value, 0);
    b = (double)at(value, 1);
    scale = fabs(a) + fabs((double)at(value, n - 1));
    for (int64_t i = 2; i < n; i++) {
        double x = (double)at(value, i - 1), y = (double)at(value, i);

        same_difference &= fabs(y - x - (b - a)) <= 1e-5 * scale;
        same_quotient &= a != 0 && fabs(y * a - x * b) <= 1e-4 * fabs(y * a);
    }
    return a != b && (same_difference || same_quotient);
}

/* What all numbers have in common, found in one pass. */
struct range {
    float least, most;
    bool finite, bits, mask;
};

static struct range range_of(const struct rb_value *value, int64_t n)
{
    const float large = -1e3F;
    struct range range = {at(value, 0), at(value, 0), true, true, true};

    for (int64_t i = 0; i < n && range.finite; i++) {
        float x = at(value, i);

        range.least = x < range.least ? x : range.least;
        range.most = x > range.most ? x : range.most;
        range.finite = isfinite(x);
        range.bits &= x == 0 || x == 1;
        range.mask &= x == 0 || x <= large;
    }
    return range;
}

enum rb_look rb_look_at(const struct rb_value *value)
{
    int64_t n = value->data ? rb_tensor_elements(&value->type) : 0;
    struct range range;

    if (n < 1)
        return RB_LOOK_PLAIN;
    range = range_of(value, n);
    if (!range.finite)
        return RB_LOOK_PLAIN;
    if (n == 1)
        return RB_LOOK_NUMBER;
    if (range.least == range.most)
        return RB_LOOK_PLAIN;
    if (range.mask)
        return RB_LOOK_MASK;
    if (range.bits)
        return RB_LOOK_BITS;
    if (range.least >= -1.0001F && range.most <= 1.0001F && range.most > 0.5F && are_waves(value))
        return RB_LOOK_WAVES;
    return are_steps(value) ? RB_LOOK_STEPS : RB_LOOK_PLAIN;
}

const char *rb_look_text(enum rb_look look)
{
    static const char *const text[] = {
        [RB_LOOK_PLAIN] = "like any weight",
        [RB_LOOK_NUMBER] = "one number",
        [RB_LOOK_MASK] = "zeros and large negative numbers",
        [RB_LOOK_BITS] = "zeros and ones",
        [RB_LOOK_STEPS] = "numbers in even steps",
        [RB_LOOK_WAVES] = "sines or cosines",
    };

    return text[look];
}
