#include "mask.h"

#include <algorithm>
#include <cmath>

namespace vantage {
namespace {

struct Crossing {
  double x;
  int turn;
};

/** Index of the first cell whose centre is not before `position`, within 0 to `count`. */
int firstCell(double position, int stride, int count) {
  return static_cast<int>(std::clamp(std::ceil(position / stride - 0.5), 0.0, double(count)));
}

int bitsOf(uint64_t word) { return __builtin_popcountll(word); }

}  // namespace

Bitmap::Bitmap(int width, int height)
    : width_(width),
      height_(height),
      step_(static_cast<size_t>(width + 63) / 64),
      words_(step_ * static_cast<size_t>(height)) {}

int64_t Bitmap::count() const {
  int64_t sum = 0;
  for (uint64_t word : words_) sum += bitsOf(word);
  return sum;
}

void Bitmap::add(const Bitmap& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

void Bitmap::remove(const Bitmap& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
}

int64_t Bitmap::shared(const Bitmap& other) const {
  int64_t sum = 0;
  for (size_t i = 0; i < words_.size(); ++i) sum += bitsOf(words_[i] & other.words_[i]);
  return sum;
}

Bitmap drawn(const Ring& ring, int width, int height, int stride) {
  Bitmap bitmap(width, height);
  if (ring.empty()) return bitmap;
  std::vector<std::vector<Crossing>> rows(static_cast<size_t>(height));
  double left = INFINITY, top = INFINITY, right = -INFINITY, bottom = -INFINITY;
  for (size_t i = 0; i < ring.size(); ++i) {
    const Point &a = ring[i], &b = ring[(i + 1) % ring.size()];
    left = std::min(left, a.x), right = std::max(right, a.x);
    top = std::min(top, a.y), bottom = std::max(bottom, a.y);
    const Point &high = a.y < b.y ? a : b, &low = a.y < b.y ? b : a;
    const int to = firstCell(low.y, stride, height);
    for (int row = firstCell(high.y, stride, height); row < to; ++row) {
      const double y = (row + 0.5) * stride;
      const double x = high.x + (low.x - high.x) * (y - high.y) / (low.y - high.y);
      rows[row].push_back({x, a.y < b.y ? 1 : -1});
    }
  }
  bool isEmpty = true;
  for (int y = 0; y < height; ++y) {
    auto& crossings = rows[y];
    std::sort(crossings.begin(), crossings.end(),
              [](const Crossing& one, const Crossing& other) { return one.x < other.x; });
    int windings = 0;
    for (size_t i = 0; i + 1 < crossings.size(); ++i) {
      windings += crossings[i].turn;
      if (windings == 0) continue;
      const int to = firstCell(crossings[i + 1].x, stride, width);
      for (int x = firstCell(crossings[i].x, stride, width); x < to; ++x)
        bitmap.set(x, y), isEmpty = false;
    }
  }
  const auto cellOf = [&](double middle, int count) {
    return static_cast<int>(std::clamp(std::floor(middle / stride), 0.0, count - 1.0));
  };
  if (isEmpty) bitmap.set(cellOf((left + right) / 2, width), cellOf((top + bottom) / 2, height));
  return bitmap;
}

Bitmap predictedMask(const Prototypes& prototypes, const float* weights,
                     const Detection& detection) {
  const int width = prototypes.width * kMaskStride, height = prototypes.height * kMaskStride;
  Bitmap mask(width, height);
  const int fromX = firstCell(detection.x1, 1, width), toX = firstCell(detection.x2, 1, width);
  const int fromY = firstCell(detection.y1, 1, height), toY = firstCell(detection.y2, 1, height);
  if (fromX >= toX || fromY >= toY) return mask;
  // The cells around the box: those that its pixels lie between.
  struct Share {
    int first, second;
    float ofSecond;
  };
  const auto shareOf = [](int pixel, int cells) {
    const float position = (static_cast<float>(pixel) + 0.5f) / kMaskStride - 0.5f;
    const float inside = std::clamp(position, 0.0f, static_cast<float>(cells - 1));
    const int first = static_cast<int>(inside);
    return Share{first, std::min(first + 1, cells - 1), inside - static_cast<float>(first)};
  };
  const int left = shareOf(fromX, prototypes.width).first;
  const int right = shareOf(toX - 1, prototypes.width).second + 1;
  const int top = shareOf(fromY, prototypes.height).first;
  const int bottom = shareOf(toY - 1, prototypes.height).second + 1;
  const int columns = right - left;
  std::vector<float> logits(static_cast<size_t>(columns) * static_cast<size_t>(bottom - top));
  for (int index = 0; index < prototypes.count; ++index)
    for (int y = top; y < bottom; ++y) {
      const size_t line = static_cast<size_t>(index * prototypes.height + y);
      const float* from = prototypes.values + line * static_cast<size_t>(prototypes.width) + left;
      float* to = logits.data() + static_cast<size_t>(y - top) * static_cast<size_t>(columns);
      for (int x = 0; x < columns; ++x) to[x] += weights[index] * from[x];
    }
  std::vector<float> row(static_cast<size_t>(columns));
  for (int y = fromY; y < toY; ++y) {
    const Share down = shareOf(y, prototypes.height);
    const float* above = logits.data() + static_cast<size_t>(down.first - top) * row.size();
    const float* below = logits.data() + static_cast<size_t>(down.second - top) * row.size();
    for (int x = 0; x < columns; ++x) row[x] = above[x] + down.ofSecond * (below[x] - above[x]);
    for (int x = fromX; x < toX; ++x) {
      const Share across = shareOf(x, prototypes.width);
      const float first = row[across.first - left], second = row[across.second - left];
      if (first + across.ofSecond * (second - first) > 0) mask.set(x, y);
    }
  }
  return mask;
}

}  // namespace vantage
