/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that PyTorch's older exporter has merged.
 *
 * In evaluation mode the exporter replaces equal initializers by one.  Norms, zero biases and
 * copied layers are equal before training, and would then be trained as one.  What is left of the
 * others is an Identity with their name, or a node that is named after its module,
 * "/blocks/blocks.1/norm/LayerNormalization", and reads the weights of another module.
 *
 * Sharing on purpose looks the same, except where it is usual: tables of embeddings, which are read
 * again as the weights of an output layer. */
#include "graph/advice_inside.h"

#include "base/arena.h"

#include <string.h>

enum { NAME = 512 };

/* Does `name` belong to the module?  "f.0.weight" belongs to "f.0", and to "f". */
static bool belongs(const char *name, const char *module)
{
    size_t size = strlen(module);

    return !strncmp(name, module, size) && name[size] == '.';
}

/* The length of the text before the last point: the weight's own module. */
static size_t module_size(const char *weight)
{
    const char *point = strrchr(weight, '.');

    return point ? (size_t)(point - weight) : 0;
}

/* A module that is called again has "_1" behind its name. */
static void drop_call(char *module)
{
    size_t size = strlen(module), digits = size;

    while (digits && module[digits - 1] >= '0' && module[digits - 1] <= '9')
        digits--;
    if (digits && digits < size && module[digits - 1] == '_')
        module[digits - 1] = '\0';
}

/* Appends one more part of a path; *last: where the newest part begins.  Children of a Sequential
 * have its name in front of theirs. */
static bool add_part(char module[NAME], size_t *last, const char *part, size_t length)
{
    size_t size = strlen(module), own = size - *last;

    if (size + length + 2 > NAME)
        return false;
    if (size && length > own && !strncmp(part, module + *last, own) && part[own] == '.')
        size = *last;
    else if (size)
        module[size++] = '.';
    *last = size;
    memcpy(module + size, part, length);
    module[size + length] = '\0';
    return true;
}

/* "/f/f.0/Gemm" is a node of the module f.0.  How does the weight relate to that module? */
enum relation {
    UNKNOWN,     /* the node's name has no module */
    OWN,         /* it belongs to the module, or to one in it */
    HANDED_DOWN, /* it belongs to a module around it */
    FOREIGN,
};

static enum relation relate(const char *node, const char *weight)
{
    char module[NAME] = "";
    size_t last = 0;
    const char *end;

    for (; node && node[0] == '/' && (end = strchr(node + 1, '/')); node = end) {
        size_t before = strlen(module);

        if (!add_part(module, &last, node + 1, (size_t)(end - node - 1)))
            return UNKNOWN;
        if (!belongs(weight, module))
            drop_call(module);
        if (!belongs(weight, module))
            return before == module_size(weight) ? HANDED_DOWN : FOREIGN;
    }
    return module[0] ? OWN : UNKNOWN;
}

static const Onnx__TensorProto *weight_by_name(const struct rb_onnx *model, const char *name)
{
    const Onnx__TensorProto *tensor = name ? rb_names_get(&model->initializers, name) : NULL;

    return tensor && tensor->data_type == RB_F32 && tensor->n_dims > 0 &&
                   rb_onnx_kind(model, name) == RB_ONNX_UNMARKED
               ? tensor
               : NULL;
}

static bool is_op(const Onnx__NodeProto *node, const char *op)
{
    return node->op_type && !strcmp(node->op_type, op);
}

static bool is_table(const Onnx__GraphProto *graph, const char *weight)
{
    for (size_t i = 0; i < graph->n_node; i++)
        if (is_op(graph->node[i], "Gather") && graph->node[i]->n_input > 0 &&
            !strcmp(graph->node[i]->input[0], weight))
            return true;
    return false;
}

static bool reads(const Onnx__NodeProto *node, const char *weight)
{
    for (size_t i = 0; i < node->n_input; i++)
        if (!strcmp(node->input[i], weight))
            return true;
    return false;
}

/* Does a node of the weight's own module read it too?  For a matrix a node of the same kind must:
 * where another kind reads it, it is shared on purpose.  Biases and scales go with nodes of many
 * kinds. */
static bool has_owner(const Onnx__GraphProto *graph, const char *op,
                      const Onnx__TensorProto *weight)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *other = graph->node[i];

        if ((weight->n_dims < 2 || is_op(other, op)) && reads(other, weight->name) &&
            relate(other->name, weight->name) == OWN)
            return true;
    }
    return false;
}

/* Does this input of the node belong to another module? */
static bool is_foreign(const struct rb_onnx *model, const Onnx__NodeProto *node, size_t input)
{
    const Onnx__TensorProto *weight = weight_by_name(model, node->input[input]);

    return weight && node->op_type && relate(node->name, weight->name) == FOREIGN &&
           has_owner(model->proto->graph, node->op_type, weight) &&
           !is_table(model->proto->graph, weight->name);
}

/* Another parameter's name for a weight: values in between begin with '/' or are numbers. */
static bool is_alias(const struct rb_onnx *model, const Onnx__NodeProto *node)
{
    const char *name = node->n_output ? node->output[0] : NULL;

    return is_op(node, "Identity") && node->n_input == 1 && name && strchr(name, '.') &&
           name[0] != '/' && strncmp(name, "onnx::", 6) != 0 &&
           weight_by_name(model, node->input[0]) &&
           !is_table(model->proto->graph, node->input[0]) && !is_table(model->proto->graph, name);
}

bool rb_advice_check_shared(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;
    const char *by = NULL, *of = NULL, *verb = NULL;
    char room_by[80], room_of[80];
    bool vector = false;
    int n = 0;

    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];

        if (is_alias(search->model, node)) {
            n++;
            vector |= weight_by_name(search->model, node->input[0])->n_dims == 1;
            verb = verb ? verb : "is";
            by = by ? by : node->output[0];
            of = of ? of : node->input[0];
            continue;
        }
        for (size_t k = 0; k < node->n_input; k++) {
            if (!is_foreign(search->model, node, k))
                continue;
            n++;
            vector |= weight_by_name(search->model, node->input[k])->n_dims == 1;
            verb = verb ? verb : "reads";
            by = by ? by : node->name;
            of = of ? of : node->input[k];
        }
    }
    if (!n)
        return false;
    rb_advice_say(search,
                  rb_arena_format(search->arena,
                                  "%d of the module's parameters were merged with others (%s %s "
                                  "%s): in evaluation mode the exporter makes one of those that "
                                  "are equal, as norms, zero biases and copied layers are before "
                                  "they are trained; they would be trained as one (which is right "
                                  "only where the module shares them on purpose)",
                                  n, rb_onnx_quote(by, room_by), verb, rb_onnx_quote(of, room_of)),
                  rb_advice_train_remedy(search->model->proto));
    return vector;
}
