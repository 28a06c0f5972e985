// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/diagnose.hpp - what is wrong with one layer on its input
#pragma once

#include <concepts>
#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

template <class Layer>
concept has_check = requires(shape in) {
  { Layer::check(in) } -> std::convertible_to<mistake>;
};

/// Does one operand lie inside the `size` values it is taken from?
[[nodiscard]] constexpr bool inside(const operand& from, std::size_t positions, std::size_t count,
                                    std::size_t size) noexcept {
  // By division: a sum or product that wraps around would lie inside again.
  if (positions == 0 || count == 0 || from.offset >= size) return false;
  std::size_t room = size - 1 - from.offset;
  if (positions > 1 && from.position_stride > room / (positions - 1)) return false;
  room -= (positions - 1) * from.position_stride;
  return count == 1 || from.stride <= room / (count - 1);
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
    const bool computes_with_input =
        each.delta.from == source::activation || (!each.sparse && each.other.from == source::activation);
    if (in.ids != 0 && computes_with_input) return mistake::factor_of_ids;
    if (each.sparse) {
      const bool all_inside = each.delta.from != source::ones &&
                              inside(each.delta, each.positions, each.columns, size_of(each.delta.from)) &&
                              each.other.from == source::activation && in.ids == each.rows &&
                              each.positions == in.size();
      if (!all_inside) return mistake::factor_outside_tape;
      continue;
    }
    const std::size_t other_count = each.outer ? each.columns : each.rows;
    const bool other_inside = each.other.from == source::ones
                                  ? !each.outer
                                  : inside(each.other, each.positions, other_count, size_of(each.other.from));
    const bool delta_inside =
        each.delta.from != source::ones && inside(each.delta, each.positions, each.rows, size_of(each.delta.from));
    if (!delta_inside || !other_inside) return mistake::factor_outside_tape;
  }
  return covered == parameter_count_of<Layer>(in, second) ? mistake::none : mistake::factors_do_not_cover;
}

/// Do at most 4 matrices lie among the parameters?
template <class Layer>
[[nodiscard]] constexpr bool matrices_inside(shape in, shape second) {
  const std::size_t parameters = parameter_count_of<Layer>(in, second);
  const auto list = matrices_of<Layer>(in, second);
  for (const matrix& each : list) {
    if (each.offset > parameters) return false;
    if (each.rows != 0 && each.columns > (parameters - each.offset) / each.rows) return false;
  }
  return list.size() <= 4;
}

/// Is an end of an affine map the shape that it has there? A vector is one pixel, a sequence a column of them: values
/// that lie otherwise would be read where others' are.
[[nodiscard]] constexpr bool end_fits(std::size_t channels, extent size, shape of, bool channels_first) noexcept {
  if (of.rank() == 1) return channels == of.e0 && size == extent{1};
  return channels_first ? channels == of.e0 && size == image_size(of) : channels == of.e1 && size == extent{of.e0, 1};
}
/// Are an affine map's ends the shapes of the layer, and its windows inside the padded input?
[[nodiscard]] constexpr bool map_fits(const affine_map& map, shape in, shape out, bool channels_first) noexcept {
  constexpr std::size_t negative = std::size_t{1} << 31U;  // from here on: a difference that has wrapped around
  const auto axis_fits = [&](std::size_t extent::*axis) {
    const std::size_t numbers[]{map.in_size.*axis, map.out_size.*axis, map.kernel.*axis,
                                map.stride.*axis,  map.padding.*axis,  map.dilation.*axis};
    for (const std::size_t each : numbers) {
      if (each >= negative) return false;
    }
    return map.out_size.*axis > 0 &&
           map.out_size.*axis <= window_count(map.in_size.*axis, map.kernel.*axis, map.stride.*axis, map.padding.*axis,
                                              map.dilation.*axis);
  };
  const shape& wide = map.adjoint ? out : in;
  const shape& narrow = map.adjoint ? in : out;
  return axis_fits(&extent::depth) && axis_fits(&extent::height) && axis_fits(&extent::width) && map.groups > 0 &&
         map.in_channels < negative && map.in_channels % map.groups == 0 && map.out_channels < negative &&
         map.out_channels % map.groups == 0 && end_fits(map.in_channels, map.in_size, wide, channels_first) &&
         end_fits(map.out_channels, map.out_size, narrow, channels_first);
}

/// What is wrong with a layer that has functions of its own, once these are there.
template <class Layer>
[[nodiscard]] constexpr mistake diagnose_own(shape in, shape second) {
  if (output_shape_of<Layer>(in, second).size() == 0) return mistake::no_output;
  if constexpr (has_matrices<Layer>) {
    if (!matrices_inside<Layer>(in, second)) return mistake::matrices_outside_parameters;
  }
  if constexpr (has_factors<Layer>) {
    return check_factors<Layer>(in, second);
  } else {
    return parameter_count_of<Layer>(in, second) == 0 ? mistake::none : mistake::no_factors;
  }
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
    if (second.ids != 0) return mistake::branches_do_not_fit;  // to a layer with two inputs both are numbers
    if (reads_images<Layer> && second.size() != 0) return mistake::stored_order_of_two;
    return diagnose_own<Layer>(in, second);
  }
}

/// May a layer get samples of varying length? Either it works position by position (the executor keeps zero what is
/// beyond), or it says what becomes of the length, or it takes care of lengths itself. Positions must lie along the
/// axis that the layer takes for them: the first one, unless it takes channels first or each element by itself.
template <class Layer>
[[nodiscard]] constexpr bool keeps_lengths(shape in, shape out) {
  constexpr bool knows = requires { requires Layer::knows_lengths; };
  constexpr bool channels_first = says_channels_first<Layer>;
  constexpr bool either = requires { requires Layer::is_transpose; };
  constexpr bool reads_lengths = knows || (has_output_length<Layer> && !requires { requires Layer::by_position; });
  if (in.varying_axis() == 0) return true;
  if (in.varying_axis() == 2 && !channels_first && !either && (reads_lengths || out != in)) return false;
  if (in.varying_axis() == 1 && channels_first) return false;
  return knows || out.varying_axis() != 0;
}

/// Whether a layer may stand behind one other: it says what it makes of one shape.
template <class Layer>
inline constexpr bool takes_one_input = requires(shape in) {
  Layer::output_shape(in);
};

/// What is wrong with a layer on this input, before anything else of it is used.
template <class Layer>
[[nodiscard]] constexpr mistake diagnose(shape in, shape second) {
  if (in.ids != 0 && !takes_ids<Layer> && !is_mixing<Layer>) return mistake::ids_into_a_float_layer;
  if constexpr (has_accepts<Layer>) {
    if (!Layer::accepts(in)) return mistake::rejects_input;
  }
  if constexpr (is_mixing<Layer>) {
    return mistake::mixes_samples;
  } else if constexpr (is_of_two_kinds<Layer>) {
    return mistake::of_two_kinds;
  } else if constexpr (is_branch_sum<Layer>) {
    return in == second ? mistake::none : mistake::branches_differ;
  } else if constexpr (requires { Layer::on_tiles; }) {
    return diagnose_tiled<Layer>(in, second);
  } else if constexpr (has_check<Layer>) {
    return Layer::check(in);
  } else if constexpr (is_reshape<Layer>) {
    return Layer::output_shape(in).size() == in.size() ? mistake::none : mistake::no_output;
  } else if constexpr (has_value<Layer> && !has_derivative<Layer>) {
    return mistake::no_derivative;
  } else if constexpr (has_value<Layer>) {
    return output_shape_of<Layer>(in) == in ? mistake::none : mistake::element_function_changes_shape;
  } else if constexpr (has_output_shape<Layer> && has_affine<Layer>) {
    const shape out = Layer::output_shape(in);
    if (out.size() == 0) return mistake::no_output;
    const bool fits = map_fits(Layer::affine(in), in, out, is_channels_first<Layer>(in, out));
    return fits ? mistake::none : mistake::affine_map_does_not_fit;
  } else if constexpr (has_output_shape<Layer> && has_windows<Layer>) {
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
    return diagnose_own<Layer>(in, {});
  }
}

}  // namespace pergrad::inline v0_1::detail
