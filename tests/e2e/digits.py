#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A CNN on scikit-learn's digits (1,797 real scans): 98 % of a held-out fifth, seeded and stratified."""
import sys

try:
    import numpy
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError:
    print("python3-sklearn is not installed")
    sys.exit(77)

import cluster
from cluster import check


def digits():
    with cluster.Cluster(devices=2) as c:
        images, labels = load_digits(return_X_y=True)
        images = (images / 16).astype("float32").reshape(-1, 1, 8, 8)
        train, held, train_labels, held_labels = train_test_split(
            images, labels.astype("int64"), test_size=0.2, random_state=0, stratify=labels)
        for name, array in (("train", train), ("train-labels", train_labels),
                            ("held", held), ("held-labels", held_labels)):
            numpy.save(c.path(name + ".npy"), array)
        c.model("cnn", image=8, channels=1, classes=10, batchnorm=1, dropout=0.2)
        c.submit("digits", {
            "model": {"onnx": "cnn.onnx"},
            "data": {"train": {"path": "train.npy", "targets": "train-labels.npy"},
                     "eval": {"path": "held.npy", "targets": "held-labels.npy"}},
            "train": {"epochs": 12, "globalBatch": 64, "microBatch": 32, "eval": {"every": 22},
                      "optimizer": {"type": "adamw", "lr": 2.0e-3},
                      "schedule": {"type": "cosine", "warmup": 10}},
            "devices": {"min": 1, "max": 2, "want": 2},
        })
        c.wait("digits", "done")
        status = c.status("digits")
        print(f"held-out accuracy {status['evalAccuracy']:.4f} of {len(held)} scans, loss {status['evalLoss']:.4f}")
        check(status["evalAccuracy"] >= 0.98, f"accuracy {status['evalAccuracy']}")
        profile = c.json("profile", "digits")
        check(profile["batch"] == 32 and any(row["operator"] == "ConvGradW" and row["flops"] > 0
                                             for row in profile["operators"]), "a job's profile is that of its program")


cluster.main(digits)
