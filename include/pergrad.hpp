// SPDX-License-Identifier: Apache-2.0
// pergrad.hpp - the whole library; the same spelling includes the single header.
#pragma once

#include <pergrad/pergrad.hpp>
