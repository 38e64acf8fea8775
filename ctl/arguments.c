/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/arguments.h"

#include <stdlib.h>
#include <string.h>

/* One entry of the string of options: "f|file=". */
struct known {
    const char *name;
    int size;
    char letter;
    bool takes_value, is_list;
};

static const char *next_known(const char *at, struct known *ret)
{
    size_t size;

    at += strspn(at, " ");
    if (!*at)
        return NULL;
    size = strcspn(at, " ");
    *ret = (struct known){.name = at, .size = (int)size};
    if (size > 2 && at[1] == '|') {
        ret->letter = at[0];
        ret->name += 2;
        ret->size -= 2;
    }
    ret->is_list = ret->name[ret->size - 1] == '+';
    ret->size -= ret->is_list;
    ret->takes_value = ret->name[ret->size - 1] == '=';
    ret->size -= ret->takes_value;
    return at + size;
}

static bool find(const char *options, char letter, const char *name, size_t size, struct known *ret)
{
    while ((options = next_known(options, ret))) {
        if (letter ? ret->letter == letter
                   : (size_t)ret->size == size && memcmp(ret->name, name, size) == 0)
            return true;
    }
    return false;
}

static bool given(const struct rb_arguments *arguments, const struct known *known)
{
    for (int i = 0; i < arguments->n_options; i++)
        if (arguments->option[i].name == known->name)
            return true;
    return false;
}

/* The option at argv[*at]; steps over its value where that is a word of its own. */
static int take_option(const char *options, int argc, const char *const *argv, int *at,
                       struct rb_arguments *ret, struct rb_why *why)
{
    const char *text = argv[*at], *value = NULL;
    bool is_long = text[1] == '-';
    size_t size = is_long ? strcspn(text + 2, "=") : 1;
    struct known known;

    if (!find(options, is_long ? '\0' : text[1], text + 2, size, &known))
        return rb_why_set(why, RB_EINVAL, "unknown option '%.80s'", text);
    if (is_long && text[2 + size] == '=')
        value = text + 3 + size;
    else if (!is_long && text[2])
        value = text + 2;
    if (value && !known.takes_value)
        return rb_why_set(why, RB_EINVAL, "option '%.80s' takes no value", text);
    if (known.takes_value && !value) {
        if (*at + 1 >= argc)
            return rb_why_set(why, RB_EINVAL, "option '%.80s' needs a value", text);
        value = argv[++*at];
    }
    if (known.takes_value && !known.is_list && given(ret, &known))
        return rb_why_set(why, RB_EINVAL, "option '%.80s' is there twice", text);
    if (ret->n_options == RB_ARGUMENTS_MAX)
        return rb_why_set(why, RB_EINVAL, "too many options");
    ret->option[ret->n_options].name = known.name;
    ret->option[ret->n_options].name_size = known.size;
    ret->option[ret->n_options++].value = value;
    return 0;
}

int rb_arguments_parse(const char *options, int argc, const char *const *argv, bool stop_at_word,
                       struct rb_arguments *ret, int *ret_used, struct rb_why *why)
{
    bool only_words = false;
    int at = 0;

    *ret = (struct rb_arguments){0};
    for (; at < argc; at++) {
        const char *text = argv[at];

        if (!only_words && strcmp(text, "--") == 0) {
            only_words = true;
            continue;
        }
        if (!only_words && text[0] == '-' && text[1]) {
            int err = take_option(options, argc, argv, &at, ret, why);

            if (err)
                return err;
            continue;
        }
        if (stop_at_word)
            break;
        if (ret->n_words == RB_WORDS_MAX)
            return rb_why_set(why, RB_EINVAL, "too many arguments: the most is %d", RB_WORDS_MAX);
        ret->word[ret->n_words++] = text;
    }
    if (ret_used)
        *ret_used = at;
    return 0;
}

static bool is_named(const struct rb_arguments *arguments, int i, const char *name)
{
    size_t size = strlen(name);

    return (size_t)arguments->option[i].name_size == size &&
           memcmp(arguments->option[i].name, name, size) == 0;
}

bool rb_arguments_has(const struct rb_arguments *arguments, const char *name)
{
    for (int i = 0; i < arguments->n_options; i++) {
        if (is_named(arguments, i, name))
            return true;
    }
    return false;
}

const char *rb_arguments_value(const struct rb_arguments *arguments, const char *name)
{
    const char *value = NULL;

    for (int i = 0; i < arguments->n_options; i++) {
        if (is_named(arguments, i, name))
            value = arguments->option[i].value;
    }
    return value;
}

int rb_arguments_values(const struct rb_arguments *arguments, const char *name,
                        const char *ret_values[RB_ARGUMENTS_MAX])
{
    int n = 0;

    for (int i = 0; i < arguments->n_options; i++) {
        if (is_named(arguments, i, name))
            ret_values[n++] = arguments->option[i].value;
    }
    return n;
}

int rb_arguments_count(const char *text, int64_t low, int64_t high, int64_t *ret,
                       struct rb_why *why)
{
    const char *digits = text + (*text == '+');
    size_t size = strlen(digits);
    long long x;

    if (!size || size > 18 || strspn(digits, "0123456789") != size)
        return rb_why_set(why, RB_EINVAL, "'%.40s' is no count", text);
    x = atoll(digits);
    if (x < low || x > high)
        return rb_why_set(why, RB_EINVAL, "%lld is not within %lld and %lld", x, (long long)low,
                          (long long)high);
    *ret = x;
    return 0;
}
