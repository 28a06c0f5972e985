// SPDX-License-Identifier: Apache-2.0
// examples/common/cli.cpp - reads the command line with CLI11
#include "cli.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>

namespace example {
namespace cli {
namespace {

template <class Number>
Number parse_number(const std::string& text, const range<Number>& allowed) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool whole_argument = stop == end && !text.empty();
  if ((error != std::errc{} && error != std::errc::result_out_of_range) || !whole_argument ||
      (error == std::errc{} && !allowed.holds(value)) || error == std::errc::result_out_of_range) {
    const char* const kind = std::is_same_v<Number, double> ? "a number" : "a whole number";
    throw refused(std::string("needs ") + kind + " of " + allowed.text() + ", got '" + text + "'");
  }
  return value;
}

}  // namespace

double parse(const std::string& text, const real_range& allowed) { return parse_number(text, allowed); }
std::uint64_t parse(const std::string& text, const whole_range& allowed) { return parse_number(text, allowed); }

void binder::text(const std::string& name, std::string& member, const std::string& kind, const std::string& help) {
  entries_.push_back({name, member, help, kind, [&member](const std::string& text) { member = text; }});
}

void binder::choice(const std::string& name, std::string& member, std::vector<std::string> allowed,
                    const std::string& help) {
  std::ranges::sort(allowed);
  std::string list;
  for (const std::string& word : allowed) {
    list += (list.empty() ? "" : "|") + word;
  }
  entries_.push_back({name, member, help, list, [&member, allowed = std::move(allowed), list](const std::string& text) {
                        if (std::ranges::find(allowed, text) == allowed.end()) {
                          throw refused("needs one of " + list + ", got '" + text + "'");
                        }
                        member = text;
                      }});
}

}  // namespace cli

bool options::has(const std::string& name) const { return std::ranges::find(given, name) != given.end(); }

std::string shortest(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string one_line(std::string text) {
  for (char& character : text) {
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) {
      character = '?';
    }
  }
  return text;
}

void complain(const program& what, const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", what.name.c_str(), one_line(message).c_str());
}

namespace {

void add_options(CLI::App& app, const cli::binder& bind, options& chosen) {
  for (const cli::entry& each : bind.entries()) {
    const auto read = [&each, &chosen](const std::string& text) {
      try {
        if (!is_value(text.c_str())) throw cli::refused("needs a value, got '" + text + "'");
        each.read(text);
      } catch (const cli::refused& error) {
        throw CLI::ValidationError("--" + each.name(), error.what());
      }
      chosen.given.insert(std::ranges::lower_bound(chosen.given, each.name()), each.name());
    };
    CLI::Option* const option = app.add_option_function<std::string>("--" + each.names, read, each.help);
    option->type_name(each.type);
    if (!each.fallback.empty()) {
      option->default_str(each.fallback);
    }
  }
}

}  // namespace

std::variant<options, int> parse_command_line(int argc, char** argv, const program& what,
                                              const std::function<void(cli::binder&)>& own) {
  options chosen = what.defaults;
  chosen.threads = std::max(1U, std::thread::hardware_concurrency());
  CLI::App app{what.purpose, what.name};
  app.get_formatter()->column_width(34);
  cli::binder bind;
  bind.number("epsilon", chosen.epsilon, cli::real_range{0, 1000, true}, shortest(chosen.epsilon),
              "privacy budget; training never spends more");
  bind.number("delta", chosen.delta, cli::real_range{0, 1, true, true}, shortest(chosen.delta),
              "the delta of (epsilon, delta)");
  bind.number("epochs", chosen.epochs, cli::whole_range{1, 10'000}, std::to_string(chosen.epochs),
              "expected passes over the training set");
  bind.number("lr,--learning-rate", chosen.learning_rate, cli::real_range{0, 1e6, true},
              shortest(what.descent_rate) + "; adam " + shortest(what.adam_rate), "learning rate");
  bind.number("batch", chosen.batch, cli::whole_range{1, what.most_batch}, std::to_string(chosen.batch),
              "expected batch size; each record is drawn with probability BATCH/" + what.size);
  bind.number("clip", chosen.clip, cli::real_range{1e-6, 1e6}, shortest(chosen.clip),
              "l2 norm to which each gradient is clipped");
  bind.number("noise-multiplier", chosen.noise_multiplier, cli::real_range{0.1, 1e6}, "",
              "fixes sigma, so that epsilon follows from it; without it sigma is calibrated to --epsilon");
  bind.choice("optimizer", chosen.optimizer, {"sgd", "momentum", "adam"}, "how noised gradients become steps");
  bind.number("momentum", chosen.momentum, cli::real_range{0, 1, false, true}, shortest(chosen.momentum),
              "of the optimizer 'momentum'");
  if (own) {
    own(bind);
  }
  bind.number("seed", chosen.seed, cli::whole_range{0, std::numeric_limits<std::uint64_t>::max()}, "",
              "reproducible run, NOT PRIVATE: who knows the seed can subtract the noise");
  bind.number("threads", chosen.threads, cli::whole_range{1, 1024}, "all", "any number gives the same bits");
  if (!what.data_help.empty()) {
    bind.text("data", chosen.data, "DIR", what.data_help);
  }
  bind.text("out", chosen.out, "DIR", "folder for report.json and report.svg");
  add_options(app, bind, chosen);
  app.footer(
      "With --noise-multiplier alone, all epochs are run and the epsilon they cost is printed. With --noise-multiplier "
      "and\n"
      "--epsilon, training ends before the step that would exceed the budget.\n"
      "Ctrl-C, a closed terminal or a closed pipe finishes the step, writes the reports so far and ends with exit code "
      "130;\n"
      "the third Ctrl-C ends at once. Before the first step nothing is written.\n"
      "Exit codes: 0 done, 1 data or output folder unusable, 2 bad option, 3 no GPU for a program that needs one,\n"
      "130 interrupted.");
  try {
    for (int i = 1; i < argc; ++i) {  // CLI11 takes the next argument for the value of "--out="
      const std::string_view argument = argv[i];
      if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
        throw CLI::ValidationError(argv[i], "needs a value");
      }
    }
    app.parse(argc, argv);
    if (chosen.has("momentum") && chosen.optimizer != "momentum") {
      throw CLI::ValidationError("--momentum", "means nothing with --optimizer " + chosen.optimizer);
    }
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    complain(what, std::string(error.what()) + " (--help lists the options)");
    return 2;
  }
  if (chosen.optimizer != "momentum") {
    chosen.momentum = 0.0;
  }
  if (!chosen.has("lr")) {
    chosen.learning_rate = chosen.optimizer == "adam" ? what.adam_rate : what.descent_rate;
  }
  return chosen;
}

}  // namespace example
