// SPDX-License-Identifier: Apache-2.0
// examples/common/fashion_mnist.hpp - what the programs that train on Fashion-MNIST have in common
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <pergrad.hpp>

#include "cli.hpp"
#include "fashion_mnist_data.hpp"
#include "report.hpp"
#include "training.hpp"

namespace example {

[[nodiscard]] inline program fashion_mnist_program(const std::string& name, const std::string& title,
                                                   const std::string& purpose) {
  program what;
  what.name = name;
  what.title = title;
  what.purpose = purpose;
  what.record = "image";
  what.dataset = "Fashion-MNIST";
  what.data_help = "folder with the four files of Fashion-MNIST, gzipped or not";
  what.size = std::to_string(fashion_mnist_constants::dataset_size);
  what.most_batch = fashion_mnist_constants::dataset_size;
  what.defaults.data = "/usr/share/datasets/fashion-mnist";
  return what;
}

/// What a report says of the data set.
inline void describe_fashion_mnist(run_report& report) {
  using constants = fashion_mnist_constants;
  report.labels.assign(constants::labels.begin(), constants::labels.end());
  report.dataset_size = constants::dataset_size;
  report.public_constants = {{"image_height", constants::side},
                             {"image_width", constants::side},
                             {"classes", constants::classes},
                             {"pixel_mean", constants::pixel_mean},
                             {"pixel_deviation", constants::pixel_deviation}};
}

/// Trains a network whose input has 28 x 28 values, in any shape.
template <class Network, class Executor = pergrad::host>
void train_on_fashion_mnist(run_report& report) {
  describe_fashion_mnist(report);
  labelled_images train;
  labelled_images test;
  train_privately<Network, Executor>(report, [&] {
    train = load_fashion_mnist(report.chosen.data, "train");
    test = load_fashion_mnist(report.chosen.data, "t10k");
    const auto set = [](const labelled_images& half) {
      return pergrad::dataset<float, std::int32_t>{half.images, half.labels, Network::input_shape};
    };
    return std::pair{set(train), set(test)};
  });
}

}  // namespace example
