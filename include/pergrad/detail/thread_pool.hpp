// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/thread_pool.hpp - a fixed set of threads that share out numbered tasks
//
// Which thread runs which task is left to chance; callers give every task its own place for its result, so that nothing
// that is computed depends on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>

namespace pergrad::inline v0_1 {

/// A number of threads; 0 means all that the machine has.
struct threads {
  std::size_t count = 0;
};

namespace detail {

/// Threads that share out numbered tasks. Not copyable: it owns its threads.
class thread_pool {
 public:
  /// Throws std::invalid_argument for more than 1024 threads.
  explicit thread_pool(threads wanted) : state_{std::make_unique<shared_state>()} {
    std::size_t count = wanted.count == 0 ? std::thread::hardware_concurrency() : wanted.count;
    count = count == 0 ? 1 : count;
    if (count > most_threads) throw_invalid_argument({"pergrad: threads must be at most 1024"});
    state_->members = std::vector<std::thread>(count - 1);
    for (std::size_t worker = 1; worker < count; ++worker) {
      state_->members[worker - 1] = std::thread{[shared = state_.get(), worker] { serve(*shared, worker); }};
    }
  }

  /// Threads that work, the caller's included.
  [[nodiscard]] std::size_t thread_count() const noexcept { return state_->members.size() + 1; }

  /// Calls f(task, worker) for every task < count, on any thread; worker < thread_count(). Returns when all are done.
  /// The first exception thrown by a task is thrown again here, after all others are done. Allocates nothing.
  /// Tasks round to nearest and keep subnormal numbers, whatever the caller's thread is set to.
  /// Calls from several threads wait for each other. Throws std::logic_error when called from one of its own tasks.
  template <class Function>
  void parallel(std::size_t count, Function&& f) const {
    using function_type = std::remove_reference_t<Function>;
    run(count, const_cast<void*>(static_cast<const void*>(std::addressof(f))),
        [](void* context, std::size_t task, std::size_t worker) {
          (*static_cast<function_type*>(context))(task, worker);
        });
  }

  /// Throws std::logic_error when called from one of its own tasks, as `parallel` would.
  void require_outside() const {
    if (state_at_work() == state_.get()) {
      throw_logic_error({"pergrad: a task cannot start tasks on its own executor, it would wait for itself"});
    }
  }

 private:
  using task_function = void (*)(void* context, std::size_t task, std::size_t worker);

  void run(std::size_t count, void* context, task_function call) const {
    if (count == 0) return;
    require_outside();
    const std::lock_guard lock{state_->one_job_at_a_time};
    shared_state& shared = *state_;
    shared.context = context;
    shared.call = call;
    shared.count = count;
    shared.next.store(0, std::memory_order_relaxed);
    const bool alone = count == 1 || shared.members.empty();
    if (!alone) {
      shared.busy.store(0, std::memory_order_release);
      shared.job.fetch_add(1, std::memory_order_release);
      shared.job.notify_all();
    }
    work(shared, 0);
    if (!alone) {
      // Only for those who have begun: a member that another program keeps off its core finds the job closed.
      for (std::size_t waiting = shared.busy.fetch_or(closed, std::memory_order_acq_rel) | closed; waiting != closed;
           waiting = shared.busy.load(std::memory_order_acquire)) {
        if (!spin([&] { return shared.busy.load(std::memory_order_acquire) == closed; })) {
          shared.busy.wait(waiting, std::memory_order_acquire);
        }
      }
    }
    if (shared.failure) std::rethrow_exception(std::exchange(shared.failure, nullptr));
  }

  static constexpr std::size_t most_threads = 1024;
  static constexpr std::size_t closed = std::size_t{1} << 16U;

  struct shared_state {
    std::vector<std::thread> members;
    std::mutex one_job_at_a_time;
    std::mutex failure_mutex;
    std::exception_ptr failure;
    void* context = nullptr;
    task_function call = nullptr;
    std::size_t count = 0;
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> busy{closed};  // members at work on the job; with `closed`, no other may begin
    std::atomic<std::uint32_t> job{0};
    std::atomic<bool> stop{false};

    shared_state() = default;
    shared_state(const shared_state&) = delete;
    shared_state& operator=(const shared_state&) = delete;
    ~shared_state() {
      stop.store(true, std::memory_order_relaxed);
      job.fetch_add(1, std::memory_order_release);
      job.notify_all();
      for (std::thread& member : members) {
        if (member.joinable()) member.join();  // all, unless one could not be started
      }
    }
  };

  /// Waits a few microseconds for `done`, as steps follow each other closely; then a sleep is cheaper.
  template <class Condition>
  static bool spin(Condition done) noexcept {
    constexpr int rounds = 4000;
    for (int round = 0; round < rounds; ++round) {
      if (done()) return true;
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
    return false;
  }

  /// The pool whose task this thread is working on, if any.
  [[nodiscard]] static const shared_state*& state_at_work() noexcept {
    thread_local const shared_state* current = nullptr;
    return current;
  }

  static void work(shared_state& shared, std::size_t worker) noexcept {
    const detail::float_environment proven;
    const shared_state* const before = std::exchange(state_at_work(), &shared);
    for (std::size_t task = shared.next.fetch_add(1, std::memory_order_relaxed); task < shared.count;
         task = shared.next.fetch_add(1, std::memory_order_relaxed)) {
      try {
        shared.call(shared.context, task, worker);
      } catch (...) {
        const std::lock_guard lock{shared.failure_mutex};
        if (!shared.failure) shared.failure = std::current_exception();
      }
    }
    state_at_work() = before;
  }

  static void serve(shared_state& shared, std::size_t worker) noexcept {
    std::uint32_t seen = 0;
    while (true) {
      if (!spin([&] { return shared.job.load(std::memory_order_acquire) != seen; })) {
        shared.job.wait(seen, std::memory_order_acquire);
      }
      const std::uint32_t current = shared.job.load(std::memory_order_acquire);
      if (current == seen) continue;
      seen = current;
      if (shared.stop.load(std::memory_order_relaxed)) return;
      if (!begin(shared)) continue;
      work(shared, worker);
      if (shared.busy.fetch_sub(1, std::memory_order_acq_rel) == closed + 1) shared.busy.notify_all();
    }
  }

  /// Joins those at work, unless the job is closed: then nothing that belongs to it may be read.
  static bool begin(shared_state& shared) noexcept {
    std::size_t busy = shared.busy.load(std::memory_order_acquire);
    while ((busy & closed) == 0) {
      if (shared.busy.compare_exchange_weak(busy, busy + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        return true;
    }
    return false;
  }

  std::unique_ptr<shared_state> state_;
};

}  // namespace detail

}  // namespace pergrad::inline v0_1
