// SPDX-License-Identifier: Apache-2.0
// tests/data/sequences_test.cpp - sequences of different lengths, padded and cut
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/data/sequences.hpp>
#include <pergrad/shape.hpp>

#include "files.hpp"

BOOST_AUTO_TEST_SUITE(sequences)

namespace {

using ids = std::vector<std::int32_t>;
using lengths = std::vector<std::uint32_t>;
using pergrad::sequence_end;
using test::misses;

pergrad::labelled_sequences three() { return {{{1, 2, 3, 4, 5, 6, 7}, {2, 2, 7}}, {0, 1, 1}}; }  // {1 2} {} {3 ... 7}

}  // namespace

BOOST_AUTO_TEST_CASE(a_sequence_is_what_lies_between_two_ends) {
  const auto set = three();
  BOOST_TEST(set.size() == 3U);
  BOOST_TEST(set.sequences[0].size() == 2U);
  BOOST_TEST(set.sequences[1].empty());
  BOOST_TEST(set.sequences[2][0] == 3);
  BOOST_TEST(set.sequences[2].size() == 5U);
}

BOOST_AUTO_TEST_CASE(padding_and_cutting_at_either_end) {
  const auto front = pergrad::pad_sequences(three(), 4);
  BOOST_TEST(front.ids == (ids{0, 0, 1, 2, 0, 0, 0, 0, 4, 5, 6, 7}), boost::test_tools::per_element());
  BOOST_TEST(front.lengths == (lengths{2, 0, 4}), boost::test_tools::per_element());
  BOOST_TEST(front.labels == (ids{0, 1, 1}), boost::test_tools::per_element());
  BOOST_TEST(front.positions == 4U);
  BOOST_TEST(front.size() == 3U);

  const auto back = pergrad::pad_sequences(three(), 4, sequence_end::back, sequence_end::back, 9);
  BOOST_TEST(back.ids == (ids{1, 2, 9, 9, 9, 9, 9, 9, 3, 4, 5, 6}), boost::test_tools::per_element());
  BOOST_TEST(back.lengths == (lengths{2, 0, 4}), boost::test_tools::per_element());

  const auto mixed = pergrad::pad_sequences(three(), 4, sequence_end::back, sequence_end::front);
  BOOST_TEST(mixed.ids == (ids{1, 2, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_padded_is_a_data_set) {
  const auto front = pergrad::pad_sequences(three(), 4);
  const pergrad::dataset<std::int32_t, std::int32_t> fixed{front.ids, front.labels, pergrad::token_ids(4, 8)};
  BOOST_TEST(fixed.size() == 3U);
  BOOST_TEST(fixed.input(2)[3] == 7);

  pergrad::labelled_sequences set = three();
  set.sequences = {{1, 2, 3, 4, 5, 6, 7}, {1, 2, 7}};  // none is empty
  const auto back = pergrad::pad_sequences(set, 4, sequence_end::back);
  const pergrad::dataset<std::int32_t, std::int32_t> varying{
      back.ids, back.labels, pergrad::variable(pergrad::token_ids(4, 8)), 1, back.lengths};
  BOOST_TEST(varying.size() == 3U);
}

BOOST_AUTO_TEST_CASE(lengths_that_cannot_be_are_refused) {
  BOOST_TEST(misses<std::invalid_argument>([] { return pergrad::pad_sequences(three(), 0); }, {"0 positions"}) == "");
  BOOST_TEST(misses<std::invalid_argument>([] { return pergrad::pad_sequences(three(), std::size_t{1} << 32U); },
                                           {"4294967296 positions"}) == "");
  auto unequal = three();
  unequal.labels.pop_back();
  BOOST_TEST(misses<std::invalid_argument>([&] { return pergrad::pad_sequences(unequal, 4); },
                                           {"3 sequences and 2 labels"}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
