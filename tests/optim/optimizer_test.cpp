// SPDX-License-Identifier: Apache-2.0
// tests/optim/optimizer_test.cpp - SGD, momentum and Adam against PyTorch's formulas, written out in double.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace {

namespace pg = pergrad;
// Wide enough that its parameters are cut into several chunks.
template <class Scalar>
using network = pg::basic_network<Scalar, pg::shape{150}, pg::linear<120>, pg::tanh, pg::linear<3>>;

template <class Scalar>
struct setting {
  using net_type = network<Scalar>;
  pg::host exec{pg::threads{2}};
  net_type net{exec, pg::kaiming_uniform{9}};
  pg::tape<net_type> tape{exec, pg::max_batch{1}};
  pg::unprotected::gradient<net_type> plain{exec};
  pg::private_gradient<net_type> update{exec};
  pg::seeded_generator generator{21};

  /// A gradient with entries of many sizes, some of them zero.
  void draw(int step) {
    const std::span<Scalar> values = plain.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double phase = std::sin(static_cast<double>(i) * 0.37 + step);
      values[i] = static_cast<Scalar>(i % 11 == 0 ? 0 : phase * std::pow(10.0, static_cast<double>(i % 7) - 4));
    }
  }
  /// A private gradient: noise on an empty sum.
  void draw_private() {
    const pg::batch<net_type, pg::cross_entropy> nobody{std::span<const Scalar>{}, std::span<const std::int32_t>{}};
    const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, nobody, tape);
    pg::evaluate_into(
        exec, update,
        pg::sum(pg::clip(g, pg::l2_clip_norm{1})) + pg::gaussian_noise(pg::noise_multiplier{1}, generator));
  }
  [[nodiscard]] std::vector<double> parameters() const { return {net.parameters().begin(), net.parameters().end()}; }
};

/// torch.optim.SGD(lr, momentum): buf = momentum buf + grad; p -= lr buf.
struct reference_sgd {
  double rate;
  double momentum;
  std::vector<double> velocity;
  void step(std::vector<double>& p, std::span<const double> gradient) {
    velocity.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i];
      p[i] -= rate * velocity[i];
    }
  }
};
/// torch.optim.Adam(lr, betas, eps), single tensor: denom = sqrt(v) / sqrt(1 - beta2^t) + eps; p -= lr / (1 - beta1^t)
/// m / denom.
struct reference_adam {
  double rate;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double stability = 1e-8;
  int steps = 0;
  std::vector<double> first{}, second{};
  void step(std::vector<double>& p, std::span<const double> gradient) {
    first.resize(p.size());
    second.resize(p.size());
    ++steps;
    for (std::size_t i = 0; i < p.size(); ++i) {
      first[i] += (gradient[i] - first[i]) * (1 - beta1);
      second[i] = second[i] * beta2 + (1 - beta2) * gradient[i] * gradient[i];
      const double denominator = std::sqrt(second[i]) / std::sqrt(1 - std::pow(beta2, steps)) + stability;
      p[i] -= rate / (1 - std::pow(beta1, steps)) * first[i] / denominator;
    }
  }
};

/// `steps` steps of both; the largest difference of a parameter, relative to its size and the way it has gone.
template <class Scalar, class Optimizer, class Reference>
double compare(Optimizer optimizer, Reference reference, int steps, double scale) {
  setting<Scalar> s;
  auto p = s.parameters();
  std::vector<double> way(p.size());
  for (int step = 0; step < steps; ++step) {
    s.draw(step);
    std::vector<double> gradient(s.plain.values().begin(), s.plain.values().end());
    for (double& value : gradient) value *= scale;
    const auto before = p;
    pg::unprotected::step(optimizer, s.exec, s.net, s.plain, scale);
    reference.step(p, gradient);
    for (std::size_t i = 0; i < p.size(); ++i) way[i] += std::fabs(p[i] - before[i]);
  }
  double worst = 0;
  double longest = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    worst = std::max(worst, std::fabs(p[i] - static_cast<double>(s.net.parameters()[i])) / (std::fabs(p[i]) + way[i]));
    longest = std::max(longest, way[i]);
  }
  BOOST_TEST_REQUIRE(longest > 0.01);
  BOOST_TEST_MESSAGE("relative difference " << worst);
  return worst;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_optimizer)

BOOST_AUTO_TEST_CASE(sgd_is_pytorchs) {
  BOOST_TEST(compare<double>(pg::sgd<network<double>>{pg::learning_rate{0.1}}, reference_sgd{0.1, 0, {}}, 7, 1) <
             1e-14);
  BOOST_TEST(compare<double>(pg::sgd<network<double>>{pg::learning_rate{0.1}}, reference_sgd{0.1, 0, {}}, 7, 0.125) <
             1e-14);
  BOOST_TEST(compare<float>(pg::sgd<network<float>>{pg::learning_rate{0.1}}, reference_sgd{0.1, 0, {}}, 7, 0.3) < 2e-6);
}

BOOST_AUTO_TEST_CASE(momentum_is_pytorchs) {
  BOOST_TEST(compare<double>(pg::sgd<network<double>>{pg::learning_rate{0.1}, 0.9}, reference_sgd{0.1, 0.9, {}}, 12,
                             1) < 1e-14);
  BOOST_TEST(compare<double>(pg::sgd<network<double>>{pg::learning_rate{0.1}, 0.5}, reference_sgd{0.1, 0.5, {}}, 12,
                             0.2) < 1e-14);
  BOOST_TEST(compare<float>(pg::sgd<network<float>>{pg::learning_rate{0.1}, 0.9}, reference_sgd{0.1, 0.9, {}}, 12,
                            0.2) < 2e-6);
}

BOOST_AUTO_TEST_CASE(adam_is_pytorchs) {
  BOOST_TEST(compare<double>(pg::adam<network<double>>{pg::learning_rate{0.01}}, reference_adam{0.01}, 15, 1) < 1e-14);
  BOOST_TEST(compare<double>(pg::adam<network<double>>{pg::learning_rate{0.01}, {0.8, 0.95, 1e-3}},
                             reference_adam{0.01, 0.8, 0.95, 1e-3}, 15, 0.4) < 1e-14);
  BOOST_TEST(compare<float>(pg::adam<network<float>>{pg::learning_rate{0.01}}, reference_adam{0.01}, 15, 1) < 2e-6);
}

// The first steps by hand: one parameter, gradient 2 then -1; Kingma & Ba, algorithm 1.
BOOST_AUTO_TEST_CASE(adam_by_hand) {
  setting<double> s;
  pg::adam<network<double>> optimizer{pg::learning_rate{0.1}};
  std::fill(s.plain.values().begin(), s.plain.values().end(), 0.0);
  s.net.parameters()[5] = 1;
  s.plain.values()[5] = 2;
  const double untouched = s.net.parameters()[4];
  pg::unprotected::step(optimizer, s.exec, s.net, s.plain);
  BOOST_TEST(std::fabs(s.net.parameters()[5] - (1 - 0.1 * 2 / (2 + 1e-8))) < 1e-15);
  BOOST_TEST(s.net.parameters()[4] == untouched);
  s.plain.values()[5] = -1;
  pg::unprotected::step(optimizer, s.exec, s.net, s.plain);
  const double m = (0.9 * 0.1 * 2 - 0.1 * 1) / (1 - 0.81);
  const double v = (0.999 * 0.001 * 4 + 0.001 * 1) / (1 - 0.998001);
  BOOST_TEST(std::fabs(s.net.parameters()[5] - (1 - 0.1 * 2 / (2 + 1e-8) - 0.1 * m / (std::sqrt(v) + 1e-8))) < 1e-13);
}

// The private step is the plain one on the noised values, divided by the public constant.
BOOST_AUTO_TEST_CASE(a_private_step_divides_by_the_public_constant) {
  const auto check = [](auto first, auto second) {
    setting<float> s;
    setting<float> t;
    for (int step = 0; step < 3; ++step) {
      s.draw_private();
      std::copy(s.update.values().begin(), s.update.values().end(), t.plain.values().begin());
      first.step(s.exec, s.net, s.update, pg::expected_batch_size{37.5});
      pg::unprotected::step(second, t.exec, t.net, t.plain, 1 / 37.5);
    }
    BOOST_TEST(s.parameters() == t.parameters());
    BOOST_TEST(s.parameters() != setting<float>{}.parameters());
  };
  using net = network<float>;
  check(pg::sgd<net>{pg::learning_rate{0.3}}, pg::sgd<net>{pg::learning_rate{0.3}});
  check(pg::sgd<net>{pg::learning_rate{0.3}, 0.9}, pg::sgd<net>{pg::learning_rate{0.3}, 0.9});
  check(pg::adam<net>{pg::learning_rate{0.3}}, pg::adam<net>{pg::learning_rate{0.3}});
}

BOOST_AUTO_TEST_CASE(wrong_options_are_refused) {
  using net = network<float>;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-0.1, 1.0, 1.5, infinity, std::nan("")}) {
    BOOST_CHECK_THROW((pg::sgd<net>{pg::learning_rate{1}, bad}), std::invalid_argument);
    BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{1}, {bad, 0.9, 1e-8}}), std::invalid_argument);
    BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{1}, {0.9, bad, 1e-8}}), std::invalid_argument);
  }
  for (const double bad : {0.0, -1e-8, std::nan("")}) {
    BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{1}, {0.9, 0.9, bad}}), std::invalid_argument);
  }
  for (const double bad : {0.0, -1.0, infinity, std::nan("")}) {
    BOOST_CHECK_THROW(pg::learning_rate{bad}, std::invalid_argument);
    BOOST_CHECK_THROW(pg::expected_batch_size{bad}, std::invalid_argument);
  }
  BOOST_CHECK_NO_THROW((pg::sgd<net>{pg::learning_rate{1}, 0}));
  BOOST_CHECK_NO_THROW((pg::adam<net>{pg::learning_rate{1}, {0, 0, 1e-8}}));
}

BOOST_AUTO_TEST_CASE(threads_do_not_change_a_step) {
  const auto run = [](std::size_t threads) {
    setting<float> s;
    const pg::host exec{pg::threads{threads}};
    pg::adam<network<float>> optimizer{pg::learning_rate{0.01}};
    for (int step = 0; step < 3; ++step) {
      s.draw(step);
      pg::unprotected::step(optimizer, exec, s.net, s.plain);
    }
    return s.parameters();
  };
  const auto one = run(1);
  for (std::size_t threads = 2; threads <= 5; ++threads) BOOST_TEST((run(threads) == one));
}

BOOST_AUTO_TEST_SUITE_END()
