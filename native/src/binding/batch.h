// A caller's batch of images.
#pragma once
#include <napi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "../engine.h"

namespace vantage {

/**
 * A copy of a caller's batch: JS may change the arrays, or transfer them to another thread, while
 * the engine reads.
 */
struct BatchCopy {
  std::shared_ptr<std::vector<float>> images;
  /** Null for a batch of images alone. */
  std::shared_ptr<std::vector<float>> boxes;
  /** Null where no box has a mask. */
  std::shared_ptr<std::vector<uint8_t>> masks;
  int count = 0, height = 0, width = 0;
  BatchView view() const;
};

/** The images of a batch; its boxes are not read. */
BatchCopy readImages(const Napi::Value& value);
/** The images of a batch, their boxes and masks. */
BatchCopy readLabeledImages(const Napi::Value& value);

}  // namespace vantage
