/* SPDX-License-Identifier: Apache-2.0 */
/* A graph as instructions: views disappear, and each value becomes a tensor with a place.
 *
 * An instruction has the id of its node.  Autodiff appends behind the forward nodes, so a forward
 * node has one id in the graphs of every batch size; the random ones are held to it. */
#include "plan/compile/lower.h"

#include "base/arena.h"
#include "plan/compile/constants.h"
#include "plan/compile/memory.h"

#include <stdlib.h>
#include <string.h>

struct lower {
    const struct rb_graph *graph;
    Rb__Model *model;
    Rb__Program *program;
    struct rb_why *why;
    int err;
    const struct rb_value **root; /* by value: the value that holds its elements */
    int *tensor;                  /* by value: index into program->tensors, or -1 */
    int *made;                    /* by value: instruction that makes it, or -1 */
    int *last;                    /* by root: last instruction that needs it, or -1 */
};

static void find_roots(struct lower *lower)
{
    for (int i = 0; i < lower->graph->n_values; i++) {
        const struct rb_value *value = lower->graph->values[i];

        lower->root[i] = value;
        lower->tensor[i] = lower->made[i] = lower->last[i] = -1;
    }
    /* In the order of nodes: the input of a view has its root already. */
    for (int i = 0; i < lower->graph->n_nodes; i++) {
        const struct rb_node *node = lower->graph->nodes[i];

        if (rb_op_info(node->op)->kind == RB_KIND_VIEW)
            lower->root[node->out[0]->id] = lower->root[node->in[0]->id];
    }
}

/* Slot 0 is the features, slot 1 the targets where there are any, then the model's other inputs. */
static int next_input(const struct rb_graph *graph, int after)
{
    for (int i = after; i < graph->n_values; i++)
        if (graph->values[i]->role == RB_VALUE_INPUT && graph->values[i] != graph->features &&
            graph->values[i] != graph->targets)
            return i;
    return -1;
}

static uint64_t input_slot(const struct rb_graph *graph, const struct rb_value *value)
{
    uint64_t slot = 1;

    if (value == graph->features)
        return 0;
    if (value == graph->targets)
        return 1;
    slot += graph->targets != NULL;
    for (int i = next_input(graph, 0); i >= 0 && graph->values[i] != value;
         i = next_input(graph, i + 1))
        slot++;
    return slot;
}

/* The index of a variable by its name: graphs of other batch sizes have values of their own. */
static uint64_t find_variable(struct lower *lower, const struct rb_value *value)
{
    const Rb__Model *model = lower->model;

    for (size_t i = 0; i < model->n_variables; i++)
        if (!strcmp(model->variables[i]->name, value->name))
            return i;
    if (!lower->err)
        lower->err = rb_why_set(lower->why, RB_EINTERNAL,
                                "program '%s' uses a variable '%s' that "
                                "the model does not have",
                                lower->program->name, value->name);
    return 0;
}

static Rb__Tensor *new_tensor(struct lower *lower, const struct rb_value *value)
{
    const struct rb_value *root = lower->root[value->id];
    Rb__Tensor *tensor = rb_alloc(sizeof(*tensor));

    rb__tensor__init(tensor);
    tensor->dtype = value->type.dtype;
    tensor->n_dims = (size_t)value->type.rank;
    tensor->dims = rb_alloc(sizeof(*tensor->dims) * (size_t)value->type.rank);
    memcpy(tensor->dims, value->type.dim, sizeof(*tensor->dims) * (size_t)value->type.rank);
    if (value->name && value->name[0])
        tensor->name = rb_string(value->name);
    switch (root->role) {
    case RB_VALUE_TEMP: /* the offset follows when all lifetimes are known */
        tensor->space = RB__TENSOR__SPACE__ARENA;
        break;
    case RB_VALUE_INPUT:
        tensor->space = RB__TENSOR__SPACE__INPUT;
        tensor->offset = input_slot(lower->graph, root);
        break;
    case RB_VALUE_WEIGHT:
    case RB_VALUE_BUFFER:
        tensor->space = RB__TENSOR__SPACE__VARIABLE;
        tensor->offset = find_variable(lower, root);
        tensor->has_first = root->first != 0;
        tensor->first = (uint64_t)root->first;
        break;
    case RB_VALUE_CONST:
        tensor->space = RB__TENSOR__SPACE__CONSTANT;
        tensor->offset = rb_constants_place(lower->model, lower->program, root->data,
                                            (uint64_t)rb_tensor_elements(&root->type) *
                                                rb_dtype_size(root->type.dtype));
        break;
    }
    return tensor;
}

/* The tensor of a value, read or made by instruction `at`. */
static int32_t use(struct lower *lower, const struct rb_value *value, int at)
{
    Rb__Program *program = lower->program;
    int root;

    if (!value)
        return -1;
    root = lower->root[value->id]->id;
    if (lower->last[root] < at)
        lower->last[root] = at;
    if (lower->tensor[value->id] < 0) {
        lower->tensor[value->id] = (int)program->n_tensors;
        program->tensors[program->n_tensors] = new_tensor(lower, value);
        program->n_tensors++;
    }
    return lower->tensor[value->id];
}

static void copy_attributes(const struct rb_node *node, Rb__Instruction *instruction)
{
    instruction->attributes =
        rb_alloc(sizeof(*instruction->attributes) * (size_t)node->n_attributes);
    for (int i = 0; i < node->n_attributes; i++) {
        const struct rb_graph_attribute *from = &node->attributes[i];
        Rb__Attribute *to = rb_alloc(sizeof(*to));

        rb__attribute__init(to);
        to->key = rb_string(from->key);
        to->n_ints = (size_t)from->n_ints;
        to->ints = rb_alloc(sizeof(*to->ints) * to->n_ints);
        if (to->n_ints)
            memcpy(to->ints, from->ints, sizeof(*to->ints) * to->n_ints);
        to->n_floats = (size_t)from->n_floats;
        to->floats = rb_alloc(sizeof(*to->floats) * to->n_floats);
        if (to->n_floats)
            memcpy(to->floats, from->floats, sizeof(*to->floats) * to->n_floats);
        instruction->attributes[instruction->n_attributes++] = to;
    }
}

static void add_instruction(struct lower *lower, const struct rb_node *node)
{
    Rb__Program *program = lower->program;
    Rb__Instruction *instruction = rb_alloc(sizeof(*instruction));
    int at = (int)program->n_instructions;

    rb__instruction__init(instruction);
    program->instructions[program->n_instructions++] = instruction;
    instruction->operator_ = node->op;
    instruction->id = (uint32_t)node->id;
    if (node->name && node->name[0])
        instruction->name = rb_string(node->name);
    copy_attributes(node, instruction);
    instruction->inputs = rb_alloc(sizeof(*instruction->inputs) * (size_t)node->n_in);
    for (int i = 0; i < node->n_in; i++)
        instruction->inputs[instruction->n_inputs++] = use(lower, node->in[i], at);
    instruction->outputs = rb_alloc(sizeof(*instruction->outputs) * (size_t)node->n_out);
    for (int i = 0; i < node->n_out; i++) {
        instruction->outputs[instruction->n_outputs++] = use(lower, node->out[i], at);
        if (node->out[i])
            lower->made[node->out[i]->id] = at;
    }
}

/* Rounding a weight: once is enough for all microbatches of a step. */
static bool is_once(const struct rb_node *node)
{
    return node->op == RB_OP_CAST && node->in[0]->role == RB_VALUE_WEIGHT &&
           node->out[0]->type.dtype == RB_BF16;
}

static void add_instructions(struct lower *lower, bool once)
{
    const struct rb_graph *graph = lower->graph;

    for (int i = 0; i < graph->n_nodes; i++)
        if (rb_op_info(graph->nodes[i]->op)->kind != RB_KIND_VIEW &&
            is_once(graph->nodes[i]) == once)
            add_instruction(lower, graph->nodes[i]);
}

/* What these nodes make lives on to the next run. */
static void keep_once(struct lower *lower)
{
    const struct rb_graph *graph = lower->graph;

    for (int i = 0; i < graph->n_nodes; i++)
        if (is_once(graph->nodes[i]))
            lower->last[graph->nodes[i]->out[0]->id] = (int)lower->program->n_instructions;
}

static int by_after(const void *a, const void *b)
{
    const Rb__Contribution *x = *(Rb__Contribution *const *)a, *y = *(Rb__Contribution *const *)b;

    if (x->after != y->after)
        return x->after < y->after ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->variable > y->variable) - (x->variable < y->variable);
}

/* Contributions are read right behind the instruction that makes them, so they need not live longer
 * for that. */
static void add_contributions(struct lower *lower)
{
    const struct rb_graph *graph = lower->graph;
    Rb__Program *program = lower->program;

    program->contributions =
        rb_alloc(sizeof(*program->contributions) * (size_t)graph->n_contributions);
    for (int i = 0; i < graph->n_contributions; i++) {
        const struct rb_contribution *from = &graph->contributions[i];
        int made = lower->made[lower->root[from->value->id]->id];
        Rb__Contribution *to = rb_alloc(sizeof(*to));

        rb__contribution__init(to);
        to->variable = (uint32_t)find_variable(lower, from->variable);
        to->has_first = from->variable->first != 0;
        to->first = (uint64_t)from->variable->first;
        to->after = made < 0 ? 1 : (uint32_t)made + 1;
        to->tensor = (uint32_t)use(lower, from->value, (int)to->after - 1);
        program->contributions[program->n_contributions++] = to;
    }
    qsort(program->contributions, program->n_contributions, sizeof(*program->contributions),
          by_after);
}

/* The results are read when the program has ended. */
static void add_results(struct lower *lower)
{
    const struct rb_graph *graph = lower->graph;
    Rb__Program *program = lower->program;
    int end = (int)program->n_instructions;

    program->loss = use(lower, graph->loss, end);
    program->count = use(lower, graph->count, end);
    program->correct = use(lower, graph->correct, end);
    program->outputs = rb_alloc(sizeof(*program->outputs) * (size_t)graph->n_outputs);
    for (int i = 0; !graph->train && i < graph->n_outputs; i++)
        program->outputs[program->n_outputs++] = use(lower, graph->outputs[i], end);
}

static void place_tensors(struct lower *lower)
{
    const struct rb_graph *graph = lower->graph;
    struct rb_memory_life *lives = rb_alloc(sizeof(*lives) * (size_t)(graph->n_values + 1));
    int *life_of = rb_alloc(sizeof(*life_of) * (size_t)(graph->n_values + 1));
    int n = 0;

    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];

        if (lower->made[i] < 0)
            continue;
        life_of[i] = n;
        lives[n++] = (struct rb_memory_life){
            .bytes = (uint64_t)rb_tensor_elements(&value->type) * rb_dtype_size(value->type.dtype),
            .first = lower->made[i],
            .last = lower->last[i],
        };
    }
    lower->program->arena_bytes = rb_memory_place(lives, n);
    for (int i = 0; i < graph->n_values; i++) {
        int root = lower->root[i]->id;

        if (lower->tensor[i] >= 0 && lower->made[root] >= 0)
            lower->program->tensors[lower->tensor[i]]->offset = lives[life_of[root]].offset;
    }
    free(lives);
    free(life_of);
}

static bool is_random(const Rb__Instruction *instruction)
{
    return instruction->operator_ == RB_OP_DROPOUT || instruction->operator_ == RB_OP_ATTENTION ||
           instruction->operator_ == RB_OP_UNIFORM;
}

/* A random instruction that is no copy: copies stand behind their original, under its id. */
static bool is_first_random(const Rb__Program *program, size_t i)
{
    if (!is_random(program->instructions[i]))
        return false;
    for (size_t j = 0; j < i; j++)
        if (program->instructions[j]->id == program->instructions[i]->id)
            return false;
    return true;
}

/* Random instructions are keyed by their id: programs that train must agree on them. */
static int check_random(const struct lower *lower)
{
    const Rb__Program *program = lower->program, *first = NULL;
    size_t j = 0;

    for (size_t i = 0; i < lower->model->n_programs && !first; i++)
        if (lower->model->programs[i]->train)
            first = lower->model->programs[i];
    if (!first || !program->train)
        return 0;
    for (size_t i = 0; i < program->n_instructions; i++) {
        if (!is_first_random(program, i))
            continue;
        while (j < first->n_instructions && !is_first_random(first, j))
            j++;
        if (j == first->n_instructions ||
            first->instructions[j]->id != program->instructions[i]->id)
            return rb_why_set(lower->why, RB_EINTERNAL,
                              "programs '%s' and '%s' number their dropouts differently",
                              first->name, program->name);
        j++;
    }
    return 0;
}

static Rb__Program *new_program(const struct rb_graph *graph, const char *name)
{
    Rb__Program *program = rb_alloc(sizeof(*program));

    rb__program__init(program);
    program->name = rb_string(name);
    program->train = graph->train && (graph->loss || graph->whole);
    program->batch = (uint32_t)graph->batch;
    program->tensors = rb_alloc(sizeof(*program->tensors) * (size_t)(graph->n_values + 1));
    program->instructions = rb_alloc(sizeof(*program->instructions) * (size_t)(graph->n_nodes + 1));
    program->inputs = rb_alloc(sizeof(*program->inputs) * (size_t)(graph->n_values + 2));
    program->inputs[program->n_inputs++] = rb_string("features");
    if (graph->targets)
        program->inputs[program->n_inputs++] = rb_string("targets");
    for (int i = next_input(graph, 0); i >= 0; i = next_input(graph, i + 1))
        program->inputs[program->n_inputs++] = rb_string(graph->values[i]->name);
    return program;
}

static void append_program(Rb__Model *model, Rb__Program *program)
{
    model->programs =
        rb_realloc(model->programs, sizeof(*model->programs) * (model->n_programs + 1));
    model->programs[model->n_programs++] = program;
}

int rb_lower_program(const struct rb_graph *graph, const char *name, Rb__Model *model,
                     struct rb_why *why)
{
    size_t n = (size_t)graph->n_values + 1;
    struct lower lower = {
        .graph = graph,
        .model = model,
        .program = new_program(graph, name),
        .why = why,
        .root = rb_alloc(sizeof(*lower.root) * n),
        .tensor = rb_alloc(sizeof(*lower.tensor) * n),
        .made = rb_alloc(sizeof(*lower.made) * n),
        .last = rb_alloc(sizeof(*lower.last) * n),
    };

    find_roots(&lower);
    add_instructions(&lower, true);
    lower.program->has_once = lower.program->n_instructions > 0;
    lower.program->once = (uint32_t)lower.program->n_instructions;
    add_instructions(&lower, false);
    keep_once(&lower);
    add_contributions(&lower);
    add_results(&lower);
    place_tensors(&lower);
    if (!lower.err)
        lower.err = check_random(&lower);
    free(lower.root);
    free(lower.tensor);
    free(lower.made);
    free(lower.last);
    if (lower.err) {
        rb__program__free_unpacked(lower.program, NULL);
        return lower.err;
    }
    append_program(model, lower.program);
    return 0;
}
