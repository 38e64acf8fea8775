/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of ONNX backend tests, recursively.  Each folder is run by a process of its own: a model
 * that crashes the process, or never ends, is a failure of that folder alone. */
#include "base/arena.h"
#include "base/file.h"
#include "ctl/model_case.h"
#include "ctl/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEPTH = 16, SECONDS = 60 };

enum verdict { PASSED, FAILED, UNSUPPORTED, VERDICTS };

static const char *const verdict_text[VERDICTS] = {"passed", "failed", "unsupported"};

struct run {
    const struct rb_session *session;
    json_t *names[VERDICTS];
    json_t *reasons; /* by name */
};

/* In the child: the verdict as one byte, then why. */
static void child(const char *folder, int out)
{
    const struct rlimit limit = {SECONDS, SECONDS};
    struct rb_why why = {0};
    uint8_t verdict;
    int err;

    setrlimit(RLIMIT_CPU, &limit);
    err = rb_model_case_run(folder, &why);
    verdict = !err ? PASSED : err == RB_EUNSUPPORTED ? UNSUPPORTED : FAILED;
    rb_file_put(out, &verdict, 1);
    rb_file_put(out, why.text, strlen(why.text));
    _exit(0);
}

static enum verdict read_verdict(int in, char *why, size_t room)
{
    uint8_t verdict = VERDICTS;
    size_t size = 0;
    ssize_t got;

    while ((got = read(in, &verdict, 1)) < 0 && errno == EINTR)
        ;
    while (size < room - 1 && ((got = read(in, why + size, room - 1 - size)) > 0 || errno == EINTR))
        size += got > 0 ? (size_t)got : 0;
    why[size] = '\0';
    return verdict < VERDICTS ? (enum verdict)verdict : VERDICTS;
}

static int run_folder(struct run *run, const char *folder, const char *name, struct rb_why *why)
{
    char text[sizeof why->text] = "";
    enum verdict verdict;
    int ends[2], status = 0;
    pid_t pid;

    if (pipe(ends) < 0)
        return rb_why_set(why, rb_error_from_errno(errno), "a pipe: %s", strerror(errno));
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(folder, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return rb_why_set(why, rb_error_from_errno(errno), "a process: %s", strerror(errno));
    }
    errno = 0;
    verdict = read_verdict(ends[0], text, sizeof text);
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status) || verdict == VERDICTS) {
        verdict = FAILED;
        snprintf(text, sizeof text, "it crashed (%s)",
                 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no verdict");
    }
    json_array_append_new(run->names[verdict], json_string(name));
    if (verdict != PASSED)
        json_object_set_new(run->reasons, name, json_string(text));
    if (run->session->format == RB_FORMAT_TABLE && verdict != PASSED)
        fprintf(run->session->out, "%-11s %s: %s\n", verdict_text[verdict], name, text);
    return 0;
}

static int plain_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* name: the folder's path from the folder that was asked for; "" for that one itself. */
static int walk(struct run *run, const char *folder, const char *name, int depth,
                struct rb_why *why)
{
    struct dirent **entries = NULL;
    const char *slash = strrchr(folder, '/');
    int n, err = 0;

    if (rb_model_case_is(folder))
        return run_folder(run, folder,
                          name[0]             ? name
                          : slash && slash[1] ? slash + 1
                                              : folder,
                          why);
    n = depth < DEPTH ? scandir(folder, &entries, plain_name, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, entries[i]->d_name);
        RB_CLEANUP(rb_freep)
        char *inner =
            name[0] ? rb_format("%s/%s", name, entries[i]->d_name) : rb_string(entries[i]->d_name);
        struct stat status;

        if (!err && lstat(path, &status) == 0 && S_ISDIR(status.st_mode))
            err = walk(run, path, inner, depth + 1, why);
        free(entries[i]);
    }
    free(entries);
    return err;
}

static int walk_all(struct run *run, const struct rb_arguments *arguments, struct rb_why *why)
{
    int err = 0;

    for (int i = 0; !err && i < arguments->n_words; i++) {
        struct stat status;

        if (stat(arguments->word[i], &status) < 0 || !S_ISDIR(status.st_mode))
            return rb_why_set(why, RB_ENOTFOUND, "%s is no folder", arguments->word[i]);
        err = walk(run, arguments->word[i], "", 0, why);
    }
    return err;
}

static void print(struct run *run)
{
    json_t *report = json_object();

    for (int i = 0; i < VERDICTS; i++)
        json_object_set(report, verdict_text[i], run->names[i]);
    json_object_set(report, "reasons", run->reasons);
    if (run->session->format == RB_FORMAT_TABLE)
        fprintf(run->session->out, "%zu passed, %zu failed, %zu unsupported\n",
                json_array_size(run->names[PASSED]), json_array_size(run->names[FAILED]),
                json_array_size(run->names[UNSUPPORTED]));
    else
        rb_session_print(run->session, report);
    json_decref(report);
}

int rb_model_test(struct rb_session *session, const struct rb_arguments *arguments)
{
    struct run run = {session, {json_array(), json_array(), json_array()}, json_object()};
    struct rb_why why = {0};
    bool any, failed;
    int err;

    fflush(session->out);
    err = walk_all(&run, arguments, &why);
    failed = json_array_size(run.names[FAILED]) > 0;
    any = failed || json_array_size(run.names[PASSED]) || json_array_size(run.names[UNSUPPORTED]);
    if (!err && !any)
        err = rb_why_set(&why, RB_ENOTFOUND,
                         "no folder there has a model.onnx and a "
                         "test_data_set_0");
    if (!err)
        print(&run);
    for (int i = 0; i < VERDICTS; i++)
        json_decref(run.names[i]);
    json_decref(run.reasons);
    return err ? rb_session_fail(session, err, &why) : failed ? RB_EXIT_FAILED : RB_EXIT_DONE;
}
