// SPDX-License-Identifier: Apache-2.0
// tests/link/second.cpp - the other translation unit.
#include <string_view>

#include <pergrad/pergrad.hpp>

std::string_view version_seen_by_the_other();

std::string_view version_seen_by_the_other() { return pergrad::version; }
