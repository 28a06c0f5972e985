// SPDX-License-Identifier: Apache-2.0
// examples/common/cli.hpp - the options of a training program: names, defaults, ranges, and one clear line for a
// mistake
//
// Numbers are read by std::from_chars and must fill their whole argument and lie in the stated range, so that "1e",
// "0x10", "nan", "-3" and a seed of more than 64 bits are refused instead of being read as something else.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <variant>
#include <vector>

namespace example {

/// Everything a user can choose in every program. `given` holds the names of the options that were on the command line.
struct options {
  double epsilon = 3.0;
  double delta = 1e-5;
  std::size_t epochs = 40;
  double learning_rate = 4.0;
  std::size_t batch = 2048;
  double clip = 0.1;
  std::optional<double> noise_multiplier;
  std::string optimizer = "momentum";
  double momentum = 0.9;
  std::optional<std::uint64_t> seed;
  std::size_t threads = 1;
  std::string data;
  std::string out = "out";
  std::set<std::string> given;

  [[nodiscard]] bool has(const std::string& name) const { return given.contains(name); }
};

/// A combination of options that cannot be carried out; ends the program as a bad value does, with exit code 2.
struct bad_value : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The shortest text that reads back as the same number.
[[nodiscard]] inline std::string shortest(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

/// One line whatever the text: control characters, which may come from the command line or a path, become '?'.
[[nodiscard]] inline std::string one_line(std::string text) {
  for (char& character : text) {
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) {
      character = '?';
    }
  }
  return text;
}

/// What the programs differ in, as far as their options and reports say it.
struct program {
  std::string name;            ///< of the executable
  std::string title;           ///< of its chart
  std::string purpose;         ///< a sentence for --help
  std::string record;          ///< what one record is: "image", "word"
  std::string dataset;         ///< its name
  std::string data_help;       ///< what --data is
  std::string size;            ///< the public size of the training set, in words
  std::size_t most_batch = 0;  ///< the largest --batch
  double adam_rate = 0.002;    ///< the default of --lr with adam
  double descent_rate = 4.0;   ///< ... and with sgd and momentum
  options defaults;
};

inline void complain(const program& what, const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", what.name.c_str(), one_line(message).c_str());
}

namespace cli {

// A closed or half-open interval of numbers and how to say it.
template <class Number>
struct range {
  Number low, high;
  bool open_low = false, open_high = false;

  [[nodiscard]] bool holds(Number value) const {  // false for NaN
    return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
  }
  [[nodiscard]] static std::string say(double value) { return shortest(value); }
  [[nodiscard]] static std::string say(std::uint64_t value) { return std::to_string(value); }
  [[nodiscard]] std::string text() const {
    return std::string(open_low ? "more than " : "at least ") + say(low) + " and " +
           (open_high ? "less than " : "at most ") + say(high);
  }
};
using real_range = range<double>;
using whole_range = range<std::uint64_t>;

template <class Number>
[[nodiscard]] Number parse(const std::string& name, const std::string& text, const range<Number>& allowed) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool whole_argument = stop == end && !text.empty();
  if ((error != std::errc{} && error != std::errc::result_out_of_range) || !whole_argument ||
      (error == std::errc{} && !allowed.holds(value)) || error == std::errc::result_out_of_range) {
    const char* const kind = std::is_same_v<Number, double> ? "a number" : "a whole number";
    throw CLI::ValidationError("--" + name,
                               std::string("needs ") + kind + " of " + allowed.text() + ", got '" + text + "'");
  }
  return value;
}

// Binds options to variables, all in the same way: strict reading, a default that --help shows, and a note that the
// option was given. A name may be followed by ",--" and another one for the same option.
class binder {
 public:
  binder(CLI::App& app, options& chosen) : app_(app), chosen_(chosen) {}

  template <class Number, class Member>
  void number(const std::string& names, Member& member, range<Number> allowed, const std::string& fallback,
              const std::string& help) {
    add(names, fallback, help)->type_name("NUMBER");
    readers_.emplace_back([name = first(names), &member, allowed](const std::string& text) {
      member = static_cast<typename value_of<Member>::type>(parse(name, text, allowed));
    });
  }

  void text(const std::string& name, std::string& member, const std::string& kind, const std::string& help) {
    add(name, member, help)->type_name(kind);
    readers_.emplace_back([name, &member](const std::string& text) {
      if (text.empty()) {
        throw CLI::ValidationError("--" + name, "must not be empty");
      }
      member = text;
    });
  }

  void choice(const std::string& name, std::string& member, const std::set<std::string>& allowed,
              const std::string& help) {
    std::string list;
    for (const std::string& word : allowed) {
      list += (list.empty() ? "" : "|") + word;
    }
    add(name, member, help)->type_name(list);
    readers_.emplace_back([name, &member, allowed, list](const std::string& text) {
      if (!allowed.contains(text)) {
        throw CLI::ValidationError("--" + name, "needs one of " + list + ", got '" + text + "'");
      }
      member = text;
    });
  }

 private:
  template <class Member>
  struct value_of {
    using type = Member;
  };
  template <class Member>
  struct value_of<std::optional<Member>> {
    using type = Member;
  };

  [[nodiscard]] static std::string first(const std::string& names) { return names.substr(0, names.find(',')); }

  CLI::Option* add(const std::string& names, const std::string& fallback, const std::string& help) {
    const std::size_t index = readers_.size();
    const std::string name = first(names);
    CLI::Option* const option = app_.add_option_function<std::string>(
        "--" + names,
        [this, index, name](const std::string& text) {
          readers_.at(index)(text);
          chosen_.given.insert(name);
        },
        help);
    return fallback.empty() ? option : option->default_str(fallback);
  }

  CLI::App& app_;
  options& chosen_;
  std::vector<std::function<void(const std::string&)>> readers_;
};

}  // namespace cli

/// Reads the command line; `own`, if it is not empty, binds the options that only this program has. Returns the
/// options, or the exit code with which the program should end now: 0 after --help, 2 after a mistake, which has then
/// been explained in one line on stderr.
[[nodiscard]] inline std::variant<options, int> parse_command_line(int argc, char** argv, const program& what,
                                                                   const std::function<void(cli::binder&)>& own) {
  options chosen = what.defaults;
  chosen.threads = std::max(1U, std::thread::hardware_concurrency());
  CLI::App app{what.purpose, what.name};
  app.get_formatter()->column_width(34);
  cli::binder bind{app, chosen};
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
  bind.text("data", chosen.data, "DIR", what.data_help);
  bind.text("out", chosen.out, "DIR", "folder for report.json and report.svg");
  app.footer(
      "With --noise-multiplier alone, all epochs are run and the epsilon they cost is printed. With --noise-multiplier "
      "and\n"
      "--epsilon, training ends before the step that would exceed the budget.\n"
      "Ctrl-C finishes the step, writes the reports so far and ends with exit code 130; the third Ctrl-C ends at "
      "once.\n"
      "Exit codes: 0 done, 1 data or output folder unusable, 2 bad option, 130 interrupted.");
  try {
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
