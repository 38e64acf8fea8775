/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that training starts from, and weights that stay: what a job file says of them. */
#include "base/buffer.h"
#include "proto/safetensors.h"
#include "tests/plan/jobs.h"

#include <stdlib.h>
#include <string.h>

static const struct rb_safetensor *find(const struct rb_safetensor *tensors, int n,
                                        const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(tensors[i].name, name))
            return &tensors[i];
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static const Rb__Variable *first_vector(const Rb__Model *model)
{
    for (size_t i = 0; i < model->n_variables; i++)
        if (model->variables[i]->n_dims == 1)
            return model->variables[i];
    fail_msg("no vector among the variables");
    return NULL;
}

static void weights(void **state)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};
    float fresh[16] = {41, 42, 43, 44, 45, 46, 47, 48};
    struct rb_safetensor mine = {.type = {.dtype = RB_F32, .rank = 1}, .data = fresh}, *read;
    struct rb_compiled compiled, other;
    const Rb__Variable *vector;
    int n;

    (void)state;
    MUST_COMPILE(jobs_rows, &compiled, NULL);
    assert_int_equal(
        rb_safetensors_read(compiled.weights.data, compiled.weights.size, &read, &n, NULL), 0);
    assert_int_equal(n, compiled.model->n_variables);
    for (size_t i = 0; i < compiled.model->n_variables; i++)
        find(read, n, compiled.model->variables[i]->name);
    free(read);

    vector = first_vector(compiled.model);
    mine.name = vector->name;
    mine.type.dim[0] = (int64_t)vector->elements;
    assert_true(vector->elements <= RB_COUNT(fresh));
    rb_safetensors_header(&mine, 1, &file);
    rb_buffer_add(&file, fresh, vector->elements * sizeof(float));
    jobs_save("mine.safetensors", file.data, file.size);
    MUST_COMPILE(jobs_rows, &other, "spec.model.weights=mine.safetensors", NULL);
    assert_int_equal(rb_safetensors_read(other.weights.data, other.weights.size, &read, &n, NULL),
                     0);
    assert_memory_equal(find(read, n, vector->name)->data, fresh, vector->elements * sizeof(float));
    free(read);
    assert_string_not_equal(compiled.model->spec_digest, other.model->spec_digest);
    rb_compiled_done(&other);

    mine.type.dim[0]--;
    rb_buffer_clear(&file);
    rb_safetensors_header(&mine, 1, &file);
    rb_buffer_add(&file, fresh, (vector->elements - 1) * sizeof(float));
    jobs_save("short.safetensors", file.data, file.size);
    MUST_REFUSE(RB_EINVAL, vector->name, jobs_rows, "spec.model.weights=short.safetensors", NULL);
    mine.name = "nobody";
    rb_buffer_clear(&file);
    rb_safetensors_header(&mine, 1, &file);
    rb_buffer_add(&file, fresh, (vector->elements - 1) * sizeof(float));
    jobs_save("alien.safetensors", file.data, file.size);
    MUST_REFUSE(RB_EINVAL, "'nobody'", jobs_rows, "spec.model.weights=alien.safetensors", NULL);
    rb_compiled_done(&compiled);
}

static void freezing(void **state)
{
    struct rb_compiled compiled, frozen;
    int fixed = 0;

    (void)state;
    MUST_COMPILE(jobs_rows, &compiled, NULL);
    MUST_COMPILE(jobs_rows, &frozen, "spec.model.freeze=['*.bias']", NULL);
    assert_int_equal(compiled.model->n_variables, frozen.model->n_variables);
    for (size_t i = 0; i < frozen.model->n_variables; i++)
        fixed += frozen.model->variables[i]->role == RB__VARIABLE__ROLE__FIXED;
    assert_true(fixed > 0);
    assert_true(frozen.parameters < compiled.parameters);
    assert_true(frozen.model->fixed_bytes > 0);
    assert_string_not_equal(compiled.model->spec_digest, frozen.model->spec_digest);
    rb_compiled_done(&compiled);
    rb_compiled_done(&frozen);
    MUST_REFUSE(RB_EINVAL, "nothing to train", jobs_rows, "spec.model.freeze=['*']", NULL);
}

/* A pattern that matches nothing was meant to match something. */
static void patterns_that_match_nothing(void **state)
{
    (void)state;
    MUST_REFUSE(RB_EINVAL, "spec.model.freeze: 'encoder.*' is no weight's name; the model's are ",
                jobs_rows, "spec.model.freeze=['*.bias', 'encoder.*']", NULL);
    MUST_REFUSE(RB_EINVAL, ".weight, ", jobs_rows, "spec.model.freeze=['encoder.*']", NULL);
    MUST_REFUSE(RB_EINVAL, "spec.model.buffers: 'mask' is no weight's name", jobs_rows,
                "spec.model.buffers=[mask]", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights),
        cmocka_unit_test(freezing),
        cmocka_unit_test(patterns_that_match_nothing),
    };

    return cmocka_run_group_tests(tests, jobs_open, jobs_close);
}
