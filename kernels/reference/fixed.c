/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>
#include <string.h>

void rb_reference_fixed_add(int32_t *sum, const float *g, size_t n, float weight, int exponent,
                            int32_t limit, uint32_t *largest, bool *overflow)
{
    for (size_t i = 0; i < n; i++) {
        float x = g[i] * weight, size = fabsf(x);
        double scaled = ldexp((double)x, exponent), rounded = nearbyint(scaled);
        uint32_t bits;

        memcpy(&bits, &size, sizeof(bits));
        if (bits > *largest)
            *largest = bits;
        if (scaled != scaled)
            continue;
        if (fabs(rounded) > (double)limit) {
            *overflow = true;
            rounded = copysign((double)limit, rounded);
        }
        sum[i] += (int32_t)rounded;
    }
}
