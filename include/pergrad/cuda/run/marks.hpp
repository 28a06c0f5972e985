// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/marks.hpp - Poisson sampling on a device, a step ahead
//
// A step's records are a function of the key, the number of its draw and the record. So the device marks the next
// step's while the host still hands out this one's, and the copy of the marks does not wait for the step between. What
// the next draw's number is, is a guess: a wrong one costs a wait. The bits are those of poisson_sampling::mark, and
// the host looks whether they are: at one group of 128 records a step, another one each time. Who is drawn otherwise
// than the ledger says would be seen nowhere else.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/random.hpp>
#include <pergrad/cuda/run/memory.hpp>
#include <pergrad/privacy/sampling.hpp>

namespace pergrad::inline v0_1::on_device {

/// Marks records for one run, step after step.
template <class Device>
class device_marks {
 public:
  explicit device_marks(std::shared_ptr<Device> device) noexcept : device_{std::move(device)} {}

  /// Which of the records [begin, end) the step at `place` draws: bit i of all words together is record begin + i.
  /// Until the next step's are asked for. `begin` is a multiple of poisson_sampling::marked_together. Throws
  /// std::out_of_range beyond 2^35 records, std::runtime_error where the device draws others than the host would, and
  /// what the device throws.
  [[nodiscard]] std::span<const std::uint64_t> of(const poisson_sampling& sampling, const draw_place& place,
                                                  std::uint64_t begin, std::uint64_t end) {
    const auto words = static_cast<std::size_t>((end - begin + together - 1) / together * 2);
    if (sampling.is_below(std::numeric_limits<std::uint64_t>::max())) {  // everybody
      all_.assign(words, ~std::uint64_t{0});
      return all_;
    }
    pergrad::detail::require_blocks("poisson_sampling", 16 * (begin / together), 8 * words);
    const std::uint64_t step = stream_upload::step(place.step);
    const held_stream stream{stream_upload::words(place.step)};
    if (std::memcmp(&stream.stream, &stream_.stream, sizeof stream.stream) != 0) {  // another key
      stream_.stream = stream.stream;
      now_.marked.reset();
      next_.marked.reset();
    }
    const job wanted{sampling, step, begin, end};
    if (now_.marked != wanted) {
      if (next_.marked != wanted) launch_job(next_, wanted, words);
      if (now_.marked && now_.marked->step < step) stride_ = step - now_.marked->step;
      std::swap(now_, next_);
      launch_job(next_, {sampling, step + stride_, begin, end}, words);
      is_compared_ = false;
    }
    const std::span marks{static_cast<const std::uint64_t*>(now_.arrived->wait()), words};
    if (runs_kernels<Device> && !is_compared_ && words > 0) compare(sampling, place, begin, marks);
    return marks;
  }

 private:
  static constexpr std::uint64_t together = poisson_sampling::marked_together;
  struct job {
    poisson_sampling sampling;
    std::uint64_t step = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    friend bool operator==(const job&, const job&) noexcept = default;
  };
  /// Words on the device, and where they arrive.
  struct room {
    std::shared_ptr<std::byte> words;
    std::unique_ptr<typename Device::mailbox> arrived;
    std::size_t size = 0;
    std::optional<job> marked;
  };

  void compare(const poisson_sampling& sampling, const draw_place& place, std::uint64_t begin,
               std::span<const std::uint64_t> marks) {
    const std::uint64_t group = compared_ % (marks.size() / 2);
    std::array<std::uint64_t, 2> wanted{};
    sampling.mark(place.step, begin + group * together, wanted);
    const auto found = marks.subspan(static_cast<std::size_t>(2 * group), 2);
    is_wrong_ = is_wrong_ || !std::ranges::equal(found, wanted);
    if (is_wrong_) {
      throw std::runtime_error("pergrad: dp_sgd: this device does not draw the host's records, and trains on none");
    }
    is_compared_ = true;
    ++compared_;
  }
  void launch_job(room& in, const job& wanted, std::size_t words) {
    in.marked.reset();  // until all of it is in the device's order
    if (in.size < words) {
      in.size = 0;         // until there is room again, also where that fails
      in.arrived.reset();  // before what it copies from
      in.words = allocate_on(device_, words * sizeof(std::uint64_t));
      in.arrived = std::make_unique<typename Device::mailbox>(*device_, words * sizeof(std::uint64_t));
      in.size = words;
    }
    auto* const to = reinterpret_cast<std::uint64_t*>(in.words.get());
    launch(*device_, mark_kernel{stream_.stream, wanted.step, wanted.sampling,
                                 static_cast<std::uint32_t>(wanted.begin / together), static_cast<int>(words / 2), to});
    in.arrived->post(to, words * sizeof(std::uint64_t));
    in.marked = wanted;
  }

  std::shared_ptr<Device> device_;
  held_stream stream_{};
  std::uint64_t stride_ = 2;  ///< from a step's draw to the next one's, behind its noise
  room now_;
  room next_;
  std::vector<std::uint64_t> all_;
  std::uint64_t compared_ = 0;
  bool is_compared_ = false;  ///< the marks of now
  bool is_wrong_ = false;     ///< this device, once and for all
};

}  // namespace pergrad::inline v0_1::on_device
