// SPDX-License-Identifier: Apache-2.0
// tests/layers/cross_attention_test.cpp - attention between two branches: the laws, a long double oracle
#include <boost/test/unit_test.hpp>

#include <cstddef>

#include <pergrad/layers/cross_attention.hpp>
#include <pergrad/layers/multihead_attention.hpp>
#include <pergrad/layers/slices.hpp>
#include <pergrad/pergrad.hpp>

#include "attention_oracle.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(cross_attention_layer)

namespace {

using attention_tests::add_biases;
using attention_tests::dual;
using attention_tests::matrix;
using layer_tests::element_bias;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::basic_network;
using pergrad::causal;
using pergrad::cross_attention;
using pergrad::kv_bias;
using pergrad::linear;
using pergrad::mean_over_positions;
using pergrad::memory;
using pergrad::multihead_attention;
using pergrad::no_bias;
using pergrad::queries;
using pergrad::sequential;
using pergrad::shape;
using pergrad::take_positions;
using pergrad::variable;

matrix rows(const matrix& x, std::size_t first, std::size_t count) {
  matrix result;
  for (std::size_t t = first; t < first + count && t < x.size(); ++t) result.push_back(x[t]);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(laws) {
  keeps_the_laws<cross_attention<2, queries<take_positions<0, 2>>, memory<take_positions<2, 3>>>, shape{5, 4}>();
}
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(other_width_kv_bias_laws) {
  keeps_the_laws_in_double<cross_attention<2, queries<>, memory<take_positions<0, 3>, linear<3>>, kv_bias>,
                           shape{4, 4}>();
}
BOOST_AUTO_TEST_CASE(varying_no_bias_laws) {
  keeps_the_laws_in_double<
      sequential<cross_attention<3, queries<linear<3>>, memory<take_positions<0, 3>>, no_bias>, mean_over_positions>,
      variable(shape{5, 4})>();
}
#endif

BOOST_AUTO_TEST_CASE(oracle) {
  using network = basic_network<double, shape{6, 4}, element_bias,
                                cross_attention<2, queries<take_positions<1, 2>>, memory<take_positions<0, 5>>>>;
  attention_tests::compare<network>(5, 3, [](const matrix& x, const dual* parameters) {
    const matrix biased = add_biases(x, parameters);
    return attention_tests::attention({.heads = 2}, rows(biased, 1, 2), rows(biased, 0, 5), parameters + 24);
  });
}
BOOST_AUTO_TEST_CASE(oracle_of_separate_projections_with_a_mask) {
  using layer =
      cross_attention<2, queries<linear<6>>, memory<take_positions<1, 3>, linear<5, no_bias>>, kv_bias, causal>;
  using network = basic_network<double, shape{4, 3}, element_bias, layer>;
  attention_tests::compare<network>(6, 3, [](const matrix& x, const dual* parameters) {
    const matrix biased = add_biases(x, parameters);
    const dual* next = parameters + 12;
    const matrix asks = attention_tests::project(biased, 6, next, next + 18);
    next += 24;
    const matrix asked = attention_tests::project(rows(biased, 1, 3), 5, next, nullptr);
    return attention_tests::attention({.heads = 2, .causal = true, .kv_bias = true}, asks, asked, next + 15);
  });
}
// The memory's own length counts: what a cut leaves of the sample.
BOOST_AUTO_TEST_CASE(oracle_of_varying_lengths) {
  using network = basic_network<double, variable(shape{6, 2}), element_bias,
                                cross_attention<1, queries<>, memory<take_positions<0, 3>>>>;
  attention_tests::compare<network>(7, 8, [](const matrix& x, const dual* parameters) {
    const matrix biased = add_biases(x, parameters);
    return attention_tests::attention({}, biased, rows(biased, 0, 3), parameters + 12);
  });
}
// Few queries and more keys than a vector has lanes.
BOOST_AUTO_TEST_CASE(oracle_of_few_queries) {
  using fixed =
      basic_network<double, shape{20, 2}, element_bias, cross_attention<1, queries<take_positions<0, 2>>, memory<>>>;
  attention_tests::compare<fixed>(9, 2, [](const matrix& x, const dual* parameters) {
    const matrix biased = add_biases(x, parameters);
    return attention_tests::attention({}, rows(biased, 0, 2), biased, parameters + 40);
  });
  using varying = basic_network<double, variable(shape{20, 2}), element_bias,
                                cross_attention<1, queries<take_positions<0, 2>>, memory<>, kv_bias>>;
  attention_tests::compare<varying>(10, 4, [](const matrix& x, const dual* parameters) {
    const matrix biased = add_biases(x, parameters);
    return attention_tests::attention({.kv_bias = true}, rows(biased, 0, 2), biased, parameters + 40);
  });
}
BOOST_AUTO_TEST_CASE(few_queries_laws) {
  keeps_the_laws<cross_attention<2, queries<take_positions<0, 2>>, memory<>>, shape{18, 4}>();
}
BOOST_AUTO_TEST_CASE(of_the_input_alone_it_is_self_attention) {
  using cross = basic_network<double, shape{5, 4}, element_bias, cross_attention<2, queries<>, memory<>>>;
  attention_tests::compare<cross>(8, 2, [](const matrix& x, const dual* parameters) {
    const matrix biased = add_biases(x, parameters);
    return attention_tests::attention({.heads = 2}, biased, biased, parameters + 20);
  });
}

BOOST_AUTO_TEST_SUITE_END()
