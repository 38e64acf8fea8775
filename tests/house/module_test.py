#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The CUDA module asks the loader for no driver, and shows one symbol.

usage: module_test.py MODULE
"""
import re
import subprocess
import sys


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


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
    print("\n".join(wrong) or "ok")
    return 1 if wrong else 0


sys.exit(main())
