# SPDX-License-Identifier: Apache-2.0
"""smoke.py FOLDER: run.py with made-up peers that do what peers have done - wrong sums, exceptions, signals, hanging -
and with wrong words on the command line; what it measures means nothing, what it says about each of them does.

Needs a Python with NumPy - this one, that of the peers or Debian's - and ends with 77 where there is none.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
TASK = "lk_rnn"  # of few parameters

# What a made-up peer does, by its variant. A right sum is 1 everywhere, as that of "right" is.
STUB = '''
import os, signal, subprocess, sys, time
import numpy

def version():
    return "stub 1"

def records(inputs, targets, variant):
    return inputs, targets

class Training:
    def __init__(self, task, batch, variant):
        self.task, self.batch, self.variant, self.count = task, batch, variant, 0
        if variant == "raises":
            raise RuntimeError("\\x1b[31mno such thing as <this> & that\\x1b[0m\\n\\nTo read more: elsewhere")
        if variant == "hangs":
            subprocess.Popen(["sleep", "1000"])
            time.sleep(1000)
        if variant == "killed":
            print("UserWarning: something else", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def start(self, parameters, rate, noise):
        self.values = parameters - {"wrong": 1.001, "nan": float("nan")}.get(self.variant, 1)
        self.noise = noise

    def step(self, x, y):
        assert len(x) == len(y) == self.batch and self.noise == (1.1 if self.count else 0), self.noise
        self.count += 1
        time.sleep(0.01)
        if self.variant == "dies_later" and self.count == 4:
            os._exit(3)
        if self.variant == "slow_turn" and self.count > 1:
            time.sleep(1000)

    def parameters(self):
        return self.values
'''

DRIVER = '''
import pathlib, sys
sys.path.insert(0, {here!r})
import arguments, peer, run
arguments.FRAMEWORKS.clear()
arguments.FRAMEWORKS.update({{name: (name != "plain", "stub", name) for name in {names!r}}})
peer.Peer.most_seconds = 5
run.BUILD = pathlib.Path({build!r})
sys.exit(run.main())
'''


def check(condition, what):
    if not condition:
        sys.exit(f"smoke.py: {what}")


def start(folder, names, *words):
    """run.py with made-up frameworks of these names."""
    driver = folder / "driver.py"
    driver.write_text(DRIVER.format(here=str(HERE), names=names, build=str(folder / "build with a space")))
    return subprocess.Popen([sys.executable, str(driver), "--task", TASK, "--out", str(folder / "out"), *words],
                            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def processes_with(text):
    found = []
    for each in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words and "driver.py" not in words and "smoke.py" not in words:
            found.append(words)
    return found


def read(folder):
    return json.loads((folder / "out" / "peers.json").read_text(encoding="utf-8"))


def all_kinds_of_peers(folder):
    names = ["plain", "right", "same", "wrong", "nan", "raises", "hangs", "killed", "dies_later", "slow_turn"]
    run = start(folder, names, "--batch", "4,8", "--seconds", "0.09")
    said = run.communicate(timeout=200)[0]
    check(run.returncode == 1, f"a wrong peer must give status 1, not {run.returncode}:\n{said}")
    found = read(folder)
    rows = {(row["framework"], row["batch"]): row for row in found["results"]}
    check(len(rows) == 2 * len(names), f"{len(rows)} rows")
    reasons = {"wrong": "WRONG: its sum of the gradients differs by 1.0e-03", "nan": "WRONG: its sum of the gradients "
               "is not finite", "raises": "RuntimeError: no such thing as <this> & that", "hangs": "needs over 5 s",
               "killed": "ended by SIGKILL", "dies_later": "ended with status 3", "slow_turn": "needs over 5 s"}
    for batch in (4, 8):
        for name in ("plain", "right", "same"):
            row = rows[name, batch]
            check("failure" not in row, f"{row}")
            check(row["version"] == "stub 1" and row["task"] == TASK and row["threads"] >= 1 and row["alternated"],
                  f"{row}")
            check(0 < row["us_per_sample_minimum"] <= row["us_per_sample_median"] < 1e6, f"{row}")
            check(row["first_step_seconds"] >= 0.01 and row["peak_mb"] > 1 and row["steps"] >= 3, f"{row}")
        check(rows["same", batch]["difference"] == 0, "the same sum differs")
        for name, reason in reasons.items():
            row = rows[name, batch]
            if batch == 8 and name == "hangs":
                reason = "not tried: it needed over 5 s for a smaller batch"
            check(row.get("failure") == reason, f"{name}, batch {batch}: {row}")
            check("us_per_sample_median" not in row, f"{name} failed and was timed: {row}")
    text = (folder / "out" / "peers.md").read_text(encoding="utf-8")
    drawn = xml.etree.ElementTree.parse(folder / "out" / "peers.svg").getroot()
    labels = ["".join(each.itertext()) for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for name in names:
        check(text.count(f"| {name} |") == 2 and labels.count(name) == 2, f"{name} is missing from table or chart")
    for reason in reasons.values():
        check(reason in text and any(reason.startswith(label) for label in labels if label), f"{reason} is not shown")
    bars = [each for each in drawn.iter("{http://www.w3.org/2000/svg}rect") if each.get("height") == "14"]
    check(len(bars) == 6, f"{len(bars)} bars")


def interrupted(folder, number):
    names = ["plain", "right", "slow_turn"]
    shutil.rmtree(folder / "out", ignore_errors=True)
    run = start(folder, names, "--batch", "4,8", "--seconds", "600")
    seen = ""
    while "slow_turn: ready" not in seen:
        line = run.stdout.readline()
        check(line, f"it ends by itself:\n{seen}")
        seen += line
    time.sleep(0.5)  # in the first turn of the first peer, which takes 200 s of the 600
    check(processes_with(str(folder)), "where are the peers?")
    run.send_signal(number)
    said = run.communicate(timeout=30)[0]
    check(run.returncode == 130 and "interrupted" in said, f"status {run.returncode}:\n{said}")
    check(not processes_with(str(folder)), f"left behind: {processes_with(str(folder))}")
    found = read(folder)
    check(found["machine"]["interrupted"] and len(found["results"]) == 3, f"{found}")
    check(all(row["failure"] == "not timed: the run was interrupted" for row in found["results"]), f"{found}")
    text = (folder / "out" / "peers.md").read_text(encoding="utf-8")
    check("The run was interrupted" in text, "the table does not say it")


def interrupted_later(folder):
    """What was measured of smaller batches, and of turns that ended, stays."""
    run = start(folder, ["plain", "right", "hangs"], "--batch", "4,8", "--seconds", "0.09")
    seen = ""
    while "batch 8" not in seen:
        line = run.stdout.readline()
        check(line, f"it ends by itself:\n{seen}")
        seen += line
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    rows = {(row["framework"], row["batch"]): row for row in read(folder)["results"]}
    check(rows["right", 4]["us_per_sample_median"] > 0 and run.returncode == 130, f"{rows}")


def wrong_words(folder):
    """They cost a line, and no installation."""
    file = folder / "a file"
    file.write_text("")
    wrong = [["--task", "nothing"], ["--task", ""], ["--batch", "0"], ["--batch", "-1"], ["--batch", "abc"],
             ["--batch", ""], ["--batch", "16,,32"], ["--seconds", "0"], ["--seconds", "nan"], ["--seconds", "-1"],
             ["--seconds", "soon"], ["--threads", "0"], ["--threads", "100000"], ["--frameworks", "tensor"],
             ["--frameworks", ""], ["--out", str(file)], ["--out", "/proc/nothing/here"], ["--out", ""],
             ["--task", "vgg16", "--batch", "999999"], ["--tasks", "mlp"], ["mlp"], ["--batch"]]
    for words in wrong:
        done = subprocess.run([sys.executable, str(HERE / "arguments.py"), *words], text=True, capture_output=True,
                              check=False)
        check(done.returncode == 2 and "Traceback" not in done.stderr and "error: " in done.stderr,
              f"{words}: status {done.returncode}: {done.stderr}")
    script = (HERE / "run.sh").read_text(encoding="utf-8")
    check(script.index("arguments.py") < script.index('"$here/install.sh"'), "run.sh installs before it reads its words")
    good = subprocess.run([sys.executable, str(HERE / "arguments.py"), "--task", "mlp,mlp", "--batch", "16,16,2",
                           "--out", str(folder / "out")], check=False)
    check(good.returncode == 0, "words said twice are no mistake")


def need_numpy():
    """Goes on as another Python where this one has no NumPy."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        for other in (HERE.parent.parent / "build" / "peers" / "venv" / "bin" / "python", "/usr/bin/python3"):
            if pathlib.Path(other).exists() and not subprocess.run([other, "-c", "import numpy"], check=False,
                                                                   stderr=subprocess.DEVNULL).returncode:
                os.execv(other, [str(other), *sys.argv])
        print(f"{pathlib.Path(sys.argv[0]).name}: no Python with NumPy here")
        sys.exit(77)


def main():
    need_numpy()
    folder = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "frameworks").mkdir(parents=True)
    (folder / "frameworks" / "stub.py").write_text(STUB)
    wrong_words(folder)
    all_kinds_of_peers(folder)
    for number in (signal.SIGINT, signal.SIGTERM):
        interrupted(folder, number)
    interrupted_later(folder)
    shutil.rmtree(folder)
    print("smoke.py: everything as it should be")


if __name__ == "__main__":
    main()
