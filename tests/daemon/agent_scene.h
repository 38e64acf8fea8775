/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of node "a": facts are written as JSON, processes are a table, and the actions are
 * compared as text, one word an action: "spawn:0:2" is device 0 for configuration 2. */
#ifndef RB_TESTS_DAEMON_AGENT_SCENE_H
#define RB_TESTS_DAEMON_AGENT_SCENE_H

#include "daemon/agent/rules.h"
#include "daemon/facts/mirror.h"

enum { SCENE_WORKERS = 8 };

struct scene {
    struct rb_mirror *mirror;
    int64_t revision;
    struct rb_agent_worker workers[SCENE_WORKERS];
    size_t n;
    uint64_t now, unix_ms;
    bool no_blobs;
    uint64_t wake;
    const char *more; /* of configurations that are put: ",\"spare\":2" */
    struct rb_agent_death deaths[2];
    size_t n_deaths;
    const char *silent; /* the node that does not answer; NULL: none was asked */
};

void scene_put(struct scene *scene, const char *key, const char *value);
void scene_put_job(struct scene *scene, const char *state);

/* members: "a:0" a fresh process, "a:0=W" the process W; with "*" behind it, the member
 * restores. */
void scene_put_configuration(struct scene *scene, unsigned number, const char *state,
                             const char *members);
void scene_put_report(struct scene *scene, const char *place, const char *worker, const char *state,
                      unsigned spawned_for);

/* A process of this node that has said Hello. */
struct rb_agent_worker *scene_add_worker(struct scene *scene, const char *name, uint32_t device,
                                         uint32_t spawned_for);

/* What the rules say now. */
void scene_expect(struct scene *scene, const char *expected);

/* cmocka's, around each test; *state: the scene. */
int scene_setup(void **state);
int scene_teardown(void **state);

#endif
