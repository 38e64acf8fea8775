/* SPDX-License-Identifier: Apache-2.0 */
/*   lock, etcd, store ... all parts made, listening
 *        |
 *   waiting for etcd --- not within START_MS (its own: a minute): stop with 69
 *        |           --- another rubatod has the name, and keeps it: stop with 78
 *        |  first list of facts, by which the node's name is ours
 *   running: workers adopted, presence announced
 *        |  SIGTERM, SIGINT
 *   leaving: until the coordinator has taken every worker away, or patience ends: kill them,
 *        |   but for those that save
 *   revoking the lease > freeing the parts > stopping the private etcd > end */
#include "daemon/life.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/version.h"
#include "daemon/agent/agent.h"
#include "daemon/agent/devices.h"
#include "daemon/certificates.h"
#include "daemon/coordinator.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/private_etcd.h"
#include "daemon/http/http.h"
#include "daemon/life_inside.h"
#include "daemon/presence.h"
#include "daemon/room.h"
#include "daemon/service.h"
#include "daemon/settings.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    START_MS = 10000, /* for etcd's first answer, */
    OWN_STARTS = 6,   /* and so many of them where etcd is ours, and makes its files */
    KILLED_MS = 400,  /* for the reports of workers that were killed */
    REVOKE_MS = 400,
    ETCD_STOP_MS = 1500,
    RUN_OUT_MS = 300, /* for handles to close */
    LOOK_MS = 10,
};

/* What a service manager may know. */
static void see(void *context, struct rb_service_seen *ret)
{
    const struct rb_life *life = context;
    const struct rb_daemon *daemon = &life->daemon;

    ret->node = life->settings->node;
    ret->devices = life->devices ? life->devices->n : 0;
    ret->leaving = life->leaving || life->ending;
    ret->leave_ms = rb_settings_leave_ms(life->settings);
    if (!life->running || life->ending) /* not all parts are there yet, or any more */
        return;
    ret->started = true;
    ret->workers = rb_agent_workers(daemon->agent);
    ret->connected = rb_store_connected(daemon->store);
    ret->ready = rb_presence_announced(life->presence);
    ret->leads = rb_coordinator_leads(daemon->coordinator);
}

/* ---- Stopping -------------------------------------------------------------------------------- */

static void close_handles(void *context)
{
    struct rb_life *life = context;
    rb_private_etcd_free(life->private_etcd);
    life->private_etcd = NULL;
    rb_service_free(life->service);
    uv_close((uv_handle_t *)&life->timer, NULL);
    for (size_t i = 0; i < RB_COUNT(life->signals); i++)
        uv_close((uv_handle_t *)&life->signals[i], NULL);
    uv_stop(&life->loop);
}

/* Runs what is left to be called back.  false: a model is compiled or profiled still, which cannot
 * be broken off. */
static bool run_out(uv_loop_t *loop)
{
    const uint64_t until = rb_clock_ns() + (uint64_t)RUN_OUT_MS * 1000000;
    const struct timespec pause = {0, 1000000};

    while (uv_run(loop, UV_RUN_NOWAIT)) {
        if (rb_clock_ns() >= until)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static void free_parts(uv_timer_t *timer)
{
    struct rb_life *life = timer->data;
    rb_life_free_parts(life);
    if (life->private_etcd)
        rb_private_etcd_stop(life->private_etcd, ETCD_STOP_MS, close_handles, life);
    else
        close_handles(life);
}

static void on_revoked(void *context)
{
    struct rb_life *life = context;
    uv_timer_start(&life->timer, free_parts, 0, 0);
}

static void end(struct rb_life *life)
{
    if (life->ending)
        return;
    life->ending = true;
    rb_service_look(life->service);
    if (life->daemon.server)
        rb_server_close(life->daemon.server);
    if (life->daemon.agent)
        rb_agent_stop(life->daemon.agent);
    if (life->presence)
        rb_presence_end(life->presence, REVOKE_MS, on_revoked, life);
    else
        on_revoked(life);
}

static void fail(struct rb_life *life, int status, const char *text)
{
    rb_log(RB_LOG_ERROR, "%s", text);
    life->status = status;
    end(life);
}

static void look_whether_left(uv_timer_t *timer)
{
    struct rb_life *life = timer->data;
    uint64_t now = uv_now(&life->loop);
    if (rb_agent_idle(life->daemon.agent)) {
        end(life);
    } else if (now >= life->until && !life->killed) {
        size_t all = rb_agent_workers(life->daemon.agent);
        size_t saving = rb_agent_kill_all(life->daemon.agent);
        if (all > saving)
            rb_log(RB_LOG_WARN, "%zu workers did not leave in time and are killed", all - saving);
        if (saving)
            rb_log(RB_LOG_WARN,
                   "%zu workers still save the state of their jobs, and go on without rubatod",
                   saving);
        life->killed = true;
        life->until = now + KILLED_MS;
    } else if (now >= life->until) {
        end(life);
    }
}

/* The name is this node's: adopt its workers, and follow facts. */
static void run(struct rb_life *life)
{
    struct rb_why why = {0};
    life->running = true;
    uv_timer_stop(&life->timer);
    if (rb_agent_start(life->daemon.agent, &why))
        fail(life, RB_EXIT_UNAVAILABLE, why.text);
    else
        rb_log(RB_LOG_INFO, "rubatod %s: node %s, %zu device%s, %s%s%s", RUBATO_VERSION,
               life->settings->node, life->devices->n, life->devices->n == 1 ? "" : "s",
               life->settings->state_dir, life->devices->missing ? "; " : "",
               life->devices->missing ? life->devices->missing : "");
}

static void leave(struct rb_life *life)
{
    if (life->leaving)
        return;
    life->leaving = true;
    rb_service_look(life->service);
    /* Workers of ours may live, though etcd has not taken the name yet. */
    if (!life->running && life->presence && rb_store_synced(life->daemon.store) &&
        rb_presence_name(life->presence) != RB_NAME_ANOTHERS)
        run(life);
    if (!life->running || life->ending) {
        end(life);
        return;
    }
    rb_log(RB_LOG_INFO, "stopping: %zu workers are to leave", rb_agent_workers(life->daemon.agent));
    if (life->http)
        rb_http_leave(life->http);
    rb_presence_leave(life->presence, rb_settings_leave_ms(life->settings));
    life->until = uv_now(&life->loop) + rb_settings_leave_ms(life->settings);
    uv_timer_start(&life->timer, look_whether_left, 0, LOOK_MS);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    leave(handle->data);
}

/* ---- Starting -------------------------------------------------------------------------------- */

void rb_life_on_taken(void *context)
{
    struct rb_life *life = context;
    RB_CLEANUP(rb_freep)
    char *text = rb_format("another rubatod is node '%s' of this cluster: give this one another "
                           "--node NAME",
                           life->settings->node);
    fail(life, RB_EXIT_CONFIG, text);
}

static void on_start(uv_timer_t *timer)
{
    struct rb_life *life = timer->data;
    if (life->ending)
        return;
    if (rb_store_synced(life->daemon.store)) { /* and the name is not ours yet */
        if (rb_presence_name(life->presence) == RB_NAME_ANOTHERS)
            uv_timer_start(timer, on_start, START_MS, 0);
        else
            run(life); /* etcd takes no writes, and workers may wait for their agent */
        return;
    }
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/etcd", life->settings->state_dir);
    struct rb_why room = {0};
    if (life->private_etcd && rb_room_check(folder, RB_ROOM_ETCD, &room)) {
        rb_why_add(&room, RB_EFULL, "etcd cannot run");
        fail(life, RB_EXIT_UNAVAILABLE, room.text);
        return;
    }
    if (life->private_etcd && ++life->starts < OWN_STARTS) {
        rb_log(RB_LOG_WARN, "etcd does not answer yet: the disk may be slow");
        uv_timer_start(timer, on_start, START_MS, 0);
        return;
    }
    RB_CLEANUP(rb_freep)
    char *text = rb_format("no etcd answers at %s: is it running?%s%s%s", rb_etcd_names(life->etcd),
                           life->private_etcd ? " (see " : "",
                           life->private_etcd ? life->settings->state_dir : "",
                           life->private_etcd ? "/etcd/etcd.log)" : "");
    fail(life, RB_EXIT_UNAVAILABLE, text);
}

/* The first facts are here: only now is it known which workers are wanted.  But while another
 * rubatod has this node's name, its workers are not ours: we would report them as dead. */
void rb_life_on_facts(void *context)
{
    struct rb_life *life = context;
    if (!life->running && !life->ending && rb_store_synced(life->daemon.store) &&
        rb_presence_name(life->presence) == RB_NAME_OURS)
        run(life);
}

static void catch_signals(struct rb_life *life)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < RB_COUNT(life->signals); i++) {
        uv_signal_init(&life->loop, &life->signals[i]);
        life->signals[i].data = life;
        if (numbers[i] == SIGHUP && rb_signal_ignored(SIGHUP))
            continue; /* nohup */
        uv_signal_start(&life->signals[i], on_signal, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
}

int rb_life(const Rb__DaemonSettings *settings)
{
    struct rb_life *life = rb_alloc(sizeof(*life));
    struct rb_why why = {0};
    int loop = uv_loop_init(&life->loop);
    if (loop) { /* nothing of it may be used, nor closed */
        rb_log(RB_LOG_ERROR, "cannot make an event loop: %s", uv_strerror(loop));
        free(life);
        return RB_EXIT_UNAVAILABLE;
    }
    life->settings = settings;
    life->lock = -1;
    uv_timer_init(&life->loop, &life->timer);
    life->timer.data = life;
    catch_signals(life);
    life->service = rb_service_new(&life->loop, see, life);
    life->daemon.certificates = rb_certificates_new(&life->loop);
    int err = rb_life_lock(life, &why);
    int status = err == RB_EEXISTS ? RB_EXIT_CONFIG : RB_EXIT_UNAVAILABLE;
    if (!err)
        err = rb_life_find_devices(life, &why);
    if (!err)
        err = rb_life_reach_etcd(life, &why);
    if (!err)
        err = rb_life_make_parts(life, &why);
    if (err == RB_EFULL) /* what could not be written is known; now how full the disk is */
        rb_room_check(life->settings->state_dir, RB_ROOM_STATE, &why);
    if (err) {
        fail(life, status, why.text);
    } else {
        uv_update_time(&life->loop); /* finding devices may take long, and is not etcd's time */
        uv_timer_start(&life->timer, on_start, START_MS, 0);
    }
    uv_run(&life->loop, UV_RUN_DEFAULT);
    status = life->status;
    if (!run_out(&life->loop))
        _exit(status); /* and with it the thread that compiles or profiles */
    uv_loop_close(&life->loop);
    if (life->lock >= 0)
        close(life->lock);
    free(life->numeric_class);
    rb_devices_free(life->devices);
    free(life);
    return status;
}
