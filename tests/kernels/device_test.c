/* SPDX-License-Identifier: Apache-2.0 */
/* The device interface itself: kinds, memory, what is refused and how, and values that have no
 * answer. */
#include "kernels/device.h"
#include "tests/kernels/case.h"
#include "tests/kernels/setup.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static int refused_advice, refused_with; /* 0: none is */

/* Called in place of the system's. */
int madvise(void *memory, size_t bytes, int advice)
{
    if (!refused_with || advice != refused_advice)
        return (int)syscall(SYS_madvise, memory, bytes, advice);
    errno = refused_with;
    return -1;
}

static void kinds_are_named(void **state)
{
    struct rb_device *device;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_device_open("abacus", 0, &device, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "abacus"));
    assert_non_null(strstr(rb_device_numeric_class("cpu"), "onednn-"));
    assert_non_null(strstr(rb_device_numeric_class("cpu"), "threads=1"));
    assert_ptr_equal(rb_device_numeric_class("cpu"), rb_device_numeric_class("cpu"));
}

/* There is no module beside this program, in any build. */
static void without_a_module(void **state)
{
    struct rb_device *device;
    struct rb_why why;

    (void)state;
    unsetenv("RUBATO_CUDA_MODULE");
    assert_int_equal(rb_device_open("cuda", 0, &device, &why), RB_EUNSUPPORTED);
    assert_string_equal(why.text, "no GPU: this build of Rubato has no CUDA module");
}

static void memory_is_zeroed_and_aligned(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 4096, 5000000};

    for (size_t i = 0; i < RB_COUNT(sizes); i++) {
        uint8_t *memory = rb_device_alloc(*state, sizes[i]);
        size_t alignment = sizes[i] >= (2 << 20) ? 2 << 20 : 64;

        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % alignment, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            if (memory[k] != 0)
                fail_msg("byte %zu is not 0", k);
        memset(memory, 0xff, sizes[i]);
        rb_device_free(*state, memory);
    }
    assert_null(rb_device_alloc(*state, SIZE_MAX - 4096));
    rb_device_free(*state, NULL);
}

/* How much of [first, end) is in memory? */
static size_t resident(const uint8_t *first, const uint8_t *end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    uint8_t *from = (uint8_t *)((uintptr_t)first & ~(page - 1));
    size_t pages = ((size_t)(end - from) + page - 1) / page;
    unsigned char *seen = malloc(pages);

    assert_int_equal(mincore(from, pages * page, seen), 0);
    for (size_t i = 0; i < pages; i++)
        n += (seen[i] & 1) * page;
    free(seen);
    return n;
}

static void memory_takes_room_where_it_is_written(void **state)
{
    enum { WHOLE = 64 << 20, PART = 8 << 20, EDGE = 4 << 20 };
    uint8_t *memory = rb_device_alloc(*state, WHOLE), *small = rb_device_alloc(*state, 1000);

    assert_true(resident(memory, memory + WHOLE) < EDGE);
    memset(memory + PART - 100, 1, PART);
    assert_in_range(resident(memory, memory + WHOLE), PART, PART + EDGE);
    rb_device_discard(*state, memory + PART, PART);
    assert_true(resident(memory, memory + WHOLE) < EDGE);
    assert_int_equal(memory[PART - 1], 1);
    for (size_t i = PART; i < 2 * PART; i++)
        assert_int_equal(memory[i], 0);
    memset(small, 1, 1000);
    rb_device_discard(*state, small + 10, 980);
    assert_true(small[9] == 1 && small[990] == 1 && !small[10] && !small[989]);
    rb_device_free(*state, small);
    rb_device_free(*state, memory);
}

/* Also memory of a file that others can map: when there is not enough memory once to take pages out
 * of the file, or never, on a system that cannot do that (gVisor). */
static void memory_is_zero_again_whatever_is_refused(void **state)
{
    enum { PART = 4 << 20, WHOLE = 2 * PART };
    static const struct {
        int advice, with;
        bool ever;
    } cases[] = {{0}, {MADV_REMOVE, ENOMEM}, {MADV_REMOVE, ENOSYS, true}, {MADV_DONTNEED, EINVAL}};

    for (size_t i = 0; i < 2 * RB_COUNT(cases); i++) {
        uint8_t *memory;

        refused_advice = cases[i / 2].advice;
        refused_with = cases[i / 2].ever ? cases[i / 2].with : 0;
        memory = i % 2 ? rb_device_alloc_shown(*state, WHOLE) : rb_device_alloc(*state, WHOLE);
        assert_non_null(memory);
        memset(memory, 1, WHOLE);
        refused_with = cases[i / 2].with;
        rb_device_discard(*state, memory + 10, PART);
        refused_with = 0;
        assert_true(memory[9] == 1 && memory[PART + 10] == 1);
        for (size_t k = 10; k < PART + 10; k++)
            if (memory[k])
                fail_msg("case %zu: byte %zu is not 0", i, k);
        rb_device_free(*state, memory);
    }
}

/* Where little is expected, a byte takes a small page and not a large one. */
static void memory_is_taken_as_expected(void **state)
{
    enum { PAGE = 2 << 20, WHOLE = 4 * PAGE, LITTLE = 64 << 10 };
    static const struct rb_extent extents[] = {
        {0, PAGE + LITTLE}, {PAGE + PAGE / 2, PAGE / 8}, {3 * PAGE, PAGE / 4 * 3}};
    uint8_t *memory = rb_device_alloc(*state, WHOLE);

    rb_device_expect(*state, memory, WHOLE, extents, RB_COUNT(extents));
    for (int page = 0; page < 4; page++)
        memory[page * PAGE + PAGE / 2] = 1;
    for (int page = 1; page <= 2; page++)
        assert_true(resident(memory + page * PAGE, memory + (page + 1) * PAGE) <= LITTLE);
    rb_device_expect(*state, memory, 1000, extents, 1); /* small memory is as it is */
    rb_device_free(*state, memory);
}

static const struct {
    const char *text;
    int err;
} refused[] = {
    {"Add f32[2,3] f32[4] > f32[2,3]", RB_EINVAL},
    {"Add f32[2,3] f32[2,3] > f32[3]", RB_EINVAL},
    {"Add f32[2,3] i64[2,3] > f32[2,3]", RB_EINVAL},
    {"Add f32[2] > f32[2]", RB_EINVAL},
    {"Add f32[2] f32[2] f32[2] > f32[2]", RB_EINVAL},
    {"Add f32[2] - > f32[2]", RB_EINVAL},
    {"Add f32[2] f32[2] > f32[2] bogus=1", RB_EUNSUPPORTED},
    {"Add f16[2] f16[2] > f16[2]", RB_EUNSUPPORTED},
    {"Add f32[-1] f32[1] > f32[1]", RB_EINVAL},
    {"Add f32[4294967296,4294967296] f32[1] > f32[4294967296,4294967296]", RB_EINVAL},
    {"Add f32[0,4294967296,4294967296] f32[1] > f32[0,4294967296,4294967296]", RB_EINVAL},
    {"Equal f32[2] f32[2] > f32[2]", RB_EINVAL},
    {"Less bool[2] bool[2] > bool[2]", RB_EUNSUPPORTED},
    {"Where f32[2] f32[2] f32[2] > f32[2]", RB_EINVAL},
    {"Gelu f64[2] > f64[2]", RB_EUNSUPPORTED},
    {"GatherElements f32[2,3] i64[2,4] > f32[2,3] axis=1", RB_EINVAL},
    {"GatherElements f32[2,3] i64[3,3] > f32[3,3] axis=1", RB_EINVAL},
    {"GatherElements f32[2,3] f32[2,3] > f32[2,3] axis=1", RB_EUNSUPPORTED},
    {"Scatter f32[2,3] i64[2,3] f32[2,3] > f32[2,4] axis=1", RB_EINVAL},
    {"Scatter f32[2,3] i64[2,3] f32[2,3] > f32[2,3] axis=1 reduction=9", RB_EUNSUPPORTED},
    {"ArgMax f32[2,3] > i64[3] axis=1", RB_EINVAL},
    {"ArgMax bool[2,3] > i64[2] axis=1", RB_EUNSUPPORTED},
    {"CumSum f32[2,3] > f32[3,2] axis=1", RB_EINVAL},
    {"TopK f32[2,3] > f32[2,4] i64[2,4] axis=1", RB_EINVAL},
    {"TopK f32[2,3] > f32[2,2] i64[2,1] axis=1", RB_EINVAL},
    {"Cast f32[2] > f32[3]", RB_EINVAL},
    {"Reshape f32[2] > f32[3]", RB_EINVAL},
    {"Transpose f32[2,3] > f32[3,2] perm=1,1", RB_EINVAL},
    {"Transpose f32[2,3] > f32[3,2] perm=1,2", RB_EINVAL},
    {"Transpose f32[2,3] > f32[3,2] perm=1", RB_EINVAL},
    {"Transpose f32[2,3] > f32[3,2]", RB_EINVAL},
    {"Expand f32[2] > f32[3]", RB_EINVAL},
    {"Concat f32[2] f32[3] > f32[6] axis=0", RB_EINVAL},
    {"Concat f32[2,2] f32[2,3] > f32[4,2] axis=0", RB_EINVAL},
    {"Concat f32[2] f32[3] > f32[5] axis=1", RB_EINVAL},
    {"Split f32[4] > f32[2] f32[3] axis=0", RB_EINVAL},
    {"Slice f32[4] > f32[2] starts=3 steps=1", RB_EINVAL},
    {"Slice f32[4] > f32[2] starts=0 steps=9223372036854775807", RB_EINVAL},
    {"Slice f32[4] > f32[2] starts=-1 steps=1", RB_EINVAL},
    {"Slice f32[4] > f32[3] starts=1 steps=-1", RB_EINVAL},
    {"SliceGrad f32[3] > f32[4] starts=2 steps=1", RB_EINVAL},
    {"Trilu f32[4] > f32[4]", RB_EINVAL},
    {"Gather f32[4,2] f32[3] > f32[3,2] axis=0", RB_EUNSUPPORTED},
    {"Gather f32[4,2] i64[3] > f32[3,3] axis=0", RB_EINVAL},
    {"GatherGrad i64[3] i64[3] > i64[4] axis=0", RB_EUNSUPPORTED},
    {"ReduceSum f32[4,2] > f32[4] axes=2", RB_EINVAL},
    {"ReduceSum f32[4,2] > f32[2] axes=1", RB_EINVAL},
    {"ReduceSum bool[4] > bool[1]", RB_EUNSUPPORTED},
    {"Softmax f32[4] > f32[4] axis=1", RB_EINVAL},
    {"Softmax f64[4] > f64[4] axis=0", RB_EUNSUPPORTED},
    {"SoftmaxGrad f32[4] f32[3] > f32[4] axis=0", RB_EINVAL},
    {"MatMul f32[2,3] f32[4,5] > f32[2,5]", RB_EINVAL},
    {"MatMul f32[2,3] f32[3,5] > f32[2,4]", RB_EINVAL},
    {"MatMul f32[2,3] f32[3,5] f32[4] > f32[2,5]", RB_EINVAL},
    {"MatMul f32[2,2,3] f32[3,3,5] > f32[2,2,5]", RB_EINVAL},
    {"MatMul f64[2,3] f64[3,5] > f64[2,5]", RB_EUNSUPPORTED},
    {"Conv f32[1,3,4,4] f32[2,2,3,3] > f32[1,2,2,2]", RB_EINVAL},
    {"Conv f32[1,3,4,4] f32[2,3,3,3] > f32[1,2,3,2]", RB_EINVAL},
    {"Conv f32[1,3,4,4] f32[2,3,3,3] > f32[1,2,2,2] strides=0,1", RB_EINVAL},
    {"Conv f32[1,3,4,4] f32[2,3,3,3] > f32[1,2,2,2] group=0", RB_EINVAL},
    {"Conv f32[1,3,4,4] f32[2,3,5,5] > f32[1,2,1,1]", RB_EINVAL},
    {"Conv f32[1,3,4,4] f32[2,3,3,3] > f32[1,2,2,2] pads=1,1", RB_EINVAL},
    {"Conv f32[1,3] f32[2,3] > f32[1,2]", RB_EUNSUPPORTED},
    {"ConvGradW f32[1,2,2,2] f32[1,3,4,4] > f32[3,3,3,3]", RB_EINVAL},
    {"LayerNormalization f32[2,3] f32[2] > f32[2,3] axis=1", RB_EINVAL},
    {"LayerNormalization f32[2,3] f32[3] > f32[2,3] f32[3] axis=1", RB_EINVAL},
    {"LayerNormGrad f32[2,3] f32[2,3] f32[3] f32[2] > f32[2,3] axis=1", RB_EINVAL},
    {"BatchNormalization f32[2,3] f32[2] f32[3] > f32[2,3]", RB_EINVAL},
    {"BatchNormalization f32[2] f32[2] f32[2] > f32[2]", RB_EINVAL},
    {"MaxPool f32[1,1,4,4] > f32[1,1,2,2]", RB_EINVAL},
    {"MaxPool f32[1,1,4,4] > f32[1,2,2,2] kernel=2,2 strides=2,2", RB_EINVAL},
    {"MaxPool f32[1,1,4,4] > f32[1,1,2,2] f32[1,1,2,2] kernel=2,2 strides=2,2", RB_EINVAL},
    {"MaxPoolGrad f32[1,1,2,2] i64[1,1,2,2] > f32[1,1,4,4] kernel=2,2 strides=2,2", RB_EINVAL},
    {"AveragePool f32[1,1,4,4] > f32[1,1,9,9] kernel=2,2 strides=2,2", RB_EINVAL},
    {"MaxPool f32[1,1,4] > f32[1,1,7] kernel=2 pads=2,2", RB_EINVAL},
    {"MaxPool f32[1,1,4] > f32[1,1,7] kernel=3 dilations=3 pads=2,7", RB_EINVAL},
    {"MaxPoolGrad f32[1,1,7] i32[1,1,7] > f32[1,1,4] kernel=2 pads=2,2", RB_EINVAL},
    {"AveragePool f32[1,1,4,4] > f32[1,1,4,6] kernel=1,1 pads=0,1,0,1", RB_EINVAL},
    {"AveragePoolGrad f32[1,1,4,6] > f32[1,1,4,4] kernel=1,1 pads=0,1,0,1", RB_EINVAL},
    {"Dropout f32[4] > f32[4] ratio=1.5", RB_EINVAL},
    {"Dropout f32[4] > f32[5] ratio=0.5", RB_EINVAL},
    {"Uniform f32[2] > f32[5]", RB_EINVAL},
    {"CrossEntropy f32[4,3] i64[3] > f64[1] i64[1] i64[1] f64[4] axis=1", RB_EINVAL},
    {"CrossEntropy f32[4,3] f32[4] > f64[1] axis=1", RB_EUNSUPPORTED},
    {"CrossEntropy f32[4,3] i64[4] > f32[1] axis=1", RB_EINVAL},
    {"CrossEntropy f32[4,3] i64[4] > f64[1] - - f32[4] axis=1", RB_EINVAL},
    {"CrossEntropy f32[4,3] i64[4] > - i64[1] axis=1", RB_EINVAL},
    {"CrossEntropyGrad f32[4,3] i64[4] > f32[4,3] axis=1", RB_EINVAL},
    {"MeanSquaredError f32[4] f32[3] > f64[1]", RB_EINVAL},
    {"GraphLoss f32[2] > f64[1] i64[1] samples=1", RB_EINVAL},
};

static void malformed_calls_are_refused(void **state)
{
    for (size_t i = 0; i < RB_COUNT(refused); i++) {
        struct rb_kernel *kernel = NULL;
        struct rb_why why = {{0}};
        struct rb_case c;
        int err;

        rb_case_read(refused[i].text, &c);
        err = rb_kernel_prepare(*state, &c.call, &kernel, &why);
        if (err != refused[i].err)
            fail_msg("%s: %d (%s) instead of %d", refused[i].text, err, why.text, refused[i].err);
        assert_null(kernel);
        assert_true(strlen(why.text) > 10);
    }
}

static void unknown_operators_are_refused(void **state)
{
    static const int numbers[] = {0, RB_OP_COUNT, 100000, -1};
    struct rb_tensor_type type = {RB_F32, 1, {3}};

    for (size_t i = 0; i < RB_COUNT(numbers); i++) {
        struct rb_call call = {
            .op = (enum rb_op)numbers[i], .n_in = 1, .n_out = 1, .in = &type, .out = &type};
        struct rb_kernel *kernel;

        assert_int_equal(rb_kernel_prepare(*state, &call, &kernel, NULL), RB_EUNSUPPORTED);
    }
}

static void refusals_say_what_and_why(void **state)
{
    struct rb_kernel *kernel;
    struct rb_why why;
    struct rb_case c;

    rb_case_read("MatMul f32[2,3] f32[4,5] > f32[2,5]", &c);
    rb_kernel_prepare(*state, &c.call, &kernel, &why);
    assert_string_equal(why.text,
                        "MatMul(float32[2,3], float32[4,5]): the inner sizes 3 and 4 differ");
}

static void run(struct rb_device *device, const char *text, const void *const *in, void *const *out)
{
    const struct rb_key key = {0, 0, 0};
    struct rb_kernel *kernel;
    struct rb_case c;

    rb_case_read(text, &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &kernel, NULL), 0);
    rb_kernel_run(kernel, in, out, &key);
    rb_kernel_free(kernel);
}

/* A value without an answer shows as NaN and touches nothing else. */
static void what_is_outside_shows(void **state)
{
    const float x[6] = {1, 2, 3, 4, 5, 6};
    const int64_t rows[3] = {1, 2, -3}, classes[3] = {0, 2, -1};
    float y[6], grad[6];
    double loss, lse[3];
    int64_t valid, correct;
    const void *gather_in[] = {x, rows}, *loss_in[] = {x, classes}, *grad_in[] = {x, classes, lse};
    void *gather_out[] = {y}, *loss_out[] = {&loss, &valid, &correct, lse}, *grad_out[] = {grad};

    run(*state, "Gather f32[2,2] i64[3] > f32[3,2] axis=0", gather_in, gather_out);
    assert_true(y[0] == 3 && y[1] == 4 && isnan(y[2]) && isnan(y[3]) && isnan(y[4]));
    run(*state, "GatherGrad f32[3,2] i64[3] > f32[2,2] axis=0", gather_in, gather_out);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 1 && y[3] == 2);
    run(*state, "CrossEntropy f32[3,2] i64[3] > f64[1] i64[1] i64[1] f64[3] axis=1", loss_in,
        loss_out);
    assert_true(isnan(loss) && valid == 3 && correct == 0);
    run(*state, "CrossEntropyGrad f32[3,2] i64[3] f64[3] > f32[3,2] axis=1", grad_in, grad_out);
    assert_true(!isnan(grad[0]) && isnan(grad[2]) && isnan(grad[5]));
    run(*state, "Scatter f32[6] i64[3] f32[3] > f32[6] axis=0",
        (const void *[]){x, (const int64_t[]){-7, 6, -1}, x}, gather_out);
    assert_true(!memcmp(y, x, sizeof *x * 5) && y[5] == 3);
}

static void division_and_casts_have_no_traps(void **state)
{
    const int64_t a[4] = {7, INT64_MIN, -7, 5}, b[4] = {0, -1, 2, -1};
    const float reals[4] = {NAN, 1e30f, -1e30f, -2.7f};
    int64_t y[4];
    const void *divide_in[] = {a, b}, *cast_in[] = {reals};
    void *out[] = {y};

    run(*state, "Div i64[4] i64[4] > i64[4]", divide_in, out);
    assert_true(y[0] == 0 && y[1] == INT64_MIN && y[2] == -3 && y[3] == -5);
    run(*state, "Cast f32[4] > i64[4]", cast_in, out);
    assert_true(y[0] == 0 && y[1] == INT64_MAX && y[2] == INT64_MIN && y[3] == -2);
    run(*state, "Cast f32[4] > u64[4]", (const void *[]){(const float[]){NAN, 1e30f, 0x1p63f, 3}},
        out);
    assert_true(y[0] == 0 && y[1] == -1 && y[2] == INT64_MIN && y[3] == 3);
}

static void nan_is_not_hidden(void **state)
{
    const float x[40] = {[7] = NAN}, into[3] = {NAN, 2, 5}, updates[3] = {1, NAN, 2};
    const int64_t places[3] = {0, 1, 2};
    float y[40];
    const void *in[] = {x}, *scatter_in[] = {into, places, updates};
    void *out[] = {y};

    run(*state, "Relu f32[40] > f32[40]", in, out);
    assert_true(isnan(y[7]) && y[0] == 0);
    run(*state, "ReduceMax f32[40] > f32[1] axes=0", in, out);
    assert_true(isnan(y[0]));
    run(*state, "Softmax f32[40] > f32[40] axis=0", in, out);
    assert_true(isnan(y[0]));
    run(*state, "MaxPool f32[1,1,8,5] > f32[1,1,1,1] kernel=8,5", in, out);
    assert_true(isnan(y[0]));
    run(*state, "Scatter f32[3] i64[3] f32[3] > f32[3] axis=0 reduction=3", scatter_in, out);
    assert_true(isnan(y[0]) && isnan(y[1]) && y[2] == 5);
    run(*state, "Scatter f32[3] i64[3] f32[3] > f32[3] axis=0 reduction=4", scatter_in, out);
    assert_true(isnan(y[0]) && isnan(y[1]) && y[2] == 2);
}

/* Row i of 100 shows i + 1 of its elements: their results are, to the bit, those of a row of that
 * length; the others are 0.  A row that shows nothing has no answer, nor has one with a NaN. */
static void masked_ends_of_rows_are_nothing(void **state)
{
    enum { N = 100 };
    static float x[(N + 1) * N], y[(N + 1) * N], alone[N];

    for (int i = 0; i <= N; i++)
        for (int j = 0; j < N; j++)
            x[i * N + j] = j <= i && i < N ? sinf((float)(i * N + j)) * 9 : -INFINITY;
    run(*state, "Softmax f32[101,100] > f32[101,100] axis=1", (const void *[]){x}, (void *[]){y});
    for (int i = 0; i < N; i++) {
        char text[64];

        snprintf(text, sizeof text, "Softmax f32[%d] > f32[%d] axis=0", i + 1, i + 1);
        run(*state, text, (const void *[]){x + i * N}, (void *[]){alone});
        assert_memory_equal(y + i * N, alone, (size_t)(i + 1) * sizeof *y);
        for (int j = i + 1; j < N; j++)
            assert_true(y[i * N + j] == 0);
    }
    for (int j = 0; j < N; j++)
        assert_true(isnan(y[N * N + j]));
    x[3] = NAN; /* among masked elements, near the start and near the end */
    x[N + 90] = NAN;
    run(*state, "Softmax f32[2,100] > f32[2,100] axis=1", (const void *[]){x}, (void *[]){y});
    for (int j = 0; j < 2 * N; j++)
        assert_true(isnan(y[j]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_named),
        cmocka_unit_test(without_a_module),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(memory_takes_room_where_it_is_written),
        cmocka_unit_test(memory_is_zero_again_whatever_is_refused),
        cmocka_unit_test(memory_is_taken_as_expected),
        cmocka_unit_test(malformed_calls_are_refused),
        cmocka_unit_test(unknown_operators_are_refused),
        cmocka_unit_test(refusals_say_what_and_why),
        cmocka_unit_test(what_is_outside_shows),
        cmocka_unit_test(division_and_casts_have_no_traps),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(masked_ends_of_rows_are_nothing),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
