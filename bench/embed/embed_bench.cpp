// SPDX-License-Identifier: Apache-2.0
// bench/embed/embed_bench.cpp - embed/<dp|non_private>/<batch>/<threads>: a training step of the IMDb embedding network
//
// embed_rows/...  the same function as a list of rows and their mean, in the place of embedding_bag
//
// The classifier of fast-dpsgd, 160,098 parameters: a table of 10,004 rows of 16, the mean over 256 positions, linear 2
// (Subramani, Vadivelu, Kamath 2021, arXiv:2010.09063). Ids are uniform over the vocabulary; real text has fewer
// different ones. Counters: support/step_benchmark.hpp.
#include <string>

#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

using bag = pg::models::imdb_embedding;
using rows = pg::network<pg::token_ids(256, 10'004), pg::embedding<16>, pg::mean_over_positions, pg::linear<2>>;
static_assert(bag::parameter_count == 160'098);
static_assert(rows::parameter_count == 160'098);

template <class Network>
bool add(const std::string& task) {
  return bench::register_steps<bench::training>(task, bench::kept_records<Network, pg::cross_entropy, 2048>,
                                                {16, 256, 2048}, {1, 2});
}

const bool registered = add<bag>("embed") && add<rows>("embed_rows");

}  // namespace
