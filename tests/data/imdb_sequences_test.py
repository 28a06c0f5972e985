# SPDX-License-Identifier: Apache-2.0
"""examples/imdb_sequences.py on a made-up folder aclImdb: its order, words and ids, and what it says of mistakes."""

import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "imdb_sequences.py"
ORIGIN = "https://ai.stanford.edu/~amaas/data/sentiment/"


def write(folder, texts):
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def run(source, *words):
    return subprocess.run([sys.executable, str(SCRIPT), str(source), "--folder", str(source.parent), *words], text=True,
                          capture_output=True, check=False)


def check(condition, what):
    if not condition:
        sys.exit(f"imdb_sequences_test.py: {what}")


def writes(source, num_words, train, test):
    done = run(source, "--num-words", str(num_words))
    check(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    written = [(source.parent / f"{half}.txt").read_text() for half in ("train", "test")]
    check(written == [train, test], f"{num_words} ids: {written}")


def says(source, status, *parts, words=()):
    done = run(source, *words)
    check(done.returncode == status and all(part in done.stderr for part in parts) and "Traceback" not in done.stderr,
          f"status {done.returncode}, expected {status} and {parts}: {done.stderr}")


def order_and_vocabulary(source):
    write(source, {
        "train/neg/1_1.txt": b"Bad bad film", "train/neg/0_2.txt": b"a BAD plot", "train/pos/0_9.txt": b"a good film a",
        "train/pos/notes.md": b"not a review", "train/unsup/0_0.txt": b"neither",
        "test/neg/0_1.txt": b"worst film", "test/pos/0_7.txt": b""})
    # bad and a are three each, film two, good and plot one each: a 2, bad 3, film 4, good 5, plot 6
    writes(source, 6, "0 2 3 1\n0 3 3 4\n1 2 5 4 2\n", "0 1 4\n1\n")
    writes(source, 10000, "0 2 3 6\n0 3 3 4\n1 2 5 4 2\n", "0 1 4\n1\n")
    writes(source, 3, "0 2 1 1\n0 1 1 1\n1 2 1 1 2\n", "0 1 1\n1\n")


def words_of_bytes(source):
    # ASCII alone is lower-cased and split
    text = b"  Great FILM,\tisn't it?<br\n/>\xc3\x89T\xc3\x89\xc2\xa0 \x0b\x0c\r"
    write(source, {"train/neg/0_1.txt": text, "train/pos/0_9.txt": b"", "test/neg/0_1.txt": b"film film, FILM,",
                   "test/pos/0_7.txt": b"/>\xc3\x89t\xc3\x89\xc2\xa0 />\xc3\xa9t\xc3\xa9\xc2\xa0"})
    # in the order of their bytes: />..., film, great isn't it?<br
    writes(source, 100, "0 4 3 5 6 2\n1\n", "0 1 3 3\n1 2 1\n")


def mistakes(source):
    says(source, 1, f"cannot find {source}", "imdb.npz", ORIGIN)
    source.mkdir()
    says(source, 1, f"cannot find the folder {source / 'train' / 'neg'}", ORIGIN, f"{source} is its folder aclImdb")
    write(source, {"train/neg/0_1.txt": b"bad", "test/neg/0_1.txt": b"bad", "test/pos/0_7.txt": b"good"})
    says(source, 1, f"cannot find the folder {source / 'train' / 'pos'}", ORIGIN)
    (source / "train" / "pos").mkdir()
    says(source, 1, f"no *.txt file in {source / 'train' / 'pos'}")
    (source / "train" / "pos" / "0_8.txt").mkdir()
    says(source, 1, f"{source / 'train' / 'pos' / '0_8.txt'} is not a file")
    check(not (source.parent / "train.txt").exists(), "something was written in spite of a mistake")
    says(source, 2, "2 ids has no words", words=("--num-words", "2"))
    says(source, 2, "skip_top", words=("--skip-top", "1"))
    write(source.parent, {"imdb.npz": b"pickled"})
    says(source.parent / "imdb.npz", 2, "is not the published imdb.npz")
    says(source.parent / "imdb.npz", 2, "--num-words", "-5 ids has no words", words=("--num-words", "-5"))
    says(source.parent / "imdb.npz", 2, "--index-from", "got -1", words=("--index-from", "-1"))


def main():
    for test in (order_and_vocabulary, words_of_bytes, mistakes):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder) / "aclImdb")
    print("imdb_sequences.py: everything as it should be")


if __name__ == "__main__":
    main()
