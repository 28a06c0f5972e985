// SPDX-License-Identifier: Apache-2.0
// tests/cuda/gemm_door_test.cpp - who multiplies is a constant of the shape, and both ways give the same numbers
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/cuda/plan/leaves.hpp>

#include "normal_numbers.hpp"

BOOST_AUTO_TEST_SUITE(cuda_gemm_door)

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;

/// What a `gemm_call` means.
void emulate_gemm(dev::gemm_call call) noexcept {
  if (call.count > 1) {
    dev::gemm_call rest = call;
    --rest.count;
    rest.b += call.stride;
    rest.c += call.stride;
    emulate_gemm(rest);
  }
  for (int j = 0; j < call.n; ++j) {
    for (int i = 0; i < call.m; ++i) {
      float sum = 0;
      for (int p = 0; p < call.k; ++p) {
        const float a = call.transpose_a ? call.a[static_cast<std::ptrdiff_t>(i) * call.lda + p]
                                         : call.a[static_cast<std::ptrdiff_t>(p) * call.lda + i];
        sum = dev::fma(a, call.b[static_cast<std::ptrdiff_t>(j) * call.ldb + p], sum);
      }
      float& c = call.c[static_cast<std::ptrdiff_t>(j) * call.ldc + i];
      c = call.beta == 0 ? sum : dev::fma(call.beta, c, sum);
    }
  }
}

/// A device with a library of products: counts its calls and checks what cuBLAS would refuse.
class device_with_library : public dev::emulated_device {
 public:
  void library_gemm(const dev::gemm_call& call) {
    ++calls;
    BOOST_TEST(call.n * call.count == columns);
    BOOST_TEST(call.lda >= (call.transpose_a ? call.k : call.m));
    BOOST_TEST(call.ldb >= call.k);
    BOOST_TEST(call.ldc >= call.m);
    emulate_gemm(call);
  }
  int calls = 0;
  int columns = dev::library_slice;  ///< of each
};
static_assert(dev::has_library_gemm<device_with_library>);
static_assert(!dev::has_library_gemm<dev::emulated_device>);

constexpr dev::affine_view linear_view(int inputs, int outputs) {
  dev::affine_view v;
  v.channels = inputs;
  v.outputs = outputs;
  v.x_channel = 1;
  v.y_output = 1;
  v.x_group = inputs;
  v.y_group = outputs;
  return v;
}
constexpr dev::affine_view conv_view(int channels, int outputs, int side) {
  dev::affine_view v;
  v.channels = channels;
  v.outputs = outputs;
  v.x_channel = side * side;
  v.y_output = side * side;
  v.x_group = channels * side * side;
  v.y_group = outputs * side * side;
  for (int a = 1; a < 3; ++a) {
    v.in[a] = v.out[a] = side;
    v.kernel[a] = 3;
    v.padding[a] = 1;
    v.x_step[a] = v.y_step[a] = a == 2 ? 1 : side;
  }
  return v;
}
/// As a linear layer has it that takes each position of a sequence alone.
constexpr dev::affine_view sequence_view(int positions, int inputs, int outputs, int apart = 0) {
  dev::affine_view v = linear_view(inputs, outputs);
  v.in[1] = v.out[1] = positions;
  v.x_step[1] = inputs + apart;
  v.y_step[1] = outputs + 2 * apart;
  return v;
}
using dev::choose_gemm;
using dev::gemm_product;
using dev::gemm_way;

// The plan, as constants.
static_assert(choose_gemm(gemm_product::forward, linear_view(4096, 4096), true, true) == gemm_way::library);
static_assert(choose_gemm(gemm_product::adjoint, linear_view(4096, 4096), true, true) == gemm_way::library);
static_assert(choose_gemm(gemm_product::sums, linear_view(4096, 4096), true, true) == gemm_way::square);
// Of samples' gradients: the fewest instructions, with those for results that nobody asks for.
static_assert(choose_gemm(gemm_product::sums, conv_view(256, 256, 32), true, true) == gemm_way::large);
static_assert(choose_gemm(gemm_product::squares, conv_view(64, 128, 8), true, true) == gemm_way::large);
static_assert(choose_gemm(gemm_product::squares, conv_view(32, 64, 16), true, true) == gemm_way::wide);
static_assert(choose_gemm(gemm_product::squares, conv_view(20, 140, 8), true, true) == gemm_way::large);
static_assert(choose_gemm(gemm_product::squares, conv_view(3, 64, 32), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::squares, conv_view(64, 32, 16), true, true) == gemm_way::narrow);
static_assert(choose_gemm(gemm_product::adjoint, conv_view(64, 64, 32), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::squares, linear_view(4096, 4096), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::forward, linear_view(4096, 4096), true, false) != gemm_way::library);
static_assert(choose_gemm(gemm_product::forward, linear_view(4096, 4096), false, true) != gemm_way::library);
static_assert(choose_gemm(gemm_product::forward, linear_view(784, 128), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::forward, linear_view(512, 10), true, true) == gemm_way::slim);
static_assert(choose_gemm(gemm_product::forward, linear_view(512, 20), true, true) == gemm_way::narrow);
static_assert(choose_gemm(gemm_product::forward, conv_view(256, 256, 32), true, true) == gemm_way::large);
static_assert(choose_gemm(gemm_product::forward, conv_view(3, 64, 32), true, true) == gemm_way::square);
// Chunks of positions, for few blocks of a sample's gradient only.
static_assert(dev::chunks_of(conv_view(3, 64, 256)) == 64 && dev::chunks_of(conv_view(64, 64, 256)) == 13);
static_assert(dev::chunks_of(conv_view(3, 32, 32)) == 2 && dev::chunks_of(conv_view(64, 64, 16)) == 1);
static_assert(dev::chunks_of(conv_view(512, 512, 32)) == 1);
// Whose view is all of x: of a number that it leaves out cuBLAS would write no gradient.
constexpr dev::affine_view window_view(int inputs, int kernel, int outputs) {
  dev::affine_view v = linear_view(1, outputs);
  v.in[2] = inputs;
  v.kernel[2] = kernel;
  v.stride[2] = 2;
  v.x_step[2] = 1;
  v.x_group = inputs;
  return v;
}
static_assert(choose_gemm(gemm_product::adjoint, window_view(2048, 2048, 64), true, true) == gemm_way::library);
static_assert(choose_gemm(gemm_product::adjoint, window_view(2049, 2048, 64), true, true) != gemm_way::library);
// Of sequences wide projections, of which a call has about a thousand positions.
static_assert(choose_gemm(gemm_product::forward, sequence_view(1024, 768, 768), true, true) == gemm_way::library);
static_assert(choose_gemm(gemm_product::adjoint, sequence_view(64, 768, 3072), true, true) == gemm_way::library);
static_assert(choose_gemm(gemm_product::forward, sequence_view(1024, 768, 768), false, true) != gemm_way::library);
static_assert(choose_gemm(gemm_product::squares, sequence_view(1024, 768, 768), true, true) != gemm_way::library);
static_assert(choose_gemm(gemm_product::forward, sequence_view(1024, 768, 8), true, true) != gemm_way::library);
static_assert(choose_gemm(gemm_product::forward, conv_view(1024, 1024, 32), true, true) != gemm_way::library);
static_assert(dev::axis_of_sequence(sequence_view(7, 5, 3)) == 1 && dev::axis_of_sequence(conv_view(3, 4, 5)) == -1);
static_assert(dev::axis_of_sequence([] {
                auto v = sequence_view(7, 5, 3);
                v.x_step[1] = 4;  // positions that share numbers are no matrix' lines
                return v;
              }()) == -1);
static_assert(dev::samples_of_call(sequence_view(1024, 8, 8)) == 1 &&
              dev::samples_of_call(sequence_view(65, 8, 8)) == 8 &&
              dev::samples_of_call(sequence_view(2, 8, 8)) == 128 &&
              dev::samples_of_call(sequence_view(5000, 8, 8)) == 1);
static_assert(dev::library_capacity(1, 128) == 128 && dev::library_capacity(256, 128) == 256 &&
              dev::library_capacity(7, 1) == 7);
static_assert(!dev::has_gemm_library);

struct layer {
  dev::affine_view view;
  int y;
  std::int64_t stretch;
  std::vector<float> values, weights, bias;
  dev::step_state state;

  explicit layer(const dev::affine_view& of, int capacity)
      : view{of},
        y{size_of(of.channels, of.pixels(), of.x_step[1])},
        stretch{y + size_of(of.outputs, of.positions(), of.y_step[1])} {
    const auto draw = [](std::size_t count, std::uint64_t salt) {
      std::vector<float> result(count);
      fill_normal(std::span{result}, salt);
      return result;
    };
    values = draw(static_cast<std::size_t>(stretch * dev::library_capacity(capacity, dev::library_slice)), 1);
    weights = draw(static_cast<std::size_t>(of.size()), 2);
    bias = draw(static_cast<std::size_t>(of.outputs), 3);
  }
  [[nodiscard]] dev::affine_operands<float> operands(int capacity) {
    dev::affine_operands<float> on;
    on.map = dev::geometry{view};
    on.values.workspace = values.data();
    on.values.stretch = stretch;
    on.state = &state;
    on.weights = weights.data();
    on.bias = bias.data();
    on.y = y;
    on.most_samples = capacity;
    return on;
  }
  /// Of lines that may lie apart.
  [[nodiscard]] static int size_of(int count, int lines, int step) { return lines * std::max(count, step); }
};

/// Sums of the same terms in another order: at most 2 K u sum |terms| apart, with K = 41 terms whose sizes add up to
/// less than 1000.
void expect_close(const layer& a, const layer& b, int samples) {
  double worst = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(samples * a.stretch); ++i) {
    const double apart = std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i]));
    BOOST_REQUIRE(std::isfinite(apart));
    worst = std::max(worst, apart);
  }
  BOOST_TEST(worst <= 2 * 41 * 0x1p-24 * 1000);
  BOOST_TEST_MESSAGE("largest difference " << worst);
}

}  // namespace

BOOST_AUTO_TEST_CASE(own_kernels_and_library_agree) {
  constexpr int capacity = 140;  // two slices
  constexpr int samples = 131;
  const dev::affine_view view = linear_view(40, 33);
  for (const bool accumulate : {false, true}) {
    layer own{view, capacity};
    own.state.count = samples;
    // What lies behind the batch must not matter.
    for (std::size_t i = samples * 73; i < own.values.size(); ++i) {
      own.values[i] = std::numeric_limits<float>::quiet_NaN();
    }
    layer library = own;
    dev::emulated_device plain;
    device_with_library with;
    auto on = own.operands(capacity);
    auto on_library = library.operands(capacity);
    on.accumulate = on_library.accumulate = accumulate ? 1 : 0;
    dev::launch_product(plain, gemm_product::forward, gemm_way::square, on);
    dev::launch_product(with, gemm_product::forward, gemm_way::library, on_library);
    expect_close(own, library, samples);
    BOOST_TEST(with.calls == 2);
    on.bias = on_library.bias = nullptr;
    dev::launch_product(plain, gemm_product::adjoint, gemm_way::narrow, on);
    dev::launch_product(with, gemm_product::adjoint, gemm_way::library, on_library);
    expect_close(own, library, samples);
    BOOST_TEST(with.calls == 4);
    // A device without the library takes its own kernel.
    dev::launch_product(plain, gemm_product::forward, gemm_way::library, on);
  }
}

// Positions whose lines lie apart, as one of a layer's several projections does, and results that are rounded.
BOOST_AUTO_TEST_CASE(sequences_are_matrices_for_the_library) {
  constexpr int capacity = 9;  // three calls of four, the last one not whole
  constexpr int samples = 7;
  for (const int apart : {0, 6}) {
    const dev::affine_view view = sequence_view(256, 20, 33, apart);
    BOOST_REQUIRE(dev::samples_of_call(view) == 4);
    for (const bool rounds : {false, true}) {
      for (const bool accumulate : {false, true}) {
        layer own{view, capacity};
        own.state.count = samples;
        std::fill(own.values.begin() + samples * own.stretch, own.values.end(),
                  std::numeric_limits<float>::quiet_NaN());
        layer library = own;
        dev::emulated_device plain;
        device_with_library with;
        with.columns = 4 * 256;
        auto on = own.operands(capacity);
        auto on_library = library.operands(capacity);
        on.accumulate = on_library.accumulate = accumulate ? 1 : 0;
        const auto both = [&](gemm_product product) {
          dev::launch_product(plain, product, gemm_way::square, on);
          dev::launch_product(with, product, gemm_way::library, on_library);
          if (!rounds) return expect_close(own, library, samples);
        };
        if (rounds) on_library.result_format = dev::stored_format::bf16;
        both(gemm_product::forward);
        BOOST_TEST(with.calls == 3);
        if (rounds) {  // results are, and what lies between them is not
          std::size_t wrong = 0;
          for (std::int64_t i = 0; i < samples * own.stretch; ++i) {
            const std::int64_t within = i % own.stretch - on.y;
            const bool is_result =
                within >= 0 && within < 256 * view.y_step[1] && within % view.y_step[1] < view.outputs;
            const auto at = static_cast<std::size_t>(i);
            const float expected = is_result ? dev::round_to_bf16(library.values[at]) : own.values[at];
            wrong += library.values[at] == expected ? 0U : 1U;
            if (is_result &&
                std::abs(library.values[at] - own.values[at]) > 0x1p-7F * std::abs(own.values[at]) + 1e-4F) {
              ++wrong;
            }
          }
          BOOST_TEST(wrong == 0U);
          continue;
        }
        on.bias = on_library.bias = nullptr;
        both(gemm_product::adjoint);
        BOOST_TEST(with.calls == 6);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_product_of_the_library_does_not_know_the_physical_batch) {
  const dev::affine_view view = linear_view(40, 33);
  layer small{view, 100};
  layer large{view, 600};
  std::vector<float> all[2];
  int which = 0;
  for (layer* each : {&small, &large}) {
    const int capacity = each == &small ? 100 : 600;
    each->state.count = 100;
    device_with_library device;
    dev::launch_product(device, gemm_product::forward, gemm_way::library, each->operands(capacity));
    all[which++].assign(each->values.begin(), each->values.begin() + 100 * each->stretch);
  }
  BOOST_TEST((all[0] == all[1]));
}

// What one kind of kernel leaves unwritten, norms would read: what was there before, and on this device a NaN.
BOOST_AUTO_TEST_CASE(there_is_a_place_for_every_square) {
  std::size_t wrong = 0;
  for (int outputs = 1; outputs <= 260; ++outputs) {
    for (int width = 1; width <= 260; ++width) {
      dev::affine_view view;
      view.outputs = outputs;
      view.channels = width;
      view.in[1] = view.out[1] = 7;
      const dev::gemm_way way = dev::choose_gemm(dev::gemm_product::squares, view, false);
      dev::affine_squares<float> problem;
      problem.on.map = dev::geometry{view};
      problem.on.most_samples = 3;
      const auto blocks = [&]<class Sizes>() {
        return dev::blocks_for(outputs, Sizes::rows) * dev::blocks_for(width, Sizes::columns);
      };
      const int places = dev::square_blocks_of(view);
      // Where blocks are fewer they set the other places to zero.
      const auto check = [&]<class Sizes>(Sizes) { wrong += blocks.template operator()<Sizes>() <= places ? 0U : 1U; };
      dev::with_filling_block_sizes<dev::all_ways>(way, problem, check);
      dev::with_tensor_block_sizes<dev::all_ways, dev::tf32_format>(way, problem, check);
      dev::with_tensor_block_sizes<dev::all_ways, dev::bf16_format>(way, problem, check);
    }
  }
  BOOST_TEST(wrong == 0U);
}

namespace {

struct device_with_bf16 : dev::emulated_device {
  using tensor_format = dev::bf16_format;
};

/// Samples' squares of a view, of the layout's places for them.
template <class Device>
std::vector<double> squares_of(layer& it, int samples, int capacity, dev::stored_format format) {
  dev::affine_squares<float> problem;
  problem.on = it.operands(capacity);
  problem.on.format = format;
  problem.blocks = dev::square_blocks_of(it.view);
  problem.partial_stride = it.view.groups * problem.blocks;
  // Whoever adds them up reads all.
  std::vector<double> partial(static_cast<std::size_t>(capacity * problem.partial_stride),
                              std::numeric_limits<double>::quiet_NaN());
  problem.partial = partial.data();
  it.state.count = static_cast<std::uint32_t>(samples);
  Device device;
  dev::launch_gemm<float>(device, choose_gemm(gemm_product::squares, it.view, false), problem);
  std::vector<double> squares;
  for (int b = 0; b < samples; ++b) {
    const auto begin = partial.begin() + b * problem.partial_stride;
    squares.push_back(std::accumulate(begin, begin + problem.partial_stride, 0.0));
  }
  return squares;
}
/// The same and their shares of a sum of integers, by plain loops in double. Of views without strides.
struct exact_gradients {
  std::vector<double> squares;
  std::vector<double> sum;

  exact_gradients(const layer& it, int samples, const std::vector<float>& factors)
      : sum(static_cast<std::size_t>(it.view.size())) {
    const dev::geometry map{it.view};
    for (int b = 0; b < samples; ++b) {
      const float* const x = it.values.data() + b * it.stretch;
      const float* const y = x + it.view.channels * it.view.pixels();
      double squared = 0;
      for (int o = 0; o < it.view.outputs; ++o) {
        for (int k = 0; k < it.view.view_width(); ++k) {
          double gradient = 0;
          for (int t = 0; t < it.view.positions(); ++t) {
            const int seen = map.x_offset(0, t, k);
            if (seen < 0) continue;
            gradient += static_cast<double>(x[seen]) * static_cast<double>(y[map.y_offset(0, o, t)]);
          }
          squared += gradient * gradient;
          sum[static_cast<std::size_t>(o * it.view.view_width() + k)] +=
              static_cast<double>(factors[static_cast<std::size_t>(b)]) * gradient;
        }
      }
      squares.push_back(squared);
    }
  }
};

template <class Device>
void check_gradients(const dev::affine_view& view, gemm_way way) {
  BOOST_TEST((choose_gemm(gemm_product::squares, view, false) == way));
  BOOST_TEST((choose_gemm(gemm_product::sums, view, false) == way));
  constexpr bool is_bf16 = std::is_same_v<typename dev::tensor_format_of<Device>::type, dev::bf16_format>;
  constexpr dev::stored_format format = is_bf16 ? dev::stored_format::bf16 : dev::stored_format::tf32;
  constexpr int samples = 3;
  layer it{view, samples};
  for (float& value : it.values) value = dev::stored_as(format, value);
  const std::vector<float> factors{0.5F, 0, 0.25F};
  const exact_gradients wanted{it, samples, factors};
  const std::vector<double> squares = squares_of<Device>(it, samples, samples, format);
  const std::vector<double> of_floats = squares_of<Device>(it, samples, samples, dev::stored_format::exact);
  // Products of rounded operands are exact; sums of some tens of them are rounded as floats.
  for (std::size_t b = 0; b < samples; ++b) {
    BOOST_TEST(squares[b] == wanted.squares[b], boost::test_tools::tolerance(1e-6));
    BOOST_TEST(of_floats[b] == wanted.squares[b], boost::test_tools::tolerance(1e-6));
  }
  // Other batches, full or not: the same bits.
  for (const int count : {1, 2}) {
    for (const int capacity : {count, 70}) {
      layer other{view, capacity};
      std::ranges::copy(it.values.begin(), it.values.begin() + count * it.stretch, other.values.begin());
      const std::vector<double> found = squares_of<Device>(other, count, capacity, format);
      BOOST_TEST(std::ranges::equal(found, std::span{squares}.first(static_cast<std::size_t>(count))));
    }
  }
  // A sum of integers, however the samples are cut.
  dev::affine_shares<float, dev::share_kind::converted> problem;
  problem.on = it.operands(samples);
  problem.on.format = format;
  problem.factors = factors.data();
  constexpr double steps = 1 << 16;
  problem.to_grid = static_cast<float>(steps);
  problem.shares = dev::small_shares<dev::share_kind::converted>{problem.to_grid};
  std::vector<std::int64_t> sums(wanted.sum.size());
  problem.sums = sums.data();
  Device device;
  dev::launch_gemm<float>(device, way, problem);
  double worst = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(sums[i]) / steps - wanted.sum[i]));
  }
  BOOST_TEST(worst < 2 / steps);
}

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_of_large_views_are_the_exact_ones) {
  constexpr dev::affine_view large = conv_view(42, 250, 4);
  constexpr dev::affine_view wide = conv_view(13, 60, 5);
  static_assert(large.view_width() == 378 && wide.view_width() == 117);
  check_gradients<dev::emulated_device>(large, gemm_way::large);
  check_gradients<dev::emulated_device>(wide, gemm_way::wide);
  check_gradients<device_with_bf16>(large, gemm_way::large);
  check_gradients<device_with_bf16>(wide, gemm_way::wide);
}

BOOST_AUTO_TEST_CASE(parts_of_shares_leave_few_blocks_to_wait_for) {
  const auto parts_of = [](const dev::affine_view& view, int samples, int blocks) {
    dev::affine_shares<float, dev::share_kind::shifted> problem;
    problem.on.map = dev::geometry{view};
    problem.on.most_samples = samples;
    return dev::parts_of_shares<dev::tensor_blocks<dev::tf32_format>::large>(problem, blocks);
  };
  BOOST_TEST(parts_of(conv_view(128, 128, 8), 256, 9) == 29);  // 261 blocks of 9 samples
  BOOST_TEST(parts_of(conv_view(512, 512, 32), 8, 144) == 8);  // one part would run twice
  BOOST_TEST(parts_of(conv_view(128, 128, 8), 0, 9) == 1);
  BOOST_TEST(parts_of(conv_view(128, 128, 8), 2000, 1000) >= 8);  // no more than 256 small shares each
}

BOOST_AUTO_TEST_CASE(ways_have_names) {
  BOOST_TEST(std::string{dev::name_of(gemm_way::library)} == "cuBLAS");
  BOOST_TEST(std::string{dev::name_of(gemm_way::wide)} == "own kernel, 64 x 128 blocks");
}

BOOST_AUTO_TEST_SUITE_END()
