/* SPDX-License-Identifier: Apache-2.0 */
/* Circles of the CUDA backend.  Ranks are threads of this process; because they would share a GPU,
 * the tests run only on the stand-in. */
#include "tests/kernels/cuda_tests.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CREW = 3, COUNT = 150000, BYTES = COUNT * 4 };

struct member {
    struct rb_device *device;
    const uint8_t *ticket;
    int rank, size;
    atomic_bool *over;
    int32_t *in, *out;
    int err;
};

struct crew {
    struct member members[CREW];
    uint8_t ticket[RB_CIRCLE_TICKET];
    atomic_bool over;
};

static bool is_over(void *context)
{
    return atomic_load((atomic_bool *)context);
}

static bool is_never(void *context)
{
    (void)context;
    return false;
}

static int32_t number(int rank, int i)
{
    return (int32_t)(0x7fffff00u + (uint32_t)i * (uint32_t)(rank + 1));
}

/* `in` are the rank's numbers, `out` zeros, on the device's side alone. */
static void gather_crew(struct rb_device *device, int size, struct crew *crew)
{
    struct rb_why why = {{0}};

    *crew = (struct crew){.over = false};
    if (!strstr(getenv("RUBATO_CUDA_MODULE") ? getenv("RUBATO_CUDA_MODULE") : "", "cuda-host"))
        skip();
    assert_true(rb_device_circles(device));
    if (rb_circle_ticket(device, crew->ticket, &why))
        fail_msg("%s", why.text);
    for (int r = 0; r < size; r++) {
        struct member *m = &crew->members[r];

        *m = (struct member){.ticket = crew->ticket, .rank = r, .size = size, .over = &crew->over};
        assert_int_equal(rb_device_open("cuda", 0, &m->device, &why), 0);
        m->in = cuda_get(m->device, BYTES);
        m->out = cuda_get(m->device, BYTES);
        for (int i = 0; i < COUNT; i++)
            m->in[i] = number(r, i);
        rb_device_push(m->device, m->in, BYTES);
        memset(m->in, 0xee, BYTES);
    }
}

/* Each rank does its part; then what lies in the devices is pulled. */
static void run_crew(struct crew *crew, void *(*part)(void *member))
{
    pthread_t threads[CREW];
    int size = crew->members[0].size;

    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, part, &crew->members[r]), 0);
    for (int r = 0; r < size; r++) {
        struct member *m = &crew->members[r];

        pthread_join(threads[r], NULL);
        assert_int_equal(m->err, 0);
        rb_device_pull(m->device, m->in, BYTES);
        rb_device_pull(m->device, m->out, BYTES);
    }
}

static void dismiss_crew(struct crew *crew)
{
    for (int r = 0; r < crew->members[0].size; r++) {
        rb_device_free(crew->members[r].device, crew->members[r].in);
        rb_device_free(crew->members[r].device, crew->members[r].out);
        rb_device_close(crew->members[r].device);
    }
}

static struct rb_circle *enter(struct member *m)
{
    struct rb_circle *circle = NULL;
    struct rb_why why = {{0}};
    bool ready = false;

    m->err = rb_circle_enter(m->device, m->ticket, m->rank, m->size, &circle, &why);
    while (!m->err && !ready)
        m->err = rb_circle_ready(circle, &ready, &why);
    return circle;
}

static int sum(struct member *m, struct rb_circle *circle, const int32_t *in, int32_t *out,
               bool (*over)(void *context))
{
    const struct rb_circle_range all = {RB_CIRCLE_ALL, RB_CIRCLE_ALL, 0, COUNT};
    struct rb_why why = {{0}};

    return rb_circle_sum(circle, in, out, &all, 1, over, m->over, &why);
}

/* ---- Sums
 * ---------------------------------------------------------------------------------------*/

/* Sums twice; rank 1 says before a third that it is over. */
static void *sum_up(void *context)
{
    struct member *m = context;
    struct rb_circle *circle = enter(m);

    if (!m->err)
        m->err = sum(m, circle, m->in, m->out, is_over);
    if (!m->err)
        m->err = sum(m, circle, m->out, m->in, is_over);
    if (!m->err && m->rank == 0)
        m->err = sum(m, circle, m->in, m->out, is_over) == RB_EPEER ? 0 : RB_EINTERNAL;
    else
        atomic_store(m->over, true);
    rb_circle_leave(circle);
    return NULL;
}

void circles_sum_and_end(void **state)
{
    struct crew crew;

    gather_crew(*state, 2, &crew);
    run_crew(&crew, sum_up);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < COUNT; i++)
            if ((uint32_t)crew.members[r].in[i] !=
                2 * ((uint32_t)number(0, i) + (uint32_t)number(1, i)))
                fail_msg("rank %d: element %d is %d", r, i, crew.members[r].in[i]);
    dismiss_crew(&crew);
}

/* Ranges that overlap: the second belongs to ranks 1 and 2.  The last is what rank 1 has, for
 * all. */
static const struct rb_circle_range ranges[] = {{RB_CIRCLE_ALL, 0, 0, 70001},
                                                {RB_CIRCLE_ALL, 1, 100001, 20000},
                                                {RB_CIRCLE_ALL, 2, 90000, 60000},
                                                {1, RB_CIRCLE_ALL, 71000, 15000}};

static void *sum_ranges(void *context)
{
    struct member *m = context;
    struct rb_circle *circle = enter(m);
    struct rb_why why = {{0}};

    if (!m->err)
        m->err = rb_circle_sum(circle, m->in, m->out, ranges, 4, is_never, NULL, &why);
    rb_circle_leave(circle);
    return NULL;
}

static bool is_in(const struct rb_circle_range *range, int i)
{
    return (size_t)i >= range->first && (size_t)i < range->first + range->count;
}

void circles_sum_for_some(void **state)
{
    struct crew crew;

    gather_crew(*state, CREW, &crew);
    run_crew(&crew, sum_ranges);
    for (int r = 0; r < CREW; r++)
        for (int i = 0; i < COUNT; i++) {
            uint32_t all = 0, expected = 0;

            for (int k = 0; k < CREW; k++)
                all += (uint32_t)number(k, i);
            if (is_in(&ranges[r], i))
                expected = all;
            else if (is_in(&ranges[3], i))
                expected = (uint32_t)number(1, i);
            if ((uint32_t)crew.members[r].out[i] != expected)
                fail_msg("rank %d: element %d is %d", r, i, crew.members[r].out[i]);
        }
    dismiss_crew(&crew);
}

/* ---- Moves
 * --------------------------------------------------------------------------------------*/

/* Rank 0 gives two ranges to 2 and one to 1, and 2 gives one to 0; 1 has no part in most moves. */
enum { HALF = COUNT / 2, FEW = 1001 };

static void *move_some(void *context)
{
    struct member *m = context;
    bool is[CREW] = {m->rank == 0, m->rank == 1, m->rank == 2};
    const struct rb_circle_move moves[] = {
        {0, 2,
         is[0]   ? m->in
         : is[2] ? m->out
                 : NULL,
         HALF * sizeof *m->in},
        {0, 2,
         is[0]   ? m->in + HALF + 1
         : is[2] ? m->out + HALF + 1
                 : NULL,
         FEW * sizeof *m->in},
        {2, 0,
         is[2]   ? m->in + 3
         : is[0] ? m->out + 3
                 : NULL,
         1},
        {0, 1,
         is[0]   ? m->in
         : is[1] ? m->out
                 : NULL,
         sizeof *m->in},
        {1, 1, is[1] ? m->in : NULL, BYTES},
    };
    struct rb_circle *circle = enter(m);
    struct rb_why why = {{0}};

    if (!m->err)
        m->err = rb_circle_move(circle, moves, 5, is_never, NULL, &why);
    if (!m->err)
        m->err = rb_circle_move(circle, NULL, 0, is_never, NULL, &why);
    rb_circle_leave(circle);
    return NULL;
}

void circles_move(void **state)
{
    struct crew crew;

    gather_crew(*state, CREW, &crew);
    run_crew(&crew, move_some);
    for (int i = 0; i < COUNT; i++) {
        int32_t first = i == 3 ? number(2, i) & 0xff : 0, second = i == 0 ? number(0, i) : 0,
                third = i < HALF || (i > HALF && i <= HALF + FEW) ? number(0, i) : 0;

        if (crew.members[0].out[i] != first || crew.members[1].out[i] != second ||
            crew.members[2].out[i] != third)
            fail_msg("element %d is %d, %d, %d", i, crew.members[0].out[i], crew.members[1].out[i],
                     crew.members[2].out[i]);
    }
    dismiss_crew(&crew);
}

/* ---- Behind a death
 * -----------------------------------------------------------------------------*/

/* Of three ranks, rank 1 dies instead of summing.  The others go on without it, from what they had:
 * they sum, and the last rank gives the first what it had. */
static void *shrink_and_sum(void *context)
{
    struct member *m = context;
    struct rb_circle *circle = enter(m);
    struct rb_why why = {{0}};
    bool ready = false;

    if (m->rank == 1 || m->err) {
        atomic_store(m->over, true);
        rb_circle_leave(circle);
        return NULL;
    }
    if (sum(m, circle, m->in, m->out, is_over) != RB_EPEER)
        m->err = RB_EINTERNAL;
    rb_circle_stop(circle);
    rb_circle_stop(circle);
    if (m->err || rb_circle_shrink(circle, (const int[]){1}, 1, &circle, &why)) {
        m->err = RB_EINTERNAL;
        return NULL;
    }
    while (!m->err && !ready)
        m->err = rb_circle_ready(circle, &ready, &why);
    if (!m->err)
        m->err = sum(m, circle, m->in, m->out, is_never);
    if (!m->err)
        m->err = rb_circle_move(circle, &(struct rb_circle_move){1, 0, m->in, BYTES}, 1, is_never,
                                NULL, &why);
    rb_circle_leave(circle);
    return NULL;
}

void circles_shrink(void **state)
{
    struct crew crew;

    gather_crew(*state, CREW, &crew);
    run_crew(&crew, shrink_and_sum);
    for (int r = 0; r < CREW; r += 2)
        for (int i = 0; i < COUNT; i++)
            if ((uint32_t)crew.members[r].out[i] !=
                    (uint32_t)number(0, i) + (uint32_t)number(2, i) ||
                crew.members[r].in[i] != number(2, i))
                fail_msg("rank %d: element %d is %d, of %d", r, i, crew.members[r].out[i],
                         crew.members[r].in[i]);
    dismiss_crew(&crew);
}
