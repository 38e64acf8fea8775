# SPDX-License-Identifier: Apache-2.0
"""The job "gpt" that tests of deaths, checkpoints and pauses meddle with: a small GPT with dropout, on text."""
import os

import corpus
from cluster import ENDLESS


def spec(c, steps, want=3, **more):
    return {**corpus.text_job(c, want, 4, steps=steps, globalBatch=12, microBatch=2, clipNorm=1.0), **more}


def model(c):
    c.model("gpt", layers=2, width=64, heads=2, seq=32, dropout=0.1)


def pids(c):
    return {device["pid"] for device in c.status("gpt")["devices"]}


def same_as_alone(c, what):
    c.same_as_alone("gpt", spec(c, ENDLESS), what)


def saved(c):
    """The names of the checkpoints in its folder."""
    return {name for name in os.listdir(c.path("ckpt")) if name.startswith("step-")}


def registered(c):
    """The steps of the checkpoints that facts have."""
    return [checkpoint["step"] for checkpoint in c.json("get", "checkpoints", "gpt")["items"]]
