/* SPDX-License-Identifier: Apache-2.0 */
/* A model of one product, whose price is easy to compute by hand, and clusters to price it on. */
#ifndef RB_TESTS_PLAN_PRODUCT_H
#define RB_TESTS_PLAN_PRODUCT_H

#include "plan.pb-c.h"
#include "plan/simulate/cluster.h"

/* A product of 100 x 100 x 100 a sample: 2 MFLOP; a million weights in buckets of 250,000. */
enum { PRODUCT_BUCKETS = 4, PRODUCT_BUCKET = 250000 };

/* Microbatches of one sample; free with rb__model__free_unpacked. */
Rb__Model *product_model(int64_t batch);

/* Its only program, to be put into another model. */
Rb__Program *product_program(void);

/* Reads `text` as a cluster file; end it with rb_cluster_done. */
struct rb_cluster product_cluster(const char *text);

#endif
