/* SPDX-License-Identifier: Apache-2.0 */
/* Is this a build with a sanitizer?  gcc says so by macros, clang by features.
 *
 * kernels leave out what runs before a sanitizer is ready; tests that train do it on less, for each
 * step is slower, and what is looked for is not arithmetic. */
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
