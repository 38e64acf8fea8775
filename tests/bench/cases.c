/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/cases.h"

#include <string.h>

static const char adamw[] = "type: adamw, lr: 1.0e-3, weightDecay: 0.01";
static const char sgd[] = "type: sgd, lr: 0.02, momentum: 0.9";

const struct bench_case bench_sums_cases[] = {
    {
        .name = "gpt",
        .kind = "gpt",
        .settings = {"layers=2", "width=128", "heads=4", "seq=64"},
        .data = "text",
        .seq = 64,
        .batch = 32,
        .steps = 240,
        .optimizer = adamw,
    },
    {
        .name = "mlp",
        .kind = "mlp",
        .data = "classes",
        .features = {784},
        .batch = 128,
        .steps = 100,
        .optimizer = sgd,
    },
    {
        .name = "cnn",
        .kind = "cnn",
        .data = "classes",
        .features = {3, 32, 32},
        .batch = 64,
        .steps = 100,
        .optimizer = sgd,
    },
    {
        .name = "wide",
        .kind = "gpt",
        .settings = {"vocab=8192", "layers=2", "width=128", "heads=4", "seq=64"},
        .data = "words",
        .seq = 64,
        .batch = 32,
        .steps = 60,
        .optimizer = adamw,
    },
};
const size_t bench_n_sums_cases = sizeof bench_sums_cases / sizeof bench_sums_cases[0];

const struct bench_case bench_train_cases[] = {
    {
        .name = "gpt",
        .kind = "gpt",
        .data = "text",
        .seq = 128,
        .batch = 16,
        .steps = 1000000,
        .optimizer = "type: adamw, lr: 3.0e-4, betas: [0.9, 0.95], weightDecay: 0.1",
    },
    {
        .name = "mlp",
        .kind = "mlp",
        .data = "classes",
        .features = {784},
        .batch = 128,
        .steps = 1000000,
        .optimizer = "type: sgd, lr: 1.0e-4, momentum: 0.9",
    },
    {
        .name = "cnn",
        .kind = "cnn",
        .data = "classes",
        .features = {3, 32, 32},
        .batch = 64,
        .steps = 1000000,
        .optimizer = "type: sgd, lr: 1.0e-4, momentum: 0.9",
    },
    {
        .name = "resnet",
        .data = "classes",
        .features = {3, 32, 32},
        .batch = 64,
        .steps = 1000000,
        .optimizer = "type: sgd, lr: 1.0e-4, momentum: 0.9",
    },
};
const size_t bench_n_train_cases = sizeof bench_train_cases / sizeof bench_train_cases[0];

const struct bench_case *bench_case_find(const struct bench_case *cases, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    return NULL;
}
