// SPDX-License-Identifier: Apache-2.0
// pergrad/batch.hpp - samples with their targets: a whole data set, and the batch of it that one step sees
//
// Both are views: the caller owns the numbers. A batch of a data set is a list of record numbers; no sample is copied.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// The type of one target value of a loss.
template <class Loss, class Scalar>
using target_of = typename Loss::template target<Scalar>;

namespace detail {

template <class Array>
concept array = requires(const Array& numbers) {
  std::data(numbers);
};

/// A shape as people write it: (1, 28, 28).
struct shape_text {
  char text[96] = {};
  [[gnu::cold, gnu::noinline]] explicit shape_text(const shape& of) noexcept {
    std::size_t used = 0;
    for (std::size_t axis = 0; axis < std::max<std::size_t>(1, of.rank()); ++axis) {
      used += static_cast<std::size_t>(std::snprintf(text + used, sizeof text - used, "%s%zu", axis == 0 ? "(" : ", ",
                                                     axis < of.rank() ? of[axis] : std::size_t{0}));
    }
    std::snprintf(text + used, sizeof text - used, ")");
  }
};

template <array Numbers>
using number_in = std::remove_cvref_t<decltype(*std::data(std::declval<const Numbers&>()))>;

/// Arrays that would be the targets and the inputs of samples, were their numbers of the right types.
template <class Targets, class Inputs, class Target, class Value>
concept of_another_type_with =
    array<Inputs> && array<Targets> && !(std::is_convertible_v<const Inputs&, std::span<const Value>> &&
                                         std::is_convertible_v<const Targets&, std::span<const Target>>);

/// Whether an argument of this (forwarded) type is an array that ends with the call. A span or view of one is none.
template <class Argument>
concept ends_with_the_call =
    !std::is_lvalue_reference_v<Argument> && array<Argument> && !std::ranges::enable_borrowed_range<Argument>;
template <class Argument, class Element>
concept given_as_span = std::is_convertible_v<Argument, std::span<const Element>>;
template <class... Arguments>
struct first_that_ends {
  using type = void;
};
template <class First, class... Rest>
struct first_that_ends<First, Rest...> : first_that_ends<Rest...> {};
template <ends_with_the_call First, class... Rest>
struct first_that_ends<First, Rest...> {
  using type = First;
};

/// What an error about them names.
template <class Inputs, class Targets>
struct numbers_given {};

/// A number that nothing else in this process has.
[[nodiscard]] inline std::uint64_t number_of_its_own() noexcept {
  static std::atomic<std::uint64_t> numbers{0};
  return numbers.fetch_add(1, std::memory_order_relaxed);
}

/// Whether all ids are 0 <= id < limit. One pass without branches, in blocks that compilers turn into vectors, as this
/// is done for every sample of every batch. As unsigned numbers negative ids are the largest.
template <class Id>
[[nodiscard]] constexpr bool all_below(const Id* ids, std::size_t count, std::size_t limit) noexcept {
  using bits = std::make_unsigned_t<Id>;
  constexpr std::size_t together = 32;
  bits most[together]{};
  std::size_t i = 0;
  for (; i + together <= count; i += together) {
    for (std::size_t k = 0; k < together; ++k) {
      const auto id = static_cast<bits>(ids[i + k]);
      most[k] = id > most[k] ? id : most[k];
    }
  }
  for (; i < count; ++i) {
    const auto id = static_cast<bits>(ids[i]);
    most[0] = id > most[0] ? id : most[0];
  }
  bits largest = 0;
  for (const bits each : most) largest = each > largest ? each : largest;
  return largest < limit && largest <= static_cast<bits>(std::numeric_limits<Id>::max());
}

/// Which data set records are of. Shared objects of one process may count apart, and their arrays lie apart.
struct data_set_identity {
  const void* first_record = nullptr;
  std::uint64_t number = 0;
  friend bool operator==(const data_set_identity&, const data_set_identity&) = default;
};

}  // namespace detail

/// Records one after the other: inputs in PyTorch's order `[records][input shape]`, one target a record (or several),
/// and, where samples have lengths of their own, one length a record. `Value` is the type of an input value: float or
/// double, or std::int32_t for ids.
///
/// Make it once, and pass it or its copies to all steps: what follows records over steps, a round of a sampler for one,
/// knows them by it. Arrays at the same address need not hold the same records.
template <class Value, class Target>
class dataset {
 public:
  /// Throws std::invalid_argument unless all spans hold the same, whole number of records, for an extent of 0 in the
  /// shape, and for a length that is 0 or more than there are positions; std::out_of_range for an id outside the
  /// shape's vocabulary. All records are looked at here, so that no later error depends on which ones are drawn.
  // By reference: g++ 12 for AVX-512 passes a constant shape {n, n, 0, 0} by value as {n, n, n, n}.
  dataset(std::span<const Value> inputs, std::span<const Target> targets, const shape& input,
          std::size_t targets_per_record = 1, std::span<const std::uint32_t> lengths = {})
      : inputs_{inputs}, targets_{targets}, lengths_{lengths}, input_{input}, targets_per_record_{targets_per_record} {
    if (input.has_gap()) {
      detail::throw_invalid_argument({"pergrad: dataset: the shape (", input.e0, ", ", input.e1, ", ", input.e2, ", ",
                                      input.e3, ") has an extent of 0 in front of another"});
    }
    if (input.size() == 0 || targets_per_record == 0 || inputs.size() % input.size() != 0 ||
        targets.size() % targets_per_record != 0 ||
        inputs.size() / input.size() != targets.size() / targets_per_record) {
      detail::throw_invalid_argument({"pergrad: dataset: ", inputs.size(), " input values in records of shape ",
                                      detail::shape_text{input}.text, ", ", input.size(), " values, do not match ",
                                      targets.size(), " targets, ", targets_per_record, " a record"});
    }
    if (lengths.size() != (input.varying_axis() != 0 ? size() : 0)) {
      detail::throw_invalid_argument({"pergrad: dataset: ", lengths.size(), " lengths for ", size(), " records of ",
                                      (input.varying_axis() != 0 ? "varying length" : "fixed length")});
    }
    for (std::size_t record = 0; record < size(); ++record) require_valid(record);
  }
  /// Numbers of other types: one error that says so.
  template <class Inputs, detail::of_another_type_with<Inputs, Target, Value> Targets, class... More>
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init,google-explicit-constructor): it does not compile
  dataset(const Inputs&, const Targets&, const shape&, const More&...) {
    static_cast<void>(error::numbers_of_another_type<std::span<const Value>, std::span<const Target>,
                                                     detail::numbers_given<Inputs, Targets>>{});
  }

  /// Arrays that would be gone before anybody reads them: one error that says so.
  template <detail::given_as_span<Value> Inputs, detail::given_as_span<Target> Targets, class... More>
  requires(detail::ends_with_the_call<Inputs> || detail::ends_with_the_call<Targets> ||
           (detail::ends_with_the_call<More> || ...))
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init,google-explicit-constructor): it does not compile
      dataset(Inputs&& /*inputs*/, Targets&& /*targets*/, const shape& /*input*/, More&&... /*more*/) {
    static_cast<void>(error::temporary_array<typename detail::first_that_ends<Inputs, Targets, More...>::type>{});
  }

  template <detail::array Inputs, detail::array Targets>
  dataset(const Inputs&, const Targets&) = delete;  // a record has a shape: {inputs, targets, net_type::input_shape}

  /// Number of records. Under add-or-remove-one neighbours this is a private value.
  [[nodiscard]] std::size_t size() const noexcept { return inputs_.size() / input_.size(); }
  [[nodiscard]] shape input_shape() const noexcept { return input_; }
  [[nodiscard]] const Value* input(std::size_t record) const noexcept {
    return inputs_.data() + record * input_.size();
  }
  [[nodiscard]] std::span<const Target> targets(std::size_t record) const noexcept {
    return targets_.subspan(record * targets_per_record_, targets_per_record_);
  }
  [[nodiscard]] std::span<const Target> targets() const noexcept { return targets_; }
  /// Positions of a record that are there.
  [[nodiscard]] std::uint32_t length(std::size_t record) const noexcept {
    return lengths_.empty() ? static_cast<std::uint32_t>(input_.e0) : lengths_[record];
  }

  /// Whether this record's length and ids are those of the shape. What lies in memory may have changed since the data
  /// set was made.
  [[nodiscard]] bool is_valid(std::size_t record) const noexcept {
    if (!lengths_.empty() && (lengths_[record] == 0 || lengths_[record] > input_.e0)) return false;
    if constexpr (std::is_integral_v<Value>) return detail::all_below(input(record), input_.size(), input_.ids);
    return true;
  }
  /// Throws std::out_of_range for an id of this record outside the vocabulary, std::invalid_argument for its length.
  void require_valid(std::size_t record) const {
    if (is_valid(record)) return;
    if (!lengths_.empty() && (lengths_[record] == 0 || lengths_[record] > input_.e0)) {
      detail::throw_invalid_argument(
          {"pergrad: dataset: record ", record, " has length ", lengths_[record], ", allowed are 1 to ", input_.e0});
    }
    if constexpr (std::is_integral_v<Value>) {
      const Value* ids = input(record);
      for (std::size_t i = 0; i < input_.size(); ++i) {
        if (!holds(ids[i])) {
          detail::throw_out_of_range({"pergrad: dataset: record ", record, ", position ", i, ": id ", ids[i],
                                      " of a vocabulary of ", input_.ids});
        }
      }
    }
  }
  /// What it shares with its copies, and no other data set has.
  [[nodiscard]] detail::data_set_identity identity() const noexcept { return {inputs_.data(), number_}; }
  /// Whether one is a copy of the other, or as good as one: there are no records.
  [[nodiscard]] bool is_copy_of(const dataset& other) const noexcept {
    return (identity() == other.identity() || size() == 0) && same_view(other);
  }
  /// Whether both are views of the same memory in the same way.
  [[nodiscard]] bool same_view(const dataset& other) const noexcept {
    const auto same = [](const auto& a, const auto& b) { return a.data() == b.data() && a.size() == b.size(); };
    return same(inputs_, other.inputs_) && same(targets_, other.targets_) && same(lengths_, other.lengths_) &&
           input_ == other.input_ && targets_per_record_ == other.targets_per_record_;
  }

 private:
  [[nodiscard]] bool holds(Value id) const noexcept { return id >= 0 && static_cast<std::size_t>(id) < input_.ids; }

  std::span<const Value> inputs_;
  std::span<const Target> targets_;
  std::span<const std::uint32_t> lengths_;
  shape input_;
  std::size_t targets_per_record_;
  std::uint64_t number_ = detail::number_of_its_own();  ///< copies have it too
};

/// From the arrays' numbers: `dataset records{pixels, labels, net_type::input_shape}`.
template <detail::array Inputs, detail::array Targets, class... More>
dataset(const Inputs&, const Targets&, const More&...)
    -> dataset<detail::number_in<Inputs>, detail::number_in<Targets>>;
/// Also of a shape in braces: `dataset records{pixels, labels, {1, 28, 28}}`.
template <detail::array Inputs, detail::array Targets, class... More>
dataset(const Inputs&, const Targets&, std::initializer_list<std::size_t>, const More&...)
    -> dataset<detail::number_in<Inputs>, detail::number_in<Targets>>;

namespace detail {

/// Whether values of one shape mean, in the same order, values of the other: the same extents but for those of 1, or
/// one of both is a plain row. {height, width, channels} is not {channels, height, width}, although the size is the
/// same.
[[nodiscard]] constexpr bool means_the_same(const shape& given, const shape& wanted) noexcept {
  const auto extents = [](const shape& of, std::size_t(&kept)[4]) {
    std::size_t count = 0;
    for (std::size_t axis = 0; axis < of.rank(); ++axis) {
      if (of[axis] > 1) kept[count++] = of[axis];
    }
    return count;
  };
  std::size_t left[4]{}, right[4]{};
  const std::size_t count = extents(given, left), wanted_count = extents(wanted, right);
  if (count <= 1 || wanted_count <= 1) return given.size() == wanted.size();
  return count == wanted_count && std::equal(left, left + count, right);
}

/// Throws std::invalid_argument unless the records are of the kind that the network takes.
[[gnu::cold]] inline void require_fit(const shape& given, const shape& wanted, const char* where) {
  if (given.size() != wanted.size() || !means_the_same(given, wanted)) {
    throw_invalid_argument({"pergrad: ", where, ": records have shape ", shape_text{given}.text, ", ", given.size(),
                            " values, the network takes ", shape_text{wanted}.text, ", ", wanted.size(), " values",
                            given.size() == wanted.size() ? ": values in another order?" : ""});
  }
  if (given.ids > wanted.ids) {
    throw_invalid_argument(
        {"pergrad: ", where, ": records have a vocabulary of ", given.ids, " ids, the network one of ", wanted.ids});
  }
  if (wanted.varying_axis() != 0 && given.varying_axis() != 0 && given.e0 != wanted.e0) {
    throw_invalid_argument(
        {"pergrad: ", where, ": records have up to ", given.e0, " positions, the network takes up to ", wanted.e0});
  }
  if (given.varying_axis() != wanted.varying_axis()) {
    throw_invalid_argument({"pergrad: ", where, ": records have ",
                            (given.varying_axis() != 0 ? "varying lengths" : "one length"), ", the network takes ",
                            (wanted.varying_axis() != 0 ? "varying lengths" : "one length")});
  }
}

/// Says which record has a target that the loss does not take, which one that is, and what it may be, as far as the
/// loss tells: `target_limits(output)` gives the least and the largest, `ignores(target)` is true for one that means
/// nothing.
template <class Loss, class Target>
[[noreturn, gnu::cold, gnu::noinline]] void throw_bad_target(const char* where, std::size_t record, const shape& output,
                                                             std::span<const Target> targets) {
  const std::size_t needed = Loss::target_count(output);
  if (targets.size() != needed) {
    throw_invalid_argument({"pergrad: ", where, ": record ", record, " has ", targets.size(),
                            " targets, the loss takes ", needed, " a record"});
  }
  if constexpr (requires { Loss::target_limits(output)[1]; }) {
    const auto limits = Loss::target_limits(output);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] >= static_cast<Target>(limits[0]) && targets[i] <= static_cast<Target>(limits[1])) continue;
      if constexpr (requires { Loss::ignores(targets[i]); }) {
        if (Loss::ignores(targets[i])) continue;
      }
      throw_invalid_argument({"pergrad: ", where, ": record ", record, " has the target ", targets[i],
                              targets.size() == 1 ? "" : " at position ",
                              targets.size() == 1 ? text_piece{""} : text_piece{i},
                              " that this loss does not take: it takes ", limits[0], " to ", limits[1]});
    }
  }
  if constexpr (std::is_arithmetic_v<Target>) {
    if (targets.size() == 1) {
      throw_invalid_argument(
          {"pergrad: ", where, ": record ", record, " has the target ", targets[0], " that this loss does not take"});
    }
  }
  throw_invalid_argument({"pergrad: ", where, ": record ", record, " has targets that this loss does not take"});
}
[[noreturn]] inline void throw_not_in_the_data_set(std::size_t record, std::size_t records) {
  throw_out_of_range({"pergrad: batch: record ", record, " of a data set with ", records});
}

}  // namespace detail

/// The samples of one evaluation.
template <class Network, class Loss>
class batch {
 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;

  /// All samples of two spans. Throws std::invalid_argument if they do not fit the network, the loss or each other, or
  /// if a target is not valid for the loss.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the constructor that it delegates to does
  batch(std::span<const input_value> inputs, std::span<const target> targets)
      : batch{inputs, targets, std::span<const std::uint32_t>{}} {}
  /// The same for samples with lengths of their own.
  batch(std::span<const input_value> inputs, std::span<const target> targets, std::span<const std::uint32_t> lengths)
      : records_{inputs, targets, Network::input_shape, per_sample, lengths}, count_{records_.size()} {
    for (std::size_t i = 0; i < count_; ++i) check_target(i);
  }
  /// Numbers of other types: one error that says so.
  template <class Inputs, detail::of_another_type_with<Inputs, target, input_value> Targets, class... More>
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init,google-explicit-constructor): it does not compile
  batch(const Inputs&, const Targets&, const More&...) : batch{{}, {}} {
    static_cast<void>(error::numbers_of_another_type<std::span<const input_value>, std::span<const target>,
                                                     detail::numbers_given<Inputs, Targets>>{});
  }
  /// Arrays that would be gone before anybody reads them: one error that says so.
  template <detail::given_as_span<input_value> Inputs, detail::given_as_span<target> Targets, class... More>
  requires(detail::ends_with_the_call<Inputs> || detail::ends_with_the_call<Targets> ||
           (detail::ends_with_the_call<More> || ...))
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init,google-explicit-constructor): it does not compile
      batch(Inputs&& /*inputs*/, Targets&& /*targets*/, More&&... /*more*/)
      : batch{{}, {}} {
    static_cast<void>(error::temporary_array<typename detail::first_that_ends<Inputs, Targets, More...>::type>{});
  }
  template <detail::given_as_span<std::uint32_t> Ids>
  requires detail::ends_with_the_call<Ids>
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init,google-explicit-constructor): it does not compile
  batch(const dataset<input_value, target>& /*records*/, Ids&& /*ids*/) : batch{{}, {}} {
    static_cast<void>(error::temporary_array<Ids>{});
  }
  /// The records of a data set that `ids` lists. The list is read when the batch is evaluated.
  /// Throws std::invalid_argument or std::out_of_range as above, and for a record number that the data set has not.
  batch(const dataset<input_value, target>& records, std::span<const std::uint32_t> ids)
      : records_{records}, ids_{ids}, gathered_{true}, count_{ids.size()} {
    detail::require_fit(records.input_shape(), Network::input_shape, "batch");
    require_valid(0, count_);
  }
  /// Records of other types: one error that says so.
  template <class Value, class Target, class... Ids>
  requires(!std::is_same_v<dataset<Value, Target>, dataset<input_value, target>>)
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init,google-explicit-constructor): it does not compile
      batch(const dataset<Value, Target>& /*records*/, const Ids&... /*ids*/)
      : batch{{}, {}} {
    static_cast<void>(error::records_of_another_type<dataset<input_value, target>, dataset<Value, Target>>{});
  }
  /// Throws as the constructors do, for `count` samples from `first` on. The batch is a view: what it sees may have
  /// changed since it was made, and what is evaluated is looked at again.
  void require_valid(std::size_t first, std::size_t count) const {
    for (std::size_t i = first; i < first + count; ++i) {
      const std::size_t number = place(i);
      if (number >= records_.size()) detail::throw_not_in_the_data_set(number, records_.size());
      records_.require_valid(number);
      check_target(i);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] const input_value* input(std::size_t sample) const noexcept { return records_.input(place(sample)); }
  [[nodiscard]] std::uint32_t length(std::size_t sample) const noexcept { return records_.length(place(sample)); }
  /// Number of a sample in its data set, or in the spans that the batch was made of.
  [[nodiscard]] std::size_t record(std::size_t sample) const noexcept { return first_record_ + place(sample); }
  [[nodiscard]] std::span<const target> targets(std::size_t sample) const noexcept {
    return records_.targets(place(sample));
  }
  /// The same of a data set whose first record has this number in a larger one, of which others have the rest.
  [[nodiscard]] batch numbered_from(std::size_t first_record) const noexcept {
    batch other = *this;
    other.first_record_ = first_record;
    return other;
  }
  /// The number of its data set's first record.
  [[nodiscard]] std::uint64_t first_number() const noexcept { return first_record_; }
  /// The data set, without its type: batches of one and its copies have the same.
  [[nodiscard]] detail::data_set_identity source() const noexcept { return records_.identity(); }

 private:
  static constexpr std::size_t per_sample = Loss::target_count(Network::output_shape);
  /// Where a sample lies among the records.
  [[nodiscard]] std::size_t place(std::size_t sample) const noexcept { return gathered_ ? ids_[sample] : sample; }
  void check_target(std::size_t sample) const {
    const std::span<const target> these = targets(sample);
    if (these.size() != per_sample || !Loss::valid(Network::output_shape, these)) {
      detail::throw_bad_target<Loss>("batch", record(sample), Network::output_shape, these);
    }
  }

  dataset<input_value, target> records_;
  std::span<const std::uint32_t> ids_;
  bool gathered_ = false;
  std::size_t count_;
  std::size_t first_record_ = 0;
};

}  // namespace pergrad::inline v0_1
