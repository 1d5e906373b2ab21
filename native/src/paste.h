// What pasted objects hide of those below them: their pixels, and what is left of boxes and masks.
// No torch here.
#pragma once
#include "image.h"

namespace vantage {

/**
 * Makes an image's stencil of the rings of its pasted objects. Boxes of those below become those of
 * what is still seen; where that is too little, the object goes.
 */
void hideBelow(PlannedImage& image, int size);

/**
 * The masks of an image's objects at a cell of so many pixels, without what is hidden: one an
 * object, nothing set where it has no ring.
 */
std::vector<Bitmap> masksOf(const PlannedImage& image, int cells, int stride);

}  // namespace vantage
