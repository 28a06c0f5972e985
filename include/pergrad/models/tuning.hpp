// SPDX-License-Identifier: Apache-2.0
// pergrad/models/tuning.hpp - what of a ready transformer is trained: everything, adapters, biases, the last blocks
//
// The last argument of the networks of models/transformers.hpp. What is not trained is `frozen`: it has no gradient,
// and what lies in front of all trained layers is not run backwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ratio>
#include <string_view>
#include <type_traits>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/layers/added_bias.hpp>
#include <pergrad/layers/layer_norm.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/lora.hpp>

namespace pergrad::inline v0_1::models {

namespace detail {

/// A name as a template argument.
template <std::size_t Size>
struct text {
  char of[Size]{};
  constexpr text(const char (&given)[Size]) noexcept {  // NOLINT(google-explicit-constructor): written as a literal
    std::copy_n(given, Size, of);
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {of, Size - 1}; }
};

/// As peft does it: a target is a projection's whole name, or its end behind a dot.
[[nodiscard]] constexpr bool is_named(std::string_view name, std::string_view target) noexcept {
  return name.ends_with(target) && (name.size() == target.size() || name[name.size() - target.size() - 1] == '.');
}

/// Is there a projection for a target?
template <text Target, text... Names>
inline constexpr bool is_offered = (is_named(Names.view(), Target.view()) || ...);

/// A layer of which only the bias is trained. It has the names that it has without.
template <class Weights>
struct bias_of {
  using unfolds_to = sequential<frozen<Weights>, added_bias>;
  [[nodiscard]] static const char* part_name(std::size_t /*number*/) noexcept { return "*"; }
};
template <class Layer>
struct only_bias {
  using type = frozen<Layer>;
};
template <std::size_t Outputs, class... Options>
requires(linear<Outputs, Options...>::options.bias) struct only_bias<linear<Outputs, Options...>> {
  using type = bias_of<linear<Outputs, Options..., no_bias>>;
};
template <class... Options>
requires(layer_norm<Options...>::shifts) struct only_bias<layer_norm<Options...>> {
  using type = bias_of<layer_norm<Options..., no_bias>>;
};

template <std::size_t Rank, class Alpha, class Linear, bool Adapted>
struct adapted_or_frozen {
  using type = frozen<Linear>;
};
template <std::size_t Rank, class Alpha, class Linear>
struct adapted_or_frozen<Rank, Alpha, Linear, true> {
  using type = lora<Rank, Linear, Alpha>;
};

/// What all share: logits are kept where they are formed, blocks as they are, none is frozen.
struct usual {
  template <class Layer>
  using logits = Layer;
  template <class Block>
  using block = Block;
  template <std::size_t /*Blocks*/>
  static constexpr std::size_t lower = 0;
  static constexpr bool needs_biases = false;
  /// What is wrong with it for a network with so many blocks and projections of these names.
  template <std::size_t /*Blocks*/, text... /*Names*/>
  static constexpr auto mistake = pergrad::detail::mistake::none;
};

/// What trains some layers of each block, and a classifier's head.
struct partly_trained : usual {
  template <class Layer>
  using input = frozen<Layer>;
  template <class... Layers>
  using head = sequential<Layers...>;
};

}  // namespace detail

/// Every parameter is trained.
struct everything : detail::usual {
  template <class Layer>
  using input = Layer;  ///< embeddings, positions, patches
  template <detail::text /*Name*/, class Linear>
  using projection = Linear;
  template <class Layer>
  using norm = Layer;
  template <class... Layers>
  using head = sequential<Layers...>;  ///< of a classifier
};

/// Low-rank adapters on the projections of these names, and a classifier's head; nothing else is trained (Hu et al.
/// 2021, arXiv:2106.09685). A name is one of Hugging Face's modules or the end of one, as in peft's `target_modules`:
/// `lora_on<8, "q_proj", "v_proj">`. What the adapters add is multiplied by 1: peft's `lora_alpha` = `r`.
template <std::size_t Rank, detail::text... Targets>
struct lora_on : detail::partly_trained {
  template <detail::text Name, class Linear>
  using projection = typename detail::adapted_or_frozen<Rank, std::ratio<static_cast<std::intmax_t>(Rank)>, Linear,
                                                        (detail::is_named(Name.view(), Targets.view()) || ...)>::type;
  template <class Layer>
  using norm = frozen<Layer>;
  template <std::size_t /*Blocks*/, detail::text... Names>
  static constexpr auto mistake = Rank == 0                 ? pergrad::detail::mistake::rank_of_zero
                                  : sizeof...(Targets) == 0 ? pergrad::detail::mistake::no_projection
                                  : (detail::is_offered<Targets, Names...>&&...)
                                      ? pergrad::detail::mistake::none
                                      : pergrad::detail::mistake::no_such_projection;
};

/// Only biases are trained, and a classifier's head (BitFit: Ben Zaken et al. 2021, arXiv:2106.10199): those of
/// projections and of layer norms, also that of BERT's embeddings; not that of ViT's patches. LLaMA has none, and is
/// refused.
struct biases_only : detail::partly_trained {
  template <detail::text /*Name*/, class Linear>
  using projection = typename detail::only_bias<Linear>::type;
  template <class Layer>
  using norm = typename detail::only_bias<Layer>::type;
  static constexpr bool needs_biases = true;
};

/// The last `Count` blocks are trained, and what stands behind them; a table that is tied to the embedding is not. A
/// network with fewer blocks is refused.
template <std::size_t Count>
struct last_blocks : everything {
  template <class Layer>
  using input = frozen<Layer>;
  template <std::size_t Blocks>
  static constexpr std::size_t lower = Blocks > Count ? Blocks - Count : 0;
  template <std::size_t Blocks, detail::text... /*Names*/>
  static constexpr auto mistake =
      Blocks < Count ? pergrad::detail::mistake::fewer_blocks : pergrad::detail::mistake::none;
};

/// What `Tuning` says, and the logits of a language model are never all there: the last projection is `recomputed`, and
/// a large model (of 128 MB of parameters) forms its logits a stretch of the vocabulary at a time, wherever the loss,
/// the gradient or a sum reads them. That saves 2 x positions x vocabulary numbers a sample, and takes the time of two
/// products with the vocabulary more. Gradients differ by rounding.
template <class Tuning = everything>
struct recomputed_logits : Tuning {
  template <class Layer>
  using logits = recomputed<Layer>;
};

/// What `Tuning` says, and every block of the network is `recomputed`: less memory for more time.
template <class Tuning = everything>
struct recomputed_blocks : Tuning {
  template <class Block>
  using block = recomputed<Block>;
};

}  // namespace pergrad::inline v0_1::models
