// The engine's steps: an epoch of them, one on a caller's batch, a batch's losses, and a probe of
// what a step costs. Nothing waits for the device but a report.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "batches.h"
#include "device.h"
#include "engine.h"
#include "loss.h"
#include "parts.h"
#include "schedule.h"
#include "stopwatch.h"
#include "trainer.h"

namespace vantage {
namespace {

constexpr int kBoxNumbers = 6;
/** Between two reports of progress. */
constexpr std::chrono::milliseconds kReportEvery{250};
/** Objects an image in a probe: a crowded one. */
constexpr int kProbeObjects = 32;

[[noreturn]] void refuse(const std::string& why) { throw EngineError("bad_argument", why); }

/** The caller's boxes as [B, M, 5] on the device, padded with class −1. */
at::Tensor truthsOf(const BatchView& batch, int classes, const at::Device& device) {
  std::vector<std::vector<const float*>> byImage(static_cast<size_t>(batch.count));
  size_t most = 1;
  for (size_t at = 0; at < batch.boxCount; ++at) {
    const float* box = batch.boxes + at * kBoxNumbers;
    const bool isPlaced = box[0] >= 0 && box[0] < static_cast<float>(batch.count);
    if (!isPlaced) refuse("a box is of no image of the batch");
    if (!(box[1] >= 0 && box[1] < static_cast<float>(classes)))
      refuse("a box is of no class of the graph");
    for (int corner = 2; corner < kBoxNumbers; ++corner)
      if (!std::isfinite(box[corner])) refuse("a box has a corner that is not finite");
    auto& image = byImage[static_cast<size_t>(box[0])];
    image.push_back(box + 1);
    most = std::max(most, image.size());
  }
  const auto truths = at::full({batch.count, static_cast<int64_t>(most), 5}, -1, at::kFloat);
  float* row = truths.data_ptr<float>();
  for (const auto& image : byImage) {
    for (size_t at = 0; at < image.size(); ++at) std::copy_n(image[at], 5, row + at * 5);
    row += most * 5;
  }
  return truths.to(device);
}

void clearGradients(const Network& network) {
  for (const NamedTensor& named : network.state())
    if (named.learned) named.tensor.mutable_grad().reset();
}

/**
 * Forward and backward of a batch; the gradients are with the network's tensors. Returns the total
 * of an image, and the one-to-one branch's box, cls and dfl: [4] on the device.
 */
at::Tensor learn(Parts& parts, const at::Tensor& images, const at::Tensor& truths, double o2mShare,
                 bool moveStatistics, Stopwatch* watch = nullptr) {
  const NetworkMaps maps = parts.network.forward(images, Pass{true, moveStatistics, true});
  parts.network.checkStop();
  const TotalLoss loss = totalLoss(maps, truths, o2mShare, parts.options.settings);
  parts.network.checkStop();
  if (watch) watch->mark(Stopwatch::forward);
  loss.total.backward();
  if (watch) watch->mark(Stopwatch::backward);
  const auto total = loss.total.detach() / static_cast<double>(images.size(0));
  return at::stack({total, loss.o2o.box.detach(), loss.o2o.cls.detach(), loss.o2o.dfl.detach()});
}

/**
 * What a pass leaves with the network: statistics of batch norm and gradients. A pass that ends
 * halfway, interrupted or out of memory, leaves neither; one that is not finite no statistics.
 */
class GuardedPass {
 public:
  explicit GuardedPass(Parts& parts)
      : parts_(parts),
        before_(parts.training->packed.statistics().clone()),
        counted_(parts.training->packed.counters().clone()) {
    clearGradients(parts.network);
  }
  ~GuardedPass() {
    if (done_) return;
    try {
      const at::NoGradGuard none;
      clearGradients(parts_.network);
      packed().counters().copy_(counted_);
      packed().statistics().copy_(before_);
    } catch (...) {
      // A device that does not even copy any more: no step follows.
    }
  }
  GuardedPass(const GuardedPass&) = delete;

  /** The pass went through. */
  void keep() {
    const at::NoGradGuard none;
    at::Tensor now = packed().statistics();
    now.copy_(at::where(now.isfinite(), now, before_));
    done_ = true;
  }

 private:
  const Packed& packed() const { return parts_.training->packed; }

  Parts& parts_;
  at::Tensor before_, counted_;
  bool done_ = false;
};

LossItems itemsOf(const at::Tensor& items) {
  const auto local = items.to(at::kCPU, at::kDouble);
  const double* value = local.data_ptr<double>();
  return {value[0], value[1], value[2], value[3]};
}

int64_t batchesOf(const Parts& parts) {
  if (!parts.train) return 1;
  const int batch = parts.options.settings.batch;
  return std::max((parts.train->images() + batch - 1) / batch, 1);
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/** An epoch under way: what it did, and what of it was reported. */
class EpochRun {
 public:
  EpochRun(Parts& parts, int epoch, int from, int batches)
      : parts_(parts),
        training_(*parts.training),
        epoch_(epoch),
        watch_(parts.device),
        leash_(parts.device),
        start_(std::chrono::steady_clock::now()),
        reported_(start_ - kReportEvery) {
    result_.batch = from;
    result_.batches = batches;
    skippedBefore_ = training_.optimizer.skipped();
    if (from == 0) training_.sums.zero_();
  }

  bool isDone() const { return result_.batch >= result_.batches || parts_.isInterrupted(); }

  void step(const DeviceBatch& batch) {
    const TrainingSettings& settings = parts_.options.settings;
    watch_.mark(Stopwatch::data);
    GuardedPass pass(parts_);
    const double share = o2mShareAt(epoch_, settings.epochs);
    const auto items = learn(parts_, batch.images, batch.truths, share, true, &watch_);
    pass.keep();
    training_.optimizer.gather();
    ++training_.gathered;
    const Rates rates = ratesAt(settings, epoch_, result_.batch, result_.batches);
    if (training_.gathered >= accumulatedAt(settings, epoch_, result_.batch, result_.batches)) {
      training_.optimizer.step(rates);
      training_.ema.update();
      training_.gathered = 0;
    }
    const int64_t images = batch.images.size(0);
    training_.sums.narrow(0, 0, 4).add_(items, static_cast<double>(images));
    training_.sums.narrow(0, 4, 1).add_(static_cast<double>(images));
    watch_.mark(Stopwatch::optimizer);
    leash_.stepped();
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
    done.memoryBytes = memoryBytes(parts_.device);
    progress(done);
    // Reading the events now lets them be used again.
    watch_.seconds();
  }

  EpochResult result() {
    const auto& seconds = watch_.seconds();
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
    return itemsOf(sums.narrow(0, 0, 4) / sums.narrow(0, 4, 1).clamp_min(1));
  }

  Parts& parts_;
  Training& training_;
  int epoch_;
  Stopwatch watch_;
  Leash leash_;
  std::chrono::steady_clock::time_point start_, reported_;
  int64_t skippedBefore_ = 0;
  EpochResult result_;
};

}  // namespace

Assignment assignTargets(const AssignmentInput& input) {
  const auto view = [&](const float* values, at::IntArrayRef shape) {
    return at::from_blob(const_cast<float*>(values), shape, at::kFloat);
  };
  const auto centres = anchorCentres(input.height, input.width, at::kCPU);
  if (centres.size(1) != input.anchors) refuse("the boxes are of another number of anchors");
  const auto targets = assign(view(input.boxes, {input.images, 4, input.anchors}),
                              view(input.logits, {input.images, input.classes, input.anchors}),
                              centres, view(input.truths, {input.images, input.objects, 5}),
                              input.oneToOne ? kOneAnchor : kManyAnchors);
  return {valuesOf(targets.score).values, valuesOf(targets.object).values};
}

EpochResult Engine::trainEpoch(int epoch, int from,
                               const std::function<void(const StepProgress&)>& progress) {
  Parts& parts = *parts_;
  parts.needsTraining();
  if (!parts.train) refuse("there is no dataset to train on");
  const auto batches = static_cast<int>(batchesOf(parts));
  if (epoch < 0) refuse("epochs count from 0");
  if (from < 0 || from > batches) refuse("the epoch has no such batch");
  EpochRun run(parts, epoch, from, batches);
  const auto seed = static_cast<uint64_t>(parts.options.seed);
  BatchSource source = trainingBatches(*parts.train, epoch, from, seed, parts.options.settings,
                                       parts.options.threads);
  const auto isStopped = [&] { return parts.isInterrupted(); };
  try {
    while (!run.isDone()) {
      const auto batch = source.next(isStopped);
      if (!batch) break;
      run.step(*batch);
      run.report(progress);
    }
  } catch (const Interrupted&) {
    // The step under way was not made: the epoch goes on with its batch.
  }
  return run.result();
}

LossItems Engine::losses(const BatchView& batch, double o2mShare) {
  Parts& parts = *parts_;
  const at::Tensor images = parts.images(batch);
  const at::Tensor truths = truthsOf(batch, parts.network.graph().classes, parts.device);
  clearGradients(parts.network);
  return itemsOf(learn(parts, images, truths, o2mShare, false));
}

LossItems Engine::step(const BatchView& batch, int epoch, int64_t iteration) {
  Parts& parts = *parts_;
  parts.needsTraining();
  Training& training = *parts.training;
  const at::Tensor images = parts.images(batch);
  const at::Tensor truths = truthsOf(batch, parts.network.graph().classes, parts.device);
  const TrainingSettings& settings = parts.options.settings;
  GuardedPass pass(parts);
  const auto items = learn(parts, images, truths, o2mShareAt(epoch, settings.epochs), true);
  pass.keep();
  training.optimizer.forget();
  training.gathered = 0;
  // The step takes them away; they are shown as they were before clipping.
  const auto shown = training.packed.gradients();
  training.optimizer.gather();
  training.optimizer.step(ratesAt(settings, epoch, iteration, batchesOf(parts)));
  training.ema.update();
  training.packed.setGradients(shown);
  return itemsOf(items);
}

ProbeResult Engine::probe(int batch, int imageSize) {
  Parts& parts = *parts_;
  parts.needsTraining();
  const BatchView shape{nullptr, batch, imageSize, imageSize, nullptr, 0};
  parts.checkShape(shape);
  struct Cleared {
    const Network& network;
    ~Cleared() { clearGradients(network); }
  } cleared{parts.network};
  clearGradients(parts.network);
  const auto options = at::TensorOptions(parts.device).dtype(at::kFloat);
  const double side = imageSize / 2.0;
  const auto corner = at::rand({batch, kProbeObjects, 2}, options).mul_(side);
  const auto size = at::rand({batch, kProbeObjects, 2}, options).mul_(side);
  const auto cls = at::zeros({batch, kProbeObjects, 1}, options);
  const auto truths = at::cat({cls, corner, corner + size}, 2);
  const auto once = [&] {
    const auto images = at::rand({batch, 3, imageSize, imageSize}, options);
    synchronize(parts.device);
    const auto start = std::chrono::steady_clock::now();
    learn(parts, images, truths, 0.5, false);
    synchronize(parts.device);
    const double seconds = secondsSince(start);
    clearGradients(parts.network);
    return seconds;
  };
  // The first time a GPU chooses its algorithms.
  if (parts.device.is_cuda()) once();
  resetPeakMemory(parts.device);
  ProbeResult result;
  result.seconds = once();
  result.bytes = peakMemoryBytes(parts.device);
  resetPeakMemory(parts.device);
  return result;
}

}  // namespace vantage
