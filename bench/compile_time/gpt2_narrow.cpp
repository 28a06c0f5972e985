// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/gpt2_narrow.cpp - the same in a sixteenth of the width and with a hundredth of the words, which
// should take as long to compile
#include "gpt2.hpp"

int main() { return compile_time::take_a_step<compile_time::gpt2<64, 500>, pergrad::token_cross_entropy<>>(); }
