# SPDX-License-Identifier: Apache-2.0
"""Training data for the end-to-end tests: real text and real scans, made in the test's folder."""
import os
import struct

LICENCES = os.environ.get("RUBATO_LICENCES", "/usr/share/common-licenses")


def write(path, data):
    """Writes a file unless it is there already: jobs that train have it in memory, and die if it is cut off under
    them."""
    if not os.path.exists(path) or open(path, "rb").read() != data:
        with open(path, "wb") as file:
            file.write(data)
    return path


def text(path, size=None):
    """The licence texts of Debian's base-files, one after the other."""
    data = b"".join(open(os.path.join(LICENCES, name), "rb").read()
                    for name in ("GPL-3", "LGPL-2.1", "GFDL-1.3", "Apache-2.0", "MPL-2.0"))
    return write(path, data[:size])


def text_job(c, want, most, **train):
    """The job file of a gpt.onnx (seq 32) on some text, on 1 to `most` devices; `train` is its train section."""
    text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 32}},
        "train": train,
        "devices": {"min": 1, "max": most, "want": want},
    }


def npy(path, descr, shape, data):
    """A version 1.0 .npy file from packed bytes."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return write(path, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def noise(seed, n):
    """n floats in [-1, 1) from a small generator, the same everywhere."""
    state, out = seed, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 40) / 2**23 - 1)
    return out


def classes(folder, samples, shape, classes_count, seed=1, name="train"):
    """Features around one random centre a class, and their labels, as two .npy files."""
    size = 1
    for part in shape:
        size *= part
    centres = [noise(1000 + label, size) for label in range(classes_count)]
    labels = [int((value + 1) / 2 * classes_count) for value in noise(seed, samples)]
    values = noise(seed + 7, samples * size)
    packed = bytearray()
    for i, label in enumerate(labels):
        packed += struct.pack(f"<{size}f", *(c + 0.7 * v for c, v in
                                             zip(centres[label], values[i * size:(i + 1) * size])))
    features = npy(os.path.join(folder, name + ".npy"), "<f4", (samples, *shape), bytes(packed))
    targets = npy(os.path.join(folder, name + "-labels.npy"), "<i8", (samples,),
                  struct.pack(f"<{samples}q", *labels))
    return features, targets
