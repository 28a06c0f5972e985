// SPDX-License-Identifier: Apache-2.0
// examples/common/cli.hpp - the options of a training program: names, defaults, ranges, and one clear line for a
// mistake
//
// Numbers are read by std::from_chars and must fill their whole argument and lie in the stated range, so that "1e",
// "0x10", "nan", "-3" and a seed of more than 64 bits are refused instead of being read as something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace example {

/// Whether an argument can be the value of the option before it: there is one (null is behind the last), with something
/// in it, and it is no option itself. A stricter --epsilon is not passed over as the folder that somebody forgot.
[[nodiscard]] inline bool is_value(const char* argument) {
  return argument != nullptr && *argument != '\0' && !std::string_view{argument}.starts_with("--");
}

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
  std::vector<std::string> given;  ///< sorted

  [[nodiscard]] bool has(const std::string& name) const;
};

/// A combination of options that cannot be carried out; ends the program as a bad value does, with exit code 2.
struct bad_value : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The shortest text that reads back as the same number.
[[nodiscard]] std::string shortest(double value);

/// One line whatever the text: control characters, which may come from the command line or a path, become '?'.
[[nodiscard]] std::string one_line(std::string text);

/// What the programs differ in, as far as their options and reports say it.
struct program {
  std::string name;              ///< of the executable
  std::string title;             ///< of its chart
  std::string purpose;           ///< a sentence for --help
  std::string record;            ///< what one record is: "image", "word"
  std::string dataset;           ///< its name
  std::string data_help;         ///< what --data is; empty if the program has no such option
  std::string size;              ///< the public size of the training set, in words
  std::size_t most_batch = 0;    ///< the largest --batch
  bool size_is_private = false;  ///< how many records there are is neither printed nor reported
  double adam_rate = 0.002;      ///< the default of --lr with adam
  double descent_rate = 4.0;     ///< ... and with sgd and momentum
  options defaults;
};

void complain(const program& what, const std::string& message);

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

/// What is wrong with the text of an option, without the option's name.
struct refused : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// Reads a whole text as a number of the range. Throws `refused`.
[[nodiscard]] double parse(const std::string& text, const real_range& allowed);
[[nodiscard]] std::uint64_t parse(const std::string& text, const whole_range& allowed);

/// One option: how it is written, what --help says, and what its text does.
struct entry {
  std::string names;     ///< "lr,--learning-rate": without the first dashes
  std::string fallback;  ///< the default, in words; may be empty
  std::string help;
  std::string type;
  std::function<void(const std::string&)> read;  ///< throws `refused`

  [[nodiscard]] std::string name() const { return names.substr(0, names.find(',')); }
};

// Binds options to variables, all in the same way: strict reading and a default that --help shows. A name may be
// followed by ",--" and another one for the same option.
class binder {
 public:
  template <class Number, class Member>
  void number(const std::string& names, Member& member, range<Number> allowed, const std::string& fallback,
              const std::string& help) {
    entries_.push_back({names, fallback, help, "NUMBER", [&member, allowed](const std::string& text) {
                          member = static_cast<typename value_of<Member>::type>(parse(text, allowed));
                        }});
  }

  void text(const std::string& name, std::string& member, const std::string& kind, const std::string& help);

  void choice(const std::string& name, std::string& member, std::vector<std::string> allowed, const std::string& help);

  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }

 private:
  template <class Member>
  struct value_of {
    using type = Member;
  };
  template <class Member>
  struct value_of<std::optional<Member>> {
    using type = Member;
  };

  std::vector<entry> entries_;
};

}  // namespace cli

/// Reads the command line; `own`, if it is not empty, binds the options that only this program has. Returns the
/// options, or the exit code with which the program should end now: 0 after --help, 2 after a mistake, which has then
/// been explained in one line on stderr.
[[nodiscard]] std::variant<options, int> parse_command_line(int argc, char** argv, const program& what,
                                                            const std::function<void(cli::binder&)>& own);

}  // namespace example
