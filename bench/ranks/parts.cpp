// SPDX-License-Identifier: Apache-2.0
// bench/ranks/parts.cpp - what a rank's step of one task consists of, for model.py: TASK REPEATS
//
// One process, one thread, nothing sent. Prints JSON: the least of REPEATS in microseconds of a step of so many
// records, and of a step without a record by rank 0 of so many ranks, which has noise and update of its own stretches.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tasks.hpp"

namespace pg = pergrad;

namespace {

/// Rank 0 of many, of which the others say what it says, and do nothing.
struct played {
  std::size_t count;
  [[nodiscard]] static std::size_t rank() noexcept { return 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count; }
  static void broadcast(std::span<std::byte> /*bytes*/, std::size_t /*from*/) noexcept {}
  static void reduce_scatter(std::span<std::int64_t> /*sum*/, std::span<const std::size_t> /*places*/) noexcept {}
  void all_gather(std::span<std::byte> bytes, std::span<const std::size_t> places) const noexcept {
    const std::size_t own = places[1];
    if (own == 0 || bytes.size() != own * count || own >= 4096) return;  // parameters
    for (std::size_t i = 1; i < count; ++i) std::memcpy(bytes.data() + i * own, bytes.data(), own);
  }
};

template <class Network, class Ranks>
double least_microseconds(const task::made_up<Network>& all, std::size_t records, const Ranks& ranks, int repeats) {
  const pg::host exec{pg::threads{1}};
  const auto net = std::make_unique<Network>(exec, pg::kaiming_uniform{1});
  auto options = task::options_of(1, 256);
  options.max_batch = pg::max_batch{std::clamp<std::size_t>(records, 1, 256)};
  pg::dp_sgd trainer{exec, *net, pg::cross_entropy{}, options, ranks, pg::seeded_generator{3}};
  const pg::shard mine{all.part(0, records), 0};
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= repeats; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    trainer.step(mine);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (step > 0) least = std::min(least, took.count());  // the first one looks at the records
  }
  return least;
}

template <class Network>
void measure(const std::string& name, int repeats, std::int32_t classes) {
  const std::size_t most = name == "gpt2_layer" ? 16 : 256;
  const task::made_up<Network> all{most, classes};
  std::printf("{\"task\": \"%s\", \"parameters\": %zu, \"records\": {", name.c_str(), Network::parameter_count);
  for (std::size_t records = 1; records <= most; records *= 4) {
    std::printf("%s\"%zu\": %.2f", records == 1 ? "" : ", ", records,
                least_microseconds<Network>(all, records, pg::alone{}, repeats));
    std::fflush(stdout);
  }
  std::printf("}, \"without\": {");
  for (const std::size_t ranks : {1U, 16U, 1024U}) {
    std::printf("%s\"%zu\": %.2f", ranks == 1 ? "" : ", ", ranks,
                least_microseconds<Network>(all, 0, played{ranks}, 10 * repeats));
    std::fflush(stdout);
  }
  std::printf("}}\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc == 3 ? argv[1] : "";
  const int repeats = argc == 3 ? std::atoi(argv[2]) : 0;
  if (repeats < 1) {
    std::fprintf(stderr, "usage: parts TASK REPEATS\n");
    return 2;
  }
  try {
    if (task::with_task(name, [&]<class Network>(std::int32_t classes) { measure<Network>(name, repeats, classes); })) {
      return 0;
    }
    std::fprintf(stderr, "parts: there is no task '%s'; there are %s\n", name.c_str(), task::names);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
