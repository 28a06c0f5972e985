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
static_assert(models::gpt2<128, 12, 768, 12, 50'257, models::lora_on<4, "c_attn">>::parameter_count ==
              12 * 4 * (768 + 3 * 768));
static_assert(models::gpt2<128, 12, 768, 12, 50'257, models::biases_only>::parameter_count ==
              12 * (3 + 1 + 4 + 1 + 2) * 768 + 768);
static_assert(models::gpt2<128, 12, 768, 12, 50'257, models::last_blocks<2>>::parameter_count ==
              2 * (12 * 768 * 768 + (3 + 1 + 4 + 1 + 4) * 768) + 2 * 768);
static_assert(models::llama<>::parameter_count == 6'738'415'616);
constexpr models::llama_size llama_3_8b{.positions = 512,
                                        .blocks = 32,
                                        .features = 4096,
                                        .heads = 32,
                                        .key_value_heads = 8,
                                        .feed_forward = 14'336,
                                        .vocabulary = 128'256,
                                        .rotary_base = 500'000,
                                        .per_epsilon = 100'000};
static_assert(models::llama<llama_3_8b>::parameter_count == 8'030'261'248);
static_assert(models::llama<llama_3_8b, models::lora_on<8, "q_proj", "v_proj">>::parameter_count ==
              32 * 8 * (4096 + 4096 + 4096 + 1024));
static_assert(models::bert_classifier<>::parameter_count == 109'483'778 - 768);
static_assert(models::bert_classifier<models::roberta_base>::parameter_count == 124'647'170 - 2 * 768);
static_assert(models::vit<>::parameter_count == 86'567'656);
static_assert(models::vit<>::output_shape == shape{1000});

}  // namespace
