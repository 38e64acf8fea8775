# SPDX-License-Identifier: Apache-2.0
"""A net of everything that the usual families do not use: each part has weights and a gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Zoo(nn.Module):
    def __init__(self, width=8, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=4, padding=1)
        self.groups, self.instance = nn.GroupNorm(2, width), nn.InstanceNorm2d(width, affine=True)
        self.prelu, self.response = nn.PReLU(width), nn.LocalResponseNorm(3, alpha=0.1)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1, padding_mode="reflect")
        self.up = nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
        self.gru = nn.GRU(width, 6, bidirectional=True, batch_first=True)
        self.rnn = nn.RNN(width, 6, nonlinearity="relu", batch_first=True)
        self.attention = nn.TransformerDecoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.memory = nn.Parameter(torch.zeros(1, 3, width))
        self.mixer = nn.Parameter(torch.zeros(width, 5, width))
        self.power, self.table = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(9, width))
        self.wide = nn.Linear(8 * width + 18, 24)
        self.head = nn.Linear(24, classes)

    def planes(self, x):
        """The parts that work on N C H W."""
        y = F.silu(self.groups(self.stem(x)))
        y = y + F.hardswish(self.depthwise(self.prelu(self.instance(y))))
        small = F.mish(self.down(y))
        y = y + self.up(small) + F.interpolate(small, scale_factor=2, mode="bilinear")
        y = y + F.interpolate(small, scale_factor=2, mode="nearest") * 0.5
        y = torch.maximum(y, self.response(y) * 0.9)
        return F.pixel_shuffle(F.pixel_unshuffle(y, 2), 2) + F.pad(y[:, :, 1:, :-1], (0, 1, 1, 0))

    def forward(self, x):
        y = self.planes(x)
        seq = y.flatten(2).transpose(1, 2)[:, ::4]
        seq = seq + self.attention(seq, self.memory.expand(seq.shape[0], -1, -1))
        both, _ = self.gru(seq)
        one, last = self.rnn(seq.flip(1))
        mixed = torch.einsum("bld,dke->bke", seq, self.mixer) * 0.1
        tops, places = seq.topk(3, dim=1)
        sums = seq.cumsum(1)[:, -1] * 0.1 + tops.prod(1) * 0.1
        table = self.table.unsqueeze(0).expand(seq.shape[0], -1, -1)
        picked = self.table[torch.argmax(mixed, dim=1) % 9].mean(1) + table.gather(1, places % 9)[:, 0]
        three = torch.tensor([[0, 2, 5]]).expand(seq.shape[0], -1)
        spread = torch.zeros_like(sums).scatter_add(1, three, tops[:, :, 0])
        parts = [F.elu(both[:, -1]), F.softplus(last[0]), seq.logsumexp(1), mixed.norm(dim=1),
                 F.normalize(sums, dim=1), picked, spread, seq.std(1), seq.amax(1),
                 (seq.abs() + 0.5).pow(self.power.exp()).mean(1)]
        y = F.selu(self.wide(torch.cat(parts, 1)))
        y = torch.where(y > 1, y.sin(), y.atan()) + y.clamp(-0.5, 0.7) + F.glu(torch.cat((y, y.cos()), 1), 1)
        return self.head(y) + F.softsign(one.min(1)[0]).sum(1, keepdim=True)
