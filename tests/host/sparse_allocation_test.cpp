// SPDX-License-Identifier: Apache-2.0
// tests/host/sparse_allocation_test.cpp - a step with tables takes nothing from the heap
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

// All forms that are used, as a sanitizer brings its own of those that are missing. Not inlined, so that the compiler
// does not see malloc behind new and free behind delete, and warn that they mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes / unit + 1) * unit);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

namespace pg = pergrad;
using network =
    pg::network<pg::variable(pg::token_ids(12, 5000)), pg::embedding<8>, pg::mean_over_positions, pg::linear<2>>;

}  // namespace

BOOST_AUTO_TEST_SUITE(host_sparse_allocation)

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
  for (const std::size_t threads : {1U, 3U}) {
    constexpr std::size_t count = 300;
    const pg::host exec{pg::threads{threads}};
    network net{exec, pg::layer_default{1}};
    network::tape tape{exec, pg::max_batch{count}};
    pg::seeded_generator noise{7};
    pg::private_gradient<network> update{exec};
    pg::bounded_total<network> total{exec};
    pg::sgd<network> optimizer{pg::learning_rate{0.1}};
    std::vector<std::int32_t> ids(count * 12);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 5000);
    const std::vector<std::int32_t> labels(count, 1);
    std::vector<std::uint32_t> lengths(count);
    for (std::size_t i = 0; i < count; ++i) lengths[i] = static_cast<std::uint32_t>(i % 12 + 1);

    const std::size_t before = allocations;
    const pg::batch<network, pg::cross_entropy> batch{ids, labels, lengths};
    const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
    const auto clipped = sum(clip(g, pg::l2_clip_norm{1.0}));
    evaluate_into(exec, update, clipped + pg::gaussian_noise(pg::noise_multiplier{1.0}, noise));
    optimizer.step(exec, net, update, pg::expected_batch_size{300});
    evaluate_into(exec, pg::accumulate(total, clipped));
    evaluate_into(exec,
                  pg::accumulate(total, sum(clip(pg::with_strategy<pg::strategy::ghost>(g), pg::l2_clip_norm{1.0}))));
    const std::size_t after = allocations;
    BOOST_TEST(after - before == 0U);
    BOOST_TEST(before > 10U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
