// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/file.hpp - an open file of C's streams, and files that are written whole or not at all
//
// C's streams and system calls: <fstream> costs every program that includes the library more to compile than the
// readers themselves.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>

namespace pergrad::inline v0_1::detail {

struct file_closer {
  void operator()(std::FILE* stream) const noexcept { static_cast<void>(std::fclose(stream)); }
};
/// An open file, or none.
using file = std::unique_ptr<std::FILE, file_closer>;

/// None if it cannot be opened; errno says why.
[[nodiscard]] inline file open_file(const std::string& path, const char* mode) noexcept {
  return file{std::fopen(path.c_str(), mode)};
}

[[noreturn]] inline void fail_with_file(const std::string& path, const std::string& what) {
  throw std::runtime_error("pergrad: " + path + ": " + what);
}

/// To read. Throws std::runtime_error for a file that cannot be opened, and for one that is not regular: a pipe would
/// be waited for. Text is std::string: a template is compiled where it is used only.
template <class Text>
[[nodiscard]] file open_regular_file(const Text& path) {
  struct stat facts {};
  const bool is_there = ::stat(path.c_str(), &facts) == 0;
  if (is_there && !S_ISREG(facts.st_mode)) fail_with_file(path, "cannot be read: it is not a regular file");
  file opened = is_there ? open_file(path, "rb") : file{};
  if (opened == nullptr) fail_with_file(path, "cannot be opened");
  return opened;
}

/// Bytes of a file, where they lie.
using byte_stretch = std::span<const std::byte>;

// Not std::as_bytes(std::span{...}): to deduce its type costs every program that includes the library, 4 % of the
// header.
template <class Value>
[[nodiscard]] byte_stretch bytes_of(const Value* values, std::size_t count) noexcept {
  return {reinterpret_cast<const std::byte*>(values), count * sizeof(Value)};
}
[[nodiscard]] inline byte_stretch bytes_of(const std::string& text) noexcept {
  return bytes_of(text.data(), text.size());
}

/// A new file beside the one that it is to replace, open for writing; what is not put in place is removed. Text is
/// std::string: a template is compiled where it is used only.
template <class Text>
class unfinished_file {
 public:
  /// A symbolic link stays one: its target is replaced, or made if it is not there. `for_its_owner`: for nobody else,
  /// whoever could read the file that is replaced. Throws std::runtime_error that says why there can be no file.
  explicit unfinished_file(const std::string& path, bool for_its_owner = false) : path_{path}, target_{path} {
    follow_links();
    struct stat before {};
    struct stat made {};
    const bool replaces = ::stat(target_.c_str(), &before) == 0;
    if (replaces && !S_ISREG(before.st_mode)) fail_with_file(path_, "cannot be written: it is not a regular file");
    for (unsigned number = 0; descriptor_ < 0; ++number) {  // what a process that was killed left is not touched
      name_ = target_ + ".unfinished." + std::to_string(::getpid()) + "." + std::to_string(number);
      descriptor_ =
          ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces || for_its_owner ? 0600 : 0666);
      if (descriptor_ < 0 && (errno != EEXIST || number == 1000)) {
        name_.clear();
        fail("cannot be written");
      }
    }
    if (!replaces) return;
    // A file that was for few remains so, also for those who open this one before it has its mode.
    ::mode_t mode = before.st_mode & 07777U;
    if (::fstat(descriptor_, &made) != 0) give_up("cannot be written");
    if (made.st_gid != before.st_gid && ::fchown(descriptor_, static_cast<::uid_t>(-1), before.st_gid) != 0) {
      // Of another group: it and all others may do what both might.
      const ::mode_t of_both = (mode >> 3U) & mode & 07U;
      mode = (mode & 0700U) | of_both << 3U | of_both;
    }
    if (for_its_owner) mode &= 0700U;
    if (::fchmod(descriptor_, mode) != 0) give_up("cannot be written");
  }
  unfinished_file(const unfinished_file&) = delete;
  unfinished_file& operator=(const unfinished_file&) = delete;
  ~unfinished_file() { clean_up(); }

  void write(byte_stretch bytes) {
    constexpr std::size_t most = std::size_t{1} << 30U;  // Linux writes less than 2 GB at once
    while (!bytes.empty()) {
      const ::ssize_t count = ::write(descriptor_, bytes.data(), bytes.size() < most ? bytes.size() : most);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) give_up("cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  /// The bytes are on the disk before the name is theirs, and the name is on the disk when this returns.
  void put_in_place() {
    if (::fsync(descriptor_) != 0) give_up("cannot be written to the disk");
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0) give_up("cannot be written");
    if (::rename(name_.c_str(), target_.c_str()) != 0) give_up("cannot be put in place");
    name_.clear();
    const std::size_t slash = target_.find_last_of('/');
    const std::string folder = slash == std::string::npos ? "." : target_.substr(0, slash + 1);
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // EINVAL: a file system that does not offer it for folders.
    if (descriptor_ < 0 || (::fsync(descriptor_) != 0 && errno != EINVAL)) {
      fail("is written, but its name may be lost with the next failure of the machine");
    }
  }

 private:
  void follow_links() {
    char next[4096];
    for (unsigned links = 0;; ++links) {
      const ::ssize_t count = ::readlink(target_.c_str(), next, sizeof next);
      if (count < 0) return;
      if (links == 40 || static_cast<std::size_t>(count) == sizeof next) {  // as many as Linux follows
        errno = ELOOP;
        fail("cannot be written");
      }
      const std::size_t slash = next[0] == '/' ? std::string::npos : target_.find_last_of('/');
      target_.erase(slash + 1);  // npos + 1 is 0
      target_.append(next, static_cast<std::size_t>(count));
    }
  }
  [[noreturn]] void fail(const char* what) const {
    fail_with_file(path_, std::string{what} + ": " + std::generic_category().message(errno));
  }
  [[noreturn]] void give_up(const char* what) {
    const int reason = errno;
    clean_up();
    errno = reason;
    fail(what);
  }
  void clean_up() noexcept {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!name_.empty()) ::unlink(name_.c_str());
    descriptor_ = -1;
    name_.clear();
  }

  Text path_;    ///< as it was given
  Text target_;  ///< without symbolic links
  Text name_;    ///< of the new file, until it is in place
  int descriptor_ = -1;
};

/// Writes the stretches one after another, each from where it lies. The file appears whole or not at all, whatever
/// stops the process or the machine: what was there before stays until the new one is complete. `for_its_owner`: nobody
/// else may read it. Throws std::runtime_error that names it and says what failed.
template <class = void>
void write_whole_file(const std::string& path, std::span<const byte_stretch> stretches, bool for_its_owner = false) {
  unfinished_file<std::string> made{path, for_its_owner};
  for (const byte_stretch each : stretches) made.write(each);
  made.put_in_place();
}

}  // namespace pergrad::inline v0_1::detail
