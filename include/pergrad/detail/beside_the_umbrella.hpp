// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/beside_the_umbrella.hpp - first in headers that pergrad.hpp, and so the single header, does not have
//
// Next to the single header they would define the whole library again: thousands of lines of errors. A file that does
// not exist ends the compilation at once; its name is what the user reads.
#pragma once

#include <pergrad/detail/cpp20.hpp>

#define PERGRAD_FOLDER_INCLUDED
#ifdef PERGRAD_SINGLE_HEADER_INCLUDED
#include "pergrad: laws and models are not in the single header: compile with -I pergrad/include instead of it"
#endif
