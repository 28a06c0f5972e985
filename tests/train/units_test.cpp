// SPDX-License-Identifier: Apache-2.0
// tests/train/units_test.cpp - units of privacy: an owner's records, and views of a record, have one gradient that is
// clipped once: against sums in double, and against what tries to move a sum further than one unit may
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_units)

namespace {

using namespace fixture;

constexpr std::uint64_t seed = 41;
using grouped = pg::network<pg::shape{6}, pg::linear<9>, pg::parameter_group<1, pg::tanh, pg::linear<3>>>;
using dropping = pg::network<pg::shape{6}, pg::linear<9>, pg::dropout<0.5>, pg::tanh, pg::linear<3>>;

template <class Sampling>
pg::dp_options<Sampling> options_with(const Sampling& sampling) {
  pg::dp_options<Sampling> options;
  static_cast<pg::training_choices&>(options) = usual_options();
  options.noise = pg::noise_multiplier{0};
  options.sampling = sampling;
  return options;
}
pg::poisson_sampling half() { return pg::poisson_sampling{pg::sampling_probability{0.5}}; }
pg::poisson_sampling everybody() { return pg::poisson_sampling{pg::sampling_probability{1}}; }

/// Owners of 0 to 12 records each, not in order.
std::vector<std::uint32_t> owners_of(std::size_t records) {
  std::vector<std::uint32_t> owners(records);
  for (std::size_t i = 0; i < records; ++i) owners[i] = static_cast<std::uint32_t>(1000 + (i * i + 5 * i) % 23 * 7);
  return owners;
}
std::vector<std::uint32_t> numbers_of(const std::vector<std::uint32_t>& owners) {
  std::vector<std::uint32_t> ids{owners};
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// What a unit with this gradient adds, by plain formulas.
template <class Network>
std::vector<double> clipped(const std::vector<double>& gradient, pg::clipping_kind kind, double bound) {
  constexpr auto layers = pg::detail::list_layer_stretches<typename Network::structure>();
  const auto norm_of = [&](std::size_t first, std::size_t count) {
    double squared = 0;
    for (std::size_t k = first; k < first + count; ++k) squared += gradient[k] * gradient[k];
    return std::sqrt(squared);
  };
  std::vector<double> share(gradient);
  const auto scale = [&](std::size_t first, std::size_t count, double factor) {
    for (std::size_t k = first; k < first + count; ++k) share[k] *= factor;
  };
  const double whole = norm_of(0, gradient.size());
  if (kind == pg::clipping_kind::flat) scale(0, share.size(), std::min(1.0, bound / whole));
  if (kind == pg::clipping_kind::automatic) scale(0, share.size(), bound / (whole + 0.01));
  if (kind == pg::clipping_kind::per_layer) {
    for (const auto& layer : layers) {
      const double part = bound / std::sqrt(static_cast<double>(layers.size()));
      scale(layer.first, layer.count, std::min(1.0, part / norm_of(layer.first, layer.count)));
    }
  }
  if (kind == pg::clipping_kind::per_group) {  // each of two layers is a group
    for (const auto& layer : layers) {
      scale(layer.first, layer.count, std::min(1.0, bound / norm_of(layer.first, layer.count)));
    }
  }
  return share;
}

/// One step's sum of units; `rows_of(unit)` gives the gradients of its rows.
template <class Network, class RowsOf>
std::vector<double> naive_sum(const std::vector<std::uint32_t>& drawn, const RowsOf& rows_of, bool averaged,
                              pg::clipping_kind kind, double bound) {
  std::vector<double> total(Network::parameter_count);
  for (const std::uint32_t unit : drawn) {
    const std::vector<std::vector<double>> rows = rows_of(unit);
    std::vector<double> gradient(total.size());
    for (const auto& row : rows) {
      for (std::size_t k = 0; k < row.size(); ++k) {
        gradient[k] += row[k] / (averaged ? static_cast<double>(rows.size()) : 1.0);
      }
    }
    const std::vector<double> share = clipped<Network>(gradient, kind, bound);
    for (std::size_t k = 0; k < share.size(); ++k) total[k] += share[k];
  }
  return total;
}
template <class Network>
std::vector<double> gradient_of(const pg::host& exec, const Network& net, const clouds& data, std::uint32_t record,
                                const pg::layer_randomness& randomness = {}) {
  typename Network::tape tape{exec, pg::max_batch{1}};
  const auto records = data.records();
  const std::vector<std::uint32_t> one{record};
  const pg::batch<Network, pg::cross_entropy> batch{records, one};
  const auto gradient = pg::unprotected::evaluate(
      exec, sum(per_sample_gradients(net, pg::cross_entropy{}, batch, tape).with(randomness)));
  return {gradient.begin(), gradient.end()};
}
/// What a step of this trainer draws of so many units.
std::vector<std::uint32_t> drawn_of(const pg::poisson_sampling& sampling, std::size_t units) {
  pg::seeded_generator generator{seed};
  return pg::unaccounted::draw(sampling, generator, static_cast<std::uint32_t>(units));
}
template <class Trainer>
std::vector<double> released(const Trainer& trainer) {
  return {trainer.last_update().values().begin(), trainer.last_update().values().end()};
}
void require_close(const std::vector<double>& found, const std::vector<double>& wanted) {
  BOOST_TEST_REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) BOOST_TEST_REQUIRE(std::abs(found[i] - wanted[i]) < 2e-4);
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_owners_gradient_is_clipped_once) {
  const clouds data{130};
  const std::vector<std::uint32_t> owners = owners_of(data.size());
  const std::vector<std::uint32_t> ids = numbers_of(owners);
  const pg::host exec{pg::threads{2}};
  const auto drawn = drawn_of(half(), ids.size());
  BOOST_TEST_REQUIRE(drawn.size() > 3U);
  for (const pg::clipping_kind kind : {pg::clipping_kind::flat, pg::clipping_kind::automatic,
                                       pg::clipping_kind::per_layer, pg::clipping_kind::per_group}) {
    for (const pg::combined how : {pg::combined::mean, pg::combined::sum}) {
      grouped net{exec, pg::kaiming_uniform{1}};
      const double bound = kind == pg::clipping_kind::per_group ? 0.3 : 0.5;
      const auto wanted = naive_sum<grouped>(
          drawn,
          [&](std::uint32_t owner) {
            std::vector<std::vector<double>> rows;
            for (std::uint32_t record = 0; record < data.size(); ++record) {
              if (owners[record] == ids[owner]) rows.push_back(gradient_of(exec, net, data, record));
            }
            return rows;
          },
          how == pg::combined::mean, kind, bound);
      auto options = options_with(pg::of_owners{half(), owners, how});
      options.clipping = kind;
      if (kind == pg::clipping_kind::per_group) {
        options.clip.reset();
        options.group_bounds = {pg::l2_clip_norm{bound}, pg::l2_clip_norm{bound}};
      }
      pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
      BOOST_TEST(trainer.unit_of_privacy == "owner");
      trainer.step(data.records());
      require_close(released(trainer), wanted);
    }
  }
}

BOOST_AUTO_TEST_CASE(views_of_a_record_differ_and_are_averaged) {
  const clouds data{40};
  const pg::host exec{pg::threads{2}};
  const auto drawn = drawn_of(half(), data.size());
  for (const std::uint32_t views : {1U, 3U}) {
    dropping net{exec, pg::kaiming_uniform{1}};
    const pg::seeded_generator generator{seed};
    const pg::layer_randomness randomness{generator.stream<pg::detail::randomness::layers>(0)};
    double apart = 0;
    const auto wanted = naive_sum<dropping>(
        drawn,
        [&](std::uint32_t record) {
          std::vector<std::vector<double>> rows;
          for (std::uint32_t view = 0; view < views; ++view) {
            rows.push_back(gradient_of(exec, net, data, record, randomness.of_view(view)));
            apart += std::abs(rows.back()[0] - rows.front()[0]);
          }
          return rows;
        },
        true, pg::clipping_kind::flat, 0.5);
    BOOST_TEST((views == 1 || apart > 0.01));
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options_with(pg::with_views{half(), pg::view_count{views}}),
                       pg::seeded_generator{seed}};
    BOOST_TEST(trainer.unit_of_privacy == "record");
    trainer.step(data.records());
    require_close(released(trainer), wanted);
  }
}

BOOST_AUTO_TEST_CASE(what_a_unit_adds_depends_on_its_own_rows_alone) {
  const clouds data{130};
  const std::vector<std::uint32_t> owners = owners_of(data.size());
  const auto step = [&](std::size_t max_batch, std::size_t threads) {
    const pg::host exec{pg::threads{threads}};
    classifier net{exec, pg::kaiming_uniform{1}};
    auto options = options_with(pg::of_owners{half(), owners});
    options.max_batch = pg::max_batch{max_batch};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    trainer.step(data.records());
    return released(trainer);
  };
  const auto at_once = step(256, 1);
  BOOST_TEST((step(1, 1) == at_once));
  BOOST_TEST((step(7, 3) == at_once));
  BOOST_TEST((step(64, 2) == at_once));
}

BOOST_AUTO_TEST_CASE(one_owner_moves_a_sum_by_no_more_than_its_noise_counts) {
  // Neighbours: without an owner, and with one of up to 9 records that try to move the sum far.
  const pg::host exec{pg::threads{1}};
  const clouds few{20};
  using limits = std::numeric_limits<float>;
  double largest = 0;
  for (const pg::clipping_kind kind :
       {pg::clipping_kind::flat, pg::clipping_kind::automatic, pg::clipping_kind::per_layer}) {
    for (const pg::combined how : {pg::combined::mean, pg::combined::sum}) {
      const auto sum_of = [&](const clouds& data, std::size_t newcomers) {
        std::vector<std::uint32_t> owners(data.size());
        for (std::size_t i = 0; i < data.size(); ++i) owners[i] = static_cast<std::uint32_t>(i / 3);
        for (std::size_t i = 0; i < newcomers; ++i) owners[data.size() - 1 - i] = 99;
        auto options = options_with(pg::of_owners{everybody(), owners, how});
        options.clipping = kind;
        classifier net{exec, pg::kaiming_uniform{1}};
        pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
        trainer.step(data.records());
        return released(trainer);
      };
      const auto before = sum_of(few, 0);
      for (const float factor : {1.0F, 1e-38F, 1e-20F, 1e3F, 1e19F, limits::max(), limits::denorm_min(),
                                 limits::quiet_NaN(), limits::infinity(), -limits::infinity()}) {
        for (const std::size_t newcomers : {1U, 2U, 9U}) {
          clouds more{few};
          const clouds others{newcomers, 5};
          for (const float value : others.inputs) more.inputs.push_back(value * factor);
          more.classes.insert(more.classes.end(), others.classes.begin(), others.classes.end());
          const auto after = sum_of(more, newcomers);
          double squared = 0;
          double shown = 0;  // what the conversion to floats adds
          for (std::size_t i = 0; i < before.size(); ++i) {
            squared += std::pow(after[i] - before[i], 2);
            shown += std::pow((std::abs(after[i]) + std::abs(before[i])) * 0x1p-24, 2);
          }
          const pg::release_grid grid = pg::release_grid::of(0.5, classifier::parameter_count);
          const double most = std::ldexp(pg::sensitivity_in_steps(grid, pg::summation{}, 1), grid.unit - grid.steps);
          const double moved = std::sqrt(squared);
          BOOST_TEST_REQUIRE(moved <= most + std::sqrt(shown));
          largest = std::max(largest, moved);
        }
      }
    }
  }
  BOOST_TEST(largest > 0.499);  // and that is nearly reached
}

BOOST_AUTO_TEST_CASE(an_owner_with_a_gradient_that_is_not_finite_adds_nothing) {
  clouds data{30};
  const std::vector<std::uint32_t> owners = [] {
    std::vector<std::uint32_t> made(30);
    for (std::size_t i = 0; i < 30; ++i) made[i] = static_cast<std::uint32_t>(i / 10);
    return made;
  }();
  const pg::host exec{pg::threads{1}};
  auto options = options_with(pg::of_owners{everybody(), owners});
  options.private_metrics = true;
  const auto step = [&] {
    classifier net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    trainer.step(data.records());
    const pg::step_metrics& seen = pg::unprotected::metrics(trainer);
    BOOST_TEST(seen.batch_size == 3U);
    return std::pair{released(trainer), seen.non_finite};
  };
  const auto whole = step();
  BOOST_TEST(whole.second == 0U);
  data.inputs[6 * 15] = std::numeric_limits<float>::quiet_NaN();
  const auto without = step();
  BOOST_TEST(without.second == 1U);
  BOOST_TEST((without.first != whole.first));
  for (const double value : without.first) BOOST_TEST_REQUIRE(std::isfinite(value));
}

// Rows of a step that failed are none of the next one's.
BOOST_AUTO_TEST_CASE(a_step_behind_one_that_failed_has_its_own_rows_alone) {
  const clouds data{40};
  const pg::host exec{pg::threads{1}};
  const auto check = [&](auto options, const char* name) {
    options.max_batch = pg::max_batch{50};
    options.clip = pg::l2_clip_norm{100};
    // The failed step has drawn with the generator's step 0, so the next one draws with step 1.
    const auto second_of = [&](bool fails) {
      classifier net{exec, pg::kaiming_uniform{1}};
      auto trainer = pg::dp_sgd{exec, net, failing{}, options, pg::seeded_generator{seed, fails ? 0U : 1U}};
      failing::is_told = fails;
      if (fails) BOOST_CHECK_THROW(trainer.step(data.records()), std::domain_error);
      failing::is_told = false;
      trainer.step(data.records());
      return std::vector<float>{trainer.last_update().values().begin(), trainer.last_update().values().end()};
    };
    BOOST_TEST((second_of(true) == second_of(false)), name);
  };
  const std::vector<std::uint32_t> owners = owners_of(40);
  check(options_with(pg::of_owners{everybody(), owners, pg::combined::mean}), "owners, mean");
  check(options_with(pg::of_owners{half(), owners, pg::combined::mean}), "owners drawn");
  check(options_with(pg::with_views{everybody(), pg::view_count{1}}), "views");
  pg::scaled_adam_options scaled;
  static_cast<pg::training_choices&>(scaled) = usual_options();
  scaled.noise = pg::noise_multiplier{0};
  scaled.optimizer = pg::optimizer_kind::adam;
  scaled.sampling = everybody();
  check(scaled, "scaled");
}

BOOST_AUTO_TEST_CASE(the_ledger_counts_owners_and_other_records_are_refused) {
  const clouds data{30};
  const std::vector<std::uint32_t> owners(30, 4);
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{1}};
  const pg::fixed_size_sampling one_of_one{pg::batch_size{1}, pg::public_record_count{1}};
  auto options = options_with(pg::of_owners{one_of_one, owners});
  options.noise = pg::noise_multiplier{1.5};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  trainer.step(data.records());
  BOOST_TEST((trainer.accountant().accountant().ledger()[0].event == one_of_one.event(pg::noise_multiplier{1.5})));
  const clouds more{31};
  BOOST_CHECK_EXCEPTION(trainer.step(more.records()), std::invalid_argument, [](const auto& error) {
    return std::string{error.what()}.find("owners of 30 records are known, and the data set has 31") !=
           std::string::npos;
  });
  const clouds elsewhere{data};  // in another order, for all that is known
  BOOST_CHECK_THROW(trainer.step(elsewhere.records()), std::logic_error);
  BOOST_TEST(trainer.steps() == 1U);
  // A statistic of all records has one value an owner.
  const std::vector<double> of_records(30, 1.0), of_owners{1.0};
  BOOST_CHECK_THROW(static_cast<void>(pg::release_count(trainer, pg::noise_multiplier{3}, of_records, 0, 2)),
                    std::invalid_argument);
  BOOST_TEST(trainer.steps() == 1U);
  static_cast<void>(pg::release_count(trainer, pg::noise_multiplier{3}, of_owners, 0, 2));
  BOOST_TEST(trainer.steps() == 2U);
  // A file of owners does not go on with records.
  const std::string path = (std::filesystem::temp_directory_path() / "units_test.run").string();
  pg::save_checkpoint(trainer, path);
  auto of_single_records = options_with(pg::fixed_size_sampling{pg::batch_size{1}, pg::public_record_count{30}});
  pg::dp_sgd other{exec, net, pg::cross_entropy{}, of_single_records, pg::seeded_generator{seed}};
  BOOST_CHECK_EXCEPTION(pg::load_checkpoint(other, path), std::runtime_error, [](const auto& error) {
    return std::string{error.what()}.find("its unit is owner, this sampler's is record") != std::string::npos;
  });
  pg::dp_sgd again{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  pg::load_checkpoint(again, path);
  BOOST_TEST(again.steps() == 2U);
  std::remove(path.c_str());
  // An event that pays a round of steps has one noise, whoever is drawn.
  auto of_rounds = options_with(pg::of_owners{pg::random_allocation{pg::round_steps{4}}, owners});
  of_rounds.noise.reset();
  of_rounds.schedules.steps = 8;
  of_rounds.schedules.noise = pg::schedule::exponential(1.5, 0.9);
  BOOST_CHECK_EXCEPTION((pg::dp_sgd{exec, net, pg::cross_entropy{}, of_rounds, pg::seeded_generator{seed}}),
                        std::invalid_argument, [](const auto& error) {
                          return std::string{error.what()}.find("events pay several steps") != std::string::npos;
                        });
  BOOST_CHECK_THROW((pg::with_views{half(), pg::view_count{0}}), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
