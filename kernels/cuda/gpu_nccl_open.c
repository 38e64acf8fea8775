/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gpu_nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Written once and never changed, as a library that is loaded is. */
static struct {
    pthread_once_t once;
    bool there;
    struct rb_nccl calls;
    struct rb_why why;
} nccl = {.once = PTHREAD_ONCE_INIT};

static bool find(void *library, void *ret, const char *name)
{
    void *found = dlsym(library, name);

    memcpy(ret, &found, sizeof found);
    if (!found)
        rb_why_set(&nccl.why, RB_EUNSUPPORTED, "NCCL lacks %s", name);
    return found != NULL;
}

static bool find_all(void *library, struct rb_nccl *calls)
{
    return find(library, &calls->id, "ncclGetUniqueId") &&
           find(library, &calls->init, "ncclCommInitRankConfig") &&
           find(library, &calls->state, "ncclCommGetAsyncError") &&
           find(library, &calls->all_reduce, "ncclAllReduce") &&
           find(library, &calls->reduce, "ncclReduce") &&
           find(library, &calls->broadcast, "ncclBroadcast") &&
           find(library, &calls->send, "ncclSend") && find(library, &calls->receive, "ncclRecv") &&
           find(library, &calls->group_start, "ncclGroupStart") &&
           find(library, &calls->group_end, "ncclGroupEnd") &&
           find(library, &calls->abort, "ncclCommAbort") &&
           find(library, &calls->error, "ncclGetErrorString");
}

/* RUBATO_NCCL: another library, or "" for none. */
static void open_library(void)
{
    const char *path = getenv("RUBATO_NCCL");
    struct rb_nccl *calls = &nccl.calls;
    void *library;

    if (path && !*path) {
        rb_why_set(&nccl.why, RB_EUNSUPPORTED, "NCCL is not wanted");
        return;
    }
    library = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        rb_why_set(&nccl.why, RB_EUNSUPPORTED, "no NCCL: %s", dlerror());
        return;
    }
    nccl.there = find_all(library, calls);
    if (nccl.there && !(find(library, &calls->revoke, "ncclCommRevoke") &&
                        find(library, &calls->shrink, "ncclCommShrink")))
        calls->revoke = NULL;
}

const struct rb_nccl *rb_nccl_open(struct rb_why *why)
{
    pthread_once(&nccl.once, open_library);
    if (nccl.there)
        return &nccl.calls;
    rb_why_set(why, RB_EUNSUPPORTED, "%s", nccl.why.text);
    return NULL;
}
