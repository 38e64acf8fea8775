/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, importing and differentiating ONNX: the first byte says how, the rest is the file. */
#include "base/buffer.h"
#include "graph/onnx/onnx.h"
#include "graph/train.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A loss that fits the output, and its gradient. */
static void differentiate(struct rb_graph *graph)
{
    struct rb_loss_options loss = {.type = "mse"};
    struct rb_why why;

    loss.targets = graph->outputs[0]->type;
    if (rb_tensor_elements(&loss.targets) == 1)
        loss.type = "graph";
    if (loss.targets.rank < 1 || loss.targets.dtype != RB_F32)
        return;
    loss.targets.rank--;
    memmove(loss.targets.dim, loss.targets.dim + 1, sizeof(int64_t) * (size_t)loss.targets.rank);
    if (!rb_loss_attach(graph, &loss, &why) && !rb_fuse(graph, &why))
        rb_autodiff(graph, &why);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct rb_import_options options = {0};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_buffer text = {0};
    struct rb_why why = {0};

    if (size < 1)
        return 0;
    options.train = bytes[0] & 1;
    options.batch = bytes[0] >> 1 & 3;
    options.seq_len = bytes[0] >> 3 & 7;
    if (rb_onnx_open_bytes(bytes + 1, size - 1, &model, &why))
        return 0;
    if (!rb_onnx_import(model, &options, &graph, &why)) {
        if (options.train)
            differentiate(graph);
        rb_graph_print(graph, &text);
        rb_buffer_done(&text);
        rb_graph_free(graph);
    }
    rb_onnx_close(model);
    return 0;
}
