// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/training_host.cpp - the half of the training test that the host's compiler compiles
#include <algorithm>
#include <span>

#include <pergrad.hpp>

#include "training.hpp"

namespace device_training {

outcome train_cnn_on_host(const images& set, const choices& chosen, const of_steps& begins) {
  return train<cnn>(pergrad::host{pergrad::threads{2}}, set, chosen, begins);
}
outcome train_mlp_on_host(const images& set, const choices& chosen, const of_steps& begins) {
  return train<mlp>(pergrad::host{pergrad::threads{2}}, set, chosen, begins);
}
outcome train_wide_on_host(const images& set, const choices& chosen, const of_steps& begins) {
  return train<wide>(pergrad::host{pergrad::threads{2}}, set, chosen, begins);
}
outcome train_rows_on_host(const images& set, const choices& chosen) {
  return train<rows>(pergrad::host{pergrad::threads{2}}, set, chosen);
}
pergrad::classifier_result judge_on_host(std::span<const float> parameters, const images& set) {
  const pergrad::host executor;
  cnn net{executor, pergrad::kaiming_uniform{1}};
  std::copy(parameters.begin(), parameters.end(), net.parameters().begin());
  return pergrad::evaluate_classifier(executor, net, pergrad::public_records{set.as<cnn>()});
}

}  // namespace device_training
