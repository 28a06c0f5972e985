// SPDX-License-Identifier: Apache-2.0
// pergrad/train/checkpoint.hpp - parameters to and from a file: NumPy's .npy format, PyTorch's order
//
// A run that is to go on in another process needs more than parameters: see resume.hpp.
//
// `numpy.load(path)` gives the flat vector of `torch.nn.utils.parameters_to_vector`. Keys and generator states are
// never written: who has them can subtract the noise.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include <pergrad/detail/file.hpp>
#include <pergrad/network.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Scalar>
[[nodiscard]] std::string npy_header(std::size_t count) {
  std::string dictionary = std::string{"{'descr': '<"} + (std::is_integral_v<Scalar> ? 'u' : 'f') +
                           std::to_string(sizeof(Scalar)) + "', 'fortran_order': False, 'shape': (" +
                           std::to_string(count) + ",), }";
  constexpr std::size_t preamble = 10;
  dictionary.append(63 - (preamble + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  const auto size = static_cast<std::uint16_t>(dictionary.size());
  std::string header{"\x93NUMPY\x01\x00", 8};
  header += static_cast<char>(size & 0xFFU);
  header += static_cast<char>(size >> 8U);
  return header + dictionary;
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

/// Writes the stretches one after another, each from where it lies. The file appears whole or not at all: what was
/// there before stays until the new one is complete. Throws std::runtime_error that names it and says what failed.
inline void write_whole_file(const std::string& path, std::span<const byte_stretch> stretches) {
  const std::string unfinished = path + ".unfinished";
  const auto fail = [&](const char* what, int reason) {
    throw std::runtime_error("pergrad: " + path + ": " + what + ": " + std::generic_category().message(reason));
  };
  file stream = open_file(unfinished, "wb");
  if (stream == nullptr) fail("cannot be written", errno);
  const char* what = "cannot be written";
  bool done = std::ranges::all_of(stretches, [&](byte_stretch each) {
    return each.empty() || std::fwrite(each.data(), 1, each.size(), stream.get()) == each.size();
  });
  int reason = errno;  // of the first failure
  if (std::fclose(stream.release()) != 0 && done) {
    done = false;
    reason = errno;
  }
  if (done && std::rename(unfinished.c_str(), path.c_str()) != 0) {
    done = false;
    reason = errno;
    what = "cannot be put in place";
  }
  if (done) return;
  static_cast<void>(std::remove(unfinished.c_str()));
  fail(what, reason);
}

}  // namespace detail

/// Writes all parameters, frozen ones last, from where they lie: memory does not grow with them. The file appears whole
/// or not at all. Throws std::runtime_error that names the file and says what failed.
template <class Network>
void save_parameters(const Network& network, const std::string& path) {
  const auto values = network.all_parameters();
  const std::string header = detail::npy_header<typename Network::scalar>(values.size());
  const detail::byte_stretch stretches[]{detail::bytes_of(header), detail::bytes_of(values.data(), values.size())};
  detail::write_whole_file(path, stretches);
}

/// Reads all parameters; the network is unchanged if anything is wrong. Throws std::runtime_error that says what and
/// where.
template <class Network>
void load_parameters(Network& network, const std::string& path) {
  using scalar = typename Network::scalar;
  const detail::file file = detail::open_file(path, "rb");
  if (file == nullptr) throw std::runtime_error("pergrad: " + path + ": cannot be opened");
  const std::span<scalar> values = network.all_parameters();
  constexpr std::size_t longest_header = 10 + 0xFFFF;
  std::vector<char> bytes(longest_header + values.size_bytes() + 1);  // one more than any right file has
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  if (std::ferror(file.get()) != 0) throw std::runtime_error("pergrad: " + path + ": cannot be read");
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY\x01\x00", 8) != 0) {
    throw std::runtime_error("pergrad: " + path + ": not a .npy file of version 1.0");
  }
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const std::size_t start = 10 + byte(8) + 256 * byte(9);
  const std::string dictionary{bytes.data() + 10, std::min(bytes.size(), start) - 10};
  const std::string type = sizeof(scalar) == 4 ? "'<f4'" : "'<f8'";
  const std::string extent = "(" + std::to_string(values.size()) + ",)";
  if (dictionary.find("'descr': " + type) == std::string::npos || dictionary.find(extent) == std::string::npos ||
      dictionary.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error("pergrad: " + path + ": expected an array of type " + type + " and shape " + extent +
                             ", found " + dictionary.substr(0, dictionary.find_last_of('}') + 1));
  }
  const std::size_t found = bytes.size() - std::min(bytes.size(), start);
  if (found != values.size_bytes()) {
    throw std::runtime_error("pergrad: " + path + ": expected " + std::to_string(values.size_bytes()) +
                             " bytes of values at byte " + std::to_string(start) + ", found " +
                             (found > values.size_bytes() ? "more" : std::to_string(found)));
  }
  std::memcpy(values.data(), bytes.data() + start, values.size_bytes());
}

}  // namespace pergrad::inline v0_1
