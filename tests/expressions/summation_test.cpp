// SPDX-License-Identifier: Apache-2.0
// tests/expressions/summation_test.cpp - clipped sums of neighbouring batches: how far apart they are, in the numbers
// that the release gate gets, and not in those of the formula.
//
// A pair is a batch and the same without one record, at the front, in the middle or at the end: all records behind it
// move to other places, tiles and accumulators.
#include <numeric>
#include <utility>

#include <pergrad/models.hpp>

#include "fixture.hpp"
#include "total_probe.hpp"

BOOST_AUTO_TEST_SUITE(expressions_summation)

namespace {

using namespace fixture;
using numbers = std::vector<double>;
/// More records than floating point adds up.
constexpr std::size_t many = std::size_t{1} << 20U;

/// A data set of as many records as wanted, all different, or all nearly like the first: then their gradients are
/// aligned, and every addition rounds in its own way.
template <class Network, class Loss>
struct records_of {
  using value = typename Network::input_value;
  using scalar = typename Network::scalar;
  using target = pg::target_of<Loss, scalar>;
  std::vector<value> inputs;
  std::vector<target> targets;

  records_of(std::size_t count, bool alike, std::uint32_t seed = 17) {
    std::mt19937 random{seed};
    std::uniform_real_distribution<double> uniform{-1, 1};
    constexpr std::size_t width = Network::input_shape.size();
    inputs.resize(count * width);
    targets.resize(count * Loss::target_count(Network::output_shape));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if constexpr (std::is_integral_v<value>) {
        inputs[i] = alike && i >= width
                        ? inputs[i - width]
                        : static_cast<value>(random() % std::min<std::size_t>(Network::input_shape.ids, 9));
      } else {
        inputs[i] = static_cast<value>(uniform(random));
        if (alike && i >= width) inputs[i] = inputs[i % width] + inputs[i] / 100;
      }
    }
    const std::size_t width_of_target = targets.size() / count;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (alike && i >= width_of_target) {
        targets[i] = targets[i - width_of_target];
      } else if constexpr (std::is_integral_v<target>) {
        targets[i] = static_cast<target>(random() % Network::output_shape.size());
      } else {
        targets[i] = static_cast<target>(uniform(random));
      }
    }
  }
  [[nodiscard]] pg::dataset<value, target> data() const {
    return {inputs, targets, Network::input_shape, Loss::target_count(Network::output_shape)};
  }
};

[[nodiscard]] std::vector<std::uint32_t> all_but(std::size_t count, std::size_t left_out) {
  std::vector<std::uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0U);
  if (left_out < count) ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(left_out));
  return ids;
}

/// Networks whose sums go every way: kept gradients, products over samples, deferred blocks, tables, late gradients.
template <class Scalar>
using embedding_network =
    pg::basic_network<Scalar, pg::token_ids(12, 3'000), pg::embedding<8>, pg::mean_over_positions, pg::linear<3>>;
template <class Scalar>
using bag_network = pg::basic_network<Scalar, pg::token_ids(12, 3'000), pg::embedding_bag<8>, pg::linear<3>>;
template <class Scalar>
using dense_network =
    pg::basic_network<Scalar, pg::shape{150}, pg::linear<600>, pg::tanh, pg::linear<500>, pg::tanh, pg::linear<3>>;
template <class Scalar>
using recurrent_network =
    pg::basic_network<Scalar, pg::shape{12, 40}, pg::lstm<48, pg::last_output>, pg::tanh, pg::linear<3>>;
/// Few positions of a wide convolution: norms by Gram matrices, no gradient is kept.
template <class Scalar>
using gram_network =
    pg::basic_network<Scalar, pg::shape{160, 3, 2}, pg::conv2d<200, 2>, pg::relu, pg::flatten, pg::linear<3>>;
template <class Scalar>
using tied_network = pg::basic_network<Scalar, pg::shape{20}, pg::tied<0, pg::linear<20>>, pg::tanh,
                                       pg::tied<0, pg::linear<20>>, pg::tanh, pg::linear<3>>;

template <class Network>
inline constexpr const auto& table_of = pg::on_host::program<Network>::table;
static_assert(table_of<dense_network<float>>.deferred_count > 0);
static_assert(table_of<embedding_network<float>>.sparse_count == 1 && table_of<bag_network<float>>.sparse_count == 1);
static_assert(table_of<gram_network<float>>.outer[0].method == pg::norm_method::gram &&
              table_of<gram_network<float>>.outer[0].positions() == 2);

/// One network, records, and a tape for chunks of them.
template <class Network, class Loss>
struct summing {
  using scalar = typename Network::scalar;
  pg::host exec;
  Network net;
  pg::tape<Network> tape;
  records_of<Network, Loss> records;
  pg::strategy strategy = pg::strategy::book_keeping;

  summing(std::size_t count, std::size_t chunk, bool alike, std::size_t thread_count = 2)
      : exec{pg::threads{thread_count}},
        net{exec, pg::kaiming_uniform{5}},
        tape{exec, pg::max_batch{chunk}},
        records{count, alike} {}

  /// The total of some records, added up chunk by chunk.
  void add(pg::bounded_total<Network>& total, std::span<const std::uint32_t> ids, double bound) {
    const auto data = records.data();
    total.clear();
    for (std::size_t first = 0; first < ids.size(); first += tape.capacity()) {
      const pg::batch<Network, Loss> chunk{data, ids.subspan(first, std::min(tape.capacity(), ids.size() - first))};
      const auto g = pg::per_sample_gradients(net, Loss{}, chunk, tape).with(strategy);
      pg::evaluate_into(exec, pg::accumulate(total, pg::sum(pg::clip(g, pg::l2_clip_norm{bound}))));
    }
  }
  /// What the gate adds noise to, in units of the bound: Q(S) of privacy/release.hpp.
  [[nodiscard]] numbers sum(std::span<const std::uint32_t> ids, double bound, std::size_t capacity) {
    pg::bounded_total<Network> total{exec, pg::record_capacity{capacity}};
    add(total, ids, bound);
    const auto grid = pg::release_grid::of(bound, Network::parameter_count);
    const auto parts = pg::detail::total_probe::sum_of(total);
    numbers values(Network::parameter_count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double steps = std::ldexp(1.0, grid.steps);
      if (parts.floating != nullptr) values[i] = std::nearbyint(static_cast<double>(parts.floating[i]) * steps);
      if (parts.integers != nullptr) values[i] += static_cast<double>(parts.integers[i]);
      values[i] = std::ldexp(values[i], grid.unit - grid.steps) / bound;
    }
    return values;
  }
};

[[nodiscard]] double distance(const numbers& a, const numbers& b) {
  long double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<long double>(a[i] - b[i]) * (a[i] - b[i]);
  return static_cast<double>(std::sqrt(sum));
}

/// The farthest pair of a network's sums, in units of the bound; it is within what noise is scaled by.
template <class Network, class Loss>
double check_pairs(std::size_t count, std::size_t chunk, std::size_t capacity, bool alike, double bound,
                   const std::string& what) {
  summing<Network, Loss> of{count, chunk, alike};
  const numbers whole = of.sum(all_but(count, count), bound, capacity);
  const auto grid = pg::release_grid::of(bound, Network::parameter_count);
  const double allowed = pg::sensitivity_in_steps(grid, pg::summation::of<typename Network::scalar>(capacity), 1) *
                         std::ldexp(1.0, grid.unit - grid.steps) / bound;
  BOOST_TEST(allowed <= 1.02, what);
  double farthest = 0;
  for (const std::size_t left_out : {std::size_t{0}, count / 2, count - 1}) {
    const double found = distance(whole, of.sum(all_but(count, left_out), bound, capacity));
    BOOST_TEST(found <= allowed, what << ": without record " << left_out << " the sum is " << found << " bounds away, "
                                      << allowed << " are counted");
    farthest = std::max(farthest, found);
  }
  return farthest;
}

/// All networks, by name.
template <class Scalar, class Function>
void for_each_network(Function&& f) {
  f.template operator()<cnn<Scalar>, pg::cross_entropy>("convolutions");
  f.template operator()<gram_network<Scalar>, pg::cross_entropy>("Gram");
  f.template operator()<dense_network<Scalar>, pg::mean_squared_error>("deferred");
  f.template operator()<recurrent_network<Scalar>, pg::mean_squared_error>("recurrent");
  f.template operator()<embedding_network<Scalar>, pg::cross_entropy>("table");
  f.template operator()<bag_network<Scalar>, pg::cross_entropy>("counted table");
  f.template operator()<tied_network<Scalar>, pg::mean_squared_error>("tied");
}

template <std::size_t Together>
struct together : pg::mean_over_positions {
  static constexpr std::size_t samples_together = Together;
};

}  // namespace

BOOST_AUTO_TEST_CASE(neighbouring_sums_of_aligned_records_are_as_near_as_is_counted) {
  for_each_network<float>([]<class Network, class Loss>(const char* name) {
    const double farthest = check_pairs<Network, Loss>(2'048, 512, 2'048, true, 0.01, name);
    BOOST_TEST(farthest > 0.99, name);  // records that are not clipped to the bound would find nothing
  });
}
BOOST_AUTO_TEST_CASE(neighbouring_sums_of_other_records_are_as_near_as_is_counted) {
  for_each_network<float>([]<class Network, class Loss>(const char* name) {
    check_pairs<Network, Loss>(600, 256, 2'048, false, 0.01, name);
    check_pairs<Network, Loss>(333, 333, 2'048, false, 100, name);
  });
  for_each_network<double>([]<class Network, class Loss>(const char* name) {
    check_pairs<Network, Loss>(300, 128, 2'048, false, 0.01, std::string{"double, "} + name);
  });
}
BOOST_AUTO_TEST_CASE(records_beyond_the_capacity_are_integers) {
  // The last 300 are; when one is taken away before them, the first of these is added in floating point instead.
  check_pairs<cnn<float>, pg::cross_entropy>(600, 100, 300, false, 0.01, "beyond");
  check_pairs<dense_network<float>, pg::mean_squared_error>(600, 100, 300, true, 0.01, "beyond, deferred");
}
BOOST_AUTO_TEST_CASE(chains_of_chunks_would_be_found_out) {
  // What sums once were: one chain of chunks, each a chain of records. The same search over aligned gradients finds a
  // pair that is farther apart: without the first record all chunks hold others, and every addition rounds anew.
  summing<mlp<float>, pg::mean_squared_error> of{1, 1, true};
  const numbers one = of.sum(all_but(1, 1), 0.01, 1);
  const auto chain = [&](std::size_t count, std::size_t left_out) {
    numbers values(one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      std::mt19937 random{static_cast<std::uint32_t>(i)};
      float total = 0;
      float chunk = 0;
      std::size_t in_chunk = 0;
      for (std::size_t b = 0; b < count; ++b) {
        const double share = 1 - 0x1p-34 * static_cast<double>(random());
        if (b == left_out) continue;
        chunk += static_cast<float>(share * one[i]);
        if (++in_chunk % 64 != 0) continue;
        total += chunk;
        chunk = 0;
      }
      values[i] = static_cast<double>(total + chunk);
    }
    return values;
  };
  BOOST_TEST(distance(chain(1U << 20U, 1U << 20U), chain(1U << 20U, 0)) > 1.02);
}

BOOST_AUTO_TEST_CASE(sums_of_integers_differ_by_one_rounded_contribution) {
  for_each_network<float>([]<class Network, class Loss>(const char* name) {
    const std::size_t count = 150;
    summing<Network, Loss> of{count, 64, false};
    const numbers whole = of.sum(all_but(count, count), 0.01, many);
    for (const std::size_t left_out : {std::size_t{0}, count / 2, count - 1}) {
      numbers rest = of.sum(all_but(count, left_out), 0.01, many);
      const std::vector<std::uint32_t> alone{static_cast<std::uint32_t>(left_out)};
      const numbers one = of.sum(alone, 0.01, many);
      for (std::size_t i = 0; i < rest.size(); ++i) rest[i] += one[i];
      check_same_bits(rest, whole, name);
    }
    // Neither chunks, nor threads, nor how gradients are arranged change a bit.
    for (const std::size_t chunk : {1U, 17U, 150U}) {
      summing<Network, Loss> other{count, chunk, false, chunk == 17 ? 5U : 1U};
      check_same_bits(other.sum(all_but(count, count), 0.01, many), whole,
                      name + std::string{" in chunks of "} + std::to_string(chunk));
    }
    summing<Network, Loss> ghost{count, 64, false};
    ghost.strategy = pg::strategy::ghost;
    const numbers by_ghost = ghost.sum(all_but(count, count), 0.01, many);
    BOOST_TEST(distance(by_ghost, whole) < 0.01 * static_cast<double>(count), name);
    // The sum in floating point is the same to rounding.
    const numbers floating = of.sum(all_but(count, count), 0.01, 2'048);
    BOOST_TEST(distance(floating, whole) < 0.001 * static_cast<double>(count), name);
    BOOST_TEST(distance(floating, whole) > 0, name);
  });
}
BOOST_AUTO_TEST_CASE(neighbouring_sums_of_integers) {
  for_each_network<float>([]<class Network, class Loss>(const char* name) {
    check_pairs<Network, Loss>(700, 256, many, true, 0.01, name);
  });
  for_each_network<double>([]<class Network, class Loss>(const char* name) {
    check_pairs<Network, Loss>(200, 100, many, false, 3.7, std::string{"double, "} + name);
  });
}

BOOST_AUTO_TEST_CASE(floating_point_serves_the_usual_batch_of_every_shipped_network) {
  const auto check = []<class Network>(std::type_identity<Network>, const char* name, std::size_t fewest = 64) {
    for (std::size_t chunk = fewest; chunk <= 2'048; chunk *= 2) {
      pg::detail::total_state state{pg::summation::of<float>(2'048)};
      bool in_floating_point = true;
      for (std::size_t first = 0; first < 2'048; first += chunk) {
        in_floating_point =
            in_floating_point && !state.next_as_integers(chunk, pg::on_host::way_of_additions<Network>(chunk));
      }
      BOOST_TEST(in_floating_point, name << " in chunks of " << chunk);
      BOOST_TEST(state.next_as_integers(chunk, pg::on_host::way_of_additions<Network>(chunk)));
    }
  };
  check(std::type_identity<pg::models::mnist_cnn>{}, "MNIST CNN");
  check(std::type_identity<pg::models::cifar_cnn>{}, "CIFAR CNN");
  check(std::type_identity<pg::models::imdb_embedding>{}, "IMDb embedding");
  check(std::type_identity<pg::models::imdb_lstm<>>{}, "IMDb LSTM");
  check(std::type_identity<pg::models::lee_kifer_mlp>{}, "perceptron", 128);
  check(std::type_identity<pg::models::lee_kifer_transformer<>>{}, "transformer");
  check(std::type_identity<pg::models::alexnet<>>{}, "AlexNet");
  check(std::type_identity<pg::models::resnet18<>>{}, "ResNet-18");
}

// A large network adds sample after sample to one sum: a long way, for fewer records.
BOOST_AUTO_TEST_CASE(floating_point_serves_fewer_records_of_a_large_network) {
  using network = pg::models::gpt2<16>;
  static_assert(pg::on_host::program<network>::table.shares_sums);
  for (const std::size_t chunk : {1U, 8U, 64U, 256U}) {
    pg::detail::total_state state{pg::summation::of<float>(2'048)};
    std::size_t records = 0;
    while (!state.next_as_integers(chunk, pg::on_host::way_of_additions<network>(chunk))) records += chunk;
    BOOST_TEST(records == 350 / chunk * chunk);
  }
}

BOOST_AUTO_TEST_CASE(a_total_takes_no_larger_tape_than_it_was_made_for) {
  mlp_problem p{100};
  pg::bounded_total<mlp<double>> total{p.exec, pg::record_capacity{99}};
  const auto g = p.gradients();
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, pg::accumulate(total, pg::sum(pg::clip(g, pg::l2_clip_norm{1})))),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(huge_bounds_are_no_infinite_sums) {
  // 2,048 aligned gradients of norm 1e38 would add up to infinity.
  summing<mlp<float>, pg::mean_squared_error> of{2'048, 2'048, true};
  for (float& value : of.records.targets) value = 1e37F;
  for (const std::size_t capacity : {std::size_t{2'048}, std::size_t{1} << 20U}) {
    pg::bounded_total<mlp<float>> total{of.exec, pg::record_capacity{capacity}};
    of.add(total, all_but(2'048, 2'048), 1e38);
    pg::seeded_generator generator{3};
    pg::unprotected::rehearsed_gradient<mlp<float>> update{of.exec};
    pg::evaluate_into(of.exec, update, total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, generator));
    float largest = 0;
    for (const float value : update.values()) {
      BOOST_TEST(std::isfinite(value));
      largest = std::max(largest, std::fabs(value));
    }
    BOOST_TEST(largest == std::numeric_limits<float>::max());
  }
}

// Beside a total of integers, whose accumulators hold fewer samples, a total in floating point has more chunks: it is
// full earlier.
BOOST_AUTO_TEST_CASE(chunks_beside_integers_are_counted) {
  using network = pg::network<pg::shape{700}, pg::linear<1500>, pg::tanh, pg::linear<3>>;
  using loss = pg::mean_squared_error;
  constexpr std::size_t chunk = 512;
  constexpr std::size_t count = 4 * chunk;
  const int steps = pg::release_grid::of(1, network::parameter_count).steps;
  BOOST_TEST_REQUIRE(pg::detail::most_rounded_shares(steps) < chunk);
  summing<network, loss> of{count, chunk, true};
  const auto data = of.records.data();
  const auto ids = all_but(count, count);
  const auto has_integers = [&](bool beside) {
    pg::bounded_total<network> one{of.exec, pg::record_capacity{count}}, other{of.exec, pg::record_capacity{0}};
    for (std::size_t first = 0; first < count; first += chunk) {
      const pg::batch<network, loss> samples{data, std::span{ids}.subspan(first, chunk)};
      const auto clipped =
          pg::sum(pg::clip(pg::per_sample_gradients(of.net, loss{}, samples, of.tape), pg::l2_clip_norm{0.01}));
      if (beside) {
        pg::unprotected::evaluate_into(of.exec, pg::accumulate(one, clipped), pg::accumulate(other, clipped));
      } else {
        pg::evaluate_into(of.exec, pg::accumulate(one, clipped));
      }
    }
    return pg::detail::total_probe::state(one).has_integers();
  };
  BOOST_TEST(!has_integers(false));
  BOOST_TEST(has_integers(true));
}

// A layer that wants more samples together than others has longer tiles, whose additions are counted as well.
BOOST_AUTO_TEST_CASE(tiles_of_a_layer_of_ones_own_are_counted) {
  const auto check = []<std::size_t Together>(std::integral_constant<std::size_t, Together>) {
    using network = pg::network<pg::shape{4, 8}, pg::linear<8>, together<Together>, pg::linear<3>>;
    constexpr std::ptrdiff_t capacity = 512;
    const auto claimed = static_cast<std::ptrdiff_t>(pg::on_host::way_of_additions<network>(capacity).inside);
    std::ptrdiff_t longest = 0;
    for (std::ptrdiff_t count = 1; count <= std::min(capacity, pg::on_host::chunk_samples<network>); ++count) {
      const auto tile = pg::on_host::tile_of_batch<network>(count);
      const auto tiles = (count + tile - 1) / tile;
      const auto accumulators = std::min(tiles, pg::on_host::bounded_accumulators_for<network>(tiles, tile, capacity));
      longest = std::max(longest, (tiles + accumulators - 1) / accumulators * std::min(tile, count) + accumulators);
    }
    BOOST_TEST(claimed >= longest, Together << " together: " << longest);
    BOOST_TEST(claimed <= std::max<std::ptrdiff_t>(48, longest));
    for (const std::ptrdiff_t most : {30, 505, 512, 1024, 2000}) {
      std::ptrdiff_t chunks = 0;  // as the engine cuts an evaluation
      for (std::ptrdiff_t count = 1; count <= most; ++count) {
        const auto tile = pg::on_host::tile_of_batch<network>(count);
        const auto chunk = std::max(tile, pg::on_host::chunk_samples<network> / tile * tile);
        chunks = std::max(chunks, (count + chunk - 1) / chunk);
      }
      const auto said = pg::on_host::way_of_additions<network>(static_cast<std::size_t>(most));
      BOOST_TEST(static_cast<std::ptrdiff_t>(said.onto) >= chunks, Together << " together, of " << most);
      BOOST_TEST(static_cast<std::ptrdiff_t>(said.onto) <= chunks + 1);
    }
  };
  check(std::integral_constant<std::size_t, 8>{});
  check(std::integral_constant<std::size_t, 20>{});
  check(std::integral_constant<std::size_t, 24>{});
  check(std::integral_constant<std::size_t, 48>{});
  check(std::integral_constant<std::size_t, 56>{});
  check(std::integral_constant<std::size_t, 127>{});
}

BOOST_AUTO_TEST_SUITE_END()
