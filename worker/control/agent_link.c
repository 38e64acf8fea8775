/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/agent_link.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "proto/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void drop(struct rb_agent_link *link, const char *why)
{
    if (link->fd < 0)
        return;
    rb_log(RB_LOG_INFO, "agent disconnected: %s", why);
    close(link->fd);
    link->fd = -1;
    link->alone_since = rb_clock_ns();
    rb_buffer_clear(&link->in);
    rb_buffer_clear(&link->out);
}

static void say_hello(struct rb_agent_link *link)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Hello hello = RB__HELLO__INIT;
    struct rb_status status;
    char *addresses[8];

    while (hello.n_addresses < RB_COUNT(addresses)) {
        const char *address = rb_listener_address(link->peers, (int)hello.n_addresses);

        if (!address)
            break;
        addresses[hello.n_addresses++] = (char *)address;
    }
    rb_mailbox_status(link->mailbox, &status);
    hello.worker = (char *)link->options->worker;
    hello.pid = (uint32_t)getpid();
    hello.job = (char *)link->options->job;
    hello.device = (uint32_t)link->options->device;
    hello.addresses = addresses;
    hello.has_configured = hello.has_ready = hello.has_active = hello.has_level = 1;
    hello.has_frozen = hello.has_done = hello.has_saving = 1;
    hello.configured = status.configured;
    hello.has_fence = 1;
    hello.fence = status.fence;
    hello.ready = status.ready;
    hello.active = status.said;
    hello.level = status.level;
    hello.frozen = status.frozen;
    hello.done = status.done;
    hello.saving = status.saving;
    hello.has_answers = hello.answers = 1;
    message.hello = &hello;
    rb_frame_put(&link->out, RB_FRAME_FROM_WORKER, &message.base);
}

void rb_agent_link_take(struct rb_agent_link *link, int fd)
{
    drop(link, "another one came");
    link->fd = fd;
    link->came = true;
    link->heard = false;
    rb_reports_restart(link->reports);
    say_hello(link);
    rb_log(RB_LOG_INFO, "agent connected");
}

static void say_pong(struct rb_agent_link *link)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;

    message.has_pong = message.pong = 1;
    rb_frame_put(&link->out, RB_FRAME_FROM_WORKER, &message.base);
}

static void obey(struct rb_agent_link *link, Rb__ToWorker *message)
{
    struct rb_mailbox *mailbox = link->mailbox;
    bool foreseen = message->configure && message->go;

    if (message->ping) {
        rb_reports_rows_known(link->reports, message->rows_known);
        say_pong(link);
    }
    if (message->settings)
        rb_mailbox_settings(mailbox, message->settings);
    if (!message->configure && !message->go && !message->abandon && !message->save &&
        !message->leave && !message->stay && !message->has_freeze)
        return; /* settings are facts, not orders: any leader may send them */
    if (!rb_mailbox_fence(mailbox, message->fence)) {
        rb_log(RB_LOG_WARN, "refused an order of an older leader (fence %llu)",
               (unsigned long long)message->fence);
        return;
    }
    if (message->configure)
        rb_mailbox_configure(mailbox, RB_TAKE(message->configure));
    if (message->go) {
        rb_fault("worker.go");
        rb_mailbox_go(mailbox, message->go->number, foreseen);
    }
    if (message->abandon)
        rb_mailbox_abandon(mailbox, message->abandon->number);
    if (message->save)
        rb_mailbox_save(mailbox, message->save);
    if (message->leave)
        rb_mailbox_leave(mailbox, message->leave->folder, 0);
    if (message->stay)
        rb_mailbox_stay(mailbox);
    if (message->has_freeze) {
        rb_log(RB_LOG_WARN, "told to freeze at level %lld", (long long)message->freeze);
        rb_mailbox_freeze(mailbox, message->freeze);
    }
}

void rb_agent_link_read(struct rb_agent_link *link)
{
    char *room = rb_buffer_reserve(&link->in, 65536);
    ssize_t got = recv(link->fd, room, 65536, 0);
    struct rb_why why = {0};
    ProtobufCMessage *message;
    int err;

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        drop(link, got ? strerror(errno) : "it closed the connection");
        return;
    }
    link->in.size += (size_t)got;
    while ((err = rb_frame_take(&link->in, RB_FRAME_TO_WORKER, &rb__to_worker__descriptor, &message,
                                &why)) == 0) {
        link->heard = true;
        obey(link, (Rb__ToWorker *)message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    if (err != RB_EAGAIN)
        drop(link, why.text);
}

void rb_agent_link_write(struct rb_agent_link *link)
{
    while (link->fd >= 0) {
        ssize_t put;

        if (!link->out.size &&
            (rb_reports_due_ms(link->reports) != 0 || !rb_reports_take(link->reports, &link->out)))
            return;
        put = send(link->fd, link->out.data, link->out.size, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            return;
        if (put < 0)
            drop(link, strerror(errno));
        else
            rb_buffer_drop(&link->out, (size_t)put);
    }
}

bool rb_agent_link_told(const struct rb_agent_link *link)
{
    return link->fd >= 0 && link->heard && !link->out.size && rb_reports_due_ms(link->reports) < 0;
}

int rb_agent_link_due_ms(const struct rb_agent_link *link)
{
    return link->fd < 0 || link->out.size ? -1 : rb_reports_due_ms(link->reports);
}

void rb_agent_link_done(struct rb_agent_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    rb_buffer_done(&link->in);
    rb_buffer_done(&link->out);
}
