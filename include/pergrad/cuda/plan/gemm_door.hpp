// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/gemm_door.hpp - who multiplies an affine layer's matrices: the library's own kernel, or cuBLAS
//
// The choice is a constant of the shape. cuBLAS gets products that are plain matrices, one position whose view is x
// itself or a layer that takes each position of a sequence alone, large enough to be worth a call, and only with
// PERGRAD_CUBLAS=1 (the program is then linked with cuBLAS; without, nothing of it is mentioned). It never forms a sum
// over samples: the order of its additions is its own, and those sums must not depend on how a batch is cut. Where TF32
// is allowed the own kernel's products, but those over samples, are formed on tensor cores.
//
// Forward and input gradient through cuBLAS are called for `samples_of_call` samples at a time, so that every call has
// the same shape and a sample the same place in it whatever the physical batch. Workspaces are rounded up to whole
// calls; rows beyond the batch hold anything and nobody reads what becomes of them.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/cuda/kernels/gemm.hpp>
#include <pergrad/cuda/kernels/gemm_affine.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

#ifndef PERGRAD_CUBLAS
#define PERGRAD_CUBLAS 0  // 1: products may go to cuBLAS; the same in all translation units
#endif

namespace pergrad::inline v0_1::on_device {

/// Whether this program may call cuBLAS.
inline constexpr bool has_gemm_library = PERGRAD_CUBLAS != 0;
/// Samples of one position a call of cuBLAS.
inline constexpr int library_slice = 128;
/// Positions a call, of sequences.
inline constexpr int library_positions = 1024;
/// Multiply-adds of a call from which on cuBLAS is called: 256³, and, as the own kernel takes all sequences in one
/// launch, as many as that kernel forms while some calls begin. Estimates, not measured.
inline constexpr std::int64_t library_work = std::int64_t{1} << 24U;
inline constexpr std::int64_t library_work_of_sequences = std::int64_t{1} << 29U;

/// Who forms a product, and the own kernel's blocks.
enum class gemm_way : int { strip, slim, narrow, square, wide, large, library };
/// Which product of an affine layer.
enum class gemm_product : int { forward, adjoint, sums, squares };

[[nodiscard]] constexpr const char* name_of(gemm_way way) noexcept {
  constexpr const char* names[] = {"own kernel, 16 x 64 blocks",
                                   "own kernel, 16 x 128 blocks",
                                   "own kernel, 32 x 128 blocks",
                                   "own kernel, 64 x 128 blocks, on tensor cores 64 x 64",
                                   "own kernel, 64 x 128 blocks",
                                   "own kernel, 64 x 128 blocks, on tensor cores 128 x 128",
                                   "cuBLAS"};
  return names[static_cast<std::size_t>(way)];
}

/// Of samples' gradients: the way whose blocks take tensor cores the fewest instructions, those of results included
/// that are beyond the last row or column. A constant of the view, as norms add up a square a block.
[[nodiscard]] constexpr gemm_way cheapest_blocks(int rows, int columns) noexcept {
  // A wide block takes two thirds of the instructions a result that 64 x 64 take, and a large one less than half.
  const auto cost = [&](int of_rows, int of_columns, std::int64_t each) {
    return blocks_for(rows, of_rows) * of_rows * each * (blocks_for(columns, of_columns) * of_columns);
  };
  const std::int64_t square = cost(64, 64, 100);
  const std::int64_t wide = cost(64, 128, 64);
  const std::int64_t large = cost(128, 128, 44);
  if (large <= wide && large <= square) return gemm_way::large;
  return wide <= square ? gemm_way::wide : gemm_way::square;
}

/// The axis of a sequence, each of whose positions a view takes alone, as rows of a matrix for x and for y; -1: it is
/// no such view.
[[nodiscard]] constexpr int axis_of_sequence(const affine_view& view) noexcept {
  if (view.groups != 1 || view.positions() == 1 || view.positions() != view.pixels() || view.taps() != 1 ||
      (view.channels > 1 && view.x_channel != 1) || (view.outputs > 1 && view.y_output != 1)) {
    return -1;
  }
  int found = -1;
  for (int axis = 0; axis < axes; ++axis) {
    if (view.stride[axis] != 1 || view.padding[axis] != 0) return -1;
    if (view.out[axis] == 1) continue;
    if (found >= 0 || view.x_step[axis] < view.channels || view.y_step[axis] < view.outputs) return -1;
    found = axis;
  }
  return found;
}
/// Samples that a call of cuBLAS takes, a power of two: workspaces are there for whole calls.
[[nodiscard]] constexpr int samples_of_call(const affine_view& view) noexcept {
  if (view.positions() == 1) return library_slice;
  int samples = 1;
  while (samples < library_slice && 2 * samples * view.positions() <= library_positions) samples *= 2;
  return samples;
}
/// Is a product over samples a plain matrix's, and large enough?
[[nodiscard]] constexpr bool is_worth_a_call(const affine_view& view) noexcept {
  const std::int64_t work = std::int64_t{samples_of_call(view)} * view.positions() * view.size();
  if (view.positions() > 1) return work >= library_work_of_sequences && axis_of_sequence(view) >= 0;
  return work >= library_work && view.groups == 1 && geometry{view}.contiguous != 0;
}

/// The plan. `x_in_workspace`: cuBLAS cannot gather records by their ids.
[[nodiscard]] constexpr gemm_way choose_gemm(gemm_product product, const affine_view& view, bool x_in_workspace,
                                             bool library = has_gemm_library) noexcept {
  const bool over_samples = product == gemm_product::forward || product == gemm_product::adjoint;
  if (library && over_samples && x_in_workspace && is_worth_a_call(view)) return gemm_way::library;
  const int rows = product == gemm_product::adjoint ? view.channels : view.outputs;
  if (rows <= 32) {
    // Squares lie one a block: where a strip is two blocks and one on tensor cores, there would be a place too many.
    const bool one_strip = product != gemm_product::squares || rows <= strip_block::rows;
    if (!over_samples && one_strip && view.view_width() <= strip_block::columns) return gemm_way::strip;
    return rows <= 16 ? gemm_way::slim : gemm_way::narrow;
  }
  if (!over_samples) return view.positions() > 1 ? cheapest_blocks(rows, view.view_width()) : gemm_way::square;
  // Large blocks where they leave enough of them.
  return rows >= 128 && library_slice * view.positions() >= 512 ? gemm_way::large : gemm_way::square;
}

/// The product of an affine node's way forward, and of its way back: those of an adjoint change places.
[[nodiscard]] constexpr gemm_product product_of(const op_row& row, bool back) noexcept {
  return back == (row.adjoint != 0) ? gemm_product::forward : gemm_product::adjoint;
}
/// The plan for a product of a node, and of a leaf.
[[nodiscard]] constexpr gemm_way way_of(const op_row& row, bool back) noexcept {
  return choose_gemm(product_of(row, back), row.view, back || row.in >= 0);
}
[[nodiscard]] constexpr gemm_way way_of(const outer_leaf& leaf, gemm_product product) noexcept {
  return choose_gemm(product, leaf.view, false);
}

/// Are the columns of a product over samples one of each, whose depth lies in one line? Back no tap may see padding.
[[nodiscard]] constexpr bool is_of_one_position(gemm_product product, const affine_view& view) noexcept {
  const bool is_padded = view.padding[0] + view.padding[1] + view.padding[2] > 0;
  return view.positions() == 1 &&
         (product == gemm_product::forward || (view.pixels() * view.taps() == 1 && !is_padded));
}

/// The most samples that a call of a network's takes; 1: nothing goes to cuBLAS.
[[nodiscard]] constexpr int samples_of_calls(const network_facts& net) noexcept {
  int most = 1;
  const auto count = [&](gemm_way way, const affine_view& view) {
    if (way == gemm_way::library) most = larger_of(most, samples_of_call(view));
  };
  for (const op_row& row : net.ops) {
    if (row.kind != node_kind::affine) continue;
    for (const bool back : {false, true}) count(way_of(row, back), row.view);
  }
  for (const projection_row& each : net.projections)
    count(choose_gemm(gemm_product::adjoint, each.view, true), each.view);
  return most;
}
/// Does cuBLAS form products of one of these nodes?
[[nodiscard]] constexpr bool calls_library_for(std::span<const op_row> ops) noexcept {
  return std::ranges::any_of(ops, [](const op_row& row) {
    const auto is_called = [&](bool back) { return way_of(row, back) == gemm_way::library; };
    return row.kind == node_kind::affine && (is_called(false) || (row.input_gradient != 0 && is_called(true)));
  });
}
/// Samples for which workspaces must be there: whole calls.
[[nodiscard]] constexpr int library_capacity(int max_batch, int of_call) noexcept {
  return blocks_for(max_batch, of_call) * of_call;
}

/// C = op(A) B + beta C in column-major order, as cublasSgemm: C is m x n, op(A) m x k, B k x n. `count` of them with
/// one A, as cublasSgemmStridedBatched.
struct gemm_call {
  bool transpose_a = false;
  int m = 0;
  int n = 0;
  int k = 0;
  const float* a = nullptr;
  int lda = 0;
  const float* b = nullptr;
  int ldb = 0;
  float* c = nullptr;
  int ldc = 0;
  float beta = 0;
  bool tf32 = false;  ///< may round operands to TF32, for operands that are so rounded already
  int count = 1;
  std::int64_t stride = 0;  ///< from B to B, and from C to C
};

/// A device that can call cuBLAS, also inside a capture.
template <class Device>
concept has_library_gemm = requires(Device& device, const gemm_call& call) {
  device.library_gemm(call);
};

/// What becomes of a planned way: cuBLAS is called by a device that can, for floats.
template <class Device, class Scalar>
[[nodiscard]] constexpr gemm_way way_on(gemm_way planned) noexcept {
  const bool callable = has_library_gemm<Device> && sizeof(Scalar) == sizeof(float);
  return planned == gemm_way::library && !callable ? gemm_way::square : planned;
}

/// Does cuBLAS form a product? Back it begins with no bias.
template <class Device, class Scalar>
[[nodiscard]] constexpr bool is_by_library(gemm_product product, gemm_way way, const affine_operands<Scalar>& on) {
  return way_on<Device, Scalar>(way) == gemm_way::library && (product == gemm_product::forward || on.bias == nullptr);
}

/// How x or y of a layer's samples lies: `lines` of `count` numbers, `step` apart.
struct lines_of_samples {
  int place = 0;
  int count = 0;
  int lines = 1;
  int step = 0;
};
/// Of a plain matrix: x, or y.
template <class Scalar>
[[nodiscard]] lines_of_samples lines_of(const affine_operands<Scalar>& on, bool is_x) noexcept {
  const affine_view& view = on.map.view;
  const int axis = axis_of_sequence(view);
  return {is_x ? on.x : on.y, is_x ? view.view_width() : view.outputs, axis < 0 ? 1 : view.out[axis],
          axis < 0 ? 0 : (is_x ? view.x_step : view.y_step)[axis]};
}

/// Has cuBLAS add a forward product to y, which holds the bias or earlier values, or write or add to the gradient of x,
/// some samples at a time: a line of one position each, or of sequences a matrix each.
template <class Device>
void call_library(Device& device, gemm_product product, const affine_operands<float>& on) {
  const bool forward = product == gemm_product::forward;
  const lines_of_samples from = lines_of(on, forward);
  const lines_of_samples to = lines_of(on, !forward);
  const bool are_sequences = from.lines > 1;
  const int samples = samples_of_call(on.map.view);
  const auto stretch = static_cast<int>(on.values.stretch);
  for (int b = 0; b < on.most_samples; b += samples) {
    device.library_gemm({.transpose_a = forward,
                         .m = to.count,
                         .n = are_sequences ? from.lines : samples,
                         .k = from.count,
                         .a = on.weights,
                         .lda = on.map.view.view_width(),
                         .b = on.values.at(b, from.place),
                         .ldb = are_sequences ? from.step : stretch,
                         .c = on.values.at(b, to.place),
                         .ldc = are_sequences ? to.step : stretch,
                         .beta = forward || on.accumulate != 0 ? 1.0F : 0.0F,
                         .tf32 = on.format != stored_format::exact,
                         .count = are_sequences ? samples : 1,
                         .stride = on.values.stretch});
  }
}

/// Calls f(number, which of its line) for what lies at a place of every sample; blocks() of them.
template <class Scalar, int Threads>
struct kernel_over_lines {
  static constexpr int threads = Threads;
  static constexpr int of_thread = 4;
  struct shared_type {};
  batch_values<Scalar> values;
  const step_state* state = nullptr;
  int most_samples = 0;
  lines_of_samples at;

  [[nodiscard]] PERGRAD_HD int parts() const noexcept { return blocks_for(at.lines * at.count, of_thread * Threads); }
  [[nodiscard]] int blocks() const noexcept { return most_samples * parts(); }

 protected:
  template <class Block, class Function>
  PERGRAD_HD void each(const Block& block, Function&& f) const {
    const int sample = block.index() / parts();
    if (sample >= static_cast<int>(state->count)) return;
    block.each([&](int t) {
      Scalar* const first = values.at(sample, at.place);
      for (int i = block.index() % parts() * threads + t; i < at.lines * at.count; i += parts() * threads) {
        f(first[i / at.count * at.step + i % at.count], i % at.count);
      }
    });
  }
};
/// y = bias (or zero) for all samples of the physical batch, before the product is added.
template <class Scalar, int Threads>
struct bias_kernel : kernel_over_lines<Scalar, Threads> {
  const Scalar* bias = nullptr;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    this->each(block, [&](Scalar& y, int i) { y = bias == nullptr ? Scalar{0} : bias[i]; });
  }
};
/// Stores what others have left in another format.
template <class Scalar, int Threads>
struct rounding_kernel : kernel_over_lines<Scalar, Threads> {
  stored_format format{};

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    this->each(block, [&](Scalar& value, int /*i*/) { value = stored_as(format, value); });
  }
};

/// Which products a layered network has, so that no others are compiled: a template argument. Sets of ways are bits.
struct needed_products {
  bool tensor_cores = false;        ///< do they form any where TF32 is allowed? With few rows alone they gain nothing
  bool any = false;                 ///< false: the network is fused
  bool projects_kept = false;       ///< has a layer projections that read what it keeps for itself?
  int attention = 0;                ///< the widest head of attention that kernels of its own do
  unsigned forward = 0;             ///< ways of products over samples, of several positions
  unsigned adjoint = 0;             ///< of those back
  unsigned strided = 0;             ///< of those back through strides
  bool one_position = false;        ///< are there any over samples of one position?
  bool wide_position = false;       ///< with many weights?
  bool joins = false;               ///< are nodes joined to them?
  bool joins_positions = false;     ///< of several positions?
  unsigned gradients = 0;           ///< ways of samples' gradients of several positions
  unsigned sums = 0;                ///< of sums over samples of one position
  unsigned squares = 0;             ///< of norms
  unsigned any_squares = 0;         ///< of norms, whatever method somebody asks for
  bool stored = false;              ///< are any gradients stored before they are squared or added up?
  bool chunks = false;              ///< are any formed in chunks of positions?
  bool norms_by_blocks = false;     ///< are any norms much work, or of tables?
  bool others_elementwise = false;  ///< are all sums that products do not form those of elementwise leaves?
  share_kind shares = share_kind::any;  ///< by the most steps that a unit of its sums' grid has
};
/// Those over samples whose kernels know nodes that are joined to them, all of one position or of several, and those
/// whose kernels do not.
[[nodiscard]] constexpr needed_products joined_part(needed_products needed, bool joined) noexcept {
  needed.one_position = needed.one_position && needed.joins == joined;
  if (needed.joins_positions != joined) needed.forward = needed.adjoint = needed.strided = 0;
  return needed;
}
[[nodiscard]] constexpr unsigned bit_of(gemm_way way) noexcept { return 1U << static_cast<unsigned>(way); }
/// Of products over samples: small blocks as well, where there are few results.
inline constexpr unsigned small_too = 1U << 31U;
inline constexpr unsigned all_ways = ~0U;
inline constexpr unsigned ways_of_few_rows =
    bit_of(gemm_way::strip) | bit_of(gemm_way::slim) | bit_of(gemm_way::narrow);
[[nodiscard]] constexpr unsigned ways_of_one_position(const needed_products& needed) noexcept {
  return needed.wide_position ? all_ways : ways_of_few_rows | small_too;
}
inline constexpr needed_products all_products{.tensor_cores = true,
                                              .any = true,
                                              .forward = all_ways,
                                              .adjoint = all_ways,
                                              .strided = all_ways,
                                              .one_position = true,
                                              .wide_position = true,
                                              .gradients = all_ways,
                                              .sums = all_ways,
                                              .squares = all_ways,
                                              .stored = true,
                                              .chunks = true,
                                              .norms_by_blocks = true};

/// f(sizes) with the own kernel's blocks. `Ways`: those that there may be.
template <unsigned Ways = all_ways, class Function>
constexpr auto with_block_sizes(gemm_way way, Function&& f) {
  constexpr unsigned strip = bit_of(gemm_way::strip);
  constexpr unsigned slim = bit_of(gemm_way::slim);
  constexpr unsigned narrow = bit_of(gemm_way::narrow);
  // The one that is left needs no question.
  if constexpr ((Ways & strip) != 0) {
    if constexpr (Ways != strip) {
      if (way != gemm_way::strip) return with_block_sizes<Ways & ~strip>(way, f);
    }
    return f(strip_block{});
  } else if constexpr ((Ways & slim) != 0) {
    if constexpr (Ways != slim) {
      if (way != gemm_way::slim) return with_block_sizes<Ways & ~slim>(way, f);
    }
    return f(slim_block{});
  } else if constexpr ((Ways & narrow) != 0) {
    if constexpr (Ways != narrow) {
      if (way != gemm_way::narrow) return with_block_sizes<Ways & ~narrow>(way, f);
    }
    return f(narrow_block{});
  } else {
    return f(square_block{});
  }
}
/// Blocks that form one sample's gradient of a view.
[[nodiscard]] constexpr int gradient_blocks(const affine_view& view) noexcept {
  return with_block_sizes(choose_gemm(gemm_product::sums, view, false), [&]<class Sizes>(Sizes) {
    return view.groups * blocks_for(view.outputs, Sizes::rows) * blocks_for(view.view_width(), Sizes::columns);
  });
}
/// Chunks of a sample's positions, whose sums are formed side by side: enough to keep a device busy with few samples. A
/// constant of the view, as it decides about bits.
[[nodiscard]] constexpr int chunks_of(const affine_view& view) noexcept {
  constexpr int blocks_of_sample = 64;
  constexpr int positions_of_chunk = 512;
  return larger_of(
      1, smaller_of(blocks_for(blocks_of_sample, gradient_blocks(view)), view.positions() / positions_of_chunk));
}
/// Samples whose gradients of a leaf are formed at a time.
[[nodiscard]] constexpr int samples_together(const outer_leaf& leaf, std::size_t max_batch) noexcept {
  constexpr int blocks_of_launch = 512;
  constexpr std::int64_t most_elements = std::int64_t{1} << 24U;
  const int samples = larger_of(blocks_for(blocks_of_launch, leaf.chunks * gradient_blocks(leaf.view)),
                                static_cast<int>(most_elements / (std::int64_t{leaf.chunks} * leaf.size())));
  return static_cast<int>(smaller_of(static_cast<std::size_t>(samples), max_batch));
}
/// Does a product add samples' shares to sums of integers?
template <class Problem>
inline constexpr bool adds_shares = requires {
  Problem::adds_shares;
};
/// Is it a sum over samples of one position?
template <class Problem>
inline constexpr bool sums_samples = requires(const Problem& it) {
  it.accumulator_count;
};
/// Is it one over samples, of whose blocks no bit depends?
template <class Problem>
inline constexpr bool over_samples = requires {
  Problem::one_position;
};
/// Does it leave something of every sample's gradient but itself: squares, or shares?
template <class Problem>
inline constexpr bool takes_gradients = Problem::squares || adds_shares<Problem>;
/// Are its sums of integers in registers as wide as what they add up?
template <class Problem>
inline constexpr bool has_wide_totals = requires {
  requires adds_shares<Problem> && !Problem::is_small;
};
/// Products that tensor cores form where TF32 is allowed. Sums over samples are of integers or of records with factors;
/// of one position there are too few results to keep tensor cores busy.
template <class Scalar, class Problem>
inline constexpr bool has_tensor_kernel =
    std::is_same_v<Scalar, float> && !sums_samples<Problem> && !one_position<Problem>;
/// The own kernel's blocks: of products over samples those that take the least time on a large device, whose
/// multiprocessors take blocks in turns: small ones where there are few results, or few of a large block's.
template <unsigned Ways, class Problem, class Function>
void with_filling_block_sizes(gemm_way way, const Problem& problem, Function&& f) {
  if constexpr (over_samples<Problem> && (Ways & small_too) != 0) {
    const auto time = [&]<class Sizes>(Sizes) {
      constexpr int multiprocessors = 132;
      const std::int64_t blocks = std::int64_t{blocks_for(problem.rows(), Sizes::rows)} *
                                  blocks_for(problem.columns(), Sizes::columns) * problem.batches();
      return (blocks + multiprocessors - 1) / multiprocessors * (Sizes::rows * Sizes::columns * Sizes::cost);
    };
    const std::int64_t of_small = time(small_block{});
    const std::int64_t of_tiny = one_position<Problem> ? time(tiny_block{}) : of_small;
    const auto is_least = [&](auto sizes) { return time(sizes) <= smaller_of(of_small, of_tiny); };
    if constexpr (!one_position<Problem>) {
      if constexpr ((Ways & bit_of(gemm_way::slim)) != 0) {
        if (way == gemm_way::slim && is_least(slim_block{})) return f(slim_block{});
      }
      if constexpr ((Ways & bit_of(gemm_way::narrow)) != 0) {
        if (way == gemm_way::narrow && is_least(narrow_block{})) return f(narrow_block{});
      }
    }
    if constexpr ((Ways & ~(ways_of_few_rows | small_too)) != 0) {
      if (problem.rows() > 32 && is_least(square_block{})) return f(square_block{});
    }
    if constexpr (one_position<Problem>) {
      if (of_tiny < of_small) return f(tiny_block{});
    }
    f(small_block{});
  } else {
    with_block_sizes<Ways>(way, f);
  }
}
/// The same results on tensor cores: in wide blocks, which read less for each result, where there are enough of them
/// and they are full. No bit of a result depends on it, but squares are added up as they lie: their blocks, and those
/// of shares for which registers have room, are the way's.
template <unsigned Ways, class Format, class Problem, class Function>
void with_tensor_block_sizes(gemm_way way, const Problem& problem, Function&& f) {
  using blocks = tensor_blocks<Format>;
  constexpr unsigned large = bit_of(gemm_way::large);
  constexpr unsigned wide = bit_of(gemm_way::wide);
  constexpr bool by_way = takes_gradients<Problem> && !has_wide_totals<Problem>;
  if constexpr (by_way && (Ways & large) != 0) {
    if (way == gemm_way::large) return f(typename blocks::large{});
  }
  if constexpr (by_way && (Ways & wide) != 0) {
    using sizes = std::conditional_t<adds_shares<Problem>, typename blocks::wide_of_shares, typename blocks::wide>;
    if (way == gemm_way::wide) return f(sizes{});
  }
  if constexpr (!takes_gradients<Problem> && (Ways & ~(ways_of_few_rows | small_too)) != 0) {
    const auto fills = [&]<class Sizes>(Sizes) {
      constexpr int blocks_that_fill = 128;
      const int across = blocks_for(problem.columns(), Sizes::columns);
      const int of_batch = blocks_for(problem.rows(), Sizes::rows) * across;
      const bool full = across * Sizes::columns <= problem.columns() + problem.columns() / 8;
      return full && problem.batches() >= blocks_for(blocks_that_fill, of_batch);
    };
    if constexpr (over_samples<Problem> && (Ways & large) != 0) {
      if (way == gemm_way::large && fills(typename blocks::vast{})) return f(typename blocks::vast{});
    }
    if constexpr ((Ways & large) != 0) {
      if (way == gemm_way::large && fills(typename blocks::large{})) return f(typename blocks::large{});
    }
    if constexpr (over_samples<Problem> && Format::together == 1) {
      if (way >= gemm_way::square && fills(typename blocks::broad{})) return f(typename blocks::broad{});
    }
    if (way >= gemm_way::square && fills(typename blocks::wide{})) return f(typename blocks::wide{});
  }
  if constexpr ((Ways & bit_of(gemm_way::strip)) != 0) {
    if (way == gemm_way::strip) return f(typename blocks::strip{});
  }
  if constexpr ((Ways & ways_of_few_rows) != 0) {
    using sizes = std::conditional_t<adds_shares<Problem>, typename blocks::narrow_of_shares, typename blocks::narrow>;
    if (way < gemm_way::square) return f(sizes{});
  }
  if constexpr ((Ways & ~(small_too | (by_way ? ways_of_few_rows | wide | large : ways_of_few_rows))) != 0) {
    f(std::conditional_t<adds_shares<Problem>, typename blocks::square_of_shares, typename blocks::square>{});
  }
}
/// Parts of the samples that add their shares side by side. Few cost little where they begin and end, and many leave
/// little to wait for: a device holds so many blocks at once, and the last ones of many should not run alone. No bit
/// depends on it. The costs, in positions, are of machine code, and the device is a large one.
template <class Sizes, class Problem>
[[nodiscard]] int parts_of_shares(const Problem& problem, int blocks_of_part) noexcept {
  constexpr int multiprocessors = 132;
  constexpr bool in_shared_memory = gemm_kernel<float, Problem, Sizes>::has_shared_totals;
  constexpr int results_of_one = in_shared_memory ? 1 << 15 : 1 << 14;  // that a multiprocessor has room for
  constexpr int at_once = multiprocessors * smaller_of(4, results_of_one / (Sizes::rows * Sizes::columns));
  constexpr int of_block = 256;
  constexpr int of_share = 32;
  const int samples = larger_of(1, problem.on.most_samples);
  int best = samples;
  std::int64_t least = -1;
  for (int together = smaller_of(samples, Problem::most_shares); together > 0; --together) {
    const int parts = blocks_for(samples, together);
    const std::int64_t each = std::int64_t{together} * (problem.positions() + of_share) + of_block;
    const std::int64_t cost = each * ((std::int64_t{blocks_of_part} * parts + at_once - 1) / at_once);
    if (least < 0 || cost < least) {
      least = cost;
      best = parts;
    }
  }
  return best;
}
/// Launches the own kernel for a problem of gemm_affine.hpp.
template <class Scalar, unsigned Ways = all_ways, bool TensorCores = true, class Device, class Problem>
void launch_gemm(Device& device, gemm_way way, const Problem& problem) {
  const auto with = [&]<class Sizes>(Sizes) {
    constexpr bool is_wide = sizeof(Scalar) > sizeof(float) || sizeof(typename Problem::sum_type) > sizeof(Scalar) ||
                             has_wide_totals<Problem>;
    using sizes = std::conditional_t<is_wide && std::is_same_v<Sizes, square_block>, double_block, Sizes>;
    gemm_kernel<Scalar, Problem, sizes> kernel{problem};
    if constexpr (adds_shares<Problem>) kernel.problem.parts = parts_of_shares<sizes>(problem, kernel.blocks());
    launch(device, kernel);
  };
  if constexpr (TensorCores && has_tensor_kernel<Scalar, Problem>) {
    using format = typename tensor_format_of<Device>::type;
    if (problem.on.format != stored_format::exact) return with_tensor_block_sizes<Ways, format>(way, problem, with);
  }
  with_filling_block_sizes<Ways>(way, problem, with);
}
/// Launches an affine layer's product over samples, `forward` or `adjoint`, whoever forms it: 1 node, one for eight
/// classes of pixels of a view back with strides; with cuBLAS one a call, and one more for a forward product and where
/// results are TF32. `joined`: a node whose function is one of `Functions`, not with cuBLAS.
template <needed_products Needed = all_products, class Functions = function_list<>, class Device, class Scalar>
void launch_product(Device& device, gemm_product product, gemm_way way, const affine_operands<Scalar>& on,
                    const joined_node& joined = {}) {
  const bool forward = product == gemm_product::forward;
  if constexpr (has_library_gemm<Device> && sizeof(Scalar) == sizeof(float)) {
    if (is_by_library<Device>(product, way, on)) {
      const kernel_over_lines<Scalar, 128> results{on.values, on.state, on.most_samples, lines_of(on, !forward)};
      if (forward && on.accumulate == 0) launch(device, bias_kernel<Scalar, 128>{results, on.bias});
      call_library(device, product, on);
      if (on.result_format != stored_format::exact) {
        launch(device, rounding_kernel<Scalar, 128>{results, on.result_format});
      }
      return;
    }
  }
  if constexpr (Needed.one_position) {
    if (is_of_one_position(product, on.map.view)) {
      constexpr unsigned ways = ways_of_one_position(Needed);
      return forward ? launch_gemm<Scalar, ways>(device, way, affine_forward<Scalar, true, Functions>{{on, joined}})
                     : launch_gemm<Scalar, ways>(device, way, affine_adjoint<Scalar, true, Functions>{{{on, joined}}});
    }
  }
  if constexpr (Needed.forward != 0) {
    if (forward) {
      return launch_gemm<Scalar, Needed.forward, Needed.tensor_cores>(
          device, way, affine_forward<Scalar, false, Functions>{{on, joined}});
    }
  }
  if constexpr (Needed.strided != 0) {
    if (stride_class::count(on.map.view) > 1) {
      using problem = affine_strided_adjoint<Scalar, Functions>;
      for (int first = 0; first < stride_class::count(on.map.view); first += problem::most_classes) {
        launch_gemm<Scalar, Needed.strided, Needed.tensor_cores>(device, way, problem{on, joined, first});
      }
      return;
    }
  }
  if constexpr (Needed.adjoint != 0) {
    launch_gemm<Scalar, Needed.adjoint, Needed.tensor_cores>(device, way,
                                                             affine_adjoint<Scalar, false, Functions>{{{on, joined}}});
  }
}

}  // namespace pergrad::inline v0_1::on_device
