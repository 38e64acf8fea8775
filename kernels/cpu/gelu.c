/* SPDX-License-Identifier: Apache-2.0 */
/* At -x both curves are 0 from LAST_PIECE on, and at x they are 1 minus what they are at -x.  So
 * only |x| is looked up: the nearest multiple of STEP, and around it a polynomial whose
 * coefficients a permutation brings from registers. */
#include "kernels/cpu/gelu.h"

#include "kernels/cpu/math.h"
#include "kernels/cpu/onednn.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__)

/* Powers of the distance, the highest first, and pieces of |x|. */
enum { POWERS = 7, PIECES = 16, LAST_PIECE = PIECES - 1 };
#define STEP 0.40625f

/* Phi(-t), Phi being the normal distribution; and Phi(-t) - t Phi'(-t), the slope of x Phi(x) at
 * -t.  Interpolated at the zeros of Chebyshev polynomials, each piece for itself. */
static const float below[POWERS][PIECES] = {
    {0.000832132064f, 0.00274913083f, 0.00284050824f, 0.000759239483f, -0.00105234899f,
     -0.00131339498f, -0.000632154522f, -1.65750898e-05f, 0.000189904749f, 0.000151870176f,
     7.21092947e-05f, 2.46665386e-05f, 6.47987645e-06f, 1.3476963e-06f, 2.25811533e-07f, 0.0f},
    {-0.0102043496f, -0.00619383901f, 0.00122051593f, 0.00580278132f, 0.00518532377f,
     0.00200950238f, -0.000432313915f, -0.00114848674f, -0.000864541216f, -0.000424110185f,
     -0.00015456976f, -4.39649411e-05f, -1.00040525e-05f, -1.8477823e-06f, -2.79656064e-07f, 0.0f},
    {3.18362181e-05f, -0.0176274534f, -0.0227169823f, -0.014601157f, -0.00259264302f,
     0.00483095646f, 0.00610998459f, 0.004216976f, 0.0020779639f, 0.000788095989f, 0.000237772983f,
     5.80968845e-05f, 1.16226447e-05f, 1.9176814e-06f, 2.6229381e-07f, 0.0f},
    {0.0664881244f, 0.0511187091f, 0.016244486f, -0.0153546706f, -0.0291310027f, -0.0264121406f,
     -0.0168445669f, -0.00826373044f, -0.00323381694f, -0.00102845649f, -0.000268760719f,
     -5.8120866e-05f, -1.04518622e-05f, -1.56842702e-06f, -1.96910932e-07f, 0.0f},
    {7.63283765e-08f, 0.0746166334f, 0.116507083f, 0.115679048f, 0.0865623429f, 0.0514871702f,
     0.024926696f, 0.00994764734f, 0.00329720299f, 0.000912128424f, 0.000211298204f, 4.1086143e-05f,
     6.71762018e-06f, 9.24770234e-07f, 1.07299996e-07f, 0.0f},
    {-0.398942292f, -0.367343426f, -0.286786675f, -0.189832285f, -0.106538273f, -0.050695058f,
     -0.0204526708f, -0.00699614687f, -0.00202904805f, -0.000498942274f, -0.000104023893f,
     -1.8388273e-05f, -2.75596813e-06f, -3.50213838e-07f, -3.77327929e-08f, 0.0f},
    {0.5f, 0.342279464f, 0.2082524f, 0.111469544f, 0.0520812795f, 0.0211148206f, 0.00739460718f,
     0.00222930079f, 0.000577025057f, 0.00012796589f, 2.42749738e-05f, 3.9339011e-06f,
     5.4404228e-07f, 6.41527365e-08f, 6.44563025e-09f, 0.0f},
};

static const float slope[POWERS][PIECES] = {
    {0.00663324492f, 0.0208396614f, 0.0171462279f, -0.00169713353f, -0.0115803732f, -0.00716201309f,
     0.00020477947f, 0.00273136981f, 0.00166099367f, 0.000324949942f, -0.000161147982f,
     -0.000155588568f, -6.77577773e-05f, -1.99558781e-05f, -4.38391635e-06f, 0.0f},
    {-0.061677821f, -0.0303976573f, 0.021072112f, 0.0402576886f, 0.0208418686f, -0.00389891956f,
     -0.0118052652f, -0.00717319502f, -0.00149429054f, 0.000781210838f, 0.000829309167f,
     0.000398140983f, 0.000129964581f, 3.1792908e-05f, 6.07361108e-06f, 0.0f},
    {0.000253072096f, -0.100801311f, -0.108485684f, -0.0372832529f, 0.0293851569f, 0.0444590449f,
     0.0250422098f, 0.00460791355f, -0.00367608038f, -0.00377469743f, -0.00191648037f,
     -0.000674926676f, -0.000179902476f, -3.76894022e-05f, -6.33382069e-06f, 0.0f},
    {0.265943587f, 0.175827563f, -0.00884818565f, -0.132594749f, -0.133375794f, -0.0663991496f,
     -0.00780731766f, 0.0149131585f, 0.0140786842f, 0.00741231628f, 0.00278880657f, 0.000805975287f,
     0.000184815464f, 3.42301137e-05f, 5.1776542e-06f, 0.0f},
    {6.06148944e-07f, 0.286151856f, 0.389115453f, 0.290892154f, 0.1176707f, -0.00648617465f,
     -0.0483928472f, -0.0406551845f, -0.0216378961f, -0.00854496844f, -0.00264205202f,
     -0.000656134041f, -0.000132777801f, -2.20941984e-05f, -3.04169453e-06f, 0.0f},
    {-0.797884583f, -0.674060822f, -0.384249359f, -0.0976969376f, 0.0682510734f, 0.10777653f,
     0.0806123093f, 0.042584952f, 0.0173737202f, 0.00567205297f, 0.00150874979f, 0.000330431038f,
     5.99850064e-05f, 9.06751302e-06f, 1.14508646e-06f, 0.0f},
    {0.5f, 0.193046182f, -0.0247617736f, -0.119888552f, -0.121043406f, -0.0818595216f,
     -0.0424587838f, -0.0176659953f, -0.00601738133f, -0.00169629103f, -0.000398321368f,
     -7.82383358e-05f, -1.28911779e-05f, -1.78538187e-06f, -2.08153111e-07f, 0.0f},
};

struct curve {
    __m512 power[POWERS];
};

RB_WIDE static RB_INLINE struct curve load(const float power[POWERS][PIECES])
{
    struct curve curve;

    for (int i = 0; i < POWERS; i++)
        curve.power[i] = _mm512_loadu_ps(power[i]);
    return curve;
}

/* The curve at x.  A minimum with a NaN is its second operand, so a NaN stays one. */
RB_WIDE static RB_INLINE __m512 at(const struct curve *curve, __m512 x)
{
    const __m512 round = _mm512_set1_ps(RB_EXP_ROUND);
    const __m512 t = _mm512_min_ps(_mm512_set1_ps(LAST_PIECE * STEP), _mm512_abs_ps(x));
    const __m512 nearest = _mm512_fmadd_ps(t, _mm512_set1_ps(1 / STEP), round);
    const __m512 u = _mm512_fnmadd_ps(_mm512_sub_ps(nearest, round), _mm512_set1_ps(STEP), t);
    const __m512i piece = _mm512_castps_si512(nearest);
    __m512 y = _mm512_permutexvar_ps(piece, curve->power[0]);

    for (int i = 1; i < POWERS; i++)
        y = _mm512_fmadd_ps(y, u, _mm512_permutexvar_ps(piece, curve->power[i]));
    return _mm512_mask_sub_ps(y, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ),
                              _mm512_set1_ps(1.0f), y);
}

/* Operand k from element i on: `lanes` of them, or the one that there is. */
RB_WIDE static RB_INLINE __m512 read(const void *from, int64_t step, int64_t i, __mmask16 lanes)
{
    const float *x = from;

    return step ? _mm512_maskz_loadu_ps(lanes, x + i) : _mm512_set1_ps(*x);
}

/* out[i] = what is multiplied (x itself, or the gradient) times the curve at x. */
RB_WIDE static RB_INLINE void multiply(const void *const in[2], const int64_t step[2],
                                       const float power[POWERS][PIECES], float *out, int64_t n)
{
    const struct curve curve = load(power);
    int64_t i = 0;

#define PIECE(lanes)                                                                               \
    _mm512_mul_ps(read(in[0], step[0], i, lanes), at(&curve, read(in[1], step[1], i, lanes)))
    for (; i + PIECES <= n; i += PIECES)
        _mm512_storeu_ps(out + i, PIECE((__mmask16)0xffff));
    if (i < n) {
        const __mmask16 lanes = (__mmask16)((1u << (n - i)) - 1);

        _mm512_mask_storeu_ps(out + i, lanes, PIECE(lanes));
    }
#undef PIECE
}

RB_WIDE static void gelu(const void *const *in, const int64_t *step, void *out, int64_t n)
{
    multiply((const void *const[]){in[0], in[0]}, (const int64_t[]){step[0], step[0]}, below, out,
             n);
}

RB_WIDE static void gelu_grad(const void *const *in, const int64_t *step, void *out, int64_t n)
{
    multiply(in, step, slope, out, n);
}

static bool is_wide(void)
{
    return strncmp(rb_dnnl_isa(), "avx512", 6) == 0;
}

rb_point_row *rb_gelu_row(void)
{
    return is_wide() ? gelu : NULL;
}

rb_point_row *rb_gelu_grad_row(void)
{
    return is_wide() ? gelu_grad : NULL;
}

#else

rb_point_row *rb_gelu_row(void)
{
    return NULL;
}

rb_point_row *rb_gelu_grad_row(void)
{
    return NULL;
}

#endif
