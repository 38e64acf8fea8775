/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t count_parameters(const Rb__Model *model, int *ret_variables)
{
    int64_t parameters = 0;

    *ret_variables = 0;
    for (size_t i = 0; i < model->n_variables; i++)
        if (model->variables[i]->role == RB__VARIABLE__ROLE__TRAINED) {
            parameters += (int64_t)model->variables[i]->elements;
            ++*ret_variables;
        }
    return parameters;
}

/* ", batch 30 as 7 microbatches of 4 and one of 2" */
static void batch_text(const Rb__Model *model, char *text, size_t room)
{
    int64_t whole = model->global_batch / model->micro_batch;
    int64_t rest = model->global_batch % model->micro_batch;
    char more[48] = "";

    if (rest)
        snprintf(more, sizeof(more), " and one of %" PRId64, rest);
    snprintf(text, room, ", batch %" PRId64 " as %" PRId64 " microbatch%s of %" PRId64 "%s",
             model->global_batch, whole, whole == 1 ? "" : "es", model->micro_batch, more);
}

void rb_summary_write(const char *onnx_path, struct rb_compiled *compiled)
{
    static const char *const units[] = {"", " k", " M", " G"};
    const Rb__Model *model = compiled->model;
    const char *slash = strrchr(onnx_path, '/');
    char batch[128] = "";
    size_t unit = 0;
    double shown;
    int variables;

    compiled->parameters = count_parameters(model, &variables);
    if (model->micro_batch > 0) {
        compiled->microbatches =
            (uint32_t)((model->global_batch + model->micro_batch - 1) / model->micro_batch);
        batch_text(model, batch, sizeof(batch));
    }
    shown = (double)compiled->parameters;
    for (; shown >= 1000 && unit + 1 < RB_COUNT(units); shown /= 1000)
        unit++;
    snprintf(compiled->summary, sizeof(compiled->summary),
             "%.100s: %.*f%s parameters in %d variable%s%s", slash ? slash + 1 : onnx_path,
             unit ? 1 : 0, shown, units[unit], variables, variables == 1 ? "" : "s", batch);
}
