# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that are started a little later, or again."""
import contextlib
import random
import socket


def free_ports(count, address="127.0.0.1"):
    """Free ports, if possible outside the range from which the system gives a port to a process that asks for any: then
    no other process gets one of ours before it is used."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        least = int(file.read().split()[0])
    candidates = range(10000, least) if least > 12000 else range(10000, 65536)
    ports = set()
    while len(ports) < count:
        port = random.SystemRandom().choice(candidates)
        with contextlib.suppress(OSError), socket.create_server((address, port)):
            ports.add(port)
    return list(ports)
