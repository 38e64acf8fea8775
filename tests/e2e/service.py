#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a service manager hears from a real rubatod; no other process gets that socket or says anything there."""
import contextlib
import os
import signal
import socket
import time

import cluster
from cluster import ENDLESS, check, until
from delicate import gpt_spec, models


class Manager:
    """systemd's end: what is told goes into `told`, as (when, who by its pid, text)."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(path)
        self.socket.setblocking(False)
        self.told = []

    def read(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, _ = self.socket.recvmsg(4096, 256)
                pid = int.from_bytes(ancillary[0][2][:4], "little")
                self.told += [(time.monotonic(), pid, line) for line in data.decode().splitlines()]
        return self.told

    def lines(self):
        return [line for _, _, line in self.read()]

    def status(self):
        return ([line for line in self.lines() if line.startswith("STATUS=")] or [""])[-1]


class Served(cluster.Cluster):
    def __init__(self, **more):
        super().__init__(**more)
        self.manager = Manager(self.path("notify"))

    def place_nodes(self):
        """A watchdog of 600 ms, of the process that becomes rubatod."""
        for node in self.nodes:
            node.prefix = ["/bin/sh", "-c", 'export NOTIFY_SOCKET="$0" WATCHDOG_USEC=600000 WATCHDOG_PID=$$; exec "$@"',
                           self.path("notify")]
            node.arguments += ["--leave-timeout", "25s"]


def silent_for(c, seconds):
    start = time.monotonic()
    time.sleep(seconds)
    return not [when for when, _, _ in c.manager.read() if when > start + seconds / 2]


def told_to_systemd():
    with Served(devices=2) as c:
        (node,) = c.nodes
        until("ready", lambda: "READY=1" in c.manager.lines())
        check(c.manager.lines().index("READY=1") >= 1, "it was ready before it had started")
        models(c)
        c.submit("job", gpt_spec(c, ENDLESS, 2))
        c.train_on("job", 2)
        until("the status", lambda: c.manager.status().endswith(": 2 devices, 2 workers, coordinator"))
        until("the watchdog", lambda: c.manager.lines().count("WATCHDOG=1") >= 3)
        children = c.processes("rubato-worker") + c.etcd_pids()
        check(len(children) == 3, f"{children} run")
        for pid in children:
            with open(f"/proc/{pid}/environ") as file:
                check("NOTIFY_SOCKET" not in file.read(), f"{cluster.looks(pid)} may say something in our name")
        c.signal_etcd(signal.SIGSTOP)
        until("etcd to be missed", lambda: "which train on; etcd does not answer" in c.manager.status())
        c.signal_etcd(signal.SIGCONT)
        until("etcd to be back", lambda: c.manager.status().endswith(", coordinator"))
        node.process.send_signal(signal.SIGSTOP)  # its loop turns no more
        until("silence", lambda: silent_for(c, 1.2))
        node.process.send_signal(signal.SIGCONT)
        before = c.manager.lines().count("WATCHDOG=1")
        until("it to go on", lambda: c.manager.lines().count("WATCHDOG=1") > before)
        node.stop()
        lines = c.manager.lines()
        check(lines.count("READY=1") == 1 and lines.count("STOPPING=1") == 1, f"told: {lines}")
        check("EXTEND_TIMEOUT_USEC=35000000" in lines, f"told: {lines}")
        check({pid for _, pid, _ in c.manager.told} == {node.process.pid}, f"others spoke: {c.manager.told}")
        check(c.manager.status().endswith("; stopping"), c.manager.status())


if __name__ == "__main__":
    cluster.main(told_to_systemd)
