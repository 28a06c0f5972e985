// SPDX-License-Identifier: Apache-2.0
// tests/host/streamed_logits_test.cpp - logits that are never all there beside the same network that keeps them: the
// same numbers but for rounding, no bit of which depends on threads, and less memory
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>

#include "comparing.hpp"
#include "layers/derived.hpp"
#include "told.hpp"

namespace streamed_networks {

namespace pg = pergrad;

template <class... Layers>
using kept = pg::sequential<Layers...>;
template <class... Layers>
using again = pg::recomputed<Layers...>;

// 700 classes are three stretches, the last one short; 70 positions two runs of Gram dots.
template <class Scalar, template <class...> class Head>
using tied_model = pg::basic_network<Scalar, pg::variable(pg::token_ids(70, 700)), pg::tied<0, pg::embedding<256>>,
                                     pg::learned_positions, pg::residual<pg::layer_norm<>, pg::linear<256>, pg::tanh>,
                                     pg::layer_norm<>, Head<pg::tied<0, pg::linear<700, pg::no_bias>>>>;
/// Without lengths.
template <class Scalar, template <class...> class Head>
using tied_at_all_positions =
    pg::basic_network<Scalar, pg::token_ids(70, 700), pg::tied<0, pg::embedding<256>>, pg::learned_positions,
                      pg::layer_norm<>, Head<pg::tied<0, pg::linear<700, pg::no_bias>>>>;
/// Its own matrix, behind a recomputed block.
template <class Scalar, template <class...> class Head>
using own_model = pg::basic_network<Scalar, pg::token_ids(33, 50), pg::embedding<256>,
                                    pg::recomputed<pg::residual<pg::layer_norm<>, pg::linear<256>, pg::tanh>>,
                                    pg::layer_norm<>, Head<pg::linear<300, pg::no_bias>>>;
/// One that is not trained.
template <class Scalar, template <class...> class Head>
using frozen_model = pg::basic_network<Scalar, pg::token_ids(33, 50), pg::frozen<pg::embedding<256>>,
                                       pg::residual<pg::layer_norm<>, pg::lora<2, pg::linear<256>>, pg::tanh>,
                                       pg::frozen<pg::layer_norm<>>, Head<pg::frozen<pg::linear<300, pg::no_bias>>>>;

}  // namespace streamed_networks

namespace pergrad::inline v0_1::on_host {
namespace sn = streamed_networks;
template <>
inline constexpr std::size_t large_from<sn::tied_model<double, sn::kept>> = 0;
template <>
inline constexpr std::size_t large_from<sn::tied_model<double, sn::again>> = 0;
template <>
inline constexpr std::size_t large_from<sn::tied_model<float, sn::kept>> = 0;
template <>
inline constexpr std::size_t large_from<sn::tied_model<float, sn::again>> = 0;
template <>
inline constexpr std::size_t large_from<sn::tied_at_all_positions<float, sn::again>> = 0;
template <>
inline constexpr std::size_t large_from<sn::own_model<float, sn::kept>> = 0;
template <>
inline constexpr std::size_t large_from<sn::own_model<float, sn::again>> = 0;
template <>
inline constexpr std::size_t large_from<sn::frozen_model<float, sn::kept>> = 6000;
template <>
inline constexpr std::size_t large_from<sn::frozen_model<float, sn::again>> = 6000;
}  // namespace pergrad::inline v0_1::on_host

BOOST_AUTO_TEST_SUITE(streamed_logits)

namespace {

namespace pg = pergrad;
namespace sn = streamed_networks;
using comparing::same_bits;
using told_results::told;

template <class Network>
constexpr const auto& table_of = pg::on_host::program<Network>::table;

/// The largest difference, as a share of the largest number.
template <class Values>
double differs(const Values& found, const Values& wanted) {
  BOOST_REQUIRE_EQUAL(found.size(), wanted.size());
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])));
  }
  BOOST_REQUIRE_GT(largest, 0);
  return difference / largest;
}

template <class Kept, class Again, class Loss = pg::token_cross_entropy<>>
void compare() {
  using scalar = typename Kept::scalar;
  static_assert(!table_of<Kept>.streams);
  static_assert(table_of<Again>.streams);
  static_assert(pg::bytes_at_work<Again> < pg::bytes_at_work<Kept>);
  constexpr double most = 1000 * std::numeric_limits<scalar>::epsilon();
  const told<Kept, Loss> wanted{2};
  const told<Again, Loss> alone{1};
  const auto near = [&](const auto& found, const auto& expected) { BOOST_TEST(differs(found, expected) < most); };
  near(alone.losses, wanted.losses);
  near(alone.norms, wanted.norms);
  near(alone.sum, wanted.sum);
  near(alone.clipped, wanted.clipped);
  near(alone.means, wanted.means);
  // Who asks for gradients as such, or for the second pass, gets them of logits that are all there.
  near(alone.formed, wanted.formed);
  near(alone.ghost, wanted.ghost);
  near(alone.rows, wanted.rows);
  near(alone.dots, wanted.dots);
  for (const std::size_t threads : {2U, 3U}) {
    const told<Again, Loss> found{threads};
    BOOST_TEST(same_bits(found.losses, alone.losses));
    BOOST_TEST(same_bits(found.norms, alone.norms));
    BOOST_TEST(same_bits(found.sum, alone.sum));
    BOOST_TEST(same_bits(found.clipped, alone.clipped));
    BOOST_TEST(same_bits(found.trained[0], alone.trained[0]));
    BOOST_TEST(same_bits(found.trained[1], alone.trained[1]));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_matrix_that_is_looked_up_besides) {
  compare<sn::tied_model<double, sn::kept>, sn::tied_model<double, sn::again>>();
  compare<sn::tied_model<float, sn::kept>, sn::tied_model<float, sn::again>>();
}
BOOST_AUTO_TEST_CASE(a_matrix_of_its_own) {
  compare<sn::own_model<float, sn::kept>, sn::own_model<float, sn::again>>();
}
BOOST_AUTO_TEST_CASE(a_matrix_that_is_not_trained) {
  compare<sn::frozen_model<float, sn::kept>, sn::frozen_model<float, sn::again>>();
}

// Language models: who asks for it, and whose logits are very many.
template <std::size_t Positions, class Tuning>
using one_block = pg::models::gpt2<Positions, 1, 768, 12, 50'257, Tuning>;
static_assert(!table_of<one_block<128, pg::models::everything>>.streams);
static_assert(table_of<one_block<128, pg::models::recomputed_logits<>>>.streams);
static_assert(table_of<one_block<128, pg::models::recomputed_logits<pg::models::lora_on<8, "c_attn">>>>.streams);
static_assert(table_of<one_block<1024, pg::models::recomputed_blocks<>>>.streams);
static_assert(pg::bytes_at_work<one_block<1024, pg::models::everything>> < std::size_t{150} << 20);
constexpr pg::models::llama_size small_llama{
    .positions = 64, .blocks = 1, .features = 2048, .heads = 8, .key_value_heads = 2, .feed_forward = 1024};
static_assert(table_of<pg::models::llama<small_llama, pg::models::recomputed_logits<>>>.streams);

namespace {

/// Seven samples of a network, of which one asks for what it likes.
template <class Network>
struct samples {
  using scalar = typename Network::scalar;
  using loss = pg::token_cross_entropy<>;
  static constexpr std::size_t count = 7;
  pg::host exec{pg::threads{1}};
  Network net{exec, pg::layer_default{3}};
  std::vector<std::int32_t> inputs = std::vector<std::int32_t>(count * Network::input_shape.size());
  std::vector<std::int32_t> targets = std::vector<std::int32_t>(count * Network::output_shape.e0);
  pg::tape<Network> tape{exec, pg::max_batch{count}};

  samples() {
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<std::int32_t>(i * i % 49);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      targets[i] = i % 5 == 0 ? -100 : static_cast<std::int32_t>(i * 7 % Network::output_shape.e1);
    }
  }
  void evaluate(auto&&... wanted) {
    const pg::batch<Network, loss> batch{inputs, targets};
    const auto g = pg::per_sample_gradients(net, loss{}, batch, tape);
    pg::unprotected::evaluate_into(exec, wanted(g)...);
  }
  /// The norm of one sample's clipped gradient, from what is summed.
  [[nodiscard]] double clipped_norm(std::size_t sample, double clip) {
    const auto one = [&](const auto& of) {
      return std::span{of}.subspan(sample * of.size() / count, of.size() / count);
    };
    const pg::batch<Network, loss> batch{one(inputs), one(targets)};
    std::vector<scalar> sum(Network::parameter_count);
    pg::unprotected::evaluate_into(
        exec, pg::assign(std::span{sum}, pg::sum(pg::clip(pg::per_sample_gradients(net, loss{}, batch, tape),
                                                          pg::l2_clip_norm{clip}))));
    double squared = 0;
    for (const scalar each : sum) squared += static_cast<double>(each) * static_cast<double>(each);
    return std::sqrt(squared);
  }
  /// Where logits would lie of one thread's tile, if they were there.
  [[nodiscard]] std::span<scalar> place_of_logits() {
    using memory = pg::on_host::working_memory<Network>;
    auto* const made = tape.template memory<memory>();
    BOOST_REQUIRE(made != nullptr);
    return made->workspaces.span().subspan(static_cast<std::size_t>(table_of<Network>.touched));
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(logits_have_memory_only_if_somebody_wants_them) {
  samples<sn::own_model<float, sn::again>> few;
  std::ranges::fill(few.place_of_logits(), 77.0F);
  const auto is_untouched = [&] {
    return std::ranges::all_of(few.place_of_logits(), [](float value) { return value == 77.0F; });
  };
  std::vector<double> losses(few.count);
  std::vector<double> norms(few.count);
  std::vector<float> sum(few.net.parameters().size());
  few.evaluate([&](const auto& g) { return pg::assign(std::span{losses}, pg::losses(g)); },
               [&](const auto& g) { return pg::assign(std::span{norms}, pg::l2_norms(g)); },
               [&](const auto& g) { return pg::assign(std::span{sum}, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))); });
  BOOST_TEST(is_untouched());
  few.evaluate([&](const auto& g) { return pg::assign(std::span{sum}, pg::sum(g)); });
  BOOST_TEST(is_untouched());
  constexpr pg::shape out = sn::own_model<float, sn::again>::output_shape;
  std::vector<float> outputs(few.count * out.size());
  std::vector<double> same(few.count);
  few.evaluate([&](const auto& g) { return pg::assign(std::span{outputs}, pg::outputs(g)); },
               [&](const auto& g) { return pg::assign(std::span{same}, pg::losses(g)); });
  BOOST_TEST(!is_untouched());
  for (std::size_t b = 0; b < few.count; ++b) {
    double expected = 0;
    std::size_t counted = 0;
    for (std::size_t t = 0; t < out.e0; ++t) {
      const std::int32_t target = few.targets[b * out.e0 + t];
      if (target < 0) continue;
      const std::span y = std::span{outputs}.subspan((b * out.e0 + t) * out.e1, out.e1);
      double exponentials = 0;
      for (const float each : y) exponentials += std::exp(static_cast<double>(each));
      expected += std::log(exponentials) - static_cast<double>(y[static_cast<std::size_t>(target)]);
      ++counted;
    }
    BOOST_TEST(losses[b] == expected / static_cast<double>(counted), boost::test_tools::tolerance(1e-6));
    BOOST_TEST(same[b] == losses[b], boost::test_tools::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(no_clipped_gradient_is_longer_than_the_clip_norm) {
  samples<sn::own_model<float, sn::again>> own;
  samples<sn::tied_at_all_positions<float, sn::again>> tied;
  for (const double clip : {1e-3, 0.1}) {
    for (std::size_t i = 0; i < own.count; ++i) {
      for (const double norm : {own.clipped_norm(i, clip), tied.clipped_norm(i, clip)}) {
        BOOST_TEST(norm <= clip);
        BOOST_TEST(norm > 0.98 * clip);
      }
    }
  }
}

// A loss that derives from one that takes stretches is not that loss: its own words are heard.
BOOST_AUTO_TEST_CASE(a_loss_that_derives_has_its_own_words) {
  using network = sn::own_model<float, sn::again>;
  samples<network> few;
  const auto losses_and_norms = [&]<class Loss>(Loss loss) {
    std::vector<double> found(2 * few.count);
    const pg::batch<network, Loss> batch{few.inputs, few.targets};
    const auto g = pg::per_sample_gradients(few.net, loss, batch, few.tape);
    pg::unprotected::evaluate_into(few.exec, pg::assign(std::span{found}.first(few.count), pg::losses(g)),
                                   pg::assign(std::span{found}.last(few.count), pg::l2_norms(g)));
    return found;
  };
  std::vector<double> wanted = losses_and_norms(pg::token_cross_entropy<>{});
  for (double& each : wanted) each *= 2;
  BOOST_TEST(differs(losses_and_norms(derived::twice_the_loss{}), wanted) < 1e-5);
}

BOOST_AUTO_TEST_CASE(ignored_positions_have_no_gradient_and_a_sample_beyond_all_numbers_no_share) {
  using network = sn::own_model<float, sn::again>;
  samples<network> few;
  constexpr std::size_t positions = network::output_shape.e0;
  std::fill_n(few.targets.begin(), positions, -100);
  std::fill_n(few.inputs.begin() + positions, positions, 49);  // nobody else has it
  few.net.parameters()[std::size_t{49} * 256] = std::numeric_limits<float>::infinity();
  std::vector<double> losses(few.count);
  std::vector<double> norms(few.count);
  std::vector<float> sum(network::parameter_count);
  few.evaluate([&](const auto& g) { return pg::assign(std::span{losses}, pg::losses(g)); },
               [&](const auto& g) { return pg::assign(std::span{norms}, pg::l2_norms(g)); },
               [&](const auto& g) { return pg::assign(std::span{sum}, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))); });
  BOOST_TEST(losses[0] == 0);
  BOOST_TEST(norms[0] == 0);
  BOOST_TEST(!std::isfinite(losses[1]));
  BOOST_TEST(!std::isfinite(norms[1]));
  BOOST_TEST(std::isfinite(norms[2]));
  double squared = 0;
  for (const float each : sum) squared += static_cast<double>(each) * static_cast<double>(each);
  BOOST_TEST(std::sqrt(squared) > 0.1);
  BOOST_TEST(std::sqrt(squared) <= 0.5 * (1 + 1e-6));  // of five samples
}

BOOST_AUTO_TEST_SUITE_END()
