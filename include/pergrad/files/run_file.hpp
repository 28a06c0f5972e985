// SPDX-License-Identifier: Apache-2.0
// pergrad/files/run_file.hpp - the file of a run: its tensors and metadata, written and read
//
// The file is a safetensors file. Tensors: `ledger.events`, the numbers of every kind of step (a sampling probability
// and a noise multiplier of Poisson sampling); `ledger.steps`, how many there were; `ledger.order`, that of a Renyi
// filter, or 0; `optimizer.steps`; `generator.steps`, those given out; `sampling.place`, where in a round of its
// sampler the run is, if that matters; `noise.steps`, of correlated noise: how many steps it had behind it when it
// began, and, of a seed, the generator's steps since then. Noise itself is a secret and in no file: one of a new key
// begins anew (privacy/correlated/filter.hpp), one of a seed is drawn again. Then `optimizer.ARRAY.NAME`, with
// PyTorch's names of an optimizer's arrays; `optimizer.noise`, what DP-AdamBC takes off; and the parameters. Metadata:
// the optimizer, the run's plan, which events the ledger holds, whose data a unit of privacy is, a hash of what makes a
// round of the sampler, if that matters, whether noise is of a seed, and a hash of the network's structure.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/detail/file.hpp>
#include <pergrad/files/older_files.hpp>
#include <pergrad/files/parameter_names.hpp>
#include <pergrad/files/parameters.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/train/private_run.hpp>

namespace pergrad::inline v0_1::detail {

/// What a run's file must fit: the tensors that it has but for its ledger, in arrays 0, 1, ... of memory.
struct run_layout {
  std::vector<safetensors::tensor> tensors;
  std::vector<std::size_t> arrays;  ///< of each tensor
  std::string structure;
  std::string optimizer;
};
[[nodiscard]] inline const char* name_of(run_plan plan) noexcept {
  return plan == run_plan::beforehand ? "beforehand" : "on the way";
}
/// An event is doubles and nothing else.
template <class Event>
inline constexpr std::size_t numbers_of = sizeof(Event) / sizeof(double);
template <class Accountant>
concept has_a_plan = std::is_same_v<Accountant, basic_privacy_accountant<typename Accountant::event_type>>;
/// The tensors of these numbers, ledger first; `run_values` has their bytes.
template <class = void>
[[nodiscard]] std::vector<safetensors::tensor> run_tensors(std::size_t entries, std::size_t numbers, bool has_place,
                                                           std::optional<std::size_t> noise) {
  std::vector<safetensors::tensor> tensors{{"ledger.events", "F64", {entries, numbers}, 0, 8 * numbers * entries},
                                           {"ledger.steps", "U64", {entries}, 0, 8 * entries},
                                           {"ledger.order", "F64", {}, 0, 8},
                                           {"optimizer.steps", "U64", {}, 0, 8},
                                           {"generator.steps", "U64", {}, 0, 8}};
  if (has_place) tensors.push_back({"sampling.place", "U64", {sizeof(run_place) / 8}, 0, sizeof(run_place)});
  if (noise) tensors.push_back({"noise.steps", "U64", {*noise}, 0, 8 * *noise});
  return tensors;
}

/// Writes a checkpoint. Parameters and the optimizer's state stay where they lie: memory does not grow with them.
template <class Text, class Event>
void write_run(const Text& path, const run_layout& layout, std::span<const std::byte* const> arrays,
               const run_numbers<Event>& run) {
  std::vector<Event> events;
  std::vector<std::uint64_t> steps;
  for (const ledger_entry<Event>& entry : run.ledger) {
    if (entry.count == 0) continue;
    events.push_back(entry.event);
    steps.push_back(entry.count);
  }
  std::vector<safetensors::tensor> tensors = run_tensors(steps.size(), numbers_of<Event>, run.place.has_value(),
                                                         run.noise ? std::optional{run.noise->size()} : std::nullopt);
  std::vector<const std::byte*> values;
  for (const void* each : {static_cast<const void*>(events.data()), static_cast<const void*>(steps.data()),
                           static_cast<const void*>(&run.order), static_cast<const void*>(&run.optimizer_steps),
                           static_cast<const void*>(&run.generator_steps)}) {
    values.push_back(static_cast<const std::byte*>(each));
  }
  if (run.place) values.push_back(reinterpret_cast<const std::byte*>(&*run.place));
  if (run.noise) values.push_back(reinterpret_cast<const std::byte*>(run.noise->data()));
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    tensors.push_back(layout.tensors[i]);
    values.push_back(arrays[layout.arrays[i]] + layout.tensors[i].begin);
  }
  safetensors::metadata_list metadata{{"pergrad", run_format},         {"structure", layout.structure},
                                      {"optimizer", layout.optimizer}, {"plan", name_of(run.plan)},
                                      {"events", Event::name},         {"unit", run.unit}};
  if (run.place) metadata.emplace_back("round", run.round);
  if (run.is_seeded) metadata.emplace_back("key", "seed");
  safetensors::write(path, metadata, tensors, values, run.is_private);
}

/// Throws std::runtime_error unless a ledger of this can be.
template <class Text, class Event>
void require_ledger(const Text& path, const run_numbers<Event>& run) {
  std::uint64_t steps = 0;
  for (std::size_t i = 0; i < run.ledger.size(); ++i) {
    const auto& [event, count] = run.ledger[i];
    bool is_one = count <= std::numeric_limits<std::uint64_t>::max() - steps;
    try {
      require_event(event);
    } catch (const std::invalid_argument&) {
      is_one = false;
    }
    if (!is_one) fail_with_file(path, "entry " + std::to_string(i) + " of its ledger is none");
    steps += count;
  }
  const bool is_fixed = run.order > 1 && std::isfinite(run.order);
  if (run.plan == run_plan::beforehand ? run.order != 0 : !is_fixed && (run.order != 0 || steps != 0)) {
    fail_with_file(path, "the order of its ledger is none for a run that is planned " + Text{name_of(run.plan)});
  }
}

/// Reads a checkpoint whole, and looks at everything. Throws std::runtime_error that says what is wrong, and where.
template <class Event, class Text>
[[nodiscard]] std::pair<loaded_bytes, run_numbers<Event>> read_run(const Text& path, const run_layout& layout,
                                                                   const wanted_run& asked) {
  if (is_npy(path)) {
    fail_with_file(path,
                   "a checkpoint of version 0.1, which neither names nor a checksum protect: "
                   "unprotected::load_older_checkpoint reads it, save_checkpoint writes it anew");
  }
  safetensors::reader opened{path};
  require_format(opened, run_format);
  const auto require = [&](const char* key, const Text& wanted, const char* whose) {
    const Text* const found = opened.metadata(key);
    if (found == nullptr) opened.fail(Text{"not a checkpoint of a run: its metadata have no "} + key);
    if (*found != wanted) {
      opened.fail(Text{"its "} + key + " is " + found->substr(0, 80) + ", " + whose + " is " + wanted);
    }
  };
  require("pergrad", run_format, "this version's");
  require("optimizer", layout.optimizer, "this one's");
  require("plan", name_of(asked.plan), "this run's");
  if (opened.metadata("events") != nullptr || !std::is_same_v<Event, sampled_gaussian_event>) {
    require("events", Event::name, "this sampler's");
  }
  if (asked.is_private && opened.metadata("key") != nullptr) {
    opened.fail("its noise is of a seed, and whoever knows that can subtract it: no private run goes on from there");
  }
  if (opened.metadata("unit") != nullptr || asked.unit != "record") require("unit", asked.unit, "this sampler's");
  const safetensors::tensor* const steps = safetensors::find(opened.tensors(), "ledger.steps");
  const std::size_t entries = steps == nullptr || steps->shape.size() != 1 ? 0 : steps->shape[0];
  require_entries(path, entries);
  std::optional<std::size_t> noise;
  if (asked.has_noise) {
    const safetensors::tensor* const found = safetensors::find(opened.tensors(), "noise.steps");
    noise =
        found == nullptr || found->shape.size() != 1 || found->shape[0] > std::uint64_t{1} << 25U ? 1 : found->shape[0];
  }
  std::vector<typename basic_safetensors<Text>::tensor> wanted =
      run_tensors(entries, numbers_of<Event>, asked.has_place, noise);
  wanted.insert(wanted.end(), layout.tensors.begin(), layout.tensors.end());
  const Text differences = safetensors::differences(opened.tensors(), "the file", wanted, "this run", true);
  if (!differences.empty()) opened.fail("does not fit the network and its optimizer: " + differences);
  if (opened.metadata("structure") == nullptr) opened.fail("not a checkpoint of a run: its metadata have no structure");
  require_structure(opened, layout.structure, "");

  std::pair<loaded_bytes, run_numbers<Event>> made;
  loaded_bytes& loaded = made.first;
  run_numbers<Event>& run = made.second;
  loaded.bytes = opened.read_values();
  const auto begin_of = [&](std::string_view name) {
    const safetensors::tensor* const found = safetensors::find(opened.tensors(), name);
    if (found == nullptr) opened.fail("lacks a tensor");  // no, all were compared
    return found->begin;
  };
  const auto value = [&]<class Value>(Value& to, const char* name, std::size_t index) {
    const std::size_t begin = begin_of(name);
    std::memcpy(&to, loaded.bytes.data() + begin + index * sizeof to, sizeof to);
  };
  run.plan = asked.plan;
  run.ledger.resize(entries);
  for (std::size_t i = 0; i < entries; ++i) {
    value(run.ledger[i].event, "ledger.events", i);
    value(run.ledger[i].count, "ledger.steps", i);
  }
  value(run.order, "ledger.order", 0);
  value(run.optimizer_steps, "optimizer.steps", 0);
  value(run.generator_steps, "generator.steps", 0);
  if (asked.has_place) value(run.place.emplace(), "sampling.place", 0);
  if (const Text* const round = opened.metadata("round")) run.round = *round;
  if (asked.has_noise) {
    run.noise.emplace(*noise);
    for (std::size_t i = 0; i < *noise; ++i) value((*run.noise)[i], "noise.steps", i);
  }
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const safetensors::tensor& each = layout.tensors[i];
    loaded.moves.push_back({layout.arrays[i], begin_of(each.name), each.begin, each.size});
  }
  return made;
}

}  // namespace pergrad::inline v0_1::detail
