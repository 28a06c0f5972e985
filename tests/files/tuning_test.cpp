// SPDX-License-Identifier: Apache-2.0
// tests/files/tuning_test.cpp - parts of a transformer that are trained: what they are called, and that their gradients
// are those of the same parameters when everything is trained
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(files_tuning)

namespace {

namespace pg = pergrad;
namespace models = pergrad::models;

template <class Tuning>
using gpt2 = typename models::gpt2<5, 2, 4, 2, 7, Tuning>::template rebind<double>;
constexpr models::llama_size few{
    .positions = 5, .blocks = 2, .features = 8, .heads = 4, .key_value_heads = 2, .feed_forward = 6, .vocabulary = 7};
template <class Tuning>
using llama = typename models::llama<few, Tuning>::template rebind<double>;
constexpr models::bert_size little{
    .positions = 5, .blocks = 2, .features = 4, .heads = 2, .feed_forward = 5, .vocabulary = 7, .classes = 3};
template <class Tuning>
using bert = typename models::bert_classifier<little, Tuning>::template rebind<double>;
constexpr models::vit_size tiny{
    .image = 4, .patch = 2, .channels = 2, .blocks = 2, .features = 4, .heads = 2, .feed_forward = 5, .classes = 3};
template <class Tuning>
using vit = typename models::vit<tiny, Tuning>::template rebind<double>;

const pg::host& executor() {
  static const pg::host exec{pg::threads{1}};
  return exec;
}

/// Per-sample gradients of two samples, a row of trained parameters each, by name.
using named_rows = std::map<std::string, std::vector<double>>;
template <class Network, class Loss>
named_rows gradients_of(const Network& net, Loss loss) {
  const std::vector<std::int32_t> ids{1, 4, 0, 6, 2, 3, 3, 5, 1, 0};
  std::vector<typename Network::input_value> inputs(2 * Network::input_shape.size());  // of an image more than ids
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<typename Network::input_value>(ids[(i + i / ids.size()) % ids.size()]);
  }
  std::vector<std::int32_t> targets{2, 0, 1, 5, 6, 0, 4, 4, 2, 1};
  targets.resize(2 * Loss::target_count(Network::output_shape));
  for (std::int32_t& target : targets) target %= static_cast<std::int32_t>(Network::output_shape.size());
  typename Network::tape tape{executor(), pg::max_batch{2}};
  std::vector<std::uint32_t> lengths{3, 5};
  if (Network::input_shape.varying_axis() == 0) lengths.clear();
  const pg::batch<Network, Loss> batch{inputs, targets, lengths};
  const auto g = pg::per_sample_gradients(net, loss, batch, tape);
  const std::vector<double> rows = pg::unprotected::evaluate(executor(), pg::materialise(g));
  named_rows result;
  for (const auto& tensor : pg::detail::parameter_tensors<Network>()) {
    const std::size_t first = tensor.begin / sizeof(double), count = tensor.size / sizeof(double);
    if (first >= Network::parameter_count) continue;  // frozen
    std::vector<double>& values = result[tensor.name];
    for (std::size_t b = 0; b < 2; ++b) {
      const auto* row = rows.data() + b * Network::parameter_count + first;
      values.insert(values.end(), row, row + count);
    }
  }
  return result;
}

/// `Part` trains some of what `Whole` does. `extra`: how many of its tensors `Whole` has not.
template <class Whole, class Part, class Loss>
named_rows is_part_of(Loss loss, std::size_t extra) {
  Whole whole{executor(), pg::normal{.seed = 7, .standard_deviation = 0.5}};
  Part part{executor(), pg::layer_default{1}};
  const auto kept = pg::copy_parameters(whole, part, pg::matching::common);
  BOOST_TEST(kept.size() == extra);
  const named_rows all = gradients_of(whole, loss), some = gradients_of(part, loss);
  double largest_of_all = 0;  // a key's bias moves nothing
  for (const auto& [name, rows] : some) {
    const auto found = all.find(name);
    if (found == all.end()) continue;
    BOOST_TEST_REQUIRE(rows.size() == found->second.size(), name);
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      worst = std::max(worst, std::fabs(rows[i] - found->second[i]));
      largest = std::max(largest, std::fabs(rows[i]));
    }
    BOOST_TEST(worst < 1e-12, name);
    largest_of_all = std::max(largest_of_all, largest);
  }
  BOOST_TEST((extra > 0 || largest_of_all > 1e-2));
  return some;
}
std::size_t ending_in(const named_rows& rows, std::string_view end) {
  return static_cast<std::size_t>(
      std::ranges::count_if(rows, [&](const auto& row) { return row.first.ends_with(end); }));
}

}  // namespace

BOOST_AUTO_TEST_CASE(adapters_by_name) {
  const auto in_gpt2 = is_part_of<gpt2<models::everything>, gpt2<models::lora_on<2, "c_attn", "mlp.c_proj">>>(
      pg::token_cross_entropy<>{}, 8);
  BOOST_TEST(in_gpt2.size() == 8U);
  BOOST_TEST(in_gpt2.contains("2.0.1.in_proj_lora_A.weight"));
  BOOST_TEST(in_gpt2.contains("3.1.3.lora_B.weight"));
  const auto in_llama = is_part_of<llama<models::everything>, llama<models::lora_on<2, "q_proj", "v_proj">>>(
      pg::token_cross_entropy<>{}, 8);
  BOOST_TEST(in_llama.size() == 8U);
  BOOST_TEST(in_llama.contains("1.self_attn.q_proj.lora_A.weight"));
  BOOST_TEST(in_llama.contains("2.self_attn.v_proj.lora_B.weight"));
  // The head of a classifier is trained, too.
  const auto in_bert = is_part_of<bert<models::everything>, bert<models::lora_on<2, "dense">>>(pg::cross_entropy{}, 12);
  BOOST_TEST(in_bert.size() == 12U + 4U);
  BOOST_TEST(ending_in(in_bert, "lora_A.weight") == 6U);
  const auto in_vit = is_part_of<vit<models::everything>, vit<models::lora_on<2, "query", "intermediate.dense">>>(
      pg::cross_entropy{}, 8);
  BOOST_TEST(in_vit.size() == 8U + 2U);
  // The unembedding is a projection of its own.
  const auto head =
      is_part_of<llama<models::everything>, llama<models::lora_on<3, "lm_head">>>(pg::token_cross_entropy<>{}, 2);
  BOOST_TEST(head.size() == 2U);
}

BOOST_AUTO_TEST_CASE(biases_only) {
  const auto in_gpt2 = is_part_of<gpt2<models::everything>, gpt2<models::biases_only>>(pg::token_cross_entropy<>{}, 0);
  BOOST_TEST(in_gpt2.size() == 2U * 6U + 1U);
  BOOST_TEST(ending_in(in_gpt2, "bias") == in_gpt2.size());
  const auto in_bert = is_part_of<bert<models::everything>, bert<models::biases_only>>(pg::cross_entropy{}, 0);
  BOOST_TEST(in_bert.size() == 1U + 2U * 8U + 4U);
  BOOST_TEST(in_bert.contains("3.bias"));  // of the norm of embeddings
  const auto in_vit = is_part_of<vit<models::everything>, vit<models::biases_only>>(pg::cross_entropy{}, 0);
  BOOST_TEST(in_vit.size() == 2U * 8U + 1U + 2U);
}

BOOST_AUTO_TEST_CASE(last_blocks) {
  const auto in_gpt2 =
      is_part_of<gpt2<models::everything>, gpt2<models::last_blocks<1>>>(pg::token_cross_entropy<>{}, 0);
  BOOST_TEST(in_gpt2.size() == 12U + 2U);
  BOOST_TEST(in_gpt2.contains("3.0.1.in_proj_weight"));
  const auto in_llama =
      is_part_of<llama<models::everything>, llama<models::last_blocks<1>>>(pg::token_cross_entropy<>{}, 0);
  BOOST_TEST(in_llama.size() == 9U + 2U);
  BOOST_TEST(in_llama.contains("4.weight"));
  const auto in_vit = is_part_of<vit<models::everything>, vit<models::last_blocks<1>>>(pg::cross_entropy{}, 0);
  BOOST_TEST(in_vit.size() == 16U + 2U + 2U);
  using all = gpt2<models::last_blocks<2>>;  // as many as there are
  static_assert(all::parameter_count + 7 * 4 + 5 * 4 == gpt2<models::everything>::parameter_count);
}

BOOST_AUTO_TEST_SUITE_END()
