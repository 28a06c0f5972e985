// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/plan.hpp - the constexpr cost model that chooses, block by block, how norms and clipped sums are
// formed
//
// For a block with T positions, view width d, outputs p (per group), the ways to ‖G_b‖² and to sum_b w_b G_b cost a
// sample
//     product      T = 1:  2 (d + p)                        + 2 d p    the sum as one product X^T diag(w) Delta
//     gram         T² (d + p + 1)        (half, symmetric)  + 2 T d p  likewise
//     direct       2 T d p               blocks in registers, squared and dropped,        + 2 T d p
//     instantiate  2 T d p               G_b kept, squared on its way out,                + weighted row sum of B G_b's
// multiply-adds counted as 2. (Goodfellow 2015; Rochette et al. 2019; Lee & Kifer 2020; Bu et al. 2022,
// arXiv:2210.00038.)
#pragma once

#include <cstddef>
#include <string_view>

namespace pergrad::inline v0_1 {

/// How a block's per-sample norm is found, and from what its weighted sum is made.
enum class norm_method {
  automatic,    ///< what the cost model says
  product,      ///< ‖delta‖² ‖x‖², exact for one position
  gram,         ///< <X X^T, Delta Delta^T>
  direct,       ///< blocks of G_b in registers, squared and dropped
  instantiate,  ///< G_b in the cache, squared on its way out and kept for the weighted sum
  elementwise   ///< an elementwise block (bias, gain): always instantiated
};

[[nodiscard]] constexpr std::string_view name_of(norm_method method) noexcept {
  constexpr std::string_view names[] = {"automatic", "product", "gram", "direct", "instantiate", "elementwise"};
  return names[static_cast<std::size_t>(method)];
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
/// modelled here (AVX-512, g++ 12; in 91 blocks the choice costs at most 1.11 times the best method; four fifths of all
/// methods cost 0.96 to 1.73 times what is modelled, all 0.70 to 3.4 times). Every constant is a ratio of two speeds of
/// one core, so other machines differ little.
struct host_costs {
  double dot_element = 12;      ///< one element of a dot product: those are summed in double, which products are not
  double dot_pair = 800;        ///< a dot of two x and one of two delta, however short
  double gram_element = 4;      ///< the same of the Gram matrices, whose dots are formed a few at a time
  double gram_pair = 500;       ///< a dot of two x and one of two delta there, however short
  double summed_element = 0.5;  ///< add one element of a tile's weighted sum to the total, shared by the tile's samples
  double direct_element = 8;    ///< square one element of G_b in registers
  double kept_element = 10;     ///< square, keep and add up one element of G_b inside the L2 cache
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
  const double rounding_bound = positions * pair;             // leaves.hpp, rounding
  const std::size_t gram_blocks = (block.positions + 3) / 4;  // of positions; all pairs of two blocks are formed
  const double gram_pairs = 8 * real(gram_blocks * (gram_blocks + 1));
  const bool fits = block.view * block.outputs * block.groups * scalar_bytes <= costs.cache_bytes;
  double cost = 0;
  switch (method) {
    case norm_method::product:
      cost = block.positions == 1 ? pair + sum : 1e300;
      break;
    case norm_method::gram:
      cost = gram_pairs * (costs.gram_element * real(block.view + block.outputs) + costs.gram_pair) + sum;
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

/// Do Gram matrices cost less than another product, where their dots are formed by the product kernel (host/norms)?
/// Half of them are, and turning and adding up takes half as long again.
[[nodiscard]] constexpr bool gram_in_blocks_pays(block_size block) noexcept {
  return 3 * block.positions * (block.view + block.outputs) < 4 * block.view * block.outputs;
}

/// Bytes of a block with one position from which on no thread adds to a sum of its own: the samples of a chunk leave x
/// and delta, and one product over all of them writes the sum (book-keeping, Bu et al. 2022, arXiv:2210.00038). Smaller
/// sums stay in the cache while the tiles of an accumulator are added to them. Other limits:
/// docs/internals/rejected.md.
inline constexpr std::size_t deferral_bytes = 1U << 17U;

/// Is a block so large that its sum is best formed a chunk of samples at a time?
[[nodiscard]] constexpr bool pays_to_defer(block_size block, std::size_t scalar_bytes) noexcept {
  return block.positions == 1 && block.groups == 1 && block.view * block.outputs * scalar_bytes >= deferral_bytes;
}

/// The cheapest exact method.
[[nodiscard]] constexpr norm_method cheapest_method(block_size block, std::size_t scalar_bytes,
                                                    host_costs costs = {}) noexcept {
  constexpr norm_method candidates[] = {norm_method::product, norm_method::instantiate, norm_method::direct,
                                        norm_method::gram};
  norm_method best = norm_method::instantiate;
  for (const norm_method method : candidates) {
    if (method == norm_method::gram && block.positions == 1)
      continue;  // `product` is the same without cancelling terms
    if (modelled_cost(method, block, scalar_bytes, costs) < modelled_cost(best, block, scalar_bytes, costs))
      best = method;
  }
  return best;
}

}  // namespace pergrad::inline v0_1
