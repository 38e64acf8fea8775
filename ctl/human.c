/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/human.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* Three significant digits, and the unit. */
static char *scaled(double x, double base, const char *const *units, int n, char *ret)
{
    int i = 0;

    while (fabs(x) >= base - 0.5 && i + 1 < n) {
        x /= base;
        i++;
    }
    snprintf(ret, RB_HUMAN_SIZE, "%.*f%s",
             i == 0 || fabs(x) >= 99.95 ? 0
             : fabs(x) >= 9.995         ? 1
                                        : 2,
             x, units[i]);
    return ret;
}

char *rb_human_count(double x, char ret[RB_HUMAN_SIZE])
{
    static const char *const units[] = {"", " k", " M", " G", " T"};

    return scaled(x, 1000, units, 5, ret);
}

char *rb_human_bytes(double bytes, char ret[RB_HUMAN_SIZE])
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};

    return scaled(bytes, 1024, units, 5, ret);
}

char *rb_human_span(double seconds, char ret[RB_HUMAN_SIZE])
{
    long long s = seconds < 0 ? 0 : seconds < 1e12 ? llround(seconds) : 1000000000000;

    if (s < 60)
        snprintf(ret, RB_HUMAN_SIZE, "%llds", s);
    else if (s < 3600)
        snprintf(ret, RB_HUMAN_SIZE, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(ret, RB_HUMAN_SIZE, "%lldh%02lldm", s / 3600, s % 3600 / 60);
    else
        snprintf(ret, RB_HUMAN_SIZE, "%lldd%02lldh", s / 86400, s % 86400 / 3600);
    return ret;
}

char *rb_human_time(uint64_t unix_ms, char ret[RB_HUMAN_SIZE])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;

    if (!gmtime_r(&seconds, &parts) || !strftime(ret, RB_HUMAN_SIZE, "%Y-%m-%d %H:%M:%S", &parts))
        snprintf(ret, RB_HUMAN_SIZE, "-");
    return ret;
}

char *rb_human_real(double x, char ret[RB_HUMAN_SIZE])
{
    double size = fabs(x);

    if (x == 0 || (size >= 0.01 && size < 1e6))
        snprintf(ret, RB_HUMAN_SIZE, "%.*f", size >= 1000 ? 1 : 4, x);
    else
        snprintf(ret, RB_HUMAN_SIZE, "%.4g", x);
    return ret;
}

char *rb_human_plain(char *text)
{
    for (char *at = text; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    }
    return text;
}
