/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator of the table, on several shapes, against the reference; and again elsewhere in
 * memory and after other work, for the same bits. */
#include "tests/kernels/case.h"

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const cases[] = {
    "Reshape f32[2,3,4] > f32[6,4]",
    /* elementwise: broadcasting, size 1, scalars, odd lengths, ranks 0 to 5 */
    "Add f32[] f32[] > f32[]",
    "Add f32[1] f32[1] > f32[1]",
    "Add f32[2,3,1] f32[4] > f32[2,3,4]",
    "Add f32[2,1,3,1,5] f32[4,1,2,1] > f32[2,4,3,2,5]",
    "Add f32[33,65] f32[65] > f32[33,65]",
    "Add f32[0,3] f32[3] > f32[0,3]",
    "Add i64[7] i64[1] > i64[7]",
    "Add f64[3,5] f64[3,1] > f64[3,5]",
    "Sub f32[17] f32[] > f32[17]",
    "Sub f32[] f32[17] > f32[17]",
    "Sub i32[3,4] i32[4] > i32[3,4]",
    "Mul f32[5,1,7] f32[1,6,1] > f32[5,6,7]",
    "Mul f32[1000003] f32[1000003] > f32[1000003]",
    "Mul i64[2,2] i64[2,2] > i64[2,2]",
    "Div f32[4,9] f32[4,1] > f32[4,9]",
    "Div i64[50] i64[50] > i64[50]",
    "Div i32[50] i32[50] > i32[50]",
    "Pow f32[40] f32[40] > f32[40]",
    "Pow i64[40] i64[40] > i64[40]",
    "Pow f64[4] f64[1] > f64[4]",
    "Max f32[5,1,7] f32[6,1] > f32[5,6,7]",
    "Max i64[50] i64[50] > i64[50]",
    "Min f32[37] f32[] > f32[37]",
    "Min f64[9] f64[9] > f64[9]",
    "Mod f32[40] f32[40] > f32[40]",
    "Mod f32[40] f32[40] > f32[40] fmod=1",
    "Mod i64[90] i64[90] > i64[90]",
    "Mod i32[90] i32[90] > i32[90] fmod=1",
    "Mod f64[40] f64[1] > f64[40]",
    "Equal f32[9] f32[9] > bool[9]",
    "Equal i64[3,30] i64[30] > bool[3,30]",
    "Equal bool[20] bool[20] > bool[20]",
    "Less f32[9,2] f32[2] > bool[9,2]",
    "Less i32[90] i32[90] > bool[90]",
    "Greater f64[9] f64[9] > bool[9]",
    "Greater i64[90] i64[1] > bool[90]",
    "Where bool[3,1] f32[3,5] f32[] > f32[3,5]",
    "Where bool[1,1,9,9] f32[2,3,9,9] f32[1] > f32[2,3,9,9]",
    "Where bool[5,9] f32[5,9] f32[5,9] > f32[5,9]",
    "Where bool[5,9] f32[] f32[5,9] > f32[5,9]",
    "Where bool[] f32[5,9] f32[9] > f32[5,9]",
    "Where bool[7] i64[7] i64[7] > i64[7]",
    "Where bool[7] bool[7] bool[1] > bool[7]",
    "Neg f32[37] > f32[37]",
    "Neg i64[37] > i64[37]",
    "Abs f32[3,3] > f32[3,3]",
    "Abs i32[30] > i32[30]",
    "Sign f32[37] > f32[37]",
    "Sign i64[37] > i64[37]",
    "Exp f32[1001] > f32[1001]",
    "Exp f64[11] > f64[11]",
    "Log f32[1001] > f32[1001]",
    "Sqrt f32[37] > f32[37]",
    "Reciprocal f32[37] > f32[37]",
    "Floor f32[1001] > f32[1001]",
    "Floor f64[11] > f64[11]",
    "Ceil f32[1001] > f32[1001]",
    "Ceil f64[11] > f64[11]",
    "Round f32[1001] > f32[1001]",
    "Round f64[11] > f64[11]",
    "Sin f32[1001] > f32[1001]",
    "Sin f64[11] > f64[11]",
    "Cos f32[1001] > f32[1001]",
    "Cos f64[11] > f64[11]",
    "Tan f32[1001] > f32[1001]",
    "Tan f64[11] > f64[11]",
    "Asin f32[1001] > f32[1001]",
    "Asin f64[11] > f64[11]",
    "Acos f32[1001] > f32[1001]",
    "Acos f64[11] > f64[11]",
    "Atan f32[1001] > f32[1001]",
    "Atan f64[11] > f64[11]",
    "Sinh f32[1001] > f32[1001]",
    "Sinh f64[11] > f64[11]",
    "Cosh f32[1001] > f32[1001]",
    "Cosh f64[11] > f64[11]",
    "Asinh f32[1001] > f32[1001]",
    "Asinh f64[11] > f64[11]",
    "Acosh f32[1001] > f32[1001]",
    "Acosh f64[11] > f64[11]",
    "Atanh f32[1001] > f32[1001]",
    "Atanh f64[11] > f64[11]",
    "Softplus f32[1001] > f32[1001]",
    "Tanh f32[1001] > f32[1001]",
    "Tanh f64[11] > f64[11]",
    "Sigmoid f32[1001] > f32[1001]",
    "Erf f32[1001] > f32[1001]",
    "Relu f32[3,1,11] > f32[3,1,11]",
    "Relu i32[30] > i32[30]",
    "Gelu f32[1001] > f32[1001]",
    "Gelu f32[1001] > f32[1001] tanh=1",
    "Cast f32[300] > i64[300]",
    "Cast f32[300] > bool[300]",
    "Cast i64[513] > f32[513]",
    "Cast i64[9] > i32[9]",
    "Cast bool[300] > f32[300]",
    "Cast u8[300] > f32[300]",
    "Cast f32[9] > f64[9]",
    "Cast f64[9] > f32[9]",
    "Cast i32[9] > bool[9]",
    "Cast i8[9] > i16[9]",
    "Cast f32[300] > f16[300]",
    "Cast i64[300] > f16[300]",
    "Cast u32[9] > u64[9]",
    "Cast u64[9] > f32[9]",
    "Cast f32[1001] > bf16[1001]",
    "Cast bf16[1001] > f32[1001]",
    "Cast i64[300] > bf16[300]",
    "Gelu f32[3,1001] > bf16[3,1001]",
    "Gelu bf16[37] > f32[37] tanh=1",
    "GeluGrad f32[1001] bf16[1001] > bf16[1001]",
    "ReluGrad f32[2,600] bf16[2,600] > bf16[2,600]",
    "Mul bf16[5,1,7] f32[1,6,1] > bf16[5,6,7]",
    "Div f32[3,513] bf16[1] > f32[3,513]",
    "Less bf16[9,2] f32[2] > bool[9,2]",
    "Where bool[5,9] bf16[5,9] bf16[] > bf16[5,9]",
    "ReluGrad f32[3,37] f32[3,37] > f32[3,37]",
    "GeluGrad f32[1001] f32[1001] > f32[1001]",
    "GeluGrad f32[1001] f32[1001] > f32[1001] tanh=1",
    "TanhGrad f32[37] f32[37] > f32[37]",
    "SigmoidGrad f32[37] f32[37] > f32[37]",
    "ErfGrad f32[1001] f32[1001] > f32[1001]",
    /* movement */
    "Transpose f32[5,7] > f32[7,5] perm=1,0",
    "Transpose f32[33,65] > f32[65,33] perm=1,0",
    "Transpose f32[2,3,4,5] > f32[2,4,3,5] perm=0,2,1,3",
    "Transpose f32[2,17,4,5] > f32[2,4,5,17] perm=0,2,3,1",
    "Transpose f32[2,3,4,5,6] > f32[6,4,2,5,3] perm=4,2,0,3,1",
    "Transpose i64[3,4] > i64[4,3] perm=1,0",
    "Transpose bf16[33,65] > bf16[65,33] perm=1,0",
    "Transpose bf16[2,17,4,5] > bf16[2,4,5,17] perm=0,2,3,1",
    "Split bf16[4,9] > bf16[4,3] bf16[4,6] axis=1",
    "Expand bf16[3,1] > bf16[2,3,4]",
    "Transpose bool[3,4] > bool[4,3] perm=1,0",
    "Transpose f32[] > f32[]",
    "Expand f32[3,1] > f32[2,3,4]",
    "Expand f32[] > f32[5]",
    "Expand bool[1,3] > bool[4,3]",
    "Concat f32[2,3] f32[2,1] f32[2,4] > f32[2,8] axis=1",
    "Concat i64[2] i64[3] > i64[5] axis=0",
    "Concat f32[2,0,3] f32[2,2,3] > f32[2,2,3] axis=1",
    "Split f32[4,9] > f32[4,3] f32[4,3] f32[4,3] axis=1",
    "Split f32[5,2,2] > f32[1,2,2] f32[4,2,2] axis=0",
    "Slice f32[9,8] > f32[3,4] starts=1,0 steps=3,2",
    "Slice f32[9,8] > f32[9,8] starts=8,7 steps=-1,-1",
    "Slice f32[4,6,5] > f32[1,6,2] starts=2,0,3 steps=1,1,1",
    "Slice i64[6] > i64[2] starts=5 steps=-3",
    "SliceGrad f32[3,4] > f32[9,8] starts=1,0 steps=3,2",
    "SliceGrad f32[1,6,2] > f32[4,6,5] starts=2,0,3 steps=1,1,1",
    "SliceGrad f32[3] > f32[7] starts=6 steps=-3",
    "Trilu f32[5,5] > f32[5,5] upper=0 k=0",
    "Trilu f32[2,4,7] > f32[2,4,7] upper=1 k=-2",
    "Trilu f32[4,3] > f32[4,3] upper=0 k=9",
    "Trilu i64[4,3] > i64[4,3] upper=1 k=1",
    "Gather f32[10,7] i64[2,3] > f32[2,3,7] axis=0",
    "Gather f32[3,9,5] i32[4] > f32[3,4,5] axis=1",
    "Gather i64[9] i64[] > i64[] axis=0",
    "GatherGrad f32[2,3,7] i64[2,3] > f32[4,7] axis=0",
    "GatherGrad f32[3,40,5] i32[40] > f32[3,9,5] axis=1",
    /* sums */
    "GatherElements f32[9,4] i64[12,3] > f32[12,3] axis=0",
    "GatherElements f32[2,3,33] i32[2,3,65] > f32[2,3,65] axis=2",
    "GatherElements bool[2,9,3] i64[1,4,3] > bool[1,4,3] axis=1",
    "Scatter f32[9,4] i64[12,3] f32[12,3] > f32[9,4] axis=0",
    "Scatter f32[9,4] i64[12,3] f32[12,3] > f32[9,4] axis=0 reduction=1",
    "Scatter f32[2,3,7] i32[2,3,9] f32[2,3,9] > f32[2,3,7] axis=2 reduction=2",
    "Scatter f64[9] i64[30] f64[30] > f64[9] axis=0 reduction=3",
    "Scatter i64[9] i64[30] i64[30] > i64[9] axis=0 reduction=4",
    "ArgMax f32[5,7,3] > i64[5,1,3] axis=1",
    "ArgMax i32[5,70] > i64[5] axis=1 smallest=1",
    "ArgMax i64[70,5] > i64[5] axis=0 last=1",
    "CumSum f32[3,40,2] > f32[3,40,2] axis=1",
    "CumSum f64[3,40] > f64[3,40] axis=1 exclusive=1",
    "CumSum i64[40,3] > i64[40,3] axis=0 reverse=1",
    "CumSum i32[40] > i32[40] axis=0 exclusive=1 reverse=1",
    "TopK f32[3,40,2] > f32[3,9,2] i64[3,9,2] axis=1",
    "TopK i64[50] > i64[50] i64[50] axis=0 smallest=1",
    "TopK f32[4,30] > - i64[4,1] axis=1",
    "TopK f64[30] > f64[3] axis=0",
    "ReduceSum f32[7,13] > f32[7,1] axes=1",
    "ReduceSum f32[7,13] > f32[13] axes=0",
    "ReduceSum f32[129,33] > f32[33] axes=0",
    "ReduceSum f32[2,3,4,5] > f32[3,5] axes=0,2",
    "ReduceSum f32[9,4,25] > f32[4] axes=0,2",
    "ReduceSum f32[100003] > f32[] axes=0",
    "ReduceSum f32[] > f32[]",
    "ReduceSum f32[3,1,4] > f32[3,4] axes=1",
    "ReduceSum f32[0,4] > f32[4] axes=0",
    "ReduceSum i64[5,4] > i64[5] axes=1",
    "ReduceMean f32[3,50] > f32[3,1] axes=1",
    "ReduceMean f32[4,6,35] > f32[1,6,1] axes=0,2",
    "ReduceMean f64[3,50] > f64[50] axes=0",
    "ReduceMax f32[3,50] > f32[3] axes=1",
    "ReduceMax f32[30,5] > f32[5] axes=0",
    "ReduceMax i64[3,5] > i64[5] axes=0",
    "ReduceMax f32[3,16] > f32[3] axes=1",
    "Softmax f32[5,1] > f32[5,1] axis=1",
    "Softmax f32[2,3,45] > f32[2,3,45] axis=2",
    "Softmax f32[2,33,7] > f32[2,33,7] axis=1",
    "Softmax f32[6,100] > f32[6,100] axis=0",
    "SoftmaxGrad f32[2,3,45] f32[2,3,45] > f32[2,3,45] axis=2",
    "SoftmaxGrad f32[2,33,7] f32[2,33,7] > f32[2,33,7] axis=1",
    "LogSoftmax f32[4,128] > f32[4,128] axis=1",
    "LogSoftmax f32[2,9,70] > f32[2,9,70] axis=1",
    "LogSoftmaxGrad f32[4,128] f32[4,128] > f32[4,128] axis=1",
    "LogSoftmaxGrad f32[2,9,70] f32[2,9,70] > f32[2,9,70] axis=1",
    "ReduceSum bf16[33,65] > f32[65] axes=0",
    "ReduceSum bf16[3,40,600] > f32[600] axes=0,1",
    "ReduceSum bf16[3,4,9,16] > f32[4,16] axes=0,2",
    "ReduceSum bf16[5,700] > f32[5] axes=1",
    "ReduceMean bf16[7,13] > f32[13] axes=0",
    "Softmax f32[2,3,45] > bf16[2,3,45] axis=2",
    "Softmax f32[2,33,7] > bf16[2,33,7] axis=1",
    "SoftmaxGrad f32[2,3,45] f32[2,3,45] > bf16[2,3,45] axis=2",
    "SoftmaxGrad f32[2,33,7] f32[2,33,7] > bf16[2,33,7] axis=1",
    "LayerNormalization f32[4,65] f32[65] f32[65] > bf16[4,65] f32[4,1] f32[4,1] axis=1",
    "Dropout f32[3,1001] > bf16[3,1001] ratio=0.25",
    /* products */
    /* every way to multiply that shapes choose between */
    "MatMul f32[1,70] f32[33,70] f32[33] > f32[1,33] transB=1",
    "MatMul f32[2,70] f32[33,70] > f32[2,33] transB=1",
    "MatMul f32[1100,7] f32[20,7] f32[20] > f32[1100,20] transB=1",
    "MatMul f32[5,70] f32[70,33] f32[33] > f32[5,33]",
    "MatMul f32[5,70] f32[70,1] > f32[5,1]",
    "MatMul f32[5,1] f32[1,33] > f32[5,33]",
    "MatMul f32[9,70] f32[9,33] > f32[70,33] transA=1",
    "MatMul f32[1,70] f32[1,33] > f32[70,33] transA=1",
    "MatMul f32[40,70] f32[40,33] f32[33] > f32[70,33] transA=1",
    "MatMul f32[40,70] f32[33,40] > f32[70,33] transA=1 transB=1",
    "MatMul f32[1,1] f32[1,1] > f32[1,1]",
    "MatMul f32[17,33] f32[33,9] > f32[17,9]",
    "MatMul f32[33,17] f32[33,9] > f32[17,9] transA=1",
    "MatMul f32[17,33] f32[9,33] > f32[17,9] transB=1",
    "MatMul f32[33,17] f32[9,33] > f32[17,9] transA=1 transB=1",
    "MatMul f32[17,33] f32[33,9] f32[9] > f32[17,9]",
    "MatMul f32[2,5,33] f32[33,9] f32[9] > f32[2,5,9]",
    "MatMul f32[2,3,5,8] f32[2,3,8,6] > f32[2,3,5,6]",
    "MatMul f32[2,3,5,8] f32[2,3,6,8] > f32[2,3,5,6] transB=1",
    "MatMul f32[2,3,8,5] f32[2,3,8,6] > f32[2,3,5,6] transA=1",
    "MatMul f32[2,1,5,8] f32[3,8,6] > f32[2,3,5,6]",
    "MatMul f32[5,8] f32[4,8,6] > f32[4,5,6]",
    "MatMul f32[2,8,5] f32[8,6] > f32[2,5,6] transA=1",
    "MatMul f32[8] f32[8,6] > f32[6]",
    "MatMul f32[3,5,8] f32[8] > f32[3,5]",
    "MatMul f32[8] f32[8] > f32[]",
    "MatMul f32[4,0] f32[0,3] f32[3] > f32[4,3]",
    "MatMul f32[0,4] f32[4,3] > f32[0,3]",
    "MatMul f32[130,257] f32[257,129] > f32[130,129]",
    "MatMul f32[2,1,3,1,5,8] f32[1,2,1,2,8,3] > f32[2,2,3,2,5,3]",
    "Conv f32[2,3,8,8] f32[4,3,3,3] f32[4] > f32[2,4,8,8] pads=1,1,1,1",
    "Conv f32[1,16,9,7] f32[32,16,3,3] > f32[1,32,5,4] pads=1,1,1,1 strides=2,2",
    "Conv f32[2,4,9,9] f32[6,2,3,3] - > f32[2,6,5,5] dilations=2,2 group=2",
    "Conv f32[2,8,6,6] f32[8,1,3,3] > f32[2,8,6,6] pads=1,1,1,1 group=8",
    "Conv f32[2,3,11] f32[5,3,4] > f32[2,5,9] pads=0,1",
    "Conv f32[2,3,4,4] f32[5,3,1,1] > f32[2,5,6,7] pads=1,1,1,2",
    "Conv f32[1,2,4,5,6] f32[3,2,2,2,2] > f32[1,3,3,4,5]",
    "Conv f32[2,16,5,5] f32[16,16,1,1] f32[16] > f32[2,16,5,5]",
    "ConvGradX f32[2,4,8,8] f32[4,3,3,3] > f32[2,3,8,8] pads=1,1,1,1",
    "ConvGradX f32[1,32,5,4] f32[32,16,3,3] > f32[1,16,9,7] pads=1,1,1,1 strides=2,2",
    "ConvGradX f32[2,6,5,5] f32[6,2,3,3] > f32[2,4,9,9] dilations=2,2 group=2",
    "ConvGradX f32[1,4,3,3] f32[4,2,2,2] > f32[1,2,7,7] strides=2,2",
    "ConvGradX f32[2,5,9] f32[5,3,4] > f32[2,3,11] pads=0,1",
    "ConvGradW f32[2,4,8,8] f32[2,3,8,8] > f32[4,3,3,3] pads=1,1,1,1",
    "ConvGradW f32[1,32,5,4] f32[1,16,9,7] > f32[32,16,3,3] pads=1,1,1,1 strides=2,2",
    "ConvGradW f32[2,6,5,5] f32[2,4,9,9] > f32[6,2,3,3] dilations=2,2 group=2",
    "ConvGradW f32[1,3,3,4,5] f32[1,2,4,5,6] > f32[3,2,2,2,2]",
    /* norms */
    "LayerNormalization f32[4,33] f32[33] f32[33] > f32[4,33] f32[4,1] f32[4,1] axis=1",
    "LayerNormalization f32[2,3,8] f32[3,8] - > f32[2,3,8] f32[2,1,1] - axis=1 epsilon=1e-3",
    "LayerNormalization f32[5,1] f32[1] > f32[5,1] axis=1",
    "LayerNormGrad f32[4,7] f32[4,7] f32[7] f32[4,1] f32[4,1] > f32[4,7] f32[7] f32[7] axis=1",
    "LayerNormGrad f32[70,9] f32[70,9] f32[9] f32[70,1] f32[70,1] > - f32[9] - axis=1",
    "LayerNormGrad f32[2,3,8] f32[2,3,8] f32[3,8] f32[2,1,1] f32[2,1,1] > f32[2,3,8] axis=1",
    "BatchNormalization f32[4,3,5,5] f32[3] f32[3] > f32[4,3,5,5] f32[3] f32[3] f32[3]",
    "BatchNormalization f32[9,17] f32[17] f32[17] > f32[9,17] f32[17] - f32[17]",
    "BatchNormalization f32[2,3,40] f32[3] f32[3] > f32[2,3,40] f32[3] f32[3] f32[3] epsilon=1e-3",
    "BatchNormEval f32[4,3,5,5] f32[3] f32[3] f32[3] f32[3] > f32[4,3,5,5]",
    "BatchNormGrad f32[4,3,5,5] f32[4,3,5,5] f32[3] f32[3] f32[3] > f32[4,3,5,5] f32[3] f32[3]",
    "BatchNormGrad f32[9,17] f32[9,17] f32[17] f32[17] f32[17] > f32[9,17] f32[17] f32[17]",
    "BatchNormGrad f32[2,2,40] f32[2,2,40] f32[2] f32[2] f32[2] > - f32[2] -",
    /* pooling */
    /* in blocks of channels, on one side or both */
    "Conv f32[2,2,9,8,16] f32[32,32,3,3] f32[32] > f32[2,2,9,8,16] pads=1,1,1,1",
    "Conv f32[2,3,9,8] f32[32,3,3,3] - > f32[2,2,5,4,16] pads=1,1,1,1 strides=2,2",
    "Conv f32[2,1,9,8,16] f32[5,16,3,3] f32[5] > f32[2,5,7,6]",
    "Conv f32[2,2,11,16] f32[16,32,3] f32[16] > f32[2,1,9,16]",
    "Conv f32[1,1,4,5,6,16] f32[16,16,2,2,2] - > f32[1,1,3,4,5,16]",
    "ConvGradX f32[2,2,9,8,16] f32[32,16,3,3] > f32[2,1,9,8,16] pads=1,1,1,1",
    "ConvGradX f32[2,1,9,8,16] f32[16,3,3,3] > f32[2,3,9,8] pads=1,1,1,1",
    "ConvGradW f32[2,2,9,8,16] f32[2,1,9,8,16] > f32[32,16,3,3] pads=1,1,1,1",
    "ConvGradW f32[2,1,9,8,16] f32[2,3,9,8] > f32[16,3,3,3] pads=1,1,1,1",
    "MaxPool f32[2,2,8,6,16] > f32[2,2,4,3,16] i32[2,2,4,3,16] kernel=2,2 strides=2,2",
    "MaxPool f32[2,1,9,7,16] > f32[2,1,5,4,16] i32[2,1,5,4,16] kernel=3,3 strides=2,2 pads=1,1,1,1",
    "MaxPool f32[1,1,4,5,6,16] > f32[1,1,3,4,5,16] - kernel=2,2,2",
    "MaxPool f32[1,1,12,16] > f32[1,1,8,16] i32[1,1,8,16] kernel=3 dilations=2",
    "MaxPoolGrad f32[2,2,4,3,16] i32[2,2,4,3,16] > f32[2,2,8,6,16] kernel=2,2 strides=2,2",
    "MaxPoolGrad f32[2,1,5,4,16] i32[2,1,5,4,16] > f32[2,1,9,7,16] kernel=3,3 strides=2,2 "
    "pads=1,1,1,1",
    "AveragePool f32[2,2,8,6,16] > f32[2,2,4,3,16] kernel=2,2 strides=2,2",
    "AveragePool f32[2,1,9,7,16] > f32[2,1,5,4,16] kernel=3,3 strides=2,2 pads=1,1,1,1 countPad=1",
    "AveragePoolGrad f32[2,1,5,4,16] > f32[2,1,9,7,16] kernel=3,3 strides=2,2 pads=1,1,1,1",
    "BatchNormalization f32[3,2,5,7,16] f32[32] f32[32] > f32[3,2,5,7,16] f32[32] f32[32] f32[32]",
    "BatchNormalization f32[3,1,9,16] f32[16] f32[16] > f32[3,1,9,16] f32[16] - -",
    "BatchNormEval f32[3,2,5,7,16] f32[32] f32[32] f32[32] f32[32] > f32[3,2,5,7,16]",
    "BatchNormGrad f32[3,2,5,7,16] f32[3,2,5,7,16] f32[32] f32[32] f32[32] > f32[3,2,5,7,16] "
    "f32[32] f32[32]",
    "BatchNormGrad f32[3,1,9,16] f32[3,1,9,16] f32[16] f32[16] f32[16] > - f32[16] f32[16]",
    "MaxPool f32[2,3,8,8] > f32[2,3,4,4] i32[2,3,4,4] kernel=2,2 strides=2,2",
    "MaxPool f32[2,3,9,75] > f32[2,3,4,37] i32[2,3,4,37] kernel=2,2 strides=2,2",
    "MaxPool f32[2,3,8,32] > f32[2,3,4,16] kernel=2,2 strides=2,2",
    "MaxPool f32[1,2,9,9] > f32[1,2,5,5] kernel=3,3 strides=2,2 pads=1,1,1,1",
    "MaxPool f32[1,2,7,7] > f32[1,2,3,3] i32[1,2,3,3] kernel=3,3 dilations=2,2",
    "MaxPool f32[1,2,8] > f32[1,2,4] i32[1,2,4] kernel=3 strides=2 ceil=1",
    "MaxPool f32[1,1,4,5,6] > f32[1,1,3,4,5] i32[1,1,3,4,5] kernel=2,2,2",
    "MaxPool f32[1,1,10,70] > f32[1,1,4,24] i32[1,1,4,24] kernel=2,2 strides=3,3 pads=0,1,0,1",
    "MaxPoolGrad f32[2,3,4,4] i32[2,3,4,4] > f32[2,3,8,8] kernel=2,2 strides=2,2",
    "AveragePool f32[2,3,8,8] > f32[2,3,4,4] kernel=2,2 strides=2,2",
    "AveragePool f32[1,2,9,9] > f32[1,2,5,5] kernel=3,3 strides=2,2 pads=1,1,1,1",
    "AveragePool f32[1,2,9,9] > f32[1,2,5,5] kernel=3,3 strides=2,2 pads=1,1,1,1 countPad=1",
    "AveragePool f32[1,2,8] > f32[1,2,4] kernel=3 strides=2 ceil=1 countPad=1",
    "MaxPool f32[1,2,2,3] > f32[1,2,6,3] i32[1,2,6,3] kernel=5,9 pads=4,4,4,4",
    "MaxPool f32[1,2,3,2] > f32[1,2,2,3] kernel=4,3 dilations=3,5 strides=4,5 pads=5,9,6,10",
    "MaxPool f32[1,2,1,1] > f32[1,2,2,2] i32[1,2,2,2] kernel=30,40 strides=29,39 pads=29,39,29,39",
    "AveragePool f32[1,2,3] > f32[1,2,2] kernel=50 strides=49 pads=49,49",
    "AveragePoolGrad f32[1,2,2] > f32[1,2,3] kernel=50 strides=49 pads=49,49",
    "AveragePoolGrad f32[2,3,4,4] > f32[2,3,8,8] kernel=2,2 strides=2,2",
    "AveragePoolGrad f32[1,2,5,5] > f32[1,2,9,9] kernel=3,3 strides=2,2 pads=1,1,1,1",
    "AveragePoolGrad f32[1,2,5,5] > f32[1,2,9,9] kernel=3,3 strides=2,2 pads=1,1,1,1 countPad=1",
    /* randomness */
    "Dropout f32[3,1001] > f32[3,1001] ratio=0.25",
    "Dropout f32[5] > f32[5] ratio=0.0",
    "DropoutGrad f32[3,1001] > f32[3,1001] ratio=0.25 key=99",
    /* losses */
    "CrossEntropy f32[9,33] i64[9] > f64[1] i64[1] i64[1] f32[9] axis=1",
    "CrossEntropy f32[20,7] i32[20] > f64[1] i64[1] - f32[20] axis=1 ignoreIndex=3",
    "CrossEntropy f32[2,5,6] u8[2,6] > f64[1] i64[1] i64[1] f32[2,6] axis=1 labelSmoothing=0.1",
    "CrossEntropy f32[4,1] i64[4] > f64[1] axis=1",
    "CrossEntropyGrad f32[9,33] i64[9] f32[9] > f32[9,33] axis=1",
    "CrossEntropyGrad f32[20,7] i32[20] f32[20] > f32[20,7] axis=1 ignoreIndex=3",
    "CrossEntropyGrad f32[2,5,6] u8[2,6] f32[2,6] > f32[2,5,6] axis=1 labelSmoothing=0.1",
    "MeanSquaredError f32[3,7] f32[3,7] > f64[1] i64[1]",
    "MeanSquaredErrorGrad f32[3,7] f32[3,7] > f32[3,7]",
    "BceWithLogits f32[3,7] f32[3,7] > f64[1] i64[1] i64[1]",
    "BceWithLogitsGrad f32[3,7] f32[3,7] > f32[3,7]",
    "GraphLoss f32[] > f64[1] i64[1] samples=5",
};

static const struct rb_key key = {42, 7, 3};

/* One set of memory for a case: each tensor has a margin of poison on both sides. */
enum { MARGIN = 128 };

struct memory {
    void *block[2 * CASE_TENSORS];
    void *in[CASE_TENSORS], *out[CASE_TENSORS];
};

static void *place(struct memory *memory, int k, size_t bytes, size_t shift)
{
    char *block = NULL;

    assert_int_equal(posix_memalign((void **)&block, 4096, bytes + shift + 2 * MARGIN), 0);
    memset(block, 0xff, bytes + shift + 2 * MARGIN); /* NaN, and -1 */
    memory->block[k] = block;
    return block + MARGIN + shift;
}

static void memory_new(const struct rb_case *c, uint64_t seed, size_t shift, struct memory *memory)
{
    memset(memory, 0, sizeof(*memory));
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].dtype != RB_NONE) {
            memory->in[i] = place(memory, i, rb_case_bytes(&c->in[i]), shift);
            rb_case_fill(c, i, seed, memory->in[i]);
        }
    for (int i = 0; i < c->call.n_out; i++)
        if (c->out[i].dtype != RB_NONE)
            memory->out[i] = place(memory, CASE_TENSORS + i, rb_case_bytes(&c->out[i]), shift);
}

static void memory_done(struct memory *memory)
{
    for (int i = 0; i < 2 * CASE_TENSORS; i++)
        free(memory->block[i]);
}

static void check_margin(const char *text, const struct memory *memory, const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_out; i++) {
        const uint8_t *behind = (const uint8_t *)memory->out[i] + rb_case_bytes(&c->out[i]);

        for (int k = 0; memory->out[i] && k < MARGIN; k++)
            if (behind[k] != 0xff || ((const uint8_t *)memory->out[i])[-1 - k] != 0xff)
                fail_msg("%s: output %d is written beyond its ends", text, i);
    }
}

/* The largest difference as a part of the largest number. */
static double normalised_error(const struct rb_tensor_type *type, const void *got, const void *want)
{
    double most = 1e-6, worst = 0;

    for (int64_t i = 0; i < rb_tensor_elements(type); i++)
        most = fmax(most, fabs(rb_reference_get(type, want, i)));
    for (int64_t i = 0; i < rb_tensor_elements(type); i++) {
        double d = fabs(rb_reference_get(type, got, i) - rb_reference_get(type, want, i));

        if (d != d)
            return INFINITY;
        worst = fmax(worst, d / most);
    }
    return worst;
}

static double tolerance(const struct rb_call *call, const struct rb_tensor_type *type)
{
    enum rb_op_kind kind = rb_op_info(call->op)->kind;

    if (type->dtype == RB_BF16 && kind != RB_KIND_MOVE && call->op != RB_OP_CAST)
        return 0x1p-8; /* the next one */
    if (type->dtype != RB_F32 && type->dtype != RB_F64)
        return 0;
    if (kind == RB_KIND_MOVE && call->op != RB_OP_GATHER_GRAD)
        return 0;
    return type->dtype == RB_F64 && kind != RB_KIND_LOSS ? 1e-15 : 2e-6;
}

static void run_case(struct rb_device *device, const char *text, struct rb_case c, uint64_t seed)
{
    struct rb_kernel *kernel = NULL;
    struct memory got, again, want;
    struct rb_why why = {{0}};

    c.call.in = c.in; /* it is a copy */
    c.call.out = c.out;
    c.call.attributes = c.attributes;
    if (rb_kernel_prepare(device, &c.call, &kernel, &why) != 0)
        fail_msg("%s: %s", text, why.text);
    memory_new(&c, seed, 0, &got);
    memory_new(&c, seed, 64 * (1 + seed % 5), &again);
    memory_new(&c, seed, 0, &want);
    rb_kernel_run(kernel, (const void *const *)got.in, got.out, &key);
    rb_kernel_run(kernel, (const void *const *)again.in, again.out, &key);
    rb_reference_table[c.call.op](&c.call, (const void *const *)want.in, want.out, &key);
    for (int i = 0; i < c.call.n_out; i++) {
        double error;

        if (c.out[i].dtype == RB_NONE)
            continue;
        error = normalised_error(&c.out[i], got.out[i], want.out[i]);
        if (error > tolerance(&c.call, &c.out[i]))
            fail_msg("%s: output %d is off by %g of the largest", text, i, error);
        if (memcmp(got.out[i], again.out[i], rb_case_bytes(&c.out[i])) != 0)
            fail_msg("%s: output %d has other bits at another address", text, i);
    }
    check_margin(text, &got, &c);
    check_margin(text, &again, &c);
    /* The same call prepared anew, after everything else that has run. */
    rb_kernel_free(kernel);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &kernel, &why), 0);
    rb_kernel_run(kernel, (const void *const *)again.in, again.out, &key);
    for (int i = 0; i < c.call.n_out; i++)
        if (got.out[i])
            assert_memory_equal(got.out[i], again.out[i], rb_case_bytes(&c.out[i]));
    rb_kernel_free(kernel);
    memory_done(&got);
    memory_done(&again);
    memory_done(&want);
}

static void every_case_agrees(void **state)
{
    struct rb_device *device;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct rb_case c;

        rb_case_read(cases[i], &c);
        run_case(device, cases[i], c, i + 1);
    }
    rb_device_close(device);
}

/* Every product with factors of bfloat16, and with an output of it; as oneDNN has it, and with
 * float32 copies. */
static void products_of_bfloat(void **state)
{
    struct rb_device *device;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct rb_case c;

        rb_case_read(cases[i], &c);
        if (rb_op_info(c.call.op)->kind != RB_KIND_PRODUCT)
            continue;
        c.in[0].dtype = c.in[1].dtype = RB_BF16;
        for (int way = 0; way < 4; way++) {
            c.out[0].dtype = way & 1 ? RB_BF16 : RB_F32;
            ((struct rb_cpu *)device)->bfloat = way & 2;
            run_case(device, cases[i], c, i + 1);
        }
    }
    rb_device_close(device);
}

/* What rounding meets: halves, ends, NaN, the smallest. */
static void bfloat_of_all_kinds(void **state)
{
    static const uint32_t bits[] = {0,          0x80000000, 0x3f808000, 0x3f818000, 0x3f808001,
                                    0x3f7fffff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                    0x7f800001, 0xffffffff, 0x7fffffff, 0x00000001, 0x00008000,
                                    0x00018000, 0x807fffff, 0x7f7f7fff, 0x7f7f8000};
    const struct rb_tensor_type wide = {RB_F32, 1, {RB_COUNT(bits)}};
    const struct rb_tensor_type narrow = {RB_BF16, 1, {RB_COUNT(bits)}};
    struct rb_call call = {.op = RB_OP_CAST, .n_in = 1, .n_out = 1, .in = &wide, .out = &narrow};
    uint16_t rounded[RB_COUNT(bits)];
    float back[RB_COUNT(bits)];
    struct rb_device *device;
    struct rb_kernel *kernel;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    assert_int_equal(rb_kernel_prepare(device, &call, &kernel, &why), 0);
    rb_kernel_run(kernel, (const void *[]){bits}, (void *[]){rounded}, &key);
    rb_kernel_free(kernel);
    call.in = &narrow;
    call.out = &wide;
    assert_int_equal(rb_kernel_prepare(device, &call, &kernel, &why), 0);
    rb_kernel_run(kernel, (const void *[]){rounded}, (void *[]){back}, &key);
    rb_kernel_free(kernel);
    for (size_t i = 0; i < RB_COUNT(bits); i++) {
        uint32_t again;
        float x;

        memcpy(&x, &bits[i], sizeof(x));
        assert_int_equal(rounded[i], rb_dtype_to_bfloat(x));
        memcpy(&again, &back[i], sizeof(again));
        assert_int_equal(again, (uint32_t)rounded[i] << 16);
    }
    rb_device_close(device);
}

static void every_operator_has_a_case(void **state)
{
    bool seen[RB_OP_COUNT] = {false};
    struct rb_case c;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        rb_case_read(cases[i], &c);
        seen[c.call.op] = true;
    }
    for (unsigned op = 1; op < RB_OP_COUNT; op++)
        if (!seen[op])
            fail_msg("no case of %s", rb_op_info(op)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_case),
        cmocka_unit_test(every_case_agrees),
        cmocka_unit_test(products_of_bfloat),
        cmocka_unit_test(bfloat_of_all_kinds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
