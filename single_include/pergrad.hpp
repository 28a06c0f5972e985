// SPDX-License-Identifier: Apache-2.0
// pergrad 0.1.0, the whole library in one header.
// Generated from include/ by single_include/amalgamate.py; do not edit.
#ifndef PERGRAD_SINGLE_HEADER_INCLUDED
#define PERGRAD_SINGLE_HEADER_INCLUDED

// pergrad/pergrad.hpp - everything: networks, per-sample gradients, differential privacy, training

// clang-format off
// pergrad/errors.hpp - every compile-time message of the library, in one room
//
// One class template per mistake: its arguments are the facts, its body is the sentence. A gate (detail/gate.hpp) makes
// sure that only the first mistake of a network is explained, and stand-ins (detail/stand_ins.hpp) take the place of
// what is wrong, so that the compiler prints one error and not its consequences. Each class has a program in
// tests/compile_fail.

#include <cstddef>

// pergrad/shape.hpp - compile-time shapes of one sample, and the small window sizes that layers take
//
// A shape never has a batch axis: everything in this library that carries a shape speaks of ONE sample. That is what
// makes a per-sample gradient well defined, and why a layer cannot mix samples by accident.

namespace pergrad::inline v0_1 {

/// The logical shape of one sample: 1 to 4 extents, outermost first, as in PyTorch without its batch axis.
///
/// `{features}`, `{positions, features}`, `{channels, height, width}` or `{channels, depth, height, width}`.
/// A structural type, so it can be a template argument. Unused extents are 0; `shape{}` has rank 0 and means "no
/// shape". `token_ids` and `variable` make the two special kinds of input.
struct shape {
  // Not first by chance. g++ 12 with AVX-512 passes a constant structure of 32 bytes by value as the broadcast of its
  // first number if all numbers behind it are the same or trailing zeros: {28, 28, 0, 0} arrives as {28, 28, 28, 28}.
  // No 32 bytes of this one can look like that. tests/network/shape_by_value_test.cpp watches over it.
  std::size_t lengths = 0;  ///< see `varying_axis`
  std::size_t e0 = 0;
  std::size_t e1 = 0;
  std::size_t e2 = 0;
  std::size_t e3 = 0;
  std::size_t ids = 0;  ///< not 0: the values are integers 0 .. ids - 1, not numbers to compute with

  constexpr shape() noexcept = default;
  // Implicit, so that a layer can return {channels, height, width}.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr shape(std::size_t first, std::size_t second = 0, std::size_t third = 0, std::size_t fourth = 0) noexcept
      : e0{first}, e1{second}, e2{third}, e3{fourth} {}

  /// 1 or 2: along this axis, samples have a length of their own; 0: all samples are whole.
  [[nodiscard]] constexpr std::size_t varying_axis() const noexcept { return lengths & 3U; }
  constexpr void set_varying_axis(std::size_t axis) noexcept {
    lengths = axis == 0 ? 0 : std::size_t{1} << 31U | axis;  // a number that no extent has
  }
  /// Number of extents, 0 to 4.
  [[nodiscard]] constexpr std::size_t rank() const noexcept {
    return e0 == 0 ? 0U : e1 == 0 ? 1U : e2 == 0 ? 2U : e3 == 0 ? 3U : 4U;
  }
  /// Number of values in a sample: the product of the extents (0 for `shape{}`).
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return e0 * (e1 == 0 ? 1U : e1) * (e2 == 0 ? 1U : e2) * (e3 == 0 ? 1U : e3);
  }
  /// Extent `axis`, counted from the outermost; 1 beyond the rank.
  [[nodiscard]] constexpr std::size_t operator[](std::size_t axis) const noexcept {
    const std::size_t extent = axis == 0 ? e0 : axis == 1 ? e1 : axis == 2 ? e2 : e3;
    return extent == 0 ? 1U : extent;
  }
  friend constexpr bool operator==(const shape&, const shape&) noexcept = default;
};

/// A sequence of integer ids, for a network that begins with an embedding: `{positions}` values in [0, vocabulary).
[[nodiscard]] constexpr shape token_ids(std::size_t positions, std::size_t vocabulary) noexcept {
  shape sequence{positions};
  sequence.ids = vocabulary;
  return sequence;
}
/// The same input with a length a sample: `{positions, features}` or ids of which the first `length` positions are
/// there. What lies beyond contributes nothing to anything.
[[nodiscard]] constexpr shape variable(shape sequence) noexcept {
  sequence.set_varying_axis(1);
  return sequence;
}

/// Depth, height and width of a window, a stride, a padding or a dilation. One number means all three alike; two are
/// height and width, with a depth of 1. A layer looks only at the axes that its input has: height alone for a sequence.
struct extent {
  std::size_t depth = 1;
  std::size_t height = 1;
  std::size_t width = 1;

  constexpr extent() noexcept = default;
  // Implicit, so that `conv2d<16, 8>` reads well.
  constexpr extent(std::size_t all) noexcept  // NOLINT(google-explicit-constructor)
      : depth{all}, height{all}, width{all} {}
  constexpr extent(std::size_t rows, std::size_t columns) noexcept : height{rows}, width{columns} {}
  constexpr extent(std::size_t planes, std::size_t rows, std::size_t columns) noexcept
      : depth{planes}, height{rows}, width{columns} {}
  /// Depth · height · width.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return depth * height * width; }
  friend constexpr bool operator==(const extent&, const extent&) noexcept = default;
};

namespace detail {

/// The numbers of an option: one for all axes, two for height and width, three for all of them; `otherwise` elsewhere.
template <std::size_t... Sizes>
[[nodiscard]] constexpr extent extent_of(std::size_t otherwise) noexcept {
  constexpr std::size_t count = sizeof...(Sizes);
  constexpr std::size_t given[count + 1] = {Sizes..., 0};
  if constexpr (count == 1) {
    return {given[0]};
  } else if constexpr (count == 2) {
    return {otherwise, given[0], given[1]};
  } else if constexpr (count == 3) {
    return {given[0], given[1], given[2]};
  } else {
    return {otherwise};
  }
}

}  // namespace detail

/// Layer option: step between neighbouring windows. `stride<2>`, `stride<2, 1>` (height, width) or `stride<1, 2, 2>`
/// (depth, height, width).
template <std::size_t... Sizes>
struct stride {
  static constexpr extent value = detail::extent_of<Sizes...>(1);
};
/// Layer option: zeros around the input. `padding<3>`, `padding<1, 0>` (height, width) or `padding<0, 1, 1>`, on both
/// sides.
template <std::size_t... Sizes>
struct padding {
  static constexpr extent value = detail::extent_of<Sizes...>(0);
};
/// Layer option: distance between the taps of a kernel; 1 means dense.
template <std::size_t... Sizes>
struct dilation {
  static constexpr extent value = detail::extent_of<Sizes...>(1);
};
/// Layer option of a transposed convolution: rows and columns that its output has more, on the far sides.
template <std::size_t... Sizes>
struct output_padding {
  static constexpr extent value = detail::extent_of<Sizes...>(0);
};
/// Layer option: split channels into independent groups.
template <std::size_t Count>
struct groups {
  static constexpr std::size_t value = Count;
};
/// Layer option: no bias term.
struct no_bias {};

namespace detail {

/// Options of a windowed layer, gathered from its option types in any order.
struct window_options {
  extent stride{1};
  extent padding{0};
  extent dilation{1};
  extent output_padding{0};
  std::size_t groups = 1;
  bool bias = true;
  bool stride_given = false;
  bool output_padding_given = false;
  std::size_t axes_given = 0;  ///< the most numbers that an option has
  bool unknown_given = false;  ///< something that is no option at all

  constexpr void count_axes(std::size_t numbers) noexcept {
    axes_given = numbers > axes_given ? numbers : axes_given;
    unknown_given = unknown_given || numbers == 0 || numbers > 3;
  }
  /// The same options for a layer with fewer axes: an extent of 1 along the others.
  [[nodiscard]] constexpr window_options on(std::size_t axes) const noexcept;
};

/// What is left of an extent for a layer on a sequence (1: height), an image (2) or a volume (3).
[[nodiscard]] constexpr extent on_axes(extent given, std::size_t axes, std::size_t otherwise) noexcept {
  return {axes < 3 ? otherwise : given.depth, given.height, axes < 2 ? otherwise : given.width};
}
constexpr window_options window_options::on(std::size_t axes) const noexcept {
  window_options result = *this;
  result.stride = on_axes(stride, axes, 1);
  result.padding = on_axes(padding, axes, 0);
  result.dilation = on_axes(dilation, axes, 1);
  result.output_padding = on_axes(output_padding, axes, 0);
  result.unknown_given = unknown_given || axes_given > axes;
  return result;
}

template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::stride<Sizes...> option) noexcept {
  options.stride = option.value;
  options.stride_given = true;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::padding<Sizes...> option) noexcept {
  options.padding = option.value;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::dilation<Sizes...> option) noexcept {
  options.dilation = option.value;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::output_padding<Sizes...> option) noexcept {
  options.output_padding = option.value;
  options.output_padding_given = true;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t Count>
constexpr void apply(window_options& options, pergrad::groups<Count> option) noexcept {
  options.groups = option.value;
}
constexpr void apply(window_options& options, no_bias) noexcept { options.bias = false; }

template <class Unknown>
constexpr void apply(window_options& options, Unknown) noexcept {
  options.unknown_given = true;
}

template <class... Options>
[[nodiscard]] constexpr window_options gather_options() noexcept {
  window_options options;
  (apply(options, Options{}), ...);
  return options;
}

/// Windows that fit along one axis: floor((size + 2·padding − dilation·(kernel − 1) − 1) / stride) + 1, or 0 if none
/// does.
[[nodiscard]] constexpr std::size_t window_count(std::size_t size, std::size_t kernel, std::size_t stride,
                                                 std::size_t padding, std::size_t dilation) noexcept {
  const std::size_t reach = dilation * (kernel - 1) + 1;
  const std::size_t padded = size + 2 * padding;
  return kernel == 0 || stride == 0 || padded < reach ? 0 : (padded - reach) / stride + 1;
}

/// The inner axes of a sample of shape {channels, ...}: a sequence's positions are its height.
[[nodiscard]] constexpr extent image_size(shape of) noexcept {
  return of.rank() == 2 ? extent{of.e1, 1} : of.rank() == 3 ? extent{of.e1, of.e2} : extent{of[1], of[2], of[3]};
}
/// {channels, positions}, {channels, height, width} or {channels, depth, height, width}.
[[nodiscard]] constexpr shape image_shape(std::size_t channels, extent size, std::size_t axes) noexcept {
  return axes == 1   ? shape{channels, size.height}
         : axes == 2 ? shape{channels, size.height, size.width}
                     : shape{channels, size.depth, size.height, size.width};
}
[[nodiscard]] constexpr bool has_zero(extent of) noexcept { return of.size() == 0; }

}  // namespace detail
}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1::error {

/// Position of a layer in its network's list, counted from 0; a nested layer has the index of the outermost one.
template <std::size_t Index>
struct at_layer {};
/// The layer that is wrong.
template <class Layer>
struct layer_type {};
/// The shape that the layer gets.
template <shape Given>
struct gets {};
/// A number of parameters or of positions.
template <std::size_t Count>
struct count {};
/// A list of entries of a network.
template <std::size_t... Index>
struct entries {};

/// Names of the functions that messages speak of.
namespace function {
// clang-format off
struct clip; struct clip_per_layer; struct clip_per_group; struct normalise; struct sum; struct mean; struct weighted_sum; struct second_moment; struct variance;
struct materialise; struct outputs; struct gram; struct losses; struct l2_norms; struct squared_l2_norms; struct dot;
struct with_method; struct with_strategy; struct with_randomness; struct plus; struct minus; struct times; struct min; struct max; struct pow; struct divided_by; struct assign; struct accumulate; struct evaluate; struct evaluate_into;
struct gaussian_noise; struct step;
// clang-format on
}  // namespace function

template <class...>
inline constexpr bool never = false;

// clang-format off
template <class Where, class Layer, class Given> struct no_output_shape {
  static_assert(never<Where>, "a layer needs: static constexpr pergrad::shape output_shape(pergrad::shape in); see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct no_parameter_count {
  static_assert(never<Where>, "a layer needs: static constexpr std::size_t parameter_count(pergrad::shape in); see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct no_forward {
  static_assert(never<Where>, "a layer needs: template <class S> static void forward(pergrad::shape in, std::span<const S> parameters, std::span<const S> x, std::span<S> y); see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct no_backward {
  static_assert(never<Where>, "a layer needs: template <class S> static void backward(pergrad::shape in, std::span<const S> parameters, std::span<const S> x, std::span<const S> backprop, std::span<S> dx); see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct no_factors {
  static_assert(never<Where>, "a layer with parameters needs: static constexpr auto factors(pergrad::shape in), one factor a parameter block; see docs/custom_layers.md");
};
template <class Where, class Layer, class FactorsCover, class ParametersAre> struct factors_do_not_cover_the_parameters {
  static_assert(never<Where>, "the sizes of a layer's factors must add up to its parameter_count; see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct factor_reads_outside_the_tape {
  static_assert(never<Where>, "a factor's operand must lie inside the values it is taken from (input, output, backprop or saved); see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct mixes_samples {
  static_assert(never<Where>, "this layer mixes the samples of a batch, so a per-sample gradient does not exist; use a per-sample normalisation such as group_norm; see docs/privacy.md");
};
template <class Where, class Layer, class Given> struct needs_an_image {
  static_assert(never<Where>, "this layer needs an input of shape {channels, height, width}; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct needs_channels_and_positions {
  static_assert(never<Where>, "this layer needs an input of shape {channels, positions}: put pergrad::transpose before it if the sequence is {positions, features}; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct needs_a_volume {
  static_assert(never<Where>, "this layer needs an input of shape {channels, depth, height, width}; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct needs_two_axes {
  static_assert(never<Where>, "pergrad::transpose exchanges two axes, so it needs an input of shape {positions, features} or {channels, positions}; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct reshape_changes_size {
  static_assert(never<Where>, "pergrad::reshape keeps every value, so its shape must have as many as the input; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct output_padding_too_large {
  static_assert(never<Where>, "output_padding must be smaller than the stride or the dilation along its axis; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct needs_features {
  static_assert(never<Where>, "a linear layer needs an input of shape {features} or {positions, features}: put pergrad::flatten before it; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct kernel_larger_than_padded_input {
  static_assert(never<Where>, "the kernel (with its dilation) is larger than the padded input: no window fits; see docs/networks.md");
};
template <class Where, class Layer, class Given> struct groups_do_not_divide_channels {
  static_assert(never<Where>, "groups must divide both the input's and the output's channels; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct padding_larger_than_half_the_window {
  static_assert(never<Where>, "a pool's padding must be at most half its window, or a window could lie in the padding alone; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct zero_is_no_size {
  static_assert(never<Where>, "channels, kernel, stride, dilation, groups and output sizes must be at least 1; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct option_not_offered {
  static_assert(never<Where>, "this layer does not take one of the options given to it; see its header and docs/layers.md");
};
template <class Where, class Layer, class Given> struct layer_rejects_its_input {
  static_assert(never<Where>, "the layer's own accepts(shape) says no to this input shape; see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct layer_gives_no_output {
  static_assert(never<Where>, "the layer's output_shape(shape) has no values for this input; see docs/networks.md");
};
template <class Where, class Branch, class Shortcut> struct residual_branches_differ {
  static_assert(never<Where>, "both branches of a residual must end in the same shape; give the shortcut a pergrad::projection<...>; see docs/networks.md");
};
template <class Where, class Layer, class Given> struct element_function_changes_shape {
  static_assert(never<Where>, "a layer with value() and derivative() works element by element, so it keeps its input's shape; see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct ids_into_a_float_layer {
  static_assert(never<Where>, "this layer computes with numbers, its input is integer ids: put pergrad::embedding<features> before it; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct needs_ids {
  static_assert(never<Where>, "an embedding looks up integer ids: begin the network with pergrad::token_ids(positions, vocabulary); see docs/layers.md");
};
template <class Where, class Layer, class Given> struct needs_a_sequence {
  static_assert(never<Where>, "this layer needs an input of shape {positions, features}; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct tied_blocks_differ {
  static_assert(never<Where>, "all uses of one pergrad::tied key must be of the same layers with the same number of parameters, all frozen or none; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct lengths_are_lost {
  static_assert(never<Where>, "samples here have lengths of their own, and this layer does not say what becomes of positions beyond them: reduce with pergrad::mean_over_positions or pergrad::select_last first; see docs/layers.md");
};
template <class Where, class Layer, class Given> struct not_on_tiles {
  static_assert(never<Where>, "a layer with on_tiles needs: template <class Tile> static void forward(const Tile& tile), the same for backward, output_shape, and parameter_count if it has parameters; see docs/custom_layers.md");
};
template <class Where, class Layer, class Given> struct heads_do_not_divide_features {
  static_assert(never<Where>, "the number of attention heads must divide the number of features; see docs/layers.md");
};
template <class Where, class Layer, class First, class Second> struct branches_do_not_fit {
  static_assert(never<Where>, "the two inputs of this layer do not fit each other; see docs/layers.md");
};
template <class Network> struct empty_network {
  static_assert(never<Network>, "a network needs an input shape and at least one layer: pergrad::network<pergrad::shape{1, 28, 28}, pergrad::flatten, pergrad::linear<10>>; see docs/networks.md");
};
template <class Input> struct not_a_shape {
  static_assert(never<Input>, "every extent of the input's shape must be at least 1; see docs/networks.md");
};
template <class Loss, class Output> struct loss_rejects_the_networks_output {
  static_assert(never<Loss>, "this loss does not fit the network's output shape: end the network in pergrad::flatten and pergrad::linear<outputs>, or take another loss; see docs/networks.md");
};
template <class Loss> struct not_a_loss {
  static_assert(never<Loss>, "a loss needs: template target<S>, target_count(shape), accepts(shape), valid(shape, targets) and evaluate(y, targets, dy), which returns one double a sample; see docs/custom_layers.md");
};
template <class Network, class Loss, class Batch> struct batch_does_not_fit {
  static_assert(never<Network>, "the batch must be made for this network and this loss: pergrad::batch<net_type, loss_type> samples{inputs, targets}; see docs/expressions.md");
};
template <class Network, class Tape> struct tape_does_not_fit {
  static_assert(never<Network>, "the tape must be made for this network: net_type::tape tape{exec, pergrad::max_batch{256}}; see docs/expressions.md");
};
template <class Tape> struct temporary_tape {
  static_assert(never<Tape>, "per-sample gradients are lazy and read the tape later: name it first (net_type::tape tape{exec, pergrad::max_batch{256}};) and pass the name; see docs/expressions.md");
};
template <class What> struct temporary_operand {
  static_assert(never<What>, "expressions are lazy and read the network, the batch and the noise generator later: give them a name and pass the name; see docs/expressions.md");
};
template <class Function, class... Given> struct cannot_be_clipped {
  static_assert(never<Function>, "only per-sample gradients can be clipped, once, and with a bound that says so: clip(g, pergrad::l2_clip_norm{1.0}); sum them afterwards; see docs/expressions.md");
};
template <class Function, class... Given> struct cannot_be_summed {
  static_assert(never<Function>, "sum takes per-sample gradients, clipped or not, and mean takes unclipped ones: sum(clip(g, pergrad::l2_clip_norm{1.0})), sum(g), mean(g); a mean of clipped ones is their sum divided by a public pergrad::expected_batch_size; see docs/expressions.md");
};
template <class Function, class... Given> struct needs_per_sample_gradients {
  static_assert(never<Function>, "this function takes per-sample gradients g as pergrad::per_sample_gradients(net, loss, batch, tape) gives them, not an expression made of them; see the table in docs/expressions.md");
};
template <class Function, class... Given> struct has_no_meaning {
  static_assert(never<Function>, "this composition of per-sample gradient expressions has no meaning; see the table in docs/expressions.md");
};
template <class Function, class Needed, class Given> struct operand_does_not_fit {
  static_assert(never<Function>, "this function takes numbers of the network's own type, one after the other: a std::vector or std::span of float, or of double for a network of doubles; see docs/expressions.md");
};
template <class Destination, class Needed, class Expression> struct destination_does_not_fit {
  static_assert(never<Destination>, "a destination is a std::vector or std::span of the result's type: double for one number a sample and for gram, the network's type for sums, gradients and outputs; see docs/expressions.md");
};
template <class Function, class Needed, class Given> struct plain_number {
  static_assert(never<Function>, "a plain number does not say what it stands for: write pergrad::l2_clip_norm{1.0}, pergrad::noise_multiplier{1.1} or pergrad::expected_batch_size{64}; see docs/privacy.md");
};
template <class Function, class First> struct needs_an_executor {
  static_assert(never<Function>, "whatever computes names its executor first: pergrad::host exec; evaluate_into(exec, destination, expression); see docs/expressions.md");
};
template <class Sum> struct noise_on_an_unclipped_sum {
  static_assert(never<Sum>, "noise protects only a sum of bounded sensitivity: write sum(clip(g, pergrad::l2_clip_norm{1.0})) + gaussian_noise(...); see docs/privacy.md");
};
template <class Given> struct total_needs_a_clipped_sum {
  static_assert(never<Given>, "a bounded_total takes only clipped sums, whose sensitivity is known: accumulate(total, sum(clip(g, pergrad::l2_clip_norm{1.0}))); see docs/privacy.md");
};
template <class Gradient> struct private_step_needs_a_noised_sum {
  static_assert(never<Gradient>, "a private gradient and a private optimizer take only a noised sum: evaluate_into(exec, private_gradient, sum(clip(g, pergrad::l2_clip_norm{1.0})) + gaussian_noise(...)), then optimizer.step(exec, net, private_gradient, divisor); see docs/privacy.md");
};
template <class... Given> struct release_needs_noise {
  static_assert(never<Given...>, "evaluate_into releases only a clipped and noised sum, and only into a pergrad::private_gradient; for anything else use pergrad::unprotected::evaluate_into; see docs/privacy.md");
};
template <class Method, class Where, class Positions> struct product_method_needs_one_position {
  static_assert(never<Method>, "the product method is exact only for a block with one position (T = 1); use gram, direct or instantiate; see docs/per_sample_gradients.md");
};
template <class Method, class Entries> struct method_not_offered {
  static_assert(never<Method>, "with_method takes automatic, product, gram, direct or instantiate, for entries of the unfolded list below 64 and below the list's size; see docs/per_sample_gradients.md");
};
// clang-format on

}  // namespace pergrad::inline v0_1::error
// pergrad/detail/no_fast_math.hpp - refuses flags under which a NaN is not seen and a bound does not hold

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ + 0 != 0)
#error \
    "pergrad: -ffast-math, -Ofast and -ffinite-math-only break the clip bound, the noise and the search for non-finite gradients: compile without them; see docs/privacy.md"
#endif
// clang-format on

// pergrad/batch.hpp - samples with their targets: a whole data set, and the batch of it that one step sees
//
// Both are views: the caller owns the numbers. A batch of a data set is a list of record numbers; no sample is copied.

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace pergrad::inline v0_1 {

/// The type of one target value of a loss.
template <class Loss, class Scalar>
using target_of = typename Loss::template target<Scalar>;

/// Records one after the other: inputs in PyTorch's order `[records][input shape]`, one target a record (or several),
/// and, where samples have lengths of their own, one length a record. `Value` is the type of an input value: float or
/// double, or std::int32_t for ids.
template <class Value, class Target>
class dataset {
 public:
  /// Throws std::invalid_argument unless all spans hold the same, whole number of records, and for a length that is 0
  /// or more than there are positions; std::out_of_range for an id outside the shape's vocabulary. All records are
  /// looked at here, so that no later error depends on which ones are drawn.
  // By reference: g++ 12 for AVX-512 passes a constant shape {n, n, 0, 0} by value as {n, n, n, n}.
  dataset(std::span<const Value> inputs, std::span<const Target> targets, const shape& input,
          std::size_t targets_per_record = 1, std::span<const std::uint32_t> lengths = {})
      : inputs_{inputs}, targets_{targets}, lengths_{lengths}, input_{input}, targets_per_record_{targets_per_record} {
    if (input.size() == 0 || targets_per_record == 0 || inputs.size() % input.size() != 0 ||
        targets.size() % targets_per_record != 0 ||
        inputs.size() / input.size() != targets.size() / targets_per_record) {
      throw std::invalid_argument("pergrad: dataset: " + std::to_string(inputs.size()) +
                                  " input values in records of " + std::to_string(input.size()) + " do not match " +
                                  std::to_string(targets.size()) + " targets, " + std::to_string(targets_per_record) +
                                  " a record");
    }
    if (lengths.size() != (input.varying_axis() != 0 ? size() : 0)) {
      throw std::invalid_argument("pergrad: dataset: " + std::to_string(lengths.size()) + " lengths for " +
                                  std::to_string(size()) + " records of " +
                                  (input.varying_axis() != 0 ? "varying length" : "fixed length"));
    }
    for (std::size_t record = 0; record < size(); ++record) require_valid(record);
  }

  /// Number of records. Under add-or-remove-one neighbours this is a private value.
  [[nodiscard]] std::size_t size() const noexcept { return inputs_.size() / input_.size(); }
  [[nodiscard]] shape input_shape() const noexcept { return input_; }
  [[nodiscard]] const Value* input(std::size_t record) const noexcept {
    return inputs_.data() + record * input_.size();
  }
  [[nodiscard]] std::span<const Target> targets(std::size_t record) const noexcept {
    return targets_.subspan(record * targets_per_record_, targets_per_record_);
  }
  [[nodiscard]] std::span<const Target> targets() const noexcept { return targets_; }
  /// Positions of a record that are there.
  [[nodiscard]] std::uint32_t length(std::size_t record) const noexcept {
    return lengths_.empty() ? static_cast<std::uint32_t>(input_.e0) : lengths_[record];
  }

  /// Throws std::out_of_range for an id of this record outside the vocabulary, std::invalid_argument for its length.
  void require_valid(std::size_t record) const {
    if (!lengths_.empty() && (lengths_[record] == 0 || lengths_[record] > input_.e0)) {
      throw std::invalid_argument("pergrad: dataset: record " + std::to_string(record) + " has length " +
                                  std::to_string(lengths_[record]) + ", allowed are 1 to " + std::to_string(input_.e0));
    }
    if constexpr (std::is_integral_v<Value>) {
      const Value* ids = input(record);
      bool outside = false;  // one pass without branches, as this is done for every sample of every batch
      for (std::size_t i = 0; i < input_.size(); ++i) {
        outside |= ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= input_.ids;
      }
      for (std::size_t i = 0; outside && i < input_.size(); ++i) {
        if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= input_.ids) {
          throw std::out_of_range("pergrad: dataset: record " + std::to_string(record) + ", position " +
                                  std::to_string(i) + ": id " + std::to_string(ids[i]) + " of a vocabulary of " +
                                  std::to_string(input_.ids));
        }
      }
    }
  }

 private:
  std::span<const Value> inputs_;
  std::span<const Target> targets_;
  std::span<const std::uint32_t> lengths_;
  shape input_;
  std::size_t targets_per_record_;
};

namespace detail {

/// Throws std::invalid_argument unless the records are of the kind that the network takes.
template <class Network, class Value, class Target>
void require_fit(const dataset<Value, Target>& records, const char* where) {
  constexpr shape wanted = Network::input_shape;
  const shape given = records.input_shape();
  if (given.size() != wanted.size()) {
    throw std::invalid_argument(std::string{"pergrad: "} + where + ": records have " + std::to_string(given.size()) +
                                " input values, the network takes " + std::to_string(wanted.size()));
  }
  if (given.ids > wanted.ids) {
    throw std::invalid_argument(std::string{"pergrad: "} + where + ": records have a vocabulary of " +
                                std::to_string(given.ids) + " ids, the network one of " + std::to_string(wanted.ids));
  }
  if (given.varying_axis() != wanted.varying_axis() || (wanted.varying_axis() != 0 && given.e0 != wanted.e0)) {
    throw std::invalid_argument(std::string{"pergrad: "} + where + ": records have " +
                                (given.varying_axis() != 0 ? "varying lengths" : "one length") +
                                ", the network takes " +
                                (wanted.varying_axis() != 0 ? "varying lengths" : "one length"));
  }
}

}  // namespace detail

/// The samples of one evaluation.
template <class Network, class Loss>
class batch {
 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;

  /// All samples of two spans. Throws std::invalid_argument if they do not fit the network, the loss or each other, or
  /// if a target is not valid for the loss.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the constructor that it delegates to does
  batch(std::span<const input_value> inputs, std::span<const target> targets)
      : batch{inputs, targets, std::span<const std::uint32_t>{}} {}
  /// The same for samples with lengths of their own.
  batch(std::span<const input_value> inputs, std::span<const target> targets, std::span<const std::uint32_t> lengths)
      : records_{inputs, targets, Network::input_shape, per_sample, lengths}, count_{records_.size()} {
    for (std::size_t i = 0; i < count_; ++i) check(i);
  }
  /// The records of a data set that `ids` lists. The list is read when the batch is evaluated.
  /// Throws std::invalid_argument or std::out_of_range as above.
  batch(const dataset<input_value, target>& records, std::span<const std::uint32_t> ids)
      : records_{records}, ids_{ids}, gathered_{true}, count_{ids.size()} {
    detail::require_fit<Network>(records, "batch");
    for (std::size_t i = 0; i < count_; ++i) {
      if (ids[i] >= records.size()) {
        throw std::out_of_range("pergrad: batch: record " + std::to_string(ids[i]) + " of a data set with " +
                                std::to_string(records.size()));
      }
      records.require_valid(ids[i]);
      check(i);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] const input_value* input(std::size_t sample) const noexcept { return records_.input(record(sample)); }
  [[nodiscard]] std::uint32_t length(std::size_t sample) const noexcept { return records_.length(record(sample)); }
  /// Number of a sample in its data set, or in the spans that the batch was made of.
  [[nodiscard]] std::size_t record(std::size_t sample) const noexcept { return gathered_ ? ids_[sample] : sample; }
  [[nodiscard]] std::span<const target> targets(std::size_t sample) const noexcept {
    return records_.targets(record(sample));
  }

 private:
  static constexpr std::size_t per_sample = Loss::target_count(Network::output_shape);
  void check(std::size_t sample) const {
    const std::span<const target> these = targets(sample);
    if (these.size() != per_sample || !Loss::valid(Network::output_shape, these)) {
      throw std::invalid_argument("pergrad: batch: sample " + std::to_string(sample) + " has a target" +
                                  (these.size() == 1 ? " of " + std::to_string(these[0]) : std::string{}) +
                                  " that this loss does not take");
    }
  }

  dataset<input_value, target> records_;
  std::span<const std::uint32_t> ids_;
  bool gathered_ = false;
  std::size_t count_;
};

}  // namespace pergrad::inline v0_1
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
//   tiled        on_tiles, forward(tile)       anything else, on the samples of a tile together: recurrent layers and
//                                              attention share their matrix products, and see lengths, ids, a second
//                                              input and randomness (host/tile_view.hpp lists what a tile offers)

#include <concepts>
#include <utility>

// pergrad/gradients/factors.hpp - how a layer states its per-sample gradient: once, as factors that lie on the tape
//
// Every parameter block's gradient for sample b is one of
//     outer-product sum    G_b = sum_t  delta_{b,t} (x) x_{b,t}        (rows = delta, columns = x)
//     elementwise sum      g_b = sum_t  delta_{b,t} (.) u_{b,t}        (u = 1 for a bias)
//     row sum              G_b[id] = sum over t with id_{b,t} = id of  delta_{b,t}   (a table, few rows used)
// so a layer only says WHERE delta, x and u lie. Norms, clipping, sums, materialised gradients and the memory plan are
// derived. An affine layer (linear, convolution) says even less: y_t = W view_t(x) + b; the view is its x, the output
// gradient its delta.

#include <array>

namespace pergrad::inline v0_1 {

/// Where a factor's values lie, for one sample.
enum class source {
  activation,         ///< the layer's input x
  second_activation,  ///< the second input of a layer that has two
  output,             ///< the layer's output y
  backprop,           ///< the gradient of the loss with respect to the layer's output
  saved,              ///< values that the layer's own forward or backward wrote to its saved area
  ones                ///< the constant 1 (elementwise factors only)
};

/// One factor: values at `offset + t * position_stride + i * stride` of a source, for position t and element i.
struct operand {
  source from = source::ones;
  std::size_t offset = 0;
  std::size_t position_stride = 0;
  std::size_t stride = 1;
};

/// One parameter block's gradient. Make it with `outer_sum` or `elementwise_sum`.
struct factor {
  bool outer = false;
  std::size_t positions = 1;  ///< T
  std::size_t rows = 0;       ///< width of delta; for an elementwise sum the block's size
  std::size_t columns = 1;    ///< width of x; 1 for an elementwise sum
  operand delta;
  operand other;        ///< x of an outer product, u of an elementwise product, the ids of a row sum
  bool sparse = false;  ///< a row sum: `rows` is the vocabulary, `columns` the width of delta
  std::size_t skipped_id = ~std::size_t{0};  ///< of a row sum: an id whose row has no gradient

  /// Parameters in the block; an outer block is stored `[rows][columns]`, like PyTorch's `[out, in]`.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

/// `G = sum_t delta_t (x) x_t`, a block of `rows * columns` parameters.
[[nodiscard]] constexpr factor outer_sum(std::size_t positions, std::size_t rows, operand delta, std::size_t columns,
                                         operand x) noexcept {
  return {.outer = true, .positions = positions, .rows = rows, .columns = columns, .delta = delta, .other = x};
}
/// `g = sum_t delta_t (.) u_t`, a block of `count` parameters. With `u` left out, u = 1: a bias.
[[nodiscard]] constexpr factor elementwise_sum(std::size_t positions, std::size_t count, operand delta,
                                               operand u = {}) noexcept {
  return {.positions = positions, .rows = count, .delta = delta, .other = u};
}
/// `G[id] = sum of delta_t over the positions t that hold id`, a block of `vocabulary * width` parameters. The ids are
/// the layer's input. With a position stride of 0 all positions share one delta.
[[nodiscard]] constexpr factor row_sum(std::size_t positions, std::size_t vocabulary, std::size_t width, operand delta,
                                       std::size_t skipped_id = ~std::size_t{0}) noexcept {
  return {.positions = positions,
          .rows = vocabulary,
          .columns = width,
          .delta = delta,
          .other = {.from = source::activation},
          .sparse = true,
          .skipped_id = skipped_id};
}

/// A weight matrix `[rows][columns]` that begins at `offset` of a layer's parameters.
struct matrix {
  std::size_t offset = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

/// What a layer's `factors(shape)` returns: its blocks in the order of its parameters.
template <std::size_t Count>
using factor_list = std::array<factor, Count>;

template <class... Factors>
[[nodiscard]] constexpr factor_list<sizeof...(Factors)> list_factors(Factors... factors) noexcept {
  return {factors...};
}

/// The geometry of an affine layer  y_t = W view_t(x) + b  on a (channels, depth, height, width) input.
///
/// View t = (d, i, j) sees, per group, `kernel` taps `dilation` apart from row `i * stride - padding` on. Parameters: W
/// as `[out, in / groups, kernel.depth, kernel.height, kernel.width]`, then b as `[out]`: PyTorch's order. A linear
/// layer is the view that sees everything at one position; images and sequences have a depth of 1.
///
/// With `adjoint` the layer is the map's adjoint, a transposed convolution: `in_...` describes its output y and
/// `out_...` its input x, y = sum_t view_t^T(W^T x_t) + b with b as `[in]`. Its gradient is the outer-product sum of
/// the same map, with x in the place of delta and the output gradient in the place of x.
struct affine_map {
  std::size_t in_channels = 0;
  extent in_size;
  std::size_t out_channels = 0;
  extent out_size;
  extent kernel{1};
  extent stride{1};
  extent padding{0};
  extent dilation{1};
  std::size_t groups = 1;
  bool bias = true;
  bool adjoint = false;

  /// Positions T of the view.
  [[nodiscard]] constexpr std::size_t positions() const noexcept { return out_size.size(); }
  /// Width of the view per group: d.
  [[nodiscard]] constexpr std::size_t view_width() const noexcept { return in_channels / groups * kernel.size(); }
  /// Outputs per group: p.
  [[nodiscard]] constexpr std::size_t group_outputs() const noexcept { return out_channels / groups; }
  [[nodiscard]] constexpr std::size_t weight_count() const noexcept { return out_channels * view_width(); }
  [[nodiscard]] constexpr std::size_t bias_count() const noexcept {
    return bias ? (adjoint ? in_channels : out_channels) : 0;
  }
  [[nodiscard]] constexpr std::size_t parameter_count() const noexcept { return weight_count() + bias_count(); }
};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// Input rows (or columns) `begin .. end - 1` that one output row (or column) of a pool sees, inside the input.
struct window_range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

namespace detail {

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
concept has_value = requires(float x) {
  { Layer::value(x) } -> std::convertible_to<float>;
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
  Layer::factors(in).size();
}
|| requires(shape in) { Layer::factors(in, in).size(); };
template <class Layer>
concept has_saved_count = requires(shape in) {
  { Layer::saved_count(in) } -> std::convertible_to<std::size_t>;
};
/// Stands for any tile where only the signature of a layer's function is asked for.
struct any_tile;
template <class Layer>
concept is_tiled = requires(const any_tile& tile) {
  requires Layer::on_tiles;
  Layer::forward(tile);
  Layer::backward(tile);
};
/// A tiled layer that reads and writes values as the executor stores them (channels last), not in PyTorch's order.
template <class Layer>
concept reads_images = requires {
  requires Layer::stored_order;
};
/// A layer whose input may be integer ids.
template <class Layer>
concept takes_ids = requires {
  requires Layer::takes_ids;
};
template <class Layer>
concept has_scratch_count = requires(shape in) {
  { Layer::scratch_count(in) } -> std::convertible_to<std::size_t>;
};
/// Weight matrices `[rows][columns]` among a layer's parameters, of which a tile also offers the transposes.
template <class Layer>
concept has_matrices = requires(shape in) {
  Layer::matrices(in).size();
}
|| requires(shape in) { Layer::matrices(in, in).size(); };
/// How many of the output's positions are there if `length` of the input's are. Without it, a layer that works position
/// by position keeps the length and any other loses it. If positions change their axis, output_shape says so.
template <class Layer>
concept has_output_length = requires(shape in, std::size_t length) {
  { Layer::output_length(in, length) } -> std::convertible_to<std::size_t>;
};
template <class Layer>
concept has_windows = requires(shape in, std::size_t i, float x) {
  { Layer::rows(in, i) } -> std::convertible_to<window_range>;
  { Layer::columns(in, i) } -> std::convertible_to<window_range>;
  { Layer::combine(x, x) } -> std::convertible_to<float>;
};
template <class Layer, class Scalar = float>
concept has_plain_forward = requires(shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                                     std::span<Scalar> y) {
  Layer::forward(in, w, x, y);
};
template <class Layer, class Scalar = float>
concept has_saving_forward = requires(shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                                      std::span<Scalar> y) {
  Layer::forward(in, w, x, y, y);
};
template <class Layer, class Scalar = float>
concept has_plain_backward = requires(shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                                      std::span<Scalar> dx) {
  Layer::backward(in, w, x, x, dx);
};
template <class Layer, class Scalar = float>
concept has_saving_backward = requires(shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                                       std::span<Scalar> dx) {
  Layer::backward(in, w, x, x, dx, dx);
};
template <class Layer>
concept has_general_forward = has_plain_forward<Layer> || has_saving_forward<Layer>;
template <class Layer>
concept has_general_backward = has_plain_backward<Layer> || has_saving_backward<Layer>;

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

/// Saved and scratch values may depend on the second input of a layer that has one.
template <class Layer>
[[nodiscard]] constexpr std::size_t saved_count_of(shape in, shape second) {
  if constexpr (requires { Layer::saved_count(in, second); }) {
    return Layer::saved_count(in, second);
  } else if constexpr (has_saved_count<Layer>) {
    return Layer::saved_count(in);
  } else {
    return 0;
  }
}
template <class Layer>
[[nodiscard]] constexpr std::size_t scratch_count_of(shape in, shape second) {
  if constexpr (requires { Layer::scratch_count(in, second); }) {
    return Layer::scratch_count(in, second);
  } else if constexpr (has_scratch_count<Layer>) {
    return Layer::scratch_count(in);
  } else {
    return 0;
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
/// A layer's factors; those of a layer with two inputs may depend on both.
template <class Layer>
[[nodiscard]] constexpr auto factors_of(shape in, shape second) {
  if constexpr (requires { Layer::factors(in, second); }) {
    return Layer::factors(in, second);
  } else {
    return Layer::factors(in);
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
  } else {
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
///           computed; `evaluate(y, targets, dy)` returns the loss and writes its gradient with respect to y
template <class Loss>
concept loss = requires(shape output, std::span<const float> y, std::span<float> dy,
                        std::span<const typename Loss::template target<float>> targets) {
  { Loss::target_count(output) } -> std::convertible_to<std::size_t>;
  { Loss::accepts(output) } -> std::convertible_to<bool>;
  { Loss::valid(output, targets) } -> std::convertible_to<bool>;
  { Loss::evaluate(y, targets, dy) } -> std::same_as<double>;
};

}  // namespace pergrad::inline v0_1
// pergrad/data/cifar.hpp - reads CIFAR-10, the binary version, and refuses files that are not exactly that
//
// Format (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, and the data set's page,
// https://www.cs.toronto.edu/~kriz/cifar.html): a file is a row of records without any header. A record is
//
//   offset 0       1 byte      label, 0 ... 9
//   offset 1       1024 bytes  red, row by row, 32 x 32
//   offset 1025    1024 bytes  green
//   offset 2049    1024 bytes  blue
//
// which is (channels, height, width) order already. data_batch_1.bin ... data_batch_5.bin are the training images,
// test_batch.bin the test images, 10,000 records each.

#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

// pergrad/data/idx.hpp - reads IDX files, the format of MNIST and Fashion-MNIST, and believes nothing in them unchecked
//
// Format (Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"; all integers big-endian):
//
//   offset 0        2 bytes   zero
//   offset 2        1 byte    element type; 0x08 = unsigned byte, the only one read here
//   offset 3        1 byte    number of dimensions d, at least one
//   offset 4        4 d bytes extents e_1 ... e_d, the slowest-varying first
//   offset 4 + 4 d  e_1 * ... * e_d bytes, nothing after them
//
// The extents are claims of the file. They are multiplied with an overflow check and compared with the bytes that are
// there before anything of that size is allocated.

#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>

namespace pergrad::inline v0_1 {

/// An array of bytes as an IDX file holds it. Invariant: `values.size()` is the product of `extents`.
struct idx_array {
  std::vector<std::size_t> extents;  ///< slowest-varying dimension first; for images: count, height, width
  std::vector<std::uint8_t> values;  ///< row-major
};

namespace detail::idx {

[[noreturn]] inline void throw_error(std::string_view name, std::size_t offset, const std::string& what) {
  throw std::runtime_error("pergrad: " + std::string(name) + ", byte " + std::to_string(offset) + ": " + what);
}

[[nodiscard]] inline std::string hex_byte(std::uint8_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  return {'0', 'x', digits[value >> 4U], digits[value & 15U]};
}

[[nodiscard]] inline std::string list_extents(const std::vector<std::size_t>& extents) {
  std::string text;
  for (const std::size_t extent : extents) {
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  }
  return text;
}

/// Reads a whole file of any kind (a pipe too: its size is not asked for). Throws std::runtime_error.
[[nodiscard]] inline std::vector<std::uint8_t> read_bytes(const std::string& path) {
  struct closer {
    void operator()(std::FILE* stream) const noexcept { static_cast<void>(std::fclose(stream)); }
  };
  const auto fail = [&path](const char* verb) {
    throw std::runtime_error("pergrad: cannot " + std::string(verb) + " " + path + ": " +
                             std::generic_category().message(errno));
  };
  const std::unique_ptr<std::FILE, closer> stream(std::fopen(path.c_str(), "rb"));
  if (!stream) {
    fail("open");
  }
  constexpr std::size_t chunk = std::size_t{1} << 16U;
  std::vector<std::uint8_t> bytes;
  std::size_t used = 0;
  for (std::size_t got = chunk; got == chunk; used += got) {
    bytes.resize(used + chunk);
    got = std::fread(bytes.data() + used, 1, chunk, stream.get());
  }
  if (std::ferror(stream.get()) != 0) {
    fail("read");
  }
  bytes.resize(used);
  return bytes;
}

}  // namespace detail::idx

/// Parses the bytes of one IDX file of unsigned bytes. `name` is used in error messages only.
/// Throws std::runtime_error naming the file, the byte offset, what was found there and what was expected: for a
/// truncated header, a wrong magic number or element type, no dimensions, extents whose product overflows, and a
/// payload that is shorter or longer than the extents say.
[[nodiscard]] inline idx_array parse_idx(std::span<const std::uint8_t> bytes, std::string_view name) {
  constexpr std::size_t magic_size = 4;
  constexpr std::size_t extent_size = 4;
  constexpr std::uint8_t unsigned_byte = 0x08;
  const auto fail = [name](std::size_t offset, const std::string& what) {
    detail::idx::throw_error(name, offset, what);
  };

  if (bytes.size() < magic_size) {
    fail(bytes.size(), "the file ends inside the IDX magic number; expected " + std::to_string(magic_size) + " bytes");
  }
  for (std::size_t offset = 0; offset < 2; ++offset) {
    if (bytes[offset] != 0) {
      fail(offset, "found " + detail::idx::hex_byte(bytes[offset]) + ", expected the zero that starts every IDX file");
    }
  }
  if (bytes[2] != unsigned_byte) {
    fail(2, "found element type " + detail::idx::hex_byte(bytes[2]) + ", expected 0x08 (unsigned byte)");
  }
  const std::size_t dimensions = bytes[3];
  if (dimensions == 0) {
    fail(3, "found 0 dimensions, expected at least 1");
  }
  const std::size_t header_size = magic_size + extent_size * dimensions;
  if (bytes.size() < header_size) {
    fail(bytes.size(), "the file ends inside the IDX header; expected " + std::to_string(header_size) + " bytes for " +
                           std::to_string(dimensions) + " dimensions");
  }

  idx_array array;
  array.extents.reserve(dimensions);
  bool empty = false;
  for (std::size_t offset = magic_size; offset < header_size; offset += extent_size) {
    std::uint32_t extent = 0;
    for (const std::uint8_t byte : bytes.subspan(offset, extent_size)) {
      extent = (extent << 8U) | byte;
    }
    array.extents.push_back(extent);
    empty = empty || extent == 0;
  }
  std::size_t count = empty ? 0 : 1;
  for (std::size_t axis = 0; axis < dimensions && !empty; ++axis) {
    if (array.extents[axis] > std::numeric_limits<std::size_t>::max() / count) {
      fail(magic_size + extent_size * axis, "the product of the extents " + detail::idx::list_extents(array.extents) +
                                                " overflows, expected at most the bytes of the file");
    }
    count *= array.extents[axis];
  }

  const std::size_t payload = bytes.size() - header_size;
  if (payload < count) {
    fail(bytes.size(), "the file ends after " + std::to_string(payload) + " values, expected " + std::to_string(count) +
                           " (" + detail::idx::list_extents(array.extents) + ")");
  }
  if (payload > count) {
    fail(header_size + count, "found " + std::to_string(payload - count) + " bytes after the last value, expected " +
                                  std::to_string(count) + " values (" + detail::idx::list_extents(array.extents) +
                                  ") and then the end of the file");
  }
  const auto values = bytes.subspan(header_size);
  array.values.assign(values.begin(), values.end());
  return array;
}

/// Reads one uncompressed IDX file. Throws std::runtime_error as parse_idx, or if the file cannot be opened or read.
[[nodiscard]] inline idx_array read_idx(const std::string& path) {
  return parse_idx(detail::idx::read_bytes(path), path);
}

}  // namespace pergrad::inline v0_1
// pergrad/data/part.hpp - which half of a published data set is meant

namespace pergrad::inline v0_1 {

/// The halves that published data sets come in. Only `train` is what differential privacy protects in a training run.
enum class data_part { train, test };

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// Images of CIFAR-10 with their labels, ready for `dataset{set.images, set.labels, shape{3, 32, 32}}`.
/// Invariant: `images.size()` is 3 * 32 * 32 * `labels.size()`.
struct cifar10_images {
  static constexpr std::size_t channels = 3;
  static constexpr std::size_t side = 32;
  static constexpr std::size_t classes = 10;
  static constexpr std::size_t image_size = channels * side * side;

  std::vector<float> images;         ///< byte / 255, in [0, 1], [images][channels][rows][columns]
  std::vector<std::int32_t> labels;  ///< 0 ... 9: airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

namespace detail::cifar {

inline constexpr std::size_t record_size = 1 + cifar10_images::image_size;
inline constexpr std::size_t records_per_file = 10'000;

inline void append(std::span<const std::uint8_t> bytes, std::string_view name, cifar10_images& to) {
  if (bytes.empty()) {
    idx::throw_error(name, 0, "the file is empty, expected records of " + std::to_string(record_size) + " bytes");
  }
  if (const std::size_t rest = bytes.size() % record_size; rest != 0) {
    idx::throw_error(name, bytes.size(),
                     "the file ends after " + std::to_string(rest) + " bytes of record " +
                         std::to_string(bytes.size() / record_size) + ", expected whole records of " +
                         std::to_string(record_size) + " bytes");
  }
  const std::size_t count = bytes.size() / record_size;
  to.images.reserve(to.images.size() + count * cifar10_images::image_size);
  to.labels.reserve(to.labels.size() + count);
  for (std::size_t record = 0; record < count; ++record) {
    const auto these = bytes.subspan(record * record_size, record_size);
    if (these[0] >= cifar10_images::classes) {
      idx::throw_error(
          name, record * record_size,
          "found label " + std::to_string(these[0]) + " in record " + std::to_string(record) + ", expected 0 to 9");
    }
    to.labels.push_back(these[0]);
    for (const std::uint8_t value : these.subspan(1)) {
      to.images.push_back(static_cast<float>(value) / 255.0F);
    }
  }
}

// <filesystem> would cost every program that includes the library a fifth of its compile time.
[[nodiscard]] inline bool exists(const std::string& path) { return std::ifstream{path}.good(); }

[[noreturn]] inline void throw_missing(const std::string& directory, const std::string& file) {
  const bool other_version = exists(directory + "/data_batch_1");
  throw std::runtime_error(
      "pergrad: cannot find " + directory + "/" + file +
      (other_version ? "; this folder holds the Python version of CIFAR-10, the binary version is needed" : "") +
      "; get the binary version of CIFAR-10 (cifar-10-binary.tar.gz) from https://www.cs.toronto.edu/~kriz/cifar.html "
      "and unpack it in " +
      directory);
}

}  // namespace detail::cifar

/// Parses the bytes of one file of any number of records, at least one. `name` is used in error messages only.
/// Throws std::runtime_error naming the file, the byte offset, what was found there and what was expected: for an empty
/// file, an incomplete last record and a label above 9.
[[nodiscard]] inline cifar10_images parse_cifar10(std::span<const std::uint8_t> bytes, std::string_view name) {
  cifar10_images set;
  detail::cifar::append(bytes, name, set);
  return set;
}

/// Reads files of any number of records, one after the other. Throws std::runtime_error as parse_cifar10, or if a file
/// cannot be opened or read.
[[nodiscard]] inline cifar10_images read_cifar10(std::span<const std::string> paths) {
  cifar10_images set;
  for (const std::string& path : paths) {
    detail::cifar::append(detail::idx::read_bytes(path), path, set);
  }
  return set;
}

/// Reads the published training images (50,000, in the order of the five files) or test images (10,000) from
/// `directory` or from the folder cifar-10-batches-bin in it, which is what the archive unpacks to.
/// Throws std::runtime_error as above, for a file that has not exactly 10,000 records, and for a file that is missing:
/// the message says where the data set comes from and where to put it.
[[nodiscard]] inline cifar10_images read_cifar10(const std::string& directory, data_part part) {
  const std::vector<std::string> files =
      part == data_part::train ? std::vector<std::string>{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                          "data_batch_4.bin", "data_batch_5.bin"}
                               : std::vector<std::string>{"test_batch.bin"};
  std::string folder = directory;
  if (const std::string unpacked = directory + "/cifar-10-batches-bin";
      !detail::cifar::exists(directory + "/" + files.front()) && detail::cifar::exists(unpacked)) {
    folder = unpacked;
  }
  cifar10_images set;
  set.labels.reserve(files.size() * detail::cifar::records_per_file);
  set.images.reserve(files.size() * detail::cifar::records_per_file * cifar10_images::image_size);
  for (const std::string& file : files) {
    std::string path = folder;
    path.append("/").append(file);
    if (!detail::cifar::exists(path)) {
      detail::cifar::throw_missing(folder, file);
    }
    const auto bytes = detail::idx::read_bytes(path);
    constexpr std::size_t expected = detail::cifar::records_per_file * detail::cifar::record_size;
    if (bytes.size() != expected) {
      detail::idx::throw_error(path, bytes.size(),
                               "found " + std::to_string(bytes.size()) + " bytes, expected " +
                                   std::to_string(expected) + " (10000 records of 3073)");
    }
    detail::cifar::append(bytes, path, set);
  }
  return set;
}

}  // namespace pergrad::inline v0_1
// pergrad/data/sequences.hpp - labelled sequences of ids of different lengths, and the rectangle that a network takes

#include <algorithm>

namespace pergrad::inline v0_1 {

/// Sequences of ids, one after the other. Sequence i is the ids before `ends[i]` that do not belong to an earlier one.
/// Invariant: `ends` never decreases and its last value, if there is one, is `ids.size()`.
struct id_sequences {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;

  [[nodiscard]] std::size_t size() const noexcept { return ends.size(); }
  /// Precondition: `index` < size().
  [[nodiscard]] std::span<const std::int32_t> operator[](std::size_t index) const noexcept {
    const std::size_t begin = index == 0 ? 0 : ends[index - 1];
    return std::span<const std::int32_t>{ids}.subspan(begin, ends[index] - begin);
  }
};

/// Sequences with one label each. Invariant: `sequences.size()` is `labels.size()`.
struct labelled_sequences {
  id_sequences sequences;
  std::vector<std::int32_t> labels;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

/// Sequences padded or cut to one length, as a network over `token_ids` takes them.
/// Invariant: `ids.size()` is `positions * labels.size()`, and `lengths.size()` is `labels.size()`.
struct labelled_ids {
  std::vector<std::int32_t> ids;       ///< [sequences][positions]
  std::vector<std::uint32_t> lengths;  ///< ids of a sequence that are not padding, at most `positions`; may be 0
  std::vector<std::int32_t> labels;
  std::size_t positions = 0;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

/// An end of a sequence.
enum class sequence_end { front, back };

/// Cuts every sequence to `positions` ids, dropping from the end `cut`, and fills shorter ones with `padding` at the
/// end `fill`. The defaults are those of Keras' pad_sequences. A network over sequences of variable length takes the
/// padding at the back: `pad_sequences(set, positions, sequence_end::back)`, and `lengths` with it; a data set refuses
/// the length 0 of an empty sequence.
/// Throws std::invalid_argument if `positions` is zero or does not fit 32 bits or if labels and sequences differ in
/// number.
[[nodiscard]] inline labelled_ids pad_sequences(const labelled_sequences& set, std::size_t positions,
                                                sequence_end fill = sequence_end::front,
                                                sequence_end cut = sequence_end::front, std::int32_t padding = 0) {
  if (positions == 0 || positions > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("pergrad: pad_sequences: cannot pad to " + std::to_string(positions) + " positions");
  }
  if (set.sequences.size() != set.labels.size()) {
    throw std::invalid_argument("pergrad: pad_sequences: got " + std::to_string(set.sequences.size()) +
                                " sequences and " + std::to_string(set.labels.size()) + " labels");
  }
  if (set.size() > std::numeric_limits<std::size_t>::max() / sizeof(std::int32_t) / positions) {
    throw std::invalid_argument("pergrad: pad_sequences: " + std::to_string(set.size()) + " sequences of " +
                                std::to_string(positions) + " positions do not fit the address space");
  }
  labelled_ids padded{.ids = std::vector<std::int32_t>(set.size() * positions, padding),
                      .lengths = {},
                      .labels = set.labels,
                      .positions = positions};
  padded.lengths.reserve(set.size());
  for (std::size_t index = 0; index < set.size(); ++index) {
    const auto whole = set.sequences[index];
    const std::size_t length = std::min(whole.size(), positions);
    const auto kept = cut == sequence_end::front ? whole.last(length) : whole.first(length);
    const std::size_t before = fill == sequence_end::front ? positions - length : 0;
    std::copy(kept.begin(), kept.end(), padded.ids.begin() + static_cast<std::ptrdiff_t>(index * positions + before));
    padded.lengths.push_back(static_cast<std::uint32_t>(length));
  }
  return padded;
}

}  // namespace pergrad::inline v0_1
// pergrad/describe.hpp - a network as a table: what the compiler inferred and what the plan chose

// pergrad/gradients/plan.hpp - the constexpr cost model that chooses, block by block, how norms and clipped sums are
// formed
//
// For a block with T positions, view width d, outputs p (per group), the ways to ‖G_b‖² and to sum_b w_b G_b cost a
// sample
//     product      T = 1:  2 (d + p)                        + 2 d p    the sum as one product X^T diag(w) Delta
//     gram         T² (d + p + 1)        (half, symmetric)  + 2 T d p  likewise
//     direct       2 T d p               tile by tile in registers, squared and dropped,  + 2 T d p
//     instantiate  2 T d p               G_b kept, squared on its way out,                + weighted row sum of B G_b's
// multiply-adds counted as 2. (Goodfellow 2015; Rochette et al. 2019; Lee & Kifer 2020; Bu et al. 2022,
// arXiv:2210.00038.)

namespace pergrad::inline v0_1 {

/// How a block's per-sample norm is found, and from what its weighted sum is made.
enum class norm_method {
  automatic,    ///< what the cost model says
  product,      ///< ‖delta‖² ‖x‖², exact for one position
  gram,         ///< <X X^T, Delta Delta^T>
  direct,       ///< tiles of G_b in registers, squared and dropped
  instantiate,  ///< G_b in the cache, squared on its way out and kept for the weighted sum
  elementwise   ///< an elementwise block (bias, gain): always instantiated
};

[[nodiscard]] constexpr std::string_view name_of(norm_method method) noexcept {
  switch (method) {
    case norm_method::automatic:
      return "automatic";
    case norm_method::product:
      return "product";
    case norm_method::gram:
      return "gram";
    case norm_method::direct:
      return "direct";
    case norm_method::instantiate:
      return "instantiate";
    default:
      return "elementwise";
  }
}

/// Sizes of one outer-product block, per group.
struct block_size {
  std::size_t positions = 1;  ///< T
  std::size_t view = 1;       ///< d
  std::size_t outputs = 1;    ///< p
  std::size_t groups = 1;
};

/// What the host pays, in units of one multiply-add in the product kernel's steady state.
///
/// Measured with `bench/run.sh norm_methods`, which prints what each method costs on a grid of blocks beside what is
/// modelled here (AVX-512, g++ 12; all methods of 55 blocks are modelled within a factor of 2.4, most within 1.25, and
/// the choice costs at most 1.1 times the best method). Every constant is a ratio of two speeds of one core, so other
/// machines differ little.
struct host_costs {
  double dot_element = 12;      ///< one element of a dot product: those are summed in double, which products are not
  double dot_pair = 800;        ///< a dot of two x and one of two delta, however short
  double summed_element = 0.5;  ///< add one element of a tile's weighted sum to the total, shared by the tile's samples
  double direct_element = 8;    ///< square one element of G_b in registers
  double kept_element = 13;     ///< square, keep and add up one element of G_b inside the L2 cache
  double kept_element_beyond = 20;  ///< the same when G_b does not fit there
  std::size_t cache_bytes = 1U << 20U;
  std::size_t vector_bytes = 64;  ///< a row of G_b is computed in whole vectors
};

/// Modelled cost of one sample's norm and of its share of the weighted sum; infinite where the method is not exact.
[[nodiscard]] constexpr double modelled_cost(norm_method method, block_size block, std::size_t scalar_bytes,
                                             host_costs costs = {}) noexcept {
  const auto real = [](std::size_t count) { return static_cast<double>(count); };
  const std::size_t lanes = costs.vector_bytes / scalar_bytes;
  const double positions = real(block.positions);
  const double weights = real(block.view) * real((block.outputs + lanes - 1) / lanes * lanes);
  const double product = positions * weights;
  const double sum = product + costs.summed_element * weights;
  const double pair = costs.dot_element * real(block.view + block.outputs) + costs.dot_pair;
  const double rounding_bound = positions * pair;  // leaves.hpp, rounding
  const bool fits = block.view * block.outputs * block.groups * scalar_bytes <= costs.cache_bytes;
  double cost = 0;
  switch (method) {
    case norm_method::product:
      cost = block.positions == 1 ? pair + sum : 1e300;
      break;
    case norm_method::gram:
      cost = positions * (positions + 1) / 2 * pair + rounding_bound + sum;
      break;
    case norm_method::direct:
      cost = product + costs.direct_element * weights + rounding_bound + sum;
      break;
    default:
      cost = product + (fits ? costs.kept_element : costs.kept_element_beyond) * weights;
      break;
  }
  return cost * real(block.groups);
}

/// The cheapest exact method.
[[nodiscard]] constexpr norm_method cheapest_method(block_size block, std::size_t scalar_bytes,
                                                    host_costs costs = {}) noexcept {
  constexpr norm_method candidates[] = {norm_method::product, norm_method::instantiate, norm_method::direct,
                                        norm_method::gram};
  norm_method best = norm_method::instantiate;
  for (const norm_method method : candidates) {
    if (modelled_cost(method, block, scalar_bytes, costs) < modelled_cost(best, block, scalar_bytes, costs))
      best = method;
  }
  return best;
}

}  // namespace pergrad::inline v0_1
// pergrad/host/program.hpp - a network as the host runs it: nodes, places and factor leaves, all known at compile time
//
// The types say what to compute; this file turns them into tables: where every value of a sample lies in a worker's
// workspace, which node reads and writes what, and one leaf per parameter block. Kernels take these numbers at run
// time, so a hundred layers cost a hundred table rows and not a hundred instantiations.

// pergrad/detail/gate.hpp - infers a network's shapes, and lets only a sound network through
//
// Every node is examined at compile time; the first mistake found is explained (errors.hpp) and stands in for the
// network, as a type that swallows whatever is done with it, so that the compiler has one error to print and nothing
// more to say.

// pergrad/detail/graph.hpp - unfolds a network's layers into one flat list of nodes
//
// A node says how many places back in the list its input lies (1: the node before it), so lists can be joined and
// repeated without renumbering. Types are looked up in an indexed base table: recursion over the list would be
// quadratic to compile.

// pergrad/layers/sequential.hpp - entries of a network made of layers: lists, branches, shared and frozen blocks
//
// None of them computes anything: a network unfolds them into one flat list of nodes, each of which knows how many
// nodes back its input lies (detail/graph.hpp). Where branches meet, the shared input's gradient is the sum of the
// branches' gradients.

namespace pergrad::inline v0_1 {

/// The layers one after the other. PyTorch: `nn.Sequential`.
template <class... Layers>
struct sequential {};

/// `Count` copies of the layers one after the other, each copy with parameters of its own.
template <std::size_t Count, class... Layers>
struct repeat {};

/// Last entry of a `residual`: the layers of its shortcut.
template <class... Layers>
struct projection {};

/// y = body(x) + x, or y = body(x) + shortcut(x) where the last entry is `projection<Layers...>`.
/// Parameters: the body's, then the projection's. (He et al. 2015, arXiv:1512.03385)
template <class... Layers>
struct residual {};

/// `Layer` on what two branches make of the same input: y = Layer(First(x), Second(x)). The layer takes two inputs
/// (concepts.hpp). Parameters: First's, Second's, the layer's.
template <class Layer, class First, class Second>
struct merge {};

/// The layers with parameters that they share with every other `tied` of the same key in the network. A sample's
/// gradient with respect to them is the sum over all uses, formed before its norm. The layers must be the same.
template <std::size_t Key, class... Layers>
struct tied {};

/// The layers with parameters that are not trained: they have no gradient, and none is computed. They are not part of
/// `parameters()` nor of `parameter_count`, but of `frozen_parameters()`.
template <class... Layers>
struct frozen {};

/// The layers as members of a clipping group, for `clip_per_group`. Layers outside are in group 0.
template <std::size_t Group, class... Layers>
struct parameter_group {};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1::detail {

/// Which block of shared parameters a node uses: the same for every use.
template <std::size_t Key, std::size_t Index>
struct tie {};
struct untied {};
template <class Tie>
inline constexpr char tie_mark{};
/// Comparable in constant expressions; null for parameters that are not shared.
template <class Tie>
inline constexpr const char* tie_of = &tie_mark<Tie>;
template <>
inline constexpr const char* tie_of<untied> = nullptr;

/// A layer whose input lies `Back` nodes before it; one with two inputs has the second `Back2` nodes before it. Its
/// parameters stand behind those of the node that comes `Later` nodes after it.
template <class Layer, std::size_t Back = 1, std::size_t Back2 = 0, bool Frozen = false, std::size_t Group = 0,
          class Tie = untied, std::size_t Later = 0>
struct node {
  using layer_type = Layer;
  using tie_type = Tie;
  static constexpr std::size_t back = Back;
  static constexpr std::size_t back2 = Back2;
  static constexpr bool is_frozen = Frozen;
  static constexpr std::size_t group = Group;
  static constexpr std::size_t later = Later;
};

template <class... Nodes>
struct node_list {
  static constexpr std::size_t size = sizeof...(Nodes);
};

/// The node that ends a residual: y = a + b.
struct branch_sum {
  static constexpr bool is_branch_sum = true;
  [[nodiscard]] static constexpr shape output_shape(shape first, shape /*second*/) noexcept { return first; }
};

template <class... Lists>
struct join;
template <>
struct join<> {
  using type = node_list<>;
};
template <class... Nodes>
struct join<node_list<Nodes...>> {
  using type = node_list<Nodes...>;
};
template <class... First, class... Second>
struct join<node_list<First...>, node_list<Second...>> {
  using type = node_list<First..., Second...>;
};
template <class... First, class... Second, class... Third, class... Fourth, class... Rest>
struct join<node_list<First...>, node_list<Second...>, node_list<Third...>, node_list<Fourth...>, Rest...> {
  using type = typename join<node_list<First..., Second..., Third..., Fourth...>, Rest...>::type;
};
template <class... First, class... Second, class... Third>
struct join<node_list<First...>, node_list<Second...>, node_list<Third...>> {
  using type = node_list<First..., Second..., Third...>;
};

/// A list whose outside input lies `Distance` nodes further back than it would if it followed that input directly.
template <class List, std::size_t Distance, class Indices = std::make_index_sequence<List::size>>
struct shift;
template <class... Nodes, std::size_t Distance, std::size_t... Index>
struct shift<node_list<Nodes...>, Distance, std::index_sequence<Index...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back + (Nodes::back > Index ? Distance : 0),
                              Nodes::back2 + (Nodes::back2 > Index ? Distance : 0), Nodes::is_frozen, Nodes::group,
                              typename Nodes::tie_type, Nodes::later>...>;
};

/// Two branches from the same input, and the layer in which they meet. An empty branch is the input itself.
template <class Layer, class First, class Second>
struct merge_lists {
  using type = typename join<First, typename shift<Second, First::size>::type,
                             node_list<node<Layer, Second::size + 1, (Second::size > 0 ? 1 : First::size + 1)>>>::type;
};

/// A layer may be a composition of others: then it says `using unfolds_to = sequential<...>;`.
template <class Layer>
struct unfold {
  using type = node_list<node<Layer>>;
};
template <class Layer>
requires requires { typename Layer::unfolds_to; }
struct unfold<Layer> : unfold<typename Layer::unfolds_to> {};
template <class... Layers>
struct unfold<sequential<Layers...>> {
  using type = typename join<typename unfold<Layers>::type...>::type;
};

template <class List, std::size_t Count>
struct repeat_list {
  using half = typename repeat_list<List, Count / 2>::type;
  using type =
      std::conditional_t<Count % 2 == 0, typename join<half, half>::type, typename join<half, half, List>::type>;
};
template <class List>
struct repeat_list<List, 1> {
  using type = List;
};
template <class List>
struct repeat_list<List, 0> {
  using type = node_list<>;
};
template <std::size_t Count, class... Layers>
struct unfold<repeat<Count, Layers...>> {
  using type = typename repeat_list<typename unfold<sequential<Layers...>>::type, Count>::type;
};

/// Splits the projection, if any, from a residual's body.
template <class Body, class... Layers>
struct split_residual;
template <class... Body>
struct split_residual<sequential<Body...>> {
  using body = sequential<Body...>;
  using shortcut = sequential<>;
};
template <class... Body, class... Shortcut>
struct split_residual<sequential<Body...>, projection<Shortcut...>> {
  using body = sequential<Body...>;
  using shortcut = sequential<Shortcut...>;
};
template <class... Body, class Next, class... Rest>
struct split_residual<sequential<Body...>, Next, Rest...> : split_residual<sequential<Body..., Next>, Rest...> {};

template <class... Layers>
struct unfold<residual<Layers...>> {
  using split = split_residual<sequential<>, Layers...>;
  using type = typename merge_lists<branch_sum, typename unfold<typename split::body>::type,
                                    typename unfold<typename split::shortcut>::type>::type;
};
template <class Layer, class First, class Second>
struct unfold<merge<Layer, First, Second>>
    : merge_lists<Layer, typename unfold<First>::type, typename unfold<Second>::type> {};

template <class List>
struct freeze;
template <class... Nodes>
struct freeze<node_list<Nodes...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, true, Nodes::group,
                              typename Nodes::tie_type, Nodes::later>...>;
};
template <class... Layers>
struct unfold<frozen<Layers...>> : freeze<typename unfold<sequential<Layers...>>::type> {};

template <std::size_t Group, class List>
struct put_into_group;
template <std::size_t Group, class... Nodes>
struct put_into_group<Group, node_list<Nodes...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, Nodes::is_frozen, Group,
                              typename Nodes::tie_type, Nodes::later>...>;
};
template <std::size_t Group, class... Layers>
struct unfold<parameter_group<Group, Layers...>> : put_into_group<Group, typename unfold<sequential<Layers...>>::type> {
};

template <std::size_t Key, class List, class Indices = std::make_index_sequence<List::size>>
struct tie_together;
template <std::size_t Key, class... Nodes, std::size_t... Index>
struct tie_together<Key, node_list<Nodes...>, std::index_sequence<Index...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, Nodes::is_frozen, Nodes::group,
                              tie<Key, Index>, Nodes::later>...>;
};
template <std::size_t Key, class... Layers>
struct unfold<tied<Key, Layers...>> : tie_together<Key, typename unfold<sequential<Layers...>>::type> {};

/// The layers, with parameters that stand behind those of the node `Nodes` nodes later: compositions use it where
/// PyTorch numbers their parameters in another order than they compute in.
template <std::size_t Nodes, class... Layers>
struct parameters_later {};
template <std::size_t Count, class List>
struct postpone;
template <std::size_t Count, class... Nodes>
struct postpone<Count, node_list<Nodes...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, Nodes::is_frozen, Nodes::group,
                              typename Nodes::tie_type, Count>...>;
};
template <std::size_t Count, class... Layers>
struct unfold<parameters_later<Count, Layers...>> : postpone<Count, typename unfold<sequential<Layers...>>::type> {};

template <std::size_t Index, class Type>
struct table_entry {};
template <class Indices, class... Types>
struct type_table_base;
template <std::size_t... Index, class... Types>
struct type_table_base<std::index_sequence<Index...>, Types...> : table_entry<Index, Types>... {};
/// Constant-time lookup of a type by index.
template <class... Types>
struct type_table : type_table_base<std::index_sequence_for<Types...>, Types...> {};
template <std::size_t Index, class Type>
std::type_identity<Type> look_up(table_entry<Index, Type>);
template <std::size_t Index, class Table>
using type_at = typename decltype(look_up<Index>(Table{}))::type;

/// Calls f(std::integral_constant<std::size_t, 0>{}), …, f(…<Count - 1>); no fold, which clang limits to 256 operands.
template <std::size_t Count, class Function>
constexpr void for_each_index(Function&& f) {
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    using expand = int[];
    static_cast<void>(expand{0, (static_cast<void>(f(std::integral_constant<std::size_t, Index>{})), 0)...});
  }
  (std::make_index_sequence<Count>{});
}

}  // namespace pergrad::inline v0_1::detail
// pergrad/detail/mistakes.hpp - what a layer's check(shape) may answer; each has its sentence in errors.hpp

namespace pergrad::inline v0_1::detail {

enum class mistake {
  none,
  no_output_shape,
  no_parameter_count,
  no_forward,
  no_backward,
  no_factors,
  factors_do_not_cover,
  factor_outside_tape,
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
  rejects_input,
  no_output,
  branches_differ,
  element_function_changes_shape,
  ids_into_a_float_layer,
  needs_ids,
  needs_a_sequence,
  tied_blocks_differ,
  lengths_are_lost,
  not_on_tiles,
  heads_do_not_divide,
  branches_do_not_fit
};

}  // namespace pergrad::inline v0_1::detail
// pergrad/detail/stand_ins.hpp - what takes the place of anything made from a program that was explained to be wrong
//
// The compiler has printed one error; every use of a stand-in is allowed, means nothing and prints nothing. A class
// template that has a network for an argument has its stand-in here, so that the network's mistake is the only one that
// is reported.

namespace pergrad::inline v0_1 {

template <class Network>
class tape;
template <class Network, class Loss>
class batch;
template <class Network>
class private_gradient;
template <class Network>
class bounded_total;
template <class Network>
class sgd;
template <class Network>
class adam;
namespace unprotected {
template <class Network>
class gradient;
}  // namespace unprotected

/// A base in the library's own namespace, so that functions called by their short names are found for stand-ins as
/// well.
struct stand_in_base {};

namespace error {

/// Stands in for an expression or an object; takes whatever is done with it.
struct explained : stand_in_base {
  template <class... Any>
  explicit(false) explained(Any&&...) noexcept {}  // NOLINT(google-explicit-constructor)
  template <class Any>
  explained& operator=(Any&&) noexcept {
    return *this;
  }
  template <class Any>
  explained& operator+=(Any&&) noexcept {
    return *this;
  }

  [[nodiscard]] static constexpr std::size_t size() noexcept { return 0; }
  [[nodiscard]] static constexpr std::size_t capacity() noexcept { return 0; }
  [[nodiscard]] static constexpr std::size_t bytes() noexcept { return 0; }
  [[nodiscard]] static constexpr double sensitivity() noexcept { return 0; }
  [[nodiscard]] static constexpr double standard_deviation() noexcept { return 0; }
  [[nodiscard]] static constexpr bool within_budget() noexcept { return false; }
  [[nodiscard]] static constexpr std::size_t steps() noexcept { return 0; }
  template <class... Any>
  [[nodiscard]] static constexpr double epsilon(Any&&...) noexcept {
    return 0;
  }
  [[nodiscard]] static explained accountant() noexcept { return {}; }
  [[nodiscard]] static explained leaf() noexcept { return {}; }
  template <class Index>
  [[nodiscard]] explained operator[](Index&&) const noexcept {
    return {};
  }
  template <class... Any>
  static void step(Any&&...) noexcept {}
  template <class... Any>
  static void clear(Any&&...) noexcept {}
};

/// Stands in for a number that belongs to a wrong network: usable as one, and equal to whatever a static_assert
/// expects.
struct unknown_count {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr explicit(false) operator std::size_t() const noexcept { return 1; }
  template <class Any>
  friend constexpr bool operator==(const unknown_count&, const Any&) noexcept {
    return true;
  }
};
struct unknown_shape : shape {
  constexpr unknown_shape() noexcept : shape{1} {}
  template <class Any>
  friend constexpr bool operator==(const unknown_shape&, const Any&) noexcept {
    return true;
  }
};

/// Stands in for an object that holds numbers of type `Scalar`.
template <class Scalar>
struct stand_in : explained {
  using explained::explained;
  using explained::operator=;
  using scalar = Scalar;

  [[nodiscard]] static std::span<Scalar> values() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> parameters() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> frozen_parameters() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> all_parameters() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> layer_parameters(std::size_t /*index*/) noexcept { return {}; }
  [[nodiscard]] static stand_in last_update() noexcept { return {}; }
};

/// Stands in for a network.
template <class Explanation, class Scalar>
struct wrong_network : stand_in<Scalar> {
  using stand_in<Scalar>::stand_in;
  using tape = pergrad::tape<wrong_network>;
  template <class Other>
  using rebind = wrong_network<Explanation, Other>;
  using input_value = Scalar;
  static constexpr unknown_count parameter_count{};
  static constexpr unknown_count frozen_parameter_count{};
  static constexpr unknown_shape input_shape{};
  static constexpr unknown_shape output_shape{};
};

/// The one class whose body is the explanation; of a sound network, nothing.
template <class Network>
struct explanation_of {
  using type = char;
};
template <class Explanation, class Scalar>
struct explanation_of<wrong_network<Explanation, Scalar>> {
  using type = Explanation;
};

}  // namespace error

namespace detail {

template <class Type>
inline constexpr bool is_explained = std::is_base_of_v<error::explained, std::remove_cvref_t<Type>>;
template <class... Types>
inline constexpr bool any_explained = (is_explained<Types> || ...);

/// What is wrong with a loss, as a class whose body says so; `char` if nothing is, or if the network is wrong already.
template <class Network, class Loss>
[[nodiscard]] constexpr auto explanation_of_loss() {
  if constexpr (is_explained<Network>) {
    return std::type_identity<char>{};
  } else if constexpr (!loss<Loss>) {
    return std::type_identity<error::not_a_loss<Loss>>{};
  } else if constexpr (!Loss::accepts(Network::output_shape)) {
    return std::type_identity<error::loss_rejects_the_networks_output<Loss, error::gets<Network::output_shape>>>{};
  } else {
    return std::type_identity<char>{};
  }
}
template <class Network, class Loss>
using loss_explanation = typename decltype(explanation_of_loss<Network, Loss>())::type;
/// No training, no batch: the network or the loss is wrong.
template <class Network, class Loss>
inline constexpr bool cannot_be_trained =
    is_explained<Network> || !std::is_same_v<loss_explanation<Network, Loss>, char>;

}  // namespace detail

// clang-format off
template <class Explanation, class Scalar>
class tape<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class private_gradient<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class bounded_total<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class sgd<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class adam<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class unprotected::gradient<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Network, class Loss> requires detail::cannot_be_trained<Network, Loss>
class batch<Network, Loss> : public error::stand_in<typename Network::scalar> {
  static_assert(sizeof(detail::loss_explanation<Network, Loss>) != 0);
 public:
  using error::stand_in<typename Network::scalar>::stand_in;
};
// clang-format on

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

template <class Scalar, shape Input, class... Layers>
class static_network;

namespace detail {

template <class Layer>
concept has_check = requires(shape in) {
  { Layer::check(in) } -> std::convertible_to<mistake>;
};

/// Does one operand lie inside the `size` values it is taken from?
[[nodiscard]] constexpr bool inside(const operand& from, std::size_t positions, std::size_t count,
                                    std::size_t size) noexcept {
  return positions > 0 && count > 0 &&
         from.offset + (positions - 1) * from.position_stride + (count - 1) * from.stride < size;
}

template <class Layer>
[[nodiscard]] constexpr mistake check_factors(shape in, shape second) {
  const std::size_t saved = saved_count_of<Layer>(in, second);
  const auto size_of = [&](source from) -> std::size_t {
    if (from == source::activation) return in.size();
    if (from == source::second_activation) return second.size();
    return from == source::saved ? saved : output_shape_of<Layer>(in, second).size();
  };
  std::size_t covered = 0;
  for (const factor& each : factors_of<Layer>(in, second)) {
    covered += each.size();
    if (each.sparse) {
      const bool all_inside = each.delta.from != source::ones &&
                              inside(each.delta, each.positions, each.columns, size_of(each.delta.from)) &&
                              each.other.from == source::activation && in.ids == each.rows &&
                              each.positions == in.size();
      if (!all_inside) return mistake::factor_outside_tape;
      continue;
    }
    const std::size_t other_count = each.outer ? each.columns : each.rows;
    const bool other_inside = (each.other.from == source::ones && !each.outer) ||
                              inside(each.other, each.positions, other_count, size_of(each.other.from));
    const bool delta_inside =
        each.delta.from != source::ones && inside(each.delta, each.positions, each.rows, size_of(each.delta.from));
    if (!delta_inside || !other_inside) return mistake::factor_outside_tape;
  }
  return covered == parameter_count_of<Layer>(in, second) ? mistake::none : mistake::factors_do_not_cover;
}

template <class Layer>
[[nodiscard]] constexpr mistake diagnose_tiled(shape in, shape second) {
  if constexpr (!is_tiled<Layer> || !has_output_shape<Layer>) {
    return mistake::not_on_tiles;
  } else {
    mistake found = mistake::none;
    if constexpr (requires { Layer::check(in, second); }) {
      found = Layer::check(in, second);
    } else if constexpr (has_check<Layer>) {
      found = Layer::check(in);
    }
    if (found != mistake::none) return found;
    if constexpr (has_accepts<Layer>) {
      if (!Layer::accepts(in)) return mistake::rejects_input;
    }
    if (output_shape_of<Layer>(in, second).size() == 0) return mistake::no_output;
    if constexpr (has_factors<Layer>) {
      return check_factors<Layer>(in, second);
    } else {
      return parameter_count_of<Layer>(in, second) == 0 ? mistake::none : mistake::no_factors;
    }
  }
}

/// May a layer get samples of varying length? Either it works position by position (the executor keeps zero what is
/// beyond), or it says what becomes of the length, or it takes care of lengths itself. Positions must lie along the
/// axis that the layer takes for them.
template <class Layer>
[[nodiscard]] constexpr bool keeps_lengths(shape in, shape out) {
  constexpr bool knows = requires { requires Layer::knows_lengths; };
  constexpr bool channels_first = requires { requires Layer::channels_first; };
  constexpr bool either = requires { requires Layer::is_transpose; };
  if (in.varying_axis() == 0) return true;
  if (in.varying_axis() == 2 && !channels_first && !either && (knows || out != in)) return false;
  if (in.varying_axis() == 1 && channels_first) return false;
  return knows || out.varying_axis() != 0;
}

/// What is wrong with a layer on this input, before anything else of it is used.
template <class Layer>
[[nodiscard]] constexpr mistake diagnose(shape in, shape second) {
  if constexpr (is_mixing<Layer>) {
    return mistake::mixes_samples;
  } else if constexpr (is_branch_sum<Layer>) {
    return in == second ? mistake::none : mistake::branches_differ;
  } else if (in.ids != 0 && !takes_ids<Layer>) {
    return mistake::ids_into_a_float_layer;
  } else if constexpr (requires { Layer::on_tiles; }) {
    return diagnose_tiled<Layer>(in, second);
  } else if constexpr (has_check<Layer>) {
    return Layer::check(in);
  } else if constexpr (is_reshape<Layer>) {
    return Layer::output_shape(in).size() == in.size() ? mistake::none : mistake::no_output;
  } else if constexpr (has_value<Layer>) {
    return output_shape_of<Layer>(in) == in ? mistake::none : mistake::element_function_changes_shape;
  } else if constexpr (has_output_shape<Layer> && (has_affine<Layer> || has_windows<Layer>)) {
    return Layer::output_shape(in).size() == 0 ? mistake::no_output : mistake::none;
  } else if constexpr (!has_output_shape<Layer>) {
    return mistake::no_output_shape;
  } else if constexpr (!has_parameter_count<Layer>) {
    return mistake::no_parameter_count;
  } else if constexpr (!has_general_forward<Layer>) {
    return mistake::no_forward;
  } else if constexpr (!has_general_backward<Layer>) {
    return mistake::no_backward;
  } else {
    if constexpr (has_accepts<Layer>) {
      if (!Layer::accepts(in)) return mistake::rejects_input;
    }
    if (Layer::output_shape(in).size() == 0) return mistake::no_output;
    if constexpr (has_factors<Layer>) {
      return check_factors<Layer>(in, {});
    } else {
      return Layer::parameter_count(in) == 0 ? mistake::none : mistake::no_factors;
    }
  }
}

/// The unfolded list of a network with its shapes; stops inferring at the first mistake.
template <shape Input, class List, class... Layers>
struct unfolded;
template <shape Input, class... Nodes, class... Layers>
struct unfolded<Input, node_list<Nodes...>, Layers...> {
  static constexpr std::size_t size = sizeof...(Nodes);
  using table = type_table<typename Nodes::layer_type...>;
  template <std::size_t Index>
  using layer_at = type_at<Index, table>;

  struct findings {
    std::array<shape, size + 1> shapes{};
    std::array<std::size_t, size + 1> parameter_counts{};   ///< parameters that node i uses
    std::array<std::size_t, size + 1> parameter_offsets{};  ///< their place; frozen ones lie behind all others
    std::array<std::size_t, size + 1> trained_counts{};     ///< 0 if they are frozen
    std::array<std::size_t, size + 1> owners{};  ///< the first node that uses the same parameters: i unless tied
    std::array<std::size_t, size + 1> groups{};  ///< clipping groups
    std::array<std::size_t, size + 1>
        inputs{};  // slot that node i reads; slot 0 is the network's input, node i writes i + 1
    std::array<std::size_t, size + 1> inputs2{};  // second slot of a node with two inputs, else 0
    std::size_t trained = 0;                      // parameters that are trained
    std::size_t frozen = 0;
    std::size_t first_mistake = size;
    mistake what = mistake::none;
  };
  static constexpr findings find() {
    using diagnose_function = mistake (*)(shape, shape);
    using shape_function = shape (*)(shape, shape);
    using count_function = std::size_t (*)(shape, shape);
    using lengths_function = bool (*)(shape, shape);
    constexpr std::array<std::size_t, size + 1> back{Nodes::back..., 0};
    constexpr std::array<std::size_t, size + 1> back2{Nodes::back2..., 0};
    constexpr std::array<std::size_t, size + 1> group_numbers{Nodes::group..., 0};
    constexpr std::array<std::size_t, size + 1> later{Nodes::later..., 0};
    constexpr std::array<bool, size + 1> is_frozen{Nodes::is_frozen..., false};
    constexpr std::array<const char*, size + 1> ties{tie_of<typename Nodes::tie_type>..., nullptr};
    constexpr std::array<diagnose_function, size + 1> diagnoses{&diagnose<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<shape_function, size + 1> outputs{&output_shape_of<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<count_function, size + 1> counts{&parameter_count_of<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<lengths_function, size + 1> lengths{&keeps_lengths<typename Nodes::layer_type>..., nullptr};
    findings result;
    result.shapes[0] = Input;
    for (std::size_t i = 0; i < size; ++i) {
      result.inputs[i] = i + 1 - back[i];
      result.inputs2[i] = back2[i] == 0 ? 0 : i + 1 - back2[i];
      result.groups[i] = group_numbers[i];
      const shape in = result.shapes[result.inputs[i]];
      const shape in2 = back2[i] == 0 ? shape{} : result.shapes[result.inputs2[i]];
      result.what = diagnoses[i](in, in2);
      if (result.what == mistake::none) {
        result.shapes[i + 1] = outputs[i](in, in2);
        result.parameter_counts[i] = counts[i](in, in2);
        if (!lengths[i](in, result.shapes[i + 1])) result.what = mistake::lengths_are_lost;
      }
      result.owners[i] = i;
      for (std::size_t k = 0; ties[i] != nullptr && k < i; ++k) {
        if (ties[k] != ties[i]) continue;
        result.owners[i] = k;
        if (diagnoses[k] != diagnoses[i] || result.parameter_counts[k] != result.parameter_counts[i] ||
            is_frozen[k] != is_frozen[i]) {
          result.what = mistake::tied_blocks_differ;
        }
        break;
      }
      if (result.what != mistake::none) {
        result.first_mistake = i;
        return result;
      }
      if (!is_frozen[i]) result.trained_counts[i] = result.parameter_counts[i];
    }
    result.trained = place_parameters(result, is_frozen, later, false, 0);
    result.parameter_offsets[size] = result.trained;
    result.frozen = place_parameters(result, is_frozen, later, true, result.trained) - result.trained;
    for (std::size_t i = 0; i < size; ++i) result.parameter_offsets[i] = result.parameter_offsets[result.owners[i]];
    return result;
  }
  /// Gives the owners of parameters their places from `end` on, node after node but for those that stand later; returns
  /// the end.
  static constexpr std::size_t place_parameters(findings& result, const std::array<bool, size + 1>& is_frozen,
                                                const std::array<std::size_t, size + 1>& later, bool frozen,
                                                std::size_t end) {
    std::size_t most = 0;
    for (const std::size_t each : later) most = each > most ? each : most;
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t back = 0; back <= most && back <= i; ++back) {
        const std::size_t candidate = back == 0 ? i : i - (most < i ? most : i) + back - 1;
        if (later[candidate] != i - candidate || result.owners[candidate] != candidate ||
            is_frozen[candidate] != frozen) {
          continue;
        }
        result.parameter_offsets[candidate] = end;
        end += result.parameter_counts[candidate];
      }
    }
    return end;
  }
  static constexpr findings found = find();

  /// Index in the user's list of the entry that node `node_index` comes from.
  static constexpr std::size_t entry_of(std::size_t node_index) {
    constexpr std::array<std::size_t, sizeof...(Layers) + 1> sizes{unfold<Layers>::type::size..., 0};
    std::size_t end = 0;
    for (std::size_t entry = 0; entry < sizeof...(Layers); ++entry) {
      end += sizes[entry];
      if (node_index < end) return entry;
    }
    return sizeof...(Layers);
  }

  static constexpr const auto& shapes = found.shapes;
  static constexpr const auto& parameter_counts = found.parameter_counts;
  static constexpr const auto& parameter_offsets = found.parameter_offsets;
  static constexpr const auto& trained_counts = found.trained_counts;
  static constexpr const auto& owners = found.owners;
  static constexpr const auto& groups = found.groups;
  static constexpr const auto& inputs = found.inputs;
  static constexpr const auto& inputs2 = found.inputs2;
};

template <shape Input, class... Layers>
using structure = unfolded<Input, typename join<typename unfold<Layers>::type...>::type, Layers...>;

}  // namespace detail

namespace detail {

template <mistake What, class Where, class Layer, class Given, class Structure, std::size_t Index>
constexpr auto explain() {
  using namespace error;
  // clang-format off
  if constexpr (What == mistake::no_output_shape) return std::type_identity<no_output_shape<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_parameter_count) return std::type_identity<no_parameter_count<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_forward) return std::type_identity<no_forward<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_backward) return std::type_identity<no_backward<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_factors) return std::type_identity<no_factors<Where, Layer, Given>>{};
  else if constexpr (What == mistake::factor_outside_tape) return std::type_identity<factor_reads_outside_the_tape<Where, Layer, Given>>{};
  else if constexpr (What == mistake::mixes_samples) return std::type_identity<mixes_samples<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_an_image) return std::type_identity<needs_an_image<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_features) return std::type_identity<needs_features<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_channels_and_positions) return std::type_identity<needs_channels_and_positions<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_a_volume) return std::type_identity<needs_a_volume<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_two_axes) return std::type_identity<needs_two_axes<Where, Layer, Given>>{};
  else if constexpr (What == mistake::reshape_changes_size) return std::type_identity<reshape_changes_size<Where, Layer, Given>>{};
  else if constexpr (What == mistake::output_padding_too_large) return std::type_identity<output_padding_too_large<Where, Layer, Given>>{};
  else if constexpr (What == mistake::kernel_too_large) return std::type_identity<kernel_larger_than_padded_input<Where, Layer, Given>>{};
  else if constexpr (What == mistake::groups_do_not_divide) return std::type_identity<groups_do_not_divide_channels<Where, Layer, Given>>{};
  else if constexpr (What == mistake::pool_padding_too_large) return std::type_identity<padding_larger_than_half_the_window<Where, Layer, Given>>{};
  else if constexpr (What == mistake::zero_is_no_size) return std::type_identity<zero_is_no_size<Where, Layer, Given>>{};
  else if constexpr (What == mistake::option_not_offered) return std::type_identity<option_not_offered<Where, Layer, Given>>{};
  else if constexpr (What == mistake::rejects_input) return std::type_identity<layer_rejects_its_input<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_output) return std::type_identity<layer_gives_no_output<Where, Layer, Given>>{};
  else if constexpr (What == mistake::element_function_changes_shape) return std::type_identity<element_function_changes_shape<Where, Layer, Given>>{};
  else if constexpr (What == mistake::ids_into_a_float_layer) return std::type_identity<ids_into_a_float_layer<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_ids) return std::type_identity<needs_ids<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_a_sequence) return std::type_identity<needs_a_sequence<Where, Layer, Given>>{};
  else if constexpr (What == mistake::tied_blocks_differ) return std::type_identity<tied_blocks_differ<Where, Layer, Given>>{};
  else if constexpr (What == mistake::lengths_are_lost) return std::type_identity<lengths_are_lost<Where, Layer, Given>>{};
  else if constexpr (What == mistake::not_on_tiles) return std::type_identity<not_on_tiles<Where, Layer, Given>>{};
  else if constexpr (What == mistake::heads_do_not_divide) return std::type_identity<heads_do_not_divide_features<Where, Layer, Given>>{};
  else if constexpr (What == mistake::branches_do_not_fit) {
    return std::type_identity<branches_do_not_fit<Where, Layer, Given, gets<Structure::found.shapes[Structure::found.inputs2[Index]]>>>{};
  }
  else if constexpr (What == mistake::branches_differ) {
    return std::type_identity<residual_branches_differ<Where, Given, gets<Structure::found.shapes[Structure::found.inputs2[Index]]>>>{};
  } else {
    using layer = typename Structure::template layer_at<Index>;
    constexpr shape in = Structure::found.shapes[Structure::found.inputs[Index]];
    constexpr shape in2 = Structure::found.shapes[Structure::found.inputs2[Index]];
    constexpr std::size_t covered = [](shape given, shape second) {
      std::size_t sum = 0;
      for (const factor& each : factors_of<layer>(given, second)) sum += each.size();
      return sum;
    }(in, in2);
    return std::type_identity<factors_do_not_cover_the_parameters<Where, Layer, count<covered>, count<parameter_count_of<layer>(in, in2)>>>{};
  }
  // clang-format on
}

[[nodiscard]] constexpr bool all_extents_positive(shape of) noexcept {
  return of.e0 != 0 && (of.e1 != 0 || of.e2 == 0) && (of.e2 != 0 || of.e3 == 0);
}

/// The network, or its stand-in. The one place where an explanation is instantiated: what the compiler prints is short
/// because it is a class that this class needs, with no function in between.
template <class Scalar, shape Input, class... Layers>
struct gate {
  static constexpr auto choose() {
    if constexpr (sizeof...(Layers) == 0 || structure<Input, Layers...>::size == 0) {
      return std::type_identity<error::wrong_network<error::empty_network<error::gets<Input>>, Scalar>>{};
    } else if constexpr (!all_extents_positive(Input)) {
      return std::type_identity<error::wrong_network<error::not_a_shape<error::gets<Input>>, Scalar>>{};
    } else {
      using found = structure<Input, Layers...>;
      if constexpr (found::found.what != mistake::none) {
        constexpr std::size_t index = found::found.first_mistake;
        using explanation = typename decltype(explain<found::found.what, error::at_layer<found::entry_of(index)>,
                                                      error::layer_type<typename found::template layer_at<index>>,
                                                      error::gets<found::found.shapes[found::found.inputs[index]]>,
                                                      found, index>())::type;
        return std::type_identity<error::wrong_network<explanation, Scalar>>{};
      } else {
        return std::type_identity<static_network<Scalar, Input, Layers...>>{};
      }
    }
  }
  using type = typename decltype(choose())::type;
  static_assert(sizeof(typename error::explanation_of<type>::type) != 0);
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
// pergrad/detail/layout.hpp - where a sample's values lie: channels-last rows inside a halo of zeros
//
// Every value of a sample is (depth, height, width, channels) with the channels of a pixel side by side. Rank 1 is one
// pixel; rank 2 is one column of pixels, a position a pixel, whether PyTorch numbers it (positions, features) or
// (channels, positions): both are the same stored column, so that transposing it moves nothing. A halo as wide as the
// consumer's padding surrounds the image; producers write the inside only, so the halo stays zero and a convolution
// reads its padding from memory like any other pixel.

namespace pergrad::inline v0_1::on_host {

using index = std::ptrdiff_t;

/// Zero pixels around an image.
struct halo {
  index top = 0;
  index left = 0;
  index bottom = 0;
  index right = 0;
  index front = 0;
  index back = 0;
  /// The smallest halo that contains both.
  [[nodiscard]] constexpr halo with(halo other) const noexcept {
    return {std::max(top, other.top),     std::max(left, other.left),   std::max(bottom, other.bottom),
            std::max(right, other.right), std::max(front, other.front), std::max(back, other.back)};
  }
  friend constexpr bool operator==(const halo&, const halo&) noexcept = default;
};

/// Extents of the stored image. `channels_first` says how PyTorch numbers its values: (c, d, h, w) if set, else
/// (d, h, w, c).
struct arrangement {
  index channels = 1;
  index height = 1;
  index width = 1;
  bool channels_first = false;
  index depth = 1;

  [[nodiscard]] constexpr index pixels() const noexcept { return depth * height * width; }
  [[nodiscard]] constexpr index size() const noexcept { return channels * pixels(); }
  /// Do the stored order and PyTorch's order agree?
  [[nodiscard]] constexpr bool plain() const noexcept { return !channels_first || channels == 1 || pixels() == 1; }
  /// Is every value at the same place in both, counted in PyTorch's order?
  [[nodiscard]] constexpr bool agrees_with(const arrangement& other) const noexcept {
    return channels == other.channels && depth == other.depth && height == other.height && width == other.width &&
           (channels_first == other.channels_first || channels == 1 || pixels() == 1);
  }
  /// The same stored column of pixels with the axes of its rank-2 shape exchanged.
  [[nodiscard]] constexpr arrangement transposed() const noexcept {
    arrangement result = *this;
    result.channels_first = !channels_first;
    return result;
  }
  friend constexpr bool operator==(const arrangement&, const arrangement&) noexcept = default;
};

/// How a shape is stored. Rank 2 is (positions, features), or (channels, positions) if `channels_first` says so.
[[nodiscard]] constexpr arrangement arrange(shape of, bool channels_first = false) noexcept {
  const auto extent = [&](std::size_t axis) { return static_cast<index>(of[axis]); };
  switch (of.rank()) {
    case 2:
      return {extent(channels_first ? 0 : 1), extent(channels_first ? 1 : 0), 1, channels_first, 1};
    case 3:
      return {extent(0), extent(1), extent(2), true, 1};
    case 4:
      return {extent(0), extent(2), extent(3), true, extent(1)};
    default:
      return {static_cast<index>(of.size()), 1, 1, false, 1};
  }
}

/// An arrangement with its halo in memory.
struct layout {
  arrangement values;
  index row = 0;     ///< elements from a pixel to the one below
  index column = 0;  ///< elements from a pixel to the one on its right
  index start = 0;   ///< the first pixel inside the halo
  index size = 0;    ///< elements to reserve for a sample, a multiple of the cache line
  index plane = 0;   ///< elements from a pixel to the one behind

  [[nodiscard]] constexpr bool dense() const noexcept {
    return (row == values.width * column || values.height * values.depth == 1) &&
           (plane == values.height * row || values.depth == 1);
  }
  /// Rows of pixels that are contiguous: one if all are.
  [[nodiscard]] constexpr index lines() const noexcept { return dense() ? 1 : values.depth * values.height; }
  [[nodiscard]] constexpr index line_pixels() const noexcept { return dense() ? values.pixels() : values.width; }
  /// First element of such a row.
  [[nodiscard]] constexpr index line_start(index number) const noexcept {
    return values.depth == 1 ? start + number * row
                             : start + number / values.height * plane + number % values.height * row;
  }
  /// Position of value `i`, counted in PyTorch's order, from the sample's first element.
  [[nodiscard]] constexpr index position(index i) const noexcept {
    const index channel = values.channels_first ? i / values.pixels() : i % values.channels;
    const index pixel = values.channels_first ? i % values.pixels() : i / values.channels;
    return start + pixel / values.width / values.height * plane + pixel / values.width % values.height * row +
           pixel % values.width * column + channel;
  }
};

inline constexpr index line = 16;  ///< elements that slots are rounded up to: 64 bytes of float
[[nodiscard]] constexpr index round_up(index count, index to = line) noexcept { return (count + to - 1) / to * to; }

[[nodiscard]] constexpr layout lay_out(arrangement values, halo around) noexcept {
  layout result;
  result.values = values;
  result.column = values.channels;
  result.row = (values.width + around.left + around.right) * values.channels;
  result.plane = (values.height + around.top + around.bottom) * result.row;
  result.start = around.front * result.plane + around.top * result.row + around.left * result.column;
  result.size = round_up((values.depth + around.front + around.back) * result.plane);
  return result;
}
/// The values of another layout in PyTorch's order without gaps.
[[nodiscard]] constexpr layout plain_twin(const layout& of) noexcept {
  return lay_out(of.values.plain() ? of.values : arrangement{of.values.size(), 1, 1, false, 1}, {});
}

/// Walks through a layout in PyTorch's order, in runs of equal steps.
class run_cursor {
 public:
  constexpr explicit run_cursor(const layout& of) noexcept
      : of_{&of},
        by_channel_{!of.values.plain()},
        step_{by_channel_ ? of.column : 1},
        length_{of.line_pixels() * (by_channel_ ? 1 : of.values.channels)},
        left_{length_},
        at_{of.line_start(0)} {}

  [[nodiscard]] constexpr index at() const noexcept { return at_; }
  [[nodiscard]] constexpr index step() const noexcept { return step_; }
  /// Values to the end of the run.
  [[nodiscard]] constexpr index left() const noexcept { return left_; }
  /// Precondition: `count <= left()`.
  constexpr void advance(index count) noexcept {
    left_ -= count;
    at_ += count * step_;
    if (left_ > 0) return;
    left_ = length_;
    if (++line_ == of_->lines()) {
      line_ = 0;
      ++channel_;
    }
    at_ = of_->line_start(line_) + channel_;
  }

 private:
  const layout* of_;
  bool by_channel_;
  index step_;
  index length_;
  index left_;
  index at_;
  index line_ = 0;
  index channel_ = 0;
};

/// Calls f(first element in a, first element in b, count) for stretches of values that are contiguous in both layouts.
/// Precondition: their arrangements agree.
template <class Function>
constexpr void for_each_stretch(const layout& a, const layout& b, Function&& f) {
  if (a.dense() && b.dense()) {
    f(a.start, b.start, a.values.size());
    return;
  }
  const index count = a.values.width * a.values.channels;
  for (index plane = 0; plane < a.values.depth; ++plane) {
    const index a_start = a.start + plane * a.plane;
    const index b_start = b.start + plane * b.plane;
    for (index i = 0; i < a.values.height; ++i) f(a_start + i * a.row, b_start + i * b.row, count);
  }
}

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/arrangements.hpp - in which order values are stored: what nodes demand, what they wish, what they get

// pergrad/host/tables.hpp - the rows of a program's tables: slots, nodes and factor leaves

namespace pergrad::inline v0_1::on_host {

/// Where something of a tile lies in a worker's workspace: its first element for sample 0, and the step to the next
/// sample.
struct place {
  index offset = 0;
  index sample = 0;
  [[nodiscard]] constexpr place at(index elements) const noexcept { return {offset + elements, sample}; }
};

/// One value of the tape: the same storage serves a node's output, its in-place successor and its reshaped twin.
struct slot {
  layout value_layout;
  layout gradient_layout;
  place value;
  place gradient;
};

enum class node_kind { affine, elementwise, pooling, reshape, branch_sum, general, tiled };

inline constexpr std::size_t most_matrices = 4;

struct node_row {
  node_kind kind = node_kind::general;
  std::size_t in = 0;  ///< slots; of a staged input the node's own copy
  std::size_t in2 = 0;
  std::size_t out = 0;
  shape in_shape;  ///< logical shapes
  shape in2_shape;
  shape out_shape;
  bool in_place = false;        ///< the output overwrites the input
  bool staged = false;          ///< the input is stored in another order than the node reads it in, and copied first
  std::size_t staged_from = 0;  ///< staged: the slot that the input comes from
  bool backward = false;        ///< anything before or in this node has parameters
  bool input_gradient = false;
  bool input2_gradient = false;
  bool accumulate = false;  ///< a later consumer of the input has written its gradient already
  bool accumulate2 = false;
  bool staged_accumulate = false;  ///< staged: `accumulate` of the slot that the input comes from
  index parameters = 0;
  index parameter_count = 0;  ///< of those that are trained: 0 for a frozen layer
  index weight_count = 0;     ///< of all
  affine_map map;             ///< affine: in the stored image's terms
  index forward_panel = 0;    ///< affine: offset of its packed weights
  index backward_panel = 0;
  bool whole_view = false;                            ///< affine: one position that sees every input once
  place plain_x, plain_y, plain_dy, plain_dx, saved;  ///< general, tiled: values in PyTorch's order
  place plain_x2, plain_dx2;                          ///< tiled: of the second input
  index saved_count = 0;
  index scratch_count = 0;  ///< tiled: elements a sample that are its own for the time of one call
  index matrix_count = 0;   ///< tiled: matrices whose transposes it is offered
  std::array<matrix, most_matrices> matrices{};
  std::array<index, most_matrices> panel_offsets{};
  bool copies_in2 = false;
  bool direct_dx = false;  ///< tiled: dx is written where it belongs, without a copy
  bool direct_dx2 = false;
  bool copies_in = false;  ///< general: the slots are not stored in PyTorch's order, so values are copied
  bool copies_out = false;
};

/// The place of a leaf among the uses of shared parameters. The backward pass meets the last use first; the sample's
/// gradient is whole, and its norm known, once the first use has been added.
struct tied_use {
  bool first = true;
  bool last = true;
  [[nodiscard]] constexpr bool shared() const noexcept { return !first || !last; }
};

/// One axis of what a position sees of x, and its step in the parameter block.
struct view_axis {
  index extent = 1;
  index x = 0;
  index parameter = 0;
};
/// One axis of positions.
struct step_axis {
  index extent = 1;
  index x = 0;
  index delta = 0;
};

/// G_b = sum over positions of delta (x) x, stored natively as [group][view][output], presented as PyTorch orders it.
struct outer_leaf {
  std::size_t node = 0;
  place x;
  place delta;
  index groups = 1;
  index x_group = 0;
  index delta_group = 0;
  index parameter_group = 0;
  view_axis view[3];
  view_axis view_plane{};  ///< around `view`: the planes of a volume
  step_axis step[2];
  step_axis step_plane{};  ///< around `step`
  index outputs = 1;
  index delta_stride = 1;      ///< not 1 only for a general layer whose factors are scattered
  index parameter_output = 0;  ///< step of an output in PyTorch's order
  index parameters = 0;        ///< first parameter
  index native = 0;            ///< first element in the native order
  norm_method method = norm_method::instantiate;
  tied_use use;

  [[nodiscard]] constexpr index positions() const noexcept {
    return step_plane.extent * step[0].extent * step[1].extent;
  }
  [[nodiscard]] constexpr index view_width() const noexcept {
    return view_plane.extent * view[0].extent * view[1].extent * view[2].extent;
  }
  [[nodiscard]] constexpr index size() const noexcept { return groups * view_width() * outputs; }
  [[nodiscard]] constexpr block_size block() const noexcept {
    return {static_cast<std::size_t>(positions()), static_cast<std::size_t>(view_width()),
            static_cast<std::size_t>(outputs), static_cast<std::size_t>(groups)};
  }
};

/// g_b = sum over positions of delta (.) u.
struct elementwise_leaf {
  std::size_t node = 0;
  place delta;
  place other;
  bool ones = true;
  step_axis step[2];       ///< `x` is the step in u
  step_axis step_plane{};  ///< around `step`
  index count = 0;
  index delta_stride = 1;
  index other_stride = 1;
  index parameters = 0;
  index native = 0;
  tied_use use;

  [[nodiscard]] constexpr index positions() const noexcept {
    return step_plane.extent * step[0].extent * step[1].extent;
  }
};

/// G_b[id] = sum over the positions that hold id of delta: a table of `vocabulary` rows, of which a sample uses few.
/// Nothing that grows with the table exists a sample or a lane: a sample's used rows are its *segments* (sparse.hpp).
struct sparse_leaf {
  std::size_t node = 0;
  std::size_t slot = 0;  ///< of the ids: it knows the samples' lengths
  place ids;
  place delta;
  index positions = 1;
  index delta_step = 0;  ///< from position to position; 0: one delta for all of them
  index delta_stride = 1;
  index width = 1;  ///< of a row
  index vocabulary = 1;
  index skipped = -1;    ///< an id whose row has no gradient, if any
  index parameters = 0;  ///< row 0, in PyTorch's order
  tied_use use;
  std::size_t owner = 0;  ///< the leaf that is the first use of the same table: it keeps the segments of all uses
  // Of an owner:
  index all_positions = 0;  ///< over all uses: the most segments that a sample can have
  bool counted = false;     ///< a segment is a multiple of the sample's one delta: only the count is kept
  index integers = 0;       ///< where a sample's segments lie among its integers
  index rows = 0;           ///< and among its scalars

  [[nodiscard]] constexpr index size() const noexcept { return vocabulary * width; }
};

/// The first leaf of a node and the one behind its last.
template <class Leaves>
[[nodiscard]] constexpr std::array<std::size_t, 2> leaves_of(const Leaves& leaves, std::size_t count,
                                                             std::size_t node) {
  std::size_t first = 0;
  while (first < count && leaves[first].node < node) ++first;
  std::size_t last = first;
  while (last < count && leaves[last].node == node) ++last;
  return {first, last};
}

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/windows.hpp - an affine layer's windows: halos, and the stride phases of the input gradient

namespace pergrad::inline v0_1::on_host {

/// Does the layer take its whole input as one pixel? Then it can read it wherever it lies.
[[nodiscard]] constexpr bool takes_one_pixel(const affine_map& map) {
  return map.in_size == extent{1} && map.kernel == extent{1} && map.out_size == extent{1} && map.padding == extent{0} &&
         map.groups == 1 && !map.adjoint;
}
/// A linear layer on a flattened image is the convolution whose one window is the image: nothing needs to move.
/// Precondition: PyTorch numbers the image channels first, or it is one pixel.
[[nodiscard]] constexpr affine_map on_stored_image(affine_map map, arrangement in) {
  map.in_channels = static_cast<std::size_t>(in.channels);
  map.in_size = {static_cast<std::size_t>(in.depth), static_cast<std::size_t>(in.height),
                 static_cast<std::size_t>(in.width)};
  map.kernel = map.in_size;
  return map;
}

/// Zeros that the windows of one axis read beyond its end.
[[nodiscard]] constexpr index beyond(std::size_t out, std::size_t stride, std::size_t dilation, std::size_t kernel,
                                     std::size_t padding, std::size_t size) {
  const auto last = static_cast<index>((out - 1) * stride + dilation * (kernel - 1) + 1);
  return std::max<index>(0, last - static_cast<index>(padding + size));
}
[[nodiscard]] constexpr halo forward_halo(const affine_map& map) {
  return {static_cast<index>(map.padding.height),
          static_cast<index>(map.padding.width),
          beyond(map.out_size.height, map.stride.height, map.dilation.height, map.kernel.height, map.padding.height,
                 map.in_size.height),
          beyond(map.out_size.width, map.stride.width, map.dilation.width, map.kernel.width, map.padding.width,
                 map.in_size.width),
          static_cast<index>(map.padding.depth),
          beyond(map.out_size.depth, map.stride.depth, map.dilation.depth, map.kernel.depth, map.padding.depth,
                 map.in_size.depth)};
}
[[nodiscard]] constexpr bool sees_everything_once(const affine_map& map) {
  return map.out_size == extent{1} && map.padding == extent{0} && map.kernel == map.in_size &&
         map.dilation == extent{1} && map.groups == 1 && !map.adjoint;
}

/// Along one axis: inputs i with (i + padding) mod stride == phase are reached by the taps first_tap + n·tap_step, and
/// tap n of input first_input + q·stride reads delta at first_delta + q - n·delta_step.
struct phase {
  index first_input = 0;
  index inputs = 0;
  index first_tap = 0;
  index tap_step = 1;
  index taps = 0;
  index first_delta = 0;
  index delta_step = 1;
};
[[nodiscard]] constexpr phase phase_of(index number, index size, index kernel, index stride, index padding,
                                       index dilation) {
  phase result;
  result.first_input = ((number - padding) % stride + stride) % stride;
  result.inputs = result.first_input < size ? (size - result.first_input + stride - 1) / stride : 0;
  while (result.first_tap < kernel && (result.first_tap * dilation) % stride != number % stride) ++result.first_tap;
  if (result.first_tap == kernel) return result;
  while ((result.tap_step * dilation) % stride != 0) ++result.tap_step;
  result.taps = (kernel - 1 - result.first_tap) / result.tap_step + 1;
  result.delta_step = result.tap_step * dilation / stride;
  result.first_delta = (result.first_input + padding - result.first_tap * dilation) / stride;
  return result;
}

/// Calls f(plane phase, row phase, column phase) for all stride phases of the input gradient.
template <class Function>
inline void for_each_phase(const affine_map& map, Function&& f) {
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  for (index d = 0; d < number(map.stride.depth); ++d) {
    const phase planes = phase_of(d, number(map.in_size.depth), number(map.kernel.depth), number(map.stride.depth),
                                  number(map.padding.depth), number(map.dilation.depth));
    for (index r = 0; r < number(map.stride.height); ++r) {
      const phase rows = phase_of(r, number(map.in_size.height), number(map.kernel.height), number(map.stride.height),
                                  number(map.padding.height), number(map.dilation.height));
      for (index s = 0; s < number(map.stride.width); ++s) {
        const phase columns = phase_of(s, number(map.in_size.width), number(map.kernel.width), number(map.stride.width),
                                       number(map.padding.width), number(map.dilation.width));
        f(planes, rows, columns);
      }
    }
  }
}

/// Zeros that the input gradient's windows read before and after delta, along one axis.
[[nodiscard]] constexpr std::array<index, 2> backward_reach(std::size_t size, std::size_t out, std::size_t kernel,
                                                            std::size_t stride, std::size_t padding,
                                                            std::size_t dilation) {
  std::array<index, 2> reach{};
  for (std::size_t number = 0; number < stride; ++number) {
    const phase p = phase_of(static_cast<index>(number), static_cast<index>(size), static_cast<index>(kernel),
                             static_cast<index>(stride), static_cast<index>(padding), static_cast<index>(dilation));
    if (p.taps == 0 || p.inputs == 0) continue;
    reach[0] = std::max(reach[0], (p.taps - 1) * p.delta_step - p.first_delta);
    reach[1] = std::max(reach[1], p.first_delta + p.inputs - static_cast<index>(out));
  }
  return reach;
}
[[nodiscard]] constexpr halo backward_halo(const affine_map& map) {
  const auto rows = backward_reach(map.in_size.height, map.out_size.height, map.kernel.height, map.stride.height,
                                   map.padding.height, map.dilation.height);
  const auto planes = backward_reach(map.in_size.depth, map.out_size.depth, map.kernel.depth, map.stride.depth,
                                     map.padding.depth, map.dilation.depth);
  const auto columns = backward_reach(map.in_size.width, map.out_size.width, map.kernel.width, map.stride.width,
                                      map.padding.width, map.dilation.width);
  return {rows[0], columns[0], rows[1], columns[1], planes[0], planes[1]};
}

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Are the layer's rank-2 shapes (channels, positions)?
template <class Layer>
[[nodiscard]] constexpr bool is_channels_first() {
  return requires { requires Layer::channels_first; };
}
/// How the input of a node that reads images must be stored; no channels: any way will do.
template <class Layer>
[[nodiscard]] constexpr arrangement reads(node_kind kind, shape in, const affine_map& map) {
  const bool any = kind == node_kind::affine ? takes_one_pixel(map) && in.rank() == 1
                                             : kind != node_kind::pooling && !detail::reads_images<Layer>;
  return any ? arrangement{.channels = 0} : arrange(in, is_channels_first<Layer>());
}
/// How a node stores its output; no channels: as the reader wishes.
template <class Layer>
[[nodiscard]] constexpr arrangement writes(node_kind kind, shape out) {
  const bool chosen = kind == node_kind::affine || kind == node_kind::pooling || detail::reads_images<Layer>;
  return chosen ? arrange(out, is_channels_first<Layer>()) : arrangement{.channels = 0};
}
/// Are the values of such a node stored as its input is?
[[nodiscard]] constexpr bool keeps_arrangement(node_kind kind) {
  return kind == node_kind::reshape || kind == node_kind::elementwise || kind == node_kind::branch_sum;
}
/// The column of pixels that a shape of rank 2 is stored as: as it is if it is one, else (positions, features).
[[nodiscard]] constexpr arrangement column_of(shape of, arrangement now) {
  return now.agrees_with(arrange(of, true)) ? arrange(of, true) : arrange(of, false);
}
/// A wish is granted, except that a sequence stays a column of positions.
[[nodiscard]] constexpr arrangement choose(shape of, arrangement wish) {
  if (wish.channels == 0 || (of.rank() == 2 && wish != arrange(of, true))) return arrange(of, false);
  return wish;
}

/// How the first reader of each slot that cares wants it to be stored.
template <class Structure>
[[nodiscard]] constexpr std::array<arrangement, Structure::size + 1> wishes(
    const std::array<node_row, Structure::size>& nodes, const std::array<arrangement, Structure::size>& read_as,
    const std::array<bool, Structure::size>& transposes) {
  std::array<arrangement, Structure::size + 1> wished{};
  for (arrangement& each : wished) each.channels = 0;
  for (std::size_t i = Structure::size; i-- > 0;) {
    arrangement wish = read_as[i];
    if (transposes[i]) {
      const shape out = Structure::shapes[i + 1];
      wish = choose(out, wished[i + 1]).transposed();
      if (wished[i + 1].channels == 0) wish.channels = 0;
    } else if (keeps_arrangement(nodes[i].kind)) {
      wish = wished[i + 1];
    }
    if (wish.channels != 0) wished[Structure::inputs[i]] = wish;
  }
  return wished;
}

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/leaf_tables.hpp - the factor leaves of a network: a row for each use of each block of parameters

// pergrad/host/sparse.hpp - gradients of a table of which a sample uses few rows: segments, their norm, their sums
//
//   G_b[id] = sum over t with id_{b,t} = id of delta_{b,t}
//
// A sample's gradient is zero but for its segments: one summed row for each id that occurs in it (positions that hold
// the same id must be added up before the norm is taken; Lee & Kifer 2020, arXiv:2009.03106). They are found in O(T)
// with a hash table, and their rows are squared as they are stored, so what is clipped is what is added. Where all
// positions share one delta, a segment is that delta times how often its id occurs, and only the count is kept.
//
// Segments of a chunk of samples are kept until the samples' weights are known. A table is then cut into buckets of
// rows, and every bucket is summed up by one task, sample after sample: the bits of a sum depend on the order of the
// samples only. Memory grows with samples x positions x width of a row, never with samples x table.

// pergrad/detail/elements.hpp - loops over a stretch of elements, a vector at a time: sums, scaled sums, dot products

#include <cstring>

// pergrad/detail/vector.hpp - the widest vectors the target has, and loads and stores of their first few lanes
//
// Written with the vector extension that g++ and clang++ share. What that extension cannot say, a load or store that
// touches only the first `count` lanes in memory, uses the compilers' masked built-ins where the target has such
// instructions (AVX-512, AVX) and goes lane by lane elsewhere.

namespace pergrad::inline v0_1::on_host {

/// Bytes of one vector register of the target this translation unit is compiled for.
#if defined(__AVX512F__)
inline constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t vector_bytes = 32;
#else
inline constexpr std::size_t vector_bytes = 16;
#endif

/// Number of vector registers of the target.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr std::size_t vector_registers = 32;
#else
inline constexpr std::size_t vector_registers = 16;
#endif

namespace product_detail {

template <class Scalar>
struct vector_of;

template <>
struct vector_of<float> {
  typedef float type __attribute__((vector_size(vector_bytes)));
  typedef float half_type __attribute__((vector_size(vector_bytes / 2)));
  typedef int lanes_type __attribute__((vector_size(vector_bytes)));
  typedef float narrow_type __attribute__((vector_size(vector_bytes / 2)));
};

template <>
struct vector_of<double> {
  typedef double type __attribute__((vector_size(vector_bytes)));
  typedef long long lanes_type __attribute__((vector_size(vector_bytes)));
  typedef type narrow_type;
};

}  // namespace product_detail

/// A whole register of `Scalar` (float or double); `+ - *` act lane by lane.
template <class Scalar>
using vector = typename product_detail::vector_of<Scalar>::type;

/// Lanes of a `vector<Scalar>`.
template <class Scalar>
inline constexpr std::size_t vector_lanes = vector_bytes / sizeof(Scalar);

/// Reads a whole vector from `from`, which need not be aligned.
template <class Scalar>
[[nodiscard]] inline vector<Scalar> load(const Scalar* from) noexcept {
  vector<Scalar> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Writes a whole vector to `to`, which need not be aligned.
template <class Scalar>
inline void store(Scalar* to, std::type_identity_t<vector<Scalar>> value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

/// `value` in every lane.
template <class Scalar>
[[nodiscard]] inline vector<Scalar> splat(Scalar value) noexcept {
  return value - vector<Scalar>{};  // x - 0 is x for every x, -0 included: compilers drop the subtraction
}

/// As many `Scalar` as a `vector<double>` has lanes: what is summed up in double.
template <class Scalar>
using narrow = typename product_detail::vector_of<Scalar>::narrow_type;

[[nodiscard]] inline vector<double> widen(vector<double> values) noexcept { return values; }
[[nodiscard]] inline vector<double> widen(narrow<float> values) noexcept {
#if defined(__AVX512F__) && !defined(__clang__)
  // All lanes, rounding as set. Of the other, g++ 12 makes four instructions instead of one.
  return __builtin_ia32_cvtps2pd512_mask(values, vector<double>{}, -1, 4);
#else
  return __builtin_convertvector(values, vector<double>);
#endif
}

/// Every lane of a vector: the same members as `first_lanes`, for code that is written once for both.
template <class Scalar>
struct all_lanes {
  /// Reads a whole vector.
  [[nodiscard]] vector<Scalar> load(const Scalar* from) const noexcept { return on_host::load(from); }
  /// Writes a whole vector.
  void store(Scalar* to, vector<Scalar> value) const noexcept { on_host::store(to, value); }
  /// `value` as it is.
  [[nodiscard]] vector<Scalar> keep(vector<Scalar> value) const noexcept { return value; }
};

/// The first `count` lanes of a vector, 1 <= count <= lanes: which of them a partial load or store may touch.
template <class Scalar>
class first_lanes {
 public:
  /// Precondition: 1 <= count <= vector_lanes<Scalar>.
  explicit first_lanes(std::size_t count) noexcept : mask_{mask_of(count)} {}

  /// Reads only the chosen lanes of memory; the others become 0.
  [[nodiscard]] vector<Scalar> load(const Scalar* from) const noexcept {
#if defined(__AVX512F__)
    if constexpr (sizeof(Scalar) == 4) {
      return __builtin_ia32_loadups512_mask(from, vector<Scalar>{}, mask_);
    } else {
      return __builtin_ia32_loadupd512_mask(from, vector<Scalar>{}, mask_);
    }
#elif defined(__AVX__)
    if constexpr (sizeof(Scalar) == 4) {
      return __builtin_ia32_maskloadps256(reinterpret_cast<const vector<Scalar>*>(from), mask_);
    } else {
      return __builtin_ia32_maskloadpd256(reinterpret_cast<const vector<Scalar>*>(from), mask_);
    }
#else
    if (mask_ == vector_lanes<Scalar>) {
      return on_host::load(from);
    }
    alignas(vector_bytes) Scalar lanes[vector_lanes<Scalar>] = {};
    copy(lanes, from);
    return on_host::load(lanes);
#endif
  }

  /// Writes only the chosen lanes to memory.
  void store(Scalar* to, vector<Scalar> value) const noexcept {
#if defined(__AVX512F__)
    if constexpr (sizeof(Scalar) == 4) {
      __builtin_ia32_storeups512_mask(to, value, mask_);
    } else {
      __builtin_ia32_storeupd512_mask(to, value, mask_);
    }
#elif defined(__AVX__)
    if constexpr (sizeof(Scalar) == 4) {
      __builtin_ia32_maskstoreps256(reinterpret_cast<vector<Scalar>*>(to), mask_, value);
    } else {
      __builtin_ia32_maskstorepd256(reinterpret_cast<vector<Scalar>*>(to), mask_, value);
    }
#else
    if (mask_ == vector_lanes<Scalar>) {
      on_host::store(to, value);
      return;
    }
    alignas(vector_bytes) Scalar lanes[vector_lanes<Scalar>];
    on_host::store(lanes, value);
    copy(to, lanes);
#endif
  }

  /// `value` with 0 in the lanes that are not chosen, whatever they held.
  [[nodiscard]] vector<Scalar> keep(vector<Scalar> value) const noexcept {
    alignas(vector_bytes) Scalar lanes[vector_lanes<Scalar>];
    on_host::store(lanes, value);
    return load(lanes);
  }

 private:
#if defined(__AVX512F__)
  using mask_type = std::conditional_t<sizeof(Scalar) == 4, unsigned short, unsigned char>;
  static mask_type mask_of(std::size_t count) noexcept { return static_cast<mask_type>((1U << count) - 1U); }
#elif defined(__AVX__)
  using mask_type = typename product_detail::vector_of<Scalar>::lanes_type;
  static mask_type mask_of(std::size_t count) noexcept {
    mask_type mask{};
    for (std::size_t lane = 0; lane < vector_lanes<Scalar>; ++lane) {
      mask[lane] = lane < count ? -1 : 0;
    }
    return mask;
  }
#else
  using mask_type = std::size_t;
  static mask_type mask_of(std::size_t count) noexcept { return count; }
  /// Written out: a loop would become a call, and a call would send every vector of its caller to memory.
  void copy(Scalar* to, const Scalar* from) const noexcept {
    constexpr std::size_t lanes = vector_lanes<Scalar>;
    to[0] = from[0];
    if constexpr (lanes > 2) {
      if (mask_ > 1) {
        to[1] = from[1];
      }
      if (mask_ > 2) {
        to[2] = from[2];
      }
    }
  }
#endif

  mask_type mask_;
};

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Calls f(first, lanes) over `count` elements: whole vectors first, as `all_lanes`, then the rest as `first_lanes`.
template <class Scalar, class Function>
inline void for_each_vector(index count, Function&& f) {
  constexpr auto lanes = static_cast<index>(vector_lanes<Scalar>);
  index first = 0;
  for (; first + lanes <= count; first += lanes) f(first, all_lanes<Scalar>{});
  if (first < count) f(first, first_lanes<Scalar>{static_cast<std::size_t>(count - first)});
}

template <class Scalar>
inline void add_to(Scalar* to, const Scalar* from, index count) {
  for_each_vector<Scalar>(
      count, [&](index i, const auto& lanes) { lanes.store(to + i, lanes.load(to + i) + lanes.load(from + i)); });
}
/// to += weight * from
template <class Scalar>
inline void add_scaled_to(Scalar* to, Scalar weight, const Scalar* from, index count) {
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    lanes.store(to + i, lanes.load(to + i) + splat(weight) * lanes.load(from + i));
  });
}
/// to += weight * from^2
template <class Scalar>
inline void add_scaled_squares_to(Scalar* to, Scalar weight, const Scalar* from, index count) {
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    const vector<Scalar> value = lanes.load(from + i);
    lanes.store(to + i, lanes.load(to + i) + splat(weight) * (value * value));
  });
}

/// sum_i a_i b_i in double. Products of floats are exact there, so only the additions round.
template <class Scalar>
[[nodiscard]] inline double dot(const Scalar* a, const Scalar* b, index count) noexcept {
  constexpr auto width = static_cast<index>(vector_lanes<double>);
  vector<double> sums[2]{};
  const index whole = count - count % (2 * width);
  for (index i = 0; i < whole; i += 2 * width) {
    for (index k = 0; k < 2; ++k) {
      narrow<Scalar> left;
      narrow<Scalar> right;
      std::memcpy(&left, a + i + k * width, sizeof left);
      std::memcpy(&right, b + i + k * width, sizeof right);
      sums[k] += widen(left) * widen(right);
    }
  }
  double total = 0;
  const vector<double> both = sums[0] + sums[1];
  for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) total += both[lane];
  for (index i = whole; i < count; ++i) total += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return total;
}

template <class Scalar>
[[nodiscard]] inline double squares(const Scalar* a, index count) noexcept {
  return dot(a, a, count);
}

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Parts of a table that are summed up independently.
inline constexpr index sparse_buckets = 16;

/// Neighbouring rows in one bucket: so many that two threads seldom write to one cache line. Buckets take turns, as
/// vocabularies are often sorted by frequency.
[[nodiscard]] constexpr int bucket_shift(const sparse_leaf& leaf) noexcept {
  int shift = 0;
  while ((leaf.width << shift) < 4 * line) ++shift;
  return shift;
}
[[nodiscard]] constexpr std::size_t bucket_of(std::int32_t id, int shift) noexcept {
  return (static_cast<std::uint32_t>(id) >> shift) % static_cast<std::uint32_t>(sparse_buckets);
}

/// Integers that a sample's segments take: where buckets begin, ids, counts.
[[nodiscard]] constexpr index segment_integers(const sparse_leaf& leaf) noexcept {
  return round_up(sparse_buckets + 1 + (leaf.counted ? 2 : 1) * leaf.all_positions);
}

/// Slots of the hash table: one an id where that is not much, else four a position.
[[nodiscard]] constexpr index hash_slots(const sparse_leaf& leaf) noexcept {
  index slots = 64;
  const index wanted =
      leaf.vocabulary <= 64 * leaf.all_positions || leaf.vocabulary <= 4096 ? leaf.vocabulary : 4 * leaf.all_positions;
  while (slots < wanted) slots *= 2;
  return slots;
}

/// A sample's segments of one table, bucket after bucket.
template <class Scalar>
struct segments {
  std::int32_t* first_of = nullptr;  ///< sparse_buckets + 1 numbers of segments
  std::int32_t* ids = nullptr;
  std::int32_t* counts = nullptr;  ///< if counted
  Scalar* rows = nullptr;          ///< one a segment; if counted, the one delta

  segments(const sparse_leaf& leaf, std::int32_t* integers, Scalar* scalars) noexcept
      : first_of{integers + leaf.integers},
        ids{first_of + sparse_buckets + 1},
        counts{ids + leaf.all_positions},
        rows{scalars + leaf.rows} {}
  [[nodiscard]] index count() const noexcept { return first_of[sparse_buckets]; }
};

/// What a worker finds segments with: three numbers a position, and a hash table of zeros that are zeros again
/// afterwards.
struct segment_finder {
  std::int32_t* memory = nullptr;
  index positions = 0;
  [[nodiscard]] std::int32_t* segment_of() const noexcept { return memory; }
  [[nodiscard]] std::int32_t* found() const noexcept { return memory + positions; }
  [[nodiscard]] std::int32_t* counts() const noexcept { return memory + 2 * positions; }
  [[nodiscard]] std::int32_t* slots() const noexcept { return memory + 3 * positions; }
  [[nodiscard]] static constexpr index size(index positions, index slots) noexcept {
    return round_up(3 * positions + slots);
  }
};

/// The segments of one table and one sample: `find` for every use of the table, `sort`, then `add_rows` for every use.
template <class Scalar>
class segment_maker {
 public:
  segment_maker(const sparse_leaf& owner, const segment_finder& finder) noexcept
      : owner_{owner}, finder_{finder}, mask_{static_cast<std::uint32_t>(hash_slots(owner) - 1)} {}

  /// Notes the ids of one use, after those of the uses before.
  void find(const sparse_leaf& use, const std::int32_t* ids, index length) noexcept {
    std::int32_t* segment_of = finder_.segment_of() + position_;
    std::int32_t* found = finder_.found();
    std::int32_t* counts = finder_.counts();
    std::int32_t* slots = finder_.slots();
    position_ += use.positions;
    const bool direct = is_direct();
    for (index t = 0; t < length; ++t) {
      const std::int32_t id = ids[t];
      if (id == use.skipped) {
        segment_of[t] = -1;
        continue;
      }
      std::uint32_t slot = direct ? static_cast<std::uint32_t>(id) : scattered(id);
      std::int32_t segment = slots[slot] - 1;
      while (segment >= 0 && found[segment] != id) {
        slot = (slot + 1) & mask_;
        segment = slots[slot] - 1;
      }
      const bool is_new = segment < 0;
      segment = is_new ? count_ : segment;
      counts[segment] = is_new ? 1 : counts[segment] + 1;
      found[segment] = id;
      slots[slot] = segment + 1;
      count_ += is_new ? 1 : 0;
      segment_of[t] = segment;
    }
  }

  /// Puts the segments in order, bucket after bucket, and clears the hash table.
  void sort(segments<Scalar> to) noexcept {
    std::int32_t* found = finder_.found();
    std::int32_t* counts = finder_.counts();
    const int shift = bucket_shift(owner_);
    std::int32_t next[sparse_buckets] = {};
    for (index k = 0; k < count_; ++k) ++next[bucket_of(found[k], shift)];
    to.first_of[0] = 0;
    for (index bucket = 0; bucket < sparse_buckets; ++bucket) {
      to.first_of[bucket + 1] = to.first_of[bucket] + next[bucket];
      next[bucket] = to.first_of[bucket];
    }
    std::int32_t* slots = finder_.slots();
    const bool direct = is_direct();
    if (!direct) std::fill_n(slots, mask_ + 1, 0);
    for (index k = 0; k < (direct ? count_ : 0); ++k) slots[found[k]] = 0;
    const auto place_each = [&](auto&& keep) {
      for (index k = 0; k < count_; ++k) {
        const std::int32_t place = next[bucket_of(found[k], shift)]++;
        to.ids[place] = found[k];
        keep(k, place);
      }
    };
    if (owner_.counted) {
      place_each([&](index k, std::int32_t place) { to.counts[place] = counts[k]; });
    } else {
      place_each([&](index k, std::int32_t place) { counts[k] = place; });
      std::fill_n(to.rows, count_ * owner_.width, Scalar{0});
    }
    position_ = 0;
  }

  /// Adds the rows of one use to its segments, in the order of `find`. Precondition: not counted.
  void add_rows(const sparse_leaf& use, const Scalar* delta, index length, segments<Scalar> to) noexcept {
    const std::int32_t* segment_of = finder_.segment_of() + position_;
    const std::int32_t* places = finder_.counts();
    position_ += use.positions;
    for (index t = 0; t < length; ++t) {
      if (segment_of[t] < 0) continue;
      Scalar* row = to.rows + places[segment_of[t]] * owner_.width;
      const Scalar* from = delta + t * use.delta_step;
      if (use.delta_stride == 1) {
        add_to(row, from, owner_.width);
      } else {
        for (index i = 0; i < owner_.width; ++i) row[i] += from[i * use.delta_stride];
      }
    }
  }

 private:
  /// Has every id a slot of its own?
  [[nodiscard]] bool is_direct() const noexcept { return owner_.vocabulary <= static_cast<index>(mask_) + 1; }
  /// Multiplicative hashing (Knuth, TAOCP 3, 6.4).
  [[nodiscard]] std::uint32_t scattered(std::int32_t id) const noexcept {
    return (static_cast<std::uint32_t>(id) * 0x9E3779B1U >> 8U) & mask_;
  }

  const sparse_leaf& owner_;
  segment_finder finder_;
  std::uint32_t mask_;
  index position_ = 0;
  std::int32_t count_ = 0;
};

/// ‖G_b‖² of a table: the squares of the rows that are added to sums.
template <class Scalar>
[[nodiscard]] inline double squares_of(const sparse_leaf& leaf, const segments<Scalar>& of) noexcept {
  if (!leaf.counted) return squares(static_cast<const Scalar*>(of.rows), of.count() * leaf.width);
  index once = 0;
  double repeated = 0;
  for (index k = 0; k < of.count(); ++k) {
    if (of.counts[k] == 1) {
      ++once;
      continue;
    }
    const auto count = static_cast<Scalar>(of.counts[k]);
    for (index i = 0; i < leaf.width; ++i) {
      const auto value = static_cast<double>(static_cast<Scalar>(count * of.rows[i]));
      repeated += value * value;
    }
  }
  const double alone = once == 0 ? 0 : squares(static_cast<const Scalar*>(of.rows), leaf.width);
  return static_cast<double>(once) * alone + repeated;
}

/// Calls f(place of the segment's row in the table, row, how often it counts) for segments first .. last - 1.
template <class Scalar, class Function>
inline void for_each_segment(const sparse_leaf& leaf, const segments<Scalar>& of, index first, index last,
                             Function&& f) {
  if (leaf.counted) {
    for (index k = first; k < last; ++k) {
      f(of.ids[k] * leaf.width, static_cast<const Scalar*>(of.rows), static_cast<Scalar>(of.counts[k]));
    }
  } else {
    for (index k = first; k < last; ++k) {
      f(of.ids[k] * leaf.width, static_cast<const Scalar*>(of.rows + k * leaf.width), Scalar{1});
    }
  }
}

/// table += weight G_b, or weight G_b^2, for the segments first .. last - 1.
template <class Scalar>
inline void add_segments(const sparse_leaf& leaf, const segments<Scalar>& of, index first, index last, Scalar weight,
                         bool squared, Scalar* table) noexcept {
  for_each_segment(leaf, of, first, last, [&](index place, const Scalar* row, Scalar count) {
    Scalar* to = table + place;
    if (squared) {
      for_each_vector<Scalar>(leaf.width, [&](index i, const auto& lanes) {
        const vector<Scalar> value = splat(count) * lanes.load(row + i);
        lanes.store(to + i, lanes.load(to + i) + splat(weight) * (value * value));
      });
    } else {
      for_each_vector<Scalar>(leaf.width, [&](index i, const auto& lanes) {
        lanes.store(to + i, lanes.load(to + i) + splat(weight) * (splat(count) * lanes.load(row + i)));
      });
    }
  });
}
/// table = weight G_b. A weight of 0 is chosen, not multiplied.
template <class Scalar>
inline void write_segments(const sparse_leaf& leaf, const segments<Scalar>& of, Scalar weight, Scalar* table) noexcept {
  std::fill_n(table, leaf.size(), Scalar{0});
  if (weight != 0) add_segments(leaf, of, 0, of.count(), weight, false, table);
}
/// <G_b, table>
template <class Scalar>
[[nodiscard]] inline double dot_segments(const sparse_leaf& leaf, const segments<Scalar>& of,
                                         const Scalar* table) noexcept {
  double sum = 0;
  for_each_segment(leaf, of, 0, of.count(), [&](index place, const Scalar* row, Scalar count) {
    sum += static_cast<double>(count) * dot(row, table + place, leaf.width);
  });
  return sum;
}

/// Calls f(first parameter of the table, count) for the stretches of one bucket.
template <class Function>
inline void for_each_stretch_of_bucket(const sparse_leaf& leaf, index bucket, Function&& f) {
  const index stretch = index{1} << bucket_shift(leaf);
  for (index id = bucket * stretch; id < leaf.vocabulary; id += sparse_buckets * stretch) {
    f(id * leaf.width, std::min(stretch, leaf.vocabulary - id) * leaf.width);
  }
}

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Fills the leaves into the tables of a `program`.
template <class Program>
struct leaf_tables {
  using structure = typename Program::structure;
  using tables = typename Program::tables;

  /// Sizes and parameter order of every leaf; places follow once the tile is known.
  static constexpr void list(tables& t) {
    detail::for_each_index<Program::size>([&](auto index_constant) {
      constexpr std::size_t i = index_constant;
      using layer = layer_at<i>;
      const node_row& row = t.nodes[i];
      index parameter = row.parameters;
      if (row.parameter_count == 0) return;
      if constexpr (detail::has_affine<layer>) {
        const affine_map& map = row.map;
        const auto taps = static_cast<index>(map.kernel.size());
        const auto group_channels = static_cast<index>(map.in_channels / map.groups);
        outer_leaf leaf;
        leaf.node = i;
        leaf.groups = static_cast<index>(map.groups);
        leaf.outputs = static_cast<index>(map.group_outputs());
        leaf.view_plane = {static_cast<index>(map.kernel.depth), 0,
                           static_cast<index>(map.kernel.height * map.kernel.width)};
        leaf.view[0] = {static_cast<index>(map.kernel.height), 0, static_cast<index>(map.kernel.width)};
        leaf.view[1] = {static_cast<index>(map.kernel.width), 0, 1};
        leaf.view[2] = {group_channels, 1, taps};
        leaf.step_plane.extent = static_cast<index>(map.out_size.depth);
        leaf.step[0].extent = static_cast<index>(map.out_size.height);
        leaf.step[1].extent = static_cast<index>(map.out_size.width);
        leaf.parameter_output = group_channels * taps;
        leaf.parameter_group = leaf.outputs * leaf.parameter_output;
        leaf.parameters = parameter;
        add_leaf(t, leaf);
        parameter += leaf.size();
        if (map.bias) {
          elementwise_leaf bias;
          bias.node = i;
          const extent places = map.adjoint ? map.in_size : map.out_size;
          bias.count = static_cast<index>(map.bias_count());
          bias.step_plane.extent = static_cast<index>(places.depth);
          bias.step[0].extent = static_cast<index>(places.height);
          bias.step[1].extent = static_cast<index>(places.width);
          bias.parameters = parameter;
          add_leaf(t, bias);
        }
      } else if constexpr (detail::has_factors<layer>) {
        for (const factor& each : detail::factors_of<layer>(Program::shape_of(i), Program::second_shape_of(i))) {
          if (each.sparse) {
            sparse_leaf leaf;
            leaf.node = i;
            leaf.slot = row.in;
            leaf.positions = static_cast<index>(each.positions);
            leaf.delta_step = static_cast<index>(each.delta.position_stride);
            leaf.delta_stride = static_cast<index>(each.delta.stride);
            leaf.width = static_cast<index>(each.columns);
            leaf.vocabulary = static_cast<index>(each.rows);
            leaf.skipped = each.skipped_id < each.rows ? static_cast<index>(each.skipped_id) : -1;
            leaf.parameters = parameter;
            add_leaf(t, leaf);
          } else if (each.outer) {
            outer_leaf leaf;
            leaf.node = i;
            leaf.outputs = static_cast<index>(each.rows);
            leaf.view[2] = {static_cast<index>(each.columns), static_cast<index>(each.other.stride), 1};
            leaf.step[1].extent = static_cast<index>(each.positions);
            leaf.delta_stride = static_cast<index>(each.delta.stride);
            leaf.parameter_output = static_cast<index>(each.columns);
            leaf.parameters = parameter;
            add_leaf(t, leaf);
          } else {
            elementwise_leaf leaf;
            leaf.node = i;
            leaf.ones = each.other.from == source::ones;
            leaf.count = static_cast<index>(each.rows);
            leaf.step[1].extent = static_cast<index>(each.positions);
            leaf.delta_stride = static_cast<index>(each.delta.stride);
            leaf.other_stride = static_cast<index>(each.other.stride);
            leaf.parameters = parameter;
            add_leaf(t, leaf);
          }
          parameter += static_cast<index>(each.size());
        }
      }
    });
    arrange_segments(t);
  }

  /// Places of what the factors read, once the tile and the workspace are laid out.
  static constexpr void resolve(tables& t) {
    for (std::size_t k = 0; k < t.outer_count; ++k) {
      outer_leaf& leaf = t.outer[k];
      const node_row& row = t.nodes[leaf.node];
      if (row.kind != node_kind::affine) continue;
      const slot& in = t.slots[row.in];
      const slot& out = t.slots[row.out];
      const affine_map& map = row.map;
      // Of an adjoint map the input gradient's windows lie over the output gradient, and the input takes delta's place.
      const layout& x = map.adjoint ? out.gradient_layout : in.value_layout;
      const layout& delta = map.adjoint ? in.value_layout : out.gradient_layout;
      leaf.x =
          (map.adjoint ? out.gradient : in.value)
              .at(x.start - static_cast<index>(map.padding.depth) * x.plane -
                  static_cast<index>(map.padding.height) * x.row - static_cast<index>(map.padding.width) * x.column);
      leaf.delta = (map.adjoint ? in.value : out.gradient).at(delta.start);
      leaf.x_group = leaf.view[2].extent;
      leaf.delta_group = leaf.outputs;
      leaf.view_plane.x = static_cast<index>(map.dilation.depth) * x.plane;
      leaf.view[0].x = static_cast<index>(map.dilation.height) * x.row;
      leaf.view[1].x = static_cast<index>(map.dilation.width) * x.column;
      leaf.step_plane = {leaf.step_plane.extent, static_cast<index>(map.stride.depth) * x.plane, delta.plane};
      leaf.step[0] = {leaf.step[0].extent, static_cast<index>(map.stride.height) * x.row, delta.row};
      leaf.step[1] = {leaf.step[1].extent, static_cast<index>(map.stride.width) * x.column, delta.column};
    }
    for (std::size_t k = 0; k < t.elementwise_count; ++k) {
      elementwise_leaf& leaf = t.elementwise[k];
      const node_row& row = t.nodes[leaf.node];
      if (row.kind != node_kind::affine) continue;
      const slot& out = t.slots[row.out];
      leaf.delta = out.gradient.at(out.gradient_layout.start);
      leaf.step_plane.delta = out.gradient_layout.plane;
      leaf.step[0].delta = out.gradient_layout.row;
      leaf.step[1].delta = out.gradient_layout.column;
    }
    std::size_t outer = 0;
    std::size_t elementwise = 0;
    std::size_t sparse = 0;
    detail::for_each_index<Program::size>([&](auto index_constant) {
      constexpr std::size_t i = index_constant;
      using layer = layer_at<i>;
      if constexpr (!detail::has_affine<layer> && detail::has_factors<layer>) {
        while (outer < t.outer_count && t.outer[outer].node < i) ++outer;
        while (elementwise < t.elementwise_count && t.elementwise[elementwise].node < i) ++elementwise;
        if (t.nodes[i].parameter_count == 0) return;
        for (const factor& each : detail::factors_of<layer>(Program::shape_of(i), Program::second_shape_of(i))) {
          const auto delta_step = static_cast<index>(each.delta.position_stride);
          const auto other_step = static_cast<index>(each.other.position_stride);
          if (each.sparse) {
            sparse_leaf& leaf = t.sparse[sparse++];
            leaf.ids = place_of(t.nodes[i], each.other);
            leaf.delta = place_of(t.nodes[i], each.delta);
          } else if (each.outer) {
            outer_leaf& leaf = t.outer[outer++];
            leaf.x = place_of(t.nodes[i], each.other);
            leaf.delta = place_of(t.nodes[i], each.delta);
            leaf.step[1].x = other_step;
            leaf.step[1].delta = delta_step;
          } else {
            elementwise_leaf& leaf = t.elementwise[elementwise++];
            leaf.delta = place_of(t.nodes[i], each.delta);
            leaf.other = place_of(t.nodes[i], each.other);
            leaf.step[1].x = other_step;
            leaf.step[1].delta = delta_step;
          }
        }
      }
    });
  }

 private:
  template <std::size_t Index>
  using layer_at = typename Program::template layer_at<Index>;

  static constexpr void add_leaf(tables& t, sparse_leaf leaf) {
    leaf.use = use_of(leaf.node);
    leaf.owner = t.sparse_count;
    for (std::size_t k = 0; k < t.sparse_count && !leaf.use.first; ++k) {
      if (t.sparse[k].parameters == leaf.parameters && t.sparse[k].use.first) leaf.owner = k;
    }
    t.sparse[t.sparse_count++] = leaf;
  }
  /// Where the segments of a sample lie.
  static constexpr void arrange_segments(tables& t) {
    for (std::size_t k = 0; k < t.sparse_count; ++k) t.sparse[t.sparse[k].owner].all_positions += t.sparse[k].positions;
    for (std::size_t k = 0; k < t.sparse_count; ++k) {
      sparse_leaf& leaf = t.sparse[k];
      if (leaf.owner != k) continue;
      leaf.counted = leaf.delta_step == 0 && leaf.delta_stride == 1 && !leaf.use.shared();
      leaf.integers = t.sparse_integers;
      leaf.rows = t.sparse_scalars;
      t.sparse_integers += segment_integers(leaf);
      t.sparse_scalars += round_up(leaf.width * (leaf.counted ? 1 : leaf.all_positions));
      t.sparse_positions = std::max(t.sparse_positions, leaf.all_positions);
      t.sparse_slots = std::max(t.sparse_slots, hash_slots(leaf));
      t.sparse_size += leaf.size();
    }
  }
  static constexpr void add_leaf(tables& t, outer_leaf leaf) {
    leaf.use = use_of(leaf.node);
    const bool automatic = leaf.delta_stride == 1 && !leaf.use.shared();
    leaf.method =
        automatic ? cheapest_method(leaf.block(), sizeof(typename Program::scalar)) : norm_method::instantiate;
    t.scaled_size = std::max(t.scaled_size, leaf.positions() * leaf.groups * leaf.outputs);
    if (leaf.use.first) {
      if (leaf.method == norm_method::instantiate) t.kept_size += round_up(leaf.size());
      leaf.native = t.native_size;
      t.native_size += round_up(leaf.size());
    } else {
      leaf.native = native_of_first_use(t.outer, t.outer_count, leaf);
    }
    t.outer[t.outer_count++] = leaf;
  }
  static constexpr void add_leaf(tables& t, elementwise_leaf leaf) {
    leaf.use = use_of(leaf.node);
    if (leaf.use.first) {
      leaf.native = t.native_size;
      t.native_size += round_up(leaf.count);
    } else {
      leaf.native = native_of_first_use(t.elementwise, t.elementwise_count, leaf);
    }
    t.elementwise[t.elementwise_count++] = leaf;
  }
  static constexpr tied_use use_of(std::size_t node) {
    tied_use use{structure::owners[node] == node, true};
    for (std::size_t later = node + 1; later < Program::size; ++later) {
      if (structure::owners[later] == structure::owners[node]) use.last = false;
    }
    return use;
  }
  template <class Leaves>
  static constexpr index native_of_first_use(const Leaves& leaves, std::size_t count, const auto& leaf) {
    for (std::size_t k = 0; k < count; ++k) {
      if (leaves[k].node == structure::owners[leaf.node] && leaves[k].parameters == leaf.parameters) {
        return leaves[k].native;
      }
    }
    return 0;  // not reached: the first use is listed before
  }

  static constexpr place place_of(const node_row& row, operand from) {
    const auto offset = static_cast<index>(from.offset);
    switch (from.from) {
      case source::activation:
        return row.plain_x.at(offset);
      case source::second_activation:
        return row.plain_x2.at(offset);
      case source::output:
        return row.plain_y.at(offset);
      case source::saved:
        return row.saved.at(offset);
      default:
        return row.plain_dy.at(offset);
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// The tables of a network. `Scalar` only decides what fits into a cache.
template <class Network>
struct program {
  using structure = typename Network::structure;
  using scalar = typename Network::scalar;
  static constexpr std::size_t size = structure::size;
  template <std::size_t Index>
  using layer_at = typename structure::template layer_at<Index>;
  static constexpr shape shape_of(std::size_t node) { return structure::shapes[structure::inputs[node]]; }
  static constexpr shape second_shape_of(std::size_t node) { return structure::shapes[structure::inputs2[node]]; }

 private:
  static constexpr std::size_t most_factors() {
    std::size_t most = 2;
    detail::for_each_index<size>([&](auto i) {
      using layer = layer_at<i>;
      if constexpr (!detail::has_affine<layer> && detail::has_factors<layer>) {
        most = std::max(most, detail::factors_of<layer>(shape_of(i), second_shape_of(i)).size());
      }
    });
    return most;
  }

  static constexpr std::size_t most_sparse_leaves() {
    std::size_t most = 0;
    detail::for_each_index<size>([&](auto i) {
      using layer = layer_at<i>;
      if constexpr (detail::takes_ids<layer> && detail::has_factors<layer>) {
        for (const factor& each : detail::factors_of<layer>(shape_of(i), second_shape_of(i))) most += each.sparse;
      }
    });
    return std::max<std::size_t>(1, most);
  }

 public:
  static constexpr std::size_t most_leaves = [] {
    std::size_t count = 1;
    for (std::size_t i = 0; i < size; ++i) count += structure::parameter_counts[i] > 0 ? 1U : 0U;
    return count * most_factors();
  }();

  /// Slots 0 .. size are the network's; slot size + 1 + i is the copy that node i makes of its input, if it is staged.
  static constexpr std::size_t slot_count = 2 * size + 1;

  struct tables {
    std::array<slot, slot_count> slots{};
    std::array<std::size_t, slot_count> storage{};  ///< slot -> the slot whose storage it shares
    std::array<node_row, size> nodes{};
    std::array<outer_leaf, most_leaves> outer{};
    std::array<elementwise_leaf, most_leaves> elementwise{};
    std::size_t outer_count = 0;
    std::size_t elementwise_count = 0;
    std::array<sparse_leaf, most_sparse_leaves()> sparse{};
    std::size_t sparse_count = 0;
    index sparse_integers = 0;  ///< a sample's, for the segments of all tables
    index sparse_scalars = 0;
    index sparse_positions = 0;    ///< the most of any table
    index sparse_slots = 0;        ///< of a worker's hash table
    index sparse_size = 0;         ///< parameters of all tables
    std::size_t layer_groups = 0;  ///< nodes with parameters
    std::array<std::size_t, size> layer_group{};
    std::array<std::size_t, size> clipping_group{};  ///< of each node with parameters, in the order of layer_group
    std::size_t clipping_groups = 1;
    index native_size = 0;
    index kept_size = 0;    ///< of it, what the plan instantiates
    index scaled_size = 0;  ///< the largest delta of a sample
    index panel_size = 0;
    index sample_size = 0;  ///< elements of one sample's slots and plain copies
    index tile = 1;
    index least_tile = 1;  ///< tiled layers may want more samples together than stay in the cache
    index workspace = 0;   ///< elements of one worker's slots
    place scratch;         ///< what a tiled layer has for the time of one call
    place plain_output, plain_output_gradient;
  };

 private:
  template <class Layer>
  static constexpr node_kind kind_of() {
    if constexpr (detail::has_affine<Layer>) {
      return node_kind::affine;
    } else if constexpr (detail::is_branch_sum<Layer>) {
      return node_kind::branch_sum;
    } else if constexpr (detail::is_reshape<Layer>) {
      return node_kind::reshape;
    } else if constexpr (detail::has_value<Layer>) {
      return node_kind::elementwise;
    } else if constexpr (detail::has_windows<Layer>) {
      return node_kind::pooling;
    } else if constexpr (detail::is_tiled<Layer>) {
      return node_kind::tiled;
    } else {
      return node_kind::general;
    }
  }

  static constexpr tables build() {
    tables t;
    std::array<bool, slot_count> trained{};       // a parameter lies before this slot
    std::array<std::size_t, size + 1> readers{};  // consumers of a slot
    std::array<bool, size + 1> output_is_read{};  // the slot's producer reads it again in its backward
    std::array<arrangement, slot_count> arranged{};
    std::array<halo, slot_count> value_halo{};
    std::array<halo, slot_count> gradient_halo{};
    std::array<bool, size> derives_from_output{};
    std::array<bool, size> has_second{};
    std::array<bool, size> stored_order{};
    std::array<arrangement, size> read_as{};  // how a node's input must be stored; no channels: any way
    std::array<arrangement, size> written{};  // how a node stores its output; no channels: as wished
    std::array<bool, size> transposes{};
    for (std::size_t i = 0; i < size; ++i) {
      ++readers[structure::inputs[i]];
    }

    detail::for_each_index<size>([&](auto index_constant) {
      constexpr std::size_t i = index_constant;
      using layer = layer_at<i>;
      node_row& row = t.nodes[i];
      row.kind = kind_of<layer>();
      if constexpr (detail::has_affine<layer>) row.map = layer::affine(shape_of(i));
      row.saved_count = static_cast<index>(detail::saved_count_of<layer>(shape_of(i), second_shape_of(i)));
      row.scratch_count = static_cast<index>(detail::scratch_count_of<layer>(shape_of(i), second_shape_of(i)));
      if constexpr (requires { requires layer::derivative_from_output; }) derives_from_output[i] = true;
      if constexpr (detail::has_two_inputs<layer>) has_second[i] = true;
      if constexpr (detail::reads_images<layer>) stored_order[i] = true;
      if constexpr (requires { layer::samples_together; })
        t.least_tile = std::max<index>(t.least_tile, static_cast<index>(layer::samples_together));
      if constexpr (detail::has_matrices<layer>) {
        for (const matrix& each : detail::matrices_of<layer>(shape_of(i), second_shape_of(i))) {
          const auto number = static_cast<std::size_t>(row.matrix_count++);
          row.matrices[number] = each;
          row.panel_offsets[number] = t.panel_size;
          t.panel_size += round_up(static_cast<index>(each.rows * each.columns));
        }
      }
      if constexpr (requires { requires layer::is_transpose; }) transposes[i] = true;
      read_as[i] = reads<layer>(row.kind, shape_of(i), row.map);
      written[i] = writes<layer>(row.kind, structure::shapes[i + 1]);
    });
    const std::array<arrangement, size + 1> wished = wishes<structure>(t.nodes, read_as, transposes);
    arranged[0] = choose(Network::input_shape, wished[0]);

    for (std::size_t i = 0; i < size; ++i) {
      node_row& row = t.nodes[i];
      row.in = structure::inputs[i];
      row.in2 = structure::inputs2[i];
      row.out = i + 1;
      row.in_shape = structure::shapes[row.in];
      row.out_shape = structure::shapes[row.out];
      row.in2_shape = has_second[i] ? structure::shapes[row.in2] : shape{};
      row.parameters = static_cast<index>(structure::parameter_offsets[i]);
      row.parameter_count = static_cast<index>(structure::trained_counts[i]);
      row.weight_count = static_cast<index>(structure::parameter_counts[i]);
      if (has_second[i]) ++readers[row.in2];
      row.input_gradient = trained[row.in];
      row.input2_gradient = has_second[i] && trained[row.in2];
      row.backward = row.input_gradient || row.input2_gradient || row.parameter_count > 0;
      trained[row.out] = row.backward;
      t.layer_group[i] = structure::owners[i] == i ? t.layer_groups : t.layer_group[structure::owners[i]];
      if (row.parameter_count > 0 && structure::owners[i] == i) {
        t.clipping_group[t.layer_groups++] = structure::groups[i];
        t.clipping_groups = std::max(t.clipping_groups, structure::groups[i] + 1);
      }
      output_is_read[row.out] = row.kind == node_kind::pooling || row.kind == node_kind::general ||
                                row.kind == node_kind::tiled || row.kind == node_kind::elementwise;

      if (transposes[i]) read_as[i] = column_of(row.in_shape, arranged[row.in]);
      if (read_as[i].channels != 0 && !arranged[row.in].agrees_with(read_as[i])) {
        stage(t, i);
        arranged[row.in] = read_as[i];
        trained[row.in] = row.input_gradient;
      }
      if (transposes[i]) {
        arranged[row.out] = read_as[i].transposed();
      } else if (keeps_arrangement(row.kind)) {
        arranged[row.out] = arranged[row.in];
      } else {
        arranged[row.out] = written[i].channels != 0 ? written[i] : choose(row.out_shape, wished[row.out]);
      }
      t.storage[row.out] = row.out;
      if (row.kind == node_kind::reshape) t.storage[row.out] = t.storage[row.in];
    }
    for (std::size_t i = 0; i < size; ++i) {
      node_row& row = t.nodes[i];
      const bool producer_forgets =
          row.in > 0 && row.in <= size &&
          (t.nodes[row.in - 1].kind == node_kind::affine || t.nodes[row.in - 1].kind == node_kind::branch_sum);
      row.in_place = row.kind == node_kind::elementwise && derives_from_output[i] && readers[row.in] == 1 &&
                     producer_forgets && !output_is_read[row.in];
      if (row.in_place) t.storage[row.out] = t.storage[row.in];
      if (row.kind == node_kind::reshape) t.storage[row.out] = t.storage[row.in];
      if (row.kind == node_kind::affine && !takes_one_pixel(row.map)) {
        row.whole_view = sees_everything_once(row.map);
        halo& around = value_halo[t.storage[row.in]];
        around = around.with(row.map.adjoint ? backward_halo(row.map) : forward_halo(row.map));
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      node_row& row = t.nodes[i];
      if (row.kind != node_kind::affine) continue;
      if (takes_one_pixel(row.map)) {
        const arrangement& image = arranged[row.in];
        const bool gaps = value_halo[t.storage[row.in]] != halo{};
        if (image.channels_first && (gaps || !image.plain())) {
          row.map = on_stored_image(row.map, image);
        } else if (gaps) {
          stage(t, i);
          trained[row.in] = row.input_gradient;
          arranged[row.in] = arrange(row.in_shape);
        }
        row.whole_view = true;
      }
      halo& around = gradient_halo[t.storage[row.out]];
      if (row.map.adjoint) {
        around = around.with(forward_halo(row.map));
      } else if (row.input_gradient && !row.whole_view) {
        around = around.with(backward_halo(row.map));
      }
    }

    std::array<bool, slot_count> complete{};  // some of the slot's gradient has been written
    complete[t.storage[size]] = true;
    for (std::size_t i = size; i-- > 0;) {
      node_row& row = t.nodes[i];
      if (!row.backward || row.in_place) continue;
      if (row.staged && row.input_gradient) {
        row.staged_accumulate = complete[t.storage[row.staged_from]];
        complete[t.storage[row.staged_from]] = true;
      }
      if (row.kind == node_kind::reshape) continue;
      if (row.input_gradient) {
        row.accumulate = complete[t.storage[row.in]];
        complete[t.storage[row.in]] = true;
      }
      if (row.input2_gradient) {
        row.accumulate2 = complete[t.storage[row.in2]];
        complete[t.storage[row.in2]] = true;
      }
    }

    index scratch = 0;
    for (std::size_t s = 0; s < slot_count; ++s) {
      if (t.storage[s] != s || !exists(t, s)) continue;
      t.slots[s].value_layout = lay_out(arranged[s], value_halo[s]);
      t.slots[s].gradient_layout = lay_out(arranged[s], gradient_halo[s]);
      t.sample_size += t.slots[s].value_layout.size + (trained[s] ? t.slots[s].gradient_layout.size : 0);
    }
    share_slots(t, arranged);
    for (std::size_t i = 0; i < size; ++i) {
      node_row& row = t.nodes[i];
      if (row.kind == node_kind::affine) {
        row.forward_panel = t.panel_size;
        t.panel_size += round_up(static_cast<index>(row.map.weight_count()));
        row.backward_panel = t.panel_size;
        if (row.input_gradient || row.map.adjoint) t.panel_size += round_up(static_cast<index>(row.map.weight_count()));
      } else if (row.kind == node_kind::general || row.kind == node_kind::tiled) {
        row.copies_in = !stored_order[i] && !is_plain(t, row.in);
        row.copies_in2 = has_second[i] && !stored_order[i] && !is_plain(t, row.in2);
        row.copies_out = !stored_order[i] && !is_plain(t, row.out);
        if (row.kind == node_kind::tiled) {
          row.direct_dx = row.input_gradient && !row.copies_in && !row.accumulate;
          row.direct_dx2 = row.input2_gradient && !row.copies_in2 && !row.accumulate2;
          scratch = std::max(scratch, round_up(row.scratch_count));
        }
        t.sample_size += general_size(row);
      }
    }
    t.sample_size += scratch;
    t.sample_size += 2 * round_up(static_cast<index>(Network::output_shape.size()));
    leaf_tables<program>::list(t);
    t.tile = std::max(t.least_tile, tile_for(t.sample_size + t.kept_size));
    t.scratch.sample = scratch;
    assign_places(t, trained);
    share_slots(t, arranged);
    leaf_tables<program>::resolve(t);
    return t;
  }

  static constexpr void stage(tables& t, std::size_t node) {
    node_row& row = t.nodes[node];
    row.staged = true;
    row.staged_from = row.in;
    row.in = size + 1 + node;
    t.storage[row.in] = row.in;
  }
  static constexpr bool exists(const tables& t, std::size_t which) {
    return which <= size || t.nodes[which - size - 1].staged;
  }
  /// Slots that share a storage differ in how PyTorch numbers their values.
  static constexpr void share_slots(tables& t, const std::array<arrangement, slot_count>& arranged) {
    for (std::size_t s = 0; s <= size; ++s) {
      if (t.storage[s] == s) continue;
      t.slots[s] = t.slots[t.storage[s]];
      t.slots[s].value_layout.values = arranged[s];
      t.slots[s].gradient_layout.values = arranged[s];
    }
  }

  static constexpr bool is_plain(const tables& t, std::size_t which) {
    const slot& s = t.slots[which];
    return s.value_layout.values.plain() && s.value_layout.dense() && s.value_layout.start == 0 &&
           s.gradient_layout.dense() && s.gradient_layout.start == 0;
  }
  /// Elements of a sample's plain copies. dx is always a copy: the layer must be free to write it whole.
  static constexpr index general_size(const node_row& row) {
    const index in = round_up(static_cast<index>(row.in_shape.size()));
    const index in2 = round_up(static_cast<index>(row.in2_shape.size()));
    const index out = round_up(static_cast<index>(row.out_shape.size()));
    return (copies_dx(row) ? in : 0) + (row.copies_in ? in : 0) + (copies_dx2(row) ? in2 : 0) +
           (row.copies_in2 ? in2 : 0) + (row.copies_out ? 2 * out : 0) + round_up(row.saved_count);
  }
  static constexpr bool copies_dx(const node_row& row) {
    return row.kind == node_kind::general || (row.input_gradient && !row.direct_dx);
  }
  static constexpr bool copies_dx2(const node_row& row) { return row.input2_gradient && !row.direct_dx2; }
  /// Samples that go through the network together: as many as stay in a core's L2 cache, at most 16.
  static constexpr index tile_for(index sample_elements) {
    constexpr index cache_bytes = index{1} << 20;
    index tile = 16;
    while (tile > 1 && tile * sample_elements * static_cast<index>(sizeof(scalar)) > cache_bytes) tile /= 2;
    return tile;
  }

  static constexpr void assign_places(tables& t, const std::array<bool, slot_count>& trained) {
    const auto reserve = [&](index elements) {
      const place here{t.workspace, elements};
      t.workspace += t.tile * elements;
      return here;
    };
    for (std::size_t s = 0; s < slot_count; ++s) {
      if (t.storage[s] != s || !exists(t, s)) continue;
      t.slots[s].value = reserve(t.slots[s].value_layout.size);
      if (trained[s]) t.slots[s].gradient = reserve(t.slots[s].gradient_layout.size);
    }
    for (node_row& row : t.nodes) {
      if (row.kind != node_kind::general && row.kind != node_kind::tiled) continue;
      const slot& in = t.slots[t.storage[row.in]];
      const slot& out = t.slots[t.storage[row.out]];
      const index in_size = round_up(static_cast<index>(row.in_shape.size()));
      const index out_size = round_up(static_cast<index>(row.out_shape.size()));
      row.plain_dx = copies_dx(row) ? reserve(in_size) : in.gradient;
      row.plain_x = row.copies_in ? reserve(in_size) : in.value;
      if (row.in2_shape.size() > 0) {
        const slot& in2 = t.slots[t.storage[row.in2]];
        const index in2_size = round_up(static_cast<index>(row.in2_shape.size()));
        row.plain_dx2 = copies_dx2(row) ? reserve(in2_size) : in2.gradient;
        row.plain_x2 = row.copies_in2 ? reserve(in2_size) : in2.value;
      }
      row.plain_y = row.copies_out ? reserve(out_size) : out.value;
      row.plain_dy = row.copies_out ? reserve(out_size) : out.gradient;
      row.saved = reserve(round_up(row.saved_count));
    }
    t.scratch = reserve(t.scratch.sample);
    const index output = round_up(static_cast<index>(Network::output_shape.size()));
    t.plain_output = reserve(output);
    t.plain_output_gradient = reserve(output);
    t.workspace += line;  // partial vectors may be read past the end
  }

 public:
  static constexpr tables table = build();
};

}  // namespace pergrad::inline v0_1::on_host
// pergrad/network.hpp - a network is a type: an input shape and a list of layers; every other shape is inferred
//
// `network<shape{1, 28, 28}, conv2d<16, 8>, relu, flatten, linear<10>>` unfolds into a list of nodes with compile-time
// shapes, parameter counts and offsets. An object of it owns one aligned buffer: the parameters, in PyTorch's order.

// pergrad/detail/aligned_buffer.hpp - one zero-filled, cache-line aligned allocation that is reserved once and never
// grows

#include <new>

namespace pergrad::inline v0_1::detail {

/// Asks for memory that nobody fills: pages that are never written then cost nothing.
struct uninitialised_t {};
inline constexpr uninitialised_t uninitialised{};

template <class Scalar>
class aligned_buffer {
 public:
  aligned_buffer() = default;
  /// `count` zeros. Throws std::runtime_error with the size and `what` it was for, if the machine has not got them.
  aligned_buffer(std::size_t count, const char* what) : aligned_buffer{count, what, uninitialised} {
    std::uninitialized_fill_n(data_.get(), count, Scalar{});
  }
  /// The same without the zeros.
  aligned_buffer(std::size_t count, const char* what, uninitialised_t) : size_{count} {
    if (count == 0) return;
    void* memory = nullptr;
    if (count <= std::numeric_limits<std::size_t>::max() / sizeof(Scalar)) {
      memory = ::operator new(count * sizeof(Scalar), alignment, std::nothrow);
    }
    if (memory == nullptr) {
      throw std::runtime_error("pergrad: no memory for " + std::string{what} + ": " + std::to_string(count) +
                               " values of " + std::to_string(sizeof(Scalar)) + " bytes");
    }
    data_.reset(static_cast<Scalar*>(memory));
  }

  [[nodiscard]] Scalar* data() noexcept { return data_.get(); }
  [[nodiscard]] const Scalar* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<Scalar> span() noexcept { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const Scalar> span() const noexcept { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct release {
    void operator()(Scalar* memory) const noexcept { ::operator delete(static_cast<void*>(memory), alignment); }
  };
  std::unique_ptr<Scalar, release> data_;
  std::size_t size_ = 0;
};

}  // namespace pergrad::inline v0_1::detail
// pergrad/initialise.hpp - first values of the parameters, by PyTorch's names and with PyTorch's defaults
//
// Initial values are public: they need no secure randomness. Every value is a pure function of (seed, parameter index),
// so a network starts alike on any machine. fan_in = in / groups * taps, fan_out = out * taps as
// torch.nn.init counts them.

#include <cmath>
#include <numbers>

namespace pergrad::inline v0_1 {

namespace detail {

/// splitmix64 of (seed, index): public randomness, not for anything private (Steele, Lea & Flood 2014).
[[nodiscard]] constexpr std::uint64_t public_bits(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t state = seed * 0xD1342543DE82EF95U + (index + 1) * 0x9E3779B97F4A7C15U;
  state = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9U;
  state = (state ^ (state >> 27U)) * 0x94D049BB133111EBU;
  return state ^ (state >> 31U);
}
/// Uniform in [0, 1) with 53 bits.
[[nodiscard]] constexpr double public_uniform(std::uint64_t seed, std::uint64_t index) noexcept {
  return static_cast<double>(public_bits(seed, index) >> 11U) * 0x1p-53;
}
[[nodiscard]] inline double public_normal(std::uint64_t seed, std::uint64_t index) noexcept {
  const double radius = std::sqrt(-2 * std::log1p(-public_uniform(seed, 2 * index)));
  return radius * std::cos(2 * std::numbers::pi * public_uniform(seed, 2 * index + 1));
}

struct fans {
  double in = 1;
  double out = 1;
};

}  // namespace detail

/// PyTorch's own default of `nn.Linear` and `nn.Conv2d` (reset_parameters): weights and biases uniform in
/// ±1/sqrt(fan_in).
struct layer_default {
  std::uint64_t seed = 0;
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept { return bias(index, fan); }
  [[nodiscard]] double bias(std::uint64_t index, detail::fans fan) const noexcept {
    return (2 * detail::public_uniform(seed, index) - 1) / std::sqrt(fan.in);
  }
};
/// `nn.init.kaiming_uniform_`: weights uniform in ±gain sqrt(3 / fan_in), gain = sqrt(2 / (1 + a²)); biases as
/// `layer_default`.
struct kaiming_uniform : layer_default {
  double negative_slope = 0;
  constexpr explicit kaiming_uniform(std::uint64_t with_seed, double a = 0)
      : layer_default{with_seed}, negative_slope{a} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    const double bound = std::sqrt(6 / ((1 + negative_slope * negative_slope) * fan.in));
    return bound * (2 * detail::public_uniform(seed, index) - 1);
  }
};
/// `nn.init.kaiming_normal_`: weights N(0, gain² / fan_in); biases as `layer_default`.
struct kaiming_normal : layer_default {
  double negative_slope = 0;
  constexpr explicit kaiming_normal(std::uint64_t with_seed, double a = 0)
      : layer_default{with_seed}, negative_slope{a} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    return std::sqrt(2 / ((1 + negative_slope * negative_slope) * fan.in)) * detail::public_normal(seed, index);
  }
};
/// `nn.init.xavier_uniform_`: weights uniform in ±gain sqrt(6 / (fan_in + fan_out)); biases as `layer_default`.
struct xavier_uniform : layer_default {
  double gain = 1;
  constexpr explicit xavier_uniform(std::uint64_t with_seed, double with_gain = 1)
      : layer_default{with_seed}, gain{with_gain} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    return gain * std::sqrt(6 / (fan.in + fan.out)) * (2 * detail::public_uniform(seed, index) - 1);
  }
};
/// `nn.init.xavier_normal_`: weights N(0, gain² · 2 / (fan_in + fan_out)); biases as `layer_default`.
struct xavier_normal : layer_default {
  double gain = 1;
  constexpr explicit xavier_normal(std::uint64_t with_seed, double with_gain = 1)
      : layer_default{with_seed}, gain{with_gain} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    return gain * std::sqrt(2 / (fan.in + fan.out)) * detail::public_normal(seed, index);
  }
};
/// `nn.init.uniform_` on every parameter: uniform in [low, high).
struct uniform {
  std::uint64_t seed = 0;
  double low = 0;
  double high = 1;
  [[nodiscard]] double weight(std::uint64_t index, detail::fans /*fan*/) const noexcept {
    return low + (high - low) * detail::public_uniform(seed, index);
  }
  [[nodiscard]] double bias(std::uint64_t index, detail::fans fan) const noexcept { return weight(index, fan); }
};
/// `nn.init.normal_` on every parameter: N(mean, standard_deviation²).
struct normal {
  std::uint64_t seed = 0;
  double mean = 0;
  double standard_deviation = 1;
  [[nodiscard]] double weight(std::uint64_t index, detail::fans /*fan*/) const noexcept {
    return mean + standard_deviation * detail::public_normal(seed, index);
  }
  [[nodiscard]] double bias(std::uint64_t index, detail::fans fan) const noexcept { return weight(index, fan); }
};
/// `nn.init.constant_` on every parameter.
struct constant {
  double value = 0;
  [[nodiscard]] double weight(std::uint64_t /*index*/, detail::fans /*fan*/) const noexcept { return value; }
  [[nodiscard]] double bias(std::uint64_t /*index*/, detail::fans /*fan*/) const noexcept { return value; }
};
/// `nn.init.zeros_` on every parameter.
struct zeros : constant {};
/// `nn.init.ones_` on every parameter.
struct ones : constant {
  constexpr ones() : constant{1} {}
};

namespace detail {

/// First value of an element of a table (embedding, positions): N(0, 1), as `nn.Embedding` begins, where an initialiser
/// means "what PyTorch does"; any other as it says.
template <class Initialiser>
[[nodiscard]] double table_value(const Initialiser& initialiser, std::uint64_t index, fans fan) {
  if constexpr (std::is_same_v<Initialiser, layer_default>) {
    return public_normal(initialiser.seed, index);
  } else {
    return initialiser.weight(index, fan);
  }
}

/// Fills one layer's parameters. A layer may bring its own `initialise(in, initialiser, first_index, parameters)`; one
/// with two inputs takes the second's shape behind the first's.
template <class Layer, class Initialiser, class Scalar>
void initialise_parameters(const Initialiser& initialiser, shape in, std::uint64_t first, std::span<Scalar> parameters,
                           [[maybe_unused]] shape second = {}) {
  if constexpr (requires { Layer::initialise(in, second, initialiser, first, parameters); }) {
    Layer::initialise(in, second, initialiser, first, parameters);
  } else if constexpr (requires { Layer::initialise(in, initialiser, first, parameters); }) {
    Layer::initialise(in, initialiser, first, parameters);
  } else if constexpr (has_affine<Layer>) {
    constexpr auto real = [](std::size_t count) { return static_cast<double>(count); };
    const affine_map map = Layer::affine(in);
    const fans fan{real(map.view_width()), real(map.out_channels * map.kernel.size())};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool weight = i < map.weight_count();
      parameters[i] =
          static_cast<Scalar>(weight ? initialiser.weight(first + i, fan) : initialiser.bias(first + i, fan));
    }
  } else {
    const fans fan{static_cast<double>(in.size()), static_cast<double>(output_shape_of<Layer>(in).size())};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = static_cast<Scalar>(initialiser.weight(first + i, fan));
    }
  }
}

}  // namespace detail
}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

template <class Network>
class tape;

/// The type behind `network`: use that name. One object holds the parameters of one model.
template <class Scalar, shape Input, class... Layers>
class static_network {
 public:
  using scalar = Scalar;
  using structure = detail::structure<Input, Layers...>;
  using tape = pergrad::tape<static_network>;
  /// The same network with another scalar type.
  template <class Other>
  using rebind = static_network<Other, Input, Layers...>;

  static constexpr shape input_shape = Input;
  static constexpr shape output_shape = structure::shapes[structure::size];
  /// Number of parameters, biases included.
  static constexpr std::size_t parameter_count = structure::found.trained;
  /// Number of parameters inside `frozen`, which are not trained and not part of `parameter_count`.
  static constexpr std::size_t frozen_parameter_count = structure::found.frozen;
  /// The type of one input value: integer ids or numbers.
  using input_value = std::conditional_t<Input.ids != 0, std::int32_t, Scalar>;

  /// A network whose parameters are set by an initialiser (initialise.hpp). The executor says where it will live.
  template <class Executor, class Initialiser>
  static_network(const Executor& /*executor*/, const Initialiser& initialiser)
      : parameters_{parameter_count + frozen_parameter_count, "a network's parameters"} {
    detail::for_each_index<structure::size>([&](auto index) {
      constexpr std::size_t i = index;
      using layer_type = typename structure::template layer_at<i>;
      constexpr shape in = structure::shapes[structure::inputs[i]];
      if constexpr (structure::parameter_counts[i] > 0 && structure::owners[i] == i) {
        detail::initialise_parameters<layer_type>(initialiser, in, structure::parameter_offsets[i], layer_parameters(i),
                                                  structure::shapes[structure::inputs2[i]]);
      }
    });
  }

  /// All parameters, layer after layer, each in PyTorch's order: weight `[out, in / groups, kh, kw]`, then bias.
  [[nodiscard]] std::span<Scalar> parameters() noexcept { return parameters_.span().first(parameter_count); }
  [[nodiscard]] std::span<const Scalar> parameters() const noexcept {
    return parameters_.span().first(parameter_count);
  }
  /// The parameters of `frozen` layers, in the same order among themselves.
  [[nodiscard]] std::span<Scalar> frozen_parameters() noexcept { return parameters_.span().subspan(parameter_count); }
  [[nodiscard]] std::span<const Scalar> frozen_parameters() const noexcept {
    return parameters_.span().subspan(parameter_count);
  }

  /// Both, one after the other: what a checkpoint holds.
  [[nodiscard]] std::span<Scalar> all_parameters() noexcept { return parameters_.span(); }
  [[nodiscard]] std::span<const Scalar> all_parameters() const noexcept { return parameters_.span(); }

  /// The parameters of entry `index` of the unfolded list (see `describe`), frozen or not. Precondition:
  /// index < structure::size.
  [[nodiscard]] std::span<Scalar> layer_parameters(std::size_t index) noexcept {
    return parameters_.span().subspan(structure::parameter_offsets[index], structure::parameter_counts[index]);
  }
  [[nodiscard]] std::span<const Scalar> layer_parameters(std::size_t index) const noexcept {
    return parameters_.span().subspan(structure::parameter_offsets[index], structure::parameter_counts[index]);
  }

 private:
  detail::aligned_buffer<Scalar> parameters_;
};

/// A network with parameters of type `Scalar` (float or double).
template <class Scalar, shape Input, class... Layers>
using basic_network = typename detail::gate<Scalar, Input, Layers...>::type;

/// A network in single precision: `network<shape{1, 28, 28}, flatten, linear<10>>`.
template <shape Input, class... Layers>
using network = typename detail::gate<float, Input, Layers...>::type;

}  // namespace pergrad::inline v0_1
// pergrad/tape.hpp - every byte that evaluating a network's per-sample gradients needs, reserved once
//
// A clipped sum is separable over samples, so a batch is cut into tiles that stay in a core's cache: the tape holds one
// workspace a thread, one sum a lane and the packed weights. Nothing in it grows with the batch.

// pergrad/host/executor.hpp - the host executor: a fixed crew of threads that share out numbered tasks
//
// Which thread runs which task is left to chance; callers give every task its own place for its result, so that nothing
// that is computed depends on it.

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace pergrad::inline v0_1 {

/// A number of threads; 0 means all that the machine has.
struct threads {
  std::size_t count = 0;
};

/// Runs everything on the CPU. Give the same executor to the network, the tape and every evaluation.
///
/// Results do not depend on the number of threads, bit for bit. Not copyable: it owns its threads.
class host {
 public:
  host() : host{threads{}} {}
  explicit host(threads wanted) : crew_{std::make_unique<crew>()} {
    std::size_t count = wanted.count == 0 ? std::thread::hardware_concurrency() : wanted.count;
    count = count == 0 ? 1 : count;
    if (count > most_threads) throw std::invalid_argument("pergrad: threads must be at most 1024");
    crew_->members.reserve(count - 1);
    for (std::size_t worker = 1; worker < count; ++worker) {
      crew_->members.emplace_back([shared = crew_.get(), worker] { serve(*shared, worker); });
    }
  }

  /// Threads that work, the caller's included.
  [[nodiscard]] std::size_t thread_count() const noexcept { return crew_->members.size() + 1; }

  /// Calls f(task, worker) for every task < count, on any thread; worker < thread_count(). Returns when all are done.
  /// The first exception thrown by a task is thrown again here, after all others are done. Allocates nothing.
  /// Calls from several threads wait for each other. Throws std::logic_error when called from one of its own tasks.
  template <class Function>
  void parallel(std::size_t count, Function&& f) const {
    using function_type = std::remove_reference_t<Function>;
    if (count == 0) return;
    if (employer() == crew_.get()) {
      throw std::logic_error("pergrad: host: a task cannot start tasks on its own executor, it would wait for itself");
    }
    const std::lock_guard lock{crew_->one_job_at_a_time};
    crew& shared = *crew_;
    shared.context = const_cast<void*>(static_cast<const void*>(std::addressof(f)));
    shared.call = [](void* context, std::size_t task, std::size_t worker) {
      (*static_cast<function_type*>(context))(task, worker);
    };
    shared.count = count;
    shared.next.store(0, std::memory_order_relaxed);
    const bool alone = count == 1 || shared.members.empty();
    if (!alone) {
      shared.busy.store(0, std::memory_order_release);
      shared.job.fetch_add(1, std::memory_order_release);
      shared.job.notify_all();
    }
    work(shared, 0);
    if (!alone) {
      // Only for those who have begun: a member that another program keeps off its core finds the job closed.
      for (std::size_t waiting = shared.busy.fetch_or(closed, std::memory_order_acq_rel) | closed; waiting != closed;
           waiting = shared.busy.load(std::memory_order_acquire)) {
        if (!spin([&] { return shared.busy.load(std::memory_order_acquire) == closed; })) {
          shared.busy.wait(waiting, std::memory_order_acquire);
        }
      }
    }
    if (shared.failure) std::rethrow_exception(std::exchange(shared.failure, nullptr));
  }

 private:
  static constexpr std::size_t most_threads = 1024;
  static constexpr std::size_t closed = std::size_t{1} << 16U;

  struct crew {
    std::vector<std::thread> members;
    std::mutex one_job_at_a_time;
    std::mutex failure_mutex;
    std::exception_ptr failure;
    void* context = nullptr;
    void (*call)(void*, std::size_t, std::size_t) = nullptr;
    std::size_t count = 0;
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> busy{closed};  // members at work on the job; with `closed`, no other may begin
    std::atomic<std::uint32_t> job{0};
    std::atomic<bool> stop{false};

    crew() = default;
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;
    ~crew() {
      stop.store(true, std::memory_order_relaxed);
      job.fetch_add(1, std::memory_order_release);
      job.notify_all();
      for (std::thread& member : members) member.join();
    }
  };

  /// Waits a few microseconds for `done`, as steps follow each other closely; then a sleep is cheaper.
  template <class Condition>
  static bool spin(Condition done) noexcept {
    constexpr int rounds = 4000;
    for (int round = 0; round < rounds; ++round) {
      if (done()) return true;
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
    return false;
  }

  /// Whose task this thread is working on, if any.
  [[nodiscard]] static const crew*& employer() noexcept {
    thread_local const crew* current = nullptr;
    return current;
  }

  static void work(crew& shared, std::size_t worker) noexcept {
    const crew* const before = std::exchange(employer(), &shared);
    for (std::size_t task = shared.next.fetch_add(1, std::memory_order_relaxed); task < shared.count;
         task = shared.next.fetch_add(1, std::memory_order_relaxed)) {
      try {
        shared.call(shared.context, task, worker);
      } catch (...) {
        const std::lock_guard lock{shared.failure_mutex};
        if (!shared.failure) shared.failure = std::current_exception();
      }
    }
    employer() = before;
  }

  static void serve(crew& shared, std::size_t worker) noexcept {
    std::uint32_t seen = 0;
    while (true) {
      if (!spin([&] { return shared.job.load(std::memory_order_acquire) != seen; })) {
        shared.job.wait(seen, std::memory_order_acquire);
      }
      const std::uint32_t current = shared.job.load(std::memory_order_acquire);
      if (current == seen) continue;
      seen = current;
      if (shared.stop.load(std::memory_order_relaxed)) return;
      if (!begin(shared)) continue;
      work(shared, worker);
      if (shared.busy.fetch_sub(1, std::memory_order_acq_rel) == closed + 1) shared.busy.notify_all();
    }
  }

  /// Joins those at work, unless the job is closed: then nothing that belongs to it may be read.
  static bool begin(crew& shared) noexcept {
    std::size_t busy = shared.busy.load(std::memory_order_acquire);
    while ((busy & closed) == 0) {
      if (shared.busy.compare_exchange_weak(busy, busy + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        return true;
    }
    return false;
  }

  std::unique_ptr<crew> crew_;
};

}  // namespace pergrad::inline v0_1
// pergrad/host/leaves.hpp - what can be asked of one factor leaf: its gradient, its norm four ways, and its weighted
// sum
//
// One formula, G_b = sum_t delta_t (x) x_t, and the product kernel; every function here is that formula with other
// loops.

// pergrad/host/product.hpp - the host executor's one matrix product: overlapping strided view times rows of columns
//
//   out[r][n]  (op)=  sum over k of  left[r.left + k.left] * right[k.right + n],     n = 0 .. columns-1
//
// r runs over up to four nested row loops, k over up to four nested reduction loops, all with strides of their own.
// Nothing asks that different (r, k) read different elements of `left`, and that is the point: in a channels-last image
// whose rows lie `pitch` apart, the patches of a convolution are such a view, so with the output gradient called delta
//   forward           rows (oh, ow)          reduce (kh, kw*C)   left = image    right = packed weights
//   input gradient    rows (ih, iw)          reduce (kh, kw*F)   left = delta    right = flipped packed weights
//   weight gradient   rows (kh, kw*C)        reduce (oh, ow)     left = image    right = delta
// and the three products of a linear layer are the same with fewer loops. Nothing is copied or packed on the left.
//
// Every sum is one chain of multiply-adds in the order of the reduction loops. Its bits therefore depend neither on the
// tile an element falls into nor on how the caller cuts rows and columns.

// pergrad/host/epilogue.hpp - what the host's product does with its finished sums: store, add, bias, squares

namespace pergrad::inline v0_1::on_host {

/// What becomes of the finished sums. An epilogue is called once for every vector of sums,
/// `epilogue(sums, out, position, column, lanes)`: the vector belongs at `out + position`, its first column is
/// `column`, and `lanes` (all_lanes or first_lanes) says which lanes count and is how memory is read and written. Rooms
/// may add their own.
namespace epilogue {

/// out = sum
struct store {
  template <class Scalar, class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, sums);
  }
};

/// out = out + sum
struct add {
  template <class Scalar, class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, lanes.load(out + position) + sums);
  }
};

/// out = out + factor * sum
template <class Scalar>
struct add_scaled {
  Scalar factor;
  template <class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, lanes.load(out + position) + splat(factor) * sums);
  }
};
template <class Scalar>
add_scaled(Scalar) -> add_scaled<Scalar>;

/// out = sum + bias[column]
template <class Scalar>
struct store_bias {
  const Scalar* bias;
  template <class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t column,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, sums + lanes.load(bias + column));
  }
};
template <class Scalar>
store_bias(const Scalar*) -> store_bias<Scalar>;

/// Adds up the squares of the sums in double and leaves the output alone (it may be null).
///
/// The order of the additions is fixed by the shape of the product. Squares of floats cannot overflow or vanish in
/// double.
template <class Scalar>
class squares_only {
 public:
  template <class Lanes>
  void operator()(vector<Scalar> sums, const Scalar* /*out*/, std::ptrdiff_t /*position*/, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) noexcept {
    const vector<Scalar> kept = lanes.keep(sums);
    if constexpr (std::is_same_v<Scalar, double>) {
      low_ += kept * kept;
    } else {
      using half = typename product_detail::vector_of<Scalar>::half_type;
      half halves[2];
      std::memcpy(halves, &kept, sizeof kept);
      const vector<double> low = __builtin_convertvector(halves[0], vector<double>);
      const vector<double> high = __builtin_convertvector(halves[1], vector<double>);
      low_ += low * low;
      high_ += high * high;
    }
  }

  /// Sum of the squares of everything seen so far.
  [[nodiscard]] double sum() const noexcept {
    const vector<double> both = low_ + high_;
    double total = 0.0;
    for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) {
      total += both[lane];
    }
    return total;
  }

 private:
  vector<double> low_{};
  vector<double> high_{};
};

/// out = sum, and adds up the squares as `squares_only` does.
template <class Scalar>
class squares_store {
 public:
  template <class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t column,
                  const Lanes& lanes) noexcept {
    lanes.store(out + position, sums);
    squares_(sums, out, position, column, lanes);
  }

  /// Sum of the squares of everything seen so far.
  [[nodiscard]] double sum() const noexcept { return squares_.sum(); }

 private:
  squares_only<Scalar> squares_;
};

}  // namespace epilogue

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/tile.hpp - the micro-kernels of the host's product: a few rows times a few vectors of sums in registers
//
// A tile of rows x vectors of sums stays in registers for the whole reduction (the "outer product" micro-kernel of Goto
// and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008): each step of the
// reduction reads `vectors` vectors on the right, broadcasts `rows` numbers from the left and does rows*vectors
// multiply-adds. The rows of a tile are addressed by a table of offsets, so a tile may span any number of short row
// loops.
//
// The kernels know nothing of what becomes of the sums; they leave them in a small buffer. So there is one set for each
// scalar type, whatever the number of epilogues, and a program that uses all of them still compiles quickly.

namespace pergrad::inline v0_1::on_host {

/// One reduction loop: its extent, and its strides (in elements) in the left and in the right operand.
struct loop {
  std::ptrdiff_t extent = 1;
  std::ptrdiff_t left = 0;
  std::ptrdiff_t right = 0;
  friend constexpr bool operator==(const loop&, const loop&) = default;
};

namespace product_detail {

/// Most rows of any tile: their offsets, two pointers, two steps and a count stay in general registers.
inline constexpr std::size_t tile_rows_limit = vector_registers == 32 && vector_bytes == 16 ? 10 : 9;

/// Vector registers of a tile that hold neither sums nor a row of `right`: one for the broadcast; g++ 12 for aarch64
/// moves loads so far up that it wants more.
inline constexpr std::size_t tile_spare_registers = vector_registers == 32 && vector_bytes == 16 ? 5 : 1;

/// Most rows of a tile that is `vectors` wide, so that nothing it uses leaves the registers.
constexpr std::size_t max_tile_rows(std::size_t vectors) noexcept {
  const std::size_t fitting = (vector_registers - tile_spare_registers) / vectors - 1;
  return fitting < 1 ? 1 : fitting < tile_rows_limit ? fitting : tile_rows_limit;
}

/// What a tile reads and where it leaves its sums. Only the innermost reduction loop may be empty.
template <class Scalar>
struct tile_task {
  const Scalar* left;
  const Scalar* right;
  const loop* reduce;                // [4]: from outer to inner, then the one around them
  const std::ptrdiff_t* row_offset;  // in the left operand, one for each row of the tile
  Scalar* sums;                      // [rows][vectors * lanes], aligned to a vector
  first_lanes<Scalar> last;          // the columns that the last vector of a row has
  first_lanes<Scalar> whole;         // all of them, which compilers are not to know
};

/// Vector `Vector` of a row on the right. In wide tiles g++ would read it again from memory for every row of the tile;
/// a load under a mask cannot be repeated as an operand of the multiply-add and stays in its register.
template <std::size_t Rows, std::size_t Vectors, std::size_t Vector, class Scalar>
[[nodiscard]] inline vector<Scalar> across_of(const Scalar* right, const first_lanes<Scalar>& whole,
                                              const first_lanes<Scalar>& last) noexcept {
  if constexpr (Vector + 1 == Vectors) {
    return last.load(right + Vector * vector_lanes<Scalar>);
  } else if constexpr (vector_bytes == 64 && Rows > 1 && Vectors > 2) {
    return whole.load(right + Vector * vector_lanes<Scalar>);
  } else {
    return load(right + Vector * vector_lanes<Scalar>);
  }
}

/// The micro-kernel. Slot = row * Vectors + vector; every fold is over constants, so each sum is a register of its own.
template <std::size_t Rows, std::size_t Vectors, class Scalar, std::size_t... Row, std::size_t... Vector,
          std::size_t... Slot>
inline void tile_steps(const tile_task<Scalar>& task, std::index_sequence<Row...>, std::index_sequence<Vector...>,
                       std::index_sequence<Slot...>) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  const std::ptrdiff_t offset[Rows] = {task.row_offset[Row]...};
  const first_lanes<Scalar> last = task.last;
  const first_lanes<Scalar> whole = task.whole;
  const std::ptrdiff_t left_step = task.reduce[2].left;
  const std::ptrdiff_t right_step = task.reduce[2].right;
  vector<Scalar> sums[Rows * Vectors] = {};
  const Scalar* left = task.left;
  const Scalar* right = task.right;
  // Volatile: what only the outer loops need stays in memory and leaves the registers to the innermost loop.
  const volatile loop* const volatile reduce = task.reduce;
  const Scalar* volatile outer_left = left;
  const Scalar* volatile outer_right = right;
  const Scalar* volatile middle_left = left;
  const Scalar* volatile middle_right = right;
  volatile std::ptrdiff_t outermost = 0;
  volatile std::ptrdiff_t outer_count = reduce[0].extent;
  volatile std::ptrdiff_t middle_count = reduce[1].extent;
  for (;;) {
    for (std::ptrdiff_t count = reduce[2].extent; count > 0; --count) {
      const vector<Scalar> across[Vectors] = {across_of<Rows, Vectors, Vector>(right, whole, last)...};
      vector<Scalar> down;
      ((down = Slot % Vectors == 0 ? splat(left[offset[Slot / Vectors]]) : down,
        sums[Slot] = sums[Slot] + down * across[Slot % Vectors]),
       ...);
      left += left_step;
      right += right_step;
    }
    middle_count = middle_count - 1;
    if (middle_count > 0) {
      left = middle_left + reduce[1].left;
      right = middle_right + reduce[1].right;
    } else {
      outer_count = outer_count - 1;
      if (outer_count > 0) {
        left = outer_left + reduce[0].left;
        right = outer_right + reduce[0].right;
      } else {
        outermost = outermost + 1;
        if (outermost >= reduce[3].extent) {
          break;
        }
        left = task.left + outermost * reduce[3].left;
        right = task.right + outermost * reduce[3].right;
        outer_count = reduce[0].extent;
      }
      outer_left = left;
      outer_right = right;
      middle_count = reduce[1].extent;
    }
    middle_left = left;
    middle_right = right;
  }
  Scalar* const to = task.sums;
  (store(to + Slot * lanes, sums[Slot]), ...);
}

template <class Scalar, std::size_t Rows, std::size_t Vectors>
void tile(const tile_task<Scalar>& task) noexcept {
  tile_steps<Rows, Vectors>(task, std::make_index_sequence<Rows>{}, std::make_index_sequence<Vectors>{},
                            std::make_index_sequence<Rows * Vectors>{});
}

template <class Scalar>
using tile_function = void (*)(const tile_task<Scalar>&) noexcept;

template <class Scalar, std::size_t Vectors, std::size_t... Row>
constexpr std::array<tile_function<Scalar>, sizeof...(Row)> tiles_of(std::index_sequence<Row...>) noexcept {
  return {&tile<Scalar, Row + 1, Vectors>...};
}

template <class Scalar, std::size_t Vectors>
inline constexpr auto tiles = tiles_of<Scalar, Vectors>(std::make_index_sequence<max_tile_rows(Vectors)>{});

/// The tiles of one width.
template <class Scalar>
struct tile_family {
  std::size_t vectors;
  std::size_t max_rows;
  const tile_function<Scalar>* by_rows;  // [rows - 1]
};

template <class Scalar, std::size_t Vectors>
inline constexpr tile_family<Scalar> family{Vectors, max_tile_rows(Vectors), tiles<Scalar, Vectors>.data()};

/// The width whose tiles hold the most sums on average: they hide the latency of a multiply-add and reuse what is read.
template <class Scalar>
[[nodiscard]] inline const tile_family<Scalar>& choose_family(std::size_t row_count,
                                                              std::size_t vectors_left) noexcept {
  if (vectors_left < 4) {
    return vectors_left < 2 ? family<Scalar, 1> : family<Scalar, 2>;
  }
  const auto sums_in_flight = [row_count](std::size_t vectors, std::size_t max_rows) {
    return row_count < max_rows ? row_count * vectors : row_count * vectors / ((row_count + max_rows - 1) / max_rows);
  };
  const std::size_t in_two = sums_in_flight(2, max_tile_rows(2));
  const std::size_t in_four = sums_in_flight(4, max_tile_rows(4));
  const std::size_t in_eight = vectors_left < 8 ? 0 : sums_in_flight(8, max_tile_rows(8));
  return in_eight > in_four && in_eight > in_two ? family<Scalar, 8>
         : in_four > in_two                      ? family<Scalar, 4>
                                                 : family<Scalar, 2>;
}

}  // namespace product_detail

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// One row loop: its extent, and its strides (in elements) in the left operand and in the output.
struct rows {
  std::ptrdiff_t extent = 1;
  std::ptrdiff_t left = 0;
  std::ptrdiff_t out = 0;
  friend constexpr bool operator==(const rows&, const rows&) = default;
};

/// Extents and strides of a product; the last of the row and of the reduction loops is the innermost.
///
/// Rows of the right operand and of the output are contiguous along the columns. Extents and columns are >= 0.
struct product_shape {
  rows row[3];
  loop reduce[3];
  std::ptrdiff_t columns = 0;
  rows outer_row{};     ///< around the three row loops; volumes need it
  loop outer_reduce{};  ///< around the three reduction loops
  friend constexpr bool operator==(const product_shape&, const product_shape&) = default;
};

/// The same product with the fewest loops: drops loops of extent 1, joins neighbours that step through memory as one.
///
/// The order of rows and of the reduction stays, so results keep their bits. Meant to be called once, at compile time.
[[nodiscard]] constexpr product_shape coalesce(product_shape shape) noexcept {
  if (shape.row[0].extent == 1) {
    shape.row[0] = shape.outer_row;
    shape.outer_row = rows{};
  }
  if (shape.reduce[0].extent == 1) {
    shape.reduce[0] = shape.outer_reduce;
    shape.outer_reduce = loop{};
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (int outer = 1; outer >= 0; --outer) {
      rows& above = shape.row[outer];
      rows& below = shape.row[outer + 1];
      if (below.extent == 1) {
        below = above;
        above = rows{};
      } else if (above.left == below.extent * below.left && above.out == below.extent * below.out) {
        below.extent *= above.extent;
        above = rows{};
      }
      loop& slow = shape.reduce[outer];
      loop& fast = shape.reduce[outer + 1];
      if (fast.extent == 1) {
        fast = slow;
        slow = loop{};
      } else if (slow.left == fast.extent * fast.left && slow.right == fast.extent * fast.right) {
        fast.extent *= slow.extent;
        slow = loop{};
      }
    }
  }
  if (shape.outer_row.extent != 1 || shape.outer_reduce.extent != 1) {
    rows& row = shape.row[0];
    const bool row_joins = shape.outer_row.extent != 1 && shape.outer_row.left == row.extent * row.left &&
                           shape.outer_row.out == row.extent * row.out;
    if (row_joins) {
      row.extent *= shape.outer_row.extent;
      shape.outer_row = rows{};
    }
    loop& reduce = shape.reduce[0];
    const bool reduce_joins = shape.outer_reduce.extent != 1 &&
                              shape.outer_reduce.left == reduce.extent * reduce.left &&
                              shape.outer_reduce.right == reduce.extent * reduce.right;
    if (reduce_joins) {
      reduce.extent *= shape.outer_reduce.extent;
      shape.outer_reduce = loop{};
    }
    const bool moves =
        (shape.outer_row.extent != 1 && row.extent == 1) || (shape.outer_reduce.extent != 1 && reduce.extent == 1);
    if (moves) return coalesce(shape);
  }
  return shape;
}

namespace product_detail {

/// Where the rows of a tile begin: one place, and offsets from it.
struct tile_rows {
  std::ptrdiff_t left;
  std::ptrdiff_t out;
  const std::ptrdiff_t* left_offset;
  const std::ptrdiff_t* out_offset;
};

/// Steps through the rows of a product in order, a tile at a time.
class row_cursor {
 public:
  explicit row_cursor(const product_shape& shape) noexcept : row_{shape.row}, outermost_row_{shape.outer_row} {
    for (std::size_t step = 0; step < tile_rows_limit; ++step) {
      even_left_[step] = static_cast<std::ptrdiff_t>(step) * row_[2].left;
      even_out_[step] = static_cast<std::ptrdiff_t>(step) * row_[2].out;
    }
  }

  void restart() noexcept { inner_ = middle_ = outer_ = outermost_ = left_ = out_ = 0; }

  /// The next `count` rows, which must exist; valid until the next call.
  [[nodiscard]] tile_rows next(std::ptrdiff_t count) noexcept {
    if (count <= row_[2].extent - inner_) {  // evenly spaced
      const tile_rows found{left_, out_, even_left_, even_out_};
      advance(count);
      return found;
    }
    const tile_rows found{left_, out_, uneven_left_, uneven_out_};
    for (std::ptrdiff_t done = 0; done < count;) {
      const std::ptrdiff_t in_line = row_[2].extent - inner_;
      const std::ptrdiff_t here = count - done < in_line ? count - done : in_line;
      for (std::ptrdiff_t step = 0; step < here; ++step) {
        uneven_left_[done + step] = left_ - found.left + even_left_[step];
        uneven_out_[done + step] = out_ - found.out + even_out_[step];
      }
      done += here;
      advance(here);
    }
    return found;
  }

 private:
  void advance(std::ptrdiff_t count) noexcept {
    inner_ += count;
    if (inner_ < row_[2].extent) {
      left_ += count * row_[2].left;
      out_ += count * row_[2].out;
      return;
    }
    inner_ = 0;
    if (++middle_ == row_[1].extent) {
      middle_ = 0;
      if (++outer_ == row_[0].extent) {
        outer_ = 0;
        ++outermost_;
      }
    }
    left_ = outermost_ * outermost_row_.left + outer_ * row_[0].left + middle_ * row_[1].left;
    out_ = outermost_ * outermost_row_.out + outer_ * row_[0].out + middle_ * row_[1].out;
  }

  const rows* row_;
  const rows& outermost_row_;
  std::ptrdiff_t inner_ = 0;
  std::ptrdiff_t middle_ = 0;
  std::ptrdiff_t outer_ = 0;
  std::ptrdiff_t outermost_ = 0;
  std::ptrdiff_t left_ = 0;
  std::ptrdiff_t out_ = 0;
  std::ptrdiff_t even_left_[tile_rows_limit] = {};
  std::ptrdiff_t even_out_[tile_rows_limit] = {};
  std::ptrdiff_t uneven_left_[tile_rows_limit] = {};
  std::ptrdiff_t uneven_out_[tile_rows_limit] = {};
};

/// Hands the sums of a tile to the epilogue, row by row. `Vectors` is its width, or 0 to take it from `vectors`.
template <std::size_t Vectors, class Scalar, class Epilogue, class Lanes>
inline void finish(const Scalar* sums, std::size_t row_count, std::size_t vectors, Scalar* out, const tile_rows& place,
                   std::ptrdiff_t column, const Lanes& last, Epilogue& epilogue) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  for (std::size_t row = 0; row < row_count; ++row) {
    const std::ptrdiff_t begin = place.out + place.out_offset[row];
    std::ptrdiff_t at = column;
    for (std::size_t before_last = (Vectors == 0 ? vectors : Vectors) - 1; before_last > 0; --before_last) {
      epilogue(load(sums), out, begin + at, at, all_lanes<Scalar>{});
      at += static_cast<std::ptrdiff_t>(lanes);
      sums += lanes;
    }
    epilogue(load(sums), out, begin + at, at, last);
    sums += lanes;
  }
}

/// Panels of columns outside, tiles of rows inside: a panel of `right` stays in the cache while `left` passes by.
template <class Scalar, class Epilogue>
void sweep(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
           Epilogue& given_epilogue) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  const auto row_count = static_cast<std::size_t>(shape.outer_row.extent * shape.row[0].extent * shape.row[1].extent *
                                                  shape.row[2].extent);
  const auto columns = static_cast<std::size_t>(shape.columns);
  if (row_count == 0) {
    return;
  }
  loop reduce[4] = {shape.reduce[0], shape.reduce[1], shape.reduce[2], shape.outer_reduce};
  if (reduce[0].extent == 0 || reduce[1].extent == 0 || reduce[3].extent == 0) {  // only the innermost may be empty
    reduce[0].extent = reduce[1].extent = reduce[3].extent = 1;
    reduce[2].extent = 0;
  }
  Epilogue epilogue = given_epilogue;  // a copy that no store can alias
  alignas(vector_bytes) Scalar sums[vector_registers * lanes];
  row_cursor cursor{shape};
  tile_task<Scalar> task{left, right, reduce, nullptr, sums, first_lanes<Scalar>{lanes}, first_lanes<Scalar>{lanes}};
  for (std::size_t column = 0; column < columns;) {
    const tile_family<Scalar>& chosen = choose_family<Scalar>(row_count, (columns - column + lanes - 1) / lanes);
    const std::size_t vectors = chosen.vectors;
    const bool partial = columns - column < vectors * lanes;
    if (partial) {
      task.last = first_lanes<Scalar>{columns - column - (vectors - 1) * lanes};
    }
    task.right = right + column;
    cursor.restart();
    std::size_t rows_left = row_count;
    for (std::size_t tiles_left = (row_count + chosen.max_rows - 1) / chosen.max_rows; tiles_left > 0; --tiles_left) {
      std::size_t count = chosen.max_rows;
      if (rows_left < 3 * count) {  // even out the last tiles
        count = tiles_left == 1 ? rows_left : tiles_left == 2 ? (rows_left + 1) / 2 : (rows_left + 2) / 3;
      }
      rows_left -= count;
      const tile_rows place = cursor.next(static_cast<std::ptrdiff_t>(count));
      task.left = left + place.left;
      task.row_offset = place.left_offset;
      chosen.by_rows[count - 1](task);
      const auto at = static_cast<std::ptrdiff_t>(column);
      if (partial) {
        finish<0>(sums, count, vectors, out, place, at, task.last, epilogue);
      } else if (vectors == 2) {
        finish<2>(sums, count, vectors, out, place, at, all_lanes<Scalar>{}, epilogue);
      } else {
        finish<0>(sums, count, vectors, out, place, at, all_lanes<Scalar>{}, epilogue);
      }
    }
    column += vectors * lanes;
  }
  given_epilogue = epilogue;
}

}  // namespace product_detail

/// Multiplies as `shape` says and hands every vector of sums to `epilogue`; `Scalar` is float or double.
///
/// Reads and writes exactly the elements that the formula names: nothing beyond `columns` on the right or in the
/// output. `out` overlaps neither operand. Allocates nothing. A reduction of extent 0 gives sums of 0. `epilogue` is
/// one of namespace `epilogue`; those that add squares keep them, so pass a variable and ask it afterwards.
template <class Scalar, class Epilogue = epilogue::store>
void product(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
             Epilogue&& epilogue = Epilogue{}) noexcept {
  if constexpr (std::is_const_v<std::remove_reference_t<Epilogue>>) {
    auto copy = epilogue;
    product_detail::sweep(shape, left, right, out, copy);
  } else {
    product_detail::sweep(shape, left, right, out, epilogue);
  }
}

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// What is known of the squared norm of one sample's block or blocks. An upper bound of the norm of what is added to a
/// sum with weight w is
///   w (sqrt(squared + error) + sqrt(slack)) + d spread      d: the smallest subnormal Scalar
struct norm_part {
  double squared = 0;  ///< the value
  double error =
      0;  ///< bound on the rounding error of `squared`, where it may cancel (gram) or vanish (subnormal squares)
  double slack = 0;  ///< squared bound on what the sum's own rounding adds to the sample's share
  double spread =
      0;  ///< sum_t |x_t| sqrt(p), where w delta_t is formed first: its rounding error d / 2, however small, meets x_t

  constexpr norm_part& operator+=(const norm_part& other) noexcept {
    squared += other.squared;
    error += other.error;
    slack += other.slack;
    spread += other.spread;
    return *this;
  }
};

/// One outer-product leaf of the samples in a worker's workspace.
template <class Scalar>
struct leaf_kernel {
  const outer_leaf& leaf;
  const Scalar* workspace;

  [[nodiscard]] const Scalar* x(index sample, index group) const noexcept {
    return workspace + leaf.x.offset + sample * leaf.x.sample + group * leaf.x_group;
  }
  [[nodiscard]] const Scalar* delta(index sample, index group) const noexcept {
    return workspace + leaf.delta.offset + sample * leaf.delta.sample + group * leaf.delta_group;
  }
  [[nodiscard]] index group_size() const noexcept { return leaf.view_width() * leaf.outputs; }

  /// The product that forms G natively: rows are the view, columns the outputs, the reduction runs over samples and
  /// positions.
  [[nodiscard]] product_shape gradient_shape(index samples, index delta_sample, const step_axis (&step)[2],
                                             const step_axis& plane) const noexcept {
    const view_axis(&view)[3] = leaf.view;
    const index inner = view[2].extent * leaf.outputs;
    return coalesce({{{view[0].extent, view[0].x, view[1].extent * inner},
                      {view[1].extent, view[1].x, inner},
                      {view[2].extent, view[2].x, leaf.outputs}},
                     {{plane.extent, plane.x, plane.delta},
                      {step[0].extent, step[0].x, step[0].delta},
                      {step[1].extent, step[1].x, step[1].delta}},
                     leaf.outputs,
                     {leaf.view_plane.extent, leaf.view_plane.x, view[0].extent * view[1].extent * inner},
                     {samples, leaf.x.sample, delta_sample}});
  }

  /// G_b into `out`; returns its squared norm. The squares are those of the numbers written.
  double instantiate(index sample, Scalar* out) const noexcept {
    if (leaf.delta_stride != 1) return instantiate_scattered(sample, out);
    const product_shape shape = gradient_shape(1, 0, leaf.step, leaf.step_plane);
    double squared = 0;
    for (index g = 0; g < leaf.groups; ++g) {
      epilogue::squares_store<Scalar> squares_of;
      product(shape, x(sample, g), delta(sample, g), out + g * group_size(), squares_of);
      squared += squares_of.sum();
    }
    return squared;
  }

  /// Adds G_b to `out`; returns the squared norm of the sum. `scratch` has room for a gradient.
  double instantiate_onto(index sample, Scalar* out, Scalar* scratch) const noexcept {
    if (leaf.delta_stride != 1) {
      instantiate_scattered(sample, scratch);
      add_to(out, static_cast<const Scalar*>(scratch), leaf.size());
    } else {
      const product_shape shape = gradient_shape(1, 0, leaf.step, leaf.step_plane);
      for (index g = 0; g < leaf.groups; ++g) {
        product(shape, x(sample, g), delta(sample, g), out + g * group_size(), epilogue::add{});
      }
    }
    return squares(static_cast<const Scalar*>(out), leaf.size());
  }

  /// ‖G_b‖² without keeping G_b.
  [[nodiscard]] double direct(index sample) const noexcept {
    const product_shape shape = gradient_shape(1, 0, leaf.step, leaf.step_plane);
    double squared = 0;
    for (index g = 0; g < leaf.groups; ++g) {
      epilogue::squares_only<Scalar> squares_of;
      product(shape, x(sample, g), delta(sample, g), static_cast<Scalar*>(nullptr), squares_of);
      squared += squares_of.sum();
    }
    return squared;
  }

  /// ‖x‖² ‖delta‖² for one position.
  [[nodiscard]] norm_part by_product(index sample) const noexcept {
    norm_part result;
    for (index g = 0; g < leaf.groups; ++g) {
      const double x_squared = view_dot(x(sample, g), x(sample, g));
      const double delta_squared = delta_dot(delta(sample, g), delta(sample, g));
      result.squared += x_squared * delta_squared;
      result.error += lost_squares(x_squared, delta_squared);
      result.spread += spread_of(x_squared);
    }
    return result;
  }

  /// sum_{t,s} (x_t · x_s)(delta_t · delta_s), every dot in double. Terms cancel, so the error bound is part of the
  /// answer: each dot errs by at most n u |a||b|, and (sum_t |x_t||delta_t|)² bounds the sum of all magnitudes.
  [[nodiscard]] norm_part gram(index sample) const noexcept {
    norm_part result;
    for (index g = 0; g < leaf.groups; ++g) {
      double sum = 0;
      double magnitude = 0;
      for_each_position(leaf.positions(), [&](index t, index x_t, index delta_t) {
        const Scalar* x_here = x(sample, g) + x_t;
        const Scalar* delta_here = delta(sample, g) + delta_t;
        for_each_position(t + 1, [&](index s, index x_s, index delta_s) {
          const double entry = view_dot(x_here, x(sample, g) + x_s) * delta_dot(delta_here, delta(sample, g) + delta_s);
          sum += s == t ? entry : 2 * entry;
          if (s == t) magnitude += std::sqrt(entry);
        });
      });
      const auto terms = static_cast<double>(leaf.view_width() + leaf.outputs + 2 * leaf.positions() + 8);
      result.squared += std::max(sum, 0.0);
      result.error += terms * std::numeric_limits<double>::epsilon() * magnitude * magnitude;
    }
    return result;
  }

  /// What rounding adds to one sample's share of a weighted sum over positions: slack = (γ sum_t |x_t||delta_t|)², and
  /// spread.
  [[nodiscard]] norm_part rounding(index sample) const noexcept {
    norm_part result;
    const double unit =
        static_cast<double>(leaf.positions() + 2) * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    for (index g = 0; g < leaf.groups; ++g) {
      double magnitude = 0;
      double x_sum = 0;
      double delta_sum = 0;
      for_each_position(leaf.positions(), [&](index, index x_t, index delta_t) {
        const Scalar* x_here = x(sample, g) + x_t;
        const Scalar* delta_here = delta(sample, g) + delta_t;
        const double x_squared = view_dot(x_here, x_here);
        const double delta_squared = delta_dot(delta_here, delta_here);
        magnitude += std::sqrt(x_squared * delta_squared);
        x_sum += std::sqrt(x_squared);
        delta_sum += std::sqrt(delta_squared);
        result.spread += spread_of(x_squared);
      });
      result.slack += (unit * magnitude) * (unit * magnitude);
      result.error += lost_squares(x_sum * x_sum, delta_sum * delta_sum);
    }
    return result;
  }

  /// Adds sum_b G_b of the samples to `out`: one product, no gradient of a sample is formed.
  void add_sum(index samples, Scalar* out, Scalar* scratch) const noexcept {
    if (leaf.delta_stride != 1) {
      for (index b = 0; b < samples; ++b) {
        instantiate_scattered(b, scratch);
        add_to(out, scratch, leaf.size());
      }
      return;
    }
    const product_shape shape = gradient_shape(samples, leaf.delta.sample, leaf.step, leaf.step_plane);
    for (index g = 0; g < leaf.groups; ++g)
      product(shape, x(0, g), delta(0, g), out + g * group_size(), epilogue::add{});
  }

  /// Adds sum_b w_b G_b as X^T diag(w) Delta: delta is scaled on its way into `scaled`, which holds it without gaps.
  void add_weighted_sum(index samples, const Scalar* weights, Scalar* out, Scalar* scaled) const noexcept {
    const index width = leaf.groups * leaf.outputs;
    const index sample_size = leaf.positions() * width;
    for (index b = 0; b < samples; ++b) {
      Scalar* to = scaled + b * sample_size;
      for_each_position(leaf.positions(), [&](index, index, index delta_t) {
        const Scalar* from = delta(b, 0) + delta_t;
        if (weights[b] == 0) {
          std::fill_n(to, width, Scalar{0});  // chosen, not multiplied: a non-finite delta must contribute nothing
        } else {
          // Where this is subnormal, `spread` accounts for its rounding. Dropping it instead would leave what it
          // cancels.
          for_each_vector<Scalar>(width, [&](index n, const auto& lanes) {
            lanes.store(to + n, splat(weights[b]) * lanes.load(from + n));
          });
        }
        to += width;
      });
    }
    step_axis step[2] = {leaf.step[0], leaf.step[1]};
    step_axis plane = leaf.step_plane;
    step[1].delta = width;
    step[0].delta = width * step[1].extent;
    plane.delta = step[0].delta * step[0].extent;
    const product_shape shape = gradient_shape(samples, sample_size, step, plane);
    for (index g = 0; g < leaf.groups; ++g) {
      product(shape, x(0, g), static_cast<const Scalar*>(scaled + g * leaf.outputs), out + g * group_size(),
              epilogue::add{});
    }
  }

 private:
  /// Squares of doubles below 1e-154 lose bits or vanish, and the other factor may be as large as these are small.
  /// (Squares of floats are exact in double.)
  [[nodiscard]] double lost_squares(double x_squared, double delta_squared) const noexcept {
    if constexpr (std::is_same_v<Scalar, double>) {
      constexpr double least = std::numeric_limits<double>::denorm_min();
      return least * static_cast<double>(leaf.view_width()) * delta_squared +
             least * static_cast<double>(leaf.outputs) * x_squared;
    } else {
      return 0;
    }
  }
  [[nodiscard]] double spread_of(double x_squared) const noexcept {
    return std::sqrt(x_squared * static_cast<double>(leaf.outputs));
  }

  /// Calls f(t, offset in x, offset in delta) for the first `count` positions.
  template <class Function>
  void for_each_position(index count, Function&& f) const {
    index i = 0;
    index j = 0;
    index x_row = 0;
    index delta_row = 0;
    for (index t = 0; t < count; ++t) {
      f(t, x_row + j * leaf.step[1].x, delta_row + j * leaf.step[1].delta);
      if (++j < leaf.step[1].extent) continue;
      j = 0;
      ++i;
      const index plane = i / leaf.step[0].extent;
      const index row = i % leaf.step[0].extent;
      x_row = plane * leaf.step_plane.x + row * leaf.step[0].x;
      delta_row = plane * leaf.step_plane.delta + row * leaf.step[0].delta;
    }
  }
  [[nodiscard]] double view_dot(const Scalar* a, const Scalar* b) const noexcept {
    const view_axis(&view)[3] = leaf.view;
    const bool joined = view[1].x == view[2].extent && view[2].x == 1;
    double sum = 0;
    for (index k = 0; k < leaf.view_plane.extent * view[0].extent; ++k) {
      const index row = k / view[0].extent * leaf.view_plane.x + k % view[0].extent * view[0].x;
      if (joined) {
        sum += dot(a + row, b + row, view[1].extent * view[2].extent);
        continue;
      }
      for (index l = 0; l < view[1].extent; ++l) {
        const index at = row + l * view[1].x;
        if (view[2].x == 1) {
          sum += dot(a + at, b + at, view[2].extent);
        } else {
          sum += strided_dot(a + at, b + at, view[2].extent, view[2].x);
        }
      }
    }
    return sum;
  }
  [[nodiscard]] double delta_dot(const Scalar* a, const Scalar* b) const noexcept {
    return leaf.delta_stride == 1 ? dot(a, b, leaf.outputs) : strided_dot(a, b, leaf.outputs, leaf.delta_stride);
  }
  [[nodiscard]] static double strided_dot(const Scalar* a, const Scalar* b, index count, index stride) noexcept {
    double sum = 0;
    for (index i = 0; i < count; ++i) sum += static_cast<double>(a[i * stride]) * static_cast<double>(b[i * stride]);
    return sum;
  }
  /// The formula as it stands, for a general layer whose delta is not contiguous.
  double instantiate_scattered(index sample, Scalar* out) const noexcept {
    std::fill_n(out, leaf.size(), Scalar{0});
    for_each_position(leaf.positions(), [&](index, index x_t, index delta_t) {
      for (index k = 0; k < leaf.view[2].extent; ++k) {
        const Scalar value = x(sample, 0)[x_t + k * leaf.view[2].x];
        for (index n = 0; n < leaf.outputs; ++n) {
          out[k * leaf.outputs + n] += value * delta(sample, 0)[delta_t + n * leaf.delta_stride];
        }
      }
    });
    return squares(static_cast<const Scalar*>(out), leaf.size());
  }
};

/// g_b of an elementwise leaf into `out`, or added to it; returns the squared norm of what is there then.
template <class Scalar>
inline double instantiate(const elementwise_leaf& leaf, const Scalar* workspace, index sample, Scalar* out,
                          bool onto = false) noexcept {
  const Scalar* delta = workspace + leaf.delta.offset + sample * leaf.delta.sample;
  const Scalar* other = workspace + leaf.other.offset + sample * leaf.other.sample;
  if (!onto) std::fill_n(out, leaf.count, Scalar{0});
  for (index plane = 0; plane < leaf.step_plane.extent; ++plane) {
    const Scalar* delta_plane = delta + plane * leaf.step_plane.delta;
    const Scalar* other_plane = other + plane * leaf.step_plane.x;
    for (index i = 0; i < leaf.step[0].extent; ++i) {
      for (index j = 0; j < leaf.step[1].extent; ++j) {
        const Scalar* delta_here = delta_plane + i * leaf.step[0].delta + j * leaf.step[1].delta;
        if (leaf.ones && leaf.delta_stride == 1) {
          add_to(out, delta_here, leaf.count);
          continue;
        }
        const Scalar* other_here = other_plane + i * leaf.step[0].x + j * leaf.step[1].x;
        if (!leaf.ones && leaf.delta_stride == 1 && leaf.other_stride == 1) {
          for_each_vector<Scalar>(leaf.count, [&](index n, const auto& lanes) {
            lanes.store(out + n, lanes.load(out + n) + lanes.load(delta_here + n) * lanes.load(other_here + n));
          });
          continue;
        }
        for (index n = 0; n < leaf.count; ++n) {
          const Scalar value = delta_here[n * leaf.delta_stride];
          out[n] += leaf.ones ? value : value * other_here[n * leaf.other_stride];
        }
      }
    }
  }
  return squares(static_cast<const Scalar*>(out), leaf.count);
}

/// Position in PyTorch's order of a row's first output, a row being one element of the view with all outputs.
[[nodiscard]] inline index parameter_of_row(const outer_leaf& leaf, index row) noexcept {
  const index rows_count = leaf.view_width();
  const index inner = leaf.view[1].extent * leaf.view[2].extent;
  const index k = row % rows_count;
  return leaf.parameters + row / rows_count * leaf.parameter_group +
         k / inner / leaf.view[0].extent * leaf.view_plane.parameter +
         k / inner % leaf.view[0].extent * leaf.view[0].parameter +
         k % inner / leaf.view[2].extent * leaf.view[1].parameter + k % leaf.view[2].extent * leaf.view[2].parameter;
}

/// Calls f(position in PyTorch's order, native position) for the parameters of rows [first_row, last_row) of a leaf.
template <class Function>
inline void for_each_parameter(const outer_leaf& leaf, index first_row, index last_row, Function&& f) {
  for (index row = first_row; row < last_row; ++row) {
    const index parameter = parameter_of_row(leaf, row);
    const index native = leaf.native + row * leaf.outputs;
    for (index n = 0; n < leaf.outputs; ++n) f(parameter + n * leaf.parameter_output, native + n);
  }
}
}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1 {

/// The most samples that one evaluation takes; larger batches are processed in chunks of this size.
struct max_batch {
  std::size_t count = 0;
};
/// The most different sums over the batch that one evaluation forms.
struct max_sums {
  std::size_t count = 0;
};

namespace on_host {

template <class Network>
struct worker;
template <class Network>
struct chunk_segments;
struct tape_access;

/// Lanes: stretches of the batch that are summed one after the other, and then with each other in order. Their number
/// depends on the network alone, so that results do not depend on the number of threads.
template <class Network>
inline constexpr index lane_count = [] {
  constexpr index bytes =
      std::max<index>(1, program<Network>::table.native_size) * static_cast<index>(sizeof(typename Network::scalar));
  return std::clamp<index>((index{64} << 20) / bytes, 2, 16);
}();

/// Lanes that a number of tiles is worth: clearing a lane and adding it to the others must cost little next to its
/// tiles. An element of a lane counts as 8 multiply-adds inside the L2 cache and as 64 beyond it, and may take a
/// sixteenth of the time.
template <class Network>
[[nodiscard]] constexpr index lanes_for(index tiles) noexcept {
  constexpr const auto& table = program<Network>::table;
  constexpr index bytes = table.native_size * static_cast<index>(sizeof(typename Network::scalar));
  constexpr index lane_cost = (bytes <= (index{1} << 20) ? 8 : 64) * table.native_size;
  constexpr index tile_cost = [] {
    index sum = 1;
    for (std::size_t k = 0; k < table.outer_count; ++k) sum += table.outer[k].size() * table.outer[k].positions();
    return 3 * table.tile * sum;  // forward, input gradient and weight gradient
  }();
  constexpr index tiles_a_lane = std::max<index>(1, 16 * lane_cost / tile_cost);
  constexpr index few = 4;  // never so few that a small machine idles
  return std::clamp<index>(tiles / tiles_a_lane, std::min(few, lane_count<Network>), lane_count<Network>);
}

/// Samples that are evaluated before the sums over tables are formed: as many as have their segments in a few
/// megabytes, within limits. A multiple of the tile; depends on the network alone.
template <class Network>
inline constexpr index chunk_samples = [] {
  constexpr const auto& table = program<Network>::table;
  constexpr index bytes = std::max<index>(
      1, table.sparse_integers * 4 + table.sparse_scalars * static_cast<index>(sizeof(typename Network::scalar)));
  const index samples = std::clamp<index>((index{16} << 20) / bytes, 64, 256);
  return std::max<index>(1, samples / table.tile) * table.tile;
}();

/// Sums that fit without thought; a large network has room for one unless more are asked for.
template <class Network>
inline constexpr std::size_t usual_sums = lane_count<Network>* program<Network>::table.native_size* static_cast<index>(
                                              sizeof(typename Network::scalar)) <= (index{64} << 20)
                                              ? 2
                                              : 1;

}  // namespace on_host

/// The working memory of one network on the host. Construct it once; a step allocates nothing.
///
/// One evaluation at a time may use a tape. It must be evaluated by an executor with no more threads than the one it
/// was made for.
template <class Network>
class tape {
 public:
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;

  /// Reserves everything. Throws std::invalid_argument for an empty batch, std::runtime_error if there is no memory.
  tape(const host& executor, max_batch batch, max_sums sums = {on_host::usual_sums<Network>})
      : max_batch_{batch.count}, max_sums_{sums.count}, workers_{executor.thread_count()} {
    if (batch.count == 0) throw std::invalid_argument("pergrad: tape: max_batch must be at least 1");
    if (sums.count == 0) throw std::invalid_argument("pergrad: tape: max_sums must be at least 1");
    const auto total = [](on_host::index each, std::size_t count) { return static_cast<std::size_t>(each) * count; };
    workspaces_ = {total(workspace_stride, workers_), "a tape's workspaces"};
    kept_ = {total(kept_stride, workers_), "a tape's per-sample gradients", detail::uninitialised};
    scaled_ = {total(scaled_stride, workers_), "a tape's scaled gradients", detail::uninitialised};
    parts_ = {total(parts_stride, workers_), "a tape's norms"};
    panels_ = {total(program::table.panel_size + on_host::line, 1), "a tape's packed weights"};
    lanes_ = {total(program::table.native_size, static_cast<std::size_t>(on_host::lane_count<Network>) * sums.count),
              "a tape's sums", detail::uninitialised};
    if constexpr (program::table.sparse_count > 0) {
      const auto chunk = std::min(batch.count, static_cast<std::size_t>(on_host::chunk_samples<Network>));
      finders_ = {total(finder_stride, workers_), "a tape's hash tables"};
      integers_ = {total(program::table.sparse_integers, chunk), "a tape's segments", detail::uninitialised};
      scalars_ = {total(program::table.sparse_scalars, chunk), "a tape's segments", detail::uninitialised};
      weights_ = {total(on_host::chunk_samples<Network>, program::table.sparse_count * sums.count), "a tape's weights"};
      additions_ = {total(program::table.sparse_size, sums.count), "a tape's sums over tables", detail::uninitialised};
    }
    direction_ = {total(program::table.native_size, 1), "a tape's direction", detail::uninitialised};
  }

  /// The largest batch of one evaluation.
  [[nodiscard]] std::size_t capacity() const noexcept { return max_batch_; }
  /// Sums that one evaluation may form.
  [[nodiscard]] std::size_t sum_capacity() const noexcept { return max_sums_; }
  /// Bytes reserved. Those for gradients that the plan never forms are reserved but not touched, so they cost no
  /// memory.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return sizeof(scalar) * (workspaces_.size() + kept_.size() + scaled_.size() + panels_.size() + lanes_.size() +
                             direction_.size() + scalars_.size() + weights_.size() + additions_.size()) +
           sizeof(std::int32_t) * (finders_.size() + integers_.size()) + sizeof(on_host::norm_part) * parts_.size();
  }

  /// Threads that there are workspaces for.
  [[nodiscard]] std::size_t worker_count() const noexcept { return workers_; }

 private:
  friend struct on_host::tape_access;
  friend struct on_host::worker<Network>;
  friend struct on_host::chunk_segments<Network>;
  static constexpr const auto& table = program::table;
  static constexpr on_host::index workspace_stride = on_host::round_up(table.workspace);
  static constexpr on_host::index kept_stride = table.tile * table.native_size;
  static constexpr on_host::index scaled_stride = on_host::round_up(table.tile * table.scaled_size) + table.native_size;
  static constexpr on_host::index finder_stride =
      on_host::segment_finder::size(table.sparse_positions, table.sparse_slots);
  static constexpr on_host::index parts_stride =
      on_host::round_up(table.tile * static_cast<on_host::index>(std::max<std::size_t>(1, table.layer_groups)));

  std::size_t max_batch_;
  std::size_t max_sums_;
  std::size_t workers_;
  detail::aligned_buffer<scalar> workspaces_;
  detail::aligned_buffer<scalar> kept_;
  detail::aligned_buffer<scalar> scaled_;
  detail::aligned_buffer<on_host::norm_part> parts_;
  detail::aligned_buffer<scalar> panels_;
  detail::aligned_buffer<scalar> lanes_;
  detail::aligned_buffer<scalar> direction_;
  // Of networks with tables of which a sample uses few rows:
  detail::aligned_buffer<std::int32_t> finders_;
  detail::aligned_buffer<std::int32_t> integers_;
  detail::aligned_buffer<scalar> scalars_;
  detail::aligned_buffer<scalar> weights_;    ///< [sum][table][sample of the chunk]
  detail::aligned_buffer<scalar> additions_;  ///< sums that are added to something once they are whole
};

namespace on_host {

/// The engine's way to a tape's memory.
struct tape_access {
  // clang-format off
  [[nodiscard]] static auto* workspace(auto& tape) noexcept { return tape.workspaces_.data(); }
  [[nodiscard]] static auto* kept(auto& tape) noexcept { return tape.kept_.data(); }
  [[nodiscard]] static auto* scaled(auto& tape) noexcept { return tape.scaled_.data(); }
  [[nodiscard]] static auto* parts(auto& tape) noexcept { return tape.parts_.data(); }
  [[nodiscard]] static auto* panels(auto& tape) noexcept { return tape.panels_.data(); }
  [[nodiscard]] static auto* lanes(auto& tape) noexcept { return tape.lanes_.data(); }
  [[nodiscard]] static auto* direction(auto& tape) noexcept { return tape.direction_.data(); }
  [[nodiscard]] static auto* finder(auto& tape) noexcept { return tape.finders_.data(); }
  [[nodiscard]] static auto* integers(auto& tape) noexcept { return tape.integers_.data(); }
  [[nodiscard]] static auto* scalars(auto& tape) noexcept { return tape.scalars_.data(); }
  [[nodiscard]] static auto* weights(auto& tape) noexcept { return tape.weights_.data(); }
  [[nodiscard]] static auto* additions(auto& tape) noexcept { return tape.additions_.data(); }
  // clang-format on
};

}  // namespace on_host
}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// One entry of a network's unfolded list.
struct description {
  std::string layer;  ///< its name, as it would be written in a network where that is possible
  shape in;
  shape out;
  std::size_t parameters = 0;  ///< trained or frozen; 0 for another use of a tied block, which is counted once
  std::size_t tape_bytes = 0;  ///< a sample's values and gradients that this entry adds to the tape
  norm_method method = norm_method::elementwise;  ///< of its outer-product block; `elementwise` if it has none
  std::size_t positions = 0;                      ///< T of that block, 0 without one
  double modelled_cost = 0;  ///< multiply-adds a sample for norm and weighted sum, as the plan counts them
  /// Where the norm comes from: a method, or `row sum` of a table; `frozen` blocks have none, `tied` ones have theirs
  /// where they are first used; `-` without parameters.
  std::string_view norm = "-";
};

namespace detail {

/// A type's name as the compiler writes it, without this library's namespaces.
template <class Type>
[[nodiscard]] std::string type_name() {
#if defined(__clang__) || defined(__GNUC__)
  std::string_view name = __PRETTY_FUNCTION__;
  const std::size_t begin = name.find("Type = ") + 7;
  name = name.substr(begin, name.find_first_of(";]", begin) - begin);
#else
  std::string_view name = "layer";
#endif
  std::string result{name};
  for (const std::string_view noise : {"pergrad::v0_1::", "pergrad::", "v0_1::", "detail::"}) {
    for (std::size_t at = result.find(noise); at != std::string::npos; at = result.find(noise))
      result.erase(at, noise.size());
  }
  for (std::size_t at = result.find(" >"); at != std::string::npos; at = result.find(" >")) result.erase(at, 1);
  return result;
}

/// The parts between commas, of "a, b<c, d>" two.
[[nodiscard]] inline std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char each : list) {
    depth += each == '<' || each == '{' ? 1 : each == '>' || each == '}' ? -1 : 0;
    if (each == ',' && depth == 0) {
      parts.emplace_back();
    } else if (each != ' ' || !parts.back().empty()) {
      parts.back() += each;
    }
  }
  return parts;
}

/// "{1, 8, 8}" is a window's depth, height and width; of {lengths, extents, ids} a shape. What says nothing is left
/// out.
[[nodiscard]] inline std::string readable_numbers(std::string_view list, bool two_axes) {
  std::vector<std::string> numbers = split_list(list);
  std::string kind;
  if (numbers.size() == 6) {
    kind = "shape";
    numbers.pop_back();
    numbers.erase(numbers.begin());
    while (numbers.size() > 1 && numbers.back() == "0") numbers.pop_back();
  } else if (numbers.size() == 3) {
    kind = "extent";
    if (two_axes) numbers.erase(numbers.begin());
  }
  std::string text = kind + "{";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i > 0 ? ", " : "") + numbers[i];
  return text + "}";
}

/// A recurrent layer of one direction, by the name and options that it was written with.
[[nodiscard]] inline std::string readable_recurrent(const std::string& name) {
  const std::size_t begin = name.find('<') + 1;
  const std::vector<std::string> part = split_list(std::string_view{name}.substr(begin, name.size() - begin - 1));
  const std::size_t cell = part[0].find("_cell");
  if (part.size() < 6 || cell == std::string::npos) return name;
  std::string text = part[0].substr(0, cell) + "<" + part[1];
  if (part[0].find("true") != std::string::npos) text += ", relu_cell";
  if (part[2] != "2") text += part[2] == "1" ? ", one_bias" : ", no_bias";
  if (part[4] == "true") text += ", last_output";
  text += ">";
  if (part[3] == "true") text += " backwards";
  if (part[5] == "true") text += " with state";
  return text;
}

/// A layer's name as users know it.
[[nodiscard]] inline std::string readable_name(const std::string& name) {
  if (name.starts_with("recurrent_core<")) return readable_recurrent(name);
  const bool two_axes = name.substr(0, name.find('<')).ends_with("2d");
  std::string text;
  for (std::size_t at = 0; at < name.size(); ++at) {
    const std::size_t end = name[at] == '{' ? name.find('}', at) : std::string::npos;
    if (end == std::string::npos) {
      text += name[at];
      continue;
    }
    for (const std::string_view kind : {"extent", "shape"}) {
      if (text.ends_with(kind)) text.resize(text.size() - kind.size());  // some compilers write it, some do not
    }
    text += readable_numbers(std::string_view{name}.substr(at + 1, end - at - 1), two_axes);
    at = end;
  }
  return text;
}

[[nodiscard]] inline std::string to_text(shape of) {
  std::string text = "{";
  for (std::size_t axis = 0; axis < of.rank(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(of[axis]);
  return text + "}";
}

}  // namespace detail

/// The rows of `describe`, in the order of the unfolded list: entry i is what `with_method<Method, i>` and
/// `layer_parameters(i)` speak of.
template <class Network>
[[nodiscard]] auto describe_rows() {
  using program = on_host::program<Network>;
  using structure = typename Network::structure;
  constexpr const auto& table = program::table;
  constexpr std::size_t bytes = sizeof(typename Network::scalar);
  std::array<description, structure::size> rows;
  detail::for_each_index<structure::size>([&](auto index) {
    constexpr std::size_t i = index;
    description& row = rows[i];
    row.layer = detail::readable_name(detail::type_name<typename structure::template layer_at<i>>());
    row.in = structure::shapes[structure::inputs[i]];
    row.out = structure::shapes[i + 1];
    const bool has_parameters = structure::parameter_counts[i] > 0;
    const bool used_before = structure::owners[i] != i;
    row.parameters = used_before ? 0 : structure::parameter_counts[i];
    const auto slot_bytes = [&](std::size_t which) {
      const on_host::slot& slot = table.slots[which];
      return bytes * static_cast<std::size_t>(slot.value.sample + slot.gradient.sample);
    };
    if (i == 0) row.tape_bytes += slot_bytes(0);
    if (table.storage[i + 1] == i + 1) row.tape_bytes += slot_bytes(i + 1);
    if (table.nodes[i].staged) row.tape_bytes += slot_bytes(table.nodes[i].in);
    for (std::size_t k = 0; k < table.outer_count; ++k) {
      const on_host::outer_leaf& leaf = table.outer[k];
      if (leaf.node != i) continue;
      row.method = leaf.method;
      row.positions = static_cast<std::size_t>(leaf.positions());
      row.modelled_cost += modelled_cost(leaf.method, leaf.block(), bytes);
      if (leaf.method == norm_method::instantiate) row.tape_bytes += bytes * static_cast<std::size_t>(leaf.size());
    }
    for (std::size_t k = 0; k < table.elementwise_count; ++k) {
      const on_host::elementwise_leaf& leaf = table.elementwise[k];
      if (leaf.node != i) continue;
      row.tape_bytes += bytes * static_cast<std::size_t>(leaf.count);
      row.modelled_cost += static_cast<double>(leaf.count * (leaf.positions() + 2));
    }
    bool is_table = false;
    // A table's rows are instantiated: those that a sample uses, at most one a position.
    for (std::size_t k = 0; k < table.sparse_count; ++k) {
      const on_host::sparse_leaf& leaf = table.sparse[k];
      if (leaf.node != i) continue;
      is_table = true;
      row.method = norm_method::instantiate;
      row.positions = static_cast<std::size_t>(leaf.positions);
      row.modelled_cost += static_cast<double>(2 * leaf.positions * leaf.width);
      if (!leaf.use.first) continue;
      row.tape_bytes += sizeof(std::int32_t) * static_cast<std::size_t>(on_host::segment_integers(leaf));
      row.tape_bytes += bytes * static_cast<std::size_t>(leaf.width * (leaf.counted ? 1 : leaf.all_positions));
    }
    if (has_parameters) {
      row.norm = used_before                         ? "tied"
                 : structure::trained_counts[i] == 0 ? "frozen"
                 : is_table                          ? "row sum"
                                                     : name_of(row.method);
    }
  });
  return rows;
}

/// A table of the network's entries: shapes, parameters, tape bytes a sample, the norm method that the plan chose and
/// its modelled cost, with totals and the tile that stays in a core's cache.
template <class Network>
[[nodiscard]] std::string describe() {
  if constexpr (std::is_base_of_v<error::explained, Network>) {
    return {};
  } else {
    constexpr std::size_t name_width = 56;
    char line[512];
    std::string text;
    const auto print = [&](const auto&... values) {
      std::snprintf(line, sizeof line, values...);
      text += line;
    };
    print("%5s  %-56s %-14s %-14s %12s %12s  %-11s %6s %12s\n", "entry", "layer", "in", "out", "parameters",
          "tape bytes", "norm", "T", "cost");
    std::size_t bytes = 0;
    double cost = 0;
    std::size_t number = 0;
    for (const description& row : describe_rows<Network>()) {
      print("%5zu  %-56s %-14s %-14s %12zu %12zu  %-11s %6zu %12.0f\n", number++,
            row.layer.substr(0, name_width).c_str(), detail::to_text(row.in).c_str(), detail::to_text(row.out).c_str(),
            row.parameters, row.tape_bytes, std::string{row.norm}.c_str(), row.positions, row.modelled_cost);
      for (std::size_t at = name_width; at < row.layer.size(); at += name_width) {
        print("%5s  %s\n", "", row.layer.substr(at, name_width).c_str());
      }
      bytes += row.tape_bytes;
      cost += row.modelled_cost;
    }
    print("total  %zu parameters", Network::parameter_count);
    if (Network::frozen_parameter_count > 0) print(" and %zu frozen", Network::frozen_parameter_count);
    print(", %zu tape bytes a sample, %zu samples a tile, %zu lanes, modelled cost %.0f multiply-adds a sample\n",
          bytes, static_cast<std::size_t>(on_host::program<Network>::table.tile),
          static_cast<std::size_t>(on_host::lane_count<Network>), cost);
    return text;
  }
}

}  // namespace pergrad::inline v0_1
// pergrad/gradients/clip.hpp - per-sample gradients of bounded norm: clip, clip_per_layer, normalise
//
// A clipped expression knows the most that one sample can add to its sum. That number is its sensitivity; noise is
// scaled by it and by nothing else.

// pergrad/gradients/leaf.hpp - the lazy per-sample gradients of a batch: the leaf of every gradient expression
//
// Nothing is computed here. A leaf points at a network, a batch and a tape; expressions are values made of it; only
// evaluation (evaluate.hpp) computes, and it names the executor.

// pergrad/host/engine.hpp - one pass over a batch: lanes of tiles in parallel, then the lanes' sums
//
//   pack weights
//   lanes in parallel, each: [ tile: load, forward, loss, backward + leaves, facts, weighted sums ]*
//   add up lanes
//
// A tile never leaves the core that works on it. Each lane adds its tiles up in order and lanes are added up in order,
// so the bits of a sum do not depend on the number of threads.
//
// Of a table of which a sample uses few rows, no lane has a copy. Samples leave their segments (sparse.hpp) on the
// tape; after a chunk of samples, buckets of rows are summed up in parallel, each sample after sample.

// pergrad/host/chunk_segments.hpp - segments that a chunk's samples leave on the tape, and their weights
//
// The sums over tables are formed when the chunk is complete, so what a sample adds to them must be kept until then.

// pergrad/host/passes.hpp - forward and backward through a worker's workspace, node by node

// pergrad/host/affine.hpp - an affine layer and its adjoint as products over the samples of a tile
//
// Both read overlapping strided views of stored images, so no patch is copied: an output's view of the input, and, for
// the adjoint, an input's view of delta, one product for each phase of the stride.

namespace pergrad::inline v0_1::on_host {

/// Values of the samples of a tile, from the first one on.
template <class Value>
struct images {
  const layout& of;
  Value* first;
  index sample;
};

/// out (=|+=) left * right + bias, without a bias if it is null.
template <class Scalar>
inline void write_product(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
                          const std::type_identity_t<Scalar>* bias, bool accumulate) {
  if (accumulate) {
    product(shape, left, right, out, epilogue::add{});
  } else if (bias != nullptr) {
    product(shape, left, right, out, epilogue::store_bias<Scalar>{bias});
  } else {
    product(shape, left, right, out, epilogue::store{});
  }
}

/// y (=|+=) view(x) W + b: rows are samples and positions, the reduction runs over the view.
template <class Scalar>
void through_windows(const node_row& row, const Scalar* panels, index samples, images<const Scalar> in,
                     images<Scalar> out, const std::type_identity_t<Scalar>* bias, bool accumulate) {
  const affine_map& map = row.map;
  const layout& x = in.of;
  const layout& y = out.of;
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  const index channels = number(map.in_channels / map.groups);
  const index outputs = number(map.group_outputs());
  const index width = number(map.kernel.width);
  const index area = number(map.kernel.height) * width;
  const product_shape shape =
      coalesce({{{number(map.out_size.depth), number(map.stride.depth) * x.plane, y.plane},
                 {number(map.out_size.height), number(map.stride.height) * x.row, y.row},
                 {number(map.out_size.width), number(map.stride.width) * x.column, y.column}},
                {{number(map.kernel.height), number(map.dilation.height) * x.row, width * channels * outputs},
                 {width, number(map.dilation.width) * x.column, channels * outputs},
                 {channels, 1, outputs}},
                outputs,
                {samples, in.sample, out.sample},
                {number(map.kernel.depth), number(map.dilation.depth) * x.plane, area * channels * outputs}});
  const Scalar* from = in.first + x.start - number(map.padding.depth) * x.plane - number(map.padding.height) * x.row -
                       number(map.padding.width) * x.column;
  Scalar* to = out.first + y.start;
  const Scalar* panel = panels + row.forward_panel;
  const index panel_step = number(map.view_width()) * outputs;
  for (index g = 0; g < number(map.groups); ++g) {
    write_product(shape, from + g * channels, panel + g * panel_step, to + g * outputs,
                  bias == nullptr ? nullptr : bias + g * outputs, accumulate);
  }
}

/// x (=|+=) sum over the windows of view^T(W^T delta) + b, the adjoint of `through_windows`: one product a stride
/// phase, over delta read through its halo.
template <class Scalar>
void through_adjoint(const node_row& row, const Scalar* panels, index samples, images<const Scalar> in,
                     images<Scalar> out, const std::type_identity_t<Scalar>* bias, bool accumulate) {
  const affine_map& map = row.map;
  const layout& dx = out.of;
  const layout& dy = in.of;
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  const index channels = number(map.in_channels / map.groups);
  const index outputs = number(map.group_outputs());
  const Scalar* delta = in.first + dy.start;
  const Scalar* panel = panels + row.backward_panel;
  if (row.whole_view) {
    const index row_values = dx.line_pixels() * dx.values.channels;
    for (index r = 0; r < dx.lines(); ++r) {
      const product_shape shape =
          coalesce({{{}, {}, {samples, in.sample, out.sample}}, {{}, {}, {outputs, 1, dx.values.size()}}, row_values});
      write_product(shape, delta, panel + r * row_values, out.first + dx.line_start(r), nullptr, accumulate);
    }
    return;
  }
  for (index g = 0; g < number(map.groups); ++g) {
    const Scalar* group_bias = bias == nullptr ? nullptr : bias + g * channels;
    for_each_phase(map, [&](const phase& planes, const phase& rows, const phase& columns) {
      const index taps = planes.taps * rows.taps * columns.taps;
      const Scalar* here = panel;
      panel += taps * outputs * channels;
      if (planes.inputs == 0 || rows.inputs == 0 || columns.inputs == 0) return;
      Scalar* first = out.first + dx.start + planes.first_input * dx.plane + rows.first_input * dx.row +
                      columns.first_input * dx.column + g * channels;
      // Where taps are missing no window reaches these inputs: their sums are empty.
      const product_shape shape =
          coalesce({{{planes.inputs, dy.plane, number(map.stride.depth) * dx.plane},
                     {rows.inputs, dy.row, number(map.stride.height) * dx.row},
                     {columns.inputs, dy.column, number(map.stride.width) * dx.column}},
                    {{rows.taps, rows.delta_step * dy.row, columns.taps * outputs * channels},
                     {columns.taps, columns.delta_step * dy.column, outputs * channels},
                     {outputs, 1, channels}},
                    channels,
                    {samples, in.sample, out.sample},
                    {planes.taps, planes.delta_step * dy.plane, rows.taps * columns.taps * outputs * channels}});
      const auto first_tap = [](const phase& axis) { return axis.first_delta - (axis.taps - 1) * axis.delta_step; };
      const Scalar* from = delta;
      if (taps > 0) {
        from += first_tap(planes) * dy.plane + first_tap(rows) * dy.row + first_tap(columns) * dy.column + g * outputs;
      }
      write_product(shape, from, here, first, group_bias, accumulate);
    });
  }
}

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/kernels.hpp - copies between layouts, elementwise layers and pools over the values of one sample

// pergrad/host/transpose.hpp - matrices turned around, a square of vectors at a time
//
// A square of as many vectors as each has lanes is turned in registers: for s = 1, 2, 4, ... rows i and i + s (bit s of
// i is 0) exchange the lanes of the upper one whose bit s is 1 with those of the lower one whose bit s is 0 (Eklundh
// 1972, "A fast computer method for matrix transposing"). Everything is read and written in whole vectors, however far
// apart the rows lie; element by element, rows that are a multiple of a large power of two apart would push each other
// out of the cache.

namespace pergrad::inline v0_1::on_host {

namespace transpose_detail {

/// The lanes of `a` whose bit `Step` is 0, and in the place of the others those of `b` from `Step` lanes below.
template <std::size_t Step, class Vector, std::size_t... Lane>
[[nodiscard]] inline Vector lower(Vector a, Vector b, std::index_sequence<Lane...> /*lanes*/) noexcept {
  return __builtin_shufflevector(a, b, ((Lane & Step) != 0 ? sizeof...(Lane) + Lane - Step : Lane)...);
}
/// The lanes of `b` whose bit `Step` is 1, and in the place of the others those of `a` from `Step` lanes above.
template <std::size_t Step, class Vector, std::size_t... Lane>
[[nodiscard]] inline Vector upper(Vector a, Vector b, std::index_sequence<Lane...> /*lanes*/) noexcept {
  return __builtin_shufflevector(a, b, ((Lane & Step) != 0 ? sizeof...(Lane) + Lane : Lane + Step)...);
}

template <class Scalar>
inline constexpr std::size_t side = vector_lanes<Scalar>;

template <class Scalar, std::size_t Step = 1>
inline void exchange(std::array<vector<Scalar>, side<Scalar>>& rows) noexcept {
  constexpr auto lanes = std::make_index_sequence<side<Scalar>>{};
  for (std::size_t i = 0; i < side<Scalar>; ++i) {
    if ((i & Step) != 0) continue;
    const vector<Scalar> a = rows[i];
    const vector<Scalar> b = rows[i + Step];
    rows[i] = lower<Step>(a, b, lanes);
    rows[i + Step] = upper<Step>(a, b, lanes);
  }
  if constexpr (2 * Step < side<Scalar>) exchange<Scalar, 2 * Step>(rows);
}

/// Calls put(to, row) for the rows of the transpose of a square.
template <class Scalar, class Put>
inline void square(const Scalar* from, index from_step, Scalar* to, index to_step, const Put& put) noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written whole by the loads that follow
  std::array<vector<Scalar>, side<Scalar>> rows;
  for (std::size_t i = 0; i < side<Scalar>; ++i) rows[i] = load(from + static_cast<index>(i) * from_step);
  exchange<Scalar>(rows);
  for (std::size_t i = 0; i < side<Scalar>; ++i) put(to + static_cast<index>(i) * to_step, rows[i]);
}

template <class Scalar, class PutVector, class PutOne>
inline void transpose(const Scalar* from, index from_step, index rows, index columns, Scalar* to, index to_step,
                      const PutVector& put, const PutOne& put_one) noexcept {
  constexpr auto together = static_cast<index>(side<Scalar>);
  const index whole_rows = rows / together * together;
  const index whole_columns = columns / together * together;
  for (index r = 0; r < whole_rows; r += together) {
    for (index c = 0; c < whole_columns; c += together) {
      square(from + r * from_step + c, from_step, to + c * to_step + r, to_step, put);
    }
    for (index c = whole_columns; c < columns; ++c) {
      for (index k = r; k < r + together; ++k) put_one(to + c * to_step + k, from[k * from_step + c]);
    }
  }
  for (index c = 0; c < columns; ++c) {
    for (index k = whole_rows; k < rows; ++k) put_one(to + c * to_step + k, from[k * from_step + c]);
  }
}

}  // namespace transpose_detail

/// to[c * to_step + r] = from[r * from_step + c] for r < rows and c < columns. The ranges must not overlap.
template <class Scalar>
inline void transpose(const Scalar* from, index from_step, index rows, index columns, Scalar* to,
                      index to_step) noexcept {
  transpose_detail::transpose(
      from, from_step, rows, columns, to, to_step, [](Scalar* out, vector<Scalar> row) { store(out, row); },
      [](Scalar* out, Scalar value) { *out = value; });
}
/// The same with += in the place of =.
template <class Scalar>
inline void transpose_add(const Scalar* from, index from_step, index rows, index columns, Scalar* to,
                          index to_step) noexcept {
  transpose_detail::transpose(
      from, from_step, rows, columns, to, to_step, [](Scalar* out, vector<Scalar> row) { store(out, load(out) + row); },
      [](Scalar* out, Scalar value) { *out += value; });
}

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// to[i * to_step] (=|+=) from[i * from_step]
template <class Scalar>
inline void copy_strided(const Scalar* from, index from_step, Scalar* to, index to_step, index count, bool accumulate) {
  if (from_step == 1 && to_step == 1) {
    if (accumulate) {
      add_to(to, from, count);
    } else {
      std::copy_n(from, count, to);
    }
  } else if (accumulate) {
    for (index i = 0; i < count; ++i) to[i * to_step] += from[i * from_step];
  } else {
    for (index i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
  }
}
/// Between an image whose values PyTorch numbers channels first, and values in that order without gaps: a
/// transposition, in blocks of a few pixels with all their channels. Calls copy(element of the image, element of the
/// others, pixels).
template <class Function>
inline void transpose_blocks(const layout& image, index plain_start, Function&& copy) {
  const index line_pixels = image.line_pixels();
  for (index number = 0; number < image.lines(); ++number) {
    const index first = image.line_start(number);
    for (index pixel = 0; pixel < line_pixels; pixel += line) {
      const index together = std::min(line, line_pixels - pixel);
      const index here = first + pixel * image.column;
      const index there = plain_start + number * line_pixels + pixel;
      copy(here, there, together);
    }
  }
}
/// Copies or adds the values of one layout into another, whatever their halos and orders.
template <class Scalar>
inline void transfer(const layout& from, const Scalar* values, const layout& to, Scalar* out, bool accumulate) {
  const auto turn = accumulate ? transpose_add<Scalar> : transpose<Scalar>;
  if (from.values.agrees_with(to.values)) {
    for_each_stretch(from, to, [&](index source, index target, index count) {
      copy_strided(values + source, 1, out + target, 1, count, accumulate);
    });
  } else if (from.values.plain() && from.dense() && !to.values.plain()) {
    transpose_blocks(to, from.start, [&](index target, index source, index count) {
      turn(values + source, to.values.pixels(), to.values.channels, count, out + target, to.column);
    });
  } else if (to.values.plain() && to.dense() && !from.values.plain()) {
    transpose_blocks(from, to.start, [&](index source, index target, index count) {
      turn(values + source, from.column, count, from.values.channels, out + target, from.values.pixels());
    });
  } else {
    run_cursor source{from};
    run_cursor target{to};
    for (index left = from.values.size(); left > 0;) {
      const index count = std::min(source.left(), target.left());
      copy_strided(values + source.at(), source.step(), out + target.at(), target.step(), count, accumulate);
      left -= count;
      source.advance(count);
      target.advance(count);
    }
  }
}
template <class Scalar>
inline void fill_zero(const layout& to, Scalar* out) {
  for_each_stretch(to, to, [&](index target, index, index count) { std::fill_n(out + target, count, Scalar{0}); });
}

/// An elementwise layer over the values of one sample.
template <class Layer, class Scalar>
struct elementwise_kernel {
  static constexpr bool on_vectors = requires { requires Layer::on_vectors; };

  static void forward(const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y) {
    for_each_stretch(x_layout, y_layout, [&](index source, index target, index count) {
      if constexpr (on_vectors) {
        for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
          lanes.store(y + target + i, Layer::value(vector<Scalar>{lanes.load(x + source + i)}));
        });
      } else {
        for (index i = 0; i < count; ++i) y[target + i] = Layer::value(x[source + i]);
      }
    });
  }

  /// dx (=|+=) dy f'(x, y). Values and gradients share their arrangement, so they are walked in step.
  static void backward(const layout& x_layout, const Scalar* x, const layout& y_layout, const Scalar* y,
                       const layout& dy_layout, const Scalar* dy, const layout& dx_layout, Scalar* dx,
                       bool accumulate) {
    const bool dense = x_layout.dense() && y_layout.dense() && dy_layout.dense() && dx_layout.dense();
    const arrangement& values = x_layout.values;
    const index rows_count = dense ? 1 : values.depth * values.height;
    const index count = dense ? values.size() : values.width * values.channels;
    index plane = 0;
    index row = 0;
    for (index r = 0; r < rows_count; ++r) {
      const Scalar* x_row = x + x_layout.start + plane * x_layout.plane + row * x_layout.row;
      const Scalar* y_row = y + y_layout.start + plane * y_layout.plane + row * y_layout.row;
      const Scalar* dy_row = dy + dy_layout.start + plane * dy_layout.plane + row * dy_layout.row;
      Scalar* dx_row = dx + dx_layout.start + plane * dx_layout.plane + row * dx_layout.row;
      if (++row == values.height) {
        row = 0;
        ++plane;
      }
      if constexpr (on_vectors) {
        for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
          const vector<Scalar> slope =
              Layer::derivative(vector<Scalar>{lanes.load(x_row + i)}, vector<Scalar>{lanes.load(y_row + i)});
          const vector<Scalar> part = lanes.load(dy_row + i) * slope;
          lanes.store(dx_row + i, accumulate ? lanes.load(dx_row + i) + part : part);
        });
      } else {
        for (index i = 0; i < count; ++i) {
          const Scalar part = dy_row[i] * Layer::derivative(x_row[i], y_row[i]);
          dx_row[i] = accumulate ? dx_row[i] + part : part;
        }
      }
    }
  }
};

/// What a window covers along each axis.
struct window_box {
  window_range planes{0, 1};
  window_range rows;
  window_range columns;
};

/// A pooling layer over one sample: its window rule applied to whole vectors of channels.
template <class Layer, class Scalar>
struct pooling_kernel {
  static void forward(shape in, const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y) {
    for_each_window(in, y_layout, y_layout, [&](const window_box& box, index output, index, Scalar divisor) {
      for_each_vector<Scalar>(x_layout.values.channels, [&](index c, const auto& lanes) {
        vector<Scalar> sum = Layer::template start<vector<Scalar>>();
        for_each_tap(x_layout, x_layout, box,
                     [&](index tap, index) { sum = Layer::combine(sum, lanes.load(x + tap + c)); });
        lanes.store(y + output + c, Layer::finish(sum, divisor));
      });
    });
  }

  /// Adds every input's share of dy to dx.
  static void backward(shape in, const layout& x_layout, const Scalar* x, const layout& y_layout, const Scalar* y,
                       const layout& dy_layout, const Scalar* dy, const layout& dx_layout, Scalar* dx) {
    for_each_window(in, y_layout, dy_layout, [&](const window_box& box, index output, index backprop, Scalar divisor) {
      for_each_vector<Scalar>(x_layout.values.channels, [&](index c, const auto& lanes) {
        const vector<Scalar> best = lanes.load(y + output + c);
        vector<Scalar> remaining = lanes.load(dy + backprop + c);
        for_each_tap(x_layout, dx_layout, box, [&](index tap, index target) {
          const vector<Scalar> part = Layer::share(vector<Scalar>{lanes.load(x + tap + c)}, best, remaining, divisor);
          lanes.store(dx + target + c, lanes.load(dx + target + c) + part);
        });
      });
    });
  }

 private:
  static constexpr bool has_planes = requires(shape in) { Layer::planes(in, std::size_t{0}); };

  template <class Function>
  static void for_each_window(shape in, const layout& y, const layout& dy, Function&& f) {
    const auto number = [](index value) { return static_cast<std::size_t>(value); };
    for (index d = 0; d < (has_planes ? y.values.depth : 1); ++d) {
      window_box box;
      if constexpr (has_planes) box.planes = Layer::planes(in, number(d));
      for (index i = 0; i < y.values.height; ++i) {
        box.rows = Layer::rows(in, number(i));
        for (index j = 0; j < y.values.width; ++j) {
          box.columns = Layer::columns(in, number(j));
          std::size_t divisor = 1;
          if constexpr (has_planes) {
            divisor = Layer::divisor(in, number(d), number(i), number(j));
          } else {
            divisor = Layer::divisor(in, number(i), number(j));
          }
          f(box, y.start + d * y.plane + i * y.row + j * y.column, dy.start + d * dy.plane + i * dy.row + j * dy.column,
            static_cast<Scalar>(divisor));
        }
      }
    }
  }
  template <class Function>
  static void for_each_tap(const layout& x, const layout& dx, const window_box& box, Function&& f) {
    const auto in_plane = [&](index start, index dx_start) {
      for (auto r = static_cast<index>(box.rows.begin); r < static_cast<index>(box.rows.end); ++r) {
        for (auto s = static_cast<index>(box.columns.begin); s < static_cast<index>(box.columns.end); ++s) {
          f(start + r * x.row + s * x.column, dx_start + r * dx.row + s * dx.column);
        }
      }
    };
    if constexpr (has_planes) {
      for (auto d = static_cast<index>(box.planes.begin); d < static_cast<index>(box.planes.end); ++d) {
        in_plane(x.start + d * x.plane, dx.start + d * dx.plane);
      }
    } else {
      in_plane(x.start, dx.start);
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/tile_values.hpp - the values of a tile in a worker's workspace: how they come in, lie there and go out

// pergrad/host/request.hpp - what one evaluation asks of the engine, free of the expressions' types
//
// Expressions differ from program to program, the engine does not: it is compiled once a network and is told by this
// table which sums to form, what to do with each sample's facts, and where rows go.

// pergrad/host/tile_view.hpp - what a tiled layer sees: the samples of a tile, and products over all of them
//
// A tiled layer's forward and backward are written against this interface, as templates: they name no executor.
//   values     x(b), x2(b), y(b), dy(b), dx(b), dx2(b), saved(b), scratch(b): one sample's, in PyTorch's order; samples
//              lie x.step (y.step, ...) elements apart, so a product may run over samples as over any other axis
//   weights    parameters(), in PyTorch's order; transposed(k), the k-th of the layer's matrices as [columns][rows]
//   products   multiply, multiply_add, multiply_bias: rows of a strided view times a matrix with contiguous columns
//   the rest   ids(b), length(b), random bits

// pergrad/privacy/chacha20.hpp - the ChaCha20 block function of RFC 8439, one block or many at once.
//
// State of RFC 8439 section 2.3, sixteen 32-bit words:
//     "expa" "nd 3" "2-by" "te k" | key (8 words) | block counter | nonce (3 words)
// ten double rounds of quarter rounds on columns and diagonals, then the input state is added. Block n depends on
// (key, nonce, n) alone, hence any thread, vector width or machine can make its own part of one stream. The counter has
// 32 bits and never wraps here: asking beyond block 2^32 - 1 throws.

#include <bit>

// pergrad/privacy/lanes.hpp - a few machine vectors of 32-bit words with exactly rounded fma and square root.
//
// Built on the vector extension of g++ and clang. Everything that depends on rounding is one IEEE-754 operation: fma
// and sqrt are correctly rounded, so one lane or sixteen, with or without FMA hardware, any compiler: the same bits. A
// sum with a product is never written as `a * b + c`, which a compiler may or may not contract.

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace pergrad::inline v0_1::detail {

/// Number of 32-bit lanes of this target's widest vectors.
#if defined(__AVX512F__)
inline constexpr int native_lanes = 16;
#elif defined(__AVX2__)
inline constexpr int native_lanes = 8;
#else
inline constexpr int native_lanes = 4;
#endif

template <int Lanes>
struct lanes {
  static_assert(Lanes == 4 || Lanes == 8 || Lanes == 16);
  using f32 [[gnu::vector_size(4 * Lanes)]] = float;
  using i32 [[gnu::vector_size(4 * Lanes)]] = std::int32_t;
  using u32 [[gnu::vector_size(4 * Lanes)]] = std::uint32_t;
};

template <>
struct lanes<1> {
  using f32 = float;
  using i32 = std::int32_t;
  using u32 = std::uint32_t;
};

template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::u32 splat_u32(std::uint32_t x) noexcept {
  if constexpr (Lanes == 1) {
    return x;
  } else {
    return x - typename lanes<Lanes>::u32{};
  }
}

template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::f32 splat_f32(float x) noexcept {
  if constexpr (Lanes == 1) {
    return x;
  } else {
    return x - typename lanes<Lanes>::f32{};  // x - 0 is x, also for -0
  }
}

/// 0, 1, ..., Lanes - 1.
template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::u32 lane_numbers() noexcept {
  if constexpr (Lanes == 1) {
    return 0U;
  } else {
    typename lanes<Lanes>::u32 numbers{};
    for (int i = 0; i < Lanes; ++i) numbers[i] = static_cast<std::uint32_t>(i);
    return numbers;
  }
}

/// a * b + c, rounded once.
template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::f32 fused(typename lanes<Lanes>::f32 a,
                                                               typename lanes<Lanes>::f32 b,
                                                               typename lanes<Lanes>::f32 c) noexcept {
  if constexpr (Lanes == 1) {
    return __builtin_fmaf(a, b, c);
  } else {
#if defined(__AVX512F__)
    if constexpr (Lanes == 16) return _mm512_fmadd_ps(a, b, c);
#endif
#if defined(__FMA__)
    if constexpr (Lanes == 8) return _mm256_fmadd_ps(a, b, c);
    if constexpr (Lanes == 4) return _mm_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    if constexpr (Lanes == 4) return vfmaq_f32(c, a, b);
#endif
    typename lanes<Lanes>::f32 result{};
    for (int i = 0; i < Lanes; ++i) result[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return result;
  }
}

/// Correctly rounded square root of x >= 0.
template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::f32 square_root(typename lanes<Lanes>::f32 x) noexcept {
  if constexpr (Lanes == 1) {
    return __builtin_sqrtf(x);
  } else {
#if defined(__AVX512F__)
    if constexpr (Lanes == 16) return _mm512_maskz_sqrt_ps(0xffff, x);  // plain form warns in g++ 12
#endif
#if defined(__AVX__)
    if constexpr (Lanes == 8) return _mm256_sqrt_ps(x);
#endif
#if defined(__SSE2__)
    if constexpr (Lanes == 4) return _mm_sqrt_ps(x);
#elif defined(__aarch64__)
    if constexpr (Lanes == 4) return vsqrtq_f32(x);
#endif
    typename lanes<Lanes>::f32 result{};
    for (int i = 0; i < Lanes; ++i) result[i] = __builtin_sqrtf(x[i]);
    return result;
  }
}

template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::f32 to_float(typename lanes<Lanes>::i32 x) noexcept {
  if constexpr (Lanes == 1) {
    return static_cast<float>(x);
  } else {
    return __builtin_convertvector(x, typename lanes<Lanes>::f32);
  }
}

/// Number of leading zero bits of x != 0.
template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::u32 leading_zeros(typename lanes<Lanes>::u32 x) noexcept {
  if constexpr (Lanes == 1) {
    return static_cast<std::uint32_t>(std::countl_zero(x));
  } else {
    using u32 = typename lanes<Lanes>::u32;
#if defined(__AVX512CD__)
    if constexpr (Lanes == 16) return std::bit_cast<u32>(_mm512_lzcnt_epi32(std::bit_cast<__m512i>(x)));
#if defined(__AVX512VL__)
    if constexpr (Lanes == 8) return std::bit_cast<u32>(_mm256_lzcnt_epi32(std::bit_cast<__m256i>(x)));
    if constexpr (Lanes == 4) return std::bit_cast<u32>(_mm_lzcnt_epi32(std::bit_cast<__m128i>(x)));
#endif
#elif defined(__aarch64__)
    if constexpr (Lanes == 4) return std::bit_cast<u32>(vclzq_u32(std::bit_cast<uint32x4_t>(x)));
#endif
    // The exponent of the converted integer is the place of its top bit; the bit below the top one is cleared first, so
    // that rounding cannot carry into the exponent, and bit 31, the sign of a signed conversion, is handled apart.
    using i32 = typename lanes<Lanes>::i32;
    const u32 no_carry = x & ~(x >> 1U) & 0x7fff'ffffU;
    const u32 exponent = std::bit_cast<u32>(to_float<Lanes>(std::bit_cast<i32>(no_carry))) >> 23U;
    return std::bit_cast<i32>(x) < 0 ? u32{} : 158U - exponent;
  }
}

}  // namespace pergrad::inline v0_1::detail
// pergrad/privacy/purpose.hpp - the list of all uses of keyed randomness, so that no two ever share a ChaCha20 nonce.
//
// A nonce of RFC 8439 has 96 bits: here (purpose, low half of step, high half of step). The same key may serve every
// purpose and step because no pair (nonce, block counter) is drawn for two things.

namespace pergrad::inline v0_1 {

/// What a keystream is drawn for. Values are part of the reproducible stream: append only, never renumber.
enum class random_purpose : std::uint32_t {
  gradient_noise = 1,   ///< Gaussian noise added to a clipped sum
  record_sampling = 2,  ///< Poisson sampling of records
  initialisation = 3,   ///< initial parameters; the step counts parameter blocks
  dropout = 4,          ///< randomness inside layers
  key_derivation = 5,   ///< a key from a small seed
  auxiliary_noise = 6,  ///< noise of other private releases, such as clip counts
  shuffling = 7,        ///< order of records in non-private runs
  augmentation = 8,     ///< random transforms of inputs
};

/// Nonce of RFC 8439 as three little-endian words.
struct chacha_nonce {
  std::array<std::uint32_t, 3> words{};

  friend constexpr bool operator==(const chacha_nonce&, const chacha_nonce&) noexcept = default;
};

/// The one nonce that belongs to `purpose` and `step`.
[[nodiscard]] constexpr chacha_nonce make_nonce(random_purpose purpose, std::uint64_t step) noexcept {
  return {{static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(step & 0xffff'ffffU),
           static_cast<std::uint32_t>(step >> 32U)}};
}

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// A 256-bit key as eight words (little endian, as RFC 8439 reads them).
struct chacha_key {
  std::array<std::uint32_t, 8> words{};

  friend constexpr bool operator==(const chacha_key&, const chacha_key&) noexcept = default;

  /// The key whose 32 bytes are `bytes`, in the order of RFC 8439.
  [[nodiscard]] static constexpr chacha_key from_bytes(std::span<const std::uint8_t, 32> bytes) noexcept {
    chacha_key key;
    for (std::size_t i = 0; i < 32; ++i) {
      key.words[i / 4] |= static_cast<std::uint32_t>(bytes[i]) << (8U * static_cast<unsigned>(i % 4));
    }
    return key;
  }
};

using chacha_block = std::array<std::uint32_t, 16>;

/// Blocks that one nonce can give: the block counter has 32 bits.
inline constexpr std::uint64_t chacha_blocks_per_nonce = std::uint64_t{1} << 32U;

namespace detail {

inline constexpr std::array<std::uint32_t, 4> chacha_constants{0x61707865U, 0x3320646eU, 0x79622d32U, 0x6b206574U};

/// Word is std::uint32_t or a vector of them: one block per lane.
template <class Word>
[[gnu::always_inline]] constexpr void chacha_quarter_round(Word& a, Word& b, Word& c, Word& d) noexcept {
  a += b;
  d ^= a;
  d = (d << 16) | (d >> 16);
  c += d;
  b ^= c;
  b = (b << 12) | (b >> 20);
  a += b;
  d ^= a;
  d = (d << 8) | (d >> 24);
  c += d;
  b ^= c;
  b = (b << 7) | (b >> 25);
}

template <class Word>
[[gnu::always_inline]] constexpr void chacha_rounds(Word (&x)[16]) noexcept {
  for (int double_round = 0; double_round < 10; ++double_round) {
    chacha_quarter_round(x[0], x[4], x[8], x[12]);
    chacha_quarter_round(x[1], x[5], x[9], x[13]);
    chacha_quarter_round(x[2], x[6], x[10], x[14]);
    chacha_quarter_round(x[3], x[7], x[11], x[15]);
    chacha_quarter_round(x[0], x[5], x[10], x[15]);
    chacha_quarter_round(x[1], x[6], x[11], x[12]);
    chacha_quarter_round(x[2], x[7], x[8], x[13]);
    chacha_quarter_round(x[3], x[4], x[9], x[14]);
  }
}

/// Word w of block counter[lane] in lane `lane` of out[w].
template <int Lanes>
[[gnu::always_inline]] inline void chacha_lanes(const chacha_key& key, const chacha_nonce& nonce,
                                                const typename lanes<Lanes>::u32& counter,
                                                typename lanes<Lanes>::u32 (&out)[16]) noexcept {
  for (std::size_t i = 0; i < 4; ++i) out[i] = splat_u32<Lanes>(chacha_constants[i]);
  for (std::size_t i = 0; i < 8; ++i) out[4 + i] = splat_u32<Lanes>(key.words[i]);
  out[12] = counter;
  for (std::size_t i = 0; i < 3; ++i) out[13 + i] = splat_u32<Lanes>(nonce.words[i]);
  chacha_rounds(out);
  for (std::size_t i = 0; i < 4; ++i) out[i] += chacha_constants[i];
  for (std::size_t i = 0; i < 8; ++i) out[4 + i] += key.words[i];
  out[12] += counter;
  for (std::size_t i = 0; i < 3; ++i) out[13 + i] += nonce.words[i];
}

/// Overwrites memory in a way that the optimizer has to keep.
inline void wipe(void* memory, std::size_t bytes) noexcept {
  std::memset(memory, 0, bytes);
  __asm__ __volatile__("" : : "r"(memory) : "memory");
}

inline void require_blocks(const char* what, std::uint64_t first, std::uint64_t count) {
  if (first > chacha_blocks_per_nonce || count > chacha_blocks_per_nonce - first) {
    throw std::out_of_range(std::string{"pergrad: "} + what + ": blocks [" + std::to_string(first) + ", +" +
                            std::to_string(count) + ") exceed the 2^32 blocks of one ChaCha20 nonce");
  }
}

}  // namespace detail

/// One block of keystream, RFC 8439 section 2.3.
[[nodiscard]] constexpr chacha_block chacha20_block(const chacha_key& key, const chacha_nonce& nonce,
                                                    std::uint32_t counter) noexcept {
  std::uint32_t x[16]{};
  for (std::size_t i = 0; i < 4; ++i) x[i] = detail::chacha_constants[i];
  for (std::size_t i = 0; i < 8; ++i) x[4 + i] = key.words[i];
  x[12] = counter;
  for (std::size_t i = 0; i < 3; ++i) x[13 + i] = nonce.words[i];
  chacha_block block{};
  for (std::size_t i = 0; i < 16; ++i) block[i] = x[i];
  detail::chacha_rounds(x);
  for (std::size_t i = 0; i < 16; ++i) block[i] += x[i];
  return block;
}

/// Keystream of blocks first_block, first_block + 1, ... into `words`, in the order of RFC 8439 (the last block may be
/// cut). `Lanes` blocks are made at a time; the words do not depend on it. Throws std::out_of_range when a block number
/// would exceed 2^32 - 1.
template <int Lanes = detail::native_lanes>
void chacha20_keystream(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t first_block,
                        std::span<std::uint32_t> words) {
  using u32 = typename detail::lanes<Lanes>::u32;
  const std::size_t blocks = words.size() / 16 + (words.size() % 16 != 0 ? 1 : 0);
  detail::require_blocks("chacha20_keystream", first_block, blocks);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written whole before it is read
  std::array<std::uint32_t, std::size_t{16} * Lanes> tile;
  for (std::size_t done = 0; done < blocks; done += Lanes) {
    u32 state[16];
    const auto counter = static_cast<std::uint32_t>(first_block + done);
    detail::chacha_lanes<Lanes>(key, nonce, detail::lane_numbers<Lanes>() + counter, state);
    std::memcpy(tile.data(), state, sizeof state);
    const std::size_t count = std::min<std::size_t>(words.size() - 16 * done, tile.size());
    for (std::size_t i = 0; i < count; ++i) words[16 * done + i] = tile[(i % 16) * Lanes + i / 16];
  }
  detail::wipe(tile.data(), sizeof tile);
}

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// Where a run's randomness inside layers comes from: a key and a logical step. Without a key, layers behave as in
/// evaluation: dropout does nothing.
struct layer_randomness {
  const chacha_key* key = nullptr;
  std::uint64_t step = 0;
  friend bool operator==(const layer_randomness&, const layer_randomness&) noexcept = default;
};

namespace on_host {

/// One array a sample, `step` elements from one sample to the next.
template <class Value>
struct sample_arrays {
  Value* first = nullptr;
  index step = 0;
  [[nodiscard]] Value* operator()(index sample) const noexcept { return first + sample * step; }
};

/// Samples of a tile as one layer sees them. Every function of it may be called for samples 0 .. samples - 1 only.
template <class Scalar>
struct tile_view {
  using scalar = Scalar;

  index samples = 0;
  shape in;
  shape in2;
  shape out;
  sample_arrays<const Scalar> x;
  sample_arrays<const Scalar> x2;
  sample_arrays<Scalar> y;
  sample_arrays<const Scalar> dy;  ///< backward only
  sample_arrays<Scalar> dx;        ///< backward only; to be written whole, if wants_dx
  sample_arrays<Scalar> dx2;
  sample_arrays<Scalar> saved;    ///< lives from forward to the factors
  sample_arrays<Scalar> scratch;  ///< lives for one call
  bool wants_factors = true;      ///< false for a frozen layer: what only its factors would read need not be computed
  bool wants_dx = false;
  bool wants_dx2 = false;
  /// Of layers with `stored_order`: where pixels lie.
  layout x_layout;
  layout y_layout;
  layout dx_layout;
  layout dy_layout;

  /// All parameters of the layer, in PyTorch's order.
  const Scalar* parameters = nullptr;
  const Scalar* panels = nullptr;
  const index* panel_offsets = nullptr;
  /// Matrix k of the layer's `matrices`, transposed: `[columns][rows]`.
  [[nodiscard]] const Scalar* transposed(std::size_t k) const noexcept { return panels + panel_offsets[k]; }

  const std::uint32_t* lengths = nullptr;
  const std::uint32_t* lengths2 = nullptr;
  /// Positions of the input that are there: its length if lengths vary, else all.
  [[nodiscard]] index length(index sample) const noexcept {
    return lengths == nullptr ? static_cast<index>(in.e0) : static_cast<index>(lengths[sample]);
  }
  [[nodiscard]] index length2(index sample) const noexcept {
    return lengths2 == nullptr ? static_cast<index>(in2.e0) : static_cast<index>(lengths2[sample]);
  }
  /// Do the samples of the input have lengths of their own?
  [[nodiscard]] bool lengths_vary() const noexcept { return lengths != nullptr; }

  /// Integer ids of a sample, if the input is ids.
  [[nodiscard]] const std::int32_t* ids(index sample) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(x(sample)));
  }

  layer_randomness randomness;
  const std::uint32_t* records = nullptr;
  std::uint32_t layer_number = 0;
  [[nodiscard]] bool is_random() const noexcept { return randomness.key != nullptr; }
  /// 32 random bits for each of the elements from `first` on, a multiple of 16: a function of (key, step, record,
  /// layer, element), so of nothing that an executor chooses. A sample's own key comes from its record; layer and
  /// element are nonce and counter under it.
  void random_bits(index sample, std::size_t first, std::span<std::uint32_t> bits) const noexcept {
    const chacha_block seed =
        chacha20_block(*randomness.key, make_nonce(random_purpose::dropout, randomness.step), records[sample]);
    chacha_key own;
    for (std::size_t i = 0; i < own.words.size(); ++i) own.words[i] = seed[i];
    const chacha_nonce nonce = make_nonce(random_purpose::dropout, layer_number);
    chacha20_keystream(own, nonce, first / 16, bits);
  }

  /// out = left times right, as `shape` says (product.hpp).
  static void multiply(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out) noexcept {
    product(coalesce(shape), left, right, out, epilogue::store{});
  }
  /// out += left times right.
  static void multiply_add(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out) noexcept {
    product(coalesce(shape), left, right, out, epilogue::add{});
  }
  /// out = left times right + bias, one bias a column.
  static void multiply_bias(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
                            const Scalar* bias) noexcept {
    product(coalesce(shape), left, right, out, epilogue::store_bias<Scalar>{bias});
  }
};

}  // namespace on_host
}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1::on_host {

/// What is known of one sample once its backward pass is done.
template <class Scalar>
struct sample_facts {
  std::size_t sample = 0;  ///< index in the batch
  double loss = 0;
  std::span<const Scalar> output;     ///< the network's output, PyTorch's order
  norm_part norm;                     ///< of the whole gradient
  std::span<const norm_part> layers;  ///< of each layer with parameters
  double projection = 0;              ///< <g_b, direction>
};

/// One weighted sum over the batch: sum_b w_b g_b, or sum_b w_b g_b².
template <class Scalar>
struct sum_request {
  bool unit = true;  ///< every weight is 1: nothing else is asked of the samples
  bool squares = false;
  bool per_layer = false;  ///< one weight a layer with parameters instead of one
  const void* weigher = nullptr;
  void (*weigh)(const void*, const sample_facts<Scalar>&, Scalar*) = nullptr;
  Scalar* out = nullptr;    ///< parameter_count values, PyTorch's order
  double scale = 1;         ///< public factor on the finished sum
  bool accumulate = false;  ///< add to `out` instead of overwriting it
};

/// One consumer of per-sample facts.
template <class Scalar>
struct observer {
  void* context = nullptr;
  void (*observe)(void*, const sample_facts<Scalar>&) = nullptr;
};

/// How the papers arrange the work; all give the same sums to rounding.
enum class strategy_kind {
  book_keeping,  ///< one forward and one backward; factors kept until the norms are known (Bu et al. 2022)
  naive,         ///< batches of one, each gradient formed, clipped and added (Abadi et al. 2016)
  multi,         ///< samples side by side, each through the whole network with shared parameters (Rochette et al. 2019)
  crb,           ///< layer by layer, every sample's gradient by per-example convolution (Rochette et al. 2019)
  ghost          ///< norms in a first backward, the weighted sum in a second (Lee & Kifer 2020; Li et al. 2021)
};

/// Where samples come from and what their loss is.
template <class Scalar>
struct sample_source {
  const void* context = nullptr;
  const void* (*input)(const void*, std::size_t sample) = nullptr;     ///< Scalar, or std::int32_t of ids
  std::uint32_t (*record)(const void*, std::size_t sample) = nullptr;  ///< number of the sample in its data set
  std::uint32_t (*length)(const void*, std::size_t sample) = nullptr;
  double (*loss)(const void*, std::size_t sample, std::span<const Scalar> y, std::span<Scalar> dy) = nullptr;
};

inline constexpr std::size_t most_sums = 8;
inline constexpr std::size_t most_observers = 16;

template <class Scalar>
struct run_request {
  std::array<sum_request<Scalar>, most_sums> sums{};
  std::size_t sum_count = 0;
  std::array<observer<Scalar>, most_observers> observers{};
  std::size_t observer_count = 0;
  bool backward = false;  ///< anything beyond losses and outputs
  bool norms = false;
  const Scalar* direction = nullptr;  ///< PyTorch's order; for projections
  Scalar* rows = nullptr;             ///< materialised gradients of samples first .. first + count - 1
  const sum_request<Scalar>* row_weights = nullptr;
  norm_method method = norm_method::automatic;
  std::uint64_t method_layers =
      ~std::uint64_t{0};  ///< entries of the unfolded list that `method` is for; all by default
  strategy_kind strategy = strategy_kind::book_keeping;
  layer_randomness randomness;
  std::size_t first = 0;  ///< samples of the batch to evaluate
  std::size_t count = 0;

  /// Does anything depend on a sample's gradient as such, its norm at least?
  [[nodiscard]] bool needs_facts() const {
    bool wanted = norms || rows != nullptr || direction != nullptr;
    for (std::size_t k = 0; k < sum_count; ++k) wanted = wanted || !sums[k].unit || sums[k].squares;
    return wanted;
  }
  /// Must the gradients themselves be formed, of all samples and blocks?
  [[nodiscard]] bool needs_every_gradient() const {
    bool every = rows != nullptr || direction != nullptr ||
                 (needs_facts() && (strategy == strategy_kind::naive || strategy == strategy_kind::multi ||
                                    strategy == strategy_kind::crb));
    for (std::size_t k = 0; k < sum_count; ++k) every = every || sums[k].squares;
    return every;
  }
  /// How the norm of a block is found.
  [[nodiscard]] norm_method method_of(const outer_leaf& leaf, bool every_gradient) const {
    if (every_gradient || leaf.delta_stride != 1 || leaf.use.shared()) return norm_method::instantiate;
    const bool chosen = method != norm_method::automatic && leaf.node < 64 && (method_layers >> leaf.node & 1U) != 0;
    const bool all = method != norm_method::automatic && method_layers == ~std::uint64_t{0};
    const norm_method wanted = chosen || all ? method : leaf.method;
    if (wanted == norm_method::product && leaf.positions() != 1) return leaf.method;
    if (wanted == norm_method::instantiate && strategy == strategy_kind::ghost) return norm_method::direct;
    return wanted;
  }
};

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Everything of a tile's samples that lies in one worker's workspace, slot by slot. Holds pointers only.
template <class Network>
class tile_values {
 public:
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  static constexpr const auto& table = program::table;
  static constexpr std::size_t size = program::size;

  tile_values(const Network& network, scalar* workspace)
      : parameters_{network.parameters().data()}, workspace_{workspace} {}

  void load(const sample_source<scalar>& source, std::size_t first, index samples) {
    const slot& to = table.slots[0];
    constexpr layout plain = plain_twin(table.slots[0].value_layout);
    for (index b = 0; b < samples; ++b) {
      const std::size_t sample = first + static_cast<std::size_t>(b);
      records_[static_cast<std::size_t>(b)] = source.record(source.context, sample);
      scalar* values = at(to.value, b);
      if constexpr (varies) {
        lengths_[0][static_cast<std::size_t>(b)] = source.length(source.context, sample);
        for (std::size_t i = 0; i < size; ++i) {
          lengths_[i + 1][static_cast<std::size_t>(b)] =
              length_functions[i](table.nodes[i].in_shape, lengths_[structure::inputs[i]][static_cast<std::size_t>(b)]);
        }
      }
      if constexpr (Network::input_shape.ids != 0) {
        const auto* from = static_cast<const std::int32_t*>(source.input(source.context, sample));
        auto* ids = static_cast<std::int32_t*>(static_cast<void*>(values));
        std::copy_n(from, Network::input_shape.size(), ids);
        if constexpr (varies)
          std::fill(ids + lengths_[0][static_cast<std::size_t>(b)], ids + Network::input_shape.size(), 0);
      } else {
        const auto* from = static_cast<const scalar*>(source.input(source.context, sample));
        transfer(plain, from, to.value_layout, values, false);
      }
    }
    trim(0, 0, samples, false);
  }

  /// Positions of slot `which` that are there, of a sample of the tile.
  [[nodiscard]] index length_of(std::size_t which, index b) const noexcept {
    return static_cast<index>(lengths_[varies ? which : 0][static_cast<std::size_t>(b)]);
  }

  /// The same where samples may all have all positions.
  [[nodiscard]] index positions_there(std::size_t which, index b) const noexcept {
    const shape of = structure::shapes[which];
    return of.varying_axis() == 0 ? static_cast<index>(of.e0) : length_of(which, b);
  }
  /// A sample's ids.
  [[nodiscard]] const std::int32_t* ids(place where, index b) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(at(where, b)));
  }

  [[nodiscard]] std::span<const scalar> output(index b) const {
    return {at(table.plain_output, b), static_cast<std::size_t>(output_size)};
  }
  [[nodiscard]] std::span<scalar> output_gradient(index b) {
    return {at(table.plain_output_gradient, b), static_cast<std::size_t>(output_size)};
  }
  void scatter_output_gradient(index b) {
    const slot& out = table.slots[size];
    if (!table.nodes[size - 1].backward) return;
    scatter_plain(out.gradient_layout, at(table.plain_output_gradient, b), at(out.gradient, b), false);
  }

  /// Sets everything that the node's factors read of a sample to zero, so that the sample's share of any sum is exactly
  /// zero.
  void erase(std::size_t node, index b) {
    const node_row& row = table.nodes[node];
    const slot& in = table.slots[row.in];
    const slot& out = table.slots[row.out];
    if (row.kind == node_kind::affine) {
      fill_zero(in.value_layout, at(in.value, b));
      fill_zero(out.gradient_layout, at(out.gradient, b));
      return;
    }
    const bool in_slots = row.kind == node_kind::tiled && !row.copies_in;
    if (in_slots) {
      fill_zero(in.value_layout, at(in.value, b));
      if (row.in2_shape.size() > 0) fill_zero(slot_of(row.in2).value_layout, at(slot_of(row.in2).value, b));
    } else {
      std::fill_n(at(row.plain_x, b), row.in_shape.size(), scalar{0});
      if (row.copies_in2) std::fill_n(at(row.plain_x2, b), row.in2_shape.size(), scalar{0});
    }
    if (row.kind == node_kind::tiled && !row.copies_out) {
      fill_zero(out.value_layout, at(out.value, b));
      fill_zero(out.gradient_layout, at(out.gradient, b));
    } else {
      std::fill_n(at(row.plain_y, b), row.out_shape.size(), scalar{0});
      std::fill_n(at(row.plain_dy, b), row.out_shape.size(), scalar{0});
    }
    std::fill_n(at(row.saved, b), row.saved_count, scalar{0});
  }

 protected:
  using structure = typename program::structure;
  static constexpr index output_size = static_cast<index>(Network::output_shape.size());
  /// Do samples have lengths of their own?
  static constexpr bool varies = Network::input_shape.varying_axis() != 0;

  /// Sets what lies beyond the samples' lengths to zero: values as soon as they are written, gradients before they are
  /// read.
  void trim([[maybe_unused]] std::size_t which, [[maybe_unused]] index begin, [[maybe_unused]] index end,
            [[maybe_unused]] bool gradient) const {
    if constexpr (varies) {
      const shape of = structure::shapes[which];
      if (of.varying_axis() == 0 || of.ids != 0) return;
      const slot& here = slot_of(which);
      const layout& values = gradient ? here.gradient_layout : here.value_layout;
      const bool by_pixel = values.values.channels_first == (of.varying_axis() == 2);
      for (index b = begin; b < end; ++b) {
        const index length = length_of(which, b);
        scalar* first = at(gradient ? here.gradient : here.value, b) + values.start;
        for (index i = by_pixel ? length : 0; i < values.values.height; ++i) {
          const index from = by_pixel ? 0 : length;
          std::fill(first + i * values.row + from, first + i * values.row + values.values.channels, scalar{0});
        }
      }
    }
  }

  [[nodiscard]] scalar* at(place where, index sample) const {
    return workspace_ + where.offset + sample * where.sample;
  }
  [[nodiscard]] static const slot& slot_of(std::size_t which) { return table.slots[which]; }

  static void gather_plain(const layout& from, const scalar* values, scalar* plain) {
    transfer(from, values, plain_twin(from), plain, false);
  }
  static void scatter_plain(const layout& to, const scalar* plain, scalar* values, bool accumulate) {
    transfer(plain_twin(to), plain, to, values, accumulate);
  }

  /// The node's own copy of its input, stored as the node reads it.
  void stage_values(const node_row& row, index begin, index end) const {
    const slot& from = slot_of(row.staged_from);
    const slot& to = slot_of(row.in);
    for (index b = begin; b < end; ++b) {
      transfer(from.value_layout, at(from.value, b), to.value_layout, at(to.value, b), false);
    }
  }
  void unstage_gradients(const node_row& row, index begin, index end) const {
    const slot& from = slot_of(row.in);
    const slot& to = slot_of(row.staged_from);
    for (index b = begin; b < end; ++b) {
      transfer(from.gradient_layout, at(from.gradient, b), to.gradient_layout, at(to.gradient, b),
               row.staged_accumulate);
    }
  }

  [[nodiscard]] static constexpr index in_size(const node_row& row) { return static_cast<index>(row.in_shape.size()); }
  [[nodiscard]] static constexpr index in2_size(const node_row& row) {
    return static_cast<index>(row.in2_shape.size());
  }
  [[nodiscard]] std::span<const scalar> weights(const node_row& row) const {
    return {parameters_ + row.parameters, static_cast<std::size_t>(row.weight_count)};
  }
  [[nodiscard]] std::span<const scalar> input_of(const node_row& row, index b) const {
    return {at(row.plain_x, b), row.in_shape.size()};
  }
  [[nodiscard]] std::span<scalar> output_of(const node_row& row, index b) const {
    return {at(row.plain_y, b), row.out_shape.size()};
  }
  [[nodiscard]] std::span<scalar> saved_of(const node_row& row, index b) const {
    return {at(row.saved, b), static_cast<std::size_t>(row.saved_count)};
  }

  [[nodiscard]] const scalar* bias_of(const node_row& row) const {
    return row.map.bias ? parameters_ + row.parameters + row.map.weight_count() : nullptr;
  }
  /// From sample `first` of the tile on: numbers in the data set, and lengths in a slot.
  [[nodiscard]] const std::uint32_t* records(index first) const { return records_.data() + first; }
  [[nodiscard]] const std::uint32_t* lengths(std::size_t which, index first) const {
    return lengths_[which].data() + first;
  }

 private:
  using length_function = std::uint32_t (*)(shape, std::uint32_t);
  template <class Layer>
  static std::uint32_t length_after(shape in, std::uint32_t length) {
    if constexpr (detail::has_output_length<Layer>) {
      return static_cast<std::uint32_t>(Layer::output_length(in, length));
    } else {
      return length;
    }
  }
  static constexpr auto length_functions = []<std::size_t... Index>(std::index_sequence<Index...>) {
    return std::array<length_function, size>{&tile_values::length_after<typename program::template layer_at<Index>>...};
  }
  (std::make_index_sequence<size>{});

  const scalar* parameters_;
  scalar* workspace_;
  std::array<std::uint32_t, 16> records_{};
  std::array<std::array<std::uint32_t, 16>, varies ? size + 1 : 1> lengths_{};
};

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Samples begin .. end - 1 of a tile through all nodes. Holds pointers only.
template <class Network>
class passes : public tile_values<Network> {
  using base = tile_values<Network>;

 public:
  using scalar = typename Network::scalar;
  using program = typename base::program;
  using base::size;
  using base::table;

  passes(const Network& network, const scalar* panels, scalar* workspace, layer_randomness randomness = {})
      : base{network, workspace}, panels_{panels}, randomness_{randomness} {}

  void forward(index begin, index end) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      static constexpr std::array<step_function, size> steps{&passes::template forward_step<Index>...};
      for (std::size_t i = 0; i < size; ++i) {
        (this->*steps[i])(begin, end);
        trim(i + 1, begin, end, false);
      }
    }
    (std::make_index_sequence<size>{});
    const slot& out = table.slots[size];
    for (index b = begin; b < end; ++b) gather_plain(out.value_layout, at(out.value, b), at(table.plain_output, b));
  }

  /// From the last node to the first that has a parameter at or before it. `when_complete(node)` is called once the
  /// gradient of the node's output is complete and before its input's is formed.
  template <class Function>
  void backward(index begin, index end, Function&& when_complete) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      static constexpr std::array<step_function, size> steps{&passes::template backward_step<Index>...};
      for (std::size_t i = size; i-- > 0;) {
        const node_row& row = table.nodes[i];
        if (!row.backward) continue;
        trim(i + 1, begin, end, true);
        if (row.kind == node_kind::general || row.kind == node_kind::tiled) {
          (this->*steps[i])(begin, end);  // its backward may write the saved values that its factors read
          when_complete(i);
        } else {
          if (row.parameter_count > 0) when_complete(i);
          (this->*steps[i])(begin, end);
        }
      }
    }
    (std::make_index_sequence<size>{});
  }

 private:
  using step_function = void (passes::*)(index, index);
  using base::at;
  using base::bias_of;
  using base::gather_plain;
  using base::in2_size;
  using base::in_size;
  using base::input_of;
  using base::lengths;
  using base::output_of;
  using base::saved_of;
  using base::scatter_plain;
  using base::slot_of;
  using base::stage_values;
  using base::trim;
  using base::unstage_gradients;
  using base::varies;
  using base::weights;

  template <class Layer>
  void view(const node_row& row, index begin, index end, std::uint32_t number, bool backward,
            tile_view<scalar>& tile) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    const bool second = row.in2_shape.size() > 0;
    const auto arrays = [&](place where) { return sample_arrays<scalar>{at(where, begin), where.sample}; };
    const auto constant = [&](place where) { return sample_arrays<const scalar>{at(where, begin), where.sample}; };
    tile.samples = end - begin;
    tile.in = row.in_shape;
    tile.in2 = row.in2_shape;
    tile.out = row.out_shape;
    tile.x = constant(row.plain_x);
    tile.y = arrays(row.plain_y);
    if (second) tile.x2 = constant(row.plain_x2);
    tile.saved = arrays(row.saved);
    tile.scratch = arrays(table.scratch);
    if (backward) {
      tile.dy = constant(row.plain_dy);
      tile.wants_factors = row.parameter_count > 0;
      tile.wants_dx = row.input_gradient;
      tile.wants_dx2 = row.input2_gradient;
      if (row.input_gradient) tile.dx = arrays(row.plain_dx);
      if (row.input2_gradient) tile.dx2 = arrays(row.plain_dx2);
    }
    if constexpr (detail::reads_images<Layer>) {
      tile.x_layout = in.value_layout;
      tile.y_layout = out.value_layout;
      tile.dx_layout = row.direct_dx ? in.gradient_layout : lay_out(in.gradient_layout.values, {});
      tile.dy_layout = out.gradient_layout;
    }
    tile.parameters = weights(row).data();
    tile.panels = panels_;
    tile.panel_offsets = row.panel_offsets.data();
    if (varies && row.in_shape.varying_axis() != 0)
      tile.lengths = lengths(row.staged ? row.staged_from : row.in, begin);
    if (varies && second && row.in2_shape.varying_axis() != 0) tile.lengths2 = lengths(row.in2, begin);
    tile.randomness = randomness_;
    tile.records = base::records(begin);
    tile.layer_number = number;
  }

  template <std::size_t Index>
  void forward_step(index begin, index end) {
    using layer = typename program::template layer_at<Index>;
    static constexpr node_row row = table.nodes[Index];
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    if constexpr (row.staged) stage_values(row, begin, end);
    if constexpr (row.kind == node_kind::affine) {
      if constexpr (row.map.adjoint) {
        adjoint_forward(row, begin, end);
      } else {
        affine_forward(row, begin, end);
      }
    } else if constexpr (row.kind == node_kind::elementwise) {
      for (index b = begin; b < end; ++b) {
        elementwise_kernel<layer, scalar>::forward(in.value_layout, at(in.value, b), out.value_layout,
                                                   at(out.value, b));
      }
    } else if constexpr (row.kind == node_kind::pooling) {
      for (index b = begin; b < end; ++b) {
        pooling_kernel<layer, scalar>::forward(row.in_shape, in.value_layout, at(in.value, b), out.value_layout,
                                               at(out.value, b));
      }
    } else if constexpr (row.kind == node_kind::branch_sum) {
      const slot& in2 = slot_of(row.in2);
      for (index b = begin; b < end; ++b) {
        transfer(in.value_layout, at(in.value, b), out.value_layout, at(out.value, b), false);
        transfer(in2.value_layout, at(in2.value, b), out.value_layout, at(out.value, b), true);
      }
    } else if constexpr (row.kind == node_kind::general) {
      for (index b = begin; b < end; ++b) {
        if (row.copies_in) gather_plain(in.value_layout, at(in.value, b), at(row.plain_x, b));
        if constexpr (detail::has_saving_forward<layer, scalar>) {
          layer::forward(row.in_shape, weights(row), input_of(row, b), output_of(row, b), saved_of(row, b));
        } else {
          layer::forward(row.in_shape, weights(row), input_of(row, b), output_of(row, b));
        }
        if (row.copies_out) scatter_plain(out.value_layout, at(row.plain_y, b), at(out.value, b), false);
      }
    } else if constexpr (row.kind == node_kind::tiled) {
      tiled_forward<layer>(row, static_cast<std::uint32_t>(Index), begin, end);
    }
  }

  template <std::size_t Index>
  void backward_step(index begin, index end) {
    using layer = typename program::template layer_at<Index>;
    static constexpr node_row row = table.nodes[Index];
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    if constexpr (row.kind == node_kind::affine) {
      if constexpr (row.input_gradient && row.map.adjoint) {
        adjoint_backward(row, begin, end);
      } else if constexpr (row.input_gradient) {
        affine_backward(row, begin, end);
      }
    } else if constexpr (row.kind == node_kind::elementwise) {
      for (index b = begin; b < end; ++b) {
        elementwise_kernel<layer, scalar>::backward(in.value_layout, at(in.value, b), out.value_layout,
                                                    at(out.value, b), out.gradient_layout, at(out.gradient, b),
                                                    in.gradient_layout, at(in.gradient, b), row.accumulate);
      }
    } else if constexpr (row.kind == node_kind::pooling) {
      for (index b = begin; b < end; ++b) {
        if (!row.accumulate) fill_zero(in.gradient_layout, at(in.gradient, b));
        pooling_kernel<layer, scalar>::backward(row.in_shape, in.value_layout, at(in.value, b), out.value_layout,
                                                at(out.value, b), out.gradient_layout, at(out.gradient, b),
                                                in.gradient_layout, at(in.gradient, b));
      }
    } else if constexpr (row.kind == node_kind::branch_sum) {
      const slot& in2 = slot_of(row.in2);
      for (index b = begin; b < end; ++b) {
        if (row.input_gradient) {
          transfer(out.gradient_layout, at(out.gradient, b), in.gradient_layout, at(in.gradient, b), row.accumulate);
        }
        if (row.input2_gradient) {
          transfer(out.gradient_layout, at(out.gradient, b), in2.gradient_layout, at(in2.gradient, b), row.accumulate2);
        }
      }
    } else if constexpr (row.kind == node_kind::general) {
      for (index b = begin; b < end; ++b) {
        if (row.copies_out) gather_plain(out.gradient_layout, at(out.gradient, b), at(row.plain_dy, b));
        const std::span<const scalar> dy{at(row.plain_dy, b), row.out_shape.size()};
        const std::span<scalar> dx{at(row.plain_dx, b), row.in_shape.size()};
        if constexpr (detail::has_saving_backward<layer, scalar>) {
          layer::backward(row.in_shape, weights(row), input_of(row, b), dy, dx, saved_of(row, b));
        } else {
          layer::backward(row.in_shape, weights(row), input_of(row, b), dy, dx);
        }
        if (row.input_gradient) {
          scatter_plain(in.gradient_layout, at(row.plain_dx, b), at(in.gradient, b), row.accumulate);
        }
      }
    } else if constexpr (row.kind == node_kind::tiled) {
      tiled_backward<layer>(row, static_cast<std::uint32_t>(Index), begin, end);
    }
    if constexpr (row.staged && row.input_gradient) unstage_gradients(row, begin, end);
  }

  // One copy of the code a layer type, not one a node: these layers get their sizes at run time.
  template <class Layer>
  [[gnu::noinline]] void tiled_forward(const node_row& row, std::uint32_t number, index begin, index end) {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    for (index b = begin; b < end; ++b) {
      if (row.copies_in) gather_plain(in.value_layout, at(in.value, b), at(row.plain_x, b));
      if (row.copies_in2) {
        const slot& in2 = slot_of(row.in2);
        gather_plain(in2.value_layout, at(in2.value, b), at(row.plain_x2, b));
      }
    }
    tile_view<scalar> tile;
    view<Layer>(row, begin, end, number, false, tile);
    Layer::forward(tile);
    for (index b = begin; row.copies_out && b < end; ++b) {
      scatter_plain(out.value_layout, at(row.plain_y, b), at(out.value, b), false);
    }
  }
  template <class Layer>
  [[gnu::noinline]] void tiled_backward(const node_row& row, std::uint32_t number, index begin, index end) {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    for (index b = begin; row.copies_out && b < end; ++b) {
      gather_plain(out.gradient_layout, at(out.gradient, b), at(row.plain_dy, b));
    }
    tile_view<scalar> tile;
    view<Layer>(row, begin, end, number, true, tile);
    Layer::backward(tile);
    for (index b = begin; b < end; ++b) {
      if (row.input_gradient && !row.direct_dx && detail::reads_images<Layer>) {
        transfer(lay_out(in.gradient_layout.values, {}), at(row.plain_dx, b), in.gradient_layout, at(in.gradient, b),
                 row.accumulate);
      } else if (row.input_gradient && !row.direct_dx) {
        give_gradient(row.copies_in, in.gradient_layout, at(row.plain_dx, b), at(in.gradient, b), in_size(row),
                      row.accumulate);
      }
      if (row.input2_gradient && !row.direct_dx2) {
        const slot& in2 = slot_of(row.in2);
        give_gradient(row.copies_in2, in2.gradient_layout, at(row.plain_dx2, b), at(in2.gradient, b), in2_size(row),
                      row.accumulate2);
      }
    }
  }
  /// A slot that needs no copies is stored as PyTorch orders it, in one stretch.
  static void give_gradient(bool copies, const layout& to, const scalar* plain, scalar* values, index count,
                            bool accumulate) {
    if (copies) {
      scatter_plain(to, plain, values, accumulate);
    } else if (accumulate) {
      add_to(values, plain, count);
    } else {
      std::copy_n(plain, count, values);
    }
  }

  void affine_forward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    through_windows(row, panels_, end - begin, {in.value_layout, at(in.value, begin), in.value.sample},
                    {out.value_layout, at(out.value, begin), out.value.sample}, bias_of(row), false);
  }
  void affine_backward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    through_adjoint(row, panels_, end - begin, {out.gradient_layout, at(out.gradient, begin), out.gradient.sample},
                    {in.gradient_layout, at(in.gradient, begin), in.gradient.sample}, nullptr, row.accumulate);
  }
  /// A transposed convolution: the two directions change places.
  void adjoint_forward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    through_adjoint(row, panels_, end - begin, {in.value_layout, at(in.value, begin), in.value.sample},
                    {out.value_layout, at(out.value, begin), out.value.sample}, bias_of(row), false);
  }
  void adjoint_backward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    through_windows(row, panels_, end - begin, {out.gradient_layout, at(out.gradient, begin), out.gradient.sample},
                    {in.gradient_layout, at(in.gradient, begin), in.gradient.sample}, nullptr, row.accumulate);
  }

  const scalar* panels_;
  layer_randomness randomness_;
};

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Where the weights of one sum and one table lie, one a sample of the chunk.
template <class Network>
[[nodiscard]] auto* segment_weights(pergrad::tape<Network>& tape, std::size_t sum, std::size_t leaf) noexcept {
  return tape_access::weights(tape) +
         static_cast<index>(sum * program<Network>::table.sparse_count + leaf) * chunk_samples<Network>;
}

/// One thread's way to the segments of a chunk. `first` is the first sample of a tile, `b` a sample of that tile.
template <class Network>
struct chunk_segments {
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  using tape_type = pergrad::tape<Network>;
  static constexpr const auto& table = program::table;

  tape_type& tape;
  std::size_t number = 0;       ///< of the thread
  std::size_t chunk_first = 0;  ///< the first sample of the chunk
  const scalar* workspace = nullptr;

  /// Calls f(leaf) for the tables whose gradient is complete with this node's.
  template <class Function>
  static void for_each_table(std::size_t node, Function&& f) {
    for (std::size_t k = 0; k < table.sparse_count; ++k) {
      if (table.sparse[k].node == node && table.sparse[k].use.first) f(k);
    }
  }
  [[nodiscard]] segments<scalar> of(std::size_t first, std::size_t leaf, index b) const noexcept {
    return {table.sparse[leaf], tape_access::integers(tape) + in_chunk(first, b) * table.sparse_integers,
            tape_access::scalars(tape) + in_chunk(first, b) * table.sparse_scalars};
  }
  /// Finds the segments of one sample and one table, which stay until the chunk's sums are formed.
  segments<scalar> keep(passes<Network>& pass, std::size_t first, std::size_t owner_number, index b) {
    const sparse_leaf& owner = table.sparse[owner_number];
    const segments<scalar> here = of(first, owner_number, b);
    const segment_finder finder{tape_access::finder(tape) + static_cast<index>(number) * tape_type::finder_stride,
                                owner.all_positions};
    segment_maker<scalar> maker{owner, finder};
    const auto for_each_use = [&](auto&& f) {
      for (std::size_t k = owner_number; k < table.sparse_count; ++k) {
        const sparse_leaf& use = table.sparse[k];
        if (use.owner == owner_number) f(use, std::min(use.positions, pass.positions_there(use.slot, b)));
      }
    };
    for_each_use([&](const sparse_leaf& use, index length) { maker.find(use, pass.ids(use.ids, b), length); });
    maker.sort(here);
    if (owner.counted) {
      std::copy_n(workspace + owner.delta.offset + b * owner.delta.sample, owner.width, here.rows);
    } else {
      for_each_use([&](const sparse_leaf& use, index length) {
        maker.add_rows(use, workspace + use.delta.offset + b * use.delta.sample, length, here);
      });
    }
    return here;
  }
  /// The same for all samples of a tile, with weight 1 in every sum.
  void keep_unit(passes<Network>& pass, std::size_t first, std::size_t node, index samples, std::size_t sum_count) {
    if constexpr (table.sparse_count > 0) {
      for_each_table(node, [&](std::size_t k) {
        for (index b = 0; b < samples; ++b) keep(pass, first, k, b);
        for (std::size_t s = 0; s < sum_count; ++s) {
          for (index b = 0; b < samples; ++b) weight(s, k, first, b) = 1;
        }
      });
    }
  }
  /// The weight of a table's segments of one sample in one sum.
  [[nodiscard]] scalar& weight(std::size_t sum, std::size_t leaf, std::size_t first, index b) const noexcept {
    return segment_weights<Network>(tape, sum, leaf)[in_chunk(first, b)];
  }

 private:
  [[nodiscard]] index in_chunk(std::size_t first, index b) const noexcept {
    return static_cast<index>(first - chunk_first) + b;
  }
};

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/gather.hpp - sums of outer products from where they were formed to where the caller wants them
//
// A sum lies in lanes, one or more arrays that are to be added up in order, each [views][outputs]; a row of it is one
// element of the view with all outputs. PyTorch's order has the outputs outside. So blocks of it are added up and
// turned around, instead of walking along rows whose neighbours lie a whole matrix row apart in the result.

namespace pergrad::inline v0_1::on_host {

/// Lanes that hold one sum, what it is multiplied by, and where it goes: written or added.
template <class Scalar>
struct lane_sum {
  std::span<const Scalar* const> lanes;
  Scalar scale = 1;
  Scalar* out = nullptr;
  bool accumulate = false;

  /// The sum of one element.
  void finish(index parameter, index native) const noexcept {
    Scalar total = 0;
    for (const Scalar* lane : lanes) total += lane[native];
    total *= scale;
    out[parameter] = accumulate ? out[parameter] + total : total;
  }
  /// The sums of `count` elements from `native` on into `totals`.
  void add_lanes(index native, index count, Scalar* totals) const noexcept {
    for_each_vector<Scalar>(count, [&](index i, const auto& part) {
      vector<Scalar> total{};
      for (const Scalar* lane : lanes) total = total + part.load(lane + native + i);
      part.store(totals + i, total * splat(scale));
    });
  }
};

/// Rows [first_row, last_row) of a leaf.
template <class Scalar>
inline void gather_rows(const outer_leaf& leaf, index first_row, index last_row, const lane_sum<Scalar>& sum) noexcept {
  constexpr index most_rows = 32;
  constexpr index most_outputs = 64;
  Scalar totals[most_rows * most_outputs];
  for (index row = first_row; row < last_row;) {
    // Rows whose parameters lie equally far apart.
    const index parameter = parameter_of_row(leaf, row);
    const index step = row + 1 < last_row ? parameter_of_row(leaf, row + 1) - parameter : 1;
    index rows = 1;
    while (rows < most_rows && row + rows < last_row && parameter_of_row(leaf, row + rows) == parameter + rows * step) {
      ++rows;
    }
    for (index n = 0; n < leaf.outputs; n += most_outputs) {
      const index outputs = std::min(most_outputs, leaf.outputs - n);
      for (index r = 0; r < rows; ++r) {
        sum.add_lanes(leaf.native + (row + r) * leaf.outputs + n, outputs, totals + r * most_outputs);
      }
      Scalar* out = sum.out + parameter + n * leaf.parameter_output;
      if (step == 1 && sum.accumulate) {
        transpose_add<Scalar>(totals, most_outputs, rows, outputs, out, leaf.parameter_output);
      } else if (step == 1) {
        transpose<Scalar>(totals, most_outputs, rows, outputs, out, leaf.parameter_output);
      } else {
        for (index k = 0; k < outputs; ++k) {
          copy_strided(static_cast<const Scalar*>(totals + k), most_outputs, out + k * leaf.parameter_output, step,
                       rows, sum.accumulate);
        }
      }
    }
    row += rows;
  }
}

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/panels.hpp - weights in the order that products read them in

namespace pergrad::inline v0_1::on_host {

/// Weights of outputs [first, last) from PyTorch's order into the forward panel
/// `[group][kd][kh][kw][channel][output]`.
template <class Scalar>
inline void pack_forward(const affine_map& map, const Scalar* weights, Scalar* panel, index first, index last) {
  const auto taps = static_cast<index>(map.kernel.size());
  const auto channels = static_cast<index>(map.in_channels / map.groups);
  const auto outputs = static_cast<index>(map.group_outputs());
  const index width = channels * taps;
  for (index n = first; n < last;) {
    // A cache line of outputs at a time: every line of the panel is written once and whole.
    const index together = std::min({line - n % outputs % line, outputs - n % outputs, last - n});
    const Scalar* from = weights + n * width;
    Scalar* to = panel + n / outputs * width * outputs + n % outputs;
    if (taps == 1) {
      transpose(from, width, together, width, to, outputs);
      n += together;
      continue;
    }
    for (index c = 0; c < channels; ++c) {
      for (index tap = 0; tap < taps; ++tap) {
        Scalar* out = to + (tap * channels + c) * outputs;
        const Scalar* in = from + c * taps + tap;
        if (together == line) {
          for (index j = 0; j < line; ++j) out[j] = in[j * width];
        } else {
          for (index j = 0; j < together; ++j) out[j] = in[j * width];
        }
      }
    }
    n += together;
  }
}

/// Weights of outputs [first, last) into the backward panel: per group and phase
/// `[tap plane][tap row][tap column][output][channel]` with the taps turned round, or `[output][kd][kh][kw][channel]`
/// for a view that sees everything once.
template <class Scalar>
inline void pack_backward(const node_row& row, const Scalar* weights, Scalar* panel, index first, index last) {
  const affine_map& map = row.map;
  const auto taps = static_cast<index>(map.kernel.size());
  const auto kernel_width = static_cast<index>(map.kernel.width);
  const auto kernel_area = static_cast<index>(map.kernel.height) * kernel_width;
  const auto channels = static_cast<index>(map.in_channels / map.groups);
  const auto outputs = static_cast<index>(map.group_outputs());
  for (index n = first; n < last; ++n) {
    const Scalar* from = weights + n * channels * taps;
    if (row.whole_view) {
      for (index c = 0; c < channels; ++c) {
        for (index tap = 0; tap < taps; ++tap) panel[(n * taps + tap) * channels + c] = from[c * taps + tap];
      }
      continue;
    }
    const index group = n / outputs;
    Scalar* to = panel + group * taps * outputs * channels;
    for_each_phase(map, [&](const phase& planes, const phase& rows, const phase& columns) {
      const auto turned = [](const phase& axis, index tap) {
        return axis.first_tap + (axis.taps - 1 - tap) * axis.tap_step;
      };
      for (index i = 0; i < planes.taps; ++i) {
        for (index j = 0; j < rows.taps; ++j) {
          const index tap_row = turned(planes, i) * kernel_area + turned(rows, j) * kernel_width;
          for (index k = 0; k < columns.taps; ++k) {
            const index tap = tap_row + turned(columns, k);
            Scalar* line_out = to + (((i * rows.taps + j) * columns.taps + k) * outputs + n % outputs) * channels;
            for (index c = 0; c < channels; ++c) line_out[c] = from[c * taps + tap];
          }
        }
      }
      to += planes.taps * rows.taps * columns.taps * outputs * channels;
    });
  }
}

/// The matrices of a tiled layer, each transposed.
template <class Scalar>
inline void pack_matrices(const node_row& row, const Scalar* weights, Scalar* panels) {
  for (index k = 0; k < row.matrix_count; ++k) {
    const matrix& from = row.matrices[static_cast<std::size_t>(k)];
    pack_forward(affine_map{.in_channels = from.columns, .in_size = {1}, .out_channels = from.rows, .out_size = {1}},
                 weights + from.offset, panels + row.panel_offsets[static_cast<std::size_t>(k)], 0,
                 static_cast<index>(from.rows));
  }
}

/// Outputs of an affine layer that one task packs: whole cache lines of its panel.
[[nodiscard]] constexpr index outputs_per_task(const node_row& row) {
  return std::max(line, (index{1} << 14) / static_cast<index>(row.map.view_width()) / line * line);
}
[[nodiscard]] constexpr index pack_tasks(const node_row& row) {
  return row.kind == node_kind::affine
             ? (static_cast<index>(row.map.out_channels) + outputs_per_task(row) - 1) / outputs_per_task(row)
         : row.matrix_count > 0 ? 1
                                : 0;
}

/// All affine weights into the order that products read them in.
template <class Network>
void pack_panels(const host& executor, const Network& network, typename Network::scalar* panels, bool backward) {
  constexpr const auto& table = program<Network>::table;
  const auto* parameters = network.parameters().data();
  index tasks = 0;
  for (const node_row& row : table.nodes) tasks += pack_tasks(row);
  executor.parallel(static_cast<std::size_t>(tasks), [&](std::size_t task_number, std::size_t) {
    auto task = static_cast<index>(task_number);
    for (const node_row& row : table.nodes) {
      if (task >= pack_tasks(row)) {
        task -= pack_tasks(row);
        continue;
      }
      if (row.kind == node_kind::tiled) {
        pack_matrices(row, parameters + row.parameters, panels);
        return;
      }
      const auto outputs = static_cast<index>(row.map.out_channels);
      const index first = task * outputs_per_task(row);
      const index last = std::min(outputs, first + outputs_per_task(row));
      const bool for_dx = backward && row.input_gradient;
      if (for_dx || !row.map.adjoint) {
        pack_forward(row.map, parameters + row.parameters, panels + row.forward_panel, first, last);
      }
      if (for_dx || row.map.adjoint) {
        pack_backward(row, parameters + row.parameters, panels + row.backward_panel, first, last);
      }
      return;
    }
  });
}

}  // namespace pergrad::inline v0_1::on_host
// pergrad/host/worker.hpp - one thread's part of a pass: tiles through forward, loss, backward, facts and sums

// pergrad/host/rows.hpp - one sample's gradient, written out in PyTorch's order

namespace pergrad::inline v0_1::on_host {

/// Writes a sample's kept gradient, and its segments of tables, times `weight_of(node)` if `weighted`. A weight of 0 is
/// chosen, not multiplied.
template <class Network, class SegmentsOf, class WeightOf>
void write_row(const typename Network::scalar* kept, const SegmentsOf& segments_of, bool weighted,
               const WeightOf& weight_of, typename Network::scalar* row) {
  using scalar = typename Network::scalar;
  constexpr const auto& table = program<Network>::table;
  for (std::size_t k = 0; k < table.outer_count; ++k) {
    const outer_leaf& leaf = table.outer[k];
    if (!leaf.use.first) continue;
    const auto weight = weight_of(leaf.node);
    for_each_parameter(leaf, 0, leaf.groups * leaf.view_width(),
                       [&](index p, index n) { row[p] = weighted && weight == 0 ? scalar{0} : weight * kept[n]; });
  }
  for (std::size_t k = 0; k < table.elementwise_count; ++k) {
    const elementwise_leaf& leaf = table.elementwise[k];
    if (!leaf.use.first) continue;
    const auto weight = weight_of(leaf.node);
    for (index i = 0; i < leaf.count; ++i) {
      row[leaf.parameters + i] = weighted && weight == 0 ? scalar{0} : weight * kept[leaf.native + i];
    }
  }
  for (std::size_t k = 0; k < table.sparse_count; ++k) {
    const sparse_leaf& leaf = table.sparse[k];
    if (leaf.use.first) write_segments(leaf, segments_of(k), weight_of(leaf.node), row + leaf.parameters);
  }
}

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// One thread's view of a run.
template <class Network>
struct worker {
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  using tape_type = pergrad::tape<Network>;
  static constexpr const auto& table = program::table;

  const Network& network;
  tape_type& tape;
  const sample_source<scalar>& source;
  const run_request<scalar>& request;
  std::size_t number = 0;
  std::size_t chunk_first = 0;  ///< the first sample of the chunk whose segments are kept
  scalar* workspace = tape_access::workspace(tape) + static_cast<index>(number) * tape_type::workspace_stride;
  scalar* kept = tape_access::kept(tape) + static_cast<index>(number) * tape_type::kept_stride;
  scalar* scaled = tape_access::scaled(tape) + static_cast<index>(number) * tape_type::scaled_stride;
  norm_part* parts = tape_access::parts(tape) + static_cast<index>(number) * tape_type::parts_stride;
  std::array<double, 16> losses{};
  std::array<double, 16> projections{};
  bool facts_wanted = request.needs_facts();
  bool every_gradient = request.needs_every_gradient();
  chunk_segments<Network> sparse{tape, number, chunk_first, workspace};

  /// One tile: forward, loss, backward, facts, sums.
  void process(std::size_t first, index samples, bool one_by_one, scalar* sums) {
    passes<Network> pass{network, tape_access::panels(tape), workspace, request.randomness};
    pass.load(source, first, samples);
    if (one_by_one && facts_wanted) {
      // naive and multi send one sample after the other through the whole network; only what is kept differs.
      for (index b = 0; b < samples; ++b) {
        forward_backward(pass, first, b, b + 1);
        collect_all(pass, first, b, b + 1);
      }
    } else {
      pass.forward(0, samples);
      evaluate_loss(pass, first, 0, samples);
      if (!request.backward) {
        observe(pass, first, samples);
        return;
      }
      if (facts_wanted) clear_parts(samples);
      pass.backward(0, samples, [&](std::size_t node) {
        if (facts_wanted) {
          collect(pass, first, node, 0, samples);
        } else {
          add_unit_sums(node, samples, sums);
          sparse.keep_unit(pass, first, node, samples, request.sum_count);
        }
      });
    }
    if (!request.backward) return;
    observe(pass, first, samples);
    if (!facts_wanted) return;
    write_rows(pass, first, samples);
    form_sums(pass, first, samples, sums);
  }

  void forward_backward(passes<Network>& pass, std::size_t first, index begin, index end) {
    pass.forward(begin, end);
    evaluate_loss(pass, first, begin, end);
    pass.backward(begin, end, [](std::size_t) {});
  }
  void collect_all(passes<Network>& pass, std::size_t first, index begin, index end) {
    if (begin == 0) clear_parts(table.tile);
    for (std::size_t node = program::size; node-- > 0;) collect(pass, first, node, begin, end);
  }

  void evaluate_loss(passes<Network>& pass, std::size_t first, index begin, index end) {
    for (index b = begin; b < end; ++b) {
      const std::span<const scalar> y = pass.output(b);
      const std::span<scalar> dy = pass.output_gradient(b);
      losses[static_cast<std::size_t>(b)] = source.loss(source.context, first + static_cast<std::size_t>(b), y, dy);
      pass.scatter_output_gradient(b);
    }
  }

  void clear_parts(index samples) {
    std::fill_n(parts, samples * static_cast<index>(table.layer_groups), norm_part{});
    projections.fill(0);
  }
  [[nodiscard]] norm_part& part(index sample, std::size_t node) {
    return parts[sample * static_cast<index>(table.layer_groups) + static_cast<index>(table.layer_group[node])];
  }
  [[nodiscard]] scalar* kept_gradient(index sample, index native) { return kept + sample * table.native_size + native; }

  /// Norms (and, where kept, gradients) of a node's blocks, once the gradient of its output is complete.
  void collect(passes<Network>& pass, std::size_t first_sample, std::size_t node, index begin, index end) {
    if constexpr (table.sparse_count > 0) {
      sparse.for_each_table(node, [&](std::size_t k) {
        for (index b = begin; b < end; ++b) {
          const segments<scalar> here = sparse.keep(pass, first_sample, k, b);
          part(b, node).squared += squares_of(table.sparse[k], here);
          if (request.direction != nullptr) {
            projections[static_cast<std::size_t>(b)] +=
                dot_segments(table.sparse[k], here, request.direction + table.sparse[k].parameters);
          }
        }
      });
    }
    const auto [outer_first, outer_last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = outer_first; k < outer_last; ++k) {
      const outer_leaf& leaf = table.outer[k];
      const leaf_kernel<scalar> kernel{leaf, workspace};
      const norm_method method = request.method_of(leaf, every_gradient);
      for (index b = begin; b < end; ++b) {
        norm_part& to = part(b, node);
        switch (method) {
          case norm_method::product:
            to += kernel.by_product(b);
            break;
          case norm_method::gram:
            to += kernel.gram(b);
            to += kernel.rounding(b);
            break;
          case norm_method::direct:
            to.squared += kernel.direct(b);
            to += kernel.rounding(b);
            break;
          default: {
            scalar* gradient = kept_gradient(b, leaf.native);
            const double squared =
                leaf.use.last ? kernel.instantiate(b, gradient) : kernel.instantiate_onto(b, gradient, scaled);
            if (leaf.use.first) to.squared += squared;
            if (leaf.use.first && request.direction != nullptr) project(b, leaf.native, leaf.size());
            break;
          }
        }
      }
    }
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      for (index b = begin; b < end; ++b) {
        const double squared = instantiate(leaf, workspace, b, kept_gradient(b, leaf.native), !leaf.use.last);
        if (!leaf.use.first) continue;
        part(b, node).squared += squared;
        if (request.direction != nullptr) project(b, leaf.native, leaf.count);
      }
    }
  }

  void project(index b, index native, index count) {
    projections[static_cast<std::size_t>(b)] +=
        dot(static_cast<const scalar*>(kept_gradient(b, native)),
            static_cast<const scalar*>(tape_access::direction(tape) + native), count);
  }
  /// The ordinary gradient: the same leaves with every weight 1, one product a block, nothing kept.
  void add_unit_sums(std::size_t node, index samples, scalar* sums) {
    for (std::size_t s = 0; s < request.sum_count; ++s) {
      scalar* sum = sums + static_cast<index>(s) * table.native_size;
      add_unit_sum(node, samples, sum);
    }
  }
  void add_unit_sum(std::size_t node, index samples, scalar* sum) {
    scalar* scratch = scaled + round_up(table.tile * table.scaled_size);
    const auto [outer_first, outer_last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = outer_first; k < outer_last; ++k) {
      const leaf_kernel<scalar> kernel{table.outer[k], workspace};
      kernel.add_sum(samples, sum + table.outer[k].native, scratch);
    }
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      for (index b = 0; b < samples; ++b) {
        instantiate(leaf, workspace, b, scratch);
        add_to(sum + leaf.native, static_cast<const scalar*>(scratch), leaf.count);
      }
    }
  }

  [[nodiscard]] sample_facts<scalar> facts_of(passes<Network>& pass, std::size_t first, index b) {
    sample_facts<scalar> facts;
    facts.sample = first + static_cast<std::size_t>(b) - request.first;
    facts.loss = losses[static_cast<std::size_t>(b)];
    facts.output = pass.output(b);
    if (facts_wanted) {
      facts.layers = {parts + b * static_cast<index>(table.layer_groups), table.layer_groups};
      for (const norm_part& each : facts.layers) facts.norm += each;
      facts.projection = projections[static_cast<std::size_t>(b)];
    }
    return facts;
  }
  void observe(passes<Network>& pass, std::size_t first, index samples) {
    for (index b = 0; b < samples && request.observer_count > 0; ++b) {
      const sample_facts<scalar> facts = facts_of(pass, first, b);
      for (std::size_t k = 0; k < request.observer_count; ++k)
        request.observers[k].observe(request.observers[k].context, facts);
    }
  }

  /// Is the sample's gradient finite? Others are erased where their weight is 0, as 0 times infinity is not 0; a finite
  /// one must stay whole, because the next sum of the same evaluation may want it.
  [[nodiscard]] bool finite(passes<Network>& pass, std::size_t first, index b) {
    return std::isfinite(facts_of(pass, first, b).norm.squared);
  }

  /// Weights of one sum for the samples of a tile, one a layer with parameters.
  using weight_table = std::array<scalar, 16>;
  void weigh(passes<Network>& pass, const sum_request<scalar>& sum, std::size_t first, index b, scalar* weights) {
    if (sum.unit) {
      std::fill_n(weights, sum.per_layer ? table.layer_groups : 1, scalar{1});
    } else {
      sum.weigh(sum.weigher, facts_of(pass, first, b), weights);
    }
  }

  void write_rows(passes<Network>& pass, std::size_t first, index samples) {
    if (request.rows == nullptr) return;
    for (index b = 0; b < samples; ++b) {
      scalar* row = request.rows + static_cast<index>(first - request.first + static_cast<std::size_t>(b)) *
                                       static_cast<index>(Network::parameter_count);
      std::array<scalar, std::max<std::size_t>(1, table.layer_groups)> weights{};
      const bool weighted = request.row_weights != nullptr;
      if (weighted) weigh(pass, *request.row_weights, first, b, weights.data());
      const auto weight_of = [&](std::size_t node) {
        return weighted ? weights[request.row_weights->per_layer ? table.layer_group[node] : 0] : scalar{1};
      };
      write_row<Network>(
          kept_gradient(b, 0), [&](std::size_t leaf) { return sparse.of(first, leaf, b); }, weighted, weight_of, row);
    }
  }

  void form_sums(passes<Network>& pass, std::size_t first, index samples, scalar* sums) {
    // Plain sums first: a sample that a weighted sum leaves out may have its factors erased. Ghost's sums last: each
    // runs the passes anew, and erases what it likes.
    for (const int turn : {0, 1, 2}) {
      for (std::size_t s = 0; s < request.sum_count; ++s) {
        const sum_request<scalar>& sum = request.sums[s];
        if (turn != (sum.unit ? 0 : needs_a_second_pass(sum) ? 2 : 1)) continue;
        note_segment_weights(pass, s, first, samples);
        form_sum(pass, sum, first, samples, sums + static_cast<index>(s) * table.native_size);
      }
    }
  }
  /// The sums over tables are formed when the chunk is complete.
  void note_segment_weights(passes<Network>& pass, std::size_t sum, std::size_t first, index samples) {
    if constexpr (table.sparse_count > 0) {
      const sum_request<scalar>& asked = request.sums[sum];
      std::array<scalar, std::max<std::size_t>(1, table.layer_groups)> weights{};
      for (index b = 0; b < samples; ++b) {
        weigh(pass, asked, first, b, weights.data());
        for (std::size_t k = 0; k < table.sparse_count; ++k) {
          const std::size_t group = asked.per_layer ? table.layer_group[table.sparse[k].node] : 0;
          sparse.weight(sum, k, first, b) = weights[group];
        }
      }
    }
  }
  /// Ghost clipping forms a sum with one weight a sample by a second pass.
  [[nodiscard]] bool needs_a_second_pass(const sum_request<scalar>& sum) const noexcept {
    return request.strategy == strategy_kind::ghost && !sum.unit && !sum.per_layer;
  }

  void form_sum(passes<Network>& pass, const sum_request<scalar>& request_sum, std::size_t first, index samples,
                scalar* sum) {
    if (needs_a_second_pass(request_sum)) {
      second_pass_sum(pass, request_sum, first, samples, sum);
      return;
    }
    constexpr std::size_t groups = std::max<std::size_t>(1, table.layer_groups);
    std::array<scalar, groups * 16> weights{};
    for (index b = 0; b < samples; ++b) {
      scalar* mine = weights.data() + b * static_cast<index>(groups);
      weigh(pass, request_sum, first, b, mine);
      if (!request_sum.per_layer) std::fill_n(mine + 1, groups - 1, mine[0]);
    }
    const auto weights_of = [&](std::size_t node) {
      weight_table of_node{};
      for (std::size_t b = 0; b < static_cast<std::size_t>(samples); ++b) {
        of_node[b] = weights[b * groups + table.layer_group[node]];
      }
      return of_node;
    };
    for (std::size_t k = 0; k < table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      const weight_table leaf_weights = weights_of(leaf.node);
      if (!leaf.use.first) continue;
      if (request_sum.squares || request.method_of(leaf, every_gradient) == norm_method::instantiate) {
        add_kept(leaf.native, leaf.size(), samples, leaf_weights, request_sum.squares, sum);
      } else if (request_sum.unit) {
        leaf_kernel<scalar>{leaf, workspace}.add_sum(samples, sum + leaf.native, scaled);
      } else {
        for (index b = 0; b < samples; ++b) {
          if (leaf_weights[static_cast<std::size_t>(b)] == 0 && !finite(pass, first, b)) pass.erase(leaf.node, b);
        }
        leaf_kernel<scalar>{leaf, workspace}.add_weighted_sum(samples, leaf_weights.data(), sum + leaf.native, scaled);
      }
    }
    for (std::size_t k = 0; k < table.elementwise_count; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      if (!leaf.use.first) continue;
      const weight_table leaf_weights = weights_of(leaf.node);
      add_kept(leaf.native, leaf.count, samples, leaf_weights, request_sum.squares, sum);
    }
  }
  void add_kept(index native, index count, index samples, const weight_table& weights, bool squared, scalar* sum) {
    for (index b = 0; b < samples; ++b) {
      const scalar weight = weights[static_cast<std::size_t>(b)];
      if (weight == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
      const scalar* gradient = kept_gradient(b, native);
      if (squared) {
        add_scaled_squares_to(sum + native, weight, gradient, count);
      } else {
        add_scaled_to(sum + native, weight, gradient, count);
      }
    }
  }

  /// Ghost clipping's second pass. It is the first one again, bit by bit; the weights meet the factors, not the losses
  /// as in the papers: a loss times w makes a backward pass that rounds in its own way, and the clip bound would only
  /// hold about.
  void second_pass_sum(passes<Network>& pass, const sum_request<scalar>& request_sum, std::size_t first, index samples,
                       scalar* sum) {
    weight_table weights{};
    for (index b = 0; b < samples; ++b) weigh(pass, request_sum, first, b, &weights[static_cast<std::size_t>(b)]);
    pass.forward(0, samples);
    evaluate_loss(pass, first, 0, samples);
    pass.backward(0, samples, [&](std::size_t node) {
      for (index b = 0; b < samples; ++b) {
        if (table.nodes[node].parameter_count == 0 || weights[static_cast<std::size_t>(b)] != 0) continue;
        if (!finite(pass, first, b)) pass.erase(node, b);
      }
      add_weighted_sum(node, samples, weights, sum);
    });
  }
  void add_weighted_sum(std::size_t node, index samples, const weight_table& weights, scalar* sum) {
    scalar* scratch = scaled + round_up(table.tile * table.scaled_size);
    const auto add_one_by_one = [&](index native, index count, const auto& instantiate_one) {
      for (index b = 0; b < samples; ++b) {
        const scalar weight = weights[static_cast<std::size_t>(b)];
        if (weight == 0) continue;
        instantiate_one(b);
        add_scaled_to(sum + native, weight, static_cast<const scalar*>(scratch), count);
      }
    };
    const auto [outer_first, outer_last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = outer_first; k < outer_last; ++k) {
      const outer_leaf& leaf = table.outer[k];
      const leaf_kernel<scalar> kernel{leaf, workspace};
      if (leaf.use.shared()) {  // the first pass kept its gradient, the sum over all uses
        if (leaf.use.first) add_kept(leaf.native, leaf.size(), samples, weights, false, sum);
      } else if (leaf.delta_stride == 1) {
        kernel.add_weighted_sum(samples, weights.data(), sum + leaf.native, scaled);
      } else {
        add_one_by_one(leaf.native, leaf.size(), [&](index b) { kernel.instantiate(b, scratch); });
      }
    }
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      if (leaf.use.shared()) {
        if (leaf.use.first) add_kept(leaf.native, leaf.count, samples, weights, false, sum);
        continue;
      }
      add_one_by_one(leaf.native, leaf.count, [&](index b) { instantiate(leaf, workspace, b, scratch); });
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host

namespace pergrad::inline v0_1::on_host {

/// Runs requests for one network. Inputs and losses come through small function tables, so that one engine serves every
/// loss.
template <class Network>
class engine {
 public:
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  using tape_type = pergrad::tape<Network>;
  static constexpr const auto& table = program::table;

  static void run(const host& executor, const Network& network, tape_type& tape, const sample_source<scalar>& source,
                  const run_request<scalar>& request) {
    if (request.sum_count > tape.sum_capacity()) {
      throw std::invalid_argument("pergrad: this evaluation forms " + std::to_string(request.sum_count) +
                                  " sums, the tape has room for " + std::to_string(tape.sum_capacity()) +
                                  ": construct it with pergrad::max_sums{" + std::to_string(request.sum_count) + "}");
    }
    if (executor.thread_count() > tape.worker_count()) {
      throw std::invalid_argument("pergrad: the tape was made for an executor with " +
                                  std::to_string(tape.worker_count()) + " threads, this one has " +
                                  std::to_string(executor.thread_count()));
    }
    const auto count = static_cast<index>(request.count);
    const bool one_by_one = request.strategy == strategy_kind::naive || request.strategy == strategy_kind::multi;
    const index tile = request.strategy == strategy_kind::naive ? 1 : table.tile;
    // Without tables the whole batch is one chunk.
    const index chunk = table.sparse_count > 0 ? chunk_samples<Network> : std::max<index>(1, count);
    const index tiles = (std::min(count, chunk) + tile - 1) / tile;
    const index lanes = request.sum_count == 0 ? lane_count<Network> : lanes_for<Network>(tiles);

    pack_panels(executor, network, tape_access::panels(tape), request.backward);
    if (request.direction != nullptr) to_native(request.direction, tape_access::direction(tape));

    index chunk_first = 0;
    do {
      const index samples = std::min(chunk, count - chunk_first);
      run_chunk(executor, network, tape, source, request, lanes, tile, chunk_first, samples, one_by_one);
      if constexpr (table.sparse_count > 0) {
        sum_tables(executor, tape, request, chunk_first, samples);
      }
      chunk_first += samples;
    } while (chunk_first < count);
    for (std::size_t k = 0; k < request.sum_count; ++k)
      gather(executor, tape, request.sums[k], static_cast<index>(k), tiles);
  }

 private:
  /// The lanes' part of one chunk. All chunks but the last have the same number of tiles; lanes sum up over chunks.
  static void run_chunk(const host& executor, const Network& network, tape_type& tape,
                        const sample_source<scalar>& source, const run_request<scalar>& request, index lanes,
                        index tile, index chunk_first, index count, bool one_by_one) {
    const index tiles = (count + tile - 1) / tile;
    executor.parallel(static_cast<std::size_t>(lanes), [&](std::size_t lane_number, std::size_t thread) {
      const auto lane = static_cast<index>(lane_number);
      const index first_tile = lane * tiles / lanes;
      const index last_tile = (lane + 1) * tiles / lanes;
      if (first_tile == last_tile) return;
      worker<Network> state{network, tape,   source,
                            request, thread, static_cast<std::size_t>(chunk_first) + request.first};
      scalar* sums = tape_access::lanes(tape) + lane * static_cast<index>(tape.sum_capacity()) * table.native_size;
      if (chunk_first == 0) std::fill_n(sums, static_cast<index>(request.sum_count) * table.native_size, scalar{0});
      for (index t = first_tile; t < last_tile; ++t) {
        const index first = t * tile;
        const index samples = std::min(tile, count - first);
        state.process(static_cast<std::size_t>(chunk_first + first) + request.first, samples, one_by_one, sums);
      }
    });
  }

  /// Adds the segments of a chunk's samples up, sample after sample, in buckets of rows. What is asked to be added to
  /// something is summed up first.
  static void sum_tables(const host& executor, tape_type& tape, const run_request<scalar>& request, index chunk_first,
                         index count) {
    const bool is_first = chunk_first == 0;
    const bool is_last = chunk_first + count == static_cast<index>(request.count);
    constexpr std::size_t tasks = table.sparse_count * static_cast<std::size_t>(sparse_buckets);
    executor.parallel(request.sum_count * tasks, [&](std::size_t task, std::size_t) {
      const sum_request<scalar>& sum = request.sums[task / tasks];
      const std::size_t number = task % tasks / static_cast<std::size_t>(sparse_buckets);
      const auto bucket = static_cast<index>(task % static_cast<std::size_t>(sparse_buckets));
      const sparse_leaf& leaf = table.sparse[number];
      if (!leaf.use.first) return;
      scalar* out = sum.out + leaf.parameters;
      scalar* to = out;
      if (sum.accumulate) {
        to = tape_access::additions(tape) + static_cast<index>(task / tasks) * table.sparse_size;
        for (std::size_t k = 0; k < number; ++k) to += table.sparse[k].use.first ? table.sparse[k].size() : 0;
      }
      if (is_first) {
        for_each_stretch_of_bucket(leaf, bucket, [&](index at, index size) { std::fill_n(to + at, size, scalar{0}); });
      }
      const scalar* weights = segment_weights<Network>(tape, task / tasks, number);
      const auto scale = static_cast<scalar>(sum.scale);
      for (index b = 0; b < count; ++b) {
        if (weights[b] == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
        const segments<scalar> here{leaf, tape_access::integers(tape) + b * table.sparse_integers,
                                    tape_access::scalars(tape) + b * table.sparse_scalars};
        add_segments(leaf, here, here.first_of[bucket], here.first_of[bucket + 1], scale * weights[b], sum.squares, to);
      }
      if (is_last && sum.accumulate) {
        for_each_stretch_of_bucket(
            leaf, bucket, [&](index at, index size) { add_to(out + at, static_cast<const scalar*>(to + at), size); });
      }
    });
  }

  static void to_native(const scalar* parameters, scalar* native) {
    for (std::size_t k = 0; k < table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      for_each_parameter(leaf, 0, leaf.groups * leaf.view_width(),
                         [&](index p, index n) { native[n] = parameters[p]; });
    }
    for (std::size_t k = 0; k < table.elementwise_count; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      std::copy_n(parameters + leaf.parameters, leaf.count, native + leaf.native);
    }
  }

  static constexpr index chunk_elements = index{1} << 13;
  [[nodiscard]] static index rows_per_chunk(const outer_leaf& leaf) {
    return std::max<index>(1, chunk_elements / leaf.outputs);
  }

  /// Adds the lanes up in order and puts the sum into PyTorch's order.
  static void gather(const host& executor, tape_type& tape, const sum_request<scalar>& sum, index number, index tiles) {
    const index lanes = lanes_for<Network>(tiles);
    std::array<const scalar*, static_cast<std::size_t>(lane_count<Network>)> used{};
    std::size_t used_count = 0;
    for (index lane = 0; lane < lanes; ++lane) {
      if (lane * tiles / lanes == (lane + 1) * tiles / lanes) continue;
      used[used_count++] =
          tape_access::lanes(tape) + (lane * static_cast<index>(tape.sum_capacity()) + number) * table.native_size;
    }
    const lane_sum<scalar> lane_sum{std::span{used}.first(used_count), static_cast<scalar>(sum.scale), sum.out,
                                    sum.accumulate};
    index chunks = 0;
    for (std::size_t k = 0; k < table.outer_count; ++k) chunks += chunks_of(table.outer[k]);
    executor.parallel(static_cast<std::size_t>(chunks) + (table.elementwise_count > 0 ? 1 : 0),
                      [&](std::size_t task, std::size_t) {
                        auto chunk = static_cast<index>(task);
                        for (std::size_t k = 0; k < table.outer_count; ++k) {
                          const outer_leaf& leaf = table.outer[k];
                          if (chunk < chunks_of(leaf)) {
                            const index rows_count = leaf.groups * leaf.view_width();
                            const index first = chunk * rows_per_chunk(leaf);
                            gather_rows(leaf, first, std::min(rows_count, first + rows_per_chunk(leaf)), lane_sum);
                            return;
                          }
                          chunk -= chunks_of(leaf);
                        }
                        for (std::size_t k = 0; k < table.elementwise_count; ++k) {
                          const elementwise_leaf& leaf = table.elementwise[k];
                          for (index i = 0; i < (leaf.use.first ? leaf.count : 0); ++i)
                            lane_sum.finish(leaf.parameters + i, leaf.native + i);
                        }
                      });
  }
  [[nodiscard]] static index chunks_of(const outer_leaf& leaf) {
    if (!leaf.use.first) return 0;
    return (leaf.groups * leaf.view_width() + rows_per_chunk(leaf) - 1) / rows_per_chunk(leaf);
  }
};

}  // namespace pergrad::inline v0_1::on_host
// pergrad/privacy/generator.hpp - where the key of all randomness comes from: the operating system, or a seed.
//
// A generator is a ChaCha20 key and a count of logical steps; noise, sampling and dropout are functions of (key,
// purpose, step, element), see noise.hpp. Only `os_keyed_generator` gives differential privacy. `seeded_generator`
// repeats a run: WHOEVER KNOWS OR GUESSES THE SEED CAN SUBTRACT ALL NOISE, so its runs carry NO privacy guarantee
// whatever the accountant says, and its type tells so (`is_private == false`).

#if defined(__linux__)
#include <sys/random.h>
#else
#include <unistd.h>
#endif

namespace pergrad::inline v0_1 {

/// Source of a key and of step numbers, of which each is given out once.
template <class Generator>
concept random_generator = requires(Generator& generator, const Generator& fixed) {
  { fixed.key() } -> std::convertible_to<const chacha_key&>;
  { generator.next_step() } -> std::same_as<std::uint64_t>;
  { fixed.step() } -> std::same_as<std::uint64_t>;
  { Generator::is_private } -> std::convertible_to<bool>;
};

namespace detail {

/// Fills memory from the operating system's generator. Throws std::runtime_error when it fails.
inline void operating_system_random(void* memory, std::size_t bytes) {
#if defined(__linux__)
  auto* at = static_cast<unsigned char*>(memory);
  while (bytes > 0) {
    const auto got = ::getrandom(at, bytes, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw std::runtime_error("pergrad: getrandom gave no key, errno " + std::to_string(errno));
    }
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
#else
  if (::getentropy(memory, bytes) != 0) {
    throw std::runtime_error("pergrad: getentropy gave no key, errno " + std::to_string(errno));
  }
#endif
}

/// Counts up without wrapping, as a step used twice would repeat its noise.
inline std::uint64_t take_step(std::uint64_t& next) {
  if (next == std::numeric_limits<std::uint64_t>::max()) {
    throw std::overflow_error("pergrad: generator has given out all of its 2^64 - 1 steps");
  }
  return next++;
}

}  // namespace detail

/// Generator with a 256-bit key from the operating system. Movable, not copyable (a copy would repeat noise), without
/// any way to save the key, which is overwritten on destruction. A forked process must make its own generator.
class os_keyed_generator {
 public:
  static constexpr bool is_private = true;

  /// Draws the key. Throws std::runtime_error when the operating system gives none.
  os_keyed_generator() { detail::operating_system_random(key_.words.data(), sizeof key_.words); }
  os_keyed_generator(const os_keyed_generator&) = delete;
  os_keyed_generator& operator=(const os_keyed_generator&) = delete;
  os_keyed_generator(os_keyed_generator&& other) noexcept { take(other); }
  os_keyed_generator& operator=(os_keyed_generator&& other) noexcept {
    if (this != &other) take(other);
    return *this;
  }
  ~os_keyed_generator() { detail::wipe(&key_, sizeof key_); }

  /// The key. Throws std::logic_error after the generator was moved from.
  [[nodiscard]] const chacha_key& key() const {
    require_key();
    return key_;
  }

  /// Gives out the next logical step: 0, 1, 2, ... Throws std::overflow_error instead of giving one twice and
  /// std::logic_error after the generator was moved from.
  [[nodiscard]] std::uint64_t next_step() {
    require_key();
    return detail::take_step(next_step_);
  }

  /// Number of steps given out.
  [[nodiscard]] std::uint64_t step() const noexcept { return next_step_; }

 private:
  void take(os_keyed_generator& other) noexcept {
    key_ = other.key_;
    next_step_ = other.next_step_;
    has_key_ = std::exchange(other.has_key_, false);
    detail::wipe(&other.key_, sizeof other.key_);
  }

  void require_key() const {
    if (!has_key_) throw std::logic_error("pergrad: os_keyed_generator was used after it was moved from");
  }

  chacha_key key_;
  std::uint64_t next_step_ = 0;
  bool has_key_ = true;
};

/// Generator for experiments that must be repeated. ITS RUNS ARE NOT PRIVATE, however large the noise: the key has at
/// most the 64 bits of the seed and the seed is known. Same seed, same stream on every machine.
class seeded_generator {
 public:
  static constexpr bool is_private = false;

  /// Key: the first half of the ChaCha20 block under the seed as (low, high, 0, ...) for the key-derivation nonce.
  /// `first_step` resumes a run that had given out that many steps.
  constexpr explicit seeded_generator(std::uint64_t seed, std::uint64_t first_step = 0) noexcept
      : seed_{seed}, next_step_{first_step} {
    chacha_key start;
    start.words[0] = static_cast<std::uint32_t>(seed & 0xffff'ffffU);
    start.words[1] = static_cast<std::uint32_t>(seed >> 32U);
    const chacha_block block = chacha20_block(start, make_nonce(random_purpose::key_derivation, 0), 0);
    for (std::size_t i = 0; i < key_.words.size(); ++i) key_.words[i] = block[i];
  }

  [[nodiscard]] constexpr const chacha_key& key() const noexcept { return key_; }
  [[nodiscard]] constexpr std::uint64_t seed() const noexcept { return seed_; }

  /// Gives out the next logical step: 0, 1, 2, ... Throws std::overflow_error instead of giving one twice.
  [[nodiscard]] std::uint64_t next_step() { return detail::take_step(next_step_); }

  /// Number of steps given out.
  [[nodiscard]] constexpr std::uint64_t step() const noexcept { return next_step_; }

 private:
  chacha_key key_;
  std::uint64_t seed_;
  std::uint64_t next_step_;
};

static_assert(random_generator<os_keyed_generator> && random_generator<seeded_generator>);

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// How the papers arrange the work; all give the same sums to rounding. `book_keeping` is the default.
using strategy = on_host::strategy_kind;

template <class Leaf, bool Clipped>
class gradient_row;

namespace detail {

/// Base of everything that is a per-sample gradient expression, so that its misuse can be explained.
struct expression_tag {};
struct per_sample_scalar_tag : expression_tag {};

}  // namespace detail

/// Per-sample gradients of `loss(network(sample))` for every sample of a batch, not computed yet.
///
/// A light value: copies are free, and evaluating twice gives the same bits. The network, batch and tape must outlive
/// it.
template <class Network, class Loss>
class per_sample_gradient_leaf : public detail::expression_tag {
 public:
  using network_type = Network;
  using loss_type = Loss;
  using scalar = typename Network::scalar;

  per_sample_gradient_leaf(const Network& network, Loss loss, const batch<Network, Loss>& samples, tape<Network>& tape)
      : network_{&network}, batch_{&samples}, tape_{&tape}, loss_{loss} {
    if (samples.size() > tape.capacity()) {
      throw std::invalid_argument("pergrad: a batch of " + std::to_string(samples.size()) + " samples on a tape for " +
                                  std::to_string(tape.capacity()) +
                                  ": evaluate it in chunks, or construct the tape with " + "pergrad::max_batch{" +
                                  std::to_string(samples.size()) + "}");
    }
  }

  /// Number of samples.
  [[nodiscard]] std::size_t size() const noexcept { return batch_->size(); }
  /// The gradient of one sample, lazily. Throws std::out_of_range.
  [[nodiscard]] gradient_row<per_sample_gradient_leaf, false> operator[](std::size_t sample) const;

  [[nodiscard]] const Network& network() const noexcept { return *network_; }
  [[nodiscard]] norm_method method() const noexcept { return method_; }
  [[nodiscard]] pergrad::strategy strategy() const noexcept { return strategy_; }

  /// Do both read the same gradients in the same way? Expressions in one evaluation must.
  [[nodiscard]] bool same_as(const per_sample_gradient_leaf& other) const noexcept {
    return network_ == other.network_ && batch_ == other.batch_ && tape_ == other.tape_ && method_ == other.method_ &&
           method_layers_ == other.method_layers_ && strategy_ == other.strategy_ && randomness_ == other.randomness_;
  }

  /// Carries out a request; `count` samples from `first` on.
  void run(const host& executor, on_host::run_request<scalar>& request) const {
    using engine = on_host::engine<Network>;
    request.method = method_;
    request.method_layers = method_layers_;
    request.strategy = strategy_;
    request.randomness = randomness_;
    on_host::sample_source<scalar> source;
    source.context = this;
    source.input = [](const void* self, std::size_t sample) -> const void* {
      return static_cast<const per_sample_gradient_leaf*>(self)->batch_->input(sample);
    };
    source.record = [](const void* self, std::size_t sample) {
      return static_cast<std::uint32_t>(static_cast<const per_sample_gradient_leaf*>(self)->batch_->record(sample));
    };
    source.length = [](const void* self, std::size_t sample) {
      return static_cast<const per_sample_gradient_leaf*>(self)->batch_->length(sample);
    };
    source.loss = [](const void* self, std::size_t sample, std::span<const scalar> y, std::span<scalar> dy) {
      const auto* leaf = static_cast<const per_sample_gradient_leaf*>(self);
      return leaf->loss_.evaluate(y, leaf->batch_->targets(sample), dy);
    };
    engine::run(executor, *network_, *tape_, source, request);
  }

  [[nodiscard]] per_sample_gradient_leaf with(norm_method method, std::uint64_t layers) const noexcept {
    per_sample_gradient_leaf result = *this;
    result.method_ = method;
    result.method_layers_ = layers;
    return result;
  }
  [[nodiscard]] per_sample_gradient_leaf with(pergrad::strategy strategy) const noexcept {
    per_sample_gradient_leaf result = *this;
    result.strategy_ = strategy;
    return result;
  }
  [[nodiscard]] per_sample_gradient_leaf with(layer_randomness randomness) const noexcept {
    per_sample_gradient_leaf result = *this;
    result.randomness_ = randomness;
    return result;
  }

 private:
  const Network* network_;
  const batch<Network, Loss>* batch_;
  tape<Network>* tape_;
  [[no_unique_address]] Loss loss_;
  norm_method method_ = norm_method::automatic;
  std::uint64_t method_layers_ = ~std::uint64_t{0};
  pergrad::strategy strategy_ = pergrad::strategy::book_keeping;
  layer_randomness randomness_;
};

namespace detail {

template <class Type>
struct is_leaf : std::false_type {};
template <class Network, class Loss>
struct is_leaf<per_sample_gradient_leaf<Network, Loss>> : std::true_type {};

/// An expression, or what stands in for one. Each function of expressions has an overload for expressions that it does
/// not take: it explains.
template <class Type>
concept expression = std::is_base_of_v<expression_tag, Type> || is_explained<Type>;
template <class Type>
concept expression_but_no_leaf = expression<Type> && !is_leaf<Type>::value;

}  // namespace detail

/// The lazy per-sample gradients of a batch. Network, batch and tape are referred to: name them.
/// Throws std::invalid_argument if the batch is larger than the tape.
template <class Network, class Loss, class Batch, class Tape>
[[nodiscard]] auto per_sample_gradients(Network&& network, Loss loss, Batch&& samples, Tape&& tape_to_use) {
  using network_type = std::remove_cvref_t<Network>;
  using batch_type = std::remove_cvref_t<Batch>;
  using tape_type = std::remove_cvref_t<Tape>;
  if constexpr (detail::any_explained<Network, Batch, Tape>) {
    return error::explained{};
  } else if constexpr (!std::is_lvalue_reference_v<Tape>) {
    static_cast<void>(error::temporary_tape<tape_type>{});
    return error::explained{};
  } else if constexpr (!std::is_lvalue_reference_v<Network> || !std::is_lvalue_reference_v<Batch>) {
    static_cast<void>(
        error::temporary_operand<std::conditional_t<std::is_lvalue_reference_v<Network>, batch_type, network_type>>{});
    return error::explained{};
  } else if constexpr (detail::cannot_be_trained<network_type, Loss>) {
    static_cast<void>(detail::loss_explanation<network_type, Loss>{});
    return error::explained{};
  } else if constexpr (!std::is_same_v<tape_type, tape<network_type>> ||
                       std::is_const_v<std::remove_reference_t<Tape>>) {
    static_cast<void>(error::tape_does_not_fit<network_type, std::remove_reference_t<Tape>>{});
    return error::explained{};
  } else if constexpr (!std::is_same_v<batch_type, batch<network_type, Loss>>) {
    static_cast<void>(error::batch_does_not_fit<network_type, Loss, batch_type>{});
    return error::explained{};
  } else {
    return per_sample_gradient_leaf<network_type, Loss>{network, loss, samples, tape_to_use};
  }
}

/// The same gradients, with the norms of all outer-product blocks found by `Method`, or of the listed entries of the
/// unfolded list (see `describe`) only. `product` is exact for one position only: blocks with more keep their own
/// method unless they are listed, which is an error.
template <norm_method Method, std::size_t... Entries, class Network, class Loss>
[[nodiscard]] auto with_method(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  constexpr auto positions = [](std::size_t entry) -> std::size_t {
    for (const on_host::outer_leaf& leaf : on_host::program<Network>::table.outer) {
      if (leaf.node == entry && leaf.positions() != 1) return static_cast<std::size_t>(leaf.positions());
    }
    return 1;
  };
  using method_type = std::integral_constant<norm_method, Method>;
  if constexpr (Method == norm_method::elementwise || !((Entries < 64 && Entries < Network::structure::size) && ...)) {
    static_cast<void>(error::method_not_offered<method_type, error::entries<Entries...>>{});
    return error::explained{};
  } else if constexpr (Method == norm_method::product && !((positions(Entries) == 1) && ...)) {
    constexpr std::size_t most_positions = std::max({std::size_t{1}, positions(Entries)...});
    static_cast<void>(error::product_method_needs_one_position<method_type, error::entries<Entries...>,
                                                               error::count<most_positions>>{});
    return error::explained{};
  } else {
    constexpr std::uint64_t layers =
        sizeof...(Entries) == 0 ? ~std::uint64_t{0} : ((std::uint64_t{1} << Entries) | ... | 0U);
    return gradients.with(Method, layers);
  }
}
/// The same gradients by another strategy of the papers.
template <strategy Strategy, class Network, class Loss>
[[nodiscard]] auto with_strategy(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return gradients.with(Strategy);
}
/// The same gradients in training, where layers such as dropout are random; without this they behave as in evaluation.
/// The bits are a function of the generator's key, of the step that is drawn here, of record, layer and element: tiles,
/// chunks and threads do not matter, and evaluating twice gives the same. The generator is referred to.
template <class Network, class Loss, random_generator Generator>
[[nodiscard]] auto with_randomness(const per_sample_gradient_leaf<Network, Loss>& gradients, Generator& generator) {
  return gradients.with(layer_randomness{&generator.key(), generator.next_step()});
}
}  // namespace pergrad::inline v0_1
// pergrad/privacy/clip.hpp - clip factors that round down: what is added to a sum never has a norm above C
//
// w = min(1, C / ‖g‖) (Abadi et al. 2016, arXiv:1607.00133), with ‖g‖ replaced by an upper bound N of the norm of the
// numbers that are really added, and w rounded towards zero:
//   N = sqrt(squared + error) (1 + n u) + sqrt(slack)     squared: double sums of squares, n terms; error: cancellation
//   in Gram
//                                                         sums; slack: what the sum's own rounding can add to a
//                                                         sample's share
//   w = C' / N (1 - 8 u_S),  C' = C - (2 sqrt(n) + spread) d     u_S: unit roundoff of the scalar; d: its smallest
//   subnormal
// Rounding w g_i errs by at most u_S |w g_i| + d / 2. Where the sum is X^T diag(w) Delta, it is w delta_j that errs by
// u_S |w delta_j| + d / 2, and then x_i carries that d / 2 along however large it is: spread = sum_t ‖x_t‖ sqrt(p). So
// the norm of what is added is at most w N (1 + u_S)² + (2 sqrt(n) + spread) d <= C.

namespace pergrad::inline v0_1 {

/// What is known of a squared norm; see the head of this file.
struct norm_bound {
  double squared = 0;
  double error = 0;
  double slack = 0;
  double spread = 0;
};

/// An upper bound of the norm of what is added for a gradient of `count` parameters; infinite or NaN if it is not
/// finite.
[[nodiscard]] inline double norm_upper_bound(norm_bound known, std::size_t count) noexcept {
  const double unit = std::numeric_limits<double>::epsilon();
  return std::sqrt(known.squared + known.error) * (1 + static_cast<double>(count + 4) * unit) + std::sqrt(known.slack);
}

/// Does a gradient with this norm count as finite? Beyond the largest Scalar it does not: by some methods its norm is
/// known while it could never be written down, by others it overflows, and all must leave it out alike.
template <class Scalar>
[[nodiscard]] inline bool is_finite_norm(double norm) noexcept {
  return norm <= static_cast<double>(std::numeric_limits<Scalar>::max());
}

/// `value` as a Scalar, rounded towards zero. Precondition: value >= 0.
template <class Scalar>
[[nodiscard]] inline Scalar rounded_down(double value) noexcept {
  const auto rounded = static_cast<Scalar>(value);
  return static_cast<double>(rounded) > value ? std::nextafter(rounded, Scalar{0}) : rounded;
}

namespace detail {

/// C' of the head of this file: what of `bound` is left for a gradient beside the smallest numbers' rounding.
template <class Scalar>
[[nodiscard]] inline double clip_room(norm_bound known, std::size_t count, double bound) noexcept {
  const double subnormal = static_cast<double>(std::numeric_limits<Scalar>::denorm_min());
  return bound - (2 * std::sqrt(static_cast<double>(count)) + known.spread) * subnormal;
}
/// room / divisor with room for two roundings, rounded towards zero; 0 where there is no room.
template <class Scalar>
[[nodiscard]] inline Scalar safe_quotient(double room, double divisor) noexcept {
  const double unit = static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  return room > 0 ? rounded_down<Scalar>(room / divisor * (1 - 8 * unit)) : Scalar{0};
}

}  // namespace detail

/// The largest safe factor w with ‖w g‖ <= bound, at most 1; exactly 0 for a gradient that is not finite.
template <class Scalar>
[[nodiscard]] inline Scalar clip_factor(norm_bound known, std::size_t count, double bound) noexcept {
  const double norm = norm_upper_bound(known, count);
  if (!is_finite_norm<Scalar>(norm)) return 0;
  const double unit = static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  const double room = detail::clip_room<Scalar>(known, count, bound);
  return norm <= room * (1 - 4 * unit) ? Scalar{1} : detail::safe_quotient<Scalar>(room, norm);
}

/// Automatic clipping's factor C / (‖g‖ + stability), which never exceeds the clip factor (Bu et al. 2022,
/// arXiv:2206.07136).
template <class Scalar>
[[nodiscard]] inline Scalar normalise_factor(norm_bound known, std::size_t count, double bound,
                                             double stability) noexcept {
  const double norm = norm_upper_bound(known, count);
  if (!is_finite_norm<Scalar>(norm)) return 0;
  return detail::safe_quotient<Scalar>(detail::clip_room<Scalar>(known, count, bound), norm + stability);
}

}  // namespace pergrad::inline v0_1
// pergrad/privacy/types.hpp - strong types for the numbers of private training that must never be swapped.
//
// Every type holds one double, checked once when it is made, so that no function behind this border has to ask again.
// NaN fails every check. Names follow Abadi et al. 2016 (arXiv:1607.00133) and Dwork & Roth 2014.

namespace pergrad::inline v0_1 {

namespace detail {

[[noreturn]] inline void throw_bad_number(const char* what, const char* need, double got) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", got);
  throw std::invalid_argument(std::string{"pergrad: "} + what + " must be " + need + ", got " + text);
}

inline constexpr double largest_double = std::numeric_limits<double>::max();

/// Base of the strong types: `Derived` says its name, what it needs and which values it holds.
template <class Derived>
class checked_number {
 public:
  /// Throws std::invalid_argument, naming the type and the value, unless `Derived::holds(value)`.
  constexpr explicit checked_number(double value) : value_{value} {
    if (!Derived::holds(value)) throw_bad_number(Derived::name, Derived::need, value);
  }

  [[nodiscard]] constexpr double value() const noexcept { return value_; }

  friend constexpr bool operator==(const Derived& left, const Derived& right) noexcept {
    return left.value() == right.value();
  }

 private:
  double value_;
};

}  // namespace detail

/// Bound C on the L2 norm of one sample's gradient: finite, at least 1e-30.
struct l2_clip_norm : detail::checked_number<l2_clip_norm> {
  using detail::checked_number<l2_clip_norm>::checked_number;
  static constexpr const char* name = "l2_clip_norm";
  static constexpr const char* need = "finite and at least 1e-30";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 1e-30 && x <= detail::largest_double; }
};

/// Standard deviation of the noise divided by the L2 sensitivity of the sum: finite, not negative.
struct noise_multiplier : detail::checked_number<noise_multiplier> {
  using detail::checked_number<noise_multiplier>::checked_number;
  static constexpr const char* name = "noise_multiplier";
  static constexpr const char* need = "finite and not negative";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 0 && x <= detail::largest_double; }
};

/// Probability with which each record enters a step's batch, independently of all others: in [0, 1].
struct sampling_probability : detail::checked_number<sampling_probability> {
  using detail::checked_number<sampling_probability>::checked_number;
  static constexpr const char* name = "sampling_probability";
  static constexpr const char* need = "in [0, 1]";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 0 && x <= 1; }
};

/// Public constant that divides a noisy sum; never the size of a drawn batch. Finite and positive.
struct expected_batch_size : detail::checked_number<expected_batch_size> {
  using detail::checked_number<expected_batch_size>::checked_number;
  static constexpr const char* name = "expected_batch_size";
  static constexpr const char* need = "finite and positive";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x > 0 && x <= detail::largest_double; }
};

/// Privacy loss bound of (epsilon, delta)-differential privacy: not negative; infinity means no guarantee.
struct epsilon : detail::checked_number<epsilon> {
  using detail::checked_number<epsilon>::checked_number;
  static constexpr const char* name = "epsilon";
  static constexpr const char* need = "not negative";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 0; }
};

/// Probability with which the bound epsilon may fail: strictly between 0 and 1.
struct delta : detail::checked_number<delta> {
  using detail::checked_number<delta>::checked_number;
  static constexpr const char* name = "delta";
  static constexpr const char* need = "strictly between 0 and 1";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x > 0 && x < 1; }
};

/// Step size of an optimizer: finite and positive.
struct learning_rate : detail::checked_number<learning_rate> {
  using detail::checked_number<learning_rate>::checked_number;
  static constexpr const char* name = "learning_rate";
  static constexpr const char* need = "finite and positive";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x > 0 && x <= detail::largest_double; }
};

/// Which datasets are neighbours: one with a record more or less, or one with a record exchanged.
enum class neighbouring { add_or_remove_one, replace_one };

/// What a training run may spend in total.
struct privacy_budget {
  pergrad::epsilon max_epsilon;
  pergrad::delta delta;
};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

namespace detail {

[[nodiscard]] inline norm_bound bound_of(const on_host::norm_part& part) noexcept {
  return {part.squared, part.error, part.slack, part.spread};
}

/// w = min(1, C / ‖g‖)
struct flat_clip {
  static constexpr bool per_layer = false;
  double bound;
  [[nodiscard]] double sensitivity() const noexcept { return bound; }
  template <class Network, class Scalar>
  void weigh(const on_host::sample_facts<Scalar>& facts, Scalar* weights) const noexcept {
    weights[0] = clip_factor<Scalar>(bound_of(facts.norm), Network::parameter_count, bound);
  }
};

/// w = C / (‖g‖ + stability)
struct flat_normalise {
  static constexpr bool per_layer = false;
  double bound;
  double stability;
  [[nodiscard]] double sensitivity() const noexcept { return bound; }
  template <class Network, class Scalar>
  void weigh(const on_host::sample_facts<Scalar>& facts, Scalar* weights) const noexcept {
    weights[0] = normalise_factor<Scalar>(bound_of(facts.norm), Network::parameter_count, bound, stability);
  }
};

/// w_l = min(1, C_l / ‖g_l‖) for every layer with parameters; the whole sample is left out if any layer is not finite.
template <std::size_t Layers>
struct layer_clip {
  static constexpr bool per_layer = true;
  std::array<double, Layers> bounds;
  /// sqrt(sum C_l²), rounded up.
  [[nodiscard]] double sensitivity() const noexcept {
    double sum = 0;
    for (const double bound : bounds) sum += bound * bound;
    return std::sqrt(sum) * (1 + static_cast<double>(Layers + 4) * std::numeric_limits<double>::epsilon());
  }
  template <class Network, class Scalar>
  void weigh(const on_host::sample_facts<Scalar>& facts, Scalar* weights) const noexcept {
    const bool finite = is_finite_norm<Scalar>(norm_upper_bound(bound_of(facts.norm), Network::parameter_count));
    for (std::size_t layer = 0; layer < Layers; ++layer) {
      weights[layer] = finite
                           ? clip_factor<Scalar>(bound_of(facts.layers[layer]), Network::parameter_count, bounds[layer])
                           : Scalar{0};
    }
  }
};

/// w_k = min(1, C_k / ‖g_k‖) for every clipping group k of layers; the whole sample is left out if it is not finite.
template <std::size_t Groups>
struct group_clip {
  static constexpr bool per_layer = true;
  std::array<double, Groups> bounds;
  /// sqrt(sum C_k²), rounded up.
  [[nodiscard]] double sensitivity() const noexcept { return layer_clip<Groups>{bounds}.sensitivity(); }
  template <class Network, class Scalar>
  void weigh(const on_host::sample_facts<Scalar>& facts, Scalar* weights) const noexcept {
    constexpr const auto& table = on_host::program<Network>::table;
    std::array<on_host::norm_part, Groups> norms{};
    for (std::size_t layer = 0; layer < table.layer_groups; ++layer) {
      norms[table.clipping_group[layer]] += facts.layers[layer];
    }
    const bool finite = is_finite_norm<Scalar>(norm_upper_bound(bound_of(facts.norm), Network::parameter_count));
    for (std::size_t layer = 0; layer < table.layer_groups; ++layer) {
      const std::size_t group = table.clipping_group[layer];
      weights[layer] =
          finite ? clip_factor<Scalar>(bound_of(norms[group]), Network::parameter_count, bounds[group]) : Scalar{0};
    }
  }
};

template <class Network>
inline constexpr std::size_t clipping_groups = on_host::program<Network>::table.clipping_groups;
template <class Network>
inline constexpr std::size_t layer_groups = on_host::program<Network>::table.layer_groups;

}  // namespace detail

/// Per-sample gradients, each scaled to a norm of at most its rule's bound. A sample whose gradient is not finite
/// counts as 0.
template <class Leaf, class Rule>
class clipped_gradients : public detail::expression_tag {
 public:
  using leaf_type = Leaf;
  using rule_type = Rule;
  using scalar = typename Leaf::scalar;

  clipped_gradients(Leaf leaf, Rule rule) : leaf_{leaf}, rule_{rule} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] const Rule& rule() const noexcept { return rule_; }
  [[nodiscard]] std::size_t size() const noexcept { return leaf_.size(); }
  /// The most that adding or removing one sample can move the sum, in L2.
  [[nodiscard]] double sensitivity() const noexcept { return rule_.sensitivity(); }

  /// One clipped gradient, lazily. Throws std::out_of_range.
  [[nodiscard]] gradient_row<clipped_gradients, true> operator[](std::size_t sample) const;

  /// Fills in the weights part of a request; the rule must live until the evaluation is over.
  void weigh_into(on_host::sum_request<scalar>& request) const noexcept {
    request.unit = false;
    request.per_layer = Rule::per_layer;
    request.weigher = &rule_;
    request.weigh = [](const void* rule, const on_host::sample_facts<scalar>& facts, scalar* weights) {
      static_cast<const Rule*>(rule)->template weigh<typename Leaf::network_type>(facts, weights);
    };
  }

 private:
  Leaf leaf_;
  Rule rule_;
};

/// g_b min(1, C / ‖g_b‖): the norm of what is added is at most C exactly, in the numbers that are added.
template <class Network, class Loss>
[[nodiscard]] auto clip(const per_sample_gradient_leaf<Network, Loss>& gradients, l2_clip_norm bound) {
  return clipped_gradients{gradients, detail::flat_clip{bound.value()}};
}

/// Every layer with parameters clipped on its own: `bounds` has one C_l a layer, in order. Sensitivity sqrt(sum C_l²).
/// Throws std::invalid_argument for another number of bounds.
template <class Network, class Loss>
[[nodiscard]] auto clip_per_layer(const per_sample_gradient_leaf<Network, Loss>& gradients,
                                  std::span<const l2_clip_norm> bounds) {
  constexpr std::size_t layers = detail::layer_groups<Network>;
  if (bounds.size() != layers) {
    throw std::invalid_argument("pergrad: clip_per_layer: " + std::to_string(bounds.size()) + " bounds for " +
                                std::to_string(layers) + " layers with parameters");
  }
  detail::layer_clip<layers> rule{};
  for (std::size_t layer = 0; layer < layers; ++layer) rule.bounds[layer] = bounds[layer].value();
  return clipped_gradients{gradients, rule};
}
/// Every layer with parameters clipped to C / sqrt(layers), so that the whole has sensitivity C.
template <class Network, class Loss>
[[nodiscard]] auto clip_per_layer(const per_sample_gradient_leaf<Network, Loss>& gradients, l2_clip_norm bound) {
  constexpr std::size_t layers = detail::layer_groups<Network>;
  detail::layer_clip<layers> rule{};
  rule.bounds.fill(bound.value() / std::sqrt(static_cast<double>(layers == 0 ? 1 : layers)));
  return clipped_gradients{gradients, rule};
}

/// Every clipping group clipped on its own: group k is what `parameter_group<k, ...>` holds, group 0 all the rest;
/// `bounds` has one C_k a group. Sensitivity sqrt(sum C_k²). Throws std::invalid_argument for another number of bounds.
template <class Network, class Loss>
[[nodiscard]] auto clip_per_group(const per_sample_gradient_leaf<Network, Loss>& gradients,
                                  std::span<const l2_clip_norm> bounds) {
  constexpr std::size_t groups = detail::clipping_groups<Network>;
  if (bounds.size() != groups) {
    throw std::invalid_argument("pergrad: clip_per_group: " + std::to_string(bounds.size()) + " bounds for " +
                                std::to_string(groups) + " clipping groups");
  }
  detail::group_clip<groups> rule{};
  for (std::size_t group = 0; group < groups; ++group) rule.bounds[group] = bounds[group].value();
  return clipped_gradients{gradients, rule};
}

/// g_b C / (‖g_b‖ + stability): automatic clipping (Bu et al. 2022, arXiv:2206.07136). Sensitivity C.
/// Throws std::invalid_argument unless stability is positive and finite.
template <class Network, class Loss>
[[nodiscard]] auto normalise(const per_sample_gradient_leaf<Network, Loss>& gradients,
                             l2_clip_norm bound = l2_clip_norm{1.0}, double stability = 0.01) {
  if (!(stability > 0) || !std::isfinite(stability)) {
    throw std::invalid_argument("pergrad: normalise: stability must be positive and finite, got " +
                                std::to_string(stability));
  }
  return clipped_gradients{gradients, detail::flat_normalise{bound.value(), stability}};
}

}  // namespace pergrad::inline v0_1
// pergrad/gradients/evaluate.hpp - the verbs: they alone compute, and they name the executor
//
//   evaluate_into(exec, update, sum(clip(g, C)) + gaussian_noise(sigma, rng))              a release
//   unprotected::evaluate(exec, l2_norms(g))                                              a private value, returned
//   unprotected::evaluate_into(exec, assign(total, sum(clip(g, C))), assign(norms, l2_norms(g)), assign(ls, losses(g)))
// However many results one call asks for, it runs one forward and one backward pass.

// pergrad/gradients/misuse.hpp - what functions of expressions say to expressions that they do not take
//
// Every function has one more overload, for expressions for which it has no meaning: it compiles to one readable error,
// and what it returns takes the place of the result without another word. Constraints keep it out of the way of what
// has a meaning.

// pergrad/gradients/noise.hpp - Gaussian noise on a bounded sum: the only thing that a private optimizer accepts
//
// standard deviation = noise_multiplier * sensitivity. The sensitivity comes from the clipped sum itself, so it can
// neither be forgotten nor mistyped. Noise is a function of (key, step, parameter index): one step of the generator an
// evaluation, whatever the batch, the chunks and the threads. It is drawn for an empty batch as well.

// pergrad/gradients/sums.hpp - what can be made of per-sample gradients over a batch: sums, moments, rows, products
//
// Every class here is a value that says what it wants from one evaluation: `attach` fills in a request, `finish`
// completes the result. Only sum(clip(...)) and its kin know a sensitivity.

// pergrad/gradients/scalars.hpp - one number a sample: losses, norms, projections, and arithmetic on them
//
// These are private values. They come out under `unprotected::` only, and as weights of a sum they give it no
// sensitivity.

namespace pergrad::inline v0_1 {

/// An expression with one double a sample.
template <class Type>
concept per_sample_scalar = std::is_base_of_v<detail::per_sample_scalar_tag, Type>;

namespace detail {

/// What a scalar expression needs of the engine.
struct scalar_needs {
  bool backward = false;
  bool norms = false;
  [[nodiscard]] constexpr scalar_needs with(scalar_needs other) const noexcept {
    return {backward || other.backward, norms || other.norms};
  }
};

template <class Leaf>
struct loss_of : per_sample_scalar_tag {
  Leaf leaf;
  static constexpr scalar_needs needs{};
  template <class Scalar>
  [[nodiscard]] double at(const on_host::sample_facts<Scalar>& facts) const noexcept {
    return facts.loss;
  }
  explicit loss_of(Leaf of) : leaf{of} {}
};

template <class Leaf, bool Squared>
struct norm_of : per_sample_scalar_tag {
  Leaf leaf;
  static constexpr scalar_needs needs{true, true};
  template <class Scalar>
  [[nodiscard]] double at(const on_host::sample_facts<Scalar>& facts) const noexcept {
    return Squared ? facts.norm.squared : std::sqrt(facts.norm.squared);
  }
  explicit norm_of(Leaf of) : leaf{of} {}
};

template <class Leaf>
struct projection_of : per_sample_scalar_tag {
  Leaf leaf;
  std::span<const typename Leaf::scalar> direction;
  static constexpr scalar_needs needs{true, true};
  template <class Scalar>
  [[nodiscard]] double at(const on_host::sample_facts<Scalar>& facts) const noexcept {
    return facts.projection;
  }
  projection_of(Leaf of, std::span<const typename Leaf::scalar> along) : leaf{of}, direction{along} {}
};

template <class Operation, class Left, class Right>
struct scalar_pair : per_sample_scalar_tag {
  Left left;
  Right right;
  static constexpr scalar_needs needs = [] {
    scalar_needs result;
    if constexpr (per_sample_scalar<Left>) result = result.with(Left::needs);
    if constexpr (per_sample_scalar<Right>) result = result.with(Right::needs);
    return result;
  }();
  scalar_pair(Left a, Right b) : left{a}, right{b} {
    if constexpr (per_sample_scalar<Left> && per_sample_scalar<Right>) {
      if (!leaf_of(left).same_as(leaf_of(right))) {
        throw std::invalid_argument("pergrad: an expression mixes the per-sample gradients of different evaluations");
      }
    }
  }
  template <class Scalar>
  [[nodiscard]] double at(const on_host::sample_facts<Scalar>& facts) const noexcept {
    return Operation{}(value(left, facts), value(right, facts));
  }

 private:
  template <class Operand, class Scalar>
  [[nodiscard]] static double value(const Operand& operand, const on_host::sample_facts<Scalar>& facts) noexcept {
    if constexpr (per_sample_scalar<Operand>) {
      return operand.at(facts);
    } else {
      return static_cast<double>(operand);
    }
  }
};

/// The leaf that a scalar expression reads.
template <per_sample_scalar Expression>
[[nodiscard]] auto leaf_of(const Expression& expression) {
  if constexpr (requires { expression.leaf; }) {
    return expression.leaf;
  } else if constexpr (per_sample_scalar<decltype(expression.left)>) {
    return leaf_of(expression.left);
  } else {
    return leaf_of(expression.right);
  }
}

/// The direction that a scalar expression projects on, if any; more than one cannot be served by one evaluation.
template <class Scalar, class Expression>
[[nodiscard]] const Scalar* direction_of(const Expression& expression) {
  if constexpr (requires { expression.direction; }) {
    return expression.direction.data();
  } else if constexpr (requires { expression.left; }) {
    const Scalar* left = direction_of<Scalar>(expression.left);
    const Scalar* right = direction_of<Scalar>(expression.right);
    if (left != nullptr && right != nullptr && left != right) {
      throw std::invalid_argument("pergrad: one evaluation can project on one direction only");
    }
    return left != nullptr ? left : right;
  } else {
    return nullptr;
  }
}

template <class Type>
concept scalar_operand = per_sample_scalar<Type> || std::is_arithmetic_v<Type>;

struct plus {
  double operator()(double a, double b) const noexcept { return a + b; }
};
struct minus {
  double operator()(double a, double b) const noexcept { return a - b; }
};
struct times {
  double operator()(double a, double b) const noexcept { return a * b; }
};
struct divided {
  double operator()(double a, double b) const noexcept { return a / b; }
};
struct smaller {
  double operator()(double a, double b) const noexcept { return std::min(a, b); }
};
struct larger {
  double operator()(double a, double b) const noexcept { return std::max(a, b); }
};
struct powered {
  double operator()(double a, double b) const noexcept { return std::pow(a, b); }
};

template <class Left, class Right>
concept scalar_pairing = (per_sample_scalar<Left> && scalar_operand<Right>) ||
                         (scalar_operand<Left> && per_sample_scalar<Right>);

}  // namespace detail

/// The loss of every sample.
template <class Network, class Loss>
[[nodiscard]] auto losses(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return detail::loss_of{gradients};
}
/// The L2 norm of every sample's gradient.
template <class Network, class Loss>
[[nodiscard]] auto l2_norms(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return detail::norm_of<per_sample_gradient_leaf<Network, Loss>, false>{gradients};
}
/// The squared L2 norm of every sample's gradient.
template <class Network, class Loss>
[[nodiscard]] auto squared_l2_norms(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return detail::norm_of<per_sample_gradient_leaf<Network, Loss>, true>{gradients};
}
/// The inner product of every sample's gradient with `direction`, parameter_count values in PyTorch's order that must
/// live until the evaluation. Throws std::invalid_argument for another size.
template <class Network, class Loss>
[[nodiscard]] auto dot(const per_sample_gradient_leaf<Network, Loss>& gradients,
                       std::type_identity_t<std::span<const typename Network::scalar>> direction) {
  if (direction.size() != Network::parameter_count) {
    throw std::invalid_argument("pergrad: dot: a direction of " + std::to_string(direction.size()) + " values for " +
                                std::to_string(Network::parameter_count) + " parameters");
  }
  return detail::projection_of<per_sample_gradient_leaf<Network, Loss>>{gradients, direction};
}

/// Arithmetic on per-sample scalars and numbers, in double.
template <class Left, class Right>
requires detail::scalar_pairing<Left, Right>
[[nodiscard]] auto operator+(const Left& left, const Right& right) {
  return detail::scalar_pair<detail::plus, Left, Right>{left, right};
}
template <class Left, class Right>
requires detail::scalar_pairing<Left, Right>
[[nodiscard]] auto operator-(const Left& left, const Right& right) {
  return detail::scalar_pair<detail::minus, Left, Right>{left, right};
}
template <class Left, class Right>
requires detail::scalar_pairing<Left, Right>
[[nodiscard]] auto operator*(const Left& left, const Right& right) {
  return detail::scalar_pair<detail::times, Left, Right>{left, right};
}
template <class Left, class Right>
requires detail::scalar_pairing<Left, Right>
[[nodiscard]] auto operator/(const Left& left, const Right& right) {
  return detail::scalar_pair<detail::divided, Left, Right>{left, right};
}
template <class Left, class Right>
requires detail::scalar_pairing<Left, Right>
[[nodiscard]] auto min(const Left& left, const Right& right) {
  return detail::scalar_pair<detail::smaller, Left, Right>{left, right};
}
template <class Left, class Right>
requires detail::scalar_pairing<Left, Right>
[[nodiscard]] auto max(const Left& left, const Right& right) {
  return detail::scalar_pair<detail::larger, Left, Right>{left, right};
}
template <class Left, class Right>
requires detail::scalar_pairing<Left, Right>
[[nodiscard]] auto pow(const Left& left, const Right& right) {
  return detail::scalar_pair<detail::powered, Left, Right>{left, right};
}

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

namespace detail {

template <class Scalar>
on_host::sum_request<Scalar>& new_sum(on_host::run_request<Scalar>& request) {
  if (request.sum_count == on_host::most_sums) {
    throw std::invalid_argument("pergrad: one evaluation forms at most " + std::to_string(on_host::most_sums) +
                                " sums");
  }
  request.backward = true;
  return request.sums[request.sum_count++];
}
template <class Scalar>
on_host::observer<Scalar>& new_observer(on_host::run_request<Scalar>& request) {
  if (request.observer_count == on_host::most_observers) {
    throw std::invalid_argument("pergrad: one evaluation serves at most " + std::to_string(on_host::most_observers) +
                                " per-sample results");
  }
  return request.observers[request.observer_count++];
}

}  // namespace detail

/// sum_b g_b, or with a public scale 1 / B their mean: the ordinary gradient. It has no sensitivity.
template <class Leaf>
class plain_sum : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  plain_sum(Leaf leaf, double scale) : leaf_{leaf}, scale_{scale} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] static constexpr std::size_t value_count(const Leaf&) { return Leaf::network_type::parameter_count; }
  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    auto& sum = detail::new_sum(request);
    sum.out = out.data();
    sum.scale = scale_;
    sum.accumulate = accumulate;
  }

 private:
  Leaf leaf_;
  double scale_;
};

/// sum_b w_b g_b with weights from a per-sample scalar expression or from a list. Any weights, so no sensitivity.
template <class Leaf, class Weights>
class weighted_gradient_sum : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  weighted_gradient_sum(Leaf leaf, Weights weights) : leaf_{leaf}, weights_{weights} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] static constexpr std::size_t value_count(const Leaf&) { return Leaf::network_type::parameter_count; }
  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    auto& sum = detail::new_sum(request);
    sum.unit = false;
    sum.weigher = &weights_;
    sum.out = out.data();
    sum.accumulate = accumulate;
    request.norms = true;
    if constexpr (per_sample_scalar<Weights>) {
      if (const scalar* direction = detail::direction_of<scalar>(weights_); direction != nullptr) {
        if (request.direction != nullptr && request.direction != direction) {
          throw std::invalid_argument("pergrad: one evaluation can project on one direction only");
        }
        request.direction = direction;
      }
      sum.weigh = [](const void* weights, const on_host::sample_facts<scalar>& facts, scalar* weight) {
        *weight = static_cast<scalar>(static_cast<const Weights*>(weights)->at(facts));
      };
    } else {
      sum.weigh = [](const void* weights, const on_host::sample_facts<scalar>& facts, scalar* weight) {
        *weight = (*static_cast<const Weights*>(weights))[facts.sample];
      };
    }
  }

 private:
  Leaf leaf_;
  Weights weights_;
};

/// sum_b clip(g_b): the only sum that noise can be added to. Knows how far one sample can move it.
template <class Leaf, class Rule>
class bounded_sum : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  bounded_sum(clipped_gradients<Leaf, Rule> clipped, neighbouring relation) : clipped_{clipped}, relation_{relation} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return clipped_.leaf(); }
  [[nodiscard]] neighbouring relation() const noexcept { return relation_; }
  /// The most that neighbouring batches can differ by, in L2: C if one sample is added or removed, 2 C if one is
  /// replaced.
  [[nodiscard]] double sensitivity() const noexcept {
    return (relation_ == neighbouring::replace_one ? 2 : 1) * clipped_.sensitivity();
  }
  [[nodiscard]] static constexpr std::size_t value_count(const Leaf&) { return Leaf::network_type::parameter_count; }
  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    auto& sum = detail::new_sum(request);
    clipped_.weigh_into(sum);
    request.norms = true;
    sum.out = out.data();
    sum.accumulate = accumulate;
  }

 private:
  clipped_gradients<Leaf, Rule> clipped_;
  neighbouring relation_;
};

/// (1/B) sum_b g_b², element by element.
template <class Leaf>
class second_moment_of : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  explicit second_moment_of(Leaf leaf) : leaf_{leaf} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] static constexpr std::size_t value_count(const Leaf&) { return Leaf::network_type::parameter_count; }
  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    auto& sum = detail::new_sum(request);
    sum.squares = true;
    sum.scale = 1 / static_cast<double>(leaf_.size());
    sum.out = out.data();
    sum.accumulate = accumulate;
  }

 private:
  Leaf leaf_;
};

/// (1/B) sum_b g_b² - mean², element by element: the population variance, never below 0.
template <class Leaf>
class variance_of : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  explicit variance_of(Leaf leaf) : leaf_{leaf} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] static constexpr std::size_t value_count(const Leaf&) { return Leaf::network_type::parameter_count; }
  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) {
    if (accumulate) throw std::invalid_argument("pergrad: a variance cannot be accumulated over chunks");
    mean_.resize(out.size());
    plain_sum<Leaf>{leaf_, 1 / static_cast<double>(leaf_.size())}.attach(request, mean_, false);
    second_moment_of<Leaf>{leaf_}.attach(request, out, false);
  }
  void finish(const host&, std::span<scalar> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(scalar{0}, out[i] - mean_[i] * mean_[i]);
  }

 private:
  Leaf leaf_;
  std::vector<scalar> mean_;
};

/// All gradients, one row a sample, `[B, parameter_count]` in PyTorch's order; of a clipped expression the clipped
/// ones.
template <class Gradients, bool Clipped>
class materialised_gradients : public detail::expression_tag {
 public:
  using scalar = typename Gradients::scalar;
  using value_type = scalar;
  explicit materialised_gradients(Gradients gradients, std::size_t first, std::size_t count)
      : gradients_{gradients}, first_{first}, count_{count} {}
  [[nodiscard]] const auto& leaf() const noexcept {
    if constexpr (Clipped) {
      return gradients_.leaf();
    } else {
      return gradients_;
    }
  }
  [[nodiscard]] std::size_t value_count(const auto& leaf) const {
    return std::remove_cvref_t<decltype(leaf)>::network_type::parameter_count * count_;
  }
  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) {
    if (accumulate || request.rows != nullptr) {
      throw std::invalid_argument("pergrad: one evaluation materialises gradients once, and never adds to them");
    }
    request.backward = true;
    request.norms = true;
    request.rows = out.data();
    if constexpr (Clipped) {
      gradients_.weigh_into(weights_);
      request.row_weights = &weights_;
    }
    narrow(request);
  }

 protected:
  void narrow(on_host::run_request<scalar>& request) const {
    request.first = first_;
    request.count = count_;
  }

 private:
  Gradients gradients_;
  std::size_t first_;
  std::size_t count_;
  on_host::sum_request<scalar> weights_{};
};

/// One sample's gradient, `[parameter_count]`. Evaluates only that sample.
template <class Gradients, bool Clipped>
class gradient_row : public materialised_gradients<Gradients, Clipped> {
 public:
  static constexpr bool whole_batch = false;
  gradient_row(Gradients gradients, std::size_t sample)
      : materialised_gradients<Gradients, Clipped>{gradients, sample, 1} {
    if (sample >= gradients.size()) {
      throw std::out_of_range("pergrad: sample " + std::to_string(sample) + " of a batch of " +
                              std::to_string(gradients.size()));
    }
  }
};

/// The network's outputs, `[B, outputs]`, in PyTorch's order.
template <class Leaf>
class outputs_of : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  explicit outputs_of(Leaf leaf) : leaf_{leaf} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] static std::size_t value_count(const Leaf& leaf) { return leaf.size() * width; }
  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) {
    if (accumulate) throw std::invalid_argument("pergrad: outputs cannot be accumulated");
    out_ = out.data();
    detail::new_observer(request) = {this, [](void* self, const on_host::sample_facts<scalar>& facts) {
                                       std::copy(facts.output.begin(), facts.output.end(),
                                                 static_cast<outputs_of*>(self)->out_ + facts.sample * width);
                                     }};
  }

 private:
  static constexpr std::size_t width = Leaf::network_type::output_shape.size();
  Leaf leaf_;
  scalar* out_ = nullptr;
};

/// <g_a, g_b> for all pairs, `[B, B]`. Forms all gradients: B times parameter_count values for the time of the
/// evaluation.
template <class Leaf>
class gram_of : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = double;
  explicit gram_of(Leaf leaf) : leaf_{leaf} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] static std::size_t value_count(const Leaf& leaf) { return leaf.size() * leaf.size(); }
  void attach(on_host::run_request<scalar>& request, std::span<double> /*out*/, bool accumulate) {
    if (accumulate) throw std::invalid_argument("pergrad: a Gram matrix cannot be accumulated over chunks");
    if (request.rows != nullptr) throw std::invalid_argument("pergrad: one evaluation materialises gradients once");
    rows_.resize(leaf_.size() * Leaf::network_type::parameter_count);
    request.backward = true;
    request.norms = true;
    request.rows = rows_.data();
  }
  void finish(const host& executor, std::span<double> out) const {
    constexpr std::size_t width = Leaf::network_type::parameter_count;
    const std::size_t count = leaf_.size();
    executor.parallel(count, [&](std::size_t a, std::size_t) {
      for (std::size_t b = 0; b <= a; ++b) {
        const double value =
            on_host::dot(rows_.data() + a * width, rows_.data() + b * width, static_cast<on_host::index>(width));
        out[a * count + b] = value;
        out[b * count + a] = value;
      }
    });
  }

 private:
  Leaf leaf_;
  std::vector<scalar> rows_;
};

template <class Network, class Loss>
gradient_row<per_sample_gradient_leaf<Network, Loss>, false> per_sample_gradient_leaf<Network, Loss>::operator[](
    std::size_t sample) const {
  return {*this, sample};
}
template <class Leaf, class Rule>
gradient_row<clipped_gradients<Leaf, Rule>, true> clipped_gradients<Leaf, Rule>::operator[](std::size_t sample) const {
  return {*this, sample};
}

/// sum_b g_b: the ordinary, non-private gradient of the summed loss.
template <class Network, class Loss>
[[nodiscard]] auto sum(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return plain_sum{gradients, 1.0};
}
/// (1/B) sum_b g_b: the ordinary gradient of the mean loss. B is the size of this batch, so never private.
template <class Network, class Loss>
[[nodiscard]] auto mean(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  if (gradients.size() == 0) throw std::invalid_argument("pergrad: mean: an empty batch has none");
  return plain_sum{gradients, 1 / static_cast<double>(gradients.size())};
}
/// sum_b clip(g_b), with the sensitivity that belongs to the neighbouring relation.
template <class Leaf, class Rule>
[[nodiscard]] auto sum(const clipped_gradients<Leaf, Rule>& clipped,
                       neighbouring relation = neighbouring::add_or_remove_one) {
  return bounded_sum<Leaf, Rule>{clipped, relation};
}
/// sum_b w_b g_b; weights: any per-sample scalar expression over the same gradients.
template <class Network, class Loss, per_sample_scalar Weights>
[[nodiscard]] auto weighted_sum(const per_sample_gradient_leaf<Network, Loss>& gradients, const Weights& weights) {
  if (!detail::leaf_of(weights).same_as(gradients)) {
    throw std::invalid_argument("pergrad: weighted_sum: the weights belong to other per-sample gradients");
  }
  return weighted_gradient_sum<per_sample_gradient_leaf<Network, Loss>, Weights>{gradients, weights};
}
/// sum_b w_b g_b; weights: one number a sample, read when evaluated. Throws std::invalid_argument for another count.
template <class Network, class Loss>
[[nodiscard]] auto weighted_sum(const per_sample_gradient_leaf<Network, Loss>& gradients,
                                std::type_identity_t<std::span<const typename Network::scalar>> weights) {
  if (weights.size() != gradients.size()) {
    throw std::invalid_argument("pergrad: weighted_sum: " + std::to_string(weights.size()) + " weights for " +
                                std::to_string(gradients.size()) + " samples");
  }
  return weighted_gradient_sum<per_sample_gradient_leaf<Network, Loss>, std::span<const typename Network::scalar>>{
      gradients, weights};
}
/// (1/B) sum_b g_b² (BackPACK's second moment).
template <class Network, class Loss>
[[nodiscard]] auto second_moment(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  if (gradients.size() == 0) throw std::invalid_argument("pergrad: second_moment: an empty batch has none");
  return second_moment_of{gradients};
}
/// Population variance over the batch, element by element (BackPACK's variance).
template <class Network, class Loss>
[[nodiscard]] auto variance(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  if (gradients.size() == 0) throw std::invalid_argument("pergrad: variance: an empty batch has none");
  return variance_of{gradients};
}
/// All gradients as rows. The only expression whose result grows with the batch.
template <class Network, class Loss>
[[nodiscard]] auto materialise(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return materialised_gradients<per_sample_gradient_leaf<Network, Loss>, false>{gradients, 0, gradients.size()};
}
template <class Leaf, class Rule>
[[nodiscard]] auto materialise(const clipped_gradients<Leaf, Rule>& clipped) {
  return materialised_gradients<clipped_gradients<Leaf, Rule>, true>{clipped, 0, clipped.size()};
}
/// The network's outputs.
template <class Network, class Loss>
[[nodiscard]] auto outputs(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return outputs_of{gradients};
}
/// All inner products <g_a, g_b>, in double.
template <class Network, class Loss>
[[nodiscard]] auto gram(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return gram_of{gradients};
}

}  // namespace pergrad::inline v0_1
// pergrad/privacy/noise.hpp - Gaussian noise that is a pure function of key, purpose, step and element.
//
// Three ChaCha20 words make one pair of Gaussians by Box & Muller 1958:
//     u = (high, low) as a 64-bit fraction,  z = sqrt(-2 ln u) * (cos 2 pi v, sin 2 pi v)
// * The exponent of u comes from its leading zeros, 32 bits below them make its mantissa. Hence u reaches 2^-64 and |z|
//   reaches sqrt(128 ln 2) = 9.419; a 24- or 32-bit uniform would cut the tail at 5.8 or 6.8 sigma, an event an
//   attacker could see. With u = (1 + f) 2^-k and 1/sqrt(2) <= 1 + f < sqrt(2), -2 ln u = 2 k ln 2 - 2 log1p(f); f is
//   taken from the bits without cancellation, so u close to 1 keeps its relative precision too.
// * v = (quadrant + 1/2 turn fraction g) / 4 with g in [-1/2, 1/2]: two short polynomials, no range reduction.
// * All arithmetic is single IEEE float operations; every product that meets a sum is an explicit fma. The bits are the
//   same on every compiler, optimisation level, vector width and machine with IEEE-754 (round to nearest).
// Polynomials are Chebyshev fits rounded to float: relative errors 7.5e-9 (log1p), 3.5e-8 (sine), 9.5e-9 (cosine).
//
// Which element uses which words: elements come in tiles of 512, a tile uses blocks 48 t ... 48 t + 47 of the nonce.
// For row p = 0..15 and column c = 0..15, word p of blocks 48 t + c, 48 t + 16 + c and 48 t + 32 + c are high, low and
// angle of a pair whose Gaussians are elements 512 t + 16 p + c (cosine) and 512 t + 256 + 16 p + c (sine). No order of
// work, no split of a range and no number of threads can change a value. Nothing is kept: no state, no heap.

namespace pergrad::inline v0_1 {

/// Gaussians that one (purpose, step) can give before the 32-bit block counter is used up: about 4.6e10.
inline constexpr std::uint64_t gaussians_per_step = (chacha_blocks_per_nonce / 48) * 512;

namespace detail {

inline constexpr std::size_t gaussian_tile = 512;

/// -2 ln(u) for the 64-bit fraction u = (high, low) 2^-64 rounded to a mantissa of 32 bits, 0 counting as 2^-64.
template <int Lanes>
[[gnu::always_inline]] inline typename lanes<Lanes>::f32 minus_two_log(typename lanes<Lanes>::u32 high,
                                                                       typename lanes<Lanes>::u32 low) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using i32 = typename lanes<Lanes>::i32;
  using u32 = typename lanes<Lanes>::u32;
  const u32 zero{};
  const auto top_is_empty = high == zero;
  const u32 upper = top_is_empty ? (low | 1U) : high;
  const u32 lower = top_is_empty ? zero : low;
  const u32 shift = leading_zeros<Lanes>(upper);
  const u32 normalised = (upper << shift) | ((lower >> 1U) >> (31U - shift));
  // u = normalised 2^(-32 - zeros) with normalised / 2^32 in [1/2, 1); below 1/sqrt(2) it is doubled. Read as a signed
  // number, the word then *is* f 2^32: negative above 2^31, positive after doubling. The odd last bit centres the cell.
  const auto double_it = normalised < splat_u32<Lanes>(0xb504f334U);
  const u32 fraction = (double_it ? (normalised << 1U) : normalised) | 1U;
  const u32 exponent =
      shift + (top_is_empty ? splat_u32<Lanes>(32U) : zero) + (double_it ? splat_u32<Lanes>(1U) : zero);
  const f32 f = to_float<Lanes>(std::bit_cast<i32>(fraction)) * 0x1p-32F;
  const f32 k = to_float<Lanes>(std::bit_cast<i32>(exponent));
  f32 q = splat_f32<Lanes>(0x1.31335ap-3F);
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.0647860p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.0fb036p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.22cf10p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.5423b0p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.999e86p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.000424p-1F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.55555ep-1F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.fffff8p-1F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-2.0F));
  return fused<Lanes>(k, splat_f32<Lanes>(0x1.62e430p+0F), f * q);
}

/// Two Gaussians from three words.
template <int Lanes>
[[gnu::always_inline]] inline void box_muller(const typename lanes<Lanes>::u32& high,
                                              const typename lanes<Lanes>::u32& low,
                                              const typename lanes<Lanes>::u32& angle,
                                              typename lanes<Lanes>::f32& along_cosine,
                                              typename lanes<Lanes>::f32& along_sine) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using i32 = typename lanes<Lanes>::i32;
  using u32 = typename lanes<Lanes>::u32;
  const f32 radius = square_root<Lanes>(minus_two_log<Lanes>(high, low));
  const f32 g = to_float<Lanes>(std::bit_cast<i32>((angle << 2U) | 2U)) * 0x1p-32F;
  const f32 g2 = g * g;
  f32 s = splat_f32<Lanes>(-0x1.2d9b40p-8F);
  s = fused<Lanes>(s, g2, splat_f32<Lanes>(0x1.465ec4p-4F));
  s = fused<Lanes>(s, g2, splat_f32<Lanes>(-0x1.4abbbap-1F));
  s = fused<Lanes>(s, g2, splat_f32<Lanes>(0x1.921fb6p+0F));
  s = s * g;
  f32 c = splat_f32<Lanes>(0x1.d9c2e8p-11F);
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(-0x1.55c57ap-6F));
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(0x1.03c1dcp-2F));
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(-0x1.3bd3ccp+0F));
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(1.0F));
  // Quarter turns: 0 (c, s), 1 (-s, c), 2 (-c, -s), 3 (s, -c).
  const auto odd = (angle & 0x4000'0000U) != u32{};
  const u32 negative_cosine = (angle ^ (angle << 1U)) & 0x8000'0000U;
  const u32 negative_sine = angle & 0x8000'0000U;
  const f32 x = odd ? s : c;
  const f32 y = odd ? c : s;
  along_cosine = radius * std::bit_cast<f32>(std::bit_cast<u32>(x) ^ negative_cosine);
  along_sine = radius * std::bit_cast<f32>(std::bit_cast<u32>(y) ^ negative_sine);
}

/// All 512 Gaussians of one tile.
template <int Lanes>
inline void fill_gaussian_tile(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t tile,
                               float (&z)[gaussian_tile]) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using u32 = typename lanes<Lanes>::u32;
  for (std::size_t column = 0; column < 16; column += static_cast<std::size_t>(Lanes)) {
    const u32 counter = lane_numbers<Lanes>() + static_cast<std::uint32_t>(48 * tile + column);
    u32 high[16];
    u32 low[16];
    u32 angle[16];
    chacha_lanes<Lanes>(key, nonce, counter, high);
    chacha_lanes<Lanes>(key, nonce, counter + 16U, low);
    chacha_lanes<Lanes>(key, nonce, counter + 32U, angle);
    for (std::size_t row = 0; row < 16; ++row) {
      f32 along_cosine;
      f32 along_sine;
      box_muller<Lanes>(high[row], low[row], angle[row], along_cosine, along_sine);
      std::memcpy(z + 16 * row + column, &along_cosine, sizeof along_cosine);
      std::memcpy(z + 256 + 16 * row + column, &along_sine, sizeof along_sine);
    }
  }
}

inline void require_gaussians(std::uint64_t first, std::uint64_t count) {
  if (first > gaussians_per_step || count > gaussians_per_step - first) {
    throw std::out_of_range("pergrad: gaussian noise: elements [" + std::to_string(first) + ", +" +
                            std::to_string(count) + ") exceed the " + std::to_string(gaussians_per_step) +
                            " elements of one step");
  }
}

inline void require_standard_deviation(double standard_deviation) {
  if (!(standard_deviation >= 0 && standard_deviation <= std::numeric_limits<double>::max())) {
    throw std::invalid_argument("pergrad: standard deviation of noise must be finite and not negative, got " +
                                std::to_string(standard_deviation));
  }
}

/// The smallest Scalar that is not below x: noise may be a hair larger than accounted for, never smaller.
template <class Scalar>
[[nodiscard]] inline Scalar rounded_up(double x) {
  auto result = static_cast<Scalar>(x);
  if (static_cast<double>(result) < x) {
    if constexpr (std::is_same_v<Scalar, float>) {
      result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(result) + 1U);  // next float, as x > 0
    }
  }
  if (!(result <= std::numeric_limits<Scalar>::max())) {
    throw std::invalid_argument("pergrad: standard deviation of noise does not fit the type of the sum, got " +
                                std::to_string(x));
  }
  return result;
}

template <class Scalar>
[[gnu::always_inline]] inline Scalar scaled_sum(Scalar scale, float z, Scalar x) noexcept {
  if constexpr (std::is_same_v<Scalar, float>) {
    return __builtin_fmaf(scale, z, x);
  } else {
    return __builtin_fma(scale, static_cast<double>(z), x);
  }
}

/// out[i] = scale z[i] + out[i], each one fused multiply-add, `Lanes` floats at a time: compilers do not vectorise this
/// loop at -O2.
template <int Lanes, class Scalar>
inline void add_scaled_gaussians(Scalar scale, const float* z, Scalar* out, std::size_t count) noexcept {
  std::size_t i = 0;
  if constexpr (std::is_same_v<Scalar, float> && Lanes > 1) {
    using f32 = typename lanes<Lanes>::f32;
    const f32 scales = splat_f32<Lanes>(scale);
    for (; i + static_cast<std::size_t>(Lanes) <= count; i += static_cast<std::size_t>(Lanes)) {
      f32 gaussians;
      f32 sums;
      std::memcpy(&gaussians, z + i, sizeof gaussians);
      std::memcpy(&sums, out + i, sizeof sums);
      sums = fused<Lanes>(scales, gaussians, sums);
      std::memcpy(out + i, &sums, sizeof sums);
    }
  }
  for (; i < count; ++i) out[i] = scaled_sum(scale, z[i], out[i]);
}

/// Calls visit(offset in the range, pointer to z, count) for every piece of elements [first, first + count).
template <int Lanes, class Visitor>
void for_each_gaussian_piece(const chacha_key& key, random_purpose purpose, std::uint64_t step, std::uint64_t first,
                             std::size_t count, Visitor&& visit) {
  require_gaussians(first, count);
  const chacha_nonce nonce = make_nonce(purpose, step);
  alignas(64) float z[gaussian_tile];
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t element = first + done;
    const auto offset = static_cast<std::size_t>(element % gaussian_tile);
    const std::size_t piece = std::min(gaussian_tile - offset, count - done);
    fill_gaussian_tile<Lanes>(key, nonce, element / gaussian_tile, z);
    visit(done, static_cast<const float*>(z) + offset, piece);
    done += piece;
  }
  wipe(z, sizeof z);
}

}  // namespace detail

/// Adds standard_deviation * z(first), standard_deviation * z(first + 1), ... to `values`, where z(e) is the standard
/// Gaussian that belongs to (key, purpose, step, e). Each element is one fused multiply-add in Scalar (float or
/// double); z itself is a float and is converted, so a double sum gets exactly standard_deviation * double(z). For
/// float the standard deviation is rounded up. Throws std::invalid_argument when the deviation is negative or not
/// finite and std::out_of_range beyond `gaussians_per_step` elements; nothing is written then.
template <class Scalar, int Lanes = detail::native_lanes>
requires(std::is_same_v<Scalar, float> ||
         std::is_same_v<Scalar, double>) void add_gaussian(const chacha_key& key, random_purpose purpose,
                                                           std::uint64_t step, std::uint64_t first,
                                                           double standard_deviation, std::span<Scalar> values) {
  detail::require_standard_deviation(standard_deviation);
  const auto scale = detail::rounded_up<Scalar>(standard_deviation);
  detail::for_each_gaussian_piece<Lanes>(key, purpose, step, first, values.size(),
                                         [&](std::size_t at, const float* z, std::size_t count) {
                                           detail::add_scaled_gaussians<Lanes>(scale, z, values.data() + at, count);
                                         });
}

/// Standard Gaussians z(first), z(first + 1), ... into `values`; the same numbers that `add_gaussian` scales and adds.
template <class Scalar, int Lanes = detail::native_lanes>
requires(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>) void fill_gaussian(
    const chacha_key& key, random_purpose purpose, std::uint64_t step, std::uint64_t first, std::span<Scalar> values) {
  detail::for_each_gaussian_piece<Lanes>(key, purpose, step, first, values.size(),
                                         [&](std::size_t at, const float* z, std::size_t count) {
                                           for (std::size_t i = 0; i < count; ++i)
                                             values[at + i] = static_cast<Scalar>(z[i]);
                                         });
}

/// The one standard Gaussian z(element), made by scalar code from three scalar ChaCha20 blocks: slow, and equal bit for
/// bit to what the functions above give.
[[nodiscard]] inline float gaussian(const chacha_key& key, random_purpose purpose, std::uint64_t step,
                                    std::uint64_t element) {
  detail::require_gaussians(element, 1);
  const chacha_nonce nonce = make_nonce(purpose, step);
  const auto place = static_cast<std::uint32_t>(element % detail::gaussian_tile);
  const auto block = static_cast<std::uint32_t>(48 * (element / detail::gaussian_tile)) + place % 16;
  const std::size_t row = place % 256 / 16;
  float along_cosine = 0;
  float along_sine = 0;
  detail::box_muller<1>(chacha20_block(key, nonce, block)[row], chacha20_block(key, nonce, block + 16)[row],
                        chacha20_block(key, nonce, block + 32)[row], along_cosine, along_sine);
  return place < 256 ? along_cosine : along_sine;
}

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// A noised, hence releasable gradient: parameter_count values in PyTorch's order. Only `evaluate_into` can fill it.
template <class Network>
class private_gradient {
 public:
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit private_gradient(const Executor& /*executor*/) : values_{Network::parameter_count, "a private gradient"} {}

  /// Released: anybody may see these.
  [[nodiscard]] std::span<const scalar> values() const noexcept { return values_.span(); }

 private:
  friend struct gradient_access;
  detail::aligned_buffer<scalar> values_;
};

namespace unprotected {

/// A gradient without noise: parameter_count values in PyTorch's order. Not for release.
template <class Network>
class gradient {
 public:
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit gradient(const Executor& /*executor*/) : values_{Network::parameter_count, "a gradient"} {}
  [[nodiscard]] std::span<scalar> values() noexcept { return values_.span(); }
  [[nodiscard]] std::span<const scalar> values() const noexcept { return values_.span(); }

 private:
  detail::aligned_buffer<scalar> values_;
};

}  // namespace unprotected

/// A clipped sum that grows chunk by chunk: for logical batches larger than the tape. Every sample may be in one chunk
/// only.
template <class Network>
class bounded_total : public detail::expression_tag {
 public:
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit bounded_total(const Executor& /*executor*/) : values_{Network::parameter_count, "a clipped sum"} {}

  /// Back to the empty sum.
  void clear() noexcept {
    std::fill_n(values_.data(), values_.size(), scalar{0});
    sensitivity_ = 0;
  }
  /// The empty sum of chunks that will have this sensitivity: so that a batch without any chunk is noised all the same.
  void clear(double sensitivity) noexcept {
    clear();
    sensitivity_ = sensitivity;
  }
  /// Of every chunk added so far; 0 before the first.
  [[nodiscard]] double sensitivity() const noexcept { return sensitivity_; }

 private:
  friend struct gradient_access;
  detail::aligned_buffer<scalar> values_;
  double sensitivity_ = 0;
};

/// The library's own way to the numbers behind the types.
struct gradient_access {
  template <class Network>
  [[nodiscard]] static std::span<typename Network::scalar> values(private_gradient<Network>& gradient) noexcept {
    return gradient.values_.span();
  }
  template <class Network>
  [[nodiscard]] static std::span<typename Network::scalar> values(bounded_total<Network>& total) noexcept {
    return total.values_.span();
  }
  template <class Network>
  [[nodiscard]] static std::span<const typename Network::scalar> values(const bounded_total<Network>& total) noexcept {
    return total.values_.span();
  }
  /// Notes a chunk's sensitivity. Throws std::logic_error if it differs from that of the chunks before.
  template <class Network>
  static void admit(bounded_total<Network>& total, double sensitivity) {
    if (total.sensitivity_ != 0 && total.sensitivity_ != sensitivity) {
      throw std::logic_error("pergrad: chunks of one sum must be clipped alike: sensitivities " +
                             std::to_string(total.sensitivity_) + " and " + std::to_string(sensitivity));
    }
    total.sensitivity_ = sensitivity;
  }
};

/// Noise that waits for a bounded sum.
template <random_generator Generator>
struct gaussian_noise_of {
  noise_multiplier multiplier{0};
  Generator* generator = nullptr;
};

/// Gaussian noise with standard deviation multiplier * sensitivity of the sum it is added to. The generator is referred
/// to.
template <random_generator Generator>
[[nodiscard]] gaussian_noise_of<Generator> gaussian_noise(noise_multiplier multiplier, Generator& generator) {
  return {multiplier, &generator};
}
template <random_generator Generator>
[[nodiscard]] error::explained gaussian_noise(noise_multiplier /*multiplier*/, const Generator&& /*generator*/) {
  static_cast<void>(error::temporary_operand<Generator>{});
  return {};
}

template <class Number, class Generator>
requires std::is_arithmetic_v<Number>
[[nodiscard]] error::explained gaussian_noise(Number /*multiplier*/, Generator&& /*generator*/) {
  static_cast<void>(error::plain_number<error::function::gaussian_noise, noise_multiplier, Number>{});
  return {};
}

namespace detail {

/// values = sum + noise, all threads sharing the elements; the bits of the noise depend on (key, step, element) only.
/// `sum` may be `values`. Precondition: as many.
template <class Scalar>
void add_noise(const host& executor, const chacha_key& key, std::uint64_t step, double standard_deviation,
               std::span<const std::type_identity_t<Scalar>> sum, std::span<Scalar> values) {
  constexpr std::size_t chunk = 1U << 13U;
  executor.parallel((values.size() + chunk - 1) / chunk, [&](std::size_t task, std::size_t) {
    const std::size_t first = task * chunk;
    const std::span<Scalar> to = values.subspan(first, std::min(chunk, values.size() - first));
    if (sum.data() != values.data()) std::copy_n(sum.data() + first, to.size(), to.data());
    add_gaussian<Scalar>(key, random_purpose::gradient_noise, step, first, standard_deviation, to);
  });
}

}  // namespace detail

/// A bounded sum with noise, times a public factor.
template <class Sum, class Generator>
class noised_sum : public detail::expression_tag {
 public:
  using scalar = typename Sum::scalar;
  using value_type = scalar;
  noised_sum(Sum sum, gaussian_noise_of<Generator> noise) : sum_{sum}, noise_{noise} {}
  [[nodiscard]] auto leaf() const noexcept { return sum_.leaf(); }
  [[nodiscard]] static constexpr std::size_t value_count(const auto& leaf) { return Sum::value_count(leaf); }
  [[nodiscard]] double standard_deviation() const noexcept { return noise_.multiplier.value() * sum_.sensitivity(); }

  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    if (accumulate)
      throw std::invalid_argument("pergrad: noise goes on a finished sum: accumulate into a bounded_total first");
    sum_.attach(request, out, false);
  }
  /// Draws the noise: one step of the generator.
  void finish(const host& executor, std::span<scalar> out) const {
    const std::uint64_t step = noise_.generator->next_step();
    detail::add_noise(executor, noise_.generator->key(), step, standard_deviation(), out, out);
    if (divisor_ != 1) {
      for (scalar& value : out) value = static_cast<scalar>(static_cast<double>(value) / divisor_);
    }
  }
  /// The same divided by a public constant.
  [[nodiscard]] noised_sum operator/(expected_batch_size divisor) const {
    noised_sum result = *this;
    result.divisor_ *= divisor.value();
    return result;
  }

 private:
  Sum sum_;
  gaussian_noise_of<Generator> noise_;
  double divisor_ = 1;
};

/// A finished total of chunks as a sum that noise can be added to.
template <class Network>
class total_reference {
 public:
  using scalar = typename Network::scalar;
  explicit total_reference(const bounded_total<Network>& total) : total_{&total} {}
  [[nodiscard]] double sensitivity() const {
    if (!(total_->sensitivity() > 0)) {
      throw std::logic_error(
          "pergrad: noise on a bounded_total that knows no sensitivity: add a clipped sum to it first, or " +
          std::string{"clear(sensitivity) it"});
    }
    return total_->sensitivity();
  }
  [[nodiscard]] const bounded_total<Network>& total() const noexcept { return *total_; }

 private:
  const bounded_total<Network>* total_;
};

template <class Network, class Generator>
struct noised_total {
  total_reference<Network> total;
  gaussian_noise_of<Generator> noise;
};

/// Noise on a bounded sum; on anything else it is an error that says why.
template <class Leaf, class Rule, class Generator>
[[nodiscard]] auto operator+(const bounded_sum<Leaf, Rule>& sum, gaussian_noise_of<Generator> noise) {
  return noised_sum<bounded_sum<Leaf, Rule>, Generator>{sum, noise};
}
template <class Network, class Generator>
requires(!detail::is_explained<Network>) [[nodiscard]] auto operator+(const bounded_total<Network>& total,
                                                                      gaussian_noise_of<Generator> noise) {
  return noised_total<Network, Generator>{total_reference<Network>{total}, noise};
}
template <class Other, class Generator>
[[nodiscard]] auto operator+(const Other& /*other*/, gaussian_noise_of<Generator> /*noise*/) {
  if constexpr (!detail::is_explained<Other>) static_cast<void>(error::noise_on_an_unclipped_sum<Other>{});
  return error::explained{};
}

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

namespace detail {

template <class Type>
struct is_clipped : std::false_type {};
template <class Leaf, class Rule>
struct is_clipped<clipped_gradients<Leaf, Rule>> : std::true_type {};

template <class Leaf, class Numbers>
concept numbers_for =
    is_leaf<Leaf>::value && std::is_convertible_v<const Numbers&, std::span<const typename Leaf::scalar>>;

/// Operands of which one is an expression, but for which there is no arithmetic.
template <class Left, class Right>
concept unpaired = (expression<Left> || expression<Right>)&&!scalar_pairing<Left, Right>;

template <class Type>
inline constexpr bool is_noise = false;
template <class Generator>
inline constexpr bool is_noise<gaussian_noise_of<Generator>> = true;
template <class Expression>
inline constexpr bool is_noised = false;
template <class Sum, class Generator>
inline constexpr bool is_noised<noised_sum<Sum, Generator>> = true;

/// Arithmetic that is offered for neither operand.
template <class Left, class Right>
concept meaningless_pair = unpaired<Left, Right> && !is_noise<Right>;

}  // namespace detail

template <norm_method Method, std::size_t... Entries, detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained with_method(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::with_method, Given>{});
  }
  return {};
}
template <strategy Strategy, detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained with_strategy(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::with_strategy, Given>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class Generator>
[[nodiscard]] error::explained with_randomness(const Given& /*given*/, Generator&& /*generator*/) {
  if constexpr (!detail::any_explained<Given, Generator>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::with_randomness, Given>{});
  }
  return {};
}
template <class Network, class Loss, random_generator Generator>
[[nodiscard]] error::explained with_randomness(const per_sample_gradient_leaf<Network, Loss>& /*gradients*/,
                                               const Generator&& /*generator*/) {
  static_cast<void>(error::temporary_operand<Generator>{});
  return {};
}
template <class Network, class Loss, class Other>
requires(!random_generator<std::remove_reference_t<Other>>) [[nodiscard]] error::explained
    with_randomness(const per_sample_gradient_leaf<Network, Loss>& gradients, Other&& /*other*/) {
  if constexpr (!detail::is_explained<Other>) {
    static_cast<void>(error::has_no_meaning<error::function::with_randomness, std::remove_cvref_t<decltype(gradients)>,
                                            std::remove_reference_t<Other>>{});
  }
  return {};
}

template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained losses(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::losses, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained l2_norms(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::l2_norms, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained squared_l2_norms(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::squared_l2_norms, Given>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class... Rest>
[[nodiscard]] error::explained dot(const Given& /*given*/, const Rest&... /*rest*/) {
  if constexpr (!detail::any_explained<Given, Rest...>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::dot, Given, Rest...>{});
  }
  return {};
}
template <class Network, class Loss, class Direction>
requires(!detail::numbers_for<per_sample_gradient_leaf<Network, Loss>, Direction>) [[nodiscard]] error::explained
    dot(const per_sample_gradient_leaf<Network, Loss>& /*gradients*/, const Direction& /*direction*/) {
  if constexpr (!detail::is_explained<Direction>) {
    static_cast<void>(
        error::operand_does_not_fit<error::function::dot, std::span<const typename Network::scalar>, Direction>{});
  }
  return {};
}

template <detail::expression Given, class... Bound>
requires(!detail::is_leaf<Given>::value ||
         !(std::is_convertible_v<Bound, l2_clip_norm> && ... && (sizeof...(Bound) == 1))) [[nodiscard]] error::explained
    clip(const Given& /*given*/, const Bound&... /*bound*/) {
  if constexpr (!detail::any_explained<Given, Bound...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::clip, Given, Bound...>{});
  }
  return {};
}
template <detail::expression Given, class... Bound>
requires(!detail::is_leaf<Given>::value || !((std::is_convertible_v<Bound, l2_clip_norm> ||
                                              std::is_convertible_v<Bound, std::span<const l2_clip_norm>>)&&... &&
                                             (sizeof...(Bound) == 1))) [[nodiscard]] error::explained
    clip_per_layer(const Given& /*given*/, const Bound&... /*bound*/) {
  if constexpr (!detail::any_explained<Given, Bound...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::clip_per_layer, Given, Bound...>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class... Bound>
[[nodiscard]] error::explained clip_per_group(const Given& /*given*/, const Bound&... /*bound*/) {
  if constexpr (!detail::any_explained<Given, Bound...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::clip_per_group, Given, Bound...>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class... Rest>
[[nodiscard]] error::explained normalise(const Given& /*given*/, const Rest&... /*rest*/) {
  if constexpr (!detail::any_explained<Given, Rest...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::normalise, Given, Rest...>{});
  }
  return {};
}

template <detail::expression_but_no_leaf Given, class... Rest>
requires(!detail::is_clipped<Given>::value) [[nodiscard]] error::explained
    sum(const Given& /*given*/, const Rest&... /*rest*/) {
  if constexpr (!detail::any_explained<Given, Rest...>) {
    static_cast<void>(error::cannot_be_summed<error::function::sum, Given, Rest...>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained mean(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::cannot_be_summed<error::function::mean, Given>{});
  return {};
}
template <detail::expression Given, class Weights>
requires(!detail::is_leaf<Given>::value || (!per_sample_scalar<Weights> && !detail::numbers_for<Given, Weights>))
    [[nodiscard]] error::explained weighted_sum(const Given& /*given*/, const Weights& /*weights*/) {
  if constexpr (!detail::any_explained<Given, Weights>) {
    if constexpr (detail::is_leaf<Given>::value && !detail::expression<Weights>) {
      static_cast<void>(error::operand_does_not_fit<error::function::weighted_sum,
                                                    std::span<const typename Given::scalar>, Weights>{});
    } else {
      static_cast<void>(error::has_no_meaning<error::function::weighted_sum, Given, Weights>{});
    }
  }
  return {};
}
template <detail::expression_but_no_leaf Given>
requires(!detail::is_clipped<Given>::value) [[nodiscard]] error::explained materialise(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::has_no_meaning<error::function::materialise, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained second_moment(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::second_moment, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained variance(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::variance, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained outputs(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::outputs, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained gram(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::gram, Given>{});
  return {};
}

/// Arithmetic is for per-sample scalars and numbers; on anything else it is an error that says so.
template <class Left, class Right>
requires detail::unpaired<Left, Right>
[[nodiscard]] error::explained min(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::min, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::unpaired<Left, Right>
[[nodiscard]] error::explained max(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::max, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::unpaired<Left, Right>
[[nodiscard]] error::explained pow(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::pow, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator+(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::plus, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator-(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::minus, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator*(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::times, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator/(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (detail::is_noised<Left> && std::is_arithmetic_v<Right>) {
    static_cast<void>(error::plain_number<error::function::divided_by, expected_batch_size, Right>{});
  } else if constexpr (!detail::any_explained<Left, Right>) {
    static_cast<void>(error::has_no_meaning<error::function::divided_by, Left, Right>{});
  }
  return {};
}

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

namespace detail {

template <class Type>
concept gradient_expression = requires(const Type& expression) {
  typename Type::value_type;
  expression.value_count(expression.leaf());
};
template <class Type>
concept evaluable = gradient_expression<Type> || per_sample_scalar<Type>;

template <class Expression>
[[nodiscard]] auto leaf_of_expression(const Expression& expression) {
  if constexpr (per_sample_scalar<Expression>) {
    return leaf_of(expression);
  } else {
    return expression.leaf();
  }
}

template <class Expression>
struct value_type_of {
  using type = double;
};
template <gradient_expression Expression>
struct value_type_of<Expression> {
  using type = typename Expression::value_type;
};

template <class Expression>
[[nodiscard]] std::size_t value_count_of(const Expression& expression) {
  const auto leaf = leaf_of_expression(expression);
  if constexpr (per_sample_scalar<Expression>) {
    return leaf.size();
  } else {
    return expression.value_count(leaf);
  }
}

/// One expression and where its result goes; `Enclosed` if into a bounded_total, which shows its numbers to nobody.
template <class Expression, bool Enclosed = false>
class assignment {
 public:
  using value_type = typename value_type_of<Expression>::type;

  assignment(std::span<value_type> out, Expression expression, bool accumulate)
      : out_{out}, expression_{expression}, accumulate_{accumulate} {
    if (out.size() != value_count_of(expression_)) {
      throw std::invalid_argument("pergrad: a result of " + std::to_string(value_count_of(expression_)) +
                                  " values does not fit a destination of " + std::to_string(out.size()));
    }
  }
  [[nodiscard]] auto leaf() const { return leaf_of_expression(expression_); }
  [[nodiscard]] static constexpr bool whole_batch() {
    if constexpr (requires { Expression::whole_batch; }) {
      return Expression::whole_batch;
    } else {
      return true;
    }
  }

  template <class Scalar>
  void attach(on_host::run_request<Scalar>& request) {
    if constexpr (per_sample_scalar<Expression>) {
      request.backward = request.backward || Expression::needs.backward;
      request.norms = request.norms || Expression::needs.norms;
      if (const Scalar* direction = direction_of<Scalar>(expression_); direction != nullptr) {
        if (request.direction != nullptr && request.direction != direction) {
          throw std::invalid_argument("pergrad: one evaluation can project on one direction only");
        }
        request.direction = direction;
      }
      new_observer(request) = {this, [](void* self, const on_host::sample_facts<Scalar>& facts) {
                                 auto* mine = static_cast<assignment*>(self);
                                 const double value = mine->expression_.at(facts);
                                 double& to = mine->out_[facts.sample];
                                 to = mine->accumulate_ ? to + value : value;
                               }};
    } else {
      expression_.attach(request, out_, accumulate_);
    }
  }
  void finish(const host& executor) {
    if constexpr (requires { expression_.finish(executor, out_); }) expression_.finish(executor, out_);
  }

 private:
  std::span<value_type> out_;
  Expression expression_;
  bool accumulate_;
};

/// Runs several assignments over the same gradients in one pass.
template <class First, class... Rest>
void evaluate_together(const host& executor, First& first, Rest&... rest) {
  const auto leaf = first.leaf();
  if ((!leaf.same_as(rest.leaf()) || ...)) {
    throw std::invalid_argument("pergrad: expressions evaluated together must be over the same per-sample gradients");
  }
  if (sizeof...(Rest) > 0 && !(First::whole_batch() && (Rest::whole_batch() && ...))) {
    throw std::invalid_argument("pergrad: one sample's gradient g[b] is evaluated on its own");
  }
  on_host::run_request<typename decltype(leaf)::scalar> request;
  request.count = leaf.size();
  first.attach(request);
  (rest.attach(request), ...);
  leaf.run(executor, request);
  first.finish(executor);
  (rest.finish(executor), ...);
}

template <class Destination, class Expression>
[[nodiscard]] auto destination_of(Destination& destination, const Expression& expression) {
  using value_type = typename value_type_of<Expression>::type;
  if constexpr (requires { gradient_access::values(destination); }) {
    return gradient_access::values(destination);
  } else if constexpr (requires { destination.values(); }) {
    return destination.values();
  } else {
    static_cast<void>(expression);
    return std::span<value_type>{destination};
  }
}

template <class Destination>
struct is_private_gradient : std::false_type {};
template <class Network>
struct is_private_gradient<private_gradient<Network>> : std::true_type {};
template <class Destination>
struct is_bounded_total : std::false_type {};
template <class Network>
struct is_bounded_total<bounded_total<Network>> : std::true_type {};
template <class Expression>
struct is_bounded_sum : std::false_type {};
template <class Leaf, class Rule>
struct is_bounded_sum<bounded_sum<Leaf, Rule>> : std::true_type {};
template <class Type>
struct is_assignment : std::false_type {};
template <class Expression, bool Enclosed>
struct is_assignment<assignment<Expression, Enclosed>> : std::true_type {};

template <class Destination, class Value>
concept is_destination = is_private_gradient<Destination>::value || is_bounded_total<Destination>::value ||
                         std::is_constructible_v<std::span<Value>, Destination&> ||
                         requires(Destination& destination) {
  requires std::is_convertible_v<decltype(destination.values()), std::span<Value>>;
};

/// What is wrong with `destination = expression`, as a class whose body says so; `char` if nothing is.
template <class Function, class Destination, class Expression>
[[nodiscard]] constexpr auto explanation_of_assignment() {
  if constexpr (any_explained<Destination, Expression>) {
    return std::type_identity<char>{};
  } else if constexpr (is_private_gradient<Destination>::value &&
                       (!is_noised<Expression> || std::is_same_v<Function, error::function::accumulate>)) {
    return std::type_identity<error::private_step_needs_a_noised_sum<Expression>>{};
  } else if constexpr (is_bounded_total<Destination>::value && !is_bounded_sum<Expression>::value) {
    return std::type_identity<error::total_needs_a_clipped_sum<Expression>>{};
  } else if constexpr (!evaluable<Expression>) {
    return std::type_identity<error::has_no_meaning<Function, Expression>>{};
  } else if constexpr (!is_destination<Destination, typename value_type_of<Expression>::type>) {
    return std::type_identity<error::destination_does_not_fit<
        Destination, std::span<typename value_type_of<Expression>::type>, Expression>>{};
  } else {
    return std::type_identity<char>{};
  }
}
template <class Function, class Destination, class Expression>
using assignment_explanation = typename decltype(explanation_of_assignment<Function, Destination, Expression>())::type;

}  // namespace detail

/// `destination = expression` as one of several results of an evaluation. Destinations: a vector or span of the right
/// size, an `unprotected::gradient`, a `private_gradient` (noised sums only), a `bounded_total` (clipped sums only).
template <class Destination, class Expression>
[[nodiscard]] auto assign(Destination&& destination, const Expression& expression) {
  using plain = std::remove_cvref_t<Destination>;
  using explanation = detail::assignment_explanation<error::function::assign, plain, Expression>;
  if constexpr (!std::is_same_v<explanation, char> || detail::any_explained<plain, Expression>) {
    static_cast<void>(explanation{});
    return error::explained{};
  } else {
    constexpr bool enclosed = detail::is_bounded_total<plain>::value;
    if constexpr (enclosed) {
      destination.clear();
      gradient_access::admit(destination, expression.sensitivity());
    }
    return detail::assignment<Expression, enclosed>{detail::destination_of(destination, expression), expression, false};
  }
}
/// `destination += expression`: sums over chunks of a batch.
template <class Destination, class Expression>
[[nodiscard]] auto accumulate(Destination&& destination, const Expression& expression) {
  using plain = std::remove_cvref_t<Destination>;
  using explanation = detail::assignment_explanation<error::function::accumulate, plain, Expression>;
  if constexpr (!std::is_same_v<explanation, char> || detail::any_explained<plain, Expression>) {
    static_cast<void>(explanation{});
    return error::explained{};
  } else {
    constexpr bool enclosed = detail::is_bounded_total<plain>::value;
    if constexpr (enclosed) gradient_access::admit(destination, expression.sensitivity());
    return detail::assignment<Expression, enclosed>{detail::destination_of(destination, expression), expression, true};
  }
}

/// Evaluates a noised sum into a private gradient: the one thing that may be released.
/// Draws the noise once, also for an empty batch. Throws what the batch, the tape and the generator throw.
template <class Network, class Expression>
void evaluate_into(const host& executor, private_gradient<Network>& update, const Expression& expression) {
  if constexpr (detail::is_noised<Expression>) {
    auto only = assign(update, expression);
    detail::evaluate_together(executor, only);
  } else if constexpr (!detail::is_explained<Expression>) {
    static_cast<void>(error::private_step_needs_a_noised_sum<Expression>{});
  }
}
/// The same for a total of chunks.
template <class Network, class Generator>
void evaluate_into(const host& executor, private_gradient<Network>& update,
                   const noised_total<Network, Generator>& noised) {
  const double deviation = noised.noise.multiplier.value() * noised.total.sensitivity();
  const std::span<typename Network::scalar> out = gradient_access::values(update);
  const std::uint64_t step = noised.noise.generator->next_step();
  detail::add_noise(executor, noised.noise.generator->key(), step, deviation,
                    gradient_access::values(noised.total.total()), out);
}
/// Adds a chunk's clipped sum to a total: `evaluate_into(exec, accumulate(total, sum(clip(g, C))))`.
template <class Leaf, class Rule>
void evaluate_into(const host& executor, detail::assignment<bounded_sum<Leaf, Rule>, true> chunk) {
  detail::evaluate_together(executor, chunk);
}
/// Everything else is not a release.
template <class Given>
void evaluate_into(const host& /*executor*/, const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) static_cast<void>(error::release_needs_noise<Given>{});
}
template <class Destination, class Expression>
void evaluate_into(const host& /*executor*/, Destination&& /*destination*/, const Expression& /*expression*/) {
  if constexpr (!detail::any_explained<Destination, Expression>) {
    static_cast<void>(error::release_needs_noise<std::remove_cvref_t<Destination>, Expression>{});
  }
}
template <class First, class Second, class Third, class... Rest>
void evaluate_into(const host& /*executor*/, const First&, const Second&, const Third&, const Rest&...) {
  if constexpr (!detail::any_explained<First, Second, Third, Rest...>) {
    static_cast<void>(error::release_needs_noise<First, Second, Third, Rest...>{});
  }
}

template <class First, class... Rest>
requires(!std::is_convertible_v<const First&, const host&> &&
         sizeof...(Rest) > 0) void evaluate_into(const First& /*destination*/, const Rest&...) {
  static_cast<void>(error::needs_an_executor<error::function::evaluate_into, First>{});
}

/// Values that are not protected by noise: for tests, debugging and non-private training. Their names say so.
namespace unprotected {

/// Evaluates one expression into a destination of the right size.
template <class Destination, class Expression>
requires(!pergrad::detail::is_assignment<Expression>::value) void evaluate_into(const host& executor,
                                                                                Destination&& destination,
                                                                                const Expression& expression) {
  auto only = pergrad::assign(destination, expression);
  if constexpr (!pergrad::detail::is_explained<decltype(only)>) pergrad::detail::evaluate_together(executor, only);
}
/// Evaluates several results over the same gradients in one pass.
template <class... Assignments>
requires((pergrad::detail::is_assignment<Assignments>::value ||
          pergrad::detail::is_explained<Assignments>)&&...) void evaluate_into(const host& executor,
                                                                               Assignments... assignments) {
  if constexpr (!pergrad::detail::any_explained<Assignments...>) {
    pergrad::detail::evaluate_together(executor, assignments...);
  }
}
template <class First, class... Rest>
requires(!std::is_convertible_v<const First&, const host&> &&
         sizeof...(Rest) > 0) void evaluate_into(const First& /*destination*/, const Rest&...) {
  static_cast<void>(error::needs_an_executor<error::function::evaluate_into, First>{});
}
/// Evaluates and returns the values. Allocates them.
template <class Expression>
[[nodiscard]] auto evaluate(const host& executor, const Expression& expression) {
  if constexpr (pergrad::detail::is_explained<Expression>) {
    return std::vector<double>{};
  } else if constexpr (!pergrad::detail::evaluable<Expression>) {
    static_cast<void>(error::has_no_meaning<error::function::evaluate, Expression>{});
    return std::vector<double>{};
  } else {
    std::vector<typename pergrad::detail::value_type_of<Expression>::type> result(
        pergrad::detail::value_count_of(expression));
    unprotected::evaluate_into(executor, result, expression);
    return result;
  }
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
// pergrad/layers/adaptive_avg_pool1d.hpp - means over windows that cut any sequence into a fixed number of
// (overlapping) parts
//
// Output row i of n sees input rows floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch; other axes likewise.

// pergrad/detail/pooling.hpp - what the pooling layers share: their windows, and the maximum and the mean of one

// pergrad/detail/convolution.hpp - what convolutions on sequences, images and volumes share
//
// y[o, t] = b[o] + sum_{c, k} W[o, c, k] x[c, t s + k r - p] along every axis that the layer has; the axes that it does
// not have are one pixel wide. Per-sample gradient: a correlation of the padded input with delta in which stride and
// dilation change places,
//     G_b[o, c, k] = sum_t delta[o, t] x[c, t s + k r - p]                     (Rochette et al. 2019, arXiv:1912.06015)
// which is the outer-product sum over the T windows that the layer's view shows: the geometry says it all.

namespace pergrad::inline v0_1::detail {

/// What to say of an input that has not `axes` axes besides its channels.
[[nodiscard]] constexpr mistake wrong_rank(std::size_t axes) noexcept {
  return axes == 1   ? mistake::needs_channels_and_positions
         : axes == 2 ? mistake::needs_an_image
                     : mistake::needs_a_volume;
}

/// A convolution along `Axes` axes of an input {channels, ...}.
template <std::size_t Axes, std::size_t Channels, extent GivenKernel, class... Options>
struct convolution {
  static constexpr window_options options = gather_options<Options...>().on(Axes);
  static constexpr extent kernel = on_axes(GivenKernel, Axes, 1);
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return image_shape(Channels, output_size(in), Axes);
  }
  /// Windows of a sequence that is shorter than the others: behind its end lie zeros, as behind any sequence's.
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(Axes == 1) {
    return window_count(length, kernel.height, options.stride.height, options.padding.height, options.dilation.height);
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    return {.in_channels = in.e0,
            .in_size = image_size(in),
            .out_channels = Channels,
            .out_size = output_size(in),
            .kernel = kernel,
            .stride = options.stride,
            .padding = options.padding,
            .dilation = options.dilation,
            .groups = options.groups,
            .bias = options.bias};
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.output_padding_given) return mistake::option_not_offered;
    if (in.rank() != Axes + 1) return wrong_rank(Axes);
    if (Channels == 0 || has_zero(kernel) || has_zero(options.stride) || has_zero(options.dilation) ||
        options.groups == 0) {
      return mistake::zero_is_no_size;
    }
    if (in.e0 % options.groups != 0 || Channels % options.groups != 0) return mistake::groups_do_not_divide;
    return has_zero(output_size(in)) ? mistake::kernel_too_large : mistake::none;
  }

 private:
  [[nodiscard]] static constexpr extent output_size(shape in) noexcept {
    const extent size = image_size(in);
    return {
        window_count(size.depth, kernel.depth, options.stride.depth, options.padding.depth, options.dilation.depth),
        window_count(size.height, kernel.height, options.stride.height, options.padding.height,
                     options.dilation.height),
        window_count(size.width, kernel.width, options.stride.width, options.padding.width, options.dilation.width)};
  }
};

}  // namespace pergrad::inline v0_1::detail
// pergrad/detail/host_device.hpp - the one word that marks a function as callable on host and device.
//
// This is the only header that asks whether a CUDA compiler is reading it. What is marked must be valid device code:
// no library function, no exceptions, no address of a constexpr object.

#ifdef __CUDACC__
#define PERGRAD_HD __host__ __device__
#else
#define PERGRAD_HD
#endif
// pergrad/detail/math.hpp - elementary functions of a scalar or a whole vector register, stated once, without branches.
//
// What a value is, and why a lane gets a scalar's bits: pergrad/detail/lanes.hpp. Rounding to nearest is assumed.
// Nothing is converted from floating point to integer: where an integer is needed it is read from the low bits of x
// + 1.5*2^p, after x has been clamped.
//
//   exp       x = n ln2 + r, |r| <= ln2/2 (Cody & Waite 1980: n ln2 is taken off in two parts, the first product
//             exact); e^r = 1 + r + r^2 q(r), q a polynomial.
//   expm1     (2^n - 1) + 2^n (e^r - 1), its largest two terms added without loss (Dekker 1971).
//   log       x = 2^k (1 + f), s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)) (Tang 1990).
//   log1p     as log, of 1 + x and the rounding error of that sum (Knuth, TAOCP 2, 4.2.2 theorem B): f = x near 0.
//   tanh      x + x^3 P(x^2)/Q(x^2) for |x| < 0.625, else 1 - 2/(1 + e^2|x|).
//   sigmoid   1/(1 + e^-x) for x >= 0, else e^x/(1 + e^x), corrected for what e^x and the sum were rounded by.
//   softplus  max(x, 0) + log1p(e^-|x|).
//   erf       x + x P(x^2)/Q(x^2) for |x| < 1, else 1 - e^(-x^2) P(|x|)/Q(|x|) (the form is Cody's, 1969).
//
// P, Q, q and R interpolate their function at the Chebyshev nodes of its interval (crowded once more towards 1 for
// erfc), solved in 60 digits; what each leaves over is below a quarter of a unit in the last place of its result.
// Against libm in the next wider type all are within 2 units in the last place (tests/detail/math_test.cpp).
// Special values follow C's Annex F: NaN gives NaN, infinities their limits, exp overflows to infinity and underflows
// gradually, odd functions keep -0.

// pergrad/detail/lanes.hpp - what lets one template serve a scalar and a whole vector register.
//
// A value is float, double, or a vector of either made by the compiler's vector extension (vector_size), no wider than
// the machine's registers: wider ones compile to slow code and -Wpsabi says so. Every function works lane by lane and
// without branches: a choice computes both sides and selects bits, so that a lane does the same operations as a scalar.
// The bits are then equal too if a*b+c is rounded once in both or twice in both. That is the compiler's choice
// (-ffp-contract): clang decides expression by expression; g++ decides basic block by basic block and may move a result
// that is not needed yet, so load, evaluate and store in one loop body, as elementwise layers do.

namespace pergrad::inline v0_1::math {
namespace detail {

template <class Value>
struct value_traits {
  using element = std::remove_cvref_t<decltype(std::declval<Value&>()[0])>;
  using word = std::conditional_t<sizeof(element) == 4, std::uint32_t, std::uint64_t>;
  typedef word bits __attribute__((vector_size(sizeof(Value))));
  static constexpr bool is_vector = true;
};

template <class Element, class Word>
struct scalar_traits {
  using element = Element;
  using word = Word;
  using bits = Word;
  static constexpr bool is_vector = false;
};

template <>
struct value_traits<float> : scalar_traits<float, std::uint32_t> {};

template <>
struct value_traits<double> : scalar_traits<double, std::uint64_t> {};

/// The unsigned integer as wide as one element.
template <class Value>
using word_t = typename value_traits<Value>::word;

/// Its scalar or vector, as wide as `Value`.
template <class Value>
using bits_t = typename value_traits<Value>::bits;

}  // namespace detail

/// float or double: what one lane of `Value` holds.
template <class Value>
using element_t = typename detail::value_traits<Value>::element;

/// Whether `Value` is a vector of the compiler's vector extension.
template <class Value>
inline constexpr bool is_vector_v = detail::value_traits<Value>::is_vector;

/// How many elements a `Value` holds; 1 for a scalar.
template <class Value>
inline constexpr std::size_t lanes_v = sizeof(Value) / sizeof(element_t<Value>);

/// `element` in every lane: constants, and what a choice must put against a vector.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value splat(element_t<Value> element) noexcept {
  if constexpr (is_vector_v<Value>) {
    return element - Value{};  // and not +, which would lose the sign of -0
  } else {
    return element;
  }
}

namespace detail {

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline bits_t<Value> to_bits(Value value) noexcept {
  return __builtin_bit_cast(bits_t<Value>, value);
}

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value from_bits(bits_t<Value> bits) noexcept {
  return __builtin_bit_cast(Value, bits);
}

}  // namespace detail

/// Lane by lane `mask ? if_true : if_false`. A mask is what comparing two values gives: bool, or a vector of 0 and -1.
template <class Mask, class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value select(Mask mask, Value if_true, Value if_false) noexcept {
  if constexpr (is_vector_v<Value>) {
    return mask ? if_true : if_false;
  } else {
    // Not a conditional: the compiler would move what only one side needs into a branch, and contract it differently.
    using word = detail::bits_t<Value>;
    const word ones = word{0} - static_cast<word>(mask);
    return detail::from_bits<Value>((detail::to_bits(if_true) & ones) | (detail::to_bits(if_false) & ~ones));
  }
}

/// |x|; clears the sign, of NaN too.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value abs(Value x) noexcept {
  return detail::from_bits<Value>(detail::to_bits(x) & (~detail::word_t<Value>{0} >> 1));
}

/// The larger; `first` if they are equal or either is NaN, so max(x, zero) lets a NaN in x through.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value max(Value first, Value second) noexcept {
  return select(first < second, second, first);
}

/// The smaller; `first` if they are equal or either is NaN.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value min(Value first, Value second) noexcept {
  return select(second < first, second, first);
}

}  // namespace pergrad::inline v0_1::math

namespace pergrad::inline v0_1::math {
namespace detail {

template <class Element>
struct float_format;

template <>
struct float_format<float> {
  using word = word_t<float>;
  static constexpr word fraction_bits = 23;
  static constexpr word bias = 127;
  static constexpr word sign = 0x8000'0000;
  static constexpr word sqrt_half = 0x3f35'04f3;
  static constexpr float shifter = 0x1.8p23F;  // x + shifter rounds x to an integer, which its low bits then hold
  static constexpr float log2_e = 0x1.715476p+0F;
  static constexpr float ln2_high = 0x1.62e4p-1F;  // 15 bits: its product with any exponent is exact
  static constexpr float ln2_low = 0x1.7f7d1cp-20F;
  static constexpr float least = std::numeric_limits<float>::min();
  static constexpr float infinity = std::numeric_limits<float>::infinity();
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float tiny = 0x1p-25F;  // below it expm1, log1p: x + x^2 (..) rounds to x
  static constexpr float exp_lowest = -104.0F;
  static constexpr float exp_highest = 89.0F;
  static constexpr float expm1_lowest = -18.0F;  // e^x is lost against 1
  static constexpr float tanh_highest = 10.0F;   // the result is 1 from here
  static constexpr float erf_highest = 4.0F;
};

template <>
struct float_format<double> {
  using word = word_t<double>;
  static constexpr word fraction_bits = 52;
  static constexpr word bias = 1023;
  static constexpr word sign = 0x8000'0000'0000'0000;
  static constexpr word sqrt_half = 0x3fe6'a09e'667f'3bcd;
  static constexpr double shifter = 0x1.8p52;
  static constexpr double log2_e = 0x1.71547652b82fep+0;
  static constexpr double ln2_high = 0x1.62e42feep-1;  // 32 bits
  static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr double least = std::numeric_limits<double>::min();
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  static constexpr double tiny = 0x1p-54;
  static constexpr double exp_lowest = -746.0;
  static constexpr double exp_highest = 710.0;
  static constexpr double expm1_lowest = -38.0;
  static constexpr double tanh_highest = 20.0;
  static constexpr double erf_highest = 6.0;
};

template <class Value>
using format_of = float_format<element_t<Value>>;

/// 2^(biased - bias).
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value power_of_two(bits_t<Value> biased) noexcept {
  return from_bits<Value>(biased << format_of<Value>::fraction_bits);
}

/// lowest + next x + ... by Horner's rule.
template <class Value, class... Elements>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value polynomial(Value x, element_t<Value> lowest,
                                                                     Elements... next) noexcept {
  if constexpr (sizeof...(Elements) == 0) {
    return splat<Value>(lowest);
  } else {
    return lowest + x * polynomial(x, next...);
  }
}

/// e^x = 2^exponent (1 + head + tail), |tail| << |head|; exponent in two's complement.
template <class Value>
struct exp_parts {
  Value head;
  Value tail;
  bits_t<Value> exponent;
};

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline exp_parts<Value> split_exp(Value x) noexcept {
  using traits = format_of<Value>;
  const Value shifted = x * traits::log2_e + traits::shifter;
  const Value count = shifted - traits::shifter;
  const Value head = x - count * traits::ln2_high;
  const Value low = count * traits::ln2_low;
  const Value rest = head - low;
  Value series;
  if constexpr (std::is_same_v<element_t<Value>, float>) {
    series = polynomial(rest, 0.5F, 0.166666667F, 0.0416664647F, 0.0083333109F, 0.00139336737F, 0.000198910172F);
  } else {
    series = polynomial(rest, 0.5, 0.16666666666666671, 0.04166666666666667, 0.0083333333333261199,
                        0.0013888888888883737, 0.00019841269874873975, 2.4801587325585839e-5, 2.7557255332554409e-6,
                        2.7557273594799413e-7, 2.510524515390137e-8, 2.0914707069612353e-9);
  }
  return {head, rest * rest * series - low,
          to_bits(shifted) - __builtin_bit_cast(typename traits::word, traits::shifter)};
}

/// e^x where neither it nor 2^n leaves the normal range.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value exp_normal(Value x) noexcept {
  const exp_parts<Value> parts = split_exp(x);
  return (element_t<Value>{1} + (parts.head + parts.tail)) *
         power_of_two<Value>(parts.exponent + format_of<Value>::bias);
}

/// e^x = value (1 + relative_error), for any x.
template <class Value>
struct corrected_exp {
  Value value;
  Value relative_error;
};

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline corrected_exp<Value> exp_with_error(Value x) noexcept {
  using traits = format_of<Value>;
  constexpr element_t<Value> one{1};
  const exp_parts<Value> parts =
      split_exp(min(max(x, splat<Value>(traits::exp_lowest)), splat<Value>(traits::exp_highest)));
  // 2^n in two factors, because n may lie one beyond the largest exponent and far below the least.
  const bits_t<Value> biased = parts.exponent + 2 * traits::bias;
  const bits_t<Value> half = biased >> 1;
  const Value above_one = parts.head + parts.tail;
  const Value significand = one + above_one;
  const Value lost = (one - significand) + above_one;
  return {significand * power_of_two<Value>(half) * power_of_two<Value>(biased - half), lost * (one - above_one)};
}

/// log(2^k (1 + f)) for 1 + f in [sqrt 1/2, sqrt 2); `low` is what f and k ln2_high leave over.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log_series(Value count, Value f, Value low) noexcept {
  using element = element_t<Value>;
  const Value half_square = element(0.5) * f * f;
  const Value s = f / (element{2} + f);
  const Value square = s * s;
  Value series;
  if constexpr (std::is_same_v<element, float>) {
    series = polynomial(square, 0.666666666F, 0.40000122F, 0.285508026F, 0.233309641F);
  } else {
    series = polynomial(square, 0.66666666666666697, 0.39999999999899239, 0.28571428626095892, 0.22222211115144162,
                        0.18182890556695604, 0.15331674030167862, 0.1461703754879165);
  }
  return count * format_of<Value>::ln2_high - ((half_square - (s * (half_square + square * series) + low)) - f);
}

/// A positive normal value = 2^count significand, significand in [sqrt 1/2, sqrt 2).
template <class Value>
struct log_parts {
  Value significand;
  Value count;
  bits_t<Value> biased;
};

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline log_parts<Value> split_log(Value x) noexcept {
  using traits = format_of<Value>;
  using word = typename traits::word;
  using element = element_t<Value>;
  constexpr word one = traits::bias << traits::fraction_bits;
  constexpr word fraction_mask = (word{1} << traits::fraction_bits) - 1;
  constexpr element integers = element(word{1} << traits::fraction_bits);  // from here on one unit is the last bit
  const bits_t<Value> bits = to_bits(x) + (one - traits::sqrt_half);
  const bits_t<Value> biased = (bits & ~traits::sign) >> traits::fraction_bits;
  const Value count =
      from_bits<Value>(biased + __builtin_bit_cast(word, integers)) - (integers + element(traits::bias));
  return {from_bits<Value>((bits & fraction_mask) + traits::sqrt_half), count, biased};
}

/// log1p for 0 <= x or -1 < x, finite.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log1p_finite(Value x) noexcept {
  using traits = format_of<Value>;
  using element = element_t<Value>;
  const Value sum = element{1} + x;
  const Value added = sum - element{1};
  const Value error = (x - added) + (element{1} - (sum - added));
  const log_parts<Value> parts = split_log(sum);
  // 2^(1 - k): with 2^-k the largest sums would need an exponent that no number has.
  const Value scale = power_of_two<Value>(2 * traits::bias + 1 - parts.biased);
  const Value scaled_error = element(0.5) * error * scale;
  const Value leading = parts.significand - element{1};
  const Value f = leading + scaled_error;
  const Value lost = (leading - f) + scaled_error;
  const Value result = log_series(parts.count, f, parts.count * traits::ln2_low + lost);
  return select(abs(x) < splat<Value>(traits::tiny), x, result);
}

}  // namespace detail

/// e^x. Results below the least normal number round once more (gradual underflow).
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value exp(Value x) noexcept {
  return detail::exp_with_error(x).value;
}

/// e^x - 1, to full relative accuracy near 0.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value expm1(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  const Value clamped = min(max(x, splat<Value>(traits::expm1_lowest)), splat<Value>(traits::exp_highest));
  const auto parts = detail::split_exp(clamped);
  const Value half_power = detail::power_of_two<Value>(parts.exponent + (traits::bias - 1));  // 2^n itself may overflow
  const Value constant = half_power - element(0.5);
  const Value linear = half_power * parts.head;
  const Value sum = constant + linear;
  const Value lost = (constant - sum) + linear;
  const Value result = element{2} * (sum + (lost + half_power * parts.tail));
  return select(abs(x) < splat<Value>(traits::tiny), x, result);
}

/// Natural logarithm; -inf at 0, NaN below.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  constexpr element raise = element(typename traits::word{1} << traits::fraction_bits);
  const auto denormal = x < splat<Value>(traits::least);
  const auto parts = detail::split_log(select(denormal, x * raise, x));
  const Value count = parts.count - select(denormal, splat<Value>(element(traits::fraction_bits)), Value{});
  const Value finite = detail::log_series(count, parts.significand - element{1}, count * traits::ln2_low);
  const Value outside = select(x == Value{}, splat<Value>(-traits::infinity), splat<Value>(traits::nan));
  return select(x < splat<Value>(traits::infinity), select(x > Value{}, finite, outside), x);
}

/// log(1 + x), to full relative accuracy near 0; -inf at -1, NaN below.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log1p(Value x) noexcept {
  using traits = detail::format_of<Value>;
  const Value pole = splat<Value>(element_t<Value>{-1});
  const Value outside = select(x == pole, splat<Value>(-traits::infinity), splat<Value>(traits::nan));
  return select(x < splat<Value>(traits::infinity), select(x > pole, detail::log1p_finite(x), outside), x);
}

/// Hyperbolic tangent.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value tanh(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  const Value size = min(abs(x), splat<Value>(traits::tanh_highest));
  const Value square = size * size;
  Value above;
  Value below;
  if constexpr (std::is_same_v<element, float>) {
    above = detail::polynomial(square, -0.333333333F, -0.0147729852F);
    below = detail::polynomial(square, 1.0F, 0.444318951F, 0.0158228781F);
  } else {
    above = detail::polynomial(square, -0.33333333333333333, -0.020498797014128276, -0.00019917792421746069);
    below = detail::polynomial(square, 1.0, 0.46149639104238135, 0.023291328284948218, 0.00020653360964084979);
  }
  const auto near_zero = size < splat<Value>(element(0.625));
  const Value numerator = select(near_zero, size * square * above, splat<Value>(element{-2}));
  const Value denominator = select(near_zero, below, detail::exp_normal(size + size) + element{1});
  const Value result = select(near_zero, size, splat<Value>(element{1})) + numerator / denominator;
  return detail::from_bits<Value>(detail::to_bits(result) | (detail::to_bits(x) & traits::sign));
}

/// Logistic function 1 / (1 + e^-x).
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value sigmoid(Value x) noexcept {
  constexpr element_t<Value> one{1};
  const auto power = detail::exp_with_error(-abs(x));
  const Value sum = one + power.value;
  const Value lost = ((one - sum) + power.value) + power.value * power.relative_error;
  const auto negative = x < Value{};
  const Value rounded = select(negative, power.value, splat<Value>(one)) / sum;
  // 1 / (1 + p) and p / (1 + p) add up to one, so either is the other's derivative by log p.
  const Value reciprocal = select(negative, one - rounded, rounded);
  return rounded + rounded * (select(negative, power.relative_error, Value{}) - lost * reciprocal);
}

/// log(1 + e^x), without overflow.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value softplus(Value x) noexcept {
  return max(x, Value{}) + detail::log1p_finite(exp(-abs(x)));
}

/// Gauss error function 2/sqrt(pi) int_0^x e^(-t^2) dt.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value erf(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  const Value size = min(abs(x), splat<Value>(traits::erf_highest));
  const Value square = size * size;
  Value above;
  Value below;
  Value far_above;
  Value far_below;
  if constexpr (std::is_same_v<element, float>) {
    above = detail::polynomial(square, 0.128379167F, -0.320349887F, -0.0409917308F, -0.00524891256F);
    below = detail::polynomial(square, 1.0F, 0.434466955F, 0.0746598807F, 0.00525691711F);
    far_above = detail::polynomial(size, 1.00101401F, 0.736984618F, 0.235814343F, -8.0558799e-5F);
    far_below = detail::polynomial(size, 1.0F, 1.87175337F, 1.32900761F, 0.415254521F);
  } else {
    above = detail::polynomial(square, 0.12837916709551257, -0.31698916933954893, -0.048371274599796295,
                               -0.0088223363248167772, -0.00049664035253739076, -2.0780228076561899e-5);
    below = detail::polynomial(square, 1.0, 0.46064498648983655, 0.093874608765124095, 0.010705251871973175,
                               0.00069373623323491591, 2.0866484101019163e-5);
    far_above =
        detail::polynomial(size, 0.99999999670728632, 1.8298552575063472, 1.6525806387586935, 0.92374240264294516,
                           0.3417085341869327, 0.083629048448242701, 0.01264788648504756, 0.00093536571645476184);
    far_below =
        detail::polynomial(size, 1.0, 2.9582343862885306, 3.9905909053962238, 3.220659672292991, 1.7105849169570096,
                           0.61687082786767299, 0.1490576123099342, 0.022417793825188561, 0.0016578925871363651);
  }
  const auto near_zero = size < splat<Value>(element{1});
  const Value numerator = select(near_zero, size * above, -(detail::exp_normal(-square) * far_above));
  const Value denominator = select(near_zero, below, far_below);
  const Value result = select(near_zero, size, splat<Value>(element{1})) + numerator / denominator;
  return detail::from_bits<Value>(detail::to_bits(result) | (detail::to_bits(x) & traits::sign));
}

}  // namespace pergrad::inline v0_1::math

namespace pergrad::inline v0_1::detail {

/// Windows of one size at equal steps along `Axes` axes of an input {channels, ...}; the stride defaults to the kernel,
/// as in PyTorch.
template <std::size_t Axes, extent GivenKernel, class... Options>
struct sliding_windows {
  static constexpr window_options options = gather_options<Options...>().on(Axes);
  static constexpr extent kernel = on_axes(GivenKernel, Axes, 1);
  static constexpr extent step = options.stride_given ? options.stride : kernel;
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return image_shape(in.e0, output_size(in), Axes);
  }
  [[nodiscard]] static constexpr window_range planes(shape in, std::size_t d) noexcept requires(Axes == 3) {
    return inside(d * step.depth, kernel.depth, options.padding.depth, image_size(in).depth);
  }
  [[nodiscard]] static constexpr window_range rows(shape in, std::size_t i) noexcept {
    return inside(i * step.height, kernel.height, options.padding.height, image_size(in).height);
  }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t j) noexcept {
    return inside(j * step.width, kernel.width, options.padding.width, image_size(in).width);
  }
  /// Windows of a shorter sequence. With padding a window could see beyond its end, so that is not offered.
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(Axes == 1 && options.padding.height == 0) {
    return window_count(length, kernel.height, step.height, 0, 1);
  }
  /// Values in a window, padding included (PyTorch's `count_include_pad`).
  template <class... Index>
  [[nodiscard]] static constexpr std::size_t divisor(shape /*in*/, Index... /*of the output*/) noexcept {
    return kernel.size();
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.dilation != extent{1} || options.groups != 1 || !options.bias ||
        options.output_padding_given) {
      return mistake::option_not_offered;
    }
    if (in.rank() != Axes + 1) return wrong_rank(Axes);
    if (has_zero(kernel) || has_zero(step)) return mistake::zero_is_no_size;
    if (2 * options.padding.depth > kernel.depth || 2 * options.padding.height > kernel.height ||
        2 * options.padding.width > kernel.width) {
      return mistake::pool_padding_too_large;
    }
    return has_zero(output_size(in)) ? mistake::kernel_too_large : mistake::none;
  }

 private:
  [[nodiscard]] static constexpr extent output_size(shape in) noexcept {
    const extent size = image_size(in);
    return {window_count(size.depth, kernel.depth, step.depth, options.padding.depth, 1),
            window_count(size.height, kernel.height, step.height, options.padding.height, 1),
            window_count(size.width, kernel.width, step.width, options.padding.width, 1)};
  }
  [[nodiscard]] static constexpr window_range inside(std::size_t start, std::size_t length, std::size_t padding,
                                                     std::size_t size) noexcept {
    const std::size_t end = std::min(start + length, size + padding);
    return {start < padding ? 0 : start - padding, end < padding ? 0 : end - padding};
  }
};

/// Overlapping windows that cut each of `Axes` axes into a fixed number of parts: part i of n along an axis of h sees
/// floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch.
template <std::size_t Axes, extent Parts>
struct adaptive_windows {
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return image_shape(in.e0, Parts, Axes); }
  [[nodiscard]] static constexpr window_range planes(shape in, std::size_t d) noexcept requires(Axes == 3) {
    return part(image_size(in).depth, Parts.depth, d);
  }
  [[nodiscard]] static constexpr window_range rows(shape in, std::size_t i) noexcept {
    return part(image_size(in).height, Parts.height, i);
  }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t j) noexcept {
    return part(image_size(in).width, Parts.width, j);
  }
  /// Inputs that the mean of output (i, j) or (d, i, j) counts.
  [[nodiscard]] static constexpr std::size_t divisor(shape in, std::size_t i, std::size_t j) noexcept {
    return length(rows(in, i)) * length(columns(in, j));
  }
  [[nodiscard]] static constexpr std::size_t divisor(shape in, std::size_t d, std::size_t i, std::size_t j) noexcept
      requires(Axes == 3) {
    return length(planes(in, d)) * divisor(in, i, j);
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (in.rank() != Axes + 1) return wrong_rank(Axes);
    return has_zero(Parts) ? mistake::zero_is_no_size : mistake::none;
  }

 private:
  [[nodiscard]] static constexpr std::size_t length(window_range range) noexcept { return range.end - range.begin; }
  [[nodiscard]] static constexpr window_range part(std::size_t size, std::size_t parts, std::size_t i) noexcept {
    return {i * size / parts, ((i + 1) * size + parts - 1) / parts};
  }
};

/// The largest value of a window; its gradient goes to the first input that equals it.
struct maximum_of_window {
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value start() noexcept {
    return Value{} - std::numeric_limits<math::element_t<Value>>::infinity();
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value combine(Value best, Value x) noexcept {
    return math::select(x > best, x, math::select(x != x, x, best));  // a NaN wins and stays, as in PyTorch
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value finish(Value best, math::element_t<Value> /*divisor*/) noexcept {
    return best;
  }
  /// The part of `dy` that belongs to input x. `remaining` is dy before the window's first input, what is left after
  /// it.
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value share(Value x, Value y, Value& remaining,
                                              math::element_t<Value> /*divisor*/) noexcept {
    const Value part = math::select(x == y, remaining, Value{});
    remaining = math::select(x == y, Value{}, remaining);
    return part;
  }
};

/// y = sum / divisor; every input's share of dy is dy / divisor.
struct mean_of_window {
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value start() noexcept {
    return Value{};
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value combine(Value sum, Value x) noexcept {
    return sum + x;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value finish(Value sum, math::element_t<Value> divisor) noexcept {
    return sum / divisor;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value share(Value /*x*/, Value /*y*/, Value& dy,
                                              math::element_t<Value> divisor) noexcept {
    return dy / divisor;
  }
};

}  // namespace pergrad::inline v0_1::detail

namespace pergrad::inline v0_1 {

/// `adaptive_avg_pool1d<Positions>` on `{channels, positions}`. PyTorch: `nn.AdaptiveAvgPool1d`.
template <std::size_t Positions>
struct adaptive_avg_pool1d : detail::adaptive_windows<1, extent{Positions, 1}>, detail::mean_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/adaptive_avg_pool2d.hpp - means over windows that cut any image into a fixed number of (overlapping)
// parts
//
// Output row i of n sees input rows floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch; other axes likewise.

namespace pergrad::inline v0_1 {

/// `adaptive_avg_pool2d<Height, Width>` on `{channels, height, width}`. PyTorch: `nn.AdaptiveAvgPool2d`.
template <std::size_t Height, std::size_t Width = Height>
struct adaptive_avg_pool2d : detail::adaptive_windows<2, extent{Height, Width}>, detail::mean_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/adaptive_avg_pool3d.hpp - means over windows that cut any volume into a fixed number of (overlapping)
// parts
//
// Output row i of n sees input rows floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch; other axes likewise.

namespace pergrad::inline v0_1 {

/// `adaptive_avg_pool3d<Depth, Height, Width>` on `{channels, depth, height, width}`. PyTorch: `nn.AdaptiveAvgPool3d`.
template <std::size_t Depth, std::size_t Height = Depth, std::size_t Width = Height>
struct adaptive_avg_pool3d : detail::adaptive_windows<3, extent{Depth, Height, Width}>, detail::mean_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/avg_pool1d.hpp - mean of each window of a sequence, padding counted; every input gets an equal
// share of the gradient

namespace pergrad::inline v0_1 {

/// `avg_pool1d<Kernel, Options...>` on `{channels, positions}`; options `stride<>` (default: the kernel),
/// `padding<>` (zeros that count in the mean). PyTorch: `nn.AvgPool1d` with its default `count_include_pad=True`.
template <std::size_t Kernel, class... Options>
struct avg_pool1d : detail::sliding_windows<1, extent{Kernel}, Options...>, detail::mean_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/avg_pool2d.hpp - mean of each window of an image, padding counted; every input gets an equal
// share of the gradient

namespace pergrad::inline v0_1 {

/// `avg_pool2d<Kernel, Options...>` on `{channels, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (zeros that count in the mean). PyTorch: `nn.AvgPool2d` with its default `count_include_pad=True`.
template <extent Kernel, class... Options>
struct avg_pool2d : detail::sliding_windows<2, Kernel, Options...>, detail::mean_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/avg_pool3d.hpp - mean of each window of a volume, padding counted; every input gets an equal
// share of the gradient

namespace pergrad::inline v0_1 {

/// `avg_pool3d<Kernel, Options...>` on `{channels, depth, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (zeros that count in the mean). PyTorch: `nn.AvgPool3d` with its default `count_include_pad=True`.
template <extent Kernel, class... Options>
struct avg_pool3d : detail::sliding_windows<3, Kernel, Options...>, detail::mean_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/batch_norm.hpp - names that explain why they are missing
//
// A batch norm's output for one sample depends on all others, so no per-sample gradient exists (see docs/privacy.md).
// What takes its place: group_norm or instance_norm, or frozen<channel_affine> for one with fixed statistics.

namespace pergrad::inline v0_1 {

/// Batch normalisation mixes the samples of a batch; a network with it does not compile and the error says what to use.
struct batch_norm1d {
  static constexpr bool mixes_samples = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
};
/// As `batch_norm1d`.
struct batch_norm2d : batch_norm1d {};
/// As `batch_norm1d`.
struct batch_norm3d : batch_norm1d {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/channel_affine.hpp - y = gain_c x + shift_c, one gain and one shift a channel
//
// What is left of a batch norm whose statistics are constants: gain = weight / sqrt(variance + eps), shift = bias -
// mean gain. Per-sample gradients: of gain_c the sum of dy x over the pixels of channel c, of shift_c the sum of dy.

// pergrad/detail/channel_norm.hpp - groups of channels over all their pixels, normalised on images stored channels last
//
// A pixel's channels lie side by side, so vectors run over channels and sums over pixels stay in registers, one lane a
// channel. Groups are made of whole lanes' sums. Channels are taken some groups at a time, few enough to stay in the
// cache from the first pass over them to the last.
//
// Vectors of the last channels may read into the next pixel: what lies there is computed with, but never used.

// pergrad/detail/normalisation.hpp - what the normalising layers share: options, moments, and one row forward and back
//
// Of the n values that are normalised together, with mu their mean, s^2 their biased variance and r = 1/sqrt(s^2 +
// eps):
//     xhat_i = (x_i - mu) r             y_i = gain_i xhat_i + shift_i
//     dx_i   = r (g_i - mean(g) - xhat_i mean(g xhat)),   g_i = gain_i dy_i        (Ba et al. 2016, arXiv:1607.06450)
// The root mean square has mu = 0 and r = 1/sqrt(mean(x^2) + eps), and no mean(g) (Zhang & Sennrich 2019,
// arXiv:1910.07467). Parameters: dL/dgain = sum dy xhat, dL/dshift = sum dy, over the positions that share them.
//
// Moments are taken in double, in two passes: the second one sums the deviations from the first one's mean and corrects
// with their own mean (Chan, Golub & LeVeque 1983), so a constant input has exactly variance 0 and its own value as
// mean. Every value is divided by n before it is added: no sum overflows that its mean would not.

namespace pergrad::inline v0_1 {

/// Option of a normalising layer: how many of the last axes are normalised together.
template <std::size_t Count>
struct axes {};
/// Option of a normalising layer: neither gain nor shift. PyTorch: `affine=False`, `elementwise_affine=False`.
struct no_affine {};
/// Option of a normalising layer: what is added to the variance, Numerator / Denominator.
template <std::uintmax_t Numerator, std::uintmax_t Denominator = 1>
struct eps {};

namespace detail {

/// Options of a normalising layer, gathered from its option types in any order.
struct norm_options {
  std::size_t axes = 1;
  double epsilon = 1e-5;
  bool affine = true;
  bool bias = true;
  bool axes_given = false;
  bool bias_given = false;
  bool epsilon_given = false;
  bool unknown_given = false;  ///< something that is no option at all, or an epsilon of 0

  [[nodiscard]] constexpr bool shifts() const noexcept { return affine && bias; }
};

template <std::size_t Count>
constexpr void apply(norm_options& options, pergrad::axes<Count> /*option*/) noexcept {
  options.axes = Count;
  options.axes_given = true;
}
constexpr void apply(norm_options& options, no_affine /*option*/) noexcept { options.affine = false; }
constexpr void apply(norm_options& options, no_bias /*option*/) noexcept {
  options.bias = false;
  options.bias_given = true;
}
template <std::uintmax_t Numerator, std::uintmax_t Denominator>
constexpr void apply(norm_options& options, pergrad::eps<Numerator, Denominator> /*option*/) noexcept {
  options.epsilon_given = true;
  if constexpr (Numerator == 0 || Denominator == 0) {
    options.unknown_given = true;
  } else {
    options.epsilon = static_cast<double>(static_cast<long double>(Numerator) / static_cast<long double>(Denominator));
  }
}
template <class Unknown>
constexpr void apply(norm_options& options, Unknown /*option*/) noexcept {
  options.unknown_given = true;
}

template <class... Options>
[[nodiscard]] constexpr norm_options gather_norm_options() noexcept {
  norm_options options;
  (apply(options, Options{}), ...);
  return options;
}

/// Gains 1 and shifts 0 wherever PyTorch's layers would choose for themselves; initialisers of "every parameter"
/// (uniform, normal, constant) are of these, too.
template <class Initialiser, class Scalar>
void initialise_affine(const Initialiser& initialiser, std::uint64_t first, std::size_t gains,
                       std::span<Scalar> parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if constexpr (std::is_base_of_v<layer_default, Initialiser>) {
      parameters[i] = i < gains ? Scalar{1} : Scalar{0};
    } else {
      parameters[i] =
          static_cast<Scalar>(i < gains ? initialiser.weight(first + i, fans{}) : initialiser.bias(first + i, fans{}));
    }
  }
}

namespace normalisation {

using on_host::index;
using on_host::narrow;
using on_host::widen;
using wide = on_host::vector<double>;
inline constexpr auto wide_lanes = static_cast<index>(on_host::vector_lanes<double>);

template <class Scalar>
[[nodiscard]] inline narrow<Scalar> load_narrow(const Scalar* from) noexcept {
  narrow<Scalar> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Scalar>
inline void store_narrow(Scalar* to, narrow<Scalar> value) noexcept {
  std::memcpy(to, &value, sizeof value);
}
/// The first `count` lanes; the others are 0.
template <class Scalar>
[[nodiscard]] inline narrow<Scalar> load_narrow(const Scalar* from, index count) noexcept {
  Scalar lanes[on_host::vector_lanes<double>]{};
  for (index i = 0; i < count; ++i) lanes[i] = from[i];
  return load_narrow(lanes);
}
template <std::size_t First = 0, std::size_t Count = on_host::vector_lanes<double>>
[[nodiscard]] inline double sum_of_lanes(wide values) noexcept {
  if constexpr (Count == 1) {
    return values[First];
  } else {
    return sum_of_lanes<First, Count / 2>(values) + sum_of_lanes<First + Count / 2, Count / 2>(values);
  }
}
[[nodiscard]] inline double sum_of_first_lanes(wide values, index count) noexcept {
  double sum = 0;
  for (index lane = 0; lane < count; ++lane) sum += values[lane];
  return sum;
}

/// Sums over i < count, in double and in an order that depends on `count` only. `f(load)` gives the summands of one
/// vector of elements; `load(from)` is how it reads them.
template <std::size_t Sums, class Function>
[[nodiscard]] inline std::array<double, Sums> reduce(index count, Function&& f) noexcept {
  wide sums[2][Sums]{};
  index i = 0;
  for (; i + 2 * wide_lanes <= count; i += 2 * wide_lanes) {
    for (index half = 0; half < 2; ++half) {
      const std::array<wide, Sums> here =
          f([first = i + half * wide_lanes](const auto* from) { return load_narrow(from + first); });
      for (std::size_t s = 0; s < Sums; ++s) sums[half][s] += here[s];
    }
  }
  std::array<double, Sums> totals{};
  for (std::size_t s = 0; s < Sums; ++s) totals[s] = sum_of_lanes(sums[0][s] + sums[1][s]);
  for (; i < count; i += wide_lanes) {
    const index rest = count - i < wide_lanes ? count - i : wide_lanes;
    const std::array<wide, Sums> here = f([&](const auto* from) { return load_narrow(from + i, rest); });
    for (std::size_t s = 0; s < Sums; ++s) totals[s] += sum_of_first_lanes(here[s], rest);
  }
  return totals;
}

/// How a value becomes xhat: xhat = (x - mean) rate + rest. `rest` is what the mean's rounding to `Scalar` lost, times
/// the rate.
template <class Scalar>
struct normaliser {
  Scalar mean = 0;
  Scalar rate = 1;
  Scalar rest = 0;

  constexpr normaliser() noexcept = default;
  /// From the first pass's mean, and mean and mean square of the deviations from it. A variance that overflows makes
  /// the rate 0.
  normaliser(double first_mean, double deviation, double square, double epsilon) noexcept {
    const double exact_mean = first_mean + deviation;
    const double variance = std::isinf(square) ? square : square - deviation * deviation;
    const double exact_rate = 1 / std::sqrt((variance < 0 ? 0.0 : variance) + epsilon);  // a NaN stays a NaN
    mean = static_cast<Scalar>(exact_mean);
    rate = static_cast<Scalar>(exact_rate);
    rest = static_cast<Scalar>((static_cast<double>(mean) - exact_mean) * exact_rate);
  }
};

/// Of a row of `count` values: centred for a layer norm, not for the root mean square.
template <bool Centred, class Scalar>
[[nodiscard]] inline normaliser<Scalar> normaliser_of_row(const Scalar* x, index count, double epsilon) noexcept {
  const wide share = on_host::splat(1 / static_cast<double>(count));
  if constexpr (Centred) {
    const double mean = reduce<1>(count, [&](const auto& load) { return std::array{widen(load(x)) * share}; })[0];
    const wide centre = on_host::splat(mean);
    const auto [deviation, square] = reduce<2>(count, [&](const auto& load) {
      const wide here = widen(load(x)) - centre;
      return std::array{here * share, here * share * here};
    });
    return {mean, deviation, square, epsilon};
  } else {
    const double square = reduce<1>(count, [&](const auto& load) {
      const wide value = widen(load(x));
      return std::array{value * share * value};
    })[0];
    return {0, 0, square, epsilon};
  }
}

/// xhat and y of a row. `gain` and `shift` may be null: 1 and 0.
template <bool Centred, class Scalar>
inline void forward_row(const Scalar* x, index count, const normaliser<Scalar>& by, const Scalar* gain,
                        const Scalar* shift, Scalar* xhat, Scalar* y) noexcept {
  const auto run = [&](auto with_gain, auto with_shift) {
    on_host::for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
      using vector = on_host::vector<Scalar>;
      vector value = lanes.load(x + i);
      if constexpr (Centred) {
        value = (value - on_host::splat(by.mean)) * on_host::splat(by.rate) + on_host::splat(by.rest);
      } else {
        value = value * on_host::splat(by.rate);
      }
      lanes.store(xhat + i, value);
      if constexpr (with_gain) value = value * lanes.load(gain + i);
      if constexpr (with_shift) value = value + lanes.load(shift + i);
      lanes.store(y + i, value);
    });
  };
  if (gain == nullptr) {
    run(std::false_type{}, std::false_type{});
  } else if (shift == nullptr) {
    run(std::true_type{}, std::false_type{});
  } else {
    run(std::true_type{}, std::true_type{});
  }
}

/// dx of a row. `gain` may be null: 1.
template <bool Centred, class Scalar>
inline void backward_row(const Scalar* xhat, Scalar rate, const Scalar* gain, const Scalar* dy, index count,
                         Scalar* dx) noexcept {
  const wide share = on_host::splat(1 / static_cast<double>(count));
  const auto run = [&](auto with_gain) {
    const auto slope = [&](const auto& load, index i) {
      if constexpr (with_gain) {
        return load(dy + i) * load(gain + i);
      } else {
        return load(dy + i);
      }
    };
    const auto [mean, projection] = reduce<2>(count, [&](const auto& load) {
      const wide weighted = widen(slope(load, 0)) * share;
      return std::array{weighted, weighted * widen(load(xhat))};
    });
    const auto mean_here = static_cast<Scalar>(mean);
    const auto projection_here = static_cast<Scalar>(projection);
    on_host::for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
      auto value = slope([&](const Scalar* from) { return lanes.load(from); }, i);
      if constexpr (Centred) value = value - on_host::splat(mean_here);
      value = value - lanes.load(xhat + i) * on_host::splat(projection_here);
      lanes.store(dx + i, value * on_host::splat(rate));
    });
  };
  if (gain == nullptr) {
    run(std::false_type{});
  } else {
    run(std::true_type{});
  }
}

}  // namespace normalisation
}  // namespace detail
}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1::detail::normalisation {

using on_host::layout;

/// `count` channels from `first` on, in `Width` vectors. Only whole blocks may be stored without care.
template <index Width, bool Whole>
struct channel_block {
  static constexpr index width = Width;
  index first;
  index count;

  template <class Scalar>
  void store(Scalar* to, narrow<Scalar> value) const noexcept {
    if constexpr (Whole) {
      store_narrow(to, value);
    } else {
      for (index lane = 0; lane < count; ++lane) to[lane] = value[lane];
    }
  }
  /// f(channel) in the channel's lane, for all channels of the block in order.
  template <class Scalar, class Function>
  [[nodiscard]] std::array<narrow<Scalar>, static_cast<std::size_t>(Width)> lanes(Function&& f) const noexcept {
    Scalar values[static_cast<std::size_t>(Width * wide_lanes)]{};
    for (index lane = 0; lane < count; ++lane) values[lane] = f(first + lane);
    std::array<narrow<Scalar>, static_cast<std::size_t>(Width)> result;
    for_each_index<static_cast<std::size_t>(Width)>(
        [&](auto k) { result[k] = load_narrow(values + static_cast<index>(k) * wide_lanes); });
    return result;
  }
};

template <class Function>
inline void for_each_block(index first, index last, Function&& f) noexcept {
  for (; first + 2 * wide_lanes <= last; first += 2 * wide_lanes) f(channel_block<2, true>{first, 2 * wide_lanes});
  for (; first + wide_lanes <= last; first += wide_lanes) f(channel_block<1, true>{first, wide_lanes});
  if (first < last) f(channel_block<1, false>{first, last - first});
}

/// Sums over all pixels, one a channel of the block: `f(first element in a, first element in b)` gives `Sums` vectors
/// of doubles for one vector of channels of one pixel. Calls `g(channel, sums)` for every channel in order.
template <std::size_t Sums, class Block, class Function, class Result>
inline void reduce_pixels(const Block& block, const layout& a, const layout& b, Function&& f, Result&& g) noexcept {
  constexpr auto width = static_cast<std::size_t>(Block::width);
  const index channels = a.values.channels;
  wide sums[width][Sums]{};
  on_host::for_each_stretch(a, b, [&](index in_a, index in_b, index count) {
    wide here[width][Sums];  // in registers, as `sums` would not be
    std::memcpy(here, sums, sizeof sums);
    for (index i = block.first; i < count; i += channels) {
      for_each_index<width>([&](auto k) {
        const index at = i + static_cast<index>(k) * wide_lanes;
        const std::array<wide, Sums> terms = f(in_a + at, in_b + at, k);
        for_each_index<Sums>([&](auto s) { here[k][s] += terms[s]; });
      });
    }
    std::memcpy(sums, here, sizeof sums);
  });
  for (index lane = 0; lane < block.count; ++lane) {
    std::array<double, Sums> here{};
    for (std::size_t s = 0; s < Sums; ++s) here[s] = sums[lane / wide_lanes][s][lane % wide_lanes];
    g(block.first + lane, here);
  }
}

/// Groups of channels, met in order.
class group_cursor {
 public:
  explicit group_cursor(index size) noexcept : size_{size} {}
  /// Number of the next channel's group.
  [[nodiscard]] index next() noexcept {
    const index here = group_;
    if (++inside_ == size_) {
      inside_ = 0;
      ++group_;
    }
    return here;
  }

 private:
  index size_;
  index inside_ = 0;
  index group_ = 0;
};

inline constexpr index channels_together = 64;
/// Calls f(first channel, one past the last) for some groups at a time: at most `channels_together` of them.
template <class Function>
inline void for_some_groups(index channels, index group_size, Function&& f) noexcept {
  const index step = std::max<index>(1, channels_together / group_size) * group_size;
  for (index first = 0; first < channels; first += step) f(first, std::min(first + step, channels));
}

/// xhat, dense, and y of one sample, and one rate a group. `gain` and `shift` may be null.
template <class Scalar>
inline void forward_image(const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y, index group_size,
                          double epsilon, const Scalar* gain, const Scalar* shift, Scalar* xhat,
                          Scalar* rates) noexcept {
  const index channels = x_layout.values.channels;
  const index pixels = x_layout.values.size() / channels;
  const wide share = on_host::splat(1 / static_cast<double>(group_size * pixels));
  for_some_groups(channels, group_size, [&](index first, index last) {
    double mean[channels_together]{};
    double deviation[channels_together]{};
    double square[channels_together]{};
    normaliser<Scalar> by[channels_together];
    group_cursor group{group_size};
    for_each_block(first, last, [&](const auto& block) {
      reduce_pixels<1>(
          block, x_layout, x_layout,
          [&](index i, index, auto) { return std::array{widen(load_narrow(x + i)) * share}; },
          [&](index, const auto& sums) { mean[group.next()] += sums[0]; });
    });
    group = group_cursor{group_size};
    group_cursor group_of_sums{group_size};
    for_each_block(first, last, [&](const auto& block) {
      const auto centre = block.template lanes<double>([&](index) { return mean[group.next()]; });
      reduce_pixels<2>(
          block, x_layout, x_layout,
          [&](index i, index, auto k) {
            const wide here = widen(load_narrow(x + i)) - centre[k];
            return std::array{here * share, here * share * here};
          },
          [&](index, const auto& sums) {
            const index number = group_of_sums.next();
            deviation[number] += sums[0];
            square[number] += sums[1];
          });
    });
    for (index g = 0; g < (last - first) / group_size; ++g) {
      by[g] = {mean[g], deviation[g], square[g], epsilon};
      rates[first / group_size + g] = by[g].rate;
    }
    group = group_cursor{group_size};
    for_each_block(first, last, [&](const auto& block) {
      constexpr auto width = static_cast<std::size_t>(std::remove_cvref_t<decltype(block)>::width);
      group_cursor again = group;
      group_cursor once_more = group;
      const auto means = block.template lanes<Scalar>([&](index) { return by[group.next()].mean; });
      const auto rate = block.template lanes<Scalar>([&](index) { return by[again.next()].rate; });
      const auto rest = block.template lanes<Scalar>([&](index) { return by[once_more.next()].rest; });
      const auto gains = block.template lanes<Scalar>([&](index c) { return gain == nullptr ? Scalar{1} : gain[c]; });
      const auto shifts =
          block.template lanes<Scalar>([&](index c) { return shift == nullptr ? Scalar{0} : shift[c]; });
      Scalar* dense = xhat;
      on_host::for_each_stretch(x_layout, y_layout, [&](index from, index to, index count) {
        for (index i = block.first; i < count; i += channels) {
          for_each_index<width>([&](auto k) {
            const index here = i + static_cast<index>(k) * wide_lanes;
            const narrow<Scalar> value = (load_narrow(x + from + here) - means[k]) * rate[k] + rest[k];
            block.store(dense + here, value);
            block.store(y + to + here, narrow<Scalar>{value * gains[k] + shifts[k]});
          });
        }
        dense += count;
      });
    });
  });
}

/// dx of one sample, unless it is null, and what the gains and shifts receive, unless `gain` is null.
template <class Scalar>
inline void backward_image(const layout& dy_layout, const Scalar* dy, const layout& dx_layout, Scalar* dx,
                           index group_size, const Scalar* gain, const Scalar* xhat, const Scalar* rates,
                           Scalar* gain_sums, Scalar* shift_sums) noexcept {
  const index channels = dy_layout.values.channels;
  const index pixels = dy_layout.values.size() / channels;
  const layout dense_layout = on_host::lay_out(dy_layout.values, {});
  const double share = 1 / static_cast<double>(group_size * pixels);
  for_some_groups(channels, group_size, [&](index first, index last) {
    double mean[channels_together]{};
    double projection[channels_together]{};
    group_cursor group{group_size};
    for_each_block(first, last, [&](const auto& block) {
      reduce_pixels<2>(
          block, dy_layout, dense_layout,
          [&](index i, index j, auto) {
            const wide slope = widen(load_narrow(dy + i));
            return std::array{slope, slope * widen(load_narrow(xhat + j))};
          },
          [&](index c, const auto& sums) {
            const index number = group.next();
            const double weight = share * (gain == nullptr ? 1 : static_cast<double>(gain[c]));
            mean[number] += weight * sums[0];
            projection[number] += weight * sums[1];
            if (gain == nullptr) return;
            gain_sums[c] = static_cast<Scalar>(sums[1]);
            shift_sums[c] = static_cast<Scalar>(sums[0]);
          });
    });
    if (dx == nullptr) return;
    group = group_cursor{group_size};
    for_each_block(first, last, [&](const auto& block) {
      constexpr auto width = static_cast<std::size_t>(std::remove_cvref_t<decltype(block)>::width);
      group_cursor again = group;
      group_cursor once_more = group;
      const Scalar* rate = rates + first / group_size;
      const auto slope = block.template lanes<Scalar>(
          [&](index c) { return rate[group.next()] * (gain == nullptr ? Scalar{1} : gain[c]); });
      const auto offset = block.template lanes<Scalar>([&](index) {
        const index number = again.next();
        return rate[number] * static_cast<Scalar>(mean[number]);
      });
      const auto along = block.template lanes<Scalar>([&](index) {
        const index number = once_more.next();
        return rate[number] * static_cast<Scalar>(projection[number]);
      });
      const Scalar* dense = xhat;
      on_host::for_each_stretch(dy_layout, dx_layout, [&](index from, index to, index count) {
        for (index i = block.first; i < count; i += channels) {
          for_each_index<width>([&](auto k) {
            const index here = i + static_cast<index>(k) * wide_lanes;
            block.store(dx + to + here, narrow<Scalar>{load_narrow(dy + from + here) * slope[k] - offset[k] -
                                                       load_narrow(dense + here) * along[k]});
          });
        }
        dense += count;
      });
    });
  });
}

/// The same of a sample with one pixel: its groups are rows.
template <class Scalar>
inline void forward_pixel(const Scalar* x, Scalar* y, index channels, index group_size, double epsilon,
                          const Scalar* gain, const Scalar* shift, Scalar* xhat, Scalar* rates) noexcept {
  for (index first = 0; first < channels; first += group_size) {
    const auto by = normaliser_of_row<true>(x + first, group_size, epsilon);
    *rates++ = by.rate;
    forward_row<true>(x + first, group_size, by, gain == nullptr ? nullptr : gain + first,
                      shift == nullptr ? nullptr : shift + first, xhat + first, y + first);
  }
}
template <class Scalar>
inline void backward_pixel(const Scalar* dy, Scalar* dx, index channels, index group_size, const Scalar* gain,
                           const Scalar* xhat, const Scalar* rates, Scalar* gain_sums, Scalar* shift_sums) noexcept {
  for (index first = 0; dx != nullptr && first < channels; first += group_size) {
    backward_row<true>(xhat + first, *rates++, gain == nullptr ? nullptr : gain + first, dy + first, group_size,
                       dx + first);
  }
  if (gain == nullptr) return;
  on_host::for_each_vector<Scalar>(channels, [&](index i, const auto& lanes) {
    lanes.store(shift_sums + i, lanes.load(dy + i));
    lanes.store(gain_sums + i, lanes.load(dy + i) * lanes.load(xhat + i));
  });
}

/// y = gain_c x + shift_c; `shift` may be null.
template <class Scalar>
inline void scale_image(const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y, const Scalar* gain,
                        const Scalar* shift) noexcept {
  const index channels = x_layout.values.channels;
  for_each_block(0, channels, [&](const auto& block) {
    constexpr auto width = static_cast<std::size_t>(std::remove_cvref_t<decltype(block)>::width);
    const auto gains = block.template lanes<Scalar>([&](index c) { return gain[c]; });
    const auto shifts = block.template lanes<Scalar>([&](index c) { return shift == nullptr ? Scalar{0} : shift[c]; });
    on_host::for_each_stretch(x_layout, y_layout, [&](index from, index to, index count) {
      for (index i = block.first; i < count; i += channels) {
        for_each_index<width>([&](auto k) {
          const index here = i + static_cast<index>(k) * wide_lanes;
          block.store(y + to + here, narrow<Scalar>{load_narrow(x + from + here) * gains[k] + shifts[k]});
        });
      }
    });
  });
}
/// Over all pixels, a channel's sum of dy x and its sum of dy.
template <class Scalar>
inline void sum_image(const layout& dy_layout, const Scalar* dy, const layout& x_layout, const Scalar* x,
                      Scalar* products, Scalar* sums) noexcept {
  for_each_block(0, dy_layout.values.channels, [&](const auto& block) {
    reduce_pixels<2>(
        block, dy_layout, x_layout,
        [&](index i, index j, auto) {
          const wide slope = widen(load_narrow(dy + i));
          return std::array{slope, slope * widen(load_narrow(x + j))};
        },
        [&](index c, const auto& total) {
          sums[c] = static_cast<Scalar>(total[0]);
          products[c] = static_cast<Scalar>(total[1]);
        });
  });
}

}  // namespace pergrad::inline v0_1::detail::normalisation

namespace pergrad::inline v0_1 {

/// `channel_affine` on an input of any rank. The channels are the first axis, as in PyTorch's batch norm: the features
/// of a vector, the channels of `{channels, positions}`, of an image or of a volume. `frozen<channel_affine>` is a
/// batch norm with fixed statistics. Parameters: all gains, then all shifts, at first 1 and 0.
struct channel_affine {
  static constexpr bool on_tiles = true;
  static constexpr bool stored_order = true;
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return 2 * in.e0; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return parameter_count(in); }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.e0, {.from = source::saved}),
                        elementwise_sum(1, in.e0, {.from = source::saved, .offset = in.e0}));
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.varying_axis() != 0 ? detail::mistake::lengths_are_lost : detail::mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    detail::initialise_affine(initialiser, first, in.e0, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      detail::normalisation::scale_image(tile.x_layout, tile.x(b), tile.y_layout, tile.y(b), tile.parameters,
                                         tile.parameters + tile.in.e0);
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      if (tile.wants_factors) {
        detail::normalisation::sum_image(tile.dy_layout, tile.dy(b), tile.x_layout, tile.x(b), tile.saved(b),
                                         tile.saved(b) + tile.in.e0);
      }
      if (!tile.wants_dx) continue;
      detail::normalisation::scale_image(tile.dy_layout, tile.dy(b), tile.dx_layout, tile.dx(b), tile.parameters,
                                         static_cast<const scalar*>(nullptr));
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/conv1d.hpp - 1-d convolution along a sequence
//
//     y[o, i] = b[o] + sum_{c, k} W[o, c, k] x[c, i s + k r - p]
//
// Its per-sample gradient is in detail/convolution.hpp.

namespace pergrad::inline v0_1 {

/// `conv1d<Channels, Kernel, Options...>` on `{channels, positions}`; put `transpose` before it if the sequence is
/// (positions, features). Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch:
/// `nn.Conv1d` with zero padding; parameters: weight `[Channels, channels / groups, Kernel]`, then bias.
template <std::size_t Channels, std::size_t Kernel, class... Options>
struct conv1d : detail::convolution<1, Channels, extent{Kernel}, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/conv2d.hpp - 2-d convolution
//
//     y[o, i, j] = b[o] + sum_{c, k, l} W[o, c, k, l] x[c, i s + k r - p, j s + l r - p]
//
// Its per-sample gradient is in detail/convolution.hpp.

namespace pergrad::inline v0_1 {

/// `conv2d<Channels, Kernel, Options...>` on `{channels, height, width}`. Kernel: one number, or `extent{height,
/// width}`. Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch: `nn.Conv2d`
/// with zero padding; parameters: weight `[Channels, channels / groups, height, width]`, then bias.
template <std::size_t Channels, extent Kernel, class... Options>
struct conv2d : detail::convolution<2, Channels, Kernel, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/conv3d.hpp - 3-d convolution of a volume
//
//     y[o, d, i, j] = b[o] + sum_{c, m, k, l} W[o, c, m, k, l] x[c, d s + m r - p, i s + k r - p, j s + l r - p]
//
// Its per-sample gradient is in detail/convolution.hpp.

namespace pergrad::inline v0_1 {

/// `conv3d<Channels, Kernel, Options...>` on `{channels, depth, height, width}`. Kernel: one number, or `extent{depth,
/// height, width}`. Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch:
/// `nn.Conv3d` with zero padding; parameters: weight `[Channels, channels / groups, depth, height, width]`, then bias.
template <std::size_t Channels, extent Kernel, class... Options>
struct conv3d : detail::convolution<3, Channels, Kernel, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/conv_transpose2d.hpp - transposed 2-d convolution: the adjoint of a convolution from its output to its
// input
//
//     y[o, i s + k r - p, j s + l r - p] += W[c, o, k, l] x[c, i, j],   then  + b[o]
//
// With windows of y in the place of windows of x the per-sample gradient is a convolution's,
//     G_b[c, o, k, l] = sum_{i, j} x[c, i, j] dy[o, i s + k r - p, j s + l r - p]:
// the same outer-product sum in which the input takes the place of delta. The bias gradient is the sum of dy.

namespace pergrad::inline v0_1 {

/// `conv_transpose2d<Channels, Kernel, Options...>` on `{channels, height, width}`; its output is (size - 1) stride - 2
/// padding + dilation (kernel - 1) + output_padding + 1 high and wide. Options in any order: `stride<>`, `padding<>`,
/// `output_padding<>` (smaller than the stride or the dilation), `dilation<>`, `groups<>`, `no_bias`. PyTorch:
/// `nn.ConvTranspose2d`; parameters: weight `[channels, Channels / groups, height, width]`, then bias `[Channels]`.
template <std::size_t Channels, extent Kernel, class... Options>
struct conv_transpose2d {
  static constexpr detail::window_options options = detail::gather_options<Options...>().on(2);
  static constexpr extent kernel = detail::on_axes(Kernel, 2, 1);

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    const extent out = output_size(in);
    return {Channels, out.height, out.width};
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    return {.in_channels = Channels,
            .in_size = output_size(in),
            .out_channels = in.e0,
            .out_size = {in.e1, in.e2},
            .kernel = kernel,
            .stride = options.stride,
            .padding = options.padding,
            .dilation = options.dilation,
            .groups = options.groups,
            .bias = options.bias,
            .adjoint = true};
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (options.unknown_given) return detail::mistake::option_not_offered;
    if (in.rank() != 3) return detail::mistake::needs_an_image;
    if (Channels == 0 || detail::has_zero(kernel) || detail::has_zero(options.stride) ||
        detail::has_zero(options.dilation) || options.groups == 0) {
      return detail::mistake::zero_is_no_size;
    }
    if (in.e0 % options.groups != 0 || Channels % options.groups != 0) return detail::mistake::groups_do_not_divide;
    if (too_much(options.output_padding.height, options.stride.height, options.dilation.height) ||
        too_much(options.output_padding.width, options.stride.width, options.dilation.width)) {
      return detail::mistake::output_padding_too_large;
    }
    return detail::has_zero(output_size(in)) ? detail::mistake::no_output : detail::mistake::none;
  }

 private:
  [[nodiscard]] static constexpr bool too_much(std::size_t extra, std::size_t stride, std::size_t dilation) noexcept {
    return extra >= stride && extra >= dilation;
  }
  /// 0 if the padding leaves nothing.
  [[nodiscard]] static constexpr std::size_t size_after(std::size_t in, std::size_t taps, std::size_t stride,
                                                        std::size_t padding, std::size_t dilation,
                                                        std::size_t extra) noexcept {
    const std::size_t whole = (in - 1) * stride + dilation * (taps - 1) + extra + 1;
    return whole > 2 * padding ? whole - 2 * padding : 0;
  }
  [[nodiscard]] static constexpr extent output_size(shape in) noexcept {
    return {size_after(in.e1, kernel.height, options.stride.height, options.padding.height, options.dilation.height,
                       options.output_padding.height),
            size_after(in.e2, kernel.width, options.stride.width, options.padding.width, options.dilation.width,
                       options.output_padding.width)};
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/cross_attention.hpp - attention between two branches: positions of one ask the positions of the other
//
//     Q = X W_q^T + b_q,    [K | V] = M W_kv^T + b_kv,    then as in self-attention (layers/multihead_attention.hpp)
// with X and M what the two branches make of the same input. Queries and memory differ in their positions, so the
// projections' gradients are two outer-product sums:  sum_t dQ_t (x) X_t  and  sum_s [dK | dV]_s (x) M_s.

// pergrad/detail/attention.hpp - scaled dot-product attention of several heads, one sample at a time, and its gradient
//
// Per head, with queries Q, keys K and values V of width d (Vaswani et al. 2017, arXiv:1706.03762, section 3.2):
//     S = Q K^T / sqrt(d),    P = softmax of each row of S,    Y = P V
// and backwards, with o the product element by element and rowsum(.) one number a row:
//     dP = dY V^T,    dS = P o (dP - rowsum(P o dP)) / sqrt(d),    dQ = dS K,    dK = dS^T Q,    dV = P^T dY
// Query i sees the first `seen(i)` keys: all that are there, or up to itself in a causal layer. The learned key and
// value of `kv_bias` come first, so that what a query sees is always a prefix, and every product stops at its end: a
// key that is not seen has probability zero because it is never touched. Dropped probabilities A = P o mask / (1 - p)
// take the place of P in Y and dV, and dP = (dY V^T) o mask / (1 - p). The mask is kept as the sign of P: P >= 0.
//
// Nothing here is a template of a layer, so all attention layers of a network share one copy of the code.

// pergrad/detail/attention_layout.hpp - options of attention layers, where their values and parameters lie, first
// values

#include <ratio>

namespace pergrad::inline v0_1 {

/// Option of attention layers: position t sees the positions up to t only. PyTorch: `attn_mask` of the upper triangle.
struct causal {};
/// Option of attention layers: one more key and value, learned, that every query sees. PyTorch: `add_bias_kv=True`;
/// parameters bias_k and bias_v.
struct kv_bias {};
/// Option of attention layers: `attention_dropout<std::ratio<1, 10>>` drops probabilities, in training only. PyTorch:
/// `dropout=0.1`.
template <class Probability>
struct attention_dropout {};

namespace detail {

/// Options of an attention layer, gathered from its option types in any order.
struct attention_options {
  bool bias = true;
  bool causal = false;
  bool kv_bias = false;
  bool wrong_given = false;     ///< something that is no option, or no probability
  std::uint32_t threshold = 0;  ///< 2^32 p: a probability is kept if its 32 random bits are not below
  double kept = 1;              ///< 1 / (1 - p)
};

constexpr void apply(attention_options& options, no_bias) noexcept { options.bias = false; }
constexpr void apply(attention_options& options, pergrad::causal) noexcept { options.causal = true; }
constexpr void apply(attention_options& options, pergrad::kv_bias) noexcept { options.kv_bias = true; }
template <std::intmax_t Numerator, std::intmax_t Denominator>
constexpr void apply(attention_options& options, attention_dropout<std::ratio<Numerator, Denominator>>) noexcept {
  using probability = std::ratio<Numerator, Denominator>;
  if (probability::num < 0 || probability::num >= probability::den) {
    options.wrong_given = true;
    return;
  }
  const auto numerator = static_cast<long double>(probability::num);
  const auto denominator = static_cast<long double>(probability::den);
  options.threshold = static_cast<std::uint32_t>(0x1p32L * numerator / denominator);
  options.kept = static_cast<double>(denominator / (denominator - numerator));
}
template <class Unknown>
constexpr void apply(attention_options& options, Unknown) noexcept {
  options.wrong_given = true;
}
template <class... Options>
[[nodiscard]] constexpr attention_options gather_attention_options() noexcept {
  attention_options options;
  (apply(options, Options{}), ...);
  return options;
}

/// Where everything of an attention layer lies: elements from the beginning of a sample's saved values, of its scratch,
/// and of the parameters. The queries' projections share rows with the keys' and values' in self-attention.
struct attention_layout {
  std::ptrdiff_t queries = 0;    ///< positions that ask
  std::ptrdiff_t positions = 0;  ///< positions that are asked
  std::ptrdiff_t extra = 0;      ///< keys in front of them: 1 with kv_bias
  std::ptrdiff_t features = 0;
  std::ptrdiff_t memory_features = 0;
  std::ptrdiff_t heads = 0;
  std::ptrdiff_t width = 0;  ///< of a head
  bool causal = false;
  std::uint32_t threshold = 0;
  double kept = 1;

  std::ptrdiff_t query = 0;  ///< saved: projections, which the backward pass replaces by their gradients
  std::ptrdiff_t query_step = 0;
  std::ptrdiff_t key = 0;
  std::ptrdiff_t value = 0;
  std::ptrdiff_t memory_step = 0;
  std::ptrdiff_t context = 0;        ///< saved: the heads' results side by side, [queries][features]
  std::ptrdiff_t probabilities = 0;  ///< saved: [heads][queries][score_step]
  std::ptrdiff_t score_step = 0;
  std::size_t saved_count = 0;

  std::ptrdiff_t turned = 0;           ///< scratch: a head's keys or values, [width][score_step]; before it dY
  std::ptrdiff_t score_gradients = 0;  ///< scratch: [queries][score_step]
  std::ptrdiff_t query_gradients = 0;  ///< scratch: [queries][width]
  std::ptrdiff_t dropped = 0;          ///< scratch: [queries][score_step], if anything is dropped
  std::size_t scratch_count = 0;

  std::ptrdiff_t bias = 0;  ///< parameters; the weights of the projections come first
  std::ptrdiff_t learned_key = 0;
  std::ptrdiff_t out_weight = 0;
  std::ptrdiff_t out_bias = 0;
  std::size_t parameter_count = 0;

  /// Keys that query i sees, of `keys` that are there.
  [[nodiscard]] constexpr std::ptrdiff_t seen(std::ptrdiff_t i, std::ptrdiff_t keys) const noexcept {
    return causal ? std::min(keys, i + 1 + extra) : keys;
  }
  /// First query that sees key k.
  [[nodiscard]] constexpr std::ptrdiff_t first_to_see(std::ptrdiff_t k) const noexcept {
    return causal ? std::max<std::ptrdiff_t>(0, k - extra) : 0;
  }
  /// Queries (and keys) that share a product: few where later ones see more.
  [[nodiscard]] constexpr std::ptrdiff_t together() const noexcept { return causal ? 32 : queries + positions + 1; }
};

/// `own`: attention of a sequence to itself; `memory` is then the same shape as `in`.
[[nodiscard]] constexpr attention_layout lay_out_attention(shape in, shape memory, std::size_t heads, bool own,
                                                           const attention_options& options) noexcept {
  constexpr auto whole_lines = [](std::ptrdiff_t count) { return (count + 15) / 16 * 16; };
  attention_layout at;
  at.queries = static_cast<std::ptrdiff_t>(in.e0);
  at.positions = static_cast<std::ptrdiff_t>(memory.e0);
  at.extra = options.kv_bias ? 1 : 0;
  at.features = static_cast<std::ptrdiff_t>(in.e1);
  at.memory_features = static_cast<std::ptrdiff_t>(memory.e1);
  at.heads = static_cast<std::ptrdiff_t>(heads);
  at.width = at.features / at.heads;
  at.causal = options.causal;
  at.threshold = options.threshold;
  at.kept = options.kept;
  const std::ptrdiff_t keys = at.positions + at.extra;
  at.score_step = whole_lines(keys);
  if (at.score_step % 32 == 0) at.score_step += 16;  // columns of scores spread over all sets of a cache
  const std::ptrdiff_t scores = at.queries * at.score_step;

  at.query_step = (own ? 3 : 1) * at.features;
  at.query = own ? at.extra * at.query_step : 0;
  at.key = own ? at.features : whole_lines(at.queries * at.features);
  at.value = at.key + at.features;
  at.memory_step = (own ? 3 : 2) * at.features;
  at.context = whole_lines((own ? 0 : at.key) + keys * at.memory_step);
  at.probabilities = at.context + whole_lines(at.queries * at.features);
  at.saved_count = static_cast<std::size_t>(at.probabilities + at.heads * scores);

  at.turned = whole_lines(at.queries * at.features);
  at.score_gradients = at.turned + at.width * at.score_step;
  at.query_gradients = at.score_gradients + scores;
  at.dropped = at.query_gradients + whole_lines(at.queries * at.width);
  at.scratch_count = static_cast<std::size_t>(at.dropped + (at.threshold != 0 ? scores : 0));

  at.bias = at.features * at.features + 2 * at.features * at.memory_features;
  at.learned_key = at.bias + (options.bias ? 3 * at.features : 0);
  at.out_weight = at.learned_key + 2 * at.extra * at.features;
  at.out_bias = at.out_weight + at.features * at.features;
  at.parameter_count = static_cast<std::size_t>(at.out_bias + (options.bias ? at.features : 0));
  return at;
}

/// PyTorch's first values for `layer_default` (`nn.MultiheadAttention._reset_parameters`): Xavier's for projections and
/// learned keys, zero biases, ±1/sqrt(features) for the output's weight. Another initialiser decides everything itself.
template <class Initialiser, class Scalar>
void initialise_attention(const attention_layout& at, bool has_bias, const Initialiser& initialiser,
                          std::uint64_t first, std::span<Scalar> parameters) {
  const auto fan_in = static_cast<double>(at.features);
  const auto memory_in = static_cast<double>(at.memory_features);
  const bool packed = at.features == at.memory_features;
  const auto fill = [&](std::ptrdiff_t from, std::ptrdiff_t to, auto&& value) {
    for (std::ptrdiff_t i = from; i < to; ++i) {
      parameters[static_cast<std::size_t>(i)] = static_cast<Scalar>(value(first + static_cast<std::uint64_t>(i)));
    }
  };
  const auto biases = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
    fill(from, to, [&](std::uint64_t i) {
      return std::is_same_v<Initialiser, layer_default> ? 0.0 : initialiser.bias(i, {fan_in, fan_in});
    });
  };
  const auto projection = [&](std::ptrdiff_t from, std::ptrdiff_t to, fans fan) {
    fill(from, to, [&](std::uint64_t i) {
      if constexpr (std::is_same_v<Initialiser, layer_default>) {
        return xavier_uniform{initialiser.seed}.weight(i, fan);
      } else {
        return initialiser.weight(i, fan);
      }
    });
  };
  const std::ptrdiff_t square = at.features * at.features;
  projection(0, square, {fan_in, packed ? 3 * fan_in : fan_in});
  projection(square, at.bias, {memory_in, packed ? 3 * fan_in : fan_in});
  if (has_bias) biases(at.bias, at.learned_key);
  fill(at.learned_key, at.out_weight, [&](std::uint64_t i) {
    if constexpr (std::is_same_v<Initialiser, layer_default>) {
      return xavier_normal{initialiser.seed}.weight(i, {fan_in, fan_in});
    } else {
      return initialiser.weight(i, {fan_in, fan_in});
    }
  });
  fill(at.out_weight, at.out_bias, [&](std::uint64_t i) { return initialiser.weight(i, {fan_in, fan_in}); });
  if (has_bias) biases(at.out_bias, static_cast<std::ptrdiff_t>(at.parameter_count));
}

}  // namespace detail
}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1::detail {

/// A product of every position's row with one matrix. Samples of varying length stop at their length.
template <class Scalar>
struct positions_product {
  std::ptrdiff_t depth = 0;  ///< of the matrix [depth][columns]
  std::ptrdiff_t columns = 0;
  const Scalar* left = nullptr;
  std::ptrdiff_t left_sample = 0;
  std::ptrdiff_t left_row = 0;
  const Scalar* right = nullptr;
  const Scalar* bias = nullptr;  ///< null: none
  Scalar* out = nullptr;
  std::ptrdiff_t out_sample = 0;
  std::ptrdiff_t out_row = 0;
};

/// `lengths`: null if all samples have all `positions`.
template <class Tile, class Scalar>
void multiply_positions(const Tile& tile, const std::uint32_t* lengths, std::ptrdiff_t positions,
                        const positions_product<Scalar>& of) {
  const std::ptrdiff_t groups = lengths == nullptr ? 1 : tile.samples;
  for (std::ptrdiff_t b = 0; b < groups; ++b) {
    const std::ptrdiff_t samples = lengths == nullptr ? tile.samples : 1;
    const std::ptrdiff_t rows = lengths == nullptr ? positions : static_cast<std::ptrdiff_t>(lengths[b]);
    const Scalar* left = of.left + b * of.left_sample;
    Scalar* out = of.out + b * of.out_sample;
    if (of.bias != nullptr) {
      Tile::multiply_bias({{{}, {samples, of.left_sample, of.out_sample}, {rows, of.left_row, of.out_row}},
                           {{}, {}, {of.depth, 1, of.columns}},
                           of.columns},
                          left, of.right, out, of.bias);
    } else {
      Tile::multiply({{{}, {samples, of.left_sample, of.out_sample}, {rows, of.left_row, of.out_row}},
                      {{}, {}, {of.depth, 1, of.columns}},
                      of.columns},
                     left, of.right, out);
    }
  }
}

/// out [width][step] = transpose of rows [count][row_step].
template <class Scalar>
void turn(const Scalar* rows, std::ptrdiff_t row_step, std::ptrdiff_t count, std::ptrdiff_t width, Scalar* out,
          std::ptrdiff_t step) noexcept {
  constexpr std::ptrdiff_t together = 16;  // a cache line of the output for every column
  for (std::ptrdiff_t first = 0; first < count; first += together) {
    const std::ptrdiff_t last = std::min(count, first + together);
    for (std::ptrdiff_t i = 0; i < width; ++i) {
      for (std::ptrdiff_t k = first; k < last; ++k) out[i * step + k] = rows[k * row_step + i];
    }
  }
}

/// The first `count` of `step` scores, times `scale`, become probabilities; the others zero.
template <class Scalar>
void softmax_row(Scalar* row, std::ptrdiff_t count, std::ptrdiff_t step, Scalar scale) noexcept {
  using vector = on_host::vector<Scalar>;
  constexpr auto lanes = static_cast<std::ptrdiff_t>(on_host::vector_lanes<Scalar>);
  if (count == 0) {
    std::fill(row, row + step, Scalar{0});
    return;
  }
  const std::ptrdiff_t whole = count / lanes * lanes;
  const std::ptrdiff_t padded = (count + lanes - 1) / lanes * lanes;
  std::fill(row + count, row + padded, std::numeric_limits<Scalar>::lowest());
  vector most = on_host::splat(std::numeric_limits<Scalar>::lowest());
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) most = math::max(most, on_host::load(row + k));
  Scalar largest = most[0];
  for (std::size_t lane = 1; lane < on_host::vector_lanes<Scalar>; ++lane)
    largest = std::max<Scalar>(largest, most[lane]);
  vector sums{};
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) {
    const vector power = math::exp(vector{(on_host::load(row + k) - on_host::splat(largest)) * on_host::splat(scale)});
    on_host::store(row + k, power);
    if (k < whole) sums += power;
  }
  Scalar sum = 0;
  for (std::size_t lane = 0; lane < on_host::vector_lanes<Scalar>; ++lane) sum += sums[lane];
  for (std::ptrdiff_t k = whole; k < count; ++k) sum += row[k];
  const vector share = on_host::splat(Scalar{1} / sum);
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) on_host::store(row + k, on_host::load(row + k) * share);
  std::fill(row + count, row + step, Scalar{0});
}

/// Draws the mask of `count` probabilities: leaves it in their signs, and them as they are used in `dropped`. `element`
/// numbers the first among all of the layer's.
template <class Tile, class Scalar>
void drop_probabilities(const Tile& tile, std::ptrdiff_t sample, std::ptrdiff_t element, const attention_layout& at,
                        Scalar* probabilities, std::ptrdiff_t count, Scalar* dropped) {
  constexpr std::ptrdiff_t together = 256;
  std::uint32_t bits[together];
  const Scalar shares[2] = {static_cast<Scalar>(at.kept), 0};  // looked up: a branch would be guessed wrongly
  constexpr Scalar signs[2] = {1, -1};
  for (std::ptrdiff_t first = 0; first < count; first += together) {
    const std::ptrdiff_t here = std::min(together, count - first);
    tile.random_bits(sample, static_cast<std::size_t>(element + first), {bits, static_cast<std::size_t>(here)});
    for (std::ptrdiff_t k = 0; k < here; ++k) {
      const Scalar probability = probabilities[first + k];
      const std::size_t drops = bits[k] < at.threshold ? 1 : 0;
      probabilities[first + k] = probability * signs[drops];
      dropped[first + k] = probability * shares[drops];
    }
  }
}

/// Turns the gradient of one row of (dropped) probabilities into that of its scores.
template <class Scalar>
void softmax_row_backward(const Scalar* row, Scalar* gradient, std::ptrdiff_t count, std::ptrdiff_t step,
                          Scalar scale) noexcept {
  using vector = on_host::vector<Scalar>;
  vector sums{};
  on_host::for_each_vector<Scalar>(
      count, [&](std::ptrdiff_t k, const auto& lanes) { sums += lanes.load(row + k) * lanes.load(gradient + k); });
  Scalar sum = 0;
  for (std::size_t lane = 0; lane < on_host::vector_lanes<Scalar>; ++lane) sum += sums[lane];
  on_host::for_each_vector<Scalar>(count, [&](std::ptrdiff_t k, const auto& lanes) {
    lanes.store(gradient + k,
                lanes.load(row + k) * ((lanes.load(gradient + k) - on_host::splat(sum)) * on_host::splat(scale)));
  });
  std::fill(gradient + count, gradient + step, Scalar{0});
}
/// The same behind dropout: first makes |P| of the signed row, the dropped row, and the gradient of P.
template <class Scalar>
void undrop_row(Scalar* row, Scalar* gradient, Scalar* dropped, std::ptrdiff_t count, std::ptrdiff_t step,
                Scalar kept) noexcept {
  using vector = on_host::vector<Scalar>;
  on_host::for_each_vector<Scalar>(count, [&](std::ptrdiff_t k, const auto& lanes) {
    const vector signed_row = lanes.load(row + k);
    const vector share = math::select(signed_row < vector{}, vector{}, on_host::splat(kept));
    lanes.store(dropped + k, signed_row * share);
    lanes.store(gradient + k, lanes.load(gradient + k) * share);
    lanes.store(row + k, math::abs(signed_row));
  });
  std::fill(dropped + count, dropped + step, Scalar{0});
}

/// out [rows][out_row] = left times right [depth][right_row].
template <class Tile, class Scalar>
void multiply_matrices(std::ptrdiff_t rows, std::ptrdiff_t depth, std::ptrdiff_t columns, const Scalar* left,
                       std::ptrdiff_t left_row, std::ptrdiff_t left_step, const Scalar* right, std::ptrdiff_t right_row,
                       Scalar* out, std::ptrdiff_t out_row) noexcept {
  Tile::multiply({{{}, {}, {rows, left_row, out_row}}, {{}, {}, {depth, left_step, right_row}}, columns}, left, right,
                 out);
}

/// From a sample's projections to its context; `queries` and `keys` of them are there. Positions beyond get zeros.
template <class Tile>
void attend(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t queries,
            std::ptrdiff_t keys) {
  using scalar = typename Tile::scalar;
  scalar* const saved = tile.saved(sample);
  scalar* const turned = tile.scratch(0) + at.turned;  // the first sample's, which stays in the nearest cache
  scalar* const dropped = tile.scratch(0) + at.dropped;
  const bool drops = at.threshold != 0 && tile.is_random();
  const auto scale = static_cast<scalar>(1 / std::sqrt(static_cast<double>(at.width)));
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width;
    const scalar* query = saved + at.query + column;
    scalar* scores = saved + at.probabilities + head * at.queries * step;
    turn(saved + at.key + column, at.memory_step, keys, at.width, turned, step);
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t last = std::min(queries, first + at.together());
      const std::ptrdiff_t seen = at.seen(last - 1, keys);
      multiply_matrices<Tile, scalar>(last - first, at.width, seen, query + first * at.query_step, at.query_step, 1,
                                      turned, step, scores + first * step, step);
      for (std::ptrdiff_t i = first; i < last; ++i) softmax_row(scores + i * step, at.seen(i, keys), step, scale);
      const std::ptrdiff_t element = head * at.queries * step;
      if (drops && 2 * seen > step) {  // whole rows at once, where little of them is unused
        drop_probabilities(tile, sample, element + first * step, at, scores + first * step, (last - first) * step,
                           dropped + first * step);
      }
      for (std::ptrdiff_t i = first; drops && 2 * seen <= step && i < last; ++i) {
        drop_probabilities(tile, sample, element + i * step, at, scores + i * step, seen, dropped + i * step);
      }
      multiply_matrices<Tile, scalar>(last - first, seen, at.width, (drops ? dropped : scores) + first * step, step, 1,
                                      saved + at.value + column, at.memory_step,
                                      saved + at.context + first * at.features + column, at.features);
    }
  }
  std::fill(saved + at.context + queries * at.features, saved + at.context + at.queries * at.features, scalar{0});
}

/// Replaces a sample's projections by their gradients; that of its context lies in its scratch. Positions beyond those
/// that are there get zeros.
template <class Tile>
void attend_backward(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t queries,
                     std::ptrdiff_t keys) {
  using scalar = typename Tile::scalar;
  scalar* const saved = tile.saved(sample);
  const scalar* const context_gradient = tile.scratch(sample);
  scalar* const turned = tile.scratch(0) + at.turned;
  scalar* const gradients = tile.scratch(0) + at.score_gradients;
  scalar* const query_gradients = tile.scratch(0) + at.query_gradients;
  scalar* const dropped = tile.scratch(0) + at.dropped;
  const bool drops = at.threshold != 0 && tile.is_random();
  const auto scale = static_cast<scalar>(1 / std::sqrt(static_cast<double>(at.width)));
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width;
    scalar* query = saved + at.query + column;
    scalar* key = saved + at.key + column;
    scalar* value = saved + at.value + column;
    scalar* scores = saved + at.probabilities + head * at.queries * step;
    turn(value, at.memory_step, keys, at.width, turned, step);
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t last = std::min(queries, first + at.together());
      const std::ptrdiff_t seen = at.seen(last - 1, keys);
      multiply_matrices<Tile, scalar>(last - first, at.width, seen, context_gradient + first * at.features + column,
                                      at.features, 1, turned, step, gradients + first * step, step);
      for (std::ptrdiff_t i = first; i < last; ++i) {
        scalar* row = scores + i * step;
        scalar* gradient = gradients + i * step;
        if (drops) undrop_row(row, gradient, dropped + i * step, seen, step, static_cast<scalar>(at.kept));
        softmax_row_backward(row, gradient, at.seen(i, keys), step, scale);
      }
      multiply_matrices<Tile, scalar>(last - first, seen, at.width, gradients + first * step, step, 1, key,
                                      at.memory_step, query_gradients + first * at.width, at.width);
    }
    for (std::ptrdiff_t first = 0; first < keys; first += at.together()) {
      const std::ptrdiff_t last = std::min(keys, first + at.together());
      const std::ptrdiff_t from = std::min(queries, at.first_to_see(first));
      multiply_matrices<Tile, scalar>(last - first, queries - from, at.width, gradients + from * step + first, 1, step,
                                      query + from * at.query_step, at.query_step, key + first * at.memory_step,
                                      at.memory_step);
      multiply_matrices<Tile, scalar>(
          last - first, queries - from, at.width, (drops ? dropped : scores) + from * step + first, 1, step,
          context_gradient + from * at.features + column, at.features, value + first * at.memory_step, at.memory_step);
    }
    for (std::ptrdiff_t i = 0; i < queries; ++i) {
      std::copy_n(query_gradients + i * at.width, at.width, query + i * at.query_step);
    }
  }
  for (std::ptrdiff_t i = queries; i < at.queries; ++i) {
    std::fill_n(saved + at.query + i * at.query_step, at.features, scalar{0});
  }
  for (std::ptrdiff_t k = keys; k < at.positions + at.extra; ++k) {
    std::fill_n(saved + at.key + k * at.memory_step, 2 * at.features, scalar{0});
  }
}

/// Puts the learned key and value in front of a sample's own.
template <class Tile>
void set_learned_key(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample) {
  if (at.extra != 0) std::copy_n(tile.parameters + at.learned_key, 2 * at.features, tile.saved(sample) + at.key);
}

/// y = C W^T + b, position by position; `turned` is W^T.
template <class Tile>
void project_context(const Tile& tile, const attention_layout& at, const typename Tile::scalar* turned, bool has_bias) {
  multiply_positions<Tile, typename Tile::scalar>(tile, tile.lengths, at.queries,
                                                  {.depth = at.features,
                                                   .columns = at.features,
                                                   .left = tile.saved.first + at.context,
                                                   .left_sample = tile.saved.step,
                                                   .left_row = at.features,
                                                   .right = turned,
                                                   .bias = has_bias ? tile.parameters + at.out_bias : nullptr,
                                                   .out = tile.y.first,
                                                   .out_sample = tile.y.step,
                                                   .out_row = at.features});
}
/// dC = dY W, into the scratch of every sample.
template <class Tile>
void project_context_backward(const Tile& tile, const attention_layout& at) {
  multiply_positions<Tile, typename Tile::scalar>(tile, tile.lengths, at.queries,
                                                  {.depth = at.features,
                                                   .columns = at.features,
                                                   .left = tile.dy.first,
                                                   .left_sample = tile.dy.step,
                                                   .left_row = at.features,
                                                   .right = tile.parameters + at.out_weight,
                                                   .out = tile.scratch.first,
                                                   .out_sample = tile.scratch.step,
                                                   .out_row = at.features});
}

/// Zeros behind every sample's length.
template <class Arrays>
void clear_beyond(const Arrays& values, std::ptrdiff_t samples, const std::uint32_t* lengths, std::ptrdiff_t positions,
                  std::ptrdiff_t features) {
  for (std::ptrdiff_t b = 0; lengths != nullptr && b < samples; ++b) {
    auto* first = values(b);
    std::fill(first + static_cast<std::ptrdiff_t>(lengths[b]) * features, first + positions * features, 0);
  }
}

}  // namespace pergrad::inline v0_1::detail

namespace pergrad::inline v0_1 {

/// The branch of a `cross_attention` that asks. Without layers: the input itself.
template <class... Layers>
struct queries {};
/// The branch of a `cross_attention` that is asked. Without layers: the input itself.
template <class... Layers>
struct memory {};

namespace detail {

/// The node in which the branches of a `cross_attention` meet: `{positions, features}` and `{positions, features}`.
template <std::size_t Heads, class... Options>
struct attention_to_memory {
  static constexpr bool on_tiles = true;
  static constexpr attention_options options = gather_attention_options<Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in, shape /*second*/) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in, shape second) noexcept {
    return lay_out(in, second).parameter_count;
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in, shape second) noexcept {
    return lay_out(in, second).saved_count;
  }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in, shape second) noexcept {
    return lay_out(in, second).scratch_count;
  }
  [[nodiscard]] static constexpr mistake check(shape in, shape second) noexcept {
    if (options.wrong_given) return mistake::option_not_offered;
    if (second.ids != 0) return mistake::ids_into_a_float_layer;
    if (in.rank() != 2) return mistake::needs_a_sequence;
    if (second.rank() != 2) return mistake::branches_do_not_fit;
    if (Heads == 0) return mistake::zero_is_no_size;
    return in.e1 % Heads != 0 ? mistake::heads_do_not_divide : mistake::none;
  }
  [[nodiscard]] static constexpr std::array<matrix, 3> matrices(shape in, shape second) noexcept {
    const std::size_t features = in.e1;
    return {matrix{0, features, features}, matrix{features * features, 2 * features, second.e1},
            matrix{static_cast<std::size_t>(lay_out(in, second).out_weight), features, features}};
  }
  [[nodiscard]] static constexpr auto factors(shape in, shape second) noexcept {
    const attention_layout at = lay_out(in, second);
    const std::size_t features = in.e1;
    const auto key = static_cast<std::size_t>(at.key);
    const operand query{source::saved, static_cast<std::size_t>(at.query), features};
    const operand keys{source::saved, key + static_cast<std::size_t>(at.extra) * 2 * features, 2 * features};
    const operand backprop{source::backprop, 0, features};
    const operand context{source::saved, static_cast<std::size_t>(at.context), features};
    factor_list<3 + (options.bias ? 3U : 0U) + (options.kv_bias ? 1U : 0U)> list;
    std::size_t count = 0;
    list[count++] = outer_sum(in.e0, features, query, features, {source::activation, 0, features});
    list[count++] = outer_sum(second.e0, 2 * features, keys, second.e1, {source::second_activation, 0, second.e1});
    if (options.bias) {
      list[count++] = elementwise_sum(in.e0, features, query);
      list[count++] = elementwise_sum(second.e0, 2 * features, keys);
    }
    if (options.kv_bias) list[count++] = elementwise_sum(1, 2 * features, {source::saved, key});
    list[count++] = outer_sum(in.e0, features, backprop, features, context);
    if (options.bias) list[count++] = elementwise_sum(in.e0, features, backprop);
    return list;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, shape second, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    initialise_attention(lay_out(in, second), options.bias, initialiser, first, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const attention_layout at = lay_out(tile.in, tile.in2);
    const scalar* bias = options.bias ? tile.parameters + at.bias : nullptr;
    multiply_positions<Tile, scalar>(tile, tile.lengths, at.queries,
                                     {.depth = at.features,
                                      .columns = at.features,
                                      .left = tile.x.first,
                                      .left_sample = tile.x.step,
                                      .left_row = at.features,
                                      .right = tile.transposed(0),
                                      .bias = bias,
                                      .out = tile.saved.first + at.query,
                                      .out_sample = tile.saved.step,
                                      .out_row = at.query_step});
    multiply_positions<Tile, scalar>(tile, tile.lengths2, at.positions,
                                     {.depth = at.memory_features,
                                      .columns = at.memory_step,
                                      .left = tile.x2.first,
                                      .left_sample = tile.x2.step,
                                      .left_row = at.memory_features,
                                      .right = tile.transposed(1),
                                      .bias = bias == nullptr ? nullptr : bias + at.features,
                                      .out = tile.saved.first + at.key + at.extra * at.memory_step,
                                      .out_sample = tile.saved.step,
                                      .out_row = at.memory_step});
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      set_learned_key(tile, at, b);
      attend(tile, at, b, tile.length(b), tile.length2(b) + at.extra);
    }
    project_context(tile, at, tile.transposed(2), options.bias);
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const attention_layout at = lay_out(tile.in, tile.in2);
    project_context_backward(tile, at);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      attend_backward(tile, at, b, tile.length(b), tile.length2(b) + at.extra);
    }
    if (tile.wants_dx) {
      multiply_positions<Tile, scalar>(tile, tile.lengths, at.queries,
                                       {.depth = at.features,
                                        .columns = at.features,
                                        .left = tile.saved.first + at.query,
                                        .left_sample = tile.saved.step,
                                        .left_row = at.query_step,
                                        .right = tile.parameters,
                                        .out = tile.dx.first,
                                        .out_sample = tile.dx.step,
                                        .out_row = at.features});
      clear_beyond(tile.dx, tile.samples, tile.lengths, at.queries, at.features);
    }
    if (tile.wants_dx2) {
      multiply_positions<Tile, scalar>(tile, tile.lengths2, at.positions,
                                       {.depth = at.memory_step,
                                        .columns = at.memory_features,
                                        .left = tile.saved.first + at.key + at.extra * at.memory_step,
                                        .left_sample = tile.saved.step,
                                        .left_row = at.memory_step,
                                        .right = tile.parameters + at.features * at.features,
                                        .out = tile.dx2.first,
                                        .out_sample = tile.dx2.step,
                                        .out_row = at.memory_features});
      clear_beyond(tile.dx2, tile.samples, tile.lengths2, at.positions, at.memory_features);
    }
  }

 private:
  [[nodiscard]] static constexpr attention_layout lay_out(shape in, shape second) noexcept {
    return lay_out_attention(in, second, Heads, false, options);
  }
};

}  // namespace detail

/// `cross_attention<Heads, queries<Layers...>, memory<Layers...>, Options...>` on `{positions, features}`: both
/// branches start from the same input; the output is `{positions of queries, features of queries}`. Heads must divide
/// the features of the queries. Options in any order: `causal` (query t sees the memory up to t), `no_bias`, `kv_bias`,
/// `attention_dropout<std::ratio<1, 10>>`.
/// PyTorch: `nn.MultiheadAttention(features, Heads, kdim=m, vdim=m, batch_first=True)(x, memory, memory)` with m the
/// memory's features; parameters: those of the branches, then in_proj_weight `[3 features, features]` or, if m differs,
/// q_proj_weight `[features, features]`, k_proj_weight and v_proj_weight `[features, m]`; in_proj_bias; bias_k and
/// bias_v with `kv_bias`; out_proj.weight, out_proj.bias.
/// Where samples have lengths of their own, positions of the memory beyond its length are not seen. A query that sees
/// nothing gets the output's bias alone.
template <std::size_t Heads, class Queries, class Memory, class... Options>
struct cross_attention {
  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    return detail::mistake::option_not_offered;
  }
};
template <std::size_t Heads, class... OfQueries, class... OfMemory, class... Options>
struct cross_attention<Heads, queries<OfQueries...>, memory<OfMemory...>, Options...> {
  using unfolds_to =
      merge<detail::attention_to_memory<Heads, Options...>, sequential<OfQueries...>, sequential<OfMemory...>>;
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/dropout.hpp - inverted dropout: y = x m / (1 - p) with m = 0 at probability p, in training only
//
// The mask is a function of (run's key, step, record, layer, element): it does not depend on tiles, chunks, threads or
// executors, and a record keeps its mask within a step, so clipping sees the gradient of one fixed function
// (Srivastava et al. 2014, JMLR 15).

namespace pergrad::inline v0_1 {

/// `dropout<std::ratio<1, 10>>` on any shape. PyTorch: `nn.Dropout(0.1)`. Random only under `with_randomness` and in
/// `dp_sgd`; elsewhere, as in evaluation, it changes nothing.
template <class Probability>
struct dropout {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    return Probability::num < 0 || Probability::num >= Probability::den ? detail::mistake::option_not_offered
                                                                        : detail::mistake::none;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const std::size_t count = tile.in.size();
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const scalar* x = tile.x(b);
      scalar* y = tile.y(b);
      scalar* mask = tile.saved(b);
      draw_mask(tile, b, count, mask);
      for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * mask[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const std::size_t count = tile.in.size();
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const auto* dy = tile.dy(b);
      const auto* mask = tile.saved(b);
      auto* dx = tile.dx(b);
      for (std::size_t i = 0; i < count; ++i) dx[i] = dy[i] * mask[i];
    }
  }

  /// What each of a sample's first `count` elements is multiplied by: 0 or 1 / (1 - p), or 1 where nothing is random.
  template <class Tile, class Scalar>
  static void draw_mask(const Tile& tile, std::ptrdiff_t sample, std::size_t count, Scalar* mask) {
    // 2^32 p: an element is kept if its 32 bits are not below.
    constexpr auto threshold = static_cast<std::uint32_t>(0x1p32L * static_cast<long double>(Probability::num) /
                                                          static_cast<long double>(Probability::den));
    constexpr auto kept = static_cast<Scalar>(static_cast<long double>(Probability::den) /
                                              static_cast<long double>(Probability::den - Probability::num));
    if (!tile.is_random()) {
      for (std::size_t i = 0; i < count; ++i) mask[i] = 1;
      return;
    }
    constexpr std::size_t together = 256;
    std::uint32_t bits[together];
    for (std::size_t first = 0; first < count; first += together) {
      const std::size_t here = count - first < together ? count - first : together;
      tile.random_bits(sample, first, {bits, here});
      for (std::size_t i = 0; i < here; ++i) mask[first + i] = bits[i] < threshold ? Scalar{0} : kept;
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/embedding.hpp - y_t = table[id_t]: a row of parameters for every integer id
//
// Per-sample gradient  G_b[id] = sum over t with id_{b,t} = id of delta_{b,t}:  a row sum. Its norm is that of the rows
// after they are summed, not the sum of the positions' norms: the same id may occur twice (Lee & Kifer 2020,
// arXiv:2009.03106; Denison et al. 2022, arXiv:2211.11896).

namespace pergrad::inline v0_1 {

/// Layer option of `embedding` and `embedding_bag`: the id that stands for no word. Its row has no gradient and is 0
/// at first; an embedding reads it like any other, a bag leaves it out.
template <std::size_t Id>
struct padding_idx {
  static constexpr std::size_t value = Id;
};
/// Layer option of `embedding_bag`: the sum over positions, not the mean.
struct bag_sum {};

namespace detail {

/// Options of layers with a table, gathered from their option types in any order.
struct table_options {
  std::size_t padding = ~std::size_t{0};  ///< none
  bool sum = false;
  bool unknown_given = false;
};
template <std::size_t Id>
constexpr void apply(table_options& options, padding_idx<Id> option) noexcept {
  options.padding = option.value;
}
constexpr void apply(table_options& options, bag_sum) noexcept { options.sum = true; }
template <class Unknown>
constexpr void apply(table_options& options, Unknown) noexcept {
  options.unknown_given = true;
}
template <class... Options>
[[nodiscard]] constexpr table_options gather_table_options() noexcept {
  table_options options;
  (apply(options, Options{}), ...);
  return options;
}

[[nodiscard]] constexpr mistake check_table(shape in, std::size_t width, const table_options& options) noexcept {
  if (in.ids == 0 || in.rank() != 1) return mistake::needs_ids;
  if (width == 0) return mistake::zero_is_no_size;
  const bool padding_is_an_id = options.padding == ~std::size_t{0} || options.padding < in.ids;
  return options.unknown_given || !padding_is_an_id ? mistake::option_not_offered : mistake::none;
}

/// Rows `[vocabulary][width]`: N(0, 1) where an initialiser means "what PyTorch does", which is what `nn.Embedding`
/// does; any other as it says, with fan_in = width and fan_out = vocabulary, as torch.nn.init counts. The padding row
/// is 0.
template <class Initialiser, class Scalar>
void initialise_table(const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> table, std::size_t width,
                      std::size_t padding) {
  const std::size_t vocabulary = table.size() / width;
  const fans fan{static_cast<double>(width), static_cast<double>(vocabulary)};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = i / width == padding ? Scalar{0} : static_cast<Scalar>(table_value(initialiser, first + i, fan));
  }
}

}  // namespace detail

/// `embedding<Dim>` on `token_ids(positions, vocabulary)`: `{positions}` ids to `{positions, Dim}`. Option:
/// `padding_idx<Id>`. PyTorch: `nn.Embedding(vocabulary, Dim)`; parameters: weight `[vocabulary, Dim]`.
template <std::size_t Dim, class... Options>
struct embedding {
  static constexpr bool on_tiles = true;
  static constexpr bool takes_ids = true;
  static constexpr detail::table_options options = detail::gather_table_options<Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, Dim}; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.ids * Dim; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (options.sum) return detail::mistake::option_not_offered;
    return detail::check_table(in, Dim, options);
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(
        row_sum(in.e0, in.ids, Dim, {.from = source::backprop, .position_stride = Dim}, options.padding));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape /*in*/, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    detail::initialise_table(initialiser, first, parameters, Dim, options.padding);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto positions = static_cast<std::ptrdiff_t>(tile.in.e0);
    constexpr auto width = static_cast<std::ptrdiff_t>(Dim);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::int32_t* ids = tile.ids(b);
      scalar* y = tile.y(b);
      for (std::ptrdiff_t t = 0; t < positions; ++t) {
        std::memcpy(y + t * width, tile.parameters + ids[t] * width, Dim * sizeof(scalar));
      }
    }
  }
  /// Nothing to do: ids have no gradient, and the table's is derived from its factors.
  template <class Tile>
  static void backward(const Tile& /*tile*/) {}
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/embedding_bag.hpp - the mean (or sum) of a table's rows over the positions of a sample
//
//   y = (1 / n) sum over t of table[id_t],   n: positions that are there and are not padding
//
// All positions share one delta = dy / n, so a sample's gradient is known by that delta and by how often each id
// occurs:  G_b[id] = count_b(id) delta_b,  ‖G_b‖² = ‖delta_b‖² sum count².  No row is ever copied.

namespace pergrad::inline v0_1 {

/// `embedding_bag<Dim>` on `token_ids(positions, vocabulary)`: `{positions}` ids to `{Dim}`. Options: `bag_sum`
/// (default: the mean), `padding_idx<Id>`: positions that hold it are left out of the sum and of the count; a mean over
/// none is 0. PyTorch: `nn.EmbeddingBag(vocabulary, Dim, mode="mean")`; parameters: weight `[vocabulary, Dim]`.
template <std::size_t Dim, class... Options>
struct embedding_bag {
  static constexpr bool on_tiles = true;
  static constexpr bool takes_ids = true;
  static constexpr bool knows_lengths = true;
  static constexpr detail::table_options options = detail::gather_table_options<Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return {Dim}; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.ids * Dim; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape /*in*/) noexcept { return Dim; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return detail::check_table(in, Dim, options);
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(row_sum(in.e0, in.ids, Dim, {.from = source::saved}, options.padding));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape /*in*/, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    detail::initialise_table(initialiser, first, parameters, Dim, options.padding);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::int32_t* ids = tile.ids(b);
      const std::ptrdiff_t length = tile.length(b);
      scalar* y = tile.y(b);
      add_up<0>(tile.parameters, ids, length, y);
      const auto divisor = static_cast<scalar>(divisor_of(ids, length));
      for (std::size_t i = 0; i < Dim; ++i) y[i] /= divisor;
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const scalar* dy = tile.dy(b);
      scalar* delta = tile.saved(b);
      const auto divisor = static_cast<scalar>(divisor_of(tile.ids(b), tile.length(b)));
      for (std::size_t i = 0; i < Dim; ++i) delta[i] = dy[i] / divisor;
    }
  }

 private:
  [[nodiscard]] static constexpr bool is_padding(std::int32_t id) noexcept {
    return static_cast<std::size_t>(id) == options.padding;
  }
  /// n of a mean, at least 1; 1 for a sum.
  [[nodiscard]] static std::ptrdiff_t divisor_of(const std::int32_t* ids, std::ptrdiff_t length) noexcept {
    if (options.sum) return 1;
    std::int32_t count = 0;
    for (std::ptrdiff_t t = 0; t < length; ++t) count += is_padding(ids[t]) ? 0 : 1;
    return count == 0 ? 1 : count;
  }

  /// Columns from `First` on of the sum of rows, a block at a time: its sums stay in registers, in chains of their own
  /// for every fourth position.
  template <std::size_t First, class Scalar>
  static void add_up(const Scalar* table, const std::int32_t* ids, std::ptrdiff_t length, Scalar* y) noexcept {
    constexpr std::size_t left = Dim - First;
    constexpr std::size_t block = left >= 32 ? 32 : left >= 16 ? 16 : left;
    constexpr std::ptrdiff_t chains = 4;
    Scalar sums[chains][block] = {};
    const auto add = [&](Scalar(&sum)[block], std::int32_t id) {
      if (is_padding(id)) return;
      const Scalar* row = table + id * static_cast<std::ptrdiff_t>(Dim) + First;
      for (std::size_t i = 0; i < block; ++i) sum[i] += row[i];
    };
    const std::ptrdiff_t whole = length / chains * chains;
    for (std::ptrdiff_t t = 0; t < whole; t += chains) {
      for (std::ptrdiff_t c = 0; c < chains; ++c) add(sums[c], ids[t + c]);
    }
    for (std::ptrdiff_t t = whole; t < length; ++t) add(sums[0], ids[t]);
    for (std::size_t i = 0; i < block; ++i) {
      y[First + i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    }
    if constexpr (left > block) add_up<First + block>(table, ids, length, y);
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/flatten.hpp - the same values as one row of features, in PyTorch's (channels, height, width) order

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Flatten`. No value moves: an executor reads the image through the next layer's view.
struct flatten {
  static constexpr bool is_reshape = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.size()}; }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/gelu.hpp - Gaussian error linear unit  y = x Phi(x);  dy/dx = Phi(x) + x phi(x)   (Hendrycks & Gimpel
// 2016)

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.GELU`, the exact form with erf.
struct gelu {
  static constexpr bool on_vectors = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return x * cdf(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    using element = math::element_t<Value>;
    constexpr auto inverse_root_two_pi = static_cast<element>(0.39894228040143267793994605993438);
    return cdf(x) + x * (math::exp(x * x * static_cast<element>(-0.5)) * inverse_root_two_pi);
  }

 private:
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value cdf(Value x) noexcept {
    using element = math::element_t<Value>;
    constexpr auto inverse_root_two = static_cast<element>(0.70710678118654752440084436210485);
    return (math::erf(x * inverse_root_two) + 1) * static_cast<element>(0.5);
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/group_norm.hpp - channels in groups, each normalised over its channels and all pixels of one sample
//
// Wu & He 2018, arXiv:1803.08494: y = gain_c (x - mean) / sqrt(variance + eps) + shift_c with the group's own moments.
// Per-sample gradients: of gain_c the sum of dy xhat over the pixels of channel c, of shift_c the sum of dy. It takes
// the place of batch norm, which mixes samples.

// pergrad/detail/grouped_norm.hpp - group norm and instance norm: groups of channels, each normalised over all its
// pixels

namespace pergrad::inline v0_1::detail {

/// What `group_norm` and the instance norms have in common; with no `Groups` every channel is one. Saved: xhat as a
/// dense image, one rate a group, and what the gains and shifts receive, which backward sums up on its way.
template <std::size_t Groups, class... Options>
struct grouped_norm {
  static constexpr bool on_tiles = true;
  static constexpr bool stored_order = true;
  static constexpr bool channels_first = true;
  static constexpr norm_options options = gather_norm_options<Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept {
    return options.affine ? 2 * in.e0 : 0;
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept {
    return in.size() + group_count(in) + parameter_count(in);
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    const std::size_t sums = in.size() + group_count(in);
    factor_list<options.affine ? 2 : 0> list;
    if constexpr (options.affine) {
      list[0] = elementwise_sum(1, in.e0, {.from = source::saved, .offset = sums});
      list[1] = elementwise_sum(1, in.e0, {.from = source::saved, .offset = sums + in.e0});
    }
    return list;
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.axes_given || options.bias_given) return mistake::option_not_offered;
    if (in.e0 % group_count(in) != 0) return mistake::groups_do_not_divide;
    return in.varying_axis() != 0 ? mistake::lengths_are_lost : mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    initialise_affine(initialiser, first, in.e0, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto channels = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    const auto group_size = channels / static_cast<std::ptrdiff_t>(group_count(tile.in));
    const scalar* gain = options.affine ? tile.parameters : nullptr;
    const scalar* shift = options.affine ? tile.parameters + channels : nullptr;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      scalar* xhat = tile.saved(b);
      if (size > channels) {
        normalisation::forward_image(tile.x_layout, tile.x(b), tile.y_layout, tile.y(b), group_size, options.epsilon,
                                     gain, shift, xhat, xhat + size);
      } else {
        normalisation::forward_pixel(tile.x(b) + tile.x_layout.start, tile.y(b) + tile.y_layout.start, channels,
                                     group_size, options.epsilon, gain, shift, xhat, xhat + size);
      }
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto channels = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    const auto group_size = channels / static_cast<std::ptrdiff_t>(group_count(tile.in));
    const scalar* gain = options.affine ? tile.parameters : nullptr;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const scalar* xhat = tile.saved(b);
      scalar* gain_sums = tile.saved(b) + size + channels / group_size;
      scalar* shift_sums = gain_sums + channels;
      scalar* dx = tile.wants_dx ? tile.dx(b) : nullptr;
      if (size > channels) {
        normalisation::backward_image(tile.dy_layout, tile.dy(b), tile.dx_layout, dx, group_size, gain, xhat,
                                      xhat + size, gain_sums, shift_sums);
      } else {
        normalisation::backward_pixel(tile.dy(b) + tile.dy_layout.start,
                                      dx == nullptr ? nullptr : dx + tile.dx_layout.start, channels, group_size, gain,
                                      xhat, xhat + size, gain_sums, shift_sums);
      }
    }
  }

 private:
  [[nodiscard]] static constexpr std::size_t group_count(shape in) noexcept { return Groups == 0 ? in.e0 : Groups; }
};

}  // namespace pergrad::inline v0_1::detail

namespace pergrad::inline v0_1 {

/// `group_norm<Groups>` on `{channels}`, `{channels, positions}`, `{channels, height, width}` or `{channels, depth,
/// height, width}`; Groups must divide the channels. Options: `no_affine`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.GroupNorm(Groups, channels)`; parameters: weight, then bias, one a channel, at first 1 and
/// 0.
template <std::size_t Groups, class... Options>
struct group_norm : detail::grouped_norm<Groups, Options...> {
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return Groups == 0 ? detail::mistake::zero_is_no_size : detail::grouped_norm<Groups, Options...>::check(in);
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/gru.hpp - gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), in PyTorch's form
//
//   r = sigmoid(W_ir x_t + b_ir + q_r)    z = sigmoid(W_iz x_t + b_iz + q_z)    q = W_hh h_(t-1) + b_hh
//   n = tanh(W_in x_t + b_in + r q_n)     h_t = (1 - z) n + z h_(t-1)
// so what the input's side of n receives is not what the state's side receives:
//   dz = dh (h_(t-1) - n) z (1 - z)    dn = dh (1 - z) (1 - n²)    dr = dn q_n r (1 - r)    dq_n = dn r
//   W_ih and b_ih have (dr, dz, dn), W_hh and b_hh have (dr, dz, dq_n);  dL/dh_(t-1) = dh z + W_hh^T (dr, dz, dq_n)

// pergrad/detail/recurrent.hpp - one layer of one direction of a recurrent net, for any cell
//
// A cell keeps for every position a record of `area` times H values: what its elements need, which the backward pass
// overwrites by the gradients of the pre-activations. With a_t the pre-activations that depend on the input and b_t
// those that depend on the state (the same numbers, but for the n of a gru),
//   forward      a_t = W_ih x_t + biases    all positions of a stretch and all samples in one product
//                b_t += W_hh h_(t-1)        all samples in one product a position
//                h_t = cell(a_t, b_t, state)
//   backward     (da_t, db_t, state's gradient) from dh_t = dy_t + what came back from t + 1, element by element
//                dh_(t-1) += W_hh^T db_t    all samples in one product a position
//                dx_t = W_ih^T da_t         again a stretch of positions at once, while its da are in the cache
//   parameters   dW_ih = sum_t da_t (x) x_t, dW_hh = sum_t db_t (x) h_(t-1), db = sums of da and db: factors, so their
//                products and norms are formed once, over all positions, behind the loop
// Position p lies at row p of the saved states and its predecessor at row p (forwards) or its successor at row p + 1
// (backwards): there is one row more than positions, and the initial state is the row that the first position finds.

// pergrad/detail/recurrent_options.hpp - the options of rnn, gru and lstm

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
constexpr void apply(recurrent_options& options, one_bias) noexcept { options.biases = 1; }
constexpr void apply(recurrent_options& options, no_bias) noexcept { options.biases = 0; }
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
  options.unknown_given = options.unknown_given || (options.last && options.mean);
  return options;
}

}  // namespace detail
}  // namespace pergrad::inline v0_1
// pergrad/layers/mean_over_positions.hpp - y = (1/n) sum over t < n of x_t, with n the sample's own length

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{features}`: the mean over the positions that are there; over none (a convolution may
/// leave none of a short sample) it is 0. PyTorch: `x.mean(dim=1)`.
struct mean_over_positions {
  static constexpr bool on_tiles = true;
  static constexpr bool knows_lengths = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e1}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t length = tile.length(b);
      const auto divisor = on_host::splat(static_cast<scalar>(std::max<std::ptrdiff_t>(1, length)));
      const scalar* x = tile.x(b);
      scalar* y = tile.y(b);
      on_host::for_each_vector<scalar>(features, [&](std::ptrdiff_t i, const auto& lanes) {
        on_host::vector<scalar> sum{};
        for (std::ptrdiff_t t = 0; t < length; ++t) sum += lanes.load(x + t * features + i);
        lanes.store(y + i, sum / divisor);
      });
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto positions = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const std::ptrdiff_t length = tile.length(b);
      const auto divisor = on_host::splat(static_cast<scalar>(std::max<std::ptrdiff_t>(1, length)));
      const scalar* dy = tile.dy(b);
      scalar* dx = tile.dx(b);
      on_host::for_each_vector<scalar>(features, [&](std::ptrdiff_t i, const auto& lanes) {
        const on_host::vector<scalar> share = lanes.load(dy + i) / divisor;
        for (std::ptrdiff_t t = 0; t < length; ++t) lanes.store(dx + t * features + i, share);
      });
      std::fill(dx + length * features, dx + positions * features, scalar{0});
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/parallel.hpp - several branches on one input, their outputs side by side
//
// y = [B1(x), B2(x), ...]: features of vectors and of sequences, channels of images. No parameters of its own; the
// input's gradient is the sum of the branches' gradients.

namespace pergrad::inline v0_1 {

namespace detail {

/// Two inputs side by side. In PyTorch's order each is a number of rows, and rows of the output are one of each: a
/// sequence's rows are its positions if it is joined `ByPosition`, anything else is one row.
template <bool ByPosition>
struct concatenation {
  static constexpr bool on_tiles = true;

  template <class Tile>
  static void forward(const Tile& tile) {
    const rows_of rows{tile.in, tile.in2};
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      for (std::ptrdiff_t r = 0; r < rows.count; ++r) {
        copy(tile.x(b) + r * rows.first, tile.y(b) + r * rows.both(), rows.first);
        copy(tile.x2(b) + r * rows.second, tile.y(b) + r * rows.both() + rows.first, rows.second);
      }
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const rows_of rows{tile.in, tile.in2};
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      for (std::ptrdiff_t r = 0; r < rows.count; ++r) {
        if (tile.wants_dx) copy(tile.dy(b) + r * rows.both(), tile.dx(b) + r * rows.first, rows.first);
        if (tile.wants_dx2) copy(tile.dy(b) + r * rows.both() + rows.first, tile.dx2(b) + r * rows.second, rows.second);
      }
    }
  }

 private:
  struct rows_of {
    constexpr rows_of(shape in, shape in2) noexcept
        : count{ByPosition && in.rank() == 2 ? static_cast<std::ptrdiff_t>(in.e0) : 1},
          first{static_cast<std::ptrdiff_t>(in.size()) / count},
          second{static_cast<std::ptrdiff_t>(in2.size()) / count} {}
    std::ptrdiff_t count;
    std::ptrdiff_t first;
    std::ptrdiff_t second;
    [[nodiscard]] constexpr std::ptrdiff_t both() const noexcept { return first + second; }
  };
  template <class Scalar>
  static void copy(const Scalar* from, Scalar* to, std::ptrdiff_t count) {
    for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = from[i];
  }
};

/// Along features, `{features}` and `{positions, features}`, or along channels, images and volumes.
struct concatenate : concatenation<true> {
  [[nodiscard]] static constexpr shape output_shape(shape first, shape second) noexcept {
    shape out = first;
    (first.rank() == 2 ? out.e1 : out.e0) += first.rank() == 2 ? second.e1 : second.e0;
    return out;
  }
  [[nodiscard]] static constexpr mistake check(shape first, shape second) noexcept {
    const bool fits = first.rank() == second.rank() && first.varying_axis() == second.varying_axis() &&
                      first.varying_axis() != 2 &&
                      (first.rank() == 1 || (first.rank() == 2 && first.e0 == second.e0) ||
                       (first.rank() > 2 && first.e1 == second.e1 && first.e2 == second.e2 && first.e3 == second.e3));
    return fits ? mistake::none : mistake::branches_do_not_fit;
  }
};

/// Along the first axis, whatever the rank.
struct concatenate_channels : concatenation<false> {
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape first, shape second) noexcept {
    shape out = first;
    out.e0 += second.e0;
    return out;
  }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr mistake check(shape first, shape second) noexcept {
    const bool fits = first.varying_axis() == second.varying_axis() && first.e1 == second.e1 && first.e2 == second.e2 &&
                      first.e3 == second.e3;
    return fits ? mistake::none : mistake::branches_do_not_fit;
  }
};

template <class Join, class First, class... Rest>
struct side_by_side {
  using type = First;
};
template <class Join, class First, class Second, class... Rest>
struct side_by_side<Join, First, Second, Rest...> : side_by_side<Join, merge<Join, First, Second>, Rest...> {};

}  // namespace detail

/// `parallel<sequential<...>, sequential<...>, ...>`: the branches' outputs joined along features (`{features}`,
/// `{positions, features}`) or channels (`{channels, height, width}`, `{channels, depth, height, width}`). A shape of
/// rank 2 counts as `{positions, features}`: branches that end in `{channels, positions}` are for `parallel_channels`.
/// An empty `sequential<>` is the input itself. PyTorch: `torch.cat([a(x), b(x)], -1)`, of images and volumes `1`.
/// Parameters: the branches', in order.
template <class First, class Second, class... More>
struct parallel {
  using unfolds_to = typename detail::side_by_side<detail::concatenate, First, Second, More...>::type;
};

/// The same, joined along the first axis whatever the rank: the channels of `{channels, positions}`, as `conv1d` and
/// its pools put them out, of `{channels, height, width}` and of `{channels, depth, height, width}`. PyTorch:
/// `torch.cat([a(x), b(x)], 1)`. Where branches would leave different lengths of a shorter sample, the first one's
/// counts.
template <class First, class Second, class... More>
struct parallel_channels {
  using unfolds_to = typename detail::side_by_side<detail::concatenate_channels, First, Second, More...>::type;
};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1::detail {

/// Gates whose values lie side by side in a cell's record, and from which row of W_ih on.
struct gate_block {
  std::size_t in_area = 0;
  std::size_t in_weight = 0;
  std::size_t count = 1;
};

/// What a cell's step sees of one sample at one position. `c`, `tanh_c` of cells with two states only.
template <class Scalar>
struct cell_step {
  Scalar* area;
  const Scalar* h_before;
  Scalar* h;
  const Scalar* c_before;
  Scalar* c;
  Scalar* tanh_c;
  Scalar* y;         ///< forward: where h is wanted once more, or null
  const Scalar* dy;  ///< backward: the gradient of h from outside, or null
  Scalar* dh;        ///< in: from later steps; out: for the step before, but for W_hh^T db
  Scalar* dc;
};

/// One direction of one layer. `Cell` says what its elements compute; `Last`: only the last state is put out; `Given`:
/// the initial state is a second input, h (and behind it c).
template <class Cell, std::size_t Hidden, std::size_t Biases, bool Reversed, bool Last, bool Given, mistake Wrong>
struct recurrent_core {
  static constexpr bool on_tiles = true;
  static constexpr bool knows_lengths = true;
  static constexpr std::size_t samples_together = 8;

  static constexpr std::size_t gates = Cell::gates * Hidden;  ///< rows of W_ih and W_hh
  static constexpr std::size_t area = Cell::area * Hidden;    ///< of a position's record
  static constexpr std::size_t state = Cell::states * Hidden;
  static constexpr std::size_t first_recurrent = Cell::first_recurrent * Hidden;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept requires(!Given) { return output_of(in); }
  [[nodiscard]] static constexpr shape output_shape(shape in, shape /*state*/) noexcept requires(Given) {
    return output_of(in);
  }
  [[nodiscard]] static constexpr mistake check(shape in, shape second) noexcept {
    if (Wrong != mistake::none) return Wrong;
    if (Hidden == 0) return mistake::zero_is_no_size;
    if (in.rank() != 2 || in.varying_axis() == 2) return mistake::needs_a_sequence;
    return Given && second != shape{state} ? mistake::branches_do_not_fit : mistake::none;
  }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept {
    return gates * (in.e1 + Hidden + Biases);
  }
  [[nodiscard]] static constexpr std::array<matrix, 2> matrices(shape in) noexcept {
    return {matrix{0, gates, in.e1}, matrix{gates * in.e1, gates, Hidden}};
  }
  /// Records, states before and after every position, and for cells with two states c and tanh c.
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept {
    return in.e0 * area + (in.e0 + 1) * state + (Cell::states > 1 ? in.e0 * Hidden : 0);
  }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape /*in*/) noexcept { return std::max(area, state); }

  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    constexpr std::size_t blocks = Cell::input_blocks.size();
    factor_list<blocks + 1 + (Biases > 0 ? blocks : 0) + (Biases > 1 ? 1 : 0)> list{};
    std::size_t next = 0;
    const operand states{source::saved, in.e0 * area + (Reversed ? Hidden : 0), Hidden};
    const operand recurrent{source::saved, first_recurrent, area};
    const auto block = [](const gate_block& gate) { return operand{source::saved, gate.in_area * Hidden, area}; };
    for (const gate_block& gate : Cell::input_blocks) {
      list[next++] = outer_sum(in.e0, gate.count * Hidden, block(gate), in.e1, {source::activation, 0, in.e1});
    }
    list[next++] = outer_sum(in.e0, gates, recurrent, Hidden, states);
    for (const gate_block& gate : Cell::input_blocks) {
      if (Biases > 0) list[next++] = elementwise_sum(in.e0, gate.count * Hidden, block(gate));
    }
    if (Biases > 1) list[next++] = elementwise_sum(in.e0, gates, recurrent);
    return list;
  }

  /// PyTorch's default: everything uniform in ±1/sqrt(Hidden). Other initialisers go by each matrix's own sizes.
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    constexpr auto real = [](std::size_t count) { return static_cast<double>(count); };
    const fans own{real(Hidden), real(gates)};
    const fans of_input = std::is_same_v<Initialiser, layer_default> ? own : fans{real(in.e1), real(gates)};
    const std::size_t input_weights = gates * in.e1;
    const std::size_t weights = input_weights + gates * Hidden;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = static_cast<Scalar>(i < input_weights ? initialiser.weight(first + i, of_input)
                                          : i < weights     ? initialiser.weight(first + i, own)
                                                            : initialiser.bias(first + i, own));
    }
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const extents at{tile};
    scalar* bias = tile.scratch(0);
    gather_biases(tile.parameters + number(gates) * (at.features + number(Hidden)), bias);
    for (index b = 0; b < tile.samples; ++b) start(tile, at, b);
    for_each_stretch(at.longest, Reversed, [&](index first, index count) {
      for (const gate_block& gate : Cell::input_blocks) {
        const index offset = number(gate.in_area * Hidden);
        tile.multiply_bias({{{}, {tile.samples, tile.x.step, tile.saved.step}, {count, at.features, number(area)}},
                            {{}, {}, {at.features, 1, number(gates)}},
                            number(gate.count * Hidden)},
                           tile.x(0) + first * at.features, tile.transposed(0) + number(gate.in_weight * Hidden),
                           tile.saved(0) + first * number(area) + offset, bias + offset);
      }
      for_each_position(first, count, Reversed, [&](index p) {
        Cell::prepare(tile, Hidden, first_record(tile, p), bias);
        tile.multiply_add({{{}, {}, {tile.samples, tile.saved.step, tile.saved.step}},
                           {{}, {}, {number(Hidden), 1, number(gates)}},
                           number(gates)},
                          tile.saved(0) + at.states + before(p) * number(Hidden), tile.transposed(1),
                          first_record(tile, p) + number(first_recurrent));
        for (index b = 0; b < tile.samples; ++b) {
          if (p < tile.length(b)) {
            Cell::template forward<scalar>(Hidden, step_of(tile, at, b, p));
          } else {
            end(tile, at, b, p);
          }
        }
      });
    });
    for (index b = 0; Last && b < tile.samples; ++b) {
      const scalar* last = tile.saved(b) + at.states + (Reversed ? 0 : tile.length(b)) * number(Hidden);
      std::copy_n(last, Hidden, tile.y(b));
    }
  }

  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const extents at{tile};
    for (index b = 0; b < tile.samples; ++b) {
      std::fill_n(tile.scratch(b), state, scalar{0});
      if (Last) std::copy_n(tile.dy(b), Hidden, tile.scratch(b));
      if (tile.wants_dx) {
        std::fill(tile.dx(b) + at.longest * at.features, tile.dx(b) + at.positions * at.features, scalar{0});
      }
    }
    const scalar* input_weights = tile.parameters;
    const scalar* recurrent_weights = tile.parameters + number(gates) * at.features;
    const index first_position = Reversed ? at.longest - 1 : 0;
    for_each_stretch(at.longest, !Reversed, [&](index first, index count) {
      for_each_position(first, count, !Reversed, [&](index p) {
        for (index b = 0; b < tile.samples; ++b) {
          if (p < tile.length(b)) Cell::template backward<scalar>(Hidden, step_of(tile, at, b, p));
        }
        if (p == first_position && !tile.wants_dx2) return;
        tile.multiply_add({{{}, {}, {tile.samples, tile.saved.step, tile.scratch.step}},
                           {{}, {}, {number(gates), 1, number(Hidden)}},
                           number(Hidden)},
                          first_record(tile, p) + number(first_recurrent), recurrent_weights, tile.scratch(0));
      });
      bool add = false;
      for (const gate_block& gate : Cell::input_blocks) {
        if (!tile.wants_dx) break;
        const scalar* delta = first_record(tile, first) + number(gate.in_area * Hidden);
        const scalar* weights = input_weights + number(gate.in_weight * Hidden) * at.features;
        scalar* dx = tile.dx(0) + first * at.features;
        const auto multiply = add ? &Tile::multiply_add : &Tile::multiply;
        multiply({{{}, {tile.samples, tile.saved.step, tile.dx.step}, {count, number(area), at.features}},
                  {{}, {}, {number(gate.count * Hidden), 1, at.features}},
                  at.features},
                 delta, weights, dx);
        add = true;
      }
    });
    for (index b = 0; tile.wants_dx2 && b < tile.samples; ++b) std::copy_n(tile.scratch(b), state, tile.dx2(b));
  }

 private:
  using index = std::ptrdiff_t;
  [[nodiscard]] static constexpr index number(std::size_t count) noexcept { return static_cast<index>(count); }
  [[nodiscard]] static constexpr shape output_of(shape in) noexcept {
    return Last ? shape{Hidden} : shape{in.e0, Hidden};
  }
  [[nodiscard]] static constexpr index before(index p) noexcept { return Reversed ? p + 1 : p; }
  [[nodiscard]] static constexpr index after(index p) noexcept { return Reversed ? p : p + 1; }

  /// Sizes that the tile's samples share, and where arrays of `saved` begin.
  struct extents {
    template <class Tile>
    explicit extents(const Tile& tile)
        : positions{number(tile.in.e0)},
          features{number(tile.in.e1)},
          states{positions * number(area)},
          cells{states + (positions + 1) * number(Hidden)},
          tanh_cells{cells + (positions + 1) * number(Hidden)} {
      for (index b = 0; b < tile.samples; ++b) longest = std::max(longest, tile.length(b));
    }
    index positions;
    index features;
    index states;
    index cells;
    index tanh_cells;
    index longest = 0;  ///< positions of the longest sample
  };

  template <class Tile>
  [[nodiscard]] static auto* first_record(const Tile& tile, index p) {
    return tile.saved(0) + p * number(area);
  }
  template <class Tile>
  [[nodiscard]] static auto step_of(const Tile& tile, const extents& at, index b, index p) {
    using scalar = typename Tile::scalar;
    constexpr index width = number(Hidden);
    constexpr bool two = Cell::states > 1;
    scalar* saved = tile.saved(b);
    scalar* h = saved + at.states;
    scalar* c = two ? saved + at.cells : nullptr;
    return cell_step<scalar>{saved + p * number(area),
                             h + before(p) * width,
                             h + after(p) * width,
                             two ? c + before(p) * width : nullptr,
                             two ? c + after(p) * width : nullptr,
                             two ? saved + at.tanh_cells + p * width : nullptr,
                             Last ? nullptr : tile.y(b) + p * width,
                             Last || tile.dy.first == nullptr ? nullptr : tile.dy(b) + p * width,
                             tile.scratch(b),
                             two ? tile.scratch(b) + width : nullptr};
  }

  /// Calls f(first, count) for stretches of positions whose records stay in the cache between two products.
  template <class Function>
  static void for_each_stretch(index positions, bool descending, Function&& f) {
    constexpr index together = 16;
    const index stretches = (positions + together - 1) / together;
    for (index k = 0; k < stretches; ++k) {
      const index first = (descending ? stretches - 1 - k : k) * together;
      f(first, std::min(together, positions - first));
    }
  }
  template <class Function>
  static void for_each_position(index first, index count, bool descending, Function&& f) {
    for (index k = 0; k < count; ++k) f(descending ? first + count - 1 - k : first + k);
  }

  /// What a record starts from: biases, where the two of PyTorch's meet in one sum added up.
  template <class Scalar>
  static void gather_biases(const Scalar* biases, Scalar* bias) {
    std::fill_n(bias, area, Scalar{0});
    for (const gate_block& gate : Cell::input_blocks) {
      if (Biases > 0) {
        std::copy_n(biases + gate.in_weight * Hidden, gate.count * Hidden, bias + gate.in_area * Hidden);
      }
    }
    for (std::size_t i = 0; Biases > 1 && i < gates; ++i) bias[first_recurrent + i] += biases[gates + i];
  }

  /// The initial state, and zeros where no position is: factors read all rows.
  template <class Tile>
  static void start(const Tile& tile, const extents& at, index b) {
    using scalar = typename Tile::scalar;
    constexpr index width = number(Hidden);
    scalar* saved = tile.saved(b);
    std::fill(saved + at.longest * number(area), saved + at.states, scalar{0});
    scalar* h = saved + at.states;
    std::fill(h + at.longest * width, h + (at.positions + 1) * width, scalar{0});
    const index row = Reversed ? tile.length(b) : 0;
    if (Reversed) std::fill(h + row * width, h + at.longest * width, scalar{0});
    for (std::size_t part = 0; part < Cell::states; ++part) {
      scalar* to = saved + (part == 0 ? at.states : at.cells) + row * width;
      if constexpr (Given) {
        std::copy_n(tile.x2(b) + number(part) * width, width, to);
      } else {
        std::fill_n(to, width, scalar{0});
      }
    }
  }
  /// A position beyond the sample's length.
  template <class Tile>
  static void end(const Tile& tile, const extents& at, index b, index p) {
    using scalar = typename Tile::scalar;
    scalar* saved = tile.saved(b);
    std::fill_n(saved + p * number(area), area, scalar{0});
    if (!Reversed) std::fill_n(saved + at.states + (p + 1) * number(Hidden), Hidden, scalar{0});
  }
};

/// A recurrent layer with all its options, as one-direction layers.
template <class Cell, std::size_t Hidden, class... Options>
struct recurrent {
  static constexpr recurrent_options options = gather_recurrent_options<Options...>();
  static constexpr mistake wrong = options.unknown_given || (options.relu && !Cell::may_be_relu)
                                       ? mistake::option_not_offered
                                   : options.layer_count == 0 ? mistake::zero_is_no_size
                                                              : mistake::none;
  static constexpr std::size_t layer_count = options.layer_count == 0 ? 1 : options.layer_count;
  static constexpr std::size_t directions = options.both_ways ? 2 : 1;
  static constexpr std::size_t hidden = Hidden;
  static constexpr std::size_t states = Cell::states;

  /// Layer `Index`, one direction of it.
  template <std::size_t Index, bool Reversed, bool Given = false>
  using core =
      recurrent_core<Cell, Hidden, options.biases, Reversed, options.last && Index + 1 == layer_count, Given, wrong>;
  template <class Indices>
  struct stack;
  template <std::size_t... Index>
  struct stack<std::index_sequence<Index...>> {
    template <std::size_t Which>
    using entry =
        std::conditional_t<options.both_ways, parallel<sequential<core<Which, false>>, sequential<core<Which, true>>>,
                           core<Which, false>>;
    using type =
        std::conditional_t<options.mean, sequential<entry<Index>..., mean_over_positions>, sequential<entry<Index>...>>;
  };
  using unfolds_to = typename stack<std::make_index_sequence<layer_count>>::type;
};

}  // namespace pergrad::inline v0_1::detail

namespace pergrad::inline v0_1 {

namespace detail {

struct gru_cell {
  static constexpr std::size_t gates = 3;
  static constexpr std::size_t area = 4;  ///< n, r, z, q_n: the last three are what meets the state
  static constexpr std::size_t states = 1;
  static constexpr std::size_t first_recurrent = 1;
  static constexpr std::array<gate_block, 2> input_blocks{{{1, 0, 2}, {0, 2, 1}}};
  static constexpr bool may_be_relu = false;

  /// q_n starts from its bias.
  template <class Tile, class Scalar>
  static void prepare(const Tile& tile, std::size_t hidden, Scalar* first_record, const Scalar* bias) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      std::copy_n(bias + 3 * hidden, hidden, first_record + b * tile.saved.step + 3 * hidden);
    }
  }

  template <class Scalar>
  static void forward(std::size_t hidden, const cell_step<Scalar>& at) {
    const auto width = static_cast<std::ptrdiff_t>(hidden);
    on_host::for_each_vector<Scalar>(width, [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::vector<Scalar>;
      Scalar* area_k = at.area + k;
      const value reset = math::sigmoid(value{lanes.load(area_k + width)});
      const value update = math::sigmoid(value{lanes.load(area_k + 2 * width)});
      const value candidate = math::tanh(value{lanes.load(area_k) + reset * lanes.load(area_k + 3 * width)});
      const value h = (1 - update) * candidate + update * lanes.load(at.h_before + k);
      lanes.store(area_k, candidate);
      lanes.store(area_k + width, reset);
      lanes.store(area_k + 2 * width, update);
      lanes.store(at.h + k, h);
      if (at.y != nullptr) lanes.store(at.y + k, h);
    });
  }

  template <class Scalar>
  static void backward(std::size_t hidden, const cell_step<Scalar>& at) {
    const auto width = static_cast<std::ptrdiff_t>(hidden);
    on_host::for_each_vector<Scalar>(width, [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::vector<Scalar>;
      Scalar* area_k = at.area + k;
      const value candidate = lanes.load(area_k);
      const value reset = lanes.load(area_k + width);
      const value update = lanes.load(area_k + 2 * width);
      const value from_state = lanes.load(area_k + 3 * width);
      value dh = lanes.load(at.dh + k);
      if (at.dy != nullptr) dh += lanes.load(at.dy + k);
      const value dn = dh * (1 - update) * (1 - candidate * candidate);
      lanes.store(area_k, dn);
      lanes.store(area_k + width, dn * from_state * reset * (1 - reset));
      lanes.store(area_k + 2 * width, dh * (lanes.load(at.h_before + k) - candidate) * update * (1 - update));
      lanes.store(area_k + 3 * width, dn * reset);
      lanes.store(at.dh + k, dh * update);
    });
  }
};

}  // namespace detail

/// `gru<Hidden, options...>` on `{positions, features}`: `{positions, Hidden}` (twice that if bidirectional), or
/// `{Hidden}` with `last_output` or `mean_output`. Options: `layers<Count>`, `bidirectional`, `one_bias`, `no_bias`,
/// `last_output`, `mean_output`. The initial state is zero; `with_state` gives one. PyTorch:
/// `nn.GRU(batch_first=True)`; parameters: weight_ih `[3 Hidden, features]` (r, z, n), weight_hh `[3 Hidden, Hidden]`,
/// bias_ih, bias_hh, layer by layer and direction by direction. Samples with lengths of their own end where they end.
template <std::size_t Hidden, class... Options>
struct gru : detail::recurrent<detail::gru_cell, Hidden, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/instance_norm.hpp - every channel of one sample normalised by itself, over its positions or pixels
//
// Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022: a group norm with one channel a group. There are no running
// statistics: they would mix the samples of a data set.

namespace pergrad::inline v0_1 {

namespace detail {

template <std::size_t Rank, class... Options>
struct instance_norm : grouped_norm<0, Options...> {
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    // As in PyTorch, one value a channel is refused: normalised it would always be 0.
    const bool fits = in.rank() == Rank && in.size() > in.e0;
    return fits ? grouped_norm<0, Options...>::check(in) : mistake::rejects_input;
  }
};

}  // namespace detail

/// `instance_norm1d<>` on `{channels, positions}`. Options: `no_affine`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.InstanceNorm1d(channels, affine=True)`; with `no_affine` PyTorch's own default,
/// `affine=False`. Parameters: weight, then bias, one a channel, at first 1 and 0.
template <class... Options>
struct instance_norm1d : detail::instance_norm<2, Options...> {};
/// The same on `{channels, height, width}`. PyTorch: `nn.InstanceNorm2d(channels, affine=True)`.
template <class... Options>
struct instance_norm2d : detail::instance_norm<3, Options...> {};
/// The same on `{channels, depth, height, width}`. PyTorch: `nn.InstanceNorm3d(channels, affine=True)`.
template <class... Options>
struct instance_norm3d : detail::instance_norm<4, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/layer_norm.hpp - y = gain (x - mean) / sqrt(variance + eps) + shift, over the last axes of one sample
//
// Ba, Kiros & Hinton 2016, arXiv:1607.06450. The variance is the biased one. Per-sample gradients: of the gain
// sum_t dy_t xhat_t, of the shift sum_t dy_t, over the rows t that share them.

// pergrad/detail/row_norm.hpp - layer norm and root-mean-square norm: rows of the last axes, each normalised by itself

namespace pergrad::inline v0_1::detail {

/// What `layer_norm` (Centred) and `rms_norm` have in common. Saved: xhat, then one rate a row.
template <bool Centred, class... Options>
struct row_norm {
  static constexpr bool on_tiles = true;
  static constexpr norm_options options = gather_norm_options<Options...>();
  static constexpr bool shifts = Centred && options.affine && options.bias;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept {
    return (options.affine ? row_size(in) : 0) + (shifts ? row_size(in) : 0);
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return in.size() + row_count(in); }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    const std::size_t size = row_size(in);
    const operand delta{.from = source::backprop, .position_stride = size};
    const factor gain = elementwise_sum(row_count(in), size, delta, {.from = source::saved, .position_stride = size});
    factor_list<(options.affine ? 1U : 0U) + (shifts ? 1U : 0U)> list;
    if constexpr (options.affine) list[0] = gain;
    if constexpr (shifts) list[1] = elementwise_sum(row_count(in), size, delta);
    return list;
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.axes == 0 || options.axes > in.rank() || (!Centred && options.bias_given)) {
      return mistake::option_not_offered;
    }
    // Rows that go along the axis of varying length would need the length.
    if (in.varying_axis() != 0 && options.axes + in.varying_axis() > in.rank()) return mistake::lengths_are_lost;
    return mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    initialise_affine(initialiser, first, row_size(in), parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto size = static_cast<std::ptrdiff_t>(row_size(tile.in));
    const auto count = static_cast<std::ptrdiff_t>(row_count(tile.in));
    const scalar* gain = options.affine ? tile.parameters : nullptr;
    const scalar* shift = shifts ? tile.parameters + size : nullptr;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const scalar* x = tile.x(b);
      scalar* y = tile.y(b);
      scalar* xhat = tile.saved(b);
      scalar* rates = xhat + size * count;
      for (std::ptrdiff_t r = 0; r < count; ++r) {
        const auto by = normalisation::normaliser_of_row<Centred>(x + r * size, size, epsilon<scalar>());
        rates[r] = by.rate;
        normalisation::forward_row<Centred>(x + r * size, size, by, gain, shift, xhat + r * size, y + r * size);
      }
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto size = static_cast<std::ptrdiff_t>(row_size(tile.in));
    const auto count = static_cast<std::ptrdiff_t>(row_count(tile.in));
    const scalar* gain = options.affine ? tile.parameters : nullptr;
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const scalar* xhat = tile.saved(b);
      const scalar* rates = xhat + size * count;
      const scalar* dy = tile.dy(b);
      scalar* dx = tile.dx(b);
      for (std::ptrdiff_t r = 0; r < count; ++r) {
        normalisation::backward_row<Centred>(xhat + r * size, rates[r], gain, dy + r * size, size, dx + r * size);
      }
    }
  }

 private:
  /// PyTorch: 1e-5 for a layer norm; for the root mean square what 1 is away from the next larger number.
  template <class Scalar>
  [[nodiscard]] static constexpr double epsilon() noexcept {
    return Centred || options.epsilon_given ? options.epsilon
                                            : static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  }
  [[nodiscard]] static constexpr std::size_t row_size(shape in) noexcept {
    std::size_t size = 1;
    for (std::size_t axis = in.rank() - options.axes; axis < in.rank(); ++axis) size *= in[axis];
    return size;
  }
  [[nodiscard]] static constexpr std::size_t row_count(shape in) noexcept { return in.size() / row_size(in); }
};

}  // namespace pergrad::inline v0_1::detail

namespace pergrad::inline v0_1 {

/// `layer_norm<>` normalises along the last axis of an input of any rank, `layer_norm<axes<K>>` along the last K axes
/// together. Options in any order: `axes<K>`, `no_affine`, `no_bias`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.LayerNorm(shape[-K:])`; parameters: weight, then bias, each of the normalised axes' size; at
/// first 1 and 0. Positions of samples with lengths of their own are normalised one by one.
template <class... Options>
struct layer_norm : detail::row_norm<true, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/learned_positions.hpp - y_t = x_t + p_t with one learned p_t a position
//
// The table's per-sample gradient is dy itself: zero behind a sample's length, where dy is.

namespace pergrad::inline v0_1 {

/// On `{positions, features}`; keeps the shape. Parameters: the table `[positions, features]`. PyTorch: `x +
/// self.table[:x.shape[1]]`; first values as those of `nn.Embedding`, N(0, 1).
struct learned_positions {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.size(), {source::backprop}));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    const detail::fans fan{static_cast<double>(in.e1), static_cast<double>(in.e1)};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = static_cast<Scalar>(detail::table_value(initialiser, first + i, fan));
    }
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const auto* table = tile.parameters;
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto* x = tile.x(b);
      auto* y = tile.y(b);
      on_host::for_each_vector<typename Tile::scalar>(size, [&](std::ptrdiff_t i, const auto& lanes) {
        lanes.store(y + i, lanes.load(x + i) + lanes.load(table + i));
      });
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      std::copy_n(tile.dy(b), tile.in.size(), tile.dx(b));
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/linear.hpp - fully connected layer  y = W x + b
//
// Per-sample gradient  G_b = sum_t delta_t (x) x_t;  with one position  |G_b|^2 = |delta|^2 |x|^2  (Goodfellow 2015,
// arXiv:1510.01799), so its norm costs nothing next to the product itself.

namespace pergrad::inline v0_1 {

/// `linear<Outputs>` on `{features}`, or position by position on `{positions, features}`. Option: `no_bias`.
/// PyTorch: `nn.Linear`; parameters: weight `[Outputs, features]`, then bias.
template <std::size_t Outputs, class... Options>
struct linear {
  static constexpr detail::window_options options = detail::gather_options<Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return in.rank() == 1 ? shape{Outputs} : shape{in.e0, Outputs};
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    const std::size_t positions = in.rank() == 1 ? 1 : in.e0;
    return {.in_channels = in.rank() == 1 ? in.e0 : in.e1,
            .in_size = {positions, 1},
            .out_channels = Outputs,
            .out_size = {positions, 1},
            .bias = options.bias};
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    constexpr bool only_bias = !options.stride_given && options.padding == extent{0} && options.dilation == extent{1} &&
                               options.groups == 1 && !options.output_padding_given && !options.unknown_given;
    if (!only_bias) return detail::mistake::option_not_offered;
    if (Outputs == 0) return detail::mistake::zero_is_no_size;
    return in.rank() > 2 ? detail::mistake::needs_features : detail::mistake::none;
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/lora.hpp - low-rank adapter of a frozen linear layer  y = W x + b + (alpha / rank) B A x
//
// Only A and B are trained (Hu et al. 2021, arXiv:2106.09685); W and b have no gradient, and none is computed.

// pergrad/layers/scale.hpp - multiplication by a constant  y = a x;  dy/dx = a

namespace pergrad::inline v0_1 {

/// `scale<std::ratio<1, 4>>` on any shape: one factor for every value, not a parameter. The ratio, a type of <ratio>,
/// is rounded once to the network's own type.
template <class Ratio>
struct scale {
  static constexpr bool on_vectors = true;
  static constexpr bool derivative_from_output = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return x * factor<Value>();
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value /*y*/) noexcept {
    return math::splat<Value>(factor<Value>());
  }

 private:
  template <class Value>
  [[nodiscard]] PERGRAD_HD static constexpr math::element_t<Value> factor() noexcept {
    return static_cast<math::element_t<Value>>(static_cast<long double>(Ratio::num) /
                                               static_cast<long double>(Ratio::den));
  }
};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

namespace detail {

template <std::size_t Rank, class Layer, class Alpha>
struct low_rank_adapter;
template <std::size_t Rank, std::size_t Outputs, class... Options, class Alpha>
struct low_rank_adapter<Rank, linear<Outputs, Options...>, Alpha> {
  using type = residual<linear<Rank, no_bias>, linear<Outputs, no_bias>,
                        scale<std::ratio_divide<Alpha, std::ratio<static_cast<std::intmax_t>(Rank)>>>,
                        projection<frozen<linear<Outputs, Options...>>>>;
};

}  // namespace detail

/// `lora<Rank, linear<Outputs>, std::ratio<Alpha>>` in the place of that linear layer. Parameters: A
/// `[Rank, features]`, then B `[Outputs, Rank]`; frozen parameters: weight, then bias. The names of peft are `lora_A`,
/// `lora_B`.
template <std::size_t Rank, class Layer, class Alpha = std::ratio<static_cast<std::intmax_t>(Rank)>>
struct lora {
  using unfolds_to = typename detail::low_rank_adapter<Rank, Layer, Alpha>::type;
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/lstm.hpp - long short-term memory (Hochreiter & Schmidhuber 1997; with the forget gate of Gers,
// Schmidhuber & Cummins 2000)
//
//   (i, f, g, o) = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh
//   c_t = sigmoid(f) c_(t-1) + sigmoid(i) tanh(g)      h_t = sigmoid(o) tanh(c_t)
// Backwards, with dh = dL/dh_t and dc = dL/dc_t from t + 1 plus dh sigmoid(o) (1 - tanh² c_t), and the gates' values
// named as the gates:
//   di = dc g i (1 - i)    df = dc c_(t-1) f (1 - f)    dg = dc i (1 - g²)    do = dh tanh(c_t) o (1 - o)
//   dL/dc_(t-1) = dc f     dL/dh_(t-1) = W_hh^T (di, df, dg, do)

namespace pergrad::inline v0_1 {

namespace detail {

struct lstm_cell {
  static constexpr std::size_t gates = 4;
  static constexpr std::size_t area = 4;  ///< i, f, g, o
  static constexpr std::size_t states = 2;
  static constexpr std::size_t first_recurrent = 0;
  static constexpr std::array<gate_block, 1> input_blocks{{{0, 0, 4}}};
  static constexpr bool may_be_relu = false;

  template <class Tile, class Scalar>
  static void prepare(const Tile& /*tile*/, std::size_t /*hidden*/, Scalar* /*first_record*/, const Scalar* /*bias*/) {}

  template <class Scalar>
  static void forward(std::size_t hidden, const cell_step<Scalar>& at) {
    const auto width = static_cast<std::ptrdiff_t>(hidden);
    on_host::for_each_vector<Scalar>(width, [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::vector<Scalar>;
      Scalar* area_k = at.area + k;
      const value in = math::sigmoid(value{lanes.load(area_k)});
      const value forget = math::sigmoid(value{lanes.load(area_k + width)});
      const value candidate = math::tanh(value{lanes.load(area_k + 2 * width)});
      const value out = math::sigmoid(value{lanes.load(area_k + 3 * width)});
      const value cell = forget * lanes.load(at.c_before + k) + in * candidate;
      const value squashed = math::tanh(cell);
      const value h = out * squashed;
      lanes.store(area_k, in);
      lanes.store(area_k + width, forget);
      lanes.store(area_k + 2 * width, candidate);
      lanes.store(area_k + 3 * width, out);
      lanes.store(at.c + k, cell);
      lanes.store(at.tanh_c + k, squashed);
      lanes.store(at.h + k, h);
      if (at.y != nullptr) lanes.store(at.y + k, h);
    });
  }

  template <class Scalar>
  static void backward(std::size_t hidden, const cell_step<Scalar>& at) {
    const auto width = static_cast<std::ptrdiff_t>(hidden);
    on_host::for_each_vector<Scalar>(width, [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::vector<Scalar>;
      Scalar* area_k = at.area + k;
      const value in = lanes.load(area_k);
      const value forget = lanes.load(area_k + width);
      const value candidate = lanes.load(area_k + 2 * width);
      const value out = lanes.load(area_k + 3 * width);
      const value squashed = lanes.load(at.tanh_c + k);
      value dh = lanes.load(at.dh + k);
      if (at.dy != nullptr) dh += lanes.load(at.dy + k);
      const value dc = lanes.load(at.dc + k) + dh * out * (1 - squashed * squashed);
      lanes.store(area_k, dc * candidate * in * (1 - in));
      lanes.store(area_k + width, dc * lanes.load(at.c_before + k) * forget * (1 - forget));
      lanes.store(area_k + 2 * width, dc * in * (1 - candidate * candidate));
      lanes.store(area_k + 3 * width, dh * squashed * out * (1 - out));
      lanes.store(at.dc + k, dc * forget);
      lanes.store(at.dh + k, value{});
    });
  }
};

}  // namespace detail

/// `lstm<Hidden, options...>` on `{positions, features}`: `{positions, Hidden}` (twice that if bidirectional), or
/// `{Hidden}` with `last_output` or `mean_output`. Options: `layers<Count>`, `bidirectional`, `one_bias`, `no_bias`,
/// `last_output`, `mean_output`. The initial state is zero; `with_state` gives one. PyTorch:
/// `nn.LSTM(batch_first=True)`; parameters: weight_ih `[4 Hidden, features]` (i, f, g, o), weight_hh `[4 Hidden,
/// Hidden]`, bias_ih, bias_hh, layer by layer and direction by direction. Samples with lengths of their own end where
/// they end.
template <std::size_t Hidden, class... Options>
struct lstm : detail::recurrent<detail::lstm_cell, Hidden, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/max_pool1d.hpp - largest value of each window of a sequence; its gradient goes to the first input that
// equals it

namespace pergrad::inline v0_1 {

/// `max_pool1d<Kernel, Options...>` on `{channels, positions}`; options `stride<>` (default: the kernel),
/// `padding<>` (counts as minus infinity). PyTorch: `nn.MaxPool1d` with its tie rule: first in row order.
template <std::size_t Kernel, class... Options>
struct max_pool1d : detail::sliding_windows<1, extent{Kernel}, Options...>, detail::maximum_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/max_pool2d.hpp - largest value of each window of an image; its gradient goes to the first input that
// equals it

namespace pergrad::inline v0_1 {

/// `max_pool2d<Kernel, Options...>` on `{channels, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (counts as minus infinity). PyTorch: `nn.MaxPool2d` with its tie rule: first in row order.
template <extent Kernel, class... Options>
struct max_pool2d : detail::sliding_windows<2, Kernel, Options...>, detail::maximum_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/max_pool3d.hpp - largest value of each window of a volume; its gradient goes to the first input that
// equals it

namespace pergrad::inline v0_1 {

/// `max_pool3d<Kernel, Options...>` on `{channels, depth, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (counts as minus infinity). PyTorch: `nn.MaxPool3d` with its tie rule: first in row order.
template <extent Kernel, class... Options>
struct max_pool3d : detail::sliding_windows<3, Kernel, Options...>, detail::maximum_of_window {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/multihead_attention.hpp - self-attention of several heads: every position asks every position
//
//     [Q | K | V] = X W_in^T + b_in
//     C = the heads' softmax(Q K^T / sqrt(d)) V, side by side
//     Y = C W_out^T + b_out
// (Vaswani et al. 2017, arXiv:1706.03762; the heads: detail/attention.hpp). Only the two projections have parameters,
// so with D = [dQ | dK | dV] the per-sample gradients are the outer-product sums
//     G_in = sum_t D_t (x) X_t,    G_out = sum_t dY_t (x) C_t
// and one Gram matrix of X serves the norm of all three projections. How the features are cut into heads is no matter.

namespace pergrad::inline v0_1 {

/// `multihead_attention<Heads, Options...>` on `{positions, features}`, of any length each; keeps the shape. Heads must
/// divide the features. Options in any order: `causal`, `no_bias`, `kv_bias`, `attention_dropout<std::ratio<1, 10>>`.
/// PyTorch: `nn.MultiheadAttention(features, Heads, batch_first=True)` with x as query, key and value; parameters:
/// in_proj_weight `[3 features, features]`, in_proj_bias, bias_k and bias_v with `kv_bias`, out_proj.weight
/// `[features, features]`, out_proj.bias. Positions beyond a sample's length are not seen by any other.
template <std::size_t Heads, class... Options>
struct multihead_attention {
  static constexpr bool on_tiles = true;
  static constexpr detail::attention_options options = detail::gather_attention_options<Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return lay_out(in).parameter_count; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return lay_out(in).saved_count; }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return lay_out(in).scratch_count; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (options.wrong_given) return detail::mistake::option_not_offered;
    if (in.rank() != 2) return detail::mistake::needs_a_sequence;
    if (Heads == 0) return detail::mistake::zero_is_no_size;
    return in.e1 % Heads != 0 ? detail::mistake::heads_do_not_divide : detail::mistake::none;
  }
  [[nodiscard]] static constexpr std::array<matrix, 2> matrices(shape in) noexcept {
    return {matrix{0, 3 * in.e1, in.e1}, matrix{static_cast<std::size_t>(lay_out(in).out_weight), in.e1, in.e1}};
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    const detail::attention_layout at = lay_out(in);
    const std::size_t features = in.e1;
    const operand projected{source::saved, static_cast<std::size_t>(at.query), 3 * features};
    const operand backprop{source::backprop, 0, features};
    const operand context{source::saved, static_cast<std::size_t>(at.context), features};
    factor_list<2 + (options.bias ? 2U : 0U) + (options.kv_bias ? 1U : 0U)> list;
    std::size_t count = 0;
    list[count++] = outer_sum(in.e0, 3 * features, projected, features, {source::activation, 0, features});
    if (options.bias) list[count++] = elementwise_sum(in.e0, 3 * features, projected);
    if (options.kv_bias) {
      list[count++] = elementwise_sum(1, 2 * features, {source::saved, static_cast<std::size_t>(at.key)});
    }
    list[count++] = outer_sum(in.e0, features, backprop, features, context);
    if (options.bias) list[count++] = elementwise_sum(in.e0, features, backprop);
    return list;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    detail::initialise_attention(lay_out(in), options.bias, initialiser, first, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const detail::attention_layout at = lay_out(tile.in);
    detail::multiply_positions<Tile, scalar>(tile, tile.lengths, at.queries,
                                             {.depth = at.features,
                                              .columns = at.query_step,
                                              .left = tile.x.first,
                                              .left_sample = tile.x.step,
                                              .left_row = at.features,
                                              .right = tile.transposed(0),
                                              .bias = options.bias ? tile.parameters + at.bias : nullptr,
                                              .out = tile.saved.first + at.query,
                                              .out_sample = tile.saved.step,
                                              .out_row = at.query_step});
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      detail::set_learned_key(tile, at, b);
      detail::attend(tile, at, b, tile.length(b), tile.length(b) + at.extra);
    }
    detail::project_context(tile, at, tile.transposed(1), options.bias);
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const detail::attention_layout at = lay_out(tile.in);
    detail::project_context_backward(tile, at);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      detail::attend_backward(tile, at, b, tile.length(b), tile.length(b) + at.extra);
    }
    if (!tile.wants_dx) return;
    detail::multiply_positions<Tile, scalar>(tile, tile.lengths, at.queries,
                                             {.depth = at.query_step,
                                              .columns = at.features,
                                              .left = tile.saved.first + at.query,
                                              .left_sample = tile.saved.step,
                                              .left_row = at.query_step,
                                              .right = tile.parameters,
                                              .out = tile.dx.first,
                                              .out_sample = tile.dx.step,
                                              .out_row = at.features});
    detail::clear_beyond(tile.dx, tile.samples, tile.lengths, at.queries, at.features);
  }

 private:
  [[nodiscard]] static constexpr detail::attention_layout lay_out(shape in) noexcept {
    return detail::lay_out_attention(in, in, Heads, true, options);
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/relu.hpp - rectified linear unit  y = max(x, 0);  dy/dx = 1 where y > 0, else 0 (0 at 0, as PyTorch)

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.ReLU`. A NaN stays a NaN, so that a sample with one is found and dropped.
struct relu {
  static constexpr bool on_vectors = true;
  static constexpr bool derivative_from_output = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::select(x < Value{}, Value{}, x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return math::select(y > Value{}, Value{} + 1, Value{});
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/reshape.hpp - the same values, in PyTorch's order, under another shape

namespace pergrad::inline v0_1 {

/// `reshape<shape{...}>` of as many values as the input has. PyTorch: `nn.Unflatten`, `x.reshape(...)`. An executor
/// copies only where the next layer needs another order in memory.
template <shape Output>
struct reshape {
  static constexpr bool is_reshape = true;
  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return Output; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return Output.size() == in.size() ? detail::mistake::none : detail::mistake::reshape_changes_size;
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/rms_norm.hpp - y = gain x / sqrt(mean(x^2) + eps), over the last axes of one sample
//
// Zhang & Sennrich 2019, arXiv:1910.07467. Per-sample gradient of the gain: sum_t dy_t xhat_t.

namespace pergrad::inline v0_1 {

/// `rms_norm<>` normalises along the last axis of an input of any rank, `rms_norm<axes<K>>` along the last K axes
/// together. Options in any order: `axes<K>`, `no_affine`, `eps<Numerator, Denominator>`; without the last, as in
/// PyTorch, the machine epsilon of the network's type. PyTorch: `nn.RMSNorm(shape[-K:])`; parameter: weight, at
/// first 1.
template <class... Options>
struct rms_norm : detail::row_norm<false, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/rnn.hpp - recurrent layer  h_t = f(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh),  f = tanh or relu (Elman
// 1990)
//
// Backwards: delta_t = dh_t f'(h_t) with tanh' = 1 - h², relu' = [h > 0];  dL/dh_(t-1) = W_hh^T delta_t.

namespace pergrad::inline v0_1 {

namespace detail {

template <bool Relu>
struct rnn_cell {
  static constexpr std::size_t gates = 1;
  static constexpr std::size_t area = 1;
  static constexpr std::size_t states = 1;
  static constexpr std::size_t first_recurrent = 0;
  static constexpr std::array<gate_block, 1> input_blocks{{{0, 0, 1}}};
  static constexpr bool may_be_relu = true;

  template <class Tile, class Scalar>
  static void prepare(const Tile& /*tile*/, std::size_t /*hidden*/, Scalar* /*first_record*/, const Scalar* /*bias*/) {}

  template <class Scalar>
  static void forward(std::size_t hidden, const cell_step<Scalar>& at) {
    on_host::for_each_vector<Scalar>(static_cast<std::ptrdiff_t>(hidden), [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::vector<Scalar>;
      const value sum = lanes.load(at.area + k);
      const value h = Relu ? math::max(sum, value{}) : math::tanh(sum);
      lanes.store(at.h + k, h);
      if (at.y != nullptr) lanes.store(at.y + k, h);
    });
  }

  template <class Scalar>
  static void backward(std::size_t hidden, const cell_step<Scalar>& at) {
    on_host::for_each_vector<Scalar>(static_cast<std::ptrdiff_t>(hidden), [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::vector<Scalar>;
      const value h = lanes.load(at.h + k);
      value dh = lanes.load(at.dh + k);
      if (at.dy != nullptr) dh += lanes.load(at.dy + k);
      const value slope = Relu ? math::select(h > value{}, math::splat<value>(1), value{}) : 1 - h * h;
      lanes.store(at.area + k, dh * slope);
      lanes.store(at.dh + k, value{});
    });
  }
};

template <class... Options>
using rnn_cell_of = rnn_cell<gather_recurrent_options<Options...>().relu>;

}  // namespace detail

/// `rnn<Hidden, options...>` on `{positions, features}`: `{positions, Hidden}` (twice that if bidirectional), or
/// `{Hidden}` with `last_output` or `mean_output`. Options: `relu_cell` (instead of tanh), `layers<Count>`,
/// `bidirectional`, `one_bias`, `no_bias`, `last_output`, `mean_output`. The initial state is zero; `with_state` gives
/// one. PyTorch: `nn.RNN(batch_first=True)`; parameters: weight_ih `[Hidden, features]`, weight_hh `[Hidden, Hidden]`,
/// bias_ih, bias_hh, layer by layer and direction by direction. Samples with lengths of their own end where they end.
template <std::size_t Hidden, class... Options>
struct rnn : detail::recurrent<detail::rnn_cell_of<Options...>, Hidden, Options...> {};

}  // namespace pergrad::inline v0_1
// pergrad/layers/select_last.hpp - y = x_(n-1), with n the sample's own length

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{features}`: the last position that is there, zeros if none is (a convolution may leave
/// none of a short sample). PyTorch: `x[:, -1]`.
struct select_last {
  static constexpr bool on_tiles = true;
  static constexpr bool knows_lengths = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e1}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 && in.varying_axis() != 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t length = tile.length(b);
      auto* y = tile.y(b);
      if (length == 0) {
        for (std::ptrdiff_t i = 0; i < features; ++i) y[i] = 0;
        continue;
      }
      const auto* x = tile.x(b) + (length - 1) * features;
      for (std::ptrdiff_t i = 0; i < features; ++i) y[i] = x[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const auto* dy = tile.dy(b);
      auto* dx = tile.dx(b);
      for (std::ptrdiff_t i = 0; i < size; ++i) dx[i] = 0;
      if (tile.length(b) == 0) continue;
      dx += (tile.length(b) - 1) * features;
      for (std::ptrdiff_t i = 0; i < features; ++i) dx[i] = dy[i];
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/sequence_bias.hpp - one learned position behind the last one of every sample
//
// Its per-sample gradient is dy at that position, which lies where the sample ends.

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{positions + 1, features}`; a sample of length n has n + 1 positions then. Parameters:
/// one position `[features]`; first values N(0, 1). PyTorch: `torch.cat([x, bias.expand(len(x), 1, -1)], 1)`.
struct sequence_bias {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0 + 1, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept {
    return length + 1;
  }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.e1; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return in.e1; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.e1, {source::saved}));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    const detail::fans fan{static_cast<double>(in.e1), static_cast<double>(in.e1)};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = static_cast<Scalar>(detail::table_value(initialiser, first + i, fan));
    }
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t end = tile.length(b) * features;
      auto* y = tile.y(b);
      std::copy_n(tile.x(b), end, y);
      std::copy_n(tile.parameters, features, y + end);
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t end = tile.length(b) * features;
      const auto* dy = tile.dy(b);
      std::copy_n(dy + end, features, tile.saved(b));
      if (!tile.wants_dx) continue;
      auto* dx = tile.dx(b);
      std::copy_n(dy, end, dx);
      std::fill(dx + end, dx + static_cast<std::ptrdiff_t>(tile.in.size()), scalar{0});
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/sigmoid.hpp - logistic function  y = 1 / (1 + e^-x);  dy/dx = y (1 - y)

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Sigmoid`.
struct sigmoid {
  static constexpr bool on_vectors = true;
  static constexpr bool derivative_from_output = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::sigmoid(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return y * (1 - y);
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/sinusoidal_positions.hpp - y_t = x_t + p_t,  p[t, 2k] = sin(t w_k), p[t, 2k + 1] = cos(t w_k)
//
// w_k = 10000^(-2k / features) (Vaswani et al. 2017, arXiv:1706.03762, section 3.5). The table is made for every tile,
// in double: from one position to the next, (cos, sin) turns by the angle w_k. Errors of the turning add up to about t
// units in the last place of a double, which is less than what a float holds for t up to 10^8.

namespace pergrad::inline v0_1 {

/// On `{positions, features}`; keeps the shape and has no parameters. An odd number of features ends in a sine.
struct sinusoidal_positions {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    auto* table = tile.scratch(0);
    fill(tile.in.e0, tile.in.e1, table);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto* x = tile.x(b);
      auto* y = tile.y(b);
      on_host::for_each_vector<typename Tile::scalar>(size, [&](std::ptrdiff_t i, const auto& lanes) {
        lanes.store(y + i, lanes.load(x + i) + lanes.load(table + i));
      });
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      std::copy_n(tile.dy(b), tile.in.size(), tile.dx(b));
    }
  }

 private:
  template <class Scalar>
  static void fill(std::size_t positions, std::size_t features, Scalar* table) {
    constexpr std::size_t together = 8;  // frequencies side by side, to hide the latency of their chains
    for (std::size_t first = 0; first < features; first += 2 * together) {
      double sine[together];
      double cosine[together];
      double turn_sine[together];
      double turn_cosine[together];
      for (std::size_t k = 0; k < together; ++k) {
        const double exponent = -static_cast<double>(first + 2 * k) / static_cast<double>(features);
        const double frequency = std::pow(10000.0, exponent);
        sine[k] = 0;
        cosine[k] = 1;
        turn_sine[k] = std::sin(frequency);
        turn_cosine[k] = std::cos(frequency);
      }
      const std::size_t here = features - first < 2 * together ? features - first : 2 * together;
      for (std::size_t t = 0; t < positions; ++t) {
        Scalar* row = table + t * features + first;
        for (std::size_t i = 0; i < here; ++i) {
          row[i] = static_cast<Scalar>(i % 2 == 0 ? sine[i / 2] : cosine[i / 2]);
        }
        for (std::size_t k = 0; k < together; ++k) {
          const double before = sine[k];
          sine[k] = before * turn_cosine[k] + cosine[k] * turn_sine[k];
          cosine[k] = cosine[k] * turn_cosine[k] - before * turn_sine[k];
        }
      }
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/slice.hpp - some of the features: y_i = x_(First + i), i < Count

namespace pergrad::inline v0_1 {

/// `slice<First, Count>` on `{features}`: `{Count}`. What is left out has gradient 0. In the branches of `parallel`,
/// `with_state` or `merge` it takes records apart that hold several things. PyTorch: `x[:, First:First+Count]`.
template <std::size_t First, std::size_t Count>
struct slice {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return {Count}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (Count == 0) return detail::mistake::zero_is_no_size;
    if (in.rank() != 1) return detail::mistake::needs_features;
    return First + Count <= in.e0 ? detail::mistake::none : detail::mistake::rejects_input;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto* x = tile.x(b) + First;
      auto* y = tile.y(b);
      for (std::size_t i = 0; i < Count; ++i) y[i] = x[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const std::size_t size = tile.in.size();
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const auto* dy = tile.dy(b);
      auto* dx = tile.dx(b);
      for (std::size_t i = 0; i < First; ++i) dx[i] = 0;
      for (std::size_t i = 0; i < Count; ++i) dx[First + i] = dy[i];
      for (std::size_t i = First + Count; i < size; ++i) dx[i] = 0;
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/softplus.hpp - smooth rectifier  y = log(1 + e^x);  dy/dx = sigmoid(x)

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Softplus` with beta 1 (computed exactly: PyTorch's switch to y = x above its threshold 20 differs by
/// 2e-9).
struct softplus {
  static constexpr bool on_vectors = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::softplus(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    return math::sigmoid(x);
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/take_positions.hpp - some of the positions of a sequence: y_t = x_(First + t), t < Count

namespace pergrad::inline v0_1 {

/// `take_positions<First, Count>` on `{positions, features}`: `{Count, features}`. What is left out has gradient 0.
/// PyTorch: `x[:, First:First+Count]`. Of samples with lengths of their own only the first positions can be taken
/// (First = 0), because others might not be there.
template <std::size_t First, std::size_t Count>
struct take_positions {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    shape out{Count, in.e1};
    if (First == 0) out.set_varying_axis(in.varying_axis());
    return out;
  }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(First == 0) {
    return length < Count ? length : Count;
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (Count == 0) return detail::mistake::zero_is_no_size;
    if (in.rank() != 2 || in.varying_axis() == 2) return detail::mistake::needs_a_sequence;
    return First + Count <= in.e0 ? detail::mistake::none : detail::mistake::rejects_input;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const std::size_t size = Count * tile.in.e1;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto* x = tile.x(b) + First * tile.in.e1;
      auto* y = tile.y(b);
      for (std::size_t i = 0; i < size; ++i) y[i] = x[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const std::size_t begin = First * tile.in.e1;
    const std::size_t end = begin + Count * tile.in.e1;
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const auto* dy = tile.dy(b);
      auto* dx = tile.dx(b);
      for (std::size_t i = 0; i < begin; ++i) dx[i] = 0;
      for (std::size_t i = begin; i < end; ++i) dx[i] = dy[i - begin];
      for (std::size_t i = end; i < tile.in.size(); ++i) dx[i] = 0;
    }
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/tanh.hpp - hyperbolic tangent  y = tanh x;  dy/dx = 1 - y^2

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Tanh`. Bounded activations help private training (Papernot et al. 2021, arXiv:2007.14191).
struct tanh {
  static constexpr bool on_vectors = true;
  static constexpr bool derivative_from_output = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::tanh(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return 1 - y * y;
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/transformer_encoder_layer.hpp - one block of a transformer's encoder, composed of other layers
//
// Norm behind (Vaswani et al. 2017, arXiv:1706.03762):
//     h = norm1(x + attention(x)),    y = norm2(h + W2 f(W1 h + b1) + b2)
// Norm first:
//     h = x + attention(norm1(x)),    y = h + W2 f(W1 norm2(h) + b1) + b2
// both with dropout on the attention's probabilities, on its output, behind f and on what W2 gives.

namespace pergrad::inline v0_1 {

/// Option of `transformer_encoder_layer`: layer norms in front of attention and feed-forward instead of behind them.
/// PyTorch: `norm_first=True`.
struct pre_norm {};
/// Option of `transformer_encoder_layer`: GELU instead of ReLU. PyTorch: `activation="gelu"`.
struct gelu_activation {};
/// Option of `transformer_encoder_layer`: `dropout_rate<std::ratio<1, 10>>`. Without it nothing is dropped. PyTorch:
/// `dropout=0.1`, which is PyTorch's default.
template <class Probability>
struct dropout_rate {};

namespace detail {

/// The end of a block's feed-forward part: y = x2 + dropout(W x + b), back to as many features as the block has, which
/// only its second input knows. Parameters: weight `[features, hidden]`, bias.
template <class Probability>
struct feed_forward_end {
  static constexpr bool on_tiles = true;
  static constexpr bool drops = Probability::num != 0;

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/, shape second) noexcept {
    return {second.e0, second.e1};
  }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in, shape second) noexcept {
    return second.e1 * (in.e1 + 1);
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape /*in*/, shape second) noexcept {
    return drops ? second.size() : 0;
  }
  [[nodiscard]] static constexpr mistake check(shape in, shape second) noexcept {
    return in.rank() == 2 && second.rank() == 2 && in.e0 == second.e0 ? mistake::none : mistake::branches_do_not_fit;
  }
  [[nodiscard]] static constexpr std::array<matrix, 1> matrices(shape in, shape second) noexcept {
    return {matrix{0, second.e1, in.e1}};
  }
  [[nodiscard]] static constexpr auto factors(shape in, shape second) noexcept {
    const operand delta{drops ? source::saved : source::backprop, 0, second.e1};
    return list_factors(outer_sum(in.e0, second.e1, delta, in.e1, {source::activation, 0, in.e1}),
                        elementwise_sum(in.e0, second.e1, delta));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, shape second, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    const fans fan{static_cast<double>(in.e1), static_cast<double>(second.e1)};
    const std::size_t weights = in.e1 * second.e1;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] =
          static_cast<Scalar>(i < weights ? initialiser.weight(first + i, fan) : initialiser.bias(first + i, fan));
    }
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto hidden = static_cast<std::ptrdiff_t>(tile.in.e1);
    const auto features = static_cast<std::ptrdiff_t>(tile.in2.e1);
    multiply_positions<Tile, scalar>(tile, tile.lengths, static_cast<std::ptrdiff_t>(tile.in.e0),
                                     {.depth = hidden,
                                      .columns = features,
                                      .left = tile.x.first,
                                      .left_sample = tile.x.step,
                                      .left_row = hidden,
                                      .right = tile.transposed(0),
                                      .bias = tile.parameters + features * hidden,
                                      .out = tile.y.first,
                                      .out_sample = tile.y.step,
                                      .out_row = features});
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t count = tile.length(b) * features;
      if constexpr (drops) {
        dropout<Probability>::draw_mask(tile, b, static_cast<std::size_t>(count), tile.saved(b));
        scale_by(tile.y(b), tile.saved(b), count);
      }
      on_host::add_to(tile.y(b), tile.x2(b), count);
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto positions = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto hidden = static_cast<std::ptrdiff_t>(tile.in.e1);
    const auto features = static_cast<std::ptrdiff_t>(tile.in2.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      if (tile.wants_dx2) std::copy_n(tile.dy(b), positions * features, tile.dx2(b));
      if constexpr (drops) {
        const std::ptrdiff_t count = tile.length(b) * features;
        scale_by(tile.saved(b), tile.dy(b), count);
        std::fill(tile.saved(b) + count, tile.saved(b) + positions * features, scalar{0});
      }
    }
    if (!tile.wants_dx) return;
    multiply_positions<Tile, scalar>(tile, tile.lengths, positions,
                                     {.depth = features,
                                      .columns = hidden,
                                      .left = drops ? tile.saved.first : tile.dy.first,
                                      .left_sample = drops ? tile.saved.step : tile.dy.step,
                                      .left_row = features,
                                      .right = tile.parameters,
                                      .out = tile.dx.first,
                                      .out_sample = tile.dx.step,
                                      .out_row = hidden});
    clear_beyond(tile.dx, tile.samples, tile.lengths, positions, hidden);
  }

 private:
  template <class Scalar>
  static void scale_by(Scalar* values, const Scalar* factors, std::ptrdiff_t count) {
    on_host::for_each_vector<Scalar>(count, [&](std::ptrdiff_t i, const auto& lanes) {
      lanes.store(values + i, lanes.load(values + i) * lanes.load(factors + i));
    });
  }
};

/// What the options of a `transformer_encoder_layer` say, in any order.
template <class... Options>
struct transformer_options {
  using rate = std::ratio<0>;
  static constexpr bool norm_first = false;
  static constexpr bool with_gelu = false;
};
template <class... Rest>
struct transformer_options<pre_norm, Rest...> : transformer_options<Rest...> {
  static constexpr bool norm_first = true;
};
template <class... Rest>
struct transformer_options<gelu_activation, Rest...> : transformer_options<Rest...> {
  static constexpr bool with_gelu = true;
};
template <std::intmax_t Numerator, std::intmax_t Denominator, class... Rest>
struct transformer_options<dropout_rate<std::ratio<Numerator, Denominator>>, Rest...> : transformer_options<Rest...> {
  using rate = typename std::ratio<Numerator, Denominator>::type;
};
/// Stands where an option is none, and says so.
template <class Option>
struct no_such_option {
  [[nodiscard]] static constexpr mistake check(shape /*in*/) noexcept { return mistake::option_not_offered; }
};
template <class Unknown, class... Rest>
struct transformer_options<Unknown, Rest...> : transformer_options<Rest...> {
  using wrong = no_such_option<Unknown>;
};

template <std::size_t Heads, std::size_t FeedForward, class Options>
struct transformer_block {
  using rate = typename Options::rate;
  static constexpr bool drops = rate::num != 0;
  using drop = std::conditional_t<drops, sequential<dropout<rate>>, sequential<>>;
  using attention =
      std::conditional_t<drops, multihead_attention<Heads, attention_dropout<rate>>, multihead_attention<Heads>>;
  using activation = std::conditional_t<Options::with_gelu, gelu, relu>;
  // The norms' parameters come last. Nodes behind norm1, norm behind: hidden, activation, dropout, end; norm first:
  // attention, dropout, sum, norm2, hidden, activation, dropout, end.
  static constexpr std::size_t dropped = drops ? 1 : 0;
  using after =
      sequential<residual<attention, drop>, parameters_later<3 + dropped, layer_norm<>>,
                 merge<feed_forward_end<rate>, sequential<linear<FeedForward>, activation, drop>, sequential<>>,
                 layer_norm<>>;
  using before =
      sequential<residual<parameters_later<6 + 2 * dropped, layer_norm<>>, attention, drop>,
                 merge<feed_forward_end<rate>,
                       sequential<parameters_later<3 + dropped, layer_norm<>>, linear<FeedForward>, activation, drop>,
                       sequential<>>>;
  using type = std::conditional_t<Options::norm_first, before, after>;
};
template <std::size_t Heads, std::size_t FeedForward, class Options>
requires requires { typename Options::wrong; }
struct transformer_block<Heads, FeedForward, Options> {
  using type = sequential<typename Options::wrong>;
};

}  // namespace detail

/// `transformer_encoder_layer<Heads, FeedForward, Options...>` on `{positions, features}`, of any length each; keeps
/// the shape. Heads must divide the features; `FeedForward` is the width between the two linear layers. Options in any
/// order: `pre_norm`, `gelu_activation`, `dropout_rate<std::ratio<1, 10>>`. PyTorch: `nn.TransformerEncoderLayer(
/// features, Heads, FeedForward, dropout, batch_first=True)`; parameters in its order: those of the attention, linear1,
/// linear2, norm1, norm2.
template <std::size_t Heads, std::size_t FeedForward, class... Options>
struct transformer_encoder_layer {
  using unfolds_to =
      typename detail::transformer_block<Heads, FeedForward, detail::transformer_options<Options...>>::type;
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/transpose.hpp - exchanges the two axes of a sequence: (positions, features) and (channels, positions)

namespace pergrad::inline v0_1 {

/// y[j, i] = x[i, j]. Between layers that take (positions, features) and those that take (channels, positions), such as
/// `conv1d`. No value moves: both are the same sequence in memory. PyTorch: `x.transpose(1, 2)`.
struct transpose {
  static constexpr bool is_reshape = true;
  static constexpr bool is_transpose = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    shape out{in.e1, in.e0};
    out.set_varying_axis(in.varying_axis() == 0 ? 0 : 3 - in.varying_axis());
    return out;
  }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_two_axes;
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/upsample.hpp - every pixel several times (nearest neighbour): y[c, i, j] = x[c, floor(i / f), floor(j
// / g)]
//
// A window of one pixel that several outputs see; dx is the sum of what they get.

namespace pergrad::inline v0_1 {

/// `upsample<Factor>` on `{channels, positions}`, `{channels, height, width}` or `{channels, depth, height, width}`.
/// Factor: one number, or `extent{height, width}` or `extent{depth, height, width}`. PyTorch: `nn.Upsample` with
/// `scale_factor` and its default `mode='nearest'`.
template <extent Factor>
struct upsample : detail::mean_of_window {
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    const extent size = detail::image_size(in);
    return detail::image_shape(
        in.e0, {size.depth * Factor.depth, size.height * Factor.height, size.width * Factor.width}, in.rank() - 1);
  }
  [[nodiscard]] static constexpr window_range planes(shape in, std::size_t d) noexcept {
    return pixel(in.rank() < 4 ? 0 : d / Factor.depth);
  }
  [[nodiscard]] static constexpr window_range rows(shape /*in*/, std::size_t i) noexcept {
    return pixel(i / Factor.height);
  }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t j) noexcept {
    return pixel(in.rank() < 3 ? 0 : j / Factor.width);
  }
  [[nodiscard]] static constexpr std::size_t divisor(shape /*in*/, std::size_t /*d*/, std::size_t /*i*/,
                                                     std::size_t /*j*/) noexcept {
    return 1;
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (in.rank() < 2) return detail::mistake::needs_an_image;
    return detail::has_zero(Factor) ? detail::mistake::zero_is_no_size : detail::mistake::none;
  }

 private:
  [[nodiscard]] static constexpr window_range pixel(std::size_t number) noexcept { return {number, number + 1}; }
};

}  // namespace pergrad::inline v0_1
// pergrad/layers/with_state.hpp - a recurrent layer whose initial state is computed, or part of the record
//
// y = Recurrent(Sequence(x), State(x)). The gradient flows into both branches.

namespace pergrad::inline v0_1 {

/// The layers that make the sequence for `with_state`; none: the input itself.
template <class... Layers>
struct sequence {};
/// The layers that make the initial state for `with_state`.
template <class... Layers>
struct state {};

/// `with_state<lstm<Hidden, ...>, sequence<Layers...>, state<Layers...>>`: an `rnn`, `gru` or `lstm` that starts from a
/// given state: `{Hidden}` (h), for an `lstm` `{2 * Hidden}` (h, then c); with several layers or directions the h of
/// all of them, layer by layer and direction by direction as PyTorch's h_0, then their c. PyTorch: `nn.LSTM()(x, (h_0,
/// c_0))`. Parameters: the sequence's layers, the state's layers, the recurrent layer.
template <class Recurrent, class Sequence, class State>
struct with_state {};

namespace detail {

/// Of the states of `Total` one-direction layers, each `Kinds` times `Hidden` wide, those of layer `Index`.
template <std::size_t Hidden, std::size_t Kinds, std::size_t Index, std::size_t Total>
struct state_part {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return {Kinds * Hidden}; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    return in == shape{Total * Kinds * Hidden} ? mistake::none : mistake::rejects_input;
  }
  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      for (std::size_t i = 0; i < Kinds * Hidden; ++i) tile.y(b)[i] = tile.x(b)[place_of(i)];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      for (std::size_t i = 0; i < tile.in.size(); ++i) tile.dx(b)[i] = 0;
      for (std::size_t i = 0; i < Kinds * Hidden; ++i) tile.dx(b)[place_of(i)] = tile.dy(b)[i];
    }
  }

 private:
  [[nodiscard]] static constexpr std::size_t place_of(std::size_t i) noexcept {
    return (i / Hidden * Total + Index) * Hidden + i % Hidden;
  }
};

/// Appends the layers from `Index` on to a list whose last node but for those is layer Index - 1, or the branches.
/// `Sequence` and `State` are slots: 0 is the outside input, n + 1 the output of node n.
template <class Recurrent, class List, std::size_t Index, std::size_t Sequence, std::size_t State>
struct append_layers {
  static constexpr std::size_t next = List::size;
  static constexpr std::size_t count = Recurrent::layer_count;
  static constexpr std::size_t total = count * Recurrent::directions;
  template <std::size_t Which>
  using part = state_part<Recurrent::hidden, Recurrent::states, Which, total>;
  template <bool Reversed>
  using core = typename Recurrent::template core<Index, Reversed, true>;

  static constexpr auto nodes() {
    if constexpr (total == 1) {
      return node_list<node<core<false>, next + 1 - Sequence, next + 1 - State>>{};
    } else if constexpr (Recurrent::directions == 1) {
      return node_list<node<part<Index>, next + 1 - State>, node<core<false>, next + 2 - Sequence, 1>>{};
    } else {
      return node_list<node<part<2 * Index>, next + 1 - State>, node<core<false>, next + 2 - Sequence, 1>,
                       node<part<2 * Index + 1>, next + 3 - State>, node<core<true>, next + 4 - Sequence, 1>,
                       node<concatenate, 3, 1>>{};
    }
  }
  using here = typename join<List, decltype(nodes())>::type;
  static constexpr auto whole() {
    if constexpr (Index + 1 < count) {
      return typename append_layers<Recurrent, here, Index + 1, here::size, State>::type{};
    } else if constexpr (Recurrent::options.mean) {
      return typename join<here, node_list<node<mean_over_positions>>>::type{};
    } else {
      return here{};
    }
  }
  using type = decltype(whole());
};

template <class Recurrent, class... First, class... Second>
struct unfold<with_state<Recurrent, sequence<First...>, state<Second...>>> {
  using sequence_list = typename unfold<sequential<First...>>::type;
  using state_list = typename unfold<sequential<Second...>>::type;
  using branches = typename join<sequence_list, typename shift<state_list, sequence_list::size>::type>::type;
  using type = typename append_layers<Recurrent, branches, 0, sequence_list::size,
                                      (state_list::size == 0 ? 0 : branches::size)>::type;
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
// pergrad/losses/binary_cross_entropy.hpp - L = (1/n) sum_i [ max(y_i, 0) - y_i t_i + log(1 + e^{-|y_i|}) ];
// dL/dy_i = (sigmoid(y_i) - t_i) / n

namespace pergrad::inline v0_1 {

/// Binary targets in [0, 1], one a logit. PyTorch: `nn.BCEWithLogitsLoss(reduction="none")`, then the mean over a
/// sample's outputs. Stable for any logits.
struct binary_cross_entropy_with_logits {
  template <class Scalar>
  using target = Scalar;

  [[nodiscard]] static constexpr std::size_t target_count(shape output) noexcept { return output.size(); }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.size() > 0; }
  /// Every target lies in [0, 1].
  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const Scalar> targets) noexcept {
    for (const Scalar target : targets) {
      if (!(target >= 0 && target <= 1)) return false;
    }
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) noexcept {
    const auto count = static_cast<double>(y.size());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto logit = static_cast<double>(y[i]);
      const auto target = static_cast<double>(targets[i]);
      const double decay = std::exp(-std::fabs(logit));
      sum += (logit > 0 ? logit : 0.0) - logit * target + std::log1p(decay);
      dy[i] = static_cast<Scalar>(((logit >= 0 ? 1 / (1 + decay) : decay / (1 + decay)) - target) / count);
    }
    return sum / count;
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/losses/cross_entropy.hpp - softmax cross entropy of logits  L = log sum_j e^{y_j} - y_t;  dL/dy = softmax(y)
// - onehot(t)

namespace pergrad::inline v0_1 {

/// Classification on `{classes}` logits; a target is one class index. PyTorch: `nn.CrossEntropyLoss(reduction="none")`.
/// Stable for any logits: the largest is subtracted first.
struct cross_entropy {
  template <class Scalar>
  using target = std::int32_t;

  [[nodiscard]] static constexpr std::size_t target_count(shape /*output*/) noexcept { return 1; }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.rank() == 1; }
  /// Every target is a class: 0 <= target < classes.
  [[nodiscard]] static constexpr bool valid(shape output, std::span<const std::int32_t> targets) noexcept {
    for (const std::int32_t target : targets) {
      if (target < 0 || static_cast<std::size_t>(target) >= output.size()) return false;
    }
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) noexcept {
    const auto target = static_cast<std::size_t>(targets[0]);
    Scalar largest = y[0];
    for (const Scalar value : y) largest = value > largest ? value : largest;
    Scalar sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      dy[i] = std::exp(y[i] - largest);
      sum += dy[i];
    }
    for (Scalar& value : dy) value /= sum;
    dy[target] -= 1;
    return static_cast<double>(std::log(sum)) - static_cast<double>(y[target] - largest);
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/losses/mean_squared_error.hpp - L = (1/n) sum_i (y_i - t_i)^2 over a sample's n outputs;  dL/dy_i = (2/n)(y_i
// - t_i)

namespace pergrad::inline v0_1 {

/// Regression; a target has as many values as the output. PyTorch: `nn.MSELoss(reduction="none")`, then the mean over a
/// sample's outputs.
struct mean_squared_error {
  template <class Scalar>
  using target = Scalar;

  [[nodiscard]] static constexpr std::size_t target_count(shape output) noexcept { return output.size(); }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.size() > 0; }
  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const Scalar> /*targets*/) noexcept {
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) noexcept {
    const auto count = static_cast<double>(y.size());
    const double slope = 2 / count;
    constexpr std::size_t together = 16;  // sums that do not wait for each other; of fixed length, so they are vectors
    double sums[together]{};
    const std::size_t rest = y.size() % together;
    const std::size_t whole = y.size() - rest;
    for (std::size_t i = 0; i < whole; i += together) {
      double differences[together];
      Scalar slopes[together];
      for (std::size_t k = 0; k < together; ++k) {
        differences[k] = static_cast<double>(y[i + k]) - static_cast<double>(targets[i + k]);
      }
      for (std::size_t k = 0; k < together; ++k) sums[k] += differences[k] * differences[k];
      for (std::size_t k = 0; k < together; ++k) slopes[k] = static_cast<Scalar>(differences[k] * slope);
      for (std::size_t k = 0; k < together; ++k) dy[i + k] = slopes[k];
    }
    for (std::size_t k = 0; k < rest; ++k) {
      const double difference = static_cast<double>(y[whole + k]) - static_cast<double>(targets[whole + k]);
      sums[k] += difference * difference;
      dy[whole + k] = static_cast<Scalar>(difference * slope);
    }
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum / count;
  }
};

}  // namespace pergrad::inline v0_1
// pergrad/optim/adam.hpp - Adam (Kingma & Ba 2015, arXiv:1412.6980); on a noised gradient it is DP-Adam
//
//   m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;  w <- w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) +
//   stability)

// pergrad/optim/optimizer.hpp - what every optimizer takes: a noised gradient, or a plain one by a name that says so
//
// A step on a private gradient is post-processing: it can be anything. The divisor is a public constant that the user
// states, never the size of the batch that was drawn, which is a private value.

namespace pergrad::inline v0_1 {

struct optimizer_access {
  template <class Optimizer, class Network, class Scalar>
  static void apply(Optimizer& optimizer, const host& executor, Network& network, std::span<const Scalar> gradient,
                    double scale) {
    optimizer.apply(executor, network, gradient, scale);
  }
};

/// Base of the optimizers: the private step.
template <class Optimizer, class Network>
class optimizer_steps {
 public:
  /// One update with gradient / divisor. Only a noised gradient fits.
  void step(const host& executor, Network& network, const private_gradient<Network>& gradient,
            expected_batch_size divisor) {
    optimizer_access::apply(static_cast<Optimizer&>(*this), executor, network, gradient.values(), 1 / divisor.value());
  }
  template <class Gradient>
  void step(const host& /*executor*/, Network& /*network*/, const Gradient& /*gradient*/,
            expected_batch_size /*divisor*/) {
    if constexpr (!detail::is_explained<Gradient>) {
      static_cast<void>(error::private_step_needs_a_noised_sum<Gradient>{});
    }
  }
  template <class Gradient, class Number>
  requires std::is_arithmetic_v<Number>
  void step(const host& /*executor*/, Network& /*network*/, const Gradient& /*gradient*/, Number /*divisor*/) {
    static_cast<void>(error::plain_number<error::function::step, expected_batch_size, Number>{});
  }

 protected:
  optimizer_steps() = default;

  /// Calls f(first, count) for stretches of all parameters, on all threads.
  template <class Function>
  static void for_each_stretch(const host& executor, Function&& f) {
    constexpr std::size_t chunk = std::size_t{1} << 14U;
    constexpr std::size_t count = Network::parameter_count;
    executor.parallel((count + chunk - 1) / chunk,
                      [&](std::size_t task, std::size_t) { f(task * chunk, std::min(count - task * chunk, chunk)); });
  }
  /// Calls f(index) for every parameter, in stretches on all threads.
  template <class Function>
  static void for_each_parameter(const host& executor, Function&& f) {
    for_each_stretch(executor, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) f(i);
    });
  }
};

namespace unprotected {

/// One update with scale * gradient, for ordinary training: no privacy.
template <class Optimizer, class Network>
void step(Optimizer& optimizer, const host& executor, Network& network, const gradient<Network>& gradient,
          double scale = 1) {
  if constexpr (!detail::is_explained<Network>) {
    optimizer_access::apply(optimizer, executor, network, gradient.values(), scale);
  }
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// Adam's constants, with PyTorch's defaults.
struct adam_options {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double stability = 1e-8;
};

/// `torch.optim.Adam` without weight decay.
template <class Network>
class adam : public optimizer_steps<adam<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 <= beta < 1 and stability > 0.
  explicit adam(learning_rate rate, adam_options options = {})
      : rate_{rate.value()},
        options_{options},
        first_{Network::parameter_count, "an optimizer's first moment"},
        second_{Network::parameter_count, "an optimizer's second moment"} {
    const auto fraction = [](double beta) { return beta >= 0 && beta < 1; };
    if (!fraction(options.beta1) || !fraction(options.beta2) || !(options.stability > 0)) {
      throw std::invalid_argument("pergrad: adam: betas must be in [0, 1) and stability above 0");
    }
  }

 private:
  friend struct optimizer_access;
  void apply(const host& executor, Network& network, std::span<const scalar> gradient, double scale) {
    ++steps_;
    const auto count = static_cast<double>(steps_);
    const auto beta1 = static_cast<scalar>(options_.beta1);
    const auto beta2 = static_cast<scalar>(options_.beta2);
    const auto rest1 = static_cast<scalar>(1 - options_.beta1);  // in double: 1 - 0.999F is off by 1e-5
    const auto rest2 = static_cast<scalar>(1 - options_.beta2);
    const auto rate = static_cast<scalar>(rate_ / (1 - std::pow(options_.beta1, count)));
    const auto correction = static_cast<scalar>(1 / std::sqrt(1 - std::pow(options_.beta2, count)));
    const auto stability = static_cast<scalar>(options_.stability);
    const auto factor = static_cast<scalar>(scale);
    scalar* parameters = network.parameters().data();
    scalar* first = first_.data();
    scalar* second = second_.data();
    this->for_each_parameter(executor, [&](std::size_t i) {
      const scalar value = factor * gradient[i];
      first[i] = beta1 * first[i] + rest1 * value;
      second[i] = beta2 * second[i] + rest2 * value * value;
      parameters[i] -= rate * first[i] / (std::sqrt(second[i]) * correction + stability);
    });
  }

  double rate_;
  adam_options options_;
  detail::aligned_buffer<scalar> first_;
  detail::aligned_buffer<scalar> second_;
  std::uint64_t steps_ = 0;
};

}  // namespace pergrad::inline v0_1
// pergrad/optim/sgd.hpp - stochastic gradient descent  v <- momentum v + g;  w <- w - rate v      (torch.optim.SGD)

namespace pergrad::inline v0_1 {

/// Plain or heavy-ball SGD; with momentum 0 it keeps no state.
template <class Network>
class sgd : public optimizer_steps<sgd<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 <= momentum < 1.
  explicit sgd(learning_rate rate, double momentum = 0) : rate_{rate.value()}, momentum_{momentum} {
    if (!(momentum >= 0 && momentum < 1)) {
      throw std::invalid_argument("pergrad: sgd: momentum must be in [0, 1), got " + std::to_string(momentum));
    }
    if (momentum > 0) velocity_ = {Network::parameter_count, "an optimizer's velocity"};
  }

 private:
  friend struct optimizer_access;
  void apply(const host& executor, Network& network, std::span<const scalar> gradient, double scale) {
    scalar* parameters = network.parameters().data();
    const scalar* values = gradient.data();
    if (velocity_.size() == 0) {
      const auto step = static_cast<scalar>(rate_ * scale);
      this->for_each_stretch(executor, [&](std::size_t first, std::size_t count) {
        on_host::add_scaled_to(parameters + first, -step, values + first, static_cast<on_host::index>(count));
      });
      return;
    }
    scalar* velocity = velocity_.data();
    const auto momentum = static_cast<scalar>(momentum_);
    const auto rate = static_cast<scalar>(rate_);
    const auto factor = static_cast<scalar>(scale);
    this->for_each_parameter(executor, [&](std::size_t i) {
      velocity[i] = momentum * velocity[i] + factor * values[i];
      parameters[i] -= rate * velocity[i];
    });
  }

  double rate_;
  double momentum_;
  detail::aligned_buffer<scalar> velocity_;
};

}  // namespace pergrad::inline v0_1
// pergrad/privacy/budget.hpp - the guard that refuses the step which would exceed the privacy budget.
//
// A step is entered in the ledger before its noise is drawn, and only if the total including it keeps to the budget.
// The decision depends on public numbers alone (events and counts), never on data, so stopping leaks nothing.

#include <optional>

// pergrad/privacy/rdp_accountant.hpp - a ledger of sampled Gaussian steps and the (epsilon, delta) that it proves.
//
// The ledger holds events with whole counts. For each event its RDP curve over a fixed grid of orders is computed once;
// a query adds count * curve, takes the best order of the grid and refines it by golden section over real orders next
// to it. Any order gives a valid bound, so neither the grid nor where the search stops can make a result too small.
// Curves carry a margin of 1e-10 for rounding, a thousand times the error of the formulas in rdp.hpp.

// pergrad/privacy/rdp.hpp - Renyi differential privacy of the Poisson-sampled Gaussian, and its way to (epsilon,
// delta).
//
// Mironov, Talwar & Zhang 2019 (arXiv:1908.10530): with sampling probability q and noise multiplier s, one step has
//     RDP(a) = ln A(a) / (a - 1),   A(a) = E[(1 + x)^a],   x = q expm1(w),   w = u/s - 1/(2 s^2),   u ~ N(0, 1)
// for every real order a > 1, neighbours by adding or removing one record. Steps compose by addition at the same a.
// Since E[x] = 0, A - 1 = E[(1 + x)^a - 1 - a x], whose integrand is never negative (convexity), so nothing cancels:
// * real a: trapezoidal rule in u. The integrand is analytic in the strip |Im u| < pi s and decays like a Gaussian, so
//   step h = min(1/16, s/2) has error of order exp(-2 pi min(pi s, 2 pi / h) / h), below double precision.
// * whole a: A - 1 = sum_{k=2..a} binom(a, k) q^k (1 - q)^(a - k) expm1((k^2 - k) / (2 s^2)), all terms positive.
// * where the trapezoid would need too many points (tiny s), ln A of a fractional order is bounded from above by the
//   chord between its whole neighbours: ln A is convex in a (a cumulant generating function) and ln A(1) = 0.
//
// RDP to (epsilon, delta), Canonne, Kamath & Steinke 2020 (arXiv:2004.00010, proposition 12), Balle et al. 2019
// (arXiv:1905.09982, theorem 21):
//     epsilon = r + log1p(-1/a) - ln(delta a) / (a - 1),    delta = exp((a - 1)(r - epsilon + log1p(-1/a))) / a
// and, as a divergence of order a > 1 bounds Kullback-Leibler, delta <= sqrt(1 - exp(-r)) at epsilon = 0
// (Bretagnolle & Huber 1979). Every order gives a valid bound, hence so does the minimum over any set of orders.

// pergrad/privacy/sampling.hpp - Poisson sampling of records, and the accounting event that it and nothing else yields.
//
// Record r enters step s when its own 64-bit word of the stream (key, record_sampling, s) is below
// floor(q 2^64). The threshold is rounded down and the accountant is told threshold / 2^64, which a double holds
// exactly: q has 53 significant bits and rounding down only removes some. Draws are independent for each (step,
// record); nothing is derived from a shuffled order, for which this accounting would be wrong (Chua et al. 2024,
// arXiv:2403.17673).
//
// Records come in tiles of 128, a tile uses blocks 16 t ... 16 t + 15: record 128 t + 16 p + c takes words p (high) and
// 8 + p (low) of block 16 t + c, p = 0..7, c = 0..15, whatever the vector width.

namespace pergrad::inline v0_1 {

/// What one step of the Poisson-sampled Gaussian mechanism costs, for neighbours that differ by adding or removing one
/// record: sampling probability q and noise multiplier (noise standard deviation over L2 sensitivity).
struct sampled_gaussian_event {
  double sampling_probability;
  double noise_multiplier;

  friend constexpr bool operator==(const sampled_gaussian_event&, const sampled_gaussian_event&) noexcept = default;
};

/// Each record enters each batch with the same probability, independently of all others.
class poisson_sampling {
 public:
  explicit poisson_sampling(sampling_probability q) : everybody_{q.value() == 1.0} {
    if (!everybody_) threshold_ = static_cast<std::uint64_t>(std::ldexp(q.value(), 64));  // truncates: rounds down
  }

  /// Probability that really is used, at most 2^-64 below the one asked for.
  [[nodiscard]] pergrad::sampling_probability probability() const {
    return pergrad::sampling_probability{everybody_ ? 1.0 : std::ldexp(static_cast<double>(threshold_), -64)};
  }

  /// What one step with this sampling and `noise` costs.
  [[nodiscard]] sampled_gaussian_event event(pergrad::noise_multiplier noise) const {
    return {probability().value(), noise.value()};
  }

  /// Calls visit(record) for every sampled record in [0, record_count), ascending. `visit` may return false to stop;
  /// any other result is ignored. Throws std::out_of_range beyond 2^35 records.
  template <class Visitor>
  void for_each_record(const chacha_key& key, std::uint64_t step, std::uint64_t record_count, Visitor&& visit) const {
    detail::require_blocks("poisson_sampling", 0, 16 * (record_count / tile + (record_count % tile != 0 ? 1 : 0)));
    if (everybody_) {
      for (std::uint64_t record = 0; record < record_count; ++record) {
        if (!wants_more(visit, record)) return;
      }
      return;
    }
    if (threshold_ == 0) return;
    const chacha_nonce nonce = make_nonce(random_purpose::record_sampling, step);
    std::uint32_t chosen[tile];
    for (std::uint64_t first = 0; first < record_count; first += tile) {
      choose_tile<detail::native_lanes>(key, nonce, first / tile, chosen);
      const std::uint64_t count = std::min(tile, record_count - first);
      for (std::uint64_t i = 0; i < count; ++i) {
        if (chosen[i] != 0 && !wants_more(visit, first + i)) return;
      }
    }
  }

  /// Writes the sampled records, ascending, to the front of `records` and returns how many there are. Throws
  /// std::length_error when they do not fit: dropping some would falsify the accounting.
  [[nodiscard]] std::size_t sample(const chacha_key& key, std::uint64_t step, std::uint32_t record_count,
                                   std::span<std::uint32_t> records) const {
    std::size_t count = 0;
    for_each_record(key, step, record_count, [&](std::uint64_t record) {
      if (count == records.size()) {
        throw std::length_error("pergrad: poisson_sampling: more than " + std::to_string(records.size()) +
                                " records were sampled and all must be used");
      }
      records[count++] = static_cast<std::uint32_t>(record);
    });
    return count;
  }

 private:
  static constexpr std::uint64_t tile = 128;

  template <class Visitor>
  [[gnu::always_inline]] static bool wants_more(Visitor& visit, std::uint64_t record) {
    if constexpr (std::is_same_v<std::invoke_result_t<Visitor&, std::uint64_t>, bool>) {
      return visit(record);
    } else {
      visit(record);
      return true;
    }
  }

  /// chosen[i] becomes non-zero when record 128 tile + i is sampled.
  template <int Lanes>
  void choose_tile(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t number,
                   std::uint32_t (&chosen)[tile]) const noexcept {
    using u32 = typename detail::lanes<Lanes>::u32;
    const auto threshold_high = static_cast<std::uint32_t>(threshold_ >> 32U);
    const auto threshold_low = static_cast<std::uint32_t>(threshold_ & 0xffff'ffffU);
    for (std::size_t column = 0; column < 16; column += static_cast<std::size_t>(Lanes)) {
      u32 words[16];
      detail::chacha_lanes<Lanes>(
          key, nonce, detail::lane_numbers<Lanes>() + static_cast<std::uint32_t>(16 * number + column), words);
      for (std::size_t row = 0; row < 8; ++row) {
        const auto below =
            (words[row] < threshold_high) | ((words[row] == threshold_high) & (words[8 + row] < threshold_low));
        std::memcpy(chosen + 16 * row + column, &below, sizeof below);
      }
    }
  }

  std::uint64_t threshold_ = 0;
  bool everybody_ = false;
};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

namespace detail {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// ln sum_i exp(x_i), term by term.
class log_sum {
 public:
  void add(double x) noexcept {
    if (x <= largest_) {
      scaled_ += std::exp(x - largest_);
    } else {
      scaled_ = scaled_ * std::exp(largest_ - x) + 1.0;
      largest_ = x;
    }
  }
  [[nodiscard]] double value() const noexcept { return scaled_ > 0 ? largest_ + std::log(scaled_) : -infinity; }

 private:
  double largest_ = -std::numeric_limits<double>::max();
  double scaled_ = 0;
};

/// ln(1 + exp(y)) for any y.
[[nodiscard]] inline double log1p_exp(double y) noexcept { return y > 40 ? y + std::exp(-y) : std::log1p(std::exp(y)); }

/// ln(exp(y) - 1) for y > 0.
[[nodiscard]] inline double log_expm1(double y) noexcept {
  return y > 1 ? y + std::log1p(-std::exp(-y)) : std::log(std::expm1(y));
}

/// ln A(order) for a whole order >= 1; 0 < q < 1, s > 0.
[[nodiscard]] inline double sampled_gaussian_log_moment_whole(double q, double s, std::uint64_t order) {
  const double log_q = std::log(q);
  const double log_rest = std::log1p(-q);
  const auto a = static_cast<double>(order);
  double log_binomial = 0;  // ln binom(order, k), summed with compensation
  double lost = 0;
  log_sum sum;
  for (std::uint64_t whole = 1; whole <= order; ++whole) {
    const auto k = static_cast<double>(whole);
    const double term = std::log((a - k + 1) / k) - lost;
    const double next = log_binomial + term;
    lost = (next - log_binomial) - term;
    log_binomial = next;
    if (whole >= 2) sum.add(log_binomial + k * log_q + (a - k) * log_rest + log_expm1(k * (k - 1) / (2 * s * s)));
  }
  return log1p_exp(sum.value());
}

/// ln A(a) by the trapezoidal rule for real a > 1; 0 < q < 1, s > 0.
[[nodiscard]] inline double sampled_gaussian_log_moment_real(double q, double s, double a) {
  const double log_q = std::log(q);
  const double log_rest = std::log1p(-q);
  const double log_a = std::log(a);
  const double step = std::min(1.0 / 16, s / 2);
  const double reach = std::max(a, 2.0);
  double binomials[14];
  binomials[0] = 1;
  for (int k = 1; k < 14; ++k) binomials[k] = binomials[k - 1] * (a - k + 1) / k;

  double plain = 0;  // sum of exp(-u^2/2) g(x) where g needs no logarithm
  log_sum large;
  const auto points = static_cast<std::int64_t>(std::ceil((39 + a / s) / step));
  for (auto at = static_cast<std::int64_t>(-std::ceil(39 / step)); at <= points; ++at) {
    const double u = static_cast<double>(at) * step;
    const double w = u / s - 1 / (2 * s * s);
    const double x = w < 700 ? q * std::expm1(w) : std::exp(log_q + w);
    if (std::abs(x) * reach < 1e-2) {
      double series = 0;
      for (int k = 13; k >= 2; --k) series = series * x + binomials[k];
      plain += std::exp(-u * u / 2) * series * x * x;
      continue;
    }
    const double log_ratio = w < 30 ? std::log1p(x) : log_rest + log1p_exp(log_q + w - log_rest);  // ln(1 + x)
    const double y = a * log_ratio;
    if (y < 30) {
      plain += std::exp(-u * u / 2) * (std::expm1(y) - a * x);
      continue;
    }
    // (1 + x)^a - (1 + a x) with 1 + a x = a (1 + x) - (a - 1), relative to (1 + x)^a
    const double subtracted = std::exp(log_a + log_ratio - y) - (a - 1) * std::exp(-y);
    large.add(y + std::log1p(-subtracted) - u * u / 2);
  }
  if (plain > 0) large.add(std::log(plain));
  constexpr double log_sqrt_two_pi = 0.91893853320467274178;
  return log1p_exp(large.value() + std::log(step) - log_sqrt_two_pi);
}

inline constexpr double most_trapezoid_points = 200'000;

/// ln A(a), or a bound from above where the trapezoid would be too long; 0 < q < 1, s > 0.
[[nodiscard]] inline double sampled_gaussian_log_moment(double q, double s, double a) {
  const double below = std::floor(a);
  if (below == a && a <= 1e6) return sampled_gaussian_log_moment_whole(q, s, static_cast<std::uint64_t>(a));
  if ((78 + a / s) / std::min(1.0 / 16, s / 2) <= most_trapezoid_points) {
    return sampled_gaussian_log_moment_real(q, s, a);
  }
  if (a > 1e6) return infinity;
  const auto whole = static_cast<std::uint64_t>(below);
  const double lower = sampled_gaussian_log_moment_whole(q, s, whole);
  const double upper = sampled_gaussian_log_moment_whole(q, s, whole + 1);
  return lower + (a - below) * (upper - lower);
}

inline void require_event(const sampled_gaussian_event& event) {
  if (!sampling_probability::holds(event.sampling_probability)) {
    throw_bad_number("sampling_probability of an event", sampling_probability::need, event.sampling_probability);
  }
  if (!noise_multiplier::holds(event.noise_multiplier)) {
    throw_bad_number("noise_multiplier of an event", noise_multiplier::need, event.noise_multiplier);
  }
}

}  // namespace detail

/// RDP of one step at a real order > 1. Infinity without noise, 0 without sampling. Relative error about 1e-13; for
/// noise multipliers so small (below about 0.03) that the quadrature would be long, an upper bound between whole
/// orders. Throws std::invalid_argument on an order that is not above 1 and on an event that is none.
[[nodiscard]] inline double renyi_divergence(const sampled_gaussian_event& event, double order) {
  detail::require_event(event);
  if (!(order > 1 && order < detail::infinity)) detail::throw_bad_number("Renyi order", "finite and above 1", order);
  const double q = event.sampling_probability;
  const double s = event.noise_multiplier;
  if (q == 0) return 0;
  if (2 * s * s == 0) return detail::infinity;
  if (q == 1) return order / (2 * s * s);
  const double log_moment = detail::sampled_gaussian_log_moment(q, s, order);
  if (!(log_moment >= 0)) {  // cannot happen; a NaN must not pass for a small loss
    throw std::runtime_error("pergrad: renyi_divergence: no result at order " + std::to_string(order));
  }
  return log_moment / (order - 1);
}

/// Smallest epsilon that (order, rdp) proves for `at`, never negative.
[[nodiscard]] inline double epsilon_from_rdp(double order, double rdp, pergrad::delta at) {
  if (!(rdp >= 0) || !(order > 1)) {
    detail::throw_bad_number("RDP", "not negative at an order above 1", rdp >= 0 ? order : rdp);
  }
  const double d = at.value();
  if (d * d + std::expm1(-rdp) >= 0) return 0;
  return std::max(0.0, rdp + std::log1p(-1 / order) - std::log(d * order) / (order - 1));
}

/// Smallest delta that (order, rdp) proves for `at`, at most 1.
[[nodiscard]] inline double delta_from_rdp(double order, double rdp, pergrad::epsilon at) {
  if (!(rdp >= 0) || !(order > 1)) {
    detail::throw_bad_number("RDP", "not negative at an order above 1", rdp >= 0 ? order : rdp);
  }
  if (rdp == 0 || at.value() == detail::infinity) return 0;
  const double kullback_leibler = std::sqrt(-std::expm1(-rdp));
  const double converted = std::exp((order - 1) * (rdp - at.value() + std::log1p(-1 / order)) - std::log(order));
  return std::min({1.0, kullback_leibler, converted});
}

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// Accountant by Renyi differential privacy, for neighbours by adding or removing one record.
class rdp_accountant {
 public:
  /// So many steps of one kind.
  struct entry {
    sampled_gaussian_event event;
    std::uint64_t count;
  };

  /// Computes the event's curve (some milliseconds) and reserves its place, so that later calls with this event are
  /// cheap and allocate nothing. Throws std::invalid_argument on an event that is none.
  void prepare(const sampled_gaussian_event& event) { static_cast<void>(place_of(event)); }

  /// Enters `count` steps. Throws std::overflow_error when the number of steps does not fit 64 bits.
  void record(const sampled_gaussian_event& event, std::uint64_t count = 1) {
    if (count > std::numeric_limits<std::uint64_t>::max() - steps_) {
      throw std::overflow_error("pergrad: rdp_accountant: the number of steps exceeds 64 bits");
    }
    ledger_[place_of(event)].count += count;
    steps_ += count;
  }

  /// Number of steps entered.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  /// What was entered, one entry for each kind of event (prepared ones may have count 0).
  [[nodiscard]] std::span<const entry> ledger() const noexcept { return ledger_; }

  /// Smallest epsilon that this accountant can prove for `at`; infinity when a step had no noise.
  [[nodiscard]] double epsilon(pergrad::delta at) const {
    return best([&](double order, double rdp) { return epsilon_from_rdp(order, rdp, at); }, total_curve(), nullptr);
  }

  /// Smallest delta that this accountant can prove for `at`.
  [[nodiscard]] double delta_for(pergrad::epsilon at) const {
    return best([&](double order, double rdp) { return delta_from_rdp(order, rdp, at); }, total_curve(), nullptr);
  }

  /// Epsilon if `count` more steps of `event` were entered. Does not change the ledger.
  [[nodiscard]] double epsilon_after(const sampled_gaussian_event& event, std::uint64_t count,
                                     pergrad::delta at) const {
    const entry more{event, count};
    curve total = total_curve();
    add_to(total, more);
    return best([&](double order, double rdp) { return epsilon_from_rdp(order, rdp, at); }, total, &more);
  }

  /// Whether `count` more steps of `event` would cost more than the budget. Microseconds for a prepared event, unless
  /// the total is within a fraction of a percent of the budget, where orders are refined (milliseconds).
  [[nodiscard]] bool would_exceed(const privacy_budget& budget, const sampled_gaussian_event& event,
                                  std::uint64_t count = 1) const {
    return order_within(budget, {event, count}) == 0;
  }

  /// Enters `count` steps unless they would cost more than the budget; returns whether it did. Remembers the order that
  /// proved it when that was none of the grid, so that a run nearing its budget seldom has to refine orders again.
  [[nodiscard]] bool record_within(const privacy_budget& budget, const sampled_gaussian_event& event,
                                   std::uint64_t count = 1) {
    prepare(event);
    const double order = order_within(budget, {event, count});
    if (order == 0) return false;
    record(event, count);
    if (order != remembered_ && !std::binary_search(orders().begin(), orders().end(), order)) {
      remembered_ = order;
      for (std::size_t place = 0; place < ledger_.size(); ++place) {
        curves_[place][order_count] = renyi_divergence(ledger_[place].event, order) * margin;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t order_count = 128;
  static constexpr std::size_t most_refined_events = 32;  // a ledger of more kinds answers from the grid alone
  static constexpr double margin = 1 + 1e-10;
  using grid = std::array<double, order_count>;
  using curve = std::array<double, order_count + 1>;  // RDP on the grid, then at the remembered order (else 0)

  /// Orders with order - 1 in geometric progression from 0.01 to 4000; whole from 11 on, where that is fine enough and
  /// the closed form is fast.
  [[nodiscard]] static const grid& orders() {
    static const grid all = [] {
      grid made{};
      for (std::size_t i = 0; i < order_count; ++i) {
        const double order =
            1 + 0.01 * std::exp(std::log(4e5) * static_cast<double>(i) / static_cast<double>(order_count - 1));
        made[i] = order < 11 ? order : std::round(order);
      }
      return made;
    }();
    return all;
  }

  [[nodiscard]] curve curve_of(const sampled_gaussian_event& event) const {
    curve made{};
    for (std::size_t i = 0; i < order_count; ++i) made[i] = renyi_divergence(event, orders()[i]) * margin;
    if (remembered_ != 0) made[order_count] = renyi_divergence(event, remembered_) * margin;
    return made;
  }

  [[nodiscard]] std::size_t find(const sampled_gaussian_event& event) const noexcept {
    std::size_t place = 0;
    while (place < ledger_.size() && ledger_[place].event != event) ++place;
    return place;
  }

  std::size_t place_of(const sampled_gaussian_event& event) {
    const std::size_t place = find(event);
    if (place == ledger_.size()) {
      const curve made = curve_of(event);
      curves_.reserve(curves_.size() + 1);
      ledger_.push_back({event, 0});
      curves_.push_back(made);
    }
    return place;
  }

  void add_to(curve& total, const entry& more) const {
    if (more.count == 0) return;  // 0 * infinity would not be a number
    const std::size_t place = find(more.event);
    const curve made = place < ledger_.size() ? curves_[place] : curve_of(more.event);
    for (std::size_t i = 0; i <= order_count; ++i) total[i] += static_cast<double>(more.count) * made[i];
  }

  [[nodiscard]] curve total_curve() const {
    curve total{};
    for (std::size_t place = 0; place < ledger_.size(); ++place) {
      if (ledger_[place].count == 0) continue;
      const auto count = static_cast<double>(ledger_[place].count);
      for (std::size_t i = 0; i <= order_count; ++i) total[i] += count * curves_[place][i];
    }
    return total;
  }

  /// An order that proves that the ledger and `more` keep to the budget, 0 if there is none.
  [[nodiscard]] double order_within(const privacy_budget& budget, const entry& more) const {
    curve total = total_curve();
    add_to(total, more);
    const auto keeps = [&](double order, double rdp) {
      return epsilon_from_rdp(order, rdp, budget.delta) <= budget.max_epsilon.value();
    };
    if (remembered_ != 0 && keeps(remembered_, total[order_count])) return remembered_;
    for (std::size_t i = 0; i < order_count; ++i) {
      if (keeps(orders()[i], total[i])) return orders()[i];
    }
    double order = 0;
    const auto value = [&](double at, double rdp) { return epsilon_from_rdp(at, rdp, budget.delta); };
    return best(value, total, &more, &order) <= budget.max_epsilon.value() ? order : 0;
  }

  /// Total RDP at any order, of the ledger and `more` (which may be null).
  [[nodiscard]] double total_at(double order, const entry* more) const {
    double total = 0;
    for (const entry& each : ledger_) {
      if (each.count != 0) total += static_cast<double>(each.count) * renyi_divergence(each.event, order) * margin;
    }
    if (more != nullptr && more->count != 0) {
      total += static_cast<double>(more->count) * renyi_divergence(more->event, order) * margin;
    }
    return total;
  }

  /// Smallest value(order, RDP at order) over the grid, then over real orders around the best one.
  template <class Value>
  [[nodiscard]] double best(const Value& value, const curve& total, const entry* more,
                            double* best_order = nullptr) const {
    double least = detail::infinity;
    std::size_t at = 0;
    for (std::size_t i = 0; i < order_count; ++i) {
      const double here = value(orders()[i], total[i]);
      if (here < least) {
        least = here;
        at = i;
      }
    }
    if (best_order != nullptr) *best_order = orders()[at];
    if (remembered_ != 0) {
      const double here = value(remembered_, total[order_count]);
      if (here < least) {
        least = here;
        if (best_order != nullptr) *best_order = remembered_;
      }
    }
    if (!(least > 0 && least < detail::infinity) || ledger_.size() > most_refined_events) return least;
    const auto probe = [&](double log_excess) {
      const double order = 1 + std::exp(log_excess);
      const double here = value(order, total_at(order, more));
      if (here < least) {
        least = here;
        if (best_order != nullptr) *best_order = order;
      }
      return here;
    };
    constexpr double golden = 0.61803398874989484820;
    double low = std::log(orders()[at == 0 ? 0 : at - 1] - 1);
    double high = std::log(orders()[std::min(at + 1, order_count - 1)] - 1);
    double left = high - golden * (high - low);
    double right = low + golden * (high - low);
    double at_left = probe(left);
    double at_right = probe(right);
    while (high - low > 2e-5) {  // the minimum is quadratic: the value is then right to about 1e-10
      if (at_left <= at_right) {
        high = right;
        right = left;
        at_right = at_left;
        left = high - golden * (high - low);
        at_left = probe(left);
      } else {
        low = left;
        left = right;
        at_left = at_right;
        right = low + golden * (high - low);
        at_right = probe(right);
      }
    }
    return least;
  }

  std::vector<entry> ledger_;
  std::vector<curve> curves_;
  std::uint64_t steps_ = 0;
  double remembered_ = 0;
};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1 {

/// Thrown instead of taking a step that would exceed the budget.
class budget_exhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An accountant with an optional budget.
class privacy_accountant {
 public:
  privacy_accountant() = default;
  explicit privacy_accountant(std::optional<privacy_budget> budget) : budget_{budget} {}

  /// Makes later calls with this event cheap and free of allocation.
  void prepare(const sampled_gaussian_event& event) { accountant_.prepare(event); }

  /// Whether one more step of this kind keeps to the budget; always true without one.
  [[nodiscard]] bool within(const sampled_gaussian_event& event) const {
    return !budget_ || !accountant_.would_exceed(*budget_, event);
  }

  /// Enters one step. Throws budget_exhausted, entering nothing, when it would exceed the budget.
  void spend(const sampled_gaussian_event& event) {
    if (!budget_) {
      accountant_.record(event);
    } else if (!accountant_.record_within(*budget_, event)) {
      refuse();
    }
  }

  [[nodiscard]] const std::optional<privacy_budget>& budget() const noexcept { return budget_; }
  [[nodiscard]] const rdp_accountant& accountant() const noexcept { return accountant_; }
  [[nodiscard]] double epsilon(pergrad::delta at) const { return accountant_.epsilon(at); }
  [[nodiscard]] std::uint64_t steps() const noexcept { return accountant_.steps(); }

 private:
  [[noreturn]] void refuse() const {
    char text[160];
    std::snprintf(
        text, sizeof text, "pergrad: privacy budget exhausted: step %llu would exceed epsilon %.6g at delta %.6g",
        static_cast<unsigned long long>(accountant_.steps() + 1), budget_->max_epsilon.value(), budget_->delta.value());
    throw budget_exhausted{text};
  }

  std::optional<privacy_budget> budget_;
  rdp_accountant accountant_;
};

}  // namespace pergrad::inline v0_1
// pergrad/privacy/calibrate.hpp - the noise, or the number of steps, that keeps to a target (epsilon, delta).
//
// Epsilon falls with the noise multiplier and rises with the number of steps. Bisection keeps a bracket whose safe end
// was evaluated by the very accountant that will guard the run, and returns that end: never a value that overshoots.

namespace pergrad::inline v0_1 {

namespace detail {

[[nodiscard]] inline double epsilon_of_run(const sampled_gaussian_event& event, std::uint64_t steps,
                                           pergrad::delta at) {
  rdp_accountant accountant;
  accountant.record(event, steps);
  return accountant.epsilon(at);
}

}  // namespace detail

/// Smallest noise multiplier (to 1e-8, rounded to the safe side) with which `steps` Poisson-sampled steps stay within
/// (target, at) according to rdp_accountant; 0 when nothing is ever released (no steps or no sampling) or target is
/// infinite. Throws std::invalid_argument when no noise multiplier up to 2^30 is enough.
[[nodiscard]] inline noise_multiplier calibrate_noise(epsilon target, delta at, sampling_probability q,
                                                      std::uint64_t steps) {
  if (q.value() == 0 || steps == 0 || target.value() == detail::infinity) return noise_multiplier{0};
  // ln(epsilon / target): not positive exactly when s is safe.
  const auto excess = [&](double s) {
    const double spent = detail::epsilon_of_run({q.value(), s}, steps, at);
    if (spent <= target.value()) return spent > 0 ? std::log(spent / target.value()) : -1.0;
    return target.value() > 0 ? std::log(spent / target.value()) : 1.0;
  };
  constexpr double most = 1 << 30;
  constexpr double least = 1.0 / (1 << 10);
  constexpr double tolerance = 1e-8;
  double high = 1;
  double at_high = excess(high);
  while (!(at_high <= 0)) {
    high *= 2;
    if (high > most) {
      char text[128];
      std::snprintf(text, sizeof text,
                    "pergrad: calibrate_noise: no noise multiplier up to 2^30 gives epsilon %.6g in %llu steps",
                    target.value(), static_cast<unsigned long long>(steps));
      throw std::invalid_argument(text);
    }
    at_high = excess(high);
  }
  double low = high / 2;
  double at_low = excess(low);
  while (at_low <= 0) {
    high = low;
    at_high = at_low;
    if (high <= least) return noise_multiplier{high};
    low /= 2;
    at_low = excess(low);
  }
  // Regula falsi with the Illinois weights; half a tolerance away from either end, so that the bracket always closes.
  double weight_low = at_low;
  double weight_high = at_high;
  bool high_moved = false;
  bool low_moved = false;
  while (high - low > tolerance * high) {
    const double share = weight_low < detail::infinity ? weight_low / (weight_low - weight_high) : 0.5;
    const double inset = tolerance * high / 2;
    const double middle = std::clamp(low + share * (high - low), low + inset, high - inset);
    const double at_middle = excess(middle);
    if (at_middle <= 0) {
      high = middle;
      weight_high = at_middle;
      if (high_moved) weight_low /= 2;
    } else {
      low = middle;
      weight_low = at_middle;
      if (low_moved) weight_high /= 2;
    }
    high_moved = at_middle <= 0;
    low_moved = !high_moved;
  }
  return noise_multiplier{high};
}

/// Largest number of steps that stays within (target, at) according to rdp_accountant; 0 when one step is too much.
/// Throws std::invalid_argument when 2^62 steps do not exhaust the target (no sampling, infinite target).
[[nodiscard]] inline std::uint64_t max_steps(epsilon target, delta at, sampling_probability q, noise_multiplier noise) {
  const sampled_gaussian_event event{q.value(), noise.value()};
  rdp_accountant accountant;
  accountant.prepare(event);
  const privacy_budget budget{target, at};
  const auto keeps = [&](std::uint64_t steps) { return !accountant.would_exceed(budget, event, steps); };
  if (!keeps(1)) return 0;
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  std::uint64_t safe = 1;
  while (keeps(2 * safe)) {
    safe *= 2;
    if (safe >= most) throw std::invalid_argument("pergrad: max_steps: no number of steps exhausts this target");
  }
  std::uint64_t unsafe = 2 * safe;
  while (unsafe - safe > 1) {
    const std::uint64_t middle = safe + (unsafe - safe) / 2;
    (keeps(middle) ? safe : unsafe) = middle;
  }
  return safe;
}

}  // namespace pergrad::inline v0_1
// pergrad/train/checkpoint.hpp - parameters to and from a file: NumPy's .npy format, PyTorch's order
//
// `numpy.load(path)` gives the flat vector of `torch.nn.utils.parameters_to_vector`. Keys and generator states are
// never written: who has them can subtract the noise.

namespace pergrad::inline v0_1 {

namespace detail {

template <class Scalar>
[[nodiscard]] std::string npy_header(std::size_t count) {
  std::string dictionary = std::string{"{'descr': '"} + (sizeof(Scalar) == 4 ? "<f4" : "<f8") +
                           "', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }";
  constexpr std::size_t preamble = 10;
  dictionary.append(63 - (preamble + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  const auto size = static_cast<std::uint16_t>(dictionary.size());
  std::string header{"\x93NUMPY\x01\x00", 8};
  header += static_cast<char>(size & 0xFFU);
  header += static_cast<char>(size >> 8U);
  return header + dictionary;
}

}  // namespace detail

/// Writes all parameters, frozen ones last. The file appears whole or not at all. Throws std::runtime_error naming the
/// file.
template <class Network>
void save_parameters(const Network& network, const std::string& path) {
  using scalar = typename Network::scalar;
  const std::string unfinished = path + ".unfinished";
  {
    std::ofstream file{unfinished, std::ios::binary};
    const std::string header = detail::npy_header<scalar>(network.all_parameters().size());
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    const std::span<const scalar> values = network.all_parameters();
    std::vector<char> bytes(values.size_bytes());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.flush();
    if (!file) {
      static_cast<void>(std::remove(unfinished.c_str()));
      throw std::runtime_error("pergrad: " + path + ": cannot be written");
    }
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    static_cast<void>(std::remove(unfinished.c_str()));
    throw std::runtime_error("pergrad: " + path + ": cannot be put in place");
  }
}

/// Reads all parameters; the network is unchanged if anything is wrong. Throws std::runtime_error that says what and
/// where.
template <class Network>
void load_parameters(Network& network, const std::string& path) {
  using scalar = typename Network::scalar;
  std::ifstream file{path, std::ios::binary};
  if (!file) throw std::runtime_error("pergrad: " + path + ": cannot be opened");
  const std::span<scalar> values = network.all_parameters();
  constexpr std::size_t longest_header = 10 + 0xFFFF;
  std::vector<char> bytes(longest_header + values.size_bytes() + 1);  // one more than any right file has
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.bad()) throw std::runtime_error("pergrad: " + path + ": cannot be read");
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY\x01\x00", 8) != 0) {
    throw std::runtime_error("pergrad: " + path + ": not a .npy file of version 1.0");
  }
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const std::size_t start = 10 + byte(8) + 256 * byte(9);
  const std::string dictionary{bytes.data() + 10, std::min(bytes.size(), start) - 10};
  const std::string type = sizeof(scalar) == 4 ? "'<f4'" : "'<f8'";
  const std::string extent = "(" + std::to_string(values.size()) + ",)";
  if (dictionary.find("'descr': " + type) == std::string::npos || dictionary.find(extent) == std::string::npos ||
      dictionary.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error("pergrad: " + path + ": expected an array of type " + type + " and shape " + extent +
                             ", found " + dictionary.substr(0, dictionary.find_last_of('}') + 1));
  }
  const std::size_t found = bytes.size() - std::min(bytes.size(), start);
  if (found != values.size_bytes()) {
    throw std::runtime_error("pergrad: " + path + ": expected " + std::to_string(values.size_bytes()) +
                             " bytes of values at byte " + std::to_string(start) + ", found " +
                             (found > values.size_bytes() ? "more" : std::to_string(found)));
  }
  std::memcpy(values.data(), bytes.data() + start, values.size_bytes());
}

}  // namespace pergrad::inline v0_1
// pergrad/train/classifier.hpp - accuracy and loss of a classifier on public data

namespace pergrad::inline v0_1 {

/// Result of `evaluate_classifier`.
struct classifier_result {
  double accuracy = 0;   ///< fraction of records whose largest logit is their class
  double mean_loss = 0;  ///< mean cross entropy
};

/// Runs a network forward over a whole data set. For PUBLIC data: on training data both numbers are private values.
/// Throws std::invalid_argument if the records do not fit the network. An empty data set gives zeros.
template <class Network>
requires(!detail::is_explained<Network>) [[nodiscard]] classifier_result
    evaluate_classifier(const host& executor, const Network& network,
                        const dataset<typename Network::input_value, std::int32_t>& records) {
  using scalar = typename Network::scalar;
  constexpr std::size_t classes = Network::output_shape.size();
  constexpr std::size_t chunk = 1024;
  tape<Network> tape{executor, max_batch{chunk}};
  std::vector<std::uint32_t> ids;
  std::vector<scalar> logits;
  std::vector<double> chunk_losses;
  std::size_t right = 0;
  double loss = 0;
  for (std::size_t first = 0; first < records.size(); first += chunk) {
    const std::size_t count = std::min(chunk, records.size() - first);
    ids.resize(count);
    for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::uint32_t>(first + i);
    logits.resize(count * classes);
    chunk_losses.resize(count);
    const batch<Network, cross_entropy> samples{records, ids};
    const auto gradients = per_sample_gradients(network, cross_entropy{}, samples, tape);
    unprotected::evaluate_into(executor, assign(logits, outputs(gradients)), assign(chunk_losses, losses(gradients)));
    for (std::size_t i = 0; i < count; ++i) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(i * classes);
      const auto largest = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(classes)) - begin;
      right += largest == records.targets(first + i)[0] ? 1U : 0U;
      loss += chunk_losses[i];
    }
  }
  const double total = static_cast<double>(std::max<std::size_t>(1, records.size()));
  return {static_cast<double>(right) / total, loss / total};
}
/// Of a network that is explained to be wrong.
template <class Network, class Records>
requires(detail::is_explained<Network>) [[nodiscard]] classifier_result
    evaluate_classifier(const host& /*executor*/, const Network& /*network*/, const Records& /*records*/) {
  return {};
}

}  // namespace pergrad::inline v0_1
// pergrad/train/dp_sgd.hpp - differentially private training in which sampling, clipping, noise and accounting cannot
// part
//
// One step (Abadi et al. 2016, arXiv:1607.00133): enter the step in the ledger or refuse it; draw every record with
// probability q; add up clipped per-sample gradients in chunks that fit the tape; add noise once, also to an empty
// batch; divide by the public constant; update. The ledger counts the event that this very sampler yields.

#include <variant>

namespace pergrad::inline v0_1 {

/// How the noised gradient becomes an update.
enum class optimizer_kind { sgd, adam };
/// What bounds a sample's share.
enum class clipping_kind { flat, per_layer, automatic, per_group };

/// Options of `dp_sgd`. Those without a default must be set; the trainer's constructor names the first that is not.
struct dp_sgd_options {
  std::optional<l2_clip_norm> clip;            ///< C, the most that one record can add to a sum; not for per_group
  std::optional<noise_multiplier> noise;       ///< sigma; the noise's standard deviation is sigma times sensitivity
  std::optional<poisson_sampling> sampling;    ///< how records enter a batch, and what that costs
  std::optional<expected_batch_size> divisor;  ///< a public constant, never the drawn size
  std::optional<pergrad::learning_rate> learning_rate;
  clipping_kind clipping = clipping_kind::flat;
  std::vector<l2_clip_norm> group_bounds{};  ///< of per_group, in the place of `clip`: one C_k a clipping group
  optimizer_kind optimizer = optimizer_kind::sgd;
  double momentum = 0;                   ///< of sgd
  adam_options adam{};                   ///< of adam
  pergrad::max_batch max_batch{256};     ///< records a chunk; changes memory and rounding, not privacy
  std::optional<privacy_budget> budget;  ///< steps beyond it are refused
  bool private_metrics = false;          ///< keep losses and norms of the last step, for `unprotected::metrics`
};

/// Private values of one step: for debugging, never for release.
struct step_metrics {
  std::size_t batch_size = 0;
  double mean_loss = 0;        ///< over the batch; NaN if it was empty
  double mean_norm = 0;        ///< of the unclipped gradients that are finite
  std::size_t clipped = 0;     ///< samples whose norm is above C; of per_group, above sqrt(sum C_k²)
  std::size_t non_finite = 0;  ///< samples that were left out
};

template <class Network, class Loss, random_generator Generator>
class dp_sgd;
namespace unprotected {
template <class Network, class Loss, class Generator>
[[nodiscard]] const step_metrics& metrics(const dp_sgd<Network, Loss, Generator>& trainer);
}  // namespace unprotected

/// The training loop of one network. Refers to the executor and the network, owns everything else; a step allocates
/// nothing.
template <class Network, class Loss, random_generator Generator = os_keyed_generator>
class dp_sgd {
 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;
  /// Whether the noise's key is secret: false for a seeded generator, whose runs protect nobody.
  static constexpr bool is_private = Generator::is_private;

  /// Throws std::invalid_argument naming an option that is missing, out of range or not for this kind of clipping.
  dp_sgd(const host& executor, Network& network, Loss loss, const dp_sgd_options& options,
         Generator generator = Generator{})
      : executor_{&executor},
        network_{&network},
        loss_{loss},
        options_{checked(options)},
        generator_{std::move(generator)},
        tape_{executor, options.max_batch},
        total_{executor},
        update_{executor},
        optimizer_{make_optimizer(options)},
        accountant_{options.budget},
        event_{options.sampling->event(*options.noise)} {
    records_.reserve(options.max_batch.count);
    if (options.private_metrics) {
      losses_.resize(options.max_batch.count);
      norms_.resize(options.max_batch.count);
    }
    clip_norm_ = options.clip ? options.clip->value() : sensitivity();
    const double deviation = options.noise->value() * sensitivity();
    if (!(deviation <= static_cast<double>(std::numeric_limits<scalar>::max()))) {
      throw std::invalid_argument("pergrad: dp_sgd: noise times clip does not fit the network's scalar, got " +
                                  std::to_string(deviation));
    }
    accountant_.prepare(event_);
  }

  /// Would one more step keep to the budget? Always true without one.
  [[nodiscard]] bool within_budget() const { return accountant_.within(event_); }

  /// One logical step on the whole data set. Throws budget_exhausted if it would exceed the budget,
  /// std::invalid_argument for records that do not fit the network or the loss (all are looked at, drawn or not: which
  /// ones are drawn is private); nothing is changed then.
  void step(const dataset<input_value, target>& records) {
    require_fit(records);
    accountant_.spend(event_);
    metrics_ = {};
    total_is_empty_ = true;
    records_.clear();
    const std::uint64_t sampling_step = generator_.next_step();
    randomness_ = {&generator_.key(), sampling_step};
    options_.sampling->for_each_record(generator_.key(), sampling_step, records.size(), [&](std::uint64_t record) {
      records_.push_back(static_cast<std::uint32_t>(record));
      if (records_.size() == options_.max_batch.count) add_chunk(records);
    });
    add_chunk(records);
    if (total_is_empty_) total_.clear(sensitivity());
    if (options_.private_metrics) {
      metrics_.mean_loss = metrics_.batch_size == 0 ? std::numeric_limits<double>::quiet_NaN()
                                                    : metrics_.mean_loss / static_cast<double>(metrics_.batch_size);
    }
    evaluate_into(*executor_, update_, total_ + gaussian_noise(*options_.noise, generator_));
    std::visit([&](auto& optimizer) { optimizer.step(*executor_, *network_, update_, *options_.divisor); }, optimizer_);
  }

  /// Steps taken, each with its noise.
  [[nodiscard]] std::uint64_t steps() const noexcept { return accountant_.steps(); }
  /// Privacy spent so far at `delta`, for neighbours that differ by adding or removing one record.
  [[nodiscard]] double epsilon(pergrad::delta delta) const { return accountant_.epsilon(delta); }
  [[nodiscard]] const privacy_accountant& accountant() const noexcept { return accountant_; }
  [[nodiscard]] const dp_sgd_options& options() const noexcept { return options_; }
  /// The noised gradient of the last step, before division: released.
  [[nodiscard]] const private_gradient<Network>& last_update() const noexcept { return update_; }

 private:
  friend const step_metrics& unprotected::metrics<Network, Loss, Generator>(const dp_sgd& trainer);

  [[nodiscard]] static const dp_sgd_options& checked(const dp_sgd_options& options) {
    const auto require = [](bool given, const char* name) {
      if (!given) throw std::invalid_argument(std::string{"pergrad: dp_sgd: the option "} + name + " is not set");
    };
    const auto refuse = [](const std::string& what) { throw std::invalid_argument("pergrad: dp_sgd: " + what); };
    if (options.clipping == clipping_kind::per_group) {
      constexpr std::size_t groups = detail::clipping_groups<Network>;
      if (options.clip) refuse("the option clip is not for clipping per group: group_bounds are its bounds");
      require(!options.group_bounds.empty(), "group_bounds");
      if (options.group_bounds.size() != groups) {
        refuse("the option group_bounds has " + std::to_string(options.group_bounds.size()) +
               " bounds, the network has " + std::to_string(groups) + " clipping groups");
      }
    } else {
      require(options.clip.has_value(), "clip");
      if (!options.group_bounds.empty()) refuse("the option group_bounds is for clipping_kind::per_group only");
    }
    require(options.noise.has_value(), "noise");
    require(options.sampling.has_value(), "sampling");
    require(options.divisor.has_value(), "divisor");
    require(options.learning_rate.has_value(), "learning_rate");
    if (options.max_batch.count == 0) refuse("max_batch must be at least 1");
    return options;
  }
  static void require_fit(const dataset<input_value, target>& records) {
    constexpr std::size_t target_count = Loss::target_count(Network::output_shape);
    const auto refuse = [](const std::string& what) { throw std::invalid_argument("pergrad: dp_sgd: " + what); };
    if (records.size() > std::numeric_limits<std::uint32_t>::max()) refuse("more than 2^32 - 1 records");
    detail::require_fit<Network>(records, "dp_sgd");
    if (records.targets().size() != records.size() * target_count) {
      refuse(std::to_string(records.targets().size()) + " targets for " + std::to_string(records.size()) +
             " records, the loss takes " + std::to_string(target_count) + " a record");
    }
    for (std::size_t record = 0; record < records.size(); ++record) {
      if (!Loss::valid(Network::output_shape, records.targets(record))) {
        refuse("record " + std::to_string(record) + " has a target that the loss does not take");
      }
    }
  }
  using any_optimizer = std::variant<sgd<Network>, adam<Network>>;
  [[nodiscard]] static any_optimizer make_optimizer(const dp_sgd_options& options) {
    if (options.optimizer == optimizer_kind::adam) return adam<Network>{*options.learning_rate, options.adam};
    return sgd<Network>{*options.learning_rate, options.momentum};
  }

  template <class Function>
  auto with_clipped(const per_sample_gradient_leaf<Network, Loss>& gradients, Function&& f) const {
    switch (options_.clipping) {
      case clipping_kind::per_layer:
        return f(sum(clip_per_layer(gradients, *options_.clip)));
      case clipping_kind::automatic:
        return f(sum(normalise(gradients, *options_.clip)));
      case clipping_kind::per_group:
        if constexpr (detail::clipping_groups < Network >> 1) {
          return f(sum(clip_per_group(gradients, options_.group_bounds)));
        } else {
          return f(sum(clip(gradients, options_.group_bounds.front())));  // one group is the whole
        }
      default:
        return f(sum(clip(gradients, *options_.clip)));
    }
  }
  [[nodiscard]] double sensitivity() {
    const std::vector<std::uint32_t> nobody;
    const dataset<input_value, target> no_records{
        {}, {}, Network::input_shape, Loss::target_count(Network::output_shape)};
    const batch<Network, Loss> empty{no_records, nobody};
    return with_clipped(per_sample_gradients(*network_, loss_, empty, tape_),
                        [](const auto& sum) { return sum.sensitivity(); });
  }

  void add_chunk(const dataset<input_value, target>& records) {
    if (records_.empty()) return;
    const batch<Network, Loss> chunk{records, records_};
    const auto gradients_of_chunk = per_sample_gradients(*network_, loss_, chunk, tape_).with(randomness_);
    with_clipped(gradients_of_chunk, [&](const auto& sum) {
      const auto grow = [&] { return total_is_empty_ ? assign(total_, sum) : accumulate(total_, sum); };
      if (!options_.private_metrics) {
        evaluate_into(*executor_, grow());
        return;
      }
      const auto gradients = sum.leaf();
      const std::span<double> chunk_losses{losses_.data(), chunk.size()};
      const std::span<double> chunk_norms{norms_.data(), chunk.size()};
      unprotected::evaluate_into(*executor_, grow(), assign(chunk_losses, losses(gradients)),
                                 assign(chunk_norms, l2_norms(gradients)));
      note(chunk_losses, chunk_norms);
    });
    total_is_empty_ = false;
    records_.clear();
  }
  void note(std::span<const double> chunk_losses, std::span<const double> chunk_norms) {
    for (std::size_t i = 0; i < chunk_losses.size(); ++i) {
      const double finite_before = static_cast<double>(metrics_.batch_size - metrics_.non_finite);
      ++metrics_.batch_size;
      metrics_.mean_loss += chunk_losses[i];
      if (!is_finite_norm<scalar>(chunk_norms[i])) {
        ++metrics_.non_finite;
        continue;
      }
      metrics_.mean_norm += (chunk_norms[i] - metrics_.mean_norm) / (finite_before + 1);
      if (chunk_norms[i] > clip_norm_) ++metrics_.clipped;
    }
  }

  const host* executor_;
  Network* network_;
  [[no_unique_address]] Loss loss_;
  dp_sgd_options options_;
  Generator generator_;
  tape<Network> tape_;
  bounded_total<Network> total_;
  bool total_is_empty_ = true;  ///< no chunk of this step is in it: its values are those of the step before
  private_gradient<Network> update_;
  any_optimizer optimizer_;
  privacy_accountant accountant_;
  sampled_gaussian_event event_;
  double clip_norm_ = 0;  ///< above it, a norm counts as clipped
  layer_randomness randomness_;
  std::vector<std::uint32_t> records_;
  std::vector<double> losses_;
  std::vector<double> norms_;
  step_metrics metrics_;
};

/// Of a network or a loss that is explained to be wrong.
template <class Network, class Loss, random_generator Generator>
requires detail::cannot_be_trained<Network, Loss>
class dp_sgd<Network, Loss, Generator> : public error::stand_in<typename Network::scalar> {
  static_assert(sizeof(detail::loss_explanation<Network, Loss>) != 0);
  static_assert(sizeof(typename error::explanation_of<Network>::type) != 0);

 public:
  static constexpr bool is_private = Generator::is_private;
  template <class Any>
  dp_sgd(const host&, Any&&, Loss, const dp_sgd_options&) noexcept {}
  template <class Any>
  dp_sgd(const host&, Any&&, Loss, const dp_sgd_options&, const Generator&) noexcept {}
  step_metrics metrics_;  // NOLINT(readability-identifier-naming): named as in the trainer it stands in for
};

template <class Network, class Loss>
dp_sgd(const host&, Network&, Loss, const dp_sgd_options&) -> dp_sgd<Network, Loss, os_keyed_generator>;
template <class Network, class Loss, random_generator Generator>
dp_sgd(const host&, Network&, Loss, const dp_sgd_options&, Generator) -> dp_sgd<Network, Loss, Generator>;

/// The trainer refers to the network: a temporary one is an error that says so.
template <class Network, class Loss>
dp_sgd(const host&, const Network&&, Loss, const dp_sgd_options&)
    -> dp_sgd<error::wrong_network<error::temporary_operand<Network>, typename Network::scalar>, Loss,
              os_keyed_generator>;

namespace unprotected {

/// Private values of the trainer's last step; all zero unless its options ask for `private_metrics`.
template <class Network, class Loss, class Generator>
[[nodiscard]] const step_metrics& metrics(const dp_sgd<Network, Loss, Generator>& trainer) {
  return trainer.metrics_;
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
// pergrad/version.hpp - the version of the library; the build reads it from here and from nowhere else.

#define PERGRAD_VERSION_MAJOR 0
#define PERGRAD_VERSION_MINOR 1
#define PERGRAD_VERSION_PATCH 0

namespace pergrad::inline v0_1 {

/// The version as text, "major.minor.patch", for reports.
inline constexpr std::string_view version = "0.1.0";

}  // namespace pergrad::inline v0_1

#endif  // PERGRAD_SINGLE_HEADER_INCLUDED
