// SPDX-License-Identifier: Apache-2.0
// pergrad/ranks/trainer.hpp - a `dp_sgd` that several processes run together
//
// The result has the bits of one process that has all records and the same options, however many ranks there are:
//
// * A record is drawn by its number in the whole data set, and its dropout's bits follow from that number.
// * What ranks add up are integers, whose sums are exact, so neither their order nor who forms them matters. Without
//   the option `lanes` each record's clipped gradient is rounded to the release's grid by itself, as in one process
//   with `record_capacity{0}`, and any rank may have any records. With it each lane of record numbers is added up in
//   floating point, always in the same way, and its sum is rounded; a shard is whole lanes then
//   (privacy/sensitivity.hpp, 3, 5).
// * Noise is added once: who owns a stretch of parameters gets all ranks' sum of it, draws its noise by element number,
//   updates it and shares the result. Noise and update are divided among the ranks, as in ZeRO (Rajbhandari et al.
//   2020, arXiv:1910.02054), and so is the memory of an optimizer's arrays: they have full length, but the system has
//   the pages of other ranks' stretches but while a checkpoint is written or read.
//
// Every rank has the same ledger, which enters a step before anything is drawn. In a step ranks exchange 48 bytes each
// (share and state), the sum (8 bytes a parameter) and the new parameters, and the counts of a statistic;
// bench/ranks/model.py has the same list, and a test compares them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/files/parameter_names.hpp>
#include <pergrad/files/resume.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/statistics.hpp>
#include <pergrad/ranks/communicator.hpp>
#include <pergrad/simd/processor.hpp>
#include <pergrad/train/dp_sgd.hpp>
#include <pergrad/train/step_by_verbs.hpp>
#include <pergrad/version.hpp>

namespace pergrad::inline v0_1 {

/// One rank's records: those of the whole data set from number `first_record` on. The ranks' shards are all records,
/// each once; a shard may be empty.
template <class Value, class Target>
struct shard {
  shard(const dataset<Value, Target>& mine, std::uint64_t first) : records{mine}, first_record{first} {}
  dataset<Value, Target> records;
  std::uint64_t first_record;
};

namespace detail {

struct checkpoint_of_ranks;
template <executor Executor, communicator Ranks>
class on_ranks;

/// What a rank does in a step. Specialised for devices.
template <class Network, class Loss, executor Executor, communicator Ranks>
struct rank_step {
  static_assert(!Executor::template trainer<Network, Loss>::trains_on_a_copy,
                "pergrad: ranks on devices: include <pergrad/nccl.cuh>, and train with its nccl_ranks");
  using type = step_on_ranks<Network, Loss, on_ranks<Executor, Ranks>>;
};

/// An executor and those who share its work: what a trainer on ranks sees as its executor.
template <executor Executor, communicator Ranks>
class on_ranks {
 public:
  static constexpr bool is_executor = true;
  on_ranks(const Executor& mine, const Ranks& ranks) noexcept : executor_{&mine}, ranks_{&ranks} {}

  template <class Network>
  using explanation = typename Executor::template explanation<Network>;
  template <class Loss>
  using loss_explanation = typename Executor::template loss_explanation<Loss>;
  template <class Network, class Loss>
  using trainer = typename rank_step<Network, Loss, Executor, Ranks>::type;
  template <class Network>
  static constexpr std::size_t usual_sums = Executor::template usual_sums<Network>;

  [[nodiscard]] const Ranks& ranks() const noexcept { return *ranks_; }
  [[nodiscard]] const Executor& mine() const noexcept { return *executor_; }
  [[nodiscard]] const thread_pool& pool() const noexcept { return executor_->pool(); }
  template <class Network>
  [[nodiscard]] executor_memory make_tape(std::size_t max_batch, std::size_t max_sums) const {
    return executor_->template make_tape<Network>(max_batch, max_sums);
  }
  template <evaluation_needs Needs, class Network, class Loss>
  void run(const Network& network, const Loss& loss, const batch<Network, Loss>& samples, tape<Network>& tape,
           const run_request<typename Network::scalar>& request) const {
    executor_->template run<Needs>(network, loss, samples, tape, request);
  }

 private:
  const Executor* executor_;
  const Ranks* ranks_;
};

/// The stretches of a release that a rank owns: alike for all, but for one.
[[nodiscard]] constexpr std::size_t first_stretch(std::size_t stretches, std::size_t ranks, std::size_t rank) noexcept {
  return stretches / ranks * rank + std::min(rank, stretches % ranks);
}

/// Who owns which parameters: a number for the beginning of each rank's, and for the end of all.
template <class Network>
struct owned_parts {
  using scalar = typename Network::scalar;
  explicit owned_parts(std::size_t ranks) {
    constexpr std::size_t each = release_gate<scalar>::stretch;
    constexpr std::size_t all = (Network::parameter_count + each - 1) / each;
    for (std::size_t rank = 0; rank <= ranks; ++rank) {
      stretches.push_back(first_stretch(all, ranks, rank));
      places.push_back(std::min(stretches.back() * each, Network::parameter_count));
      bytes.push_back(places.back() * sizeof(scalar));
    }
  }
  std::vector<std::size_t> stretches;
  std::vector<std::size_t> places;  ///< of their first elements
  std::vector<std::size_t> bytes;   ///< the same, of parameters
};

/// The step of a rank: its own records' gradients, everybody's sum of its own parameters, and their update.
template <class Network, class Loss, executor Executor>
class step_on_ranks : public step_by_verbs<Network, Loss, Executor, step_gradients::unformed> {
  using base = step_by_verbs<Network, Loss, Executor, step_gradients::unformed>;

 public:
  using typename base::scalar;
  step_on_ranks(const Executor& executor, Network& network, Loss loss, tape<Network>& tape,
                const training_choices& options, double sensitivity)
      : base{executor, network, loss, tape, options, sensitivity}, owned_{executor.ranks().size()} {
    static_cast<void>(total_access::integers(this->total_, false));  // no step takes memory
    forget_others();
  }

  template <class Generator, class NextNoise>
  void step(const step_records<Network, Loss>& records, const noise_of<Generator>& noise, const NextNoise& /*noise*/,
            std::span<scalar> /*update*/) {
    const auto& ranks = this->executor_->ranks();
    std::int64_t* integers = nullptr;
    do_together(ranks, [&] {
      this->total_.clear();
      total_access::state(this->total_).expect(release_grid::of(this->sensitivity_, Network::parameter_count), 1);
      this->add_chunks(records);
      total_access::join(this->executor_->pool(), this->total_);
      integers = total_access::integers(this->total_, !total_access::state(this->total_).has_integers());
      this->tell_noise(noise);
    });
    ranks.reduce_scatter(std::span{integers, Network::parameter_count}, owned_.places);
    const std::size_t mine = ranks.rank();
    std::visit(
        [&](auto& optimizer) {
          total_release::of_stretches<scalar>(
              this->executor_->pool(), total_access::state(this->total_), {nullptr, integers}, owned_.stretches[mine],
              owned_.stretches[mine + 1], noise, 1, nullptr,
              optimizer_access::beginning(optimizer, *this->network_, *this->options_->divisor));
        },
        this->optimizer_);
    gather(this->network_->parameters().first(Network::parameter_count));
  }
  /// What an optimizer remembers, on all ranks: for files.
  void gather_state() {
    for_each_array([&](std::span<scalar> array) { gather(array); });
  }
  /// Gives back the memory of what an optimizer remembers of other ranks' stretches.
  void forget_others() noexcept {
    const std::size_t mine = this->executor_->ranks().rank();
    for_each_array([&](std::span<scalar> array) {
      forget(std::as_writable_bytes(array.first(owned_.places[mine])));
      forget(std::as_writable_bytes(array.subspan(owned_.places[mine + 1])));
    });
  }

 private:
  template <class Function>
  void for_each_array(Function&& f) {
    std::visit(
        [&](auto& optimizer) {
          for (const auto array : optimizer_access::state(optimizer)) {
            if (!array.empty()) f(array);
          }
        },
        this->optimizer_);
  }
  void gather(std::span<scalar> values) const {
    this->executor_->ranks().all_gather(std::as_writable_bytes(values), owned_.bytes);
  }

  owned_parts<Network> owned_;
};

/// One key for all ranks, that of rank 0.
struct shared_key {
  template <communicator Ranks>
  static void share(os_keyed_generator& generator, const Ranks& ranks) {
    key_page& page = generator.page_;
    page.require();
    ranks.broadcast(std::as_writable_bytes(std::span{&page.content_->keys, 1}), 0);
  }
  template <communicator Ranks>
  static void share(seeded_generator& /*known*/, const Ranks& /*ranks*/) noexcept {}
};

/// Counts of all ranks' records.
struct counts_of_ranks {
  template <communicator Ranks>
  static void add_up(private_counts& counted, const Ranks& ranks) {
    std::vector<std::int64_t>& own = counted.counts_;
    const std::size_t bins = own.size();
    std::vector<std::int64_t> all(ranks.size() * bins);
    std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(ranks.rank() * bins));
    ranks.all_gather(std::as_writable_bytes(std::span{all}), equal_places(ranks.size(), 8 * bins));
    std::fill(own.begin(), own.end(), 0);
    for (std::size_t i = 0; i < all.size(); ++i) own[i % bins] += all[i];
  }
};

/// What all ranks must have in common, a line each. `tell_draws(add)` calls add(name, number) for what decides who is
/// drawn.
template <class Network, class Generator, class Options, class Event, class TellDraws>
[[nodiscard]] std::string common_ground(const Options& options, const Generator& generator, const Event& event,
                                        double noise_sensitivity, const TellDraws& tell_draws) {
  std::string lines;
  const auto line = [&](const char* name, const std::string& value) {
    lines += std::string{name} + ": " + value + '\n';
  };
  const auto number = [&](const char* name, double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    line(name, text);
  };
  const auto add = [](safetensors::checksum& sum, const auto& value) { sum.add(bytes_of(&value, 1)); };
  line("pergrad's version", std::string{version});
  line("the processor's kernels", std::string{on_host::name_of(on_host::kernel_target_in_use())});
  line("a network of structure", structure_hash<Network>(true));
  number("the scalar's bytes", sizeof(typename Network::scalar));
  line("events of kind", std::string{Event::name});
  number("the option noise", options.noise->value());
  number("the option clip", options.clip ? options.clip->value() : 0);
  safetensors::checksum bounds;
  for (const l2_clip_norm& each : options.group_bounds) add(bounds, each.value());
  line("the hash of the option group_bounds", bounds.text());
  number("the option divisor", options.divisor->value());
  number("the number of the option lanes", static_cast<double>(options.lanes ? options.lanes->count : 0));
  number("the records of the option lanes", static_cast<double>(options.lanes ? options.lanes->records : 0));
  number("the option max_batch, by which lanes are cut",
         options.lanes ? static_cast<double>(options.max_batch.count) : 0);
  number("the option capacity", static_cast<double>(options.capacity->count));
  number("the option clipping", static_cast<double>(options.clipping));
  number("the option optimizer", static_cast<double>(options.optimizer));
  number("the option learning_rate", options.learning_rate->value());
  number("the option momentum", options.momentum);
  number("the option weight_decay", options.weight_decay);
  safetensors::checksum adam;
  add(adam, options.adam.beta1);
  add(adam, options.adam.beta2);
  add(adam, options.adam.stability);
  add(adam, options.adam.weight_decay);
  add(adam, options.adam.noise_floor);
  line("the hash of the option adam", adam.text());
  number("the option plan", static_cast<double>(options.plan));
  number("the option budget's epsilon", options.budget ? options.budget->max_epsilon.value() : 0);
  number("the option budget's delta", options.budget ? options.budget->delta.value() : 0);
  number("the option average_decay", options.average_decay);
  safetensors::checksum numbers;
  add(numbers, event);
  line("the first event's hash", numbers.text());
  number("the noise's sensitivity", noise_sensitivity);
  safetensors::checksum strategy;
  tell_draws([&](const char* name, double value) { name == nullptr ? add(strategy, value) : number(name, value); });
  line("the hash of the noise's strategy", strategy.text());
  safetensors::checksum schedules;
  for (std::uint64_t step = 0; step < options.schedules.steps; ++step) {
    for (const auto* each : {&options.schedules.noise, &options.schedules.clip, &options.schedules.sampling,
                             &options.schedules.learning_rate}) {
      add(schedules, *each ? (**each)(step) : 0.0);
    }
  }
  line("the hash of the option schedules", schedules.text());
  safetensors::checksum statistic;
  if (options.statistic) {
    add(statistic, options.statistic->noise.value());
    add(statistic, static_cast<int>(options.statistic->of));
    for (const double edge : options.statistic->edges.values()) add(statistic, edge);
  }
  if (options.adaptive_clip) {
    add(statistic, options.adaptive_clip->quantile);
    add(statistic, options.adaptive_clip->rate);
  }
  line("the hash of what is counted in a step", statistic.text());
  if constexpr (!Generator::is_private) line("the seed", std::to_string(generator.seed()));
  line("steps given out", std::to_string(generator.step()));
  return lines;
}

/// Of a file's bytes. Throws std::runtime_error that names the file.
[[nodiscard]] inline std::string hash_of_file(const std::string& path) {
  std::ifstream opened{path, std::ios::binary};
  if (!opened) fail_with_file(path, "cannot be opened");
  safetensors::checksum sum;
  std::vector<char> some(std::size_t{1} << 20U);
  do {
    opened.read(some.data(), static_cast<std::streamsize>(some.size()));
    sum.add(std::as_bytes(std::span{some}.first(static_cast<std::size_t>(opened.gcount()))));
  } while (opened);
  if (opened.bad()) fail_with_file(path, "cannot be read");
  return std::string{sum.text()};
}

/// Whose records lie where in the whole data set.
struct shard_place {
  std::uint64_t first;
  std::uint64_t count;
  std::uint64_t rank;
  bool operator==(const shard_place&) const = default;
};
/// How many records there are in these, which are sorted. Throws std::invalid_argument if they are not all, each once.
[[nodiscard]] inline std::uint64_t total_of_shards(const std::vector<shard_place>& shards) {
  std::uint64_t next = 0;
  for (const shard_place& each : shards) {
    if (each.first != next) {
      throw_invalid_argument({"pergrad: the ranks' shards are not all records, each once: rank ", each.rank, " has ",
                              each.count, " from number ", each.first, ", where ", next, " comes next"});
    }
    next += each.count;
  }
  if (next > std::numeric_limits<std::uint32_t>::max()) {
    throw_invalid_argument({"pergrad: the ranks' shards have ", next, " records, and 2^32 - 1 is the most"});
  }
  return next;
}
inline void require_whole_lanes(const std::vector<shard_place>& shards, const record_lanes& lanes) {
  for (const shard_place& each : shards) {
    if (each.first % lanes.records == 0) continue;
    throw_invalid_argument({"pergrad: a shard is whole lanes, which have ", lanes.records,
                            " records each by the option lanes: that of rank ", each.rank, " begins at record ",
                            each.first});
  }
}

/// Made first, as the trainer refers to it.
template <class Executor>
struct executor_of_ranks {
  Executor held;
};

}  // namespace detail

/// The same training loop on ranks; every rank makes one and takes the same steps. `step` takes the rank's shard, and
/// everything else is as in one process. Collective, as is `save_checkpoint`: all ranks call it, in the same order.
template <class Network, class Loss, random_generator Generator, executor Executor, communicator Ranks, class Options>
requires(!detail::cannot_be_trained<Network, Loss>) class dp_sgd<Network, Loss, Generator,
                                                                 detail::on_ranks<Executor, Ranks>, Options>
    : private detail::executor_of_ranks<detail::on_ranks<Executor, Ranks>>,
      private detail::dp_sgd_base<Network, Loss, detail::on_ranks<Executor, Ranks>, Options> {
  using place = detail::executor_of_ranks<detail::on_ranks<Executor, Ranks>>;
  using base = detail::dp_sgd_base<Network, Loss, detail::on_ranks<Executor, Ranks>, Options>;
  static_assert(detail::gradients_of_step<Options> == detail::step_gradients::unformed,
                "pergrad: ranks draw records: owners, views and scaled gradients are not divided among ranks yet");

 public:
  using typename base::input_value;
  using typename base::scalar;
  using typename base::target;
  static constexpr bool is_private = Generator::is_private;
  using base::accountant;
  using base::average;
  using base::epsilon;
  using base::last_statistic;
  using base::options;
  using base::records_changed;
  using base::relation;
  using base::set_learning_rate;
  using base::steps;
  using base::unit_of_privacy;
  using base::within_budget;

  /// As in one process; the executor and the ranks are referred to. Rank 0's parameters and key are everybody's. Throws
  /// std::invalid_argument on all ranks where they are told different things. What one rank alone is told wrong it
  /// throws alone, before the others have heard of it: they wait for it as for one that is gone.
  dp_sgd(const Executor& executor, Network& network, Loss loss, const Options& chosen, const Ranks& ranks,
         Generator generator = Generator{})
      : place{{executor, ranks}},
        base{place::held, network, loss, of_exact_sums(chosen), is_private},
        generator_{std::move(generator)} {
    detail::agree(ranks, detail::common_ground<Network>(
                             this->options_, generator_, this->event_,
                             this->noise_.filter() == nullptr
                                 ? this->sensitivity_
                                 : this->noise_.filter()->sensitivity(this->sensitivity_, Network::parameter_count),
                             [this](const auto& add_number) { this->tell_draws(add_number); }));
    detail::shared_key::share(generator_, ranks);
    ranks.broadcast(std::as_writable_bytes(network.all_parameters()), 0);
    if (this->average_) detail::average_access::set_out_from(*this->average_, std::as_const(network));
  }

  /// Ranks that would be gone.
  dp_sgd(const Executor&, Network&, Loss, const Options&, const Ranks&&, Generator = Generator{}) = delete;

  /// One logical step on the records of all ranks. A rank whose records do not fit, or that cannot go on, ends it on
  /// all ranks with rank_failed, which has its message; nothing is changed then, but that a step that had begun stays
  /// in the ledger. Throws as in one process otherwise, on all ranks alike.
  void step(const shard<input_value, target>& mine) {
    this->require_loaded();
    const detail::float_environment proven;
    const auto& ranks = place::held.ranks();
    const std::uint64_t total = meet(mine);
    const std::uint64_t first = mine.records.size() == 0 ? 0 : mine.first_record;
    this->plan_next_step();
    this->notes_.begin();
    const std::uint64_t step =
        this->spend_and_draw(generator_, total, {first, static_cast<std::uint64_t>(mine.records.size())});
    this->accept(mine.records);
    parts_.swap(next_parts_);
    auto records = this->records_of_step(mine.records, base::inside_layers(generator_, step));
    records.first_record = first;
    this->begin_average();
    this->trainer_->step(records,
                         detail::noise_of<Generator>{*this->options_.noise, &generator_, this->noise_.filter()},
                         [&] { return base::next_noise(generator_); }, {});
    this->end_average();
    this->notes_.end();
    if (this->statistic_) detail::counts_of_ranks::add_up(this->statistic_->counted, ranks);
    this->release_statistic(generator_);
    if (this->options_.adaptive_clip) this->adapt_clip();
    this->plan_next_step();
  }

 private:
  friend const step_metrics& unprotected::metrics<Network, Loss, Generator, detail::on_ranks<Executor, Ranks>, Options>(
      const dp_sgd& trainer);
  friend struct detail::checkpoint_access;
  friend struct detail::run_state_access;
  friend struct detail::checkpoint_of_ranks;
  [[nodiscard]] const step_metrics& noted() const noexcept { return this->notes_.metrics(); }

  void save(const std::string& path) const {
    this->require_loaded();
    const auto& ranks = place::held.ranks();
    this->trainer_->gather_state();
    detail::do_together(ranks, [&] {
      if (ranks.rank() == 0) detail::checkpoint_access::save(*this, path);
    });
    this->trainer_->forget_others();
  }
  void load(const std::string& path) {
    const auto& ranks = place::held.ranks();
    this->require_loaded();
    // Each rank reads a file of its own machine, perhaps an older one: nothing is changed before all have the same.
    std::string what;
    detail::do_together(ranks, [&] { what = detail::hash_of_file(path); });
    detail::agree(ranks, "a checkpoint with hash: " + what + '\n');
    const std::vector<std::string> problems =
        detail::texts_of_all(ranks, detail::problem_of([&] { detail::checkpoint_access::load(*this, path, false); }));
    const auto failed = std::ranges::count_if(problems, [](const auto& each) { return !each.empty(); });
    if (failed != 0 && static_cast<std::size_t>(failed) != problems.size()) this->is_loaded_in_part_ = true;
    detail::require_none(problems);
    this->trainer_->forget_others();
  }
  [[nodiscard]] static Options of_exact_sums(Options options) {
    if (options.individual) detail::refuse_training("individual accounting is not on ranks yet");
    if (options.certified) detail::refuse_training("the option certified is not on ranks yet");
    if (!options.lanes) options.capacity = record_capacity{0};
    return options;
  }
  /// Looks at the records of all ranks; returns how many there are. Throws on all ranks where shards overlap or leave
  /// something out, or where one rank's records do not fit.
  [[nodiscard]] std::uint64_t meet(const shard<input_value, target>& mine) {
    const auto& ranks = place::held.ranks();
    struct arrival {
      detail::shard_place records;
      std::uint64_t are_new;
      double rate;  ///< what may be set between steps
      double clip;
    };
    const arrival own{{mine.first_record, mine.records.size(), ranks.rank()},
                      this->are_new(mine.records) ? 1U : 0U,
                      this->options_.learning_rate ? this->options_.learning_rate->value() : 0,
                      this->options_.clip ? this->options_.clip->value() : 0};
    const std::vector<arrival> all = detail::values_of_all(ranks, own);
    std::vector<detail::shard_place> parts;
    bool are_new = false;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const arrival& each = all[rank];
      const bool other_rate = each.rate != all[0].rate;
      if (other_rate || each.clip != all[0].clip) {
        detail::throw_invalid_argument(
            {"pergrad: ranks: rank ", rank, " has the ", other_rate ? "learning rate " : "clip norm ",
             other_rate ? each.rate : each.clip, ", rank 0 ", other_rate ? all[0].rate : all[0].clip});
      }
      if (each.records.count > 0) parts.push_back(each.records);
      are_new = are_new || each.are_new != 0;
    }
    std::ranges::sort(parts, {}, [](const auto& each) { return std::pair{each.first, each.rank}; });
    const std::uint64_t total = detail::total_of_shards(parts);
    if (this->options_.lanes) detail::require_whole_lanes(parts, *this->options_.lanes);
    detail::do_together(ranks, [&] {
      this->require_records(total);
      this->require_fit(mine.records);
    });
    // All fit. A round, or a run with correlated noise, is of one set of records: on all ranks or on none.
    this->meet_records(are_new || parts != parts_);
    next_parts_ = std::move(parts);
    return total;
  }
  std::vector<detail::shard_place> parts_;       ///< of the last step
  std::vector<detail::shard_place> next_parts_;  ///< of the one that comes
  Generator generator_;
};

template <executor Executor, class Network, class Loss, trainer_options Options, communicator Ranks>
dp_sgd(const Executor&, Network&, Loss, const Options&, const Ranks&)
    -> dp_sgd<Network, Loss, os_keyed_generator, detail::on_ranks<Executor, Ranks>, Options>;
template <executor Executor, class Network, class Loss, trainer_options Options, communicator Ranks,
          random_generator Generator>
dp_sgd(const Executor&, Network&, Loss, const Options&, const Ranks&, Generator)
    -> dp_sgd<Network, Loss, Generator, detail::on_ranks<Executor, Ranks>, Options>;

namespace detail {
struct checkpoint_of_ranks {
  template <class Trainer>
  static void save(const Trainer& trainer, const std::string& path) {
    trainer.save(path);
  }
  template <class Trainer>
  static void load(Trainer& trainer, const std::string& path) {
    trainer.load(path);
  }
};
}  // namespace detail

/// The same of a trainer on ranks, on all of them: rank 0 writes the file, with which any number of ranks can go on.
/// Every rank reads it, by the path that it is told; std::invalid_argument on all ranks if the files' bytes differ. If
/// one of them fails, all end with rank_failed. Nothing is changed then; where a disk fails so late that some ranks
/// have changed, their trainers take no step any more.
template <class Network, class Loss, class Generator, class Executor, class Ranks, class Options>
void save_checkpoint(const dp_sgd<Network, Loss, Generator, detail::on_ranks<Executor, Ranks>, Options>& trainer,
                     const std::string& path) {
  detail::checkpoint_of_ranks::save(trainer, path);
}
template <class Network, class Loss, class Generator, class Executor, class Ranks, class Options>
void load_checkpoint(dp_sgd<Network, Loss, Generator, detail::on_ranks<Executor, Ranks>, Options>& trainer,
                     const std::string& path) {
  detail::checkpoint_of_ranks::load(trainer, path);
}

namespace unprotected {

/// On ranks nothing in a checkpoint is private: as `save_checkpoint`.
template <class Network, class Loss, class Generator, class Executor, class Ranks, class Options>
void save_checkpoint(
    const dp_sgd<Network, Loss, Generator, pergrad::detail::on_ranks<Executor, Ranks>, Options>& trainer,
    const std::string& path) {
  pergrad::detail::checkpoint_of_ranks::save(trainer, path);
}
/// In one process: `save_checkpoint` there writes today's form, with which ranks go on.
template <class Network, class Loss, class Generator, class Executor, class Ranks, class Options>
void load_older_checkpoint(dp_sgd<Network, Loss, Generator, pergrad::detail::on_ranks<Executor, Ranks>, Options>&,
                           const std::string&) = delete;

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
