// SPDX-License-Identifier: Apache-2.0
// tests/expressions/clip_property_test.cpp - what is added for one sample never has a norm above C: exactly, for any
// gradient.
//
// Weights are zero and the loss is quadratic, so a sample's gradient is (its own target) times (its own input): every
// float, from the smallest subnormal to overflow, can be put into it. Norms are measured in long double.
#include <array>
#include <cstdlib>
#include <limits>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_clip_property)

namespace {

using namespace fixture;

using dense = pg::network<pg::shape{13}, pg::linear<11>>;                         // one position: product
using large = pg::network<pg::shape{512}, pg::linear<512>>;                       // its sum is deferred
using positions = pg::network<pg::shape{9, 5}, pg::linear<7>>;                    // nine positions, cancelling
using image = pg::network<pg::shape{2, 6, 5}, pg::conv2d<3, 3, pg::padding<1>>>;  // overlapping views
using deep = pg::network<pg::shape{2, 6, 5}, pg::conv2d<4, 3>, pg::tanh, pg::flatten, pg::linear<5>>;

/// Values of one sample, drawn in one of many manners.
class adversary {
 public:
  explicit adversary(std::uint32_t seed) : random_{seed} {}

  void fill(std::span<float> x, std::span<float> target) {
    const auto manner = random_() % 8;
    switch (manner) {
      case 0:
        spread(x, -1, 1);
        spread(target, -1, 1);
        break;
      case 1:
        spread(x, -45, 38);
        spread(target, -45, 38);
        break;
      case 2:  // one huge, many tiny
        spread(x, -45, -30);
        spread(target, -45, -30);
        x[random_() % x.size()] = power(30, 38);
        target[random_() % target.size()] = power(-10, 38);
        break;
      case 3:  // subnormal all over
        spread(x, -45, -38);
        spread(target, -45, -38);
        break;
      case 4:
        spread(x, 37.5, 38.5);
        spread(target, -1, 38.5);
        break;
      case 5: {  // large times small: the product is ordinary, its factors are not
        const double scale = uniform(0, 38);
        spread(x, scale - 0.5, scale + 0.3);
        spread(target, -scale - 1, -scale + 1);
        break;
      }
      case 6: {  // small times large
        const double scale = uniform(0, 38);
        spread(x, -scale - 1, -scale + 1);
        spread(target, scale - 0.5, scale + 0.3);
        break;
      }
      default:  // the same value everywhere: rounding errors all have one sign
        std::fill(x.begin(), x.end(), power(-3, 3));
        std::fill(target.begin(), target.end(), power(-3, 3));
        break;
    }
  }
  double bound() {
    constexpr std::array<double, 8> bounds{1, 1e-30, 1e-12, 0.1, 3.14, 1e6, 1e25, 1e-6};
    return bounds[random_() % bounds.size()];
  }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>{low, high}(random_); }

 private:
  /// A value of random sign with its decimal exponent in [low, high); beyond the largest float, that.
  float power(double low, double high) {
    const double size =
        std::min(std::pow(10.0, uniform(low, high)), static_cast<double>(std::numeric_limits<float>::max()));
    return static_cast<float>(random_() % 2 == 0 ? size : -size);
  }
  void spread(std::span<float> values, double low, double high) {
    for (float& value : values) value = random_() % 16 == 0 ? 0.0F : power(low, high);
  }
  std::mt19937 random_;
};

struct tally {
  std::size_t checked = 0;
  std::size_t clipped = 0;
  std::size_t left_out = 0;
  std::size_t broken = 0;
  long double worst = 0;

  void add(long double norm, double exact_bound, const std::string& what) {
    const auto bound = static_cast<long double>(exact_bound);
    ++checked;
    clipped += norm > bound * 0.999L ? 1U : 0U;
    left_out += norm == 0 ? 1U : 0U;
    worst = std::max(worst, norm / bound);
    if (norm <= bound) return;
    if (++broken <= 5)
      BOOST_ERROR(what << ": norm / C = 1 + " << static_cast<double>(norm / bound - 1) << ", C = " << exact_bound);
  }
  void report(const char* what) const {
    BOOST_TEST_MESSAGE(what << ": " << checked << " checked, " << clipped << " at the bound, " << left_out
                            << " zero, largest norm / C - 1 = " << static_cast<double>(worst - 1));
    BOOST_TEST(broken == 0U, what);
    BOOST_TEST(clipped > checked / 20, what << ": too few reach the bound");
    BOOST_TEST(left_out < checked * 3 / 4, what << ": too many are zero");
  }
};

/// Sums over a batch of one, every clip kind, every method.
template <class Network>
void check_sums(std::size_t samples, std::uint32_t seed, bool zero_weights, const char* name) {
  BOOST_TEST_MESSAGE(name << ": seed " << seed);
  constexpr std::size_t width = Network::parameter_count;
  constexpr std::size_t layers = pg::detail::layer_groups<Network>;
  const pg::host exec{pg::threads{1}};
  Network net{exec, pg::kaiming_uniform{3}};
  if (zero_weights) std::fill(net.parameters().begin(), net.parameters().end(), 0.0F);
  pg::tape<Network> tape{exec, pg::max_batch{1}};
  std::vector<float> x(Network::input_shape.size()), target(Network::output_shape.size()), sum(width);
  adversary draw{seed};
  tally flat, layered, normalised, adaptive;
  for (std::size_t round = 0; round < samples; ++round) {
    draw.fill(x, target);
    const double bound = draw.bound();
    const pg::batch<Network, pg::mean_squared_error> one{x, target};
    for_each_exact_way(
        pg::per_sample_gradients(net, pg::mean_squared_error{}, one, tape), [&](const auto& g, const std::string& way) {
          pg::unprotected::evaluate_into(exec, sum, pg::sum(pg::clip(g, pg::l2_clip_norm{bound})));
          flat.add(norm_of(sum), bound, std::string{name} + ", clip, " + way);
          pg::unprotected::evaluate_into(exec, sum, pg::sum(pg::normalise(g, pg::l2_clip_norm{bound})));
          normalised.add(norm_of(sum), bound, std::string{name} + ", normalise, " + way);
          pg::unprotected::evaluate_into(exec, sum, pg::sum(pg::normalise_adaptively(g, pg::l2_clip_norm{bound})));
          adaptive.add(norm_of(sum), bound, std::string{name} + ", normalise_adaptively, " + way);
          const auto by_layer = pg::clip_per_layer(g, pg::l2_clip_norm{bound});
          pg::unprotected::evaluate_into(exec, sum, pg::sum(by_layer));
          layered.add(norm_of(sum), by_layer.sensitivity(), std::string{name} + ", clip_per_layer, " + way);
          if constexpr (layers == 2) {
            using structure = typename Network::structure;
            const std::size_t first = structure::parameter_counts[0];
            const auto each = static_cast<long double>(by_layer.rule().bounds[0]);
            BOOST_TEST_REQUIRE(norm_of(std::span<const float>{sum}.first(first)) <= each);
            BOOST_TEST_REQUIRE(norm_of(std::span<const float>{sum}.subspan(first)) <= each);
          }
        });
  }
  flat.report("clip");
  normalised.report("normalise");
  adaptive.report("normalise_adaptively");
  layered.report("clip_per_layer");
}

template <class Network>
void check_rows(std::size_t batches, std::uint32_t seed) {
  BOOST_TEST_MESSAGE("rows: seed " << seed);
  constexpr std::size_t width = Network::parameter_count;
  constexpr std::size_t count = 128;
  const pg::host exec{pg::threads{1}};
  Network net{exec, pg::zeros{}};
  pg::tape<Network> tape{exec, pg::max_batch{count}};
  std::vector<float> x(count * Network::input_shape.size()), target(count * Network::output_shape.size()),
      rows(count * width);
  adversary draw{seed};
  tally flat;
  for (std::size_t round = 0; round < batches; ++round) {
    for (std::size_t b = 0; b < count; ++b) {
      draw.fill(std::span{x}.subspan(b * Network::input_shape.size(), Network::input_shape.size()),
                std::span{target}.subspan(b * Network::output_shape.size(), Network::output_shape.size()));
    }
    const double bound = draw.bound();
    const pg::batch<Network, pg::mean_squared_error> batch{x, target};
    const auto g = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
    pg::unprotected::evaluate_into(exec, rows, pg::materialise(pg::clip(g, pg::l2_clip_norm{bound})));
    for (std::size_t b = 0; b < count; ++b) flat.add(norm_of(row_of(rows, width, b)), bound, "row");
  }
  flat.report("rows of clip");
}

}  // namespace

BOOST_AUTO_TEST_CASE(sums_of_one_dense) { check_sums<dense>(12000, 101, true, "dense"); }
BOOST_AUTO_TEST_CASE(sums_of_one_large) { check_sums<large>(60, 106, true, "large"); }
BOOST_AUTO_TEST_CASE(sums_of_one_over_positions) { check_sums<positions>(8000, 102, true, "positions"); }
BOOST_AUTO_TEST_CASE(sums_of_one_image) { check_sums<image>(4000, 103, true, "image"); }
BOOST_AUTO_TEST_CASE(sums_of_one_deep) { check_sums<deep>(4000, 104, false, "deep"); }
BOOST_AUTO_TEST_CASE(materialised_rows) {
  check_rows<dense>(400, 105);
  check_rows<image>(100, 106);
}

// Norms on both sides of C by a few units in the last place: where "clip or not" is decided.
BOOST_AUTO_TEST_CASE(gradients_at_the_bound) {
  const pg::host exec{pg::threads{1}};
  dense net{exec, pg::zeros{}};
  pg::tape<dense> tape{exec, pg::max_batch{1}};
  std::vector<float> x(13), target(11), sum(dense::parameter_count);
  std::mt19937 random{107};
  std::normal_distribution<double> normal;
  std::size_t unchanged = 0;
  tally flat;
  for (int round = 0; round < 4000; ++round) {
    for (float& value : x) value = static_cast<float>(normal(random));
    for (float& value : target) value = static_cast<float>(normal(random));
    const pg::batch<dense, pg::mean_squared_error> one{x, target};
    const auto g = pg::per_sample_gradients(net, pg::mean_squared_error{}, one, tape);
    pg::unprotected::evaluate_into(exec, sum, pg::sum(g));
    const auto plain = sum;
    const double bound = static_cast<double>(norm_of(sum)) * (1 + (round % 81 - 40) * 0.5e-7);
    for_each_exact_way(g, [&](const auto& h, const std::string& way) {
      pg::unprotected::evaluate_into(exec, sum, pg::sum(pg::clip(h, pg::l2_clip_norm{bound})));
      flat.add(norm_of(sum), bound, way);
      unchanged += sum == plain ? 1U : 0U;
    });
  }
  flat.report("clip at the bound");
  BOOST_TEST(unchanged > 1000U);  // not everything is scaled: those clearly below C stay as they are
}

// In double the squares of small factors vanish, however large the other factor is.
BOOST_AUTO_TEST_CASE(squares_that_vanish_in_double) {
  const pg::host exec{pg::threads{1}};
  const auto check = [&]<class Network>(std::type_identity<Network>, const char* name) {
    Network net{exec, pg::zeros{}};
    pg::tape<Network> tape{exec, pg::max_batch{1}};
    std::vector<double> x(Network::input_shape.size()), target(Network::output_shape.size()),
        sum(Network::parameter_count);
    tally flat;
    for (int exponent = -320; exponent <= 150; exponent += 5) {
      for (int product = -40; product <= 6; product += 2) {
        if (product - exponent > 307) continue;
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i % 2 == 0 ? 1 : -0.7) * std::pow(10.0, exponent);
        for (std::size_t i = 0; i < target.size(); ++i)
          target[i] = (i % 3 == 0 ? 1 : 0.3) * std::pow(10.0, product - exponent);
        const pg::batch<Network, pg::mean_squared_error> one{x, target};
        for_each_exact_way(pg::per_sample_gradients(net, pg::mean_squared_error{}, one, tape),
                           [&](const auto& g, const std::string& way) {
                             for (const double bound : {1e-30, 1e-12, 1.0}) {
                               pg::unprotected::evaluate_into(exec, sum, pg::sum(pg::clip(g, pg::l2_clip_norm{bound})));
                               flat.add(norm_of(sum), bound,
                                        std::string{name} + ", " + way + ", x = 1e" + std::to_string(exponent));
                             }
                           });
      }
    }
    flat.report(name);
  };
  check(std::type_identity<dense::rebind<double>>{}, "dense in double");
  check(std::type_identity<positions::rebind<double>>{}, "positions in double");
}

// Of many positions a Gram sum has more squares than there are parameters, and all may vanish. Normalising divides by
// no bound but by stability: with one of 1e-300, 46 times the bound was added here, and 1e135 times in an earlier
// version.
BOOST_AUTO_TEST_CASE(squares_that_vanish_over_many_positions) {
  using network = pg::basic_network<double, pg::shape{400, 1}, pg::linear<2, pg::no_bias>>;
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};
  pg::tape<network> tape{exec, pg::max_batch{1}};
  std::vector<double> x(400), target(800), sum(network::parameter_count);
  tally flat, adaptive;
  const int step = std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 12 : 4;
  for (int exponent = -200; exponent <= 0; exponent += 2 * step) {
    for (int product = -300; product <= 0; product += step) {
      if (product - exponent > 100) continue;
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = (1 + 0.01 * static_cast<double>(i % 7)) * std::pow(10, exponent);
      for (std::size_t i = 0; i < target.size(); ++i) target[i] = std::pow(10, product - exponent);
      const pg::batch<network, pg::mean_squared_error> one{x, target};
      for_each_exact_way(pg::per_sample_gradients(net, pg::mean_squared_error{}, one, tape),
                         [&](const auto& g, const std::string& way) {
                           for (const double stability : {1e-100, 1e-60, 0.01}) {
                             pg::unprotected::evaluate_into(exec, sum,
                                                            pg::sum(pg::normalise(g, pg::l2_clip_norm{1}, stability)));
                             flat.add(norm_of(sum), 1, way + ", x = 1e" + std::to_string(exponent));
                             pg::unprotected::evaluate_into(
                                 exec, sum, pg::sum(pg::normalise_adaptively(g, pg::l2_clip_norm{1}, stability)));
                             adaptive.add(norm_of(sum), 1, way + ", x = 1e" + std::to_string(exponent));
                           }
                         });
    }
  }
  flat.report("normalised");
  adaptive.report("normalised adaptively");
}

// Products of floats near the least one: 0.6 of it rounds to all of it and 0.4 to nothing, in the norm or in the sum.
BOOST_AUTO_TEST_CASE(products_that_are_rounded_over_many_positions) {
  using network = pg::network<pg::shape{400, 1}, pg::linear<2, pg::no_bias>>;
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};
  pg::tape<network> tape{exec, pg::max_batch{1}};
  const std::vector<float> x(400, 0x1p-70F);
  std::vector<float> target(800);
  const pg::batch<network, pg::mean_squared_error> one{x, target};
  std::vector<float> sum(network::parameter_count);
  tally shares;
  for (const float of_least : {0.4F, 0.6F, 1.4F}) {
    std::ranges::fill(target, -of_least * 400 * 0x1p-79F);  // deltas are -2/800 of it
    for (const double bound : {1e-6, 1e-5, 1e-4, 1.0}) {
      const auto check = [&](const auto& g, const std::string& way) {
        pg::unprotected::evaluate_into(exec, sum, pg::sum(pg::normalise(g, pg::l2_clip_norm{bound}, 1e-100)));
        shares.add(norm_of(sum), bound, way + ", " + std::to_string(of_least));
      };
      const auto gradients = pg::per_sample_gradients(net, pg::mean_squared_error{}, one, tape);
      for_each_exact_way(gradients, check);
      check(pg::with_strategy<pg::strategy::ghost>(pg::with_method<pg::norm_method::direct>(gradients)),
            "direct, ghost");
      check(pg::with_strategy<pg::strategy::naive>(pg::with_method<pg::norm_method::gram>(gradients)), "gram, naive");
    }
  }
  shares.report("rounded");
}

// The factor itself on long vectors: w as computed from double sums of squares, applied in the scalar.
BOOST_AUTO_TEST_CASE(factor_on_vectors_of_any_length) {
  std::mt19937 random{108};
  adversary draw{109};
  tally flat;
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{2}, std::size_t{37}, std::size_t{1000}, std::size_t{65536}, std::size_t{1000000}}) {
    std::vector<float> gradient(count);
    for (int round = 0; round < (count > 100000 ? 12 : count > 10000 ? 60 : 3000); ++round) {
      std::array<float, 16> some{};
      draw.fill(some, std::span{some}.first(8));
      const bool few = round % 3 == 0;
      for (std::size_t i = 0; i < count; ++i) gradient[i] = few && i % 64 != 0 ? 1e-40F : some[random() % 16];
      const double bound = draw.bound();
      const pg::norm_bound known{pg::on_host::squares(gradient.data(), static_cast<std::ptrdiff_t>(count)), 0, 0};
      const auto factor = pg::clip_factor<float>(known, count, bound);
      const auto automatic = pg::normalise_factor<float>(known, count, bound, 0.01);
      const auto adaptive = pg::per_sample_adaptive_factor<float>(known, count, bound, 0.1);
      BOOST_TEST_REQUIRE((factor >= 0 && factor <= 1));
      BOOST_TEST_REQUIRE(automatic >= 0);
      const auto scaled = [&](float weight) {
        long double sum = 0;
        for (const float value : gradient) {
          const float part = weight == 0 ? 0.0F : weight * value;
          sum += static_cast<long double>(part) * static_cast<long double>(part);
        }
        return std::sqrt(sum);
      };
      flat.add(scaled(factor), bound, "clip_factor, " + std::to_string(count));
      if (automatic > 0) flat.add(scaled(automatic), bound, "normalise_factor, " + std::to_string(count));
      if (adaptive > 0) flat.add(scaled(adaptive), bound, "per_sample_adaptive_factor, " + std::to_string(count));
    }
  }
  flat.report("factors");
}

BOOST_AUTO_TEST_CASE(factor_of_what_is_not_finite_is_zero) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {infinity, nan}) {
    for (const pg::norm_bound known :
         {pg::norm_bound{bad, 0, 0}, pg::norm_bound{1, bad, 0}, pg::norm_bound{1, 0, bad}}) {
      BOOST_TEST(pg::clip_factor<float>(known, 10, 1.0) == 0.0F);
      BOOST_TEST(pg::clip_factor<double>(known, 10, 1.0) == 0.0);
      BOOST_TEST(pg::normalise_factor<float>(known, 10, 1.0, 0.01) == 0.0F);
      BOOST_TEST(pg::per_sample_adaptive_factor<float>(known, 10, 1.0, 0.1) == 0.0F);
    }
  }
  BOOST_TEST(pg::clip_factor<float>({0, 0, 0}, 10, 1e-30) == 1.0F);
  BOOST_TEST(pg::clip_factor<float>({0.25, 0, 0}, 10, 1.0) == 1.0F);
  BOOST_TEST(pg::clip_factor<float>({4, 0, 0}, 10, 1.0) <= 0.5F);
  BOOST_TEST(pg::clip_factor<float>({4, 0, 0}, 10, 1.0) > 0.49999F);
}

BOOST_AUTO_TEST_SUITE_END()
