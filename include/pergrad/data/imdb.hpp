// SPDX-License-Identifier: Apache-2.0
// pergrad/data/imdb.hpp - IMDb reviews from Keras' imdb.npz; needs zlib, so it is not part of pergrad.hpp (link -lz)
//
// Data (A. Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011): 25,000 reviews for training and
// 25,000 for testing, positive or negative. Keras publishes them as numbers: the id of a word is its rank by frequency
// in the texts, 1 the most frequent. The archive holds x_train.npy, y_train.npy, x_test.npy and y_test.npy; the x are
// NumPy arrays of pickled Python lists of ints, the y integers. Nothing in the pickles is executed (pickle.hpp).
//
// Made of them is what keras.datasets.imdb.load_data makes (Keras 3, documented defaults): the records are shuffled by
// NumPy's RandomState(113), first the training and then the test records; a review w_1 ... w_n becomes
//
//   start_char, f(w_1 + index_from), ..., f(w_n + index_from)   with f(v) = v if skip_top <= v < num_words, else
//   oov_char
//
// (f is applied to start_char too). With the defaults 0 is free for padding, 1 starts a review, 2 is a rare word.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pergrad/data/idx.hpp>
#include <pergrad/data/npy.hpp>
#include <pergrad/data/part.hpp>
#include <pergrad/data/pickle.hpp>
#include <pergrad/data/sequences.hpp>
#include <pergrad/data/zip.hpp>

namespace pergrad::inline v0_1 {

/// The arguments of keras.datasets.imdb.load_data, with its defaults; `num_words` is the one of the published
/// benchmarks.
struct imdb_options {
  std::int32_t num_words = 10'000;  ///< all ids are below it: the vocabulary of `token_ids`
  std::int32_t skip_top = 0;
  std::int32_t start_char = 1;
  std::int32_t oov_char = 2;
  std::int32_t index_from = 3;
};

namespace detail::imdb {

// NumPy's legacy RandomState.shuffle: from the last place down, each swapped with one at or before it, which is drawn
// by masking 32-bit words of the Mersenne twister until one is small enough.
[[nodiscard]] inline std::vector<std::size_t> shuffled(std::size_t count, std::mt19937& words) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t last = count; last-- > 1;) {
    const std::size_t mask = std::bit_ceil(last + 1) - 1;
    std::size_t drawn = 0;
    do {
      drawn = static_cast<std::size_t>(words()) & mask;
    } while (drawn > last);
    std::swap(order[last], order[drawn]);
  }
  return order;
}

inline void check(const imdb_options& options) {
  const auto require = [](bool good, const char* what, std::int32_t got) {
    if (!good) {
      throw std::invalid_argument("pergrad: imdb_options: " + std::string(what) + ", got " + std::to_string(got));
    }
  };
  require(options.num_words >= 1, "num_words must be at least 1", options.num_words);
  require(options.skip_top >= 0, "skip_top must not be negative", options.skip_top);
  require(options.index_from >= 0, "index_from must not be negative", options.index_from);
  require(options.start_char >= 0, "start_char must not be negative", options.start_char);
  require(options.oov_char >= 0 && options.oov_char < options.num_words,
          "oov_char must be at least 0 and below num_words", options.oov_char);
}

// The most content of one member. The published x_train.npy has less than a tenth of it.
inline constexpr std::size_t largest_member = std::size_t{1} << 28U;

[[nodiscard]] inline id_sequences read_lists(const zip::archive& archive, const std::string& member,
                                             std::string_view archive_name, std::size_t count) {
  const auto bytes = archive.extract(member, largest_member);
  const std::string name = std::string(archive_name) + " (" + member + ")";
  const npy::header head = npy::parse_header(bytes, name);
  if (head.descr != "|O" || head.shape.size() != 1) {
    idx::throw_error(name, 0,
                     "found a " + std::to_string(head.shape.size()) + "-dimensional array of type " + head.descr +
                         ", expected 1 dimension of |O (Python lists)");
  }
  if (head.shape[0] != count) {
    idx::throw_error(name, 0,
                     "found " + std::to_string(head.shape[0]) + " reviews, expected " + std::to_string(count) +
                         ", one for each label");
  }
  return pickle::list_reader(std::span<const std::uint8_t>{bytes}.subspan(head.size), head.size, name, count).read();
}

[[nodiscard]] inline std::vector<std::int32_t> read_labels(const zip::archive& archive, const std::string& member,
                                                           std::string_view archive_name) {
  return npy::parse_integers(archive.extract(member, largest_member), std::string(archive_name) + " (" + member + ")",
                             0, 1);
}

}  // namespace detail::imdb

/// One half of the bytes of an imdb.npz, as Keras gives it out, labels 0 (negative) and 1 (positive). `name` is used in
/// error messages only. For what the published networks take, see `pad_sequences(set, 256)`.
/// Throws std::runtime_error naming the file, the member, the offset and what was wrong there, and
/// std::invalid_argument for options that no vocabulary fits.
[[nodiscard]] inline labelled_sequences parse_imdb(std::span<const std::uint8_t> bytes, std::string_view name,
                                                   data_part part, const imdb_options& options = {}) {
  detail::imdb::check(options);
  const detail::zip::archive archive(bytes, std::string(name));
  constexpr std::mt19937::result_type keras_seed = 113;
  std::mt19937 words(keras_seed);
  auto labels = detail::imdb::read_labels(archive, "y_train.npy", name);
  auto order = detail::imdb::shuffled(labels.size(), words);
  if (part == data_part::test) {
    labels = detail::imdb::read_labels(archive, "y_test.npy", name);
    order = detail::imdb::shuffled(labels.size(), words);
  }
  const id_sequences lists =
      detail::imdb::read_lists(archive, part == data_part::test ? "x_test.npy" : "x_train.npy", name, labels.size());

  const auto known = [&options](std::int64_t id) {
    return id >= options.skip_top && id < options.num_words ? static_cast<std::int32_t>(id) : options.oov_char;
  };
  labelled_sequences set;
  set.sequences.ids.reserve(lists.ids.size() + lists.size());
  set.sequences.ends.reserve(lists.size());
  set.labels.reserve(lists.size());
  for (const std::size_t record : order) {
    set.sequences.ids.push_back(known(options.start_char));
    for (const std::int32_t word : lists[record]) {
      set.sequences.ids.push_back(known(std::int64_t{word} + options.index_from));
    }
    set.sequences.ends.push_back(set.sequences.ids.size());
    set.labels.push_back(labels[record]);
  }
  return set;
}

/// Reads one half of `path`, which is the file imdb.npz or the folder it lies in. Throws as parse_imdb; if the file is
/// missing, the message says where it comes from and where to put it.
[[nodiscard]] inline labelled_sequences read_imdb(const std::string& path, data_part part,
                                                  const imdb_options& options = {}) {
  std::error_code ignored;
  const std::string file =
      std::filesystem::is_directory(path, ignored) ? (std::filesystem::path(path) / "imdb.npz").string() : path;
  constexpr std::string_view source = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz (17 MB)";
  return parse_imdb(detail::idx::read_bytes(file, source), file, part, options);
}

}  // namespace pergrad::inline v0_1
