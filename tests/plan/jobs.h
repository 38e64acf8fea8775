/* SPDX-License-Identifier: Apache-2.0 */
/* Job files that are compiled in a folder of small models and data.
 *
 * graph/models, .npy > [jobs] > test_compile*.c */
#ifndef RB_TESTS_PLAN_JOBS_H
#define RB_TESTS_PLAN_JOBS_H

#include "plan/compile/compile.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

/* For cmocka: the folder, with the models gpt.onnx, longer.onnx (the same with more keys),
 * ascii.onnx (with fewer tokens), mlp.onnx and cnn.onnx, and the data text.txt, rows.npy, wide.npy,
 * held.npy and images.npy, of which the arrays have NAME-labels.npy beside them. */
int jobs_open(void **state);
int jobs_close(void **state);
const char *jobs_folder(void);

/* A further file in the folder; as .npy, with the shape as Python writes it without parentheses. */
void jobs_save(const char *name, const void *bytes, size_t size);
void jobs_save_npy(const char *name, const char *descr, const char *shape, const void *bytes,
                   size_t size);

/* Job files: on text for gpt.onnx; on rows for mlp.onnx, with an evaluation. */
extern const char jobs_text[], jobs_rows[];

/* Compile a job for devices of a numeric class, with overrides, which end with NULL. */
int jobs_compile(const char *job, const char *class, struct rb_compiled *ret, struct rb_why *why,
                 ...);

#define MUST_COMPILE_FOR(class, job, ret, ...)                                                     \
    do {                                                                                           \
        struct rb_why why_ = {0};                                                                  \
        if (jobs_compile(job, class, ret, &why_, __VA_ARGS__))                                     \
            fail_msg("%s", why_.text);                                                             \
    } while (0)

#define MUST_COMPILE(job, ret, ...) MUST_COMPILE_FOR("test", job, ret, __VA_ARGS__)

/* Compiling must fail with an error whose text has `part`. */
#define MUST_REFUSE(code, part, job, ...)                                                          \
    do {                                                                                           \
        struct rb_why why_ = {0};                                                                  \
        struct rb_compiled none_ = {0};                                                            \
        assert_int_equal(jobs_compile(job, "test", &none_, &why_, __VA_ARGS__), code);             \
        if (!strstr(why_.text, part))                                                              \
            fail_msg("'%s' does not say '%s'", why_.text, part);                                   \
    } while (0)

/* Compiling must give a note that has `part`; no note. */
#define MUST_NOTE(part, job, ...)                                                                  \
    do {                                                                                           \
        struct rb_compiled compiled_;                                                              \
        MUST_COMPILE(job, &compiled_, __VA_ARGS__);                                                \
        if (!compiled_.notes.data || !strstr(compiled_.notes.data, part))                          \
            fail_msg("'%s' does not say '%s'", compiled_.notes.data, part);                        \
        rb_compiled_done(&compiled_);                                                              \
    } while (0)

#define MUST_NOT_NOTE(job, ...)                                                                    \
    do {                                                                                           \
        struct rb_compiled compiled_;                                                              \
        MUST_COMPILE(job, &compiled_, __VA_ARGS__);                                                \
        if (compiled_.notes.size)                                                                  \
            fail_msg("%s", compiled_.notes.data);                                                  \
        rb_compiled_done(&compiled_);                                                              \
    } while (0)

#endif
