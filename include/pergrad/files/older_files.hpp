// SPDX-License-Identifier: Apache-2.0
// pergrad/files/older_files.hpp - what is read from files before anything is changed, and NumPy's .npy files, which
// version 0.1 wrote
//
// A .npy file of parameters is the flat vector of `torch.nn.utils.parameters_to_vector`. A checkpoint of version 0.1 is
// five .npy arrays one after the other: uint64 [1, number of parameters, values of the optimizer's state, its steps,
// steps given out by the generator, entries of the ledger]; all parameters, frozen ones last; the optimizer's state;
// probability and noise multiplier of every entry; its steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/detail/file.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/train/private_run.hpp>

namespace pergrad::inline v0_1::detail {

/// Bytes that were read and looked at, and where they go: nothing is changed before all is known to be right.
struct loaded_bytes {
  struct move {
    std::size_t array;  ///< 0: the network's parameters, then the optimizer's arrays
    std::size_t from;
    std::size_t to;
    std::size_t size;
  };
  std::vector<std::byte> bytes;
  std::vector<move> moves;
  void put(std::span<std::byte* const> arrays) const noexcept {
    for (const move& each : moves) std::memcpy(arrays[each.array] + each.to, bytes.data() + each.from, each.size);
  }
};

/// The numbers of a run.
template <class Event>
struct run_numbers {
  std::vector<ledger_entry<Event>> ledger;
  run_plan plan = run_plan::beforehand;
  double order = 0;
  std::uint64_t optimizer_steps = 0;
  std::uint64_t generator_steps = 0;
  std::optional<run_place> place{};  ///< of a sampler for which it matters
  std::string round{};               ///< what makes a round of it what it is, hashed
  /// Of correlated noise: steps before it began, then the generator's steps of its noise since then, if from a seed.
  std::optional<std::vector<std::uint64_t>> noise{};
  std::string unit = "record";  ///< whose neighbours the ledger is for
  bool is_seeded = false;       ///< its noise is of a seed
  bool is_private = false;      ///< there is something in it that is not released
};
/// What a run asks of a file that it goes on from.
struct wanted_run {
  run_plan plan = run_plan::beforehand;
  bool has_place = false;
  bool has_noise = false;
  bool is_private = false;
  std::string unit = "record";
  bool older = false;  ///< of version 0.1
};
template <class Text>
void require_entries(const Text& path, std::uint64_t entries) {
  constexpr std::uint64_t most = std::uint64_t{1} << 20U;  // nobody changes sigma as often
  if (entries > most) fail_with_file(path, "has a ledger of " + std::to_string(entries) + " kinds of steps");
}

template <class Scalar>
[[nodiscard]] std::string npy_header(std::size_t count) {
  std::string dictionary = std::string{"{'descr': '<"} + (std::is_integral_v<Scalar> ? 'u' : 'f') +
                           std::to_string(sizeof(Scalar)) + "', 'fortran_order': False, 'shape': (" +
                           std::to_string(count) + ",), }";
  constexpr std::size_t preamble = 10;
  dictionary.append(63 - (preamble + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  const auto size = static_cast<std::uint16_t>(dictionary.size());
  std::string header{"\x93NUMPY\x01\x00", 8};
  header += static_cast<char>(size & 0xFFU);
  header += static_cast<char>(size >> 8U);
  return header + dictionary;
}

template <class Text>
[[nodiscard]] bool is_npy(const Text& path) {
  const file stream = open_regular_file(path);
  char magic[6];
  return std::fread(magic, 1, sizeof magic, stream.get()) == sizeof magic &&
         std::memcmp(magic, "\x93NUMPY", sizeof magic) == 0;
}

/// Reads a .npy file with the values of these tensors one after another.
template <class Text>
loaded_bytes read_npy(const Text& path, std::span<const safetensors::tensor> list) {
  loaded_bytes made;
  const file stream = open_regular_file(path);
  std::size_t size = 0;
  for (const safetensors::tensor& each : list) size += each.size;
  const std::size_t width = list.empty() || list[0].type == "F32" ? 4 : 8;
  constexpr std::size_t longest_header = 10 + 0xFFFF;
  std::vector<std::byte>& bytes = made.bytes;
  bytes.resize(longest_header + size + 1);  // one more than any right file has
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), stream.get()));
  if (std::ferror(stream.get()) != 0) fail_with_file(path, "cannot be read");
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY\x01\x00", 8) != 0) {
    fail_with_file(path, "not a .npy file of version 1.0");
  }
  const std::size_t start = 10 + std::to_integer<std::size_t>(bytes[8]) + 256 * std::to_integer<std::size_t>(bytes[9]);
  const Text dictionary{reinterpret_cast<const char*>(bytes.data()) + 10, std::min(bytes.size(), start) - 10};
  const Text type = width == 4 ? "'<f4'" : "'<f8'";
  const Text extent = "(" + std::to_string(size / width) + ",)";
  if (dictionary.find("'descr': " + type) == Text::npos || dictionary.find(extent) == Text::npos ||
      dictionary.find("'fortran_order': False") == Text::npos) {
    fail_with_file(path, "expected an array of type " + type + " and shape " + extent + ", found " +
                             dictionary.substr(0, dictionary.find_last_of('}') + 1));
  }
  const std::size_t found = bytes.size() - std::min(bytes.size(), start);
  if (found != size) {
    fail_with_file(path, "expected " + std::to_string(size) + " bytes of values at byte " + std::to_string(start) +
                             ", found " + (found > size ? "more" : std::to_string(found)));
  }
  std::size_t from = start;
  for (const safetensors::tensor& each : list) {
    made.moves.push_back({0, from, each.begin, each.size});
    from += each.size;
  }
  return made;
}

/// Reads the five .npy arrays of version 0.1: sizes; parameters, frozen ones last; the optimizer's state; events;
/// steps.
template <class Text>
[[nodiscard]] std::pair<loaded_bytes, run_numbers<sampled_gaussian_event>> read_older_run(
    const Text& path, std::span<const std::size_t> sizes, std::size_t width) {
  std::pair<loaded_bytes, run_numbers<sampled_gaussian_event>> made;
  loaded_bytes& loaded = made.first;
  auto& run = made.second;
  const file stream = open_regular_file(path);
  const auto array = [&](void* values, std::size_t value_size, const Text& header, std::size_t count,
                         const char* what) {
    Text found(header.size(), '\0');
    if (std::fread(found.data(), 1, found.size(), stream.get()) != found.size() || found != header) {
      fail_with_file(path, Text{"not a checkpoint of version 0.1: no array of "} + what);
    }
    if (std::fread(values, value_size, count, stream.get()) != count) {
      fail_with_file(path, Text{"ends within the "} + what);
    }
  };
  std::array<std::uint64_t, 6> head{};
  array(head.data(), 8, npy_header<std::uint64_t>(6), 6, "sizes");
  if (head[0] != 1) fail_with_file(path, "a checkpoint of format " + std::to_string(head[0]) + ", expected 1");
  std::size_t state_size = 0;
  for (std::size_t i = 1; i < sizes.size(); ++i) state_size += sizes[i];
  const auto require = [&](std::uint64_t found, std::size_t wanted, const char* what, const char* of) {
    if (found == wanted) return;
    fail_with_file(path, "has " + std::to_string(found) + what + ", " + of + " has " + std::to_string(wanted));
  };
  require(head[1], sizes[0] / width, " parameters", "the network");
  require(head[2], state_size / width, " values of an optimizer's state", "this optimizer");
  require_entries(path, head[5]);
  loaded.bytes.resize(sizes[0] + state_size);
  const auto header = [&](std::size_t size) {
    return width == 4 ? npy_header<float>(size / width) : npy_header<double>(size / width);
  };
  array(loaded.bytes.data(), width, header(sizes[0]), sizes[0] / width, "parameters");
  array(loaded.bytes.data() + sizes[0], width, header(state_size), state_size / width, "optimizer's state");
  std::vector<double> events(2 * head[5]);
  std::vector<std::uint64_t> steps(head[5]);
  array(events.data(), 8, npy_header<double>(events.size()), events.size(), "events");
  array(steps.data(), 8, npy_header<std::uint64_t>(steps.size()), steps.size(), "steps");
  if (std::fgetc(stream.get()) != EOF) fail_with_file(path, "is longer than a checkpoint");
  std::size_t from = 0;
  for (std::size_t i = 0; i < sizes.size(); from += sizes[i++]) {
    if (sizes[i] > 0) loaded.moves.push_back({i, from, 0, sizes[i]});
  }
  for (std::size_t i = 0; i < steps.size(); ++i) run.ledger.push_back({{events[2 * i], events[2 * i + 1]}, steps[i]});
  run.optimizer_steps = head[3];
  run.generator_steps = head[4];
  return made;
}

}  // namespace pergrad::inline v0_1::detail
