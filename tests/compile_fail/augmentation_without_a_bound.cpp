// expect-error: layer_without_a_bound<.*augment<.*brighter
// expect-error: an augmentation bounds\(node_bounds\)
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct brighter {
#ifdef COMPILE_FAIL_FIXED
  static pg::certified::effect bounds(const pg::certified::node_bounds& at) {
    return {.y = at.y(2 * at.x.l2, 2 * at.x.largest), .dx = 2};
  }
#endif
  template <class Scalar>
  static void apply(const pg::shape& in, const std::uint32_t* bits, const Scalar* x, Scalar* y) {
    for (std::size_t i = 0; i < in.size(); ++i) y[i] = x[i] * static_cast<Scalar>(1 + bits[0] % 2);
  }
  template <class Scalar>
  static void adjoint(const pg::shape& in, const std::uint32_t* bits, const Scalar* dy, Scalar* dx) {
    apply(in, bits, dy, dx);
  }
};
using net_type = pg::network<pg::shape{4}, pg::into_ball<1.0>, pg::augment<brighter>, pg::linear<2>>;

int main() {
  const pg::host exec;
  const net_type net{exec, pg::layer_default{1}};
  return static_cast<int>(pg::certify(net, pg::cross_entropy{}).bound);
}
