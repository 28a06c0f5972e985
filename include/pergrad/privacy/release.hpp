// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/release.hpp - the gate: the only code in which an un-noised sum becomes a released one
//
// A release of d numbers is  g (Q(S) + k).  g is a power of two, k_1 ... k_d are independent rounded ideal Gaussians of
// standard deviation sigma D (rounded_gaussian.hpp), and Q(S) = round(F / g) + I brings the sum S to the grid of
// integers: F is what was added up in floating point, I what was rounded record by record and added up in integers.
//
// Claim: the release is (a function of) an ideal Gaussian mechanism with noise multiplier sigma, if D >= ‖Q(S) - Q(S')‖
// for all neighbours. Proof: q + round(x) = round(q + x) for integers q, so Q(S) + k = round(Q(S) + sigma D z) with z
// ideal. Rounding, clamping, the grid and the conversion to float are post-processing; the Gaussian mechanism with
// sensitivity D is what every accountant accounts. P(release | S) depends on S by the shift Q(S) alone: no low bit, no
// exponent and no set of values that can occur tells more. Bits of randomness are those of ChaCha20, ideal to whoever
// has not the key.                                                                                                  []
//
// What D is, and why it is enough, stands in sensitivity.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise/rounded_gaussian.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Noise of a run whose steps have nothing to do with each other: that of DP-SGD. Others are in privacy/correlated/.
struct independent_noise {};

namespace detail {

/// A sum that nobody has seen: F in units of the grid's, null for zeros, and I in steps of the grid, null for zeros.
template <class Scalar>
struct unreleased_sum {
  const Scalar* floating = nullptr;
  const std::int64_t* integers = nullptr;
};

/// integers += round(floating / g), of sums that lie within the grid.
template <class Scalar>
void add_on_grid(const release_grid& grid, const Scalar* floating, std::int64_t* integers, std::size_t count) noexcept {
  const float_environment proven{subnormal_numbers::flushed};
  const release_scale scale{.to_grid = std::ldexp(1.0, grid.steps), .grid = 0, .largest = 0};
  for (std::size_t i = 0; i < count; ++i) integers[i] += static_cast<std::int64_t>(on_grid(floating[i], scale));
}

/// What becomes of released values: apply(context, first, values, count) gets every short stretch of them once, on any
/// thread, and may change it.
template <class Scalar>
struct element_update {
  void* context = nullptr;
  void (*apply)(void* context, std::size_t first, Scalar* values, std::size_t count) = nullptr;
  /// Arrays whose elements it reads at the same places, or null: they come into the cache while noise is made.
  std::array<const Scalar*, 3> beside{};
};
template <class Scalar>
void fetch_elements(const Scalar* from, std::size_t count) noexcept {
  constexpr std::size_t line = 64 / sizeof(Scalar);
  for (std::size_t i = 0; i < count; i += line) __builtin_prefetch(from + i, 0, 2);
}

/// Throws std::invalid_argument for noise that the grid cannot carry; `sigma`: in steps of the grid.
inline void require_sigma(double multiplier, double sigma, bool is_rehearsal_without) {
  if (is_rehearsal_without || (sigma >= least_sigma && sigma <= most_sigma)) return;
  throw_invalid_argument({"pergrad: release: noise of multiplier ", multiplier, " is ", sigma,
                          " steps of the grid, and must be in [2^4, 2^46]"});
}

struct total_release;
struct statistic_release;
struct query_release;

/// What becomes of fresh noise before it meets a sum, where the noise of a run's steps is correlated
/// (privacy/correlated/). It makes integers of integers, and nothing of a sum.
class noise_filter {
 public:
  /// What one record can do to all that the run's noise hides, given D of one sum: what fresh noise is scaled by.
  [[nodiscard]] virtual double sensitivity(double of_one_sum, std::size_t elements) const = 0;
  /// Throws std::invalid_argument for a deviation that its arithmetic cannot carry, std::logic_error for a step beyond
  /// the last one, and for another grid or deviation than the steps before had.
  virtual void require_room(const release_grid& grid, double sigma) = 0;
  /// Throws std::invalid_argument for a deviation that its arithmetic cannot carry.
  virtual void require_deviation(double sigma) const = 0;
  /// Throws std::logic_error for a release by more threads than there is memory for.
  virtual void require_threads(std::size_t threads) const = 0;
  /// Begins the next step, whose fresh noise is that of the generator's step `drawn`. Returns the generator's steps of
  /// those earlier ones whose noise has to go through the filter again first, in their order.
  virtual std::span<const std::uint64_t> begin(std::uint64_t drawn) noexcept = 0;
  /// Noise of a block of elements, in place: of step `i` of those that begin() returned, or of the new one behind them.
  /// `thread` may have memory of its own.
  virtual void filter(std::size_t i, std::size_t block, std::size_t thread, double (&k)[gaussian_block]) noexcept = 0;

 protected:
  noise_filter() = default;
  noise_filter(const noise_filter&) = default;
  noise_filter& operator=(const noise_filter&) = default;
  ~noise_filter() = default;
};

/// The deviation of fresh noise, in steps of the grid as `sensitivity` is; `filter` may be null.
[[nodiscard]] inline double fresh_deviation(double multiplier, double sensitivity, std::size_t elements,
                                            const noise_filter* filter) {
  return multiplier * (filter == nullptr ? sensitivity : filter->sensitivity(sensitivity, elements));
}

/// One release, divided by a public constant. Construction throws whatever can be wrong; after that nothing can fail.
template <class Scalar>
class release_gate {
 public:
  /// Takes a step of the generator: its noise is used up, whatever comes of it. Throws std::invalid_argument for noise
  /// that the grid cannot carry, std::out_of_range beyond `gaussians_per_step` elements, and what the generator throws.
  /// No noise at all is for rehearsals with a seed only.
  /// Anybody may look at noise from a seed; with a secret key only a total (expressions/noise.hpp) and counts
  /// (statistics.hpp) are.
  release_gate(const release_grid& grid, double sensitivity, noise_multiplier noise, double divisor,
               seeded_generator& generator, noise_filter* filter = nullptr)
      : release_gate{of_any_generator{}, grid, sensitivity, noise, divisor, generator, filter} {
    begin_filter();
  }

  /// Elements of a stretch, but for the last one.
  static constexpr std::size_t stretch = 4 * gaussian_block;
  /// Stretches of the release; each is to be released once, on any thread.
  [[nodiscard]] std::size_t stretches() const noexcept { return (elements_ + stretch - 1) / stretch; }
  /// out = g (Q(S) + k) for stretch `number`, then `update`. `out` may be the sum itself, or null: then nothing is
  /// kept.
  void release(std::size_t number, const unreleased_sum<Scalar>& sum, Scalar* out, const element_update<Scalar>& update,
               std::size_t thread = 0) const noexcept {
    const std::size_t end = std::min(elements_, (number + 1) * stretch);
    alignas(64) Scalar zeros[gaussian_block];
    if (sum.floating == nullptr || sum.integers != nullptr) std::fill_n(zeros, gaussian_block, Scalar{0});
    for (std::size_t first = number * stretch; first < end; first += gaussian_block) {
      const std::size_t count = std::min(gaussian_block, end - first);
      const Scalar* const floating = sum.floating == nullptr ? zeros : sum.floating + first;
      if (floating != zeros) fetch_elements(floating, count);
      for (const Scalar* each : update.beside) {
        if (each != nullptr) fetch_elements(each + first, count);
      }
      alignas(64) double k[gaussian_block];
      draw(first, k);
      if (filter_ != nullptr) correlate(first, thread, k);
      alignas(64) Scalar passing[gaussian_block];
      Scalar* const to = out == nullptr ? passing : out + first;
      {
        const float_environment flushed{subnormal_numbers::flushed};  // else they might take longer
        if (sum.integers == nullptr) {
          store(k, floating, to, count);
        } else {
          for (std::size_t i = 0; i < count; ++i) {
            const auto place = static_cast<std::int64_t>(on_grid(floating[i], scale_)) + sum.integers[first + i];
            k[i] += static_cast<double>(within_grid(place));
          }
          store(k, zeros, to, count);
        }
      }
      wipe(k, sizeof k);
      if (update.apply != nullptr) update.apply(update.context, first, to, count);
    }
  }

 private:
  /// +-2^50 at most. By masks: a compiler may make jumps of comparisons, and jumps take their time from the sum.
  [[nodiscard]] static std::int64_t within_grid(std::int64_t place) noexcept {
    constexpr auto most = static_cast<std::int64_t>(most_on_grid);
    const std::int64_t above = place - most;
    place = most + (above & above >> 63);
    const std::int64_t below = place + most;
    return (below & ~(below >> 63)) - most;
  }

  friend struct total_release;
  friend struct statistic_release;
  friend struct query_release;
  struct of_any_generator {};
  template <random_generator Generator>
  release_gate(of_any_generator /*unused*/, const release_grid& grid, double sensitivity, noise_multiplier noise,
               double divisor, Generator& generator, noise_filter* filter = nullptr)
      : elements_{grid.elements},
        sigma_{fresh_deviation(noise.value(), sensitivity, grid.elements, filter)},
        scale_{std::ldexp(1.0, grid.steps), std::ldexp(1.0, grid.unit - grid.steps) / divisor,
               static_cast<double>(std::numeric_limits<Scalar>::max())},
        filter_{filter},
        stream_{stream_of_next_step(grid, noise, generator)} {}
  /// Before the first stretch, once nothing can fail any more: from here on the filter counts on this step's noise.
  void begin_filter() noexcept {
    if (filter_ != nullptr) before_ = filter_->begin(stream_.step_);
  }
  /// Once nothing else can be wrong.
  template <random_generator Generator>
  [[nodiscard]] secret_stream<randomness::noise> stream_of_next_step(const release_grid& grid, noise_multiplier noise,
                                                                     Generator& generator) const {
    require_sigma(noise.value(), sigma_, !Generator::is_private && sigma_ == 0);
    require_gaussians(0, elements_);
    if (filter_ != nullptr) filter_->require_room(grid, sigma_);
    return generator.template stream<randomness::noise>(generator.next_step());
  }

  void draw(std::size_t first, double (&k)[gaussian_block]) const noexcept { draw_of(stream_, first, k); }
  void draw_of(const secret_stream<randomness::noise>& stream, std::size_t first,
               double (&k)[gaussian_block]) const noexcept {
    if (sigma_ == 0) {
      std::fill_n(k, gaussian_block, 0.0);
    } else {
      fill_rounded_gaussians<native_lanes, Scalar>(stream.key(), stream.nonce(), first / gaussian_block, sigma_, k);
    }
  }
  /// What was drawn becomes noise of the run.
  [[gnu::noinline]] void correlate(std::size_t first, std::size_t thread, double (&k)[gaussian_block]) const noexcept {
    alignas(64) double earlier[gaussian_block];
    for (std::size_t i = 0; i < before_.size(); ++i) {
      draw_of({*stream_.key_, before_[i]}, first, earlier);
      filter_->filter(i, first / gaussian_block, thread, earlier);
    }
    filter_->filter(before_.size(), first / gaussian_block, thread, k);
    wipe(earlier, sizeof earlier);
  }
  void store(const double* k, const Scalar* sum, Scalar* out, std::size_t count) const noexcept {
    release_kernels_in_use<Scalar>().release(k, sum, scale_, out, static_cast<int>(count));
  }

  std::size_t elements_ = 0;
  double sigma_ = 0;  ///< of the noise in steps of the grid
  release_scale scale_;
  noise_filter* filter_ = nullptr;
  std::span<const std::uint64_t> before_;  ///< steps of the generator whose noise goes through the filter first
  secret_stream<randomness::noise> stream_;
};

}  // namespace detail

}  // namespace pergrad::inline v0_1
