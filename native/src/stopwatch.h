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

}  // namespace vantage
