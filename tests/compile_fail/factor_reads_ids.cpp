// expect-error: factor_reads_ids<.*at_layer<0>.*layer_type<sum_of_ids>.*gets<.*of_ids<50, 9>
// expect-error: what else is made of ids goes through the saved span; see docs/custom_layers.md
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct sum_of_ids {  // y = w sum_t id_t
  static constexpr bool on_tiles = true;
  static constexpr bool takes_ids = true;
  static constexpr pg::shape output_shape(pg::shape) { return {1}; }
  static constexpr std::size_t parameter_count(pg::shape) { return 1; }
#ifdef COMPILE_FAIL_FIXED
  static constexpr std::size_t saved_count(pg::shape) { return 1; }
#endif
  static constexpr auto factors([[maybe_unused]] pg::shape in) {
#ifdef COMPILE_FAIL_FIXED
    return pg::list_factors(pg::elementwise_sum(1, 1, {pg::source::backprop}, {pg::source::saved}));
#else
    return pg::list_factors(pg::elementwise_sum(in.e0, 1, {pg::source::backprop}, {pg::source::activation, 0, 1}));
#endif
  }
  template <class Team>
  static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      typename Team::scalar sum = 0;
      for (std::size_t t = 0; t < team.in.e0; ++t) sum += static_cast<typename Team::scalar>(team.ids(b)[t]);
#ifdef COMPILE_FAIL_FIXED
      team.saved(b)[0] = sum;
#endif
      team.y(b)[0] = sum * team.parameters[0];
    }
  }
  template <class Team>
  static void backward(const Team&) {}
};

using net_type = pg::network<pg::token_ids(9, 50), sum_of_ids, pg::linear<2>>;

#include "program_with_ids.inc"
