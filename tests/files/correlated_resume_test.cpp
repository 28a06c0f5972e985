// SPDX-License-Identifier: Apache-2.0
// tests/files/correlated_resume_test.cpp - runs with correlated noise in two parts: the bits of one with a seed, noise
// begun anew with a key of the operating system, and nothing of it in the file
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/pergrad.hpp>

#include "train/fixture.hpp"

BOOST_AUTO_TEST_SUITE(correlated_resume)

namespace {

namespace pg = pergrad;
using fixture::classifier;
using fixture::clouds;
using fixture::parameters_of;

constexpr std::uint64_t steps = 9;
const pg::cyclic_poisson_sampling turns{pg::sampling_probability{0.5}, pg::round_steps{4}};
const pg::banded_noise banded{steps, {0.6, 0.5, 0.4}};
const pg::buffered_noise buffered{steps, {0.95, 0.5}, {0.2, 0.4}};
const pg::tree_noise tree{steps};

template <class Noise>
pg::dp_options<pg::cyclic_poisson_sampling, Noise> options_of(const Noise& noise) {
  pg::dp_options<pg::cyclic_poisson_sampling, Noise> options{fixture::usual_options(), {}, {}};
  options.sampling = turns;
  options.correlation = noise;
  options.momentum = 0.5;
  return options;
}

struct temporary {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("pergrad_correlated_" + std::to_string(::getpid()));
  temporary() = default;
  temporary(const temporary&) = delete;
  temporary& operator=(const temporary&) = delete;
  ~temporary() { std::filesystem::remove(path); }
};

}  // namespace

BOOST_AUTO_TEST_CASE(with_a_seed_two_parts_are_one_run) {
  const clouds data{300};
  const pg::host exec{pg::threads{1}};
  const temporary file;
  const auto check = [&](const auto& noise) {
    const auto options = options_of(noise);
    classifier whole{exec, pg::xavier_uniform{1}};
    pg::dp_sgd trainer{exec, whole, pg::cross_entropy{}, options, pg::seeded_generator{4}};
    for (std::uint64_t t = 0; t < steps; ++t) trainer.step(data.records());
    for (std::uint64_t cut = 0; cut <= steps; ++cut) {
      classifier net{exec, pg::xavier_uniform{1}};
      pg::dp_sgd first{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{4}};
      for (std::uint64_t t = 0; t < cut; ++t) first.step(data.records());
      pg::save_checkpoint(first, file.path.string());
      classifier other{exec, pg::xavier_uniform{2}};
      pg::dp_sgd second{exec, other, pg::cross_entropy{}, options, pg::seeded_generator{4}};
      pg::load_checkpoint(second, file.path.string());
      BOOST_TEST(second.steps() == cut);
      for (std::uint64_t t = cut; t < steps; ++t) second.step(data.records());
      BOOST_TEST((parameters_of(other) == parameters_of(whole)));
      BOOST_TEST(second.steps() == steps);
      BOOST_TEST(!second.within_budget());
      BOOST_TEST(second.epsilon(pg::delta{1e-5}) == trainer.epsilon(pg::delta{1e-5}));
    }
  };
  check(banded);
  check(banded.regenerated());
  check(buffered);
  check(tree);
}

// The second part's noise has nothing to do with the first's, and its ledger says what both cost.
BOOST_AUTO_TEST_CASE(with_a_new_key_noise_begins_anew) {
  const clouds data{300};
  const pg::host exec{pg::threads{1}};
  const temporary file;
  const auto check = [&](const auto& noise, std::uint64_t cut, std::uint64_t events) {
    const auto options = options_of(noise);
    classifier net{exec, pg::xavier_uniform{1}};
    pg::dp_sgd first{exec, net, pg::cross_entropy{}, options};
    for (std::uint64_t t = 0; t < cut; ++t) first.step(data.records());
    pg::save_checkpoint(first, file.path.string());
    pg::dp_sgd second{exec, net, pg::cross_entropy{}, options};
    pg::load_checkpoint(second, file.path.string());
    BOOST_TEST(second.steps() == cut);
    std::uint64_t taken = cut;
    for (; second.within_budget(); ++taken) second.step(data.records());
    BOOST_TEST(taken == steps);
    BOOST_TEST(second.accountant().steps() == events);
  };
  check(banded, 5, 3);    // turns of four steps: 2, and one of the second part's four steps
  check(banded, 4, 3);    // 1, and 2
  check(buffered, 5, 2);  // one run each
}

// With what was released, the noise of earlier steps would give the sums away.
BOOST_AUTO_TEST_CASE(no_noise_is_in_the_file) {
  const clouds nobody{0};
  const pg::host exec{pg::threads{1}};
  const temporary file;
  const auto written = [&](auto generator) {
    classifier net{exec, pg::xavier_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options_of(banded), std::move(generator)};
    for (int t = 0; t < 3; ++t) trainer.step(nobody.records());
    pg::save_checkpoint(trainer, file.path.string());
    std::string bytes(std::filesystem::file_size(file.path), '\0');
    std::ifstream{file.path, std::ios::binary}.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  };
  const std::string secret = written(pg::os_keyed_generator{});
  const std::string seeded = written(pg::seeded_generator{4});
  // Parameters, momentum, and numbers of steps: as long as without correlation, but for `noise.steps`.
  BOOST_TEST(secret.find("\"noise.steps\":{\"dtype\":\"U64\",\"shape\":[1]") != std::string::npos);
  BOOST_TEST(seeded.find("\"noise.steps\":{\"dtype\":\"U64\",\"shape\":[4]") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(files_of_other_runs_are_refused) {
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  const temporary file;
  classifier net{exec, pg::xavier_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options_of(banded), pg::seeded_generator{4}};
  for (int t = 0; t < 5; ++t) trainer.step(data.records());
  pg::save_checkpoint(trainer, file.path.string());
  const auto refuses = [&](const auto& options) {
    classifier other{exec, pg::xavier_uniform{2}};
    const auto before = parameters_of(other);
    pg::dp_sgd goes_on{exec, other, pg::cross_entropy{}, options, pg::seeded_generator{4}};
    BOOST_CHECK_THROW(pg::load_checkpoint(goes_on, file.path.string()), std::runtime_error);
    BOOST_TEST((parameters_of(other) == before));
    BOOST_TEST(goes_on.steps() == 0U);
  };
  refuses(options_of(pg::banded_noise{4, {0.6}}));  // for fewer steps than were taken
  auto independent = pg::dp_options<pg::cyclic_poisson_sampling>{fixture::usual_options(), {}, {}};
  independent.sampling = turns;
  refuses(independent);
}

BOOST_AUTO_TEST_SUITE_END()
