// Blocks are made from the first image to the last: their order is that of the rows.
#include "blocks.h"

#include <algorithm>

namespace vantage {

std::vector<Block> blocksOf(const std::vector<int64_t>& counts, const BlockLimits& limits) {
  const auto images = static_cast<int64_t>(counts.size());
  const int64_t rowsMax = std::max<int64_t>(limits.rowsMax, 1);
  std::vector<Block> blocks;
  for (int64_t image = 0; image < images;) {
    int64_t rows = counts[image], sum = rows;
    if (rows > rowsMax) {
      for (int64_t row = 0; row < rows; row += rowsMax)
        blocks.push_back({image, 1, row, std::min(rowsMax, rows - row)});
      ++image;
      continue;
    }
    int64_t last = image + 1;
    for (; last < images; ++last) {
      const int64_t wider = std::max(rows, counts[last]);
      const int64_t padded = wider * (last - image + 1);
      const bool isWaste = padded > 2 * (sum + counts[last]) && padded > limits.rowsFree;
      if (padded > rowsMax || isWaste) break;
      rows = wider;
      sum += counts[last];
    }
    if (rows > 0) blocks.push_back({image, last - image, 0, rows});
    image = last;
  }
  return blocks;
}

}  // namespace vantage
