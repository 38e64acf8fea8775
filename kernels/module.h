/* SPDX-License-Identifier: Apache-2.0 */
/* Backends that are opened at run time: one entry, one number.
 *
 * device.c > [module] > librubato-cuda.so, beside the program
 *
 * One program thus serves machines with and without CUDA.  A module that is not of the same build
 * as the program is refused: nobody else writes modules. */
#ifndef RB_KERNELS_MODULE_H
#define RB_KERNELS_MODULE_H

#include "kernels/backend.h"

enum { RB_MODULE_ABI = 11 };

struct rb_module {
    unsigned abi;
    const char *version; /* of Rubato */
    const struct rb_device_ops *ops;
};

/* The only symbol that a module shows. */
#define RB_MODULE_ENTRY "rb_module_entry"
typedef const struct rb_module *rb_module_entry_fn(void);
const struct rb_module *rb_module_entry(void);

/* The operations of devices of `kind`, from a module, which the first call opens and keeps.
 * RB_EUNSUPPORTED and a sentence: there is no such module, or it cannot be used. */
int rb_module_open(const char *kind, const struct rb_device_ops **ret_ops, struct rb_why *why);

#endif
