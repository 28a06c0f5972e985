// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_test.hpp - runs one network against PyTorch's numbers for it
//
// The *_cases.inc files hold one PERGRAD_GOLDEN(name, (network), loss) a line; a translation unit defines
// PERGRAD_GOLDEN_GROUP, includes this file and then its cases. See README.md for where the numbers come from.
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ratio>
#include <span>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace golden {

/// One entry of data/<group>.json. Arrays are flat and row-major, the batch outermost.
struct numbers {
  std::size_t batch = 0;
  std::size_t parameter_count = 0;
  std::size_t gradient_stride = 1;  ///< of gradients and clipped_sum only entries 0, stride, 2 stride, ... are stored
  double l2_clip_norm = 0.0;
  std::vector<double> inputs;          ///< or integer ids
  std::vector<double> targets;         ///< class indices, or one value per output
  std::vector<std::uint32_t> lengths;  ///< of each sample, if they have lengths of their own
  std::vector<double> parameters;      ///< that are trained: gradients are theirs
  std::vector<double> frozen;
  std::vector<double> outputs;
  std::vector<double> losses;
  std::vector<double> squared_norms;
  std::vector<double> gradients;
  std::vector<double> clipped_sum;
};

/// Reads a case; fails the running test if there is none.
[[nodiscard]] numbers load(const std::string& group, const std::string& name);

/// "" if every `computed[stride * i]` is within `allowed` of `expected[i]`, relative to the largest expected magnitude,
/// and the sizes agree; else what is wrong and where it is worst.
[[nodiscard]] std::string disagreement(std::span<const double> computed, std::span<const double> expected,
                                       std::size_t stride = 1, double allowed = 1e-10);

inline void check(const char* quantity, const std::vector<double>& computed, const std::vector<double>& expected,
                  std::size_t stride = 1, double allowed = 1e-10) {
  const std::string problem = disagreement(computed, expected, stride, allowed);
  BOOST_CHECK_MESSAGE(problem.empty(), quantity << ": " << problem);
}

/// The numbers as values of another type. Fails the running test if one of them is no such value.
template <class Value>
[[nodiscard]] std::vector<Value> exactly(const std::vector<double>& given) {
  std::vector<Value> result;
  result.reserve(given.size());
  for (const double number : given) {
    result.push_back(static_cast<Value>(number));
    BOOST_REQUIRE_EQUAL(static_cast<double>(result.back()), number);
  }
  return result;
}

inline void assign(std::span<double> parameters, const std::vector<double>& values) {
  BOOST_REQUIRE_EQUAL(parameters.size(), values.size());
  std::copy(values.begin(), values.end(), parameters.begin());
}

/// `void (Network)` -> `Network`: lets a macro take a type with commas, in parentheses.
template <class Signature>
struct parenthesised;
template <class Network>
struct parenthesised<void(Network)> {
  using type = Network;
};

template <class Network, class Loss>
void run(const std::string& group, const std::string& name) {
  const numbers expected = load(group, name);

  pergrad::host exec;
  Network network{exec, pergrad::zeros{}};
  assign(network.parameters(), expected.parameters);
  assign(network.frozen_parameters(), expected.frozen);

  using input_value = typename Network::input_value;
  using target = typename Loss::template target<double>;
  const std::vector<input_value> inputs = exactly<input_value>(expected.inputs);
  const std::vector<target> targets = exactly<target>(expected.targets);

  typename Network::tape tape{exec, pergrad::max_batch{expected.batch}};
  const pergrad::batch<Network, Loss> data{std::span<const input_value>{inputs}, std::span<const target>{targets},
                                           std::span<const std::uint32_t>{expected.lengths}};
  const auto gradients = pergrad::per_sample_gradients(network, Loss{}, data, tape);
  const auto clipped = pergrad::clip(gradients, pergrad::l2_clip_norm{expected.l2_clip_norm});

  namespace unprotected = pergrad::unprotected;
  check("outputs", unprotected::evaluate(exec, pergrad::outputs(gradients)), expected.outputs);
  check("losses", unprotected::evaluate(exec, pergrad::losses(gradients)), expected.losses);
  check("squared norms", unprotected::evaluate(exec, pergrad::squared_l2_norms(gradients)), expected.squared_norms);
  check("per-sample gradients", unprotected::evaluate(exec, pergrad::materialise(gradients)), expected.gradients,
        expected.gradient_stride);
  check("clipped sum", unprotected::evaluate(exec, pergrad::sum(clipped)), expected.clipped_sum,
        expected.gradient_stride);
}

/// One of the tests, or one that is not compiled.
template <bool IsRun, class Network, class Loss>
struct case_of {
  static void run(const char* group, const char* name) { golden::run<Network, Loss>(group, name); }
};
template <class Network, class Loss>
struct case_of<false, Network, Loss> {
  static void run(const char* /*group*/, const char* /*name*/) { BOOST_ERROR("a case that is not run"); }
};

}  // namespace golden

// A network takes half a second to compile, so the short tier has every tenth one. PERGRAD_GOLDEN_ALL: all of them.
#ifdef PERGRAD_GOLDEN_ALL
#define PERGRAD_GOLDEN_IS_RUN(number) true
#else
#define PERGRAD_GOLDEN_IS_RUN(number) ((number) % 10 == 0)
#endif
#define PERGRAD_GOLDEN(name, network, ...) PERGRAD_GOLDEN_NUMBERED(name, __LINE__, network, __VA_ARGS__)
#define PERGRAD_GOLDEN_NUMBERED(name, number, network, ...)                                            \
  BOOST_AUTO_TEST_CASE(name, *boost::unit_test::enable_if<PERGRAD_GOLDEN_IS_RUN(number)>()) {          \
    golden::case_of<PERGRAD_GOLDEN_IS_RUN(number), typename golden::parenthesised<void network>::type, \
                    __VA_ARGS__>::run(PERGRAD_GOLDEN_GROUP, #name);                                    \
  }
