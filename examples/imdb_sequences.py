#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""IMDb reviews as text that pergrad::read_sequences takes: a line a review, its label and then its ids.

    curl -O https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz     # 17 MB, of Keras
    python3 examples/imdb_sequences.py imdb.npz                                      # writes train.txt and test.txt

What is written of imdb.npz is what keras.datasets.imdb.load_data gives out, in its order and with its defaults, but for
--num-words, which is that of the published networks. Needs NumPy. The archive holds pickled lists, and unpickling runs
whatever a file says: any other file is refused by its hash.

    curl -O https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz          # 84 MB
    tar xf aclImdb_v1.tar.gz
    python3 examples/imdb_sequences.py aclImdb --num-words 50000

The folder aclImdb (Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011) holds a text a review, 12,500
in each of train/neg, train/pos, test/neg and test/pos. Written are first the negative ones, label 0, then the positive
ones, label 1, each in the order of their names. Words are what lies between ASCII white space; ASCII letters become
lower case. Id 0 is padding, 1 a word that is not in the vocabulary; from 2 on follow the most frequent words of the
training texts, equally frequent ones in the order of their bytes. --num-words counts all ids. Lee & Kifer ("Scaling up
Differentially Private Deep Learning with Fast Per-Example Gradient Clipping", PoPETs 2021) take 50,000 words and cut
and fill every review to 512: pad_sequences(set, 512, sequence_end::back, sequence_end::back).

Either way ids are ranks by frequency in the texts. Where those are private, that is a private release of its own, which
DP-SGD does not account for (docs/privacy.md, vocabularies).
"""
import argparse
import collections
import hashlib
import pathlib
import sys

HASH = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"  # SHA-256 of the published imdb.npz
KERAS = {"skip_top": 0, "start_char": 1, "oov_char": 2, "index_from": 3}
HALVES, CLASSES = ("train", "test"), ("neg", "pos")  # a class' index is its label
UNKNOWN, FIRST_WORD = 1, 2
GET_NPZ = "get imdb.npz (17 MB) from https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz"
GET_ACL = "get aclImdb_v1.tar.gz (84 MB) from https://ai.stanford.edu/~amaas/data/sentiment/ and unpack it"


class Missing(Exception):
    pass


def convert_archive(source, folder, num_words, skip_top, start_char, oov_char, index_from):
    import numpy

    shuffled = numpy.random.RandomState(113)
    with numpy.load(source, allow_pickle=True) as archive:
        for half in HALVES:
            reviews, labels = archive[f"x_{half}"], archive[f"y_{half}"]
            order = numpy.arange(len(reviews))
            shuffled.shuffle(order)
            with open(folder / f"{half}.txt", "w", encoding="ascii") as file:
                for record in order:
                    ids = [start_char] + [word + index_from for word in reviews[record]]
                    print(labels[record], *(w if skip_top <= w < num_words else oov_char for w in ids), file=file)


def list_texts(source, half, kind):
    folder = source / half / kind
    if not folder.is_dir():
        raise Missing(f"cannot find the folder {folder}; {GET_ACL}, so that {source} is its folder aclImdb")
    paths = sorted((path for path in folder.iterdir() if path.suffix == ".txt"), key=bytes)
    if not paths:
        raise Missing(f"there is no *.txt file in {folder}, expected 12500 of them")
    for path in paths:
        if not path.is_file():
            raise Missing(f"{path} is not a file, expected a text")
    return paths


def words_in(path):
    return path.read_bytes().lower().split()  # of bytes: ASCII alone


def convert_texts(source, folder, num_words):
    texts = {half: [(label, path) for label, kind in enumerate(CLASSES) for path in list_texts(source, half, kind)]
             for half in HALVES}
    counts = collections.Counter(word for _, path in texts["train"] for word in words_in(path))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[:num_words - FIRST_WORD]
    ids = {word: rank for rank, word in enumerate(ranked, FIRST_WORD)}
    for half in HALVES:
        with open(folder / f"{half}.txt", "w", encoding="ascii") as file:
            for label, path in texts[half]:
                print(label, *(ids.get(word, UNKNOWN) for word in words_in(path)), file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="imdb.npz, or the folder aclImdb")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."), help="where the two files go")
    parser.add_argument("--num-words", type=int, default=10000, help="how many ids there are; 10000 unless given")
    for name, default in KERAS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=argparse.SUPPRESS,
                            help=f"for imdb.npz, as in Keras; {default} unless given")
    options = vars(parser.parse_args())
    source, folder, num_words = (options.pop(name) for name in ("source", "folder", "num_words"))
    if num_words <= FIRST_WORD:
        parser.error(f"--num-words: a vocabulary of {num_words} ids has no words; expected at least {FIRST_WORD + 1}")
    if negative := [name for name, value in options.items() if value < 0]:
        parser.error(f"--{negative[0].replace('_', '-')}: must not be less than 0, got {options[negative[0]]}")
    if source.is_dir():
        if options:
            parser.error(f"{source} is a folder, and {', '.join(options)} are for imdb.npz")
        convert_texts(source, folder, num_words)
    elif not source.exists():
        raise Missing(f"cannot find {source}; {GET_NPZ}, or {GET_ACL}")
    elif hashlib.sha256(source.read_bytes()).hexdigest() != HASH:
        parser.error(f"{source} is not the published imdb.npz")
    else:
        convert_archive(source, folder, num_words, **{**KERAS, **options})


if __name__ == "__main__":
    try:
        main()
    except (Missing, OSError) as error:
        sys.exit(f"imdb_sequences.py: {error}")
