/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sealed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

int rb_sealed_create(const char *name, size_t bytes)
{
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0 && fcntl(file, F_ADD_SEALS, SEALS) == 0)
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

int64_t rb_sealed_size(int file)
{
    int seals = file < 0 ? -1 : fcntl(file, F_GET_SEALS);
    struct stat status;

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(file, &status) == 0 ? status.st_size : -1;
}
