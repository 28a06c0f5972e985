// SPDX-License-Identifier: Apache-2.0
// tests/train/fixture.hpp - a small classification problem to train on.
#pragma once

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "kept_data_set.hpp"

namespace fixture {

namespace pg = pergrad;

using classifier = pg::network<pg::shape{6}, pg::linear<9>, pg::tanh, pg::linear<3>>;

/// Three clouds of points.
struct clouds {
  std::vector<float> inputs;
  std::vector<std::int32_t> classes;

  explicit clouds(std::size_t count, std::uint32_t seed = 31) : inputs(count * 6), classes(count) {
    std::mt19937 random{seed};
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < count; ++i) {
      classes[i] = static_cast<std::int32_t>(random() % 3);
      for (std::size_t k = 0; k < 6; ++k)
        inputs[i * 6 + k] = 0.6F * normal(random) + (static_cast<std::size_t>(classes[i]) == k / 2 ? 1.0F : 0.0F);
    }
  }
  [[nodiscard]] std::size_t size() const { return classes.size(); }
  [[nodiscard]] const pg::dataset<float, std::int32_t>& records() const {
    return data_set_.of(inputs, classes, pg::shape{6});
  }

 private:
  kept_data_set<float> data_set_;
};

[[nodiscard]] inline pg::dp_sgd_options usual_options() {
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{0.5};
  options.noise = pg::noise_multiplier{1.1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.2}};
  options.divisor = pg::expected_batch_size{60};
  options.learning_rate = pg::learning_rate{0.25};
  options.max_batch = pg::max_batch{16};
  return options;
}

[[nodiscard]] inline std::vector<float> parameters_of(const classifier& net) {
  return {net.parameters().begin(), net.parameters().end()};
}

/// Throws for a sample while it is told to.
struct failing : pg::cross_entropy {
  static inline bool is_told = false;
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) {
    if (is_told) throw std::domain_error{"told to"};
    return pg::cross_entropy::evaluate<Scalar>(y, targets, dy);
  }
};

/// Noise alone, as a trainer with these options releases it for an empty batch: of step `step` of the seed's generator.
template <class Network>
[[nodiscard]] std::vector<float> noise_alone(const pg::dp_sgd_options& options, double sensitivity, std::uint64_t step,
                                             std::uint64_t seed = 41) {
  const pg::host exec{pg::threads{1}};
  pg::bounded_total<Network> total{exec, pg::detail::capacity_for<float>(options)};
  total.expect(pg::l2_clip_norm{sensitivity});
  pg::unprotected::rehearsed_gradient<Network> update{exec};
  pg::seeded_generator generator{seed, step};
  pg::evaluate_into(exec, update, total + pg::unaccounted::gaussian_noise(*options.noise, generator));
  return {update.values().begin(), update.values().end()};
}

/// The norm of their difference, by that of the first.
[[nodiscard]] inline double distance(const std::vector<float>& one, const std::vector<float>& other) {
  BOOST_TEST_REQUIRE(one.size() == other.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    difference += std::pow(static_cast<double>(one[i]) - static_cast<double>(other[i]), 2);
    size += std::pow(static_cast<double>(one[i]), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace fixture
