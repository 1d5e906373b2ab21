// The engine's datasets, its metrics over a split, and its augmented batches for pictures and
// tests.
#include <chrono>
#include <cstring>

#include "batches.h"
#include "parts.h"

namespace vantage {
namespace {

/** Facts 1.8: what validation counts as a detection. */
constexpr double kConfidenceMin = 0.001;
constexpr int kBatchMax = 4096, kSideMax = 8192;

std::unique_ptr<Split>& splitOf(Parts& parts, const std::string& name) {
  if (name == "train") return parts.train;
  if (name == "val") return parts.val;
  throw EngineError("bad_argument", "a split is train or val, not " + name);
}

const Split& needed(Parts& parts, const std::string& name) {
  const auto& split = splitOf(parts, name);
  if (!split) throw EngineError("bad_argument", "the " + name + " dataset is not set");
  return *split;
}

}  // namespace

void Engine::setDataset(const std::string& split, const std::string& path,
                        std::vector<ImageEntry> images) {
  auto& place = splitOf(*parts_, split);
  // The old one goes first: on a GPU there may not be room for both.
  place.reset();
  place = std::make_unique<Split>(path, std::move(images), parts_->options.graph.classes,
                                  parts_->device);
}

Evaluation Engine::evaluate(const std::string& split, int batch, int imageSize,
                            const std::function<void(int64_t, int64_t)>& progress,
                            double* seconds) {
  if (batch < 1 || batch > kBatchMax)
    throw EngineError("bad_argument", "a batch is 1 to 4096 images");
  if (imageSize < kStrides[2] || imageSize > kSideMax || imageSize % kStrides[2] != 0)
    throw EngineError("bad_argument", "imageSize must be a multiple of 32 up to 8192");
  const at::NoGradGuard guard;
  const auto start = std::chrono::steady_clock::now();
  const Split& images = needed(*parts_, split);
  Network network = parts_->network.deployed(parts_->evaluated());
  Evaluator evaluator(parts_->options.graph.classes);
  BatchSource source = letterboxedBatches(images, batch, imageSize, parts_->options.threads);
  int64_t done = 0;
  const auto isStopped = [&] { return parts_->isInterrupted(); };
  try {
    while (!isStopped()) {
      const auto next = source.next(isStopped);
      if (!next) break;
      const auto found = detections(network, next->images, kConfidenceMin);
      for (size_t i = 0; i < found.size(); i++) evaluator.add(found[i], next->boxes[i]);
      done += static_cast<int64_t>(found.size());
      if (progress) progress(done, images.images());
    }
  } catch (const Interrupted&) {
    // The batch under way does not count.
  }
  Evaluation evaluation = evaluator.evaluate();
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return evaluation;
}

RenderedBatch Engine::render(int epoch, int batch) {
  parts_->needsTraining();
  const TrainingSettings& settings = parts_->options.settings;
  const Split& images = needed(*parts_, "train");
  if (epoch < 0 || batch < 0) throw EngineError("bad_argument", "epoch and batch count from 0");
  BatchSource source = trainingBatches(images, epoch, batch, parts_->options.seed, settings,
                                       parts_->options.threads);
  const auto made = source.next();
  if (!made)
    throw EngineError("bad_argument",
                      "the epoch has " + std::to_string(source.batches()) + " batches");
  RenderedBatch rendered;
  rendered.images = valuesOf(made->images).values;
  rendered.count = static_cast<int>(made->boxes.size());
  rendered.size = settings.imageSize;
  for (size_t i = 0; i < made->boxes.size(); i++)
    for (const Truth& truth : made->boxes[i])
      for (float value : {static_cast<float>(i), truth.cls, truth.x1, truth.y1, truth.x2, truth.y2})
        rendered.boxes.push_back(value);
  return rendered;
}

}  // namespace vantage
