/* SPDX-License-Identifier: Apache-2.0 */
/* Marks, as the device's door has them. */
#include "base/arena.h"
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

struct marks {
    struct rb_marks base;
    struct rb_gpu_marks *gpu;
};

int rb_cuda_marks_new(struct rb_device *device, size_t n, struct rb_marks **ret_marks,
                      struct rb_why *why)
{
    struct marks *marks = rb_alloc(sizeof *marks);
    int err = rb_gpu_marks_new(((struct rb_cuda *)device)->gpu, n, &marks->gpu, why);

    if (err) {
        free(marks);
        return err;
    }
    marks->base.ops = device->ops;
    *ret_marks = &marks->base;
    return 0;
}

void rb_cuda_marks_set(struct rb_marks *marks, size_t i)
{
    rb_gpu_marks_set(((struct marks *)marks)->gpu, i);
}

double rb_cuda_marks_between(struct rb_marks *marks, size_t from, size_t to)
{
    return rb_gpu_marks_between(((struct marks *)marks)->gpu, from, to);
}

bool rb_cuda_marks_reached(struct rb_marks *marks, size_t i)
{
    return rb_gpu_marks_reached(((struct marks *)marks)->gpu, i);
}

void rb_cuda_marks_free(struct rb_marks *marks)
{
    rb_gpu_marks_free(((struct marks *)marks)->gpu);
    free(marks);
}
