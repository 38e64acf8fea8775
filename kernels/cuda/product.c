/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt, prepared once.
 *
 * cuBLASLt counts columns first: a row-major c = a b is its c' = b' a', with the operands swapped.
 * The algorithm is what its heuristic names first for the shape, which depends on the shape, the
 * library and the GPU alone; reductions in place are excluded, since their order is not fixed. */
#include "kernels/cuda/gpu_inside.h"

#include "base/arena.h"

#include <stdlib.h>

struct rb_gpu_product {
    struct rb_gpu *gpu;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool bias, more;
};

static cublasStatus_t set_batch(cublasLtMatrixLayout_t layout, int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    cublasStatus_t err = cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);

    if (err == CUBLAS_STATUS_SUCCESS)
        err = cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride);
    return err;
}

/* `rows` x `columns` as it is stored, row-major. */
static cublasStatus_t layout(cublasLtMatrixLayout_t *ret, bool is_short, int64_t rows,
                             int64_t columns, int64_t row, int64_t batch, int64_t stride)
{
    cudaDataType_t type = is_short ? CUDA_R_16BF : CUDA_R_32F;
    cublasStatus_t err =
        cublasLtMatrixLayoutCreate(ret, type, (uint64_t)columns, (uint64_t)rows, row);

    return err == CUBLAS_STATUS_SUCCESS ? set_batch(*ret, batch, stride) : err;
}

/* cuBLASLt does not promise what its relu makes of a NaN: where that is 0, a NaN that comes out of
 * this product ends here. */
static cublasLtEpilogue_t epilogue_of(const struct rb_gpu_product_shape *s)
{
    if (s->relu)
        return s->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t describe(struct rb_gpu_product *p, const struct rb_gpu_product_shape *s)
{
    cublasOperation_t first = s->swap_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = s->swap_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(s);
    cublasStatus_t err = cublasLtMatmulDescCreate(&p->how, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    if (err == CUBLAS_STATUS_SUCCESS)
        err = cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                             sizeof first);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                             sizeof second);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                             sizeof epilogue);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = layout(&p->a, s->short_in, s->swap_a ? s->k : s->m, s->swap_a ? s->m : s->k, s->a_row,
                     s->batch, s->a_stride);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = layout(&p->b, s->short_in, s->swap_b ? s->n : s->k, s->swap_b ? s->k : s->n, s->b_row,
                     s->batch, s->b_stride);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = layout(&p->c, s->short_out, s->m, s->n, s->c_row, s->batch, s->c_stride);
    return err;
}

/* Where a matrix may start, in bytes. */
static uint32_t alignment_of(const struct rb_gpu_product_shape *s, bool is_short)
{
    return s->aligned ? 16 : is_short ? sizeof(uint16_t) : sizeof(float);
}

/* The heuristic takes from the bias's address how well the bias will be aligned; there is no bias
 * yet, so it is shown the worst alignment. */
static cublasStatus_t show_bias(struct rb_gpu_product *p, const struct rb_gpu_product_shape *s)
{
    const void *bias = (const void *)(uintptr_t)alignment_of(s, false);

    return s->bias ? cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                    &bias, sizeof bias)
                   : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference,
                             const struct rb_gpu_product_shape *s)
{
    static const cublasLtMatmulPreferenceAttributes_t starts[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t workspace = RB_GPU_WORKSPACE;
    uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_MASK & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE;
    cublasStatus_t err = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);

    if (err == CUBLAS_STATUS_SUCCESS)
        err = cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
    for (size_t i = 0; i < RB_COUNT(starts) && err == CUBLAS_STATUS_SUCCESS; i++) {
        uint32_t alignment = alignment_of(s, i < 2 ? s->short_in : s->short_out);

        err = cublasLtMatmulPreferenceSetAttribute(preference, starts[i], &alignment,
                                                   sizeof alignment);
    }
    return err;
}

static cublasStatus_t choose(struct rb_gpu_product *p, const struct rb_gpu_product_shape *s)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    cublasStatus_t err = cublasLtMatmulPreferenceCreate(&preference);

    if (err == CUBLAS_STATUS_SUCCESS)
        err = show_bias(p, s);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = prefer(preference, s);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = cublasLtMatmulAlgoGetHeuristic(p->gpu->blas, p->how, p->b, p->a, p->c, p->c,
                                             preference, 1, &found, &n);
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = n < 1 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state;
    if (err == CUBLAS_STATUS_SUCCESS)
        p->algorithm = found.algo;
    return err;
}

/* The GPU's own handle, made with the first product. */
static int open_handle(struct rb_gpu *gpu, struct rb_why *why)
{
    cublasLtHandle_t handle = NULL;
    cublasStatus_t err = gpu->blas ? CUBLAS_STATUS_SUCCESS : cublasLtCreate(&handle);

    if (err != CUBLAS_STATUS_SUCCESS)
        return rb_why_set(why, RB_EUNSUPPORTED, "cuBLASLt does not start: %s",
                          cublasLtGetStatusString(err));
    if (!gpu->blas)
        gpu->blas = handle;
    return 0;
}

int rb_gpu_product_new(struct rb_gpu *gpu, const struct rb_gpu_product_shape *shape,
                       struct rb_gpu_product **ret_product, struct rb_why *why)
{
    struct rb_gpu_product *product;
    cublasStatus_t err;

    if (shape->batch > INT32_MAX) /* as cuBLASLt counts them */
        return rb_why_set(why, RB_EUNSUPPORTED, "%lld products at once are too many",
                          (long long)shape->batch);
    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    if (open_handle(gpu, why))
        return RB_EUNSUPPORTED;
    product = rb_alloc(sizeof *product);
    product->gpu = gpu;
    product->bias = shape->bias;
    product->more = shape->more;
    err = describe(product, shape);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = choose(product, shape);
    if (err != CUBLAS_STATUS_SUCCESS) {
        rb_gpu_product_free(product);
        return rb_why_set(why, RB_EUNSUPPORTED, "cuBLASLt has no way to multiply this: %s",
                          cublasLtGetStatusString(err));
    }
    *ret_product = product;
    return 0;
}

void rb_gpu_product_run(struct rb_gpu_product *product, const void *a, const void *b,
                        const float *bias, void *c)
{
    struct rb_gpu *gpu = product->gpu;
    const float one = 1, more = product->more ? 1 : 0;
    cublasStatus_t err = CUBLAS_STATUS_SUCCESS;

    if (!rb_gpu_enter(gpu))
        return;
    if (product->bias)
        err = cublasLtMatmulDescSetAttribute(product->how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                             sizeof bias);
    if (err == CUBLAS_STATUS_SUCCESS)
        err = cublasLtMatmul(gpu->blas, product->how, &one, b, product->b, a, product->a, &more, c,
                             product->c, c, product->c, &product->algorithm, gpu->workspace,
                             RB_GPU_WORKSPACE, rb_gpu_queue(gpu));
    if (err != CUBLAS_STATUS_SUCCESS)
        rb_gpu_fail(gpu, cublasLtGetStatusString(err));
}

void rb_gpu_product_free(struct rb_gpu_product *product)
{
    cublasLtMatrixLayout_t layouts[3];

    if (!product)
        return;
    layouts[0] = product->a;
    layouts[1] = product->b;
    layouts[2] = product->c;
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            cublasLtMatrixLayoutDestroy(layouts[i]);
    if (product->how)
        cublasLtMatmulDescDestroy(product->how);
    free(product);
}
