// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/totals.hpp - where gradients and their sums live: released ones, un-noised totals of clipped
// sums, and ordinary ones that say so
//
// A total shows its numbers to nobody but the release gate (privacy/release.hpp). It knows what one record can do to
// it: every record is in it at most once, every chunk is clipped alike, and how its additions round is proven
// beforehand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/expressions/leaf.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
class dp_sgd;
template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
class private_loop;

/// A public number of records that a total is made for, no less than a tape takes. It limits nothing: records beyond it
/// are added up more slowly, as integers, so that the bound on rounding holds however many were drawn
/// (privacy/release.hpp). Which chunk a record goes to must depend on its place among the records drawn alone.
struct record_capacity {
  std::size_t count = 2048;
};

/// Lanes of records: record number r of the data set is in lane r / records. Each lane is added up in floating point by
/// itself, and its sum is rounded to the release's grid; rounded sums are integers and add up exactly. So the sum has
/// the same bits whoever adds up which lanes, as ranks do (ranks/trainer.hpp). For samplers whose neighbours differ by
/// replacing one record: where one is removed, records behind it change lanes (privacy/sensitivity.hpp).
struct record_lanes {
  std::size_t count = 8;    ///< 1 to 16
  std::size_t records = 0;  ///< of a lane; a data set has at most `count` times as many

  [[nodiscard]] std::size_t of(std::uint64_t record) const noexcept { return record / records; }
  static constexpr std::size_t most = 16;
};

template <class Network>
class scaled_adam;

namespace detail {

struct total_access;
struct total_release;
template <class Sum, class Network>
class chunk_of_total;
template <class Noised, class Network, bool IsPrivate, class Begin>
class release_of_sum;
template <class Network, class Loss, executor Executor, step_gradients Gradients>
class step_by_verbs;
template <class Network, class Loss, executor Executor>
class step_on_ranks;

/// Memory of a sum: floating point, and integers once they are needed.
template <class Scalar>
struct sum_memory {
  aligned_buffer<Scalar> floating;
  aligned_buffer<std::int64_t> integers;
};

/// What a total knows of what was added to it.
class total_state {
 public:
  total_state() = default;
  explicit total_state(const summation& added) noexcept : added_{added} {}

  /// While an evaluation writes to the total, what it adds will not count.
  void clear() noexcept {
    const bool is_written_to = condition_ == condition::being_written;
    *this = total_state{added_};
    if (is_written_to) condition_ = condition::being_written;
  }
  /// Every record that is added adds at most this; `exchanged`: records by which neighbours differ. Throws
  /// std::logic_error for another bound than before.
  void expect(const release_grid& grid, int exchanged) {
    if (grid_ && !(*grid_ == grid && exchanged_ == exchanged)) {
      throw_logic_error(
          {"pergrad: chunks of one sum must be clipped alike: bounds ", grid_->bound, " and ", grid.bound});
    }
    grid_ = grid;
    exchanged_ = exchanged;
  }
  /// Throws std::invalid_argument where a tape takes more records than the total was made for.
  void require_room(std::size_t most) const {
    if (added_.capacity == 0 || most <= added_.capacity) return;
    throw_invalid_argument({"pergrad: a tape for ", most, " records and a clipped sum for ", added_.capacity,
                            ": construct it with pergrad::record_capacity{", most, "}"});
  }
  /// The records of a batch in the order of their numbers, none of which may be in the total. Throws std::logic_error
  /// if one is, or may be.
  template <class Batch>
  void admit(const Batch& records) {
    require_whole();
    if (records.size() == 0) return;
    const bool is_its = data_ == records.source() && first_number_ == records.first_number();
    if (data_.first_record != nullptr && !is_its) {
      throw_logic_error(
          {"pergrad: chunks of one sum must be of one data set, which is made once, as records of others could be the "
           "same"});
    }
    std::uint64_t next = next_record_;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const std::uint64_t number = records.record(i);
      if (number < next) {
        throw_logic_error({"pergrad: a clipped sum takes every record once, in the order of their numbers: record ",
                           number, " comes behind ", next - 1});
      }
      next = number + 1;
    }
    data_ = records.source();
    first_number_ = records.first_number();
    next_record_ = next;
  }
  /// Whether the next chunk is to be added up as integers; counts it. `most`: records that it may have, `way`: how
  /// floating point would add up so many. Both are public, and so is the answer: how many records there are says
  /// nothing.
  [[nodiscard]] bool next_as_integers(std::size_t most, const addition_way& way) noexcept {
    const std::size_t longest = std::max(longest_, way.inside);
    const bool fits = !is_full_ && added_.allows(records_ + most, longest + additions_ + way.onto);
    if (fits) {
      records_ += most;
      longest_ = longest;
      additions_ += way.onto;
    } else {
      is_full_ = true;
      has_integers_ = true;
    }
    return !fits;
  }
  [[nodiscard]] std::size_t lane() const noexcept { return lane_; }
  void begin_lane(std::size_t lane) noexcept {
    lane_ = lane;
    is_full_ = false;
  }
  /// What was in floating point is in the integers.
  void has_joined() noexcept {
    has_integers_ = true;
    records_ = 0;
    longest_ = 0;
    additions_ = 0;
  }
  void is_being_written() noexcept { condition_ = condition::being_written; }
  void is_written() noexcept { condition_ = condition::whole; }
  void is_given_up() noexcept {
    if (condition_ == condition::being_written) condition_ = condition::broken;
  }
  /// Throws std::logic_error while an evaluation writes to the total.
  void require_nobody_writes() const {
    if (condition_ == condition::being_written) {
      throw_logic_error({"pergrad: an evaluation is under way into this total: one evaluation has one sum for it"});
    }
  }

  [[nodiscard]] bool has_floating() const noexcept { return records_ > 0; }
  [[nodiscard]] bool has_integers() const noexcept { return has_integers_; }
  /// Throws std::logic_error where there is nothing that could be released.
  [[nodiscard]] const release_grid& grid() const {
    require_whole();
    if (!grid_) {
      throw_logic_error(
          {"pergrad: noise on a bounded_total that knows no bound: add a clipped sum to it first, or expect(bound)"});
    }
    return *grid_;
  }
  /// In steps of the grid.
  [[nodiscard]] double sensitivity() const { return sensitivity_in_steps(grid(), added_, exchanged_); }

 private:
  enum class condition : unsigned char { whole, being_written, broken };
  void require_whole() const {
    require_nobody_writes();
    if (condition_ == condition::broken) {
      throw_logic_error({"pergrad: an evaluation into this total has failed: clear() it first"});
    }
  }

  summation added_;
  std::optional<release_grid> grid_;
  int exchanged_ = 1;
  data_set_identity data_;
  std::uint64_t first_number_ = 0;  ///< of the data set's records
  std::uint64_t next_record_ = 0;
  std::size_t records_ = 0;    ///< that there may be in floating point
  std::size_t longest_ = 0;    ///< way of an addend to a sum that was added
  std::size_t additions_ = 0;  ///< of such sums
  std::size_t lane_ = 0;       ///< of the last record
  bool is_full_ = false;       ///< the lane: its next records are added up as integers
  bool has_integers_ = false;
  condition condition_ = condition::whole;
};

}  // namespace detail

/// A noised, hence releasable gradient: parameter_count values in PyTorch's order. Only a release can fill it, and its
/// values show what was released at all times: sums grow in memory of their own, which nothing else touches. With
/// `IsPrivate` false it holds a rehearsal, whose noise is known to whoever knows the seed.
template <class Network, bool IsPrivate>
class released_gradient {
 public:
  using network_type = Network;
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit released_gradient(const Executor& /*executor*/) : released_gradient{} {
    sum_.floating = {Network::parameter_count, "a clipped sum", detail::uninitialised};
  }

  /// Released: anybody may see these.
  [[nodiscard]] std::span<const scalar> values() const noexcept { return values_.span(); }

 private:
  friend struct detail::total_access;
  explicit released_gradient(bool is_kept = true)
      : values_{is_kept ? Network::parameter_count : 0, "a released gradient"} {}

  detail::aligned_buffer<scalar> values_;
  detail::sum_memory<scalar> sum_;  ///< of what is released next
};

/// What may be released.
template <class Network>
using private_gradient = released_gradient<Network, true>;

namespace unprotected {

/// The same with noise from a seed: for tests and experiments that must be repeated. Not for release.
template <class Network>
using rehearsed_gradient = released_gradient<Network, false>;

/// A gradient without noise: parameter_count values in PyTorch's order. Not for release.
template <class Network>
class gradient {
 public:
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit gradient(const Executor& /*executor*/) : values_{Network::parameter_count, "a gradient"} {}
  [[nodiscard]] std::span<scalar> values() noexcept { return values_.span(); }
  [[nodiscard]] std::span<const scalar> values() const noexcept { return values_.span(); }

 private:
  pergrad::detail::aligned_buffer<scalar> values_;
};

}  // namespace unprotected

/// A clipped sum that grows chunk by chunk: for logical batches larger than the tape. Takes every record once, in the
/// order of the data set; `clear()` begins anew.
template <class Network>
class bounded_total : public detail::expression_tag {
 public:
  using network_type = Network;
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit bounded_total(const Executor& executor, record_capacity capacity = {})
      : bounded_total{executor, summation::of<scalar>(capacity.count)} {}

  /// Back to the empty sum. Touches no number.
  void clear() noexcept { state_.clear(); }
  /// What every chunk will be clipped to: so that a batch without any chunk is noised all the same. Throws
  /// std::logic_error if chunks with another bound are in the total.
  void expect(l2_clip_norm bound, neighbouring relation = neighbouring::add_or_remove_one) {
    state_.expect(release_grid::of(bound.value(), Network::parameter_count),
                  relation == neighbouring::replace_one ? 2 : 1);
  }

 private:
  friend struct detail::total_access;
  explicit bounded_total(const summation& added) : state_{added} {}
  template <class Executor>
  bounded_total(const Executor& /*executor*/, const summation& added) : bounded_total{added} {
    memory_.floating = {Network::parameter_count, "a clipped sum", detail::uninitialised};
  }
  detail::sum_memory<scalar> memory_;
  detail::total_state state_;
};

namespace detail {

/// The library's own way to the numbers behind the types: for those who are named, and for tests that define a probe.
struct total_access {
 private:
  friend struct total_release;
  template <class Sum, class Network>
  friend class chunk_of_total;
  template <class Noised, class Network, bool IsPrivate, class Begin>
  friend class release_of_sum;
  template <class Network, class Loss, executor Executor, step_gradients Gradients>
  friend class step_by_verbs;
  template <class Network, class Loss, executor Executor>
  friend class step_on_ranks;
  template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
  friend class pergrad::dp_sgd;
  template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
  friend class pergrad::private_loop;
  template <class Network>
  friend class pergrad::scaled_adam;
  friend struct total_probe;

  template <class Total>  // const or not
  [[nodiscard]] static auto& state(Total& total) noexcept {
    return total.state_;
  }
  template <class Total>
  [[nodiscard]] static auto floating(Total& total) noexcept {
    return total.memory_.floating.span();
  }
  template <class Network, bool IsPrivate>
  [[nodiscard]] static auto values(released_gradient<Network, IsPrivate>& gradient) noexcept {
    return gradient.values_.span();
  }
  /// Integers of a total; from zeros where they are first needed.
  template <class Network>
  [[nodiscard]] static std::int64_t* integers(bounded_total<Network>& total, bool begins) {
    auto& integers = total.memory_.integers;
    if (integers.size() == 0) {
      integers = {Network::parameter_count, "a sum of integers"};
    } else if (begins) {
      std::fill_n(integers.data(), integers.size(), std::int64_t{0});
    }
    return integers.data();
  }
  /// What is in a total.
  template <class Network>
  [[nodiscard]] static unreleased_sum<typename Network::scalar> sum_of(const bounded_total<Network>& total) noexcept {
    return {total.state_.has_floating() ? total.memory_.floating.data() : nullptr,
            total.state_.has_integers() ? total.memory_.integers.data() : nullptr};
  }
  template <class Network, class Executor>
  [[nodiscard]] static bounded_total<Network> total_of(const Executor& executor, const summation& added) {
    return {executor, added};
  }
  /// The next records are of this lane.
  template <class Network>
  static void enter_lane(const thread_pool& pool, bounded_total<Network>& total, std::size_t lane) {
    if (lane == total.state_.lane()) return;
    join(pool, total);
    total.state_.begin_lane(lane);
  }
  /// What is in floating point, rounded to the grid, joins the integers.
  template <class Network>
  static void join(const thread_pool& pool, bounded_total<Network>& total) {
    if (!total.state_.has_floating()) return;
    std::int64_t* const sum = integers(total, !total.state_.has_integers());
    const auto* const joining = total.memory_.floating.data();
    constexpr std::size_t each = 8192;
    pool.parallel((Network::parameter_count + each - 1) / each, [&](std::size_t task, std::size_t) {
      const std::size_t first = task * each;
      add_on_grid(total.state_.grid(), joining + first, sum + first, std::min(Network::parameter_count - first, each));
    });
    total.state_.has_joined();
  }
  /// For what is released elsewhere: takes no sum, and no values either unless they are kept.
  template <class Released>
  [[nodiscard]] static Released released_without_sums(bool is_kept = true) {
    return Released{is_kept};
  }
  template <class Network>
  [[nodiscard]] static bounded_total<Network> total_without_memory() noexcept {
    return bounded_total<Network>{summation{}};
  }
  template <class Network>
  [[nodiscard]] static bool has_memory(const bounded_total<Network>& total) noexcept {
    return total.memory_.floating.size() != 0;
  }
  /// Lends to a total without any the memory in which `gradient` has its sums, until it is given back; the total is
  /// empty then. Throws std::invalid_argument where another total has it.
  template <class Network, bool IsPrivate>
  static void borrow(bounded_total<Network>& total, released_gradient<Network, IsPrivate>& gradient,
                     record_capacity capacity) {
    if (gradient.sum_.floating.size() == 0) {
      throw_invalid_argument(
          {"pergrad: a private gradient that was moved from, or that gets another sum of this evaluation, takes none"});
    }
    total.state_ = total_state{summation::of<typename Network::scalar>(capacity.count)};
    std::swap(total.memory_, gradient.sum_);
  }
  template <class Network, bool IsPrivate>
  static void give_back(bounded_total<Network>& total, released_gradient<Network, IsPrivate>& gradient) noexcept {
    std::swap(total.memory_, gradient.sum_);
  }
};

}  // namespace detail

}  // namespace pergrad::inline v0_1
