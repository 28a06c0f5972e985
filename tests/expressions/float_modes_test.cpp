// SPDX-License-Identifier: Apache-2.0
// tests/expressions/float_modes_test.cpp - bounds are proven for rounding to nearest with subnormal numbers. Whatever a
// caller's thread is set to, every result has the bits of the default, and the caller finds its thread as it left it.
#include <algorithm>
#include <cfenv>
#include <functional>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_float_modes)

namespace {

using namespace fixture;
using bits = std::vector<double>;

/// How a thread is set, while this lives.
class thread_mode {
 public:
  thread_mode(int rounding, [[maybe_unused]] bool flushes) {
#if defined(__SSE__)
    before_ = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(flushes ? before_ | flush : before_ & ~flush);
#endif
    std::fesetround(rounding);
    rounding_ = rounding;
    flushes_ = flushes;
  }
  thread_mode(const thread_mode&) = delete;
  thread_mode& operator=(const thread_mode&) = delete;
  ~thread_mode() {
    std::fesetround(rounding_before_);
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr(before_);
#endif
  }
  /// Whether nobody has changed it.
  [[nodiscard]] bool still_holds() const {
#if defined(__SSE__)
    if (((__builtin_ia32_stmxcsr() & flush) == flush) != flushes_) return false;
#endif
    return rounding_now() == rounding_;
  }
  /// Of vector registers: std::fegetround asks another unit on x86.
  [[nodiscard]] static int rounding_now() {
#if defined(__SSE__)
    return static_cast<int>(__builtin_ia32_stmxcsr() >> 3U & 0xc00U);
#else
    return std::fegetround();
#endif
  }

 private:
  static constexpr unsigned flush = 0x8040;
  unsigned before_ = 0;
  int rounding_before_ = std::fegetround();
  int rounding_ = 0;
  bool flushes_ = false;
};

/// Calls f(mode, name) under every mode but the default.
template <class Function>
void under_every_mode(const Function& f) {
  const std::pair<int, const char*> roundings[]{
      {FE_DOWNWARD, "down"}, {FE_UPWARD, "up"}, {FE_TOWARDZERO, "to zero"}, {FE_TONEAREST, "to nearest"}};
  for (const auto& [rounding, name] : roundings) {
    for (const bool flushes : {false, true}) {
      if (rounding == FE_TONEAREST && !flushes) continue;
      f(rounding, flushes, std::string{name} + (flushes ? ", flushed" : ""));
    }
  }
}

void append(bits& to, const auto& values) {
  const thread_mode as_usual{FE_TONEAREST, false};  // a float that is flushed would not become the same double
  to.insert(to.end(), values.begin(), values.end());
}

/// The same bits in all modes, and the mode stays. `make` makes all that `f` uses, threads of the pool included.
void check_all_modes(const std::function<bits()>& f, const std::string& what) {
  const bits wanted = f();
  BOOST_TEST_REQUIRE(wanted.size() > 10U, what);
  under_every_mode([&](int rounding, bool flushes, const std::string& name) {
    bits found;
    bool held = false;
    {
      const thread_mode mode{rounding, flushes};
      found = f();
      held = mode.still_holds();
    }
    BOOST_TEST(held, what << ", rounding " << name);
    check_same_bits(found, wanted, what + ", rounding " + name);
  });
}

/// Data of one size, made in the default mode.
template <class Network>
struct scaled : samples<Network, pg::mean_squared_error> {
  scaled(std::size_t count, double scale) : samples<Network, pg::mean_squared_error>{count, 3} {
    for (auto& value : this->inputs) value = static_cast<typename Network::scalar>(static_cast<double>(value) * scale);
  }
};

template <class Network>
bits everything(const scaled<Network>& data, std::size_t threads) {
  using scalar = typename Network::scalar;
  const pg::host exec{pg::threads{threads}};
  Network net{exec, pg::kaiming_uniform{5}};
  pg::tape<Network> tape{exec, pg::max_batch{data.size()}};
  const auto batch = data.batch();
  const auto g = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
  const pg::l2_clip_norm bound{0.3};
  bits all;
  append(all, net.parameters());
  append(all, pg::unprotected::evaluate(exec, pg::losses(g)));
  append(all, pg::unprotected::evaluate(exec, pg::l2_norms(g)));
  append(all, pg::unprotected::evaluate(exec, pg::outputs(g)));
  append(all, pg::unprotected::evaluate(exec, pg::mean(g)));
  append(all, pg::unprotected::evaluate(exec, pg::variance(g)));
  append(all, pg::unprotected::evaluate(exec, pg::sum(pg::clip(g, bound))));
  append(all, pg::unprotected::evaluate(exec, pg::sum(pg::clip_per_layer(g, bound))));
  append(all, pg::unprotected::evaluate(exec, pg::materialise(pg::clip(g, bound))));
  append(all, pg::unprotected::evaluate(exec, pg::l2_norms(pg::with_method<pg::norm_method::gram>(g))));

  pg::seeded_generator generator{4};
  pg::unprotected::rehearsed_gradient<Network> update{exec};
  const auto noise = pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.3}, generator);
  const pg::expected_batch_size divisor{7};
  pg::evaluate_into(exec, update, (pg::sum(pg::clip_per_layer(g, bound)) + noise) / divisor);
  append(all, update.values());
  for (const std::size_t capacity : {data.size(), std::size_t{1} << 22U}) {  // the second is added up as integers
    pg::bounded_total<Network> total{exec, pg::record_capacity{capacity}};
    pg::evaluate_into(exec, pg::accumulate(total, pg::sum(pg::normalise(g, bound))));
    pg::evaluate_into(exec, update, total + noise);
    append(all, update.values());
    pg::sgd<Network> sgd{pg::learning_rate{0.1}, 0.9};
    pg::adam<Network> adam{pg::learning_rate{0.01}};
    for (int i = 0; i < 2; ++i) {
      sgd.step(exec, net, total + noise, divisor);
      sgd.step(exec, net, update, divisor);
      adam.step(exec, net, update, total + noise, divisor);
    }
    append(all, net.parameters());
  }
  pg::unprotected::gradient<Network> plain{exec};
  pg::unprotected::evaluate_into(exec, plain, pg::mean(g));
  pg::adam<Network> adam{pg::learning_rate{0.01}};
  pg::unprotected::step(adam, exec, net, plain, 0.1);
  append(all, net.parameters());
  append(all, pg::unprotected::predict(exec, net, std::span<const scalar>{data.inputs}));
  return all;
}

template <class Trainer>
bits trained(const scaled<mlp<float>>& data, const pg::dp_sgd_options& options, const Trainer& train) {
  const pg::host exec{pg::threads{2}};
  mlp<float> net{exec, pg::kaiming_uniform{5}};
  bits all;
  train(exec, net, options, data, all);
  append(all, net.parameters());
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_verb_has_the_bits_of_the_default) {
  for (const std::size_t threads : {1U, 3U}) {
    for (const double scale : {1.0, 1e-39}) {  // the second: subnormal inputs of floats
      const scaled<mlp<float>> floats{40, scale};
      check_all_modes([&] { return everything(floats, threads); }, "floats of " + std::to_string(scale));
      const scaled<mlp<double>> doubles{40, scale == 1 ? 1.0 : 1e-310};
      check_all_modes([&] { return everything(doubles, threads); }, "doubles of " + std::to_string(scale));
    }
  }
}

BOOST_AUTO_TEST_CASE(trainers_and_ledgers_too) {
  const scaled<mlp<float>> data{100, 1};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{0.3};
  options.noise = pg::noise_multiplier{1.1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.2}};
  options.divisor = pg::expected_batch_size{21};
  options.learning_rate = pg::learning_rate{0.05};
  options.max_batch = pg::max_batch{8};
  options.budget = pg::privacy_budget{pg::epsilon{20}, pg::delta{1e-5}};
  const auto records = [](const auto& of) {
    return pg::dataset<float, float>{of.inputs, of.targets, mlp<float>::input_shape, 2};
  };
  const auto by_trainer = [&](const pg::host& exec, auto& net, const auto& chosen, const auto& of, bits& all) {
    pg::dp_sgd trainer{exec, net, pg::mean_squared_error{}, chosen, pg::seeded_generator{6}};
    for (int i = 0; i < 3; ++i) trainer.step(records(of));
    append(all, trainer.last_update().values());
    all.push_back(trainer.epsilon(pg::delta{1e-5}));
    const pg::step_metrics& seen = pg::unprotected::metrics(trainer);
    append(all, bits{seen.mean_loss, seen.mean_norm});
  };
  const auto by_hand = [&](const pg::host& exec, auto& net, const auto& chosen, const auto& of, bits& all) {
    pg::private_loop<mlp<float>, pg::mean_squared_error, pg::seeded_generator> loop{exec, net, pg::mean_squared_error{},
                                                                                    chosen, pg::seeded_generator{6}};
    pg::sgd<mlp<float>> optimizer{pg::learning_rate{0.05}};
    const auto lasting = records(of);
    for (int i = 0; i < 3; ++i) {
      auto step = loop.begin(lasting);
      while (step.next()) {
        const auto g = step.gradients();
        pg::evaluate_into(exec, pg::accumulate(step, pg::sum(pg::clip(g, *chosen.clip))));
      }
      optimizer.step(exec, net, std::move(step));
    }
    all.push_back(loop.epsilon(pg::delta{1e-5}));
  };
  check_all_modes([&] { return trained(data, options, by_hand); }, "a loop by hand");
  options.private_metrics = true;
  for (const auto kind : {pg::clipping_kind::flat, pg::clipping_kind::per_layer, pg::clipping_kind::automatic}) {
    options.clipping = kind;
    check_all_modes([&] { return trained(data, options, by_trainer); }, "a trainer");
  }
  options.optimizer = pg::optimizer_kind::adam;
  check_all_modes([&] { return trained(data, options, by_trainer); }, "a trainer with adam");
}

// Rounded down or to zero, a sum of squares that is too large for a float is the largest float and not infinite, and a
// gradient that is not left out would be clipped to a norm that is too small; with subnormal numbers flushed, norms
// would be 0.
BOOST_AUTO_TEST_CASE(the_clip_bound_holds_in_every_mode) {
  using flat = pg::network<pg::shape{64}, pg::linear<3>>;
  constexpr std::size_t count = 30;
  constexpr std::size_t width = flat::parameter_count;
  for (const double scale : {1e19, 3e19, 1e-22, 1e-39}) {
    samples<flat, pg::cross_entropy> data{count, 3};
    for (float& value : data.inputs) value = static_cast<float>((value < 0 ? -1 : 1) * scale);
    const pg::l2_clip_norm bound{scale < 1 ? 1e-30 : 1.0};
    under_every_mode([&](int rounding, bool flushes, const std::string& name) {
      std::vector<float> clipped;
      std::vector<float> normalised;
      {
        const thread_mode mode{rounding, flushes};
        problem<flat, pg::cross_entropy> p{count};  // threads begin as the thread is that makes them
        p.data.inputs = data.inputs;
        p.data.targets = data.targets;
        const auto batch = p.data.batch();
        const auto g = pg::per_sample_gradients(p.net, pg::cross_entropy{}, batch, p.tape);
        clipped = pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip(g, bound)));
        normalised = pg::unprotected::evaluate(p.exec, pg::materialise(pg::normalise(g, bound, 1e-100)));
      }
      BOOST_TEST(norm_of(clipped) > 0, scale << " " << name);
      for (std::size_t b = 0; b < count; ++b) {
        BOOST_TEST(norm_of(row_of(clipped, width, b)) <= bound.value(), scale << " " << name);
        BOOST_TEST(norm_of(row_of(normalised, width, b)) <= bound.value(), scale << " " << name);
      }
    });
  }
}

// An exception leaves the thread as it was, too, and so does the pool to its callers' tasks.
BOOST_AUTO_TEST_CASE(after_an_exception_and_inside_tasks) {
  mlp_problem p{8};
  const thread_mode mode{FE_UPWARD, true};
  pg::bounded_total<mlp<double>> total{p.exec};
  const auto g = p.gradients();
  const auto chunk = pg::accumulate(total, pg::sum(pg::clip(g, pg::l2_clip_norm{1})));
  pg::evaluate_into(p.exec, chunk);
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, chunk), std::logic_error);
  BOOST_TEST(mode.still_holds());
  std::vector<int> seen(64);
  p.exec.parallel(seen.size(), [&](std::size_t task, std::size_t) { seen[task] = thread_mode::rounding_now(); });
  BOOST_TEST(std::ranges::count(seen, FE_TONEAREST) == 64);
  BOOST_CHECK_THROW(p.exec.parallel(4, [](std::size_t, std::size_t) { throw std::runtime_error("a task"); }),
                    std::runtime_error);
  BOOST_TEST(mode.still_holds());
}

BOOST_AUTO_TEST_SUITE_END()
