/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's .npy, versions 1 to 3: magic, version, length, a Python dictionary, elements.
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }
 *
 * The dictionary is read by a small strict parser: the three keys, each once, in any order. */
#include "data/column.h"

#include <string.h>

enum { MAGIC = 6, MAX_AXES = RB_MAX_RANK + 1 };

struct header {
    const char *path;
    const char *at, *end; /* the parser's place */
    char descr[8];
    bool fortran;
    int n_axes;
    int64_t axes[MAX_AXES];
};

bool rb_npy_match(const struct rb_map *map)
{
    return map->size >= MAGIC && !memcmp(map->data, "\x93NUMPY", MAGIC);
}

static void skip_spaces(struct header *h)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n'))
        h->at++;
}

/* Take `text` and the spaces before it if it comes next. */
static bool take(struct header *h, const char *text)
{
    size_t size = strlen(text);

    skip_spaces(h);
    if ((size_t)(h->end - h->at) < size || memcmp(h->at, text, size))
        return false;
    h->at += size;
    return true;
}

/* A quoted string of less than `room` bytes, without escapes. */
static bool take_string(struct header *h, char *ret, size_t room)
{
    size_t size = 0;
    char quote;

    skip_spaces(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"'))
        return false;
    for (quote = *h->at++; h->at < h->end && *h->at != quote; h->at++) {
        if (*h->at == '\\' || size + 1 >= room)
            return false;
        ret[size++] = *h->at;
    }
    ret[size] = '\0';
    return take(h, (char[]){quote, '\0'});
}

static bool take_number(struct header *h, int64_t *ret)
{
    int64_t x = 0;
    int digits = 0;

    skip_spaces(h);
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++, digits++)
        if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, *h->at - '0', &x))
            return false;
    *ret = x;
    return digits > 0;
}

/* (), (n,), (n, m): one axis needs its comma, as in Python. */
static bool take_shape(struct header *h)
{
    bool comma = true;

    if (!take(h, "("))
        return false;
    for (h->n_axes = 0; !take(h, ")"); h->n_axes++) {
        if (!comma || h->n_axes == MAX_AXES || !take_number(h, &h->axes[h->n_axes]))
            return false;
        comma = take(h, ",");
    }
    return h->n_axes != 1 || comma;
}

static bool take_truth(struct header *h)
{
    h->fortran = take(h, "True");
    return h->fortran || take(h, "False");
}

static bool take_value(struct header *h, const char *key, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    unsigned which = 0;

    while (which < RB_COUNT(keys) && strcmp(keys[which], key))
        which++;
    if (which == RB_COUNT(keys) || *seen & 1u << which)
        return false;
    *seen |= 1u << which;
    if (which == 0)
        return take_string(h, h->descr, sizeof h->descr);
    return which == 1 ? take_truth(h) : take_shape(h);
}

static int parse(struct header *h, struct rb_why *why)
{
    const char *start = h->at;
    bool comma = true, sound = take(h, "{");
    unsigned seen = 0;
    char key[16];

    while (sound && !take(h, "}")) {
        sound =
            comma && take_string(h, key, sizeof key) && take(h, ":") && take_value(h, key, &seen);
        comma = sound && take(h, ",");
    }
    skip_spaces(h);
    if (sound && seen == 7 && h->at == h->end)
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "%s: its .npy header cannot be read at byte %td; expected {'descr': '<f4', "
                      "'fortran_order': False, 'shape': (N, ...), } with at most %d axes",
                      h->path, h->at - start, MAX_AXES);
}

/* Find the dictionary and where the elements start. */
static int find_header(const struct rb_map *map, struct header *h, size_t *ret_start,
                       struct rb_why *why)
{
    const uint8_t *bytes = map->data;
    size_t before, length;

    if (!rb_npy_match(map))
        return rb_why_set(why, RB_EINVAL,
                          "%s is no .npy file: expected it to start with \\x93NUMPY", h->path);
    if (map->size < 12)
        return rb_why_set(why, RB_EINVAL, "%s ends inside its header: %zu bytes", h->path,
                          map->size);
    if (bytes[6] < 1 || bytes[6] > 3)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s is of .npy version %d; expected version 1, 2 or 3", h->path,
                          bytes[6]);
    before = bytes[6] == 1 ? 10 : 12;
    length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > map->size - before)
        return rb_why_set(why, RB_EINVAL,
                          "%s ends inside its header: %zu bytes, expected at least %zu", h->path,
                          map->size, before + length);
    h->at = (const char *)bytes + before;
    h->end = h->at + length;
    *ret_start = before + length;
    return 0;
}

/* Integers stay integers (numbers of tokens or categories); but for a model that takes floats,
 * bytes (images) and truth values become floats as they are, without scaling. */
static void choose_dtype(struct rb_column *column, enum rb_column_use use)
{
    const struct rb_stored *stored = column->stored;
    bool becomes_float = !strcmp(stored->name, "u1") || !strcmp(stored->name, "b1");

    if (!stored->integer || (use == RB_FLOATS && becomes_float)) {
        column->type.dtype = RB_F32;
        column->convert = stored->to_f32;
    } else {
        column->type.dtype = RB_I64;
        column->convert = stored->to_i64;
    }
}

int rb_npy_open(const struct rb_map *map, const char *path, enum rb_column_use use,
                struct rb_column *ret, struct rb_why *why)
{
    struct header h = {.path = path};
    struct rb_column column = {0};
    size_t start = 0;
    int err = find_header(map, &h, &start, why);

    if (!err)
        err = parse(&h, why);
    if (err)
        return err;
    if (h.descr[0] == '>')
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s is big-endian (%s); expected little-endian: save it with "
                          "astype(a.dtype.newbyteorder('<'))",
                          path, h.descr);
    column.stored = rb_stored_find(h.descr + 1);
    if (!column.stored || (h.descr[0] != '<' && !(h.descr[0] == '|' && column.stored->size == 1)))
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s holds elements of type '%s'; expected f2, f4, f8, i1, i2, i4, i8, "
                          "u1, u2, u4 or b1, little-endian",
                          path, h.descr);
    if (h.fortran && h.n_axes > 1)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s is in Fortran order; expected C order: save it with "
                          "numpy.ascontiguousarray",
                          path);
    err = rb_column_shape(&column, path, h.axes, h.n_axes, map->size - start, why);
    if (err)
        return err;
    column.data = map->data + start;
    choose_dtype(&column, use);
    *ret = column;
    return 0;
}
