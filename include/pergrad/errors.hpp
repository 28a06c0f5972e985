// SPDX-License-Identifier: Apache-2.0
// pergrad/errors.hpp - every compile-time message of the library, in one room
//
// One class template per mistake: its arguments are the facts, its body is the sentence. A gate (graph/gate.hpp) makes
// sure that only the first mistake of a network is explained, and stand-ins (graph/stand_ins.hpp) take the place of
// what is wrong, so that the compiler prints one error and not its consequences. Each class has a program in
// tests/compile_fail.
#pragma once

#include <cstddef>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::error {

/// Position of a layer in its network's list, counted from 0; a nested layer has the index of the outermost one.
template <std::size_t Index>
struct at_layer {};
/// The layer that is wrong.
template <class Layer>
struct layer_type {};
/// The shape that the layer gets: `gets<of_shape<1, 28, 28>>`.
template <class Shape>
struct gets {};
template <shape Given>
using gets_shape = gets<detail::shape_name<Given>>;
/// A number of parameters or of positions.
template <std::size_t Count>
struct count {};
/// A list of entries of a network.
template <std::size_t... Index>
struct entries {};

/// Names of the functions that messages speak of.
namespace function {
// clang-format off
struct clip; struct clip_per_layer; struct clip_per_group; struct normalise; struct sum; struct mean; struct divided_by;
struct gaussian_noise; struct step; struct assign; struct accumulate; struct evaluate; struct evaluate_into;
struct dp_sgd; struct private_loop; struct evaluate_classifier; struct confuse; struct predict; struct generate;
// clang-format on
}  // namespace function

template <class...>
inline constexpr bool never = false;

template <class Explanation, class Scalar>
struct wrong_network;
/// Base of what is said of a network: what takes its place.
struct instead_of_network {
  template <class Scalar>
  using network = wrong_network<instead_of_network, Scalar>;
};

// clang-format off
template <class Where, class Layer, class Given> struct no_output_shape : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer needs: static constexpr pergrad::shape output_shape(pergrad::shape in); pergrad::projection is no layer but the last entry of a pergrad::residual; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct no_parameter_count : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer needs: static constexpr std::size_t parameter_count(pergrad::shape in); see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct no_forward : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer needs: template <class S> static void forward(pergrad::shape in, std::span<const S> parameters, std::span<const S> x, std::span<S> y); see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct no_backward : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer needs: template <class S> static void backward(pergrad::shape in, std::span<const S> parameters, std::span<const S> x, std::span<const S> backprop, std::span<S> dx); see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct no_factors : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer with parameters needs: static constexpr auto factors(pergrad::shape in) that returns pergrad::list_factors(...), one factor a parameter block; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class FactorsCover, class ParametersAre> struct factors_do_not_cover_the_parameters : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the sizes of a layer's factors must add up to its parameter_count; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct factor_reads_outside_the_tape : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a factor's operand must lie inside the values it is taken from (input, output, backprop or saved); see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct factor_reads_ids : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a factor computes with numbers, and this layer's input is integer ids: a table's gradient is a pergrad::row_sum, and what else is made of ids goes through the saved span; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct matrices_lie_outside_the_parameters : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "matrices(in) are at most 4, and each of them must lie among the layer's parameters: offset + rows * columns is at most parameter_count; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct affine_map_does_not_fit : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "affine(in) does not fit the layer's shapes: in_channels and in_size must be those of the input, out_channels and out_size those of the output (the other way round with adjoint), where a vector is one pixel and a sequence {positions, features}, or {channels, positions} with channels_first; groups divide the channels, and out_size is at most the windows that there are; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct output_length_too_long : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "output_length(in, length) must not be more than the positions that output_shape(in) has, for any length from 0 on; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct stored_order_of_two_inputs : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer with stored_order has one input: a team does not say how a second one is stored; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct mixes_samples : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer mixes the samples of a batch, so a per-sample gradient does not exist; use a per-sample normalisation such as group_norm; see docs/privacy.md"); return 0; }
};
template <class Where, class Layer, class Given> struct needs_an_image : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer needs an input of shape {channels, height, width}; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct needs_channels_and_positions : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer needs an input of shape {channels, positions}: put pergrad::transpose before it if the sequence is {positions, features}; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct needs_a_volume : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer needs an input of shape {channels, depth, height, width}; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct needs_two_axes : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "pergrad::transpose exchanges two axes, so it needs an input of shape {positions, features} or {channels, positions}; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct reshape_changes_size : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "pergrad::reshape keeps every value, so its shape must have as many as the input; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct output_padding_too_large : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "output_padding must be smaller than the stride or the dilation along its axis; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct needs_features : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a linear layer needs an input of shape {features} or {positions, features}: put pergrad::flatten before it; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct kernel_larger_than_padded_input : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the kernel (with its dilation) is larger than the padded input: no window fits; see docs/networks.md"); return 0; }
};
template <class Where, class Layer, class Given> struct groups_do_not_divide_channels : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "groups must divide both the input's and the output's channels; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct padding_larger_than_half_the_window : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a pool's padding must be at most half its window, or a window could lie in the padding alone; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct zero_is_no_size : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "channels, kernel, stride, dilation, groups and output sizes must be at least 1; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct option_not_offered : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer does not take one of the options given to it; see its header and docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct adapters_of_rank_zero : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "lora_on: the rank is 0, and adapters of rank 0 train nothing: take one from 1 on, as in lora_on<8, ...>; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct adapters_on_no_projection : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "lora_on names no projection, so there would be no adapters: give it names behind the rank, which docs/layers.md lists"); return 0; }
};
template <class Where, class Layer, class Given> struct no_such_projection : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "lora_on: no projection of this network has one of these names; docs/layers.md lists those that it has"); return 0; }
};
template <class Where, class Layer, class Given> struct fewer_blocks_than_trained : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "last_blocks: this network has fewer blocks than are to be trained; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct no_derivative : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer with value(x) needs its slope: template <class Value> static Value derivative(Value x, Value y), with y = value(x); see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct layer_of_two_kinds : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer says once what it computes: by value(x) and derivative(x, y), by affine(shape), or by forward and backward; this one says it twice: make helpers of these names private, or rename them; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct softmax_is_in_the_loss : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the loss takes the softmax: leave it out, end the network in pergrad::linear<classes> and train with pergrad::cross_entropy; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct activation_not_offered : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this activation is not here: take pergrad::relu, leaky_relu, elu, tanh, sigmoid, softplus, gelu or silu, or write a struct with value(x) and derivative(x, y); see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct layer_of_pytorch_not_offered : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer of PyTorch is not here: the table says which are (pergrad::dropout<p>, max_pool2d<kernel>, adaptive_avg_pool2d<height, width>, group_norm<groups>, reshape<shape>, padding<size> of a convolution), and a layer of your own is one struct; see docs/layers.md and docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct probability_out_of_range : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the probability of dropout is at least 0 and below 1: pergrad::dropout<0.1>; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct layer_rejects_its_input : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer does not take an input of this shape; see docs/layers.md, and docs/custom_layers.md for a layer with accepts(shape)"); return 0; }
};
template <class Where, class Layer, class Given> struct layer_gives_no_output : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the layer's output_shape(shape) has no values for this input; see docs/networks.md"); return 0; }
};
template <class Where, class Branch, class Shortcut> struct residual_branches_differ : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "both branches of a residual must end in the same shape; give the shortcut a pergrad::projection<...>; see docs/networks.md"); return 0; }
};
template <class Where, class Layer, class Given> struct element_function_changes_shape : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer with value() and derivative() works element by element, so it keeps its input's shape; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct ids_into_a_float_layer : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer computes with numbers, its input is integer ids: put pergrad::embedding<features> before it; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct needs_ids : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "an embedding looks up integer ids: begin the network with pergrad::token_ids(positions, vocabulary); see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct needs_a_sequence : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "this layer needs an input of shape {positions, features}; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct tied_blocks_differ : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "all uses of one pergrad::tied key must be of the same layers with the same number of parameters, all frozen or none; an embedding<width> without padding_idx and a linear<vocabulary, no_bias> behind {positions, width} count as the same; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct ties_nest : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a pergrad::tied stands inside another one, and a block can share its parameters under one key only: tie the parts, not the whole; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct branches_differ_in_length : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "samples here have lengths of their own, and of some lengths the two branches that are put together leave different numbers of positions: give both the same kernels, strides and padding; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct branches_not_given : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "pergrad::cross_attention takes the number of heads, pergrad::queries<layers...>, pergrad::memory<layers...> and then its options, in this order; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct lengths_are_lost : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "samples here have lengths of their own, and this layer does not say what becomes of positions beyond them: reduce with pergrad::mean_over_positions or pergrad::select_last first; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct not_on_tiles : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "a layer with on_tiles needs: template <class Tile> static void forward(const Tile& tile), the same for backward, output_shape, and parameter_count if it has parameters; see docs/custom_layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct heads_do_not_divide_features : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the number of attention heads must divide the number of features; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct key_value_heads_do_not_divide_heads : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the number of key-value heads must divide the number of attention heads; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class Given> struct rotary_heads_of_odd_width : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "rotary positions turn pairs of features, so the width of a head (features / heads) must be even; see docs/layers.md"); return 0; }
};
template <class Where, class Layer, class First, class Second> struct branches_do_not_fit : instead_of_network {
  static constexpr int say() { static_assert(never<Where>, "the two inputs of this layer do not fit each other; see docs/layers.md"); return 0; }
};
template <class Network> struct empty_network : instead_of_network {
  static constexpr int say() { static_assert(never<Network>, "a network needs an input shape and at least one layer: pergrad::network<pergrad::shape{1, 28, 28}, pergrad::flatten, pergrad::linear<10>>; see docs/networks.md"); return 0; }
};
template <class Input> struct not_a_shape : instead_of_network {
  static constexpr int say() { static_assert(never<Input>, "every extent of the input's shape must be at least 1; see docs/networks.md"); return 0; }
};
template <class Input> struct variable_needs_positions : instead_of_network {
  static constexpr int say() { static_assert(never<Input>, "pergrad::variable is for {positions, features} and for pergrad::token_ids: records of other shapes have no positions of which some may lack; see docs/layers.md"); return 0; }
};
template <class Loss, class Output> struct loss_rejects_the_networks_output {
  static_assert(never<Loss>, "this loss does not fit the network's output shape: end the network in pergrad::flatten and pergrad::linear<outputs>, or take another loss: at every position of {positions, classes}, pergrad::token_cross_entropy<>; where samples have lengths of their own, positions come first in the output (pergrad::transpose); see docs/networks.md");
};
template <class Loss> struct not_a_loss {
  static_assert(never<Loss>, "a loss needs: template target<S>, target_count(shape), accepts(shape), valid(shape, targets) and evaluate(y, targets, dy), which returns one double a sample; see docs/custom_layers.md");
};
template <class Loss> struct loss_of_pytorch_not_offered {
  static_assert(never<Loss>, "this loss of PyTorch is not here under this name: pergrad::cross_entropy takes logits and class numbers, pergrad::binary_cross_entropy_with_logits logits and targets in [0, 1], pergrad::mean_squared_error numbers; another one is a struct of your own; see docs/networks.md and docs/custom_layers.md");
};
template <class Network, class Loss, class Batch> struct batch_does_not_fit {
  static_assert(never<Network>, "the batch must be made for this network and this loss: pergrad::batch<net_type, loss_type> samples{inputs, targets}; see docs/expressions.md");
};
template <class... Given> struct batch_of_no_network {
  static_assert(never<Given...>, "a batch is one of a network and a loss: pergrad::batch<net_type, pergrad::cross_entropy> samples{inputs, targets}; see docs/expressions.md");
};
template <class Needed, class Given> struct records_of_another_type {
  static_assert(never<Given>, "the network and the loss take other numbers than these records have: the network's scalar or std::int32_t ids as inputs, the loss's targets (class numbers are std::int32_t): convert them before; see docs/quickstart.md");
};
template <class Network> struct network_is_const {
  static_assert(never<Network>, "training changes the network: declare it without const; see docs/quickstart.md");
};
template <class Scalar> struct scalar_not_offered {
  static_assert(never<Scalar>, "a network computes in float or double, for which the bound of a clipped norm is proven; see docs/networks.md");
};
template <class Given> struct not_a_network {
  static_assert(never<Given>, "this is no pergrad::network: of a pointer to one, pass what it points to, *net; see docs/quickstart.md");
};
template <class... Given> struct step_draws_from_all_records {
  static_assert(never<Given...>, "a private step draws its batch itself: pass all records, a pergrad::dataset, not a batch of them: trainer.step(records); see docs/quickstart.md");
};
template <class... Given> struct optimizer_of_no_network {
  static_assert(never<Given...>, "an optimizer names its network's type, and takes a learning rate: pergrad::sgd<net_type> optimizer{pergrad::learning_rate{0.1}}; see docs/expressions.md");
};
template <class Network> struct network_is_not_called {
  static_assert(never<Network>, "a network is no function, an executor evaluates it: pergrad::predict(exec, net, pergrad::public_records{inputs}); see docs/expressions.md");
};
template <class Function, class... Given> struct not_made_of_this {
  static_assert(never<Function>, "a trainer is made of an executor, a network, a loss, options and perhaps a generator: pergrad::dp_sgd trainer{exec, net, pergrad::cross_entropy{}, options}; see docs/quickstart.md");
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
template <class What> struct temporary_destination {
  static_assert(never<What>, "what is computed would be lost with this temporary: give the destination a name and pass the name, or pass a std::span of it; see docs/expressions.md");
};
template <class Function, class... Given> struct cannot_be_clipped {
  static_assert(never<Function>, "only per-sample gradients can be clipped, once, and with a bound that says so: clip(g, pergrad::l2_clip_norm{1.0}); sum them afterwards; see docs/expressions.md");
};
template <class Function, class... Given> struct cannot_be_summed {
  static_assert(never<Function>, "sum takes per-sample gradients, clipped or not, and mean takes unclipped ones: sum(clip(g, pergrad::l2_clip_norm{1.0})), sum(g), mean(g); a mean of clipped ones is their sum divided by a public pergrad::expected_batch_size; see docs/expressions.md");
};
template <class Function, class... Given> struct has_no_meaning {
  static_assert(never<Function>, "this composition of per-sample gradient expressions has no meaning; see the table in docs/expressions.md");
};
template <class Inputs, class Targets, class Given> struct numbers_of_another_type {
  static_assert(never<Given>, "samples are contiguous arrays of numbers of exactly these types, first the inputs, then the targets (class numbers are std::int32_t): convert them before; see docs/quickstart.md");
};
template <class Destination, class Needed, class Expression> struct destination_does_not_fit {
  static_assert(never<Destination>, "a destination is a std::vector or std::span of the result's type: double for one number a sample and for gram, the network's type for sums, gradients and outputs; see docs/expressions.md");
};
template <class Count> struct count_as_divisor {
  static_assert(never<Count>, "how many records were drawn is a private value, and no divisor: write a public constant, pergrad::expected_batch_size{64}, or static_cast<double>(n) of a count that is public; see docs/privacy.md");
};
template <class Estimate> struct estimate_as_bound {
  static_assert(never<Estimate>, "an estimate proves nothing, and no budget takes it: bounds are epsilon(delta) of a privacy_accountant, a pld_accountant or an rdp_accountant; see docs/privacy.md");
};
template <class Array> struct temporary_array {
  static_assert(never<Array>, "a data set and a batch are views, and this array is gone when they are read: give it a name and pass the name; see docs/quickstart.md");
};
template <class Function, class Needed, class Given> struct plain_number {
  static_assert(never<Function>, "a plain number does not say what it stands for: write pergrad::l2_clip_norm{1.0}, pergrad::noise_multiplier{1.1} or pergrad::expected_batch_size{64}; see docs/privacy.md");
};
template <class Needed, class Given> struct option_of_another_type {
  static_assert(never<Given>, "an option says what its number stands for: clip = pergrad::l2_clip_norm{1.0}, noise = pergrad::noise_multiplier{1.1}, sampling = pergrad::poisson_sampling{pergrad::sampling_probability{0.01}}, divisor = pergrad::expected_batch_size{256}, learning_rate = pergrad::learning_rate{0.1}, budget = pergrad::privacy_budget{pergrad::epsilon{3.0}, pergrad::delta{1e-5}}; see docs/quickstart.md");
};
template <class Needed, class Given> struct option_of_another_sampler {
  static_assert(never<Given>, "these options are another sampler's, and a ledger counts one sampler's events: name it in their type, pergrad::dp_options<pergrad::fixed_size_sampling> options, or pergrad::loop_options<...> of a private_loop; see docs/privacy.md");
};
template <class Needed, class Given> struct event_of_another_sampler {
  static_assert(never<Given>, "this ledger counts the events of another sampler, whose neighbours or batches are others: pergrad::basic_privacy_accountant<Sampling::event_type> is one of this sampler's; see docs/privacy.md");
};
template <class Sampling> struct loop_draws_records {
  static_assert(never<Sampling>, "a private_loop shows the gradients of single records: owners and views of records are for pergrad::dp_sgd with pergrad::dp_options<pergrad::of_owners<...>>; see docs/privacy.md");
};
template <class Layer> struct layer_has_no_device_code {
  static_assert(never<Layer>, "this layer has no device code: mark its functions PERGRAD_HD (those of a general layer as templates over the type of the views, in the place of std::span; those of a layer on tiles in the words of a team) and say: static constexpr bool on_device = true; see docs/custom_layers.md");
};
template <class Loss> struct loss_has_no_device_code {
  static_assert(never<Loss>, "this loss has no device code: it needs PERGRAD_HD static double evaluate(const S* y, std::size_t count, const target<S>* targets, S* dy) and static constexpr bool on_device = true; see docs/custom_layers.md");
};
template <class Noise, class Sampling> struct correlated_noise_needs_a_promise {
  static_assert(never<Sampling>, "correlated noise needs a sampler that promises how often, and how far apart, a record takes part: pergrad::cyclic_poisson_sampling or pergrad::min_separation_sampling; see docs/privacy.md");
};
template <class Executor> struct correlated_noise_on_a_device {
  static_assert(never<Executor>, "correlated noise is on the host only: make the trainer with a pergrad::host; see docs/privacy.md");
};
template <class Function, class First> struct needs_an_executor {
  static_assert(never<Function>, "whatever computes names its executor first: pergrad::host exec; evaluate_into(exec, destination, expression); pergrad::dp_sgd trainer{exec, net, loss, options}; see docs/expressions.md");
};
template <class Layer> struct layer_without_a_bound {
  static_assert(never<Layer>, "nothing bounds this layer: a layer of your own says element_bounds or bounds(node_bounds), an augmentation bounds(node_bounds); or take one of the library's in its place, which all have a bound; see docs/sensitivity.md");
};
template <class Loss> struct loss_without_a_bound {
  static_assert(never<Loss>, "this loss's gradient has no bound for all targets: take huber in the place of mean_squared_error, cross entropy or focal for classes; a loss of your own says gradient_bound(output); see docs/sensitivity.md");
};
template <class Gradients, class... Proof> struct unclipped_without_a_proof {
  static_assert(never<Gradients>, "unclipped takes per-sample gradients and a proof for the same network and loss: unclipped(g, pergrad::certified_bound{net, loss}), with pergrad/certify.hpp; see docs/sensitivity.md");
};
template <class Sum> struct noise_on_an_unclipped_sum {
  static_assert(never<Sum>, "noise protects only a sum of bounded sensitivity: write sum(clip(g, pergrad::l2_clip_norm{1.0})) + gaussian_noise(...); see docs/privacy.md");
};
template <class Given> struct total_needs_a_clipped_sum {
  static_assert(never<Given>, "a bounded_total takes only clipped sums, whose sensitivity is known: accumulate(total, sum(clip(g, pergrad::l2_clip_norm{1.0}))); see docs/privacy.md");
};
template <class Gradient> struct private_step_needs_a_noised_sum {
  static_assert(never<Gradient>, "a private gradient and a private optimizer take only a noised sum: evaluate_into(exec, private_gradient, sum(clip(g, pergrad::l2_clip_norm{1.0})) + gaussian_noise(...)), then optimizer.step(exec, net, private_gradient, divisor); or both at once: optimizer.step(exec, net, private_gradient, sum(...) + gaussian_noise(...), divisor); see docs/privacy.md");
};
template <class Destination, class Generator> struct noise_from_a_seed {
  static_assert(never<Destination>, "noise from a pergrad::seeded_generator protects nobody: it fills a pergrad::unprotected::rehearsed_gradient, and a pergrad::private_gradient takes noise from a pergrad::os_keyed_generator; see docs/privacy.md");
};
template <class Destination, class Expression> struct sum_of_another_network {
  static_assert(never<Destination>, "a total, a private gradient and a private_step hold sums of their own network only, and these gradients are another network's; see docs/expressions.md");
};
template <class Destination> struct release_needs_a_private_gradient {
  static_assert(never<Destination>, "a noised sum goes into a pergrad::private_gradient (with noise from a seed into a pergrad::unprotected::rehearsed_gradient) or straight into optimizer.step; see docs/privacy.md");
};
template <class Expression> struct step_accumulates_clipped_sums {
  static_assert(never<Expression>, "a private_step takes clipped sums of its own gradients: accumulate(step, sum(clip(step.gradients(), bound))); see docs/privacy.md");
};
template <class Expression> struct step_counts_records_added_or_removed {
  static_assert(never<Expression>, "a private_loop's noise counts what one record adds, and its sampler's event what neighbours differ by, also if they replace one: write sum(clip(...)) without pergrad::neighbouring::replace_one; see docs/privacy.md");
};
template <class Executor> struct on_the_host_only {
  static_assert(never<Executor>, "owners and views of records, and gradients that are scaled before they are clipped, are on the host only so far: draw records, pergrad::dp_options<pergrad::poisson_sampling>; see docs/privacy.md");
};
template <class Loop> struct step_is_used_up_by_a_release {
  static_assert(never<Loop>, "a private_step is released once, and is used up by it: write std::move(step); see docs/privacy.md");
};
template <class Records> struct records_may_be_private {
  static_assert(never<Records>, "accuracy, loss and outputs of training records are private values: pass pergrad::public_records{records} if anybody may know the records, or call the function of pergrad::unprotected; see docs/privacy.md");
};
template <class... Given> struct release_needs_noise {
  static_assert(never<Given...>, "evaluate_into and optimizer.step release only a clipped and noised sum, and only into a pergrad::private_gradient; for anything else use pergrad::unprotected::evaluate_into; see docs/privacy.md");
};
template <class Method, class Where, class Positions> struct product_method_needs_one_position {
  static_assert(never<Method>, "the product method is exact only for a block with one position (T = 1); use gram, direct or instantiate; see docs/per_sample_gradients.md");
};
template <class Method, class Entries> struct method_not_offered {
  static_assert(never<Method>, "with_method takes automatic, product, gram, direct or instantiate, for entries of the unfolded list below 64 and below the list's size; see docs/per_sample_gradients.md");
};
template <class Limit, class Smallest> struct no_network_within {
  static_assert(never<Limit>, "first_within: none of these networks keeps to so many bytes: the first number is the limit, the second one what the smallest of them takes; wrap more blocks in pergrad::recomputed; see docs/layers.md");
};
// clang-format on

}  // namespace pergrad::inline v0_1::error
