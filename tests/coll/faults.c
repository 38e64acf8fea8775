/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are killed: the others are told, at once, and none hangs. */
#include "tests/coll/crew.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { VICTIM = 1, OPEN_MS = 300 };

/* How long after a death its notice may come; usually it takes a few milliseconds, and more where
 * other processes keep the cores busy. */
static const uint64_t notice_ns = UINT64_C(15000000000);

enum { DIED_AT, PID, POSTED }; /* words of the board */

static _Noreturn void die(struct crew *crew)
{
    atomic_store(&crew->board->word[DIED_AT], rb_clock_ns());
    raise(SIGKILL);
    _Exit(1);
}

static void check_notice(struct crew *crew)
{
    uint64_t died = atomic_load(&crew->board->word[DIED_AT]), now = rb_clock_ns();

    CREW_CHECK(crew, died && now - died < notice_ns);
}

/* The kernel closes a dead process's sockets one by one. */
static void wait_lost(struct crew *crew, struct rb_coll *coll)
{
    while (!rb_coll_lost(coll, VICTIM))
        check_notice(crew);
}

/* ---- In a sum ---- */

struct doom {
    struct crew *crew;
    struct rb_coll *coll;
    uint64_t bytes;
};

struct dying {
    size_t integers; /* a sum */
    uint64_t bytes;  /* sent before it dies */
};

static void *wait_for_doom(void *data)
{
    struct doom *doom = data;

    while (rb_coll_bytes_sent(doom->coll) < doom->bytes)
        ;
    die(doom->crew);
}

static void sum_until_it_fails(struct crew *crew)
{
    const struct dying *dying = crew->data;
    const size_t n = dying->integers;
    int32_t *in = rb_alloc(4 * n), *out = rb_alloc(4 * n);
    struct doom doom = {crew, NULL, dying->bytes};
    struct rb_why why = {{0}};
    pthread_t thread;
    int err = crew_open(crew, 1, 30000, &doom.coll, &why);

    if (err) { /* the victim had its links, and died while this rank still looked for the others */
        CREW_CHECK(crew, err == RB_EPEER);
        check_notice(crew);
        free(in);
        free(out);
        return;
    }
    if (crew->rank == VICTIM)
        CREW_CHECK(crew, !pthread_create(&thread, NULL, wait_for_doom, &doom));
    /* As workers do: over TCP an end is not seen behind data that nobody reads before all have
     * met. */
    err = rb_coll_gather(doom.coll, 0, in, out, 4, &why);
    for (uint64_t tag = 1; !err; tag++)
        err = rb_coll_sum(doom.coll, tag, in, out, n, &why);
    check_notice(crew);
    CREW_CHECK(crew, err == RB_EPEER && strstr(why.text, "is gone"));
    wait_lost(crew, doom.coll);
    CREW_CHECK(crew, rb_coll_gather(doom.coll, 0, in, out, 4, NULL) == RB_EPEER);
    rb_coll_close(doom.coll);
    free(in);
    free(out);
}

static void killed_in_a_sum(void **state)
{
    static const struct dying dying[] = {{2000000, 0},       {2000000, 1},        {2000000, 100000},
                                         {2000000, 7000000}, {2000000, 40000000}, {30000, 100000},
                                         {30000, 7000000}};
    static const int sizes[] = {2, 3, 5};

    (void)state;
    for (int link = 0; link < CREW_LINKS; link++)
        for (size_t s = 0; s < RB_COUNT(sizes); s++)
            for (size_t i = 0; i < RB_COUNT(dying); i++)
                crew_run(sizes[s], (enum crew_link)link, 1u << VICTIM, sum_until_it_fails,
                         &dying[i]);
}

/* ---- While the others sleep ---- */

static void wait_for_the_dead(struct crew *crew)
{
    struct rb_coll *coll;
    struct rb_why why = {{0}};
    char mine[8] = {0}, all[8 * CREW_MAX];

    CREW_OK(crew, crew_open(crew, 1, 30000, &coll, &why), &why);
    for (uint64_t tag = 0; tag < 3; tag++)
        CREW_OK(crew, rb_coll_gather(coll, tag, mine, all, sizeof mine, &why), &why);
    /* The first rank to come back from this wakes the victim: all others sleep by then, or will. */
    if (crew->rank == VICTIM) {
        CREW_OK(crew, rb_coll_receive(coll, 3, 0, mine, sizeof mine, &why), &why);
        usleep(100000); /* so that the others do sleep; the test passes as well if they do not */
        die(crew);
    }
    if (crew->rank == 0)
        CREW_OK(crew, rb_coll_send(coll, 3, VICTIM, mine, sizeof mine, &why), &why);
    CREW_CHECK(crew, rb_coll_gather(coll, 4, mine, all, sizeof mine, &why) == RB_EPEER);
    check_notice(crew);
    rb_coll_close(coll);
}

static void killed_while_others_sleep(void **state)
{
    (void)state;
    for (int link = 0; link < CREW_LINKS; link++)
        for (int size = 2; size <= 4; size++)
            crew_run(size, (enum crew_link)link, 1u << VICTIM, wait_for_the_dead, NULL);
}

/* A rank that waits for a dead one to take what was posted to it is told. */
static void flush_to_the_dead(struct crew *crew)
{
    enum { MUCH = 20000000 };
    struct rb_coll *coll;
    struct rb_why why = {{0}};
    char *bytes = rb_alloc(MUCH);

    CREW_OK(crew, crew_open(crew, 1, 30000, &coll, &why), &why);
    CREW_OK(crew, rb_coll_gather(coll, 0, bytes, bytes + CREW_MAX, 1, &why), &why);
    if (crew->rank == VICTIM) {
        while (!atomic_load(&crew->board->word[POSTED]))
            usleep(100);
        usleep(20000); /* so that the other waits by then; the test passes as well if it does not */
        die(crew);
    }
    CREW_OK(crew, rb_coll_post(coll, 1, VICTIM, bytes, MUCH, &why), &why);
    atomic_store(&crew->board->word[POSTED], 1);
    CREW_CHECK(crew, rb_coll_flush(coll, &why) == RB_EPEER && strstr(why.text, "is gone"));
    check_notice(crew);
    rb_coll_close(coll);
    free(bytes);
}

static void killed_in_front_of_posts(void **state)
{
    (void)state;
    for (int link = 0; link < CREW_LINKS; link++)
        crew_run(2, (enum crew_link)link, 1u << VICTIM, flush_to_the_dead, NULL);
}

/* A rank that leaves after the last call ends nothing: what it sent still arrives. */
static void leave_early(struct crew *crew)
{
    struct rb_coll *coll;
    struct rb_why why = {{0}};
    char mine[100], all[100 * CREW_MAX];

    memset(mine, 'a' + crew->rank, sizeof mine);
    CREW_OK(crew, crew_open(crew, 1, 30000, &coll, &why), &why);
    /* The last rank gives its part only after all others have left or wait for it alone. */
    if (crew->rank == crew->size - 1)
        usleep(20000);
    CREW_OK(crew, rb_coll_gather(coll, 1, mine, all, sizeof mine, &why), &why);
    for (size_t i = 0; i < sizeof mine * (size_t)crew->size; i++)
        CREW_CHECK(crew, all[i] == (char)('a' + (int)(i / sizeof mine)));
    rb_coll_close(coll);
}

static void leaving_disturbs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        for (int link = 0; link < CREW_LINKS; link++)
            crew_run(4, (enum crew_link)link, 0, leave_early, NULL);
}

/* ---- While the group is opened ---- */

static void check_not_opened(struct crew *crew)
{
    struct rb_coll *coll = NULL;
    struct rb_why why = {{0}};
    int err = crew_open(crew, 1, OPEN_MS, &coll, &why);

    /* Ranks that time out first leave, which the others may see. */
    CREW_CHECK(crew, err == RB_ETIMEOUT || err == RB_EPEER);
    CREW_CHECK(crew, !coll && strstr(why.text, "rank"));
}

static void never_come(struct crew *crew)
{
    if (crew->rank == VICTIM)
        die(crew);
    check_not_opened(crew);
}

static void killed_before_open(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        crew_run(size, CREW_SHARED, 1u << VICTIM, never_come, NULL);
    crew_run(3, CREW_TCP, 1u << VICTIM, never_come, NULL);
}

static void *die_later(void *data)
{
    struct crew *crew = data;

    atomic_store(&crew->board->word[PID], (uint64_t)getpid());
    usleep(*(const unsigned *)crew->data);
    die(crew);
}

static void wait_dead(struct crew *crew)
{
    struct pollfd end = {.events = POLLIN};
    uint64_t pid;

    while (!(pid = atomic_load(&crew->board->word[PID])))
        usleep(100);
    end.fd = pidfd_open((pid_t)pid, 0); /* fails once its parent knows that it is dead */
    if (end.fd >= 0)
        CREW_CHECK(crew, poll(&end, 1, -1) == 1);
}

/* The last rank holds back until the victim, which may be anywhere in its opening, is dead. */
static void come_and_go(struct crew *crew)
{
    struct rb_coll *coll;
    pthread_t thread;

    if (crew->rank == VICTIM) {
        CREW_CHECK(crew, !pthread_create(&thread, NULL, die_later, crew));
        /* The opening fails where the first rank has lost patience before the thread has run. */
        CREW_CHECK(crew, crew_open(crew, 1, 30000, &coll, NULL) != 0);
        pthread_join(thread, NULL);
    }
    if (crew->rank == crew->size - 1)
        wait_dead(crew);
    check_not_opened(crew);
}

static void killed_inside_open(void **state)
{
    static const unsigned delays[] = {0, 50, 100, 200, 400, 800, 1600, 5000};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(delays); i++)
        crew_run(3, i % 2 ? CREW_TCP : CREW_SHARED, 1u << VICTIM, come_and_go, &delays[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_in_a_sum),         cmocka_unit_test(killed_while_others_sleep),
        cmocka_unit_test(leaving_disturbs_nobody), cmocka_unit_test(killed_before_open),
        cmocka_unit_test(killed_inside_open),      cmocka_unit_test(killed_in_front_of_posts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
