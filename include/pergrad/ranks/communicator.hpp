// SPDX-License-Identifier: Apache-2.0
// pergrad/ranks/communicator.hpp - what a trainer asks of those processes, or threads, that train one network together
//
// All members are collective: each rank calls them in the same order. Sums are of integers, so their order does not
// matter; what is gathered keeps its place. Nothing here knows a network.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>

namespace pergrad::inline v0_1 {

/// Another rank has failed, with its message, or did not come in time.
class rank_failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Those who run the same program together. `rank()`: 0, 1, ... `size() - 1`. `places` are size() + 1 numbers that rise
/// from 0 to the length of the span: rank r's part lies from places[r] to before places[r + 1].
///
///   broadcast(bytes, from)        what rank `from` has there, all have then
///   reduce_scatter(sum, places)   each rank has the sum of all ranks in its part then; the rest is undefined
///   all_gather(bytes, places)     each rank's part is everybody's then
template <class Type>
concept communicator = requires(const Type& ranks, std::span<std::byte> bytes, std::span<std::int64_t> sum,
                                std::span<const std::size_t> places, std::size_t from) {
  { ranks.rank() } -> std::same_as<std::size_t>;
  { ranks.size() } -> std::same_as<std::size_t>;
  ranks.broadcast(bytes, from);
  ranks.reduce_scatter(sum, places);
  ranks.all_gather(bytes, places);
};

/// One process that nobody helps. Costs nothing.
struct alone {
  [[nodiscard]] static std::size_t rank() noexcept { return 0; }
  [[nodiscard]] static std::size_t size() noexcept { return 1; }
  static void broadcast(std::span<std::byte> /*bytes*/, std::size_t /*from*/) noexcept {}
  static void reduce_scatter(std::span<std::int64_t> /*sum*/, std::span<const std::size_t> /*places*/) noexcept {}
  static void all_gather(std::span<std::byte> /*bytes*/, std::span<const std::size_t> /*places*/) noexcept {}
};

namespace detail {

/// How long a rank waits, as clocks can count it: of `milliseconds::max()` the nanoseconds overflow.
[[nodiscard]] inline std::chrono::milliseconds patience_of(std::chrono::milliseconds given) {
  constexpr std::chrono::milliseconds least{0};
  constexpr std::chrono::milliseconds most = std::chrono::hours{24 * 365};
  return std::clamp(given, least, most);
}
/// Parts of equal length, in bytes.
[[nodiscard]] inline std::vector<std::size_t> equal_places(std::size_t ranks, std::size_t each) {
  std::vector<std::size_t> places(ranks + 1);
  for (std::size_t i = 0; i <= ranks; ++i) places[i] = i * each;
  return places;
}
/// What every rank says, in their order.
template <communicator Ranks, class Value>
[[nodiscard]] std::vector<Value> values_of_all(const Ranks& ranks, const Value& own) {
  std::vector<Value> all(ranks.size());
  all[ranks.rank()] = own;
  ranks.all_gather(std::as_writable_bytes(std::span{all}), equal_places(ranks.size(), sizeof(Value)));
  return all;
}
/// The same of texts. `any` is false where all are empty, which costs no second exchange.
template <communicator Ranks>
[[nodiscard]] std::vector<std::string> texts_of_all(const Ranks& ranks, const std::string& own) {
  const std::vector<std::uint64_t> sizes = values_of_all(ranks, static_cast<std::uint64_t>(own.size()));
  std::vector<std::size_t> places(ranks.size() + 1);
  for (std::size_t i = 0; i < ranks.size(); ++i) places[i + 1] = places[i] + sizes[i];
  std::vector<std::string> texts(ranks.size());
  if (places.back() == 0) return texts;
  std::string all(places.back(), ' ');
  std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(places[ranks.rank()]));
  ranks.all_gather(std::as_writable_bytes(std::span{all}), places);
  for (std::size_t i = 0; i < ranks.size(); ++i) texts[i] = all.substr(places[i], sizes[i]);
  return texts;
}
/// Throws rank_failed with what the first rank says that says anything.
inline void require_none(const std::vector<std::string>& problems) {
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    throw rank_failed("pergrad: rank " + std::to_string(rank) + " of " + std::to_string(problems.size()) +
                      " failed: " + problems[rank]);
  }
}
/// What f() throws, as a text; empty if it does not.
template <class Function>
[[nodiscard]] std::string problem_of(Function&& f) {
  try {
    f();
  } catch (const std::exception& thrown) {
    const std::string problem = thrown.what();
    return problem.empty() ? "an exception without a text" : problem;
  } catch (...) {  // a loss may throw anything, and the other ranks wait for a word of this one
    return "something was thrown that is no std::exception";
  }
  return {};
}
/// All ranks go on, or none: throws rank_failed on every rank with what the first one says that says anything.
template <communicator Ranks>
void go_on_together(const Ranks& ranks, const std::string& problem) {
  require_none(texts_of_all(ranks, problem));
}
/// Calls f() on every rank. If it throws on any, all ranks end with that one's message.
template <communicator Ranks, class Function>
void do_together(const Ranks& ranks, Function&& f) {
  go_on_together(ranks, problem_of(f));
}
/// A text `name: value` a line, which must be the same on all ranks. Throws std::invalid_argument on every rank, which
/// names the first line and the first rank that differ from rank 0.
template <communicator Ranks>
void agree(const Ranks& ranks, const std::string& lines) {
  const std::vector<std::string> texts = texts_of_all(ranks, lines);
  const auto line_of = [](const std::string& text, std::size_t& at) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(std::min(at, text.size()), end - std::min(at, text.size()));
    at = end + 1;
    return line;
  };
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    std::size_t here = 0;
    std::size_t there = 0;
    std::string first;
    std::string other;
    do {
      first = line_of(texts[0], here);
      other = line_of(texts[rank], there);
    } while (first == other && (here < texts[0].size() || there < texts[rank].size()));
    throw_invalid_argument(
        {"pergrad: ranks do not train the same: rank 0 has ", first.c_str(), ", rank ", rank, " has ", other.c_str()});
  }
}

}  // namespace detail
}  // namespace pergrad::inline v0_1
