/* SPDX-License-Identifier: Apache-2.0 */
/* rubatoctl: the command line.  Options that every verb takes, then the verb's own. */
#include "base/arena.h"
#include "ctl/verbs.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define GLOBAL_OPTIONS "endpoint= o|output= h|help version "

static int set_format(struct rb_session *session, const char *text)
{
    static const char *const names[] = {"table", "json", "yaml", "csv"};

    for (size_t i = 0; text && i < RB_COUNT(names); i++) {
        if (strcmp(names[i], text) != 0)
            continue;
        session->format = (enum rb_format)i;
        return session->format == RB_FORMAT_CSV &&
                       (!session->verb || strcmp(session->verb, "metrics") != 0)
                   ? rb_session_usage(session, "-o csv: only metrics has rows")
                   : 0;
    }
    return text ? rb_session_usage(session, "-o %.40s: expected table, json or yaml", text) : 0;
}

static int set_globals(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *endpoint = rb_arguments_value(arguments, "endpoint");
    struct rb_why why = {0};

    if (endpoint)
        session->endpoint = endpoint;
    if (rb_client_check_endpoint(session->endpoint, &why))
        return rb_session_usage(session, "%s", why.text);
    return set_format(session, rb_arguments_value(arguments, "output"));
}

/* From here on ctrl-c is something to read. */
static void watch_interrupt(struct rb_session *session)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    session->interrupt_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* `before`: how many of argv stand before the verb. */
static int run_verb(struct rb_session *session, int argc, const char *const *argv, int before)
{
    RB_CLEANUP(rb_freep) char *options = NULL;
    RB_CLEANUP(rb_freep) struct rb_arguments *arguments = rb_alloc(sizeof *arguments);
    RB_CLEANUP(rb_freep) const char **rest = rb_alloc((size_t)argc * sizeof *rest);
    struct rb_why why = {0};
    const struct rb_verb *verb;
    int used, n = 0, code;

    verb = rb_verbs_find(argv + before, argc - before, &used);
    if (!verb && rb_verbs_group(argv[before])) {
        session->verb = argv[before];
        if (before + 1 < argc && argv[before + 1][0] != '-')
            return rb_session_usage(session, "there is no verb '%.40s %.40s'", argv[before],
                                    argv[before + 1]);
        return rb_session_usage(session, "%s: which?", argv[before]);
    }
    if (!verb)
        return rb_session_usage(session, "there is no verb '%.40s'", argv[before]);
    session->verb = verb->name;
    options = rb_format(GLOBAL_OPTIONS "%s", verb->options);
    for (int i = 0; i < argc; i++) {
        if (i < before || i >= before + used)
            rest[n++] = argv[i];
    }
    if (rb_arguments_parse(options, n, rest, false, arguments, NULL, &why))
        return rb_session_usage(session, "%s", why.text);
    if (rb_arguments_has(arguments, "help"))
        return rb_verbs_help(session->out, verb->name) ? 0 : RB_EXIT_USAGE;
    code = set_globals(session, arguments);
    if (code)
        return code;
    if (arguments->n_words < verb->least || arguments->n_words > verb->most)
        return rb_session_usage(session, "expected: rubatoctl %s %s", verb->name, verb->arguments);
    if (!verb->local)
        watch_interrupt(session);
    return verb->run(session, arguments);
}

static int run(struct rb_session *session, int argc, const char *const *argv)
{
    RB_CLEANUP(rb_freep) struct rb_arguments *arguments = rb_alloc(sizeof *arguments);
    struct rb_why why = {0};
    int before;

    if (rb_arguments_parse(GLOBAL_OPTIONS, argc, argv, true, arguments, &before, &why))
        return rb_session_usage(session, "%s", why.text);
    if (rb_arguments_has(arguments, "help")) {
        rb_verbs_help(session->out, NULL);
        return 0;
    }
    if (rb_arguments_has(arguments, "version")) {
        fputs("rubatoctl " RUBATO_VERSION "\n", session->out);
        return 0;
    }
    if (before == argc)
        return rb_session_usage(session, "what shall be done?");
    return run_verb(session, argc, argv, before);
}

int main(int argc, char **argv)
{
    const char *endpoint = getenv("RUBATO_ENDPOINT");
    struct rb_session session = {
        .endpoint = endpoint && endpoint[0] ? endpoint : "unix:/run/rubato/rubatod.sock",
        .out = stdout,
        .err = stderr,
        .terminal = isatty(STDERR_FILENO),
        .interrupt_fd = -1,
    };
    int code = argc > 1 ? run(&session, argc - 1, (const char *const *)argv + 1)
                        : rb_session_usage(&session, "what shall be done?");

    if (session.interrupt_fd >= 0)
        close(session.interrupt_fd);
    if (fflush(stdout) || ferror(stdout)) {
        perror("rubatoctl: cannot write to stdout");
        return code ? code : RB_EXIT_FAILED;
    }
    return code;
}
