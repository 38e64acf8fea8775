/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors from inside: for safetensors_write.c and safetensors_read.c alone. */
#ifndef RB_PROTO_SAFETENSORS_INSIDE_H
#define RB_PROTO_SAFETENSORS_INSIDE_H

#include "proto/safetensors.h"

/* In the order of the file: the reference writer sorts by its list of types from the end, so larger
 * elements come first and every tensor is aligned to its own element. */
static const struct {
    enum rb_dtype dtype;
    const char *name;
} kinds[] = {
    {RB_U64, "U64"}, {RB_I64, "I64"},   {RB_F64, "F64"},   {RB_F32, "F32"}, {RB_U32, "U32"},
    {RB_I32, "I32"}, {RB_BF16, "BF16"}, {RB_F16, "F16"},   {RB_U16, "U16"}, {RB_I16, "I16"},
    {RB_I8, "I8"},   {RB_U8, "U8"},     {RB_BOOL, "BOOL"},
};

#endif
