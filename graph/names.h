/* SPDX-License-Identifier: Apache-2.0 */
/* A map from names to pointers, maybe within another one; names are not copied.
 *
 * graph/onnx, graph/import, plan/compile/match > [names] */
#ifndef RB_GRAPH_NAMES_H
#define RB_GRAPH_NAMES_H

#include <stdbool.h>
#include <stddef.h>

struct rb_names { /* all zero is empty */
    struct rb_names_slot {
        const char *name;
        void *item;
    } * slots;
    size_t n, room;               /* room: a power of two */
    const struct rb_names *outer; /* asked for names not found here; NULL: none */
};

void *rb_names_get(const struct rb_names *names, const char *name);      /* NULL: not there */
bool rb_names_add(struct rb_names *names, const char *name, void *item); /* false: there already */
void rb_names_done(struct rb_names *names);

#endif
