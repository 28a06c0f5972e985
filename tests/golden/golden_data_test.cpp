// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_data_test.cpp - reads and compares the golden numbers, and tests that it does so
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden_test.hpp"

namespace golden {
namespace {

const nlohmann::json& file(const std::string& group) {
  static std::map<std::string, nlohmann::json> read;
  const auto known = read.find(group);
  if (known != read.end()) return known->second;
  const std::string path = std::string{PERGRAD_GOLDEN_DIR} + "/data/" + group + ".json";
  std::ifstream stream{path};
  if (!stream) throw std::runtime_error("cannot open " + path);
  return read.emplace(group, nlohmann::json::parse(stream)).first->second;
}

/// A list, or the integer formula ((a i^2 + b i + c) mod modulus - floor(modulus / 2)) / divisor of the index.
std::vector<double> values(const nlohmann::json& stored, std::size_t count) {
  if (stored.is_array()) return stored.get<std::vector<double>>();
  const auto number = [&stored](const char* key) { return stored.at(key).get<std::int64_t>(); };
  std::vector<double> result(count);
  for (std::size_t index = 0; index < count; ++index) {
    const auto i = static_cast<std::int64_t>(index);
    const std::int64_t residue = (number("a") * i * i + number("b") * i + number("c")) % number("modulus");
    result[index] = static_cast<double>(residue - number("modulus") / 2) / static_cast<double>(number("divisor"));
  }
  return result;
}

}  // namespace

numbers load(const std::string& group, const std::string& name) {
  const nlohmann::json& cases = file(group).at("cases");
  if (!cases.contains(name)) throw std::runtime_error(group + ".json has no case " + name + ": run make_golden.py");
  const nlohmann::json& stored = cases.at(name);
  numbers result;
  result.batch = stored.at("batch").get<std::size_t>();
  result.parameter_count = stored.at("parameter_count").get<std::size_t>();
  result.gradient_stride = stored.value("gradient_stride", std::size_t{1});
  result.l2_clip_norm = stored.at("l2_clip_norm").get<double>();
  result.inputs = values(stored.at("inputs"), result.batch * stored.at("input_size").get<std::size_t>());
  result.parameters = values(stored.at("parameters"), result.parameter_count);
  result.targets = values(stored.at("targets"), 0);
  result.lengths = stored.value("lengths", std::vector<std::uint32_t>{});
  result.frozen = stored.value("frozen", std::vector<double>{});
  result.outputs = values(stored.at("outputs"), 0);
  result.losses = values(stored.at("losses"), 0);
  result.squared_norms = values(stored.at("squared_norms"), 0);
  result.gradients = values(stored.at("gradients"), 0);
  result.clipped_sum = values(stored.at("clipped_sum"), 0);
  return result;
}

std::string disagreement(std::span<const double> computed, std::span<const double> expected, std::size_t stride,
                         double allowed) {
  std::ostringstream problem;
  if (expected.size() != (computed.size() + stride - 1) / stride) {
    problem << computed.size() << " values, expected " << expected.size() << " at stride " << stride;
    return problem.str();
  }
  double scale = 0.0;
  double worst = -1.0;
  std::size_t where = 0;
  for (std::size_t index = 0; index < expected.size(); ++index) {
    scale = std::max(scale, std::abs(expected[index]));
    const double difference = std::abs(computed[stride * index] - expected[index]);
    const double error = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
    if (error > worst) {
      worst = error;
      where = index;
    }
  }
  if (worst <= allowed * scale) return {};
  problem.precision(17);
  problem << "worst at index " << stride * where << ": " << computed[stride * where] << ", expected " << expected[where]
          << ", difference " << worst << ", largest expected magnitude " << scale;
  return problem.str();
}

}  // namespace golden

BOOST_AUTO_TEST_SUITE(golden_data)

BOOST_AUTO_TEST_CASE(disagreements_are_seen) {
  using vector = std::vector<double>;
  const vector expected{1.0, -2.0, 0.5};
  BOOST_CHECK_EQUAL(golden::disagreement(expected, expected), "");
  BOOST_CHECK_EQUAL(golden::disagreement(vector{1.0, -2.0, 0.5 + 1e-10}, expected), "");
  BOOST_CHECK_NE(golden::disagreement(vector{1.0, -2.0, 0.5 + 3e-10}, expected), "");
  BOOST_CHECK_NE(golden::disagreement(vector{1.0, 2.0, 0.5}, expected), "");
  BOOST_CHECK_EQUAL(golden::disagreement(vector{1.0, -2.0, 0.5 + 1e-5}, expected, 1, 1e-5), "");
  BOOST_CHECK_NE(golden::disagreement(vector{1.0, -2.0, 0.5 + 3e-5}, expected, 1, 1e-5), "");
  BOOST_CHECK_NE(golden::disagreement(vector{1.0, -2.0}, expected), "");
  BOOST_CHECK_NE(golden::disagreement(vector{1.0, -2.0, std::nan("")}, expected), "");
  BOOST_CHECK_NE(golden::disagreement(vector{1e-300}, vector{0.0}), "");
  BOOST_CHECK_EQUAL(golden::disagreement(vector{1.0, 9.0, -2.0, 9.0, 0.5}, expected, 2), "");
  BOOST_CHECK_NE(golden::disagreement(vector{1.0, 9.0, -2.0, 9.0, 0.6}, expected, 2), "");
}

// The lists of networks and the files of numbers name the same cases, and every case is whole.
BOOST_AUTO_TEST_CASE(every_case_has_a_network_and_numbers) {
#undef PERGRAD_GOLDEN
#define PERGRAD_GOLDEN(name, ...) #name,
  const std::map<std::string, std::set<std::string>> groups{
      {"conv",
       {
#include "conv_cases.inc"
       }},
      {"conv_input",
       {
#include "conv_input_cases.inc"
       }},
      {"pool",
       {
#include "pool_cases.inc"
       }},
      {"dense",
       {
#include "dense_cases.inc"
       }},
      {"elementwise",
       {
#include "elementwise_cases.inc"
       }},
      {"mix",
       {
#include "mix_cases.inc"
       }},
      {"conv1d",
       {
#include "conv1d_cases.inc"
       }},
      {"conv3d",
       {
#include "conv3d_cases.inc"
       }},
      {"transposed",
       {
#include "transposed_cases.inc"
       }},
      {"pool13",
       {
#include "pool13_cases.inc"
       }},
      {"norms",
       {
#include "norms_cases.inc"
       }},
      {"structure",
       {
#include "structure_cases.inc"
       }},
      {"embedding",
       {
#include "embedding_cases.inc"
       }},
      {"recurrent",
       {
#include "recurrent_cases.inc"
       }},
      {"given_state",
       {
#include "given_state_cases.inc"
       }},
      {"attention",
       {
#include "attention_cases.inc"
       }},
      {"language",
       {
#include "language_cases.inc"
       }},
      {"models",
       {
#include "models_cases.inc"
       }},
      {"variable",
       {
#include "variable_cases.inc"
       }},
  };
  for (const auto& [group, names] : groups) {
    std::set<std::string> stored;
    for (const auto& item : golden::file(group).at("cases").items()) stored.insert(item.key());
    BOOST_CHECK_EQUAL_COLLECTIONS(names.begin(), names.end(), stored.begin(), stored.end());
    for (const std::string& name : stored) {
      BOOST_TEST_CONTEXT(group << "/" << name) {
        const golden::numbers one = golden::load(group, name);
        BOOST_CHECK_GE(one.batch, 1U);
        BOOST_CHECK_GT(one.l2_clip_norm, 0.0);
        BOOST_CHECK_EQUAL(one.inputs.size() % one.batch, 0U);
        BOOST_CHECK_EQUAL(one.targets.size() % one.batch, 0U);
        BOOST_CHECK_EQUAL(one.outputs.size() % one.batch, 0U);
        BOOST_CHECK_EQUAL(one.losses.size(), one.batch);
        BOOST_CHECK_EQUAL(one.squared_norms.size(), one.batch);
        BOOST_CHECK_EQUAL(one.parameters.size(), one.parameter_count);
        const bool has_lengths = group == "variable" || name == "models_bert" || name == "models_roberta";
        BOOST_CHECK_EQUAL(one.lengths.size(), has_lengths ? one.batch : 0U);
        const auto kept = [&one](std::size_t count) { return (count + one.gradient_stride - 1) / one.gradient_stride; };
        BOOST_CHECK_EQUAL(one.gradients.size(), kept(one.batch * one.parameter_count));
        BOOST_CHECK_EQUAL(one.clipped_sum.size(), kept(one.parameter_count));
      }
    }
    const nlohmann::json& made_by = golden::file(group).at("made_by");
    BOOST_TEST_MESSAGE(group << ": " << stored.size() << " cases, made by " << made_by.dump());
    BOOST_CHECK(made_by.contains("torch") && made_by.contains("python"));
  }
}

BOOST_AUTO_TEST_SUITE_END()
