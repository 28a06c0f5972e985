// SPDX-License-Identifier: Apache-2.0
// bench/peers/ours.cpp - our side of the comparison: `ours dp|non_private THREADS FOLDER`, then commands on stdin
//
// Built once for every task: "network.hpp" is generated from problem.py's table. The commands and the answers, one line
// each, are those of worker.py:
//   prepare BATCH FILE   first step with rate BATCH and without noise, so that it subtracts the (clipped) sum of the
//                        first batch's gradients from the parameters; writes the parameters to FILE. In a task without
//                        update: the mean of the gradients and, if private, the samples' norms
//   run SECONDS          steps with rate 0.15 and noise multiplier 1.1 from the initial parameters; gives their times.
//                        In a task without update: forward and backward
//   release              forgets the network and what it needed
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <malloc.h>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "../support/peak_memory.hpp"
#include "network.hpp"

namespace {

namespace pg = pergrad;
using task::loss;
using task::network;
using target = pg::target_of<loss, network::scalar>;

constexpr double rate = 0.15;
constexpr double noise = 1.1;

template <class Value>
std::vector<Value> read_values(const std::string& path) {
  std::ifstream file{path, std::ios::binary | std::ios::ate};
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  std::vector<Value> values(static_cast<std::size_t>(file.tellg()) / sizeof(Value));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(Value)));
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return values;
}

/// Writes float vectors, one behind the other, as one of NumPy's files.
void write_values(const std::string& path, std::span<const float> first, std::span<const float> second) {
  std::ofstream file{path, std::ios::binary};
  file << pg::detail::npy_header<float>(first.size() + second.size());
  for (const std::span<const float> part : {first, second}) {
    file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size_bytes()));
  }
  file.flush();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

double held_megabytes() {
  std::ifstream file{"/proc/self/statm"};
  double whole = 0;
  double resident = 0;
  file >> whole >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) * 1e-6;
}
/// False where the kernel cannot do that; see proc(5), clear_refs.
bool forget_peak() {
  std::ofstream file{"/proc/self/clear_refs"};
  return static_cast<bool>(file << "5" << std::flush);
}

struct data {
  explicit data(const std::string& folder)
      : inputs{read_values<network::input_value>(
            folder + (std::is_integral_v<network::input_value> ? "/inputs.i32" : "/inputs.f32"))},
        targets{read_values<target>(folder + (std::is_integral_v<target> ? "/labels.i32" : "/targets.f32"))} {}
  std::vector<network::input_value> inputs;
  std::vector<target> targets;
};

template <bool Private>
class training {
 public:
  training(std::size_t thread_count, std::size_t batch_size, const data& records)
      : exec_{pg::threads{thread_count}},
        tape_{exec_, pg::max_batch{batch_size}},
        sum_{make_sum(exec_, batch_size)},
        norms_(Private && !task::update ? batch_size : 0),
        batch_size_{batch_size},
        records_{records} {}

  void start(const std::string& parameters, double learning_rate) {
    pg::unprotected::load_parameters(net_, parameters, pg::parameter_order::frozen_last);
    optimizer_ = pg::sgd<network>{pg::learning_rate{learning_rate}};
    first_ = 0;
  }
  void step() {
    sum_up();
    if constexpr (updates_privately) {
      optimizer_.step(exec_, net_, sum_ + pg::unaccounted::gaussian_noise(pg::noise_multiplier{noise}, noise_), size());
    } else if constexpr (task::update) {
      pg::unprotected::step(optimizer_, exec_, net_, sum_);
    }
  }
  /// A step without noise, which nothing that is private allows: a rehearsal.
  void step_without_noise() {
    if constexpr (updates_privately) {
      sum_up();
      pg::seeded_generator none{1};
      pg::unprotected::rehearsed_gradient<network> update{exec_};
      optimizer_.step(exec_, net_, update, sum_ + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, none),
                      size());
    } else {
      step();
    }
  }
  /// What the step gave that the others are compared with.
  void write_result(const std::string& path) const {
    if constexpr (task::update) {
      write_values(path, net_.all_parameters(), {});
    } else {
      write_values(path, sum_.values(), std::vector<float>(norms_.begin(), norms_.end()));
    }
  }

 private:
  static constexpr std::size_t sample_size = network::input_shape.size();
  static constexpr std::size_t targets_of_sample = loss::target_count(network::output_shape);
  static constexpr bool updates_privately = Private && task::update;
  /// Nothing keeps what a step releases, as with the option keep_update = false.
  using sum = std::conditional_t<updates_privately, pg::bounded_total<network>, pg::unprotected::gradient<network>>;
  [[nodiscard]] static sum make_sum(const pg::host& executor, std::size_t batch_size) {
    if constexpr (updates_privately) {
      return sum{executor, pg::record_capacity{batch_size}};
    } else {
      return sum{executor};
    }
  }
  [[nodiscard]] pg::expected_batch_size size() const {
    return pg::expected_batch_size{static_cast<double>(batch_size_)};
  }

  /// Forward, backward, and what becomes of the next batch's gradients.
  void sum_up() {
    if ((first_ + batch_size_) * targets_of_sample > records_.targets.size()) first_ = 0;
    const pg::batch<network, loss> samples{
        std::span{records_.inputs}.subspan(first_ * sample_size, batch_size_ * sample_size),
        std::span{records_.targets}.subspan(first_ * targets_of_sample, batch_size_ * targets_of_sample)};
    first_ += batch_size_;
    const auto gradients = pg::per_sample_gradients(net_, loss{}, samples, tape_);
    if constexpr (updates_privately) {
      sum_.clear();
      pg::evaluate_into(exec_, pg::accumulate(sum_, pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}))));
    } else if constexpr (Private) {
      pg::unprotected::evaluate_into(exec_, pg::assign(sum_, pg::mean(gradients)),
                                     pg::assign(norms_, pg::l2_norms(gradients)));
    } else {
      pg::unprotected::evaluate_into(exec_, sum_, pg::mean(gradients));
    }
  }

  pg::host exec_;
  network net_{exec_, pg::zeros{}};
  network::tape tape_;
  pg::os_keyed_generator noise_;
  sum sum_;
  pg::sgd<network> optimizer_{pg::learning_rate{rate}};
  std::vector<double> norms_;
  std::size_t batch_size_;
  std::size_t first_ = 0;
  const data& records_;
};

template <class Function>
double seconds_of(Function&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The commands, one function each; what they return is printed.
template <bool Private>
class session {
 public:
  session(std::size_t threads, std::string folder)
      : threads_{threads}, initial_{folder + "/initial.npy"}, records_{folder} {}

  std::string prepare(std::size_t batch_size, const std::string& file) {
    release();
    const double first = seconds_of([&] {
      current_ = std::make_unique<training<Private>>(threads_, batch_size, records_);
      current_->start(initial_, static_cast<double>(batch_size));
      current_->step_without_noise();
    });
    current_->write_result(file);
    return "{\"version\": \"" + std::string{pg::version} + "\", \"first_step_seconds\": " + std::to_string(first) +
           ", \"peak_mb\": " + std::to_string(peak()) + "}";
  }
  std::string run(double seconds) {
    current_->start(initial_, rate);
    malloc_trim(0);
    earlier_peak_ = peak();
    peak_is_of_run_ = forget_peak();
    double total = seconds_of([&] { current_->step(); });
    std::string times = std::to_string(total * 1e6);
    if (total < seconds) {  // it found others' data in the caches
      total = 0;
      times.clear();
    }
    while (total < seconds) {
      const double time = seconds_of([&] { current_->step(); });
      total += time;
      times += (times.empty() ? "" : ", ") + std::to_string(time * 1e6);
    }
    return "{\"microseconds\": [" + times + "], \"peak_mb\": " + std::to_string(peak()) + "}";
  }
  std::string release() {
    const double highest = peak_megabytes();
    current_.reset();
    malloc_trim(0);
    if (!std::exchange(peak_is_of_run_, false)) return "{}";
    return "{\"step_mb\": " + std::to_string(highest - held_megabytes()) + "}";
  }

 private:
  [[nodiscard]] double peak() const { return std::max(earlier_peak_, peak_megabytes()); }

  std::size_t threads_;
  std::string initial_;
  data records_;
  std::unique_ptr<training<Private>> current_;
  double earlier_peak_ = 0;
  bool peak_is_of_run_ = false;
};

template <bool Private>
void serve(std::size_t threads, const std::string& folder) {
  session<Private> commands{threads, folder};
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words{line};
    std::string command;
    std::string answer;
    words >> command;
    if (command == "prepare") {
      std::size_t batch_size = 0;
      std::string file;
      words >> batch_size >> std::ws;
      std::getline(words, file);
      answer = commands.prepare(batch_size, file);
    } else if (command == "run") {
      double seconds = 0;
      words >> seconds;
      answer = commands.run(seconds);
    } else if (command == "release") {
      answer = commands.release();
    } else {
      throw std::invalid_argument("unknown command " + line);
    }
    std::printf("%s\n", answer.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count != 4) throw std::invalid_argument("usage: ours dp|non_private THREADS FOLDER");
    const std::string kind = words[1];
    const std::size_t threads = std::stoul(words[2]);
    if (kind == "dp") {
      serve<true>(threads, words[3]);
    } else {
      serve<false>(threads, words[3]);
    }
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
  return 0;
}
