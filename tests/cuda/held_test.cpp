// SPDX-License-Identifier: Apache-2.0
// tests/cuda/held_test.cpp - a block that holds a sample has the bits of launches layer by layer
#include <string>
#include <vector>

#include <pergrad/cuda/run/describe.hpp>

#include "device_fixture.hpp"

namespace {

using namespace device_fixture;

/// Counts samples' kernels that hold them.
template <class Base>
struct counting : Base {
  using Base::Base;
  template <pg::on_device::kernel Kernel>
  void launch(const Kernel& kernel, int blocks) {
    if constexpr (requires { kernel.memory.products; }) ++held;
    Base::launch(kernel, blocks);
  }
  inline static int held = 0;
};
template <class Base>
using poor = counting<without_room<Base>>;

/// The usual small network: padding and strides, overlapping pools, a hidden layer.
template <class Scalar>
using usual = pg::basic_network<Scalar, pg::shape{1, 16, 15}, pg::conv2d<5, 4, pg::padding<2>, pg::stride<2>>, pg::tanh,
                                pg::max_pool2d<2, pg::stride<1>>, pg::conv2d<7, 3, pg::stride<2>>, pg::tanh,
                                pg::max_pool2d<2, pg::stride<1>>, pg::flatten, pg::linear<11>, pg::tanh, pg::linear<3>>;
/// Groups, dilation, branches, means, no biases, and a convolution of one position whose view is not its input.
template <class Scalar>
using branched =
    pg::basic_network<Scalar, pg::shape{4, 9, 8}, pg::conv2d<6, 3, pg::padding<1>, pg::groups<2>>, pg::relu,
                      pg::residual<pg::conv2d<6, 3, pg::padding<2>, pg::dilation<2>, pg::no_bias>, pg::sigmoid>,
                      pg::residual<pg::conv2d<5, 1>, pg::projection<pg::conv2d<5, 3, pg::padding<1>>>>,
                      pg::avg_pool2d<3, pg::stride<2>, pg::padding<1>>, pg::frozen<pg::conv2d<9, 2>>, pg::gelu,
                      pg::conv2d<70, 5, pg::padding<1>, pg::stride<2, 4>>, pg::flatten, pg::linear<67>, pg::sigmoid,
                      pg::linear<4>>;
/// Strides beyond the window, a transposed convolution, features inside.
template <class Scalar>
using strided =
    pg::basic_network<Scalar, pg::shape{3, 13, 11}, pg::conv2d<4, 2, pg::stride<3, 2>>, pg::tanh,
                      pg::conv_transpose2d<5, 3, pg::stride<2>>, pg::tanh, pg::reshape<pg::shape{5, 99}>, pg::transpose,
                      pg::linear<6>, pg::relu, pg::transpose, pg::reshape<pg::shape{6, 9, 11}>,
                      pg::conv2d<6, 5, pg::padding<3>, pg::stride<4, 2>>, pg::flatten, pg::linear<3>>;

/// Fully connected: rows that are no multiple of four numbers, more of them than threads, tiles with edges.
template <class Scalar>
using dense = pg::basic_network<Scalar, pg::shape{37}, pg::linear<300>, pg::tanh,
                                pg::residual<pg::linear<70>, pg::relu, pg::linear<300, pg::no_bias>>, pg::sigmoid,
                                pg::frozen<pg::linear<41>>, pg::gelu, pg::linear<5>>;
/// Rows of which four numbers are brought at once.
template <class Scalar>
using even =
    pg::basic_network<Scalar, pg::shape{48}, pg::linear<128>, pg::relu, pg::linear<96>, pg::tanh, pg::linear<4>>;

}  // namespace

namespace pergrad::inline v0_1::on_device {

template <>
inline constexpr plan_kind plan_of<usual<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<usual<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<branched<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<branched<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<strided<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<strided<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<dense<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<dense<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<even<float>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<even<double>> = plan_kind::layered;

}  // namespace pergrad::inline v0_1::on_device

namespace {

/// Losses and norms of some records, and parameters behind some private steps.
template <class Network, class Device>
std::vector<typename Network::scalar> results(emulation_order order, const pg::device_options& choices) {
  both<Network, pg::cross_entropy, pg::basic_device_executor<Device>> it{40, order, 3, choices};
  std::vector<typename Network::scalar> all;
  for (const auto& values : {it.evaluate(pg::losses(it.on_device())), it.evaluate(pg::l2_norms(it.on_device()))}) {
    for (const double value : values) all.push_back(static_cast<typename Network::scalar>(value));
  }
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{0.7};
  options.noise = pg::noise_multiplier{0.8};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{20};
  options.learning_rate = pg::learning_rate{0.3};
  options.max_batch = pg::max_batch{7};
  pg::dp_sgd trainer{it.device, it.net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
  for (int step = 0; step < 3; ++step) {
    trainer.step(pg::dataset<typename Network::scalar, std::int32_t>{it.inputs, it.targets, Network::input_shape});
  }
  const auto parameters = it.net.parameters();
  all.insert(all.end(), parameters.begin(), parameters.end());
  return all;
}

template <class Network, class Base>
void check(const std::string& what, const pg::device_options& choices = {}) {
  counting<Base>::held = poor<Base>::held = 0;
  const auto wanted = results<Network, poor<Base>>(emulation_order::forward, choices);
  BOOST_TEST(poor<Base>::held == 0);
  for (const emulation_order order :
       {emulation_order::forward, emulation_order::reversed, pg::on_device::shuffled_order(3)}) {
    check_same(results<Network, counting<Base>>(order, choices), wanted, what.c_str());
  }
  BOOST_TEST(counting<Base>::held > 0, what);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_held)

BOOST_AUTO_TEST_CASE(a_block_that_holds_a_sample_has_the_bits_of_launches_layer_by_layer) {
  using plain = pg::on_device::emulated_device;
  check<usual<float>, plain>("usual, float");
  check<usual<double>, plain>("usual, double");
  check<branched<float>, plain>("branched, float");
  check<strided<float>, plain>("strided, float");
  check<strided<double>, plain>("strided, double");
  check<dense<float>, plain>("dense, float");
  check<dense<double>, plain>("dense, double");
  check<even<float>, plain>("even, float");
  check<even<double>, plain>("even, double");
}

BOOST_AUTO_TEST_CASE(so_has_one_that_rounds_what_it_stores) {
  check<usual<float>, pg::on_device::emulated_device>("usual, TF32", {.tf32 = true});
  check<usual<float>, pg::on_device::emulated_device_bf16>("usual, BF16");
  check<strided<float>, pg::on_device::emulated_device_bf16>("strided, BF16");
  check<even<float>, pg::on_device::emulated_device_bf16>("even, BF16");
  check<dense<float>, pg::on_device::emulated_device>("dense, TF32", {.tf32 = true});
}

namespace {

/// Losses, norms and clipped sums are the host's, on blocks that hold samples and layer by layer.
template <class Network>
void check_against_host(const char* what) {
  const auto compare = [&]<class Device>(std::type_identity<Device>) {
    for (const emulation_order order :
         {emulation_order::forward, emulation_order::reversed, pg::on_device::shuffled_order(1)}) {
      both<Network, pg::cross_entropy, pg::basic_device_executor<Device>> it{6, order};
      const auto found = [&](const auto& executor, const auto& gradients) {
        std::vector<double> all = pg::unprotected::evaluate(executor, pg::losses(gradients));
        const auto norms = pg::unprotected::evaluate(executor, pg::l2_norms(gradients));
        all.insert(all.end(), norms.begin(), norms.end());
        const auto sum = pg::unprotected::evaluate(executor, pg::sum(pg::clip(gradients, pg::l2_clip_norm{0.3})));
        for (const auto value : sum) all.push_back(static_cast<double>(value));
        return all;
      };
      check_close(found(it.device, it.on_device()), found(it.host, it.on_host()), 1e-5, what);
    }
  };
  const int before = counting<pg::on_device::emulated_device>::held;
  compare(std::type_identity<counting<pg::on_device::emulated_device>>{});
  BOOST_TEST(counting<pg::on_device::emulated_device>::held > before, what);
  compare(std::type_identity<poor<pg::on_device::emulated_device>>{});
}

/// What a pool of maxima computes along with itself reads what a frozen layer made, which nobody needs later: the
/// gradient's place is exactly the value's.
using behind_frozen =
    pg::network<pg::shape{3, 16, 16}, pg::conv2d<16, 3, pg::padding<1>>, pg::frozen<pg::conv2d<16, 3, pg::padding<1>>>,
                pg::tanh, pg::max_pool2d<2>, pg::flatten, pg::linear<10>>;
/// What a function made that derives from its output, which is asked for later.
using behind_function = pg::network<pg::shape{3, 16, 16}, pg::conv2d<16, 3, pg::padding<1>>, pg::sigmoid, pg::tanh,
                                    pg::max_pool2d<2>, pg::flatten, pg::linear<10>>;
using behind_branches =
    pg::network<pg::shape{3, 16, 16},
                pg::residual<pg::conv2d<16, 3, pg::padding<1>>, pg::projection<pg::conv2d<16, 1>>>, pg::relu,
                pg::max_pool2d<2>, pg::conv2d<8, 3>, pg::relu, pg::flatten, pg::linear<10>>;
/// Products of one position that are no whole matrix.
using transposed_point = pg::network<pg::shape{128}, pg::linear<128>, pg::tanh, pg::reshape<pg::shape{128, 1, 1}>,
                                     pg::conv_transpose2d<16, 3>, pg::flatten, pg::linear<10>>;
using grouped_point = pg::network<pg::shape{128}, pg::linear<128>, pg::tanh, pg::reshape<pg::shape{128, 1}>,
                                  pg::conv1d<64, 1, pg::groups<4>>, pg::flatten, pg::linear<10>>;
/// The only window sees the first of its input's pixels alone.
using shorter = pg::network<pg::shape{96}, pg::linear<100>, pg::tanh, pg::reshape<pg::shape{1, 100}>,
                            pg::conv1d<64, 97, pg::stride<8>>, pg::flatten, pg::linear<10>>;

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_held_is_what_the_host_computes) {
  check_against_host<behind_frozen>("behind a frozen layer");
  check_against_host<behind_function>("behind a function");
  check_against_host<behind_branches>("behind branches");
  check_against_host<transposed_point>("a transposed convolution of one position");
  check_against_host<grouped_point>("groups at one position");
  check_against_host<shorter>("a window that does not see all");
}

// Nothing that is counted for them overflows.
BOOST_AUTO_TEST_CASE(very_wide_networks_compile) {
  using wide = pg::network<pg::shape{4}, pg::linear<40'000>, pg::relu, pg::linear<40'000>, pg::relu, pg::linear<10>>;
  static_assert(pg::on_device::facts_of<wide>.held_products == 0);
  using padded = pg::network<pg::shape{500, 2, 2}, pg::conv2d<1, 2, pg::padding<1500>, pg::stride<40>>, pg::flatten,
                             pg::linear<10>>;
  static_assert(pg::on_device::facts_of<padded>.held_products == 0);
  // Nor are its windows' elements gone through by the compiler.
  using window = pg::network<pg::shape{1, 128, 128}, pg::conv2d<8, 128>, pg::flatten, pg::relu, pg::linear<10>>;
  static_assert(pg::on_device::facts_of<window>.layered);
}

BOOST_AUTO_TEST_CASE(a_description_says_so) {
  const pg::emulated exec;
  const std::string text = pg::describe<usual<float>>(exec);
  BOOST_TEST_MESSAGE(text);
  BOOST_TEST(text.find("held sample kernel") != std::string::npos);
  BOOST_TEST(text.find("a block holds a sample") != std::string::npos);
  const pg::basic_device_executor<poor<pg::on_device::emulated_device>> other;
  BOOST_TEST(pg::describe<usual<float>>(other).find("held") == std::string::npos);
  // No thread takes the loss of so many outputs.
  using many = pg::network<pg::shape{48}, pg::linear<128>, pg::tanh, pg::linear<96>, pg::relu, pg::linear<40>>;
  BOOST_TEST(pg::describe<many>(exec).find("held") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(networks_that_are_too_large_or_have_other_layers_are_not_held) {
  using pg::on_device::facts_of;
  using mnist = pg::network<pg::shape{1, 28, 28}, pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::tanh,
                            pg::max_pool2d<2, pg::stride<1>>, pg::conv2d<32, 4, pg::stride<2>>, pg::tanh,
                            pg::max_pool2d<2, pg::stride<1>>, pg::flatten, pg::linear<32>, pg::tanh, pg::linear<10>>;
  static_assert(facts_of<mnist>.held_products > 0);
  using large = pg::network<pg::shape{3, 32, 32}, pg::conv2d<64, 3, pg::padding<1>>, pg::relu, pg::max_pool2d<4>,
                            pg::flatten, pg::linear<10>>;
  static_assert(facts_of<large>.layered && facts_of<large>.held_products == 0);
  using perceptron = pg::network<pg::shape{784}, pg::linear<128>, pg::relu, pg::linear<256>, pg::relu, pg::linear<10>>;
  static_assert(facts_of<perceptron>.held_products > 0 && facts_of<perceptron>.held_together == 4);
  static_assert(pg::on_device::held_bytes(facts_of<perceptron>, 784, 4) <= 99 << 10);   // a GeForce card's block
  using wide = pg::network<pg::shape{784}, pg::linear<512>, pg::relu, pg::linear<10>>;  // weights are 1.6 MB
  static_assert(facts_of<wide>.layered && facts_of<wide>.held_products == 0);
  // All of a launch's blocks read them.
  const pg::emulated exec;
  BOOST_TEST(pg::describe<perceptron>(exec, pg::max_batch{256}).find("held") != std::string::npos);
  BOOST_TEST(pg::describe<perceptron>(exec, pg::max_batch{2048}).find("held") == std::string::npos);
  using normed = pg::network<pg::shape{1, 20, 20}, pg::conv2d<16, 4, pg::stride<2>>, pg::group_norm<4>, pg::relu,
                             pg::flatten, pg::linear<10>>;
  static_assert(facts_of<normed>.layered && facts_of<normed>.held_products == 0);
}

BOOST_AUTO_TEST_SUITE_END()
