/* SPDX-License-Identifier: Apache-2.0 */
/* Errors are values: 0 or a negative code, and a sentence that grows on its way up.
 *
 * everything > [error]
 *
 * The code that decides what to do about an error logs or prints the sentence, once.  Libraries
 * never log and never exit. */
#ifndef RB_BASE_ERROR_H
#define RB_BASE_ERROR_H

#define RB_ERR_MAP(X)                                                                              \
    X(1, EINVAL, "invalid input")                                                                  \
    X(2, ENOMEM, "out of memory")                                                                  \
    X(3, EIO, "input/output error")                                                                \
    X(4, ENOTFOUND, "not found")                                                                   \
    X(5, EEXISTS, "exists already")                                                                \
    X(6, EUNSUPPORTED, "not supported")                                                            \
    X(7, ELIMIT, "over a limit")                                                                   \
    X(8, EPEER, "a peer is gone")                                                                  \
    X(9, ETIMEOUT, "timed out")                                                                    \
    X(10, ESTALE, "out of date")                                                                   \
    X(11, EREFUSED, "refused")                                                                     \
    X(12, EUNREACHABLE, "unreachable")                                                             \
    X(13, ECANCELED, "cancelled")                                                                  \
    X(14, EAGAIN, "not yet")                                                                       \
    X(15, EINTERNAL, "internal error")                                                             \
    X(16, EFULL, "no space left")                                                                  \
    X(17, ELOST, "lost for good")                                                                  \
    X(18, EUNREADABLE, "cannot be read")

enum rb_error {
    RB_OK = 0,
#define X(number, name, text) RB_##name = -number,
    RB_ERR_MAP(X)
#undef X
};

/* The text of a code: "not found".  Never NULL. */
const char *rb_error_text(int err);

/* The code of an errno value: ENOENT gives RB_ENOTFOUND, ENOSPC RB_EFULL. */
int rb_error_from_errno(int number);

/* Why something failed, as one sentence; needs no memory of its own. */
struct rb_why {
    char text[512];
};

/* Write a new sentence, cut at a whole character if it does not fit, and return `err`.  `why` may
 * be NULL (here and below). */
int rb_why_set(struct rb_why *why, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put one clause in front ("step 3: ...") and return `err`.  If there is no sentence yet, the text
 * of the code becomes the sentence. */
int rb_why_add(struct rb_why *why, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How many of the first `most` bytes of a text remain when a character of UTF-8 that the limit cuts
 * in two is left out: for "%.*s".  Half a character is no JSON. */
int rb_error_fit(const char *text, int most);

/* Scope-bound release: RB_CLEANUP(fn) T *x = NULL; fn gets T **.  RB_TAKE hands on. */
#define RB_CLEANUP(fn) __attribute__((cleanup(fn)))
#define RB_TAKE(pointer)                                                                           \
    ({                                                                                             \
        __typeof__(pointer) taken_ = (pointer);                                                    \
        (pointer) = NULL;                                                                          \
        taken_;                                                                                    \
    })

#define RB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
