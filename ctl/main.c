/* SPDX-License-Identifier: Apache-2.0 */
/* rubatoctl: the command line.  Options that every verb takes, then the verb's own. */
#include "base/arena.h"
#include "base/file.h"
#include "base/version.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define GLOBAL_OPTIONS "endpoint= tls= o|output= h|help version "

static int set_format(struct rb_session *session, enum rb_prints prints, const char *text)
{
    static const char *const names[] = {"table", "json", "yaml", "csv"};
    static const struct {
        bool can[RB_COUNT(names)];
        const char *expected;
    } kinds[] = {
        [RB_PRINTS_VALUES] = {{true, true, true, false}, "expected table, json or yaml"},
        [RB_PRINTS_ROWS] = {{false, true, false, true}, "rows are csv or json"},
        [RB_PRINTS_LINES] = {{true, false, false, false}, "it prints lines of text"},
    };

    for (size_t i = 0; text && i < RB_COUNT(names); i++) {
        session->format = (enum rb_format)i;
        if (strcmp(names[i], text) == 0 && kinds[prints].can[i])
            return 0;
    }
    return text ? rb_session_usage(session, "-o %.40s: %s", text, kinds[prints].expected) : 0;
}

static int set_globals(struct rb_session *session, const struct rb_verb *verb,
                       const struct rb_arguments *arguments)
{
    const char *endpoint = rb_arguments_value(arguments, "endpoint");
    const char *tls = rb_arguments_value(arguments, "tls");
    struct rb_why why = {0};

    if (endpoint)
        session->to.endpoint = endpoint;
    if (tls)
        session->to.tls = tls;
    if (rb_line_check(session->to.endpoint, &why))
        return rb_session_usage(session, "%s", why.text);
    return set_format(session, verb->prints, rb_arguments_value(arguments, "output"));
}

/* From here on ctrl-c arrives on a descriptor. */
static void watch_interrupt(struct rb_session *session)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    session->to.interrupt_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The first of n words names no verb; it may be the first word of some, for which help is asked. */
static int no_verb(struct rb_session *session, int n, const char *const *words)
{
    RB_CLEANUP(rb_freep) char *two = NULL;

    if (!rb_verbs_group(words[0]))
        return rb_verbs_unknown(session, words[0]);
    session->verb = words[0];
    if (n > 1 && (strcmp(words[1], "-h") == 0 || strcmp(words[1], "--help") == 0)) {
        rb_verbs_help(session->out, words[0]);
        return 0;
    }
    if (n < 2 || words[1][0] == '-')
        return rb_session_usage(session, "%s: say which", words[0]);
    two = rb_format("%s %s", words[0], words[1]);
    return rb_verbs_unknown(session, two);
}

/* Words for rubatod are sent as JSON, so they must be UTF-8. */
static int check_words(const struct rb_session *session, const struct rb_verb *verb,
                       const struct rb_arguments *arguments)
{
    if (arguments->n_words < verb->least || arguments->n_words > verb->most)
        return rb_session_usage(session, "expected: rubatoctl %s%s%s", verb->name,
                                verb->arguments[0] ? " " : "", verb->arguments);
    for (int i = 0; i < arguments->n_words && !verb->local; i++) {
        json_t *text = json_string(arguments->word[i]);

        if (!text)
            return rb_session_usage(session, "'%.80s' is not UTF-8", arguments->word[i]);
        json_decref(text);
    }
    return 0;
}

/* `before`: how many of argv are in front of the verb. */
static int run_verb(struct rb_session *session, int argc, const char *const *argv, int before)
{
    RB_CLEANUP(rb_freep) char *options = NULL;
    RB_CLEANUP(rb_freep) struct rb_arguments *arguments = rb_alloc(sizeof *arguments);
    RB_CLEANUP(rb_freep) const char **rest = rb_alloc((size_t)argc * sizeof *rest);
    struct rb_why why = {0};
    const struct rb_verb *verb;
    int used, n = 0, code;

    verb = rb_verbs_find(argv + before, argc - before, &used);
    if (!verb)
        return no_verb(session, argc - before, argv + before);
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
    code = set_globals(session, verb, arguments);
    if (!code)
        code = check_words(session, verb, arguments);
    if (code)
        return code;
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
        return rb_session_usage(session, "say what shall be done");
    return run_verb(session, argc, argv, before);
}

int main(int argc, char **argv)
{
    const char *endpoint = getenv("RUBATO_ENDPOINT"), *tls = getenv("RUBATO_TLS");
    struct rb_session session = {
        .to = {endpoint && endpoint[0] ? endpoint : "unix:/var/lib/rubato/rubatod.sock",
               tls && tls[0] ? tls : NULL, -1},
        .out = stdout,
        .err = stderr,
        .terminal = isatty(STDERR_FILENO),
    };
    bool lost;
    int code;

    rb_file_hold_standard();
    code = argc > 1 ? run(&session, argc - 1, (const char *const *)argv + 1)
                    : rb_session_usage(&session, "say what shall be done");

    if (session.to.interrupt_fd >= 0)
        close(session.to.interrupt_fd);
    lost = ferror(stdout); /* an earlier failure, whose errno is lost */
    if (fflush(stdout) || lost) {
        fprintf(stderr, "rubatoctl: cannot write to stdout: %s\n",
                lost ? "not all of it was taken" : strerror(errno));
        return code ? code : RB_EXIT_FAILED;
    }
    return code;
}
