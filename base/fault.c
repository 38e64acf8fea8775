/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#ifdef RB_FAULTS

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ARMED_MOST = 8, PLAN_MOST = 4096, EXIT_FAULT = 86 };

struct fault {
    const char *point; /* in the table */
    int rank;          /* -1: any */
    long at;
    enum { KILL, STOP, EXIT, SLEEP } what;
    long ms;
    atomic_long passages;
};

static const struct {
    const char *name, *meaning;
} points[] = {
#define X(name, meaning) {name, meaning},
    RB_FAULT_POINTS(X)
#undef X
};

static struct {
    struct fault faults[ARMED_MOST];
    int n;
    char once[512];
    atomic_int rank;
} armed = {.rank = -1};

static const char *find_point(const char *name)
{
    for (size_t i = 0; i < RB_COUNT(points); i++)
        if (!strcmp(points[i].name, name))
            return points[i].name;
    return NULL;
}

/* ---- Arming ---------------------------------------------------------------------------------*/

static int read_number(const char *text, long *ret_number, struct rb_why *why)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (end == text || *end || number < 0 || number > INT_MAX)
        return rb_why_set(why, RB_EINVAL, "'%s' is no number, or too large", text);
    *ret_number = number;
    return 0;
}

static int read_word(struct fault *fault, const char *word, struct rb_why *why)
{
    static const char *const ways[] = {[KILL] = "do=kill", [STOP] = "do=stop", [EXIT] = "do=exit"};
    char unit[3], more;
    long rank;
    int err;

    for (unsigned i = 0; i < RB_COUNT(ways); i++)
        if (!strcmp(word, ways[i])) {
            fault->what = i;
            return 0;
        }
    if (!strncmp(word, "do=", 3) && sscanf(word + 3, "%ld%2s%c", &fault->ms, unit, &more) == 2 &&
        fault->ms > 0 && !strcmp(unit, "ms")) {
        fault->what = SLEEP;
        return 0;
    }
    if (!strncmp(word, "at=", 3))
        return read_number(word + 3, &fault->at, why);
    if (strncmp(word, "rank=", 5))
        return rb_why_set(why, RB_EINVAL, "'%s' is not at=N, rank=R or do=kill|stop|exit|MSms",
                          word);
    err = read_number(word + 5, &rank, why);
    if (!err)
        fault->rank = (int)rank;
    return err;
}

static int read_fault(char *text, struct rb_why *why)
{
    struct fault *fault = &armed.faults[armed.n];
    char *rest, *word = strtok_r(text, ":", &rest);
    int err = 0;

    if (armed.n == ARMED_MOST)
        return rb_why_set(why, RB_EINVAL, "more than %d fault points", ARMED_MOST);
    *fault = (struct fault){.point = word ? find_point(word) : NULL, .rank = -1, .at = 1};
    if (!fault->point)
        return rb_why_set(why, RB_EINVAL, "there is no fault point '%s'", word ? word : "");
    while (!err && (word = strtok_r(NULL, ":", &rest)))
        err = read_word(fault, word, why);
    if (!err)
        armed.n++;
    return err;
}

static int read_plan(char *text, struct rb_why *why)
{
    char *rest;
    int err = 0;

    for (char *one = strtok_r(text, ", \n", &rest); one && !err;
         one = strtok_r(NULL, ", \n", &rest))
        err = read_fault(one, why);
    return err;
}

int rb_fault_arm(const char *plan, const char *once, struct rb_why *why)
{
    struct rb_buffer text = {0};
    int err = 0;

    armed.n = 0;
    if (!plan || !*plan)
        return 0;
    if (*plan == '@')
        err = rb_file_read(plan + 1, PLAN_MOST, &text, why);
    else
        rb_buffer_text(&text, plan);
    if (err == RB_ENOTFOUND)
        err = 0;
    else if (!err && text.data)
        err = read_plan(text.data, why);
    rb_buffer_done(&text);
    if (!err && once && snprintf(armed.once, sizeof armed.once, "%s", once) >= 500)
        err = rb_why_set(why, RB_EINVAL, "its path is too long");
    if (err)
        armed.n = 0;
    return err ? rb_why_add(why, err, "RUBATO_FAULT") : 0;
}

void rb_fault_rank(int rank)
{
    atomic_store(&armed.rank, rank);
}

/* ---- The moment -----------------------------------------------------------------------------*/

/* Is this the first process that comes here? */
static bool is_first(const struct fault *fault)
{
    char path[sizeof armed.once + 16];
    int fd;

    if (!armed.once[0])
        return true;
    snprintf(path, sizeof path, "%s.%d", armed.once, (int)(fault - armed.faults));
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    dprintf(fd, "%s %ld\n", fault->point, (long)getpid());
    close(fd);
    return true;
}

static void strike(const struct fault *fault)
{
    if (fault->what != SLEEP && !is_first(fault))
        return;
    switch (fault->what) {
    case KILL:
        raise(SIGKILL);
        break;
    case STOP:
        raise(SIGSTOP); /* the calling thread takes it, so that nothing happens behind this point */
        break;
    case EXIT:
        _exit(EXIT_FAULT);
    case SLEEP:
        nanosleep(&(struct timespec){fault->ms / 1000, fault->ms % 1000 * 1000000}, NULL);
    }
}

void rb_fault(const char *point)
{
    for (int i = 0; i < armed.n; i++) {
        struct fault *fault = &armed.faults[i];

        long passage;

        if (strcmp(fault->point, point) != 0 ||
            (fault->rank >= 0 && fault->rank != atomic_load(&armed.rank)))
            continue;
        passage = atomic_fetch_add(&fault->passages, 1) + 1;
        if (passage == fault->at || (fault->what == SLEEP && passage > fault->at))
            strike(fault);
    }
}

long rb_fault_passages(const char *point)
{
    for (int i = 0; i < armed.n; i++)
        if (!strcmp(armed.faults[i].point, point))
            return atomic_load(&armed.faults[i].passages);
    return -1;
}

bool rb_fault_describe(int i, const char **ret_name, const char **ret_meaning)
{
    if (i < 0 || (size_t)i >= RB_COUNT(points))
        return false;
    *ret_name = points[i].name;
    *ret_meaning = points[i].meaning;
    return true;
}

#else

bool rb_fault_describe(int i, const char **ret_name, const char **ret_meaning)
{
    (void)i, (void)ret_name, (void)ret_meaning;
    return false;
}

#endif
