// SPDX-License-Identifier: Apache-2.0
// tests/cuda/tiled_training_test.cpp - private training on texts of varying length: tables, recurrent layers, ties and
// dropout end where the host ends, whatever the plan, the physical batches and the order of threads
#include <algorithm>

#include "device_fixture.hpp"

namespace tiled_training {

namespace pg = pergrad;

template <std::size_t Positions>
using reader = pg::network<pg::variable(pg::token_ids(Positions, 12)), pg::embedding<4, pg::padding_idx<3>>,
                           pg::frozen<pg::linear<6>>, pg::dropout<1.0 / 4>, pg::tied<0, pg::linear<6>>, pg::lstm<6>,
                           pg::tied<0, pg::linear<6>>, pg::mean_over_positions, pg::linear<3>>;

/// So many elements a sample that several blocks share it, also where masks are drawn and where it ends somewhere.
using long_reader =
    pg::network<pg::variable(pg::token_ids(90, 12)), pg::embedding<48, pg::padding_idx<3>>, pg::dropout<1.0 / 4>,
                pg::transformer_encoder_layer<2, 8, pg::dropout_rate<0.1>>, pg::linear<48>, pg::gelu,
                pg::residual<pg::linear<48>, pg::relu>, pg::mean_over_positions, pg::linear<3>>;

}  // namespace tiled_training

namespace pergrad::inline v0_1::on_device {
template <>
inline constexpr plan_kind plan_of<tiled_training::reader<6>> = plan_kind::layered;
}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_tiled_training)

namespace {

using namespace device_fixture;
using tiled_training::long_reader;
using tiled_training::reader;

template <class Network>
struct texts {
  std::vector<std::int32_t> ids, targets;
  std::vector<std::uint32_t> lengths;
  texts() {
    std::mt19937 random{1};
    for (int i = 0; i < 40; ++i) {
      for (std::size_t t = 0; t < Network::input_shape.e0; ++t) ids.push_back(static_cast<std::int32_t>(random() % 12));
      targets.push_back(static_cast<std::int32_t>(random() % 3));
      lengths.push_back(static_cast<std::uint32_t>(1 + random() % Network::input_shape.e0));
    }
  }
  [[nodiscard]] pg::dataset<std::int32_t, std::int32_t> view() const {
    return {ids, targets, Network::input_shape, 1, lengths};
  }
};

template <class Network, class Executor>
std::vector<float> trained(const Executor& executor, pg::optimizer_kind optimizer, std::size_t max_batch) {
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{0.7};
  options.noise = pg::noise_multiplier{0.8};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.4}};
  options.divisor = pg::expected_batch_size{16};
  options.learning_rate = pg::learning_rate{optimizer == pg::optimizer_kind::adam ? 0.02 : 0.3};
  options.optimizer = optimizer;
  options.max_batch = pg::max_batch{max_batch};
  options.capacity = pg::record_capacity{0};  // sums of integers on the host, too
  const texts<Network> data;
  Network net{executor, pg::kaiming_uniform{5}};
  const std::vector<float> before(net.parameters().begin(), net.parameters().end());
  pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
  for (int step = 0; step < 3; ++step) trainer.step(data.view());
  std::vector<float> after(net.parameters().begin(), net.parameters().end());
  std::size_t moved = 0;
  constexpr std::size_t width = std::is_same_v<Network, long_reader> ? 48 : 4;
  for (std::size_t i = 0; i < 12 * width; ++i) moved += before[i] != after[i] ? 1U : 0U;
  BOOST_TEST(moved == 11U * width);  // all rows of the table but that of the padding id
  return after;
}

template <class Network>
void check(const std::string& what) {
  for (const auto optimizer : {pg::optimizer_kind::sgd, pg::optimizer_kind::adam}) {
    const auto wanted = trained<Network>(pg::emulated{}, optimizer, 40);
    check_close(wanted, trained<Network>(pg::host{pg::threads{1}}, optimizer, 16), 1e-5, what + ": host");
    check_same(trained<Network>(pg::emulated{emulation_order::shuffled}, optimizer, 7), wanted,
               what + ": batches of 7");
    check_same(trained<Network>(pg::emulated{emulation_order::reversed}, optimizer, 40), wanted, what + ": reversed");
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_fused_network_ends_where_the_host_ends) { check<reader<5>>("fused"); }
BOOST_AUTO_TEST_CASE(a_layered_network_ends_where_the_host_ends) { check<reader<6>>("layered"); }

BOOST_AUTO_TEST_CASE(blocks_that_share_a_text_end_where_the_host_ends) {
  namespace dev = pg::on_device;
  const auto is_shared = [](dev::node_kind kind, bool lengths) {
    return std::ranges::any_of(dev::facts_of<long_reader>.ops, [&](const dev::op_row& row) {
      const bool is_it = kind == dev::node_kind::tiled ? row.parts > 1 : dev::stretches_of(row) > 1;
      return row.kind == kind && is_it && (row.out_lengths >= 0) == lengths;
    });
  };
  static_assert(dev::plan_of<long_reader> == dev::plan_kind::layered);
  BOOST_TEST(is_shared(dev::node_kind::tiled, true));
  BOOST_TEST(is_shared(dev::node_kind::elementwise, true));
  BOOST_TEST(is_shared(dev::node_kind::branch_sum, true));
  const auto wanted = trained<long_reader>(pg::emulated{}, pg::optimizer_kind::sgd, 40);
  check_close(wanted, trained<long_reader>(pg::host{pg::threads{1}}, pg::optimizer_kind::sgd, 16), 1e-5, "host");
  check_same(trained<long_reader>(pg::emulated{emulation_order::shuffled}, pg::optimizer_kind::sgd, 7), wanted,
             "batches of 7");
}

BOOST_AUTO_TEST_CASE(predictions_of_texts_are_the_hosts) {
  const pg::host host{pg::threads{1}};
  const reader<5> net{host, pg::kaiming_uniform{5}};
  const texts<reader<5>> data;
  const pg::public_records records{data.ids};
  check_close(pg::predict(pg::emulated{}, net, records, data.lengths), pg::predict(host, net, records, data.lengths),
              1e-5, "predictions");
}

BOOST_AUTO_TEST_SUITE_END()
