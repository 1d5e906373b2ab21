// Rings, the outlines of objects: filled by the non-zero rule, so that they may overlap themselves
// and have holes that bridges of no width lead to. No torch here.
#pragma once
#include <vector>

#include "settings.h"

namespace vantage {

/** A convex part of the plane: corners in turn, to the right of each side in pixels' coordinates.
 */
class Region {
 public:
  /** Corners of a convex polygon, in either direction. */
  explicit Region(std::vector<Point> corners);
  static Region rectangle(double left, double top, double right, double bottom);
  /** The part that both have; without corners where there is none. */
  Region within(const Region& other) const;
  const std::vector<Point>& corners() const { return corners_; }
  /** How far a point is inside of the side from corner `side` to the next, times its length. */
  double inside(size_t side, const Point& point) const;

 private:
  std::vector<Point> corners_;
};

/** The part of a ring that lies in a region; what was cut leaves bridges of no width. */
Ring clipped(const Ring& ring, const Region& region);

/** The upright box around what a region shows of a ring, of class 0; of no area where nothing. */
Truth boundsOf(const Ring& ring, const Region& region);

}  // namespace vantage
