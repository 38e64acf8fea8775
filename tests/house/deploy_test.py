#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The time that a service manager grants suffices for rubatod to leave its jobs, and the programs are installed side by
side, where the unit starts rubatod."""
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
if stops < leaves + 5:  # then workers are killed, the lease is given back
    bad.append(f"TimeoutStopSec={stops} is too short for --leave-timeout {leaves}s")
if f"`TimeoutStopSec={stops}`" not in page or f"`terminationGracePeriodSeconds: {stops}`" not in page:
    bad.append(f"docs/operations.md does not say {stops} s")
if shutil.which("systemd-analyze"):
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True).stderr
    bad += [line for line in said.splitlines() if "rubatod.service" in line and "is not executable" not in line]
rules = os.path.join(root, "deploy/prometheus/alerts.yaml")
dashboard = os.path.join(root, "deploy/grafana/rubato.json")
for path in rules, dashboard:
    with open(path) as file:
        asked = set(re.findall(r"\brubato_[a-z_]+", file.read()))
    unknown = [name for name in sorted(asked) if f"`{name}`" not in page]
    if unknown or not asked:
        bad.append(f"{path} asks for {unknown}, which docs/operations.md has not")
with open(dashboard) as file:
    panels = json.load(file)["panels"]
if len({panel["id"] for panel in panels}) < len(panels):
    bad.append("two panels of the dashboard have one id")
sources = ""
for name in ("metrics.c", "metrics_jobs.c"):
    with open(os.path.join(root, "daemon/http", name)) as file:
        sources += file.read()
told, listed = set(re.findall(r'"(rubato_\w+)"', sources)), set(re.findall(r"`(rubato_\w+)`", page))
if told != listed:
    bad.append(f"docs/operations.md and /metrics differ in {sorted(told ^ listed)}")
if shutil.which("promtool"):
    said = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True)
    bad += [said.stdout + said.stderr] if said.returncode else []
build = os.path.dirname(rubatod)
if shutil.which("readelf") and shutil.which("dpkg"):  # an image has the packages of `run` alone
    with open(os.path.join(root, "deploy/packages")) as file:
        run = set(re.search(r'^run="([^"]*)"', file.read(), re.M).group(1).split()) | {"libc6", "libgcc-s1"}
    needed = set()
    for name in ("rubatod", "rubatoctl", "rubato-worker"):
        said = subprocess.run(["readelf", "-d", os.path.join(build, name)], capture_output=True, text=True, check=True)
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", said.stdout))
    for library in sorted(needed):
        said = subprocess.run(["dpkg", "-S", f"*/{library}"], capture_output=True, text=True).stdout
        if not run & {line.split(":")[0] for line in said.splitlines()}:
            bad.append(f"deploy/packages: nothing of `run` has {library}")
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
