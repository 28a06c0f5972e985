// SPDX-License-Identifier: Apache-2.0
// examples/16_certified_training.cpp [--data FOLDER] [--epochs N] [--out FOLDER], or --costs - trains classifiers on
// Fashion-MNIST without clipping: a bound K of every record's gradient is proven from the weights, and noise is scaled
// by K. Beside each, the same network by clipping at the same epsilon. Writes FOLDER/certified_training.svg (out).
// --costs measures steps instead
//
// A layer shortens each image to length 1, so that a bound holds whatever an image is. The trainer keeps K below a
// limit by shrinking weights; of a linear classifier K is known whatever its weights are. Everything that is behind a
// trained layer costs: with a hidden layer K grows with the product of the norms, and clipping wins.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

#include "common/bounds.hpp"
#include "common/epochs_program.hpp"
#include "common/fashion_mnist_data.hpp"
#include "common/report.hpp"

namespace pg = pergrad;

namespace {

// [snippet: networks]
using linear_net = pg::network<pg::shape{784}, pg::into_ball<1.0>, pg::linear<10>>;
using hidden_net = pg::network<pg::shape{784}, pg::into_ball<1.0>, pg::linear<64>, pg::tanh, pg::linear<10>>;
// [snippet end]

constexpr std::uint64_t records = example::fashion_mnist_constants::dataset_size;  // public
constexpr std::uint64_t batch = 2400;
const pg::epsilon epsilon{3.0};
const pg::delta delta{1e-5};

struct result {
  const char* network;
  const char* way;
  double accuracy;
  double spent;
  double bound;  ///< K, or C, of the last step
};

/// What all runs are told.
pg::dp_sgd_options usual(std::uint64_t steps, double rate) {
  const pg::sampling_probability q{static_cast<double>(batch) / static_cast<double>(records)};
  pg::dp_sgd_options options;
  options.noise = pg::calibrate_noise(epsilon, delta, q, steps);
  options.sampling = pg::poisson_sampling{q};
  options.divisor = pg::expected_batch_size{static_cast<double>(batch)};
  options.learning_rate = pg::learning_rate{rate};
  options.momentum = 0.9;
  options.budget = pg::privacy_budget{epsilon, delta};
  return options;
}

template <class Network>
result train(const char* name, const char* way, const pg::dp_sgd_options& options, std::uint64_t steps,
             const example::labelled_images& train_images, const example::labelled_images& test_images) {
  const pg::dataset<float, std::int32_t> train_set{train_images.images, train_images.labels, Network::input_shape};
  const pg::dataset<float, std::int32_t> test_set{test_images.images, test_images.labels, Network::input_shape};
  const pg::host exec;
  Network net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  for (std::uint64_t step = 0; step < steps && trainer.within_budget(); ++step) trainer.step(train_set);
  if (options.clipping == pg::clipping_kind::certified) {
    std::printf("%s", describe(pg::certify(net, pg::cross_entropy{})).c_str());
  }
  const result found{name, way, pg::evaluate_classifier(exec, net, pg::public_records{test_set}).accuracy,
                     trainer.epsilon(delta), trainer.options().clip->value()};
  std::printf("%s, %s: test accuracy %.4f\n", name, way, found.accuracy);
  std::fflush(stdout);
  return found;
}

int run(const std::string& data, std::uint64_t epochs, const std::filesystem::path& folder) {
  const auto train_images = example::load_fashion_mnist(data, "train");
  const auto test_images = example::load_fashion_mnist(data, "t10k");
  const std::uint64_t steps = std::max<std::uint64_t>(1, epochs * records / batch);

  std::vector<result> all;
  {
    auto options = usual(steps, 8);
    options.clip = pg::l2_clip_norm{1.0};
    all.push_back(train<linear_net>("linear", "clipped", options, steps, train_images, test_images));
  }
  {
    auto options = usual(steps, 4);
    options.clip = pg::l2_clip_norm{0.5};
    all.push_back(train<hidden_net>("hidden layer", "clipped", options, steps, train_images, test_images));
  }
  {
    auto options = usual(steps, 1);
    options.clipping = pg::clipping_kind::certified;
    options.certified = pg::certified_training_of<hidden_net>(pg::cross_entropy{}, pg::l2_clip_norm{15.0});
    all.push_back(train<hidden_net>("hidden layer", "certified", options, steps, train_images, test_images));
  }
  {
    // [snippet: options]
    auto options = usual(steps, 4);
    options.clipping = pg::clipping_kind::certified;
    options.certified = pg::certified_training_of<linear_net>(pg::cross_entropy{}, pg::l2_clip_norm{30.0});
    // [snippet end]
    all.push_back(train<linear_net>("linear", "certified", options, steps, train_images, test_images));
  }

  const std::filesystem::path file = folder / "certified_training.svg";
  example::write_file(file.string(), svg(pg::describe_sensitivity<hidden_net>(pg::cross_entropy{})));
  std::printf("\n%-13s %-10s %-14s %s\n", "network", "way", "test accuracy", "K or C of the last step");
  for (const result& each : all) {
    std::printf("%-13s %-10s %-14.4f %.4g\n", each.network, each.way, each.accuracy, each.bound);
  }
  std::printf("picture: %s\ntest accuracy %.4f, epsilon %s, delta 1e-05\n", file.string().c_str(), all.back().accuracy,
              example::rounded_up(all.back().spent, 4).c_str());
  return 0;
}

/// Seconds of a processor that a step takes: on a machine that does other things as well, too.
template <class Step>
double seconds(const Step& step) {
  const std::clock_t begin = std::clock();
  step();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// A CNN on images, with a ball in front of it.
using cnn = pg::network<pg::shape{1, 28, 28}, pg::into_ball<10.0>,                                     //
                        pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::tanh,                    //
                        pg::max_pool2d<2, pg::stride<1>>,                                              //
                        pg::conv2d<32, 4, pg::stride<2>>, pg::tanh, pg::max_pool2d<2, pg::stride<1>>,  //
                        pg::flatten, pg::linear<32>, pg::tanh, pg::linear<10>>;

/// Steps that are ordinary, certified and clipped, in turns.
template <class Network>
void measure(const char* name, std::uint32_t size) {
  const pg::host exec{pg::threads{1}};
  std::vector<float> images(size * Network::input_shape.size());
  std::vector<std::int32_t> labels(size);
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i % 17) / 8 - 1;
  std::vector<std::uint32_t> numbers(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    labels[i] = static_cast<std::int32_t>(i % 10);
    numbers[i] = i;
  }
  const pg::dataset<float, std::int32_t> set{images, labels, Network::input_shape};
  const pg::batch<Network, pg::cross_entropy> drawn{set, std::span<const std::uint32_t>{numbers}};
  Network net{exec, pg::kaiming_uniform{1}};
  pg::tape<Network> tape{exec, pg::max_batch{size}};
  pg::sgd<Network> optimizer{pg::learning_rate{1e-6}};
  pg::unprotected::gradient<Network> gradient{exec};
  pg::private_gradient<Network> update{exec};
  pg::os_keyed_generator generator;
  const pg::expected_batch_size divisor{static_cast<double>(size)};
  const auto noise = [&] { return pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.0}, generator); };
  const auto g = [&] { return per_sample_gradients(net, pg::cross_entropy{}, drawn, tape); };
  double least[3] = {1e9, 1e9, 1e9};
  for (int turn = 0; turn < 15; ++turn) {
    least[0] = std::min(least[0], seconds([&] {
                          pg::unprotected::evaluate_into(exec, gradient, mean(g()));
                          pg::unprotected::step(optimizer, exec, net, gradient);
                        }));
    least[1] = std::min(least[1], seconds([&] {
                          const pg::certified_bound proof{net, pg::cross_entropy{}};
                          evaluate_into(exec, update, sum(unclipped(g(), proof)) + noise());
                          optimizer.step(exec, net, update, divisor);
                        }));
    least[2] = std::min(least[2], seconds([&] {
                          evaluate_into(exec, update, sum(clip(g(), pg::l2_clip_norm{1.0})) + noise());
                          optimizer.step(exec, net, update, divisor);
                        }));
  }
  std::printf("| %s | %u | %.2f | %.2f |\n", name, size, least[1] / least[0], least[2] / least[0]);
  std::fflush(stdout);
}

int costs() {
  std::printf("| network | batch | certified step / ordinary | clipped / ordinary |\n| --- | ---: | ---: | ---: |\n");
  for (const std::uint32_t size : {256U, 2048U}) {
    measure<linear_net>("linear", size);
    measure<hidden_net>("hidden layer", size);
    measure<cnn>("CNN", size);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return example::run_epochs_program(count, arguments, "certified_training", "20", run, "--costs", costs);
}
