// SPDX-License-Identifier: Apache-2.0
// tests/cuda/elementwise_test.cpp - activations with constants, and losses with options, on a device as on the host
#include <stdexcept>
#include <string>

#include "device_fixture.hpp"

BOOST_AUTO_TEST_SUITE(cuda_elementwise)

namespace {

using namespace device_fixture;

using activated = pg::basic_network<double, pg::shape{7}, pg::linear<9>, pg::leaky_relu<0.2>, pg::linear<8>, pg::silu,
                                    pg::linear<6>, pg::elu<0.7>, pg::gelu_tanh, pg::linear<3>>;

}  // namespace

BOOST_AUTO_TEST_CASE(activations_and_losses_are_the_hosts) {
  compare_gradients<activated, pg::cross_entropy_with_label_smoothing<0.1>>("label smoothing");
  compare_gradients<activated, pg::focal<>>("focal");
  compare_gradients<activated, pg::huber<0.5>>("huber");
  compare_gradients<activated, pg::binary_focal_with_logits<>>("binary focal");
}

// What their kernels do not know yet, a run says instead of leaving it out.
BOOST_AUTO_TEST_CASE(what_devices_lack_is_refused) {
  using network = pg::network<pg::shape{3}, pg::linear<2>>;
  const pg::emulated device;
  network net{device, pg::zeros{}};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1};
  options.noise = pg::noise_multiplier{1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{2};
  options.learning_rate = pg::learning_rate{0.1};
  BOOST_CHECK_NO_THROW((pg::dp_sgd{device, net, pg::cross_entropy{}, options}));
  const auto refuses = [&](const auto& change, const char* what) {
    auto changed = options;
    change(changed);
    BOOST_CHECK_EXCEPTION(
        (pg::dp_sgd{device, net, pg::cross_entropy{}, changed}), std::invalid_argument,
        [&](const std::exception& error) { return std::string{error.what()}.find(what) != std::string::npos; });
  };
  refuses([](auto& o) { o.clipping = pg::clipping_kind::per_sample_adaptive; },
          "per-sample adaptive clipping is not on devices yet");
  refuses(
      [](auto& o) {
        o.optimizer = pg::optimizer_kind::adam;
        o.adam.noise_floor = 1e-8;
      },
      "noise_floor is not on devices yet");
  refuses([](auto& o) { o.average_decay = 0.9; }, "average_decay is not on devices yet");
}

BOOST_AUTO_TEST_SUITE_END()
