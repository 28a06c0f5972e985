// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/lora.hpp - low-rank adapter of a frozen linear layer  y = W x + b + (alpha / rank) B A x
//
// Only A and B are trained (Hu et al. 2021, arXiv:2106.09685); W and b have no gradient, and none is computed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ratio>
#include <span>
#include <type_traits>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/scale.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// B of an adapter: zero wherever PyTorch's layers would choose for themselves, so that a network with adapters starts
/// as the one that it adapts (Hu et al. 2021, section 4.1). Initialisers of "every parameter" are of this, too.
template <std::size_t Outputs>
struct adapter_output : linear<Outputs, no_bias> {
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    if constexpr (std::is_base_of_v<layer_default, Initialiser>) {
      std::ranges::fill(parameters, Scalar{0});
    } else {
      initialise_parameters<linear<Outputs, no_bias>>(initialiser, in, first, parameters);
    }
  }
};

/// Of another layer, of rank 0 or by what is no ratio: says so.
template <std::size_t Rank, class Layer, class Alpha>
struct low_rank_adapter {
  using type = no_such_option<low_rank_adapter>;
};
template <std::size_t Rank, std::size_t Outputs, class... Options, class Alpha>
requires(Rank > 0 && is_ratio<Alpha>) struct low_rank_adapter<Rank, linear<Outputs, Options...>, Alpha> {
  using type = residual<linear<Rank, no_bias>, adapter_output<Outputs>,
                        scale<std::ratio_divide<Alpha, std::ratio<static_cast<std::intmax_t>(Rank)>>>,
                        projection<frozen<linear<Outputs, Options...>>>>;
};

}  // namespace detail

/// `lora<Rank, linear<Outputs>, std::ratio<Alpha>>` in the place of that linear layer. Parameters: A
/// `[Rank, features]`, then B `[Outputs, Rank]`, at first 0; frozen parameters: weight, then bias. The names of peft
/// are `lora_A`, `lora_B`.
template <std::size_t Rank, class Layer, class Alpha = std::ratio<static_cast<std::intmax_t>(Rank)>>
struct lora {
  using unfolds_to = typename detail::low_rank_adapter<Rank, Layer, Alpha>::type;
  /// The frozen layer keeps the names that it has without an adapter.
  [[nodiscard]] static const char* part_name(std::size_t number) noexcept {
    return number == 0 ? "lora_A.*" : number == 1 ? "lora_B.*" : "*";
  }
};

}  // namespace pergrad::inline v0_1
