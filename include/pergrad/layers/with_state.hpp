// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/with_state.hpp - a recurrent layer whose initial state is computed, or part of the record
//
// y = Recurrent(Sequence(x), State(x)). The gradient flows into both branches.
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/mean_over_positions.hpp>
#include <pergrad/layers/parallel.hpp>
#include <pergrad/layers/recurrent.hpp>
#include <pergrad/shape.hpp>

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
template <class Recurrent, class... First, class... Second>
struct with_state<Recurrent, sequence<First...>, state<Second...>> {
  template <class Names>
  static void name_parts(Names& names) {
    const std::size_t first = names.size();
    names.template list_at<First...>("sequence.");
    names.template list_at<Second...>("state.");
    names.template named_parts<Recurrent, with_state>(first);
  }
};

namespace detail {

/// Of the states of `Total` one-direction layers, each `Kinds` times `Hidden` wide, those of layer `Index`.
template <std::size_t Hidden, std::size_t Kinds, std::size_t Index, std::size_t Total>
struct state_part {
  static constexpr const char* name = "state";
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{Index}; }

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return {Kinds * Hidden}; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    return in == shape{Total * Kinds * Hidden} ? mistake::none : mistake::rejects_input;
  }
  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      team.each(count, [&](std::ptrdiff_t i) { team.y(b)[i] = team.x(b)[place_of(i)]; });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      team.fill(static_cast<std::ptrdiff_t>(team.in.size()), team.dx(b), 0);
      team.each(count, [&](std::ptrdiff_t i) { team.dx(b)[place_of(i)] = team.dy(b)[i]; });
    }
  }

 private:
  static constexpr auto count = static_cast<std::ptrdiff_t>(Kinds * Hidden);
  [[nodiscard]] PERGRAD_HD static constexpr std::ptrdiff_t place_of(std::ptrdiff_t i) noexcept {
    constexpr auto hidden = static_cast<std::ptrdiff_t>(Hidden);
    return (i / hidden * static_cast<std::ptrdiff_t>(Total) + static_cast<std::ptrdiff_t>(Index)) * hidden + i % hidden;
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

/// `rnn`, `gru` or `lstm`.
template <class Layer>
concept is_recurrent = requires {
  Layer::layer_count;
  Layer::directions;
  Layer::states;
};

template <class Recurrent, class Sequence, class State>
struct unfold<with_state<Recurrent, Sequence, State>> {
  using type = node_list<node<no_such_option<with_state<Recurrent, Sequence, State>>>>;
};
template <is_recurrent Recurrent, class... First, class... Second>
struct unfold<with_state<Recurrent, sequence<First...>, state<Second...>>> {
  using sequence_list = typename unfold<sequential<First...>>::type;
  using state_list = typename unfold<sequential<Second...>>::type;
  using branches = typename join<sequence_list, typename shift<state_list, sequence_list::size>::type>::type;
  using type = typename append_layers<Recurrent, branches, 0, sequence_list::size,
                                      (state_list::size == 0 ? 0 : branches::size)>::type;
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
