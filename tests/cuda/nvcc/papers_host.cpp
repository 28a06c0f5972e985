// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/papers_host.cpp - networks of papers on the host, compiled by the host's compiler
#include <pergrad.hpp>

#include "papers_training.hpp"

namespace device_training {

template <class Network>
outcome train_paper_on_host(const images& set, const length_of_run& run) {
  return train_on_records<Network>(pergrad::host{pergrad::threads{2}}, set, run, 16);
}
template outcome train_paper_on_host<models::lee_kifer_mlp>(const images&, const length_of_run&);
template outcome train_paper_on_host<lee_kifer_cnn>(const images&, const length_of_run&);
template outcome train_paper_on_host<models::lee_kifer_rnn>(const images&, const length_of_run&);
template outcome train_paper_on_host<models::lee_kifer_lstm>(const images&, const length_of_run&);
template outcome train_paper_on_host<lee_kifer_transformer>(const images&, const length_of_run&);
template outcome train_paper_on_host<word_lstm>(const images&, const length_of_run&);

}  // namespace device_training
