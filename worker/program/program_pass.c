/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of a program one by one, or told to the device once and played. */
#include "worker/program/program_inside.h"

/* ---- Passes ----------------------------------------------------------------------------------*/

static bool runs(const struct rb_program_pass *pass, int instruction)
{
    return !pass->runs || pass->runs[instruction];
}

static int go_on(const struct rb_program_pass *pass)
{
    return pass->go_on ? pass->go_on(pass->context) : 0;
}

static void step_with_copies(struct rb_program *program, const struct rb_program_pass *pass,
                             int instruction, const struct rb_key *key)
{
    if (pass->copy_in)
        pass->copy_in(instruction, pass->context);
    rb_program_step(program, instruction, key);
    if (pass->copy_out)
        pass->copy_out(instruction, pass->context);
}

/* One by one. */
static int ask(struct rb_program *program, const struct rb_program_pass *pass,
               const struct rb_key *key)
{
    for (int i = pass->first; i < pass->end; i++) {
        int err;

        if (!runs(pass, i))
            continue;
        err = go_on(pass);
        if (err)
            return err;
        step_with_copies(program, pass, i, key);
        if (pass->after)
            pass->after(i, pass->context);
    }
    return 0;
}

/* ---- Tapes ------------------------------------------------------------------------------------*/

void rb_program_keep(struct rb_program *program)
{
    program->keeps = rb_device_tapes(program->device);
}

void rb_program_forget(struct rb_program *program)
{
    for (size_t i = 0; i < RB_COUNT(program->replays); i++) {
        rb_tape_free(program->replays[i].tape);
        program->replays[i] = (struct replay){0};
    }
}

const char *rb_program_refused(const struct rb_program *program)
{
    return program->refused.text[0] ? program->refused.text : NULL;
}

/* Collects which sums will be added, and after which instructions. */
static void collect(struct rb_program *program, const struct rb_program_pass *pass)
{
    program->n_sums = 0;
    program->collects = true;
    for (int i = pass->first; pass->after && i < pass->end; i++) {
        program->instruction = i;
        if (runs(pass, i))
            pass->after(i, pass->context);
    }
    program->collects = false;
}

/* Runs all of the pass, with the sums that were collected. */
static void run_collected(struct rb_program *program, const struct rb_program_pass *pass,
                          const struct rb_key *key)
{
    size_t next = 0;

    for (int i = pass->first; i < pass->end; i++) {
        if (runs(pass, i))
            step_with_copies(program, pass, i, key);
        for (; next < program->n_sums && program->sums[next].instruction == i; next++)
            rb_program_add_now(program, program->sums[next].tensor, &program->into[next]);
    }
}

static bool play(struct rb_program *program, const struct replay *replay, const struct rb_key *key)
{
    return replay->tape && rb_tape_play(replay->tape, key, program->into, program->n_sums);
}

/* Makes a new tape in place of one that cannot be played, if there is one. */
static void keep(struct rb_program *program, const struct rb_program_pass *pass,
                 const struct rb_key *key, struct replay *replay)
{
    struct rb_tape *tape;
    int err;

    rb_tape_free(RB_TAKE(replay->tape));
    err = rb_tape_start(program->device, program->n_sums, &tape, &program->refused);
    if (!err) {
        run_collected(program, pass, key);
        err = rb_tape_end(tape, &program->refused);
        if (err)
            rb_tape_free(tape);
        else
            replay->tape = tape;
    }
    program->keeps = !err;
}

static void run_taped(struct rb_program *program, const struct rb_program_pass *pass,
                      const struct rb_key *key, struct replay *replay)
{
    collect(program, pass);
    if (play(program, replay, key))
        return;
    keep(program, pass, key, replay);
    if (!play(program, replay, key))
        run_collected(program, pass, key);
}

/* ---- Running ----------------------------------------------------------------------------------*/

int rb_program_pass(struct rb_program *program, const struct rb_program_pass *pass,
                    const struct rb_key *key)
{
    struct replay *replay = &program->replays[pass->tape];
    int err;

    if (program->keeps && replay->seen && !pass->unplayed) {
        err = go_on(pass);
        if (!err)
            run_taped(program, pass, key, replay);
        return err;
    }
    err = ask(program, pass, key);
    /* with all kernels that the tape will have */
    replay->seen |= !err && (pass->after || !program->most_sums);
    return err;
}

/* Of a whole run. */
struct running {
    const atomic_bool *stop;
    void (*after)(int instruction, void *context);
    void *context;
};

static int is_stopped(void *context)
{
    const struct running *running = context;

    return running->stop && atomic_load_explicit(running->stop, memory_order_relaxed) ? RB_ECANCELED
                                                                                      : 0;
}

static void run_after(int instruction, void *context)
{
    const struct running *running = context;

    running->after(instruction, running->context);
}

static int run_from(struct rb_program *program, int first, const struct rb_key *key,
                    const atomic_bool *stop, void (*after)(int instruction, void *context),
                    void *context)
{
    struct running running = {stop, after, context};
    struct rb_program_pass pass = {
        .tape = first > 0,
        .first = first,
        .end = program->n_steps,
        .go_on = is_stopped,
        .after = after ? run_after : NULL,
        .context = &running,
    };

    rb_program_start(program);
    return rb_program_pass(program, &pass, key);
}

int rb_program_run(struct rb_program *program, const struct rb_key *key, const atomic_bool *stop,
                   void (*after)(int instruction, void *context), void *context)
{
    return run_from(program, 0, key, stop, after, context);
}

int rb_program_again(struct rb_program *program, const struct rb_key *key, const atomic_bool *stop,
                     void (*after)(int instruction, void *context), void *context)
{
    return run_from(program, program->once, key, stop, after, context);
}
