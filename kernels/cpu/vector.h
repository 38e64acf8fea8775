/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that use whatever vectors the machine has and give the same bits on all of them.
 *
 * RB_CLONES compiles a function for several instruction sets and picks one when the program is
 * loaded.  Every float operation is IEEE's and none is contracted, so the clones of an elementwise
 * loop agree.  A sum is written with a fixed number of lanes that are joined in a fixed order; then
 * it does not matter how many of them fit a register. */
#ifndef RB_KERNELS_CPU_VECTOR_H
#define RB_KERNELS_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define RB_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RB_SANITIZED 1
#endif

/* Sanitizers run before the loader has picked a clone; other compilers lack the attribute. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(RB_SANITIZED)
#define RB_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define RB_CLONES
#endif

#define RB_INLINE inline __attribute__((always_inline))

/* Sixteen lanes; the compiler maps them to one, two or four registers. */
typedef float rb_v16 __attribute__((vector_size(64)));
typedef int32_t rb_v16i __attribute__((vector_size(64)));

static RB_INLINE rb_v16 rb_v16_load(const float *x)
{
    rb_v16 v;

    memcpy(&v, x, sizeof(v));
    return v;
}

static RB_INLINE rb_v16 rb_v16_select(rb_v16i mask, rb_v16 a, rb_v16 b)
{
    return (rb_v16)((mask & (rb_v16i)a) | (~mask & (rb_v16i)b));
}

/* Lane 0 + 8, 1 + 9, ...; then 0 + 4, ...: always the same tree. */
static RB_INLINE float rb_v16_sum(rb_v16 v)
{
    float lane[16];

    memcpy(lane, &v, sizeof(lane));
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

/* The last, incomplete vector, filled up with `fill`. */
static RB_INLINE rb_v16 rb_v16_tail(const float *x, int64_t n, float fill)
{
    float lane[16];

    for (int i = 0; i < 16; i++)
        lane[i] = fill;
    memcpy(lane, x, (size_t)n * sizeof(float));
    return rb_v16_load(lane);
}

/* One sum over two interleaved vectors of lanes: `TERM(load)` says what is added, where
 * `load(pointer)` reads sixteen elements or the zero-filled rest. */
#define RB_LANE_SUM(n, TERM)                                                                       \
    ({                                                                                             \
        rb_v16 even_ = {0}, odd_ = {0};                                                            \
        int64_t at_ = 0;                                                                           \
        for (; at_ + 32 <= (n); at_ += 32) {                                                       \
            even_ += TERM(RB_LANE_WHOLE, at_, 16);                                                 \
            odd_ += TERM(RB_LANE_WHOLE, at_ + 16, 16);                                             \
        }                                                                                          \
        if (at_ + 16 <= (n)) {                                                                     \
            even_ += TERM(RB_LANE_WHOLE, at_, 16);                                                 \
            at_ += 16;                                                                             \
        }                                                                                          \
        if (at_ < (n))                                                                             \
            odd_ += TERM(RB_LANE_REST, at_, (n)-at_);                                              \
        rb_v16_sum(even_ + odd_);                                                                  \
    })
#define RB_LANE_WHOLE(x, at, count) rb_v16_load((x) + (at))
#define RB_LANE_REST(x, at, count)  rb_v16_tail((x) + (at), (count), 0.0f)

static RB_INLINE float rb_sum(const float *x, int64_t n)
{
#define TERM(LOAD, at, count) LOAD(x, at, count)
    return RB_LANE_SUM(n, TERM);
#undef TERM
}

static RB_INLINE float rb_dot(const float *x, const float *y, int64_t n)
{
#define TERM(LOAD, at, count) (LOAD(x, at, count) * LOAD(y, at, count))
    return RB_LANE_SUM(n, TERM);
#undef TERM
}

/* The largest; a NaN wins. */
static RB_INLINE float rb_max(const float *x, int64_t n)
{
    const float low = -INFINITY;
    rb_v16 best = {low, low, low, low, low, low, low, low, low, low, low, low, low, low, low, low};
    float lane[16], most = low;
    int64_t at = 0;

    for (; at < n; at += 16) {
        rb_v16 v = at + 16 <= n ? rb_v16_load(x + at) : rb_v16_tail(x + at, n - at, low);

        best = rb_v16_select((v > best) | (v != v), v, best);
    }
    memcpy(lane, &best, sizeof(lane));
    for (int i = 0; i < 16; i++)
        if (lane[i] > most || lane[i] != lane[i])
            most = lane[i];
    return most;
}

#endif
