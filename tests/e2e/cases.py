# SPDX-License-Identifier: Apache-2.0
"""The three models, data and job specs that PyTorch and Rubato are compared on, and the sample order."""
import os
import subprocess

import cluster
import corpus

SETTINGS = {
    "mlp": {"inputs": 784, "hidden": 256, "depth": 2, "classes": 10},
    "cnn": {"image": 16, "channels": 3, "classes": 10, "batchnorm": 1},
    "gpt": {"vocab": 256, "layers": 2, "width": 128, "heads": 4, "seq": 64},
}
SHAPES = {"mlp": (784,), "cnn": (3, 16, 16)}


def make(kind, folder):
    """The ONNX model and its data in `folder`."""
    settings = [word for key, value in SETTINGS[kind].items() for word in ("--set", f"{key}={value}")]
    subprocess.run([os.path.join(cluster.BUILD, "rubatoctl"), "model", "new", kind, *settings,
                    "--out", os.path.join(folder, kind + ".onnx")], check=True)
    if kind == "gpt":
        corpus.text(os.path.join(folder, "gpt.txt"), 30000)
    else:
        corpus.classes(folder, 200, SHAPES[kind], 10, name=kind)


def spec(kind, folder, steps):
    if kind == "gpt":
        train = {"path": "gpt.txt", "format": "text", "seqLen": 64}
        optimizer = {"type": "adamw", "lr": 1.0e-3, "weightDecay": 0.1}
        batch, micro = 8, 4
    else:
        train = {"path": f"{kind}.npy", "targets": f"{kind}-labels.npy"}
        optimizer = {"type": "sgd", "lr": 0.01, "momentum": 0.9}
        batch, micro = 32, 32 if kind == "cnn" else 8  # BatchNormalization: one microbatch a step
    return {
        "model": {"onnx": f"{kind}.onnx"},
        "data": {"train": train},
        "train": {"steps": steps, "globalBatch": batch, "microBatch": micro, "optimizer": optimizer},
        "devices": {"min": 1, "max": 2, "want": 2},
    }


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def sample(seed, n, number):
    """The sample with this number: data/order.h, written a second time from its definition."""
    epoch, place = divmod(number, n)
    if n <= 1:
        return 0
    golden = 0x9E3779B97F4A7C15
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    keys = [mix((mix((seed + golden) % 2**64) + mix((epoch + 2 * golden) % 2**64)) % 2**64)]
    for _ in range(3):
        keys.append(mix((keys[-1] + golden) % 2**64))
    while True:
        left, right = place >> half, place & (1 << half) - 1
        for key in keys:
            left, right = right, left ^ mix((right + key) % 2**64) & (1 << half) - 1
        place = left << half | right
        if place < n:
            return place
