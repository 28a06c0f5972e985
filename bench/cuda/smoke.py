# SPDX-License-Identifier: Apache-2.0
"""smoke.py FOLDER: run.sh as a whole on a CUDA runtime without a GPU; what it measures means nothing, what it does does.

A tiny network, two batch sizes and one test that asks the runtime. The reports must be made of what the programs said.
Before it, parts of run.py with programs that are made up: what they do when something goes wrong.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import run  # noqa: E402

# Runs the program, and says of two steps what ncu might, and of the kernels that check a device's noise before them.
NCU = r"""#!/bin/sh
echo "$@" | grep -q -e --csv || exit 1
while [ "${1%.program}" = "$1" ]; do shift; done
"$@" || exit 1
echo '==PROF== Disconnected'
echo '"ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"'
for id in 0 1 2 3 4 5; do
  name="void run_kernel<some_kernel<float, $((id % 2))>>(T1)"
  [ "$id" -gt 1 ] || name="void run_kernel<release_kernel<float>>(T1)"
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"gpu__time_duration.sum\",\"ns\",\"1,234,500\""
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"smsp__inst_executed.sum\",\"inst\",\"4,665,952\""
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"smsp__issue_active.avg.pct_of_peak_sustained_active\",\"%\",\"25.39\""
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"dram__bytes.sum\",\"byte\",\"1,218,816\""
done
"""
NO_SANITIZER = '''#!/bin/sh
echo '========= Error: Device not supported. Please refer to the documentation'
exit 9
'''
FINDING = '''#!/bin/sh
echo '========= Error: Race reported between Write access at 0x10 and Read access at 0x20'
exit 9
'''
GPU = {"gpu": "none", "multiprocessors": 1, "runtime": 13000, "driver": 13000, "date": "today"}


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def want(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


def made_run(folder, of_program, **options):
    """A run whose programs are all of_program: (path, why there is none)."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    options = {"out": folder / "out", "nvcc": "nvcc", "tests": [], "tasks": [], "records": 64, "small": True, **options}
    made = run.Run(types.SimpleNamespace(**options), None, dict(GPU), run.Clock(5))
    made.programs = types.SimpleNamespace(wait=lambda name: of_program)
    return made


def written(folder, what):
    return json.loads((folder / "out" / "cuda.json").read_text(encoding="utf-8"))[what]


def check_rows(folder):
    """A row is in the report before its program ends; steps alone without the others of their batch are, too."""
    row = {"batch": 4, "precision": "float", "graph_us": 1, "loop_us": 2, "poisson_us": 3, "nodes": 4, "peak_mb": 5}
    program = put(folder / "rows", f"#!/bin/sh\necho '{json.dumps(row)}'\nsleep 1\nkill -TERM $PPID\nsleep 60\n")
    made = made_run(folder, (program, ""))

    def stop(*_):
        raise run.Stopped

    signal.signal(signal.SIGTERM, stop)
    try:
        made.ours("tiny", "time", [4, 16], 0.1, end=made.clock.end)
    except run.Stopped:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    want("rows of a run that is stopped", [each["loop_us"] for each in written(folder, "results")], [2])
    for batch in (4, 16):
        alone = {"batch": batch, "precision": "float", "records": 60000, "poisson_us": 2.5}
        made.programs.wait = lambda name: (put(folder / "alone", f"#!/bin/sh\necho '{json.dumps(alone)}'\n"), "")
        made.ours("tiny", "poisson", [batch], 0.1, records=60000, end=made.clock.end)
    want("steps from more records", [(each["batch"], each.get("loop_us"), each["poisson_60000_us"])
                                     for each in written(folder, "results")], [(4, 2, 2.5), (16, None, 2.5)])


def check_notes(folder):
    """A check is in the report though nobody can read it; what is not built fails unless a library is missing."""
    def refuse(*_):
        raise OSError

    with contextlib.redirect_stdout(types.SimpleNamespace(write=refuse, flush=refuse)):
        made_run(folder, None).note("a check", "ok")
    want("a note", [each["what"] for each in written(folder, "checks")], ["a check"])
    for why, state in (("cannot be built in time", "FAILED"),
                       ("cannot be built: /usr/include/cublas_v2.h(7): error: expected a ;", "FAILED"),
                       ("cannot be built: /usr/bin/ld: cannot find -lcublas: No such file or directory", "not built"),
                       ("cannot be built: x.cuh:32:10: fatal error: cublas_v2.h: No such file", "not built")):
        made = made_run(folder, (None, why), tests=["layered_test_1"])
        made.check()
        want(why, [each["state"].split(":")[0] for each in made.checks], [state])


def check_sanitizers(folder):
    """A sanitizer that may not run finds nothing; what one finds is found."""
    for text, state in ((NO_SANITIZER, "not allowed here"), (FINDING, "FAILED: exit code 9")):
        tool = put(folder / "nvcc" / "compute-sanitizer", text)
        made = made_run(folder, (folder / "rows", ""), tasks=["mnist_cnn", "cifar_cnn"], nvcc=str(tool))
        made.sanitize(("memcheck",), run.Share(60, made.clock))
        want("sanitizers", [(each["what"].split(", ")[1], each["state"]) for each in made.checks],
             [("layered network", state), ("network of held samples", state)])


def check_parts(folder):
    """A mistake in a part is in the report, and the others go on."""
    made = made_run(folder, None)
    made.part("a part", lambda: [][1])
    made.part("another", made.note, "another", "ok")
    want("parts", [(each["what"], each["state"].split(":")[0]) for each in made.checks],
         [("a part", "FAILED"), ("another", "ok")])
    for text in ('"ID","Kernel Name"\n"0","k"', '"ID","Kernel Name","Grid Size","Metric Name"\n"0"'):
        try:
            run.kernel_times.of_a_step(text)
            sys.exit("a table that is cut off is taken")
        except ValueError:
            pass


def check_builds(folder):
    """What is timed first is built first, and none of it begins after the end."""
    builder = types.SimpleNamespace(nvcc="true", command=lambda name, *_: (folder / name, ["sleep", "60"]))
    tests = ["kernels", *(test[0] for test in run.device_tests())]
    programs = run.Programs(builder, list(run.networks.TASKS), tests, run.Clock(5))
    begin = time.monotonic()
    run.end_everything()
    programs.wait_all()
    want("builds end with the run", time.monotonic() - begin < 30, True)
    run.ENDING.clear()
    want("builds in their order", [*list(programs.jobs)[:4], list(programs.jobs)[-1]],
         ["tiny", "tiny_sequences", "mnist_cnn", "mlp", "kernels"])
    (folder / "log").unlink(missing_ok=True)
    for source in ("first", "first", "second"):  # a second run of the same takes what the first has built
        builder.command = lambda name, *_: (folder / name, ["sh", "-c", f"echo {source} >> {folder / 'log'}; : > $0",
                                                            str(folder / name)])
        run.Programs(builder, ["tiny"], [], run.Clock(5)).wait_all()
    want("what is built", (folder / "log").read_text(encoding="utf-8").split(), ["first", "second"])
    probe = put(folder / "probe", '#!/bin/sh\necho warning\necho \'{"gpu": "some"}\'\necho warning >&2\n')
    builder.fake = True
    builder.command = lambda *_: (probe, ["true"])
    want("the GPU", run.find_gpu(builder), {"gpu": "some"})


def check_goals():
    """Every network has its goals; one logical batch alone says nothing of memory."""
    ours = {"task": "lstm", "framework": run.cuda_report.OURS, "batch": 16, "loop_us": 10}

    def holds(logical, **peers):
        rows = [ours, *({"task": "lstm", "framework": name, "batch": 16, "us": us} for name, us in peers.items())]
        rows += [{"task": "lstm", "framework": run.cuda_report.OURS, "logical": each, "peak_mb": 7} for each in logical]
        return {what.removeprefix("lstm: "): held for what, _, held in run.cuda_report.goals(rows) if held is not None}

    plain, private = "0.4 times PyTorch without DP", "no slower than the best private peer"
    want("goals", holds([256, 256], torch=5, torch_graph=3, jax=20, torch_vmap=9), {plain: False, private: False})
    want("goals", holds([256, 1024], torch=4, jax=10, opacus_hooks=11),
         {plain: True, private: True, "the memory does not depend on the logical batch": True})


def main():
    folder = pathlib.Path(sys.argv[1])
    run.BUILD = (folder / "parts").resolve()
    check_rows(run.BUILD)
    check_notes(run.BUILD)
    check_sanitizers(run.BUILD)
    check_parts(run.BUILD)
    check_builds(run.BUILD)
    check_goals()
    out = folder / "out"
    for name in ("cuda.json", "cuda.md", "cuda.svg"):
        (out / name).unlink(missing_ok=True)
    put(folder / "bin" / "ncu", NCU)
    put(folder / "bin" / "compute-sanitizer", NO_SANITIZER)
    path = f"{folder.resolve() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # Kernels against their emulation takes half a minute to compile: the long tier's.
    tests = "kernels,cuda_device_test" if os.environ.get("PERGRAD_LONG_TESTS") else "cuda_device_test"
    command = ["sh", str(HERE / "run.sh"), "--out", str(out), "--build", str(folder / "build"), "--tasks", "tiny",
               "--tests", tests, "--batches", "4,16", "--records", "64", "--seconds", "0.05",
               "--minutes", "8", "--peers", "torch,torch_graph"]
    done = subprocess.run(command, env={**os.environ, "PATH": path, "PERGRAD_FAKE_CUDA": "1", "PYTHON": sys.executable},
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"run.sh ends with {done.returncode}")
    found = json.loads((out / "cuda.json").read_text(encoding="utf-8"))
    states = {each["what"]: each["state"] for each in found["checks"]}
    kernels = ["kernels have the host's bits"] if "kernels" in tests else []
    order = [done.stdout.index(f"{what}, tiny network") for what in ("memcheck", "racecheck", "initcheck", "synccheck")]
    want("sanitizers' order", sorted([*order, done.stdout.index("float, time")])[2], done.stdout.index("float, time"))
    for what in ("tiny: device and host executor agree", "cuda_device_test on this device", *kernels):
        if states[what] != "ok":
            sys.exit(f"{what}: {states[what]}")
    for precision, batches in (("float", [4, 16]), ("tf32", [16])):
        ours = {row["batch"]: row for row in found["results"] if row["framework"] == "pergrad_dp" and "batch" in row
                and row["precision"] == precision}
        if sorted(ours) != batches:
            sys.exit(f"batches that were timed, {precision}: {sorted(ours)}")
        for batch, row in ours.items():
            wrong = [name for name in ("graph_us", "loop_us", "poisson_us", "peak_mb", "nodes") if not row[name] > 0]
            if wrong or row["nodes"] > 12 or (batch == 16 and precision == "float") != ("poisson_60000_us" in row):
                sys.exit(f"batch {batch}: {row}")
    logical = [row for row in found["results"] if "logical" in row]
    if not logical or not all(row["peak_mb"] > 0 and row["poisson_us"] > 0 for row in logical):
        sys.exit(f"logical batches: {logical}")
    # Where PyTorch is installed it is timed, on the processor; where it is not, that is said.
    torch = [row for row in found["results"] if row["framework"] == "torch"]
    if not torch or not all(row.get("us", 0) > 0 or row.get("failure") == "no Python module torch" for row in torch):
        sys.exit(f"PyTorch: {torch}")
    graph = [row["failure"] for row in found["results"] if row["framework"] == "torch_graph"]
    if graph not in ([row["failure"] for row in torch if "failure" in row], ["RuntimeError: needs a GPU"]):
        sys.exit(f"PyTorch's graph: {graph}")
    kernels = [{key: value for key, value in row.items() if key not in ("task", "batch")} for row in found["kernels"]]
    wanted = {"grid": "(7, 1, 1)", "us": 1234.5, "instructions": 4665952.0, "issue": 0.2539, "bytes": 1218816.0}
    if kernels != [{"precision": precision, "kernel": f"some_kernel<float, {number}>", **wanted}
                   for precision in ("float", "tf32") for number in (0, 1)]:
        sys.exit(f"kernels: {kernels}")
    text = (out / "cuda.md").read_text(encoding="utf-8")
    drawn = xml.etree.ElementTree.parse(out / "cuda.svg").getroot()
    bars = [each for each in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    if f"| {ours[16]['nodes']} |" not in text or "some_kernel" not in text or len(bars) < 1 + 2 * 3:
        sys.exit("the tables or the chart lack what was measured")


if __name__ == "__main__":
    main()
