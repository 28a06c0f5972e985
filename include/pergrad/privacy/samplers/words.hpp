// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/words.hpp - random words of a record, and whole numbers that are equally likely
//
// A sampler has a word of 64 bits for each record in families 0, 1, 2, ... of a stream; no two (family, record) share
// bits. Family 0 has the layout of Poisson sampling (privacy/sampling.hpp), the others the same under nonces that
// continue the stream's.
//
// A number below n: floor(w n / 2^64) of a word w, unless the low half of w n is below 2^64 mod n; then of the same
// word of the next family (Lemire 2019, arXiv:1805.10941). Of the words that are kept, each number has equally many. A
// word is given up with probability n / 2^64 at most, n < 2^32; three in a row, which is 2^-96, do not happen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/purpose.hpp>

namespace pergrad::inline v0_1::detail {

class sampling_words {
 public:
  /// Words that `block` gives together.
  static constexpr std::size_t together = 128;

  /// Precondition: family < 2^24.
  sampling_words(const secret_stream<randomness::sampling>& stream, std::uint64_t family) noexcept
      : key_{&stream.key()},
        nonce_{family == 0 ? stream.nonce() : continued(stream.nonce(), static_cast<std::uint32_t>(family - 1))} {}

  /// Those of records 128 number, 128 number + 1, ...
  void block(std::uint64_t number, std::span<std::uint64_t, together> words) const noexcept {
    block<native_lanes>(number, words);
  }
  [[nodiscard]] std::uint64_t at(std::uint64_t record) const noexcept {
    const chacha_block words =
        chacha20_block(*key_, nonce_, static_cast<std::uint32_t>(16 * (record / together) + record % 16));
    const std::size_t row = record % together / 16;
    return (std::uint64_t{words[row]} << 32U) | words[8 + row];
  }

 private:
  template <int Lanes>
  void block(std::uint64_t number, std::span<std::uint64_t, together> words) const noexcept {
    using u32 = typename lanes<Lanes>::u32;
    constexpr auto width = static_cast<std::size_t>(Lanes);
    for (std::size_t column = 0; column < 16; column += width) {
      u32 state[16];
      chacha_lanes<Lanes>(*key_, nonce_, lane_numbers<Lanes>() + static_cast<std::uint32_t>(16 * number + column),
                          state);
      for (std::size_t row = 0; row < 8; ++row) {
        std::uint32_t high[width];
        std::uint32_t low[width];
        std::memcpy(high, &state[row], sizeof high);
        std::memcpy(low, &state[8 + row], sizeof low);
        for (std::size_t lane = 0; lane < width; ++lane) {
          words[16 * row + column + lane] = (std::uint64_t{high[lane]} << 32U) | low[lane];
        }
      }
    }
  }

  const chacha_key* key_;
  chacha_nonce nonce_;
};

/// Throws std::invalid_argument unless these are whole blocks of records, std::out_of_range beyond 2^35.
inline void require_whole_blocks(std::uint64_t first, std::size_t words) {
  constexpr std::uint64_t together = sampling_words::together;
  if (first % together != 0 || words % (together / 64) != 0) {
    throw_invalid_argument({"pergrad: records are marked in whole blocks of ", together});
  }
  require_blocks("sampling", 16 * (first / together), 16 * (words / (together / 64)));
}

/// A number below `bound` for this record, by its word `word` of `family` and, seldom, of the two behind it.
/// Precondition: 0 < bound < 2^32.
[[nodiscard]] inline std::uint64_t number_below(std::uint64_t bound, std::uint64_t word, std::uint64_t record,
                                                const secret_stream<randomness::sampling>& stream,
                                                std::uint64_t family) noexcept {
  for (int given_up = 0;; ++given_up) {
    const std::uint64_t low = word * bound;
    if (low >= bound || low >= (0 - bound) % bound || given_up == 2) {
      return ((word >> 32U) * bound + ((word & 0xffff'ffffU) * bound >> 32U)) >> 32U;
    }
    word = sampling_words{stream, ++family}.at(record);
  }
}

/// visit(record, number): a number below bound(record) for each of the records 0, 1, ..., count - 1, in their order.
template <class Bound, class Visit>
void for_each_number(const secret_stream<randomness::sampling>& stream, std::uint64_t family, std::uint64_t count,
                     const Bound& bound, const Visit& visit) {
  const sampling_words words{stream, family};
  std::uint64_t some[sampling_words::together];
  for (std::uint64_t record = 0; record < count; ++record) {
    if (record % sampling_words::together == 0) words.block(record / sampling_words::together, some);
    visit(record, number_below(bound(record), some[record % sampling_words::together], record, stream, family));
  }
}

}  // namespace pergrad::inline v0_1::detail
