/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum as transposes, sums and matrix products.
 *
 * First every operand is brought to one axis a letter: of a letter that stands twice the diagonal
 * is taken, and "..." gets letters of its own.  Then two operands at a time are one product
 * [batch, mine, summed] x [batch, summed, yours]. */
#include "graph/import/make.h"

#include <ctype.h>
#include <string.h>

enum { DOTS = 128, LETTERS = DOTS + RB_MAX_RANK }; /* the axes of "..." are DOTS, DOTS + 1, ... */

/* A value with a letter for each axis, none of them twice. */
struct term {
    struct rb_value *value;
    int letter[RB_MAX_RANK];
};

struct einsum {
    struct rb_import *import;
    int64_t size[LETTERS]; /* 0: not seen */
    int dots;              /* axes of the longest "..." */
    int out[RB_MAX_RANK], n_out;
    int uses[LETTERS]; /* how many operands yet to come, and outputs, have the letter */
};

static int rank_of(const struct term *term)
{
    return term->value ? term->value->type.rank : 0;
}

static int find(const int *letters, int n, int letter)
{
    for (int i = 0; i < n; i++)
        if (letters[i] == letter)
            return i;
    return -1;
}

/* One side's letters; "..." stands for `dots` axes, aligned at their end.  -1 where they do not fit
 * RB_MAX_RANK. */
static int read_letters(struct einsum *einsum, const char *text, size_t length, int dots,
                        int *letters)
{
    int n = 0;

    for (size_t i = 0; i < length; i++) {
        if (text[i] == ' ')
            continue;
        if (n >= RB_MAX_RANK)
            return -1;
        if (text[i] == '.') {
            if (i + 2 >= length || text[i + 1] != '.' || text[i + 2] != '.' ||
                n + dots > RB_MAX_RANK)
                return -1;
            for (int j = 0; j < dots; j++)
                letters[n++] = DOTS + einsum->dots - dots + j;
            i += 2;
        } else if (isalpha((unsigned char)text[i])) {
            letters[n++] = text[i];
        } else {
            return -1;
        }
    }
    return n;
}

static int count_letters(const char *text, size_t length)
{
    int n = 0;

    for (size_t i = 0; i < length; i++)
        n += isalpha((unsigned char)text[i]) != 0;
    return n;
}

/* Two axes of one letter become one: with both at the end, every n+1-th of n n elements. */
static void take_diagonal(struct einsum *einsum, struct term *term, int a, int b)
{
    struct rb_import *import = einsum->import;
    int64_t perm[RB_MAX_RANK], dim[RB_MAX_RANK], n;
    int rank = rank_of(term), letters[RB_MAX_RANK], k = 0, letter = term->letter[a];

    n = term->value->type.dim[a];
    for (int i = 0; i < rank; i++)
        if (i != a && i != b) {
            letters[k] = term->letter[i];
            dim[k] = term->value->type.dim[i];
            perm[k++] = i;
        }
    perm[k] = a;
    perm[k + 1] = b;
    letters[k] = letter;
    term->value = rb_make_transpose(import, term->value, perm);
    dim[k] = n * n;
    term->value = rb_make_reshape(import, term->value, k + 1, dim);
    term->value = rb_make_slice(import, term->value, k, 0, n, n + 1);
    memcpy(term->letter, letters, sizeof letters);
}

static void read_term(struct einsum *einsum, int i, const char *text, size_t length,
                      struct term *term)
{
    struct rb_import *import = einsum->import;
    int rank, n;

    term->value = rb_make_need(import, i);
    if (import->err)
        return;
    rank = rank_of(term);
    n = read_letters(einsum, text, length, rank - count_letters(text, length), term->letter);
    if (n != rank || (!memchr(text, '.', length) && count_letters(text, length) != rank)) {
        rb_make_bad(import, "operand %d does not have the axes of its letters", i);
        return;
    }
    for (int a = 0; !import->err && a < rank_of(term); a++)
        for (int b = a + 1; !import->err && b < rank_of(term); b++)
            if (term->letter[a] == term->letter[b]) {
                if (term->value->type.dim[a] != term->value->type.dim[b]) {
                    rb_make_bad(import, "operand %d: the axes of one letter differ", i);
                    return;
                }
                take_diagonal(einsum, term, a, b);
                a = 0;
                b = 0;
            }
    for (int a = 0; !import->err && a < rank_of(term); a++) {
        int64_t dim = term->value->type.dim[a], *size = &einsum->size[term->letter[a]];

        if (*size > 1 && dim > 1 && *size != dim)
            rb_make_bad(import, "operand %d: a letter stands for %lld and for %lld", i,
                        (long long)*size, (long long)dim);
        *size = dim > *size ? dim : *size;
        einsum->uses[term->letter[a]]++;
    }
}

/* Sum over letters that neither the output nor another operand has, and broadcast axes of 1. */
static void settle(struct einsum *einsum, struct term *term)
{
    int64_t axes[RB_MAX_RANK], dim[RB_MAX_RANK] = {0};
    int n = 0, kept = 0, rank = rank_of(term);

    for (int a = 0; a < rank; a++)
        dim[a] = einsum->size[term->letter[a]];
    term->value = rb_make_expand(einsum->import, term->value, rank, dim);
    for (int a = 0; a < rank; a++)
        if (einsum->uses[term->letter[a]] == 0)
            axes[n++] = a;
        else
            term->letter[kept++] = term->letter[a];
    if (n)
        term->value = rb_make_reduce(einsum->import, RB_OP_REDUCE_SUM, term->value, axes, n, false);
}

/* The value with the axes of these letters in front, in groups: [product of each group]. */
static struct rb_value *grouped(struct einsum *einsum, const struct term *term, const int *letters,
                                const int *group, int groups)
{
    int64_t perm[RB_MAX_RANK], dim[3] = {1, 1, 1};
    int n = 0;

    for (int g = 0; g < groups; g++)
        for (int i = 0; i < group[g]; i++, n++) {
            perm[n] = find(term->letter, rank_of(term), letters[n]);
            dim[g] *= einsum->size[letters[n]];
        }
    return rb_make_reshape(einsum->import, rb_make_transpose(einsum->import, term->value, perm), 3,
                           dim);
}

static struct term multiply(struct einsum *einsum, const struct term *a, const struct term *b)
{
    int batch[RB_MAX_RANK], summed[RB_MAX_RANK], mine[RB_MAX_RANK], yours[RB_MAX_RANK];
    int n_batch = 0, n_summed = 0, n_mine = 0, n_yours = 0, left[RB_MAX_RANK], right[RB_MAX_RANK];
    struct rb_value *x, *y;
    struct term made = {0};
    int64_t dim[2 * RB_MAX_RANK];
    int n = 0;

    for (int i = 0; i < rank_of(a); i++) {
        int letter = a->letter[i];

        if (find(b->letter, rank_of(b), letter) < 0)
            mine[n_mine++] = letter;
        else if (einsum->uses[letter])
            batch[n_batch++] = letter;
        else
            summed[n_summed++] = letter;
    }
    for (int i = 0; i < rank_of(b); i++)
        if (find(a->letter, rank_of(a), b->letter[i]) < 0)
            yours[n_yours++] = b->letter[i];
    if (n_batch + n_mine + n_yours > RB_MAX_RANK) {
        rb_make_no(einsum->import, "more than %d letters at once", RB_MAX_RANK);
        return made;
    }
#define JOIN(to, at, from, count) memcpy((to) + (at), from, sizeof(int) * (size_t)(count))
    JOIN(left, 0, batch, n_batch);
    JOIN(left, n_batch, mine, n_mine);
    JOIN(left, n_batch + n_mine, summed, n_summed);
    JOIN(right, 0, batch, n_batch);
    JOIN(right, n_batch, summed, n_summed);
    JOIN(right, n_batch + n_summed, yours, n_yours);
    JOIN(made.letter, 0, batch, n_batch);
    JOIN(made.letter, n_batch, mine, n_mine);
    JOIN(made.letter, n_batch + n_mine, yours, n_yours);
#undef JOIN
    x = grouped(einsum, a, left, (int[]){n_batch, n_mine, n_summed}, 3);
    y = grouped(einsum, b, right, (int[]){n_batch, n_summed, n_yours}, 3);
    for (int i = 0; i < n_batch + n_mine + n_yours; i++)
        dim[n++] = einsum->size[made.letter[i]];
    made.value =
        rb_make_reshape(einsum->import, rb_make_matmul(einsum->import, x, y, false), n, dim);
    return made;
}

/* Without "->" the output has the letters that stand once, in the order of the alphabet, behind
 * "...". */
static int implied_output(struct einsum *einsum, const char *text, size_t length)
{
    int times[DOTS] = {0};

    einsum->n_out = 0;
    for (size_t i = 0; i < length; i++)
        if (isalpha((unsigned char)text[i]))
            times[(unsigned char)text[i] % DOTS]++;
    for (int i = 0; i < einsum->dots; i++)
        einsum->out[einsum->n_out++] = DOTS + i;
    for (int letter = 0; letter < DOTS; letter++)
        if (times[letter] == 1) {
            if (einsum->n_out == RB_MAX_RANK)
                return -1;
            einsum->out[einsum->n_out++] = letter;
        }
    return einsum->n_out;
}

static void find_dots(struct einsum *einsum, const char *text, size_t length)
{
    const char *at = text;

    for (size_t i = 0; i < einsum->import->node->n_input; i++) {
        size_t n = strcspn(at, ",");
        struct rb_value *value = rb_make_need(einsum->import, (int)i);
        int dots;

        n = n > (size_t)(text + length - at) ? (size_t)(text + length - at) : n;
        if (einsum->import->err)
            return;
        dots = memchr(at, '.', n) ? value->type.rank - count_letters(at, n) : 0;
        einsum->dots = dots > einsum->dots ? dots : einsum->dots;
        at += n;
        at += at < text + length;
    }
}

/* The output's axes in its order. */
static struct rb_value *ordered(struct einsum *einsum, struct term *term)
{
    int64_t perm[RB_MAX_RANK];

    settle(einsum, term);
    if (!einsum->import->err && rank_of(term) != einsum->n_out)
        return rb_make_bad(einsum->import, "the output has a letter that no operand has");
    for (int i = 0; !einsum->import->err && i < einsum->n_out; i++) {
        int at = find(term->letter, rank_of(term), einsum->out[i]);

        if (at < 0 || find(einsum->out, i, einsum->out[i]) >= 0)
            return rb_make_bad(einsum->import, "the output's letters are wrong");
        perm[i] = at;
    }
    return rb_make_transpose(einsum->import, term->value, perm);
}

int rb_import_op_einsum(struct rb_import *import)
{
    struct einsum einsum = {.import = import};
    struct term *terms =
        RB_ARENA_NEW(&import->graph->arena, struct term, import->node->n_input + 1);
    const char *equation = "", *arrow, *at;
    size_t length, n = import->node->n_input;

    import->err = rb_import_text(import, "equation", &equation);
    arrow = strstr(equation, "->");
    length = arrow ? (size_t)(arrow - equation) : strlen(equation);
    find_dots(&einsum, equation, length);
    if (!import->err && einsum.dots > RB_MAX_RANK)
        rb_make_bad(import, "the equation does not fit the operands");
    at = equation;
    for (size_t i = 0; !import->err && i < n; i++) {
        size_t size = strcspn(at, ",-");

        read_term(&einsum, (int)i, at, size, &terms[i]);
        at += size;
        if ((i + 1 < n) != (*at == ','))
            rb_make_bad(import, "the equation has another number of operands");
        at += *at == ',';
    }
    if (import->err)
        return import->err;
    einsum.n_out =
        arrow ? read_letters(&einsum, arrow + 2, strlen(arrow + 2), einsum.dots, einsum.out)
              : implied_output(&einsum, equation, length);
    if (einsum.n_out < 0)
        return RB_IMPORT_BAD(import, "the equation's output cannot be read");
    for (int i = 0; i < einsum.n_out; i++)
        einsum.uses[einsum.out[i]]++;
    for (size_t i = 0; !import->err && i < n; i++) {
        for (int a = 0; a < rank_of(&terms[i]); a++)
            einsum.uses[terms[i].letter[a]]--;
        if (i == 0)
            continue;
        /* A letter that only one of the two has, and no later operand, is summed before the
         * product. */
        for (int k = 0; k < 2; k++) {
            struct term *own = &terms[k ? i : 0], *other = &terms[k ? 0 : i];

            for (int a = 0; a < rank_of(other); a++)
                einsum.uses[other->letter[a]]++;
            settle(&einsum, own);
            for (int a = 0; a < rank_of(other); a++)
                einsum.uses[other->letter[a]]--;
        }
        if (!import->err)
            terms[0] = multiply(&einsum, &terms[0], &terms[i]);
    }
    return rb_make_bind(import, 0, n && !import->err ? ordered(&einsum, &terms[0]) : NULL);
}
