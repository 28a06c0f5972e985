#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""planted_bugs.py --compiler CXX --out FOLDER [--jobs N] [--texts] [BUG...] - breaks a copy of the library, mostly in ways
that ruined privacy elsewhere, one at a time, and requires that the test which is named for each finds it.

A bug is a list of (header, text, replacement); the text must be in the header exactly once. The copy without any bug
must pass all the tests. FOLDER gets the table, planted_bugs.md. --texts only asks whether all bugs can be planted.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
TESTS = TOP / "tests" / "testing"
FLAGS = ["-std=c++20", "-Og", "-fexpensive-optimizations", "-march=native", "-w", "-DBOOST_TEST_DYN_LINK",
         "-DBOOST_TEST_MODULE=planted"]
LIBRARIES = ["-lboost_unit_test_framework", "-pthread"]

STAND_INS = {"2b", "8"}  # for mechanisms that do not exist here: planted is what comes nearest; counted apart

Bug = collections.namedtuple("Bug", "number what source case edits note", defaults=("",))

CLIP = "privacy/clip.hpp"
RELEASE = "privacy/release.hpp"
STEP = "train/step_by_verbs.hpp"
NO_CLIPPING = (CLIP, ": safe_quotient<Scalar>(room, norm + more(norm)));",
               ": may_be_one ? static_cast<Scalar>(one) : safe_quotient<Scalar>(room, norm + more(norm)));")
SIGMA = "sigma_{fresh_deviation(noise.value(), sensitivity, grid.elements, filter)}"
RELEASED = "total_release::of_total<Network>(executor_->pool(), total_, noise, 1, update.data(),"
DIVISOR = "optimizer_access::beginning(optimizer, *network_, *options_->divisor));"
MEMBER = "  double sensitivity_;\n"
CHUNK = "      const auto chunk = batch<Network, Loss>{*records.records, drawn}.numbered_from(records.first_record);\n"


def noise_times(factor):
    """Noise of another size in every step of a trainer."""
    return (STEP, RELEASED, "total_release::of_total<Network>(executor_->pool(), total_, noise_of<Generator>{"
                            "noise_multiplier{noise.multiplier.value() * (" + factor + ")}, noise.generator}, 1, "
                            "update.data(),")


def counted(what):
    """A member that adds something up over the chunks of a step."""
    return [(STEP, MEMBER, MEMBER + "  double counted_ = 0;\n"),
            (STEP, "      total_.clear();\n", "      total_.clear();\n      counted_ = 0;\n"),
            (STEP, CHUNK, CHUNK + "      counted_ += " + what + ";\n")]


BUGS = [
    Bug("1", "no clipping", "conformance", "clipped_size", [NO_CLIPPING]),
    Bug("2", "every layer clipped to C, the whole claimed to be C", "every_release", "of_an_image",
        [("expressions/clip.hpp", "rule.bounds.fill(bound.value() / std::sqrt(static_cast<double>(layers == 0 ? 1 : "
          "layers)) * less);", "rule.bounds.fill(bound.value());"),
         ("expressions/clip.hpp", "for (const double bound : bounds) sum += bound * bound;",
          "for (const double bound : bounds) sum = bound * bound;")]),
    Bug("2b", "sensitivity 2 C taken for C", "every_release", "of_words",
        [("expressions/sums.hpp", "exchanged = Relation == neighbouring::replace_one ? 2 : 1;", "exchanged = 1;")],
        "elsewhere by means over micro-batches, which do not exist here: planted where the library has a factor of 2"),
    Bug("3", "noise divided by the root of the batch size", "conformance", "noise_deviation",
        [noise_times("1 / std::sqrt(options_->divisor->value())")]),
    Bug("4", "sigma not multiplied by C", "conformance", "noise_deviation",
        [(RELEASE, SIGMA, "sigma_{noise.value() * std::ldexp(1.0, grid.steps - grid.unit)}")]),
    Bug("5", "deviation sigma times the root of C", "conformance", "noise_deviation",
        [(RELEASE, SIGMA, "sigma_{noise.value() * sensitivity / std::sqrt(grid.bound)}")]),
    Bug("5b", "0.9 of the noise", "conformance", "noise_deviation",
        [(RELEASE, SIGMA, "sigma_{0.9 * noise.value() * sensitivity}")]),
    Bug("6", "the same noise in every step", "conformance", "noise_of_steps",
        [(RELEASE, "stream<randomness::noise>(generator.next_step());",
          "stream<randomness::noise>((static_cast<void>(generator.next_step()), 1));")]),
    Bug("6b", "four steps in eight have the noise of the four before", "conformance", "noise_of_any_two_steps",
        [(RELEASE, "stream<randomness::noise>(generator.next_step());",
          "stream<randomness::noise>(generator.next_step() & ~std::uint64_t{4});")]),
    Bug("7", "the same noise for all elements", "conformance", "noise_of_elements",
        [(RELEASE, "      fill_rounded_gaussians<native_lanes, Scalar>(stream.key(), stream.nonce(), first / "
          "gaussian_block, sigma_, k);",
          "      fill_rounded_gaussians<native_lanes, Scalar>(stream.key(), stream.nonce(), first / "
          "gaussian_block, sigma_, k);\n      std::fill_n(k, gaussian_block, k[0]);")]),
    Bug("7b", "the same noise in every block of elements", "conformance", "noise_of_any_two_elements",
        [(RELEASE, "stream.nonce(), first / gaussian_block, sigma_, k);", "stream.nonce(), 0, sigma_, k);")]),
    Bug("8", "noise missing on half of the physical batches", "conformance", "noise_deviation",
        [*counted("1"), noise_times("counted_ > 1 ? std::sqrt(0.5) : 1.0")],
        "noise is drawn once a step here: planted is what would be left of it"),
    Bug("9", "shuffled: each record once in 1/q steps", "conformance", "inclusion_dispersion",
        [("privacy/sampling.hpp",
          "      mark_block(place.step.key(), nonce, first / block + word / words_per_block,\n"
          "                 bits.subspan(word).first<words_per_block>());",
          "      const auto period = static_cast<std::uint64_t>(std::lround(1 / probability().value()));\n"
          "      for (std::size_t i = 0; i < block; ++i) {\n"
          "        const std::uint64_t drawn = (first + 64 * word + i + place.step.step_ / 2) % period == 0 ? 1 : 0;\n"
          "        bits[word + i / 64] = (i % 64 == 0 ? 0 : bits[word + i / 64]) | drawn << (i % 64);\n"
          "      }")]),
    Bug("10", "one record is in every step", "conformance", "inclusion_rate",
        [("train/private_run.hpp", "    words_ = tasks * marked_at_once / 64;\n",
          "    words_ = tasks * marked_at_once / 64;\n"
          "    if (mine_.count - first_ <= 64 * bits_.size()) bits_[(mine_.count - 1 - first_) / 64] |= "
          "std::uint64_t{1} << ((mine_.count - 1 - first_) % 64);\n")]),
    Bug("10b", "drawn with twice the probability", "conformance", "inclusion_rate",
        [("privacy/sampling.hpp", "static_cast<std::uint32_t>(threshold_ >> 32U);",
          "static_cast<std::uint32_t>(2 * threshold_ >> 32U);")]),
    Bug("11", "divided by the size of the drawn batch", "conformance", "noise_deviation",
        [*counted("static_cast<double>(drawn.size())"),
         (STEP, DIVISOR, DIVISOR.replace("*options_->divisor", "expected_batch_size{std::max(1.0, counted_)}"))]),
    Bug("12", "divided by the whole part of N q", "conformance", "number_of_records",
        [(STEP, DIVISOR, DIVISOR.replace(
            "*options_->divisor", "expected_batch_size{std::max(1.0, std::floor(static_cast<double>("
            "records.records->size()) * static_cast<const dp_sgd_options&>(*options_).sampling->probability().value()))}"))]),
    Bug("13", "clipped to the largest norm of the batch", "conformance", "largest_record",
        [NO_CLIPPING, (STEP, MEMBER, MEMBER + "  double largest_ = 0;\n"),
         (STEP, "      total_.clear();\n", "      total_.clear();\n      largest_ = 0;\n"),
         (STEP, "          evaluate_into(*executor_, accumulate(total_, sum));\n",
          "          evaluate_into(*executor_, accumulate(total_, sum));\n          for (const double norm : "
          "unprotected::evaluate(*executor_, l2_norms(sum.leaf()))) {\n            if (std::isfinite(norm)) largest_ = "
          "std::max(largest_, norm);\n          }\n"),
         noise_times("largest_ > 0 ? largest_ / sensitivity_ : 1.0")]),
    Bug("14", "gradients that are not finite stay in", "conformance", "not_finite",
        [(CLIP, "  if (!is_finite_norm<Scalar>(norm)) return 0;\n  constexpr auto roundoff = "
          "static_cast<double>(limits::epsilon<Scalar>);\n  const double one",
          "  if (!is_finite_norm<Scalar>(norm)) return static_cast<Scalar>(norm);\n  constexpr auto roundoff = "
          "static_cast<double>(limits::epsilon<Scalar>);\n  const double one")],
        "the factor is NaN, as C / NaN is; without the check alone, the room for subnormal rounding makes it 0"),
    Bug("15", "clipped to 1.01 C", "conformance", "clipped_size",
        [(CLIP, "room / divisor * (1 - 8 * unit);", "room / divisor * 1.01;")]),
    Bug("16", "counts of adaptive clipping are in no event", "mechanisms", "counts_in_the_event",
        [("train/dp_sgd_options.hpp", "    return statistic ? joint_noise(*noise, statistic->noise) : *noise;",
          "    return *noise;")]),
    Bug("18", "individual accounting rounds norms to the nearest level", "mechanisms", "norms_round_up",
        [("privacy/accounting/individual_filter.hpp", "std::ceil(share * static_cast<double>(levels));",
          "std::round(share * static_cast<double>(levels));")]),
    Bug("17", "per-sample adaptive factor above its bound", "every_release", "of_an_image",
        [(CLIP, "return r / (norm + r); }", "return r / (norm + r) - 0.02 * norm; }")]),
]


def plant(bug, include):
    """Changes the copy in `include`."""
    for header, text, replacement in bug.edits:
        path = include / "pergrad" / header
        content = path.read_text(encoding="utf-8")
        if content.count(text) != 1:
            raise SystemExit(f"planted_bugs.py: bug {bug.number}: {header} has {content.count(text)} times, not once:"
                             f"\n{text}")
        path.write_text(content.replace(text, replacement), encoding="utf-8")


def build(compiler, source, include, folder):
    program = folder / source
    subprocess.run([compiler, *FLAGS, f"-I{include}", f"-I{TOP / 'tests'}", TESTS / f"{source}_test.cpp", "-o", program,
                    *LIBRARIES], check=True, capture_output=True, text=True)
    return program


def run_case(program, source, case):
    """Whether the case passes, and its first complaint."""
    done = subprocess.run([program, f"--run_test={source}/{case}", "--color_output=no"], capture_output=True, text=True,
                          timeout=600)
    text = done.stdout + done.stderr
    if "no test cases matching" in text or "Running 1 test case" not in text:
        raise SystemExit(f"planted_bugs.py: {source} has no case {case}")
    complaint = next((line for line in text.splitlines() if "error" in line), "")
    return done.returncode == 0, complaint.partition(": ")[2]


def examine(bug, compiler, out):
    """One row: whether the named test found it, and what it said."""
    folder = out / f"bug_{bug.number}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TOP / "include", folder / "include")
    plant(bug, folder / "include")
    try:
        program = build(compiler, bug.source, folder / "include", folder)
    except subprocess.CalledProcessError as error:
        return bug, None, error.stderr[:2000]
    passed, complaint = run_case(program, bug.source, bug.case)
    shutil.rmtree(folder)
    return bug, not passed, complaint


def healthy(compiler, out, bugs):
    """The copy without a bug passes every test that is named."""
    folder = out / "no_bug"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TOP / "include", folder / "include")
    for source in sorted({bug.source for bug in bugs}):
        program = build(compiler, source, folder / "include", folder)
        for case in sorted({bug.case for bug in bugs if bug.source == source}):
            passed, complaint = run_case(program, source, case)
            if not passed:
                raise SystemExit(f"planted_bugs.py: {source}/{case} fails without any bug: {complaint}")
    shutil.rmtree(folder)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--compiler", default="g++")
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--texts", action="store_true")
    arguments.add_argument("bugs", nargs="*", help="numbers; all if none is given")
    given = arguments.parse_args()
    chosen = [bug for bug in BUGS if not given.bugs or bug.number in given.bugs]
    if unknown := set(given.bugs) - {bug.number for bug in BUGS}:
        raise SystemExit(f"planted_bugs.py: no bug {', '.join(sorted(unknown))}")
    given.out.mkdir(parents=True, exist_ok=True)

    if given.texts:
        for bug in chosen:
            shutil.rmtree(given.out / "include", ignore_errors=True)
            shutil.copytree(TOP / "include", given.out / "include")
            plant(bug, given.out / "include")
        print(f"{len(chosen)} bugs can be planted")
        return 0

    healthy(given.compiler, given.out, chosen)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(lambda bug: examine(bug, given.compiler, given.out), chosen))
    table = ["| bug | what | found by | what it said | remark |", "| --- | --- | --- | --- | --- |"]
    for bug, found, said in rows:
        by = f"{bug.source}_test: {bug.case}" if found else "**not compiled**" if found is None else "**NOTHING**"
        table.append(f"| {bug.number} | {bug.what} | {by} | {said.strip()[:160].replace('|', '/')} | {bug.note} |")
    own = [found for bug, found, _ in rows if bug.number not in STAND_INS]
    others = [found for bug, found, _ in rows if bug.number in STAND_INS]
    table.append(f"\n{sum(map(bool, own))} of {len(own)} found; of those that stand in for a mechanism which does not "
                 f"exist here, {sum(map(bool, others))} of {len(others)}. Without a bug, all tests that are named here pass.")
    text = "\n".join(table) + "\n"
    (given.out / "planted_bugs.md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(own + others) else 1


if __name__ == "__main__":
    sys.exit(main())
