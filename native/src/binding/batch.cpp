#include "batch.h"

#include "../mask.h"
#include "arguments.h"

namespace vantage {
namespace {

/** Index of the image, class index, x1, y1, x2, y2. */
constexpr int kBoxNumbers = 6;

std::shared_ptr<std::vector<float>> copyOf(const Napi::Float32Array& array) {
  const float* values = array.Data();
  return std::make_shared<std::vector<float>>(values, values + array.ElementLength());
}

BatchCopy readImages(const Fields& from) {
  BatchCopy batch;
  batch.count = from.integer("count", 1, kImagesMax);
  batch.height = from.integer("height", 1, kSideMax);
  batch.width = from.integer("width", 1, kSideMax);
  const Napi::Float32Array images = from.floats("images");
  if (images.ElementLength() != size_t{3} * batch.count * batch.height * batch.width)
    refuseArgument(from.pathOf("images"), "must be count * 3 * height * width numbers");
  batch.images = copyOf(images);
  return batch;
}

}  // namespace

BatchView BatchCopy::view() const {
  BatchView view{images->data(), count, height, width};
  if (!boxes) return view;
  view.boxes = boxes->data();
  view.boxCount = boxes->size() / kBoxNumbers;
  if (masks) view.masks = masks->data();
  return view;
}

BatchCopy readImages(const Napi::Value& value) { return readImages(Fields(value, "batch")); }

BatchCopy readLabeledImages(const Napi::Value& value) {
  const Fields from(value, "batch");
  BatchCopy batch = readImages(from);
  const Napi::Float32Array numbers = from.floats("boxes");
  if (numbers.ElementLength() % kBoxNumbers != 0)
    refuseArgument(from.pathOf("boxes"), "must be six numbers a box");
  batch.boxes = copyOf(numbers);
  for (size_t row = 0; row < batch.boxes->size(); row += kBoxNumbers) {
    const float image = (*batch.boxes)[row];
    if (!(image >= 0 && image < static_cast<float>(batch.count)))
      refuseArgument(from.pathOf("boxes"), "names an image that is not in the batch");
  }
  if (!from.has("masks")) return batch;
  const Napi::Uint8Array cells = from.bytes("masks");
  const size_t rows = static_cast<size_t>(batch.height / kMaskStride);
  const size_t columns = static_cast<size_t>(batch.width / kMaskStride);
  if (cells.ElementLength() != batch.boxes->size() / kBoxNumbers * rows * columns)
    refuseArgument(from.pathOf("masks"), "must be height / 4 * width / 4 numbers a box");
  batch.masks =
      std::make_shared<std::vector<uint8_t>>(cells.Data(), cells.Data() + cells.ElementLength());
  return batch;
}

}  // namespace vantage
