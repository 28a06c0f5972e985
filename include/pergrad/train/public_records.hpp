// SPDX-License-Identifier: Apache-2.0
// pergrad/train/public_records.hpp - records that the caller says are public
#pragma once

#include <iterator>
#include <ranges>
#include <span>
#include <type_traits>

#include <pergrad/batch.hpp>

namespace pergrad::inline v0_1 {

/// Records that anybody may know, such as a test set: what is computed from them is no private value. That they are is
/// a promise of whoever writes this; training records are not. Holds a view: a `dataset`, or the inputs of records in
/// one contiguous array.
template <class View>
class public_records {
 public:
  template <class Records>
  explicit constexpr public_records(const Records& records) : view_{records} {}
  [[nodiscard]] constexpr const View& view() const noexcept { return view_; }

 private:
  View view_;
};
template <class Value, class Target>
public_records(const dataset<Value, Target>&) -> public_records<dataset<Value, Target>>;
template <std::ranges::contiguous_range Inputs>
public_records(const Inputs&) -> public_records<std::span<const std::ranges::range_value_t<Inputs>>>;

}  // namespace pergrad::inline v0_1
