// SPDX-License-Identifier: Apache-2.0
// pergrad/files/parameter_names.hpp - the names that a network's parameters have in files, and a text of its structure
//
// Names are those of PyTorch's `nn.Sequential`: `3.weight` of layer 3, `3.0.weight` of the first layer of a
// `sequential` there. `frozen`, `tied`, `parameter_group`, `recomputed` and `repeat` count as if their layers stood in
// the list themselves. A residual's projection is `projection`, branches are numbered. A composition of layers names
// its own: by `part_name(number)` for its nodes that have parameters, or by `name_parts(names)`; `*` stands for the
// block.
//
// Everything here is compiled only for networks that meet a file, and but for the walk through the types once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/concepts.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/network.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// Walks through the layers as a user wrote them, in the order in which they unfold, and names every node. Text is
/// std::string: a template is compiled where it is used only.
template <class Text>
class node_names {
 public:
  explicit node_names(std::span<const std::size_t> parameter_counts) : counts_{parameter_counts} {}
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
  [[nodiscard]] const Text& operator[](std::size_t node) const noexcept { return names_[node]; }

  /// The layers as a list of its own, numbered from 0.
  template <class... Layers>
  void list_at(const Text& where) {
    const std::size_t outer = std::exchange(next_, 0);
    inside(where, [&] { splice<Layers...>(); });
    next_ = outer;
  }
  /// Branches `0`, `1`, ..., and behind each but the first a node that joins it.
  template <class... Branches>
  void branches() {
    std::size_t number = 0;
    const auto branch = [&](auto type) {
      inside(std::to_string(number) + ".", [&] { one(type); });
      if (number++ > 0) rest(1);
    };
    const int expand[]{0, (branch(std::type_identity<Branches>{}), 0)...};
    static_cast<void>(expand);
  }
  /// The nodes of a composition that are not named yet; those with parameters are named by `Layer`.
  template <class Layer, class Composition = Layer>
  void named_parts(std::size_t first) {
    const std::size_t end = first + unfold<Composition>::type::size;
    for (std::size_t number = 0; names_.size() < end;) {
      const bool has_parameters = counts_[names_.size()] > 0;
      names_.push_back(path_ + (has_parameters ? Layer::part_name(number++) : Text{}));
    }
  }
  /// One part of a composition that names its parts.
  template <class Layer>
  void part(const Text& where) {
    inside(where, [&] { one(std::type_identity<Layer>{}); });
  }
  /// So many nodes whose blocks stand right here.
  void rest(std::size_t count) { names_.insert(names_.end(), count, path_ + "*"); }

 private:
  template <class Function>
  void inside(const Text& where, const Function& f) {
    const std::size_t before = path_.size();
    path_ += where;
    f();
    path_.resize(before);
  }

  template <class... Layers>
  void splice() {
    const int expand[]{0, (entry(std::type_identity<Layers>{}), 0)...};
    static_cast<void>(expand);
  }
  /// The next entries of a list.
  template <class Layer>
  void entry(std::type_identity<Layer> layer) {
    inside(std::to_string(next_++) + ".", [&] { one(layer); });
  }
  template <class... Layers>
  void entry(std::type_identity<frozen<Layers...>> /*transparent*/) {
    splice<Layers...>();
  }
  template <class... Layers>
  void entry(std::type_identity<recomputed<Layers...>> /*transparent*/) {
    splice<Layers...>();
  }
  template <std::size_t Key, class... Layers>
  void entry(std::type_identity<tied<Key, Layers...>> /*transparent*/) {
    splice<Layers...>();
  }
  template <std::size_t Group, class... Layers>
  void entry(std::type_identity<parameter_group<Group, Layers...>> /*transparent*/) {
    splice<Layers...>();
  }
  template <std::size_t Count, class... Layers>
  void entry(std::type_identity<repeat<Count, Layers...>> /*transparent*/) {
    for (std::size_t i = 0; i < Count; ++i) splice<Layers...>();
  }

  /// What stands where one layer may: a layer, a list, a composition.
  template <class Layer>
  void one(std::type_identity<Layer> /*type*/) {
    if constexpr (requires { Layer::name_parts(*this); }) {
      Layer::name_parts(*this);
    } else if constexpr (requires { Layer::part_name(0); }) {
      named_parts<Layer>(names_.size());
    } else if constexpr (requires { typename Layer::unfolds_to; }) {
      one(std::type_identity<typename Layer::unfolds_to>{});
    } else {
      rest(unfold<Layer>::type::size);
    }
  }
  template <class... Layers>
  void one(std::type_identity<sequential<Layers...>> /*type*/) {
    list_at<Layers...>("");
  }
  template <class Layer>
  void one(std::type_identity<frozen<Layer>> /*transparent*/) {
    one(std::type_identity<Layer>{});
  }
  template <class... Layers>
  void one(std::type_identity<frozen<Layers...>> /*type*/) {
    list_at<Layers...>("");
  }
  template <class... Layers>
  void one(std::type_identity<recomputed<Layers...>> /*type*/) {
    one(std::type_identity<frozen<Layers...>>{});
  }
  template <std::size_t Key, class... Layers>
  void one(std::type_identity<tied<Key, Layers...>> /*type*/) {
    one(std::type_identity<frozen<Layers...>>{});
  }
  template <std::size_t Group, class... Layers>
  void one(std::type_identity<parameter_group<Group, Layers...>> /*type*/) {
    one(std::type_identity<frozen<Layers...>>{});
  }
  template <std::size_t Count, class... Layers>
  void one(std::type_identity<repeat<Count, Layers...>> /*type*/) {
    list_at<repeat<Count, Layers...>>("");
  }
  template <class Layer, class First, class Second>
  void one(std::type_identity<merge<Layer, First, Second>> /*type*/) {
    branches<First, Second>();
  }
  template <class... Layers>
  void one(std::type_identity<residual<Layers...>> /*type*/) {
    using split = split_residual<sequential<>, Layers...>;
    one(std::type_identity<typename split::body>{});
    inside("projection.", [&] { one(std::type_identity<typename split::shortcut>{}); });
    rest(1);
  }

  std::span<const std::size_t> counts_;
  std::vector<Text> names_;
  Text path_;
  std::size_t next_ = 0;
};

/// A layer's blocks; those of a layer with two inputs may depend on both.
template <class Layer>
[[nodiscard]] auto blocks_of(shape in, [[maybe_unused]] shape second) {
  if constexpr (requires { Layer::blocks(in, second); }) {
    return Layer::blocks(in, second);
  } else if constexpr (requires { Layer::blocks(in); }) {
    return Layer::blocks(in);
  } else if constexpr (has_affine<Layer>) {
    const affine_map map = Layer::affine(in);
    block_list<2> list{{{"weight", {map.out_channels, map.view_width()}}, {"bias", {map.bias_count()}}}};
    if constexpr (requires { Layer::kernel_axes; }) {
      const std::size_t kernel[]{map.kernel.depth, map.kernel.height, map.kernel.width};
      list[0].extents[1] = map.in_channels / map.groups;
      for (std::size_t axis = 0; axis < Layer::kernel_axes; ++axis) {
        list[0].extents[2 + axis] = kernel[Layer::kernel_axes == 3 ? axis : axis + 1];
      }
    }
    return list;
  } else if constexpr (!has_factors<Layer>) {
    return block_list<0>{};  // parameter_count(shape) is 0
  } else {
    const auto factors = factors_of<Layer>(in, second);
    [[maybe_unused]] static constexpr const char* numbers[]{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    static_assert(factors.size() <= 10, "a layer with more blocks names them: blocks(shape)");
    block_list<factors.size()> list;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const bool is_matrix = factors[i].outer || factors[i].sparse;
      list[i] = {numbers[i], {factors[i].rows, is_matrix ? factors[i].columns : 0}};
    }
    return list;
  }
}

/// Appends a node's blocks, which begin at a byte of the network's parameters.
template <class Text>
void append_blocks(std::vector<typename basic_safetensors<Text>::tensor>& list, std::span<const parameter_block> blocks,
                   const Text& name, std::size_t width, std::size_t begin, std::size_t size) {
  const std::size_t end = begin + size;
  for (const parameter_block& block : blocks) {
    if (block.extents[0] == 0) continue;
    typename basic_safetensors<Text>::tensor made;
    made.name = name;
    made.name.replace(name.find('*'), 1, block.name);
    if (!basic_safetensors<Text>::header_parser::is_plain(made.name) ||
        basic_safetensors<Text>::find(list, made.name) != nullptr) {
      throw std::logic_error("pergrad: the name " + made.name + " is none for a tensor, or another one has it");
    }
    made.type = width == 4 ? "F32" : "F64";
    made.begin = begin;
    made.size = width;
    for (const std::size_t extent : block.extents) {
      if (extent == 0) break;
      made.shape.push_back(extent);
      made.size *= extent;
    }
    begin += made.size;
    list.push_back(std::move(made));
  }
  if (begin != end) {
    throw std::logic_error("pergrad: the blocks of the layer " + name + " are " + std::to_string(size + begin - end) +
                           " bytes, its parameters are " + std::to_string(size));
  }
}

template <class Names, class Scalar, class Input, class... Layers>
void name_layers(Names& names, std::type_identity<static_network<Scalar, Input, Layers...>> /*network*/) {
  names.template list_at<Layers...>("");
}
template <class Input, class... Nodes, class... Layers>
[[nodiscard]] std::vector<std::size_t> later_places(
    std::type_identity<unfolded<Input, node_list<Nodes...>, Layers...>> /*structure*/) {
  return {Nodes::later...};
}

/// A network's parameters, frozen or not, each with its place in `all_parameters()`, in the order of PyTorch's
/// `parameters_to_vector`: layer after layer.
template <class Network>
[[nodiscard]] std::vector<safetensors::tensor> parameter_tensors() {
  using structure = typename Network::structure;
  node_names<std::string> names{structure::parameter_counts};
  name_layers(names, std::type_identity<Network>{});
  const std::vector<std::size_t> later = later_places(std::type_identity<structure>{});
  std::vector<safetensors::tensor> list;
  // Behind a node stand those that were put off until it.
  for (std::size_t place = 0; place < 2 * later.size(); ++place) {
    for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      if constexpr (may_have_parameters<Layer>) {
        if (place != 2 * (i + later[i]) + (later[i] == 0 ? 0 : 1) || structure::owners[i] != i ||
            structure::parameter_counts[i] == 0) {
          return;
        }
        constexpr std::size_t width = sizeof(typename Network::scalar);
        const auto blocks =
            blocks_of<Layer>(structure::shapes[structure::inputs[i]], structure::shapes[structure::inputs2[i]]);
        append_blocks(list, blocks, names[i], width, width * structure::parameter_offsets[i],
                      width * structure::parameter_counts[i]);
      }
    });
  }
  return list;
}

/// The hash of what a network computes: every node's layer, its settings, its shapes and where its inputs lie. With
/// `frozen_too` also of what is trained. What layers call themselves is all that is known of the users' own.
template <class Network>
[[nodiscard]] std::string structure_hash(bool frozen_too) {
  using structure = typename Network::structure;
  safetensors::checksum sum;
  sum.add(bytes_of(&structure::shapes[0], 1));
  for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
    constexpr const char* name = name_of_layer<Layer>();
    sum.add(bytes_of(name, std::strlen(name) + 1));
    if constexpr (requires { Layer::settings(); }) {
      const auto settings = Layer::settings();
      sum.add(bytes_of(settings.data(), settings.size()));
    }
    if constexpr (has_affine<Layer>) {
      const affine_map map = Layer::affine(structure::shapes[structure::inputs[i]]);
      const extent geometry[]{map.kernel, map.stride, map.padding, map.dilation, map.groups};
      sum.add(bytes_of(geometry, 5));
    }
    const std::size_t numbers[]{structure::inputs[i], structure::inputs2[i], structure::owners[i],
                                frozen_too ? structure::trained_counts[i] : 0};
    sum.add(bytes_of(numbers, 4));
    sum.add(bytes_of(&structure::shapes[i + 1], 1));
  });
  return sum.text();
}

}  // namespace pergrad::inline v0_1::detail
