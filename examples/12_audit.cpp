// SPDX-License-Identifier: Apache-2.0
// examples/12_audit.cpp [FOLDER] - audits the trainer, and one with half of the noise that it claims; draws what an
// attacker gets beside what is certified, as FOLDER/audit.svg (out/audit.svg)
//
// The claim: ten steps, every record with probability 0.3, noise of deviation C. Its certified curve is what the ledger
// proves: no attacker may have a true positive rate above it. Exit code 0 if the first trainer is not contradicted and
// the second one is.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/audit.hpp>

#include "common/bounds.hpp"
#include "common/report.hpp"
#include "common/svg.hpp"

namespace pg = pergrad;
namespace audit = pergrad::testing;

namespace {

constexpr std::size_t steps = 10;
constexpr audit::step_claim claim{.clip = 0.7, .noise = 1, .sampling = 0.3};

// A trainer that draws half of the noise it claims.
struct half_of_the_noise {
  auto operator()(const pg::host& exec, auto& network, audit::step_claim what) const {
    what.noise /= 2;
    return audit::audited_dp_sgd<pg::os_keyed_generator>{}(exec, network, what);
  }
  // Nothing goes from one step to the next: one trainer can do all runs, and knows what steps cost after the first.
  static bool is_memoryless() { return true; }
};

struct curve {
  std::string name;
  std::string colour;
  bool dashed;
  std::vector<audit::roc_point> points;
};

// True positive rates over false positive rates.
std::string chart(const std::vector<curve>& curves) {
  namespace svg = example::svg;
  constexpr double size = 460;
  constexpr double left = 90;
  constexpr double top = 70;
  const std::string grey = "stroke=\"#d9d9d9\" stroke-width=\"1\"";
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"600\" viewBox=\"0 0 860 600\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<title>What an attacker gets, and what is certified</title>\n" +
      svg::box({0, 0}, {860, 600}, "fill=\"#ffffff\"") +
      svg::text({left, 40}, "font-size=\"16\" font-weight=\"bold\" fill=\"#222222\"",
                "Was the record there? Attackers of two trainers, and what is certified");
  for (int tick = 0; tick <= 5; ++tick) {
    const double share = tick / 5.0;
    const double x = left + size * share;
    const double y = top + size * (1 - share);
    out += svg::line({left, y}, {left + size, y}, grey) + svg::line({x, top}, {x, top + size}, grey) +
           svg::text({x, top + size + 20}, svg::centred, svg::number(share)) +
           svg::text({left - 10, y + 4}, "text-anchor=\"end\" fill=\"#222222\"", svg::number(share));
  }
  out += svg::text({left + size / 2, top + size + 44}, svg::centred, "false positive rate") +
         "<g transform=\"rotate(-90 36 300)\">" + svg::text({36, 300}, svg::centred, "true positive rate") + "</g>\n";
  double y = top + 20;
  for (const curve& each : curves) {
    std::vector<svg::point> places;
    const std::size_t stride = 1 + each.points.size() / 400;
    for (std::size_t i = 0; i < each.points.size(); ++i) {
      if (i % stride != 0 && i + 1 != each.points.size()) continue;
      places.push_back(
          {left + size * each.points[i].false_positives, top + size * (1 - each.points[i].true_positives)});
    }
    out += svg::curve(places, each.colour, each.dashed);
    out += svg::line({left + size + 24, y - 4}, {left + size + 54, y - 4},
                     "stroke-width=\"2.2\" stroke=\"" + each.colour + "\"" +
                         (each.dashed ? " stroke-dasharray=\"7 4\"" : "")) +
           svg::text({left + size + 62, y}, "fill=\"#222222\"", each.name);
    y += 24;
  }
  return out + "</svg>\n";
}

int run(const std::filesystem::path& folder) {
  // [snippet: audit]
  pg::pld_accountant ledger;  // what the trainer would report of these steps
  ledger.record(pg::poisson_sampling{pg::sampling_probability{claim.sampling}}.event(pg::noise_multiplier{claim.noise}),
                steps);
  const audit::certified_trade_off certified{ledger};
  const pg::host exec;
  const audit::audit_options look{.runs = 3000, .steps = steps, .confidence = 0.999};
  const auto kept = audit::audit_gradients(exec, audit::audited_dp_sgd<pg::os_keyed_generator>{}, claim, look);
  const auto broken = audit::audit_gradients(exec, half_of_the_noise{}, claim, look);
  const bool is_right = kept.contradicts(certified) == nullptr && broken.contradicts(certified) != nullptr;
  // [snippet end]

  const pg::delta delta{1e-5};
  std::printf("claimed:            epsilon at most  %s at delta 1e-05, %zu steps\n",
              example::rounded_up(ledger.epsilon(delta), 3).c_str(), steps);
  const auto report = [&](const char* name, const audit::gradient_audit& seen) {
    const char* const by = seen.contradicts(certified);
    std::printf("%-19s epsilon at least %s; the certified curve is %s%s\n", name,
                example::rounded_down(seen.epsilon(delta).second, 3).c_str(),
                by == nullptr ? "not contradicted" : "contradicted by the score ", by == nullptr ? "" : by);
  };
  report("dp_sgd:", kept);
  report("half of the noise:", broken);

  std::vector<audit::roc_point> bound;
  for (int i = 0; i <= 400; ++i) {
    const double alpha = i / 400.0;
    bound.push_back({alpha, 1 - certified(alpha)});
  }
  const auto seen = [](const audit::gradient_audit& of) { return of.scores().front().worlds.roc(); };
  const std::string picture = chart({{"certified: nobody above this", "#c2410c", true, bound},
                                     {"half of the noise", "#7a1fa2", false, seen(broken)},
                                     {"dp_sgd", "#0b5fa5", false, seen(kept)},
                                     {"guessing", "#888888", false, {{0, 0}, {1, 1}}}});
  const std::filesystem::path file = folder / "audit.svg";
  example::write_file(file.string(), picture);
  std::printf("picture:            %s\n", file.string().c_str());
  return is_right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string given = count > 1 ? arguments[1] : "out";
  if (count > 2 || given.empty() || given.front() == '-') {
    if (given != "--help") std::fprintf(stderr, "audit: takes one folder, and no options\n");
    std::fprintf(given == "--help" ? stdout : stderr, "usage: audit [FOLDER]   writes FOLDER/audit.svg (out)\n");
    return given == "--help" ? 0 : 2;
  }
  try {
    example::check_output_folder(given, {"audit.svg"});
    return run(given);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "audit: %s\n", error.what());
    return 1;
  }
}
