#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rubato beside its peers: the same machine, model, weights, batches and state, one system after the other.

usage: side_by_side.py [--systems NAME,...] [--changes NAME,...] [--count N] [--seed N] [--json FILE] [--patience S]

systems   rubato        two rubatods, a core each; changed by rubatoctl, or by kill -9
          relaunched    the same, but stopped, saved and started again; after a death all are stopped, and
                        started from the newest checkpoint (every 20 steps)
          in-place      DDP in processes that stay: all stop, the newcomer is started and waited for, rank 0 broadcasts
          standby       the same with a newcomer that is there already, warm
          torchrun      elastic launch as it comes, a snapshot every 20 steps
          tuned         elastic launch with short timeouts, a snapshot in memory every 5 steps
changes   grow 1 -> 2, shrink 2 -> 1, kill (-9 of one of 2 workers), node (all processes of one of 2
          at once; of Rubato's the one that does not coordinate)

The reference GPT, one thread a process, process i on core i.  Each repetition starts from nothing and changes once.
tests/bench/stalls.py says what is measured; needs python3-torch and python3-onnx of /usr/bin/python3.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

import lab
import stalls
from cluster import BUILD, Failure, check, until
from ports import free_ports

PEERS = os.path.join(lab.HERE, "peers")
TO = {"grow": 2, "shrink": 1, "kill": 1, "node": 1}  # devices; after a kill torchrun starts the same set again
CHANGES = list(TO)
REST = 16   # steps before a change
AFTER = 26  # steps after it: its window, then quiet ones
PATIENCE = 150


# ---- Rubato -----------------------------------------------------------------------------------------

class Rubato:
    def __init__(self, material, every=0):
        self.c = lab.Lab(nodes=2, devices=1, pinned=True)
        self.every = every

    def __enter__(self):
        self.c.__enter__()
        return self

    def __exit__(self, *error):
        self.c.__exit__(*error)

    def spec(self, world):
        return lab.reference(self.c, world, checkpoint={"path": self.c.path("checkpoints"), "every": self.every})

    def start(self, world):
        until("both nodes", lambda: len(self.c.json("get", "nodes")["items"]) == 2)
        self.c.submit("gpt", self.spec(world))
        self.c.wait("gpt", f"devices={world}")

    def lives(self):
        """No process of the system may have ended before the change."""

    def rows(self):
        return self.c.ledger()

    def workers(self, node=None):
        return [device["pid"] for device in self.c.status("gpt")["devices"] if node in (None, device["node"])]

    def other(self):
        """The node that does not coordinate."""
        def leads(node):
            with open(node.log) as file:
                return "this node coordinates" in file.read()
        return next(node for node in self.c.nodes if not leads(node))

    def whole(self, node):
        """All processes of a node."""
        return [node.process.pid, *self.workers(node.name)]

    def change(self, what):
        if what in ("grow", "shrink"):
            return lambda: self.c.ctl(what, "gpt", 1)
        victims = self.workers(self.other().name) if what == "kill" else self.whole(self.other())
        return lambda: [os.kill(pid, signal.SIGKILL) for pid in victims]


class Relaunched(Rubato):
    def __init__(self, material):
        super().__init__(material, every=20)

    def relaunch(self, want):
        self.c.ctl("pause", "gpt")
        until("the pause", lambda: self.c.status("gpt")["phase"] == "Paused")
        self.c.ctl("resize", "gpt", "--want", want)
        self.c.ctl("resume", "gpt")

    def again_elsewhere(self, victims):
        """A node is lost: what is left of the job is cancelled, and another job goes on from its checkpoints."""
        ask = next(node for node in self.c.nodes if node.process.pid not in victims)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self.c.nodes.sort(key=lambda node: node is not ask)  # rubatoctl asks the first
        self.c.ctl("cancel", "gpt")
        self.c.submit("again", self.spec(1))

    def rows(self):
        """A second job's configurations count on from the first's."""
        files, rows = [], []
        for name in ("gpt", "again"):
            found = [item for item in self.c.json("get", "jobs")["items"] if item["name"] == name]
            if found:
                files.append(self.c.json("describe", name)["job"]["id"])
        for place, job in enumerate(files):
            rows += [{**row, "configuration": 1000 * place + row["configuration"]} for row in self.c.ledger(job)]
        return rows

    def change(self, what):
        if what in ("grow", "shrink"):
            return lambda: self.relaunch(2 if what == "grow" else 1)
        if what == "node":
            victims = self.whole(self.other())
            return lambda: self.again_elsewhere(victims)
        victims = self.workers()
        return lambda: [os.kill(pid, signal.SIGKILL) for pid in victims]


# ---- PyTorch ----------------------------------------------------------------------------------------

class Torch:
    """Processes of python3-torch in a folder of their own, and what they log."""

    def __init__(self, material):
        self.folder = tempfile.mkdtemp(prefix="rubato-peer.")
        for name in ("weights.pt", "corpus.txt"):
            os.symlink(os.path.join(material, name), os.path.join(self.folder, name))
        (self.port,), self.processes = free_ports(1), []

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pids = {line["pid"] for line in self.lines()} | {process.pid for process in self.processes}
        for process in self.processes:
            process.kill()
        for pid in pids - {process.pid for process in self.processes}:
            if self.ours(pid):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        if kind:
            with open(os.path.join(self.folder, "err")) as file:
                print("".join(file.readlines()[-40:]), file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ours(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                return self.folder in file.read()
        except OSError:
            return False

    def run(self, core, words, **environment):
        with open(os.path.join(self.folder, "err"), "a") as err:
            self.processes.append(subprocess.Popen(
                ["/usr/bin/taskset", "-c", str(core), "/usr/bin/python3", *words], stdin=subprocess.DEVNULL,
                stdout=err, stderr=err, cwd=self.folder, env={**lab.torch_environment(), **environment}))
        return self.processes[-1]

    def lives(self):
        check(all(process.poll() is None for process in self.processes), "a process has ended too soon")

    def lines(self):
        out = []
        for name in os.listdir(self.folder):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name)) as file:
                    out += [json.loads(line) for line in file if line.endswith("\n")]
        return out

    def rows(self):
        return [line for line in self.lines() if line["kind"] == "row"]


class InPlace(Torch):
    warm = False

    def process(self, rank):
        return self.run(rank, [os.path.join(PEERS, "in_place.py"), self.folder, str(rank), str(self.port),
                               *(["warm"] if self.warm else [])])

    def order(self, world, number):
        with open(os.path.join(self.folder, "order.new"), "w") as file:
            file.write(f"{world} {number}")
        os.replace(os.path.join(self.folder, "order.new"), os.path.join(self.folder, "order"))

    def start(self, world):
        self.process(0)
        if self.warm or world == 2:
            self.process(1)
            until("the standby", lambda: sum(line["kind"] == "ready" for line in self.lines()) == 2)
        if world == 2:
            self.order(2, 1)

    def grow(self):
        self.order(2, 1)
        if not self.warm:
            self.process(1)

    def change(self, what):
        if what == "grow":
            return self.grow
        if what == "shrink":
            return lambda: self.order(1, 2)
        return self.processes[1].kill


class Standby(InPlace):
    warm = True


class Torchrun(Torch):
    every, options = 20, []

    def __init__(self, material):
        super().__init__(material)
        self.memory = self.folder

    def agent(self, number):
        words = ["-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc_per_node", "1", "--max_restarts", "100",
                 "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_id", "bench",
                 *self.options, "--redirects", "7:1", "--tee", "7:1",  # the default crashes on Python 3.11
                 os.path.join(PEERS, "torchrun.py"), self.folder, os.path.join(self.memory, "snapshot"),
                 str(self.every)]
        return self.run(number, words, AGENT=str(number))

    def start(self, world):
        for number in range(world):
            self.agent(number)
            until("the agent's store", lambda: not subprocess.call(
                ["/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self.port}"], stderr=subprocess.DEVNULL))

    def worker(self, number):
        return max((line for line in self.lines() if line["kind"] == "start"
                    and line["agent"] == str(number)), key=lambda line: line["time"])["pid"]

    def change(self, what):
        if what == "grow":
            return lambda: self.agent(1)
        if what == "shrink":
            return self.processes[1].terminate
        victims = [self.worker(1)] + ([self.processes[1].pid] if what == "node" else [])
        return lambda: [os.kill(pid, signal.SIGKILL) for pid in reversed(victims)]


class Tuned(Torchrun):
    every = 5
    options = ["--monitor_interval", "0.1", "--rdzv_conf",
               "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,close_timeout=5"]

    def __init__(self, material):
        super().__init__(material)
        self.memory = tempfile.mkdtemp(prefix="rubato-peer.", dir="/dev/shm")

    def __exit__(self, *error):
        super().__exit__(*error)
        shutil.rmtree(self.memory, ignore_errors=True)


SYSTEMS = {"rubato": Rubato, "relaunched": Relaunched, "in-place": InPlace, "standby": Standby,
           "torchrun": Torchrun, "tuned": Tuned}


# ---- Measuring --------------------------------------------------------------------------------------

def repetition(system, what, material, chance):
    """One change from a fresh start: its rows, medians and cost."""
    world = 1 if what == "grow" else 2
    with SYSTEMS[system](material) as one:
        one.start(world)

        def settled():
            one.lives()
            return sum(row["devices"] == world for row in one.rows()) >= REST + chance

        until(f"{REST + chance} steps on {world}", settled, PATIENCE)
        change = one.change(what)
        asked = lab.now()
        change()

        def done():
            found = stalls.window(stalls.by_time(one.rows()), asked)
            return found and len(stalls.by_time(one.rows())) >= found[1] + AFTER

        until(f"{AFTER} steps behind the change", done, PATIENCE)
        rows = stalls.by_time(one.rows())
    middle = stalls.medians(rows)
    found = stalls.change(rows, middle, asked)
    check(found["to"] in (TO[what], world if what == "kill" else None), f"it went to {found['to']} devices")
    return {"rows": rows, "middle": middle, "change": found, "asked": asked}


def measure(system, what, material, options):
    """All repetitions of one cell."""
    chance = random.Random(f"{options.seed} {what}")
    found = []
    for i in range(options.count):
        try:
            found.append(repetition(system, what, material, chance.randrange(20)))
            done = found[-1]["change"]
            lab.say(f"{system} {what} {i + 1}: stall {done['stall']:.0f} ms, first contribution after "
                    f"{done['ready']:.0f} ms, {done['lost']} steps lost")
        except Failure as failure:
            found.append({"failure": str(failure)})
            lab.say(f"{system} {what} {i + 1}: {failure}")
    return found


def line(system, found):
    good = [one for one in found if "change" in one]
    if not good:
        return [system, "-", "-", "-", "-", "-", f"0 of {len(found)}"]
    stall = sorted(one["change"]["stall"] for one in good)
    quiet = [each["stall"] for one in good for each in
             stalls.quiet(one["rows"], one["middle"], [one["change"]], stalls.STEPS_AFTER + 2)]
    middle = stalls.statistics.median
    lost = sorted(one["change"]["lost"] for one in good)
    return [system, f"{lab.show(middle(stall))} ({lab.show(stall[0])} to {lab.show(stall[-1])})",
            middle(quiet) if quiet else None, middle(stall) - middle(quiet) if quiet else None,
            middle(one["change"]["ready"] for one in good), f"{lab.show(middle(lost))} ({lost[0]} to {lost[-1]})",
            f"{len(good)} of {len(found)}"]


def losses_agree(found):
    """The largest relative difference of a loss from Rubato's while one process has the whole batch."""
    def alone(system):
        cells = [one for one in found.get(system, {}).get("grow", []) if "rows" in one]
        return {row["step"]: row["loss"] for row in (cells[0]["rows"] if cells else []) if row["devices"] == 1}

    ours = alone("rubato")
    for system in found:
        steps = sorted(set(ours) & set(alone(system)))[:15]
        if system != "rubato" and steps:
            theirs = alone(system)
            worst = max(abs(ours[step] - theirs[step]) / ours[step] for step in steps)
            print(f"{system}: losses of steps {steps[0]} to {steps[-1]} within {worst:.1e} of Rubato's")
    print()


def make_material():
    """Initial weights and text, the same for all."""
    folder = tempfile.mkdtemp(prefix="rubato-material.")
    onnx = os.path.join(folder, "gpt.onnx")
    subprocess.run([os.path.join(BUILD, "rubatoctl"), "model", "new", "gpt", "--out", onnx], check=True)
    lab.corpus.text(os.path.join(folder, "corpus.txt"))
    subprocess.run(["/usr/bin/python3", os.path.join(PEERS, "common.py"), onnx, os.path.join(folder, "weights.pt")],
                   check=True)
    return folder


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument("--changes", type=lambda text: text.split(","), default=CHANGES)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default="bench-side-by-side.json")
    parser.add_argument("--patience", type=int, default=0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    check(set(options.systems) <= set(SYSTEMS), f"systems are {', '.join(SYSTEMS)}")
    check(set(options.changes) <= set(CHANGES), f"changes are {', '.join(CHANGES)}")
    raw = {"machine": lab.machine(options.patience), "found": {}}
    print(raw["machine"] + "\n")
    material = make_material()
    try:
        for system in options.systems:  # cells of one system one after the other, all on the same machine
            raw["found"][system] = {what: measure(system, what, material, options) for what in options.changes}
            lab.keep(options.json, raw)
    finally:
        shutil.rmtree(material)
    for what in options.changes:
        print(f"### {what}\n\nms; medians of {options.count}, in brackets the least and the most.\n")
        lab.table(["system", "stall", "quiet", "difference", "to the first contribution", "steps lost", "runs"],
                  [line(system, raw["found"][system][what]) for system in options.systems])
    losses_agree(raw["found"])
    print(lab.machine())


if __name__ == "__main__":
    sys.exit(main())
