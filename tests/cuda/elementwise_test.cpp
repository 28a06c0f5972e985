// SPDX-License-Identifier: Apache-2.0
// tests/cuda/elementwise_test.cpp - activations with constants, and losses with options, on a device as on the host
#include "device_fixture.hpp"

BOOST_AUTO_TEST_SUITE(cuda_elementwise)

namespace {

using namespace device_fixture;

using activated = pg::basic_network<double, pg::shape{7}, pg::linear<9>, pg::leaky_relu<0.2>, pg::linear<8>, pg::silu,
                                    pg::linear<6>, pg::elu<0.7>, pg::gelu_tanh, pg::linear<3>>;
/// More outputs than a block has threads, which share a sample's loss.
using many = pg::basic_network<double, pg::shape{7}, pg::linear<300>>;

template <class Loss>
void compare_losses(const std::string& what) {
  compare_gradients<many, Loss>(what + ", many");
  both<many, Loss> it{5};
  check_close(it.evaluate(pg::losses(it.on_device())), pg::unprotected::evaluate(it.host, pg::losses(it.on_host())),
              tolerance<double>, what + ": losses");
}

}  // namespace

// A loss that has changed another's term, and does not say that threads share it, is its own.
struct of_thirds : pg::mean_squared_error {
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t size, const Scalar* targets,
                                                  Scalar* dy) noexcept {
    const double loss = pg::mean_squared_error::evaluate(y, size, targets, dy);
    for (std::size_t i = 0; i < size; ++i) dy[i] /= 3;
    return loss / 3;
  }
};
static_assert(pg::on_device::takes_threads_by_output<pg::mean_squared_error> &&
              pg::on_device::takes_threads_by_output<pg::huber<0.5>> &&
              pg::on_device::takes_threads_by_output<pg::binary_focal_with_logits<>> &&
              !pg::on_device::takes_threads_by_output<of_thirds>);
static_assert(pg::on_device::takes_threads_by_class<pg::focal<>> &&
              !pg::on_device::takes_threads_by_class<pg::mean_squared_error>);

BOOST_AUTO_TEST_CASE(threads_share_losses_of_many_outputs) {
  compare_losses<pg::mean_squared_error>("squares");
  compare_losses<pg::huber<0.5>>("huber");
  compare_losses<pg::binary_cross_entropy_with_logits>("binary");
  compare_losses<pg::binary_focal_with_logits<>>("binary focal");
  compare_losses<pg::focal<>>("focal");
  compare_losses<of_thirds>("thirds");
}
BOOST_AUTO_TEST_CASE(activations_and_losses_are_the_hosts) {
  compare_gradients<activated, pg::cross_entropy_with_label_smoothing<0.1>>("label smoothing");
  compare_gradients<activated, pg::focal<>>("focal");
  compare_gradients<activated, pg::huber<0.5>>("huber");
  compare_gradients<activated, pg::binary_focal_with_logits<>>("binary focal");
}

BOOST_AUTO_TEST_SUITE_END()
