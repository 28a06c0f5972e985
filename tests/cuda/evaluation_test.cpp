// SPDX-License-Identifier: Apache-2.0
// tests/cuda/evaluation_test.cpp - what a device says of per-sample gradients is what the host says
#include "device_fixture.hpp"

BOOST_AUTO_TEST_SUITE(cuda_evaluation)

namespace {

using namespace device_fixture;

}  // namespace

BOOST_AUTO_TEST_CASE(a_perceptron_is_the_hosts) {
  compare<mlp<float>, pg::mean_squared_error>("mlp, float");
  compare_layers<mlp<double>, pg::binary_cross_entropy_with_logits>("mlp, double");
}
BOOST_AUTO_TEST_CASE(a_convolutional_network_is_the_hosts) {
  compare_layers<cnn<float>, pg::cross_entropy>("cnn, float");
  compare<cnn<double>, pg::cross_entropy>("cnn, double");
}
BOOST_AUTO_TEST_CASE(positions_averages_and_the_users_layers_are_the_hosts) {
  compare<mixed<double>, pg::mean_squared_error>("mixed, double");
}

BOOST_AUTO_TEST_CASE(several_results_of_one_evaluation_and_sums_that_are_added) {
  both<cnn<double>, pg::cross_entropy> it{6};
  const auto gradients = it.on_device();
  std::vector<double> total(cnn<double>::parameter_count, 1.0);
  std::vector<double> norms(6);
  std::vector<double> losses(6);
  pg::unprotected::evaluate_into(it.device, pg::accumulate(total, pg::sum(gradients)),
                                 pg::assign(norms, pg::l2_norms(gradients)), pg::assign(losses, pg::losses(gradients)));
  std::vector<double> wanted = pg::unprotected::evaluate(it.host, pg::sum(it.on_host()));
  for (double& value : wanted) value += 1;
  check_close(total, wanted, 1e-12, "accumulated");
  check_close(norms, pg::unprotected::evaluate(it.host, pg::l2_norms(it.on_host())), 1e-12, "norms");
  check_close(losses, pg::unprotected::evaluate(it.host, pg::losses(it.on_host())), 1e-12, "losses");
}

BOOST_AUTO_TEST_CASE(every_strategy_gives_the_hosts_numbers) {
  compare_strategies<mlp<double>, pg::mean_squared_error>("mlp");
  compare_strategies<cnn<double>, pg::cross_entropy>("cnn");
}

BOOST_AUTO_TEST_CASE(proofs_are_not_of_what_a_device_computes) {
  both<mlp<float>, pg::mean_squared_error> it{6};
  const auto proven = [](const auto& g) { return pg::sum(pg::detail::gated_clip::proven(g, pg::l2_clip_norm{100.0})); };
  BOOST_CHECK_NO_THROW(static_cast<void>(pg::unprotected::evaluate(it.host, proven(it.on_host()))));
  BOOST_CHECK_THROW(static_cast<void>(pg::unprotected::evaluate(it.device, proven(it.on_device()))),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(predictions_are_the_hosts) {
  both<cnn<double>, pg::cross_entropy> it{6};
  const pg::public_records records{it.inputs};
  check_close(pg::predict(it.device, it.net, records), pg::predict(it.host, it.net, records), 1e-12, "predictions");
}

// As many records as take two chunks.
BOOST_AUTO_TEST_CASE(an_evaluation_brings_the_parameters_once_and_none_if_a_trainer_has_them) {
  using network = pg::network<pg::shape{6}, pg::linear<3>, pg::relu, pg::linear<2>>;
  constexpr std::size_t count = 1030;
  std::vector<float> inputs(count * 6);
  std::mt19937 random{1};
  std::uniform_real_distribution<float> uniform{-1, 1};
  for (float& value : inputs) value = uniform(random);
  std::vector<std::int32_t> classes(count);
  for (std::size_t i = 0; i < count; ++i) classes[i] = inputs[6 * i] > inputs[6 * i + 1] ? 1 : 0;
  const pg::dataset<float, std::int32_t> records{inputs, classes, network::input_shape};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.05}};
  options.divisor = pg::expected_batch_size{50};
  options.learning_rate = pg::learning_rate{0.5};
  const pg::emulated device;
  network net{device, pg::kaiming_uniform{5}};
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
  struct cost {
    pg::classifier_result result;
    std::size_t uploaded, downloads;
  };
  const auto judge = [&] {
    const auto before = device.device().counted();
    const auto result = pg::unprotected::evaluate_classifier(device, net, records);
    const auto after = device.device().counted();
    return cost{result, after.uploaded_bytes - before.uploaded_bytes, after.downloads - before.downloads};
  };
  const auto by_host = [&] { return pg::unprotected::evaluate_classifier(pg::host{pg::threads{1}}, net, records); };
  const cost untrained = judge();
  for (int step = 0; step < 3; ++step) trainer.step(records);
  const cost there = judge();
  BOOST_TEST(there.downloads == 4U);  // losses and outputs
  BOOST_TEST(untrained.uploaded - there.uploaded == network::parameter_count * sizeof(float));
  BOOST_TEST(there.result.mean_loss != untrained.result.mean_loss);
  BOOST_TEST(there.result.mean_loss == by_host().mean_loss, boost::test_tools::tolerance(1e-5));
  for (float& value : net.parameters()) value *= 0.5F;  // now the host has newer ones
  const cost halved = judge();
  BOOST_TEST(halved.uploaded == untrained.uploaded);
  BOOST_TEST(halved.result.mean_loss == by_host().mean_loss, boost::test_tools::tolerance(1e-5));
  trainer.step(records);
  const pg::emulated other;
  BOOST_TEST(pg::unprotected::evaluate_classifier(other, net, records).mean_loss == judge().result.mean_loss);
}

BOOST_AUTO_TEST_CASE(a_tape_for_evaluation_has_no_room_for_gradients_and_large_samples_share_it_with_few) {
  using network = mlp<float>;
  const pg::emulated device;
  const pg::tape<network> whole{device, pg::max_batch{64}};
  const pg::tape<network> small{device, pg::detail::forward_only{64}};
  BOOST_TEST(small.capacity() == 64U);
  // Parameters, gradients of two accumulators at least, and an optimizer's state are left out.
  BOOST_TEST(small.bytes() + 8 * network::parameter_count * sizeof(float) <= whole.bytes());
  auto net = pg::on_device::facts_of<network>;
  net.workspace = 36 << 20;  // 150 MB, as of VGG16 on 256 x 256
  BOOST_TEST(pg::on_device::evaluated_together(net, sizeof(float), 1024) == 7U);
  net.workspace = 1 << 29;
  BOOST_TEST(pg::on_device::evaluated_together(net, sizeof(float), 1024) == 1U);
}

BOOST_AUTO_TEST_CASE(a_private_loop_releases_what_one_on_the_host_does) {
  using network = mlp<float>;
  both<network, pg::mean_squared_error> it{40};
  const pg::dataset<float, float> records{it.inputs, it.targets, network::input_shape, 2};
  pg::private_options options;
  options.clip = pg::l2_clip_norm{0.5};
  options.noise = pg::noise_multiplier{1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{20};
  options.max_batch = pg::max_batch{6};
  const auto released = [&](const auto& executor) {
    pg::private_loop<network, pg::mean_squared_error, pg::seeded_generator, std::remove_cvref_t<decltype(executor)>>
        loop{executor, it.net, pg::mean_squared_error{}, options, pg::seeded_generator{9}};
    pg::unprotected::rehearsed_gradient<network> update{executor};
    auto step = loop.begin(records);
    std::size_t batches = 0;
    while (step.next()) {
      ++batches;
      pg::evaluate_into(executor, pg::accumulate(step, pg::sum(pg::clip(step.gradients(), *options.clip))));
    }
    BOOST_TEST(batches > 1U);
    pg::evaluate_into(executor, update, std::move(step));
    return std::vector<float>(update.values().begin(), update.values().end());
  };
  const auto grid = pg::release_grid::of(0.5, network::parameter_count);
  BOOST_TEST(comparing::largest_difference(released(it.device), released(it.host)) <=
             21 * std::ldexp(1.0, grid.unit - grid.steps));
}

BOOST_AUTO_TEST_CASE(a_release_has_the_hosts_noise) {
  both<mlp<float>, pg::mean_squared_error> it{5};
  pg::unprotected::rehearsed_gradient<mlp<float>> of_device{it.device};
  pg::unprotected::rehearsed_gradient<mlp<float>> of_host{it.host};
  pg::seeded_generator first{4};
  pg::seeded_generator second{4};
  pg::evaluate_into(it.device, of_device,
                    pg::sum(pg::clip(it.on_device(), pg::l2_clip_norm{1})) +
                        pg::unaccounted::gaussian_noise(pg::noise_multiplier{2}, first));
  pg::evaluate_into(it.host, of_host,
                    pg::sum(pg::clip(it.on_host(), pg::l2_clip_norm{1})) +
                        pg::unaccounted::gaussian_noise(pg::noise_multiplier{2}, second));
  // The same integers of noise. The device rounds each of five records to the grid, the host their sum.
  const auto grid = pg::release_grid::of(1, mlp<float>::parameter_count);
  const double step = std::ldexp(1.0, grid.unit - grid.steps);
  const double worst =
      comparing::largest_difference(std::vector<float>(of_device.values().begin(), of_device.values().end()),
                                    std::vector<float>(of_host.values().begin(), of_host.values().end()));
  BOOST_TEST(worst <= 3 * step);
}

BOOST_AUTO_TEST_CASE(an_empty_batch_sums_to_zero) {
  both<cnn<float>, pg::cross_entropy> it{0};
  for (const float value : it.evaluate(pg::sum(pg::clip(it.on_device(), pg::l2_clip_norm{1})))) BOOST_TEST(value == 0);
  BOOST_TEST(it.evaluate(pg::l2_norms(it.on_device())).empty());
}

// The norm of what is added for a sample: the sum over a batch of one, and its clipped row, squared in long double.
template <class Device = pg::emulated>
void check_clip_bound(const pg::device_options& options) {
  using network = cnn<float>;
  both<network, pg::cross_entropy, Device> it{8, emulation_order::forward, 3, options};
  for (const double scale : {1e-30, 1e-3, 1.0, 1e3, 1e15}) {
    for (float& value : it.inputs) value = static_cast<float>(static_cast<double>(value) * scale);
    for (const double bound : {1e-6, 0.25, 1e3}) {
      const auto check = [&](const auto& gradients, const char* how) {
        const auto rows = it.evaluate(pg::materialise(pg::clip(gradients, pg::l2_clip_norm{bound})));
        for (std::size_t b = 0; b < 8; ++b) {
          const auto row = std::span{rows}.subspan(b * network::parameter_count, network::parameter_count);
          BOOST_TEST(norm_of(row) <= static_cast<long double>(bound), how << ", row " << b << " at scale " << scale);
        }
        const auto one =
            pg::batch<network, pg::cross_entropy>{std::span<const float>{it.inputs}.first(network::input_shape.size()),
                                                  std::span<const std::int32_t>{it.targets}.first(1)};
        const auto alone = pg::per_sample_gradients(it.net, pg::cross_entropy{}, one, it.device_tape)
                               .with(gradients.method(), ~std::uint64_t{0});
        const auto sum = it.evaluate(pg::sum(pg::clip(alone, pg::l2_clip_norm{bound})));
        BOOST_TEST(norm_of(sum) <= static_cast<long double>(bound), how << ", sum at scale " << scale);
      };
      check(it.on_device(), "planned");
      check(pg::with_method<pg::norm_method::gram>(it.on_device()), "gram");
      check(pg::with_method<pg::norm_method::direct>(it.on_device()), "direct");
    }
    for (float& value : it.inputs) value = static_cast<float>(static_cast<double>(value) / scale);
  }
}
BOOST_AUTO_TEST_CASE(what_is_added_for_a_sample_is_within_the_bound) { check_clip_bound({}); }
BOOST_AUTO_TEST_CASE(what_is_added_for_a_sample_is_within_the_bound_with_tf32) { check_clip_bound({.tf32 = true}); }
BOOST_AUTO_TEST_CASE(what_is_added_for_a_sample_is_within_the_bound_with_bf16) {
  check_clip_bound<pg::emulated_bf16>({});
}

template <class Device>
void norms_and_sums_see_the_numbers_that_are_stored(const pg::device_options& options,
                                                    pg::on_device::stored_format format, double rounding) {
  using network = mlp<float>;
  both<network, pg::mean_squared_error, Device> it{6, emulation_order::forward, 3, options};
  const auto rows = it.evaluate(pg::materialise(it.on_device()));
  std::vector<double> norms(6);
  std::size_t unlike = 0;
  for (std::size_t b = 0; b < 6; ++b) {
    const auto row = std::span{rows}.subspan(b * network::parameter_count, network::parameter_count);
    for (const float value : row) norms[b] += static_cast<double>(value) * static_cast<double>(value);
    norms[b] = std::sqrt(norms[b]);
    for (std::size_t o = 0; o < 9; ++o) {  // of the first layer: the bias' gradient is delta, and 22 bits are exact
      const float delta = row[9 * 6 + o];
      unlike += delta == pg::on_device::stored_as(format, delta) ? 0U : 1U;
      for (std::size_t i = 0; i < 6; ++i) {
        unlike += row[o * 6 + i] == delta * pg::on_device::stored_as(format, it.inputs[b * 6 + i]) ? 0U : 1U;
      }
    }
  }
  BOOST_TEST(unlike == 0U);
  for (const pg::norm_method method : {pg::norm_method::product, pg::norm_method::gram, pg::norm_method::direct}) {
    check_close(it.evaluate(pg::l2_norms(it.on_device().with(method, ~std::uint64_t{0}))), norms, 1e-12, "norms");
  }
  const auto exact = pg::unprotected::evaluate(it.host, pg::l2_norms(it.on_host()));
  check_close(norms, exact, rounding, "norms without rounding");
  BOOST_TEST((norms != exact));
}
BOOST_AUTO_TEST_CASE(with_tf32_norms_and_sums_see_the_numbers_that_are_stored) {
  norms_and_sums_see_the_numbers_that_are_stored<pg::emulated>({.tf32 = true}, pg::on_device::stored_format::tf32,
                                                               5e-3);
}
BOOST_AUTO_TEST_CASE(with_bf16_norms_and_sums_see_the_numbers_that_are_stored) {
  norms_and_sums_see_the_numbers_that_are_stored<pg::emulated_bf16>({}, pg::on_device::stored_format::bf16, 4e-2);
}

BOOST_AUTO_TEST_CASE(a_sample_does_not_touch_the_others_bits) {
  using network = cnn<float>;
  both<network, pg::cross_entropy> it{7};
  const auto rows_before = it.evaluate(pg::materialise(it.on_device()));
  const auto norms_before = it.evaluate(pg::l2_norms(it.on_device()));
  for (const float poison : {5.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> kept = it.inputs;
    for (std::size_t i = 0; i < network::input_shape.size(); ++i)
      it.inputs[3 * network::input_shape.size() + i] = poison;
    const auto rows = it.evaluate(pg::materialise(it.on_device()));
    const auto norms = it.evaluate(pg::l2_norms(it.on_device()));
    std::size_t different = 0;
    for (std::size_t b = 0; b < 7; ++b) {
      if (b == 3) continue;
      different += norms[b] == norms_before[b] ? 0U : 1U;
      for (std::size_t i = b * network::parameter_count; i < (b + 1) * network::parameter_count; ++i) {
        different += rows[i] == rows_before[i] ? 0U : 1U;
      }
    }
    BOOST_TEST(different == 0U);
    it.inputs = kept;
  }
}

BOOST_AUTO_TEST_CASE(a_sample_that_is_not_finite_contributes_exactly_zero) {
  using network = cnn<float>;
  both<network, pg::cross_entropy> it{7};
  // The reference: the same sum with weight 0 for that sample.
  std::vector<float> weights(7, 1.0F);
  weights[3] = 0;
  const pg::l2_clip_norm bound{1e6};  // nothing else is scaled
  const auto wanted = it.evaluate(pg::weighted_sum(it.on_device(), std::span<const float>{weights}));
  for (const float poison : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> kept = it.inputs;
    for (std::size_t i = 0; i < network::input_shape.size(); ++i)
      it.inputs[3 * network::input_shape.size() + i] = poison;
    check_same(it.evaluate(pg::sum(pg::clip(it.on_device(), bound))), wanted, "flat");
    check_same(it.evaluate(pg::sum(pg::clip_per_layer(it.on_device(), bound))), wanted, "per layer");
    it.inputs = kept;
  }
}

BOOST_AUTO_TEST_CASE(no_bit_depends_on_the_order_of_threads_and_blocks) {
  const auto results = [](emulation_order order) {
    both<cnn<float>, pg::cross_entropy> it{9, order};
    const auto gradients = it.on_device();
    std::vector<float> all = it.evaluate(pg::materialise(gradients));
    const auto sum =
        it.evaluate(pg::sum(pg::clip(pg::with_method<pg::norm_method::gram>(gradients), pg::l2_clip_norm{1})));
    const auto norms = it.evaluate(pg::l2_norms(pg::with_method<pg::norm_method::gram>(gradients)));
    all.insert(all.end(), sum.begin(), sum.end());
    for (const double norm : norms) all.push_back(static_cast<float>(norm));
    return all;
  };
  const auto forward = results(emulation_order::forward);
  check_same(results(emulation_order::reversed), forward, "reversed");
  check_same(results(emulation_order::shuffled), forward, "shuffled");
}

BOOST_AUTO_TEST_CASE(a_tape_is_one_allocation_of_the_size_that_the_type_says) {
  pg::emulated device;
  const std::size_t before = device.device().counted().allocations;
  const pg::tape<cnn<float>> tape{device, pg::max_batch{17}};
  BOOST_TEST(device.device().counted().allocations == before + 1);
  constexpr std::size_t bytes = cnn<float>::device_bytes<17>;
  BOOST_TEST(tape.bytes() == bytes);
  BOOST_TEST(device.device().counted().allocated_bytes == bytes);
}

BOOST_AUTO_TEST_CASE(a_batch_whose_positions_an_int_cannot_count_is_refused_before_anything_is_allocated) {
  using network = cnn<float>;
  constexpr std::size_t most = pg::on_device::most_batch<network>;
  static_assert(most > 1'000'000 && most * 72 < (std::size_t{1} << 31U));  // the first layer has 9 x 8 positions
  const pg::emulated device;
  for (const std::size_t count : {most + 1, std::numeric_limits<std::size_t>::max()}) {
    BOOST_CHECK_EXCEPTION(pg::tape<network>(device, pg::max_batch{count}), std::invalid_argument,
                          [&](const auto& error) {
                            return std::string{error.what()}.starts_with("pergrad: tape: max_batch is " +
                                                                         std::to_string(count) + ", but");
                          });
  }
  BOOST_TEST(device.device().counted().allocations == 0U);
}

BOOST_AUTO_TEST_CASE(a_tape_of_another_executor_is_refused) {
  both<mlp<float>, pg::mean_squared_error> it{3};
  const pg::emulated other;
  BOOST_CHECK_THROW(pg::unprotected::evaluate(it.host, pg::losses(it.on_device())), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate(it.device, pg::losses(it.on_host())), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate(other, pg::losses(it.on_device())), std::invalid_argument);
}

// As on GPUs without memory of their own: of an evaluation the numbers of its samples are uploaded, not the samples.
BOOST_AUTO_TEST_CASE(a_device_that_shares_the_host_s_memory_gets_no_copies_of_samples) {
  const auto compare_uploads = []<class Network>(std::type_identity<Network>) {
    constexpr std::size_t count = 9;
    std::mt19937 random{7};
    std::vector<float> inputs(count * Network::input_shape.size());
    for (float& value : inputs) value = static_cast<float>(random() % 1000) / 1000;
    std::vector<std::int32_t> classes(count);
    for (std::size_t b = 0; b < count; ++b) classes[b] = static_cast<std::int32_t>(b % 3);
    const pg::batch<Network, pg::cross_entropy> samples{inputs, classes};
    const auto found = [&](bool shares, pg::strategy how) {
      const pg::emulated device;
      if (shares) device.device().share_memory();
      const Network net{device, pg::kaiming_uniform{5}};
      pg::tape<Network> tape{device, pg::max_batch{count}};
      const std::size_t before = device.device().counted().uploaded_bytes;
      const auto gradients = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape).with(how);
      const auto sum = pg::unprotected::evaluate(device, pg::sum(pg::clip(gradients, pg::l2_clip_norm{0.1})));
      return std::pair{sum, device.device().counted().uploaded_bytes - before};
    };
    for (const pg::strategy how : {pg::strategy::book_keeping, pg::strategy::ghost, pg::strategy::naive}) {
      const auto [there, copied] = found(false, how);
      const auto [here, announced] = found(true, how);
      BOOST_TEST((here == there));
      BOOST_TEST(copied - announced == inputs.size() * sizeof(float) + classes.size() * sizeof(std::int32_t));
    }
  };
  using fused = pg::network<pg::shape{1, 12, 12}, pg::conv2d<4, 3>, pg::relu, pg::flatten, pg::linear<3>>;
  using layered = pg::network<pg::shape{144}, pg::linear<64>, pg::relu, pg::linear<3>>;
  static_assert(!pg::on_device::program<fused>::layered && pg::on_device::program<layered>::layered);
  compare_uploads(std::type_identity<fused>{});
  compare_uploads(std::type_identity<layered>{});
}

BOOST_AUTO_TEST_SUITE_END()
