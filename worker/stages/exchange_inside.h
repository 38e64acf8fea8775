/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges from inside: for exchange*.c alone.
 *
 * Program > [exchange_program] checks, order > [exchange] messages */
#ifndef RB_WORKER_STAGES_EXCHANGE_INSIDE_H
#define RB_WORKER_STAGES_EXCHANGE_INSIDE_H

#include "worker/stages/exchange.h"

/* Runs of filters, three numbers each: a part, or where they come from; the first; how many. */
struct rb_exchange_runs {
    const int64_t *numbers;
    size_t n;
};

struct rb_exchange_runs rb_exchange_runs(const Rb__Instruction *one, const char *key);

/* For SPREAD and FOLD alike, x is in the part that made it, and y in the parts that read it.  NULL:
 * absent. */
const Rb__Tensor *rb_exchange_side(const Rb__Program *message, const Rb__Instruction *one, bool y);

#endif
