// SPDX-License-Identifier: Apache-2.0
// tests/cuda/gemm_door_test.cpp - who multiplies is a constant of the shape, and both ways give the same numbers
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
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
void emulate_gemm(const dev::gemm_call& call) noexcept {
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
    BOOST_TEST(call.n == dev::library_slice);
    BOOST_TEST(call.lda >= (call.transpose_a ? call.k : call.m));
    BOOST_TEST(call.ldb >= call.k);
    BOOST_TEST(call.ldc >= call.m);
    emulate_gemm(call);
  }
  int calls = 0;
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
using dev::choose_gemm;
using dev::gemm_product;
using dev::gemm_way;

// The plan, as constants.
static_assert(choose_gemm(gemm_product::forward, linear_view(4096, 4096), true, true) == gemm_way::library);
static_assert(choose_gemm(gemm_product::adjoint, linear_view(4096, 4096), true, true) == gemm_way::library);
static_assert(choose_gemm(gemm_product::sums, linear_view(4096, 4096), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::sums, conv_view(256, 256, 32), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::squares, linear_view(4096, 4096), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::forward, linear_view(4096, 4096), true, false) != gemm_way::library);
static_assert(choose_gemm(gemm_product::forward, linear_view(4096, 4096), false, true) != gemm_way::library);
static_assert(choose_gemm(gemm_product::forward, linear_view(784, 128), true, true) == gemm_way::square);
static_assert(choose_gemm(gemm_product::forward, linear_view(512, 10), true, true) == gemm_way::slim);
static_assert(choose_gemm(gemm_product::forward, linear_view(512, 20), true, true) == gemm_way::narrow);
static_assert(choose_gemm(gemm_product::forward, conv_view(256, 256, 32), true, true) == gemm_way::large);
static_assert(choose_gemm(gemm_product::forward, conv_view(3, 64, 32), true, true) == gemm_way::square);
// Chunks of positions, for few blocks of a sample's gradient only.
static_assert(dev::chunks_of(conv_view(3, 64, 256)) == 64 && dev::chunks_of(conv_view(64, 64, 256)) == 8);
static_assert(dev::chunks_of(conv_view(3, 32, 32)) == 2 && dev::chunks_of(conv_view(64, 64, 16)) == 1);
static_assert(dev::chunks_of(conv_view(512, 512, 32)) == 1);
static_assert(dev::library_capacity(1) == dev::library_slice && dev::library_capacity(256) == 256);
static_assert(!dev::has_gemm_library);

struct layer {
  dev::affine_view view;
  std::int64_t stretch;
  std::vector<float> values, weights, bias;
  dev::step_state state;

  explicit layer(const dev::affine_view& of, int capacity)
      : view{of}, stretch{of.channels * of.pixels() + of.outputs * of.positions()} {
    const auto draw = [](std::size_t count, std::uint64_t salt) {
      std::vector<float> result(count);
      fill_normal(std::span{result}, salt);
      return result;
    };
    values = draw(static_cast<std::size_t>(stretch * dev::library_capacity(capacity)), 1);
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
    on.y = view.channels * view.pixels();
    on.most_samples = capacity;
    return on;
  }
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
BOOST_AUTO_TEST_CASE(every_place_of_a_square_is_written_by_kernels_of_both_kinds) {
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
      const auto check = [&]<class Sizes>(Sizes) {
        const int blocks = dev::blocks_for(outputs, Sizes::rows) * dev::blocks_for(width, Sizes::columns);
        wrong += blocks == dev::square_blocks_of(view) ? 0U : 1U;
      };
      dev::with_filling_block_sizes<dev::all_ways>(way, problem, check);
      dev::with_tensor_block_sizes<dev::all_ways, dev::tf32_format>(way, problem, check);
      dev::with_tensor_block_sizes<dev::all_ways, dev::bf16_format>(way, problem, check);
    }
  }
  BOOST_TEST(wrong == 0U);
}

BOOST_AUTO_TEST_CASE(ways_have_names) {
  BOOST_TEST(std::string{dev::name_of(gemm_way::library)} == "cuBLAS");
  BOOST_TEST(std::string{dev::name_of(gemm_way::square)} == "own kernel, 64 x 64 blocks");
}

BOOST_AUTO_TEST_SUITE_END()
