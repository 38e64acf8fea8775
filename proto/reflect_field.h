/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a protobuf-c message by descriptor: find, clear, make room, store.
 *
 * protobuf-c > [reflect_field] > reflect_json, reflect_yaml, reflect_set
 *
 * Everything stored is malloc'ed: protobuf_c_message_free_unpacked(message, NULL) frees it. */
#ifndef RB_PROTO_REFLECT_FIELD_H
#define RB_PROTO_REFLECT_FIELD_H

#include "base/error.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RB_FIELD_KEY = 64 };

/* The field's name in camelCase. */
void rb_field_key(const ProtobufCFieldDescriptor *field, char ret_key[RB_FIELD_KEY]);
const ProtobufCFieldDescriptor *rb_field_find(const ProtobufCMessageDescriptor *descriptor,
                                              const char *key, size_t size);

/* "unknown key 'x'" and a hint: the nearest key, or all of them. */
void rb_field_unknown(const ProtobufCMessageDescriptor *descriptor, const char *key, size_t size,
                      char *ret_text, size_t room);

ProtobufCMessage *rb_field_new(const ProtobufCMessageDescriptor *descriptor);

/* Does the field have a value of its own?  A repeated one: at least one element. */
bool rb_field_present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
size_t rb_field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* Where value i lies (i is 0 if the field is not repeated). */
const void *rb_field_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                        size_t i);

/* Free what the field holds and return it to the default. */
void rb_field_clear(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* Mark as present (repeated: append a zeroed element) and return where the value goes. */
void *rb_field_slot(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

bool rb_field_is_integer(const ProtobufCFieldDescriptor *field);
bool rb_field_is_signed(const ProtobufCFieldDescriptor *field);
bool rb_field_is_real(const ProtobufCFieldDescriptor *field);

/* Store an integer: RB_ELIMIT where the field's type cannot hold it. */
int rb_field_put_integer(const ProtobufCFieldDescriptor *field, void *slot, bool negative,
                         uint64_t magnitude);
void rb_field_put_real(const ProtobufCFieldDescriptor *field, void *slot, double x);
int rb_field_put_enum(const ProtobufCFieldDescriptor *field, void *slot, const char *name);

/* Decimal text to sign and magnitude; false if it is no such text, or above 64 bits. */
bool rb_field_parse_integer(const char *text, bool *ret_negative, uint64_t *ret_magnitude);

/* In reflect_yaml.c: read YAML text that is the field's value; empty text leaves the field as it
 * is. */
int rb_field_read_yaml(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       const char *text, struct rb_why *why);

#endif
