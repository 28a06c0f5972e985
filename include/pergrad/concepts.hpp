// SPDX-License-Identifier: Apache-2.0
// pergrad/concepts.hpp - the contracts of layers and losses
//
//        x (input)  ->  [ layer: parameters w ]  ->  y (output)          forward
//        dx         <-  [                     ]  <-  backprop = dL/dy    backward
//
// A layer is a stateless struct. It speaks of one sample, of its values in PyTorch's order, and never mixes samples.
// It comes in one of six kinds, told apart by its members:
//   affine       affine(in)                    y_t = W view_t(x) + b: everything follows from the geometry
//   elementwise  value(x), derivative(x, y)    one scalar function: everything follows from it
//   pooling      rows(in, i), combine, share   one window rule: which inputs an output sees, how it shares its gradient
//   reshape      is_reshape                    the same values under another shape
//   general      forward/backward/factors      anything else, one sample at a time; the kind that users write
//   tiled        on_tiles, forward(team)       anything else, in the words of a team (pergrad/team.hpp), which every
//                                              executor speaks: products over all samples of a tile, lengths, ids, a
//                                              second input and randomness
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Input rows (or columns) `begin .. end - 1` that one output row (or column) of a pool sees, inside the input.
struct window_range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// What a pool makes of a window; executors have kernels for these.
enum class window_rule : unsigned char { maximum, mean };

namespace detail {

/// A layer's `name`, a const char*; of one that has none, `layer`. The same whatever the compiler.
template <class Layer>
[[nodiscard]] constexpr const char* name_of_layer() noexcept {
  if constexpr (requires { static_cast<const char*>(Layer::name); }) {
    return Layer::name;
  } else {
    return "layer";
  }
}

template <class Layer>
concept has_two_inputs = requires(shape in) {
  { Layer::output_shape(in, in) } -> std::convertible_to<shape>;
};
template <class Layer>
concept has_output_shape = has_two_inputs<Layer> || requires(shape in) {
  { Layer::output_shape(in) } -> std::convertible_to<shape>;
};
template <class Layer>
concept has_parameter_count = requires(shape in) {
  { Layer::parameter_count(in) } -> std::convertible_to<std::size_t>;
};
template <class Layer>
concept has_affine = requires(shape in) {
  { Layer::affine(in) } -> std::convertible_to<affine_map>;
};
template <class Layer>
concept says_channels_first = requires {
  requires Layer::channels_first;
};
/// Are shapes of an affine layer numbered channels first? Images always are; of sequences the layer says it.
template <class Layer>
[[nodiscard]] constexpr bool is_channels_first(shape in, shape out) noexcept {
  return says_channels_first<Layer> || in.rank() > 2 || out.rank() > 2;
}
template <class Layer>
concept has_value = requires(float x) {
  { Layer::value(x) } -> std::convertible_to<float>;
};
template <class Layer>
concept has_derivative = requires(float x) {
  { Layer::derivative(x, x) } -> std::convertible_to<float>;
};
template <class Layer>
concept is_reshape = requires {
  requires Layer::is_reshape;
};
template <class Layer>
concept is_branch_sum = requires {
  requires Layer::is_branch_sum;
};
template <class Layer>
concept is_mixing = requires {
  requires Layer::mixes_samples;
};
template <class Layer>
concept has_accepts = requires(shape in) {
  { Layer::accepts(in) } -> std::convertible_to<bool>;
};
template <class Layer>
concept has_factors = requires(shape in) {
  Layer::factors(in).begin();
}
|| requires(shape in) { Layer::factors(in, in).begin(); };
/// Stands for any team where only the signature of a layer's function is asked for.
struct any_team;
template <class Layer>
concept is_tiled = requires(const any_team& team) {
  requires Layer::on_tiles;
  Layer::forward(team);
  Layer::backward(team);
};
/// A tiled layer of one input that reads and writes values as the executor stores them (channels last), not in
/// PyTorch's order.
template <class Layer>
concept reads_images = requires {
  requires Layer::stored_order;
};
/// A layer whose input may be integer ids.
template <class Layer>
concept takes_ids = requires {
  requires Layer::takes_ids;
};
/// Weight matrices `[rows][columns]` among a layer's parameters, of which a team also offers the transposes.
template <class Layer>
concept has_matrices = requires(shape in) {
  Layer::matrices(in).size();
}
|| requires(shape in) { Layer::matrices(in, in).size(); };
/// Products over all positions that an executor may form for a whole batch.
template <class Layer>
concept has_projections = requires(shape in) {
  Layer::projections(in).size();
}
|| requires(shape in) { Layer::projections(in, in).size(); };
/// How many of the output's positions are there if `length` of the input's are. Without it, a layer that works position
/// by position keeps the length and any other loses it. If positions change their axis, output_shape says so.
template <class Layer>
concept has_output_length = requires(shape in, std::size_t length) {
  { Layer::output_length(in, length) } -> std::convertible_to<std::size_t>;
};
/// Base of layers whose output has as many positions as their input, however many those are. Known by its type: a
/// network of many layers on long samples would ask each of them about each length, and pass compilers' limits of
/// constants.
struct keeps_every_length {
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
};
/// A layer with two inputs that puts position t of one and position t of the other together: both must have as many.
template <class Layer>
concept joins_positions = is_branch_sum<Layer> || requires {
  requires Layer::joins_positions;
};
/// A tiled layer that makes position t of its output of position t of its inputs, whatever t is (pergrad/team.hpp).
template <class Layer>
concept works_by_position = is_tiled<Layer> && requires {
  requires Layer::by_position;
};
/// A tiled layer that can be asked for positions behind others (pergrad/team.hpp).
template <class Layer>
concept works_behind = is_tiled<Layer> && requires(const any_team& team) {
  Layer::forward_behind(team);
};
template <class Layer>
concept has_windows = requires(shape in, std::size_t i, float x) {
  { Layer::rows(in, i) } -> std::convertible_to<window_range>;
  { Layer::columns(in, i) } -> std::convertible_to<window_range>;
  { Layer::combine(x, x) } -> std::convertible_to<float>;
};
/// A pool whose windows are computed by a rule that executors have kernels for, `known_rule`: it says so for itself.
/// One that derives from it may have functions of its own, which no kernel would call.
template <class Layer>
concept has_known_rule = requires {
  Layer::known_rule;
  requires std::same_as<typename Layer::rule_is_of, Layer>;
};
template <class Layer, class Scalar = float>
concept has_saving_forward = requires(shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                                      std::span<Scalar> y) {
  Layer::forward(in, w, x, y, y);
};
template <class Layer, class Scalar = float>
concept has_saving_backward = requires(shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                                       std::span<Scalar> dx) {
  Layer::backward(in, w, x, x, dx, dx);
};
template <class Layer>
concept has_general_forward = has_saving_forward<Layer> ||
    requires(shape in, std::span<const float> x, std::span<float> y) {
  Layer::forward(in, x, x, y);
};
template <class Layer>
concept has_general_backward = has_saving_backward<Layer> ||
    requires(shape in, std::span<const float> x, std::span<float> dx) {
  Layer::backward(in, x, x, x, dx);
};
/// A layer that says twice what it computes: one of the two would never be called.
template <class Layer>
concept is_of_two_kinds = (has_value<Layer> && has_affine<Layer>) ||
                          ((has_value<Layer> || has_affine<Layer>)&&(has_general_forward<Layer> || is_tiled<Layer>));

/// Parameters of any kind of layer; parameter-free kinds need not say so.
template <class Layer>
[[nodiscard]] constexpr std::size_t parameter_count_of(shape in, [[maybe_unused]] shape second = {}) {
  if constexpr (has_affine<Layer>) {
    return Layer::affine(in).parameter_count();
  } else if constexpr (requires { Layer::parameter_count(in, second); }) {
    return Layer::parameter_count(in, second);
  } else if constexpr (has_parameter_count<Layer>) {
    return Layer::parameter_count(in);
  } else {
    return 0;
  }
}

/// May a layer of this type have parameters?
template <class Layer>
concept may_have_parameters = has_affine<Layer> || has_parameter_count<Layer> || requires(shape in) {
  Layer::parameter_count(in, in);
};

/// Saved and scratch values may depend on the second input of a layer that has one.
template <class Layer>
[[nodiscard]] constexpr std::size_t saved_count_of(shape in, shape second) {
  if constexpr (requires { Layer::saved_count(in, second); }) {
    return Layer::saved_count(in, second);
  } else if constexpr (requires { Layer::saved_count(in); }) {
    return Layer::saved_count(in);
  } else {
    return 0;
  }
}
template <class Layer>
[[nodiscard]] constexpr std::size_t scratch_count_of(shape in, shape second) {
  if constexpr (requires { Layer::scratch_count(in, second); }) {
    return Layer::scratch_count(in, second);
  } else if constexpr (requires { Layer::scratch_count(in); }) {
    return Layer::scratch_count(in);
  } else {
    return 0;
  }
}
template <class Layer>
[[nodiscard]] constexpr std::size_t part_scratch_count_of(shape in, shape second) {
  if constexpr (requires { Layer::part_scratch_count(in, second); }) {
    return Layer::part_scratch_count(in, second);
  } else if constexpr (requires { Layer::part_scratch_count(in); }) {
    return Layer::part_scratch_count(in);
  } else {
    return 0;
  }
}
/// Parts of a layer on tiles that know nothing of each other (pergrad/team.hpp), and the scratch of each of them.
struct layer_parts {
  std::size_t count = 1;
  std::size_t scratch = 0;
};
template <class Layer>
[[nodiscard]] constexpr layer_parts parts_of(shape in, shape second) {
  const std::size_t scratch = part_scratch_count_of<Layer>(in, second);
  if constexpr (requires { Layer::part_count(in, second); }) {
    return {Layer::part_count(in, second), scratch};
  } else if constexpr (requires { Layer::part_count(in); }) {
    return {Layer::part_count(in), scratch};
  } else {
    return {};
  }
}
/// A layer's matrices; those of a layer with two inputs may depend on both.
template <class Layer>
[[nodiscard]] constexpr auto matrices_of(shape in, shape second) {
  if constexpr (requires { Layer::matrices(in, second); }) {
    return Layer::matrices(in, second);
  } else {
    return Layer::matrices(in);
  }
}
/// A layer's projections; those of a layer with two inputs may depend on both.
template <class Layer>
[[nodiscard]] constexpr auto projections_of(shape in, shape second) {
  if constexpr (requires { Layer::projections(in, second); }) {
    return Layer::projections(in, second);
  } else {
    return Layer::projections(in);
  }
}
/// A layer's factors; those of a layer with two inputs may depend on both.
template <class Layer>
[[nodiscard]] constexpr auto factors_of(shape in, shape second) {
  if constexpr (requires { Layer::factors(in, second); }) {
    return Layer::factors(in, second);
  } else {
    return Layer::factors(in);
  }
}

/// The extents of a layer's parameters if they are one matrix that another kind of layer may share: the table of an
/// embedding without a padding id, the weight of a linear layer without bias. No rows: they are not.
template <class Layer>
[[nodiscard]] constexpr matrix shared_matrix_of(shape in, [[maybe_unused]] shape second) {
  if constexpr (has_affine<Layer>) {
    const affine_map map = Layer::affine(in);
    constexpr bool channels_first = says_channels_first<Layer>;
    const bool is_linear =
        !channels_first && in.rank() <= 2 && map.kernel.size() == 1 && map.groups == 1 && !map.bias && !map.adjoint;
    if (is_linear) return {0, map.out_channels, map.in_channels};
  } else if constexpr (takes_ids<Layer> && has_factors<Layer>) {
    const auto list = factors_of<Layer>(in, second);
    const bool is_table = list.size() == 1 && list[0].sparse && list[0].skipped_id >= list[0].rows &&
                          list[0].delta.position_stride > 0 && list[0].delta.stride == 1;
    if (is_table) return {0, list[0].rows, list[0].columns};
  }
  return {};
}

/// Positions of the output that are there if `length` of the input's are.
template <class Layer>
[[nodiscard]] constexpr std::size_t output_length_of(shape in, std::size_t length) {
  if constexpr (has_output_length<Layer>) {
    return Layer::output_length(in, length);
  } else {
    return length;
  }
}

/// The output's shape, with the mark of varying lengths where the layer keeps or says what becomes of them.
template <class Layer>
[[nodiscard]] constexpr shape output_shape_of(shape in, shape second = {}) {
  shape out;
  if constexpr (has_two_inputs<Layer>) {
    out = Layer::output_shape(in, second);
  } else if constexpr (has_value<Layer> && !has_output_shape<Layer>) {
    return in;
  } else if constexpr (has_output_shape<Layer>) {
    out = Layer::output_shape(in);
  }
  if constexpr (has_output_length<Layer>) {
    if (out.varying_axis() == 0) out.set_varying_axis(in.varying_axis());
  } else if constexpr (!is_branch_sum<Layer>) {  // a sum's positions stay, along whichever axis they lie
    out.set_varying_axis(in.varying_axis() == 1 && out.rank() == 2 && out.e0 == in.e0 ? 1 : 0);
  }
  return out;
}

}  // namespace detail

/// A layer whose per-sample gradient the library can derive. See the head of this file and docs/custom_layers.md.
///
/// requires  `output_shape(in)` and `parameter_count(in)` constexpr; `forward` writes every element of y; `backward`
/// writes
///           every element of dx from (parameters, x, backprop) of the same sample; both depend on nothing else
/// ensures   the library derives gradients, norms, clipping and memory from `factors(in)`
template <class Layer>
concept layer = detail::has_affine<Layer> || detail::has_value<Layer> || detail::is_reshape<Layer> ||
    detail::has_windows<Layer> || detail::is_branch_sum<Layer> || detail::is_tiled<Layer> ||
    (detail::has_output_shape<Layer>&& detail::has_general_forward<Layer>&& detail::has_general_backward<Layer>);

/// A loss: exactly one number a sample.
///
/// requires  `target`, the type of one target value; `target_count(output)`, how many make up one sample's target;
///           `accepts(output)`; `valid(output, targets)`, false for targets that must be refused before anything is
///           computed; `evaluate(y, targets, dy)` returns the loss and writes its gradient with respect to y. One
///           that is about positions has `evaluate(y, targets, dy, length)` as well, which an executor calls instead
///           with the number of the output's positions that are there. One without gets the outputs of these alone,
///           and `target_count` of a shape of so many positions targets
template <class Loss>
concept loss = requires(shape output, std::span<const float> y, std::span<float> dy,
                        std::span<const typename Loss::template target<float>> targets) {
  { Loss::target_count(output) } -> std::convertible_to<std::size_t>;
  { Loss::accepts(output) } -> std::convertible_to<bool>;
  { Loss::valid(output, targets) } -> std::convertible_to<bool>;
  { Loss::evaluate(y, targets, dy) } -> std::same_as<double>;
};

namespace detail {

/// A loss over positions, which `evaluate(y, targets, dy, length)` tells how many of the output's are there.
template <class Loss, class Scalar>
concept takes_length = requires(std::span<const Scalar> y, std::span<Scalar> dy,
                                std::span<const typename Loss::template target<Scalar>> targets, std::size_t length) {
  { Loss::evaluate(y, targets, dy, length) } -> std::same_as<double>;
};

/// Can the outputs of the positions that are there be taken from others'? They lie side by side along the first axis.
template <class Loss, class Scalar>
[[nodiscard]] constexpr bool takes_lengths_of(shape output) noexcept {
  return output.varying_axis() != 2 || takes_length<Loss, Scalar> || requires { Loss::asks_nothing; };
}

/// An output of `length` positions, all of which are there.
[[nodiscard]] constexpr shape cut_to(shape output, std::size_t length) noexcept {
  output.set_varying_axis(0);
  output.e0 = length;
  return output;
}

/// The loss of a sample of which `length` of the output's positions are there, and its gradient: 0 behind them. Without
/// positions both are 0.
template <class Loss, class Scalar>
[[nodiscard]] double evaluate_of_length(const Loss& loss, shape output, std::span<const Scalar> y,
                                        std::span<const typename Loss::template target<Scalar>> targets,
                                        std::span<Scalar> dy, std::size_t length) {
  if constexpr (takes_length<Loss, Scalar>) {
    return loss.evaluate(y, targets, dy, length);
  } else {
    // Of positions along the second axis nothing is asked: takes_lengths_of.
    if (output.varying_axis() != 1 || length >= output.e0) return loss.evaluate(y, targets, dy);
    const std::size_t there = y.size() / output.e0 * length;
    for (Scalar& behind : dy.subspan(there)) behind = 0;
    if (there == 0) return 0;
    const std::size_t asked = Loss::target_count(cut_to(output, length));
    return loss.evaluate(y.first(there), targets.first(asked < targets.size() ? asked : targets.size()),
                         dy.first(there));
  }
}

}  // namespace detail
}  // namespace pergrad::inline v0_1
