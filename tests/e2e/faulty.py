# SPDX-License-Identifier: Apache-2.0
"""Fault points (docs/faults.md) of the programs that are started meanwhile."""
import contextlib
import os


@contextlib.contextmanager
def faulty(fault, once=None):
    """once: the prefix of files that record which faults have fired; a fault with such a file fires no more."""
    os.environ["RUBATO_FAULT"] = fault
    if once:
        os.environ["RUBATO_FAULT_ONCE"] = once
    try:
        yield
    finally:
        os.environ.pop("RUBATO_FAULT", None)
        os.environ.pop("RUBATO_FAULT_ONCE", None)
