// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/recurrent.hpp - one layer of one direction of a recurrent net, for any cell
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
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/mean_over_positions.hpp>
#include <pergrad/layers/parallel.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

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
  bool one_bias = false;
  bool no_bias = false;
  bool last = false;
  bool mean = false;
  bool unknown_given = false;

  [[nodiscard]] constexpr std::size_t biases() const noexcept { return no_bias ? 0 : one_bias ? 1 : 2; }
  [[nodiscard]] constexpr bool contradict() const noexcept { return (last && mean) || (one_bias && no_bias); }

  friend constexpr bool operator==(const recurrent_options&, const recurrent_options&) noexcept = default;
};
constexpr void apply(recurrent_options& options, relu_cell) noexcept { options.relu = true; }
template <std::size_t Count>
constexpr void apply(recurrent_options& options, layers<Count>) noexcept {
  options.layer_count = Count;
}
constexpr void apply(recurrent_options& options, bidirectional) noexcept { options.both_ways = true; }
constexpr void apply(recurrent_options& options, pergrad::one_bias) noexcept { options.one_bias = true; }
constexpr void apply(recurrent_options& options, pergrad::no_bias) noexcept { options.no_bias = true; }
constexpr void apply(recurrent_options& options, last_output) noexcept { options.last = true; }
constexpr void apply(recurrent_options& options, mean_output) noexcept { options.mean = true; }

/// Gates whose values lie side by side in a cell's record, and from which row of W_ih on.
struct gate_block {
  std::size_t in_area = 0;
  std::size_t in_weight = 0;
  std::size_t count = 1;
};

// Constants of a cell, as numbers that device code may read.
template <class Cell>
inline constexpr std::size_t gate_block_count = Cell::input_blocks.size();
template <class Cell, std::size_t Index>
inline constexpr gate_block gate_block_at = Cell::input_blocks[Index];

/// f(in_area, in_weight, count) for the blocks of a cell's gates that the input meets.
template <class Cell, class Function>
PERGRAD_HD void for_each_gate_block(const Function& f) {
  const auto call = [&]<std::size_t... Index>(std::index_sequence<Index...> /*blocks*/) {
    (f(static_cast<std::ptrdiff_t>(gate_block_at<Cell, Index>.in_area),
       static_cast<std::ptrdiff_t>(gate_block_at<Cell, Index>.in_weight),
       static_cast<std::ptrdiff_t>(gate_block_at<Cell, Index>.count)),
     ...);
  };
  call(std::make_index_sequence<gate_block_count<Cell>>{});
}

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

  /// Backward: dL/dh, from outside and from later steps.
  template <class At>
  [[nodiscard]] PERGRAD_HD auto gradient_of_h(const At& at) const {
    auto gradient = at(dh);
    if (dy != nullptr) gradient = gradient + at(dy);
    return gradient;
  }
  /// Forward: h, wherever it is wanted.
  template <class At, class Value>
  PERGRAD_HD void put_h(const At& at, Value value) const {
    at.put(h, value);
    if (y != nullptr) at.put(y, value);
  }
};

/// What a cell is unless it says otherwise.
struct usual_cell {
  static constexpr std::size_t states = 1;           ///< h, or h and c
  static constexpr std::size_t first_recurrent = 0;  ///< of a record's gates, which meets the state
  static constexpr bool may_be_relu = false;
  /// What a record still needs before the state is added to it.
  template <class Team, class Scalar>
  PERGRAD_HD static void prepare(const Team& /*team*/, std::ptrdiff_t /*hidden*/, Scalar* /*first_record*/,
                                 const Scalar* /*bias*/) {}
};

/// One direction of one layer. `Cell` says what its elements compute; `Last`: only the last state is put out; `Given`:
/// the initial state is a second input, h (and behind it c).
template <class Cell, std::size_t Hidden, std::size_t Biases, bool Reversed, bool Last, bool Given, mistake Wrong>
struct recurrent_core {
  static constexpr const char* name = Reversed ? Cell::name_reversed : Cell::name;
  [[nodiscard]] static constexpr auto settings() noexcept requires requires { Cell::setting; }
  { return std::array{Cell::setting}; }
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
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
  [[nodiscard]] static constexpr block_list<4> blocks(shape in) noexcept {
    return {{{"weight_ih", {gates, in.e1}},
             {"weight_hh", {gates, Hidden}},
             {"bias_ih", {Biases > 0 ? gates : 0}},
             {"bias_hh", {Biases > 1 ? gates : 0}}}};
  }
  [[nodiscard]] static constexpr std::array<matrix, 2> matrices(shape in) noexcept {
    return {matrix{0, gates, in.e1}, matrix{gates * in.e1, gates, Hidden}};
  }
  static constexpr std::size_t matrix_of_positions = 1;
  /// What meets the input, without its biases.
  [[nodiscard]] static constexpr auto projections(shape in) noexcept {
    std::array<position_projection, Cell::input_blocks.size()> list{};
    for (std::size_t i = 0; i < list.size(); ++i) {
      const gate_block& gate = Cell::input_blocks[i];
      const operand record{source::saved, gate.in_area * Hidden, area};
      list[i] = {.positions = in.e0,
                 .weights = {gate.in_weight * Hidden * in.e1, gate.count * Hidden, in.e1},
                 .x = {source::activation, 0, in.e1},
                 .y = record,
                 .delta = record};
    }
    return list;
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

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    const extents at{team};
    const matrix_view<scalar> input_weights = team.transposed(0, 0, number(gates), at.features);
    const matrix_view<scalar> recurrent_weights =
        team.transposed(1, number(gates) * at.features, number(gates), number(Hidden));
    scalar* bias = team.scratch(0);
    gather_biases(team, team.parameters + number(gates) * (at.features + number(Hidden)), bias);
    for (index b = 0; b < team.samples; ++b) start(team, at, b);
    for_each_stretch(at.longest, Reversed, [&](index first, index count) {
      for_each_gate_block<Cell>([&](index in_area, index in_weight, index gate_count) {
        const index offset = in_area * number(Hidden);
        if (team.projected) {
          auto* record = first_record(team, first) + offset;
          return team.map(count, gate_count * number(Hidden), [&](index p, const auto& here) {
            auto* row = record + p * number(area);
            here.put(row, here(row) + here(bias + offset));
          });
        }
        team.multiply_bias({.outer = {team.samples, team.x.step, team.saved.step},
                            .rows = {count, at.features, number(area)},
                            .depth = at.features,
                            .columns = gate_count * number(Hidden)},
                           team.x(0) + first * at.features, input_weights.from(0, in_weight * number(Hidden)),
                           team.saved(0) + first * number(area) + offset, bias + offset);
      });
      for_each_position(first, count, Reversed, [&](index p) {
        Cell::prepare(team, number(Hidden), first_record(team, p), bias);
        team.multiply_add({.rows = {team.samples, team.saved.step, team.saved.step},
                           .depth = number(Hidden),
                           .columns = number(gates)},
                          team.saved(0) + at.states + before(p) * number(Hidden), recurrent_weights,
                          first_record(team, p) + number(first_recurrent));
        for (index b = 0; b < team.samples; ++b) {
          if (p < team.length(b)) {
            const auto step = step_of(team, at, b, p);
            team.map(number(Hidden), [&](const auto& here) { Cell::forward_at(here, number(Hidden), step); });
          } else {
            end(team, at, b, p);
          }
        }
      });
    });
    for (index b = 0; Last && b < team.samples; ++b) {
      const scalar* last = team.saved(b) + at.states + (Reversed ? 0 : team.length(b)) * number(Hidden);
      team.copy(number(Hidden), last, team.y(b));
    }
  }

  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const extents at{team};
    const matrix_view<scalar> input_weights = team.matrix(0, number(gates), at.features);
    const matrix_view<scalar> recurrent_weights =
        team.matrix(number(gates) * at.features, number(gates), number(Hidden));
    for (index b = 0; b < team.samples; ++b) {
      team.fill(number(state), team.scratch(b), scalar{0});
      if (Last) team.copy(number(Hidden), team.dy(b), team.scratch(b));
      if (team.wants_dx) {
        team.fill((at.positions - at.longest) * at.features, team.dx(b) + at.longest * at.features, scalar{0});
      }
    }
    const index first_position = Reversed ? at.longest - 1 : 0;
    for_each_stretch(at.longest, !Reversed, [&](index first, index count) {
      for_each_position(first, count, !Reversed, [&](index p) {
        for (index b = 0; b < team.samples; ++b) {
          if (p >= team.length(b)) continue;
          const auto step = step_of(team, at, b, p);
          team.map(number(Hidden), [&](const auto& here) { Cell::backward_at(here, number(Hidden), step); });
        }
        if (p == first_position && !team.wants_dx2) return;
        team.multiply_add({.rows = {team.samples, team.saved.step, team.scratch.step},
                           .depth = number(gates),
                           .columns = number(Hidden)},
                          first_record(team, p) + number(first_recurrent), recurrent_weights, team.scratch(0));
      });
      bool add = false;
      for_each_gate_block<Cell>([&](index in_area, index in_weight, index gate_count) {
        if (!team.wants_dx || team.projected) return;
        const product_sizes sizes{.outer = {team.samples, team.saved.step, team.dx.step},
                                  .rows = {count, number(area), at.features},
                                  .depth = gate_count * number(Hidden),
                                  .columns = at.features};
        const scalar* delta = first_record(team, first) + in_area * number(Hidden);
        const matrix_view<scalar> weights = input_weights.from(in_weight * number(Hidden), 0);
        scalar* dx = team.dx(0) + first * at.features;
        if (add) {
          team.multiply_add(sizes, delta, weights, dx);
        } else {
          team.multiply(sizes, delta, weights, dx);
        }
        add = true;
      });
    });
    for (index b = 0; team.wants_dx2 && b < team.samples; ++b) team.copy(number(state), team.scratch(b), team.dx2(b));
  }

 private:
  using index = std::ptrdiff_t;
  [[nodiscard]] PERGRAD_HD static constexpr index number(std::size_t count) noexcept {
    return static_cast<index>(count);
  }
  [[nodiscard]] static constexpr shape output_of(shape in) noexcept {
    return Last ? shape{Hidden} : shape{in.e0, Hidden};
  }
  [[nodiscard]] PERGRAD_HD static constexpr index before(index p) noexcept { return Reversed ? p + 1 : p; }
  [[nodiscard]] PERGRAD_HD static constexpr index after(index p) noexcept { return Reversed ? p : p + 1; }

  /// Sizes that the tile's samples share, and where arrays of `saved` begin.
  struct extents {
    template <class Team>
    PERGRAD_HD explicit extents(const Team& team)
        : positions{number(team.in.e0)},
          features{number(team.in.e1)},
          states{positions * number(area)},
          cells{states + (positions + 1) * number(Hidden)},
          tanh_cells{cells + (positions + 1) * number(Hidden)} {
      for (index b = 0; b < team.samples; ++b) longest = longest < team.length(b) ? team.length(b) : longest;
    }
    index positions;
    index features;
    index states;
    index cells;
    index tanh_cells;
    index longest = 0;  ///< positions of the longest sample
  };

  template <class Team>
  [[nodiscard]] PERGRAD_HD static auto* first_record(const Team& team, index p) {
    return team.saved(0) + p * number(area);
  }
  template <class Team>
  [[nodiscard]] PERGRAD_HD static auto step_of(const Team& team, const extents& at, index b, index p) {
    using scalar = typename Team::scalar;
    constexpr index width = number(Hidden);
    constexpr bool two = Cell::states > 1;
    scalar* saved = team.saved(b);
    scalar* h = saved + at.states;
    scalar* c = two ? saved + at.cells : nullptr;
    return cell_step<scalar>{saved + p * number(area),
                             h + before(p) * width,
                             h + after(p) * width,
                             two ? c + before(p) * width : nullptr,
                             two ? c + after(p) * width : nullptr,
                             two ? saved + at.tanh_cells + p * width : nullptr,
                             Last ? nullptr : team.y(b) + p * width,
                             Last || team.dy.first == nullptr ? nullptr : team.dy(b) + p * width,
                             team.scratch(b),
                             two ? team.scratch(b) + width : nullptr};
  }

  /// Calls f(first, count) for stretches of positions whose records stay in the cache between two products.
  template <class Function>
  PERGRAD_HD static void for_each_stretch(index positions, bool descending, Function&& f) {
    constexpr index together = 16;
    const index stretches = (positions + together - 1) / together;
    for (index k = 0; k < stretches; ++k) {
      const index first = (descending ? stretches - 1 - k : k) * together;
      f(first, positions - first < together ? positions - first : together);
    }
  }
  template <class Function>
  PERGRAD_HD static void for_each_position(index first, index count, bool descending, Function&& f) {
    for (index k = 0; k < count; ++k) f(descending ? first + count - 1 - k : first + k);
  }

  /// What a record starts from: biases, where the two of PyTorch's meet in one sum added up.
  template <class Team, class Scalar>
  PERGRAD_HD static void gather_biases(const Team& team, const Scalar* biases, Scalar* bias) {
    constexpr index hidden = number(Hidden);
    team.fill(number(area), bias, Scalar{0});
    for_each_gate_block<Cell>([&](index in_area, index in_weight, index gate_count) {
      if (Biases > 0) team.copy(gate_count * hidden, biases + in_weight * hidden, bias + in_area * hidden);
    });
    if (Biases <= 1) return;
    Scalar* met = bias + number(first_recurrent);
    const Scalar* second = biases + number(gates);
    team.map(number(gates), [&](const auto& at) { at.put(met, at(met) + at(second)); });
  }

  /// The initial state, and zeros where no position is: factors read all rows.
  template <class Team>
  PERGRAD_HD static void start(const Team& team, const extents& at, index b) {
    using scalar = typename Team::scalar;
    constexpr index width = number(Hidden);
    scalar* saved = team.saved(b);
    team.fill((at.positions - at.longest) * number(area), saved + at.longest * number(area), scalar{0});
    scalar* h = saved + at.states;
    team.fill((at.positions + 1 - at.longest) * width, h + at.longest * width, scalar{0});
    const index row = Reversed ? team.length(b) : 0;
    if (Reversed) team.fill((at.longest - row) * width, h + row * width, scalar{0});
    for (index part = 0; part < number(Cell::states); ++part) {
      scalar* to = saved + (part == 0 ? at.states : at.cells) + row * width;
      if constexpr (Given) {
        team.copy(width, team.x2(b) + part * width, to);
      } else {
        team.fill(width, to, scalar{0});
      }
    }
  }
  /// A position beyond the sample's length.
  template <class Team>
  PERGRAD_HD static void end(const Team& team, const extents& at, index b, index p) {
    using scalar = typename Team::scalar;
    scalar* saved = team.saved(b);
    team.fill(number(area), saved + p * number(area), scalar{0});
    if (!Reversed) team.fill(number(Hidden), saved + at.states + (p + 1) * number(Hidden), scalar{0});
  }
};

/// A recurrent layer with all its options, as one-direction layers.
template <class Cell, std::size_t Hidden, class... Options>
struct recurrent {
  static constexpr recurrent_options options = gather<recurrent_options, Options...>();
  static constexpr mistake wrong = options.unknown_given || options.contradict() || (options.relu && !Cell::may_be_relu)
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
      recurrent_core<Cell, Hidden, options.biases(), Reversed, options.last && Index + 1 == layer_count, Given, wrong>;
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
  /// As PyTorch names the parameters of a layer's direction.
  [[nodiscard]] static std::string part_name(std::size_t number) {
    return "*_l" + std::to_string(number / directions) + (number % directions == 0 ? "" : "_reverse");
  }
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
