// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/sequential.hpp - entries of a network made of layers: lists, branches, shared and frozen blocks
//
// None of them computes anything: a network unfolds them into one flat list of nodes, each of which knows how many
// nodes back its input lies (graph/graph.hpp). Where branches meet, the shared input's gradient is the sum of the
// branches' gradients.
#pragma once

#include <cstddef>

#include <pergrad/shape.hpp>

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

/// `Layer` on what two branches make of the same input: y = Layer(First(x), Second(x)). The layer takes two inputs
/// (concepts.hpp). Parameters: First's, Second's, the layer's.
template <class Layer, class First, class Second>
struct merge {};

/// The layers with parameters that they share with every other `tied` of the same key in the network. A sample's
/// gradient with respect to them is the sum over all uses, formed before its norm. The layers must be the same.
template <std::size_t Key, class... Layers>
struct tied {};

/// The layers with parameters that are not trained: they have no gradient, and none is computed. They are not part of
/// `parameters()` nor of `parameter_count`, but of `frozen_parameters()`.
template <class... Layers>
struct frozen {};

/// The layers as members of a clipping group, for `clip_per_group`. Layers outside are in group 0.
template <std::size_t Group, class... Layers>
struct parameter_group {};

/// The layers as one block whose inner values are not kept from forward to backward: the block keeps its input, and is
/// computed again when the backward pass comes to it, dropout with the same random bits. Gradients have the bits that
/// they have without. PyTorch: `torch.utils.checkpoint` (Chen et al. 2016, arXiv:1604.06174). Of blocks inside a block
/// the outer one counts.
template <class... Layers>
struct recomputed {};

}  // namespace pergrad::inline v0_1
