/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a reply that may or may not be there.
 *
 * client > a reply > [value] > verbs */
#ifndef RB_CTL_VALUE_H
#define RB_CTL_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

const char *rb_value_text(const json_t *object, const char *key, const char *otherwise);
int64_t rb_value_integer(const json_t *object, const char *key, int64_t otherwise);
double rb_value_real(const json_t *object, const char *key, double otherwise); /* "nan" too */
bool rb_value_there(const json_t *object, const char *key);                    /* and not null */
bool rb_value_true(const json_t *object, const char *key);
int64_t rb_value_count(const json_t *object, const char *key); /* a list's length, or a count */

/* A row of metrics as an object, its cells by the names of their columns; json_decref it. */
json_t *rb_value_row(const json_t *columns, const json_t *row);

/* The integer of a row in one column. */
int64_t rb_value_cell(const json_t *columns, const json_t *row, const char *column,
                      int64_t otherwise);

/* Whether the job in this reply is over: Succeeded, Failed or Cancelled. */
bool rb_value_over(const json_t *object);

#endif
