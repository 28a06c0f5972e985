// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/index.hpp - the type of positions and counts inside executors
#pragma once

#include <cstddef>

namespace pergrad::inline v0_1::on_host {

using index = std::ptrdiff_t;

}  // namespace pergrad::inline v0_1::on_host
