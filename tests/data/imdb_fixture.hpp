// SPDX-License-Identifier: Apache-2.0
// tests/data/imdb_fixture.hpp - what NumPy 2.4 writes for six reviews, and a small writer of ZIP archives
//
// protocol_P is an array of the lists {1 2 3} {9 10000 0 5 6 7 8} {255 256 65535 65536 88587} {} {4} {9996 9997 9998}
// as numpy.lib.format writes it with that pickle protocol; whole_archive is numpy.savez_compressed of them as x_train,
// {0 1 1 0 1 0} as y_train, the lists {7} {8 8} {5 5 5} {6 300} as x_test and {1 0 0 1} as y_test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>

#include "files.hpp"

namespace test {

// clang-format off
inline constexpr char protocol_2[] =
    "\223NUMPY\001\000v\000{'descr': '|O', 'fortran_order': False, 'shape': (6,), }                             "
    "                                \012\200\002cnumpy._core.multiarray\012_reconstruct\012q\000cnumpy\012ndarr"
    "ay\012q\001K\000\205q\002c_codecs\012encode\012q\003X\001\000\000\000bq\004X\006\000\000\000latin1q\005\206"
    "q\006Rq\007\207q\010Rq\011(K\001K\006\205q\012cnumpy\012dtype\012q\013X\002\000\000\000O8q\014\211\210\207q"
    "\015Rq\016(K\003X\001\000\000\000|q\017NNNJ\377\377\377\377J\377\377\377\377K\077tq\020b\211]q\021(]q\022(K"
    "\001K\002K\003e]q\023(K\011M\020'K\000K\005K\006K\007K\010e]q\024(K\377M\000\001M\377\377J\000\000\001\000J"
    "\013Z\001\000e]q\025]q\026K\004a]q\027(M\014'M\015'M\016'eetq\030b.";
inline constexpr char protocol_3[] =
    "\223NUMPY\001\000v\000{'descr': '|O', 'fortran_order': False, 'shape': (6,), }                             "
    "                                \012\200\003cnumpy._core.multiarray\012_reconstruct\012q\000cnumpy\012ndarr"
    "ay\012q\001K\000\205q\002C\001bq\003\207q\004Rq\005(K\001K\006\205q\006cnumpy\012dtype\012q\007X\002\000"
    "\000\000O8q\010\211\210\207q\011Rq\012(K\003X\001\000\000\000|q\013NNNJ\377\377\377\377J\377\377\377\377K"
    "\077tq\014b\211]q\015(]q\016(K\001K\002K\003e]q\017(K\011M\020'K\000K\005K\006K\007K\010e]q\020(K\377M\000"
    "\001M\377\377J\000\000\001\000J\013Z\001\000e]q\021]q\022K\004a]q\023(M\014'M\015'M\016'eetq\024b.";
inline constexpr char protocol_4[] =
    "\223NUMPY\001\000v\000{'descr': '|O', 'fortran_order': False, 'shape': (6,), }                             "
    "                                \012\200\004\225\321\000\000\000\000\000\000\000\214\026numpy._core.multiar"
    "ray\224\214\014_reconstruct\224\223\224\214\005numpy\224\214\007ndarray\224\223\224K\000\205\224C\001b\224"
    "\207\224R\224(K\001K\006\205\224h\003\214\005dtype\224\223\224\214\002O8\224\211\210\207\224R\224(K\003\214"
    "\001|\224NNNJ\377\377\377\377J\377\377\377\377K\077t\224b\211]\224(]\224(K\001K\002K\003e]\224(K\011M\020'K"
    "\000K\005K\006K\007K\010e]\224(K\377M\000\001M\377\377J\000\000\001\000J\013Z\001\000e]\224]\224K\004a]\224"
    "(M\014'M\015'M\016'eet\224b.";
inline constexpr char whole_archive[] =
    "PK\003\004-\000\000\000\010\000\000\000!\000E\366\013\356\377\377\377\377\377\377\377\377\013\000\024\000x_"
    "train.npy\001\000\020\000\\\001\000\000\000\000\000\000\372\000\000\000\000\000\000\000\245\214OK\303@\020"
    "\305w\233\246\365O\025O\236s\333\010!G\021/\036\004\017\0356\025\301\203B\010\333d\245B\233\204\315F(V\360R"
    "\264\260\267\214\037\314OT7\311G\360\035\206\231\337{o\232\350\221\337\077Q\362F\336Y&\253T\261k\217mf,\360"
    "\330K\241\264\022yR\250L\266\370N,+iy\265\020\245\264\267\177\031\\\004\336\207\367\037\035}\016\177~I/s"
    "\236\327\253r\035&i\241d\270\252\227\372U(%\326h&\211\222i\221WZ\325\251\306\006\215\333%\321\214\363\254"
    "\2174\010d\213\267t\216_\370\200>P\030mq\341\0307\323\353R\266\225\301\354\012w\337\275\353\030\272\301("
    "\212\246{\253n\300\215\306\371.F\077\356\312\003pd\273\035\3623\006\004\\\030\301\030\016:\264\347\204r\333"
    "\"\204\222\351\3613%\226\306\010CaM>a\374\204\361S&\245}\027\376\001PK\003\004-\000\000\000\010\000\000\000"
    "!\000\225\334\216\231\377\377\377\377\377\377\377\377\013\000\024\000y_train.npy\001\000\020\000\260\000"
    "\000\000\000\000\000\000M\000\000\000\000\000\000\000\233\354\027\352\033\020\311\310P\306P\255\236\222Z"
    "\234\\\244n\245\240n\223i\241\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022wK\314)N\005\212\027g$"
    "\026\244\002\371\032f:\232:\012\265\012\024\000.\006(`D\243\321\305a\000\000PK\003\004-\000\000\000\010\000"
    "\000\000!\000\307tb\"\377\377\377\377\377\377\377\377\012\000\024\000x_test.npy\001\000\020\0005\001\000"
    "\000\000\000\000\000\332\000\000\000\000\000\000\000\233\354\027\352\033\020\311\310P\306P\255\236\222Z\234"
    "\\\244n\245\240^\343\257\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022vK\314)N\005\212\027g$\026"
    "\244\002\371\032&:\232:\012\265\012\224\000\256\006\226\251\253\030 \240G,\2574\267\240R/>9\277(U/\2674\247"
    "$3\261\250(\261rJ\017O|Qjr~^qIQir\311\224\311SzX\301*\247\364\260\347\245@\224L\236\342\315\320:\305\2311iJ"
    "\373\224\240)\032\336\214\336,\255S2\230{XSJ*\013RAZ\230\374-\246tv@d\231{\030k\246\370\371\371y\375\007"
    "\0020\341m_2%\2513v\212F\354\024o\366D \355\315\341\315\221\012\242YA\020\314b\363\325aLM\005\252\323\003"
    "\000PK\003\004-\000\000\000\010\000\000\000!\000P\201\240d\377\377\377\377\377\377\377\377\012\000\024\000y"
    "_test.npy\001\000\020\000\240\000\000\000\000\000\000\000J\000\000\000\000\000\000\000\233\354\027\352\033"
    "\020\311\310P\306P\255\236\222Z\234\\\244n\245\240n\223i\241\256\243\240\236\226_TR\224\230\027\237_\224"
    "\222\012\022wK\314)N\005\212\027g$\026\244\002\371\032&:\232:\012\265\012\024\000.F\006\354\000&\016\000PK"
    "\001\002-\003-\000\000\000\010\000\000\000!\000E\366\013\356\372\000\000\000\\\001\000\000\013\000\000\000"
    "\000\000\000\000\000\000\000\000\200\001\000\000\000\000x_train.npyPK\001\002-\003-\000\000\000\010\000\000"
    "\000!\000\225\334\216\231M\000\000\000\260\000\000\000\013\000\000\000\000\000\000\000\000\000\000\000\200"
    "\0017\001\000\000y_train.npyPK\001\002-\003-\000\000\000\010\000\000\000!\000\307tb\"\332\000\000\0005\001"
    "\000\000\012\000\000\000\000\000\000\000\000\000\000\000\200\001\301\001\000\000x_test.npyPK\001\002-\003-"
    "\000\000\000\010\000\000\000!\000P\201\240dJ\000\000\000\240\000\000\000\012\000\000\000\000\000\000\000"
    "\000\000\000\000\200\001\327\002\000\000y_test.npyPK\005\006\000\000\000\000\004\000\004\000\342\000\000"
    "\000]\003\000\000\000\000";
// clang-format on

inline void put(bytes& to, std::uint64_t number, std::size_t width) {
  for (std::size_t place = 0; place < width; ++place) {
    to.push_back(place < 8 ? static_cast<std::uint8_t>(number >> (8 * place)) : std::uint8_t{0});
  }
}

inline void put(bytes& to, std::string_view text) {
  for (const char character : text) {
    to.push_back(static_cast<std::uint8_t>(character));
  }
}

[[nodiscard]] inline bytes deflated(const bytes& content) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("zlib cannot start");
  }
  bytes packed(deflateBound(&stream, static_cast<uLong>(content.size())));
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  const int status = deflate(&stream, Z_FINISH);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) {
    throw std::runtime_error("zlib cannot deflate");
  }
  return packed;
}

/// One member. What is not zero in `lie` is written in place of the truth.
struct member {
  std::string name;
  bytes content;
  bool deflate = false;
  struct {
    std::uint64_t flags = 0, method = 0, checksum = 0, packed_size = 0, size = 0, header = 0;
  } lie = {};
  bytes packed = {};  ///< if not empty, in place of what `deflate` gives
};

[[nodiscard]] inline bytes zip(const std::vector<member>& members, std::string_view comment = "") {
  bytes file;
  bytes directory;
  const auto lie = [](std::uint64_t said, std::uint64_t truth) { return said != 0 ? said : truth; };
  for (const member& one : members) {
    const bytes packed = !one.packed.empty() ? one.packed : one.deflate ? deflated(one.content) : one.content;
    const std::uint64_t header = file.size();
    bytes common;  // what the local header and the directory have in common
    put(common, one.lie.flags, 2);
    put(common, lie(one.lie.method, one.deflate ? 8 : 0), 2);
    put(common, 0, 4);
    put(common, lie(one.lie.checksum, crc32_z(0, one.content.data(), one.content.size())), 4);
    put(common, lie(one.lie.packed_size, packed.size()), 4);
    put(common, lie(one.lie.size, one.content.size()), 4);
    put(common, one.name.size(), 2);
    put(file, 0x04034b50, 4);
    put(file, 20, 2);
    file.insert(file.end(), common.begin(), common.end());
    put(file, 3, 2);
    put(file, one.name + "xyz");  // the name and three bytes of extra field
    file.insert(file.end(), packed.begin(), packed.end());
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    put(directory, 20, 2);
    directory.insert(directory.end(), common.begin(), common.end());
    put(directory, 0, 12);
    put(directory, lie(one.lie.header, header), 4);
    put(directory, one.name);
  }
  const std::uint64_t start = file.size();
  file.insert(file.end(), directory.begin(), directory.end());
  put(file, 0x06054b50, 4);
  put(file, 0, 4);
  put(file, members.size(), 2);
  put(file, members.size(), 2);
  put(file, directory.size(), 4);
  put(file, start, 4);
  put(file, comment.size(), 2);
  put(file, comment);
  return file;
}

/// An NPY file of version 1.0 with this header text and these data.
[[nodiscard]] inline bytes npy(std::string_view header, const bytes& data) {
  bytes file;
  put(file, std::string_view("\223NUMPY\001\000", 8));
  put(file, header.size() + 1, 2);
  put(file, header);
  put(file, "\n");
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

[[nodiscard]] inline bytes npy_labels(const std::vector<std::int64_t>& labels) {
  bytes data;
  for (const std::int64_t label : labels) {
    put(data, static_cast<std::uint64_t>(label), 8);
  }
  return npy("{'descr': '<i8', 'fortran_order': False, 'shape': (" + std::to_string(labels.size()) + ",), }", data);
}

}  // namespace test
