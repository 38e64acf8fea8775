/* SPDX-License-Identifier: Apache-2.0 */
/* What whoever started this process decided about signals. */
#ifndef RB_BASE_SIGNALS_H
#define RB_BASE_SIGNALS_H

#include <stdbool.h>

/* As nohup leaves SIGHUP: it is not to be heard, neither by a handler nor by a descriptor. */
bool rb_signal_ignored(int number);

#endif
