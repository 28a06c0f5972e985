// SPDX-License-Identifier: Apache-2.0
// pergrad/train/resume.hpp - a run to and from a file: parameters, the optimizer's state, and what was spent
//
// With parameters alone a run that goes on would forget its momentum and, worse, its ledger: its epsilon would be that
// of its last part. Keys are not written, so the next part draws a new one and no noise is ever used twice. Everything
// in the file follows from released values and public numbers.
//
// The file is five .npy arrays one after the other, as `numpy.load` reads them from one open file: uint64 [1, number of
// parameters, values of the optimizer's state, its steps, steps given out by the generator, entries of the ledger]; all
// parameters, frozen ones last; the optimizer's state; probability and noise multiplier of every entry; its steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <pergrad/detail/file.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/rdp_accountant.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/train/checkpoint.hpp>
#include <pergrad/train/dp_sgd.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

inline constexpr std::size_t run_head_size = 6;
inline constexpr std::uint64_t run_format = 1;

/// Writes a checkpoint. Parameters and the optimizer's state stay where they lie: memory does not grow with them.
template <class Scalar>
void write_run(const std::string& path, std::span<const Scalar> parameters,
               std::span<const std::span<Scalar>> optimizer, std::uint64_t optimizer_steps,
               std::uint64_t generator_steps, std::span<const rdp_accountant::entry> ledger) {
  std::vector<double> events;
  std::vector<std::uint64_t> counts;
  for (const rdp_accountant::entry& entry : ledger) {
    if (entry.count == 0) continue;
    events.push_back(entry.event.sampling_probability);
    events.push_back(entry.event.noise_multiplier);
    counts.push_back(entry.count);
  }
  std::size_t state_count = 0;
  for (const std::span<Scalar> part : optimizer) state_count += part.size();
  const std::uint64_t head[run_head_size]{run_format,      parameters.size(), state_count,
                                          optimizer_steps, generator_steps,   counts.size()};
  const std::string headers[]{npy_header<std::uint64_t>(run_head_size), npy_header<Scalar>(parameters.size()),
                              npy_header<Scalar>(state_count), npy_header<double>(events.size()),
                              npy_header<std::uint64_t>(counts.size())};
  std::vector<byte_stretch> stretches;
  stretches.push_back(bytes_of(headers[0]));
  stretches.push_back(bytes_of(head, run_head_size));
  stretches.push_back(bytes_of(headers[1]));
  stretches.push_back(bytes_of(parameters.data(), parameters.size()));
  stretches.push_back(bytes_of(headers[2]));
  for (const std::span<Scalar> part : optimizer) stretches.push_back(bytes_of(part.data(), part.size()));
  stretches.push_back(bytes_of(headers[3]));
  stretches.push_back(bytes_of(events.data(), events.size()));
  stretches.push_back(bytes_of(headers[4]));
  stretches.push_back(bytes_of(counts.data(), counts.size()));
  write_whole_file(path, stretches);
}

/// A checkpoint's numbers, before they are taken over.
template <class Scalar>
struct run_state {
  std::vector<Scalar> parameters, optimizer;
  std::uint64_t optimizer_steps = 0, generator_steps = 0;
  std::vector<rdp_accountant::entry> ledger;

  /// Reads a file for a network and an optimizer of these sizes. Throws std::runtime_error that says what and where.
  [[nodiscard]] static run_state read(const std::string& path, std::size_t parameter_count, std::size_t state_count) {
    const auto fail = [&](const std::string& what) { throw std::runtime_error("pergrad: " + path + ": " + what); };
    const file stream = open_file(path, "rb");
    if (stream == nullptr) fail("cannot be opened");
    const auto array = [&]<class Value>(std::vector<Value>& values, std::size_t count, const char* what) {
      const std::string wanted = npy_header<Value>(count);
      std::string found(wanted.size(), '\0');
      if (std::fread(found.data(), 1, found.size(), stream.get()) != found.size() || found != wanted) {
        fail(std::string{"not a checkpoint of a run: no array of "} + what);
      }
      values.resize(count);
      if (std::fread(values.data(), sizeof(Value), count, stream.get()) != count) {
        fail(std::string{"ends within the "} + what);
      }
    };
    std::vector<std::uint64_t> head;
    array(head, run_head_size, "sizes");
    if (head[0] != run_format) fail("a checkpoint of format " + std::to_string(head[0]) + ", this version reads 1");
    const auto require = [&](std::uint64_t found, std::size_t wanted, const char* what, const char* of) {
      if (found != wanted) {
        fail("has " + std::to_string(found) + what + ", " + of + " has " + std::to_string(wanted));
      }
    };
    require(head[1], parameter_count, " parameters", "the network");
    require(head[2], state_count, " values of an optimizer's state", "this optimizer");
    constexpr std::uint64_t most_entries = std::uint64_t{1} << 20U;  // nobody changes sigma as often
    if (head[5] > most_entries) fail("has a ledger of " + std::to_string(head[5]) + " kinds of steps");

    run_state state;
    state.optimizer_steps = head[3];
    state.generator_steps = head[4];
    std::vector<double> events;
    std::vector<std::uint64_t> counts;
    array(state.parameters, parameter_count, "parameters");
    array(state.optimizer, state_count, "optimizer's state");
    array(events, 2 * head[5], "events");
    array(counts, head[5], "steps");
    if (std::fgetc(stream.get()) != EOF) fail("is longer than a checkpoint");
    std::uint64_t steps = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (!sampling_probability::holds(events[2 * i]) || !noise_multiplier::holds(events[2 * i + 1]) ||
          counts[i] > std::numeric_limits<std::uint64_t>::max() - steps) {
        fail("entry " + std::to_string(i) + " of its ledger is none");
      }
      steps += counts[i];
      state.ledger.push_back({{events[2 * i], events[2 * i + 1]}, counts[i]});
    }
    return state;
  }
};

struct checkpoint_access {
  template <class Network, class Optimizer>
  static void save(const Network& network, Optimizer& optimizer, const rdp_accountant& accountant,
                   std::uint64_t generator_steps, const std::string& path) {
    using scalar = typename Network::scalar;
    const auto state = optimizer_access::state(optimizer);
    const std::uint64_t* const steps = optimizer_access::count(optimizer);
    write_run<scalar>(path, network.all_parameters(), state, steps != nullptr ? *steps : 0, generator_steps,
                      accountant.ledger());
  }

  /// Reads first and changes then: nothing is changed if anything is wrong.
  template <class Network, class Optimizer, class Accountant>
  [[nodiscard]] static std::uint64_t restore(Network& network, Optimizer& optimizer, Accountant& accountant,
                                             const std::string& path) {
    using scalar = typename Network::scalar;
    if (accountant.steps() != 0) {
      throw std::logic_error("pergrad: load_checkpoint: " + std::to_string(accountant.steps()) +
                             " steps were taken already, and what they spent would be forgotten");
    }
    const auto parts = optimizer_access::state(optimizer);
    std::size_t state_count = 0;
    for (const std::span<scalar> part : parts) state_count += part.size();
    const auto run = run_state<scalar>::read(path, network.all_parameters().size(), state_count);
    for (const rdp_accountant::entry& entry : run.ledger) accountant.record(entry.event, entry.count);
    std::ranges::copy(run.parameters, network.all_parameters().begin());
    auto next = run.optimizer.begin();
    for (const std::span<scalar> part : parts) {
      std::copy_n(next, part.size(), part.begin());
      next += static_cast<std::ptrdiff_t>(part.size());
    }
    if (std::uint64_t* const count = optimizer_access::count(optimizer)) *count = run.optimizer_steps;
    return run.generator_steps;
  }

  template <class Trainer>
  static void save(const Trainer& trainer, const std::string& path) {
    std::visit(
        [&](auto& optimizer) {
          save(*trainer.network_, optimizer, trainer.accountant_.accountant(), trainer.generator_.step(), path);
        },
        trainer.part_->optimizer);
  }
  template <class Trainer>
  static void load(Trainer& trainer, const std::string& path) {
    const std::uint64_t given_out =
        std::visit([&](auto& optimizer) { return restore(*trainer.network_, optimizer, trainer.accountant_, path); },
                   trainer.part_->optimizer);
    // A new key has no step behind it; a seed that is given again has, and must not repeat their noise.
    auto& generator = trainer.generator_;
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(generator)>, seeded_generator>) {
      generator = seeded_generator{generator.seed(), std::max(generator.step(), given_out)};
    } else if constexpr (!Trainer::is_private) {
      while (generator.step() < given_out) static_cast<void>(generator.next_step());
    }
  }
};

}  // namespace detail

/// Writes a run: the network's parameters, frozen ones last, the optimizer's state, and what was spent. No key is
/// written, and nothing that is private. Memory does not grow with the network. The file appears whole or not at all.
/// Throws std::runtime_error that names the file and says what failed. Trainers on a device cannot be saved yet.
template <class Network, class Loss, class Generator, class Executor>
requires(!dp_sgd<Network, Loss, Generator, Executor>::on_a_device) void save_checkpoint(
    const dp_sgd<Network, Loss, Generator, Executor>& trainer, const std::string& path) {
  detail::checkpoint_access::save(trainer, path);
}

/// Lets a trainer that has taken no step go on with a saved run: steps, epsilon and budget count both parts. Its
/// options may be others but for the kind of optimizer; each step costs what its own options say. The noise's key is a
/// new one; a seeded generator goes on behind the steps that it had given out, so that a run in two parts has the bits
/// of one.
///
/// Steps that were taken after the file was written are in no ledger: nothing of them may have been released.
///
/// Throws std::runtime_error that says what is wrong with the file, std::logic_error if steps were taken; nothing is
/// changed then.
template <class Network, class Loss, class Generator, class Executor>
requires(!dp_sgd<Network, Loss, Generator, Executor>::on_a_device) void load_checkpoint(
    dp_sgd<Network, Loss, Generator, Executor>& trainer, const std::string& path) {
  detail::checkpoint_access::load(trainer, path);
}

/// The same for a training loop by hand. A seeded generator is not in the file: `seeded_generator{seed, steps}` goes on
/// behind so many steps.
template <class Network, class Optimizer>
void save_checkpoint(const Network& network, Optimizer& optimizer, const rdp_accountant& accountant,
                     const std::string& path) {
  detail::checkpoint_access::save(network, optimizer, accountant, 0, path);
}
template <class Network, class Optimizer>
void load_checkpoint(Network& network, Optimizer& optimizer, rdp_accountant& accountant, const std::string& path) {
  static_cast<void>(detail::checkpoint_access::restore(network, optimizer, accountant, path));
}

}  // namespace pergrad::inline v0_1
