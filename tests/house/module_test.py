#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The CUDA module asks the loader for no driver, and exports one symbol; NCCL and cuDNN have what it asks them for.

usage: module_test.py MODULE
"""
import os
import re
import subprocess
import sys


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout.splitlines()


def asked_for(module, prefix):
    """Functions that the module looks up by name when it runs: strings in it, perhaps the ends of longer strings."""
    found = (re.search(r"\b(" + prefix + r"[A-Z]\w+)$", line) for line in lines("readelf", "-p", ".rodata", module))
    return {match.group(1) for match in found if match}


def lacking(module):
    """Functions that libraries beside cuBLASLt lack; a library that is not here is not asked."""
    wrong = []
    found = re.search(r"libcublasLt\S* => (\S+)/", "\n".join(lines("ldd", module)))
    for prefix, name in ("nccl", "libnccl.so.2"), ("cudnn", "libcudnn.so.9"):
        library = os.path.join(found.group(1), name) if found else name
        if os.path.exists(library):
            has = {line.split()[-1].split("@")[0] for line in lines("nm", "-D", "--defined-only", library)}
            wrong += [f"{name} has no {one}" for one in sorted(asked_for(module, prefix) - has)]
    return wrong


def main():
    module, wrong = sys.argv[1], []
    for line in lines("readelf", "-dW", module):
        if "NEEDED" in line and re.search(r"libcuda\.so|libnvidia", line):
            wrong.append("needs a driver: " + line.strip())
    for line in lines("nm", "-D", "--undefined-only", module):
        name = line.split()[-1]
        if re.match(r"cu[A-Z]|nvml", name):
            wrong.append("wants a driver's function: " + name)
    shown = [line.split()[-1] for line in lines("nm", "-D", "--defined-only", module)]
    if shown != ["rb_module_entry"]:
        wrong.append(f"shows {shown}")
    wrong += lacking(module)
    print("\n".join(wrong) or "ok")
    return 1 if wrong else 0


sys.exit(main())
