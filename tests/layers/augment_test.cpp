// SPDX-License-Identifier: Apache-2.0
// tests/layers/augment_test.cpp - changes of records: nothing in evaluation, adjoints, what their bits depend on,
// gradients of layers in front by finite differences
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(augment_layer)

namespace {

namespace pg = pergrad;
using layer_tests::keeps_the_laws;
using pg::shape;
using words = std::vector<std::uint32_t>;
using numbers = std::vector<double>;

template <class Change>
numbers changed(const shape& in, const words& bits, const numbers& x) {
  numbers y(x.size(), 77.0);
  Change::apply(in, bits.data(), x.data(), y.data());
  return y;
}
/// <A x, v> = <x, A^T v> for any words.
template <class Change>
void has_its_adjoint(const shape& in) {
  std::mt19937 random{3};
  std::uniform_real_distribution<double> uniform{-1, 1};
  for (int trial = 0; trial < 60; ++trial) {
    words bits(16);
    for (auto& word : bits) word = static_cast<std::uint32_t>(random());
    numbers x(in.size()), v(in.size()), back(in.size(), 77.0);
    for (double& value : x) value = uniform(random);
    for (double& value : v) value = uniform(random);
    const numbers y = changed<Change>(in, bits, x);
    Change::adjoint(in, bits.data(), v.data(), back.data());
    double left = 0;
    double right = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      left += y[i] * v[i];
      right += x[i] * back[i];
    }
    BOOST_TEST(std::fabs(left - right) < 1e-12);
  }
}

/// Brightness: a change of the test's own, and one word.
struct brightness {
  static constexpr std::size_t words = 1;
  template <class Scalar>
  static void apply(const shape& in, const std::uint32_t* bits, const Scalar* x, Scalar* y) {
    const Scalar factor = static_cast<Scalar>(0.5) + static_cast<Scalar>(std::ldexp(static_cast<double>(bits[0]), -32));
    for (std::size_t i = 0; i < in.size(); ++i) y[i] = factor * x[i];
  }
  template <class Scalar>
  static void adjoint(const shape& in, const std::uint32_t* bits, const Scalar* dy, Scalar* dx) {
    apply(in, bits, dy, dx);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(laws_in_evaluation) {
  keeps_the_laws<pg::augment<pg::random_flip>, shape{2, 3, 4}>();
  keeps_the_laws<pg::augment<pg::random_shift<1>>, shape{2, 3, 4}>();
}
BOOST_AUTO_TEST_CASE(by_hand) {
  const numbers x{1, 2, 3, 4, 5, 6};
  BOOST_TEST((changed<pg::random_flip>(shape{1, 2, 3}, {4}, x) == x));
  BOOST_TEST((changed<pg::random_flip>(shape{1, 2, 3}, {5}, x) == numbers{3, 2, 1, 6, 5, 4}));
  const std::uint32_t least = 0, most = 0xffff'ffffU, middle = 0x8000'0000U;
  BOOST_TEST((changed<pg::random_shift<1>>(shape{1, 2, 3}, {middle, middle}, x) == x));
  BOOST_TEST((changed<pg::random_shift<1>>(shape{1, 2, 3}, {most, least}, x) == numbers{0, 0, 0, 2, 3, 0}));
  BOOST_TEST((changed<pg::random_shift<4>>(shape{1, 2, 3}, {most, middle}, x) == numbers(6, 0.0)));
}
BOOST_AUTO_TEST_CASE(every_shift_comes_as_often) {
  std::mt19937 random{5};
  std::vector<int> seen(25);
  for (int i = 0; i < 25'000; ++i) {
    numbers x(25);
    x[12] = 1;  // the middle of 5 x 5
    const auto y = changed<pg::random_shift<2>>(
        shape{1, 5, 5}, {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())}, x);
    for (std::size_t place = 0; place < 25; ++place) seen[place] += y[place] == 1 ? 1 : 0;
  }
  for (const int times : seen) BOOST_TEST(std::abs(times - 1000) < 5 * 32);
}
BOOST_AUTO_TEST_CASE(adjoints) {
  has_its_adjoint<pg::random_flip>(shape{2, 3, 4});
  has_its_adjoint<pg::random_flip>(shape{3, 5});
  has_its_adjoint<pg::random_shift<2>>(shape{2, 3, 4});
  has_its_adjoint<brightness>(shape{4});
}

// As dropout's: of key, step and record, and of nothing else in the batch; in front of it gradients are right.
BOOST_AUTO_TEST_CASE(changes_depend_on_key_step_and_record_only) {
  using net =
      pg::basic_network<double, shape{2, 4, 4}, pg::conv2d<2, 3, pg::padding<1>>, pg::augment<pg::random_shift<1>>,
                        pg::tanh, pg::augment<pg::random_flip>, pg::augment<brightness>, pg::flatten, pg::linear<3>>;
  constexpr std::size_t count = 40;
  constexpr std::size_t width = net::parameter_count;
  const auto data = pg::testing::draw_samples<net, pg::cross_entropy>(9, count);
  const pg::dataset<double, std::int32_t> records{data.inputs, data.targets, net::input_shape};
  std::vector<std::uint32_t> all(count);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
  const std::vector<std::uint32_t> few{31, 7, 39};
  const pg::host exec{pg::threads{3}};
  net model{exec, pg::uniform{2, -0.5, 0.5}};
  net::tape tape{exec, pg::max_batch{count}};
  const auto run = [&](std::span<const std::uint32_t> ids, std::uint64_t seed, int steps, bool losses) {
    const pg::batch<net, pg::cross_entropy> samples{records, ids};
    pg::seeded_generator generator{seed};
    for (int i = 1; i < steps; ++i) static_cast<void>(generator.next_step());
    const auto g = pg::with_randomness(pg::per_sample_gradients(model, pg::cross_entropy{}, samples, tape), generator);
    if (losses) return pg::unprotected::evaluate(exec, pg::losses(g));
    return pg::unprotected::evaluate(exec, pg::materialise(g));
  };
  const auto reference = run(all, 1, 1, false);
  const auto part = run(few, 1, 1, false);
  for (std::size_t i = 0; i < few.size(); ++i) {
    for (std::size_t k = 0; k < width; ++k) BOOST_TEST(part[i * width + k] == reference[few[i] * width + k]);
  }
  BOOST_TEST((run(all, 2, 1, false) != reference));
  BOOST_TEST((run(all, 1, 2, false) != reference));
  for (std::size_t k = 0; k < width; k += 5) {
    const double kept = model.parameters()[k];
    model.parameters()[k] = kept + 1e-6;
    const auto high = run(all, 1, 1, true);
    model.parameters()[k] = kept - 1e-6;
    const auto low = run(all, 1, 1, true);
    model.parameters()[k] = kept;
    for (std::size_t b = 0; b < count; ++b) {
      BOOST_TEST(std::fabs((high[b] - low[b]) / 2e-6 - reference[b * width + k]) < 1e-7);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
