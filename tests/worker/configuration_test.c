/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as workers take them from their files: each microbatch of a batch is computed once, by any
 * rank, and all orders are in their turn. */
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/file.h"
#include "plan/schedule_pipeline.h"
#include "worker/configuration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, STAGES = 2, MICROBATCHES = 6 };

static const struct tiny_options job = {
    .samples = 40, .global_batch = 22, .micro_batch = 4, .steps = 1, .hidden = 64};

static char folder[] = "/tmp/rubato-configuration-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rb_file_remove(folder, NULL);
}

/* What rank 0 of so many answers to the plan; NULL: it takes the plan. */
static void expect(const Rb__Model *model, const Rb__Plan *plan, size_t ranks, const char *text)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/plan", folder);
    Rb__Configure order = RB__CONFIGURE__INIT;
    struct rb_configuration *configuration = NULL;
    struct rb_why why = {0};
    int err;

    tiny_write_message(folder, "plan", &plan->base);
    order.number = 1;
    order.n_members = ranks;
    order.digest = (char *)"";
    order.plan_path = path;
    err = rb_configuration_read(&order, model, &configuration, &why);
    if (!text && err)
        fail_msg("%s", why.text);
    if (text && (err != RB_EINVAL || !strstr(why.text, text)))
        fail_msg("'%s', not '%s'", why.text, text);
    rb_configuration_free(configuration);
}

/* The first order of a kind that a rank has, after skipping `skip` of them. */
static Rb__Order *find(const Rb__Plan *plan, uint32_t rank, Rb__Order__Kind kind, size_t skip)
{
    for (size_t i = 0; i < plan->ranks[rank]->n_orders; i++)
        if (plan->ranks[rank]->orders[i]->kind == kind && !skip--)
            return plan->ranks[rank]->orders[i];
    fail();
    return NULL;
}

static void break_plan(Rb__Plan *plan, int how)
{
    Rb__Order *last = find(plan, 3, RB__ORDER__KIND__UPDATE, 0);

    switch (how) {
    case 0: /* one microbatch twice by the same rank */
        find(plan, 0, RB__ORDER__KIND__COMPUTE, 1)->argument = 0;
        break;
    case 1: /* by two */
        find(plan, 3, RB__ORDER__KIND__COMPUTE, 0)->argument = 1;
        break;
    case 2: /* one too many, although all are computed */
        last->kind = RB__ORDER__KIND__COMPUTE;
        last->argument = 2;
        break;
    case 3:
        find(plan, 2, RB__ORDER__KIND__COMPUTE, 0)->argument = MICROBATCHES;
        break;
    case 4: /* the last one drops out of its rank's orders */
        memmove(plan->ranks[3]->orders, plan->ranks[3]->orders + 1,
                --plan->ranks[3]->n_orders * sizeof *plan->ranks[3]->orders);
        break;
    case 5:
        find(plan, 1, RB__ORDER__KIND__REDUCE, 0)->argument++;
        break;
    case 6:
        find(plan, 1, RB__ORDER__KIND__VOTE, 0)->kind = RB__ORDER__KIND__UPDATE;
        break;
    case 7:
        last->kind = RB__ORDER__KIND__GATHER;
        break;
    case 8:
        find(plan, 1, RB__ORDER__KIND__COMPUTE, 0)->kind = RB__ORDER__KIND__FORWARD;
        break;
    default: /* as it is */
        break;
    }
}

static void test_data_parallel(void **state)
{
    static const char *const texts[] = {
        "rank 0: microbatch 0 is computed twice",
        "rank 3: microbatch 1 is computed twice",
        "rank 3: microbatch 2 is computed too late",
        "rank 2: there is no microbatch 6, only 6",
        "nobody computes microbatch 5",
        "bucket 1 is reduced out of turn",
        "the update is out of turn",
        "weights are gathered out of turn",
        "microbatch 2 is computed out of turn",
        NULL,
    };
    Rb__Model *model = tiny_model("/tmp", &job);

    (void)state;
    for (int how = 0; how < (int)RB_COUNT(texts); how++) {
        Rb__Plan *plan = tiny_plan(model, RANKS);
        Rb__Order *first = plan->ranks[3]->orders[0];

        break_plan(plan, how);
        expect(model, plan, RANKS, texts[how]);
        if (plan->ranks[3]->orders[0] != first)
            rb__order__free_unpacked(first, NULL);
        rb__plan__free_unpacked(plan, NULL);
    }
    rb__model__free_unpacked(model, NULL);
}

/* Two ranks are in each stage: each microbatch is in one of them. */
static void test_stages(void **state)
{
    static const Rb__Order__Kind kinds[] = {RB__ORDER__KIND__FORWARD, RB__ORDER__KIND__BACKWARD};
    Rb__Model *model = tiny_model("/tmp", &job);
    struct rb_why why;

    (void)state;
    for (int how = 0; how < 4; how++) {
        uint32_t rank = 0, other, taken;
        Rb__Plan *plan = NULL;

        if (rb_pipeline_plan(model, RANKS, STAGES, &plan, &why))
            fail_msg("%s", why.text);
        for (other = 1; plan->ranks[other]->stage != plan->ranks[rank]->stage;)
            other++;
        switch (how) {
        case 0: /* a microbatch that the other rank has, there and back */
            taken = find(plan, rank, kinds[0], 0)->argument;
            find(plan, other, kinds[0], 0)->argument = taken;
            find(plan, other, kinds[1], 0)->argument = taken;
            expect(model, plan, RANKS, "is out of turn in stage 0");
            break;
        case 1: /* a microbatch twice in one rank */
            taken = find(plan, rank, kinds[0], 0)->argument;
            find(plan, rank, kinds[0], 1)->argument = taken;
            find(plan, rank, kinds[1], 1)->argument = taken;
            expect(model, plan, RANKS, "is out of turn in stage 0");
            break;
        case 2:
            find(plan, other, kinds[0], 0)->kind = RB__ORDER__KIND__COMPUTE;
            expect(model, plan, RANKS, "is computed in one piece in a pipeline");
            break;
        default:
            expect(model, plan, RANKS, NULL);
        }
        rb__plan__free_unpacked(plan, NULL);
    }
    rb__model__free_unpacked(model, NULL);
}

/* Each of two parts of the filters is on two ranks, as stages are. */
static void test_parts(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    Rb__Plan *plan = tiny_plan(model, RANKS);

    (void)state;
    plan->has_stages = plan->has_split = plan->split = 1;
    plan->stages = STAGES;
    for (uint32_t r = 0; r < RANKS; r++)
        plan->ranks[r]->stage = r / 2;
    find(plan, 1, RB__ORDER__KIND__COMPUTE, 0)->argument = 1; /* rank 0 has that one */
    expect(model, plan, RANKS, "rank 1: microbatch 1 is out of turn in part 0");
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
}

static void test_ranks(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    Rb__Plan *plan = tiny_plan(model, RANKS);

    (void)state;
    expect(model, plan, RANKS - 1, "for 4 ranks, there are 3 members");
    expect(model, plan, 0, "rank 0 of 0");
    plan->format = 2;
    expect(model, plan, RANKS, "format 2");
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_ranks),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
