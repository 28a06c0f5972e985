// expect-error: (template<.*OutFeatures, class \.\.\. Options> struct .*linear|OutFeatures, class\.\.\. Options)
// slip: PyTorch, nn.Linear(20, 10)
// the compiler's own error, which no class template can prevent
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using layer = pg::linear<10>;
#else
using layer = pg::linear<20, 10>;
#endif

int main() {}
