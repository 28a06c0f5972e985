// SPDX-License-Identifier: Apache-2.0
// examples/common/training.hpp - the private training of a classifier, from its options to its reports
//
// What every program here does the same way: calibrates the noise, trains until the planned steps are made, the budget
// is spent or somebody presses Ctrl-C, measures on public test data after every epoch, and turns mistakes into exit
// codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <pergrad.hpp>

#include "cli.hpp"
#include "confusion.hpp"
#include "executor.hpp"
#include "lines.hpp"
#include "report.hpp"

namespace example {

/// Everything the privacy guarantee depends on: q, sigma, the number of steps and the budget. None of it is computed
/// from the training data: q uses the public size of the data set, report.dataset_size. Throws bad_value.
[[nodiscard]] pergrad::dp_sgd_options private_options(run_report& report);

/// What the loop over epochs asks of a training run, whatever its network and its executor.
struct training_run {
  std::function<bool()> within_budget;
  std::function<void()> step;
  std::function<void()> wait;  ///< until the steps are done; a device may still be at them
  std::function<std::size_t()> steps;
  std::function<double()> epsilon;
  std::function<pergrad::classifier_result()> test;
};
/// Trains until the planned steps are made, the budget is spent or somebody presses Ctrl-C. What is printed for every
/// epoch is measured on the test set, which is public; the training loss is as private as the data. Throws bad_value.
void train_for_epochs(const training_run& run, run_report& report);

/// Trains with the given source of noise. `test` measures the network on the test set.
template <class Network, class Executor, class Value, class Generator>
void train_with(Generator generator, const pergrad::dp_sgd_options& private_choices, const Executor& exec, Network& net,
                run_report& report, const pergrad::dataset<Value, std::int32_t>& train_set,
                const std::function<pergrad::classifier_result()>& test) {
  pergrad::dp_sgd trainer{exec, net, pergrad::cross_entropy{}, private_choices, std::move(generator)};
  training_run run;
  run.within_budget = [&] { return trainer.within_budget(); };
  run.step = [&] { trainer.step(train_set); };
  run.wait = [&] { wait_for(exec); };
  run.steps = [&] { return static_cast<std::size_t>(trainer.steps()); };
  run.epsilon = [&] { return trainer.epsilon(pergrad::delta{report.chosen.delta}); };
  run.test = test;
  train_for_epochs(run, report);
}

/// Trains a network and fills in the report, of which `labels`, `network`, `dataset_size`, `own_options` and
/// `public_constants` are the caller's. `load` returns the data sets, the one for training first; it is called after
/// the options have been found to make sense. Throws bad_value for options that do not, no_executor if this machine
/// has none of the kind asked for, std::exception otherwise.
template <class Network, class Executor = pergrad::host, class Load>
void train_privately(run_report& report, Load&& load) {
  const options& chosen = report.chosen;
  report.executor = describe_executor<Executor>(chosen);
  report.parameters = Network::parameter_count;
  report.pergrad_version = std::string(pergrad::version);
  report.initial_weights_seed = chosen.seed.value_or(1);  // the weights before training are public
  const auto private_choices = private_options(report);
  require_executor<Executor>();
  const auto [train_set, test_set] = load();
  check_output_folder(chosen.out);
  report.train_size = train_set.size();
  report.test_size = test_set.size();
  print_header(report);
  const Executor exec = make_executor<Executor>(chosen);
  Network net{exec, pergrad::kaiming_uniform{report.initial_weights_seed}};
  const std::function<pergrad::classifier_result()> test = [&, &records = test_set] {
    return pergrad::evaluate_classifier(exec, net, records);
  };
  if (chosen.seed) {
    train_with(pergrad::seeded_generator{*chosen.seed}, private_choices, exec, net, report, train_set, test);
  } else {
    train_with(pergrad::os_keyed_generator{}, private_choices, exec, net, report, train_set, test);
  }
  report.confusion = confuse(exec, net, test_set, report.labels);
}

/// main() of a program: reads the command line, to which `own` adds options, lets `run` train, writes the reports and
/// returns the exit code.
[[nodiscard]] int run_program(int argc, char** argv, const program& what, const std::function<void(cli::binder&)>& own,
                              const std::function<void(run_report&)>& run);

}  // namespace example
