/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/etcd/curl.h"

#include "base/arena.h"

#include <stdlib.h>

enum { IDLE_MOST = 4 }; /* connections kept for later: else as many as there ever were at once */

struct rb_curl {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer; /* curl's */
    void (*moved)(void *context);
    void *context;
};

struct socket_poll {
    uv_poll_t poll;
    struct rb_curl *curl;
    curl_socket_t socket;
};

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct socket_poll *socket = poll->data;
    struct rb_curl *curl = socket->curl;
    int what = 0, running;
    if (status < 0)
        what = CURL_CSELECT_ERR;
    if (events & UV_READABLE)
        what |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        what |= CURL_CSELECT_OUT;
    curl_multi_socket_action(curl->multi, socket->socket, what, &running);
    curl->moved(curl->context);
}

static void on_timer(uv_timer_t *timer)
{
    struct rb_curl *curl = timer->data;
    int running;
    curl_multi_socket_action(curl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    curl->moved(curl->context);
}

static int on_curl_timer(CURLM *multi, long ms, void *context)
{
    struct rb_curl *curl = context;
    (void)multi;
    if (ms < 0)
        uv_timer_stop(&curl->timer);
    else
        uv_timer_start(&curl->timer, on_timer, (uint64_t)ms, 0);
    return 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *known)
{
    struct rb_curl *curl = context;
    struct socket_poll *socket = known;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (socket) {
            uv_poll_stop(&socket->poll);
            curl_multi_assign(curl->multi, fd, NULL);
            uv_close((uv_handle_t *)&socket->poll, on_poll_closed);
        }
        return 0;
    }
    if (!socket) {
        socket = rb_alloc(sizeof(*socket));
        if (uv_poll_init_socket(curl->loop, &socket->poll, fd)) {
            free(socket);
            return -1;
        }
        socket->poll.data = socket;
        socket->curl = curl;
        socket->socket = fd;
        curl_multi_assign(curl->multi, fd, socket);
    }
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    uv_poll_start(&socket->poll, events, on_poll);
    return 0;
}

struct rb_curl *rb_curl_new(uv_loop_t *loop, void (*moved)(void *context), void *context)
{
    struct rb_curl *curl;
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return NULL;
    curl = rb_alloc(sizeof(*curl));
    curl->loop = loop;
    curl->moved = moved;
    curl->context = context;
    curl->multi = curl_multi_init();
    curl_multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl);
    curl_multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl);
    curl_multi_setopt(curl->multi, CURLMOPT_MAXCONNECTS, (long)IDLE_MOST);
    uv_timer_init(loop, &curl->timer);
    curl->timer.data = curl;
    return curl;
}

CURLM *rb_curl_multi(const struct rb_curl *curl)
{
    return curl->multi;
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void rb_curl_free(struct rb_curl *curl)
{
    curl_multi_cleanup(curl->multi); /* closes the polls of idle connections */
    curl_global_cleanup();
    uv_close((uv_handle_t *)&curl->timer, on_timer_closed);
}
