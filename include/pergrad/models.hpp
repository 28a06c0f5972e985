// SPDX-License-Identifier: Apache-2.0
// pergrad/models.hpp - networks of the papers as ready types
//
// Aliases cost nothing until they are used; none of them is part of the umbrella header. Parameter counts are the
// published ones: tests/static/models_test.cpp asserts them. Normalisation over the batch does not exist here (a
// per-sample gradient would not either), so residual networks take their normalisation as an argument.
//
//   fast-dpsgd      Subramani, Vadivelu & Kamath 2021, arXiv:2010.09063: the tasks of the Opacus paper
//   Lee & Kifer     PoPETs 2021(1), arXiv:2009.03106
//   AlexNet, VGG    Krizhevsky 2014, arXiv:1404.5997; Simonyan & Zisserman 2014, arXiv:1409.1556 (torchvision's forms)
//   ResNet          He et al. 2015, arXiv:1512.03385; group normalisation after Wu & He 2018, arXiv:1803.08494
//   transformers    GPT-2, LLaMA, BERT, RoBERTa, ViT: models/transformers.hpp, models/tuning.hpp
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <cstddef>

#include <pergrad/graph/sequential.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/channel_affine.hpp>
#include <pergrad/layers/conv.hpp>
#include <pergrad/layers/dropout.hpp>
#include <pergrad/layers/embedding.hpp>
#include <pergrad/layers/embedding_bag.hpp>
#include <pergrad/layers/group_norm.hpp>
#include <pergrad/layers/layer_norm.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/lstm.hpp>
#include <pergrad/layers/mean_over_positions.hpp>
#include <pergrad/layers/multihead_attention.hpp>
#include <pergrad/layers/pools.hpp>
#include <pergrad/layers/positions.hpp>
#include <pergrad/layers/reshape.hpp>
#include <pergrad/layers/rnn.hpp>
#include <pergrad/layers/transformer_encoder_layer.hpp>
#include <pergrad/models/transformers.hpp>
#include <pergrad/network.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::models {

/// fast-dpsgd's MNIST network, 26,010 parameters.
using mnist_cnn =
    network<shape{1, 28, 28}, conv2d<16, 8, stride<2>, padding<3>>, relu, max_pool2d<2, stride<1>>,
            conv2d<32, 4, stride<2>>, relu, max_pool2d<2, stride<1>>, flatten, linear<32>, relu, linear<10>>;

/// fast-dpsgd's CIFAR-10 network, 605,226 parameters.
using cifar_cnn =
    network<shape{3, 32, 32}, conv2d<32, 3, padding<1>>, relu, conv2d<32, 3, padding<1>>, relu, avg_pool2d<2>,
            conv2d<64, 3, padding<1>>, relu, conv2d<64, 3, padding<1>>, relu, avg_pool2d<2>, conv2d<128, 3, padding<1>>,
            relu, conv2d<128, 3, padding<1>>, relu, avg_pool2d<2>, conv2d<256, 3, padding<1>>, relu,
            conv2d<10, 3, padding<1>>, adaptive_avg_pool2d<1>, flatten>;

/// fast-dpsgd's IMDb bag of words, 160,098 parameters: the mean over all positions, padding included.
using imdb_embedding = network<token_ids(256, 10'004), embedding_bag<16>, linear<2>>;

/// fast-dpsgd's IMDb LSTM, 1,081,002 parameters with one bias as in Keras and Haiku, 1,081,402 with PyTorch's two.
template <class... Options>
using imdb_lstm =
    network<token_ids(256, 10'004), embedding<100>, lstm<100, Options...>, mean_over_positions, linear<2>>;

/// Lee & Kifer's multilayer perceptron 784-128-256-10, 136,074 parameters.
using lee_kifer_mlp = network<shape{1, 28, 28}, flatten, linear<128>, sigmoid, linear<256>, sigmoid, linear<10>>;

/// Lee & Kifer's convolutional network: 129,388 parameters on MNIST, 187,988 on `shape{3, 32, 32}`.
template <shape Input = shape{1, 28, 28}>
using lee_kifer_cnn = network<Input, conv2d<20, 5>, relu, max_pool2d<2>, conv2d<50, 5>, relu, max_pool2d<2>, flatten,
                              linear<128>, relu, linear<10>>;

/// Lee & Kifer's recurrent network over image rows, 21,514 parameters.
using lee_kifer_rnn = network<shape{28, 28}, rnn<128, last_output>, linear<10>>;
/// Lee & Kifer's LSTM over image rows, 82,186 parameters.
using lee_kifer_lstm = network<shape{28, 28}, lstm<128, last_output>, linear<10>>;

/// Lee & Kifer's transformer on IMDb, 483,002 trained parameters; the embedding (GloVe, 200 features) is frozen.
template <std::size_t Vocabulary = 50'000, std::size_t Positions = 512>
using lee_kifer_transformer =
    network<token_ids(Positions, Vocabulary), frozen<embedding<200>>, sinusoidal_positions, dropout<0.1>,
            transformer_encoder_layer<8, 800, dropout_rate<0.1>>, mean_over_positions, linear<2>>;

namespace detail {

template <std::size_t Channels>
using vgg_conv = sequential<conv2d<Channels, 3, padding<1>>, relu>;
template <std::size_t Count, std::size_t Channels>
struct vgg_stage {
  using type = sequential<vgg_conv<Channels>, typename vgg_stage<Count - 1, Channels>::type>;
};
template <std::size_t Channels>
struct vgg_stage<0, Channels> {
  using type = max_pool2d<2>;
};
template <std::size_t Count, std::size_t Channels>
using stage = typename vgg_stage<Count, Channels>::type;

template <std::size_t Classes>
using vgg_head = sequential<adaptive_avg_pool2d<7>, flatten, linear<4096>, relu, dropout<0.5>, linear<4096>, relu,
                            dropout<0.5>, linear<Classes>>;

/// ResNet's basic block: two 3 x 3 convolutions and a shortcut, which is projected where the shape changes.
template <std::size_t Channels, class Norm>
using same_block = sequential<
    residual<conv2d<Channels, 3, padding<1>, no_bias>, Norm, relu, conv2d<Channels, 3, padding<1>, no_bias>, Norm>,
    relu>;
template <std::size_t Channels, class Norm>
using next_block = sequential<
    residual<conv2d<Channels, 3, stride<2>, padding<1>, no_bias>, Norm, relu, conv2d<Channels, 3, padding<1>, no_bias>,
             Norm, projection<conv2d<Channels, 1, stride<2>, no_bias>, Norm>>,
    relu>;
template <std::size_t Blocks, std::size_t Channels, class Norm>
using next_stage = sequential<next_block<Channels, Norm>, repeat<Blocks - 1, same_block<Channels, Norm>>>;

template <shape Input, std::size_t Classes, class Norm, std::size_t First, std::size_t Second, std::size_t Third,
          std::size_t Fourth>
using resnet =
    network<Input, conv2d<64, 7, stride<2>, padding<3>, no_bias>, Norm, relu, max_pool2d<3, stride<2>, padding<1>>,
            repeat<First, same_block<64, Norm>>, next_stage<Second, 128, Norm>, next_stage<Third, 256, Norm>,
            next_stage<Fourth, 512, Norm>, adaptive_avg_pool2d<1>, flatten, linear<Classes>>;

}  // namespace detail

/// torchvision's VGG-11, 132,863,336 parameters.
template <shape Input = shape{3, 224, 224}, std::size_t Classes = 1000>
using vgg11 = network<Input, detail::stage<1, 64>, detail::stage<1, 128>, detail::stage<2, 256>, detail::stage<2, 512>,
                      detail::stage<2, 512>, detail::vgg_head<Classes>>;
/// torchvision's VGG-13, 133,047,848 parameters.
template <shape Input = shape{3, 224, 224}, std::size_t Classes = 1000>
using vgg13 = network<Input, detail::stage<2, 64>, detail::stage<2, 128>, detail::stage<2, 256>, detail::stage<2, 512>,
                      detail::stage<2, 512>, detail::vgg_head<Classes>>;
/// torchvision's VGG-16, 138,357,544 parameters.
template <shape Input = shape{3, 224, 224}, std::size_t Classes = 1000>
using vgg16 = network<Input, detail::stage<2, 64>, detail::stage<2, 128>, detail::stage<3, 256>, detail::stage<3, 512>,
                      detail::stage<3, 512>, detail::vgg_head<Classes>>;
/// torchvision's VGG-19, 143,667,240 parameters.
template <shape Input = shape{3, 224, 224}, std::size_t Classes = 1000>
using vgg19 = network<Input, detail::stage<2, 64>, detail::stage<2, 128>, detail::stage<4, 256>, detail::stage<4, 512>,
                      detail::stage<4, 512>, detail::vgg_head<Classes>>;

/// torchvision's AlexNet, 61,100,840 parameters.
template <shape Input = shape{3, 224, 224}, std::size_t Classes = 1000>
using alexnet =
    network<Input, conv2d<64, 11, stride<4>, padding<2>>, relu, max_pool2d<3, stride<2>>, conv2d<192, 5, padding<2>>,
            relu, max_pool2d<3, stride<2>>, conv2d<384, 3, padding<1>>, relu, conv2d<256, 3, padding<1>>, relu,
            conv2d<256, 3, padding<1>>, relu, max_pool2d<3, stride<2>>, adaptive_avg_pool2d<6>, flatten, dropout<0.5>,
            linear<4096>, relu, dropout<0.5>, linear<4096>, relu, linear<Classes>>;

/// Normalisation of a residual network: over groups of channels of one sample, or batch normalisation with statistics,
/// gains and shifts frozen at given values, as Lee & Kifer train it.
template <std::size_t Groups = 32>
using grouped = group_norm<Groups>;
using frozen_batch_norm = frozen<channel_affine>;

/// torchvision's ResNet-18: 11,689,512 parameters with `grouped<>`, 11,679,912 with `frozen_batch_norm`.
template <class Norm = grouped<>, shape Input = shape{3, 224, 224}, std::size_t Classes = 1000>
using resnet18 = detail::resnet<Input, Classes, Norm, 2, 2, 2, 2>;
/// torchvision's ResNet-34: 21,797,672 parameters with `grouped<>`, 21,780,648 with `frozen_batch_norm`.
template <class Norm = grouped<>, shape Input = shape{3, 224, 224}, std::size_t Classes = 1000>
using resnet34 = detail::resnet<Input, Classes, Norm, 3, 4, 6, 3>;

}  // namespace pergrad::inline v0_1::models
