// SPDX-License-Identifier: Apache-2.0
// tests/files/checkpoint_test.cpp - parameters there and back by name, between networks that differ, from NumPy's
// files; every damaged file is refused whole, and nothing is lost when one cannot be written.
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include "damaged.hpp"
#include "train/fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_checkpoint)

namespace {

using namespace fixture;
using precise = classifier::rebind<double>;

/// A folder of this test's own, gone at the end.
struct folder {
  std::filesystem::path path;
  folder() {
    path = std::filesystem::temp_directory_path() / ("pergrad_checkpoint_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
  }
  ~folder() { std::filesystem::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  [[nodiscard]] std::string operator/(const char* name) const { return (path / name).string(); }
};

std::string read(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream file{path, std::ios::binary};
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
const pg::host& executor() {
  static const pg::host exec{pg::threads{1}};
  return exec;
}

/// Loading must throw a runtime_error that names the file and says `what`, and leave the network alone.
template <class Network>
void refused(const std::string& path, const std::string& what) {
  Network net{executor(), pg::kaiming_uniform{2}};
  const std::vector<typename Network::scalar> before{net.parameters().begin(), net.parameters().end()};
  BOOST_CHECK_EXCEPTION(pg::load_parameters(net, path), std::runtime_error, [&](const std::runtime_error& error) {
    const std::string text = error.what();
    BOOST_TEST_MESSAGE(text);
    return text.starts_with("pergrad: ") && text.find(path) != std::string::npos &&
           text.find(what) != std::string::npos;
  });
  BOOST_TEST((std::vector<typename Network::scalar>{net.parameters().begin(), net.parameters().end()} == before));
}

template <class Network>
void round_trip(const std::string& path) {
  using scalar = typename Network::scalar;
  Network net{executor(), pg::kaiming_uniform{1}};
  net.parameters()[0] = std::numeric_limits<scalar>::denorm_min();
  net.parameters()[1] = -scalar{0};
  net.parameters()[2] = std::numeric_limits<scalar>::max();
  pg::save_parameters(net, path);
  Network other{executor(), pg::zeros{}};
  pg::load_parameters(other, path);
  BOOST_TEST(std::memcmp(net.parameters().data(), other.parameters().data(), net.parameters().size_bytes()) == 0);
}

/// Files and folders in a folder: nothing unfinished is left behind.
std::size_t entries(const folder& here) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator{here.path}) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}
void write_npy(const std::string& path, std::span<const float> values) {
  write(path, pg::detail::npy_header<float>(values.size()) +
                  std::string{reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}
template <class Network>
std::string names_of() {
  std::string text;
  for (const auto& each : pg::detail::parameter_tensors<Network>()) {
    text += (text.empty() ? "" : "\n") + pg::detail::safetensors::to_text(each);
  }
  return text;
}
template <class Network>
std::vector<float> all_of(const Network& net) {
  return {net.all_parameters().begin(), net.all_parameters().end()};
}

/// y = x + w with the blocks that a user might list for it.
template <int Case>
struct shift {
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pg::shape in) { return in.size(); }
  [[nodiscard]] static constexpr auto factors(pg::shape in) {
    return pg::list_factors(pg::elementwise_sum(1, in.size(), {pg::source::backprop}));
  }
  [[nodiscard]] static constexpr pg::block_list<2> blocks(pg::shape in) requires(Case > 0) {
    if (Case == 1) return {{{"first", {in.e0 / 2}}, {"second", {in.e0 / 2}}}};
    if (Case == 2) return {{{"first", {in.e0 / 2}}, {"first", {in.e0 / 2}}}};
    if (Case == 3) return {{{"first", {in.e0}}, {"second", {1}}}};
    if (Case == 5) return {{{"fir\rst", {in.e0}}}};
    if (Case == 6) return {{{"fir\xffst", {in.e0}}}};
    return {{{"fir\"st", {in.e0}}}};
  }
  template <class Scalar>
  static void forward(pg::shape, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + w[i];
  }
  template <class Scalar>
  static void backward(pg::shape, std::span<const Scalar>, std::span<const Scalar>, std::span<const Scalar> dy,
                       std::span<Scalar> dx) {
    std::ranges::copy(dy, dx.begin());
  }
};

/// A network, and the same one whose first two layers are not trained.
using base = pg::network<pg::shape{6}, pg::linear<9>, pg::tanh, pg::linear<4>, pg::tanh, pg::linear<3>>;
using fine_tuned =
    pg::network<pg::shape{6}, pg::linear<9>, pg::frozen<pg::tanh, pg::linear<4>>, pg::tanh, pg::linear<3>>;

template <class Network>
std::vector<float> outputs_of(const Network& net) {
  const clouds data{40};
  return pg::unprotected::predict(executor(), net, std::span<const float>{data.inputs});
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_saved_is_loaded_bit_for_bit) {
  const folder here;
  round_trip<classifier>(here / "float");
  round_trip<precise>(here / "double");
  round_trip<classifier>(here / "float");  // over an older file
  BOOST_TEST(entries(here) == 2U);
}

// Headers whose dictionary fills its 64 bytes to the last are where padding goes wrong.
BOOST_AUTO_TEST_CASE(headers_of_all_lengths) {
  for (std::size_t count = 1; count < 2'000'000'000; count = count * 10) {
    const std::string header = pg::detail::npy_header<float>(count);
    BOOST_TEST(header.size() % 64 == 0U);
    BOOST_TEST(header.back() == '\n');
    BOOST_TEST(header.size() - 10 == static_cast<std::size_t>(static_cast<unsigned char>(header[8])) +
                                         256U * static_cast<unsigned char>(header[9]));
  }
}

BOOST_AUTO_TEST_CASE(a_file_that_numpy_writes_otherwise_is_read_too) {
  const folder here;
  const std::string path = here / "numpy.npy";
  const classifier net{executor(), pg::kaiming_uniform{1}};
  write_npy(path, net.parameters());
  const std::string bytes = read(path);
  // Old versions of NumPy aligned the data to 16 bytes.
  const std::size_t start = 10 + static_cast<unsigned char>(bytes[8]);
  const std::string values = bytes.substr(start);
  std::string literal =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(classifier::parameter_count) + ",), }";
  literal.append(15 - (10 + literal.size()) % 16, ' ');
  literal += '\n';
  write(path, std::string{"\x93NUMPY\x01\x00", 8} + static_cast<char>(literal.size()) + '\0' + literal + values);
  classifier other{executor(), pg::zeros{}};
  pg::load_parameters(other, path);
  BOOST_TEST((parameters_of(other) == parameters_of(net)));
}

BOOST_AUTO_TEST_CASE(damaged_npy_files_are_refused_whole) {
  const folder here;
  const std::string path = here / "net.npy";
  const classifier net{executor(), pg::kaiming_uniform{1}};
  write_npy(path, net.parameters());
  const std::string good = read(path);
  const auto damaged = [&](const std::string& bytes, const std::string& what) {
    write(path, bytes);
    refused<classifier>(path, what);
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  for (std::size_t size = 0; size < good.size(); size += size < 140 ? 1 : 37) {  // cut off anywhere
    write(path, good.substr(0, size));
    refused<classifier>(path, "");
  }
  damaged("", "");
  damaged(good.substr(0, good.size() - 1), "bytes");
  damaged(good + '\0', "bytes");
  damaged(good + good, "bytes");
  damaged("P" + good.substr(1), "");
  damaged(std::string{good}.replace(6, 1, "\x02"), "version 1.0");
  damaged(replaced("'<f4'", "'<f8'"), "'<f4'");
  damaged(replaced("'<f4'", "'>f4'"), "'<f4'");
  damaged(replaced("'<f4'", "'<i4'"), "'<f4'");
  damaged(replaced("False", "True "), "found");
  damaged(replaced("(" + std::to_string(classifier::parameter_count) + ",)",
                   "(" + std::to_string(classifier::parameter_count + 1) + ",)"),
          "shape (" + std::to_string(classifier::parameter_count) + ",)");
  damaged(std::string{good}.replace(8, 2, "\xff\xff"), "");  // a header longer than the file
  damaged(std::string{good}.replace(8, 2, std::string(2, '\0')), "");
  write(path, good);
  refused<precise>(path, "'<f8'");
  using other_width = pg::network<pg::shape{6}, pg::linear<10>>;
  refused<other_width>(path, "(70,)");
  refused<classifier>(here / "nowhere.npy", "opened");
  refused<classifier>(here.path.string(), "not a regular file");
  classifier again{executor(), pg::zeros{}};
  pg::load_parameters(again, path);  // the good file still is
  BOOST_TEST((parameters_of(again) == parameters_of(net)));
}

// nn.Sequential's state_dict, made by hand: torch.nn.Linear and Conv2d have weight and bias, nn.GRU weight_ih_l0, ...
BOOST_AUTO_TEST_CASE(names_are_those_of_pytorch) {
  BOOST_TEST(names_of<classifier>() == "0.weight F32 [9, 6]\n0.bias F32 [9]\n2.weight F32 [3, 9]\n2.bias F32 [3]");
  BOOST_TEST(names_of<precise>().starts_with("0.weight F64 [9, 6]\n"));
  using images =
      pg::network<pg::shape{2, 8, 8}, pg::conv2d<4, pg::extent{3, 2}, pg::groups<2>, pg::no_bias>, pg::group_norm<2>,
                  pg::conv_transpose2d<3, 2>, pg::flatten, pg::linear<5>, pg::layer_norm<>, pg::linear<2>>;
  BOOST_TEST(
      names_of<images>() ==
      "0.weight F32 [4, 1, 3, 2]\n1.weight F32 [4]\n1.bias F32 [4]\n2.weight F32 [4, 3, 2, 2]\n2.bias F32 [3]\n"
      "4.weight F32 [5, 168]\n4.bias F32 [5]\n5.weight F32 [5]\n5.bias F32 [5]\n6.weight F32 [2, 5]\n6.bias F32 [2]");
  using volumes = pg::network<pg::shape{1, 3, 4, 5}, pg::conv3d<2, pg::extent{1, 2, 3}>, pg::flatten>;
  BOOST_TEST(names_of<volumes>() == "0.weight F32 [2, 1, 1, 2, 3]\n0.bias F32 [2]");
  using signals = pg::network<pg::shape{3, 7}, pg::conv1d<2, 4>, pg::flatten>;
  BOOST_TEST(names_of<signals>() == "0.weight F32 [2, 3, 4]\n0.bias F32 [2]");
  using nested = pg::network<
      pg::shape{4}, pg::sequential<pg::linear<4>, pg::sequential<pg::tanh, pg::linear<4, pg::no_bias>>>,
      pg::tied<1, pg::linear<4>>, pg::tied<1, pg::linear<4>>, pg::repeat<2, pg::linear<4, pg::no_bias>, pg::relu>,
      pg::residual<pg::linear<4, pg::no_bias>, pg::relu, pg::projection<pg::linear<4, pg::no_bias>>>,
      pg::parallel<pg::linear<1, pg::no_bias>, pg::sequential<pg::relu, pg::linear<2, pg::no_bias>>, pg::sequential<>>,
      pg::parameter_group<1, pg::linear<2, pg::no_bias>>>;
  BOOST_TEST(names_of<nested>() ==
             "0.0.weight F32 [4, 4]\n0.0.bias F32 [4]\n0.1.1.weight F32 [4, 4]\n1.weight F32 [4, 4]\n1.bias F32 [4]\n"
             "3.weight F32 [4, 4]\n5.weight F32 [4, 4]\n7.0.weight F32 [4, 4]\n7.projection.0.weight F32 [4, 4]\n"
             "8.0.weight F32 [1, 4]\n8.1.1.weight F32 [2, 4]\n9.weight F32 [2, 7]");
  using text = pg::network<pg::token_ids(4, 6), pg::embedding<2>, pg::gru<3, pg::layers<2>, pg::bidirectional>,
                           pg::lstm<2, pg::one_bias, pg::last_output>>;
  BOOST_TEST(
      names_of<text>() ==
      "0.weight F32 [6, 2]\n1.weight_ih_l0 F32 [9, 2]\n1.weight_hh_l0 F32 [9, 3]\n1.bias_ih_l0 F32 [9]\n"
      "1.bias_hh_l0 F32 [9]\n1.weight_ih_l0_reverse F32 [9, 2]\n1.weight_hh_l0_reverse F32 [9, 3]\n"
      "1.bias_ih_l0_reverse F32 [9]\n1.bias_hh_l0_reverse F32 [9]\n1.weight_ih_l1 F32 [9, 6]\n"
      "1.weight_hh_l1 F32 [9, 3]\n1.bias_ih_l1 F32 [9]\n1.bias_hh_l1 F32 [9]\n1.weight_ih_l1_reverse F32 [9, 6]\n"
      "1.weight_hh_l1_reverse F32 [9, 3]\n1.bias_ih_l1_reverse F32 [9]\n1.bias_hh_l1_reverse F32 [9]\n"
      "2.weight_ih_l0 F32 [8, 6]\n2.weight_hh_l0 F32 [8, 2]\n2.bias_ih_l0 F32 [8]");
  // nn.TransformerEncoderLayer makes its norms last, wherever they are used.
  const std::string encoder =
      ".self_attn.in_proj_weight F32 [12, 4]\n0.self_attn.in_proj_bias F32 [12]\n0.self_attn.out_proj.weight F32 [4, "
      "4]\n"
      "0.self_attn.out_proj.bias F32 [4]\n0.linear1.weight F32 [8, 4]\n0.linear1.bias F32 [8]\n"
      "0.linear2.weight F32 [4, 8]\n0.linear2.bias F32 [4]\n0.norm1.weight F32 [4]\n0.norm1.bias F32 [4]\n"
      "0.norm2.weight F32 [4]\n0.norm2.bias F32 [4]";
  using after = pg::network<pg::shape{5, 4}, pg::transformer_encoder_layer<2, 8>>;
  using before = pg::network<pg::shape{5, 4}, pg::transformer_encoder_layer<2, 8, pg::pre_norm, pg::dropout_rate<0.1>>>;
  BOOST_TEST(names_of<after>() == "0" + encoder);
  BOOST_TEST(names_of<before>() == "0" + encoder);
  using given =
      pg::network<pg::shape{5, 4},
                  pg::cross_attention<2, pg::queries<pg::linear<4>>, pg::memory<pg::linear<6>>, pg::kv_bias>,
                  pg::with_state<pg::lstm<2>, pg::sequence<pg::linear<3>>, pg::state<pg::select_last, pg::linear<4>>>,
                  pg::lora<1, pg::linear<5>>>;
  BOOST_TEST(
      names_of<given>() ==
      "0.queries.0.weight F32 [4, 4]\n0.queries.0.bias F32 [4]\n0.memory.0.weight F32 [6, 4]\n"
      "0.memory.0.bias F32 [6]\n0.q_proj_weight F32 [4, 4]\n0.k_proj_weight F32 [4, 6]\n0.v_proj_weight F32 [4, 6]\n"
      "0.in_proj_bias F32 [12]\n0.bias_k F32 [1, 1, 4]\n0.bias_v F32 [1, 1, 4]\n0.out_proj.weight F32 [4, 4]\n"
      "0.out_proj.bias F32 [4]\n1.sequence.0.weight F32 [3, 4]\n1.sequence.0.bias F32 [3]\n"
      "1.state.1.weight F32 [4, 4]\n1.state.1.bias F32 [4]\n1.weight_ih_l0 F32 [8, 3]\n1.weight_hh_l0 F32 [8, 2]\n"
      "1.bias_ih_l0 F32 [8]\n1.bias_hh_l0 F32 [8]\n2.lora_A.weight F32 [1, 2]\n2.lora_B.weight F32 [5, 1]\n"
      "2.weight F32 [5, 2]\n2.bias F32 [5]");
  using users = pg::network<pg::shape{5, 4}, pg::learned_positions, pg::sequence_bias, pg::rms_norm<pg::axes<2>>>;
  BOOST_TEST(names_of<users>() == "0.weight F32 [5, 4]\n1.bias F32 [4]\n2.weight F32 [6, 4]");
}

// Layer by layer, with the options that add or leave out a tensor.
BOOST_AUTO_TEST_CASE(every_layers_blocks_are_its_parameters) {
  const auto covered = []<class Network>(std::type_identity<Network> /*type*/) {
    std::size_t end = 0;
    for (const auto& each : pg::detail::in_memory_order(pg::detail::parameter_tensors<Network>())) {
      BOOST_TEST(each.begin == end);
      end += each.size;
    }
    BOOST_TEST(end == sizeof(float) * (Network::parameter_count + Network::frozen_parameter_count));
  };
  const auto on_sequences = [&]<class... Layers>(std::type_identity<std::tuple<Layers...>> /*types*/) {
    (covered(std::type_identity<pg::network<pg::shape{5, 4}, Layers>>{}), ...);
  };
  on_sequences(
      std::type_identity<std::tuple<
          pg::linear<3, pg::no_bias>, pg::conv1d<2, 3, pg::no_bias>, pg::rnn<3, pg::no_bias, pg::bidirectional>,
          pg::gru<3, pg::one_bias, pg::mean_output>, pg::lstm<3, pg::layers<3>, pg::last_output>,
          pg::multihead_attention<2, pg::no_bias>, pg::multihead_attention<2, pg::kv_bias>,
          pg::cross_attention<2, pg::queries<>, pg::memory<>, pg::no_bias>,
          pg::cross_attention<2, pg::queries<>, pg::memory<pg::linear<3>>, pg::no_bias, pg::kv_bias>,
          pg::layer_norm<pg::axes<2>, pg::no_bias>, pg::layer_norm<pg::no_affine>, pg::rms_norm<>,
          pg::instance_norm1d<>, pg::learned_positions, pg::sequence_bias, pg::lora<2, pg::linear<3, pg::no_bias>>,
          pg::frozen<pg::channel_affine>, pg::merge<pg::detail::concatenate, pg::linear<2>, pg::gru<3>>>>{});
  covered(std::type_identity<pg::network<pg::shape{4, 3, 3}, pg::channel_affine, pg::group_norm<2, pg::no_affine>>>{});
  covered(std::type_identity<pg::network<pg::token_ids(5, 7), pg::embedding_bag<3>>>{});
  using given = pg::network<pg::shape{5, 4}, pg::with_state<pg::gru<2, pg::layers<2>, pg::bidirectional>,
                                                            pg::sequence<>, pg::state<pg::flatten, pg::linear<8>>>>;
  covered(std::type_identity<given>{});
  const std::string names = names_of<given>();
  BOOST_TEST((names.find("0.state.1.bias F32 [8]\n0.weight_ih_l0 F32 [6, 4]") != std::string::npos));
  BOOST_TEST((names.find("0.weight_ih_l0_reverse F32 [6, 4]") != std::string::npos));
  BOOST_TEST((names.find("0.weight_ih_l1 F32 [6, 4]") != std::string::npos));
  BOOST_TEST(names.ends_with("0.bias_hh_l1_reverse F32 [6]"));
}

BOOST_AUTO_TEST_CASE(a_users_layer_may_name_its_blocks_and_must_do_so_rightly) {
  BOOST_TEST((names_of<pg::network<pg::shape{4}, shift<0>>>() == "0.0 F32 [4]"));
  BOOST_TEST((names_of<pg::network<pg::shape{4}, shift<1>>>() == "0.first F32 [2]\n0.second F32 [2]"));
  BOOST_CHECK_THROW((names_of<pg::network<pg::shape{4}, shift<2>>>()), std::logic_error);  // one name twice
  BOOST_CHECK_THROW((names_of<pg::network<pg::shape{4}, shift<3>>>()), std::logic_error);  // more than there is
  BOOST_CHECK_THROW((names_of<pg::network<pg::shape{4}, shift<4>>>()), std::logic_error);  // no name for a file
  BOOST_CHECK_THROW((names_of<pg::network<pg::shape{4}, shift<5>>>()), std::logic_error);
  BOOST_CHECK_THROW((names_of<pg::network<pg::shape{4}, shift<6>>>()), std::logic_error);
}

BOOST_AUTO_TEST_CASE(a_base_goes_into_a_network_with_a_frozen_part_by_name) {
  const folder here;
  const std::string path = here / "base";
  const base net{executor(), pg::kaiming_uniform{1}};
  BOOST_TEST(names_of<base>() == names_of<fine_tuned>());
  pg::save_parameters(net, path);
  fine_tuned loaded{executor(), pg::zeros{}}, copied{executor(), pg::zeros{}}, scrambled{executor(), pg::zeros{}};
  BOOST_TEST(pg::load_parameters(loaded, path).empty());
  BOOST_TEST(pg::copy_parameters(net, copied).empty());
  BOOST_TEST((outputs_of(loaded) == outputs_of(net)));
  BOOST_TEST((outputs_of(copied) == outputs_of(net)));
  // By position, which is what this test is for: the frozen layer's parameters are stored last.
  std::ranges::copy(net.all_parameters(), scrambled.all_parameters().begin());
  BOOST_TEST((outputs_of(scrambled) != outputs_of(net)));
  // And back.
  pg::save_parameters(loaded, path);
  base again{executor(), pg::zeros{}};
  pg::load_parameters(again, path);
  BOOST_TEST((all_of(again) == all_of(net)));
}

BOOST_AUTO_TEST_CASE(a_flat_vector_says_how_it_is_ordered_where_it_matters) {
  const folder here;
  const std::string path = here / "net.npy";
  const base net{executor(), pg::kaiming_uniform{1}};
  write_npy(path, net.all_parameters());
  base same{executor(), pg::zeros{}};
  pg::load_parameters(same, path);
  BOOST_TEST((all_of(same) == all_of(net)));
  refused<fine_tuned>(path, "unprotected::load_parameters takes a parameter_order");
  fine_tuned tuned{executor(), pg::zeros{}}, wrong{executor(), pg::zeros{}};
  pg::unprotected::load_parameters(tuned, path, pg::parameter_order::by_layer);
  BOOST_TEST((outputs_of(tuned) == outputs_of(net)));
  pg::unprotected::load_parameters(wrong, path, pg::parameter_order::frozen_last);
  BOOST_TEST((outputs_of(wrong) != outputs_of(net)));
  write_npy(path, tuned.all_parameters());  // as version 0.1 wrote it
  pg::unprotected::load_parameters(wrong, path, pg::parameter_order::frozen_last);
  BOOST_TEST((all_of(wrong) == all_of(tuned)));
}

BOOST_AUTO_TEST_CASE(another_network_is_refused_and_both_sides_are_listed) {
  const folder here;
  const std::string path = here / "net";
  const classifier net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, path);
  using as_large = pg::network<pg::shape{6}, pg::linear<3>, pg::tanh, pg::linear<18>>;
  static_assert(as_large::parameter_count == classifier::parameter_count);
  refused<as_large>(
      path,
      "does not fit the network: the file has 0.weight F32 [9, 6] for 0.weight F32 [3, 6], 0.bias F32 [9] for "
      "0.bias F32 [3], 2.weight F32 [3, 9] for 2.weight F32 [18, 3], 2.bias F32 [3] for 2.bias F32 [18]");
  refused<pg::network<pg::shape{6}, pg::linear<9>, pg::tanh, pg::tanh, pg::linear<3>>>(
      path,
      "only in the file: 2.weight F32 [3, 9], 2.bias F32 [3]; only in the network: 3.weight F32 [3, 9], 3.bias F32 "
      "[3]");
  refused<precise>(path, "the file has 0.weight F32 [9, 6] for 0.weight F64 [9, 6]");
  refused<pg::network<pg::shape{6}, pg::linear<9>, pg::relu, pg::linear<3>>>(path, "another structure: its hash is ");
}

// Same names, shapes and number of parameters: only the hash tells them apart.
BOOST_AUTO_TEST_CASE(the_hash_sees_what_names_and_shapes_do_not) {
  using pg::network, pg::shape;
  const std::vector<std::string> hashes{
      pg::detail::structure_hash<network<shape{6, 4}, pg::multihead_attention<2>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::multihead_attention<4>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::multihead_attention<2, pg::causal>>>(false),
      pg::detail::structure_hash<network<shape{7, 4}, pg::multihead_attention<2>>>(false),
      pg::detail::structure_hash<network<pg::variable(shape{6, 4}), pg::multihead_attention<2>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::rnn<4>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::rnn<4, pg::relu_cell>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::layer_norm<>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::layer_norm<pg::eps<1, 100>>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::layer_norm<>, pg::tanh>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::residual<pg::layer_norm<>>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::layer_norm<>, pg::dropout<0.5>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::layer_norm<>, pg::dropout<1.0 / 3>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::layer_norm<>, pg::scale<std::ratio<1, 3>>>>(false),
      pg::detail::structure_hash<network<shape{6, 4}, pg::layer_norm<>, pg::scale<std::ratio<2, 3>>>>(false),
      pg::detail::structure_hash<network<shape{4, 6, 6}, pg::group_norm<1>>>(false),
      pg::detail::structure_hash<network<shape{4, 6, 6}, pg::group_norm<2>>>(false),
      pg::detail::structure_hash<network<shape{4, 6, 6}, pg::max_pool2d<2>>>(false),
      pg::detail::structure_hash<network<shape{4, 6, 6}, pg::avg_pool2d<2>>>(false),
      pg::detail::structure_hash<network<shape{4, 6, 6}, pg::max_pool2d<1, pg::stride<2>>>>(false),
      pg::detail::structure_hash<network<shape{4, 6, 6}, pg::conv2d<2, 3, pg::padding<1>>>>(false),
      pg::detail::structure_hash<network<shape{4, 6, 6}, pg::conv2d<2, 3, pg::padding<2>, pg::dilation<2>>>>(false),
      pg::detail::structure_hash<network<pg::token_ids(6, 5), pg::embedding<2>>>(false),
      pg::detail::structure_hash<network<pg::token_ids(6, 5), pg::embedding<2, pg::padding_idx<0>>>>(false),
      pg::detail::structure_hash<network<pg::token_ids(6, 5), pg::embedding_bag<2>>>(false),
      pg::detail::structure_hash<network<pg::token_ids(6, 5), pg::embedding_bag<2, pg::bag_sum>>>(false),
      pg::detail::structure_hash<network<shape{4}, pg::linear<4>, pg::linear<4>>>(false),
      pg::detail::structure_hash<network<shape{4}, pg::tied<1, pg::linear<4>>, pg::tied<1, pg::linear<4>>>>(false),
      pg::detail::structure_hash<network<shape{4}, pg::slice<0, 2>>>(false),
      pg::detail::structure_hash<network<shape{4}, pg::slice<1, 2>>>(false)};
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) BOOST_TEST(hashes[i] != hashes[k], i << " and " << k);
  }
  BOOST_TEST(pg::detail::structure_hash<base>(false) == pg::detail::structure_hash<fine_tuned>(false));
  BOOST_TEST(pg::detail::structure_hash<base>(true) != pg::detail::structure_hash<fine_tuned>(true));
  // Written down, so that files stay readable.
  BOOST_TEST(pg::detail::structure_hash<classifier>(true) == "fba28cc730d575da");
}

BOOST_AUTO_TEST_CASE(copies_go_by_name_and_say_what_they_leave) {
  const classifier net{executor(), pg::kaiming_uniform{1}};
  const std::vector<float> values = all_of(net);
  precise wide{executor(), pg::zeros{}};
  BOOST_TEST(pg::copy_parameters(net, wide).empty());
  BOOST_TEST(std::equal(values.begin(), values.end(), wide.parameters().begin()));
  // A new head, and adapters around what was there.
  pg::network<pg::shape{6}, pg::linear<9>, pg::tanh, pg::linear<5>> head{executor(), pg::kaiming_uniform{2}};
  const std::vector<float> before = all_of(head);
  BOOST_CHECK_EXCEPTION(pg::copy_parameters(net, head), std::invalid_argument, [](const std::invalid_argument& error) {
    return std::string{error.what()} ==
           "pergrad: copy_parameters: the networks differ: the source has 2.weight F32 [3, 9] for 2.weight F32 [5, 9], "
           "2.bias F32 [3] for 2.bias F32 [5]";
  });
  BOOST_TEST((all_of(head) == before));
  BOOST_TEST((pg::copy_parameters(net, head, pg::matching::common) == std::vector<std::string>{"2.weight", "2.bias"}));
  std::vector<float> expected = before;
  std::copy_n(values.begin(), 9 * 7, expected.begin());
  BOOST_TEST((all_of(head) == expected));
  using adapted = pg::network<pg::shape{6}, pg::lora<2, pg::linear<9>>, pg::tanh, pg::lora<2, pg::linear<3>>>;
  adapted around{executor(), pg::layer_default{3}};
  const std::vector<std::string> adapters{"0.lora_A.weight", "0.lora_B.weight", "2.lora_A.weight", "2.lora_B.weight"};
  BOOST_TEST((pg::copy_parameters(net, around, pg::matching::common) == adapters));
  BOOST_TEST(pg::detail::safetensors::differences(pg::detail::parameter_tensors<adapted>(), "a",
                                                  pg::detail::parameter_tensors<classifier>(), "b", true)
                 .starts_with("only in a: 0.lora_A.weight F32 [2, 6], "));
  for (std::size_t i = 0; i < outputs_of(net).size(); ++i) {
    BOOST_TEST(std::abs(outputs_of(net)[i] - outputs_of(around)[i]) < 1e-5F);  // B is 0 at first
  }
  const folder here;
  pg::save_parameters(net, here / "net");
  adapted loaded{executor(), pg::layer_default{3}};
  BOOST_TEST((pg::load_parameters(loaded, here / "net", pg::matching::common) == adapters));
  BOOST_TEST((all_of(loaded) == all_of(around)));
  // What the other type cannot hold is refused; what is no number stays none.
  wide.parameters()[70] = 1e300;
  wide.parameters()[0] = std::numeric_limits<double>::infinity();
  classifier narrow{executor(), pg::zeros{}};
  BOOST_CHECK_EXCEPTION(pg::copy_parameters(wide, narrow), std::invalid_argument, [](const std::exception& error) {
    return std::string{error.what()}.find("2.weight has a number that is beyond") != std::string::npos;
  });
  BOOST_TEST((all_of(narrow) == std::vector<float>(classifier::parameter_count)));
  wide.parameters()[70] = 1;
  BOOST_TEST(pg::copy_parameters(wide, narrow).empty());
  BOOST_TEST(std::isinf(narrow.parameters()[0]));
  // Nothing in common is no match at all.
  pg::network<pg::shape{6}, pg::tanh, pg::linear<3>> stranger{executor(), pg::zeros{}};
  BOOST_CHECK_THROW(pg::copy_parameters(net, stranger, pg::matching::common), std::invalid_argument);
  BOOST_CHECK_THROW(pg::load_parameters(stranger, here / "net", pg::matching::common), std::runtime_error);
}

// What safetensors.numpy.save_file writes has no metadata; its tensors are sorted by name.
BOOST_AUTO_TEST_CASE(a_file_of_others_is_read_by_name) {
  const folder here;
  const std::string path = here / "others";
  const classifier net{executor(), pg::kaiming_uniform{1}};
  const auto values = net.parameters();
  const std::string bytes{reinterpret_cast<const char*>(values.data()), values.size_bytes()};
  std::string header = R"({"0.bias":{"dtype":"F32","shape":[9],"data_offsets":[0,36]},)"
                       R"("0.weight":{"dtype":"F32","shape":[9,6],"data_offsets":[36,252]},)"
                       R"("2.bias":{"dtype":"F32","shape":[3],"data_offsets":[252,264]},)"
                       R"("2.weight":{"dtype":"F32","shape":[3,9],"data_offsets":[264,372]}})";
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size() & 0xFFU);
  size[1] = static_cast<char>(header.size() >> 8U);
  const std::string data =
      bytes.substr(216, 36) + bytes.substr(0, 216) + bytes.substr(360, 12) + bytes.substr(252, 108);
  write(path, size + header + data);
  classifier other{executor(), pg::zeros{}};
  pg::load_parameters(other, path);
  BOOST_TEST((parameters_of(other) == parameters_of(net)));
  refused<precise>(path, "F32 [9, 6] for 0.weight F64 [9, 6]");
  // What others call a structure is no hash of ours.
  header.insert(1, R"("__metadata__":{"format":"pt","structure":"encoder-decoder"},)");
  size[0] = static_cast<char>(header.size() & 0xFFU);
  size[1] = static_cast<char>(header.size() >> 8U);
  write(path, size + header + data);
  classifier again{executor(), pg::zeros{}};
  pg::load_parameters(again, path);
  BOOST_TEST((parameters_of(again) == parameters_of(net)));
}
BOOST_AUTO_TEST_CASE(a_network_without_parameters_is_saved_and_loaded) {
  const folder here;
  pg::network<pg::shape{4}, pg::relu> net{executor(), pg::zeros{}};
  pg::save_parameters(net, here / "nothing");
  BOOST_TEST(pg::load_parameters(net, here / "nothing").empty());
  BOOST_TEST(pg::load_parameters(net, here / "nothing", pg::matching::common).empty());
  refused<classifier>(here / "nothing", "only in the network: 0.weight");
}

BOOST_AUTO_TEST_CASE(what_to_do_with_half_precision_is_said) {
  const folder here;
  const std::string path = here / "half";
  for (const std::string type : {"F16", "BF16"}) {
    std::string header = R"({"0.bias":{"dtype":")" + type + R"(","shape":[9],"data_offsets":[0,18]}})";
    header.resize(64, ' ');
    write(path, std::string{"\x40\0\0\0\0\0\0\0", 8} + header + std::string(18, '\0'));
    const std::string what = "; F16 and BF16 are not read: docs/huggingface.py makes F32 of Hugging Face's models";
    refused<classifier>(path, "the file has 0.bias " + type + " [9] for 0.bias F32 [9]" + what);
    classifier net{executor(), pg::zeros{}};
    BOOST_CHECK_EXCEPTION(pg::load_parameters(net, path, pg::matching::common), std::runtime_error,
                          [&](const std::runtime_error& error) { return std::string{error.what()}.ends_with(what); });
  }
}

BOOST_AUTO_TEST_CASE(every_flipped_bit_and_every_missing_byte_is_refused) {
  const folder here;
  const std::string path = here / "net";
  using tiny = pg::network<pg::shape{2}, pg::linear<2>>;
  const tiny net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, path);
  tiny other{executor(), pg::zeros{}};
  std::size_t accepted = 0, refused = 0;
  test::damage_everywhere(path, [&] {
    if (accepted == 0) BOOST_TEST_REQUIRE((all_of(other) == std::vector<float>(6)));
    try {
      pg::load_parameters(other, path);
      ++accepted;
    } catch (const std::runtime_error& error) {
      refused += std::string{error.what()}.find(path) == std::string::npos ? 0U : 1U;
    }
  });
  BOOST_TEST(refused == 9 * std::filesystem::file_size(path));
  BOOST_TEST(accepted == 1U);
  BOOST_TEST((all_of(other) == all_of(net)));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_leaves_nothing) {
  const folder here;
  const classifier net{executor(), pg::kaiming_uniform{1}};
  const auto fails = [&](const std::string& path, const std::string& what) {
    BOOST_CHECK_EXCEPTION(pg::save_parameters(net, path), std::runtime_error, [&](const std::runtime_error& error) {
      BOOST_TEST_MESSAGE(error.what());
      return error.what() == "pergrad: " + path + ": " + what;
    });
  };
  fails(here / "no/such/folder/net", "cannot be written: No such file or directory");
  std::filesystem::create_directories(here.path / "taken");
  fails(here / "taken", "cannot be written: it is not a regular file");
  fails("/dev/full", "cannot be written: it is not a regular file");
  fails(here / "net.npy", "save_parameters writes safetensors, and a .npy is none");
  BOOST_TEST(entries(here) == 1U);
}

BOOST_AUTO_TEST_CASE(links_stay_links_and_what_is_for_few_stays_so) {
  const folder here;
  const auto mode_of = [](const std::string& path) {
    struct stat facts {};
    BOOST_TEST(::lstat(path.c_str(), &facts) == 0);
    return facts.st_mode;
  };
  const classifier net{executor(), pg::kaiming_uniform{1}};
  const mode_t mask = ::umask(027);
  pg::save_parameters(net, here / "net");
  ::umask(mask);
  BOOST_TEST((mode_of(here / "net") & 0777U) == 0640U);
  std::filesystem::create_directories(here.path / "elsewhere");
  pg::save_parameters(net, here / "elsewhere/secret");
  BOOST_TEST(::chmod((here / "elsewhere/secret").c_str(), 0600) == 0);
  std::filesystem::create_symlink("elsewhere/secret", here.path / "link");
  write(here / "elsewhere/secret", "old");
  // What a process that was killed has left, under every name that this one would try first.
  const std::string left = (here / "elsewhere/secret") + ".unfinished." + std::to_string(::getpid()) + ".0";
  write(left, "left");
  pg::save_parameters(net, here / "link");
  BOOST_TEST(S_ISLNK(mode_of(here / "link")));
  BOOST_TEST((mode_of(here / "elsewhere/secret") & 0777U) == 0600U);
  BOOST_TEST((read(here / "elsewhere/secret") == read(here / "net")));
  BOOST_TEST(read(left) == "left");
  // Of links whose last target is not there yet it is made; of a link to itself nothing is.
  std::filesystem::create_symlink("elsewhere/next", here.path / "first");
  std::filesystem::create_symlink("later", here.path / "elsewhere/next");
  pg::save_parameters(net, here / "first");
  BOOST_TEST(S_ISLNK(mode_of(here / "first")));
  BOOST_TEST(S_ISLNK(mode_of(here / "elsewhere/next")));
  BOOST_TEST((read(here / "elsewhere/later") == read(here / "net")));
  std::filesystem::create_symlink("round", here.path / "round");
  BOOST_CHECK_THROW(pg::save_parameters(net, here / "round"), std::runtime_error);
  BOOST_TEST(S_ISLNK(mode_of(here / "round")));
}

// Python's own library reads our files, and we read its: values, names and shapes. through_python_test.py runs this
// where there is that library, and is skipped elsewhere.
BOOST_AUTO_TEST_CASE(there_and_back_through_python, *boost::unit_test::disabled()) {
  const folder here;
  const classifier net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, here / "ours");
  write(here / "there.py",
        "import sys\nfrom safetensors.numpy import load_file, save_file\n"
        "state = load_file(sys.argv[1])\n"
        "assert {name: each.shape for name, each in state.items()} == "
        "{'0.weight': (9, 6), '0.bias': (9,), '2.weight': (3, 9), '2.bias': (3,)}\n"
        "save_file({name: 2 * each for name, each in state.items()}, sys.argv[2])\n");
  BOOST_TEST_REQUIRE(std::system(("python3 " + (here / "there.py ") + (here / "ours ") + (here / "theirs")).c_str()) ==
                     0);
  classifier back{executor(), pg::zeros{}};
  pg::load_parameters(back, here / "theirs");
  std::vector<float> twice = parameters_of(net);
  for (float& each : twice) each *= 2;
  BOOST_TEST((parameters_of(back) == twice));
}

// The limit on the size of a file stands for a full disk; by setrlimit(2) going beyond it is an error once its signal
// is ignored.
BOOST_AUTO_TEST_CASE(a_disk_that_is_full_costs_nothing_that_was_there) {
  const folder here;
  const std::string path = here / "net";
  using wide = pg::network<pg::shape{100}, pg::linear<200>>;
  wide net{executor(), pg::kaiming_uniform{1}};
  pg::save_parameters(net, path);
  const std::string before = read(path);
  net.parameters()[0] += 1;

  struct limit {
    rlimit usual{};
    void (*handler)(int) = std::signal(SIGXFSZ, SIG_IGN);
    explicit limit(rlim_t most) {
      ::getrlimit(RLIMIT_FSIZE, &usual);
      const rlimit less{most, usual.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &less);
    }
    limit(const limit&) = delete;
    limit& operator=(const limit&) = delete;
    ~limit() {
      ::setrlimit(RLIMIT_FSIZE, &usual);
      std::signal(SIGXFSZ, handler);
    }
  };
  // In the header, in the values, and in the last of them.
  for (const rlim_t most : {rlim_t{100}, rlim_t{50'000}, static_cast<rlim_t>(before.size() - 1)}) {
    std::string said;
    {
      const limit full{most};
      try {
        pg::save_parameters(net, path);
      } catch (const std::runtime_error& error) {
        said = error.what();
      }
    }
    BOOST_TEST(said == "pergrad: " + path + ": cannot be written: File too large");
    BOOST_TEST((read(path) == before));
    BOOST_TEST(entries(here) == 1U);
  }
  pg::save_parameters(net, path);
  BOOST_TEST((read(path) != before));
}

BOOST_AUTO_TEST_SUITE_END()
