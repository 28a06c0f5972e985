// SPDX-License-Identifier: Apache-2.0
// tests/data/imdb_test.cpp - imdb.npz is read as Keras reads it, and nothing in a damaged or hostile one is believed
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/data/imdb.hpp>

#include "files.hpp"
#include "imdb_fixture.hpp"

BOOST_AUTO_TEST_SUITE(imdb)

namespace {

using ids = std::vector<std::int32_t>;
using ends = std::vector<std::size_t>;
using pergrad::data_part;
using test::bytes;
using test::bytes_of;
using test::member;
using test::misses;
using test::npy;
using test::npy_labels;
using test::put;

// What Keras' load_data(num_words=10000) makes of the fixture.
const ids keras_ids{1, 12, 2, 3, 8, 9, 10, 11, 1, 4, 5, 6, 1, 1, 258, 259, 2, 2, 2, 1, 7, 1, 9999, 2, 2};
const ends keras_ends{8, 12, 13, 19, 21, 25};
const ids keras_labels{1, 0, 0, 1, 1, 0};

bytes archive_of(const bytes& x_train, bool deflate = false) {
  return test::zip({{"y_train.npy", npy_labels({0, 1, 1, 0, 1, 0}), deflate}, {"x_train.npy", x_train, deflate}});
}

pergrad::labelled_sequences parse(const bytes& file) {
  return pergrad::parse_imdb(file, "some-file", data_part::train);
}

bool is_the_fixture(const pergrad::labelled_sequences& set) {
  return set.sequences.ids == keras_ids && set.sequences.ends == keras_ends && set.labels == keras_labels;
}

bytes pickled(std::string_view pickle, std::size_t count) {
  return npy("{'descr': '|O', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }",
             {pickle.begin(), pickle.end()});
}

// A pickle as Python 2 wrote them: strings without encoding, ints for bools, a memo that starts at 1. Its list is the
// opcodes that are given.
std::string python2(std::string_view list, std::string_view count = "K\006") {
  using namespace std::string_literals;
  return "\200\002cnumpy.core.multiarray\n_reconstruct\nq\001cnumpy\nndarray\nq\002K\000\205U\001b\207Rq\003(K\001"s +
         std::string(count) + "\205cnumpy\ndtype\nq\004U\002O8K\000K\001\207Rq\005(K\003U\001|NNNJ\377\377\377\377"s +
         "J\377\377\377\377K\077tb\211"s + std::string(list) + "tb."s;
}

std::string refusal_of(std::string_view pickle, std::initializer_list<std::string> parts) {
  return misses([&] { return parse(archive_of(pickled(pickle, 6))); }, parts);
}

// Every byte of `file` changed in several ways: the outcome is an error of ours or a result, never anything else.
// Returns how many were refused.
template <class Read>
std::size_t refused_changes(const bytes& file, Read read) {
  std::size_t refused = 0;
  for (std::size_t offset = 0; offset < file.size(); ++offset) {
    for (const unsigned change : {0x01U, 0x02U, 0x04U, 0x08U, 0x10U, 0x20U, 0x40U, 0x80U, 0xffU}) {
      bytes changed = file;
      changed[offset] = static_cast<std::uint8_t>(changed[offset] ^ change);
      try {
        read(changed);
      } catch (const std::runtime_error& error) {
        BOOST_REQUIRE(std::string_view(error.what()).starts_with("pergrad: some-file"));
        ++refused;
      }
    }
  }
  return refused;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_protocol_is_read_as_keras_reads_it) {
  for (const bytes& array : {bytes_of(test::protocol_2), bytes_of(test::protocol_3), bytes_of(test::protocol_4)}) {
    BOOST_TEST(is_the_fixture(parse(archive_of(array))));
    BOOST_TEST(is_the_fixture(parse(archive_of(array, true))));
  }
}

BOOST_AUTO_TEST_CASE(an_archive_of_numpy_is_read_both_halves_in_keras_order) {
  const bytes file = bytes_of(test::whole_archive);
  BOOST_TEST(is_the_fixture(parse(file)));
  const auto half = pergrad::parse_imdb(file, "some-file", data_part::test);
  BOOST_TEST(half.sequences.ids == (ids{1, 10, 1, 11, 11, 1, 9, 303, 1, 8, 8, 8}), boost::test_tools::per_element());
  BOOST_TEST(half.sequences.ends == (ends{2, 5, 8, 12}), boost::test_tools::per_element());
  BOOST_TEST(half.labels == (ids{1, 0, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_options_mean_what_they_mean_in_keras) {
  const auto set =
      pergrad::parse_imdb(bytes_of(test::whole_archive), "some-file", data_part::train,
                          {.num_words = 20, .skip_top = 2, .start_char = 1, .oov_char = 3, .index_from = 4});
  BOOST_TEST(set.sequences.ids == (ids{3, 13, 3, 4, 9, 10, 11, 12, 3, 5, 6, 7, 3, 3, 3, 3, 3, 3, 3, 3, 8, 3, 3, 3, 3}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(padded_to_256_it_is_what_the_published_networks_take) {
  const auto padded = pergrad::pad_sequences(parse(bytes_of(test::whole_archive)), 256);
  BOOST_TEST(padded.ids.size() == 6U * 256);
  BOOST_TEST(padded.ids[0] == 0);
  BOOST_TEST(padded.ids[256 - 8] == 1);
  BOOST_TEST(padded.ids[255] == 11);
  BOOST_TEST(padded.lengths[0] == 8U);
}

BOOST_AUTO_TEST_CASE(the_shuffle_is_that_of_numpy) {
  // numpy.random.RandomState(113) shuffling numpy.arange(25000) twice.
  std::mt19937 words(113);
  const auto first = pergrad::detail::imdb::shuffled(25'000, words);
  const auto second = pergrad::detail::imdb::shuffled(25'000, words);
  BOOST_TEST((ends(first.begin(), first.begin() + 5)) == (ends{7798, 13226, 18078, 793, 17499}),
             boost::test_tools::per_element());
  BOOST_TEST((ends(first.end() - 3, first.end())) == (ends{22690, 4828, 14501}), boost::test_tools::per_element());
  BOOST_TEST((ends(second.begin(), second.begin() + 5)) == (ends{22748, 4083, 8015, 13688, 5310}),
             boost::test_tools::per_element());
  BOOST_TEST((ends(second.end() - 3, second.end())) == (ends{23183, 20869, 16517}), boost::test_tools::per_element());
  BOOST_TEST(pergrad::detail::imdb::shuffled(0, words).empty());
  BOOST_TEST(pergrad::detail::imdb::shuffled(1, words).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_pickle_of_python_2_is_read) {
  using namespace std::string_literals;
  const std::string list =
      "]q\006(]q\007(K\001K\002K\003e](K\011M\020'K\000K\005K\006K\007\212\001\010e](K\377\212\002\000\001M\377\377"s +
      "\212\003\000\000\001J\013Z\001\000e]q\010]K\004a](M\014'M\015'M\016'ee"s;
  BOOST_TEST(is_the_fixture(parse(archive_of(pickled(python2(list), 6)))));
  const bytes with_longs = npy("{'descr': '|O', 'fortran_order': False, 'shape': (6L,)}", [&] {
    const std::string whole = python2(list);
    return bytes(whole.begin(), whole.end());
  }());
  BOOST_TEST(is_the_fixture(parse(archive_of(with_longs))));
}

BOOST_AUTO_TEST_CASE(a_list_that_is_there_twice_is_read_twice) {
  using namespace std::string_literals;
  const auto set = parse(archive_of(pickled(python2("](]q\007K\005ah\007h\007h\007h\007j\007\000\000\000e"s), 6)));
  BOOST_TEST(set.sequences.ids == (ids{1, 8, 1, 8, 1, 8, 1, 8, 1, 8, 1, 8}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(options_that_no_vocabulary_fits_are_refused) {
  const auto with = [](pergrad::imdb_options options) {
    return [options] { return pergrad::parse_imdb({}, "some-file", data_part::train, options); };
  };
  BOOST_TEST(misses<std::invalid_argument>(with({.num_words = 0}), {"num_words", "got 0"}) == "");
  BOOST_TEST(misses<std::invalid_argument>(with({.skip_top = -1}), {"skip_top", "got -1"}) == "");
  BOOST_TEST(misses<std::invalid_argument>(with({.start_char = -1}), {"start_char", "got -1"}) == "");
  BOOST_TEST(misses<std::invalid_argument>(with({.num_words = 5, .oov_char = 5}), {"oov_char", "got 5"}) == "");
  BOOST_TEST(misses<std::invalid_argument>(with({.index_from = -3}), {"index_from", "got -3"}) == "");
}

BOOST_AUTO_TEST_CASE(a_missing_file_says_where_it_comes_from_and_where_to_put_it) {
  const test::temporary_folder folder;
  const std::string origin = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz";
  BOOST_TEST(misses([&] { return pergrad::read_imdb(folder.path(), data_part::train); },
                    {"cannot find " + folder.path("imdb.npz"), origin, "save it as " + folder.path("imdb.npz")}) == "");
  BOOST_TEST(misses([&] { return pergrad::read_imdb(folder.path("other"), data_part::train); },
                    {"cannot find " + folder.path("other"), origin}) == "");
  folder.write("imdb.npz", bytes_of(test::whole_archive));
  BOOST_TEST(is_the_fixture(pergrad::read_imdb(folder.path(), data_part::train)));
  BOOST_TEST(is_the_fixture(pergrad::read_imdb(folder.path("imdb.npz"), data_part::train)));
}

BOOST_AUTO_TEST_CASE(every_truncated_archive_is_refused) {
  for (const bytes& whole : {bytes_of(test::whole_archive), archive_of(bytes_of(test::protocol_2), true),
                             archive_of(bytes_of(test::protocol_3))}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      BOOST_TEST(misses([&] { return parse(part); }, {"some-file, byte "}) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(every_truncated_array_is_refused) {
  for (const bytes& whole : {bytes_of(test::protocol_2), bytes_of(test::protocol_3), bytes_of(test::protocol_4),
                             npy_labels({0, 1, 1, 0, 1, 0})}) {
    const bool labels = whole.size() < 200;
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const std::string name = labels ? "y_train.npy" : "x_train.npy";
      BOOST_TEST(misses(
                     [&] {
                       return parse(labels ? test::zip({{name, part}}) : archive_of(part));
                     },
                     {"some-file (" + name + "), byte "}) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_changed_byte_of_an_archive_never_changes_the_result) {
  for (const bytes& whole : {bytes_of(test::whole_archive), archive_of(bytes_of(test::protocol_4))}) {
    const std::size_t refused =
        refused_changes(whole, [](const bytes& changed) { BOOST_REQUIRE(is_the_fixture(parse(changed))); });
    BOOST_TEST(refused > whole.size());
  }
}

BOOST_AUTO_TEST_CASE(a_changed_byte_of_an_array_is_an_error_or_another_array) {
  for (const bytes& whole : {bytes_of(test::protocol_2), bytes_of(test::protocol_3), bytes_of(test::protocol_4)}) {
    BOOST_TEST(refused_changes(whole, [](const bytes& changed) {
                 BOOST_REQUIRE_EQUAL(parse(archive_of(changed)).size(), 6U);
               }) > whole.size());
  }
}

BOOST_AUTO_TEST_CASE(lies_in_the_archive_are_refused) {
  const auto refuses = [](const auto& change, const std::string& part) {
    member lying{"y_train.npy", npy_labels({0, 1}), true};
    change(lying);
    const std::string missed = misses([&] { return parse(test::zip({lying})); }, {"some-file, byte ", part});
    BOOST_CHECK_MESSAGE(missed == "", missed);
    return missed == "";
  };
  BOOST_TEST(refuses([](member& m) { m.lie.flags = 1; }, "is encrypted"));
  BOOST_TEST(refuses([](member& m) { m.lie.method = 12; }, "compression method 12, expected 0 (stored) or 8"));
  BOOST_TEST(refuses([](member& m) { m.lie.checksum = 7; }, "its checksum is not the one"));
  BOOST_TEST(refuses([](member& m) { m.lie.size = 0xfffffffe; }, "expected at most 268435456"));
  BOOST_TEST(refuses([](member& m) { m.lie.size = 5; }, "more content than its directory entry says"));
  BOOST_TEST(refuses([](member& m) { m.lie.size = 500; }, "bytes, expected 500"));
  BOOST_TEST(refuses([](member& m) { m.lie.packed_size = 0xfffffffe; }, "reach into the directory"));
  BOOST_TEST(refuses([](member& m) { m.lie.packed_size = 20; }, "the compressed data end early"));
  BOOST_TEST(refuses([](member& m) { m.lie.header = 0xfffffffe; }, "expected the local header"));
  BOOST_TEST(refuses([](member& m) { m.lie.header = 1; }, "expected the local header"));
  BOOST_TEST(refuses([](member& m) { m.name = "z_train.npy"; }, "there is no member y_train.npy"));
  BOOST_TEST(refuses(
      [](member& m) {
        m.deflate = false;
        m.lie.size = 5;
      },
      "is stored in"));
  BOOST_TEST(refuses([](member& m) { m.packed = {0xff, 0xff, 0xff}; }, "is damaged after 0 bytes"));
  BOOST_TEST(refuses(
      [](member& m) {
        m.packed = test::deflated(m.content);
        m.packed.push_back(0);
      },
      "has 1 bytes after its compressed data"));
}

BOOST_AUTO_TEST_CASE(the_end_of_the_archive_is_found_behind_a_comment_and_checked) {
  const std::vector<member> members{{"y_train.npy", npy_labels({0, 1, 1, 0, 1, 0})},
                                    {"x_train.npy", bytes_of(test::protocol_3)}};
  BOOST_TEST(is_the_fixture(parse(test::zip(members, "a comment PK\005\006"))));
  BOOST_TEST(is_the_fixture(parse(test::zip(members, std::string(0xffff, 'x')))));
  const auto with = [&](std::size_t place, std::uint64_t number, std::size_t width) {
    bytes file = test::zip(members);
    for (std::size_t byte = 0; byte < width; ++byte) {
      file[file.size() - 22 + place + byte] = static_cast<std::uint8_t>(number >> (8 * byte));
    }
    return [file] { return parse(file); };
  };
  BOOST_TEST(misses(with(10, 0xffff, 2), {"found a ZIP64 archive"}) == "");
  BOOST_TEST(misses(with(16, 0xffffffff, 4), {"found a ZIP64 archive"}) == "");
  BOOST_TEST(misses(with(4, 1, 2), {"several disks"}) == "");
  BOOST_TEST(misses(with(8, 3, 4), {"several disks"}) == "");
  BOOST_TEST(misses(with(8, 0x00030003, 4), {"expected a directory entry"}) == "");
  BOOST_TEST(misses(with(8, 0x00010001, 4), {"found more after the last of 1 directory entries"}) == "");
  BOOST_TEST(misses(with(12, 0xfffffffe, 4), {"the directory is said to be"}) == "");
  BOOST_TEST(misses([] { return parse(bytes(100'000, 'P')); }, {"no end-of-directory record"}) == "");
}

BOOST_AUTO_TEST_CASE(labels_that_are_no_labels_are_refused) {
  const auto refuses = [](const bytes& labels, const std::string& part) {
    return misses([&] { return parse(test::zip({{"y_train.npy", labels}})); }, {"some-file (y_train.npy)", part});
  };
  const std::string head = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
  BOOST_TEST(refuses(npy_labels({0, 2}), "found 2, expected 0 to 1") == "");
  BOOST_TEST(refuses(npy_labels({0, -1}), "found -1, expected 0 to 1") == "");
  BOOST_TEST(refuses(npy_labels({0, 0x100000000}), "found 4294967296, expected 0 to 1") == "");
  BOOST_TEST(refuses(npy(head, bytes(17)), "found 17 bytes of data, expected 2 integers of 8") == "");
  BOOST_TEST(refuses(npy(head, bytes(24)), "found 24 bytes of data, expected 2 integers of 8") == "");
  BOOST_TEST(refuses(npy("{'descr': '>i8', 'fortran_order': False, 'shape': (2,), }", bytes(16)),
                     "1-dimensional array of type >i8, expected 1 dimension of <i8 or <i4") == "");
  BOOST_TEST(refuses(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1), }", bytes(16)),
                     "2-dimensional array of type <i8") == "");
  BOOST_TEST(refuses(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (), }", bytes(8)), "0-dimensional") == "");
  BOOST_TEST(refuses(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (18446744073709551615,), }", {}),
                     "expected 18446744073709551615 integers") == "");
}

BOOST_AUTO_TEST_CASE(headers_that_are_no_headers_are_refused) {
  const auto refuses = [](const std::string& text, const std::string& part) {
    return misses([&] { return parse(test::zip({{"y_train.npy", npy(text, bytes(16))}})); }, {"y_train.npy", part});
  };
  BOOST_TEST(refuses("", "expected '{'") == "");
  BOOST_TEST(refuses("{'descr': '<i8', 'shape': (2,)}", "without all of") == "");
  BOOST_TEST(refuses("{'descr': '<i8', 'descr': '<i8'}", "'descr' twice") == "");
  BOOST_TEST(refuses("{'other': '<i8'}", "found the key 'other'") == "");
  BOOST_TEST(refuses("{'descr': [('a', '<i8')]}", "expected '''") == "");
  BOOST_TEST(refuses("{'descr': '<i\\x38'}", "expected a simple string") == "");
  BOOST_TEST(refuses("{'descr': '<i8", "expected a simple string") == "");
  BOOST_TEST(refuses("{'fortran_order': Maybe}", "expected True or False") == "");
  BOOST_TEST(refuses("{'shape': (2", "expected ')'") == "");
  BOOST_TEST(refuses("{'shape': (-2,)}", "expected an extent") == "");
  BOOST_TEST(refuses("{'shape': (99999999999999999999,)}", "overflows") == "");
  BOOST_TEST(refuses("{'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
                     "at most 32 dimensions") == "");
  BOOST_TEST(refuses("{'descr': '<i8', 'fortran_order': False, 'shape': (2,)} + 1", "more after the header") == "");
  bytes future = npy_labels({0, 1});
  future[6] = 4;
  BOOST_TEST(misses([&] { return parse(test::zip({{"y_train.npy", future}})); }, {"found NPY version 4.0"}) == "");
  bytes long_header = npy_labels({0, 1});
  long_header[9] = 0xff;
  BOOST_TEST(misses([&] { return parse(test::zip({{"y_train.npy", long_header}})); }, {"ends inside the NPY"}) == "");
}

BOOST_AUTO_TEST_CASE(reviews_that_are_no_lists_of_ids_are_refused) {
  using namespace std::string_literals;
  const auto with = [](const bytes& x_train, const std::string& part) {
    return misses([&] { return parse(archive_of(x_train)); }, {"some-file (x_train.npy), byte ", part});
  };
  BOOST_TEST(with(npy_labels({0, 1, 1, 0, 1, 0}), "type <i8, expected 1 dimension of |O") == "");
  BOOST_TEST(with(pickled(python2("]", "K\005"), 5), "found 5 reviews, expected 6, one for each label") == "");
  BOOST_TEST(refusal_of(python2("]"), {"found an array of 0 elements, expected 1 dimension of 6"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]e", "K\007"), {"expected 1 dimension of 6"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]K\001e"), {"element 5 is not a list"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]]ae"), {"found a list in it"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]J\377\377\377\377ae"), {"found -1"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]\212\004\377\377\377\377ae"), {"found -1"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]\212\005\377\377\377\377\000ae"s), {"found 4294967295"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]U\001xae"), {"something other than ints and lists"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]Nae"), {"something other than ints and lists"}) == "");
}

BOOST_AUTO_TEST_CASE(nothing_in_a_hostile_pickle_is_executed_or_believed) {
  using namespace std::string_literals;
  BOOST_TEST(
      refusal_of("\200\002cos\nsystem\nU\004true\205R.", {"asks for 'os.system'", "nothing of it was executed"}) == "");
  BOOST_TEST(refusal_of("\200\004\214\010builtins\214\004eval\223.", {"asks for 'builtins.eval'"}) == "");
  BOOST_TEST(refusal_of("\200\002cnumpy\nload\n.", {"asks for 'numpy.load'"}) == "");
  BOOST_TEST(refusal_of("\200\002c\033[2J\nx\n.", {"asks for '?[2J.x'"}) == "");
  BOOST_TEST(refusal_of("\200\002i"s, {"found opcode 0x69"}) == "");
  BOOST_TEST(refusal_of("\200\002}.", {"found opcode 0x7d"}) == "");
  BOOST_TEST(refusal_of("\200\001].", {"expected a pickle of protocol 2 to 5"}) == "");
  BOOST_TEST(refusal_of("\200\006].", {"expected a pickle of protocol 2 to 5"}) == "");
  BOOST_TEST(refusal_of("\200\002].", {"the pickle is not one NumPy array"}) == "");
  BOOST_TEST(refusal_of("\200\002.", {"the pickle is not one NumPy array"}) == "");
  BOOST_TEST(refusal_of(python2("](]]]]]]e") + ".", {"found 1 bytes after the end of the pickle"}) == "");
  BOOST_TEST(refusal_of("\200\002a.", {"takes more from the stack than is there"}) == "");
  BOOST_TEST(refusal_of("\200\002](a.", {"takes more from the stack than is there"}) == "");
  BOOST_TEST(refusal_of("\200\002e.", {"there is no mark"}) == "");
  BOOST_TEST(refusal_of("\200\002q\000."s, {"there is nothing on the stack"}) == "");
  BOOST_TEST(refusal_of("\200\002h\005.", {"memo entry 5 has not been set"}) == "");
  BOOST_TEST(refusal_of("\200\002]r\376\377\377\377.", {"found memo entry 4294967294"}) == "");
  BOOST_TEST(refusal_of("\200\002N(K\001e.", {"expected a list to append to"}) == "");
  BOOST_TEST(refusal_of("\200\002NN\205R.", {"expected the call of a known function"}) == "");
  BOOST_TEST(refusal_of("\200\002cnumpy\nndarray\n)R.", {"expected the arguments of a NumPy array"}) == "");
  BOOST_TEST(refusal_of("\200\002cnumpy\ndtype\nU\002i8\205R.", {"expected the arguments of a NumPy array"}) == "");
  BOOST_TEST(refusal_of("\200\002cnumpy.core.multiarray\n_reconstruct\n)R.", {"expected the arguments"}) == "");
  BOOST_TEST(refusal_of("\200\002]]b.", {"expected the state of one NumPy array"}) == "");
  BOOST_TEST(refusal_of("\200\002K\001K\001\223.", {"expected two strings that name a class"}) == "");
  BOOST_TEST(refusal_of("\200\002X\377\377\377\377x.", {"a string of 4294967295 bytes"}) == "");
  BOOST_TEST(refusal_of("\200\002\212\377x.", {"an integer of 255 bytes"}) == "");
  BOOST_TEST(refusal_of("\200\004\225\377\377\377\377\377\377\377\377.", {"a frame of 18446744073709551615"}) == "");
  BOOST_TEST(refusal_of("\200\002c" + std::string(300, 'x'), {"a line of more than 256 bytes"}) == "");
}

BOOST_AUTO_TEST_CASE(memory_is_bounded_by_what_an_honest_file_needs) {
  using namespace std::string_literals;
  BOOST_TEST(refusal_of("\200\002" + std::string(100'000, '('), {"more than 65536 marks"}) == "");
  BOOST_TEST(refusal_of("\200\002" + std::string(100'000, 'N'), {"more than 65536 values"}) == "");
  BOOST_TEST(refusal_of("\200\002" + std::string(1'000, ']'), {"more lists than the 6"}) == "");
  BOOST_TEST(refusal_of("\200\004N" + std::string(1'000, '\224'), {"found memo entry 134"}) == "");
  std::string texts = "\200\002";
  for (int count = 0; count < 100; ++count) {
    texts += "U\001x0";
    texts.back() = 'N';
  }
  BOOST_TEST(refusal_of(texts, {"more than 64 strings"}) == "");
  // One list of 3000 ids, six times: more ids than the file has bytes.
  std::string repeated = "](]q\007(";
  for (int count = 0; count < 3'000; ++count) {
    repeated += "K\001";
  }
  repeated += "eh\007h\007h\007h\007h\007e";
  BOOST_TEST(refusal_of(python2(repeated), {"the lists repeat each other"}) == "");
  // A list that holds itself.
  BOOST_TEST(refusal_of(python2("]q\007(h\007h\007h\007h\007h\007h\007e"), {"found a list in it"}) == "");
  // The array's list grows after the array was made of it.
  std::string grown = python2("]q\007(]]]]]]e");
  grown.pop_back();
  BOOST_TEST(refusal_of(grown + "h\007]a.", {"the pickle is not one NumPy array"}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
