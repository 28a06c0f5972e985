// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/vector.inl - vectors of one width: loads and stores of them, or of their first few lanes
//
// Included once for every width that a program has, each time into another namespace, with PERGRAD_KERNELS (its name),
// PERGRAD_VECTOR_BYTES and PERGRAD_VECTOR_REGISTERS defined; without them it is empty.
//
// Written with the vector extension that g++ and clang++ share. What that extension cannot say, a load or store that
// touches only the first `count` lanes in memory, uses the compilers' masked built-ins where the target has such
// instructions (AVX-512, AVX) and goes lane by lane elsewhere.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::on_host::PERGRAD_KERNELS {

/// Bytes of one vector register.
inline constexpr std::size_t vector_bytes = PERGRAD_VECTOR_BYTES;

/// Number of vector registers.
inline constexpr std::size_t vector_registers = PERGRAD_VECTOR_REGISTERS;

/// Is this the baseline of a program that has better targets as well? Only old processors run it: it is there to be
/// right, and to compile soon.
inline constexpr bool is_fallback = vector_bytes == 16 && PERGRAD_BEST_TARGET > 0;

/// Is a vector that is read and written under a mask as good as one without, so that whole vectors need no code of
/// their own? AVX2's masks are slow on some processors.
inline constexpr bool masks_are_free = vector_bytes == 64 || is_fallback;

namespace vector_detail {

template <class Scalar>
struct vector_of;

template <>
struct vector_of<float> {
  typedef float type __attribute__((vector_size(vector_bytes)));
  typedef int lanes_type __attribute__((vector_size(vector_bytes)));
  typedef float narrow_type __attribute__((vector_size(vector_bytes / 2)));
  typedef int narrow_lanes_type __attribute__((vector_size(vector_bytes / 2)));
  typedef float anywhere_type __attribute__((vector_size(vector_bytes), aligned(4), may_alias));
};

template <>
struct vector_of<double> {
  typedef double type __attribute__((vector_size(vector_bytes)));
  typedef long long lanes_type __attribute__((vector_size(vector_bytes)));
  typedef type narrow_type;
  typedef double anywhere_type __attribute__((vector_size(vector_bytes), aligned(8), may_alias));
};

}  // namespace vector_detail

/// A whole register of `Scalar` (float or double); `+ - *` act lane by lane.
template <class Scalar>
using vector = typename vector_detail::vector_of<Scalar>::type;

/// A `vector<Scalar>` in memory, which lies among scalars. Through it the compiler has less to see through than through
/// std::memcpy.
template <class Scalar>
using anywhere = typename vector_detail::vector_of<Scalar>::anywhere_type;

/// Lanes of a `vector<Scalar>`.
template <class Scalar>
inline constexpr std::size_t vector_lanes = vector_bytes / sizeof(Scalar);

/// Reads a whole vector from `from`, which need not be aligned.
template <class Scalar>
[[nodiscard, gnu::always_inline]] inline vector<Scalar> load(const Scalar* from) noexcept {
  return *reinterpret_cast<const anywhere<Scalar>*>(from);
}

/// Writes a whole vector to `to`, which need not be aligned.
template <class Scalar>
[[gnu::always_inline]] inline void store(Scalar* to, std::type_identity_t<vector<Scalar>> value) noexcept {
  *reinterpret_cast<anywhere<Scalar>*>(to) = value;
}

/// `value` in every lane.
template <class Scalar>
[[nodiscard]] inline vector<Scalar> splat(Scalar value) noexcept {
  return value - vector<Scalar>{};  // x - 0 is x for every x, -0 included: compilers drop the subtraction
}

/// a * b + c, rounded once where the target can, else twice. A loop that adds up products says it: tuned for processors
/// that add faster than they multiply and add, g++ rounds once or twice by how many sums the loop has.
template <class Vector>
[[nodiscard, gnu::always_inline]] inline Vector multiply_add(Vector a, std::type_identity_t<Vector> b,
                                                             std::type_identity_t<Vector> c) noexcept {
  static_assert(sizeof(Vector) == vector_bytes);
  [[maybe_unused]] constexpr bool is_float = sizeof(a[0]) == sizeof(float);
#if defined(__FMA__)
  if constexpr (requires { __builtin_elementwise_fma(a, b, c); }) {  // clang's, of which newer ones have no other
    return __builtin_elementwise_fma(a, b, c);
  } else {
#if PERGRAD_VECTOR_BYTES == 64
#if defined(__clang__)
    if constexpr (is_float) return __builtin_ia32_vfmaddps512_mask(a, b, c, 0xffff, 4);
#else  // the same mask, signed
    if constexpr (is_float) return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#endif
    if constexpr (!is_float) return __builtin_ia32_vfmaddpd512_mask(a, b, c, 0xff, 4);
#elif PERGRAD_VECTOR_BYTES == 32
    if constexpr (is_float) return __builtin_ia32_vfmaddps256(a, b, c);
    if constexpr (!is_float) return __builtin_ia32_vfmaddpd256(a, b, c);
#else
    if constexpr (is_float) return __builtin_ia32_vfmaddps(a, b, c);
    if constexpr (!is_float) return __builtin_ia32_vfmaddpd(a, b, c);
#endif
  }
#elif defined(__aarch64__) && defined(__CUDACC__)
  for (std::size_t lane = 0; lane < sizeof c / sizeof c[0]; ++lane) {
    if constexpr (is_float) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    if constexpr (!is_float) c[lane] = __builtin_fma(a[lane], b[lane], c[lane]);
  }
  return c;
#elif defined(__aarch64__)
  if constexpr (is_float) return vfmaq_f32(c, a, b);
  if constexpr (!is_float) return vfmaq_f64(c, a, b);
#else
  return a * b + c;
#endif
}

/// As many `Scalar` as a `vector<double>` has lanes: what is summed up in double.
template <class Scalar>
using narrow = typename vector_detail::vector_of<Scalar>::narrow_type;

/// From anywhere in memory.
template <class Scalar>
[[nodiscard]] inline narrow<Scalar> load_narrow(const Scalar* from) noexcept {
  narrow<Scalar> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
[[nodiscard]] inline vector<double> widen(vector<double> values) noexcept { return values; }
[[nodiscard]] inline vector<double> widen(narrow<float> values) noexcept {
#if PERGRAD_VECTOR_BYTES == 64 && !defined(__clang__)
  // All lanes, rounding as set. Of the other, g++ 12 makes four instructions instead of one.
  return __builtin_ia32_cvtps2pd512_mask(values, vector<double>{}, -1, 4);
#else
  return __builtin_convertvector(values, vector<double>);
#endif
}

/// Every lane of a vector: the same members as `first_lanes`, for code that is written once for both.
template <class Scalar>
struct all_lanes {
  /// Reads a whole vector.
  [[nodiscard]] vector<Scalar> load(const Scalar* from) const noexcept {
    return *reinterpret_cast<const anywhere<Scalar>*>(from);
  }
  /// Writes a whole vector.
  void store(Scalar* to, vector<Scalar> value) const noexcept { *reinterpret_cast<anywhere<Scalar>*>(to) = value; }
};

/// The first `count` lanes of a vector, 1 <= count <= lanes: which of them a partial load or store may touch.
template <class Scalar>
class first_lanes {
 public:
  /// Precondition: 1 <= count <= vector_lanes<Scalar>.
  explicit first_lanes(std::size_t count) noexcept : mask_{mask_of(count)} {}

  /// Reads only the chosen lanes of memory; the others become 0.
  [[nodiscard]] vector<Scalar> load(const Scalar* from) const noexcept {
#if PERGRAD_VECTOR_BYTES == 64
    if constexpr (sizeof(Scalar) == 4) {
      return __builtin_ia32_loadups512_mask(from, vector<Scalar>{}, mask_);
    } else {
      return __builtin_ia32_loadupd512_mask(from, vector<Scalar>{}, mask_);
    }
#elif PERGRAD_VECTOR_BYTES == 32
    if constexpr (sizeof(Scalar) == 4) {
      return __builtin_ia32_maskloadps256(reinterpret_cast<const vector<Scalar>*>(from), mask_);
    } else {
      return __builtin_ia32_maskloadpd256(reinterpret_cast<const vector<Scalar>*>(from), mask_);
    }
#else
    return mask_ == vector_lanes<Scalar> ? all_lanes<Scalar>{}.load(from) : load_some(from, mask_);
#endif
  }

  /// Writes only the chosen lanes to memory.
  void store(Scalar* to, vector<Scalar> value) const noexcept {
#if PERGRAD_VECTOR_BYTES == 64
    if constexpr (sizeof(Scalar) == 4) {
      __builtin_ia32_storeups512_mask(to, value, mask_);
    } else {
      __builtin_ia32_storeupd512_mask(to, value, mask_);
    }
#elif PERGRAD_VECTOR_BYTES == 32
    if constexpr (sizeof(Scalar) == 4) {
      __builtin_ia32_maskstoreps256(reinterpret_cast<vector<Scalar>*>(to), mask_, value);
    } else {
      __builtin_ia32_maskstorepd256(reinterpret_cast<vector<Scalar>*>(to), mask_, value);
    }
#else
    if (mask_ == vector_lanes<Scalar>) {
      all_lanes<Scalar>{}.store(to, value);
    } else {
      store_some(to, value, mask_);
    }
#endif
  }

 private:
#if PERGRAD_VECTOR_BYTES == 64
  using mask_type = std::conditional_t<sizeof(Scalar) == 4, unsigned short, unsigned char>;
  static mask_type mask_of(std::size_t count) noexcept { return static_cast<mask_type>((1U << count) - 1U); }
#elif PERGRAD_VECTOR_BYTES == 32
  using mask_type = typename vector_detail::vector_of<Scalar>::lanes_type;
  static mask_type mask_of(std::size_t count) noexcept {
    using lane_type = std::conditional_t<sizeof(Scalar) == 4, int, long long>;
    mask_type numbers{};
    if constexpr (sizeof(Scalar) == 4) {
      numbers = mask_type{0, 1, 2, 3, 4, 5, 6, 7};
    } else {
      numbers = mask_type{0, 1, 2, 3};
    }
    return numbers < static_cast<lane_type>(count);
  }
#else
  using mask_type = std::size_t;
  static mask_type mask_of(std::size_t count) noexcept { return count; }
  // A call would send every vector of its caller to memory. Where only old processors come by, it compiles sooner.
#if PERGRAD_BEST_TARGET > 0
  [[gnu::noinline]]
#endif
  static vector<Scalar>
  load_some(const Scalar* from, std::size_t count) noexcept {
    alignas(vector_bytes) Scalar lanes[vector_lanes<Scalar>] = {};
    copy(lanes, from, count);
    return all_lanes<Scalar>{}.load(lanes);
  }
#if PERGRAD_BEST_TARGET > 0
  [[gnu::noinline]]
#endif
  static void
  store_some(Scalar* to, vector<Scalar> value, std::size_t count) noexcept {
    alignas(vector_bytes) Scalar lanes[vector_lanes<Scalar>];
    all_lanes<Scalar>{}.store(lanes, value);
    copy(to, lanes, count);
  }
  /// Written out: a loop would become a call.
  static void copy(Scalar* to, const Scalar* from, std::size_t count) noexcept {
    constexpr std::size_t lanes = vector_lanes<Scalar>;
    to[0] = from[0];
    if constexpr (lanes > 2) {
      if (count > 1) {
        to[1] = from[1];
      }
      if (count > 2) {
        to[2] = from[2];
      }
    }
  }
#endif

  mask_type mask_;
};

/// Calls f(first, lanes) over `count` elements: whole vectors first, as `all_lanes`, then the rest as `first_lanes`.
template <class Scalar, class Function>
inline void for_each_vector(std::ptrdiff_t count, Function&& f) {
  constexpr auto lanes = static_cast<std::ptrdiff_t>(vector_lanes<Scalar>);
  std::ptrdiff_t first = 0;
  for (; first + lanes <= count; first += lanes) f(first, all_lanes<Scalar>{});
  if (first < count) f(first, first_lanes<Scalar>{static_cast<std::size_t>(count - first)});
}

}

#endif  // PERGRAD_KERNELS
