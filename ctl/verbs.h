/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs: which there are, what each takes, what it is for.  `help` prints it. */
#ifndef RB_CTL_VERBS_H
#define RB_CTL_VERBS_H

#include "ctl/arguments.h"
#include "ctl/session.h"

/* What -o may ask of a verb. */
enum rb_prints {
    RB_PRINTS_VALUES, /* table, json, yaml */
    RB_PRINTS_ROWS,   /* csv, json */
    RB_PRINTS_LINES,  /* lines, unchanged */
};

struct rb_verb {
    const char *name;      /* one word or two: "model new" */
    const char *arguments; /* as the manual writes them */
    const char *summary;
    const char *options; /* ctl/arguments.h */
    int least, most;     /* words behind the name */
    bool local;          /* needs no rubatod; ctrl-c just ends it */
    int (*run)(struct rb_session *session, const struct rb_arguments *arguments);
    enum rb_prints prints;
};

/* Ends with a NULL name. */
extern const struct rb_verb rb_verbs[];

/* The verb named by the first of n words; *ret_used: by how many.  NULL: none. */
const struct rb_verb *rb_verbs_find(const char *const *words, int n, int *ret_used);

/* Whether some verb begins with this word ("model", "node"). */
bool rb_verbs_group(const char *word);

/* Say that there is no verb of this name, and which may have been meant; returns the exit code. */
int rb_verbs_unknown(const struct rb_session *session, const char *text);

/* All verbs, or those that begin with `word`. */
int rb_verbs_help(FILE *out, const char *word);

typedef int rb_verb_run(struct rb_session *session, const struct rb_arguments *arguments);

rb_verb_run rb_submit, rb_get, rb_events, rb_top, rb_status, rb_describe, rb_grow, rb_shrink,
    rb_resize, rb_node_drain, rb_node_cordon, rb_node_uncordon, rb_pause, rb_resume, rb_cancel,
    rb_delete, rb_checkpoint, rb_export, rb_metrics, rb_wait, rb_logs, rb_version, rb_help,
    rb_model_new, rb_model_check, rb_model_run, rb_model_test, rb_profile, rb_plan, rb_verify;

#endif
