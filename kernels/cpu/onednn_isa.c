/* SPDX-License-Identifier: Apache-2.0 */
/* What oneDNN is, and what it makes of this processor. */
#include "kernels/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

const char *rb_dnnl_isa(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
        return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "other";
    }
}

/* AVX-512's dot product of pairs does twice the work of a multiply-add on AMD's processors and on
 * Intel's Cooper Lake.  Intel's later ones leave that to AMX, and where that is hidden from us they
 * do half the work: 86 GFLOP/s a core, and 160 in float32. */
static bool fast_dots(void)
{
#if defined(__x86_64__)
    enum { COOPER_LAKE = 0x55 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    bool intel;

    if (!__get_cpuid(0, &a, &b, &c, &d))
        return false;
    intel = b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx;
    if (!intel || !__get_cpuid(1, &a, &b, &c, &d))
        return !intel;
    return ((a >> 4 & 15) | (a >> 12 & 0xf0)) == COOPER_LAKE;
#else
    return false;
#endif
}

enum rb_dnnl_bfloat rb_dnnl_bfloat(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_avx512_core_bf16:
        return fast_dots() ? RB_DNNL_BFLOAT_FAST : RB_DNNL_BFLOAT_SLOW;
    case dnnl_cpu_isa_avx512_core_amx:
        return RB_DNNL_BFLOAT_FAST;
    default:
        return RB_DNNL_BFLOAT_NOT;
    }
}

void rb_dnnl_version(int ret_version[3])
{
    const dnnl_version_t *version = dnnl_version();

    ret_version[0] = version->major;
    ret_version[1] = version->minor;
    ret_version[2] = version->patch;
}
