// SPDX-License-Identifier: Apache-2.0
// examples/common/epochs_program.hpp - main() of programs that train on Fashion-MNIST for some epochs and draw a
// picture
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "cli.hpp"
#include "report.hpp"

namespace example {

/// Reads --data FOLDER, --epochs N and --out FOLDER, calls run(data, epochs, folder) and returns the exit code; says
/// what is wrong with them otherwise. Where `more` is the only argument, `run_more()` is called instead.
template <class Run, class RunMore>
int run_epochs_program(int count, char** arguments, const char* name, const char* default_epochs, const Run& run,
                       const std::string& more, const RunMore& run_more) {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string folder = "out";
  std::string epochs = default_epochs;
  const bool runs_more = !more.empty() && count == 2 && arguments[1] == more;
  for (int i = 1; i < count && !runs_more; i += 2) {
    const std::string flag = arguments[i];
    std::string* const value = flag == "--data"     ? &data
                               : flag == "--out"    ? &folder
                               : flag == "--epochs" ? &epochs
                                                    : nullptr;
    if (value == nullptr || !is_value(arguments[i + 1])) {
      const bool is_help = flag == "--help";
      if (!is_help) {
        std::fprintf(stderr, "%s: %s %s\n", name, flag.c_str(), value == nullptr ? "is no option" : "needs a value");
      }
      std::fprintf(is_help ? stdout : stderr,
                   "usage: %s [--data FOLDER] [--epochs N] [--out FOLDER]%s%s   writes FOLDER/%s.svg (out)\n", name,
                   more.empty() ? "" : ", or ", more.c_str(), name);
      return is_help ? 0 : 2;
    }
    *value = arguments[i + 1];
  }
  std::uint64_t number = 0;
  try {
    number = cli::parse(epochs, cli::whole_range{1, 1000});
  } catch (const cli::refused& error) {
    std::fprintf(stderr, "%s: --epochs %s\n", name, error.what());
    return 2;
  }
  try {
    if (!runs_more) check_output_folder(folder, {std::string(name) + ".svg"});
    return runs_more ? run_more() : run(data, number, folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}
template <class Run>
int run_epochs_program(int count, char** arguments, const char* name, const char* default_epochs, const Run& run) {
  return run_epochs_program(count, arguments, name, default_epochs, run, {}, [] { return 0; });
}

}  // namespace example
