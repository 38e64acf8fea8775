/* SPDX-License-Identifier: Apache-2.0 */
/* The signature that torch.export leaves in a file, a text with a line for each tensor,
 *
 *     p_fc1_weight: PARAMETER target='fc1.weight'
 *     b_mask: BUFFER target='mask' persistent=True
 *     add: BUFFER_MUTATION target='mask'
 *
 * and, at each node, the call that it was made from,
 *
 *     %linear : ... [target=torch.ops.aten.linear.default](args = (%x, %p_fc1_weight), ...
 */
#include "graph/onnx/model.h"

#include "base/arena.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    GRAPH_METADATA = 16, /* GraphProto */
    NODE_METADATA = 9,   /* NodeProto */
    MOST_NAME = 256,
};

/* The value of a key of a message's metadata; the caller frees it. */
static char *find_metadata(struct rb_capped_alloc *capped, const ProtobufCMessage *message,
                           unsigned tag, const char *key)
{
    char *found = NULL;

    for (unsigned i = 0; !found && i < message->n_unknown_fields; i++) {
        Onnx__StringStringEntryProto *entry = NULL;
        size_t size = 0;
        const uint8_t *bytes = rb_onnx_newer_field(message, i, tag, &size);

        if (bytes)
            entry = onnx__string_string_entry_proto__unpack(&capped->protobuf, size, bytes);
        if (entry && entry->key && entry->value && !strcmp(entry->key, key))
            found = rb_string(entry->value);
        if (entry)
            onnx__string_string_entry_proto__free_unpacked(entry, &capped->protobuf);
    }
    return found;
}

/* The call that a node was made from, or NULL; the caller frees it. */
static char *find_call(const struct rb_onnx *model, const Onnx__NodeProto *node)
{
    return find_metadata((struct rb_capped_alloc *)&model->capped, &node->base, NODE_METADATA,
                         "pkg.torch.onnx.fx_node");
}

/* "ARGUMENT: KIND target='NAME' ..." */
static void read_line(struct rb_onnx *model, char *line)
{
    static const enum rb_onnx_kind kinds[] = {RB_ONNX_PARAMETER, RB_ONNX_BUFFER, RB_ONNX_CONSTANT};
    char *name = strstr(line, " target='"), *colon = strchr(line, ':'), *end;
    const enum rb_onnx_kind *kind = &kinds[2];

    name = name ? name + strlen(" target='") : NULL;
    end = name ? strchr(name, '\'') : NULL;
    if (!end || !colon || colon > name)
        return;
    if (strstr(line, ": PARAMETER "))
        kind = &kinds[0];
    else if (strstr(line, ": BUFFER ") && !strstr(end, " persistent=False"))
        kind = &kinds[1];
    *colon = *end = '\0';
    if (!strncmp(colon + 1, " BUFFER_MUTATION ", strlen(" BUFFER_MUTATION "))) {
        rb_names_add(&model->changed, name, name); /* an output of the module */
        return;
    }
    rb_names_add(&model->kinds, name, (void *)kind);
    rb_names_add(&model->arguments, line, name);
}

void rb_onnx_read_signature(struct rb_onnx *model)
{
    char *line, *next;

    model->signature = find_metadata(&model->capped, &model->proto->graph->base, GRAPH_METADATA,
                                     "pkg.torch.export.ExportedProgram.graph_signature");
    for (line = model->signature; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        read_line(model, line);
    }
}

enum rb_onnx_kind rb_onnx_kind(const struct rb_onnx *model, const char *name)
{
    const enum rb_onnx_kind *kind = rb_names_get(&model->kinds, name);

    if (!model->kinds.n)
        return RB_ONNX_UNMARKED;
    return kind ? *kind : RB_ONNX_CONSTANT;
}

/* ---- What the optimizer of the exporter has made of parameters ---- */

static bool reads(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_input; i++)
        if (!strcmp(node->input[i], name))
            return true;
    return false;
}

/* Does the node read an array that the module does not have?  The exporter computed it. */
static bool reads_made(const struct rb_onnx *model, const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_input; i++) {
        const Onnx__TensorProto *tensor = rb_names_get(&model->initializers, node->input[i]);

        if (tensor && tensor->n_dims && tensor->data_type == RB_F32 &&
            !rb_names_get(&model->kinds, node->input[i]))
            return true;
    }
    return false;
}

/* The tensor that is the next argument of a call; NULL: the argument is none, or (*at NULL) there
 * is no further one. */
static const char *next_argument(const struct rb_onnx *model, const char **at)
{
    char argument[MOST_NAME];
    size_t n = 0;

    *at = strchr(*at, '%');
    if (!*at)
        return NULL;
    for (++*at; n < sizeof(argument) - 1 && (isalnum((unsigned char)(*at)[n]) || (*at)[n] == '_');
         n++)
        argument[n] = (*at)[n];
    argument[n] = '\0';
    *at += n;
    return rb_names_get(&model->arguments, argument);
}

static bool calls_with(const struct rb_onnx *model, const char *call, const char *wanted)
{
    while (call) {
        const char *name = next_argument(model, &call);

        if (name && !strcmp(name, wanted))
            return true;
    }
    return false;
}

/* Does the node read a tensor of the module that is no argument of the call? */
static bool reads_another(const struct rb_onnx *model, const Onnx__NodeProto *node,
                          const char *call)
{
    for (size_t i = 0; i < node->n_input; i++)
        if (rb_names_get(&model->kinds, node->input[i]) && !calls_with(model, call, node->input[i]))
            return true;
    return false;
}

/* The node stands for a call with `name`: does it get something else than the tensor of that name?
 * A buffer that is missing with nothing in its place was not needed: the statistics of an instance
 * normalization in training. */
static bool is_lost(const struct rb_onnx *model, const Onnx__NodeProto *node, const char *call,
                    const char *name)
{
    enum rb_onnx_kind kind = rb_onnx_kind(model, name);
    bool made = reads_made(model, node);

    if (kind != RB_ONNX_PARAMETER && kind != RB_ONNX_BUFFER)
        return false;
    if (rb_names_get(&model->initializers, name))
        return made && !reads(node, name);
    return kind == RB_ONNX_PARAMETER || made || reads_another(model, node, call);
}

static void find_lost(const struct rb_onnx *model, const Onnx__NodeProto *node, const char *call,
                      struct rb_names *lost)
{
    const char *at = call;

    while (at) {
        const char *name = next_argument(model, &at);

        if (name && is_lost(model, node, call, name))
            rb_names_add(lost, name, (void *)(uintptr_t)name);
    }
}

int rb_onnx_lost(const struct rb_onnx *model, const char **ret_example)
{
    const Onnx__GraphProto *graph = model->proto->graph;
    struct rb_names lost = {0};
    int n;

    for (size_t i = 0; model->kinds.n && i < graph->n_node; i++) {
        RB_CLEANUP(rb_freep) char *call = NULL;

        if (!graph->node[i]->n_input)
            continue;
        call = find_call(model, graph->node[i]);
        if (call)
            find_lost(model, graph->node[i], call, &lost);
    }
    for (size_t i = 0; i < lost.room; i++)
        if (lost.slots[i].name && (!*ret_example || strcmp(lost.slots[i].name, *ret_example) < 0))
            *ret_example = lost.slots[i].name;
    n = (int)lost.n;
    rb_names_done(&lost);
    return n;
}

/* ---- What a call says and an ONNX operator cannot ---- */

bool rb_onnx_detaches(const struct rb_onnx *model, const Onnx__NodeProto *node)
{
    RB_CLEANUP(rb_freep) char *call = find_call(model, node);

    return call && strstr(call, "[target=torch.ops.aten.detach.default]");
}

/* "... aten.embedding.default](args = (%weight, %indices, PADDING ..." */
int64_t rb_onnx_padding(const struct rb_onnx *model, const Onnx__NodeProto *node)
{
    static const char start[] = "aten.embedding.default](args = (";
    RB_CLEANUP(rb_freep) char *call = find_call(model, node);
    const char *at = call ? strstr(call, start) : NULL;
    long long padding;
    char *end;

    at = at ? at + strlen(start) : NULL;
    for (int skipped = 0; at && skipped < 2; skipped++) {
        at = strpbrk(at, ",)");
        at = at && *at == ',' ? at + 1 : NULL;
    }
    if (!at)
        return -1;
    padding = strtoll(at, &end, 10);
    return end == at || padding < 0 ? -1 : padding;
}
