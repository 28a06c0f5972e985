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
#include <limits>
#include <utility>

#include <pergrad.hpp>

#include "cli.hpp"
#include "executor.hpp"
#include "interrupt.hpp"
#include "report.hpp"

namespace example {

/// Everything the privacy guarantee depends on: q, sigma, the number of steps and the budget. None of it is computed
/// from the training data: q uses the public size of the data set, report.dataset_size. Notes it in the report. Throws
/// bad_value.
[[nodiscard]] pergrad::dp_sgd_options private_options(run_report& report);

/// Checks that the report can be written, notes the sizes of the data sets and prints what begins.
void begin_report(run_report& report, std::size_t train_size, std::size_t test_size);

/// What the loop over epochs asks of a training run, whatever its network and its executor.
class training_run {
 public:
  training_run() = default;
  training_run(const training_run&) = delete;
  training_run& operator=(const training_run&) = delete;
  [[nodiscard]] virtual bool within_budget() const = 0;
  virtual void step() = 0;
  virtual void wait() = 0;  ///< until the steps are done; a device may still be at them
  [[nodiscard]] virtual std::size_t steps() const = 0;
  [[nodiscard]] virtual double epsilon(pergrad::delta delta) const = 0;
  [[nodiscard]] virtual const pergrad::privacy_accountant& accountant() const = 0;
  [[nodiscard]] virtual bool interrupted() const = 0;  ///< has somebody pressed Ctrl-C?

 protected:
  ~training_run() = default;
};
/// Trains until the planned steps are made, the budget is spent or somebody presses Ctrl-C. What is printed for every
/// epoch is measured on the test set, which is public; the training loss is as private as the data. `test` measures the
/// network on the test set. Interrupted before the first step, it leaves report.epochs empty: there is nothing to
/// write.
void train_for_epochs(training_run& run, run_report& report, const std::function<pergrad::classifier_result()>& test);

/// Writes the reports of a training that has ended, before anything else that may fail.
void end_report(run_report& report);

/// A trainer with its source of noise and its data set.
template <class Trainer, class Records, class Executor>
class run_of final : public training_run {
 public:
  /// `is_interrupted`: of processes that take steps together, the same for all.
  run_of(Trainer& trainer, const Records& records, const Executor& exec,
         std::function<bool()> is_interrupted = example::interrupted)
      : trainer_{trainer}, records_{records}, exec_{exec}, is_interrupted_{std::move(is_interrupted)} {}
  [[nodiscard]] bool within_budget() const override { return trainer_.within_budget(); }
  void step() override { trainer_.step(records_); }
  void wait() override { wait_for(exec_); }
  [[nodiscard]] std::size_t steps() const override { return static_cast<std::size_t>(trainer_.steps()); }
  [[nodiscard]] double epsilon(pergrad::delta delta) const override { return trainer_.epsilon(delta); }
  [[nodiscard]] const pergrad::privacy_accountant& accountant() const override { return trainer_.accountant(); }
  [[nodiscard]] bool interrupted() const override { return is_interrupted_(); }

 private:
  Trainer& trainer_;
  const Records& records_;
  const Executor& exec_;
  std::function<bool()> is_interrupted_;
};

/// Trains with the given source of noise. `test` measures the network on the test set.
template <class Network, class Executor, class Value, class Generator>
void train_with(Generator generator, const pergrad::dp_sgd_options& private_choices, const Executor& exec, Network& net,
                run_report& report, const pergrad::dataset<Value, std::int32_t>& train_set,
                const std::function<pergrad::classifier_result()>& test) {
  pergrad::dp_sgd trainer{exec, net, pergrad::cross_entropy{}, private_choices, std::move(generator)};
  run_of run{trainer, train_set, exec};
  train_for_epochs(run, report, test);
}

/// Trains a network and fills in the report, of which `labels`, `network`, `dataset_size`, `own_options` and
/// `public_constants` are the caller's. `load` returns the data sets, the one for training first; it is called after
/// the options have been found to make sense. Throws bad_value for options that do not, no_executor if this machine
/// has none of the kind asked for, std::exception otherwise. Without test records nothing is measured. `begin` may
/// change the first parameters, `end` gets the last ones once the reports are written.
template <class Network, class Executor = pergrad::host, class Load>
void train_privately(
    run_report& report, Load&& load, const std::function<void(Network&)>& begin = [](Network&) {},
    const std::function<void(const Network&)>& end = [](const Network&) {}) {
  const options& chosen = report.chosen;
  report.executor = describe_executor<Executor>(chosen);
  report.parameters = Network::parameter_count;
  const auto private_choices = private_options(report);
  require_executor<Executor>();
  const auto [train_set, test_set] = load();
  begin_report(report, train_set.size(), test_set.size());
  const Executor exec = make_executor<Executor>(chosen);
  Network net{exec, pergrad::kaiming_uniform{report.initial_weights_seed}};
  begin(net);
  const std::function<pergrad::classifier_result()> test = [&, &records = test_set] {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    if (records.size() == 0) return pergrad::classifier_result{none, none};
    return pergrad::evaluate_classifier(exec, net, pergrad::public_records{records});
  };
  if (chosen.seed) {
    train_with(pergrad::seeded_generator{*chosen.seed}, private_choices, exec, net, report, train_set, test);
  } else {
    train_with(pergrad::os_keyed_generator{}, private_choices, exec, net, report, train_set, test);
  }
  if (report.epochs.empty()) return;
  report.confusion = pergrad::confuse(exec, net, pergrad::public_records{test_set}, report.labels.size());
  end_report(report);
  end(net);
}

/// main() of a program: reads the command line, to which `own` adds options, lets `run` train, says how that has ended
/// and returns the exit code.
[[nodiscard]] int run_program(int argc, char** argv, const program& what, const std::function<void(cli::binder&)>& own,
                              const std::function<void(run_report&)>& run);

}  // namespace example
