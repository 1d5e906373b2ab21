// Where the time of many steps went. On a GPU it is measured by CUDA's events, which are read when
// the host waits for the device anyway, so that measuring delays nothing.
#pragma once
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace vantage {

class Stopwatch {
 public:
  enum Phase { data, forward, backward, optimizer };

  /** Time counts from now on. */
  explicit Stopwatch(const at::Device& device);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;

  /** Counts the time since the last mark as `phase`. */
  void mark(Phase phase);
  /** Seconds by phase; waits for the device. */
  const std::array<double, 4>& seconds();

 private:
  void* event();

  at::Device device_;
  std::array<double, 4> seconds_{};
  std::chrono::steady_clock::time_point last_;
  /** Events of the marks that were not read yet; the first is where time counts from. */
  std::vector<std::pair<void*, Phase>> marks_;
  std::vector<void*> spare_;
};

/**
 * Keeps the host one step ahead of a GPU, no more: the GPU never runs dry, and the end of an epoch
 * waits for two steps instead of for all that were launched. On the CPU it does nothing.
 */
class LaunchLimit {
 public:
  explicit LaunchLimit(const at::Device& device) : device_(device) {}
  ~LaunchLimit();
  LaunchLimit(const LaunchLimit&) = delete;

  /** To be called once a step was launched: waits until the step before it is done. */
  void afterStep();

 private:
  at::Device device_;
  /** The end of the step before. */
  void* before_ = nullptr;
};

}  // namespace vantage
