// SPDX-License-Identifier: Apache-2.0
// tests/expressions/deferred_test.cpp - sums of large blocks, formed a chunk of samples at a time, or sample after
// sample as soon as the gradients are there.
#include <array>
#include <limits>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_deferred)

namespace {

using namespace fixture;
constexpr double tight = 1e-12;
/// Clip factors round down by as much as the norm of so many terms may err (privacy/clip.hpp).
template <class Problem>
inline constexpr double clipped_tight =
    tight + 2 * static_cast<double>(Problem::parameter_count) * std::numeric_limits<double>::epsilon();

/// A large block behind a permuted image, and a small one that is summed up as it is; the layers before it take fewer
/// samples at a time than those behind.
template <class Scalar>
using image_network = pg::basic_network<Scalar, pg::shape{3, 40, 40}, pg::conv2d<16, 3, pg::padding<1>>, pg::relu,
                                        pg::max_pool2d<4>, pg::flatten, pg::linear<256>, pg::tanh, pg::linear<4>>;
/// Two large blocks of odd sizes, one without a bias, and a whole image seen by one window.
template <class Scalar>
using dense_network = pg::basic_network<Scalar, pg::shape{3, 13, 19}, pg::conv2d<359, pg::extent{13, 19}, pg::no_bias>,
                                        pg::flatten, pg::tanh, pg::linear<733>, pg::sigmoid, pg::linear<3>>;

/// A first layer of which a tile's gradients do not stay in the cache.
template <class Scalar>
using recurrent_network =
    pg::basic_network<Scalar, pg::shape{20, 72}, pg::lstm<64, pg::last_output>, pg::tanh, pg::linear<3>>;

using image_problem = problem<image_network<double>, pg::cross_entropy>;
using dense_problem = problem<dense_network<double>, pg::mean_squared_error>;
using image_float = problem<image_network<float>, pg::cross_entropy>;
using dense_float = problem<dense_network<float>, pg::mean_squared_error>;
using recurrent_problem = problem<recurrent_network<double>, pg::mean_squared_error>;
using recurrent_float = problem<recurrent_network<float>, pg::mean_squared_error>;

template <class Problem>
inline constexpr const auto& table_of = pg::on_host::program<typename Problem::network_type>::table;
static_assert(table_of<image_problem>.deferred_count == 2 && table_of<image_float>.deferred_count == 2);
static_assert(table_of<dense_problem>.deferred_count == 3 && table_of<dense_float>.deferred_count == 3);
/// A small block in front of a large one is not deferred: from the first deferred one on tiles leave the cache.
using small_first =
    problem<pg::network<pg::shape{64}, pg::linear<8>, pg::tanh, pg::linear<5000>, pg::tanh, pg::linear<2>>,
            pg::cross_entropy>;
static_assert(table_of<small_first>.deferred_count == 2 && table_of<small_first>.split == 2);
static_assert(table_of<image_problem>.cache_tile < table_of<image_problem>.tile && table_of<image_problem>.split > 0);
static_assert(table_of<image_float>.cache_tile < table_of<image_float>.tile);
static_assert(table_of<dense_float>.cache_tile == 16 && table_of<dense_float>.tile == 32);
template <class Problem>
inline constexpr auto late_count = std::ranges::count_if(table_of<Problem>.outer,
                                                         [](const auto& leaf) { return leaf.late; });
static_assert(late_count<recurrent_problem> > 0 && late_count<recurrent_float> > 0);
static_assert(late_count<image_problem> == 0 && late_count<dense_problem> == 0);

/// Blocks of both layers take turns in the room of one sample.
using stacked_network = pg::basic_network<double, pg::shape{40, 96}, pg::lstm<96>, pg::lstm<128, pg::last_output>,  //
                                          pg::tanh, pg::linear<3>>;
using stacked_problem = problem<stacked_network, pg::mean_squared_error>;
static_assert(std::ranges::any_of(table_of<stacked_problem>.outer,
                                  [](const auto& leaf) { return leaf.late && leaf.node == 0; }) &&
              std::ranges::any_of(table_of<stacked_problem>.outer,
                                  [](const auto& leaf) { return leaf.late && leaf.node == 1; }));

/// A block that is used both before and behind the first large one: by layers that take few samples at a time, and by
/// some that take more.
using tied_network =
    pg::basic_network<double, pg::shape{64}, pg::tied<0, pg::linear<64>>, pg::tanh, pg::linear<512>, pg::tanh,
                      pg::linear<64>, pg::tanh, pg::tied<0, pg::linear<64>>, pg::tanh, pg::linear<3>>;
using tied_problem = problem<tied_network, pg::mean_squared_error>;
static_assert(table_of<tied_problem>.cache_tile < table_of<tied_problem>.tile && table_of<tied_problem>.split > 0);

/// So large a sample that none goes through the network with another: a convolution's gradient comes late, over what
/// the backward pass has left.
using wide_network = pg::basic_network<double, pg::shape{16, 128, 128}, pg::conv2d<128, 1>, pg::relu, pg::max_pool2d<8>,
                                       pg::conv2d<130, 3, pg::padding<1>>, pg::tanh, pg::flatten, pg::linear<4>>;
using wide_problem = problem<wide_network, pg::cross_entropy>;
static_assert(table_of<wide_problem>.tile == 1 && table_of<wide_problem>.deferred_count == 1);
static_assert(std::ranges::any_of(table_of<wide_problem>.outer, [](const auto& leaf) {
  return leaf.late && leaf.kept.in_workspace && leaf.node > 0;
}));

/// Norms and sums of many kinds against the rows of a problem's samples: in every way, or as planned alone.
template <class Problem>
void check_against_rows(std::size_t count, bool in_every_way = true) {
  Problem p{count};
  constexpr std::size_t width = Problem::parameter_count;
  const auto rows = p.rows();
  std::vector<double> norms;
  for (std::size_t b = 0; b < count; ++b) norms.push_back(static_cast<double>(norm_of(row_of(rows, width, b))));
  auto sorted = norms;
  std::sort(sorted.begin(), sorted.end());
  const pg::l2_clip_norm bound{sorted[count / 2]};
  std::vector<double> list(count);
  for (std::size_t b = 0; b < count; ++b) list[b] = b % 5 == 0 ? 0 : std::cos(static_cast<double>(b));
  const auto clipped = weighted(rows, width, [&](std::size_t b) { return std::min(1.0, bound.value() / norms[b]); });
  const auto normal = weighted(rows, width, [&](std::size_t b) { return bound.value() / (norms[b] + 0.01); });
  const auto by_list = weighted(rows, width, [&](std::size_t b) { return list[b]; });
  const auto plain = weighted(rows, width, [](std::size_t) { return 1.0; });
  std::vector<double> mean(width), second(width);
  for (std::size_t i = 0; i < width; ++i) mean[i] = plain[i] / static_cast<double>(count);
  for (std::size_t i = 0; i < rows.size(); ++i) second[i % width] += rows[i] * rows[i] / static_cast<double>(count);
  const auto layered =
      weighted(pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip_per_layer(p.gradients(), bound))), width,
               [](std::size_t) { return 1.0; });
  const std::vector<double> direction(width, 0.01);
  std::vector<double> dots(count);
  for (std::size_t i = 0; i < rows.size(); ++i) dots[i / width] += 0.01 * rows[i];

  const auto check = [&](const auto& g, const std::string& way) {
    check_close(pg::unprotected::evaluate(p.exec, pg::l2_norms(g)), norms, tight, way + ": l2_norms");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(g)), plain, tight, way + ": sum");
    check_close(pg::unprotected::evaluate(p.exec, pg::mean(g)), mean, tight, way + ": mean");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), clipped, clipped_tight<Problem>,
                way + ": clip");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::normalise(g, bound))), normal, clipped_tight<Problem>,
                way + ": normalise");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip_per_layer(g, bound))), layered,
                clipped_tight<Problem>, way + ": clip_per_layer");
    check_close(pg::unprotected::evaluate(p.exec, pg::weighted_sum(g, list)), by_list, tight, way + ": list");
    // All of them at once.
    std::vector<double> a(width), b(width), c(width), d(width), e(width), of_dots(count);
    pg::unprotected::evaluate_into(p.exec, pg::assign(a, pg::weighted_sum(g, list)), pg::assign(b, pg::mean(g)),
                                   pg::assign(c, pg::sum(pg::clip(g, bound))), pg::assign(d, pg::second_moment(g)),
                                   pg::assign(e, pg::sum(pg::clip_per_layer(g, bound))),
                                   pg::assign(of_dots, pg::dot(g, direction)));
    check_close(a, by_list, tight, way + ": list among others");
    check_close(b, mean, tight, way + ": mean among others");
    check_close(c, clipped, clipped_tight<Problem>, way + ": clip among others");
    check_close(d, second, tight, way + ": second moment among others");
    check_close(e, layered, clipped_tight<Problem>, way + ": clip_per_layer among others");
    check_close(of_dots, dots, tight, way + ": dot among others");
    check_close(pg::unprotected::evaluate(p.exec, pg::second_moment(g)), second, tight, way + ": second moment");
  };
  const auto g = p.gradients();
  using enum pg::norm_method;
  check(g, "as planned");
  if (!in_every_way) return;
  check(pg::with_method<gram>(g), "gram");
  check(pg::with_method<direct>(g), "direct");
  check(pg::with_method<instantiate>(g), "instantiate");
  check(pg::with_strategy<pg::strategy::naive>(g), "naive");
  check(pg::with_strategy<pg::strategy::multi>(g), "multi");
  check(pg::with_strategy<pg::strategy::crb>(g), "crb");
  check(pg::with_strategy<pg::strategy::ghost>(g), "ghost");
}

/// A batch of several chunks: sums against those of batches that are one chunk each.
template <class Problem>
void check_chunks() {
  using network = typename Problem::network_type;
  using loss = typename Problem::loss_type;
  constexpr auto chunk = static_cast<std::size_t>(pg::on_host::chunk_samples<network>);
  constexpr std::size_t width = Problem::parameter_count;
  const std::size_t count = 2 * chunk + 7;
  Problem p{count};
  const auto g = p.gradients();
  const pg::l2_clip_norm bound{0.2};
  std::vector<double> whole(width), mean(width), parts(width), plain_parts(width);
  pg::unprotected::evaluate_into(p.exec, pg::assign(whole, pg::sum(pg::clip(g, bound))), pg::assign(mean, pg::mean(g)));
  for (std::size_t first = 0; first < count; first += 100) {
    const auto part = p.data.part(first, std::min<std::size_t>(100, count - first));
    const auto h = pg::per_sample_gradients(p.net, loss{}, part, p.tape);
    const auto clipped = pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(h, bound)));
    const auto plain = pg::unprotected::evaluate(p.exec, pg::sum(h));
    for (std::size_t i = 0; i < width; ++i) parts[i] += clipped[i];
    for (std::size_t i = 0; i < width; ++i) plain_parts[i] += plain[i] / static_cast<double>(count);
  }
  check_close(whole, parts, tight, "clip");
  check_close(mean, plain_parts, tight, "mean");
  // Added to what is there, chunk by chunk.
  std::vector<double> added(width, 1.0);
  pg::unprotected::evaluate_into(p.exec, pg::accumulate(added, pg::sum(pg::clip(g, bound))));
  pg::unprotected::evaluate_into(p.exec, pg::accumulate(added, pg::mean(g)));
  for (std::size_t i = 0; i < width; ++i) parts[i] += plain_parts[i] + 1;
  check_close(added, parts, tight, "accumulated");
}

template <class Problem>
void check_bits() {
  for (const std::size_t count : {5U, 21U, 300U}) {
    std::array<std::vector<float>, 3> wanted;
    for (const std::size_t threads : {1U, 2U, 3U, 4U}) {
      Problem p{count, threads};
      const auto g = p.gradients();
      const pg::l2_clip_norm bound{0.05};
      const auto where = std::to_string(count) + " samples on " + std::to_string(threads) + " threads: ";
      const std::array found{pg::unprotected::evaluate(p.exec, pg::sum(g)),
                             pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))),
                             pg::unprotected::evaluate(p.exec, pg::second_moment(g))};
      for (std::size_t k = 0; k < found.size(); ++k) {
        if (threads == 1) wanted[k] = found[k];
        check_same_bits(found[k], wanted[k], where + std::to_string(k));
      }
      BOOST_TEST(norm_of(found[1]) > 0);
    }
  }
}

/// Plain sums show the damage of a sample that a clipped sum of the same evaluation leaves out, and neither disturbs
/// the other; the next evaluation finds nothing of it.
template <class Problem>
void check_left_out() {
  constexpr std::size_t count = 21;
  const pg::l2_clip_norm bound{0.05};
  constexpr std::size_t width = Problem::parameter_count;
  Problem p{count};
  const auto g = p.gradients();
  std::vector<float> others(count, 1.0F);
  others[4] = others[17] = 0;
  const auto clean = pg::unprotected::evaluate(p.exec, pg::weighted_sum(g, others));
  const auto inputs = p.data.inputs;
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    p.data.inputs[4 * Problem::network_type::input_shape.size() + 3] = value;
    p.data.targets[17 * 3] = value;
    std::vector<float> plain(width), clipped(width), listed(width);
    pg::unprotected::evaluate_into(p.exec, pg::assign(clipped, pg::sum(pg::clip(g, bound))),
                                   pg::assign(plain, pg::sum(g)), pg::assign(listed, pg::weighted_sum(g, others)));
    BOOST_TEST(!std::isfinite(norm_of(plain)));
    check_same_bits(listed, clean, "a list that leaves them out");
    BOOST_TEST(std::isfinite(norm_of(clipped)));
    check_same_bits(clipped, pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), "clip alone");
    p.data.inputs = inputs;
    p.data.targets[17 * 3] = 0.5F;
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_image_against_its_rows) { check_against_rows<image_problem>(21); }
BOOST_AUTO_TEST_CASE(dense_layers_against_their_rows) { check_against_rows<dense_problem>(19); }
BOOST_AUTO_TEST_CASE(a_recurrent_layer_against_its_rows) { check_against_rows<recurrent_problem>(19); }
BOOST_AUTO_TEST_CASE(late_gradients_of_a_wide_sample_against_their_rows) { check_against_rows<wide_problem>(3, false); }

BOOST_AUTO_TEST_CASE(a_block_on_both_sides_of_a_large_one_against_its_rows) { check_against_rows<tied_problem>(37); }
BOOST_AUTO_TEST_CASE(a_recurrent_layer_on_any_number_of_threads) { check_bits<recurrent_float>(); }
BOOST_AUTO_TEST_CASE(a_large_first_layer_below_a_larger_one_against_its_rows) {
  check_against_rows<stacked_problem>(9);
}
BOOST_AUTO_TEST_CASE(an_image_in_chunks) { check_chunks<image_problem>(); }
BOOST_AUTO_TEST_CASE(dense_layers_in_chunks) { check_chunks<dense_problem>(); }
BOOST_AUTO_TEST_CASE(an_image_on_any_number_of_threads) { check_bits<image_float>(); }
BOOST_AUTO_TEST_CASE(dense_layers_on_any_number_of_threads) { check_bits<dense_float>(); }

BOOST_AUTO_TEST_CASE(an_empty_batch_gives_zeros) {
  dense_float p{0};
  std::vector<float> sum(dense_float::parameter_count, 1.0F);
  pg::unprotected::evaluate_into(p.exec, sum, pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{1})));
  check_same_bits(sum, std::vector<float>(dense_float::parameter_count), "empty");
}

BOOST_AUTO_TEST_CASE(left_out_samples_contribute_zero) {
  check_left_out<dense_float>();
  check_left_out<recurrent_float>();
}

BOOST_AUTO_TEST_SUITE_END()
