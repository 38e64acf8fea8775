/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of convolutions and pools: defaults written out, auto_pad resolved. */
#include "graph/import/import.h"

#include <inttypes.h>
#include <string.h>

static int fill(struct rb_import *import, const char *key, int n, int64_t otherwise, int64_t *ret)
{
    const int64_t *given = NULL;
    int n_given = 0;
    int err = rb_import_ints(import, key, &given, &n_given);

    if (!err && given && n_given != n)
        err =
            RB_IMPORT_BAD(import, "attribute '%s' has %d integers, %d are needed", key, n_given, n);
    for (int i = 0; !err && i < n; i++)
        ret[i] = given ? given[i] : otherwise;
    return err;
}

/* As many windows as strides fit into the axis; an odd element of padding goes to the end or the
 * beginning. */
static void same_pads(const struct rb_value *x, bool upper, struct rb_import_window *window)
{
    for (int i = 0; i < window->n; i++) {
        int64_t size = x->type.dim[2 + i], stride = window->strides[i];
        int64_t span = window->dilations[i] * (window->kernel[i] - 1) + 1;
        int64_t total = ((size + stride - 1) / stride - 1) * stride + span - size;

        total = total > 0 ? total : 0;
        window->pads[i] = upper ? total / 2 : total - total / 2;
        window->pads[window->n + i] = total - window->pads[i];
    }
}

int rb_import_window(struct rb_import *import, const struct rb_value *x, const int64_t *kernel,
                     struct rb_import_window *ret)
{
    enum { MOST = 1 << 24 };
    const char *auto_pad = "NOTSET";
    int n = x->type.rank - 2;
    int err;

    ret->n = n;
    memcpy(ret->kernel, kernel, sizeof kernel[0] * (size_t)n);
    err = fill(import, "strides", n, 1, ret->strides);
    if (!err)
        err = fill(import, "dilations", n, 1, ret->dilations);
    if (!err)
        err = fill(import, "pads", 2 * n, 0, ret->pads);
    if (!err)
        err = rb_import_text(import, "auto_pad", &auto_pad);
    for (int i = 0; !err && i < n; i++)
        if (kernel[i] < 1 || kernel[i] > MOST || ret->strides[i] < 1 || ret->strides[i] > MOST ||
            ret->dilations[i] < 1 || ret->dilations[i] > MOST)
            err = RB_IMPORT_BAD(import,
                                "spatial axis %d: kernel %" PRId64 ", stride %" PRId64
                                ", dilation %" PRId64 " are out of range",
                                i, kernel[i], ret->strides[i], ret->dilations[i]);
    if (err || !strcmp(auto_pad, "NOTSET"))
        return err;
    memset(ret->pads, 0, sizeof ret->pads);
    if (!strcmp(auto_pad, "SAME_UPPER") || !strcmp(auto_pad, "SAME_LOWER"))
        same_pads(x, !strcmp(auto_pad, "SAME_UPPER"), ret);
    else if (strcmp(auto_pad, "VALID") != 0)
        return RB_IMPORT_BAD(import, "auto_pad is not NOTSET, SAME_UPPER, SAME_LOWER or VALID");
    return 0;
}
