// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/units.hpp - units of privacy that are not a record's one gradient: all records of an owner,
// and a record seen in several views
//
// Of a unit, gradients of its rows are added up or averaged first, and clipped once: C bounds what the unit adds. A
// sampler then draws units, and its event counts units.
//
// Owners: neighbours differ by all records of one owner. Owners are numbered by their ids in ascending order; who is
// added or removed shifts the numbers of those behind, as a record does.
// Views: K random changes of a record (`augment`, dropout), whose mean gradient is clipped (De et al. 2022,
// arXiv:2204.13650). The unit is the record.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// How the gradients of a unit's rows become one.
enum class combined { mean, sum };

/// Which rows of a data set make up which unit.
class privacy_units {
 public:
  /// Units are owners; record r belongs to `owner_of_record[r]`, any number. Takes the time of sorting. Throws
  /// std::invalid_argument for more than 2^32 - 1 records.
  explicit privacy_units(std::span<const std::uint32_t> owner_of_record, combined how)
      : rows_(owner_of_record.size()), is_mean_{how == combined::mean} {
    if (owner_of_record.size() > ~std::uint32_t{0}) {
      detail::throw_invalid_argument({"pergrad: owners: more than 2^32 - 1 records"});
    }
    std::iota(rows_.begin(), rows_.end(), 0U);
    std::sort(rows_.begin(), rows_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return owner_of_record[a] != owner_of_record[b] ? owner_of_record[a] < owner_of_record[b] : a < b;
    });
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (i == 0 || owner_of_record[rows_[i]] != owner_of_record[rows_[i - 1]]) starts_.push_back(i);
    }
    starts_.push_back(rows_.size());
  }
  /// Units are records, each seen `views` times. Throws std::invalid_argument for 0 views.
  explicit privacy_units(std::uint32_t views) : views_{views} {
    if (views == 0) detail::throw_invalid_argument({"pergrad: with_views: 0 views of a record"});
  }

  [[nodiscard]] bool are_owners() const noexcept { return views_ == 0; }
  /// Of a record; 0 where units are owners.
  [[nodiscard]] std::uint32_t views() const noexcept { return views_; }
  [[nodiscard]] bool are_averaged() const noexcept { return is_mean_; }
  /// Units of a data set of so many records. Throws std::invalid_argument where owners of another number are known.
  [[nodiscard]] std::size_t count(std::size_t records) const {
    if (!are_owners()) return records;
    if (records != rows_.size()) {
      detail::throw_invalid_argument(
          {"pergrad: owners of ", rows_.size(), " records are known, and the data set has ", records});
    }
    return owners();
  }
  /// How many there are.
  [[nodiscard]] std::size_t owners() const noexcept { return starts_.empty() ? 0 : starts_.size() - 1; }
  /// Records of an owner, ascending.
  [[nodiscard]] std::span<const std::uint32_t> records_of(std::size_t owner) const noexcept {
    return std::span{rows_}.subspan(starts_[owner], starts_[owner + 1] - starts_[owner]);
  }

 private:
  std::vector<std::uint32_t> rows_;  ///< records, owner by owner
  std::vector<std::size_t> starts_;  ///< of each owner, and the end
  std::uint32_t views_ = 0;
  bool is_mean_ = true;
};

/// What samplers of units have in common: how units are drawn, and which rows make them up.
template <class Sampling>
class unit_sampling {
 public:
  using sampler_type = Sampling;
  using event_type = typename Sampling::event_type;

  /// What a step costs a unit.
  [[nodiscard]] event_type event(noise_multiplier noise) const { return sampling_.event(noise); }
  [[nodiscard]] const Sampling& sampler() const noexcept { return sampling_; }
  [[nodiscard]] const privacy_units& units() const noexcept { return units_; }

 protected:
  unit_sampling(Sampling sampling, privacy_units units) : sampling_{std::move(sampling)}, units_{std::move(units)} {}

 private:
  Sampling sampling_;
  privacy_units units_;
};

/// A sampler of owners: it draws owners as `Sampling` draws records, and epsilon counts an owner.
template <class Sampling>
class of_owners : public unit_sampling<Sampling> {
 public:
  static constexpr const char* unit = "owner";

  /// `owner_of_record`: an id a record, in the data set's order, which stays what it is: a trainer refuses another data
  /// set than that of its first step with std::logic_error. Throws std::invalid_argument for more than 2^32 - 1.
  of_owners(Sampling sampling, std::span<const std::uint32_t> owner_of_record, combined how = combined::mean)
      : unit_sampling<Sampling>{std::move(sampling), privacy_units{owner_of_record, how}} {}
};

/// Views of a record.
struct view_count {
  std::uint32_t count;
};

/// A sampler of records each of which is seen in several views; views differ by the randomness inside layers.
template <class Sampling>
class with_views : public unit_sampling<Sampling> {
 public:
  static constexpr const char* unit = "record";

  /// Throws std::invalid_argument for 0 views.
  with_views(Sampling sampling, view_count views)
      : unit_sampling<Sampling>{std::move(sampling), privacy_units{views.count}} {}
};

namespace detail {

/// Samplers of units that are not a record's one gradient.
template <class Sampling>
concept draws_units = requires(const Sampling& sampling) {
  typename Sampling::sampler_type;
  { sampling.units() } -> std::same_as<const privacy_units&>;
};
template <class Sampling>
struct inner_sampler {
  using type = Sampling;
  [[nodiscard]] static const Sampling& of(const Sampling& sampling) noexcept { return sampling; }
  static constexpr const char* unit = "record";
};
template <draws_units Sampling>
struct inner_sampler<Sampling> {
  using type = typename Sampling::sampler_type;
  [[nodiscard]] static const type& of(const Sampling& sampling) noexcept { return sampling.sampler(); }
  static constexpr const char* unit = Sampling::unit;
};

}  // namespace detail

}  // namespace pergrad::inline v0_1
