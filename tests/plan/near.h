/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that were worked out by hand. */
#ifndef RB_TESTS_PLAN_NEAR_H
#define RB_TESTS_PLAN_NEAR_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline void assert_near(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * fabs(expected))
        fail_msg("%.12g, not %.12g", found, expected);
}

#endif
