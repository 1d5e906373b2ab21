// Rendering plans on the CPU: rows of images shared among threads. A row is first sampled, layer by
// layer, then recoloured as a whole, so that recolouring is vectorized.
// Without the pragma the compiler keeps branches where arithmetic could raise a floating-point
// exception, which nothing here reads, and recolours pixel by pixel.
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

/** Rows of an image that a thread takes at a time. */
constexpr int kRows = 32;

/** Colours of an output row, a channel after the other. */
struct Row {
  std::vector<float> r, g, b;
  explicit Row(int size) : r(size, kFill), g(size, kFill), b(size, kFill) {}
  int size() const { return static_cast<int>(r.size()); }
  void set(int x, const Colour& colour) { r[x] = colour.r, g[x] = colour.g, b[x] = colour.b; }
  void fill(int from, int to) {
    for (auto* channel : {&r, &g, &b})
      std::fill(channel->begin() + from, channel->begin() + to, kFill);
  }
};

bool isWhole(float value) { return value == std::floor(value); }

/** Whether a layer only shifts one image by whole pixels: the image's bytes are then the output. */
bool isShift(const Layer& layer) {
  const float* m = layer.matrix;
  const Patch& patch = layer.patch[0];
  return layer.patches == 1 && m[0] == 1 && m[1] == 0 && m[3] == 0 && m[4] == 1 &&
         patch.scaleX == 1 && patch.scaleY == 1 && isWhole(m[2]) && isWhole(m[5]) &&
         isWhole(patch.shiftX) && isWhole(patch.shiftY);
}

void copyRow(const uint8_t* file, const Layer& layer, int y, Row& row) {
  const int size = row.size();
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

/** As `layerColour` of every pixel; the patch of a pixel is tried first for the next. */
void sampleRow(const uint8_t* file, const Layer& layer, int y, Row& row) {
  if (isShift(layer)) return copyRow(file, layer, y, row);
  const int size = row.size();
  const float* m = layer.matrix;
  const float centreY = static_cast<float>(y) + 0.5f;
  const float startX = m[1] * centreY + m[2], startY = m[4] * centreY + m[5];
  for (int x = 0; x < size;) {
    const float canvasX = m[0] * (static_cast<float>(x) + 0.5f) + startX;
    const float canvasY = m[3] * (static_cast<float>(x) + 0.5f) + startY;
    const int index = patchAt(layer, canvasX, canvasY);
    if (index < 0) {
      row.fill(x, x + 1);
      x++;
      continue;
    }
    const Patch patch = layer.patch[index];
    row.set(x++, sampled(file, patch, canvasX, canvasY));
    for (; x < size; x++) {
      const float u = m[0] * (static_cast<float>(x) + 0.5f) + startX;
      const float v = m[3] * (static_cast<float>(x) + 0.5f) + startY;
      if (!covers(patch, u, v)) break;
      row.set(x, sampled(file, patch, u, v));
    }
  }
}

void mixRow(Row& row, const Row& second, float share) {
  const int size = row.size();
  const auto mix = [&](std::vector<float>& a, const std::vector<float>& b) {
    for (int x = 0; x < size; x++) a[x] = b[x] + share * (a[x] - b[x]);
  };
  mix(row.r, second.r);
  mix(row.g, second.g);
  mix(row.b, second.b);
}

// Not inlined: there the compiler would no longer see that the three channels do not overlap.
__attribute__((noinline)) void recolourRow(const Plan& plan, Row& row) {
  const int size = row.size();
  float *r = row.r.data(), *g = row.g.data(), *b = row.b.data();
#pragma GCC ivdep
  for (int x = 0; x < size; x++) {
    const Colour colour = recoloured(plan, {r[x], g[x], b[x]});
    r[x] = colour.r, g[x] = colour.g, b[x] = colour.b;
  }
}

/** As `planColour` of the pixels that a pasted object covers. */
void pasteRow(const PixelSource& source, const Layer& layer, int y, Row& row) {
  const float centreY = static_cast<float>(y) + 0.5f;
  for (int x = 0; x < row.size(); x++)
    if (isPasted(source, x, y))
      row.set(x, layerColour(source.file, layer, static_cast<float>(x) + 0.5f, centreY));
}

/** Scratch memory of one thread. */
struct Rows {
  Row first, second;
  explicit Rows(int size) : first(size), second(size) {}
};

/** Row `y` of the image of that index. */
void renderRow(const Rendering& rendering, int image, int y, Rows& rows) {
  const Plan& plan = rendering.plans[image];
  const int size = rendering.size;
  sampleRow(rendering.file, plan.layer[0], y, rows.first);
  if (plan.layers > 1) {
    sampleRow(rendering.file, plan.layer[1], y, rows.second);
    mixRow(rows.first, rows.second, plan.mix);
  }
  if (plan.pastes) {
    const uint8_t* stencil = rendering.stencils + image * stencilBytes(size);
    pasteRow({rendering.file, stencil, size}, plan.paste, y, rows.first);
  }
  if (recolours(plan)) recolourRow(plan, rows.first);
  const size_t plane = static_cast<size_t>(size) * static_cast<size_t>(size);
  float* out = rendering.images + 3 * plane * static_cast<size_t>(image) +
               static_cast<size_t>(y) * static_cast<size_t>(size);
  for (const std::vector<float>* channel : {&rows.first.r, &rows.first.g, &rows.first.b}) {
    for (int x = 0; x < size; x++) out[x] = (*channel)[x] / 255;
    out += plane;
  }
}

}  // namespace

void renderCpu(const Rendering& rendering, int threads, const std::atomic<bool>* abandoned) {
  const int strips = (rendering.size + kRows - 1) / kRows;
  const int jobs = rendering.count * strips, workers = std::clamp(threads, 1, std::max(jobs, 1));
  std::atomic<int> next{0};
  const auto work = [&](Rows& rows) {
    for (int job = next++; job < jobs; job = next++) {
      if (abandoned && *abandoned) return;
      const int image = job / strips, from = job % strips * kRows;
      for (int y = from; y < std::min(from + kRows, rendering.size); y++)
        renderRow(rendering, image, y, rows);
    }
  };
  std::vector<Rows> scratch(static_cast<size_t>(workers), Rows(rendering.size));
  std::vector<std::thread> helpers;
  helpers.reserve(scratch.size());
  try {
    for (int i = 1; i < workers; i++) helpers.emplace_back(work, std::ref(scratch[i]));
  } catch (const std::system_error&) {
    // The system gives no more threads: those that run do all of it.
  }
  work(scratch[0]);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace vantage
