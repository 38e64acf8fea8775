/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as people have them: a safetensors file, several with an index, or the folder of either.
 *
 * FILE.safetensors | *.index.json | FOLDER > [pretrained] > initial */
#ifndef RB_PLAN_COMPILE_PRETRAINED_H
#define RB_PLAN_COMPILE_PRETRAINED_H

#include "base/error.h"
#include "proto/safetensors.h"

struct rb_pretrained {
    const struct rb_safetensor **tensors; /* of all files, by name; none twice */
    int n;
    const struct rb_safetensor_note **notes; /* of all files, by key */
    int n_notes;
    struct rb_pretrained_file *files;
    int n_files;
};

/* In a folder it reads model.safetensors, or else model.safetensors.index.json.  The files of an
 * index lie right beside it, and of each file only the tensors that the index lists count.  In a
 * checkpoint's folder it must be the file that the checkpoint wrote. */
int rb_pretrained_open(const char *path, struct rb_pretrained *ret, struct rb_why *why);
void rb_pretrained_close(struct rb_pretrained *pretrained);

/* Place among ->tensors; -1: there is none by that name. */
int rb_pretrained_find(const struct rb_pretrained *pretrained, const char *name);
/* The tensor that stands for a tensor left out of the file, according to the notes, as its place
 * among ->tensors.  (Writers that store shared tensors once note the names of the others.)  -1:
 * none. */
int rb_pretrained_kept(const struct rb_pretrained *pretrained, const char *name);

#endif
