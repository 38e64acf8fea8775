#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public ONNX backend tests, through `rubatoctl model test`: backend_test.py RUBATOCTL [--write]

No test gives a wrong answer, none crashes, and the tests that are not supported are exactly those that
backend_unsupported.txt names, each with its reason (--write: write that file anew).

`concerns_training` counts the tests of one operator that concerns training nets: all but those of operators
that only inference, images, text or signals need."""
import json
import os
import subprocess
import sys

DATA = "/usr/share/libonnx-testdata/data"
NAMED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "backend_unsupported.txt")

# Quantisation, text, signals, detection, control flow and shapes that depend on numbers.
OTHER = """
    bitshift basic_convinteger convinteger compress
    dequantizelinear dynamicquantizelinear quantizelinear qlinearconv qlinearmatmul matmulinteger
    det if_ loop maxunpool melweightmatrix nonmaxsuppression nonzero optional_ resize
    reversesequence roialign scan sequence_ strnormalizer tfidfvectorizer unique upsample shrink
""".split()


def concerns_training(name):
    bare = name[len("test_"):]
    return not name.endswith("_expanded") and not any(bare.startswith(word) for word in OTHER)


def main():
    if not os.path.isdir(DATA):
        return 77
    reports = {}
    for folder in ("node", "pytorch-converted", "pytorch-operator", "simple"):
        done = subprocess.run(
            [sys.argv[1], "-o", "json", "model", "test", os.path.join(DATA, folder)],
            stdout=subprocess.PIPE)
        reports[folder] = report = json.loads(done.stdout)
        print(f"{folder}: " + ", ".join(f"{len(report[k])} {k}"
                                        for k in ("passed", "failed", "unsupported")))
        for name in report["failed"]:
            print(f"  failed {name}: {report['reasons'][name]}")
    node = reports["node"]
    for part, wants in (("of operators that training needs", concerns_training),
                        ("expanded", lambda name: name.endswith("_expanded"))):
        print(f"  {part}: {sum(map(wants, node['passed']))} of "
              f"{sum(sum(map(wants, node[k])) for k in ('passed', 'failed', 'unsupported'))}")
    failed = sum(len(report["failed"]) for report in reports.values())
    named = "".join(f"{name}: {report['reasons'][name].replace(DATA, '')}\n"
                    for report in reports.values() for name in report["unsupported"])
    if sys.argv[2:] == ["--write"]:
        with open(NAMED, "w") as out:
            out.write(named)
    with open(NAMED) as file:
        expected = file.read()
    for line in sorted(set(named.splitlines()) ^ set(expected.splitlines())):
        print("<" if line in expected else ">", line)
    return 0 if not failed and named == expected else 1


if __name__ == "__main__":
    sys.exit(main())
