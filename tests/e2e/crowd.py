#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Callers that connect to rubatod and ask nothing, more of them than it has descriptors, or that send half of a large
call: users are answered, rubatod hangs up on the silent, and the half calls take little memory."""
import os
import select
import socket
import struct
import time

import cluster
from cluster import check, cpu_seconds, until

DESCRIPTORS = 256
CALL = b"\x0a\x07version"  # its method, by proto/rpc.proto
FRAME = b"RBF1" + struct.pack("<IQ", 3, len(CALL)) + CALL


class Crowded(cluster.Cluster):
    def place_nodes(self):
        self.nodes[0].arguments += ["--listen", "127.0.0.1:0"]
        self.nodes[0].prefix = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"]


def connect(address):
    scheme, _, where = address.partition(":")
    line = socket.socket(socket.AF_UNIX if scheme == "unix" else socket.AF_INET)
    line.connect(where if scheme == "unix" else (where.rsplit(":", 1)[0], int(where.rsplit(":", 1)[1])))
    return line


def is_shut(line):
    try:
        return line.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def nobody_is_kept_out():
    with Crowded(devices=1) as c:
        node = c.nodes[0]
        far = c.json("get", "nodes")["items"][0]["address"]
        slow = [connect(address) for address in (node.endpoint, far)]
        for line in slow:
            line.sendall(FRAME[:20])
        used, start = cpu_seconds(node.process.pid), time.monotonic()
        crowd = [connect(address) for _ in range(DESCRIPTORS) for address in (node.endpoint, far)]
        for address in (node.endpoint, far):
            c.ctl("get", "nodes", endpoint=address)
        open_files = len(os.listdir(f"/proc/{node.process.pid}/fd"))
        check(open_files < DESCRIPTORS * 3 / 4, f"it has {open_files} files open, of {DESCRIPTORS}")
        until("an end of the silent", lambda: all(map(is_shut, crowd)), 30)
        used, took = cpu_seconds(node.process.pid) - used, time.monotonic() - start
        check(took > 8, f"the silent were hung up on after {took} s")
        check(used < 0.2 * took + 1, f"it took {used} s of a core for {took} s of waiting")
        for line in slow:
            line.settimeout(20)
            line.sendall(FRAME[20:])
            check(line.recv(4) == b"RBF1", "who is slow is not answered")
        with open(node.log) as log:
            told = log.read().count("are the most")
        check(told == 1, f"the log tells {told} times of the crowd")
        for line in crowd + slow:
            line.close()


def resident_mib(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def half_calls_take_little():
    large, most = 20 << 20, 64 << 20
    with Crowded(devices=1) as c:
        node = c.nodes[0]
        far = c.json("get", "nodes")["items"][0]["address"]
        before = resident_mib(node.process.pid)
        lines = [connect(address) for _ in range(10) for address in (node.endpoint, far)]
        for line in lines:
            line.sendall(b"RBF1" + struct.pack("<IQ", 3, most) + bytes(large))
        taken = resident_mib(node.process.pid) - before
        check(taken < 256, f"{len(lines)} halves of calls take {taken} MiB")
        c.ctl("get", "nodes")
        refused = until("refusals of halves", lambda: select.select(lines, [], [], 0)[0], 20)
        refused[0].settimeout(20)
        refused[0].sendall(bytes(most - large))
        check(b"not whole" in refused[0].recv(4096), "who is refused does not hear why")
        for line in lines:
            line.close()
        c.ctl("get", "nodes")


cluster.main(nobody_is_kept_out, half_calls_take_little)
