/* SPDX-License-Identifier: Apache-2.0 */
#include "data/expand.h"

#include "base/arena.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool is_there(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0;
}

/* `path` is taken over. */
static void add(struct rb_expanded *all, char *path)
{
    all->path = rb_realloc(all->path, (all->n + 1) * sizeof *all->path);
    all->path[all->n++] = path;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_from(struct rb_expanded *all, size_t first)
{
    if (all->n > first)
        qsort(all->path + first, all->n - first, sizeof *all->path, by_name);
}

static int add_folder(struct rb_expanded *all, const char *folder, struct rb_why *why)
{
    size_t first = all->n, size = strlen(folder);
    DIR *listing = opendir(folder);
    struct dirent *entry;
    int number = errno, err = 0;

    if (!listing)
        return rb_why_set(why, rb_error_from_errno(number), "cannot open %s: %s", folder,
                          strerror(number));
    while (size > 1 && folder[size - 1] == '/')
        size--;
    while ((entry = readdir(listing)) != NULL)
        if (entry->d_name[0] != '.')
            add(all, rb_format("%.*s/%s", (int)size, folder, entry->d_name));
    closedir(listing);
    sort_from(all, first);
    if (all->n == first)
        err = rb_why_set(why, RB_EINVAL, "%s is a folder without files; expected data", folder);
    for (size_t i = first; !err && i < all->n; i++)
        if (is_folder(all->path[i]))
            err = rb_why_set(why, RB_EINVAL,
                             "%s has a folder in it, %s: name the files themselves, or a pattern "
                             "such as %.*s/*.txt",
                             folder, strrchr(all->path[i], '/') + 1, (int)size, folder);
    return err;
}

static int add_pattern(struct rb_expanded *all, const char *pattern, struct rb_why *why)
{
    size_t first = all->n;
    glob_t found;
    int failed = glob(pattern, GLOB_NOSORT, NULL, &found);

    for (size_t i = 0; !failed && i < found.gl_pathc; i++)
        add(all, rb_string(found.gl_pathv[i]));
    if (!failed)
        globfree(&found);
    sort_from(all, first);
    return all->n > first
               ? 0
               : rb_why_set(why, RB_EINVAL, "no file matches %s; expected data", pattern);
}

/* Paths go into a JSON text by which a job is recognised, so they must be UTF-8. */
static bool is_utf8(const char *path)
{
    json_t *text = json_string(path);

    json_decref(text);
    return text != NULL;
}

/* What tells a file from others, however it is named; a file that does not exist has its name
 * alone. */
struct file {
    const char *path;
    dev_t device;
    ino_t number;
};

static int by_file(const void *a, const void *b)
{
    const struct file *left = a, *right = b;

    if (left->device != right->device)
        return left->device < right->device ? -1 : 1;
    if (left->number != right->number)
        return left->number < right->number ? -1 : 1;
    return strcmp(left->path, right->path);
}

static int check_twice(const struct rb_expanded *all, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) struct file *files = rb_alloc((all->n + 1) * sizeof *files);

    for (size_t i = 0; i < all->n; i++) {
        struct stat status;

        files[i] = (struct file){.path = all->path[i]};
        if (stat(all->path[i], &status))
            continue;
        files[i].device = status.st_dev;
        files[i].number = status.st_ino;
    }
    qsort(files, all->n, sizeof *files, by_file);
    for (size_t i = 1; i < all->n; i++) {
        const struct file *one = &files[i - 1], *other = &files[i];

        if (!strcmp(one->path, other->path))
            return rb_why_set(why, RB_EINVAL, "%s is named twice", one->path);
        if (one->number && one->device == other->device && one->number == other->number)
            return rb_why_set(why, RB_EINVAL, "%s and %s are the same file", one->path,
                              other->path);
    }
    return 0;
}

static int check(const struct rb_expanded *all, struct rb_why *why)
{
    if (all->n > RB_EXPAND_MOST)
        return rb_why_set(why, RB_ELIMIT,
                          "%zu files from %s to %s; expected at most %d: join some of them", all->n,
                          all->path[0], all->path[all->n - 1], RB_EXPAND_MOST);
    for (size_t i = 0; i < all->n; i++)
        if (!is_utf8(all->path[i]))
            return rb_why_set(why, RB_EINVAL, "the name of %s is not UTF-8: rename it",
                              all->path[i]);
    return check_twice(all, why);
}

/* The path without the backslashes that keep marks from being read as a pattern's. */
static char *plain_of(const char *pattern)
{
    char *plain = rb_string(pattern), *to = plain;

    for (const char *from = plain; *from; from++) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from;
    }
    *to = '\0';
    return plain;
}

/* A path with a pattern's marks may be the name of a file all the same. */
static int add_marked(struct rb_expanded *all, const char *pattern, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *plain = plain_of(pattern);

    if (!is_there(plain))
        return add_pattern(all, pattern, why);
    add(all, RB_TAKE(plain));
    return 0;
}

int rb_expand(char *const *paths, size_t n, struct rb_expanded *ret, struct rb_why *why)
{
    struct rb_expanded all = {0};
    int err = 0;

    for (size_t i = 0; !err && i < n; i++) {
        if (is_folder(paths[i]))
            err = add_folder(&all, paths[i], why);
        else if (!is_there(paths[i]) && strpbrk(paths[i], "*?["))
            err = add_marked(&all, paths[i], why);
        else
            add(&all, rb_string(paths[i]));
    }
    if (!err)
        err = check(&all, why);
    if (err)
        rb_expanded_done(&all);
    else
        *ret = all;
    return err;
}

void rb_expanded_done(struct rb_expanded *expanded)
{
    for (size_t i = 0; i < expanded->n; i++)
        free(expanded->path[i]);
    free(expanded->path);
    *expanded = (struct rb_expanded){0};
}
