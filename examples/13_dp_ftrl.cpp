// SPDX-License-Identifier: Apache-2.0
// examples/13_dp_ftrl.cpp [--data FOLDER] [--epochs N] [--out FOLDER] - DP-SGD and correlated noise (BandMF, of the
// DP-FTRL family) train the same CNN on Fashion-MNIST at the same epsilon; draws both accuracies as FOLDER/dp_ftrl.svg
// (out)
//
// What a step's noise does to the parameters, noise of later steps can take back: with C of a few bands, noise is C^-1
// z, and what is added to the parameters until step t is A C^-1 z, which is smaller than A z. A record must not be
// drawn again while the bands of its last step last, so records are drawn in turns of eight groups. Then epsilon counts
// one step in eight, of a probability eight times as large: somewhat more noise a step, and far less of it in the end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/pergrad.hpp>

#include "common/bounds.hpp"
#include "common/epochs_program.hpp"
#include "common/fashion_mnist_data.hpp"
#include "common/report.hpp"
#include "common/svg.hpp"

namespace pg = pergrad;

namespace {

using cnn = pg::network<pg::shape{1, 28, 28},                                                          //
                        pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::tanh,                    //
                        pg::max_pool2d<2, pg::stride<1>>,                                              //
                        pg::conv2d<32, 4, pg::stride<2>>, pg::tanh, pg::max_pool2d<2, pg::stride<1>>,  //
                        pg::flatten, pg::linear<32>, pg::tanh, pg::linear<10>>;

constexpr std::uint64_t records = example::fashion_mnist_constants::dataset_size;  // public
constexpr std::uint64_t batch = 600;
constexpr std::uint64_t steps_an_epoch = records / batch;
constexpr std::uint32_t bands = 8;
constexpr double q = static_cast<double>(batch) / static_cast<double>(records);
const pg::epsilon epsilon{3.0};
const pg::delta delta{1e-5};

struct curve {
  std::string name;
  std::string colour;
  std::vector<double> accuracies;  ///< after every epoch
  double epsilon = 0;
};

/// What both runs are told.
template <class Options>
Options usual(pg::noise_multiplier noise) {
  Options options;
  options.clip = pg::l2_clip_norm{0.1};
  options.noise = noise;
  options.divisor = pg::expected_batch_size{static_cast<double>(batch)};
  options.learning_rate = pg::learning_rate{2.0};
  options.momentum = 0.9;
  options.budget = pg::privacy_budget{epsilon, delta};
  return options;
}

template <class Options>
void train(curve& into, const Options& options, std::uint64_t epochs, const example::labelled_images& train_images,
           const example::labelled_images& test_images) {
  const auto set = [](const example::labelled_images& half) {
    return pg::dataset<float, std::int32_t>{half.images, half.labels, cnn::input_shape};
  };
  const auto train_set = set(train_images);
  const auto test_set = set(test_images);
  const pg::host exec;
  cnn net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    for (std::uint64_t step = 0; step < steps_an_epoch && trainer.within_budget(); ++step) trainer.step(train_set);
    into.accuracies.push_back(pg::evaluate_classifier(exec, net, pg::public_records{test_set}).accuracy);
    std::printf("%-28s epoch %2llu of %llu: test accuracy %.4f\n", into.name.c_str(),
                static_cast<unsigned long long>(epoch), static_cast<unsigned long long>(epochs),
                into.accuracies.back());
    std::fflush(stdout);
  }
  into.epsilon = trainer.epsilon(delta);
}

// Test accuracy over epochs.
std::string chart(const std::vector<curve>& curves) {
  namespace svg = example::svg;
  constexpr double left = 80;
  constexpr double right = 600;
  constexpr double top = 70;
  constexpr double bottom = 500;
  double lowest = 1;
  double highest = 0;
  for (const curve& each : curves) {
    for (const double accuracy : each.accuracies) {
      lowest = std::min(lowest, accuracy);
      highest = std::max(highest, accuracy);
    }
  }
  const double least = std::floor(lowest * 50) / 50;
  const double most = std::max(std::ceil(highest * 50) / 50, least + 0.02);
  const std::size_t epochs = curves.front().accuracies.size();
  const auto at = [&](double epoch, double accuracy) {
    return svg::point{left + (right - left) * epoch / static_cast<double>(epochs),
                      bottom - (bottom - top) * (accuracy - least) / (most - least)};
  };
  const std::string grey = "stroke=\"#d9d9d9\" stroke-width=\"1\"";
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"580\" viewBox=\"0 0 860 580\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<title>Correlated and independent noise</title>\n" +
      svg::box({0, 0}, {860, 580}, "fill=\"#ffffff\"") +
      svg::text({left, 40}, "font-size=\"16\" font-weight=\"bold\" fill=\"#222222\"",
                "Fashion-MNIST at the same epsilon: independent and correlated noise");
  for (double accuracy = least; accuracy <= most + 1e-9; accuracy += 0.02) {
    const svg::point from = at(0, accuracy);
    out += svg::line(from, {right, from.y}, grey) +
           svg::text({left - 10, from.y + 4}, "text-anchor=\"end\" fill=\"#222222\"", svg::number(accuracy));
  }
  for (std::size_t epoch = 0; epoch <= epochs; epoch += std::max<std::size_t>(1, epochs / 10)) {
    const svg::point from = at(static_cast<double>(epoch), least);
    out += svg::line(from, {from.x, top}, grey) + svg::text({from.x, bottom + 20}, svg::centred, std::to_string(epoch));
  }
  out += svg::text({(left + right) / 2, bottom + 44}, svg::centred, "epochs") + "<g transform=\"rotate(-90 30 285)\">" +
         svg::text({30, 285}, svg::centred, "test accuracy") + "</g>\n";
  double y = top + 20;
  for (const curve& each : curves) {
    std::vector<svg::point> places;
    for (std::size_t i = 0; i < each.accuracies.size(); ++i) {
      places.push_back(at(static_cast<double>(i + 1), each.accuracies[i]));
    }
    out += svg::curve(places, each.colour, false) +
           svg::line({right + 20, y - 4}, {right + 50, y - 4}, "stroke-width=\"2.2\" stroke=\"" + each.colour + "\"") +
           svg::text({right + 58, y}, "fill=\"#222222\"", each.name) +
           svg::text({right + 58, y + 18}, "fill=\"#222222\" font-size=\"12\"",
                     svg::number(each.accuracies.back(), 4) + ", epsilon " + example::rounded_up(each.epsilon, 3));
    y += 48;
  }
  return out + "</svg>\n";
}

int run(const std::string& data, std::uint64_t epochs, const std::filesystem::path& folder) {
  const auto train_images = example::load_fashion_mnist(data, "train");
  const auto test_images = example::load_fashion_mnist(data, "t10k");
  const std::uint64_t steps = epochs * steps_an_epoch;

  curve independent{"independent noise", "#0b5fa5", {}};
  curve correlated{"correlated noise, " + std::to_string(bands) + " bands", "#c2410c", {}};
  {
    const pg::sampling_probability each_step{q};
    auto options = usual<pg::dp_sgd_options>(pg::calibrate_noise(epsilon, delta, each_step, steps));
    options.sampling = pg::poisson_sampling{each_step};
    train(independent, options, epochs, train_images, test_images);
  }
  {
    // [snippet: correlated]
    // A record's turn comes every eighth step, and then it is drawn with eight times the probability.
    const pg::sampling_probability in_its_turn{bands * q};
    const std::uint64_t turns = (steps + bands - 1) / bands;
    auto options = usual<pg::dp_options<pg::cyclic_poisson_sampling, pg::banded_noise>>(
        pg::calibrate_noise(epsilon, delta, in_its_turn, turns));
    options.sampling = pg::cyclic_poisson_sampling{in_its_turn, pg::round_steps{bands}};
    options.correlation = pg::optimal_banded_noise({.steps = steps, .momentum = options.momentum}, bands);
    // [snippet end]
    train(correlated, options, epochs, train_images, test_images);
  }

  const std::filesystem::path file = folder / "dp_ftrl.svg";
  for (const curve& each : {independent, correlated}) {
    std::printf("%-28s test accuracy %.4f at epsilon %s, delta 1e-05\n", each.name.c_str(), each.accuracies.back(),
                example::rounded_up(each.epsilon, 4).c_str());
  }
  example::write_file(file.string(), chart({independent, correlated}));
  std::printf("picture: %s\n", file.string().c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return example::run_epochs_program(count, arguments, "dp_ftrl", "10", run); }
