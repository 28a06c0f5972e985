# SPDX-License-Identifier: Apache-2.0
"""One framework's process for one task: starts it, asks it, and says why it failed where it does."""

import json
import os
import pathlib
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time

from arguments import FRAMEWORKS, free_bytes

HERE = pathlib.Path(__file__).resolve().parent

LEAST_FREE_BYTES = 1 << 30  # a peer that leaves less to the machine is ended
SECONDS_TO_END = 10  # that a process which closed its output has for ending


class PeerFailure(Exception):
    """What is shown in place of a peer's numbers."""


class TooSlow(PeerFailure):
    pass


class Peer:
    most_seconds = 200  # that a peer may need from its start to the end of its first step, or for one turn

    def __init__(self, name, task_name, cores, folder, logs, environment):
        private, module, variant = FRAMEWORKS[name]
        self.name, self.private, self.cores = name, private, cores
        threads = str(len(cores))
        self.program = folder / "ours" if module is None else None
        self.command = ([str(self.program), variant, threads, str(folder)] if module is None else
                        [sys.executable, str(HERE / "worker.py"), module, variant, task_name, str(folder)])
        if shutil.which("taskset"):
            self.command = ["taskset", "-c", ",".join(map(str, cores)), *self.command]
        self.environment = environment
        self.log = logs / f"{task_name}-{name}.log"
        self.log.unlink(missing_ok=True)
        self.process = None

    def start(self):
        def end_me_first():  # if memory runs out in spite of everything
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")

        self.end()
        with self.log.open("ab") as log:
            self.said_before = log.tell()
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                            bufsize=0, env=self.environment, start_new_session=True,
                                            preexec_fn=end_me_first)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def ask(self, command):
        """Sends a command and waits for the answer."""
        if self.program and not self.program.exists():
            raise PeerFailure("does not compile")
        if not self.alive():
            if self.process is not None and not command.startswith("prepare"):
                raise PeerFailure(self.why_it_ended())
            self.start()
        deadline = time.monotonic() + self.most_seconds
        try:
            self.process.stdin.write(f"{command}\n".encode())
        except BrokenPipeError:
            pass  # there will be no answer
        answer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                if selector.select(0.2):
                    part = os.read(self.process.stdout.fileno(), 1 << 16)
                    if not part:
                        raise PeerFailure(self.why_it_ended())
                    answer += part
                elif time.monotonic() > deadline:
                    self.end()
                    raise TooSlow(f"needs over {self.most_seconds} s")
                elif free_bytes() < LEAST_FREE_BYTES:
                    held = self.held_bytes() / 1e9
                    self.end()
                    raise PeerFailure(f"out of memory at {held:.1f} GB")
        try:
            return json.loads(answer)
        except ValueError:
            self.end()
            raise PeerFailure(f"answers {answer[:60]!r}") from None

    def why_it_ended(self):
        try:
            status = self.process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.end()
            return "closed its output and did not end"
        if status < 0:  # what it said before was about something else
            return f"ended by {signal.Signals(-status).name}"
        return self.last_words() or f"ended with status {status}"

    def last_words(self):
        """The exception, or what else the process said last. Without what would not be XML."""
        with self.log.open("rb") as log:
            log.seek(self.said_before)
            text = log.read().decode(errors="replace")
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
        lines = ["".join(c for c in line if c.isprintable()).strip() for line in reversed(text.splitlines())]
        exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b", line)]
        return next((line for line in exceptions + lines if line), "")[:200]

    def held_bytes(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def used_ticks(self):
        if not self.alive():
            return 0
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def end(self):
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None
