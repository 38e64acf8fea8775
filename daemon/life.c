/* SPDX-License-Identifier: Apache-2.0 */
/*   lock, etcd, store ... all parts made, listening
 *        |
 *   waiting for etcd --- not within START_MS (its own: a minute): stop with 69
 *        |  first list of facts
 *   running: workers adopted, presence announced
 *        |  SIGTERM, SIGINT
 *   leaving: until the coordinator has taken every worker away, or patience ends: kill them, but
 * for those who save
 *        |
 *   revoking the lease > freeing the parts > stopping the private etcd > end */
#include "daemon/life.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "daemon/agent/agent.h"
#include "daemon/agent/devices.h"
#include "daemon/agent/health.h"
#include "daemon/agent/links.h"
#include "daemon/agent/notice.h"
#include "daemon/agent/spawn.h"
#include "daemon/certificates.h"
#include "daemon/coordinator.h"
#include "daemon/daemon.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/private_etcd.h"
#include "daemon/http/http.h"
#include "daemon/planner.h"
#include "daemon/presence.h"
#include "daemon/room.h"
#include "daemon/rpc/methods.h"
#include "daemon/service.h"
#include "daemon/settings.h"
#include "proto/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum {
    START_MS = 10000, /* for etcd's first answer, */
    OWN_STARTS = 6,   /* and so often where it is ours, and makes its files */
    KILLED_MS = 400,  /* for the reports of workers that were killed */
    REVOKE_MS = 400,
    ETCD_STOP_MS = 1500,
    RUN_OUT_MS = 300, /* for handles to close */
    LOOK_MS = 10,
};

struct life {
    uv_loop_t loop;
    const Rb__DaemonSettings *settings;
    struct rb_daemon daemon;
    struct rb_private_etcd *private_etcd;
    unsigned starts; /* for which it was waited */
    struct rb_etcd *etcd;
    struct rb_presence *presence;
    struct rb_notice *notice;
    struct rb_health *health;
    struct rb_http *http;
    struct rb_service *service;
    uv_timer_t timer; /* of the stage */
    uv_signal_t signals[3];
    char *numeric_class;
    struct rb_devices *devices;
    int lock;
    int status; /* exit */
    bool running, leaving, killed, ending;
    uint64_t until;
};

/* What a service manager may know. */
static void see(void *context, struct rb_service_seen *ret)
{
    const struct life *life = context;
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
    struct life *life = context;
    rb_private_etcd_free(life->private_etcd);
    life->private_etcd = NULL;
    rb_service_free(life->service);
    uv_close((uv_handle_t *)&life->timer, NULL);
    for (size_t i = 0; i < RB_COUNT(life->signals); i++)
        uv_close((uv_handle_t *)&life->signals[i], NULL);
    uv_stop(&life->loop);
}

/* What is left to be called back.  false: a model is compiled or profiled still, which cannot be
 * broken off. */
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

/* The store first: it tells everyone that their commits are cancelled. */
static void free_parts(uv_timer_t *timer)
{
    struct life *life = timer->data;
    rb_http_free(life->http); /* it looks at facts */
    rb_store_free(life->daemon.store);
    rb_coordinator_free(life->daemon.coordinator);
    rb_planner_free(life->daemon.planner);
    rb_methods_free(life->daemon.methods);
    rb_agent_free(life->daemon.agent);
    rb_blobs_close(life->daemon.blobs);
    rb_server_free(life->daemon.server);
    rb_notice_free(life->notice);
    rb_links_free(life->daemon.links);
    rb_health_free(life->health);
    rb_presence_free(life->presence);
    rb_certificates_free(life->daemon.certificates);
    rb_etcd_free(life->etcd);
    if (life->private_etcd)
        rb_private_etcd_stop(life->private_etcd, ETCD_STOP_MS, close_handles, life);
    else
        close_handles(life);
}

static void on_revoked(void *context)
{
    struct life *life = context;
    uv_timer_start(&life->timer, free_parts, 0, 0);
}

static void end(struct life *life)
{
    if (life->ending)
        return;
    life->ending = true;
    rb_service_look(life->service);
    if (life->daemon.server)
        rb_server_close(life->daemon.server);
    if (life->presence)
        rb_presence_end(life->presence, REVOKE_MS, on_revoked, life);
    else
        on_revoked(life);
}

static void look_whether_left(uv_timer_t *timer)
{
    struct life *life = timer->data;
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

static void leave(struct life *life)
{
    if (life->leaving)
        return;
    life->leaving = true;
    rb_service_look(life->service);
    if (!life->running) {
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

static void fail(struct life *life, int status, const char *text)
{
    rb_log(RB_LOG_ERROR, "%s", text);
    life->status = status;
    end(life);
}

/* ---- Starting -------------------------------------------------------------------------------- */

static void on_taken(void *context)
{
    struct life *life = context;
    RB_CLEANUP(rb_freep)
    char *text = rb_format("another rubatod is node '%s' of this cluster: give this one another "
                           "--node NAME",
                           life->settings->node);
    fail(life, RB_EXIT_CONFIG, text);
}

static void on_no_etcd(uv_timer_t *timer)
{
    struct life *life = timer->data;
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/etcd", life->settings->state_dir);
    struct rb_why room = {0};
    if (life->private_etcd && rb_room_check(folder, RB_ROOM_ETCD, &room)) {
        rb_why_add(&room, RB_EFULL, "etcd cannot run");
        fail(life, RB_EXIT_UNAVAILABLE, room.text);
        return;
    }
    if (life->private_etcd && ++life->starts < OWN_STARTS) {
        rb_log(RB_LOG_WARN, "etcd does not answer yet: the disk may be slow");
        uv_timer_start(timer, on_no_etcd, START_MS, 0);
        return;
    }
    RB_CLEANUP(rb_freep)
    char *text = rb_format("no etcd answers at %s: is it running?%s%s%s", rb_etcd_names(life->etcd),
                           life->private_etcd ? " (see " : "",
                           life->private_etcd ? life->settings->state_dir : "",
                           life->private_etcd ? "/etcd/etcd.log)" : "");
    fail(life, RB_EXIT_UNAVAILABLE, text);
}

/* The first facts are here: only now can be told which workers are wanted. */
static void on_facts(void *context)
{
    struct life *life = context;
    struct rb_why why = {0};
    if (life->running || life->ending || !rb_store_synced(life->daemon.store))
        return;
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

static int lock_state(struct life *life, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/lock", life->settings->state_dir);
    int err = rb_file_make_folder(life->settings->state_dir, RB_FOLDER_OWN, why);
    if (err)
        return err;
    life->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (life->lock < 0)
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", path, strerror(errno));
    if (flock(life->lock, LOCK_EX | LOCK_NB))
        return rb_why_set(why, RB_EEXISTS,
                          "another rubatod is using the state folder %s: stop it, or give this "
                          "one another --state-dir",
                          life->settings->state_dir);
    return RB_OK;
}

static int find_devices(struct life *life, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *program = rb_program_beside("rubato-worker");
    const char *arguments[] = {program, "--numeric-class", "cpu", NULL};
    int err = rb_program_line(program, arguments, &life->numeric_class, why);
    if (err)
        return err == RB_ENOTFOUND ? rb_why_add(why, err, "rubato-worker must lie beside rubatod")
                                   : err;
    life->devices = rb_devices_new(program, life->settings->cpu_devices);
    life->daemon.numeric_class = life->numeric_class;
    life->daemon.devices = life->devices;
    if (!life->devices->n)
        rb_log(RB_LOG_WARN,
               "this node has no device, and nothing will run on it: --cpu-devices 0, %s",
               life->devices->missing ? life->devices->missing : "and no GPU");
    return RB_OK;
}

static int reach_etcd(struct life *life, struct rb_why *why)
{
    const char *endpoint = NULL;
    if (!life->settings->single_node) {
        int err = rb_etcd_new(&life->loop, (const char *const *)life->settings->etcd,
                              life->settings->n_etcd, &life->etcd, why);
        if (!err && life->settings->etcd_tls) {
            err = rb_etcd_secure(life->etcd, life->settings->etcd_tls, why);
            if (err)
                rb_why_add(why, err, "--etcd-tls");
            else /* which may have no certificate: etcd need not ask for one */
                rb_certificates_add(life->daemon.certificates, "--etcd-tls",
                                    life->settings->etcd_tls, NULL,
                                    "etcd may not take this node's calls", NULL);
        }
        return err;
    }
    RB_CLEANUP(rb_freep) char *self = rb_program_self();
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/etcd", life->settings->state_dir);
    int err = rb_private_etcd_start(&life->loop, self, folder, &endpoint, &life->private_etcd, why);
    return err ? err : rb_etcd_new(&life->loop, &endpoint, 1, &life->etcd, why);
}

static int secure(struct life *life, struct rb_why *why)
{
    const Rb__DaemonSettings *settings = life->settings;
    RB_CLEANUP(rb_freep) char *host = NULL;
    struct rb_tls *tls = NULL;
    int err = settings->tls ? rb_tls_new(settings->tls, &tls, why) : RB_OK;
    if (!err && tls)
        err = rb_tls_serves(tls, host = rb_settings_host(settings), why);
    if (!err && tls)
        err = rb_certificates_add(life->daemon.certificates, "--tls", settings->tls, host,
                                  "those before them serve on", why);
    if (err) {
        rb_tls_free(tls);
        return rb_why_add(why, err, "--tls");
    }
    rb_server_secure(life->daemon.server, tls);
    return RB_OK;
}

static int listen_all(struct life *life, char *ret_address, struct rb_why *why)
{
    struct rb_server *server = life->daemon.server;
    RB_CLEANUP(rb_freep)
    char *local = rb_format("unix:%s/rubatod.sock", life->settings->state_dir);
    int err = rb_server_listen(server, local, ret_address, why);
    if (!err && life->settings->listen) {
        RB_CLEANUP(rb_freep)
        char *far = rb_format("%s:%s", life->settings->tls ? "tls" : "tcp", life->settings->listen);
        err = rb_server_listen(server, far, ret_address, why);
        if (err)
            rb_why_add(why, err, "--listen");
    }
    return err;
}

static int serve_http(struct life *life, struct rb_why *why)
{
    const char *address = life->settings->http;
    if (!address)
        return RB_OK;
    int err = rb_http_new(&life->daemon, life->presence, address, &life->http, why);
    if (err)
        return rb_why_add(why, err, "--http");
    rb_presence_serves(life->presence, rb_http_taken(life->http));
    rb_log(RB_LOG_INFO, "status page, health and metrics at http://%s", rb_http_taken(life->http));
    return RB_OK;
}

static void on_link_measured(void *context)
{
    struct life *life = context;
    rb_presence_look(life->presence);
}

static int make_parts(struct life *life, struct rb_why *why)
{
    struct rb_daemon *daemon = &life->daemon;
    RB_CLEANUP(rb_freep) char *blobs = rb_format("%s/blobs", life->settings->state_dir);
    char address[128];
    daemon->loop = &life->loop;
    daemon->settings = life->settings;
    daemon->store = rb_store_new(&life->loop, life->etcd);
    daemon->server = rb_server_new(&life->loop, daemon->store, life->settings->node);
    int err = secure(life, why);
    err = err ? err : rb_blobs_open(&life->loop, blobs, &daemon->blobs, why);
    if (err)
        return err;
    daemon->planner = rb_planner_new(daemon);
    daemon->coordinator = rb_coordinator_new(daemon);
    daemon->agent = rb_agent_new(daemon);
    daemon->methods = rb_methods_new(daemon);
    err = listen_all(life, address, why);
    if (err)
        return err;
    life->presence = rb_presence_new(daemon, life->etcd, address);
    daemon->links = rb_links_new(daemon, on_link_measured, life);
    rb_presence_on_taken(life->presence, on_taken, life);
    rb_store_watch(daemon->store, on_facts, life);
    life->notice = rb_notice_new(daemon);
    life->health = rb_health_new(&life->loop, life->devices, life->presence);
    return serve_http(life, why);
}

static void catch_signals(struct life *life)
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
    struct life *life = rb_alloc(sizeof(*life));
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
    int err = lock_state(life, &why);
    int status = err == RB_EEXISTS ? RB_EXIT_CONFIG : RB_EXIT_UNAVAILABLE;
    if (!err)
        err = find_devices(life, &why);
    if (!err)
        err = reach_etcd(life, &why);
    if (!err)
        err = make_parts(life, &why);
    if (err == RB_EFULL) /* what could not be written is known; now how full it is */
        rb_room_check(life->settings->state_dir, RB_ROOM_STATE, &why);
    if (err) {
        fail(life, status, why.text);
    } else {
        uv_update_time(&life->loop); /* finding devices may take long, and is not etcd's time */
        uv_timer_start(&life->timer, on_no_etcd, START_MS, 0);
    }
    uv_run(&life->loop, UV_RUN_DEFAULT);
    status = life->status;
    if (!run_out(&life->loop))
        _exit(status); /* with the thread that does it */
    uv_loop_close(&life->loop);
    if (life->lock >= 0)
        close(life->lock);
    free(life->numeric_class);
    rb_devices_free(life->devices);
    free(life);
    return status;
}
