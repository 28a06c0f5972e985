// SPDX-License-Identifier: Apache-2.0
// examples/common/training.cpp - the loop over epochs and its frame, which no network is in
#include "training.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <variant>

#include <pergrad.hpp>
#include <pergrad/progress.hpp>

#include "interrupt.hpp"
#include "lines.hpp"

namespace example {
namespace {

using clock_type = std::chrono::steady_clock;

[[nodiscard]] double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

[[nodiscard]] attacker attacks_on(const pergrad::privacy_accountant& accountant) {
  attacker made;
  made.advantage = accountant.advantage();
  made.rare.true_positives = accountant.true_positive_rate(made.rare.false_positives);
  for (const double rate : {0.0, 1e-5, 1e-4, 1e-3, 0.003, 0.01, 0.02, 0.04, 0.07, 0.1,  0.15,
                            0.2, 0.25, 0.3,  0.4,  0.5,   0.6,  0.7,  0.8,  0.9,  0.95, 1.0}) {
    made.curve.push_back({rate, accountant.true_positive_rate(rate)});
  }
  return made;
}

}  // namespace

pergrad::dp_sgd_options private_options(run_report& report) {
  const options& chosen = report.chosen;
  report.pergrad_version = std::string(pergrad::version);
  report.initial_weights_seed = chosen.seed.value_or(1);  // the weights before training are public
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
  if (!pergrad::privacy_accountant{made.budget}.within(made.sampling->event(*made.noise))) {
    throw bad_value("with this --noise-multiplier a single step exceeds epsilon " + shortest(chosen.epsilon));
  }
  return made;
}

void begin_report(run_report& report, std::size_t train_size, std::size_t test_size) {
  if (report.is_written) check_output_folder(report.chosen.out, report.files);
  report.train_size = train_size;
  report.test_size = test_size;
  print_header(report);
}

void train_for_epochs(training_run& run, run_report& report, const std::function<pergrad::classifier_result()>& test) {
  const options& chosen = report.chosen;
  const std::size_t epoch_steps = report.planned_steps / chosen.epochs;
  pergrad::progress_bar bar{report.planned_steps};
  const auto going_on = [&] { return run.steps() < report.planned_steps && run.within_budget() && !run.interrupted(); };
  do {
    const auto start = clock_type::now();
    const std::size_t epoch = run.steps() / epoch_steps + 1;
    const std::string label = "epoch " + std::to_string(epoch) + "/" + std::to_string(chosen.epochs);
    for (std::size_t step = 0; step < epoch_steps && going_on(); ++step) {
      if (report.is_written) bar.draw(label, step, epoch_steps, run.steps());
      run.step();
    }
    run.wait();
    report.interrupted = run.steps() == 0 && run.interrupted();
    if (report.interrupted) return bar.clear();
    const double seconds = seconds_since(start);
    const pergrad::classifier_result result = test();
    const std::size_t steps = run.steps();
    const double spent = steps == 0 ? 0.0 : run.epsilon(pergrad::delta{chosen.delta});
    report.epochs.push_back({steps, static_cast<double>(steps) / static_cast<double>(epoch_steps), result.mean_loss,
                             result.accuracy, spent, seconds});
    bar.clear();
    print_epoch(label, report.epochs.back());
  } while (going_on());
  report.interrupted = run.interrupted() && run.steps() < report.planned_steps;
  report.attacks = attacks_on(run.accountant());
  report.stopped_by_budget = !report.interrupted && run.steps() < report.planned_steps;
}

void end_report(run_report& report) {
  report.seconds = seconds_since(report.start);
  if (report.is_written) write_reports(report);
}

int run_program(int argc, char** argv, const program& what, const std::function<void(cli::binder&)>& own,
                const std::function<void(run_report&)>& run) {
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
    if (!report.epochs.empty()) {  // it trained
      print_end(report);
    } else if (report.interrupted) {
      std::printf("interrupted before the first step: nothing is written, and files in %s are as they were\n",
                  one_line(report.chosen.out).c_str());
    }
  } catch (const bad_value& error) {
    complain(what, error.what());
    return 2;
  } catch (const no_executor& error) {
    complain(what, error.what());
    return 3;
  } catch (const std::bad_alloc&) {
    complain(what, "there is not enough memory for this data");
    return 1;
  } catch (const std::exception& error) {
    complain(what, error.what());
    return 1;
  }
  return report.interrupted ? 130 : 0;
}

}  // namespace example
