// SPDX-License-Identifier: Apache-2.0
// examples/sequences.cpp - networks on sequences: ids and lengths, a table of rows, an LSTM, attention, dropout; then
// shared, frozen and adapted blocks, and clipping by groups
//
// The data is made up and tiny. What the documentation says of these layers is checked on it: padding contributes
// exactly nothing, a sample has a gradient only in the rows that it uses, dropout is the same however often it is
// asked, frozen parameters have no gradient. The program fails if any of that is not so.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <pergrad.hpp>

namespace pg = pergrad;

// [snippet: reader]
// Up to 6 ids below 20 a record, every record with a length of its own.
using reader = pg::network<pg::variable(pg::token_ids(6, 20)),                           //
                           pg::parameter_group<1, pg::embedding<8>>, pg::dropout<0.25>,  // {6, 8}
                           pg::residual<pg::multihead_attention<2>>,                     // {6, 8}
                           pg::lstm<5, pg::last_output>, pg::linear<3>>;                 // {5}, {3}
static_assert(reader::parameter_count == 20 * 8 + 4 * 8 * (8 + 1) + 4 * 5 * (8 + 5 + 2) + 3 * (5 + 1));
// [snippet end]

// [snippet: adapted]
// One linear layer used twice, a table that is not trained, and a frozen linear layer with an adapter of rank 2.
using adapted = pg::network<pg::variable(pg::token_ids(6, 20)), pg::frozen<pg::embedding<8>>,     //
                            pg::tied<0, pg::linear<8>>, pg::tanh, pg::tied<0, pg::linear<8>>,     // one W, one b
                            pg::mean_over_positions, pg::lora<2, pg::linear<5>>, pg::linear<3>>;  // {8}, {5}, {3}
static_assert(adapted::parameter_count == 8 * (8 + 1) + 2 * (8 + 5) + 3 * (5 + 1));
static_assert(adapted::frozen_parameter_count == 20 * 8 + 5 * (8 + 1));
// [snippet end]

// [snippet: adapted_attention]
// multihead_attention<2> on 8 features, not trained, with adapters of rank 4 on its two projections: W and b of both
// are in_proj_weight, in_proj_bias, out_proj.weight and out_proj.bias.
using adapted_attention = pg::sequential<pg::lora<4, pg::linear<3 * 8>>, pg::scaled_dot_product_attention<2>,  //
                                         pg::lora<4, pg::linear<8>>>;
using fine_tuned = pg::network<pg::shape{6, 8}, adapted_attention, pg::mean_over_positions, pg::linear<3>>;
static_assert(fine_tuned::parameter_count == 4 * (8 + 24) + 4 * (8 + 8) + 3 * (8 + 1));
// [snippet end]

bool all_fine = true;
void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "yes" : "NO", what);
  all_fine = all_fine && holds;
}

int main() {
  // [snippet: data]
  std::vector<std::int32_t> ids{4,  9,  4,  0, 0, 0,   //
                                1,  2,  3,  5, 8, 13,  //
                                19, 19, 19, 7, 0, 0,   //
                                6,  0,  0,  0, 0, 0};
  const std::vector<std::uint32_t> lengths{3, 6, 4, 1};  // what lies behind contributes nothing
  const std::vector<std::int32_t> classes{0, 1, 2, 0};
  const pg::dataset<std::int32_t, std::int32_t> records{ids, classes, reader::input_shape, 1, lengths};
  // [snippet end]

  const pg::host exec;
  reader net{exec, pg::layer_default{1}};
  reader::tape tape{exec, pg::max_batch{4}};
  const std::vector<std::uint32_t> everybody{0, 1, 2, 3};
  const pg::batch<reader, pg::cross_entropy> batch{records, everybody};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
  using pg::unprotected::evaluate;
  const std::vector<float> rows = evaluate(exec, pg::materialise(g));

  // The first record is 4, 9, 4: of the table's 20 rows, those of 4 and 9 have a gradient.
  std::size_t used = 0;
  for (std::size_t id = 0; id < 20; ++id) {
    float sum = 0;
    for (std::size_t i = 0; i < 8; ++i) sum += std::fabs(rows[id * 8 + i]);
    used += sum > 0 ? 1U : 0U;
  }
  expect(used == 2, "a record has a gradient in the rows that it uses");

  ids[3] = 17;  // behind the end of the first record
  expect(evaluate(exec, pg::materialise(g)) == rows, "padding contributes nothing");

  // [snippet: randomness]
  pg::seeded_generator generator{1};  // pg::os_keyed_generator where the result is released
  const auto in_training = pg::with_randomness(g, generator);
  // [snippet end]
  const std::vector<float> dropped = evaluate(exec, pg::materialise(in_training));
  expect(dropped != rows, "dropout is random where it is asked to be");
  expect(dropped == evaluate(exec, pg::materialise(in_training)), "and a function of the run's key and step");

  // [snippet: groups]
  const std::array bounds{pg::l2_clip_norm{0.4}, pg::l2_clip_norm{0.3}};  // of group 0, all the rest; of group 1
  const auto clipped = pg::sum(pg::clip_per_group(in_training, bounds));  // sensitivity sqrt(0.4² + 0.3²)
  // [snippet end]
  pg::unprotected::rehearsed_gradient<reader> update{exec};
  pg::evaluate_into(exec, update, clipped + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.0}, generator));
  std::size_t noised = 0;
  for (const float value : update.values().first<20 * 8>()) noised += value != 0 ? 1U : 0U;
  expect(std::fabs(clipped.sensitivity() - 0.5) < 1e-12, "groups add up to one sensitivity");
  expect(noised == 20 * 8, "noise is on every row of the table, used or not");

  // [snippet: shared]
  adapted tuned{exec, pg::layer_default{2}};
  const bool shared = tuned.layer_parameters(1).data() == tuned.layer_parameters(3).data();  // the two uses
  const std::span<float> table = tuned.frozen_parameters().first(20 * 8);                    // to be filled from a file
  // [snippet end]
  const float before = table[0];
  adapted::tape tape_of_tuned{exec, pg::max_batch{4}};
  const pg::batch<adapted, pg::cross_entropy> same_records{records, everybody};
  const auto g_of_tuned = pg::per_sample_gradients(tuned, pg::cross_entropy{}, same_records, tape_of_tuned);
  pg::unprotected::rehearsed_gradient<adapted> small{exec};
  pg::sgd<adapted> optimizer{pg::learning_rate{0.1}};
  pg::evaluate_into(exec, small,
                    pg::sum(pg::clip(g_of_tuned, pg::l2_clip_norm{1.0})) +
                        pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.0}, generator));
  optimizer.step(exec, tuned, small, pg::expected_batch_size{4});
  expect(shared && table[0] == before, "tied uses share parameters, frozen ones stay");
  return all_fine ? 0 : 1;
}
