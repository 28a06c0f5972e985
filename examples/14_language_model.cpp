// SPDX-License-Identifier: Apache-2.0
// examples/14_language_model.cpp [--pretrain-steps N] [--epochs N] [--out FOLDER] - a small GPT-2 reads a public
// dictionary and is fine-tuned on the entries of another one, once without privacy and once at epsilon 3; draws what
// the text of each is worth and what each tells of single records as FOLDER/language_model.svg (out)
//
// Public: GCIDE, Webster's dictionary of 1913 (Debian's dict-gcide, GPL 2 or later). Private, as if it were: the nouns
// of WordNet (wordnet-base, WordNet's licence). Ten owners have written a canary each, "secret a: " and random digits,
// and have repeated it in 25 records; everybody else has one entry. Privacy is an owner's, with all that he wrote.
// A canary's exposure (Carlini et al. 2019, arXiv:1802.08232) is 10 - log2(rank) bits, the rank of its likelihood among
// 1023 secrets that were not in the data: 10 bits where it is the likeliest of all, about 1.4 where the network knows
// nothing of it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <pergrad/generate.hpp>
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/text/byte_level_bpe.hpp>
#include <pergrad/text/packing.hpp>

#include "common/cli.hpp"
#include "common/dictionaries.hpp"
#include "common/report.hpp"
#include "common/svg.hpp"
#include "common/train_bpe.hpp"

namespace pg = pergrad;

namespace {

constexpr std::size_t positions = 32, vocabulary = 1024;
constexpr std::int32_t separator = 0;  // the byte 0, which no text has
using gpt = pg::models::gpt2<positions, 2, 96, 4, vocabulary>;
// [snippet: tuned]
// The same network with adapters of rank 8 on all of its projections; nothing else is trained.
using tuned_gpt = pg::models::gpt2<positions, 2, 96, 4, vocabulary, pg::models::lora_on<8, "c_attn", "c_proj", "c_fc">>;
// [snippet end]

constexpr std::size_t owners = 10'000;  // public
constexpr std::size_t canaries = 10, copies = 25, alternatives = 1023, test_records = 1000;
constexpr double batch = 400;  // owners
constexpr double q = batch / owners;
const pg::epsilon epsilon{3.0};
const pg::delta delta{1e-5};

struct wishes {
  std::uint64_t pretrain_steps = 2000, epochs = 4;
  std::string out = "out";
};

/// What one network is worth and what it tells.
struct findings {
  std::string name, colour;
  std::vector<double> perplexities{};  ///< on the private test records: before, and after every epoch
  double exposure = 0;                 ///< mean over the canaries, in bits
  std::string sample{};
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string digits(std::mt19937& bits) {
  std::string made;
  for (int i = 0; i < 12; ++i) made += static_cast<char>('0' + bits() % 10);
  return made;
}

/// Each text as a record, cut to the network's positions.
pg::packed_texts records_of(const pg::byte_level_bpe& tokens, const std::vector<std::string>& texts) {
  std::vector<std::vector<std::int32_t>> ids;
  for (const std::string& text : texts) {
    ids.push_back(tokens.encode(text));
    ids.back().resize(std::min(ids.back().size(), positions - 1));
  }
  std::vector<std::uint32_t> apart(texts.size());
  std::iota(apart.begin(), apart.end(), 0U);
  return pg::pack(ids, apart, positions, separator);
}
pg::dataset<std::int32_t, std::int32_t> dataset_of(const pg::packed_texts& texts) {
  return {texts.ids, texts.targets, gpt::input_shape, positions};
}

/// The sum of every record's losses.
template <class Network>
std::vector<double> losses_of(const pg::host& exec, const Network& net, const pg::packed_texts& records) {
  using loss = pg::token_cross_entropy<pg::sum_over_positions>;
  constexpr std::size_t chunk = 256;
  pg::tape<Network> tape{exec, pg::max_batch{chunk}};
  std::vector<double> all;
  for (std::size_t first = 0; first < records.ids.size(); first += chunk * positions) {
    const std::size_t count = std::min(chunk * positions, records.ids.size() - first);
    const pg::batch<Network, loss> some{std::span{records.ids}.subspan(first, count),
                                        std::span{records.targets}.subspan(first, count)};
    const auto found = pg::unprotected::evaluate(exec, pg::losses(pg::per_sample_gradients(net, loss{}, some, tape)));
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}
template <class Network>
double perplexity(const pg::host& exec, const Network& net, const pg::packed_texts& records) {
  const std::vector<double> losses = losses_of(exec, net, records);
  const auto counted = std::ranges::count_if(records.targets, [](std::int32_t id) { return id >= 0; });
  return std::exp(std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(counted));
}
/// Mean exposure of the canaries, each among secrets that were drawn as it was.
template <class Network>
double exposure(const pg::host& exec, const Network& net, const pg::byte_level_bpe& tokens,
                const std::vector<std::string>& secrets) {
  std::mt19937 bits{7};
  double sum = 0;
  for (const std::string& secret : secrets) {
    std::vector<std::string> texts{secret};
    while (texts.size() <= alternatives) texts.push_back(secret.substr(0, secret.find(": ") + 2) + digits(bits));
    const std::vector<double> losses = losses_of(exec, net, records_of(tokens, texts));
    const auto rank = std::ranges::count_if(losses, [&](double loss) { return loss <= losses.front(); });
    sum += std::log2(alternatives + 1) - std::log2(static_cast<double>(rank));
  }
  return sum / static_cast<double>(secrets.size());
}
template <class Network>
std::string sample(const pg::host& exec, const Network& net, const pg::byte_level_bpe& tokens) {
  // [snippet: generate]
  std::vector<std::int32_t> prompt = tokens.encode("river: ");
  prompt.insert(prompt.begin(), separator);  // as every text begins
  std::vector<std::int32_t> text =
      pg::generate(exec, net, pg::public_records{prompt}, {.steps = 24, .temperature = 0.5, .seed = 1});
  text.erase(std::ranges::find(text, separator), text.end());
  // [snippet end]
  return "river: " + tokens.decode(text);
}

/// Steps of Adam on shuffled batches, with a rate that falls to a tenth.
constexpr std::size_t together = 64;
template <class Network, class Function>
void train_without_privacy(const pg::host& exec, Network& net, const pg::packed_texts& texts, double rate,
                           std::uint64_t steps, const Function& after_step) {
  pg::adam<Network> optimizer{pg::learning_rate{rate}};
  pg::unprotected::gradient<Network> gradient{exec};
  pg::tape<Network> tape{exec, pg::max_batch{together}};
  const auto records = dataset_of(texts);
  std::vector<std::uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 bits{1};
  for (std::uint64_t step = 0, place = order.size(); step < steps; ++step, place += together) {
    if (place + together > order.size()) {
      std::shuffle(order.begin(), order.end(), bits);
      place = 0;
    }
    const double done = static_cast<double>(step) / static_cast<double>(steps);
    optimizer.set_learning_rate(pg::learning_rate{rate * std::min(1.0, 0.02 + 20 * done) * (1 - 0.9 * done)});
    const pg::batch<Network, pg::token_cross_entropy<>> some{
        records, std::span<const std::uint32_t>{order}.subspan(place, together)};
    pg::unprotected::evaluate_into(exec, gradient,
                                   pg::mean(pg::per_sample_gradients(net, pg::token_cross_entropy<>{}, some, tape)));
    pg::unprotected::step(optimizer, exec, net, gradient);
    after_step(step + 1);
  }
}

/// The SVG: perplexity over epochs, exposures, samples.
std::string picture(const std::vector<findings>& all, double spent) {
  namespace svg = example::svg;
  constexpr double left = 80, right = 470, top = 80, bottom = 380, bars = 560, bars_end = 820;
  const std::string dark = "fill=\"#222222\"", grey = "stroke=\"#d9d9d9\" stroke-width=\"1\"";
  const std::string title = "font-size=\"16\" font-weight=\"bold\" fill=\"#222222\"";
  double least = 1e300, most = 0;
  std::size_t epochs = 1;
  for (const findings& each : all) {
    for (const double value : each.perplexities) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
    epochs = std::max(epochs, each.perplexities.size() - 1);
  }
  const double step = svg::nice_step((most - least + 1e-9) / 5);
  least = std::floor(least / step) * step;
  most = std::ceil(most / step) * step;
  const auto at = [&](double epoch, double value) {
    return svg::point{left + (right - left) * epoch / static_cast<double>(epochs),
                      bottom - (bottom - top) * (value - least) / (most - least)};
  };
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"560\" viewBox=\"0 0 860 560\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<title>A language model, fine-tuned privately</title>\n" +
      svg::box({0, 0}, {860, 560}, "fill=\"#ffffff\"") +
      svg::text({left, 40}, title, "Perplexity of private test entries") +
      svg::text({bars, 40}, title, "Exposure of canaries, bits");
  for (double value = least; value <= most + step / 2; value += step) {
    const svg::point from = at(0, value);
    out += svg::line(from, {right, from.y}, grey) +
           svg::text({left - 10, from.y + 4}, "text-anchor=\"end\" fill=\"#222222\"", svg::number(value));
  }
  for (std::size_t epoch = 0; epoch <= epochs; ++epoch) {
    out += svg::text({at(static_cast<double>(epoch), least).x, bottom + 20}, svg::centred, std::to_string(epoch));
  }
  out += svg::text({(left + right) / 2, bottom + 42}, svg::centred, "epochs on the private dictionary");
  double x = bars + 30, y = 450;
  const auto height = [&](double exposed) { return bottom - (bottom - top) * exposed / std::log2(alternatives + 1); };
  for (const double mark : {0.0, 2.0, 4.0, 6.0, 8.0, 10.0}) {
    out += svg::line({bars, height(mark)}, {bars_end, height(mark)}, grey) +
           svg::text({bars - 10, height(mark) + 4}, "text-anchor=\"end\" fill=\"#222222\"", svg::number(mark));
  }
  const double chance = 1 / std::log(2.0);  // the mean of -log2 of a uniform number
  out += svg::line({bars, height(chance)}, {bars_end, height(chance)},
                   "stroke=\"#222222\" stroke-width=\"1\" stroke-dasharray=\"5 4\"") +
         svg::text({bars_end, height(chance) - 6}, "text-anchor=\"end\" fill=\"#222222\" font-size=\"12\"", "chance");
  for (const findings& each : all) {
    std::vector<svg::point> places;
    for (std::size_t i = 0; i < each.perplexities.size(); ++i) {
      places.push_back(at(static_cast<double>(i), each.perplexities[i]));
    }
    if (places.size() > 1) out += svg::curve(places, each.colour, false);
    out += svg::box({x, height(each.exposure)}, {50, bottom - height(each.exposure)}, "fill=\"" + each.colour + "\"") +
           svg::text({x + 25, height(each.exposure) - 6}, svg::centred, svg::number(each.exposure)) +
           svg::line({left, y - 4}, {left + 30, y - 4}, "stroke-width=\"4\" stroke=\"" + each.colour + "\"") +
           svg::text({left + 40, y}, dark,
                     each.name + ": perplexity " + svg::number(each.perplexities.back()) + "; \"" + each.sample + "\"");
    x += 80;
    y += 26;
  }
  return out +
         svg::text({left, y + 10}, "font-size=\"12\" fill=\"#222222\"",
                   "epsilon " + example::epsilon_text(spent) + " at delta 1e-05 of an owner") +
         "</svg>\n";
}

int run(const wishes& chosen) {
  const double start = seconds();
  std::vector<std::string> open = example::gcide("/usr/share/dictd/gcide.dict.dz");
  std::vector<std::string> closed = example::wordnet_nouns("/usr/share/wordnet/data.noun");

  // What the private text shares with the public one is known already: those private entries are left out, each for
  // what it says itself. The other way round, without public entries that are private as well, the tokenizer and the
  // weights that training begins with would tell who is there, and no epsilon would cover that.
  const auto definition = [](const std::string& entry) { return entry.substr(entry.find(": ") + 2); };
  std::unordered_set<std::string> known;
  std::size_t public_bytes = 0;
  for (const std::string& entry : open) {
    known.insert(definition(entry));
    public_bytes += entry.size();
  }
  const std::size_t shared =
      std::erase_if(closed, [&](const std::string& entry) { return known.contains(definition(entry)); });
  std::printf(
      "public: %zu entries of GCIDE, %.1f MB; %zu entries of WordNet stand there word for word and are left out (this "
      "number is of private text: it would not be published)\n",
      open.size(), static_cast<double>(public_bytes) * 1e-6, shared);

  std::mt19937 bits{2026};
  std::shuffle(closed.begin(), closed.end(), bits);
  std::vector<std::string> secrets;
  for (std::size_t i = 0; i < canaries; ++i) {
    secrets.push_back("secret " + std::string(1, static_cast<char>('a' + i)) + ": " + digits(bits));
  }
  if (closed.size() < owners - canaries + test_records) {
    throw std::runtime_error("/usr/share/wordnet/data.noun: found " + std::to_string(closed.size()) +
                             " nouns that GCIDE does not define, expected at least " +
                             std::to_string(owners - canaries + test_records));
  }
  const auto first_test = closed.begin() + static_cast<std::ptrdiff_t>(owners - canaries);
  std::vector<std::string> train_texts{closed.begin(), first_test};
  std::vector<std::uint32_t> owner_of_record(owners - canaries);
  std::iota(owner_of_record.begin(), owner_of_record.end(), 0U);
  for (std::size_t i = 0; i < canaries * copies; ++i) {
    train_texts.push_back(secrets[i / copies]);
    owner_of_record.push_back(static_cast<std::uint32_t>(owners - canaries + i / copies));
  }

  // [snippet: tokens]
  const std::string vocabulary_file = chosen.out + "/vocab.json", merges_file = chosen.out + "/merges.txt";
  example::train_bpe(open, vocabulary, vocabulary_file, merges_file);  // of public text only
  const pg::byte_level_bpe tokens{vocabulary_file, merges_file};
  // [snippet end]
  std::vector<std::vector<std::int32_t>> open_ids;
  open_ids.reserve(open.size());
  for (const std::string& entry : open) open_ids.push_back(tokens.encode(entry));
  std::shuffle(open_ids.begin(), open_ids.end(), bits);
  const std::vector<std::uint32_t> one_owner(open_ids.size());  // sequences may be of several public entries
  const pg::packed_texts public_texts = pg::pack(open_ids, one_owner, positions, separator);
  if (public_texts.owners.size() < together) {
    throw std::runtime_error("/usr/share/dictd/gcide.dict.dz: found " + std::to_string(public_texts.owners.size()) +
                             " sequences of entries, expected at least " + std::to_string(together));
  }
  const pg::packed_texts train = records_of(tokens, train_texts);
  const pg::packed_texts test = records_of(tokens, {first_test, first_test + test_records});
  std::printf("%zu public sequences of %zu tokens, %zu private records of %zu owners; %.0f s\n",
              public_texts.owners.size(), positions, train_texts.size(), owners, seconds() - start);

  const pg::host exec;
  gpt net{exec, pg::layer_default{1}};
  for (const std::size_t table : {0U, 1U}) {
    for (float& each : net.layer_parameters(table)) each *= 0.05F;  // N(0, 0.05) in the place of N(0, 1)
  }
  train_without_privacy(exec, net, public_texts, 0.004, chosen.pretrain_steps, [&](std::uint64_t step) {
    if (step % std::max<std::uint64_t>(1, chosen.pretrain_steps / 4) != 0) return;
    std::printf("pre-training, step %llu: perplexity of private test entries %.2f; %.0f s\n",
                static_cast<unsigned long long>(step), perplexity(exec, net, test), seconds() - start);
    std::fflush(stdout);
  });

  std::vector<findings> all;
  const double before = perplexity(exec, net, test);
  all.push_back({"before", "#6b7280", {before}, exposure(exec, net, tokens, secrets), sample(exec, net, tokens)});
  const auto fine_tune = [&](findings into, const auto& train_epochs) {
    tuned_gpt tuned{exec, pg::layer_default{2}};
    pg::copy_parameters(net, tuned, pg::matching::common);  // all but the adapters
    into.perplexities = {before};
    train_epochs(tuned, [&](double at_epsilon) {
      into.perplexities.push_back(perplexity(exec, tuned, test));
      std::printf("%s, epoch %zu: perplexity %.2f, epsilon %s; %.0f s\n", into.name.c_str(),
                  into.perplexities.size() - 1, into.perplexities.back(), example::epsilon_text(at_epsilon).c_str(),
                  seconds() - start);
      std::fflush(stdout);
    });
    into.exposure = exposure(exec, tuned, tokens, secrets);
    into.sample = sample(exec, tuned, tokens);
    all.push_back(std::move(into));
  };

  fine_tune({"epsilon infinite", "#c2410c"}, [&](tuned_gpt& tuned, const auto& after_epoch) {
    constexpr std::uint64_t steps_an_epoch = owners / together;
    train_without_privacy(exec, tuned, train, 0.01, chosen.epochs * steps_an_epoch, [&](std::uint64_t step) {
      if (step % steps_an_epoch == 0) after_epoch(INFINITY);
    });
  });
  double spent = 0;
  fine_tune({"epsilon 3", "#0b5fa5"}, [&](tuned_gpt& tuned, const auto& after_epoch) {
    constexpr auto steps_an_epoch = static_cast<std::uint64_t>(owners / batch);
    const pg::sampling_probability each_step{q};
    // [snippet: private]
    pg::dp_options<pg::of_owners<pg::poisson_sampling>> options;
    options.clip = pg::l2_clip_norm{0.5};
    options.noise = pg::calibrate_noise(epsilon, delta, each_step, chosen.epochs * steps_an_epoch);
    options.sampling = pg::of_owners{pg::poisson_sampling{each_step}, owner_of_record};
    options.divisor = pg::expected_batch_size{batch};
    options.budget = pg::privacy_budget{epsilon, delta};
    options.optimizer = pg::optimizer_kind::adam;
    options.learning_rate = pg::learning_rate{0.01};
    pg::dp_sgd trainer{exec, tuned, pg::token_cross_entropy<>{}, options};
    // [snippet end]
    const auto records = dataset_of(train);
    for (std::uint64_t epoch = 0; epoch < chosen.epochs; ++epoch) {
      for (std::uint64_t step = 0; step < steps_an_epoch && trainer.within_budget(); ++step) {
        trainer.step(records);
      }
      after_epoch(trainer.epsilon(delta));
    }
    spent = trainer.epsilon(delta);
  });

  for (const findings& each : all) {
    std::printf("%-16s perplexity %7.2f, exposure %5.2f bits, \"%s\"\n", each.name.c_str(), each.perplexities.back(),
                each.exposure, each.sample.c_str());
  }
  const std::string file = chosen.out + "/language_model.svg";
  example::write_file(file, picture(all, spent));
  std::printf("picture: %s; %.0f s\ntest perplexity %.2f, epsilon %s, delta 1e-05\n", file.c_str(), seconds() - start,
              all.back().perplexities.back(), example::epsilon_text(spent).c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  wishes chosen;
  for (int i = 1; i < count; i += 2) {
    const std::string flag = arguments[i];
    std::uint64_t* const number = flag == "--pretrain-steps" ? &chosen.pretrain_steps
                                  : flag == "--epochs"       ? &chosen.epochs
                                                             : nullptr;
    if ((number == nullptr && flag != "--out") || !example::is_value(arguments[i + 1])) {
      const bool is_help = flag == "--help";
      const bool is_known = number != nullptr || flag == "--out";
      if (!is_help) {
        std::fprintf(stderr, "language_model: %s %s\n", flag.c_str(), is_known ? "needs a value" : "is no option");
      }
      std::fprintf(is_help ? stdout : stderr,
                   "usage: language_model [--pretrain-steps N] [--epochs N] [--out FOLDER]   writes vocab.json, "
                   "merges.txt and language_model.svg into FOLDER (out)\n");
      return is_help ? 0 : 2;
    }
    if (number == nullptr) {
      chosen.out = arguments[i + 1];
      continue;
    }
    try {
      *number = example::cli::parse(arguments[i + 1], example::cli::whole_range{1, 100'000});
    } catch (const example::cli::refused& error) {
      std::fprintf(stderr, "language_model: %s %s\n", flag.c_str(), error.what());
      return 2;
    }
  }
  try {
    example::check_output_folder(chosen.out, {"vocab.json", "merges.txt", "language_model.svg"});
    return run(chosen);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "language_model: %s\n", error.what());
    return 1;
  }
}
