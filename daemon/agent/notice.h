/* SPDX-License-Identifier: Apache-2.0 */
/* Notices: a command is asked every few seconds whether this node will be taken away; when the
 * command begins to say so, the node is drained, once, by the time that the command names.
 *
 * notice_command, store > [notice] > cordons/NODE, an event
 *
 * The drain goes with the node's lease, so that a machine that comes back under the same name
 * starts fresh.  A user who uncordons the node has the last word, until the command has said "no"
 * and says "yes" again. */
#ifndef RB_DAEMON_AGENT_NOTICE_H
#define RB_DAEMON_AGENT_NOTICE_H

struct rb_daemon;
struct rb_notice;

/* NULL where the settings name no command. */
struct rb_notice *rb_notice_new(struct rb_daemon *daemon);
void rb_notice_free(struct rb_notice *notice);

#endif
