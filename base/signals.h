/* SPDX-License-Identifier: Apache-2.0 */
/* What the process that started this one decided about signals. */
#ifndef RB_BASE_SIGNALS_H
#define RB_BASE_SIGNALS_H

#include <stdbool.h>

/* Is this signal ignored, as nohup leaves SIGHUP?  Then neither a handler nor a descriptor may take
 * it. */
bool rb_signal_ignored(int number);

#endif
