// The images of a split, and the augmented batches that training makes of them.
#include "arguments.h"
#include "boxes.h"
#include "engine-object.h"
#include "values.h"

namespace vantage {
namespace {

constexpr int kStoredSideMax = 65536;

/** A ring a box: the corners from its start to the next one's. */
std::vector<Ring> readRings(const Fields& from, size_t boxes) {
  const Napi::Float32Array corners = from.floats("rings");
  if (corners.ElementLength() % 2 != 0)
    refuseArgument(from.pathOf("rings"), "must be two numbers a corner");
  const Napi::Int32Array starts = from.integers("ringStarts");
  if (starts.ElementLength() != boxes)
    refuseArgument(from.pathOf("ringStarts"), "must be a number a box");
  const auto count = static_cast<int64_t>(corners.ElementLength() / 2);
  std::vector<Ring> rings(boxes);
  for (size_t i = 0; i < boxes; ++i) {
    const int64_t start = starts[i], end = i + 1 < boxes ? starts[i + 1] : count;
    if (start < 0 || start > end || end > count || (i == 0 && start != 0))
      refuseArgument(from.pathOf("ringStarts"), "must rise from 0 to the corners there are");
    for (int64_t corner = start; corner < end; ++corner)
      rings[i].push_back(
          {corners[static_cast<size_t>(2 * corner)], corners[static_cast<size_t>(2 * corner + 1)]});
  }
  return rings;
}

std::vector<ImageEntry> readEntries(const Fields& dataset) {
  std::vector<ImageEntry> images;
  for (const Napi::Value& value : dataset.list("images")) {
    const Fields from(value, dataset.pathOf("images", images.size()));
    ImageEntry image;
    image.offset = static_cast<int64_t>(from.number("offset", 0, kSafeIntegerMax));
    image.width = from.integer("width", 1, kStoredSideMax);
    image.height = from.integer("height", 1, kStoredSideMax);
    image.truths = readTruths(from.value("boxes"), from.pathOf("boxes"));
    if (from.has("rings") || from.has("ringStarts"))
      image.rings = readRings(from, image.truths.size());
    images.push_back(std::move(image));
  }
  return images;
}

Napi::Value toJs(Napi::Env env, const RenderedBatch& batch) {
  Napi::Object object = Napi::Object::New(env);
  object["images"] = floatArray(env, batch.images);
  object["count"] = batch.count;
  object["height"] = batch.size;
  object["width"] = batch.size;
  object["boxes"] = floatArray(env, batch.boxes);
  if (batch.hasMasks) object["masks"] = byteArray(env, batch.masks);
  return object;
}

}  // namespace

Napi::Value EngineObject::setDataset(Info info) {
  return promised(info, [&] {
    const std::string split = readSplit(readText(info[0], "split"));
    const Fields dataset(info[1], "dataset");
    const auto work = [this, split, path = dataset.text("path"),
                       images = readEntries(dataset)](Reporter&) mutable {
      engine().setDataset(split, path, std::move(images));
      return nullptr;
    };
    return call(info.Env(), {}, work,
                [](Napi::Env env, std::nullptr_t) { return env.Undefined(); });
  });
}

Napi::Value EngineObject::render(Info info) {
  return promised(info, [&] {
    const Fields from(info[0], "options");
    RenderOptions options;
    options.epoch = from.integer("epoch", 0, kEpochsMax);
    options.batch = from.integer("batch", 0, kBatchesMax);
    options.byTorch = from.has("byTorch") && from.flag("byTorch");
    const auto work = [this, options](Reporter&) { return engine().render(options); };
    return call(info.Env(), {}, work,
                [](Napi::Env env, const RenderedBatch& rendered) { return toJs(env, rendered); });
  });
}

}  // namespace vantage
