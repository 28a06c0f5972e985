// SPDX-License-Identifier: Apache-2.0
// tests/cuda/listed_launches_test.cpp - the list of a step's launches (bench/cuda/launch_list.hpp) is what a device is
// told to do, and the work of its products, those inside of attention too, is what they do while they run
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <pergrad/cuda/run/kernel_list.hpp>
#include <pergrad/cuda/run/trainer.hpp>
#include <pergrad/pergrad.hpp>

#include "../../bench/cuda/launch_list.hpp"
#include "device_fixture.hpp"

namespace launch_list_test {

namespace pg = pergrad;
namespace dev = pergrad::on_device;

inline double multiplied = 0;  ///< inside of layers on tiles

/// What one launch was, and what its blocks did.
struct seen {
  std::string type;
  int blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  double fetched = 0;
  double multiply_adds = 0;
};

template <class Operand>
struct kind_of {};
template <class Operand>
requires requires { Operand::is_weights; }
struct kind_of<Operand> {
  static constexpr bool is_weights = true;
};
/// An operand that counts the elements it reads: not those beyond its last line, which are there already, and of the
/// last step, which fills the last slice, one.
template <class Operand>
struct counting_operand : kind_of<Operand> {
  static constexpr bool depth_first = Operand::depth_first;
  struct line {
    typename Operand::line of;
    bool exists;
  };
  struct step {
    typename Operand::step of;
    double share;
  };
  Operand operand;
  seen* to;
  int lines;
  int depth;
  int depth_of_slice;

  [[nodiscard]] line line_at(int number) const noexcept { return {operand.line_at(number), number < lines}; }
  [[nodiscard]] step step_at(int k) const noexcept requires requires(const Operand& it) { it.step_at(0); }
  { return {operand.step_at(k), share_of(k)}; }
  [[nodiscard]] step step_at(int sample, int position) const noexcept requires requires(const Operand& it) {
    it.step_at(0, 0);
  }
  { return {operand.step_at(sample, position), share_of(sample * operand.on.map.positions.value() + position)}; }
  [[nodiscard]] double share_of(int k) const noexcept {
    const int repeated = (depth_of_slice - depth % depth_of_slice) % depth_of_slice;
    return k == depth - 1 ? 1.0 / (1 + repeated) : 1.0;
  }
  void leave_out(step& at) const noexcept requires requires(const Operand& it) { it.leave_out(at.of); }
  { operand.leave_out(at.of); }
  [[nodiscard]] auto read(const line& a, const step& b) const noexcept {
    if (a.exists) to->fetched += b.share;
    if constexpr (requires { operand.place_of(b.of); }) {
      return operand.read(a.of, operand.place_of(b.of));
    } else {
      return operand.read(a.of, b.of);
    }
  }
  template <class Scalar>
  [[nodiscard]] static auto weighted(const step& b, Scalar value) noexcept requires requires {
    Operand::weighted(b.of, value);
  }
  { return Operand::weighted(b.of, value); }
};
/// A product that counts the elements it reads, and by its results what it multiplies.
template <class Problem>
struct counting : Problem {
  static constexpr bool in_samples = requires(const Problem& it) { it.row_step(); };
  seen* to = nullptr;
  int depth_of_slice = 1;
  int threads_of_column = 1;

  [[nodiscard]] auto left(int z) const noexcept {
    return counting_operand<decltype(Problem::left(z))>{{},           Problem::left(z), to,
                                                        this->rows(), this->depth(z),   depth_of_slice};
  }
  [[nodiscard]] auto right(int z) const noexcept {
    return counting_operand<decltype(Problem::right(z))>{
        {}, Problem::right(z), to, this->columns(), this->depth(z), depth_of_slice};
  }
  // Of results in samples' workspaces every thread of a column asks where it lies, where they are added also before.
  [[nodiscard]] auto column_of(int z, int column) const noexcept requires in_samples {
    const int times = threads_of_column * (this->accumulates() ? 2 : 1);
    to->multiply_adds += static_cast<double>(this->depth(z)) * this->rows() / times;
    return Problem::column_of(z, column);
  }
  // Places of all others carry their batch with them.
  [[nodiscard]] auto results(int z) const noexcept { return std::pair{z, Problem::results(z)}; }
  template <class Results>
  [[nodiscard]] auto column_of(const Results& of, int column) const noexcept requires(!in_samples) {
    return std::pair{of.first, Problem::column_of(of.second, column)};
  }
  template <class Place>
  [[nodiscard]] auto before(const Place& where, int row) const noexcept {
    return Problem::before(where.second, row);
  }
  template <class Place, class Scalar>
  void store(const Place& where, int row, Scalar value) const noexcept {
    to->multiply_adds += this->depth(where.first);
    Problem::store(where.second, row, value);
  }
};

/// The emulated device, which remembers its launches.
class counting_device : public dev::emulated_device {
 public:
  template <dev::kernel Kernel>
  void launch(const Kernel& kernel, int blocks) {
    if (blocks <= 0) return;
    launches_.push_back({typeid(Kernel).name(), blocks, Kernel::threads, dev::shared_bytes_of(kernel)});
    launch_counted(kernel, blocks);
  }
  [[nodiscard]] const std::deque<seen>& launches() const noexcept { return launches_; }
  [[nodiscard]] static std::vector<std::size_t>& node_counts() {
    static std::vector<std::size_t> counts;
    return counts;
  }
  void replay(graph& recorded) {
    node_counts().push_back(node_count(recorded));
    emulated_device::replay(recorded);
  }

 private:
  template <class Kernel>
  void launch_counted(const Kernel& kernel, int blocks) {
    emulated_device::launch(kernel, blocks);
  }
  template <class Scalar, class Problem, class Sizes>
  void launch_counted(const dev::gemm_kernel<Scalar, Problem, Sizes>& kernel, int blocks) {
    const counting<Problem> problem{kernel.problem, &launches_.back(), Sizes::depth,
                                    kernel.row_blocks() * (Sizes::rows / Sizes::own_rows)};
    emulated_device::launch(dev::gemm_kernel<Scalar, counting<Problem>, Sizes>{problem}, blocks);
  }

  std::deque<seen> launches_;
};

/// A team that counts what it multiplies.
template <class Team>
struct multiplying_team : Team {
  using scalar = typename Team::scalar;
  void multiply(const pg::product_sizes& sizes, const scalar* left, const pg::matrix_view<scalar>& right,
                scalar* to) const {
    add(sizes);
    Team::multiply(sizes, left, right, to);
  }
  void multiply_add(const pg::product_sizes& sizes, const scalar* left, const pg::matrix_view<scalar>& right,
                    scalar* to) const {
    add(sizes);
    Team::multiply_add(sizes, left, right, to);
  }
  static void add(const pg::product_sizes& sizes) {
    multiplied += static_cast<double>(sizes.outer.count * sizes.rows.count * sizes.columns * sizes.depth);
  }
};
/// With a learned key it goes by its own code, not by kernels for attention.
struct counted_attention : pg::multihead_attention<3, pg::causal, pg::kv_bias> {
  using attention = pg::multihead_attention<3, pg::causal, pg::kv_bias>;
  template <class Team>
  static void forward(const Team& team) {
    attention::forward(multiplying_team<Team>{team});
  }
  template <class Team>
  static void backward(const Team& team) {
    attention::backward(multiplying_team<Team>{team});
  }
};
/// Tiles of 32 queries see 33, 65 and 71 keys; heads are 6 features wide.
using attentive =
    pg::network<pg::shape{70, 18}, pg::linear<18>, counted_attention, pg::mean_over_positions, pg::linear<3>>;

/// The same with adapters, as of GPT-2: what is frozen has no sums.
using adapted =
    pg::network<pg::shape{70, 18}, pg::lora<2, pg::linear<54>>, pg::scaled_dot_product_attention<3, pg::causal>,
                pg::frozen<pg::linear<18>>, pg::mean_over_positions, pg::linear<3>>;

/// Its input's part of every position is a product of the batch, its state's is not.
using recurrent = pg::network<pg::shape{40, 18}, pg::linear<18>, pg::lstm<48>, pg::mean_over_positions, pg::linear<3>>;

/// Products with edges everywhere: none of their sizes is one of blocks, there are groups, padding and strides.
using network = pg::network<pg::shape{4, 9, 11}, pg::conv2d<6, 3, pg::padding<1>, pg::groups<2>>, pg::relu,
                            pg::conv2d<35, 2, pg::stride<2, 1>>, pg::tanh, pg::max_pool2d<2>, pg::flatten,
                            pg::linear<33>, pg::relu, pg::linear<5>>;
using small = pg::network<pg::shape{1, 7, 7}, pg::conv2d<3, 3>, pg::relu, pg::flatten, pg::linear<4>>;
/// Of so many positions that gradients are kept from norms to sums.
using image = pg::network<pg::shape{2, 18, 16}, pg::conv2d<3, 3, pg::padding<1>>, pg::relu, pg::max_pool2d<2>,
                          pg::flatten, pg::linear<3>>;
/// Of more, whose gradients are sums of two chunks'.
using picture = pg::network<pg::shape{2, 34, 32}, pg::conv2d<3, 3, pg::padding<1>>, pg::relu, pg::max_pool2d<2>,
                            pg::flatten, pg::linear<3>>;

}  // namespace launch_list_test

namespace pergrad::inline v0_1::on_device {

template <>
inline constexpr plan_kind plan_of<launch_list_test::network> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<launch_list_test::image> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<launch_list_test::picture> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<launch_list_test::attentive> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<launch_list_test::adapted> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<launch_list_test::recurrent> = plan_kind::layered;

}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_launch_list)

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;
using device_fixture::without_room;
using launch_list_test::adapted;
using launch_list_test::attentive;
using launch_list_test::counting_device;
using launch_list_test::image;
using launch_list_test::network;
using launch_list_test::picture;
using launch_list_test::recurrent;
using launch_list_test::seen;
using launch_list_test::small;

pg::dp_sgd_options all_records(std::size_t samples) {
  pg::dp_sgd_options options = device_fixture::of_whole_sums(1.0, samples, samples);
  options.noise = pg::noise_multiplier{1.0};
  return options;
}

/// A step of that many records on the device that counts, and the list of the same step; how many of its products were
/// counted.
template <class Network, class Listing = launch_list::listing_device, class Counting = counting_device>
std::size_t compare(std::size_t samples) {
  const auto options = all_records(samples);
  const std::vector<launch_list::entry> listed =
      launch_list::private_step<Network, pg::cross_entropy, pg::basic_device_executor<Listing>>(samples, options);

  const pg::basic_device_executor<Counting> exec;
  Network net{exec, pg::kaiming_uniform{1}};
  const std::vector<float> inputs(samples * Network::input_shape.size(), 0.5F);
  const std::vector<std::int32_t> labels(samples);
  counting_device::node_counts().clear();
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{3}};
  const std::size_t before = exec.device().launches().size();  // whoever makes a trainer sees the device's noise
  trainer.step(pg::dataset<float, std::int32_t>{inputs, labels, Network::input_shape});
  const auto& launches = exec.device().launches();
  BOOST_TEST_REQUIRE(launches.size() - before == listed.size());
  BOOST_TEST(counting_device::node_counts().front() == listed.size());
  std::size_t products = 0;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const launch_list::entry& said = listed[i];
    const seen& found = launches[before + i];
    BOOST_TEST_CONTEXT(said.what << ", " << samples << " samples") {
      BOOST_TEST(said.type == found.type);
      BOOST_TEST(said.blocks == found.blocks);
      BOOST_TEST(said.threads == found.threads);
      BOOST_TEST(said.shared_bytes == found.shared_bytes);
      BOOST_TEST(std::abs(said.done.fetched - found.fetched) <= 1e-9 * said.done.fetched);  // shares of elements
      // Of squares nothing is stored but their sum.
      if (found.multiply_adds > 0) BOOST_TEST(said.done.multiply_adds == found.multiply_adds);
      products += found.multiply_adds > 0 ? 1U : 0U;
    }
  }
  return products;
}

}  // namespace

BOOST_AUTO_TEST_CASE(is_what_a_device_is_told_to_do) {
  for (const std::size_t samples : {3U, 8U}) {  // 8: more than one an accumulator
    const auto layer_by_layer =
        &compare<network, without_room<launch_list::listing_device>, without_room<counting_device>>;
    BOOST_TEST(layer_by_layer(samples) == 11U);  // 4 forward, 3 back, 4 sums
    BOOST_TEST(compare<network>(samples) == 4U);
  }
  BOOST_TEST(compare<small>(5) == 0U);
}

BOOST_AUTO_TEST_CASE(attention_multiplies_what_is_listed) {
  constexpr std::size_t samples = 2;
  const auto options = all_records(samples);
  double listed = 0;
  for (const launch_list::entry& each : launch_list::private_step<attentive, pg::cross_entropy>(samples, options)) {
    if (each.what.starts_with("samples")) listed += each.done.multiply_adds;
  }
  launch_list_test::multiplied = 0;
  launch_list::take_private_step<attentive, pg::cross_entropy>(pg::emulated{}, samples, options);
  BOOST_TEST(listed == launch_list_test::multiplied);
  // Q K^T and P V; backward Q K^T again, dY V^T, and the gradients of keys, values and queries.
  BOOST_TEST(listed == samples * 3 * 6 * (2 + 5) * (32.0 * 33 + 32 * 65 + 6 * 71));
}

BOOST_AUTO_TEST_CASE(adapters_and_frozen_layers_multiply_what_they_should) {
  const auto listed = launch_list::private_step<adapted, pg::cross_entropy>(2, all_records(2));
  const auto sum_of = [&](const char* kind) {
    double sum = 0;
    for (const launch_list::entry& each : listed) sum += each.what.starts_with(kind) ? each.done.multiply_adds : 0;
    return sum;
  };
  constexpr double inner = 2 * 54 * 70, outer = 18 * 18 * 70, line = 18 * 3;
  BOOST_TEST(sum_of("forward") == 2 * (18 * 54 * 70 + 18 * 2 * 70 + inner + outer + line));
  BOOST_TEST(sum_of("adjoint") == 2 * (inner + outer + line));  // nobody wants the input's
  BOOST_TEST(sum_of("squares") == 2 * (18 * 2 * 70 + inner));   // of one position there are none
  // Two products forward and five back, of 70 * 71 / 2 pairs a head.
  BOOST_TEST(sum_of("attention") == 2 * 3 * 6 * (2 + 5) * (70.0 * 71 / 2));
  BOOST_TEST(sum_of("samples") == 0);
  // Blocks of two tiles of queries, or of keys, of three heads of two samples.
  for (const launch_list::entry& each : listed) {
    if (each.what.starts_with("attention")) BOOST_TEST(each.blocks == 2 * 3 * 2);
  }
}

BOOST_AUTO_TEST_CASE(gradients_that_are_kept_are_formed_once) {
  static_assert(dev::facts_of<image>.partials == 3 * 18 && dev::facts_of<picture>.partials == 2 * 3 * 18);
  const auto count = [](const std::vector<launch_list::entry>& listed, const char* kind) {
    return std::ranges::count_if(listed, [&](const auto& each) { return each.what.starts_with(kind); });
  };
  const auto step = launch_list::private_step<image, pg::cross_entropy>(3, all_records(3));
  BOOST_TEST(count(step, "gradients 3 x 18") == 0);
  BOOST_TEST(count(step, "squares 3 x 18") == 1);
  BOOST_TEST(count(step, "partial sums added up") == 1);
  BOOST_TEST(count(step, "shares") == 0);
  const auto chunks = launch_list::private_step<picture, pg::cross_entropy>(3, all_records(3));
  BOOST_TEST(count(chunks, "gradients 3 x 18") == 1);
  BOOST_TEST(count(chunks, "squares of partial sums") == 1);
  BOOST_TEST(count(chunks, "partial sums added up") == 1);
  BOOST_TEST(count(chunks, "squares 3") == 0);
  const auto plain = launch_list::plain_sum<image, pg::cross_entropy>(3);  // which asks for no norms
  BOOST_TEST(count(plain, "gradients 3 x 18") == 1);
  BOOST_TEST(count(plain, "squares of partial sums") == 0);
}

/// The blocks of each kernel of a step, by what describes it and by what a trainer launches.
template <class Network, class Device = launch_list::listing_device>
void check_described_kernels(std::size_t samples, const pg::device_options& options = {}) {
  const pg::basic_device_executor<Device> exec{options};
  std::vector<int> described;
  std::vector<double> of_nodes;  // multiply-adds of kernels that take samples through nodes; 0 of others
  double bytes = 0;
  double multiply_adds = 0;
  for (const dev::listed_kernel& each : dev::list_kernels<Network>(exec, pg::max_batch{samples})) {
    BOOST_TEST_MESSAGE(each.what << ": " << each.blocks << " blocks, " << each.multiply_adds << ", " << each.bytes);
    described.push_back(each.blocks);
    of_nodes.push_back(each.what.starts_with("entr") ? each.multiply_adds : 0);
    bytes += each.bytes;
    multiply_adds += each.multiply_adds;
  }
  std::vector<int> launched;
  double listed_bytes = 0;
  double listed_multiply_adds = 0;
  for (const auto& each : launch_list::private_step<Network, pg::cross_entropy, pg::basic_device_executor<Device>>(
           samples, all_records(samples), options)) {
    BOOST_TEST_MESSAGE("  " << each.what << ": " << each.blocks << " blocks, " << each.done.multiply_adds << ", "
                            << each.done.bytes);
    // Those without norms. Tiles also multiply what is masked.
    if (each.what.starts_with("samples, ") && each.what.find("norms") == std::string::npos) {
      BOOST_TEST(of_nodes.at(launched.size()) >= 0.6 * each.done.multiply_adds, each.what);
    }
    launched.push_back(each.blocks);
    listed_bytes += each.done.bytes;
    listed_multiply_adds += each.done.multiply_adds;
  }
  BOOST_TEST(described == launched, boost::test_tools::per_element());
  // Both count the same work, one of them more closely.
  BOOST_TEST(bytes > 0.5 * listed_bytes);
  BOOST_TEST(bytes < 2 * listed_bytes);
  BOOST_TEST(multiply_adds > 0.7 * listed_multiply_adds);
}

BOOST_AUTO_TEST_CASE(described_kernels_are_those_that_are_launched) {
  check_described_kernels<small>(40);
  check_described_kernels<network>(40);
  check_described_kernels<image>(40);
  check_described_kernels<picture>(3);
  check_described_kernels<attentive>(3);
  check_described_kernels<adapted>(3);
  check_described_kernels<recurrent>(3);
  check_described_kernels<picture>(40, {.tf32 = true});
  check_described_kernels<network, launch_list::listing_device_bf16>(40);
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_emulated_device) {
  const launch_list::listing listing;
  const pg::emulated emulated;
  const auto bytes_on = [](const auto& exec) {
    small net{exec, pg::kaiming_uniform{1}};
    const pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, all_records(5), pg::seeded_generator{3}};
    const auto& device = exec.device();
    if constexpr (requires { device.counted(); }) {
      return device.counted().allocated_bytes;
    } else {
      return device.allocated_bytes();
    }
  };
  BOOST_TEST(bytes_on(listing) == bytes_on(emulated));
}

BOOST_AUTO_TEST_CASE(one_block_of_a_sample_does_what_its_loops_say) {
  // small: 3 channels of 5 x 5 from 3 x 3, then 4 from 75.
  const auto listed = launch_list::private_step<small, pg::cross_entropy>(2, all_records(2));
  const launch_list::work& done = listed.front().done;
  const double convolution = 3 * 25 * 9;
  const double line = 75 * 4;
  // Forward both, back the line; the convolution's gradient is formed for its norm, with its bias, which is kept.
  BOOST_TEST(done.multiply_adds == 2 * (2 * convolution + 2 * line + 3 * 25 + 4));
  const auto plain = launch_list::plain_sum<small, pg::cross_entropy>(2);
  BOOST_TEST(plain.back().what == "fold");
  BOOST_TEST(plain.size() == 3U);
}

BOOST_AUTO_TEST_SUITE_END()
