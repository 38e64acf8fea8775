#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the families with this machine's torch and records PyTorch's losses.

usage: record.py [--keep OPSET,...] [FAMILY...]        needs torch and onnx

fixtures/FAMILY-OPSET.onnx.gz hold the graph, the parameters zeroed (families.weight makes them);
fixtures/index.json has for each family the parameters' shapes and the losses of the first 20 steps.
Every opset from 13 to the exporter's newest is exported; of those, --keep (13,17) are kept.
"""
import gzip
import io
import json
import os
import sys

import numpy
import onnx
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../e2e")]
import families  # noqa: E402
import language  # noqa: E402
import vision  # noqa: E402
import zoo  # noqa: E402

MAKE = {
    "mlp": vision.MLP,
    "resnet18": lambda: vision.ResNet(vision.Basic, (2, 2, 2, 2)),
    "resnet50": lambda: vision.ResNet(vision.Bottleneck, (3, 4, 6, 3), width=4),
    "vit": vision.ViT,
    "zoo": zoo.Zoo,
    "lstm": language.LSTM,
    "gpt2": language.GPT2,
    "bert": language.BERT,
    "llama": language.Llama,
}


def order():
    """The sample order, from its definition (tests/e2e/cases.py needs no cluster for it)."""
    import importlib.util
    source = open(os.path.join(HERE, "../e2e/cases.py")).read()
    start = source.index("def mix(")
    names = {}
    exec(compile(source[start:], "cases.py", "exec"), names)
    return names["sample"]


def set_weights(module):
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(families.weight(name, tuple(parameter.shape))))


def batch(family, step, which):
    features, targets = families.arrays(families.FAMILIES[family][0])
    n, size = families.count(features, targets), families.FAMILIES[family][3]
    rows = [families.sample(features, targets, which(1, n, step * size + j)) for j in range(size)]
    return tuple(torch.from_numpy(numpy.stack([numpy.asarray(row[k]) for row in rows])) for k in range(2))


def losses(module, family):
    spec = families.optimizer(family)
    groups = [{"params": [p for p in module.parameters() if p.dim() >= 2], "weight_decay": spec["weightDecay"]},
              {"params": [p for p in module.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    if spec["type"] == "sgd":
        optimizer = torch.optim.SGD(groups, lr=spec["lr"], momentum=spec["momentum"])
    else:
        optimizer = torch.optim.AdamW(groups, lr=spec["lr"])
    which, found = order(), []
    module.train()
    for step in range(families.STEPS):
        x, y = batch(family, step, which)
        out = module(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def export(module, family, opset):
    x = batch(family, 0, lambda seed, n, i: i)[0][:2]
    out = io.BytesIO()
    torch.onnx.export(module.train(), (x,), out, opset_version=opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["input"], output_names=["output"],
                      dynamic_axes={"input": {0: "batch"}})
    return out.getvalue()


def strip(model, names):
    """Zeros for the parameters: gzip makes nothing of them.  What exporters write for people goes."""
    proto = onnx.load_from_string(model)
    for tensor in proto.graph.initializer:
        if tensor.name in names:
            tensor.raw_data = bytes(len(tensor.raw_data))
    for node in proto.graph.node:
        node.doc_string = ""
    del proto.graph.value_info[:]
    missing = names - {tensor.name for tensor in proto.graph.initializer}
    if missing:
        print(f"  the export has no {sorted(missing)}")
    return proto.SerializeToString()


def main():
    keep, chosen = [13, 17], []
    words = sys.argv[1:]
    while words:
        word = words.pop(0)
        if word == "--keep":
            keep = [int(n) for n in words.pop(0).split(",")]
        else:
            chosen.append(word)
    path = os.path.join(HERE, "fixtures/index.json")
    index = json.load(open(path)) if os.path.exists(path) else {}
    torch.set_num_threads(1)
    for family in chosen or MAKE:
        module = MAKE[family]()
        set_weights(module)
        names = {name for name, _ in module.named_parameters()}
        for opset in range(13, 18):
            model = strip(export(module, family, opset), names)
            if opset in keep:
                file = os.path.join(HERE, f"fixtures/{family}-{opset}.onnx.gz")
                with open(file, "wb") as out:
                    out.write(gzip.compress(model, 9, mtime=0))
                print(f"{file}: {os.path.getsize(file)} bytes of {len(model)}")
        index[family] = {
            "torch": torch.__version__,
            "parameters": {n: list(p.shape) for n, p in module.named_parameters()},
            "losses": losses(module, family),
        }
        print(family, index[family]["losses"][0], index[family]["losses"][-1])
    with open(path, "w") as out:
        json.dump(index, out, sort_keys=True)
        out.write("\n")


main()
