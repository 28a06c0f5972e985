// SPDX-License-Identifier: Apache-2.0
// tests/detail/math_test.cpp - elementary functions against a wider libm: units in the last place, limits, lanes.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/simd/lanes.hpp>
#include <pergrad/simd/math.hpp>

BOOST_AUTO_TEST_SUITE(math_test)

namespace {

namespace math = pergrad::math;

// As wide as the machine's registers.
#if defined(__AVX512F__)
constexpr std::size_t register_bytes = 64;
#elif defined(__AVX__)
constexpr std::size_t register_bytes = 32;
#else
constexpr std::size_t register_bytes = 16;
#endif

typedef float wide_float __attribute__((vector_size(register_bytes)));
typedef float float4 __attribute__((vector_size(16)));
typedef double wide_double __attribute__((vector_size(register_bytes)));
typedef double double2 __attribute__((vector_size(16)));

template <class Element>
struct vectors;
template <>
struct vectors<float> {
  using wide = wide_float;
  using narrow = float4;
  using word = std::uint32_t;
  // glibc's double functions are within 1 ulp of a double: no float result can tell them from the truth.
  using reference = double;
};
template <>
struct vectors<double> {
  using wide = wide_double;
  using narrow = double2;
  using word = std::uint64_t;
  using reference = long double;
};

// One function: ours, the reference, and the units in the last place it is allowed.
#define PERGRAD_TEST_FUNCTION(Name, Limit, Reference)                           \
  struct Name##_function {                                                      \
    static constexpr const char* name = #Name;                                  \
    static constexpr double limit = Limit;                                      \
    template <class Value>                                                      \
    [[gnu::always_inline]] static inline void apply(const Value& x, Value& y) { \
      y = math::Name(x);                                                        \
    }                                                                           \
    template <class Real>                                                       \
    static Real truth(Real x) {                                                 \
      return Reference;                                                         \
    }                                                                           \
  };

PERGRAD_TEST_FUNCTION(exp, 2.0, std::exp(x))
PERGRAD_TEST_FUNCTION(expm1, 2.0, std::expm1(x))
PERGRAD_TEST_FUNCTION(log, 2.0, std::log(x))
PERGRAD_TEST_FUNCTION(log1p, 2.0, std::log1p(x))
PERGRAD_TEST_FUNCTION(tanh, 2.0, std::tanh(x))
PERGRAD_TEST_FUNCTION(sigmoid, 2.0, (x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x))))
PERGRAD_TEST_FUNCTION(softplus, 2.0, ((x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)))))
PERGRAD_TEST_FUNCTION(erf, 2.0, std::erf(x))

#undef PERGRAD_TEST_FUNCTION

template <class Element>
bool same(Element first, Element second) {
  return std::memcmp(&first, &second, sizeof first) == 0 || (std::isnan(first) && std::isnan(second));
}

// Distance in units in the last place of the truth; below the normal range the unit is the least denormal.
template <class Element, class Real>
double units(Element got, Real truth) {
  constexpr double wrong = 1e300;
  const auto rounded = static_cast<Element>(truth);
  if (std::isnan(truth)) return std::isnan(got) ? 0.0 : wrong;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0.0 : wrong;
  if (truth == 0) return got == 0 && std::signbit(got) == std::signbit(truth) ? 0.0 : wrong;
  int exponent = 0;
  static_cast<void>(std::frexp(truth, &exponent));
  exponent = std::max(exponent, std::numeric_limits<Element>::min_exponent);
  const Real unit = std::ldexp(Real{1}, exponent - std::numeric_limits<Element>::digits);
  return static_cast<double>(std::fabs(static_cast<Real>(got) - truth) / unit);
}

// What an elementwise layer does: load, evaluate, store.
template <class Function, class Value>
[[gnu::noinline]] std::vector<math::element_t<Value>> evaluate(const std::vector<math::element_t<Value>>& arguments) {
  constexpr std::size_t lanes = math::lanes_v<Value>;
  std::vector<math::element_t<Value>> results(arguments.size());
  for (std::size_t first = 0; first + lanes <= arguments.size(); first += lanes) {
    Value x;
    std::memcpy(&x, &arguments[first], sizeof x);
    Value y;
    Function::apply(x, y);
    std::memcpy(&results[first], &y, sizeof y);
  }
  return results;
}

// Evaluates in both widths and as scalars; checks lanes and accuracy. The size must be a multiple of the widest width.
template <class Function, class Element>
void sweep(const std::vector<Element>& arguments) {
  using wide = typename vectors<Element>::wide;
  using narrow = typename vectors<Element>::narrow;
  using reference = typename vectors<Element>::reference;
  BOOST_REQUIRE(arguments.size() % math::lanes_v<wide> == 0);
  const std::vector<Element> scalar = evaluate<Function, Element>(arguments);
  const std::vector<Element> from_wide = evaluate<Function, wide>(arguments);
  const std::vector<Element> from_narrow = evaluate<Function, narrow>(arguments);
  double worst = 0.0;
  Element worst_at{};
  std::size_t differing = 0;
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    if (!same(scalar[index], from_wide[index]) || !same(scalar[index], from_narrow[index])) ++differing;
    const double error = units(scalar[index], Function::truth(static_cast<reference>(arguments[index])));
    if (error > worst) {
      worst = error;
      worst_at = arguments[index];
    }
  }
  BOOST_TEST_MESSAGE(Function::name << (sizeof(Element) == 4 ? " float" : " double") << ": worst " << worst
                                    << " units in the last place, at " << worst_at);
  BOOST_CHECK_MESSAGE(worst <= Function::limit, Function::name << " is off by " << worst << " units at " << worst_at);
  BOOST_CHECK_MESSAGE(differing == 0, Function::name << ": " << differing << " lanes differ from the scalar function");
}

// The same arguments for every function of one element type.
template <class Element>
std::vector<std::vector<Element>> make_arguments() {
  using word = typename vectors<Element>::word;
  constexpr std::size_t count = 480'000;
  constexpr std::uint64_t seed = 20'240'607;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<std::vector<Element>> sets;
  const auto add = [&](std::size_t size, auto next) {
    std::vector<Element>& set = sets.emplace_back(size);
    for (Element& element : set) element = next();
  };
  // Every binade, every kind of NaN.
  add(count, [&] {
    const auto bits = static_cast<word>(random());
    Element x{};
    std::memcpy(&x, &bits, sizeof x);
    return x;
  });
  // Where the functions live, at several scales.
  for (const Element scale : {Element(0.01), Element(0.5), Element(2), Element(10), Element(100), Element(750)}) {
    std::uniform_real_distribution<Element> uniform(-scale, scale);
    add(count / 4, [&] { return uniform(random); });
    const Element step = 2 * scale / Element(count / 4);
    Element x = -scale;
    add(count / 4, [&] { return x += step; });
  }
  // Neighbours of the places where one form takes over from another.
  for (const double centre : {-1.0, -0.625, -0.34657359, -0.29289322, 0.0, 0.34657359, 0.41421356, 0.625, 0.70710678,
                              1.0, 1.41421356, 2.0, 4.0, 6.0, 10.0, 20.0, 88.722839, 709.782712893384}) {
    Element x = static_cast<Element>(centre);
    for (int back = 0; back < 512; ++back) x = std::nextafter(x, -std::numeric_limits<Element>::infinity());
    add(1024, [&] { return x = std::nextafter(x, std::numeric_limits<Element>::infinity()); });
  }
  return sets;
}

template <class Function, class Element>
void sweep_everything() {
  const std::vector<std::vector<Element>> sets = make_arguments<Element>();
  for (const std::vector<Element>& set : sets) sweep<Function>(set);
}

template <class Function, class Element>
Element at(Element x) {
  Element y{};
  Function::apply(x, y);
  return y;
}

template <class Element>
void exp_or_zero_is_exp_where_that_is_normal(Element lowest) {
  using wide = typename vectors<Element>::wide;
  constexpr std::size_t count = 100'000;
  for (std::size_t i = 0; i <= count; ++i) {
    const Element x = lowest * (static_cast<Element>(i) / Element(count));
    const wide lanes = math::exp_or_zero(math::splat<wide>(x));
    BOOST_REQUIRE(math::exp_or_zero(x) == math::exp(x));
    BOOST_REQUIRE(lanes[0] == math::exp(x));
  }
  const Element below = std::nextafter(lowest, 2 * lowest);
  for (const Element x :
       {below, 2 * lowest, std::numeric_limits<Element>::lowest(), -std::numeric_limits<Element>::infinity()}) {
    BOOST_TEST(math::exp_or_zero(x) == 0);
  }
  BOOST_TEST(std::isnan(math::exp_or_zero(std::numeric_limits<Element>::quiet_NaN())));
}

template <class Element, class... Functions>
void odd_functions_keep_zero_and_denormals() {
  using limits = std::numeric_limits<Element>;
  const auto check = [](auto function, Element x) {
    using evaluated = decltype(function);
    BOOST_CHECK_MESSAGE(same(at<evaluated>(x), x), evaluated::name << " at " << x << " gave " << at<evaluated>(x));
  };
  for (const Element x : {Element(0), limits::denorm_min(), 5 * limits::denorm_min(), limits::min(), 3 * limits::min(),
                          limits::epsilon() / 8}) {
    (check(Functions{}, x), ...);
    (check(Functions{}, -x), ...);
  }
}

template <class Element>
void special_values() {
  using limits = std::numeric_limits<Element>;
  constexpr Element infinity = limits::infinity();
  constexpr Element nan = limits::quiet_NaN();
  constexpr Element greatest = limits::max();
  for (const Element x : {nan, -nan}) {
    BOOST_TEST(std::isnan(at<exp_function>(x)));
    BOOST_TEST(std::isnan(at<expm1_function>(x)));
    BOOST_TEST(std::isnan(at<log_function>(x)));
    BOOST_TEST(std::isnan(at<log1p_function>(x)));
    BOOST_TEST(std::isnan(at<tanh_function>(x)));
    BOOST_TEST(std::isnan(at<sigmoid_function>(x)));
    BOOST_TEST(std::isnan(at<softplus_function>(x)));
    BOOST_TEST(std::isnan(at<erf_function>(x)));
  }
  for (const Element large : {greatest, infinity}) {
    BOOST_TEST(same(at<exp_function>(large), infinity));
    BOOST_TEST(same(at<exp_function>(-large), Element(0)));
    BOOST_TEST(same(at<expm1_function>(large), infinity));
    BOOST_TEST(same(at<expm1_function>(-large), Element(-1)));
    BOOST_TEST(same(at<tanh_function>(large), Element(1)));
    BOOST_TEST(same(at<tanh_function>(-large), Element(-1)));
    BOOST_TEST(same(at<sigmoid_function>(large), Element(1)));
    BOOST_TEST(same(at<sigmoid_function>(-large), Element(0)));
    BOOST_TEST(same(at<softplus_function>(large), large));
    BOOST_TEST(same(at<softplus_function>(-large), Element(0)));
    BOOST_TEST(same(at<erf_function>(large), Element(1)));
    BOOST_TEST(same(at<erf_function>(-large), Element(-1)));
    BOOST_TEST(std::isnan(at<log_function>(-large)));
    BOOST_TEST(std::isnan(at<log1p_function>(-large)));
  }
  BOOST_TEST(same(at<log_function>(infinity), infinity));
  BOOST_TEST(same(at<log1p_function>(infinity), infinity));
  BOOST_TEST(same(at<log_function>(Element(0)), -infinity));
  BOOST_TEST(same(at<log_function>(Element(-0.0)), -infinity));
  BOOST_TEST(same(at<log1p_function>(Element(-1)), -infinity));
  BOOST_TEST(std::isnan(at<log_function>(-limits::denorm_min())));
  BOOST_TEST(std::isnan(at<log1p_function>(std::nextafter(Element(-1), -infinity))));
  for (const Element zero : {Element(0.0), Element(-0.0)}) {
    BOOST_TEST(same(at<exp_function>(zero), Element(1)));
    BOOST_TEST(same(at<sigmoid_function>(zero), Element(0.5)));
  }
  BOOST_TEST(same(at<log_function>(Element(1)), Element(0)));
}

using elements = std::tuple<float, double>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(exp_is_accurate, Element, elements) { sweep_everything<exp_function, Element>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(expm1_is_accurate, Element, elements) { sweep_everything<expm1_function, Element>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(log_is_accurate, Element, elements) { sweep_everything<log_function, Element>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(log1p_is_accurate, Element, elements) { sweep_everything<log1p_function, Element>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(tanh_is_accurate, Element, elements) { sweep_everything<tanh_function, Element>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(sigmoid_is_accurate, Element, elements) { sweep_everything<sigmoid_function, Element>(); }
BOOST_AUTO_TEST_CASE_TEMPLATE(softplus_is_accurate, Element, elements) {
  sweep_everything<softplus_function, Element>();
}
BOOST_AUTO_TEST_CASE_TEMPLATE(erf_is_accurate, Element, elements) { sweep_everything<erf_function, Element>(); }

BOOST_AUTO_TEST_CASE_TEMPLATE(special_values_are_those_of_annex_f, Element, elements) { special_values<Element>(); }

BOOST_AUTO_TEST_CASE_TEMPLATE(near_zero_the_argument_comes_back, Element, elements) {
  odd_functions_keep_zero_and_denormals<Element, tanh_function, expm1_function, log1p_function>();
  BOOST_TEST(same(at<erf_function>(Element(0.0)), Element(0.0)));
  BOOST_TEST(same(at<erf_function>(Element(-0.0)), Element(-0.0)));
}

BOOST_AUTO_TEST_CASE(traits_tell_scalars_from_vectors) {
  static_assert(std::is_same_v<math::element_t<float>, float> && std::is_same_v<math::element_t<double2>, double>);
  static_assert(math::lanes_v<double> == 1 && math::lanes_v<wide_float> == register_bytes / 4 &&
                math::lanes_v<double2> == 2);
  static_assert(!math::is_vector_v<float> && math::is_vector_v<float4> && math::is_vector_v<wide_double>);
  BOOST_TEST(math::lanes_v<float4> == 4U);
}

BOOST_AUTO_TEST_CASE(choices_are_made_lane_by_lane) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float4 first = {1.0F, -2.0F, nan, -0.0F};
  const float4 second = {3.0F, -5.0F, 1.0F, 0.0F};
  const float4 larger = math::max(first, second);
  const float4 smaller = math::min(first, second);
  const float4 size = math::abs(first);
  const float4 chosen = math::select(first < second, math::splat<float4>(7.0F), first);
  const float4 negative_zero = math::splat<float4>(-0.0F);
  const float expected_larger[] = {3.0F, -2.0F, nan, -0.0F};
  const float expected_smaller[] = {1.0F, -5.0F, nan, -0.0F};
  const float expected_size[] = {1.0F, 2.0F, nan, 0.0F};
  const float expected_chosen[] = {7.0F, -2.0F, nan, -0.0F};
  for (int lane = 0; lane < 4; ++lane) {
    BOOST_TEST(same(float{larger[lane]}, expected_larger[lane]));
    BOOST_TEST(same(float{smaller[lane]}, expected_smaller[lane]));
    BOOST_TEST(same(float{size[lane]}, expected_size[lane]));
    BOOST_TEST(same(float{chosen[lane]}, expected_chosen[lane]));
    BOOST_TEST(same(float{negative_zero[lane]}, -0.0F));
    const float one = first[lane];
    const float other = second[lane];
    BOOST_TEST(same(math::max(one, other), expected_larger[lane]));
    BOOST_TEST(same(math::min(one, other), expected_smaller[lane]));
    BOOST_TEST(same(math::select(one < other, 7.0F, one), expected_chosen[lane]));
  }
}

// A network's layers see whole arrays: results may leave [-1, 1] or [0, 1] nowhere.
BOOST_AUTO_TEST_CASE_TEMPLATE(bounded_functions_stay_in_their_bounds, Element, elements) {
  constexpr std::uint64_t seed = 77;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<Element> uniform(-40, 40);
  bool inside = true;
  for (int draw = 0; draw < 200'000; ++draw) {
    const Element x = uniform(random);
    inside = inside && std::fabs(at<tanh_function>(x)) <= 1 && std::fabs(at<erf_function>(x)) <= 1;
    inside = inside && at<sigmoid_function>(x) >= 0 && at<sigmoid_function>(x) <= 1;
    inside = inside && at<softplus_function>(x) >= std::fmax(x, Element(0)) && at<exp_function>(x) > 0;
  }
  BOOST_TEST(inside);
}

BOOST_AUTO_TEST_CASE(exp_or_zero) {
  exp_or_zero_is_exp_where_that_is_normal<float>(-87);
  exp_or_zero_is_exp_where_that_is_normal<double>(-708);
}

BOOST_AUTO_TEST_SUITE_END()
