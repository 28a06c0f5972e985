// SPDX-License-Identifier: Apache-2.0
// pergrad/host/elementwise_leaves.hpp - the gradient and norm of one elementwise leaf: a bias, a gain
#pragma once

#include <algorithm>

#include <pergrad/detail/elements.hpp>
#include <pergrad/detail/layout.hpp>
#include <pergrad/host/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// g_b of an elementwise leaf into `out`, or added to it; returns the squared norm of what is there then.
template <class Scalar>
inline double instantiate(const elementwise_leaf& leaf, const Scalar* workspace, index sample, Scalar* out,
                          bool onto = false) noexcept {
  const Scalar* delta = workspace + leaf.delta.offset + sample * leaf.delta.sample;
  const Scalar* other = workspace + leaf.other.offset + sample * leaf.other.sample;
  if (!onto) std::fill_n(out, leaf.count, Scalar{0});
  for (index plane = 0; plane < leaf.step_plane.extent; ++plane) {
    const Scalar* delta_plane = delta + plane * leaf.step_plane.delta;
    const Scalar* other_plane = other + plane * leaf.step_plane.x;
    for (index i = 0; i < leaf.step[0].extent; ++i) {
      for (index j = 0; j < leaf.step[1].extent; ++j) {
        const Scalar* delta_here = delta_plane + i * leaf.step[0].delta + j * leaf.step[1].delta;
        if (leaf.ones && leaf.delta_stride == 1) {
          add_to(out, delta_here, leaf.count);
          continue;
        }
        const Scalar* other_here = other_plane + i * leaf.step[0].x + j * leaf.step[1].x;
        if (!leaf.ones && leaf.delta_stride == 1 && leaf.other_stride == 1) {
          for_each_vector<Scalar>(leaf.count, [&](index n, const auto& lanes) {
            lanes.store(out + n, lanes.load(out + n) + lanes.load(delta_here + n) * lanes.load(other_here + n));
          });
          continue;
        }
        for (index n = 0; n < leaf.count; ++n) {
          const Scalar value = delta_here[n * leaf.delta_stride];
          out[n] += leaf.ones ? value : value * other_here[n * leaf.other_stride];
        }
      }
    }
  }
  return squares(static_cast<const Scalar*>(out), leaf.count);
}

}  // namespace pergrad::inline v0_1::on_host
