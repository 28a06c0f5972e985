// SPDX-License-Identifier: Apache-2.0
// tests/train/resume_test.cpp - a run in two parts has the bits, the steps and the epsilon of one; no key is written;
// rates change from a step on;
// files that do not fit are refused and change nothing.
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_resume)

namespace {

using namespace fixture;
using loss = pg::cross_entropy;

struct scratch_file {
  std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_resume_" + std::to_string(::getpid()) + ".run")).string();
  scratch_file() = default;
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  ~scratch_file() { std::filesystem::remove(path); }
};
std::string bytes_of(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream{path, std::ios::binary}.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
pg::dp_sgd_options with_momentum() {
  pg::dp_sgd_options options = usual_options();
  options.momentum = 0.8;
  return options;
}
pg::dp_sgd_options with_adam() {
  pg::dp_sgd_options options = usual_options();
  options.optimizer = pg::optimizer_kind::adam;
  options.learning_rate = pg::learning_rate{0.02};
  return options;
}

/// Dropout, a table with a padding id and a frozen layer: everything that is random, held or not trained.
using reader = pg::network<pg::token_ids(5, 12), pg::embedding<4, pg::padding_idx<0>>, pg::frozen<pg::linear<6>>,
                           pg::dropout<std::ratio<1, 4>>, pg::mean_over_positions, pg::linear<3>>;

template <class Network, class Records>
void two_parts_are_one(const pg::dp_sgd_options& options, const Records& records) {
  const scratch_file file;
  const pg::host exec{pg::threads{2}};
  Network whole{exec, pg::layer_default{1}}, parted{exec, pg::layer_default{1}}, resumed{exec, pg::zeros{}};
  pg::dp_sgd all{exec, whole, loss{}, options, pg::seeded_generator{5}};
  for (int step = 0; step < 7; ++step) all.step(records);
  {
    pg::dp_sgd first{exec, parted, loss{}, options, pg::seeded_generator{5}};
    for (int step = 0; step < 3; ++step) first.step(records);
    pg::save_checkpoint(first, file.path);
  }
  pg::dp_sgd second{exec, resumed, loss{}, options, pg::seeded_generator{5}};
  pg::load_checkpoint(second, file.path);
  BOOST_TEST(second.steps() == 3U);
  for (int step = 3; step < 7; ++step) second.step(records);
  const auto expected = whole.all_parameters(), found = resumed.all_parameters();
  BOOST_TEST(std::equal(expected.begin(), expected.end(), found.begin(), found.end()));
  BOOST_TEST(second.steps() == 7U);
  BOOST_TEST(second.epsilon(pg::delta{1e-5}) == all.epsilon(pg::delta{1e-5}));
}

/// Loading must throw a runtime_error that names the file and says `what`, and leave network and ledger alone.
void refused(const std::string& path, const std::string& what, const pg::dp_sgd_options& options) {
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{2}};
  const std::vector<float> before = parameters_of(net);
  pg::dp_sgd trainer{exec, net, loss{}, options};
  BOOST_CHECK_EXCEPTION(pg::load_checkpoint(trainer, path), std::runtime_error, [&](const std::runtime_error& error) {
    const std::string text = error.what();
    BOOST_TEST_MESSAGE(text);
    return text.starts_with("pergrad: " + path + ": ") && text.find(what) != std::string::npos;
  });
  BOOST_TEST((parameters_of(net) == before));
  BOOST_TEST(trainer.steps() == 0U);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_in_two_parts_has_the_bits_of_one) {
  const clouds data{200};
  two_parts_are_one<classifier>(usual_options(), data.records());
  two_parts_are_one<classifier>(with_momentum(), data.records());
  two_parts_are_one<classifier>(with_adam(), data.records());
}

BOOST_AUTO_TEST_CASE(frozen_held_and_random_parts_go_on_as_well) {
  std::vector<std::int32_t> ids(5 * 60), classes(60);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 12);
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int32_t>(i % 3);
  const pg::dataset<std::int32_t, std::int32_t> records{ids, classes, reader::input_shape};
  two_parts_are_one<reader>(with_adam(), records);
}

// A schedule: the rate that is set is the rate that a run would have with it from there on.
BOOST_AUTO_TEST_CASE(a_rate_that_is_set_is_that_of_the_next_steps) {
  const scratch_file file;
  const clouds data{200};
  const pg::host exec{pg::threads{2}};
  for (const pg::dp_sgd_options& options : {usual_options(), with_momentum(), with_adam()}) {
    classifier scheduled{exec, pg::kaiming_uniform{1}}, resumed{exec, pg::zeros{}};
    pg::dp_sgd trainer{exec, scheduled, loss{}, options, pg::seeded_generator{5}};
    for (int step = 0; step < 3; ++step) trainer.step(data.records());
    pg::save_checkpoint(trainer, file.path);
    const pg::learning_rate later{options.learning_rate->value() / 3};
    trainer.set_learning_rate(later);
    for (int step = 0; step < 3; ++step) trainer.step(data.records());

    pg::dp_sgd_options changed = options;
    changed.learning_rate = later;
    pg::dp_sgd other{exec, resumed, loss{}, changed, pg::seeded_generator{5}};
    pg::load_checkpoint(other, file.path);
    const std::vector<float> before = parameters_of(resumed);
    for (int step = 0; step < 3; ++step) other.step(data.records());
    BOOST_TEST((parameters_of(scheduled) == parameters_of(resumed)));
    BOOST_TEST((parameters_of(resumed) != before));
    BOOST_TEST(trainer.options().learning_rate->value() == later.value());
  }
}

BOOST_AUTO_TEST_CASE(the_budget_is_that_of_both_parts) {
  const scratch_file file;
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  pg::dp_sgd_options options = usual_options();
  options.budget = pg::privacy_budget{pg::epsilon{8}, pg::delta{1e-5}};
  const std::uint64_t allowed =
      pg::max_steps(pg::epsilon{8}, pg::delta{1e-5}, pg::sampling_probability{0.2}, *options.noise);
  BOOST_TEST_REQUIRE(allowed > 10U);
  classifier net{exec, pg::kaiming_uniform{1}};
  {
    pg::dp_sgd first{exec, net, loss{}, options};
    for (int step = 0; step < 10; ++step) first.step(data.records());
    pg::save_checkpoint(first, file.path);
  }
  classifier again{exec, pg::zeros{}};
  pg::dp_sgd second{exec, again, loss{}, options};
  pg::load_checkpoint(second, file.path);
  BOOST_TEST((parameters_of(again) == parameters_of(net)));
  while (second.within_budget()) second.step(data.records());
  BOOST_TEST(second.steps() == allowed);
  BOOST_CHECK_THROW(second.step(data.records()), pg::budget_exhausted);
  // A run that has spent all goes on nowhere, and that is no mistake.
  pg::save_checkpoint(second, file.path);
  pg::dp_sgd third{exec, again, loss{}, options};
  pg::load_checkpoint(third, file.path);
  BOOST_TEST(third.steps() == allowed);
  BOOST_TEST(!third.within_budget());
  BOOST_CHECK_THROW(third.step(data.records()), pg::budget_exhausted);
}

BOOST_AUTO_TEST_CASE(a_secret_key_is_new_and_a_given_seed_goes_on) {
  const scratch_file file;
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{1}}, one{exec, pg::zeros{}}, two{exec, pg::zeros{}};
  pg::dp_sgd first{exec, net, loss{}, usual_options()};
  first.step(data.records());
  pg::save_checkpoint(first, file.path);
  pg::dp_sgd second{exec, one, loss{}, usual_options()}, third{exec, two, loss{}, usual_options()};
  pg::load_checkpoint(second, file.path);
  pg::load_checkpoint(third, file.path);
  BOOST_TEST((parameters_of(one) == parameters_of(two)));
  second.step(data.records());
  third.step(data.records());
  BOOST_TEST((parameters_of(one) != parameters_of(two)));
}

BOOST_AUTO_TEST_CASE(a_loop_by_hand_is_saved_and_may_go_on_in_a_trainer) {
  const scratch_file file;
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{1}}, loaded{exec, pg::zeros{}};
  pg::sgd<classifier> optimizer{pg::learning_rate{0.25}, 0.8}, fresh{pg::learning_rate{0.25}, 0.8};
  pg::rdp_accountant accountant, empty;
  const pg::poisson_sampling sampling{pg::sampling_probability{0.2}};
  accountant.record(sampling.event(pg::noise_multiplier{2.0}), 5);
  accountant.prepare(sampling.event(pg::noise_multiplier{3.0}));  // nothing was spent
  accountant.record(sampling.event(pg::noise_multiplier{1.1}), 4);
  pg::save_checkpoint(net, optimizer, accountant, file.path);
  pg::load_checkpoint(loaded, fresh, empty, file.path);
  BOOST_TEST((parameters_of(loaded) == parameters_of(net)));
  BOOST_TEST(empty.ledger().size() == 2U);
  BOOST_TEST(empty.epsilon(pg::delta{1e-5}) == accountant.epsilon(pg::delta{1e-5}));
  BOOST_CHECK_THROW(pg::load_checkpoint(loaded, fresh, empty, file.path), std::logic_error);

  classifier trained{exec, pg::zeros{}};
  pg::dp_sgd trainer{exec, trained, loss{}, with_momentum()};
  pg::load_checkpoint(trainer, file.path);
  BOOST_TEST(trainer.steps() == 9U);
  BOOST_CHECK_THROW(pg::load_checkpoint(trainer, file.path), std::logic_error);
  BOOST_TEST(trainer.steps() == 9U);
}

BOOST_AUTO_TEST_CASE(files_that_do_not_fit_are_refused_whole) {
  const scratch_file file;
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  refused("/nowhere/run", "cannot be opened", usual_options());
  {
    using wider = pg::network<pg::shape{6}, pg::linear<10>, pg::tanh, pg::linear<3>>;
    wider net{exec, pg::zeros{}};
    pg::dp_sgd trainer{exec, net, loss{}, usual_options()};
    pg::save_checkpoint(trainer, file.path);
    refused(file.path, "has 103 parameters, the network has 93", usual_options());
  }
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, loss{}, usual_options()};
  trainer.step(data.records());
  pg::save_checkpoint(trainer, file.path);
  refused(file.path, "has 0 values of an optimizer's state, this optimizer has 93", with_momentum());
  refused(file.path, "has 0 values of an optimizer's state, this optimizer has 186", with_adam());

  const std::string right = bytes_of(file.path);
  for (const std::size_t size : {std::size_t{0}, std::size_t{70}, std::size_t{200}, right.size() - 1}) {
    write(file.path, right.substr(0, size));
    refused(file.path, "", usual_options());
  }
  write(file.path, right + '\0');
  refused(file.path, "is longer than a checkpoint", usual_options());
  pg::save_parameters(net, file.path);
  refused(file.path, "not a checkpoint of a run", usual_options());
  std::string other = right;
  other[128] = 2;  // the first number behind the header of the first array
  write(file.path, other);
  refused(file.path, "format 2", usual_options());
  other = right;
  other[other.size() - 128 - 8 - 1] = '\x7f';  // the sign and exponent of the noise multiplier
  other[other.size() - 128 - 8 - 2] = '\xf0';
  write(file.path, other);
  refused(file.path, "entry 0 of its ledger is none", usual_options());
  write(file.path, right);
  classifier whole{exec, pg::zeros{}};
  pg::dp_sgd last{exec, whole, loss{}, usual_options()};
  pg::load_checkpoint(last, file.path);
  BOOST_TEST((parameters_of(whole) == parameters_of(net)));
}

BOOST_AUTO_TEST_SUITE_END()
