// SPDX-License-Identifier: Apache-2.0
// pergrad/train/run_noise.hpp - what a run's noise asks of its sampler, and what it costs: independent noise, or a
// strategy whose steps are correlated
//
// Independent noise costs the sampler's event in each of its rounds. Correlated noise needs a sampler that promises how
// far apart a record's steps are, and makes the whole run one Gaussian mechanism (privacy/correlated/filter.hpp): one
// event without sampling, entered with the first step. Banded noise with no more bands than a `cyclic_poisson_sampling`
// has groups costs what that sampler's turns cost with independent noise, as a turn is a mechanism of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/train/dp_sgd_options.hpp>

namespace pergrad::inline v0_1::detail {

template <class Sampling>
concept takes_turns = requires {
  requires Sampling::takes_turns;
};

/// Independent noise.
template <class Sampling, class Noise>
class run_noise {
 public:
  static constexpr bool is_correlated = false;
  using event_type = typename Sampling::event_type;

  run_noise(const noise_choice<Noise>& /*chosen*/, const private_choices& /*options*/, const Sampling& /*sampling*/) {}
  void take(std::size_t /*elements*/, std::size_t /*threads*/) {}
  [[nodiscard]] static event_type event(const Sampling& sampling, noise_multiplier noise) {
    return sampling.event(noise);
  }
  /// Steps that one event pays.
  [[nodiscard]] static std::uint64_t steps_of_an_event(const Sampling& sampling) noexcept {
    if constexpr (has_rounds<Sampling>) return sampling.steps_of_an_event();
    return 1;
  }
  /// Steps of the run: any number.
  [[nodiscard]] static std::uint64_t steps() noexcept { return ~std::uint64_t{0}; }
  template <class Generator>
  static void catch_up(Generator& /*generator*/, std::uint64_t /*taken*/) noexcept {}
  [[nodiscard]] static noise_filter* filter() noexcept { return nullptr; }
  /// Calls add(number) for all that makes the noise what it is, beside its deviation.
  template <class Add>
  static void tell(const Add& /*add*/) noexcept {}
};

/// Correlated noise.
template <class Sampling, class Noise>
requires(!std::is_same_v<Noise, independent_noise>) class run_noise<Sampling, Noise> {
  static constexpr bool is_promised = promises_participation<Sampling>;
  static constexpr bool is_amplified = Noise::is_banded && takes_turns<Sampling>;

 public:
  static constexpr bool is_correlated = true;
  using event_type = typename Sampling::event_type;

  /// Throws std::invalid_argument for a strategy that is missing, has more bands than the sampler has groups, or does
  /// not go with another option.
  run_noise(const noise_choice<Noise>& chosen, const private_choices& options, const Sampling& sampling) {
    if constexpr (is_promised) {  // else the options' type has said so
      require_option(chosen.correlation.has_value(), "correlation");
      if (options.statistic) refuse_training("the option statistic does not go with correlated noise");
      noise_ = std::make_unique<Noise>(*chosen.correlation);
      if constexpr (is_amplified) {
        if (noise_->bands() > sampling.min_separation()) {
          refuse_training("noise of " + std::to_string(noise_->bands()) +
                          " bands needs as many groups, and the sampler has " +
                          std::to_string(sampling.min_separation()));
        }
        sensitivity_ = noise_->sensitivity_of_one();
      } else {
        sensitivity_ = noise_->sensitivity_under(sampling);
      }
    }
  }
  void take(std::size_t elements, std::size_t threads) {
    if constexpr (is_promised) filter_ = noise_->make_filter(sensitivity_, elements, threads);
  }
  [[nodiscard]] static event_type event(const Sampling& sampling, noise_multiplier noise) {
    if constexpr (is_promised && !is_amplified) {
      return {1, noise.value()};
    } else {
      return sampling.event(noise);
    }
  }
  [[nodiscard]] std::uint64_t steps_of_an_event(const Sampling& sampling) const noexcept {
    if constexpr (is_promised && is_amplified) {
      return sampling.steps_of_an_event();
    } else {
      return noise_->steps();
    }
  }
  /// Steps of the run.
  [[nodiscard]] std::uint64_t steps() const noexcept { return noise_ == nullptr ? 0 : noise_->steps(); }
  /// Noise of steps that failed or were given up.
  template <class Generator>
  void catch_up(Generator& generator, std::uint64_t taken) {
    if constexpr (is_promised) {
      while (filter_->begun() < taken) filter_->skip(generator.next_step());
    }
  }
  [[nodiscard]] noise_filter* filter() const noexcept { return filter_.get(); }
  template <class Add>
  void tell(const Add& add) const {
    if constexpr (requires { noise_->coefficients(); }) {
      for (const double each : noise_->coefficients()) add(each);
    }
  }

  /// For files: how many steps are before those that are listed, and the generator's steps of these. Only of a seed.
  [[nodiscard]] std::uint64_t before() const noexcept { return filter_->begun() - filter_->drawn().size(); }
  [[nodiscard]] std::span<const std::uint64_t> drawn() const noexcept { return filter_->drawn(); }
  void restart(std::uint64_t before, std::span<const std::uint64_t> drawn) { filter_->restart(before, drawn); }

 private:
  std::unique_ptr<Noise> noise_;
  std::unique_ptr<typename Noise::filter> filter_;
  typename Noise::sensitivity_type sensitivity_{};
};

}  // namespace pergrad::inline v0_1::detail
