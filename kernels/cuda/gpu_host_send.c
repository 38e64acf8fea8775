/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gpu_host_send.h"

#include "base/arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct sent {
    struct sent *next;
    void *to;
    size_t bytes;
    char from[];
};

struct rb_host_sends {
    pthread_mutex_t lock;
    struct sent *first, **end;
};

struct rb_host_sends *rb_host_sends_new(void)
{
    struct rb_host_sends *sends = rb_alloc(sizeof *sends);

    pthread_mutex_init(&sends->lock, NULL);
    sends->end = &sends->first;
    return sends;
}

void rb_host_sends_free(struct rb_host_sends *sends)
{
    rb_host_sends_arrive(sends);
    pthread_mutex_destroy(&sends->lock);
    free(sends);
}

void rb_host_sends_add(struct rb_host_sends *sends, void *to, const void *from, size_t bytes)
{
    struct sent *sent = rb_alloc(sizeof *sent + bytes);

    sent->to = to;
    sent->bytes = bytes;
    memcpy(sent->from, from, bytes);
    pthread_mutex_lock(&sends->lock);
    *sends->end = sent;
    sends->end = &sent->next;
    pthread_mutex_unlock(&sends->lock);
}

void rb_host_sends_arrive(struct rb_host_sends *sends)
{
    pthread_mutex_lock(&sends->lock);
    while (sends->first) {
        struct sent *sent = sends->first;

        memcpy(sent->to, sent->from, sent->bytes);
        sends->first = sent->next;
        free(sent);
    }
    sends->end = &sends->first;
    pthread_mutex_unlock(&sends->lock);
}
