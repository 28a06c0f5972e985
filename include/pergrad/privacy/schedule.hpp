// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/schedule.hpp - numbers that change from step to step: of noise, clipping, sampling and learning rate
//
//   options.schedules.steps = 1000;
//   options.schedules.noise = pg::schedule::exponential(1.4, 0.9, 100);                   // 0.9 as much every 100
//   steps options.schedules.learning_rate = pg::schedule{[](std::uint64_t step) { return step < 10 ? 0.1 : 0.5; }};
//
// A schedule is public and chosen before the first step: it must not be computed from records, nor from what was
// released. So the whole of it is proven to keep to the budget when the run is made; each step enters its own event,
// and a run that ends early has spent what its steps cost.
#pragma once

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pergrad::inline v0_1 {

/// A number for each step 0, 1, ...
class schedule {
 public:
  /// f(step), a function of a std::uint64_t: called once a step when a run is made.
  template <class Function>
  requires(std::is_invocable_r_v<double, const Function&, std::uint64_t> &&
           !std::is_same_v<std::remove_cvref_t<Function>, schedule>) explicit schedule(Function of)
      : kept_{std::make_shared<const kept>(kept{std::move(of), {}, {}})} {}

  /// first * factor^(step / every), whole quotients: PyTorch's StepLR, and its ExponentialLR where `every` is 1. Of
  /// noise and sampling prefer longer stretches: each number is a kind of step in the ledger, which takes some
  /// milliseconds, and beyond 256 kinds only Renyi divergences bound their cost. Throws std::invalid_argument for an
  /// `every` of 0.
  [[nodiscard]] static schedule exponential(double first, double factor, std::uint64_t every = 1) {
    if (every == 0) throw std::invalid_argument("pergrad: schedule: every must be at least 1");
    return schedule{[=](std::uint64_t step) {
      const std::uint64_t times = step / every;
      return first * std::pow(factor, static_cast<double>(times));
    }};
  }
  /// Numbers of steps 0, 1, ..., one a line of a text file. Throws std::runtime_error that names the file and the line
  /// that is no number.
  [[nodiscard]] static schedule from_file(const std::string& path) {
    std::ifstream file{path};
    if (!file) throw std::runtime_error("pergrad: schedule: cannot open " + path);
    kept table;
    table.path = path;
    for (std::string line; std::getline(file, line);) {
      char* end = nullptr;
      errno = 0;
      table.numbers.push_back(std::strtod(line.c_str(), &end));
      const bool is_a_double = errno == 0 && std::isfinite(table.numbers.back());
      const std::size_t read = static_cast<std::size_t>(end - line.c_str());
      if (read == 0 || line.find_first_not_of(" \t\r", read) != std::string::npos || !is_a_double) {
        throw std::runtime_error("pergrad: schedule: line " + std::to_string(table.numbers.size()) + " of " + path +
                                 " is not one number that a double holds");
      }
    }
    if (file.bad()) throw std::runtime_error("pergrad: schedule: cannot read " + path);
    return schedule{std::make_shared<const kept>(std::move(table))};
  }

  /// Of step number `step`. Throws what its function throws, and std::out_of_range behind the last line of a file.
  [[nodiscard, gnu::cold]] double operator()(std::uint64_t step) const {
    if (kept_->of) return kept_->of(step);
    if (step >= kept_->numbers.size()) {
      throw std::out_of_range("pergrad: schedule: " + (kept_->path.empty() ? "it" : kept_->path) + " has numbers of " +
                              std::to_string(kept_->numbers.size()) + " steps, and step " + std::to_string(step) +
                              " has none");
    }
    return kept_->numbers[step];
  }
  /// The file that it was read from, for messages; empty if there is none.
  [[nodiscard]] const std::string& path() const noexcept { return kept_->path; }
  /// The same numbers of so many steps, from a table: whatever a function answers when it is asked again.
  [[nodiscard]] schedule tabulated(std::uint64_t steps) const {
    kept table{{}, {}, kept_->path};
    table.numbers.reserve(steps);
    for (std::uint64_t step = 0; step < steps; ++step) table.numbers.push_back((*this)(step));
    return schedule{std::make_shared<const kept>(std::move(table))};
  }

 private:
  struct kept {
    std::function<double(std::uint64_t)> of;  ///< or, without it, a table
    std::vector<double> numbers;
    std::string path;  ///< for messages
  };
  explicit schedule(std::shared_ptr<const kept> of) : kept_{std::move(of)} {}

  std::shared_ptr<const kept> kept_;  ///< copies share it
};

}  // namespace pergrad::inline v0_1
