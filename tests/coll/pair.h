/* SPDX-License-Identifier: Apache-2.0 */
/* Two workers with their doors, in one process: each of their openings is a thread. */
#ifndef RB_TESTS_COLL_PAIR_H
#define RB_TESTS_COLL_PAIR_H

#include "coll/coll.h"

#include <pthread.h>

enum { LONG_MS = 30000, SHORT_MS = 150 };

struct pair {
    char folder[64];
    struct rb_listener *listener[2];
};

/* One rank that opens, in a thread of its own. */
struct opener {
    struct pair *pair;
    int rank;
    uint32_t configuration;
    const char *job, *digest, *worker; /* NULL: what all ranks say */
    int timeout_ms;
    const atomic_bool *cancel;

    pthread_t thread;
    int err;
    struct rb_why why;
    struct rb_coll *coll;
};

void pair_start(struct opener *o);
void pair_join(struct opener *o);

/* Both ranks open `configuration`, as they should. */
void pair_open(struct pair *pair, uint32_t configuration, struct rb_coll *ret[2]);
void pair_close(struct rb_coll *coll[2]);

/* A test whose *state is a pair. */
#define PAIR_TEST(name) cmocka_unit_test_setup_teardown(name, pair_set_up, pair_tear_down)
int pair_set_up(void **state);
int pair_tear_down(void **state);

#endif
