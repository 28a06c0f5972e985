// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/completion_call.hpp - what a backward pass calls once the gradient of a node's output is complete
#pragma once

#include <cstddef>

#include <pergrad/graph/layout.hpp>

namespace pergrad::inline v0_1::on_host {

/// What a backward pass calls with a node and a range of samples. Refers to a function, which must outlive it.
class completion_call {
 public:
  template <class Function>
  completion_call(const Function& f)  // NOLINT(google-explicit-constructor): an argument as any other
      : context_{&f}, call_{[](const void* context, std::size_t node, index begin, index end) {
          (*static_cast<const Function*>(context))(node, begin, end);
        }} {}
  void operator()(std::size_t node, index begin, index end) const { call_(context_, node, begin, end); }

 private:
  const void* context_;
  void (*call_)(const void*, std::size_t, index, index);
};

}  // namespace pergrad::inline v0_1::on_host
