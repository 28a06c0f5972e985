// SPDX-License-Identifier: Apache-2.0
// pergrad/data/part.hpp - which half of a published data set is meant
#pragma once

namespace pergrad::inline v0_1 {

/// The halves that published data sets come in. Only `train` is what differential privacy protects in a training run.
enum class data_part { train, test };

}  // namespace pergrad::inline v0_1
