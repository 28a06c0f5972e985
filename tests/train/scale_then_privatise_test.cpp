// SPDX-License-Identifier: Apache-2.0
// tests/train/scale_then_privatise_test.cpp - Adam on gradients that are scaled before they are clipped: against its
// formulas in double, the shape of its noise, and how far one record moves what is released
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_scale_then_privatise)

namespace {

using namespace fixture;

constexpr double clip = 8;
constexpr double stability = 1e-3;
constexpr std::size_t width = classifier::parameter_count;

[[nodiscard]] pg::private_options loop_options(double noise) {
  pg::private_options options = usual_options();
  options.clip = pg::l2_clip_norm{clip};
  options.noise = pg::noise_multiplier{noise};
  return options;
}

struct run {
  pg::host exec;
  classifier net;
  pg::private_loop<classifier, pg::cross_entropy, pg::seeded_generator> loop;
  pg::scaled_adam<classifier> optimizer;
  pg::unprotected::rehearsed_gradient<classifier> released{exec};
  explicit run(const pg::private_options& options, std::size_t threads = 2, double norm = clip)
      : exec{pg::threads{threads}},
        net{exec, pg::kaiming_uniform{8}},
        loop{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}},
        optimizer{pg::learning_rate{0.05}, pg::l2_clip_norm{norm}, stability, pg::max_batch{16}, {0.8, 0.95, 1e-6}} {}
  void step(const pg::dataset<float, std::int32_t>& records) {
    auto taken = loop.begin(records);
    while (taken.next()) optimizer.accumulate(exec, taken);
    optimizer.step(exec, net, released, std::move(taken));
  }
};

/// The formulas, in double, of all records in every step and without noise.
struct reference {
  std::vector<double> first = std::vector<double>(width), second = std::vector<double>(width);
  int steps = 0;
  std::size_t clipped = 0;
  [[nodiscard]] std::vector<double> scales() const {
    std::vector<double> made(width);
    const double weights = steps > 0 ? 1 - std::pow(0.95, steps) : 1;
    for (std::size_t k = 0; k < width; ++k) made[k] = 1 / (std::sqrt(second[k] / weights) + stability);
    return made;
  }
  void step(std::vector<double>& p, const std::vector<double>& rows, double divisor) {
    const auto s = scales();
    std::vector<double> gradient(width);
    for (std::size_t b = 0; b * width < rows.size(); ++b) {
      double squares = 0;
      for (std::size_t k = 0; k < width; ++k) squares += std::pow(rows[b * width + k] * s[k], 2);
      const double weight = std::min(1.0, clip / std::sqrt(squares));
      clipped += weight < 1 ? 1U : 0U;
      for (std::size_t k = 0; k < width; ++k) gradient[k] += weight * rows[b * width + k] / divisor;
    }
    ++steps;
    for (std::size_t k = 0; k < width; ++k) {
      first[k] = 0.8 * first[k] + 0.2 * gradient[k];
      second[k] = 0.95 * second[k] + 0.05 * gradient[k] * gradient[k];
      p[k] -=
          0.05 * first[k] / (1 - std::pow(0.8, steps)) / (std::sqrt(second[k] / (1 - std::pow(0.95, steps))) + 1e-6);
    }
  }
};

[[nodiscard]] std::vector<double> rows_of(const run& it, const clouds& data) {
  const pg::batch<classifier, pg::cross_entropy> all{data.inputs, data.classes};
  pg::tape<classifier> tape{it.exec, pg::max_batch{data.size()}};
  const auto rows = pg::unprotected::evaluate(
      it.exec, pg::materialise(pg::per_sample_gradients(it.net, pg::cross_entropy{}, all, tape)));
  return {rows.begin(), rows.end()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_are_the_papers) {
  const clouds data{60};
  auto options = loop_options(0);
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  run it{options};
  reference wanted;
  std::vector<double> p(it.net.parameters().begin(), it.net.parameters().end());
  const auto grid = pg::release_grid::of(clip, width);
  std::vector<double> rounding(width);  // of an element's gradient, at most, in any step
  double way = 0;
  for (int step = 0; step < 8; ++step) {
    const auto before = p;
    const auto scales = wanted.scales();
    for (std::size_t k = 0; k < width; ++k) {
      // Sixty records rounded to half a step of the grid each, over a divisor of sixty; and floats.
      rounding[k] = std::max(rounding[k], (std::ldexp(0.5, grid.unit - grid.steps) + 1e-5) / scales[k]);
    }
    wanted.step(p, rows_of(it, data), 60);
    double worst = 0;
    it.step(data.records());
    for (std::size_t k = 0; k < width; ++k) {
      // m and the root of v err by that, their quotient, which is at most (1 - b1) / sqrt(1 - b2) ..., by five times as
      // much over the root of v.
      const double root = std::sqrt(wanted.second[k] / (1 - std::pow(0.95, step + 1)));
      const double error = std::abs(p[k] - static_cast<double>(it.net.parameters()[k]));
      worst = std::max(worst, error / (0.05 * 5 * rounding[k] / root + 1e-6));
      way = std::max(way, std::abs(p[k] - before[k]));
    }
    BOOST_TEST(worst < 1);
    std::copy(it.net.parameters().begin(), it.net.parameters().end(), p.begin());
  }
  BOOST_TEST(way > 0.01);
  BOOST_TEST(wanted.clipped > 60U);
  BOOST_TEST(wanted.clipped < 480U);
}

// Of nobody: released is noise of sigma D in every element, and what Adam sees is that by the scales.
BOOST_AUTO_TEST_CASE(noise_has_the_shape_of_the_gradients) {
  const clouds data{60};
  auto options = loop_options(0.5);
  run it{options};
  for (int step = 0; step < 3; ++step) it.step(data.records());
  double squares = 0;
  std::size_t count = 0;
  for (int step = 0; step < 200; ++step) {
    it.step({{}, {}, pg::shape{6}});
    for (const float value : it.released.values()) {
      squares += static_cast<double>(value) * static_cast<double>(value);
      ++count;
    }
  }
  const double sensitivity = 0.5 * clip;
  // D is at most 1.02 C; six standard errors.
  const double found = std::sqrt(squares / static_cast<double>(count)) / sensitivity;
  BOOST_TEST(found > 1 - 6 / std::sqrt(2.0 * static_cast<double>(count)));
  BOOST_TEST(found < 1.02 + 6 / std::sqrt(2.0 * static_cast<double>(count)));
}

// A record more, of any magnitude: what is released moves by no more than the sensitivity, at scales that steps before
// have made.
BOOST_AUTO_TEST_CASE(one_record_moves_it_within_its_sensitivity) {
  const clouds usual{30};
  std::mt19937 random{3};
  std::normal_distribution<float> normal;
  auto options = loop_options(0);
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  const auto grid = pg::release_grid::of(clip, width);
  const double most = std::ldexp(
      pg::sensitivity_in_steps(grid, pg::summation::of<float>(pg::detail::capacity_for<float>(options).count), 1),
      grid.unit - grid.steps);
  double nearest = 0;
  for (int trial = 0; trial < 120; ++trial) {
    clouds more = usual;
    const float size = std::pow(10.0F, static_cast<float>(trial % 60) - 30.0F);
    for (int k = 0; k < 6; ++k) {
      more.inputs.push_back(trial % 7 == 6 && k == 2 ? std::numeric_limits<float>::infinity() : size * normal(random));
    }
    more.classes.push_back(trial % 3);
    run one{options};
    run other{options};
    for (int step = 0; step < 2; ++step) {
      one.step(usual.records());
      other.step(usual.records());
    }
    one.step(usual.records());
    other.step(more.records());
    double squares = 0, shown = 0;
    for (std::size_t k = 0; k < width; ++k) {
      const auto a = static_cast<double>(one.released.values()[k]);
      const auto b = static_cast<double>(other.released.values()[k]);
      squares += (a - b) * (a - b);
      shown += std::pow((std::abs(a) + std::abs(b)) * 0x1p-24, 2);
    }
    BOOST_TEST(std::sqrt(squares) <= most + std::sqrt(shown));
    nearest = std::max(nearest, std::sqrt(squares) / most);
  }
  BOOST_TEST(nearest > 0.95);
}

BOOST_AUTO_TEST_CASE(threads_and_files_change_nothing) {
  const clouds data{120};
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_scaled_" + std::to_string(::getpid()))).string();
  run whole{loop_options(1), 1};
  for (int step = 0; step < 3; ++step) whole.step(data.records());
  pg::save_checkpoint(whole.net, whole.optimizer, whole.loop, path);
  run part{loop_options(1), 3};
  std::fill(part.net.parameters().begin(), part.net.parameters().end(), 0.0F);
  pg::load_checkpoint(part.net, part.optimizer, part.loop, path);
  for (int step = 0; step < 3; ++step) {
    whole.step(data.records());
    part.step(data.records());
  }
  BOOST_TEST((parameters_of(whole.net) == parameters_of(part.net)));
  pg::adam<classifier> plain{pg::learning_rate{0.05}};
  run another{loop_options(1)};
  BOOST_CHECK_THROW(pg::load_checkpoint(another.net, plain, another.loop, path), std::runtime_error);
  std::filesystem::remove(path);
}

BOOST_AUTO_TEST_CASE(misuse) {
  const clouds data{60};
  run other_norm{loop_options(1), 1, 2 * clip};
  BOOST_CHECK_THROW(other_norm.step(data.records()), std::logic_error);
  auto options = loop_options(1);
  options.max_batch = pg::max_batch{32};
  run large{options};
  BOOST_CHECK_THROW(large.step(data.records()), std::invalid_argument);
  run twice{loop_options(1)};
  auto step = twice.loop.begin(data.records());
  BOOST_CHECK_THROW(twice.optimizer.accumulate(twice.exec, step), std::logic_error);
  BOOST_TEST(step.next());
  twice.optimizer.accumulate(twice.exec, step);
  BOOST_CHECK_THROW(twice.optimizer.accumulate(twice.exec, step), std::logic_error);
  for (const double bad : {0.0, -1.0, std::nan("")}) {
    BOOST_CHECK_THROW((pg::scaled_adam<classifier>{pg::learning_rate{1}, pg::l2_clip_norm{1}, bad, pg::max_batch{4}}),
                      std::invalid_argument);
  }
}

BOOST_AUTO_TEST_SUITE_END()
