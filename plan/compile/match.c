/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/match.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tensors to variables ---- */

/* Does the type convert to the variable's float32 with one rounding? */
static bool converts(enum rb_dtype dtype)
{
    return dtype == RB_F16 || dtype == RB_BF16 || dtype == RB_F64;
}

static int place_of(const struct rb_match *match, const char *name)
{
    size_t *place = rb_names_get(&match->variables, name);

    return place ? (int)*place : -1;
}

static struct rb_tensor_type type_of(const Rb__Variable *variable)
{
    struct rb_tensor_type type = {(enum rb_dtype)variable->dtype, (int)variable->n_dims, {0}};

    for (size_t i = 0; i < variable->n_dims; i++)
        type.dim[i] = variable->dims[i];
    return type;
}

static int check_type(const Rb__Variable *variable, const struct rb_safetensor *tensor,
                      struct rb_why *why)
{
    struct rb_tensor_type type = type_of(variable);
    bool same_shape = rb_tensor_same_shape(&type, &tensor->type);
    char have[RB_TENSOR_TEXT], want[RB_TENSOR_TEXT];

    if (rb_tensor_same(&type, &tensor->type) ||
        (same_shape && type.dtype == RB_F32 && converts(tensor->type.dtype)))
        return 0;
    return rb_why_set(why, RB_EINVAL, "'%.100s' is %s, and the model's is %s%s", tensor->name,
                      rb_tensor_text(&tensor->type, have), rb_tensor_text(&type, want),
                      same_shape && type.dtype == RB_F32 ? ": integers are no weights" : "");
}

static bool same_contents(const struct rb_safetensor *a, const struct rb_safetensor *b)
{
    return rb_tensor_same(&a->type, &b->type) &&
           !memcmp(a->data, b->data,
                   (size_t)rb_tensor_elements(&a->type) * rb_dtype_size(a->type.dtype));
}

/* The variable at `place` may have this name in the file. */
static int consider(struct rb_match *match, int place, const char *name, struct rb_why *why)
{
    const struct rb_safetensor **tensors = match->pretrained->tensors;
    int found = rb_pretrained_find(match->pretrained, name), *from = &match->from[place], err;

    if (found < 0)
        found = rb_pretrained_kept(match->pretrained, name);
    if (found < 0 || found == *from)
        return 0;
    err = check_type(match->model->variables[place], tensors[found], why);
    if (err)
        return err;
    if (match->owner[found] < 0)
        match->owner[found] = place;
    if (*from < 0)
        *from = found;
    else if (!same_contents(tensors[*from], tensors[found]))
        return rb_why_set(why, RB_EINVAL,
                          "'%.100s' and '%.100s' differ, and the model has one tensor for both "
                          "(an export for evaluation keeps parameters that are equal once; "
                          "rubatoctl model check says how to export for training)",
                          tensors[*from]->name, tensors[found]->name);
    return 0;
}

static int consider_all(struct rb_match *match, struct rb_why *why)
{
    const struct rb_graph *graph = match->graph;
    int err = 0;

    for (size_t i = 0; !err && i < match->model->n_variables; i++)
        err = consider(match, (int)i, match->model->variables[i]->name, why);
    for (int i = 0; !err && i < graph->n_aliases; i++) {
        int place = place_of(match, graph->aliases[i].value->name);

        if (place >= 0)
            err = consider(match, place, graph->aliases[i].name, why);
    }
    return err;
}

/* DistributedDataParallel, torch.compile and wrappers put a word in front of every name. */
static void say_prefix(const struct rb_match *match, char *text, size_t room)
{
    const struct rb_safetensor **tensors = match->pretrained->tensors;
    const char *name = tensors[0]->name, *dot = strchr(name, '.');
    size_t size;
    int n = 0;

    while (dot && place_of(match, dot + 1) < 0)
        dot = strchr(dot + 1, '.');
    if (!dot)
        return;
    size = (size_t)(dot + 1 - name);
    for (int i = 0; i < match->pretrained->n; i++)
        n +=
            !strncmp(tensors[i]->name, name, size) && place_of(match, tensors[i]->name + size) >= 0;
    snprintf(text, room, "; without '%.*s' %d fit: take it off their names", (int)size, name, n);
}

static int check_any(const struct rb_match *match, struct rb_why *why)
{
    char prefix[160] = "";
    const struct rb_pretrained *pretrained = match->pretrained;
    const Rb__Model *model = match->model;

    if (!pretrained->n)
        return rb_why_set(why, RB_EINVAL, "it holds no tensors");
    for (int i = 0; i < pretrained->n; i++)
        if (match->owner[i] >= 0)
            return 0;
    say_prefix(match, prefix, sizeof(prefix));
    return rb_why_set(
        why, RB_EINVAL,
        "not one of its %d tensors is the model's: it has '%.100s', the model '%.100s'%s",
        pretrained->n, pretrained->tensors[0]->name,
        model->n_variables ? model->variables[0]->name : "", prefix);
}

int rb_match_open(const struct rb_graph *graph, const Rb__Model *model,
                  const struct rb_pretrained *pretrained, struct rb_match *ret, struct rb_why *why)
{
    struct rb_match match = {.graph = graph, .model = model, .pretrained = pretrained};
    int err;

    match.places = rb_alloc(sizeof(*match.places) * (model->n_variables + 1));
    match.from = rb_alloc(sizeof(*match.from) * (model->n_variables + 1));
    match.owner = rb_alloc(sizeof(*match.owner) * (size_t)(pretrained->n + 1));
    for (size_t i = 0; i < model->n_variables; i++) {
        match.places[i] = i;
        match.from[i] = -1;
        rb_names_add(&match.variables, model->variables[i]->name, &match.places[i]);
    }
    for (int i = 0; i < pretrained->n; i++)
        match.owner[i] = -1;
    err = consider_all(&match, why);
    if (!err)
        err = check_any(&match, why);
    if (err)
        rb_match_done(&match);
    else
        *ret = match;
    return err;
}

void rb_match_done(struct rb_match *match)
{
    rb_names_done(&match->variables);
    free(match->places);
    free(match->from);
    free(match->owner);
    *match = (struct rb_match){0};
}

/* ---- Further names ---- */

static void add_alias(Rb__Model *model, const struct rb_names *variables, const char *name,
                      const char *kept)
{
    Rb__Alias *alias;

    if (rb_names_get(variables, name) || !rb_names_get(variables, kept))
        return;
    alias = rb_alloc(sizeof(*alias));
    rb__alias__init(alias);
    alias->name = rb_string(name);
    alias->kept = rb_string(kept);
    model->aliases = rb_realloc(model->aliases, sizeof(alias) * (model->n_aliases + 1));
    model->aliases[model->n_aliases++] = alias;
}

static int by_name(const void *left, const void *right)
{
    const Rb__Alias *const *a = left, *const *b = right;
    int order = strcmp((*a)->name, (*b)->name);

    return order ? order : strcmp((*a)->kept, (*b)->kept);
}

static void drop_repeated(Rb__Model *model)
{
    size_t n = 0;

    if (model->n_aliases)
        qsort(model->aliases, model->n_aliases, sizeof(*model->aliases), by_name);
    for (size_t i = 0; i < model->n_aliases; i++)
        if (n && !strcmp(model->aliases[n - 1]->name, model->aliases[i]->name))
            rb__alias__free_unpacked(model->aliases[i], NULL);
        else
            model->aliases[n++] = model->aliases[i];
    model->n_aliases = n;
}

static void add_noted(const struct rb_match *match, const struct rb_names *variables,
                      Rb__Model *model)
{
    const struct rb_pretrained *pretrained = match->pretrained;

    for (int i = 0; i < pretrained->n_notes; i++) {
        const struct rb_safetensor_note *note = pretrained->notes[i];
        int kept = rb_pretrained_kept(pretrained, note->key);
        int place = kept < 0 ? -1 : match->owner[kept];

        if (place < 0)
            continue;
        add_alias(model, variables, note->key, model->variables[place]->name);
        add_alias(model, variables, note->text, model->variables[place]->name);
    }
}

void rb_match_aliases(const struct rb_graph *graph, const struct rb_match *match, Rb__Model *model)
{
    struct rb_names variables = {0};

    for (size_t i = 0; i < model->n_variables; i++)
        rb_names_add(&variables, model->variables[i]->name, model->variables[i]);
    for (int i = 0; i < graph->n_aliases; i++)
        add_alias(model, &variables, graph->aliases[i].name, graph->aliases[i].value->name);
    if (match)
        add_noted(match, &variables, model);
    rb_names_done(&variables);
    drop_repeated(model);
}

/* ---- What is left ---- */

enum { MOST_NAMED = 3 };

/* The i-th of "a, b, c and 4 more", in a form that any terminal and JSON takes. */
static void list_name(struct rb_buffer *line, int i, const char *name)
{
    if (i >= MOST_NAMED)
        return;
    rb_buffer_text(line, i ? ", " : "");
    for (int n = 0; *name && n < 100; name++, n++)
        rb_buffer_add(line, (signed char)*name < 0x20 || *name == 0x7f ? "?" : name, 1);
    rb_buffer_text(line, *name ? "..." : "");
}

static void say(struct rb_buffer *notes, const char *key, const char *before, int n,
                const char *behind, struct rb_buffer *names)
{
    if (n > MOST_NAMED)
        rb_buffer_format(names, " and %d more", n - MOST_NAMED);
    if (n)
        rb_buffer_format(notes, "%s: %s %d %s: %s\n", key, before, n, behind, names->data);
    rb_buffer_done(names);
}

/* Is it BatchNorm's count of batches, which nothing here reads? */
static bool is_counter(const char *name)
{
    const char *dot = strrchr(name, '.');

    return !strcmp(dot ? dot + 1 : name, "num_batches_tracked");
}

static bool is_frozen(const struct rb_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->frozen && !strcmp(graph->values[i]->name, name))
            return true;
    return false;
}

/* Does the file lack a variable that it should have?  A table that the exporter made is in no file
 * of weights. */
static bool is_missed(const struct rb_match *match, size_t place)
{
    const Rb__Variable *variable = match->model->variables[place];

    return match->from[place] < 0 &&
           (variable->role != RB__VARIABLE__ROLE__FIXED || is_frozen(match->graph, variable->name));
}

void rb_match_say(const struct rb_match *match, const char *key, struct rb_buffer *notes)
{
    const struct rb_pretrained *pretrained = match->pretrained;
    struct rb_buffer names = {0};
    int n = 0;

    for (int i = 0; i < pretrained->n; i++)
        if (match->owner[i] < 0 && !is_counter(pretrained->tensors[i]->name))
            list_name(&names, n++, pretrained->tensors[i]->name);
    say(notes, key, "the model lacks", n, "of the file's tensors", &names);
    n = 0;
    for (size_t i = 0; i < match->model->n_variables; i++)
        if (is_missed(match, i))
            list_name(&names, n++, match->model->variables[i]->name);
    say(notes, key, "the file lacks", n,
        "of the model's weights, which start as the ONNX file has them", &names);
}
