// SPDX-License-Identifier: Apache-2.0
// tests/train/scale_then_privatise_test.cpp - Adam on gradients that are scaled before they are clipped: against its
// formulas in double, the shape of its noise, and how far one record moves what is released
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
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

[[nodiscard]] std::vector<double> rows_of(const pg::host& exec, const classifier& net, const clouds& data) {
  const pg::batch<classifier, pg::cross_entropy> all{data.inputs, data.classes};
  pg::tape<classifier> tape{exec, pg::max_batch{data.size()}};
  const auto rows =
      pg::unprotected::evaluate(exec, pg::materialise(pg::per_sample_gradients(net, pg::cross_entropy{}, all, tape)));
  return {rows.begin(), rows.end()};
}

/// Eight steps without noise of all units, whose gradients `rows()` gives, beside the formulas.
template <class Rows, class Step>
[[nodiscard]] reference compare_steps(const classifier& net, double units, double divisor, const Rows& rows,
                                      const Step& step) {
  reference wanted;
  std::vector<double> p(net.parameters().begin(), net.parameters().end());
  const auto grid = pg::release_grid::of(clip, width);
  std::vector<double> rounding(width);  // of an element's gradient, at most, in any step
  double way = 0;
  for (int number = 0; number < 8; ++number) {
    const auto before = p;
    const auto scales = wanted.scales();
    for (std::size_t k = 0; k < width; ++k) {
      // Each unit is rounded to half a step of the grid; and floats.
      rounding[k] =
          std::max(rounding[k], (units / divisor * std::ldexp(0.5, grid.unit - grid.steps) + 1e-5) / scales[k]);
    }
    wanted.step(p, rows(), divisor);
    double worst = 0;
    step();
    for (std::size_t k = 0; k < width; ++k) {
      // m and the root of v err by that, their quotient, which is at most (1 - b1) / sqrt(1 - b2) ..., by five times as
      // much over the root of v.
      const double root = std::sqrt(wanted.second[k] / (1 - std::pow(0.95, number + 1)));
      const double error = std::abs(p[k] - static_cast<double>(net.parameters()[k]));
      worst = std::max(worst, error / (0.05 * 5 * rounding[k] / root + 1e-6));
      way = std::max(way, std::abs(p[k] - before[k]));
    }
    BOOST_TEST(worst < 1);
    std::copy(net.parameters().begin(), net.parameters().end(), p.begin());
  }
  BOOST_TEST(way > 0.01);
  return wanted;
}

template <class Sampling, class Noise = pg::independent_noise>
[[nodiscard]] pg::scaled_adam_options<Sampling, Noise> trainer_options(double noise, const Sampling& sampling) {
  pg::scaled_adam_options<Sampling, Noise> options;
  static_cast<pg::training_choices&>(options) = usual_options();
  options.clip = pg::l2_clip_norm{clip};
  options.noise = pg::noise_multiplier{noise};
  options.sampling = sampling;
  options.optimizer = pg::optimizer_kind::adam;
  options.learning_rate = pg::learning_rate{0.05};
  options.momentum = 0;
  options.adam = {0.8, 0.95, 1e-6};
  options.scale_stability = stability;
  return options;
}
/// Thirty owners of three records.
[[nodiscard]] std::vector<std::uint32_t> owners_of(std::size_t records) {
  std::vector<std::uint32_t> owners(records);
  for (std::size_t i = 0; i < records; ++i) owners[i] = static_cast<std::uint32_t>(i * 7 % 30);
  return owners;
}
[[nodiscard]] std::string file_of_this_process(const char* name) {
  return (std::filesystem::temp_directory_path() / ("pergrad_scaled_" + std::to_string(::getpid()) + name)).string();
}
template <class Options>
struct trained_run {
  pg::host exec;
  classifier net;
  pg::dp_sgd<classifier, pg::cross_entropy, pg::seeded_generator, pg::host, Options> trainer;
  explicit trained_run(const Options& options, std::size_t threads = 2)
      : exec{pg::threads{threads}},
        net{exec, pg::kaiming_uniform{8}},
        trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}} {}
};

}  // namespace

BOOST_AUTO_TEST_CASE(steps_are_the_papers) {
  const clouds data{60};
  auto options = loop_options(0);
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  run it{options};
  const reference wanted = compare_steps(
      it.net, 60, 60, [&] { return rows_of(it.exec, it.net, data); }, [&] { it.step(data.records()); });
  BOOST_TEST(wanted.clipped > 60U);
  BOOST_TEST(wanted.clipped < 480U);
}

// The same as an option of the trainer: of records as by hand, bit by bit, and of owners by the formulas.
BOOST_AUTO_TEST_CASE(a_trainers_steps_are_those_by_hand) {
  const clouds data{150};
  pg::private_options by_hand = loop_options(0.7);
  by_hand.capacity = pg::record_capacity{0};
  for (const std::size_t threads : {1U, 3U}) {
    run it{by_hand, threads};
    trained_run trained{trainer_options<pg::poisson_sampling>(0.7, *by_hand.sampling), threads};
    for (int step = 0; step < 4; ++step) {
      it.step(data.records());
      trained.trainer.step(data.records());
      BOOST_TEST(std::ranges::equal(it.released.values(), trained.trainer.last_update().values()));
      BOOST_TEST((parameters_of(it.net) == parameters_of(trained.net)));
    }
  }
}

BOOST_AUTO_TEST_CASE(owners_are_scaled_before_they_are_clipped) {
  const clouds data{90};
  const auto owners = owners_of(data.size());
  const pg::of_owners sampling{pg::poisson_sampling{pg::sampling_probability{1}}, owners};
  auto options = trainer_options<pg::of_owners<pg::poisson_sampling>>(0, sampling);
  options.divisor = pg::expected_batch_size{3};
  trained_run it{options};
  const auto means = [&] {
    const std::vector<double> rows = rows_of(it.exec, it.net, data);
    std::vector<double> found(30 * width);
    for (std::size_t record = 0; record < data.size(); ++record) {
      for (std::size_t k = 0; k < width; ++k) found[owners[record] * width + k] += rows[record * width + k] / 3;
    }
    return found;
  };
  const reference wanted = compare_steps(it.net, 30, 3, means, [&] { it.trainer.step(data.records()); });
  BOOST_TEST(wanted.clipped > 30U);
  BOOST_TEST(wanted.clipped < 240U);
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
  const std::string path = file_of_this_process("loop");
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

// An owner more, with records of any magnitude.
BOOST_AUTO_TEST_CASE(one_owner_moves_a_trainers_sum_within_its_sensitivity) {
  const clouds usual{30};
  std::mt19937 random{5};
  std::normal_distribution<float> normal;
  const auto grid = pg::release_grid::of(clip, width);
  const double most =
      std::ldexp(pg::sensitivity_in_steps(grid, pg::summation::of<float>(0), 1), grid.unit - grid.steps);
  double nearest = 0;
  for (int trial = 0; trial < 60; ++trial) {
    clouds more = usual;
    std::vector<std::uint32_t> owners(30, 0);
    for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint32_t>(i % 7);
    const std::vector<std::uint32_t> before = owners;
    const float size = std::pow(10.0F, static_cast<float>(trial) - 30.0F);
    for (int row = 0; row < 2; ++row) {
      for (int k = 0; k < 6; ++k) more.inputs.push_back(size * normal(random));
      if (trial % 7 == 6) more.inputs.back() = std::numeric_limits<float>::quiet_NaN();
      more.classes.push_back(trial % 3);
      owners.push_back(7);
    }
    const pg::poisson_sampling all{pg::sampling_probability{1}};
    using options = pg::scaled_adam_options<pg::of_owners<pg::poisson_sampling>>;
    const auto moments = [&](const std::vector<std::uint32_t>& of, const clouds& data, auto& it) {
      // Both go on from the same two steps, whose moments make the scales.
      const std::string path = file_of_this_process("owners");
      trained_run<options> first{trainer_options(0, pg::of_owners{all, before})};
      for (int step = 0; step < 2; ++step) first.trainer.step(usual.records());
      pg::save_checkpoint(first.trainer, path);
      pg::load_checkpoint(it.trainer, path);
      std::filesystem::remove(path);
      BOOST_TEST(of.size() == data.size());
      it.trainer.step(data.records());
    };
    trained_run<options> one{trainer_options(0, pg::of_owners{all, before})};
    trained_run<options> other{trainer_options(0, pg::of_owners{all, owners})};
    moments(before, usual, one);
    moments(owners, more, other);
    double squares = 0, shown = 0;
    for (std::size_t k = 0; k < width; ++k) {
      const auto a = static_cast<double>(one.trainer.last_update().values()[k]);
      const auto b = static_cast<double>(other.trainer.last_update().values()[k]);
      squares += (a - b) * (a - b);
      shown += std::pow((std::abs(a) + std::abs(b)) * 0x1p-24, 2);
    }
    BOOST_TEST(std::sqrt(squares) <= most + std::sqrt(shown));
    nearest = std::max(nearest, std::sqrt(squares) / most);
  }
  BOOST_TEST(nearest > 0.95);
}

BOOST_AUTO_TEST_CASE(a_trainer_goes_on_from_its_file) {
  const clouds data{120};
  const std::string path = file_of_this_process("trainer");
  const auto options = trainer_options<pg::poisson_sampling>(1, pg::poisson_sampling{pg::sampling_probability{0.2}});
  trained_run whole{options, 1};
  for (int step = 0; step < 3; ++step) whole.trainer.step(data.records());
  pg::save_checkpoint(whole.trainer, path);
  trained_run part{options, 3};
  pg::load_checkpoint(part.trainer, path);
  for (int step = 0; step < 3; ++step) {
    whole.trainer.step(data.records());
    part.trainer.step(data.records());
  }
  BOOST_TEST((parameters_of(whole.net) == parameters_of(part.net)));
  BOOST_TEST(whole.trainer.epsilon(pg::delta{1e-5}) == part.trainer.epsilon(pg::delta{1e-5}));
  auto plain = usual_options();
  plain.optimizer = pg::optimizer_kind::adam;
  trained_run another{plain};
  BOOST_CHECK_THROW(pg::load_checkpoint(another.trainer, path), std::runtime_error);
  std::filesystem::remove(path);
}

BOOST_AUTO_TEST_CASE(what_a_trainer_refuses) {
  const pg::poisson_sampling half{pg::sampling_probability{0.5}};
  const auto refused = [&](const auto& change) {
    auto options = trainer_options<pg::poisson_sampling>(1, half);
    change(options);
    BOOST_CHECK_THROW((trained_run{options}), std::invalid_argument);
  };
  // What a float, or 1 / it, takes for 0 or infinity is none either.
  for (const double bad :
       {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e300, 1e-300, 1e-42, 1e39}) {
    refused([&](auto& options) { options.scale_stability = bad; });
  }
  refused([](auto& options) { options.optimizer = pg::optimizer_kind::sgd; });
  refused([](auto& options) { options.adam.noise_floor = 1e-8; });
  refused([](auto& options) { options.lanes = pg::record_lanes{2, 100}; });
  refused([](auto& options) {
    options.individual = pg::individual_accounting{};
    options.budget = pg::privacy_budget{pg::epsilon{3}, pg::delta{1e-5}};
  });
  refused([](auto& options) { options.clipping = pg::clipping_kind::certified; });
  BOOST_CHECK_NO_THROW((trained_run{trainer_options<pg::poisson_sampling>(1, half)}));
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
  for (const double bad : {0.0, -1.0, std::nan(""), 1e300, 1e-42}) {
    BOOST_CHECK_THROW((pg::scaled_adam<classifier>{pg::learning_rate{1}, pg::l2_clip_norm{1}, bad, pg::max_batch{4}}),
                      std::invalid_argument);
  }
}

BOOST_AUTO_TEST_SUITE_END()
