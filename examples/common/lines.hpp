// SPDX-License-Identifier: Apache-2.0
// examples/common/lines.hpp - what a training program prints before and after training
#pragma once

#include <string>

#include "report.hpp"

namespace example {

/// What is known before training. Line by line when the output is a file too.
void print_header(const run_report& report);
void print_epoch(const std::string& label, const epoch_record& epoch);
/// What is known afterwards; the last line is the result.
void print_end(const run_report& report);

}  // namespace example
