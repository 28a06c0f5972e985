// SPDX-License-Identifier: Apache-2.0
// pergrad/data/acl_imdb.hpp - IMDb reviews from the folder aclImdb, one text file a review
//
// Data (A. Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011,
// https://ai.stanford.edu/~amaas/data/sentiment/): train/neg, train/pos, test/neg and test/pos hold 12,500 texts each.
// Words are what lies between spaces, in lower case; Lee & Kifer ("Scaling up Differentially Private Deep Learning with
// Fast Per-Example Gradient Clipping", PoPETs 2021) take the 50,000 most frequent and cut and fill every review to 512:
//
//   const auto words = acl_imdb_vocabulary("aclImdb", 50'000);
//   const auto train = pad_sequences(read_acl_imdb("aclImdb", data_part::train, words), 512, sequence_end::back,
//                                    sequence_end::back);
//
// That vocabulary is counted from the training texts. Where those are private it is a private release of its own, which
// DP-SGD does not account for: take a public word list then (`vocabulary`).
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pergrad/data/idx.hpp>
#include <pergrad/data/part.hpp>
#include <pergrad/data/sequences.hpp>
#include <pergrad/data/vocabulary.hpp>

namespace pergrad::inline v0_1 {

namespace detail::acl_imdb {

inline constexpr std::array<const char*, 2> classes{"neg", "pos"};  // the index is the label

// The *.txt files of DIRECTORY/PART/CLASS in the order of their names.
[[nodiscard]] inline std::vector<std::string> list_texts(const std::string& directory, data_part part,
                                                         std::size_t label) {
  const auto folder = std::filesystem::path(directory) / (part == data_part::train ? "train" : "test") / classes[label];
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw std::runtime_error("pergrad: cannot find the folder " + folder.string() +
                             "; get aclImdb_v1.tar.gz (84 MB) from https://ai.stanford.edu/~amaas/data/sentiment/ and "
                             "unpack it, so that " +
                             directory + " is its folder aclImdb");
  }
  std::vector<std::string> paths;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".txt") {
      std::error_code unknown;
      if (!entry->is_regular_file(unknown)) {
        throw std::runtime_error("pergrad: " + entry->path().string() + " is not a file, expected a text");
      }
      paths.push_back(entry->path().string());
    }
  }
  if (error) {
    throw std::runtime_error("pergrad: cannot list " + folder.string() + ": " + error.message());
  }
  if (paths.empty()) {
    throw std::runtime_error("pergrad: there is no *.txt file in " + folder.string() + ", expected 12500 of them");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

[[nodiscard]] inline std::string read_text(const std::string& path) {
  const auto bytes = idx::read_bytes(path);
  return {bytes.begin(), bytes.end()};
}

}  // namespace detail::acl_imdb

/// The most frequent words of the training texts, a vocabulary of at most `size` ids. Only for texts that are public:
/// see the head of this file. Throws std::runtime_error as read_acl_imdb, std::invalid_argument for a `size` below 3.
[[nodiscard]] inline vocabulary acl_imdb_vocabulary(const std::string& directory, std::size_t size) {
  word_counter counter;
  for (std::size_t label = 0; label < detail::acl_imdb::classes.size(); ++label) {
    for (const std::string& path : detail::acl_imdb::list_texts(directory, data_part::train, label)) {
      counter.add(detail::acl_imdb::read_text(path));
    }
  }
  return counter.most_frequent(size);
}

/// The reviews of one half as ids, labels 0 (negative) and 1 (positive): first all negative ones, then all positive
/// ones, each in the order of their file names. Throws std::runtime_error for what cannot be read; for a missing folder
/// the message says where the data set comes from and where to put it.
[[nodiscard]] inline labelled_sequences read_acl_imdb(const std::string& directory, data_part part,
                                                      const vocabulary& words) {
  labelled_sequences set;
  for (std::size_t label = 0; label < detail::acl_imdb::classes.size(); ++label) {
    for (const std::string& path : detail::acl_imdb::list_texts(directory, part, label)) {
      for_each_word(detail::acl_imdb::read_text(path),
                    [&](std::string_view word) { set.sequences.ids.push_back(words.id(word)); });
      set.sequences.ends.push_back(set.sequences.ids.size());
      set.labels.push_back(static_cast<std::int32_t>(label));
    }
  }
  return set;
}

}  // namespace pergrad::inline v0_1
