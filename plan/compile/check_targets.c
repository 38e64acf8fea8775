/* SPDX-License-Identifier: Apache-2.0 */
/* Targets against the loss: classes that exist, probabilities between 0 and 1. */
#include "plan/compile/check.h"

#include <inttypes.h>

/* With a target beyond 0 and 1 this loss has no minimum: the weights would grow for ever. */
static int check_probabilities(const struct rb_source_info *info, struct rb_why *why)
{
    const struct rb_extremes *found = &info->extremes;
    double stray = info->stray_target;

    if (info->targets.dtype == RB_I64)
        stray = (double)(found->least < 0 ? found->least : found->most > 1 ? found->most : 0);
    return stray == 0 ? 0
                      : rb_why_set(why, RB_EINVAL,
                                   "target %g is in the data, and bce_with_logits takes "
                                   "probabilities, 0 to 1: convert the file, or say another "
                                   "spec.loss.type",
                                   stray);
}

/* The integers that a loss takes for classes: whose loss it is, and which of them it ignores. */
struct classes {
    bool own;                         /* the model's */
    const struct rb_extremes *labels; /* of the data */
    int64_t n;
    bool ignores;
    int64_t ignored;
};

/* The integers that the model's own loss takes for labels, where it reads them from the data
 * unchanged; NULL: it does not, or they are not known. */
static const struct rb_extremes *find_own_labels(const struct rb_graph *graph,
                                                 const struct rb_source_info *info)
{
    const struct rb_value *value = graph->own_labels.value;
    const struct rb_source_input *input;

    while (value && value->maker &&
           (value->maker->op == RB_OP_RESHAPE || value->maker->op == RB_OP_TRANSPOSE ||
            value->maker->op == RB_OP_CAST))
        value = value->maker->in[0];
    if (value && value == graph->targets)
        return info->targets.dtype == RB_I64 ? &info->extremes : NULL;
    input = value && value->named ? rb_source_find_input(info, value->name) : NULL;
    return input && input->scanned ? &input->extremes : NULL;
}

bool rb_check_ignores(const struct rb_graph *graph, const struct rb_source_info *info)
{
    const struct rb_extremes *labels = find_own_labels(graph, info);
    int64_t ignored = graph->own_labels.ignored;

    return graph->own_labels.ignores &&
           (!labels || (ignored >= labels->least && ignored <= labels->most));
}

static bool find_classes(const struct rb_graph *graph, const struct rb_source_info *info,
                         int64_t ignore_index, struct classes *ret)
{
    const struct rb_node *loss = graph->loss->maker;
    const struct rb_own_labels *own = &graph->own_labels;

    if (loss->op == RB_OP_CROSS_ENTROPY && info->targets.dtype == RB_I64) {
        int64_t n = loss->in[0]->type.dim[rb_node_int(loss, "axis", 0)];

        *ret = (struct classes){
            .labels = &info->extremes, .n = n, .ignores = true, .ignored = ignore_index};
        return true;
    }
    if (loss->op != RB_OP_GRAPH_LOSS)
        return false;
    *ret = (struct classes){true, find_own_labels(graph, info), own->classes, own->ignores,
                            own->ignored};
    return ret->labels != NULL;
}

/* Finds a target that is no class and that the loss does not ignore; false: there is none. */
static bool find_stray(const struct classes *classes, int64_t *ret_target)
{
    const struct rb_extremes *labels = classes->labels;
    const int64_t ends[] = {labels->most, labels->second_most, labels->least, labels->second_least};

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if ((ends[i] < 0 || ends[i] >= classes->n) &&
            !(classes->ignores && ends[i] == classes->ignored)) {
            *ret_target = ends[i];
            return true;
        }
    return false;
}

static int refuse_stray(const struct classes *classes, int64_t stray, struct rb_why *why)
{
    if (stray >= 0)
        return rb_why_set(why, RB_EINVAL,
                          "target %" PRId64 " is in the data, but the model's %s has %" PRId64
                          " classes (0 to %" PRId64 ")",
                          stray, classes->own ? "loss" : "output", classes->n, classes->n - 1);
    return rb_why_set(why, RB_EINVAL,
                      "target %" PRId64 " is in the data, and classes are 0 to %" PRId64
                      ": where it is one that does not count, %s%" PRId64,
                      stray, classes->n - 1,
                      classes->own ? "export the model's loss with ignore_index="
                                   : "say spec.loss.ignoreIndex: ",
                      stray);
}

int rb_check_targets(const struct rb_graph *graph, const struct rb_source_info *info,
                     int64_t ignore_index, struct rb_why *why)
{
    int err = rb_check_inputs(graph, why);
    struct classes classes;
    int64_t stray;

    if (err)
        return err;
    if (graph->loss->maker->op == RB_OP_BCE_LOGITS)
        return check_probabilities(info, why);
    if (!find_classes(graph, info, ignore_index, &classes))
        return 0;
    if (classes.ignores && classes.labels->least == classes.ignored &&
        classes.labels->most == classes.ignored)
        return rb_why_set(
            why, RB_EINVAL,
            "every target in the data is %" PRId64 ", which %s leaves out: none is left",
            classes.ignored, classes.own ? "the model's loss" : "spec.loss.ignoreIndex");
    return find_stray(&classes, &stray) ? refuse_stray(&classes, stray, why) : 0;
}
