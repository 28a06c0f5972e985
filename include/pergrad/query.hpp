// SPDX-License-Identifier: Apache-2.0
// pergrad/query.hpp - queries over the fields of a record, proven bounds of them, and their release: beside the
// umbrella
//
//   constexpr pg::field<"age"> a; constexpr pg::field<"weight"> w; constexpr pg::field<"height"> h;
//   constexpr auto bmi = a * w / (h * h);
//   constexpr auto box = pg::box{a.in(18, 100), w.in(40, 200), h.in(1.4, 2.1)};
//   constexpr auto K = pg::supremum(pg::l2_norm(pg::gradient(bmi)), box);
//
// In the umbrella it would add 3 % to the time that the quickstart takes to compile, for programs without a query.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

// A program's globals may be called as our parameters are.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

// clang-format off
#include <pergrad/query/supremum.hpp>  // first, so that an error comes with a short list of includes
// clang-format on

#include <pergrad/query/derivative.hpp>
#include <pergrad/query/evaluate.hpp>
#include <pergrad/query/functions.hpp>
#include <pergrad/query/release.hpp>
#include <pergrad/query/sensitivity.hpp>
#include <pergrad/query/text.hpp>
#include <pergrad/query/tree.hpp>

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
