/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/bfloat.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/vector.h"

#include <stdlib.h>

/* Half of the last place that stays is added, less one bit where that place is even; a carry goes
 * up into the exponent, which is right.  Only a NaN could be carried out of itself. */
RB_CLONES static void narrow_each(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits, rounded;

        memcpy(&bits, &from[i], sizeof(bits));
        rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        to[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
    }
}

#if defined(__x86_64__)

enum { SIXTEEN = 16 };

static bool has_instruction(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

/* In a quarter of the time, to the same bits: the instruction makes zeros of subnormals, so the few
 * vectors that have any go the long way. */
RB_DOTS static void narrow_sixteens(uint16_t *to, const float *from, int64_t n)
{
    enum { SUBNORMAL = 0x20 };

    for (int64_t i = 0; i < n; i += SIXTEEN) {
        const __m512 x = _mm512_loadu_ps(from + i);

        if (_mm512_fpclass_ps_mask(x, SUBNORMAL))
            narrow_each(to + i, from + i, SIXTEEN);
        else
            _mm256_storeu_si256((__m256i *)(to + i), (__m256i)_mm512_cvtneps_pbh(x));
    }
}

#else

enum { SIXTEEN = 1 };

static bool has_instruction(void)
{
    return false;
}

static void narrow_sixteens(uint16_t *to, const float *from, int64_t n)
{
    narrow_each(to, from, n);
}

#endif

void rb_cpu_narrow(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    int64_t vectors = has_instruction() ? n / SIXTEEN * SIXTEEN : 0;

    narrow_sixteens(to, from, vectors);
    narrow_each(to + vectors, from + vectors, n - vectors);
}

RB_CLONES void rb_cpu_widen(float *restrict to, const uint16_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = rb_cpu_wide(from[i]);
}

/* AMX is another such product, and faster. */
bool rb_cpu_dots(const struct rb_cpu *cpu)
{
    return cpu->bfloat == RB_DNNL_BFLOAT_FAST && strcmp(rb_dnnl_isa(), "avx512_core_bf16") == 0;
}

bool rb_cpu_rows_of_words(const struct rb_cpu *cpu, enum rb_dtype factors, int64_t k)
{
    return factors != RB_BF16 || (rb_cpu_dots(cpu) && k % 2 == 0);
}

/* ---- Any kernel, on copies ---- */

enum { MOST = 8, LINE = 64 };

/* A tensor's copy in the device's room; none where the tensor itself will do. */
struct copy {
    bool used;
    size_t offset;
    int64_t count;
};

struct widened {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    struct rb_kernel *inner;
    int n_in, n_out;
    struct copy in[MOST], out[MOST];
};

static float *place(const struct widened *w, const struct copy *copy)
{
    return (float *)((char *)w->cpu->copies.memory + copy->offset);
}

/* The inputs, each as the kernel inside takes it. */
static void widen_inputs(const struct widened *w, const void *const *in, const void **ret_from)
{
    for (int i = 0; i < w->n_in; i++) {
        ret_from[i] = w->in[i].used ? place(w, &w->in[i]) : in[i];
        if (w->in[i].used)
            rb_cpu_widen(place(w, &w->in[i]), in[i], w->in[i].count);
    }
}

static void widened_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct widened *w = (const struct widened *)kernel;
    const void *from[MOST] = {NULL};
    void *to[MOST] = {NULL};

    widen_inputs(w, in, from);
    for (int i = 0; i < w->n_out; i++)
        to[i] = w->out[i].used ? place(w, &w->out[i]) : out[i];
    w->inner->run(w->inner, from, to, key);
    for (int i = 0; i < w->n_out; i++)
        if (w->out[i].used)
            rb_cpu_narrow(out[i], place(w, &w->out[i]), w->out[i].count);
}

static void widened_sum(struct rb_kernel *kernel, const void *const *in,
                        const struct rb_fixed *into)
{
    const struct widened *w = (const struct widened *)kernel;
    const void *from[MOST] = {NULL};

    widen_inputs(w, in, from);
    w->inner->sum(w->inner, from, into);
}

static void widened_free(struct rb_kernel *kernel)
{
    struct widened *w = (struct widened *)kernel;

    if (w->inner)
        w->inner->free(w->inner);
    free(w);
}

/* The types with float32 for bfloat16, and where copies of those go, from `offset` on. */
static size_t widen_types(const struct rb_tensor_type *types, int n,
                          struct rb_tensor_type *ret_types, struct copy *ret_copies, size_t offset)
{
    for (int i = 0; i < n; i++) {
        ret_types[i] = types[i];
        if (types[i].dtype != RB_BF16)
            continue;
        ret_types[i].dtype = RB_F32;
        ret_copies[i] = (struct copy){true, offset, rb_tensor_elements(&types[i])};
        offset += ((size_t)ret_copies[i].count * sizeof(float) + LINE - 1) / LINE * LINE;
    }
    return offset;
}

int rb_cpu_widened(struct rb_cpu *cpu, const struct rb_call *call, rb_cpu_prepare *prepare,
                   struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct rb_tensor_type in[MOST], out[MOST];
    struct rb_call wide = *call;
    struct widened *w;
    size_t bytes;
    int err;

    if (call->n_in > MOST || call->n_out > MOST)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "too many tensors for bfloat16");
    w = rb_cpu_kernel(sizeof(*w), widened_run);
    w->base.free = widened_free;
    w->cpu = cpu;
    w->n_in = call->n_in;
    w->n_out = call->n_out;
    wide.in = in;
    wide.out = out;
    wide.spare_bytes = 0; /* it is not where the copies are */
    bytes = widen_types(call->in, call->n_in, in, w->in, 0);
    bytes = widen_types(call->out, call->n_out, out, w->out, bytes);
    if (rb_cpu_need(&cpu->copies, bytes))
        err = rb_call_refuse(call, RB_ENOMEM, why, "no memory for float32 copies");
    else
        err = prepare(cpu, &wide, &w->inner, why);
    if (err) {
        widened_free(&w->base);
        return err;
    }
    if (w->inner->sum && !w->out[0].used)
        w->base.sum = widened_sum;
    *ret_kernel = &w->base;
    return 0;
}
