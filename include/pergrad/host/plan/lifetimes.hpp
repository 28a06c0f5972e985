// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/lifetimes.hpp - how long what lies in a workspace is needed, and places that follow from it
//
// In a large network, and in any whose sample has many values, these are much of the memory. There a value's place is
// free again when nobody reads it any more: behind its last reader on the way forward if nothing in front of it is
// trained, when the node that needs it has run backwards, or, if norms and sums are made of it, at the end. So frozen
// layers keep nothing but what their input's gradient needs. Each sample has a stretch of its own, in which slots share
// places: samples of a tile may be at different nodes.
//
// What only a recomputed block reads lies in a *room* that all blocks of a sample share: a block computes its values
// there on the way forward, again before it runs backwards, and again, backwards included, where sums are made of them.
// For the last of these its input and the gradient of its output stay to the end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// Times: 0 a sample comes, 1 + i node i, then the loss, the nodes backwards, and the end, where sums are formed.
struct pass_times {
  std::size_t nodes = 0;
  [[nodiscard]] constexpr int forward(std::size_t node) const noexcept { return 1 + static_cast<int>(node); }
  [[nodiscard]] constexpr int loss() const noexcept { return 1 + static_cast<int>(nodes); }
  [[nodiscard]] constexpr int backward(std::size_t node) const noexcept {
    return loss() + static_cast<int>(nodes - node);
  }
  [[nodiscard]] constexpr int end() const noexcept { return loss() + static_cast<int>(nodes) + 1; }
};

/// Places stretches of elements that are taken at some time and free again behind another one, each in the first gap
/// that is large enough, asked for in the order of time. Compilers run it for all that every node has: gaps are few, so
/// they are what is looked through.
template <std::size_t Most, std::size_t Times>
class place_finder {
 public:
  /// The first `lasting` of `size` elements are taken until `lasting_death`, the others until `death`.
  constexpr index place(index size, int birth, int death, index lasting, int lasting_death) {
    for (; now_ < birth; ++now_) {
      for (std::size_t k = dying_[now_]; k != 0; k = all_[k].next) release(all_[k].first, all_[k].end);
    }
    if (size == 0) return 0;
    const index at = take(size);
    if (lasting > 0) note(at, at + lasting, death > lasting_death ? death : lasting_death);
    if (size > lasting) note(at + lasting, at + size, death);
    return at;
  }
  [[nodiscard]] constexpr index total() const noexcept { return total_; }

 private:
  struct stretch {
    index first;
    index end;
    std::size_t next;  ///< number of the one behind it in its list; 0: none
  };
  constexpr void note(index first, index end, int death) {
    all_[++count_] = {first, end, dying_[death]};
    dying_[death] = count_;
  }
  constexpr index take(index size) {
    std::size_t before = 0;
    for (std::size_t k = gaps_[0].next; k != 0; before = k, k = gaps_[k].next) {
      stretch& gap = gaps_[k];
      if (gap.end == total_ && gap.end - gap.first < size) total_ = gap.end = gap.first + size;
      if (gap.end - gap.first < size) continue;
      const index at = gap.first;
      gap.first += size;
      if (gap.first == gap.end) gaps_[before].next = gap.next;
      return at;
    }
    total_ += size;
    return total_ - size;
  }
  constexpr void release(index first, index end) {
    std::size_t before = 0;
    while (gaps_[before].next != 0 && gaps_[gaps_[before].next].first < first) before = gaps_[before].next;
    const std::size_t behind = gaps_[before].next;
    const bool joins_before = before != 0 && gaps_[before].end == first;
    const bool joins_behind = behind != 0 && gaps_[behind].first == end;
    if (joins_before) {
      gaps_[before].end = joins_behind ? gaps_[behind].end : end;
      if (joins_behind) gaps_[before].next = gaps_[behind].next;
    } else if (joins_behind) {
      gaps_[behind].first = first;
    } else {
      gaps_[++gap_count_] = {first, end, behind};
      gaps_[before].next = gap_count_;
    }
  }
  stretch all_[Most + 1]{};   ///< from 1 on
  stretch gaps_[Most + 1]{};  ///< from 1 on; 0 stands in front of the first one
  std::size_t dying_[Times + 1]{};
  std::size_t count_ = 0;
  std::size_t gap_count_ = 0;
  index total_ = 0;
  int now_ = 0;
};

/// May the slot's place be anybody's before and behind? A halo is set to zero once and for all.
[[nodiscard]] constexpr bool may_move(const layout& of) noexcept { return !of.has_halo; }

/// The times as one recomputed block has them, or all of the network: between the block's last node and that node's
/// backward, and behind its first one's, nothing is.
struct block_times {
  pass_times all;
  std::size_t first = 0;
  std::size_t last = 0;
  [[nodiscard]] constexpr int operator()(int time) const noexcept {
    const auto count = static_cast<int>(last - first) + 1;
    if (time < all.loss()) return std::clamp(time - static_cast<int>(first), 0, count);
    if (time == all.loss()) return count + 1;
    return std::clamp(time - all.backward(last), 0, count) + count + 2;
  }
};

/// Until when what a node has is read: values of slots, by their storage, gradients likewise, and its own.
template <class Program>
struct lifetimes {
  using plan = typename Program::plan;
  static constexpr std::size_t size = Program::size;
  static constexpr std::size_t slots = Program::slot_count;
  static constexpr pass_times times{size};

  std::array<int, slots> value{};
  std::array<int, slots> gradient{};
  std::array<int, slots> gradient_birth{};  ///< 0: nobody writes it, it stays zero
  std::array<int, size> plain_x{}, plain_y{}, plain_dy{}, saved{};
  std::array<index, size> lasting_saved{};  ///< of the saved values so many are read at the end
  std::array<std::size_t, slots> room{};    ///< the recomputed block whose room a slot lies in; 0: none
  std::array<bool, size> again{};           ///< must the node run forward again before its block runs backwards?

  constexpr explicit lifetimes(const auto& t) {
    for (std::size_t i = 0; i < size; ++i) {
      const node_row& row = t.nodes[i];
      const bool general = row.kind == node_kind::general || row.kind == node_kind::tiled;
      const bool function = row.kind == node_kind::elementwise || row.kind == node_kind::pooling;
      const int forward = times.forward(i), backward = times.backward(i);
      const bool goes_back = (general && row.backward) || (function && row.input_gradient);
      const bool looks_back = goes_back && !plan::nodes[i].forgets_values;
      const bool reads_x = looks_back && !plan::nodes[i].derives_from_output;
      if (row.staged) live(value[t.storage[row.staged_from]], forward);
      live(value[t.storage[row.in]], reads_x ? backward : forward);
      if (row.in2_shape.size() > 0) live(value[t.storage[row.in2]], looks_back ? backward : forward);
      live(value[t.storage[row.out]], looks_back ? backward : forward);
      plain_x[i] = plain_y[i] = looks_back ? backward : forward;
      saved[i] = goes_back ? backward : forward;
      plain_dy[i] = backward;
      live(gradient[t.storage[row.out]], backward);
    }
    for (std::size_t i = size; i-- > 0;) {  // as gradients are written
      const node_row& row = t.nodes[i];
      const auto write = [&](std::size_t which) {
        int& birth = gradient_birth[t.storage[which]];
        if (birth == 0) birth = times.backward(i);
      };
      if (row.staged && row.input_gradient) write(row.staged_from);
      if (row.input_gradient) write(row.in);
      if (row.input2_gradient) write(row.in2);
    }
    live(value[t.storage[size]], times.end());
    gradient_birth[t.storage[size]] = times.loss();
    std::size_t outer = 0;
    for (const detail::plan_factor& each : plan::factors) {
      const bool at_once = each.what.outer ? t.outer[outer++].at_once : !each.what.sparse;
      const node_row& row = t.nodes[each.node];
      const int end = at_once ? times.backward(each.node) : times.end();
      if (row.kind == node_kind::affine) {
        live(value[t.storage[row.in]], end);
        live(gradient[t.storage[row.out]], end);
        continue;
      }
      const auto positions = static_cast<index>(each.what.positions);
      const auto read = [&](const operand& from, std::size_t count) {
        switch (from.from) {
          case source::activation:
            live(value[t.storage[row.in]], end);
            return live(plain_x[each.node], end);
          case source::second_activation:
            live(value[t.storage[row.in2]], end);
            return live(plain_x[each.node], end);
          case source::output:
            live(value[t.storage[row.out]], end);
            return live(plain_y[each.node], end);
          case source::backprop:
            live(gradient[t.storage[row.out]], end);
            return live(plain_dy[each.node], end);
          case source::saved:
            if (at_once) return;
            lasting_saved[each.node] = std::max(
                lasting_saved[each.node],
                round_up(static_cast<index>(from.offset) + (positions - 1) * static_cast<index>(from.position_stride) +
                         (static_cast<index>(count) - 1) * static_cast<index>(from.stride) + 1));
            return;
          default:
            return;
        }
      };
      read(each.what.delta, each.what.sparse ? each.what.columns : each.what.rows);
      read(each.what.other, each.what.columns);
    }
    if constexpr (plan::recomputed_count > 0) recompute(t);
  }

 private:
  /// The slots that a node reads, as they are stored: what is staged, inputs.
  static constexpr std::array<std::size_t, 3> read_by(const auto& t, std::size_t node) {
    const node_row& row = t.nodes[node];
    const std::size_t in = t.storage[row.in];
    return {row.staged ? t.storage[row.staged_from] : in, in, row.in2_shape.size() > 0 ? t.storage[row.in2] : in};
  }
  /// Finds out what lies in rooms, what must be computed again for it, and what must be kept for that.
  constexpr void recompute(const auto& t) {
    constexpr std::size_t several = plan::recomputed_count + 1;  // blocks, or what is outside
    for (std::size_t& each : room) each = several + 1;           // nobody yet
    const auto use = [&](std::size_t s, std::size_t block) {
      room[s] = room[s] == several + 1 || room[s] == block ? block : several;
    };
    use(t.storage[0], several);
    use(t.storage[size], several);
    std::array<bool, plan::recomputed_count + 1> returns{};  // is it computed again for sums, too?
    for (std::size_t k = 0; k != t.outer_count; ++k) returns[t.outer[k].recomputed] = true;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t block = plan::nodes[i].recomputed == 0 ? several : plan::nodes[i].recomputed;
      for (const std::size_t s : read_by(t, i)) use(s, block);
      use(t.storage[t.nodes[i].out], block);
    }
    for (std::size_t s = 0; s < slots; ++s) {
      const auto& of = t.slots[s];
      if (room[s] >= several || !may_move(of.value_layout) || !may_move(of.gradient_layout)) room[s] = 0;
    }
    std::array<bool, slots> wanted = {};  // again, what is in a room
    for (std::size_t i = size; i-- > 0;) {
      const std::size_t block = plan::nodes[i].recomputed;
      if (block == 0) continue;
      const node_row& row = t.nodes[i];
      const auto lasts = [&](int until) { return until > times.loss(); };
      const std::size_t in = t.storage[row.in], out = t.storage[row.out];
      again[i] = (room[out] != 0 && (wanted[out] || lasts(value[out]))) ||
                 (row.staged && room[in] != 0 && lasts(value[in])) || (row.saved_count > 0 && lasts(saved[i])) ||
                 (row.copies_out && lasts(plain_y[i])) || ((row.copies_in || row.copies_in2) && lasts(plain_x[i]));
      const int until = returns[block] ? times.end() : times.backward(plan::recomputed[block].last);
      const auto keep = [&](std::size_t s) {
        if (room[s] == 0) live(value[s], until);
      };
      for (const std::size_t s : read_by(t, i)) {
        if (again[i]) wanted[s] = true;
        if (again[i] || row.backward) keep(s);
      }
      const bool reads_output = row.backward && value[out] >= times.backward(i);
      if (again[i] || reads_output) keep(out);
      for (const std::size_t s : {out, row.staged ? in : out}) {  // gradients that it reads or writes again
        if (returns[block] && row.backward && room[s] == 0) live(gradient[s], times.end());
      }
    }
  }
  static constexpr void live(int& until, int time) { until = std::max(until, time); }
};

}  // namespace pergrad::inline v0_1::on_host
