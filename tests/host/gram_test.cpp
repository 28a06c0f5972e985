// SPDX-License-Identifier: Apache-2.0
// tests/host/gram_test.cpp - Gram norms against the squares of the gradient itself
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/host/norms/leaves.hpp>

BOOST_AUTO_TEST_SUITE(gram_norms)

namespace on_host = pergrad::on_host;
using position = on_host::index;

namespace {

using scalars = std::tuple<float, double>;

/// Height and width of what has two axes.
struct both {
  position down = 1;
  position across = 1;
};
struct convolution {
  position channels = 1;  ///< of a group, as are outputs
  position outputs = 1;
  both size;
  both kernel{};
  both padding{0, 0};
  both stride{};
  both dilation{};
  position groups = 1;
};
[[nodiscard]] std::string to_text(const convolution& of) {
  const auto text = [](both axes) { return std::to_string(axes.down) + " x " + std::to_string(axes.across); };
  return std::to_string(of.groups) + " groups of " + std::to_string(of.channels) + " to " + std::to_string(of.outputs) +
         ", " + text(of.size) + ", kernel " + text(of.kernel) + ", padding " + text(of.padding) + ", stride " +
         text(of.stride) + ", dilation " + text(of.dilation);
}
[[nodiscard]] position positions_along(const convolution& of, position both::*axis) {
  const position reach = of.dilation.*axis * (of.kernel.*axis - 1);
  return (of.size.*axis + 2 * of.padding.*axis - reach - 1) / of.stride.*axis + 1;
}
[[nodiscard]] bool fits(const convolution& of) {
  const auto along = [&](position both::*axis) {
    return of.size.*axis + 2 * of.padding.*axis > of.dilation.*axis * (of.kernel.*axis - 1);
  };
  return along(&both::down) && along(&both::across);
}

/// One sample of a convolution: leaf, values and their halo.
template <class Scalar>
struct setting {
  convolution of;
  on_host::layout x_layout;
  on_host::layout delta_layout;
  on_host::outer_leaf leaf;
  std::vector<Scalar> values;  ///< x, then delta

  template <class Number>
  setting(const convolution& which, Number&& next, Scalar around = 0) : of{which} {
    const both places{positions_along(of, &both::down), positions_along(of, &both::across)};
    const auto arranged = [&](position channels, both size) {
      return on_host::arrangement{of.groups * channels, size.down, size.across, true, 1};
    };
    x_layout = on_host::lay_out(arranged(of.channels, of.size),
                                {of.padding.down + 1, of.padding.across + 2, of.padding.down, of.padding.across + 1});
    delta_layout = on_host::lay_out(arranged(of.outputs, places), {1, 0, 2, 1});
    leaf.groups = of.groups;
    leaf.outputs = of.outputs;
    leaf.x_group = of.channels;
    leaf.delta_group = of.outputs;
    leaf.view[0] = {of.kernel.down, of.dilation.down * x_layout.row, 0};
    leaf.view[1] = {of.kernel.across, of.dilation.across * x_layout.column, 0};
    leaf.view[2] = {of.channels, 1, 0};
    leaf.step[0] = {places.down, of.stride.down * x_layout.row, delta_layout.row};
    leaf.step[1] = {places.across, of.stride.across * x_layout.column, delta_layout.column};
    leaf.x.offset = x_layout.start - of.padding.down * x_layout.row - of.padding.across * x_layout.column;
    leaf.delta.offset = x_layout.size + delta_layout.start;
    values.assign(static_cast<std::size_t>(x_layout.size), around);
    values.resize(static_cast<std::size_t>(x_layout.size + delta_layout.size),
                  std::numeric_limits<Scalar>::quiet_NaN());
    for (position i = 0; i < x_layout.values.size(); ++i) at(x_layout.position(i)) = static_cast<Scalar>(next());
    for (position i = 0; i < delta_layout.values.size(); ++i) {
      at(x_layout.size + delta_layout.position(i)) = static_cast<Scalar>(next());
    }
  }
  [[nodiscard]] Scalar& at(position i) { return values[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Scalar at(position i) const { return values[static_cast<std::size_t>(i)]; }
  [[nodiscard]] pergrad::norm_bound gram() const { return on_host::leaf_kernel<Scalar>{leaf, values.data()}.gram(0); }
  /// The squared norm of the gradient, element by element.
  [[nodiscard]] long double by_definition() const {
    long double squared = 0;
    const both places{leaf.step[0].extent, leaf.step[1].extent};
    for (position g = 0; g < of.groups; ++g) {
      for (position k = 0; k < of.kernel.down * of.kernel.across * of.channels * of.outputs; ++k) {
        const position output = k % of.outputs;
        const position channel = k / of.outputs % of.channels;
        const position tap = k / of.outputs / of.channels;
        long double element = 0;
        for (position t = 0; t < places.down * places.across; ++t) {
          const position i =
              t / places.across * of.stride.down + tap / of.kernel.across * of.dilation.down - of.padding.down;
          const position j =
              t % places.across * of.stride.across + tap % of.kernel.across * of.dilation.across - of.padding.across;
          if (i < 0 || j < 0 || i >= of.size.down || j >= of.size.across) continue;
          const position pixel = i * of.size.across + j;
          const position x = x_layout.position((g * of.channels + channel) * of.size.down * of.size.across + pixel);
          const position delta = delta_layout.position((g * of.outputs + output) * places.down * places.across + t);
          element += static_cast<long double>(at(x)) * static_cast<long double>(at(x_layout.size + delta));
        }
        squared += element * element;
      }
    }
    return squared;
  }
};

constexpr convolution convolutions[] = {
    {16, 8, {8, 8}, {3, 3}, {1, 1}},
    {5, 3, {7, 7}, {3, 3}, {1, 1}},
    {9, 4, {4, 4}, {3, 3}, {1, 1}},
    {24, 17, {2, 2}, {3, 3}, {1, 1}},
    {3, 2, {9, 5}, {5, 5}, {2, 2}},
    {8, 3, {6, 11}, {4, 2}, {0, 2}},
    {8, 3, {3, 100}, {3, 3}, {1, 1}},
    {2, 3, {100, 3}, {3, 3}, {1, 1}},
    {6, 5, {90, 1}, {5, 1}, {2, 0}},
    {3, 4, {150, 1}, {4, 1}, {3, 0}},
    {6, 5, {1, 70}, {1, 3}, {0, 1}},
    {2, 2, {6, 6}, {3, 3}, {3, 3}},
    {4, 6, {5, 5}, {5, 5}, {0, 0}},
    {4, 6, {6, 5}, {5, 5}, {0, 1}},
    {3, 5, {7, 6}, {1, 1}, {0, 0}},
    {2, 1, {50, 1}, {80, 1}, {40, 0}},
    {1, 1, {1, 130}, {1, 70}, {0, 0}},
    {2, 2, {9, 9}, {3, 3}, {1, 1}, {2, 2}},
    {2, 2, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {2, 2}},
    {3, 2, {6, 8}, {3, 3}, {1, 1}, {1, 2}, {1, 1}, 3},
    {11, 9, {6, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},
    {1, 1, {2, 3}, {2, 2}, {2, 2}},
    {40, 40, {8, 8}, {5, 4}, {5, 4}},
    {2, 3, {23, 47}, {2, 3}, {1, 1}},
};

/// Those above and many more.
template <class Function>
void for_each_convolution(Function&& f) {
  for (const convolution& of : convolutions) f(of);
  std::minstd_rand random{20'261'122};
  const auto up_to = [&](position most) {
    return static_cast<position>(random() % static_cast<unsigned long>(most)) + 1;
  };
  for (int i = 0; i < 300;) {
    convolution of{up_to(20), up_to(20), {up_to(12), up_to(12)}, {up_to(5), up_to(5)}};
    of.padding = {up_to(of.kernel.down + 1) - 1, up_to(of.kernel.across + 1) - 1};
    if (i % 5 == 0) of.stride = {up_to(2), up_to(2)};
    if (i % 7 == 0) of.dilation = {up_to(2), up_to(2)};
    if (i % 4 == 0) of.groups = up_to(3);
    if (!fits(of)) continue;
    ++i;
    f(of);
  }
}

/// Numbers in [-1, 1), or integers of at most 2 in magnitude: of those all sums are exact.
class numbers {
 public:
  explicit numbers(bool integers) : integers_{integers} {}
  [[nodiscard]] double operator()() {
    const auto bits = static_cast<double>(random_());
    return integers_ ? std::floor(std::fmod(bits, 5)) - 2 : bits * 0x1p-30 - 1;
  }

 private:
  std::minstd_rand random_{11};
  bool integers_;
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(integers_give_the_square_itself, Scalar, scalars) {
  numbers next{true};
  for_each_convolution([&](const convolution& of) {
    const setting<Scalar> here{of, next};
    BOOST_TEST(static_cast<long double>(here.gram().squared) == here.by_definition(), to_text(of));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_error_is_within_its_bound, Scalar, scalars) {
  numbers next{false};
  for_each_convolution([&](const convolution& of) {
    const setting<Scalar> here{of, next};
    const pergrad::norm_bound found = here.gram();
    const long double wanted = here.by_definition();
    const auto off = static_cast<double>(std::fabs(static_cast<long double>(found.squared) - wanted));
    BOOST_TEST(off <= found.error, to_text(of) << ": " << off << " instead of " << found.error);
    BOOST_TEST(off <= 1e-12 * static_cast<double>(wanted), to_text(of));
  });
}

// Formed in blocks: positions and widths around what goes together, in columns, lines and images with gaps.
constexpr convolution pixel_maps[] = {
    {5, 3, {7, 1}},     {128, 64, {64, 1}}, {129, 300, {65, 1}}, {40, 700, {130, 1}},
    {257, 9, {1, 200}}, {31, 33, {9, 70}},  {1, 1, {1, 1}},      {64, 127, {3, 64}},
};

BOOST_AUTO_TEST_CASE_TEMPLATE(in_blocks_integers_give_the_square_itself, Scalar, scalars) {
  numbers next{true};
  for (const convolution& of : pixel_maps) {
    setting<Scalar> here{of, next};
    here.leaf.gram_in_blocks = true;
    BOOST_TEST(static_cast<long double>(here.gram().squared) == here.by_definition(), to_text(of));
  }
}
// The dots of floats round more than doubles do: a bound that knew of doubles alone would be too small.
BOOST_AUTO_TEST_CASE_TEMPLATE(in_blocks_the_error_is_within_its_bound, Scalar, scalars) {
  numbers next{false};
  int beyond_doubles = 0;
  for (const convolution& of : pixel_maps) {
    for (const double size : {1.0, 1e-9, 1e-16}) {
      setting<Scalar> here{of, [&] { return size * next(); }};
      const auto in_double = here.gram();
      here.leaf.gram_in_blocks = true;
      const pergrad::norm_bound found = here.gram();
      const auto off = static_cast<double>(std::fabs(static_cast<long double>(found.squared) - here.by_definition()));
      BOOST_TEST(off <= found.error, to_text(of) << ": " << off << " instead of " << found.error);
      beyond_doubles += off > in_double.error ? 1 : 0;
    }
  }
  BOOST_TEST((beyond_doubles > 0) == (std::is_same_v<Scalar, float>));
}
BOOST_AUTO_TEST_CASE_TEMPLATE(in_blocks_nothing_but_errors_is_within_the_bound, Scalar, scalars) {
  for (const position width : {6, 64, 90}) {
    setting<Scalar> here{convolution{301, 5, {width, 1}}, [] { return 0.1; }};
    for (position i = 0; i < here.delta_layout.values.size(); ++i) {
      here.at(here.x_layout.size + here.delta_layout.position(i)) *= static_cast<Scalar>(i % 2 == 0 ? 1 : -1);
    }
    here.leaf.gram_in_blocks = true;
    BOOST_TEST_REQUIRE(here.by_definition() == 0);
    const pergrad::norm_bound found = here.gram();
    BOOST_TEST(found.squared <= found.error);
    BOOST_TEST(found.error > 0);
    here.at(here.x_layout.position(width / 2)) = std::numeric_limits<Scalar>::infinity();
    BOOST_TEST(!std::isfinite(here.gram().squared));
  }
}

// The image is one number everywhere and the deltas of neighbours cancel: where there is no halo, all of the gradient.
BOOST_AUTO_TEST_CASE_TEMPLATE(nothing_but_errors_is_within_the_bound, Scalar, scalars) {
  for (const position width : {6, 8, 12, 40}) {
    const convolution of{101, 5, {8, width + 2}, {3, 3}};
    setting<Scalar> here{of, [] { return 0.1; }};
    const on_host::layout& delta = here.delta_layout;
    for (position i = 0; i < delta.values.size(); ++i) {
      here.at(here.x_layout.size + delta.position(i)) *= static_cast<Scalar>(i % 2 == 0 ? 1 : -1);
    }
    BOOST_TEST_REQUIRE(here.by_definition() == 0);
    const pergrad::norm_bound found = here.gram();
    BOOST_TEST(found.squared <= found.error);
    BOOST_TEST(found.error > 0);
  }
}

// A number that is not finite anywhere shows in the norm, also where a block's last vectors are repeated.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_number_that_is_not_finite_shows, Scalar, scalars) {
  for (const convolution& of :
       {convolution{4, 3, {5, 7}, {3, 3}, {1, 1}}, convolution{4, 3, {5, 7}, {3, 3}, {1, 1}, {2, 2}}}) {
    for (const Scalar bad : {std::numeric_limits<Scalar>::infinity(), std::numeric_limits<Scalar>::quiet_NaN()}) {
      for (const position pixel : {0, 17, 34}) {
        numbers next{false};
        setting<Scalar> here{of, next};
        here.at(here.x_layout.position(pixel)) = bad;
        BOOST_TEST(!std::isfinite(here.gram().squared), to_text(of));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
