// SPDX-License-Identifier: Apache-2.0
// pergrad/train/step_notes.hpp - what a trainer notes of the records of its last step: private values, for
// `unprotected::metrics`
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/statistics.hpp>
#include <pergrad/train/dp_sgd_options.hpp>

namespace pergrad::inline v0_1::detail {

/// What a trainer notes of the records of its last step.
template <class Scalar>
class step_notes {
 public:
  /// Norms above `clip_norm` count as clipped; one value of each record is counted in `counts`, if there are any.
  step_notes(bool wanted, std::size_t max_batch, double clip_norm, private_counts* counts = nullptr,
             step_value of = step_value::norm)
      : wanted_{wanted || counts != nullptr}, shown_{wanted}, clip_norm_{clip_norm}, counts_{counts}, of_{of} {
    wanted = wanted_;
    losses_.resize(wanted ? max_batch : 0);
    norms_.resize(wanted ? max_batch : 0);
  }
  [[nodiscard]] bool wanted() const noexcept { return wanted_; }
  /// Of options that ask for them; else zeros.
  [[nodiscard]] const step_metrics& metrics() const noexcept {
    static constexpr step_metrics nothing{};
    return shown_ ? metrics_ : nothing;
  }
  void begin() noexcept { metrics_ = {}; }
  void set_clip_norm(double clip_norm) noexcept { clip_norm_ = clip_norm; }
  void end() noexcept {
    if (!wanted_) return;
    metrics_.mean_loss = metrics_.batch_size == 0 ? std::numeric_limits<double>::quiet_NaN()
                                                  : metrics_.mean_loss / static_cast<double>(metrics_.batch_size);
  }
  void leave_out() noexcept {
    if (!wanted_) return;
    ++metrics_.batch_size;
    ++metrics_.non_finite;
    metrics_.mean_loss = std::numeric_limits<double>::quiet_NaN();
  }
  /// Room for those of a chunk.
  [[nodiscard]] std::span<double> losses(std::size_t count) noexcept { return {losses_.data(), count}; }
  [[nodiscard]] std::span<double> norms(std::size_t count) noexcept { return {norms_.data(), count}; }
  /// Notes what lies there.
  [[gnu::noinline]] void note(std::size_t count) noexcept {
    if (counts_ != nullptr) counts_->add({of_ == step_value::norm ? norms_.data() : losses_.data(), count});
    for (std::size_t i = 0; i < count; ++i) {
      const auto finite_before = static_cast<double>(metrics_.batch_size - metrics_.non_finite);
      ++metrics_.batch_size;
      metrics_.mean_loss += losses_[i];
      if (!is_finite_norm<Scalar>(norms_[i])) {
        ++metrics_.non_finite;
        continue;
      }
      metrics_.mean_norm += (norms_[i] - metrics_.mean_norm) / (finite_before + 1);
      if (norms_[i] > clip_norm_) ++metrics_.clipped;
    }
  }

 private:
  bool wanted_;
  bool shown_;
  double clip_norm_;
  private_counts* counts_;
  step_value of_;
  std::vector<double> losses_;
  std::vector<double> norms_;
  step_metrics metrics_;
};

}  // namespace pergrad::inline v0_1::detail
