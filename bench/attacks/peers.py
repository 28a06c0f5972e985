#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peers.py DIR TRIALS - attacks the noise of PyTorch, Opacus, NumPy and JAX, where they are installed, on the sums that
released.cpp left in DIR, and prints the table of docs/privacy.md#released-bits with that program's lines (DIR/ours.tsv).

The attacks are those of tests/attacks/attacks.hpp, whose comments say what they look for. Two know a generator's
construction: `angles` which elements share a pair, and `members` which values a generator can give at all.
"""
import importlib.metadata
import pathlib
import sys

import numpy as np

CLIP = 0.7
SIGMAS = (100, 10_000)
ATTACKS = ("angles", "floats", "precision", "cancellation", "members", "lattice", "low bits")


def angles(released, guess, deviation):
    """PyTorch on a CPU: elements i and i + 8 of every 16, angles of 2 pi k / 2^24."""
    noise = (released - guess)[: len(guess) // 16 * 16].reshape(-1, 2, 8)
    step = np.spacing(np.abs(released).astype(np.float32)).astype(float)[: noise.size].reshape(-1, 2, 8)
    square = (noise**2).sum(axis=1)
    variance = (step**2).sum(axis=1) / 24 + square * 2.0**-52
    spread = 2**24 * np.sqrt(variance / square)
    turns = np.arctan2(noise[:, 1], noise[:, 0]) / (2 * np.pi) * 2**24
    return (np.exp(-(spread**2) / 2) * np.cos(2 * np.pi * turns)).sum()


def standard_candidates(released, guess, deviation, dtype):
    """Values z with sum + deviation z = released, each rounded: a mask and the value, three times."""
    released, guess = released.astype(dtype), guess.astype(dtype)
    near = ((released.astype(float) - guess.astype(float)) / deviation).astype(dtype)
    for z in (near, np.nextafter(near, dtype(np.inf)), np.nextafter(near, dtype(-np.inf))):
        yield dtype(deviation) * z + guess == released, z


def floats(released, guess, deviation):
    """Every element is sum + deviation z for some float z."""
    fits = np.zeros(len(guess), bool)
    for possible, _ in standard_candidates(released, guess, deviation, np.float32):
        fits |= possible
    return -np.count_nonzero(~fits)


def precision(dtype):
    """Every element is the rounded sum of the guess and some number."""

    def score(released, guess, deviation):
        released, guess = released.astype(dtype), guess.astype(dtype)
        near = released - guess
        fits = near + guess == released
        for x in (np.nextafter(near, dtype(np.inf)), np.nextafter(near, dtype(-np.inf))):
            fits |= x + guess == released
        return -np.count_nonzero(~fits)

    return score


def cancellation(released, guess, deviation):
    noise = released - guess
    small = noise[np.abs(noise) < deviation / 128]
    places = np.ldexp(1.0, np.frexp(deviation)[1] - 27)
    return np.cos(2 * np.pi * np.fmod(small, places) / places).sum()


def ziggurat_widths(dtype):
    """What numpy's ziggurat (Marsaglia and Tsang 2000) multiplies whole numbers with, one number a layer: from first draws
    under known seeds, of which the words are known as well."""
    wide = dtype is np.float64
    draws = [[] for _ in range(256)]
    for seed in range(20_000):
        word = int(np.random.PCG64(seed).random_raw()) & (2**64 - 1 if wide else 2**32 - 1)
        k = (word >> 9) & (2**52 - 1 if wide else 2**23 - 1)
        drawn = abs(np.random.Generator(np.random.PCG64(seed)).standard_normal(dtype=dtype))
        draws[word & 0xFF].append((k, drawn))
    widths = []
    for layer in draws:  # draws that were rejected at first do not fit, but most do
        k, drawn = (np.array(column) for column in zip(*layer))
        near = np.median(drawn.astype(float) / k)
        candidates = near + np.arange(-4, 5) * np.spacing(dtype(near))
        fit = [(k.astype(dtype) * dtype(width) == drawn).sum() for width in candidates]
        widths.append(dtype(candidates[int(np.argmax(fit))]))
    return np.array(widths)


class ZigguratMembers:
    """Small elements are k w_i, k a whole number: 256 lattices that are sparse among numbers near zero."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.small = 2.0**-9 if dtype is np.float64 else 2.0**-8
        self.widths = ziggurat_widths(dtype)

    def holds(self, z):
        k = np.rint(np.abs(z)[:, None].astype(float) / self.widths.astype(float))
        return ((k.astype(self.dtype) * self.widths) == np.abs(z)[:, None].astype(self.dtype)).any(axis=1)

    def __call__(self, released, guess, deviation):
        at = np.abs(released - guess) < deviation * self.small
        released, guess = released[at], guess[at]
        if self.dtype is np.float32:
            fits = np.zeros(len(guess), bool)
            for possible, z in standard_candidates(released, guess, deviation, np.float32):
                fits |= possible & self.holds(z)
            return -np.count_nonzero(~fits)
        # Rounded to the last place of what is released: is there a member so near?
        z = np.abs(released - guess) / deviation
        room = (np.spacing(np.abs(released)) / 2 / deviation + 2 * np.spacing(z))[:, None]
        off = np.abs(np.rint(z[:, None] / self.widths) * self.widths - z[:, None])
        chance = 1 - np.prod(1 - np.minimum(1, 2 * room / self.widths), axis=1)  # of a number that is none
        fits = (off <= room).any(axis=1)
        return np.where(fits, -np.log(np.maximum(chance, 1e-12)), -20.0).sum()


class JaxMembers:
    """sqrt(2) erfinv of a uniform number of 23 bits: 2^23 values."""

    def __init__(self):
        import jax
        import jax.numpy as jnp

        lowest = np.nextafter(np.float32(-1), np.float32(0))
        bits = jnp.arange(2**23, dtype=jnp.uint32) | np.uint32(0x3F800000)
        unit = jax.lax.bitcast_convert_type(bits, jnp.float32) - np.float32(1)
        uniform = jnp.maximum(lowest, unit * (np.float32(1) - lowest) + lowest)
        self.values = np.unique(np.asarray(np.float32(np.sqrt(2)) * jax.lax.erf_inv(uniform)))

    def holds(self, z):
        place = np.minimum(np.searchsorted(self.values, z), len(self.values) - 1)
        return self.values[place] == z

    def __call__(self, released, guess, deviation):
        fits = np.zeros(len(guess), bool)
        for possible, z in standard_candidates(released, guess, deviation, np.float32):
            fits |= possible & self.holds(z)
        return -np.count_nonzero(~fits)


def version(package):
    return f"{package} {importlib.metadata.version(package)}"


def numpy_noise():
    random = np.random.Generator(np.random.PCG64(5))
    wide, narrow = ZigguratMembers(np.float64), ZigguratMembers(np.float32)
    drawn = random.standard_normal(100_000)
    assert wide.holds(drawn[np.abs(drawn) < 1]).all(), "not the tables of this numpy"
    drawn = random.standard_normal(100_000, dtype=np.float32)
    assert narrow.holds(drawn[np.abs(drawn) < 1]).all(), "not the tables of this numpy"
    yield (
        f"{version('numpy')}, `Generator.normal`, double",
        lambda sum, deviation: sum + random.normal(0, deviation, sum.shape),
        {"precision": precision(np.float64), "members": wide},
    )
    yield (
        f"{version('numpy')}, `Generator.standard_normal`, float",
        lambda sum, deviation: sum.astype(np.float32)
        + np.float32(deviation) * random.standard_normal(sum.shape, dtype=np.float32),
        {"floats": floats, "precision": precision(np.float32), "members": narrow},
    )


def torch_noise():
    import torch

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(5)
    attacks = {
        "angles": angles,
        "floats": floats,
        "precision": precision(np.float32),
        "cancellation": cancellation,
    }
    as_tensor = lambda sum: torch.from_numpy(sum.astype(np.float32))
    yield (
        f"{version('torch')}, `torch.normal` on a CPU, float",
        lambda sum, deviation: (as_tensor(sum) + torch.normal(0.0, deviation, sum.shape, generator=generator)).numpy(),
        attacks,
    )
    try:
        from opacus.optimizers.optimizer import _generate_noise
    except ImportError:
        return
    for name, secure in (("default", False), ("secure mode", True)):

        def release(sum, deviation, secure=secure):
            reference = as_tensor(sum)
            return (reference + _generate_noise(deviation, reference, generator, secure)).numpy()

        yield f"{version('opacus')}, {name}, float", release, attacks


def jax_noise():
    import jax

    members = JaxMembers()
    key = jax.random.key(5)
    drawn = np.asarray(jax.random.normal(key, (100_000,)))
    assert members.holds(drawn).all(), "not the values of this JAX"

    def release(sum, deviation):
        nonlocal key
        key, now = jax.random.split(key)
        noise = np.float32(deviation) * np.asarray(jax.random.normal(now, sum.shape))
        return sum.astype(np.float32) + noise

    yield (
        f"{version('jax')}, `jax.random.normal`, float",
        release,
        {"floats": floats, "precision": precision(np.float32), "members": members},
    )


def attack(release, attacks, sums, deviation, trials, coins):
    """How often each attack names the sum that was released, with ties decided by a coin."""
    right = dict.fromkeys(attacks, 0)
    for _ in range(trials):
        with_record = int(coins.integers(2))
        released = release(sums[with_record], deviation).astype(float)
        for name, score in attacks.items():
            less, more = (score(released, sum, deviation) for sum in sums)
            answer = int(more > less) if more != less else int(coins.integers(2))
            right[name] += answer == with_record
    return right


def main():
    directory, trials = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    rows = {}
    # Two attacks differ in a constant of the formula; ours are the formulas that the former noise had.
    names = {"angles between": "angles", "floats, fused": "floats", "angles": None, "likelihood": None}
    for line in (directory / "ours.tsv").read_text().splitlines():
        noise, sigma, name, right, _ = line.split("\t")
        if (name := names.get(name, name)) in ATTACKS:
            rows.setdefault(noise, {}).setdefault(name, {})[int(sigma)] = int(right)
    # Sums of 25,088 weights, a multiple of 16: one tensor, as a layer has it.
    sums = [np.fromfile(directory / name, np.float64)[:25_088] for name in ("without.f64", "with.f64")]
    peers = {}
    for source in (torch_noise, numpy_noise, jax_noise):
        coins = np.random.default_rng(7)
        try:
            for noise, release, attacks in source():
                for sigma in SIGMAS:
                    found = attack(release, attacks, sums, sigma * CLIP, trials, coins)
                    for name, right in found.items():
                        peers.setdefault(noise, {}).setdefault(name, {})[sigma] = right
        except ImportError as missing:
            print(f"peers.py: not measured: {missing}", file=sys.stderr)
    former = {noise: row for noise, row in rows.items() if "former" in noise}
    ours = {noise: row for noise, row in rows.items() if "former" not in noise}
    print("| noise | " + " | ".join(ATTACKS) + " |")
    print("|---" * (len(ATTACKS) + 1) + "|")
    for noise, row in (former | peers | ours).items():
        cells = [" / ".join(str(row[name][sigma]) for sigma in SIGMAS) if name in row else "–" for name in ATTACKS]
        print(f"| {noise} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
