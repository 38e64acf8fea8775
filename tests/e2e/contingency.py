#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Survivors of a death go on without asking anyone: workers are killed while etcd or the coordinator is away.

Training goes on at once on what is left, and when etcd is back everything is recorded.

    contingency.py [TEST ...]"""
import glob
import os
import random
import signal
import subprocess
import sys
import time

import cluster
import corpus
from cluster import ENDLESS, check, until
from faulty import faulty


def spec(c, steps, want):
    return {
        **corpus.text_job(c, want, 6, steps=steps, globalBatch=12, microBatch=1, clipNorm=1.0),
        "parallel": {"pipeline": 1, "balance": "even"},  # all of the state everywhere: several workers die at once
    }


class Job:
    """A job that trains until its test ends it."""

    def __init__(self, c, want):
        self.c, self.want = c, want
        c.model("gpt", layers=2, width=64, heads=2, seq=32, dropout=0.1)
        self.spec = spec(c, ENDLESS, want)
        self.id = c.submit("gpt", self.spec)["id"]
        self.look()

    def look(self):
        """Remembers the status, which names the workers, once all devices train."""
        self.before = self.c.train_on("gpt", self.want)

    def rows(self):
        """Configuration by step, from every row that any node has kept, without asking rubatod."""
        found = {}
        for path in glob.glob(self.c.path(f"*/jobs/{self.id}/metrics")):
            with open(path) as file:
                for cells in map(str.split, file):
                    if len(cells) > 7:  # as in daemon/agent/rows.c
                        found[int(cells[0])] = int(cells[7])
        return found

    def kill(self, *ranks):
        for rank in ranks:
            os.kill(self.before["devices"][rank]["pid"], signal.SIGKILL)

    def goes_on(self, lost):
        """Waits for steps on what is left of the configuration; the number of what is left is known beforehand, and is
        returned."""
        number = self.before["configuration"] + lost
        until(f"ten steps in configuration {number}",
              lambda: sum(found == number for found in self.rows().values()) > 10)
        return number

    def configurations(self):
        """The job's configurations; none while no node coordinates."""
        return (self.c.try_json("get", "configurations", "gpt") or {"items": []})["items"]

    def recorded(self, number):
        items = until(f"configuration {number} to be recorded",
                      lambda: [i for i in self.configurations()
                               if i["number"] == number and i["state"] in ("ACTIVE", "RETIRED")])
        check(items[0]["cause"] == "crash", f"{items[0]}")

    def finish(self, what):
        events = self.c.kinds("gpt")
        check("restarted" not in events and "failed" not in events, f"events: {events}")
        self.c.same_as_alone("gpt", self.spec, what)


def resume_etcd(c):
    c.signal_etcd(signal.SIGCONT)
    until("etcd to answer", lambda: c.run("get", "nodes").returncode == 0)


def etcd_is_stopped():
    """The private etcd stands still; two deaths one after the other, then it is back."""
    with cluster.Cluster(devices=3, paced=True) as c:
        job = Job(c, 3)
        c.signal_etcd(signal.SIGSTOP)
        job.kill(0)
        job.goes_on(1)
        job.kill(2)
        number = job.goes_on(2)
        resume_etcd(c)
        job.recorded(number)
        c.ctl("resize", "gpt", "--want", 2)
        c.wait("gpt", "devices=2")
        job.finish("workers were killed without etcd")


def all_of_etcd_is_killed():
    """Three members, all killed; a worker dies on one of two nodes, then on the other."""
    with cluster.Cluster(nodes=2, devices=2, etcds=3, paced=True) as c:
        job = Job(c, 4)
        for node in ("n0", "n1"):
            job.look()
            c.signal_etcd(signal.SIGKILL)
            for etcd in c.etcds:
                etcd.wait()
            job.kill(max(r for r, d in enumerate(job.before["devices"]) if d["node"] == node))
            number = job.goes_on(1)
            c.run_etcd()
            job.recorded(number)
            c.wait("gpt", "devices=4")
        job.finish("workers were killed without etcd")


def two_at_once_on_two_nodes():
    """Each agent first knows only of its own dead worker: two sets that cannot meet, then the one set that both agents
    know."""
    with cluster.Cluster(nodes=2, devices=2, etcds=3, paced=True) as c:
        job = Job(c, 4)
        c.signal_etcd(signal.SIGSTOP)
        nodes = [device["node"] for device in job.before["devices"]]
        job.kill(nodes.index("n0"), nodes.index("n1"))
        number = job.goes_on(2)
        resume_etcd(c)
        job.recorded(number)
        job.finish("two workers were killed without etcd")


def while_a_change_is_prepared():
    """The change is void: at once where its members were not told to go yet, else when etcd is back."""
    with cluster.Cluster(devices=3, paced=True) as c:
        job = Job(c, 2)
        for rank in (0, 1):
            c.ctl("resize", "gpt", "--want", 2)
            job.look()
            c.ctl("resize", "gpt", "--want", 3)
            # Prepared, told to go or, where we are slow to look, complete.
            until("the change", lambda: any(i["number"] > job.before["configuration"] for i in job.configurations()))
            c.signal_etcd(signal.SIGSTOP)
            job.kill(rank)
            time.sleep(random.Random(rank).random())
            resume_etcd(c)
            c.wait("gpt", "devices=3")
        job.finish("workers were killed in the middle of a change")


def a_member_of_etcd_dies():
    with cluster.Cluster(nodes=2, devices=1, etcds=3, paced=True) as c:
        job = Job(c, 2)
        c.etcds[0].kill()
        c.etcds[0].wait()
        job.kill(1)
        number = job.goes_on(1)
        job.recorded(number)
        job.finish("a member of etcd and a worker were killed")


def rubatod_dies_with_a_worker():
    """No process is left to reap the worker: the next rubatod finds that it is gone."""
    with cluster.Cluster(devices=3, paced=True) as c:
        job = Job(c, 3)
        c.nodes[0].stop(signal.SIGKILL)
        job.kill(1)
        c.nodes[0].start()
        job.goes_on(1)
        job.finish("rubatod and a worker were killed")


def the_coordinator_dies_with_a_worker():
    """The coordinator is on a node of its own: the agent that reaped the worker tells the survivors."""
    with cluster.Cluster(nodes=3, devices=1, paced=True) as c:
        leader = c.json("version")["rubatod"]["leader"]
        leads = next(node for node in c.nodes if node.name == leader)
        c.ctl("node", "cordon", leads.name)
        c.nodes.sort(key=lambda node: node is leads)  # commands go to the first
        job = Job(c, 2)
        leads.stop(signal.SIGKILL)
        job.kill(1)
        number = job.goes_on(1)
        until("another coordinator", lambda: c.run("get", "nodes").returncode == 0)
        job.recorded(number)
        leads.start()
        job.finish("the coordinator and a worker were killed")


def told_and_killed():
    """The agent that was just told of a death dies itself, and is started again."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        with faulty("daemon.told", c.path("fired")):
            for node in c.nodes:
                node.stop(signal.SIGKILL)
                node.start()
        job = Job(c, 2)
        job.kill(1)
        told = c.nodes[int(job.before["devices"][0]["node"][1])]
        if fault_points():
            until("it to die", lambda: told.process.poll() is not None)
            told.start()
        job.goes_on(1)
        job.finish("a rubatod and a worker were killed")


def old_plans_go():
    """A long job leaves many plans behind: the newest stay, among them those that are needed."""
    with cluster.Cluster(devices=3, paced=True) as c:
        job = Job(c, 3)
        plans, = glob.glob(c.path(f"*/jobs/{job.id}/plans"))
        for i in range(200):
            path = os.path.join(plans, f"{i:032x}")
            with open(path, "w"):
                os.utime(path, (i, i))
        c.ctl("resize", "gpt", "--want", 2, "--wait")
        until("old plans to go", lambda: len(os.listdir(plans)) <= 64 + 16)
        job.want = 2
        job.look()
        job.kill(1)
        until("it to go on", lambda: c.status("gpt")["step"] > job.before["step"] + 20)
        job.finish("old plans went")


def fault_points():
    return subprocess.run([os.path.join(cluster.BUILD, "rubato-worker"), "--faults"], capture_output=True).stdout


TESTS = [all_of_etcd_is_killed, etcd_is_stopped, while_a_change_is_prepared, two_at_once_on_two_nodes,
         a_member_of_etcd_dies, rubatod_dies_with_a_worker, the_coordinator_dies_with_a_worker, told_and_killed,
         old_plans_go]

cluster.main(*[test for test in TESTS if not sys.argv[1:] or test.__name__ in sys.argv[1:]])
