/* SPDX-License-Identifier: Apache-2.0 */
/* A library that does nothing, at once: with one rank, sums are what it has. */
#include "tests/kernels/fake_cuda.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdint.h>
#include <string.h>

#define CALL __attribute__((visibility("default")))

CALL struct fake_nccl fake_nccl;

/* The header does not declare their arguments. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

CALL ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    return ncclSuccess;
}

CALL ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                         ncclConfig_t *config)
{
    (void)size;
    (void)id;
    (void)rank;
    (void)config;
    *comm = (ncclComm_t)(uintptr_t)64;
    return ncclInProgress;
}

CALL ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    (void)comm;
    *state = ncclSuccess;
    return ncclSuccess;
}

CALL ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)type;
    (void)op;
    (void)comm;
    (void)stream;
    memcpy(out, in, count * sizeof(int32_t));
    return ncclSuccess;
}

CALL ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                             ncclRedOp_t op, int to, ncclComm_t comm, cudaStream_t stream)
{
    (void)to;
    return ncclAllReduce(in, out, count, type, op, comm, stream);
}

CALL ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type,
                                int from, ncclComm_t comm, cudaStream_t stream)
{
    (void)from;
    return ncclAllReduce(in, out, count, type, ncclSum, comm, stream);
}

CALL ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int to,
                           ncclComm_t comm, cudaStream_t stream)
{
    (void)from;
    (void)count;
    (void)type;
    (void)to;
    (void)comm;
    (void)stream;
    return ncclSuccess;
}

CALL ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                           cudaStream_t stream)
{
    return ncclSend(to, count, type, from, comm, stream);
}

CALL ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

CALL ncclResult_t ncclGroupEnd(void)
{
    return ncclInProgress;
}

CALL ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    (void)comm;
    fake_nccl.aborted++;
    return (ncclResult_t)fake_nccl.answer;
}

CALL const char *ncclGetErrorString(ncclResult_t status)
{
    return status == ncclSuccess ? "no error" : "made up";
}
