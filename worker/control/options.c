/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/options.h"

#include <errno.h>
#include <getopt.h>
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

int rb_worker_options_read(int argc, char **argv, struct rb_worker_options *ret_options,
                           struct rb_why *why)
{
    static const struct option known[] = {
        {"job", required_argument, NULL, 'j'},
        {"worker", required_argument, NULL, 'w'},
        {"device", required_argument, NULL, 'd'},
        {"kind", required_argument, NULL, 'k'},
        {"cpu", required_argument, NULL, 'c'},
        {"run-dir", required_argument, NULL, 'r'},
        {"host", required_argument, NULL, 'h'},
        {"log", required_argument, NULL, 'l'},
        {"numeric-class", required_argument, NULL, 'n'},
        {"devices", required_argument, NULL, 'D'},
        {"profile", required_argument, NULL, 'p'},
        {"faults", no_argument, NULL, 'f'},
        {NULL, 0, NULL, 0},
    };
    struct rb_worker_options options = {.kind = "cpu", .cpu = -1};
    int letter, err = 0;

    optind = 1;
    opterr = 0;
    while (!err && (letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 'j':
            options.job = optarg;
            break;
        case 'w':
            options.worker = optarg;
            break;
        case 'd':
            err = read_number("device", optarg, &options.device, why);
            break;
        case 'k':
            options.kind = optarg;
            break;
        case 'c':
            err = read_number("cpu", optarg, &options.cpu, why);
            break;
        case 'r':
            options.run_dir = optarg;
            break;
        case 'h':
            options.host = optarg;
            break;
        case 'n':
            options.numeric_class = optarg;
            break;
        case 'D':
            options.devices = optarg;
            break;
        case 'p':
            options.profile = optarg;
            break;
        case 'f':
            options.faults = true;
            break;
        case 'l':
            options.log = optarg;
            break;
        default:
            err = rb_why_set(why, RB_EINVAL, "unknown or incomplete option '%s'", argv[optind - 1]);
        }
    }
    if (!err && optind < argc)
        err = rb_why_set(why, RB_EINVAL, "unexpected '%s'", argv[optind]);
    if (!err && !options.numeric_class && !options.devices && !options.profile && !options.faults)
        err = check(&options, why);
    if (err)
        return err;
    *ret_options = options;
    return 0;
}
