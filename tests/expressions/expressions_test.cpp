// SPDX-License-Identifier: Apache-2.0
// tests/expressions/expressions_test.cpp - every expression against plain arithmetic on materialised gradients.
#include <boost/mpl/list.hpp>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_all)

namespace {

using namespace fixture;
using problems = boost::mpl::list<cnn_problem, mlp_problem>;
constexpr double tight = 1e-12;

std::vector<double> norms_of(const std::vector<double>& rows, std::size_t width) {
  std::vector<double> norms;
  for (std::size_t b = 0; b * width < rows.size(); ++b)
    norms.push_back(static_cast<double>(norm_of(row_of(rows, width, b))));
  return norms;
}
/// A bound that some norms are above and some below.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
/// Layers with parameters: first parameter of each, and the end.
template <class Network>
std::vector<std::size_t> layer_offsets() {
  using structure = typename Network::structure;
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < structure::size; ++i) {
    if (structure::parameter_counts[i] > 0) offsets.push_back(structure::parameter_offsets[i]);
  }
  offsets.push_back(Network::parameter_count);
  return offsets;
}
template <class Network>
std::vector<double> clipped_per_layer(const std::vector<double>& rows, const std::vector<double>& bounds) {
  const auto offsets = layer_offsets<Network>();
  std::vector<double> result = rows;
  for (std::size_t b = 0; b * Network::parameter_count < rows.size(); ++b) {
    for (std::size_t layer = 0; layer + 1 < offsets.size(); ++layer) {
      const auto part = std::span<const double>{rows}.subspan(b * Network::parameter_count + offsets[layer],
                                                              offsets[layer + 1] - offsets[layer]);
      const double weight = std::min(1.0, bounds[layer] / static_cast<double>(norm_of(part)));
      for (std::size_t i = 0; i < part.size(); ++i)
        result[b * Network::parameter_count + offsets[layer] + i] = weight * part[i];
    }
  }
  return result;
}

}  // namespace

// Materialised gradients are the yardstick of this file, so they are measured first: by central differences of the
// losses.
BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_derivatives_of_the_losses, Problem, problems) {
  Problem p{3};
  const auto rows = p.rows();
  constexpr double step = 1e-6;
  for (std::size_t i = 0; i < Problem::parameter_count; i += 5) {
    double& parameter = p.net.parameters()[i];
    const double kept = parameter;
    parameter = kept + step;
    const auto above = pg::unprotected::evaluate(p.exec, pg::losses(p.gradients()));
    parameter = kept - step;
    const auto below = pg::unprotected::evaluate(p.exec, pg::losses(p.gradients()));
    parameter = kept;
    for (std::size_t b = 0; b < 3; ++b) {
      BOOST_TEST(std::fabs((above[b] - below[b]) / (2 * step) - rows[b * Problem::parameter_count + i]) < 1e-8);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(norms_losses_and_outputs, Problem, problems) {
  Problem p{37};
  const auto rows = p.rows();
  const auto g = p.gradients();
  const auto norms = norms_of(rows, Problem::parameter_count);
  std::vector<double> squared;
  for (const double norm : norms) squared.push_back(norm * norm);
  check_close(pg::unprotected::evaluate(p.exec, pg::l2_norms(g)), norms, tight, "l2_norms");
  check_close(pg::unprotected::evaluate(p.exec, pg::squared_l2_norms(g)), squared, tight, "squared_l2_norms");

  const auto outputs = pg::unprotected::evaluate(p.exec, pg::outputs(g));
  const auto losses = pg::unprotected::evaluate(p.exec, pg::losses(g));
  constexpr std::size_t width = Problem::network_type::output_shape.size();
  BOOST_TEST_REQUIRE(outputs.size() == 37 * width);
  std::vector<double> wanted;
  for (std::size_t b = 0; b < 37; ++b) {
    const double* y = outputs.data() + b * width;
    double loss = 0;
    if constexpr (std::is_same_v<typename Problem::loss_type, pg::cross_entropy>) {
      for (std::size_t i = 0; i < width; ++i) loss += std::exp(y[i]);
      loss = std::log(loss) - y[p.data.targets[b]];
    } else {
      for (std::size_t i = 0; i < width; ++i)
        loss += std::pow(y[i] - p.data.targets[b * width + i], 2) / static_cast<double>(width);
    }
    wanted.push_back(loss);
  }
  check_close(losses, wanted, tight, "losses");
}

BOOST_AUTO_TEST_CASE(outputs_of_a_linear_layer_are_its_formula) {
  mlp_problem p{5};
  const auto outputs = pg::unprotected::evaluate(p.exec, pg::outputs(p.gradients()));
  const auto w = p.net.parameters();
  std::vector<double> wanted;
  for (std::size_t b = 0; b < 5; ++b) {
    double hidden[9];
    for (std::size_t j = 0; j < 9; ++j) {
      double sum = w[54 + j];
      for (std::size_t i = 0; i < 6; ++i) sum += w[j * 6 + i] * p.data.inputs[b * 6 + i];
      hidden[j] = std::tanh(sum);
    }
    for (std::size_t k = 0; k < 2; ++k) {
      double sum = w[63 + 18 + k];
      for (std::size_t j = 0; j < 9; ++j) sum += w[63 + k * 9 + j] * hidden[j];
      wanted.push_back(sum);
    }
  }
  check_close(outputs, wanted, tight, "outputs");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(one_gradient_is_its_row, Problem, problems) {
  Problem p{19};
  const auto rows = p.rows();
  const auto g = p.gradients();
  for (const std::size_t b : {std::size_t{0}, std::size_t{7}, std::size_t{18}}) {
    const auto row = row_of(rows, Problem::parameter_count, b);
    check_same_bits(pg::unprotected::evaluate(p.exec, g[b]), std::vector<double>{row.begin(), row.end()}, "g[b]");
    // The sum over a batch that is this sample alone is the same gradient.
    const auto alone = p.data.part(b, 1);
    check_close(pg::unprotected::evaluate(
                    p.exec, pg::sum(pg::per_sample_gradients(p.net, typename Problem::loss_type{}, alone, p.tape))),
                std::vector<double>{row.begin(), row.end()}, tight, "sum over one");
  }
  const double bound = median(norms_of(rows, Problem::parameter_count));
  const auto clipped = pg::clip(g, pg::l2_clip_norm{bound});
  const auto clipped_rows = pg::unprotected::evaluate(p.exec, pg::materialise(clipped));
  const auto fifth = row_of(clipped_rows, Problem::parameter_count, 5);
  check_same_bits(pg::unprotected::evaluate(p.exec, clipped[5]), std::vector<double>{fifth.begin(), fifth.end()},
                  "clip(g)[b]");
  BOOST_CHECK_THROW(static_cast<void>(g[19]), std::out_of_range);
  BOOST_CHECK_THROW(static_cast<void>(clipped[19]), std::out_of_range);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_means_and_moments, Problem, problems) {
  Problem p{41};
  constexpr std::size_t width = Problem::parameter_count;
  const auto rows = p.rows();
  const auto g = p.gradients();
  const auto one = [](std::size_t) { return 1.0; };
  const auto sum = weighted(rows, width, one);
  std::vector<double> squares = rows;
  for (double& value : squares) value *= value;
  std::vector<double> mean = sum;
  std::vector<double> second = weighted(squares, width, one);
  std::vector<double> variance(width);
  for (double& value : mean) value /= 41;
  for (double& value : second) value /= 41;
  for (std::size_t b = 0; b < 41; ++b) {
    for (std::size_t i = 0; i < width; ++i) variance[i] += std::pow(rows[b * width + i] - mean[i], 2) / 41;
  }
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(g)), sum, tight, "sum");
  check_close(pg::unprotected::evaluate(p.exec, pg::mean(g)), mean, tight, "mean");
  check_close(pg::unprotected::evaluate(p.exec, pg::second_moment(g)), second, tight, "second_moment");
  check_close(pg::unprotected::evaluate(p.exec, pg::variance(g)), variance, tight, "variance");
  for (const double value : pg::unprotected::evaluate(p.exec, pg::variance(g))) BOOST_TEST_REQUIRE(value >= 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dot_and_gram, Problem, problems) {
  Problem p{21};
  constexpr std::size_t width = Problem::parameter_count;
  const auto rows = p.rows();
  const auto g = p.gradients();
  std::vector<double> direction(width);
  for (std::size_t i = 0; i < width; ++i) direction[i] = std::sin(static_cast<double>(i));
  std::vector<double> dots(21);
  std::vector<double> gram(21 * 21);
  for (std::size_t a = 0; a < 21; ++a) {
    for (std::size_t i = 0; i < width; ++i) dots[a] += rows[a * width + i] * direction[i];
    for (std::size_t b = 0; b < 21; ++b) {
      for (std::size_t i = 0; i < width; ++i) gram[a * 21 + b] += rows[a * width + i] * rows[b * width + i];
    }
  }
  check_close(pg::unprotected::evaluate(p.exec, pg::dot(g, direction)), dots, tight, "dot");
  check_close(pg::unprotected::evaluate(p.exec, pg::gram(g)), gram, tight, "gram");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(weighted_sums, Problem, problems) {
  Problem p{33};
  constexpr std::size_t width = Problem::parameter_count;
  const auto rows = p.rows();
  const auto g = p.gradients();
  const auto norms = norms_of(rows, width);
  const auto losses = pg::unprotected::evaluate(p.exec, pg::losses(g));
  std::vector<double> list(33);
  for (std::size_t b = 0; b < 33; ++b) list[b] = b % 4 == 0 ? 0 : std::cos(static_cast<double>(b));
  std::vector<double> direction(width, 0.25);

  const auto check = [&](const auto& weights, auto formula, const char* what) {
    check_close(pg::unprotected::evaluate(p.exec, pg::weighted_sum(g, weights)), weighted(rows, width, formula), tight,
                what);
  };
  check(
      list, [&](std::size_t b) { return list[b]; }, "a list");
  check(
      pg::losses(g), [&](std::size_t b) { return losses[b]; }, "losses");
  check(
      pg::squared_l2_norms(g), [&](std::size_t b) { return norms[b] * norms[b]; }, "squared norms");
  check(
      min(1.0, 0.5 / pg::l2_norms(g)) * pg::losses(g),
      [&](std::size_t b) { return std::min(1.0, 0.5 / norms[b]) * losses[b]; }, "min(1, 0.5 / norms) * losses");
  check(
      max(pg::losses(g), 1) + pg::l2_norms(g) - 2,
      [&](std::size_t b) { return std::max(losses[b], 1.0) + norms[b] - 2; }, "max(losses, 1) + norms - 2");
  check(
      pow(pg::losses(g), 3) / (1.0 + pg::l2_norms(g)),
      [&](std::size_t b) { return std::pow(losses[b], 3) / (1 + norms[b]); }, "losses^3 / (1 + norms)");
  check(
      3 - pg::dot(g, direction),
      [&](std::size_t b) {
        double dot = 0;
        for (const double value : row_of(rows, width, b)) dot += 0.25 * value;
        return 3 - dot;
      },
      "3 - dot");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(scalar_arithmetic_is_itself_an_expression, Problem, problems) {
  Problem p{9};
  const auto g = p.gradients();
  const auto norms = pg::unprotected::evaluate(p.exec, pg::l2_norms(g));
  const auto losses = pg::unprotected::evaluate(p.exec, pg::losses(g));
  const auto found = pg::unprotected::evaluate(p.exec, pg::losses(g) / pg::l2_norms(g) - pow(pg::losses(g), 0.5));
  std::vector<double> wanted;
  for (std::size_t b = 0; b < 9; ++b) wanted.push_back(losses[b] / norms[b] - std::pow(losses[b], 0.5));
  check_same_bits(found, wanted, "losses / norms - sqrt(losses)");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(clipped_sums, Problem, problems) {
  Problem p{33};
  constexpr std::size_t width = Problem::parameter_count;
  const auto rows = p.rows();
  const auto g = p.gradients();
  const auto norms = norms_of(rows, width);
  const double bound = median(norms);
  const pg::l2_clip_norm strong{bound};
  std::vector<double> wanted_rows = rows;
  for (std::size_t b = 0; b < 33; ++b) {
    for (std::size_t i = 0; i < width; ++i) wanted_rows[b * width + i] *= std::min(1.0, bound / norms[b]);
  }
  check_close(pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip(g, strong))), wanted_rows, tight,
              "rows of clip");
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, strong))),
              weighted(rows, width, [&](std::size_t b) { return std::min(1.0, bound / norms[b]); }), tight, "clip");
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::normalise(g, strong, 0.25))),
              weighted(rows, width, [&](std::size_t b) { return bound / (norms[b] + 0.25); }), tight, "normalise");
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::normalise(g))),
              weighted(rows, width, [&](std::size_t b) { return 1 / (norms[b] + 0.01); }), tight,
              "normalise by default");
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::normalise_adaptively(g, strong, 0.25))),
              weighted(rows, width, [&](std::size_t b) { return bound / (norms[b] + 0.25 / (norms[b] + 0.25)); }),
              tight, "normalise_adaptively");
  // A bound that none reaches: the plain sum.
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, pg::l2_clip_norm{1e6}))),
              weighted(rows, width, [](std::size_t) { return 1.0; }), tight, "clip that does nothing");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_clipped_per_layer, Problem, problems) {
  Problem p{33};
  using network = typename Problem::network_type;
  constexpr std::size_t width = Problem::parameter_count;
  const auto rows = p.rows();
  const auto g = p.gradients();
  const std::size_t layers = layer_offsets<network>().size() - 1;
  const double typical = median(norms_of(rows, width)) / std::sqrt(static_cast<double>(layers));
  std::vector<double> bounds;
  std::vector<pg::l2_clip_norm> typed;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    bounds.push_back(typical * (0.5 + 0.4 * static_cast<double>(layer)));
    typed.push_back(pg::l2_clip_norm{bounds.back()});
  }
  const auto one = [](std::size_t) { return 1.0; };
  const auto wanted = clipped_per_layer<network>(rows, bounds);
  check_close(pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip_per_layer(g, typed))), wanted, tight,
              "rows, list of bounds");
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip_per_layer(g, typed))), weighted(wanted, width, one),
              tight, "sum, list of bounds");
  const std::vector<double> same(layers, typical);
  check_close(
      pg::unprotected::evaluate(
          p.exec, pg::sum(pg::clip_per_layer(g, pg::l2_clip_norm{typical * std::sqrt(static_cast<double>(layers))}))),
      weighted(clipped_per_layer<network>(rows, same), width, one), tight, "sum, one bound");
  typed.push_back(pg::l2_clip_norm{1});
  BOOST_CHECK_THROW(static_cast<void>(pg::clip_per_layer(g, typed)), std::invalid_argument);
}

// The same in single precision, to rounding: a float sum may differ by its own rounding, not by more.
BOOST_AUTO_TEST_CASE(single_precision_agrees_with_double) {
  problem<cnn<float>, pg::cross_entropy> p{33};
  cnn_problem q{33};
  std::copy(p.net.parameters().begin(), p.net.parameters().end(), q.net.parameters().begin());
  std::copy(p.data.inputs.begin(), p.data.inputs.end(), q.data.inputs.begin());
  const auto g = p.gradients();
  const auto h = q.gradients();
  const auto check = [&](const auto& found, const auto& wanted, const char* what) {
    check_close(pg::unprotected::evaluate(p.exec, found), pg::unprotected::evaluate(q.exec, wanted), 5e-6, what);
  };
  const pg::l2_clip_norm bound{0.5};
  check(pg::materialise(g), pg::materialise(h), "materialise");
  check(pg::l2_norms(g), pg::l2_norms(h), "l2_norms");
  check(pg::losses(g), pg::losses(h), "losses");
  check(pg::outputs(g), pg::outputs(h), "outputs");
  check(pg::sum(g), pg::sum(h), "sum");
  check(pg::mean(g), pg::mean(h), "mean");
  check(pg::sum(pg::clip(g, bound)), pg::sum(pg::clip(h, bound)), "clip");
  check(pg::sum(pg::clip_per_layer(g, bound)), pg::sum(pg::clip_per_layer(h, bound)), "clip_per_layer");
  check(pg::sum(pg::normalise(g, bound)), pg::sum(pg::normalise(h, bound)), "normalise");
  check(pg::second_moment(g), pg::second_moment(h), "second_moment");
  check(pg::variance(g), pg::variance(h), "variance");
  check(pg::gram(g), pg::gram(h), "gram");
  check(pg::weighted_sum(g, pg::losses(g)), pg::weighted_sum(h, pg::losses(h)), "weighted_sum");
}

BOOST_AUTO_TEST_SUITE_END()
