// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/sequential.hpp - lists of layers as one entry of a network: sequential, repeat, residual, projection
//
// None of them computes anything: a network unfolds them into one flat list of nodes, each of which knows how many
// nodes back its input lies (detail/graph.hpp). A residual ends in a node that adds two branches; the shared input's
// gradient is the sum of the branches' gradients.
#pragma once

#include <cstddef>

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

}  // namespace pergrad::inline v0_1
