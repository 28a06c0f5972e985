// SPDX-License-Identifier: Apache-2.0
// examples/08_tabular.cpp - a private classifier of the rows of any table
//
// A CSV file, a column to be told from the others, and a schema that says what is public about the columns: the range
// of a number, the categories of a word (common/table.hpp). The number of columns is known when the program runs, but
// the size of a network when it is compiled. So there are networks of a few widths, and the narrowest that holds the
// schema's inputs is taken; inputs that no column fills are 0 in every row, and weights behind them change nothing. The
// same goes for the classes: outputs that no class has begin with a bias of -30, at which their share of the softmax is
// nothing.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pergrad.hpp>

#include "common/cli.hpp"
#include "common/report.hpp"
#include "common/table.hpp"
#include "common/training.hpp"

namespace pg = pergrad;

// [snippet: network]
inline constexpr std::size_t most_classes = 64;

template <std::size_t Inputs>
using classifier = pg::network<pg::shape{Inputs}, pg::linear<64>, pg::tanh, pg::linear<most_classes>>;
// [snippet end]

struct table_options {
  std::string csv, target, schema, test, draft, predict;
  std::size_t held_out = 0;
};

// Calls what is to be done with the narrowest network that takes so many inputs.
template <std::size_t Width, std::size_t... Wider, class Function>
void with_width(std::size_t inputs, Function&& function) {
  if (inputs <= Width) return function.template operator()<classifier<Width>>();
  if constexpr (sizeof...(Wider) > 0) return with_width<Wider...>(inputs, std::forward<Function>(function));
  throw example::bad_value("the schema makes " + std::to_string(inputs) + " inputs of a row, and " +
                           std::to_string(Width) + " are the most: list fewer columns or categories");
}
template <class Function>
void with_classifier(const example::table_schema& schema, Function&& function) {
  const std::size_t classes = schema.target_column().categories.size();
  if (classes > most_classes) {
    throw example::bad_value("the target has " + std::to_string(classes) + " categories, and " +
                             std::to_string(most_classes) + " are the most");
  }
  with_width<64, 1024>(schema.inputs(), std::forward<Function>(function));
}

// What there is in the folder --out beside the reports.
constexpr const char* model_file = "model.safetensors";
constexpr const char* schema_file = "model.schema.json";
constexpr const char* predictions_file = "predictions.csv";
[[nodiscard]] std::string path_of(const char* file, const example::options& chosen) {
  return (std::filesystem::path(chosen.out) / file).string();
}

// What depends on the number of rows is chosen by the schema's, which is public, and never by the table's.
void choose_by_public_size(example::run_report& report, const example::table_schema& schema, std::size_t held_out) {
  report.dataset_size = std::max<std::size_t>(1, schema.rows * (100 - held_out) / 100);
  auto& chosen = report.chosen;
  if (!chosen.has("batch")) {
    chosen.batch =
        std::clamp<std::size_t>(report.dataset_size / 50, std::min<std::size_t>(32, report.dataset_size), 1024);
  }
  const auto size = static_cast<double>(report.dataset_size);
  if (!chosen.has("delta")) chosen.delta = std::min(1e-5, std::pow(10.0, std::floor(-std::log10(2 * size))));
}

// `asked`: the rows to predict, if there are any, which are looked at before hours of training.
void train(example::run_report& report, const table_options& table, const example::csv_table& asked) {
  const std::string schema_path =
      table.schema.empty() ? std::filesystem::path(table.csv).replace_extension(".schema.json").string() : table.schema;
  if (!std::filesystem::exists(schema_path)) {
    throw example::bad_value("there is no schema " + schema_path +
                             ": ranges and categories must be public, so they are not read from private rows; "
                             "--draft-schema FILE writes one "
                             "from the rows of a --csv that is public (see docs/tabular.md)");
  }
  const example::table_schema schema = example::read_schema(schema_path, table.target);
  choose_by_public_size(report, schema, table.held_out);
  report.labels = schema.target_column().categories;
  report.what.dataset = std::filesystem::path(table.csv).filename().string();
  report.chosen.data = table.csv;
  report.files.insert(report.files.end(), {model_file, schema_file});
  report.own_options = {{"csv", table.csv},
                        {"target", schema.target},
                        {"schema", schema_path},
                        {"test", table.test},
                        {"held-out", table.held_out}};
  report.public_constants = {{"rows", schema.rows}, {"inputs", schema.inputs()}};
  report.network =
      std::to_string(schema.inputs()) + " inputs, 64 tanh, " + std::to_string(report.labels.size()) + " classes";
  with_classifier(schema, [&]<class Network>() {
    example::encoded_rows train, test;
    const auto load = [&] {
      example::csv_table rows = example::read_csv(table.csv);
      example::csv_table held = example::hold_out(rows, table.held_out);
      if (!table.test.empty()) held = example::read_csv(table.test);
      train = example::encode(rows, schema, Network::input_shape.size(), true);
      if (train.classes.empty()) throw example::bad_value(table.csv + " has no rows to train on");
      if (!table.predict.empty()) {
        static_cast<void>(example::encode(asked, schema, Network::input_shape.size(), false));
        report.files.emplace_back(predictions_file);
      }
      if (!held.rows.empty()) test = example::encode(held, schema, Network::input_shape.size(), true);
      const auto set = [](const example::encoded_rows& half) {
        return pg::dataset<float, std::int32_t>{half.inputs, half.classes, Network::input_shape};
      };
      return std::pair{set(train), set(test)};
    };
    // [snippet: classes]
    const auto begin = [&](Network& net) {
      const auto biases = net.parameters().last(most_classes);
      std::ranges::fill(biases.subspan(report.labels.size()), -30.0F);
    };
    // [snippet end]
    const auto end = [&](const Network& net) {
      const std::string model = path_of(model_file, report.chosen), its_schema = path_of(schema_file, report.chosen);
      pg::save_parameters(net, model);
      example::write_file(its_schema, example::schema_text(schema));
      std::printf("saved %s and %s\n", model.c_str(), its_schema.c_str());
    };
    example::train_privately<Network>(report, load, begin, end);
  });
}

// The class of every row and the probabilities of all of them, as a CSV file.
void predict(const example::options& chosen, const example::csv_table& asked) {
  const std::string model = path_of(model_file, chosen);
  if (!std::filesystem::exists(model)) {
    throw example::bad_value("there is no model " + model + ": train one first, or name its folder with --out");
  }
  const example::table_schema schema = example::read_schema(path_of(schema_file, chosen), "");
  const std::vector<std::string>& labels = schema.target_column().categories;
  with_classifier(schema, [&]<class Network>() {
    const pg::host exec{pg::threads{chosen.threads}};
    Network net{exec, pg::zeros{}};
    pg::load_parameters(net, model);
    const example::encoded_rows rows = example::encode(asked, schema, Network::input_shape.size(), false);
    // The owner of these rows asks, and gets an answer for each: nothing of it is kept.
    const std::vector<float> logits = pg::unprotected::predict(exec, net, std::span<const float>{rows.inputs});
    std::string text = example::csv_field(schema.target);
    for (const std::string& label : labels) text += "," + example::csv_field("P(" + label + ")");
    for (std::size_t first = 0; first < logits.size(); first += most_classes) {
      const std::span<const float> row = std::span{logits}.subspan(first, labels.size());
      if (!std::ranges::all_of(row, [](float logit) { return std::isfinite(logit); })) {
        throw std::runtime_error(model + ": what it makes of " + asked.name + ", line " +
                                 std::to_string(asked.rows[first / most_classes].line) +
                                 " is no number: it has diverged, or is damaged");
      }
      const auto largest = std::ranges::max_element(row);
      const auto share_of = [&](float logit) { return static_cast<double>(std::exp(logit - *largest)); };
      double sum = 0;
      for (const float logit : row) sum += share_of(logit);
      text += "\n" + example::csv_field(labels[static_cast<std::size_t>(largest - row.begin())]);
      for (const float logit : row) {
        std::array<char, 32> share{};
        std::snprintf(share.data(), share.size(), ",%.6f", share_of(logit) / sum);
        text += share.data();
      }
    }
    const std::string path = path_of(predictions_file, chosen);
    example::write_file(path, text + "\n");
    std::printf("wrote %s: %zu rows\n", path.c_str(), logits.size() / most_classes);
  });
}

void draft(const table_options& table) {
  if (std::filesystem::exists(std::filesystem::symlink_status(table.draft))) {
    throw example::bad_value("--draft-schema: " + table.draft + " is there already, and stays as it is");
  }
  const example::table_schema schema = example::draft_schema(example::read_csv(table.csv), table.target);
  example::write_file(table.draft, example::schema_text(schema));
  std::printf(
      "wrote %s: %zu columns of %s. It says what is in these rows, so they must be public; if they are not, "
      "write down what is known without them\n",
      table.draft.c_str(), schema.columns.size(), table.csv.c_str());
}

int main(int argc, char** argv) {
  table_options table;
  example::program what;
  what.name = "tabular";
  what.title = "Rows of a table, a classifier with DP-SGD";
  what.purpose = "Trains a classifier of the rows of a CSV file with differentially private SGD.";
  what.record = "row";
  what.size = "(rows that the schema names, less those held out)";
  what.most_batch = 1'000'000;
  what.descent_rate = 2.0;
  what.defaults.learning_rate = what.descent_rate;
  what.defaults.epochs = 20;
  what.defaults.clip = 0.5;
  what.size_is_private = true;
  const auto own_options = [&](example::cli::binder& bind) {
    bind.text("csv", table.csv, "FILE", "the table: one record a row, names of columns in the first line");
    bind.text("target", table.target, "COLUMN", "the column that is to be told from the others");
    bind.text("schema", table.schema, "FILE",
              "what is public about the columns; without it FILE.schema.json beside FILE.csv");
    bind.text("test", table.test, "FILE", "rows that are public: loss, accuracy and confusion are of them");
    bind.number("held-out", table.held_out, example::cli::whole_range{0, 90}, "0",
                "percent of the rows, by a hash of each, that are not trained on and NOT PROTECTED: the same for them");
    bind.text("draft-schema", table.draft, "FILE", "writes a schema from the rows of --csv, which must be public");
    bind.text("predict", table.predict, "FILE",
              "classifies these rows with the model in the folder --out, into predictions.csv there");
  };
  const auto run = [&](example::run_report& report) {
    if (table.csv.empty() && table.predict.empty()) {
      throw example::bad_value("needs --csv FILE, or --predict FILE once there is a model");
    }
    if (!table.test.empty() && table.held_out > 0) throw example::bad_value("--test and --held-out exclude each other");
    if (!table.draft.empty()) {
      if (table.csv.empty()) throw example::bad_value("--draft-schema needs --csv FILE");
      return draft(table);
    }
    std::error_code none;  // where one of two paths is no file yet, they are not the same
    if (!table.test.empty() && std::filesystem::equivalent(table.csv, table.test, none)) {
      throw example::bad_value("--test: " + table.test + " is trained on, and loss and accuracy of it are private");
    }
    const bool predicts = !table.predict.empty();
    using asked_for = std::pair<const char*, const std::string&>;
    for (const auto& [option, path] :
         {asked_for{"--predict", table.predict}, {"--csv", table.csv}, {"--test", table.test}}) {
      if (predicts && std::filesystem::equivalent(path, path_of(predictions_file, report.chosen), none)) {
        throw example::bad_value(std::string{option} + ": the predictions would replace " + path);
      }
    }
    const auto asked = predicts ? example::read_csv(table.predict) : example::csv_table{};
    if (!table.csv.empty()) train(report, table, asked);
    const bool has_no_model = report.interrupted && report.epochs.empty();
    if (predicts && !has_no_model) predict(report.chosen, asked);
  };
  return example::run_program(argc, argv, what, own_options, run);
}
