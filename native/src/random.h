// Random numbers by counter: a sequence depends on its key alone, so an augmented image is the same
// on any thread, after any resume, and in any order that images are made in.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

namespace vantage {

class RandomSequence {
 public:
  explicit RandomSequence(std::initializer_list<uint64_t> key) {
    for (uint64_t part : key) state_ = scrambled(state_ ^ (part + kStep));
  }

  /** From 0 to 1, the end exclusive. */
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double min, double max) { return min + (max - min) * uniform(); }
  bool chance(double probability) { return uniform() < probability; }
  /** From 0 to `count` − 1. */
  int below(int count) {
    return static_cast<int>((next() >> 32) * static_cast<uint64_t>(count) >> 32);
  }
  /** Beta(32, 32): the distribution of the median of 63 uniform numbers. */
  double beta32() {
    std::array<double, 63> all;
    for (double& one : all) one = uniform();
    std::nth_element(all.begin(), all.begin() + 31, all.end());
    return all[31];
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  /** The finalizer of SplitMix64. */
  static uint64_t scrambled(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  uint64_t next() { return scrambled(state_ += kStep); }

  uint64_t state_ = 0;
};

}  // namespace vantage
