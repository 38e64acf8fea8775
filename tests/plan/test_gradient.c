/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient rule, alone and in whole models, against central differences: by subject in
 * gradient_*.c, in one program, which knows at its end whether any rule was left out. */
#include "graph/autodiff/autodiff.h"
#include "tests/plan/gradient.h"
#include "tests/plan/gradient_tests.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

/* Only this file knows what is between two operators of import's own table;
 * tests/worker/split_links_test.c has what goes between devices. */
static void every_rule_was_run(void **state)
{
    static const enum rb_op rules[] = {
#define X(op, rule) RB_OP_##op,
        RB_DIFF_RULES(X)
#undef X
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(rules); i++)
        if (!gradient_seen[rules[i]] && rb_op_info(rules[i])->kind != RB_KIND_EXCHANGE)
            fail_msg("no gradient went through %s", rb_op_info(rules[i])->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated_models),
        cmocka_unit_test(unary),
        cmocka_unit_test(steps),
        cmocka_unit_test(gelu_tanh),
        cmocka_unit_test(binary),
        cmocka_unit_test(power),
        cmocka_unit_test(power_of_nothing),
        cmocka_unit_test(where),
        cmocka_unit_test(movement),
        cmocka_unit_test(split_and_concat),
        cmocka_unit_test(gather),
        cmocka_unit_test(reductions),
        cmocka_unit_test(products),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(norms),
        cmocka_unit_test(frozen_norm),
        cmocka_unit_test(computed_norm),
        cmocka_unit_test(pools),
        cmocka_unit_test(dropout),
        cmocka_unit_test(attention),
        cmocka_unit_test(losses),
        cmocka_unit_test(whole_models),
        cmocka_unit_test(layouts),
        cmocka_unit_test(gradient_onnx_cases),
        cmocka_unit_test(gradient_onnx_all),
        cmocka_unit_test(every_rule_was_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
