// SPDX-License-Identifier: Apache-2.0
// tests/data/vocabulary_test.cpp - words of a text, their ids, and the most frequent ones
#include <boost/test/unit_test.hpp>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/data/vocabulary.hpp>

#include "files.hpp"

BOOST_AUTO_TEST_SUITE(vocabularies)

namespace {

using test::misses;

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  pergrad::for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

}  // namespace

BOOST_AUTO_TEST_CASE(words_are_lower_case_and_lie_between_white_space) {
  const std::vector<std::string> expected{"great", "film,", "isn't", "it?<br", "/>\xc3\x89t\xc3\x89"};  // ASCII only
  BOOST_TEST(words_in("  Great FILM,\tisn't it?<br\n/>\xc3\x89T\xc3\x89 ") == expected,
             boost::test_tools::per_element());
  BOOST_TEST(words_in("").empty());
  BOOST_TEST(words_in(" \n ").empty());
}

BOOST_AUTO_TEST_CASE(ids_follow_the_list_and_others_are_unknown) {
  const pergrad::vocabulary words({"the", "film"});
  BOOST_TEST(words.size() == 4U);
  BOOST_TEST(words.id("the") == 2);
  BOOST_TEST(words.id("film") == 3);
  BOOST_TEST(words.id("The") == pergrad::vocabulary::unknown);
  BOOST_TEST(words.id("") == 1);
  BOOST_TEST(misses<std::invalid_argument>(
                 [] {
                   return pergrad::vocabulary({"the", "film", "the"});
                 },
                 {"the word the is there twice"}) == "");
}

BOOST_AUTO_TEST_CASE(the_most_frequent_words_come_first_and_ties_go_by_bytes) {
  pergrad::word_counter counter;
  counter.add("b a c A d");
  counter.add("C b a e");
  const std::vector<std::string> all{"a", "b", "c", "d", "e"};
  BOOST_TEST(counter.most_frequent(100).words() == all, boost::test_tools::per_element());
  const std::vector<std::string> two{"a", "b"};
  BOOST_TEST(counter.most_frequent(4).words() == two, boost::test_tools::per_element());
  BOOST_TEST(counter.most_frequent(4).size() == 4U);
  BOOST_TEST(misses<std::invalid_argument>([&] { return counter.most_frequent(2); }, {"2 ids has no words"}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
