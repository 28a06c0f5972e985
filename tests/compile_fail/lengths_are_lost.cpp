// expect-error: lengths_are_lost<.*at_layer<1>.*layer_type<.*flatten.*gets<.*of_varying_length<.*of_shape<9, 4>
// expect-error: reduce with pergrad::mean_over_positions or pergrad::select_last first; see docs/layers.md
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

constexpr pg::shape words = pg::variable(pg::token_ids(9, 50));
#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<words, pg::embedding<4>, pg::select_last, pg::linear<2>>;
#else
using net_type = pg::network<words, pg::embedding<4>, pg::flatten, pg::linear<2>>;
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
