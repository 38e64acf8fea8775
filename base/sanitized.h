/* SPDX-License-Identifier: Apache-2.0 */
/* Is this a build with a sanitizer?  gcc says so by macros, clang by features.
 *
 * Kernels leave out what would run before a sanitizer is ready.  Tests that train do less of it,
 * because each step is slower, and they do not look for errors of arithmetic. */
#ifndef RB_BASE_SANITIZED_H
#define RB_BASE_SANITIZED_H

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define RB_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define RB_SANITIZED 1
#endif
#endif
#ifndef RB_SANITIZED
#define RB_SANITIZED 0
#endif

#endif
