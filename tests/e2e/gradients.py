#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The gradient of each whole model, one tensor at a time, against PyTorch's in double precision.

usage: gradients.py [FAMILY...]          needs torch

One step of plain SGD with a learning rate of 2^19 leaves w - 2^19 g: all but the last bits of the exported weights are
the gradient.  The error of PyTorch's own float32 is measured too; a tensor is held to a few times that.
"""
import os
import sys

try:
    import torch
except ImportError:
    print("python3-torch is not installed")
    sys.exit(77)

import glob
import gzip
import json
import struct

import numpy

import cluster
from cluster import check

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models")
sys.path.insert(0, MODELS)
import families  # noqa: E402
import reference  # noqa: E402

RATE = 2.0**19
FAMILIES = ("mlp", "resnet18", "resnet50", "lstm", "gpt2", "bert", "vit", "llama", "zoo")
TOLERANCE = 2e-5  # relative, in the norm of a tensor
TIMES = 8         # or so many times the error of PyTorch's float32
SMALLEST = 1e-4   # of the largest tensor's norm: below it a gradient is nothing but rounding (an attention's key.bias)


def read_safetensors(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            tensors[name] = numpy.frombuffer(data[start:end], dtype="float32").reshape(entry["shape"])
    return tensors


def found_gradients(c, family):
    fixture = sorted(glob.glob(os.path.join(MODELS, f"fixtures/{family}-[0-9]*.onnx.gz")))[-1]
    with open(c.path(family + ".onnx"), "wb") as out, gzip.open(fixture) as model:
        out.write(model.read())
    with open(os.path.join(MODELS, "fixtures/index.json")) as file:
        shapes = json.load(file)[family]["parameters"]
    weights = {name: families.weight(name, tuple(shape)) for name, shape in shapes.items()}
    families.write_safetensors(c.path(family + ".safetensors"), weights)
    spec = families.spec(family, family + ".onnx")
    spec["train"].update({"steps": 1, "optimizer": {"type": "sgd", "lr": RATE, "weightDecay": 0}})
    job = family + "-1"
    c.submit(job, spec)
    c.wait(job, "done")
    c.export(job)
    after = read_safetensors(c.path(job + ".safetensors"))
    return {name: (weight - after[name].astype("float64")) / RATE for name, weight in weights.items()}


def compare(c, family):
    truth, single = reference.gradients(family), reference.gradients(family, torch.float32)
    found = found_gradients(c, family)
    norm = {name: float(numpy.linalg.norm(g)) for name, g in truth.items()}
    least, worst = SMALLEST * max(norm.values()), (0, 0, "")
    check(set(found) == set(truth), f"{family}: {set(found) ^ set(truth)}")
    for name, g in truth.items():
        scale = max(norm[name], least)
        ours = float(numpy.linalg.norm(found[name] - g)) / scale
        theirs = float(numpy.linalg.norm(single[name] - g)) / scale
        worst = max(worst, (ours, theirs, name))
        check(ours < max(TOLERANCE, TIMES * theirs),
              f"{family}: the gradient of {name} is off by {ours:.1e}, PyTorch's float32 by {theirs:.1e}")
    print(f"{family}: {len(truth)} tensors, off by at most {worst[0]:.1e} ({worst[2]}; "
          f"PyTorch's float32: {worst[1]:.1e})", flush=True)


def main():
    torch.set_num_threads(1)
    with cluster.Cluster(devices=1) as c:
        families.write_data(c.folder)
        for family in sys.argv[1:] or FAMILIES:
            compare(c, family)


cluster.main(main)
