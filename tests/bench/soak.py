#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job that is resized or loses a worker every few seconds, for long, while everything that could grow is watched.

usage: soak.py [--minutes M] [--every S] [--nodes 1|2] [--seed N] [--json FILE]

Every --every seconds one of: resize to another count, kill -9 of a worker, both at once.  The worker that has lived
longest is spared, so that one worker lives through all of it.  Just before each, when all is calm, a sample is taken:
resident memory, descriptors, threads and sockets of rubatod, etcd and that worker; processes beside those that must be
there; files in the state folders; etcd's keys, without and with the bounded ones, and the size of its file.

The verdict.  The first third of the samples is warming up.  Of the middle and the last third the medians are
compared: a measure is flat when its last median is at most its middle one plus the slack, which is the larger of
2 % and what RULES says.  (First and last are medians of ten samples; the slope is Theil and Sen's, per hour, over
the last two thirds.)  Events are kept up to a thousand: until then their number may grow.

In the end the job is stopped where it is, and its weights must be those of an undisturbed run of as many steps.
"""
import argparse
import base64
import collections
import http.client
import json
import os
import random
import signal
import socket
import statistics
import sys
import time

import lab
from cluster import until

MOST = 3      # devices of the job
DEVICES = 24  # in the cluster: a job leaves a device alone for a while after a failure there

# What may come and go without being a leak, in the measure's unit.
RULES = {"rss, KB": 2048, "descriptors": 2, "threads": 1, "sockets": 2, "processes too many": 0, "files": 3,
         "keys, events apart": 8, "events": 1060, "database, KB": 2048}


# ---- Looking ----------------------------------------------------------------------------------------

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        here = os.getcwd()  # the path may be longer than an address takes
        os.chdir(os.path.dirname(self.path))
        try:
            self.sock.connect(os.path.basename(self.path))
        finally:
            os.chdir(here)


def ask_etcd(c, method, body):
    connection = http.client.HTTPConnection(c.url.split("//")[1], timeout=10) if c.etcds else \
        UnixConnection(os.path.join(c.nodes[0].state, "etcd", "c.sock:1"))
    connection.request("POST", method, json.dumps(body), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())
    connection.close()
    return answer


def etcd_keys(c):
    """How many keys of each kind."""
    encode = lambda text: base64.b64encode(text.encode()).decode()
    answer = ask_etcd(c, "/v3/kv/range", {"key": encode("/rubato/"), "range_end": encode("/rubato0"),
                                          "keys_only": True})
    kinds = collections.Counter()
    for item in answer.get("kvs", []):
        part = base64.b64decode(item["key"]).decode().split("/")[3:]
        kinds[part[2] if part[0] == "jobs" and len(part) > 2 else part[0]] += 1
    return kinds


def look_at(pid):
    folder = f"/proc/{pid}"
    with open(f"{folder}/status") as file:
        status = dict(line.split(":", 1) for line in file)
    links = []
    for name in os.listdir(f"{folder}/fd"):
        try:
            links.append(os.readlink(f"{folder}/fd/{name}"))
        except FileNotFoundError:
            pass
    return {"rss, KB": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]),
            "descriptors": len(links), "sockets": sum(link.startswith("socket:") for link in links)}


def files_in(state):
    """How many files of each kind: by the first folder, and within a job by the folder below the job's."""
    kinds = collections.Counter()
    for folder, _, names in os.walk(state):
        parts = os.path.relpath(folder, state).split("/")
        kinds[parts[2] if parts[0] == "jobs" and len(parts) > 2 else parts[0]] += len(names)
    return kinds


class Watch:
    def __init__(self, c, job):
        self.c, self.job, self.start, self.samples = c, job, time.monotonic(), []

    def eldest(self):
        """The worker that has lived longest."""
        def started(pid):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    return int(file.read().rsplit(")", 1)[1].split()[19])
            except OSError:
                return sys.maxsize
        pids = [device["pid"] for device in self.c.status(self.job)["devices"] if device.get("pid")]
        return min(pids, key=started)

    def sample(self):
        c = self.c
        found = {"minutes": (time.monotonic() - self.start) / 60}
        roles = {node.name: node.process.pid for node in c.nodes}
        roles["etcd"] = c.etcd_pids()[0]
        roles["worker"] = self.eldest()
        for role, pid in roles.items():
            for name, value in look_at(pid).items():
                found[f"{role}: {name}"] = value
        keys = etcd_keys(c)
        found["etcd: events"] = keys.pop("events", 0)
        found["etcd: keys, events apart"] = sum(keys.values())
        found["etcd: database, KB"] = int(ask_etcd(c, "/v3/maintenance/status", {})["dbSize"]) // 1024
        files = sum((files_in(node.state) for node in c.nodes), collections.Counter())
        found["cluster: files"] = sum(files.values())
        found["cluster: processes too many"] = \
            len(c.processes("rubato-worker")) - len(c.status(self.job)["devices"])
        found["kinds"] = {"keys": dict(keys), "files": dict(files)}
        self.samples.append(found)

    # ---- The verdict -----------------------------------------------------------------------------

    def table(self):
        """A row a measure, and whether all are flat."""
        warm = self.samples[len(self.samples) // 3:]
        half = len(warm) // 2
        rows, flat = [], True
        for name in (name for name in warm[0] if name not in ("minutes", "kinds")):
            rule = RULES[name.split(": ", 1)[1]]
            middle = statistics.median(one[name] for one in warm[:half])
            last = statistics.median(one[name] for one in warm[half:])
            ok = last <= (rule if name.endswith(": events") else middle + max(0.02 * middle, rule))
            flat = flat and ok
            rows.append([name, statistics.median(one[name] for one in self.samples[:10]), middle, last,
                         statistics.median(one[name] for one in self.samples[-10:]), slope(warm, name),
                         "flat" if ok else "GROWS"])
        return rows, flat


def slope(samples, name):
    """Per hour: the median over pairs of samples."""
    every = samples[::max(1, len(samples) // 150)]
    found = [60 * (b[name] - a[name]) / (b["minutes"] - a["minutes"])
             for i, a in enumerate(every) for b in every[i + 1:]]
    return statistics.median(found)


# ---- Disturbing -------------------------------------------------------------------------------------

class Trouble:
    def __init__(self, c, job, watch, seed):
        self.c, self.job, self.watch, self.random = c, job, watch, random.Random(seed)
        self.done = collections.Counter()

    def resize(self):
        want = self.c.status(self.job)["want"]
        self.c.ctl("resize", self.job, "--want",
                   self.random.choice([count for count in range(1, MOST + 1) if count != want]))

    def kill(self):
        pids = self.c.status(self.job)["devices"]
        pids = [device["pid"] for device in pids if device.get("pid") and device["pid"] != self.watch.eldest()]
        if not pids:
            return self.resize()
        try:
            os.kill(self.random.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            pass

    def both(self):
        self.resize()
        time.sleep(self.random.random() * 0.5)
        self.kill()

    def next(self):
        act = self.random.choice((self.resize, self.resize, self.kill, self.kill, self.both))
        self.done[act.__name__] += 1
        act()


def spec(c, steps, want):
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 32}},
        "train": {"steps": steps, "globalBatch": 12, "microBatch": 2, "clipNorm": 1.0},
        "devices": {"min": 1, "max": MOST, "want": want},
        "checkpoint": {"path": c.path("checkpoints"), "every": 200, "keep": 2},
        "failure": {"maxRestarts": 100000},
    }


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=5)
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default="bench-soak.json")
    options = parser.parse_args()
    print(lab.machine() + "\n")
    with lab.Lab(nodes=options.nodes, devices=DEVICES // options.nodes) as c:
        lab.corpus.text(c.path("corpus.txt"), 40000)
        c.model("gpt", layers=2, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("soak", spec(c, lab.ENDLESS, 2))
        c.wait("soak", "step=50")
        watch = Watch(c, "soak")
        trouble = Trouble(c, "soak", watch, options.seed)
        end = time.monotonic() + 60 * options.minutes
        due = time.monotonic()
        while time.monotonic() < end:
            step = c.status("soak")["step"]
            trouble.next()
            due += options.every
            time.sleep(max(0, due - time.monotonic()))
            until(f"a step after {step}", lambda: c.status("soak")["step"] > step, 60)
            watch.sample()
            if len(watch.samples) % 60 == 0:
                lab.say(f"{watch.samples[-1]['minutes']:.0f} minutes: {dict(trouble.done)}")
        rows, flat = watch.table()
        changed = c.status("soak")["configuration"]
        lab.keep(options.json, {"samples": watch.samples, "done": dict(trouble.done)})
        print(f"{options.minutes:g} minutes, {sum(trouble.done.values())} disturbances ({dict(trouble.done)}), "
              f"{changed} configurations, {len(watch.samples)} samples, {options.nodes} node(s).\n")
        lab.table(["measure", "first", "middle third", "last third", "last", "slope, an hour", "verdict"], rows)
        same = compare(c)
    print("flat" if flat else "NOT FLAT: something grows")
    print(lab.machine())
    return 0 if flat and same else 1


def compare(c):
    """Stops the job where it is; as many undisturbed steps must give the same weights."""
    c.ctl("pause", "soak")
    until("the pause", lambda: c.status("soak")["phase"] == "Paused")
    disturbed, steps = c.export("soak"), c.json("describe", "soak")["state"]["parked"]["step"]
    restarts = sum(event["kind"] == "restarted" for event in c.json("events", "soak")["items"])
    lab.say(f"{steps} steps once more, undisturbed")
    c.submit("alone", {**spec(c, steps, 2), "checkpoint": {}})
    c.wait("alone", "done", 4 * 3600)
    same = c.export("alone") == disturbed
    print(f"sha256 after {steps} steps: {disturbed}, {'the same' if same else 'ANOTHER'} as undisturbed; "
          f"{restarts} falls back to a checkpoint\n")
    return same


if __name__ == "__main__":
    sys.exit(main())
