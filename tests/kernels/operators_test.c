/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator of the table, on several shapes, against the reference; and again elsewhere in
 * memory and after other work, with the same bits. */
#include "tests/kernels/case.h"
#include "tests/kernels/chain.h"

#include "base/hash.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct rb_key key = {42, 7, 3};

/* One set of memory for a case: each tensor has a margin of poison on both sides. */
enum { MARGIN = 128 };

struct memory {
    void *block[2 * CASE_TENSORS];
    void *in[CASE_TENSORS], *out[CASE_TENSORS];
};

static void *place(struct memory *memory, int k, size_t bytes, size_t shift)
{
    char *block = NULL;

    assert_int_equal(posix_memalign((void **)&block, 4096, bytes + shift + 2 * MARGIN), 0);
    memset(block, 0xff, bytes + shift + 2 * MARGIN); /* NaN, and -1 */
    memory->block[k] = block;
    return block + MARGIN + shift;
}

static void memory_new(const struct rb_case *c, uint64_t seed, size_t shift, struct memory *memory)
{
    memset(memory, 0, sizeof(*memory));
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].dtype != RB_NONE) {
            memory->in[i] = place(memory, i, rb_case_bytes(&c->in[i]), shift);
            rb_case_fill(c, i, seed, memory->in[i]);
        }
    for (int i = 0; i < c->call.n_out; i++)
        if (c->out[i].dtype != RB_NONE)
            memory->out[i] = place(memory, CASE_TENSORS + i, rb_case_bytes(&c->out[i]), shift);
}

static void memory_done(struct memory *memory)
{
    for (int i = 0; i < 2 * CASE_TENSORS; i++)
        free(memory->block[i]);
}

static void check_margin(const char *text, const struct memory *memory, const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_out; i++)
        if (memory->out[i] && !rb_case_margin(&c->out[i], memory->out[i], MARGIN))
            fail_msg("%s: output %d is written beyond its ends", text, i);
}

static double tolerance(const struct rb_call *call, const struct rb_tensor_type *type)
{
    enum rb_op_kind kind = rb_op_info(call->op)->kind;

    if ((call->op == RB_OP_ATTENTION || call->op == RB_OP_ATTENTION_GRAD) &&
        call->in[0].dtype == RB_BF16)
        return 0x1p-7; /* its factors are rounded on the way, too */
    if (type->dtype == RB_BF16 && kind != RB_KIND_MOVE && call->op != RB_OP_CAST)
        return 0x1p-8; /* to the next bfloat16 */
    if (type->dtype != RB_F32 && type->dtype != RB_F64)
        return 0;
    if (kind == RB_KIND_MOVE && call->op != RB_OP_GATHER_GRAD)
        return 0;
    return type->dtype == RB_F64 && kind != RB_KIND_LOSS ? 1e-15 : 4e-6;
}

/* A case's seed follows from its text, so its numbers stay when other cases come and go. */
static void run_case(struct rb_device *device, const char *text, struct rb_case c)
{
    const uint64_t seed = rb_hash64(text, strlen(text)) % 1000;
    struct rb_kernel *kernel = NULL;
    struct memory got, again, want;
    struct rb_why why = {{0}};

    c.call.in = c.in; /* it is a copy */
    c.call.out = c.out;
    c.call.attributes = c.attributes;
    if (rb_kernel_prepare(device, &c.call, &kernel, &why) != 0)
        fail_msg("%s: %s", text, why.text);
    memory_new(&c, seed, 0, &got);
    memory_new(&c, seed, 64 * (1 + seed % 5), &again);
    memory_new(&c, seed, 0, &want);
    rb_kernel_run(kernel, (const void *const *)got.in, got.out, &key);
    rb_kernel_run(kernel, (const void *const *)again.in, again.out, &key);
    rb_reference_table[c.call.op](&c.call, (const void *const *)want.in, want.out, &key);
    for (int i = 0; i < c.call.n_out; i++) {
        double error;

        if (c.out[i].dtype == RB_NONE)
            continue;
        error = rb_case_error(&c.out[i], got.out[i], want.out[i]);
        if (error > tolerance(&c.call, &c.out[i]))
            fail_msg("%s: output %d is off by %g of the largest", text, i, error);
        if (memcmp(got.out[i], again.out[i], rb_case_bytes(&c.out[i])) != 0)
            fail_msg("%s: output %d has other bits at another address", text, i);
    }
    check_margin(text, &got, &c);
    check_margin(text, &again, &c);
    /* The same call prepared anew, after everything else that has run. */
    rb_kernel_free(kernel);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &kernel, &why), 0);
    rb_kernel_run(kernel, (const void *const *)again.in, again.out, &key);
    for (int i = 0; i < c.call.n_out; i++)
        if (got.out[i])
            assert_memory_equal(got.out[i], again.out[i], rb_case_bytes(&c.out[i]));
    rb_kernel_free(kernel);
    memory_done(&got);
    memory_done(&again);
    memory_done(&want);
}

static void every_case_agrees(void **state)
{
    struct rb_device *device;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    for (size_t i = 0; i < rb_cases_count; i++) {
        struct rb_case c;

        rb_case_read(rb_cases[i], &c);
        run_case(device, rb_cases[i], c);
    }
    rb_device_close(device);
}

/* Every product with factors of bfloat16, and with an output of bfloat16; as oneDNN computes it,
 * and with float32 copies. */
static void products_of_bfloat(void **state)
{
    struct rb_device *device;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    for (size_t i = 0; i < rb_cases_count; i++) {
        struct rb_case c;

        rb_case_read(rb_cases[i], &c);
        if (rb_op_info(c.call.op)->kind != RB_KIND_PRODUCT)
            continue;
        c.in[0].dtype = c.in[1].dtype = RB_BF16;
        for (int way = RB_DNNL_BFLOAT_NOT; way <= RB_DNNL_BFLOAT_FAST; way++) {
            ((struct rb_cpu *)device)->bfloat = way;
            c.out[0].dtype = RB_F32;
            run_case(device, rb_cases[i], c);
            c.out[0].dtype = RB_BF16;
            run_case(device, rb_cases[i], c);
        }
    }
    rb_device_close(device);
}

/* Every kind of number that rounding meets: halves, ends, NaN, the smallest; 16 of each in a row,
 * as an instruction takes them, and one of each. */
static void bfloat_of_all_kinds(void **state)
{
    static const uint32_t kinds[] = {0,          0x80000000, 0x3f808000, 0x3f818000, 0x3f808001,
                                     0x3f7fffff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                     0x7f800001, 0xffffffff, 0x7fffffff, 0x00000001, 0x00008000,
                                     0x00018000, 0x807fffff, 0x7f7f7fff, 0x7f7f8000};
    enum { KINDS = RB_COUNT(kinds), ALL = 17 * KINDS };
    const struct rb_tensor_type wide = {RB_F32, 1, {ALL}};
    const struct rb_tensor_type narrow = {RB_BF16, 1, {ALL}};
    struct rb_call call = {.op = RB_OP_CAST, .n_in = 1, .n_out = 1, .in = &wide, .out = &narrow};
    uint32_t bits[ALL];
    uint16_t rounded[ALL];
    float back[ALL];
    struct rb_device *device;
    struct rb_kernel *kernel;
    struct rb_why why;

    (void)state;
    for (int i = 0; i < ALL; i++)
        bits[i] = kinds[i < 16 * KINDS ? i / 16 : i % KINDS];
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    assert_int_equal(rb_kernel_prepare(device, &call, &kernel, &why), 0);
    rb_kernel_run(kernel, (const void *[]){bits}, (void *[]){rounded}, &key);
    rb_kernel_free(kernel);
    call.in = &narrow;
    call.out = &wide;
    assert_int_equal(rb_kernel_prepare(device, &call, &kernel, &why), 0);
    rb_kernel_run(kernel, (const void *[]){rounded}, (void *[]){back}, &key);
    rb_kernel_free(kernel);
    for (int i = 0; i < ALL; i++) {
        uint32_t again;
        float x;

        memcpy(&x, &bits[i], sizeof(x));
        assert_int_equal(rounded[i], rb_dtype_to_bfloat(x));
        memcpy(&again, &back[i], sizeof(again));
        assert_int_equal(again, (uint32_t)rounded[i] << 16);
    }
    rb_device_close(device);
}

static void fused_is_one_by_one(void **state)
{
    struct rb_device *device;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    rb_chain_check_each(device);
    rb_chain_check_many(device, 400);
    rb_chain_check_refusals(device);
    rb_device_close(device);
}

static void every_operator_has_a_case(void **state)
{
    bool seen[RB_OP_COUNT] = {false};
    struct rb_case c;

    (void)state;
    for (size_t i = 0; i < rb_cases_count; i++) {
        rb_case_read(rb_cases[i], &c);
        seen[c.call.op] = true;
    }
    for (unsigned op = 1; op < RB_OP_COUNT; op++)
        if (!seen[op] && rb_op_info(op)->kind != RB_KIND_EXCHANGE)
            fail_msg("no case of %s", rb_op_info(op)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_case), cmocka_unit_test(every_case_agrees),
        cmocka_unit_test(products_of_bfloat),        cmocka_unit_test(bfloat_of_all_kinds),
        cmocka_unit_test(fused_is_one_by_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
