/* SPDX-License-Identifier: Apache-2.0 */
/* Names of initializers, matched by the patterns of a job file. */
#include "graph/onnx/model.h"

#include "base/buffer.h"

#include <fnmatch.h>

enum { MOST_NAMES = 5 };

static bool matches_any(const Onnx__GraphProto *graph, const char *glob)
{
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (!fnmatch(glob, graph->initializer[i]->name, 0))
            return true;
    return false;
}

/* "fc1.weight, fc1.bias, fc2.weight" */
static void list_names(const Onnx__GraphProto *graph, struct rb_buffer *text)
{
    char room[80];
    size_t n = 0, i;

    for (i = 0; i < graph->n_initializer && n < MOST_NAMES; i++)
        if (graph->initializer[i]->data_type == RB_F32)
            rb_buffer_format(text, "%s%s", n++ ? ", " : "",
                             rb_onnx_quote(graph->initializer[i]->name, room));
    rb_buffer_text(text, n == 0 ? "none" : i < graph->n_initializer ? ", ..." : "");
}

int rb_onnx_check_globs(const struct rb_onnx *model, const char *const *globs, int n,
                        struct rb_why *why)
{
    const Onnx__GraphProto *graph = model->proto->graph;

    for (int i = 0; i < n; i++) {
        RB_CLEANUP(rb_buffer_done) struct rb_buffer names = {0};
        char room[80];

        if (matches_any(graph, globs[i]))
            continue;
        list_names(graph, &names);
        return rb_why_set(why, RB_EINVAL, "'%s' is no weight's name; the model's are %s",
                          rb_onnx_quote(globs[i], room), names.data);
    }
    return 0;
}
