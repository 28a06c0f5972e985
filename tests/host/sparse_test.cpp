// SPDX-License-Identifier: Apache-2.0
// tests/host/sparse_test.cpp - tables against the dense layer that they are: an embedding is a linear layer on one-hot
// vectors
//
// Every result is compared with that of the dense network, over more samples than one chunk; and the tape must not grow
// with batch times table.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(host_sparse)

namespace {

namespace pg = pergrad;
namespace unprotected = pg::unprotected;

constexpr std::size_t positions = 6;
constexpr std::size_t vocabulary = 50;
constexpr std::size_t width = 3;
constexpr std::size_t samples = 600;  // three chunks

struct rows {
  using sparse = pg::basic_network<double, pg::token_ids(positions, vocabulary), pg::embedding<width>, pg::tanh,
                                   pg::flatten, pg::linear<4>>;
  using dense = pg::basic_network<double, pg::shape{positions, vocabulary}, pg::linear<width, pg::no_bias>, pg::tanh,
                                  pg::flatten, pg::linear<4>>;
};
struct bag {
  using sparse =
      pg::basic_network<double, pg::token_ids(positions, vocabulary), pg::embedding_bag<width>, pg::linear<4>>;
  using dense = pg::basic_network<double, pg::shape{positions, vocabulary}, pg::linear<width, pg::no_bias>,
                                  pg::mean_over_positions, pg::linear<4>>;
};

/// Where parameter i of the sparse network is in the dense one: the table is the transpose of the weight.
std::size_t dense_place(std::size_t i) { return i < vocabulary * width ? i % width * vocabulary + i / width : i; }
std::vector<double> as_sparse(const std::vector<double>& dense, std::size_t parameters) {
  std::vector<double> result(dense.size());
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const std::size_t row = i / parameters * parameters;
    result[i] = dense[row + dense_place(i % parameters)];
  }
  return result;
}
void close(const char* what, const std::vector<double>& computed, const std::vector<double>& expected) {
  BOOST_REQUIRE_EQUAL(computed.size(), expected.size());
  double scale = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::fabs(expected[i]));
    worst = std::max(worst, std::fabs(expected[i] - computed[i]));
  }
  BOOST_TEST(scale > 0, what);
  BOOST_TEST(worst <= 1e-13 * scale, what << ": off by " << worst << " of " << scale);
}

template <class Pair>
struct problem {
  using sparse = typename Pair::sparse;
  using dense = typename Pair::dense;
  static constexpr std::size_t parameters = sparse::parameter_count;

  explicit problem(std::size_t count = samples, std::size_t threads = 2)
      : exec{pg::threads{threads}},
        sparse_tape{exec, pg::max_batch{count}, pg::max_sums{8}},
        dense_tape{exec, pg::max_batch{count}, pg::max_sums{8}} {
    std::mt19937 bits{5};
    std::uniform_real_distribution<double> uniform{-1, 1};
    for (std::size_t i = 0; i < parameters; ++i) {
      sparse_net.parameters()[i] = uniform(bits);
      dense_net.parameters()[dense_place(i)] = sparse_net.parameters()[i];
    }
    ids.resize(count * positions);
    one_hot.resize(ids.size() * vocabulary);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(bits() % (i % 3 == 0 ? 4 : vocabulary));  // some occur again and again
      one_hot[i * vocabulary + static_cast<std::size_t>(ids[i])] = 1;
    }
    labels.resize(count);
    for (auto& label : labels) label = static_cast<std::int32_t>(bits() % 4);
  }

  /// f(gradients of the sparse network, of the dense one)
  template <class Function>
  void with_both(Function&& f) {
    const pg::batch<sparse, pg::cross_entropy> sparse_batch{ids, labels};
    const pg::batch<dense, pg::cross_entropy> dense_batch{one_hot, labels};
    f(pg::per_sample_gradients(sparse_net, pg::cross_entropy{}, sparse_batch, sparse_tape),
      pg::per_sample_gradients(dense_net, pg::cross_entropy{}, dense_batch, dense_tape));
  }
  /// Evaluates expression(gradients) of both networks and compares.
  template <class Function>
  void same(const char* what, Function&& expression) {
    with_both([&](const auto& g, const auto& h) {
      const auto computed = unprotected::evaluate(exec, expression(g));
      const auto expected = unprotected::evaluate(exec, expression(h));
      const bool of_parameters = expected.size() % parameters == 0;
      close(what, computed, of_parameters ? as_sparse(expected, parameters) : expected);
    });
  }

  pg::host exec;
  sparse sparse_net{exec, pg::zeros{}};
  dense dense_net{exec, pg::zeros{}};
  typename sparse::tape sparse_tape;
  typename dense::tape dense_tape;
  std::vector<std::int32_t> ids;
  std::vector<double> one_hot;
  std::vector<std::int32_t> labels;
};

constexpr pg::l2_clip_norm bound{0.6};

template <class Pair>
void agrees_with_dense() {
  problem<Pair> p;
  p.same("squared norms", [](const auto& g) { return squared_l2_norms(g); });
  p.same("losses", [](const auto& g) { return losses(g); });
  p.same("sum", [](const auto& g) { return sum(g); });
  p.same("mean", [](const auto& g) { return mean(g); });
  p.same("clipped sum", [](const auto& g) { return sum(clip(g, bound)); });
  p.same("clipped by layer", [](const auto& g) { return sum(clip_per_layer(g, bound)); });
  p.same("normalised", [](const auto& g) { return sum(normalise(g, bound)); });
  p.same("weighted sum", [](const auto& g) { return weighted_sum(g, losses(g) - 1); });
  p.same("second moment", [](const auto& g) { return second_moment(g); });
  p.same("variance", [](const auto& g) { return variance(g); });
  p.same("rows", [](const auto& g) { return materialise(g); });
  p.same("clipped rows", [](const auto& g) { return materialise(clip(g, bound)); });
  p.same("rows clipped by layer", [](const auto& g) { return materialise(clip_per_layer(g, bound)); });
  p.same("one row", [](const auto& g) { return g[391]; });
  p.same("naive", [](const auto& g) { return sum(clip(pg::with_strategy<pg::strategy::naive>(g), bound)); });
  p.same("multi", [](const auto& g) { return sum(clip(pg::with_strategy<pg::strategy::multi>(g), bound)); });
  p.same("crb", [](const auto& g) { return sum(clip(pg::with_strategy<pg::strategy::crb>(g), bound)); });
  p.same("ghost", [](const auto& g) { return sum(clip(pg::with_strategy<pg::strategy::ghost>(g), bound)); });
}

template <class Pair>
void projects() {
  problem<Pair> p;
  constexpr std::size_t parameters = Pair::sparse::parameter_count;
  std::vector<double> direction(parameters);
  std::vector<double> dense_direction(parameters);
  for (std::size_t i = 0; i < parameters; ++i) {
    direction[i] = std::sin(static_cast<double>(i));
    dense_direction[dense_place(i)] = direction[i];
  }
  p.with_both([&](const auto& g, const auto& h) {
    close("projection", unprotected::evaluate(p.exec, dot(g, direction)),
          unprotected::evaluate(p.exec, dot(h, dense_direction)));
  });
}

/// Several sums at once, added to something or not, are what they are one by one.
template <class Pair>
void forms_many_sums_at_once() {
  problem<Pair> p;
  constexpr std::size_t parameters = Pair::sparse::parameter_count;
  p.with_both([&](const auto& g, const auto&) {
    std::vector<double> plain(parameters, 7.0);
    std::vector<double> clipped(parameters, 0.5);
    std::vector<double> squares(parameters, -1.0);
    std::vector<double> layers(parameters, 3.0);
    unprotected::evaluate_into(p.exec, pg::assign(plain, sum(g)), pg::accumulate(clipped, sum(clip(g, bound))),
                               pg::assign(squares, second_moment(g)),
                               pg::accumulate(layers, sum(clip_per_layer(g, bound))));
    auto expected = unprotected::evaluate(p.exec, sum(clip(g, bound)));
    for (double& value : expected) value += 0.5;
    close("clipped sum among others", clipped, expected);
    expected = unprotected::evaluate(p.exec, sum(clip_per_layer(g, bound)));
    for (double& value : expected) value += 3.0;
    close("clipped by layer among others", layers, expected);
    close("sum among others", plain, unprotected::evaluate(p.exec, sum(g)));
    close("second moment among others", squares, unprotected::evaluate(p.exec, second_moment(g)));
  });
}

template <class Pair>
void has_the_same_bits_on_any_number_of_threads() {
  std::vector<double> first;
  for (const std::size_t threads : {1U, 2U, 3U}) {
    problem<Pair> p{samples, threads};
    p.with_both([&](const auto& g, const auto&) {
      const auto clipped = unprotected::evaluate(p.exec, sum(clip(g, bound)));
      if (first.empty()) first = clipped;
      BOOST_TEST(clipped == first, boost::test_tools::per_element());
    });
  }
}

template <class Network>
std::size_t tape_bytes(std::size_t batch) {
  const pg::host exec{pg::threads{2}};
  return typename Network::tape{exec, pg::max_batch{batch}, pg::max_sums{1}}.bytes();
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_agree_with_dense) { agrees_with_dense<rows>(); }
BOOST_AUTO_TEST_CASE(bags_agree_with_dense) { agrees_with_dense<bag>(); }
BOOST_AUTO_TEST_CASE(projections) {
  projects<rows>();
  projects<bag>();
}
BOOST_AUTO_TEST_CASE(all_inner_products) {
  problem<rows> p{40};
  p.same("gram", [](const auto& g) { return gram(g); });
  problem<bag> q{40};
  q.same("gram", [](const auto& g) { return gram(g); });
}
BOOST_AUTO_TEST_CASE(many_sums_at_once) {
  forms_many_sums_at_once<rows>();
  forms_many_sums_at_once<bag>();
}
BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_threads) {
  has_the_same_bits_on_any_number_of_threads<rows>();
  has_the_same_bits_on_any_number_of_threads<bag>();
}

BOOST_AUTO_TEST_CASE(an_empty_batch_has_a_sum_of_zeros) {
  problem<bag> p{3};
  const std::vector<std::int32_t> nothing;
  const pg::batch<bag::sparse, pg::cross_entropy> empty{nothing, nothing};
  const auto g = pg::per_sample_gradients(p.sparse_net, pg::cross_entropy{}, empty, p.sparse_tape);
  std::vector<double> clipped(bag::sparse::parameter_count, 4.0);
  unprotected::evaluate_into(p.exec, clipped, sum(clip(g, bound)));
  BOOST_TEST(clipped == std::vector<double>(clipped.size(), 0.0), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_sample_that_is_not_finite_is_left_out) {
  problem<rows> p{20};
  constexpr std::size_t parameters = rows::sparse::parameter_count;
  for (std::size_t t = 0; t < positions; ++t) p.ids[t] = 49;  // sample 0 alone reads row 49
  for (std::size_t i = positions; i < p.ids.size(); ++i) p.ids[i] %= 49;
  for (std::size_t i = 0; i < width; ++i) p.sparse_net.parameters()[49 * width + i] = std::nan("");
  p.with_both([&](const auto& g, const auto&) {
    const auto clipped = unprotected::evaluate(p.exec, materialise(clip(g, bound)));
    for (std::size_t i = 0; i < parameters; ++i) BOOST_TEST(clipped[i] == 0);
    std::vector<double> expected(parameters);
    for (std::size_t i = parameters; i < clipped.size(); ++i) expected[i % parameters] += clipped[i];
    close("sum of the others", unprotected::evaluate(p.exec, sum(clip(g, bound))), expected);
    BOOST_TEST(std::isnan(unprotected::evaluate(p.exec, g[0])[49 * width]));
  });
}

// A vocabulary so large that ids share the slots of the hash table.
BOOST_AUTO_TEST_CASE(large_vocabularies_are_hashed) {
  constexpr std::size_t many = 1'000'003;
  using network = pg::basic_network<double, pg::token_ids(40, many), pg::embedding<2>, pg::flatten, pg::linear<2>>;
  using table_of = pg::on_host::program<network>;
  BOOST_TEST(table_of::table.sparse_slots < 1000);
  const pg::host exec{pg::threads{2}};
  const network net{exec, pg::layer_default{3}};
  network::tape tape{exec, pg::max_batch{20}};
  std::mt19937 bits{11};
  std::vector<std::int32_t> ids(20 * 40);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i % 4 == 3 ? static_cast<std::size_t>(ids[i - 2]) : bits() % many);
  }
  const std::vector<std::int32_t> labels(20, 1);
  const pg::batch<network, pg::cross_entropy> batch{ids, labels};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
  const auto norms = unprotected::evaluate(exec, squared_l2_norms(g));
  const auto total = unprotected::evaluate(exec, sum(g));
  std::vector<double> expected(total.size());
  for (std::size_t b = 0; b < 20; ++b) {
    const auto row = unprotected::evaluate(exec, g[b]);
    double squared = 0;
    std::size_t used = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      squared += row[i] * row[i];
      expected[i] += row[i];
      used += i < many * 2 && row[i] != 0 ? 1U : 0U;
    }
    std::vector<std::int32_t> distinct(ids.begin() + static_cast<std::ptrdiff_t>(b * 40),
                                       ids.begin() + static_cast<std::ptrdiff_t>(b * 40 + 40));
    std::sort(distinct.begin(), distinct.end());
    const auto count = std::unique(distinct.begin(), distinct.end()) - distinct.begin();
    BOOST_TEST(used == 2 * static_cast<std::size_t>(count));
    BOOST_TEST(std::fabs(norms[b] - squared) <= 1e-12 * squared);
  }
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::fabs(total[i] - expected[i]));
  }
  BOOST_TEST(worst < 1e-13);
}

BOOST_AUTO_TEST_CASE(memory_does_not_grow_with_batch_times_table) {
  using few = pg::network<pg::token_ids(8, 1000), pg::embedding<16>, pg::mean_over_positions, pg::linear<2>>;
  using many = pg::network<pg::token_ids(8, 100'000), pg::embedding<16>, pg::mean_over_positions, pg::linear<2>>;
  // One table a sum, for what is clipped or accumulated: touched only then, and in double, as a row has as many addends
  // as there are samples. Nothing a sample, nothing an accumulator.
  constexpr std::size_t table_growth = 99'000 * 16 * sizeof(double);
  BOOST_TEST(tape_bytes<many>(256) - tape_bytes<few>(256) < table_growth + table_growth / 4);
  BOOST_TEST(tape_bytes<many>(100'000) == tape_bytes<many>(256));
  BOOST_TEST(tape_bytes<many>(256) - tape_bytes<many>(1) <= 256 * (8 * 16 * sizeof(float) + 200));
}

BOOST_AUTO_TEST_SUITE_END()
