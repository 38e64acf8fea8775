/* SPDX-License-Identifier: Apache-2.0 */
/* The computed tables of docs/theses.md, on stdout: as Markdown, or for plots.py as JSON, an object
 * a line with the name of its table; curves have more points in JSON.
 *
 *     plan/partition, plan/simulate -> theses_*.c -> theses.md | docs/plots/data */
#pragma once

#include <stdbool.h>

void theses_balance(bool json);
void theses_pipeline(bool json);

/* folder: NULL, or where to write the hypergraphs instead, in the format of other partitioners. */
void theses_hypergraph(bool json, const char *folder);
