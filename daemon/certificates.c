/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/certificates.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/tls.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 5000, LATE_S = 14 * 24 * 3600, DATE = 32 };

struct certificate {
    const char *option, *meanwhile;
    char *folder, *host;
    struct rb_tls *tls;
    bool unfit, told;            /* its files were so at the last look; that has been said */
    enum rb_certificate_age age; /* that was told of last */
};

struct rb_certificates {
    uv_timer_t timer;
    struct certificate at[RB_CERTIFICATES];
    size_t n;
};

enum rb_certificate_age rb_certificate_age(int64_t from, int64_t until, int64_t now)
{
    const int64_t left = until - now;

    if (left <= 0)
        return RB_CERTIFICATE_EXPIRED;
    return left < LATE_S && left < (until - from) / 10 ? RB_CERTIFICATE_LATE : RB_CERTIFICATE_GOOD;
}

/* "2027-01-31 12:00 UTC" */
static char *date(int64_t seconds, char ret[DATE])
{
    time_t then = seconds;
    struct tm parts;

    if (!gmtime_r(&then, &parts) || !strftime(ret, DATE, "%Y-%m-%d %H:%M UTC", &parts))
        strcpy(ret, "a time that has no date");
    return ret;
}

static void tell_age(struct certificate *certificate)
{
    int64_t from, until;
    char text[DATE];
    enum rb_certificate_age age;

    rb_tls_valid(certificate->tls, &from, &until);
    age = rb_certificate_age(from, until, (int64_t)(rb_clock_unix_ms() / 1000));
    if (age != certificate->age && age == RB_CERTIFICATE_LATE)
        rb_log(RB_LOG_WARN, "%s: what is in %s expires at %s: put new files there in time",
               certificate->option, certificate->folder, date(until, text));
    else if (age != certificate->age && age == RB_CERTIFICATE_EXPIRED)
        rb_log(RB_LOG_ERROR, "%s: what is in %s has expired at %s: others refuse this node",
               certificate->option, certificate->folder, date(until, text));
    certificate->age = age;
}

static void tell_new(const struct certificate *certificate)
{
    int64_t from, until;
    char text[DATE];
    struct rb_why why = {0};

    rb_tls_valid(certificate->tls, &from, &until);
    if (certificate->host && rb_tls_serves(certificate->tls, certificate->host, &why))
        rb_log(RB_LOG_ERROR, "%s: there are new files, which others refuse: %s",
               certificate->option, why.text);
    else
        rb_log(RB_LOG_INFO, "%s: there are new files in %s, which count now, until %s",
               certificate->option, certificate->folder, date(until, text));
}

/* Files that are being replaced may not belong together: they are told of when two looks in a row
 * find them unfit. */
static void look_at(struct certificate *certificate)
{
    struct rb_why why = {0};
    bool new;
    int err = rb_tls_renew(certificate->tls, &new, &why);

    if (new)
        tell_new(certificate);
    if (err && certificate->unfit && !certificate->told)
        rb_log(RB_LOG_ERROR, "%s: the files that are there now do not do: %s; %s",
               certificate->option, why.text, certificate->meanwhile);
    certificate->told = err && certificate->unfit;
    certificate->unfit = err;
    tell_age(certificate);
}

static void look(uv_timer_t *timer)
{
    struct rb_certificates *certificates = timer->data;

    for (size_t i = 0; i < certificates->n; i++)
        look_at(&certificates->at[i]);
}

struct rb_certificates *rb_certificates_new(uv_loop_t *loop)
{
    struct rb_certificates *certificates = rb_alloc(sizeof(*certificates));

    uv_timer_init(loop, &certificates->timer);
    certificates->timer.data = certificates;
    return certificates;
}

int rb_certificates_add(struct rb_certificates *certificates, const char *option,
                        const char *folder, const char *host, const char *meanwhile,
                        struct rb_why *why)
{
    struct certificate *added = &certificates->at[certificates->n];
    struct rb_tls *tls;
    int err = rb_tls_new(folder, &tls, why);

    if (err)
        return err;
    *added = (struct certificate){
        .option = option,
        .meanwhile = meanwhile,
        .folder = rb_string(folder),
        .host = host ? rb_string(host) : NULL,
        .tls = tls,
    };
    certificates->n++;
    uv_timer_start(&certificates->timer, look, 0, LOOK_MS);
    return 0;
}

size_t rb_certificates_list(const struct rb_certificates *certificates,
                            struct rb_certificate ret[RB_CERTIFICATES])
{
    for (size_t i = 0; i < certificates->n; i++) {
        int64_t from;

        ret[i].option = certificates->at[i].option;
        rb_tls_valid(certificates->at[i].tls, &from, &ret[i].until);
    }
    return certificates->n;
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_certificates *certificates = handle->data;

    for (size_t i = 0; i < certificates->n; i++) {
        rb_tls_free(certificates->at[i].tls);
        free(certificates->at[i].folder);
        free(certificates->at[i].host);
    }
    free(certificates);
}

void rb_certificates_free(struct rb_certificates *certificates)
{
    if (certificates)
        uv_close((uv_handle_t *)&certificates->timer, on_closed);
}
