// SPDX-License-Identifier: Apache-2.0
// tests/certify/sequence_test.cpp - recurrent layers, attention and what is left of docs/layers.md against their bounds
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "search.hpp"

BOOST_AUTO_TEST_SUITE(certify_sequences)

namespace {

namespace pg = pergrad;
using certify_tests::nearest;

}  // namespace

BOOST_AUTO_TEST_CASE(recurrent_layers) {
  using namespace pg;
  nearest<network<shape{5, 3}, rnn<5, relu_cell, one_bias>, linear<3>, mean_over_positions>, cross_entropy>(
      "rnn of relu");
  nearest<network<shape{3, 3}, lstm<4, last_output>, linear<3>>, cross_entropy>("lstm");
  nearest<network<shape{3, 3}, gru<4, last_output, no_bias>, linear<3>>, cross_entropy>("gru");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{4, 3}, rnn<4, mean_output>, linear<3>>, cross_entropy>("rnn");
  nearest<network<shape{4, 3}, gru<4, bidirectional, mean_output>, linear<3>>, cross_entropy>("gru, bidirectional");
  nearest<network<shape{4, 3}, lstm<4, layers<2>, mean_output>, linear<3>>, cross_entropy>("lstm, two layers");
  nearest<network<shape{4, 3}, with_state<lstm<3>, sequence<linear<4>>, state<flatten, slice<1, 6>, linear<6>>>,
                  with_state<gru<3>, sequence<>, state<flatten, slice<2, 3>>>,
                  with_state<rnn<3, relu_cell, last_output>, sequence<>, state<flatten, slice<2, 3>>>, linear<3>>,
          cross_entropy>("with_state");
#endif
}

BOOST_AUTO_TEST_CASE(attention) {
  using namespace pg;
  nearest<network<shape{4, 4}, multihead_attention<2, kv_bias>,
                  cross_attention<1, queries<linear<4>>, memory<linear<3>>, causal>, mean_over_positions, linear<3>>,
          cross_entropy>("multihead_attention, cross_attention");
#ifdef PERGRAD_LONG_TESTS
  nearest<
      network<shape{3, 4}, linear<16, no_bias>, scaled_dot_product_attention<4, causal, key_value_heads<2>, rotary<>>,
              linear<24>, scaled_dot_product_attention<2, attention_dropout<0.1>>, mean_over_positions, linear<3>>,
      cross_entropy>("scaled_dot_product_attention");
  nearest<
      network<shape{4, 4}, multihead_attention<2, no_bias, attention_dropout<0.25>>, mean_over_positions, linear<3>>,
      cross_entropy>("multihead_attention");
  nearest<
      network<shape{4, 4}, cross_attention<2, queries<take_positions<0, 2>>, memory<>>, mean_over_positions, linear<3>>,
      cross_entropy>("cross_attention");
  nearest<network<shape{3, 4}, transformer_encoder_layer<2, 5, dropout_rate<0.1>>,
                  transformer_encoder_layer<1, 4, pre_norm, gelu_activation>, mean_over_positions, linear<3>>,
          cross_entropy>("transformer_encoder_layer");
#endif
}

BOOST_AUTO_TEST_CASE(adapters_sorted_groups_and_binary_focal) {
  using namespace pg;
  nearest<network<shape{6}, lora<2, linear<8>, std::ratio<4>>, group_sort<>, linear<6>, group_sort<3>, linear<3>>,
          binary_focal_with_logits<>>("lora, group_sort, binary_focal_with_logits");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{2, 4, 4}, conv2d<4, 3>, group_sort<4>, flatten, linear<3>>, cross_entropy>("group_sort");
  nearest<network<shape{6}, linear<2>>, binary_focal_with_logits<0.5, 0.75>>("binary_focal_with_logits");
#endif
}

// Training brings weights of all of them within limits.
BOOST_AUTO_TEST_CASE(their_weights_are_projected) {
  using net_type = pg::network<pg::shape{3, 4}, pg::into_ball<2.0>, pg::transformer_encoder_layer<2, 5>, pg::gru<4>,
                               pg::mean_over_positions, pg::lora<2, pg::linear<4>>, pg::group_sort<>, pg::linear<3>>;
  const pg::host executor{pg::threads{1}};
  auto net = certify_tests::random_network<net_type>(executor, 4);
  for (float& each : net.parameters()) each *= 3;
  const auto training = pg::certified_training_of<net_type>(pg::cross_entropy{}, pg::l2_clip_norm{200.0});
  BOOST_TEST(pg::certify(net, pg::cross_entropy{}).bound > 200.0);
  const double proven = pg::detail::proof_maker::prove(training, net);
  BOOST_TEST(proven <= 200.0);
  BOOST_TEST(proven >= 2.0);
  BOOST_TEST(pg::certify(net, pg::cross_entropy{}).bound <= proven);
}

// A mean over few positions has a larger gradient than one over all of them.
BOOST_AUTO_TEST_CASE(bounds_are_of_the_shortest_sample) {
  const pg::certified::roundoff rounds{0x1p-53};
  const pg::shape out = pg::variable(pg::shape{16, 4});
  using pg::certified::loss_bound_of_any_length;
  BOOST_TEST(loss_bound_of_any_length<pg::huber<>>(out, rounds).value() >= 0.5);
  BOOST_TEST(loss_bound_of_any_length<pg::huber<>>(out, rounds).value() < 0.51);
  BOOST_TEST(loss_bound_of_any_length<pg::huber<>>(pg::shape{16, 4}, rounds).value() < 0.126);

  using network = pg::basic_network<double, pg::variable(pg::shape{16, 1}), pg::linear<1>>;
  const double bound = pg::certified::loss_bound_of<network, pg::binary_cross_entropy_with_logits>().value();
  // With logits of 0 and targets of 1 the gradient of the only position is -1/2, of the bias too.
  const pg::host exec{pg::threads{1}};
  const network net{exec, pg::zeros{}};
  network::tape tape{exec, pg::max_batch{1}};
  const std::vector<double> inputs(16, 0.0);
  const std::vector<double> targets(16, 1.0);
  const std::vector<std::uint32_t> lengths{1};
  const pg::batch<network, pg::binary_cross_entropy_with_logits> batch{inputs, targets, lengths};
  const auto norms = pg::unprotected::evaluate(
      exec, pg::l2_norms(pg::per_sample_gradients(net, pg::binary_cross_entropy_with_logits{}, batch, tape)));
  BOOST_TEST(std::abs(norms[0] - 0.5) < 1e-12);
  BOOST_TEST(bound >= 1.0);
}

BOOST_AUTO_TEST_SUITE_END()
