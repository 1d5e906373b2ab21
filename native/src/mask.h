// Masks as bits: rings drawn on a grid of cells, masks that a network predicts, and how much they
// overlap. No torch here.
#pragma once
#include <cstdint>
#include <vector>

#include "settings.h"

namespace vantage {

/** Pixels of the input to a cell of a mask that is learned: those of the prototypes. */
constexpr int kMaskStride = 4;
/** Cells of a byte of a mask that is learned; the first is the lowest bit. */
constexpr int kMaskBits = 8;

/** A bit a cell, row by row; each row begins with a word of its own. */
class Bitmap {
 public:
  Bitmap(int width, int height);
  int width() const { return width_; }
  int height() const { return height_; }
  bool at(int x, int y) const { return row(y)[x / 64] >> (x % 64) & 1; }
  void set(int x, int y) { words_[y * step_ + x / 64] |= uint64_t{1} << (x % 64); }
  /** The words of a row; cells from the lowest bit up. */
  const uint64_t* row(int y) const { return words_.data() + y * step_; }
  int64_t count() const;
  /** Sets the cells of another of the same size too, or clears them. */
  void add(const Bitmap& other);
  void remove(const Bitmap& other);
  /** Cells that both have; they are of one size. */
  int64_t shared(const Bitmap& other) const;

 private:
  int width_, height_;
  size_t step_;
  std::vector<uint64_t> words_;
};

/**
 * The cells whose centres a ring covers; `stride` units of the ring to a cell. A ring that covers
 * no centre has the cell at the middle of its box: what is seen of an object is never no mask at
 * all.
 */
Bitmap drawn(const Ring& ring, int width, int height, int stride);

/** Prototypes of an image, [count, height, width], at a cell of kMaskStride pixels. */
struct Prototypes {
  const float* values = nullptr;
  int count = 0, height = 0, width = 0;
};

/**
 * The mask of a detection in pixels of the input: where the sum of the prototypes, times `weights`,
 * is above 0 between the cells' centres (bilinear, the outermost go on), and the pixel's centre
 * lies in the detection's box.
 */
Bitmap predictedMask(const Prototypes& prototypes, const float* weights,
                     const Detection& detection);

}  // namespace vantage
