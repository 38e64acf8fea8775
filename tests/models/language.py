# SPDX-License-Identifier: Apache-2.0
"""Nets on tokens, in plain torch: LSTM, GPT-2, BERT, Llama; as their usual implementations write them.

Modern is made of parts that torch 2 has functions of its own for: RMSNorm, attention with grouped heads.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LSTM(nn.Module):
    """A language model: two layers over an embedding."""

    def __init__(self, vocab=256, width=16, hidden=24):
        super().__init__()
        self.embedding, self.drop = nn.Embedding(vocab, width), nn.Dropout(0.0)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        y, _ = self.lstm(self.drop(self.embedding(tokens)))
        return self.head(y)


class Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is [in, out]."""

    def __init__(self, after, before):
        super().__init__()
        self.after = after
        self.weight, self.bias = nn.Parameter(torch.zeros(before, after)), nn.Parameter(torch.zeros(after))

    def forward(self, x):
        shape = x.size()[:-1] + (self.after,)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(shape)


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class GPT2Block(nn.Module):
    def __init__(self, width, heads, seq):
        super().__init__()
        self.width, self.heads = width, heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = Conv1D(3 * width, width), Conv1D(width, width)
        self.c_fc, self.c_out = Conv1D(4 * width, width), Conv1D(width, 4 * width)
        self.drop = nn.Dropout(0.0)
        mask = torch.tril(torch.ones(seq, seq, dtype=torch.uint8)).view(1, 1, seq, seq)
        self.register_buffer("bias", mask.bool())

    def attention(self, x):
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        q, k, v = (t.view(t.size()[:-1] + (self.heads, -1)).permute(0, 2, 1, 3) for t in (q, k, v))
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores / torch.full([], v.size(-1) ** 0.5, dtype=scores.dtype)
        n, m = q.size(-2), k.size(-2)
        least = torch.full([], torch.finfo(scores.dtype).min, dtype=scores.dtype)
        scores = torch.where(self.bias[:, :, m - n:m, :m], scores, least)
        y = torch.matmul(self.drop(F.softmax(scores, dim=-1)), v)
        y = y.permute(0, 2, 1, 3).contiguous()
        return self.c_proj(y.view(y.size()[:-2] + (self.width,)))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.drop(self.c_out(new_gelu(self.c_fc(self.ln_2(x)))))


class GPT2(nn.Module):
    """The head is the embedding."""

    def __init__(self, vocab=256, seq=12, width=24, heads=3, layers=2):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(vocab, width), nn.Embedding(seq, width), nn.Dropout(0.0)
        self.h = nn.ModuleList([GPT2Block(width, heads, seq) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        places = torch.arange(0, tokens.size(-1), dtype=torch.long).unsqueeze(0)
        x = self.drop(self.wte(tokens) + self.wpe(places))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class BERTLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.intermediate, self.output = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.output_norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.0)

    def split(self, x):
        return x.view(x.size()[:-1] + (self.heads, -1)).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask
        y = torch.matmul(self.drop(F.softmax(scores, dim=-1)), v).permute(0, 2, 1, 3).contiguous()
        y = y.view(y.size()[:-2] + (x.size(-1),))
        x = self.norm(self.drop(self.dense(y)) + x)
        return self.output_norm(self.drop(self.output(F.gelu(self.intermediate(x)))) + x)


class BERT(nn.Module):
    """A classifier; token 0 is padding and is masked out."""

    def __init__(self, vocab=256, seq=12, width=24, heads=3, layers=2, classes=5):
        super().__init__()
        self.word, self.position = nn.Embedding(vocab, width, padding_idx=0), nn.Embedding(seq, width)
        self.kind, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(seq).expand((1, -1)))
        self.register_buffer("token_type_ids", torch.zeros((1, seq), dtype=torch.long))
        self.layers = nn.ModuleList([BERTLayer(width, heads) for _ in range(layers)])
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, classes)
        self.drop = nn.Dropout(0.0)

    def forward(self, tokens):
        batch, n = tokens.size()
        kinds = self.token_type_ids[:, :n].expand(batch, n)
        x = self.word(tokens) + self.kind(kinds) + self.position(self.position_ids[:, :n])
        x = self.drop(self.norm(x))
        mask = (tokens != 0).to(x.dtype)[:, None, None, :]
        mask = (1.0 - mask) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(self.drop(torch.tanh(self.pooler(x[:, 0]))))


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


def rotate_half(x):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-b, a), dim=-1)


def repeat_kv(x, n):
    batch, heads, length, width = x.shape
    return x[:, :, None, :, :].expand(batch, heads, n, length, width).reshape(batch, heads * n, length, width)


class LlamaLayer(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.each, bias=False)
        self.v_proj = nn.Linear(width, groups * self.each, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)

    def attention(self, x, mask, cos, sin):
        batch, n, width = x.size()
        q = self.q_proj(x).view(batch, n, self.heads, self.each).transpose(1, 2)
        k = self.k_proj(x).view(batch, n, self.groups, self.each).transpose(1, 2)
        v = self.v_proj(x).view(batch, n, self.groups, self.each).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = (repeat_kv(t, self.heads // self.groups) for t in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.each) + mask
        scores = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj(torch.matmul(scores, v).transpose(1, 2).contiguous().reshape(batch, n, width))

    def forward(self, x, mask, cos, sin):
        x = x + self.attention(self.input_layernorm(x), mask, cos, sin)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self, vocab=256, width=24, heads=6, groups=2, layers=2, base=10000.0):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([LlamaLayer(width, heads, groups) for _ in range(layers)])
        self.norm, self.lm_head = RMSNorm(width), nn.Linear(width, vocab, bias=False)
        each = width // heads
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, each, 2).float() / each)))

    def forward(self, tokens):
        n = tokens.shape[1]
        mask = torch.full((n, n), torch.finfo(torch.float32).min)
        places = torch.arange(n)
        mask = mask.masked_fill(places < (places + 1).view(n, 1), 0.0)[None, None, :, :]
        freqs = torch.einsum("i,j->ij", places.to(self.inv_freq.dtype), self.inv_freq)
        angles = torch.cat((freqs, freqs), dim=-1)
        cos, sin = angles.cos()[None, None, :, :], angles.sin()[None, None, :, :]
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, mask, cos, sin)
        return self.lm_head(self.norm(x))


class ModernLayer(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.kv_proj = nn.Linear(width, 2 * groups * self.each, bias=False)
        self.up_proj, self.down_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.before, self.between = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width)

    def split(self, x):
        return x.unflatten(-1, (-1, self.each)).transpose(1, 2)

    def forward(self, x, cos, sin):
        y = self.before(x)
        q = self.split(self.q_proj(y))
        k, v = (self.split(part) for part in self.kv_proj(y).chunk(2, -1))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        return x + self.down_proj(F.gelu(self.up_proj(self.between(x)), approximate="tanh"))


class Modern(nn.Module):
    def __init__(self, vocab=256, width=24, heads=6, groups=2, layers=2, base=10000.0):
        super().__init__()
        self.embedding, self.groups_norm = nn.Embedding(vocab, width), nn.GroupNorm(4, width)
        self.layers = nn.ModuleList([ModernLayer(width, heads, groups) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocab, bias=False)
        each = width // heads
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, each, 2).float() / each)))

    def forward(self, tokens):
        angles = torch.outer(torch.arange(tokens.shape[1]).float(), self.inv_freq)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embedding(tokens)
        x = self.groups_norm(x.transpose(1, 2)).transpose(1, 2)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))
