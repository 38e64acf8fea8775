/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of bfloat16 as words: how they enter products on processors that have an instruction for
 * them (rb_cpu_dots).
 *
 * outer, wide_tile, wide_panel, attention_blocked > [pairs]
 *
 * A word is a float32, or two bfloat16 of neighbouring k as they lie in memory, so a loop over
 * words along k multiplies either.  The second number of a pair is multiplied and added first.
 * Subnormals are zeros, both those that come in and those that come out of either half. */
#ifndef RB_KERNELS_CPU_PAIRS_H
#define RB_KERNELS_CPU_PAIRS_H

#include "kernels/cpu/vector.h"

#include <stdbool.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* For functions whose caller has asked rb_cpu_dots, where there are pairs.  Compilers use no pairs
 * of their own accord. */
#if defined(__x86_64__)
#define RB_DOTS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,avx512bf16")))
#endif

typedef float rb_word __attribute__((may_alias));

/* How many words k numbers make.  Where the k are not in one row, a last pair may have a zero; a
 * row is filled by pairs where k is even. */
static inline int64_t rb_words(int64_t k, bool pairs)
{
    return pairs ? (k + 1) / 2 : k;
}

/* n float32, rounded, as the words of a row; `to` may be `from`. */
void rb_pairs_of_row(const float *from, int64_t n, rb_word *to);
/* n columns of two rows of float32, a word each; second NULL: it is zeros. */
void rb_pairs_of_rows(const float *first, const float *second, int64_t n, rb_word *to);

/* Words of two rows each, which have n numbers; `wide` words side by side, zeros behind the n-th.
 * Rows are `step` numbers apart. */
void rb_pairs_pack(const uint16_t *from, int64_t step, int64_t depth, int64_t n, int64_t wide,
                   rb_word *to);

#if defined(__x86_64__)
RB_DOTS static RB_INLINE __m512 rb_add_product(__m512 c, __m512 a, __m512 b, bool pairs)
{
    return pairs ? _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b) : _mm512_fmadd_ps(a, b, c);
}

/* A word times b.  A word that is used once need not be loaded into a register first.  Compilers
 * see to that for multiply-adds but not for pairs, which then take a third longer. */
RB_DOTS static RB_INLINE __m512 rb_add_word(__m512 c, const rb_word *a, __m512 b, bool pairs)
{
    if (!pairs)
        return rb_add_product(c, _mm512_set1_ps(*a), b, false);
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
}
#endif

#endif
