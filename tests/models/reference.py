# SPDX-License-Identifier: Apache-2.0
"""What PyTorch makes of the families: its modules, its losses, its gradients.  Needs torch."""
import os
import sys

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
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
if hasattr(nn, "RMSNorm"):  # torch 2.4
    MAKE["modern"] = language.Modern


def order():
    """The sample order, from its definition (tests/e2e/cases.py needs no cluster for it)."""
    with open(os.path.join(HERE, "../e2e/cases.py")) as file:
        source = file.read()
    names = {}
    exec(compile(source[source.index("def mix("):], "cases.py", "exec"), names)
    return names["sample"]


def make(family):
    """The module in training mode, with the weights of families.weight."""
    module = MAKE[family]()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(families.weight(name, tuple(parameter.shape))))
    return module.train()


def batch(family, step, which):
    features, targets = families.arrays(families.FAMILIES[family][0])
    n, size = families.count(features, targets), families.FAMILIES[family][3]
    rows = [families.sample(features, targets, which(1, n, step * size + j)) for j in range(size)]
    return tuple(torch.from_numpy(numpy.stack([numpy.asarray(row[k]) for row in rows])) for k in range(2))


def loss_of(module, x, y):
    out = module(x)
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def losses(module, family):
    spec = families.optimizer(family)
    groups = [{"params": [p for p in module.parameters() if p.dim() >= 2], "weight_decay": spec["weightDecay"]},
              {"params": [p for p in module.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    if spec["type"] == "sgd":
        optimizer = torch.optim.SGD(groups, lr=spec["lr"], momentum=spec["momentum"])
    else:
        optimizer = torch.optim.AdamW(groups, lr=spec["lr"])
    which, found = order(), []
    for step in range(families.STEPS):
        loss = loss_of(module, *batch(family, step, which))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def spread(family, runs=16):
    """By step, the most by which PyTorch's own losses differ, relatively, where weights begin half a unit in the last
    place apart: most nets forget that difference, a net with many norms and maxima may fork."""
    exact, most = losses(make(family), family), [0.0] * families.STEPS
    for seed in range(runs):
        torch.manual_seed(seed)
        module = make(family)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(1 + 6e-8 * torch.randn_like(parameter).sign())
        most = [max(m, abs(a - b) / b) for m, a, b in zip(most, losses(module, family), exact)]
    return [float(f"{m:.1e}") for m in most]


def gradients(family, dtype=torch.float64):
    """The gradients of the first step's loss, as numpy's float64, by parameter name; in double they are the truth."""
    module = make(family).to(dtype)
    x, y = batch(family, 0, order())
    loss_of(module, x.to(dtype) if x.is_floating_point() else x, y).backward()
    return {name: p.grad.double().numpy() for name, p in module.named_parameters()}
