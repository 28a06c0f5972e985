// SPDX-License-Identifier: Apache-2.0
// pergrad/batch.hpp - samples with their targets: a whole data set, and the batch of it that one step sees
//
// Both are views: the caller owns the numbers. A batch of a data set is a list of record numbers; no sample is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// The type of one target value of a loss.
template <class Loss, class Scalar>
using target_of = typename Loss::template target<Scalar>;

/// Records one after the other: inputs in PyTorch's order `[records][input shape]`, and one target a record (or
/// several).
template <class Scalar, class Target>
class dataset {
 public:
  /// Throws std::invalid_argument unless both spans hold the same, whole number of records.
  dataset(std::span<const Scalar> inputs, std::span<const Target> targets, shape input,
          std::size_t targets_per_record = 1)
      : inputs_{inputs}, targets_{targets}, input_{input}, targets_per_record_{targets_per_record} {
    if (input.size() == 0 || targets_per_record == 0 || inputs.size() % input.size() != 0 ||
        targets.size() % targets_per_record != 0 ||
        inputs.size() / input.size() != targets.size() / targets_per_record) {
      throw std::invalid_argument("pergrad: dataset: " + std::to_string(inputs.size()) +
                                  " input values in records of " + std::to_string(input.size()) + " do not match " +
                                  std::to_string(targets.size()) + " targets, " + std::to_string(targets_per_record) +
                                  " a record");
    }
  }

  /// Number of records. Under add-or-remove-one neighbours this is a private value.
  [[nodiscard]] std::size_t size() const noexcept { return inputs_.size() / input_.size(); }
  [[nodiscard]] shape input_shape() const noexcept { return input_; }
  [[nodiscard]] const Scalar* input(std::size_t record) const noexcept {
    return inputs_.data() + record * input_.size();
  }
  [[nodiscard]] std::span<const Target> targets(std::size_t record) const noexcept {
    return targets_.subspan(record * targets_per_record_, targets_per_record_);
  }
  [[nodiscard]] std::span<const Target> targets() const noexcept { return targets_; }

 private:
  std::span<const Scalar> inputs_;
  std::span<const Target> targets_;
  shape input_;
  std::size_t targets_per_record_;
};

/// The samples of one evaluation.
template <class Network, class Loss>
class batch {
 public:
  using scalar = typename Network::scalar;
  using target = target_of<Loss, scalar>;

  /// All samples of two spans. Throws std::invalid_argument if they do not fit the network, the loss or each other, or
  /// if a target is not valid for the loss.
  batch(std::span<const scalar> inputs, std::span<const target> targets)
      : records_{inputs, targets, Network::input_shape, per_sample}, count_{records_.size()} {
    for (std::size_t i = 0; i < count_; ++i) check(i);
  }
  /// The records of a data set that `ids` lists. The list is read when the batch is evaluated.
  /// Throws std::invalid_argument or std::out_of_range as above.
  batch(const dataset<scalar, target>& records, std::span<const std::uint32_t> ids)
      : records_{records}, ids_{ids}, gathered_{true}, count_{ids.size()} {
    if (records.input_shape().size() != Network::input_shape.size()) {
      throw std::invalid_argument("pergrad: batch: records have " + std::to_string(records.input_shape().size()) +
                                  " input values, the network takes " + std::to_string(Network::input_shape.size()));
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (ids[i] >= records.size()) {
        throw std::out_of_range("pergrad: batch: record " + std::to_string(ids[i]) + " of a data set with " +
                                std::to_string(records.size()));
      }
      check(i);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] const scalar* input(std::size_t sample) const noexcept { return records_.input(record(sample)); }
  [[nodiscard]] std::span<const target> targets(std::size_t sample) const noexcept {
    return records_.targets(record(sample));
  }

 private:
  static constexpr std::size_t per_sample = Loss::target_count(Network::output_shape);
  [[nodiscard]] std::size_t record(std::size_t sample) const noexcept { return gathered_ ? ids_[sample] : sample; }
  void check(std::size_t sample) const {
    const std::span<const target> these = targets(sample);
    if (these.size() != per_sample || !Loss::valid(Network::output_shape, these)) {
      throw std::invalid_argument("pergrad: batch: sample " + std::to_string(sample) + " has a target" +
                                  (these.size() == 1 ? " of " + std::to_string(these[0]) : std::string{}) +
                                  " that this loss does not take");
    }
  }

  dataset<scalar, target> records_;
  std::span<const std::uint32_t> ids_;
  bool gathered_ = false;
  std::size_t count_;
};

}  // namespace pergrad::inline v0_1
