/* SPDX-License-Identifier: Apache-2.0 */
/* Data for the benches: files that every Debian has, or the output of a small generator.
 *
 * licence texts, generator > [data] > files in the job's folder */
#ifndef RB_TESTS_BENCH_DATA_H
#define RB_TESTS_BENCH_DATA_H

#include <stdint.h>

/* The licence texts of base-files, one after the other. */
void bench_data_text(const char *path);

/* The same texts as 16-bit tokens, one a word or a mark between words: the `limit` - 1 words that
 * occur first have their own, the others share one. */
void bench_data_words(const char *path, int limit);

/* `samples` features around one random centre a class, and their labels. */
void bench_data_classes(const char *features, const char *labels, const int64_t shape[3],
                        int64_t samples, int classes);

#endif
