# SPDX-License-Identifier: Apache-2.0
"""The model families that PyTorch's exporter is tried with: their data, weights and job specs.

Nothing here needs torch: weights and data are functions of names and seeds, so that fixtures hold neither (`record.py`
makes the fixtures, tests/e2e/families.py trains them).
"""
import gzip
import json
import struct
import zlib

import numpy

STEPS = 20
VOCAB, SEQ = 256, 12

# family: kind of data, optimizer, learning rate, samples in a step and in a microbatch
# (BatchNormalization: all).  A ResNet of this size is chaotic: with steps as large as the others', PyTorch in float32
# is as far from PyTorch in float64 as from any other program.
FAMILIES = {
    "mlp": ("vectors", "adamw", 3.0e-3, 8, 4),
    "resnet18": ("images", "sgd", 2.0e-3, 16, 16),
    "resnet50": ("images", "sgd", 1.0e-4, 16, 16),
    "vit": ("images", "adamw", 3.0e-3, 8, 4),
    "zoo": ("images", "adamw", 1.0e-3, 8, 4),
    "lstm": ("text", "adamw", 3.0e-3, 8, 4),
    "gpt2": ("text", "adamw", 3.0e-3, 8, 4),
    "bert": ("tokens", "adamw", 3.0e-3, 8, 4),
    "llama": ("text", "adamw", 3.0e-3, 8, 4),
    "modern": ("text", "adamw", 3.0e-3, 8, 4),
}
CLASSES = {"vectors": 10, "images": 10, "tokens": 5, "text": VOCAB}


def weight(name, shape):
    """The initial value of the parameter `name`: norms near 1, biases near 0, rows of length near 1."""
    draw = numpy.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) < 2:
        last = 0.2 if name.endswith("bn3.weight") else 1.0  # a bottleneck's last norm: the sum stays tame
        return last * ((1.0 if name.endswith("weight") else 0.0) + 0.1 * draw).astype("float32")
    fan = numpy.prod(shape[1:])
    return (draw / numpy.sqrt(max(fan, 1))).astype("float32")


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            out.write(array.tobytes())


def unpack(fixture, path):
    with open(path, "wb") as out, gzip.open(fixture) as model:
        out.write(model.read())


def arrays(kind):
    """Features and targets: one array each, a row a sample; text is bytes and has no targets."""
    draw = numpy.random.RandomState(7)
    if kind == "text":
        return draw.randint(0, 64, 40 * SEQ + 1).astype("uint8"), None
    n = 60
    shape = {"vectors": (20,), "images": (3, 32, 32), "tokens": (SEQ,)}[kind]
    if kind == "tokens":
        features = draw.randint(1, VOCAB, (n,) + shape).astype("int64")
        features[draw.random_sample(features.shape) < 0.2] = 0
        features[:, 0] = 1
    else:
        features = draw.standard_normal((n,) + shape).astype("float32")
    return features, draw.randint(0, CLASSES[kind], n).astype("int64")


def sample(features, targets, i):
    if targets is None:
        part = features[i * SEQ:(i + 1) * SEQ + 1].astype("int64")
        return part[:-1], part[1:]
    return features[i], targets[i]


def count(features, targets):
    return (len(features) - 1) // SEQ if targets is None else len(features)


def optimizer(family):
    _, how, lr, _, _ = FAMILIES[family]
    if how == "sgd":
        return {"type": "sgd", "lr": lr, "momentum": 0.9, "weightDecay": 1.0e-4}
    return {"type": "adamw", "lr": lr, "weightDecay": 0.1}


def spec(family, onnx):
    kind, _, _, batch, micro = FAMILIES[family]
    train = {"path": f"{kind}.npy", "targets": f"{kind}-targets.npy"}
    if kind == "text":
        train = {"path": "text.txt", "format": "text", "seqLen": SEQ}
    return {
        "model": {"onnx": onnx, "weights": f"{family}.safetensors"},
        "data": {"train": train},
        "train": {"steps": STEPS, "globalBatch": batch, "microBatch": micro,
                  "optimizer": optimizer(family)},
        "devices": {"min": 1, "max": 3, "want": 1},
    }


def write_data(folder):
    for kind in sorted({family[0] for family in FAMILIES.values()}):
        features, targets = arrays(kind)
        if targets is None:
            features.tofile(f"{folder}/text.txt")
        else:
            numpy.save(f"{folder}/{kind}.npy", features)
            numpy.save(f"{folder}/{kind}-targets.npy", targets)
