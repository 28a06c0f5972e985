// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/subject.hpp - a network as an examination sees it: numbers in, numbers out, no types of layers
//
// The laws are a lot of code, the same for all networks. Behind this interface they are compiled once for each scalar
// type, not once for each network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/optim/held.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/testing/laws_report.hpp>
#include <pergrad/testing/observer.hpp>
#include <pergrad/testing/samples.hpp>

namespace pergrad::inline v0_1::testing::testing_detail {

/// A block of the trained parameters, row by row: a row of an outer-product sum is the gradient by one output of its
/// layer, a row of a row sum that by one id. Elementwise sums are one row.
struct gradient_block {
  std::size_t first = 0;
  std::size_t rows = 1;
  std::size_t columns = 0;
  std::size_t layer = 0;  ///< its place in the network, flat

  [[nodiscard]] std::size_t size() const { return rows * columns; }
};

/// In the order of the parameters.
template <class Network>
[[nodiscard]] std::vector<gradient_block> gradient_blocks() {
  using structure = typename Network::structure;
  std::vector<gradient_block> list;
  detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
    if constexpr (detail::may_have_parameters<Layer>) {
      if (structure::owners[i] != i || structure::trained_counts[i] == 0) return;
      std::size_t first = structure::parameter_offsets[i];
      const auto add = [&](std::size_t rows, std::size_t columns) {
        if (rows * columns != 0) list.push_back({first, rows, columns, i});
        first += rows * columns;
      };
      const shape in = structure::shapes[structure::inputs[i]];
      if constexpr (detail::has_affine<Layer>) {
        const affine_map map = Layer::affine(in);
        add(map.out_channels, map.view_width());
        add(1, map.bias_count());
      } else {
        for (const factor& each : detail::factors_of<Layer>(in, structure::shapes[structure::inputs2[i]])) {
          const bool has_rows = each.outer || each.sparse;
          add(has_rows ? each.rows : 1, has_rows ? each.columns : each.rows);
        }
      }
    }
  });
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return list;
}

/// Whose each trained parameter is, in their order.
template <class Network>
[[nodiscard]] std::vector<parameter_owner> parameter_owners(const std::vector<gradient_block>& blocks) {
  std::vector<std::string> names(Network::structure::size);
  detail::for_each_layer<typename Network::structure>(
      [&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
        names[i] = "layer " + std::to_string(i) + " (" + detail::name_of_layer<Layer>() + ")";
      });
  std::vector<parameter_owner> owners;
  owners.reserve(blocks.size());
  for (const gradient_block& block : blocks) owners.push_back({block.first, names[block.layer]});
  return owners;
}

/// What is fixed about a network and its executors.
struct subject_facts {
  std::size_t width = 0;       ///< trained parameters
  std::size_t outputs = 0;     ///< of a sample
  std::size_t vocabulary = 0;  ///< ids, if the network reads some
  std::size_t configurations = 0;
  std::size_t others = 0;                         ///< executors that must give the same bits as the usual one
  std::span<const detail::parameter_range> held;  ///< rows of padding ids: read, and by definition without a gradient
  std::vector<gradient_block> blocks;             ///< they cover the trained parameters
  std::vector<parameter_owner> owners;            ///< of the same

  [[nodiscard]] bool holds(std::size_t parameter) const {
    return std::any_of(held.begin(), held.end(),
                       [=](const auto& each) { return each.first <= parameter && parameter < each.end; });
  }
};

/// The members are those of `observer`, on the usual executor but for `look_elsewhere`.
template <class Scalar, class Value, class Target>
class subject {
 public:
  using samples = sample_values<Value, Target>;

  explicit subject(subject_facts facts) : known{std::move(facts)} {}
  subject(const subject&) = delete;
  subject& operator=(const subject&) = delete;
  virtual ~subject() = default;

  virtual void draw(layer_randomness randomness) = 0;
  [[nodiscard]] virtual std::span<Scalar> parameters() = 0;
  [[nodiscard]] virtual std::vector<double> losses(const samples& data) = 0;
  [[nodiscard]] virtual observation<Scalar> look(const samples& data, double bound, const configuration& how) = 0;
  [[nodiscard]] virtual std::string name_of_other(std::size_t other) const = 0;
  [[nodiscard]] virtual observation<Scalar> look_elsewhere(std::size_t other, const samples& data, double bound,
                                                           const configuration& how) = 0;
  [[nodiscard]] virtual std::vector<Scalar> clipped_sum(const samples& data, double bound,
                                                        const configuration& how) = 0;
  [[nodiscard]] virtual std::vector<Scalar> clipped_sum_without(const samples& data, double bound,
                                                                const configuration& how, std::size_t left_out) = 0;
  [[nodiscard]] virtual std::vector<Scalar> clipped_rows(const samples& data, double bound,
                                                         const configuration& how) = 0;
  [[nodiscard]] virtual std::vector<Scalar> weighted(const samples& data, const std::vector<Scalar>& weights,
                                                     const configuration& how) = 0;
  virtual void add_clipped_sum(const samples& data, double bound, const configuration& how,
                               std::vector<Scalar>& onto) = 0;

  const subject_facts known;
};

template <class Network, class Loss>
using subject_type =
    subject<typename Network::scalar, typename Network::input_value, target_of<Loss, typename Network::scalar>>;

template <class Network, class Loss, class Executor>
class network_subject final : public subject_type<Network, Loss> {
  using base = subject_type<Network, Loss>;
  using compared = executors_to_compare<Executor>;
  using observer_type = observer<Network, Loss, Executor>;

 public:
  using scalar = typename Network::scalar;
  using samples = typename base::samples;

  network_subject(const uniform& initial, std::size_t most_samples)
      : base{{Network::parameter_count, Network::output_shape.size(), Network::input_shape.ids,
              compared::configuration_count, std::size(compared::others), detail::held_parameters<Network>,
              gradient_blocks<Network>(), parameter_owners<Network>(gradient_blocks<Network>())}},
        most_samples_{most_samples},
        network_{host{threads{1}}, initial},
        usual_{compared::usual, most_samples} {}

  void draw(layer_randomness randomness) override {
    randomness_ = randomness;
    usual_.draw(randomness);
    if (elsewhere_) elsewhere_->draw(randomness);
  }
  [[nodiscard]] std::span<scalar> parameters() override { return network_.parameters(); }
  [[nodiscard]] std::vector<double> losses(const samples& data) override { return usual_.losses(network_, data); }
  [[nodiscard]] observation<scalar> look(const samples& data, double bound, const configuration& how) override {
    return usual_.look(network_, data, bound, how);
  }
  [[nodiscard]] std::string name_of_other(std::size_t other) const override {
    return compared::name(compared::others[other]);
  }
  [[nodiscard]] observation<scalar> look_elsewhere(std::size_t other, const samples& data, double bound,
                                                   const configuration& how) override {
    if (other_ != other) elsewhere_.emplace(compared::others[other], most_samples_).draw(randomness_);
    other_ = other;
    return elsewhere_->look(network_, data, bound, how);
  }
  [[nodiscard]] std::vector<scalar> clipped_sum(const samples& data, double bound, const configuration& how) override {
    return usual_.clipped_sum(network_, data, bound, how);
  }
  [[nodiscard]] std::vector<scalar> clipped_sum_without(const samples& data, double bound, const configuration& how,
                                                        std::size_t left_out) override {
    return usual_.clipped_sum_without(network_, data, bound, how, left_out);
  }
  [[nodiscard]] std::vector<scalar> clipped_rows(const samples& data, double bound, const configuration& how) override {
    return usual_.clipped_rows(network_, data, bound, how);
  }
  [[nodiscard]] std::vector<scalar> weighted(const samples& data, const std::vector<scalar>& weights,
                                             const configuration& how) override {
    return usual_.weighted(network_, data, weights, how);
  }
  void add_clipped_sum(const samples& data, double bound, const configuration& how,
                       std::vector<scalar>& onto) override {
    usual_.add_clipped_sum(network_, data, bound, how, onto);
  }

 private:
  std::size_t most_samples_;
  Network network_;
  observer_type usual_;
  std::optional<observer_type> elsewhere_;  // of executor number `other_`
  std::optional<std::size_t> other_;
  layer_randomness randomness_{};
};

}  // namespace pergrad::inline v0_1::testing::testing_detail
