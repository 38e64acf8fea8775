/* SPDX-License-Identifier: Apache-2.0 */
/* What memory a worker takes: pages that are there, and not what was asked for. */
#include "tests/bench/cases.h"
#include "worker/step/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { HUGE = 2 << 20, STEPS = 3 };

/* How many bytes of the pages in [memory, memory + bytes) are there. */
static size_t resident(const void *memory, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), there = 0;
    uintptr_t first = (uintptr_t)memory / page * page;
    size_t pages = ((uintptr_t)memory + bytes - first + page - 1) / page;
    unsigned char *core = malloc(pages);

    assert_int_equal(mincore((void *)first, pages * page, core), 0);
    for (size_t i = 0; i < pages; i++)
        there += core[i] & 1;
    free(core);
    return there * page;
}

static struct bench_case case_of(const char *name)
{
    const struct bench_case *found = bench_case_find(bench_sums_cases, bench_n_sums_cases, name);

    assert_non_null(found);
    return *found;
}

/* A rank alone needs one array of sums, also where it was not alone before.  The first step is
 * redone. */
static void sums_of_one(void **state)
{
    struct bench_case one = case_of("mlp");
    struct rb_step_result result;
    struct bench_job job;
    size_t bytes;

    (void)state;
    one.batch = 8;
    bench_job_open(&one, 4, &job);
    bytes = (size_t)job.model->message->state_elements * sizeof *job.model->local;
    assert_true(bytes > 2 * HUGE); /* otherwise this shows nothing */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < STEPS; i++) {
            bench_job_step(&job, &result);
            assert_true(resident(job.model->local, bytes) + resident(job.model->reduced, bytes) <
                        bytes + HUGE);
        }
        job.model->empty = NULL; /* as with other ranks */
        memset(job.model->local, 1, bytes);
        memset(job.model->reduced, 1, bytes);
    }
    bench_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
