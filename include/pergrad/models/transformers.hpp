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

#include <pergrad/graph/mistakes.hpp>
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

// Types of networks have no names and no sizes in them but what layers say: nvcc cannot write such arguments.

/// GPT-2's attention of two projections, for those that are not trained as one layer; it has the same names.
template <std::size_t Heads, class In, class Out>
struct gpt2_attention {
  using unfolds_to = sequential<In, scaled_dot_product_attention<Heads, causal>, Out>;
  template <class Names>
  static void name_parts(Names& names) {
    names.template part<In>("in_proj_");
    names.rest(1);
    names.template part<Out>("out_proj.");
  }
};
template <std::size_t Features, std::size_t Heads, class Tuning>
using gpt2_attention_of =
    std::conditional_t<std::is_base_of_v<everything, Tuning>, multihead_attention<Heads, causal>,
                       gpt2_attention<Heads, typename Tuning::template projection<"attn.c_attn", linear<3 * Features>>,
                                      typename Tuning::template projection<"attn.c_proj", linear<Features>>>>;

/// x + attention(norm(x)), then x + W2 gelu(W1 norm(x) + b1) + b2.
template <std::size_t Features, std::size_t Heads, class Tuning>
using gpt2_block =
    sequential<residual<typename Tuning::template norm<layer_norm<>>, gpt2_attention_of<Features, Heads, Tuning>>,
               residual<typename Tuning::template norm<layer_norm<>>,
                        typename Tuning::template projection<"mlp.c_fc", linear<4 * Features>>, gelu_tanh,
                        typename Tuning::template projection<"mlp.c_proj", linear<Features>>>>;

/// Three projections of one input side by side.
template <class Query, class Key, class Value>
using side_by_side = parallel<sequential<Query>, sequential<Key>, sequential<Value>>;

template <class Norm, class Query, class Key, class Value, class Attention, class Out, class Gate, class Up, class Down>
struct llama_block {
  using unfolds_to =
      sequential<residual<Norm, side_by_side<Query, Key, Value>, Attention, Out>,
                 residual<Norm, merge<elementwise_product, sequential<Gate, silu>, sequential<Up>>, Down>>;
  template <class Names>
  static void name_parts(Names& names) {
    names.template part<Norm>("input_layernorm.");
    names.template part<Query>("self_attn.q_proj.");
    names.template part<Key>("self_attn.k_proj.");
    names.rest(1);
    names.template part<Value>("self_attn.v_proj.");
    names.rest(2);
    names.template part<Out>("self_attn.o_proj.");
    names.rest(1);
    names.template part<Norm>("post_attention_layernorm.");
    names.template part<Gate>("mlp.gate_proj.");
    names.rest(1);
    names.template part<Up>("mlp.up_proj.");
    names.rest(1);
    names.template part<Down>("mlp.down_proj.");
    names.rest(1);
  }
};
template <class Tuning, text Name, std::size_t Width, class... Options>
using projection_of = typename Tuning::template projection<Name, linear<Width, Options...>>;
template <llama_size Size, class Tuning>
using llama_norm = typename Tuning::template norm<rms_norm<eps<1, Size.per_epsilon>>>;
template <llama_size Size>
inline constexpr std::size_t memory_of = Size.heads == 0 ? 0 : Size.features / Size.heads* Size.key_value_heads;
template <llama_size Size, class Tuning>
using llama_block_of =
    llama_block<llama_norm<Size, Tuning>, projection_of<Tuning, "self_attn.q_proj", Size.features, no_bias>,
                projection_of<Tuning, "self_attn.k_proj", memory_of<Size>, no_bias>,
                projection_of<Tuning, "self_attn.v_proj", memory_of<Size>, no_bias>,
                scaled_dot_product_attention<Size.heads, causal, pergrad::key_value_heads<Size.key_value_heads>,
                                             rotary<Size.rotary_base>>,
                projection_of<Tuning, "self_attn.o_proj", Size.features, no_bias>,
                projection_of<Tuning, "mlp.gate_proj", Size.feed_forward, no_bias>,
                projection_of<Tuning, "mlp.up_proj", Size.feed_forward, no_bias>,
                projection_of<Tuning, "mlp.down_proj", Size.features, no_bias>>;

/// A block of an encoder, of BERT (norms behind) and of ViT (norms in front).
template <std::size_t Heads, bool NormFirst, class Norm, class Query, class Key, class Value, class Out, class Hidden,
          class End>
struct encoder_block {
  using in_front = std::conditional_t<NormFirst, sequential<Norm>, sequential<>>;
  using behind = std::conditional_t<NormFirst, sequential<>, sequential<Norm>>;
  using unfolds_to =
      sequential<residual<in_front, side_by_side<Query, Key, Value>, scaled_dot_product_attention<Heads>, Out>, behind,
                 residual<in_front, Hidden, gelu, End>, behind>;
  template <class Names>
  static void name_parts(Names& names) {
    if constexpr (NormFirst) names.template part<Norm>("layernorm_before.");
    names.template part<Query>("attention.query.");
    names.template part<Key>("attention.key.");
    names.rest(1);
    names.template part<Value>("attention.value.");
    names.rest(2);
    names.template part<Out>("attention.output.dense.");
    names.rest(1);
    names.template part<Norm>(NormFirst ? "layernorm_after." : "attention.output.LayerNorm.");
    names.template part<Hidden>("intermediate.dense.");
    names.rest(1);
    names.template part<End>("output.dense.");
    names.rest(1);
    if constexpr (!NormFirst) names.template part<Norm>("output.LayerNorm.");
  }
};
template <auto Size, class Tuning>
using encoder_norm = typename Tuning::template norm<layer_norm<eps<1, Size.per_epsilon>>>;
template <auto Size, bool NormFirst, class Tuning>
using encoder_block_of = encoder_block<
    Size.heads, NormFirst, encoder_norm<Size, Tuning>, projection_of<Tuning, "attention.query", Size.features>,
    projection_of<Tuning, "attention.key", Size.features>, projection_of<Tuning, "attention.value", Size.features>,
    projection_of<Tuning, "attention.output.dense", Size.features>,
    projection_of<Tuning, "intermediate.dense", Size.feed_forward>,
    projection_of<Tuning, "output.dense", Size.features>>;

/// Blocks that are frozen, then the others.
template <std::size_t Blocks, class Block, class Tuning>
using lower_blocks = frozen<repeat<Tuning::template lower<Blocks>, typename Tuning::template block<Block>>>;
template <std::size_t Blocks, class Block, class Tuning>
using upper_blocks = repeat<Blocks - Tuning::template lower<Blocks>, typename Tuning::template block<Block>>;

template <std::size_t Count>
struct blocks;  // for an error to show
/// In front of a network: nothing, or one readable error for a tuning that would train something else than it says.
template <class Tuning, class Blocks, pergrad::detail::mistake What>
struct wrong_tuning {
  static constexpr bool takes_ids = true;  // of whatever the network takes
  [[nodiscard]] static constexpr pergrad::detail::mistake check(shape /*in*/) noexcept { return What; }
};
template <class Tuning, std::size_t Blocks, text... Names>
using checked =
    std::conditional_t<Tuning::template mistake<Blocks, Names...> == pergrad::detail::mistake::none, frozen<>,
                       wrong_tuning<Tuning, blocks<Blocks>, Tuning::template mistake<Blocks, Names...>>>;

template <llama_size Size, class Tuning>
struct llama_network {
  static_assert(!Tuning::needs_biases, "pergrad: llama: biases_only would train nothing: this network has no biases");
  template <text... Head>
  using check_with = checked<Tuning, Size.blocks, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", Head...>;
  using check = std::conditional_t<Size.tied, check_with<>, check_with<"lm_head">>;
  using block = llama_block_of<Size, Tuning>;
  using table = embedding<Size.features>;
  using head = linear<Size.vocabulary, no_bias>;
  using type = network<
      token_ids(Size.positions, Size.vocabulary), check,
      typename Tuning::template input<std::conditional_t<Size.tied, tied<0, table>, table>>,
      lower_blocks<Size.blocks, block, Tuning>, upper_blocks<Size.blocks, block, Tuning>, llama_norm<Size, Tuning>,
      typename Tuning::template logits<std::conditional_t<Size.tied, typename Tuning::template input<tied<0, head>>,
                                                          typename Tuning::template projection<"lm_head", head>>>>;
};

template <class Tuning, std::size_t Blocks>
using checked_encoder = checked<Tuning, Blocks, "attention.query", "attention.key", "attention.value",
                                "attention.output.dense", "intermediate.dense", "output.dense">;
template <bert_size Size, class Tuning>
struct bert_network {
  using block = encoder_block_of<Size, false, Tuning>;
  template <class Layer>
  using input = typename Tuning::template input<Layer>;
  // A part of the input, but for a tuning of biases: it has one.
  using embedding_norm =
      std::conditional_t<Tuning::needs_biases, encoder_norm<Size, Tuning>, input<layer_norm<eps<1, Size.per_epsilon>>>>;
  using type = network<variable(token_ids(Size.positions, Size.vocabulary)), checked_encoder<Tuning, Size.blocks>,
                       input<embedding<Size.features>>, input<learned_positions>, input<added_bias>, embedding_norm,
                       lower_blocks<Size.blocks, block, Tuning>, upper_blocks<Size.blocks, block, Tuning>,
                       take_positions<0, 1>, mean_over_positions,
                       typename Tuning::template head<linear<Size.features>, pergrad::tanh, linear<Size.classes>>>;
};
template <vit_size Size, class Tuning>
struct vit_network {
  static constexpr bool has_patches = Size.patch > 0;  // the convolution says so if not
  static_assert(!has_patches || Size.image % Size.patch == 0,
                "pergrad: vit: patches must fill the image: image is no multiple of patch");
  static constexpr std::size_t a_side = has_patches ? Size.image / Size.patch : 1;
  static constexpr std::size_t patches = a_side * a_side;
  using block = encoder_block_of<Size, true, Tuning>;
  template <class Layer>
  using input = typename Tuning::template input<Layer>;
  using type =
      network<shape{Size.channels, Size.image, Size.image}, checked_encoder<Tuning, Size.blocks>,
              input<conv2d<Size.features, Size.patch, stride<Size.patch>>>, reshape<shape{Size.features, patches}>,
              transpose, input<sequence_bias>, input<learned_positions>, lower_blocks<Size.blocks, block, Tuning>,
              upper_blocks<Size.blocks, block, Tuning>, encoder_norm<Size, Tuning>, select_last,
              typename Tuning::template head<linear<Size.classes>>>;
};

}  // namespace detail

/// GPT-2: logits `{Positions, Vocabulary}` of the next id at every position, whose unembedding is the embedding's
/// table. With 1024 positions 124,439,808 parameters, Hugging Face's `gpt2`; fewer positions have as many fewer rows of
/// positions. `gpt2<1024, 24, 1024, 16>` is `gpt2-medium`, 354,823,168 parameters. Its loss is `token_cross_entropy<>`.
/// Names for `lora_on`: attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj.
template <std::size_t Positions = 1024, std::size_t Blocks = 12, std::size_t Features = 768, std::size_t Heads = 12,
          std::size_t Vocabulary = 50'257, class Tuning = everything>
using gpt2 =
    network<token_ids(Positions, Vocabulary),
            detail::checked<Tuning, Blocks, "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj">,
            typename Tuning::template input<tied<0, embedding<Features>>>,
            typename Tuning::template input<learned_positions>,
            detail::lower_blocks<Blocks, detail::gpt2_block<Features, Heads, Tuning>, Tuning>,
            detail::upper_blocks<Blocks, detail::gpt2_block<Features, Heads, Tuning>, Tuning>,
            typename Tuning::template norm<layer_norm<>>,
            typename Tuning::template logits<typename Tuning::template input<tied<0, linear<Vocabulary, no_bias>>>>>;

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
