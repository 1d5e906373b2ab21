// A caller's batch of images.
#pragma once
#include <napi.h>

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
  int count = 0, height = 0, width = 0;
  BatchView view() const;
};

/** The images of a batch; its boxes are not read. */
BatchCopy readImages(const Napi::Value& value);
/** The images of a batch and their boxes. */
BatchCopy readLabeledImages(const Napi::Value& value);

}  // namespace vantage
