// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/cpp20.hpp - read first: ends a compilation for an older C++ with one line
//
// Compilers go on behind an #error, through thousands of lines of others. A file that does not exist ends the compilation
// at once; its name is what the user reads.
#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#include "pergrad needs C++20: compile with -std=c++20"
#endif
