// SPDX-License-Identifier: Apache-2.0
// tests/cuda/rows_test.cpp - norms, sums, rows and projections of a table against plain loops: the same bits whatever
// the buckets, the order of threads and blocks, and how the batch is cut
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/norms.hpp>
#include <pergrad/cuda/kernels/sums.hpp>

#include "comparing.hpp"

BOOST_AUTO_TEST_SUITE(cuda_rows)

namespace {

namespace dev = pergrad::on_device;
using comparing::check_close;
using dev::emulation_order;

constexpr int vocabulary = 7;
constexpr int width = 3;
constexpr int positions = 6;  // of the first use; the second one has half as many, and one delta for all of them
constexpr int samples = 9;
constexpr int skipped = 4;
constexpr int accumulators = 2;
constexpr int parameters = 5 + vocabulary * width;  // the table is not the first block
constexpr int workspace = 2 * positions + positions * width + width + 8;

/// Norms of a leaf, of a block of threads a sample.
struct norm_of_rows {
  static constexpr int threads = 64;
  struct shared_type {
    double partial[threads / dev::warp_size];
  };
  const dev::row_leaf* leaf;
  dev::batch_view<double, double> view;
  pergrad::norm_bound* norms;
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    const dev::norm_worker<Block, double, threads> worker{block, view.values(block.index()), nullptr, shared.partial};
    block.once([&] { norms[block.index()] = {}; });
    worker.add(*leaf, 1, norms[block.index()]);
  }
};

/// Two uses of a table, ids in the place of values, a length a sample.
struct problem {
  std::vector<double> inputs = std::vector<double>(samples * positions);
  std::vector<double> workspaces = std::vector<double>(samples * workspace);
  std::vector<std::uint32_t> lengths, records;
  std::vector<int> integers;  // a length stays what it is; the second use has half of it
  std::vector<double> weights, direction;
  std::vector<dev::row_leaf> leaves;
  std::vector<std::int32_t> ids;
  dev::step_state state{.count = samples};

  explicit problem(int buckets) {
    std::mt19937 random{3};
    std::uniform_real_distribution<double> uniform{-1, 1};
    for (double& value : workspaces) value = uniform(random);
    ids.resize(samples * positions);
    for (int i = 0; i < samples * positions; ++i) {
      ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(random() % vocabulary);
    }
    for (std::size_t b = 0; b < samples; ++b) {
      std::memcpy(inputs.data() + b * positions, ids.data() + b * positions, positions * sizeof(std::int32_t));
      lengths.push_back(static_cast<std::uint32_t>(1 + b % positions));
      records.push_back(static_cast<std::uint32_t>(b));
      weights.push_back(b == 4 ? 0 : uniform(random));
    }
    for (int i = 0; i < parameters; ++i) direction.push_back(uniform(random));
    for (int length = 0; length <= positions; ++length) integers.push_back(length);
    for (int length = 0; length <= positions; ++length) integers.push_back((length + 1) / 2);
    dev::row_leaf first{.vocabulary = vocabulary,
                        .width = width,
                        .positions = positions,
                        .lengths = 0,
                        .ids = dev::in_input(0),
                        .delta = 0,
                        .delta_step = width,
                        .skipped = skipped,
                        .parameters = 5,
                        .next = 1,
                        .all_positions = positions + positions / 2,
                        .links = positions * width + width,
                        .buckets = buckets};
    dev::row_leaf second = first;
    second.positions = positions / 2;
    second.lengths = positions + 1;
    second.delta = positions * width;
    second.delta_step = 0;
    second.first = 0;
    second.next = 0;
    leaves = {first, second};
  }
  [[nodiscard]] dev::batch_view<double, double> view() {
    return {.workspaces = workspaces.data(),
            .inputs = inputs.data(),
            .records = records.data(),
            .lengths = lengths.data(),
            .integers = integers.data(),
            .workspace = workspace,
            .input_size = positions};
  }
  [[nodiscard]] dev::table_view<double> tables() {
    return {.rows = leaves.data(), .row_count = 2, .layers = 1, .parameter_count = parameters};
  }
  /// A sample's gradient, by plain loops.
  [[nodiscard]] std::vector<double> gradient(std::size_t b) const {
    std::vector<double> result(parameters);
    const double* values = workspaces.data() + b * workspace;
    const auto add = [&](std::size_t use, std::size_t length) {
      for (std::size_t t = 0; t < length; ++t) {
        const auto id = static_cast<std::size_t>(ids[b * positions + t]);
        if (id == skipped) continue;
        const double* delta = use == 0 ? values + t * width : values + positions * width;
        for (std::size_t i = 0; i < width; ++i) result[5 + id * width + i] += delta[i];
      }
    };
    add(0, lengths[b]);
    add(1, (lengths[b] + 1) / 2);
    return result;
  }
};

/// All that kernels say, norms first.
template <class Sum>
std::vector<double> all_of(problem& it, emulation_order order, int cut) {
  std::vector<pergrad::norm_bound> norms(samples);
  dev::emulate(norm_of_rows{it.leaves.data(), it.view(), norms.data()}, samples, order);
  std::vector<double> all;
  for (const auto& each : norms) all.push_back(each.squared);

  const int blocks = dev::blocks_for(dev::work_of(it.leaves[0]), 64);
  std::vector<Sum> sums(static_cast<std::size_t>(accumulators * parameters), Sum{-77});
  for (const int squares : {0, 1}) {
    for (int first = 0; first < samples; first += cut) {
      auto view = it.view();
      view.records += first;
      view.workspaces += first * workspace;
      it.state = {.position = static_cast<std::uint64_t>(first),
                  .count = static_cast<std::uint32_t>(std::min(cut, samples - first)),
                  .first = first == 0 ? 1U : 0U};
      if constexpr (std::is_integral_v<Sum>) {
        const dev::clear_kernel clear{&it.state, sums.data() + 5, parameters - 5};
        dev::emulate(clear, clear.blocks(), order);
      }
      dev::emulate(dev::sum_kernel<double, double, Sum, 64>{.state = &it.state,
                                                            .tables = it.tables(),
                                                            .samples = view,
                                                            .method = {},
                                                            .weights = it.weights.data() + first,
                                                            .squares = squares,
                                                            .accumulators = accumulators,
                                                            .to_grid = 1 << 20,
                                                            .sums = sums.data()},
                   blocks * accumulators, order);
    }
    for (std::size_t i = 5; i < parameters; ++i) {
      all.push_back(static_cast<double>(std::is_integral_v<Sum> ? sums[i] : sums[i] + sums[parameters + i]));
    }
  }
  BOOST_TEST((sums[0] == Sum{-77}));  // nothing beside the table is touched

  it.state = {.count = samples};
  std::vector<double> rows(samples * parameters, -77);
  dev::emulate(dev::row_kernel<double, double, 64>{.tables = it.tables(),
                                                   .samples = it.view(),
                                                   .method = {},
                                                   .weights = it.weights.data(),
                                                   .leaf_blocks = blocks,
                                                   .rows = rows.data()},
               samples * blocks, order);
  std::vector<double> projections(samples);
  dev::emulate(dev::projection_kernel<double, double, 64>{.state = &it.state,
                                                          .tables = it.tables(),
                                                          .samples = it.view(),
                                                          .method = {},
                                                          .direction = it.direction.data(),
                                                          .projections = projections.data()},
               samples, order);
  all.insert(all.end(), rows.begin(), rows.end());
  all.insert(all.end(), projections.begin(), projections.end());
  return all;
}

template <class Sum>
std::vector<double> expected() {
  const problem it{1};
  std::vector<double> norms, rows(samples * parameters, -77), projections;
  std::vector<double> sums(parameters), squares(parameters);
  const auto share = [](double value) {
    return std::is_integral_v<Sum> ? static_cast<double>(std::llrint(value * (1 << 20))) : value;
  };
  for (std::size_t b = 0; b < samples; ++b) {
    const auto gradient = it.gradient(b);
    double squared = 0;
    double projection = 0;
    for (std::size_t i = 5; i < parameters; ++i) {
      squared += gradient[i] * gradient[i];
      projection += gradient[i] * it.direction[i];
      sums[i] += share(it.weights[b] * gradient[i]);
      squares[i] += share(it.weights[b] * gradient[i] * gradient[i]);
      rows[b * parameters + i] = it.weights[b] * gradient[i];
    }
    norms.push_back(squared);
    projections.push_back(projection);
  }
  std::vector<double> all(norms);
  all.insert(all.end(), sums.begin() + 5, sums.end());
  all.insert(all.end(), squares.begin() + 5, squares.end());
  all.insert(all.end(), rows.begin(), rows.end());
  all.insert(all.end(), projections.begin(), projections.end());
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_that_is_said_of_a_table_is_what_plain_loops_say) {
  problem it{4};
  check_close(all_of<double>(it, emulation_order::forward, samples), expected<double>(), 1e-12, "values");
  const auto found = all_of<std::int64_t>(it, emulation_order::forward, samples);
  const auto wanted = expected<std::int64_t>();
  for (std::size_t i = samples; i < samples + 2 * vocabulary * width; ++i) BOOST_TEST(found[i] == wanted[i]);
}

BOOST_AUTO_TEST_CASE(no_bit_depends_on_buckets_or_orders_or_on_how_the_batch_is_cut) {
  problem first{1};
  const auto without_buckets = all_of<double>(first, emulation_order::forward, samples);
  for (const int buckets : {1, 3, 7}) {
    problem it{buckets};
    const auto wanted = all_of<double>(it, emulation_order::forward, samples);
    // A projection is added up in the order of the work, which is shared out by buckets; they are constants of a leaf.
    for (std::size_t i = 0; i + samples < wanted.size(); ++i) BOOST_TEST(wanted[i] == without_buckets[i]);
    for (const auto order : {emulation_order::reversed, emulation_order::shuffled}) {
      for (const int cut : {1, 4, samples}) {
        problem again{buckets};
        BOOST_TEST(comparing::same_bits(all_of<double>(again, order, cut), wanted), buckets << " buckets, cut " << cut);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_sample_with_weight_zero_adds_nothing_whatever_its_deltas_are) {
  problem it{4};
  const auto wanted = all_of<double>(it, emulation_order::forward, samples);
  for (int i = 0; i < positions * width + width; ++i) {
    it.workspaces[static_cast<std::size_t>(4 * workspace + i)] = std::numeric_limits<double>::quiet_NaN();
  }
  const auto found = all_of<double>(it, emulation_order::forward, samples);
  for (std::size_t i = samples; i < samples + 2 * vocabulary * width; ++i) BOOST_TEST(found[i] == wanted[i]);
}

BOOST_AUTO_TEST_SUITE_END()
