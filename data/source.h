/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets: files as numbered samples.
 *
 * job file > [source] > daemon (counts and checks at submit), worker (reads while training)
 *
 * Files are mapped and never copied whole; any sample is found in constant time, so the order is a
 * keyed permutation (data/order.h) and needs no coordination.  Samples that are worth it are read
 * from the file, so that a large data set does not become memory of each process that reads it. */
#ifndef RB_DATA_SOURCE_H
#define RB_DATA_SOURCE_H

#include "base/error.h"
#include "data/convert.h"
#include "proto/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rb_source;

enum { RB_SOURCE_INPUTS = 64 }; /* the most that a model may have beside features and targets */

/* What one more input of the model is made of. */
struct rb_source_input_options {
    const char *name; /* the model's */
    const char *const *path;
    size_t n_path;
    bool floats; /* the model takes floats, else numbers as they stand */
};

/* What a source is made of, before and after opening.  Several files are one behind the other
 * (data/series.h), as data/expand.h lists them. */
struct rb_source_options {
    const char *const *path;
    size_t n_path;
    const char *const *targets; /* labels; none, or the sequence's next elements, where n is 0 */
    size_t n_targets;
    const struct rb_source_input_options *inputs; /* at most RB_SOURCE_INPUTS */
    size_t n_inputs;
    const char *format; /* text | npy | idx | tokens; NULL, auto: by the content and the name */
    int64_t seq_len;    /* text and tokens: elements in a sample; ignored elsewhere */
    bool floats;        /* the model takes floats, so that bytes are no tokens */
    bool probabilities; /* targets are to be 0 to 1: look at floats, too */
    bool unscanned;     /* do not read whole files for the largest values: a worker's quick start */
};

/* One more input: a sample of it, and what its integers are. */
struct rb_source_input {
    const char *name;
    struct rb_tensor_type type;
    bool scanned; /* false: there are no integers, or the files were not scanned */
    struct rb_extremes extremes;
};

/* One sample of each slot: shape without the batch axis. */
struct rb_source_info {
    const char *format;
    int64_t samples;
    struct rb_tensor_type features; /* text, tokens: I64 [seq_len] */
    struct rb_tensor_type targets;  /* text, tokens: I64 [seq_len], the next element of each;
                                       dtype RB_NONE where there are none */
    struct rb_extremes extremes;    /* of integer targets and tokens; text: bytes'; all -1: no
                                       integers, or unscanned */
    int64_t largest_feature;        /* the largest of the features, likewise */
    int64_t least_feature;          /* and the least; 0 where there are no integers, or unscanned */
    const struct rb_source_input *inputs; /* as they were asked for */
    size_t n_inputs;
    float stray_target; /* a target that is not 0 to 1, maybe NaN; 0: all are, or not asked */
};

/* Open and check: header against size, features against targets, files against each other.
 *
 * text: bytes; sample i covers bytes [i*seq_len, i*seq_len + seq_len], the last as target only.
 * tokens: llm.c (.bin, magic 20240520 u16 or 20240801 u32) and nanoGPT (bare u16), likewise.
 * npy: versions 1 to 3, little-endian, C order, first axis samples.  Floats (f2 f4 f8) become F32,
 *     integers (i1 i2 i4 i8 u1 u2 u4) and truth values (b1) I64; for a model that takes floats
 *     bytes (u1: images) and truth values become F32 as they are, without scaling.
 * idx: bytes (IDX type 8); features become F32 in 0..1 (value / 255), targets I64, shaped as the
 *     file says.
 * Files of targets and of further inputs are npy or idx, found by their content, whatever the
 * features are.  Sequences (text, tokens) have none.
 *
 * Messages name the file, what was found and what was expected. */
int rb_source_open(const struct rb_source_options *options, struct rb_source **ret_source,
                   struct rb_why *why);
const struct rb_source_info *rb_source_info(const struct rb_source *source);
void rb_source_close(struct rb_source *source);

/* NULL: there is none of that name. */
const struct rb_source_input *rb_source_find_input(const struct rb_source_info *info,
                                                   const char *name);

/* A hash by which the files' contents are known again (rb_mapped_hash).  Nodes may have copies: the
 * hash of what was submitted is compared with that of each node's files. */
uint64_t rb_source_hash(const struct rb_source *source);

/* Its files, those of features first, then of targets, then of each input; `hash` is of each alone.
 */
struct rb_source_file {
    const char *path; /* the source's */
    enum { RB_FILE_FEATURES, RB_FILE_TARGETS, RB_FILE_INPUT } of;
    size_t input; /* which */
    uint64_t hash;
};
size_t rb_source_files(const struct rb_source *source);
struct rb_source_file rb_source_file(const struct rb_source *source, size_t i);

/* Are the files as long as they were?  Call this before each step: reading behind the end of a file
 * that was cut off since ends the process (SIGBUS). */
int rb_source_check(const struct rb_source *source, struct rb_why *why);

/* Copy sample `i` (0 <= i < samples), converted to the slot's dtype in `info`.  NULL: that slot is
 * not wanted. */
void rb_source_read(const struct rb_source *source, int64_t i, void *features, void *targets);
void rb_source_read_input(const struct rb_source *source, int64_t i, size_t input, void *to);

#endif
