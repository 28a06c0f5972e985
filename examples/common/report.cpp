// SPDX-License-Identifier: Apache-2.0
// examples/common/report.cpp - writes report.json and report.svg
#include "report.hpp"

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>
#include <zlib.h>

#include "bounds.hpp"
#include "svg.hpp"

namespace example {
namespace {

[[nodiscard]] std::string partial(const std::string& path) { return path + ".partial"; }

[[noreturn]] void fail_to_write(const std::string& path, int code) {
  std::error_code ignored;
  std::filesystem::remove(partial(path), ignored);
  throw std::system_error(code, std::generic_category(), "cannot write " + path);
}

void write_partial(const std::string& path, std::string_view content) {
  errno = 0;
  std::ofstream stream(partial(path), std::ios::binary | std::ios::trunc);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  stream.close();
  if (!stream) fail_to_write(path, errno);
}

void add(nlohmann::ordered_json& to, const std::vector<fact>& facts) {
  for (const fact& each : facts) {
    std::visit([&](const auto& value) { to[each.name] = value; }, each.value);
  }
}

[[nodiscard]] nlohmann::ordered_json to_json(const run_report& report) {
  using nlohmann::ordered_json;
  const options& chosen = report.chosen;
  const epoch_record& last = report.epochs.back();
  const auto optional = [](const auto& value) { return value ? ordered_json(*value) : ordered_json(nullptr); };

  ordered_json json;
  json["program"] = report.what.name;
  json["test_accuracy"] = last.test_accuracy;
  json["test_loss"] = last.test_loss;
  json["epsilon"] = last.epsilon;
  json["delta"] = chosen.delta;
  json["sigma"] = report.sigma;
  json["q"] = report.q;
  json["steps"] = last.steps;
  json["planned_steps"] = report.planned_steps;
  json["seconds"] = report.seconds;
  json["interrupted"] = report.interrupted;
  json["stopped_by_budget"] = report.stopped_by_budget;
  json["key_source"] = chosen.seed ? "seed" : "os";
  json["private"] = !chosen.seed.has_value();
  json["record"] = "one " + report.what.record;
  json["neighbours"] = "add or remove one training record";
  json["accountant"] = "pld";
  json["options"] = {{"epsilon", chosen.epsilon},
                     {"delta", chosen.delta},
                     {"epochs", chosen.epochs},
                     {"lr", chosen.learning_rate},
                     {"batch", chosen.batch},
                     {"clip", chosen.clip},
                     {"noise-multiplier", optional(chosen.noise_multiplier)},
                     {"optimizer", chosen.optimizer},
                     {"momentum", chosen.momentum},
                     {"seed", optional(chosen.seed)},
                     {"threads", chosen.threads},
                     {"data", chosen.data},
                     {"out", chosen.out}};
  add(json["options"], report.own_options);
  json["given"] = chosen.given;
  json["dataset"] = {
      {"name", report.what.dataset}, {"path", chosen.data}, {"test_" + report.what.record + "s", report.test_size}};
  if (!report.what.size_is_private) json["dataset"]["train_" + report.what.record + "s"] = report.train_size;
  json["network"] = {{"parameters", report.parameters},
                     {"description", report.network},
                     {"executor", report.executor},
                     {"initial_weights_seed", report.initial_weights_seed}};
  json["public_constants"] = {{"dataset_size", report.dataset_size}, {"expected_batch_size", chosen.batch}};
  add(json["public_constants"], report.public_constants);
  json["epochs"] = ordered_json::array();
  for (const epoch_record& epoch : report.epochs) {
    json["epochs"].push_back({{"epoch", epoch.epochs},
                              {"steps", epoch.steps},
                              {"test_loss", epoch.test_loss},
                              {"test_accuracy", epoch.test_accuracy},
                              {"epsilon", epoch.epsilon},
                              {"seconds", epoch.seconds}});
  }
  json["attacker"] = {{"advantage_at_most", report.attacks.advantage}, {"curve", ordered_json::array()}};
  for (const attacker::place& each : report.attacks.curve) {
    json["attacker"]["curve"].push_back(
        {{"false_positive_rate", each.false_positives}, {"true_positive_rate_at_most", each.true_positives}});
  }
  const pergrad::confusion_matrix& confusion = report.confusion;
  auto counts = ordered_json::array();
  auto shares = ordered_json::array();
  for (std::size_t is = 0; is < confusion.classes(); ++is) {
    counts.push_back(ordered_json::array());
    shares.push_back(ordered_json::array());
    for (std::size_t told = 0; told < confusion.classes(); ++told) {
      counts.back().push_back(confusion.count(is, told));
      shares.back().push_back(confusion.share(is, told));
    }
  }
  json["confusion"] = {{"rows", "true class"},
                       {"columns", "class told by the network"},
                       {"labels", report.labels},
                       {"counts", counts},
                       {"shares", shares}};
#if defined(__clang__)
  const std::string compiler = "clang++ " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  const std::string nlohmann_json = std::to_string(NLOHMANN_JSON_VERSION_MAJOR) + "." +
                                    std::to_string(NLOHMANN_JSON_VERSION_MINOR) + "." +
                                    std::to_string(NLOHMANN_JSON_VERSION_PATCH);
  json["versions"] = {{"pergrad", report.pergrad_version},
                      {"compiler", compiler},
                      {"cli11", CLI11_VERSION},
                      {"nlohmann_json", nlohmann_json},
                      {"zlib", zlibVersion()}};
  return json;
}

}  // namespace

void write_file(const std::string& path, std::string_view content) {
  write_partial(path, content);
  std::error_code error;
  std::filesystem::rename(partial(path), path, error);
  if (error) fail_to_write(path, error.value());
}

void run_report::add_option(const std::string& name, const std::string& value) {
  own_options.emplace_back(name, value);
}

std::string epsilon_text(double epsilon) { return rounded_up(epsilon, 4); }

std::string delta_text(double delta) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", delta);
  return text;
}

std::string accuracy_text(double accuracy) { return nearest(accuracy, 4); }

std::string summary(const run_report& report) {
  const epoch_record& last = report.epochs.back();
  const std::string measured = report.test_size == 0 ? "no test " + report.what.record + "s"
                                                     : "test accuracy " + accuracy_text(last.test_accuracy);
  return measured + ", epsilon " + epsilon_text(last.epsilon) + ", delta " + delta_text(report.chosen.delta);
}

void check_output_folder(const std::string& directory, const std::vector<std::string>& files) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error || !std::filesystem::is_directory(directory)) {
    throw std::runtime_error("cannot make the output folder " + directory + ": " +
                             (error ? error.message() : "it is not a folder"));
  }
  for (const std::string& name : files) {
    const auto path = std::filesystem::path(directory) / name;
    if (std::filesystem::is_directory(path, error)) {
      throw std::runtime_error("cannot write " + path.string() + ": it is a folder");
    }
    write_partial(path.string(), "");
    std::filesystem::remove(partial(path.string()), error);
  }
}

void write_reports(const run_report& report) {
  const std::filesystem::path out{report.chosen.out};
  write_file((out / "report.json").string(),
             to_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  write_file((out / "report.svg").string(), to_svg(report));
}

}  // namespace example
