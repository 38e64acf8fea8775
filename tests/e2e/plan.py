#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`rubatoctl plan` of a job, as a user asks for it: without a rubatod, from a cluster file or timed here; and the move
and the choice that it predicts are what happens when the job runs."""
import json
import os
import resource
import subprocess
import xml.dom.minidom

import cases
import cluster
from cluster import BUILD, check

CLUSTER = """
nodes:
- {name: a, count: 2, devices: [{count: 2, flops: 1e11, bandwidth: 2e10, memory: 4Gi}],
   inside: {bandwidth: 5e9, latency: 1e-5}, network: {bandwidth: 1.25e8, latency: 1e-4}}
"""


def plan(code, *words):
    done = subprocess.run([os.path.join(BUILD, "rubatoctl"), "plan", *words], capture_output=True, text=True,
                          env={**os.environ, "RUBATO_ENDPOINT": "unix:/nowhere"}, timeout=120)
    check(done.returncode == code, f"plan {words}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def chosen(report):
    """By number of devices, the candidate that a submit would run."""
    for one in report["plans"]:
        check([c["verdict"] for c in one["candidates"]].count("chosen") == 1, f"not one chosen: {one}")
        for c in one["candidates"]:
            check(c["runs"] == (c["verdict"] in ("chosen", "runs")) and c["reason"], f"no reason: {c}")
    return {one["devices"]: one["candidates"][0] for one in report["plans"]}


def what_if(c, job):
    with open(c.path("cluster.yaml"), "w") as file:
        file.write(CLUSTER)
    words = ["-f", job, "--cluster", c.path("cluster.yaml"), "--devices", "1,2,4",
             "--set", "spec.devices.max=4"]
    check(plan(0, *words, "-o", "json") == plan(0, *words, "-o", "json"), "two plans of one cluster file differ")
    table = plan(0, *words)
    for part in ("VERDICT", "chosen", "data parallel x4, 2 replicas", "pipeline of", "priced only",
                 "pin spec.parallel.pipeline: 1 and spec.state.replicas: 2 to have it", "1F1B, 2 replicas of the state",
                 "1F1B, all of the state everywhere"):
        check(part in table, f"'{part}' is not in:\n{table}")
    words += ["--set", "spec.parallel.pipeline=1"]
    best = chosen(json.loads(plan(0, *words, "-o", "json", "--svg", c.path("step.svg"))))
    check(best[2]["stepMs"] < best[1]["stepMs"] < best[4]["stepMs"], f"the slow network does not show: {best}")
    check(best[2]["sentBytes"] > 0 and best[1]["sentBytes"] == 0, f"bytes sent: {best}")
    check(best[2]["move"]["bytes"] == 0 < best[4]["move"]["bytes"], f"the move from 2: {best}")
    xml.dom.minidom.parse(c.path("step.svg"))
    check("would take" in plan(0, *words), "nothing is said of fewer devices")


FAR = """
nodes:
- {name: a, count: 4, devices: [{flops: 1e11, bandwidth: 2e10, memory: 4Gi}],
   inside: {bandwidth: 5e9, latency: 1e-5}, network: {bandwidth: BANDWIDTH, latency: 1e-5}}
"""


def by_the_link(c, job):
    """The link decides how the job runs, and how its state is held; a pin is left as it is."""
    for bandwidth, kind in ("1e6", "pipeline of"), ("1e12", "data parallel x"):
        slow = kind == "pipeline of"
        with open(c.path("far.yaml"), "w") as file:
            file.write(FAR.replace("BANDWIDTH", bandwidth))
        words = ["-f", job, "--cluster", c.path("far.yaml"), "--devices", "2,4", "--set", "spec.devices.max=4", "-o", "json"]
        for says, state in (("auto", "2 replicas of the state"), ("1", "1 replica of the state"), ("2", "2 replicas of the state"),
                            ("all", "all of the state everywhere")):
            pins = ["--set", f"spec.state.replicas={says}"]
            best = chosen(json.loads(plan(0, *words, *pins)))
            if slow or says != "auto":
                check(best[4]["name"].endswith(state), f"{bandwidth} bytes a second, {says}: {best}")
            if says != "all":
                check(best[4]["name"].startswith(kind), f"{bandwidth} bytes a second, {says}: {best}")
            if says == "auto":
                check(best[2]["name"].endswith("all of the state everywhere"), f"on two devices: {best}")
                state = "all of the state everywhere"
            best = chosen(json.loads(plan(0, *words, *pins, "--set", "spec.parallel.pipeline=1")))
            check(best[4]["name"] == f"data parallel x4, {state}", f"pinned, {says}: {best}")


MANY = """
nodes:
- {name: a, count: 128, devices: [{count: 8, flops: 1e13, bandwidth: 1e12}],
   inside: {bandwidth: 1e11, latency: 1e-6}, network: {bandwidth: 1e9, latency: 1e-5}}
"""


def many_devices(c, job):
    """1,024 devices, in stages and not, are planned in a few seconds; devices of a node share its network."""
    with open(c.path("many.yaml"), "w") as file:
        file.write(MANY)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    report = json.loads(plan(0, "-f", job, "--cluster", c.path("many.yaml"), "--devices", "1024", "-o", "json",
                             "--set", "spec.devices.max=1024"))
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    names = [one["name"] for one in report["plans"][0]["candidates"]]
    for part in "data parallel x1024", "pipeline of 2 stages x1024":
        check(any(name.startswith(part) for name in names), f"{part}: {names}")
    check(chosen(report)[1024]["stepMs"] > 0 and took < 60, f"{took} s of a core")


def refused(c, job):
    with open(c.path("bad.yaml"), "w") as file:
        file.write("nodes: [{devises: []}]\n")
    check("did you mean" in plan(4, "-f", job, "--cluster", c.path("bad.yaml")), "a wrong key has no hint")
    more = plan(4, "-f", job, "--cluster", c.path("cluster.yaml"), "--devices", "8", "--set", "spec.devices.max=8")
    check("the cluster has 4" in more, f"8 of 4: {more}")
    check("devices.max is 2" in plan(4, "-f", job, "--cluster", c.path("cluster.yaml"), "--devices", "4"), "above max")
    check("-f says" in plan(2, "--devices", "2"), "no job file")
    check("--devices" in plan(2, "-f", job, "--devices", "2,x"), "no number")
    plan(3, "-f", c.path("absent.yaml"))
    check("too little" in plan(4, "-f", job, "--set", "spec.memory.limit=1k"), "a limit of 1k")


def as_it_happens(c, job):
    """Timed here: the planned choice, and the bytes that growing moves, are those of the run."""
    best = chosen(json.loads(plan(0, "-f", job, "-o", "json", "--devices", "1,2", "--set", "spec.devices.want=1")))
    spec = cases.spec("gpt", c.folder, 1000000)
    spec["devices"] = {"min": 1, "max": 2, "want": 1}
    c.submit("gpt", spec)
    c.wait("gpt", "step=3")
    before = c.status("gpt")["step"]
    receipt = c.json("grow", "gpt", "1", "--wait", "--timeout", "60s")
    summary = c.status("gpt")["plan"]["summary"]
    print(f"predicted {best[2]['move']['bytes']:.0f} bytes, moved {receipt['bytes_moved']}; {summary}")
    check(summary.startswith(best[2]["name"].split(",")[0]), f"{summary} is not {best[2]['name']}")
    # the plan has the state and the sums of one step; each further step that ended meanwhile sends its sums
    state, steps = best[2]["move"]["bytes"], receipt["step"] - before
    check(0.99 * state < receipt["bytes_moved"] < 1.01 * state * (1 + steps / 4),
          f"moved {receipt['bytes_moved']} in {steps} steps, predicted {state}")
    c.train_on("gpt", 2)
    for n in (1, 2):
        steps = sorted(row["step_ms"] for row in c.metrics("gpt") if row["devices"] == n)
        print(f"{n} devices: predicted {best[n]['stepMs']:.2f} ms, median {steps[len(steps) // 2]:.2f} ms")
    there = c.json("plan", "gpt", "--devices", "1,2")
    check(there["from"] == 1 and there["cluster"]["devices"] == 2 and there["timedHere"], f"of the job: {there}")
    check(chosen(there)[2]["name"] == best[2]["name"], f"{chosen(there)} is not {best}")
    check("as it is" in c.run("plan", "gpt", "--set", "spec.devices.want=2").stderr, "--set of a job")
    c.run("delete", "gpt")


def main():
    with cluster.Cluster(devices=2) as c:
        cases.make("gpt", c.folder)
        job = c.job_file("gpt", cases.spec("gpt", c.folder, 100))
        what_if(c, job)
        by_the_link(c, job)
        many_devices(c, job)
        refused(c, job)
        as_it_happens(c, job)


cluster.main(main)
