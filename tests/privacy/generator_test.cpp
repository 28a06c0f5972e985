// SPDX-License-Identifier: Apache-2.0
// tests/privacy/generator_test.cpp - keys come from the system or a seed; steps are given out once; nothing is copied.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <pergrad/privacy/generator.hpp>

BOOST_AUTO_TEST_SUITE(privacy_generator)

using pergrad::os_keyed_generator;
using pergrad::seeded_generator;

static_assert(os_keyed_generator::is_private && !seeded_generator::is_private);
static_assert(!std::is_copy_constructible_v<os_keyed_generator> && !std::is_copy_assignable_v<os_keyed_generator>);
static_assert(std::is_nothrow_move_constructible_v<os_keyed_generator>);
static_assert(!std::is_convertible_v<std::uint64_t, seeded_generator>);

BOOST_AUTO_TEST_CASE(system_keys_differ) {
  const os_keyed_generator first;
  const os_keyed_generator second;
  BOOST_TEST((first.key() != second.key()));
  const auto zeros = std::count(first.key().words.begin(), first.key().words.end(), 0U);
  BOOST_TEST(zeros < 3);  // each word is 0 with probability 2^-32
}

BOOST_AUTO_TEST_CASE(steps_are_given_out_once) {
  os_keyed_generator generator;
  BOOST_TEST(generator.step() == 0U);
  BOOST_TEST(generator.next_step() == 0U);
  BOOST_TEST(generator.next_step() == 1U);
  BOOST_TEST(generator.step() == 2U);
}

BOOST_AUTO_TEST_CASE(moving_takes_key_and_steps_along) {
  os_keyed_generator first;
  static_cast<void>(first.next_step());
  const pergrad::chacha_key key = first.key();
  os_keyed_generator second{std::move(first)};
  BOOST_TEST((second.key() == key));
  BOOST_TEST(second.next_step() == 1U);
  BOOST_CHECK_THROW(static_cast<void>(first.key()), std::logic_error);  // NOLINT(bugprone-use-after-move)
  BOOST_CHECK_THROW(static_cast<void>(first.next_step()), std::logic_error);
  os_keyed_generator third;
  third = std::move(second);
  BOOST_TEST((third.key() == key));
  BOOST_TEST(third.next_step() == 2U);
  BOOST_CHECK_THROW(static_cast<void>(second.key()), std::logic_error);  // NOLINT(bugprone-use-after-move)
}

BOOST_AUTO_TEST_CASE(key_is_overwritten_on_destruction_and_on_move) {
  alignas(os_keyed_generator) std::array<unsigned char, sizeof(os_keyed_generator)> memory{};
  const auto holds = [&](const pergrad::chacha_key& key) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(key.words.data());
    return std::search(memory.begin(), memory.end(), bytes, bytes + sizeof key.words) != memory.end();
  };
  auto* generator = new (memory.data()) os_keyed_generator;
  pergrad::chacha_key key = generator->key();
  BOOST_TEST(holds(key));
  generator->~os_keyed_generator();
  BOOST_TEST(!holds(key));
  generator = new (memory.data()) os_keyed_generator;
  key = generator->key();
  {
    const os_keyed_generator taken{std::move(*generator)};
    BOOST_TEST((taken.key() == key));
    BOOST_TEST(!holds(key));
  }
  generator->~os_keyed_generator();
}

BOOST_AUTO_TEST_CASE(seeds_repeat_and_differ) {
  seeded_generator first{7};
  const seeded_generator same{7};
  BOOST_TEST((first.key() == same.key()));
  BOOST_TEST((first.key() != seeded_generator{8}.key()));
  BOOST_TEST((first.key() != seeded_generator{7 + (std::uint64_t{1} << 32U)}.key()));
  BOOST_TEST(first.next_step() == 0U);
  BOOST_TEST(first.seed() == 7U);
  seeded_generator resumed{7, 5};
  BOOST_TEST(resumed.next_step() == 5U);
}

BOOST_AUTO_TEST_CASE(seed_gives_a_pinned_key) {
  // First words of the block; a change would silently change every seeded run.
  const auto words = seeded_generator{0}.key().words;
  pergrad::chacha_key zero;
  const auto block = pergrad::chacha20_block(zero, pergrad::chacha_nonce{{5, 0, 0}}, 0);
  BOOST_TEST(std::equal(words.begin(), words.end(), block.begin()));
}

BOOST_AUTO_TEST_CASE(step_counter_never_wraps) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  seeded_generator generator{1, most - 1};
  BOOST_TEST(generator.next_step() == most - 1);
  BOOST_CHECK_THROW(static_cast<void>(generator.next_step()), std::overflow_error);
  BOOST_TEST(generator.step() == most);
}

BOOST_AUTO_TEST_SUITE_END()
