// Random numbers by counter: a sequence depends on its key alone, so that what an image becomes is
// the same on whatever thread, after whatever resume, and in whatever order images are made.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

namespace vantage {

class Draws {
 public:
  explicit Draws(std::initializer_list<uint64_t> key) {
    for (uint64_t part : key) state_ = scrambled(state_ ^ (part + kStep));
  }

  /** From 0 to 1, exclusive. */
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  bool chance(double probability) { return uniform() < probability; }
  /** From 0 to `count` − 1. */
  int below(int count) {
    return static_cast<int>((next() >> 32) * static_cast<uint64_t>(count) >> 32);
  }
  /** Beta(32, 32): the middle one of 63 uniform numbers, the 32nd smallest, is so distributed. */
  double beta32() {
    std::array<double, 63> all;
    for (double& one : all) one = uniform();
    std::nth_element(all.begin(), all.begin() + 31, all.end());
    return all[31];
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  /** SplitMix64's finisher. */
  static uint64_t scrambled(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  uint64_t next() { return scrambled(state_ += kStep); }

  uint64_t state_ = 0;
};

}  // namespace vantage
