/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t rb_clock_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t rb_clock_unix_ms(void)
{
    return read_ns(CLOCK_REALTIME) / 1000000u;
}

uint64_t rb_clock_thread_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

char *rb_clock_text(uint64_t unix_ms, char ret[RB_CLOCK_TEXT])
{
    unsigned second = (unsigned)(unix_ms / 1000 % 86400);

    snprintf(ret, RB_CLOCK_TEXT, "%02u:%02u:%02u UTC", second / 3600, second / 60 % 60,
             second % 60);
    return ret;
}
