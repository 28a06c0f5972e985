// SPDX-License-Identifier: Apache-2.0
// tests/cuda/attention_test.cpp - attention on tensor cores: products of tiles are those of the host's formulas, with
// rounded operands
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "device_fixture.hpp"
#include "tiled_networks.hpp"

namespace {

/// A head as wide as seven products of tensor cores.
template <class Scalar>
using wide_heads = pergrad::basic_network<Scalar, pergrad::variable(pergrad::shape{67, 168}),
                                          pergrad::scaled_dot_product_attention<1, pergrad::causal>,
                                          pergrad::mean_over_positions, pergrad::linear<3>>;

}  // namespace

namespace pergrad::inline v0_1::on_device {
template <>
inline constexpr plan_kind plan_of<wide_heads<float>> = plan_kind::layered;
}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_attention)

namespace {

using namespace device_fixture;

/// How far a is from b, of b's norm.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  double apart = 0;
  double all = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto wanted = static_cast<double>(b[i]);
    apart += std::pow(static_cast<double>(a[i]) - wanted, 2);
    all += wanted * wanted;
  }
  return std::sqrt(apart / all);
}

/// Samples of all tiles' positions, of a part of the last one's, of one tile's and of a few.
template <class Network, class Device>
void check(const char* what, const pg::device_options& options, double rounding) {
  BOOST_TEST_CONTEXT(what) {
    both<Network, pg::cross_entropy, Device> it{4, emulation_order::forward, 3, options};
    constexpr auto most = static_cast<std::uint32_t>(Network::input_shape.e0);
    const std::vector<std::uint32_t> lengths{most, most - 2, most - most / 3, 3};
    const pg::batch<Network, pg::cross_entropy> batch{it.inputs, it.targets, lengths};
    const auto rows_of = [&](const auto& exec, auto& tape) {
      return pg::unprotected::evaluate(
          exec, pg::materialise(pg::per_sample_gradients(it.net, pg::cross_entropy{}, batch, tape)));
    };
    const std::vector<float> rows = rows_of(it.device, it.device_tape);
    const std::vector<float> wanted = rows_of(it.host, it.host_tape);
    const std::size_t width = rows.size() / lengths.size();
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const auto of_sample = [&](const std::vector<float>& all) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(b * width);
        return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(width));
      };
      const double apart = distance(of_sample(rows), of_sample(wanted));
      BOOST_TEST_MESSAGE(what << ", sample " << b << ": " << apart);
      BOOST_TEST(apart < rounding);
      BOOST_TEST(apart > rounding / 1e4);  // something was rounded
    }
    for (const emulation_order order : {emulation_order::reversed, emulation_order::shuffled}) {
      const Device other{order, options};
      pg::tape<Network> tape{other, pg::max_batch{lengths.size()}, pg::max_sums{4}};
      check_same(rows_of(other, tape), rows, "another order of threads and blocks");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_are_the_hosts_but_for_rounding_to_tf32) {
  check<tiled_networks::tiles_of_attention<float, 4>, pg::emulated>("several tiles", {.tf32 = true}, 0.01);
  check<tiled_networks::long_attention<float, 4>, pg::emulated>("one tile", {.tf32 = true}, 0.01);
  check<wide_heads<float>, pg::emulated>("wide heads", {.tf32 = true}, 0.01);
}
BOOST_AUTO_TEST_CASE(rows_are_the_hosts_but_for_rounding_to_bf16) {
  check<tiled_networks::tiles_of_attention<float, 4>, pg::emulated_bf16>("several tiles", {}, 0.08);
}

BOOST_AUTO_TEST_SUITE_END()
