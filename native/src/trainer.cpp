// The engine's steps: an epoch of them, one on a caller's batch, a batch's losses, and a probe of
// what a step costs. Nothing waits for the device but a report.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "batches.h"
#include "core.h"
#include "device.h"
#include "engine.h"
#include "guarded-pass.h"
#include "loss.h"
#include "mask.h"
#include "schedule.h"
#include "stopwatch.h"
#include "trainer.h"

namespace vantage {
namespace {

constexpr int kBoxNumbers = 6;
/** Shortest time between two reports of progress. */
constexpr std::chrono::milliseconds kReportEvery{250};
/** Objects of each image of a probe: those of a crowded image. */
constexpr int kProbeObjects = 32;

[[noreturn]] void refuse(const std::string& why) { throw EngineError("bad_argument", why); }

/** The bits of the caller's masks, [N, h, w / 8] on the CPU; `byImage` are its boxes. */
at::Tensor masksOf(const BatchView& batch, const std::vector<std::vector<const float*>>& byImage) {
  const int64_t rows = batch.height / kMaskStride;
  const int64_t bytes = batch.width / (kMaskStride * kMaskBits);
  const auto masks = at::zeros({static_cast<int64_t>(batch.boxCount), rows, bytes}, at::kByte);
  if (!batch.masks) return masks;
  uint8_t* bits = masks.data_ptr<uint8_t>();
  for (const auto& image : byImage)
    for (const float* row : image) {
      const int64_t box = (row - batch.boxes) / kBoxNumbers;
      const uint8_t* cell = batch.masks + box * rows * bytes * kMaskBits;
      for (int64_t k = 0; k < rows * bytes * kMaskBits; ++k)
        if (cell[k]) bits[k / kMaskBits] |= static_cast<uint8_t>(1 << k % kMaskBits);
      bits += rows * bytes;
    }
  return masks;
}

/** The caller's boxes on the network's device, padded with class −1, and their masks. */
Labels labelsOf(const BatchView& batch, const Network& network) {
  const Graph& graph = network.graph();
  if (batch.masks && !graph.hasMasks()) refuse("a graph of detection learns no masks");
  std::vector<std::vector<const float*>> byImage(static_cast<size_t>(batch.count));
  size_t objectsMax = 1;
  for (size_t i = 0; i < batch.boxCount; ++i) {
    const float* box = batch.boxes + i * kBoxNumbers;
    const bool isInBatch = box[0] >= 0 && box[0] < static_cast<float>(batch.count);
    if (!isInBatch) refuse("a box is of no image of the batch");
    if (!(box[1] >= 0 && box[1] < static_cast<float>(graph.classes)))
      refuse("a box is of no class of the graph");
    for (int corner = 2; corner < kBoxNumbers; ++corner)
      if (!std::isfinite(box[corner])) refuse("a box has a corner that is not finite");
    auto& image = byImage[static_cast<size_t>(box[0])];
    image.push_back(box);
    objectsMax = std::max(objectsMax, image.size());
  }
  const auto truths = at::full({batch.count, static_cast<int64_t>(objectsMax), 5}, -1, at::kFloat);
  float* row = truths.data_ptr<float>();
  for (const auto& image : byImage) {
    for (size_t i = 0; i < image.size(); ++i) std::copy_n(image[i] + 1, 5, row + i * 5);
    row += objectsMax * 5;
  }
  Labels labels{truths.to(network.device()), {}, {}};
  for (const auto& image : byImage) labels.counts.push_back(static_cast<int64_t>(image.size()));
  if (graph.hasMasks()) labels.masks = masksOf(batch, byImage).to(network.device());
  return labels;
}

struct LearnOptions {
  /** Share of the one-to-many branch in the loss. */
  double o2mShare = 0.5;
  /** `training`, or `batch` where the network is to stay as it is. */
  BatchNorm norm = BatchNorm::batch;
  /** Factor of the loss and so of all gradients; undefined for none. */
  at::Tensor scale;
  /** Marks forward and backward; may be null. */
  Stopwatch* stopwatch = nullptr;
  /** The network's passes, recorded for this shape of a batch; null to compute them. */
  RecordedPass* recorded = nullptr;
};

/**
 * Forward and backward of a batch; the gradients are with the network's tensors. Returns the total
 * of an image, the one-to-one branch's box, cls and dfl, and of segmentation its mask and the
 * semantic map's: [4] or [6] on the device.
 */
at::Tensor learn(EngineCore& core, const at::Tensor& images, const Labels& labels,
                 const LearnOptions& options) {
  const NetworkMaps maps = options.recorded ? options.recorded->forward(images)
                                            : core.network.forward(images, options.norm);
  core.network.checkStop();
  const TotalLoss loss = totalLoss(maps, labels, options.o2mShare, core.options.settings);
  core.network.checkStop();
  if (options.stopwatch) options.stopwatch->mark(Stopwatch::forward);
  const auto learned = options.scale.defined() ? loss.total * options.scale : loss.total;
  if (labels.group) {
    core.buckets->begin();
    (learned * labels.group->part.weight).backward();
    core.buckets->finish();
  } else {
    learned.backward();
  }
  if (options.recorded) options.recorded->backward();
  if (options.stopwatch) options.stopwatch->mark(Stopwatch::backward);
  const auto total = loss.total.detach() / static_cast<double>(labels.images());
  std::vector<at::Tensor> items{total, loss.o2o.box.detach(), loss.o2o.cls.detach(),
                                loss.o2o.dfl.detach()};
  if (core.network.graph().hasMasks()) {
    items.push_back(loss.o2o.mask.detach());
    // A deployed graph has no semantic map.
    items.push_back(loss.semantic.defined() ? loss.semantic.detach() : at::zeros_like(total));
  }
  // Means over the whole batch: each process's items are its share of them.
  return labels.sum(at::stack(items));
}

/** As `learn`, of a step: what ends halfway leaves nothing. */
at::Tensor learnGuarded(EngineCore& core, const at::Tensor& images, const Labels& labels,
                        const LearnOptions& options) {
  GuardedPass pass(core);
  const auto items = learn(core, images, labels, options);
  pass.keep();
  return items;
}

struct LearnedStep {
  at::Tensor items;
  bool isRecorded = false;
};

/** The same with recorded passes, where there are some for such batches. */
LearnedStep learnStep(EngineCore& core, const at::Tensor& images, const Labels& labels,
                      LearnOptions options) {
  if (!core.recorded || core.group) return {learnGuarded(core, images, labels, options)};
  try {
    options.recorded = core.recorded->passFor(images);
    const auto items = learnGuarded(core, images, labels, options);
    core.recorded->countStep(images);
    return {items, options.recorded != nullptr};
  } catch (const Interruption&) {
    throw;
  } catch (const std::exception&) {
    // They do not fit into memory beside this step, or the device refuses them: without, the step
    // is as it would have been, and if it fails, too, that is told.
    if (!options.recorded && !core.recorded->holdMemory()) throw;
    options.recorded = nullptr;
    core.dropRecordings();
  }
  return {learnGuarded(core, images, labels, options)};
}

LossItems itemsOf(const at::Tensor& items) {
  const auto local = items.to(at::kCPU, at::kDouble);
  const double* value = local.data_ptr<double>();
  LossItems all{value[0], value[1], value[2], value[3]};
  all.hasMasks = local.numel() > 4;
  if (all.hasMasks) all.mask = value[4], all.semantic = value[5];
  return all;
}

int64_t batchesOf(const EngineCore& core) {
  if (!core.train) return 1;
  const int batch = core.options.settings.batch;
  return std::max((core.train->images() + batch - 1) / batch, 1);
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/** An epoch under way: its sums, and when it last reported. */
class Epoch {
 public:
  Epoch(EngineCore& core, int epoch, int from, int batches)
      : core_(core),
        training_(*core.training),
        epoch_(epoch),
        stopwatch_(core.device),
        launchLimit_(core.device),
        start_(std::chrono::steady_clock::now()),
        reported_(start_ - kReportEvery) {
    result_.batch = from;
    result_.batches = batches;
    skippedBefore_ = training_.optimizer.skipped();
    if (from == 0) training_.sums.zero_();
  }

  /** All processes of a group are told the same, whichever was interrupted. */
  bool isDone() const {
    if (result_.batch >= result_.batches) return true;
    const bool isInterrupted = core_.isInterrupted();
    if (!core_.group) return isInterrupted;
    return core_.group->sum(at::full({1}, isInterrupted ? 1 : 0, at::kDouble)).item<double>() > 0;
  }

  void step(const DeviceBatch& batch) {
    const TrainingSettings& settings = core_.options.settings;
    stopwatch_.mark(Stopwatch::data);
    if (core_.group) core_.group->part = {batch.whole, batch.isStandIn ? 0.0 : 1.0};
    const LearnOptions options{o2mShareAt(epoch_, settings.epochs), BatchNorm::training,
                               training_.optimizer.lossScale(), &stopwatch_};
    Labels labels = batch.labels;
    labels.group = core_.group.get();
    const auto [items, isRecorded] = learnStep(core_, batch.images, labels, options);
    result_.recorded += isRecorded;
    training_.optimizer.gather();
    ++training_.gathered;
    const Rates rates = ratesAt(settings, epoch_, result_.batch, result_.batches);
    if (training_.gathered >= accumulatedAt(settings, epoch_, result_.batch, result_.batches)) {
      training_.optimizer.step(rates);
      if (core_.isFirst()) training_.ema.update();
      training_.gathered = 0;
    }
    const int64_t images = batch.whole;
    training_.sums.narrow(0, 0, items.numel()).add_(items, static_cast<double>(images));
    training_.sums.narrow(0, items.numel(), 1).add_(static_cast<double>(images));
    stopwatch_.mark(Stopwatch::optimizer);
    launchLimit_.afterStep();
    result_.images += images;
    result_.lr = rates.lr;
    ++result_.batch;
  }

  void report(const std::function<void(const StepProgress&)>& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (now - reported_ < kReportEvery && result_.batch < result_.batches) return;
    reported_ = now;
    StepProgress done{epoch_, result_.batch, result_.batches, means(), result_.lr, 0, 0};
    done.imagesPerSecond = static_cast<double>(result_.images) / secondsSince(start_);
    done.memoryBytes = memoryBytes(core_.device);
    progress(done);
    // Events that are read now can be used again.
    stopwatch_.seconds();
  }

  EpochResult result() {
    const auto& seconds = stopwatch_.seconds();
    result_.losses = means();
    result_.skipped = training_.optimizer.skipped() - skippedBefore_;
    result_.data = seconds[Stopwatch::data];
    result_.forward = seconds[Stopwatch::forward];
    result_.backward = seconds[Stopwatch::backward];
    result_.optimizer = seconds[Stopwatch::optimizer];
    return result_;
  }

 private:
  LossItems means() const {
    const auto sums = training_.sums;
    const int64_t items = sums.numel() - 1;
    return itemsOf(sums.narrow(0, 0, items) / sums.narrow(0, items, 1).clamp_min(1));
  }

  EngineCore& core_;
  Training& training_;
  int epoch_;
  Stopwatch stopwatch_;
  LaunchLimit launchLimit_;
  std::chrono::steady_clock::time_point start_, reported_;
  int64_t skippedBefore_ = 0;
  EpochResult result_;
};

/**
 * An epoch of several processes ends between two steps, since one that left a step would leave the
 * others waiting in it; and where one fails, it leaves the group, so that none waits for it.
 */
class GroupEpoch {
 public:
  explicit GroupEpoch(EngineCore& core) : core_(core) {
    if (core.isGroupLost)
      throw EngineError("peer_lost", "a process of the training is gone: begin from a checkpoint");
    if (core.group) core.network.setStop({});
  }
  ~GroupEpoch() {
    if (!isDone_ && core_.group) core_.leaveGroup();
    core_.network.setStop(core_.options.interrupted);
  }
  GroupEpoch(const GroupEpoch&) = delete;

  BatchShare share() const {
    return core_.group ? BatchShare{core_.group->rank(), core_.group->size()} : BatchShare{};
  }
  void done() { isDone_ = true; }

 private:
  EngineCore& core_;
  bool isDone_ = false;
};

}  // namespace

Assignment assignTargets(const AssignmentInput& input) {
  const auto view = [&](const float* values, at::IntArrayRef shape) {
    return at::from_blob(const_cast<float*>(values), shape, at::kFloat);
  };
  const auto centres = anchorCentres(input.height, input.width, at::kCPU);
  if (centres.size(1) != input.anchors) refuse("the boxes are of another number of anchors");
  const AnchorPredictions predictions{
      view(input.boxes, {input.images, 4, input.anchors}),
      view(input.logits, {input.images, input.classes, input.anchors}), centres};
  Labels labels{view(input.truths, {input.images, input.objects, 5}), {}, {}};
  for (int image = 0; image < input.images; ++image) {
    int64_t count = input.objects;
    const float* rows = input.truths + image * input.objects * 5;
    while (count > 0 && rows[(count - 1) * 5] < 0) --count;
    labels.counts.push_back(count);
  }
  const auto targets = assign(predictions, labels, input.oneToOne ? kOneAnchor : kManyAnchors);
  return {valuesOf(targets.score).values, valuesOf(targets.object).values};
}

EpochResult Engine::trainEpoch(int epoch, int from,
                               const std::function<void(const StepProgress&)>& progress) {
  EngineCore& core = *core_;
  core.needsTraining();
  if (!core.train) refuse("there is no dataset to train on");
  const auto batches = static_cast<int>(batchesOf(core));
  if (epoch < 0) refuse("epochs count from 0");
  if (from < 0 || from > batches) refuse("the epoch has no such batch");
  GroupEpoch group(core);
  Epoch current(core, epoch, from, batches);
  const auto seed = static_cast<uint64_t>(core.options.seed);
  BatchSource source = trainingBatches(
      *core.train, core.options.settings,
      {epoch, from, seed, core.options.threads, core.options.graph.hasMasks(), group.share()});
  const auto isStopped = [&] { return !core.group && core.isInterrupted(); };
  try {
    while (!current.isDone()) {
      const auto batch = source.next(isStopped);
      if (!batch) break;
      current.step(*batch);
      current.report(progress);
    }
  } catch (const Interruption&) {
    // The step under way was abandoned: the epoch later goes on with the batch of that step.
  }
  group.done();
  return current.result();
}

LossItems Engine::losses(const BatchView& batch, double o2mShare) {
  EngineCore& core = *core_;
  const at::Tensor images = core.images(batch);
  const Labels labels = labelsOf(batch, core.network);
  clearGradients(core.network);
  return itemsOf(learn(core, images, labels, {o2mShare}));
}

LossItems Engine::step(const BatchView& batch, int epoch, int64_t iteration) {
  EngineCore& core = *core_;
  core.needsTraining();
  core.needsNoGroup();
  Training& training = *core.training;
  const at::Tensor images = core.images(batch);
  const Labels labels = labelsOf(batch, core.network);
  const TrainingSettings& settings = core.options.settings;
  const LearnOptions options{o2mShareAt(epoch, settings.epochs), BatchNorm::training,
                             training.optimizer.lossScale()};
  const auto items = learnStep(core, images, labels, options).items;
  training.optimizer.forget();
  training.gathered = 0;
  // The optimizer takes the gradients away; `tensor` shows them as they were before clipping.
  auto shown = training.packed.gradients();
  if (options.scale.defined())
    for (at::Tensor& gradient : shown)
      if (gradient.defined()) gradient = gradient / options.scale;
  training.optimizer.gather();
  training.optimizer.step(ratesAt(settings, epoch, iteration, batchesOf(core)));
  training.ema.update();
  training.packed.setGradients(shown);
  return itemsOf(items);
}

ProbeResult Engine::probe(const ProbeOptions& asked) {
  const auto [batch, imageSize, precision] = asked;
  EngineCore& core = *core_;
  core.needsTraining();
  BatchView shape;
  shape.count = batch;
  shape.height = shape.width = imageSize;
  core.checkShape(shape);
  if (precision == Precision::fp16 && !core.device.is_cuda()) refuse("fp16 is for GPUs");
  struct Guard {
    Network& network;
    Precision precision;
    ~Guard() {
      clearGradients(network);
      network.setPrecision(precision);
    }
  } guard{core.network, core.network.precision()};
  clearGradients(core.network);
  if (precision) core.network.setPrecision(*precision);
  const auto options = at::TensorOptions(core.device).dtype(at::kFloat);
  const double side = imageSize / 2.0;
  const auto corner = at::rand({batch, kProbeObjects, 2}, options).mul_(side);
  const auto size = at::rand({batch, kProbeObjects, 2}, options).mul_(side);
  const auto cls = at::zeros({batch, kProbeObjects, 1}, options);
  Labels labels{at::cat({cls, corner, corner + size}, 2),
                {},
                std::vector<int64_t>(static_cast<size_t>(batch), kProbeObjects)};
  // Masks of the whole image: as much as any mask costs.
  if (core.network.graph().hasMasks())
    labels.masks = at::full(
        {batch * kProbeObjects, imageSize / kMaskStride, imageSize / (kMaskStride * kMaskBits)},
        255, options.dtype(at::kByte));
  const auto once = [&] {
    const auto images = at::rand({batch, 3, imageSize, imageSize}, options);
    synchronize(core.device);
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpuStart = std::clock();
    learn(core, images, labels, LearnOptions{});
    synchronize(core.device);
    ProbeResult spent;
    spent.seconds = secondsSince(start);
    spent.cpuSeconds = static_cast<double>(std::clock() - cpuStart) / CLOCKS_PER_SEC;
    clearGradients(core.network);
    return spent;
  };
  // In its first step a GPU also measures which algorithms to use.
  if (core.device.is_cuda()) once();
  resetPeakMemory(core.device);
  ProbeResult result = once();
  result.bytes = peakMemoryBytes(core.device);
  resetPeakMemory(core.device);
  return result;
}

}  // namespace vantage
