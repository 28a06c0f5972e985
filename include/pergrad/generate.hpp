// SPDX-License-Identifier: Apache-2.0
// pergrad/generate.hpp - text from a language model: ids, one after the other, each drawn given those in front of it
//
// Not part of the umbrella. The id behind position t is drawn with the probabilities softmax(logits_t / temperature).
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/evaluation/predict.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// How a text goes on.
struct generation {
  std::size_t steps = 0;   ///< ids to be drawn
  double temperature = 1;  ///< divides the logits; 0: always the likeliest id, of equal ones the first
  std::uint64_t seed = 1;  ///< the same seed, parameters and prompt give the same text; no secret
};

namespace detail {

/// Are all of them numbers, the largest one a finite one?
template <class Scalar>
[[nodiscard]] bool has_likeliest(std::span<const Scalar> logits) {
  return std::ranges::none_of(logits, [](Scalar logit) { return std::isnan(logit); }) &&
         std::isfinite(*std::ranges::max_element(logits));
}
/// An id, drawn by a number in [0, 1).
template <class Scalar>
[[nodiscard]] std::int32_t draw_id(std::span<const Scalar> logits, double temperature, double uniform) {
  const auto likeliest = std::ranges::max_element(logits);
  if (temperature == 0) return static_cast<std::int32_t>(likeliest - logits.begin());
  const auto weight = [&](Scalar logit) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(*likeliest)) / temperature);
  };
  double rest = 0;
  for (const Scalar logit : logits) rest += weight(logit);
  rest *= uniform;
  std::size_t drawn = 0;
  for (std::size_t id = 0; id < logits.size() && rest >= 0; ++id) {
    const double each = weight(logits[id]);
    if (each == 0) continue;  // not even if rounding leaves a rest behind all others
    drawn = id;
    rest -= each;
  }
  return static_cast<std::int32_t>(drawn);
}

/// Does the executor keep what was computed of a text while it grows?
template <class Executor, class Network>
inline constexpr bool keeps_text = false;
template <class Executor, class Network>
requires requires { Executor::template decodes<Network>; }
inline constexpr bool keeps_text<Executor, Network> = Executor::template decodes<Network>;

/// Logits of what follows a text, of which keys and values are kept. A text that outgrows the positions is read anew:
/// each of its ids has another position then.
template <class Executor, class Network>
class next_logits {
 public:
  next_logits(const Executor& executor, const Network& network) : decoder_{executor.pool(), network} {}
  [[nodiscard]] std::span<const typename Network::scalar> operator()(std::span<const std::int32_t> text) {
    constexpr std::size_t positions = Network::input_shape.e0;
    if (text.size() <= positions) return decoder_.append(text.subspan(decoder_.length()));
    decoder_.clear();
    return decoder_.append(text.last(positions));
  }

 private:
  typename Executor::template decoder<Network> decoder_;
};
/// The same by a pass over all positions for each id.
template <class Executor, class Network>
requires(!keeps_text<Executor, Network>) class next_logits<Executor, Network> {
 public:
  next_logits(const Executor& executor, const Network& network) : predict_{executor, network} {}
  [[nodiscard]] std::span<const typename Network::scalar> operator()(std::span<const std::int32_t> text) {
    constexpr std::size_t vocabulary = Network::input_shape.ids;
    const std::span<const std::int32_t> seen = text.last(std::min(text.size(), window_.size()));
    std::ranges::fill(window_, 0);  // behind the text: nobody looks there
    std::ranges::copy(seen, window_.begin());
    return predict_(public_records{window_}).subspan((seen.size() - 1) * vocabulary, vocabulary);
  }

 private:
  predictor<Network, Executor> predict_;
  std::vector<std::int32_t> window_ = std::vector<std::int32_t>(Network::input_shape.e0);
};

}  // namespace detail

/// The ids that follow a public prompt, `how.steps` of them. The network is a causal language model: from `token_ids(
/// positions, vocabulary)` to logits `{positions, vocabulary}`, where no position sees one behind it. A text that is
/// longer than the positions is seen from its last `positions` ids on. Whatever a private network says is covered by
/// its guarantee.
///
/// On the host keys and values of earlier positions are kept, with the same logits bit for bit, if all layers are
/// embeddings, `learned_positions`, layers that work position by position (linear layers, norms of features,
/// activations, dropout, added biases) or causal attention without `kv_bias`, rotary or not, and sums, products and
/// concatenations of their branches: `gpt2` and `llama`, tuned or not, are of these. Others take a pass over all
/// positions for each id, as does a text that outgrows the positions.
///
/// Allocates. Throws std::invalid_argument for an empty prompt, a negative temperature or one that is no number, more
/// than 2^31 - 1 steps; std::out_of_range for an id that is none; std::runtime_error that names the step if logits are
/// no numbers or no id has finite ones, as of weights that have diverged. A logit of minus infinity excludes its id.
template <executor Executor, class Network, class Inputs>
requires(!detail::is_explained<Network>)
    [[nodiscard]] std::vector<std::int32_t> generate(const Executor& executor, const Network& network,
                                                     const public_records<Inputs>& prompt, generation how) {
  constexpr std::size_t positions = Network::input_shape.e0;
  constexpr std::size_t vocabulary = Network::input_shape.ids;
  constexpr bool has_lengths = Network::input_shape.varying_axis() != 0;
  static_assert(!has_lengths,
                "pergrad: generate: samples of this network have lengths: name it without variable(...) around its "
                "input, and copy_parameters to that");
  static_assert(has_lengths || (vocabulary > 0 && Network::output_shape == shape{positions, vocabulary}),
                "pergrad: generate is for language models: from token_ids to logits {positions, vocabulary}");
  const std::span<const std::int32_t> given = prompt.view();
  if (given.empty()) detail::throw_invalid_argument({"pergrad: generate: the prompt is empty"});
  if (!(how.temperature >= 0) || !std::isfinite(how.temperature)) {
    detail::throw_invalid_argument({"pergrad: generate: the temperature is no finite number from 0 on"});
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] >= 0 && static_cast<std::size_t>(given[i]) < vocabulary) continue;
    detail::throw_out_of_range(
        {"pergrad: generate: position ", i, " of the prompt: id ", given[i], " of a vocabulary of ", vocabulary});
  }
  if (how.steps > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    detail::throw_invalid_argument({"pergrad: generate: ", how.steps, " steps are more than 2147483647"});
  }
  std::vector<std::int32_t> text{given.begin(), given.end()};
  detail::next_logits<Executor, Network> next{executor, network};
  for (std::size_t step = 0; step < how.steps; ++step) {
    const auto logits = next(text);
    if (!detail::has_likeliest(logits)) {
      detail::throw_runtime_error(
          {"pergrad: generate: step ", step, ": the logits are not finite: have the weights diverged?"});
    }
    text.push_back(detail::draw_id(logits, how.temperature, detail::public_uniform(how.seed, step)));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(given.size()), text.end()};
}
/// Of a prompt that nobody says is public, and of a network that is explained to be wrong.
template <executor Executor, class Network, class Prompt>
[[nodiscard]] std::vector<std::int32_t> generate(const Executor& /*executor*/, const Network& /*network*/,
                                                 const Prompt& /*prompt*/, generation /*how*/) {
  if constexpr (!detail::is_explained<Network>) static_cast<void>(error::records_may_be_private<Prompt>{});
  return {};
}
/// Without an executor: one error that says so.
template <class First, class... Rest>
requires(!executor<First>)
    [[nodiscard]] std::vector<std::int32_t> generate(const First& /*first*/, const Rest&... /*rest*/) {
  static_cast<void>(error::needs_an_executor<error::function::generate, First>{});
  return {};
}

}  // namespace pergrad::inline v0_1
