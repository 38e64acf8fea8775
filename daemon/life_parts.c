/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a rubatod, made in order and freed: from the lock on its state folder to the status
 * page. */
#include "daemon/life_inside.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/agent/agent.h"
#include "daemon/agent/devices.h"
#include "daemon/agent/health.h"
#include "daemon/agent/links.h"
#include "daemon/agent/notice.h"
#include "daemon/agent/spawn.h"
#include "daemon/certificates.h"
#include "daemon/coordinator.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/private_etcd.h"
#include "daemon/http/http.h"
#include "daemon/planner.h"
#include "daemon/presence.h"
#include "daemon/rpc/methods.h"
#include "daemon/settings.h"
#include "proto/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

int rb_life_lock(struct rb_life *life, struct rb_why *why)
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

int rb_life_find_devices(struct rb_life *life, struct rb_why *why)
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

int rb_life_reach_etcd(struct rb_life *life, struct rb_why *why)
{
    const char *endpoint = NULL;
    if (!life->settings->single_node) {
        int err = rb_etcd_new(&life->loop, (const char *const *)life->settings->etcd,
                              life->settings->n_etcd, &life->etcd, why);
        if (!err && life->settings->etcd_tls) {
            err = rb_etcd_secure(life->etcd, life->settings->etcd_tls, why);
            if (err)
                rb_why_add(why, err, "--etcd-tls");
            else /* the folder may have no certificate: etcd need not ask for one */
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

static int secure(struct rb_life *life, struct rb_why *why)
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

static int listen_all(struct rb_life *life, char *ret_address, struct rb_why *why)
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

static int serve_http(struct rb_life *life, struct rb_why *why)
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
    struct rb_life *life = context;
    rb_presence_look(life->presence);
}

int rb_life_make_parts(struct rb_life *life, struct rb_why *why)
{
    struct rb_daemon *daemon = &life->daemon;
    RB_CLEANUP(rb_freep) char *blobs = rb_format("%s/blobs", life->settings->state_dir);
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
    err = listen_all(life, daemon->address, why);
    if (err)
        return err;
    life->presence = rb_presence_new(daemon, life->etcd, daemon->address);
    daemon->links = rb_links_new(daemon, on_link_measured, life);
    rb_presence_on_taken(life->presence, rb_life_on_taken, life);
    rb_store_watch(daemon->store, rb_life_on_facts, life);
    life->notice = rb_notice_new(daemon);
    life->health = rb_health_new(&life->loop, life->devices, life->presence);
    return serve_http(life, why);
}

void rb_life_free_parts(struct rb_life *life)
{
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
}
