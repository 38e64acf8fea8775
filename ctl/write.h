/* SPDX-License-Identifier: Apache-2.0 */
/* JSON values as text: indented JSON, and block YAML that reads back as the same value.  Numbers
 * have the fewest digits that read back as the same bits.
 *
 * session (-o json, -o yaml), metrics > [write] > stdout */
#ifndef RB_CTL_WRITE_H
#define RB_CTL_WRITE_H

#include "base/buffer.h"

#include <jansson.h>

void rb_write_json(const json_t *json, struct rb_buffer *out); /* many lines, the last one ended */
void rb_write_line(const json_t *json, struct rb_buffer *out); /* one line, ended */
void rb_write_yaml(const json_t *json, struct rb_buffer *out);

#endif
