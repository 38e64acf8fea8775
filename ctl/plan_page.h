/* SPDX-License-Identifier: Apache-2.0 */
/* The report of `rubatoctl plan` for people: a table of the candidates, and the reason for each
 * verdict.
 *
 * plan > [plan_page] > page, table */
#ifndef RB_CTL_PLAN_PAGE_H
#define RB_CTL_PLAN_PAGE_H

#include "ctl/session.h"

/* Fields that are missing show as "?" or 0. */
void rb_plan_page(const struct rb_session *session, const json_t *report);

#endif
