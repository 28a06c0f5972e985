// SPDX-License-Identifier: Apache-2.0
// pergrad/query/supremum.hpp - the largest and the smallest value of a query in a box, between two proven bounds
//
// Best-first branch and bound (Moore & Yang 1959; Hansen & Walster 2004, chapter 12). A queue holds boxes that cover
// all points at which the largest value can be; the largest of their upper bounds is one of the whole box, at every
// moment. So the result is a certificate whenever the search stops. Of a box X:
//   - the natural enclosure F(X), and the mean value form F(m) + G(X) (X - m), m in X; the smaller one counts;
//   - where G_i(X) has one sign, the largest value lies on one face: X_i becomes that end. If the face is inside the
//     query's box, nothing is lost without X: f still grows behind it, and a neighbour has that point;
//     Both only where the query is defined everywhere in X;
//   - a lower bound: F at one point, a double in every coordinate, rounded down: the value is attained there.
// A box is halved across the coordinate in which |G_i| times its width is the largest.
// Points where the query is not defined (a root of a number below 0) are left out.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <pergrad/query/evaluate.hpp>
#include <pergrad/query/functions.hpp>
#include <pergrad/query/slopes.hpp>

namespace pergrad::inline v0_1 {

/// When a search for a bound stops: at the first of these.
struct search_limits {
  double tolerance = 1e-10;           ///< of upper - lower, as a share of the larger bound's size
  double absolute_tolerance = 1e-15;  ///< the same as a difference
  std::size_t boxes = 200'000;        ///< that are looked at
  double seconds = 60;                ///< not in constant expressions
};

/// A bound from both sides.
struct extremum {
  double lower = 0;       ///< supremum: a value that is attained at `where`; infimum: proven
  double upper = 0;       ///< supremum: proven; infimum: attained
  std::size_t boxes = 0;  ///< that were looked at
  bool is_within_tolerance = false;
  std::array<query::binding, query::inside::most_fields> point{};  ///< of the query's fields

  /// Where the bound that is attained is attained. Throws std::invalid_argument for a field that the query reads not.
  [[nodiscard]] constexpr double where(const query::field_base& field) const {
    if (const query::binding* const found = find(field.name())) return found->value;
    query::inside::field_has_no_value(query::inside::short_text_of(field.name()));
  }
  /// Null for a field that the query reads not.
  [[nodiscard]] constexpr const query::binding* find(const query::inside::field_name& name) const noexcept {
    for (const query::binding& each : point) {
      if (each.name.text != nullptr && each.name.compared(name) == 0) return &each;
    }
    return nullptr;
  }
};

namespace query::inside {

/// One search.
class search {
 public:
  constexpr search(const node_list& list, const box& in, const search_limits& limits)
      : list_{list}, output_{list.outputs[0]}, limits_{limits} {
    for (std::size_t i = 0; i < fields(); ++i) {
      all_[i] = in.find(list.fields[i]);
      if (all_[i].is_empty()) problem_ = {query_mistake::field_without_bounds, short_text_of(list.fields[i])};
    }
    if (!(limits.tolerance >= 0)) option_is_no_tolerance(limits.tolerance);
    if (!(limits.absolute_tolerance >= 0)) option_is_no_tolerance(limits.absolute_tolerance);
  }

  /// What is wrong with the query is in problem() then.
  [[nodiscard]] constexpr extremum result() {
    if (problem_.mistake == query_mistake::none) look_at({0, 0, all_});
    while (problem_.mistake == query_mistake::none && !queue_.empty() && !is_done()) {
      const part next = queue_.front();
      if (next.upper == unbounded && next.depth > most_halvings_of_a_pole()) break;
      std::pop_heap(queue_.begin(), queue_.end());
      queue_.pop_back();
      halve(next);
    }
    extremum found;
    found.lower = best_;
    found.upper = upper_bound();
    found.boxes = boxes_;
    found.is_within_tolerance = is_close();
    for (std::size_t i = 0; i < fields(); ++i) found.point[i] = {list_.fields[i], best_at_[i]};
    if (problem_.mistake != query_mistake::none) return found;
    if (queue_.empty() && best_ == -unbounded && closed_ == -unbounded) {
      problem_ = {query_mistake::undefined_in_the_box, short_text_of(list_, output_)};
    } else if (found.upper == unbounded) {
      report_pole(queue_.front().at);
    }
    return found;
  }
  [[nodiscard]] constexpr const query_problem& problem() const noexcept { return problem_; }

 private:
  /// Halvings of a box in which there is no bound, before it is said to have none: to 2^-24 of every width.
  [[nodiscard]] constexpr int most_halvings_of_a_pole() const noexcept { return 24 * list_.field_count; }

  struct part {
    double upper;
    int depth;
    field_intervals at;
    std::size_t cut = 0;  ///< the coordinate across which it is halved
    /// Of those without a bound the smallest first.
    friend constexpr bool operator<(const part& a, const part& b) noexcept {
      return a.upper != b.upper ? a.upper < b.upper : a.depth < b.depth;
    }
  };

  [[nodiscard]] constexpr std::size_t fields() const noexcept { return place(list_.field_count); }
  [[nodiscard]] constexpr double upper_bound() const noexcept {
    return queue_.empty() ? std::max(best_, closed_) : std::max({best_, closed_, queue_.front().upper});
  }
  [[nodiscard]] constexpr bool is_close() const noexcept {
    const double upper = upper_bound();
    if (upper == unbounded || best_ == -unbounded) return false;
    const double gap = upper - best_;
    return gap <= limits_.absolute_tolerance || gap <= limits_.tolerance * std::max(magnitude(upper), magnitude(best_));
  }
  [[nodiscard]] constexpr bool is_done() {
    if (is_close() || boxes_ >= limits_.boxes) return true;
    if (std::is_constant_evaluated() || boxes_ < next_look_at_the_clock_) return false;
    next_look_at_the_clock_ = boxes_ + 64;
    return is_late();
  }
  [[nodiscard]] bool is_late() const {
    const std::chrono::duration<double> used = std::chrono::steady_clock::now().time_since_epoch();
    if (started_ < 0) started_ = used.count();
    return used.count() - started_ > limits_.seconds;
  }

  constexpr interval value_at(const field_intervals& at) {
    evaluate_nodes(list_, at.data(), values_);
    return values_[place(output_)];
  }
  /// A value that is attained.
  constexpr void try_point(const field_intervals& at) {
    const interval value = value_at(at);
    if (value.is_empty() || !is_finite(value.lower) || value.lower <= best_) return;
    best_ = value.lower;
    for (std::size_t i = 0; i < fields(); ++i) best_at_[i] = at[i].lower;
  }

  /// Bounds a box and puts it in the queue, or finds that the largest value is not in there.
  constexpr void look_at(part next) {
    ++boxes_;
    field_intervals slopes{};
    bool is_collapsed = true;
    bool is_smooth = false;
    interval value;
    while (is_collapsed) {  // to faces, until there is none left
      value = value_at(next.at);
      if (value.is_empty() || value.upper <= best_) return;
      slopes = slopes_of(list_, values_, output_);
      is_smooth = value.is_finite() && is_defined_everywhere(list_, values_);
      is_collapsed = false;
      for (std::size_t i = 0; i < fields() && is_smooth; ++i) {
        if (next.at[i].is_point() || slopes[i].contains(0)) continue;
        const bool is_rising = slopes[i].lower > 0;
        const double end = is_rising ? next.at[i].upper : next.at[i].lower;
        if (end != (is_rising ? all_[i].upper : all_[i].lower)) return;
        next.at[i] = end;
        is_collapsed = true;
      }
    }
    field_intervals middle = next.at;
    field_intervals corner = next.at;
    for (std::size_t i = 0; i < fields(); ++i) {
      middle[i] = next.at[i].middle();
      corner[i] = slopes[i].upper > -slopes[i].lower ? next.at[i].upper : next.at[i].lower;
    }
    const interval at_middle = value_at(middle);
    try_point(corner);
    next.upper = value.upper;
    if (!at_middle.is_empty() && at_middle.is_finite()) {
      interval mean_value = at_middle;
      for (std::size_t i = 0; i < fields(); ++i) {
        is_smooth = is_smooth && slopes[i].is_finite();
        if (!next.at[i].is_point()) mean_value = mean_value + slopes[i] * (next.at[i] - middle[i]);
      }
      if (is_smooth) next.upper = std::min(next.upper, mean_value.upper);
      if (at_middle.lower > best_) {
        best_ = at_middle.lower;
        for (std::size_t i = 0; i < fields(); ++i) best_at_[i] = middle[i].lower;
      }
    }
    if (next.upper <= best_) return;
    std::size_t widest = fields();
    double most = -1;
    for (std::size_t i = 0; i < fields(); ++i) {
      if (!can_be_halved(next.at[i])) continue;
      const double effect = std::min(slopes[i].magnitude(), 1e300) * next.at[i].width();
      if (effect > most) most = effect, widest = i;
    }
    if (widest == fields()) {  // nothing left to halve
      if (next.upper == unbounded) report_pole(next.at);
      closed_ = std::max(closed_, next.upper);
      return;
    }
    // Across the widest where a slope is not known, so that every coordinate has its turn.
    if (!is_finite(most) || most >= 1e290) {
      most = -1;
      for (std::size_t i = 0; i < fields(); ++i) {
        if (!can_be_halved(next.at[i])) continue;
        const double share = next.at[i].width() / std::max(all_[i].width(), least_subnormal);
        if (share > most) most = share, widest = i;
      }
    }
    next.cut = widest;
    queue_.push_back(next);
    std::push_heap(queue_.begin(), queue_.end());
  }
  [[nodiscard]] static constexpr bool can_be_halved(const interval& x) noexcept {
    return x.width() != 0 && x.middle() != x.lower && x.middle() != x.upper;
  }
  constexpr void halve(const part& next) {
    const double middle = next.at[next.cut].middle();
    part lower{next.upper, next.depth + 1, next.at};
    part upper = lower;
    lower.at[next.cut].upper = middle;
    upper.at[next.cut].lower = middle;
    look_at(lower);
    look_at(upper);
  }
  /// The first expression without a bound in this box whose operands have one.
  constexpr void report_pole(const field_intervals& at) {
    evaluate_nodes(list_, at.data(), values_);
    int found = 0;
    while (found < output_ && values_[place(found)].is_finite()) ++found;
    problem_ = {query_mistake::unbounded_in_the_box, short_text_of(list_, found)};
  }

  const node_list& list_;
  int output_;
  query_problem problem_{};
  field_intervals all_{};
  search_limits limits_;
  node_values<interval> values_{};
  std::vector<part> queue_{};
  double best_ = -unbounded;
  double closed_ = -unbounded;  ///< upper bound of parts that cannot be halved
  std::array<double, most_fields> best_at_{};
  std::size_t boxes_ = 0;
  std::size_t next_look_at_the_clock_ = 0;
  mutable double started_ = -1;
};

}  // namespace query::inside

namespace query::inside {

struct extremum_or_problem {
  extremum found{};
  query_problem problem{};
};
[[nodiscard]] constexpr extremum_or_problem try_supremum(const query::expression& query, const box& in,
                                                         const search_limits& limits) {
  return proven([&] {
    search all{query_access::nodes(query), in, limits};
    const extremum found = all.result();
    return extremum_or_problem{found, all.problem()};
  });
}

/// A mistake and where it is, in the name of a class, which compilers print.
template <query_mistake Mistake, literal Where>
struct query_error {
  static_assert(Mistake == query_mistake::none, "pergrad: the query has no bound in the box; this class says where");
};

}  // namespace query::inside

/// The largest value of a query in a box: not above `upper`, and at least `lower`, which is attained at `where`. A
/// certificate whenever it stops: rounding counts, and `is_within_tolerance` says why it stopped. Throws
/// std::invalid_argument, in constant expressions an error, for a field without bounds, for a query of several values,
/// and for one without a bound: it names the sub-expression that has a pole.
[[nodiscard]] constexpr extremum supremum(const query::expression& query, const box& in,
                                          const search_limits& limits = {}) {
  if (query.size() != 1) query::inside::query_has_several_values(query.size());
  const query::inside::extremum_or_problem all = query::inside::try_supremum(query, in, limits);
  if (all.problem.mistake != query::inside::query_mistake::none)
    query::inside::query_has_no_bound_in_the_box(all.problem);
  return all.found;
}
/// The smallest value: at least `lower`, and not above `upper`, which is attained. All else as `supremum`.
[[nodiscard]] constexpr extremum infimum(const query::expression& query, const box& in,
                                         const search_limits& limits = {}) {
  extremum found = supremum(-query, in, limits);
  found = {-found.upper, -found.lower, found.boxes, found.is_within_tolerance, found.point};
  return found;
}

namespace query::inside {

template <const expression& Query, const box& In>
inline constexpr extremum_or_problem proven_or_not = try_supremum(Query, In, {});
/// As many letters as there are.
template <const expression& Query, const box& In>
inline constexpr auto place_of_problem = [] {
  constexpr const short_text& all = proven_or_not<Query, In>.problem.where;
  char text[all.used + 1] = {};
  std::copy_n(all.text, all.used, text);
  return literal{text};
}();
template <const expression& Query, const box& In>
struct supremum_or_error : query_error<proven_or_not<Query, In>.problem.mistake, place_of_problem<Query, In>> {
  static constexpr extremum found = proven_or_not<Query, In>.found;
};

}  // namespace query::inside

/// The same of constants with static storage: `pg::supremum_of<query, box>`. Where there is no bound, g++ says in the
/// error which sub-expression has none, and which field no bounds.
template <const query::expression& Query, const box& In>
inline constexpr extremum supremum_of = query::inside::supremum_or_error<Query, In>::found;

}  // namespace pergrad::inline v0_1
