/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/version.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <string.h>

int rb_help(struct rb_session *session, const struct rb_arguments *arguments)
{
    RB_CLEANUP(rb_freep) char *name = NULL;

    if (arguments->n_words == 0) {
        rb_verbs_help(session->out, NULL);
        return 0;
    }
    name = rb_format("%s%s%s", arguments->word[0], arguments->n_words > 1 ? " " : "",
                     arguments->n_words > 1 ? arguments->word[1] : "");
    session->verb = NULL;
    if (!rb_verbs_help(session->out, name))
        return rb_verbs_unknown(session, name);
    return 0;
}

/* This answers even where no rubatod can be reached. */
int rb_version(struct rb_session *session, const struct rb_arguments *arguments)
{
    struct rb_client_call call = {
        .to = session->to,
        .method = "version",
        .quiet_ms = 5000,
    };
    struct rb_why why = {0};
    json_t *daemon = NULL, *all = json_object();
    int err = rb_client_call(&call, &daemon, &why);

    (void)arguments;
    json_object_set_new(all, "rubatoctl", json_string(RUBATO_VERSION));
    if (daemon)
        json_object_set_new(all, "rubatod", daemon);
    if (session->format == RB_FORMAT_TABLE) {
        fprintf(session->out, "rubatoctl %s\n", RUBATO_VERSION);
        if (daemon)
            fprintf(session->out, "rubatod %s on %s, leader %s\n",
                    rb_value_text(daemon, "version", "?"), rb_value_text(daemon, "node", "?"),
                    rb_value_text(daemon, "leader", "none"));
    } else {
        rb_session_print(session, all);
    }
    json_decref(all);
    if (err)
        fprintf(session->err, "rubatoctl: %s\n", why.text);
    return 0;
}
