/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over protobuf bytes before they are unpacked: lengths fit, messages do not nest too deep.
 *
 * bytes from outside > [wire_scan] > protobuf-c
 *
 * protobuf-c recurses once for every nested message and knows no limit. */
#ifndef RB_GRAPH_ONNX_WIRE_SCAN_H
#define RB_GRAPH_ONNX_WIRE_SCAN_H

#include "base/error.h"

#include <protobuf-c/protobuf-c.h>

/* RB_EINVAL for bytes that are no such message, RB_ELIMIT below `depth` nested messages. */
int rb_wire_scan(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t size,
                 int depth, struct rb_why *why);

#endif
