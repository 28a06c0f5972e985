// SPDX-License-Identifier: Apache-2.0
// tests/data/idx_test.cpp - sound IDX files are read exactly, damaged ones are refused with the place and the reason
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <pergrad/data/idx.hpp>

BOOST_AUTO_TEST_SUITE(idx)

namespace {

using bytes = std::vector<std::uint8_t>;

bytes idx_file(std::initializer_list<std::uint32_t> extents, std::size_t payload) {
  bytes file{0, 0, 8, static_cast<std::uint8_t>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      file.push_back(static_cast<std::uint8_t>(extent >> shift));
    }
  }
  for (std::size_t position = 0; position < payload; ++position) {
    file.push_back(static_cast<std::uint8_t>(position * 7));
  }
  return file;
}

// True if parsing throws a std::runtime_error that begins as every message of the library does, names the file and
// the offset, and contains all the given parts.
bool refused(const bytes& file, std::size_t offset, std::initializer_list<const char*> parts) {
  try {
    static_cast<void>(pergrad::parse_idx(file, "some-file"));
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    BOOST_TEST_INFO(message);
    bool good = message.starts_with("pergrad: some-file, byte " + std::to_string(offset) + ": ");
    for (const char* part : parts) {
      good = good && message.find(part) != std::string::npos;
    }
    BOOST_CHECK_MESSAGE(good, "unexpected message: " << message);
    return good;
  }
  return false;
}

// A file in the temporary directory that goes when the test ends.
class temporary_file {
 public:
  explicit temporary_file(const bytes& content) {
    path_ =
        (std::filesystem::temp_directory_path() / ("pergrad-idx-" + std::to_string(std::random_device{}()))).string();
    std::FILE* const stream = std::fopen(path_.c_str(), "wb");
    BOOST_REQUIRE(stream != nullptr);
    BOOST_REQUIRE_EQUAL(std::fwrite(content.data(), 1, content.size(), stream), content.size());
    BOOST_REQUIRE_EQUAL(std::fclose(stream), 0);
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_sound_file_is_read_exactly) {
  const auto array = pergrad::parse_idx(idx_file({2, 3, 5}, 30), "some-file");
  const std::vector<std::size_t> extents{2, 3, 5};
  BOOST_TEST(array.extents == extents, boost::test_tools::per_element());
  BOOST_REQUIRE_EQUAL(array.values.size(), 30U);
  for (std::size_t position = 0; position < 30; ++position) {
    BOOST_TEST(array.values[position] == static_cast<std::uint8_t>(position * 7));
  }
}

BOOST_AUTO_TEST_CASE(extents_are_big_endian) {
  const auto array = pergrad::parse_idx(idx_file({0x00010203}, 0x00010203), "some-file");
  BOOST_TEST(array.extents.at(0) == 66'051U);
  BOOST_TEST(array.values.size() == 66'051U);
}

BOOST_AUTO_TEST_CASE(an_extent_of_zero_is_an_empty_array_whatever_the_others_are) {
  const auto array = pergrad::parse_idx(idx_file({0xffffffff, 0xffffffff, 0xffffffff, 0}, 0), "some-file");
  BOOST_TEST(array.extents.size() == 4U);
  BOOST_TEST(array.values.empty());
  BOOST_TEST(refused(idx_file({0xffffffff, 0}, 1), 12, {"found 1 bytes after"}));
}

BOOST_AUTO_TEST_CASE(an_empty_file_is_refused) { BOOST_TEST(refused({}, 0, {"magic number", "expected 4 bytes"})); }

BOOST_AUTO_TEST_CASE(every_truncated_header_is_refused_at_its_end) {
  const bytes whole = idx_file({2, 3, 5}, 30);
  for (std::size_t size = 0; size < 16; ++size) {
    const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    BOOST_TEST(refused(part, size, {size < 4 ? "expected 4 bytes" : "expected 16 bytes for 3 dimensions"}));
  }
}

BOOST_AUTO_TEST_CASE(a_wrong_magic_number_is_refused) {
  bytes file = idx_file({2}, 2);
  file[0] = 0x1f;
  BOOST_TEST(refused(file, 0, {"found 0x1f", "expected the zero"}));
  file[0] = 0;
  file[1] = 0xab;
  BOOST_TEST(refused(file, 1, {"found 0xab", "expected the zero"}));
}

BOOST_AUTO_TEST_CASE(every_other_element_type_is_refused) {
  for (unsigned type = 0; type < 256; ++type) {
    if (type != 8) {
      bytes file = idx_file({2}, 2);
      file[2] = static_cast<std::uint8_t>(type);
      BOOST_TEST(refused(file, 2, {"found element type 0x", "expected 0x08 (unsigned byte)"}));
    }
  }
}

BOOST_AUTO_TEST_CASE(no_dimensions_are_refused) {
  BOOST_TEST(refused({0, 0, 8, 0, 1}, 3, {"found 0 dimensions", "expected at least 1"}));
}

BOOST_AUTO_TEST_CASE(a_product_that_overflows_is_refused) {
  BOOST_TEST(refused(idx_file({0xffffffff, 0xffffffff, 0xffffffff}, 8), 12,
                     {"4294967295 x 4294967295 x 4294967295", "overflows"}));
  // 2^32 * 2^32 = 2^64 would wrap to the zero bytes that are there.
  BOOST_TEST(refused(idx_file({0x80000000, 0x80000000, 4}, 0), 12, {"overflows"}));
}

BOOST_AUTO_TEST_CASE(a_huge_claim_is_refused_without_allocating_it) {
  BOOST_TEST(refused(idx_file({0xffffffff, 0xffffffff}, 3), 15,
                     {"ends after 3 values", "expected 18446744065119617025 (4294967295 x 4294967295)"}));
}

BOOST_AUTO_TEST_CASE(a_short_payload_is_refused) {
  BOOST_TEST(refused(idx_file({4, 5}, 19), 31, {"ends after 19 values", "expected 20 (4 x 5)"}));
  BOOST_TEST(refused(idx_file({4, 5}, 0), 12, {"ends after 0 values", "expected 20 (4 x 5)"}));
}

BOOST_AUTO_TEST_CASE(trailing_bytes_are_refused) {
  BOOST_TEST(refused(idx_file({4, 5}, 22), 32, {"found 2 bytes after the last value", "expected 20 values (4 x 5)"}));
}

BOOST_AUTO_TEST_CASE(damage_at_any_byte_of_the_header_never_reads_what_is_not_there) {
  const bytes whole = idx_file({2, 3, 5}, 30);
  for (std::size_t offset = 0; offset < 16; ++offset) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      bytes file = whole;
      file[offset] = static_cast<std::uint8_t>(file[offset] ^ (1U << bit));
      BOOST_CHECK_THROW(static_cast<void>(pergrad::parse_idx(file, "some-file")), std::runtime_error);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_file_on_disk_is_read) {
  // Larger than, and a multiple of, any plausible read size.
  const bytes content = idx_file({256, 1024}, 262'144);
  const temporary_file file(content);
  const auto array = pergrad::read_idx(file.path());
  BOOST_TEST(array.extents.at(0) == 256U);
  BOOST_TEST(bytes(content.begin() + 12, content.end()) == array.values);
}

BOOST_AUTO_TEST_CASE(a_file_of_exactly_one_read_is_read) {
  const temporary_file file(idx_file({65'528}, 65'528));
  BOOST_TEST(pergrad::read_idx(file.path()).values.size() == 65'528U);
}

BOOST_AUTO_TEST_CASE(errors_of_a_file_on_disk_name_its_path) {
  const temporary_file file(idx_file({4}, 3));
  const auto names_it = [&file](const std::runtime_error& error) {
    return std::string(error.what()).starts_with("pergrad: " + file.path() + ", byte 11: ");
  };
  BOOST_CHECK_EXCEPTION(static_cast<void>(pergrad::read_idx(file.path())), std::runtime_error, names_it);
  const auto missing = [](const std::runtime_error& error) {
    const std::string text = error.what();
    return text.starts_with("pergrad: cannot find /nowhere/at/all; get it from ") &&
           text.find("dataset-fashion-mnist") != std::string::npos && text.ends_with(" save it as /nowhere/at/all");
  };
  BOOST_CHECK_EXCEPTION(static_cast<void>(pergrad::read_idx("/nowhere/at/all")), std::runtime_error, missing);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::read_idx("/")), std::runtime_error);
}

BOOST_AUTO_TEST_SUITE_END()
