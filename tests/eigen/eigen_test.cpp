// SPDX-License-Identifier: Apache-2.0
// tests/eigen/eigen_test.cpp - Eigen's matrices as records, destinations and blocks: the same memory and the same bits
#include <Eigen/Core>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/eigen.hpp>
#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(eigen_views)

namespace {

namespace pg = pergrad;
using net_type = pg::basic_network<double, pg::shape{1, 4, 3}, pg::conv2d<2, 2>, pg::tanh, pg::flatten, pg::linear<3>>;
constexpr Eigen::Index samples = 7;

struct problem {
  pg::eigen::matrix<double> inputs{samples, 12};
  Eigen::Matrix<std::int32_t, Eigen::Dynamic, 1> classes{samples};
  pg::host exec{pg::threads{2}};
  net_type net{exec, pg::kaiming_uniform{1}};
  net_type::tape tape{exec, pg::max_batch{static_cast<std::size_t>(samples)}};
  problem() {
    for (Eigen::Index i = 0; i < samples; ++i) {
      for (Eigen::Index k = 0; k < 12; ++k) inputs(i, k) = std::sin(static_cast<double>(i * 12 + k));
      classes(i) = static_cast<std::int32_t>(i % 3);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(records_are_views) {
  problem p;
  const auto data = pg::eigen::records(p.inputs, p.classes, net_type::input_shape);
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(data)>, pg::dataset<double, std::int32_t>>);
  BOOST_TEST(data.size() == 7U);
  BOOST_TEST(data.input(3) == &p.inputs(3, 0));
  BOOST_TEST(data.targets(4).data() == &p.classes(4));
  const Eigen::Map<const pg::eigen::matrix<double>> mapped{p.inputs.data(), samples, 12};
  BOOST_TEST(pg::eigen::records(mapped, p.classes, net_type::input_shape).input(2) == &p.inputs(2, 0));
  // Rows of a larger matrix, all of their columns, are whole; columns cut out are not.
  BOOST_TEST(pg::eigen::values(p.inputs.middleRows(2, 3)).data() == &p.inputs(2, 0));
  BOOST_CHECK_THROW(static_cast<void>(pg::eigen::values(p.inputs.leftCols(5))), std::invalid_argument);
  BOOST_TEST(pg::eigen::values(p.inputs.row(3)).size() == 12U);
  BOOST_CHECK_THROW(static_cast<void>(pg::eigen::values(p.inputs.col(3))), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::eigen::records(p.inputs, p.classes, pg::shape{11})), std::invalid_argument);
  const Eigen::VectorXi few = Eigen::VectorXi::Zero(3);
  BOOST_CHECK_THROW(static_cast<void>(pg::eigen::records(p.inputs, few, net_type::input_shape)), std::invalid_argument);
}
// A Ref to constant values evaluates what is no matrix into one of its own; any other Ref only refers.
BOOST_AUTO_TEST_CASE(a_reference_that_may_own_its_values_is_a_temporary) {
  using matrix = pg::eigen::matrix<double>;
  static_assert(pg::eigen::detail::is_temporary<Eigen::Ref<const matrix>>);
  static_assert(pg::eigen::detail::is_temporary<const Eigen::Ref<const matrix>>);
  static_assert(!pg::eigen::detail::is_temporary<const Eigen::Ref<const matrix>&>);
  static_assert(!pg::eigen::detail::is_temporary<Eigen::Ref<matrix>>);
  problem p;
  const Eigen::Ref<const matrix> named{p.inputs};
  BOOST_TEST(pg::eigen::values(named).data() == p.inputs.data());
}
BOOST_AUTO_TEST_CASE(several_targets_a_record) {
  problem p;
  pg::eigen::matrix<double> targets = pg::eigen::matrix<double>::Random(samples, 2);
  const auto data = pg::eigen::records(p.inputs, targets, net_type::input_shape);
  BOOST_TEST(data.targets(5).size() == 2U);
  BOOST_TEST(data.targets(5).data() == &targets(5, 0));
}

BOOST_AUTO_TEST_CASE(rows_gram_and_sums_are_written_into_matrices) {
  problem p;
  const pg::batch<net_type, pg::cross_entropy> batch{pg::eigen::values(p.inputs), pg::eigen::values(p.classes)};
  const auto g = pg::per_sample_gradients(p.net, pg::cross_entropy{}, batch, p.tape);
  constexpr auto width = static_cast<Eigen::Index>(net_type::parameter_count);
  pg::eigen::matrix<double> rows{samples, width};
  Eigen::VectorXd norms{samples}, sum{width};
  pg::eigen::matrix<double> gram{samples, samples};
  pg::unprotected::evaluate_into(p.exec, pg::assign(pg::eigen::values(rows), pg::materialise(g)));
  pg::unprotected::evaluate_into(p.exec, pg::assign(pg::eigen::values(gram), pg::gram(g)),
                                 pg::assign(pg::eigen::values(norms), pg::l2_norms(g)));
  pg::unprotected::evaluate_into(p.exec, pg::assign(pg::eigen::values(sum), pg::sum(g)));
  BOOST_TEST((rows.rowwise().norm() - norms).norm() < 1e-12);
  BOOST_TEST((rows * rows.transpose() - gram).norm() < 1e-12);
  BOOST_TEST((rows.colwise().sum().transpose() - sum).norm() < 1e-12);
  const std::vector<double> plain = pg::unprotected::evaluate(p.exec, pg::materialise(g));
  BOOST_TEST((pg::eigen::rows(plain, 7) == rows));
  BOOST_TEST(pg::eigen::rows(plain, 7).data() == plain.data());
}

BOOST_AUTO_TEST_CASE(blocks_of_parameters_and_gradients) {
  problem p;
  auto weight = pg::eigen::block(p.net, "3.weight");
  BOOST_TEST(weight.rows() == 3);
  BOOST_TEST(weight.cols() == 12);
  BOOST_TEST(pg::eigen::block(p.net, "0.weight").rows() == 2);
  BOOST_TEST(pg::eigen::block(p.net, "0.weight").cols() == 4);
  BOOST_TEST(pg::eigen::block(p.net, "3.bias").cols() == 1);
  weight.setConstant(0.5);
  for (const double w : p.net.layer_parameters(3).first(36)) BOOST_TEST(w == 0.5);
  const net_type& constant = p.net;
  BOOST_TEST(pg::eigen::block(constant, "3.weight")(2, 11) == 0.5);
  // logits = W x + b, with the blocks
  pg::unprotected::gradient<net_type> gradient{p.exec};
  const pg::batch<net_type, pg::cross_entropy> batch{pg::eigen::values(p.inputs), pg::eigen::values(p.classes)};
  const auto g = pg::per_sample_gradients(p.net, pg::cross_entropy{}, batch, p.tape);
  pg::unprotected::evaluate_into(p.exec, gradient, pg::sum(g));
  const auto of_bias = pg::eigen::block<net_type>(gradient.values(), "3.bias");
  const auto outputs = pg::unprotected::evaluate(p.exec, pg::outputs(g));
  const auto logits = pg::eigen::rows(outputs, 7);
  Eigen::VectorXd wanted = Eigen::VectorXd::Zero(3);
  for (Eigen::Index b = 0; b < samples; ++b) {
    const Eigen::VectorXd e = logits.row(b).array().exp();
    wanted += e / e.sum();
    wanted(p.classes(b)) -= 1;
  }
  BOOST_TEST((of_bias - wanted).norm() < 1e-12);
  BOOST_TEST(pg::eigen::vector(gradient.values()).size() == static_cast<Eigen::Index>(net_type::parameter_count));
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(pg::eigen::block(p.net, "1.weight")), std::invalid_argument, [](const std::exception& error) {
        return std::string{error.what()}.find("there are 0.weight, 0.bias, 3.weight, 3.bias") != std::string::npos;
      });
  const std::vector<double> more(net_type::parameter_count + 1);
  for (const std::size_t size : {net_type::parameter_count - 1, net_type::parameter_count + 1}) {
    BOOST_CHECK_THROW(static_cast<void>(pg::eigen::block<net_type>(std::span{more}.first(size), "0.weight")),
                      std::invalid_argument);
  }
}
// Frozen parameters lie behind the trained ones, and a gradient has none.
BOOST_AUTO_TEST_CASE(blocks_of_frozen_layers) {
  using net = pg::network<pg::shape{4}, pg::frozen<pg::linear<5>>, pg::tanh, pg::linear<2>>;
  const pg::host exec;
  net tuned{exec, pg::kaiming_uniform{1}};
  pg::eigen::block(tuned, "0.weight").setZero();
  for (const float w : tuned.frozen_parameters().first(20)) BOOST_TEST(w == 0.0F);
  const pg::unprotected::gradient<net> gradient{exec};
  BOOST_CHECK_THROW(static_cast<void>(pg::eigen::block<net>(gradient.values(), "0.weight")), std::invalid_argument);
  BOOST_TEST(pg::eigen::block<net>(gradient.values(), "2.weight").size() == 10);
}
BOOST_AUTO_TEST_CASE(wrong_numbers_of_rows) {
  const std::vector<float> six(6);
  BOOST_CHECK_THROW(static_cast<void>(pg::eigen::rows(six, 4)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::eigen::rows(six, 0)), std::invalid_argument);
  BOOST_TEST(pg::eigen::rows(std::span<const float>{}, 0).size() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
