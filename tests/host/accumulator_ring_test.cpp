// SPDX-License-Identifier: Apache-2.0
// tests/host/accumulator_ring_test.cpp - few buffers for many accumulators: the order of additions, room that is never
// taken twice, accumulators that are late or fail, and the same bits with a buffer for every accumulator and with two.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(host_accumulator_ring)

namespace {

namespace pg = pergrad;
using number = pg::on_host::index;
using pg::on_host::accumulator_buffers;
constexpr number most_buffers = 16;
using ring = pg::on_host::accumulator_ring<most_buffers>;

/// Addition whose result tells the order.
std::uint64_t followed_by(std::uint64_t total, std::uint64_t accumulator) {
  return total * 1'000'003 + accumulator + 1;
}

std::uint64_t in_order(number accumulators) {
  std::uint64_t total = 0;
  for (number accumulator = 0; accumulator < accumulators; ++accumulator) {
    total = accumulator == 0 ? 1 : followed_by(total, static_cast<std::uint64_t>(accumulator));
  }
  return total;
}

/// Runs accumulators as the engine does; `work(accumulator)` is what an accumulator does between taking its buffer and
/// leaving it.
template <class Work>
std::uint64_t run(const pg::host& exec, number accumulators, number buffers, const Work& work) {
  ring turns{accumulators, buffers};
  std::vector<std::uint64_t> values(static_cast<std::size_t>(buffers), 0);
  std::vector<std::atomic<int>> users(static_cast<std::size_t>(buffers));
  std::atomic<bool> shared{false};
  std::atomic<int> adding{0};
  exec.parallel(static_cast<std::size_t>(accumulators), [&](std::size_t task, std::size_t) {
    const auto accumulator = static_cast<number>(task);
    turns.begin(accumulator);
    const auto buffer = static_cast<std::size_t>(turns.buffer_of(accumulator));
    if (users[buffer]++ != 0) shared = true;
    work(accumulator);
    values[buffer] = accumulator == 0 ? 1 : task;  // no atomics: the ring orders who comes after whom
    const auto add = [&](number to, number from) {
      if (adding++ != 0) shared = true;
      std::uint64_t& total = values[static_cast<std::size_t>(to)];
      total = followed_by(total, values[static_cast<std::size_t>(from)]);
      --users[static_cast<std::size_t>(from)];
      --adding;
    };
    turns.finish(accumulator, add);
  });
  BOOST_TEST(!shared);  // neither a buffer nor the total
  BOOST_TEST(accumulators - turns.folded_in_the_end() <= buffers - 1);
  std::uint64_t total = accumulators > 0 ? values[0] : 0;
  for (number accumulator = turns.folded_in_the_end(); accumulator < accumulators; ++accumulator) {
    total = followed_by(total, values[static_cast<std::size_t>(turns.buffer_of(accumulator))]);
  }
  return total;
}

/// A loss that cannot be formed of some targets.
struct failing_loss : pg::mean_squared_error {
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) {
    if (targets[0] == 99) throw std::domain_error("ninety-nine");
    return pg::mean_squared_error::evaluate(y, targets, dy);
  }
};

using dense = pg::network<pg::shape{6}, pg::linear<20>, pg::tanh, pg::linear<3>>;
using tables =
    pg::network<pg::token_ids(5, 900), pg::embedding<4>, pg::flatten, pg::linear<9>, pg::tanh, pg::linear<3>>;
using large = pg::network<pg::shape{1024}, pg::linear<256>, pg::tanh, pg::linear<3>>;
static_assert(pg::on_host::program<large>::table.deferred_count == 2);

template <class Network, class Loss>
struct problem {
  std::vector<typename Network::input_value> inputs;
  std::vector<float> targets;
  explicit problem(std::size_t count) : inputs(count * Network::input_shape.size()), targets(count * 3) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if constexpr (Network::input_shape.ids != 0) {
        inputs[i] = static_cast<std::int32_t>(i * i % Network::input_shape.ids);
      } else {
        inputs[i] = std::sin(static_cast<float>(i));
      }
    }
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = std::cos(static_cast<float>(i));
  }
  /// A clipped sum of it, and a mean of squares in the same evaluation.
  [[nodiscard]] std::vector<float> sums(std::size_t threads) const {
    const pg::host exec{pg::threads{threads}};
    const Network net{exec, pg::layer_default{1}};
    typename Network::tape tape{exec, pg::max_batch{targets.size() / 3}};
    const pg::batch<Network, Loss> batch{inputs, targets};
    const auto g = pg::per_sample_gradients(net, Loss{}, batch, tape);
    std::vector<float> both(2 * Network::parameter_count, 0.25F);
    const std::span<float> all{both};
    pg::unprotected::evaluate_into(
        exec, pg::accumulate(all.first(Network::parameter_count), sum(clip(g, pg::l2_clip_norm{0.5}))),
        pg::assign(all.subspan(Network::parameter_count), second_moment(g)));
    return both;
  }
};

template <class Network>
void has_the_same_bits_with_few_buffers() {
  for (const std::size_t count : {1U, 2U, 5U, 63U, 300U, 1100U}) {
    const problem<Network, pg::mean_squared_error> p{count};
    const std::vector<float> all = p.sums(8);  // a buffer for each of at most 16 accumulators
    for (const std::size_t threads : {1U, 2U, 3U}) {
      BOOST_TEST_INFO_SCOPE(count << " samples, " << threads << " threads");
      BOOST_TEST((p.sums(threads) == all));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(buffers_for_threads) {
  BOOST_TEST(accumulator_buffers(16, 1) == 2);
  BOOST_TEST(accumulator_buffers(16, 2) == 4);
  BOOST_TEST(accumulator_buffers(16, 5) == 10);
  BOOST_TEST(accumulator_buffers(16, 64) == 16);
  BOOST_TEST(accumulator_buffers(2, 1) == 2);
  BOOST_TEST(accumulator_buffers(2, 4) == 2);
}

BOOST_AUTO_TEST_CASE(lanes_are_added_up_in_order) {
  for (const std::size_t threads : {1U, 2U, 4U}) {
    const pg::host exec{pg::threads{threads}};
    for (number accumulators = 0; accumulators <= 40; accumulators += accumulators < 6 ? 1 : 17) {
      for (number buffers = 2; buffers <= most_buffers; ++buffers) {
        BOOST_TEST_INFO_SCOPE(accumulators << " accumulators, " << buffers << " buffers, " << threads << " threads");
        BOOST_TEST(run(exec, accumulators, buffers, [](number) {}) == in_order(accumulators));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_late_lane_is_waited_for) {
  const pg::host exec{pg::threads{4}};
  const auto sleep = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds{milliseconds}); };
  for (const number late : {0, 1, 5, 19}) {
    for (const number buffers : {2, 3, 4, 8}) {
      const auto work = [&](number accumulator) { sleep(accumulator == late ? 20 : 0); };
      BOOST_TEST(run(exec, 20, buffers, work) == in_order(20));
    }
  }
  // The later, the sooner.
  BOOST_TEST(run(exec, 12, 8, [&](number accumulator) {
               sleep(accumulator % 4 == 0 ? 8 : 4 - static_cast<int>(accumulator % 4));
             }) == in_order(12));
}

BOOST_AUTO_TEST_CASE(a_sum_does_not_depend_on_the_number_of_buffers) {
  has_the_same_bits_with_few_buffers<dense>();
  has_the_same_bits_with_few_buffers<tables>();
  has_the_same_bits_with_few_buffers<large>();
}

BOOST_AUTO_TEST_CASE(a_lane_that_fails_keeps_nobody_waiting) {
  using net = dense;
  problem<net, failing_loss> p{600};
  const std::vector<float> right = p.sums(2);
  for (const std::size_t failing : {0U, 30U, 299U, 599U}) {
    const float before = std::exchange(p.targets[failing * 3], 99.0F);
    for (const std::size_t threads : {1U, 2U, 4U})
      BOOST_CHECK_THROW(static_cast<void>(p.sums(threads)), std::domain_error);
    p.targets[failing * 3] = before;
  }
  // The same tape and executor go on.
  const pg::host exec{pg::threads{2}};
  const net network{exec, pg::layer_default{1}};
  net::tape tape{exec, pg::max_batch{600}};
  const auto evaluate = [&] {
    const pg::batch<net, failing_loss> batch{p.inputs, p.targets};
    return pg::unprotected::evaluate(
        exec, sum(clip(pg::per_sample_gradients(network, failing_loss{}, batch, tape), pg::l2_clip_norm{0.5})));
  };
  const auto first = evaluate();
  p.targets[0] = 99;
  BOOST_CHECK_THROW(static_cast<void>(evaluate()), std::domain_error);
  p.targets[0] = std::cos(0.0F);
  BOOST_TEST((evaluate() == first));
  BOOST_TEST((p.sums(2) == right));
}

BOOST_AUTO_TEST_CASE(a_tape_has_few_sums) {
  const auto bytes = [](std::size_t threads, std::size_t batch, std::size_t sums) {
    return dense::tape{pg::host{pg::threads{threads}}, pg::max_batch{batch}, pg::max_sums{sums}}.bytes();
  };
  constexpr auto accumulator =
      static_cast<std::size_t>(pg::on_host::program<dense>::table.accumulator_size) * sizeof(float);
  for (const std::size_t threads : {1U, 2U, 8U, 12U}) {
    BOOST_TEST(bytes(threads, 16, 3) - bytes(threads, 16, 2) == std::min<std::size_t>(16, 2 * threads) * accumulator);
    BOOST_TEST(bytes(threads, 2048, 1) == bytes(threads, 16, 1));
  }
}

/// Weights for three positions of 1,024 features, `Millions` of them.
template <std::size_t Millions>
using wide = pg::basic_network<float, pg::shape{3, 1024}, pg::linear<Millions * 1024 - 1>>;

// Sixty-four megabytes hold three of the first one's sums, five, six and eleven of the others': eight or sixteen
// samples in three stretches would leave one of two threads with two fifths of the other's work.
BOOST_AUTO_TEST_CASE(threads_have_the_same_number_of_stretches) {
  const auto check = []<class Network>(std::type_identity<Network>) {
    for (const number tiles : {8, 16, 64}) {
      const number stretches = pg::on_host::accumulators_for<Network>(tiles);
      BOOST_TEST_CONTEXT(Network::parameter_count << " parameters, " << tiles << " tiles, " << stretches) {
        for (const number threads : {2, 4}) BOOST_TEST(stretches % threads == 0);
        BOOST_TEST(tiles % stretches == 0);
      }
    }
  };
  check(std::type_identity<wide<5>>{});
  check(std::type_identity<wide<3>>{});
  check(std::type_identity<wide<2>>{});
  check(std::type_identity<pg::basic_network<float, pg::shape{3, 512}, pg::linear<2900>>>{});
}

BOOST_AUTO_TEST_SUITE_END()
