#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Health and metrics over HTTP: a real rubatod and a real job; the answers agree with rubatoctl, and clients, however
slow or many, do not keep them from the others."""
import contextlib
import http.client
import math
import os
import re
import signal
import socket
import subprocess
import threading
import time

import cluster
import corpus
from cluster import ENDLESS, check, cpu_seconds, until
from faulty import faulty

LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (NaN|[+-]Inf|[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)")


def labels_of(text):
    found, at = {}, 0
    while at < len(text or ""):
        match = LABEL.match(text, at)
        check(match and match[1] not in found, f"labels: {text}")
        found[match[1]] = re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], match[2])
        at = match.end()
    return found


def parse(text):
    """{(name, label, value, ...): number} of Prometheus' text format; any other text fails."""
    check(text.endswith("\n"), "the last line has no end")
    found, families, helped = {}, {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
            check(helped not in families, f"{helped} comes twice")
            continue
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            check(family == helped and kind in ("gauge", "counter"), line)
            check(family.startswith("rubato_") and (kind == "counter") == family.endswith("_total"), line)
            families[family] = 0
            continue
        match = SAMPLE.fullmatch(line)
        check(match, f"no sample: {line}")
        check(families and match[1] == list(families)[-1], f"not in its family: {line}")
        labels = labels_of(match[2])
        check(not {"job", "instance"} & set(labels), line)  # labels that the scraper sets
        key = (match[1], *(word for pair in sorted(labels.items()) for word in pair))
        check(key not in found, f"twice: {line}")
        found[key] = float(match[3])
        families[match[1]] += 1
    check(all(families.values()), f"a family without a sample: {families}")
    return found


class Watched(cluster.Cluster):
    """A single node that serves HTTP."""

    def place_nodes(self):
        self.nodes[0].arguments += ["--http", "127.0.0.1:0"]

    def where(self):
        """(host, port), as get nodes tells it."""
        host, port = self.json("get", "nodes")["items"][0]["http"].rsplit(":", 1)
        return host, int(port)

    def ask(self, path, method="GET", at=None, seconds=10):
        """(status, headers, body)"""
        line = http.client.HTTPConnection(*(at or self.where()), timeout=seconds)
        with contextlib.closing(line):
            line.request(method, path)
            reply = line.getresponse()
            return reply.status, reply.headers, reply.read().decode()

    def numbers(self):
        status, headers, body = self.ask("/metrics")
        check(status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", f"{headers}")
        return parse(body)


def spec(c):
    job = corpus.text_job(c, 1, 3, steps=ENDLESS, globalBatch=12, microBatch=2)
    return {**job, "parallel": {"pipeline": 1, "balance": "even"}}  # no configuration but those asked for


def told(c, *key):
    return c.numbers().get(key)


def agrees(status, numbers):
    """The numbers of a job that stands still are those of its status."""
    def one(name, **more):
        return numbers.get((name, *(word for pair in sorted({"train_job": "gpt", **more}.items()) for word in pair)))

    kept = status["checkpoint"]
    for got, wanted in ((one("rubato_step"), status["step"]), (one("rubato_steps_wanted"), status["steps"]),
                        (one("rubato_loss", split="train"), status["loss"]),
                        (one("rubato_samples_per_second"), status["throughput"]),
                        (one("rubato_data_cursor_samples"), status["samples"]),
                        (one("rubato_devices"), len(status["devices"])), (one("rubato_devices_wanted"), status["want"]),
                        (one("rubato_job_state", state=status["phase"]), 1),
                        (one("rubato_checkpoint_step"), int(kept["step"])),
                        (one("rubato_checkpoint_bytes"), int(kept["bytes"]))):
        check(got == wanted, f"{got}, not {wanted}: {status}\n{numbers}")
    age = one("rubato_checkpoint_age_seconds")
    check(abs(time.time() - int(kept["time"]) / 1000 - age) < 5, f"age {age}: {kept}")


def numbers_agree(c):
    before = c.numbers()
    check(not any("train_job" in key for key in before), "a job is told of where there is none")
    check(before["rubato_leader",] == before["rubato_ready",] == before["rubato_store_connected",] == 1, f"{before}")
    check(before["rubato_node_devices", "health", "good", "kind", "cpu", "state", "free"] == 3, f"{before}")
    c.model("gpt", layers=1, width=32, heads=4, seq=32)
    c.submit("gpt", spec(c))
    c.train_on("gpt", 1)
    c.ctl("resize", "gpt", "--want", "2", "--wait")
    numbers = until("the pace", lambda: c.numbers() if told(c, "rubato_samples_per_second", "train_job", "gpt") else None)
    check(numbers["rubato_workers",] == 2, f"{numbers}")
    check(numbers["rubato_node_devices", "health", "good", "kind", "cpu", "state", "busy"] == 2, f"{numbers}")
    stall = c.json("get", "configurations", "gpt")["items"][-1]["receipt"]["stall_ms"]
    got = numbers["rubato_last_reconfigure_stall_seconds", "train_job", "gpt"]
    check(math.isclose(got, stall / 1000), f"{got} s, not {stall} ms")
    c.ctl("checkpoint", "gpt", "--wait")
    until("the checkpoint", lambda: c.status("gpt")["checkpoint"])
    c.ctl("pause", "gpt")
    until("the pause", lambda: c.status("gpt")["phase"] == "Paused")
    agrees(c.status("gpt"), c.numbers())
    c.ctl("cancel", "gpt", "--now")
    until("its end", lambda: told(c, "rubato_jobs", "phase", "Cancelled") == 1)
    check(not any("train_job" in key for key in c.numbers()), "a job that is over is told of")
    c.ctl("delete", "gpt")
    until("its deletion", lambda: told(c, "rubato_jobs", "phase", "Cancelled") == 0)


def what_is_not_there(c, at):
    for path in ("/index.html", "/metrics/", "/livez/x", "/%00", "//livez"):
        status, headers, body = c.ask(path, at=at)
        check(status == 404 and headers["Content-Type"].startswith("text/plain") and body, f"{path}: {status}")
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        status, headers, body = c.ask("/metrics", method, at)
        check(status == 405 and headers["Allow"] == "GET, HEAD" and body, f"{method}: {status} {headers}")
    for path in ("/livez?verbose", "/metrics"):
        status, headers, body = c.ask(path, "HEAD", at)
        check(status == 200 and int(headers["Content-Length"]) > 0 and not body, f"{path}: {status} {headers}")
    for head, wanted in ((b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"a" * 40000 + b"\r\n\r\n", (400, 413, 414, 431)),
                         (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", (400, 413, 414, 431)),
                         (b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", (405,)),
                         (b"\x16\x03\x01 no HTTP\r\n\r\n", (400, 404, 405))):
        with socket.create_connection(at, 5) as line:
            reply = b""
            with contextlib.suppress(ConnectionError):
                line.sendall(head)
                reply = line.recv(4096)
        check(not reply or int(reply.split()[1]) in wanted, f"{head[:20]}: {reply}")
    check(c.ask("/livez", at=at)[0] == 200, "it does not live")


def health_follows_etcd(c, at):
    until("the node", lambda: c.ask("/readyz", at=at)[0] == 200)
    c.signal_etcd(signal.SIGSTOP)
    try:
        what_is_not_there(c, at)  # these answers do not need etcd
        until("etcd's absence", lambda: "etcd does not answer\n" in c.ask("/readyz", at=at)[2])
        check(c.ask("/readyz", at=at)[0] == 503, "it is ready without etcd")
        check(c.ask("/livez", at=at)[::2] == (200, "ok\n"), "it does not live without etcd")
        asked = c.run("get", "jobs")
        check("etcd does not answer: this is how it was" in asked.stderr, f"`get` says nothing of it: {asked}")
        numbers = parse(c.ask("/metrics", at=at)[2])
        check(numbers["rubato_store_connected",] == numbers["rubato_ready",] == numbers["rubato_leader",] == 0, f"{numbers}")
        check(not any("rubato_jobs" in key for key in numbers), f"it tells of jobs, and does not know: {numbers}")
    finally:
        c.signal_etcd(signal.SIGCONT)
    until("etcd", lambda: c.ask("/readyz", at=at)[::2] == (200, "ok\n"))


def many_at_once(at):
    lines = [socket.create_connection(at) for _ in range(200)]  # more than are served at a time
    for line in lines:
        line.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    for line in lines:
        line.settimeout(10)
        reply = b""
        while piece := line.recv(4096):
            reply += piece
        check(reply.startswith(b"HTTP/1.1 200") and reply.endswith(b"\r\n\r\nok\n"), f"{reply}")
        line.close()


def drip(at, took):
    """Sends a byte a second, until rubatod hangs up."""
    start = time.monotonic()
    with contextlib.suppress(OSError), socket.create_connection(at) as line:
        line.settimeout(1)
        while time.monotonic() < start + 20:
            line.sendall(b"G")
            with contextlib.suppress(TimeoutError):
                if not line.recv(100):
                    break
    took.append(time.monotonic() - start)


def nobody_is_kept_waiting():
    """Answers are right while some clients ask slowly and some ask nothing; no client keeps a place for long."""
    with Watched(devices=3) as c:
        at, took = c.where(), []
        many_at_once(at)
        slow = threading.Thread(target=drip, args=(at, took))
        slow.start()
        silent = [socket.create_connection(at) for _ in range(58)]
        numbers_agree(c)
        health_follows_etcd(c, at)
        slow.join()
        check(9 <= took[0] <= 18, f"a byte a second was listened to for {took[0]} s")
        silent += [socket.create_connection(at) for _ in range(100)]  # more than there are places
        used, start = cpu_seconds(c.nodes[0].process.pid), time.monotonic()
        check(c.ask("/livez", at=at, seconds=5)[0] == 200, "it is not served behind those who are silent")
        used, waited = cpu_seconds(c.nodes[0].process.pid) - used, time.monotonic() - start
        check(used < 0.2 * waited + 0.2, f"it took {used} s of a core for {waited} s of waiting")
        for line in silent:
            line.close()


class Patient(Watched):
    def place_nodes(self):
        super().place_nodes()
        self.nodes[0].arguments += ["--leave-timeout", "30s"]


def starts_and_ends():
    """rubatod reports a port in use; a node that leaves is not ready."""
    with faulty("worker.save.written:do=3000ms"), Patient(devices=1) as c:  # so leaving takes a while
        at = c.where()
        for address, words in ((f"{at[0]}:{at[1]}", "in use by another process: stop it, or give another port"),
                               ("192.0.2.1:0", "no address of this machine")):
            other = subprocess.run(
                [os.path.join(cluster.BUILD, "rubatod"), "--single-node", "--state-dir", c.path("other"), "--cpu-devices", "1",
                 "--http", address], capture_output=True, text=True, timeout=60)
            check(other.returncode and f"--http: {address} is " in other.stderr and words in other.stderr, other.stderr)
        with open(c.nodes[0].log) as log:
            check(f"http://{at[0]}:{at[1]}" in log.read(), "the log does not say where")
        c.model("gpt", layers=1, width=32, heads=4, seq=32)
        c.submit("gpt", spec(c))
        c.train_on("gpt", 1)
        os.kill(c.nodes[0].process.pid, signal.SIGTERM)
        check("leaving\n" in until("the drain", lambda: not_ready(c, at)), "it does not say why")
        check(c.nodes[0].process.wait(60) == 0, "rubatod's exit status")


def not_ready(c, at):
    status, _, body = c.ask("/readyz", at=at)
    return body if status == 503 else None


cluster.main(nobody_is_kept_waiting, starts_and_ends)
