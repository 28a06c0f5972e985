// SPDX-License-Identifier: Apache-2.0
// examples/fashion_mnist_mpi.cpp - trains a CNN on Fashion-MNIST by several processes, on one machine or many
//
//   sh examples/run.sh --example fashion_mnist_mpi --ranks 2
//
// Each rank of MPI keeps its own share of the training images; the steps, the ledger and the parameters are those of
// one process that has all of them, bit for bit, however many ranks there are (docs/scaling.md). Every rank measures on
// the public test images, and rank 0 speaks for all.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include <pergrad.hpp>
#include <pergrad/mpi.hpp>

#include "common/cli.hpp"
#include "common/fashion_mnist.hpp"
#include "common/fashion_mnist_data.hpp"
#include "common/report.hpp"
#include "common/training.hpp"

namespace pg = pergrad;

namespace {

using cnn = pg::network<pg::shape{1, 28, 28}, pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::tanh,
                        pg::max_pool2d<2, pg::stride<1>>, pg::conv2d<32, 4, pg::stride<2>>, pg::tanh,
                        pg::max_pool2d<2, pg::stride<1>>, pg::flatten, pg::linear<32>, pg::tanh, pg::linear<10>>;
using images = pg::dataset<float, std::int32_t>;

/// The images that are this rank's: as many as each other rank's, but for one.
pg::shard<float, std::int32_t> own_share(const example::labelled_images& all, const pg::mpi_ranks& world) {
  const std::size_t count = all.labels.size();
  const std::size_t first = count * world.rank() / world.size();
  const std::size_t last = count * (world.rank() + 1) / world.size();
  constexpr std::size_t width = cnn::input_shape.size();
  const std::span<const float> pixels{all.images};
  const std::span<const std::int32_t> labels{all.labels};
  return {images{pixels.subspan(first * width, (last - first) * width), labels.subspan(first, last - first),
                 cnn::input_shape},
          first};
}

template <class Generator>
void train(Generator generator, const pg::dp_sgd_options& options, const pg::host& exec, cnn& net,
           example::run_report& report, const pg::shard<float, std::int32_t>& mine, const pg::mpi_ranks& world,
           const std::function<pg::classifier_result()>& test) {
  // [snippet: ranks]
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, world, std::move(generator)};
  // trainer.step(mine), on every rank alike: mine is pg::shard{records, number of the first one}
  // [snippet end]
  example::run_of run{trainer, mine, exec, [&world] {  // a rank that stopped by itself would leave the others waiting
                        char stops = example::interrupted() ? 1 : 0;
                        world.broadcast(std::as_writable_bytes(std::span{&stops, 1}), 0);
                        return stops != 0;
                      }};
  example::train_for_epochs(run, report, test);
}

void run(example::run_report& report, const pg::mpi_ranks& world) {
  report.is_written = world.rank() == 0;
  report.network = "CNN, tanh";
  example::describe_fashion_mnist(report);
  report.executor = std::to_string(world.size()) + (world.size() == 1 ? " rank with " : " ranks with ") +
                    example::describe_executor<pg::host>(report.chosen);
  report.parameters = cnn::parameter_count;
  const pg::dp_sgd_options options = example::private_options(report);
  const auto train_images = example::load_fashion_mnist(report.chosen.data, "train");
  const auto test_images = example::load_fashion_mnist(report.chosen.data, "t10k");
  const images test_set{test_images.images, test_images.labels, cnn::input_shape};
  example::begin_report(report, train_images.labels.size(), test_set.size());

  const pg::host exec{pg::threads{report.chosen.threads}};
  cnn net{exec, pg::kaiming_uniform{report.initial_weights_seed}};
  const auto mine = own_share(train_images, world);
  const auto test = [&] { return pg::evaluate_classifier(exec, net, pg::public_records{test_set}); };
  if (report.chosen.seed) {
    train(pg::seeded_generator{*report.chosen.seed}, options, exec, net, report, mine, world, test);
  } else {
    train(pg::os_keyed_generator{}, options, exec, net, report, mine, world, test);
  }
  if (report.epochs.empty()) return;
  report.confusion = pg::confuse(exec, net, pg::public_records{test_set}, report.labels.size());
  example::end_report(report);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  {
    const pg::mpi_ranks world{MPI_COMM_WORLD};
    if (world.rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
    const auto what = example::fashion_mnist_program(
        "fashion_mnist_mpi", "Fashion-MNIST with DP-SGD on several ranks",
        "Trains a CNN of 26,010 parameters on Fashion-MNIST with differentially private SGD, by several processes.");
    status = example::run_program(
        argc, argv, what, [](example::cli::binder&) {}, [&](example::run_report& report) { run(report, world); });
  }
  // What only this rank has met, such as a folder that cannot be written, the others would wait for.
  if (status == 1) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
