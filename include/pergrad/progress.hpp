// SPDX-License-Identifier: Apache-2.0
// pergrad/progress.hpp - a progress bar on a terminal, nothing anywhere else; not in the umbrella, and knows nothing of
// the library
#pragma once

#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>

namespace pergrad::inline v0_1 {

/// Shows how far one epoch and the whole training are, on the last line of a terminal; `clear` takes it away so that a
/// line can be printed in its place. It redraws at most ten times a second. Into a file or a pipe it writes nothing.
class progress_bar {
 public:
  using clock = std::chrono::steady_clock;

  /// Of so many steps in all.
  explicit progress_bar(std::size_t total_steps, std::FILE* to = stdout)
      : total_{total_steps}, to_{to}, start_{clock::now()} {
    const char* const terminal = std::getenv("TERM");
    shown_ = ::isatty(::fileno(to)) == 1 && terminal != nullptr && std::string_view{terminal} != "dumb";
  }
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;
  ~progress_bar() { clear(); }

  /// `label` stands left of the bar; `done` of `of` steps of this epoch and `total_done` of all steps have been made.
  void draw(const std::string& label, std::size_t done, std::size_t of, std::size_t total_done) {
    const auto now = clock::now();
    if (!shown_ || (drawn_ && now - last_ < std::chrono::milliseconds(100))) {
      return;
    }
    drawn_ = true;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    std::string tail = " ";
    tail += std::to_string(done);
    tail += '/';
    tail += std::to_string(of);
    if (total_done > 0) {
      const double left =
          seconds / static_cast<double>(total_done) * static_cast<double>(total_ - std::min(total_, total_done));
      tail += ", ";
      tail += std::to_string(std::lround(left));
      tail += " s left";
    }
    const std::size_t columns = width();
    const std::size_t taken = label.size() + tail.size() + 4;
    const std::size_t cells = columns > taken ? std::min<std::size_t>(columns - taken, 40) : 0;
    const std::size_t full = of == 0 ? 0 : std::min(cells, cells * done / of);
    std::string line = label;
    line += " [";
    line.append(full, '#').append(cells - full, '.');
    line += ']';
    line += tail;
    line.resize(std::min(line.size(), columns - 1));
    std::fprintf(to_, "\r%s\x1b[K", line.c_str());
    static_cast<void>(std::fflush(to_));
  }

  /// Takes the bar away until it is drawn again.
  void clear() noexcept {
    if (drawn_) {
      std::fputs("\r\x1b[K", to_);
      static_cast<void>(std::fflush(to_));
      drawn_ = false;
    }
  }

 private:
  [[nodiscard]] std::size_t width() const noexcept {
    winsize size{};
    const bool known = ::ioctl(::fileno(to_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col : 80;
  }

  std::size_t total_;
  std::FILE* to_;
  clock::time_point start_;
  clock::time_point last_{};
  bool shown_ = false;
  bool drawn_ = false;
};

}  // namespace pergrad::inline v0_1
