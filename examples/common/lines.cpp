// SPDX-License-Identifier: Apache-2.0
// examples/common/lines.cpp - what a training program prints
#include "lines.hpp"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "bounds.hpp"
#include "cli.hpp"
#include "svg.hpp"

namespace example {

void print_header(const run_report& report) {
  const options& chosen = report.chosen;
  const auto say = [](const char* name, const std::string& text) {
    std::printf("%-8s %s\n", name, one_line(text).c_str());
  };
  static_cast<void>(std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ));
  say("data", (report.what.size_is_private ? "about " + std::to_string(report.dataset_size)
                                           : std::to_string(report.train_size)) +
                  " training and " + std::to_string(report.test_size) + " test " + report.what.record + "s from " +
                  chosen.data);
  say("network", std::to_string(report.parameters) + " parameters, " + report.network + ", " + report.executor);
  say("training", chosen.optimizer + ", lr " + shortest(chosen.learning_rate) +
                      (chosen.optimizer == "momentum" ? ", momentum " + shortest(chosen.momentum) : "") + ", " +
                      std::to_string(report.planned_steps) + " steps of expected batch " +
                      std::to_string(chosen.batch));
  const bool unlimited = chosen.noise_multiplier && !chosen.has("epsilon");
  say("privacy", (unlimited ? "no budget" : "epsilon " + shortest(chosen.epsilon)) + ", delta " +
                     delta_text(chosen.delta) + ", sigma " + svg::number(report.sigma, 4) +
                     (chosen.noise_multiplier ? " (given)" : " (calibrated)") + ", q " + svg::number(report.q, 6) +
                     ", clip " + shortest(chosen.clip) + "; one record, which is one " + report.what.record +
                     ", added or removed");
  say("noise", chosen.seed ? "key from --seed " + std::to_string(*chosen.seed) +
                                 ": reproducible and NOT PRIVATE, who knows the seed can subtract the noise"
                           : "key from the operating system");
  say("metrics", report.test_size == 0
                     ? "none: there are no test " + report.what.record + "s, and the training loss is private"
                     : "loss and accuracy are of the public test set; the training loss is private and not shown");
}

void print_epoch(const std::string& label, const epoch_record& epoch) {
  const std::string measured = std::isnan(epoch.test_loss)
                                   ? ""
                                   : "test loss " + accuracy_text(epoch.test_loss) + "  test accuracy " +
                                         accuracy_text(epoch.test_accuracy) + "  ";
  std::printf("%s  %sepsilon %s  (%.1f s)\n", label.c_str(), measured.c_str(), epsilon_text(epoch.epsilon).c_str(),
              epoch.seconds);
}

void print_end(const run_report& report) {
  if (report.stopped_by_budget) {
    std::printf("the budget of epsilon %s ended training after %zu of %zu steps\n",
                shortest(report.chosen.epsilon).c_str(), report.epochs.back().steps, report.planned_steps);
  }
  if (report.interrupted) {
    std::printf("interrupted after %zu of %zu steps\n", report.epochs.back().steps, report.planned_steps);
  }
  const attacker& attacks = report.attacks;
  std::printf(
      "who tests whether one %s was trained on: true minus false positives at most %s; of %g %% false ones "
      "at most %s %% true ones\n",
      report.what.record.c_str(), rounded_up(attacks.advantage, 4).c_str(), 100 * attacks.rare.false_positives,
      rounded_up(100 * attacks.rare.true_positives, 2).c_str());
  const std::filesystem::path out(one_line(report.chosen.out));
  std::printf("wrote %s and %s\n%s\n", (out / "report.json").c_str(), (out / "report.svg").c_str(),
              summary(report).c_str());
}

}  // namespace example
