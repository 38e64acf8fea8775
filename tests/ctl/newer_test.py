#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Operators that are newer than the public backend tests, in the same form: newer_test.py RUBATOCTL

The expected outputs are computed here, by NumPy, from the operators' definitions.  A wrong expectation and a broken
model must be seen as failures, each of its own folder alone."""
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    sys.exit(77)

draw = numpy.random.RandomState(3)
cases = []


def case(name, opset, inputs, outputs, **attributes):
    cases.append((name, opset, inputs, outputs, attributes))


def real(*shape):
    return draw.standard_normal(shape).astype("float32")


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, mask=None, causal=False, scale=None, cap=None, past=0):
    n = q.shape[1] // k.shape[1]
    k, v = k.repeat(n, 1), v.repeat(n, 1)
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if cap:
        scores = cap * numpy.tanh(scores / cap)
    if causal:
        scores = numpy.where(numpy.tril(numpy.ones(scores.shape[-2:], bool), past), scores, -numpy.inf)
    if mask is not None:
        scores = numpy.where(mask, scores, -numpy.inf) if mask.dtype == bool else scores + mask
    return (softmax(scores) @ v).astype("float32")


def heads(x, n):
    return x.reshape(x.shape[0], x.shape[1], n, -1).swapaxes(1, 2)


def rotary(x, cos, sin, interleaved):
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    a, b = a * cos - b * sin, a * sin + b * cos
    return numpy.stack((a, b), -1).reshape(x.shape) if interleaved else numpy.concatenate((a, b), -1)


def make():
    q, k, v = real(2, 4, 3, 6), real(2, 2, 5, 6), real(2, 2, 5, 4)
    mask = numpy.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 0], [0, 1, 1, 1, 1]], bool)
    case("Attention", 23, [q, k, v], [attention(q, k, v)])
    case("Attention", 23, [q, k, v, mask], [attention(q, k, v, mask)])
    bias = real(2, 1, 3, 5)
    case("Attention", 23, [q, k, v, bias], [attention(q, k, v, bias)])
    f, g, h = real(2, 3, 8), real(2, 3, 4), real(2, 3, 6)
    y = attention(heads(f, 4), heads(g, 2), heads(h, 2), causal=True, scale=0.4)
    case("Attention", 23, [f, g, h], [y.swapaxes(1, 2).reshape(2, 3, 12)],
         q_num_heads=4, kv_num_heads=2, is_causal=1, scale=0.4)

    case("Attention", 23, [q, k, v], [attention(q, k, v, causal=True), k, v,
                                      q @ k.repeat(2, 1).swapaxes(-1, -2) / numpy.float32(math.sqrt(6))], is_causal=1)
    case("Attention", 23, [q, k, v, mask], [attention(q, k, v, mask, cap=0.7)], softcap=0.7)
    before = [real(2, 2, 3, 6), real(2, 2, 3, 4)]
    both = [numpy.concatenate((a, b), 2) for a, b in zip(before, (k, v))]
    case("Attention", 23, [q, k, v, None, *before], [attention(q, *both, causal=True, past=3), *both], is_causal=1)

    x, cos, sin = real(2, 3, 4, 6), real(9, 2), real(9, 2)
    places = draw.randint(0, 9, (2, 4)).astype("int64")
    y = x.copy()
    y[..., :4] = rotary(x[..., :4], cos[places][:, None], sin[places][:, None], False)
    case("RotaryEmbedding", 23, [x, cos, sin, places], [y], rotary_embedding_dim=4)
    x, cos, sin = real(2, 3, 12), real(2, 3, 3), real(2, 3, 3)
    y = rotary(x.reshape(2, 3, 2, 6), cos[:, :, None], sin[:, :, None], True).reshape(2, 3, 12)
    case("RotaryEmbedding", 23, [x, cos, sin], [y], interleaved=1, num_heads=2)

    x, s = real(2, 3, 4), real(3, 4)
    y = x / numpy.sqrt((x * x).mean((1, 2), keepdims=True) + 1e-5) * s
    case("RMSNormalization", 23, [x, s], [y.astype("float32")], axis=1)

    x, s, b = real(2, 4, 3, 2), real(4), real(4)
    rows = x.reshape(2, 2, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / numpy.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    rows = rows.reshape(x.shape)
    case("GroupNormalization", 21, [x, s, b], [rows * s.reshape(4, 1, 1) + b.reshape(4, 1, 1)], num_groups=2)
    s, b = s[:2], b[:2]
    case("GroupNormalization", 18, [x, s, b],
         [rows * s.repeat(2).reshape(4, 1, 1) + b.repeat(2).reshape(4, 1, 1)], num_groups=2)

    x = real(3, 4) * 2
    erf = numpy.vectorize(math.erf)
    case("Gelu", 20, [x], [(x * (1 + erf(x / math.sqrt(2))) / 2).astype("float32")])
    case("Gelu", 20, [x], [(x * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2).astype("float32")],
         approximate="tanh")
    case("Mish", 18, [x], [(x * numpy.tanh(numpy.log1p(numpy.exp(x)))).astype("float32")])
    x = real(2, 3 * 4, 6)
    image = numpy.zeros((2, 3, 3, 6), "float32")  # one column of padding at the end
    for i in range(6):
        row, column = i // 3, i % 3 * 2
        image[:, :, row:row + 2, column:column + 2] += x[:, :, i].reshape(2, 3, 2, 2)
    case("Col2Im", 18, [x, numpy.array([3, 5], "int64"), numpy.array([2, 2], "int64")],
         [numpy.ascontiguousarray(image[..., :5])], strides=[1, 2], pads=[0, 0, 0, 1])
    for n in 7, 8, 12:
        x = real(2, 5, 2, 2)
        y = numpy.fft.irfft(x[..., 0] + 1j * x[..., 1], n, 1)[..., None].astype("float32")
        case("DFT", 17, [x, numpy.int64(n)], [y], inverse=1, onesided=1)
        if n == 8:
            case("DFT", 17, [x], [y], inverse=1, onesided=1)
    x = real(1, 9)  # to thirds: tents three wide, of the part that lies inside
    tent = numpy.array([1, 2, 3, 2, 1], "float32")
    y = [[(x[0, :4] * tent[1:]).sum() / 8, (x[0, 2:7] * tent).sum() / 9, (x[0, 5:] * tent[:4]).sum() / 8]]
    case("Resize", 18, [x, None, None, numpy.array([1, 3], "int64")], [numpy.array(y, "float32")],
         mode="linear", antialias=1, exclude_outside=1)
    x, y = real(4, 3), softmax(real(4, 3))
    case("SoftmaxCrossEntropyLoss", 17, [x, y], [(-(y * numpy.log(softmax(x))).sum(1)).mean()])
    axes = numpy.array([0, -1], "int64")
    x = real(2, 3, 4)
    for op, f in (("ReduceMean", numpy.mean), ("ReduceMax", numpy.max), ("ReduceProd", numpy.prod),
                  ("ReduceL1", lambda a, *r, **k: numpy.abs(a).sum(*r, **k))):
        case(op, 18, [x, axes], [f(x, axis=(0, 2), keepdims=True).astype("float32")])
    case("ReduceSum", 18, [x, numpy.zeros(0, "int64")], [x], noop_with_empty_axes=1)
    x = real(2, 7)
    case("Split", 18, [x], [x[:, :3], x[:, 3:6], x[:, 6:]], axis=1, num_outputs=3)
    pads = numpy.array([1, 2], "int64")
    case("Pad", 18, [x, pads, numpy.float32(3), numpy.array([1], "int64")],
         [numpy.pad(x, ((0, 0), (1, 2)), constant_values=3)])
    case("Pad", 19, [x, numpy.array([0, 3, 0, 5], "int64")], [numpy.pad(x, ((0, 0), (3, 5)), mode="wrap")],
         mode="wrap")
    x = real(2, 3)
    scales = numpy.array([2, 3], "float32")
    case("Resize", 18, [x, None, scales[1:]], [x.repeat(3, 1)], axes=[1], coordinate_transformation_mode="asymmetric",
         nearest_mode="floor", mode="nearest")
    for policy, times in (("not_larger", 2), ("not_smaller", 3)):
        case("Resize", 18, [x, None, None, numpy.array([6, 6], "int64")], [x.repeat(times, 0).repeat(times, 1)],
             keep_aspect_ratio_policy=policy, axes=[0, -1], coordinate_transformation_mode="asymmetric",
             nearest_mode="floor", mode="nearest")
    for reduction, f in (("max", max), ("min", min), ("mul", lambda a, b: a * b)):
        data, index, updates = real(5), numpy.array([1, 3, 1], "int64"), real(3)
        y = data.copy()
        for i, u in zip(index, updates):
            y[i] = f(y[i], u)
        case("ScatterElements", 18, [data, index, updates], [y], reduction=reduction)
    small_numbers()
    indices_outside()
    windows_that_meet_nothing()
    layer_norms()
    labels_that_are_none()
    case("Range", 17, [numpy.float32(1), numpy.float32(3), numpy.float32(0.5)], [numpy.arange(1, 3, 0.5, "float32")])
    large_unsigned()
    least_of_all()


def large_unsigned():
    """The larger half of uint64 is negative if it is taken for int64."""
    x = numpy.array([2**63 + 2**40, 2**64 - 1, 7], "uint64")
    case("Cast", 17, [x], [x.astype("float32")], to=TensorProto.FLOAT)
    case("Abs", 17, [x], [x])
    case("Sign", 17, [x * numpy.array([1, 1, 0], "uint64")], [numpy.array([1, 1, 0], "uint64")])
    x = numpy.array([[2**63, 3, 2**64 - 1, 0], [2**63 - 1, 2**63, 1, 5]], "uint64")
    for keepdims in 0, 1:
        whole = {"axis": 1, "keepdims": bool(keepdims)}
        case("ReduceMax", 13, [x], [x.max(**whole)], axes=[1], keepdims=keepdims)
        case("ReduceMin", 13, [x], [x.min(**whole)], axes=[1], keepdims=keepdims)
        case("ReduceL1", 13, [x], [x.sum(**whole)], axes=[1], keepdims=keepdims)
    case("ArgMax", 13, [x], [x.argmax(1)[:, None]], axis=1)
    case("ArgMin", 13, [x], [x.argmin(1)[:, None]], axis=1)
    places = numpy.argsort(x, 1)
    for largest, best in (1, places[:, :-3:-1]), (0, places[:, :2]):
        best = numpy.ascontiguousarray(best)
        case("TopK", 11, [x, numpy.array([2], "int64")], [numpy.take_along_axis(x, best, 1), best], largest=largest)
    low, high = numpy.uint64(4), numpy.uint64(2**63 + 9)
    case("Clip", 13, [x, low, high], [x.clip(low, high)])
    case("Clip", 13, [x, None, high], [numpy.minimum(x, high)])
    case("Max", 13, [x, high], [numpy.maximum(x, high)])
    case("Min", 13, [x, high], [numpy.minimum(x, high)])
    for op, f in (("Less", numpy.less), ("Greater", numpy.greater), ("LessOrEqual", numpy.less_equal),
                  ("GreaterOrEqual", numpy.greater_equal)):
        case(op, 16, [x, x[:, 1:2]], [f(x, x[:, 1:2])])
    case("PRelu", 16, [x, numpy.uint64(2)], [x])
    updates = numpy.array([[5], [2**63 + 1]], "uint64")
    for reduction, f in ("max", numpy.maximum), ("min", numpy.minimum):
        y = x.copy()
        y[:, :1] = f(y[:, :1], updates)
        case("ScatterElements", 18, [x, numpy.zeros((2, 1), "int64"), updates], [y], axis=1, reduction=reduction)
        places = numpy.array([[0, 0], [1, 0]], "int64")
        case("ScatterND", 18, [x, places, updates[:, 0]], [y], reduction=reduction)


def least_of_all():
    """The least integer is its own opposite."""
    for kind in "int8", "int32", "int64":
        least = numpy.iinfo(kind).min
        x = numpy.array([[least, 4, least + 1], [-1, 0, numpy.iinfo(kind).max]], kind)
        case("ReduceMin", 13, [x], [x.min(1)], axes=[1], keepdims=0)
        case("ReduceMax", 13, [x], [x.max(1)], axes=[1], keepdims=0)


def small_numbers():
    """e to the x less 1 keeps the digits of a small x, which a large factor shows."""
    x = numpy.array([-1e-6, -3e-5, -1e-8, 2e-6, -2], "float32")
    below = numpy.minimum(x, 0).astype("float64")
    case("Elu", 17, [x], [numpy.where(x > 0, x, 1e4 * numpy.expm1(below)).astype("float32")], alpha=1e4)
    case("Celu", 17, [x * 1000], [numpy.where(x > 0, x * 1000, 1e5 * numpy.expm1(below / 100)).astype("float32")],
         alpha=1e5)
    case("Selu", 17, [x], [numpy.where(x > 0, 2 * x, 2e4 * numpy.expm1(below)).astype("float32")], alpha=1e4, gamma=2.0)


def indices_outside():
    """An index beyond its own axis, though the tensor is long enough, reads a NaN and writes nothing."""
    x = real(2, 3)
    places = numpy.array([[0, 3], [1, -4], [-3, 2], [-1, -1], [2, 0]], "int64")
    case("GatherND", 17, [x, places], [numpy.array([numpy.nan] * 3 + [x[1, 2], numpy.nan], "float32")])
    case("GatherND", 17, [x, places[:, :1]], [numpy.array([x[0], x[1], [numpy.nan] * 3, x[1], [numpy.nan] * 3], "float32")])
    case("GatherND", 17, [x, numpy.array([[3], [-2]], "int64")], [numpy.array([numpy.nan, x[1, 1]], "float32")],
         batch_dims=1)
    y, updates = x.copy(), real(5)
    y[1, 2] = updates[3]
    case("ScatterND", 17, [x, places, updates], [y])


def windows_that_meet_nothing():
    """A transposed convolution's output_padding may be as much as the dilation allows."""
    for stride, dilation, pads, more in (1, 3, (0, 0), 2), (2, 4, (1, 0), 3), (1, 3, (0, 1), 2), (1, 4, (2, 1), 3):
        x, w, bias = real(2, 3, 5), real(3, 2, 3), real(2)
        full = numpy.zeros((2, 2, stride * 4 + dilation * 2 + 1 + more))
        for i in range(5):
            for k in range(3):
                full[:, :, i * stride + k * dilation] += x[:, :, i] @ w[:, :, k]
        y = full[:, :, pads[0]:full.shape[2] - pads[1]] + bias[:, None]
        case("ConvTranspose", 17, [x, w, bias], [y.astype("float32")], strides=[stride], dilations=[dilation],
             pads=list(pads), output_padding=[more])


def layer_norms():
    """Scale and bias are broadcast, to what is normalized or to all of x."""
    for axis, scale, bias in (-1, (1,), (4,)), (1, (4,), (1, 4)), (-1, (3, 1), None), (2, (2, 1, 4), (3, 4)):
        x, a, b = real(2, 3, 4), real(*scale), real(*bias) if bias else None
        axes = tuple(range(axis % 3, 3))
        y = (x - x.mean(axes, keepdims=True)) / numpy.sqrt(x.var(axes, keepdims=True) + 1e-5) * a
        y = y if b is None else y + b
        case("LayerNormalization", 17, [x, a, b] if bias else [x, a], [y.astype("float32")], axis=axis)


def labels_that_are_none():
    """A label that is no class gives a NaN as loss, unless it is the one that is ignored."""
    scores = numpy.log(softmax(real(5, 3)))
    labels = numpy.array([2, -1, 3, 0, 7], "int64")
    rows = numpy.array([-scores[0, 2], numpy.nan, numpy.nan, -scores[3, 0], 0], "float32")
    for op in "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss":
        case(op, 17, [scores, labels], [rows], reduction="none", ignore_index=7)
        case(op, 17, [scores, labels], [numpy.float32(numpy.nan)], ignore_index=7)
        case(op, 17, [scores[[0, 3, 4]], labels[[0, 3, 4]]], [rows[[0, 3]].mean()], ignore_index=7)
        case(op, 17, [scores, labels, numpy.ones(3, "float32")], [numpy.float32(numpy.nan)], reduction="sum")


def write(folder, number, op, opset, inputs, outputs, attributes, known=False):
    """known: the inputs are constants of the model."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    inputs = [x for x in inputs if x is not None]
    made = [f"y{i}" for i in range(len(outputs))]

    def info(name, array):
        return helper.make_tensor_value_info(name, onnx.mapping.NP_TYPE_TO_TENSOR_TYPE[array.dtype], array.shape)

    named = [(n, numpy.asarray(a)) for n, a in zip(filter(None, names), inputs)]
    graph = helper.make_graph([helper.make_node(op, names, made, **attributes)], "case",
                              [] if known else [info(*pair) for pair in named],
                              [info(n, a) for n, a in zip(made, outputs)],
                              [numpy_helper.from_array(a, n) for n, a in named] if known else [])
    inputs = [] if known else inputs
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    path = os.path.join(folder, f"{op.lower()}-{number}")
    os.makedirs(os.path.join(path, "test_data_set_0"))
    with open(os.path.join(path, "model.onnx"), "wb") as out:
        out.write(model.SerializeToString())
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, array in enumerate(arrays):
            with open(os.path.join(path, f"test_data_set_0/{kind}_{i}.pb"), "wb") as out:
                out.write(numpy_helper.from_array(numpy.asarray(array)).SerializeToString())


def run(folder):
    done = subprocess.run([sys.argv[1], "-o", "json", "model", "test", folder], stdout=subprocess.PIPE)
    return done.returncode, json.loads(done.stdout or "{}")


def failures_are_seen(folder):
    """Three folders: one right, one with another shape expected, one with half a model."""
    x = real(2, 3)
    write(folder, 1, "Relu", 17, [x], [numpy.maximum(x, 0)], {})
    write(folder, 2, "Relu", 17, [x], [numpy.maximum(x, 0)[:, :2]], {})
    write(folder, 3, "Relu", 17, [x], [numpy.maximum(x, 0)], {})
    os.truncate(os.path.join(folder, "relu-3/model.onnx"), 40)
    code, report = run(folder)
    return (code == 1 and report["passed"] == ["relu-1"] and report["failed"] == ["relu-2", "relu-3"] and
            run(folder + "/relu-1") == (0, {"passed": ["relu-1"], "failed": [], "unsupported": [], "reasons": {}}) and
            run(folder + "/nowhere")[0] == 3)


def main():
    make()
    with tempfile.TemporaryDirectory() as folder:
        for number, (op, opset, inputs, outputs, attributes) in enumerate(cases):
            write(folder, number, op, opset, inputs, outputs, attributes)
            write(os.path.join(folder, "known"), number, op, opset, inputs, outputs, attributes, known=True)
        code, report = run(folder)
    with tempfile.TemporaryDirectory() as folder:
        seen = failures_are_seen(folder)
    for name, why in report["reasons"].items():
        print(f"{name}: {why}")
    print(f"{len(report['passed'])} of {2 * len(cases)}")
    if not seen:
        print("a failure was not seen, or not where it was")
    return 0 if len(report["passed"]) == 2 * len(cases) and code == 0 and seen else 1


if __name__ == "__main__":
    sys.exit(main())
