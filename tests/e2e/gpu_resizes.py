#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job on GPUs that is resized again and again: nothing of it grows but its steps.

Looked at once warm and again at the end: descriptors, threads and resident memory of the worker that stays and of
rubatod, and the memory of a real GPU.  As many resizes as the time allows, at most 100 and at
least 30 on a real GPU (gpus.py says which that is)."""
import os
import time

import cluster
import gpus
from cluster import ENDLESS, check, check_nothing_lost
from gpus import REAL, libraries, on, remember, saved_in, same_as_alone, table

MOST, LEAST, SECONDS, WARM = 100, 30 if REAL else 10, 60 if REAL else 40, 4
MEGABYTE = 1 << 20
# How much more there may be at the end than after the first resizes: metrics and logs are kept in memory too.
ROOM = {"descriptors": 0, "threads": 0, "resident": 24 * MEGABYTE}
GPU_ROOM = 64 * MEGABYTE


def look_at(pid):
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(fields["Threads"]),
            "resident": int(fields["VmRSS"].split()[0]) << 10}


def settled(pid, at_most):
    """The least that each figure comes to: resources that are closed after a change are given a moment."""
    seen = {}

    def is_down():
        now = look_at(pid)
        for key, value in now.items():
            seen[key] = min(value, seen.get(key, value))
        return not at_most or all(seen[key] <= at_most[key] + ROOM[key] for key in ROOM)

    end = time.monotonic() + 30
    while not is_down() and time.monotonic() < end:
        time.sleep(0.05)
    return seen


def check_flat(name, first, last):
    for key, room in ROOM.items():
        check(last[key] <= first[key] + room, f"{name}: {key} grew from {first[key]} to {last[key]}")
    table(f"{name:10} descriptors {first['descriptors']} > {last['descriptors']}, threads {first['threads']} > "
          f"{last['threads']}, resident {first['resident'] / 1e6:.0f} > {last['resident'] / 1e6:.0f} MB")


def many_resizes():
    used = libraries.Used()
    with gpus.gpus(3), cluster.Cluster(devices=1) as c:
        gpus.models(c)

        def make(steps, **more):
            return on("cuda", gpus.gpt_spec(c, steps), **more)

        c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
        watched = {"rubatod": c.nodes[0].process.pid, "worker": c.train_on("job", 1)["devices"][0]["pid"]}
        start, resizes, first, memory, since, took = time.monotonic(), 0, {}, None, None, {"grow": [], "shrink": []}
        while resizes < MOST and (resizes < LEAST or time.monotonic() < start + SECONDS):
            by = 1 + resizes // 2 % 2
            if time.monotonic() > start + 0.8 * SECONDS or resizes == MOST - 8:
                since = since or remember(c, "job")
            for verb in "grow", "shrink":
                receipt = c.json(verb, "job", by, "--wait", "--timeout", "60")
                check_nothing_lost(receipt, f"resize {resizes}")
                took[verb].append(receipt["ready_ms"])
                resizes += 1
            check(c.status("job")["devices"][0]["pid"] == watched["worker"], "another worker stayed")
            if resizes == 2 * WARM:
                first = {name: settled(pid, None) for name, pid in watched.items()}
                memory = used.now()
        table(f"{resizes} resizes: the median grow was ready in {sorted(took['grow'])[resizes // 4]:.0f} ms, shrink "
              f"in {sorted(took['shrink'])[resizes // 4]:.0f} ms")
        for name, pid in watched.items():
            check_flat(name, first[name], settled(pid, first[name]))
        if memory is not None:
            table(f"the GPU's memory in use {memory / 1e6:.0f} > {used.now() / 1e6:.0f} MB")
            cluster.until(f"the GPU's memory to come back to {memory}", lambda: used.now() <= memory + GPU_ROOM, 10)
        same_as_alone(c, make, since=since)


if __name__ == "__main__":
    if REAL or os.path.exists(gpus.MODULE):
        cluster.main(many_resizes, go_on=105 if REAL else 0)
