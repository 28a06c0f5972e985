// SPDX-License-Identifier: Apache-2.0
// pergrad/eigen.hpp - records, rows, gradients and parameters as Eigen's matrices, and Eigen's matrices as records and
// destinations: views of the same memory, no copies. Needs Eigen 3.4; not in the umbrella
//
// Everything here lies row after row, as in PyTorch: a matrix that is handed in has to be Eigen::RowMajor if it has
// several rows and columns, and whole: its rows one behind the other. What is not is an error, never a copy.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <Eigen/Core>

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <pergrad/batch.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/files/parameter_names.hpp>
#include <pergrad/files/safetensors.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::eigen {

/// A matrix whose rows are records, samples or outputs.
template <class Scalar>
using matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

namespace detail {

template <class Dense>
concept has_memory = requires(Dense& dense) {
  dense.data();
  dense.outerStride();
};
/// Throws std::invalid_argument unless a map's or a block's numbers lie one behind the other.
template <class Dense>
void require_whole(const Dense& dense, const char* where) {
  const bool inner = dense.innerSize() <= 1 || dense.innerStride() == 1;
  const bool outer = dense.outerSize() <= 1 || dense.outerStride() == dense.innerSize();
  if (!inner || !outer) {
    pergrad::detail::throw_invalid_argument({"pergrad: ", where, ": a matrix of ", dense.rows(), " x ", dense.cols(),
                                             " whose numbers do not lie one behind the other"});
  }
}
template <class Dense>
inline constexpr bool lies_in_rows = Dense::IsRowMajor || Dense::IsVectorAtCompileTime;
/// An `Eigen::Ref` that may have evaluated an expression into a matrix of its own.
template <class Dense>
inline constexpr bool may_own = false;
template <class Plain, int Options, class Stride>
inline constexpr bool may_own<Eigen::Ref<const Plain, Options, Stride>> = true;
/// A matrix that is gone before anybody reads it.
template <class Dense>
inline constexpr bool is_temporary =
    !std::is_lvalue_reference_v<Dense> &&
    (std::is_base_of_v<Eigen::PlainObjectBase<std::remove_cvref_t<Dense>>, std::remove_cvref_t<Dense>> ||
     may_own<std::remove_cvref_t<Dense>>);

}  // namespace detail

/// The numbers of a matrix, a vector, a map or a block, row after row: what expressions are written into and what
/// `dataset` and `predict` take. Throws std::invalid_argument unless they lie one behind the other.
template <class Dense>
[[nodiscard]] auto values(Dense&& dense) {
  using dense_type = std::remove_cvref_t<Dense>;
  static_assert(!detail::is_temporary<Dense>,
                "pergrad::eigen::values: a temporary matrix would be gone: name it first");
  static_assert(detail::has_memory<dense_type>,
                "pergrad::eigen::values: an Eigen expression has no memory: evaluate it "
                "into a matrix first");
  static_assert(detail::lies_in_rows<dense_type>,
                "pergrad::eigen::values: the matrix lies column after column: use pergrad::eigen::matrix<Scalar>, or "
                "another one with Eigen::RowMajor");
  detail::require_whole(dense, "eigen::values");
  return std::span{dense.data(), static_cast<std::size_t>(dense.size())};
}

/// Records: a row of `inputs` each, and a row of `targets`, which may be a vector. `input`: what a row means. Refers to
/// both. Throws std::invalid_argument as `values` and `dataset` do.
template <class Inputs, class Targets>
[[nodiscard]] auto records(Inputs&& inputs, Targets&& targets, const shape& input) {
  static_assert(!detail::is_temporary<Inputs> && !detail::is_temporary<Targets>,
                "pergrad::eigen::records: a temporary matrix would be gone: name it first");
  if (static_cast<std::size_t>(inputs.cols()) != input.size()) {
    pergrad::detail::throw_invalid_argument(
        {"pergrad: eigen::records: rows of ", inputs.cols(), " values are no records of ", input.size()});
  }
  using target_type = std::remove_cvref_t<Targets>;
  const Eigen::Index rows = target_type::IsVectorAtCompileTime ? targets.size() : targets.rows();
  if (rows != inputs.rows()) {
    pergrad::detail::throw_invalid_argument(
        {"pergrad: eigen::records: ", rows, " rows of targets for ", inputs.rows(), " records"});
  }
  const auto numbers = values(inputs);
  const auto wanted = values(targets);
  using input_value = std::remove_const_t<typename decltype(numbers)::element_type>;
  using target_value = std::remove_const_t<typename decltype(wanted)::element_type>;
  return dataset<input_value, target_value>{
      std::span<const input_value>{numbers}, std::span<const target_value>{wanted}, input,
      target_type::IsVectorAtCompileTime ? std::size_t{1} : static_cast<std::size_t>(targets.cols())};
}

/// The same numbers as a matrix of so many rows: parameters, a released gradient, what `unprotected::evaluate`
/// returned. Throws std::invalid_argument unless the rows come out even.
template <class Array>
[[nodiscard]] auto rows(Array&& array, std::size_t count) {
  static_assert(std::is_lvalue_reference_v<Array> || std::ranges::borrowed_range<std::remove_cvref_t<Array>>,
                "pergrad::eigen::rows: a temporary array would be gone: name it first");
  const std::span numbers{array};
  using element = typename decltype(numbers)::element_type;
  using plain = matrix<std::remove_const_t<element>>;
  if (count == 0 ? !numbers.empty() : numbers.size() % count != 0) {
    pergrad::detail::throw_invalid_argument(
        {"pergrad: eigen::rows: ", numbers.size(), " values do not make ", count, " rows"});
  }
  return Eigen::Map<std::conditional_t<std::is_const_v<element>, const plain, plain>>{
      numbers.data(), static_cast<Eigen::Index>(count),
      static_cast<Eigen::Index>(count == 0 ? 0 : numbers.size() / count)};
}
/// The same numbers as one column.
template <class Array>
[[nodiscard]] auto vector(Array&& array) {
  static_assert(std::is_lvalue_reference_v<Array> || std::ranges::borrowed_range<std::remove_cvref_t<Array>>,
                "pergrad::eigen::vector: a temporary array would be gone: name it first");
  const std::span numbers{array};
  using element = typename decltype(numbers)::element_type;
  using plain = Eigen::Matrix<std::remove_const_t<element>, Eigen::Dynamic, 1>;
  return Eigen::Map<std::conditional_t<std::is_const_v<element>, const plain, plain>>{
      numbers.data(), static_cast<Eigen::Index>(numbers.size())};
}

/// One block of `numbers`, `parameter_count` values in a network's order: its parameters, a gradient, a row of
/// gradients. `name` is the one that files use ("0.weight", docs/networks.md, "Files"). A matrix of the block's first
/// extent (outputs) and all the others; a bias is one column. Throws std::invalid_argument, with all names, if there is
/// no such block, and for any other number of values; `all_parameters()` has those of frozen layers behind.
template <class Network, class Scalar>
[[nodiscard]] auto block(std::span<Scalar> numbers, const std::string& name) {
  constexpr std::size_t trained = Network::parameter_count;
  constexpr std::size_t all = trained + Network::frozen_parameter_count;
  if (numbers.size() != trained && numbers.size() != all) {
    pergrad::detail::throw_invalid_argument({"pergrad: eigen::block: the network has ", trained,
                                             " trained parameters of ", all, ", and got ", numbers.size(), " values"});
  }
  const auto tensors = pergrad::detail::parameter_tensors<Network>();
  constexpr std::size_t width = sizeof(typename Network::scalar);
  std::string names;
  for (const auto& each : tensors) {
    const std::size_t first = each.begin / width;
    const std::size_t size = each.size / width;
    if (first + size > numbers.size()) continue;  // of frozen layers, where only trained ones were given
    if (each.name == name) return rows(numbers.subspan(first, size), each.shape.empty() ? 1 : each.shape[0]);
    names += (names.empty() ? "" : ", ") + each.name;
  }
  throw std::invalid_argument("pergrad: eigen::block: no block " + name + " in " + std::to_string(numbers.size()) +
                              " values; there are " + names);
}
/// One block of a network's parameters, frozen ones too; writing to it writes to the network.
template <class Network>
[[nodiscard]] auto block(Network& network, const std::string& name) {
  return block<std::remove_const_t<Network>>(network.all_parameters(), name);
}

}  // namespace pergrad::inline v0_1::eigen
