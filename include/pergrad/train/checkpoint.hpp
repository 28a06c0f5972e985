// SPDX-License-Identifier: Apache-2.0
// pergrad/train/checkpoint.hpp - parameters to and from a file: NumPy's .npy format, PyTorch's order
//
// A run that is to go on in another process needs more than parameters: see resume.hpp.
//
// `numpy.load(path)` gives the flat vector of `torch.nn.utils.parameters_to_vector`. Keys and generator states are
// never written: who has them can subtract the noise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
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

/// An array as the bytes of a .npy file.
template <class Value>
[[nodiscard]] std::string npy_bytes(std::span<const Value> values) {
  std::string bytes = npy_header<Value>(values.size());
  const std::size_t start = bytes.size();
  bytes.resize(start + values.size_bytes());
  if (!values.empty()) std::memcpy(bytes.data() + start, values.data(), values.size_bytes());
  return bytes;
}

/// The file appears whole or not at all. Throws std::runtime_error naming it.
inline void write_whole_file(const std::string& path, const std::string& bytes) {
  const std::string unfinished = path + ".unfinished";
  file stream = open_file(unfinished, "wb");
  const bool written = stream != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), stream.get()) == bytes.size();
  if (const bool closed = stream != nullptr && std::fclose(stream.release()) == 0; !written || !closed) {
    static_cast<void>(std::remove(unfinished.c_str()));
    throw std::runtime_error("pergrad: " + path + ": cannot be written");
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    static_cast<void>(std::remove(unfinished.c_str()));
    throw std::runtime_error("pergrad: " + path + ": cannot be put in place");
  }
}

}  // namespace detail

/// Writes all parameters, frozen ones last. The file appears whole or not at all. Throws std::runtime_error naming the
/// file.
template <class Network>
void save_parameters(const Network& network, const std::string& path) {
  detail::write_whole_file(path, detail::npy_bytes<typename Network::scalar>(network.all_parameters()));
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
