// SPDX-License-Identifier: Apache-2.0
// pergrad/host/executor.hpp - the host: everything on the CPU
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/batch.hpp>
#include <pergrad/concepts.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/gradients/request.hpp>
#include <pergrad/host/decode/decoder.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/run/engine.hpp>
#include <pergrad/host/run/worker.hpp>
#include <pergrad/host/run/working_memory.hpp>
#include <pergrad/tape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
template <class Network, class Loss, executor Executor, step_gradients Gradients>
class step_by_verbs;
}

/// Runs everything on the CPU. Give the same executor to the network, the tape and every evaluation.
///
/// Results do not depend on the number of threads, bit for bit. Not copyable: it owns its threads.
class host {
 public:
  static constexpr bool is_executor = true;

  /// As many threads as the machine has.
  host() : host{threads{}} {}
  /// Throws std::invalid_argument for more than 1024 threads.
  explicit host(threads wanted) : pool_{wanted} {}

  /// Threads that work, the caller's included.
  [[nodiscard]] std::size_t thread_count() const noexcept { return pool_.thread_count(); }
  /// Calls f(task, worker) for every task < count, on any thread: see `detail::thread_pool`.
  template <class Function>
  void parallel(std::size_t count, Function&& f) const {
    pool_.parallel(count, std::forward<Function>(f));
  }

  // The rest is the library's own: see detail/executors.hpp.
  template <class Network>
  using explanation = char;
  template <class Loss>
  using loss_explanation = char;
  template <class Network, class Loss>
  using trainer = detail::step_by_verbs<Network, Loss, host, detail::step_gradients::unformed>;
  template <class Network>
  static constexpr bool decodes = on_host::decodes<Network>;
  template <class Network>
  using decoder = on_host::decoder<Network>;
  template <class Network>
  static constexpr std::size_t usual_sums = on_host::usual_sums<Network>;

  [[nodiscard]] const detail::thread_pool& pool() const noexcept { return pool_; }
  template <class Network>
  [[nodiscard]] detail::executor_memory make_tape(std::size_t max_batch, std::size_t max_sums) const {
    return {std::make_unique<on_host::working_memory<Network>>(thread_count(), max_batch, max_sums),
            on_host::way_of_additions<Network>(max_batch)};
  }
  /// Throws std::invalid_argument for a tape of another executor's, or for fewer threads or sums.
  template <detail::evaluation_needs Needs, class Network, class Loss>
  void run(const Network& network, const Loss& loss, const batch<Network, Loss>& samples, tape<Network>& tape,
           const detail::run_request<typename Network::scalar>& request) const {
    auto* const memory = tape.template memory<on_host::working_memory<Network>>();
    if (memory == nullptr) {
      detail::throw_invalid_argument(
          {"pergrad: the tape was made for another executor than the one it is evaluated by"});
    }
    using scalar = typename Network::scalar;
    struct source_type {
      const batch<Network, Loss>* samples;
      const Loss* loss;
    } const from{&samples, &loss};
    on_host::sample_source<scalar> source;
    source.context = &from;
    source.input = [](const void* self, std::size_t sample) -> const void* {
      return static_cast<const source_type*>(self)->samples->input(sample);
    };
    source.record = [](const void* self, std::size_t sample) {
      return static_cast<std::uint32_t>(static_cast<const source_type*>(self)->samples->record(sample));
    };
    source.length = [](const void* self, std::size_t sample) {
      return static_cast<const source_type*>(self)->samples->length(sample);
    };
    source.loss = [](const void* self, std::size_t sample, std::span<const scalar> y, std::span<scalar> dy,
                     std::ptrdiff_t length) {
      const auto* all = static_cast<const source_type*>(self);
      return detail::evaluate_of_length(*all->loss, Network::output_shape, y, all->samples->targets(sample), dy,
                                        static_cast<std::size_t>(length));
    };
    if constexpr (requires { requires std::is_same_v<typename Loss::by_position, Loss> && Loss::takes_stretches; }) {
      using position = on_host::streamed_position<scalar>;
      static constexpr on_host::streamed_loss<scalar> streamed{
          [](const void* self, std::size_t sample, std::span<position> positions, const scalar* y, std::ptrdiff_t first,
             std::ptrdiff_t count, std::ptrdiff_t length) {
            Loss::see(positions, y, static_cast<std::size_t>(first), static_cast<std::size_t>(count),
                      static_cast<const source_type*>(self)->samples->targets(sample),
                      static_cast<std::size_t>(length));
          },
          [](const void* self, std::size_t sample, std::span<position> positions, std::ptrdiff_t length) {
            return Loss::finish(positions, static_cast<const source_type*>(self)->samples->targets(sample),
                                static_cast<std::size_t>(length));
          },
          [](const void* self, std::size_t sample, std::span<const position> positions, scalar* y, std::ptrdiff_t first,
             std::ptrdiff_t count) {
            Loss::differentiate(positions, y, static_cast<std::size_t>(first), static_cast<std::size_t>(count),
                                static_cast<const source_type*>(self)->samples->targets(sample));
          }};
      source.streamed = &streamed;
    }
    const on_host::other_norms<scalar>* others = nullptr;
    if constexpr (Needs.rows) source.write_rows = &on_host::worker<Network>::write_rows;
    if constexpr (Needs.every_algorithm) others = &on_host::every_norm<scalar>;
    on_host::engine<Network>{pool_, network, *memory, source, request, others}.run();
  }

 private:
  detail::thread_pool pool_;
};

}  // namespace pergrad::inline v0_1
