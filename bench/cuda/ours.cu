// SPDX-License-Identifier: Apache-2.0
// bench/cuda/ours.cu - one network on the GPU: checked against the host executor, and timed
//
// Built once for every task: "network.hpp" is generated from bench/peers/problem.py's table.
//   ours check [RECORDS]               device and host agree; results do not depend on the run or the physical batch
//   ours data FOLDER RECORDS BATCH     writes made-up records, first parameters and, of the first BATCH records, the
//   sum
//                                      of the clipped gradients and of the gradients: what the peers read and are
//                                      compared with
//   ours time SECONDS RECORDS BATCH... one line of JSON a batch size, in about so many seconds each
//   ours poisson SECONDS RECORDS BATCH...
//                                      the same of steps alone that draw their batch from RECORDS
//   ours memory SECONDS RECORDS PHYSICAL LOGICAL...
//                                      one line of JSON a logical batch, drawn from RECORDS, in physical batches
//   ours profile BATCH                 two steps of a full batch and nothing else, for a profiler
// With `tf32` before the command the device stores and multiplies with TF32; compiled with PERGRAD_BENCH_BF16, with
// BF16. Exit code 1 if a check fails, 3 without a usable GPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>
#include <exception>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "network.hpp"

namespace {

namespace pg = pergrad;
using task::loss;
using task::network;
using target = pg::target_of<loss, network::scalar>;

// Networks begin with PyTorch's default parameters: with larger ones rounding alone turns rectifiers of a deep network
// over, and sums of its gradients differ by a thousandth.

constexpr double rate = 0.15;
constexpr double noise = 1.1;
constexpr std::size_t sample_size = network::input_shape.size();
constexpr std::size_t targets_of_sample = loss::target_count(network::output_shape);
constexpr std::size_t classes = network::output_shape.size() / targets_of_sample;

/// The GPU, which remembers the last graph so that it can be replayed alone.
class measured_device : public pg::on_device::cuda_device {
 public:
#ifdef PERGRAD_BENCH_BF16
  using tensor_format = pg::on_device::bf16_format;
#endif
  void replay(graph& recorded) {
    last_ = &recorded;
    ++replays_;
    cuda_device::replay(recorded);
  }
  void replay_again() { cuda_device::replay(*last_); }
  [[nodiscard]] std::size_t nodes() const { return node_count(*last_); }
  [[nodiscard]] std::size_t replays() const noexcept { return replays_; }

 private:
  graph* last_ = nullptr;
  std::size_t replays_ = 0;
};
using executor = pg::basic_device_executor<measured_device>;

pg::device_options device_options;  // of every executor here

constexpr std::size_t vocabulary = std::max<std::size_t>(network::input_shape.ids, 1);

/// Made-up records: inputs uniform in [0, 1) or, if they are ids, over the vocabulary; labels uniform.
struct made_up {
  using input = network::input_value;
  std::vector<input> inputs;
  std::vector<target> targets;

  explicit made_up(std::size_t count) : inputs(count * sample_size), targets(count * targets_of_sample) {
    std::uint64_t state = 20240229;
    const auto draw = [&state] {
      state = state * 6364136223846793005U + 1442695040888963407U;
      return static_cast<std::uint32_t>(state >> 40U);
    };
    for (input& value : inputs) {
      if constexpr (std::is_integral_v<input>) {
        value = static_cast<input>(draw() % vocabulary);
      } else {
        value = static_cast<input>(static_cast<float>(draw()) * 0x1p-24F);
      }
    }
    for (target& each : targets) each = static_cast<target>(draw() % classes);
  }
  [[nodiscard]] std::size_t size() const noexcept { return targets.size() / targets_of_sample; }
  [[nodiscard]] pg::dataset<input, target> first(std::size_t count) const {
    return {std::span{inputs}.first(count * sample_size), std::span{targets}.first(count * targets_of_sample),
            network::input_shape, targets_of_sample};
  }
};

pg::dp_sgd_options options_for(std::size_t batch, std::size_t records, std::size_t most) {
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{noise};
  options.sampling =
      pg::poisson_sampling{pg::sampling_probability{static_cast<double>(batch) / static_cast<double>(records)}};
  options.divisor = pg::expected_batch_size{static_cast<double>(batch)};
  options.learning_rate = pg::learning_rate{rate};
  options.max_batch = pg::max_batch{most};
  return options;
}

const char* precision() {
#ifdef PERGRAD_BENCH_BF16
  return "bf16";
#else
  return device_options.tf32 ? "tf32" : "float";
#endif
}

int failures = 0;
void report(const std::string& what, bool good, const std::string& detail = {}) {
  std::printf("%-60s %s%s\n", what.c_str(), good ? "ok" : "FAILED", detail.empty() ? "" : ("  " + detail).c_str());
  if (!good) ++failures;
}
/// ‖a - b‖ / ‖b‖.
template <class Value>
double apart(std::span<const Value> a, std::span<const Value> b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += error * error;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / size);
}
template <class Value>
void close(const std::string& what, std::span<const Value> a, std::span<const Value> b, double limit = 1e-5) {
  const double found = apart(a, b);
  char text[32];
  std::snprintf(text, sizeof text, "relative %.1e", found);
  report(what, found <= limit, text);
}

/// Parameters one rounding off, as a seed says; 0: as they are.
void disturb(network& net, std::uint32_t seed) {
  if (seed == 0) return;
  for (float& each : net.parameters()) {
    seed = seed * 1664525U + 1013904223U;
    each = std::nextafter(each, seed >> 31U == 0 ? -1e9F : 1e9F);
  }
}
constexpr std::uint32_t disturbed_runs = 4;

/// What one evaluation of a batch gives.
struct evaluation {
  std::vector<double> losses, norms;
  std::vector<float> sum, unclipped;
};
template <class Executor>
evaluation evaluate(const Executor& exec, const made_up& data, std::size_t count, std::size_t first = 0,
                    std::uint32_t seed = 0) {
  network net{exec, pg::layer_default{1}};
  disturb(net, seed);
  network::tape tape{exec, pg::max_batch{count}};
  const pg::batch<network, loss> samples{
      std::span{data.inputs}.subspan(first * sample_size, count * sample_size),
      std::span{data.targets}.subspan(first * targets_of_sample, count * targets_of_sample)};
  const auto gradients = pg::per_sample_gradients(net, loss{}, samples, tape);
  evaluation result;
  result.losses.resize(count);
  result.norms.resize(count);
  pg::unprotected::gradient<network> sum{exec};
  pg::unprotected::gradient<network> unclipped{exec};
  pg::unprotected::evaluate_into(exec, pg::assign(std::span{result.losses}, pg::losses(gradients)),
                                 pg::assign(std::span{result.norms}, pg::l2_norms(gradients)),
                                 pg::assign(unclipped, pg::sum(gradients)),
                                 pg::assign(sum, pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}))));
  result.sum.assign(sum.values().begin(), sum.values().end());
  result.unclipped.assign(unclipped.values().begin(), unclipped.values().end());
  return result;
}

#ifndef PERGRAD_BENCH_NO_CHECK
/// Parameters after some private steps, and the last release; with a seed the first parameters are one rounding off.
struct outcome {
  std::vector<float> parameters, released;
};
template <class Executor>
outcome train(const Executor& exec, const pg::dataset<made_up::input, target>& records,
              const pg::dp_sgd_options& options, int steps, std::uint32_t seed = 0) {
  network net{exec, pg::layer_default{1}};
  disturb(net, seed);
  pg::dp_sgd trainer{exec, net, loss{}, options, pg::seeded_generator{3}};
  for (int step = 0; step < steps; ++step) trainer.step(records);
  const auto parameters = std::as_const(net).parameters();
  const auto released = trainer.last_update().values();
  return {{parameters.begin(), parameters.end()}, {released.begin(), released.end()}};
}
bool same_bits(const outcome& a, const outcome& b) {
  return std::memcmp(a.parameters.data(), b.parameters.data(), a.parameters.size() * sizeof(float)) == 0 &&
         std::memcmp(a.released.data(), b.released.data(), a.released.size() * sizeof(float)) == 0;
}

int check(std::size_t records) {
  // Of what multiplies numbers of 11 or 8 bits; one fragment's wrong place gives a difference as large as the result.
  const std::string_view format = precision();
  const double limit = format == "float" ? 1e-5 : format == "tf32" ? 0.02 : 0.1;
  const made_up data{records};
  const executor gpu{device_options};
  const pg::host host;
  const std::size_t count = std::min<std::size_t>(records, 24);
  const evaluation wanted = evaluate(host, data, count);
  const evaluation found = evaluate(gpu, data, count);
  // A rectifier that is nearly zero makes more of a rounding: as much as between runs of the host's.
  const auto allowed = [&](double most) { return std::max(limit, 4 * most); };
  std::vector<evaluation> others;
  for (std::uint32_t seed = 1; seed <= disturbed_runs; ++seed) others.push_back(evaluate(host, data, count, 0, seed));
  const auto compare = [&]<class Value>(const char* what, std::vector<Value> evaluation::*of) {
    double most = 0;
    for (const evaluation& each : others) most = std::max(most, apart<Value>(each.*of, wanted.*of));
    close<Value>(what, found.*of, wanted.*of, allowed(most));
  };
  compare("losses are the host's", &evaluation::losses);
  compare("norms are the host's", &evaluation::norms);
  compare("the sum is the host's", &evaluation::unclipped);
  compare("the clipped sum is the host's", &evaluation::sum);
  // Whatever the format is, norms and sums read the same rounded numbers.
  std::vector<double> alone;
  for (std::size_t record = 0; record < std::min<std::size_t>(count, 4); ++record) {
    double square = 0;
    for (const float each : evaluate(gpu, data, 1, record).unclipped) {
      square += static_cast<double>(each) * static_cast<double>(each);
    }
    alone.push_back(std::sqrt(square));
  }
  close<double>("norms are those of the sums of one", std::span{found.norms}.first(alone.size()), alone);

  const auto all = data.first(records);
  auto options = options_for(records / 4, records, records);
  options.capacity = pg::record_capacity{0};  // the host adds up integers, too: then arithmetic alone tells them apart
  const outcome on_host = train(host, all, options, 3);
  const outcome on_gpu = train(gpu, all, options, 3);
  double parameters = 0;
  double released = 0;
  for (std::uint32_t seed = 1; seed <= disturbed_runs; ++seed) {
    const outcome other = train(host, all, options, 3, seed);
    parameters = std::max(parameters, apart<float>(other.parameters, on_host.parameters));
    released = std::max(released, apart<float>(other.released, on_host.released));
  }
  close<float>("private training is the host's: parameters", on_gpu.parameters, on_host.parameters,
               allowed(parameters));
  close<float>("private training is the host's: last release", on_gpu.released, on_host.released, allowed(released));
  report("the same bits again", same_bits(train(gpu, all, options, 3), on_gpu));
  options.max_batch = pg::max_batch{5};
  report("the same bits with physical batches of 5", same_bits(train(gpu, all, options, 3), on_gpu));

  options = options_for(1, records, 4);
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.0}};
  const std::vector<float> only_noise = train(host, all, options, 1).released;
  const outcome empty = train(gpu, all, options, 1);
  report("an empty batch releases the host's noise, bit by bit",
         std::memcmp(empty.released.data(), only_noise.data(), only_noise.size() * sizeof(float)) == 0);
  return failures == 0 ? 0 : 1;
}
#else
int check(std::size_t /*records*/) { throw std::invalid_argument{"ours: compiled without the check"}; }
#endif

void write(const std::string& path, const void* values, std::size_t bytes) {
  std::ofstream file{path, std::ios::binary};
  file.write(static_cast<const char*>(values), static_cast<std::streamsize>(bytes));
  file.flush();
  if (!file) throw std::runtime_error{path + ": cannot be written"};
}
int write_data(const std::string& folder, std::size_t records, std::size_t batch) {
  const made_up data{records};
  const executor gpu{device_options};
  const network net{gpu, pg::layer_default{1}};
  const evaluation found = evaluate(gpu, data, batch);
  static_assert(sizeof(made_up::input) == 4);
  write(folder + (std::is_integral_v<made_up::input> ? "/inputs.i32" : "/inputs.f32"), data.inputs.data(),
        data.inputs.size() * sizeof(made_up::input));
  write(folder + "/labels.i32", data.targets.data(), data.targets.size() * sizeof(target));
  write(folder + "/initial.f32", net.all_parameters().data(), net.all_parameters().size() * sizeof(float));
  write(folder + "/sum.f32", found.sum.data(), found.sum.size() * sizeof(float));
  write(folder + "/unclipped.f32", found.unclipped.data(), found.unclipped.size() * sizeof(float));
  return 0;
}

using clock_type = std::chrono::steady_clock;
double microseconds_since(clock_type::time_point start) {
  return std::chrono::duration<double, std::micro>(clock_type::now() - start).count();
}
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
/// Median over groups of the time of one call of f, in about so many seconds; `time(calls)` times a group. At least
/// three groups, however long they take.
template <class Time>
double median_of_groups(double seconds, Time&& time) {
  time(1);
  const int calls = std::clamp(static_cast<int>(2000 / time(1)), 1, 1000);  // 2 ms a group
  std::vector<double> groups;
  for (double total = 0; groups.size() < 3 || (total < seconds * 1e6 && groups.size() < 400);) {
    const double group = time(calls);
    total += group;
    groups.push_back(group / calls);
  }
  return median(groups);
}
/// The same of a trainer's steps, waited for at the end of a group.
template <class Trainer>
double median_step(double seconds, const executor& gpu, Trainer& trainer,
                   const pg::dataset<made_up::input, target>& records) {
  return median_of_groups(seconds, [&](int calls) {
    const auto start = clock_type::now();
    for (int i = 0; i < calls; ++i) trainer.step(records);
    gpu.device().synchronise();
    return microseconds_since(start);
  });
}

/// Device memory in use, of all programs.
double used_megabytes() {
  std::size_t unused = 0;
  std::size_t all = 0;
  if (cudaMemGetInfo(&unused, &all) != cudaSuccess) throw std::runtime_error{"cudaMemGetInfo fails"};
  return static_cast<double>(all - unused) * 1e-6;
}

struct timer {
  cudaEvent_t event = nullptr;
  timer() { cudaEventCreate(&event); }
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;
  ~timer() { cudaEventDestroy(event); }
};

/// What the driver keeps after a step of this kind, such as its context and the code of kernels, is in use from here
/// on.
void warm_up(const pg::dp_sgd_options& options, const pg::dataset<made_up::input, target>& records) {
  const executor gpu{device_options};
  network net{gpu, pg::layer_default{1}};
  pg::dp_sgd trainer{gpu, net, loss{}, options};
  trainer.step(records);
  gpu.device().synchronise();
}

/// Every record of a data set as large as the batch: each step is one physical batch, with room for one record more, as
/// behind a full one a step does not know that it was the last and ends with an empty one.
pg::dp_sgd_options full_batch(std::size_t batch) { return options_for(batch, batch, batch + 1); }

/// Poisson sampling from all records; physical batches that hold nearly every drawn batch at once.
double median_poisson_step(std::size_t batch, double seconds, const executor& gpu, network& net, const made_up& data) {
  const auto records = data.first(data.size());
  const auto most = batch + static_cast<std::size_t>(6 * std::sqrt(static_cast<double>(batch))) + 1;
  pg::dp_sgd trainer{gpu, net, loss{}, options_for(batch, data.size(), most)};
  for (int step = 0; step < 3; ++step) trainer.step(records);
  return median_step(seconds, gpu, trainer, records);
}

void time_batch(std::size_t batch, double seconds, const made_up& data) {
  // First, as it warms up what is measured: what the driver keeps is in use from there on.
  const double poisson = [&] {
    const executor gpu{device_options};
    network net{gpu, pg::layer_default{1}};
    return median_poisson_step(batch, 0.2 * seconds, gpu, net, data);
  }();
  const double used_before = used_megabytes();
  const executor gpu{device_options};
  network net{gpu, pg::layer_default{1}};
  double graph_only = 0;
  double host_loop = 0;
  double used = 0;
  std::size_t nodes = 0;
  clock_type::time_point begin_of_steps;
  {
    pg::dp_sgd trainer{gpu, net, loss{}, full_batch(batch)};
    const auto records = data.first(batch);
    for (int step = 0; step < 3; ++step) trainer.step(records);
    if (gpu.device().replays() != 3) throw std::logic_error{"a step is not one replay: an empty batch would be timed"};
    gpu.device().synchronise();
    used = used_megabytes();
    nodes = gpu.device().nodes();
    begin_of_steps = clock_type::now();
    host_loop = median_step(0.4 * seconds, gpu, trainer, records);
    const timer begin;
    const timer end;
    graph_only = median_of_groups(0.4 * seconds, [&](int calls) {
      cudaEventRecord(begin.event, gpu.device().stream());
      for (int i = 0; i < calls; ++i) gpu.device().replay_again();
      cudaEventRecord(end.event, gpu.device().stream());
      cudaEventSynchronize(end.event);
      float milliseconds = 0;
      if (cudaEventElapsedTime(&milliseconds, begin.event, end.event) != cudaSuccess) {
        throw std::runtime_error{"cudaEventElapsedTime fails"};
      }
      return std::max(static_cast<double>(milliseconds) * 1e3, 1e-3);
    });
  }
  std::printf(
      "{\"batch\": %zu, \"precision\": \"%s\", \"graph_us\": %.3f, \"loop_us\": %.3f, \"poisson_us\": %.3f, "
      "\"nodes\": %zu, \"peak_mb\": %.3f, \"timed_s\": %.3f}\n",
      batch, precision(), graph_only, host_loop, poisson, nodes, used - used_before,
      microseconds_since(begin_of_steps) * 1e-6);
  std::fflush(stdout);
}

void time_poisson(std::size_t batch, double seconds, const made_up& data) {
  const executor gpu{device_options};
  network net{gpu, pg::layer_default{1}};
  std::printf("{\"batch\": %zu, \"precision\": \"%s\", \"records\": %zu, \"poisson_us\": %.3f}\n", batch, precision(),
              data.size(), median_poisson_step(batch, seconds, gpu, net, data));
  std::fflush(stdout);
}

int profile(std::size_t batch) {
  const made_up data{batch};
  const auto records = data.first(batch);
  const executor gpu{device_options};
  network net{gpu, pg::layer_default{1}};
  pg::dp_sgd trainer{gpu, net, loss{}, full_batch(batch)};
  for (int step = 0; step < 2; ++step) trainer.step(records);
  gpu.device().synchronise();
  return gpu.device().replays() == 2 ? 0 : 1;
}

void measure_logical(std::size_t logical, std::size_t physical, double seconds, const made_up& data) {
  const auto records = data.first(data.size());
  const pg::dp_sgd_options options = options_for(logical, data.size(), physical);
  warm_up(options, records);
  const double used_before = used_megabytes();
  const executor gpu{device_options};
  network net{gpu, pg::layer_default{1}};
  pg::dp_sgd trainer{gpu, net, loss{}, options};
  trainer.step(records);
  const double step = median_step(seconds, gpu, trainer, records);
  std::printf("{\"logical\": %zu, \"physical\": %zu, \"poisson_us\": %.3f, \"peak_mb\": %.3f}\n", logical, physical,
              step, used_megabytes() - used_before);
  std::fflush(stdout);
}

int run(std::vector<std::string> words) {
  if (!words.empty() && words[0] == "tf32") {
    device_options.tf32 = true;
    words.erase(words.begin());
  }
  if (words.empty())
    throw std::invalid_argument{"usage: ours [tf32] check | data | time | ..., see the head of ours.cu"};
  if (words[0] == "check") return check(words.size() > 1 ? std::stoul(words[1]) : 96);
  if (words[0] == "data") return write_data(words.at(1), std::stoul(words.at(2)), std::stoul(words.at(3)));
  if (words[0] == "profile") return profile(std::stoul(words.at(1)));
  const double seconds = std::stod(words.at(1));
  const made_up data{std::stoul(words.at(2))};
  const bool measures_memory = words[0] == "memory";
  int failed = 0;
  if (!measures_memory && words[0] != "time" && words[0] != "poisson") {
    throw std::invalid_argument{"ours: no such command: " + words[0]};
  }
  for (std::size_t i = measures_memory ? 4 : 3; i < words.size(); ++i) {
    const std::size_t batch = std::stoul(words[i]);
    if (batch > data.size()) throw std::invalid_argument{"ours: more records a batch than there are"};
    try {
      if (measures_memory) {
        measure_logical(batch, std::stoul(words.at(3)), seconds, data);
      } else if (words[0] == "poisson") {
        time_poisson(batch, seconds, data);
      } else {
        time_batch(batch, seconds, data);
      }
    } catch (const pg::cuda_unavailable&) {
      throw;
    } catch (const std::exception& problem) {  // the others may have room
      std::printf("batch %zu: %s\n", batch, problem.what());
      std::fflush(stdout);
      failed = 1;
    }
  }
  return failed;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run({words + 1, words + count});
  } catch (const pg::cuda_unavailable& problem) {
    std::printf("%s\n", problem.what());
    return 3;
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
    return 1;
  }
}
