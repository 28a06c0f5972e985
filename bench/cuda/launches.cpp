// SPDX-License-Identifier: Apache-2.0
// bench/cuda/launches.cpp - the kernels of one step of a network as a device launches them, and their work; no device
// needed. Compiled by nvcc, it has the machine code of the same kernels and takes the steps, on a GPU.
//
//   launches BATCH...    one line of JSON a launch, of a private step and of the plain sum of a batch's gradients
//
// "network.hpp" has the network, as for ours.cu. bench/cuda/model.py reads this.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#ifndef __CUDACC__
#include <pergrad/cuda/run/trainer.hpp>
#endif
#include <pergrad/pergrad.hpp>

#include "launch_list.hpp"
#include "network.hpp"

namespace {

void print(std::size_t batch, const char* precision, bool is_private, const std::vector<launch_list::entry>& launches) {
  for (const launch_list::entry& each : launches) {
    const launch_list::work& done = each.done;
    std::printf("{\"batch\": %zu, \"precision\": \"%s\", \"private\": %s, \"type\": \"%s\", \"what\": \"%s\", ", batch,
                precision, is_private ? "true" : "false", each.type.c_str(), each.what.c_str());
    std::printf("\"group\": %d, \"branch\": %d, \"after\": %d, ", each.group, each.branch, each.after);
    std::printf("\"blocks\": %d, \"threads\": %d, \"shared\": %zu, ", each.blocks, each.threads, each.shared_bytes);
    std::printf("\"tile\": [%d, %d, %d], ", each.tile[0], each.tile[1], each.tile[2]);
    std::printf("\"multiply_adds\": %.0f, \"doubles\": %.0f, \"elements\": %.0f, \"fetched\": %.0f, ",
                done.multiply_adds, done.doubles, done.elements, done.fetched);
    std::printf("\"bytes\": %.0f, \"again_bytes\": %.0f, \"chain\": %.0f, \"double_chain\": %.0f, ", done.bytes,
                done.again_bytes, done.chain, done.double_chain);
    std::printf("\"square_chain\": %.0f, \"read_chain\": %.0f, ", done.square_chain, done.read_chain);
    std::printf(
        "\"held_bytes\": %.0f, \"held_chain\": %.0f, \"patch_chain\": %.0f, \"double_sums\": %.0f, \"near_rounds\": "
        "%.0f, ",
        done.held_bytes, done.held_chain, done.patch_chain, done.double_sums, done.near_rounds);
    std::printf("\"held_forward\": %.0f, \"held_back\": %.0f, ", done.held_forward, done.held_back);
    std::printf("\"held_rows\": %.0f, \"held_tiles\": %.0f, \"held_streams\": %.1f, \"held_together\": %.0f, ",
                done.held_rows, done.held_tiles, done.held_streams, done.held_together);
    std::printf("\"tile_chain\": %.0f, \"tiles\": %.1f, \"tile_loads\": %.0f, \"powers\": %.0f, ", done.tile_chain,
                done.tiles, done.tile_loads, done.powers);
    std::printf("\"element_rounds\": %.0f, \"slices\": %.0f, \"parts\": %.0f}\n", done.element_rounds, done.slices,
                done.parts);
  }
}

pergrad::dp_sgd_options options_for(std::size_t batch) {
  namespace pg = pergrad;
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{1.1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.01}};
  options.divisor = pg::expected_batch_size{static_cast<double>(batch)};
  options.learning_rate = pg::learning_rate{0.1};
  return options;
}

}  // namespace

int main(int count, char** words) {
  namespace pg = pergrad;
  try {
    for (int i = 1; i < count; ++i) {
      const std::size_t batch = std::stoul(words[i]);
      const pg::dp_sgd_options options = options_for(batch);
#ifdef __CUDACC__
      const auto take = [&](const auto& exec) {
        launch_list::take_private_step<task::network, task::loss>(exec, batch, options);
        launch_list::form_plain_sum<task::network, task::loss>(exec, batch, [] {});
      };
      take(pg::cuda{});
      take(pg::cuda_bf16{});
#endif
      const auto list = [&]<class Executor>(std::type_identity<Executor>, const char* precision,
                                            const pg::device_options& device) {
        using launch_list::private_step, launch_list::plain_sum;
        print(batch, precision, true, private_step<task::network, task::loss, Executor>(batch, options, device));
        print(batch, precision, false, plain_sum<task::network, task::loss, Executor>(batch, device));
      };
      list(std::type_identity<launch_list::listing>{}, "float", {});
      list(std::type_identity<launch_list::listing>{}, "tf32", {.tf32 = true});
      list(std::type_identity<launch_list::listing_bf16>{}, "bf16", {});
    }
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
    return 1;
  }
  return 0;
}
