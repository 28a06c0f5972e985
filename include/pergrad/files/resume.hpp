// SPDX-License-Identifier: Apache-2.0
// pergrad/files/resume.hpp - a run to and from a file: parameters, the optimizer's state, and what was spent
//
// With parameters alone a run that goes on would forget its momentum and, worse, its ledger: its epsilon would be that
// of its last part. Keys are not written, so the next part draws a new one and no noise is ever used twice. Everything
// in the file follows from released values and public numbers.
//
// run_file.hpp says what is in the file, run_state.hpp what options add to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/detail/file.hpp>
#include <pergrad/files/older_files.hpp>
#include <pergrad/files/parameter_names.hpp>
#include <pergrad/files/parameters.hpp>
#include <pergrad/files/run_file.hpp>
#include <pergrad/files/run_state.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/pld_accountant.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/train/dp_sgd.hpp>
#include <pergrad/train/private_loop.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct checkpoint_access {
  /// The network's memory, then the optimizer's arrays; `Byte` is std::byte, or const.
  template <class Byte, class Network, class Optimizer>
  [[nodiscard]] static std::vector<Byte*> arrays(Network& network, Optimizer& optimizer) {
    std::vector<Byte*> all{reinterpret_cast<Byte*>(network.all_parameters().data())};
    for (const auto part : optimizer.state()) all.push_back(reinterpret_cast<Byte*>(part.data()));
    if constexpr (requires { optimizer.noise_share(); })
      all.push_back(reinterpret_cast<Byte*>(optimizer.noise_share()));
    if constexpr (requires { optimizer.more; }) {
      all.insert(all.end(), optimizer.more->places.begin(), optimizer.more->places.end());
    }
    return all;
  }
  template <class Network, class Optimizer>
  [[nodiscard]] static run_layout layout(Optimizer& optimizer) {
    run_layout made;
    made.structure = structure_hash<Network>(true);
    made.optimizer = optimizer.kind();
    made.tensors = parameter_tensors<Network>();
    const std::size_t count = made.tensors.size();
    made.arrays.resize(count);
    std::size_t array = 0;
    for (const auto part : optimizer.state()) {
      const std::string prefix = std::string{"optimizer."} + Optimizer::state_names[array++] + ".";
      for (std::size_t i = 0; i < count; ++i) {
        if (made.tensors[i].begin >= part.size_bytes()) continue;  // not trained, or nothing is remembered
        made.tensors.push_back(made.tensors[i]);
        made.tensors.back().name.insert(0, prefix);
        made.arrays.push_back(array);
      }
    }
    if constexpr (requires { optimizer.noise_share(); }) {
      ++array;
      if (optimizer.noise_share() != nullptr) {
        made.tensors.push_back({"optimizer.noise", "F64", {}, 0, 8});
        made.arrays.push_back(array);
      }
    }
    if constexpr (requires { optimizer.more; }) {
      for (const safetensors::tensor& each : optimizer.more->tensors) {
        made.tensors.push_back(each);
        made.arrays.push_back(++array);
      }
    }
    return made;
  }
  /// A trainer's optimizer, and what else the trainer remembers.
  template <class Optimizer, class Check>
  struct with_state {
    Optimizer& of;
    run_state* more;
    Check check;  ///< throws for numbers of a file that cannot be
    with_state(Optimizer& optimizer, run_state* state, Check of_numbers)
        : of{optimizer}, more{state}, check{std::move(of_numbers)} {}
    static constexpr auto state_names = Optimizer::state_names;
    [[nodiscard]] auto kind() const noexcept { return of.kind(); }
    [[nodiscard]] auto state() noexcept { return of.state(); }
    [[nodiscard]] std::uint64_t* count() noexcept { return of.count(); }
    [[nodiscard]] double* noise_share() noexcept {
      if constexpr (requires { of.noise_share(); }) return of.noise_share();
      return nullptr;
    }
  };

  template <class Network, class Optimizer, class Accountant>
  static void save(const Network& network, Optimizer& optimizer, const Accountant& accountant, const std::string& path,
                   run_numbers<typename Accountant::event_type> run = {}) {
    const std::uint64_t* const steps = optimizer.count();
    if constexpr (has_a_plan<Accountant>) {
      run.plan = accountant.plan();
      run.order = accountant.order();
      run.ledger.assign(accountant.accountant().ledger().begin(), accountant.accountant().ledger().end());
    } else {
      run.ledger.assign(accountant.ledger().begin(), accountant.ledger().end());
    }
    run.optimizer_steps = steps != nullptr ? *steps : 0;
    write_run(path, layout<Network>(optimizer), arrays<const std::byte>(network, optimizer), run);
  }

  struct gone_on {
    std::uint64_t given_out = 0;  ///< steps of the generator
    run_place place{};
    std::string round{};
    std::vector<std::uint64_t> noise{};
  };
  /// Reads first and changes then: nothing is changed if anything is wrong. `is_in_part` is true from the first change.
  template <class Network, class Optimizer, class Accountant>
  static gone_on restore(Network& network, Optimizer& optimizer, Accountant& accountant, const std::string& path,
                         wanted_run asked, const auto& require_place, bool& is_in_part) {
    if (accountant.steps() != 0) {
      throw std::logic_error("pergrad: load_checkpoint: " + std::to_string(accountant.steps()) +
                             " steps were taken already, and what they spent would be forgotten");
    }
    if constexpr (has_a_plan<Accountant>) asked.plan = accountant.plan();
    if (asked.older && asked.plan != run_plan::beforehand) {
      fail_with_file(path, "a run of version 0.1 was planned beforehand, and this one is planned on the way");
    }
    using event = typename Accountant::event_type;
    std::pair<loaded_bytes, run_numbers<event>> read;
    if (!asked.older) {
      read = read_run<event>(path, layout<Network>(optimizer), asked);
    } else if constexpr (std::is_same_v<event, sampled_gaussian_event>) {
      if (asked.unit != "record") {
        fail_with_file(path, "a run of version 0.1 counted records, and this one counts each " + asked.unit);
      }
      read = read_older<Network>(optimizer, path);
    } else {
      fail_with_file(path, "a run of version 0.1 drew its records by Poisson sampling");
    }
    const auto& [loaded, run] = read;
    require_ledger(path, run);
    require_place(run);
    Accountant goes_on = accountant;
    for (const ledger_entry<event>& entry : run.ledger) goes_on.record(entry.event, entry.count);
    if constexpr (has_a_plan<Accountant>) {
      if (run.order != 0) goes_on.fix_order(run.order);
    }
    const auto places = arrays<std::byte>(network, optimizer);
    if constexpr (requires { optimizer.more; }) {
      optimizer.more->take_numbers(loaded, places.size() - optimizer.more->places.size());
      optimizer.check();
    }
    gone_on made{run.generator_steps, run.place.value_or(run_place{}), run.round,
                 run.noise.value_or(std::vector<std::uint64_t>{})};
    is_in_part = true;
    accountant.swap(goes_on);
    loaded.put(places);
    if (std::uint64_t* const count = optimizer.count()) *count = run.optimizer_steps;
    return made;
  }
  template <class Network, class Optimizer>
  [[nodiscard]] static auto read_older(Optimizer& optimizer, const std::string& path) {
    if constexpr (requires { optimizer.noise_share(); }) {
      if (optimizer.noise_share() != nullptr) {
        fail_with_file(path,
                       "a run of version 0.1 had no noise_floor: nothing tells what noise is in its second moment");
      }
    }
    constexpr std::size_t width = sizeof(typename Network::scalar);
    std::vector<std::size_t> sizes{width * (Network::parameter_count + Network::frozen_parameter_count)};
    for (const auto part : optimizer.state()) sizes.push_back(part.size_bytes());
    return read_older_run(path, {sizes.data(), sizes.size()}, width);
  }
  template <class Run>
  [[nodiscard]] static constexpr const char* unit_of() {
    if constexpr (requires { Run::unit_of_privacy; }) return Run::unit_of_privacy;
    return "record";
  }
  /// A new key has no step behind it; a seed that is given again has, and must not repeat their noise. What is left of
  /// a round belongs to the key that began it: with a new one a new round begins.
  template <class Run>
  static void go_on(Run& run, const gone_on& from) {
    run.place_ = from.place;
    if constexpr (Run::is_private) {
      run.place_.position = 0;
      run.place_.run = step_of_the_run;
    } else {
      // A round that other options have paid is not this one's, and a place in one of other batches means nothing here.
      const auto is_paid = [&](const auto& entry) { return entry.event == run.event_ && entry.count > 0; };
      if (from.round != round_of(run) || !std::ranges::any_of(run.accountant_.accountant().ledger(), is_paid)) {
        run.place_.position = 0;
      }
      run.generator_ = seeded_generator{run.generator_.seed(), std::max(run.generator_.step(), from.given_out)};
    }
    if constexpr (requires { run.options_.schedules; }) {
      run_state_access::plan(run);
    } else {
      run.accountant_.prepare(run.event_);  // how many steps are left
    }
    if constexpr (Run::is_correlated) go_on_with_noise(run, from);
    run.is_loaded_in_part_ = false;
  }
  /// A new key's noise begins with nothing behind it; that of a seed is drawn again when the next step needs it.
  template <class Run>
  static void go_on_with_noise(Run& run, const gone_on& from) {
    if constexpr (Run::is_private) {
      run.noise_.restart(from.place.taken, {});
    } else {
      run.noise_.restart(from.noise.front(), std::span{from.noise}.subspan(1));
    }
  }
  template <class Run>
  [[nodiscard]] static std::optional<std::vector<std::uint64_t>> noise_of(const Run& run) {
    if constexpr (Run::is_correlated) {
      // Of a secret key nothing can be drawn again.
      std::vector<std::uint64_t> steps{Run::is_private ? run.place_.taken : run.noise_.before()};
      if (!Run::is_private) steps.insert(steps.end(), run.noise_.drawn().begin(), run.noise_.drawn().end());
      return steps;
    } else {
      return std::nullopt;
    }
  }
  /// What throws unless a file's place and noise can be this run's.
  template <class Run>
  [[nodiscard]] static auto place_requirement(const Run& run, const std::string& path) {
    if constexpr (Run::is_correlated) {
      return [&run, &path](const auto& numbers) {
        if (!numbers.place || !numbers.noise) fail_with_file(path, "a run of version 0.1 had no correlated noise");
        const std::uint64_t taken = numbers.place->taken;
        const auto& noise = *numbers.noise;
        if (taken > run.noise_.steps() || noise.empty() || noise.front() > taken ||
            noise.size() - 1 > taken - noise.front()) {
          fail_with_file(path, "has taken " + std::to_string(taken) +
                                   " steps, and its noise or this run's strategy is for " +
                                   std::to_string(run.noise_.steps()));
        }
      };
    } else {
      static_cast<void>(run);
      static_cast<void>(path);
      return [](const auto&) {};
    }
  }
  template <class Run>
  [[nodiscard]] static std::optional<run_place> place_of(const Run& run) {
    return keeps_place(run) ? std::optional{run.place_} : std::nullopt;
  }
  /// A hash of what a place in a round refers to: steps, batches, records, and what the round cost.
  template <class Run>
  [[nodiscard]] static std::string round_of(const Run& run) {
    safetensors::checksum sum;
    const auto add = [&](double number) { sum.add(bytes_of(&number, 1)); };
    run.tell_draws([&](const char* /*name*/, double number) { add(number); });
    if constexpr (requires { run.sampling_.records(); }) add(static_cast<double>(run.sampling_.records()));
    // No schedule changes the event of such a sampler.
    if constexpr (has_rounds<std::remove_cvref_t<decltype(run.sampling_)>>) sum.add(bytes_of(&run.event_, 1));
    return sum.text();
  }
  template <class Run>
  [[nodiscard]] static bool keeps_place(const Run& run) {
    return Run::keeps_its_place || run.most_ != Run::without_end;
  }

  /// What a file says of a run beside its ledger.
  template <class Run>
  [[nodiscard]] static auto numbers_of(const Run& run, bool has_private_numbers) {
    run_numbers<typename std::remove_cvref_t<decltype(run.accountant_)>::event_type> made;
    made.generator_steps = run.generator_.step();
    made.place = place_of(run);
    made.round = round_of(run);
    made.noise = noise_of(run);
    made.unit = unit_of<Run>();
    made.is_seeded = !Run::is_private;
    made.is_private = has_private_numbers;
    return made;
  }
  template <class Run>
  [[nodiscard]] static wanted_run asked_by(const Run& run, bool older) {
    return {.has_place = keeps_place(run),
            .has_noise = Run::is_correlated,
            .is_private = Run::is_private,
            .unit = unit_of<Run>(),
            .older = older};
  }

  template <class Trainer>
  static void save(const Trainer& trainer, const std::string& path, bool private_ones = false) {
    trainer.require_loaded();
    if (trainer.charges_ && !private_ones) {
      throw std::logic_error(
          "pergrad: save_checkpoint: what the records of individual accounting have spent is private: "
          "unprotected::save_checkpoint writes it, into a file that is not for release");
    }
    run_state more;
    run_state_access::list(more, trainer, run_state_access::records_of(trainer));
    trainer.trainer_->with_optimizer([&](auto& optimizer) {
      with_state all{optimizer, &more, [] {}};
      save(*trainer.network_, all, trainer.accountant_, path, numbers_of(trainer, trainer.charges_ != nullptr));
      return true;
    });
  }
  template <class Trainer>
  static void load(Trainer& trainer, const std::string& path, bool older) {
    trainer.require_loaded();
    if (older && trainer.charges_) {
      fail_with_file(path, "does not tell what each record has spent: individual accounting cannot go on from it");
    }
    if (older && trainer.options_.schedules.any()) {
      fail_with_file(path, "a run of version 0.1 had no schedules: nothing tells where in them it is");
    }
    run_state more;
    run_state_access::list(more, trainer, run_state_access::records_in(trainer, path));
    const gone_on from = trainer.trainer_->with_optimizer([&](auto& optimizer) {
      with_state all{optimizer, &more, [&] { run_state_access::check(more, trainer, path); }};
      return restore(*trainer.network_, all, trainer.accountant_, path, asked_by(trainer, older),
                     place_requirement(trainer, path), trainer.is_loaded_in_part_);
    });
    // A run of version 0.1 had no average: one begins, as that of a new trainer does, with the network as it is now.
    if (older && trainer.average_) trainer.average_.emplace(*trainer.network_, trainer.options_.average_decay);
    run_state_access::go_on(more, trainer);
    go_on(trainer, from);
  }
  template <class Network, class Optimizer, class Loop>
  static void save_loop(const Network& network, Optimizer& optimizer, const Loop& loop, const std::string& path) {
    require_its_network(network, loop);
    loop.require_loaded();
    save(network, optimizer, loop.accountant_, path, numbers_of(loop, false));
  }
  template <class Network, class Optimizer, class Loop>
  static void load_loop(Network& network, Optimizer& optimizer, Loop& loop, const std::string& path) {
    require_its_network(network, loop);
    loop.require_loaded();
    go_on(loop, restore(network, optimizer, loop.accountant_, path, asked_by(loop, false),
                        place_requirement(loop, path), loop.is_loaded_in_part_));
  }
  template <class Network, class Loop>
  static void require_its_network(const Network& network, const Loop& loop) {
    if (&network != loop.network_) throw std::logic_error("pergrad: a checkpoint of a loop is one of its own network");
  }
};

}  // namespace detail

/// Writes a run: the network's parameters and the optimizer's state by name, and what was spent: ledger, plan, and the
/// order of a Renyi filter. No key is written, and nothing that is private. Memory does not grow with the network. The
/// file appears whole or not at all, and is on the disk when this returns. Throws std::runtime_error that names the
/// file and says what failed.
template <class Network, class Loss, class Generator, class Executor, class Options>
void save_checkpoint(const dp_sgd<Network, Loss, Generator, Executor, Options>& trainer, const std::string& path) {
  detail::checkpoint_access::save(trainer, path);
}

/// Lets a trainer that has taken no step go on with a saved run: steps, epsilon and budget count both parts, and a
/// filter keeps its order. Its options may have other numbers; the plan, the kind of optimizer and whatever else is
/// written with a run (`average_decay`, `adaptive_clip`, `individual`, schedules, the kind of sampler and of noise)
/// must be the file's. Each step costs what its own options say. The noise's key is a new one; a seeded generator goes
/// on behind the steps that it had given out, so that a run in two parts has the bits of one. With a new key, or a
/// sampler of other numbers, a round that has begun is over: a new one begins, and is paid. No private run goes on from
/// the file of a seeded one.
///
/// Steps that were taken after the file was written are in no ledger: nothing of them may have been released.
///
/// Throws std::runtime_error that says what is wrong with the file, or that it is of another network, scalar type,
/// optimizer or plan; std::logic_error if steps were taken; nothing is changed then. Where memory ends behind the first
/// change, std::bad_alloc, and this trainer takes no step any more: make another one, and load again.
template <class Network, class Loss, class Generator, class Executor, class Options>
void load_checkpoint(dp_sgd<Network, Loss, Generator, Executor, Options>& trainer, const std::string& path) {
  detail::checkpoint_access::load(trainer, path, false);
}

/// The same for a `private_loop`, with its own network and the optimizer that takes its steps. A step that has begun is
/// in the ledger, whether it was released or not. Throws std::logic_error for another network.
template <class Network, class Optimizer, class Loss, class Generator, class Executor, class Options>
void save_checkpoint(const Network& network, Optimizer& optimizer,
                     const private_loop<Network, Loss, Generator, Executor, Options>& loop, const std::string& path) {
  detail::checkpoint_access::save_loop(network, optimizer, loop, path);
}
template <class Network, class Optimizer, class Loss, class Generator, class Executor, class Options>
void load_checkpoint(Network& network, Optimizer& optimizer,
                     private_loop<Network, Loss, Generator, Executor, Options>& loop, const std::string& path) {
  detail::checkpoint_access::load_loop(network, optimizer, loop, path);
}

namespace detail {
template <class Accountant>
concept has_a_ledger = requires {
  typename Accountant::event_type;
  requires has_a_plan<Accountant> ||
      std::is_same_v<Accountant, basic_rdp_accountant<typename Accountant::event_type>> ||
      std::is_same_v<Accountant, basic_pld_accountant<typename Accountant::event_type>>;
};
}  // namespace detail

/// The same for a training loop by hand, with a `privacy_accountant`, an `rdp_accountant` or a `pld_accountant`. A
/// seeded generator is not in the file: `seeded_generator{seed, steps}` goes on behind so many steps.
template <class Network, class Optimizer, class Accountant>
requires detail::has_a_ledger<Accountant>
void save_checkpoint(const Network& network, Optimizer& optimizer, const Accountant& accountant,
                     const std::string& path) {
  detail::checkpoint_access::save(network, optimizer, accountant, path);
}
template <class Network, class Optimizer, class Accountant>
requires detail::has_a_ledger<Accountant>
void load_checkpoint(Network& network, Optimizer& optimizer, Accountant& accountant, const std::string& path) {
  bool is_in_part = false;  // nothing behind this fails
  static_cast<void>(detail::checkpoint_access::restore(
      network, optimizer, accountant, path, {}, [](const auto&) {}, is_in_part));
}

namespace unprotected {

/// The same as `save_checkpoint`, also for individual accounting: with what each record has spent, which is private.
/// That file may be read by its owner alone.
template <class Network, class Loss, class Generator, class Executor, class Options>
void save_checkpoint(const dp_sgd<Network, Loss, Generator, Executor, Options>& trainer, const std::string& path) {
  pergrad::detail::checkpoint_access::save(trainer, path, true);
}

/// Reads a checkpoint of version 0.1, five .npy arrays, into a trainer as `load_checkpoint` does; `save_checkpoint`
/// then writes it in today's form. Nothing in such a file tells its network from another one of as many parameters, and
/// damage to its ledger may go unnoticed: the caller vouches for both. An average of parameters begins with those that
/// are read. Throws std::runtime_error also for a trainer with schedules, individual accounting or a noise floor.
template <class Network, class Loss, class Generator, class Executor, class Options>
void load_older_checkpoint(dp_sgd<Network, Loss, Generator, Executor, Options>& trainer, const std::string& path) {
  detail::checkpoint_access::load(trainer, path, true);
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
