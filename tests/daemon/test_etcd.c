/* SPDX-License-Identifier: Apache-2.0 */
/* The store on a real private etcd: guards, leases, a past that was compacted away, and an etcd
 * that is killed. */
#include "base/arena.h"
#include "base/file.h"
#include "daemon/agent/spawn.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/json.h"
#include "daemon/etcd/lease.h"
#include "daemon/etcd/private_etcd.h"
#include "daemon/etcd/store.h"
#include "tests/daemon/until.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world {
    struct until until;
    char folder[64];
    struct rb_private_etcd *private_etcd;
    const char *endpoint;
    struct rb_etcd *etcd, *other_etcd;
    struct rb_store *store, *other; /* a second one, in some tests */
    bool answered;
    int err;
    json_t *answer;
    int64_t lease;
    unsigned leases; /* how many times one was granted or lost */
};

static void on_gone(void *context)
{
    ((struct world *)context)->answered = true;
}

static int setup(void **state)
{
    static struct world world;
    struct rb_why why = {0};
    world = (struct world){.folder = "/tmp/rubato-etcd.XXXXXX"};
    assert_non_null(mkdtemp(world.folder));
    until_open(&world.until);
    RB_CLEANUP(rb_freep) char *self = rb_program_self();
    if (rb_private_etcd_start(&world.until.loop, self, world.folder, &world.endpoint,
                              &world.private_etcd, &why))
        fail_msg("%s", why.text);
    assert_int_equal(rb_etcd_new(&world.until.loop, &world.endpoint, 1, &world.etcd, &why), RB_OK);
    world.store = rb_store_new(&world.until.loop, world.etcd);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    struct rb_why why;
    rb_store_free(world->other);
    rb_store_free(world->store);
    rb_etcd_free(world->other_etcd);
    rb_etcd_free(world->etcd);
    json_decref(world->answer);
    world->answered = false;
    rb_private_etcd_stop(world->private_etcd, 3000, on_gone, world);
    UNTIL(&world->until, world->answered);
    rb_private_etcd_free(world->private_etcd);
    assert_int_equal(until_close(&world->until), 0);
    rb_file_remove(world->folder, &why);
    return 0;
}

static void on_committed(int err, const struct rb_why *why, void *context)
{
    struct world *world = context;
    (void)why;
    world->err = err;
    world->answered = true;
}

static int commit(struct world *world, struct rb_writes *writes, const struct rb_fence *fence)
{
    world->answered = false;
    rb_store_commit(world->store, writes, fence, on_committed, world);
    rb_writes_done(writes);
    UNTIL(&world->until, world->answered);
    return world->err;
}

static void put_cordon(struct rb_writes *writes, int64_t revision, const char *name, uint64_t since)
{
    Rb__Cordon cordon = RB__CORDON__INIT;
    cordon.since = since;
    rb_writes_put(writes, revision, &cordon.base, "cordons/%s", name);
}

static const struct rb_fact *cordon(struct world *world, const char *name)
{
    return rb_fact_find(&rb_store_facts(world->store)->cordons, name);
}

static void guards(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    UNTIL(&world->until, rb_store_connected(world->store));
    put_cordon(&writes, RB_ABSENT, "a", 1);
    put_cordon(&writes, RB_ABSENT, "b", 1);
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    assert_int_equal(cordon(world, "a")->cordon->since, 1); /* it can be read at once */
    int64_t revision = cordon(world, "a")->revision, created = cordon(world, "a")->created;
    put_cordon(&writes, RB_ABSENT, "a", 2); /* it is there */
    assert_int_equal(commit(world, &writes, NULL), RB_ESTALE);
    put_cordon(&writes, revision, "a", 3);
    put_cordon(&writes, RB_ABSENT, "c", 3);
    struct rb_fence fence = {.key = "cordons/a", .created = created};
    assert_int_equal(commit(world, &writes, &fence), RB_OK);
    put_cordon(&writes, revision, "a", 4); /* it has changed */
    put_cordon(&writes, RB_ABSENT, "d", 4);
    assert_int_equal(commit(world, &writes, NULL), RB_ESTALE);
    assert_null(cordon(world, "d")); /* whole or not at all */
    put_cordon(&writes, RB_ANY_REVISION, "a", 5);
    fence.created++;
    assert_int_equal(commit(world, &writes, &fence), RB_ESTALE); /* the fence */
    assert_int_equal(cordon(world, "a")->cordon->since, 3);
    rb_writes_guard(&writes, RB_ABSENT, "cordons/a");
    rb_writes_next(&writes);
    put_cordon(&writes, RB_ABSENT, "e", 5); /* another transaction is not affected */
    assert_int_equal(commit(world, &writes, NULL), RB_ESTALE);
    assert_non_null(cordon(world, "e"));
    rb_writes_delete_all(&writes, "cordons/");
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    assert_int_equal(rb_store_facts(world->store)->cordons.n, 0);
}

/* A writer that has not seen its own last write writes nothing more, and keys that it touches stay
 * what they are. */
static void fences(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    UNTIL(&world->until, rb_store_connected(world->store));
    put_cordon(&writes, RB_ABSENT, "f", 1);
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    int64_t created = cordon(world, "f")->created;
    struct rb_fence fence = {.key = "cordons/f", .created = created, .revision = created};
    put_cordon(&writes, RB_ABSENT, "a", 2);
    rb_writes_next(&writes);
    rb_writes_guard(&writes, RB_ABSENT, "cordons/a"); /* refused; the fence stays where it was */
    rb_writes_next(&writes);
    put_cordon(&writes, RB_ABSENT, "b", 2);
    assert_int_equal(commit(world, &writes, &fence), RB_ESTALE);
    assert_non_null(cordon(world, "b"));
    assert_int_equal(cordon(world, "f")->revision, cordon(world, "b")->revision);
    assert_int_equal(cordon(world, "f")->created, created);
    assert_int_equal(cordon(world, "f")->cordon->since, 1);
    put_cordon(&writes, RB_ABSENT, "c", 3); /* from facts of before that write */
    assert_int_equal(commit(world, &writes, &fence), RB_ESTALE);
    assert_null(cordon(world, "c"));
    fence.revision = cordon(world, "f")->revision;
    put_cordon(&writes, RB_ABSENT, "c", 4);
    assert_int_equal(commit(world, &writes, &fence), RB_OK);
    assert_int_equal(cordon(world, "c")->cordon->since, 4);
}

static void limits(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    UNTIL(&world->until, rb_store_connected(world->store));
    for (unsigned i = 0; i <= RB_WRITES_MOST; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%03u", i);
        put_cordon(&writes, RB_ABSENT, name, i);
    }
    assert_int_equal(commit(world, &writes, NULL), RB_ELIMIT);
    for (unsigned i = 0; i < 600; i++) { /* more than a page of the list */
        char name[16];
        snprintf(name, sizeof(name), "n%03u", i);
        put_cordon(&writes, RB_ABSENT, name, i);
        if (i % 50 == 49)
            rb_writes_next(&writes);
    }
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    assert_int_equal(rb_store_facts(world->store)->cordons.n, 600);
    world->other = rb_store_new(&world->until.loop, world->etcd);
    UNTIL(&world->until, rb_store_synced(world->other));
    assert_int_equal(rb_store_facts(world->other)->cordons.n, 600);
}

static void on_lease(int64_t id, void *context)
{
    struct world *world = context;
    world->lease = id;
    world->leases++;
    rb_store_set_lease(world->store, id);
}

static void on_answer(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct world *world = context;
    (void)why;
    json_decref(world->answer);
    world->answer = json_incref((json_t *)answer);
    world->err = err;
    world->answered = true;
}

static void post(struct world *world, const char *path, char *body)
{
    world->answered = false;
    rb_etcd_post(world->etcd, path, body, 5000, on_answer, world);
    UNTIL(&world->until, world->answered);
    json_decref(world->answer);
    world->answer = NULL;
}

static void leases(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    Rb__Leader leader = RB__LEADER__INIT;
    leader.node = leader.address = "x";
    UNTIL(&world->until, rb_store_connected(world->store));
    rb_writes_put_leased(&writes, RB_ABSENT, &leader.base, "leader");
    assert_int_equal(commit(world, &writes, NULL), RB_EUNREACHABLE); /* no lease yet */
    struct rb_lease *lease = rb_lease_new(&world->until.loop, world->etcd, 3, 0, on_lease, world);
    UNTIL(&world->until, world->lease);
    rb_writes_put_leased(&writes, RB_ABSENT, &leader.base, "leader");
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    assert_int_equal(rb_store_facts(world->store)->leader.lease, world->lease);
    /* A key that is touched keeps its lease. */
    int64_t created = rb_store_facts(world->store)->leader.created;
    struct rb_fence fence = {.key = "leader", .created = created, .revision = created};
    put_cordon(&writes, RB_ABSENT, "touched", 1);
    assert_int_equal(commit(world, &writes, &fence), RB_OK);
    assert_int_equal(rb_store_facts(world->store)->leader.lease, world->lease);
    assert_int_equal(rb_store_facts(world->store)->leader.revision,
                     cordon(world, "touched")->revision);
    /* The lease is revoked: the store notices, and another lease is granted. */
    int64_t old = world->lease;
    post(world, "/v3/lease/revoke", rb_etcd_lease_text(old));
    UNTIL(&world->until, world->lease && world->lease != old);
    assert_true(world->leases >= 3); /* granted, lost, granted; on a busy machine more often */
    UNTIL(&world->until, !rb_store_facts(world->store)->leader.message);
    /* A lease that is not kept alive runs out, with its keys. */
    rb_writes_put_leased(&writes, RB_ABSENT, &leader.base, "leader");
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    rb_lease_free(lease);
    UNTIL(&world->until, !rb_store_facts(world->store)->leader.message);
    /* A known lease goes on, and can be given up. */
    world->lease = 0;
    lease = rb_lease_new(&world->until.loop, world->etcd, 10, 0, on_lease, world);
    UNTIL(&world->until, world->lease);
    old = world->lease;
    rb_lease_free(lease);
    world->lease = 0;
    lease = rb_lease_new(&world->until.loop, world->etcd, 10, old, on_lease, world);
    UNTIL(&world->until, world->lease);
    assert_int_equal(world->lease, old);
    world->answered = false;
    rb_lease_revoke(lease, 1000, on_gone, world);
    UNTIL(&world->until, world->answered);
    rb_lease_free(lease);
}

static pid_t etcd_pid(const struct world *world)
{
    /* etcd is our only child. */
    char path[64];
    pid_t pid = 0;
    (void)world;
    snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &pid) != 1)
        pid = 0;
    if (file)
        fclose(file);
    return pid;
}

static void killed(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    UNTIL(&world->until, rb_store_connected(world->store));
    put_cordon(&writes, RB_ABSENT, "kept", 1);
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    pid_t pid = etcd_pid(world);
    assert_int_not_equal(pid, 0);
    kill(pid, SIGKILL);
    UNTIL(&world->until, !rb_store_connected(world->store));
    assert_non_null(cordon(world, "kept")); /* the last known facts stay */
    put_cordon(&writes, RB_ABSENT, "meanwhile", 1);
    assert_int_equal(commit(world, &writes, NULL), RB_EUNREACHABLE);
    UNTIL(&world->until, rb_store_connected(world->store)); /* started again by itself */
    assert_non_null(cordon(world, "kept"));
    put_cordon(&writes, RB_ABSENT, "after", 1);
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    assert_non_null(cordon(world, "after"));
}

/* While the store looks away (etcd is stopped and started) the past is compacted: it lists again.
 */
static void compacted(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    UNTIL(&world->until, rb_store_connected(world->store));
    put_cordon(&writes, RB_ABSENT, "gone", 1);
    put_cordon(&writes, RB_ABSENT, "stays", 1);
    assert_int_equal(commit(world, &writes, NULL), RB_OK);
    /* A second store sees the first one's present and then stands still. */
    struct rb_store *sleeper = world->other = rb_store_new(&world->until.loop, world->etcd);
    UNTIL(&world->until, rb_store_connected(sleeper));
    struct rb_why why;
    assert_int_equal(rb_etcd_new(&world->until.loop, &world->endpoint, 1, &world->other_etcd, &why),
                     RB_OK);
    kill(etcd_pid(world), SIGKILL);
    UNTIL(&world->until, !rb_store_connected(sleeper) && !rb_store_connected(world->store));
    /* etcd is back: change and compact before the stores' next try is through. */
    bool done = false;
    for (uint64_t start = uv_now(&world->until.loop);
         !done && uv_now(&world->until.loop) - start < LIMIT_MS;) {
        char *txn;
        rb_writes_delete(&writes, RB_ANY_REVISION, "cordons/gone");
        put_cordon(&writes, RB_ANY_REVISION, "stays", 2);
        txn = rb_etcd_txn_text(RB_FACTS_PREFIX, writes.at, writes.n, 0, NULL);
        rb_writes_done(&writes);
        world->answered = false;
        rb_etcd_post(world->other_etcd, "/v3/kv/txn", txn, 1000, on_answer, world);
        UNTIL(&world->until, world->answered);
        done = !world->err;
    }
    assert_true(done);
    struct rb_etcd_txn made;
    assert_int_equal(rb_etcd_txn_read(world->answer, &made, &why), RB_OK);
    char *compact = rb_format("{\"revision\":\"%" PRId64 "\",\"physical\":true}", made.revision);
    post(world, "/v3/kv/compaction", compact);
    UNTIL(&world->until, rb_store_connected(sleeper) && rb_store_connected(world->store) &&
                             cordon(world, "stays")->cordon->since == 2);
    const struct rb_facts *facts = rb_store_facts(sleeper);
    UNTIL(&world->until, (facts = rb_store_facts(sleeper),
                          rb_fact_find(&facts->cordons, "stays")->cordon->since == 2));
    assert_null(rb_fact_find(&facts->cordons, "gone"));
    assert_null(cordon(world, "gone"));
}

static void keep_line(const json_t *message, void *context)
{
    struct world *world = context;
    json_decref(world->answer);
    world->answer = json_incref((json_t *)message);
    world->answered = true;
}

static void no_end(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    (void)err;
    (void)why;
    (void)answer;
    (void)context;
}

/* What etcd tells the store in that case, without a race. */
static void watch_of_the_past(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    struct rb_arena arena = {0};
    struct rb_why why;
    UNTIL(&world->until, rb_store_connected(world->store));
    for (unsigned i = 0; i < 3; i++) {
        put_cordon(&writes, RB_ANY_REVISION, "x", i);
        assert_int_equal(commit(world, &writes, NULL), RB_OK);
    }
    int64_t now = rb_store_facts(world->store)->revision;
    post(world, "/v3/kv/compaction",
         rb_format("{\"revision\":\"%" PRId64 "\",\"physical\":true}", now));
    world->answered = false;
    struct rb_etcd_call *call =
        rb_etcd_watch(world->etcd, rb_etcd_watch_text(RB_FACTS_PREFIX, "/rubato/v10", 1), keep_line,
                      no_end, world);
    struct rb_etcd_watch watch = {0};
    while (!watch.compacted) {
        UNTIL(&world->until, world->answered);
        world->answered = false;
        assert_int_equal(rb_etcd_watch_read(world->answer, &arena, &watch, &why), RB_OK);
    }
    assert_true(watch.canceled);
    assert_int_equal(watch.compacted, now);
    rb_etcd_cancel(call);
    json_decref(world->answer);
    world->answer = NULL;
    rb_arena_done(&arena);
}

static void drop_answer(struct world *world)
{
    json_decref(world->answer);
    world->answer = NULL;
}

static void failover(void **state)
{
    struct world *world = *state;
    struct rb_why why;
    const char *endpoints[] = {"unix:/nowhere/at/all", "http://127.0.0.1:1", world->endpoint};
    UNTIL(&world->until, rb_store_connected(world->store));
    assert_int_equal(rb_etcd_new(&world->until.loop, endpoints, 3, &world->other_etcd, &why),
                     RB_OK);
    world->answered = false;
    rb_etcd_post(world->other_etcd, "/v3/kv/range", rb_etcd_range_text("x", NULL, 0, 0), 5000,
                 on_answer, world);
    UNTIL(&world->until, world->answered);
    assert_int_equal(world->err, RB_OK);
    drop_answer(world);
    world->other = rb_store_new(&world->until.loop, world->other_etcd);
    UNTIL(&world->until, rb_store_connected(world->other));
    rb_store_free(RB_TAKE(world->other));
    rb_etcd_free(RB_TAKE(world->other_etcd));
    assert_int_equal(rb_etcd_new(&world->until.loop, endpoints, 2, &world->other_etcd, &why),
                     RB_OK);
    world->answered = false;
    rb_etcd_post(world->other_etcd, "/v3/kv/range", rb_etcd_range_text("x", NULL, 0, 0), 5000,
                 on_answer, world);
    UNTIL(&world->until, world->answered);
    assert_int_equal(world->err, RB_EUNREACHABLE);
    drop_answer(world);
}

/* Calls that are under way when rubatod stops are answered. */
static void stopped(void **state)
{
    struct world *world = *state;
    struct rb_writes writes = {0};
    UNTIL(&world->until, rb_store_connected(world->store));
    put_cordon(&writes, RB_ABSENT, "a", 1);
    world->answered = false;
    rb_store_commit(world->store, &writes, NULL, on_committed, world);
    rb_writes_done(&writes);
    rb_store_free(RB_TAKE(world->store));
    assert_true(world->answered);
    assert_int_equal(world->err, RB_ECANCELED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], RB_PRIVATE_ETCD_LAUNCH))
        return rb_private_etcd_launch(argc, argv);
    if (access("/usr/bin/etcd", X_OK)) {
        fputs("skipped: etcd-server is not installed\n", stderr);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(guards),
        TEST(fences),
        TEST(limits),
        TEST(leases),
        TEST(killed),
        TEST(compacted),
        TEST(watch_of_the_past),
        TEST(failover),
        TEST(stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
