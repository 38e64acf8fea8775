/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void rb_log(enum rb_log_level level, const char *format, ...)
{
    static const char *const names[] = {"debug", "info ", "warn ", "error"};
    char line[2048], stamp[32];
    uint64_t ms = rb_clock_unix_ms();
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    va_list args;

    gmtime_r(&seconds, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "%s.%03uZ %s %s\n", stamp, (unsigned)(ms % 1000), names[level], line);
}
