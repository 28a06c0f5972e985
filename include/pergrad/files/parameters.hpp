// SPDX-License-Identifier: Apache-2.0
// pergrad/files/parameters.hpp - parameters to and from a file, and from one network to another, by their names
//
// Files are safetensors (files/safetensors.hpp) with PyTorch's names (files/parameter_names.hpp). NumPy's .npy, which
// former versions wrote, is still read: the flat vector of `torch.nn.utils.parameters_to_vector`.
//
// A run that is to go on in another process needs more than parameters: see resume.hpp. Keys and generator states are
// never written: who has them can subtract the noise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/detail/file.hpp>
#include <pergrad/files/older_files.hpp>
#include <pergrad/files/parameter_names.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/graph/stand_ins.hpp>
#include <pergrad/network.hpp>

namespace pergrad::inline v0_1 {

/// Which of two networks' parameters, or of a file's and a network's, must fit together.
enum class matching {
  all,    ///< all of both, in name, shape and type
  common  ///< at least one; what fits is taken over, and what does not stays: a new head, an adapter's base
};
/// How a flat vector of parameters is ordered if some are frozen.
enum class parameter_order {
  by_layer,    ///< layer after layer, frozen or not: PyTorch's `parameters_to_vector`
  frozen_last  ///< all that are trained, then the frozen ones: `all_parameters()`, and .npy files of version 0.1
};

namespace detail {

/// What a file is, and of which version.
inline constexpr const char* parameter_format = "parameters 1";
inline constexpr const char* run_format = "checkpoint 1";

template <class = void>
[[nodiscard]] std::vector<safetensors::tensor> in_memory_order(std::vector<safetensors::tensor> list) {
  std::sort(list.begin(), list.end(), [](const auto& left, const auto& right) { return left.begin < right.begin; });
  return list;
}

template <class Text>
void write_parameters(const Text& path, std::span<const safetensors::tensor> list, const Text& structure,
                      const std::byte* parameters) {
  if (path.ends_with(".npy")) fail_with_file(path, "save_parameters writes safetensors, and a .npy is none");
  std::vector<const std::byte*> values;
  for (const safetensors::tensor& each : list) values.push_back(parameters + each.begin);
  safetensors::write(path, {{"pergrad", parameter_format}, {"structure", structure}}, list, values);
}

/// Throws std::runtime_error unless the file says of itself that it is that, or nothing.
template <class = void>
void require_format(const safetensors::reader& opened, const std::string& wanted) {
  const std::string* const found = opened.metadata("pergrad");
  if (found == nullptr || *found == wanted) return;
  opened.fail("is a file of pergrad: " + found->substr(0, 80) + ", expected: " + wanted +
              (*found == run_format ? "; load_checkpoint reads it" : ""));
}
/// Looks at the hash of this library's files only: a `structure` of others may be anything.
template <class = void>
void require_structure(const safetensors::reader& opened, const std::string& structure, const char* instead) {
  const std::string* const found = opened.metadata("structure");
  if (found == nullptr || *found == structure || opened.metadata("pergrad") == nullptr) return;
  opened.fail("is of a network with the same parameters but another structure: its hash is " + found->substr(0, 80) +
              ", the network's " + structure + instead);
}

/// `kept` gets the names of the network's tensors that the file has nothing for.
template <class Text>
loaded_bytes read_parameters(const Text& path, std::span<const safetensors::tensor> list, const Text& structure,
                             matching which, std::vector<Text>& kept) {
  if (is_npy(path)) {
    const auto memory_order = in_memory_order({list.begin(), list.end()});
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].begin == memory_order[i].begin) continue;
      fail_with_file(
          path,
          "a .npy file does not say whether frozen parameters are last, as in version 0.1, or in their places: "
          "unprotected::load_parameters takes a parameter_order");
    }
    return read_npy(path, list);
  }
  safetensors::reader opened{path};
  require_format(opened, parameter_format);
  Text differences = safetensors::differences(opened.tensors(), "the file", list, "the network", true);
  const auto is_half = [](const safetensors::tensor& each) { return each.type == "F16" || each.type == "BF16"; };
  if (std::ranges::any_of(opened.tensors(), is_half)) {
    differences += "; F16 and BF16 are not read: docs/huggingface.py makes F32 of Hugging Face's models";
  }
  if (which == matching::all) {
    if (!differences.empty()) opened.fail("does not fit the network: " + differences);
    require_structure(opened, structure, "; copy_parameters goes by names alone");
  }
  loaded_bytes made;
  for (const safetensors::tensor& each : list) {
    const safetensors::tensor* const found = safetensors::find(opened.tensors(), each.name);
    if (found != nullptr && found->shape == each.shape && found->type == each.type) {
      made.moves.push_back({0, found->begin, each.begin, each.size});
    } else {
      kept.push_back(each.name);
    }
  }
  if (made.moves.empty() && !list.empty()) opened.fail("has nothing in common with the network: " + differences);
  made.bytes = opened.read_values();
  return made;
}

template <class Network>
void put_parameters(Network& network, const loaded_bytes& loaded) {
  std::byte* const parameters[]{reinterpret_cast<std::byte*>(network.all_parameters().data())};
  loaded.put(parameters);
}

}  // namespace detail

/// Writes all parameters, frozen or not, by name, with a hash of the network's structure and a checksum, from where
/// they lie: memory does not grow with them. The file appears whole or not at all, and is on the disk when this
/// returns. Throws std::runtime_error that names the file and says what failed.
template <class Network>
void save_parameters(const Network& network, const std::string& path) {
  if constexpr (!detail::is_explained<Network>) {
    detail::write_parameters(path, detail::parameter_tensors<Network>(), detail::structure_hash<Network>(false),
                             reinterpret_cast<const std::byte*>(network.all_parameters().data()));
  }
}

/// Reads parameters by name; returns the names of the network's tensors that keep their values, none with
/// `matching::all`. Files of Python's safetensors have neither hash nor checksum and are read as well; .npy files are
/// flat vectors in PyTorch's order. The network is unchanged if anything is wrong. Throws std::runtime_error that says
/// what and where, and lists both sides where names, shapes or types differ.
template <class Network>
// NOLINTNEXTLINE(modernize-use-nodiscard): nothing with the default
std::vector<std::string> load_parameters(Network& network, const std::string& path, matching which = matching::all) {
  std::vector<std::string> kept;
  if constexpr (!detail::is_explained<Network>) {
    detail::put_parameters(network, detail::read_parameters(path, detail::parameter_tensors<Network>(),
                                                            detail::structure_hash<Network>(false), which, kept));
  }
  return kept;
}

// clang-format off
template <class Network>
void load_parameters(const Network&, const std::string&, matching = {}) = delete;  // declare the network without const
// clang-format on

/// Copies parameters by name between networks of any two types, frozen or not; other scalar types are converted.
/// Returns the names of the tensors of `to` that keep their values. Throws std::invalid_argument that lists both sides
/// where names or shapes differ, and for a finite number that the other scalar type cannot hold; nothing is changed
/// then.
template <class From, class To>
std::vector<std::string> copy_parameters(const From& from, To& to, matching which = matching::all) {
  std::vector<std::string> kept;
  if constexpr (!detail::is_explained<From> && !detail::is_explained<To>) {
    const auto source = detail::parameter_tensors<From>();
    const auto target = detail::parameter_tensors<To>();
    const std::string differences = detail::safetensors::differences(source, "the source", target, "the target", false);
    if (which == matching::all && !differences.empty()) {
      throw std::invalid_argument("pergrad: copy_parameters: the networks differ: " + differences);
    }
    for (const auto& each : target) {
      const auto* const found = detail::safetensors::find(source, each.name);
      if (found == nullptr || found->shape != each.shape) kept.push_back(each.name);
    }
    if (kept.size() == target.size() && !kept.empty()) {
      throw std::invalid_argument("pergrad: copy_parameters: the networks have nothing in common: " + differences);
    }
    const auto values = from.all_parameters();
    const auto places = to.all_parameters();
    // visit(name, where its values are in `from`, where they go in `to`)
    const auto for_each_match = [&](const auto& visit) {
      for (const auto& each : target) {
        const auto* const found = detail::safetensors::find(source, each.name);
        if (found == nullptr || found->shape != each.shape) continue;
        const std::size_t size = each.size / sizeof(typename To::scalar);
        visit(each.name, values.subspan(found->begin / sizeof(typename From::scalar), size),
              places.subspan(each.begin / sizeof(typename To::scalar), size));
      }
    };
    if constexpr (sizeof(typename To::scalar) < sizeof(typename From::scalar)) {
      for_each_match([&](const std::string& name, const auto source_values, const auto& /*unused*/) {
        constexpr auto most = static_cast<typename From::scalar>(std::numeric_limits<typename To::scalar>::max());
        for (const typename From::scalar value : source_values) {
          if (!std::isfinite(value) || std::abs(value) <= most) continue;
          throw std::invalid_argument("pergrad: copy_parameters: " + name +
                                      " has a number that is beyond the largest one of the target's type");
        }
      });
    }
    for_each_match([&](const std::string& /*name*/, const auto source_values, const auto target_values) {
      std::transform(source_values.begin(), source_values.end(), target_values.begin(),
                     [](typename From::scalar value) { return static_cast<typename To::scalar>(value); });
    });
  }
  return kept;
}

template <class From, class To>
void copy_parameters(const From&, const To&, matching = {}) = delete;  // declare the second network without const

namespace unprotected {

/// Reads a .npy file whose order the caller vouches for, as nothing in it says which one it is. Throws as
/// `load_parameters` of the library does.
template <class Network>
void load_parameters(Network& network, const std::string& path, parameter_order order) {
  if constexpr (!detail::is_explained<Network>) {
    const auto list = detail::parameter_tensors<Network>();
    detail::put_parameters(
        network, detail::read_npy(path, order == parameter_order::by_layer ? list : detail::in_memory_order(list)));
  }
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
