// SPDX-License-Identifier: Apache-2.0
// tests/host/winograd_test.cpp - convolutions by minimal filtering against the direct products: values, bits, and bytes
// they may not touch
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <pergrad/host/conv/affine.hpp>
#include <pergrad/host/conv/panels.hpp>
#include <pergrad/host/conv/winograd.hpp>

#include "comparing.hpp"
#include "convolution_fixture.hpp"

BOOST_AUTO_TEST_SUITE(minimal_filtering)

namespace {

using namespace kernel_fixture;
using comparing::largest_difference;
using comparing::same_bits;
using scalars = std::tuple<float, double>;

constexpr convolution convolutions[] = {
    {1, 1, 3, 3, 3, 3, 0, 1},     {5, 3, 4, 7, 3, 3, 1, 2},     {17, 70, 5, 4, 3, 3, 2, 3}, {32, 16, 8, 8, 3, 3, 1, 2},
    {16, 33, 7, 6, 3, 3, 0, 1},   {130, 8, 6, 9, 3, 3, 1, 2},   {3, 65, 2, 2, 3, 3, 1, 2},  {40, 40, 1, 5, 3, 3, 1, 3},
    {24, 24, 11, 13, 3, 3, 2, 2}, {64, 64, 16, 16, 3, 3, 1, 1},
};

/// One direction of a convolution: what it reads and writes, with room around.
template <class Scalar>
struct direction {
  const convolution& of;
  bool adjoint;
  on_host::node_row row = row_of(of);
  on_host::winograd_extents extents =
      adjoint ? on_host::winograd_backward(row.map) : on_host::winograd_forward(row.map);
  on_host::layout in = lay_out(true);
  on_host::layout out = lay_out(false);
  std::vector<Scalar> direct_panel = std::vector<Scalar>(number(on_host::panel_elements(row, 0)));
  std::vector<Scalar> panel = std::vector<Scalar>(number(on_host::panel_elements(row, 1)) + on_host::line);

  direction(const convolution& which, bool backward, const std::vector<Scalar>& weights)
      : of{which}, adjoint{backward} {
    BOOST_TEST(on_host::winograd_fits(row.map));
    if (adjoint) {
      on_host::pack_backward(row, weights.data(), direct_panel.data(), 0, of.outputs);
      on_host::pack_winograd_backward(row.map, weights.data(), panel.data(), 0, of.outputs);
    } else {
      on_host::pack_forward(row.map, weights.data(), direct_panel.data(), 0, of.outputs, on_host::panel_block);
      on_host::pack_winograd_forward(row.map, weights.data(), panel.data(), 0, of.outputs);
    }
  }
  [[nodiscard]] on_host::layout lay_out(bool read) {
    row.winograd_rows = row.winograd_dx_rows = 1;
    return adjoint == read ? layout_of(row.map.out_channels, row.map.out_size, read ? halo_of_delta(row) : uneven_halo)
                           : layout_of(row.map.in_channels, row.map.in_size, read ? halo_of_input(row) : uneven_halo);
  }
  [[nodiscard]] on_host::images<const Scalar> read(const std::vector<Scalar>& values, position first = 0) const {
    return {in, values.data() + first * in.size, in.size};
  }
  [[nodiscard]] on_host::images<Scalar> write(std::vector<Scalar>& values, position first = 0) const {
    return {out, values.data() + first * out.size, out.size};
  }
  [[nodiscard]] std::vector<Scalar> direct(const std::vector<Scalar>& x, std::vector<Scalar> y, const Scalar* bias,
                                           bool accumulate) const {
    if (adjoint) {
      on_host::through_adjoint<Scalar>(row, direct_panel.data(), of.samples, read(x), write(y), nullptr, accumulate);
    } else {
      on_host::through_windows<Scalar>(row, direct_panel.data(), of.samples, read(x), write(y), bias, false);
    }
    return y;
  }
  /// Samples [first, last); what the room held before must not matter.
  void filter(const std::vector<Scalar>& x, std::vector<Scalar>& y, const Scalar* bias, bool accumulate,
              position rows_together, position first, position last) {
    row.winograd_rows = row.winograd_dx_rows = rows_together;
    std::vector<Scalar> room(number(extents.room(rows_together)), std::numeric_limits<Scalar>::quiet_NaN());
    if (adjoint) {
      on_host::filter_adjoint<Scalar>(row, panel.data(), last - first, read(x, first), write(y, first), accumulate,
                                      room.data());
    } else {
      on_host::filter_windows<Scalar>(row, panel.data(), last - first, read(x, first), write(y, first), bias,
                                      room.data());
    }
  }
  [[nodiscard]] std::vector<Scalar> filtered(const std::vector<Scalar>& x, std::vector<Scalar> y, const Scalar* bias,
                                             bool accumulate, position rows_together = 2) {
    filter(x, y, bias, accumulate, rows_together, 0, of.samples);
    return y;
  }
  /// Values that are read, 0 around the images.
  [[nodiscard]] std::vector<Scalar> inputs(numbers& random) const {
    return values_in(in, of.samples, random, Scalar{0});
  }
  [[nodiscard]] std::vector<Scalar> outputs_before() const {
    return std::vector<Scalar>(number(of.samples * out.size), Scalar{7});
  }
};

/// Calls f(direction, bias, accumulate, what) for both directions of every convolution.
template <class Scalar, class Function>
void each_direction(numbers& random, Function&& f) {
  for (const convolution& of : convolutions) {
    const auto weights = random.several<Scalar>(of.weight_count());
    const auto bias = random.several<Scalar>(number(of.outputs));
    for (const bool adjoint : {false, true}) {
      for (const bool more : {false, true}) {
        direction<Scalar> way{of, adjoint, weights};
        const bool biased = more && !adjoint;
        f(way, biased ? bias.data() : nullptr, more && adjoint,
          to_text(of) + (adjoint ? ", adjoint" : "") + (more ? ", onto something" : ""));
      }
    }
  }
}

}  // namespace

// The transforms of small integers, and the sums of their products, are exact: quarters at most.
BOOST_AUTO_TEST_CASE_TEMPLATE(integers_give_the_direct_sums_in_every_target, Scalar, scalars) {
  for (const auto target : every_target) {
    if (!on_host::runs_here(target)) continue;
    const using_target in_use{target};
    numbers random{true};
    each_direction<Scalar>(random, [&](auto& way, const Scalar* bias, bool accumulate, const std::string& what) {
      const auto x = way.inputs(random);
      const auto expected = way.direct(x, way.outputs_before(), bias, accumulate);
      BOOST_TEST((way.filtered(x, way.outputs_before(), bias, accumulate) == expected), what << name_of(target));
    });
  }
}

// An error of a transformed sum is at most a few rounding errors of its largest terms: 4 x 4 values, four each.
BOOST_AUTO_TEST_CASE_TEMPLATE(real_numbers_give_almost_the_direct_sums, Scalar, scalars) {
  numbers random;
  each_direction<Scalar>(random, [&](auto& way, const Scalar* bias, bool accumulate, const std::string& what) {
    const auto x = way.inputs(random);
    const auto expected = way.direct(x, way.outputs_before(), bias, accumulate);
    const auto computed = way.filtered(x, way.outputs_before(), bias, accumulate);
    const double terms = 9 * static_cast<double>(way.extents.channels);
    const double allowed = 4 * static_cast<double>(std::numeric_limits<Scalar>::epsilon()) * (10 + terms);
    BOOST_TEST(largest_difference(computed, expected) <= allowed, what);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_bit_depends_on_stripes_or_neighbours, Scalar, scalars) {
  numbers random;
  each_direction<Scalar>(random, [&](auto& way, const Scalar* bias, bool accumulate, const std::string& what) {
    const auto x = way.inputs(random);
    const auto expected = way.filtered(x, way.outputs_before(), bias, accumulate, 1);
    const position rows = way.of.samples * way.extents.patch_rows();
    for (position together = 2; together <= rows + 1; ++together) {
      BOOST_TEST(same_bits(way.filtered(x, way.outputs_before(), bias, accumulate, together), expected), what);
    }
    std::vector<Scalar> alone = way.outputs_before();
    for (position b = way.of.samples; b-- > 0;) way.filter(x, alone, bias, accumulate, 3, b, b + 1);
    BOOST_TEST(same_bits(alone, expected), what);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(another_sample_and_the_rest_of_a_patch_move_no_bit, Scalar, scalars) {
  constexpr Scalar nan = std::numeric_limits<Scalar>::quiet_NaN();
  numbers random;
  each_direction<Scalar>(random, [&](auto& way, const Scalar* bias, bool accumulate, const std::string& what) {
    auto x = way.inputs(random);
    const auto expected = way.filtered(x, way.outputs_before(), bias, accumulate, 2);
    const position size = way.in.size;
    // What lies behind the last window of an odd extent.
    const position seen_rows = way.extents.height + 2;
    const position seen_columns = way.extents.width + 2;
    const position rows = way.extents.height % 2 == 0 ? seen_rows : seen_rows + 1;
    const position columns = way.extents.width % 2 == 0 ? seen_columns : seen_columns + 1;
    const position pad = way.adjoint ? 2 - way.of.padding : way.of.padding;
    const position first = way.in.start - pad * (way.in.row + way.in.column);
    for (position b = 0; b < way.of.samples; ++b) {
      for (position i = 0; i < rows; ++i) {
        for (position j = 0; j < columns; ++j) {
          if (i < seen_rows && j < seen_columns) continue;
          const auto from = x.begin() + b * size + first + i * way.in.row + j * way.in.column;
          BOOST_TEST_REQUIRE((from + way.extents.channels <= x.begin() + (b + 1) * size));
          std::fill_n(from, way.extents.channels, nan);
        }
      }
    }
    BOOST_TEST(same_bits(way.filtered(x, way.outputs_before(), bias, accumulate, 2), expected), what);
    if (way.of.samples == 1) return;
    std::fill_n(x.begin() + size, size, nan);
    auto computed = way.filtered(x, way.outputs_before(), bias, accumulate, 2);
    const auto mine = computed.begin() + way.out.size;
    BOOST_TEST(std::any_of(mine, mine + way.out.size, [](Scalar each) { return each != each; }), what);
    std::copy_n(expected.begin() + way.out.size, way.out.size, mine);
    BOOST_TEST(same_bits(computed, expected), what);
  });
}

// Weights are packed a few outputs at a time.
BOOST_AUTO_TEST_CASE(a_stretch_of_outputs_packs_its_own_weights_only) {
  numbers random;
  for (const convolution& of : convolutions) {
    const auto weights = random.several<float>(of.weight_count());
    const on_host::node_row row = row_of(of);
    const std::size_t size = number(on_host::panel_elements(row, 1));
    std::vector<float> whole(size);
    std::vector<float> parts(size);
    on_host::pack_winograd_forward(row.map, weights.data(), whole.data(), 0, of.outputs);
    for (position n = 0; n < of.outputs; n += 16) {
      on_host::pack_winograd_forward(row.map, weights.data(), parts.data(), n, std::min(of.outputs, n + 16));
    }
    BOOST_TEST(same_bits(whole, parts), to_text(of));
    on_host::pack_winograd_backward(row.map, weights.data(), whole.data(), 0, of.outputs);
    for (position n = 0; n < of.outputs; n += 16) {
      on_host::pack_winograd_backward(row.map, weights.data(), parts.data(), n, std::min(of.outputs, n + 16));
    }
    BOOST_TEST(same_bits(whole, parts), to_text(of));
  }
}

BOOST_AUTO_TEST_SUITE_END()
