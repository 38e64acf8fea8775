/* SPDX-License-Identifier: Apache-2.0 */
/*   known id -----> keeping <---------- granting
 *                     |   \  gone          ^
 *                     |    +---------------+
 *   any failure: wait (back-off), then the same again */
#include "daemon/etcd/lease.h"

#include "base/arena.h"
#include "base/log.h"
#include "daemon/etcd/backoff.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

struct rb_lease {
    uv_timer_t timer;
    struct rb_etcd *etcd;
    int64_t ttl_s;
    int64_t id;      /* 0: to be granted */
    bool confirmed;  /* etcd has said that `id` lives */
    bool over;       /* revoked: nothing more is asked */
    bool complained; /* logged that a grant was refused */
    struct rb_etcd_call *call;
    struct rb_backoff backoff;
    void (*changed)(int64_t id, void *context);
    void *context;
    void (*revoked)(void *context);
    void *revoked_context;
};

static void step(uv_timer_t *timer);

static void again(struct rb_lease *lease, uint64_t ms)
{
    uv_timer_start(&lease->timer, step, ms, 0);
}

static uint64_t beat(const struct rb_lease *lease)
{
    return (uint64_t)lease->ttl_s * 1000 / 3;
}

static void on_granted(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_lease *lease = context;
    struct rb_etcd_lease granted = {0};
    struct rb_why reason = why ? *why : (struct rb_why){0};
    lease->call = NULL;
    if (!err)
        err = rb_etcd_lease_read(answer, &granted, &reason);
    if (err && err != RB_EUNREACHABLE && err != RB_ETIMEOUT && !lease->complained) {
        lease->complained = true;
        rb_log(RB_LOG_ERROR,
               "etcd gives this node no lease, without which it is not known: %s; "
               "trying again",
               reason.text);
    }
    if (err || !granted.id) {
        again(lease, rb_backoff_next(&lease->backoff));
        return;
    }
    rb_backoff_reset(&lease->backoff);
    lease->complained = false;
    lease->id = granted.id;
    lease->confirmed = true;
    again(lease, beat(lease));
    lease->changed(lease->id, lease->context);
}

static void on_kept(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_lease *lease = context;
    struct rb_etcd_lease kept = {0};
    struct rb_why ignored;
    (void)why;
    lease->call = NULL;
    if (!err)
        err = rb_etcd_lease_read(answer, &kept, &ignored);
    if (err && err != RB_ENOTFOUND) {
        again(lease, rb_backoff_next(&lease->backoff));
        return;
    }
    rb_backoff_reset(&lease->backoff);
    if (kept.ttl_s > 0) {
        bool news = !lease->confirmed;
        lease->confirmed = true;
        again(lease, beat(lease));
        if (news)
            lease->changed(lease->id, lease->context);
        return;
    }
    bool had = lease->confirmed;
    if (had)
        rb_log(RB_LOG_WARN, "the lease %" PRIx64 " was lost; asking for another", lease->id);
    lease->id = 0;
    lease->confirmed = false;
    again(lease, 0);
    if (had)
        lease->changed(0, lease->context);
}

static void step(uv_timer_t *timer)
{
    struct rb_lease *lease = timer->data;
    if (lease->over || lease->call)
        return;
    uint64_t timeout = beat(lease);
    if (lease->id)
        lease->call = rb_etcd_post(lease->etcd, "/v3/lease/keepalive",
                                   rb_etcd_lease_text(lease->id), timeout, on_kept, lease);
    else
        lease->call = rb_etcd_post(lease->etcd, "/v3/lease/grant", rb_etcd_grant_text(lease->ttl_s),
                                   timeout, on_granted, lease);
}

struct rb_lease *rb_lease_new(uv_loop_t *loop, struct rb_etcd *etcd, int64_t ttl_s, int64_t known,
                              void (*changed)(int64_t id, void *context), void *context)
{
    struct rb_lease *lease = rb_alloc(sizeof(*lease));
    lease->etcd = etcd;
    lease->ttl_s = ttl_s;
    lease->id = known;
    lease->changed = changed;
    lease->context = context;
    uv_timer_init(loop, &lease->timer);
    lease->timer.data = lease;
    again(lease, 0);
    return lease;
}

int64_t rb_lease_id(const struct rb_lease *lease)
{
    return lease->confirmed ? lease->id : 0;
}

int64_t rb_lease_known(const struct rb_lease *lease)
{
    return lease->id;
}

static void on_revoked(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_lease *lease = context;
    (void)err;
    (void)why;
    (void)answer;
    lease->call = NULL;
    lease->id = 0;
    lease->revoked(lease->revoked_context);
}

static void revoked_at_once(uv_timer_t *timer)
{
    struct rb_lease *lease = timer->data;
    lease->revoked(lease->revoked_context);
}

void rb_lease_revoke(struct rb_lease *lease, uint64_t timeout_ms, void (*done)(void *context),
                     void *context)
{
    rb_etcd_cancel(lease->call);
    lease->call = NULL;
    lease->over = true;
    lease->revoked = done;
    lease->revoked_context = context;
    if (lease->id)
        lease->call = rb_etcd_post(lease->etcd, "/v3/lease/revoke", rb_etcd_lease_text(lease->id),
                                   timeout_ms, on_revoked, lease);
    else
        uv_timer_start(&lease->timer, revoked_at_once, 0, 0);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void rb_lease_free(struct rb_lease *lease)
{
    if (!lease)
        return;
    rb_etcd_cancel(lease->call);
    uv_close((uv_handle_t *)&lease->timer, on_closed);
}
