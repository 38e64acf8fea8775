/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/hints.h"

#include "base/buffer.h"
#include "graph/looks.h"
#include "graph/onnx/model.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- Names ---- */

enum name_kind {
    NAME_OF_LAYER,     /* a layer's weight or bias */
    NAME_OF_PARAMETER, /* parameters that modules have beside those */
    NAME_OF_BUFFER,
    NAME_UNKNOWN,
};

static bool contains_any(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strcasestr(name, *words))
            return true;
    return false;
}

static bool is_any(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (!strcasecmp(name, *words))
            return true;
    return false;
}

static enum name_kind kind_of(const char *name)
{
    static const char *const buffers[] = {
        "pos_weight", "class_weight", "class_weights",     "mean",        "std",      "pixel_mean",
        "pixel_std",  "mask",         "attn_mask",         "causal_mask", "inv_freq", "alibi",
        "pe",         "freqs",        "final_logits_bias", NULL};
    static const char *const layers[] = {"weight", "bias", "kernel", NULL};
    static const char *const parameters[] = {"token", "embed", "gamma", "beta",     "alpha",
                                             "scale", "proj",  "query", "lambda",   "prompt",
                                             "param", "slope", "quer",  "position", NULL};
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;

    if (is_any(last, buffers))
        return NAME_OF_BUFFER;
    if (contains_any(last, layers) || strstr(name, ".weight.") || strstr(name, ".bias."))
        return NAME_OF_LAYER;
    return contains_any(last, parameters) ? NAME_OF_PARAMETER : NAME_UNKNOWN;
}

/* ---- Buffers ---- */

/* Names of one kind, the first few written out. */
struct list {
    struct rb_buffer names, reasons;
    int n;
};

enum { MOST_NAMES = 6 };

/* The whole name as a pattern of a job file, with ? for characters that have a meaning in
 * patterns. */
static void add_pattern(struct rb_buffer *out, const char *name)
{
    for (; *name; name++)
        rb_buffer_add(out, isalnum((unsigned char)*name) || strchr("._-/", *name) ? name : "?", 1);
}

static void add(struct list *list, const char *name, const char *why)
{
    char room[80];

    if (list->n++ >= MOST_NAMES)
        return;
    rb_onnx_quote(name, room);
    rb_buffer_text(&list->names, list->n > 1 ? ", " : "");
    add_pattern(&list->names, name);
    rb_buffer_format(&list->reasons, "%s%s", list->n > 1 ? ", " : "", room);
    if (why)
        rb_buffer_format(&list->reasons, " (%s)", why);
}

/* "a, b and 3 more" */
static void end(struct list *list)
{
    if (list->n <= MOST_NAMES)
        return;
    rb_buffer_format(&list->reasons, " and %d more", list->n - MOST_NAMES);
    rb_buffer_text(&list->names, ", ...");
}

static void list_done(struct list *list)
{
    rb_buffer_done(&list->names);
    rb_buffer_done(&list->reasons);
}

/* A vector of length one by the name of PyTorch's spectral norms: "weight_u", "0._v". */
static bool is_spectral(const struct rb_value *value)
{
    size_t size = strlen(value->name);
    double sum = 0;

    if (value->type.rank != 1 || !value->data || size < 2 || value->name[size - 2] != '_' ||
        !strchr("uv", value->name[size - 1]))
        return false;
    for (int64_t i = 0; i < value->type.dim[0]; i++) {
        float x;

        memcpy(&x, (const uint8_t *)value->data + i * (int64_t)sizeof x, sizeof x);
        sum += (double)x * (double)x;
    }
    return fabs(sum - 1) < 1e-3;
}

/* Why a trained weight may be a buffer; NULL: no sign of it.  A vector of one number throughout is
 * no sign, because parameters start like that. */
static const char *suspect(const struct rb_value *value)
{
    enum name_kind kind = kind_of(value->name);
    enum rb_look look = rb_look_at(value);

    if (look == RB_LOOK_MASK || look == RB_LOOK_WAVES)
        return rb_look_text(look);
    if (is_spectral(value))
        return "of a spectral norm";
    if (kind == NAME_OF_LAYER)
        return NULL;
    if (look == RB_LOOK_BITS || look == RB_LOOK_STEPS ||
        (look == RB_LOOK_NUMBER && (kind != NAME_OF_PARAMETER || value->type.rank == 0)))
        return rb_look_text(look);
    return kind == NAME_OF_BUFFER ? "by its name" : NULL;
}

static bool is_marked(const struct rb_graph *graph, const struct rb_value *value)
{
    return graph->model && rb_onnx_kind(graph->model, value->name) != RB_ONNX_UNMARKED;
}

void rb_hint_buffers(const struct rb_graph *graph, struct rb_buffer *out)
{
    RB_CLEANUP(list_done) struct list likely = {0}, held = {0}, tables = {0}, nameless = {0};
    bool names = graph->model && rb_onnx_is_of_pytorch(graph->model);

    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];
        bool trained = value->role == RB_VALUE_WEIGHT && !value->frozen;
        const char *why;

        if ((!trained && value->role != RB_VALUE_BUFFER) || value->type.dtype != RB_F32 ||
            is_marked(graph, value) || rb_onnx_made_up(value->name))
            continue;
        why = trained ? suspect(value) : NULL;
        if (value->no_number)
            add(&held, value->name, NULL);
        else if (value->frequencies && kind_of(value->name) != NAME_OF_BUFFER)
            add(&tables, value->name, NULL);
        else if (why)
            add(&likely, value->name, why);
        else if (trained && names && kind_of(value->name) == NAME_UNKNOWN)
            add(&nameless, value->name, NULL);
    }
    end(&likely);
    end(&held);
    end(&tables);
    end(&nameless);
    if (held.n)
        rb_buffer_format(out, "not trained, for an infinity or a NaN in it: %s\n",
                         held.reasons.data);
    if (tables.n)
        rb_buffer_format(out,
                         "not trained, for only sines and cosines that do not depend on the data "
                         "are made of it: %s; where it is a parameter, export the model with "
                         "dynamo=True, which marks parameters\n",
                         tables.reasons.data);
    if (likely.n)
        rb_buffer_format(out,
                         "trained, though it looks like a buffer: %s; where it is one, say "
                         "spec.model.buffers: [%s]\n",
                         likely.reasons.data, likely.names.data);
    if (nameless.n)
        rb_buffer_format(out,
                         "trained, though no layer's weight or bias by its name: %s; where it is a "
                         "buffer of the module, say spec.model.buffers: [%s]\n",
                         nameless.reasons.data, nameless.names.data);
}

/* ---- The loss ---- */

void rb_hint_loss(enum rb_own_loss loss, struct rb_buffer *out)
{
    if (loss == RB_OWN_LOSS_SUM)
        rb_buffer_text(out, "the model's own loss is a sum: a step takes the mean of its "
                            "microbatches' sums, so loss and gradients are a fraction of those of "
                            "the batch at once; for those set train.microBatch to globalBatch, or "
                            "take a mean, or the loss of the job file\n");
    if (loss == RB_OWN_LOSS_OTHER)
        rb_buffer_text(out, "the model's own loss is no plain mean: a step takes the mean of its "
                            "microbatches' losses, which is not that of the batch at once where "
                            "samples count unequally (ignored targets, class weights) or not one "
                            "by one; for that set train.microBatch to globalBatch, or take the "
                            "loss of the job file\n");
}
