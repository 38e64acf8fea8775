/* SPDX-License-Identifier: Apache-2.0 */
/* What `model check` found, as a page.
 *
 * model check > report > [model_page] > stdout */
#ifndef RB_CTL_MODEL_PAGE_H
#define RB_CTL_MODEL_PAGE_H

#include "ctl/session.h"

void rb_model_page(const struct rb_session *session, const json_t *report);

#endif
