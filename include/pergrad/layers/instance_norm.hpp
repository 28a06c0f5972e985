// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/instance_norm.hpp - every channel of one sample normalised by itself, over its positions or pixels
//
// Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022: a group norm with one channel a group. There are no running
// statistics: they would mix the samples of a data set.
#pragma once

#include <cstddef>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/convolution.hpp>
#include <pergrad/layers/shared/grouped_norm.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <std::size_t Rank, class... Options>
struct instance_norm : grouped_norm<0, Options...> {
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (in.rank() != Rank) return wrong_rank(Rank - 1);
    // As in PyTorch, one value a channel is refused: normalised it would always be 0.
    return in.size() > in.e0 ? grouped_norm<0, Options...>::check(in) : mistake::rejects_input;
  }
};

}  // namespace detail

/// `instance_norm1d<>` on `{channels, positions}`. Options: `no_affine`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.InstanceNorm1d(channels, affine=True)`; with `no_affine` PyTorch's own default,
/// `affine=False`. Parameters: weight, then bias, one a channel, at first 1 and 0.
template <class... Options>
struct instance_norm1d : detail::instance_norm<2, Options...> {
  static constexpr const char* name = "instance_norm1d";
};
/// The same on `{channels, height, width}`. PyTorch: `nn.InstanceNorm2d(channels, affine=True)`.
template <class... Options>
struct instance_norm2d : detail::instance_norm<3, Options...> {
  static constexpr const char* name = "instance_norm2d";
};
/// The same on `{channels, depth, height, width}`. PyTorch: `nn.InstanceNorm3d(channels, affine=True)`.
template <class... Options>
struct instance_norm3d : detail::instance_norm<4, Options...> {
  static constexpr const char* name = "instance_norm3d";
};

}  // namespace pergrad::inline v0_1
