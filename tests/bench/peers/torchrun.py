# SPDX-License-Identifier: Apache-2.0
"""A peer: the training script that torchrun's elastic launcher is documented with.

usage, under torchrun: torchrun.py FOLDER SNAPSHOT EVERY

Every start loads the newest snapshot, if there is one; rank 0 saves one every so many steps.  Nothing is kept
across a restart of the workers, which is what torchrun does with every change of the set.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from common import Log, Trainer


def save(trainer, path):
    torch.save({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict(),
                "steps": trainer.steps}, path + ".new")
    os.replace(path + ".new", path)


def load(trainer, path):
    if not os.path.exists(path):
        return
    saved = torch.load(path, map_location="cpu")
    trainer.model.load_state_dict(saved["model"])
    trainer.optimizer.load_state_dict(saved["optimizer"])
    trainer.steps = saved["steps"]


def main():
    folder, snapshot, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
    log = Log(folder, f"agent{os.environ['AGENT']}")
    log.say("start", agent=os.environ["AGENT"])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    trainer = Trainer(folder)
    load(trainer, snapshot)
    net = DistributedDataParallel(trainer.model)
    log.say("ready", rank=rank, world=world)
    while True:
        loss = trainer.step(net, rank, world)
        if rank == 0:
            log.row(trainer.steps, world, os.getpid(), loss)
            if trainer.steps % every == 0:
                save(trainer, snapshot)


main()
