/* SPDX-License-Identifier: Apache-2.0 */
/* Random words against Random123, and what dropout does with them. */
#include "kernels/random.h"
#include "tests/kernels/case.h"
#include "tests/kernels/setup.h"

#include <Random123/philox.h>

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 40000 };

static const struct rb_key key = {42, 7, 3};

static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Random123's known answer for this generator, to show that its header is the expected one. */
static void random123_gives_its_known_answer(void **state)
{
    philox4x32_ctr_t counter = {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}};
    philox4x32_key_t ones = {{0xffffffff, 0xffffffff}};
    philox4x32_ctr_t words = philox4x32(counter, ones);

    (void)state;
    assert_int_equal(words.v[0], 0x408f276d);
    assert_int_equal(words.v[1], 0x41c83b0e);
    assert_int_equal(words.v[2], 0xa20bc7c6);
    assert_int_equal(words.v[3], 0x6d5451fd);
}

static void words_are_philox(void **state)
{
    static const uint64_t firsts[] = {
        0, 4, 60, 64, 1000, ((uint64_t)1 << 34) - 8, (uint64_t)0xffffffff * 4, (uint64_t)1 << 40};
    uint64_t k = mix64(key.seed + mix64(key.step));
    philox4x32_key_t philox_key = {{(uint32_t)k, (uint32_t)(k >> 32)}};
    uint32_t words[203];

    (void)state;
    for (size_t f = 0; f < RB_COUNT(firsts); f++) {
        rb_random_words(&key, 17, firsts[f], words, RB_COUNT(words));
        for (size_t i = 0; i < RB_COUNT(words); i++) {
            uint64_t block = (firsts[f] + i) / 4;
            philox4x32_ctr_t counter = {
                {(uint32_t)block, (uint32_t)(block >> 32), 17, key.microbatch}};

            assert_int_equal(words[i], philox4x32(counter, philox_key).v[i % 4]);
        }
    }
}

static void run_one(struct rb_device *device, const char *text, uint32_t id,
                    const struct rb_key *with, const float *x, float *y)
{
    struct rb_kernel *kernel;
    struct rb_case c;

    rb_case_read(text, &c);
    c.call.id = id;
    assert_int_equal(rb_kernel_prepare(device, &c.call, &kernel, NULL), 0);
    rb_kernel_run(kernel, (const void *const[]){x}, (void *const[]){y}, with);
    rb_kernel_free(kernel);
}

static void drop(struct rb_device *device, const char *text, uint32_t id, const struct rb_key *with,
                 float *y)
{
    static float ones[N];

    for (int i = 0; i < N; i++)
        ones[i] = 1.0f;
    run_one(device, text, id, with, ones, y);
}

static void dropout_keeps_its_share_and_the_mean(void **state)
{
    static float y[N];
    int kept = 0;

    drop(*state, "Dropout f32[40000] > f32[40000] ratio=0.25", 5, &key, y);
    for (int i = 0; i < N; i++) {
        assert_true(y[i] == 0.0f || y[i] == 1.0f / 0.75f);
        kept += y[i] != 0.0f;
    }
    /* Binomial: the standard deviation is 87. */
    assert_true(abs(kept - 30000) < 500);
    drop(*state, "Dropout f32[40000] > f32[40000] ratio=1.0", 5, &key, y);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == 0.0f);
}

static void uniform_numbers_are_even(void **state)
{
    static const float three = 3;
    static float y[N], again[N];
    int tenths[10] = {0};
    double sum = 0;

    run_one(*state, "Uniform f32[] > f32[40000]", 5, &key, &three, y);
    for (int i = 0; i < N; i++) {
        assert_true(y[i] >= 0 && y[i] < 3);
        tenths[(int)(y[i] / 0.3f) % 10]++;
        sum += (double)y[i];
    }
    /* The standard deviation of the mean is 0.0043, of a tenth 60. */
    assert_true(fabs(sum / N - 1.5) < 0.02);
    for (int i = 0; i < 10; i++)
        assert_true(abs(tenths[i] - N / 10) < 300);
    run_one(*state, "Uniform f32[] > f32[40000]", 6, &key, &three, again);
    assert_memory_not_equal(y, again, sizeof(y));
}

static void gradient_has_the_forward_mask(void **state)
{
    static float y[N], dx[N];

    drop(*state, "Dropout f32[40000] > f32[40000] ratio=0.5", 5, &key, y);
    drop(*state, "DropoutGrad f32[40000] > f32[40000] ratio=0.5 key=5", 900, &key, dx);
    assert_memory_equal(y, dx, sizeof(y));
}

static void every_part_of_the_key_matters(void **state)
{
    static float y[N], other[N];
    const struct rb_key others[] = {{43, 7, 3}, {42, 8, 3}, {42, 7, 4}};

    drop(*state, "Dropout f32[40000] > f32[40000] ratio=0.5", 5, &key, y);
    drop(*state, "Dropout f32[40000] > f32[40000] ratio=0.5", 6, &key, other);
    assert_memory_not_equal(y, other, sizeof(y));
    for (size_t i = 0; i < RB_COUNT(others); i++) {
        drop(*state, "Dropout f32[40000] > f32[40000] ratio=0.5", 5, &others[i], other);
        assert_memory_not_equal(y, other, sizeof(y));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random123_gives_its_known_answer),
        cmocka_unit_test(words_are_philox),
        cmocka_unit_test(dropout_keeps_its_share_and_the_mean),
        cmocka_unit_test(uniform_numbers_are_even),
        cmocka_unit_test(gradient_has_the_forward_mask),
        cmocka_unit_test(every_part_of_the_key_matters),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
