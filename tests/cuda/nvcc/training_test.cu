// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/training_test.cu - a private epoch that nvcc compiled, on a CUDA runtime without a GPU
//
// The training program itself, as a user writes it, on a few hundred real images: it must end where the host executor
// ends, in few graph nodes, and without an allocation or a wait in a step.
#include "training.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad.hpp>

#include "../../../bench/cuda/launch_list.hpp"
#include "../fake_runtime/fake_runtime.hpp"
#include "check.hpp"

namespace {

namespace training = device_training;

/// The largest difference of an element, against the root of b's mean square.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  double squares = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    squares += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return largest / std::sqrt(squares / static_cast<double>(b.size()));
}

/// The parameters have the bits that the host's rules make of what the device released.
void updates_as_the_host_does(const training::outcome& device, const training::choices& chosen) {
  const pergrad::dp_sgd_options options = training::make_options(chosen);
  const double rate = options.learning_rate->value();
  const double factor = 1 / training::expected_batch;
  std::vector<float> first(device.before.size());
  std::vector<float> second = first;
  for (std::size_t step = 0; step < training::steps_of_an_epoch; ++step) {
    const auto& [beta1, beta2, stability, decay, floor] = options.adam;
    const pergrad::rules::adam_bias bias = pergrad::rules::adam_bias_at(step + 1, rate, beta1, beta2);
    const auto adam = pergrad::rules::make_adam<float>(bias.rate, bias.correction, beta1, beta2, stability, factor);
    const pergrad::rules::momentum_rule<float> momentum{static_cast<float>(factor), static_cast<float>(rate),
                                                        static_cast<float>(options.momentum)};
    std::vector<float> wanted = device.begins[step];
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const float value = device.released[step][i];
      if (chosen.optimizer == pergrad::optimizer_kind::adam) {
        adam(value, wanted[i], first[i], second[i]);
      } else {
        momentum(value, wanted[i], first[i]);
      }
    }
    CHECK(wanted == (step + 1 < training::steps_of_an_epoch ? device.begins[step + 1] : device.after));
  }
}

/// A device's functions do not round as the host's do, and a maximum that is nearly shared or a small root of Adam's
/// makes more of it. How much more, the host says itself: by runs whose parameters are one rounding off. Every step is
/// compared from the device's own parameters, where none hides behind another, and so is the end.
template <class OnHost>
void ends_where_the_host_ends(const char* what, const training::choices& chosen, const training::outcome& device,
                              OnHost&& on_host) {
  const training::outcome host = on_host(training::of_steps{});
  CHECK(device.before == host.before);
  CHECK(device.after != device.before);
  const training::outcome beside = on_host(device.begins);
  std::vector<double> roundings(training::steps_of_an_epoch);
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    training::of_steps begins;
    for (const std::vector<float>& each : device.begins) begins.push_back(training::one_rounding_off(each, seed));
    const training::outcome near = on_host(begins);
    for (std::size_t step = 0; step < roundings.size(); ++step) {
      roundings[step] = std::max(roundings[step], largest_difference(near.released[step], beside.released[step]));
    }
  }
  for (std::size_t step = 0; step < roundings.size(); ++step) {
    const double apart = largest_difference(device.released[step], beside.released[step]);
    std::printf("%s, step %zu: release %.2e apart, by roundings %.2e\n", what, step, apart, roundings[step]);
    CHECK(apart < 4 * roundings[step]);
  }
  const double apart = training::distance(device, host);
  const double rounding = training::distance_by_roundings(host, on_host);
  std::printf("%s: %.2e of the way apart, by roundings %.2e\n", what, apart, rounding);
  CHECK(apart < std::max(1e-5, 4 * rounding));
  updates_as_the_host_does(device, chosen);
}

void ends_where_the_host_ends(const training::images& set) {
  training::choices adam;
  adam.optimizer = pergrad::optimizer_kind::adam;
  training::choices per_layer;
  per_layer.clipping = pergrad::clipping_kind::per_layer;
  {
    const pergrad::cuda exec;
    const auto cnn = [&](const char* what, const training::choices& chosen) {
      ends_where_the_host_ends(what, chosen, training::train<training::cnn>(exec, set, chosen),
                               [&](const auto& begins) { return training::train_cnn_on_host(set, chosen, begins); });
    };
    const training::choices momentum;
    cnn("CNN, momentum", momentum);
    ends_where_the_host_ends("MLP, momentum", momentum, training::train<training::mlp>(exec, set, momentum),
                             [&](const auto& begins) { return training::train_mlp_on_host(set, momentum, begins); });
    cnn("CNN, Adam", adam);
    // Clipping per layer trains on the emulated device in every run.
    if (std::getenv("PERGRAD_LONG_TESTS") != nullptr) cnn("CNN, clipped per layer", per_layer);
  }
  CHECK(fake_cuda::live_device_bytes() == 0);
}

void physical_batches_change_no_bit(const training::images& set) {
  const pergrad::cuda exec;
  training::choices one;
  one.max_batch = 200;
  training::choices many;
  many.max_batch = 7;
  CHECK(training::train<training::cnn>(exec, set, one).after == training::train<training::cnn>(exec, set, many).after);
}

template <class Network>
void a_step_only_replays(const training::images& set, const char* name, std::size_t most_nodes) {
  // A GPU that shares the host's memory would read records where they lie, with a node and a wait more.
  const pergrad::cuda exec{pergrad::cuda_options{.copy_records = true}};
  Network net{exec, pergrad::kaiming_uniform{1}};
  training::choices chosen;
  chosen.max_batch = 2;  // so that a step has some thirty physical batches
  pergrad::dp_sgd trainer{exec, net, pergrad::cross_entropy{}, training::make_options(chosen),
                          pergrad::seeded_generator{3}};
  const auto records = set.as<Network>();
  trainer.step(records);  // brings parameters and records to the device, and captures
  const std::vector<std::string> nodes = fake_cuda::last_graph();
  for (const std::string& node : nodes) std::printf("  %s: %s\n", name, node.c_str());
  CHECK(!nodes.empty() && nodes.size() <= most_nodes);
  // The list that bench/cuda/model.py is made of says the same, without a device.
  const auto options = training::make_options(chosen);
  CHECK(nodes == launch_list::as_text(launch_list::private_step<Network, pergrad::cross_entropy>(2, options)));
  exec.device().synchronise();
  fake_cuda::reset();
  for (int step = 0; step < 2; ++step) trainer.step(records);
  const fake_cuda::counts counted = fake_cuda::counted();
  CHECK(counted.device_allocations == 0);
  CHECK(counted.pinned_allocations == 0);
  CHECK(counted.frees == 0);
  CHECK(counted.captures == 0);
  // Outside of graphs the next step's records are marked; a step waits for its marks, not for the step before.
  CHECK(counted.kernels == 2);
  CHECK(counted.downloads == 2);
  CHECK(counted.waits <= 2);
  CHECK(counted.replays >= 40);
  CHECK(counted.replayed_nodes == counted.replays * nodes.size());
  CHECK(counted.uploads <= 2 * counted.replays);
}

/// On a GPU that has no memory of its own.
void reads_records_where_they_lie(const training::images& set) {
  if (!fake_cuda::plays_the_device()) return;
  training::choices chosen;
  chosen.max_batch = 200;
  const auto train = [&](fake_cuda::host_memory how, bool copies, std::size_t most = ~std::size_t{0}) {
    fake_cuda::share(how);
    const pergrad::cuda exec{pergrad::cuda_options{.copy_records = copies, .most_record_bytes = most}};
    fake_cuda::reset();
    const std::vector<float> after = training::train<training::cnn>(exec, set, chosen).after;
    fake_cuda::share(fake_cuda::host_memory::separate);
    return after;
  };
  const std::vector<float> wanted = train(fake_cuda::host_memory::separate, false);
  const std::size_t with_records = fake_cuda::counted().uploaded_bytes;
  const std::size_t of_records = set.pixels.size() * sizeof(float) + set.labels.size() * sizeof(std::int32_t);
  for (const auto how : {fake_cuda::host_memory::registered, fake_cuda::host_memory::pageable}) {
    CHECK(train(how, false) == wanted);
    CHECK(fake_cuda::counted().uploaded_bytes == with_records - of_records);  // none of the records'
    CHECK(train(how, true) == wanted);
    CHECK(fake_cuda::counted().uploaded_bytes == with_records);
  }
  // A data set that is too large for a GPU with memory of its own.
  CHECK(train(fake_cuda::host_memory::separate, false, of_records / 2) == wanted);
  CHECK(fake_cuda::counted().uploaded_bytes == with_records - of_records);
  // What is read is read before the step is over: then the caller may do with it what he likes.
  fake_cuda::share(fake_cuda::host_memory::registered);
  const pergrad::cuda exec;
  training::cnn net{exec, pergrad::kaiming_uniform{1}};
  pergrad::dp_sgd trainer{exec, net, pergrad::cross_entropy{}, training::make_options(chosen),
                          pergrad::seeded_generator{7}};
  training::images mine = set;
  const auto records = mine.as<training::cnn>();
  for (std::size_t step = 0; step < training::steps_of_an_epoch; ++step) {
    mine = set;
    trainer.step(records);
    mine.pixels.assign(mine.pixels.size(), 1e9F);
  }
  CHECK(std::vector<float>(net.parameters().begin(), net.parameters().end()) == wanted);
  fake_cuda::share(fake_cuda::host_memory::separate);
}

/// Two executors, each with a stream of its own, and trainers that take turns on the same records.
void executors_do_not_know_of_each_other(const training::images& set) {
  training::choices chosen;
  chosen.max_batch = 200;
  const std::vector<float> alone = training::train<training::cnn>(pergrad::cuda{}, set, chosen).after;
  const auto together = [&] {
    const pergrad::cuda one;
    const pergrad::cuda other;
    CHECK(one.device().stream() != other.device().stream());
    training::cnn net{one, pergrad::kaiming_uniform{1}};
    training::cnn other_net{other, pergrad::kaiming_uniform{1}};
    const auto options = training::make_options(chosen);
    pergrad::dp_sgd trainer{one, net, pergrad::cross_entropy{}, options, pergrad::seeded_generator{7}};
    pergrad::dp_sgd other_trainer{other, other_net, pergrad::cross_entropy{}, options, pergrad::seeded_generator{7}};
    const auto records = set.as<training::cnn>();
    for (std::size_t step = 0; step < training::steps_of_an_epoch; ++step) {
      trainer.step(records);
      other_trainer.step(records);
    }
    for (const training::cnn* each : {&net, &other_net}) {
      const auto after = each->parameters();
      CHECK(std::vector<float>(after.begin(), after.end()) == alone);
    }
  };
  together();
  if (!fake_cuda::plays_the_device()) return;
  fake_cuda::share(fake_cuda::host_memory::registered);  // the first views them, the second copies
  together();
  fake_cuda::share(fake_cuda::host_memory::separate);
}

/// A clip norm of its own changes the numbers of a step's kernels, and not its graph.
void a_step_with_other_numbers_is_the_same_graph(const training::images& set) {
  training::choices chosen;
  chosen.max_batch = 200;
  const auto after = [&](double clip_factor) {
    chosen.clip_factor = clip_factor;
    fake_cuda::reset();
    return training::train<training::cnn>(pergrad::cuda{}, set, chosen).after;
  };
  const std::vector<float> wanted = after(0);
  if (fake_cuda::plays_the_device()) CHECK(fake_cuda::counted().updates == 0);
  CHECK(after(1) == wanted);
  if (fake_cuda::plays_the_device()) CHECK(fake_cuda::counted().updates == training::steps_of_an_epoch - 1);
  CHECK(after(0.8) != wanted);
}

void an_empty_batch_is_a_step(const training::images& set) {
  const pergrad::cuda exec;
  training::cnn net{exec, pergrad::kaiming_uniform{1}};
  pergrad::dp_sgd_options options = training::make_options({});
  options.sampling = pergrad::poisson_sampling{pergrad::sampling_probability{1e-9}};
  pergrad::dp_sgd trainer{exec, net, pergrad::cross_entropy{}, options, pergrad::seeded_generator{3}};
  const auto parameters = [&net] { return std::vector<float>(net.parameters().begin(), net.parameters().end()); };
  const std::vector<float> before = parameters();
  const auto records = set.as<training::cnn>();
  trainer.step(records);
  const std::vector<float> once = parameters();
  CHECK(once != before);
  fake_cuda::reset();
  trainer.step(records);
  CHECK(fake_cuda::counted().captures == 0);
  CHECK(parameters() != once);
  for (const float value : parameters()) {
    if (!std::isfinite(value)) {
      CHECK(std::isfinite(value));
      break;
    }
  }
}

void judges_like_the_host(const training::images& set) {
  const pergrad::cuda exec;
  training::cnn net{exec, pergrad::kaiming_uniform{1}};
  const auto records = set.as<training::cnn>();
  const auto there = training::judge_on_host(net.parameters(), set);
  const auto uploaded_bytes = [&] {
    fake_cuda::reset();
    const auto here = pergrad::evaluate_classifier(exec, net, pergrad::public_records{records});
    CHECK(here.accuracy == there.accuracy);
    CHECK(std::abs(here.mean_loss - there.mean_loss) < 1e-6 * there.mean_loss);
    return fake_cuda::counted().uploaded_bytes;
  };
  const std::size_t with_records = uploaded_bytes();
  if (!fake_cuda::plays_the_device()) return;
  const std::size_t of_records =
      records.size() * (training::cnn::input_shape.size() * sizeof(float) + sizeof(std::int32_t));
  for (const auto memory : {fake_cuda::host_memory::registered, fake_cuda::host_memory::pageable}) {
    fake_cuda::share(memory);
    CHECK(uploaded_bytes() == with_records - of_records);
  }
  fake_cuda::share(fake_cuda::host_memory::separate);
}

void memory_that_is_not_there() {
  const pergrad::cuda exec;
  fake_cuda::fail_next_allocation();
  CHECK(check::thrown_by<std::bad_alloc>([&] {
          training::cnn::tape tape{exec, pergrad::max_batch{64}};
        }) ==
        "pergrad: cuda: no memory for " + std::to_string(training::cnn::device_bytes<64>) + " bytes on the device");
}

void older_devices_have_no_tf32() {
  if (!fake_cuda::plays_the_device()) return;
  fake_cuda::be_of_capability(7);
  const pergrad::cuda usual;
  CHECK(check::thrown_by<std::runtime_error>([] {
          const pergrad::cuda device{pergrad::cuda_options{.tf32 = true}};
        }).find("pergrad: cuda: tf32 needs a GPU of compute capability 8.0") == 0);
  fake_cuda::be_of_capability(8);
  fake_cuda::be_compiled_for(75);  // as nvcc 13 does unless it is told otherwise: no code for tensor cores
  CHECK(check::thrown_by<std::runtime_error>([] {
          const pergrad::cuda device{pergrad::cuda_options{.tf32 = true}};
        }).find("a program compiled for one: nvcc -arch=native") != std::string::npos);
  fake_cuda::be_compiled_for(87);
  const pergrad::cuda device{pergrad::cuda_options{.tf32 = true}};
}

}  // namespace

int main() {
  const training::images set = training::load_images(training::image_count);
  ends_where_the_host_ends(set);
  physical_batches_change_no_bit(set);
  a_step_only_replays<training::cnn>(set, "CNN", 12);
  a_step_only_replays<training::mlp>(set, "MLP", 8);
  reads_records_where_they_lie(set);
  executors_do_not_know_of_each_other(set);
  a_step_with_other_numbers_is_the_same_graph(set);
  an_empty_batch_is_a_step(set);
  judges_like_the_host(set);
  memory_that_is_not_there();
  older_devices_have_no_tf32();
  CHECK(fake_cuda::live_device_bytes() == 0);
  CHECK(fake_cuda::live_pinned_bytes() == 0);
  CHECK(fake_cuda::live_handles() == 0);
  return check::result();
}
