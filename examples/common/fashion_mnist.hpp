// SPDX-License-Identifier: Apache-2.0
// examples/common/fashion_mnist.hpp - what the programs that train on Fashion-MNIST have in common
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pergrad.hpp>

#include "cli.hpp"
#include "fashion_mnist_data.hpp"
#include "report.hpp"
#include "training.hpp"

namespace example {

/// The program's options and words; the caller's are its name, the title of its chart and a sentence for --help.
[[nodiscard]] program fashion_mnist_program(const std::string& name, const std::string& title,
                                            const std::string& purpose);

/// What a report says of the data set.
void describe_fashion_mnist(run_report& report);

/// What a network sees instead of images of 28 x 28 values each.
using image_features = std::vector<float>(const std::vector<float>& images, std::size_t threads);

/// Trains a network on the images, or on what `features` makes of them.
template <class Network, class Executor = pergrad::host>
void train_on_fashion_mnist(run_report& report, image_features* features = nullptr) {
  describe_fashion_mnist(report);
  labelled_images train;
  labelled_images test;
  train_privately<Network, Executor>(report, [&] {
    train = load_fashion_mnist(report.chosen.data, "train");
    test = load_fashion_mnist(report.chosen.data, "t10k");
    for (labelled_images* half : {&train, &test}) {
      if (features != nullptr) half->images = features(half->images, report.chosen.threads);
    }
    const auto set = [](const labelled_images& half) {
      return pergrad::dataset<float, std::int32_t>{half.images, half.labels, Network::input_shape};
    };
    return std::pair{set(train), set(test)};
  });
}

}  // namespace example
