#include "ring.h"

#include <algorithm>
#include <cmath>

namespace vantage {
namespace {

/** A part of a region that is narrower than this shows nothing. */
constexpr double kAreaMin = 1e-9;

double signedArea(const std::vector<Point>& corners) {
  double twice = 0;
  for (size_t i = 0; i < corners.size(); ++i) {
    const Point &a = corners[i], &b = corners[(i + 1) % corners.size()];
    twice += a.x * b.y - b.x * a.y;
  }
  return twice / 2;
}

Point between(const Point& a, const Point& b, double share) {
  return {a.x + (b.x - a.x) * share, a.y + (b.y - a.y) * share};
}

/** How often a ring goes around a point. */
int windings(const Ring& ring, const Point& point) {
  int sum = 0;
  for (size_t i = 0; i < ring.size(); ++i) {
    const Point &a = ring[i], &b = ring[(i + 1) % ring.size()];
    const double side = (b.x - a.x) * (point.y - a.y) - (b.y - a.y) * (point.x - a.x);
    if (a.y <= point.y && b.y > point.y && side > 0) ++sum;
    if (b.y <= point.y && a.y > point.y && side < 0) --sum;
  }
  return sum;
}

}  // namespace

Region::Region(std::vector<Point> corners) : corners_(std::move(corners)) {
  const double area = signedArea(corners_);
  if (area < 0) std::reverse(corners_.begin(), corners_.end());
  if (!(std::abs(area) > kAreaMin)) corners_.clear();
}

Region Region::rectangle(double left, double top, double right, double bottom) {
  return Region({{left, top}, {right, top}, {right, bottom}, {left, bottom}});
}

double Region::inside(size_t side, const Point& point) const {
  const Point &a = corners_[side], &b = corners_[(side + 1) % corners_.size()];
  return (b.x - a.x) * (point.y - a.y) - (b.y - a.y) * (point.x - a.x);
}

Region Region::within(const Region& other) const { return Region(clipped(corners_, other)); }

Ring clipped(const Ring& ring, const Region& region) {
  // Sutherland and Hodgman: side after side of the region cuts what the ones before left.
  if (region.corners().empty()) return {};
  Ring left = ring;
  for (size_t side = 0; side < region.corners().size() && !left.empty(); ++side) {
    Ring kept;
    for (size_t i = 0; i < left.size(); ++i) {
      const Point &a = left[i], &b = left[(i + 1) % left.size()];
      const double ofA = region.inside(side, a), ofB = region.inside(side, b);
      if (ofA >= 0) kept.push_back(a);
      if ((ofA >= 0) != (ofB >= 0)) kept.push_back(between(a, b, ofA / (ofA - ofB)));
    }
    left = std::move(kept);
  }
  return left;
}

Truth boundsOf(const Ring& ring, const Region& region) {
  // What a region shows of a ring ends at the ring's own line or at a corner of the region. The
  // box of `clipped` would be too large: its bridges run along sides that show nothing.
  double left = INFINITY, top = INFINITY, right = -INFINITY, bottom = -INFINITY;
  const auto add = [&](const Point& point) {
    left = std::min(left, point.x), right = std::max(right, point.x);
    top = std::min(top, point.y), bottom = std::max(bottom, point.y);
  };
  const std::vector<Point>& corners = region.corners();
  if (corners.empty()) return {};
  for (size_t i = 0; i < ring.size(); ++i) {
    const Point &a = ring[i], &b = ring[(i + 1) % ring.size()];
    double from = 0, to = 1;
    for (size_t side = 0; side < corners.size() && from <= to; ++side) {
      const double ofA = region.inside(side, a), ofB = region.inside(side, b);
      if (ofA < 0 && ofB < 0) to = -1;
      else if (ofA < 0) from = std::max(from, ofA / (ofA - ofB));
      else if (ofB < 0) to = std::min(to, ofA / (ofA - ofB));
    }
    if (from <= to) add(between(a, b, from)), add(between(a, b, to));
  }
  for (const Point& corner : corners)
    if (windings(ring, corner) != 0) add(corner);
  if (!(left <= right)) return {};
  return {0, static_cast<float>(left), static_cast<float>(top), static_cast<float>(right),
          static_cast<float>(bottom)};
}

}  // namespace vantage
