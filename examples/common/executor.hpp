// SPDX-License-Identifier: Apache-2.0
// examples/common/executor.hpp - the one thing in which the same program for host and GPU differs
//
// pergrad::host gets the threads that the options ask for. Any other executor is made without arguments and may have a
// function missing() that says why there is none on this machine.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

#include <pergrad.hpp>

#include "cli.hpp"

namespace example {

/// This machine has no executor of the kind the program was built for; what() says in one line what is missing.
struct no_executor : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws no_executor if there is none.
template <class Executor>
void require_executor() {
  if constexpr (requires { Executor::missing(); }) {
    const std::string missing = Executor::missing();
    if (!missing.empty()) throw no_executor(missing);
  }
}

template <class Executor>
[[nodiscard]] Executor make_executor([[maybe_unused]] const options& chosen) {
  if constexpr (std::is_same_v<Executor, pergrad::host>) {
    return Executor{pergrad::threads{chosen.threads}};
  } else {
    return Executor{};
  }
}

/// Waits until everything is done that the executor has begun.
template <class Executor>
void wait_for([[maybe_unused]] const Executor& executor) {
  if constexpr (requires { executor.device().synchronise(); }) executor.device().synchronise();
}

/// In a few words, for the line about the network.
template <class Executor>
[[nodiscard]] std::string describe_executor([[maybe_unused]] const options& chosen) {
  if constexpr (std::is_same_v<Executor, pergrad::host>) {
    return std::to_string(chosen.threads) + (chosen.threads == 1 ? " thread" : " threads");
  } else {
    return "GPU";
  }
}

}  // namespace example
