/* SPDX-License-Identifier: Apache-2.0 */
/* The same loops compiled for instruction sets from the oldest to the newest give the same bits. */
#include "tests/kernels/loops.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 777, ALL = N * (LOOPS_FUNCTIONS + LOOPS_SUMS) };

static float x[N], plain[ALL], other[ALL];

static void compare(void (*loops)(const float *, float *, int), const char *name)
{
    memset(other, 0xff, sizeof(other));
    loops(x, other, N);
    for (int i = 0; i < ALL; i++)
        if (memcmp(&plain[i], &other[i], sizeof(float)) != 0)
            fail_msg("%s: number %d is %a instead of %a", name, i, (double)other[i],
                     (double)plain[i]);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    /* 120: past both ends of exp, where it vanishes and where it is infinite. */
    static const float size[] = {20.0f, 2.0f, 0.1f, 120.0f};
    static const float ends[] = {-87.33654022f, -87.33654785f, 88.72283936f, -104.0f, -1e9f};
    uint32_t seed = 1;

    (void)state;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f * size[i % 4];
    }
    for (int i = 0; i < (int)(sizeof(ends) / sizeof(*ends)); i++)
        x[N - 1 - i] = ends[i];
    loops_v1(x, plain, N);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        compare(loops_v3, "avx2");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        compare(loops_v4, "avx512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
