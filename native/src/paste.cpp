#include "paste.h"

#include <algorithm>
#include <cmath>

namespace vantage {
namespace {

/** An object stays while more of its pixels than this share are still seen. */
constexpr double kVisibleMin = 0.1;
/** An object stays while what is seen of it has more pixels across and down than these. */
constexpr double kSideMin = 2;
/** A side moves only where the pixels say so by more than the rounding of their centres. */
constexpr double kRounding = 1;

/** An object without a ring is taken for its box. */
Ring outlineOf(const Truth& box, const Ring& ring) {
  if (!ring.empty()) return ring;
  return {{box.x1, box.y1}, {box.x2, box.y1}, {box.x2, box.y2}, {box.x1, box.y2}};
}

bool meet(const Truth& one, const Truth& other) {
  return one.x1 < other.x2 && other.x1 < one.x2 && one.y1 < other.y2 && other.y1 < one.y2;
}

/** The side of a box, or where its pixels end, if that is elsewhere. */
float sideOf(float side, int ofPixels) {
  return std::abs(side - static_cast<float>(ofPixels)) > kRounding ? static_cast<float>(ofPixels)
                                                                   : side;
}

/** A box cut to the pixels that are set, of which there are some. */
Truth cutTo(const Truth& box, const Bitmap& pixels) {
  const auto within = [](float side, int max) {
    return std::clamp(static_cast<int>(side), 0, max);
  };
  const int toX = within(box.x2 + 2, pixels.width()), toY = within(box.y2 + 2, pixels.height());
  int left = pixels.width(), top = pixels.height(), right = 0, bottom = 0;
  for (int y = within(box.y1 - 1, toY); y < toY; ++y)
    for (int x = within(box.x1 - 1, toX); x < toX; ++x) {
      if (!pixels.at(x, y)) continue;
      left = std::min(left, x), right = std::max(right, x + 1);
      top = std::min(top, y), bottom = std::max(bottom, y + 1);
    }
  return {box.cls, sideOf(box.x1, left), sideOf(box.y1, top), sideOf(box.x2, right),
          sideOf(box.y2, bottom)};
}

/** What a stencil leaves of an object; none where that is too little. */
std::optional<Truth> leftOf(const Truth& box, const Ring& ring, const Bitmap& stencil) {
  Bitmap pixels = drawn(outlineOf(box, ring), stencil.width(), stencil.height(), 1);
  const auto all = static_cast<double>(pixels.count());
  if (pixels.shared(stencil) == 0) return box;
  pixels.remove(stencil);
  if (!(static_cast<double>(pixels.count()) > kVisibleMin * all)) return std::nullopt;
  const Truth cut = cutTo(box, pixels);
  if (!(cut.x2 - cut.x1 > kSideMin && cut.y2 - cut.y1 > kSideMin)) return std::nullopt;
  return cut;
}

}  // namespace

void hideBelow(PlannedImage& image, int size) {
  auto& [plan, truths, rings, pasted, stencil] = image;
  const size_t below = truths.size() - pasted;
  stencil.emplace(size, size);
  for (size_t i = below; i < truths.size(); ++i) stencil->add(drawn(rings[i], size, size, 1));
  std::vector<Truth> leftTruths;
  std::vector<Ring> leftRings;
  for (size_t i = 0; i < truths.size(); ++i) {
    const Truth& box = truths[i];
    std::optional<Truth> left = box;
    const bool isBelow = i < below;
    if (isBelow && std::any_of(truths.begin() + static_cast<int64_t>(below), truths.end(),
                               [&](const Truth& over) { return meet(box, over); }))
      left = leftOf(box, rings[i], *stencil);
    if (!left) continue;
    leftTruths.push_back(*left);
    leftRings.push_back(std::move(rings[i]));
  }
  truths = std::move(leftTruths);
  rings = std::move(leftRings);
}

std::vector<Bitmap> masksOf(const PlannedImage& image, int cells, int stride) {
  const size_t below = image.rings.size() - image.pasted;
  std::vector<Bitmap> masks;
  Bitmap over(cells, cells);
  for (size_t i = 0; i < image.rings.size(); ++i) {
    masks.push_back(drawn(image.rings[i], cells, cells, stride));
    if (i >= below) over.add(masks.back());
  }
  if (image.pasted == 0) return masks;
  for (size_t i = 0; i < below; ++i) {
    Bitmap seen = masks[i];
    seen.remove(over);
    // An object that is seen, if only between the cells' centres, is never without a mask.
    if (seen.count() > 0) masks[i] = std::move(seen);
  }
  return masks;
}

}  // namespace vantage
