/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer steps on reduced sums, with PyTorch's formulas.  A sum becomes a gradient with one
 * rounding: the product is made in double.  Where the factor is a power of two, as it is unless the
 * gradient is clipped or a batch counts otherwise, rounding the sum to a float is the same one
 * rounding, for a fifth of the instructions.
 *
 * A step goes through memory that is in no cache.  Piece by piece, while the next one is on its
 * way, the sums are added up where they have several parts, squared, and applied. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/squares.h"
#include "kernels/cpu/vector.h"

/* In elements.  A larger piece fetches more lines at once than processors keep on their way (Zen 1:
 * 1.2 times as long with 128). */
enum { PIECE = 2 * RB_LANES, AHEAD = 16 * PIECE, LINE = 16 };

/* What sums are multiplied with; `power`: the same where it is a power of two, else 0. */
struct factor {
    double exact;
    float power;
};

static struct factor factor_of(double scale, int exponent)
{
    enum { LEAST = -125 }; /* 1 times it is no subnormal float, */
    enum { MOST = 90 };    /* and 2^31 times it is finite */
    struct factor factor = {ldexp(scale, -exponent), 0};
    int power;

    if (frexp(factor.exact, &power) == 0.5 && power >= LEAST && power <= MOST)
        factor.power = (float)factor.exact;
    return factor;
}

static RB_INLINE float gradient(int32_t sum, struct factor factor, bool exact)
{
    return exact ? (float)((double)sum * factor.exact) : (float)sum * factor.power;
}

static RB_INLINE void adamw(float *restrict w, float *restrict m, float *restrict v,
                            const int32_t *restrict sum, size_t n, struct factor factor, bool exact,
                            const struct rb_adamw *how)
{
    const float decay = 1.0f - how->lr * how->weight_decay;
    const float b1 = how->beta1, b2 = how->beta2, a1 = 1.0f - b1, a2 = 1.0f - b2, eps = how->eps;
    const float step = how->lr / how->correction1, root = 1.0f / sqrtf(how->correction2);

    for (size_t i = 0; i < n; i++) {
        float g = gradient(sum[i], factor, exact);
        float m1 = b1 * m[i] + a1 * g, v1 = b2 * v[i] + a2 * g * g;

        m[i] = m1;
        v[i] = v1;
        w[i] = w[i] * decay - step * m1 / (sqrtf(v1) * root + eps);
    }
}

/* Fetches the piece AHEAD elements behind this one; beyond the end that does nothing. */
static RB_INLINE void fetch(const void *at)
{
    for (int i = 0; i < PIECE; i += LINE)
        __builtin_prefetch((const float *)at + AHEAD + i);
}

/* Begins the piece of n elements at element i, and returns where its sums are: in `room` if they
 * have to be made.  m, v and squares may be NULL. */
static RB_INLINE const int32_t *begin_piece(const float *w, const float *m, const float *v,
                                            const struct rb_sums *sums, size_t i, size_t n,
                                            int32_t *room, struct rb_square_sums *squares)
{
    const int32_t *sum = sums->parts[0] + i;

    for (int part = 0; part < sums->n_parts; part++)
        fetch(sums->parts[part] + i);
    fetch(w + i);
    if (m)
        fetch(m + i);
    if (v)
        fetch(v + i);
    for (int part = 1; part < sums->n_parts; part++) {
        const int32_t *other = sums->parts[part] + i;

        for (size_t k = 0; k < n; k++)
            room[k] = (int32_t)((uint32_t)sum[k] + (uint32_t)other[k]);
        sum = room;
    }
    if (squares)
        rb_square_sums_add(squares, sum, n);
    return sum;
}

static RB_INLINE size_t piece_at(size_t i, size_t n)
{
    return n - i < PIECE ? n - i : PIECE;
}

RB_CLONES static void adamw_each(float *w, float *m, float *v, const struct rb_sums *sums, size_t n,
                                 struct factor factor, const struct rb_adamw *how,
                                 struct rb_square_sums *squares)
{
    int32_t room[PIECE];

    for (size_t i = 0; i < n; i += PIECE) {
        const size_t piece = piece_at(i, n);
        const int32_t *sum = begin_piece(w, m, v, sums, i, piece, room, squares);

        if (factor.power != 0)
            adamw(w + i, m + i, v + i, sum, piece, factor, false, how);
        else
            adamw(w + i, m + i, v + i, sum, piece, factor, true, how);
    }
}

void rb_cpu_apply_adamw(struct rb_device *device, float *w, float *m, float *v, struct rb_sums sums,
                        size_t n, int exponent, float scale, const struct rb_adamw *how,
                        double *ret_squares)
{
    struct rb_square_sums squares = {0};

    (void)device;
    adamw_each(w, m, v, &sums, n, factor_of((double)scale, exponent), how,
               ret_squares ? &squares : NULL);
    if (ret_squares)
        *ret_squares = rb_square_sums_join(&squares, exponent, 1);
}

static RB_INLINE void sgd_plain(float *restrict w, const int32_t *restrict sum, size_t n,
                                struct factor factor, bool exact, const struct rb_sgd *how)
{
    const float lr = how->lr, decay = how->weight_decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient(sum[i], factor, exact) + decay * w[i];

        w[i] -= lr * g;
    }
}

/* Steps along the buffer; Nesterov's along the gradient and the buffer once more. */
static RB_INLINE void sgd_momentum(float *restrict w, float *restrict m,
                                   const int32_t *restrict sum, size_t n, struct factor factor,
                                   bool exact, const struct rb_sgd *how)
{
    const float lr = how->lr, decay = how->weight_decay, momentum = how->momentum;
    const float nesterov = how->nesterov ? 1.0f : 0.0f;

    for (size_t i = 0; i < n; i++) {
        float g = gradient(sum[i], factor, exact) + decay * w[i];
        float buffer = how->first ? g : momentum * m[i] + g;

        m[i] = buffer;
        w[i] -= lr * (nesterov != 0.0f ? g + momentum * buffer : buffer);
    }
}

static RB_INLINE void sgd(float *w, float *m, const int32_t *sum, size_t n, struct factor factor,
                          bool exact, const struct rb_sgd *how)
{
    if (m)
        sgd_momentum(w, m, sum, n, factor, exact, how);
    else
        sgd_plain(w, sum, n, factor, exact, how);
}

RB_CLONES static void sgd_each(float *w, float *m, const struct rb_sums *sums, size_t n,
                               struct factor factor, const struct rb_sgd *how,
                               struct rb_square_sums *squares)
{
    int32_t room[PIECE];

    for (size_t i = 0; i < n; i += PIECE) {
        const size_t piece = piece_at(i, n);
        const int32_t *sum = begin_piece(w, m, NULL, sums, i, piece, room, squares);

        if (factor.power != 0)
            sgd(w + i, m ? m + i : NULL, sum, piece, factor, false, how);
        else
            sgd(w + i, m ? m + i : NULL, sum, piece, factor, true, how);
    }
}

void rb_cpu_apply_sgd(struct rb_device *device, float *w, float *m, struct rb_sums sums, size_t n,
                      int exponent, float scale, const struct rb_sgd *how, double *ret_squares)
{
    struct rb_square_sums squares = {0};

    (void)device;
    sgd_each(w, how->momentum != 0.0f ? m : NULL, &sums, n, factor_of((double)scale, exponent), how,
             ret_squares ? &squares : NULL);
    if (ret_squares)
        *ret_squares = rb_square_sums_join(&squares, exponent, 1);
}

RB_CLONES static void predict_sgd(float *restrict out, const float *restrict w,
                                  const float *restrict m, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        out[i] = w[i] - factor * m[i];
}

RB_CLONES static void predict_adamw(float *restrict out, const float *restrict w,
                                    const float *restrict m, const float *restrict v, size_t n,
                                    const struct rb_predict *how)
{
    const float keep = how->keep, factor = how->factor, root = how->root, eps = how->eps;

    for (size_t i = 0; i < n; i++)
        out[i] = w[i] * keep - factor * m[i] / (sqrtf(v[i]) * root + eps);
}

void rb_cpu_predict(struct rb_device *device, float *out, const float *w, const float *m,
                    const float *v, size_t n, const struct rb_predict *how)
{
    (void)device;
    if (!m)
        memcpy(out, w, n * sizeof *out);
    else if (v)
        predict_adamw(out, w, m, v, n, how);
    else
        predict_sgd(out, w, m, n, how->factor);
}

/* A channel has two or three statistics, so nothing is gained by pieces. */
RB_CLONES static void statistic(float *restrict w, const struct rb_sums *sums, size_t n,
                                double factor, float keep)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sum = 0;

        for (int part = 0; part < sums->n_parts; part++)
            sum += (uint32_t)sums->parts[part][i];
        w[i] = keep * w[i] + (float)((double)(int32_t)sum * factor);
    }
}

void rb_cpu_apply_statistic(struct rb_device *device, float *w, struct rb_sums sums, size_t n,
                            int exponent, float keep)
{
    (void)device;
    statistic(w, &sums, n, ldexp(1.0, -exponent), keep);
}
