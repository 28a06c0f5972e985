// expect-error: pergrad: laws and models are not in the single header: compile with -I pergrad/include
// SPDX-License-Identifier: Apache-2.0
#ifndef COMPILE_FAIL_FIXED
#define PERGRAD_SINGLE_HEADER_INCLUDED  // what the single header defines
#endif
#include <pergrad/models.hpp>

int main() { return pergrad::models::mnist_cnn::parameter_count == 26'010 ? 0 : 1; }
