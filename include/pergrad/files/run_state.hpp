// SPDX-License-Identifier: Apache-2.0
// pergrad/files/run_state.hpp - what a trainer's options make it remember between steps, for its file
//
// Tensors, of runs that have them: `clip.norm`, the next step's with adaptive clipping; `average.NAME` and
// `average.updates`, of the average of parameters; `individual.spent`, what each record has spent, and
// `individual.filter`, order and budget in whose units it is. The last two are private; all others are released or
// public.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/detail/file.hpp>
#include <pergrad/files/older_files.hpp>
#include <pergrad/files/parameter_names.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// Tensors of a run, and where each lies. Numbers lie in this, and are looked at before anything of a run is changed.
struct run_state {
  std::vector<safetensors::tensor> tensors;
  std::vector<std::byte*> places;
  std::vector<bool> is_number;
  double clip = 0;
  std::uint64_t updates = 0;
  double filter[2] = {0, 0};
  std::vector<std::uint64_t> spent;

  void add(safetensors::tensor tensor, void* place, bool number) {
    tensors.push_back(std::move(tensor));
    places.push_back(static_cast<std::byte*>(place));
    is_number.push_back(number);
  }
  /// Brings the numbers here; `first`: the number of the first of these arrays.
  void take_numbers(const loaded_bytes& loaded, std::size_t first) {
    for (const loaded_bytes::move& each : loaded.moves) {
      if (each.array < first || !is_number[each.array - first]) continue;
      std::memcpy(places[each.array - first] + each.to, loaded.bytes.data() + each.from, each.size);
    }
  }
};

struct run_state_access {
  /// What this trainer remembers, of so many records. Refers to itself and to the trainer.
  template <class Trainer>
  static void list(run_state& to, Trainer& trainer, std::size_t records) {
    if (trainer.options_.adaptive_clip) {
      to.clip = trainer.options_.clip->value();
      to.add({"clip.norm", "F64", {}, 0, 8}, &to.clip, true);
    }
    if (trainer.average_) {
      using network = std::remove_cvref_t<decltype(trainer.average_->network())>;
      to.updates = trainer.average_->updates_;
      to.add({"average.updates", "U64", {}, 0, 8}, &to.updates, true);
      // Those that are not trained are the network's own.
      constexpr std::size_t trained = network::parameter_count * sizeof(typename network::scalar);
      for (safetensors::tensor& each : parameter_tensors<network>()) {
        if (each.begin >= trained) continue;
        each.name.insert(0, "average.");
        const auto* const values = std::as_const(trainer.average_->average_).parameters().data();
        to.add(std::move(each), const_cast<void*>(static_cast<const void*>(values)), false);
      }
    }
    if (trainer.charges_) {
      const auto& filter = trainer.charges_->filter();
      to.filter[0] = filter.order();
      to.filter[1] = filter.rdp_budget();
      to.add({"individual.filter", "F64", {2}, 0, 16}, to.filter, true);
      to.spent.assign(filter.spent_.begin(), filter.spent_.end());
      to.spent.resize(records);
      to.add({"individual.spent", "U64", {records}, 0, 8 * records}, to.spent.data(), true);
    }
  }
  /// How many records have spent something, of a trainer, and of a file; 0 without individual accounting.
  template <class Trainer>
  [[nodiscard]] static std::size_t records_of(const Trainer& trainer) {
    return trainer.charges_ ? trainer.charges_->filter().records() : 0;
  }
  template <class Trainer>
  [[nodiscard]] static std::size_t records_in(const Trainer& trainer, const std::string& path) {
    if (!trainer.charges_ || is_npy(path)) return 0;
    const safetensors::reader opened{path};
    const safetensors::tensor* const spent = safetensors::find(opened.tensors(), "individual.spent");
    return spent == nullptr || spent->shape.size() != 1 ? 0 : spent->shape[0];
  }

  /// Throws std::runtime_error for numbers from a file that this trainer cannot have. What they need is there then:
  /// nothing behind it fails.
  template <class Trainer>
  static void check(const run_state& read, Trainer& trainer, const std::string& path) {
    if (trainer.options_.adaptive_clip && !l2_clip_norm::holds(read.clip))
      fail_with_file(path, "its clip.norm is none");
    if (!trainer.charges_) return;
    auto& filter = trainer.charges_->filter();
    if (read.filter[0] != filter.order() || read.filter[1] != filter.rdp_budget()) {
      fail_with_file(path,
                     "its records have spent from another budget, or by another order: individual accounting goes on "
                     "with the budget, noise and sampling of its first step");
    }
    for (const std::uint64_t spent : read.spent) {
      if (spent > filter.budget_) fail_with_file(path, "a record in it has spent more than its budget");
    }
    if (!read.spent.empty()) filter.begin_step(read.spent.size());
  }
  /// Behind a file's arrays: these numbers go on, and the next step is planned. `read` may lack what `list` did not
  /// add.
  template <class Trainer>
  static void go_on(run_state& read, Trainer& trainer) {
    if (trainer.options_.adaptive_clip) {
      trainer.clip_to(l2_clip_norm{read.clip});
      trainer.statistic_->counted.set_edge(read.clip);
    }
    if (trainer.average_) {
      trainer.average_->updates_ = read.updates;
      trainer.average_->take_frozen(*trainer.network_);
    }
    if (trainer.charges_ && !read.spent.empty()) {
      trainer.charges_->filter().spent_.swap(read.spent);
    }
  }
  /// Once it is known which step comes next. What is left of the schedules is proven again; where the steps before have
  /// spent too much for that, each step has to ask.
  template <class Trainer>
  static void plan(Trainer& trainer) {
    if (!trainer.options_.schedules.any()) return trainer.accountant_.prepare(trainer.event_);
    trainer.plan_next_step();
    try {
      trainer.declare_schedules();
    } catch (const std::invalid_argument&) {
      return;
    }
  }
};

}  // namespace pergrad::inline v0_1::detail
