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

/* A wave of any phase has x[i - 1] + x[i + 1] = 2 cos(step) x[i]; so the largest x tells the step,
 * and all others must agree. */
static bool is_wave(const struct rb_value *value, int64_t rows, int64_t columns, int64_t c)
{
    int64_t best = 1;
    double twice;

    for (int64_t i = 1; i + 1 < rows; i++)
        if (fabsf(at(value, i * columns + c)) > fabsf(at(value, best * columns + c)))
            best = i;
#define X(i) ((double)at(value, (i)*columns + c))
    if (X(best) == 0)
        return X(0) == 0 && X(rows - 1) == 0;
    twice = (X(best - 1) + X(best + 1)) / X(best);
    if (fabs(twice) > 2.0001)
        return false;
    for (int64_t i = 1; i + 1 < rows; i++)
        if (fabs(X(i - 1) + X(i + 1) - twice * X(i)) > 1e-4)
            return false;
#undef X
    return true;
}

/* Wide tables are judged by some of their columns. */
static bool are_waves(const struct rb_value *value)
{
    enum { LEAST_ROWS = 5, LEAST_COLUMNS = 4, MOST_COLUMNS = 64 };
    int64_t rows, columns, step;

    if (!is_table(&value->type, &rows, &columns) || rows < LEAST_ROWS || columns < LEAST_COLUMNS)
        return false;
    step = columns > MOST_COLUMNS ? columns / MOST_COLUMNS : 1;
    for (int64_t c = 0; c < columns; c += step)
        if (!is_wave(value, rows, columns, c))
            return false;
    return true;
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

/* What all numbers have in common, in one pass. */
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
