// SPDX-License-Identifier: Apache-2.0
// tests/cuda/trainer_test.cpp - DP-SGD on a device: the host's training, one graph, nothing allocated and no waiting
#include "counted_allocations.hpp"
#include "device_fixture.hpp"
#include "training_runs.hpp"

BOOST_AUTO_TEST_SUITE(cuda_trainer)

namespace {

using namespace device_fixture;
using namespace training_runs;

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_in_two_parts_has_the_bits_of_one_and_may_change_its_executor) {
  auto plain = usual_options();
  auto momentum = usual_options();
  momentum.momentum = 0.8;
  auto adam = usual_options();
  adam.optimizer = pg::optimizer_kind::adam;
  adam.learning_rate = pg::learning_rate{0.02};
  const pg::emulated device;
  const pg::emulated other;
  const pg::host host{pg::threads{1}};
  for (const auto& options : {plain, momentum, adam}) {
    const auto wanted = trained(device, options, 6);
    check_same(trained_in_parts(device, other, options, 6), wanted, "on a device");
    check_close(trained_in_parts(device, host, options, 6), wanted, 1e-5, "from a device to the host");
    check_close(trained_in_parts(host, device, options, 6), wanted, 1e-5, "from the host to a device");
  }
}

BOOST_AUTO_TEST_CASE(an_epoch_is_the_hosts_epoch) {
  auto options = usual_options();
  const auto compare = [&](const char* what) {
    const pg::host host{pg::threads{1}};
    const pg::emulated device;
    check_close(trained(device, options, 10, 0.25), trained(host, options, 10, 0.25), 1e-5, what);
  };
  compare("flat, sgd");
  options.max_batch = pg::max_batch{7};  // several physical batches a step
  options.momentum = 0.9;
  options.clipping = pg::clipping_kind::per_layer;
  compare("per layer, momentum");
  options.weight_decay = 0.2;
  compare("per layer, momentum, weight decay");
  options.weight_decay = 0;
  options.momentum = 0;
  options.optimizer = pg::optimizer_kind::adam;
  options.learning_rate = pg::learning_rate{0.01};
  options.clipping = pg::clipping_kind::automatic;
  compare("automatic, adam");
  options.adam.weight_decay = 0.3;
  compare("automatic, adam with weight decay");
  options.clip.reset();
  options.clipping = pg::clipping_kind::per_group;
  options.group_bounds = {pg::l2_clip_norm{0.5}, pg::l2_clip_norm{0.2}};
  compare("per group, adam");
}

BOOST_AUTO_TEST_CASE(a_device_that_shares_the_hosts_memory_reads_records_where_they_lie) {
  auto options = usual_options();
  options.max_batch = pg::max_batch{7};
  constexpr std::size_t all = record_count * (network::input_shape.size() * sizeof(float) + sizeof(std::int32_t));
  const auto bytes_of_records = [&](const pg::device_options& choice, bool shares) {
    const pg::emulated device{choice};
    const pg::emulated usual{pg::device_options{.tf32 = choice.tf32}};
    if (shares) device.device().share_memory();
    const auto there = trained(device, options, 4);
    check_same(there, trained(usual, options, 4), "the same bits");
    const bool streams = choice.most_record_bytes < all;
    BOOST_TEST((device.device().counted().views == 2) == (streams || (shares && !choice.copy_records)));
    return usual.device().counted().uploaded_bytes - device.device().counted().uploaded_bytes;
  };
  BOOST_TEST(bytes_of_records({}, true) == all);
  BOOST_TEST(bytes_of_records({.tf32 = true}, true) == all);
  BOOST_TEST(bytes_of_records({.copy_records = true}, true) == 0U);
  BOOST_TEST(bytes_of_records({}, false) == 0U);
  // A device with memory of its own, for which they are too many.
  BOOST_TEST(bytes_of_records({.most_record_bytes = all / 2}, false) == all);
  BOOST_TEST(bytes_of_records({.copy_records = true, .most_record_bytes = all / 2}, true) == all);
  BOOST_TEST(bytes_of_records({.tf32 = true, .most_record_bytes = 0}, false) == all);
}

// Ids of a network in double are half as wide as its scalars: each record still has its own.
BOOST_AUTO_TEST_CASE(ids_that_are_read_where_they_lie_are_those_of_their_record) {
  using reader = pg::basic_network<double, pg::token_ids(6, 10), pg::embedding<4>, pg::flatten, pg::linear<3>>;
  std::vector<std::int32_t> ids(record_count * 6);
  std::vector<std::int32_t> classes(record_count);
  std::mt19937 random{1};
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 10);
  for (std::int32_t& each : classes) each = static_cast<std::int32_t>(random() % 3);
  const pg::dataset<std::int32_t, std::int32_t> records{ids, classes, reader::input_shape};
  const auto after = [&](const pg::device_options& choice, bool shares) {
    const pg::emulated device{choice};
    if (shares) device.device().share_memory();
    reader net{device, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
    for (int step = 0; step < 3; ++step) trainer.step(records);
    return std::vector<double>(net.parameters().begin(), net.parameters().end());
  };
  const auto copied = after({}, false);
  BOOST_TEST((after({}, true) == copied));
  BOOST_TEST((after({.most_record_bytes = 0}, false) == copied));
}

BOOST_AUTO_TEST_CASE(records_for_which_a_device_has_no_memory_stay_with_the_host) {
  const records_of_noise data;
  auto options = usual_options();
  options.max_batch = pg::max_batch{7};
  const auto after = [&](bool limited) {
    const pg::emulated device;
    network net{device, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    const std::size_t before = device.device().counted().allocated_bytes;
    if (limited) device.device().limit_memory(before + 2000);
    for (int step = 0; step < 3; ++step) trainer.step(data.view());
    constexpr std::size_t all = record_count * (network::input_shape.size() * sizeof(float) + sizeof(std::int32_t));
    BOOST_TEST((device.device().counted().allocated_bytes < before + all) == limited);
    // Others that fit are copied.
    const records_of_noise few{data};
    device.device().limit_memory(~std::size_t{0});
    trainer.step(few.view());
    BOOST_TEST(device.device().counted().allocated_bytes >= before + all);
    return std::vector<float>(net.parameters().begin(), net.parameters().end());
  };
  BOOST_TEST((after(true) == after(false)));
}

// Neither outputs nor moments of an optimizer that has none.
BOOST_AUTO_TEST_CASE(training_takes_memory_for_what_it_needs) {
  using many = pg::network<pg::shape{4}, pg::linear<2000>>;
  const std::vector<float> inputs(20 * 4, 0.5F);
  const std::vector<std::int32_t> classes(20, 1);
  const pg::dataset<float, std::int32_t> records{inputs, classes, many::input_shape};
  const auto taken = [&](double momentum) {
    const pg::emulated device;
    many net{device, pg::kaiming_uniform{5}};
    auto options = usual_options();
    options.momentum = momentum;
    options.max_batch = pg::max_batch{16};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    for (int step = 0; step < 2; ++step) trainer.step(records);
    return device.device().counted().allocated_bytes;
  };
  constexpr std::size_t of_moment = many::parameter_count * sizeof(float);
  constexpr std::size_t others = 4096;  // records, marks, and what is rounded up
  BOOST_TEST(taken(0) <= many::device_bytes<16> + others);
  BOOST_TEST(taken(0.9) <= many::device_bytes<16> + of_moment + others);
  BOOST_TEST(taken(0.9) >= many::device_bytes<16> + of_moment);
}

BOOST_AUTO_TEST_CASE(records_of_varying_length_have_to_be_on_the_device) {
  using reader = pg::network<pg::variable(pg::shape{4, 3}), pg::linear<5>, pg::mean_over_positions, pg::linear<3>>;
  const std::vector<float> inputs(20 * 12, 0.5F);
  const std::vector<std::int32_t> classes(20, 1);
  const std::vector<std::uint32_t> lengths(20, 2);
  const pg::dataset<float, std::int32_t> records{inputs, classes, reader::input_shape, 1, lengths};
  const pg::emulated device{pg::device_options{.most_record_bytes = 100}};
  reader net{device, pg::kaiming_uniform{5}};
  const std::vector<float> before(net.parameters().begin(), net.parameters().end());
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
  BOOST_CHECK_THROW(trainer.step(records), std::invalid_argument);
  BOOST_TEST((std::vector<float>(net.parameters().begin(), net.parameters().end()) == before));
  BOOST_TEST(trainer.steps() == 0U);
}

BOOST_AUTO_TEST_CASE(records_that_are_read_where_they_lie_are_looked_at_before_each_step) {
  records_of_noise data;
  const pg::emulated device;
  device.device().share_memory();
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  network net{device, pg::kaiming_uniform{5}};
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
  trainer.step(data.view());
  const auto trained_on = [&](float factor) {
    for (float& value : data.inputs) value *= factor;
    const std::vector<float> before(net.parameters().begin(), net.parameters().end());
    trainer.step(data.view());
    return std::vector<float>(net.parameters().begin(), net.parameters().end()) != before;
  };
  BOOST_TEST(trained_on(0.5F));
  data.targets[17] = 3;  // no class of this network's: a device would look for it behind its values
  data.inputs[18 * network::input_shape.size()] = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(trained_on(2));
  for (const float value : net.parameters()) BOOST_REQUIRE(std::isfinite(value));
  // A step that fails waits as well: the caller may free its records then.
  const std::size_t waits = device.device().counted().waits;
  device.device().fail_after(2);
  BOOST_CHECK_THROW(trainer.step(data.view()), std::runtime_error);
  BOOST_TEST(device.device().counted().waits > waits);
}

BOOST_AUTO_TEST_CASE(no_bit_depends_on_the_physical_batch_or_on_the_order_of_threads) {
  auto options = usual_options();
  const pg::emulated device;
  const auto wanted = trained(device, options, 6);
  check_same(trained(device, options, 6), wanted, "again");
  for (const std::size_t size : {1U, 5U, 32U, 300U}) {
    options.max_batch = pg::max_batch{size};
    check_same(trained(device, options, 6), wanted, "physical batches of " + std::to_string(size));
  }
  check_same(trained(pg::emulated{emulation_order::reversed}, options, 6), wanted, "reversed");
  check_same(trained(pg::emulated{emulation_order::shuffled}, options, 6), wanted, "shuffled");
}

BOOST_AUTO_TEST_CASE(with_tf32_training_is_nearly_the_same_and_its_bits_do_not_know_the_physical_batch) {
  auto options = usual_options();
  const pg::emulated device{pg::device_options{.tf32 = true}};
  const auto wanted = trained(device, options, 4);
  const auto exact = trained(pg::emulated{}, options, 4);
  check_close(wanted, exact, 1e-2, "TF32");
  BOOST_TEST((wanted != exact));
  options.max_batch = pg::max_batch{7};
  check_same(trained(device, options, 4), wanted, "physical batches of 7");
}
BOOST_AUTO_TEST_CASE(with_bf16_training_is_nearly_the_same_and_its_bits_do_not_know_the_physical_batch) {
  auto options = usual_options();
  const pg::emulated_bf16 device;
  const auto wanted = trained(device, options, 4);
  const auto exact = trained(pg::emulated{}, options, 4);
  check_close(wanted, exact, 6e-2, "BF16");
  BOOST_TEST((wanted != exact));
  options.max_batch = pg::max_batch{7};
  check_same(trained(device, options, 4), wanted, "physical batches of 7");
  BOOST_CHECK_EXCEPTION(
      (pg::emulated_bf16{pg::device_options{.tf32 = true}}), std::invalid_argument, [](const std::exception& error) {
        return std::string{error.what()}.find("tf32 is no option where products take BF16") != std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing_replays_one_graph_and_marks_the_next_steps_records) {
  const records_of_noise data;
  const auto view = data.view();
  const pg::emulated device;
  network net{device, pg::kaiming_uniform{5}};
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
  trainer.step(view);  // brings the records to the device and captures
  const auto before = device.device().counted();
  const std::size_t heap_before = allocations;
  for (int step = 0; step < 5; ++step) trainer.step(view);
  const std::size_t heap_after = allocations;
  const auto after = device.device().counted();
  // What emulates the device has shared memory on the heap: one a kernel.
  BOOST_TEST(heap_after - heap_before == 4 * (after.replays - before.replays) + 5);
  BOOST_TEST(after.allocations == before.allocations);
  BOOST_TEST(after.captures == 1U);
  BOOST_TEST(after.replays == before.replays + 5);
  BOOST_TEST(after.launches == before.launches + 5);  // marks
  BOOST_TEST(after.uploads == before.uploads + 5);
  BOOST_TEST(after.downloads == before.downloads);
  BOOST_TEST(after.waits == before.waits);
}

BOOST_AUTO_TEST_CASE(an_empty_batch_is_noise_and_the_same_graph) {
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0}};
  const pg::host host{pg::threads{1}};
  const pg::emulated device;
  check_close(trained(device, options, 3), trained(host, options, 3), 1e-6, "noise alone");
}

BOOST_AUTO_TEST_CASE(parameters_follow_the_device_and_the_device_follows_them) {
  const records_of_noise data;
  const auto options = usual_options();
  const pg::host host{pg::threads{1}};
  const pg::emulated device;
  const auto run = [&](const auto& executor) {
    network net{executor, pg::kaiming_uniform{5}};
    std::vector<float> seen;
    std::vector<float> released;
    {
      pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
      trainer.step(data.view());
      for (const float value : std::as_const(net).parameters()) seen.push_back(value);
      for (float& value : net.parameters()) value *= 0.5F;  // the host writes between steps
      trainer.step(data.view());
      const auto update = trainer.last_update().values();
      released.assign(update.begin(), update.end());
      trainer.step(data.view());
      trainer.step(data.view());
    }
    // The trainer is gone; what it trained is not.
    for (const float value : net.parameters()) seen.push_back(value);
    return std::pair{seen, released};
  };
  const auto on_device = run(device);
  const auto on_host = run(host);
  check_close(on_device.first, on_host.first, 1e-5, "parameters");
  // What is released differs by whole steps of the grid: the device rounds each record to it, the host their sum. So
  // many records are in the largest of the batches that all of it stays below their number.
  const auto grid = pg::release_grid::of(options.clip->value(), network::parameter_count);
  BOOST_TEST(comparing::largest_difference(on_device.second, on_host.second) <=
             static_cast<double>(data.view().size()) * std::ldexp(1.0, grid.unit - grid.steps));
}

// The host's copy is older until the device has given all of it.
BOOST_AUTO_TEST_CASE(parameters_that_could_not_be_fetched_are_fetched_when_they_are_asked_for_again) {
  const records_of_noise data;
  const pg::emulated device;
  network net{device, pg::kaiming_uniform{5}};
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
  for (int step = 0; step < 4; ++step) trainer.step(data.view());
  device.device().fail_after(1);
  BOOST_CHECK_THROW(static_cast<void>(std::as_const(net).parameters()), std::runtime_error);
  const auto fetched = net.parameters();
  check_same(std::vector<float>(fetched.begin(), fetched.end()), trained(pg::emulated{}, usual_options(), 4),
             "fetched");
}

BOOST_AUTO_TEST_CASE(trainers_of_one_network_take_turns) {
  const records_of_noise data;
  const auto run = [&](const auto& executor) {
    network net{executor, pg::kaiming_uniform{5}};
    pg::dp_sgd first{executor, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
    pg::dp_sgd second{executor, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{10}};
    first.step(data.view());
    second.step(data.view());
    first.step(data.view());
    first.step(data.view());
    second.step(data.view());
    return std::vector<float>(net.parameters().begin(), net.parameters().end());
  };
  check_close(run(pg::emulated{}), run(pg::host{pg::threads{1}}), 1e-5, "by turns");
}

BOOST_AUTO_TEST_CASE(a_network_takes_what_was_trained_along_when_it_is_moved) {
  const records_of_noise data;
  const pg::emulated device;
  const auto wanted = trained(device, usual_options(), 1);
  const auto values = [](network& net) { return std::vector<float>(net.parameters().begin(), net.parameters().end()); };
  std::vector<network> kept;
  network assigned{device, pg::kaiming_uniform{6}};
  {
    network net{device, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
    trainer.step(data.view());
    kept.push_back(std::move(net));
    check_same(values(kept.front()), wanted, "moved");
    // NOLINTNEXTLINE(bugprone-use-after-move,hicpp-invalid-access-moved)
    BOOST_CHECK_THROW(static_cast<void>(net.all_parameters()), std::logic_error);
    BOOST_CHECK_THROW(trainer.step(data.view()), std::logic_error);
    net = network{device, pg::kaiming_uniform{5}};
    trainer.step(data.view());  // goes on with what the network is now
    BOOST_TEST((values(net) != wanted));
    assigned = std::move(net);
  }
  check_same(values(kept.front()), wanted, "after the trainer is gone");
  for (const float value : values(assigned)) BOOST_REQUIRE(std::isfinite(value));
  BOOST_TEST(assigned.parameters().size() == network::parameter_count);
}

// Without noise and with every record in every batch, a step's numbers do not depend on the generator's steps.
BOOST_AUTO_TEST_CASE(a_step_that_fails_halfway_leaves_nothing_behind) {
  const records_of_noise data;
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  options.noise = pg::noise_multiplier{0};
  options.divisor = pg::expected_batch_size{300};
  options.max_batch = pg::max_batch{100};  // three physical batches: an upload and a replay each
  options.optimizer = pg::optimizer_kind::adam;
  const auto run = [&](std::size_t failure) {
    const pg::emulated device;
    network net{device, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    trainer.step(data.view());
    if (failure > 0) {
      device.device().fail_after(failure);
      BOOST_CHECK_THROW(trainer.step(data.view()), std::runtime_error);
    }
    trainer.step(data.view());
    return std::vector<float>(net.parameters().begin(), net.parameters().end());
  };
  const auto wanted = run(0);
  for (const std::size_t failure : {1U, 2U, 3U, 4U, 5U, 6U}) {
    check_same(run(failure), wanted, "call " + std::to_string(failure) + " of a step failed");
  }
}
BOOST_AUTO_TEST_CASE(a_first_step_that_fails_anywhere_can_be_repeated) {
  const records_of_noise data;
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  options.noise = pg::noise_multiplier{0};
  const auto run = [&](std::size_t failure) {
    const pg::emulated device;
    network net{device, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    if (failure > 0) {
      device.device().fail_after(
          failure);  // parameters, inputs, targets, three launches of the capture, the first batch
      BOOST_CHECK_THROW(trainer.step(data.view()), std::runtime_error);
      for (const float value : trainer.last_update().values()) BOOST_REQUIRE(value == 0);
    }
    trainer.step(data.view());
    return std::vector<float>(net.parameters().begin(), net.parameters().end());
  };
  const auto wanted = run(0);
  for (std::size_t failure = 1; failure <= 8; ++failure) {
    check_same(run(failure), wanted, "call " + std::to_string(failure) + " of the first step failed");
  }
}
BOOST_AUTO_TEST_CASE(records_that_change_in_place_are_copied_again_when_the_trainer_is_told) {
  const auto options = usual_options();
  const auto run = [&](const auto& executor, bool tells) {
    records_of_noise data;
    network net{executor, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    trainer.step(data.view());
    for (float& value : data.inputs) value *= 0.5F;
    if (tells) trainer.records_changed();
    trainer.step(data.view());
    return std::vector<float>(net.parameters().begin(), net.parameters().end());
  };
  const auto wanted = run(pg::host{pg::threads{1}}, true);
  check_same(run(pg::host{pg::threads{1}}, false), wanted, "the host reads the memory itself");
  check_close(run(pg::emulated{}, true), wanted, 1e-5, "told");
  BOOST_TEST((run(pg::emulated{}, false) != run(pg::emulated{}, true)));
}

// Memory that was freed may be given to the next data set: the copy of the one before is not its.
BOOST_AUTO_TEST_CASE(another_data_set_of_the_same_arrays_is_copied) {
  const auto run = [&](const auto& executor) {
    records_of_noise data;
    network net{executor, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
    trainer.step(data.view());
    for (float& value : data.inputs) value *= 0.5F;
    trainer.step(pg::dataset<float, std::int32_t>{data.inputs, data.targets, network::input_shape});
    return std::vector<float>(net.parameters().begin(), net.parameters().end());
  };
  check_close(run(pg::emulated{}), run(pg::host{pg::threads{1}}), 1e-5, "another data set");
}

BOOST_AUTO_TEST_CASE(private_metrics_are_the_hosts) {
  const records_of_noise data;
  auto options = usual_options();
  options.private_metrics = true;
  options.max_batch = pg::max_batch{8};
  const auto metrics = [&](const auto& executor) {
    network net{executor, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    trainer.step(data.view());
    const pg::step_metrics found = pg::unprotected::metrics(trainer);
    return std::vector<double>{found.mean_loss, found.mean_norm, static_cast<double>(found.batch_size),
                               static_cast<double>(found.clipped), static_cast<double>(found.non_finite) + 1};
  };
  check_close(metrics(pg::emulated{}), metrics(pg::host{pg::threads{1}}), 1e-6, "metrics");
}

BOOST_AUTO_TEST_CASE(small_networks_take_few_nodes) {
  using task_a = pg::network<pg::shape{1, 12, 12}, pg::conv2d<8, 3>, pg::relu, pg::max_pool2d<2>, pg::flatten,
                             pg::linear<16>, pg::relu, pg::linear<10>>;
  static_assert(!pg::on_device::program<task_a>::layered);
  const pg::emulated device;
  task_a net{device, pg::kaiming_uniform{5}};
  pg::tape<task_a> tape{device, pg::max_batch{4}};
  pg::on_device::trainer<task_a, pg::cross_entropy, pg::on_device::emulated_device> trainer{
      device, net, {}, tape, pg::detail::settled<float>(usual_options(), true), 0.7};
  const std::vector<float> inputs(2 * task_a::input_shape.size(), 0.5F);
  const std::vector<std::int32_t> targets(2, 1);
  trainer.clip_with(pg::detail::flat_clip{0.7});
  const pg::seeded_generator generator{1};
  trainer.prepare({inputs, targets, task_a::input_shape}, generator.stream<pg::detail::randomness::noise>(0), {});
  BOOST_TEST(trainer.node_count() <= 12U);
  BOOST_TEST(trainer.node_count() == 4U);
}

// The memory may have changed since a step failed before all records were on the device.
BOOST_AUTO_TEST_CASE(records_that_were_not_copied_are_looked_at_again) {
  const pg::emulated device;
  records_of_noise data;
  const auto records = data.view();
  network net{device, pg::kaiming_uniform{5}};
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{9}};
  device.device().fail_after(2);
  BOOST_CHECK_THROW(trainer.step(records), std::exception);
  data.targets[3] = 1 << 20;  // no class
  BOOST_CHECK_THROW(trainer.step(records), std::invalid_argument);
  data.targets[3] = 2;
  trainer.step(records);
}

BOOST_AUTO_TEST_SUITE_END()
