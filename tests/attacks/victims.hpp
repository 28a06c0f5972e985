// SPDX-License-Identifier: Apache-2.0
// tests/attacks/victims.hpp - the library's releases as a program sees them, on any executor, and planted ones
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "attacks/attacks.hpp"
#include "attacks/planted.hpp"

namespace victims {

namespace pg = pergrad;
using attacks::hypothesis;
using attacks::observation;
using attacks::setting;

template <class Scalar>
using mlp = pg::basic_network<Scalar, pg::shape{784}, pg::linear<32>, pg::tanh, pg::linear<10>>;  // 25,450 parameters
template <class Scalar>
using cnn = pg::basic_network<Scalar, pg::shape{1, 10, 9}, pg::conv2d<8, 3, pg::padding<1>>, pg::tanh,
                              pg::max_pool2d<2, pg::stride<1>>, pg::flatten, pg::linear<10>>;
template <class Scalar>
using words =
    pg::basic_network<Scalar, pg::token_ids(8, 200), pg::embedding<16>, pg::mean_over_positions, pg::linear<4>>;

/// 300 records, and one more. Numbers are uniform in [0, 1), ids and classes too.
template <class Network>
struct records {
  using value = typename Network::input_value;
  static constexpr std::size_t width = Network::input_shape.size();
  static constexpr std::size_t count = 300;
  std::vector<value> inputs = std::vector<value>((count + 1) * width);
  std::vector<std::int32_t> classes = std::vector<std::int32_t>(count + 1);

  records() {
    std::mt19937 random{7};
    std::uniform_real_distribution<double> uniform{0, 1};
    for (value& x : inputs) {
      if constexpr (std::is_integral_v<value>) {
        x = static_cast<value>(random() % 200);
      } else {
        x = static_cast<value>(uniform(random));
      }
    }
    for (std::int32_t& y : classes) y = static_cast<std::int32_t>(random() % Network::output_shape.size());
  }
  [[nodiscard]] pg::dataset<value, std::int32_t> view(bool with) const {
    const std::size_t size = with ? count + 1 : count;
    return {std::span{inputs}.first(size * width), std::span{classes}.first(size), Network::input_shape};
  }
};

/// How a release is made, and what of it is seen.
enum class route {
  trainer,         ///< dp_sgd, last_update()
  by_hand,         ///< evaluate_into(update, sum + noise)
  totals,          ///< chunks in a total
  loop,            ///< private_loop
  sgd_step,        ///< only the parameters after a step of dp_sgd
  momentum_steps,  ///< only those after two steps with momentum
  adam_step        ///< only those after a step of Adam, whose `stability` is as large as its steps
};
inline constexpr const char* names[] = {"trainer", "by hand", "totals", "loop", "sgd", "momentum", "adam"};
inline constexpr bool shows_parameters(route way) { return way >= route::sgd_step; }

struct what_is_done {
  double clip = 0.7;
  double sigma = 1;
  double rate = 0.25 * 300;  ///< of the steps whose parameters are seen; the divisor is 300
};

/// Releases of the library. Each is a fresh step of one generator.
template <class Network, class Generator = pg::seeded_generator, class Executor = pg::host>
class library {
 public:
  using scalar = typename Network::scalar;
  using loss = pg::cross_entropy;
  setting known;

  library(const Executor& executor, route way, const what_is_done& done, Generator generator = make_generator())
      : executor_{executor},
        way_{way},
        done_{done},
        net_{executor, pg::kaiming_uniform{5}},
        generator_{std::move(generator)} {
    start_.assign(net_.parameters().begin(), net_.parameters().end());
    const auto grid = pg::release_grid::of(done.clip, Network::parameter_count);
    known = {done.sigma, done.sigma * done.clip, std::ldexp(1.0, grid.unit - grid.steps),
             std::is_same_v<scalar, double>};
    // What the attacker takes for the sums: rehearsals without noise, and plain evaluations.
    for (const bool with : {false, true}) {
      pg::tape<Network> tape{executor_, pg::max_batch{128}};
      hypothesis& guess = guesses_[with ? 1 : 0];
      guess.sum.assign(Network::parameter_count, 0);
      guess.on_grid.assign(Network::parameter_count, 0);
      pg::bounded_total<Network> total{executor_};
      in_chunks(with, 128, [&](const auto& chunk) {
        const auto g = pg::per_sample_gradients(net_, loss{}, chunk, tape);
        const auto part = pg::unprotected::evaluate(executor_, pg::sum(pg::clip(g, bound())));
        for (std::size_t i = 0; i < part.size(); ++i) guess.sum[i] += static_cast<double>(part[i]);
        pg::evaluate_into(executor_, pg::accumulate(total, pg::sum(pg::clip(g, bound()))));
      });
      pg::unprotected::rehearsed_gradient<Network> rehearsed{executor_};
      pg::seeded_generator seeded{1};
      pg::evaluate_into(executor_, rehearsed, total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, seeded));
      std::copy(rehearsed.values().begin(), rehearsed.values().end(), guess.on_grid.begin());
    }
  }
  [[nodiscard]] const hypothesis& guess(bool with) const { return guesses_[with ? 1 : 0]; }

  [[nodiscard]] observation observe(bool with) {
    std::copy(start_.begin(), start_.end(), net_.parameters().begin());
    switch (way_) {
      case route::trainer:
      case route::sgd_step:
        return of_trainer(with);
      case route::by_hand:
        return by_hand(with);
      case route::totals:
        return of_totals(with);
      case route::loop:
        return of_loop(with);
      case route::momentum_steps:
        return of_momentum(with);
      case route::adam_step:
        return of_adam(with);
    }
    return {};
  }

 private:
  static constexpr double divisor = 300;
  using trainer = pg::dp_sgd<Network, loss, Generator, Executor>;
  using loop = pg::private_loop<Network, loss, Generator, Executor>;
  using released = pg::released_gradient<Network, Generator::is_private>;
  [[nodiscard]] static Generator make_generator() {
    if constexpr (Generator::is_private) {
      return {};
    } else {
      return Generator{11};
    }
  }
  [[nodiscard]] pg::l2_clip_norm bound() const { return pg::l2_clip_norm{done_.clip}; }
  [[nodiscard]] pg::dp_sgd_options options() const {
    pg::dp_sgd_options result;
    result.clip = bound();
    result.noise = pg::noise_multiplier{done_.sigma};
    result.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
    result.divisor = pg::expected_batch_size{divisor};
    result.max_batch = pg::max_batch{128};
    result.learning_rate = pg::learning_rate{done_.rate};
    if (way_ == route::adam_step) {
      result.optimizer = pg::optimizer_kind::adam;
      result.adam.stability = stability();
    }
    return result;
  }
  [[nodiscard]] double stability() const { return known.deviation / divisor; }
  template <class Visit>
  void in_chunks(bool with, std::size_t size, const Visit& visit) {
    std::vector<std::uint32_t> ids(data_.view(with).size());
    std::iota(ids.begin(), ids.end(), 0U);
    for (std::size_t first = 0; first < ids.size(); first += size) {
      const auto view = data_.view(with);
      const pg::batch<Network, loss> chunk{
          view, std::span<const std::uint32_t>{ids}.subspan(first, std::min(size, ids.size() - first))};
      visit(chunk);
    }
  }
  [[nodiscard]] static observation seen(std::span<const scalar> values) { return {{values.begin(), values.end()}}; }
  /// What the parameters say of the step that was taken: `invert(old, new)`.
  template <class Invert>
  [[nodiscard]] observation parameters_say(const Invert& invert) {
    const auto now = std::as_const(net_).parameters();
    observation result{std::vector<double>(now.size()), std::vector<double>(now.size())};
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto before = static_cast<double>(start_[i]);
      const auto after = static_cast<double>(now[i]);
      const double half = attacks::scores::unit_in_the_last_place(after, known.is_double) / 2;
      result.values[i] = invert(before, after, i);
      result.blur[i] = std::abs(invert(before, after + half, i) - invert(before, after - half, i)) / std::sqrt(12.0);
    }
    return result;
  }
  [[nodiscard]] observation of_trainer(bool with) {
    if (!trainer_) trainer_ = std::make_unique<trainer>(executor_, net_, loss{}, options(), std::move(generator_));
    trainer_->step(data_.view(with));
    if (way_ == route::trainer) return seen(trainer_->last_update().values());
    const auto step = static_cast<double>(static_cast<scalar>(done_.rate / divisor));
    return parameters_say([&](double before, double after, std::size_t) { return (before - after) / step; });
  }
  [[nodiscard]] observation of_adam(bool with) {
    pg::dp_sgd trainer_of_one{executor_, net_, loss{}, options(), pg::seeded_generator{11, 8 * steps_++}};
    trainer_of_one.step(data_.view(with));
    return parameters_say([&](double before, double after, std::size_t) {
      const double moved = (before - after) / done_.rate;
      return divisor * stability() * moved / std::max(1 - std::abs(moved), 1e-9);
    });
  }
  [[nodiscard]] observation of_momentum(bool with) {
    if (!loop_) loop_ = std::make_unique<loop>(executor_, net_, loss{}, options(), std::move(generator_));
    // Two steps from the same parameters, so that the sum is the same, too.
    pg::sgd<Network> optimizer{pg::learning_rate{done_.rate}, 0.9};
    optimizer.step(executor_, net_, finished(false));
    const std::vector<scalar> first{net_.parameters().begin(), net_.parameters().end()};
    std::copy(start_.begin(), start_.end(), net_.parameters().begin());
    optimizer.step(executor_, net_, finished(with));
    return parameters_say([&](double before, double after, std::size_t i) {
      return ((before - after) - 0.9 * (before - static_cast<double>(first[i]))) / done_.rate * divisor;
    });
  }
  [[nodiscard]] observation of_loop(bool with) {
    if (!loop_) loop_ = std::make_unique<loop>(executor_, net_, loss{}, options(), std::move(generator_));
    released update{executor_};
    pg::evaluate_into(executor_, update, finished(with));
    return seen(update.values());
  }
  [[nodiscard]] auto finished(bool with) {
    auto step = loop_->begin(data_.view(with));
    while (step.next()) {
      pg::evaluate_into(executor_, pg::accumulate(step, pg::sum(pg::clip(step.gradients(), bound()))));
    }
    return step;
  }
  [[nodiscard]] observation by_hand(bool with) {
    released update{executor_};
    in_chunks(with, records<Network>::count + 1, [&](const auto& all) {
      pg::tape<Network> tape{executor_, pg::max_batch{records<Network>::count + 1}};
      const auto g = pg::per_sample_gradients(net_, loss{}, all, tape);
      pg::evaluate_into(executor_, update,
                        pg::sum(pg::clip(g, bound())) +
                            pg::unaccounted::gaussian_noise(pg::noise_multiplier{done_.sigma}, generator_));
    });
    return seen(update.values());
  }
  [[nodiscard]] observation of_totals(bool with) {
    pg::bounded_total<Network> total{executor_, pg::record_capacity{128}};  // so later chunks are integers
    pg::tape<Network> tape{executor_, pg::max_batch{64}};
    in_chunks(with, 64, [&](const auto& chunk) {
      const auto g = pg::per_sample_gradients(net_, loss{}, chunk, tape);
      pg::evaluate_into(executor_, pg::accumulate(total, pg::sum(pg::clip(g, bound()))));
    });
    released update{executor_};
    pg::evaluate_into(executor_, update,
                      total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{done_.sigma}, generator_));
    return seen(update.values());
  }

  const Executor& executor_;
  route way_;
  what_is_done done_;
  records<Network> data_;
  Network net_;
  Generator generator_;
  std::vector<scalar> start_;
  hypothesis guesses_[2];
  std::unique_ptr<trainer> trainer_;
  std::unique_ptr<loop> loop_;
  std::uint64_t steps_ = 0;
};

/// Planted noise on the sums of a library's victim. With a rate, only the parameters after a step of SGD are seen.
template <class Scalar>
class weak {
 public:
  setting known;
  weak(planted::kind which, const setting& of, const hypothesis& without, const hypothesis& with, double step = 0)
      : known{of}, which_{which}, guesses_{without, with}, step_{step}, parameters_(without.sum.size()) {
    std::mt19937 random{3};
    std::uniform_real_distribution<float> uniform{-1 / 28.0F, 1 / 28.0F};  // kaiming_uniform of 784 inputs
    for (Scalar& w : parameters_) w = static_cast<Scalar>(uniform(random));
  }
  [[nodiscard]] const hypothesis& guess(bool with) const { return guesses_[with ? 1 : 0]; }
  [[nodiscard]] observation observe(bool with) {
    observation seen{planted::release<Scalar>(which_, guess(with).sum, known, words_)};
    if (step_ == 0) return seen;
    const auto step = static_cast<Scalar>(step_);
    seen.blur.resize(seen.values.size());
    for (std::size_t i = 0; i < seen.values.size(); ++i) {
      const Scalar after = std::fma(-step, static_cast<Scalar>(seen.values[i]), parameters_[i]);
      seen.values[i] = (static_cast<double>(parameters_[i]) - static_cast<double>(after)) / static_cast<double>(step);
      seen.blur[i] = attacks::scores::unit_in_the_last_place(static_cast<double>(after), known.is_double) /
                     std::sqrt(12.0) / static_cast<double>(step);
    }
    return seen;
  }

 private:
  planted::kind which_;
  hypothesis guesses_[2];
  double step_;
  std::vector<Scalar> parameters_;
  std::mt19937_64 words_{17};
};

}  // namespace victims
