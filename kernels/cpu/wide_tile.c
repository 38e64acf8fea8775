/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/wide_tile.h"

#if defined(__x86_64__)

enum { ROWS = RB_WIDE_ROWS, LANES = RB_WIDE_LANES, VECTORS = RB_WIDE_VECTORS };

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* Where rows lie side by side they have one address, otherwise steps and lines have one length:
 * what is known when this is compiled takes no registers. */
RB_DOTS static RB_INLINE void multiply(const struct rb_wide_strip *strip, const rb_word *panel,
                                       const struct rb_wide_place *place, int vectors, bool pairs,
                                       bool lies)
{
    const int64_t row = lies ? 1 : strip->row, step = lies ? strip->step : 1;
    const int64_t pace = lies ? strip->pace : LANES * (int64_t)sizeof *panel;
    const rb_word *const end = panel + strip->words * vectors * LANES;
    const char *ahead = strip->ahead;
    __m512 c[ROWS][VECTORS];

#define BEGIN(r)                                                                                   \
    const rb_word *const w##r = strip->first + r * row;                                            \
    c[r][0] = c[r][1] = c[r][2] = _mm512_setzero_ps();
#define CONTINUE(r)                                                                                \
    {                                                                                              \
        const float *const from = place->to + r * place->step;                                     \
        c[r][0] = _mm512_loadu_ps(from);                                                           \
        if (vectors > 1)                                                                           \
            c[r][1] = _mm512_loadu_ps(from + LANES);                                               \
        if (vectors > 2)                                                                           \
            c[r][2] = _mm512_loadu_ps(from + 2 * LANES);                                           \
    }
#define STEP(r)                                                                                    \
    if (vectors == 1) {                                                                            \
        c[r][0] = rb_add_word(c[r][0], &w##r[at], x0, pairs);                                      \
    } else {                                                                                       \
        const __m512 w_ = _mm512_set1_ps(w##r[at]);                                                \
        c[r][0] = rb_add_product(c[r][0], w_, x0, pairs);                                          \
        c[r][1] = rb_add_product(c[r][1], w_, x1, pairs);                                          \
        if (vectors > 2)                                                                           \
            c[r][2] = rb_add_product(c[r][2], w_, x2, pairs);                                      \
    }
#define ADD_BIAS(r)                                                                                \
    c[r][0] = _mm512_add_ps(c[r][0], b0);                                                          \
    c[r][1] = _mm512_add_ps(c[r][1], b1);                                                          \
    c[r][2] = _mm512_add_ps(c[r][2], b2);
#define STORE(r)                                                                                   \
    {                                                                                              \
        float *const to = place->to + r * place->step;                                             \
        _mm512_storeu_ps(to, c[r][0]);                                                             \
        if (vectors > 1)                                                                           \
            _mm512_storeu_ps(to + LANES, c[r][1]);                                                 \
        if (vectors > 2)                                                                           \
            _mm512_storeu_ps(to + 2 * LANES, c[r][2]);                                             \
    }
    EACH_ROW(BEGIN)
    if (place->onto) {
        EACH_ROW(CONTINUE)
    }
    for (int64_t at = 0; panel < end; at += step, ahead += pace, panel += vectors * LANES) {
        const __m512 x0 = _mm512_loadu_ps(panel);
        const __m512 x1 = vectors > 1 ? _mm512_loadu_ps(panel + LANES) : x0;
        const __m512 x2 = vectors > 2 ? _mm512_loadu_ps(panel + 2 * LANES) : x0;

        __builtin_prefetch(ahead);
        EACH_ROW(STEP)
    }
    if (place->bias) {
        const __m512 b0 = _mm512_loadu_ps(place->bias);
        const __m512 b1 = vectors > 1 ? _mm512_loadu_ps(place->bias + LANES) : b0;
        const __m512 b2 = vectors > 2 ? _mm512_loadu_ps(place->bias + 2 * LANES) : b0;

        EACH_ROW(ADD_BIAS)
    }
    EACH_ROW(STORE)
#undef BEGIN
#undef CONTINUE
#undef STEP
#undef ADD_BIAS
#undef STORE
}

/* Functions of their own: compilers keep a tile in registers there. */
typedef void multiplier(const struct rb_wide_strip *strip, const rb_word *panel,
                        const struct rb_wide_place *place);

#define MULTIPLIER(name, vectors, pairs, lies)                                                     \
    RB_DOTS static void name(const struct rb_wide_strip *strip, const rb_word *panel,              \
                             const struct rb_wide_place *place)                                    \
    {                                                                                              \
        multiply(strip, panel, place, vectors, pairs, lies);                                       \
    }
#define MULTIPLIERS(name, pairs, lies)                                                             \
    MULTIPLIER(name##_one, 1, pairs, lies)                                                         \
    MULTIPLIER(name##_two, 2, pairs, lies)                                                         \
    MULTIPLIER(name##_three, 3, pairs, lies)                                                       \
    static multiplier *const name[] = {NULL, name##_one, name##_two, name##_three};
MULTIPLIERS(floats, false, false)
MULTIPLIERS(floats_lying, false, true)
MULTIPLIERS(pairs, true, false)
MULTIPLIERS(pairs_lying, true, true)
#undef MULTIPLIERS
#undef MULTIPLIER

void rb_wide_multiply(const struct rb_wide_strip *strip, const rb_word *panel, int vectors,
                      bool pairs_, const struct rb_wide_place *place)
{
    static multiplier *const *const multipliers[2][2] = {{floats, floats_lying},
                                                         {pairs, pairs_lying}};

    multipliers[pairs_][strip->lies][vectors](strip, panel, place);
}

#endif
