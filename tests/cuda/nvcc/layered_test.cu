// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/layered_test.cu - networks too large for one block a sample; compiled with and without cuBLAS
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ratio>
#include <string>
#include <vector>

#include <pergrad.hpp>

#include "../../../bench/cuda/launch_list.hpp"
#include "../fake_runtime/fake_runtime.hpp"
#include "check.hpp"
#include "training.hpp"

namespace {

namespace training = device_training;

/// As a GPU that shares the host's memory would read records where they lie, by another node of the graph.
constexpr pergrad::cuda_options copies{.copy_records = true};

void ends_where_the_host_ends(const training::images& set) {
  training::choices chosen;
  chosen.max_batch = 40;
  const pergrad::cuda exec{copies};
  const training::outcome device = training::train<training::wide>(exec, set, chosen);
  const training::outcome host = training::train_wide_on_host(set, chosen);
  const double apart = training::distance(device, host);
  std::printf("wide, momentum: %.2e of the way apart\n", apart);
  CHECK(device.before == host.before);
  if (apart >= 1e-5) {  // a maximum that is nearly shared makes more of a rounding; the host says how much more
    const double rounding = training::distance_by_roundings(
        host, [&](const training::of_steps& begins) { return training::train_wide_on_host(set, chosen, begins); });
    std::printf("wide, momentum: by roundings %.2e\n", rounding);
    CHECK(apart < 4 * rounding);
  }
  std::size_t products = 0;
  for (const std::string& node : fake_cuda::last_graph()) {
    std::printf("  %s\n", node.c_str());
    products += node.find("sgemm") == 0 ? 1U : 0U;
  }
  CHECK((products > 0) == (PERGRAD_CUBLAS != 0));
  if (PERGRAD_CUBLAS == 0) {  // bench/cuda/model.py's list knows nothing of cuBLAS
    const auto options = training::make_options(chosen);
    CHECK(fake_cuda::last_graph() ==
          launch_list::as_text(launch_list::private_step<training::wide, pergrad::cross_entropy>(40, options)));
  }
  chosen.max_batch = 19;
  CHECK(training::train<training::wide>(exec, set, chosen).after == device.after);
}

void ends_near_there_with_tf32(const training::images& set) {
  training::choices chosen;
  chosen.max_batch = 40;
  const pergrad::device_options tf32{.tf32 = true, .copy_records = true};
  const pergrad::cuda exec{tf32};
  const training::outcome device = training::train<training::wide>(exec, set, chosen);
  const double apart = training::distance(device, training::train_wide_on_host(set, chosen));
  std::printf("wide, TF32: %.2e of the way apart\n", apart);
  CHECK(apart > 1e-5 && apart < 1e-2);
  if (PERGRAD_CUBLAS == 0) {
    const auto options = training::make_options(chosen);
    CHECK(fake_cuda::last_graph() ==
          launch_list::as_text(launch_list::private_step<training::wide, pergrad::cross_entropy>(40, options, tf32)));
  }
  chosen.max_batch = 19;
  CHECK(training::train<training::wide>(exec, set, chosen).after == device.after);
}

#if PERGRAD_CUBLAS
/// Matrices of several samples' sequences in one call: C = A B + C of each.
void multiplies_sequences() {
  constexpr int rows = 3, positions = 4, depth = 2, samples = 3, stretch = 40;
  pergrad::on_device::cuda_device device;
  std::vector<float> values(samples * stretch), weights(rows * depth);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i + 1);
  const std::size_t bytes = values.size() * sizeof(float);
  auto* const there = static_cast<float*>(device.allocate(bytes + weights.size() * sizeof(float)));
  device.upload(there, values.data(), bytes);
  device.upload(there + values.size(), weights.data(), weights.size() * sizeof(float));
  device.library_gemm({.transpose_a = true,
                       .m = rows,
                       .n = positions,
                       .k = depth,
                       .a = there + values.size(),
                       .lda = depth,
                       .b = there,
                       .ldb = depth,
                       .c = there + 10,
                       .ldc = rows + 1,
                       .beta = 1,
                       .count = samples,
                       .stride = stretch});
  std::vector<float> results(values.size());
  device.download(results.data(), there, bytes);
  device.synchronise();
  for (std::size_t b = 0; b < samples; ++b) {
    for (std::size_t t = 0; t < positions; ++t) {
      for (std::size_t o = 0; o < rows; ++o) {
        float& value = values[b * stretch + 10 + t * (rows + 1) + o];
        for (std::size_t k = 0; k < depth; ++k) value += weights[o * depth + k] * values[b * stretch + t * depth + k];
      }
    }
  }
  CHECK(results == values);
  device.release(there);
}
void ends_where_the_host_ends_with_sequences(const training::images& set) {
  training::choices chosen;
  chosen.max_batch = 40;
  chosen.steps = 1;
  const pergrad::cuda exec;
  const training::outcome device = training::train<training::rows>(exec, set, chosen);
  const double apart = training::distance(device, training::train_rows_on_host(set, chosen));
  std::printf("rows, momentum: %.2e of the way apart\n", apart);
  CHECK(apart < 1e-5);
  std::size_t products = 0;
  for (const std::string& node : fake_cuda::last_graph()) {
    std::printf("  %s\n", node.c_str());
    products += node.find("sgemm 640 x 28 x 1024, 32") == 0 || node.find("sgemm 1024 x 28 x 640, 32") == 0 ? 1U : 0U;
  }
  CHECK(products == 4);  // two calls forward and two back
  chosen.max_batch = 19;
  CHECK(training::train<training::rows>(exec, set, chosen).after == device.after);
}
/// A network that blocks would hold a few hundred samples of, but for cuBLAS, whose sums have other bits.
void ends_there_with_any_batch_where_blocks_could_hold_samples(const training::images& set) {
  using scaled = pergrad::network<pergrad::shape{784}, pergrad::scale<std::ratio<1, 2>>, pergrad::linear<200>,
                                  pergrad::relu, pergrad::linear<10>>;
  training::choices chosen;
  chosen.steps = 1;
  const pergrad::cuda exec;
  const auto ends = [&](std::size_t max_batch) {
    chosen.max_batch = max_batch;
    return training::train<scaled>(exec, set, chosen).after;
  };
  CHECK(ends(40) == ends(1000));
}
#else
void ends_near_there_with_bf16(const training::images& set) {
  training::choices chosen;
  chosen.max_batch = 40;
  const pergrad::cuda_bf16 exec;
  const training::outcome device = training::train<training::wide>(exec, set, chosen);
  const double apart = training::distance(device, training::train_wide_on_host(set, chosen));
  std::printf("wide, BF16: %.2e of the way apart\n", apart);
  CHECK(apart > 1e-5 && apart < 1e-2);
  chosen.max_batch = 19;
  CHECK(training::train<training::wide>(exec, set, chosen).after == device.after);
}
#endif

}  // namespace

int main() {
  const training::images set = training::load_images(training::image_count);
  ends_where_the_host_ends(set);
  ends_near_there_with_tf32(set);
#if PERGRAD_CUBLAS
  multiplies_sequences();
  ends_where_the_host_ends_with_sequences(set);
  ends_there_with_any_batch_where_blocks_could_hold_samples(set);
#else
  ends_near_there_with_bf16(set);
#endif
  CHECK(fake_cuda::live_device_bytes() == 0);
  CHECK(fake_cuda::live_pinned_bytes() == 0);
  CHECK(fake_cuda::live_handles() == 0);
  return check::result();
}
