// SPDX-License-Identifier: Apache-2.0
// bench/peers/ours.cpp - our side of the comparison: `ours dp|non_private THREADS FOLDER`, then commands on stdin
//
// Built once for every task: "network.hpp" is generated from problem.py's table. The commands and the answers, one line
// each, are those of worker.py:
//   prepare BATCH FILE   first step with rate BATCH and without noise, so that it subtracts the (clipped) sum of the
//                        first batch's gradients from the parameters; writes the parameters to FILE
//   run SECONDS          steps with rate 0.15 and noise multiplier 1.1 from the initial parameters; answers their times
//   release              forgets the network and what it needed
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "network.hpp"

namespace {

namespace pg = pergrad;
using task::network;

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

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;
}

struct data {
  explicit data(const std::string& folder)
      : inputs{read_values<float>(folder + "/inputs.f32")}, labels{read_values<std::int32_t>(folder + "/labels.i32")} {}
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
};

template <bool Private>
class training {
 public:
  training(std::size_t thread_count, std::size_t batch_size, const data& records)
      : exec_{pg::threads{thread_count}},
        tape_{exec_, pg::max_batch{batch_size}},
        batch_size_{batch_size},
        records_{records} {}

  void start(const std::string& parameters, double learning_rate, double noise_multiplier) {
    pg::load_parameters(net_, parameters);
    optimizer_ = pg::sgd<network>{pg::learning_rate{learning_rate}};
    noise_ = noise_multiplier;
    first_ = 0;
  }
  void step() {
    if (first_ + batch_size_ > records_.labels.size()) first_ = 0;
    const pg::batch<network, pg::cross_entropy> samples{
        std::span{records_.inputs}.subspan(first_ * sample_size, batch_size_ * sample_size),
        std::span{records_.labels}.subspan(first_, batch_size_)};
    first_ += batch_size_;
    const auto gradients = pg::per_sample_gradients(net_, pg::cross_entropy{}, samples, tape_);
    if constexpr (Private) {
      const auto clipped = pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}));
      pg::evaluate_into(exec_, update_, clipped + pg::gaussian_noise(pg::noise_multiplier{noise_}, generator_));
      optimizer_.step(exec_, net_, update_, pg::expected_batch_size{static_cast<double>(batch_size_)});
    } else {
      pg::unprotected::evaluate_into(exec_, update_, pg::mean(gradients));
      pg::unprotected::step(optimizer_, exec_, net_, update_);
    }
  }
  [[nodiscard]] const network& net() const noexcept { return net_; }

 private:
  static constexpr std::size_t sample_size = network::input_shape.size();
  using update = std::conditional_t<Private, pg::private_gradient<network>, pg::unprotected::gradient<network>>;

  pg::host exec_;
  network net_{exec_, pg::zeros{}};
  network::tape tape_;
  pg::os_keyed_generator generator_;
  update update_{exec_};
  pg::sgd<network> optimizer_{pg::learning_rate{rate}};
  double noise_ = noise;
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

template <bool Private>
void serve(std::size_t threads, const std::string& folder) {
  const std::string initial = folder + "/initial.npy";
  const data records{folder};
  std::unique_ptr<training<Private>> current;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words{line};
    std::string command;
    words >> command;
    if (command == "prepare") {
      std::size_t batch_size = 0;
      std::string file;
      words >> batch_size >> file;
      current.reset();
      const double first = seconds_of([&] {
        current = std::make_unique<training<Private>>(threads, batch_size, records);
        current->start(initial, static_cast<double>(batch_size), 0);
        current->step();
      });
      pg::save_parameters(current->net(), file);
      std::printf("{\"version\": \"%s\", \"first_step_seconds\": %.6f, \"peak_mb\": %.1f}\n",
                  std::string{pg::version}.c_str(), first, peak_megabytes());
    } else if (command == "run") {
      double seconds = 0;
      words >> seconds;
      current->start(initial, rate, noise);
      double total = seconds_of([&] { current->step(); });
      std::string times = std::to_string(total * 1e6);
      if (total < seconds) {  // it found others' data in the caches
        total = 0;
        times.clear();
      }
      while (total < seconds) {
        const double time = seconds_of([&] { current->step(); });
        total += time;
        times += (times.empty() ? "" : ", ") + std::to_string(time * 1e6);
      }
      std::printf("{\"microseconds\": [%s], \"peak_mb\": %.1f}\n", times.c_str(), peak_megabytes());
    } else if (command == "release") {
      current.reset();
      std::printf("{}\n");
    } else {
      throw std::invalid_argument("unknown command " + line);
    }
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
