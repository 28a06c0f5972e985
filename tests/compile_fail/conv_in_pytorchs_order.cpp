// expect-error: (template<.*OutChannels, .*extent Kernel, class \.\.\. Options> struct .*conv2d|OutChannels, extent Kernel, class\.\.\. Options)
// slip: PyTorch, nn.Conv2d(1, 8, 3)
// the compiler's own error, which no class template can prevent
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using layer = pg::conv2d<8, 3>;
#else
using layer = pg::conv2d<1, 8, 3>;
#endif

int main() {}
