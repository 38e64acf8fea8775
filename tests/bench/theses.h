/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of docs/theses.md that are computed, on stdout: as Markdown, or for plots.py as JSON,
 * an object a line with the name of its table; curves have more points there.
 *
 *     plan/partition, plan/simulate -> theses_*.c -> theses.md | docs/plots/data */
#pragma once

#include <stdbool.h>

void theses_balance(bool json);
void theses_pipeline(bool json);

/* folder: NULL, or where the hypergraphs are written instead, as other partitioners read them. */
void theses_hypergraph(bool json, const char *folder);
