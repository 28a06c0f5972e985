#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tests/text/make_tokenizers.py - small vocabularies trained by Hugging Face's `tokenizers`, what it makes of texts
"""Writes data/small-vocab.json, data/small-merges.txt and data/small-cases.json; needs PyPI's tokenizers."""

import json
import pathlib
import random

import tokenizers

DATA = pathlib.Path(__file__).resolve().parent / "data"

CORPUS = ["It's the tokenizer's job: they've said we'll see, I'm sure, you'd agree, they're right.",
          "  Two  spaces, tabs\tand\n\nnew lines \n stay as they are.  ",
          "Zahlen 12345 und 3.14, Größe ½ ²³, Straßenüberführung; naïve café, Ελληνικά, русский язык, 日本語 テキスト.",
          "İstanbul ǅ ﬁ – “quotes” … €100 ¼ Ⅻ ٣٤٥ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🙂🙃 👩‍👩‍👧",
          "the there then these them other another mother"] * 3

TEXTS = CORPUS[:5] + [
    "", " ", "  ", "\n", " \n", "\n ", "a", " a", "  a", "   a  b ", "'s", "''s",
    "don't DON'T 'll'll 'v 've 're'", "a'b'c",
    "x\u00a0y\u3000z\u2028w\u0085v", "1a2b 3 ٣x", "\u200b\ufeff\u0301e\u0301", "tab\t\tend\t", "…\n\n  …",
    "a\r\nb\r\n\r\nc",
    "word" * 30, "<|endoftext|>", "\u0000\u0001\u007f", "_-_ __ -- ==", "ひらがな カタカナ 漢字123", "ß ẞ ŉ ǰ ΐ"]


def main():
    DATA.mkdir(exist_ok=True)
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(CORPUS, vocab_size=400, min_frequency=2, special_tokens=["<|endoftext|>"])
    made.save_model(str(DATA), "small")
    plain = tokenizers.ByteLevelBPETokenizer(str(DATA / "small-vocab.json"), str(DATA / "small-merges.txt"))
    rng = random.Random(1)
    alphabet = sorted(set("".join(CORPUS))) + [" ", "  ", "\n", "'", "\u00a0"] * 4
    texts = TEXTS + ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))) for _ in range(200)]
    cases = [{"text": text, "ids": plain.encode(text).ids} for text in texts]
    (DATA / "small-cases.json").write_text(json.dumps({"made_by": tokenizers.__version__, "cases": cases},
                                                      separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
