// SPDX-License-Identifier: Apache-2.0
// tests/cuda/layered_test.cpp - the plan of large networks, on networks small enough for a host that emulates the
// device
#include <algorithm>
#include <vector>

#include <pergrad/cuda/run/describe.hpp>

#include "device_fixture.hpp"

namespace {

using namespace device_fixture;

/// As `cnn` and `mixed` of the fixture, but of another input, so that they are other types.
template <class Scalar>
using layered_cnn =
    pg::basic_network<Scalar, pg::shape{2, 9, 9}, pg::conv2d<4, 3, pg::padding<1>, pg::groups<2>>, pg::tanh,
                      pg::residual<pg::conv2d<6, 3, pg::padding<2>, pg::dilation<2>, pg::no_bias>, pg::sigmoid,
                                   pg::projection<pg::conv2d<6, 1>>>,
                      pg::max_pool2d<3, pg::stride<2>, pg::padding<1>>, pg::relu, pg::conv2d<5, 2, pg::stride<2, 1>>,
                      pg::softplus, pg::flatten, pg::linear<33>, pg::relu, pg::linear<3>>;
template <class Scalar>
using layered_mix =
    pg::basic_network<Scalar, pg::shape{6, 4}, pg::linear<6>, bent, pg::residual<pg::linear<6>, pg::gelu>,
                      pg::frozen<pg::linear<4>>, pg::flatten, pg::residual<gain_and_line>, pg::linear<3, pg::no_bias>>;

/// Of so many positions that they are added up in chunks.
template <class Scalar>
using layered_image = pg::basic_network<Scalar, pg::shape{2, 33, 32}, pg::conv2d<3, 3, pg::padding<1>>, pg::tanh,
                                        pg::max_pool2d<4>, pg::flatten, pg::linear<3>>;
/// The same with more weights, so that they would take too much of the workspace.
template <class Scalar>
using layered_channels = pg::basic_network<Scalar, pg::shape{300, 33, 32}, pg::conv2d<2, 3, pg::padding<1>>, pg::tanh,
                                           pg::max_pool2d<4>, pg::flatten, pg::linear<3>>;

/// Of layers at several positions alone.
template <class Scalar>
using layered_convs =
    pg::basic_network<Scalar, pg::shape{2, 9, 9}, pg::conv2d<4, 3, pg::padding<1>>, pg::tanh, pg::conv2d<40, 3>,
                      pg::tanh, pg::conv2d<3, 6>, pg::sigmoid, pg::adaptive_avg_pool2d<1>, pg::flatten>;

/// Of gradients that tensor cores form in large blocks, and in wide ones.
template <class Scalar>
using layered_blocks = pg::basic_network<Scalar, pg::shape{14, 6, 4}, pg::conv2d<200, 3>, pg::tanh, pg::conv2d<40, 1>,
                                         pg::tanh, pg::flatten, pg::linear<3>>;

/// Functions in front of pools: read by them alone, by a branch as well, and with a gradient that is added to another.
template <class Scalar>
using layered_pools =
    pg::basic_network<Scalar, pg::shape{2, 12, 10}, pg::conv2d<4, 3>, pg::tanh, pg::max_pool2d<2>, pg::conv2d<4, 1>,
                      pg::residual<pg::sigmoid, pg::avg_pool2d<3, pg::stride<1>, pg::padding<1>>>, pg::relu,
                      pg::residual<pg::max_pool2d<3, pg::stride<1>, pg::padding<1>>>, pg::gelu, pg::avg_pool2d<2>,
                      pg::flatten, pg::linear<3>>;

/// Nodes of so many elements that blocks share a sample: of every kind that may, and a bias at many positions.
template <class Scalar>
using layered_nodes =
    pg::basic_network<Scalar, pg::shape{2, 24, 24}, pg::conv2d<3, 3, pg::padding<1>>, pg::residual<pg::tanh>,
                      pg::max_pool2d<3, pg::stride<1>>, pg::reshape<pg::shape{3, 484}>, pg::transpose, pg::linear<3>,
                      bent, pg::flatten, pg::linear<3>>;
/// Layers whose inputs and deltas are dead once they are multiplied, of as many values each: what a product writes for
/// the node next to it could lie where other blocks still read.
using layered_frozen =
    pg::basic_network<double, pg::shape{2, 2, 2}, pg::conv2d<40, 3, pg::padding<1>>, pg::tanh,
                      pg::frozen<pg::conv2d<40, 3, pg::padding<1>>>, pg::gelu,
                      pg::frozen<pg::conv2d<40, 3, pg::padding<1>>>, pg::tanh, pg::flatten, pg::frozen<pg::linear<160>>,
                      pg::relu, pg::frozen<pg::linear<160>>, pg::gelu, pg::frozen<pg::linear<160>>, pg::tanh,
                      pg::frozen<pg::linear<160>>, pg::sigmoid, pg::linear<3>>;
/// The same with nothing trained before.
using layered_trunk = pg::basic_network<double, pg::shape{2, 2, 2}, pg::frozen<pg::conv2d<40, 3, pg::padding<1>>>,
                                        pg::tanh, pg::frozen<pg::conv2d<40, 3, pg::padding<1>>>, pg::gelu,
                                        pg::frozen<pg::conv2d<40, 3, pg::padding<1>>>, pg::tanh, pg::flatten,
                                        pg::frozen<pg::linear<160>>, pg::relu, pg::frozen<pg::linear<160>>, pg::gelu,
                                        pg::frozen<pg::linear<160>>, pg::tanh, pg::linear<3>>;
/// The only position of its second convolution sees nothing but padding.
using layered_beside = pg::network<pg::shape{2, 1, 1}, pg::conv2d<4, 1>, pg::tanh,
                                   pg::conv2d<4, 1, pg::padding<1>, pg::stride<3>>, pg::flatten, pg::linear<2>>;

}  // namespace

namespace pergrad::inline v0_1::on_device {

template <>
inline constexpr plan_kind plan_of<layered_frozen> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_trunk> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_beside> = plan_kind::layered;

template <>
inline constexpr plan_kind plan_of<layered_convs<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_blocks<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_pools<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_pools<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_nodes<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_nodes<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_image<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_channels<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_image<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_cnn<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_cnn<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<layered_mix<double>> = plan_kind::layered;

}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_layered)

BOOST_AUTO_TEST_CASE(large_networks_are_layered_and_small_ones_are_not) {
  using large = pg::network<pg::shape{784}, pg::linear<1024>, pg::relu, pg::linear<10>>;
  BOOST_TEST((pg::on_device::plan_of<large> == pg::on_device::plan_kind::layered));
  BOOST_TEST((pg::on_device::plan_of<mlp<float>> == pg::on_device::plan_kind::fused));
}

BOOST_AUTO_TEST_CASE(a_description_says_who_does_what_and_what_it_takes) {
  const pg::basic_device_executor<without_room<pg::on_device::emulated_device>> device{
      pg::device_options{.tf32 = true}};
  using network = layered_cnn<float>;
  const auto rows = pg::describe_rows<network>(device);
  BOOST_TEST(rows[0].forward == "own kernel, 16 x 128 blocks");
  BOOST_TEST(rows[0].backward == "-");  // nobody asks for the gradient of the input
  BOOST_TEST(rows[0].sum == "own kernel, 16 x 64 blocks");
  BOOST_TEST(rows[1].forward == "with the product");
  BOOST_TEST(rows[1].norm == "-");
  BOOST_TEST(rows.back().norm == "product");
  BOOST_TEST(rows.back().backward == "own kernel, 64 x 128 blocks, on tensor cores 64 x 64");
  // As many inputs as an image has.
  using of_image = pg::network<pg::shape{1, 224, 224}, pg::flatten, pg::linear<10>>;
  BOOST_TEST(pg::describe_rows<of_image>(device).size() == 2U);
  const std::string text = pg::describe<network>(device, pg::max_batch{17});
  BOOST_TEST_MESSAGE(text);
  const pg::tape<network> tape{device, pg::max_batch{17}};
  BOOST_TEST(text.find(std::to_string(tape.bytes()) + " bytes on the device for batches of up to 17") !=
             std::string::npos);
  BOOST_TEST(text.find("plan   layered") != std::string::npos);
  BOOST_TEST(text.find(", TF32,") != std::string::npos);
  BOOST_TEST(pg::describe<network>(pg::emulated_bf16{}).find(", BF16,") != std::string::npos);

  using small = mlp<float>;
  for (const auto& row : pg::describe_rows<small>(device)) BOOST_TEST(row.forward == "sample kernel");
  BOOST_TEST(pg::describe<small>(pg::emulated{}).find("plan   fused") != std::string::npos);
  // What cuBLAS may do is the plan's choice where the device can call it.
  static_assert(pg::on_device::way_on<pg::on_device::emulated_device, float>(pg::on_device::gemm_way::library) ==
                pg::on_device::gemm_way::square);
}

namespace {

/// A device that says how fast it is, and is not.
struct timed_device : pg::on_device::emulated_device {
  using emulated_device::emulated_device;
  static pg::on_device::device_speed speed() { return {.multiply_adds = 1e12, .bytes = 4e9}; }
};
/// One whose memory is never in the way, and with tensor cores.
struct tensor_device : pg::on_device::emulated_device {
  using emulated_device::emulated_device;
  static pg::on_device::device_speed speed() {
    return {.multiply_adds = 1e12, .bytes = 1e18, .tensor_multiply_adds = 8e12};
  }
};

}  // namespace

// What is compiled of a network's products: tensor cores gain nothing with few rows, and where blocks hold samples no
// small blocks of products are needed.
BOOST_AUTO_TEST_CASE(products_that_nobody_needs_are_not_compiled) {
  namespace dev = pg::on_device;
  using few_rows =
      pg::network<pg::shape{3, 96, 96}, pg::conv2d<16, 3, pg::padding<1>>, pg::relu, pg::flatten, pg::linear<10>>;
  using more_rows =
      pg::network<pg::shape{3, 96, 96}, pg::conv2d<48, 3, pg::padding<1>>, pg::relu, pg::flatten, pg::linear<10>>;
  using held =
      pg::network<pg::shape{16, 7, 7}, pg::conv2d<32, 3, pg::padding<1>>, pg::tanh, pg::flatten, pg::linear<10>>;
  static_assert(dev::program<few_rows>::table.held_products == 0 && dev::program<held>::table.held_products > 0);
  static_assert(!dev::products_of<few_rows>.tensor_cores && dev::products_of<more_rows>.tensor_cores);
  static_assert((dev::products_of<few_rows>.forward & dev::small_too) != 0);
  static_assert((dev::products_of<held>.forward & dev::small_too) == 0);
  static_assert(dev::products_of<held>.others_elementwise && dev::products_of<few_rows>.others_elementwise);
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_CASE(a_description_says_how_long_a_device_needs_at_the_least) {
  const pg::basic_device_executor<timed_device> device;
  // A billion floats a second go through memory: 784 to 1024 to 10, all layers' inputs, outputs and weights.
  using large = pg::network<pg::shape{784}, pg::linear<1024>, pg::relu, pg::linear<10>>;
  const auto few = pg::describe_rows<large>(device, pg::max_batch{2});
  const double first = 784 * 1024 + 2 * (784 + 1024);  // forward; the sum reads and writes as much
  const double norms = 2 * (784 + 1024);
  BOOST_TEST(few[0].least_us == 1e-3 * (2 * first + norms), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(few[1].least_us == 1e-3 * 2 * 2 * 2 * 1024, boost::test_tools::tolerance(1e-12));  // forward and backward
  // Of many samples the products take longest: two of them, and norms of one position.
  const auto many = pg::describe_rows<large>(device, pg::max_batch{1'000'000});
  BOOST_TEST(many[0].least_us > few[0].least_us);
  BOOST_TEST(few[2].least_us > 0);
  // What tensor cores may form takes them an eighth of the time here.
  const pg::basic_device_executor<tensor_device> exact;
  const pg::basic_device_executor<tensor_device> rounding{{.tf32 = true}};
  BOOST_TEST(pg::describe_rows<large>(rounding)[0].least_us == pg::describe_rows<large>(exact)[0].least_us / 8,
             boost::test_tools::tolerance(1e-6));
  const std::string text = pg::describe<large>(device, pg::max_batch{2});
  BOOST_TEST_MESSAGE(text);
  BOOST_TEST(text.find("at least, us") != std::string::npos);
  BOOST_TEST(text.find("us for 2 samples, without noise and update: 1e+12 multiply-adds and 4e+09 bytes a second") !=
             std::string::npos);
  BOOST_TEST(text.find("kernels of a private step, one after the other") != std::string::npos);
  BOOST_TEST(text.find("us predicted for 2 samples, noise and update included") != std::string::npos);
  // One that says nothing is asked nothing.
  for (const auto& row : pg::describe_rows<large>(pg::emulated{})) BOOST_TEST(row.least_us == 0);
  BOOST_TEST(pg::describe<large>(pg::emulated{}).find("least  ") == std::string::npos);
  // A block of threads that takes a sample through everything keeps values with it: only multiply-adds count.
  using small = pg::network<pg::shape{20, 30}, pg::linear<30>, pg::mean_over_positions, pg::linear<5>>;
  static_assert(pg::on_device::plan_of<small> == pg::on_device::plan_kind::fused);
  const auto fused = pg::describe_rows<small>(device, pg::max_batch{100});
  const double product = 20 * 30 * 30;
  const bool formed = fused[0].norm == "instantiate";
  BOOST_TEST(fused[0].least_us == 1e6 * 100 * product * (formed ? 2 : 3) / 1e12, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(pg::describe_rows<small>(rounding)[0].least_us == pg::describe_rows<small>(exact)[0].least_us);
}

/// One with so many multiprocessors.
template <int Count>
struct wide_device : pg::on_device::emulated_device {
  using emulated_device::emulated_device;
  static pg::on_device::device_speed speed() {
    return {.multiply_adds = 1e12, .bytes = 1e18, .multiprocessors = Count};
  }
};

BOOST_AUTO_TEST_CASE(a_description_predicts_each_kernel_of_a_step) {
  using large = pg::network<pg::shape{784}, pg::linear<1024>, pg::relu, pg::linear<10>>;
  const auto predicted = [](const auto& device, std::size_t samples, const char* what) {
    for (const pg::kernel_description& each : pg::describe_kernels<large>(device, pg::max_batch{samples})) {
      if (each.kernel.starts_with(what)) return each.predicted_us;
    }
    BOOST_ERROR("there is no " << what);
    return 0.0;
  };
  constexpr const char* first = "product, 1024 x 784";
  // 2048 samples fill all blocks: at 0.8 of the peak; one block more than multiprocessors takes another round.
  const double work = 1e6 * 2048 * 1024 * 784 / (0.8 * 1e12);
  const pg::basic_device_executor<wide_device<1>> one;
  BOOST_TEST(predicted(one, 2048, first) == 1 + work, boost::test_tools::tolerance(1e-9));
  const int blocks = [&] {
    for (const pg::kernel_description& each : pg::describe_kernels<large>(one, pg::max_batch{2048})) {
      if (each.kernel.starts_with(first)) return each.blocks;
    }
    return 0;
  }();
  BOOST_TEST_REQUIRE(blocks > 0);
  BOOST_TEST(blocks % 64 == 0);
  BOOST_TEST(predicted(pg::basic_device_executor<wide_device<64>>{}, 2048, first) == 1 + work,
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(predicted(pg::basic_device_executor<wide_device<1 << 20>>{}, 2048, first) == 1 + work * (1 << 20) / blocks,
             boost::test_tools::tolerance(1e-9));
  // By memory: what is released, and written again, at 4e9 bytes a second.
  BOOST_TEST(predicted(pg::basic_device_executor<timed_device>{}, 2, "noise and update") ==
                 1 + 1e6 * large::parameter_count * 20 / 4e9,
             boost::test_tools::tolerance(1e-9));
  for (const pg::kernel_description& each : pg::describe_kernels<large>(pg::emulated{})) {
    BOOST_TEST(each.predicted_us == 0);
    BOOST_TEST(each.blocks > 0);
  }
}

BOOST_AUTO_TEST_CASE(blocks_that_share_a_sample_change_no_bit) {
  namespace dev = pg::on_device;
  using network = layered_nodes<float>;
  constexpr const auto& net = dev::facts_of<network>;
  const dev::function_tables<float> tables = dev::program<network>::of_functions();
  constexpr int samples = 2;
  const dev::step_state state{.count = samples};
  std::vector<float> random(static_cast<std::size_t>(samples * net.workspace));
  std::mt19937 engine{3};
  std::uniform_real_distribution<float> uniform{-1, 1};
  for (float& value : random) value = uniform(engine);
  std::vector<pg::detail::node_kind> kinds;
  for (const dev::op_row& row : net.ops) {
    if (dev::stretches_of(row) == 0) continue;
    kinds.push_back(row.kind);
    for (const int backward : {0, 1}) {
      const auto done = [&](int stretches, emulation_order order) {
        std::vector<float> values = random;
        dev::node_kernel<float, std::int32_t, dev::program<network>::functions> kernel;
        kernel.state = &state;
        kernel.samples.workspaces = values.data();
        kernel.samples.workspace = net.workspace;
        kernel.samples.integers = tables.integers.data();
        kernel.divisors = tables.scalars.data();
        kernel.row = row;
        kernel.backward = backward;
        kernel.format = dev::stored_format::tf32;
        kernel.stretches = stretches;
        kernel.most_samples = samples;
        dev::emulate(kernel, kernel.blocks(), order);
        return values;
      };
      const auto wanted = done(1, emulation_order::forward);
      BOOST_TEST((wanted != random));
      check_same(done(3, emulation_order::reversed), wanted, "3 blocks, node " + std::to_string(row.node));
      check_same(done(dev::stretches_of(row), emulation_order::shuffled), wanted, "as planned");
    }
  }
  using kind = pg::detail::node_kind;
  for (const kind each : {kind::elementwise, kind::pooling, kind::branch_sum, kind::reshape}) {
    BOOST_TEST(std::ranges::count(kinds, each) >= 1);
  }
}

BOOST_AUTO_TEST_CASE(every_result_is_the_hosts) {
  compare_gradients<layered_nodes<double>, pg::cross_entropy>("layered nodes, double");
  compare_layers<layered_cnn<float>, pg::cross_entropy>("layered cnn, float");
  compare<layered_cnn<double>, pg::cross_entropy>("layered cnn, double");
  compare<layered_mix<double>, pg::mean_squared_error>("layered mix, double");
  compare_strategies<layered_cnn<double>, pg::cross_entropy>("layered cnn, double");
}

template <class network, class Device = pg::emulated>
void check_clip_bound(const pg::device_options& options) {
  both<network, pg::cross_entropy, Device> it{1, emulation_order::forward, 3, options};
  for (const double scale : {1e-30, 1e-3, 1.0, 1e3, 1e15}) {
    for (float& value : it.inputs) value = static_cast<float>(static_cast<double>(value) * scale);
    for (const double bound : {1e-6, 0.25, 1e3}) {
      const pg::l2_clip_norm clip{bound};
      const auto limit = static_cast<long double>(bound);
      BOOST_TEST(norm_of(it.evaluate(pg::sum(pg::clip(it.on_device(), clip)))) <= limit);
      BOOST_TEST(norm_of(it.evaluate(pg::sum(pg::clip_per_layer(it.on_device(), clip)))) <= limit);
      BOOST_TEST(norm_of(it.evaluate(pg::sum(pg::normalise(it.on_device(), clip)))) <= limit);
      const auto gram = pg::with_method<pg::norm_method::gram>(it.on_device());
      BOOST_TEST(norm_of(it.evaluate(pg::sum(pg::clip(gram, clip)))) <= limit);
    }
    for (float& value : it.inputs) value = static_cast<float>(static_cast<double>(value) / scale);
  }
}
BOOST_AUTO_TEST_CASE(pools_compute_what_they_alone_read) {
  const auto taken = [](std::size_t node) {
    return pg::on_device::program<layered_pools<double>>::table.ops[node].taken_along != 0;
  };
  const auto rows = pg::describe_rows<layered_pools<double>>(pg::emulated{});
  for (std::size_t node = 0; node < rows.size(); ++node) {
    const bool expected = rows[node].layer == "tanh" || rows[node].layer == "sigmoid" || rows[node].layer == "gelu";
    BOOST_TEST(taken(node) == expected);
    BOOST_TEST((rows[node].forward == "with the pool") == expected);
    BOOST_TEST((rows[node].backward == "with the pool") == expected);
  }
  compare<layered_pools<double>, pg::cross_entropy>("pools");
}
BOOST_AUTO_TEST_CASE(what_is_added_for_a_sample_is_within_the_bound) {
  check_clip_bound<layered_cnn<float>>({});
  check_clip_bound<layered_image<float>>({});
}
BOOST_AUTO_TEST_CASE(what_is_added_for_a_sample_is_within_the_bound_with_tf32) {
  check_clip_bound<layered_cnn<float>>({.tf32 = true});
}
BOOST_AUTO_TEST_CASE(what_is_added_for_a_sample_is_within_the_bound_with_bf16) {
  check_clip_bound<layered_cnn<float>, pg::emulated_bf16>({});
}

template <class Network>
const pg::on_device::outer_leaf& first_leaf() {
  return pg::on_device::facts_of<Network>.outer[0];
}
BOOST_AUTO_TEST_CASE(many_positions_are_added_up_in_chunks) {
  BOOST_TEST(first_leaf<layered_image<float>>().chunks == 2);
  BOOST_TEST(first_leaf<layered_image<float>>().partials == 0);  // kept from norms to sums
  BOOST_TEST(first_leaf<layered_cnn<float>>().chunks == 1);
  BOOST_TEST(first_leaf<layered_cnn<float>>().partials == 0);
  const auto& few = pg::on_device::facts_of<layered_cnn<float>>.outer[3];
  BOOST_TEST((few.view.positions() > 1 && few.view.positions() < 64));
  BOOST_TEST(few.partials == -1);
  compare_layers<layered_image<float>, pg::cross_entropy>("layered image, float");
  compare<layered_image<double>, pg::cross_entropy>("layered image, double");
}
BOOST_AUTO_TEST_CASE(a_sum_without_norms_forms_gradients_that_norms_would_have_left) {
  both<layered_image<double>, pg::cross_entropy> it{3};
  check_close(it.evaluate(pg::sum(it.on_device())), pg::unprotected::evaluate(it.host, pg::sum(it.on_host())), 1e-10,
              "sum");
}
BOOST_AUTO_TEST_CASE(chunks_that_take_too_much_memory_are_formed_again) {
  BOOST_TEST(first_leaf<layered_channels<double>>().chunks == 2);
  BOOST_TEST(first_leaf<layered_channels<double>>().partials == -1);
  both<layered_channels<double>, pg::cross_entropy> it{3};
  const pg::l2_clip_norm bound{0.3};
  check_close(it.evaluate(pg::sum(pg::clip(it.on_device(), bound))),
              pg::unprotected::evaluate(it.host, pg::sum(pg::clip(it.on_host(), bound))), 1e-10, "clipped sum");
}

// In steps of the grid; noise is the same for all. A sum of integers is exact, so a record adds the same integers
// whatever the others are, and no more of them than the sensitivity allows.
template <class Network, class Device = pg::emulated>
void check_shares_of_records(const char* what, std::size_t records = 4, const pg::device_options& options = {}) {
  using scalar = typename Network::scalar;
  both<Network, pg::cross_entropy, Device> it{records, emulation_order::forward, 3, options};
  const double bound = 0.01;  // all are clipped
  const auto grid = pg::release_grid::of(bound, Network::parameter_count);
  const auto released = [&](std::size_t first, std::size_t count) {
    const auto inputs = std::span<const scalar>{it.inputs}.subspan(first * Network::input_shape.size(),
                                                                   count * Network::input_shape.size());
    const pg::batch<Network, pg::cross_entropy> some{inputs,
                                                     std::span<const std::int32_t>{it.targets}.subspan(first, count)};
    pg::seeded_generator generator{4};
    pg::unprotected::rehearsed_gradient<Network> sum{it.device};
    pg::evaluate_into(it.device, sum,
                      pg::sum(pg::clip(pg::per_sample_gradients(it.net, pg::cross_entropy{}, some, it.device_tape),
                                       pg::l2_clip_norm{bound})) +
                          pg::unaccounted::gaussian_noise(pg::noise_multiplier{1e-3}, generator));
    // So little noise that a float has every step.
    std::vector<double> steps(sum.values().begin(), sum.values().end());
    for (double& value : steps) value = std::ldexp(value, grid.steps - grid.unit);
    return steps;
  };
  const auto nobody = released(0, 0);
  for (std::size_t record = 0; record < records; ++record) {
    const auto alone = released(record, 1);
    const auto with = released(0, record + 1);
    const auto without = released(0, record);
    double squared = 0;
    std::size_t others = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const double share = with[i] - without[i];
      squared += share * share;
      others += share == alone[i] - nobody[i] ? 0U : 1U;
    }
    BOOST_TEST(others == 0U, what << ", record " << record);
    BOOST_TEST(std::sqrt(squared) <= pg::sensitivity_in_steps(grid, {}, 1));
    BOOST_TEST(std::sqrt(squared) >= 0.99 * std::ldexp(bound, grid.steps - grid.unit));
  }
}
BOOST_AUTO_TEST_CASE(a_record_adds_its_own_integers_within_its_sensitivity) {
  check_shares_of_records<layered_image<double>>("several chunks");
  check_shares_of_records<layered_cnn<double>>("one chunk");
}
// Of floats they are small: up to a million parameters rounded by an addition, then by a conversion to 32 bits.
template <class Network>
constexpr pg::on_device::share_kind shares_of = pg::on_device::products_of<Network>.shares;
BOOST_AUTO_TEST_CASE(a_record_adds_its_own_small_integers_within_its_sensitivity) {
  using wide = pg::network<pg::shape{1100}, pg::linear<1000>, pg::relu, pg::linear<3>>;
  static_assert(shares_of<layered_cnn<float>> == pg::on_device::share_kind::shifted);
  static_assert(shares_of<wide> == pg::on_device::share_kind::converted);
  check_shares_of_records<layered_image<float>>("several chunks, float");
  check_shares_of_records<layered_cnn<float>>("one chunk, float");
  check_shares_of_records<wide>("many parameters, float", 2);
  check_shares_of_records<layered_blocks<float>>("large blocks, TF32", 3, {.tf32 = true});
  check_shares_of_records<layered_blocks<float>, pg::emulated_bf16>("large blocks, BF16", 3);
}

template <class network, class Device>
void norms_are_those_of_the_rows(const pg::device_options& options, double rounding) {
  both<network, pg::cross_entropy, Device> it{6, emulation_order::forward, 3, options};
  const auto rows = it.evaluate(pg::materialise(it.on_device()));
  std::vector<double> norms(6);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    norms[i / network::parameter_count] += static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
  }
  for (double& norm : norms) norm = std::sqrt(norm);
  check_close(it.evaluate(pg::l2_norms(it.on_device())), norms, 1e-6, "norms");
  check_close(it.evaluate(pg::outputs(it.on_device())), pg::unprotected::evaluate(it.host, pg::outputs(it.on_host())),
              rounding, "outputs");
}
BOOST_AUTO_TEST_CASE(with_tf32_norms_are_those_of_the_rows) {
  norms_are_those_of_the_rows<layered_cnn<float>, pg::emulated>({.tf32 = true}, 1e-2);
#ifdef PERGRAD_ALL_NETWORKS
  norms_are_those_of_the_rows<layered_pools<float>, pg::emulated>({.tf32 = true}, 1e-2);
#endif
}
BOOST_AUTO_TEST_CASE(with_bf16_norms_are_those_of_the_rows) {
  norms_are_those_of_the_rows<layered_cnn<float>, pg::emulated_bf16>({}, 6e-2);
#ifdef PERGRAD_ALL_NETWORKS
  norms_are_those_of_the_rows<layered_pools<float>, pg::emulated_bf16>({}, 6e-2);
#endif
}

// Of what tensor cores form the very numbers are squared that a sum adds: nobody knows how they round.
template <class network, class Device>
void norms_are_those_of_what_sums_add(const pg::device_options& options) {
  constexpr std::size_t records = 4;
  both<network, pg::cross_entropy, Device> it{records, emulation_order::forward, 3, options};
  const auto norms = it.evaluate(pg::l2_norms(it.on_device()));
  // Gram matrices give way.
  check_same(it.evaluate(pg::l2_norms(pg::with_method<pg::norm_method::gram>(it.on_device()))), norms, "Gram norms");
  const std::size_t width = network::input_shape.size();
  pg::tape<network> small{it.device, pg::max_batch{1}};
  for (std::size_t record = 0; record < records; ++record) {
    std::vector<float> weights(records);
    weights[record] = 1;
    const auto added = it.evaluate(pg::weighted_sum(it.on_device(), std::span<const float>{weights}));
    double squares = 0;
    for (const float each : added) squares += static_cast<double>(each) * static_cast<double>(each);
    BOOST_TEST(norms[record] == std::sqrt(squares), boost::test_tools::tolerance(0x1p-22));  // floats first
    // Alone it has the same, to the bit.
    const pg::batch<network, pg::cross_entropy> alone{std::span<const float>{it.inputs}.subspan(record * width, width),
                                                      std::span<const std::int32_t>{it.targets}.subspan(record, 1)};
    const auto gradients = pg::per_sample_gradients(it.net, pg::cross_entropy{}, alone, small);
    check_same(it.evaluate(pg::l2_norms(gradients)), {norms[record]}, "alone");
  }
}
BOOST_AUTO_TEST_CASE(with_tf32_norms_are_those_of_what_sums_add) {
  using pg::on_device::gemm_way;
  const auto& leaves = pg::on_device::facts_of<layered_blocks<float>>.outer;
  BOOST_TEST((way_of(leaves[0], pg::on_device::gemm_product::squares) == gemm_way::large));
  BOOST_TEST((way_of(leaves[1], pg::on_device::gemm_product::squares) == gemm_way::wide));
  norms_are_those_of_what_sums_add<layered_convs<float>, pg::emulated>({.tf32 = true});
  norms_are_those_of_what_sums_add<layered_blocks<float>, pg::emulated>({.tf32 = true});
}
BOOST_AUTO_TEST_CASE(with_bf16_norms_are_those_of_what_sums_add) {
  norms_are_those_of_what_sums_add<layered_convs<float>, pg::emulated_bf16>({});
  norms_are_those_of_what_sums_add<layered_blocks<float>, pg::emulated_bf16>({});
}

BOOST_AUTO_TEST_CASE(a_sample_that_is_not_finite_contributes_exactly_zero) {
  using network = layered_cnn<float>;
  both<network, pg::cross_entropy> it{7};
  std::vector<float> weights(7, 1.0F);
  weights[3] = 0;
  const auto wanted = it.evaluate(pg::weighted_sum(it.on_device(), std::span<const float>{weights}));
  const std::size_t width = network::input_shape.size();
  for (std::size_t i = 0; i < width; ++i) it.inputs[3 * width + i] = std::numeric_limits<float>::infinity();
  check_same(it.evaluate(pg::sum(pg::clip(it.on_device(), pg::l2_clip_norm{1e6}))), wanted, "flat");
}

template <class network>
void check_that_batches_and_orders_change_nothing() {
  using scalar = typename network::scalar;
  std::vector<scalar> inputs(30 * network::input_shape.size());
  std::vector<std::int32_t> targets(30);
  std::mt19937 random{1};
  std::uniform_real_distribution<scalar> uniform{-1, 1};
  for (scalar& value : inputs) value = uniform(random);
  for (std::int32_t& value : targets) value = static_cast<std::int32_t>(random() % 3);
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{0.7};
  options.noise = pg::noise_multiplier{0.8};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.4}};
  options.divisor = pg::expected_batch_size{12};
  options.learning_rate = pg::learning_rate{0.3};
  const auto trained = [&](const auto& executor, std::size_t max_batch, pg::clipping_kind clipping) {
    options.max_batch = pg::max_batch{max_batch};
    options.clipping = clipping;
    network net{executor, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    for (int step = 0; step < 2; ++step)
      trainer.step(pg::dataset<scalar, std::int32_t>{inputs, targets, network::input_shape});
    return std::vector<scalar>(net.parameters().begin(), net.parameters().end());
  };
  for (const auto clipping : {pg::clipping_kind::flat, pg::clipping_kind::per_layer}) {
    const pg::emulated device;
    const auto wanted = trained(device, 30, clipping);
    check_close(wanted, trained(pg::host{pg::threads{1}}, 16, clipping), 1e-5, "host");
    check_same(trained(device, 3, clipping), wanted, "physical batches of 3");
    check_same(trained(pg::emulated{emulation_order::reversed}, 30, clipping), wanted, "reversed");
    check_same(trained(pg::emulated{emulation_order::shuffled}, 5, clipping), wanted, "shuffled");
  }
}
BOOST_AUTO_TEST_CASE(no_bit_depends_on_orders_or_physical_batches_and_training_is_the_hosts) {
  check_that_batches_and_orders_change_nothing<layered_cnn<float>>();
  check_that_batches_and_orders_change_nothing<layered_image<float>>();
}

namespace {

template <class Network>
void check_joined(const char* what) {
  for (const emulation_order order : {emulation_order::forward, emulation_order::reversed}) {
    both<Network, pg::cross_entropy, pg::basic_device_executor<without_room<pg::on_device::emulated_device>>> it{9,
                                                                                                                 order};
    const auto check = [&](const auto& found, const auto& wanted) {
      check_close(it.evaluate(found), pg::unprotected::evaluate(it.host, wanted), tolerance<double>, what);
    };
    check(pg::losses(it.on_device()), pg::losses(it.on_host()));
    check(pg::l2_norms(it.on_device()), pg::l2_norms(it.on_host()));
    check(pg::sum(it.on_device()), pg::sum(it.on_host()));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(products_write_for_nodes_next_to_them_where_nobody_reads) {
  check_joined<layered_frozen>("frozen layers");
  check_joined<layered_trunk>("a frozen trunk");
}
BOOST_AUTO_TEST_CASE(no_gradient_goes_back_through_padding) {
  const std::vector<float> inputs(2, 0.5F);
  const std::vector<float> targets(2, 1.0F);
  const pg::batch<layered_beside, pg::mean_squared_error> batch{inputs, targets};
  const auto sum_on = [&](const auto& exec) {
    const layered_beside net{exec, pg::kaiming_uniform{5}};
    layered_beside::tape tape{exec, pg::max_batch{1}};
    return pg::unprotected::evaluate(exec,
                                     pg::sum(pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape)));
  };
  const auto wanted = sum_on(pg::host{pg::threads{1}});
  const auto found = sum_on(pg::emulated{});
  for (std::size_t i = 0; i < wanted.size(); ++i) BOOST_TEST(std::abs(wanted[i] - found[i]) < 1e-5F);
}

// Sums of a million integers are written by the first physical batch, not set to zero before it.
BOOST_AUTO_TEST_CASE(a_large_sum_begins_with_every_step) {
  using network = pg::network<pg::shape{1024}, pg::linear<1024>, pg::relu, pg::linear<4>>;
  std::vector<float> inputs(3 * 1024);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(i * 2654435761U % 97) / 97 - 0.5F;
  const std::vector<std::int32_t> targets{1, 3, 0};
  const pg::dataset<float, std::int32_t> records{inputs, targets, network::input_shape};
  const auto updates = [&](const auto& exec) {
    network net{exec, pg::kaiming_uniform{5}};
    const auto options = of_whole_sums(1, 3, 2);  // two physical batches a step
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    std::vector<std::vector<float>> all;
    for (int step = 0; step < 2; ++step) {
      trainer.step(records);
      const auto values = trainer.last_update().values();
      all.emplace_back(values.begin(), values.end());
    }
    return all;
  };
  const auto wanted = updates(pg::host{pg::threads{1}});
  const auto found = updates(pg::emulated{});
  for (std::size_t step = 0; step < 2; ++step) {
    double worst = 0;
    for (std::size_t i = 0; i < wanted[step].size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(wanted[step][i] - found[step][i])));
    }
    BOOST_TEST(worst < 1e-5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
