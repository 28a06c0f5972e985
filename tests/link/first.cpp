// SPDX-License-Identifier: Apache-2.0
// tests/link/first.cpp - one of two translation units that include the whole library.
#include <string_view>

#include <pergrad/pergrad.hpp>

std::string_view version_seen_by_the_other();

int main() { return version_seen_by_the_other() == pergrad::version ? 0 : 1; }
