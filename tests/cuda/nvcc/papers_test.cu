// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/papers_test.cu - each network of Lee and Kifer and the word-language LSTM, trained by the program
// that nvcc compiles, ends where the host ends
//
// Linked with the runtime of ../fake_runtime.
#include <cstddef>
#include <cstdio>

#include <pergrad.hpp>

#include "../fake_runtime/fake_runtime.hpp"
#include "check.hpp"
#include "papers_training.hpp"

namespace {

namespace training = device_training;

template <class Network>
void ends_where_the_host_ends(const char* what, const training::images& set, const training::length_of_run& run = {}) {
  const pergrad::cuda exec;
  const training::outcome device = training::train_on_records<Network>(exec, set, run, 5);
  const training::outcome host = training::train_paper_on_host<Network>(set, run);
  CHECK(device.before == host.before);
  CHECK(device.after != device.before);
  const double apart = training::distance(device, host);
  std::printf("%s: %.2e of the way apart\n", what, apart);
  CHECK(apart < 1e-5);
}

}  // namespace

int main() {
  const training::images set = training::load_images(training::image_count);
  ends_where_the_host_ends<training::models::lee_kifer_mlp>("Lee & Kifer's perceptron", set);
  ends_where_the_host_ends<training::lee_kifer_cnn>("Lee & Kifer's convolutional network", set);
  ends_where_the_host_ends<training::models::lee_kifer_rnn>("Lee & Kifer's recurrent network", set);
  ends_where_the_host_ends<training::models::lee_kifer_lstm>("Lee & Kifer's LSTM", set);
  ends_where_the_host_ends<training::lee_kifer_transformer>("Lee & Kifer's transformer", set, {30, 3});
  ends_where_the_host_ends<training::word_lstm>("word-language LSTM", set, {15, 3});
  CHECK(fake_cuda::live_device_bytes() == 0);
  CHECK(fake_cuda::live_pinned_bytes() == 0);
  CHECK(fake_cuda::live_handles() == 0);
  return check::result();
}
