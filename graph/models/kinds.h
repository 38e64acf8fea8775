/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of models that can be generated; between models.c and one file a kind. */
#ifndef RB_GRAPH_MODELS_KINDS_H
#define RB_GRAPH_MODELS_KINDS_H

#include "graph/models/writer.h"

#include <stdbool.h>

enum { RB_MODELS_SETTINGS = 8 };

struct rb_models_setting {
    const char *key;
    double otherwise, least, most;
    bool real;
};

struct rb_models_kind {
    const char *name;
    struct rb_models_setting settings[RB_MODELS_SETTINGS]; /* as in models.h; ends with no key */
    uint64_t (*parameters)(const double *values);
    /* values: in the order of settings, within their bounds.  May refuse a combination. */
    int (*check)(const double *values, struct rb_why *why); /* optional */
    void (*write)(struct rb_writer *writer, const double *values);
};

extern const struct rb_models_kind rb_models_gpt, rb_models_mlp, rb_models_cnn;

#endif
