// SPDX-License-Identifier: Apache-2.0
// examples/common/report.hpp - what a training run leaves behind: report.json, and report.svg next to it
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <pergrad.hpp>

#include "cli.hpp"

namespace example {

/// The state after an epoch (or after the part of one that was trained). Loss and accuracy are of the public test set,
/// NaN without one; the seconds are those of the training steps.
struct epoch_record {
  std::size_t steps;  ///< made so far
  double epochs;      ///< the same in expected passes over the training set
  double test_loss, test_accuracy, epsilon, seconds;
};

/// A number or a word under its name.
struct fact {
  std::string name;
  std::variant<std::int64_t, double, std::string> value;

  template <class Value>
  fact(std::string called, const Value& is) : name{std::move(called)} {
    if constexpr (std::is_integral_v<Value>) {
      value = static_cast<std::int64_t>(is);
    } else {
      value = is;
    }
  }
};

/// What the run's ledger leaves to an attacker who tests whether a record was trained on: proven upper bounds.
struct attacker {
  struct place {
    double false_positives, true_positives;
  };
  double advantage = 0;      ///< true minus false positives, at best
  std::vector<place> curve;  ///< by false positives, from small ones to 1
  place rare{1e-3, 0};       ///< the one that is printed
};

struct run_report {
  /// Notes an option that only this program has.
  void add_option(const std::string& name, const std::string& value);

  program what;
  options chosen;
  std::vector<fact> own_options;       ///< those that only this program has
  std::vector<fact> public_constants;  ///< what is taken for public knowledge, for the record
  std::string network;                 ///< in a few words
  std::string executor;                ///< in a few words
  std::vector<std::string> labels;     ///< names of the classes
  std::size_t dataset_size = 0;        ///< public: q is the batch divided by it
  std::size_t parameters = 0, train_size = 0, test_size = 0;
  double sigma = 0.0, q = 0.0;
  std::size_t planned_steps = 0;
  std::uint64_t initial_weights_seed = 0;
  std::vector<epoch_record> epochs;        ///< never empty once training has ended
  attacker attacks;                        ///< on what was released
  pergrad::confusion_matrix confusion{0};  ///< of the last weights on the test set
  bool interrupted = false;                ///< by a signal
  bool stopped_by_budget = false;  ///< before the planned steps, because the next one would have exceeded epsilon
  double seconds = 0.0;            ///< of the whole program, until the reports are written
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<std::string> files{"report.json", "report.svg"};  ///< all that will be written into the folder --out
  bool is_written = true;  ///< false on other ranks than the first, which writes for all
  std::string pergrad_version;
};

/// An epsilon to four decimals, rounded up: what is printed is never less than what was spent.
[[nodiscard]] std::string epsilon_text(double epsilon);
/// "1e-05" for 0.00001.
[[nodiscard]] std::string delta_text(double delta);
[[nodiscard]] std::string accuracy_text(double accuracy);
/// The last line of a run.
[[nodiscard]] std::string summary(const run_report& report);

/// Makes sure, before an hour is spent, that files of these names can be written: the folder exists or is made, takes
/// them, and no folder bears such a name. Throws std::runtime_error.
void check_output_folder(const std::string& directory, const std::vector<std::string>& files);
/// Replaces a file by `content` as one act: who reads it sees the old file or the whole new one. Throws
/// std::system_error.
void write_file(const std::string& path, std::string_view content);
/// Writes DIR/report.json and DIR/report.svg. Throws std::system_error.
void write_reports(const run_report& report);

}  // namespace example
