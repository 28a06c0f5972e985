// SPDX-License-Identifier: Apache-2.0
// tests/static/models_test.cpp - the networks of the papers have the papers' numbers of parameters
#include <pergrad/models.hpp>

namespace {

namespace models = pergrad::models;
using pergrad::shape;

static_assert(models::mnist_cnn::parameter_count == 26'010);
static_assert(models::cifar_cnn::parameter_count == 605'226);
static_assert(models::imdb_embedding::parameter_count == 160'098);
static_assert(models::imdb_lstm<pergrad::one_bias>::parameter_count == 1'081'002);
static_assert(models::imdb_lstm<>::parameter_count == 1'081'402);
static_assert(models::lee_kifer_mlp::parameter_count == 136'074);
static_assert(models::lee_kifer_cnn<>::parameter_count == 129'388);
static_assert(models::lee_kifer_cnn<shape{3, 32, 32}>::parameter_count == 187'988);
static_assert(models::lee_kifer_rnn::parameter_count == 21'514);
static_assert(models::lee_kifer_lstm::parameter_count == 82'186);
static_assert(models::lee_kifer_transformer<>::parameter_count == 483'002);
static_assert(models::lee_kifer_transformer<>::frozen_parameter_count == 50'000 * 200);
static_assert(models::alexnet<>::parameter_count == 61'100'840);
static_assert(models::alexnet<shape{3, 256, 256}>::parameter_count == 61'100'840);
static_assert(models::vgg11<>::parameter_count == 132'863'336);
static_assert(models::vgg13<>::parameter_count == 133'047'848);
static_assert(models::vgg16<>::parameter_count == 138'357'544);
static_assert(models::vgg16<shape{3, 256, 256}>::parameter_count == 138'357'544);
static_assert(models::vgg19<>::parameter_count == 143'667'240);
static_assert(models::resnet18<>::parameter_count == 11'689'512);
static_assert(models::resnet34<>::parameter_count == 21'797'672);
static_assert(models::resnet18<models::frozen_batch_norm>::parameter_count == 11'679'912);
static_assert(models::resnet18<models::frozen_batch_norm>::frozen_parameter_count == 9'600);
static_assert(models::resnet34<models::frozen_batch_norm>::parameter_count == 21'780'648);
static_assert(models::resnet34<models::grouped<>, shape{3, 64, 64}, 10>::output_shape == shape{10});
static_assert(models::gpt2<>::parameter_count == 124'439'808);
static_assert(models::gpt2<128>::parameter_count == 124'439'808 - (1024 - 128) * 768);
static_assert(models::gpt2<1024, 24, 1024, 16>::parameter_count == 354'823'168);
static_assert(models::gpt2<>::output_shape == shape{1024, 50'257});

}  // namespace
