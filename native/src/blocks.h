// A batch's rows in blocks that are computed at once. Images have different numbers of rows
// (objects, or anchors that learn a mask): what is spent follows their sum, not the largest times
// the images.
#pragma once
#include <cstdint>
#include <vector>

namespace vantage {

/** Rows from `row` on of some images; an image that has fewer is padded. */
struct Block {
  int64_t image = 0, images = 1;
  int64_t row = 0, rows = 0;
};

struct BlockLimits {
  /** Rows of a block at most, padding included. */
  int64_t rowsMax = 1;
  /** Up to so many rows padding costs less than another block. */
  int64_t rowsFree = 0;
};

/**
 * Blocks of all rows of all images, of which image i has `counts[i]`. Neighbouring images share a
 * block where no more than half of it is padding; an image of many rows has several blocks.
 */
std::vector<Block> blocksOf(const std::vector<int64_t>& counts, const BlockLimits& limits);

}  // namespace vantage
