// SPDX-License-Identifier: Apache-2.0
// tests/ranks/told_run.hpp - a private run that prints a hash of its parameters, and fails where it is told to
//
// PROGRAM [--steps N] [--threads N] [--save FILE] [--load FILE] [--every N] [--hang RANK STEP] [--throw RANK STEP]
//         [--kill RANK STEP] [--differ RANK] [--patience MS]
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pergrad/mpi.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

namespace told_run {

using net_type =
    pg::network<pg::shape{12}, pg::linear<64>, pg::tanh, pg::dropout<0.25>, pg::linear<64>, pg::relu, pg::linear<4>>;

struct told {
  long steps = 5;
  long threads = 1;
  long every = 0;
  long patience = 20'000;
  long differ = -1;
  std::string save;
  std::string load;
  struct place {
    long rank = -1;
    long step = -1;
  } hang, throws, kill;
};

inline told read(int argc, char** argv) {
  told all;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto next = [&]() -> const char* {
      if (++i >= argc) throw std::invalid_argument(name + " needs a value");
      return argv[i];
    };
    const auto number = [&] { return std::strtol(next(), nullptr, 10); };
    const auto place = [&](told::place& to) {
      to.rank = number();
      to.step = number();
    };
    if (name == "--steps")
      all.steps = number();
    else if (name == "--threads")
      all.threads = number();
    else if (name == "--every")
      all.every = number();
    else if (name == "--patience")
      all.patience = number();
    else if (name == "--differ")
      all.differ = number();
    else if (name == "--save")
      all.save = next();
    else if (name == "--load")
      all.load = next();
    else if (name == "--hang")
      place(all.hang);
    else if (name == "--throw")
      place(all.throws);
    else if (name == "--kill")
      place(all.kill);
    else
      throw std::invalid_argument("what is " + name + "?");
  }
  return all;
}

/// Trains as it is told, with this executor, and prints the hash of the parameters.
template <pg::executor Executor, pg::communicator World>
void train(const told& all, const Executor& exec, const World& world) {
  constexpr std::size_t records = 301;
  std::mt19937 random{5};
  std::vector<float> inputs(records * 12);
  std::vector<std::int32_t> targets(records);
  for (float& each : inputs) each = static_cast<float>(random() % 1000) / 500 - 1;
  for (auto& each : targets) each = static_cast<std::int32_t>(random() % 4);
  const std::size_t first = records * world.rank() / world.size();
  const std::size_t last = records * (world.rank() + 1) / world.size();
  std::vector<std::int32_t> own{targets.begin() + static_cast<std::ptrdiff_t>(first),
                                targets.begin() + static_cast<std::ptrdiff_t>(last)};
  const std::span<const float> own_inputs = std::span{inputs}.subspan(first * 12, (last - first) * 12);

  net_type net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.15}};
  options.noise = pg::noise_multiplier{static_cast<long>(world.rank()) == all.differ ? 0.9 : 0.8};
  options.clip = pg::l2_clip_norm{0.5};
  options.divisor = pg::expected_batch_size{45};
  options.learning_rate = pg::learning_rate{0.3};
  options.optimizer = pg::optimizer_kind::adam;
  options.max_batch = pg::max_batch{16};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, world, pg::seeded_generator{3}};
  if (!all.load.empty()) pg::load_checkpoint(trainer, all.load);
  const pg::dataset<float, std::int32_t> mine{own_inputs, own, net_type::input_shape};
  while (static_cast<long>(trainer.steps()) < all.steps) {
    const auto is_now = [&](const told::place& at) {
      return static_cast<long>(world.rank()) == at.rank && static_cast<long>(trainer.steps()) == at.step;
    };
    if (is_now(all.hang)) std::this_thread::sleep_for(std::chrono::hours{1});
    if (is_now(all.kill)) std::raise(SIGKILL);
    if (is_now(all.throws) && !own.empty()) {
      own[0] = 77;  // a record that does not fit, of this rank alone
      trainer.records_changed();
    }
    trainer.step(pg::shard{mine, first});
    if (all.every > 0 && static_cast<long>(trainer.steps()) % all.every == 0) pg::save_checkpoint(trainer, all.save);
  }
  if (!all.save.empty() && all.every == 0) pg::save_checkpoint(trainer, all.save);
  pg::detail::safetensors::checksum hash;
  hash.add(std::as_bytes(std::span{net.parameters()}));
  // Every rank's parameters are the same.
  const std::vector<std::string> hashes = pg::detail::texts_of_all(world, hash.text());
  for (const std::string& each : hashes) {
    if (each != hashes[0]) throw std::runtime_error("ranks have different parameters");
  }
  if (world.rank() == 0)
    std::printf("%s after %zu steps\n", hash.text().c_str(), static_cast<std::size_t>(trainer.steps()));
}

/// main() of a program that calls f(what it is told).
template <class Function>
int run(int argc, char** argv, Function&& f) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    f(read(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}

}  // namespace told_run
