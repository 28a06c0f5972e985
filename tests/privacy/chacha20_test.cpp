// SPDX-License-Identifier: Apache-2.0
// tests/privacy/chacha20_test.cpp - the vectors of RFC 8439, and many blocks at once against one at a time.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <pergrad/privacy/noise/chacha20.hpp>

BOOST_AUTO_TEST_SUITE(privacy_chacha20)

namespace {

using namespace std::string_view_literals;
using pergrad::chacha20_block;
using pergrad::chacha_key;
using pergrad::chacha_nonce;

constexpr std::uint8_t hex_digit(char c) { return static_cast<std::uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); }

std::vector<std::uint8_t> bytes_of(std::string_view hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(hex_digit(hex[i]) * 16 + hex_digit(hex[i + 1])));
  }
  return bytes;
}

chacha_key key_of(std::string_view hex) {
  const auto bytes = bytes_of(hex);
  return chacha_key::from_bytes(std::span<const std::uint8_t, 32>{bytes.data(), 32});
}

chacha_nonce nonce_of(std::string_view hex) {
  const auto bytes = bytes_of(hex);
  chacha_nonce nonce;
  for (std::size_t i = 0; i < 12; ++i) {
    nonce.words[i / 4] |= static_cast<std::uint32_t>(bytes[i]) << (8U * static_cast<unsigned>(i % 4));
  }
  return nonce;
}

std::vector<std::uint8_t> keystream_bytes(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t block,
                                          std::size_t count) {
  std::vector<std::uint32_t> words(count / 4 + 1);
  pergrad::chacha20_keystream(key, nonce, block, words);
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(words[i / 4] >> (8U * static_cast<unsigned>(i % 4)));
  }
  return bytes;
}

void encrypts(std::string_view text, const chacha_key& key, const chacha_nonce& nonce, std::uint64_t block,
              std::string_view cipher_hex) {
  auto bytes = keystream_bytes(key, nonce, block, text.size());
  for (std::size_t i = 0; i < text.size(); ++i) bytes[i] ^= static_cast<std::uint8_t>(text[i]);
  const auto wanted = bytes_of(cipher_hex);
  BOOST_CHECK_EQUAL_COLLECTIONS(bytes.begin(), bytes.end(), wanted.begin(), wanted.end());
}

constexpr auto counting_key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"sv;
constexpr auto zero_key = "0000000000000000000000000000000000000000000000000000000000000000"sv;
constexpr auto one_key = "0000000000000000000000000000000000000000000000000000000000000001"sv;
constexpr auto zero_nonce = "000000000000000000000000"sv;
constexpr auto two_nonce = "000000000000000000000002"sv;

// Section 2.3.2, evaluated by the compiler.
constexpr chacha_key section_2_3_2_key{
    {0x03020100U, 0x07060504U, 0x0b0a0908U, 0x0f0e0d0cU, 0x13121110U, 0x17161514U, 0x1b1a1918U, 0x1f1e1d1cU}};
constexpr pergrad::chacha_block section_2_3_2 =
    chacha20_block(section_2_3_2_key, chacha_nonce{{0x09000000U, 0x4a000000U, 0U}}, 1);
static_assert(section_2_3_2 == pergrad::chacha_block{0xe4e7f110U, 0x15593bd1U, 0x1fdd0f50U, 0xc47120a3U, 0xc7f4d1c7U,
                                                     0x0368c033U, 0x9aaa2204U, 0x4e6cd4c3U, 0x466482d2U, 0x09aa9f07U,
                                                     0x05d7c214U, 0xa2028bd9U, 0xd19c12b5U, 0xb94e16deU, 0xe883d0cbU,
                                                     0x4e3c50a2U});

template <int Lanes>
void equals_scalar_blocks() {
  const chacha_key key = key_of(counting_key);
  const chacha_nonce nonce = nonce_of("0a0b0c0d1a1b1c1d2a2b2c2d");
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, pergrad::chacha_blocks_per_nonce - 40}) {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 64U, 255U, 256U, 257U, 639U, 640U}) {
      std::vector<std::uint32_t> words(count);
      pergrad::chacha20_keystream<Lanes>(key, nonce, first, words);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const auto block = static_cast<std::uint32_t>(first + i / 16);
        wrong += words[i] != chacha20_block(key, nonce, block)[i % 16] ? 1U : 0U;
      }
      BOOST_TEST(wrong == 0U, Lanes << " lanes, first block " << first << ", " << count << " words");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(rfc_8439_section_2_3_2_key_bytes) {
  BOOST_TEST((key_of(counting_key) == section_2_3_2_key));
  BOOST_TEST((chacha20_block(key_of(counting_key), nonce_of("000000090000004a00000000"), 1) == section_2_3_2));
}

BOOST_AUTO_TEST_CASE(rfc_8439_section_2_4_2) {
  encrypts(
      "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it."sv,
      key_of(counting_key), nonce_of("000000000000004a00000000"), 1,
      "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
      "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
      "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
      "5af90bbf74a35be6b40b8eedf2785e42874d"sv);
}

BOOST_AUTO_TEST_CASE(rfc_8439_appendix_a_1) {
  struct vector_row {
    std::string_view key;
    std::string_view nonce;
    std::uint64_t block;
    std::string_view stream;
  };
  const std::array<vector_row, 5> rows{{
      {zero_key, zero_nonce, 0,
       "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
       "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"},
      {zero_key, zero_nonce, 1,
       "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
       "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"},
      {one_key, zero_nonce, 1,
       "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
       "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"},
      {"00ff000000000000000000000000000000000000000000000000000000000000", zero_nonce, 2,
       "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
       "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"},
      {zero_key, two_nonce, 0,
       "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
       "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"},
  }};
  for (const vector_row& row : rows) {
    encrypts(std::string(64, '\0'), key_of(row.key), nonce_of(row.nonce), row.block, row.stream);
  }
}

BOOST_AUTO_TEST_CASE(rfc_8439_appendix_a_2) {
  encrypts(
      "Any submission to the IETF intended by the Contributor for publication as all or part of an IETF "
      "Internet-Draft or RFC and any statement made within the context of an IETF activity is considered an \"IETF "
      "Contribution\". Such statements include oral statements in IETF sessions, as well as written and electronic "
      "communications made at any time or place, which are addressed to"sv,
      key_of(one_key), nonce_of(two_nonce), 1,
      "a3fbf07df3fa2fde4f376ca23e82737041605d9f4f4f57bd8cff2c1d4b7955ec"
      "2a97948bd3722915c8f3d337f7d370050e9e96d647b7c39f56e031ca5eb6250d"
      "4042e02785ececfa4b4bb5e8ead0440e20b6e8db09d881a7c6132f420e527950"
      "42bdfa7773d8a9051447b3291ce1411c680465552aa6c405b7764d5e87bea85a"
      "d00f8449ed8f72d0d662ab052691ca66424bc86d2df80ea41f43abf937d3259d"
      "c4b2d0dfb48a6c9139ddd7f76966e928e635553ba76c5c879d7b35d49eb2e62b"
      "0871cdac638939e25e8a1e0ef9d5280fa8ca328b351c3c765989cbcf3daa8b6c"
      "cc3aaf9f3979c92b3720fc88dc95ed84a1be059c6499b9fda236e7e818b04b0b"
      "c39c1e876b193bfe5569753f88128cc08aaa9b63d1a16f80ef2554d7189c411f"
      "5869ca52c5b83fa36ff216b9c1d30062bebcfd2dc5bce0911934fda79a86f6e6"
      "98ced759c3ff9b6477338f3da4f9cd8514ea9982ccafb341b2384dd902f3d1ab"
      "7ac61dd29c6f21ba5b862f3730e37cfdc4fd806c22f221"sv);
  encrypts(
      "'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\nAll mimsy were the borogoves,\n"
      "And the mome raths outgrabe."sv,
      key_of("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0"), nonce_of(two_nonce), 42,
      "62e6347f95ed87a45ffae7426f27a1df5fb69110044c0d73118effa95b01e5cf"
      "166d3df2d721caf9b21e5fb14c616871fd84c54f9d65b283196c7fe4f60553eb"
      "f39c6402c42234e32a356b3e764312a61a5532055716ead6962568f87d3f3f77"
      "04c6a8d1bcd1bf4d50d6154b6da731b187b58dfd728afa36757a797ac188d1"sv);
}

BOOST_AUTO_TEST_CASE(any_number_of_lanes_gives_the_scalar_stream) {
  equals_scalar_blocks<4>();
  if constexpr (pergrad::detail::native_lanes >= 8) equals_scalar_blocks<8>();
  if constexpr (pergrad::detail::native_lanes >= 16) equals_scalar_blocks<16>();
}

BOOST_AUTO_TEST_CASE(block_counter_never_wraps) {
  const chacha_key key;
  const chacha_nonce nonce;
  std::vector<std::uint32_t> words(16);
  BOOST_CHECK_NO_THROW(pergrad::chacha20_keystream(key, nonce, pergrad::chacha_blocks_per_nonce - 1, words));
  BOOST_CHECK_THROW(pergrad::chacha20_keystream(key, nonce, pergrad::chacha_blocks_per_nonce, words),
                    std::out_of_range);
  words.push_back(0);
  BOOST_CHECK_THROW(pergrad::chacha20_keystream(key, nonce, pergrad::chacha_blocks_per_nonce - 1, words),
                    std::out_of_range);
  BOOST_CHECK_THROW(pergrad::chacha20_keystream(key, nonce, ~std::uint64_t{0}, words), std::out_of_range);
}

BOOST_AUTO_TEST_CASE(no_two_purposes_or_steps_share_a_nonce) {
  std::set<std::array<std::uint32_t, 3>> nonces;
  std::size_t count = 0;
  for (std::uint32_t purpose = 1; purpose <= 8; ++purpose) {
    for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0xffff'ffff},
                                     std::uint64_t{0x1'0000'0000}, ~std::uint64_t{0}}) {
      nonces.insert(pergrad::make_nonce(static_cast<pergrad::random_purpose>(purpose), step).words);
      ++count;
    }
  }
  BOOST_TEST(nonces.size() == count);
}

BOOST_AUTO_TEST_SUITE_END()
