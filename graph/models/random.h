/* SPDX-License-Identifier: Apache-2.0 */
/* Random initial weights: a function of (seed, number of the tensor, element), the same bits on
 * every machine, since no libm is in them.
 *
 * writer > [random] */
#ifndef RB_GRAPH_MODELS_RANDOM_H
#define RB_GRAPH_MODELS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Uniform within +-scale. */
void rb_models_uniform(uint64_t seed, uint64_t tensor, double scale, float *ret, size_t n);

/* A sum of eight uniform numbers, of standard deviation `scale`: normal but for its tails, which
 * end at 4.9 deviations. */
void rb_models_normal(uint64_t seed, uint64_t tensor, double scale, float *ret, size_t n);

#endif
