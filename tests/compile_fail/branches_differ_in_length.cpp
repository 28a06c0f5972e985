// expect-error: branches_differ_in_length<.*at_layer<1>.*layer_type<.*concatenate_channels
// expect-error: of some lengths the two branches that are put together leave different numbers of positions
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

// 4 of 8 positions either way, but 4 and 3 of 7.
using halves = pg::sequential<pg::transpose, pg::conv1d<2, 3, pg::stride<2>, pg::padding<1>>>;
#ifdef COMPILE_FAIL_FIXED
using others = halves;
#else
using others = pg::sequential<pg::transpose, pg::conv1d<2, 2, pg::stride<2>>>;
#endif
using net_type =
    pg::network<pg::variable(pg::token_ids(8, 50)), pg::embedding<4>, pg::parallel_channels<halves, others>,
                pg::transpose, pg::mean_over_positions, pg::linear<2>>;

int main() {
  const pg::host exec;
  net_type net{exec, pg::layer_default{1}};
  const std::vector<std::int32_t> ids(8);
  const std::vector<std::int32_t> labels(1);
  const std::vector<std::uint32_t> lengths{7};
  const pg::batch<net_type, pg::cross_entropy> samples{ids, labels, lengths};
  net_type::tape tape{exec, pg::max_batch{1}};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  return static_cast<int>(pg::unprotected::evaluate(exec, losses(g)).size());
}
