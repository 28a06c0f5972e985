// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/samples.hpp - the fused plan: one block takes one sample through the whole network
//
// Forward, loss, backward, norms and clip factor of a sample in one launch; its values stay in its workspace, which
// lies in the device's cache. What the sums need is left there.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/kernel.hpp>
#include <pergrad/cuda/kernels/nodes.hpp>
#include <pergrad/cuda/kernels/norms.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/tables.hpp>
#include <pergrad/privacy/clip.hpp>

namespace pergrad::inline v0_1::on_device {

/// What one evaluation of samples writes besides their workspaces.
template <class Scalar>
struct sample_results {
  double* losses = nullptr;     ///< [sample]
  norm_bound* norms = nullptr;  ///< [sample][layer with parameters]
  Scalar* weights = nullptr;    ///< [sample][layer], or [sample][1] where the rule is not per layer
  int weight_stride = 1;        ///< from sample to sample
  Scalar* outputs = nullptr;    ///< [sample][output]; nullptr: nobody asks
};

template <class Scalar, class Loss, class Functions, int Threads>
struct sample_kernel {
  static constexpr int threads = Threads;
  using target = typename Loss::template target<Scalar>;
  struct shared_type {
    Scalar scratch[Threads];
    double partial[Threads / warp_size];
  };

  const step_state* state;
  table_view<Scalar> tables;
  batch_view<Scalar, target> samples;
  const Scalar* parameters;
  sample_results<Scalar> results;
  clip_rule rule;
  method_choice method;
  int output;  ///< places
  int output_gradient;
  int output_size;
  int backward;  ///< 0: losses and outputs only
  int norms;     ///< 0: nobody asks for norms or weights

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int sample = block.index();
    if (static_cast<std::uint32_t>(sample) >= state->count) return;
    auto& shared = block.template shared<shared_type>();
    const sample_values<Scalar> values = samples.values(sample);
    const node_worker<Block, Scalar, Functions, Threads> nodes{block, tables, values, parameters, shared.scratch};
    for (int i = 0; i < tables.op_count; ++i) nodes.forward(tables.ops[i]);
    block.once([&] {
      results.losses[sample] = Loss::evaluate(values.at(output), static_cast<std::size_t>(output_size),
                                              samples.targets_of(sample), values.to(output_gradient));
    });
    if (results.outputs != nullptr) {
      Scalar* outputs = results.outputs + static_cast<std::size_t>(sample) * static_cast<std::size_t>(output_size);
      block.each([&](int t) {
        for (int i = t; i < output_size; i += Threads) outputs[i] = values.at(output)[i];
      });
    }
    if (backward == 0) return;

    norm_bound* parts = results.norms + static_cast<std::size_t>(sample) * static_cast<std::size_t>(tables.layers);
    block.each([&](int t) {
      for (int layer = t; layer < tables.layers; layer += Threads) parts[layer] = norm_bound{};
    });
    const norm_worker<Block, Scalar, Threads> worker{block, values, samples.kept_of(sample), shared.partial};
    for (int i = tables.op_count; i-- > 0;) {
      const op_row& row = tables.ops[i];
      if (row.backward == 0) continue;
      const bool leaves_factors = row.kind == op_kind::general;  // its backward may write what its factors read
      if (leaves_factors) nodes.backward(row);
      for (int k = row.first_outer; k < row.last_outer; ++k) {
        const outer_leaf& leaf = tables.outer[k];
        const norm_method chosen = method.of(leaf);
        if (norms != 0 || chosen == norm_method::instantiate) worker.add(leaf, chosen, parts[leaf.layer]);
      }
      for (int k = row.first_elementwise; k < row.last_elementwise; ++k) {
        worker.add(tables.elementwise[k], shared.scratch, parts[tables.elementwise[k].layer]);
      }
      if (!leaves_factors) nodes.backward(row);
    }
    if (rule.kind == clip_rule::kind_type::none) return;
    block.once([&] {
      weigh(rule, parts, tables.layers, tables.parameter_count,
            results.weights + static_cast<std::size_t>(sample) * static_cast<std::size_t>(results.weight_stride));
    });
  }
};

}  // namespace pergrad::inline v0_1::on_device
