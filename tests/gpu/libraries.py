#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The libraries beside the driver that a GPU is used through: which are there, of what version, or why one is not; and
what the driver says of its memory.

usage: libraries.py       lines of the table of tests/gpu/run
"""
import ctypes
import os
import shutil
import subprocess
import threading


def load(name):
    """Loads a library from the folders of RUBATO_LIBRARIES, or from where the loader finds it; OSError says why not."""
    for folder in os.environ.get("RUBATO_LIBRARIES", "").split(":"):
        if folder and os.path.exists(os.path.join(folder, name)):
            return ctypes.CDLL(os.path.join(folder, name))
    return ctypes.CDLL(name)


def dotted(number):
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def nccl():
    """(version, whether it can shrink a communicator) of the NCCL that workers open."""
    path = os.environ.get("RUBATO_NCCL")
    if path == "":
        raise OSError("it is not wanted: RUBATO_NCCL is empty")
    library, number = load(path or "libnccl.so.2"), ctypes.c_int()
    if library.ncclGetVersion(ctypes.byref(number)):
        raise OSError("it does not tell its version")
    return dotted(number.value), hasattr(library, "ncclCommRevoke") and hasattr(library, "ncclCommShrink")


def nccl_is_here():
    try:
        return bool(nccl())
    except OSError:
        return False


def nccl_shrinks():
    return nccl_is_here() and nccl()[1]


def nccl_line():
    version, shrinks = nccl()
    return version + (", shrinks" if shrinks else ", too old to shrink")


def cudnn_line():
    library = load(os.environ.get("RUBATO_CUDNN") or "libcudnn.so.9")
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return dotted(library.cudnnGetVersion())


def nvml_line():
    library, text = nvml(), ctypes.create_string_buffer(80)
    if library.nvmlSystemGetNVMLVersion(text, ctypes.c_uint(len(text))):
        raise OSError("it does not tell its version")
    return text.value.decode()


def sanitizer_line():
    path = shutil.which("compute-sanitizer")
    if not path:
        raise OSError("no compute-sanitizer on PATH")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout.split()
    return said[said.index("Version") + 1] if "Version" in said[:-1] else path


# ---- What the driver says of its memory ----

class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def nvml():
    library = load(os.environ.get("RUBATO_NVML") or "libnvidia-ml.so.1")
    failed = library.nvmlInit_v2()
    if failed:
        raise OSError(f"nvmlInit: error {failed}")
    return library


class Used:
    """Bytes in use on the first GPU, by any process; None where NVML is not there."""

    def __init__(self):
        try:
            self.library, self.device = nvml(), ctypes.c_void_p()
            if self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
                self.library = None
        except (OSError, AttributeError):
            self.library = None

    def now(self):
        memory = Memory()
        if not self.library or self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)):
            return None
        return memory.used


class Peak(threading.Thread):
    """The most memory beyond what was in use when this was made; it looks twenty times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.used, self.over = Used(), threading.Event()
        self.before = self.most = self.used.now() or 0
        self.start()

    def run(self):
        while self.used.library and not self.over.wait(0.05):
            self.most = max(self.most, self.used.now() or 0)

    def gigabytes(self):
        """The peak so far; None where it is not known."""
        return (self.most - self.before) / 1e9 if self.used.library else None

    def text(self):
        return "peak unknown without NVML" if self.gigabytes() is None else f"{self.gigabytes():.1f} GB at most (NVML)"


def main():
    for name, line in (("NCCL", nccl_line), ("cuDNN", cudnn_line), ("NVML", nvml_line),
                       ("compute-sanitizer", sanitizer_line)):
        try:
            print(f"TABLE {name:34} {'':8} {line()}", flush=True)
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            print(f"TABLE {name:34} {'':8} none: {str(error)[:120]}", flush=True)


if __name__ == "__main__":
    main()
