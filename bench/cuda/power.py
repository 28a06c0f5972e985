# SPDX-License-Identifier: Apache-2.0
"""What a Jetson draws, as its tegrastats says: mean watts of the samples since a watch began."""

import re
import shutil
import subprocess
import threading
import time

RAIL = re.compile(r"\b(V[A-Z0-9_]+) (\d+)mW")
WHOLE = ("VDD_IN", "VIN")  # what the module draws, where a rail says so; else all of them together


def watts(line):
    """Of one line of tegrastats; None if it has no rails."""
    rails = {name: int(milliwatts) / 1000 for name, milliwatts in RAIL.findall(line)}
    if not rails:
        return None
    return next((rails[name] for name in WHOLE if name in rails), sum(rails.values()))


def mode(program="nvpmodel"):
    """Of a Jetson, on which the clocks depend; nothing elsewhere."""
    try:
        said = subprocess.run([program, "-q"], stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((line.strip() for line in said.splitlines() if "Power Mode" in line), "")


class Watch:
    """`with Watch() as watch: ...`, then watch.mean(): None where there is no tegrastats."""

    def __init__(self, program="tegrastats", interval=100):
        self.command = [shutil.which(program), "--interval", str(interval)]
        self.samples, self.process = [], None

    @property
    def is_there(self):
        return self.command[0] is not None

    def __enter__(self):
        if self.is_there:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)
            self.thread = threading.Thread(target=self.read, daemon=True)
            self.thread.start()
        return self

    def read(self):
        for line in self.process.stdout:
            found = watts(line)
            if found is not None:
                self.samples.append((time.monotonic(), found))

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()  # it may be a script whose child keeps the pipe: then the thread is left to it
            self.process.wait()
            self.thread.join(5)

    def mean(self, last=None):
        """Of all samples, or of the last so many seconds: what comes before them is no step."""
        found = [watts for at, watts in self.samples if last is None or at >= time.monotonic() - last]
        return sum(found) / len(found) if found else None
