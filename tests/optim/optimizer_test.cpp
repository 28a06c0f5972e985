// SPDX-License-Identifier: Apache-2.0
// tests/optim/optimizer_test.cpp - SGD, momentum, Adam and AdamW against PyTorch's formulas, written out in double.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(optim_optimizer)

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
  pg::unprotected::rehearsed_gradient<net_type> update{exec};
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
    pg::evaluate_into(exec, update,
                      pg::sum(pg::clip(g, pg::l2_clip_norm{1})) +
                          pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, generator));
  }
  [[nodiscard]] std::vector<double> parameters() const { return {net.parameters().begin(), net.parameters().end()}; }
};

/// torch.optim.SGD(lr, momentum): buf = momentum buf + grad; p -= lr buf. Decay is decoupled.
struct reference_sgd {
  double rate;
  double momentum;
  std::vector<double> velocity;
  double decay = 0;
  void step(std::vector<double>& p, std::span<const double> gradient) {
    velocity.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i];
      p[i] -= rate * decay * p[i];
      p[i] -= rate * velocity[i];
    }
  }
};
/// torch.optim.Adam(lr, betas, eps), single tensor: denom = sqrt(v) / sqrt(1 - beta2^t) + eps; p -= lr / (1 - beta1^t)
/// m / denom. torch.optim.AdamW(weight_decay): p *= 1 - lr weight_decay before it.
struct reference_adam {
  double rate;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double stability = 1e-8;
  double decay = 0;
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
      p[i] *= 1 - rate * decay;
      p[i] -= rate / (1 - std::pow(beta1, steps)) * first[i] / denominator;
    }
  }
};

/// Tang et al. 2024, algorithm 1, with one noise a step: v's average less the noise's average of the same weights.
struct reference_adam_bc {
  double rate;
  double floor;
  std::vector<double> deviations;  ///< of the noise on a gradient, step by step
  double beta1 = 0.9;
  double beta2 = 0.999;
  std::size_t steps = 0;
  std::size_t at_the_floor = 0, above = 0;
  std::vector<double> first{}, second{};
  void step(std::vector<double>& p, std::span<const double> gradient) {
    first.resize(p.size());
    second.resize(p.size());
    ++steps;
    double noise = 0;
    double weights = 0;
    for (std::size_t i = 0; i < steps; ++i) {
      const double weight = std::pow(beta2, static_cast<double>(steps - 1 - i));
      noise += weight * deviations[i] * deviations[i];
      weights += weight;
    }
    for (std::size_t i = 0; i < p.size(); ++i) {
      first[i] = beta1 * first[i] + (1 - beta1) * gradient[i];
      second[i] = second[i] * beta2 + (1 - beta2) * gradient[i] * gradient[i];
      const double power = static_cast<double>(steps);
      const double without = second[i] / (1 - std::pow(beta2, power)) - noise / weights;
      ++(without > floor ? above : at_the_floor);
      p[i] -= rate * first[i] / (1 - std::pow(beta1, power)) / std::sqrt(std::max(without, floor));
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

BOOST_AUTO_TEST_CASE(adam_with_weight_decay_is_pytorchs_adamw) {
  const auto options = [](double decay) { return pg::adam_options{.weight_decay = decay}; };
  BOOST_TEST(compare<double>(pg::adam<network<double>>{pg::learning_rate{0.01}, options(0.3)},
                             reference_adam{.rate = 0.01, .decay = 0.3}, 15, 1) < 1e-14);
  BOOST_TEST(compare<float>(pg::adam<network<float>>{pg::learning_rate{0.01}, options(0.1)},
                            reference_adam{.rate = 0.01, .decay = 0.1}, 15, 1) < 2e-6);
}
// Gradients are of all sizes from 1e-4 to 100: some have a second moment below the noise's, most above.
BOOST_AUTO_TEST_CASE(adam_with_noise_correction_is_dp_adambc) {
  for (const double scale : {1.0, 0.25}) {
    setting<double> s;
    const pg::adam_options options{.noise_floor = 1e-3};
    pg::adam<network<double>> optimizer{pg::learning_rate{0.01}, options, pg::noise_multiplier{0.5},
                                        pg::l2_clip_norm{0.8}};
    reference_adam_bc reference{0.01, 1e-3, {}};
    auto p = s.parameters();
    for (int step = 0; step < 12; ++step) {
      const double noise = step < 5 ? 0.5 : 0.5 + 0.1 * step;  // as a schedule would have it
      if (step >= 5) optimizer.set_noise(pg::noise_multiplier{noise}, pg::l2_clip_norm{0.8});
      reference.deviations.push_back(noise * 0.8 * scale);
      s.draw(step);
      std::vector<double> gradient(s.plain.values().begin(), s.plain.values().end());
      for (double& value : gradient) value *= scale;
      pg::unprotected::step(optimizer, s.exec, s.net, s.plain, scale);
      reference.step(p, gradient);
    }
    double worst = 0;
    for (std::size_t i = 0; i < p.size(); ++i) worst = std::max(worst, std::fabs(p[i] - s.net.parameters()[i]));
    // Where v is all but the noise, an error of 1e-16 in either is 1e-13 of their difference, which the floor bounds.
    BOOST_TEST(worst < 1e-11);
    BOOST_TEST(reference.at_the_floor > 10'000U);
    BOOST_TEST(reference.above > 10'000U);
  }
}
BOOST_AUTO_TEST_CASE(a_noise_floor_and_the_noise_go_together) {
  using adam = pg::adam<network<double>>;
  const pg::learning_rate rate{0.1};
  BOOST_CHECK_THROW((adam{rate, {.noise_floor = 1e-8}}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::adam<network<float>>{rate, {.stability = 1e-50}}), std::invalid_argument);
  BOOST_CHECK_THROW((adam{rate, {}, pg::noise_multiplier{1}, pg::l2_clip_norm{1}}), std::invalid_argument);
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    BOOST_CHECK_THROW((adam{rate, {.noise_floor = bad}, pg::noise_multiplier{1}, pg::l2_clip_norm{1}}),
                      std::invalid_argument);
  }
}
BOOST_AUTO_TEST_CASE(sgd_with_weight_decay) {
  BOOST_TEST(compare<double>(pg::sgd<network<double>>{pg::learning_rate{0.1}, 0, 0.2}, reference_sgd{0.1, 0, {}, 0.2},
                             12, 1) < 1e-14);
  BOOST_TEST(compare<double>(pg::sgd<network<double>>{pg::learning_rate{0.1}, 0.9, 0.2},
                             reference_sgd{0.1, 0.9, {}, 0.2}, 12, 0.3) < 1e-14);
}
// Decay follows the learning rate that a schedule sets.
BOOST_AUTO_TEST_CASE(decay_follows_the_rate) {
  setting<double> s;
  pg::sgd<network<double>> optimizer{pg::learning_rate{1}, 0, 0.5};
  std::fill(s.plain.values().begin(), s.plain.values().end(), 0.0);
  s.net.parameters()[5] = 1;
  pg::unprotected::step(optimizer, s.exec, s.net, s.plain);
  BOOST_TEST(s.net.parameters()[5] == 0.5);
  optimizer.set_learning_rate(pg::learning_rate{0.5});
  pg::unprotected::step(optimizer, s.exec, s.net, s.plain);
  BOOST_TEST(s.net.parameters()[5] == 0.375);
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
  const pg::adam_options decaying{.weight_decay = 0.1};
  check(pg::adam<net>{pg::learning_rate{0.3}, decaying}, pg::adam<net>{pg::learning_rate{0.3}, decaying});
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
  for (const double bad : {-1e-9, infinity, std::nan("")}) {
    BOOST_CHECK_THROW((pg::sgd<net>{pg::learning_rate{1}, 0, bad}), std::invalid_argument);
    BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{1}, {.weight_decay = bad}}), std::invalid_argument);
  }
  for (const double bad : {0.0, -1.0, infinity, std::nan("")}) {
    BOOST_CHECK_THROW(pg::learning_rate{bad}, std::invalid_argument);
    BOOST_CHECK_THROW(pg::expected_batch_size{bad}, std::invalid_argument);
  }
  // Numbers that this network's scalar cannot hold.
  for (const double bad : {1e-60, 1e60}) {
    BOOST_CHECK_THROW((pg::sgd<net>{pg::learning_rate{bad}}), std::invalid_argument);
    BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{bad}}), std::invalid_argument);
    BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{1}, {.stability = bad}}), std::invalid_argument);
    BOOST_CHECK_THROW(
        (pg::adam<net>{pg::learning_rate{1}, {.noise_floor = bad}, pg::noise_multiplier{1}, pg::l2_clip_norm{1}}),
        std::invalid_argument);
    BOOST_CHECK_NO_THROW((pg::sgd<network<double>>{pg::learning_rate{bad}}));
    pg::sgd<net> plain{pg::learning_rate{1}};
    BOOST_CHECK_THROW(plain.set_learning_rate(pg::learning_rate{bad}), std::invalid_argument);
    pg::adam<net> adaptive{pg::learning_rate{1}};
    BOOST_CHECK_THROW(adaptive.set_learning_rate(pg::learning_rate{bad}), std::invalid_argument);
  }
  BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{1}, {.stability = infinity}}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::adam<net>{pg::learning_rate{1}, {.weight_decay = 1e300}}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::sgd<net>{pg::learning_rate{1e-3}, 0, 1e300}), std::invalid_argument);
  BOOST_CHECK_NO_THROW((pg::sgd<net>{pg::learning_rate{1e-3}, 0, 1e3}));
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

// The formulas of sgd.hpp and adam.hpp for one parameter, in the optimizer's own scalar, with a product that meets a
// sum rounded as simd/rounded.hpp says: once if the target can, apart if it cannot. Every element is that,
// whatever its place in a vector, a stretch or a share of a thread.
BOOST_AUTO_TEST_CASE(vectors_are_the_scalar_formula_bit_for_bit) {
  const auto check = []<class Scalar>(Scalar) {
    const auto meets = [](Scalar a, Scalar b, Scalar c) {
      if constexpr (pg::rounded::vectors_fuse) return std::fma(a, b, c);
      const volatile Scalar product = a * b;  // not to be contracted
      return product + c;
    };
    const Scalar momentum = static_cast<Scalar>(0.9);
    const auto rate = static_cast<Scalar>(0.07);
    const auto scale = static_cast<Scalar>(1 / 37.5);
    using net = network<Scalar>;
    pg::sgd<net> plain{pg::learning_rate{0.07}};
    pg::sgd<net> heavy{pg::learning_rate{0.07}, 0.9};
    pg::adam<net> adaptive{pg::learning_rate{0.07}, {0.9, 0.99, 1e-6}};
    setting<Scalar> with_plain, with_heavy, with_adaptive;
    const std::size_t count = net::parameter_count;
    static_assert(net::parameter_count % 512 != 0 && net::parameter_count % 16 != 0);
    std::vector<Scalar> p(with_plain.net.parameters().begin(), with_plain.net.parameters().end());
    std::vector<Scalar> q = p, r = p, velocity(count), first(count), second(count);
    const auto beta1 = static_cast<Scalar>(0.9), beta2 = static_cast<Scalar>(0.99);
    const auto rest1 = static_cast<Scalar>(1 - 0.9), rest2 = static_cast<Scalar>(1 - 0.99);
    for (int step = 1; step <= 4; ++step) {
      for (auto* s : {&with_plain, &with_heavy, &with_adaptive}) s->draw(step);
      pg::unprotected::step(plain, with_plain.exec, with_plain.net, with_plain.plain, 1 / 37.5);
      pg::unprotected::step(heavy, with_heavy.exec, with_heavy.net, with_heavy.plain, 1 / 37.5);
      pg::unprotected::step(adaptive, with_adaptive.exec, with_adaptive.net, with_adaptive.plain, 1 / 37.5);
      const auto adam_rate = static_cast<Scalar>(0.07 / (1 - std::pow(0.9, step)));
      const auto correction = static_cast<Scalar>(1 / std::sqrt(1 - std::pow(0.99, step)));
      for (std::size_t i = 0; i < count; ++i) {
        const Scalar g = with_plain.plain.values()[i];
        p[i] = meets(-static_cast<Scalar>(0.07 * (1 / 37.5)), g, p[i]);
        velocity[i] = meets(momentum, velocity[i], scale * g);
        q[i] = meets(-rate, velocity[i], q[i]);
        const Scalar value = scale * g;
        first[i] = meets(beta1, first[i], rest1 * value);
        const Scalar square = rest2 * value * value;
        second[i] = meets(beta2, second[i], square);
        const Scalar quotient =
            adam_rate * first[i] / meets(std::sqrt(second[i]), correction, static_cast<Scalar>(1e-6));
        r[i] -= quotient;
      }
    }
    BOOST_TEST(std::ranges::equal(with_plain.net.parameters(), p));
    BOOST_TEST(std::ranges::equal(with_heavy.net.parameters(), q));
    BOOST_TEST(std::ranges::equal(with_adaptive.net.parameters(), r));
  };
  check(float{});
  check(double{});
}

// And the rules' own form for single numbers, which a device has, where vectors round as often.
BOOST_AUTO_TEST_CASE(vectors_are_the_rules_of_single_numbers) {
  const auto check = []<class Scalar>(Scalar, double decay, double floor) {
    using net = network<Scalar>;
    const pg::adam_options options{.weight_decay = decay, .noise_floor = floor};
    const pg::learning_rate rate{0.01};
    pg::adam<net> optimizer = floor > 0 ? pg::adam<net>{rate, options, pg::noise_multiplier{0.3}, pg::l2_clip_norm{1}}
                                        : pg::adam<net>{rate, options};
    setting<Scalar> s;
    std::vector<Scalar> p(s.net.parameters().begin(), s.net.parameters().end()), first(p.size()), second(p.size());
    double noise = 0;
    for (std::uint64_t step = 1; step <= 4; ++step) {
      s.draw(static_cast<int>(step));
      pg::unprotected::step(optimizer, s.exec, s.net, s.plain, 0.25);
      const pg::rules::adam_bias bias = pg::rules::adam_bias_at(step, 0.01, 0.9, 0.999);
      const auto rule =
          pg::rules::make_adam<Scalar>(bias.rate, bias.correction, 0.9, 0.999, 1e-8, 0.25, 1 - 0.01 * decay);
      noise = 0.999 * noise + (1 - 0.999) * (0.3 * 0.25 * (0.3 * 0.25));
      const double square = bias.correction * bias.correction;
      const pg::rules::corrected_adam_rule<Scalar> corrected{
          rule, static_cast<Scalar>(square), static_cast<Scalar>(noise * square), static_cast<Scalar>(floor)};
      for (std::size_t i = 0; i < p.size(); ++i) {
        const Scalar g = s.plain.values()[i];
        floor > 0 ? corrected(g, p[i], first[i], second[i]) : rule(g, p[i], first[i], second[i]);
      }
      BOOST_TEST(std::ranges::equal(s.net.parameters(), p), "decay " << decay << ", floor " << floor);
    }
  };
  if constexpr (pg::rounded::vectors_fuse) {
    for (const double decay : {0.0, 0.3}) {
      for (const double floor : {0.0, 1e-3}) {
        check(float{}, decay, floor);
        check(double{}, decay, floor);
      }
    }
  }
}

// Noise, release and update in one sweep are the three one after the other.
BOOST_AUTO_TEST_CASE(the_fused_step_is_release_and_step_bit_for_bit) {
  const auto check = []<class Scalar>(Scalar, auto make) {
    using net = network<Scalar>;
    const std::size_t count = 5;
    std::vector<Scalar> inputs(count * 150);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<Scalar>(std::sin(static_cast<double>(i)));
    const std::vector<std::int32_t> classes{0, 2, 1, 1, 0};
    setting<Scalar> apart, of_sum, of_total, through_total;
    auto first = make(), second = make(), third = make(), fourth = make();
    pg::bounded_total<net> total{of_total.exec, pg::record_capacity{count}},
        other_total{through_total.exec, pg::record_capacity{count}};
    const pg::noise_multiplier sigma{0.7};
    const pg::expected_batch_size divisor{4};
    for (int step = 0; step < 3; ++step) {
      const std::size_t drawn = step == 1 ? 0 : count;  // an empty batch is noised, and used, all the same
      const auto sum_in = [&](setting<Scalar>& s, const auto& batch, pg::tape<net>& tape) {
        return pg::sum(
            pg::clip(pg::per_sample_gradients(s.net, pg::cross_entropy{}, batch, tape), pg::l2_clip_norm{0.3}));
      };
      const pg::batch<net, pg::cross_entropy> batch{std::span{inputs}.first(150 * drawn),
                                                    std::span{classes}.first(drawn)};
      pg::tape<net> tape{apart.exec, pg::max_batch{count}};
      pg::evaluate_into(apart.exec, apart.update,
                        sum_in(apart, batch, tape) + pg::unaccounted::gaussian_noise(sigma, apart.generator));
      first.step(apart.exec, apart.net, apart.update, divisor);

      second.step(of_sum.exec, of_sum.net, of_sum.update,
                  sum_in(of_sum, batch, tape) + pg::unaccounted::gaussian_noise(sigma, of_sum.generator), divisor);
      BOOST_TEST(std::ranges::equal(of_sum.update.values(), apart.update.values()));

      total.clear();
      total.expect(pg::l2_clip_norm{0.3});
      if (drawn > 0) pg::evaluate_into(of_total.exec, pg::accumulate(total, sum_in(of_total, batch, tape)));
      third.step(of_total.exec, of_total.net, total + pg::unaccounted::gaussian_noise(sigma, of_total.generator),
                 divisor);
      // Nothing was stored: the total can be released once more, with the same noise by the same key and step.
      pg::seeded_generator again{21, static_cast<std::uint64_t>(step)};
      pg::evaluate_into(of_total.exec, of_total.update, total + pg::unaccounted::gaussian_noise(sigma, again));
      BOOST_TEST(std::ranges::equal(of_total.update.values(), apart.update.values()));

      other_total.clear();
      other_total.expect(pg::l2_clip_norm{0.3});
      if (drawn > 0) pg::evaluate_into(of_total.exec, pg::assign(other_total, sum_in(through_total, batch, tape)));
      fourth.step(through_total.exec, through_total.net, through_total.update,
                  other_total + pg::unaccounted::gaussian_noise(sigma, through_total.generator), divisor);
      BOOST_TEST(std::ranges::equal(through_total.update.values(), apart.update.values()));

      for (const auto* s : {&of_sum, &of_total, &through_total}) BOOST_TEST(s->parameters() == apart.parameters());
      for (const auto* s : {&of_sum, &of_total, &through_total})
        BOOST_TEST(s->generator.step() == static_cast<std::uint64_t>(step) + 1U);
    }
    BOOST_TEST(apart.parameters() != setting<Scalar>{}.parameters());
  };
  check(float{}, [] { return pg::sgd<network<float>>{pg::learning_rate{0.3}}; });
  check(float{}, [] { return pg::sgd<network<float>>{pg::learning_rate{0.3}, 0.9}; });
  check(float{}, [] { return pg::adam<network<float>>{pg::learning_rate{0.3}}; });
  check(double{}, [] { return pg::sgd<network<double>>{pg::learning_rate{0.3}, 0.9}; });
  check(double{}, [] { return pg::adam<network<double>>{pg::learning_rate{0.3}}; });
  check(float{}, [] { return pg::adam<network<float>>{pg::learning_rate{0.3}, {.weight_decay = 0.2}}; });
  check(float{}, [] { return pg::sgd<network<float>>{pg::learning_rate{0.3}, 0.9, 0.2}; });
}

// A step that cannot draw its noise leaves network and optimizer alone, and the private gradient without a trace of the
// sum that lay there.
BOOST_AUTO_TEST_CASE(a_fused_step_that_fails_changes_nothing) {
  using net = network<float>;
  setting<float> s, t;
  pg::adam<net> optimizer{pg::learning_rate{0.3}}, other{pg::learning_rate{0.3}};
  const std::vector<float> inputs(2 * 150, 0.5F);
  const std::vector<std::int32_t> classes{0, 2};
  const pg::batch<net, pg::cross_entropy> batch{inputs, classes};
  pg::tape<net> tape{s.exec, pg::max_batch{2}};
  const auto sum =
      pg::sum(pg::clip(pg::per_sample_gradients(s.net, pg::cross_entropy{}, batch, tape), pg::l2_clip_norm{0.3}));
  pg::bounded_total<net> total{s.exec};
  pg::evaluate_into(s.exec, pg::assign(total, sum));
  pg::private_gradient<net> update{s.exec};
  pg::os_keyed_generator spent;
  const pg::os_keyed_generator taken{std::move(spent)};
  const pg::noise_multiplier sigma{1};
  const pg::expected_batch_size divisor{2};
  BOOST_CHECK_THROW(optimizer.step(s.exec, s.net, update, sum + pg::unaccounted::gaussian_noise(sigma, spent), divisor),
                    std::logic_error);
  BOOST_TEST(std::ranges::all_of(update.values(), [](float value) { return value == 0; }));
  BOOST_CHECK_THROW(optimizer.step(s.exec, s.net, total + pg::unaccounted::gaussian_noise(sigma, spent), divisor),
                    std::logic_error);
  // More than a float can hold.
  BOOST_CHECK_THROW(
      optimizer.step(s.exec, s.net, s.update,
                     total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1e40}, s.generator), divisor),
      std::invalid_argument);
  BOOST_TEST(s.parameters() == t.parameters());
  // Adam has counted no step.
  s.draw(1);
  t.draw(1);
  pg::unprotected::step(optimizer, s.exec, s.net, s.plain);
  pg::unprotected::step(other, t.exec, t.net, t.plain);
  BOOST_TEST(s.parameters() == t.parameters());
}

// What was moved from says so, as everywhere: it has no memory to update, or nothing to update with.
BOOST_AUTO_TEST_CASE(optimizers_and_gradients_that_were_moved_from) {
  using net = network<double>;
  setting<double> s;
  const std::vector<double> before = s.parameters();
  const pg::expected_batch_size divisor{2};
  pg::bounded_total<net> total{s.exec};
  total.expect(pg::l2_clip_norm{1});
  s.draw(1);
  s.draw_private();
  const auto check = [&](auto optimizer) {
    const auto taken = std::move(optimizer);
    // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
    const auto noise = [&] { return pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, s.generator); };
    const std::uint64_t drawn = s.generator.step();
    BOOST_CHECK_THROW(pg::unprotected::step(optimizer, s.exec, s.net, s.plain), std::logic_error);
    BOOST_CHECK_THROW(optimizer.step(s.exec, s.net, s.update, divisor), std::logic_error);
    BOOST_CHECK_THROW(optimizer.step(s.exec, s.net, total + noise(), divisor), std::logic_error);
    BOOST_CHECK_THROW(optimizer.step(s.exec, s.net, s.update, total + noise(), divisor), std::logic_error);
    BOOST_TEST(s.generator.step() == drawn);
    // NOLINTEND(bugprone-use-after-move)
  };
  check(pg::sgd<net>{pg::learning_rate{0.3}, 0.9});
  check(pg::adam<net>{pg::learning_rate{0.3}});
  check(pg::scaled_adam<net>{pg::learning_rate{0.3}, pg::l2_clip_norm{1}, 1e-3, pg::max_batch{1}});
  BOOST_TEST(s.parameters() == before);

  // A step without a gradient is none that Adam counts.
  setting<double> t;
  t.draw(1);
  pg::adam<net> optimizer{pg::learning_rate{0.3}}, other{pg::learning_rate{0.3}};
  pg::unprotected::gradient<net> plain{s.exec};
  pg::unprotected::rehearsed_gradient<net> update{s.exec};
  const auto taken = std::move(plain);
  const auto released = std::move(update);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  BOOST_CHECK_THROW(pg::unprotected::step(optimizer, s.exec, s.net, plain), std::logic_error);
  BOOST_CHECK_THROW(optimizer.step(s.exec, s.net, update, divisor), std::logic_error);
  // NOLINTEND(bugprone-use-after-move)
  pg::unprotected::step(optimizer, s.exec, s.net, s.plain);
  pg::unprotected::step(other, t.exec, t.net, t.plain);
  BOOST_TEST(s.parameters() == t.parameters());
}

BOOST_AUTO_TEST_SUITE_END()
