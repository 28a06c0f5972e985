// SPDX-License-Identifier: Apache-2.0
// tests/cuda/tiled_test.cpp - layers on tiles, by a block of threads as by a thread of the host, under either plan

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/cuda/run/describe.hpp>
#include <pergrad/cuda/run/trainer.hpp>

#include "../../bench/cuda/launch_list.hpp"
#include "device_fixture.hpp"
#include "tiled_networks.hpp"

BOOST_AUTO_TEST_SUITE(cuda_tiled)

namespace {

using namespace device_fixture;
using namespace tiled_networks;

/// Of a launch of parts of a layer: who has written what.
struct writers {
  std::size_t blocks = 0;  ///< but of those that set to zero what is behind samples' lengths
  std::size_t writes = 0;
  std::size_t collisions = 0;  ///< values that two parts of a sample have written
};

/// An emulated device that watches the blocks which take parts of a layer, or tiles of attention.
class watching_device : public pg::on_device::emulated_device {
 public:
  writers found;

  template <pg::on_device::kernel Kernel>
  void launch(const Kernel& kernel, int blocks) {
    int of_sample = 1;
    if constexpr (requires { kernel.layer_parts; }) of_sample = kernel.layer_parts;
    if constexpr (requires { kernel.at.heads; }) of_sample = blocks / kernel.most_samples;
    if constexpr (requires { kernel.samples.workspace; }) {
      if (of_sample > 1) {
        owners_.clear();
        return emulated_device::launch(watched<Kernel>{kernel, this, of_sample}, blocks);
      }
    }
    emulated_device::launch(kernel, blocks);
  }

 private:
  template <class Kernel>
  struct watched : Kernel {
    watching_device* device = nullptr;
    int of_sample = 1;
    template <class Block>
    void operator()(const Block& block) const {
      const auto* const values = this->samples.values(block.index() / of_sample).workspace;
      const std::vector before(values, values + this->samples.workspace);
      Kernel::operator()(block);
      bool only_trims = false;
      if constexpr (requires { this->stages; }) only_trims = (this->stages & pg::on_device::stage::trim) != 0;
      device->found.blocks += only_trims ? 0U : 1U;
      for (std::size_t i = 0; i < before.size(); ++i) {
        if (std::memcmp(&before[i], values + i, sizeof before[i]) == 0) continue;
        ++device->found.writes;
        const auto [owner, is_first] = device->owners_.try_emplace(values + i, block.index());
        device->found.collisions += is_first || owner->second == block.index() ? 0U : 1U;
      }
    }
  };
  std::map<const void*, int> owners_;
};

/// Watches a clipped sum of samples, by a network whose layers have so many parts.
template <class Network>
void expect_parts_apart(std::size_t samples, std::size_t blocks) {
  both<Network, pg::cross_entropy> it{samples};
  const pg::basic_device_executor<watching_device> executor;
  pg::tape<Network> tape{executor, pg::max_batch{samples}};
  const auto gradients = pg::per_sample_gradients(it.net, pg::cross_entropy{}, it.batch, tape);
  const auto sum = pg::unprotected::evaluate(executor, pg::sum(pg::clip(gradients, pg::l2_clip_norm{0.3})));
  const auto wanted = pg::unprotected::evaluate(it.host, pg::sum(pg::clip(it.on_host(), pg::l2_clip_norm{0.3})));
  check_close(sum, wanted, tolerance<typename Network::scalar>, "clipped sum");
  const writers& found = executor.device().found;
  BOOST_TEST(found.blocks == blocks);
  BOOST_TEST(found.writes > 50 * blocks);
  BOOST_TEST(found.collisions == 0U);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_layer_is_the_hosts) {
  compare<words<double>, pg::cross_entropy>("words");
  compare_layers<bags<double>, pg::cross_entropy>("bags");
  compare_layers<lstms<double>, pg::cross_entropy>("lstms");
  compare_layers<grus<double>, pg::cross_entropy>("grus");
  compare_layers<rnns<double>, pg::cross_entropy>("rnns");
  compare_layers<wide_recurrent<double>, pg::cross_entropy>("wide recurrent layers");
  compare_layers<states<double>, pg::cross_entropy>("states");
  compare_layers<attention<double>, pg::cross_entropy>("attention");
  compare_layers<llama_block<double>, pg::cross_entropy>("llama block");
  compare_layers<transformer<double>, pg::cross_entropy>("transformer");
  compare_layers<image_norms<double>, pg::cross_entropy>("image norms");
  compare_layers<row_norms<double>, pg::cross_entropy>("row norms");
}
BOOST_AUTO_TEST_CASE(between_products_of_the_whole_batch_too) {
  // Projections of inputs, of queries, keys and values, and of contexts are such products.
  using pg::on_device::facts_of;
  BOOST_TEST(facts_of<tiled_networks::lstms<double>>.projections.size() == 0U);
  BOOST_TEST((facts_of<tiled_networks::lstms<double, 4>>.projections.size()) == 4U);
  BOOST_TEST((facts_of<tiled_networks::grus<double, 4>>.projections.size()) == 6U);
  BOOST_TEST((facts_of<tiled_networks::attention<double, 4>>.projections.size()) == 7U);
  BOOST_TEST((facts_of<tiled_networks::transformer<double, 4>>.projections.size()) == 3U);
  compare_layers<lstms<double, 4>, pg::cross_entropy>("lstms, layered");
  compare_layers<wide_recurrent<double, 4>, pg::cross_entropy>("wide recurrent layers, layered");
  compare<attention<double, 4>, pg::cross_entropy>("attention, layered");
  compare_layers<llama_block<double, 4>, pg::cross_entropy>("llama block, layered");
  compare_layers<long_attention<double, 4>, pg::cross_entropy>("attention, many results a thread");
  compare_layers<tiles_of_attention<double, 4>, pg::cross_entropy>("attention, several tiles");
#ifdef PERGRAD_ALL_NETWORKS  // a minute each, as products are emulated tile by tile
  compare<words<double, 4>, pg::cross_entropy>("words, layered");
  compare<grus<double, 4>, pg::cross_entropy>("grus, layered");
  compare<states<double, 4>, pg::cross_entropy>("states, layered");
  compare<transformer<double, 4>, pg::cross_entropy>("transformer, layered");
  compare<image_norms<double, 4>, pg::cross_entropy>("image norms, layered");
#endif
}
BOOST_AUTO_TEST_CASE(a_description_says_what_does_attention) {
  const auto rows = pg::describe_rows<tiles_of_attention<float, 4>>(pg::emulated{});
  std::size_t alone = 0;
  std::size_t between_products = 0;
  for (const pg::device_description& row : rows) {
    alone += row.forward == "attention kernels" && row.backward == row.forward ? 1U : 0U;
    between_products += row.forward == "products and attention kernels" && row.backward == row.forward ? 1U : 0U;
  }
  BOOST_TEST(alone == 2U);
  BOOST_TEST(between_products == 2U);
  for (const pg::device_description& row : pg::describe_rows<llama_block<float, 4>>(pg::emulated{})) {
    BOOST_TEST(row.forward.find("attention") == row.forward.npos);  // rotary positions
  }
}
// What a recurrent layer reads at every position lies in shared memory meanwhile, where there is room for it.
BOOST_AUTO_TEST_CASE(matrices_of_positions_are_held_in_shared_memory) {
  const auto most_shared = []<class Network>(std::type_identity<Network>) {
    std::size_t most = 0;
    for (const auto& each : launch_list::plain_sum<Network, pg::cross_entropy>(3))
      most = std::max(most, each.shared_bytes);
    return most;
  };
  // Rows of 20 numbers stay 20, of 18 become 20, of 64 would meet in few banks and become 68.
  const auto row_of = [](int columns) {
    pg::on_device::op_row row;
    row.held_columns = columns;
    return row.held_step();
  };
  BOOST_TEST((row_of(20) == 20 && row_of(18) == 20 && row_of(64) == 68 && row_of(100) == 100 && row_of(3) == 4));
  using fits = pg::network<pg::shape{6, 4}, pg::lstm<100, pg::last_output>, pg::linear<3>>;
  using fits_not = pg::network<pg::shape{6, 4}, pg::lstm<104, pg::last_output>, pg::linear<3>>;
  BOOST_TEST(most_shared(std::type_identity<fits>{}) >= 400U * 100 * sizeof(float));
  BOOST_TEST(most_shared(std::type_identity<fits_not>{}) < 48U << 10);
}
// Blocks that run at the same time on a device run one after the other here. So what is looked at is where they write:
// neither their results nor what each of them needs meanwhile may have a place in common. Forward and backward: of the
// first network two heads, twice, and two of cross attention (one layer there has one head); of the second two heads of
// keys, each with two of queries, in places of their own; of the third four times eight positions or fewer that are
// normalised, and once more to add up what two layers leave of their input's gradient.
BOOST_AUTO_TEST_CASE(parts_of_layers_are_blocks_of_their_own) {
  // Attention by kernels of its own, a block a head and tile: of the first network two heads of one layer, forward, and
  // backward twice; the fourth has layers of two heads and three tiles, and of one head, twice each. The gradients of
  // 70 x 10 queries of projections are moved by one block a sample.
  expect_parts_apart<attention<double, 4>>(3, 2 * 3 * (2 + 2) + 3 * 3 * 2);
  expect_parts_apart<llama_block<double, 4>>(3, 2 * 3 * 2);
  expect_parts_apart<long_attention<double, 4>>(3, 3 * 3 * 4);
  expect_parts_apart<tiles_of_attention<double, 4>>(3, 3 * 3 * (2 + 1 + 1 + 2) * 3);
}
// A layer with two inputs may say its parts, and what each needs, of one shape or of both.
BOOST_AUTO_TEST_CASE(parts_and_what_they_need_are_said_of_one_shape_or_of_both) {
  struct of_one {
    static constexpr std::size_t part_count(pg::shape in) { return in.e0; }
  };
  struct of_both {
    static constexpr std::size_t part_count(pg::shape in, pg::shape in2) { return in.e0 + in2.e0; }
  };
  struct needs_of_one : of_both {
    static constexpr std::size_t part_scratch_count(pg::shape in) { return in.e1; }
  };
  struct needs_of_both : of_one {
    static constexpr std::size_t part_scratch_count(pg::shape in, pg::shape in2) { return in.e1 + in2.e1; }
  };
  const auto check = []<class Layer>(std::type_identity<Layer>, std::size_t count, std::size_t scratch) {
    const auto found = pg::detail::parts_of<Layer>({3, 4}, {3, 5});
    BOOST_TEST(found.count == count);
    BOOST_TEST(found.scratch == scratch);
  };
  check(std::type_identity<of_one>{}, 3, 0);
  check(std::type_identity<of_both>{}, 6, 0);
  check(std::type_identity<needs_of_one>{}, 6, 4);
  check(std::type_identity<needs_of_both>{}, 3, 9);
}
// Of layers without attention: six of three parts each; of rows three of two parts and three of three, the last of
// which adds to an input's gradient; two of two parts, the first with nothing to train in front of it.
BOOST_AUTO_TEST_CASE(parts_of_elementwise_layers_are_blocks_of_their_own) {
  expect_parts_apart<large_images<double, 4>>(3, 2 * 3 * 6 * 3);
  expect_parts_apart<large_rows<double, 4>>(3, 3 * (2 * (3 * 2 + 3 * 3) + 3));
  expect_parts_apart<moved_images<double, 4>>(3, 3 * (2 + 2 + 2));
  const auto gradients = []<class Network>(std::type_identity<Network>) {
    both<Network, pg::cross_entropy> it{4};
    check_close(it.evaluate(pg::materialise(it.on_device())),
                pg::unprotected::evaluate(it.host, pg::materialise(it.on_host())), tolerance<double>, "rows");
  };
  gradients(std::type_identity<large_images<double, 4>>{});
  gradients(std::type_identity<large_rows<double, 4>>{});
}
// A tape for more samples than go by parts gives the same bits, rounded to TF32 or not.
BOOST_AUTO_TEST_CASE(no_bit_depends_on_parts) {
  const auto check = []<class Network>(std::type_identity<Network>, bool tf32) {
    both<Network, pg::cross_entropy> it{3, emulation_order::forward, 3, pg::device_options{.tf32 = tf32}};
    pg::tape<Network> large{it.device, pg::max_batch{300}};
    const auto rows = it.evaluate(pg::materialise(it.on_device()));
    const auto whole = pg::per_sample_gradients(it.net, pg::cross_entropy{}, it.batch, large);
    check_same(it.evaluate(pg::materialise(whole)), rows, "rows");
    check_same(it.evaluate(pg::l2_norms(whole)), it.evaluate(pg::l2_norms(it.on_device())), "norms");
    return rows;
  };
  const std::type_identity<long_attention<float, 4>> many;
  const auto exact = check(many, false);
  BOOST_TEST((check(many, true) != exact));  // something was rounded
  check(std::type_identity<llama_block<float, 4>>{}, true);
  check(std::type_identity<attention<float, 4>>{}, true);
}
BOOST_AUTO_TEST_CASE(bits_are_functions_of_key_step_record_layer_and_element) {
  namespace dev = pg::on_device;
  const pg::seeded_generator generator{5};
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{7} << 32U) + 1}) {
    const auto stream = generator.stream<pg::detail::randomness::layers>(step);
    dev::held_stream held;
    held.stream = dev::stream_upload::words(stream);
    for (const std::uint32_t record : {0U, 9U, 0xffff'fffeU}) {
      for (const std::uint32_t layer : {0U, 2U, 300U}) {
        std::vector<std::uint32_t> wanted(48);
        pg::layer_randomness{stream}.bits(record, layer, 160, wanted);
        const dev::random_stream own = dev::layer_bits{&held.stream, step, record}.of_layer(layer);
        for (std::uint32_t block = 0; block < 3; ++block) {
          std::uint32_t words[16];
          dev::make_random_block(own, 10 + block, words);
          BOOST_TEST(std::equal(words, words + 16, wanted.begin() + 16 * block));
        }
      }
    }
  }
}
BOOST_AUTO_TEST_CASE(changes_of_records_are_the_hosts_in_parts_too) {
  both<moved_images<double, 4>, pg::cross_entropy> it{7};
  pg::seeded_generator of_one{5};
  pg::seeded_generator of_the_other{5};
  const auto rows = it.evaluate(pg::materialise(pg::with_randomness(it.on_device(), of_one)));
  check_close(rows,
              pg::unprotected::evaluate(it.host, pg::materialise(pg::with_randomness(it.on_host(), of_the_other))),
              tolerance<double>, "rows");
  BOOST_TEST((it.evaluate(pg::materialise(it.on_device())) != rows));  // something was moved
}
BOOST_AUTO_TEST_CASE(random_bits_are_the_hosts) {
  both<dropped<double>, pg::cross_entropy> it{7};
  pg::seeded_generator of_one{5};
  pg::seeded_generator of_the_other{5};
  const auto of_host = pg::with_randomness(it.on_host(), of_one);
  const auto of_device = pg::with_randomness(it.on_device(), of_the_other);
  const auto rows = pg::unprotected::evaluate(it.host, pg::materialise(of_host));
  check_close(it.evaluate(pg::materialise(of_device)), rows, tolerance<double>, "rows");
  const pg::l2_clip_norm bound{0.3};
  check_close(it.evaluate(pg::sum(pg::clip(of_device, bound))),
              pg::unprotected::evaluate(it.host, pg::sum(pg::clip(of_host, bound))), tolerance<double>, "sum");
  // Of a batch that lists records, the numbers in the data set count.
  const std::vector<std::uint32_t> listed{4, 1, 6};
  const pg::dataset<double, std::int32_t> set{it.inputs, it.targets, dropped<double>::input_shape, 1, it.lengths};
  const pg::batch<dropped<double>, pg::cross_entropy> chosen{set, listed};
  pg::seeded_generator again{5};
  const auto of_chosen =
      pg::with_randomness(pg::per_sample_gradients(it.net, pg::cross_entropy{}, chosen, it.device_tape), again);
  const auto few = it.evaluate(pg::materialise(of_chosen));
  constexpr std::size_t width = dropped<double>::parameter_count;
  for (std::size_t k = 0; k < listed.size(); ++k) {
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(listed[k] * width);
    check_close(std::vector<double>(few.begin() + static_cast<std::ptrdiff_t>(k * width),
                                    few.begin() + static_cast<std::ptrdiff_t>((k + 1) * width)),
                std::vector<double>(first, first + static_cast<std::ptrdiff_t>(width)), tolerance<double>, "listed");
  }
  // The comparison would see it: without the bits there is another gradient.
  const auto still = it.evaluate(pg::materialise(it.on_device()));
  double most = 0;
  for (std::size_t i = 0; i < still.size(); ++i) most = std::max(most, std::abs(still[i] - rows[i]));
  BOOST_TEST(most > 1e-3);
}

BOOST_AUTO_TEST_SUITE_END()
