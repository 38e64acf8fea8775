/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that do not fit into memory as they are: which programs they get. */
#include "plan/compile/footprint.h"
#include "tests/plan/jobs.h"

#include <stdio.h>
#include <string.h>

/* A limit that the job does not fit makes it keep less; with `never` it keeps all.  The digest
 * stays the same. */
static void computed_again(void **state)
{
    struct rb_compiled whole, kept, again;
    char limit[64];

    (void)state;
    MUST_COMPILE(jobs_text, &whole, NULL);
    assert_null(strstr(whole.summary, "instead of"));
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu",
             (unsigned long long)(rb_footprint_bytes(whole.model, 2, 8) - 1));
    MUST_COMPILE(jobs_text, &kept, limit, "spec.memory.recompute=never", NULL);
    MUST_COMPILE(jobs_text, &again, limit, NULL);
    assert_int_equal(kept.model->programs[0]->arena_bytes, whole.model->programs[0]->arena_bytes);
    assert_true(again.model->programs[0]->arena_bytes < whole.model->programs[0]->arena_bytes);
    assert_true(again.model->programs[0]->n_instructions >
                whole.model->programs[0]->n_instructions);
    assert_non_null(strstr(again.summary, "instead of"));
    assert_string_equal(again.model->spec_digest, whole.model->spec_digest);
    rb_compiled_done(&whole);
    rb_compiled_done(&kept);
    rb_compiled_done(&again);
}

/* Shards are longer on fewer devices: with a limit between the needs of the largest and the
 * smallest number of devices, the job has programs of both kinds. */
static void computed_again_on_fewer(void **state)
{
    const char *const batch = "spec.train.globalBatch=31";
    struct rb_compiled whole, both, tight, all;
    struct rb_footprint footprint;
    char limit[64];
    uint64_t most, least;
    size_t n;

    (void)state;
    MUST_COMPILE(jobs_text, &whole, batch, NULL);
    n = whole.model->n_programs;
    most = rb_footprint_bytes(whole.model, 2, 8);
    least = rb_footprint_bytes(whole.model, 2, 1);
    assert_true(most < least);
    assert_false(rb_footprint_has_both(whole.model));
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu", (unsigned long long)most);
    MUST_COMPILE(jobs_text, &both, batch, limit, NULL);
    assert_true(rb_footprint_has_both(both.model));
    assert_true(whole.model->global_batch % whole.model->micro_batch);
    assert_int_equal(both.model->n_programs, n + 2);
    for (size_t p = 0; p < both.model->n_programs; p++) {
        const Rb__Program *one = both.model->programs[p];
        const Rb__Program *plain = whole.model->programs[p < n ? p : p == n ? 0 : 1];

        assert_int_equal(one->recomputes, p >= n);
        assert_int_equal(one->batch, plain->batch);
        assert_int_equal(one->train, plain->train);
        assert_int_equal(one->n_contributions, plain->n_contributions);
        assert_true(p < n ? one->n_instructions == plain->n_instructions
                          : one->n_instructions > plain->n_instructions);
    }
    footprint = rb_footprint_of(both.model);
    assert_true(footprint.again < footprint.kept);
    assert_int_equal(rb_footprint_bytes(both.model, 2, 8), most);
    assert_int_equal(rb_footprint_total(&footprint, false, 2, 8), most);
    assert_int_equal(rb_footprint_total(&footprint, true, 2, 8),
                     most - footprint.kept + footprint.again);
    assert_int_equal(rb_footprint_staged(&footprint, true, 0, 8, 3, 0),
                     least - footprint.kept + 5 * footprint.again);
    assert_non_null(strstr(both.summary, "where memory asks for it"));
    assert_string_equal(both.model->spec_digest, whole.model->spec_digest);

    /* nowhere, or everywhere in the same way: one set */
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu", (unsigned long long)most - 1);
    MUST_COMPILE(jobs_text, &tight, batch, limit, NULL);
    assert_false(rb_footprint_has_both(tight.model));
    assert_int_equal(tight.model->n_programs, n);
    assert_true(tight.model->programs[0]->n_instructions >
                whole.model->programs[0]->n_instructions);
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu", (unsigned long long)least);
    MUST_COMPILE(jobs_text, &all, batch, limit, NULL);
    assert_int_equal(all.model->n_programs, n);
    assert_int_equal(all.model->programs[0]->n_instructions,
                     whole.model->programs[0]->n_instructions);
    rb_compiled_done(&whole);
    rb_compiled_done(&both);
    rb_compiled_done(&tight);
    rb_compiled_done(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computed_again),
        cmocka_unit_test(computed_again_on_fewer),
    };

    return cmocka_run_group_tests(tests, jobs_open, jobs_close);
}
