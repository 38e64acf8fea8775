/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and importing ONNX: the first byte says how, the rest is the file. */
#include "base/buffer.h"
#include "graph/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

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
        rb_graph_print(graph, &text);
        rb_buffer_done(&text);
        rb_graph_free(graph);
    }
    rb_onnx_close(model);
    return 0;
}
