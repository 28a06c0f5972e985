// SPDX-License-Identifier: Apache-2.0
// bench/cuda/kernels.cu - kernels on the GPU against the same kernels emulated by the host: equal in every bit
//
// Prints one line a kernel; exit code 1 if one differs. `kernels small` is for the sanitizers.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>
#include <string_view>
#include <vector>

#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/kernels/sums.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/cuda/run/cuda_device.cuh>
#include <pergrad/privacy/generator.hpp>

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;

const pg::seeded_generator seed{7};
int failures = 0;

std::vector<float> numbers(std::size_t count, std::uint64_t salt) {
  std::vector<float> values(count);
  std::mt19937_64 random{salt};
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  return values;
}

/// One array that lies on the host or on the device.
template <class Value>
class array {
 public:
  array(dev::cuda_device& device, std::vector<Value> values) : device_{device}, values_{std::move(values)} {
    at_ = static_cast<Value*>(device.allocate(bytes()));
    device.upload(at_, values_.data(), bytes());
  }
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  ~array() { device_.release(at_); }
  [[nodiscard]] Value* on(bool gpu) { return gpu ? at_ : values_.data(); }
  /// Does the device hold what the host holds, in every bit?
  [[nodiscard]] bool agrees() {
    std::vector<Value> found(values_.size());
    device_.download(found.data(), at_, bytes());
    return std::memcmp(found.data(), values_.data(), bytes()) == 0;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return values_.size() * sizeof(Value); }
  dev::cuda_device& device_;
  std::vector<Value> values_;
  Value* at_ = nullptr;
};

void report(const char* what, bool good) {
  std::printf("%-60s %s\n", what, good ? "same bits" : "DIFFERS");
  if (!good) ++failures;
}
/// make(gpu) gives the kernel with pointers to that side.
template <class Make>
void run_both(dev::cuda_device& device, int blocks, Make&& make) {
  device.launch(make(true), blocks);
  dev::emulate(make(false), blocks);
}

/// A release with the update that follows. So large a deviation that some roundings need more bits.
template <bool ByIntegers = false>
void check_release(dev::cuda_device& device, const char* name, int rule, std::size_t count, double sigma) {
  const auto steps = [count](std::uint64_t salt) {
    std::vector<std::int64_t> values(count);
    const std::vector<float> drawn = numbers(values.size(), salt);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(drawn[i] * 0x1p20F);
    return values;
  };
  array<dev::step_state> state{
      device, {{.last = 1, .noise_step = (std::uint64_t{1} << 33U) + 5, .rate = 0.3, .correction = 1.7}}};
  array<std::int64_t> sums{device, steps(1)};
  array<float> parameters{device, numbers(count, 2)};
  array<float> first{device, numbers(count, 3)};
  std::vector<float> squares = numbers(count, 4);
  for (float& value : squares) value = value * value;
  array<float> second{device, squares};
  array<float> released{device, numbers(count, 5)};
  const pg::release_grid grid = pg::release_grid::of(1, count);
  const dev::release_settings<float> settings{
      .noise = dev::stream_upload::words(seed.stream<pg::detail::randomness::noise>(0)),
      .grid =
          dev::noise_on_grid::of(sigma, {std::ldexp(1.0, grid.steps), std::ldexp(1.0, grid.unit - grid.steps), 3e38}),
      .scale = 1 / 48.0,
      .momentum = 0.9F,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .stability = 1e-8};
  const auto work = [&](bool gpu) {
    return dev::release_work<float>{.state = state.on(gpu),
                                    .settings = settings,
                                    .sums = sums.on(gpu),
                                    .end = static_cast<std::int64_t>(count),
                                    .parameters = parameters.on(gpu),
                                    .first = first.on(gpu),
                                    .second = second.on(gpu),
                                    .released = released.on(gpu),
                                    .rule = rule};
  };
  run_both(device, work(false).blocks(), [&](bool gpu) { return dev::release_kernel<float, ByIntegers>{work(gpu)}; });
  report(name, parameters.agrees() && first.agrees() && second.agrees() && released.agrees());
}

dev::affine_view image_view(int channels, int outputs, int side, int kernel, int padding) {
  dev::affine_view v;
  v.channels = channels;
  v.outputs = outputs;
  for (int a = 1; a < 3; ++a) {
    v.in[a] = side;
    v.kernel[a] = kernel;
    v.padding[a] = padding;
    v.out[a] = side + 2 * padding - kernel + 1;
    v.x_step[a] = a == 2 ? 1 : side;
    v.y_step[a] = a == 2 ? 1 : v.out[2];
  }
  v.out[2] = v.out[1];
  v.y_step[1] = v.out[2];
  v.x_channel = v.pixels();
  v.y_output = v.positions();
  v.x_group = channels * v.x_channel;
  v.y_group = outputs * v.y_output;
  return v;
}

template <class Tiles>
void check_products(dev::cuda_device& device, const char* name, const dev::affine_view& view, int samples) {
  const int x_size = view.channels * view.pixels();
  const std::int64_t stretch = x_size + view.outputs * view.positions();
  array<dev::step_state> state{device, {{.position = 3, .count = static_cast<std::uint32_t>(samples - 1)}}};
  array<float> values{device, numbers(static_cast<std::size_t>(samples * stretch), 1)};
  array<float> weights{device, numbers(static_cast<std::size_t>(view.size()), 2)};
  array<float> bias{device, numbers(static_cast<std::size_t>(view.outputs), 3)};
  array<float> factors{device, numbers(static_cast<std::size_t>(samples), 4)};
  array<std::int64_t> accumulators{device, std::vector<std::int64_t>(static_cast<std::size_t>(4 * view.size()), 5)};
  array<float> partials{device, numbers(static_cast<std::size_t>(2 * samples * view.size()), 5)};
  const auto operands = [&](bool gpu) {
    dev::affine_operands<float> on;
    on.map = dev::geometry{view};
    on.values.workspace = values.on(gpu);
    on.values.stretch = stretch;
    on.state = state.on(gpu);
    on.weights = weights.on(gpu);
    on.bias = bias.on(gpu);
    on.y = x_size;
    on.most_samples = samples;
    return on;
  };
  const auto run = [&]<class Problem>(auto&& make, Problem /*which*/) {
    using kernel = dev::gemm_kernel<float, Problem, Tiles>;
    const int blocks = kernel{make(false)}.blocks();
    run_both(device, blocks, [&](bool gpu) { return kernel{make(gpu)}; });
  };
  // Of numbers up to 1, so that shares are as small as they must be.
  const auto share = [&]<dev::share_kind Kind>() {
    run(
        [&](bool gpu) {
          dev::affine_shares<float, Kind> problem;
          problem.on = operands(gpu);
          problem.factors = factors.on(gpu);
          problem.to_grid = 0x1p14F;
          if constexpr (Kind != dev::share_kind::any) problem.shares = dev::small_shares<Kind>{problem.to_grid};
          problem.sums = accumulators.on(gpu);
          problem.parts = 2;
          return problem;
        },
        dev::affine_shares<float, Kind>{});
  };
  share.template operator()<dev::share_kind::any>();
  share.template operator()<dev::share_kind::converted>();
  share.template operator()<dev::share_kind::shifted>();
  run([&](bool gpu) { return dev::affine_forward<float>{operands(gpu)}; }, dev::affine_forward<float>{});
  const bool forward = values.agrees();
  run(
      [&](bool gpu) {
        dev::affine_adjoint<float> problem{operands(gpu)};
        problem.on.bias = nullptr;
        return problem;
      },
      dev::affine_adjoint<float>{});
  const bool adjoint = values.agrees();
  run(
      [&](bool gpu) {
        dev::affine_partials<float> problem;
        problem.on = operands(gpu);
        problem.partials = partials.on(gpu);
        problem.chunks = dev::divisor{2};
        problem.chunk = (view.positions() + 1) / 2;
        return problem;
      },
      dev::affine_partials<float>{});
  const auto fold = [&](bool gpu) {
    dev::fold_partials_kernel<float, std::int64_t> kernel;
    kernel.gradients = {state.on(gpu), partials.on(gpu), 0, samples, 2, view.size()};
    kernel.factors = factors.on(gpu);
    kernel.to_grid = 0x1p18F;
    kernel.accumulators = accumulators.on(gpu);
    kernel.accumulator_stride = view.size();
    kernel.accumulator_count = 4;
    return kernel;
  };
  run_both(device, fold(false).blocks(), fold);
  array<double> chunked{device, std::vector<double>(static_cast<std::size_t>(samples * view.size()))};
  const auto square = [&](bool gpu) {
    return dev::square_partials_kernel<float>{fold(gpu).gradients, chunked.on(gpu), view.size()};
  };
  run_both(device, square(false).blocks(), square);
  dev::affine_squares<float> measure;
  measure.on = operands(false);
  const dev::gemm_kernel<float, dev::affine_squares<float>, Tiles> tiles{measure};
  const int count = tiles.row_blocks() * tiles.column_blocks();
  array<double> partial{device, std::vector<double>(static_cast<std::size_t>(samples * count))};
  run(
      [&](bool gpu) {
        dev::affine_squares<float> problem;
        problem.on = operands(gpu);
        problem.partial = partial.on(gpu);
        problem.partial_stride = count;
        problem.blocks = count;
        return problem;
      },
      dev::affine_squares<float>{});
  report(name, forward && adjoint && accumulators.agrees() && chunked.agrees() && partial.agrees());
}

void check_all(bool small) {
  dev::cuda_device device;
  const std::size_t count = small ? 700 : 26'010;
  check_release(device, "release and SGD", dev::update::sgd, count, 0x1p20);
  check_release(device, "release and momentum", dev::update::momentum, count, 0x1p38);
  check_release(device, "release and Adam", dev::update::adam, count, 0x1p46);
  check_release<true>(device, "release by integers", dev::update::sgd, count, 0x1p38);
  const int samples = small ? 2 : 9;
  const int side = small ? 5 : 12;
  check_products<dev::narrow_block>(device, "products, 32 x 128 blocks", image_view(3, 20, side, 3, 1), samples);
  check_products<dev::square_block>(device, "products, 64 x 128 blocks", image_view(5, 70, side, 3, 0), samples);
  check_products<dev::slim_block>(device, "products, 16 x 128 blocks", image_view(20, 10, side, 3, 1), samples);
  check_products<dev::strip_block>(device, "products, 16 x 64 blocks", image_view(3, 10, side, 3, 1), samples);
  check_products<dev::tiny_block>(device, "products, 16 x 8 blocks", image_view(3, 20, side, 3, 1), samples);
  check_products<dev::small_block>(device, "products, 32 x 32 blocks", image_view(20, 130, side, 3, 1), samples);
}

}  // namespace

int main(int count, char** words) {
  try {
    check_all(count > 1 && std::string_view{words[1]} == "small");
  } catch (const pg::cuda_unavailable& problem) {
    std::printf("%s\n", problem.what());
    return 3;
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
