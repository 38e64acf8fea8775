/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/three.h"

#include "base/arena.h"
#include "kernels/cpu/vector.h"
#include "worker/step/rate.h"
#include "worker/step/update.h"

#include <stdio.h>
#include <stdlib.h>

void three_open(struct bench_job *job, struct three *ret_three)
{
    size_t n = job->model->state.elements;
    struct three three = {
        .job = job,
        .plain = rb_device_alloc(job->model->device, n * sizeof(float)),
        .exact = rb_device_alloc(job->model->device, n * sizeof(double)),
        .total = rb_device_alloc(job->model->device, n * sizeof(double)),
        .wanted = THREE_ALL,
        .shape = {job->model->microbatches, (uint32_t)job->model->message->n_variables},
    };

    if (!three.plain || !three.exact || !three.total) {
        fprintf(stderr, "bench: no memory for %zu sums\n", n);
        exit(1);
    }
    three.record = rb_alloc(rb_vote_bytes(&three.shape));
    *ret_three = three;
}

void three_done(struct three *three)
{
    struct rb_device *device = three->job->model->device;

    rb_device_free(device, three->plain);
    rb_device_free(device, three->exact);
    rb_device_free(device, three->total);
    free(three->record);
}

/* ---- Sums -----------------------------------------------------------------------------------*/

RB_CLONES void three_add_plain(float *restrict sum, const float *restrict g, size_t n, float weight)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += g[i] * weight;
}

RB_CLONES static void add_exact(double *restrict sum, const float *restrict g, size_t n,
                                double weight)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (double)g[i] * weight;
}

static void add_one(struct three *three, enum three_sum sum, const Rb__Contribution *contribution)
{
    struct rb_model *model = three->job->model;
    const Rb__Variable *variable = model->message->variables[contribution->variable];
    const float *g = rb_program_tensor(three->runner->program, (int)contribution->tensor);
    uint32_t v = contribution->variable;
    size_t n = (size_t)variable->elements;
    float weight = 1;

    if (variable->role == RB__VARIABLE__ROLE__STATISTIC)
        weight = rb_exponent_statistic(variable->momentum, model->microbatches, three->microbatch);
    if (sum == THREE_FIXED)
        rb_fixed_add(model->device, model->local + variable->offset, g, n, weight,
                     model->exponents[v].exponent, model->limits[v], &model->largest[v],
                     &model->overflow[v]);
    else if (sum == THREE_PLAIN)
        three_add_plain(three->plain + variable->offset, g, n, weight);
    else
        add_exact(three->exact + variable->offset, g, n, (double)weight);
}

static void after_instruction(int instruction, void *context)
{
    struct three *three = context;
    const struct rb_runner *runner = three->runner;

    for (; three->next < runner->message->n_contributions &&
           runner->contributions[three->next]->after <= (uint32_t)instruction + 1;
         three->next++)
        for (int sum = 0; sum < THREE_SUMS; sum++) {
            uint64_t start;

            if (!(three->wanted >> sum & 1))
                continue;
            start = bench_clock_ns();
            add_one(three, (enum three_sum)sum, runner->contributions[three->next]);
            three->ns[sum] += bench_clock_ns() - start;
        }
}

/* ---- A step ---------------------------------------------------------------------------------*/

static void compute(struct three *three, uint32_t microbatch)
{
    struct rb_model *model = three->job->model;
    const Rb__Model *message = model->message;
    struct rb_key key = {message->seed, (uint64_t)model->state.level, microbatch};
    struct rb_batch batch =
        rb_batch_of(message->global_batch, message->micro_batch, model->state.level, microbatch);
    const struct rb_runner *runner =
        microbatch + 1 == model->microbatches ? model->last_runner : model->runner;
    double loss;
    int64_t count;

    three->runner = runner;
    three->microbatch = microbatch;
    three->next = 0;
    rb_program_defer(runner->program, false); /* gradients are looked at here */
    rb_batch_fill(&runner->slots, model->train, message->seed, &batch);
    rb_program_run(runner->program, &key, NULL, after_instruction, three);
    loss = *(double *)rb_program_tensor(runner->program, runner->message->loss);
    count = *(int64_t *)rb_program_tensor(runner->program, runner->message->count);
    rb_vote_microbatch(&three->shape, three->record, microbatch, loss, count, 0);
    three->loss += loss;
    three->count += count;
}

void three_attempt(struct three *three, struct rb_vote_decision *ret_decision)
{
    struct rb_model *model = three->job->model;
    size_t n = model->state.elements;
    struct rb_vote_ready ready = {0};
    struct rb_why why;

    if (three->wanted >> THREE_FIXED & 1)
        memset(model->local, 0, n * sizeof *model->local);
    if (three->wanted >> THREE_PLAIN & 1)
        memset(three->plain, 0, n * sizeof *three->plain);
    if (three->wanted >> THREE_EXACT & 1)
        memset(three->exact, 0, n * sizeof *three->exact);
    memset(model->largest, 0, three->shape.variables * sizeof *model->largest);
    memset(model->overflow, 0, three->shape.variables * sizeof *model->overflow);
    memset(three->ns, 0, sizeof three->ns);
    three->loss = 0;
    three->count = 0;
    rb_vote_start(&three->shape, three->record, 0, model->state.level, 0);
    for (uint32_t i = 0; i < model->microbatches; i++)
        compute(three, i);
    three->loss /= (double)three->count;
    for (uint32_t v = 0; v < three->shape.variables; v++)
        rb_vote_variable(&three->shape, three->record, v, model->largest[v], model->overflow[v]);
    rb_vote_finish(three->record, 0, &ready);
    bench_check(rb_vote_decide(&three->shape, three->record, 1, model->state.level, 0,
                               model->exponents, model->limits, ret_decision, model->largest, &why),
                &why);
}

uint32_t three_settle(struct three *three, struct rb_vote_decision *ret_decision)
{
    struct rb_model *model = three->job->model;
    uint32_t redone = 0;

    memcpy(model->exponents, model->state.exponents,
           model->state.variables * sizeof *model->exponents);
    for (three_attempt(three, ret_decision); ret_decision->verdict == RB_VOTE_REDO;
         three_attempt(three, ret_decision)) {
        redone++;
        for (uint32_t v = 0; v < three->shape.variables; v++)
            rb_exponent_redo(&model->exponents[v], model->largest[v], model->limits[v]);
    }
    if (ret_decision->verdict != RB_VOTE_COMMIT) {
        fprintf(stderr, "bench: step %lld was skipped\n", (long long)model->state.level + 1);
        exit(1);
    }
    return redone;
}

/* ---- Changing the weights -------------------------------------------------------------------*/

static double value_of(const struct three *three, enum three_sum sum, uint32_t v, size_t i)
{
    const struct rb_model *model = three->job->model;

    if (sum == THREE_FIXED)
        return ldexp((double)model->local[i], -model->exponents[v].exponent);
    return sum == THREE_PLAIN ? (double)three->plain[i] : three->exact[i];
}

/* PyTorch's formulas with the roundings of kernels/cpu/optimizer.c. */
static void adamw(const Rb__Optimizer *o, const Rb__Variable *variable, struct rb_state *state,
                  const double *total, double scale, double lr)
{
    uint64_t t = (uint64_t)state->applied + 1;
    float b1 = (float)o->beta1, b2 = (float)o->beta2, a1 = 1.0f - b1, a2 = 1.0f - b2;
    float decay = 1.0f - (float)lr * (variable->decay ? (float)o->weight_decay : 0);
    float step = (float)lr / (float)(1 - rb_exponent_power(o->beta1, t));
    float root = 1.0f / sqrtf((float)(1 - rb_exponent_power(o->beta2, t)));

    for (size_t i = (size_t)variable->offset, end = i + (size_t)variable->elements; i < end; i++) {
        float g = (float)(total[i] * scale);
        float m = b1 * state->m[i] + a1 * g, v = b2 * state->v[i] + a2 * g * g;

        state->m[i] = m;
        state->v[i] = v;
        state->w[i] = state->w[i] * decay - step * m / (sqrtf(v) * root + (float)o->eps);
    }
}

static void sgd(const Rb__Optimizer *o, const Rb__Variable *variable, struct rb_state *state,
                const double *total, double scale, double lr)
{
    float decay = variable->decay ? (float)o->weight_decay : 0, momentum = (float)o->momentum;

    for (size_t i = (size_t)variable->offset, end = i + (size_t)variable->elements; i < end; i++) {
        float g = (float)(total[i] * scale) + decay * state->w[i];

        if (state->m)
            g = state->m[i] = state->applied ? momentum * state->m[i] + g : g;
        state->w[i] -= (float)lr * g;
    }
}

/* Change the weights of `state` by three->total. */
static void apply(const struct three *three, struct rb_state *state)
{
    const Rb__Model *message = three->job->model->message;
    double lr = rb_rate_at(message->optimizer, message->steps, state->level + 1);
    double scale = (double)(float)(1 / (double)three->count);

    for (uint32_t v = 0; v < message->n_variables; v++) {
        const Rb__Variable *variable = message->variables[v];
        float keep = rb_exponent_keep(variable->momentum, three->job->model->microbatches);

        if (variable->role == RB__VARIABLE__ROLE__STATISTIC)
            for (size_t i = (size_t)variable->offset, k = 0; k < variable->elements; i++, k++)
                state->w[i] = keep * state->w[i] + (float)three->total[i];
        else if (variable->role == RB__VARIABLE__ROLE__TRAINED)
            (message->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW ? adamw : sgd)(
                message->optimizer, variable, state, three->total, scale, lr);
    }
}

static void make_total(struct three *three, enum three_sum sum)
{
    const Rb__Model *message = three->job->model->message;

    for (uint32_t v = 0; v < message->n_variables; v++) {
        const Rb__Variable *variable = message->variables[v];

        if (variable->role == RB__VARIABLE__ROLE__FIXED)
            continue;
        for (size_t i = (size_t)variable->offset, k = 0; k < variable->elements; i++, k++)
            three->total[i] = value_of(three, sum, v, i);
    }
}

void three_apply(struct three *three, enum three_sum sum)
{
    struct rb_state *state = &three->job->model->state;

    make_total(three, sum);
    apply(three, state);
    state->applied++;
    state->level++;
}

void three_commit(struct three *three, const struct rb_vote_decision *decision, bool checked)
{
    struct rb_model *model = three->job->model;
    struct rb_state twin;
    struct rb_why why;

    memcpy(model->reduced, model->local, model->state.elements * sizeof *model->reduced);
    if (checked) {
        bench_check(rb_state_open(model->message, NULL, &twin, &why), &why);
        rb_state_copy(&twin, &model->state, model->message);
        make_total(three, THREE_FIXED);
        apply(three, &twin);
    }
    rb_update_commit(model, decision, false);
    if (!checked)
        return;
    if (memcmp(twin.w, model->state.w, twin.elements * sizeof(float)) != 0) {
        fprintf(stderr, "bench: the plain optimizer and the product's differ\n");
        exit(1);
    }
    rb_state_done(&twin);
}

double three_error(const struct three *three, enum three_sum sum, int variable)
{
    const Rb__Model *message = three->job->model->message;
    double wrong = 0, whole = 0;

    for (uint32_t v = 0; v < message->n_variables; v++) {
        const Rb__Variable *one = message->variables[v];

        if (one->role != RB__VARIABLE__ROLE__TRAINED || (variable >= 0 && (uint32_t)variable != v))
            continue;
        for (size_t i = (size_t)one->offset, k = 0; k < one->elements; i++, k++) {
            double off = value_of(three, sum, v, i) - three->exact[i];

            wrong += off * off;
            whole += three->exact[i] * three->exact[i];
        }
    }
    return whole > 0 ? sqrt(wrong / whole) : 0;
}
