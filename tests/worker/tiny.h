/* SPDX-License-Identifier: Apache-2.0 */
/* A small job built by hand, so that these tests need no graph and no planner's compiler.
 *
 * features [b, 8] > MatMul + bias > Relu > Dropout > MatMul + bias > CrossEntropy, and its
 * gradient; the mean of the hidden layer goes to a running statistic; a FIXED variable is carried
 * along. */
#ifndef RB_TESTS_WORKER_TINY_H
#define RB_TESTS_WORKER_TINY_H

#include "plan.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct tiny_options {
    int64_t samples, eval_samples; /* eval 0: none */
    int64_t global_batch, micro_batch, steps, hidden, eval_every;
    bool sgd, no_momentum;
    double clip_norm;
    double bad_feature; /* not 0: all samples hold this value, */
    bool bad_once;      /* or the first sample alone */
    bool no_targets;    /* every target is the ignored one */
    uint32_t replicas;  /* of each block; 0: all ranks hold all */
    uint32_t stages;    /* of a pipeline, where there are as many ranks; 0: none */
    uint32_t lap;       /* steps of a lap, on at most `stages` ranks; 0: none */
    int laps;           /* enum _Rb__Asynchronous__Kind */
    bool formula;
    bool steals; /* microbatches may change hands */
    bool both;   /* there are two sets of programs that train, alike but for where their activations
                    lie; plans of an odd number of ranks say that the second is run */
};

enum { TINY_INPUTS = 8, TINY_CLASSES = 4 };

/* The message, with paths into `folder`; free with rb__model__free_unpacked. */
Rb__Model *tiny_model(const char *folder, const struct tiny_options *options);

/* Write FOLDER/model, weights.safetensors, data (features.npy, targets.npy, eval-...) and the plans
 * FOLDER/plan.1 .. plan.N. */
void tiny_write(const char *folder, const struct tiny_options *options, uint32_t ranks);

/* A folder of its own with these files, until it is closed. */
struct tiny_place {
    Rb__Model *model;
    char folder[64];
};
void tiny_place_open(const struct tiny_options *options, struct tiny_place *ret);
void tiny_place_close(struct tiny_place *place);

/* The plan as the planner makes it: runs that differ by at most one. */
Rb__Plan *tiny_plan(const Rb__Model *model, uint32_t ranks);

/* Data as tiny_write makes it: a centre a class; files FOLDER/PREFIXfeatures.npy,
 * PREFIXtargets.npy.  shape: of one sample, as NumPy writes the rest of the tuple ("3, 8, 8"). */
void tiny_write_data(const char *folder, const char *prefix, int64_t samples, int64_t inputs,
                     const char *shape, int64_t classes, uint64_t seed);
void tiny_write_message(const char *folder, const char *name, const ProtobufCMessage *message);

#endif
