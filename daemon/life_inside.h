/* SPDX-License-Identifier: Apache-2.0 */
/* A life from inside: for life.c (its stages) and life_parts.c (what it is made of) alone. */
#ifndef RB_DAEMON_LIFE_INSIDE_H
#define RB_DAEMON_LIFE_INSIDE_H

#include "daemon/daemon.h"
#include "daemon/life.h"

struct rb_etcd;
struct rb_health;
struct rb_http;
struct rb_notice;
struct rb_presence;
struct rb_private_etcd;
struct rb_service;

struct rb_life {
    uv_loop_t loop;
    const Rb__DaemonSettings *settings;
    struct rb_daemon daemon;
    struct rb_private_etcd *private_etcd;
    unsigned starts; /* how many START_MS it has waited for its own etcd */
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

/* ---- Its parts: life_parts.c ------------------------------------------------------------------*/

/* In this order. */
int rb_life_lock(struct rb_life *life, struct rb_why *why);
int rb_life_find_devices(struct rb_life *life, struct rb_why *why);
int rb_life_reach_etcd(struct rb_life *life, struct rb_why *why);
int rb_life_make_parts(struct rb_life *life, struct rb_why *why);

/* Frees the parts that were made, but for an etcd of its own.  The store goes before the parts that
 * commit: it tells them that their commits are cancelled. */
void rb_life_free_parts(struct rb_life *life);

/* ---- What they tell it: life.c ----------------------------------------------------------------*/

void rb_life_on_taken(void *context); /* its name, by another rubatod */
void rb_life_on_facts(void *context); /* there are new ones */

#endif
