/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of stages on the host in a GPU's place: each pass is asked for by itself once, kept once
 * and played from then on, and the bits are those of asking for it each time. */
#include "worker/stages/flight.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "plan/schedule_pipeline.h"
#include "tests/worker/crew.h"
#include "tests/worker/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { STEPS = 9 };

static struct counts {
    atomic_int passes, unplayed, kept, played, put;
} counts;

/* ---- Counted on their way (meson.build) ----------------------------------------------------*/

int __real_rb_program_pass(struct rb_program *program, const struct rb_program_pass *pass,
                           const struct rb_key *key);
int __wrap_rb_program_pass(struct rb_program *program, const struct rb_program_pass *pass,
                           const struct rb_key *key);
int __real_rb_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                         struct rb_why *why);
int __wrap_rb_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                         struct rb_why *why);
bool __real_rb_tape_play(struct rb_tape *tape, const struct rb_key *key,
                         const struct rb_fixed *sums, size_t n_sums);
bool __wrap_rb_tape_play(struct rb_tape *tape, const struct rb_key *key,
                         const struct rb_fixed *sums, size_t n_sums);

void __real_rb_shelf_put(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n);
void __wrap_rb_shelf_put(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n);

int __wrap_rb_program_pass(struct rb_program *program, const struct rb_program_pass *pass,
                           const struct rb_key *key)
{
    counts.passes++;
    counts.unplayed += pass->unplayed;
    return __real_rb_program_pass(program, pass, key);
}

int __wrap_rb_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                         struct rb_why *why)
{
    int err = __real_rb_tape_start(device, sums, ret_tape, why);

    counts.kept += !err;
    return err;
}

bool __wrap_rb_tape_play(struct rb_tape *tape, const struct rb_key *key,
                         const struct rb_fixed *sums, size_t n_sums)
{
    bool played = __real_rb_tape_play(tape, key, sums, n_sums);

    counts.played += played;
    return played;
}

void __wrap_rb_shelf_put(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n)
{
    counts.put++;
    __real_rb_shelf_put(shelf, at, from, n);
}

/* ---- Runs ------------------------------------------------------------------------------------*/

static const struct tiny_options job = {
    .samples = 203,
    .global_batch = 22, /* microbatches of 4 4 4 4 4 2 */
    .micro_batch = 4,
    .steps = STEPS,
    .hidden = 64,
    .clip_norm = 0.5,
};

static void digest_of(const struct rb_model *model, char ret_digest[33])
{
    size_t bytes = (size_t)model->message->state_elements * sizeof(float);

    rb_device_pull(model->device, model->state.w, bytes);
    rb_hash_digest(model->state.w, bytes, ret_digest);
}

/* stages 0: none, on one device. */
static void train(const struct tiny_options *options, uint32_t stages, char ret_digest[33])
{
    char folder[] = "/tmp/rubato-flight-XXXXXX";
    uint32_t ranks = stages ? stages : 1;
    struct crew crew = {.folder = folder, .size = ranks};
    struct tiny_options how = *options;
    struct rb_why why = {0};
    Rb__Model *model;
    Rb__Plan *plan;

    counts.passes = counts.unplayed = counts.kept = counts.played = counts.put = 0;
    assert_non_null(mkdtemp(folder));
    how.stages = stages;
    tiny_write(folder, &how, 0);
    model = tiny_model(folder, &how);
    if (!stages)
        plan = tiny_plan(model, 1);
    else if (rb_pipeline_plan(model, ranks, stages, &plan, &why))
        fail_msg("%s", why.text);
    tiny_write_message(folder, "plan", &plan->base);
    if (crew_run(&crew, &why))
        fail_msg("%s", why.text);
    digest_of(crew.ranks[0].model, ret_digest);
    for (uint32_t r = 0; r < ranks; r++)
        if (rb_flights_refused(crew.ranks[r].model) && !getenv("RUBATO_TAPES"))
            fail_msg("%s", rb_flights_refused(crew.ranks[r].model));
    crew_done(&crew);
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
    rb_file_remove(folder, NULL);
}

static void train_without_tapes(const struct tiny_options *options, uint32_t stages,
                                char ret_digest[33])
{
    setenv("RUBATO_TAPES", "0", 1);
    train(options, stages, ret_digest);
    unsetenv("RUBATO_TAPES");
    assert_int_equal(counts.kept, 0);
    assert_int_equal(counts.played, 0);
}

static void test_passes_are_played(void **state)
{
    char alone[33], digest[33];

    (void)state;
    train(&job, 0, alone);
    for (uint32_t stages = 2; stages <= 3; stages++) {
        train_without_tapes(&job, stages, digest);
        assert_string_equal(digest, alone);
        train(&job, stages, digest);
        assert_string_equal(digest, alone);
        /* there and back, of 6 microbatches in each stage; the first step is done twice */
        assert_true(counts.passes >= (int)(2 * 6 * STEPS * stages));
        assert_true(counts.kept > 0 && counts.played > counts.passes / 2);
        assert_int_equal(counts.passes - counts.played, counts.kept);
        assert_int_equal(counts.unplayed, 0);
        /* a message a microbatch to the next stage and back, from the second step on, and the first
         * of those are only words */
        assert_in_range(counts.put, 2 * 6 * (STEPS - 1) * (stages - 1) - 20,
                        2 * 6 * (STEPS - 1) * (stages - 1));
    }
}

/* Without shelves everything goes through the hosts, with the same result. */
static void test_hosts_give_the_same(void **state)
{
    char alone[33], digest[33];

    (void)state;
    train(&job, 0, alone);
    setenv("RUBATO_SHELVES", "", 1);
    train(&job, 3, digest);
    unsetenv("RUBATO_SHELVES");
    assert_int_equal(counts.put, 0);
    assert_string_equal(digest, alone);
}

/* A stage that looks at each sum before it goes on asks for passes with sums one by one. */
static void test_laps_are_played(void **state)
{
    struct tiny_options options = job;
    char asked[33], digest[33];

    (void)state;
    options.micro_batch = options.global_batch;
    options.lap = 4;
    for (int kind = RB__ASYNCHRONOUS__KIND__VANILLA; kind <= RB__ASYNCHRONOUS__KIND__SPECTRAIN;
         kind++) {
        options.laps = kind;
        train_without_tapes(&options, 2, asked);
        train(&options, 2, digest);
        assert_string_equal(digest, asked);
        assert_true(counts.kept > 0 && counts.played > counts.kept);
        assert_int_equal(counts.unplayed, STEPS); /* the loss has a stage of its own */
        assert_int_equal(counts.passes - counts.played - counts.unplayed, counts.kept);
        assert_in_range(counts.put, 1, 2 * (STEPS - options.lap)); /* from the second lap on */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes_are_played),
        cmocka_unit_test(test_hosts_give_the_same),
        cmocka_unit_test(test_laps_are_played),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
