// SPDX-License-Identifier: Apache-2.0
// examples/03_networks.cpp - networks as types: shapes, parameters, initial values, residual blocks, the table of a
// network
//
// Everything that can be known of a network before there is data is known to the compiler: the static_asserts below are
// part of the essay.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <pergrad.hpp>

#include "common/own_folder.hpp"

namespace pg = pergrad;

// A network is an input shape and a list of layers. All other shapes follow from the first one.
// [snippet: convolutional]
using cnn = pg::network<pg::shape{1, 28, 28},                                        //
                        pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::tanh,  // {16, 14, 14}
                        pg::max_pool2d<2, pg::stride<1>>,                            // {16, 13, 13}
                        pg::conv2d<32, 4, pg::stride<2>>, pg::tanh,                  // {32, 5, 5}
                        pg::max_pool2d<2, pg::stride<1>>,                            // {32, 4, 4}
                        pg::flatten, pg::linear<32>, pg::tanh, pg::linear<10>>;
static_assert(cnn::input_shape == pg::shape{1, 28, 28});
static_assert(cnn::output_shape == pg::shape{10});
static_assert(cnn::parameter_count == 26'010);
// [snippet end]

// Options come in any order; a second number makes them differ in height and width.
// [snippet: options]
using options = pg::network<pg::shape{4, 20, 30},
                            pg::conv2d<8, pg::extent{3, 5}, pg::stride<2, 1>, pg::padding<1, 2>, pg::dilation<1, 2>,
                                       pg::groups<2>, pg::no_bias>,       // {8, 10, 26}
                            pg::relu, pg::avg_pool2d<2, pg::padding<1>>,  // {8, 6, 14}
                            pg::gelu, pg::adaptive_avg_pool2d<2, 3>,      // {8, 2, 3}
                            pg::flatten, pg::linear<5, pg::no_bias>>;
static_assert(options::parameter_count == 8 * (4 / 2) * 3 * 5 + 5 * 48);
// [snippet end]

// In training, in every step anew, images are mirrored and moved, and made darker or brighter by a change of our own.
// [snippet: augmented]
struct brightness {
  static constexpr std::size_t words = 1;
  template <class Scalar>
  static void apply(const pg::shape& in, const std::uint32_t* bits, const Scalar* x, Scalar* y) {
    const Scalar factor = 0.75F + static_cast<Scalar>(bits[0] >> 8U) * 0x1p-25F;  // 0.75 to 1.25
    for (std::size_t i = 0; i < in.size(); ++i) y[i] = factor * x[i];
  }
  template <class Scalar>
  static void adjoint(const pg::shape& in, const std::uint32_t* bits, const Scalar* dy, Scalar* dx) {
    apply(in, bits, dy, dx);
  }
};
using augmented = pg::network<pg::shape{3, 32, 32}, pg::augment<pg::random_flip>, pg::augment<pg::random_shift<4>>,
                              pg::augment<brightness>, pg::conv2d<8, 3>, pg::tanh, pg::flatten, pg::linear<10>>;
// [snippet end]
static_assert(augmented::parameter_count == 8 * (27 + 1) + 10 * (8 * 30 * 30 + 1));

// Lists of layers can be named and repeated. A residual adds its input, or its projection, to its body.
// [snippet: residual]
template <std::size_t Channels>
using block = pg::sequential<pg::conv2d<Channels, 3, pg::padding<1>>, pg::tanh,  //
                             pg::conv2d<Channels, 3, pg::padding<1>>>;

using resnet = pg::network<pg::shape{3, 16, 16},                                                     //
                           pg::conv2d<8, 3, pg::padding<1>>, pg::tanh,                               //
                           pg::repeat<2, pg::residual<block<8>>, pg::tanh>,                          //
                           pg::residual<pg::conv2d<16, 3, pg::stride<2>, pg::padding<1>>, pg::tanh,  //
                                        pg::conv2d<16, 3, pg::padding<1>>,                           //
                                        pg::projection<pg::conv2d<16, 1, pg::stride<2>>>>,           //
                           pg::adaptive_avg_pool2d<1>, pg::flatten, pg::linear<10>>;
// [snippet end]

// [snippet: scalar]
using cnn_in_double = cnn::rebind<double>;
using small_in_double = pg::basic_network<double, pg::shape{3}, pg::linear<4>, pg::sigmoid, pg::linear<1>>;
// [snippet end]
static_assert(cnn_in_double::parameter_count == cnn::parameter_count);

int main() try {
  const pg::host exec;

  // [snippet: initialisers]
  const cnn as_pytorch{exec, pg::layer_default{1}};  // what nn.Linear and nn.Conv2d do by themselves
  const cnn for_relu{exec, pg::kaiming_normal{1}};   // nn.init.kaiming_normal_
  const cnn for_tanh{exec, pg::xavier_uniform{1, 5.0 / 3}};
  const small_in_double all_alike{exec, pg::constant{0.5}};
  // [snippet end]

  // [snippet: parameters]
  cnn net{exec, pg::kaiming_uniform{1}};
  const std::span<float> all = net.parameters();                 // 26,010 values, layer after layer
  const std::span<float> first = net.layer_parameters(0);        // conv2d: weight [16, 1, 8, 8], then bias [16]
  std::fill(first.begin() + 16 * 1 * 8 * 8, first.end(), 0.0F);  // its 16 biases
  // [snippet end]

  const example::own_folder folder;
  const std::string file = folder.file("networks_example.safetensors");
  // [snippet: checkpoint]
  pg::save_parameters(net, file);  // safetensors.numpy.load_file reads it
  cnn copy{exec, pg::zeros{}};
  pg::load_parameters(copy, file);
  cnn_in_double precise{exec, pg::zeros{}};
  pg::copy_parameters(net, precise);  // by name, and converted
  // [snippet end]
  const bool restored = std::equal(all.begin(), all.end(), copy.parameters().begin());

  // [snippet: describe]
  std::printf("%s\n%s", pg::describe<cnn>().c_str(), pg::describe<resnet>().c_str());
  for (const pg::description& entry : pg::describe_rows<cnn>()) {
    if (entry.parameters > 0) std::printf("%s: %zu positions\n", entry.layer.c_str(), entry.positions);
  }
  // [snippet end]

  // [snippet: from_pytorch]
  using text = pg::network<pg::token_ids(6, 20), pg::frozen<pg::embedding<8>, pg::transformer_encoder_layer<2, 16>>,
                           pg::gru<6, pg::bidirectional>, pg::mean_over_positions, pg::linear<3>>;
  text reader{exec, pg::layer_default{1}};
  if (std::filesystem::exists("text.safetensors")) pg::load_parameters(reader, "text.safetensors");
  // [snippet end]

  // [snippet: predict]
  const std::vector<float> images(2 * cnn::input_shape.size(), 0.25F);
  const std::vector<float> predicted = pg::predict(exec, net, pg::public_records{images});  // [2, 10]
  // [snippet end]

  // [snippet: predictor]
  const pg::host alone{pg::threads{1}};   // one record is too little work for two threads
  pg::predictor predict_one{alone, net};  // refers to both, and keeps memory for one record
  const std::span<const float> image = std::span{images}.first<cnn::input_shape.size()>();
  const std::span<const float> scores = predict_one(pg::public_records{image});  // {10}, until the next one
  std::printf("class %td\n", std::ranges::max_element(scores) - scores.begin());
  // [snippet end]

  // [snippet: outputs]
  const std::vector<std::int32_t> classes{3, 8};
  const pg::batch<cnn, pg::cross_entropy> two{images, classes};
  cnn::tape tape{exec, pg::max_batch{2}};
  const auto gradients = pg::per_sample_gradients(net, pg::cross_entropy{}, two, tape);
  const std::vector<float> logits = pg::unprotected::evaluate(exec, pg::outputs(gradients));  // [2, 10]
  // [snippet end]
  std::printf("the tape of the first network holds %zu bytes\n", tape.bytes());
  const bool same_image_same_logits = std::equal(logits.begin(), logits.begin() + 10, logits.begin() + 10);
  return restored && same_image_same_logits && predicted == logits &&
                 as_pytorch.parameters()[0] != for_relu.parameters()[0] && for_tanh.parameters().size() == all.size() &&
                 all_alike.parameters()[0] == 0.5
             ? 0
             : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "networks: %s\n", error.what());
  return 1;
}
