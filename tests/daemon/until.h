/* SPDX-License-Identifier: Apache-2.0 */
/* A loop that runs until something holds, and fails the test when it takes too long. */
#ifndef RB_TESTS_DAEMON_UNTIL_H
#define RB_TESTS_DAEMON_UNTIL_H

#include <stdbool.h>
#include <uv.h>

enum { LIMIT_MS = 60000 };

struct until {
    uv_loop_t loop;
    uv_timer_t limit;
    bool late;
};

static inline void until_late(uv_timer_t *timer)
{
    ((struct until *)timer->data)->late = true;
}

static inline void until_open(struct until *until)
{
    uv_loop_init(&until->loop);
    uv_timer_init(&until->loop, &until->limit);
    until->limit.data = until;
}

/* After all else on the loop is being closed: its last callbacks run here. */
static inline int until_close(struct until *until)
{
    uv_close((uv_handle_t *)&until->limit, NULL);
    uv_run(&until->loop, UV_RUN_DEFAULT);
    return uv_loop_close(&until->loop);
}

#define UNTIL(until, condition)                                                                    \
    do {                                                                                           \
        (until)->late = false;                                                                     \
        uv_timer_start(&(until)->limit, until_late, LIMIT_MS, 0);                                  \
        while (!(condition) && !(until)->late)                                                     \
            uv_run(&(until)->loop, UV_RUN_ONCE);                                                   \
        uv_timer_stop(&(until)->limit);                                                            \
        if (!(condition))                                                                          \
            fail_msg("waited for: %s", #condition);                                                \
    } while (0)

static inline void until_over(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

/* Run for `ms`, whatever happens meanwhile. */
static inline void until_passed(struct until *until, uint64_t ms)
{
    uv_timer_t timer;
    bool over = false;

    uv_timer_init(&until->loop, &timer);
    timer.data = &over;
    uv_timer_start(&timer, until_over, ms, 0);
    while (!over)
        uv_run(&until->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&until->loop, UV_RUN_NOWAIT);
}

#endif
