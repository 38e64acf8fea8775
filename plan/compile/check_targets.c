/* SPDX-License-Identifier: Apache-2.0 */
/* Targets against the loss: classes that there are, probabilities that are some. */
#include "plan/compile/check.h"

#include <inttypes.h>

/* Of a target beyond 0 and 1 this loss has no least value: the weights would grow for ever. */
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

/* The integers that a loss takes for classes: whose loss it is, and which of them it leaves out. */
struct classes {
    bool own; /* the model's */
    int64_t n;
    bool ignores;
    int64_t ignored;
};

/* Does the model's own loss take its labels from the targets as they are? */
static bool takes_targets(const struct rb_graph *graph)
{
    const struct rb_value *value = graph->own_labels.value;

    while (value && value->maker &&
           (value->maker->op == RB_OP_RESHAPE || value->maker->op == RB_OP_TRANSPOSE ||
            value->maker->op == RB_OP_CAST))
        value = value->maker->in[0];
    return value && value == graph->targets;
}

bool rb_check_ignores(const struct rb_graph *graph, const struct rb_source_info *info)
{
    int64_t ignored = graph->own_labels.ignored;

    if (!graph->own_labels.ignores)
        return false;
    return !takes_targets(graph) || info->targets.dtype != RB_I64 ||
           (ignored >= info->extremes.least && ignored <= info->extremes.most);
}

static bool find_classes(const struct rb_graph *graph, int64_t ignore_index, struct classes *ret)
{
    const struct rb_node *loss = graph->loss->maker;
    const struct rb_own_labels *own = &graph->own_labels;

    if (loss->op == RB_OP_CROSS_ENTROPY) {
        int64_t n = loss->in[0]->type.dim[rb_node_int(loss, "axis", 0)];

        *ret = (struct classes){.n = n, .ignores = true, .ignored = ignore_index};
        return true;
    }
    if (loss->op != RB_OP_GRAPH_LOSS || !takes_targets(graph))
        return false;
    *ret = (struct classes){true, own->classes, own->ignores, own->ignored};
    return true;
}

/* A target that is no class and counts all the same; false: there is none. */
static bool find_stray(const struct rb_extremes *extremes, const struct classes *classes,
                       int64_t *ret_target)
{
    const int64_t ends[] = {extremes->most, extremes->second_most, extremes->least,
                            extremes->second_least};

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
    if (info->targets.dtype != RB_I64 || !find_classes(graph, ignore_index, &classes))
        return 0;
    if (classes.ignores && info->extremes.least == classes.ignored &&
        info->extremes.most == classes.ignored)
        return rb_why_set(
            why, RB_EINVAL,
            "every target in the data is %" PRId64 ", which %s leaves out: none is left",
            classes.ignored, classes.own ? "the model's loss" : "spec.loss.ignoreIndex");
    return find_stray(&info->extremes, &classes, &stray) ? refuse_stray(&classes, stray, why) : 0;
}
