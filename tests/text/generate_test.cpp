// SPDX-License-Identifier: Apache-2.0
// tests/text/generate_test.cpp - a language model's text: the likeliest id by hand, frequencies of drawn ones, and
// logits from kept keys and values beside those of a pass over all positions
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/generate.hpp>
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(generating)

namespace {

namespace pg = pergrad;
constexpr std::size_t positions = 6, vocabulary = 9;
using ids = std::vector<std::int32_t>;
using gpt2 = pg::models::gpt2<positions, 2, 8, 2, vocabulary>::rebind<double>;

const pg::host& executor() {
  static const pg::host exec{pg::threads{1}};
  return exec;
}
/// Logits of what follows a text that fits, by `predict`.
std::vector<double> logits_behind(const gpt2& net, const ids& text) {
  ids padded = text;
  padded.resize(positions, 4);  // anything
  const std::vector<double> all = pg::predict(executor(), net, pg::public_records{padded});
  const auto first = all.begin() + static_cast<std::ptrdiff_t>((text.size() - 1) * vocabulary);
  return {first, first + vocabulary};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_likeliest_id_behind_what_is_seen) {
  const gpt2 net{executor(), pg::normal{.seed = 3, .standard_deviation = 1}};
  ids text{1, 5};
  for (int step = 0; step < 12; ++step) {
    const ids seen{text.end() - static_cast<std::ptrdiff_t>(std::min(text.size(), positions)), text.end()};
    const std::vector<double> logits = logits_behind(net, seen);
    text.push_back(static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin()));
  }
  const ids made = pg::generate(executor(), net, pg::public_records{ids{1, 5}}, {.steps = 12, .temperature = 0});
  BOOST_TEST(made == (ids{text.begin() + 2, text.end()}), boost::test_tools::per_element());
  BOOST_TEST(pg::generate(executor(), net, pg::public_records{ids{1, 5}}, {.steps = 0}).empty());
}

BOOST_AUTO_TEST_CASE(ids_have_the_frequencies_of_a_softmax) {
  const gpt2 net{executor(), pg::normal{.seed = 5, .standard_deviation = 0.5}};
  const ids prompt{2, 7, 0};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    std::vector<double> weights = logits_behind(net, prompt);
    double total = 0;
    for (double& each : weights) total += each = std::exp(each / temperature);
    constexpr int draws = 4000;
    std::vector<int> counts(vocabulary);
    for (int seed = 0; seed < draws; ++seed) {
      const auto made =
          pg::generate(executor(), net, pg::public_records{prompt},
                       {.steps = 1, .temperature = temperature, .seed = static_cast<std::uint64_t>(seed)});
      ++counts[static_cast<std::size_t>(made.at(0))];
    }
    for (std::size_t id = 0; id < vocabulary; ++id) {
      const double share = weights[id] / total, deviation = std::sqrt(share * (1 - share) * draws);
      BOOST_TEST(std::fabs(counts[id] - share * draws) < 5 * deviation + 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_seed_is_a_text) {
  const gpt2 net{executor(), pg::normal{.seed = 5, .standard_deviation = 0.5}};
  const auto text_of = [&](std::uint64_t seed) {
    return pg::generate(executor(), net, pg::public_records{ids{1}}, {.steps = 30, .temperature = 1, .seed = seed});
  };
  BOOST_TEST((text_of(1) == text_of(1)));
  BOOST_TEST((text_of(1) != text_of(2)));
}

namespace {

/// Logits behind every beginning of a text, taken in piece by piece, are those of one pass over all positions.
template <class Network>
void check_against_a_whole_pass(std::size_t threads, std::span<const std::size_t> pieces) {
  static_assert(pg::host::decodes<Network>);
  constexpr std::size_t all = Network::input_shape.e0, words = Network::input_shape.ids;
  const pg::host exec{pg::threads{threads}};
  Network net{exec, pg::normal{.seed = 11, .standard_deviation = 0.3}};
  ids text(all);
  for (std::size_t i = 0; i < all; ++i) text[i] = static_cast<std::int32_t>((i * i * 7 + 3 * i) % words);
  const auto whole = pg::predict(exec, net, pg::public_records{text});
  pg::host::decoder<Network> kept{exec.pool(), net};
  for (int round = 0; round < 2; ++round) {  // nothing is left of the text before
    kept.clear();
    std::size_t piece = 0;
    while (kept.length() < all) {
      const std::size_t begin = kept.length(), count = std::min(pieces[piece++ % pieces.size()], all - begin);
      const auto found = kept.append(std::span<const std::int32_t>{text}.subspan(begin, count));
      BOOST_TEST(kept.length() == begin + count);
      const auto wanted = std::span{whole}.subspan((begin + count - 1) * words, words);
      BOOST_TEST(found == wanted, boost::test_tools::per_element());
    }
  }
}

template <std::size_t Positions, class Tuning = pg::models::everything>
using small_gpt2 = pg::models::gpt2<Positions, 2, 24, 3, 41, Tuning>;
template <class Tuning = pg::models::everything>
using small_llama = pg::models::llama<pg::models::llama_size{.positions = 21,
                                                             .blocks = 2,
                                                             .features = 24,
                                                             .heads = 6,
                                                             .key_value_heads = 2,
                                                             .feed_forward = 40,
                                                             .vocabulary = 37},
                                      Tuning>;
constexpr std::size_t one_by_one[] = {1}, uneven[] = {3, 1, 1, 5, 2}, at_once[] = {1000};

}  // namespace

BOOST_AUTO_TEST_CASE(kept_keys_and_values_change_no_bit) {
  check_against_a_whole_pass<small_gpt2<20>>(1, one_by_one);
  check_against_a_whole_pass<small_gpt2<20>::rebind<double>>(2, uneven);
  check_against_a_whole_pass<small_llama<>>(2, one_by_one);
  check_against_a_whole_pass<small_llama<>::rebind<double>>(1, uneven);
  check_against_a_whole_pass<small_llama<pg::models::lora_on<2, "q_proj", "down_proj">>>(2, uneven);
  check_against_a_whole_pass<small_gpt2<20, pg::models::biases_only>>(1, one_by_one);
  check_against_a_whole_pass<small_gpt2<150>>(2, at_once);  // several stretches of positions
}

BOOST_AUTO_TEST_CASE(a_network_may_end_in_its_embedding) {
  using bigrams = pg::network<pg::token_ids(6, 9), pg::embedding<9>>;
  check_against_a_whole_pass<bigrams>(1, uneven);
  check_against_a_whole_pass<bigrams::rebind<double>>(1, uneven);
}

namespace {

/// y = x + sum of squares of the second input, position by position; what it needs is as wide as that one.
struct with_squares {
  static constexpr bool on_tiles = true;
  static constexpr bool by_position = true;
  static constexpr bool joins_positions = true;
  static constexpr pg::shape output_shape(pg::shape in, pg::shape in2) { return in.e0 == in2.e0 ? in : pg::shape{}; }
  static constexpr std::size_t saved_count(pg::shape /*in*/, pg::shape in2) { return in2.size(); }
  static constexpr std::size_t scratch_count(pg::shape /*in*/, pg::shape in2) { return in2.size(); }

  template <class Team>
  static void forward(const Team& team) {
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1), second = static_cast<std::ptrdiff_t>(team.in2.e1);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto *x = team.x(b), *x2 = team.x2(b);
      auto *y = team.y(b), *saved = team.saved(b), *squares = team.scratch(b);
      team.each(static_cast<std::ptrdiff_t>(team.in2.size()), [&](std::ptrdiff_t i) {
        saved[i] = x2[i];
        squares[i] = x2[i] * x2[i];
      });
      team.each(static_cast<std::ptrdiff_t>(team.in.size()), [&](std::ptrdiff_t i) {
        y[i] = x[i];
        for (std::ptrdiff_t k = 0; k < second; ++k) y[i] += squares[i / features * second + k];
      });
    }
  }
  template <class Team>
  static void backward(const Team& team) {
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1), second = static_cast<std::ptrdiff_t>(team.in2.e1);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto *dy = team.dy(b), *saved = team.saved(b);
      if (team.wants_dx) team.copy(static_cast<std::ptrdiff_t>(team.in.size()), dy, team.dx(b));
      auto* dx2 = team.dx2(b);
      team.each(team.wants_dx2 ? static_cast<std::ptrdiff_t>(team.in2.size()) : 0, [&](std::ptrdiff_t i) {
        dx2[i] = 0;
        for (std::ptrdiff_t k = 0; k < features; ++k) dx2[i] += 2 * saved[i] * dy[i / second * features + k];
      });
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_second_input_may_be_wider) {
  check_against_a_whole_pass<
      pg::network<pg::token_ids(20, 9), pg::embedding<4>,
                  pg::merge<with_squares, pg::sequential<>, pg::sequential<pg::linear<600>, pg::tanh>>, pg::linear<9>>>(
      1, at_once);
}

BOOST_AUTO_TEST_CASE(networks_say_whether_their_keys_are_kept) {
  using pg::causal, pg::embedding, pg::linear, pg::multihead_attention;
  constexpr auto in = pg::token_ids(6, 9);
  using seen_by_all = pg::network<in, embedding<8>, multihead_attention<2>, linear<9>>;
  using learned_key = pg::network<in, embedding<8>, multihead_attention<2, causal, pg::kv_bias>, linear<9>>;
  using recurrent = pg::network<in, embedding<8>, pg::lstm<8>, linear<9>>;
  using mixed = pg::network<in, embedding<8>, pg::layer_norm<pg::axes<2>>, linear<9>>;
  using convolved = pg::network<in, embedding<8>, pg::transpose, pg::conv1d<9, 1>, pg::transpose>;
  using with_dropout = pg::network<in, embedding<8>, pg::dropout<0.5>, multihead_attention<2, causal>, linear<9>>;
  static_assert(!pg::host::decodes<seen_by_all> && !pg::host::decodes<learned_key> && !pg::host::decodes<recurrent>);
  static_assert(!pg::host::decodes<mixed> && !pg::host::decodes<convolved> && pg::host::decodes<with_dropout>);
  // Without kept keys: the same function of the text.
  const learned_key net{executor(), pg::normal{.seed = 3, .standard_deviation = 1}};
  const ids made = pg::generate(executor(), net, pg::public_records{ids{1, 5}}, {.steps = 9, .temperature = 0});
  ids text{1, 5};
  for (const std::int32_t next : made) {
    const std::size_t seen = std::min(text.size(), positions);
    ids window{text.end() - static_cast<std::ptrdiff_t>(seen), text.end()};
    window.resize(positions);
    const auto logits = pg::predict(executor(), net, pg::public_records{window});
    const auto last = std::span{logits}.subspan((seen - 1) * vocabulary, vocabulary);
    BOOST_TEST(next == std::ranges::max_element(last) - last.begin());
    text.push_back(next);
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_may_be_longer_than_the_positions) {
  const gpt2 net{executor(), pg::normal{.seed = 3, .standard_deviation = 1}};
  const ids prompt{1, 5, 2, 2, 8, 0, 7, 3, 4};
  const auto logits = logits_behind(net, {prompt.end() - positions, prompt.end()});
  const ids made = pg::generate(executor(), net, pg::public_records{prompt}, {.steps = 1, .temperature = 0});
  BOOST_TEST(made.at(0) == std::ranges::max_element(logits) - logits.begin());
}

BOOST_AUTO_TEST_CASE(wrong_wishes_are_refused) {
  const gpt2 net{executor(), pg::zeros{}};
  const auto ask = [&](const ids& prompt, double temperature) {
    static_cast<void>(
        pg::generate(executor(), net, pg::public_records{prompt}, {.steps = 1, .temperature = temperature}));
  };
  BOOST_CHECK_THROW(ask({}, 1), std::invalid_argument);
  BOOST_CHECK_THROW(ask({1}, -1), std::invalid_argument);
  BOOST_CHECK_THROW(ask({1}, std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
  BOOST_CHECK_THROW(ask({1}, std::numeric_limits<double>::infinity()), std::invalid_argument);
  BOOST_CHECK_THROW(ask({vocabulary}, 1), std::out_of_range);
  BOOST_CHECK_THROW(ask({-1, 1, 1, 1, 1, 1, 1}, 1), std::out_of_range);  // nobody would look there
  BOOST_CHECK_EXCEPTION(ask({0, 9}, 1), std::out_of_range, [](const std::out_of_range& wrong) {
    return std::string{wrong.what()} == "pergrad: generate: position 1 of the prompt: id 9 of a vocabulary of 9";
  });
}
BOOST_AUTO_TEST_CASE(more_steps_than_a_text_can_have_are_refused) {
  const gpt2 net{executor(), pg::zeros{}};
  for (const std::size_t steps :
       {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60U, std::size_t{1} << 31U}) {
    BOOST_CHECK_THROW(static_cast<void>(pg::generate(executor(), net, pg::public_records{ids{1}}, {.steps = steps})),
                      std::invalid_argument);
  }
}
BOOST_AUTO_TEST_CASE(weights_that_have_diverged_say_nothing) {
  gpt2 net{executor(), pg::normal{.seed = 3, .standard_deviation = 1}};
  net.parameters()[7] =
      std::numeric_limits<double>::quiet_NaN();  // of the first id's row, which is nobody's logit alone
  for (const double temperature : {0.0, 1.0}) {
    BOOST_CHECK_EXCEPTION(static_cast<void>(pg::generate(executor(), net, pg::public_records{ids{1, 0}},
                                                         {.steps = 3, .temperature = temperature})),
                          std::runtime_error, [](const std::runtime_error& wrong) {
                            return std::string_view{wrong.what()}.find("generate: step 0: the logits are not finite") !=
                                   std::string_view::npos;
                          });
  }
  const double infinite = std::numeric_limits<double>::infinity();
  BOOST_TEST(pg::detail::has_likeliest(std::span<const double>{std::array{-infinite, 1.0}}));
  BOOST_TEST(!pg::detail::has_likeliest(std::span<const double>{std::array{-infinite, -infinite}}));
  BOOST_TEST(!pg::detail::has_likeliest(std::span<const double>{std::array{infinite, 1.0}}));
}
BOOST_AUTO_TEST_CASE(an_excluded_id_is_never_drawn) {
  // The largest number below 1: behind the ids that may be drawn, rounding leaves a rest of some of these logits.
  const double infinite = std::numeric_limits<double>::infinity(), most = std::nextafter(1.0, 0.0);
  for (int i = 0; i < 1000; ++i) {
    const std::array logits{-infinite, std::sin(i), std::sin(2.0 * i), std::sin(3.0 * i), std::sin(5.0 * i), -infinite};
    const std::span<const double> all{logits};
    BOOST_REQUIRE_EQUAL(pg::detail::draw_id(all, 1.0, most), 4);
    BOOST_REQUIRE_EQUAL(pg::detail::draw_id(all, 1.0, 0.0), 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()
