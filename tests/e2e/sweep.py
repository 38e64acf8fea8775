#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Deaths at every fault point: whichever process dies, wherever, the bits and the steps are the undisturbed run's.

    sweep.py                a seeded sample, as long as --seconds (60) allows
    sweep.py --all          every case; a table
    sweep.py NAME ...       cases whose names contain one of these words
    sweep.py --list         their names
    sweep.py --random N     instead: N kills and stops of any worker or rubatod, at any time, while jobs are
                            resized; each after the state is whole again, and no step may be lost
    --replicas all|1|2      what the jobs say under state.replicas; of the cases, those that say so

The points are those that `rubato-worker --faults` prints, so a new one is swept from the day it is there.
A worker dies once in the whole cluster (RUBATO_FAULT_ONCE), rubatod is started again by this harness.
"""
import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import cluster
import corpus
from cluster import Failure, check, until

STEPS = 120
LONGER = 12000  # so that there is time to grow, or to start rubatod again; a faster machine doubles it
MIDDLE = 9000  # the same for state in shards, whose steps are longer
MOST_STEPS = 100000
SAVES = 10  # steps between checkpoints, in the cases that are about them

# Points that are passed on the way into a configuration: at the start, and again by growing.
CHANGES = ["worker.preparing", "worker.met", "worker.go", "worker.entered"]
STARTING = ["worker.opening", "worker.opening.hashed"]  # while no worker trains yet
GIVING = ["worker.feed"]
TAKING = ["worker.follow", "worker.followed"]
SAVING = ["worker.save.copied", "worker.save.written", "worker.save.renamed"]
ONCE = ["worker.done"]
SECOND = ["worker.frozen"]  # passed where another worker has died
TORN = ["worker.opening.copy"]  # passed where a death left survivors at different levels
SHARDED = ["worker.gather", "worker.gathered", "worker.taken"]  # passed where not all workers have all of the state
VIEWED = ["worker.viewed"]  # passed where two or three workers have all of the state
TAKEN = ["worker.taken"]  # passed by workers that train on, with what leavers or others held
PAUSED = ["worker.stands"]  # on the way into a pause: parked.py


class Case:
    """faults: what RUBATO_FAULT says.  start, want: devices at first, and asked for while it trains."""

    def __init__(self, name, faults, start, want=None, every=0, restarts=False, daemon=False, needed=None,
                 replicas="all"):
        self.name, self.faults, self.start, self.want = name, faults, start, want or start
        self.replicas = replicas
        self.needed = len(faults) if needed is None else needed  # so many faults must have fired
        self.every, self.restarts, self.daemon = every, restarts, daemon
        # After the last step there may be no worker left that waits for the stopped one.
        self.told = "do=stop" in "".join(faults[-1:]) and self.needed == len(faults) and "worker.done" not in "".join(faults)
        self.steps = LONGER if daemon or self.want != start else STEPS


def points():
    done = subprocess.run([os.path.join(cluster.BUILD, "rubato-worker"), "--faults"],
                          capture_output=True, text=True, check=True)
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def worker_cases(point, workers, what, dice):
    for place, rank in (("first", 0), ("last", workers - 1)):
        name = f"{point} {what} {place} of {workers}"
        fault = f"{point}:rank={rank}:do={what}"
        grown = {"start": workers - 1, "want": workers}
        if point in SAVING:
            if rank == 0:  # this rank writes the checkpoints
                yield Case(name, [fault + ":at=2"], workers, every=SAVES)
        elif point in SECOND:
            if workers > 2:
                yield Case(name, [f"worker.vote:rank=1:at={dice(50)}:do=kill", fault], workers)
        elif point in TORN:
            if workers > 2:  # in the middle of a vote: the rank that was told commits, the other does not
                yield Case(name, [f"worker.frame:rank=1:at={dice(150)}:do=kill", fault.replace("rank=2", "rank=1")],
                           workers, needed=1)
        elif point in CHANGES:
            yield Case(name + ", starting", [fault], workers)
            again = 2 if rank == 0 else 1
            yield Case(name + ", growing", [f"{fault}:at={again}"], **grown,
                       restarts=workers == 2 and rank == 0)  # no other worker has the state
        elif point in GIVING:
            if rank == 0:
                most = 9 if workers == 2 else 3  # several sources: each gives a part
                yield Case(name, [f"{fault}:at={dice(most)}"], **grown, restarts=workers == 2)
        elif point in TAKEN:
            if workers > 3:  # with fewer, all workers that stay have all of the state
                yield Case(name + ", shrinking", [fault.replace("rank=3", "rank=1")], workers, want=2)
        elif point in TAKING:
            if rank:
                yield Case(name, [f"{fault}:at={dice(9) if point == 'worker.follow' else 1}"], **grown)
        elif point in STARTING or point in ONCE:
            yield Case(name, [fault], workers)
        else:
            yield Case(name, [f"{fault}:at={dice(200 if point == 'worker.frame' else 50)}"], workers)


def sharded_cases(point, workers, what, dice):
    """The same with two replicas of each block: one death costs nothing, the second may cost a restart."""
    few = (lambda most: dice(2)) if point in GIVING or point in TAKING else dice  # pieces, where each gives a part
    for case in worker_cases(point, workers, what, few):
        case.name += ", 2 replicas"
        case.replicas = "2"
        case.steps = min(case.steps, MIDDLE)
        case.restarts = point in SECOND or point in TORN
        yield case


def daemon_cases(point):
    if point == "daemon.told":
        return  # between nodes: contingency.py
    if point in ("daemon.reaped", "daemon.telling", "daemon.foreseen"):
        yield Case(point, ["worker.reduced:rank=0:at=30:do=kill", point], 3, daemon=True)
        return
    for at in (1,) if point == "daemon.elected" else (1, 2, 5) if point != "daemon.row" else (3, 60):
        if at == 5 and point in ("daemon.preparing", "daemon.going", "daemon.active", "daemon.spawned"):
            continue
        yield Case(f"{point} {at}", [f"{point}:at={at}"], 2, 3, daemon=True)


def all_cases(seed):
    dice = random.Random(seed)
    for point in points():
        if point in PAUSED:
            continue
        if point.startswith("daemon."):
            yield from daemon_cases(point)
        else:
            for workers in (2, 3, 4):
                for what in ("kill", "stop"):
                    if point not in SHARDED and (point not in VIEWED or workers < 4):
                        yield from worker_cases(point, workers, what, lambda most: dice.randint(1, most))
                    if workers > 2 and (workers, what) != (4, "stop") and point not in VIEWED:
                        yield from sharded_cases(point, workers, what, lambda most: dice.randint(1, most))


class TooShort(Failure):
    """The job was over before the event that the case is about: this machine is a fast one."""


class Sweep:
    """One cluster for all cases."""

    def __init__(self, c, replicas):
        self.c, self.number, self.reference, self.replicas = c, 0, {}, replicas
        self.mortal = False  # rubatod has read the fault that it is to die of
        self.plan, self.once = c.path("faults"), c.path("fired")
        os.environ["RUBATO_FAULT"] = "@" + self.plan
        os.environ["RUBATO_FAULT_ONCE"] = self.once

    def arm(self, faults):
        for name in os.listdir(self.c.folder):
            if name.startswith("fired."):
                os.unlink(self.c.path(name))
        with open(self.plan, "w") as file:
            file.write(",".join(faults))

    def disarm(self):
        """No process dies of a fault any more."""
        self.arm([])
        if self.mortal:
            self.c.nodes[0].stop(signal.SIGKILL)
            self.c.nodes[0].start()
            self.mortal = False

    def fired(self):
        return [name for name in os.listdir(self.c.folder) if name.startswith("fired.")]

    def spec(self, case):
        return {
            "model": {"onnx": "mlp.onnx"},
            "data": {"train": {"path": "mlp.npy", "targets": "mlp-labels.npy"}},
            "train": {"steps": case.steps, "globalBatch": 20, "microBatch": 3, "clipNorm": 1.0},
            "devices": {"min": 1, "max": 4, "want": case.start},
            "state": {"replicas": self.replicas or case.replicas},
            "parallel": {"pipeline": 1},
            "checkpoint": {"path": self.c.path(f"ckpt{self.number}"), "every": case.every} if case.every else {},
        }

    def prepare(self):
        self.c.model("mlp", inputs=48, hidden=64, depth=2, classes=5)
        corpus.classes(self.c.folder, 64, (48,), 5, name="mlp")
        for steps in (STEPS, MIDDLE, LONGER):
            self.refer(steps)

    def refer(self, steps):
        """Records the sha256 of an undisturbed run of so many steps."""
        if steps in self.reference:
            return
        case = Case("alone", [], 1)
        case.steps = steps
        self.c.submit("alone", self.spec(case))
        self.reference[steps] = self.c.finish("alone")

    # ---- With a rubatod that may be dead at any moment ----------------------------------------------

    def alive(self):
        node = self.c.nodes[0]
        if node.process.poll() is not None:
            node.start(wait=False)
        return node

    def insist(self, *words, seconds=40):
        """Runs rubatoctl until it succeeds, whatever becomes of rubatod meanwhile."""
        def ask():
            self.alive()
            done = self.c.run(*words)
            return done if done.returncode == 0 else None
        return until(" ".join(map(str, words)), ask, seconds).stdout

    def submit(self, name, case):
        path = self.c.job_file(name, self.spec(case))

        def there():
            self.alive()
            return (self.c.run("submit", "-f", path).returncode == 0 or
                    self.c.run("status", name).returncode == 0)
        until("the job to be accepted", there, 30)

    def show(self):
        """Prints what is known of a case that failed."""
        job = f"case{self.number}"
        print(self.c.run("-o", "yaml", "describe", job).stdout)
        print(self.c.run("events", job).stdout)
        with open(self.c.nodes[0].log) as log:
            print("".join(log.readlines()[-30:]))
        for pid in self.c.processes("rubato-worker"):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline") as line, open(f"/proc/{pid}/wchan") as where:
                    print(pid, line.read().replace("\0", " "), where.read())
        for folder, _, names in os.walk(self.c.path("local/jobs")):
            for name in names:
                if folder.endswith("/logs"):
                    with open(os.path.join(folder, name)) as log:
                        print(f"--- {name}", "".join(log.readlines()[-12:]), sep="\n")

    def clear(self):
        """No case suffers from the one before."""
        self.disarm()
        self.alive()
        self.c.run("cancel", "--now", f"case{self.number}")

    def idle(self):
        """No worker is left, and facts say so: the next job has all devices from the start."""
        found = self.c.try_json("get", "devices")
        return found and not self.c.processes("rubato-worker") and not any(item["job"] for item in found["items"])

    def resize(self, job, want):
        def ask():
            self.alive()
            done = self.c.run("resize", job, "--want", want)
            if "is over" in done.stderr:
                raise TooShort(f"{job} was over before it could be resized")
            return done.returncode == 0
        until(f"{job} to be resized", ask, 40)

    # ---- A case -------------------------------------------------------------------------------------

    def run(self, case):
        while True:
            try:
                return self.run_once(case)
            except TooShort as failure:
                case.steps *= 2
                if case.steps > MOST_STEPS:
                    raise
                print(f"{case.name}: {failure}: again with {case.steps} steps", flush=True)
                self.clear()

    def run_once(self, case):
        self.disarm()
        self.refer(case.steps)
        self.number += 1
        job = f"case{self.number}"
        until("the workers of the case before to leave", self.idle)
        self.arm(case.faults)
        if case.daemon:
            self.c.nodes[0].stop(signal.SIGKILL)
            self.mortal = True
        begun = time.monotonic()
        self.submit(job, case)
        if case.want != case.start:
            self.insist("wait", job, "--for", "step=5", "--timeout", 1)
            self.resize(job, case.want)
        self.insist("wait", job, "--for", "done", "--timeout", 2, seconds=240)
        took = time.monotonic() - begun
        self.insist("get", "nodes")
        if len(self.fired()) < case.needed:
            grown = any(len(item["members"]) == case.want and "receipt" in item
                        for item in json.loads(self.insist("-o", "json", "get", "configurations", job))["items"])
            raise (Failure if grown else TooShort)(f"passed only {self.fired()} of {case.faults}")
        check(self.c.export(job) == self.reference[case.steps], "the bits differ")
        steps = [row["step"] for row in self.c.metrics(job)]
        missing = sorted(set(range(1, case.steps + 1)) - set(steps))
        check(steps == sorted(set(steps)) and (not missing or case.restarts and missing[-1] - missing[0] < len(missing)),
              f"steps in metrics are not 1, 2, 3 ...: {missing or steps}")  # a lone worker's rows may wait
        events = self.c.kinds(job)
        check(case.restarts or "restarted" not in events, f"it was restarted: {events}")
        if case.told and "worker-killed" not in events:  # it takes a second; who waits for a newcomer trains on
            raise (Failure if case.steps == STEPS else TooShort)(f"nobody says that it was stopped: {events}")
        return took


def runs(pid):
    """Neither dead nor stopped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZTX"
    except OSError:
        return False


class Blows:
    """Kills and stops at any time, each when the state is whole again: two members or more train."""

    STEPS = LONGER
    MOST = 4

    def __init__(self, sweep, seed):
        self.sweep, self.c, self.random = sweep, sweep.c, random.Random(seed)
        self.job, self.jobs, self.done = None, 0, []

    def status(self):
        return self.c.try_json("status", self.job)

    def whole(self):
        """Two or more workers train and have made a step meanwhile; or the job is over."""
        self.sweep.alive()
        before = self.status()
        if not before:
            return None
        if before["phase"] == "Succeeded":
            return before
        if before["phase"] != "Running" or len(before["devices"]) < 2 or not all(d.get("pid") for d in before["devices"]):
            return None
        until("a step", lambda: (self.status() or before)["step"] > before["step"] or
              (self.status() or before)["phase"] == "Succeeded", 60)
        after = self.status()
        # Survivors go on before a busy coordinator tells of a death.
        same = after and after["devices"] == before["devices"] and all(runs(d["pid"]) for d in after["devices"])
        return after if same or (after and after["phase"] == "Succeeded") else None

    def begin(self):
        self.jobs += 1
        self.job = f"blows{self.jobs}"
        case = Case(self.job, [], self.random.randint(2, self.MOST))
        case.steps = self.STEPS
        self.sweep.submit(self.job, case)

    def end(self):
        """The same bits, and every sample committed once: by the metrics, and by every receipt."""
        self.sweep.insist("wait", self.job, "--for", "done", "--timeout", 5, seconds=240)
        rows = self.c.json("metrics", self.job, "--lost")
        steps = [row["step"] for row in rows]
        odd = [step for step in range(1, self.STEPS + 1) if steps.count(step) != 1] if len(steps) != self.STEPS else []
        check(steps == list(range(1, self.STEPS + 1)),
              f"steps were lost or done again: {[row for row in rows if row['step'] in odd] or odd}")
        next_sample = 0
        for row in rows:
            check(row["first_sample"] == next_sample, f"samples were repeated or skipped: {row}")
            next_sample += row["samples"]
        for item in self.c.json("get", "configurations", self.job)["items"]:
            lost = [item["receipt"][key] for key in ("steps_lost", "samples_repeated", "samples_skipped")
                    if "receipt" in item]
            check(not any(lost), f"{item}")
        events = self.c.kinds(self.job)
        check("restarted" not in events, f"it was restarted: {events}")
        check(self.c.export(self.job) == self.sweep.reference[self.STEPS], "the bits differ")
        self.c.ctl("delete", self.job)
        self.job = None

    def resize(self, want):
        """The job may be over by now."""
        def ask():
            self.sweep.alive()
            return (self.c.run("resize", self.job, "--want", want).returncode == 0 or
                    (self.status() or {}).get("phase") == "Succeeded")
        until(f"a resize to {want}", ask)

    def strike(self):
        """Kills or stops one of the workers, newcomers too, or rubatod."""
        victims = self.c.processes("rubato-worker")
        daemon = self.c.nodes[0].process.pid
        pid = self.random.choice(sorted(victims) + [daemon])
        what = self.random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
        name = "rubatod" if pid == daemon else "worker"
        self.done.append(f"{what.name} {name}")
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            return
        until("the blow to be felt", lambda: not runs(pid))
        if pid == daemon and what == signal.SIGSTOP:
            time.sleep(self.random.random() * 2)
            os.kill(pid, signal.SIGCONT)
        elif pid == daemon:
            self.c.nodes[0].process.wait()
            time.sleep(self.random.random())
            self.sweep.alive()

    def rage(self, count):
        self.sweep.arm([])
        self.sweep.refer(self.STEPS)
        try:
            while len(self.done) < count:
                if not self.job:
                    self.begin()
                status = until("the state to be whole again", self.whole, 60)
                if status["phase"] == "Succeeded":
                    self.end()
                    continue
                # With three or more wanted, two are left when one dies while another comes or goes.
                self.resize(self.random.randint(2, self.MOST))
                time.sleep(self.random.random() * 0.6)
                self.strike()
            self.end()
        except Failure:
            print("\n".join(self.done[-12:]))
            if self.job:
                print(self.c.run("events", self.job).stdout[-6000:])
                print(self.c.run("get", "configurations", self.job).stdout[-6000:])
                print(self.c.run("status", self.job).stdout)
                print(self.c.run("-o", "json", "describe", self.job).stdout)
            raise


def blows(count, seed, replicas):
    begun = time.monotonic()
    with cluster.Cluster(devices=8) as c:  # a job leaves a device alone for a while after a failure there
        sweep = Sweep(c, replicas)
        c.model("mlp", inputs=48, hidden=64, depth=2, classes=5)
        corpus.classes(c.folder, 64, (48,), 5, name="mlp")
        storm = Blows(sweep, seed)
        storm.rage(count)
        kinds = {kind: storm.done.count(kind) for kind in sorted(set(storm.done))}
        print(f"{len(storm.done)} blows in {storm.jobs} jobs, no step lost: {kinds}, "
              f"{time.monotonic() - begun:.0f} s, seed {seed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--replicas", choices=("all", "1", "2"))
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.random:
        blows(options.random, options.seed, options.replicas)
        return
    if not points():
        print("no fault points in this build")
        sys.exit(77)
    cases = [case for case in all_cases(options.seed) if options.replicas in (None, case.replicas)]
    if options.words:
        cases = [case for case in cases if any(word in case.name for word in options.words)]
    elif not options.all and not options.list:
        random.Random(options.seed).shuffle(cases)
    if options.list:
        print("\n".join(case.name for case in cases))
        return
    begun, failed, run = time.monotonic(), [], 0
    with cluster.Cluster(devices=4) as c:
        sweep = Sweep(c, None)
        c.nodes[0].stop(signal.SIGKILL)
        c.nodes[0].start()
        sweep.prepare()
        for case in cases:
            if not options.all and not options.words and time.monotonic() - begun > options.seconds:
                break
            run += 1
            try:
                print(f"{case.name:60} {sweep.run(case):6.2f} s", flush=True)
            except Failure as failure:
                print(f"{case.name:60} FAILED {failure}", flush=True)
                failed.append(case.name)
                sweep.show()
                sweep.clear()
        print(f"{run} of {len(cases)} cases, {len(failed)} failed, {time.monotonic() - begun:.0f} s, seed {options.seed}")
        check(not failed, f"failed: {failed}")


try:
    main()
except Failure as failure:
    print(f"FAILED sweep: {failure}")
    sys.exit(1)
