// SPDX-License-Identifier: Apache-2.0
// examples/fashion_mnist.cpp - trains a CNN of 26,010 parameters on Fashion-MNIST with differential privacy
//
// Whoever sees the trained weights should learn almost nothing about any one training image. DP-SGD (Abadi et al. 2016)
// reaches that in each step: draw every record with the same small probability q, clip each record's gradient to l2
// norm C, add up, add Gaussian noise of deviation sigma C, divide by a public constant. An accountant turns (sigma, q,
// steps) into the (epsilon, delta) that has been spent. The network and the constants are those of Tramer & Boneh 2021;
// that tanh is better than ReLU under clipping is from Papernot et al. 2021.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <pergrad.hpp>

#include "common/cli.hpp"
#include "common/fashion_mnist_data.hpp"
#include "common/interrupt.hpp"
#include "common/lines.hpp"
#include "common/progress.hpp"
#include "common/report.hpp"
#include "common/svg.hpp"

namespace pg = pergrad;
using example::options;
using clock_type = std::chrono::steady_clock;

// The network is a type. All shapes follow from the first one, and a layer that does not fit is a compile error.
template <class Activation>
using cnn = pg::network<pg::shape{1, 28, 28},                                                            //
                        pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, Activation,                    //
                        pg::max_pool2d<2, pg::stride<1>>,                                                //
                        pg::conv2d<32, 4, pg::stride<2>>, Activation, pg::max_pool2d<2, pg::stride<1>>,  //
                        pg::flatten, pg::linear<32>, Activation, pg::linear<10>>;
static_assert(cnn<pg::tanh>::parameter_count == 26'010);

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

// Everything the privacy guarantee depends on: q, sigma, the number of steps and the budget. None of it is computed
// from the training data: q uses the published size of the data set.
pg::dp_sgd_options private_options(const options& chosen, example::run_report& report) {
  constexpr std::size_t dataset_size = example::fashion_mnist_constants::dataset_size;
  const pg::delta delta{chosen.delta};
  const pg::sampling_probability q{static_cast<double>(chosen.batch) / dataset_size};
  report.q = q.value();
  report.planned_steps = chosen.epochs * ((dataset_size + chosen.batch - 1) / chosen.batch);
  try {
    report.sigma = chosen.noise_multiplier
                       ? *chosen.noise_multiplier
                       : pg::calibrate_noise(pg::epsilon{chosen.epsilon}, delta, q, report.planned_steps).value();
  } catch (const std::logic_error& error) {
    throw example::bad_value(std::string("no noise fits these options: ") + error.what());
  }
  const bool unlimited = chosen.noise_multiplier && !chosen.has("epsilon");
  pg::dp_sgd_options made;
  made.clip = pg::l2_clip_norm{chosen.clip};
  made.noise = pg::noise_multiplier{report.sigma};
  made.sampling = pg::poisson_sampling{q};
  made.divisor = pg::expected_batch_size{static_cast<double>(chosen.batch)};
  made.learning_rate = pg::learning_rate{chosen.learning_rate};
  made.momentum = chosen.momentum;
  made.optimizer = chosen.optimizer == "adam" ? pg::optimizer_kind::adam : pg::optimizer_kind::sgd;
  made.max_batch = pg::max_batch{2048};
  made.budget =
      pg::privacy_budget{pg::epsilon{unlimited ? std::numeric_limits<double>::infinity() : chosen.epsilon}, delta};
  return made;
}

// Trains until the planned steps are made, the budget is spent or somebody presses Ctrl-C. The training loss is as
// private as the data; what is printed for every epoch is measured on the test set, which is public.
template <class Activation, class Generator>
void train(const example::labelled_images& train_data, const example::labelled_images& test_data, Generator generator,
           const pg::dp_sgd_options& private_choices, example::run_report& report) {
  const options& chosen = report.chosen;
  const pg::dataset<float, std::int32_t> train_set{train_data.images, train_data.labels, pg::shape{1, 28, 28}};
  const pg::dataset<float, std::int32_t> test_set{test_data.images, test_data.labels, pg::shape{1, 28, 28}};
  pg::host exec{pg::threads{chosen.threads}};
  cnn<Activation> net{exec, pg::kaiming_uniform{report.initial_weights_seed}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, private_choices, std::move(generator)};
  if (!trainer.within_budget()) {
    throw example::bad_value("with this --noise-multiplier a single step exceeds epsilon " +
                             example::shortest(chosen.epsilon));
  }

  const std::size_t epoch_steps = report.planned_steps / chosen.epochs;
  example::progress_bar bar{report.planned_steps};
  const auto going_on = [&] {
    return trainer.steps() < report.planned_steps && trainer.within_budget() && !example::interrupted();
  };
  do {
    const auto start = clock_type::now();
    const std::size_t epoch = trainer.steps() / epoch_steps + 1;
    const std::string label = "epoch " + std::to_string(epoch) + "/" + std::to_string(chosen.epochs);
    for (std::size_t step = 0; step < epoch_steps && going_on(); ++step) {
      bar.draw(label, step, epoch_steps, trainer.steps());
      trainer.step(train_set);
    }
    const double seconds = seconds_since(start);
    const auto result = pg::evaluate_classifier(exec, net, test_set);
    const std::size_t steps = trainer.steps();
    const double spent = steps == 0 ? 0.0 : trainer.epsilon(pg::delta{chosen.delta});
    report.epochs.push_back({steps, static_cast<double>(steps) / static_cast<double>(epoch_steps), result.mean_loss,
                             result.accuracy, spent, seconds});
    bar.clear();
    example::print_epoch(label, report.epochs.back());
  } while (going_on());
  report.interrupted = example::interrupted() && trainer.steps() < report.planned_steps;
  report.stopped_by_budget = !report.interrupted && trainer.steps() < report.planned_steps;
}

template <class Activation>
void run(const options& chosen, example::run_report& report) {
  const auto train_data = example::load_fashion_mnist(chosen.data, "train");
  const auto test_data = example::load_fashion_mnist(chosen.data, "t10k");
  example::check_output_folder(chosen.out);
  report.train_size = train_data.size();
  report.test_size = test_data.size();
  report.parameters = cnn<Activation>::parameter_count;
  report.pergrad_version = std::string(pg::version);
  report.initial_weights_seed = chosen.seed.value_or(1);  // the weights before training are public
  const auto private_choices = private_options(chosen, report);
  example::print_header(report);
  if (chosen.seed) {
    train<Activation>(train_data, test_data, pg::seeded_generator{*chosen.seed}, private_choices, report);
  } else {
    train<Activation>(train_data, test_data, pg::os_keyed_generator{}, private_choices, report);
  }
}

int main(int argc, char** argv) {
  const auto start = clock_type::now();
  example::catch_interrupts();
  const auto parsed = example::parse_command_line(argc, argv, example::fashion_mnist_constants::dataset_size);
  if (const int* const code = std::get_if<int>(&parsed)) {
    return *code;
  }
  example::run_report report;
  report.chosen = std::get<options>(parsed);
  try {
    report.chosen.activation == "relu" ? run<pg::relu>(report.chosen, report) : run<pg::tanh>(report.chosen, report);
    report.seconds = seconds_since(start);
    example::write_reports(report);
    example::print_end(report);
  } catch (const example::bad_value& error) {
    example::complain(error.what());
    return 2;
  } catch (const std::exception& error) {
    example::complain(error.what());
    return 1;
  }
  return report.interrupted ? 130 : 0;
}
