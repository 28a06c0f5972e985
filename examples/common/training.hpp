// SPDX-License-Identifier: Apache-2.0
// examples/common/training.hpp - the private training of a classifier, from its options to its reports
//
// What every program here does the same way: calibrates the noise, trains until the planned steps are made, the budget
// is spent or somebody presses Ctrl-C, measures on public test data after every epoch, and turns mistakes into exit
// codes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <pergrad.hpp>

#include "cli.hpp"
#include "confusion.hpp"
#include "executor.hpp"
#include "interrupt.hpp"
#include "lines.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "svg.hpp"

namespace example {

using clock_type = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// Everything the privacy guarantee depends on: q, sigma, the number of steps and the budget. None of it is computed
/// from the training data: q uses the public size of the data set, report.dataset_size. Throws bad_value.
[[nodiscard]] inline pergrad::dp_sgd_options private_options(run_report& report) {
  const options& chosen = report.chosen;
  if (chosen.batch > report.dataset_size) {
    throw bad_value("--batch: " + std::to_string(chosen.batch) + " is more than the " +
                    std::to_string(report.dataset_size) + " training " + report.what.record + "s");
  }
  const pergrad::delta delta{chosen.delta};
  const pergrad::sampling_probability q{static_cast<double>(chosen.batch) / static_cast<double>(report.dataset_size)};
  report.q = q.value();
  report.planned_steps = chosen.epochs * ((report.dataset_size + chosen.batch - 1) / chosen.batch);
  try {
    report.sigma =
        chosen.noise_multiplier
            ? *chosen.noise_multiplier
            : pergrad::calibrate_noise(pergrad::epsilon{chosen.epsilon}, delta, q, report.planned_steps).value();
  } catch (const std::logic_error& error) {
    throw bad_value(std::string("no noise fits these options: ") + error.what());
  }
  const bool unlimited = chosen.noise_multiplier && !chosen.has("epsilon");
  const double most = unlimited ? std::numeric_limits<double>::infinity() : chosen.epsilon;
  pergrad::dp_sgd_options made;
  made.clip = pergrad::l2_clip_norm{chosen.clip};
  made.noise = pergrad::noise_multiplier{report.sigma};
  made.sampling = pergrad::poisson_sampling{q};
  made.divisor = pergrad::expected_batch_size{static_cast<double>(chosen.batch)};
  made.learning_rate = pergrad::learning_rate{chosen.learning_rate};
  made.momentum = chosen.momentum;
  made.optimizer = chosen.optimizer == "adam" ? pergrad::optimizer_kind::adam : pergrad::optimizer_kind::sgd;
  made.max_batch = pergrad::max_batch{2048};
  made.budget = pergrad::privacy_budget{pergrad::epsilon{most}, delta};
  return made;
}

/// Trains with the given source of noise. The training loss is as private as the data; what is printed for every epoch
/// is measured on the test set, which is public.
template <class Network, class Executor, class Value, class Generator>
void train_with(Generator generator, const pergrad::dp_sgd_options& private_choices, run_report& report,
                const pergrad::dataset<Value, std::int32_t>& train_set,
                const pergrad::dataset<Value, std::int32_t>& test_set) {
  const options& chosen = report.chosen;
  const Executor exec = make_executor<Executor>(chosen);
  Network net{exec, pergrad::kaiming_uniform{report.initial_weights_seed}};
  pergrad::dp_sgd trainer{exec, net, pergrad::cross_entropy{}, private_choices, std::move(generator)};
  if (!trainer.within_budget()) {
    throw bad_value("with this --noise-multiplier a single step exceeds epsilon " + shortest(chosen.epsilon));
  }

  const std::size_t epoch_steps = report.planned_steps / chosen.epochs;
  progress_bar bar{report.planned_steps};
  const auto going_on = [&] {
    return trainer.steps() < report.planned_steps && trainer.within_budget() && !interrupted();
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
    const auto result = pergrad::evaluate_classifier(exec, net, test_set);
    const std::size_t steps = trainer.steps();
    const double spent = steps == 0 ? 0.0 : trainer.epsilon(pergrad::delta{chosen.delta});
    report.epochs.push_back({steps, static_cast<double>(steps) / static_cast<double>(epoch_steps), result.mean_loss,
                             result.accuracy, spent, seconds});
    bar.clear();
    print_epoch(label, report.epochs.back());
  } while (going_on());
  report.confusion = confuse(exec, net, test_set, report.labels);
  report.interrupted = interrupted() && trainer.steps() < report.planned_steps;
  report.stopped_by_budget = !report.interrupted && trainer.steps() < report.planned_steps;
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
  if (chosen.seed) {
    train_with<Network, Executor>(pergrad::seeded_generator{*chosen.seed}, private_choices, report, train_set,
                                  test_set);
  } else {
    train_with<Network, Executor>(pergrad::os_keyed_generator{}, private_choices, report, train_set, test_set);
  }
}

/// main() of a program: reads the command line, to which `own` adds options, lets `run` train, writes the reports and
/// returns the exit code.
[[nodiscard]] inline int run_program(int argc, char** argv, const program& what,
                                     const std::function<void(cli::binder&)>& own,
                                     const std::function<void(run_report&)>& run) {
  const auto start = clock_type::now();
  catch_interrupts();
  const auto parsed = parse_command_line(argc, argv, what, own);
  if (const int* const code = std::get_if<int>(&parsed)) {
    return *code;
  }
  run_report report;
  report.what = what;
  report.chosen = std::get<options>(parsed);
  try {
    run(report);
    report.seconds = seconds_since(start);
    write_reports(report);
    print_end(report);
  } catch (const bad_value& error) {
    complain(what, error.what());
    return 2;
  } catch (const no_executor& error) {
    complain(what, error.what());
    return 3;
  } catch (const std::exception& error) {
    complain(what, error.what());
    return 1;
  }
  return report.interrupted ? 130 : 0;
}

}  // namespace example
