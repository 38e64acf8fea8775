/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/checkpoint_folder.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LATEST_LIMIT = 4096 };

char *rb_checkpoint_name(int64_t step)
{
    return rb_format("step-%08" PRId64, step);
}

int64_t rb_checkpoint_step(const char *name)
{
    RB_CLEANUP(rb_freep) char *again = NULL;
    int64_t step;

    if (sscanf(name, "step-%" SCNd64, &step) != 1 || step < 0)
        return -1;
    again = rb_checkpoint_name(step);
    return strcmp(again, name) == 0 ? step : -1;
}

int64_t rb_checkpoint_latest(const char *folder)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/" RB_CHECKPOINT_LATEST, folder);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer line = {0};

    if (rb_file_read(path, LATEST_LIMIT, &line, NULL) || !line.size)
        return -1;
    line.data[line.size - 1] = '\0'; /* for its end of line */
    return rb_checkpoint_step((const char *)line.data);
}
