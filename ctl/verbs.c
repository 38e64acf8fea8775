/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/verbs.h"

#include "base/arena.h"
#include "base/near.h"

#include <stdlib.h>
#include <string.h>

#define RESIZE_OPTIONS "devices=+ wait timeout="

const struct rb_verb rb_verbs[] = {
    {"model new", "KIND [--set KEY=VALUE]... --out FILE", "write an ONNX model: gpt, mlp or cnn",
     "set=+ out=", 1, 1, true, rb_model_new},
    {"model check", "FILE [--seq N]", "say what a model holds and whether it can be trained",
     "seq=", 1, 1, true, rb_model_check},
    {"model run", "FILE --input [NAME=]FILE.npy... [--weights FILE] [--out DIR]",
     "run a model forward on .npy files, one for each of its inputs", "input=+ weights= out=", 1, 1,
     true, rb_model_run, RB_PRINTS_LINES},
    {"model test", "DIR...", "run folders of ONNX backend tests", "", 1, RB_WORDS_MAX, true,
     rb_model_test},
    {"profile", "FILE.onnx|JOB [--batch N] [--seq N]",
     "where the time of a training step goes, by operator", "batch= seq=", 1, 1, true, rb_profile},
    {"plan", "-f FILE|JOB [--set KEY=VALUE]... [--devices N,...] [--cluster FILE] [--svg FILE]",
     "how a job would run on so many devices, and what going there costs",
     "f|file= set=+ devices= cluster= svg=", 0, 1, true, rb_plan},
    {"submit", "-f FILE [--set KEY=VALUE]... [--wait [--timeout T]]", "hand in a job",
     "f|file= set=+ wait timeout=", 0, 0, false, rb_submit},
    {"get", "nodes|devices, get jobs|configurations|checkpoints|events [JOB]", "list what there is",
     "", 1, 2, false, rb_get},
    {"status", "JOB", "how a job does", "", 1, 1, false, rb_status},
    {"describe", "JOB", "all that is known of a job", "", 1, 1, false, rb_describe},
    {"grow", "JOB N [--devices NODE:INDEX,...] [--wait [--timeout T]]", "N devices more",
     RESIZE_OPTIONS, 2, 2, false, rb_grow},
    {"shrink", "JOB N [--devices NODE:INDEX,...] [--wait [--timeout T]]", "N devices fewer",
     RESIZE_OPTIONS, 2, 2, false, rb_shrink},
    {"resize", "JOB --want N [--devices NODE:INDEX,...] [--wait [--timeout T]]",
     "so many devices; --wait prints what it cost", "want= " RESIZE_OPTIONS, 1, 1, false,
     rb_resize},
    {"node drain", "NODE [--deadline T] [--wait [--timeout T]]",
     "move all jobs off a node, in T at the latest", "deadline= wait timeout=", 1, 1, false,
     rb_node_drain},
    {"node cordon", "NODE", "place nothing new on a node", "", 1, 1, false, rb_node_cordon},
    {"node uncordon", "NODE", "use a node again", "", 1, 1, false, rb_node_uncordon},
    {"pause", "JOB", "stop a job, state kept, devices free", "", 1, 1, false, rb_pause},
    {"resume", "JOB", "go on with a paused job", "", 1, 1, false, rb_resume},
    {"cancel", "JOB [--now]", "end a job, state kept; --now: at once, without", "now", 1, 1, false,
     rb_cancel},
    {"delete", "JOB", "forget a job; it is cancelled first", "", 1, 1, false, rb_delete},
    {"checkpoint", "JOB [--wait [--timeout T]]", "write a checkpoint now, also of what is paused",
     "wait timeout=", 1, 1, false, rb_checkpoint},
    {"export", "JOB --out FILE", "the weights as safetensors", "out=", 1, 1, false, rb_export},
    {"metrics", "JOB [--follow] [--lost | --tensorboard FOLDER]",
     "a row per committed step, or also those of steps done again: csv, or -o json; or curves",
     "f|follow lost tensorboard=", 1, 1, false, rb_metrics, RB_PRINTS_ROWS},
    {"verify", "JOB --devices N [--steps K] [--timeout T]",
     "train it again on N devices, and see that not a bit differs", "devices= steps= timeout=", 1,
     1, false, rb_verify},
    {"wait", "JOB --for done|running|paused|step=N|devices=N [--timeout T]", "until a job is there",
     "for= timeout=", 1, 1, false, rb_wait},
    {"logs", "JOB [-f]", "what a job's workers said", "f|follow", 1, 1, false, rb_logs,
     RB_PRINTS_LINES},
    {"events", "[JOB]", "what has happened", "", 0, 1, false, rb_events},
    {"top", "[JOB]", "what goes on, on all of a terminal, until q", "", 0, 1, false, rb_top,
     RB_PRINTS_LINES},
    {"version", "", "of rubatoctl and of the rubatod that it reaches", "", 0, 0, false, rb_version},
    {"help", "[VERB]", "this", "", 0, 2, true, rb_help},
    {0},
};

const struct rb_verb *rb_verbs_find(const char *const *words, int n, int *ret_used)
{
    for (const struct rb_verb *verb = rb_verbs; verb->name; verb++) {
        size_t first = strcspn(verb->name, " ");
        const char *second = verb->name[first] ? verb->name + first + 1 : NULL;

        if (n < 1 || strlen(words[0]) != first || strncmp(words[0], verb->name, first) != 0)
            continue;
        if (second && (n < 2 || strcmp(words[1], second) != 0))
            continue;
        *ret_used = second ? 2 : 1;
        return verb;
    }
    return NULL;
}

bool rb_verbs_group(const char *word)
{
    size_t size = strlen(word);

    for (const struct rb_verb *verb = rb_verbs; verb->name; verb++) {
        if (strncmp(verb->name, word, size) == 0 && verb->name[size] == ' ')
            return true;
    }
    return false;
}

int rb_verbs_unknown(const struct rb_session *session, const char *text)
{
    size_t size = strlen(text), best = SIZE_MAX;
    RB_CLEANUP(rb_freep) char *nearest = NULL;

    for (const struct rb_verb *verb = rb_verbs; verb->name && size < RB_NEAR_MOST; verb++) {
        size_t first = strchr(text, ' ') ? strlen(verb->name) : strcspn(verb->name, " ");
        RB_CLEANUP(rb_freep) char *name = rb_format("%.*s", (int)first, verb->name);
        size_t distance = rb_near_distance(text, size, name);

        if (distance < best && rb_near_enough(distance, size)) {
            best = distance;
            free(nearest);
            nearest = RB_TAKE(name);
        }
    }
    if (!nearest)
        return rb_session_usage(session, "there is no verb '%.80s'", text);
    return rb_session_usage(session, "there is no verb '%.80s', did you mean '%s'", text, nearest);
}

int rb_verbs_help(FILE *out, const char *word)
{
    size_t size = word ? strlen(word) : 0;
    int shown = 0;

    if (!word)
        fputs("rubatoctl [--endpoint unix:PATH|tcp:HOST:PORT|tls:HOST:PORT] [--tls DIR]\n"
              "          [-o table|json|yaml] VERB ...\n\n",
              out);
    for (const struct rb_verb *verb = rb_verbs; verb->name; verb++) {
        if (word &&
            (strncmp(verb->name, word, size) != 0 || (verb->name[size] && verb->name[size] != ' ')))
            continue;
        fprintf(out, "  %s%s%s\n        %s\n", verb->name, verb->arguments[0] ? " " : "",
                verb->arguments, verb->summary);
        shown++;
    }
    if (!word)
        fputs("\nEndpoint: --endpoint, else RUBATO_ENDPOINT, else "
              "unix:/var/lib/rubato/rubatod.sock.\n"
              "Certificates for tls: ca.crt, tls.crt and tls.key in --tls, else RUBATO_TLS.\n"
              "T: seconds, or 90s 5m 2h 1m30s.\n"
              "Exit: 0 done, 1 the job failed, 2 usage, 3 not found, 4 refused, 5 unreachable,\n"
              "      124 timed out, 130 interrupted (ctrl-c is safe: the job goes on).\n",
              out);
    return shown;
}
