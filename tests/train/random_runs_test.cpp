// SPDX-License-Identifier: Apache-2.0
// tests/train/random_runs_test.cpp - runs whose options are drawn: nobody has thought of their combinations
//
// Of each: a run in two parts, also behind a step that failed, has the bits of one; other physical batches and threads
// end where it ends, as do a device and ranks; a record moves a release by no more than its bound; a budget holds.
// A run is known by its number: PERGRAD_RANDOM_RUNS=FIRST,COUNT asks of others than the usual ones.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/trainer.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/ranks.hpp>

#include "comparing.hpp"
#include "cuda/training_runs.hpp"
#include "ranks/rank_tests.hpp"

BOOST_AUTO_TEST_SUITE(random_runs)

namespace {

namespace pg = pergrad;

constexpr std::size_t record_count = 60;
constexpr std::size_t owner_count = 17;
constexpr std::size_t steps = 7;

/// Throws in the evaluation that it is told, of all that follow.
struct failing : pg::cross_entropy {
  static inline std::atomic<long> left{-1};
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) {
    if (left >= 0 && left-- == 0) throw std::domain_error{"told to"};
    return pg::cross_entropy::evaluate<Scalar>(y, targets, dy);
  }
};

struct drawing {
  std::mt19937_64 random;
  explicit drawing(std::uint64_t number) : random{number} {}
  [[nodiscard]] bool chance(double probability) { return between(0, 1) < probability; }
  [[nodiscard]] double between(double low, double high) {
    return std::uniform_real_distribution<double>{low, high}(random);
  }
  /// Of any size.
  [[nodiscard]] double sized(double low, double high) { return std::exp(between(std::log(low), std::log(high))); }
  [[nodiscard]] std::uint32_t to(std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>{low, high}(random);
  }
};

// How each kind is drawn.

template <class Sampling>
struct sampling_of;
template <class Sampling>
requires std::is_constructible_v<Sampling, pg::sampling_probability>
struct sampling_of<Sampling> {
  static Sampling draw(drawing& by, std::uint32_t /*units*/) {
    return Sampling{pg::sampling_probability{by.chance(0.15) ? 1 : by.between(0.05, 0.9)}};
  }
};
template <class Sampling>
requires std::is_constructible_v<Sampling, pg::batch_size, pg::public_record_count>
struct sampling_of<Sampling> {
  static Sampling draw(drawing& by, std::uint32_t units) {
    return Sampling{pg::batch_size{by.to(1, units)}, pg::public_record_count{units}};
  }
};
template <class Sampling>
requires std::is_base_of_v<pg::truncated_poisson_sampling, Sampling>
struct sampling_of<Sampling> {
  static Sampling draw(drawing& by, std::uint32_t units) {
    return Sampling{pg::sampling_probability{by.between(0.1, 0.9)}, pg::batch_capacity{by.to(1, units)},
                    pg::public_record_count{by.to(units, 2 * units)}};
  }
};
template <class Sampling>
requires std::is_constructible_v<Sampling, pg::sampling_probability, pg::round_steps>
struct sampling_of<Sampling> {
  static Sampling draw(drawing& by, std::uint32_t /*units*/) {
    return Sampling{pg::sampling_probability{by.between(0.2, 0.8)}, pg::round_steps{by.to(1, 3)}};
  }
};
template <>
struct sampling_of<pg::random_allocation> {
  static pg::random_allocation draw(drawing& by, std::uint32_t /*units*/) {
    const std::uint32_t round = by.to(1, 5);
    return pg::random_allocation{pg::round_steps{round}, pg::participations{by.to(1, round)}};
  }
};
template <>
struct sampling_of<pg::balls_in_bins_sampling> {
  static pg::balls_in_bins_sampling draw(drawing& by, std::uint32_t /*units*/) {
    return {pg::round_steps{by.to(1, 4)}, pg::epoch_count{by.to(1, 3)}};
  }
};
template <class Sampling>
struct sampling_of<pg::with_views<Sampling>> {
  static pg::with_views<Sampling> draw(drawing& by, std::uint32_t units) {
    return {sampling_of<Sampling>::draw(by, units), pg::view_count{by.to(1, 4)}};
  }
};
std::vector<std::uint32_t> owners() {
  std::vector<std::uint32_t> all(record_count);
  for (std::uint32_t i = 0; i < record_count; ++i) all[i] = i < owner_count ? i : i * i % owner_count;
  return all;
}
template <class Sampling>
struct sampling_of<pg::of_owners<Sampling>> {
  static pg::of_owners<Sampling> draw(drawing& by, std::uint32_t /*units*/) {
    return {sampling_of<Sampling>::draw(by, owner_count), owners(),
            by.chance(0.5) ? pg::combined::mean : pg::combined::sum};
  }
};

template <class Noise>
struct correlation_of {
  static Noise draw(drawing& by, const auto& sampler) {
    const std::uint32_t run = by.to(steps, steps + 5);
    const Noise drawn = [&] {
      if constexpr (std::is_same_v<Noise, pg::tree_noise>) {
        return Noise{run};
      } else {
        std::vector<double> first(by.to(1, 3));
        if (std::is_same_v<Noise, pg::banded_noise>)
          first.resize(by.to(0, static_cast<std::uint32_t>(sampler.min_separation()) - 1));
        std::vector<double> second(first.size());
        for (double& each : first) each = by.between(0, 0.7);
        for (double& each : second) each = by.between(0, 0.3);
        if constexpr (std::is_same_v<Noise, pg::banded_noise>) {
          return Noise{run, first};
        } else {
          return Noise{run, first, second};
        }
      }
    }();
    return by.chance(0.5) ? drawn.regenerated() : drawn;
  }
};

/// A network, a sampler, noise, and whether gradients are scaled.
template <class Network, class Sampling, class Noise = pg::independent_noise, bool IsScaled = false>
struct kind {
  using network = Network;
  using sampling = Sampling;
  using noise = Noise;
  using options =
      std::conditional_t<IsScaled, pg::scaled_adam_options<Sampling, Noise>, pg::dp_options<Sampling, Noise>>;
  static constexpr bool is_scaled = IsScaled;
  static constexpr bool is_correlated = !std::is_same_v<Noise, pg::independent_noise>;
  static constexpr bool forms_gradients = IsScaled || pg::detail::draws_units<Sampling>;
  static constexpr bool on_device = !is_correlated && !forms_gradients;
  static constexpr bool has_owners = requires(const Sampling& of) { requires(Sampling::unit[0] == 'o'); };
  static constexpr bool replaces = Sampling::event_type::relation == pg::neighbouring::replace_one;
  using scalar = typename Network::scalar;
  using value = typename Network::input_value;
  using records = pg::dataset<value, std::int32_t>;
};

template <class Kind>
typename Kind::options options_of(drawing& by) {
  typename Kind::options options;
  options.sampling = sampling_of<typename Kind::sampling>::draw(by, record_count);
  if constexpr (Kind::is_correlated) {
    options.correlation = correlation_of<typename Kind::noise>::draw(
        by, pg::detail::inner_sampler<typename Kind::sampling>::of(*options.sampling));
  }
  options.clip = pg::l2_clip_norm{by.sized(0.05, 5)};
  options.noise = pg::noise_multiplier{by.sized(0.3, 3)};
  options.divisor = pg::expected_batch_size{by.sized(1, 60)};
  options.learning_rate = pg::learning_rate{by.sized(0.01, 0.5)};
  options.max_batch = pg::max_batch{by.to(1, 40)};
  if (by.chance(0.6)) options.capacity = pg::record_capacity{by.chance(0.3) ? 0 : by.to(1, 80)};
  if (Kind::replaces && !Kind::forms_gradients && by.chance(0.4)) {
    const std::uint32_t lanes = by.to(1, 9);
    options.lanes = pg::record_lanes{lanes, record_count / lanes + by.to(1, 5)};
  }
  if (by.chance(0.3)) {
    options.plan = pg::run_plan::on_the_way;
    options.budget = pg::privacy_budget{pg::epsilon{1000}, pg::delta{1e-5}};
  }
  if constexpr (!Kind::is_scaled) {
    if (by.chance(0.3)) {
      options.optimizer = pg::optimizer_kind::adam;
      options.learning_rate = pg::learning_rate{by.sized(0.001, 0.05)};
      if (!Kind::is_correlated && by.chance(0.3)) options.adam.noise_floor = by.sized(1e-8, 1e-2);
    } else {
      if (by.chance(0.5)) options.momentum = by.between(0, 0.95);
      if (by.chance(0.3)) options.weight_decay = by.sized(1e-4, 0.1);
    }
  } else {
    options.scale_stability = by.sized(1e-4, 1);
  }
  if (options.optimizer == pg::optimizer_kind::adam && by.chance(0.3)) options.adam.weight_decay = by.sized(1e-4, 0.1);
  using clipping = pg::clipping_kind;
  constexpr clipping ways[] = {clipping::flat,
                               clipping::flat,
                               clipping::flat,
                               clipping::per_layer,
                               clipping::automatic,
                               clipping::per_group,
                               clipping::per_sample_adaptive};
  options.clipping = ways[by.to(0, 6)];
  if (options.clipping == clipping::per_group) {
    options.clip.reset();
    for (std::size_t group = 0; group < pg::detail::clipping_groups<typename Kind::network>; ++group) {
      options.group_bounds.push_back(pg::l2_clip_norm{by.sized(0.05, 5)});
    }
  }
  const bool is_flat = options.clipping == clipping::flat;
  const auto count_noise = [&] { return pg::noise_multiplier{by.sized(1, 20)}; };
  if (std::is_same_v<typename Kind::sampling, pg::poisson_sampling> && is_flat && !Kind::is_scaled && by.chance(0.4)) {
    options.individual = pg::individual_accounting{by.to(1, 80)};
    options.budget = pg::privacy_budget{pg::epsilon{by.sized(3, 40)}, pg::delta{1e-5}};
    options.plan = pg::run_plan::beforehand;
    options.capacity.reset();
  } else if (is_flat && !Kind::is_correlated && by.chance(0.3)) {
    options.adaptive_clip = pg::adaptive_clip{count_noise(), by.between(0, 1), by.sized(0.05, 1)};
  } else if (!Kind::is_correlated && by.chance(0.3)) {
    options.statistic = pg::step_statistic{count_noise(), pg::bin_edges::evenly(0, 2, by.to(1, 5)),
                                           by.chance(0.5) ? pg::step_value::norm : pg::step_value::loss};
  }
  if (!Kind::is_correlated && by.chance(0.3)) {
    pg::step_schedules& all = options.schedules;
    all.steps = by.to(steps, steps + 3);
    const auto drawn = [&](double low, double high) {
      const double first = by.sized(low, high), factor = by.between(0.6, 1.3);
      return pg::schedule::exponential(first, factor, by.to(1, 3));
    };
    if (by.chance(0.5) && !pg::detail::has_rounds<typename pg::detail::inner_sampler<typename Kind::sampling>::type>) {
      all.noise = drawn(0.5, 2);
      options.noise.reset();
    }
    if (by.chance(0.5) && !options.adaptive_clip && options.clipping != clipping::per_group) {
      all.clip = drawn(0.1, 2);
      options.clip.reset();
    }
    if constexpr (std::is_same_v<typename Kind::sampling, pg::poisson_sampling>) {
      if (by.chance(0.5)) {
        all.sampling = pg::schedule::exponential(by.between(0.1, 0.8), by.between(0.5, 1));
        options.sampling.reset();
      }
    }
    if (by.chance(0.5)) {
      all.learning_rate = drawn(0.01, 0.3);
      options.learning_rate.reset();
    }
    if (!all.any()) all.steps = 0;
  }
  if (by.chance(0.3)) options.average_decay = by.between(0.1, 0.99);
  options.private_metrics = by.chance(0.3);
  return options;
}

/// What happens to a run before and in a step.
struct event {
  double rate = 0;       ///< if above 0, which is set before the step
  bool changes = false;  ///< whether the trainer is told that records have changed
  long fails = -1;       ///< evaluations of the loss until one throws; -1: none does
};
template <class Kind>
std::vector<event> events_of(drawing& by, const typename Kind::options& options) {
  std::vector<event> all(steps);
  for (event& each : all) {
    if (!options.schedules.learning_rate && by.chance(0.1)) each.rate = by.sized(0.01, 0.3);
    if (!Kind::is_correlated && by.chance(0.1)) each.changes = true;
    if (by.chance(0.15)) each.fails = by.to(0, 40);
  }
  return all;
}

template <class Kind>
struct some_records {
  std::vector<typename Kind::value> inputs;
  std::vector<std::int32_t> targets;
  std::vector<std::uint32_t> lengths;
  static constexpr pg::shape input_shape = Kind::network::input_shape;
  static constexpr std::size_t width = input_shape.size();

  explicit some_records(std::uint64_t number)
      : inputs(record_count * width),
        targets(record_count),
        lengths(input_shape.varying_axis() == 0 ? 0 : record_count) {
    drawing by{number};
    for (std::size_t record = 0; record < record_count; ++record) fill(record, by, 1);
  }
  void fill(std::size_t record, drawing& by, double size) {
    for (auto& each : std::span{inputs}.subspan(record * width, width)) {
      if constexpr (std::is_integral_v<typename Kind::value>) {
        each = static_cast<std::int32_t>(by.to(0, static_cast<std::uint32_t>(input_shape.ids) - 1));
      } else {
        each = static_cast<typename Kind::value>(by.between(-size, size));
      }
    }
    targets[record] = static_cast<std::int32_t>(by.to(0, Kind::network::output_shape.size() - 1));
    if (!lengths.empty()) lengths[record] = by.to(1, static_cast<std::uint32_t>(input_shape.e0));
  }
  [[nodiscard]] typename Kind::records from(std::size_t first, std::size_t count) const {
    return {std::span{inputs}.subspan(first * width, count * width), std::span{targets}.subspan(first, count),
            input_shape, 1,
            lengths.empty() ? std::span<const std::uint32_t>{} : std::span{lengths}.subspan(first, count)};
  }
};

/// All that a step leaves.
struct left_by_step {
  bool failed = false;
  std::vector<double> parameters, update, counts, average, spent;
  double clip = 0;
  friend bool operator==(const left_by_step&, const left_by_step&) = default;
};
std::vector<double> doubles(const auto& values) { return {values.begin(), values.end()}; }

template <class Trainer, class Network>
left_by_step left_by(const Trainer& trainer, const Network& net, bool failed) {
  left_by_step left{.failed = failed,
                    .parameters = doubles(net.all_parameters()),
                    .update = doubles(trainer.last_update().values()),
                    .counts = {},
                    .average = {},
                    .spent = {}};
  const auto& options = trainer.options();
  if (options.statistic && !failed) left.counts = doubles(trainer.last_statistic().counts());
  if (options.average_decay > 0) left.average = doubles(trainer.average().all_parameters());
  if (options.individual) left.spent = pg::unprotected::individual_epsilons(trainer, pg::delta{1e-5});
  if (options.clip) left.clip = options.clip->value();
  return left;
}

/// A network and its trainer.
template <class Kind, class Loss, class Executor>
struct run {
  using trainer_type = pg::dp_sgd<typename Kind::network, Loss, pg::seeded_generator, Executor, typename Kind::options>;
  typename Kind::network net;
  trainer_type trainer;
  run(const Executor& exec, const typename Kind::options& options, std::uint64_t first = 3)
      : net{exec, pg::layer_default{first}}, trainer{exec, net, Loss{}, options, pg::seeded_generator{11}} {}

  left_by_step step(const event& happens, const auto& records) {
    if (happens.rate > 0) trainer.set_learning_rate(pg::learning_rate{happens.rate});
    if (happens.changes) trainer.records_changed();
    failing::left = happens.fails;
    bool failed = false;
    try {
      trainer.step(records);
    } catch (const std::domain_error&) {
      failed = true;
    }
    failing::left = -1;
    return left_by(trainer, net, failed);
  }
};

/// How far apart two runs are, relative to the largest number of its kind.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  const double most = comparing::largest_difference(a, b);
  if (std::isnan(most)) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (const double each : a) largest = std::max(largest, std::abs(each));
  return most == 0 ? 0 : most / largest;
}
double apart(const left_by_step& a, const left_by_step& b) {
  return std::max({apart(a.parameters, b.parameters), apart(a.update, b.update), apart(a.counts, b.counts),
                   apart(a.average, b.average), apart(std::vector{a.clip}, std::vector{b.clip})});
}

template <class Kind>
void in_two_parts(const typename Kind::options& options, const std::vector<event>& events, std::size_t cut,
                  const some_records<Kind>& data, const std::string& name) {
  // Behind a file records are the first ones: a round of a seeded run goes on, whatever the trainer is told.
  while (cut < steps && events[cut].changes) ++cut;
  const pg::host exec{pg::threads{1}};
  const typename Kind::records records = data.from(0, record_count);
  const training_runs::scratch_file file;
  run<Kind, failing, pg::host> whole{exec, options}, first{exec, options}, second{exec, options, 4};
  double rate = 0;
  for (std::size_t t = 0; t < cut; ++t) {
    first.step(events[t], records);
    if (events[t].rate > 0) rate = events[t].rate;
  }
  options.individual ? pg::unprotected::save_checkpoint(first.trainer, file.path)
                     : pg::save_checkpoint(first.trainer, file.path);
  pg::load_checkpoint(second.trainer, file.path);
  if (rate > 0) second.trainer.set_learning_rate(pg::learning_rate{rate});
  for (std::size_t t = 0; t < steps; ++t) {
    const left_by_step wanted = whole.step(events[t], records);
    if (t < cut) continue;
    const left_by_step found = second.step(events[t], records);
    BOOST_TEST((found == wanted),
               name << "two parts, cut at " << cut << ", differ in step " << t << " by " << apart(found, wanted));
    if (!(found == wanted)) return;
  }
  BOOST_TEST(second.trainer.steps() == whole.trainer.steps(), name);
  BOOST_TEST(second.trainer.epsilon(pg::delta{1e-5}) == whole.trainer.epsilon(pg::delta{1e-5}), name);
}

/// The same run elsewhere.
template <class Kind, class Executor>
std::vector<left_by_step> elsewhere(const Executor& exec, const typename Kind::options& options,
                                    std::vector<event> events, const some_records<Kind>& data) {
  run<Kind, pg::cross_entropy, Executor> it{exec, options};
  const typename Kind::records records = data.from(0, record_count);
  std::vector<left_by_step> left;
  for (event& each : events) {
    each.fails = -1;
    left.push_back(it.step(each, records));
  }
  return left;
}
template <class Kind>
void close(const std::vector<left_by_step>& found, const std::vector<left_by_step>& wanted, const std::string& what) {
  constexpr double allowed = 1e-3;
  for (std::size_t t = 0; t < steps; ++t) {
    const double by = apart(found[t], wanted[t]);
    BOOST_TEST(by <= allowed, what << " in step " << t << " by " << by);
    if (!(by <= allowed)) return;
  }
}

/// Every rank's parameters behind the last step.
template <class Kind>
void on_ranks(std::size_t count, typename Kind::options options, const std::vector<event>& events,
              const some_records<Kind>& data, const std::string& name) {
  using member = pg::thread_ranks::member;
  if (!options.lanes) options.capacity = pg::record_capacity{0};
  const pg::host alone{pg::threads{1}};
  const std::vector<left_by_step> wanted = elsewhere<Kind>(alone, options, events, data);
  std::vector<std::vector<double>> found(count);
  const auto thrown = rank_tests::on_threads<member>(count, [&](const member& me) {
    const pg::host exec{pg::threads{1}};
    typename Kind::network net{exec, pg::layer_default{3}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{11}};
    const auto cut = [&](std::size_t rank) {
      if (rank == count) return record_count;
      const std::size_t anywhere = rank * record_count / count;
      return options.lanes ? anywhere / options.lanes->records * options.lanes->records : anywhere;
    };
    const std::size_t begin = cut(me.rank());
    const pg::shard mine{data.from(begin, cut(me.rank() + 1) - begin), begin};
    for (const event& each : events) {
      if (each.rate > 0) trainer.set_learning_rate(pg::learning_rate{each.rate});
      if (each.changes) trainer.records_changed();
      trainer.step(mine);
    }
    found[me.rank()] = doubles(net.all_parameters());
  });
  for (std::size_t rank = 0; rank < count; ++rank) {
    BOOST_TEST(thrown[rank] == "", name);
    BOOST_TEST((found[rank] == wanted.back().parameters), name << "rank " << rank << " of " << count
                                                               << " ends elsewhere by "
                                                               << apart(found[rank], wanted.back().parameters));
  }
}

/// Replaces one unit's records in every step's sums, where parameters never change.
template <class Kind>
void moved_by_one(typename Kind::options options, const some_records<Kind>& data, drawing& by,
                  const std::string& name) {
  options.schedules.learning_rate.reset();
  options.learning_rate = pg::learning_rate{1e-30};
  if (!options.schedules.any()) options.schedules.steps = 0;
  some_records<Kind> other = data;
  const std::size_t unit = by.to(0, Kind::has_owners ? owner_count - 1 : record_count - 1);
  constexpr bool has_numbers = !std::is_integral_v<typename Kind::value>;
  const bool leaves_out = has_numbers && by.chance(0.5);  // a record that is not finite adds nothing
  const std::vector<std::uint32_t> owner = owners();
  for (std::size_t record = 0; record < record_count; ++record) {
    if (Kind::has_owners ? owner[record] != unit : record != unit) continue;
    other.fill(record, by, by.sized(0.1, 1e4));
    if constexpr (has_numbers) {
      if (leaves_out)
        other.inputs[record * some_records<Kind>::width] = std::numeric_limits<typename Kind::value>::quiet_NaN();
    }
  }
  const pg::host exec{pg::threads{1}};
  run<Kind, pg::cross_entropy, pg::host> one{exec, options}, another{exec, options};
  const auto here = data.from(0, record_count), there = other.from(0, record_count);
  const std::size_t looked_at = options.adaptive_clip || Kind::is_scaled ? 1 : steps;
  std::size_t taken_part = 0;
  for (std::size_t t = 0; t < looked_at; ++t) {
    double bound = 0;
    for (const pg::l2_clip_norm each : options.group_bounds) bound += each.value() * each.value();
    bound = one.trainer.options().clip ? one.trainer.options().clip->value() : std::sqrt(bound);
    const left_by_step a = one.step({}, here), b = another.step({}, there);
    double squared = 0;
    for (std::size_t i = 0; i < a.update.size(); ++i) squared += std::pow(a.update[i] - b.update[i], 2);
    const double moved = std::sqrt(squared);
    // What is added once has been taken away once as well, and sums are rounded to a grid and to floats.
    BOOST_TEST(moved <= (leaves_out ? 1 : 2) * bound * 1.001,
               name << "moved by " << moved << " in step " << t << ", C is " << bound);
    taken_part += moved > 1e-5 * bound ? 1 : 0;
    double of_counts = 0;
    for (std::size_t i = 0; i < a.counts.size(); ++i) of_counts += std::pow(a.counts[i] - b.counts[i], 2);
    BOOST_TEST(of_counts <= 2.001, name << "counts moved by " << of_counts);
  }
  const auto& sampler = pg::detail::inner_sampler<typename Kind::sampling>::of(*one.trainer.options().sampling);
  if constexpr (requires { sampler.max_participations(steps); }) {
    BOOST_TEST(taken_part <= sampler.max_participations(looked_at), name);
  }
  if (looked_at == steps) {
    BOOST_TEST_MESSAGE(name << "took part in " << taken_part << " of " << steps);
  }
}

template <class Kind>
void within_budget(typename Kind::options options, const some_records<Kind>& data, drawing& by, double of_all,
                   const std::string& name) {
  if (!options.individual)
    options.budget = pg::privacy_budget{pg::epsilon{of_all * by.between(0.2, 1.1)}, pg::delta{1e-5}};
  const double most = options.budget->max_epsilon.value();
  const pg::host exec{pg::threads{1}};
  std::unique_ptr<run<Kind, pg::cross_entropy, pg::host>> it;
  try {
    it = std::make_unique<run<Kind, pg::cross_entropy, pg::host>>(exec, options);
  } catch (const std::invalid_argument& why) {
    BOOST_TEST(std::string{why.what()}.find("budget") != std::string::npos, name << why.what());
    return;
  }
  const auto records = data.from(0, record_count);
  for (std::size_t t = 0; t < 2 * steps; ++t) {
    const bool has_room = it->trainer.within_budget();
    const std::vector<double> before = doubles(it->net.all_parameters());
    try {
      it->trainer.step(records);
      BOOST_TEST(has_room, name << "a step that within_budget() denied");
    } catch (const pg::budget_exhausted&) {
      BOOST_TEST(!has_room, name << "no step that within_budget() promised");
      BOOST_TEST((doubles(it->net.all_parameters()) == before), name);
    }
    const double spent = it->trainer.epsilon(options.budget->delta);
    BOOST_TEST(spent <= most, name << "spent " << spent << " of " << most);
  }
}

template <class Kind>
bool ask(std::uint64_t number, const std::string& name) {
  drawing by{number};
  const typename Kind::options options = options_of<Kind>(by);
  const some_records<Kind> data{number};
  const pg::host exec{pg::threads{1}};
  try {
    const run<Kind, pg::cross_entropy, pg::host> it{exec, options};
  } catch (const std::invalid_argument& why) {
    BOOST_TEST_MESSAGE(name << "refused: " << why.what());
    return false;
  }
  const std::vector<event> events = events_of<Kind>(by, options);
  for (int times = 0; times < 2; ++times) in_two_parts<Kind>(options, events, by.to(0, steps), data, name);
  const std::vector<left_by_step> wanted = elsewhere<Kind>(exec, options, events, data);
  typename Kind::options others = options;
  others.max_batch = pg::max_batch{by.to(1, 40)};
  const pg::host more{pg::threads{by.to(2, 4)}};
  close<Kind>(elsewhere<Kind>(more, others, events, data), wanted, name + "other physical batches differ");
  if constexpr (Kind::on_device) {
    if (!options.lanes) {
      const pg::emulated device;
      close<Kind>(elsewhere<Kind>(device, options, events, data), wanted, name + "a device differs");
    }
  }
  if constexpr (!Kind::forms_gradients) {
    if (!options.individual) on_ranks<Kind>(by.to(2, 4), options, events, data, name);
  }
  moved_by_one<Kind>(options, data, by, name);
  run<Kind, pg::cross_entropy, pg::host> paying{exec, options};
  const typename Kind::records records = data.from(0, record_count);
  for (std::size_t t = 0; t < steps; ++t) static_cast<void>(paying.step({}, records));
  within_budget<Kind>(options, data, by, paying.trainer.epsilon(pg::delta{1e-5}), name);
  return true;
}

using dense = pg::network<pg::shape{6}, pg::linear<9>, pg::tanh, pg::linear<3>>;
template <class Scalar>
using convolutional =
    pg::basic_network<Scalar, pg::shape{1, 6, 6},
                      pg::parameter_group<1, pg::conv2d<4, 3, pg::padding<1>, pg::stride<2>>>, pg::group_norm<2>,
                      pg::tanh, pg::flatten, pg::dropout<0.25>, pg::linear<5>, pg::relu, pg::linear<3>>;
using reader = pg::network<pg::token_ids(5, 12), pg::embedding<4, pg::padding_idx<0>>, pg::frozen<pg::linear<6>>,
                           pg::dropout<0.25>, pg::mean_over_positions, pg::linear<3>>;
using attentive =
    pg::basic_network<double, pg::variable(pg::shape{5, 4}), pg::transformer_encoder_layer<2, 5, pg::dropout_rate<0.1>>,
                      pg::tied<1, pg::linear<4>>, pg::tied<1, pg::linear<4>>, pg::mean_over_positions, pg::linear<3>>;
using recurrent = pg::network<pg::shape{4, 3}, pg::recomputed<pg::lstm<3>, pg::select_last>, pg::linear<3>>;

using kinds =
    std::tuple<kind<dense, pg::poisson_sampling>, kind<convolutional<double>, pg::replace_one_poisson_sampling>,
               kind<reader, pg::truncated_poisson_sampling>, kind<attentive, pg::of_owners<pg::poisson_sampling>>,
               kind<convolutional<float>, pg::with_views<pg::fixed_size_sampling>>,
               kind<dense, pg::cyclic_poisson_sampling, pg::banded_noise>,
               kind<attentive, pg::min_separation_sampling, pg::buffered_noise>, kind<recurrent, pg::random_allocation>,
               kind<convolutional<float>, pg::balls_in_bins_sampling>,
               kind<dense, pg::poisson_sampling, pg::independent_noise, true>,
               kind<reader, pg::of_owners<pg::cyclic_poisson_sampling>, pg::tree_noise, true>,
               kind<attentive, pg::shuffled_batches>, kind<convolutional<double>, pg::poisson_sampling>,
               kind<reader, pg::cyclic_poisson_sampling>, kind<dense, pg::replace_one_truncated_poisson_sampling>,
               kind<recurrent, pg::min_separation_sampling, pg::tree_noise>>;

}  // namespace

BOOST_AUTO_TEST_CASE(runs_that_are_drawn) {
  unsigned long long first = 1, count = 8, only = 0;
  if (const char* const given = std::getenv("PERGRAD_RANDOM_RUNS")) {
    BOOST_TEST_REQUIRE(std::sscanf(given, "%llu,%llu,%llu", &first, &count, &only) >= 2);
  }
  std::size_t which = 0;
  const auto ask_all = [&]<class Kind>(const Kind& /*of*/) {
    ++which;
    if (only != 0 && which != only) return;
    std::size_t refused = 0;
    for (std::uint64_t number = first; number < first + count; ++number) {
      const std::string name = "kind " + std::to_string(which) + ", run " + std::to_string(number) + ": ";
      try {
        if (!ask<Kind>(number, name)) ++refused;
      } catch (const std::exception& thrown) {
        BOOST_ERROR(name << thrown.what());
      }
    }
    BOOST_TEST(2 * refused <= count, "kind " << which << ": " << refused << " runs are refused");
  };
  std::apply([&](const auto&... each) { (ask_all(each), ...); }, kinds{});
}

BOOST_AUTO_TEST_SUITE_END()
