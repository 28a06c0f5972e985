// SPDX-License-Identifier: Apache-2.0
// tests/cuda/gemm_test.cpp - the tiled products against plain loops: the same chains of fma, hence the same bits
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/gemm_affine.hpp>
#include <pergrad/cuda/kernels/sums.hpp>

#include "comparing.hpp"
#include "normal_numbers.hpp"

BOOST_AUTO_TEST_SUITE(cuda_gemm)

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;
using comparing::same_bits;

constexpr dev::emulation_order orders[] = {dev::emulation_order::forward, dev::emulation_order::reversed,
                                           dev::emulation_order::shuffled};

template <class Scalar>
std::vector<Scalar> numbers(std::size_t count, std::uint64_t salt) {
  std::vector<Scalar> values(count);
  fill_normal(std::span{values}, salt);
  return values;
}

struct axis_of_map {
  int in, kernel, stride, padding, dilation;
};

/// A view of images (channels outside) or of rows of features (channels inside).
dev::affine_view make_view(int groups, int channels, int outputs, const axis_of_map (&each)[3], bool outside) {
  dev::affine_view v;
  v.groups = groups;
  v.channels = channels;
  v.outputs = outputs;
  for (int a = 0; a < 3; ++a) {
    v.in[a] = each[a].in;
    v.kernel[a] = each[a].kernel;
    v.stride[a] = each[a].stride;
    v.padding[a] = each[a].padding;
    v.dilation[a] = each[a].dilation;
    v.out[a] = (each[a].in + 2 * each[a].padding - each[a].dilation * (each[a].kernel - 1) - 1) / each[a].stride + 1;
  }
  const auto lay_out = [outside](const int(&size)[3], int all, int(&step)[3], int& channel) {
    const int inner = outside ? 1 : all;
    step[2] = inner;
    step[1] = inner * size[2];
    step[0] = inner * size[2] * size[1];
    channel = outside ? size[0] * size[1] * size[2] : 1;
  };
  lay_out(v.in, groups * channels, v.x_step, v.x_channel);
  lay_out(v.out, groups * outputs, v.y_step, v.y_output);
  v.x_group = channels * v.x_channel;
  v.y_group = outputs * v.y_output;
  return v;
}

struct named_view {
  const char* name;
  dev::affine_view view;
};
const std::vector<named_view>& views() {
  static const std::vector<named_view> all{
      {"linear", make_view(1, 70, 37, {{1, 1, 1, 0, 1}, {1, 1, 1, 0, 1}, {1, 1, 1, 0, 1}}, true)},
      {"linear on positions", make_view(1, 9, 6, {{1, 1, 1, 0, 1}, {1, 1, 1, 0, 1}, {7, 1, 1, 0, 1}}, false)},
      {"conv2d", make_view(1, 3, 5, {{1, 1, 1, 0, 1}, {6, 3, 1, 1, 1}, {7, 3, 1, 1, 1}}, true)},
      {"strided, dilated, grouped", make_view(2, 2, 3, {{1, 1, 1, 0, 1}, {9, 3, 2, 2, 2}, {8, 2, 3, 1, 1}}, true)},
      {"conv3d", make_view(1, 2, 2, {{4, 2, 1, 1, 1}, {3, 2, 2, 0, 1}, {5, 3, 1, 1, 2}}, true)},
      {"the whole image", make_view(1, 2, 40, {{1, 1, 1, 0, 1}, {5, 5, 1, 0, 1}, {4, 4, 1, 0, 1}}, true)},
      {"many outputs", make_view(1, 3, 140, {{1, 1, 1, 0, 1}, {1, 1, 1, 0, 1}, {9, 2, 1, 0, 1}}, true)},
  };
  return all;
}

/// Element k = (channel, tap) of view t in x: from the definition, with divisions. Negative: padding.
int view_of(const dev::affine_view& v, int group, int t, int k) {
  const int tap = k % v.taps();
  const int at[3] = {t / v.out[2] / v.out[1], t / v.out[2] % v.out[1], t % v.out[2]};
  const int of_kernel[3] = {tap / v.kernel[2] / v.kernel[1], tap / v.kernel[2] % v.kernel[1], tap % v.kernel[2]};
  int offset = group * v.x_group + k / v.taps() * v.x_channel;
  for (int a = 0; a < 3; ++a) {
    const int pixel = at[a] * v.stride[a] - v.padding[a] + of_kernel[a] * v.dilation[a];
    if (pixel < 0 || pixel >= v.in[a]) return -1;
    offset += pixel * v.x_step[a];
  }
  return offset;
}
int output_of(const dev::affine_view& v, int group, int output, int t) {
  return group * v.y_group + output * v.y_output + t / v.out[2] / v.out[1] * v.y_step[0] +
         t / v.out[2] % v.out[1] * v.y_step[1] + t % v.out[2] * v.y_step[2];
}

/// What privacy/clip.hpp has room for, and of doubles.
template <class Scalar>
constexpr double error_of_squares = sizeof(Scalar) == 4 ? 0x1p-21 : 1e-13;

/// A physical batch with workspaces [x | y | something else], weights, factors and a state.

template <class Scalar>
struct setting {
  dev::affine_view view;
  int x_size, y_size;
  std::int64_t stretch;
  std::vector<Scalar> values, weights, bias, factors;
  dev::step_state state;
  int most;

  setting(const dev::affine_view& of, int samples, int capacity)
      : view{of},
        x_size{of.groups * of.channels * of.pixels()},
        y_size{of.groups * of.outputs * of.positions()},
        stretch{x_size + y_size + 3},
        values(numbers<Scalar>(static_cast<std::size_t>(capacity * stretch), 1)),
        weights(numbers<Scalar>(static_cast<std::size_t>(of.size()), 2)),
        bias(numbers<Scalar>(static_cast<std::size_t>(of.groups * std::max(of.outputs, of.channels)), 3)),
        factors(numbers<Scalar>(static_cast<std::size_t>(capacity), 4)),
        most{capacity} {
    state.count = static_cast<std::uint32_t>(samples);
  }
  [[nodiscard]] dev::affine_operands<Scalar> operands() {
    dev::affine_operands<Scalar> on;
    on.map = dev::geometry{view};
    on.values.workspace = values.data();
    on.values.stretch = stretch;
    on.state = &state;
    on.weights = weights.data();
    on.bias = bias.data();
    on.x = 0;
    on.y = x_size;
    on.most_samples = most;
    return on;
  }
  /// As layers store what they hand on.
  void round_values(dev::stored_format format) {
    for (Scalar& value : values) value = dev::stored_as(format, value);
  }
  [[nodiscard]] Scalar& x(int b, int offset) { return values[static_cast<std::size_t>(b * stretch + offset)]; }
  [[nodiscard]] Scalar& y(int b, int offset) { return values[static_cast<std::size_t>(b * stretch + x_size + offset)]; }
  [[nodiscard]] Scalar seen(int b, int group, int t, int k) {
    const int offset = view_of(view, group, t, k);
    return offset < 0 ? Scalar{0} : x(b, offset);
  }
};

template <class Sizes, class Scalar, class Problem>
void emulate(const Problem& problem, dev::emulation_order order) {
  const dev::gemm_kernel<Scalar, Problem, Sizes> kernel{problem};
  dev::emulate(kernel, kernel.blocks(), order);
}

template <class Scalar>
void expect_forward(setting<Scalar>& it, bool accumulate) {
  const dev::affine_view& v = it.view;
  for (int b = 0; b < static_cast<int>(it.state.count); ++b) {
    for (int g = 0; g < v.groups; ++g) {
      for (int o = 0; o < v.outputs; ++o) {
        for (int t = 0; t < v.positions(); ++t) {
          Scalar& y = it.y(b, output_of(v, g, o, t));
          Scalar sum = accumulate ? y : it.bias[static_cast<std::size_t>(g * v.outputs + o)];
          for (int k = 0; k < v.view_width(); ++k) {
            sum = std::fma(it.weights[static_cast<std::size_t>((g * v.outputs + o) * v.view_width() + k)],
                           it.seen(b, g, t, k), sum);
          }
          y = sum;
        }
      }
    }
  }
}
/// Pushes instead of pulling: every output to all pixels that it saw. Sums in another order than the kernel.
template <class Scalar>
void expect_adjoint(setting<Scalar>& it, std::vector<double>& sums) {
  const dev::affine_view& v = it.view;
  sums.assign(static_cast<std::size_t>(it.most * it.x_size), 0.0);
  for (int b = 0; b < static_cast<int>(it.state.count); ++b) {
    for (int g = 0; g < v.groups; ++g) {
      for (int o = 0; o < v.outputs; ++o) {
        for (int t = 0; t < v.positions(); ++t) {
          for (int k = 0; k < v.view_width(); ++k) {
            const int offset = view_of(v, g, t, k);
            if (offset < 0) continue;
            sums[static_cast<std::size_t>(b * it.x_size + offset)] +=
                static_cast<double>(it.weights[static_cast<std::size_t>((g * v.outputs + o) * v.view_width() + k)]) *
                static_cast<double>(it.y(b, output_of(v, g, o, t)));
          }
        }
      }
    }
  }
}

/// A weight's element of sample b's gradient: a chain over the positions of each chunk, then chunk after chunk.
template <class Scalar>
Scalar gradient_of(setting<Scalar>& it, int b, int g, int o, int k, int chunks) {
  const dev::affine_view& v = it.view;
  const int chunk = (v.positions() + chunks - 1) / chunks;
  Scalar gradient = 0;
  for (int first = 0; first < v.positions(); first += chunk) {
    Scalar sum = 0;
    for (int t = first; t < std::min(first + chunk, v.positions()); ++t) {
      sum = std::fma(it.y(b, output_of(v, g, o, t)), it.seen(b, g, t, k), sum);
    }
    gradient = first == 0 ? sum : gradient + sum;
  }
  return gradient;
}
/// accumulator[weight] += f(what a sample adds), sample after sample. `stride`: from accumulator to accumulator. Small
/// shares of one position are rounded once.
template <dev::share_kind Kind, class Scalar, class Sum>
void add_shares(setting<Scalar>& it, std::vector<Sum>& accumulators, int accumulator_count, std::uint64_t position,
                int chunks, Scalar to_grid) {
  const dev::affine_view& v = it.view;
  for (int b = 0; b < static_cast<int>(it.state.count); ++b) {
    const auto accumulator = (position + static_cast<std::uint64_t>(b)) % static_cast<std::uint64_t>(accumulator_count);
    for (int g = 0; g < v.groups; ++g) {
      for (int o = 0; o < v.outputs; ++o) {
        for (int k = 0; k < v.view_width(); ++k) {
          Sum& sum = accumulators[accumulator * static_cast<std::size_t>(v.size() + 2) +
                                  static_cast<std::size_t>((g * v.outputs + o) * v.view_width() + k)];
          const Scalar factor = it.factors[static_cast<std::size_t>(b)];
          if (factor == 0) continue;
          // Of one position w delta is formed first, of several the gradient.
          const bool one = v.positions() == 1;
          const Scalar left = one ? factor * it.y(b, output_of(v, g, o, 0)) : factor;
          const Scalar right = one ? it.seen(b, g, 0, k) : gradient_of(it, b, g, o, k, chunks);
          if constexpr (std::is_integral_v<Sum>) {
            const bool once = one && Kind == dev::share_kind::shifted;
            sum += once ? std::llrint(double{left} * double{right} * double{to_grid})
                        : std::llrint(left * right * to_grid);
          } else {
            sum = std::fma(left, right, sum);
          }
        }
      }
    }
  }
}
/// The same by kernels: one product over the samples, or, with several positions, shares of integers where there is one
/// chunk, else partial sums of `together` samples at a time, added up.
template <class Sizes, dev::share_kind Kind = dev::share_kind::any, class Scalar, class Sum>
void emulate_sums(setting<Scalar>& it, std::vector<Sum>& accumulators, int accumulator_count, std::uint64_t position,
                  bool first, int chunks, Scalar to_grid, dev::emulation_order order, int parts = 1) {
  it.state.position = position;
  it.state.first = first ? 1 : 0;
  if (it.view.positions() == 1) {
    dev::affine_sums<Scalar, Sum, Kind> problem;
    problem.on = it.operands();
    problem.factors = it.factors.data();
    problem.to_grid = to_grid;
    if constexpr (Kind != dev::share_kind::any) problem.shares = dev::small_shares<Kind>{to_grid};
    problem.accumulators = accumulators.data();
    problem.accumulator_stride = it.view.size() + 2;
    problem.accumulator_count = accumulator_count;
    return emulate<Sizes, Scalar>(problem, order);
  }
  if constexpr (std::is_integral_v<Sum> && Sizes::own_rows * Sizes::own_columns <= 32) {
    if (chunks == 1) {
      dev::affine_shares<Scalar, Kind> problem;
      problem.on = it.operands();
      problem.factors = it.factors.data();
      problem.to_grid = to_grid;
      if constexpr (Kind != dev::share_kind::any) problem.shares = dev::small_shares<Kind>{to_grid};
      problem.sums = accumulators.data();
      problem.parts = parts;
      return emulate<Sizes, Scalar>(problem, order);
    }
  }
  const int together = 3;
  std::vector<Scalar> partials(static_cast<std::size_t>(together * chunks * it.view.size()),
                               std::numeric_limits<Scalar>::quiet_NaN());
  for (int begin = 0; begin < it.most; begin += together) {
    dev::affine_partials<Scalar> problem;
    problem.on = it.operands();
    problem.on.most_samples = std::min(together, it.most - begin);
    problem.partials = partials.data();
    problem.first_sample = begin;
    problem.chunks = dev::divisor{chunks};
    problem.chunk = (it.view.positions() + chunks - 1) / chunks;
    emulate<Sizes, Scalar>(problem, order);
    dev::fold_partials_kernel<Scalar, Sum> fold;
    fold.gradients = {&it.state, partials.data(), begin, problem.on.most_samples, chunks, it.view.size()};
    fold.factors = it.factors.data();
    fold.to_grid = to_grid;
    fold.accumulators = accumulators.data();
    fold.accumulator_stride = it.view.size() + 2;
    fold.accumulator_count = accumulator_count;
    dev::emulate(fold, fold.blocks(), order);
  }
}
/// Small shares have fewer steps.
template <class Scalar, class Sum, class Sizes, dev::share_kind Kind = dev::share_kind::any>
void sums(const dev::affine_view& view, dev::emulation_order order) {
  constexpr int samples = 5;
  constexpr int capacity = 7;
  constexpr auto to_grid = Scalar(Kind == dev::share_kind::any ? 1 << 18 : 1 << 15);
  for (const int accumulator_count : {1, 3, 8}) {
    const bool is_integral = std::is_integral_v<Sum>;
    const int chunks = is_integral && accumulator_count == 8 ? 1 : std::min(accumulator_count, view.positions());
    setting<Scalar> it{view, samples, capacity};
    it.factors[1] = 0;
    it.x(1, 0) = std::numeric_limits<Scalar>::quiet_NaN();
    it.y(1, 0) = std::numeric_limits<Scalar>::infinity();
    const auto size = static_cast<std::size_t>(accumulator_count * (view.size() + 2));
    std::vector<Sum> accumulators(size, Sum(7));
    std::vector<Sum> expected(size, Sum(7));
    // Sums of integers begin with what is there, all others with the batch.
    for (int accumulator = 0; !is_integral && accumulator < accumulator_count; ++accumulator) {
      for (int i = 0; i < view.size(); ++i) expected[static_cast<std::size_t>(accumulator * (view.size() + 2) + i)] = 0;
    }
    const int taken = is_integral ? 1 : accumulator_count;  // by samples
    add_shares<Kind>(it, expected, taken, 2, chunks, to_grid);
    add_shares<Kind>(it, expected, taken, 2 + samples, chunks, to_grid);
    const int parts = accumulator_count - accumulator_count / 8 * 4;  // 1, 3, 4 of 7 samples
    emulate_sums<Sizes, Kind>(it, accumulators, accumulator_count, 2, true, chunks, to_grid, order, parts);
    emulate_sums<Sizes, Kind>(it, accumulators, accumulator_count, 2 + samples, false, chunks, to_grid, order, parts);
    BOOST_TEST(std::memcmp(accumulators.data(), expected.data(), size * sizeof(Sum)) == 0);
  }
}

template <class Scalar, class Sizes>
void all_products(const dev::affine_view& view, dev::emulation_order order) {
  sums<Scalar, std::int64_t, Sizes>(view, order);
  if constexpr (std::is_same_v<Scalar, float>) {
    sums<float, std::int64_t, Sizes, dev::share_kind::converted>(view, order);
    sums<float, std::int64_t, Sizes, dev::share_kind::shifted>(view, order);
  }
  sums<Scalar, Scalar, Sizes>(view, order);
  constexpr int samples = 5;
  constexpr int capacity = 7;
  for (const bool accumulate : {false, true}) {
    setting<Scalar> it{view, samples, capacity};
    setting<Scalar> expected = it;
    dev::affine_forward<Scalar> problem{it.operands()};
    problem.on.accumulate = accumulate ? 1 : 0;
    emulate<Sizes, Scalar>(problem, order);
    expect_forward(expected, accumulate);
    BOOST_TEST(same_bits(it.values, expected.values));
    if (view.positions() > 1) continue;
    setting<Scalar> again{view, samples, capacity};
    dev::affine_forward<Scalar, true> one{again.operands()};
    one.on.accumulate = problem.on.accumulate;
    emulate<Sizes, Scalar>(one, order);
    BOOST_TEST(same_bits(again.values, expected.values));
  }
  if (view.positions() * view.pixels() * view.taps() == 1) {
    setting<Scalar> it{view, samples, capacity};
    setting<Scalar> expected = it;
    emulate<Sizes, Scalar>(dev::affine_adjoint<Scalar>{expected.operands()}, order);
    emulate<Sizes, Scalar>(dev::affine_adjoint<Scalar, true>{it.operands()}, order);
    BOOST_TEST(same_bits(it.values, expected.values));
  }
  for (const bool accumulate : {false, true}) {  // of views without strides there is one class
    setting<Scalar> it{view, samples, capacity};
    setting<Scalar> expected = it;
    for (int first = 0; first < dev::stride_class::count(view); first += 8) {
      dev::affine_strided_adjoint<Scalar> problem{it.operands(), {}, first};
      problem.on.accumulate = accumulate ? 1 : 0;
      emulate<Sizes, Scalar>(problem, order);
    }
    dev::affine_adjoint<Scalar> whole{expected.operands()};
    whole.on.accumulate = accumulate ? 1 : 0;
    emulate<Sizes, Scalar>(whole, order);
    BOOST_TEST(same_bits(it.values, expected.values));
  }
  {
    setting<Scalar> it{view, samples, capacity};
    const setting<Scalar> before = it;
    std::vector<double> sums;
    expect_adjoint(it, sums);
    dev::affine_adjoint<Scalar> problem{it.operands()};
    problem.on.bias = nullptr;
    emulate<Sizes, Scalar>(problem, order);
    double worst = 0;
    for (int b = 0; b < samples; ++b) {
      for (int i = 0; i < it.x_size; ++i) {
        worst = std::max(worst,
                         std::abs(static_cast<double>(it.x(b, i)) - sums[static_cast<std::size_t>(b * it.x_size + i)]));
      }
    }
    BOOST_TEST(worst < (sizeof(Scalar) == 4 ? 2e-5 : 1e-13));
    it.state.count = capacity;  // nothing else was written
    for (int b = 0; b < capacity; ++b) {
      for (int i = b < samples ? it.x_size : 0; i < it.stretch; ++i) {
        const auto at = static_cast<std::size_t>(b * it.stretch + i);
        BOOST_REQUIRE(std::memcmp(&it.values[at], &before.values[at], sizeof(Scalar)) == 0);
      }
    }
  }
  {
    setting<Scalar> it{view, samples, capacity};
    for (int i = 0; i < it.y_size; ++i) {  // so large, small and zero that no float holds their squares
      it.y(0, i) *= Scalar(1e22);
      it.y(1, i) *= Scalar(1e-25);
      if (i % view.positions() < view.positions() / 2) it.y(2, i) = 0;
    }
    dev::affine_squares<Scalar> problem;
    problem.on = it.operands();
    const dev::gemm_kernel<Scalar, dev::affine_squares<Scalar>, Sizes> measure{problem};
    problem.blocks = measure.row_blocks() * measure.column_blocks();
    problem.partial_stride = view.groups * problem.blocks + 1;
    std::vector<double> partial(static_cast<std::size_t>(capacity * problem.partial_stride), -1);
    problem.partial = partial.data();
    std::vector<Scalar> kept(static_cast<std::size_t>(capacity * view.size()), -1);
    std::vector<Scalar> gradients(kept);
    problem.gradients = kept.data();
    emulate<Sizes, Scalar>(problem, order);
    dev::affine_partials<Scalar> form;
    form.on = it.operands();
    form.partials = gradients.data();
    form.chunk = view.positions();
    emulate<Sizes, Scalar>(form, order);
    BOOST_TEST((std::memcmp(kept.data(), gradients.data(), kept.size() * sizeof(Scalar)) == 0));
    for (int b = 0; b < capacity; ++b) {
      const auto begin = static_cast<std::size_t>(b * problem.partial_stride);
      double total = 0;
      for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(problem.partial_stride); ++i)
        total += partial[begin + i];
      if (b >= samples) {
        BOOST_TEST(total == -static_cast<double>(problem.partial_stride - 1));
        continue;
      }
      double expected = 0;
      for (int g = 0; g < view.groups; ++g) {
        for (int o = 0; o < view.outputs; ++o) {
          for (int k = 0; k < view.view_width(); ++k) {
            Scalar sum = 0;
            for (int t = 0; t < view.positions(); ++t) {
              sum = std::fma(it.y(b, output_of(view, g, o, t)), it.seen(b, g, t, k), sum);
            }
            expected += static_cast<double>(sum) * static_cast<double>(sum);
          }
        }
      }
      BOOST_TEST(std::abs(total - expected) <= error_of_squares<Scalar> * expected);
    }
  }
}

/// Of two settings: the largest difference of their values.
template <class Scalar>
double worst_difference(const setting<Scalar>& a, const setting<Scalar>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])));
  }
  return worst;
}

template <class Sizes>
constexpr dev::stored_format format_of =
    std::is_same_v<typename Sizes::format, dev::bf16_format> ? dev::stored_format::bf16 : dev::stored_format::tf32;

/// Products on tensor cores, beside those of rounded operands that are chains.
template <class Tensor, class Chains>
void products_on_tensor_cores(const dev::affine_view& view, dev::emulation_order order) {
  constexpr int samples = 5;
  constexpr int capacity = 7;
  const auto both = [&]<class Problem>(Problem, bool accumulate) {
    setting<float> it{view, samples, capacity};
    it.round_values(format_of<Tensor>);
    setting<float> expected = it;
    Problem problem{it.operands()};
    Problem same{expected.operands()};
    for (Problem* each : {&problem, &same}) {
      each->on.format = format_of<Tensor>;
      each->on.accumulate = accumulate ? 1 : 0;
    }
    emulate<Tensor, float>(problem, order);
    emulate<Chains, float>(same, order);
    BOOST_TEST(worst_difference(it, expected) < 1e-4);
    expected = setting<float>{view, samples, capacity};
    same = Problem{expected.operands()};  // of operands that are not rounded
    same.on.accumulate = accumulate ? 1 : 0;
    emulate<Chains, float>(same, order);
    BOOST_TEST(worst_difference(it, expected) > 3e-4);
  };
  both(dev::affine_forward<float>{}, false);
  both(dev::affine_forward<float>{}, true);
  both(dev::affine_adjoint<float>{}, false);
  // What is squared is what is added, bit for bit.
  setting<float> it{view, samples, capacity};
  it.round_values(format_of<Tensor>);
  const dev::gemm_kernel<float, dev::affine_squares<float>, Tensor> measure{{.on = it.operands()}};
  const int blocks = 2 * measure.row_blocks() * measure.column_blocks() + 1;  // more places than there are squares
  std::vector<double> squares(static_cast<std::size_t>(capacity * view.groups * blocks), -1);
  dev::affine_squares<float> problem;
  problem.on = it.operands();
  problem.on.format = format_of<Tensor>;
  problem.partial = squares.data();
  problem.partial_stride = view.groups * blocks;
  problem.blocks = blocks;
  std::vector<float> kept(static_cast<std::size_t>(capacity * view.size()), -1);
  problem.gradients = kept.data();
  emulate<Tensor, float>(problem, order);
  for (const int chunks : {1, 2}) {
    if (chunks > view.positions()) break;
    std::vector<float> gradients(static_cast<std::size_t>(capacity * chunks * view.size()), -1);
    dev::affine_partials<float> partials;
    partials.on = it.operands();
    partials.on.format = format_of<Tensor>;
    partials.partials = gradients.data();
    partials.chunks = dev::divisor{chunks};
    partials.chunk = (view.positions() + chunks - 1) / chunks;
    emulate<Tensor, float>(partials, order);
    if (chunks == 1) {
      BOOST_TEST((std::memcmp(kept.data(), gradients.data(), kept.size() * sizeof(float)) == 0));
      const auto size = static_cast<std::size_t>(view.size());
      std::vector<std::int64_t> shares(size);
      dev::affine_shares<float> sum;
      sum.on = it.operands();
      sum.on.format = format_of<Tensor>;
      sum.factors = it.factors.data();
      sum.to_grid = 1 << 18;
      sum.sums = shares.data();
      sum.parts = 2;
      emulate<Tensor, float>(sum, order);
      for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t b = 0; b < samples; ++b) {
          shares[i] -= dev::to_integer(it.factors[b] * gradients[b * size + i] * sum.to_grid);
        }
      }
      BOOST_TEST(std::ranges::count(shares, 0) == view.size());
    }
    for (int b = 0; b < samples; ++b) {
      double total = 0;
      double worst = 0;
      for (int g = 0; g < view.groups; ++g) {
        for (int o = 0; o < view.outputs; ++o) {
          for (int k = 0; k < view.view_width(); ++k) {
            float sum = 0;
            for (int chunk = 0; chunk < chunks; ++chunk) {
              sum += gradients[static_cast<std::size_t>(
                  (((b * chunks + chunk) * view.groups + g) * view.outputs + o) * view.view_width() + k)];
            }
            total += static_cast<double>(sum) * static_cast<double>(sum);
            worst = std::max(worst, std::abs(static_cast<double>(sum - gradient_of(it, b, g, o, k, chunks))));
          }
        }
      }
      BOOST_TEST(worst < 1e-4);
      const auto begin = squares.begin() + std::ptrdiff_t{b} * view.groups * blocks;
      const double squared = std::accumulate(begin, begin + view.groups * blocks, 0.0);
      BOOST_TEST(std::abs(squared - total) <= (chunks == 1 ? error_of_squares<float> : 1e-5) * total);
    }
    BOOST_TEST(
        std::ranges::all_of(std::span{gradients}.subspan(static_cast<std::size_t>(samples * chunks * view.size())),
                            [](float value) { return value == -1; }));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_divisor_divides) {
  for (const int by : {1, 2, 3, 5, 7, 10, 64, 641, 6700417, 0x7fffffff}) {
    const dev::divisor d{by};
    for (const int n : {0, 1, 2, 63, 64, 65, 6700416, 6700417, 1 << 30, 0x7ffffffe, 0x7fffffff}) {
      BOOST_TEST(d.quotient(n) == n / by);
      int quotient = n;
      BOOST_TEST(d.divide(quotient) == n % by);
      BOOST_TEST(quotient == n / by);
    }
    for (int n = 1; n > 0 && n < 0x7fffffff - 1000003; n += 1000003) BOOST_REQUIRE(d.quotient(n) == n / by);
  }
}

BOOST_AUTO_TEST_CASE(products_are_the_loops_chains) {
  for (const named_view& each : views()) {
    BOOST_TEST_CONTEXT(each.name) {
      for (const dev::emulation_order order : orders) {
        all_products<float, dev::square_block>(each.view, order);
        all_products<float, dev::narrow_block>(each.view, order);
      }
      all_products<float, dev::slim_block>(each.view, dev::emulation_order::shuffled);
      all_products<float, dev::strip_block>(each.view, dev::emulation_order::shuffled);
      all_products<float, dev::tiny_block>(each.view, dev::emulation_order::reversed);
      all_products<float, dev::small_block>(each.view, dev::emulation_order::reversed);
      all_products<double, dev::double_block>(each.view, dev::emulation_order::reversed);
    }
  }
}

using formats = std::tuple<dev::tf32_format, dev::bf16_format>;

BOOST_AUTO_TEST_CASE_TEMPLATE(tensor_cores_form_the_products_of_rounded_operands, Format, formats) {
  using blocks = dev::tensor_blocks<Format>;
  for (const named_view& each : views()) {
    BOOST_TEST_CONTEXT(each.name) {
      for (const dev::emulation_order order : orders) {
        products_on_tensor_cores<typename blocks::square, dev::square_block>(each.view, order);
        products_on_tensor_cores<typename blocks::narrow, dev::narrow_block>(each.view, order);
      }
      products_on_tensor_cores<typename blocks::large, dev::square_block>(each.view, dev::emulation_order::shuffled);
      products_on_tensor_cores<typename blocks::wide, dev::square_block>(each.view, dev::emulation_order::shuffled);
      products_on_tensor_cores<typename blocks::broad, dev::square_block>(each.view, dev::emulation_order::shuffled);
      products_on_tensor_cores<typename blocks::vast, dev::square_block>(each.view, dev::emulation_order::reversed);
      products_on_tensor_cores<typename blocks::wide_of_shares, dev::square_block>(each.view,
                                                                                   dev::emulation_order::reversed);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_bit_depends_on_the_blocks_of_tensor_cores, Format, formats) {
  using blocks = dev::tensor_blocks<Format>;
  constexpr int samples = 5;
  for (const named_view& each : views()) {
    BOOST_TEST_CONTEXT(each.name) {
      const auto formed = [&]<class Tensor>(Tensor) {
        setting<float> it{each.view, samples, samples};
        dev::affine_forward<float> forward{it.operands()};
        dev::affine_adjoint<float> adjoint{it.operands()};
        dev::affine_partials<float> gradients;
        gradients.on = it.operands();
        std::vector<float> partials(static_cast<std::size_t>(samples * each.view.size()));
        gradients.partials = partials.data();
        gradients.chunk = each.view.positions();
        forward.on.format = adjoint.on.format = gradients.on.format = format_of<Tensor>;
        emulate<Tensor, float>(gradients, dev::emulation_order::forward);
        emulate<Tensor, float>(forward, dev::emulation_order::forward);
        emulate<Tensor, float>(adjoint, dev::emulation_order::forward);
        partials.insert(partials.end(), it.values.begin(), it.values.end());
        return partials;
      };
      const std::vector<float> wanted = formed(typename blocks::square{});
      const auto same = [&](const std::vector<float>& found) {
        return found.size() == wanted.size() &&
               std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)) == 0;
      };
      BOOST_TEST(same(formed(typename blocks::narrow{})));
      BOOST_TEST(same(formed(typename blocks::large{})));
      BOOST_TEST(same(formed(typename blocks::wide{})));
      BOOST_TEST(same(formed(typename blocks::broad{})));
      BOOST_TEST(same(formed(typename blocks::vast{})));
      BOOST_TEST(same(formed(typename blocks::wide_of_shares{})));
      BOOST_TEST(same(formed(typename blocks::narrow_of_shares{})));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_warps_product_lies_where_the_manual_says) {
  // PTX ISA, mma.m16n8k8 with .tf32: of register i of a thread with this group and number in it.
  const std::vector<float> left = numbers<float>(16 * 8, 1);
  const std::vector<float> right = numbers<float>(8 * 8, 2);
  dev::tensor_registers from[32];
  float c[32][4];
  const auto at = [](int row, int width, int column) { return static_cast<std::size_t>(row * width + column); };
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2;
    const int in_group = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = i == 0 || i == 2 ? group : group + 8;
      from[lane].a[i] = dev::round_to_tf32(left[at(row, 8, i < 2 ? in_group : in_group + 4)]);
      c[lane][i] = static_cast<float>(lane);
    }
    for (int i = 0; i < 2; ++i) {
      // What is below TF32's bits is not seen.
      from[lane].b[i] = dev::round_to_tf32(right[at(i == 0 ? in_group : in_group + 4, 8, group)]) * (1 + 0x1p-20F);
    }
  }
  dev::emulation::multiply_add(dev::tf32_format{}, from, c);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
      const int column = lane % 4 * 2 + (i & 1);
      double sum = lane;
      for (int k = 0; k < 8; ++k) {
        sum += static_cast<double>(dev::round_to_tf32(left[at(row, 8, k)])) *
               static_cast<double>(dev::round_to_tf32(right[at(k, 8, column)]));
      }
      BOOST_TEST(std::abs(static_cast<double>(c[lane][i]) - sum) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_warps_product_of_bf16_lies_where_the_manual_says) {
  // PTX ISA, mma.m16n8k16 with .bf16: of element i of a thread with this group and number in it.
  std::vector<float> left = numbers<float>(16 * 16, 1);
  std::vector<float> right = numbers<float>(16 * 8, 2);
  for (std::vector<float>* each : {&left, &right}) {
    for (float& value : *each) value = dev::round_to_bf16(value);
  }
  const auto at = [](int row, int width, int column) { return static_cast<std::size_t>(row * width + column); };
  dev::tensor_registers from[32];
  float c[32][4];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2;
    const int in_group = lane % 4;
    float a[8];
    float b[4];
    for (int i = 0; i < 8; ++i) {
      const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      a[i] = left[at(row, 16, in_group * 2 + (i & 1) + (i < 4 ? 0 : 8))];
    }
    for (int i = 0; i < 4; ++i) b[i] = right[at(in_group * 2 + (i & 1) + (i < 2 ? 0 : 8), 8, group)];
    for (int i = 0; i < 4; ++i) from[lane].a[i] = dev::packed_as_bf16(a[2 * i], a[2 * i + 1]);
    for (int i = 0; i < 2; ++i) from[lane].b[i] = dev::packed_as_bf16(b[2 * i], b[2 * i + 1]);
    for (int i = 0; i < 4; ++i) c[lane][i] = static_cast<float>(lane);
  }
  dev::emulation::multiply_add(dev::bf16_format{}, from, c);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
      const int column = lane % 4 * 2 + (i & 1);
      double sum = lane;
      for (int k = 0; k < 16; ++k) {
        sum += static_cast<double>(left[at(row, 16, k)]) * static_cast<double>(right[at(k, 8, column)]);
      }
      BOOST_TEST(std::abs(static_cast<double>(c[lane][i]) - sum) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(bf16_rounds_to_nearest_even) {
  using limits = std::numeric_limits<float>;
  BOOST_TEST(dev::round_to_bf16(1.0F + 0x1p-8F) == 1.0F);  // ties to even
  BOOST_TEST(dev::round_to_bf16(1.0F + 0x3p-8F) == 1.0F + 0x1p-6F);
  BOOST_TEST(dev::round_to_bf16(-1.0F - 0x1.02p-8F) == -1.0F - 0x1p-7F);
  BOOST_TEST(dev::round_to_bf16(limits::max()) == limits::infinity());
  BOOST_TEST(dev::round_to_bf16(-limits::infinity()) == -limits::infinity());
  BOOST_TEST(dev::round_to_bf16(limits::denorm_min()) == 0.0F);
  BOOST_TEST(std::signbit(dev::round_to_bf16(-0.0F)));
  BOOST_TEST(std::isnan(dev::round_to_bf16(limits::quiet_NaN())));
  // Packing rounds in the same way, and a NaN whose upper bits are those of infinity stays one.
  const float slight_nan = __builtin_bit_cast(float, 0x7f80'0001U);
  for (const float value : {1.0F + 0x1p-8F, 1.0F + 0x3p-8F, -limits::max(), 0x1.234567p-130F, -0.0F, slight_nan}) {
    const float packed = dev::packed_as_bf16(value, -value);
    const auto lower = static_cast<float>(dev::emulation::operand_of(dev::bf16_format{}, packed, 0));
    const auto upper = static_cast<float>(dev::emulation::operand_of(dev::bf16_format{}, packed, 1));
    BOOST_TEST((std::isnan(value) ? std::isnan(lower) && std::isnan(upper)
                                  : lower == dev::round_to_bf16(value) && upper == dev::round_to_bf16(-value)));
  }
}

BOOST_AUTO_TEST_CASE(sums_do_not_know_how_a_batch_is_cut) {
  for (const int accumulator_count : {1, 4, 8}) {
    const dev::affine_view& view = views()[accumulator_count == 4 ? 0 : 2].view;
    std::vector<std::vector<float>> results;
    for (const int physical : {1, 2, 5, 10}) {
      setting<float> whole{view, 10, 10};
      std::vector<float> accumulators(static_cast<std::size_t>(accumulator_count * (view.size() + 2)), 1.0F);
      for (int begin = 0; begin < 10; begin += physical) {
        setting<float> part{view, physical, 10};
        for (int b = 0; b < physical; ++b) {
          for (int i = 0; i < whole.stretch; ++i) part.x(b, i) = whole.x(begin + b, i);
          part.factors[static_cast<std::size_t>(b)] = whole.factors[static_cast<std::size_t>(begin + b)];
        }
        emulate_sums<dev::square_block>(part, accumulators, accumulator_count, static_cast<std::uint64_t>(begin),
                                        begin == 0, 2, 1.0F, dev::emulation_order::forward);
      }
      results.push_back(accumulators);
    }
    for (const auto& each : results) BOOST_TEST(same_bits(each, results.front()));
  }
}

BOOST_AUTO_TEST_CASE(an_empty_first_batch_clears_the_lanes) {
  for (const int number : {0, 2}) {  // one position, several
    const dev::affine_view& view = views()[static_cast<std::size_t>(number)].view;
    setting<float> it{view, 0, 4};
    std::vector<float> accumulators(static_cast<std::size_t>(2 * (view.size() + 2)), 5.0F);
    emulate_sums<dev::square_block>(it, accumulators, 2, 0, true, 1, 1.0F, dev::emulation_order::forward);
    BOOST_TEST(accumulators[0] == 0.0F);
    BOOST_TEST(accumulators[static_cast<std::size_t>(view.size() + 2)] == 0.0F);
    // What lies between the accumulators is not theirs.
    BOOST_TEST(accumulators[static_cast<std::size_t>(view.size())] == 5.0F);
    accumulators[0] = 3.0F;
    emulate_sums<dev::square_block>(it, accumulators, 2, 0, false, 1, 1.0F, dev::emulation_order::forward);
    BOOST_TEST(accumulators[0] == 3.0F);
  }
}

BOOST_AUTO_TEST_CASE(inputs_may_lie_in_the_data_set) {
  setting<float> it{views()[0].view, 5, 7};
  setting<float> expected = it;
  const std::vector<std::uint32_t> ids{4, 0, 4, 2, 9, 0, 0};
  const std::vector<float> records = numbers<float>(static_cast<std::size_t>(10 * it.x_size), 8);
  for (int b = 0; b < 5; ++b) {
    for (int i = 0; i < it.x_size; ++i) {
      expected.x(b, i) =
          records[ids[static_cast<std::size_t>(b)] * static_cast<std::size_t>(it.x_size) + static_cast<std::size_t>(i)];
    }
  }
  dev::affine_forward<float> problem{it.operands()};
  problem.on.x = dev::in_input(0);
  problem.on.values.inputs = records.data();
  problem.on.values.ids = ids.data();
  problem.on.values.input_size = it.x_size;
  emulate<dev::narrow_block, float>(problem, dev::emulation_order::shuffled);
  expect_forward(expected, false);
  for (int b = 0; b < 5; ++b) {
    for (int i = 0; i < it.y_size; ++i) BOOST_REQUIRE(it.y(b, i) == expected.y(b, i));
  }
}

BOOST_AUTO_TEST_CASE(tf32_rounds_weights) {  // values are stored so
  using limits = std::numeric_limits<float>;
  BOOST_TEST(dev::round_to_tf32(1.0F + 0x1p-11F) == 1.0F + 0x1p-10F);  // ties away from zero
  BOOST_TEST(dev::round_to_tf32(-1.0F - 0x1p-11F) == -1.0F - 0x1p-10F);
  BOOST_TEST(dev::round_to_tf32(1.0F + 0x1.8p-10F) == 1.0F + 0x1p-9F);
  BOOST_TEST(dev::round_to_tf32(1.0F + 0x1.ep-12F) == 1.0F);
  BOOST_TEST(dev::round_to_tf32(-limits::max()) == -limits::infinity());
  BOOST_TEST(std::isnan(dev::round_to_tf32(limits::quiet_NaN())));
  BOOST_TEST(dev::round_to_tf32(limits::infinity()) == limits::infinity());
  setting<float> it{views()[2].view, 5, 7};
  setting<float> expected = it;
  dev::affine_forward<float> problem{it.operands()};
  problem.on.format = dev::stored_format::tf32;
  emulate<dev::square_block, float>(problem, dev::emulation_order::forward);
  for (float& value : expected.weights) value = dev::round_to_tf32(value);
  expect_forward(expected, false);
  for (int b = 0; b < 5; ++b) {
    for (int i = 0; i < it.y_size; ++i) BOOST_REQUIRE(it.y(b, i) == expected.y(b, i));
  }
}

// A position sees an element at a tap, and a pixel is seen, where plain arithmetic says so; nothing is where something
// has been left out.
BOOST_AUTO_TEST_CASE(places_along_all_axes_are_inside_where_each_is) {
  std::mt19937_64 random{11};
  const auto from = [&](int least, int most) {
    return least + static_cast<int>(random() % std::uint64_t(most - least + 1));
  };
  int checked = 0;
  for (int round = 0; round < 400; ++round) {
    dev::affine_view view;
    const int many = round % 4;  // axes that have more than one place: long ones, or short ones
    for (int axis = 0; axis < 3; ++axis) {
      if (axis < 3 - many) continue;
      view.in[axis] = many == 1 ? from(1, 700) : from(1, 9);
      view.kernel[axis] = many == 1 ? from(1, 90) : from(1, 4);
      view.stride[axis] = from(1, many == 1 ? 17 : 3);
      view.dilation[axis] = from(1, 3);
      const int reach = (view.kernel[axis] - 1) * view.dilation[axis];
      view.padding[axis] = from(0, reach + 1);
      const int room = view.in[axis] + 2 * view.padding[axis] - reach - 1;
      if (room < 0) view.padding[axis] = reach;
      view.out[axis] = (view.in[axis] + 2 * view.padding[axis] - reach - 1) / view.stride[axis] + 1;
    }
    view.x_channel = view.pixels();
    view.y_output = view.positions();
    const int x_step[3] = {view.in[1] * view.in[2], view.in[2], 1};
    const int y_step[3] = {view.out[1] * view.out[2], view.out[2], 1};
    std::ranges::copy(x_step, view.x_step);
    std::ranges::copy(y_step, view.y_step);
    const dev::geometry map{view};
    BOOST_REQUIRE((map.x_fields.fit() && map.y_fields.fit()));
    for (int trial = 0; trial < 400; ++trial) {
      const int t = from(0, view.positions() - 1);
      const int tap = from(0, view.taps() - 1);
      const int i = from(0, view.pixels() - 1);
      int rest[3] = {t, tap, i};
      bool is_seen = true;  // does position t see a pixel at the tap?
      bool sees = true;     // is there a position that sees pixel i at the tap?
      int x = 0;
      int y = 0;
      for (int axis = 3; axis-- > 0;) {
        const int position = rest[0] % view.out[axis];
        const int along = rest[1] % view.kernel[axis] * view.dilation[axis];
        const int pixel = rest[2] % view.in[axis];
        rest[0] /= view.out[axis];
        rest[1] /= view.kernel[axis];
        rest[2] /= view.in[axis];
        const int seen = position * view.stride[axis] - view.padding[axis] + along;
        is_seen = is_seen && seen >= 0 && seen < view.in[axis];
        x += seen * x_step[axis];
        const int whole = pixel + view.padding[axis] - along;
        sees = sees && whole >= 0 && whole % view.stride[axis] == 0 && whole / view.stride[axis] < view.out[axis];
        y += whole / view.stride[axis] * y_step[axis];
      }
      const dev::coordinates position = map.position(0, t);
      dev::coordinates of_tap = map.tap(tap);
      BOOST_REQUIRE(map.inside_x(position, of_tap) == is_seen);
      if (is_seen) BOOST_REQUIRE(position.offset + of_tap.offset == x);
      const dev::coordinates pixel = map.pixel(0, i);
      dev::coordinates of_output = map.seen_by(0, tap);
      BOOST_REQUIRE(map.inside_y(pixel, of_output) == sees);
      if (sees) BOOST_REQUIRE(pixel.offset + of_output.offset == y);
      of_tap.at += map.x_fields.beyond();
      of_output.at += map.y_fields.beyond();
      BOOST_REQUIRE((!map.inside_x(position, of_tap) && !map.inside_y(pixel, of_output)));
      checked += is_seen != sees ? 1 : 0;
    }
  }
  BOOST_TEST(checked > 1000);  // both kinds were there
  // Known when a program is compiled: a network that is too large says so.
  constexpr auto image = [](int width) {
    dev::affine_view view;
    for (int axis = 1; axis < 3; ++axis) {
      view.in[axis] = view.out[axis] = width;
      view.kernel[axis] = 3;
      view.padding[axis] = 1;
    }
    return view;
  };
  static_assert(dev::geometry::fits(image(8'000)) && !dev::geometry::fits(image(30'000)));
}

BOOST_AUTO_TEST_SUITE_END()
