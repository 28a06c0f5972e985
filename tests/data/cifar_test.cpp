// SPDX-License-Identifier: Apache-2.0
// tests/data/cifar_test.cpp - sound CIFAR-10 files are read exactly, damaged and missing ones are refused with reasons
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/data/cifar.hpp>

#include "files.hpp"

BOOST_AUTO_TEST_SUITE(cifar)

namespace {

using test::bytes;
using test::misses;

constexpr std::size_t record_size = 3073;

std::uint8_t pixel(std::size_t record, std::size_t place) { return static_cast<std::uint8_t>(record * 31 + place * 7); }

bytes cifar_file(std::size_t records, std::size_t first = 0) {
  bytes file;
  file.reserve(records * record_size);
  for (std::size_t record = first; record < first + records; ++record) {
    file.push_back(static_cast<std::uint8_t>(record % 10));
    for (std::size_t place = 0; place < record_size - 1; ++place) {
      file.push_back(pixel(record, place));
    }
  }
  return file;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_sound_file_is_read_exactly_in_channel_row_column_order) {
  const auto set = pergrad::parse_cifar10(cifar_file(12), "some-file");
  BOOST_REQUIRE_EQUAL(set.size(), 12U);
  BOOST_REQUIRE_EQUAL(set.images.size(), 12U * 3 * 32 * 32);
  bool same = true;
  for (std::size_t record = 0; record < 12; ++record) {
    BOOST_TEST(set.labels[record] == static_cast<std::int32_t>(record % 10));
    for (std::size_t place = 0; place < 3072; ++place) {
      same = same && set.images[record * 3072 + place] == static_cast<float>(pixel(record, place)) / 255.0F;
    }
  }
  BOOST_TEST(same);
}

BOOST_AUTO_TEST_CASE(bytes_become_zero_to_one_both_included) {
  bytes file(record_size, 0);
  file[1] = 255;
  const auto set = pergrad::parse_cifar10(file, "some-file");
  BOOST_TEST(set.images[0] == 1.0F);
  BOOST_TEST(set.images[1] == 0.0F);
}

BOOST_AUTO_TEST_CASE(every_incomplete_file_is_refused) {
  const bytes whole = cifar_file(2);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    if (size == record_size) {
      continue;  // one whole record
    }
    const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto parse = [&] { return pergrad::parse_cifar10(part, "some-file"); };
    const std::string what = size == 0 ? "the file is empty"
                                       : "the file ends after " + std::to_string(size % record_size) +
                                             " bytes of record " + std::to_string(size / record_size);
    BOOST_TEST(misses(parse, {"some-file, byte " + std::to_string(size) + ": ", what, "3073 bytes"}) == "");
  }
}

BOOST_AUTO_TEST_CASE(every_other_label_is_refused) {
  bytes file = cifar_file(3);
  for (unsigned label = 10; label < 256; ++label) {
    file[record_size] = static_cast<std::uint8_t>(label);
    BOOST_TEST(misses([&] { return pergrad::parse_cifar10(file, "some-file"); },
                      {"some-file, byte 3073: found label " + std::to_string(label) + " in record 1",
                       "expected 0 to 9"}) == "");
  }
}

BOOST_AUTO_TEST_CASE(several_files_are_read_one_after_the_other) {
  const test::temporary_folder folder;
  folder.write("first", cifar_file(3));
  folder.write("second", cifar_file(2, 3));
  const std::vector<std::string> paths{folder.path("first"), folder.path("second")};
  const auto set = pergrad::read_cifar10(paths);
  const auto together = pergrad::parse_cifar10(cifar_file(5), "some-file");
  BOOST_TEST(set.images == together.images);
  BOOST_TEST(set.labels == together.labels, boost::test_tools::per_element());

  folder.write("second", bytes(record_size, 77));
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(paths); }, {paths[1] + ", byte 0: found label 77"}) == "");
  const std::vector<std::string> missing{folder.path("third")};
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(missing); }, {"cannot open " + missing[0]}) == "");
}

BOOST_AUTO_TEST_CASE(the_published_test_file_is_found_in_the_folder_and_in_the_unpacked_one) {
  const test::temporary_folder folder;
  folder.write("cifar-10-batches-bin/test_batch.bin", cifar_file(10'000));
  for (const std::string& path : {folder.path(), folder.path("cifar-10-batches-bin")}) {
    const auto set = pergrad::read_cifar10(path, pergrad::data_part::test);
    BOOST_TEST(set.size() == 10'000U);
    BOOST_TEST(set.images.size() == 10'000U * 3072);
    BOOST_TEST(set.labels[9'999] == 9);
    BOOST_TEST(set.images.back() == static_cast<float>(pixel(9'999, 3071)) / 255.0F);
  }
}

BOOST_AUTO_TEST_CASE(a_published_file_of_another_size_is_refused) {
  const test::temporary_folder folder;
  folder.write("test_batch.bin", cifar_file(9));
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(folder.path(), pergrad::data_part::test); },
                    {folder.path("test_batch.bin"), "found 27657 bytes", "expected 30730000"}) == "");
  folder.write("data_batch_1.bin", bytes{});
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(folder.path(), pergrad::data_part::train); },
                    {folder.path("data_batch_1.bin"), "found 0 bytes", "expected 30730000"}) == "");
}

BOOST_AUTO_TEST_CASE(a_missing_set_says_where_it_comes_from_and_where_to_put_it) {
  const test::temporary_folder folder;
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(folder.path(), pergrad::data_part::test); },
                    {"cannot find " + folder.path("test_batch.bin"), "https://www.cs.toronto.edu/~kriz/cifar.html",
                     "the binary version", "unpack it in " + folder.path()}) == "");
  folder.write("data_batch_1.bin", cifar_file(10'000));
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(folder.path(), pergrad::data_part::train); },
                    {"cannot find " + folder.path("data_batch_2.bin"), "https://"}) == "");
}

BOOST_AUTO_TEST_CASE(the_python_version_is_recognised) {
  const test::temporary_folder folder;
  folder.write("data_batch_1", "pickled");
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(folder.path(), pergrad::data_part::train); },
                    {"holds the Python version", "the binary version is needed"}) == "");
}

BOOST_AUTO_TEST_CASE(a_folder_in_place_of_a_file_is_an_error) {
  const test::temporary_folder folder;
  std::filesystem::create_directories(folder.path("test_batch.bin"));
  BOOST_TEST(misses([&] { return pergrad::read_cifar10(folder.path(), pergrad::data_part::test); },
                    {"cannot read " + folder.path("test_batch.bin")}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
