/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/follow.h"
#include "ctl/verbs.h"

int rb_wait(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *text = rb_arguments_value(arguments, "for");
    struct rb_goal goal = {0};
    struct rb_why why = {0};
    uint64_t deadline;

    if (!text)
        return rb_session_usage(session, "--for says what to wait for");
    if (rb_goal_parse(text, &goal, &why))
        return rb_session_usage(session, "--for %s", why.text);
    if (rb_session_deadline(rb_arguments_value(arguments, "timeout"), true, &deadline, &why))
        return rb_session_usage(session, "%s", why.text);
    return rb_follow(session, arguments->word[0], NULL, &goal, deadline);
}
