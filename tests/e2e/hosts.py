# SPDX-License-Identifier: Apache-2.0
"""Clusters whose nodes are on hosts of their own, as far as rubatod and workers can tell: namespaces on one bridge.
Needs root."""
import os
import subprocess

import cluster

TAG = f"rb{os.getpid() % 10000}"  # of namespaces and interfaces: several clusters may be there side by side


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def free_network():
    """The first three numbers of an IPv4 network that is not in use."""
    taken = subprocess.run(["ip", "-o", "addr"], check=True, capture_output=True, text=True).stdout
    first = os.getpid() % 254
    return next(network for i in range(254) if f" {(network := f'10.77.{(first + i) % 254 + 1}')}." not in taken)


def can_be_made():
    """May we make namespaces?"""
    made = subprocess.run(["ip", "netns", "add", f"{TAG}-try"], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", f"{TAG}-try"], capture_output=True)
    return made


class Hosts(cluster.Cluster):
    """etcd is on the bridge."""

    def __enter__(self):
        try:
            self.link()
            return super().__enter__()
        except BaseException:
            self.unlink()
            raise

    def link(self):
        self.unlink()
        self.network = free_network()
        self.address = f"{self.network}.1"
        ip("link", "add", f"{TAG}-bridge", "type", "bridge")
        ip("addr", "add", f"{self.address}/24", "dev", f"{TAG}-bridge")
        ip("link", "set", f"{TAG}-bridge", "up")
        for i in range(self.count):
            space, near, far = f"{TAG}-{i}", f"{TAG}-near{i}", f"{TAG}-far{i}"
            ip("netns", "add", space)
            ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", space)
            ip("link", "set", near, "master", f"{TAG}-bridge", "up")
            ip("-n", space, "addr", "add", f"{self.network}.{10 + i}/24", "dev", far)
            ip("-n", space, "link", "set", far, "up")
            ip("-n", space, "link", "set", "lo", "up")
            self.shape(space, far)

    def shape(self, space, interface):
        """Shapes what an interface sends; for subclasses with slow links."""

    def place_nodes(self):
        for i, node in enumerate(self.nodes):
            name = f"{TAG}-{i}"  # another host name, or workers would meet in shared memory
            node.prefix = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c",
                           f'hostname {name} && exec "$@"', "sh"]
            node.arguments += ["--listen", f"{self.network}.{10 + i}:7000"]

    def connect(self, node, there):
        """Pull out its cable, or put it back."""
        ip("link", "set", f"{TAG}-near{self.nodes.index(node)}", "up" if there else "down")

    def __exit__(self, *what):
        try:
            super().__exit__(*what)
        finally:
            self.unlink()

    def unlink(self):
        for i in range(self.count):
            subprocess.run(["ip", "link", "del", f"{TAG}-near{i}"], capture_output=True)  # at once, unlike with its netns
            subprocess.run(["ip", "netns", "del", f"{TAG}-{i}"], capture_output=True)
        subprocess.run(["ip", "link", "del", f"{TAG}-bridge"], capture_output=True)
