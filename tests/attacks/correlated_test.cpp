// SPDX-License-Identifier: Apache-2.0
// tests/attacks/correlated_test.cpp - attacks on the releases of a whole run with correlated noise, and on ones that
// are planted beside it
//
// Who has seen h_0 ... h_(t-1) knows, under each hypothesis of the sums G, all noise n_s = h_s - G_s, so the feedback
// of step t, so A_t with h_t = A_t + z_t: a run is one long release of A. Planted:
//
//   unrounded   feedback and state are as floating point has them: z on the grid betrays which A is right
//   unscaled    fresh noise for one sum, as if a record were in no other row of C
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <pergrad/privacy/correlated/strategies.hpp>
#include <pergrad/privacy/release.hpp>

#include "attacks/attacks.hpp"
#include "attacks/victims.hpp"

BOOST_AUTO_TEST_SUITE(attacks_correlated)

namespace {

namespace pg = pergrad;
namespace detail = pergrad::detail;
using attacks::hypothesis;
using attacks::observation;
using attacks::setting;

constexpr std::size_t elements = 512;
constexpr std::uint64_t steps = 6;
const std::vector<double> coefficients{0.75, 0.5, 0.375};
const pg::banded_noise strategy{steps, coefficients};
constexpr pg::participation pattern{.separation = 2};
const pg::release_grid grid = pg::release_grid::of(1, elements);
const double of_one_sum = pg::sensitivity_in_steps(grid, {}, 1);

enum class kind { library, unrounded, unscaled };

/// Runs of which the record is in steps 0, 2 and 4, always with all of its bound in the same direction; or it is not.
class victim {
 public:
  setting known;
  victim(kind which, double sigma) : which_{which} {
    std::mt19937_64 random{5};
    std::normal_distribution<double> normal;
    std::vector<double> direction(elements);
    double norm = 0;
    for (double& each : direction) norm += std::pow(each = normal(random), 2);
    for (std::uint64_t t = 0; t < steps; ++t) {
      for (std::size_t i = 0; i < elements; ++i) {
        const double sum = std::nearbyint(std::ldexp(normal(random), grid.steps));
        sums_[0].push_back(sum);
        const double moved = std::trunc(std::ldexp(direction[i] / std::sqrt(norm), grid.steps - grid.unit));
        sums_[1].push_back(t % 2 == 0 ? sum + moved : sum);
      }
    }
    total_ = strategy.make_filter(strategy.sensitivity(pattern), elements, 1)->sensitivity(of_one_sum, elements);
    fresh_ = sigma * (which == kind::unscaled ? of_one_sum : total_);
    known = {sigma, sigma * total_, 1, true};
    multiplier_ = sigma;
  }
  [[nodiscard]] hypothesis guess(bool with) const {
    const auto a = queries(sums_[with ? 1 : 0]);
    return {a, a};
  }
  [[nodiscard]] observation observe(bool with) {
    const std::vector<double>& sum = sums_[with ? 1 : 0];
    released_.assign(sum.size(), 0);
    if (which_ == kind::library) {
      release_by_the_gate(sum);
    } else {
      release_planted(sum);
    }
    return {released_};
  }

 private:
  [[nodiscard]] bool is_rounded() const { return which_ != kind::unrounded; }
  /// Sums of the kind a row of C has them, of noise that is there.
  [[nodiscard]] double feedback(const std::vector<double>& noise, std::size_t at) const {
    double sum = 0;
    for (std::size_t k = 1; k <= coefficients.size() && k * elements <= at; ++k) {
      sum += coefficients[k - 1] * noise[at - k * elements];
    }
    return is_rounded() ? std::nearbyint(sum) : sum;
  }
  /// A of all steps, as whoever has seen the run computes it.
  [[nodiscard]] std::vector<double> queries(const std::vector<double>& sum) const {
    std::vector<double> noise(sum.size());
    std::vector<double> a(sum.size());
    for (std::size_t at = 0; at < sum.size(); ++at) {
      noise[at] = released_[at] - sum[at];
      a[at] = sum[at] - feedback(noise, at);
    }
    return a;
  }
  void release_by_the_gate(const std::vector<double>& sum) {
    const auto filter = strategy.make_filter(strategy.sensitivity(pattern), elements, 1);
    const double unit = std::ldexp(1.0, grid.unit - grid.steps);
    for (std::uint64_t t = 0; t < steps; ++t) {
      const detail::release_gate<double> gate{grid, of_one_sum, pg::noise_multiplier{multiplier_},
                                              1,    generator_, filter.get()};
      std::vector<double> in_units(elements);
      for (std::size_t i = 0; i < elements; ++i) in_units[i] = std::ldexp(sum[t * elements + i], -grid.steps);
      for (std::size_t i = 0; i < gate.stretches(); ++i) {
        gate.release(i, {in_units.data(), nullptr}, in_units.data(), {});
      }
      for (std::size_t i = 0; i < elements; ++i) released_[t * elements + i] = in_units[i] / unit;
    }
  }
  void release_planted(const std::vector<double>& sum) {
    std::vector<double> noise(sum.size());
    std::normal_distribution<double> normal{0, fresh_};
    for (std::size_t at = 0; at < sum.size(); ++at) {
      noise[at] = std::nearbyint(normal(random_)) - feedback(noise, at);
      released_[at] = sum[at] + noise[at];
    }
  }

  kind which_;
  double multiplier_ = 1;
  double total_ = 0;
  double fresh_ = 0;
  std::vector<double> sums_[2];
  std::vector<double> released_ = std::vector<double>(steps * elements);
  pg::seeded_generator generator_{11};
  std::mt19937_64 random_{17};
};

std::vector<attacks::tally> attacked(kind which, double sigma, int trials) {
  victim of{which, sigma};
  static_cast<void>(of.observe(false));
  return attacks::decide_neighbours(of, trials, 5);
}
const attacks::tally& of(const std::vector<attacks::tally>& all, const std::string& attack) {
  return *std::find_if(all.begin(), all.end(), [&](const attacks::tally& each) { return each.attack == attack; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_shows_what_one_gaussian_does) {
  for (const double sigma : {0.5, 1.0, 100.0}) {
    for (const attacks::tally& found : attacked(kind::library, sigma, attacks::trials(400, 4000))) {
      std::printf("correlated: sigma %-5g %-22s %d of %d\n", sigma, found.attack.c_str(), found.right, found.trials);
      BOOST_TEST(attacks::is_private(found, sigma), found.attack << ": " << found.right << " of " << found.trials);
      // The likelihood reaches nearly what is allowed: the bound is not a loose one.
      if (found.attack == "likelihood" && sigma <= 1) {
        BOOST_TEST(found.rate() >= attacks::most_allowed(sigma) - 4 * std::sqrt(0.25 / found.trials) - 0.01);
      }
    }
  }
}

namespace {

/// Runs of a loop that trains: what is released moves the parameters, so later sums depend on it. Who attacks knows the
/// records but for one, the sampler's draws and all that was released.
class trained_victim {
  using net = victims::small<double>;
  using loop_options = pg::loop_options<pg::cyclic_poisson_sampling, pg::buffered_noise>;

 public:
  setting known;
  explicit trained_victim(double sigma) : sigma_{sigma} {
    const auto filter = noise_.make_filter(noise_.sensitivity_under(turns_), net::parameter_count, 1);
    const release_grid_of lattice;
    total_ = filter->sensitivity(lattice.sensitivity, net::parameter_count);
    unit_ = lattice.unit;
    known = {sigma, sigma * total_, 1, true};
  }
  [[nodiscard]] observation observe(bool with) {
    ++seed_;
    starts_.clear();
    net trained{executor_, pg::kaiming_uniform{5}};
    pg::sgd<net> optimizer{pg::learning_rate{2}};
    pg::private_loop loop{executor_, trained, pg::cross_entropy{}, options(sigma_), pg::seeded_generator{seed_}};
    pg::unprotected::rehearsed_gradient<net> update{executor_};
    released_.clear();
    while (loop.within_budget()) {
      starts_.emplace_back(trained.parameters().begin(), trained.parameters().end());
      auto step = loop.begin(data_.view(with));
      add_all(step);
      optimizer.step(executor_, trained, update, std::move(step));
      for (const double each : update.values()) released_.push_back(each / unit_);
    }
    for (const bool other : {false, true}) sums_[other ? 1 : 0] = sums_of(other);
    return {released_};
  }
  [[nodiscard]] hypothesis guess(bool with) const {
    const std::vector<double>& sum = sums_[with ? 1 : 0];
    const detail::buffered_recursion recursion{decays, scales, steps};
    std::vector<double> a(sum.size());
    const std::size_t d = net::parameter_count;
    for (std::size_t first = 0; first < d; first += detail::gaussian_block) {
      std::vector<std::int64_t> rows(recursion.rows() * detail::gaussian_block);
      const std::size_t count = std::min(detail::gaussian_block, d - first);
      for (std::size_t t = 0; t < steps; ++t) {
        double feedback[detail::gaussian_block]{};
        auto copy = rows;
        recursion.step(t, copy.data(), feedback);  // -f
        double noise[detail::gaussian_block]{};
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t at = t * d + first + i;
          a[at] = sum[at] + feedback[i];
          noise[i] = released_[at] - a[at];  // z under this hypothesis: of which the recursion makes h - G
        }
        recursion.step(t, rows.data(), noise);
      }
    }
    return {a, a};
  }

 private:
  inline static const std::vector<double> decays{0.6};
  inline static const std::vector<double> scales{0.5};
  struct release_grid_of {
    pg::release_grid grid = pg::release_grid::of(0.7, net::parameter_count);
    double sensitivity = pg::sensitivity_in_steps(grid, pg::summation::of<double>(256), 1);
    double unit = std::ldexp(1.0, grid.unit - grid.steps);
  };
  [[nodiscard]] loop_options options(double sigma) const {
    loop_options made;
    made.clip = pg::l2_clip_norm{0.7};
    made.noise = pg::noise_multiplier{sigma};
    made.sampling = turns_;
    made.correlation = noise_;
    made.divisor = pg::expected_batch_size{20};
    made.capacity = pg::record_capacity{256};
    return made;
  }
  void add_all(auto& step) const {
    while (step.next()) {
      pg::evaluate_into(executor_, accumulate(step, pg::sum(pg::clip(step.gradients(), pg::l2_clip_norm{0.7}))));
    }
  }
  /// Sums of the same draws at the parameters that were seen.
  [[nodiscard]] std::vector<double> sums_of(bool with) const {
    net other{executor_, pg::zeros{}};
    pg::private_loop loop{executor_, other, pg::cross_entropy{}, options(0), pg::seeded_generator{seed_}};
    pg::unprotected::rehearsed_gradient<net> update{executor_};
    std::vector<double> sums;
    for (const auto& start : starts_) {
      std::copy(start.begin(), start.end(), other.parameters().begin());
      auto step = loop.begin(data_.view(with));
      add_all(step);
      pg::evaluate_into(executor_, update, std::move(step));
      for (const double each : update.values()) sums.push_back(each / unit_);
    }
    return sums;
  }

  pg::host executor_{pg::threads{1}};
  pg::buffered_noise noise_{steps, decays, scales};
  pg::cyclic_poisson_sampling turns_{pg::sampling_probability{1}, pg::round_steps{2}};
  victims::records<net> data_{30, false};
  double sigma_;
  double total_ = 0;
  double unit_ = 1;
  std::uint64_t seed_ = 100;
  std::vector<std::vector<double>> starts_;
  std::vector<double> released_;
  std::vector<double> sums_[2];
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_that_trains_shows_no_more) {
  for (const double sigma : {0.5, 100.0}) {
    trained_victim victim{sigma};
    static_cast<void>(victim.observe(false));
    for (const attacks::tally& found : attacks::decide_neighbours(victim, attacks::trials(300, 3000), 5)) {
      std::printf("correlated, trained: sigma %-5g %-22s %d of %d\n", sigma, found.attack.c_str(), found.right,
                  found.trials);
      BOOST_TEST(attacks::is_private(found, sigma), found.attack << ": " << found.right << " of " << found.trials);
      if (found.attack == "likelihood" && sigma < 1) BOOST_TEST(found.rate() > 0.7);  // it does look at the record
    }
  }
}

BOOST_AUTO_TEST_CASE(unrounded_feedback_falls) {
  const int trials = attacks::trials(100, 1000);
  for (const double sigma : {100.0, 1e4}) {
    BOOST_TEST(of(attacked(kind::unrounded, sigma, trials), "lattice").right == trials);
  }
}

BOOST_AUTO_TEST_CASE(noise_for_one_sum_falls) {
  const int trials = attacks::trials(400, 4000);
  const auto found = of(attacked(kind::unscaled, 1, trials), "likelihood");
  std::printf("correlated: planted, unscaled: %d of %d\n", found.right, found.trials);
  BOOST_TEST(!attacks::is_private(found, 1));
}

BOOST_AUTO_TEST_SUITE_END()
