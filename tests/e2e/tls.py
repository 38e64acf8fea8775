#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two rubatods and an etcd that speak TLS alone, with the certificates of deploy/certificates: a caller with a
certificate of their authority is served as over a unix socket, and no other caller."""
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time

import cluster
import corpus
from cluster import ENDLESS, check, until

CERTIFICATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/certificates")


class Secured(cluster.Cluster):
    def etcd_answers(self, url):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(url.rsplit(":")[-1]))):
            return True

    def certificate(self, name, *addresses, authority="ca"):
        folder = self.path(authority)
        subprocess.run([CERTIFICATES, folder, name, *addresses], check=True, capture_output=True)
        return os.path.join(folder, name)

    def start_etcd(self):
        self.etcd_folder = self.certificate("etcd", "127.0.0.1")
        return super().start_etcd().replace("http:", "https:")

    def run_etcd(self):
        arguments = [word.replace("http:", "https:") if self.etcd_arguments[0][i - 1].endswith("client-urls") else word
                     for i, word in enumerate(self.etcd_arguments[0])]
        self.etcd_arguments = [[*arguments, "--cert-file", f"{self.etcd_folder}/tls.crt", "--key-file",
                                f"{self.etcd_folder}/tls.key", "--trusted-ca-file", f"{self.etcd_folder}/ca.crt",
                                "--client-cert-auth"]]
        super().run_etcd()

    def place_nodes(self):
        for node in self.nodes:
            folder = self.certificate(node.name, "127.0.0.1")
            node.arguments += ["--tls", folder, "--etcd-tls", self.etcd_folder]

    def afar(self):
        """The nodes' addresses."""
        return [item["address"] for item in self.json("get", "nodes")["items"]]


def spec(c):
    return corpus.text_job(c, 2, 2, steps=ENDLESS, globalBatch=12, microBatch=2)


def a_job_from_afar():
    """Submitted, grown over both nodes, drained and exported by a user over TLS; its bits are those of a job left alone."""
    with Secured(nodes=2, devices=1) as c:
        alice = c.certificate("alice")
        addresses = c.afar()
        check(all(address.startswith("tls:127.0.0.1:") for address in addresses), f"{addresses}")
        c.model("gpt", layers=2, width=256, heads=4, seq=32, dropout=0.1)
        for number, address in enumerate(addresses):  # one of them forwards to the other
            c.ctl("--tls", alice, "submit", "-f", c.job_file(f"job{number}", spec(c)), endpoint=address)
            c.train_on(f"job{number}", 2)
            c.ctl("--tls", alice, "node", "drain", "n1", "--wait", endpoint=address)
            c.ctl("--tls", alice, "node", "uncordon", "n1", endpoint=address)
            c.train_on(f"job{number}", 2)
            c.ctl("--tls", alice, "pause", f"job{number}", endpoint=address)
            until("the pause", lambda: c.status(f"job{number}")["phase"] == "Paused")
            path = c.path("far.safetensors")
            c.ctl("export", f"job{number}", "--out", path, endpoint=address, env={**os.environ, "RUBATO_TLS": alice})
            c.ctl("resume", f"job{number}")
            check(cluster.digest(path) and os.path.getsize(path) > 1 << 20, "the export is small")
            if number == 0:
                c.drop("job0")
        c.same_as_alone("job1", spec(c), "a job told what to do over TLS")


def refused(c, folder, address, words):
    asked = c.run(*(["--tls", folder] if folder else []), "get", "nodes", endpoint=address)
    check(asked.returncode in (2, 3, 4, 5) and words in asked.stderr, f"exit {asked.returncode}: {asked.stderr}")


def strangers():
    """Each is told why; the nodes go on."""
    with Secured(nodes=2, devices=1) as c:
        alice, mallory = c.certificate("alice"), c.certificate("mallory", "127.0.0.1", authority="other")
        address = c.afar()[0]
        silent = socket.create_connection((address.split(":")[1], int(address.split(":")[2])))
        refused(c, mallory, address, "The certificate issuer is unknown")
        both = shutil.copytree(mallory, c.path("both"))  # trusts the nodes, which do not trust it
        shutil.copy(os.path.join(alice, "ca.crt"), both)
        refused(c, both, address, "does not take our certificate")
        c.model("gpt", layers=1, width=32, heads=4, seq=32)
        many = spec(c)
        many["data"]["train"]["path"] = ["corpus.txt"] * 20000  # its user is told before all of it is sent
        job = c.job_file("many", many)
        for _ in range(5):
            asked = c.run("--tls", both, "submit", "-f", job, endpoint=address)
            check(asked.returncode == 5 and "does not take our certificate" in asked.stderr, f"exit {asked.returncode}: {asked.stderr}")
        refused(c, alice, address.replace("127.0.0.1", "localhost"), "The name in the certificate does not match")
        refused(c, None, address.replace("tls:", "tcp:"), "speaks TLS")
        refused(c, None, address, "wants certificates")
        refused(c, c.path("nowhere"), address, "nowhere/ca.crt")
        deaf = socket.create_server(("127.0.0.1", 0))  # takes calls, and says nothing
        nobody = f"tls:127.0.0.1:{deaf.getsockname()[1]}"
        for verb, most in ((["get", "nodes"], 20), (["wait", "gpt", "--for", "done", "--timeout", "2"], 8)):
            begun = time.monotonic()
            asked = c.run("--tls", alice, *verb, endpoint=nobody)
            check(asked.returncode == 5 and "is it running?" in asked.stderr, f"exit {asked.returncode}: {asked.stderr}")
            check(time.monotonic() - begun < most, f"{verb} took {time.monotonic() - begun:.1f} s")
        deaf.close()
        host, port = address.split(":")[1:]
        chance = random.Random(1)
        for size in (0, 1, 5, 300, 70000):  # bytes that are no TLS, that end early, that begin as TLS does
            for start in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
                with socket.create_connection((host, int(port))) as line:
                    try:
                        line.sendall(start + chance.randbytes(size))
                    except OSError:
                        pass  # the node has hung up
        silent.settimeout(20)  # a node hangs up on a silent caller after 10 s
        check(silent.recv(1) == b"", "a node has said something to who says nothing")
        silent.close()
        c.ctl("--tls", alice, "get", "nodes", endpoint=address)


def nodes_that_would_not_be_trusted():
    """rubatod refuses, when it starts, certificates that others would not trust, and says why."""
    with Secured(nodes=2, devices=1) as c:
        node = c.nodes[1]
        check(node.stop() == 0, "rubatod's exit status")
        good = node.arguments[node.arguments.index("--tls") + 1]
        mixed = shutil.copytree(c.certificate("bob"), c.path("mixed"))  # with the key of another certificate
        shutil.copy(os.path.join(good, "tls.key"), mixed)
        for option, folder, words in (
                ("--tls", os.path.join(c.path("ca"), "bob"), "is of a user"),
                ("--tls", c.certificate("far", "10.9.8.7"), "is not for 127.0.0.1"),
                ("--tls", c.path("nowhere"), "nowhere/ca.crt"),
                ("--etcd-tls", mixed, "do not match")):
            known = os.path.getsize(node.log)
            kept = list(node.arguments)
            node.arguments[node.arguments.index(option) + 1] = folder
            node.start(wait=False)
            check(node.process.wait(20) != 0, f"it started with {folder}")
            node.arguments = kept
            with open(node.log) as log:
                log.seek(known)
                said = log.read()
            check(f"{option}: " in said and words in said, said)


def quickest(c, endpoint, *words):
    """The quickest of some calls, in seconds."""
    took = []
    for _ in range(20):
        start = time.monotonic()
        c.ctl(*words, "get", "jobs", endpoint=endpoint)
        took.append(time.monotonic() - start)
    return min(took)


def nothing_waits_to_be_acknowledged():
    """A call over TLS, forwarded or not, does not take 40 ms (for each connection) more than one over a unix socket."""
    with Secured(nodes=2, devices=1) as c:
        alice = c.certificate("alice")
        near = min(quickest(c, node.endpoint) for node in c.nodes)
        for address in c.afar():
            far = quickest(c, address, "--tls", alice)
            check(far < max(near + 0.035, 3 * near), f"{address}: {far * 1e3:.1f} ms, not {near * 1e3:.1f} ms")


def said(node):
    with open(node.log) as log:
        return log.read()


def certificates_are_renewed():
    """New files are used without a restart, and a node without TLS says why it cannot call nodes that have it."""
    with Secured(nodes=2, devices=1) as c:
        alice = c.certificate("alice")
        address = c.afar()[1]
        fresh = [c.certificate(node.name, "127.0.0.1", authority="new") for node in c.nodes]
        carol = c.certificate("carol", authority="new")
        for node, folder in zip(c.nodes, fresh):
            for name in os.listdir(folder):
                shutil.copy(os.path.join(folder, name), os.path.join(c.path("ca"), node.name + "-" + name))
        c.ctl("--tls", alice, "get", "nodes", endpoint=address)
        for node in c.nodes:  # renamed into their place, one after the other
            for name in ("ca.crt", "tls.crt", "tls.key"):
                os.rename(os.path.join(c.path("ca"), node.name + "-" + name), os.path.join(c.path("ca"), node.name, name))
        refused(c, alice, address, "The certificate issuer is unknown")
        until("word of new files", lambda: all("there are new files in" in said(node) for node in c.nodes))
        c.ctl("--tls", carol, "get", "nodes", endpoint=address)
        shutil.copy(os.path.join(carol, "tls.key"), os.path.join(c.path("ca"), "n1", "tls.key"))
        until("word of files that do not do", lambda: "tls.crt with tls.key" in said(c.nodes[1]))
        check("those before them serve on" in said(c.nodes[1]), said(c.nodes[1]))
        c.ctl("--tls", carol, "get", "nodes", endpoint=address)
        c.ctl("--tls", carol, "get", "jobs", endpoint=address)  # which the leader answers
        leader = c.json("version")["rubatod"]["leader"]
        node = next(node for node in c.nodes if node.name != leader)
        node.stop(signal.SIGKILL)
        del node.arguments[node.arguments.index("--tls"):node.arguments.index("--tls") + 2]
        node.start(wait=False)
        until("the node", lambda: c.json("version", endpoint=node.endpoint).get("rubatod"))
        asked = c.run("get", "jobs", endpoint=node.endpoint)
        check(asked.returncode == 5 and "was started without --tls" in asked.stderr, f"exit {asked.returncode}: {asked.stderr}")


cluster.main(a_job_from_afar, strangers, nodes_that_would_not_be_trusted, nothing_waits_to_be_acknowledged,
             certificates_are_renewed)
