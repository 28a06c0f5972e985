// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/samples.hpp - one block takes one sample through the network, or through a stretch of it
//
// Fused: forward, loss, backward, norms and clip factor of a sample in one launch; its values stay in its workspace,
// which lies in the device's cache. What the sums need is left there. Layered: the same kernel runs what lies between
// the products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/nodes.hpp>
#include <pergrad/cuda/kernels/norms.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/privacy/clip.hpp>

namespace pergrad::inline v0_1::on_device {

/// What one evaluation of samples writes besides their workspaces.
template <class Scalar>
struct sample_results {
  double* losses = nullptr;           ///< [sample]
  double* position_losses = nullptr;  ///< [sample][position]: layered
  norm_bound* norms = nullptr;        ///< [sample][layer with parameters]
  double* squares = nullptr;          ///< [sample][part]: layered, read
  Scalar* weights = nullptr;          ///< [layer][sample], or [sample] where the rule is not per layer
  int layer_stride = 0;               ///< from layer to layer
  int square_stride = 0;              ///< from sample to sample
  Scalar* outputs = nullptr;          ///< [sample][output]; nullptr: nobody asks
};

/// What a launch of the kernel does, in this order; bits.
namespace stage {
inline constexpr int forward = 1;
inline constexpr int loss = 2;
inline constexpr int backward = 4;         ///< nodes first .. last - 1, the last one first
inline constexpr int leaves = 8;           ///< with `backward`: norms of each node's leaves as soon as they are whole
inline constexpr int layered_leaves = 16;  ///< norms of all leaves, from the squares that products have left
inline constexpr int weigh = 32;
inline constexpr int trim = 64;     ///< with `forward` or `backward`: no more than the zeros behind samples' lengths
inline constexpr int part = 128;    ///< with one of them: a block takes a part of a layer, and does no more than that
inline constexpr int finish = 256;  ///< with `backward`: what is to be done behind a layer's parts, by as many blocks
inline constexpr int fused = forward | loss | backward | leaves | weigh;
}  // namespace stage

/// Everything that a launch of the kernel is told: the same type for all networks, losses and sizes of blocks.
template <class Scalar, class Target>
struct sample_work {
  const step_state* state = nullptr;
  table_view<Scalar> tables;
  batch_view<Scalar, Target> samples;
  const Scalar* parameters = nullptr;
  sample_results<Scalar> results;
  clip_rule rule;
  method_choice method;
  random_stream layers{};  ///< of the bits inside layers, at any step, if `random`
  int random = 0;
  int output = 0;  ///< places
  int output_gradient = 0;
  int output_size = 0;
  int output_lengths = -1;
  int output_positions = 0;  ///< along the first axis, of samples that have lengths of their own
  int norms = 0;             ///< 0: nobody asks for norms or weights
  stored_format format{};    ///< of values that are handed on, and of gradients
  int stages = 0;
  int first = 0;  ///< nodes
  int last = 0;
  int layer_parts = 1;  ///< blocks of a sample, at `stage::part` and `stage::finish`
  int held_room = 0;    ///< scalars of shared memory for a matrix that a layer reads at every position
};

/// Is it a loss over positions that says what threads do together for one of them, for itself and not for one that it
/// derives from? A warp takes a position then, or, in a layered network, a block.
template <class Loss>
inline constexpr bool takes_threads_by_position = requires(const std::int32_t* targets) {
  requires std::is_same_v<typename Loss::by_position, Loss>;
  Loss::weight_of(targets, std::size_t{});
};
/// Does a loss say what threads do together, for itself and not for one that it derives from? Of its terms, or of all
/// of its outputs.
template <class Loss>
inline constexpr bool says_by_threads = requires {
  requires std::is_same_v<typename Loss::by_threads, Loss>;
};
template <class Loss>
inline constexpr bool has_terms = requires {
  Loss::term(1.0, 1.0, 1.0);
};
/// Is it a mean over outputs, which threads share (losses/terms.hpp)?
template <class Loss>
inline constexpr bool takes_threads_by_output = says_by_threads<Loss>&& has_terms<Loss>&& marked_for_devices<Loss>;
/// Does a loss of one position say that?
template <class Loss>
inline constexpr bool takes_threads_by_class = says_by_threads<Loss> && !has_terms<Loss>;
/// The loss of position t, which nothing has weighed, and its gradient, by a block or a warp; zeros where it does not
/// count.
template <class Loss, class Group, class Scalar, class Target>
PERGRAD_HD double evaluate_position(const Group& group, const Scalar* y, int classes, const Target* targets, int t,
                                    int length, double weight, Scalar* dy,
                                    Scalar (&partial)[Group::threads / warp_size]) {
  if constexpr (takes_threads_by_class<Loss>) {
    return Loss::evaluate_together(group, y, classes, static_cast<int>(targets[t]), Scalar{1}, dy, partial);
  } else if (t < length && !Loss::ignores(targets[t])) {
    return Loss::evaluate_together(group, y, classes, static_cast<int>(targets[t]), static_cast<Scalar>(weight), dy,
                                   partial);
  }
  on_device::for_each(group, classes, [&](int i) { dy[i] = 0; });
  return 0;
}
/// How many of a sample's outputs there are: those of the positions that it has.
template <class Scalar, class Target>
[[nodiscard]] PERGRAD_HD int outputs_there(const sample_work<Scalar, Target>& work,
                                           const sample_values<Scalar>& values) noexcept {
  const int positions = values.positions(work.output_lengths, work.output_positions);
  return positions >= work.output_positions ? work.output_size : work.output_size / work.output_positions * positions;
}
/// The loss of a sample and its gradient, by one thread, of output `y`.
template <class Loss, class Scalar, class Target>
PERGRAD_HD void evaluate_loss(const sample_work<Scalar, Target>& work, const sample_values<Scalar>& values, int sample,
                              const Scalar* y, Scalar* dy) {
  if constexpr (marked_for_devices<Loss>) {  // others have been refused
    const auto size = static_cast<std::size_t>(work.output_size);
    const auto* const targets = work.samples.targets_of(sample);
    if constexpr (detail::takes_length<Loss, Scalar>) {  // then there is a target a position
      const int positions = work.samples.target_count;
      work.results.losses[sample] =
          device_code_of<Loss>::evaluate(y, size, targets, dy, static_cast<std::size_t>(positions),
                                         static_cast<std::size_t>(values.positions(work.output_lengths, positions)));
    } else {  // of what is there: concepts.hpp
      const auto there = static_cast<std::size_t>(outputs_there(work, values));
      for (std::size_t i = there; i < size; ++i) dy[i] = 0;
      work.results.losses[sample] = there == 0 ? 0 : device_code_of<Loss>::evaluate(y, there, targets, dy);
    }
  }
}

/// `Layered`: 1 for networks whose norms norm_kernel finds from what products have left, 0 for those that find them on
/// the way back.
template <class Scalar, class Loss, class Functions, int Threads, int Layered>
struct sample_kernel : sample_work<Scalar, typename Loss::template target<Scalar>> {
  static constexpr int threads = Threads;
  static constexpr int least_blocks = Threads < 256 ? 1 : 2;  // that is 128 registers a thread
  using work_type = sample_work<Scalar, typename Loss::template target<Scalar>>;
  struct shared_type {
    alignas(4 * sizeof(Scalar)) Scalar scratch[static_cast<std::size_t>(Threads)];
    double partial[static_cast<std::size_t>(Threads / warp_size)];
  };
  using work_type::first, work_type::last, work_type::stages, work_type::layer_parts, work_type::held_room;
  using work_type::layers, work_type::random, work_type::method, work_type::rule, work_type::norms;
  using work_type::output, work_type::output_gradient, work_type::output_size, work_type::output_lengths,
      work_type::format;
  using work_type::state, work_type::tables, work_type::samples, work_type::parameters, work_type::results;

  /// Behind shared_type.
  [[nodiscard]] std::size_t more_shared_bytes() const noexcept {
    return static_cast<std::size_t>(held_room) * sizeof(Scalar);
  }

  template <class Block>
  [[gnu::always_inline]] PERGRAD_HD void operator()(const Block& block) const {  // a call would need local memory
    const int sample = block.index() / layer_parts;
    if (static_cast<std::uint32_t>(sample) >= state->count) return;
    const block_part part{block.index() % layer_parts, layer_parts};
    const bool in_parts = (stages & stage::part) != 0;
    auto& shared = block.template shared<shared_type>();
    const sample_values<Scalar> values = samples.values(sample);
    layer_bits bits;
    if (random != 0) bits = {&layers, state->layer_step, samples.numbers[sample] + state->first_record};
    const node_worker<Block, Scalar, Functions, Threads, Layered == 0> nodes{
        block,      tables,         values,
        parameters, shared.scratch, shared.partial,
        bits,       part,           reinterpret_cast<Scalar*>(&shared + 1),
        held_room};
    const norm_worker<Block, Scalar, Threads> worker{block, values, samples.kept_of(sample), shared.partial};
    norm_bound* parts = results.norms + static_cast<std::size_t>(sample) * static_cast<std::size_t>(tables.layers);
    if ((stages & stage::forward) != 0) {
      for (int i = first; i < last; ++i) {
        const op_row& row = tables.ops[i];
        if (!is_product(row) && (stages & stage::trim) == 0) nodes.forward(row);
        if (in_parts) continue;
        nodes.trim(row, row.out);
        if (row.handed_on != 0) store_rounded(block, part, values.to(row.out), row.out_size);
      }
    }
    if constexpr (Layered == 0 || !takes_threads_by_position<Loss>) {  // else others do
      if ((stages & stage::loss) != 0) finish_forward(block, values, sample, shared);
    }
    if ((stages & stage::leaves) != 0) {
      block.each([&](int t) {
        PERGRAD_ROLLED
        for (int layer = t; layer < tables.layers; layer += Threads) parts[layer] = norm_bound{};
      });
    }
    if ((stages & stage::backward) != 0) {
      for (int i = last; i-- > first;) {
        const op_row& row = tables.ops[i];
        if (row.backward == 0) continue;
        const bool finishes = (stages & stage::finish) != 0;
        if (!in_parts && !finishes) nodes.trim(row, row.dy);
        if (is_product(row) || (stages & stage::trim) != 0) continue;
        const bool leaves_factors = row.kind == node_kind::general || row.kind == node_kind::tiled;
        if (leaves_factors) {
          if (!finishes) nodes.backward_to_factors(row);
          if (in_parts) continue;
          nodes.add_written(row);
          store_rounded(block, part, values.to(row.saved), row.saved_size);
        }
        if (Layered == 0 && (stages & stage::leaves) != 0) {
          for (int k = row.first_outer; k < row.last_outer; ++k) {
            const outer_leaf& leaf = tables.outer[k];
            if (leaf.first == 0) continue;
            const norm_method chosen = method.of(leaf);
            if (norms != 0 || chosen == norm_method::instantiate) worker.add(leaf, chosen, parts[leaf.layer]);
          }
          add_elementwise(worker, shared, row.first_elementwise, row.last_elementwise, parts);
          worker.add_rows(tables.rows, row.first_rows, row.last_rows, norms, parts);
        }
        if (!leaves_factors) nodes.backward(row);
        if (row.input_gradient != 0 && row.out_size > 0) store_rounded(block, part, values.to(row.dx), row.in_size);
        if (row.input2_gradient != 0) store_rounded(block, part, values.to(row.dx2), row.in2_size);
      }
    }
    if ((stages & stage::weigh) == 0 || rule.kind == clip_rule::kind_type::none) return;
    block.once([&] {
      weigh(rule, parts, tables.layers, tables.parameter_count, sample, results.weights, results.layer_stride);
    });
  }

 private:
  /// Is the node a product of the whole batch, of which nothing is left here but to trim it?
  [[nodiscard]] PERGRAD_HD static constexpr bool is_product(const op_row& row) noexcept {
    return Layered != 0 && row.kind == node_kind::affine;
  }
  template <class Block>
  PERGRAD_HD void evaluate_positions(const Block& block, const sample_values<Scalar>& values, int sample,
                                     shared_type& shared) const {
    const int positions = samples.target_count;
    const int classes = output_size / positions;
    const int length = values.positions(output_lengths, positions);
    const auto* const targets = samples.targets_of(sample);
    const double weight = Loss::weight_of(targets, static_cast<std::size_t>(length));
    block.warps([&](const auto& warp) {
      double loss = 0;
      for (int t = warp.index(); t < positions; t += Threads / warp_size) {
        Scalar unused[1];
        loss += evaluate_position<Loss>(warp, values.at(output) + t * classes, classes, targets, t, length, weight,
                                        values.to(output_gradient) + t * classes, unused);
      }
      warp.each([&](int lane) {
        if (lane == 0) shared.partial[warp.index()] = loss;
      });
    });
    block.once([&] {
      double loss = 0;
      PERGRAD_ROLLED
      for (int i = 0; i < Threads / warp_size; ++i) loss += shared.partial[i];
      results.losses[sample] = loss * weight;
    });
  }
  template <class Block>
  PERGRAD_HD void evaluate_outputs(const Block& block, const sample_values<Scalar>& values, int sample,
                                   shared_type& shared) const {
    const int there = outputs_there(*this, values);
    const auto count = static_cast<double>(there);
    const Scalar* const y = values.at(output);
    Scalar* const dy = values.to(output_gradient);
    const auto* const targets = samples.targets_of(sample);
    typename Block::template local<double> own;
    block.each([&](int t) {
      double sum = 0;
      PERGRAD_ROLLED
      for (int i = t; i < output_size; i += Threads) {
        decltype(Loss::term(0.0, 0.0, 0.0)) term{};
        if (i < there) {
          term = device_code_of<Loss>::term(static_cast<double>(y[i]), static_cast<double>(targets[i]), count);
        }
        sum += term.loss;
        dy[i] = static_cast<Scalar>(term.slope);
      }
      own[t] = sum;
    });
    const double sum = block.sum(own, shared.partial);
    block.once([&] { results.losses[sample] = there == 0 ? 0 : sum / count; });
  }
  /// What norms and sums read is rounded here, once, where it lies: so both see the same numbers.
  template <class Block>
  PERGRAD_HD void store_rounded(const Block& block, block_part part, Scalar* at, int count) const {
    if (format == stored_format::exact || count == 0) return;
    const part_range own = range_of_part(part, count);
    at += own.first;
    for_each(block, static_cast<int>(own.count), [&](int i) { at[i] = stored_as(format, at[i]); });
  }
  template <class Block>
  PERGRAD_HD void finish_forward(const Block& block, const sample_values<Scalar>& values, int sample,
                                 shared_type& shared) const {
    if constexpr (takes_threads_by_position<Loss>) {
      evaluate_positions(block, values, sample, shared);
    } else if constexpr (takes_threads_by_output<Loss>) {
      evaluate_outputs(block, values, sample, shared);
    } else {
      block.once([&] { evaluate_loss<Loss>(*this, values, sample, values.at(output), values.to(output_gradient)); });
    }
    store_rounded(block, {}, values.to(output_gradient), output_size);
    if (results.outputs == nullptr) return;
    Scalar* outputs = results.outputs + static_cast<std::size_t>(sample) * static_cast<std::size_t>(output_size);
    block.each([&](int t) {
      PERGRAD_ROLLED
      for (int i = t; i < output_size; i += Threads) outputs[i] = values.at(output)[i];
    });
  }
  template <class Worker>
  PERGRAD_HD void add_elementwise(const Worker& worker, shared_type& shared, int begin, int end,
                                  norm_bound* parts) const {
    for (int k = begin; k < end; ++k) {
      const elementwise_leaf& leaf = tables.elementwise[k];
      if (leaf.first != 0) worker.add(leaf, shared.scratch, parts[leaf.layer]);
    }
  }
};

/// Losses of samples with few outputs, of a layered network: a thread takes a sample, whose numbers the block has
/// brought together.
template <class Scalar, class Loss>
struct loss_kernel : sample_work<Scalar, typename Loss::template target<Scalar>> {
  static constexpr int threads = 32;
  static constexpr int line = static_cast<int>(most_outputs_of_thread) + 1;  ///< of a sample: threads meet in no bank
  struct shared_type {
    Scalar y[static_cast<std::size_t>(threads * line)];
    Scalar dy[static_cast<std::size_t>(threads * line)];
  };
  using work_type = sample_work<Scalar, typename Loss::template target<Scalar>>;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    const int begin = block.index() * threads;
    const int count = smaller_of(threads, static_cast<int>(this->state->count) - begin);
    const int size = this->output_size;
    const auto each_output = [&](auto&& f) {  // f(sample, output, place in shared memory)
      on_device::for_each(block, count * size,
                          [&](int i) { f(begin + i / size, i % size, i / size * line + i % size); });
    };
    each_output([&](int sample, int i, int at) {
      shared.y[at] = this->samples.values(sample).at(this->output)[i];
      if (this->results.outputs != nullptr) this->results.outputs[std::int64_t{sample} * size + i] = shared.y[at];
    });
    block.each([&](int t) {
      if (t >= count) return;
      evaluate_loss<Loss>(*this, this->samples.values(begin + t), begin + t, &shared.y[t * line], &shared.dy[t * line]);
    });
    each_output([&](int sample, int i, int at) {
      this->samples.values(sample).to(this->output_gradient)[i] = stored_as(this->format, shared.dy[at]);
    });
  }
};

/// Losses over positions, or of many classes, of a layered network: a block takes a position of a sample, of whose
/// classes there may be many, or, where there are few, each of its warps one.
template <class Scalar, class Loss, bool ByWarps>
struct position_loss_kernel : sample_work<Scalar, typename Loss::template target<Scalar>> {
  static constexpr int threads = 256;
  static constexpr int positions_of_block = ByWarps ? threads / warp_size : 1;
  struct shared_type {
    Scalar partial[static_cast<std::size_t>(threads / warp_size)];
  };
  using work_type = sample_work<Scalar, typename Loss::template target<Scalar>>;
  using work_type::samples, work_type::results, work_type::output_size, work_type::format;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    if constexpr (ByWarps) {
      block.warps([&](const auto& warp) {
        Scalar unused[1];
        evaluate(warp, block.index() * positions_of_block + warp.index(), unused);
      });
    } else {
      evaluate(block, block.index(), shared.partial);
    }
  }

 private:
  /// Position `number` of all samples' by a block or a warp.
  template <class Group>
  PERGRAD_HD void evaluate(const Group& group, int number, Scalar (&partial)[Group::threads / warp_size]) const {
    const int positions = samples.target_count;
    const int sample = number / positions;
    const int t = number % positions;
    if (static_cast<std::uint32_t>(sample) >= this->state->count) return;
    const sample_values<Scalar> values = samples.values(sample);
    const int classes = output_size / positions;
    const int length = values.positions(this->output_lengths, positions);
    const auto* const targets = samples.targets_of(sample);
    const Scalar* const y = values.at(this->output) + t * classes;
    Scalar* const dy = values.to(this->output_gradient) + t * classes;
    double weight = 1;
    if constexpr (takes_threads_by_position<Loss>) weight = Loss::weight_of(targets, static_cast<std::size_t>(length));
    const double loss = evaluate_position<Loss>(group, y, classes, targets, t, length, weight, dy, partial);
    if (format != stored_format::exact) {
      on_device::for_each(group, classes, [&](int i) { dy[i] = stored_as(format, dy[i]); });
    }
    double* const to = takes_threads_by_position<Loss> ? results.position_losses : results.losses;
    group.once([&] { to[number] = weight * loss; });
    if (results.outputs == nullptr) return;
    Scalar* const outputs = results.outputs + std::int64_t{sample} * output_size + t * classes;
    on_device::for_each(group, classes, [&](int i) { outputs[i] = y[i]; });
  }
};
/// A sample's loss is the sum of its positions'; one block a sample.
template <class Scalar, class Target>
struct loss_of_positions_kernel : sample_work<Scalar, Target> {
  static constexpr int threads = warp_size;
  struct shared_type {
    double partial[1];
  };

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int sample = block.index();
    if (static_cast<std::uint32_t>(sample) >= this->state->count) return;
    auto& shared = block.template shared<shared_type>();
    const int positions = this->samples.target_count;
    const double* const losses = this->results.position_losses + std::int64_t{sample} * positions;
    typename Block::template local<double> own;
    block.each([&](int lane) {
      own[lane] = 0;
      for (int t = lane; t < positions; t += threads) own[lane] += losses[t];
    });
    const double loss = block.sum(own, shared.partial);
    block.once([&] { this->results.losses[sample] = loss; });
  }
};

/// Is the norm of a leaf, from a factor for each of its sides or from squares that products have left, little work?
[[nodiscard]] PERGRAD_HD constexpr bool is_little(const outer_leaf& leaf, const method_choice& method) noexcept {
  constexpr int most = 4096;
  return leaf.next == 0 && method.of(leaf) != norm_method::gram && !method.adds_without_chunks(leaf) &&
         leaf.view.view_width() <= most;
}

/// Norms of a layered network's samples, from values and from the squares that products have left, and their weights;
/// one block a sample. What is little work a warp does, all of a layer's. `ByBlocks`: there may be leaves whose norms
/// are much work, or tables. Without them the kernel is a fifth as long, and a block, which runs through it once, waits
/// for instructions to be loaded.
template <class Scalar, class Target, bool ByBlocks>
struct norm_kernel : sample_work<Scalar, Target> {
  static constexpr int threads = ByBlocks ? 256 : 128;
  static constexpr int most_layers = 32;  ///< whose norms lie in shared memory meanwhile
  struct shared_type {
    double partial[static_cast<std::size_t>(threads / warp_size)]{};
    norm_bound norms[static_cast<std::size_t>(most_layers)];
  };
  using work_type = sample_work<Scalar, Target>;
  using work_type::state, work_type::tables, work_type::samples, work_type::results, work_type::method, work_type::rule,
      work_type::norms;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int sample = block.index();
    if (static_cast<std::uint32_t>(sample) >= state->count) return;
    auto& shared = block.template shared<shared_type>();
    const sample_values<Scalar> values = samples.values(sample);
    norm_bound* const wanted =
        results.norms + static_cast<std::size_t>(sample) * static_cast<std::size_t>(tables.layers);
    norm_bound* const parts = tables.layers <= most_layers ? shared.norms : wanted;
    for_each(block, tables.layers, [&](int layer) { parts[layer] = norm_bound{}; });
    const double* squares =
        results.squares + static_cast<std::size_t>(sample) * static_cast<std::size_t>(results.square_stride);
    if (norms != 0) {
      block.warps([&](const auto& warp) {
        double unused[1];
        const norm_worker<std::remove_cvref_t<decltype(warp)>, Scalar, warp_size> own{warp, values, nullptr, unused};
        const auto is_mine = [&](const auto& leaf) {
          return leaf.first != 0 && leaf.layer % (threads / warp_size) == warp.index();
        };
        for (int k = 0; k < tables.outer_count; ++k) {
          const outer_leaf& leaf = tables.outer[k];
          if (is_mine(leaf) && (!ByBlocks || is_little(leaf, method)))
            own.add_little(leaf, method.of(leaf), squares, parts[leaf.layer]);
        }
        for (int k = 0; k < tables.elementwise_count; ++k) {
          const elementwise_leaf& leaf = tables.elementwise[k];
          if (!is_mine(leaf)) continue;
          if (leaf.kept < 0) {
            own.add_read(leaf, parts[leaf.layer]);
          } else {
            own.add_stored(squares + leaf.squares, leaf.square_count, parts[leaf.layer]);
          }
        }
      });
    }
    if constexpr (ByBlocks) {
      const norm_worker<Block, Scalar, threads> worker{block, values, nullptr, shared.partial};
      for (int k = 0; norms != 0 && k < tables.outer_count; ++k) {
        const outer_leaf& leaf = tables.outer[k];
        if (leaf.first == 0 || is_little(leaf, method)) continue;
        worker.add_for_products(leaf, method, squares, parts[leaf.layer]);
      }
      worker.add_rows(tables.rows, 0, tables.row_count, norms, parts);
    }
    block.each([&](int t) {
      if (parts != wanted && t < tables.layers) wanted[t] = parts[t];
      if (t == 0 && rule.kind != clip_rule::kind_type::none) {
        weigh(rule, parts, tables.layers, tables.parameter_count, sample, results.weights, results.layer_stride);
      }
    });
  }
};

/// Brings the drawn records into the device's own memory, where they lie in memory of the host's: a GPU reads that
/// without a cache, and a network reads a record many times. blocks() of them, one a sample.
template <class Value, class Target, int Threads>
struct gather_kernel {
  static constexpr int threads = Threads;
  struct shared_type {};

  const step_state* state = nullptr;
  const std::uint32_t* records = nullptr;
  const Value* inputs = nullptr;  ///< the data set's
  const Target* targets = nullptr;
  Value* to_inputs = nullptr;
  Target* to_targets = nullptr;
  int input_size = 0;
  /// From a sample to the next in the device's memory, where ids lie as far apart as scalars would.
  int input_step = 0;
  int target_count = 0;
  stored_format format{};  ///< of inputs
  int most_samples = 0;

  [[nodiscard]] int blocks() const noexcept { return most_samples; }
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const auto sample = static_cast<std::size_t>(block.index());
    if (sample >= state->count) return;
    const std::size_t record = records[sample];
    block.each([&](int t) {
      PERGRAD_ROLLED
      for (int i = t; i < input_size; i += Threads) {
        const Value value = inputs[record * static_cast<std::size_t>(input_size) + static_cast<std::size_t>(i)];
        to_inputs[sample * static_cast<std::size_t>(input_step) + static_cast<std::size_t>(i)] = rounded(value);
      }
      PERGRAD_ROLLED
      for (int i = t; i < target_count; i += Threads) {
        to_targets[sample * static_cast<std::size_t>(target_count) + static_cast<std::size_t>(i)] =
            targets[record * static_cast<std::size_t>(target_count) + static_cast<std::size_t>(i)];
      }
    });
  }

 private:
  [[nodiscard]] PERGRAD_HD Value rounded(Value value) const noexcept {
    if constexpr (std::is_floating_point_v<Value>) {
      return stored_as(format, value);
    } else {
      return value;  // an id
    }
  }
};

}  // namespace pergrad::inline v0_1::on_device
