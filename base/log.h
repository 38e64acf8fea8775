/* SPDX-License-Identifier: Apache-2.0 */
/* One line an event on stderr, for rubatod and rubato-worker alone: libraries never log.
 *
 *     2026-01-02T03:04:05.678Z info  job gpt: configuration 3 is active */
#ifndef RB_BASE_LOG_H
#define RB_BASE_LOG_H

enum rb_log_level { RB_LOG_DEBUG, RB_LOG_INFO, RB_LOG_WARN, RB_LOG_ERROR };

void rb_log(enum rb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
