// Rendering plans on the CPU: rows of images shared among threads. A row is first sampled, layer by
// layer, then recoloured as a whole, so that the second part runs on vectors.
// Without the pragma the compiler keeps branches where arithmetic could raise a floating-point
// exception, which nobody here looks at, and recolours pixel by pixel.
#pragma GCC optimize("no-trapping-math")
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "image.h"

namespace vantage {
namespace {

/** Rows that a thread takes at a time. */
constexpr int kRows = 32;

/** Colours of a row, a channel after the other. */
struct Row {
  std::vector<float> r, g, b;
  explicit Row(int size) : r(size, kFill), g(size, kFill), b(size, kFill) {}
  void set(int x, const Colour& colour) { r[x] = colour.r, g[x] = colour.g, b[x] = colour.b; }
  void fill(int from, int to) {
    for (auto* channel : {&r, &g, &b})
      std::fill(channel->begin() + from, channel->begin() + to, kFill);
  }
};

bool isWhole(float value) { return value == std::floor(value); }

/** The layer only shifts one image by whole pixels: its bytes are the output. */
bool isShift(const Layer& layer) {
  const float* m = layer.matrix;
  const Patch& patch = layer.patch[0];
  return layer.patches == 1 && m[0] == 1 && m[1] == 0 && m[3] == 0 && m[4] == 1 &&
         patch.scaleX == 1 && patch.scaleY == 1 && isWhole(m[2]) && isWhole(m[5]) &&
         isWhole(patch.shiftX) && isWhole(patch.shiftY);
}

void copyRow(const uint8_t* file, const Layer& layer, int size, int y, Row& row) {
  const Patch& patch = layer.patch[0];
  const int shiftX = static_cast<int>(layer.matrix[2]), shiftY = static_cast<int>(layer.matrix[5]);
  const int from = std::clamp(static_cast<int>(patch.left) - shiftX, 0, size);
  const int to = std::clamp(static_cast<int>(patch.right) - shiftX, from, size);
  const int line = y + shiftY;
  const bool outside = line < static_cast<int>(patch.top) || line >= static_cast<int>(patch.bottom);
  if (outside) return row.fill(0, size);
  row.fill(0, from);
  row.fill(to, size);
  const int64_t sourceY = line + static_cast<int>(patch.shiftY);
  const int64_t sourceX = from + shiftX + static_cast<int>(patch.shiftX);
  const uint8_t* source = file + patch.offset + (sourceY * patch.width + sourceX) * 3;
  for (int x = from; x < to; x++, source += 3) {
    row.r[x] = source[0];
    row.g[x] = source[1];
    row.b[x] = source[2];
  }
}

/** As `layerColour` of every pixel; a patch, once found, is kept while it covers. */
void sampleRow(const uint8_t* file, const Layer& layer, int size, int y, Row& row) {
  if (isShift(layer)) return copyRow(file, layer, size, y, row);
  const float* m = layer.matrix;
  const float centreY = static_cast<float>(y) + 0.5f;
  const float startX = m[1] * centreY + m[2], startY = m[4] * centreY + m[5];
  for (int x = 0; x < size;) {
    const float canvasX = m[0] * (static_cast<float>(x) + 0.5f) + startX;
    const float canvasY = m[3] * (static_cast<float>(x) + 0.5f) + startY;
    const int found = patchAt(layer, canvasX, canvasY);
    if (found < 0) {
      row.fill(x, x + 1);
      x++;
      continue;
    }
    const Patch patch = layer.patch[found];
    row.set(x++, sampled(file, patch, canvasX, canvasY));
    for (; x < size; x++) {
      const float u = m[0] * (static_cast<float>(x) + 0.5f) + startX;
      const float v = m[3] * (static_cast<float>(x) + 0.5f) + startY;
      if (!covers(patch, u, v)) break;
      row.set(x, sampled(file, patch, u, v));
    }
  }
}

void mixRow(Row& row, const Row& second, float share, int size) {
  const auto mix = [&](std::vector<float>& a, const std::vector<float>& b) {
    for (int x = 0; x < size; x++) a[x] = b[x] + share * (a[x] - b[x]);
  };
  mix(row.r, second.r);
  mix(row.g, second.g);
  mix(row.b, second.b);
}

// Inlined, the compiler would no longer see that the channels lie apart.
__attribute__((noinline)) void recolourRow(const Plan& plan, Row& row, int size) {
  float *r = row.r.data(), *g = row.g.data(), *b = row.b.data();
#pragma GCC ivdep
  for (int x = 0; x < size; x++) {
    const Colour colour = recoloured(plan, {r[x], g[x], b[x]});
    r[x] = colour.r, g[x] = colour.g, b[x] = colour.b;
  }
}

/** Scratch of one thread. */
struct Rows {
  Row first, second;
  explicit Rows(int size) : first(size), second(size) {}
};

void renderRow(const uint8_t* file, const Plan& plan, int size, int y, Rows& rows, float* image) {
  sampleRow(file, plan.layer[0], size, y, rows.first);
  if (plan.layers > 1) {
    sampleRow(file, plan.layer[1], size, y, rows.second);
    mixRow(rows.first, rows.second, plan.mix, size);
  }
  if (recolours(plan)) recolourRow(plan, rows.first, size);
  const size_t plane = static_cast<size_t>(size) * static_cast<size_t>(size);
  float* out = image + static_cast<size_t>(y) * static_cast<size_t>(size);
  for (const std::vector<float>* channel : {&rows.first.r, &rows.first.g, &rows.first.b}) {
    for (int x = 0; x < size; x++) out[x] = (*channel)[x] / 255;
    out += plane;
  }
}

}  // namespace

void renderCpu(const uint8_t* file, const Plan* plans, int count, int size, float* out, int threads,
               const std::atomic<bool>* abandoned) {
  const int strips = (size + kRows - 1) / kRows;
  const size_t pixels = size_t{3} * static_cast<size_t>(size) * static_cast<size_t>(size);
  const int jobs = count * strips, workers = std::clamp(threads, 1, std::max(jobs, 1));
  std::atomic<int> next{0};
  const auto work = [&](Rows& rows) {
    for (int job = next++; job < jobs; job = next++) {
      if (abandoned && *abandoned) return;
      const int image = job / strips, from = job % strips * kRows;
      for (int y = from; y < std::min(from + kRows, size); y++)
        renderRow(file, plans[image], size, y, rows, out + image * pixels);
    }
  };
  std::vector<Rows> scratch(static_cast<size_t>(workers), Rows(size));
  std::vector<std::thread> helpers;
  helpers.reserve(scratch.size());
  try {
    for (int i = 1; i < workers; i++) helpers.emplace_back(work, std::ref(scratch[i]));
  } catch (const std::system_error&) {
    // No more threads are to be had: those that are here do it all.
  }
  work(scratch[0]);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace vantage
