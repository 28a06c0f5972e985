// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/mistakes.hpp - what a layer's check(shape) may answer; each has its sentence in errors.hpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <ratio>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

enum class mistake {
  none,
  no_output_shape,
  no_parameter_count,
  no_forward,
  no_backward,
  no_factors,
  no_derivative,
  of_two_kinds,
  factors_do_not_cover,
  factor_outside_tape,
  factor_of_ids,
  matrices_outside_parameters,
  affine_map_does_not_fit,
  output_length_too_long,
  stored_order_of_two,
  mixes_samples,
  needs_an_image,
  needs_features,
  needs_channels_and_positions,
  needs_a_volume,
  needs_two_axes,
  reshape_changes_size,
  output_padding_too_large,
  kernel_too_large,
  groups_do_not_divide,
  pool_padding_too_large,
  zero_is_no_size,
  option_not_offered,
  rank_of_zero,
  no_projection,
  no_such_projection,
  fewer_blocks,
  no_probability,
  softmax_is_in_the_loss,
  activation_not_offered,
  layer_of_pytorch_not_offered,
  rejects_input,
  no_output,
  branches_differ,
  element_function_changes_shape,
  ids_into_a_float_layer,
  needs_ids,
  needs_a_sequence,
  tied_blocks_differ,
  ties_nest,
  lengths_are_lost,
  not_on_tiles,
  heads_do_not_divide,
  key_value_heads_do_not_divide,
  rotary_of_odd_width,
  branches_do_not_fit,
  branches_differ_in_length,
  branches_not_given
};

/// What to say of an input that has not `axes` axes besides its channels.
[[nodiscard]] constexpr mistake wrong_rank(std::size_t axes) noexcept {
  return axes == 1   ? mistake::needs_channels_and_positions
         : axes == 2 ? mistake::needs_an_image
                     : mistake::needs_a_volume;
}

/// Stands in the place of a composition with an option (or a layer) that is none of its own, and says so.
template <class Option>
struct no_such_option {
  [[nodiscard]] static constexpr mistake check(shape /*in*/) noexcept { return mistake::option_not_offered; }
};

/// Whether a type is a std::ratio.
template <class Type>
inline constexpr bool is_ratio = false;
template <std::intmax_t Numerator, std::intmax_t Denominator>
inline constexpr bool is_ratio<std::ratio<Numerator, Denominator>> = true;

}  // namespace pergrad::inline v0_1::detail
