#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 on 64 x 64 pixels as ONNX, for tests/gpu/speed.py; with PyTorch and onnx.

usage: resnet.py FILE

All weights of a tensor are equal, so that the file packs to nothing: the time of a step does not depend on them."""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
import vision  # noqa: E402

module = vision.ResNet(vision.Bottleneck, (3, 4, 6, 3), width=64).train()
with torch.no_grad():
    for name, weight in module.named_parameters():
        weight.fill_(1 if "bn" in name and name.endswith("weight") else 1e-3)
torch.onnx.export(module, (torch.zeros(2, 3, 64, 64),), sys.argv[1], training=torch.onnx.TrainingMode.TRAINING,
                  do_constant_folding=False, opset_version=13, input_names=["features"], output_names=["logits"],
                  dynamic_axes={"features": {0: "batch"}, "logits": {0: "batch"}})
