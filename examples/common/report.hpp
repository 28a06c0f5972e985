// SPDX-License-Identifier: Apache-2.0
// examples/common/report.hpp - what a training run leaves behind: report.json, and report.svg next to it
#pragma once

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cli.hpp"
#include "confusion.hpp"

namespace example {

/// The state after an epoch (or after the part of one that was trained). Loss and accuracy are of the public test set;
/// the seconds are those of the training steps.
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

struct run_report {
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
  std::vector<epoch_record> epochs;  ///< never empty once training has ended
  confusion_matrix confusion;        ///< of the last weights on the test set
  bool interrupted = false;          ///< by a signal
  bool stopped_by_budget = false;    ///< before the planned steps, because the next one would have exceeded epsilon
  double seconds = 0.0;              ///< of the whole program
  std::string pergrad_version;
};

/// An epsilon to four decimals, rounded up: what is printed is never less than what was spent.
[[nodiscard]] inline std::string epsilon_text(double epsilon) {
  char text[64];
  const double scaled = epsilon * 1e4 * (1 - 1e-12);  // not up by a rounding error
  const double up = std::abs(scaled) < 1e15 ? std::ceil(scaled) / 1e4 : epsilon;
  std::snprintf(text, sizeof text, "%.4f", up);
  return text;
}

/// "1e-05" for 0.00001.
[[nodiscard]] inline std::string delta_text(double delta) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", delta);
  return text;
}

[[nodiscard]] inline std::string accuracy_text(double accuracy) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4f", accuracy);
  return text;
}

/// The last line of a run.
[[nodiscard]] inline std::string summary(const run_report& report) {
  const epoch_record& last = report.epochs.back();
  return "test accuracy " + accuracy_text(last.test_accuracy) + ", epsilon " + epsilon_text(last.epsilon) + ", delta " +
         delta_text(report.chosen.delta);
}

/// Replaces DIR/NAME by `content` as one act: who reads it sees the old file or the whole new one. Throws
/// std::system_error.
inline void write_file(const std::string& directory, const std::string& name, std::string_view content) {
  const std::filesystem::path path = std::filesystem::path(directory) / name;
  const std::filesystem::path partial = path.string() + ".partial";
  const auto fail = [&path](int code) {
    throw std::system_error(code, std::generic_category(), "cannot write " + path.string());
  };
  errno = 0;
  std::ofstream stream(partial, std::ios::binary | std::ios::trunc);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  stream.close();
  std::error_code error;
  if (!stream) {
    const int code = errno;
    std::filesystem::remove(partial, error);
    fail(code);
  }
  std::filesystem::rename(partial, path, error);
  if (error) {
    const int code = error.value();
    std::filesystem::remove(partial, error);
    fail(code);
  }
}

/// Makes sure, before an hour is spent, that both reports can be written: the folder exists or is made, takes a file,
/// and no folder bears a report's name. Throws std::runtime_error.
inline void check_output_folder(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error || !std::filesystem::is_directory(directory)) {
    throw std::runtime_error("cannot make the output folder " + directory + ": " +
                             (error ? error.message() : "it is not a folder"));
  }
  for (const char* name : {"report.json", "report.svg"}) {
    const auto path = std::filesystem::path(directory) / name;
    if (std::filesystem::is_directory(path, error)) {
      throw std::runtime_error("cannot write " + path.string() + ": it is a folder");
    }
  }
  const std::string probe = ".pergrad-probe";
  write_file(directory, probe, "");
  std::filesystem::remove(std::filesystem::path(directory) / probe, error);
}

/// Writes DIR/report.json and DIR/report.svg. Throws std::system_error.
void write_reports(const run_report& report);

}  // namespace example
