#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes that must be left by some time: drains with a deadline, a notice command, SIGTERM. No step is lost."""
import contextlib
import os
import signal
import stat
import sys
import time

import cluster
import corpus
from cluster import ENDLESS, check, until
from faulty import faulty


def spec(c, steps, want, least=1, **more):
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 32}},
        "train": {"steps": steps, "globalBatch": 12, "microBatch": 2},
        "devices": {"min": least, "max": 6, "want": want}, **more,
    }


def begin(c, want, least=1, **more):
    """An endless job on all nodes."""
    until("all nodes", lambda: len(c.json("get", "nodes")["items"]) == c.count)
    corpus.text(c.path("corpus.txt"), 40000)
    c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
    c.submit("gpt", spec(c, ENDLESS, want, least, **more))
    c.wait("gpt", f"devices={want}")
    c.wait("gpt", "step=20")


def nodes_of(c):
    return {device["node"] for device in c.status("gpt")["devices"]}


def node(c, name):
    return next(item for item in c.json("get", "nodes")["items"] if item["name"] == name)


def finish(c):
    """The bits are the same, every step was done once, and every receipt says so."""
    c.wait("gpt", f"step={c.status('gpt')['step'] + 10}")
    check(not c.events("restarted", "gpt"), "it was restarted")
    for item in c.json("get", "configurations", "gpt")["items"]:
        receipt = item.get("receipt", {})
        check(not any(receipt.get(key) for key in ("steps_lost", "samples_repeated", "samples_skipped")), f"{item}")
    c.same_as_alone("gpt", spec(c, ENDLESS, 1), "nodes were left")


def drain_by_a_time():
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        begin(c, 2)
        asked = time.time()
        c.ctl("node", "drain", "n1", "--deadline", "2m", "--wait", "--timeout", "60")
        check(nodes_of(c) == {"n0"}, f"still on {nodes_of(c)}")
        shown = node(c, "n1")
        check(shown["state"] == "drained" and abs(shown["deadline"] / 1000 - asked - 120) < 5, f"{shown}")
        check("LEFT BY" in c.ctl("get", "nodes"), "the table of nodes")
        check("within 120 s" in c.events("drain")[0]["text"], f"{c.events('drain')}")
        until("the reason", lambda: "node n1 is drained" in (c.status("gpt")["reason"] or ""))
        c.ctl("node", "uncordon", "n1")
        check("deadline" not in node(c, "n1"), "uncordon takes the deadline back")
        c.wait("gpt", "devices=2")
        finish(c)


def no_time_for_newcomers():
    """The only free device is of a node that stands still: the worker that stays goes on alone."""
    with cluster.Cluster(nodes=3, devices=1, paced=True) as c:
        c.nodes[2].stop()
        c.count = 2
        begin(c, 2)
        c.nodes[2].start()
        c.nodes[2].process.send_signal(signal.SIGSTOP)
        try:
            c.ctl("node", "drain", "n1", "--deadline", "12s")
            reason = until("a reason", lambda: c.status("gpt")["reason"])
            check("leaves node n1 by" in reason, reason)
            moved = until("n1 to be left", lambda: c.events("moved", "gpt"))[0]
            late = moved["time"] - node(c, "n1")["deadline"]
            check("left node n1" in moved["text"] and late < 0, f"{late} ms late: {moved}")
            check(nodes_of(c) == {"n0"}, f"still on {nodes_of(c)}")
        finally:
            c.nodes[2].process.send_signal(signal.SIGCONT)
        check(not c.events("worker-killed", "gpt"), "a worker was killed")
        finish(c)


def killed_when_the_time_is_over():
    """The agent of the drained node does not hear of the drain in time: its worker is killed, as in a crash."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        if c.json("version")["rubatod"]["leader"] == "n1":  # the coordinator must not stand still
            c.nodes[1].stop()
            until("n0 to coordinate", lambda: c.json("version")["rubatod"]["leader"] == "n0")
            c.nodes[1].start()
        begin(c, 2)
        c.nodes[1].process.send_signal(signal.SIGSTOP)
        try:
            c.ctl("node", "drain", "n1", "--deadline", "1s")
            time.sleep(1)
        finally:
            c.nodes[1].process.send_signal(signal.SIGCONT)
        until("n1 to be left", lambda: c.status("gpt")["phase"] == "Running" and nodes_of(c) == {"n0"})
        killed = until("the kill to be told of", lambda: c.events("worker-killed", "gpt"))
        check("had to be left" in killed[0]["text"], f"{killed}")
        finish(c)


def too_few_are_parked():
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        begin(c, 2, least=2)
        c.ctl("node", "drain", "n1", "--deadline", "60", "--wait", "--timeout", "60")
        until("the job to wait", lambda: c.status("gpt")["phase"] == "Pending")
        until("the reason", lambda: "node n1 is drained" in (c.status("gpt")["reason"] or ""))
        check(c.json("describe", "gpt")["state"]["parked"]["node"] == "n0", "the state is on the node that stays")
        status = c.status("gpt")
        check(status["throughput"] == 0, f"it does not train, and has {status['throughput']} samples/s")
        c.ctl("node", "uncordon", "n1")
        c.wait("gpt", "devices=2")
        finish(c)


def a_notice():
    """A notice that is repeated drains the node once; a user who uncordons the node has the last word."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        script, said, answers = c.path("notice"), c.path("said"), c.path("answers")
        with open(script, "w") as file:
            file.write(f'#!/bin/sh\ntest "$1" = word || exit 9\n'
                       f'if cat {said} 2>/dev/null; then echo yes >{answers}; else echo no >{answers}; exit 1; fi\n')
        os.chmod(script, stat.S_IRWXU)
        c.nodes[1].stop()
        c.nodes[1].arguments += ["--notice-command", script + " word", "--notice-every", "100ms"]
        c.nodes[1].start()
        begin(c, 2)

        def say(text):
            with open(said + ".new", "w") as file:
                file.write(text)
            os.rename(said + ".new", said)

        def answered(what):
            with contextlib.suppress(FileNotFoundError), open(answers) as file:
                return file.read() == what + "\n"

        say("<html>busy</html>\n")  # neither yes nor no
        until("the question", lambda: answered("yes"))
        check(not c.events("notice") and nodes_of(c) == {"n0", "n1"}, "what is no number is no notice")
        say("90\n")
        until("n1 to be left", lambda: nodes_of(c) == {"n0"})
        shown = node(c, "n1")
        check(shown["reason"] == "notice" and 20 < shown["deadline"] / 1000 - time.time() < 91, f"{shown}")
        check("n1 will be taken away by" in c.events("notice")[0]["text"], f"{c.events('notice')}")
        c.ctl("node", "uncordon", "n1")
        c.wait("gpt", "devices=2")
        check(len(c.events("notice")) == 1, "it was told again")
        os.unlink(said)
        until("the command to say no", lambda: answered("no"))
        say("")
        until("another notice", lambda: len(c.events("notice")) == 2)
        check("away:" in c.events("notice")[1]["text"] and "deadline" not in node(c, "n1"), "no time was named")
        until("n1 to be left", lambda: nodes_of(c) == {"n0"})
        finish(c)


def sigterm_names_its_time():
    """A node that is told to stop says by when it leaves; its jobs move off in time."""
    with cluster.Cluster(nodes=2, devices=1, paced=True) as c:
        c.nodes[1].stop()
        c.nodes[1].arguments += ["--leave-timeout", "20s"]
        c.nodes[1].start()
        begin(c, 2)
        asked = time.monotonic()
        check(c.nodes[1].stop(signal.SIGTERM, 25) == 0, "rubatod's exit status")
        check(time.monotonic() - asked < 15, f"it took {time.monotonic() - asked:.1f} s")
        check(not c.events("worker-died", "gpt") and not c.events("worker-killed", "gpt"), "a worker died")
        c.nodes[1].start()
        finish(c)


def leaves_while_it_writes():
    """A checkpoint that rank 0 has begun is registered, though the others train without rank 0 when it is written."""
    with faulty("worker.save.written:do=3000ms"), cluster.Cluster(nodes=2, devices=1) as c:
        folder = c.path("checkpoints")
        begin(c, 2, checkpoint={"path": folder, "every": 400})
        writer = c.status("gpt")["devices"][0]["node"]
        until("a checkpoint that is being written", lambda: os.path.isdir(folder) and os.listdir(folder))
        c.ctl("node", "drain", writer, "--wait", "--timeout", "60")
        written, *_ = until("the checkpoint", lambda: c.json("get", "checkpoints", "gpt")["items"])
        check(written["step"] == 400 and written["node"] == writer, f"{written}")
        left = c.json("get", "configurations", "gpt")["items"]
        check([item["level"] for item in left if item["state"] == "ACTIVE"] > [400], f"nobody left meanwhile: {left}")
        c.ctl("node", "uncordon", writer)
        finish(c)


cluster.main(*[test for test in (drain_by_a_time, no_time_for_newcomers, killed_when_the_time_is_over, too_few_are_parked, a_notice,
             sigterm_names_its_time, leaves_while_it_writes) if test.__name__ in sys.argv[1:] or not sys.argv[1:]])
