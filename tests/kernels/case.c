/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/case.h"

#include "kernels/call.h"
#include "kernels/reference/reference.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void bad(const char *text, const char *at)
{
    fprintf(stderr, "cannot read case '%s' at '%s'\n", text, at);
    abort();
}

static enum rb_op find_op(const char *name)
{
    for (unsigned op = 1; op < RB_OP_COUNT; op++)
        if (strcmp(rb_op_info(op)->name, name) == 0)
            return (enum rb_op)op;
    bad(name, name);
    return RB_OP_NONE;
}

static enum rb_dtype find_dtype(const char *word)
{
    static const struct {
        const char *name;
        enum rb_dtype dtype;
    } names[] = {
        {"f32", RB_F32}, {"f64", RB_F64}, {"u8", RB_U8},     {"i8", RB_I8},     {"u16", RB_U16},
        {"i16", RB_I16}, {"i32", RB_I32}, {"i64", RB_I64},   {"bool", RB_BOOL}, {"f16", RB_F16},
        {"u32", RB_U32}, {"u64", RB_U64}, {"bf16", RB_BF16},
    };
    size_t n = strcspn(word, "[");

    for (size_t i = 0; i < RB_COUNT(names); i++)
        if (strlen(names[i].name) == n && strncmp(names[i].name, word, n) == 0)
            return names[i].dtype;
    bad(word, word);
    return RB_NONE;
}

static void read_type(const char *word, struct rb_tensor_type *type)
{
    char *at;

    *type = (struct rb_tensor_type){RB_NONE, 0, {0}};
    if (strcmp(word, "-") == 0)
        return;
    type->dtype = find_dtype(word);
    at = strchr(word, '[');
    if (!at)
        bad(word, word);
    for (at++; *at && *at != ']';) {
        type->dim[type->rank++] = strtoll(at, &at, 10);
        at += *at == ',';
    }
}

/* "7", "Add" or "f32", up to a comma. */
static int64_t read_number(char **at)
{
    size_t n = strcspn(*at, ",");
    char word[24] = "";
    bool names_type = islower((unsigned char)**at);

    if (!isalpha((unsigned char)**at) || n >= sizeof(word))
        return strtoll(*at, at, 10);
    memcpy(word, *at, n);
    *at += n;
    return names_type ? (int64_t)find_dtype(word) : (int64_t)find_op(word);
}

static void read_attribute(struct rb_case *c, int k, const char *word)
{
    size_t n = strcspn(word, "=");
    struct rb_attribute *attribute = &c->attributes[k];
    char *at = (char *)(uintptr_t)word + n + 1;
    bool is_float = !isalpha((unsigned char)*at) && strpbrk(at, ".e") != NULL;

    memcpy(c->keys[k], word, n);
    *attribute = (struct rb_attribute){c->keys[k], c->ints[k], 0, c->floats[k], 0};
    while (*at) {
        if (is_float)
            c->floats[k][attribute->n_floats++] = strtof(at, &at);
        else
            c->ints[k][attribute->n_ints++] = read_number(&at);
        if (*at && *at != ',')
            bad(word, at);
        at += *at == ',';
    }
}

void rb_case_read(const char *text, struct rb_case *c)
{
    char copy[1024], *save = NULL, *word;
    bool outputs = false;

    memset(c, 0, sizeof(*c));
    snprintf(copy, sizeof(copy), "%s", text);
    word = strtok_r(copy, " ", &save);
    c->call = (struct rb_call){.op = find_op(word), .id = 17};
    while ((word = strtok_r(NULL, " ", &save))) {
        if (strcmp(word, ">") == 0)
            outputs = true;
        else if (strchr(word, '='))
            read_attribute(c, c->call.n_attributes++, word);
        else if (outputs)
            read_type(word, &c->out[c->call.n_out++]);
        else
            read_type(word, &c->in[c->call.n_in++]);
    }
    c->call.in = c->in;
    c->call.out = c->out;
    c->call.attributes = c->attributes;
}

size_t rb_case_bytes(const struct rb_tensor_type *type)
{
    return type->dtype == RB_NONE ? 0
                                  : (size_t)rb_tensor_elements(type) * rb_dtype_size(type->dtype);
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Does this input have to be positive and away from 0? */
static bool positive(enum rb_op op, int input)
{
    switch (op) {
    case RB_OP_LOG:
    case RB_OP_SQRT:
    case RB_OP_RECIPROCAL:
        return true;
    case RB_OP_POW:
        return input == 0;
    case RB_OP_DIV:
    case RB_OP_MOD:
        return input == 1;
    case RB_OP_LAYER_NORM_GRAD:
    case RB_OP_BATCH_NORM_GRAD:
    case RB_OP_BATCH_NORM_EVAL:
        return input == 4;
    default:
        return false;
    }
}

static bool is_unsigned(enum rb_dtype dtype)
{
    return dtype == RB_U8 || dtype == RB_U16 || dtype == RB_U32 || dtype == RB_U64;
}

/* Logits of a case with smoothed labels have a large number in common, which their log-sum-exp
 * contains too. */
static double offset(const struct rb_case *c, int input)
{
    bool shared = c->call.op == RB_OP_CROSS_ENTROPY || c->call.op == RB_OP_CROSS_ENTROPY_GRAD;

    shared = shared && input != 1 && rb_call_float(&c->call, "labelSmoothing", 0) > 0;
    return shared ? 1e4 : 0;
}

/* The numbers that an integer input may have: [*low, *low + result). */
static int64_t span(const struct rb_case *c, int input, int64_t *low)
{
    int axis = (int)rb_call_int(&c->call, "axis", 0);

    *low = 0;
    switch (c->call.op) {
    case RB_OP_GATHER:
        *low = -c->in[0].dim[axis];
        return 2 * c->in[0].dim[axis];
    case RB_OP_GATHER_GRAD:
        *low = -c->out[0].dim[axis];
        return 2 * c->out[0].dim[axis];
    case RB_OP_GATHER_ELEMENTS:
    case RB_OP_SCATTER:
        if (input != 1)
            break;
        *low = -c->in[0].dim[axis];
        return 2 * c->in[0].dim[axis];
    case RB_OP_CROSS_ENTROPY:
    case RB_OP_CROSS_ENTROPY_GRAD:
        return c->in[0].dim[axis];
    case RB_OP_POW:
        return 5;
    case RB_OP_DIV:
        *low = input == 1 ? -3 : -50;
        return input == 1 ? 7 : 100;
    default:
        break;
    }
    *low = is_unsigned(c->in[input].dtype) ? 0 : -6;
    return 12;
}

static double draw_integer(const struct rb_case *c, int input, int64_t i, uint64_t *state)
{
    int64_t low, n = span(c, input, &low), ignore = rb_call_int(&c->call, "ignoreIndex", -1);
    bool targets = c->call.op == RB_OP_CROSS_ENTROPY || c->call.op == RB_OP_CROSS_ENTROPY_GRAD;

    if (targets && ignore != -1 && i % 5 == 2)
        return (double)ignore;
    return (double)(low + (int64_t)(next(state) % (uint64_t)(n > 0 ? n : 1)));
}

/* The positions that the pool itself would have given for some input. */
static void fill_positions(const struct rb_case *c, uint64_t seed, void *data)
{
    const struct rb_tensor_type out[2] = {c->in[0], c->in[1]};
    struct rb_case pool = {.call = c->call, .in = {c->out[0]}};
    float *x = calloc(rb_case_bytes(&c->out[0]) + 1, 1), *y = calloc(rb_case_bytes(&out[0]) + 1, 1);

    if (!x || !y)
        abort();
    pool.call.op = RB_OP_MAX_POOL;
    pool.call.in = pool.in;
    pool.call.out = out;
    pool.call.n_in = 1;
    pool.call.n_out = 2;
    rb_case_fill(&pool, 0, seed, x);
    rb_reference_max_pool(&pool.call, (const void *[]){x}, (void *[]){y, data}, NULL);
    free(x);
    free(y);
}

void rb_case_fill(const struct rb_case *c, int input, uint64_t seed, void *data)
{
    const struct rb_tensor_type *type = &c->in[input];
    uint64_t state = seed * 1000003 + (uint64_t)input;

    if (c->call.op == RB_OP_MAX_POOL_GRAD && input == 1) {
        fill_positions(c, seed, data);
        return;
    }

    for (int64_t i = 0; i < (type->dtype ? rb_tensor_elements(type) : 0); i++) {
        double real = (double)(next(&state) >> 11) * 0x1p-53, x = 6 * real - 3;

        if (positive(c->call.op, input))
            x = 0.1 + 4 * real;
        if (c->call.op == RB_OP_ASIN || c->call.op == RB_OP_ACOS || c->call.op == RB_OP_ATANH)
            x = 1.9 * real - 0.95;
        if (c->call.op == RB_OP_ACOSH)
            x = 1.05 + 3 * real;
        x += offset(c, input);
        switch (type->dtype) {
        case RB_F32:
            ((float *)data)[i] = (float)x;
            break;
        case RB_BF16:
            ((uint16_t *)data)[i] = rb_dtype_to_bfloat((float)x);
            break;
        case RB_F64:
            ((double *)data)[i] = x;
            break;
        case RB_BOOL:
            ((uint8_t *)data)[i] = next(&state) & 1;
            break;
        case RB_U8:
        case RB_I8:
            ((uint8_t *)data)[i] = (uint8_t)(int)draw_integer(c, input, i, &state);
            break;
        case RB_U16:
        case RB_I16:
            ((uint16_t *)data)[i] = (uint16_t)(int)draw_integer(c, input, i, &state);
            break;
        case RB_U32:
        case RB_I32:
            ((int32_t *)data)[i] = (int32_t)draw_integer(c, input, i, &state);
            break;
        case RB_U64: /* beyond int64, too */
            ((uint64_t *)data)[i] = (uint64_t)draw_integer(c, input, i, &state) +
                                    (c->call.op == RB_OP_CAST ? (uint64_t)i << 61 : 0);
            break;
        case RB_I64:
            ((int64_t *)data)[i] = (int64_t)draw_integer(c, input, i, &state);
            break;
        default:
            abort();
        }
    }
}

double rb_case_error(const struct rb_tensor_type *type, const void *got, const void *want)
{
    double most = 1e-6, worst = 0;

    for (int64_t i = 0; i < rb_tensor_elements(type); i++)
        most = fmax(most, fabs(rb_reference_get(type, want, i)));
    for (int64_t i = 0; i < rb_tensor_elements(type); i++) {
        double d = fabs(rb_reference_get(type, got, i) - rb_reference_get(type, want, i));

        if (d != d)
            return INFINITY;
        worst = fmax(worst, d / most);
    }
    return worst;
}

bool rb_case_margin(const struct rb_tensor_type *type, const void *out, size_t margin)
{
    const uint8_t *before = (const uint8_t *)out - 1, *behind = before + 1 + rb_case_bytes(type);

    for (size_t k = 0; k < margin; k++)
        if (behind[k] != 0xff || *(before - k) != 0xff)
            return false;
    return true;
}
