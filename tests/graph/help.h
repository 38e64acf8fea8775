/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of import share: a model written by hand, imported. */
#ifndef RB_TESTS_GRAPH_HELP_H
#define RB_TESTS_GRAPH_HELP_H

#include "base/buffer.h"
#include "graph/models/writer.h"
#include "graph/onnx/onnx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

/* A model of x and y. */
static inline void start_writer(struct rb_writer *w, int rank, const int64_t *dim)
{
    rb_writer_init(w, "test", 1);
    rb_writer_input(w, "x", RB_F32, rank, dim);
    rb_writer_output(w, "y", 1, (int64_t[]){-1});
}

/* Write the model, read it again, import it. */
static inline int import_options(struct rb_writer *w, const struct rb_import_options *options,
                                 struct rb_graph **ret, struct rb_why *why)
{
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    int err = rb_writer_finish(w, &bytes, why);

    if (!err)
        err = rb_onnx_open_bytes(bytes.data, bytes.size, &model, why);
    if (!err)
        err = rb_onnx_import(model, options, ret, why);
    rb_onnx_close(model);
    rb_buffer_done(&bytes);
    return err;
}

static inline int import_batch(struct rb_writer *w, int64_t batch, struct rb_graph **ret,
                               struct rb_why *why)
{
    struct rb_import_options options = {.batch = batch, .train = true};

    return import_options(w, &options, ret, why);
}

/* The text form of the graph; the caller frees it.  The graph is freed. */
static inline char *take_text(struct rb_graph *graph)
{
    struct rb_buffer text = {0};

    rb_graph_print(graph, &text);
    rb_graph_free(graph);
    return rb_buffer_take(&text);
}

/* Import must succeed and print `want`. */
static inline void expect_text(struct rb_writer *w, int64_t batch, const char *want)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    char *text;

    if (import_batch(w, batch, &graph, &why))
        fail_msg("%s", why.text);
    text = take_text(graph);
    assert_string_equal(text, want);
    free(text);
    rb_writer_done(w);
}

/* Import must fail with `err` and say `want` somewhere. */
static inline void expect_refusal(struct rb_writer *w, int64_t batch, int err, const char *want)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};

    assert_int_equal(import_batch(w, batch, &graph, &why), err);
    assert_null(graph);
    if (!strstr(why.text, want))
        fail_msg("'%s' does not say '%s'", why.text, want);
    rb_writer_done(w);
}

#endif
