/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/models/random.h"

#include <math.h>

#include <Random123/philox.h>

/* Four words for element i. */
static philox4x32_ctr_t words(uint64_t seed, uint64_t tensor, uint64_t i)
{
    philox4x32_ctr_t counter = {
        {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)tensor, (uint32_t)(tensor >> 32)}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};

    return philox4x32(counter, key);
}

void rb_models_uniform(uint64_t seed, uint64_t tensor, double scale, float *ret, size_t n)
{
    philox4x32_ctr_t block = {{0}};

    for (size_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            block = words(seed, tensor, i / 4);
        ret[i] = (float)(scale * (((double)block.v[i % 4] + 0.5) * 0x1p-31 - 1));
    }
}

void rb_models_normal(uint64_t seed, uint64_t tensor, double scale, float *ret, size_t n)
{
    /* Eight numbers of 0..65535 have the mean 8 * 32767.5 and the variance 8 * (2^32 - 1) / 12. */
    const double factor = scale / sqrt(8 * (0x1p32 - 1) / 12);

    for (size_t i = 0; i < n; i++) {
        philox4x32_ctr_t block = words(seed, tensor, i);
        int sum = 0;

        for (int j = 0; j < 4; j++)
            sum += (int)(block.v[j] & 0xffff) + (int)(block.v[j] >> 16);
        ret[i] = (float)(factor * ((double)sum - 8 * 32767.5));
    }
}
