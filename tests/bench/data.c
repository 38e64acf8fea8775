/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/data.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "tests/bench/job.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const licences[] = {"GPL-3",   "LGPL-2.1", "GFDL-1.3", "Apache-2.0", "MPL-2.0",
                                       "MPL-1.1", "GPL-2",    "LGPL-2",   "CC0-1.0",    "Artistic"};

static void read_licences(struct rb_buffer *text)
{
    for (size_t i = 0; i < RB_COUNT(licences); i++) {
        struct rb_buffer one = {0};
        struct rb_why why;
        char path[96];

        snprintf(path, sizeof path, "/usr/share/common-licenses/%s", licences[i]);
        bench_check(rb_file_read(path, 1 << 20, &one, &why), &why);
        rb_buffer_add(text, one.data, one.size);
        rb_buffer_done(&one);
    }
}

static void write_file(const char *path, const struct rb_buffer *bytes)
{
    struct rb_why why;

    bench_check(rb_file_write(path, bytes->data, bytes->size, &why), &why);
}

void bench_data_text(const char *path)
{
    struct rb_buffer text = {0};

    read_licences(&text);
    write_file(path, &text);
    rb_buffer_done(&text);
}

/* ---- Words ----------------------------------------------------------------------------------*/

struct word {
    const char *at;
    size_t size;
};

/* A run of letters and digits, or one other byte. */
static struct word next_word(const char *at, const char *end)
{
    size_t size = 1;

    if (isalnum((unsigned char)*at))
        while (at + size < end && isalnum((unsigned char)at[size]))
            size++;
    return (struct word){at, size};
}

/* The number of a word in order of its first occurrence; limit - 1 once the numbers are used up. */
static uint16_t number_of(struct word word, struct word *known, int *n, int limit)
{
    int i = 0;

    while (i < *n && (known[i].size != word.size || memcmp(known[i].at, word.at, word.size) != 0))
        i++;
    if (i == *n && *n < limit - 1)
        known[(*n)++] = word;
    return (uint16_t)i;
}

void bench_data_words(const char *path, int limit)
{
    struct rb_buffer text = {0}, tokens = {0};
    struct word *known = rb_alloc((size_t)limit * sizeof *known);
    const char *at, *end;
    int n = 0;

    read_licences(&text);
    for (at = text.data, end = at + text.size; at < end;) {
        struct word word = next_word(at, end);
        uint16_t number = number_of(word, known, &n, limit);

        rb_buffer_add(&tokens, &number, sizeof number);
        at += word.size;
    }
    write_file(path, &tokens);
    rb_buffer_done(&text);
    rb_buffer_done(&tokens);
    free(known);
}

/* ---- Classes --------------------------------------------------------------------------------*/

/* A number in [-1, 1), the same on every machine. */
static float noise(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(*state >> 40) / 8388608.0f - 1.0f;
}

/* The head of a version 1.0 .npy file. */
static void npy_head(struct rb_buffer *out, const char *descr, int64_t samples,
                     const int64_t shape[3])
{
    struct rb_buffer head = {0};
    uint16_t size;

    rb_buffer_format(&head, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,", descr,
                     (long long)samples);
    for (int i = 0; i < 3 && shape && shape[i]; i++)
        rb_buffer_format(&head, " %lld,", (long long)shape[i]);
    rb_buffer_text(&head, "), }");
    while ((head.size + 11) % 64)
        rb_buffer_text(&head, " ");
    rb_buffer_text(&head, "\n");
    size = (uint16_t)head.size;
    rb_buffer_add(out, "\x93NUMPY\x01\x00", 8);
    rb_buffer_add(out, &size, sizeof size);
    rb_buffer_add(out, head.data, head.size);
    rb_buffer_done(&head);
}

void bench_data_classes(const char *features, const char *labels, const int64_t shape[3],
                        int64_t samples, int classes)
{
    struct rb_buffer x = {0}, y = {0};
    uint64_t state = 7;
    int64_t size = 1, run = shape[1] ? shape[2] : 1; /* a row of an image has one shade */
    float *centres;

    for (int i = 0; i < 3 && shape[i]; i++)
        size *= shape[i];
    centres = rb_alloc((size_t)(classes * size) * sizeof *centres);
    for (int64_t i = 0; i < classes * size; i++)
        centres[i] = i % run ? centres[i - 1] : 0.3f * noise(&state);
    npy_head(&x, "<f4", samples, shape);
    npy_head(&y, "<i8", samples, NULL);
    for (int64_t s = 0; s < samples; s++) {
        int64_t label = (int64_t)((noise(&state) + 1.0f) / 2.0f * (float)classes);

        rb_buffer_add(&y, &label, sizeof label);
        for (int64_t i = 0; i < size; i++) {
            float value = centres[label * size + i] + noise(&state);

            rb_buffer_add(&x, &value, sizeof value);
        }
    }
    write_file(features, &x);
    write_file(labels, &y);
    rb_buffer_done(&x);
    rb_buffer_done(&y);
    free(centres);
}
