// SPDX-License-Identifier: Apache-2.0
// bench/cuda/probe.cu - says in one line of JSON which GPU there is; without a usable one, what is missing: exit code 3
#include <cstdio>
#include <cuda_runtime_api.h>
#include <string>

#include <pergrad/cuda/run/cuda_device.cuh>

int main() {
  const std::string missing = pergrad::on_device::cuda_device::missing();
  if (!missing.empty()) {
    std::printf("%s\n", missing.c_str());
    return 3;
  }
  cudaDeviceProp properties{};
  int driver = 0;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || cudaDriverGetVersion(&driver) != cudaSuccess) return 1;
  std::printf(
      "{\"gpu\": \"%s\", \"architecture\": %d, \"multiprocessors\": %d, \"memory_mb\": %.0f, \"cache_mb\": %.1f, "
      "\"runtime\": %d, \"driver\": %d}\n",
      properties.name, properties.major * 10 + properties.minor, properties.multiProcessorCount,
      static_cast<double>(properties.totalGlobalMem) * 1e-6, static_cast<double>(properties.l2CacheSize) * 1e-6,
      CUDART_VERSION, driver);
  return 0;
}
