/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/lanes.h"

#include "proto/work.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint32_t rb_lanes_count(uint64_t weights, uint64_t working, struct rb_caches caches)
{
    uint64_t count;

    if (weights <= caches.own || weights < 2 * working || !working)
        return 1;
    count = caches.part / working;
    return count < 1 ? 1 : count < RB_KERNEL_EACH ? (uint32_t)count : RB_KERNEL_EACH;
}

uint64_t rb_lanes_weights(const Rb__Model *model, const Rb__Program *message)
{
    uint64_t bytes = 0;

    for (size_t c = 0; c < message->n_contributions; c++) {
        const Rb__Contribution *one = message->contributions[c];

        if (model->variables[one->variable]->role == RB__VARIABLE__ROLE__TRAINED)
            bytes += (uint64_t)rb_work_elements(message->tensors[one->tensor]) * sizeof(float);
    }
    return bytes;
}

static struct rb_caches find_caches(void)
{
    enum { USUAL = 1 << 20 };
    long own = sysconf(_SC_LEVEL2_CACHE_SIZE), last = sysconf(_SC_LEVEL3_CACHE_SIZE);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct rb_caches caches = {own > 0 ? (uint64_t)own : USUAL, 0};

    if (last > 0 && cores > 0)
        caches.part = (uint64_t)(last / cores);
    if (caches.part < caches.own)
        caches.part = caches.own;
    return caches;
}

uint32_t rb_lanes_pay(const Rb__Model *model, const Rb__Program *message,
                      const struct rb_program *ready)
{
    if (!rb_program_gathers(ready))
        return 1;
    return rb_lanes_count(rb_lanes_weights(model, message), rb_program_working(ready),
                          find_caches());
}

/* Small pages: gradients that go into the sums unwritten have places in an arena too, and pages
 * that are not written shall take no memory.  Only CPUs' kernels gain from lanes, and they take any
 * memory. */
static void *map_arena(size_t bytes)
{
    void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (arena == MAP_FAILED)
        return NULL;
    madvise(arena, bytes, MADV_NOHUGEPAGE);
    return arena;
}

static int open_one(struct rb_model *model, struct rb_lane *lane, struct rb_why *why)
{
    const struct rb_runner *first = &model->lanes[0].runner;

    lane->runner.message = first->message;
    lane->bytes = (size_t)first->message->arena_bytes + 64;
    lane->arena = map_arena(lane->bytes);
    if (!lane->arena)
        return rb_why_set(why, RB_ENOMEM, "no memory for %llu bytes of a further microbatch",
                          (unsigned long long)first->message->arena_bytes);
    return rb_runner_prepare_twin(model, &lane->runner, first, lane->arena, why);
}

int rb_lanes_make(struct rb_model *model, const struct rb_runner *runner,
                  const struct rb_runner *last, uint32_t count, struct rb_why *why)
{
    int err = 0;

    /* Another program in the first lane's arena takes what it made once of weights to be there as
     * long as those are the same. */
    if (last != runner && runner->message->once > 0)
        count = 1;
    model->lanes[0].runner = *runner;
    model->n_lanes = 1;
    while (!err && model->n_lanes < count && model->n_lanes < model->microbatches)
        err = open_one(model, &model->lanes[model->n_lanes++], why);
    if (err) /* none of them counts as open */
        rb_lanes_close(model);
    return err;
}

int rb_lanes_open(struct rb_model *model, const struct rb_runner *runner,
                  const struct rb_runner *last, struct rb_why *why)
{
    if (model->n_lanes && model->lanes[0].runner.program == runner->program)
        return 0;
    rb_lanes_close(model);
    return rb_lanes_make(model, runner, last,
                         rb_lanes_pay(model->message, runner->message, runner->program), why);
}

void rb_lanes_close(struct rb_model *model)
{
    for (uint32_t i = 1; i < model->n_lanes; i++) {
        rb_runner_done(&model->lanes[i].runner);
        if (model->lanes[i].arena)
            munmap(model->lanes[i].arena, model->lanes[i].bytes);
    }
    memset(model->lanes, 0, sizeof model->lanes);
    model->n_lanes = 0;
}
