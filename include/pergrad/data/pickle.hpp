// SPDX-License-Identifier: Apache-2.0
// pergrad/data/pickle.hpp - the lists of integers in a pickled NumPy object array, and nothing else
//
// A pickle is a program for a stack machine (Python, Lib/pickletools.py documents every opcode). Python's own reader
// calls whatever functions the program names; this one executes nothing. It knows the opcodes that NumPy's arrays of
// lists of ints consist of in protocols 2 to 5, recognises the names of four functions and classes by their spelling,
// and checks that they are put together in the one way that describes such an array:
//
//   array  = BUILD(_reconstruct(ndarray, (0,), 'b'), (1, (count,), type, False, [list, ...]))
//   type   = BUILD(dtype('O8', ...), (...))
//
// Everything else is an error. Memory is bounded by the count of lists that the caller expects and by the size of the
// file: there are no more lists, memo entries and stack values than an honest file has, and the ids that are read in
// total, where a hostile memo might repeat one long list, are no more than the file has bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pergrad/data/idx.hpp>
#include <pergrad/data/sequences.hpp>

namespace pergrad::inline v0_1::detail::pickle {

enum class kind : std::uint8_t { none, boolean, number, text, name, tuple, list, dtype, array };

/// What the stack holds: a number, or for the kinds that have content its place in a store. Lists may refer to lists,
/// so values own nothing, and no chain of destructors can be deep.
struct value {
  kind what = kind::none;
  std::int64_t number = 0;
};

enum class known_name : std::int64_t { reconstruct, ndarray, dtype, encode };

class list_reader {
 public:
  /// `bytes` are a pickle that starts at byte `offset` of what `name` calls in errors.
  list_reader(std::span<const std::uint8_t> bytes, std::size_t offset, std::string_view name, std::size_t count)
      : bytes_{bytes}, offset_{offset}, name_{name}, count_{count} {}

  /// The `count` lists. Throws std::runtime_error naming the file, the offset and what was found there.
  [[nodiscard]] id_sequences read() {
    if (byte() != 0x80 || byte() < 2 || bytes_[1] > 5) {
      fail("expected a pickle of protocol 2 to 5");
    }
    while (step()) {
    }
    if (place_ != bytes_.size()) {
      fail("found " + std::to_string(bytes_.size() - place_) + " bytes after the end of the pickle");
    }
    if (stack_.size() != 1 || stack_[0].what != kind::array || !built_) {
      fail("the pickle is not one NumPy array");
    }
    return ids_of(groups_[elements_]);
  }

 private:
  static constexpr std::size_t slack = 64;  // lists, tuples and memo entries besides those of the elements
  static constexpr std::size_t deepest = 1U << 16U;
  static constexpr std::size_t longest_text = 256;

  [[noreturn]] void fail(const std::string& what) const { idx::throw_error(name_, offset_ + place_, what); }
  [[nodiscard]] std::span<const std::uint8_t> take(std::uint64_t count) {
    if (bytes_.size() - place_ < count) {
      fail("the pickle ends early, expected " + std::to_string(count) + " more bytes");
    }
    const auto taken = bytes_.subspan(place_, static_cast<std::size_t>(count));
    place_ += taken.size();
    return taken;
  }
  [[nodiscard]] std::uint8_t byte() { return take(1)[0]; }
  [[nodiscard]] std::uint64_t unsigned_number(std::size_t width) {
    const auto taken = take(width);
    std::uint64_t number = 0;
    for (std::size_t place = width; place > 0; --place) {
      number = (number << 8U) | taken[place - 1];
    }
    return number;
  }
  [[nodiscard]] std::int64_t unsigned_small(std::size_t width) {  // fewer than 8 bytes
    return static_cast<std::int64_t>(unsigned_number(width));
  }
  [[nodiscard]] std::int64_t signed_number(std::size_t width) {
    if (width == 0 || width > 8) {
      fail("found an integer of " + std::to_string(width) + " bytes, expected 1 to 8");
    }
    const auto unused = static_cast<unsigned>(64 - 8 * width);
    return static_cast<std::int64_t>(unsigned_number(width) << unused) >> unused;
  }
  [[nodiscard]] std::string text(std::uint64_t length) {
    if (length > longest_text) {
      fail("found a string of " + std::to_string(length) + " bytes, expected none of more than 256");
    }
    const auto taken = take(length);
    return {taken.begin(), taken.end()};
  }
  [[nodiscard]] std::string line() {
    std::string found;
    for (std::uint8_t next = byte(); next != '\n'; next = byte()) {
      found += static_cast<char>(next);
      if (found.size() > longest_text) {
        fail("found a line of more than 256 bytes");
      }
    }
    return found;
  }

  void push(kind what, std::int64_t number = 0) { push(value{what, number}); }
  void push(value pushed) {
    if (stack_.size() >= deepest) {
      fail("more than 65536 values on the stack");
    }
    stack_.push_back(pushed);
  }
  void push_text(std::string found) {
    if (texts_.size() >= slack) {
      fail("found more than 64 strings, expected lists of ints");
    }
    push(kind::text, static_cast<std::int64_t>(texts_.size()));
    texts_.push_back(std::move(found));
  }
  void push_group(kind what, std::vector<value> items) {
    if (groups_.size() >= count_ + slack) {
      fail("found more lists than the " + std::to_string(count_) + " that were expected");
    }
    push(what, static_cast<std::int64_t>(groups_.size()));
    groups_.push_back(std::move(items));
  }
  [[nodiscard]] value pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
      fail("the pickle takes more from the stack than is there");
    }
    const value popped = stack_.back();
    stack_.pop_back();
    return popped;
  }
  [[nodiscard]] std::vector<value> pop_count(std::size_t count) {
    std::vector<value> popped(count);
    for (; count > 0; --count) {
      popped[count - 1] = pop();
    }
    return popped;
  }
  [[nodiscard]] std::vector<value> pop_to_mark() {
    if (marks_.empty()) {
      fail("there is no mark on the stack");
    }
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<value> popped(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return popped;
  }
  [[nodiscard]] value& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
      fail("there is nothing on the stack");
    }
    return stack_.back();
  }
  [[nodiscard]] const std::string& text_of(value from) const { return texts_[static_cast<std::size_t>(from.number)]; }
  [[nodiscard]] std::vector<value>& group_of(value from) { return groups_[static_cast<std::size_t>(from.number)]; }

  void remember(std::uint64_t index) {
    if (index >= count_ + 2 * slack) {
      fail("found memo entry " + std::to_string(index) + ", expected at most " + std::to_string(count_ + 2 * slack));
    }
    const value remembered = top();
    if (memo_.size() <= index) {
      memo_.resize(static_cast<std::size_t>(index) + 1, value{kind::none, not_set});
    }
    memo_[static_cast<std::size_t>(index)] = remembered;
  }
  void recall(std::uint64_t index) {
    if (index >= memo_.size() || memo_[static_cast<std::size_t>(index)].number == not_set) {
      fail("memo entry " + std::to_string(index) + " has not been set");
    }
    push(memo_[static_cast<std::size_t>(index)]);
  }

  // The opcodes -------------------------------------------------------------------------------------------------------
  // Executes one; false after STOP.
  [[nodiscard]] bool step() {
    const std::uint8_t code = byte();
    // clang-format off
    switch (code) {
      case '.': return false;                                                 // STOP
      case '(': push_mark(); break;                                           // MARK
      case 0x95: check_frame(unsigned_number(8)); break;                      // FRAME
      case 'N': push(kind::none); break;                                      // NONE
      case 0x88: push(kind::boolean, 1); break;                               // NEWTRUE
      case 0x89: push(kind::boolean, 0); break;                               // NEWFALSE
      case 'K': push(kind::number, unsigned_small(1)); break;                 // BININT1
      case 'M': push(kind::number, unsigned_small(2)); break;                 // BININT2
      case 'J': push(kind::number, signed_number(4)); break;                  // BININT
      case 0x8a: push(kind::number, signed_number(byte())); break;            // LONG1
      case 'X':                                                               // BINUNICODE
      case 'T':                                                               // BINSTRING
      case 'B': push_text(text(unsigned_number(4))); break;                   // BINBYTES
      case 0x8c:                                                              // SHORT_BINUNICODE
      case 'U':                                                               // SHORT_BINSTRING
      case 'C': push_text(text(byte())); break;                               // SHORT_BINBYTES
      case ']': push_group(kind::list, {}); break;                            // EMPTY_LIST
      case 'a': append(pop_count(1)); break;                                  // APPEND
      case 'e': append(pop_to_mark()); break;                                 // APPENDS
      case ')': push_group(kind::tuple, {}); break;                           // EMPTY_TUPLE
      case 0x85: push_group(kind::tuple, pop_count(1)); break;                // TUPLE1
      case 0x86: push_group(kind::tuple, pop_count(2)); break;                // TUPLE2
      case 0x87: push_group(kind::tuple, pop_count(3)); break;                // TUPLE3
      case 't': push_group(kind::tuple, pop_to_mark()); break;                // TUPLE
      case 'q': remember(byte()); break;                                      // BINPUT
      case 'r': remember(unsigned_number(4)); break;                          // LONG_BINPUT
      case 0x94: remember(memo_.size()); break;                               // MEMOIZE
      case 'h': recall(byte()); break;                                        // BINGET
      case 'j': recall(unsigned_number(4)); break;                            // LONG_BINGET
      case 'c': global_from_lines(); break;                                   // GLOBAL
      case 0x93: global_from_stack(); break;                                  // STACK_GLOBAL
      case 'R': reduce(); break;                                              // REDUCE
      case 'b': build(); break;                                               // BUILD
      default:
        --place_;
        fail("found opcode " + idx::hex_byte(code) + ", which no NumPy array of lists of ints has");
    }
    // clang-format on
    return true;
  }

  void push_mark() {
    if (marks_.size() >= deepest) {
      fail("more than 65536 marks on the stack");
    }
    marks_.push_back(stack_.size());
  }
  void check_frame(std::uint64_t size) const {
    if (size > bytes_.size() - place_) {
      fail("a frame of " + std::to_string(size) + " bytes reaches behind the end of the pickle");
    }
  }
  void append(const std::vector<value>& items) {
    const value to = top();
    if (to.what != kind::list) {
      fail("expected a list to append to");
    }
    for (const value item : items) {
      if (item.what != kind::number && item.what != kind::list) {
        fail("found something other than ints and lists in a list");
      }
    }
    group_of(to).insert(group_of(to).end(), items.begin(), items.end());
  }
  void global_from_lines() {
    const std::string from = line();
    push_name(from, line());
  }
  void global_from_stack() {
    const value name = pop();
    const value from = pop();
    if (name.what != kind::text || from.what != kind::text) {
      fail("expected two strings that name a class");
    }
    push_name(text_of(from), text_of(name));
  }
  void push_name(const std::string& from, const std::string& name) {
    const auto known = [&] {
      if ((from == "numpy.core.multiarray" || from == "numpy._core.multiarray") && name == "_reconstruct") {
        return known_name::reconstruct;
      }
      if (from == "numpy" && name == "ndarray") {
        return known_name::ndarray;
      }
      if (from == "numpy" && name == "dtype") {
        return known_name::dtype;
      }
      if (from == "_codecs" && name == "encode") {
        return known_name::encode;
      }
      fail("the pickle asks for '" + printable(from) + "." + printable(name) +
           "', which is not part of a NumPy array of lists; nothing of it was executed");
    }();
    push(kind::name, static_cast<std::int64_t>(known));
  }
  [[nodiscard]] static std::string printable(std::string from) {
    std::replace_if(
        from.begin(), from.end(), [](char character) { return character < ' ' || character > '~'; }, '?');
    return from;
  }
  void reduce() {
    const value arguments = pop();
    const value called = pop();
    if (called.what != kind::name || arguments.what != kind::tuple) {
      fail("expected the call of a known function");
    }
    const std::vector<value> given = group_of(arguments);
    const auto is = [&](std::size_t index, kind what) { return index < given.size() && given[index].what == what; };
    switch (static_cast<known_name>(called.number)) {
      case known_name::reconstruct:
        if (given.size() == 3 && is(0, kind::name) &&
            given[0].number == static_cast<std::int64_t>(known_name::ndarray) && is(1, kind::tuple) && !made_) {
          made_ = true;
          push(kind::array);
          return;
        }
        break;
      case known_name::dtype:
        if (is(0, kind::text) && (text_of(given[0]) == "O8" || text_of(given[0]) == "O")) {
          push(kind::dtype);
          return;
        }
        break;
      case known_name::encode:
        if (given.size() == 2 && is(0, kind::text)) {
          push(given[0]);
          return;
        }
        break;
      case known_name::ndarray:
        break;
    }
    fail("expected the arguments of a NumPy array of Python objects");
  }
  void build() {
    const value state = pop();
    const value object = top();
    if (state.what == kind::tuple && object.what == kind::dtype) {
      return;  // byte order, alignment and flags of the type of references: nothing that matters here
    }
    if (state.what != kind::tuple || object.what != kind::array || built_) {
      fail("expected the state of one NumPy array");
    }
    const std::vector<value>& parts = group_of(state);
    constexpr std::array<kind, 5> expected{kind::number, kind::tuple, kind::dtype, kind::boolean, kind::list};
    for (std::size_t index = 0; index < expected.size(); ++index) {
      if (parts.size() != expected.size() || parts[index].what != expected[index]) {
        fail("expected the state (version, shape, type, order, list) of a NumPy array");
      }
    }
    const std::vector<value>& shape = group_of(parts[1]);
    const std::size_t found = group_of(parts[4]).size();
    if (parts[0].number != 1 || shape.size() != 1 || shape[0].what != kind::number ||
        shape[0].number != static_cast<std::int64_t>(found) || found != count_) {
      fail("found an array of " + std::to_string(found) + " elements, expected 1 dimension of " +
           std::to_string(count_));
    }
    elements_ = static_cast<std::size_t>(parts[4].number);
    built_ = true;
  }

  [[nodiscard]] id_sequences ids_of(const std::vector<value>& elements) {
    id_sequences made;
    if (elements.size() != count_) {
      fail("the array's list changed after it was given");
    }
    made.ends.reserve(elements.size());
    for (std::size_t index = 0; index < elements.size(); ++index) {
      if (elements[index].what != kind::list) {
        fail("element " + std::to_string(index) + " is not a list");
      }
      const std::vector<value>& items = group_of(elements[index]);
      if (items.size() > bytes_.size() - made.ids.size()) {
        fail("the lists repeat each other to more ids than the file has bytes");
      }
      for (const value item : items) {
        if (item.what != kind::number || item.number < 0 || item.number > std::numeric_limits<std::int32_t>::max()) {
          fail("element " + std::to_string(index) + " is not a list of ids: found " +
               (item.what == kind::number ? std::to_string(item.number) : "a list in it"));
        }
        made.ids.push_back(static_cast<std::int32_t>(item.number));
      }
      made.ends.push_back(made.ids.size());
    }
    return made;
  }

  static constexpr std::int64_t not_set = std::numeric_limits<std::int64_t>::min();

  std::span<const std::uint8_t> bytes_;
  std::size_t offset_;
  std::string_view name_;
  std::size_t count_;
  std::size_t place_ = 0;
  std::vector<value> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack where a MARK was set
  std::vector<value> memo_;
  std::vector<std::string> texts_;
  std::vector<std::vector<value>> groups_;  // tuples and lists
  std::size_t elements_ = 0;
  bool made_ = false;
  bool built_ = false;
};

}  // namespace pergrad::inline v0_1::detail::pickle
