// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/layer_randomness.hpp - random bits of layers such as dropout: a function of key, step, record, layer
// and element
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/purpose.hpp>

namespace pergrad::inline v0_1 {

/// Where a run's randomness inside layers comes from. Without a stream, layers behave as in evaluation: dropout does
/// nothing.
struct layer_randomness {
  layer_randomness() = default;
  explicit layer_randomness(const detail::secret_stream<detail::randomness::layers>& stream) noexcept
      : stream_{stream} {}
  /// That of the generator's next step, which is drawn.
  template <random_generator Generator>
  [[nodiscard]] static layer_randomness of_next_step(Generator& generator) {
    return layer_randomness{generator.template stream<detail::randomness::layers>(generator.next_step())};
  }
  friend bool operator==(const layer_randomness&, const layer_randomness&) noexcept = default;

  [[nodiscard]] bool is_random() const noexcept {
    return !(stream_ == detail::secret_stream<detail::randomness::layers>{});
  }
  /// Another one for a record that is seen several times in a step; view 0 is this one.
  [[nodiscard]] layer_randomness of_view(std::uint32_t view) const noexcept {
    layer_randomness other = *this;
    other.view_ = view;
    return other;
  }
  /// 32 random bits for each of the elements from `first` on, a multiple of 16: a function of (key, step, record, view,
  /// layer, element), so of nothing that an executor chooses. A sample's own key comes from its record; layer and
  /// element are nonce and counter under it. Precondition: is_random().
  void bits(std::uint32_t record, std::uint32_t layer, std::size_t first, std::span<std::uint32_t> to) const noexcept {
    const chacha_nonce nonce = view_ == 0 ? stream_.nonce() : continued(stream_.nonce(), view_ - 1);
    const chacha_block seed = chacha20_block(stream_.key(), nonce, record);
    chacha_key own;
    for (std::size_t i = 0; i < own.words.size(); ++i) own.words[i] = seed[i];
    chacha20_keystream(own, make_nonce(random_purpose::dropout, layer), first / 16, to);
  }

 private:
  friend struct on_device::stream_upload;
  detail::secret_stream<detail::randomness::layers> stream_;
  std::uint32_t view_ = 0;
};

}  // namespace pergrad::inline v0_1
