// SPDX-License-Identifier: Apache-2.0
// examples/15_private_query.cpp [FOLDER] - the query of Ziller et al. 2021 (arXiv:2107.04265), a body mass index times
// age: how much one record can do to it, proven before any record is seen, and its mean over people, released; draws
// the query's tree as FOLDER/private_query.dot (out)
//
// The people are made up. Whoever has real ones reads them into the same three columns.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

#include "common/bounds.hpp"
#include "common/report.hpp"

namespace pg = pergrad;

namespace {

// [snippet: query]
constexpr pg::field<"age"> age;        // years
constexpr pg::field<"weight"> weight;  // kg
constexpr pg::field<"height"> height;  // m
constexpr auto bmi = age * weight / (height * height);

constexpr auto adults = pg::box{age.in(18, 100), weight.in(40, 200), height.in(1.4, 2.1)};
constexpr auto steepest = pg::supremum(pg::l2_norm(pg::gradient(bmi)), adults);
static_assert(steepest.upper <= 14577.70589696 && steepest.upper - steepest.lower <= 1e-9 * steepest.upper);
static_assert(steepest.where(height) == 1.4);
// [snippet end]

// The table of brackets: K = sup ‖gradient‖ by both forms of the query, and what matters for a release, its range.
void print_table() {
  // [snippet: naive]
  const auto naive = age * weight / as_written(height * height);  // nothing is merged with height * height
  // [snippet end]
  const struct {
    const char* name = nullptr;
    pg::box in;
  } rows[] = {
      {"adults", adults},
      {"everybody", pg::box{age.in(0, 120), weight.in(2, 300), height.in(0.5, 2.5)}},
      {"narrow", pg::box{age.in(18, 90), weight.in(45, 150), height.in(1.5, 2)}},
      {"units", pg::box{age.in(0, 1), weight.in(0, 1), height.in(1, 2)}},
  };
  std::printf("%-10s %-33s %-21s %-33s %s\n", "box", "K, canonical form", "one box, naive form", "K, naive form",
              "range");
  for (const auto& row : rows) {
    const pg::extremum canonical = pg::lipschitz(bmi, row.in);
    const pg::extremum searched = pg::lipschitz(naive, row.in);
    const double enclosed = enclosure(pg::l2_norm(pg::gradient(naive)), row.in).upper;
    const double range = pg::sensitivity(bmi, row.in, pg::neighbouring::replace_one).bound;
    std::printf("%-10s [%.13g, %.13g]  %-21.8g [%.13g, %.13g]  %.10g\n", row.name, canonical.lower, canonical.upper,
                enclosed, searched.lower, searched.upper, range);
  }
}

// Other queries, and what one record can do to each.
void print_others() {
  // [snippet: others]
  constexpr pg::fields<"visits", 7> visits;  // of a week
  const auto tall = bmi.given(height = 1.9);
  const auto risk = where(age >= 65 && weight > 100, 2 * sigmoid(bmi / 1000 - 2), sigmoid(bmi / 1000 - 2));
  const auto several = vector(clamp(weight, 40, 150) / 150, tanh(age / 50), l2_norm(visits) / 10);
  // [snippet end]
  const auto week =
      pg::box{age.in(18, 100),    weight.in(40, 200), height.in(1.4, 2.1), visits[0].in(0, 5), visits[1].in(0, 5),
              visits[2].in(0, 5), visits[3].in(0, 5), visits[4].in(0, 5),  visits[5].in(0, 5), visits[6].in(0, 5)};
  std::printf("\nadding or removing a record changes a sum by up to\n");
  for (const auto& query : {tall, risk, several}) {
    const double bound = pg::sensitivity(query, week, pg::neighbouring::add_or_remove_one).bound;
    std::printf("  %-10.8g %s\n", bound, text(query).c_str());
  }
}

struct people {
  std::vector<double> ages;
  std::vector<double> weights;
  std::vector<double> heights;
};
people made_up(std::size_t count) {
  std::mt19937_64 words{1};
  people found;
  for (std::size_t i = 0; i < count; ++i) {
    const double tall = std::normal_distribution<>{1.70, 0.09}(words);
    found.ages.push_back(std::uniform_real_distribution<>{18, 85}(words));
    found.heights.push_back(tall);
    found.weights.push_back(tall * tall * std::normal_distribution<>{26, 4}(words));
  }
  return found;
}

void run(const std::filesystem::path& folder) {
  std::printf("bmi          %s\ngradient     %s\n\n", text(bmi).c_str(), text(pg::gradient(bmi)).c_str());
  print_table();

  std::printf("\nwhich field costs how much:\n");
  for (const pg::field_share& each : pg::field_shares(bmi, adults)) {
    std::printf("  %-7s %.0f %%\n", each.field.c_str(), 100 * each.share);
  }

  print_others();

  const people all = made_up(10'000);
  // [snippet: release]
  pg::basic_privacy_accountant<pg::replace_one_gaussian_event> ledger;  // the number of records is public
  pg::os_keyed_generator generator;
  const pg::records records{age = all.ages, weight = all.weights, height = all.heights};
  const pg::released_query sum = pg::release(ledger, generator, pg::noise_multiplier{10}, bmi, adults, records);
  const double mean = sum.value() / static_cast<double>(records.size());
  // [snippet end]
  const pg::delta delta{1e-5};
  std::printf("\nreleased mean %.1f +- %.1f, epsilon %s, delta %g\n", mean,
              sum.deviation() / static_cast<double>(records.size()),
              example::rounded_up(ledger.epsilon(delta), 4).c_str(), delta.value());

  const std::filesystem::path file = folder / "private_query.dot";
  example::write_file(file.string(),
                      graphviz(pg::l2_norm(pg::gradient(age * weight / as_written(height * height))), adults));
  std::printf("the tree of the naive form: %s\n", file.string().c_str());
}

}  // namespace

int main(int count, char** arguments) {
  const std::string given = count > 1 ? arguments[1] : "out";
  if (count > 2 || given.empty() || given.front() == '-') {
    if (given != "--help") std::fprintf(stderr, "private_query: takes one folder, and no options\n");
    std::fprintf(given == "--help" ? stdout : stderr,
                 "usage: private_query [FOLDER]   writes FOLDER/private_query.dot (out)\n");
    return given == "--help" ? 0 : 2;
  }
  try {
    example::check_output_folder(given, {"private_query.dot"});
    run(given);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "private_query: %s\n", error.what());
    return 1;
  }
}
