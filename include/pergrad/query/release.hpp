// SPDX-License-Identifier: Apache-2.0
// pergrad/query/release.hpp - a sum of a query's values over records, released through the gate and entered in a ledger
//
// That the sensitivity holds for every record, whatever stands in it:
//   - fields are clamped to the box, a NaN is the lower bound, so every record is one of the box;
//   - the query's computed value, which rounds and asks libm, is clamped to its proven range: so is what rounding does.
//     Of a vector, a value that is computed to lie beyond the proven norm is scaled back to it;
//   - it is rounded to the release's grid record by record, and integers are added up (privacy/sensitivity.hpp, 3.).
// Where a record is replaced, the middle of the range is taken off every record and, as their number is public, put
// back onto the released sum; so a record adds half the range at most.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/query/records.hpp>
#include <pergrad/query/sensitivity.hpp>
#include <pergrad/train/statistics.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
struct query_release;
}  // namespace detail

/// A sum of a query's values over all records, with noise: a released value.
class released_query {
 public:
  /// One a value of the query.
  [[nodiscard]] std::span<const double> values() const noexcept { return values_; }
  /// The only one. Throws std::logic_error for a query of several.
  [[nodiscard]] double value() const {
    if (values_.size() != 1) detail::throw_logic_error({"pergrad: released_query: it has ", values_.size(), " values"});
    return values_[0];
  }
  /// Standard deviation of the noise on each value.
  [[nodiscard]] double deviation() const noexcept { return deviation_; }

 private:
  friend struct detail::query_release;
  released_query(std::vector<double> values, double deviation) : values_{std::move(values)}, deviation_{deviation} {}
  std::vector<double> values_;
  double deviation_;
};

namespace detail {

/// The only way of a query's sum to the gate.
struct query_release {
  /// Throws std::invalid_argument for a query that is 0 for every record.
  explicit query_release(const query_sensitivity& proven) : proven_{proven} {
    if (!(proven.record_bound > 0)) {
      throw_invalid_argument({"pergrad: release: the query has the same value for every record in the box"});
    }
    // More than rounding adds to a value that is clamped, centred and scaled below.
    grid_ = release_grid::of(std::min(proven.record_bound * (1 + 0x1p-40), largest_double),
                             query::inside::place(proven.size));
    sensitivity_ = sensitivity_in_steps(grid_, summation{}, 1);
  }
  /// What a record adds, from its computed values, in place.
  void bring_into_bounds(std::array<double, query::inside::most_outputs>& values) const noexcept {
    double square = 0;
    for (std::size_t i = 0; i < grid_.elements; ++i) {
      values[i] = query::inside::clamped(values[i], proven_.range[i]) - proven_.centre[i];
      const double share = values[i] / proven_.record_bound;
      square += share * share;
    }
    if (grid_.elements == 1 || !(square > 1)) return;
    const double scale = 1 / std::sqrt(square);
    for (std::size_t i = 0; i < grid_.elements; ++i) values[i] *= scale;
  }
  template <random_generator Generator>
  void require_noise(noise_multiplier noise) const {
    const double sigma = noise.value() * sensitivity_;
    require_sigma(noise.value(), sigma, !Generator::is_private && sigma == 0);
  }
  /// The sum in steps of the grid.
  [[nodiscard]] std::vector<std::int64_t> sum(const query::expression& query, const box& in, const records& of) const {
    std::vector<std::int64_t> integers(grid_.elements);
    const query::inside::field_intervals bounds = in.of(query);
    query::inside::for_each_record(query, of, &bounds, [&](std::size_t /*record*/, auto values) {
      bring_into_bounds(values);
      for (std::size_t i = 0; i < grid_.elements; ++i) integers[i] += in_steps(values[i]);
    });
    return integers;
  }
  /// The square of how much of what one record may add this one adds, from its computed values: rounded to the grid, a
  /// small one may add several times itself.
  [[nodiscard]] double squared_share(std::array<double, query::inside::most_outputs> values) const noexcept {
    bring_into_bounds(values);
    double square = 0;
    for (std::size_t i = 0; i < grid_.elements; ++i) {
      const double share = static_cast<double>(in_steps(values[i])) / sensitivity_;
      square += share * share;
    }
    return square;
  }
  template <random_generator Generator>
  [[nodiscard]] released_query of(const std::vector<std::int64_t>& integers, std::size_t count, noise_multiplier noise,
                                  Generator& generator) const {
    using gate_type = release_gate<double>;
    const gate_type gate{typename gate_type::of_any_generator{}, grid_, sensitivity_, noise, 1, generator};
    std::vector<double> values(grid_.elements);
    const element_update<double> kept{values.data(),
                                      [](void* to, std::size_t first, double* released, std::size_t length) {
                                        std::copy_n(released, length, static_cast<double*>(to) + first);
                                      }};
    for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, {nullptr, integers.data()}, nullptr, kept);
    if (proven_.relation == neighbouring::replace_one) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<double>(count) * proven_.centre[i];
    }
    return {std::move(values), noise.value() * std::ldexp(sensitivity_, grid_.unit - grid_.steps)};
  }
  /// A release about all records, a Gaussian mechanism of `noise` times what one record adds. `of_counts` makes it
  /// from sqrt(2) times as much where a record is replaced (privacy/events.hpp), and rounds down by more than this.
  template <class Event>
  [[nodiscard]] static Event event(noise_multiplier noise) {
    if constexpr (Event::relation == neighbouring::replace_one) {
      return Event::of_counts(noise_multiplier{noise.value() / 1.41421356237309504880});
    } else {
      return Event::of_counts(noise);
    }
  }

 private:
  [[nodiscard]] std::int64_t in_steps(double value) const noexcept {
    return std::llrint(std::ldexp(value, grid_.steps - grid_.unit));
  }

  query_sensitivity proven_;
  release_grid grid_;
  double sensitivity_ = 0;  ///< in steps of the grid
};

}  // namespace detail

/// The sum of a query's values over all records, with noise of multiplier `noise` times what one record adds: of a
/// ledger of replaced records half the query's range in the box, else sup ‖query‖. Records are brought into the box.
/// Enters a Gaussian step without sampling in `ledger`. The box and the query must not be computed from records. Throws
/// budget_exhausted if that would exceed its budget, std::invalid_argument for what `supremum` refuses, for a field
/// that is no column, and for noise that is none or that the grid cannot carry; nothing is entered or drawn then.
template <class Event, random_generator Generator>
[[nodiscard]] released_query release(basic_privacy_accountant<Event>& ledger, Generator& generator,
                                     noise_multiplier noise, const query::expression& query, const box& in,
                                     const records& of, const search_limits& limits = {}) {
  const detail::float_environment proven;
  const detail::query_release releases{sensitivity(query, in, Event::relation, limits)};
  releases.require_noise<Generator>(noise);
  const std::vector<std::int64_t> sum = releases.sum(query, in, of);
  ledger.spend(detail::query_release::event<Event>(noise));
  return releases.of(sum, of.size(), noise, generator);
}
/// The same with the ledger and the key of a run, a `dp_sgd` or a `private_loop`, whose `epsilon` then counts it.
template <class Run>
[[nodiscard]] released_query release(Run& run, noise_multiplier noise, const query::expression& query, const box& in,
                                     const records& of, const search_limits& limits = {}) {
  return release(detail::statistics_access::ledger(run, of.size()), detail::statistics_access::generator(run), noise,
                 query, in, of, limits);
}

namespace unprotected {

/// Renyi divergence at an order above 1 that each record by itself has spent in such a release, if it is taken away:
/// order s² / (2 noise²), s the part of what one record may add that this one adds, ‖f(x)‖ / sup ‖f‖ but for the
/// rounding to the release's grid, which is in it (Feldman & Zrnic 2021, arXiv:2008.11193). Private values of their
/// records: not for release. Throws what `release` throws, and for an order or a noise that is none.
[[nodiscard]] inline std::vector<double> individual_rdp(const query::expression& query, const box& in,
                                                        const records& of, noise_multiplier noise, double order,
                                                        const search_limits& limits = {}) {
  const detail::float_environment proven;
  if (!(order > 1) || !(noise.value() > 0)) {
    detail::throw_invalid_argument(
        {"pergrad: individual_rdp: needs an order above 1 and noise, got order ", order, " and noise ", noise.value()});
  }
  const query_sensitivity most = sensitivity(query, in, neighbouring::add_or_remove_one, limits);
  const detail::query_release releases{most};
  const query::inside::field_intervals bounds = in.of(query);
  std::vector<double> found(of.size());
  query::inside::for_each_record(query, of, &bounds, [&](std::size_t record, auto values) {
    found[record] = order * releases.squared_share(values) / (2 * noise.value() * noise.value()) * (1 + 0x1p-40);
  });
  return found;
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
