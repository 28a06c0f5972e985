// expect-error: layer_without_a_bound<.*twice
// expect-error: a layer of your own says element_bounds or bounds
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct twice {
#ifdef COMPILE_FAIL_FIXED
  static constexpr pg::certified::element_bounds element_bounds{.slope = 2};
#endif
  template <class Value>
  static Value value(Value x) {
    return x + x;
  }
  template <class Value>
  static Value derivative(Value x, Value) {
    return x - x + 2;
  }
};
using net_type = pg::network<pg::shape{4}, pg::into_ball<1.0>, pg::linear<3>, twice, pg::linear<2>>;

int main() {
  const pg::host exec;
  const net_type net{exec, pg::layer_default{1}};
  return static_cast<int>(pg::certify(net, pg::cross_entropy{}).bound);
}
