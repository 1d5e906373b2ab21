// The engine behind native/index.d.ts, which the binding calls on the engine's own thread. No torch
// here, so that the binding compiles fast and the engine can be a library of its own.
#pragma once
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "graph.h"
#include "image.h"
#include "metrics.h"
#include "settings.h"

namespace vantage {

struct Gpu {
  std::string name;
  uint64_t memoryBytes = 0;
  /** Its convolutions run in bf16. */
  bool bf16 = false;
  /** Where it is on the machine's bus, as its driver names it; empty where CUDA does not say. */
  std::string pciBusId;
};
struct Description {
  std::string torch, torchSource;
  bool cudaKernels = false, bf16 = false, cpuBf16 = false;
  std::vector<Gpu> gpus;
};
Description describe();

/** Engines and bytes of GPU memory that are alive in this process. */
struct LiveCounts {
  int64_t engines = 0, gpuBytes = 0;
};
LiveCounts alive();

/** An exception of the engine as an error with a code of native/index.d.ts. */
EngineError errorOf(const std::exception_ptr& thrown);

struct EngineOptions {
  Graph graph;
  std::string device = "cpu";
  int64_t seed = 0;
  int threads = 1;
  Precision precision = Precision::fp32;
  /** Batch norm and SiLU are one operation of ours, where there is one. */
  bool fusedNorm = true;
  /** A pixel's values, and those of weights, lie side by side; nothing: but where torch's own batch
   * norm would lose digits by it. */
  std::optional<bool> channelsLast;
  /** Steps are recorded; nothing: on a GPU. */
  std::optional<bool> recorded;
  bool training = false;
  TrainingSettings settings;
  /** Set to true on any thread, it ends the call under way in the middle of a step. */
  std::shared_ptr<std::atomic<bool>> interrupted;
};

/** One of several processes that train as one. */
struct GroupOptions {
  /** A file that all of them open and none had before: how they find each other. */
  std::string store;
  int rank = 0, size = 1;
  /** Batch norm uses the statistics of the whole batch. */
  bool synchronizesNorms = false;
  /** A process that does not answer for so long is lost. */
  double timeoutSeconds = 120;
};

struct TensorValues {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
struct HeadValues {
  std::vector<TensorValues> box, cls, mask;
};
struct MapValues {
  bool hasO2m = false, hasPrototypes = false, hasSemantic = false;
  HeadValues o2m, o2o;
  TensorValues prototypes, semantic;
};

/** A view of the caller's batch; a box is six numbers: index of its image, class, corners. */
struct BatchView {
  const float* images = nullptr;
  int count = 0, height = 0, width = 0;
  const float* boxes = nullptr;
  size_t boxCount = 0;
  /** A mask a box, [height / 4, width / 4] bytes, 0 outside; null where no box has one. */
  const uint8_t* masks = nullptr;
};
/** Images as in a BatchView, and the features that another network has of them. */
struct FeatureView {
  BatchView images;
  /** By level, finest first: [count, classes, height / stride, width / stride]. */
  std::array<const float*, 3> targets{};
};
struct RenderedBatch {
  std::vector<float> images, boxes;
  /** As of a BatchView, for a graph with masks. */
  std::vector<uint8_t> masks;
  bool hasMasks = false;
  int count = 0, size = 0;
};

/** Detections of an image; a mask each, [height, width] bytes of the input's pixels, 0 outside. */
struct MaskedImage {
  std::vector<Detection> boxes;
  std::vector<uint8_t> masks;
};

struct LoadReport {
  struct Mismatch {
    std::string name;
    std::vector<int64_t> file, graph;
  };
  std::vector<std::string> matched, missing, unused;
  std::vector<Mismatch> mismatched;
  std::map<std::string, std::string> metadata;
};

struct StepProgress {
  int epoch = 0, batch = 0, batches = 0;
  LossItems losses;
  double lr = 0, imagesPerSecond = 0;
  uint64_t memoryBytes = 0;
};
struct EpochResult {
  LossItems losses;
  double lr = 0;
  int batch = 0, batches = 0;
  int64_t images = 0, skipped = 0;
  /** Steps whose passes were recorded before. */
  int recorded = 0;
  double data = 0, forward = 0, backward = 0, optimizer = 0;
};
struct EvaluationOptions {
  /** `train` or `val`. */
  std::string split;
  int batch = 1, imageSize = 640;
};
/** Where in a training a step is: its iteration of an epoch that has so many. */
struct TrainingPlace {
  int epoch = 0;
  int64_t iteration = 0, iterations = 1;
};
struct RenderOptions {
  int epoch = 0, batch = 0;
  /** By torch's operations, as on a GPU where our kernel is not built. */
  bool byTorch = false;
};
struct ProbeOptions {
  int batch = 1, imageSize = 640;
  /** Instead of the engine's own precision. */
  std::optional<Precision> precision;
};
struct ProbeResult {
  uint64_t bytes = 0;
  /** By the clock, and of all the process's threads together. */
  double seconds = 0, cpuSeconds = 0;
};

/**
 * A view of predictions made elsewhere: `boxes` [images, 4, anchors], `logits` [images, classes,
 * anchors], `truths` [images, objects, 5].
 */
struct AssignmentInput {
  int classes = 0, height = 0, width = 0, images = 0;
  int64_t anchors = 0, objects = 0;
  bool oneToOne = false;
  const float* boxes = nullptr;
  const float* logits = nullptr;
  const float* truths = nullptr;
};
/** By anchor: the target score, and the index of its object among the image's truths. */
struct Assignment {
  std::vector<float> scores, objects;
};
Assignment assignTargets(const AssignmentInput& input);

/**
 * A copy of what a file is to hold, which no later call changes. Writes it, on any thread, to a
 * path with its metadata, all or nothing; returns the file's bytes.
 */
using FileCopy = std::function<uint64_t(const std::string& path,
                                        const std::map<std::string, std::string>& metadata)>;

struct EngineCore;

/** One engine; constructed, called and destroyed on one thread. */
class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();

  int64_t parameters() const;
  LoadReport load(const std::string& path);
  /** The weights that are evaluated; and everything that the next step depends on. */
  FileCopy save() const;
  FileCopy checkpoint() const;
  std::map<std::string, std::string> restore(const std::string& path);
  void join(const GroupOptions& options);

  void setDataset(const std::string& split, const std::string& path,
                  std::vector<ImageEntry> images);
  EpochResult trainEpoch(int epoch, int from,
                         const std::function<void(const StepProgress&)>& progress);
  /** Progress counts images done, of how many. */
  Evaluation evaluate(const EvaluationOptions& options,
                      const std::function<void(int64_t, int64_t)>& progress);
  std::vector<std::vector<Detection>> predict(const BatchView& batch, double confidence);
  std::vector<MaskedImage> predictMasks(const BatchView& batch, double confidence);
  RenderedBatch render(const RenderOptions& options);
  ProbeResult probe(const ProbeOptions& options);

  MapValues forward(const BatchView& batch, bool training);
  LossItems losses(const BatchView& batch, double o2mShare);
  LossItems step(const BatchView& batch, int epoch, int64_t iteration);
  /** One step towards another network's features, by the rates of a place in the training. */
  double distill(const FeatureView& batch, const TrainingPlace& place);
  TensorValues tensor(const std::string& name, const std::string& of);

 private:
  std::unique_ptr<EngineCore> core_;
};

}  // namespace vantage
