#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each fault point is placed in the sources, each placed point is in the table, and docs/faults.md names each."""
import glob
import os
import re
import sys

root = sys.argv[1]
with open(os.path.join(root, "base/fault.h")) as file:
    table = set(re.findall(r'X\("([a-z.]+)"', file.read()))
with open(os.path.join(root, "docs/faults.md")) as file:
    page = set(re.findall(r"`((?:worker|daemon)\.[a-z.]+)`", file.read()))
placed = set()
for room in ("coll", "worker", "daemon"):
    for path in glob.glob(os.path.join(root, room, "**", "*.c"), recursive=True):
        with open(path) as file:
            text = file.read()
        placed |= set(re.findall(r'rb_fault\("([a-z.]+)"\)', text))
        placed |= set(re.findall(r'"(daemon\.[a-z]+)"', text)) if "rb_fault(" in text else set()
bad = [f"{what}: {sorted(names)}" for what, names in (
    ("in the table of base/fault.h, and placed nowhere", table - placed),
    ("placed, and not in the table", placed - table),
    ("not named in docs/faults.md", table - page),
    ("named in docs/faults.md, and not in the table", page - table)) if names]
print("\n".join(bad) or f"{len(table)} fault points")
sys.exit(bool(bad) or not table)
