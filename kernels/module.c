/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/module.h"

#include "base/arena.h"
#include "base/version.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Written once and never changed, as a library that is loaded is. */
static struct {
    pthread_once_t once;
    const struct rb_device_ops *ops;
    struct rb_why why;
} cuda = {.once = PTHREAD_ONCE_INIT};

/* RUBATO_CUDA_MODULE, or the file beside this program; the caller frees it. */
static char *module_path(void)
{
    const char *named = getenv("RUBATO_CUDA_MODULE");
    char self[4096];
    ssize_t n;

    if (named)
        return rb_string(named);
    n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    if (strrchr(self, '/'))
        *strrchr(self, '/') = 0;
    return rb_format("%s/librubato-cuda.so", self);
}

static void refuse(void *library, const char *path, const char *reason)
{
    rb_why_set(&cuda.why, RB_EUNSUPPORTED, "no GPU: %s%s%s", path, *path ? ": " : "", reason);
    if (library)
        dlclose(library);
}

static void open_cuda(void)
{
    RB_CLEANUP(rb_freep) char *path = module_path();
    const struct rb_module *module;
    rb_module_entry_fn *entry;
    void *library;

    if (access(path, F_OK)) {
        refuse(NULL, "", "this build of Rubato has no CUDA module");
        return;
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        refuse(NULL, "", dlerror());
        return;
    }
    *(void **)&entry = dlsym(library, RB_MODULE_ENTRY);
    module = entry ? entry() : NULL;
    if (!module || module->abi != RB_MODULE_ABI || strcmp(module->version, RUBATO_VERSION) != 0)
        refuse(library, path, "it is of another build of Rubato");
    else
        cuda.ops = module->ops;
}

int rb_module_open(const char *kind, const struct rb_device_ops **ret_ops, struct rb_why *why)
{
    if (strcmp(kind, "cuda") != 0)
        return rb_why_set(why, RB_EUNSUPPORTED, "there are no devices of kind '%.40s'", kind);
    pthread_once(&cuda.once, open_cuda);
    if (!cuda.ops)
        return rb_why_set(why, RB_EUNSUPPORTED, "%s", cuda.why.text);
    *ret_ops = cuda.ops;
    return 0;
}
