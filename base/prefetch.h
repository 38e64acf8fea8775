/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches lines of memory that are about to be written.
 *
 * A compiler turns __builtin_prefetch(.., 1) into a plain prefetch if the function may not use the
 * instruction; then lines that another core has read are asked for twice. */
#ifndef RB_BASE_PREFETCH_H
#define RB_BASE_PREFETCH_H

static inline __attribute__((always_inline)) void rb_prefetch_write(const void *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line)); /* old processors do nothing */
#else
    __builtin_prefetch(line, 1);
#endif
}

#endif
