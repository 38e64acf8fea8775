/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/meet.h"

#include "base/arena.h"
#include "base/clock.h"
#include "coll/dial.h"
#include "coll/listener.h"
#include "coll/welcome.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLICE_MS = 50, FIRST_PAUSE_MS = 2, LAST_PAUSE_MS = 100, CONNECT_MS = 1000 };

/* A call to a rank below us:
 *
 *     IDLE --dial--> DIALLED --hello--> ASKED --welcome--> a link
 *       ^______________|__________________|   (anything else; pause, next address) */
enum call_state { IDLE, DIALLED, ASKED };

struct call {
    enum call_state state;
    int fd;
    bool local;
    int address;    /* the next to try */
    int pause_ms;   /* after all were tried */
    uint64_t again; /* IDLE: when to dial; DIALLED: when to give up */
    struct rb_welcome_inbox inbox;
};

struct meeting {
    struct rb_listener *listener;
    const struct rb_group *group;
    struct rb_link **link;
    struct call *calls; /* by rank, for the ranks below this one */
    struct pollfd *polls;
    int event;         /* a guest has arrived */
    char refused[256]; /* the last guest that was refused, for the message */
    struct rb_why *why;
};

/* ---- Ranks that this one calls ---- */

static void hang_up(struct meeting *m, int rank, uint64_t now)
{
    struct call *call = &m->calls[rank];

    if (call->fd >= 0)
        close(call->fd);
    if (call->inbox.memory >= 0)
        close(call->inbox.memory);
    call->fd = call->inbox.memory = -1;
    call->inbox.got = 0;
    call->state = IDLE;
    call->again = now;
    if (++call->address < m->group->members[rank].n_addresses)
        return;
    call->address = 0;
    call->again = now + (uint64_t)call->pause_ms * 1000000;
    call->pause_ms = call->pause_ms * 2 < LAST_PAUSE_MS ? call->pause_ms * 2 : LAST_PAUSE_MS;
}

static int dial(struct meeting *m, int rank, uint64_t now)
{
    const struct rb_coll_member *member = &m->group->members[rank];
    struct call *call = &m->calls[rank];
    int fd;

    if (now < call->again)
        return 0;
    if (!member->n_addresses)
        return rb_why_set(m->why, RB_EINVAL, "rank %d (%s) has no address", rank, member->worker);
    fd = rb_dial(member->addresses[call->address], &call->local);
    if (fd == RB_EINVAL)
        return rb_why_set(m->why, RB_EINVAL,
                          "rank %d (%s) has the address %s; expected unix:PATH or tcp:HOST:PORT",
                          rank, member->worker, member->addresses[call->address]);
    if (fd < 0) {
        hang_up(m, rank, now);
        return 0;
    }
    call->fd = fd;
    call->state = DIALLED;
    call->again = now + UINT64_C(1000000) * CONNECT_MS;
    return 0;
}

static void say_hello(struct meeting *m, int rank, uint64_t now)
{
    const struct rb_group *group = m->group;
    struct call *call = &m->calls[rank];
    struct rb_hello hello = {
        .configuration = group->configuration,
        .rank = (uint32_t)group->rank,
        .to = (uint32_t)rank,
        .size = (uint32_t)group->size,
        .flags = call->local && !group->no_shared_memory ? RB_HELLO_SHARED : 0,
        .dialect = RB_HELLO_DIALECT,
    };
    uint8_t bytes[RB_HELLO_MAX];
    size_t size;
    int err = rb_dial_result(call->fd);

    if (err == RB_EAGAIN && now < call->again)
        return;
    snprintf(hello.job, sizeof hello.job, "%s", group->job);
    snprintf(hello.digest, sizeof hello.digest, "%s", group->digest);
    snprintf(hello.worker, sizeof hello.worker, "%s", group->members[group->rank].worker);
    size = rb_hello_encode(&hello, bytes);
    if (err || send(call->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size)
        hang_up(m, rank, now);
    else
        call->state = ASKED;
}

static int hear_welcome(struct meeting *m, int rank, uint64_t now)
{
    struct call *call = &m->calls[rank];
    struct rb_welcome welcome;
    struct rb_link *link;
    int err = rb_welcome_receive(call->fd, &call->inbox, &welcome);

    if (err == RB_EAGAIN)
        return 0;
    if (err) {
        hang_up(m, rank, now);
        return 0;
    }
    if (welcome.err)
        return rb_why_set(m->why, RB_EREFUSED, "rank %d (%s) answers: %s", rank,
                          m->group->members[rank].worker, welcome.text);
    link = welcome.shared ? rb_link_shared_new(call->fd, call->inbox.memory, 1)
                          : rb_link_stream_new(call->fd, !call->local);
    if (!link)
        return rb_why_set(m->why, RB_EIO, "cannot map the memory shared with rank %d (%s)", rank,
                          m->group->members[rank].worker);
    m->link[rank] = link;
    call->fd = -1;
    hang_up(m, rank, now); /* closes the descriptor of the memory, which stays mapped */
    return 0;
}

static int call_below(struct meeting *m, uint64_t now)
{
    int err = 0;

    for (int r = 0; r < m->group->rank && !err; r++) {
        if (m->link[r])
            continue;
        if (m->calls[r].state == IDLE)
            err = dial(m, r, now);
        if (m->calls[r].state == DIALLED)
            say_hello(m, r, now);
        if (m->calls[r].state == ASKED && !err)
            err = hear_welcome(m, r, now);
    }
    return err;
}

/* ---- Ranks that call this one ---- */

static bool is_lost(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLRDHUP};

    return poll(&now, 1, 0) > 0;
}

/* Why a guest cannot be what it says it is; 0 if it can. */
static int examine(struct meeting *m, const struct rb_hello *hello, char *text, size_t room)
{
    const struct rb_group *group = m->group;

    if (hello->dialect != RB_HELLO_DIALECT) {
        snprintf(text, room, "workers of two versions of Rubato: one says things as %u, one as %d",
                 hello->dialect, RB_HELLO_DIALECT);
    } else if (strcmp(hello->job, group->job)) {
        snprintf(text, room, "this worker is in job %.40s, not %.40s", group->job, hello->job);
    } else if (strcmp(hello->digest, group->digest) || hello->size != (uint32_t)group->size) {
        snprintf(text, room, "configuration %u is %.40s of %d ranks here, not %.40s of %u",
                 group->configuration, group->digest, group->size, hello->digest, hello->size);
    } else if (hello->to != (uint32_t)group->rank) {
        snprintf(text, room, "this is rank %d, not %u", group->rank, hello->to);
    } else if (hello->rank >= (uint32_t)group->size || hello->rank <= (uint32_t)group->rank) {
        snprintf(text, room, "rank %u does not call rank %d", hello->rank, group->rank);
    } else if (strcmp(hello->worker, group->members[hello->rank].worker)) {
        snprintf(text, room, "rank %u is %.40s, not %.40s", hello->rank,
                 group->members[hello->rank].worker, hello->worker);
    } else if (m->link[hello->rank]) {
        snprintf(text, room, "rank %u is here already", hello->rank);
    } else {
        return 0;
    }
    return RB_EREFUSED;
}

/* Answer a guest; it becomes a link or is closed. */
static void answer(struct meeting *m, const struct rb_arrival *guest)
{
    struct rb_welcome welcome = {0};
    struct rb_link *link = NULL;
    int memory = -1;

    if (is_lost(guest->fd)) { /* the guest gave up while it waited; it may have come again since */
        close(guest->fd);
        return;
    }
    welcome.err = examine(m, &guest->hello, welcome.text, sizeof welcome.text);
    if (welcome.err)
        snprintf(m->refused, sizeof m->refused, "; %.40s was refused: %.160s", guest->hello.worker,
                 welcome.text);
    else if (guest->local && !m->group->no_shared_memory && (guest->hello.flags & RB_HELLO_SHARED))
        memory = rb_link_shared_create();
    if (memory >= 0)
        link = rb_link_shared_new(guest->fd, memory, 0);
    else if (!welcome.err)
        link = rb_link_stream_new(guest->fd, !guest->local);
    if (!link && !welcome.err) /* memory that cannot be mapped: the socket alone will do */
        link = rb_link_stream_new(guest->fd, !guest->local);
    welcome.shared = link && memory >= 0 && !strcmp(link->ops->name, "shared memory");
    if (rb_welcome_send(guest->fd, &welcome, welcome.shared ? memory : -1) && link) {
        link->ops->close(link);
    } else if (link) {
        m->link[guest->hello.rank] = link;
    } else {
        close(guest->fd);
    }
    if (memory >= 0)
        close(memory);
}

/* ---- Waiting ---- */

/* Count the missing ranks.  RB_EPEER: a rank that came has left again. */
static int count_missing(struct meeting *m, int *ret_missing)
{
    *ret_missing = 0;
    for (int r = 0; r < m->group->size; r++) {
        if (r == m->group->rank)
            continue;
        if (!m->link[r])
            ++*ret_missing;
        else if (is_lost(m->link[r]->fd))
            return rb_why_set(m->why, RB_EPEER, "rank %d (%s) left while the group was opened", r,
                              m->group->members[r].worker);
    }
    return 0;
}

static int name_missing(struct meeting *m, int timeout_ms)
{
    char names[256] = "";
    size_t at = 0;

    for (int r = 0; r < m->group->size && at < sizeof names; r++) {
        if (r != m->group->rank && !m->link[r])
            at += (size_t)snprintf(names + at, sizeof names - at, "%srank %d (%s)", at ? ", " : "",
                                   r, m->group->members[r].worker);
    }
    return rb_why_set(m->why, RB_ETIMEOUT, "did not come within %d ms: %s%s", timeout_ms, names,
                      m->refused);
}

static void wait_for_any(struct meeting *m, uint64_t now, uint64_t end)
{
    uint64_t until = now + UINT64_C(1000000) * SLICE_MS, events;
    int n = 0;

    until = until < end ? until : end;
    m->polls[n++] = (struct pollfd){.fd = m->event, .events = POLLIN};
    for (int r = 0; r < m->group->size; r++) {
        struct call *call = r < m->group->rank ? &m->calls[r] : NULL;

        if (m->link[r])
            m->polls[n++] = (struct pollfd){.fd = m->link[r]->fd, .events = POLLRDHUP};
        else if (call && call->state == IDLE)
            until = call->again < until ? call->again : until;
        else if (call)
            m->polls[n++] = (struct pollfd){.fd = call->fd,
                                            .events = call->state == DIALLED ? POLLOUT : POLLIN};
    }
    poll(m->polls, (nfds_t)n, until > now ? (int)((until - now + 999999) / 1000000) : 0);
    (void)!read(m->event, &events, sizeof events);
}

static int meet(struct meeting *m, int timeout_ms, const atomic_bool *cancel)
{
    uint64_t end = rb_clock_ns() + UINT64_C(1000000) * (uint64_t)(timeout_ms > 0 ? timeout_ms : 0);

    for (;;) {
        uint64_t now = rb_clock_ns();
        struct rb_arrival guest;
        int err, missing;

        while (rb_listener_take(m->listener, m->group->configuration, &guest))
            answer(m, &guest);
        if ((err = call_below(m, now)) || (err = count_missing(m, &missing)))
            return err;
        if (!missing)
            return 0;
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            return rb_why_set(m->why, RB_ECANCELED, "opening was cancelled");
        if (now >= end)
            return name_missing(m, timeout_ms);
        wait_for_any(m, now, end);
    }
}

int rb_meet_all(struct rb_listener *listener, const struct rb_group *group, int timeout_ms,
                const atomic_bool *cancel, struct rb_link **link, struct rb_why *why)
{
    struct meeting m = {.listener = listener, .group = group, .link = link, .why = why};
    int err;

    if (group->size == 1)
        return 0;
    m.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (m.event < 0)
        return rb_why_set(why, RB_EIO, "cannot make an eventfd: %s", strerror(errno));
    m.calls = rb_alloc(sizeof *m.calls * (size_t)group->size);
    m.polls = rb_alloc(sizeof *m.polls * ((size_t)group->size + 1));
    for (int r = 0; r < group->rank; r++)
        m.calls[r] = (struct call){.fd = -1, .pause_ms = FIRST_PAUSE_MS, .inbox = {.memory = -1}};
    rb_listener_expect(listener, group->configuration, m.event);
    err = meet(&m, timeout_ms, cancel);
    rb_listener_forget(listener, m.event);
    for (int r = 0; r < group->rank; r++)
        hang_up(&m, r, 0);
    close(m.event);
    free(m.calls);
    free(m.polls);
    return err;
}
