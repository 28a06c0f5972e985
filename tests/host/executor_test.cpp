// SPDX-License-Identifier: Apache-2.0
// tests/host/executor_test.cpp - the pool of threads: every task once, exceptions, nesting, many small jobs, coming and
// going.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pergrad/host/executor.hpp>

BOOST_AUTO_TEST_SUITE(host_executor)

namespace pg = pergrad;

BOOST_AUTO_TEST_CASE(number_of_threads) {
  BOOST_TEST(pg::host{pg::threads{1}}.thread_count() == 1U);
  BOOST_TEST(pg::host{pg::threads{7}}.thread_count() == 7U);
  const std::size_t all = std::thread::hardware_concurrency();
  BOOST_TEST(pg::host{}.thread_count() == (all == 0 ? 1 : all));
  BOOST_TEST(pg::host{pg::threads{0}}.thread_count() == pg::host{}.thread_count());
  BOOST_CHECK_THROW(pg::host{pg::threads{1025}}, std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(every_task_runs_once_on_a_worker_that_exists) {
  for (const std::size_t threads : {1U, 2U, 3U, 8U}) {
    const pg::host exec{pg::threads{threads}};
    for (const std::size_t count : {0U, 1U, 2U, 7U, 1000U}) {
      std::vector<std::atomic<int>> calls(count);
      std::vector<std::atomic<int>> inside(threads);
      std::atomic<bool> shared_worker{false};
      exec.parallel(count, [&](std::size_t task, std::size_t worker) {
        if (worker >= threads || inside[worker]++ != 0) {
          shared_worker = true;
          return;
        }
        ++calls[task];
        --inside[worker];
      });
      BOOST_TEST(!shared_worker);  // two tasks at once never have the same worker number
      for (const auto& number : calls) BOOST_TEST_REQUIRE(number == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(results_are_seen_by_the_caller_and_by_the_next_job) {
  const pg::host exec{pg::threads{4}};
  std::vector<std::size_t> values(500);
  for (std::size_t round = 1; round <= 200; ++round) {
    exec.parallel(values.size(),
                  [&](std::size_t task, std::size_t) { values[task] += task; });  // no atomics: the pool orders jobs
    BOOST_TEST_REQUIRE(values[499] == round * 499);
  }
  for (std::size_t i = 0; i < values.size(); ++i) BOOST_TEST_REQUIRE(values[i] == 200 * i);
}

BOOST_AUTO_TEST_CASE(threads_work_at_the_same_time) {
  const pg::host exec{pg::threads{3}};
  std::atomic<int> arrived{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  std::atomic<bool> all{true};
  exec.parallel(3, [&](std::size_t, std::size_t) {
    ++arrived;
    while (arrived < 3) {
      if (std::chrono::steady_clock::now() > deadline) {
        all = false;
        return;
      }
      std::this_thread::yield();
    }
  });
  BOOST_TEST(all);
}

BOOST_AUTO_TEST_CASE(many_small_jobs) {
  const pg::host exec{pg::threads{2}};
  std::atomic<std::size_t> sum{0};
  for (std::size_t job = 0; job < 20000; ++job) {
    exec.parallel(1 + job % 3,
                  [&](std::size_t task, std::size_t) { sum.fetch_add(task + 1, std::memory_order_relaxed); });
  }
  // 1, 1 + 2 or 1 + 2 + 3 a job.
  BOOST_TEST(sum == 6667U * 1 + 6667U * 3 + 6666U * 6);
}

// Long enough apart that the pool has gone to sleep.
BOOST_AUTO_TEST_CASE(jobs_far_apart) {
  const pg::host exec{pg::threads{3}};
  std::atomic<std::size_t> sum{0};
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    exec.parallel(6, [&](std::size_t, std::size_t) {
      std::this_thread::sleep_for(std::chrono::microseconds{300});
      ++sum;
    });
  }
  BOOST_TEST(sum == 120U);
}

BOOST_AUTO_TEST_CASE(an_exception_reaches_the_caller_and_the_pool_goes_on) {
  for (const std::size_t threads : {1U, 4U}) {
    const pg::host exec{pg::threads{threads}};
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> ran{0};
      BOOST_CHECK_EXCEPTION(exec.parallel(20,
                                          [&](std::size_t task, std::size_t) {
                                            ++ran;
                                            if (task == 13) throw std::runtime_error("thirteen");
                                          }),
                            std::runtime_error,
                            [](const std::runtime_error& error) { return std::string{error.what()} == "thirteen"; });
      BOOST_TEST_REQUIRE(ran == 20);  // the others are finished before the caller hears of it
      exec.parallel(5, [&](std::size_t, std::size_t) { ++ran; });
      BOOST_TEST_REQUIRE(ran == 25);
    }
    // If all fail, one is told.
    BOOST_CHECK_THROW(exec.parallel(20, [](std::size_t, std::size_t) { throw std::out_of_range("all"); }),
                      std::out_of_range);
    BOOST_CHECK_NO_THROW(exec.parallel(20, [](std::size_t, std::size_t) {}));
  }
}

BOOST_AUTO_TEST_CASE(nesting_is_refused_and_not_a_deadlock) {
  for (const std::size_t threads : {1U, 2U}) {
    const pg::host exec{pg::threads{threads}};
    for (const std::size_t count : {1U, 6U}) {
      BOOST_CHECK_THROW(
          exec.parallel(count, [&](std::size_t, std::size_t) { exec.parallel(2, [](std::size_t, std::size_t) {}); }),
          std::logic_error);
    }
    // Another executor may be used from a task, and this one again afterwards.
    std::atomic<int> ran{0};
    const pg::host other{pg::threads{2}};
    exec.parallel(3, [&](std::size_t, std::size_t) { other.parallel(4, [&](std::size_t, std::size_t) { ++ran; }); });
    BOOST_TEST(ran == 12);
    // And the first is still known to be busy while the second works for it.
    BOOST_CHECK_THROW(exec.parallel(1,
                                    [&](std::size_t, std::size_t) {
                                      other.parallel(1, [](std::size_t, std::size_t) {});
                                      exec.parallel(1, [](std::size_t, std::size_t) {});
                                    }),
                      std::logic_error);
    exec.parallel(3, [&](std::size_t, std::size_t) { ++ran; });
    BOOST_TEST(ran == 15);
  }
}

BOOST_AUTO_TEST_CASE(callers_on_several_threads_take_turns) {
  const pg::host exec{pg::threads{3}};
  std::atomic<int> at_once{0};
  std::atomic<bool> mixed{false};
  std::vector<std::size_t> sums(4);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int job = 0; job < 200; ++job) {
        std::atomic<std::size_t> sum{0};
        std::atomic<int> begun{0};
        std::atomic<int> done{0};
        exec.parallel(8, [&](std::size_t task, std::size_t) {
          if (begun++ == 0 && at_once++ != 0) mixed = true;
          sum += task;
          if (++done == 8) --at_once;
        });
        sums[caller] += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::size_t sum : sums) BOOST_TEST(sum == 200U * 28);
  BOOST_TEST(!mixed);
}

BOOST_AUTO_TEST_CASE(pools_come_and_go) {
  for (int round = 0; round < 100; ++round) {
    const pg::host idle{pg::threads{3}};  // destroyed without having worked
    const pg::host exec{pg::threads{3}};
    std::atomic<int> ran{0};
    exec.parallel(5, [&](std::size_t, std::size_t) { ++ran; });
    BOOST_TEST_REQUIRE(ran == 5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
