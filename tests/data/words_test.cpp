// SPDX-License-Identifier: Apache-2.0
// tests/data/words_test.cpp - the word lists of the language example: letters, selection, split, errors
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../../examples/common/word_lists.hpp"
#include "files.hpp"

BOOST_AUTO_TEST_SUITE(word_lists)

namespace {

using example::letter_ids;
using example::word_list;
using ids = std::vector<std::int32_t>;

const std::vector<word_list> two{{"English", "wamerican", "english"}, {"German", "wngerman", "german"}};

// All words with their languages, and whether they are for testing.
struct placed {
  std::string language;
  bool tests = false;
  [[nodiscard]] bool operator==(const placed&) const = default;
};
std::map<std::string, placed> places_of(const example::language_words& made) {
  std::map<std::string, placed> places;
  for (const bool tests : {false, true}) {
    const auto& half = tests ? made.test : made.train;
    for (std::size_t index = 0; index < half.words.size(); ++index) {
      const auto label = static_cast<std::size_t>(half.ids.labels[index]);
      BOOST_TEST(places.emplace(half.words[index], placed{made.languages[label], tests}).second);
    }
  }
  return places;
}

template <class Thrown = std::runtime_error, class Action>
std::string message_of(Action&& action) {
  try {
    static_cast<void>(action());
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Words of one letter repeated with a number spelled in letters: as many different ones as are asked for.
std::string many(char first, std::size_t count) {
  std::string list;
  for (std::size_t index = 0; index < count; ++index) {
    list += first;
    for (std::size_t rest = index + 1000; rest > 0; rest /= 10) {
      list += static_cast<char>('a' + rest % 10);
    }
    list += '\n';
  }
  return list;
}

}  // namespace

BOOST_AUTO_TEST_CASE(letters_have_ids_of_their_own_and_the_rest_shares_one) {
  std::set<std::int32_t> seen;
  for (char32_t letter = U'a'; letter <= U'z'; ++letter) {
    seen.insert(letter_ids::id(letter));
  }
  for (const char32_t letter : letter_ids::accented) {
    seen.insert(letter_ids::id(letter));
    BOOST_TEST((example::words::lower(letter) == letter));
  }
  BOOST_TEST(seen.size() == 26 + letter_ids::accented.size());
  BOOST_TEST(*seen.begin() == 1);
  BOOST_TEST(*seen.rbegin() == letter_ids::other - 1);
  BOOST_TEST(letter_ids::count == static_cast<std::size_t>(letter_ids::other) + 1);
  for (const char32_t letter : std::u32string_view(U"'-1A\u00c4\u03b1")) {
    BOOST_TEST(letter_ids::id(letter) == letter_ids::other);
  }
}

BOOST_AUTO_TEST_CASE(capitals_become_small_letters) {
  const std::u32string_view capitals =
      U"AZ\u00c0\u00d6\u00d8\u00de\u0152\u0104\u0141\u0143\u015a\u0179\u017b\u0178\u0106";
  const std::u32string_view small = U"az\u00e0\u00f6\u00f8\u00fe\u0153\u0105\u0142\u0144\u015b\u017a\u017c\u00ff\u0107";
  for (std::size_t place = 0; place < capitals.size(); ++place) {
    BOOST_TEST((example::words::lower(capitals[place]) == small[place]));
    BOOST_TEST((example::words::lower(small[place]) == small[place]));
  }
  for (const char32_t letter : std::u32string_view(U"'@[`{\u00d7\u00f7\u00df\u0130\u0138\u2019")) {
    BOOST_TEST((example::words::lower(letter) == letter));
  }
}

BOOST_AUTO_TEST_CASE(utf8_goes_both_ways_and_damage_is_an_error) {
  const auto decode = [](std::string_view line) {
    return example::words::decode(line, example::encoding::utf8, "some-file", 7);
  };
  const std::u32string points = U"a\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff";
  BOOST_TEST((decode(example::words::encode(points)) == points));
  for (const std::string_view damaged :
       {std::string_view("\x80"), std::string_view("\xc3"), std::string_view("\xc3("), std::string_view("\xc0\xaf"),
        std::string_view("\xe0\x80\xaf"), std::string_view("\xe2\x82"), std::string_view("\xed\xa0\x80"),
        std::string_view("\xf0\x80\x80\x80"), std::string_view("\xf4\x90\x80\x80"), std::string_view("\xff")}) {
    BOOST_TEST(message_of([&] { return decode("ab" + std::string(damaged)); }) ==
               "some-file, line 7: byte 2 does not start a UTF-8 character");
  }
  BOOST_TEST((example::words::decode("\xe5\xff", example::encoding::latin1, "some-file", 1) == U"\u00e5\u00ff"));
}

BOOST_AUTO_TEST_CASE(words_are_cleaned_and_words_of_two_languages_dropped) {
  const test::temporary_folder folder;
  folder.write("english", "Cat\ncat's\ncats\nat\nhand\nextraordinarily\r\nZo\xc3\xab\nzo\xc3\xab's\n");
  folder.write("german",
               "Hand\nStra\xc3\x9f"
               "e\n\xc3\x96l\n\xc3\x84pfel\n\xc3\xa4pfel\nCafe\n");
  example::word_options options;
  options.longest = 7;
  const auto made = example::load_words(folder.path(), two, options);
  const auto places = places_of(made);
  BOOST_TEST(places.size() == 6U);
  for (const char* word : {"cat", "cats", "zo\xc3\xab"}) {
    BOOST_TEST(places.at(word).language == "English");
  }
  for (const char* word : {"stra\xc3\x9f"
                           "e",
                           "\xc3\xa4pfel", "cafe"}) {
    BOOST_TEST(places.at(word).language == "German");
  }
  for (const auto* half : {&made.train, &made.test}) {
    BOOST_TEST(half->ids.positions == 7U);
    BOOST_TEST(half->ids.ids.size() == 7 * half->words.size());
    BOOST_TEST(half->ids.lengths.size() == half->words.size());
    const auto found = std::find(half->words.begin(), half->words.end(), "zo\xc3\xab");
    if (found != half->words.end()) {
      const auto index = static_cast<std::size_t>(found - half->words.begin());
      const ids expected{26, 15, letter_ids::id(U'\u00eb'), 0, 0, 0, 0};
      BOOST_TEST(std::equal(expected.begin(), expected.end(), &half->ids.ids[7 * index]));
      BOOST_TEST(half->ids.lengths[index] == 3U);
    }
  }
}

BOOST_AUTO_TEST_CASE(languages_have_equally_many_words_and_the_split_stays_when_one_is_added) {
  const test::temporary_folder folder;
  folder.write("english", many('x', 900));
  folder.write("german", many('y', 500));
  folder.write("swedish", many('\xe5', 600));  // Latin-1
  auto three = two;
  three.push_back({"Swedish", "wswedish", "swedish", example::encoding::latin1});
  const auto first = example::load_words(folder.path(), two);
  const auto again = example::load_words(folder.path(), two);
  const auto more = example::load_words(folder.path(), three);
  BOOST_TEST(first.train.words == again.train.words);
  BOOST_TEST(first.train.ids.ids == again.train.ids.ids);
  BOOST_TEST(more.train.words.size() + more.test.words.size() == 1'500U);
  // About a fifth of 1500 words, five standard deviations either way.
  BOOST_TEST(more.test.words.size() > 220U);
  BOOST_TEST(more.test.words.size() < 380U);

  const auto before = places_of(first);
  const auto after = places_of(more);
  std::map<std::string, std::size_t> count;
  for (const auto& [word, place] : after) {
    ++count[place.language];
    const auto found = before.find(word);
    BOOST_TEST((found == before.end() || found->second == place));
  }
  BOOST_TEST(count["English"] == 500U);
  BOOST_TEST(count["German"] == 500U);
  BOOST_TEST(count["Swedish"] == 500U);
  BOOST_TEST(before.size() == 1'000U);

  example::word_options few;
  few.per_language = 100;
  few.test_percent = 0;
  const auto fewer = example::load_words(folder.path(), three, few);
  BOOST_TEST(fewer.train.words.size() == 300U);
  BOOST_TEST(fewer.test.words.empty());
  // The languages are mixed: no long run of one label.
  std::size_t changes = 0;
  for (std::size_t index = 1; index < 300; ++index) {
    changes += fewer.train.ids.labels[index] != fewer.train.ids.labels[index - 1] ? 1U : 0U;
  }
  BOOST_TEST(changes > 150U);
}

BOOST_AUTO_TEST_CASE(what_is_missing_or_wrong_is_said) {
  const test::temporary_folder folder;
  folder.write("english", "cat\ndog\n");
  const auto load = [&] { return example::load_words(folder.path(), two); };
  BOOST_TEST(message_of(load) == "cannot open " + folder.path("german") +
                                     ", the word list for German; install the Debian package wngerman");
  folder.write("german", "Hund\nst\xc3\xbchle\nk\xe4se\n");
  BOOST_TEST(message_of(load) == folder.path("german") + ", line 3: byte 1 does not start a UTF-8 character");
  folder.write("german", "cat\ndog\n");
  BOOST_TEST(message_of(load) == folder.path("english") + ": found 0 words that are only English, expected at least 1");
  folder.write("german", "hund\n");
  example::word_options options;
  options.per_language = 2;
  BOOST_TEST(message_of([&] { return example::load_words(folder.path(), two, options); }) ==
             folder.path("german") + ": found 1 words that are only German, expected at least 2");
  options.longest = 2;
  BOOST_TEST(message_of<std::invalid_argument>([&] {
               return example::load_words(folder.path(), two, options);
             }).starts_with("word lists: expected"));
}

BOOST_AUTO_TEST_CASE(every_known_list_names_its_package_and_file) {
  std::set<std::string> files;
  for (const auto& list : example::debian_word_lists()) {
    BOOST_TEST(list.package.starts_with("w"));
    files.insert(list.file);
  }
  BOOST_TEST(files.size() == example::debian_word_lists().size());
}

BOOST_AUTO_TEST_SUITE_END()
