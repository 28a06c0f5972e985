// SPDX-License-Identifier: Apache-2.0
// tests/text/text_test.cpp - byte-level BPE against Hugging Face's tokenizers, and packing that keeps owners apart
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/text/byte_level_bpe.hpp>
#include <pergrad/text/packing.hpp>

BOOST_AUTO_TEST_SUITE(text)

namespace {

namespace pg = pergrad;

const std::string data = std::string{PERGRAD_TEXT_DIR} + "/data/";
const pg::byte_level_bpe& small() {
  static const pg::byte_level_bpe made{data + "small-vocab.json", data + "small-merges.txt"};
  return made;
}
std::vector<std::string> words_of(std::string_view whole) {
  std::vector<std::string> words;
  pg::detail::for_each_word(whole, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}
/// A file that is gone with this.
struct temporary {
  std::string path;
  temporary(const std::string& name, const std::string& content) : path{"pergrad_text_" + name} {
    std::ofstream{path, std::ios::binary} << content;
  }
  ~temporary() { std::remove(path.c_str()); }
  temporary(const temporary&) = delete;
  temporary& operator=(const temporary&) = delete;
};
void refused(const std::string& vocabulary, const std::string& merges, const std::string& what) {
  BOOST_CHECK_EXCEPTION((pg::byte_level_bpe{vocabulary, merges}), std::runtime_error, [&](const auto& error) {
    return std::string_view{error.what()}.find(what) != std::string_view::npos;
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(ids_are_those_of_tokenizers) {
  std::ifstream stream{data + "small-cases.json"};
  const auto cases = nlohmann::json::parse(stream).at("cases");
  BOOST_TEST(cases.size() > 200U);
  std::size_t joined = 0;
  for (const auto& each : cases) {
    const auto text = each.at("text").get<std::string>();
    const auto ids = each.at("ids").get<std::vector<std::int32_t>>();
    BOOST_TEST(small().encode(text) == ids, boost::test_tools::per_element());
    BOOST_TEST(small().decode(ids) == text);
    joined += text.size() - ids.size();
  }
  BOOST_TEST(joined > 1000U);
}

BOOST_AUTO_TEST_CASE(words_are_those_of_the_expression) {
  using list = std::vector<std::string>;
  BOOST_TEST((words_of("Hello  world, it's 12 o'clock!\n\nYes") ==
              list{"Hello", " ", " world", ",", " it", "'s", " 12", " o", "'", "clock", "!", "\n", "\n", "Yes"}));
  BOOST_TEST((words_of("  ") == list{"  "}));
  BOOST_TEST((words_of("a\n b") == list{"a", "\n", " b"}));
  BOOST_TEST((words_of("x½y") == list{"x", "½", "y"}));
}

BOOST_AUTO_TEST_CASE(any_bytes_come_back) {
  std::string all;
  for (unsigned i = 0; i < 4096; ++i) all += static_cast<char>((i * 131U + i * i % 251U) % 256U);
  BOOST_TEST(small().decode(small().encode(all)) == all);
  const std::int32_t end = small().id_of("<|endoftext|>");
  BOOST_TEST(small().decode(std::vector{end}) == "<|endoftext|>");
  BOOST_TEST(std::ranges::count(small().encode("<|endoftext|>"), end) == 0);
  BOOST_CHECK_THROW(static_cast<void>(small().decode(std::vector{400})), std::out_of_range);
  BOOST_CHECK_THROW(static_cast<void>(small().id_of("no such token")), std::out_of_range);
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused) {
  const std::string vocabulary = data + "small-vocab.json", merges = data + "small-merges.txt";
  const temporary no_json{"no_json", "{"}, few_bytes{"few_bytes", R"({"a": 0})"};
  const temporary no_id{"no_id", R"({"a": -1})"}, large_id{"large_id", R"({"a": 16777217})"},
      one_token{"one_token", "#version: 0.2\nabc\n"};
  const temporary unknown{"unknown", "#version: 0.2\nzq qz\n"};
  refused("no such file", merges, "no such file");
  refused(no_json.path, merges, "pergrad_text_no_json: is no JSON object of tokens: ");
  refused(no_json.path, merges, "line 1, column 2");
  refused(few_bytes.path, merges, "no token for the byte 0");
  refused(no_id.path, merges, "the id of a is -1, no integer from 0 to 16777216");
  refused(large_id.path, merges, "the id of a is 16777217, no integer");
  refused(vocabulary, "no such file", "cannot open no such file");
  refused(vocabulary, one_token.path, "line 2: not two tokens");
  refused(vocabulary, unknown.path, "line 2: a token that is not in");
  // Arrays in arrays, deeper than what writes one by recursion has a stack for.
  const std::string deep(300'000, '['), back(300'000, ']');
  const temporary nested{"nested", "{\"a\": " + deep + back + "}"};
  refused(nested.path, merges, "the id of a is an array, no integer");
  refused(data, merges, "cannot read " + data);  // a folder opens like a file
  refused(vocabulary, data, "cannot read " + data);
}

BOOST_AUTO_TEST_CASE(files_that_do_not_belong_together_are_refused) {
  // Bytes have the ids 0 to 255 here, in the order of their bytes.
  const auto names = pg::detail::names_of_bytes();
  const auto vocabulary_with = [&](const std::string& more) {
    nlohmann::json tokens;
    for (std::size_t byte = 0; byte < names.size(); ++byte) tokens[names[byte]] = byte;
    const std::string text = tokens.dump();
    return text.substr(0, text.size() - 1) + more + "}";
  };
  const temporary twice{"twice", vocabulary_with(R"(, "ab": 300, "ba": 300)")}, none{"none", "#version: 0.2\n"};
  refused(twice.path, none.path, "have one id, 300");
  const temporary again{"again", vocabulary_with(R"(, "ab": 300, "ab": 301)")};
  refused(again.path, none.path, "pergrad_text_again: has the token ab twice");
  const temporary gap{"gap", vocabulary_with(R"(, "ab": 300)")}, crlf{"crlf", "#version: 0.2\r\na b\r\n"};
  const pg::byte_level_bpe tokens{gap.path, crlf.path};
  BOOST_TEST((tokens.encode("abba") == std::vector<std::int32_t>{300, 'b', 'a'}));
  BOOST_CHECK_THROW(static_cast<void>(tokens.decode(std::vector<std::int32_t>{299})), std::out_of_range);
  std::string many;
  for (int id = 256; id < 256 + 1024; ++id) many += ", \"<" + std::to_string(id) + ">\": " + std::to_string(id);
  const temporary special{"special", vocabulary_with(many)}, cut{"cut", vocabulary_with(many + R"(, "ab": 1280)")};
  BOOST_TEST((pg::byte_level_bpe{special.path, none.path}.vocabulary_size()) == 1280U);
  refused(cut.path, none.path, "its merges make 0 of the 1281 tokens");
  // Special tokens are decoded as they are written, also in letters that are names of bytes.
  const temporary guillemets{"guillemets", vocabulary_with(R"(, "\u00absep\u00bb": 256)")};
  BOOST_TEST((pg::byte_level_bpe{guillemets.path, none.path}.decode(std::vector<std::int32_t>{256})) ==
             "\u00absep\u00bb");
  const std::string blank = names[' '];
  const temporary word{"word", vocabulary_with(R"(, "<s>": 256, ")" + blank + R"(a": 257, "my token": 258)")};
  const temporary whole{"whole", blank + " a\n"};
  BOOST_TEST((pg::byte_level_bpe{word.path, whole.path}.encode(" a") == std::vector<std::int32_t>{257}));
  refused(word.path, none.path, "pergrad_text_none: no merge makes " + blank + "a of pergrad_text_word");
}

BOOST_AUTO_TEST_CASE(merges_are_taken_as_tokenizers_takes_them) {
  const auto names = pg::detail::names_of_bytes();
  nlohmann::json tokens;
  for (std::size_t byte = 0; byte < names.size(); ++byte) tokens[names[byte]] = byte;
  const auto with = [&](const std::vector<std::string>& more) {
    nlohmann::json all = tokens;
    for (const std::string& each : more) all[each] = all.size();
    return all.dump();
  };
  // A pair that a merge has just made may stand before all others: it is joined before the next "a b" is.
  const temporary of_parts{"of_parts", with({"ab", "aba", "abab"})}, parts_first{"parts_first", "aba b\nab a\na b\n"};
  const pg::byte_level_bpe out_of_order{of_parts.path, parts_first.path};
  BOOST_TEST((out_of_order.encode("aababb") == std::vector<std::int32_t>{'a', 258, 'b'}));
  // What is said twice counts where it is said last, and a line of a version may stand anywhere.
  const temporary of_pairs{"of_pairs", with({"ab", "bc"})}, twice{"said_twice", "a b\nb c\n#version: 0.2\na b\n"};
  BOOST_TEST((pg::byte_level_bpe{of_pairs.path, twice.path}.encode("abc") == std::vector<std::int32_t>{'a', 257}));
}

BOOST_AUTO_TEST_CASE(a_long_word_takes_no_longer_than_many_short_ones) {
  // By the square of its length it would be hours.
  std::string word;
  std::uint32_t bits = 1;
  for (int i = 0; i < 2'000'000; ++i)
    word += static_cast<char>('a' + ((bits = bits * 1664525U + 1013904223U) >> 24U) % 26);
  const auto ids = small().encode(word);
  BOOST_TEST(ids.size() < word.size());
  BOOST_TEST((small().decode(ids) == word));
}

BOOST_AUTO_TEST_CASE(no_sequence_has_two_owners) {
  // Texts of owner k are of ids 10 k + 1 to 10 k + 9.
  const std::vector<std::vector<std::int32_t>> texts{
      {11, 12, 13, 14}, {21}, {15, 16, 17}, {}, {31, 32, 33, 34, 35, 36, 37}};
  const std::vector<std::uint32_t> owners{1, 2, 1, 2, 3};
  const auto packed = pg::pack(texts, owners, 4, 0);
  using ids = std::vector<std::int32_t>;
  BOOST_TEST(packed.owners == (std::vector<std::uint32_t>{1, 1, 1, 2, 3, 3}), boost::test_tools::per_element());
  BOOST_TEST(packed.ids == (ids{0, 11, 12, 13, 14, 0, 15, 16, 17, 0, 0, 0, 0, 21, 0, 0, 0, 31, 32, 33, 34, 35, 36, 37}),
             boost::test_tools::per_element());
  BOOST_TEST(packed.targets == (ids{11, 12, 13, 14,   0,  15, 16, 17, 0,  -100, -100, -100,
                                    21, 0,  0,  -100, 31, 32, 33, 34, 35, 36,   37,   0}),
             boost::test_tools::per_element());
  for (std::size_t sequence = 0; sequence < packed.owners.size(); ++sequence) {
    for (std::size_t t = 0; t < 4; ++t) {
      for (const std::int32_t id : {packed.ids[sequence * 4 + t], packed.targets[sequence * 4 + t]}) {
        BOOST_TEST((id <= 0 || static_cast<std::uint32_t>(id / 10) == packed.owners[sequence]));
      }
    }
  }
  // Every id is a target once.
  std::map<std::int32_t, int> seen;
  for (const std::int32_t id : packed.targets) ++seen[id];
  for (const auto& text : texts) {
    for (const std::int32_t id : text) BOOST_TEST(seen[id] == 1);
  }
  BOOST_CHECK_THROW(static_cast<void>(pg::pack(texts, std::vector<std::uint32_t>{1}, 4, 0)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::pack(texts, owners, 0, 0)), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
