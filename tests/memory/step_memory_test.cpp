// SPDX-License-Identifier: Apache-2.0
// tests/memory/step_memory_test.cpp - the memory that a step writes: what the batch and privacy add to it
//
// The program's heap fills large blocks with a pattern; pages that no longer hold it were written. A room of its own,
// as a program has one heap.
#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace {

constexpr std::size_t page = 4096;
constexpr unsigned char pattern = 0xA5;

struct block {
  std::atomic<unsigned char*> first{nullptr};
  std::size_t pages = 0;
};
std::array<block, 256> blocks;
std::atomic<bool> watches{false};

/// Whole pages, so that blocks share none.
unsigned char* reserve(std::size_t bytes, std::size_t alignment) noexcept {
  const std::size_t unit = alignment < page ? page : alignment;
  auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(unit, (bytes / unit + 1) * unit));
  if (memory == nullptr || !watches) return memory;
  std::memset(memory, pattern, bytes);
  for (block& each : blocks) {
    unsigned char* none = nullptr;
    if (!each.first.compare_exchange_strong(none, memory)) continue;
    each.pages = bytes / page;
    return memory;
  }
  std::abort();
}
void release(void* memory) noexcept {
  for (block& each : blocks) {
    auto* mine = static_cast<unsigned char*>(memory);
    if (memory != nullptr && each.first.compare_exchange_strong(mine, nullptr)) break;
  }
  std::free(memory);
}
std::size_t written_bytes() {
  constexpr auto fresh = [] {
    std::array<unsigned char, page> bytes{};
    for (unsigned char& each : bytes) each = pattern;
    return bytes;
  }();
  std::size_t count = 0;
  for (const block& each : blocks) {
    for (std::size_t k = 0; each.first != nullptr && k < each.pages; ++k) {
      count += std::memcmp(each.first + k * page, fresh.data(), page) != 0 ? page : 0;
    }
  }
  return count;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return reserve(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  release(memory);
}

BOOST_AUTO_TEST_SUITE(step_memory)

namespace {

namespace pg = pergrad;

/// Late gradients, minimal filtering, both kinds of slots.
using filtered = pg::network<pg::shape{32, 16, 16}, pg::conv2d<64, 3, pg::padding<1>>, pg::relu, pg::avg_pool2d<2>,
                             pg::conv2d<128, 3, pg::padding<1>>, pg::relu, pg::conv2d<192, 3, pg::padding<1>>, pg::relu,
                             pg::avg_pool2d<4>, pg::flatten, pg::linear<3>>;

/// Bytes that network, tape, optimizer and two steps write, apart from the batch.
template <class Network, bool Private, class Loss = pg::cross_entropy>
std::size_t bytes_of_steps(std::size_t count, std::size_t threads) {
  using value = typename Network::input_value;
  std::vector<value> inputs(count * Network::input_shape.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = std::is_integral_v<value> ? static_cast<value>(i * 7 % 13)
                                          : static_cast<value>(static_cast<float>(i * 7 % 13) / 13 - 0.4F);
  }
  const std::vector<std::int32_t> labels(count * Loss::target_count(Network::output_shape), 1);
  watches = true;
  std::size_t result = 0;
  {
    using sum_type = std::conditional_t<Private, pg::bounded_total<Network>, pg::unprotected::gradient<Network>>;
    const pg::host exec{pg::threads{threads}};
    Network net{exec, pg::layer_default{1}};
    typename Network::tape tape{exec, pg::max_batch{count}};
    sum_type sum{exec};
    pg::sgd<Network> optimizer{pg::learning_rate{0.1}};
    pg::seeded_generator generator{3};
    const pg::batch<Network, Loss> samples{std::span<const value>{inputs}, labels};
    for (int step = 0; step < 2; ++step) {
      const auto gradients = pg::per_sample_gradients(net, Loss{}, samples, tape);
      if constexpr (Private) {
        sum.clear();
        pg::evaluate_into(exec, pg::accumulate(sum, pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}))));
        optimizer.step(exec, net, sum + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.0}, generator),
                       pg::expected_batch_size{static_cast<double>(count)});
      } else {
        pg::unprotected::evaluate_into(exec, sum, pg::mean(gradients));
        pg::unprotected::step(optimizer, exec, net, sum);
      }
    }
    result = written_bytes();
  }
  watches = false;
  return result;
}

template <class Network>
constexpr std::size_t accumulator_bytes =
    static_cast<std::size_t>(pg::on_host::program<Network>::table.accumulator_size) * sizeof(float);

/// Elements that a tile's samples keep by plan, late gradients not.
template <class Network>
constexpr pg::on_host::index kept_of_tile() {
  constexpr const auto& t = pg::on_host::program<Network>::table;
  pg::on_host::index sum = 0;
  const auto add = [&](const auto& leaf) {
    if (leaf.use.first) sum += leaf.kept.step * (leaf.kept.for_tile ? t.tile : t.cache_tile);
  };
  for (std::size_t k = 0; k != t.outer_count; ++k) add(t.outer[k]);
  for (std::size_t k = 0; k != t.elementwise_count; ++k) add(t.elementwise[k]);
  return sum;
}

/// A step writes what its accumulators, tiles and rows need, whatever the batch, and a private one what samples keep by
/// plan besides; what is released is stored nowhere. Late gradients cost nothing. A second thread writes at most what
/// the first one does, apart from parameters and sum, and two accumulators; how much of it depends on the tiles that it
/// gets.
template <class Network, class Loss = pg::cross_entropy>
void is_flat_and_hardly_larger_with_privacy(std::size_t grows) {
  constexpr auto kept = static_cast<std::size_t>(kept_of_tile<Network>()) * sizeof(float);
  constexpr std::size_t shared = Network::parameter_count * 2 * sizeof(float);
  const std::size_t small = bytes_of_steps<Network, true, Loss>(16, 1);
  const std::size_t middle = bytes_of_steps<Network, true, Loss>(256, 1);
  const std::size_t large = bytes_of_steps<Network, true, Loss>(1024, 1);
  BOOST_TEST(small > shared);
  BOOST_TEST(middle <= small + grows, "a batch of 16 " << small << ", of 256 " << middle);
  BOOST_TEST(large <= middle + 2 * page, "a batch of 256 " << middle << ", of 1024 " << large);
  const std::size_t ordinary = bytes_of_steps<Network, false, Loss>(256, 1);
  BOOST_TEST(middle <= ordinary + kept + 8 * page,
             "a batch of 256 " << middle << ", without privacy " << ordinary << ", kept " << kept);
  const std::size_t by_two = bytes_of_steps<Network, true, Loss>(1024, 2);
  BOOST_TEST(by_two <= 2 * large - shared + 2 * accumulator_bytes<Network> + 8 * page,
             "two threads " << by_two << ", one " << large);
}

/// Of a language model with many heads.
template <std::size_t Positions>
std::size_t bytes_of_positions() {
  return bytes_of_steps<pg::models::gpt2<Positions, 1, 16, 8, 40>, true, pg::token_cross_entropy<>>(1, 1);
}

/// Does nothing that lasts beyond the backward pass lie where late gradients will?
template <class Network>
constexpr bool late_gradients_lie_apart() {
  constexpr const auto& t = pg::on_host::program<Network>::table;
  constexpr auto lasts = pg::on_host::slots_that_last<t.slots.size()>(t, pg::on_host::program<Network>::size);
  std::size_t late = 0;
  for (std::size_t k = 0; k != t.outer_count; ++k) {
    const pg::on_host::outer_leaf& leaf = t.outer[k];
    if (!leaf.late || !leaf.kept.in_workspace) continue;
    ++late;
    const auto apart = [&](const pg::on_host::place& where) {
      return where.sample == 0 || where.offset >= leaf.kept.first + leaf.size() ||
             where.offset + t.tile * where.sample <= leaf.kept.first;
    };
    for (std::size_t j = 0; j != t.outer_count; ++j) {
      if (j != k && t.outer[j].kept.in_workspace && t.outer[j].kept.first < leaf.kept.first + leaf.size() &&
          leaf.kept.first < t.outer[j].kept.first + t.outer[j].size()) {
        return false;
      }
    }
    for (std::size_t s = 0; s < t.slots.size(); ++s) {
      const pg::on_host::slot& each = t.slots[s];
      if ((lasts[t.storage[s]] || !pg::on_host::is_written_whole(each.value_layout)) && !apart(each.value))
        return false;
      if ((lasts[t.storage[s]] || !pg::on_host::is_written_whole(each.gradient_layout)) && !apart(each.gradient)) {
        return false;
      }
    }
    for (const auto& row : t.nodes) {
      if (!apart(row.saved)) return false;
    }
    if (!apart(t.plain_output) || !apart(t.plain_output_gradient)) return false;
  }
  return late > 0;
}
static_assert(late_gradients_lie_apart<filtered>());
static_assert(late_gradients_lie_apart<pg::models::mnist_cnn>());
static_assert(late_gradients_lie_apart<pg::models::cifar_cnn>());

}  // namespace

BOOST_AUTO_TEST_CASE(of_convolutions) {
  // A batch of 16 has two tiles, so two accumulators; a larger one may have two more.
  using net = pg::models::mnist_cnn;
  is_flat_and_hardly_larger_with_privacy<net>(2 * accumulator_bytes<net> + 4 * page);
}
BOOST_AUTO_TEST_CASE(of_filtered_convolutions) {
  is_flat_and_hardly_larger_with_privacy<filtered>(2 * accumulator_bytes<filtered> + 4 * page);
}
BOOST_AUTO_TEST_CASE(of_deferred_blocks) {
  // Samples of a chunk leave their rows.
  using net = pg::models::lee_kifer_mlp;
  constexpr const auto& t = pg::on_host::program<net>::table;
  static_assert(t.input_in_place && pg::on_host::chunk_samples<net> == 128);
  constexpr auto row = static_cast<std::size_t>(t.deferred_x + t.deferred_delta) * sizeof(float);
  is_flat_and_hardly_larger_with_privacy<net>((128 - 16) * row + 2 * accumulator_bytes<net> + 64 * page);
}
BOOST_AUTO_TEST_CASE(of_a_transformer) {
  using net = pg::models::gpt2<16, 2, 16, 2, 40>;
  is_flat_and_hardly_larger_with_privacy<net, pg::token_cross_entropy<>>(2 * accumulator_bytes<net> + 4 * page);
}
// A matrix of T x T numbers a head would be four times as large for twice the positions, and most of all.
BOOST_AUTO_TEST_CASE(of_attention_grows_with_positions_not_with_their_square) {
  const auto one = static_cast<double>(bytes_of_positions<128>());
  const auto two = static_cast<double>(bytes_of_positions<256>());
  const auto four = static_cast<double>(bytes_of_positions<512>());
  BOOST_TEST(four - two <= 2.2 * (two - one), "128 positions " << one << ", 256 " << two << ", 512 " << four);
}

BOOST_AUTO_TEST_SUITE_END()
