// The engine's datasets, its metrics over a split, and rendering of its augmented batches.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "batches.h"
#include "core.h"
#include "mask.h"

namespace vantage {
namespace {

/** Validation counts detections from this confidence. */
constexpr double kConfidenceMin = 0.001;
constexpr int kBatchMax = 4096, kSideMax = 8192;

std::unique_ptr<Split>& splitOf(EngineCore& core, const std::string& name) {
  if (name == "train") return core.train;
  if (name == "val") return core.val;
  throw EngineError("bad_argument", "a split is train or val, not " + name);
}

const Split& needed(EngineCore& core, const std::string& name) {
  const auto& split = splitOf(core, name);
  if (!split) throw EngineError("bad_argument", "the " + name + " dataset is not set");
  return *split;
}

/** What a batch of validation comes to; the losses are means over its images. */
struct MeasuredBatch {
  at::Tensor losses;
  std::vector<ImageDetections> detections;
};

/** The one-to-one branch's box, cls and dfl, and of segmentation its mask: [3] or [4], doubles. */
at::Tensor lossesOf(const NetworkMaps& maps, const DeviceBatch& batch,
                    const TrainingSettings& settings) {
  const BranchTask task{maps.o2o, maps.prototypes, kOneAnchor};
  const BranchLoss loss = branchLoss(task, batch.labels, settings);
  std::vector<at::Tensor> items{loss.box, loss.cls, loss.dfl};
  if (loss.mask.defined()) items.push_back(loss.mask);
  return at::stack(items).to(at::kDouble);
}

ValidationLosses meansOf(const at::Tensor& sums, int64_t images) {
  const auto local = (sums / static_cast<double>(images)).to(at::kCPU);
  const double* value = local.data_ptr<double>();
  ValidationLosses losses{value[0], value[1], value[2], {}};
  if (local.numel() > 3) losses.mask = value[3];
  return losses;
}

}  // namespace

void Engine::setDataset(const std::string& split, const std::string& path,
                        std::vector<ImageEntry> images) {
  auto& current = splitOf(*core_, split);
  // The old dataset is freed first: on a GPU there may not be room for both.
  current.reset();
  current =
      std::make_unique<Split>(path, std::move(images), core_->options.graph.classes, core_->device);
}

Evaluation Engine::evaluate(const EvaluationOptions& options,
                            const std::function<void(int64_t, int64_t)>& progress) {
  const auto& [split, batch, imageSize] = options;
  if (batch < 1 || batch > kBatchMax)
    throw EngineError("bad_argument", "a batch is 1 to 4096 images");
  if (imageSize < kStrides[2] || imageSize > kSideMax || imageSize % kStrides[2] != 0)
    throw EngineError("bad_argument", "imageSize must be a multiple of 32 up to 8192");
  const at::NoGradGuard guard;
  const auto start = std::chrono::steady_clock::now();
  const Split& images = needed(*core_, split);
  Network network = core_->network.deployed(core_->evaluated());
  Evaluator evaluator(core_->options.graph.classes);
  MaskEvaluator masks(core_->options.graph.classes);
  BatchSource source = letterboxedBatches(
      images, {batch, imageSize, core_->options.threads, network.graph().hasMasks()});
  int64_t done = 0;
  at::Tensor sums;
  const auto isStopped = [&] { return core_->isInterrupted(); };
  const auto measure = [&](const DeviceBatch& batch) {
    const NetworkMaps maps = network.forward(batch.images, BatchNorm::evaluation);
    return MeasuredBatch{lossesOf(maps, batch, core_->options.settings),
                         detectionsOf(maps, kConfidenceMin)};
  };
  const auto measured = [&](const DeviceBatch& batch) {
    try {
      return measure(batch);
    } catch (const c10::Error&) {
      // Recordings of steps may hold the memory that it lacks.
      if (!core_->recorded || !core_->recorded->holdMemory()) throw;
      core_->dropRecordings();
    }
    return measure(batch);
  };
  try {
    while (!isStopped()) {
      const auto next = source.next(isStopped);
      if (!next) break;
      auto [losses, detections] = measured(*next);
      losses.mul_(static_cast<double>(detections.size()));
      sums = sums.defined() ? sums.add_(losses) : losses;
      for (size_t i = 0; i < detections.size(); i++) {
        detections[i].cutAt(next->covered[i]);
        const std::vector<Truth>& boxes = next->boxes[i];
        const std::vector<Ring>& rings = next->rings[i];
        evaluator.add(detections[i].boxes, boxes);
        const auto isBare = [](const Ring& ring) { return ring.empty(); };
        // An image of which an object has no mask says nothing of masks.
        if (!network.graph().hasMasks() || std::any_of(rings.begin(), rings.end(), isBare))
          continue;
        std::vector<Bitmap> truths;
        for (const Ring& ring : rings) truths.push_back(drawn(ring, imageSize, imageSize, 1));
        masks.add(detections[i].boxes, boxes, truths,
                  [&](int box) { return detections[i].mask(static_cast<size_t>(box)); });
      }
      done += static_cast<int64_t>(detections.size());
      if (progress) progress(done, images.images());
    }
  } catch (const Interruption&) {
    // The batch under way does not count.
  }
  Evaluation evaluation = evaluator.evaluate();
  masks.complete(evaluation);
  if (sums.defined()) evaluation.losses = meansOf(sums, done);
  evaluation.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return evaluation;
}

RenderedBatch Engine::render(const RenderOptions& options) {
  const auto [epoch, batch, byTorch] = options;
  core_->needsTraining();
  const TrainingSettings& settings = core_->options.settings;
  const Split& images = needed(*core_, "train");
  if (epoch < 0 || batch < 0) throw EngineError("bad_argument", "epoch and batch count from 0");
  const auto seed = static_cast<uint64_t>(core_->options.seed);
  const bool hasMasks = core_->options.graph.hasMasks();
  EpochBatches batches{epoch, batch, seed, core_->options.threads, hasMasks};
  if (byTorch) batches.renderer = Renderer::torch;
  BatchSource source = trainingBatches(images, settings, batches);
  const auto made = source.next();
  if (!made)
    throw EngineError("bad_argument",
                      "the epoch has " + std::to_string(source.batches()) + " batches");
  RenderedBatch rendered;
  rendered.images = valuesOf(made->images).values;
  rendered.count = static_cast<int>(made->boxes.size());
  rendered.size = static_cast<int>(made->images.size(2));
  for (size_t i = 0; i < made->boxes.size(); i++)
    for (const Truth& truth : made->boxes[i])
      for (float value : {static_cast<float>(i), truth.cls, truth.x1, truth.y1, truth.x2, truth.y2})
        rendered.boxes.push_back(value);
  rendered.hasMasks = hasMasks;
  if (!hasMasks) return rendered;
  const auto bits = made->labels.masks.to(at::kCPU);
  const uint8_t* byte = bits.data_ptr<uint8_t>();
  for (int64_t k = 0; k < bits.numel() * kMaskBits; k++)
    rendered.masks.push_back(byte[k / kMaskBits] >> (k % kMaskBits) & 1);
  return rendered;
}

}  // namespace vantage
