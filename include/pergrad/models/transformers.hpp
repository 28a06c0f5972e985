// SPDX-License-Identifier: Apache-2.0
// pergrad/models/transformers.hpp - GPT-2, LLaMA, BERT and RoBERTa, ViT, with the names of Hugging Face's modules
//
//   GPT-2     Radford et al. 2019, Language Models are Unsupervised Multitask Learners
//   LLaMA     Touvron et al. 2023, arXiv:2302.13971; grouped queries: arXiv:2307.09288
//   BERT      Devlin et al. 2018, arXiv:1810.04805; RoBERTa: Liu et al. 2019, arXiv:1907.11692
//   ViT       Dosovitskiy et al. 2020, arXiv:2010.11929
// The last argument says what is trained: models/tuning.hpp. docs/networks.md has the way of Hugging Face's weights.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/graph/sequential.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/added_bias.hpp>
#include <pergrad/layers/conv.hpp>
#include <pergrad/layers/embedding.hpp>
#include <pergrad/layers/gated.hpp>
#include <pergrad/layers/layer_norm.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/mean_over_positions.hpp>
#include <pergrad/layers/multihead_attention.hpp>
#include <pergrad/layers/parallel.hpp>
#include <pergrad/layers/positions.hpp>
#include <pergrad/layers/reshape.hpp>
#include <pergrad/layers/scaled_dot_product_attention.hpp>
#include <pergrad/layers/sequence_bias.hpp>
#include <pergrad/layers/slices.hpp>
#include <pergrad/models/tuning.hpp>
#include <pergrad/network.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::models {

/// Sizes of a LLaMA, and Hugging Face's names of them.
struct llama_size {
  std::size_t positions = 2048;
  std::size_t blocks = 32;              ///< num_hidden_layers
  std::size_t features = 4096;          ///< hidden_size
  std::size_t heads = 32;               ///< num_attention_heads
  std::size_t key_value_heads = 32;     ///< num_key_value_heads
  std::size_t feed_forward = 11'008;    ///< intermediate_size
  std::size_t vocabulary = 32'000;      ///< vocab_size
  std::size_t rotary_base = 10'000;     ///< rope_theta
  std::size_t per_epsilon = 1'000'000;  ///< 1 / rms_norm_eps
  bool tied = false;                    ///< tie_word_embeddings
};

/// Sizes of a BERT; those of the base model.
struct bert_size {
  std::size_t positions = 512;
  std::size_t blocks = 12;
  std::size_t features = 768;
  std::size_t heads = 12;
  std::size_t feed_forward = 3072;
  std::size_t vocabulary = 30'522;
  std::size_t classes = 2;
  std::size_t per_epsilon = 1'000'000'000'000;  ///< 1 / layer_norm_eps
};
/// RoBERTa's base model is the same network.
inline constexpr bert_size roberta_base{.vocabulary = 50'265, .per_epsilon = 100'000};

/// Sizes of a ViT; those of the base model on patches of 16 x 16.
struct vit_size {
  std::size_t image = 224;
  std::size_t patch = 16;
  std::size_t channels = 3;
  std::size_t blocks = 12;
  std::size_t features = 768;
  std::size_t heads = 12;
  std::size_t feed_forward = 3072;
  std::size_t classes = 1000;
  std::size_t per_epsilon = 1'000'000'000'000;  ///< 1 / layer_norm_eps
};

namespace detail {

/// GPT-2's attention of two projections, for those that are not trained as one layer; it has the same names.
template <std::size_t Features, std::size_t Heads, class Tuning>
struct gpt2_attention {
  using in = typename Tuning::template projection<"attn.c_attn", linear<3 * Features>>;
  using out = typename Tuning::template projection<"attn.c_proj", linear<Features>>;
  using unfolds_to = sequential<in, scaled_dot_product_attention<Heads, causal>, out>;
  template <class Names>
  static void name_parts(Names& names) {
    names.template part<in>("in_proj_");
    names.rest(1);
    names.template part<out>("out_proj.");
  }
};
template <std::size_t Features, std::size_t Heads, class Tuning>
requires std::is_base_of_v<everything, Tuning>
struct gpt2_attention<Features, Heads, Tuning> {
  using unfolds_to = multihead_attention<Heads, causal>;
};

/// x + attention(norm(x)), then x + W2 gelu(W1 norm(x) + b1) + b2.
template <std::size_t Features, std::size_t Heads, class Tuning>
using gpt2_block =
    sequential<residual<typename Tuning::template norm<layer_norm<>>, gpt2_attention<Features, Heads, Tuning>>,
               residual<typename Tuning::template norm<layer_norm<>>,
                        typename Tuning::template projection<"mlp.c_fc", linear<4 * Features>>, gelu_tanh,
                        typename Tuning::template projection<"mlp.c_proj", linear<Features>>>>;

/// Three projections of one input side by side.
template <class Query, class Key, class Value>
using side_by_side = parallel<sequential<Query>, sequential<Key>, sequential<Value>>;

template <llama_size Size, class Tuning>
struct llama_block {
  template <text Name, std::size_t Width>
  using projection = typename Tuning::template projection<Name, linear<Width, no_bias>>;
  static constexpr std::size_t memory = Size.features / Size.heads * Size.key_value_heads;
  using norm = typename Tuning::template norm<rms_norm<eps<1, Size.per_epsilon>>>;
  using query = projection<"self_attn.q_proj", Size.features>;
  using key = projection<"self_attn.k_proj", memory>;
  using value = projection<"self_attn.v_proj", memory>;
  using out = projection<"self_attn.o_proj", Size.features>;
  using gate = projection<"mlp.gate_proj", Size.feed_forward>;
  using up = projection<"mlp.up_proj", Size.feed_forward>;
  using down = projection<"mlp.down_proj", Size.features>;
  using attention = scaled_dot_product_attention<Size.heads, causal, pergrad::key_value_heads<Size.key_value_heads>,
                                                 rotary<Size.rotary_base>>;
  using unfolds_to =
      sequential<residual<norm, side_by_side<query, key, value>, attention, out>,
                 residual<norm, merge<elementwise_product, sequential<gate, silu>, sequential<up>>, down>>;
  template <class Names>
  static void name_parts(Names& names) {
    names.template part<norm>("input_layernorm.");
    names.template part<query>("self_attn.q_proj.");
    names.template part<key>("self_attn.k_proj.");
    names.rest(1);
    names.template part<value>("self_attn.v_proj.");
    names.rest(2);
    names.template part<out>("self_attn.o_proj.");
    names.rest(1);
    names.template part<norm>("post_attention_layernorm.");
    names.template part<gate>("mlp.gate_proj.");
    names.rest(1);
    names.template part<up>("mlp.up_proj.");
    names.rest(1);
    names.template part<down>("mlp.down_proj.");
    names.rest(1);
  }
};

/// A block of an encoder, of BERT (norms behind) and of ViT (norms in front).
template <std::size_t Features, std::size_t Heads, std::size_t FeedForward, class Norm, bool NormFirst, class Tuning>
struct encoder_block {
  template <text Name, std::size_t Width>
  using projection = typename Tuning::template projection<Name, linear<Width>>;
  using norm = typename Tuning::template norm<Norm>;
  using query = projection<"attention.query", Features>;
  using key = projection<"attention.key", Features>;
  using value = projection<"attention.value", Features>;
  using out = projection<"attention.output.dense", Features>;
  using hidden = projection<"intermediate.dense", FeedForward>;
  using end = projection<"output.dense", Features>;
  using in_front = std::conditional_t<NormFirst, sequential<norm>, sequential<>>;
  using behind = std::conditional_t<NormFirst, sequential<>, sequential<norm>>;
  using unfolds_to =
      sequential<residual<in_front, side_by_side<query, key, value>, scaled_dot_product_attention<Heads>, out>, behind,
                 residual<in_front, hidden, gelu, end>, behind>;
  template <class Names>
  static void name_parts(Names& names) {
    if constexpr (NormFirst) names.template part<norm>("layernorm_before.");
    names.template part<query>("attention.query.");
    names.template part<key>("attention.key.");
    names.rest(1);
    names.template part<value>("attention.value.");
    names.rest(2);
    names.template part<out>("attention.output.dense.");
    names.rest(1);
    names.template part<norm>(NormFirst ? "layernorm_after." : "attention.output.LayerNorm.");
    names.template part<hidden>("intermediate.dense.");
    names.rest(1);
    names.template part<end>("output.dense.");
    names.rest(1);
    if constexpr (!NormFirst) names.template part<norm>("output.LayerNorm.");
  }
};
template <auto Size, bool NormFirst, class Tuning>
using encoder_block_of = encoder_block<Size.features, Size.heads, Size.feed_forward,
                                       layer_norm<eps<1, Size.per_epsilon>>, NormFirst, Tuning>;

/// Blocks that are frozen, then the others.
template <std::size_t Blocks, class Block, class Tuning>
using lower_blocks = frozen<repeat<Tuning::template lower<Blocks>, Block>>;
template <std::size_t Blocks, class Block, class Tuning>
using upper_blocks = repeat<Blocks - Tuning::template lower<Blocks>, Block>;

/// One readable error for a target that no projection has.
template <class Tuning, text... Names>
struct checked {
  static_assert(Tuning::template offers<Names...>, "pergrad: lora_on names a projection that this network has not");
};

template <std::size_t Positions, std::size_t Blocks, std::size_t Features, std::size_t Heads, std::size_t Vocabulary,
          class Tuning>
struct gpt2_network : checked<Tuning, "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"> {
  using block = gpt2_block<Features, Heads, Tuning>;
  using type = network<token_ids(Positions, Vocabulary), typename Tuning::template input<tied<0, embedding<Features>>>,
                       typename Tuning::template input<learned_positions>, lower_blocks<Blocks, block, Tuning>,
                       upper_blocks<Blocks, block, Tuning>, typename Tuning::template norm<layer_norm<>>,
                       typename Tuning::template input<tied<0, linear<Vocabulary, no_bias>>>>;
};

template <llama_size Size, class Tuning>
struct llama_network : checked<Tuning, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "lm_head"> {
  using block = llama_block<Size, Tuning>;
  using table = embedding<Size.features>;
  using head = linear<Size.vocabulary, no_bias>;
  using type =
      network<token_ids(Size.positions, Size.vocabulary),
              typename Tuning::template input<std::conditional_t<Size.tied, tied<0, table>, table>>,
              lower_blocks<Size.blocks, block, Tuning>, upper_blocks<Size.blocks, block, Tuning>, typename block::norm,
              std::conditional_t<Size.tied, typename Tuning::template input<tied<0, head>>,
                                 typename Tuning::template projection<"lm_head", head>>>;
};

template <class Tuning>
using checked_encoder = checked<Tuning, "attention.query", "attention.key", "attention.value", "attention.output.dense",
                                "intermediate.dense", "output.dense">;
template <bert_size Size, class Tuning>
struct bert_network : checked_encoder<Tuning> {
  using block = encoder_block_of<Size, false, Tuning>;
  template <class Layer>
  using input = typename Tuning::template input<Layer>;
  using type = network<variable(token_ids(Size.positions, Size.vocabulary)), input<embedding<Size.features>>,
                       input<learned_positions>, input<added_bias>, input<layer_norm<eps<1, Size.per_epsilon>>>,
                       lower_blocks<Size.blocks, block, Tuning>, upper_blocks<Size.blocks, block, Tuning>,
                       take_positions<0, 1>, mean_over_positions,
                       typename Tuning::template head<linear<Size.features>, pergrad::tanh, linear<Size.classes>>>;
};
template <vit_size Size, class Tuning>
struct vit_network : checked_encoder<Tuning> {
  static constexpr std::size_t patches = (Size.image / Size.patch) * (Size.image / Size.patch);
  using block = encoder_block_of<Size, true, Tuning>;
  template <class Layer>
  using input = typename Tuning::template input<Layer>;
  using type =
      network<shape{Size.channels, Size.image, Size.image},
              input<conv2d<Size.features, Size.patch, stride<Size.patch>>>, reshape<shape{Size.features, patches}>,
              transpose, input<sequence_bias>, input<learned_positions>, lower_blocks<Size.blocks, block, Tuning>,
              upper_blocks<Size.blocks, block, Tuning>, typename block::norm, select_last,
              typename Tuning::template head<linear<Size.classes>>>;
};

}  // namespace detail

/// GPT-2: logits `{Positions, Vocabulary}` of the next id at every position, whose unembedding is the embedding's
/// table. With 1024 positions 124,439,808 parameters, Hugging Face's `gpt2`; fewer positions have as many fewer rows of
/// positions. `gpt2<1024, 24, 1024, 16>` is `gpt2-medium`, 354,823,168 parameters. Its loss is `token_cross_entropy<>`.
/// Names for `lora_on`: attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj.
template <std::size_t Positions = 1024, std::size_t Blocks = 12, std::size_t Features = 768, std::size_t Heads = 12,
          std::size_t Vocabulary = 50'257, class Tuning = everything>
using gpt2 = typename detail::gpt2_network<Positions, Blocks, Features, Heads, Vocabulary, Tuning>::type;

/// Hugging Face's `LlamaForCausalLM`: logits `{positions, vocabulary}` of the next id at every position; the sizes'
/// defaults are those of the model of 7 billion, 6,738,415,616 parameters. Its loss is `token_cross_entropy<>`. Rotary
/// positions are not scaled. Names for `lora_on`: self_attn.q_proj, k_proj, v_proj, o_proj, mlp.gate_proj, up_proj,
/// down_proj, lm_head.
template <llama_size Size = llama_size{}, class Tuning = everything>
using llama = typename detail::llama_network<Size, Tuning>::type;

/// Hugging Face's `BertForSequenceClassification` of one text, and with `roberta_base` its
/// `RobertaForSequenceClassification`: logits `{classes}`. Ids behind a sample's length are padding. The token type is
/// that of the first text, a bias. 109,483,010 parameters, without the row of the second type. Names for `lora_on`:
/// attention.query, key, value, attention.output.dense, intermediate.dense, output.dense.
template <bert_size Size = bert_size{}, class Tuning = everything>
using bert_classifier = typename detail::bert_network<Size, Tuning>::type;

/// Hugging Face's `ViTForImageClassification`: logits `{classes}` of an image; 86,567,656 parameters. The class token
/// stands behind the patches, and so does its row of positions: nothing else knows an order. Names for `lora_on` as
/// those of `bert_classifier`.
template <vit_size Size = vit_size{}, class Tuning = everything>
using vit = typename detail::vit_network<Size, Tuning>::type;

}  // namespace pergrad::inline v0_1::models
