// SPDX-License-Identifier: Apache-2.0
// tests/host/pairs_test.cpp - even kernels filtered in pairs against the direct products: values, bits, and what lies
// around
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/host/conv/affine.hpp>
#include <pergrad/host/conv/pairs.hpp>
#include <pergrad/host/conv/panels.hpp>
#include <pergrad/host/norms/leaves.hpp>

#include "comparing.hpp"
#include "convolution_fixture.hpp"

BOOST_AUTO_TEST_SUITE(filtering_in_pairs)

namespace {

using namespace kernel_fixture;
using comparing::largest_difference;
using comparing::same_bits;
using scalars = std::tuple<float, double>;

constexpr convolution convolutions[] = {
    {1, 1, 2, 2, 2, 2, 0, 1},  {5, 3, 6, 7, 4, 2, 1, 2},    {17, 70, 9, 8, 4, 4, 2, 3},   {16, 33, 7, 12, 2, 6, 0, 1},
    {24, 8, 9, 9, 6, 4, 0, 2}, {3, 130, 11, 5, 8, 4, 2, 2}, {20, 16, 6, 60, 4, 40, 0, 1}, {64, 64, 12, 13, 8, 8, 0, 1},
};

/// One convolution with the values of its samples, zeros around them.
template <class Scalar>
struct setting {
  convolution of;
  on_host::node_row row = row_of(of);
  on_host::layout x_layout;
  on_host::layout y_layout;
  std::vector<Scalar> weights;
  std::vector<Scalar> bias;
  std::vector<Scalar> x;
  std::vector<Scalar> delta;

  setting(const convolution& which, numbers& random) : of{which} {
    BOOST_TEST_REQUIRE(on_host::fits_in_pairs(row.map));
    row.in_pairs = true;
    x_layout = layout_of(row.map.in_channels, row.map.in_size, on_host::halo_of_input(row));
    y_layout = layout_of(row.map.out_channels, row.map.out_size, on_host::halo_of_delta(row));
    weights = random.several<Scalar>(of.weight_count());
    bias = random.several<Scalar>(number(of.outputs));
    x = values_in(x_layout, of.samples, random, Scalar{0}, on_host::line);
    delta = values_in(y_layout, of.samples, random, Scalar{0}, on_host::line);
  }
  [[nodiscard]] on_host::images<const Scalar> read() const { return {x_layout, x.data(), x_layout.size}; }
  [[nodiscard]] std::vector<Scalar> direct(bool biased) const {
    std::vector<Scalar> panel(weights.size() + number(on_host::line));
    on_host::pack_forward(row.map, weights.data(), panel.data(), 0, of.outputs, on_host::panel_block);
    std::vector<Scalar> y(delta.size(), Scalar{7});
    on_host::through_windows<Scalar>(row, panel.data(), of.samples, read(), {y_layout, y.data(), y_layout.size},
                                     biased ? bias.data() : nullptr, false);
    return y;
  }
  /// Kernels are packed a few outputs at a time; what the room held before does not matter.
  [[nodiscard]] std::vector<Scalar> in_pairs(bool biased, position outputs_together = 1000) const {
    const on_host::pair_extents extents = on_host::extents_in_pairs(row.map);
    std::vector<Scalar> panel(number(9 * extents.of_kernels()));
    for (position n = 0; n < of.outputs; n += outputs_together) {
      on_host::pack_pairs(row.map, weights.data(), panel.data(), n, std::min(of.outputs, n + outputs_together));
    }
    std::vector<Scalar> room(number(extents.room()), std::numeric_limits<Scalar>::quiet_NaN());
    std::vector<Scalar> y(delta.size(), Scalar{7});
    on_host::filter_in_pairs<Scalar>(row, panel.data(), of.samples, read(), {y_layout, y.data(), y_layout.size},
                                     biased ? bias.data() : nullptr, room.data());
    return y;
  }
  /// The leaf of the weights, over x and delta in one stretch of memory.
  [[nodiscard]] on_host::outer_leaf leaf(bool paired) const {
    on_host::outer_leaf result;
    result.outputs = of.outputs;
    result.view_plane = {1, 0, 0};
    result.view[0] = {of.kernel_height, x_layout.row, 0};
    result.view[1] = {of.kernel_width, x_layout.column, 0};
    result.view[2] = {of.channels, 1, 0};
    result.step[0] = {static_cast<position>(row.map.out_size.height), x_layout.row, y_layout.row};
    result.step[1] = {static_cast<position>(row.map.out_size.width), x_layout.column, y_layout.column};
    result.x = {x_layout.start - of.padding * (x_layout.row + x_layout.column), x_layout.size};
    result.delta = {static_cast<position>(x.size()) + y_layout.start, y_layout.size};
    result.find_one_sample();
    result.in_pairs = paired;
    return result;
  }
  [[nodiscard]] std::vector<Scalar> workspace() const {
    std::vector<Scalar> both = x;
    both.insert(both.end(), delta.begin(), delta.end());
    return both;
  }
  [[nodiscard]] std::vector<Scalar> room() const {
    return std::vector<Scalar>(number(on_host::extents_in_pairs(row.map).room()),
                               std::numeric_limits<Scalar>::quiet_NaN());
  }
  /// One sample's gradient, and what is said of its squares.
  [[nodiscard]] std::vector<Scalar> gradient(bool paired, position sample, double& squared) const {
    const on_host::outer_leaf of_weights = leaf(paired);
    const std::vector<Scalar> values = workspace();
    std::vector<Scalar> rest = room();
    std::vector<Scalar> result(weights.size(), std::numeric_limits<Scalar>::quiet_NaN());
    const on_host::leaf_kernel<Scalar> kernel{of_weights, values.data()};
    if (!paired) {
      squared = kernel.instantiate(sample, result.data());
      return result;
    }
    on_host::gradient_in_pairs(of_weights, kernel.x(sample, 0), kernel.delta(sample, 0), result.data(), false,
                               rest.data());
    squared = pergrad::on_host::squares(static_cast<const Scalar*>(result.data()), of_weights.size());
    return result;
  }
  [[nodiscard]] std::vector<Scalar> sum(bool paired) const {
    const on_host::outer_leaf of_weights = leaf(paired);
    const std::vector<Scalar> values = workspace();
    std::vector<Scalar> rest = room();
    std::vector<Scalar> result(weights.size(), Scalar{3});
    const on_host::leaf_kernel<Scalar> kernel{of_weights, values.data()};
    if (!paired) {
      kernel.add_sum(of.samples, result.data(), rest.data());
      return result;
    }
    for (position b = 0; b < of.samples; ++b) {
      on_host::gradient_in_pairs(of_weights, kernel.x(b, 0), kernel.delta(b, 0), result.data(), true, rest.data());
    }
    return result;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(integers_give_the_direct_sums_in_every_target, Scalar, scalars) {
  for (const auto target : every_target) {
    if (!on_host::runs_here(target)) continue;
    const using_target in_use{target};
    numbers random{true};
    for (const convolution& of : convolutions) {
      const setting<Scalar> here{of, random};
      for (const bool biased : {false, true}) {
        BOOST_TEST((here.in_pairs(biased) == here.direct(biased)), to_text(of) << name_of(target));
      }
      BOOST_TEST((here.sum(true) == here.sum(false)), to_text(of) << name_of(target));
      for (position b = 0; b < of.samples; ++b) {
        double squared = 0;
        double expected = 0;
        BOOST_TEST((here.gradient(true, b, squared) == here.gradient(false, b, expected)), to_text(of));
        BOOST_TEST(squared == expected, boost::test_tools::tolerance(1e-14));
      }
    }
  }
}

// Each of nine products errs by a few roundings of its terms, which are up to four times as large along each axis.
BOOST_AUTO_TEST_CASE_TEMPLATE(real_numbers_give_almost_the_direct_sums, Scalar, scalars) {
  numbers random;
  for (const convolution& of : convolutions) {
    const setting<Scalar> here{of, random};
    const auto terms = static_cast<double>(of.channels * of.kernel_height * of.kernel_width);
    constexpr auto unit = 4 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    BOOST_TEST(largest_difference(here.in_pairs(true), here.direct(true)) <= unit * (10 + terms), to_text(of));
    const auto positions = static_cast<double>(here.row.map.out_size.size());
    for (position b = 0; b < of.samples; ++b) {
      double squared = 0;
      double expected = 0;
      const std::vector<Scalar> gradient = here.gradient(true, b, squared);
      BOOST_TEST(largest_difference(gradient, here.gradient(false, b, expected)) <= unit * (10 + positions),
                 to_text(of));
      double of_what_is_written = 0;
      for (const Scalar value : gradient) {
        of_what_is_written += static_cast<double>(value) * static_cast<double>(value);
      }
      constexpr double off = std::is_same_v<Scalar, float> ? on_host::epilogue::error_of_squares_in_float / 2 : 1e-12;
      BOOST_TEST(squared == of_what_is_written, boost::test_tools::tolerance(off));
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_stretch_of_outputs_packs_its_own_kernels_only, Scalar, scalars) {
  numbers random;
  for (const convolution& of : convolutions) {
    const setting<Scalar> here{of, random};
    BOOST_TEST(same_bits(here.in_pairs(true, 16), here.in_pairs(true)), to_text(of));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(another_sample_moves_no_bit, Scalar, scalars) {
  numbers random;
  for (const convolution& of : convolutions) {
    if (of.samples == 1) continue;
    setting<Scalar> here{of, random};
    double squared = 0;
    const std::vector<Scalar> output = here.in_pairs(true);
    const std::vector<Scalar> gradient = here.gradient(true, 0, squared);
    std::fill_n(here.x.begin() + here.x_layout.size, here.x_layout.size, std::numeric_limits<Scalar>::quiet_NaN());
    std::fill_n(here.delta.begin() + here.y_layout.size, here.y_layout.size, std::numeric_limits<Scalar>::infinity());
    std::vector<Scalar> changed = here.in_pairs(true);
    const auto mine = changed.begin() + here.y_layout.size;
    BOOST_TEST(std::any_of(mine, mine + here.y_layout.size, [](Scalar each) { return each != each; }), to_text(of));
    std::copy_n(output.begin() + here.y_layout.size, here.y_layout.size, mine);
    BOOST_TEST(same_bits(changed, output), to_text(of));
    BOOST_TEST(same_bits(here.gradient(true, 0, squared), gradient), to_text(of));
  }
}

BOOST_AUTO_TEST_SUITE_END()
