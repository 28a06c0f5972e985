// SPDX-License-Identifier: Apache-2.0
// pergrad 0.1.0, the whole library in one header.
// Generated from include/ by single_include/amalgamate.py; do not edit.
#ifndef PERGRAD_SINGLE_HEADER_INCLUDED
#define PERGRAD_SINGLE_HEADER_INCLUDED

// pergrad/pergrad.hpp - the whole library.

// pergrad/version.hpp - the version of the library; the build reads it from here and from nowhere else.

#include <string_view>

#define PERGRAD_VERSION_MAJOR 0
#define PERGRAD_VERSION_MINOR 1
#define PERGRAD_VERSION_PATCH 0

namespace pergrad::inline v0_1 {

/// The version as text, "major.minor.patch", for reports.
inline constexpr std::string_view version = "0.1.0";

}  // namespace pergrad::inline v0_1

#endif  // PERGRAD_SINGLE_HEADER_INCLUDED
