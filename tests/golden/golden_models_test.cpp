// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_models_test.cpp - the networks of models/transformers.hpp against Hugging Face's
#define PERGRAD_GOLDEN_GROUP "models"
#include <pergrad/models.hpp>

#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_models)
#include "models_cases.inc"

namespace {

/// The file that docs/huggingface.py makes has every name of the network, and the numbers are in their places.
template <class Network>
void loads(const std::string& name) {
  const pergrad::host exec{pergrad::threads{1}};
  Network net{exec, pergrad::zeros{}};
  pergrad::load_parameters(net, std::string{PERGRAD_GOLDEN_DIR} + "/data/" + name + ".safetensors");
  BOOST_TEST(std::ranges::equal(net.parameters(), golden::load(PERGRAD_GOLDEN_GROUP, name).parameters));
}

/// The same network of floats has the logits and the samples' gradients, to 1e-5 of the largest.
template <class Network, class Loss>
void agrees_in_float(const std::string& name) {
  const golden::numbers expected = golden::load(PERGRAD_GOLDEN_GROUP, name);
  const pergrad::host exec{pergrad::threads{1}};
  Network net{exec, pergrad::zeros{}};
  std::ranges::transform(expected.parameters, net.parameters().begin(), [](double x) { return static_cast<float>(x); });
  std::vector<typename Network::input_value> inputs;
  for (const double x : expected.inputs) inputs.push_back(static_cast<typename Network::input_value>(x));
  const auto targets = golden::exactly<std::int32_t>(expected.targets);
  typename Network::tape tape{exec, pergrad::max_batch{expected.batch}};
  const pergrad::batch<Network, Loss> data{std::span<const typename Network::input_value>{inputs}, targets,
                                           std::span<const std::uint32_t>{expected.lengths}};
  const auto gradients = pergrad::per_sample_gradients(net, Loss{}, data, tape);
  const auto check = [&](const char* what, const std::vector<float>& computed, const std::vector<double>& wanted) {
    golden::check(what, std::vector<double>(computed.begin(), computed.end()), wanted, 1, 1e-5);
  };
  check("logits", pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients)), expected.outputs);
  check("per-sample gradients", pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients)),
        expected.gradients);
}
template <bool IsRun, class Network, class Loss>
struct in_float {
  static void check(const char* name) { agrees_in_float<typename Network::template rebind<float>, Loss>(name); }
};
template <class Network, class Loss>
struct in_float<false, Network, Loss> {
  static void check(const char* /*name*/) {}
};

}  // namespace

// In the short tier those that it does not have in double.
#ifdef PERGRAD_GOLDEN_ALL
#define PERGRAD_GOLDEN_IN_FLOAT(number) true
#else
#define PERGRAD_GOLDEN_IN_FLOAT(number) ((number) % 3 != 0)
#endif
#undef PERGRAD_GOLDEN_NUMBERED
#define PERGRAD_GOLDEN_NUMBERED(name, number, network, ...)                                                            \
  BOOST_AUTO_TEST_CASE(name##_in_float, *boost::unit_test::enable_if<PERGRAD_GOLDEN_IN_FLOAT(number)>()) {             \
    in_float<PERGRAD_GOLDEN_IN_FLOAT(number), typename golden::parenthesised<void network>::type, __VA_ARGS__>::check( \
        #name);                                                                                                        \
  }
#include "models_cases.inc"

#undef PERGRAD_GOLDEN
#define PERGRAD_GOLDEN(name, network, ...) \
  BOOST_AUTO_TEST_CASE(name##_by_file) { loads<typename golden::parenthesised<void network>::type>(#name); }
#include "models_cases.inc"

BOOST_AUTO_TEST_SUITE_END()
