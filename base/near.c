/* SPDX-License-Identifier: Apache-2.0 */
#include "base/near.h"

#include <string.h>

/* Levenshtein's distance, one row. */
size_t rb_near_distance(const char *word, size_t n, const char *known)
{
    size_t m = strnlen(known, RB_NEAR_MOST), row[RB_NEAR_MOST + 1];

    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = diagonal + ((word[i - 1] | 0x20) != (known[j - 1] | 0x20));

            diagonal = row[j];
            row[j] = row[j] + 1 < change ? row[j] + 1 : change;
            if (row[j - 1] + 1 < row[j])
                row[j] = row[j - 1] + 1;
        }
    }
    return row[m];
}

bool rb_near_enough(size_t distance, size_t n)
{
    return distance <= 1 + n / 3;
}
