// SPDX-License-Identifier: Apache-2.0
// bench/attacks/released.cpp DIR TRIALS - the attacks of tests/attacks on what the library releases and on its former
// noise: lines "noise, sigma, attack, right, trials". The sums under the noise go to DIR, for peers.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "attacks/victims.hpp"

namespace {

void show(const char* noise, double sigma, const std::vector<attacks::tally>& found) {
  for (const auto& each : found) {
    std::printf("%s\t%g\t%s\t%d\t%d\n", noise, sigma, each.attack.c_str(), each.right, each.trials);
  }
}

template <class Scalar>
void attack(const std::string& directory, int trials, const char* former, const char* ours) {
  using net = victims::mlp<Scalar>;
  const pergrad::host executor;
  for (const double sigma : {100.0, 1e4}) {
    victims::library<net> victim{executor, victims::route::trainer, {.sigma = sigma}};
    victims::weak<net> weak{planted::kind::former, victim};
    const auto seed = static_cast<std::uint64_t>(sigma);
    show(former, sigma, attacks::decide_neighbours(weak, trials, seed));
    show(ours, sigma, attacks::decide_neighbours(victim, trials, seed));
    for (const bool with : {false, true}) {
      const auto& sum = victim.guess(with).sum;
      std::ofstream file{directory + (with ? "/with.f64" : "/without.f64"), std::ios::binary};
      file.write(reinterpret_cast<const char*>(sum.data()), static_cast<std::streamsize>(sum.size() * sizeof(double)));
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: released DIR TRIALS\n");
    return 2;
  }
  const int trials = std::atoi(arguments[2]);
  attack<double>(arguments[1], trials, "pergrad's former noise, double", "**pergrad**, double");
  attack<float>(arguments[1], trials, "pergrad's former noise, float", "**pergrad**, float");
}
