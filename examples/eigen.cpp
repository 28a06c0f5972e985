// SPDX-License-Identifier: Apache-2.0
// examples/eigen.cpp - a table that is an Eigen matrix: trained on where it lies, gradients and parameters seen as
// matrices
#include <Eigen/Core>

#include <cmath>
#include <cstdint>
#include <cstdio>

#include <pergrad.hpp>
#include <pergrad/eigen.hpp>

namespace pg = pergrad;

using model = pg::basic_network<double, pg::shape{4}, pg::linear<8>, pg::tanh, pg::linear<1>>;

int main() {
  // [snippet: records]
  pg::eigen::matrix<double> table{600, 4};  // Eigen::Matrix<double, Dynamic, Dynamic, RowMajor>: a record a row
  Eigen::VectorXd wanted{600};
  for (Eigen::Index i = 0; i < table.rows(); ++i) {
    for (Eigen::Index k = 0; k < 4; ++k) table(i, k) = std::sin(static_cast<double>(3 * i + 7 * k));
    wanted(i) = table(i, 0) - 0.5 * table(i, 2);
  }
  const pg::dataset records = pg::eigen::records(table, wanted, model::input_shape);  // a view: nothing is copied
  // [snippet end]

  const pg::host exec;
  model net{exec, pg::xavier_uniform{1}};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.2}};
  options.divisor = pg::expected_batch_size{120};
  options.learning_rate = pg::learning_rate{0.1};
  pg::dp_sgd trainer{exec, net, pg::mean_squared_error{}, options};
  while (trainer.steps() < 100) trainer.step(records);

  // [snippet: gradients]
  const auto some = table.topRows(32);  // rows of a matrix lie one behind the other
  const pg::batch<model, pg::mean_squared_error> batch{pg::eigen::values(some), pg::eigen::values(wanted.head(32))};
  model::tape tape{exec, pg::max_batch{32}};
  const auto g = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
  pg::eigen::matrix<double> rows{32, model::parameter_count}, gram{32, 32};
  pg::unprotected::evaluate_into(exec, pg::assign(pg::eigen::values(rows), pg::materialise(g)));  // into its memory
  pg::unprotected::evaluate_into(exec, pg::assign(pg::eigen::values(gram), pg::gram(g)));
  // [snippet end]

  // [snippet: blocks]
  const auto first = pg::eigen::block(net, "0.weight");                                        // 8 x 4: outputs, inputs
  const auto noised = pg::eigen::block<model>(trainer.last_update().values(), "0.weight");     // of the last release
  const auto of_fourth = pg::eigen::block<model>(pg::eigen::values(rows.row(3)), "0.weight");  // of one record
  const auto answers = pg::predict(exec, net, pg::public_records{pg::eigen::values(table)});
  const double off = (pg::eigen::vector(answers) - wanted).norm() / wanted.norm();
  // [snippet end]
  const double gap = (rows * rows.transpose() - gram).norm();
  std::printf("error %.3f, |W| %.3f, |noised| %.3f, |record 3| %.3f, Gram differs by %.1e\n", off, first.norm(),
              noised.norm(), of_fourth.norm(), gap);
  return gap < 1e-10 && off < 0.9 && noised.norm() > 0 && of_fourth.norm() > 0 ? 0 : 1;
}
