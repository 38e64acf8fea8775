# SPDX-License-Identifier: Apache-2.0
"""A peer: PyTorch in processes that stay.  DDP is torn down and made again in place, rank 0's state broadcast.

usage: in_place.py FOLDER RANK PORT [warm]

FOLDER/order says "WORLD NUMBER": how many are wanted, and a number that grows.  Rank 0 looks at it before
each step and tells the others in a small broadcast.  Rank 1 waits for an order that needs it; "warm" it has
taken a step for practice: a standby.  When it is started only with the order, rank 0 waits for it in the
rendezvous: stop in place.  A peer that dies ends the step with an error; rank 0 goes on alone and takes the
step again from its own state.  Rank 0 cannot be lost: the store lives in it.
"""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from common import Log, Trainer


class Process:
    def __init__(self, folder, rank, port):
        self.folder, self.rank = folder, rank
        self.log = Log(folder, f"rank{rank}")
        self.store = dist.TCPStore("127.0.0.1", port, None, rank == 0, timeout=timedelta(seconds=60))
        self.trainer = Trainer(folder)
        self.net, self.world, self.number = self.trainer.model, 1, 0

    def order(self):
        try:
            with open(os.path.join(self.folder, "order")) as file:
                world, number = file.read().split()
            return int(world), int(number)
        except OSError:
            return 1, 0

    def enter(self, world, number):
        """Leave what there is; with others: meet, take rank 0's state, wrap anew."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self.net, self.world, self.number = self.trainer.model, world, number
        if world == 1:
            return
        dist.init_process_group("gloo", store=dist.PrefixStore(f"g{number}", self.store), rank=self.rank,
                                world_size=world, timeout=timedelta(seconds=60))
        steps = torch.tensor([self.trainer.steps])
        dist.broadcast(steps, 0)
        tensors = list(self.trainer.tensors())
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.broadcast(flat, 0)
        if self.rank:
            self.trainer.steps = int(steps)
            for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
                tensor.copy_(part.view_as(tensor))
        self.net = DistributedDataParallel(self.trainer.model)

    def agree(self):
        """The order that all follow now."""
        if not dist.is_initialized():
            return self.order()
        told = torch.tensor(self.order())
        dist.broadcast(told, 0)
        return int(told[0]), int(told[1])

    def lost(self):
        self.log.say("lost")
        with open(os.path.join(self.folder, "order.new"), "w") as file:
            file.write(f"1 {self.number + 1}")
        os.replace(os.path.join(self.folder, "order.new"), os.path.join(self.folder, "order"))
        self.enter(1, self.number + 1)

    def run(self, warm):
        if warm and self.rank:
            self.trainer.step(self.net)
        self.log.say("ready")
        while True:
            try:
                world, number = self.agree()
                if number != self.number:
                    self.enter(world, number)
                if self.rank >= self.world:
                    time.sleep(0.001)
                    continue
                loss = self.trainer.step(self.net, self.rank, self.world)
            except RuntimeError:
                if self.rank:
                    raise
                self.lost()
                continue
            if self.rank == 0:
                self.log.row(self.trainer.steps, self.world, self.number, loss)


def main():
    folder, rank, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    process = Process(folder, rank, port)
    process.run("warm" in sys.argv[4:])


main()
