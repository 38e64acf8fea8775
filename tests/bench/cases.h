/* SPDX-License-Identifier: Apache-2.0 */
/* The models that are measured. */
#ifndef RB_TESTS_BENCH_CASES_H
#define RB_TESTS_BENCH_CASES_H

#include "tests/bench/job.h"

/* Small enough to be trained several times in a minute or two. */
extern const struct bench_case bench_sums_cases[];
extern const size_t bench_n_sums_cases;

/* By name; NULL: there is none. */
const struct bench_case *bench_case_find(const struct bench_case *cases, size_t n,
                                         const char *name);

/* The reference models at their own size and batch. */
extern const struct bench_case bench_train_cases[];
extern const size_t bench_n_train_cases;

#endif
