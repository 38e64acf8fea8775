/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/state/window.h"

#include "base/arena.h"
#include "worker/join/feed.h"

#include <stdlib.h>

struct rb_window *rb_window_new(void)
{
    struct rb_window *window = rb_alloc(sizeof *window);

    pthread_mutex_init(&window->lock, NULL);
    return window;
}

void rb_window_free(struct rb_window *window)
{
    if (!window)
        return;
    pthread_mutex_destroy(&window->lock);
    free(window);
}

void rb_window_enter(struct rb_window *window, uint32_t term, bool laps)
{
    pthread_mutex_lock(&window->lock);
    if (window->term != term && window->feed)
        rb_feed_halt(window->feed, "training changed its configuration");
    window->term = term;
    window->laps = laps;
    window->taken_for = 0;
    pthread_mutex_unlock(&window->lock);
}

void rb_window_keep(struct rb_window *window, uint32_t taken_for)
{
    pthread_mutex_lock(&window->lock);
    window->taken_for = taken_for;
    pthread_mutex_unlock(&window->lock);
}
