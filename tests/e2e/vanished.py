#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that vanish, as with their power or their cable, and send nothing any more."""
import sys

import cluster
import corpus
import hosts
from cluster import ENDLESS, check, until

if not hosts.can_be_made():
    print("skipped: no namespaces can be made here")
    sys.exit(77)


def spec(c, want):
    return corpus.text_job(c, want, 6, steps=ENDLESS, globalBatch=12, microBatch=2)


def vanishes(leads):
    """The others go on without the host; its worker trains no further step, and it takes part again when it is back."""
    with hosts.Hosts(nodes=3, devices=1) as c:
        first = c.json("version")["rubatod"]["leader"]
        gone = next(node for node in c.nodes if (node.name == first) == leads)
        left = next(node for node in c.nodes if node is not gone)
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("wide", spec(c, 3))
        c.train_on("wide", 3)
        c.connect(gone, False)
        c.ctl("wait", "wide", "--for", "devices=2", "--timeout", 90, endpoint=left.endpoint)
        told = until("the event", lambda: [e["text"] for e in c.events("node-lost", "wide", endpoint=left.endpoint)])
        check(told == [f"node {gone.name} does not answer"], f"events: {told}")
        c.connect(gone, True)  # it reaches no other host for a moment yet
        c.ctl("wait", "wide", "--for", "devices=3", "--timeout", 90, endpoint=left.endpoint)
        c.train_on("wide", 3)
        c.same_as_alone("wide", spec(c, 1), "a host vanished and came back")


def another_host():
    vanishes(False)


def the_coordinator_s_host():
    vanishes(True)


cluster.main(another_host, the_coordinator_s_host)
