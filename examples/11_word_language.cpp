// SPDX-License-Identifier: Apache-2.0
// examples/11_word_language.cpp - an LSTM that tells the language of a word, trained with differential privacy
//
// The words are those of Debian's dictionary packages (common/word_lists.hpp): 3 to 16 letters, in one of six languages
// and in no other. The network reads a word letter by letter and answers after its last one, so samples have lengths of
// their own: what lies behind a word's last letter contributes exactly nothing, to the output, the gradient or its
// norm. The trained weights tell almost nothing about whether any one word was among the training words.
#include <cstddef>
#include <cstdint>
#include <utility>

#include <pergrad.hpp>

#include "common/cli.hpp"
#include "common/report.hpp"
#include "common/training.hpp"
#include "common/word_lists.hpp"

namespace pg = pergrad;
using example::letter_ids;

inline constexpr std::size_t languages = 6;

// A word is up to 16 ids of letters; each id becomes 32 numbers, the LSTM reads them one after the other.
using reader = pg::network<pg::variable(pg::token_ids(16, letter_ids::count)),  //
                           pg::embedding<32>, pg::lstm<64, pg::last_output>, pg::linear<languages>>;
static_assert(reader::parameter_count == letter_ids::count * 32 + 4 * 64 * (32 + 64 + 2) + (64 + 1) * languages);

// One record is one training word. The lists are cut to the same number of words of every language, of which one in
// five, by a hash of the word, is for testing: q uses the expected size of the rest, which is public. The lists are
// prepared before the guarantee begins; a word that stands in two of them is in neither half.
constexpr std::size_t training_words(std::size_t per_language, std::size_t test_percent) {
  return per_language * languages * (100 - test_percent) / 100;
}

void train(example::run_report& report, const example::word_options& chosen) {
  auto lists = example::debian_word_lists();
  lists.resize(languages);
  for (const example::word_list& list : lists) {
    report.labels.push_back(list.language);
  }
  report.network = "embedding 32, LSTM 64";
  report.own_options = {{"per-language", chosen.per_language}};
  report.dataset_size = training_words(chosen.per_language, chosen.test_percent);
  report.public_constants = {{"words_per_language", chosen.per_language},
                             {"test_percent", chosen.test_percent},
                             {"shortest_word", chosen.shortest},
                             {"longest_word", chosen.longest},
                             {"letters", letter_ids::count}};
  example::language_words words;
  example::train_privately<reader>(report, [&] {
    words = example::load_words(report.chosen.data, lists, chosen);
    const auto set = [](const pg::labelled_ids& half) {
      return pg::dataset<std::int32_t, std::int32_t>{half.ids, half.labels, reader::input_shape, 1, half.lengths};
    };
    return std::pair{set(words.train.ids), set(words.test.ids)};
  });
}

int main(int argc, char** argv) {
  example::word_options chosen;
  chosen.longest = reader::input_shape.e0;
  chosen.per_language = 50'000;
  example::program what;
  what.name = "word_language";
  what.title = "The language of a word, an LSTM with DP-SGD";
  what.purpose =
      "Trains an LSTM that tells the language of a word, on Debian's word lists, with differentially private "
      "SGD.";
  what.record = "word";
  what.dataset = "words of Debian's dictionary packages";
  what.data_help = "folder with the word lists of wamerican, wngerman, wfrench, wspanish, witalian and wdutch";
  what.size = "(4.8 PER_LANGUAGE)";
  what.most_batch = training_words(1'000'000, chosen.test_percent);
  what.adam_rate = 0.02;
  what.defaults.batch = 4096;
  what.defaults.optimizer = "adam";
  what.defaults.clip = 1.0;
  what.defaults.delta = 1e-6;
  what.defaults.epochs = 8;
  what.defaults.data = "/usr/share/dict";
  const auto own_options = [&](example::cli::binder& bind) {
    bind.number("per-language", chosen.per_language, example::cli::whole_range{100, 1'000'000}, "50000",
                "words of each language, one in five of them for testing");
  };
  return example::run_program(argc, argv, what, own_options,
                              [&](example::run_report& report) { train(report, chosen); });
}
