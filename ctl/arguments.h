/* SPDX-License-Identifier: Apache-2.0 */
/* A verb's words and options, told apart.
 *
 * argv > [arguments] > verbs
 *
 * Which options a verb takes is one string: "f|file= set=+ wait" is -f or --file with a value,
 * --set with a value any number of times, --wait without a value.  Options may stand anywhere; "--"
 * ends them. */
#ifndef RB_CTL_ARGUMENTS_H
#define RB_CTL_ARGUMENTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RB_ARGUMENTS_MAX = 256, /* options */
    RB_WORDS_MAX = 8192,    /* the words that a shell makes of a pattern */
};

struct rb_arguments {
    const char *word[RB_WORDS_MAX];
    int n_words;
    struct {
        const char *name; /* the long name; points into the string of options */
        int name_size;
        const char *value; /* NULL for one without */
    } option[RB_ARGUMENTS_MAX];
    int n_options;
};

/* RB_EINVAL for an unknown option, a missing value, an option given twice, or too many of anything.
 * `stop_at_word`: the first word ends the options; *ret_used: how many of argv were taken. */
int rb_arguments_parse(const char *options, int argc, const char *const *argv, bool stop_at_word,
                       struct rb_arguments *ret, int *ret_used, struct rb_why *why);

bool rb_arguments_has(const struct rb_arguments *arguments, const char *name);

/* The value given, or NULL. */
const char *rb_arguments_value(const struct rb_arguments *arguments, const char *name);

/* All values of a repeated option; returns their number, at most RB_ARGUMENTS_MAX. */
int rb_arguments_values(const struct rb_arguments *arguments, const char *name,
                        const char *ret_values[RB_ARGUMENTS_MAX]);

/* A count as users write it ("2", "+2"): RB_EINVAL outside low..high. */
int rb_arguments_count(const char *text, int64_t low, int64_t high, int64_t *ret,
                       struct rb_why *why);

#endif
