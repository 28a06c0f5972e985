// SPDX-License-Identifier: Apache-2.0
// tests/expressions/non_finite_test.cpp - a sample whose gradient is not finite contributes exactly zero and changes no
// other bit.
#include <array>
#include <limits>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_non_finite)

namespace {

using namespace fixture;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

using conv_problem =
    problem<pg::network<pg::shape{2, 7, 6}, pg::conv2d<4, 3, pg::padding<1>>, pg::tanh,
                        pg::residual<pg::conv2d<5, 3, pg::padding<1>>, pg::sigmoid, pg::projection<pg::conv2d<5, 1>>>,
                        pg::max_pool2d<2>, pg::flatten, pg::linear<3>>,
            pg::mean_squared_error>;
using dense_problem =
    problem<pg::network<pg::shape{6}, pg::linear<9>, pg::relu, pg::linear<8>, pg::tanh, pg::linear<2>>,
            pg::mean_squared_error>;

/// Its linear layers' sums are formed a chunk of samples at a time.
using deferred_problem = problem<pg::network<pg::shape{2, 16, 16}, pg::conv2d<4, 3, pg::padding<1>>, pg::relu,
                                             pg::flatten, pg::linear<256>, pg::relu, pg::linear<2>>,
                                 pg::mean_squared_error>;
static_assert(pg::on_host::program<deferred_problem::network_type>::table.deferred_count == 2);

/// Both convolutions by minimal filtering, one of them to its input's gradient too.
using filtered_problem = problem<pg::network<pg::shape{32, 8, 8}, pg::conv2d<32, 3, pg::padding<1>>, pg::relu,
                                             pg::conv2d<32, 3, pg::padding<1>>, pg::flatten, pg::linear<3>>,
                                 pg::mean_squared_error>;
constexpr const auto& filtered_nodes = pg::on_host::program<filtered_problem::network_type>::table.nodes;
static_assert(filtered_nodes[0].winograd_rows > 0 && filtered_nodes[2].winograd_dx_rows > 0);

/// A convolution in pairs and its weights' gradient.
using paired_problem =
    problem<pg::network<pg::shape{32, 11, 11}, pg::conv2d<32, 4>, pg::relu, pg::flatten, pg::linear<3>>,
            pg::mean_squared_error>;
static_assert(pg::on_host::program<paired_problem::network_type>::table.outer[0].in_pairs);

constexpr std::size_t count = 21;
constexpr std::array<std::size_t, 3> bad{2, 9, 20};

/// Ways in which a sample can go wrong.
template <class Problem>
std::vector<std::pair<std::string, std::vector<std::pair<std::size_t, float>>>> spoilings() {
  constexpr std::size_t width = decltype(Problem::data)::width;
  return {{"NaN in the input", {{width / 2, not_a_number}}},
          {"infinity in the input", {{0, infinity}}},
          {"minus infinity everywhere",
           [] {
             std::vector<std::pair<std::size_t, float>> all;
             for (std::size_t i = 0; i < width; ++i) all.emplace_back(i, -infinity);
             return all;
           }()},
          {"infinite target", {{width, infinity}}},
          {"NaN target", {{width + 1, not_a_number}}},
          {"overflow in the loss", {{width, 3e38F}, {0, 3e38F}, {1, -3e38F}}}};
}
template <class Problem>
void spoil(Problem& p, std::size_t sample, const std::vector<std::pair<std::size_t, float>>& values) {
  constexpr std::size_t width = decltype(Problem::data)::width;
  for (const auto& [place, value] : values) {
    if (place < width) {
      p.data.inputs[sample * width + place] = value;
    } else {
      p.data.targets[sample * decltype(Problem::data)::target_count + place - width] = value;
    }
  }
}

template <class Gradients, class Function>
void for_each_way(const Gradients& g, Function&& f) {
  using enum pg::norm_method;
  f(g, "book_keeping");
  f(pg::with_method<product>(g), "product");
  f(pg::with_method<gram>(g), "gram");
  f(pg::with_method<direct>(g), "direct");
  f(pg::with_method<instantiate>(g), "instantiate");
  f(pg::with_strategy<pg::strategy::naive>(g), "naive");
  f(pg::with_strategy<pg::strategy::multi>(g), "multi");
  f(pg::with_strategy<pg::strategy::crb>(g), "crb");
  f(pg::with_strategy<pg::strategy::ghost>(g), "ghost");
}

/// The clipped sums that do not count the bad samples, with the tiles as they are: bad samples are given a gradient of
/// zero.
template <class Problem, class Sum>
void compare_with_zero_gradients(Sum make_sum) {
  constexpr std::size_t width = decltype(Problem::data)::width;
  Problem clean{count};
  // A sample of zeros whose target is what the network says of it: its gradient is zero.
  for (const std::size_t b : bad)
    std::fill_n(clean.data.inputs.begin() + static_cast<std::ptrdiff_t>(b * width), width, 0.0F);
  const auto outputs = pg::unprotected::evaluate(clean.exec, pg::outputs(clean.gradients()));
  constexpr std::size_t targets = decltype(Problem::data)::target_count;
  for (const std::size_t b : bad) {
    std::copy_n(outputs.begin() + static_cast<std::ptrdiff_t>(b * targets), targets,
                clean.data.targets.begin() + static_cast<std::ptrdiff_t>(b * targets));
  }
  const auto norms = pg::unprotected::evaluate(clean.exec, pg::l2_norms(clean.gradients()));
  for (const std::size_t b : bad) BOOST_TEST_REQUIRE(norms[b] == 0);

  for (const auto& [name, values] : spoilings<Problem>()) {
    Problem spoilt{count};
    for (const std::size_t b : bad) spoil(spoilt, b, values);
    const auto spoilt_norms = pg::unprotected::evaluate(
        spoilt.exec, pg::l2_norms(pg::with_method<pg::norm_method::instantiate>(spoilt.gradients())));
    for (const std::size_t b : bad) BOOST_TEST(!std::isfinite(spoilt_norms[b]), name << " does no harm at all");
    std::vector<std::vector<float>> wanted;
    for_each_way(clean.gradients(), [&](const auto& g, const std::string&) {
      wanted.push_back(pg::unprotected::evaluate(clean.exec, make_sum(g)));
    });
    std::size_t way_number = 0;
    const auto& kind = name;
    for_each_way(spoilt.gradients(), [&](const auto& g, const std::string& way) {
      const auto found = pg::unprotected::evaluate(spoilt.exec, make_sum(g));
      check_same_bits(found, wanted[way_number++], kind + ", " + way);
      BOOST_TEST(norm_of(found) > 0);
    });
  }
}

template <class Problem>
void check_problem() {
  const pg::l2_clip_norm bound{0.05};
  compare_with_zero_gradients<Problem>([&](const auto& g) { return pg::sum(pg::clip(g, bound)); });
  compare_with_zero_gradients<Problem>([&](const auto& g) { return pg::sum(pg::clip_per_layer(g, bound)); });
  compare_with_zero_gradients<Problem>([&](const auto& g) { return pg::sum(pg::normalise(g, bound)); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(convolutions) { check_problem<conv_problem>(); }
BOOST_AUTO_TEST_CASE(dense_layers) { check_problem<dense_problem>(); }
BOOST_AUTO_TEST_CASE(deferred_layers) { check_problem<deferred_problem>(); }
BOOST_AUTO_TEST_CASE(convolutions_by_minimal_filtering) {
  compare_with_zero_gradients<filtered_problem>(
      [](const auto& g) { return pg::sum(pg::clip(g, pg::l2_clip_norm{0.05})); });
}
BOOST_AUTO_TEST_CASE(convolutions_in_pairs) {
  compare_with_zero_gradients<paired_problem>(
      [](const auto& g) { return pg::sum(pg::clip(g, pg::l2_clip_norm{0.05})); });
}

BOOST_AUTO_TEST_CASE(clipped_rows_of_bad_samples_are_zero) {
  for (const auto& [name, values] : spoilings<dense_problem>()) {
    dense_problem p{count};
    const auto clean =
        pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip(p.gradients(), pg::l2_clip_norm{0.05})));
    for (const std::size_t b : bad) spoil(p, b, values);
    const auto rows =
        pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip(p.gradients(), pg::l2_clip_norm{0.05})));
    auto wanted = clean;
    for (const std::size_t b : bad) {
      std::fill_n(wanted.begin() + static_cast<std::ptrdiff_t>(b * dense_problem::parameter_count),
                  dense_problem::parameter_count, 0.0F);
    }
    check_same_bits(rows, wanted, name);
  }
}

BOOST_AUTO_TEST_CASE(a_batch_of_nothing_but_bad_samples_gives_zero) {
  dense_problem p{count};
  std::fill(p.data.inputs.begin(), p.data.inputs.end(), not_a_number);
  for_each_way(p.gradients(), [&](const auto& g, const std::string& way) {
    check_same_bits(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, pg::l2_clip_norm{1}))),
                    std::vector<float>(dense_problem::parameter_count), way);
  });
}

// Nothing of a bad sample stays on the tape for the next evaluation.
BOOST_AUTO_TEST_CASE(the_next_evaluation_is_untouched) {
  conv_problem p{count};
  const pg::l2_clip_norm bound{0.05};
  const auto inputs = p.data.inputs;
  for_each_way(p.gradients(), [&](const auto& g, const std::string& way) {
    const auto before = pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound)));
    std::fill(p.data.inputs.begin(), p.data.inputs.end(), not_a_number);
    static_cast<void>(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))));
    static_cast<void>(pg::unprotected::evaluate(p.exec, pg::sum(g)));
    p.data.inputs = inputs;
    check_same_bits(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), before, way);
  });
}

// A plain sum hides nothing: it is what PyTorch would give, and it is not private.
BOOST_AUTO_TEST_CASE(a_plain_sum_shows_the_damage) {
  dense_problem p{count};
  spoil(p, bad[0], {{0, not_a_number}});
  const auto g = p.gradients();
  std::vector<float> plain(dense_problem::parameter_count), clipped(plain);
  pg::unprotected::evaluate_into(p.exec, pg::assign(clipped, pg::sum(pg::clip(g, pg::l2_clip_norm{1}))),
                                 pg::assign(plain, pg::sum(g)));
  BOOST_TEST(!std::isfinite(static_cast<float>(norm_of(plain))));
  BOOST_TEST(std::isfinite(static_cast<float>(norm_of(clipped))));
  check_same_bits(clipped, pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, pg::l2_clip_norm{1}))),
                  "clip beside sum");
}

// Neither does a variance, where 0 would say that all gradients are alike.
BOOST_AUTO_TEST_CASE(a_variance_shows_the_damage) {
  dense_problem p{count};
  const auto g = p.gradients();
  const auto clean = pg::unprotected::evaluate(p.exec, pg::variance(g));
  for (const auto& [name, values] : spoilings<dense_problem>()) {
    dense_problem spoilt{count};
    spoil(spoilt, bad[0], values);
    const auto found = pg::unprotected::evaluate(spoilt.exec, pg::variance(spoilt.gradients()));
    BOOST_TEST(!std::isfinite(static_cast<float>(norm_of(found))), name);
    for (std::size_t i = 0; i < clean.size(); ++i) BOOST_TEST(!(found[i] == 0 && clean[i] > 0), name << " at " << i);
  }
}

// Erasing a bad sample in one sum leaves the others of the evaluation alone, in whatever order they are listed.
BOOST_AUTO_TEST_CASE(bad_samples_among_several_sums) {
  conv_problem p{count};
  for (const std::size_t b : bad) spoil(p, b, {{3, not_a_number}});
  std::vector<float> weights(count, 0.5F);
  for (const std::size_t b : bad) weights[b] = 0;
  for_each_way(p.gradients(), [&](const auto& g, const std::string& way) {
    const auto by_list = pg::weighted_sum(g, weights);
    const auto clipped = pg::sum(pg::clip(g, pg::l2_clip_norm{0.05}));
    const auto layered = pg::sum(pg::clip_per_layer(g, pg::l2_clip_norm{0.05}));
    std::vector<float> a(conv_problem::parameter_count), b(a), c(a);
    pg::unprotected::evaluate_into(p.exec, pg::assign(a, by_list), pg::assign(b, clipped), pg::assign(c, layered));
    check_same_bits(a, pg::unprotected::evaluate(p.exec, by_list), way + ": list");
    check_same_bits(b, pg::unprotected::evaluate(p.exec, clipped), way + ": clip");
    check_same_bits(c, pg::unprotected::evaluate(p.exec, layered), way + ": clip_per_layer");
    BOOST_TEST(std::isfinite(static_cast<float>(norm_of(a))));
  });
}

BOOST_AUTO_TEST_SUITE_END()
