#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The tests that failed, and their last lines: failures.py FOLDER LOG, where LOG is what `meson test` wrote of FOLDER
(testlog.json)."""
import json
import sys

LINES = 25

folder, log = sys.argv[1:]
with open(log) as file:
    for test in map(json.loads, file):
        if test["result"] in ("OK", "EXPECTEDFAIL", "SKIP"):
            continue
        print(f"\n== failed: {test['name']} ({folder}), {test['result']}, {test['duration']:.1f} s")
        for stream in ("stdout", "stderr"):
            for line in test.get(stream, "").splitlines()[-LINES:]:
                print(f"{stream}: {line[:400]}")
