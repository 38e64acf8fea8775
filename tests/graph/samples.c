/* SPDX-License-Identifier: Apache-2.0 */
/* Which losses are sums over samples, in models whose sizes are all those of the batch. */
#include "graph/samples.h"
#include "graph/train.h"
#include "tests/graph/help.h"

enum { SIZE = 4 }; /* the batch, and all other axes */

/* x [4, 4, 4, 4], behind the batch channels and an image, goes through steps, and the mean of the
 * result is the loss.  A step is an operator, then its "key=integers", then its other inputs: w is
 * a weight whose digit is the rank; i[...] known integers; x the input; @ once more the result of
 * the step before.  In front of the operator "x" or "w2" names its first input, where that is not
 * the step before. */
static const struct model_case {
    const char *steps[8];
    bool mean;
} cases[] = {
    {{"Mul w4"}, true},
    {{"Softmax axis=1"}, true},
    {{"Softmax axis=0"}, false},
    {{"ReduceMean axes=1,2 keepdims=0", "MatMul w2", "Relu"}, true},
    {{"ReduceMean axes=1,2 keepdims=0", "MatMul w2", "ReduceMean axes=0", "Sqrt"}, false},
    {{"ReduceMean axes=0", "x Sub @", "Mul @"}, false},
    {{"ReduceMax axes=0 keepdims=0"}, false},
    {{"CumSum i[0]"}, false},
    {{"CumSum i[1]"}, true},
    {{"Transpose perm=1,2,0,3", "Reshape i[64,4]", "MatMul w2", "Reshape i[16,16]"}, true},
    {{"Transpose perm=1,2,0,3", "Reshape i[64,4]", "Softmax axis=0"}, false},
    {{"Transpose perm=1,2,0,3", "Reshape i[4,4,4,4]", "Softmax axis=1"}, true},
    {{"Transpose perm=1,2,0,3", "Reshape i[4,4,4,4]", "Softmax axis=2"}, false},
    {{"Reshape i[2,2,64]", "Relu", "Reshape i[4,64]"}, true},
    {{"Reshape i[2,2,64]", "ReduceMax axes=1"}, false},
    /* each sample with each other */
    {{"Reshape i[4,64]", "Transpose perm=1,0", "Reshape i[64,4]", "MatMul w2"}, false},
    {{"Reshape i[4,64]", "Transpose perm=1,0", "x Reshape i[4,64]", "MatMul @-1"}, false},
    {{"Transpose perm=0,1,3,2", "x MatMul @", "Softmax axis=3", "MatMul x"}, true},
    {{"Transpose perm=1,0,2,3", "Add x"}, false},
    {{"Transpose perm=1,2,3,0", "x MatMul @"}, false},
    /* parts of the batch, and samples of others */
    {{"Slice i[1] i[3] i[1]"}, true},
    {{"Slice i[1] i[3] i[0]"}, false},
    {{"Slice i[3] i[-5] i[1] i[-1]", "Mul x"}, true},
    {{"Slice i[3] i[-5] i[0] i[-1]", "Mul x"}, false},
    {{"Gather i[1,0,3,2] axis=0", "Mul x"}, false},
    {{"Gather i[1,0,3,2] axis=2", "Mul x"}, true},
    {{"Concat x axis=1"}, true},
    {{"Concat x axis=0"}, false},
    {{"Pad i[0,1,0,0,0,1,0,0]"}, true},
    {{"Pad i[1,0,0,0,1,0,0,0]"}, false},
    /* tables that samples look up */
    {{"ArgMax axis=3 keepdims=0", "w2 Gather @ axis=0"}, true},
    {{"ArgMax axis=0 keepdims=0", "w2 Gather @ axis=0"}, false},
    {{"Conv w4 kernel_shape=4,4", "Flatten", "LayerNormalization w1"}, true},
    {{"w4 Conv x kernel_shape=4,4"}, false},
    {{"MaxPool kernel_shape=2,2", "GlobalAveragePool", "Expand i[4,4,4,4]"}, true},
    /* values that are the same for every sample change nothing */
    {{"w4 Mul x", "ReduceMean axes=0", "Sqrt"}, false},
    {{"w4 Softmax axis=0", "Add x"}, true},
};

/* The names that a step reads or makes. */
struct chain {
    struct rb_writer w;
    const char *made[8];
    int n, weights;
};

static const char *integers(struct chain *chain, const char *text)
{
    int64_t numbers[8];
    int n = 0;

    for (char *at = (char *)(uintptr_t)text + 2; *at && *at != ']'; at += *at == ',')
        numbers[n++] = strtoll(at, &at, 10);
    return rb_writer_constant_ints(&chain->w, RB_WRITER_NAME(&chain->w, "i%d", chain->weights++), n,
                                   numbers);
}

/* @: the result of the step before; @-1: of the one before that. */
static const char *operand(struct chain *chain, const char *word)
{
    const int64_t dim[] = {SIZE, SIZE, SIZE, SIZE};

    if (*word == 'i')
        return integers(chain, word);
    if (*word == '@')
        return chain->made[chain->n - 1 + (word[1] ? atoi(word + 1) : 0)];
    if (*word == 'w')
        return rb_writer_weight(&chain->w, RB_WRITER_NAME(&chain->w, "w%d", chain->weights++),
                                word[1] - '0', dim, RB_INIT_NORMAL, 1);
    return "x";
}

static void attribute(struct chain *chain, const char *word)
{
    RB_CLEANUP(rb_freep) char *key = rb_format("%.*s", (int)strcspn(word, "="), word);
    bool list = !strcmp(key, "axes") || strchr(word, ',');
    int64_t numbers[8];
    int n = 0;

    for (char *at = (char *)(uintptr_t)strchr(word, '=') + 1; *at; at += *at == ',')
        numbers[n++] = strtoll(at, &at, 10);
    if (list)
        rb_writer_ints(&chain->w, rb_arena_string(&chain->w.arena, key), n, numbers);
    else
        rb_writer_int(&chain->w, rb_arena_string(&chain->w.arena, key), numbers[0]);
}

static void add_step(struct chain *chain, const char *step)
{
    RB_CLEANUP(rb_freep) char *text = rb_format("%s", step);
    const char *op = "", *inputs[5] = {0}, *attributes[4];
    int n_inputs = 0, n_attributes = 0;
    char *save = NULL;

    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (*word >= 'A' && *word <= 'Z') {
            op = rb_arena_string(&chain->w.arena, word);
            if (!n_inputs)
                inputs[n_inputs++] = chain->n ? chain->made[chain->n - 1] : "x";
        } else if (strchr(word, '=')) {
            attributes[n_attributes++] = word;
        } else {
            inputs[n_inputs++] = operand(chain, word);
        }
    }
    chain->made[chain->n] =
        rb_writer_node(&chain->w, op, RB_WRITER_NAME(&chain->w, "%s%d", op, chain->n), inputs[0],
                       inputs[1], inputs[2], inputs[3], inputs[4], NULL);
    chain->n++;
    for (int i = 0; i < n_attributes; i++)
        attribute(chain, attributes[i]);
}

static void means(void **state)
{
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct chain chain = {.n = 0};
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        enum rb_own_loss loss;

        rb_writer_init(&chain.w, "loss", 1);
        rb_writer_input(&chain.w, "x", RB_F32, 4, (int64_t[]){-1, SIZE, SIZE, SIZE});
        for (int j = 0; cases[i].steps[j]; j++)
            add_step(&chain, cases[i].steps[j]);
        add_step(&chain, "ReduceMean keepdims=0");
        rb_writer_output(&chain.w, chain.made[chain.n - 1], 0, NULL);
        if (import_batch(&chain.w, SIZE, &graph, &why))
            fail_msg("%s ...: %s", cases[i].steps[0], why.text);
        loss = rb_own_loss_of(graph, graph->outputs[0]);
        if (loss != (cases[i].mean ? RB_OWN_LOSS_MEAN : RB_OWN_LOSS_OTHER))
            fail_msg("case %zu, %s ...: %d", i, cases[i].steps[0], (int)loss);
        rb_graph_free(graph);
        rb_writer_done(&chain.w);
    }
}

/* A division after sums over samples: only dividing by the number of samples makes a mean. */
static void quotients(void **state)
{
    static const struct {
        const char *reduce[2]; /* the second is added */
        int64_t by;
        enum rb_own_loss loss;
    } quotients[] = {
        {{"ReduceSum"}, SIZE, RB_OWN_LOSS_MEAN},
        {{"ReduceSum", "ReduceSum"}, SIZE, RB_OWN_LOSS_MEAN},
        {{"ReduceMean"}, SIZE, RB_OWN_LOSS_MEAN}, /* a fraction of a mean */
        {{"ReduceSum"}, SIZE + 1, RB_OWN_LOSS_OTHER},
        {{"ReduceSum", "ReduceMean"}, SIZE, RB_OWN_LOSS_OTHER},
        {{"ReduceL2"}, SIZE, RB_OWN_LOSS_OTHER},
    };

    for (size_t i = 0; i < RB_COUNT(quotients); i++) {
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        const char *y, *n;

        rb_writer_init(&w, "loss", 1);
        rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 3});
        y = rb_writer_node(&w, quotients[i].reduce[0], "total", "x", NULL);
        rb_writer_int(&w, "keepdims", 0);
        if (quotients[i].reduce[1]) {
            const char *more = rb_writer_node(&w, quotients[i].reduce[1], "more", "x", NULL);

            rb_writer_int(&w, "keepdims", 0);
            y = rb_writer_node(&w, "Add", "both", y, more, NULL);
        }
        n = rb_writer_constant_ints(&w, "n", 1, &quotients[i].by);
        n = rb_writer_node(&w, "Cast", "real", n, NULL);
        rb_writer_int(&w, "to", RB_F32);
        rb_writer_output(&w, rb_writer_node(&w, "Div", "y", y, n, NULL), 1, (int64_t[]){1});
        if (import_batch(&w, SIZE, &graph, &why))
            fail_msg("%s", why.text);
        assert_int_equal(rb_own_loss_of(graph, graph->outputs[0]), quotients[i].loss);
        rb_graph_free(graph);
        rb_writer_done(&w);
    }
}

/* Penalties of weights are the same in every microbatch, whatever is computed from them. */
static void penalties(void **state)
{
    struct chain chain = {.n = 0};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    const char *mean, *scale;

    rb_writer_init(&chain.w, "loss", 1);
    rb_writer_input(&chain.w, "x", RB_F32, 2, (int64_t[]){-1, 3});
    mean = rb_writer_node(&chain.w, "ReduceMean", "mean", "x", NULL);
    rb_writer_int(&chain.w, "keepdims", 0);
    scale =
        rb_writer_node(&chain.w, "ReduceL2", "length",
                       rb_writer_weight(&chain.w, "w", 1, (int64_t[]){3}, RB_INIT_NORMAL, 1), NULL);
    rb_writer_int(&chain.w, "keepdims", 0);
    mean = rb_writer_node(&chain.w, "Mul", "scaled", scale, mean, NULL);
    rb_writer_output(&chain.w, rb_writer_node(&chain.w, "Add", "y", mean, scale, NULL), 0, NULL);
    assert_int_equal(import_batch(&chain.w, SIZE, &graph, &why), 0);
    assert_int_equal(rb_own_loss_of(graph, graph->outputs[0]), RB_OWN_LOSS_MEAN);
    rb_graph_free(graph);
    rb_writer_done(&chain.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means),
        cmocka_unit_test(penalties),
        cmocka_unit_test(quotients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
