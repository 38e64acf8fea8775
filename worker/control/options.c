/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/options.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char rb_worker_usage[] =
    "usage: rubato-worker --job ID --worker NAME --device INDEX --kind KIND --run-dir DIR --host "
    "ADDR\n"
    "                     [--cpu CORE] [--log FILE]\n"
    "       rubato-worker --numeric-class KIND\n"
    "       rubato-worker --devices KIND\n"
    "       rubato-worker --profile MODEL --kind KIND [--device INDEX]\n"
    "       rubato-worker --faults\n"
    "\n"
    "One worker on one device.  rubatod starts it and speaks to it on DIR/NAME.sock.\n";

static int read_number(const char *name, const char *text, int *ret_number, struct rb_why *why)
{
    char *end;
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (errno || *end || end == text || number < 0 || number > 1 << 20)
        return rb_why_set(why, RB_EINVAL, "--%s wants a number, not '%s'", name, text);
    *ret_number = (int)number;
    return 0;
}

static int check(const struct rb_worker_options *options, struct rb_why *why)
{
    const struct {
        const char *name, *value;
    } needed[] = {
        {"job", options->job},
        {"worker", options->worker},
        {"run-dir", options->run_dir},
        {"host", options->host},
    };

    for (size_t i = 0; i < RB_COUNT(needed); i++)
        if (!needed[i].value || !*needed[i].value)
            return rb_why_set(why, RB_EINVAL, "--%s is missing", needed[i].name);
    if (strchr(options->worker, '/') || strchr(options->job, '/'))
        return rb_why_set(why, RB_EINVAL, "--job and --worker become file names: no '/'");
    return 0;
}

/* The options, and which member of the struct each becomes. */
static const struct {
    const char *name;
    enum { TEXT, NUMBER, FLAG } kind;
    size_t member;
} rows[] = {
#define ROW(name, kind, member)                                                                    \
    {                                                                                              \
        name, kind, offsetof(struct rb_worker_options, member)                                     \
    }
    ROW("job", TEXT, job),         ROW("worker", TEXT, worker),
    ROW("device", NUMBER, device), ROW("kind", TEXT, kind),
    ROW("cpu", NUMBER, cpu),       ROW("run-dir", TEXT, run_dir),
    ROW("host", TEXT, host),       ROW("log", TEXT, log),
    ROW("devices", TEXT, devices), ROW("numeric-class", TEXT, numeric_class),
    ROW("profile", TEXT, profile), ROW("faults", FLAG, faults),
#undef ROW
};

static int take(size_t row, const char *text, struct rb_worker_options *options, struct rb_why *why)
{
    void *member = (char *)options + rows[row].member;

    switch (rows[row].kind) {
    case TEXT:
        *(const char **)member = text;
        return 0;
    case NUMBER:
        return read_number(rows[row].name, text, member, why);
    default:
        *(bool *)member = true;
        return 0;
    }
}

int rb_worker_options_read(int argc, char **argv, struct rb_worker_options *ret_options,
                           struct rb_why *why)
{
    enum { FIRST = 256 }; /* behind the option letters, of which there are none */
    struct option known[RB_COUNT(rows) + 1] = {0};
    struct rb_worker_options options = {.kind = "cpu", .cpu = -1};
    int found, err = 0;

    for (size_t i = 0; i < RB_COUNT(rows); i++)
        known[i] =
            (struct option){rows[i].name, rows[i].kind == FLAG ? no_argument : required_argument,
                            NULL, FIRST + (int)i};
    optind = 1;
    opterr = 0;
    while (!err && (found = getopt_long(argc, argv, "", known, NULL)) != -1)
        err = found < FIRST ? rb_why_set(why, RB_EINVAL, "unknown or incomplete option '%s'",
                                         argv[optind - 1])
                            : take((size_t)(found - FIRST), optarg, &options, why);
    if (!err && optind < argc)
        err = rb_why_set(why, RB_EINVAL, "unexpected '%s'", argv[optind]);
    if (!err && !options.numeric_class && !options.devices && !options.profile && !options.faults)
        err = check(&options, why);
    if (err)
        return err;
    *ret_options = options;
    return 0;
}
