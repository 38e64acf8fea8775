/* SPDX-License-Identifier: Apache-2.0 */
/* One schema, many forms: protobuf messages to and from JSON, and from YAML.
 *
 * job file, rubatod.yaml > [reflect] > Spec, Settings     facts > [reflect] > etcd, `-o json`
 *
 * Walks protobuf-c descriptors, so that a field written in a .proto file is known everywhere.
 * Names are the field's in camelCase; enums are their value's name; 64-bit integers are JSON
 * numbers (those above 2^63-1, and "nan", "inf", "-inf" where a number should be, are strings);
 * bytes are left out. */
#ifndef RB_PROTO_REFLECT_H
#define RB_PROTO_REFLECT_H

#include "base/error.h"

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

/* Append each line of a text, which ends in a newline (NULL: no text), to an array.  Bytes that are
 * no UTF-8 become '?'. */
void rb_reflect_lines(const char *text, json_t *lines);

/* A JSON object of every field that is set; `defaults`: also those that have a default. */
json_t *rb_reflect_to_json(const ProtobufCMessage *message, bool defaults);

/* One line of JSON text; the caller frees it. */
char *rb_reflect_to_text(const ProtobufCMessage *message);

/* A message from JSON.  Unknown keys are ignored (facts written by a newer version), wrong types
 * and missing required fields are RB_EINVAL.  Free with protobuf_c_message_free_unpacked. */
int rb_reflect_from_json(const json_t *json, const ProtobufCMessageDescriptor *descriptor,
                         ProtobufCMessage **ret_message, struct rb_why *why);
int rb_reflect_from_text(const char *text, size_t size,
                         const ProtobufCMessageDescriptor *descriptor,
                         ProtobufCMessage **ret_message, struct rb_why *why);

/* A message from YAML text.  An unknown key (with the nearest known one as a hint), a duplicate key
 * or a wrong value is RB_EINVAL: "job.yaml:12:5: unknown key 'lerningRate', did you mean ...".
 * `auto` and `null` leave a field unset where its type is not a string list; a scalar serves as a
 * list of one.  Anchors and aliases are refused; at most 1 MiB and 64 levels. */
int rb_reflect_from_yaml(const char *file, const char *text, size_t size,
                         const ProtobufCMessageDescriptor *descriptor,
                         ProtobufCMessage **ret_message, struct rb_why *why);

/* Set one field by path: "spec.train.steps", "200" (the value is YAML; `null` unsets it). */
int rb_reflect_set(ProtobufCMessage *message, const char *path, const char *value,
                   struct rb_why *why);

/* Where the key at `path` ("spec.train.steps") stands in YAML text, counted from 1.  If the key is
 * missing, the innermost key above it that is there.  False if not even the first is there. */
bool rb_reflect_locate(const char *text, size_t size, const char *path, size_t *ret_line,
                       size_t *ret_column);

#endif
