/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/add.h"

#include "base/prefetch.h"

#include <string.h>

/* Sixteen integers at once: the compiler cuts it to what the machine has. */
typedef uint32_t wide __attribute__((vector_size(64)));

/* How far ahead memory that is in no cache is fetched, in elements.  Those of `out` are fetched for
 * writing: lines that another core has read would otherwise be asked for twice. */
enum { AHEAD = 1056 };

void rb_add(int32_t *out, const int32_t *a, const uint8_t *b, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        wide x, y;

        __builtin_prefetch(a + i + AHEAD);
        __builtin_prefetch(b + 4 * (i + AHEAD));
        rb_prefetch_write(out + i + AHEAD);

        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + 4 * i, sizeof y);
        x += y;
        memcpy(out + i, &x, sizeof x);
    }
    for (; i < n; i++) {
        uint32_t y;

        memcpy(&y, b + 4 * i, sizeof y);
        out[i] = (int32_t)((uint32_t)a[i] + y);
    }
}
