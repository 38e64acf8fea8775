/* SPDX-License-Identifier: Apache-2.0 */
/* docs/operators.md agrees with the table of operators: `test_graph_operators --write` writes
 * it. */
#include "tests/graph/help.h"

#include "base/buffer.h"
#include "base/file.h"
#include "graph/import/import.h"

#include <stdio.h>

static const char intro[] =
    "# Operators\n"
    "\n"
    "The ONNX operators that Rubato imports, opsets 1 to 23 of the default domain; models are "
    "best\n"
    "exported with opset 13 or later.  Files may be of IR versions 3 to 13; functions that a "
    "model\n"
    "brings along are taken apart where they are called.  An operator that is missing here is\n"
    "refused with a sentence that\n"
    "names the node, the operator and the reason; `rubatoctl model check FILE` says it without a\n"
    "job.\n"
    "\n"
    "- *from*: the first opset whose meaning of the operator is known; empty: all.\n"
    "- *gradient*: yes; zero for step functions, which pass none; empty where no real number goes "
    "in\n"
    "  or comes out.\n"
    "- *computes in*: element types with kernels of their own.  Others are cast to the nearest of\n"
    "  these and the result is cast back: float16 and bfloat16 to float32, narrow integers to "
    "int32,\n"
    "  uint32 and uint64 to int64.  \"any\": elements are only moved.\n"
    "- What must be *known at import* may be computed, as exporters do, from constants and "
    "shapes.\n"
    "  Tensors have at most 8 axes.\n"
    "\n"
    "This page is made from `graph/import/table.c`; a test fails where the two differ.\n"
    "\n"
    "| operator | from | gradient | computes in | limits |\n"
    "|---|---|---|---|---|\n";

static void print(struct rb_buffer *page)
{
    static const char *const gradients[] = {"", "zero", "yes"};
    static const char *const types[] = {"any", "float32 float64 int32 int64",
                                        "float32 float64 int32 int64", "float32 float64",
                                        "float32"};
    const struct rb_import_op *all;
    int n;

    all = rb_import_all(&n);
    rb_buffer_text(page, intro);
    for (int i = 0; i < n; i++) {
        if (all[i].since > 23)
            continue;
        rb_buffer_format(page, "| %s | ", all[i].name);
        if (all[i].since > 1)
            rb_buffer_format(page, "%d ", (int)all[i].since);
        rb_buffer_format(page, "| %s | %s | %s |\n", gradients[all[i].gradient],
                         types[all[i].types], all[i].limits);
    }
}

static void page_is_the_table(void **state)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer want = {0}, have = {0};
    struct rb_why why = {0};

    print(&want);
    if (rb_file_read(OPERATORS, 1 << 20, &have, &why))
        fail_msg("%s", why.text);
    if (want.size != have.size || memcmp(want.data, have.data, want.size) != 0)
        fail_msg("docs/operators.md is not what the table says: run this test with --write");
}

static void table_is_in_order(void **state)
{
    const struct rb_import_op *all;
    int n;

    all = rb_import_all(&n);
    for (int i = 1; i < n; i++)
        if (strcmp(all[i - 1].name, all[i].name) >= 0)
            fail_msg("%s stands before %s", all[i - 1].name, all[i].name);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_the_table),
        cmocka_unit_test(table_is_in_order),
    };
    RB_CLEANUP(rb_buffer_done) struct rb_buffer page = {0};
    struct rb_why why = {0};

    if (argc > 1 && !strcmp(argv[1], "--write")) {
        print(&page);
        return rb_file_write(OPERATORS, page.data, page.size, &why) != 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
