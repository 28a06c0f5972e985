// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/cuda_device_test.cu - the CUDA runtime as a device, against a runtime that has none, or on a GPU
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/cuda/run/cuda_device.cuh>

#include "../fake_runtime/fake_runtime.hpp"
#include "check.hpp"

namespace {

namespace dev = pergrad::on_device;

}  // namespace

// Kernels are not local to a translation unit: their names must be the same for host and device.
namespace cuda_device_test {

/// values[i] *= factor, and the block's sum of the results goes to sums[block].
template <int Threads>
struct scale_kernel {
  static constexpr int threads = Threads;
  struct shared_type {
    float partial[Threads / 32];
  };
  float* values;
  float* sums;
  float factor;
  int count;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<float> own;
    block.each([&](int t) {
      const int i = block.index() * threads + t;
      own[t] = i < count ? values[i] * factor : 0.0F;
      if (i < count) values[i] = own[t];
    });
    const float total = block.sum(own, shared.partial);
    block.once([&] { sums[block.index()] = total; });
  }
};

/// More shared memory than a block gets unasked.
struct large_kernel {
  static constexpr int threads = 64;
  struct shared_type {
    float values[20'000];
  };
  float* out;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    block.each([&](int t) {
      for (int i = t; i < 20'000; i += threads) shared.values[i] = static_cast<float>(i);
    });
    block.once([&] { out[block.index()] = shared.values[19'999] + static_cast<float>(block.index()); });
  }
};

/// Nobody has launched it before.
struct late_kernel {
  static constexpr int threads = 32;
  struct shared_type {};
  int* out = nullptr;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    block.once([&] { *out = 7; });
  }
};

struct padded_kernel {
  static constexpr int threads = 32;
  struct shared_type {};
  int* out = nullptr;
  int number = 0;  // four bytes of padding follow

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    block.once([&] { *out = number; });
  }
};

}  // namespace cuda_device_test

namespace {

using cuda_device_test::large_kernel;
using cuda_device_test::late_kernel;
using cuda_device_test::padded_kernel;
using cuda_device_test::scale_kernel;

template <class Value>
std::vector<Value> downloaded(dev::cuda_device& device, const Value* from, std::size_t count) {
  std::vector<Value> values(count);
  device.download(values.data(), from, count * sizeof(Value));
  return values;
}

void says_what_is_missing() {
  fake_cuda::fail_with(cudaErrorInsufficientDriver);
  CHECK(dev::cuda_device::missing().find("no NVIDIA driver is loaded") != std::string::npos);
  CHECK(check::thrown_by<pergrad::cuda_unavailable>([] { dev::cuda_device device; }).find("pergrad: cuda: no usable") ==
        0);
  fake_cuda::fail_with(cudaErrorNoDevice);
  CHECK(dev::cuda_device::missing().find("finds no device") != std::string::npos);
  fake_cuda::fail_with(0);
  CHECK(dev::cuda_device::missing().empty());
  CHECK(check::thrown_by<std::invalid_argument>([] {
          dev::cuda_device device{cudaStreamLegacy};
        }).find("default stream") != std::string::npos);
}

void copies_and_launches_in_order() {
  dev::cuda_device device;
  constexpr int count = 1'000'000;  // more than all slots of the staging ring
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  auto* const memory = static_cast<float*>(device.allocate((count + 8'000) * sizeof(float)));
  float* const sums = memory + count;
  fake_cuda::reset();
  device.upload(memory, values.data(), 1'000 * sizeof(float));
  values[1] = -1;  // what has been uploaded is free to change
  device.launch(scale_kernel<128>{memory, sums, 2.0F, 1'000}, 8);
  CHECK(fake_cuda::counted().waits == 0);
  CHECK(fake_cuda::counted().kernels == 1);
  auto scaled = downloaded(device, memory, 1'000);
  CHECK(scaled[1] == 2.0F);
  CHECK(scaled[999] == 1998.0F);
  const auto partial = downloaded(device, sums, 8);
  CHECK(partial[0] == 127.0F * 128.0F);
  device.upload(memory, values.data(), count * sizeof(float));
  scaled = downloaded(device, memory, count);
  CHECK(scaled == values);
  device.fill_zero(memory, sizeof(float) * 2);
  scaled = downloaded(device, memory, 3);
  CHECK(scaled[0] == 0 && scaled[1] == 0 && scaled[2] == 2);
  device.launch(scale_kernel<128>{memory, sums, 2.0F, 1'000}, 0);
  CHECK(fake_cuda::counted().kernels == 1);
  device.launch(large_kernel{sums}, 3);
  CHECK(downloaded(device, sums, 3)[2] == 20'001.0F);
  device.release(memory);
}

// An integer and the bytes beside it, which nobody has set, may together look like an address of the host.
void padding_is_not_a_pointer() {
  dev::cuda_device device;
  auto* const memory = static_cast<int*>(device.allocate(sizeof(int)));
  alignas(padded_kernel) unsigned char place[sizeof(padded_kernel)];
  auto* const kernel = new (place) padded_kernel{memory, 0};
  const void* const of_the_host = place;
  std::memcpy(place + sizeof(int*), &of_the_host, sizeof of_the_host);
  device.launch(*kernel, 1);
  CHECK(downloaded(device, memory, 1)[0] == kernel->number);
  CHECK(fake_cuda::take_violations().empty());
  device.release(memory);
}

void fresh_memory_is_not_a_number() {
  dev::cuda_device device;
  auto* const memory = static_cast<float*>(device.allocate(1'000 * sizeof(float)));
  std::size_t numbers = 0;
  for (const float value : downloaded(device, memory, 1'000)) numbers += std::isnan(value) ? 0U : 1U;
  CHECK(numbers == 0);
  device.release(memory);
}

void many_small_uploads_do_not_wait_and_none_overtakes_another() {
  dev::cuda_device device;
  constexpr int count = 1'000;
  constexpr std::size_t width = 700;  // all of them fill the staging memory more than once
  auto* const memory = static_cast<float*>(device.allocate(count * width * sizeof(float)));
  std::vector<float> values(width);
  fake_cuda::reset();
  for (int i = 0; i < count; ++i) {
    std::fill(values.begin(), values.end(), static_cast<float>(i));
    device.upload(memory + i * static_cast<int>(width), values.data(), width * sizeof(float));
    if (i == count / 2) CHECK(fake_cuda::counted().waits == 0);
  }
  const auto found = downloaded(device, memory, count * width);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] == static_cast<float>(i / width) ? 0U : 1U;
  CHECK(wrong == 0);
  device.release(memory);
}

/// An event that is not done stays the runtime's last error: nobody may take it for the launch's own. Uploads have to
/// wait for one here.
void a_launch_behind_uploads_that_waited() {
  dev::cuda_device device;
  constexpr std::size_t large = std::size_t{3} << 18U;  // 3 MiB of floats: more than the staging memory
  auto* const memory = static_cast<float*>(device.allocate((large + 2) * sizeof(float)));
  const std::vector<float> ones(large, 1.0F);
  fake_cuda::reset();
  device.upload(memory, ones.data(), large * sizeof(float));
  device.launch(scale_kernel<64>{memory, memory + large, 3.0F, 128}, 2);
  if (fake_cuda::plays_the_device()) CHECK(fake_cuda::counted().waits > 0);
  CHECK(downloaded(device, memory, 128)[127] == 3.0F);
  // nor is an error of somebody else's call taken for it
  static_cast<void>(cudaEventDestroy(nullptr));
  device.launch(scale_kernel<64>{memory, memory + large, 3.0F, 128}, 2);
  CHECK(downloaded(device, memory, 128)[127] == 9.0F);
  static_cast<void>(cudaGetLastError());
  static_cast<void>(fake_cuda::take_violations());
  device.release(memory);
}

void replays_what_it_captured() {
  dev::cuda_device device;
  auto* const memory = static_cast<float*>(device.allocate(200 * sizeof(float)));
  float* const sums = memory + 128;
  auto graph = device.capture([&] {
    device.fill_zero(sums, 2 * sizeof(float));
    device.launch(scale_kernel<64>{memory, sums, 3.0F, 128}, 2);
  });
  CHECK(dev::cuda_device::node_count(graph) == 2);
  CHECK(fake_cuda::last_graph() == std::vector<std::string>{"memset 8", "kernel scale_kernel 2 x 64, shared 8"});
  const std::vector<float> ones(128, 1.0F);
  device.upload(memory, ones.data(), sizeof(float) * 128);
  fake_cuda::reset();
  for (int i = 0; i < 4; ++i) device.replay(graph);
  CHECK(fake_cuda::counted().waits == 0);
  CHECK(fake_cuda::counted().replayed_nodes == 8);
  CHECK(fake_cuda::counted().device_allocations == 0);
  CHECK(downloaded(device, memory, 128)[127] == 81.0F);
  CHECK(downloaded(device, sums, 2)[1] == 81.0F * 64.0F);
  // Other numbers change what is there, other nodes make a new one; either way what was replayed before is as it was.
  const auto scale = [&](float factor, int times) {
    return [&device, memory, sums, factor, times] {
      device.fill_zero(sums, 2 * sizeof(float));
      for (int i = 0; i < times; ++i) device.launch(scale_kernel<64>{memory, sums, factor, 128}, 2);
    };
  };
  for (const float factor : {2.0F, 5.0F}) {
    device.recapture(graph, scale(factor, 1));
    device.replay(graph);
  }
  if (fake_cuda::plays_the_device()) CHECK(fake_cuda::counted().updates == 2);
  CHECK(fake_cuda::counted().captures == 2);
  CHECK(downloaded(device, memory, 128)[63] == 810.0F);
  device.recapture(graph, scale(0.5F, 2));
  CHECK(dev::cuda_device::node_count(graph) == 3);
  device.replay(graph);
  CHECK(downloaded(device, memory, 128)[63] == 202.5F);
  auto fresh = dev::cuda_device::graph{};
  device.recapture(fresh, scale(2, 1));
  device.replay(fresh);
  CHECK(downloaded(device, memory, 128)[63] == 405.0F);
  device.release(memory);
}

/// Two replays of: x doubles; beside what follows the sum of x is taken; x doubles again, behind it if `joins`. Is the
/// sum right both times?
bool is_sum_of_x(bool joins) {
  dev::cuda_device device;
  auto* const x = static_cast<float*>(device.allocate(200 * sizeof(float)));
  float* const other = x + 64;
  float* const sums = x + 128;
  const auto scale = [&](float* values, int sum, float factor) {
    device.launch(scale_kernel<64>{values, sums + sum, factor, 64}, 1);
  };
  auto graph = device.capture([&] {
    scale(x, 0, 2);
    device.beside([&] { scale(x, 1, 1); });
    scale(other, 2, 1);
    if (joins) device.join();
    scale(x, 3, 2);
    device.join();
  });
  CHECK(dev::cuda_device::node_count(graph) == 4);
  const std::vector<float> ones(128, 1.0F);
  device.upload(x, ones.data(), sizeof(float) * 128);
  bool right = true;
  for (const float wanted : {2.0F, 8.0F}) {
    device.replay(graph);
    const auto found = downloaded(device, sums, 4);
    right = right && found[1] == 64 * wanted && found[3] == 128 * wanted;
  }
  device.release(x);
  return right;
}
void what_runs_beside_others_waits_and_is_waited_for() {
  CHECK(is_sum_of_x(true));
  // planted: it is not waited for
  if (fake_cuda::plays_the_device()) CHECK(!is_sum_of_x(false));
}

void a_mailbox_waits_for_its_copy_alone() {
  dev::cuda_device device;
  auto* const memory = static_cast<float*>(device.allocate(200 * sizeof(float)));
  const std::vector<float> ones(128, 1.0F);
  device.upload(memory, ones.data(), sizeof(float) * 128);
  {
    dev::cuda_device::mailbox mailbox{device, sizeof(float) * 128};
    const auto last = [&] { return static_cast<const float*>(mailbox.wait())[127]; };
    device.launch(scale_kernel<64>{memory, memory + 128, 2.0F, 128}, 2);
    mailbox.post(memory, sizeof(float) * 128);
    device.launch(scale_kernel<64>{memory, memory + 128, 3.0F, 128}, 2);
    CHECK(last() == 2.0F);
    CHECK(last() == 2.0F);
    mailbox.post(memory, sizeof(float) * 128);
    CHECK(last() == 6.0F);
    mailbox.post(memory, sizeof(float) * 128);  // and nobody waits
  }
  device.release(memory);
}

void a_failed_capture_leaves_the_stream_usable() {
  dev::cuda_device device;
  const auto fails = [&] {
    auto graph = device.capture([&] {
      if (!device.is_warming_up()) static_cast<void>(device.allocate(16));
    });
    device.replay(graph);
  };
  CHECK(check::thrown_by<pergrad::cuda_error>(fails).find("pergrad: cuda: cudaMalloc: ") == 0);
  CHECK(fake_cuda::take_violations() == std::vector<std::string>{"cudaMalloc during a capture"});
  auto graph = device.capture([] {});
  CHECK(dev::cuda_device::node_count(graph) == 0);
  const auto waits = [&] {
    auto other = device.capture([&] {
      if (!device.is_warming_up()) device.synchronise();
    });
  };
  CHECK(check::thrown_by<pergrad::cuda_error>(waits).find("cudaStreamSynchronize") != std::string::npos);
  CHECK(!fake_cuda::take_violations().empty());
  fake_cuda::fail_next_allocation();
  CHECK(check::thrown_by<std::bad_alloc>([&] { static_cast<void>(device.allocate(16)); }) ==
        "pergrad: cuda: no memory for 16 bytes on the device");
}

// What the runtime without a GPU refuses, as old drivers do, is that a kernel is first launched in a capture.
void code_is_loaded_before_a_capture() {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  {
    dev::cuda_device device{stream};
    auto* const memory = static_cast<int*>(device.allocate(sizeof(int)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(!check::thrown_by<pergrad::cuda_error>([&] { device.launch(late_kernel{memory}, 1); }).empty());
    cudaGraph_t recorded = nullptr;
    static_cast<void>(cudaStreamEndCapture(stream, &recorded));
    if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
    CHECK(fake_cuda::take_violations().size() == 1);
    auto graph = device.capture([&] { device.launch(late_kernel{memory}, 1); });
    CHECK(dev::cuda_device::node_count(graph) == 1);
    device.replay(graph);
    CHECK(downloaded(device, memory, 1)[0] == 7);
    device.release(memory);
  }
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

void host_pointers_are_noticed() {
  dev::cuda_device device;
  std::vector<float> here(64, 1.0F);
  auto* const memory = static_cast<float*>(device.allocate(16));
  device.launch(scale_kernel<64>{here.data(), memory, 1.0F, 0}, 1);
  device.synchronise();
  const auto found = fake_cuda::take_violations();
  CHECK(found.size() == 1 && found[0].find("gets a pointer to the host's memory") != std::string::npos);
  device.release(memory);
}

/// No byte can be pinned twice: what one view has pinned no other one sees, and what the caller has pinned stays his.
void views_pin_what_nobody_has_pinned() {
  fake_cuda::share(fake_cuda::host_memory::registered);
  dev::cuda_device one;
  dev::cuda_device other;
  std::vector<std::byte> records(std::size_t{1} << 20U);
  const std::size_t before = fake_cuda::live_pinned_bytes();
  {
    const auto whole = one.view(records.data(), records.size(), false);
    CHECK(whole.get() == records.data());
    CHECK(fake_cuda::live_pinned_bytes() == before + records.size());
    // Were it shared, memory that is given back and taken anew would be seen as it was.
    CHECK(other.view(records.data(), records.size(), false) == nullptr);
    CHECK(other.view(records.data() + 100, 1000, false) == nullptr);
  }
  CHECK(fake_cuda::live_pinned_bytes() == before);
  CHECK(other.view(records.data(), records.size(), false).get() == records.data());
  void* of_the_caller = nullptr;
  CHECK(cudaHostAlloc(&of_the_caller, records.size(), cudaHostAllocDefault) == cudaSuccess);
  for (int time = 0; time < 2; ++time) {
    const auto seen = one.view(of_the_caller, records.size(), false);
    CHECK(seen.get() == of_the_caller);
    CHECK(one.view(of_the_caller, records.size() + (std::size_t{1} << 16U), false) == nullptr);  // it ends before
  }
  CHECK(fake_cuda::live_pinned_bytes() == before + records.size());
  CHECK(cudaFreeHost(of_the_caller) == cudaSuccess);
  // Pages that would move to the device for every read are pinned where somebody streams, and else not read there.
  fake_cuda::share(fake_cuda::host_memory::migrating);
  CHECK(one.view(records.data(), records.size(), false) == nullptr);
  {
    const auto streamed = one.view(records.data(), records.size(), true);
    CHECK(streamed.get() == records.data());
    CHECK(fake_cuda::live_pinned_bytes() == before + records.size());
  }
  fake_cuda::share(fake_cuda::host_memory::separate);
}

void says_how_fast_it_is() {
  const dev::device_speed speed = dev::cuda_device::speed();
  CHECK(speed.multiply_adds > 0 && speed.bytes > 0);
  if (!fake_cuda::plays_the_device()) return;
  // 8 multiprocessors of 128 units at 1 GHz; 128 bits, twice a clock of 3 GHz.
  CHECK(speed.multiply_adds == 8 * 128 * 1e9);
  CHECK(speed.bytes == 2 * 16 * 3e9);
  CHECK(speed.tensor_multiply_adds == 8 * 512 * 1e9);  // compute capability 8.7
}

}  // namespace

int main() {
  says_what_is_missing();
  says_how_fast_it_is();
  copies_and_launches_in_order();
  padding_is_not_a_pointer();
  fresh_memory_is_not_a_number();
  many_small_uploads_do_not_wait_and_none_overtakes_another();
  a_launch_behind_uploads_that_waited();
  replays_what_it_captured();
  what_runs_beside_others_waits_and_is_waited_for();
  a_mailbox_waits_for_its_copy_alone();
  a_failed_capture_leaves_the_stream_usable();
  if (fake_cuda::plays_the_device()) {
    host_pointers_are_noticed();
    views_pin_what_nobody_has_pinned();
    code_is_loaded_before_a_capture();
  }
  CHECK(fake_cuda::live_device_bytes() == 0);
  CHECK(fake_cuda::live_pinned_bytes() == 0);
  CHECK(fake_cuda::live_handles() == 0);
  return check::result();
}
