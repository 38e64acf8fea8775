/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/floor.h"

#include "tests/bench/job.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 1024, COPIED = 4 << 20, ROUNDS = 15 };

void bench_speed_measure(struct rb_device *device, struct bench_speed *ret_speed)
{
    const struct rb_tensor_type square = {RB_F32, 2, {WIDTH, WIDTH}}, types[2] = {square, square};
    const struct rb_call call = {RB_OP_MATMUL, 0, 2, 1, types, &square, NULL, 0};
    struct rb_kernel *kernel;
    struct rb_why why;
    void *memory[3];
    double product[ROUNDS], copy[ROUNDS];
    const double flops = 2.0 * WIDTH * WIDTH * WIDTH;

    bench_check(rb_kernel_prepare(device, &call, &kernel, &why), &why);
    for (int i = 0; i < 3; i++)
        memory[i] = rb_device_alloc(device, COPIED);
    if (!memory[0] || !memory[1] || !memory[2])
        bench_check(RB_ENOMEM, &(struct rb_why){"no memory"});
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t at[3] = {bench_clock_ns()};

        rb_kernel_run(kernel, (const void *const *)memory, &memory[2], &(struct rb_key){0});
        at[1] = bench_clock_ns();
        memcpy(memory[0], memory[1], COPIED);
        at[2] = bench_clock_ns();
        product[i] = (double)(at[1] - at[0]);
        copy[i] = (double)(at[2] - at[1]);
    }
    ret_speed->flops = flops / bench_median(product, ROUNDS);
    ret_speed->bytes = 2.0 * COPIED / bench_median(copy, ROUNDS);
    rb_kernel_free(kernel);
    for (int i = 0; i < 3; i++)
        rb_device_free(device, memory[i]);
}

static double elements_of(const Rb__Tensor *tensor)
{
    double n = 1;

    for (size_t i = 0; i < tensor->n_dims; i++)
        n *= (double)tensor->dims[i];
    return n;
}

static double bytes_of(const Rb__Program *program, const int32_t *tensors, size_t n)
{
    double bytes = 0;

    for (size_t i = 0; i < n; i++)
        if (tensors[i] >= 0 && program->tensors[tensors[i]]->space != RB__TENSOR__SPACE__ABSENT)
            bytes += elements_of(program->tensors[tensors[i]]) *
                     (double)rb_dtype_size((enum rb_dtype)program->tensors[tensors[i]]->dtype);
    return bytes;
}

/* Every output element of a product is a sum over what the weight, or the other factor, has for it.
 */
static double flops_of(const Rb__Program *program, const Rb__Instruction *one)
{
    const Rb__Tensor *a, *b, *y;
    size_t inner;

    if (one->operator_ < RB_OP_MATMUL || one->operator_ > RB_OP_CONV_GRAD_W)
        return 0;
    a = program->tensors[one->inputs[0]];
    b = program->tensors[one->inputs[1]];
    y = program->tensors[one->outputs[0]];
    switch (one->operator_) {
    case RB_OP_MATMUL:
        inner = a->n_dims - 1;
        for (size_t i = 0; i < one->n_attributes; i++)
            if (strcmp(one->attributes[i]->key, "transA") == 0 && one->attributes[i]->ints[0] &&
                a->n_dims > 1)
                inner = a->n_dims - 2;
        return 2 * elements_of(y) * (double)a->dims[inner];
    case RB_OP_CONV:
        return 2 * elements_of(y) * elements_of(b) / (double)b->dims[0];
    case RB_OP_CONV_GRAD_X: /* (dy, w) */
        return 2 * elements_of(a) * elements_of(b) / (double)b->dims[0];
    default: /* (dy, x) > dw */
        return 2 * elements_of(a) * elements_of(y) / (double)y->dims[0];
    }
}

double bench_floor_of(const Rb__Program *program, size_t instruction,
                      const struct bench_speed *speed)
{
    const Rb__Instruction *one = program->instructions[instruction];
    double products = flops_of(program, one) / speed->flops;
    double bytes = (bytes_of(program, one->inputs, one->n_inputs) +
                    bytes_of(program, one->outputs, one->n_outputs)) /
                   speed->bytes;

    return products > bytes ? products : bytes;
}

static void print_tensors(const Rb__Program *program, const int32_t *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const Rb__Tensor *tensor = tensors[i] < 0 ? NULL : program->tensors[tensors[i]];

        if (!tensor || tensor->space == RB__TENSOR__SPACE__ABSENT) {
            printf(" -");
            continue;
        }
        printf(" %s[", rb_dtype_text((enum rb_dtype)tensor->dtype));
        for (size_t k = 0; k < tensor->n_dims; k++)
            printf("%s%lld", k ? "," : "", (long long)tensor->dims[k]);
        printf("]");
    }
}

void bench_floor_print(const Rb__Program *program, size_t instruction)
{
    const Rb__Instruction *one = program->instructions[instruction];

    printf("%s", rb_op_info(one->operator_)->name);
    print_tensors(program, one->inputs, one->n_inputs);
    printf(" >");
    print_tensors(program, one->outputs, one->n_outputs);
    for (size_t i = 0; i < one->n_attributes; i++) {
        printf(" %s=", one->attributes[i]->key);
        for (size_t k = 0; k < one->attributes[i]->n_ints; k++)
            printf("%s%lld", k ? "," : "", (long long)one->attributes[i]->ints[k]);
    }
    printf("\n");
}
