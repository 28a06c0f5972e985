#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keras' imdb.npz as text that pergrad::read_sequences takes: a line a review, its label and then its ids.

    curl -O https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz     # 17 MB
    python3 examples/imdb_sequences.py imdb.npz                                      # writes train.txt and test.txt

What is written is what keras.datasets.imdb.load_data gives out, in its order and with its defaults, but for --num-words,
which is that of the published networks. Ids are ranks by frequency in the texts (docs/privacy.md, vocabularies). Needs
NumPy. The archive holds pickled lists, and unpickling runs whatever a file says: any other file is refused by its hash.
"""
import argparse
import hashlib
import pathlib

import numpy

HASH = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"  # SHA-256 of the published file


def write_halves(archive, folder, num_words, skip_top, start_char, oov_char, index_from):
    shuffled = numpy.random.RandomState(113)
    for half in ("train", "test"):
        reviews, labels = archive[f"x_{half}"], archive[f"y_{half}"]
        order = numpy.arange(len(reviews))
        shuffled.shuffle(order)
        with open(folder / f"{half}.txt", "w", encoding="ascii") as file:
            for record in order:
                ids = [start_char] + [word + index_from for word in reviews[record]]
                print(labels[record], *(word if skip_top <= word < num_words else oov_char for word in ids), file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."), help="where the two files go")
    for name, default in {"num-words": 10000, "skip-top": 0, "start-char": 1, "oov-char": 2, "index-from": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"as in Keras; {default} unless given")
    options = vars(parser.parse_args())
    path = options.pop("archive")
    if hashlib.sha256(path.read_bytes()).hexdigest() != HASH:
        parser.error(f"{path} is not the published imdb.npz")
    with numpy.load(path, allow_pickle=True) as archive:
        write_halves(archive, **options)


if __name__ == "__main__":
    main()
