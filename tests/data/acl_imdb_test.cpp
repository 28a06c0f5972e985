// SPDX-License-Identifier: Apache-2.0
// tests/data/acl_imdb_test.cpp - the folder aclImdb: the order of its files, its vocabulary, and what is missing
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <pergrad/data/acl_imdb.hpp>
#include <pergrad/data/vocabulary.hpp>

#include "files.hpp"

BOOST_AUTO_TEST_SUITE(acl_imdb)

namespace {

using ids = std::vector<std::int32_t>;
using test::misses;

}  // namespace

BOOST_AUTO_TEST_CASE(the_folder_is_read_in_the_order_of_its_names_and_its_vocabulary_from_the_training_half) {
  const test::temporary_folder folder;
  folder.write("train/neg/1_1.txt", "Bad bad film");
  folder.write("train/neg/0_2.txt", "a BAD plot");
  folder.write("train/pos/0_9.txt", "a good film a");
  folder.write("train/pos/notes.md", "not a review");
  folder.write("train/unsup/0_0.txt", "neither");
  folder.write("test/neg/0_1.txt", "worst film");
  folder.write("test/pos/0_7.txt", "");
  const auto words = pergrad::acl_imdb_vocabulary(folder.path(), 6);
  const std::vector<std::string> expected{"a", "bad", "film", "good"};
  BOOST_TEST(words.words() == expected, boost::test_tools::per_element());

  const auto train = pergrad::read_acl_imdb(folder.path(), pergrad::data_part::train, words);
  BOOST_TEST(train.sequences.ids == (ids{2, 3, 1, 3, 3, 4, 2, 5, 4, 2}), boost::test_tools::per_element());
  BOOST_TEST(train.sequences.ends == (std::vector<std::size_t>{3, 6, 10}), boost::test_tools::per_element());
  BOOST_TEST(train.labels == (ids{0, 0, 1}), boost::test_tools::per_element());

  const auto part = pergrad::read_acl_imdb(folder.path(), pergrad::data_part::test, words);
  BOOST_TEST(part.sequences.ids == (ids{1, 4}), boost::test_tools::per_element());
  BOOST_TEST(part.sequences.ends == (std::vector<std::size_t>{2, 2}), boost::test_tools::per_element());
  BOOST_TEST(part.labels == (ids{0, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_missing_says_where_it_comes_from_and_where_to_put_it) {
  const test::temporary_folder folder;
  const pergrad::vocabulary words({"the"});
  const auto read = [&] { return pergrad::read_acl_imdb(folder.path(), pergrad::data_part::train, words); };
  const std::string origin = "https://ai.stanford.edu/~amaas/data/sentiment/";
  BOOST_TEST(misses(read, {"cannot find the folder " + folder.path("train/neg"), origin, folder.path()}) == "");
  BOOST_TEST(misses([&] { return pergrad::acl_imdb_vocabulary(folder.path(), 10); }, {origin}) == "");
  folder.write("train/neg/0_1.txt", "bad");
  BOOST_TEST(misses(read, {"cannot find the folder " + folder.path("train/pos"), origin}) == "");
  std::filesystem::create_directories(folder.path("train/pos"));
  BOOST_TEST(misses(read, {"no *.txt file in " + folder.path("train/pos")}) == "");
  std::filesystem::create_directories(folder.path("train/pos/0_8.txt"));
  BOOST_TEST(misses(read, {folder.path("train/pos/0_8.txt") + " is not a file"}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
