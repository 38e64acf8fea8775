# SPDX-License-Identifier: Apache-2.0
"""The models whose bits are hardest to keep equal, and job files for them: dropout and BatchNormalization, and a
batch that no device count divides."""
import corpus


def cnn_spec(c, steps, want=1, **more):
    features, targets = corpus.classes(c.folder, 331, (3, 16, 16), 10)
    return {
        "model": {"onnx": "cnn.onnx"},
        "data": {"train": {"path": features, "targets": targets}},
        "train": {"steps": steps, "globalBatch": 29, "microBatch": 4, "seed": 3,
                  "optimizer": {"type": "sgd", "lr": 0.02, "momentum": 0.9, "weightDecay": 1.0e-4},
                  "schedule": {"type": "cosine", "warmup": 3}, "clipNorm": 1.0},
        "devices": {"min": 1, "max": 5, "want": want}, **more,
    }


def gpt_spec(c, steps, want=1, seq=32, **more):
    corpus.text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": seq}},
        "train": {"steps": steps, "globalBatch": 14, "microBatch": 2,
                  "optimizer": {"type": "adamw", "lr": 1.0e-3}, "clipNorm": 1.0},
        "devices": {"min": 1, "max": 5, "want": want}, **more,
    }


def models(c, width=64, seq=32):
    """width and seq are the GPT's; its spec must be made with the same seq."""
    c.model("cnn", image=16, batchnorm=1, dropout=0.1)
    c.model("gpt", layers=2, width=width, heads=2, seq=seq, dropout=0.1)
    return {"cnn": cnn_spec, "gpt": gpt_spec}
