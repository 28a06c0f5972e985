// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/sparse.hpp - gradients of a table of which a sample uses few rows: segments, their norm, their
// sums
//
//   G_b[id] = sum over t with id_{b,t} = id of delta_{b,t}
//
// A sample's gradient is zero but for its segments: one summed row for each id that occurs in it (positions that hold
// the same id must be added up before the norm is taken; Lee & Kifer 2020, arXiv:2009.03106). They are found in O(T)
// with a hash table, and their rows are squared as they are stored, so what is clipped is what is added. Where all
// positions share one delta, a segment is that delta times how often its id occurs, and only the count is kept.
//
// Segments of a chunk of samples are kept until the samples' weights are known. A table is then cut into buckets of
// rows, and every bucket is summed up by one task, sample after sample: the bits of a sum depend on the order of the
// samples only. Memory grows with samples x positions x width of a row, never with samples x table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/segment_sizes.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// A sample's segments of one table, bucket after bucket.
template <class Scalar>
struct segments {
  std::int32_t* first_of = nullptr;  ///< sparse_buckets + 1 numbers of segments
  std::int32_t* ids = nullptr;
  std::int32_t* counts = nullptr;  ///< if counted
  Scalar* rows = nullptr;          ///< one a segment; if counted, the one delta

  segments(const sparse_leaf& leaf, std::int32_t* integers, Scalar* scalars) noexcept
      : first_of{integers + leaf.integers},
        ids{first_of + sparse_buckets + 1},
        counts{ids + leaf.all_positions},
        rows{scalars + leaf.rows} {}
  [[nodiscard]] index count() const noexcept { return first_of[sparse_buckets]; }
};

/// What a worker finds segments with: three numbers a position, and a hash table of zeros that are zeros again
/// afterwards.
struct segment_finder {
  std::int32_t* memory = nullptr;
  index positions = 0;
  [[nodiscard]] std::int32_t* segment_of() const noexcept { return memory; }
  [[nodiscard]] std::int32_t* found() const noexcept { return memory + positions; }
  [[nodiscard]] std::int32_t* counts() const noexcept { return memory + 2 * positions; }
  [[nodiscard]] std::int32_t* slots() const noexcept { return memory + 3 * positions; }
  [[nodiscard]] static constexpr index size(index positions, index slots) noexcept {
    return round_up(3 * positions + slots);
  }
};

/// The segments of one table and one sample: `find` for every use of the table, `sort`, then `add_rows` for every use.
template <class Scalar>
class segment_maker {
 public:
  segment_maker(const sparse_leaf& owner, const segment_finder& finder) noexcept
      : owner_{owner}, finder_{finder}, mask_{static_cast<std::uint32_t>(hash_slots(owner) - 1)} {}

  /// Notes the ids of one use, after those of the uses before.
  void find(const sparse_leaf& use, const std::int32_t* ids, index length) noexcept {
    std::int32_t* segment_of = finder_.segment_of() + position_;
    std::int32_t* found = finder_.found();
    std::int32_t* counts = finder_.counts();
    std::int32_t* slots = finder_.slots();
    position_ += use.positions;
    const bool direct = is_direct();
    for (index t = 0; t < length; ++t) {
      const std::int32_t id = ids[t];
      if (id == use.skipped) {
        segment_of[t] = -1;
        continue;
      }
      std::uint32_t slot = direct ? static_cast<std::uint32_t>(id) : scattered(id);
      std::int32_t segment = slots[slot] - 1;
      while (segment >= 0 && found[segment] != id) {
        slot = (slot + 1) & mask_;
        segment = slots[slot] - 1;
      }
      const bool is_new = segment < 0;
      segment = is_new ? count_ : segment;
      counts[segment] = is_new ? 1 : counts[segment] + 1;
      found[segment] = id;
      slots[slot] = segment + 1;
      count_ += is_new ? 1 : 0;
      segment_of[t] = segment;
    }
  }

  /// Puts the segments in order, bucket after bucket, and clears the hash table.
  void sort(segments<Scalar> to) noexcept {
    std::int32_t* found = finder_.found();
    std::int32_t* counts = finder_.counts();
    const int shift = bucket_shift(owner_);
    std::int32_t next[sparse_buckets] = {};
    for (index k = 0; k < count_; ++k) ++next[bucket_of(found[k], shift)];
    to.first_of[0] = 0;
    for (index bucket = 0; bucket < sparse_buckets; ++bucket) {
      to.first_of[bucket + 1] = to.first_of[bucket] + next[bucket];
      next[bucket] = to.first_of[bucket];
    }
    std::int32_t* slots = finder_.slots();
    const bool direct = is_direct();
    if (!direct) std::fill_n(slots, mask_ + 1, 0);
    for (index k = 0; k < (direct ? count_ : 0); ++k) slots[found[k]] = 0;
    const auto place_each = [&](auto&& keep) {
      for (index k = 0; k < count_; ++k) {
        const std::int32_t place = next[bucket_of(found[k], shift)]++;
        to.ids[place] = found[k];
        keep(k, place);
      }
    };
    if (owner_.counted) {
      place_each([&](index k, std::int32_t place) { to.counts[place] = counts[k]; });
    } else {
      place_each([&](index k, std::int32_t place) { counts[k] = place; });
      std::fill_n(to.rows, count_ * owner_.width, Scalar{0});
    }
    position_ = 0;
  }

  /// Adds the rows of one use to its segments, in the order of `find`. Precondition: not counted.
  void add_rows(const sparse_leaf& use, const Scalar* delta, index length, segments<Scalar> to) noexcept {
    const std::int32_t* segment_of = finder_.segment_of() + position_;
    const std::int32_t* places = finder_.counts();
    position_ += use.positions;
    for (index t = 0; t < length; ++t) {
      if (segment_of[t] < 0) continue;
      Scalar* row = to.rows + places[segment_of[t]] * owner_.width;
      const Scalar* from = delta + t * use.delta_step;
      if (use.delta_stride == 1) {
        add_to(row, from, owner_.width);
      } else {
        for (index i = 0; i < owner_.width; ++i) row[i] += from[i * use.delta_stride];
      }
    }
  }

 private:
  /// Has every id a slot of its own?
  [[nodiscard]] bool is_direct() const noexcept { return owner_.vocabulary <= static_cast<index>(mask_) + 1; }
  /// Multiplicative hashing (Knuth, TAOCP 3, 6.4).
  [[nodiscard]] std::uint32_t scattered(std::int32_t id) const noexcept {
    return (static_cast<std::uint32_t>(id) * 0x9E3779B1U >> 8U) & mask_;
  }

  const sparse_leaf& owner_;
  segment_finder finder_;
  std::uint32_t mask_;
  index position_ = 0;
  std::int32_t count_ = 0;
};

/// ‖G_b‖² of a table: the squares of the rows that are added to sums.
template <class Scalar>
[[nodiscard]] inline double squares_of(const sparse_leaf& leaf, const segments<Scalar>& of) noexcept {
  if (!leaf.counted) return squares(static_cast<const Scalar*>(of.rows), of.count() * leaf.width);
  index once = 0;
  double repeated = 0;
  for (index k = 0; k < of.count(); ++k) {
    if (of.counts[k] == 1) {
      ++once;
      continue;
    }
    const auto count = static_cast<Scalar>(of.counts[k]);
    for (index i = 0; i < leaf.width; ++i) {
      const auto value = static_cast<double>(static_cast<Scalar>(count * of.rows[i]));
      repeated = multiply_add(value, value, repeated);
    }
  }
  const double alone = once == 0 ? 0 : squares(static_cast<const Scalar*>(of.rows), leaf.width);
  return static_cast<double>(once) * alone + repeated;
}

/// Calls f(place of the segment's row in the table, row, how often it counts) for segments first .. last - 1.
template <class Scalar, class Function>
inline void for_each_segment(const sparse_leaf& leaf, const segments<Scalar>& of, index first, index last,
                             Function&& f) {
  if (leaf.counted) {
    for (index k = first; k < last; ++k) {
      f(of.ids[k] * leaf.width, static_cast<const Scalar*>(of.rows), static_cast<Scalar>(of.counts[k]));
    }
  } else {
    for (index k = first; k < last; ++k) {
      f(of.ids[k] * leaf.width, static_cast<const Scalar*>(of.rows + k * leaf.width), Scalar{1});
    }
  }
}

/// table += weight G_b, or weight G_b^2, for the segments first .. last - 1. The table may be in double.
template <class Scalar, class Sum>
inline void add_segments(const sparse_leaf& leaf, const segments<Scalar>& of, index first, index last, Scalar weight,
                         bool squared, Sum* table) noexcept {
  for_each_segment(leaf, of, first, last, [&](index place, const Scalar* row, Scalar count) {
    Sum* to = table + place;
    if constexpr (!std::is_same_v<Sum, Scalar>) {
      add_widened_to(to, static_cast<Sum>(weight), count, row, squared, leaf.width);
    } else if (squared) {
      for_each_vector<Scalar>(leaf.width, [&](index i, const auto& lanes) {
        const vector<Scalar> value = splat(count) * lanes.load(row + i);
        lanes.store(to + i, lanes.load(to + i) + splat(weight) * (value * value));
      });
    } else {
      for_each_vector<Scalar>(leaf.width, [&](index i, const auto& lanes) {
        lanes.store(to + i, lanes.load(to + i) + splat(weight) * (splat(count) * lanes.load(row + i)));
      });
    }
  });
}
/// table += round(factor G_b) for the segments first .. last - 1.
template <class Scalar>
inline void add_rounded_segments(const sparse_leaf& leaf, const segments<Scalar>& of, index first, index last,
                                 double factor, std::int64_t* table) noexcept {
  for_each_segment(leaf, of, first, last, [&](index place, const Scalar* row, Scalar count) {
    for (index i = 0; i < leaf.width; ++i) {
      table[place + i] += nearest_integer(factor * static_cast<double>(static_cast<Scalar>(count * row[i])));
    }
  });
}
/// table = weight G_b. A weight of 0 is chosen, not multiplied.
template <class Scalar>
inline void write_segments(const sparse_leaf& leaf, const segments<Scalar>& of, Scalar weight, Scalar* table) noexcept {
  std::fill_n(table, leaf.size(), Scalar{0});
  if (weight != 0) add_segments(leaf, of, 0, of.count(), weight, false, table);
}
/// <G_b, table>
template <class Scalar>
[[nodiscard]] inline double dot_segments(const sparse_leaf& leaf, const segments<Scalar>& of,
                                         const Scalar* table) noexcept {
  double sum = 0;
  for_each_segment(leaf, of, 0, of.count(), [&](index place, const Scalar* row, Scalar count) {
    sum += static_cast<double>(count) * dot(row, table + place, leaf.width);
  });
  return sum;
}

/// Calls f(first parameter of the table, count) for the stretches of one bucket.
template <class Function>
inline void for_each_stretch_of_bucket(const sparse_leaf& leaf, index bucket, Function&& f) {
  const index stretch = index{1} << bucket_shift(leaf);
  for (index id = bucket * stretch; id < leaf.vocabulary; id += sparse_buckets * stretch) {
    f(id * leaf.width, std::min(stretch, leaf.vocabulary - id) * leaf.width);
  }
}

}  // namespace pergrad::inline v0_1::on_host
