#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Without a pin the planner decides how a job runs and how much of its state is everywhere, again at each change of its
devices; the sha256 is that of one device, whatever the planner decides.  Rubatods that seem to be on machines of their
own measure the links between them."""
import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys

import cluster
import corpus
import delicate
from cluster import ENDLESS, check, check_nothing_lost, until


class Apart(cluster.Cluster):
    """Nodes with host names of their own; nothing else separates them."""

    def place_nodes(self):
        for i, node in enumerate(self.nodes):
            node.prefix = ["unshare", "--uts", "sh", "-c", f'hostname rubato-{i} && exec "$@"', "sh"]
            node.arguments += ["--listen", "127.0.0.1:0"]


class Held(cluster.Cluster):
    """The workers that time a model first make a file `held` and wait, while a file `hold` is there."""

    def place_nodes(self):
        worker = self.path("rubato-worker")
        with open(worker, "w") as file:
            file.write(f"""#!/bin/sh
if [ "$1" = --profile ] && [ -e {self.path("hold")} ]; then
    touch {self.path("held")}
    while [ -e {self.path("hold")} ]; do sleep 0.02; done
fi
exec {cluster.BUILD}/rubato-worker "$@"
""")
        os.chmod(worker, 0o755)
        shutil.copy(os.path.join(cluster.BUILD, "rubatod"), self.folder)
        self.nodes[0].prefix = ["sh", "-c", f'shift; exec {self.path("rubatod")} "$@"', "sh"]


def timed_while_another_is_deleted():
    """A job of the same model is deleted while a new one is timed: nothing goes with it that the new job needs."""
    with Held(devices=2) as c:
        delicate.models(c)
        c.submit("first", on_two(c, 6))
        c.wait("first", "done")
        with open(c.path("hold"), "w"), concurrent.futures.ThreadPoolExecutor() as pool:
            second = pool.submit(c.submit, "second", on_two(c, 6))
            until("the model to be timed", lambda: os.path.exists(c.path("held")))
            first = c.finish("first")
            until("its folder to go", lambda: not os.listdir(os.path.join(c.nodes[0].state, "jobs")))
            check(c.json("get", "jobs")["items"] == [], "there are jobs")  # what goes with the folder has gone by now
            os.remove(c.path("hold"))
            second.result()
        check(c.finish("second") == first, "the bits differ")
        check("is not profiled" not in open(c.nodes[0].log).read(), "it was not timed")


def resized():
    with cluster.Cluster(devices=4) as c:
        models = delicate.models(c)
        for kind, make in models.items():
            c.submit("job", make(c, ENDLESS, 2, **({"state": {"replicas": "1"}} if kind == "cnn" else {})))
            c.wait("job", "step=4")
            said = c.status("job")["plan"]
            check(said["expectedMs"] > 0 and "is expected" in said["chosen"], f"not planned: {said}")
            for change in ("grow", 2), ("shrink", 1):
                receipt = c.json(change[0], "job", change[1], "--wait", "--timeout", "60")
                check_nothing_lost(receipt, kind)
                check("is expected" in receipt["chosen"] and receipt["plan"], f"{receipt}")
            c.ctl("resize", "job", "--want", 1, "--wait")
            facts = {conf["number"]: conf for conf in c.json("get", "configurations")["items"]}
            check(all("chosen" in conf for conf in facts.values() if len(conf["members"]) > 1), f"{facts}")
            c.same_as_alone("job", make(c, ENDLESS), kind)


def on_two(c, steps, **more):
    spec = delicate.gpt_spec(c, steps, 2, **more)
    spec["devices"]["min"] = 2
    return spec


def not_asked():
    """The job is pinned: nothing is left for the planner to decide."""
    with cluster.Cluster(devices=2) as c:
        delicate.models(c)
        for more, says in (({"parallel": {"pipeline": 1}}, "data parallel x2"), ({"parallel": {"pipeline": 2}}, "pipeline of 2"),
                           ({"parallel": {"pipeline": 1}, "state": {"replicas": "1"}}, "data parallel x2")):
            c.submit("job", on_two(c, 6, **more))
            c.wait("job", "done")
            plan = c.status("job")["plan"]
            check(plan["summary"].startswith(says) and plan["chosen"] is None, f"{more}: {plan}")
            c.finish("job")


def planned(c):
    """The job's plan, or None while the planner has made none: the coordinator first has to fetch the profile."""
    plan = c.status("job")["plan"] or {}
    return plan if "is expected" in (plan.get("chosen") or "") else None


def links():
    if os.geteuid():
        print("links: only root can give a process a host name of its own")
        return
    with Apart(nodes=2, devices=1) as c:
        until("the links to be measured",
              lambda: all(node.get("networkBandwidth", 0) > 1e6 for node in c.json("get", "nodes")["items"]))
        check(all(device["flops"] > 1e8 for device in c.json("get", "devices")["items"]), "speeds of cores")
        delicate.models(c)
        c.submit("job", on_two(c, ENDLESS, state={"replicas": "1"}))
        until("the job to be planned over the network", lambda: planned(c))
        c.train_on("job", 2)
        c.same_as_alone("job", delicate.gpt_spec(c, ENDLESS), "over the network")


def gpt_spec(c, steps, want):
    """More weights than activations, and few microbatches: over slow links a pipeline is several times quicker; within
    one machine a pipeline's devices wait too much."""
    corpus.text(c.path("corpus.txt"), 40000)
    return {"model": {"onnx": "gpt.onnx"}, "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 128}},
            "train": {"steps": steps, "globalBatch": 4, "microBatch": 1, "optimizer": {"type": "adamw", "lr": 1.0e-3},
                      "clipNorm": 1.0},
            "devices": {"min": 1, "max": 4, "want": want}}


def check_slow(c, devices):
    """The planner's choice behind slow links: with more devices than replicas, each holds only a part of the state."""
    plan = until(f"the job to be planned on {devices}", lambda: planned(c))
    if devices > 2:
        check(plan["summary"].startswith("pipeline of") and "2 replicas" in plan["summary"], f"on {devices}: {plan}")
    else:
        check("replicas" not in plan["summary"], f"on {devices}: {plan}")


def behind_a_slow_link():
    """Nothing is pinned: the planner chooses a pipeline with two replicas, which is resized and loses a worker; and
    data parallelism, when the nodes say that they are on one machine after all."""
    for words in (["ip", "link", "set", "lo", "mtu", "1500", "up"],
                  ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "400ms"]):
        subprocess.run(words, check=True)
    with Apart(nodes=4, devices=1) as c:
        until("the links to be measured",
              lambda: all(node.get("networkBandwidth", 0) > 1e5 for node in c.json("get", "nodes")["items"]))
        c.model("gpt", layers=4, width=96, heads=2, seq=128, dropout=0.1)
        c.submit("job", gpt_spec(c, ENDLESS, 4))
        c.wait("job", "step=3")
        check_slow(c, 4)
        for change, count, devices in ("shrink", 2, 2), ("grow", 1, 3), ("grow", 1, 4):
            receipt = c.json(change, "job", count, "--wait", "--timeout", "100")
            check_nothing_lost(receipt, f"to {devices}")
            check("is expected" in receipt["chosen"], f"{receipt}")
            check_slow(c, devices)
        status = c.train_on("job", 4, 3)
        c.kill("job", status["devices"][1])
        until("the job to go on", lambda: c.status("job")["step"] > status["step"] + 5)
        c.train_on("job", 4, 3)
        check_slow(c, 4)
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
        for node in c.nodes:
            node.stop(signal.SIGKILL)
            node.prefix = c.nodes[0].prefix
            node.start()
        until("another plan", lambda: c.status("job")["plan"]["summary"].startswith("data parallel x4"))
        c.train_on("job", 4, 5)
        kinds = c.kinds("job")
        check("restarted" not in kinds and "replanned" in kinds, f"{kinds}")
        c.same_as_alone("job", gpt_spec(c, ENDLESS, 1), "behind a slow link")


def slow_links():
    if os.geteuid() or not shutil.which("tc") or subprocess.run(["unshare", "--net", "true"]).returncode:
        print("slow_links: only root can have a network of its own, and make it slow")
        return
    done = subprocess.run(["unshare", "--net", sys.executable, __file__, "behind_a_slow_link"])
    check(done.returncode == 0, "behind a slow link")


if __name__ == "__main__":
    if sys.argv[1:] == ["behind_a_slow_link"]:
        cluster.main(behind_a_slow_link)
    cluster.main(resized, not_asked, timed_while_another_is_deleted, links, slow_links)
