// The members of an engine, for the files that define its methods: engine.cpp (construction,
// weights, forward), trainer.cpp (steps, epochs), checkpoint.cpp, evaluation.cpp (datasets,
// evaluation, rendering). One thread uses them, so nothing here is locked; `interrupted` alone is
// set from other threads.
#pragma once
#include <memory>

#include "batches.h"
#include "device.h"
#include "engine.h"
#include "gradient-buckets.h"
#include "group.h"
#include "mask.h"
#include "network.h"
#include "recorded-pass.h"
#include "trainer.h"

namespace vantage {

struct EngineCore {
  explicit EngineCore(const EngineOptions& options);

  EngineOptions options;
  at::Device device;
  Network network;
  /** Null for an engine that does not train. */
  std::unique_ptr<Training> training;
  /** Null where steps are not recorded, or could not be. */
  std::unique_ptr<RecordedPasses> recorded;
  /** Null until the split was set. */
  std::unique_ptr<Split> train, val;
  /** The processes that train as one with this one, and their gradients; null while it is alone. */
  std::unique_ptr<Group> group;
  std::unique_ptr<GradientBuckets> buckets;
  /** Its group broke: its epochs were to be parts of others' and cannot go on alone. */
  bool isGroupLost = false;

  /** To be checked between steps; within a step the network checks. */
  bool isInterrupted() const { return options.interrupted && options.interrupted->load(); }
  /** The caller's pixels on the device; refuses a batch that the network cannot take. */
  at::Tensor images(const BatchView& batch) const;
  /** Refuses a count or sides that the network cannot take. */
  static void checkShape(const BatchView& batch);
  /** The weights that are evaluated, saved and served: those of EMA while training. */
  const std::vector<NamedTensor>& evaluated() const {
    return training ? training->ema.state() : network.state();
  }
  /** Gives the memory of recordings back; there are none from then on. */
  void dropRecordings() {
    recorded.reset();
    releaseMemory(device);
  }
  /** Fails with `bad_argument` for an engine that does not train. */
  void needsTraining() const;
  /** Fails with `bad_argument` for one of several processes: its state is that of all. */
  void needsNoGroup() const;
  /** The others' calls under way fail, and so do this one's later epochs. */
  void leaveGroup();
  /** The only process, or the one whose average, evaluations and checkpoints count. */
  bool isFirst() const { return !group || group->rank() == 0; }
};

/** What a deployed network finds in an image. */
struct ImageDetections {
  std::vector<Detection> boxes;
  /** Given by segmentation: weights of the prototypes, box after box; the image's prototypes. */
  std::vector<float> weights;
  /** [32, height / 4, width / 4] on the CPU. */
  at::Tensor prototypes;

  /** Mask of a box. */
  Bitmap mask(size_t box) const;
  /** Cuts boxes at a rectangle, as the predictor does at the image; removes those outside of it. */
  void cutAt(const Rectangle& rectangle);
};

/** Detections of each image, at most 300, none below `confidence`. */
std::vector<ImageDetections> detectionsOf(const NetworkMaps& maps, double confidence);
/** The same of images. */
std::vector<ImageDetections> detect(Network& network, const at::Tensor& images, double confidence);

/** Values of a tensor on the CPU, as the caller gets them. */
TensorValues valuesOf(const at::Tensor& tensor);

/** Tensors as a file is to hold them, copied into memory of the host. */
FileCopy copyOf(const std::vector<NamedTensor>& tensors);

}  // namespace vantage
