// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/correlated/filter.hpp - correlated noise of a run, and why it is one Gaussian mechanism
//
// Let G_t be the sum of step t on the grid (Q(S) of release.hpp), integers. Step t releases h_t = G_t + n_t with
// n_t = z_t - f_t, f_t a function of n_0 ... n_(t-1) (recursions.hpp), z_t = round(x_t), x_t ideal Gaussians of
// deviation sigma D independent of everything before.
//
// Claim: all h together are (a function of) a Gaussian mechanism with noise multiplier sigma, if
//     D >= D_1 sens(C) + rounding sqrt(d a),
// D_1: what one record does to one sum, d: elements, a: steps whose f depends on a sum that a record is in.
//
// Proof. Fix neighbours. Whoever has seen h_0 ... h_(t-1) knows G_0 ... G_(t-1) under the hypothesis that it is the
// first of them, since later sums depend on the records and on what was released; so n_s = h_s - G_s are known numbers,
// and
//     h_t = A_t + z_t = round(A_t + x_t),   A_t = G_t - f_t(h_0 - G_0, ..., h_(t-1) - G_(t-1)),
// is a query that depends on the past, with ideal noise, rounded. Under the other hypothesis it is A'_t with G' in the
// place of G and the same h. Without rounding f is linear and A_t - A'_t = (C (G - G'))_t; rounding adds at most
// `rounding()` an element, and only where one of the n_s that f_t reads differs, in `a` steps. So for all h
//     sqrt(sum_t ‖A_t - A'_t‖²) <= D_1 sens(C) + sqrt(a d) rounding() <= D
// by Minkowski. Queries whose shifts are chosen from the past and keep to a total of D in L2 are dominated by one
// Gaussian query of sensitivity D: add a last query that uses up what is left of D². The log-likelihood ratio is
//     L = sum_t (<x_t, v_t> / s² + ‖v_t‖² / (2 s²)),   v_t = A_t - A'_t,  s = sigma D, sum_t ‖v_t‖² = D²,
// and for every u, E exp(i u sum_t <x_t, v_t>) = exp(-u² s² D² / 2), since v_t is known before x_t is drawn: taken
// backwards, E[exp(i u <x_t, v_t> + u² s² ‖v_t‖² / 2) | past] = 1. So L is N(1 / (2 sigma²), 1 / sigma²) under the
// first hypothesis, and with the sign turned under the other: the privacy loss of the Gaussian mechanism, and with it
// the whole trade-off curve. []
//
// Begun anew. A run that goes on from a file has a new key, and its filter begins with zeros: entries of C that join
// steps before and behind are 0 then. sens is that of |C|, which only decreases; so does a. But a
// record may take part on both sides, so each part pays as a run of its own.
//
// Steps that failed, or were given up. Their noise is drawn and goes through the filter without being seen: as if h_t
// had been released and forgotten.
//
// Memory. `stored`: the recursion's rows for every element. `regenerated`: for a block of elements a thread; each step
// draws the noise of all earlier ones again, which takes time in proportion to their number. The bits are the same. The
// rows are secrets: with what was released they give the sums away, so they are in no file. Noise from a seed is
// drawn again when a run goes on.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/correlated/participation.hpp>
#include <pergrad/privacy/release.hpp>

namespace pergrad::inline v0_1 {

/// Where correlated noise has what it needs of earlier steps.
enum class noise_memory {
  stored,      ///< in memory: some numbers a parameter
  regenerated  ///< nowhere: earlier noise is drawn again in every step
};

/// What one record can do to all sums of a run, in units of what it can do to one.
struct run_sensitivity {
  double of_sums = 0;               ///< bound of sens(C)
  std::uint64_t rounded_steps = 0;  ///< a: steps whose feedback depends on a sum that the record is in
};

namespace detail {

/// The noise of one run. `Recursion`: recursions.hpp.
template <class Recursion>
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): the base's is protected
class correlated_filter final : public noise_filter {
  using cell = typename Recursion::cell;

 public:
  correlated_filter(const Recursion& recursion, const run_sensitivity& sensitivity, std::uint64_t steps,
                    std::size_t elements, std::size_t threads, noise_memory memory)
      : recursion_{recursion}, sensitivity_{sensitivity}, steps_{steps}, threads_{threads}, memory_{memory} {
    const std::size_t blocks =
        memory == noise_memory::stored ? (elements + gaussian_block - 1) / gaussian_block : threads;
    rows_ = {blocks * block_size(), "correlated noise"};
    drawn_.reserve(static_cast<std::size_t>(steps));
  }
  correlated_filter(const correlated_filter&) = delete;
  correlated_filter& operator=(const correlated_filter&) = delete;
  ~correlated_filter() {
    if (rows_.size() != 0) wipe(rows_.data(), rows_.size() * sizeof(cell));
  }

  [[nodiscard]] double sensitivity(double of_one_sum, std::size_t elements) const override {
    const float_environment proven;
    const double rounded = static_cast<double>(elements) * static_cast<double>(sensitivity_.rounded_steps);
    return (of_one_sum * sensitivity_.of_sums + recursion_.rounding() * std::sqrt(rounded)) * (1 + 0x1p-40);
  }
  void require_room(const release_grid& grid, double sigma) override {
    require_deviation(sigma);
    if (grid_ && !(*grid_ == grid && sigma == sigma_)) {
      throw_logic_error(
          {"pergrad: correlated noise: all steps have one grid and one deviation, and those of this step differ: ",
           sigma, " steps, not ", sigma_});
    }
    grid_ = grid;
    sigma_ = sigma;
    if (begun() >= steps_) {
      throw_logic_error({"pergrad: correlated noise: a strategy for ", steps_, " steps has no step beyond them"});
    }
  }
  void require_deviation(double sigma) const override { recursion_.require_room(sigma); }
  void require_threads(std::size_t threads) const override {
    if (memory_ == noise_memory::stored || threads <= threads_) return;
    throw_logic_error({"pergrad: correlated noise: a release by ", threads, " threads of a run whose executor has ",
                       threads_, ", and regenerated noise has memory for these"});
  }
  std::span<const std::uint64_t> begin(std::uint64_t drawn) noexcept override {
    const std::size_t known = memory_ == noise_memory::stored ? known_ : 0;
    first_ = known;
    drawn_.push_back(drawn);
    known_ = drawn_.size();
    return std::span{drawn_}.subspan(known, drawn_.size() - known - 1);
  }
  void filter(std::size_t i, std::size_t block, std::size_t thread, double (&k)[gaussian_block]) noexcept override {
    const bool is_stored = memory_ == noise_memory::stored;
    cell* const rows = rows_.data() + (is_stored ? block : thread) * block_size();
    if (!is_stored && i == 0) std::fill_n(rows, block_size(), cell{0});
    recursion_.step(before_ + first_ + i, rows, k);
  }

  /// Steps that have begun, those before the filter began anew included.
  [[nodiscard]] std::uint64_t begun() const noexcept { return before_ + drawn_.size(); }
  /// A step that failed or was given up: its noise is the generator's step `drawn`, which nobody sees.
  void skip(std::uint64_t drawn) noexcept { drawn_.push_back(drawn); }
  /// The generator's steps whose noise went through the filter.
  [[nodiscard]] std::span<const std::uint64_t> drawn() const noexcept { return drawn_; }
  /// Begins anew behind `before` steps, and then, of a generator that can draw them again, the noise of these. Throws
  /// std::invalid_argument for more steps than there are.
  void restart(std::uint64_t before, std::span<const std::uint64_t> drawn) {
    if (before > steps_ || drawn.size() > steps_ - before) {
      throw_invalid_argument(
          {"pergrad: correlated noise: ", before + drawn.size(), " steps of a strategy for ", steps_});
    }
    before_ = before;
    drawn_.assign(drawn.begin(), drawn.end());
    known_ = 0;
    grid_.reset();
    std::fill_n(rows_.data(), rows_.size(), cell{0});
  }

 private:
  [[nodiscard]] std::size_t block_size() const noexcept { return recursion_.rows() * gaussian_block; }

  Recursion recursion_;
  run_sensitivity sensitivity_;
  std::uint64_t steps_;
  std::size_t threads_;
  noise_memory memory_;
  aligned_buffer<cell> rows_;         ///< block by block, or thread by thread
  std::vector<std::uint64_t> drawn_;  ///< the generator's steps, of all since the filter began
  std::optional<release_grid> grid_;  ///< of all steps
  double sigma_ = 0;                  ///< of fresh noise, in steps of the grid
  std::uint64_t before_ = 0;          ///< steps before that
  std::size_t known_ = 0;             ///< how many of `drawn_` the rows have seen
  std::size_t first_ = 0;             ///< of `drawn_`, the first that goes through the filter now
};

}  // namespace detail

}  // namespace pergrad::inline v0_1
