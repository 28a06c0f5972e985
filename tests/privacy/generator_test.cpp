// SPDX-License-Identifier: Apache-2.0
// tests/privacy/generator_test.cpp - keys come from the system or a seed; steps are given out once, to any number of
// threads; nothing is copied, no key is shown, and a forked process gets none
#include <boost/test/unit_test.hpp>
#include <sys/wait.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/sampling.hpp>

#include "keys.hpp"

BOOST_AUTO_TEST_SUITE(privacy_generator)

using pergrad::os_keyed_generator;
using pergrad::seeded_generator;

static_assert(os_keyed_generator::is_private && !seeded_generator::is_private);
static_assert(!std::is_copy_constructible_v<os_keyed_generator> && !std::is_copy_assignable_v<os_keyed_generator>);
static_assert(std::is_nothrow_move_constructible_v<os_keyed_generator>);
static_assert(!std::is_convertible_v<std::uint64_t, seeded_generator>);

namespace {

/// A generator of somebody else's, with all that the two of the library have.
struct own_generator {
  static constexpr bool is_private = true;
  std::uint64_t next_step() { return 0; }
  [[nodiscard]] std::uint64_t step() const { return 0; }
};
static_assert(!pergrad::random_generator<own_generator>);

/// Noise of a secret key is drawn for totals only; of a seed anybody may draw it.
using gate_type = pergrad::detail::release_gate<float>;
static_assert(std::is_constructible_v<gate_type, pergrad::release_grid, double, pergrad::noise_multiplier, double,
                                      seeded_generator&>);
static_assert(!std::is_constructible_v<gate_type, pergrad::release_grid, double, pergrad::noise_multiplier, double,
                                       os_keyed_generator&>);

/// The first values of a release of zeros.
std::vector<float> noise_of(seeded_generator& generator) {
  const auto grid = pergrad::release_grid::of(1, 64);
  const gate_type gate{grid, pergrad::sensitivity_in_steps(grid, {}, 1), pergrad::noise_multiplier{1}, 1, generator};
  std::vector<float> out(64);
  gate.release(0, {}, out.data(), {});
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(system_keys_differ) {
  os_keyed_generator first;
  os_keyed_generator second;
  const pergrad::poisson_sampling half{pergrad::sampling_probability{0.5}};
  const auto drawn = [&](os_keyed_generator& generator) { return pergrad::unaccounted::draw(half, generator, 1000); };
  BOOST_TEST((drawn(first) != drawn(second)));
}

BOOST_AUTO_TEST_CASE(steps_are_given_out_once) {
  os_keyed_generator generator;
  BOOST_TEST(generator.step() == 0U);
  BOOST_TEST(generator.next_step() == 0U);
  BOOST_TEST(generator.next_step() == 1U);
  BOOST_TEST(generator.step() == 2U);
}

BOOST_AUTO_TEST_CASE(threads_never_get_the_same_step) {
  os_keyed_generator generator;
  constexpr std::uint64_t each = 200'000;
  constexpr std::uint64_t threads = 4;
  std::vector<std::atomic<unsigned char>> given(each * threads);
  std::vector<std::thread> pool;
  for (std::uint64_t t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (std::uint64_t i = 0; i < each; ++i) ++given[generator.next_step()];
    });
  }
  for (std::thread& member : pool) member.join();
  std::size_t wrong = 0;
  for (const auto& times : given) wrong += times == 1 ? 0U : 1U;
  BOOST_TEST(wrong == 0U);
  BOOST_TEST(generator.step() == each * threads);
}

BOOST_AUTO_TEST_CASE(moving_takes_keys_and_steps_along) {
  os_keyed_generator first;
  static_cast<void>(first.next_step());
  os_keyed_generator second{std::move(first)};
  BOOST_TEST(second.next_step() == 1U);
  BOOST_CHECK_THROW(static_cast<void>(first.next_step()), std::logic_error);  // NOLINT(bugprone-use-after-move)
  // NOLINTNEXTLINE(bugprone-use-after-move)
  BOOST_CHECK_THROW(static_cast<void>(pergrad::layer_randomness::of_next_step(first)), std::logic_error);
  os_keyed_generator third;
  third = std::move(second);
  BOOST_TEST(third.next_step() == 2U);
  BOOST_CHECK_THROW(static_cast<void>(second.next_step()), std::logic_error);  // NOLINT(bugprone-use-after-move)
}

BOOST_AUTO_TEST_CASE(a_forked_process_has_no_key) {
  os_keyed_generator generator;
  static_cast<void>(generator.next_step());
  const ::pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    try {
      static_cast<void>(generator.next_step());
    } catch (const std::logic_error& error) {
      if (std::string{error.what()}.find("forked process") != std::string::npos) ++refused;
    }
    try {
      static_cast<void>(pergrad::layer_randomness::of_next_step(generator));
    } catch (const std::logic_error&) {
      ++refused;
    }
    os_keyed_generator own;
    if (own.next_step() == 0) ++refused;
    ::_exit(refused);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 3);
  BOOST_TEST(generator.next_step() == 1U);
}

// What the kernel says of the page that a generator's keys lie in: wiped when the process forks, not in a core dump.
BOOST_AUTO_TEST_CASE(keys_lie_in_a_page_of_their_own) {
  const auto count_pages = [] {
    std::ifstream maps{"/proc/self/smaps"};
    std::string line;
    std::size_t pages = 0;
    while (std::getline(maps, line)) {
      if (line.starts_with("VmFlags:") && line.find(" wf") != std::string::npos &&
          line.find(" dd") != std::string::npos) {
        ++pages;
      }
    }
    return pages;
  };
  if (!std::ifstream{"/proc/self/smaps"}.good()) return;  // not a Linux with that file
  const std::size_t before = count_pages();
  {
    os_keyed_generator generator;
    static_cast<void>(generator.next_step());
    BOOST_TEST(count_pages() == before + 1);
    const os_keyed_generator taken{std::move(generator)};
    BOOST_TEST(count_pages() == before + 1);
  }
  BOOST_TEST(count_pages() == before);
}

BOOST_AUTO_TEST_CASE(seeds_repeat_and_differ) {
  seeded_generator first{7};
  seeded_generator same{7};
  seeded_generator other{8};
  seeded_generator far{7 + (std::uint64_t{1} << 32U)};
  const auto noise = noise_of(first);
  BOOST_TEST((noise == noise_of(same)));
  BOOST_TEST((noise != noise_of(other)));
  BOOST_TEST((noise != noise_of(far)));
  BOOST_TEST((noise != noise_of(first)));  // the next step
  BOOST_TEST(first.seed() == 7U);
  seeded_generator resumed{7, 1};
  seeded_generator second{7};
  static_cast<void>(second.next_step());
  BOOST_TEST((noise_of(resumed) == noise_of(second)));
}

// The keys of a seed are what the header says: a change would silently change every seeded run.
BOOST_AUTO_TEST_CASE(seed_gives_known_keys) {
  seeded_generator generator{20261124};
  const auto released = noise_of(generator);
  const auto grid = pergrad::release_grid::of(1, 64);
  const double sigma = pergrad::sensitivity_in_steps(grid, {}, 1);
  alignas(64) double k[pergrad::detail::gaussian_block];
  pergrad::detail::fill_rounded_gaussians(key_of_seed(20261124, pergrad::detail::randomness::noise),
                                          pergrad::make_nonce(pergrad::random_purpose::gradient_noise, 0), 0, sigma, k);
  for (std::size_t i = 0; i < 64; ++i) {
    BOOST_TEST(static_cast<double>(released[i]) == std::ldexp(k[i], grid.unit - grid.steps));
  }
}

BOOST_AUTO_TEST_CASE(step_counter_never_wraps) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  seeded_generator generator{1, most - 1};
  BOOST_TEST(generator.next_step() == most - 1);
  BOOST_CHECK_THROW(static_cast<void>(generator.next_step()), std::overflow_error);
  BOOST_TEST(generator.step() == most);
}

BOOST_AUTO_TEST_SUITE_END()
