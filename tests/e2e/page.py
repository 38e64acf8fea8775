#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The status page: its files, and the questions that it asks below /api, at a node that coordinates and at one that
does not; and what becomes of questions whose client has hung up, or that the coordinator does not answer."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import time
import urllib.parse

import cluster
import corpus
from cluster import ENDLESS, check, standing_still, until

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer",
           "Cross-Origin-Resource-Policy": "same-origin", "Connection": "close"}
POLICY = {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'",
          "form-action 'none'", "frame-ancestors 'none'"}
TYPES = {"": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "mjs": "text/javascript; charset=utf-8"}
HOSTILE = "<img src=x onerror=alert(1)>"
CALLS = 32  # RB_HTTP_CALLS: as many are under way at a time


class Paged(cluster.Cluster):
    """A cluster whose nodes all serve HTTP."""

    def place_nodes(self):
        for node in self.nodes:
            node.arguments += ["--http", "127.0.0.1:0"]

    def where(self, node):
        """(host, port); a single node has its host's name."""
        def found():
            rows = self.json("get", "nodes")["items"]
            return [row["http"] for row in rows if row["name"] == node.name or self.count == 1]

        host, port = until(f"{node.name} to be there", found)[0].rsplit(":", 1)
        return host, int(port)


def ask(at, path, method="GET", seconds=20, body=None):
    """(status, headers, body)"""
    with contextlib.closing(http.client.HTTPConnection(*at, timeout=seconds)) as line:
        line.request(method, path, body)
        reply = line.getresponse()
        for name, value in HEADERS.items():
            check(reply.headers[name] == value, f"{path}: {name}: {reply.headers[name]}")
        check(set(reply.headers["Content-Security-Policy"].split("; ")) == POLICY, f"{reply.headers}")
        check(not any(name.lower().startswith("access-control") for name in reply.headers), f"{reply.headers}")
        return reply.status, reply.headers, reply.read().decode()


def api(at, name, status=200, **query):
    """The body, which is an object."""
    path = f"/api/{name}" + ("?" + urllib.parse.urlencode(query) if query else "")
    got, headers, body = ask(at, path)
    check(got == status and headers["Content-Type"] == "application/json", f"{path}: {got}, {body}")
    found = json.loads(body)
    check(status == 200 or (list(found) == ["error"] and found["error"]), f"{path}: {body}")
    return found


def the_page_is_whole(at):
    """All that the page loads is there, and none of it comes from elsewhere."""
    ahead, seen = ["/"], {}
    while ahead:
        path = ahead.pop()
        if path in seen:
            continue
        status, headers, text = ask(at, path)
        check(status == 200 and headers["Content-Type"] == TYPES[path.partition(".")[2]], f"{path}: {status}, {headers}")
        check(not re.search(r"https?:|//[a-z]+\.|@import|url\(|eval\(", re.sub(r"^ *//.*", "", text, flags=re.M)), f"{path} loads what is not ours")
        check(len(text.splitlines()) < 300, f"{path} is long")
        seen[path] = text
        ahead += ["/" + name for name in re.findall(r"(?:from '\./|href=\"|src=\")([a-z]+\.(?:mjs|css))", text)]
        status, headers, body = ask(at, path, "HEAD")
        check(status == 200 and not body and int(headers["Content-Length"]) == len(text.encode()), f"HEAD {path}: {headers}")
    check(len(seen) > 8 and "/page.css" in seen and "/page.mjs" in seen, f"{list(seen)}")
    check(not re.search(r"<script>|style=|onclick", seen["/"]), "what the policy would refuse")


def what_is_not_there(at):
    for path in ("/index.html", "/page.js", "/../page.css", "/page.css/", "/%2e%2e/etc/passwd", "/%00", "/page.css%00", "/api/status?job=gpt%00"):
        check(ask(at, path)[0] == 404, path)
    for name, query in (("status", {"job": "nobody"}), ("metrics", {"job": "nobody"}), ("events", {"job": "nobody"}),
                        ("configurations", {"job": HOSTILE}), ("checkpoints", {"job": "nobody"}), ("pause", {"job": "gpt"}),
                        ("cancel", {"job": "gpt"}), ("logs", {"job": "gpt"}), ("export", {"job": "gpt"}), ("", {})):
        api(at, name, 404, **query)
    for name, query in (("status", {}), ("status", {"job": ""}), ("metrics", {"job": "gpt", "after": "x"}), ("jobs", {"job": "gpt"}),
                        ("metrics", {"job": "gpt", "limit": "0"}), ("metrics", {"job": "gpt", "lost": "1"}), ("status", {"job": "g" * 257}),
                        ("status", {"job": "gpt", "node": "n"})):
        api(at, name, 400, **query)
    for path in ("/api/status?job=gpt&job=gpt", "/api/status?job", "/api/status?job=%ff", "/api/jobs?" + "&".join("abcdefghij")):
        check(ask(at, path)[0] == 400, path)
    for path in ("/", "/page.mjs", "/api/jobs", "/api/pause?job=gpt", "/api/nothing"):
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            status, headers, _ = ask(at, path, method, body="{}" if method == "POST" else None)
            check(status == 405 and headers["Allow"] == "GET, HEAD", f"{method} {path}: {status}")
    check(ask(at, "/api/jobs", "HEAD")[::2] == (200, ""), "HEAD has a body")
    check(ask(at, "/api/jobs", body="x" * 100000)[0] == 200, "a body keeps it from its answer")  # it is thrown away


def it_says_what_rubatoctl_says(c, at):
    """For a job that stands still, /api and rubatoctl give the same answers."""
    for kind in ("jobs", "nodes", "devices"):
        check(api(at, kind)["items"] == c.json("get", kind)["items"], kind)
    for kind in ("configurations", "checkpoints"):
        check(api(at, kind, job="gpt")["items"] == c.json("get", kind, "gpt")["items"], kind)
    status = api(at, "status", job="gpt")
    check(status == c.status("gpt"), f"{status}")
    check(api(at, "status", job=status["id"]) == status, "it does not go by its id")
    check(HOSTILE in status["checkpoint"]["path"], f"{status}")
    events = api(at, "events", job="gpt")["items"]
    check(events == c.json("events", "gpt")["items"] and len(events) > 3, f"{events}")
    check(api(at, "events", job="gpt", after=events[-2]["key"])["items"] == events[-1:], "events behind one")
    check({event["key"] for event in events} <= {event["key"] for event in api(at, "events")["items"]}, "of all jobs some are missing")
    page = api(at, "metrics", job="gpt")
    rows, most = page["rows"], min(4096, status["step"])
    check([row[0] for row in rows] == list(range(1, most + 1)), f"rows of {status['step']} steps: {rows}")
    check({row[page["columns"].index("devices")] for row in rows} == {1, 2}, "devices of rows")
    check(api(at, "metrics", job="gpt", after=5, limit=3)["rows"] == rows[5:8], "a page of rows")
    check(len(api(at, "metrics", job="gpt", limit=10**14)["rows"]) == most, "a large page")


def one_node():
    with Paged(devices=3) as c:
        at = c.where(c.nodes[0])
        check(api(at, "jobs") == {"items": [], "notes": []}, "a job before the first")
        the_page_is_whole(at)
        c.model("gpt", layers=1, width=32, heads=4, seq=32)
        job = corpus.text_job(c, 1, 3, steps=ENDLESS, globalBatch=12, microBatch=2)
        c.submit("gpt", {**job, "parallel": {"pipeline": 1, "balance": "even"}, "checkpoint": {"path": c.path(HOSTILE)}})
        c.train_on("gpt", 1)
        check(api(at, "devices")["items"][0]["job"] == "gpt", "the device that it uses")
        c.ctl("resize", "gpt", "--want", "2", "--wait")
        c.train_on("gpt", 2)
        c.ctl("checkpoint", "gpt", "--wait")
        c.ctl("pause", "gpt")
        until("the pause", lambda: c.status("gpt")["phase"] == "Paused")
        what_is_not_there(at)
        it_says_what_rubatoctl_says(c, at)
        c.signal_etcd(signal.SIGSTOP)  # what was known is still told
        try:
            api(at, "jobs")
        finally:
            c.signal_etcd(signal.SIGCONT)
        c.ctl("cancel", "gpt", "--now")
        c.ctl("delete", "gpt")
        until("its deletion", lambda: ask(at, "/api/status?job=gpt")[0] == 404)


def leads(c):
    """The nodes: first the one that coordinates, then the others."""
    first = until("a coordinator", lambda: (c.try_json("version") or {"rubatod": {"leader": None}})["rubatod"]["leader"])
    return sorted(c.nodes, key=lambda node: node.name != first)


def hang_up(at, path):
    """Asks, and hangs up at once."""
    with socket.create_connection(at) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def unanswered(c):
    """Questions to a coordinator that is silent, while no node can become the next."""
    leader, other = leads(c)
    at = c.where(other)
    with concurrent.futures.ThreadPoolExecutor(CALLS) as pool:
        os.kill(leader.process.pid, signal.SIGSTOP)
        c.signal_etcd(signal.SIGSTOP)
        try:
            for _ in range(8):
                hang_up(at, "/api/jobs")
            start = time.monotonic()
            asked = [pool.submit(ask, at, "/api/jobs") for _ in range(CALLS)]
            said = [(one.result()[0], "too much" in one.result()[2]) for one in asked]
            check(said.count((503, True)) == 8 and said.count((504, False)) == CALLS - 8, f"{said}")
            check(time.monotonic() - start > 5, f"it was given up after {time.monotonic() - start} s")
        finally:
            c.signal_etcd(signal.SIGCONT)
            os.kill(leader.process.pid, signal.SIGCONT)
    until("an answer", lambda: ask(at, "/api/jobs")[0] == 200)


def two_nodes():
    with Paged(nodes=2, devices=2) as c:
        leader, other = leads(c)
        c.model("gpt", layers=1, width=32, heads=4, seq=32)
        c.submit("gpt", {**corpus.text_job(c, 3, 4, steps=ENDLESS, globalBatch=12, microBatch=2),
                         "parallel": {"pipeline": 1, "balance": "even"}})
        c.train_on("gpt", 3)
        c.ctl("pause", "gpt")
        until("the pause", lambda: c.status("gpt")["phase"] == "Paused")
        for at in (c.where(leader), c.where(other)):
            the_page_is_whole(at)
            check({row["name"] for row in api(at, "nodes")["items"]} == {"n0", "n1"}, "nodes")
            check(len(api(at, "devices")["items"]) == 4, "devices")
            check([row["name"] for row in api(at, "jobs")["items"]] == ["gpt"], "jobs")
            check(api(at, "status", job="gpt") == c.status("gpt"), "its status")
            check(len(api(at, "metrics", job="gpt")["rows"]) == min(4096, c.status("gpt")["step"]), "its rows")
            api(at, "status", 404, job="nobody")
        c.ctl("cancel", "gpt", "--now")
        unanswered(c)


def health_beside_them():
    """Clients with questions to the cluster do not keep others from the node's health; and the node ends in time, with
    all of those questions unanswered."""
    with Paged(nodes=2, devices=1) as c:
        leader, other = leads(c)
        at = c.where(other)
        until("it to know who leads", lambda: ask(at, "/api/jobs")[0] == 200)
        with standing_still(leader.process.pid):
            lines = [socket.create_connection(at) for _ in range(CALLS)]
            for line in lines:
                line.sendall(b"GET /api/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
            until("all places for calls to be taken", lambda: "too much" in ask(at, "/api/jobs")[2])
            check(ask(at, "/livez", seconds=6)[::2] == (200, "ok\n"), "it does not live beside them")
            for line in lines[::2]:
                line.close()
            check(other.stop() == 0, "its exit status")
            for line in lines[1::2]:
                line.settimeout(5)
                reply = b""
                with contextlib.suppress(ConnectionError):
                    while piece := line.recv(4096):
                        reply += piece
                line.close()
                check(not reply or reply.startswith(b"HTTP/1.1 503 "), f"{reply}")


cluster.main(one_node, two_nodes, health_beside_them)
