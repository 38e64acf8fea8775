/* SPDX-License-Identifier: Apache-2.0 */
/* Writes ONNX models for tests of gradients: one node of a case, or more than one.
 *
 * gradient_onnx > [gradient_onnx_write] > the writer of models */
#ifndef RB_TESTS_PLAN_GRADIENT_ONNX_WRITE_H
#define RB_TESTS_PLAN_GRADIENT_ONNX_WRITE_H

#include "graph/models/writer.h"

/* inputs, separated by spaces: "f2,3" a weight of numbers within -1 and 1, "f2,3@2*0.5" with the
 * centre 2 and the spread 0.5, "x2,3" the same times the input, "l2,3=0,1,2,0,1,2" known integers,
 * "b..." the same as bool, "n0.5" a known number, "-" none.  attributes: "axis=1 alpha=0.5 pads=0,1
 * mode=edge"; "out=2" is how many outputs the node has, "use=1" is the output that is looked at. */
struct onnx_case {
    const char *op;
    int64_t opset;
    const char *inputs, *attributes;
};

/* Writes the node; returns the name of the output to look at. */
const char *gradient_onnx_write(struct rb_writer *w, const struct onnx_case *c);

/* Models of more than one node. */
struct onnx_larger {
    const char *ops; /* that the model has, separated by spaces */
    const char *(*write)(struct rb_writer *w);
};

enum { ONNX_LARGER = 3 };
extern const struct onnx_larger gradient_onnx_larger[ONNX_LARGER];

#endif
