// Where the time of many steps went. On a GPU the device's own events tell, read once it is waited
// for anyway, so that measuring holds nothing up.
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

  /** What was done since the last mark was `phase`. */
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
 * Keeps whoever gives steps to a GPU one step ahead of it, no more: it never runs dry, and who ends
 * an epoch waits for two steps instead of for as many as were given. On the CPU it does nothing.
 */
class Leash {
 public:
  explicit Leash(const at::Device& device) : device_(device) {}
  ~Leash();
  Leash(const Leash&) = delete;

  /** A step was given: waits until the one before it is done. */
  void stepped();

 private:
  at::Device device_;
  /** The end of the step before. */
  void* before_ = nullptr;
};

}  // namespace vantage
