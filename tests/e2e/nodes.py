#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two and three rubatods on one etcd: the job spans them, a drain moves it off one of them."""
import base64
import contextlib
import json
import os
import shutil
import signal
import threading
import urllib.error
import urllib.request

import cluster
import corpus
from cluster import ENDLESS, check, standing_still, until
from faulty import faulty


def spec(c, steps, want):
    return corpus.text_job(c, want, 6, steps=steps, globalBatch=12, microBatch=2)


def nodes_of(status):
    return {device["node"] for device in status["devices"]}


def spans(count):
    with cluster.Cluster(nodes=count, devices=1, paced=True) as c:
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, ENDLESS, count))
        c.wait("wide", f"devices={count}")
        c.wait("wide", "step=20")
        check(nodes_of(c.status("wide")) == {n.name for n in c.nodes}, "the job does not span the nodes")
        last = c.nodes[-1].name
        c.ctl("node", "drain", last, "--wait")
        status = c.status("wide")
        check(status["phase"] == "Running", f"phase {status['phase']}: {status}")
        check(last not in nodes_of(status), f"{last} is drained and still used")
        told = [event["text"] for event in c.events("moved")]
        check(any(f"left node {last} and is on" in text for text in told), f"events: {told}")
        # Any node answers, the drained one too.
        check(c.json("status", "wide", endpoint=c.nodes[-1].endpoint)["name"] == "wide", "forwarding")
        c.ctl("node", "uncordon", last)
        c.wait("wide", f"devices={count}")
        c.train_on("wide", count)
        c.same_as_alone("wide", spec(c, ENDLESS, 1), "moved between nodes")


def two_nodes():
    spans(2)


def three_nodes():
    spans(3)


def leave_and_return():
    """SIGTERM of a node is a planned leave: the job moves off and comes back with the node."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, ENDLESS, 2))
        c.wait("wide", "devices=2")
        c.wait("wide", "step=10")
        check(c.nodes[1].stop(signal.SIGTERM, 40) == 0, "rubatod's exit status")
        c.wait("wide", "devices=1")
        c.nodes[1].start()
        c.wait("wide", "devices=2")
        c.train_on("wide", 2)
        c.same_as_alone("wide", spec(c, ENDLESS, 1), "a node left and came back")


def deleted_while_away():
    """A node that is away when a job is deleted keeps nothing of the job when the node is back."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        c.model("gpt", layers=1, width=64, heads=2, seq=32)
        job = c.submit("wide", spec(c, 5, 2))["id"]
        c.wait("wide", "done")
        leader, other = coordinator_and_other(c)
        folder, blobs = os.path.join(other.state, "jobs", job), os.path.join(other.state, "blobs")
        check(os.path.isdir(folder) and os.listdir(blobs), f"{other.name} has nothing of the job")
        until("all workers to be gone", lambda: not c.processes("rubato-worker"))
        other.stop(signal.SIGKILL)
        c.ctl("delete", "wide", endpoint=leader.endpoint)
        until("the deletion", lambda: not os.path.isdir(os.path.join(leader.state, "jobs", job)))
        check(os.path.isdir(folder), "the folder is gone before its node is back")
        other.start()
        until("the folder to go", lambda: not os.path.isdir(folder))
        until("its blobs to go", lambda: not os.listdir(blobs))


def deleted_while_fetched():
    """What a node was fetching for a job that is deleted meanwhile does not stay."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        c.model("gpt", layers=8, width=512, heads=2, seq=32)
        c.submit("wide", spec(c, ENDLESS, 2))
        leader, other = coordinator_and_other(c)
        folders = [os.path.join(node.state, "blobs") for node in c.nodes]
        until("the first blob", lambda: os.listdir(os.path.join(other.state, "blobs")))
        c.ctl("cancel", "wide", "--now")
        c.wait("wide", "devices=0")
        c.ctl("delete", "wide")
        until("all blobs to go", lambda: not any(map(os.listdir, folders)))
        c.model("gpt", "small", layers=1, width=64, heads=2, seq=32)  # when this job is done, so is the fetch
        c.submit("small", {**spec(c, 100, 2), "model": {"onnx": "small.onnx"}})
        c.finish("small")
        until("all blobs to go again", lambda: not any(map(os.listdir, folders)))


def coordinator_and_other(c):
    first = c.json("version")["rubatod"]["leader"]
    return sorted(c.nodes, key=lambda node: node.name != first)


def coordinator_is_gone():
    """A user who asks another node gets the answer of the next coordinator: the first one has done nothing."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        leader, other = coordinator_and_other(c)
        leader.stop(signal.SIGKILL)
        c.ctl("node", "cordon", other.name, endpoint=other.endpoint)
        check(other.name in c.ctl("get", "nodes", endpoint=other.endpoint), "the node that is left")


def coordinator_and_etcd_are_gone():
    """There is no next coordinator: the answer says which one was not reached, and why."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        leader, other = coordinator_and_other(c)
        c.signal_etcd(signal.SIGSTOP)
        leader.stop(signal.SIGKILL)
        try:
            asked = c.run("get", "jobs", endpoint=other.endpoint, timeout=100)
        finally:
            c.signal_etcd(signal.SIGCONT)
        check(asked.returncode == 5 and "the coordinator cannot be reached: tcp:" in asked.stderr,
              f"exit {asked.returncode}: {asked.stderr}")


def coordinator_is_stopped():
    """A user who asks another node for a change hears that the coordinator has not answered when the next node
    coordinates, not when the call has timed out; a user who only reads gets the next coordinator's answer."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        leader, other = coordinator_and_other(c)
        with standing_still(leader.process.pid):
            check(other.name in c.ctl("get", "nodes", endpoint=other.endpoint, timeout=100), "the next one's answer")
        until("the first one to follow", lambda: c.json("version", endpoint=leader.endpoint)["rubatod"]["leader"] == other.name)
        leader, other = other, leader
        with standing_still(leader.process.pid):
            asked = c.run("node", "cordon", other.name, endpoint=other.endpoint, timeout=100)
            check(asked.returncode == 5 and "coordinated and has not answered" in asked.stderr,
                  f"exit {asked.returncode}: {asked.stderr}")
            c.ctl("node", "cordon", other.name, endpoint=other.endpoint)
            c.ctl("node", "uncordon", other.name, endpoint=other.endpoint)
        until("the first one to follow again",
              lambda: c.json("version", endpoint=leader.endpoint)["rubatod"]["leader"] == other.name)
        # This node first hears what it was asked for while it stood still; that was given up, and must not be done.
        nodes = {node["name"]: node for node in c.json("get", "nodes", endpoint=leader.endpoint)["items"]}
        check(nodes[other.name]["state"] == "ready", f"what was given up was done: {nodes[other.name]}")


def others_write_into_etcd():
    """Etcd has other users, so its revision does not rise by our writes alone: a lost node is given up all the same."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        leader, other = coordinator_and_other(c)
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, ENDLESS, 2))
        c.train_on("wide", 2)
        over = threading.Event()

        def write():
            put = json.dumps({"key": base64.b64encode(b"/others").decode(), "value": ""}).encode()
            while not over.wait(0.3):
                urllib.request.urlopen(c.url + "/v3/kv/put", put, timeout=5).read()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            worker = [d["pid"] for d in c.status("wide")["devices"] if d["node"] == other.name]
            other.stop(signal.SIGKILL)
            os.kill(worker[0], signal.SIGKILL)
            c.ctl("wait", "wide", "--for", "devices=1", "--timeout", 60, endpoint=leader.endpoint)
            until("the node to be lost", lambda: c.events("node-lost", "wide", endpoint=leader.endpoint))
        finally:
            over.set()
            writer.join()


@contextlib.contextmanager
def job_on_two(leads):
    """The cluster, the node that is to be lost (leads: it coordinates), its worker's process, and the other node."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        leader, other = coordinator_and_other(c)
        lost, left = (leader, other) if leads else (other, leader)
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, ENDLESS, 2))
        c.train_on("wide", 2)
        worker, = [d["pid"] for d in c.status("wide")["devices"] if d["node"] == lost.name]
        yield c, lost, worker, left


def goes_on_without(c, lost, left):
    c.ctl("wait", "wide", "--for", "devices=1", "--timeout", 60, endpoint=left.endpoint)
    told = [event["text"] for event in c.events("node-lost", "wide", endpoint=left.endpoint)]
    check(told == [f"node {lost.name} does not answer"], f"events: {told}")


def node_is_lost():
    """All of a node dies at once, and the other node coordinates or comes to: the job goes on without the dead worker
    before a lease ends, and has a worker there again when the node is back."""
    for leads in False, True:
        with job_on_two(leads) as (c, lost, worker, left):
            lost.stop(signal.SIGKILL)
            os.kill(worker, signal.SIGKILL)
            goes_on_without(c, lost, left)
            lost.start()
            c.train_on("wide", 2)
            c.same_as_alone("wide", spec(c, ENDLESS, 1), "a node was lost and came back")


def node_is_stopped():
    """All of a node stands still, as in a paused container, and its kernel answers for it: no link ends.  The other
    node goes on without it all the same, and what the stopped node does when it goes on counts for nothing."""
    for leads in False, True:
        with job_on_two(leads) as (c, lost, worker, left):
            with standing_still(lost.process.pid, worker):
                goes_on_without(c, lost, left)
            c.train_on("wide", 2)
            check(worker not in [d["pid"] for d in c.status("wide")["devices"]], "a process was left behind and trains")
            c.same_as_alone("wide", spec(c, ENDLESS, 1), "a node stood still and went on")


def nodes_in_etcd(c):
    """How many nodes have a lease; for when no rubatod answers."""
    key, end = (base64.b64encode(f"/rubato/v1/nodes{mark}".encode()).decode() for mark in "/0")
    asked = json.dumps({"key": key, "range_end": end, "count_only": True}).encode()
    with urllib.request.urlopen(c.url + "/v3/kv/range", asked, timeout=5) as answer:
        return int(json.loads(answer.read()).get("count", 0))


def restarted_while_a_node_is_stopped():
    """A rubatod that starts when the lease of a node that stands still has ended learns from facts where to ask for
    that node."""
    with job_on_two(False) as (c, lost, worker, left):
        left.stop(signal.SIGKILL)
        with standing_still(lost.process.pid, worker):
            until("their leases to end", lambda: not nodes_in_etcd(c))
            left.start(wait=False)
            until("it to answer", lambda: c.try_json("status", "wide", endpoint=left.endpoint))
            goes_on_without(c, lost, left)
        c.train_on("wide", 2)
        c.same_as_alone("wide", spec(c, ENDLESS, 1), "a rubatod came while a node stood still")


def exported_while_a_node_is_stopped():
    """Rank 0 is asked first, and its node stands still: the next rank saves."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        leader, other = coordinator_and_other(c)
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.ctl("node", "cordon", leader.name)
        c.submit("wide", spec(c, ENDLESS, 2))
        c.wait("wide", "devices=1")
        c.ctl("node", "uncordon", leader.name)
        devices = c.train_on("wide", 2)["devices"]
        check(devices[0]["node"] == other.name, f"rank 0: {devices}")
        with standing_still(other.process.pid, devices[0]["pid"]):
            c.ctl("export", "wide", "--out", c.path("stopped.safetensors"), endpoint=leader.endpoint, timeout=60)
        c.train_on("wide", 2)
        c.ctl("cancel", "wide", "--now")
        until("its workers to leave", lambda: not c.processes("rubato-worker"))


def only_rubatod_is_killed():
    """The worker of a killed rubatod trains on, and lost no link: a late step is not taken for a stopped node."""
    late = 500  # the steps from this one on
    with faulty(f"worker.vote:rank=0:do=20ms,worker.committed:rank=0:at={late}:do=7000ms"), \
            cluster.Cluster(nodes=2, devices=1) as c:
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, ENDLESS, 2))
        first = c.train_on("wide", 2)["devices"][0]["node"]  # the agent there reports the steps
        left, killed = sorted(c.nodes, key=lambda node: node.name != first)
        killed.stop(signal.SIGKILL)

        def status():
            return c.json("status", "wide", endpoint=left.endpoint)

        until("it to be missed", lambda: "out of reach" in (status()["reason"] or ""))
        check(status()["step"] < late, "it was missed too late")
        c.ctl("wait", "wide", "--for", f"step={late + 1}", "--timeout", 100, endpoint=left.endpoint)
        check("node-lost" not in c.kinds("wide", endpoint=left.endpoint), "it was given up")
        killed.start()
        c.ctl("cancel", "wide", "--now")
        until("its workers to leave", lambda: not c.processes("rubato-worker"))


def stopped_as_work_comes():
    """All nodes behind a submit: no worker is started that nobody is there to end."""
    for _ in range(6):
        with cluster.Cluster(nodes=2, devices=1) as c:  # which looks for what is left behind
            c.model("gpt", layers=1, width=64, heads=2, seq=32)
            c.submit("wide", spec(c, ENDLESS, 1))
            for node in c.nodes:
                node.process.send_signal(signal.SIGTERM)


class Small(cluster.Cluster):
    """Etcd has little room."""
    def run_etcd(self):
        self.etcd_arguments = [[*arguments, "--quota-backend-bytes", str(600 << 10)] for arguments in self.etcd_arguments]
        super().run_etcd()

    def ask_etcd(self, what, body):
        asked = urllib.request.Request(f"{self.url}/v3/{what}", json.dumps(body).encode())
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.loads(answer.read())


def etcd_is_out_of_room():
    """It answers and takes no writes: training goes on, logs and `status` say why nothing else does; then it takes them."""
    with Small(nodes=2, devices=1, paced=True) as c:
        leader, other = coordinator_and_other(c)
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, ENDLESS, 2))
        c.train_on("wide", 2)
        key = base64.b64encode(b"/others").decode()
        with contextlib.suppress(urllib.error.HTTPError):
            while True:
                c.ask_etcd("kv/put", {"key": key, "value": base64.b64encode(b"z" * 30000).decode()})

        def notes(job="wide"):
            done = c.run("status", job, endpoint=leader.endpoint)
            return done.stdout + done.stderr

        until("word of it", lambda: "etcd takes no writes" in notes())
        waits = c.run("wait", "wide", "--for", f"step={ENDLESS}", "--timeout", 2, endpoint=leader.endpoint)
        check(waits.returncode == 124 and waits.stderr.count("etcd takes no writes") == 1, f"{waits.returncode}: {waits.stderr}")
        os.kill(next(d["pid"] for d in c.status("wide")["devices"] if d["node"] == leader.name), signal.SIGKILL)
        refused = c.run("pause", "wide", endpoint=leader.endpoint)
        check(refused.returncode == 4 and "space exceeded" in refused.stderr, f"exit {refused.returncode}: {refused.stderr}")
        last = len(c.metrics("wide"))
        until("steps without it", lambda: len(c.metrics("wide")) > last + 20)
        other.stop(signal.SIGKILL)
        other.start()  # it has its lease still
        revision = c.ask_etcd("kv/deleterange", {"key": key})["header"]["revision"]
        c.ask_etcd("kv/compaction", {"revision": revision, "physical": True})
        c.ask_etcd("maintenance/defragment", {})
        for alarm in c.ask_etcd("maintenance/alarm", {"action": "GET"})["alarms"]:
            c.ask_etcd("maintenance/alarm", {"action": "DEACTIVATE", **alarm})
        c.train_on("wide", 2)
        until("no word of it", lambda: "etcd takes no writes" not in notes())
        with open(leader.log) as log:
            said = log.read()
        for words in ("etcd takes no writes: etcd answered 429", "etcd takes writes again"):
            check(said.count(words) == 1, f"the log has {said.count(words)} times '{words}'")
        check(said.count("space exceeded") == 1, said)
        c.same_as_alone("wide", spec(c, ENDLESS, 1), "etcd was out of room")


def name_is_taken():
    """A second rubatod with a node's name says so and ends; the node, its workers and their jobs hear nothing of it."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, ENDLESS, 2))
        before = c.train_on("wide", 2)
        node = c.nodes[1]
        second = cluster.Node(c, "second", node.arguments)
        if not os.geteuid():  # a copy of the node's disk, on another machine
            os.mkdir(second.state)
            shutil.copy(os.path.join(node.state, "lease"), second.state)
            second.prefix = ["unshare", "--uts", "sh", "-c", 'hostname other && exec "$@"', "sh"]
        second.start(wait=False)
        code = second.process.wait(60)
        with open(second.log) as log:
            said = log.read()
        check(code == 78 and f"another rubatod is node '{node.name}'" in said, f"exit {code}: {said}")
        check(not os.path.exists(os.path.join(second.state, "jobs")), "it has done something for a job")
        after = c.train_on("wide", 2)
        check({device["pid"] for device in before["devices"]} == {device["pid"] for device in after["devices"]},
              f"other workers: {before} {after}")
        check(not {"worker-died", "abandoned", "restarted"} & set(c.kinds("wide")), f"{c.kinds('wide')}")
        c.same_as_alone("wide", spec(c, ENDLESS, 1), "a node's name was used a second time")


cluster.main(two_nodes, three_nodes, leave_and_return, deleted_while_away, deleted_while_fetched, coordinator_is_gone,
             coordinator_and_etcd_are_gone, coordinator_is_stopped, others_write_into_etcd, node_is_lost,
             node_is_stopped, restarted_while_a_node_is_stopped, exported_while_a_node_is_stopped, only_rubatod_is_killed,
             name_is_taken, stopped_as_work_comes, etcd_is_out_of_room)
