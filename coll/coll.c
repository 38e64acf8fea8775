/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/coll.h"

#include "base/arena.h"
#include "coll/group.h"
#include "coll/hello.h"
#include "coll/meet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static int check(const struct rb_group *group, struct rb_why *why)
{
    if (group->size < 1 || group->rank < 0 || group->rank >= group->size)
        return rb_why_set(why, RB_EINVAL, "a group of %d ranks has no rank %d", group->size,
                          group->rank);
    if (strlen(group->job) >= RB_HELLO_TEXT || strlen(group->digest) >= RB_HELLO_TEXT)
        return rb_why_set(why, RB_ELIMIT, "the job's name or the digest is longer than %d bytes",
                          RB_HELLO_TEXT - 1);
    for (int r = 0; r < group->size; r++)
        if (strlen(group->members[r].worker) >= RB_HELLO_TEXT)
            return rb_why_set(why, RB_ELIMIT, "the name of rank %d is longer than %d bytes", r,
                              RB_HELLO_TEXT - 1);
    return 0;
}

enum { LOOK_NS = 2000 }; /* before sleeping, where no caller asks for more */

/* Looking instead of sleeping pays only while every rank on this host has a core to look from. */
static bool is_crowded(const struct rb_coll *coll)
{
    int here = 1;

    for (int r = 0; r < coll->size; r++)
        here += coll->link[r] && strcmp(coll->link[r]->ops->name, "tcp");
    return here > sysconf(_SC_NPROCESSORS_ONLN);
}

void rb_coll_look_for(struct rb_coll *coll, uint64_t ns)
{
    if (coll->crowded || coll->spin_max_ns >= ns)
        return;
    coll->spin_max_ns = ns;
    coll->spin_ns = ns / 2;
}

int rb_coll_open(struct rb_listener *listener, const struct rb_group *group, int timeout_ms,
                 const atomic_bool *cancel, struct rb_coll **ret_coll, struct rb_why *why)
{
    int err = check(group, why);
    size_t size = (size_t)group->size;
    struct rb_coll *coll;

    if (err)
        return rb_why_add(why, err, "configuration %u", group->configuration);
    coll = rb_alloc(sizeof *coll);
    coll->configuration = group->configuration;
    coll->rank = group->rank;
    coll->size = group->size;
    coll->workers = rb_alloc(size * sizeof *coll->workers);
    coll->link = rb_alloc(size * sizeof *coll->link);
    coll->lane = rb_alloc(size * sizeof *coll->lane);
    coll->polls = rb_alloc((size + 2) * sizeof *coll->polls);
    coll->polled = rb_alloc(size * sizeof *coll->polled);
    for (size_t r = 0; r < size; r++)
        coll->workers[r] = rb_string(group->members[r].worker);
    coll->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    err = coll->wake < 0 ? rb_why_set(why, RB_EIO, "cannot make an eventfd: %s", strerror(errno))
                         : rb_meet_all(listener, group, timeout_ms, cancel, coll->link, why);
    if (err) {
        rb_coll_close(coll);
        return rb_why_add(why, err, "configuration %u", group->configuration);
    }
    coll->crowded = is_crowded(coll);
    coll->spin_max_ns = LOOK_NS;
    coll->spin_ns = LOOK_NS / 2;
    *ret_coll = coll;
    return 0;
}

int rb_coll_rank(const struct rb_coll *coll)
{
    return coll->rank;
}

int rb_coll_size(const struct rb_coll *coll)
{
    return coll->size;
}

void rb_coll_cancel(struct rb_coll *coll)
{
    uint64_t one = 1;

    atomic_store(&coll->canceled, true);
    (void)!write(coll->wake, &one, sizeof one);
}

/* A dead peer's last bytes may stand before its end, which TCP does not show until they are read.
 * Once the group has failed, no call reads them any more. */
static void drain(int fd)
{
    char bytes[16384];

    for (int i = 0; i < 256; i++)
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
            return;
}

bool rb_coll_lost(struct rb_coll *coll, int rank)
{
    struct pollfd now = {.events = POLLRDHUP};

    if (rank < 0 || rank >= coll->size || !coll->link[rank])
        return false;
    now.fd = coll->link[rank]->fd;
    if (atomic_load(&coll->broken))
        drain(now.fd);
    return atomic_load(&coll->link[rank]->ended) || poll(&now, 1, 0) > 0;
}

bool rb_coll_over(struct rb_coll *coll)
{
    bool over = atomic_load(&coll->canceled) || atomic_load(&coll->broken);

    for (int r = 0; r < coll->size && !over; r++)
        over = coll->link[r] && rb_coll_lost(coll, r);
    return over;
}

const char *rb_coll_link(const struct rb_coll *coll, int rank)
{
    if (rank < 0 || rank >= coll->size || !coll->link[rank])
        return "none";
    return coll->link[rank]->ops->name;
}

uint64_t rb_coll_bytes_sent(const struct rb_coll *coll)
{
    return atomic_load_explicit(&((struct rb_coll *)coll)->bytes_sent, memory_order_relaxed);
}

void rb_coll_close(struct rb_coll *coll)
{
    if (!coll)
        return;
    for (int r = 0; r < coll->size; r++) {
        if (coll->link[r])
            coll->link[r]->ops->close(coll->link[r]);
        free(coll->workers[r]);
    }
    if (coll->wake >= 0)
        close(coll->wake);
    rb_progress_drop_posts(coll);
    free(coll->workers);
    free(coll->link);
    free(coll->lane);
    free(coll->fetched);
    free(coll->polls);
    free(coll->polled);
    free(coll);
}
