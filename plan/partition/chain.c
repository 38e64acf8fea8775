/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/chain.h"

#include "base/arena.h"
#include "plan/compile/makers.h"
#include "proto/work.h"

#include <stdlib.h>

/* While a program is taken apart. */
struct chain {
    const Rb__Model *model;
    const Rb__Program *program;
    int *makers; /* by tensor: the instruction that makes it; -1: none does */
    int *first;  /* by variable: the forward instruction that uses it first; -1: none */
    uint32_t n;  /* forward instructions */
    struct rb_chain_layer *layers;
};

/* The variable whose rounded copy, made once a step, the tensor is; else the tensor itself.  Each
 * stage rounds what it reads. */
static int behind_rounding(const struct chain *chain, int tensor, int reader)
{
    int maker = tensor < 0 ? -1 : rb_makers_of(chain->program, chain->makers, tensor, reader);

    if (maker < 0 || (uint32_t)maker >= chain->program->once)
        return tensor;
    return chain->program->instructions[maker]->n_inputs
               ? chain->program->instructions[maker]->inputs[0]
               : -1;
}

/* A variable belongs to the layer that uses it first. */
static void find_variables(struct chain *chain)
{
    for (size_t v = 0; v < chain->model->n_variables; v++)
        chain->first[v] = -1;
    for (uint32_t i = chain->program->once; i < chain->n; i++) {
        const Rb__Instruction *one = chain->program->instructions[i];

        for (size_t k = 0; k < one->n_inputs; k++) {
            int source = behind_rounding(chain, one->inputs[k], (int)i);
            const Rb__Tensor *tensor = source < 0 ? NULL : chain->program->tensors[source];

            if (!tensor || tensor->space != RB__TENSOR__SPACE__VARIABLE ||
                tensor->offset >= chain->model->n_variables || chain->first[tensor->offset] >= 0)
                continue;
            chain->first[tensor->offset] = (int)i;
            if (chain->model->variables[tensor->offset]->role == RB__VARIABLE__ROLE__TRAINED)
                chain->layers[i].elements +=
                    (double)chain->model->variables[tensor->offset]->elements;
        }
    }
}

/* From its maker up to the last forward instruction that reads it, a tensor crosses every cut. */
static void find_crossings(struct chain *chain)
{
    RB_CLEANUP(rb_freep) int *until = rb_alloc((chain->n + 1) * sizeof *until);
    RB_CLEANUP(rb_freep) double *bytes = rb_alloc((chain->n + 1) * sizeof *bytes);

    for (uint32_t i = 0; i < chain->n; i++) {
        const Rb__Instruction *one = chain->program->instructions[i];

        until[i] = (int)i;
        for (size_t k = 0; k < one->n_outputs; k++)
            if (one->outputs[k] >= 0)
                bytes[i] += rb_work_tensor_bytes(chain->program->tensors[one->outputs[k]]);
        chain->layers[i].made = bytes[i];
        for (size_t k = 0; k < one->n_inputs; k++) {
            int from = one->inputs[k] < 0
                           ? -1
                           : rb_makers_of(chain->program, chain->makers, one->inputs[k], (int)i);

            if (from >= 0 && from < (int)i) {
                until[from] = (int)i;
                if (k == 0 &&
                    bytes[from] > rb_work_tensor_bytes(chain->program->tensors[one->inputs[k]]))
                    bytes[from] = rb_work_tensor_bytes(chain->program->tensors[one->inputs[k]]);
            }
        }
    }
    for (uint32_t i = chain->program->once; i < chain->n; i++)
        for (int cut = (int)i; cut < until[i]; cut++)
            chain->layers[cut].crossing += bytes[i];
}

/* By instruction, the layer to whose variable it contributes a gradient; -1: to none. */
static void find_gradients(const struct chain *chain, int *ret_owners)
{
    const Rb__Program *program = chain->program;

    for (size_t i = 0; i < program->n_instructions; i++)
        ret_owners[i] = -1;
    for (size_t c = 0; c < program->n_contributions; c++) {
        const Rb__Contribution *one = program->contributions[c];
        int maker = rb_makers_of(program, chain->makers, (int)one->tensor, (int)one->after);

        if (maker >= 0)
            ret_owners[maker] = chain->first[one->variable];
    }
}

/* The layer that a backward instruction belongs to; `otherwise` where it reads gradients alone. */
static uint32_t layer_of(const struct chain *chain, size_t instruction, uint32_t otherwise)
{
    const Rb__Instruction *one = chain->program->instructions[instruction];
    int found = -1;

    for (size_t k = 0; k < one->n_inputs; k++) {
        const Rb__Tensor *tensor;
        int from = -1;

        if (one->inputs[k] < 0)
            continue;
        tensor = chain->program->tensors[one->inputs[k]];
        if (tensor->space == RB__TENSOR__SPACE__VARIABLE &&
            tensor->offset < chain->model->n_variables)
            from = chain->first[tensor->offset];
        else
            from = rb_makers_of(chain->program, chain->makers, one->inputs[k], (int)instruction);
        if (from < (int)chain->n && from > found)
            found = from;
    }
    return found >= 0 ? (uint32_t)found : otherwise;
}

uint32_t rb_chain_layers(const Rb__Model *model, const struct rb_cluster_device *device,
                         const struct rb_cost_profile *profile, struct rb_chain_layer **ret_layers)
{
    const Rb__Program *program = model->programs[0];
    RB_CLEANUP(rb_freep) int *makers = rb_makers_find(program);
    RB_CLEANUP(rb_freep) int *first = rb_alloc((model->n_variables + 1) * sizeof *first);
    RB_CLEANUP(rb_freep) int *owners = rb_alloc((program->n_instructions + 1) * sizeof *owners);
    struct chain chain = {.model = model, .program = program, .makers = makers, .first = first};
    uint32_t layer;

    chain.n = rb_makers_forward(program, makers);
    if (!chain.n || !program->train)
        return 0;
    chain.layers = rb_alloc(chain.n * sizeof *chain.layers);
    find_variables(&chain);
    find_crossings(&chain);
    find_gradients(&chain, owners);
    layer = chain.n - 1;
    for (size_t i = 0; i < program->n_instructions; i++) {
        double seconds = rb_cost_instruction(model, 0, i, device, profile).seconds;

        if (i < chain.n) {
            chain.layers[i].forward += seconds;
            continue;
        }
        layer = owners[i] >= 0 ? (uint32_t)owners[i] : layer_of(&chain, i, layer);
        chain.layers[layer].backward += seconds;
    }
    *ret_layers = chain.layers;
    return chain.n;
}
