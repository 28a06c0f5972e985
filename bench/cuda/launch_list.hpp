// SPDX-License-Identifier: Apache-2.0
// bench/cuda/launch_list.hpp - what a step launches on a device, and how much work each launch is, without a device
//
// listing_device stands where a GPU does and writes down what it is told to do; nothing is done. Grids are what the
// library launches. Work is counted from the plan's tables: products to the last element (listed_launches_test.cpp
// counts them while they run), what one block does for one sample by the loops of nodes.hpp and norms.hpp, taps in the
// padding included. A layer on tiles counts itself: its own code runs on a team that does nothing but count.
//
// Include the library before it: in a .cu the umbrella, folder or single header; elsewhere
// <pergrad/cuda/run/trainer.hpp> too, which the umbrella leaves out there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "../../tests/cuda/fake_runtime/kernel_name.hpp"

namespace launch_list {

namespace dev = pergrad::on_device;

/// What the blocks of a launch do together, and the longest of what one thread does one after the other.
struct work {
  double multiply_adds = 0;  ///< of scalars
  double doubles = 0;        ///< the same in double
  double elements = 0;       ///< results of anything else
  double fetched = 0;        ///< products: elements that blocks read from memory or caches
  double bytes = 0;          ///< that must go through memory once: each operand and each result
  double again_bytes = 0;    ///< read or written again, which a cache may have: weights and sums, for every sample
  double held_bytes = 0;     ///< read from shared memory, of a matrix that is held there
  // Of one thread:
  double chain = 0;           ///< multiply-adds of scalars
  double double_chain = 0;    ///< the same in double
  double square_chain = 0;    ///< squares of a row of numbers in double, several loads under way
  double read_chain = 0;      ///< the same of a gradient's elements, each formed of two numbers or read
  double held_chain = 0;      ///< the same of scalars with a matrix in shared memory
  double patch_chain = 0;     ///< the same of scalars where a thread takes several rows and columns of a product
  double tile_chain = 0;      ///< the same of scalars with tiles in shared memory, or a thread's part by tensor cores
  double tiles = 0;           ///< that are loaded for it, and rounds of its main loops
  double tile_loads = 0;      ///< elements of them
  double held_forward = 0;    ///< the same of a block that holds a sample: products forward, of 4 x 2 results a thread
  double held_back = 0;       ///< back, of 4 x 4
  double held_rows = 0;       ///< with weights that pass by in tiles
  double held_tiles = 0;      ///< which are so many
  double held_streams = 0;    ///< and in so many copies of 16 bytes
  double held_together = 1;   ///< for so many samples
  double powers = 0;          ///< exponentials of numbers in shared memory
  double double_sums = 0;     ///< elements that are added up or compared in double
  double element_rounds = 0;  ///< other results
  double near_rounds = 0;     ///< the same of rows that a warp has just read or written
  double slices = 0;          ///< products: rounds of the main loop
  double parts = 1;           ///< products: times that a block stores its results
};
/// One kernel or fill of a step.
struct entry {
  std::string type;  ///< mangled, of the kernel; empty: a fill
  std::string what;  ///< for people
  int blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  int tile[3] = {};  ///< products: rows, columns and depth that a block multiplies at a time
  // A kernel that takes samples through nodes:
  int stages = 0;
  int parts = 1;  // blocks of a sample
  int first = 0;
  int last = 0;
  int held_room = 0;   // scalars of shared memory for a matrix
  bool holds = false;  // a sample's values and the weights of convolutions
  bool norms = false;
  int group = 0;   ///< of what may run at the same time; 0: alone
  int branch = 0;  ///< there; 0: the main line
  int after = -1;  ///< what it waits for besides what comes before it in its branch; -1: nothing
  work done{};
};

template <class Problem>
inline constexpr bool is_forward_product = false;
template <class Scalar, bool OnePosition, class Functions>
inline constexpr bool is_forward_product<dev::affine_forward<Scalar, OnePosition, Functions>> = true;
template <class Kernel>
struct product_traits {
  static constexpr bool is_product = false;
};
template <class Scalar, class Problem, class Sizes>
struct product_traits<dev::gemm_kernel<Scalar, Problem, Sizes>> {
  static constexpr bool is_product = true;
  using scalar = Scalar;
  using sizes = Sizes;
  static constexpr bool is_squares = Problem::squares;
  using sum = typename Problem::sum_type;
  static constexpr bool is_sum = requires(Problem problem) { problem.accumulator_count; };
  static constexpr bool is_partial = requires(Problem problem) { problem.partials; };
  static constexpr bool is_forward = is_forward_product<Problem>;
  static constexpr bool is_share = requires { Problem::adds_shares; };
};

/// Attention by kernels of its own, of samples that have all positions.
template <class Kernel>
void describe_attention(const Kernel& kernel, int blocks, entry& to) {
  const dev::attention_row& at = kernel.at;
  constexpr auto bytes_each = 4.0;
  const double positions = at.positions, features = at.features(), samples = kernel.most_samples;
  if constexpr (!requires { typename Kernel::sizes; }) {
    to.what = "gradients of queries move";
    to.done.elements = samples * positions * features;
    to.done.element_rounds = to.done.elements / blocks / Kernel::threads;
    to.done.bytes = 2 * bytes_each * to.done.elements;
    return;
  } else {
    using sizes = typename Kernel::sizes;
    constexpr bool of_queries = Kernel::gradients_of == dev::attention_part::queries;
    constexpr bool of_keys = Kernel::gradients_of == dev::attention_part::keys;
    const double all_tiles = std::ceil(positions / sizes::tile);
    const double seen = at.causal != 0 ? (all_tiles + 1) / 2 : all_tiles;
    const double pairs = at.causal != 0 ? positions * (positions + 1) / 2 : positions * positions;
    // Products with the width as depth, products with a tile as depth, matrices that pass by, exponentials of a pair.
    const double scores = of_queries ? 3 : of_keys ? 2 : 1;
    const double results = of_keys ? 2 : 1;
    const double matrices = of_queries ? 3 : 2;
    to.what = of_queries ? "attention, gradients of queries" : of_keys ? "attention, gradients of keys" : "attention";
    // What must be done: two products forward, and of the five back, each once.
    const double needed = of_queries ? 3 : 2;
    to.done.multiply_adds = samples * at.heads * pairs * at.width * needed;
    to.done.elements = samples * at.heads * pairs;
    to.done.bytes = samples * positions * features * bytes_each * (of_queries ? 6 : of_keys ? 6 : 4);
    to.done.again_bytes = samples * at.heads * all_tiles * seen * sizes::tile * at.width * matrices * bytes_each;
    to.done.tiles = seen * (of_queries ? 2 : 1);
    const double width = sizes::padded(at.width);
    to.done.tile_chain =
        seen * sizes::rows * (scores * width * sizes::score_columns + results * sizes::tile * sizes::columns);
    to.done.tile_loads = seen * matrices * sizes::tile * width / sizes::threads;
    to.done.powers = seen * sizes::tile * sizes::tile / sizes::threads;
  }
}

template <class Kernel>
inline constexpr bool is_position_loss = false;
template <class Scalar, class Loss, bool ByWarps>
inline constexpr bool is_position_loss<dev::position_loss_kernel<Scalar, Loss, ByWarps>> = true;
template <class Kernel>
inline constexpr bool is_loss_of_positions = false;
template <class Scalar, class Target>
inline constexpr bool is_loss_of_positions<dev::loss_of_positions_kernel<Scalar, Target>> = true;

/// A product for a full physical batch that begins a logical one.
template <class Kernel>
[[nodiscard]] entry describe_product(const Kernel& kernel) {
  using traits = product_traits<Kernel>;
  using sizes = typename traits::sizes;
  constexpr auto bytes_each = static_cast<double>(sizeof(typename traits::scalar));
  const auto& problem = kernel.problem;
  const dev::affine_view& view = problem.on.map.view;
  const double samples = problem.on.most_samples;
  const double positions = view.positions();
  const double x = samples * view.groups * view.channels * view.pixels();
  const double y = samples * view.groups * view.outputs * positions;
  const double weights = view.size();
  const int rows = problem.rows();
  const int columns = problem.columns();

  entry to;
  double depths = 0;   // of all batches of one row and column block
  double deepest = 0;  // of one block
  const auto each_slice = [](double depth) { return static_cast<double>(dev::blocks_for(int(depth), sizes::depth)); };
  if constexpr (traits::is_sum) {
    const int accumulators = problem.accumulator_count;
    depths = view.groups * samples;
    deepest = dev::blocks_for(problem.on.most_samples, accumulators);
    to.done.slices = each_slice(deepest);
    const int written = std::is_integral_v<typename traits::sum> ? 1 : accumulators;
    to.done.bytes = (x + y) * bytes_each + weights * sizeof(*problem.accumulators) * written;
    to.what = "sums";
  } else if constexpr (traits::is_share) {
    const int together = problem.of_part();
    depths = view.groups * samples * positions;
    deepest = positions * together;
    to.done.slices = each_slice(positions) * together;
    to.done.parts = together;
    to.done.bytes = (x + y) * bytes_each + weights * sizeof(*problem.sums);
    to.what = "shares";
  } else if constexpr (traits::is_partial) {
    depths = view.groups * samples * positions;
    deepest = problem.chunk;
    to.done.slices = each_slice(deepest);
    to.done.bytes = (x + y) * bytes_each;
    to.done.again_bytes = weights * problem.chunks.value() * samples * bytes_each;  // for the next kernel
    to.what = "gradients";
  } else if constexpr (traits::is_squares) {
    depths = view.groups * samples * positions;
    deepest = positions;
    to.done.slices = each_slice(deepest);
    to.done.bytes = (x + y) * bytes_each + static_cast<double>(kernel.blocks()) * sizeof(double);
    if (problem.keeps()) to.done.again_bytes = weights * samples * bytes_each;  // for the sum
    to.what = "squares";
  } else {
    for (int z = 0; z < problem.batches(); ++z) {
      deepest = std::max<double>(deepest, problem.depth(z));
      depths += problem.depth(z);
    }
    to.done.slices = each_slice(deepest);
    const double written = traits::is_forward ? y : x;
    // A joined node's result, or back what it derives from.
    const double more = (problem.on.accumulate != 0 ? 1 : 0) + (problem.joined.function < 0 ? 0
                                                                : traits::is_forward        ? 1
                                                                                     : 2 + problem.joined.accumulate);
    to.done.bytes = (x + y + weights + more * written) * bytes_each;
    to.what = traits::is_forward ? "forward" : "adjoint";
  }
  to.done.multiply_adds = depths * rows * columns;
  to.done.fetched = depths * (double(rows) * kernel.column_blocks() + double(columns) * kernel.row_blocks());
  to.tile[0] = sizes::rows;
  to.tile[1] = sizes::columns;
  to.tile[2] = sizes::depth;
  to.done.chain = deepest;
  to.what += " " + std::to_string(view.outputs) + " x " + std::to_string(view.view_width()) + ", " +
             std::to_string(view.positions()) + " positions, blocks of " + std::to_string(sizes::rows) + " x " +
             std::to_string(sizes::columns);
  return to;
}

/// A node of many elements, of a full physical batch.
template <class Kernel>
void describe_node(const Kernel& kernel, entry& to) {
  const dev::op_row& row = kernel.row;
  const bool back = kernel.backward != 0;
  const double size = back ? row.in_size : row.out_size;
  to.what = std::string{"node, "} + (back ? "backward" : "forward");
  to.done.elements = size * kernel.most_samples;
  to.done.element_rounds = dev::blocks_for(static_cast<int>(size), kernel.stretches * dev::warp_size);
  to.done.bytes = 4.0 * kernel.most_samples *
                  (back ? 2.0 * row.in_size + 2.0 * row.out_size : double(row.in_size) + row.in2_size + row.out_size);
}

/// Memory that nobody touches, and a list of what is launched.
class listing_device {
 public:
  static constexpr bool is_only_listed = true;
  using graph = std::vector<entry>;
  class mailbox {
   public:
    mailbox(listing_device& /*device*/, std::size_t bytes) : memory_(bytes) {}
    void post(const void* /*from*/, std::size_t /*bytes*/) {}
    [[nodiscard]] const void* wait() const noexcept { return memory_.data(); }  // nobody is drawn

   private:
    std::vector<std::byte> memory_;
  };

  [[nodiscard]] void* allocate(std::size_t bytes) {
    allocated_bytes_ += bytes;
    return ::operator new(bytes);
  }
  void release(void* memory) noexcept { ::operator delete(memory); }
  void upload(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) {}
  void download(void* to, const void* /*from*/, std::size_t bytes) { std::memset(to, 0, bytes); }
  [[nodiscard]] std::shared_ptr<const std::byte> view(const void* /*memory*/, std::size_t /*bytes*/, bool /*streams*/) {
    return nullptr;
  }
  void fill_zero(void* /*to*/, std::size_t bytes) {
    entry to;
    to.what = "fill";
    to.done.bytes = static_cast<double>(bytes);
    list(std::move(to));
  }
  template <dev::kernel Kernel>
  void launch(const Kernel& kernel, int blocks) {
    if (blocks <= 0) return;
    entry to;
    if constexpr (product_traits<Kernel>::is_product) to = describe_product(kernel);
    if constexpr (requires { kernel.stages; }) {
      to.what = "samples";
      to.stages = kernel.stages;
      to.first = kernel.first;
      to.last = kernel.last;
      if constexpr (requires { kernel.layer_parts; }) to.parts = kernel.layer_parts;
      if constexpr (requires { kernel.held_room; }) to.held_room = kernel.held_room;
      to.holds = requires { kernel.memory.products; };
      to.norms = kernel.norms != 0;
    }
    if constexpr (is_position_loss<Kernel>) {
      const double classes = kernel.output_size / kernel.samples.target_count;
      const double all = classes * blocks * Kernel::positions_of_block;
      to.what = "losses of positions";
      to.done.elements = all;
      to.done.element_rounds = 3 * all / blocks / Kernel::threads;  // the largest, the sum, the gradient
      to.done.bytes = 2 * sizeof(float) * all;
      to.done.again_bytes = 3 * sizeof(float) * all;
    }
    if constexpr (requires { kernel.at.heads; }) describe_attention(kernel, blocks, to);
    if constexpr (is_loss_of_positions<Kernel>) {
      to.what = "losses";
      to.done.bytes = double(sizeof(double)) * kernel.samples.target_count * blocks;
    }
    if constexpr (requires { kernel.stretches; }) describe_node(kernel, to);
    if constexpr (std::is_same_v<Kernel, dev::clear_kernel>) {
      to.what = "sums set to zero";
      to.done.bytes = static_cast<double>(kernel.count) * sizeof(*kernel.sums);
    }
    if constexpr (requires {
                    kernel.blocks_of_sample;
                    kernel.tables;
                  })
      to.what = "gradients of elementwise leaves";
    if constexpr (requires { kernel.gradients; }) {  // all that is read was just written
      const auto& gradients = kernel.gradients;
      const double size = gradients.size;
      to.done.again_bytes = size * gradients.most_samples * gradients.chunks * sizeof(*gradients.partials);
      if constexpr (requires { kernel.squares; }) {
        to.what = "squares of partial sums";
        to.done.elements = to.done.doubles = size * gradients.most_samples;
        to.done.element_rounds =
            static_cast<double>(Kernel::elements_of(gradients.size)) / Kernel::threads * gradients.chunks;
        to.done.bytes = static_cast<double>(blocks) * sizeof(double);
      } else {
        to.what = "partial sums added up";
        to.done.elements = size;
        to.done.element_rounds = dev::blocks_for(gradients.most_samples, kernel.sharing()) * gradients.chunks;
        to.done.bytes = size * 2 * sizeof(*kernel.accumulators);
      }
    }
    if constexpr (requires { kernel.by_products; }) {
      to.what = kernel.by_products != 0 ? "rest of the sums" : "sums";
      to.last = kernel.accumulators;
    }
    if constexpr (requires {
                    kernel.out;
                    kernel.accumulator_count;
                  }) {
      to.done.elements = static_cast<double>(kernel.count);
      to.done.bytes = to.done.elements * sizeof(*kernel.out) * (kernel.accumulator_count + 1);
    }
    if constexpr (requires { kernel.work.released; }) {
      to.what = "release";
      const auto count = static_cast<double>(kernel.work.end - kernel.work.begin);
      const int moments = kernel.work.rule == dev::update::adam ? 2 : kernel.work.rule == dev::update::momentum ? 1 : 0;
      // A sum is read, parameters and moments are read and written, what is released is written.
      to.done.elements = count;
      to.done.chain = kernel.work.table_count;  // that each thread asks for a row that nobody moves
      to.done.bytes = count * (sizeof(*kernel.work.sums) + 4.0 * (2 + 2 * moments + 1));
    }
    to.type = typeid(Kernel).name();
    to.blocks = blocks;
    to.threads = Kernel::threads;
    to.shared_bytes = dev::shared_bytes_of(kernel);
    if (to.what.empty()) to.what = std::is_same_v<Kernel, dev::mark_kernel> ? "marks" : "fold";
    list(std::move(to));
  }
  /// As a GPU does it in a capture.
  template <class Function>
  void beside(Function&& f) {
    if (group_ == 0) group_ = ++groups_;
    branch_ = 1 + begun_++ % dev::most_branches;
    after_ = newest_of_main_;
    f();
    branch_ = 0;
    after_ = -1;
  }
  void join() { group_ = begun_ = 0; }
  [[nodiscard]] static constexpr std::size_t most_shared_bytes() noexcept { return 163 << 10; }  // an Orin's
  template <class Function>
  [[nodiscard]] graph capture(Function&& f) {
    graph outside = std::exchange(listed_, {});
    newest_of_main_ = -1;
    f();
    captured_ = std::exchange(listed_, std::move(outside));
    return captured_;
  }
  void replay(graph& /*recorded*/) { ++replays_; }
  [[nodiscard]] static std::size_t node_count(const graph& recorded) noexcept { return recorded.size(); }
  void synchronise() {}

  [[nodiscard]] const graph& captured() const noexcept { return captured_; }
  [[nodiscard]] graph take_listed() {  ///< outside of captures
    newest_of_main_ = -1;
    return std::exchange(listed_, {});
  }
  [[nodiscard]] std::size_t replays() const noexcept { return replays_; }
  [[nodiscard]] std::size_t allocated_bytes() const noexcept { return allocated_bytes_; }

 private:
  void list(entry to) {
    if (branch_ == 0) newest_of_main_ = static_cast<int>(listed_.size());
    to.group = group_;
    to.branch = branch_;
    to.after = std::exchange(after_, -1);
    listed_.push_back(std::move(to));
  }

  int groups_ = 0;
  int group_ = 0;
  int branch_ = 0;
  int begun_ = 0;
  int after_ = -1;
  int newest_of_main_ = -1;
  graph listed_;
  graph captured_;
  std::size_t replays_ = 0;
  std::size_t allocated_bytes_ = 0;
};
static_assert(dev::device<listing_device>);
using listing = pergrad::basic_device_executor<listing_device>;
struct listing_device_bf16 : listing_device {
  using tensor_format = dev::bf16_format;
};
using listing_bf16 = pergrad::basic_device_executor<listing_device_bf16>;

/// What a team's type needs of a block; there is none.
struct no_block {
  static constexpr int threads = dev::warp_size;
  template <class Value>
  struct local {};
};
/// Stands where a block takes a sample through a layer on tiles, and counts what it is told to do; pergrad/team.hpp has
/// the words. Functions of elements are not called, and what they would add up is zero.
template <class Scalar>
struct counting_team : dev::block_team<no_block, Scalar> {
  work& done;
  int threads_here;
  double share = 1;         ///< of its rounds that a thread waits for: rows are one warp's each
  mutable int of_row = -1;  ///< words about the row so far; negative: of a block

  [[nodiscard]] PERGRAD_HD static bool is_random() noexcept { return true; }
  PERGRAD_HD void each(std::ptrdiff_t count, const auto& /*f*/) const { elements(double(count)); }
  PERGRAD_HD void map(std::ptrdiff_t count, const auto& /*f*/) const { elements(double(count)); }
  PERGRAD_HD void map(std::ptrdiff_t rows, std::ptrdiff_t count, const auto& /*f*/) const {
    elements(double(rows) * double(count));
  }
  PERGRAD_HD void fill(std::ptrdiff_t count, Scalar* /*to*/, Scalar /*value*/) const { elements(double(count)); }
  PERGRAD_HD void copy(std::ptrdiff_t count, const Scalar* /*from*/, Scalar* /*to*/) const { elements(double(count)); }
  PERGRAD_HD void draw(std::ptrdiff_t /*sample*/, std::ptrdiff_t /*first*/, std::ptrdiff_t count,
                       const auto& /*f*/) const {
    elements(double(count));
  }
  template <int Sums>
  [[nodiscard]] PERGRAD_HD pergrad::values_of<double, Sums> reduce(std::ptrdiff_t count, const auto& /*f*/) const {
    elements(double(count), Sums);
    return {};
  }
  [[nodiscard]] PERGRAD_HD Scalar sum(std::ptrdiff_t count, const auto& /*f*/) const { return zero_of(count); }
  [[nodiscard]] PERGRAD_HD Scalar largest(std::ptrdiff_t count, const Scalar* /*from*/) const { return zero_of(count); }
  [[nodiscard]] PERGRAD_HD std::ptrdiff_t count(std::ptrdiff_t count, const auto& /*f*/) const {
    return static_cast<std::ptrdiff_t>(zero_of(count));
  }
  using view = pergrad::matrix_view<Scalar>;
  PERGRAD_HD void multiply(const pergrad::product_sizes& sizes, const Scalar* /*left*/, const view& right,
                           Scalar* /*out*/) const {
    product(sizes, right, true);
  }
  PERGRAD_HD void multiply_add(const pergrad::product_sizes& sizes, const Scalar* /*left*/, const view& right,
                               Scalar* /*out*/) const {
    product(sizes, right, true);
  }
  PERGRAD_HD void multiply_bias(const pergrad::product_sizes& sizes, const Scalar* /*left*/, const view& right,
                                Scalar* /*out*/, const Scalar* /*bias*/) const {
    product(sizes, right, false);
  }
  [[nodiscard]] PERGRAD_HD view turned(const view& /*from*/, std::ptrdiff_t rows, std::ptrdiff_t columns, Scalar* to,
                                       std::ptrdiff_t step) const {
    elements(double(rows) * double(columns));
    return {to, step, 1};
  }
  PERGRAD_HD void for_each_row(std::ptrdiff_t rows, const auto& f) const {
    counting_team row{*this};
    row.threads_here = dev::warp_size;
    row.share = std::ceil(double(rows) * dev::warp_size / threads_here) / double(rows);
    for (std::ptrdiff_t r = 0; r < rows; ++r) {
      row.of_row = 0;
      f(r, row);
    }
  }
  PERGRAD_HD void for_each_group(std::ptrdiff_t channels, std::ptrdiff_t group_size, const auto& f) const {
    const auto pixels = static_cast<int>(static_cast<std::ptrdiff_t>(this->in.size()) / channels);
    const pergrad::part_range own = pergrad::range_of_part(*this, channels / group_size);
    for (std::ptrdiff_t i = 0; i < own.count; ++i)
      f(dev::channel_group<counting_team>{*this, static_cast<int>(own.first + i), static_cast<int>(group_size),
                                          pixels});
  }

 private:
  [[nodiscard]] PERGRAD_HD double rounds_of(double count) const { return std::ceil(count / threads_here); }
  /// `sums`: of so many doubles an element, which threads bring together in about the time of a round.
  PERGRAD_HD void elements(double count, double sums = 0) const {
    const double rounds = share * (rounds_of(count) + (sums > 0 ? 1 : 0));
    done.elements += count;
    (of_row > 0 ? done.near_rounds : done.element_rounds) += rounds;
    of_row += of_row < 0 ? 0 : 1;
    done.doubles += count * sums;
    done.double_sums += rounds * sums;
  }
  [[nodiscard]] PERGRAD_HD Scalar zero_of(std::ptrdiff_t count) const {
    elements(double(count), 1);
    return 0;
  }
  /// As thread_team takes one: in patches where it may, and they are many; in shares of the depth where columns are
  /// few.
  PERGRAD_HD void product(const pergrad::product_sizes& sizes, const view& right, bool in_patches) const {
    constexpr int deep = 64;
    const bool is_held = this->held != nullptr && right.first == this->held;
    constexpr int side = 4;
    const auto rows = double(sizes.rows.count), columns = double(sizes.columns);
    const auto outer = double(sizes.outer.count), depth = double(sizes.depth);
    done.multiply_adds += outer * rows * columns * depth;
    done.again_bytes += sizeof(Scalar) * outer * (rows + (is_held ? 0 : columns)) * depth;
    double& chain = is_held ? done.held_chain : done.chain;
    done.held_bytes += is_held ? sizeof(Scalar) * outer * rows * columns * depth : 0;
    if (in_patches && threads_here <= 128 && rows >= side && columns >= side && rows * columns >= side * threads_here) {
      done.patch_chain += rounds_of(outer * std::ceil(rows / side) * std::ceil(columns / side)) * depth * side * side;
    } else if (in_patches && of_row < 0 && depth >= deep && outer * rows == 1 && 2 * columns <= threads_here) {
      chain += std::ceil(depth / std::floor(threads_here / columns));
    } else {
      chain += rounds_of(outer * rows * columns) * depth;
    }
  }
};
/// f.operator()<Layer>() for the layer of a node.
template <class Network, class Function>
void with_layer(int node, const Function& f) {
  pergrad::detail::for_each_layer<typename Network::structure>(
      [&]<class Layer>(std::type_identity<Layer> /*of*/, std::size_t i) {
        if (i == static_cast<std::size_t>(node)) f.template operator()<Layer>();
      });
}
/// Takes a sample of zeros, whose values lie at `values`, through node `row` of a network by a block that only counts.
template <class Network, class Scalar = typename Network::scalar>
void count_tiles(const dev::op_row& row, bool backward, int threads, int held_room, Scalar* values, work& done) {
  double unused[1];
  counting_team<Scalar> team{{{no_block{}, unused}}, done, threads};
  const auto at = [&](int place) { return values + (place < 0 ? -1 - place : place); };
  team.in = row.in_shape;
  team.in2 = row.in2_shape;
  team.out = row.out_shape;
  team.x = {at(row.in)};
  team.x2 = {at(row.in2)};
  team.y = {at(row.out)};
  team.saved = {at(row.saved)};
  team.scratch = {at(backward ? row.back_scratch : row.scratch)};
  if (backward) {
    team.dy = {at(row.dy)};
    team.dx = {at(row.written_dx)};
    team.dx2 = {at(row.written_dx2)};
    team.wants_factors = row.wants_factors != 0;
    team.wants_dx = row.input_gradient != 0;
    team.wants_dx2 = row.input2_gradient != 0;
  }
  team.projected = row.projected != 0;
  team.parameters = values;
  const Scalar held{};
  if (row.held_rows > 0 && row.held_size() <= held_room) {
    team.held = &held;
    team.held_at = row.held;
    team.held_step = row.held_step();
    done.again_bytes += sizeof(Scalar) * double(row.held_rows) * row.held_columns;
  }
  team.own_lengths[0] = static_cast<std::uint32_t>(row.in_shape.e0);
  team.own_lengths[1] = static_cast<std::uint32_t>(row.in2_shape.e0);
  with_layer<Network>(row.node, [&]<class Layer>() {
    using function = typename dev::function_of<Layer>::type;
    if constexpr (pergrad::detail::is_tiled<function>) backward ? function::backward(team) : function::forward(team);
  });
}

/// Counts what a block of `threads` does for one sample; nodes.hpp and norms.hpp have the loops.
template <class Network>
class sample_counter {
 public:
  using scalar = typename Network::scalar;
  /// `values`: zeros, as many as a sample has.
  sample_counter(std::vector<scalar>& values, const entry& of)
      : values_{values}, held_room_{of.held_room}, threads_{of.threads}, norms_{of.norms}, holds_{of.holds} {}

  [[nodiscard]] work count(int stages, int first, int last) {
    namespace stage = dev::stage;
    const bool trims = (stages & stage::trim) != 0;
    for (int i = first; i < last && !trims; ++i) {
      const dev::op_row& row = op(i);
      if ((stages & stage::finish) != 0) {
        rewritten(row);
        continue;
      }
      if ((stages & stage::forward) != 0) forward(row);
      if ((stages & stage::backward) != 0 && row.backward != 0) backward(row, (stages & stage::leaves) != 0);
    }
    if (holds_) in_shared_memory(double(net_.input_size) + net_.held_weights);
    if ((stages & stage::loss) != 0) {  // as one thread takes it, which is the most
      done_.elements += double(net_.output_size);
      done_.element_rounds += double(net_.output_size);
      bytes(2 * net_.output_size);
    }
    if ((stages & stage::layered_leaves) != 0) {
      for (const dev::outer_leaf& leaf : net_.outer) layered_norm(leaf);
      for (const dev::elementwise_leaf& leaf : net_.elementwise) layered_norm(leaf);
    }
    return done_;
  }

 private:
  [[nodiscard]] const dev::op_row& op(int i) const { return net_.ops[static_cast<std::size_t>(i)]; }
  /// What a layer in parts has left behind, which is rounded, or added to gradients that are there.
  void rewritten(const dev::op_row& row) {
    elements(double(row.saved_size) + row.in_size + row.in2_size);
    bytes(2 * static_cast<std::size_t>(row.saved_size + row.in_size + row.in2_size));
  }
  [[nodiscard]] double rounds(double count) const { return static_cast<double>(dev::blocks_for(int(count), threads_)); }
  void bytes(std::size_t scalars) { done_.bytes += 4.0 * static_cast<double>(scalars); }
  void elements(double count) {
    done_.elements += count;
    done_.element_rounds += rounds(count);
  }
  /// `count` sums of `terms` terms; `shared`: threads may share one.
  void sums(double count, double terms, bool shared = false) {
    double parts = 1;
    while (shared && parts < dev::warp_size && 2 * parts * count <= threads_ && 8 * parts <= terms) parts *= 2;
    done_.multiply_adds += count * terms;
    done_.chain += rounds(count * parts) * terms / parts;
  }
  void doubles(double count, double terms) {
    done_.doubles += count * terms;
    done_.double_chain += rounds(count) * terms;
  }

  /// A product of one sample, as sums over the outputs of the view, or over its inputs.
  void product(const dev::affine_view& view, bool adjoint) {
    const double all = double(view.size()) * view.positions();
    const double count = double(view.groups) *
                         (adjoint ? double(view.channels) * view.pixels() : double(view.outputs) * view.positions());
    sums(count, all / count, !adjoint && (view.pixels() == 1 || view.taps() == 1));
    done_.again_bytes += 4.0 * view.size();
  }
  /// Of numbers that are read from shared memory, or written there.
  void in_shared_memory(double count) {
    done_.elements += count;
    done_.near_rounds += rounds(count) * net_.held_together;  // of a block's samples one after the other
  }
  /// The same where a block holds the sample: layers/held_samples.hpp has the loops.
  void held_product(const dev::op_row& row, bool back) {
    dev::held_products products{0, sizeof(scalar), net_.held_tile};
    const dev::held_product forward = products.describe(row, false);
    const dev::held_product of = back ? products.describe(row, true) : forward;
    const double all = double(row.view.size()) * row.view.positions();
    done_.multiply_adds += all;
    if (of.held < 0) {
      const double times = dev::blocks_for(of.rows, of.rows_of_tile);
      const double bytes_of_weights = 4.0 * row.view.size();
      done_.held_rows += times * of.depth() * net_.held_together;
      done_.held_tiles += times * dev::blocks_for(of.depth(), of.depth_of_tile);
      done_.held_streams += bytes_of_weights / (4.0 * of.together) / threads_;
      done_.held_together = net_.held_together;
      done_.again_bytes += bytes_of_weights / net_.held_together;
      return;
    }
    in_shared_memory(of.copies != 0 ? double(of.channels) * of.copy.value() : 0);
    double depth = 0;
    for (int i = 0; i < of.class_count; ++i) depth += double(of.classes[i].depth) * of.classes[i].columns;
    depth /= (row.adjoint != 0) == back ? row.view.positions() : row.view.pixels();
    (of.back != 0 ? done_.held_back : done_.held_forward) +=
        rounds(of.patches()) * depth * dev::held_product::patch_rows * dev::held_product::patch_columns(of.back != 0);
  }
  /// Of all nodes but affine ones; `results`: of one that is not on tiles.
  void function(const dev::op_row& row, bool back, int results) {
    if (holds_) {
      if (row.taken_along != 0) return;
      const double window = double(row.in_size) / row.out_size * (row.kind == dev::node_kind::pooling ? 4 : 1);
      return in_shared_memory(results * std::max(1.0, window));
    }
    if (row.kind != dev::node_kind::tiled) return elements(results);
    count_tiles<Network>(row, back, threads_, held_room_, values_.data(), done_);
  }
  void forward(const dev::op_row& row) {
    if (row.out_size == 0) return;
    if (row.kind == dev::node_kind::affine) {
      if (holds_) return held_product(row, false);
      if (net_.layered) return;
      product(row.view, row.adjoint != 0);
    } else {
      function(row, false, row.out_size);
    }
    if (!holds_) bytes(static_cast<std::size_t>(row.in_size + row.in2_size + row.out_size + row.saved_size));
  }
  void backward(const dev::op_row& row, bool leaves) {
    if (leaves) {
      for (int k = row.first_outer; k < row.last_outer; ++k) fused_norm(net_.outer[static_cast<std::size_t>(k)]);
      for (int k = row.first_elementwise; k < row.last_elementwise; ++k) {
        elementwise_norm(net_.elementwise[static_cast<std::size_t>(k)]);
      }
    }
    if (row.out_size == 0) return;
    if (row.kind == dev::node_kind::affine) {
      if (holds_) {  // norms and sums read what is stored
        in_shared_memory(double(row.in < 0 ? 0 : row.in_size) + row.out_size);
        bytes(static_cast<std::size_t>((row.in < 0 ? 0 : row.in_size) + row.out_size));
        return row.input_gradient != 0 ? held_product(row, true) : void();
      }
      if (net_.layered || row.input_gradient == 0) return;
      product(row.view, row.adjoint == 0);
    } else {
      function(row, true, row.in_size);
    }
    if (!holds_) bytes(static_cast<std::size_t>(2 * row.in_size + 2 * row.out_size + row.saved_size));
  }
  /// Squares of a gradient's elements as they are formed, or dots of views and deltas.
  void fused_norm(const dev::outer_leaf& leaf) {
    if (leaf.first == 0) return;
    const dev::affine_view& view = leaf.view;
    if (!norms_ && leaf.method != pergrad::norm_method::instantiate) return;
    if (leaf.method == pergrad::norm_method::product) return product_norm(view);
    if (leaf.method == pergrad::norm_method::gram) return dots(view);
    sums(leaf.size(), view.positions());
    doubles(leaf.size(), 1);
    if (leaf.method == pergrad::norm_method::instantiate) bytes(static_cast<std::size_t>(leaf.size()));
  }
  void layered_norm(const dev::outer_leaf& leaf) {
    if (leaf.first == 0 || !norms_) return;
    if (leaf.method == pergrad::norm_method::product) return product_norm(leaf.view);
    if (leaf.method != pergrad::norm_method::gram) return;
    dots(leaf.view);
    bytes(static_cast<std::size_t>(
        leaf.view.groups * (leaf.view.channels * leaf.view.pixels() + leaf.view.outputs * leaf.view.positions())));
  }
  /// Of parameters without a sum over positions: what kernels have left of others is a few numbers.
  void layered_norm(const dev::elementwise_leaf& leaf) {
    if (leaf.first != 0 && norms_ && leaf.kept < 0) squares(leaf.count, done_.read_chain);
  }
  void product_norm(const dev::affine_view& view) {
    const bool is_line = view.taps() == 1 && view.padding[0] + view.padding[1] + view.padding[2] == 0;
    squares(double(view.groups) * view.view_width(), is_line ? done_.square_chain : done_.double_chain);
    squares(double(view.groups) * view.outputs, done_.square_chain);
  }
  void squares(double count, double& chain) {
    done_.doubles += count;
    chain += rounds(count);
    bytes(static_cast<std::size_t>(count));
  }
  void dots(const dev::affine_view& view) {
    const double positions = view.positions();
    const double terms = view.view_width() + view.outputs;
    done_.doubles += view.groups * positions * (positions + 1) / 2 * terms;
    done_.double_chain += view.groups * rounds(positions * positions) * terms;
  }
  void elementwise_norm(const dev::elementwise_leaf& leaf) {
    if (leaf.first == 0) return;
    const double positions = double(leaf.out[0]) * leaf.out[1] * leaf.out[2];
    double parts = 1;
    while (parts < dev::warp_size && 2 * parts * leaf.count <= threads_ && 4 * parts <= positions) parts *= 2;
    done_.multiply_adds += leaf.count * positions;
    done_.chain += rounds(leaf.count * parts) * positions / parts;
    doubles(leaf.count, 1);
    bytes(static_cast<std::size_t>(leaf.count));
  }

  const dev::network_facts& net_ = dev::facts_of<Network>;
  std::vector<scalar>& values_;
  int held_room_;
  int threads_;
  bool norms_;
  bool holds_;
  work done_{};
};

/// Sums that no product forms: of kept gradients, or of gradients that are formed again.
[[nodiscard]] inline work count_sums(const dev::network_facts& net, const entry& it, std::size_t samples) {
  work done;
  const double count = static_cast<double>(samples);
  const double a_thread = dev::blocks_for(static_cast<std::int64_t>(samples), it.last);
  const auto add = [&](const auto& leaf, double terms, double bytes) {
    if (leaf.first == 0) return;
    done.multiply_adds += count * leaf.size() * terms;
    done.chain = std::max(done.chain, a_thread * terms);
    done.bytes += count * bytes * 4 + 8.0 * it.last * leaf.size();
  };
  for (const dev::outer_leaf& leaf : net.outer) {
    if (it.what != "sums" && dev::is_one_product(leaf)) continue;
    const bool kept = leaf.method == pergrad::norm_method::instantiate;
    const double operands = double(leaf.view.groups) *
                            (leaf.view.channels * leaf.view.pixels() + leaf.view.outputs * leaf.view.positions());
    add(leaf, kept ? 1 : leaf.view.positions(), kept ? leaf.size() : operands);
  }
  for (const dev::elementwise_leaf& leaf : net.elementwise) add(leaf, 1, leaf.count);
  for (const dev::row_leaf& leaf : net.rows) add(leaf, 1, double(leaf.positions) * leaf.width);
  return done;
}

/// A layered network's elementwise leaves: threads share positions.
[[nodiscard]] inline work count_elementwise(const dev::network_facts& net, std::size_t samples) {
  using kernel = dev::elementwise_kernel<float, char>;
  work done;
  for (const dev::elementwise_leaf& leaf : net.elementwise) {
    if (leaf.first != 0 && leaf.kept < 0) continue;
    const double positions = double(leaf.out[0]) * leaf.out[1] * leaf.out[2];
    done.multiply_adds += static_cast<double>(samples) * leaf.count * positions;
    done.chain = std::max(done.chain, std::ceil(positions / kernel::sharing(leaf)));
    done.bytes += 4.0 * static_cast<double>(samples) * leaf.count * ((leaf.ones != 0 ? 1 : 2) * positions + 1);
  }
  return done;
}

/// Completes launches whose work the network's tables say.
template <class Network>
void count_work(std::vector<entry>& launches, std::size_t samples) {
  const dev::network_facts& net = dev::facts_of<Network>;
  std::vector<typename Network::scalar> values(std::max(static_cast<std::size_t>(net.workspace), net.input_size));
  for (entry& each : launches) {
    if (each.what == "samples") {
      work done = sample_counter<Network>{values, each}.count(each.stages, each.first, each.last);
      const auto count = static_cast<double>(samples);
      for (double* sum :
           {&done.multiply_adds, &done.doubles, &done.elements, &done.bytes, &done.again_bytes, &done.held_bytes})
        *sum *= count;
      for (double* chain : {&done.chain, &done.held_chain, &done.double_chain, &done.square_chain, &done.read_chain,
                            &done.patch_chain, &done.double_sums, &done.element_rounds, &done.near_rounds})
        *chain /= each.parts;
      each.done = done;
      namespace stage = dev::stage;
      each.what += each.holds ? ", held" : "";
      each.what += (each.stages & stage::forward) != 0 ? ", forward" : "";
      each.what += (each.stages & stage::backward) != 0 ? ", backward" : "";
      each.what += (each.stages & (stage::leaves | stage::layered_leaves)) == 0 ? ""
                   : each.norms                                                 ? ", norms"
                                                                                : ", small gradients";
      if ((each.stages & (stage::forward | stage::backward)) != 0 && each.last == each.first + 1) {
        with_layer<Network>(each.first, [&]<class Layer>() {
          each.what += std::string{", "} + pergrad::detail::name_of_layer<Layer>();
        });
      }
    } else if (each.what == "sums" || each.what == "rest of the sums") {
      each.done = count_sums(net, each, samples);
    } else if (each.what == "gradients of elementwise leaves") {
      each.done = count_elementwise(net, samples);
      const bool only_biases = std::ranges::all_of(net.elementwise, [](const auto& leaf) { return leaf.ones != 0; });
      if (only_biases) each.what = "gradients of biases";
    }
  }
}

/// One step of DP-SGD with a physical batch of `samples`, on any executor.
template <class Network, class Loss, class Executor>
void take_private_step(const Executor& exec, std::size_t samples, pergrad::dp_sgd_options options) {
  Network net{exec, pergrad::kaiming_uniform{1}};
  using target = pergrad::target_of<Loss, typename Network::scalar>;
  const std::vector<typename Network::input_value> inputs(samples * Network::input_shape.size());
  const std::vector<target> targets(samples * Loss::target_count(Network::output_shape));
  options.max_batch = pergrad::max_batch{samples};
  pergrad::dp_sgd trainer{exec, net, Loss{}, options, pergrad::seeded_generator{3}};
  trainer.step(pergrad::dataset<typename Network::input_value, target>{inputs, targets, Network::input_shape,
                                                                       Loss::target_count(Network::output_shape)});
}
/// The plain sum of as many gradients: no norm, no clipping, no noise. before() is called when all else is done.
template <class Network, class Loss, class Executor, class Before>
void form_plain_sum(const Executor& exec, std::size_t samples, Before&& before) {
  Network net{exec, pergrad::kaiming_uniform{1}};
  using target = pergrad::target_of<Loss, typename Network::scalar>;
  const std::vector<typename Network::input_value> inputs(samples * Network::input_shape.size());
  const std::vector<target> targets(samples * Loss::target_count(Network::output_shape));
  typename Network::tape tape{exec, pergrad::max_batch{samples}};
  const pergrad::batch<Network, Loss> batch{inputs, targets};
  const auto gradients = pergrad::per_sample_gradients(net, Loss{}, batch, tape);
  pergrad::unprotected::gradient<Network> sum{exec};
  before();
  pergrad::unprotected::evaluate_into(exec, pergrad::assign(sum, pergrad::sum(gradients)));
}

/// What they launch.
template <class Network, class Loss, class Executor = listing>
[[nodiscard]] std::vector<entry> private_step(std::size_t samples, const pergrad::dp_sgd_options& options,
                                              const pergrad::device_options& device = {}) {
  const Executor exec{device};
  take_private_step<Network, Loss>(exec, samples, options);
  std::vector<entry> launches = exec.device().captured();
  count_work<Network>(launches, samples);
  return launches;
}
template <class Network, class Loss, class Executor = listing>
[[nodiscard]] std::vector<entry> plain_sum(std::size_t samples, const pergrad::device_options& device = {}) {
  const Executor exec{device};
  form_plain_sum<Network, Loss>(exec, samples, [&] { static_cast<void>(exec.device().take_listed()); });
  std::vector<entry> launches = exec.device().take_listed();
  count_work<Network>(launches, samples);
  return launches;
}

/// As the runtime without a GPU writes a graph down (tests/cuda/fake_runtime).
[[nodiscard]] inline std::vector<std::string> as_text(const std::vector<entry>& launches) {
  std::vector<std::string> text;
  text.reserve(launches.size());
  for (const entry& each : launches) {
    text.push_back("kernel " + fake_cuda::short_name(each.type) + " " + std::to_string(each.blocks) + " x " +
                   std::to_string(each.threads) + ", shared " + std::to_string(each.shared_bytes));
  }
  return text;
}

}  // namespace launch_list
