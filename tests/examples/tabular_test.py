#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tabular_test.py PROGRAM: the example on tables of ours, from a CSV file to predictions, and what it gives away."""

import csv
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

PROGRAM = sys.argv[1]
SCHEMA = {
    "rows": 2000,
    "columns": {"age, in years": [0, 100], "colour": ["red", "blue"], "answer": ["no", "of course"]},
}


def rows(count, seed):
    """The answer depends on age and colour; one in ten ages is missing."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        age, colour = draw.randrange(100), draw.choice(["red", "blue", "green\n\"dark\""])
        answer = "of course" if age > 50 or colour == "blue" else "no"
        made.append(["" if draw.random() < 0.1 else age, colour, answer, "not in the schema"])
    return made


def write(path, body, header=("age, in years", "colour", "answer", "note")):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *body])
    return path


def run(*arguments, status=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def contents(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def interrupted(train, folder):
    """What ends a run ends it behind a step, with all files written; before the first step, with none."""
    (folder / "rows.csv").unlink(missing_ok=True)
    os.mkfifo(folder / "rows.csv")  # the program waits for the rows while it is told to end
    common = [PROGRAM, "--target", "answer", "--schema", folder / "train.schema.json", "--out", folder / "out"]
    before = contents(folder / "out")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        run_of = subprocess.Popen([*common, "--csv", folder / "rows.csv", "--predict", train], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(folder / "rows.csv", "w", encoding="utf-8") as rows_of:
            run_of.send_signal(number)
            rows_of.write(train.read_text(encoding="utf-8"))
        said = run_of.communicate(timeout=60)[0]
        assert run_of.returncode == 130 and "before the first step" in said, (number, run_of.returncode, said)
        assert contents(folder / "out") == before, number

    def stopped(stop, ignored=None, status=130):
        long = [*common, "--csv", train, "--epochs", "60" if ignored else "10000", "--noise-multiplier", "5"]
        prepare = (lambda: signal.signal(ignored, signal.SIG_IGN)) if ignored else None
        run_of = subprocess.Popen(long, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=prepare)
        while not run_of.stdout.readline().startswith("epoch"):
            assert run_of.poll() is None
        stop(run_of)
        run_of.communicate(timeout=100) if not run_of.stdout.closed else run_of.wait(timeout=100)
        assert run_of.returncode == status, run_of.returncode
        report = json.loads((folder / "out/report.json").read_text(encoding="utf-8"))
        assert report["interrupted"] == (status == 130) and report["options"]["epochs"] == int(long[-3]), report
        assert (folder / "out/model.safetensors").read_bytes() != before["model.safetensors"]

    for number in (signal.SIGINT, signal.SIGHUP):
        stopped(lambda run_of, number=number: run_of.send_signal(number))
    stopped(lambda run_of: run_of.stdout.close())  # a closed pipe
    stopped(lambda run_of: run_of.send_signal(signal.SIGHUP), signal.SIGHUP, 0)  # as under nohup


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        train = write(folder / "train.csv", rows(2000, 1))
        test = write(folder / "test.csv", rows(500, 2))

        # Without a schema nothing is read from the rows and nothing is written.
        said = run("--csv", train, "--target", "answer", "--out", folder / "none", status=2)
        assert "train.schema.json" in said and "--draft-schema" in said and said.count("\n") == 1, said
        assert not (folder / "none").exists()

        (folder / "train.schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
        common = ["--csv", train, "--target", "answer"]
        said = run(*common, "--test", test, "--epsilon", 8, "--out", folder / "out")
        report = json.loads((folder / "out/report.json").read_text(encoding="utf-8"))
        assert report["private"] and report["epsilon"] <= 8 and report["test_accuracy"] > 0.8, report
        assert report["confusion"]["labels"] == ["no", "of course"]
        assert sum(map(sum, report["confusion"]["counts"])) == 500
        assert (folder / "out/report.svg").read_text(encoding="utf-8").startswith("<svg")

        trained = contents(folder / "out")
        interrupted(train, folder)  # its networks have much noise, and may tell nothing
        for name_of, content in trained.items():
            (folder / "out" / name_of).write_bytes(content)

        # Predictions: one a row, in order, also of rows with unknown words, without the target and in another order.
        asked = [[colour, age] for age, colour, *_ in rows(300, 3)]
        write(folder / "asked.csv", asked, ("colour", "age, in years"))
        run("--predict", folder / "asked.csv", "--out", folder / "out")
        with open(folder / "out/predictions.csv", newline="", encoding="utf-8") as file:
            answers = list(csv.DictReader(file))
        assert len(answers) == 300
        right = 0
        for answer, (_, _, truth, _) in zip(answers, rows(300, 3)):
            shares = {label: float(answer[f"P({label})"]) for label in ("no", "of course")}
            assert abs(sum(shares.values()) - 1) < 1e-5 and max(shares, key=shares.get) == answer["answer"], answer
            right += answer["answer"] == truth
        assert right > 240, right

        # The same rows, asked for one at a time, get the same answers: none depends on another one.
        for row in (0, 17, 299):
            write(folder / "one.csv", [asked[row]], ("colour", "age, in years"))
            run("--predict", folder / "one.csv", "--out", folder / "out")
            with open(folder / "out/predictions.csv", newline="", encoding="utf-8") as file:
                assert list(csv.DictReader(file)) == [answers[row]]

        # A number that no double holds is clamped as any other one is.
        write(folder / "huge.csv", [["red", "1e400"], ["red", 100], ["red", "-1e400"], ["red", 0], ["red", "1e-400"]],
              ("colour", "age, in years"))
        run("--predict", folder / "huge.csv", "--out", folder / "out")
        top, last, bottom, *first = (folder / "out/predictions.csv").read_text(encoding="utf-8").splitlines()[1:]
        assert top == last and first == [bottom, bottom] and top != bottom, (top, last, bottom, first)

        # Weights that are no numbers tell no class.
        model = (folder / "out/model.safetensors").read_bytes()
        behind = 8 + int.from_bytes(model[:8], "little")
        entries = json.loads(model[8:behind])
        del entries["__metadata__"]  # the checksum of other weights
        header = json.dumps(entries).encode()
        nans = b"\xff\xff\xff\x7f" * ((len(model) - behind) // 4)
        predictions = (folder / "out/predictions.csv").read_bytes()
        (folder / "out/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + nans)
        said = run("--predict", folder / "huge.csv", "--out", folder / "out", status=1)
        assert "huge.csv, line 2 is no number" in said and said.count("\n") == 1, said
        assert (folder / "out/predictions.csv").read_bytes() == predictions
        (folder / "out/model.safetensors").write_bytes(model)

        # Rows are not replaced by what is predicted of them.
        asked_there = write(folder / "out/predictions.csv", asked, ("colour", "age, in years")).read_bytes()
        assert "would replace" in run("--predict", folder / "out/predictions.csv", "--out", folder / "out", status=2)
        assert (folder / "out/predictions.csv").read_bytes() == asked_there
        # Nor are those that are trained on or measured: the predictions of a table may be a table to train on.
        trained_there = write(folder / "out/predictions.csv", rows(50, 5)).read_bytes()
        for words in (["--csv", folder / "out/predictions.csv"], ["--csv", train, "--test", folder / "out/predictions.csv"]):
            said = run(*words, "--target", "answer", "--schema", folder / "train.schema.json", "--epochs", 1,
                       "--predict", folder / "asked.csv", "--out", folder / "out", status=2)
            assert "would replace" in said and said.count("\n") == 1, said
            assert (folder / "out/predictions.csv").read_bytes() == trained_there

        # What is printed and reported of the data is the same with one row more, an unlike one, and without it: noise
        # apart, the two runs say the same. The number of rows itself would give it away.
        def public_part(csv_file):
            said = run("--csv", csv_file, "--target", "answer", "--schema", folder / "train.schema.json", "--epochs", 2,
                       "--out", folder / "pair")
            report = json.loads((folder / "pair/report.json").read_text(encoding="utf-8"))
            assert report["test_accuracy"] is None and "test_loss" in report
            for entry in [report, *report["epochs"]]:
                entry.pop("seconds")
            lines = [line for line in said.splitlines() if not line.startswith("epoch")]
            return "\n".join(lines), json.dumps(report), (folder / "pair/report.svg").read_text(encoding="utf-8")

        write(folder / "pair.csv", rows(2000, 1))
        without = public_part(folder / "pair.csv")
        write(folder / "pair.csv", [*rows(2000, 1), [1e12, "a colour of nobody else", "no", ""]])
        assert public_part(folder / "pair.csv") == without
        assert "2000 training" in without[0] and "2001" not in without[0] + without[1]
        said = run("--csv", folder / "pair.csv", "--target", "answer", "--schema", folder / "train.schema.json",
                   "--epochs", 1, "--held-out", 20, "--out", folder / "pair")
        assert "about 1600 training" in said and "test accuracy" in said, said

        # A schema from rows that are public.
        run("--csv", test, "--target", "answer", "--draft-schema", folder / "draft.json")
        draft = json.loads((folder / "draft.json").read_text(encoding="utf-8"))
        assert draft["rows"] == 500 and len(draft["columns"]["colour"]) == 3, draft
        run(*common, "--schema", folder / "draft.json", "--epochs", 1, "--out", folder / "drafted")
        drafted = (folder / "draft.json").read_bytes()
        said = run("--csv", train, "--target", "answer", "--draft-schema", folder / "draft.json", status=2)
        assert f"{folder / 'draft.json'} is there already" in said, said
        assert (folder / "draft.json").read_bytes() == drafted

        # What no training would take is not drafted.
        for body, what in (([], "has no rows"), ([[k, f"class {k}"] for k in range(65)], "more than 64 categories"),
                           ([[k, "one"] for k in range(9)], "has 1 categories"), ([[k, ""] for k in range(9)], "has 0"),
                           ([[7, "one"], ["", "two"]], "no column but the target")):
            write(folder / "public.csv", body, ("x", "answer"))
            drafting = ["--csv", folder / "public.csv", "--target", "answer", "--draft-schema", folder / "no.json"]
            said = run(*drafting, status=1)
            assert what in said and "public.csv" in said and said.count("\n") == 1, said
            assert not (folder / "no.json").exists()

        # An option is no value of another one: a stricter epsilon is never passed over.
        for words in (["--out=", "--epsilon=1"], ["--out", "--epsilon=1"], ["--out="], ["--out", ""], ["--csv="]):
            said = run(*common, *words, status=2)
            assert said.startswith(f"tabular: {words[0]}: ") and said.count("\n") == 1, (words, said)

        # What cannot be written or read is found before the training, and leaves the reports.
        (folder / "taken/model.safetensors").mkdir(parents=True)
        assert "model.safetensors: it is a folder" in run(*common, "--out", folder / "taken", status=1)
        (folder / "predicting/predictions.csv").mkdir(parents=True)
        predicting = [*common, "--out", folder / "predicting", "--predict"]
        assert "predictions.csv: it is a folder" in run(*predicting, test, status=1)
        assert "cannot open" in run(*predicting, folder / "missing.csv", status=1)
        write(folder / "other.csv", [[1]], ("other",))
        assert "no column 'age, in years'" in run(*predicting, folder / "other.csv", status=1)
        assert not (folder / "predicting/report.json").exists()

        # A picture is XML, whatever the names of classes are.
        names = ["<&>\"'\x01", "no character of XML: \ufffe"]
        write(folder / "names.csv", [[k, names[k % 2]] for k in range(50)], ("x", "answer"))
        (folder / "names.json").write_text(json.dumps({"rows": 50, "columns": {"x": [0, 50], "answer": names}}),
                                           encoding="utf-8")
        run("--csv", folder / "names.csv", "--schema", folder / "names.json", "--target", "answer", "--epochs", 1,
            "--held-out", 50, "--out", folder / "names")
        said = xml.dom.minidom.parse(str(folder / "names/report.svg")).toxml()
        assert "no character of XML: " in said and " taken for &lt;&amp;&gt;" in said, said

        # Mistakes: one line that says where.
        body = rows(50, 4)
        body[6][0] = "very old"
        write(folder / "bad.csv", body, ("age, in years", "colour", "answer", "note"))
        bad = ["--csv", folder / "bad.csv", "--schema", folder / "train.schema.json", "--out", folder / "none"]
        said = run(*bad, "--target", "answer", status=1)
        assert "column age, in years: 'very old'" in said and "bad.csv, line " in said and said.count("\n") == 1, said
        assert "'colour'" not in said
        assert "target" in run(*bad, "--target", "age, in years", status=1)
        assert "no column 'nothing'" in run(*bad, "--target", "nothing", status=1)
        assert "needs --csv" in run(status=2)
        assert "exclude" in run(*common, "--test", test, "--held-out", 10, status=2)
        (folder / "link.csv").symlink_to(train)
        for itself in (train, folder / "link.csv", folder / "out" / ".." / "train.csv"):
            assert "is trained on" in run(*common, "--test", itself, "--out", folder / "none", status=2)
        assert "no model" in run("--predict", test, "--out", folder / "nowhere", status=2)
        assert "cannot open" in run("--csv", folder / "missing.csv", "--schema", folder / "draft.json", status=1)
        (folder / "broken.json").write_text('{"rows": 100,\n "columns": [', encoding="utf-8")
        said = run(*common, "--schema", folder / "broken.json", status=1)
        assert "broken.json: is not a schema: parse error at line 2" in said and said.count("\n") == 1, said
        many = {"rows": 100, "columns": {"c": [str(k) for k in range(65)], "x": [0, 1]}}
        (folder / "many.json").write_text(json.dumps(many), encoding="utf-8")
        assert "65 categories" in run(*common[:2], "--target", "c", "--schema", folder / "many.json", status=2)
        wide = {"rows": 100, "columns": {"c": ["0", "1"], "x": [str(k) for k in range(1100)]}}
        (folder / "wide.json").write_text(json.dumps(wide), encoding="utf-8")
        # Also of a hundred thousand categories, at once and not after minutes.
        wide["columns"]["x"] = [str(k) for k in range(100_000)]
        (folder / "wider.json").write_text(json.dumps(wide), encoding="utf-8")
        begin = time.monotonic()
        assert "100001 inputs" in run(*common[:2], "--target", "c", "--schema", folder / "wider.json", status=2)
        assert time.monotonic() - begin < 30
        assert "1101 inputs" in run(*common[:2], "--target", "c", "--schema", folder / "wide.json", status=2)
    print("the example tabular does what it says")


if __name__ == "__main__":
    main()
