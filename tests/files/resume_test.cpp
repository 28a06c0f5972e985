// SPDX-License-Identifier: Apache-2.0
// tests/files/resume_test.cpp - a run in two parts has the bits, the steps and the epsilon of one; no key is written;
// rates change from a step on; files that are damaged or do not fit are refused and change nothing.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <pergrad/correlated_noise.hpp>

#include "damaged.hpp"
#include "train/fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_resume)

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
                           pg::dropout<0.25>, pg::mean_over_positions, pg::linear<3>>;

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
  const clouds nobody{0};  // so that no draw makes a difference, but noise alone
  second.step(nobody.records());
  third.step(nobody.records());
  BOOST_TEST((parameters_of(one) != parameters_of(two)));
}

// Whoever knows the seed can subtract the noise of the first part: no private run goes on from there.
BOOST_AUTO_TEST_CASE(a_seeded_part_makes_no_private_run) {
  const scratch_file file;
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{1}}, other{exec, pg::zeros{}};
  const auto before = parameters_of(other);
  pg::dp_sgd secret{exec, other, loss{}, usual_options()};
  const auto refused = [&](const auto& load) {
    BOOST_CHECK_EXCEPTION(load(), std::runtime_error, [](const std::exception& error) {
      return std::string{error.what()}.find("its noise is of a seed") != std::string::npos;
    });
    BOOST_TEST((parameters_of(other) == before));
  };
  {
    pg::dp_sgd first{exec, net, loss{}, usual_options()};
    first.step(data.records());
    pg::save_checkpoint(first, file.path);
    pg::dp_sgd rehearsed{exec, net, loss{}, usual_options(), pg::seeded_generator{5}};
    pg::load_checkpoint(rehearsed, file.path);  // the other way round, and what it writes is seeded
    pg::save_checkpoint(rehearsed, file.path);
  }
  refused([&] { pg::load_checkpoint(secret, file.path); });
  pg::sgd<classifier> optimizer{pg::learning_rate{0.1}}, optimizer_of_other{pg::learning_rate{0.1}};
  const pg::private_options options = usual_options();
  pg::private_loop by_hand{exec, net, loss{}, options, pg::seeded_generator{5}};
  pg::save_checkpoint(net, optimizer, by_hand, file.path);
  pg::private_loop secret_by_hand{exec, other, loss{}, options};
  refused([&] { pg::load_checkpoint(other, optimizer_of_other, secret_by_hand, file.path); });
  BOOST_TEST(secret.steps() == 0U);
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

// A filter's order is the one that was fixed before the first step, whatever the options of a later part would choose.
BOOST_AUTO_TEST_CASE(a_filter_goes_on_with_its_order_and_a_plan_with_itself) {
  const scratch_file file;
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  pg::dp_sgd_options options = usual_options();
  options.budget = pg::privacy_budget{pg::epsilon{8}, pg::delta{1e-5}};
  options.plan = pg::run_plan::on_the_way;
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd first{exec, net, loss{}, options};
  for (int step = 0; step < 5; ++step) first.step(data.records());
  pg::save_checkpoint(first, file.path);

  pg::dp_sgd_options noisier = options;
  noisier.noise = pg::noise_multiplier{4.0};
  pg::dp_sgd second{exec, net, loss{}, noisier};
  BOOST_TEST_REQUIRE(second.accountant().order() != first.accountant().order());
  pg::load_checkpoint(second, file.path);
  BOOST_TEST(second.accountant().order() == first.accountant().order());
  BOOST_TEST(second.epsilon(pg::delta{1e-5}) == first.epsilon(pg::delta{1e-5}));
  second.step(data.records());
  pg::privacy_accountant by_hand{options.budget, pg::run_plan::on_the_way};
  pg::sgd<classifier> optimizer{pg::learning_rate{0.25}};
  pg::load_checkpoint(net, optimizer, by_hand, file.path);
  BOOST_TEST(by_hand.order() == first.accountant().order());
  BOOST_TEST(by_hand.steps() == 5U);

  refused(file.path, "its plan is on the way, this run's is beforehand", usual_options());
  pg::rdp_accountant no_filter;
  BOOST_CHECK_THROW(pg::load_checkpoint(net, optimizer, no_filter, file.path), std::runtime_error);
  BOOST_TEST(no_filter.steps() == 0U);
  pg::dp_sgd beforehand{exec, net, loss{}, usual_options()};
  pg::save_checkpoint(beforehand, file.path);
  refused(file.path, "its plan is beforehand, this run's is on the way", options);
}

BOOST_AUTO_TEST_CASE(a_private_loop_in_two_parts_has_the_bits_of_one) {
  const scratch_file file;
  const clouds data{200};
  const pg::host exec{pg::threads{1}};
  const auto take_steps = [&](auto& loop, classifier& net, auto& optimizer, int count) {
    for (int i = 0; i < count; ++i) {
      auto step = loop.begin(data.records());
      while (step.next()) {
        pg::evaluate_into(exec, accumulate(step, sum(clip(step.gradients(), pg::l2_clip_norm{0.5}))));
      }
      optimizer.step(exec, net, std::move(step));
    }
  };
  classifier whole{exec, pg::kaiming_uniform{1}}, parted{exec, pg::kaiming_uniform{1}}, resumed{exec, pg::zeros{}};
  const pg::private_options options = usual_options();
  pg::adam<classifier> one{pg::learning_rate{0.02}}, two{pg::learning_rate{0.02}}, three{pg::learning_rate{0.02}};
  pg::private_loop all{exec, whole, loss{}, options, pg::seeded_generator{5}};
  pg::private_loop first{exec, parted, loss{}, options, pg::seeded_generator{5}};
  pg::private_loop second{exec, resumed, loss{}, options, pg::seeded_generator{5}};
  take_steps(all, whole, one, 5);
  take_steps(first, parted, two, 2);
  pg::save_checkpoint(parted, two, first, file.path);
  BOOST_CHECK_THROW(pg::load_checkpoint(parted, three, second, file.path), std::logic_error);  // not the loop's network
  BOOST_TEST(second.steps() == 0U);
  pg::load_checkpoint(resumed, three, second, file.path);
  BOOST_CHECK_THROW(pg::load_checkpoint(resumed, three, second, file.path), std::logic_error);
  take_steps(second, resumed, three, 3);
  BOOST_TEST((parameters_of(whole) == parameters_of(resumed)));
  BOOST_TEST(second.steps() == 5U);
  BOOST_TEST(second.epsilon(pg::delta{1e-5}) == all.epsilon(pg::delta{1e-5}));
}

BOOST_AUTO_TEST_CASE(files_that_do_not_fit_are_refused_whole) {
  const scratch_file file;
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  refused("/nowhere/run", "cannot be opened", usual_options());
  const auto save_of = [&]<class Network>(std::type_identity<Network> /*type*/, const pg::dp_sgd_options& options) {
    Network net{exec, pg::zeros{}};
    pg::dp_sgd trainer{exec, net, loss{}, options};
    pg::save_checkpoint(trainer, file.path);
  };
  using as_large = pg::network<pg::shape{6}, pg::linear<9, pg::no_bias>, pg::linear<3>, pg::linear<3, pg::no_bias>>;
  static_assert(as_large::parameter_count == classifier::parameter_count);
  save_of(std::type_identity<as_large>{}, usual_options());
  refused(file.path, "only in the file: 1.weight F32 [3, 9], 1.bias F32 [3]", usual_options());
  save_of(std::type_identity<pg::network<pg::shape{6}, pg::linear<9>, pg::relu, pg::linear<3>>>{}, usual_options());
  refused(file.path, "another structure: its hash is ", usual_options());
  save_of(std::type_identity<pg::network<pg::shape{6}, pg::frozen<pg::linear<9>>, pg::tanh, pg::linear<3>>>{},
          usual_options());
  refused(file.path, "another structure: its hash is ", usual_options());
  save_of(std::type_identity<classifier::rebind<double>>{}, usual_options());
  refused(file.path, "the file has 0.weight F64 [9, 6] for 0.weight F32 [9, 6]", usual_options());
  save_of(std::type_identity<classifier>{}, with_adam());
  refused(file.path, "its optimizer is adam, this one's is sgd", usual_options());
  save_of(std::type_identity<classifier>{}, with_momentum());
  refused(file.path, "its optimizer is sgd with momentum, this one's is sgd", usual_options());
  refused(file.path, "its optimizer is sgd with momentum, this one's is adam", with_adam());

  classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, loss{}, usual_options()};
  trainer.step(data.records());
  pg::save_checkpoint(trainer, file.path);
  const std::string right = bytes_of(file.path);
  pg::save_parameters(net, file.path);
  refused(file.path, "is a file of pergrad: parameters 1, expected: checkpoint 1", usual_options());
  // Without any metadata: whatever it is, no checksum vouches for its ledger.
  const std::size_t begin = right.find("\"__metadata__\""), end = right.find("},", begin) + 2;
  std::string bare = right;
  bare.replace(begin, end - begin, std::string(end - begin, ' '));
  write(file.path, bare);
  refused(file.path, "not a checkpoint of a run: its metadata have no pergrad", usual_options());
  write(file.path, right);
  classifier whole{exec, pg::zeros{}};
  BOOST_CHECK_EXCEPTION(pg::load_parameters(whole, file.path), std::runtime_error, [](const std::runtime_error& error) {
    return std::string{error.what()}.ends_with("expected: parameters 1; load_checkpoint reads it");
  });
  pg::dp_sgd last{exec, whole, loss{}, usual_options()};
  pg::load_checkpoint(last, file.path);
  BOOST_TEST((parameters_of(whole) == parameters_of(net)));
}

// All of them: what is in a file is what was written, or nothing is taken from it. A flip that lowers epsilon is what
// former versions took.
BOOST_AUTO_TEST_CASE(every_flipped_bit_and_every_missing_byte_is_refused) {
  const scratch_file file;
  using tiny = pg::network<pg::shape{6}, pg::linear<3>>;
  const clouds data{50};
  const pg::host exec{pg::threads{1}};
  tiny net{exec, pg::kaiming_uniform{1}};
  {
    pg::dp_sgd first{exec, net, loss{}, with_momentum()};
    for (int step = 0; step < 3; ++step) first.step(data.records());
    pg::save_checkpoint(first, file.path);
  }
  const std::vector<float> before(net.parameters().begin(), net.parameters().end());
  std::size_t accepted = 0, refused = 0;
  pg::dp_sgd trainer{exec, net, loss{}, with_momentum()};
  test::damage_everywhere(file.path, [&] {
    try {
      pg::load_checkpoint(trainer, file.path);
      ++accepted;
    } catch (const std::runtime_error& error) {
      refused += std::string{error.what()}.find(file.path) == std::string::npos ? 0U : 1U;
      BOOST_TEST_REQUIRE(trainer.steps() == 0U);
      BOOST_TEST_REQUIRE(std::equal(before.begin(), before.end(), net.parameters().begin()));
    }
  });
  BOOST_TEST(refused == 9 * std::filesystem::file_size(file.path));
  BOOST_TEST(accepted == 1U);
  BOOST_TEST(trainer.steps() == 3U);
}

// A right checksum under a wrong ledger, as somebody may write it: numbers that are no event's stay out.
BOOST_AUTO_TEST_CASE(a_ledger_that_is_none_is_refused_under_a_right_checksum) {
  const scratch_file file;
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::sgd<classifier> optimizer{pg::learning_rate{0.25}};
  const auto layout = pg::detail::checkpoint_access::layout<classifier>(optimizer);
  const auto arrays = pg::detail::checkpoint_access::arrays<const std::byte>(net, optimizer);
  const auto write_with = [&](std::vector<pg::rdp_accountant::entry> ledger, double order, pg::run_plan plan) {
    pg::detail::run_numbers<pg::sampled_gaussian_event> run;
    run.ledger = std::move(ledger);
    run.order = order;
    run.plan = plan;
    pg::detail::write_run(file.path, layout, std::span<const std::byte* const>{arrays}, run);
  };
  constexpr std::uint64_t half = std::uint64_t{1} << 63U;
  const double no_number = std::numeric_limits<double>::quiet_NaN();
  using enum pg::run_plan;
  for (const pg::sampled_gaussian_event& event :
       std::vector<pg::sampled_gaussian_event>{{no_number, 1}, {0.5, no_number}, {-0.1, 1}, {1.1, 1}, {0.5, -1}}) {
    write_with({{{0.5, 1}, 1}, {event, 1}}, 0, beforehand);
    refused(file.path, "entry 1 of its ledger is none", usual_options());
  }
  write_with({{{0.5, 1}, half}, {{0.5, 2}, half}}, 0, beforehand);
  refused(file.path, "entry 1 of its ledger is none", usual_options());
  write_with({{{0.5, 1}, 1}}, 3, beforehand);
  refused(file.path, "the order of its ledger is none", usual_options());
  pg::dp_sgd_options filter = usual_options();
  filter.budget = pg::privacy_budget{pg::epsilon{8}, pg::delta{1e-5}};
  filter.plan = on_the_way;
  for (const double order : {0.0, 1.0, 0.5, -2.0, no_number, std::numeric_limits<double>::infinity()}) {
    write_with({{{0.5, 1}, 1}}, order, on_the_way);
    refused(file.path, "the order of its ledger is none", filter);
  }
}

// Written as version 0.1 did: five .npy arrays, parameters with the frozen ones last.
BOOST_AUTO_TEST_CASE(a_checkpoint_of_version_0_1_is_converted_if_somebody_vouches_for_it) {
  const scratch_file file;
  const pg::host exec{pg::threads{1}};
  const auto array = []<class Value>(const std::vector<Value>& values) {
    return pg::detail::npy_header<Value>(values.size()) +
           std::string{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
  };
  using tuned = pg::network<pg::shape{6}, pg::frozen<pg::linear<9>>, pg::tanh, pg::linear<3>>;
  tuned net{exec, pg::kaiming_uniform{1}}, loaded{exec, pg::zeros{}}, again{exec, pg::zeros{}};
  const std::vector<float> all(net.all_parameters().begin(), net.all_parameters().end());
  std::vector<float> velocity(30);
  for (std::size_t i = 0; i < velocity.size(); ++i) velocity[i] = static_cast<float>(i);
  const std::string older = array(std::vector<std::uint64_t>{1, 93, 30, 0, 14, 2}) + array(all) + array(velocity) +
                            array(std::vector<double>{0.2, 1.1, 0.5, 3.0}) + array(std::vector<std::uint64_t>{4, 3});
  write(file.path, older);
  pg::dp_sgd trainer{exec, loaded, loss{}, with_momentum(), pg::seeded_generator{5}};
  BOOST_CHECK_EXCEPTION(
      pg::load_checkpoint(trainer, file.path), std::runtime_error, [&](const std::runtime_error& error) {
        return std::string{error.what()}.find("unprotected::load_older_checkpoint reads it") != std::string::npos;
      });
  pg::unprotected::load_older_checkpoint(trainer, file.path);
  BOOST_TEST(trainer.steps() == 7U);
  BOOST_TEST(std::equal(all.begin(), all.end(), loaded.all_parameters().begin()));
  pg::save_checkpoint(trainer, file.path);
  pg::dp_sgd next{exec, again, loss{}, with_momentum(), pg::seeded_generator{5}};
  pg::load_checkpoint(next, file.path);
  BOOST_TEST(next.epsilon(pg::delta{1e-5}) == trainer.epsilon(pg::delta{1e-5}));
  BOOST_TEST(std::equal(all.begin(), all.end(), again.all_parameters().begin()));
  const std::string today = bytes_of(file.path);
  const std::string state{reinterpret_cast<const char*>(velocity.data()), velocity.size() * sizeof(float)};
  BOOST_TEST((today.find(state) != std::string::npos));

  const auto fails = [&](const std::string& bytes, const std::string& what) {
    write(file.path, bytes);
    tuned other{exec, pg::zeros{}};
    pg::dp_sgd taker{exec, other, loss{}, with_momentum()};
    BOOST_CHECK_EXCEPTION(pg::unprotected::load_older_checkpoint(taker, file.path), std::runtime_error,
                          [&](const std::runtime_error& error) {
                            BOOST_TEST_MESSAGE(error.what());
                            return std::string{error.what()}.find(what) != std::string::npos;
                          });
    BOOST_TEST(taker.steps() == 0U);
    BOOST_TEST(other.all_parameters()[0] == 0.0F);
  };
  fails(today, "not a checkpoint of version 0.1: no array of sizes");
  fails(older + '\0', "is longer than a checkpoint");
  for (const std::size_t size : {std::size_t{0}, std::size_t{70}, std::size_t{200}, older.size() - 1}) {
    fails(older.substr(0, size), "");
  }
  const auto with = [&](std::size_t place, std::uint64_t value) {
    std::string bytes = older;
    std::memcpy(bytes.data() + 128 + 8 * place, &value, sizeof value);
    return bytes;
  };
  fails(with(0, 2), "a checkpoint of format 2, expected 1");
  fails(with(1, 94), "has 94 parameters, the network has 93");
  fails(with(2, 60), "has 60 values of an optimizer's state, this optimizer has 30");
  fails(with(5, std::uint64_t{1} << 60U), "kinds of steps");
  pg::dp_sgd_options filter = with_momentum();
  filter.budget = pg::privacy_budget{pg::epsilon{8}, pg::delta{1e-5}};
  filter.plan = pg::run_plan::on_the_way;
  write(file.path, older);
  pg::dp_sgd on_the_way{exec, again, loss{}, filter};
  BOOST_CHECK_THROW(pg::unprotected::load_older_checkpoint(on_the_way, file.path), std::runtime_error);
  pg::dp_options<pg::cyclic_poisson_sampling, pg::banded_noise> correlated;
  static_cast<pg::private_choices&>(correlated) = filter;
  correlated.plan = pg::run_plan::beforehand;
  correlated.budget.reset();
  correlated.sampling = pg::cyclic_poisson_sampling{pg::sampling_probability{0.5}, pg::round_steps{4}};
  correlated.correlation = pg::banded_noise{12, {0.6, 0.5}};
  correlated.clip = filter.clip;
  correlated.learning_rate = filter.learning_rate;
  correlated.momentum = filter.momentum;
  pg::dp_sgd of_a_strategy{exec, again, loss{}, correlated};
  BOOST_CHECK_THROW(pg::unprotected::load_older_checkpoint(of_a_strategy, file.path), std::runtime_error);
  filter.plan = pg::run_plan::beforehand;
  pg::dp_options<pg::of_owners<pg::poisson_sampling>> by_owner;
  static_cast<pg::training_choices&>(by_owner) = filter;
  const std::vector<std::uint32_t> owners{0, 0, 1};
  by_owner.sampling = pg::of_owners{*filter.sampling, owners};
  pg::dp_sgd of_owner{exec, again, loss{}, by_owner};
  BOOST_CHECK_EXCEPTION(pg::unprotected::load_older_checkpoint(of_owner, file.path), std::runtime_error,
                        [](const std::exception& error) {
                          return std::string{error.what()}.find("counts each owner") != std::string::npos;
                        });
  filter.individual = pg::individual_accounting{};
  pg::dp_sgd of_each{exec, again, loss{}, filter};
  BOOST_CHECK_EXCEPTION(
      pg::unprotected::load_older_checkpoint(of_each, file.path), std::runtime_error, [](const std::exception& error) {
        return std::string{error.what()}.find("does not tell what each record has spent") != std::string::npos;
      });
  BOOST_TEST(of_each.steps() == 0U);
}

// What such a run did not have, and its file does not tell.
BOOST_AUTO_TEST_CASE(a_checkpoint_of_version_0_1_does_not_go_on_with_what_it_did_not_have) {
  const scratch_file file;
  const pg::host exec{pg::threads{1}};
  const auto array = []<class Value>(const std::vector<Value>& values) {
    return pg::detail::npy_header<Value>(values.size()) +
           std::string{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
  };
  constexpr std::size_t count = classifier::parameter_count;
  const auto write_with = [&](std::size_t state) {
    write(file.path, array(std::vector<std::uint64_t>{1, count, state, 4, 8, 1}) +
                         array(std::vector<float>(count, 0.5F)) + array(std::vector<float>(state, 0.25F)) +
                         array(std::vector<double>{0.2, 1.1}) + array(std::vector<std::uint64_t>{4}));
  };
  const auto fails = [&](const pg::dp_sgd_options& options, const std::string& what) {
    classifier net{exec, pg::zeros{}};
    pg::dp_sgd trainer{exec, net, loss{}, options};
    BOOST_CHECK_EXCEPTION(
        pg::unprotected::load_older_checkpoint(trainer, file.path), std::runtime_error,
        [&](const std::exception& error) { return std::string{error.what()}.find(what) != std::string::npos; });
    BOOST_TEST(trainer.steps() == 0U);
    BOOST_TEST((parameters_of(net) == std::vector<float>(count)));
  };
  write_with(2 * count);
  pg::dp_sgd_options corrected = with_adam();
  corrected.adam.noise_floor = 1e-8;
  fails(corrected, "had no noise_floor");
  write_with(0);
  pg::dp_sgd_options scheduled = usual_options();
  scheduled.learning_rate.reset();
  scheduled.schedules.steps = 10;
  scheduled.schedules.learning_rate = pg::schedule::exponential(0.25, 0.8);
  fails(scheduled, "had no schedules");
  pg::dp_sgd_options averaged = usual_options();
  averaged.average_decay = 0.9;
  classifier net{exec, pg::zeros{}};
  pg::dp_sgd trainer{exec, net, loss{}, averaged};
  pg::unprotected::load_older_checkpoint(trainer, file.path);
  BOOST_TEST((parameters_of(trainer.average()) == std::vector<float>(count, 0.5F)));
}

// What is left of an epoch belongs to its batches: other ones begin an epoch of their own, which is paid.
BOOST_AUTO_TEST_CASE(other_batches_behind_a_file_begin_a_round) {
  const scratch_file file;
  const pg::host exec{pg::threads{1}};
  const auto options_of = [](const auto& sampling) {
    pg::dp_options<std::decay_t<decltype(sampling)>> options;
    static_cast<pg::training_choices&>(options) = usual_options();
    options.sampling = sampling;
    options.private_metrics = true;
    return options;
  };
  const auto of = [&](std::uint32_t size, std::uint32_t records) {
    return options_of(pg::shuffled_batches{pg::batch_size{size}, pg::public_record_count{records}});
  };
  const auto begin_with = [&](const auto& options, std::uint32_t records, int steps) {
    classifier net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd first{exec, net, loss{}, options, pg::seeded_generator{5}};
    const clouds data{records};
    for (int step = 0; step < steps; ++step) first.step(data.records());
    pg::save_checkpoint(first, file.path);
  };
  /// Events in the ledger behind each step, and the records of all.
  const auto go_on_with = [&](const auto& options, std::uint32_t records, int steps) {
    classifier net{exec, pg::zeros{}};
    pg::dp_sgd second{exec, net, loss{}, options, pg::seeded_generator{5}};
    pg::load_checkpoint(second, file.path);
    const clouds data{records};
    std::pair<std::vector<std::uint64_t>, std::size_t> made;
    for (int step = 0; step < steps; ++step) {
      second.step(data.records());
      made.first.push_back(second.accountant().steps());
      made.second += pg::unprotected::metrics(second).batch_size;
    }
    return made;
  };
  using events = std::vector<std::uint64_t>;
  begin_with(of(10, 100), 100, 7);
  BOOST_TEST((go_on_with(of(10, 100), 100, 4) == std::pair{events{1, 1, 1, 2}, std::size_t{40}}));
  BOOST_TEST((go_on_with(of(50, 100), 100, 3) == std::pair{events{2, 2, 3}, std::size_t{150}}));  // two an epoch
  BOOST_TEST((go_on_with(of(5, 100), 100, 20).first.back() == 2U));
  BOOST_TEST((go_on_with(of(11, 110), 110, 1).first.back() == 2U));
  // The same of a round that was paid in an earlier part, whose last event is another sampler's.
  const auto once = options_of(pg::random_allocation{pg::round_steps{4}});
  const auto twice = options_of(pg::random_allocation{pg::round_steps{4}, pg::participations{2}});
  begin_with(once, 60, 4);
  {
    classifier net{exec, pg::zeros{}};
    pg::dp_sgd second{exec, net, loss{}, twice, pg::seeded_generator{5}};
    pg::load_checkpoint(second, file.path);
    second.step(clouds{60}.records());
    pg::save_checkpoint(second, file.path);
  }
  BOOST_TEST((go_on_with(once, 60, 1).first.back() == 3U));
  BOOST_TEST((go_on_with(twice, 60, 1).first.back() == 2U));
  // Behind the end of an epoch there is nothing to draw.
  const pg::seeded_generator generator{5};
  const auto stream = generator.stream<pg::detail::randomness::sampling>(0);
  BOOST_CHECK_THROW(static_cast<void>(pg::unaccounted::drawn_at(pg::draw_place{stream, stream, stream, 2, 2},
                                                                *of(50, 100).sampling, 100)),
                    std::out_of_range);
}

BOOST_AUTO_TEST_SUITE_END()
