// SPDX-License-Identifier: Apache-2.0
// tests/files/safetensors_test.cpp - a file made by hand from the format's description, byte for byte; every flipped
// bit and every missing byte is found; headers that are no header are refused by name and place.
#include <boost/test/unit_test.hpp>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <pergrad/files/safetensors.hpp>

#include "damaged.hpp"
#include "data/files.hpp"

BOOST_AUTO_TEST_SUITE(files_safetensors)

namespace {

using files = pergrad::detail::safetensors;

std::string read_all(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}
/// The 8 bytes of the header's size, the header, and what follows it.
std::string file_of(const std::string& header, const std::string& data = {}) {
  std::string bytes;
  for (std::size_t i = 0, size = header.size(); i < 8; ++i, size >>= 8U) bytes += static_cast<char>(size & 0xFFU);
  return bytes + header + data;
}
/// What reading the whole file throws, or nothing.
std::string refusal(const std::string& path) {
  try {
    files::reader file{path};
    static_cast<void>(file.read_values());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}
std::string tensor(const std::string& name, const std::string& shape, const std::string& offsets,
                   const std::string& type = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

/// A file of ours with a float and a double array.
std::string ours(const std::string& path) {
  const std::vector<double> wide{1.5, -0.0, 1e300};
  const std::vector<float> narrow{1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
  const std::vector<files::tensor> tensors{{"wide", "F64", {3}, 0, 24}, {"1.narrow", "F32", {5, 1}, 0, 20}};
  const std::vector<const std::byte*> values{reinterpret_cast<const std::byte*>(wide.data()),
                                             reinterpret_cast<const std::byte*>(narrow.data())};
  files::write(path, {{"pergrad", "test 1"}, {"key", "text"}}, tensors, values);
  return read_all(path);
}

}  // namespace

// By https://huggingface.co/docs/safetensors: the size in 8 bytes, JSON with blanks behind, the bytes of [1, -2] as F32
// and of [258, 3] as U64, whose order in the header is not that of the data.
BOOST_AUTO_TEST_CASE(a_file_made_by_hand_is_read) {
  const test::temporary_folder folder;
  const std::string header =
      R"({"b.c" : {"shape": [2], "dtype": "F32", "data_offsets": [16, 24]},)"
      "\n"
      R"("__metadata__": {"made by": "hand \u00e4 \"x\""}, "a": {"dtype":"U64","shape":[2,1],"data_offsets":[0,16]} }   )";
  const std::string data{"\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\xc0", 24};
  folder.write("hand", file_of(header, data));
  files::reader file{folder.path("hand")};
  BOOST_TEST_REQUIRE(file.tensors().size() == 2U);
  BOOST_TEST(files::to_text(file.tensors()[0]) == "a U64 [2, 1]");
  BOOST_TEST(files::to_text(file.tensors()[1]) == "b.c F32 [2]");
  BOOST_TEST_REQUIRE(file.metadata("made by") != nullptr);
  BOOST_TEST(*file.metadata("made by") == R"(hand \u00e4 \"x\")");
  const std::vector<std::byte> values = file.read_values();
  float floats[2];
  std::uint64_t integers[2];
  std::memcpy(integers, values.data() + file.tensors()[0].begin, 16);
  std::memcpy(floats, values.data() + file.tensors()[1].begin, 8);
  BOOST_TEST(integers[0] == 258U);
  BOOST_TEST(integers[1] == 3U);
  BOOST_TEST(floats[0] == 1.0F);
  BOOST_TEST(floats[1] == -2.0F);
  folder.write("nothing", file_of("{}"));  // allowed, as are tensors without values and of rank 0
  BOOST_TEST(refusal(folder.path("nothing")).empty());
  folder.write("empty", file_of("{" + tensor("a", "[0,3]", "[0,0]") + "," + tensor("b", "[]", "[0,4]") + "}", "1234"));
  BOOST_TEST(refusal(folder.path("empty")).empty());
}

// And the other way: every byte that is written, from the same description.
BOOST_AUTO_TEST_CASE(what_is_written_is_the_format) {
  const test::temporary_folder folder;
  const std::string bytes = ours(folder.path("ours"));
  std::string header = R"({"__metadata__":{"pergrad":"test 1","key":"text","checksum":"0000000000000000"},)"
                       R"("wide":{"dtype":"F64","shape":[3],"data_offsets":[0,24]},)"
                       R"("1.narrow":{"dtype":"F32","shape":[5,1],"data_offsets":[24,44]}})";
  header.append((64 - (8 + header.size()) % 64) % 64, ' ');
  const std::string data{
      "\0\0\0\0\0\0\xf8\x3f\0\0\0\0\0\0\0\x80\x9c\x75\0\x88\x3c\xe4\x37\x7e"
      "\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40",
      44};
  std::string without_digits = bytes;
  const std::size_t digits = bytes.find("\"checksum\":\"") + 12;
  without_digits.replace(digits, 16, 16, '0');
  BOOST_TEST((without_digits == file_of(header, data)));
  // The checksum by its description, word by word.
  std::uint64_t state = 0xCBF29CE484222325U;
  const auto add = [&](std::string words) {
    words.append((8 - words.size() % 8) % 8, '\0');
    for (std::size_t i = 0; i < words.size(); i += 8) {
      std::uint64_t word = 0;
      for (std::size_t k = 8; k > 0; --k) word = word << 8U | static_cast<unsigned char>(words[i + k - 1]);
      state = (state ^ word) * 0x9E3779B97F4A7C15U;
      state ^= state >> 32U;
    }
  };
  add(without_digits.substr(0, 8));
  add(header);
  add(data.substr(0, 24));
  add(data.substr(24));
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(state));
  BOOST_TEST(bytes.substr(digits, 16) == text);
}

// As a reader that maps the file may want it.
BOOST_AUTO_TEST_CASE(wide_numbers_are_aligned_wherever_they_stand_in_the_list) {
  const test::temporary_folder folder;
  const float narrow = 1;
  const double wide = 2;
  const std::vector<files::tensor> tensors{{"narrow", "F32", {}, 0, 4}, {"wide", "F64", {}, 0, 8}};
  const std::vector<const std::byte*> values{reinterpret_cast<const std::byte*>(&narrow),
                                             reinterpret_cast<const std::byte*>(&wide)};
  files::write(folder.path("both"), {{"pergrad", "test 1"}}, tensors, values);
  files::reader file{folder.path("both")};
  BOOST_TEST_REQUIRE(file.tensors().size() == 2U);
  BOOST_TEST(files::find(file.tensors(), "wide")->begin == 0U);
  BOOST_TEST(files::find(file.tensors(), "narrow")->begin == 8U);
  const std::vector<std::byte> read = file.read_values();
  BOOST_TEST(std::memcmp(read.data(), &wide, 8) == 0);
  BOOST_TEST(std::memcmp(read.data() + 8, &narrow, 4) == 0);
}

BOOST_AUTO_TEST_CASE(every_flipped_bit_and_every_missing_byte_is_found) {
  const test::temporary_folder folder;
  const std::string good = ours(folder.path("good"));
  BOOST_TEST(refusal(folder.path("good")).empty());
  std::size_t accepted = 0;
  test::damage_everywhere(folder.path("good"), [&] {
    const std::string said = refusal(folder.path("good"));
    if (said.find(folder.path("good")) == std::string::npos) ++accepted;
  });
  BOOST_TEST(accepted == 1U);  // the file as it was
  for (const std::string& more : {std::string(1, '\0'), std::string(8, '\0'), good}) {
    folder.write("damaged", good + more);
    accepted += refusal(folder.path("damaged")).empty() ? 1U : 0U;
  }
  BOOST_TEST(accepted == 1U);
  // The two highest bits of two words, which a product alone would let cancel each other.
  std::string signs = good;
  for (const std::size_t at : {good.size() - 44 + 7, good.size() - 44 + 15})
    signs[at] = static_cast<char>(signs[at] ^ 0x80);
  folder.write("damaged", signs);
  BOOST_TEST(refusal(folder.path("damaged")).find("damaged: its checksum is ") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(headers_that_are_none_are_refused_by_place) {
  const test::temporary_folder folder;
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    folder.write("hostile", bytes);
    const std::string said = refusal(folder.path("hostile"));
    BOOST_TEST_CONTEXT(bytes.substr(0, 200)) {
      BOOST_TEST(said.starts_with("pergrad: " + folder.path("hostile") + ": "));
      BOOST_TEST((said.find(what) != std::string::npos), said << " should say " << what);
      BOOST_TEST(said.size() < 1000U);
    }
  };
  const std::string four(4, 'x');
  const auto one = [&](const std::string& member, const std::string& what, const std::string& data) {
    refused(file_of("{" + member + "}", data), what);
  };
  refused("", "ends within the size of its header");
  refused("1234567", "ends within the size of its header");
  refused(std::string(8, '\xff'), "larger than 100 MB");
  refused(std::string{"\0\0\0\0\0\0\0\x80{}", 10}, "larger than 100 MB");
  refused(std::string{"\x09\0\0\0\0\0\0\0{}      ", 16}, "ends within its header of 9 bytes");
  refused(file_of(""), "byte 8: expected '{'");
  refused(file_of(" {}"), "byte 8: expected '{'");
  refused(file_of("[]"), "byte 8: expected '{'");
  refused(file_of("{"), "byte 9: expected '\"'");
  refused(file_of("{}{}"), "byte 10: found more");
  refused(file_of("{}", "x"), "has 1 bytes behind its header, expected 0");
  refused(file_of("{,}"), "expected '\"'");
  one(tensor("a", "[1]", "[0,4]") + ",", "expected '\"'", four);
  one("\"a\"", "expected ':'", "");
  one("\"a", "expected '\"' at the end of a string", "");
  one("\"a\":1", "expected '{'", "");
  one("\"a\":null", "expected '{'", "");
  one("\"a\":{}", "the tensor a: one of dtype, shape and data_offsets is missing", "");
  one("\"a\":{\"dtype\":\"F32\",\"shape\":[1]}", "is missing", four);
  one("\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "a second dtype", four);
  one("\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":{}}", "found more", four);
  one("\"a\":{\"dtype\":{\"b\":{\"c\":[[[[[[]]]]]]}}}", "expected '\"'", "");
  one("\"a\":{\"shape\":" + std::string(50'000, '[') + "}", "expected a whole number", "");
  one("\"__metadata__\":{\"a\":{\"b\":\"c\"}}", "expected '\"'", "");
  one("\"__metadata__\":{\"a\":1}", "expected '\"'", "");
  one("\"__metadata__\":[]", "expected '{'", "");
  one("\"__metadata__\":{},\"__metadata__\":{}", "__metadata__ twice", "");
  one("\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}", "the name a twice", "");
  one(tensor("a", "[1]", "[0,4]") + "," + tensor("a", "[1]", "[4,8]"), "the name a twice", four + four);
  one(tensor("a", "[2]", "[0,4]"), "the tensor a F32 [2]: its data_offsets are not those of so many values", four);
  one(tensor("a", "[1]", "[4,0]"), "are not those", four);
  one(tensor("a", "[1]", "[0]"), "are not those", four);
  one(tensor("a", "[1]", "[]"), "are not those", four);
  one(tensor("a", "[1]", "[0,4,8]"), "expected at most 2 numbers", four);
  one(tensor("a", "[1]", "[4,8]"), "begins at byte 4 of the data, expected 0", four + four);  // a gap
  one(tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[1]", "[4,8]"), "the tensor b F32 [1] begins at byte 4",
      four + four);                                                                                // an overlap
  one(tensor("a", "[1]", "[0,4]") + "," + tensor("b", "[1]", "[0,4]"), "begins at byte 0", four);  // the same
  one(tensor("a", "[-1]", "[0,4]"), "expected a whole number", four);
  one(tensor("a", "[1]", "[-4,0]"), "expected a whole number", four);
  one(tensor("a", "[1.0]", "[0,4]"), "expected ']'", four);
  one(tensor("a", "[1e400]", "[0,4]"), "expected ']'", four);
  one(tensor("a", "[01]", "[0,4]"), "expected a whole number", four);
  one(tensor("a", "[18446744073709551616]", "[0,4]"), "does not fit 64 bits", four);
  one(tensor("a", "[18446744073709551615]", "[0,4]"), "are not those", four);
  one(tensor("a", "[4294967296,4294967296]", "[0,0]"), "are not those", "");  // 2^64 values are not none
  one(tensor("a", "[9223372036854775808,2]", "[0,0]"), "are not those", "");
  one(tensor("a", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), "expected at most 16 numbers", four);
  one(tensor("a", "[1]", "[0,4]", "F33"), "the tensor a F33 [1]: an unknown dtype", four);
  one(tensor("a", "[1]", "[0,4]", "f32"), "an unknown dtype", four);
  one(tensor("a", "[1]", "[0,4]", ""), "an unknown dtype", four);
  one(tensor("a", "[1]", "[0,4]", "F64"), "are not those", four);
  one(tensor("a", "[1]", "[0,4]"), "has 3 bytes behind its header, expected 4", "xxx");
  one(tensor("a", "[1]", "[0,4000000000000]"), "are not those", four);
  one(tensor("a", "[1000000000000]", "[0,4000000000000]"), "has 4 bytes behind its header",
      four);  // no memory is asked for
  one(tensor(std::string("a\0b", 3), "[1]", "[0,4]"), "control character", four);
  one(tensor("a\nb", "[1]", "[0,4]"), "control character", four);
  one(tensor("a\\x", "[1]", "[0,4]"), "an escape that is none", four);
  for (const char* text : {"\xff", "\x80", "\xc0\xaf", "\xc3", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                           "\xf8\x88\x80\x80\x80"}) {
    one(tensor(text, "[1]", "[0,4]"), "not UTF-8", four);
  }
  folder.write("fine", file_of("{" + tensor("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "[1]", "[0,4]") + "}", four));
  BOOST_TEST(refusal(folder.path("fine")).empty());
  one(tensor(std::string(100'000, 'n'), "[2]", "[0,4]"), "are not those", four);  // and the message stays short
  one("\"__metadata__\":{\"pergrad\":\"parameters 1\"}", "only one of its metadata pergrad and checksum", "");
  one("\"__metadata__\":{\"checksum\":\"0000000000000000\"}", "only one of its metadata pergrad and checksum", "");
  one("\"__metadata__\":{\"pergrad\":\"1\",\"checksum\":\"\"}", "damaged: its checksum is", "");
  folder.write("of others", file_of("{\"__metadata__\":{\"checksum\":\"sha256:0123456789abcdef\"}}", ""));
  BOOST_TEST(refusal(folder.path("of others")).empty());
  one("\"__metadata__\":{\"pergrad\":\"1\",\"checksum\":\"" + std::string(5000, '0') + "\"}", "damaged", "");
}

BOOST_AUTO_TEST_CASE(no_file_a_folder_a_device_and_a_pipe, *boost::unit_test::timeout(60)) {
  const test::temporary_folder folder;
  BOOST_TEST(refusal(folder.path("none")).find("cannot be opened") != std::string::npos);
  BOOST_TEST(refusal(folder.path()).find("not a regular file") != std::string::npos);
  BOOST_TEST(refusal("/dev/zero").find("not a regular file") != std::string::npos);
  BOOST_TEST(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);  // to which nobody writes
  BOOST_TEST(refusal(folder.path("pipe")).find("not a regular file") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
