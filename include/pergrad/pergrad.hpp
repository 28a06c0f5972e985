// SPDX-License-Identifier: Apache-2.0
// pergrad/pergrad.hpp - everything: networks, per-sample gradients, differential privacy, training
#pragma once

#include <pergrad/detail/cpp20.hpp>  // first: an older C++ understands nothing of what follows

// A program's globals may be called as our parameters are: g++ would warn of each under -Wshadow, as it looks for names
// from where a template is instantiated.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

// clang-format off
#include <pergrad/errors.hpp>  // these first, so that an error comes with a short list of includes
#include <pergrad/privacy/types.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/network.hpp>
#include <pergrad/tape.hpp>
#include <pergrad/batch.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/optim/parameter_average.hpp>
#include <pergrad/optim/scale_then_privatise.hpp>
#include <pergrad/optim/sgd.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/evaluation/predict.hpp>
#include <pergrad/train/private_loop.hpp>
#include <pergrad/train/dp_sgd.hpp>
#include <pergrad/detail/no_fast_math.hpp>
// clang-format on

#include <pergrad/concepts.hpp>
#include <pergrad/data/cifar.hpp>
#include <pergrad/data/idx.hpp>
#include <pergrad/data/sequences.hpp>
#include <pergrad/evaluation/classifier.hpp>
#include <pergrad/evaluation/metrics.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/leaf.hpp>
#include <pergrad/expressions/misuse.hpp>
#include <pergrad/expressions/noise.hpp>
#include <pergrad/expressions/scalars.hpp>
#include <pergrad/expressions/sums.hpp>
#include <pergrad/expressions/totals.hpp>
#include <pergrad/expressions/unclipped.hpp>
#include <pergrad/files/older_files.hpp>
#include <pergrad/files/parameters.hpp>
#include <pergrad/files/resume.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/host/describe.hpp>
#include <pergrad/host/executor.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/added_bias.hpp>
#include <pergrad/layers/augment.hpp>
#include <pergrad/layers/batch_norm.hpp>
#include <pergrad/layers/channel_affine.hpp>
#include <pergrad/layers/conv.hpp>
#include <pergrad/layers/conv_transpose2d.hpp>
#include <pergrad/layers/cross_attention.hpp>
#include <pergrad/layers/dropout.hpp>
#include <pergrad/layers/embedding.hpp>
#include <pergrad/layers/embedding_bag.hpp>
#include <pergrad/layers/gated.hpp>
#include <pergrad/layers/group_norm.hpp>
#include <pergrad/layers/group_sort.hpp>
#include <pergrad/layers/gru.hpp>
#include <pergrad/layers/layer_norm.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/lora.hpp>
#include <pergrad/layers/lstm.hpp>
#include <pergrad/layers/mean_over_positions.hpp>
#include <pergrad/layers/multihead_attention.hpp>
#include <pergrad/layers/not_offered.hpp>
#include <pergrad/layers/parallel.hpp>
#include <pergrad/layers/pools.hpp>
#include <pergrad/layers/positions.hpp>
#include <pergrad/layers/reshape.hpp>
#include <pergrad/layers/rnn.hpp>
#include <pergrad/layers/scale.hpp>
#include <pergrad/layers/scaled_dot_product_attention.hpp>
#include <pergrad/layers/sequence_bias.hpp>
#include <pergrad/layers/slices.hpp>
#include <pergrad/layers/transformer_encoder_layer.hpp>
#include <pergrad/layers/upsample.hpp>
#include <pergrad/layers/with_state.hpp>
#include <pergrad/losses/binary_cross_entropy.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/losses/focal.hpp>
#include <pergrad/losses/huber.hpp>
#include <pergrad/losses/mean_squared_error.hpp>
#include <pergrad/losses/not_offered.hpp>
#include <pergrad/losses/token_cross_entropy.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/calibrate.hpp>
#include <pergrad/privacy/accounting/estimates.hpp>
#include <pergrad/privacy/accounting/event_costs.hpp>
#include <pergrad/privacy/accounting/pld_accountant.hpp>
#include <pergrad/privacy/accounting/private_selection.hpp>
#include <pergrad/privacy/accounting/rdp.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/events.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/samplers/cyclic_poisson.hpp>
#include <pergrad/privacy/samplers/fixed_size.hpp>
#include <pergrad/privacy/samplers/min_separation.hpp>
#include <pergrad/privacy/samplers/poisson_replace_one.hpp>
#include <pergrad/privacy/samplers/random_allocation.hpp>
#include <pergrad/privacy/samplers/shuffled.hpp>
#include <pergrad/privacy/samplers/truncated_poisson.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/privacy/statistics.hpp>
#include <pergrad/privacy/units.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/train/check_records.hpp>
#include <pergrad/train/dp_sgd_base.hpp>
#include <pergrad/train/dp_sgd_options.hpp>
#include <pergrad/train/private_run.hpp>
#include <pergrad/train/statistics.hpp>
#include <pergrad/version.hpp>

#ifdef __CUDACC__
#include <pergrad/cuda/cuda.cuh>
#endif

// Nothing that follows reads these. docs/design.md lists what stays defined, and tests/headers/macros.py compares.
#undef PERGRAD_BEST_TARGET
#undef PERGRAD_OF_TARGET
#undef PERGRAD_ONLY_HOST_CALLS
#undef PERGRAD_OWN_TARGET
#undef PERGRAD_OWN_KERNELS
#undef PERGRAD_OWN_VECTOR_BYTES
#undef PERGRAD_OWN_VECTOR_REGISTERS
#undef PERGRAD_SHUFFLES
#undef PERGRAD_VECTORS_ON_DEVICE
#undef PERGRAD_WRITES_MEMBERS

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
