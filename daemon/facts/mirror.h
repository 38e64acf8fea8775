/* SPDX-License-Identifier: Apache-2.0 */
/* A mirror: keys and JSON values as they come from etcd, to facts.
 *
 * watch > [mirror] > facts
 *
 * Pure.  Its twin for tests is rb_mirror_commit, which does to the mirror what etcd would do with
 * the same writes. */
#ifndef RB_DAEMON_FACTS_MIRROR_H
#define RB_DAEMON_FACTS_MIRROR_H

#include "daemon/facts/facts.h"

struct rb_writes;
struct rb_mirror;

struct rb_mirror *rb_mirror_new(void);
void rb_mirror_free(struct rb_mirror *mirror);

/* Take a key.  A value that cannot be read, or a key of no known kind, is left out (`why` says so,
 * for the caller to log); it must not stop the world. */
int rb_mirror_put(struct rb_mirror *mirror, const char *key, const char *value, size_t size,
                  int64_t revision, int64_t created, int64_t lease, struct rb_why *why);
void rb_mirror_delete(struct rb_mirror *mirror, const char *key);
void rb_mirror_clear(struct rb_mirror *mirror);
void rb_mirror_set_revision(struct rb_mirror *mirror, int64_t revision);

/* The snapshot; the mirror's, valid until it changes. */
const struct rb_facts *rb_mirror_facts(struct rb_mirror *mirror);

/* What etcd would do: check the guards of each transaction in `writes`, and apply it whole at the
 * next revision or not at all.  Returns RB_ESTALE if one was refused (others are applied).  Leased
 * writes carry `lease`. */
int rb_mirror_commit(struct rb_mirror *mirror, const struct rb_writes *writes, int64_t lease,
                     struct rb_why *why);

#endif
