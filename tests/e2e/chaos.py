#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chaos: whatever happens to a job, in whatever order, its end is that of the undisturbed one.

usage: chaos.py [--seed N] [--seconds S] [--nodes 1|2]      without arguments: the short test

A seeded storm over one job: it grows and shrinks, workers are killed and stopped at any moment (in
preparation and right after flips too), rubatods and etcd are killed and started again, nodes drain and stand
still, the job is paused, saved and exported.  At the end: the same bits and losses, every step's row exactly once,
no process left.  The seed fixes what happens, not to the millisecond when.
"""
import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import cluster
import corpus
from cluster import check, until

PATIENCE = 60  # seconds without a step are a hang, unless a node is out of reach on purpose
MOST = 4       # devices of the job


class Storm:
    def __init__(self, c, seed, steps):
        self.c, self.random, self.steps = c, random.Random(seed), steps
        self.start = time.monotonic()
        self.done = []  # what was done, for the report of a failure
        self.drained = None

    def say(self, text):
        self.done.append(f"{time.monotonic() - self.start:7.2f}  {text}")
        if os.environ.get("CHAOS_TALK"):
            print(self.done[-1], flush=True)

    def rest(self, most):
        time.sleep(self.random.random() * most)

    def ctl(self, *words, allowed=(0, 5), timeout=120):
        """A command in bad weather: an unreachable rubatod is no failure, a hang is."""
        try:
            done = self.c.run(*words, timeout=timeout, endpoint=self.random.choice(self.c.nodes).endpoint)
        except subprocess.TimeoutExpired:
            raise cluster.Failure(f"rubatoctl {' '.join(map(str, words))} hangs")
        said = (done.stdout + done.stderr).strip().replace("\n", " | ")
        self.say(f"{' '.join(map(str, words))} -> {done.returncode} {said[:200]}")
        # The job may be over at any moment.
        if done.returncode not in allowed and not (done.returncode == 4 and self.over()):
            raise cluster.Failure(f"rubatoctl {' '.join(map(str, words))}: exit {done.returncode}: {said}")
        return done

    def status(self):
        return until("an answer to status", self.try_status, PATIENCE)

    def try_status(self):
        answers = (self.c.try_json("status", "storm", endpoint=node.endpoint, timeout=60) for node in self.c.nodes)
        return next(filter(None, answers), None)

    def over(self):
        status = self.status()
        check(status["phase"] not in ("Failed", "Cancelled"), f"the job ended: {status}")
        return status["phase"] == "Succeeded"

    def progresses(self):
        before = self.status()["step"]
        until(f"a step after {before}", lambda: self.over() or self.goes_on(before), PATIENCE)

    def goes_on(self, before):
        status = self.status()
        if self.drained and "holds its state" in (status["reason"] or ""):
            self.drain()  # the job is parked on a node that must not be used: uncordon the node
        return status["step"] > before

    # ---- what can happen ---------------------------------------------------------------------

    def resize(self):
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self.ctl("resize", "storm", "--want", self.random.randint(1, MOST))
            self.rest(0.3)

    def resize_and_wait(self):
        # 1: another change may replace the resize, and the command says so.  A drained node's devices are missing.
        most = MOST if not self.drained else self.c.devices
        self.ctl("resize", "storm", "--want", self.random.randint(1, most), "--wait", "--timeout", 40,
                 allowed=(0, 1, 5, 124))

    def strike(self, number, most=1):
        pids = self.c.processes("rubato-worker")
        for pid in self.random.sample(sorted(pids), min(len(pids), most)):
            self.say(f"{signal.Signals(number).name} {pid}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def kill_worker(self):
        self.strike(signal.SIGKILL)

    def kill_many(self):
        self.strike(signal.SIGKILL, self.random.choice((2, 2, 3, 99)))

    def kill_while_resizing(self):
        self.ctl("resize", "storm", "--want", self.random.randint(1, MOST))
        self.rest(0.4)
        self.kill_worker()

    def kill_behind_flip(self):
        before = self.status()
        self.ctl("resize", "storm", "--want", self.random.choice(
            [n for n in range(1, MOST + 1) if n != before["want"]]))
        end = time.monotonic() + 10
        while time.monotonic() < end and self.status()["configuration"] == before["configuration"]:
            if self.over():
                return
        self.kill_worker()

    def stop_worker(self):
        pids = self.c.processes("rubato-worker")
        if not pids:
            return
        pid = self.random.choice(sorted(pids))
        self.say(f"SIGSTOP {pid}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.rest(1.5)
            os.kill(pid, signal.SIGCONT)

    def stop_node(self):
        node = self.random.choice(self.c.nodes)
        pids = [node.process.pid, *(pid for pid in self.c.processes("rubato-worker") if is_on(node, pid))]
        rest = self.random.choice((1, 4, 10))
        self.say(f"SIGSTOP {node.name} for {rest} s: {pids}")
        for number in signal.SIGSTOP, signal.SIGCONT:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(rest)

    def restart_rubatod(self):
        node = self.random.choice(self.c.nodes)
        self.say(f"SIGKILL {node.name}")
        node.stop(signal.SIGKILL)
        self.rest(1)
        node.start()

    def leave_and_return(self):
        node = self.random.choice(self.c.nodes)
        self.say(f"SIGTERM {node.name}")
        check(node.stop(signal.SIGTERM, 45) == 0, f"{node.name} ended with {node.process.returncode}")
        self.rest(0.5)
        node.start()

    def restart_etcd(self):
        self.say("SIGKILL etcd")
        self.c.signal_etcd(signal.SIGKILL)
        if self.c.etcds:  # a single node starts its own etcd again
            for etcd in self.c.etcds:
                etcd.wait()
            self.rest(2)
            self.c.run_etcd()

    def pause(self):
        if self.ctl("pause", "storm").returncode:
            return
        if self.random.random() < 0.7:
            until("the pause", lambda: self.over() or self.status()["phase"] == "Paused", PATIENCE)
            if self.random.random() < 0.4:
                self.export()
        else:
            self.rest(0.3)
        until("resume", lambda: self.ctl("resume", "storm").returncode == 0 or self.over(), PATIENCE)

    def checkpoint(self):
        # 1 and 4: there may be no worker with the state just now.
        self.ctl("checkpoint", "storm", allowed=(0, 1, 4, 5))

    def export(self):
        self.ctl("export", "storm", "--out", self.c.path("now.safetensors"), allowed=(0, 1, 4, 5))

    def drain(self):
        if self.drained:
            if not self.ctl("node", "uncordon", self.drained).returncode:
                self.drained = None
        elif len(self.c.nodes) > 1:
            node = self.random.choice(self.c.nodes).name
            words = ("--wait", "--timeout", 40) if self.random.random() < 0.5 else ()
            if self.ctl("node", "drain", node, *words, allowed=(0, 5, 124)).returncode in (0, 124):
                self.drained = node

    def calm(self):
        if self.drained:
            until("uncordon", lambda: not self.ctl("node", "uncordon", self.drained).returncode, PATIENCE)
        until("resume", lambda: self.ctl("resume", "storm").returncode == 0 or self.over(), PATIENCE)

    def rage(self):
        acts = [self.resize] * 4 + [self.resize_and_wait] + [self.kill_worker] * 3 + [self.kill_many] + \
            [self.kill_while_resizing] * 3 + [self.kill_behind_flip] * 2 + [self.stop_worker] * 2 + \
            [self.restart_rubatod] * 2 + [self.leave_and_return, self.restart_etcd] + [self.pause] * 2 + \
            [self.checkpoint, self.export] + ([self.drain] * 3 + [self.stop_node] if len(self.c.nodes) > 1 else [])
        while not self.over():
            act = self.random.choice(acts)
            self.say(act.__name__)
            act()
            self.rest(self.random.choice((0, 0.3, 1)))
            if self.random.random() < 0.5:
                self.progresses()


def is_on(node, pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return f"{node.state}/run" in file.read()
    except OSError:
        return False


def spec(c, steps):
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 32}},
        "train": {"steps": steps, "globalBatch": 14, "microBatch": 2, "clipNorm": 1.0},
        "devices": {"min": 1, "max": MOST, "want": 1},
        "checkpoint": {"path": c.path("checkpoints"), "every": 25, "keep": 2},
        "failure": {"maxRestarts": 100000},
    }


def measure(c, seconds):
    """How many steps one device does in `seconds`, by its rows: a status may be half a second old."""
    c.submit("probe", {**spec(c, cluster.ENDLESS), "checkpoint": {}})
    c.wait("probe", "step=100")
    rows = c.metrics("probe")[10:]
    c.ctl("delete", "probe")
    until("the probe's end", lambda: not c.processes("rubato-worker"))
    return max(50, int(1000 * seconds / statistics.mean(row["step_ms"] for row in rows)))


def rows_agree(alone, storm, steps):
    wrong = [(row["step"], i + 1) for i, row in enumerate(storm) if row["step"] != i + 1]
    check(len(storm) == steps and not wrong, f"{len(storm)} rows of {steps} steps; (is, should be): {wrong[:9]}")
    different = [(a["step"], a["loss"], b["loss"]) for a, b in zip(alone, storm) if a["loss"] != b["loss"]]
    check(not different, f"losses differ: {different[:9]}")


def storm(seed, seconds, nodes):
    with cluster.Cluster(nodes=nodes, devices=-(-(MOST + 1) // nodes)) as c:
        corpus.text(c.path("corpus.txt"), 40000)
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        steps = measure(c, seconds / 3)
        c.submit("alone", {**spec(c, steps), "checkpoint": {}})
        c.wait("alone", "done")
        rows = c.metrics("alone")
        alone = c.finish("alone")
        weather = Storm(c, seed, steps)
        try:
            c.submit("storm", spec(c, steps))
            weather.rage()
            weather.calm()
            check(c.export("storm") == alone, "the bits differ")
            rows_agree(rows, c.metrics("storm"), steps)
            c.ctl("delete", "storm")
            until("the workers to leave", lambda: not c.processes("rubato-worker"))
        except Exception as error:
            print("\n".join(weather.done[-40:]))
            for words in (("events", "storm"), ("-o", "json", "describe", "storm")):
                with contextlib.suppress(Exception):
                    print(c.run(*words, timeout=20).stdout[-12000:])
            if isinstance(error, cluster.Failure):
                raise
            raise cluster.Failure(repr(error))
        print(f"seed {seed}, {nodes} nodes, {steps} steps: {len(weather.done)} blows in "
              f"{time.monotonic() - weather.start:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("  ")[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=18)
    parser.add_argument("--nodes", type=int, choices=(1, 2))
    options = parser.parse_args()
    seed = 1 if options.seed is None else options.seed

    def one_node():
        storm(seed, options.seconds, 1)

    def two_nodes():
        storm(seed, options.seconds, 2)

    cluster.main(*[test for test, nodes in ((one_node, 1), (two_nodes, 2)) if options.nodes in (None, nodes)])
    sys.exit(0)


main()
