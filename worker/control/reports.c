/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/reports.h"

#include "base/arena.h"
#include "base/clock.h"
#include "proto/frame.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum kind { READY, UNREADY, FLIPPED, FROZEN, SAVED, DONE, FAILED, KINDS };

enum { FRAME_ROWS = 256, TAKE_BYTES = 1 << 20, SLOTS = KINDS + RB_REPORTS_SAVED };

/* The newest report of a kind; SAVED has several slots behind the others. */
struct slot {
    struct rb_buffer frame;
    uint64_t order;  /* when it was posted; 0: nothing here */
    uint32_t number; /* of its configuration, if it is about one */
};

struct row {
    uint32_t rank;
    Rb__Row row; /* has no pointers of its own */
};

struct rb_reports {
    pthread_mutex_t lock;
    int fd;
    uint64_t posted, sent; /* orders */
    struct slot slots[SLOTS];
    unsigned next_saved;
    struct row *rows; /* a ring: the oldest at `first` */
    size_t room, first, count;
    bool rows_wanted;
    int64_t rows_sent; /* step of the newest row sent */
    uint32_t wait_ms;
    uint64_t taken_ns; /* when all rows were last taken */
    bool told;         /* of rows since then: the reader is woken */
    bool hurry;
};

struct rb_reports *rb_reports_new(void)
{
    struct rb_reports *reports = rb_alloc(sizeof *reports);

    pthread_mutex_init(&reports->lock, NULL);
    reports->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return reports;
}

void rb_reports_free(struct rb_reports *reports)
{
    if (!reports)
        return;
    for (int i = 0; i < SLOTS; i++)
        rb_buffer_done(&reports->slots[i].frame);
    close(reports->fd);
    free(reports->rows);
    pthread_mutex_destroy(&reports->lock);
    free(reports);
}

int rb_reports_fd(const struct rb_reports *reports)
{
    return reports->fd;
}

void rb_reports_quiet(struct rb_reports *reports)
{
    uint64_t count;

    while (read(reports->fd, &count, sizeof count) > 0)
        ;
}

/* A full counter wakes the reader as well. */
static void wake(struct rb_reports *reports)
{
    uint64_t one = 1;
    ssize_t put = write(reports->fd, &one, sizeof one);

    (void)put;
}

void rb_reports_hurry(struct rb_reports *reports)
{
    pthread_mutex_lock(&reports->lock);
    reports->hurry = true;
    wake(reports);
    pthread_mutex_unlock(&reports->lock);
}

static enum kind kind_of(const Rb__FromWorker *message)
{
    return message->ready     ? READY
           : message->unready ? UNREADY
           : message->flipped ? FLIPPED
           : message->frozen  ? FROZEN
           : message->saved   ? SAVED
           : message->done    ? DONE
                              : FAILED;
}

static uint32_t number_of(const Rb__FromWorker *message)
{
    return message->ready     ? message->ready->number
           : message->unready ? message->unready->number
           : message->flipped ? message->flipped->number
                              : 0;
}

/* Drop a report of this kind, unless it is about a later configuration than the present report: a
 * configuration that was prepared beside may be given up right after the report that the next is
 * ready. */
static void forget(struct rb_reports *reports, enum kind kind, uint32_t number)
{
    if (reports->slots[kind].number <= number)
        reports->slots[kind].order = 0;
}

void rb_reports_post(struct rb_reports *reports, const Rb__FromWorker *message)
{
    enum kind kind = kind_of(message);
    uint32_t number = number_of(message);
    struct slot *slot;

    pthread_mutex_lock(&reports->lock);
    slot = &reports->slots[kind];
    if (kind == SAVED)
        slot = &reports->slots[KINDS + reports->next_saved++ % RB_REPORTS_SAVED];
    if (kind == READY || kind == FLIPPED)
        forget(reports, UNREADY, number);
    if (kind == UNREADY || kind == FLIPPED)
        forget(reports, READY, number);
    if (kind == FLIPPED)
        forget(reports, FROZEN, number);
    rb_buffer_clear(&slot->frame);
    rb_frame_put(&slot->frame, RB_FRAME_FROM_WORKER, &message->base);
    slot->order = ++reports->posted;
    slot->number = number;
    wake(reports);
    pthread_mutex_unlock(&reports->lock);
}

static void grow(struct rb_reports *reports)
{
    size_t room = reports->room ? reports->room * 2 : 256;
    struct row *rows = rb_alloc(room * sizeof *rows);

    for (size_t i = 0; i < reports->count; i++)
        rows[i] = reports->rows[(reports->first + i) % reports->room];
    free(reports->rows);
    reports->rows = rows;
    reports->room = room;
    reports->first = 0;
}

void rb_reports_row(struct rb_reports *reports, uint32_t rank, const Rb__Row *row)
{
    pthread_mutex_lock(&reports->lock);
    if (reports->count == reports->room && reports->room < RB_REPORTS_ROWS)
        grow(reports);
    if (reports->count == reports->room) {
        reports->first = (reports->first + 1) % reports->room;
        reports->count--;
    }
    reports->rows[(reports->first + reports->count++) % reports->room] = (struct row){rank, *row};
    if (!reports->told)
        wake(reports);
    reports->told = true;
    pthread_mutex_unlock(&reports->lock);
}

void rb_reports_restart(struct rb_reports *reports)
{
    pthread_mutex_lock(&reports->lock);
    reports->sent = 0;
    reports->rows_wanted = false;
    pthread_mutex_unlock(&reports->lock);
}

static void drop_rows(struct rb_reports *reports, int64_t step)
{
    while (reports->count && reports->rows[reports->first].row.step <= step) {
        reports->first = (reports->first + 1) % reports->room;
        reports->count--;
    }
}

void rb_reports_rows_known(struct rb_reports *reports, int64_t step)
{
    pthread_mutex_lock(&reports->lock);
    drop_rows(reports, step < reports->rows_sent ? step : reports->rows_sent);
    pthread_mutex_unlock(&reports->lock);
}

void rb_reports_rows_after(struct rb_reports *reports, int64_t step)
{
    pthread_mutex_lock(&reports->lock);
    reports->rows_wanted = true;
    reports->rows_sent = step;
    drop_rows(reports, step);
    reports->hurry = true;
    wake(reports);
    pthread_mutex_unlock(&reports->lock);
}

void rb_reports_rows_wait(struct rb_reports *reports, uint32_t ms)
{
    pthread_mutex_lock(&reports->lock);
    reports->wait_ms = ms;
    pthread_mutex_unlock(&reports->lock);
}

/* The oldest report that was not sent yet; NULL: none. */
static const struct slot *next_slot(const struct rb_reports *reports)
{
    const struct slot *next = NULL;

    for (int i = 0; i < SLOTS; i++) {
        const struct slot *slot = &reports->slots[i];

        if (slot->order > reports->sent && (!next || slot->order < next->order))
            next = slot;
    }
    return next;
}

static struct row *row_at(const struct rb_reports *reports, size_t i)
{
    return &reports->rows[(reports->first + i) % reports->room];
}

/* The index of the first row that was not sent: rows come in the order of their steps. */
static size_t first_unsent(const struct rb_reports *reports)
{
    size_t low = 0, high = reports->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (row_at(reports, middle)->row.step > reports->rows_sent)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool has_unsent(const struct rb_reports *reports)
{
    return reports->rows_wanted && first_unsent(reports) < reports->count;
}

int rb_reports_due_ms(struct rb_reports *reports)
{
    uint64_t waited;
    int due = 0;

    pthread_mutex_lock(&reports->lock);
    waited = (rb_clock_ns() - reports->taken_ns) / 1000000;
    if (!next_slot(reports)) {
        if (!has_unsent(reports))
            due = -1;
        else if (!reports->hurry && waited < reports->wait_ms)
            due = (int)(reports->wait_ms - waited);
    }
    pthread_mutex_unlock(&reports->lock);
    return due;
}

/* One frame of rows of one rank. */
static bool take_rows(struct rb_reports *reports, struct rb_buffer *out)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Row *rows[FRAME_ROWS];
    size_t at;

    if (!reports->rows_wanted)
        return false;
    at = first_unsent(reports);
    for (; at < reports->count && message.n_rows < FRAME_ROWS; at++) {
        struct row *row = row_at(reports, at);

        if (message.n_rows && row->rank != message.rank)
            break;
        message.has_rank = 1;
        message.rank = row->rank;
        rows[message.n_rows++] = &row->row;
        reports->rows_sent = row->row.step;
    }
    message.rows = rows;
    if (message.n_rows)
        rb_frame_put(out, RB_FRAME_FROM_WORKER, &message.base);
    return message.n_rows > 0;
}

bool rb_reports_take(struct rb_reports *reports, struct rb_buffer *out)
{
    const struct slot *slot;
    size_t before = out->size;

    pthread_mutex_lock(&reports->lock);
    while (out->size - before < TAKE_BYTES && take_rows(reports, out))
        ;
    while (out->size - before < TAKE_BYTES && (slot = next_slot(reports)) != NULL) {
        rb_buffer_add(out, slot->frame.data, slot->frame.size);
        reports->sent = slot->order;
    }
    if (!has_unsent(reports)) {
        reports->told = reports->hurry = false;
        reports->taken_ns = rb_clock_ns();
    }
    pthread_mutex_unlock(&reports->lock);
    return out->size > before;
}
