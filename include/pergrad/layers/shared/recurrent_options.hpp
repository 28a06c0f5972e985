// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/recurrent_options.hpp - the options of rnn, gru and lstm
#pragma once

#include <cstddef>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Option of `rnn`: relu instead of tanh.
struct relu_cell {};
/// Option of recurrent layers: so many on top of each other.
template <std::size_t Count>
struct layers {};
/// Option of recurrent layers: a second one reads the positions from the end; their outputs stand side by side.
struct bidirectional {};
/// Option of recurrent layers: one bias, on the input's side (Keras), where PyTorch has two.
struct one_bias {};
/// Option of recurrent layers: `{features}`, the state behind the last step (PyTorch's h_n: of a bidirectional one the
/// forward layer's at the last position, the other's at the first).
struct last_output {};
/// Option of recurrent layers: `{features}`, the mean of the output over the positions that are there.
struct mean_output {};

namespace detail {

struct recurrent_options {
  bool relu = false;
  std::size_t layer_count = 1;
  bool both_ways = false;
  std::size_t biases = 2;
  bool one_bias = false;
  bool no_bias = false;
  bool last = false;
  bool mean = false;
  bool unknown_given = false;
};
constexpr void apply(recurrent_options& options, relu_cell) noexcept { options.relu = true; }
template <std::size_t Count>
constexpr void apply(recurrent_options& options, layers<Count>) noexcept {
  options.layer_count = Count;
}
constexpr void apply(recurrent_options& options, bidirectional) noexcept { options.both_ways = true; }
constexpr void apply(recurrent_options& options, pergrad::one_bias) noexcept {
  options.biases = 1;
  options.one_bias = true;
}
constexpr void apply(recurrent_options& options, pergrad::no_bias) noexcept {
  options.biases = 0;
  options.no_bias = true;
}
constexpr void apply(recurrent_options& options, last_output) noexcept { options.last = true; }
constexpr void apply(recurrent_options& options, mean_output) noexcept { options.mean = true; }
template <class Unknown>
constexpr void apply(recurrent_options& options, Unknown) noexcept {
  options.unknown_given = true;
}
template <class... Options>
[[nodiscard]] constexpr recurrent_options gather_recurrent_options() noexcept {
  recurrent_options options;
  (apply(options, Options{}), ...);
  options.unknown_given = options.unknown_given || (options.last && options.mean) ||
                          (options.one_bias && options.no_bias) || options_disagree<Options...>();
  return options;
}

}  // namespace detail
}  // namespace pergrad::inline v0_1
