/* SPDX-License-Identifier: Apache-2.0 */
/* Programs, state layouts and schedules as text, against files in golden/.
 *
 * RUBATO_GOLDEN=write writes them anew; read the difference before committing it. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "graph/train.h"
#include "plan/compile/lower.h"
#include "plan/schedule.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void compare(const char *name, const struct rb_buffer *text)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s.txt", GOLDEN_FOLDER, name);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer golden = {0};
    const char *mode = getenv("RUBATO_GOLDEN");
    struct rb_why why = {0};

    if (mode && !strcmp(mode, "write")) {
        assert_int_equal(rb_file_write(path, text->data, text->size, &why), 0);
        return;
    }
    if (rb_file_read(path, 1 << 20, &golden, &why))
        fail_msg("%s", why.text);
    if (golden.size != text->size || memcmp(golden.data, text->data, text->size))
        fail_msg("%s differs; it is now:\n%s", path, text->data);
}

static void compare_model(const char *name, struct rb_graph *(*make)(int64_t, bool))
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};
    Rb__Model *model = rb_alloc(sizeof(*model));
    struct rb_why why = {0};

    rb__model__init(model);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"train b=2", "train b=1", "eval b=2"};
        struct rb_graph *graph = make(i == 1 ? 1 : 2, i < 2);

        if (i == 0)
            assert_int_equal(rb_lower_variables(graph, model, &why), 0);
        if (rb_lower_program(graph, names[i], model, &why))
            fail_msg("%s", why.text);
        rb_graph_free(graph);
    }
    rb_model_print(model, &text);
    rb_program_print(model, model->programs[0], &text);
    rb_program_print(model, model->programs[2], &text);
    compare(name, &text);
    rb__model__free_unpacked(model, NULL);
}

static void mlp(void **state)
{
    (void)state;
    compare_model("mlp", tiny_mlp);
}

static void cnn(void **state)
{
    (void)state;
    compare_model("cnn", tiny_cnn);
}

static void gpt(void **state)
{
    (void)state;
    compare_model("gpt", tiny_gpt);
}

static struct rb_graph *in_blocks(int64_t batch, bool train)
{
    struct rb_graph *graph = tiny_residual(batch, train);
    struct rb_why why = {0};

    if (rb_layout(graph, &why))
        fail_msg("%s", why.text);
    return graph;
}

/* Axes are turned around where values come and go, and nowhere between. */
static void layout(void **state)
{
    (void)state;
    compare_model("layout", in_blocks);
}

static struct rb_graph *in_bf16(int64_t batch, bool train)
{
    struct rb_graph *graph = tiny_gpt(batch, train);
    struct rb_why why = {0};

    if (rb_layout(graph, &why) || rb_narrow(graph, &why))
        fail_msg("%s", why.text);
    return graph;
}

static void narrow(void **state)
{
    (void)state;
    compare_model("narrow", in_bf16);
}

static void schedules(void **state)
{
    static const uint32_t ranks[] = {1, 2, 3, 5, 9};
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};
    Rb__Bucket buckets[2] = {RB__BUCKET__INIT, RB__BUCKET__INIT};
    Rb__Bucket *list[] = {&buckets[0], &buckets[1]};
    Rb__Model model = RB__MODEL__INIT;

    (void)state;
    model.buckets = list;
    model.n_buckets = 2;
    model.micro_batch = 4;
    for (int total = 8; total >= 7; total--)
        for (size_t i = 0; i < RB_COUNT(ranks); i++) {
            Rb__Plan *plan;

            model.global_batch = 4 * total - 1;
            assert_int_equal(rb_schedule_data(&model, ranks[i], &plan, NULL), 0);
            rb_plan_print(plan, &text);
            rb__plan__free_unpacked(plan, NULL);
        }
    compare("schedules", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp),    cmocka_unit_test(cnn),    cmocka_unit_test(gpt),
        cmocka_unit_test(layout), cmocka_unit_test(narrow), cmocka_unit_test(schedules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
