/* SPDX-License-Identifier: Apache-2.0 */
/* One rubatod: the parts that main puts together, for those parts that need each other.
 *
 * main > [daemon] > coordinator, agent, RPC methods */
#ifndef RB_DAEMON_DAEMON_H
#define RB_DAEMON_DAEMON_H

#include "daemon/etcd/store.h"
#include "daemon/rpc/blobs.h"
#include "daemon/rpc/server.h"
#include "settings.pb-c.h"

struct rb_agent;
struct rb_certificates;
struct rb_coordinator;
struct rb_devices;
struct rb_links;
struct rb_methods;
struct rb_planner;

struct rb_daemon {
    uv_loop_t *loop;
    const Rb__DaemonSettings *settings; /* complete: state_dir absolute, node named */
    const char *numeric_class;          /* of this node's cores */
    char address[128];                  /* where other nodes reach this one */
    const struct rb_devices *devices;   /* of this node */
    struct rb_certificates *certificates;
    struct rb_store *store;
    struct rb_server *server;
    struct rb_blobs *blobs;
    struct rb_agent *agent;
    struct rb_links *links;     /* to other nodes */
    struct rb_planner *planner; /* the coordinator asks it */
    struct rb_coordinator *coordinator;
    struct rb_methods *methods;
};

#endif
