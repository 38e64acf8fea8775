#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A model whose weights lie in an external file of more than 2 GiB: checked, submitted, trained, exported, compared.

usage: external.py [WIDTH]          needs onnx, 15 GB of memory and of disk

x > Gemm > Relu > Gemm, WIDTH x WIDTH (16500: 1.02 GiB), > Relu > Gemm, the same > Relu > Gemm > classes.  One step of
SGD on two samples is done here by NumPy too, and every tensor of the export is held to that.
"""
import json
import mmap
import os
import sys
import time

import numpy
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import cluster  # noqa: E402
from cluster import check  # noqa: E402

INPUTS, CLASSES, RATE = 16, 8, 0.5
ROWS = 250  # of a weight that are handled at a time


def shapes(width):
    return {"a": (width, INPUTS), "b": (width, width), "c": (width, width), "d": (CLASSES, width)}


def write_weights(path, width):
    """Writes the weights, of which none is held in memory; returns the offset of each."""
    draw, offsets = numpy.random.Generator(numpy.random.PCG64(3)), {}
    with open(path, "wb") as out:
        for name, shape in shapes(width).items():
            offsets[name] = out.tell()
            for row in range(0, shape[0], ROWS):
                part = draw.standard_normal((min(ROWS, shape[0] - row), shape[1]), dtype="float32")
                out.write((part / numpy.float32(shape[1] ** 0.5)).tobytes())
    return offsets


def write_model(path, data, width, offsets):
    weights = []
    for name, shape in shapes(width).items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape,
                             data_location=TensorProto.EXTERNAL)
        for key, value in (("location", os.path.basename(data)), ("offset", offsets[name]),
                           ("length", 4 * shape[0] * shape[1])):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
    nodes, x = [], "x"
    for name in shapes(width):
        nodes.append(helper.make_node("Gemm", [x, name], ["y" + name], transB=1))
        nodes.append(helper.make_node("Relu", ["y" + name], ["z" + name]))
        x = "z" + name
    graph = helper.make_graph(nodes[:-1], "large", [helper.make_tensor_value_info("x", 1, ["batch", INPUTS])],
                              [helper.make_tensor_value_info("yd", 1, ["batch", CLASSES])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with open(path, "wb") as out:
        out.write(model.SerializeToString())


def mapped(path, offsets, width):
    file = open(path, "rb")
    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {name: numpy.frombuffer(view, "float32", shape[0] * shape[1], offsets[name]).reshape(shape)
            for name, shape in shapes(width).items()}


def exported(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    return {name: 8 + size + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}


def expected(before, x, labels):
    """What each weight loses: a product of two thin matrices, (out, samples) and (samples, in)."""
    names, inputs = list(before), [x]
    for name in names:
        y = inputs[-1] @ before[name].T
        inputs.append(numpy.maximum(y, 0) if name != names[-1] else y)
    e = numpy.exp(inputs[-1] - inputs[-1].max(1, keepdims=True))
    back = (e / e.sum(1, keepdims=True) - numpy.eye(CLASSES, dtype="float32")[labels]) / len(x)
    steps = {}
    for i in reversed(range(len(names))):
        steps[names[i]] = (RATE * back.T, inputs[i])
        back = (back @ before[names[i]]) * (inputs[i] > 0)
    return steps


def compare(before, after, steps):
    for name, (left, right) in steps.items():
        most, largest = 0.0, 0.0
        for row in range(0, len(left), ROWS):
            want = left[row:row + ROWS] @ right
            got = before[name][row:row + ROWS] - after[name][row:row + ROWS]
            most, largest = max(most, float(abs(got - want).max())), max(largest, float(abs(want).max()))
        print(f"{name}: a step of at most {largest:.2e} is met to {most:.1e}")
        check(most < 1e-6 + 1e-4 * largest, name)


def main():
    width = int(sys.argv[1]) if len(sys.argv) > 1 else 16500
    draw = numpy.random.RandomState(1)
    x, labels = draw.standard_normal((2, INPUTS)).astype("float32"), numpy.array([1, 5])
    with cluster.Cluster(devices=1) as c:
        model, data = c.path("large.onnx"), c.path("large.onnx.data")
        offsets = write_weights(data, width)
        write_model(model, data, width, offsets)
        print(f"{os.path.getsize(data) / 2**30:.2f} GiB in {os.path.basename(data)}", flush=True)
        numpy.save(c.path("x.npy"), x)
        numpy.save(c.path("labels.npy"), labels)
        start = time.monotonic()
        report = c.json("model", "check", model, timeout=600)
        check(report["trainable"] and report["parameters"] == sum(a * b for a, b in shapes(width).values()), report)
        print(f"checked in {time.monotonic() - start:.1f} s", flush=True)
        start = time.monotonic()
        c.ctl("submit", "-f", c.job_file("large", {
            "model": {"onnx": "large.onnx"}, "data": {"train": {"path": "x.npy", "targets": "labels.npy"}},
            "train": {"steps": 1, "globalBatch": 2, "microBatch": 1, "optimizer": {"type": "sgd", "lr": RATE}},
            "devices": {"min": 1, "max": 1, "want": 1}}), timeout=600)
        print(f"submitted in {time.monotonic() - start:.1f} s", flush=True)
        start = time.monotonic()
        c.wait("large", "done", 600)
        print(f"trained in {time.monotonic() - start:.1f} s", flush=True)
        start = time.monotonic()
        c.ctl("export", "large", "--out", c.path("out.safetensors"), timeout=600)
        print(f"exported in {time.monotonic() - start:.1f} s", flush=True)
        before = mapped(data, offsets, width)
        compare(before, mapped(c.path("out.safetensors"), exported(c.path("out.safetensors")), width),
                expected(before, x, labels))


cluster.main(main)
