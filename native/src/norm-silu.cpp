// The kernel's twin on the CPU, for tests: nothing is shared among threads or laid out for vectors.
#include "norm-silu.h"

#include <algorithm>

namespace vantage {
namespace {

NormChannel channelOf(const NormMap& map, int channel) {
  return {map.mean[channel], map.factor[channel], map.weight[channel], map.bias[channel]};
}

/** Calls with null of the map's type. */
template <typename Body>
void typed(NormElement element, Body body) {
  if (element == NormElement::bf16) body(static_cast<const Bf16*>(nullptr));
  else body(static_cast<const float*>(nullptr));
}

/** Calls with every index of a map's values, and what its channel is normalised by. */
template <typename Body>
void each(const NormMap& map, int64_t from, int64_t to, Body body) {
  for (int64_t cell = from; cell < to; ++cell)
    for (int channel = 0; channel < map.channels; ++channel)
      body(cell * map.channels + channel, channel, channelOf(map, channel));
}

}  // namespace

void normSiluCpu(const NormMap& map, void* result) {
  typed(map.element, [&](auto* type) {
    const auto* x = static_cast<decltype(type)>(map.values);
    auto* y = static_cast<std::remove_const_t<std::remove_pointer_t<decltype(type)>>*>(result);
    each(map, 0, map.cells,
         [&](int64_t i, int, const NormChannel& of) { store(normSilu(wide(x[i]), of), y[i]); });
  });
}

void normSumsCpu(const NormMap& map, const void* slopes, float* sums) {
  const int64_t blocks = normBlocks(map.cells);
  std::fill_n(sums, blocks * 2 * map.channels, 0.0f);
  typed(map.element, [&](auto* type) {
    const auto* x = static_cast<decltype(type)>(map.values);
    const auto* dy = static_cast<decltype(type)>(slopes);
    for (int64_t block = 0; block < blocks; ++block) {
      float* own = sums + block * 2 * map.channels;
      const int64_t from = block * kNormCells;
      each(map, from, std::min(from + kNormCells, map.cells),
           [&](int64_t i, int channel, const NormChannel& of) {
             const float normal = normalOf(wide(x[i]), of);
             const float slope = slopeOfNorm(wide(dy[i]), normal, of);
             own[channel] += slope;
             own[map.channels + channel] += slope * normal;
           });
    }
  });
}

void normSlopesCpu(const NormMap& map, const void* slopes, const float* means, void* result) {
  typed(map.element, [&](auto* type) {
    const auto* x = static_cast<decltype(type)>(map.values);
    const auto* dy = static_cast<decltype(type)>(slopes);
    auto* dx = static_cast<std::remove_const_t<std::remove_pointer_t<decltype(type)>>*>(result);
    each(map, 0, map.cells, [&](int64_t i, int channel, const NormChannel& of) {
      const NormMeans own{means[channel], means[map.channels + channel]};
      store(slopeOfMap(wide(dy[i]), wide(x[i]), of, own), dx[i]);
    });
  });
}

}  // namespace vantage
