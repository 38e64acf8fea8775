/* SPDX-License-Identifier: Apache-2.0 */
/* A page of "name  value" lines.
 *
 * status, resize, model check > [page] > stdout */
#ifndef RB_CTL_PAGE_H
#define RB_CTL_PAGE_H

#include "ctl/session.h"
#include "ctl/table.h"

#define RB_PAGE ((struct rb_table){.columns = 2})

/* One line; an empty name continues the value above. */
void rb_page_add(struct rb_table *page, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Print and free. */
void rb_page_print(const struct rb_session *session, struct rb_table *page);

#endif
