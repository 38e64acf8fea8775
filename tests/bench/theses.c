/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of docs/theses.md that the planner's own parts compute: nothing here is timed.
 *
 * usage: theses [--json] [balance|pipeline|hypergraph [FOLDER]] */
#include "tests/bench/theses.h"

#include <stddef.h>
#include <string.h>

int main(int argc, char **argv)
{
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    const char *only = argc > 1 + json ? argv[1 + json] : NULL;

    if (!only || !strcmp(only, "balance"))
        theses_balance(json);
    if (!only || !strcmp(only, "pipeline"))
        theses_pipeline(json);
    if (!only || !strcmp(only, "hypergraph"))
        theses_hypergraph(json, argc > 2 + json ? argv[2 + json] : NULL);
    return 0;
}
