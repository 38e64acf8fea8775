#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a service manager grants and what rubatod takes to leave its jobs fit together, and what is installed lies side
by side, where the unit begins it."""
import json
import os
import re
import shutil
import subprocess
import sys

root, rubatod = sys.argv[1:]
unit = os.path.join(root, "deploy/rubatod.service")
with open(unit) as file:
    stops = int(re.search(r"^TimeoutStopSec=(\d+)$", file.read(), re.M).group(1))
usage = subprocess.run([rubatod, "--help"], capture_output=True, text=True, check=True).stdout
leaves = int(re.search(r"--leave-timeout.*\(default (\d+)s", usage).group(1))
with open(os.path.join(root, "docs/operations.md")) as file:
    page = file.read()
bad = []
if stops < leaves + 5:  # workers are killed, the lease is given back
    bad.append(f"TimeoutStopSec={stops} is too short for --leave-timeout {leaves}s")
if f"`TimeoutStopSec={stops}`" not in page or f"`terminationGracePeriodSeconds: {stops}`" not in page:
    bad.append(f"docs/operations.md does not say {stops} s")
if shutil.which("systemd-analyze"):
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True).stderr
    bad += [line for line in said.splitlines() if "rubatod.service" in line and "is not executable" not in line]
build = os.path.dirname(rubatod)
if shutil.which("meson"):
    said = subprocess.run(["meson", "introspect", "--installed", build], capture_output=True, text=True, check=True)
    installed = {os.path.basename(path): os.path.dirname(path) for path in json.loads(said.stdout).values()}
    programs = {installed.get(name) for name in ("rubatod", "rubatoctl", "rubato-worker")}
    programs |= {folder for name, folder in installed.items() if name.endswith(".so")}
    with open(os.path.join(build, "deploy/rubatod.service")) as file:
        begins = os.path.dirname(re.search(r"^ExecStart=(\S+)", file.read(), re.M).group(1))
    if programs != {begins} or "rubatod.service" not in installed:
        bad.append(f"the unit begins rubatod in {begins}, and installed is {installed}")
print("\n".join(bad) or f"leaves within {leaves} s of {stops} s")
sys.exit(bool(bad))
