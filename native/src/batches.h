// Batches of a split on the engine's device: images rendered ahead on a background thread, on the
// GPU by our kernel where there is one, and their boxes as one padded tensor.
#pragma once
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "image.h"

namespace vantage {

/** A split's file, and where our kernel reads it: on the GPU as a whole if it takes little. */
class Split {
 public:
  Split(const std::string& path, std::vector<ImageEntry> images, int classes, at::Device device);
  const ImageFile& file() const { return file_; }
  int images() const { return static_cast<int>(file_.images().size()); }
  at::Device device() const { return device_; }
  /** Bytes on the GPU, [bytes]; undefined on the CPU and where the file is too large for it. */
  const at::Tensor& uploaded() const { return uploaded_; }

 private:
  ImageFile file_;
  at::Device device_;
  at::Tensor uploaded_;
};

struct DeviceBatch {
  /** [n, 3, size, size], RGB in 0 to 1. */
  at::Tensor images;
  /** [n, M, 5] = class, x1, y1, x2, y2 in pixels; class −1 is padding; M is 1 at least. */
  at::Tensor truths;
  /** The same by image, on the CPU. */
  std::vector<std::vector<Truth>> boxes;
};

struct BatchRange {
  /** Images in all, and in a batch; the last batch has the rest. */
  int images = 0, batch = 1;
  /** First batch that is given. */
  int from = 0;
  int size = 640;
  /** Of the engine. */
  int threads = 1;
};

/** Gives batch after batch; one is made ahead. Refers to its split, which has to outlive it. */
class BatchSource {
 public:
  /** `plan` gives the image at a place; it is called on another thread. */
  BatchSource(const Split& split, BatchRange range, std::function<PlannedImage(int)> plan);
  BatchSource(const BatchSource&) = delete;
  /** Lets go of the batch that is being made. */
  ~BatchSource() { abandoned_ = true; }

  /** Batches of the whole range, those before `from` included. */
  int batches() const { return (range_.images + range_.batch - 1) / range_.batch; }
  /**
   * None after the last, and none once `isStopped` says so. The images are overwritten by the next
   * call.
   */
  std::optional<DeviceBatch> next(const std::function<bool()>& isStopped = {});

 private:
  /** A batch as the background thread leaves it. */
  struct Prepared {
    std::vector<Plan> plans;
    std::vector<std::vector<Truth>> boxes;
    /** Rendered on the CPU. */
    at::Tensor pixels;
    /** For our kernel: what the plans read, where the file is not on the GPU. */
    at::Tensor gathered;
  };
  Prepared prepare(int batch, at::Tensor pixels) const;
  void begin();

  const Split& split_;
  BatchRange range_;
  std::function<PlannedImage(int)> plan_;
  int next_;
  /** Pixels on the CPU: one is the caller's while the other is being filled. */
  at::Tensor pixels_[2];
  std::atomic<bool> abandoned_{false};
  /** Last: it is waited for before what it uses goes. */
  std::future<Prepared> pending_;
};

/** The augmented batches of an epoch. */
BatchSource trainingBatches(const Split& split, int epoch, int from, uint64_t seed,
                            const TrainingSettings& settings, int threads);

/** Every image in the split's order, letterboxed. */
BatchSource letterboxedBatches(const Split& split, int batch, int imageSize, int threads);

}  // namespace vantage
