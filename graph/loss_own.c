/* SPDX-License-Identifier: Apache-2.0 */
/* How a loss that the model makes itself depends on its samples. */
#include "graph/fold.h"
#include "graph/samples.h"
#include "graph/train.h"

#include <stdlib.h>

/* The most nodes of a sum of means that are looked at, because a file may make it as long as it
 * likes. */
enum { MOST_TERMS = 256 };

struct terms {
    const struct rb_samples *samples; /* by value */
    const struct rb_value *mean;      /* a value that is a mean by itself, or NULL */
    int64_t batch;
    int left;
};

static bool is_same_for_all(const struct terms *terms, const struct rb_value *value)
{
    return terms->samples[value->id].kind == RB_SAMPLES_NONE;
}

/* The batch's size as a number, which exports compute from a shape. */
static bool is_count(const struct terms *terms, const struct rb_value *value)
{
    return rb_fold_known(value) && rb_tensor_elements(&value->type) == 1 &&
           rb_fold_real(value, 0) == (double)terms->batch;
}

/* With REDUCE_MEAN: is the value a mean of all elements, each of one sample; a sum of such elements
 * divided by the number of samples; the same for all microbatches; or a sum or multiple of these?
 * With REDUCE_SUM: is it a sum of elements, each of one sample, or a sum or multiple of such
 * sums? */
static bool is_made_by(enum rb_op reduce, struct terms *terms, const struct rb_value *value)
{
    const struct rb_node *node = value->maker;

    if (rb_tensor_elements(&value->type) != 1 || terms->left-- <= 0)
        return false;
    if (is_same_for_all(terms, value) || value == terms->mean)
        return reduce == RB_OP_REDUCE_MEAN;
    if (!node)
        return false;
    if (node->op == reduce)
        return terms->samples[node->in[0]->id].kind == RB_SAMPLES_APART ||
               is_made_by(reduce, terms, node->in[0]);
    switch (node->op) {
    case RB_OP_RESHAPE:
    case RB_OP_NEG:
        return is_made_by(reduce, terms, node->in[0]);
    case RB_OP_MUL:
        return is_same_for_all(terms, node->in[0])
                   ? is_made_by(reduce, terms, node->in[1])
                   : is_same_for_all(terms, node->in[1]) && is_made_by(reduce, terms, node->in[0]);
    case RB_OP_DIV:
        if (reduce == RB_OP_REDUCE_MEAN && is_count(terms, node->in[1]) &&
            is_made_by(RB_OP_REDUCE_SUM, terms, node->in[0]))
            return true;
        return is_same_for_all(terms, node->in[1]) && is_made_by(reduce, terms, node->in[0]);
    case RB_OP_ADD:
    case RB_OP_SUB:
        return is_made_by(reduce, terms, node->in[0]) && is_made_by(reduce, terms, node->in[1]);
    default:
        return false;
    }
}

/* In the mean of all elements of a value each sample has the same share, and the mean times the
 * number of samples is a sum over samples. */
static enum rb_own_loss judge(const struct rb_graph *graph, const struct rb_value *output,
                              const struct rb_value *mean)
{
    const struct rb_node *node = output->maker;
    struct terms terms = {.mean = mean, .batch = graph->batch, .left = MOST_TERMS};
    struct rb_samples *samples;
    bool is_mean;

    if (output->type.dtype != RB_F32 || rb_tensor_elements(&output->type) != 1)
        return RB_OWN_LOSS_NONE;
    while (node && node->op == RB_OP_RESHAPE)
        node = node->in[0]->maker;
    if (node && node->op == RB_OP_REDUCE_SUM)
        return RB_OWN_LOSS_SUM;
    terms.samples = samples = rb_samples_find(graph);
    is_mean = is_made_by(RB_OP_REDUCE_MEAN, &terms, output);
    free(samples);
    return is_mean ? RB_OWN_LOSS_MEAN : RB_OWN_LOSS_OTHER;
}

enum rb_own_loss rb_own_loss_of(const struct rb_graph *graph, const struct rb_value *output)
{
    return judge(graph, output, NULL);
}

enum rb_own_loss rb_own_loss_of_all(const struct rb_graph *graph, const struct rb_value *output)
{
    return judge(graph, output, graph->own_labels.mean);
}
