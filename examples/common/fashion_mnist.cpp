// SPDX-License-Identifier: Apache-2.0
// examples/common/fashion_mnist.cpp - what is said of Fashion-MNIST, in options and reports
#include "fashion_mnist.hpp"

#include <string>

namespace example {

program fashion_mnist_program(const std::string& name, const std::string& title, const std::string& purpose) {
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

void describe_fashion_mnist(run_report& report) {
  using constants = fashion_mnist_constants;
  report.labels.assign(constants::labels.begin(), constants::labels.end());
  report.dataset_size = constants::dataset_size;
  report.public_constants = {{"image_height", constants::side},
                             {"image_width", constants::side},
                             {"classes", constants::classes},
                             {"pixel_mean", constants::pixel_mean},
                             {"pixel_deviation", constants::pixel_deviation}};
}

}  // namespace example
