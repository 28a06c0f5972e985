// SPDX-License-Identifier: Apache-2.0
// tests/train/checkpoint_test.cpp - parameters there and back, the .npy format byte by byte, every damaged file refused
// whole, and nothing lost when one cannot be written.
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <unistd.h>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_checkpoint)

namespace {

using namespace fixture;
using precise = classifier::rebind<double>;

/// A folder of this test's own, gone at the end.
struct folder {
  std::filesystem::path path;
  folder() {
    path = std::filesystem::temp_directory_path() / ("pergrad_checkpoint_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
  }
  ~folder() { std::filesystem::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  [[nodiscard]] std::string operator/(const char* name) const { return (path / name).string(); }
};

std::string read(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream file{path, std::ios::binary};
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
const pg::host& executor() {
  static const pg::host exec{pg::threads{1}};
  return exec;
}

/// Loading must throw a runtime_error that names the file and says `what`, and leave the network alone.
template <class Network>
void refused(const std::string& path, const std::string& what) {
  Network net{executor(), pg::kaiming_uniform{2}};
  const std::vector<typename Network::scalar> before{net.parameters().begin(), net.parameters().end()};
  BOOST_CHECK_EXCEPTION(pg::load_parameters(net, path), std::runtime_error, [&](const std::runtime_error& error) {
    const std::string text = error.what();
    BOOST_TEST_MESSAGE(text);
    return text.starts_with("pergrad: ") && text.find(path) != std::string::npos &&
           text.find(what) != std::string::npos;
  });
  BOOST_TEST((std::vector<typename Network::scalar>{net.parameters().begin(), net.parameters().end()} == before));
}

template <class Network>
void round_trip(const std::string& path) {
  using scalar = typename Network::scalar;
  Network net{executor(), pg::kaiming_uniform{1}};
  net.parameters()[0] = std::numeric_limits<scalar>::denorm_min();
  net.parameters()[1] = -scalar{0};
  net.parameters()[2] = std::numeric_limits<scalar>::max();
  pg::save_parameters(net, path);
  Network other{executor(), pg::zeros{}};
  pg::load_parameters(other, path);
  BOOST_TEST(std::memcmp(net.parameters().data(), other.parameters().data(), net.parameters().size_bytes()) == 0);
  BOOST_TEST(!std::filesystem::exists(path + ".unfinished"));
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_saved_is_loaded_bit_for_bit) {
  const folder here;
  round_trip<classifier>(here / "float.npy");
  round_trip<precise>(here / "double.npy");
  round_trip<classifier>(here / "float.npy");  // over an older file
}

// numpy/lib/format.py, version 1.0: magic, version, little-endian length, a Python literal padded with blanks and ended
// by a newline so that the data begin at a multiple of 64, then the values, little-endian, in C order.
BOOST_AUTO_TEST_CASE(the_file_is_npy) {
  const folder here;
  const std::string path = here / "net.npy";
  classifier net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, path);
  const std::string bytes = read(path);
  BOOST_TEST_REQUIRE(bytes.size() > 10U);
  BOOST_TEST(bytes.substr(0, 6) == "\x93NUMPY");
  BOOST_TEST(bytes[6] == 1);
  BOOST_TEST(bytes[7] == 0);
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const std::size_t length = byte(8) + 256 * byte(9);
  BOOST_TEST((10 + length) % 64 == 0U);
  BOOST_TEST_REQUIRE(bytes.size() == 10 + length + 4 * classifier::parameter_count);
  const std::string header = bytes.substr(10, length);
  const std::string literal =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(classifier::parameter_count) + ",), }";
  BOOST_TEST(header.substr(0, literal.size()) == literal);
  BOOST_TEST(header.back() == '\n');
  BOOST_TEST(header.substr(literal.size(), header.size() - literal.size() - 1).find_first_not_of(' ') ==
             std::string::npos);
  for (const std::size_t i : {std::size_t{0}, std::size_t{17}, classifier::parameter_count - 1}) {
    const std::size_t at = 10 + length + 4 * i;
    const auto word =
        static_cast<std::uint32_t>(byte(at) | byte(at + 1) << 8U | byte(at + 2) << 16U | byte(at + 3) << 24U);
    float value = 0;
    std::memcpy(&value, &word, sizeof value);
    BOOST_TEST(value == net.parameters()[i]);
  }
  precise twice{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(twice, path);
  BOOST_TEST(read(path).find("'descr': '<f8'") != std::string::npos);
}

// Headers whose dictionary fills its 64 bytes to the last are where padding goes wrong.
BOOST_AUTO_TEST_CASE(headers_of_all_lengths) {
  for (std::size_t count = 1; count < 2'000'000'000; count = count * 10) {
    const std::string header = pg::detail::npy_header<float>(count);
    BOOST_TEST(header.size() % 64 == 0U);
    BOOST_TEST(header.back() == '\n');
    BOOST_TEST(header.size() - 10 == static_cast<std::size_t>(static_cast<unsigned char>(header[8])) +
                                         256U * static_cast<unsigned char>(header[9]));
  }
}

BOOST_AUTO_TEST_CASE(a_file_that_numpy_writes_otherwise_is_read_too) {
  const folder here;
  const std::string path = here / "numpy.npy";
  classifier net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, path);
  std::string bytes = read(path);
  // Old versions of NumPy aligned the data to 16 bytes.
  const std::size_t start = 10 + static_cast<unsigned char>(bytes[8]);
  const std::string values = bytes.substr(start);
  std::string literal =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(classifier::parameter_count) + ",), }";
  literal.append(15 - (10 + literal.size()) % 16, ' ');
  literal += '\n';
  write(path, std::string{"\x93NUMPY\x01\x00", 8} + static_cast<char>(literal.size()) + '\0' + literal + values);
  classifier other{executor(), pg::zeros{}};
  pg::load_parameters(other, path);
  BOOST_TEST((parameters_of(other) == parameters_of(net)));
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused_whole) {
  const folder here;
  const std::string path = here / "net.npy";
  const classifier net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, path);
  const std::string good = read(path);
  const auto damaged = [&](const std::string& bytes, const std::string& what) {
    write(path, bytes);
    refused<classifier>(path, what);
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  for (std::size_t size = 0; size < good.size(); size += size < 140 ? 1 : 37) {  // cut off anywhere
    write(path, good.substr(0, size));
    refused<classifier>(path, "");
  }
  damaged("", ".npy");
  damaged(good.substr(0, good.size() - 1), "bytes");
  damaged(good + '\0', "bytes");
  damaged(good + good, "bytes");
  damaged("P" + good.substr(1), ".npy");
  damaged(std::string{good}.replace(6, 1, "\x02"), "version 1.0");
  damaged(replaced("'<f4'", "'<f8'"), "'<f4'");
  damaged(replaced("'<f4'", "'>f4'"), "'<f4'");
  damaged(replaced("'<f4'", "'<i4'"), "'<f4'");
  damaged(replaced("False", "True "), "found");
  damaged(replaced("(" + std::to_string(classifier::parameter_count) + ",)",
                   "(" + std::to_string(classifier::parameter_count + 1) + ",)"),
          "shape (" + std::to_string(classifier::parameter_count) + ",)");
  damaged(std::string{good}.replace(8, 2, "\xff\xff"), "");  // a header longer than the file
  damaged(std::string{good}.replace(8, 2, std::string(2, '\0')), "");
  write(path, good);
  refused<precise>(path, "'<f8'");
  using other_width = pg::network<pg::shape{6}, pg::linear<10>>;
  refused<other_width>(path, "(70,)");
  refused<classifier>(here / "nowhere.npy", "opened");
  refused<classifier>(here.path.string(), "read");
  classifier again{executor(), pg::zeros{}};
  pg::load_parameters(again, path);  // the good file still is
  BOOST_TEST((parameters_of(again) == parameters_of(net)));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_leaves_nothing) {
  const folder here;
  const classifier net{executor(), pg::kaiming_uniform{1}};
  const auto fails = [&](const std::string& path, const std::string& what) {
    BOOST_CHECK_EXCEPTION(pg::save_parameters(net, path), std::runtime_error, [&](const std::runtime_error& error) {
      return error.what() == "pergrad: " + path + ": " + what;
    });
  };
  fails(here / "no/such/folder/net.npy", "cannot be written: No such file or directory");
  std::filesystem::create_directories(here.path / "taken");
  fails(here / "taken", "cannot be put in place: Is a directory");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator{here.path}) files += entry.is_regular_file() ? 1U : 0U;
  BOOST_TEST(files == 0U);
}

// The limit on the size of a file stands for a full disk; by setrlimit(2) going beyond it is an error once its signal
// is ignored.
BOOST_AUTO_TEST_CASE(a_disk_that_is_full_costs_nothing_that_was_there) {
  const folder here;
  const std::string path = here / "net.npy";
  using wide = pg::network<pg::shape{100}, pg::linear<200>>;
  wide net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, path);
  const std::string before = read(path);
  net.parameters()[0] += 1;

  struct limit {
    rlimit usual{};
    void (*handler)(int) = std::signal(SIGXFSZ, SIG_IGN);
    explicit limit(rlim_t most) {
      ::getrlimit(RLIMIT_FSIZE, &usual);
      const rlimit less{most, usual.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &less);
    }
    limit(const limit&) = delete;
    limit& operator=(const limit&) = delete;
    ~limit() {
      ::setrlimit(RLIMIT_FSIZE, &usual);
      std::signal(SIGXFSZ, handler);
    }
  };
  // In the header, in the values, and in the last of them, which only closing writes.
  for (const rlim_t most : {rlim_t{100}, rlim_t{50'000}, static_cast<rlim_t>(before.size() - 1)}) {
    std::string said;
    {
      const limit full{most};
      try {
        pg::save_parameters(net, path);
      } catch (const std::runtime_error& error) {
        said = error.what();
      }
    }
    BOOST_TEST(said == "pergrad: " + path + ": cannot be written: File too large");
    BOOST_TEST((read(path) == before));
    BOOST_TEST(!std::filesystem::exists(path + ".unfinished"));
  }
  pg::save_parameters(net, path);
  BOOST_TEST((read(path) != before));
}

BOOST_AUTO_TEST_SUITE_END()
