// SPDX-License-Identifier: Apache-2.0
// tests/ranks/device_ranks_test.cpp - ranks on devices, which the host emulates, end where one device ends
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include <pergrad/cuda/ranks/device_step.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/ranks.hpp>

#include "rank_tests.hpp"

BOOST_AUTO_TEST_SUITE(device_ranks)

namespace {

namespace pg = pergrad;
using pg::on_device::emulated_device;

using cnn = pg::network<pg::shape{1, 6, 6}, pg::conv2d<4, 3>, pg::tanh, pg::flatten, pg::dropout<0.25>, pg::linear<64>,
                        pg::relu, pg::linear<64>, pg::tanh, pg::linear<3>>;
static_assert(cnn::parameter_count > 4 * 2048);  // parts of a release for four ranks

/// Threads as ranks, and what they exchange on their devices.
class members : public pg::thread_ranks::member {
 public:
  using member::all_gather, member::member, member::reduce_scatter;
  void reduce_scatter(emulated_device& device, std::span<std::int64_t> sum, std::span<const std::size_t> places) const {
    device.submit([this, sum, places] { member::reduce_scatter(sum, places); });
  }
  void all_gather(emulated_device& device, std::span<std::byte> bytes, std::span<const std::size_t> places) const {
    device.submit([this, bytes, places] { member::all_gather(bytes, places); });
  }
  void wait(emulated_device& device) const { device.synchronise(); }
};

using data = rank_tests::random_data<cnn>;

pg::dp_sgd_options usual() {
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.2}};
  options.noise = pg::noise_multiplier{0.8};
  options.clip = pg::l2_clip_norm{0.5};
  options.divisor = pg::expected_batch_size{18};
  options.learning_rate = pg::learning_rate{0.3};
  options.momentum = 0.5;
  options.max_batch = pg::max_batch{8};
  return options;
}

using rank_tests::parameters_of, rank_tests::values;

/// With their average, if the trainer keeps one.
template <class Trainer>
values left_by(const Trainer& trainer, const cnn& net) {
  values all = parameters_of(net);
  if (trainer.options().average_decay > 0) {
    const values average = parameters_of(trainer.average());
    all.insert(all.end(), average.begin(), average.end());
  }
  return all;
}

values on_one_device(const data& all, pg::dp_sgd_options options, int steps) {
  const pg::emulated exec;
  cnn net{exec, pg::kaiming_uniform{1}};
  options.capacity = pg::record_capacity{0};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{3}};
  const auto records = all.part(0, all.targets.size());
  for (int step = 0; step < steps; ++step) trainer.step(records);
  return left_by(trainer, net);
}

using rank_tests::on_threads;

/// Uneven shares; of four ranks the second has nothing.
std::size_t cut(std::size_t total, std::size_t ranks, std::size_t rank) {
  return ranks == 4 && rank == 2 ? cut(total, 4, 1) : total * rank * rank / (ranks * ranks);
}

template <class Function>
std::vector<values> on_ranks(const data& all, const pg::dp_sgd_options& options, std::size_t ranks, Function&& train) {
  std::vector<values> found(ranks);
  const auto thrown = on_threads<members>(ranks, [&](const members& me) {
    const pg::emulated exec;
    cnn net{exec, pg::kaiming_uniform{1 + me.rank()}};  // rank 0's count
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
    const std::size_t first = cut(all.targets.size(), ranks, me.rank());
    const std::size_t last = cut(all.targets.size(), ranks, me.rank() + 1);
    train(trainer, pg::shard{all.part(first, last - first), first});
    found[me.rank()] = left_by(trainer, net);
  });
  for (const std::string& each : thrown) BOOST_TEST(each == "");
  return found;
}

void check(const char* what, const pg::dp_sgd_options& options, std::size_t records = 90, int steps = 3) {
  const data all{records};
  const values wanted = on_one_device(all, options, steps);
  for (const std::size_t ranks : {1U, 2U, 3U, 4U}) {
    for (const values& each : on_ranks(all, options, ranks, [&](auto&trainer, const auto&mine) {
           for (int step = 0; step < steps; ++step) trainer.step(mine);
         })) {
      BOOST_TEST((each == wanted), what << " on " << ranks << " ranks");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(have_the_bits_of_one_device) {
  check("flat", usual());
  auto options = usual();
  options.clipping = pg::clipping_kind::per_layer;
  check("per layer", options);
  options.clipping = pg::clipping_kind::automatic;
  check("automatic", options);
  options = usual();
  options.momentum = 0;
  options.optimizer = pg::optimizer_kind::adam;
  check("adam", options);
  options.adam.noise_floor = 1e-6;
  options.average_decay = 0.8;
  check("DP-AdamBC and an average", options);
  options = usual();
  options.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{2}, .rate = 0.6};
  check("adaptive clipping", options);
  options = usual();
  options.noise.reset();
  options.schedules.steps = 3;
  options.schedules.noise = pg::schedule::exponential(1, 0.8);
  check("a schedule of noise", options);
  check("nobody has any", usual(), 0, 2);
  BOOST_TEST((on_one_device(data{90}, usual(), 3) != on_one_device(data{90}, options, 3)));
}

BOOST_AUTO_TEST_CASE(go_on_from_a_file_with_another_number) {
  const data all{90};
  auto options = usual();
  options.optimizer = pg::optimizer_kind::adam;
  options.momentum = 0;
  options.adam.noise_floor = 1e-6;
  options.average_decay = 0.8;
  const values wanted = on_one_device(all, options, 4);
  const auto path = std::filesystem::temp_directory_path() / ("device_ranks" + std::to_string(::getpid()));
  on_ranks(all, options, 3, [&](auto& trainer, const auto& mine) {
    trainer.step(mine);
    trainer.step(mine);
    pg::save_checkpoint(trainer, path.string());
  });
  for (const values& each : on_ranks(all, options, 2, [&](auto&trainer, const auto&mine) {
         pg::load_checkpoint(trainer, path.string());
         trainer.step(mine);
         trainer.step(mine);
       })) {
    BOOST_TEST((each == wanted));
  }
  std::filesystem::remove(path);
}

BOOST_AUTO_TEST_CASE(end_together) {
  struct seen {  // each rank writes its own; the test looks at them alone, as checks are for one thread
    bool threw = false, unchanged = false, went_on = false;
  };
  data all{90};
  std::vector<seen> by_rank(3);
  const auto thrown = on_threads<members>(by_rank.size(), [&](const members& me) {
    const pg::emulated exec;
    cnn net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual(), me, pg::seeded_generator{3}};
    const pg::shard mine{all.part(30 * me.rank(), 30), 30 * me.rank()};
    trainer.step(mine);
    const values before = parameters_of(net);
    seen& saw = by_rank[me.rank()];
    if (me.rank() == 1) exec.device().fail_after(2);
    try {
      trainer.step(mine);
    } catch (const pg::rank_failed&) {
      saw.threw = true;
    }
    saw.unchanged = parameters_of(net) == before;
    trainer.step(mine);
    saw.went_on = parameters_of(net) != before;
  });
  for (const std::string& each : thrown) BOOST_TEST(each == "");
  for (const seen& each : by_rank) BOOST_TEST((each.threw && each.unchanged && each.went_on));
}

BOOST_AUTO_TEST_SUITE_END()
