# SPDX-License-Identifier: Apache-2.0
"""Nets on vectors and images, in plain torch: MLP, ResNet-18 and -50 (narrow), ViT."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, inputs=20, hidden=32, classes=10):
        super().__init__()
        self.fc1, self.norm = nn.Linear(inputs, hidden), nn.LayerNorm(hidden)
        self.drop, self.act = nn.Dropout(0.0), nn.ELU()
        self.fc2, self.head = nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        x = torch.relu(self.norm(self.fc1(x.flatten(1))))
        return self.head(self.drop(self.act(self.fc2(x))))


def conv(before, after, kernel, stride=1):
    return nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)


class Basic(nn.Module):
    expansion = 1

    def __init__(self, before, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(before, planes, 3, stride), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv(planes, planes, 3), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or before != planes:
            self.downsample = nn.Sequential(conv(before, planes, 1, stride), nn.BatchNorm2d(planes))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, before, planes, stride):
        super().__init__()
        after = planes * self.expansion
        self.conv1, self.bn1 = conv(before, planes, 1), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv(planes, planes, 3, stride), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = conv(planes, after, 1), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(conv(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """torchvision's, name for name, `width` instead of 64 channels."""

    def __init__(self, block, depths, width=8, classes=10):
        super().__init__()
        self.before = width
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for i, depth in enumerate(depths):
            setattr(self, f"layer{i + 1}", self.layer(block, width << i, depth, 2 if i else 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(self.before, classes)

    def layer(self, block, planes, depth, stride):
        blocks = []
        for i in range(depth):
            blocks.append(block(self.before, planes, stride if i == 0 else 1))
            self.before = planes * block.expansion
        return nn.Sequential(*blocks)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class ViTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, dropout=0.0, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.fc2(F.gelu(self.fc1(self.ln_2(x))))


class ViT(nn.Module):
    def __init__(self, image=32, patch=8, width=24, heads=3, layers=2, classes=10):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList([ViTBlock(width, heads) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x):
        n = x.shape[0]
        x = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(n, -1, -1), x], dim=1) + self.pos_embedding
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])
