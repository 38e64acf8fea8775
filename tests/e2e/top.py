#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""rubatoctl top on a terminal of its own: jobs, one job, keys; a rubatod that is gone; and the terminal as it was before."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import cluster
import corpus
from cluster import BUILD, ENDLESS, check, until

LEAVE = b"\x1b[?1049l"  # xterm's entry in terminfo for: back to what was shown before


class Terminal:
    """rubatoctl with these words on a pseudo terminal; `seen` is all that it wrote."""

    def __init__(self, c, *words, kind="xterm"):
        ours, theirs = pty.openpty()
        self.fd, self.seen = ours, b""
        self.resize(40, 160)
        environment = {**os.environ, "TERM": kind, "LC_ALL": "C.UTF-8"}
        command = [os.path.join(BUILD, "rubatoctl"), "--endpoint", c.nodes[0].endpoint, "top", *words]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)

    def resize(self, lines, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        while select.select([self.fd], [], [], 0)[0]:
            try:
                piece = os.read(self.fd, 65536)
            except OSError:  # the other side is closed
                return
            if not piece:
                return
            self.seen += piece

    def shows(self, *words):
        """Waits until these words are shown; they may be there already."""
        def there():
            self.read()
            check(self.process.poll() is None, f"top has ended: {self.process.poll()}")
            return all(word.encode() in self.seen for word in words)

        until(f"top to show {words}", there, 20)

    def press(self, keys):
        self.read()
        self.seen = b""
        os.write(self.fd, keys.encode())

    def ends(self, code=0):
        def over():
            self.read()
            return self.process.poll() is not None

        until("top to end", over, 20)
        check(self.process.poll() == code, f"top ended with {self.process.poll()}, not {code}")
        self.read()
        os.close(self.fd)
        return self.process.stderr.read().decode()


def keys(c):
    terminal = Terminal(c)
    terminal.shows("WANT", "Running", "gpt", "of 2")
    terminal.press("s")
    terminal.shows("name")
    terminal.press("\r")
    terminal.shows("COMPUTES,", "configuration", "devices", "steps")
    terminal.press("?")
    terminal.shows("ctrl-c")
    terminal.press("\x1c")  # ctrl-\ would leave the terminal as it is
    terminal.press(" ")
    terminal.shows("COMPUTES,")
    terminal.press("\x1b")  # nor does what begins a key that is not known
    terminal.press("?")
    terminal.shows("ctrl-c")
    terminal.press(" ")
    terminal.resize(12, 60)
    terminal.press("q")
    terminal.shows("WANT")
    terminal.press("q")
    said = terminal.ends()
    check(not said and LEAVE in terminal.seen, f"{said}{terminal.seen}")


def rubatod_goes(c):
    """What was shown stays while rubatod is gone, and top goes on after the restart."""
    terminal = Terminal(c, "gpt")
    terminal.shows("COMPUTES,")
    terminal.press("")
    c.nodes[0].stop(signal.SIGKILL)
    terminal.shows("rubatod.sock")  # what was tried, and why it did not work
    c.nodes[0].start()

    def answered():
        terminal.press("?")
        terminal.shows("ctrl-c")
        terminal.press(" ")
        terminal.shows("COMPUTES,")
        return b"rubatod.sock" not in terminal.seen

    until("top to hear of it", answered, 20)
    terminal.press("\x03")  # ctrl-c
    terminal.ends()
    check(LEAVE in terminal.seen, "the terminal is not as it was before")


def killed(c):
    terminal = Terminal(c, "gpt")
    terminal.shows("COMPUTES,")
    terminal.press("")
    terminal.process.terminate()
    terminal.ends(1)
    check(LEAVE in terminal.seen, "the terminal is not as it was before")
    terminal = Terminal(c, "gpt")
    terminal.shows("COMPUTES,")
    os.close(terminal.fd)  # its window is closed
    check(terminal.process.wait(20) == -signal.SIGHUP, "it goes on without a terminal")


def deleted(c):
    terminal = Terminal(c, "gpt")
    terminal.shows("COMPUTES,")
    terminal.press("")
    c.ctl("delete", "gpt")
    terminal.shows("meanwhile")
    terminal.press("q")
    terminal.ends()


def refused(c):
    for words, code, why in ((["top"], 2, "it needs a terminal; elsewhere: rubatoctl get jobs;"),
                             (["top", "gpt"], 2, "elsewhere: rubatoctl status JOB;"),
                             (["top", "none"], 3, "there is no job 'none'"), (["top", "-o", "json"], 2, "-o json")):
        done = c.run(*words)
        check(done.returncode == code and why in done.stderr and not done.stdout, f"{words}: {done}")
    for kind in ("nonsense", "dumb"):
        said = Terminal(c, kind=kind).ends(2)
        check(f"'{kind}' is not known" in said, said)


def top():
    with cluster.Cluster(devices=2) as c:
        c.model("gpt", vocab=256, layers=1, width=32, heads=2, seq=32)
        c.submit("gpt", corpus.text_job(c, 1, 2, steps=ENDLESS, globalBatch=4, microBatch=2))
        c.wait("gpt", "step=20")
        for part in (keys, rubatod_goes, killed, refused, deleted):
            part(c)


cluster.main(top)
