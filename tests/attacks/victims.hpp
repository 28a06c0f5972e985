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
#include "kept_data_set.hpp"

namespace victims {

namespace pg = pergrad;
using attacks::hypothesis;
using attacks::observation;
using attacks::setting;

template <class Scalar>
using mlp = pg::basic_network<Scalar, pg::shape{784}, pg::linear<32>, pg::tanh, pg::linear<10>>;  // 25,450 parameters
template <class Scalar>
using small = pg::basic_network<Scalar, pg::shape{12}, pg::linear<24>, pg::tanh, pg::linear<4>>;
template <class Scalar>
using cnn = pg::basic_network<Scalar, pg::shape{1, 7, 6}, pg::conv2d<8, 3, pg::padding<1>>, pg::tanh,
                              pg::max_pool2d<2, pg::stride<1>>, pg::flatten, pg::linear<10>>;
template <class Scalar>
using words =
    pg::basic_network<Scalar, pg::token_ids(8, 200), pg::embedding<16>, pg::mean_over_positions, pg::linear<4>>;
// For devices, which are emulated element by element.
template <class Scalar>
using wide = pg::basic_network<Scalar, pg::shape{256}, pg::linear<4>, pg::tanh, pg::linear<4>>;
template <class Scalar>
using small_cnn = pg::basic_network<Scalar, pg::shape{1, 4, 4}, pg::conv2d<8, 3, pg::padding<1>>, pg::tanh,
                                    pg::max_pool2d<2, pg::stride<1>>, pg::flatten, pg::linear<8>>;

template <class Scalar>
using few_words =
    pg::basic_network<Scalar, pg::token_ids(4, 200), pg::embedding<8>, pg::mean_over_positions, pg::linear<4>>;

/// So many records, and one more. Numbers are uniform in [0, 1), ids and classes too. As bags of words, numbers count
/// how often one of four ids is which: where no record has a word, its weights' gradient is zero, as in an embedding.
template <class Network>
struct records {
  using value = typename Network::input_value;
  static constexpr std::size_t width = Network::input_shape.size();
  std::size_t count;
  std::vector<value> inputs = std::vector<value>((count + 1) * width);
  std::vector<std::int32_t> classes = std::vector<std::int32_t>(count + 1);

  records(std::size_t size, bool bags) : count{size} {
    std::mt19937 random{7};
    std::uniform_real_distribution<double> uniform{0, 1};
    for (value& x : inputs) {
      if constexpr (std::is_integral_v<value>) {
        x = static_cast<value>(random() % 200);
      } else {
        x = static_cast<value>(uniform(random));
      }
    }
    if (bags) {
      std::fill(inputs.begin(), inputs.end(), value{});
      for (std::size_t i = 0; i < 4 * (count + 1); ++i) inputs[i / 4 * width + random() % width] += value{1};
    }
    for (std::int32_t& y : classes) y = static_cast<std::int32_t>(random() % Network::output_shape.size());
  }
  [[nodiscard]] const pg::dataset<value, std::int32_t>& view(bool with) const {
    const std::size_t size = with ? count + 1 : count;
    return views_[with ? 1 : 0].of(std::span{inputs}.first(size * width), std::span{classes}.first(size),
                                   Network::input_shape);
  }

 private:
  kept_data_set<value> views_[2];
};

/// How a release is made, and what of it is seen.
enum class route {
  trainer,         ///< dp_sgd, last_update()
  by_hand,         ///< evaluate_into(update, sum + noise)
  totals,          ///< chunks in a total
  loop,            ///< private_loop
  sgd_step,        ///< only the parameters after a step of dp_sgd
  momentum_steps,  ///< only those after two steps of dp_sgd with momentum
  adam_step,       ///< only those after a step of dp_sgd with Adam, whose `stability` is as large as its steps
  momentum_loop,   ///< as momentum_steps, of a private_loop and an optimizer
  adam_loop        ///< as adam_step, of a private_loop and an optimizer
};
inline constexpr const char* names[] = {"trainer",  "by hand", "totals",           "loop",        "sgd",
                                        "momentum", "adam",    "momentum by hand", "adam by hand"};
inline constexpr bool shows_parameters(route way) { return way >= route::sgd_step; }
inline constexpr bool is_of_adam(route way) { return way == route::adam_step || way == route::adam_loop; }

struct what_is_done {
  double clip = 0.7;
  double sigma = 1;
  std::size_t records = 300;  ///< without the one that makes the difference; the divisor, too
  double step = 0.25;         ///< learning rate by divisor where parameters are seen
  std::size_t batch = 128;    ///< records of a physical batch
  bool bags = false;          ///< of words
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
        data_{done.records, done.bags},
        net_{executor, pg::kaiming_uniform{5}},
        generator_{std::move(generator)} {
    start_.assign(net_.parameters().begin(), net_.parameters().end());
    const auto grid = pg::release_grid::of(done.clip, Network::parameter_count);
    known = {done.sigma, done.sigma * done.clip, std::ldexp(1.0, grid.unit - grid.steps),
             std::is_same_v<scalar, double>};
    // What the attacker takes for the sums: rehearsals without noise, and plain evaluations.
    for (const bool with : {false, true}) {
      pg::tape<Network> tape{executor_, pg::max_batch{done.batch}};
      hypothesis& guess = guesses_[with ? 1 : 0];
      guess.sum.assign(Network::parameter_count, 0);
      guess.on_grid.assign(Network::parameter_count, 0);
      pg::bounded_total<Network> total{executor_};
      in_chunks(with, done.batch, [&](const auto& chunk) {
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

  /// What the parameters, `now`, say of the noised sum of the step that was taken; `first`: those after the step
  /// before.
  [[nodiscard]] observation parameters_say(std::span<const scalar> now, std::span<const scalar> first = {}) const {
    const auto invert = [&](double after, std::size_t i) {
      const double moved = (static_cast<double>(start_[i]) - after) / rate();
      if (is_of_adam(way_)) return known.deviation * moved / std::max(1 - std::abs(moved), 1e-9);
      if (way_ == route::sgd_step) return moved * divisor();
      return (moved - 0.9 * (static_cast<double>(start_[i]) - static_cast<double>(first[i])) / rate()) * divisor();
    };
    observation result{std::vector<double>(now.size()), std::vector<double>(now.size())};
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto after = static_cast<double>(now[i]);
      const double half = attacks::scores::unit_in_the_last_place(after, known.is_double) / 2;
      result.values[i] = invert(after, i);
      result.blur[i] = std::abs(invert(after + half, i) - invert(after - half, i)) / std::sqrt(12.0);
    }
    return result;
  }
  [[nodiscard]] std::span<const scalar> start() const { return start_; }
  [[nodiscard]] route way() const { return way_; }
  [[nodiscard]] double divisor() const { return static_cast<double>(done_.records); }
  [[nodiscard]] double rate() const { return done_.step * divisor(); }
  [[nodiscard]] double stability() const { return known.deviation / divisor(); }

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
      case route::momentum_loop:
        return of_momentum_by_hand(with);
      case route::adam_loop:
        return of_adam_by_hand(with);
    }
    return {};
  }

 private:
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
    result.divisor = pg::expected_batch_size{divisor()};
    result.max_batch = pg::max_batch{done_.batch};
    result.learning_rate = pg::learning_rate{rate()};
    if (way_ == route::momentum_steps) result.momentum = 0.9;
    if (way_ == route::adam_step) {
      result.optimizer = pg::optimizer_kind::adam;
      result.adam.stability = stability();
    }
    return result;
  }
  template <class Visit>
  void in_chunks(bool with, std::size_t size, const Visit& visit) {
    const auto& view = data_.view(with);
    std::vector<std::uint32_t> ids(view.size());
    std::iota(ids.begin(), ids.end(), 0U);
    for (std::size_t first = 0; first < ids.size(); first += size) {
      const pg::batch<Network, loss> chunk{
          view, std::span<const std::uint32_t>{ids}.subspan(first, std::min(size, ids.size() - first))};
      visit(chunk);
    }
  }
  [[nodiscard]] static observation seen(std::span<const scalar> values) { return {{values.begin(), values.end()}}; }
  [[nodiscard]] observation of_trainer(bool with) {
    if (!trainer_) trainer_ = std::make_unique<trainer>(executor_, net_, loss{}, options(), std::move(generator_));
    trainer_->step(data_.view(with));
    if (way_ == route::trainer) return seen(trainer_->last_update().values());
    return parameters_say(std::as_const(net_).parameters());
  }
  /// A trainer that has taken no step, with noise that nobody has seen.
  [[nodiscard]] trainer new_trainer() {
    if constexpr (Generator::is_private) {
      return {executor_, net_, loss{}, options()};
    } else {
      return {executor_, net_, loss{}, options(), Generator{11, 8 * steps_++}};
    }
  }
  [[nodiscard]] observation of_adam(bool with) {
    trainer of_one = new_trainer();
    of_one.step(data_.view(with));
    return parameters_say(std::as_const(net_).parameters());
  }
  /// Two steps from the same parameters, so that the sum is the same, too.
  [[nodiscard]] observation of_two(const auto& step_without, const auto& step) {
    step_without();
    const auto now = std::as_const(net_).parameters();
    const std::vector<scalar> first{now.begin(), now.end()};
    std::copy(start_.begin(), start_.end(), net_.parameters().begin());
    step();
    return parameters_say(std::as_const(net_).parameters(), first);
  }
  [[nodiscard]] observation of_momentum(bool with) {
    trainer of_both = new_trainer();
    return of_two([&] { of_both.step(data_.view(false)); }, [&] { of_both.step(data_.view(with)); });
  }
  void require_loop() {
    if (!loop_) loop_ = std::make_unique<loop>(executor_, net_, loss{}, options(), std::move(generator_));
  }
  [[nodiscard]] observation of_momentum_by_hand(bool with) {
    require_loop();
    pg::sgd<Network> optimizer{pg::learning_rate{rate()}, 0.9};
    return of_two([&] { optimizer.step(executor_, net_, finished(false)); },
                  [&] { optimizer.step(executor_, net_, finished(with)); });
  }
  [[nodiscard]] observation of_adam_by_hand(bool with) {
    require_loop();
    pg::adam<Network> optimizer{pg::learning_rate{rate()}, {.stability = stability()}};
    optimizer.step(executor_, net_, finished(with));
    return parameters_say(std::as_const(net_).parameters());
  }
  [[nodiscard]] observation of_loop(bool with) {
    require_loop();
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
    in_chunks(with, data_.count + 1, [&](const auto& all) {
      pg::tape<Network> tape{executor_, pg::max_batch{data_.count + 1}};
      const auto g = pg::per_sample_gradients(net_, loss{}, all, tape);
      pg::evaluate_into(executor_, update,
                        pg::sum(pg::clip(g, bound())) +
                            pg::unaccounted::gaussian_noise(pg::noise_multiplier{done_.sigma}, generator_));
    });
    return seen(update.values());
  }
  [[nodiscard]] observation of_totals(bool with) {
    pg::bounded_total<Network> total{executor_, pg::record_capacity{128}};  // so later chunks are integers
    pg::tape<Network> tape{executor_, pg::max_batch{done_.batch / 2}};
    in_chunks(with, done_.batch / 2, [&](const auto& chunk) {
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

/// Two releases of one run, of which the first is known to be without the record: noise that comes twice cancels.
template <class Victim>
class successive {
 public:
  setting known;
  explicit successive(Victim& victim) : known{victim.known}, victim_{victim} {}
  [[nodiscard]] const hypothesis& guess(bool with) const { return victim_.guess(with); }
  [[nodiscard]] observation observe(bool with) {
    const observation before = victim_.observe(false);
    observation seen = victim_.observe(with);
    for (std::size_t i = 0; i < seen.values.size(); ++i) seen.values[i] += guess(false).on_grid[i] - before.values[i];
    return seen;
  }

 private:
  Victim& victim_;
};

/// Planted noise on the sums of a library's victim, seen by its route.
template <class Network>
class weak {
 public:
  using scalar = typename Network::scalar;
  setting known;
  weak(planted::kind which, const library<Network>& of) : known{of.known}, which_{which}, of_{of} {}
  [[nodiscard]] const hypothesis& guess(bool with) const { return of_.guess(with); }
  [[nodiscard]] observation observe(bool with) {
    if (!shows_parameters(of_.way())) return {released(with)};
    std::copy(of_.start().begin(), of_.start().end(), net_.parameters().begin());
    const pg::learning_rate rate{of_.rate()};
    if (is_of_adam(of_.way())) {
      pg::adam<Network> optimizer{rate, {.stability = of_.stability()}};
      step(optimizer, with);
      return of_.parameters_say(net_.parameters());
    }
    pg::sgd<Network> optimizer{rate, of_.way() == route::sgd_step ? 0 : 0.9};
    if (of_.way() == route::sgd_step) {
      step(optimizer, with);
      return of_.parameters_say(net_.parameters());
    }
    step(optimizer, false);
    const std::vector<scalar> first{net_.parameters().begin(), net_.parameters().end()};
    std::copy(of_.start().begin(), of_.start().end(), net_.parameters().begin());
    step(optimizer, with);
    return of_.parameters_say(net_.parameters(), first);
  }

 private:
  [[nodiscard]] std::vector<double> released(bool with) {
    if (which_ == planted::kind::repeated) words_.seed(17);
    return planted::release<scalar>(which_, guess(with).sum, known, words_);
  }
  void step(auto& optimizer, bool with) {
    const auto values = released(with);
    for (std::size_t i = 0; i < values.size(); ++i) gradient_.values()[i] = static_cast<scalar>(values[i]);
    pg::unprotected::step(optimizer, executor_, net_, gradient_, 1 / of_.divisor());
  }

  planted::kind which_;
  const library<Network>& of_;
  pg::host executor_{pg::threads{1}};
  Network net_{executor_, pg::zeros{}};
  pg::unprotected::gradient<Network> gradient_{executor_};
  std::mt19937_64 words_{17};
};

}  // namespace victims
