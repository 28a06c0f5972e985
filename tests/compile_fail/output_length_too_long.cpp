// expect-error: output_length_too_long<.*at_layer<1>.*layer_type<append_zero>.*gets<.*of_varying_length<.*of_shape<9, 4>
// expect-error: for any length from 0 on; see docs/custom_layers.md
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct append_zero {
  static constexpr bool on_tiles = true;
#ifdef COMPILE_FAIL_FIXED
  static constexpr pg::shape output_shape(pg::shape in) { return {in.e0 + 1, in.e1}; }
#else
  static constexpr pg::shape output_shape(pg::shape in) { return {in.e0, in.e1}; }
#endif
  static constexpr std::size_t output_length(pg::shape, std::size_t length) { return length + 1; }
  template <class Team>
  static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      team.fill(static_cast<std::ptrdiff_t>(team.out.size()), team.y(b), 0);
      team.copy(static_cast<std::ptrdiff_t>(team.in.size()), team.x(b), team.y(b));
    }
  }
  template <class Team>
  static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      team.copy(static_cast<std::ptrdiff_t>(team.in.size()), team.dy(b), team.dx(b));
    }
  }
};

using net_type = pg::network<pg::variable(pg::token_ids(9, 50)), pg::embedding<4>, append_zero, pg::mean_over_positions,
                             pg::linear<2>>;

#ifdef COMPILE_FAIL_FIXED
// Layers that keep every length are not asked about each: 24 blocks at 8,192 positions pass compilers' limits so.
template <std::size_t... I>
pg::network<pg::variable(pg::token_ids(8192, 50)), pg::embedding<8>,
            pg::transformer_encoder_layer<2, 8 + 0 * I, pg::pre_norm>..., pg::mean_over_positions, pg::linear<2>>
    long_network(std::index_sequence<I...>);
static_assert(decltype(long_network(std::make_index_sequence<24>{}))::input_shape.e0 == 8192);
#endif

int main() {
  const pg::host exec;
  net_type net{exec, pg::layer_default{1}};
  const std::vector<std::int32_t> ids(9);
  const std::vector<std::int32_t> labels(1);
  const std::vector<std::uint32_t> lengths{3};
  const pg::batch<net_type, pg::cross_entropy> samples{ids, labels, lengths};
  net_type::tape tape{exec, pg::max_batch{1}};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  return static_cast<int>(pg::unprotected::evaluate(exec, losses(g)).size());
}
