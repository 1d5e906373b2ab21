// Batches of a split on the engine's device: images rendered ahead on a background thread, on the
// GPU by our kernel or by torch's operations, and their boxes as one padded tensor.
#pragma once
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "device.h"
#include "image.h"
#include "loss.h"

namespace vantage {

/** A split's file; on the GPU as a whole where it takes a small share of the free memory. */
class Split {
 public:
  Split(const std::string& path, std::vector<ImageEntry> images, int classes, at::Device device);
  const ImageFile& file() const { return file_; }
  int images() const { return static_cast<int>(file_.images().size()); }
  at::Device device() const { return device_; }
  /** Bytes on the GPU, [bytes]; undefined on the CPU and where the file is too large for it. */
  const at::Tensor& uploaded() const { return uploaded_; }
  /** Copies to the device beside the steps on it. */
  const Uploads& uploads() const { return uploads_; }

 private:
  ImageFile file_;
  at::Device device_;
  Uploads uploads_;
  at::Tensor uploaded_;
};

/** The part of every batch that one of several processes has. */
struct BatchShare {
  int rank = 0, size = 1;
};

struct DeviceBatch {
  /** [n, 3, size, size], RGB in 0 to 1. */
  at::Tensor images;
  Labels labels;
  /** The same by image, on the CPU; and what is seen of their rings, one a box. */
  std::vector<std::vector<Truth>> boxes;
  std::vector<std::vector<Ring>> rings;
  /** By image: the part of the square that it covers. Only of letterboxed images. */
  std::vector<Rectangle> covered;
  /** Images of the whole batch. */
  int whole = 0;
  /** The batch has too few images for all processes: the one that is here is another's. */
  bool isStandIn = false;
};

/** What makes pixels of plans: the CPU, our kernel on the GPU, or torch's operations on any device.
 */
enum class Renderer { cpu, kernel, torch };

struct BatchRange {
  /** Images of the split, and of a batch; the last batch has the rest. */
  int images = 0, batch = 1;
  /** Index of the first batch that is given. */
  int from = 0;
  /** Side of the largest images in pixels, and of those of a batch. */
  int sizeMax = 640;
  std::function<int(int batch)> sizeOf;
  /** CPU threads of the engine. */
  int threads = 1;
  /** Batches have masks. */
  bool hasMasks = false;
  BatchShare share;
  /** Instead of the fastest on the split's device. */
  std::optional<Renderer> renderer;
};

/** Gives batch after batch; one is made ahead. Refers to its split, which has to outlive it. */
class BatchSource {
 public:
  /** `plan` gives the image at a position of the order; it is called on another thread. */
  BatchSource(const Split& split, BatchRange range, std::function<PlannedImage(int)> plan);
  BatchSource(const BatchSource&) = delete;
  /** Abandons the batch that is being made. */
  ~BatchSource() { abandoned_ = true; }

  /** Batches of the whole range, those before `from` included. */
  int batches() const { return (range_.images + range_.batch - 1) / range_.batch; }
  /**
   * None after the last, and none once `isStopped` says so. The images are overwritten by the next
   * call.
   */
  std::optional<DeviceBatch> next(const std::function<bool()>& isStopped = {});

 private:
  /** A batch as the background thread leaves it: its tensors are on the device, or on their way. */
  struct PreparedBatch {
    std::vector<Plan> plans;
    std::vector<std::vector<Truth>> boxes;
    std::vector<std::vector<Ring>> rings;
    int whole = 0, size = 0;
    bool isStandIn = false;
    /** Boxes and masks as labels, and stencils of what is pasted; undefined where there are none.
     */
    at::Tensor truths, masks, stencils;
    /** [n, 3, size, size]: the images, where the CPU renders them. */
    at::Tensor pixels;
    /** Where it does not: the bytes of `plans` for our kernel, and those that they read, where the
     * file is not on the GPU. */
    at::Tensor planBytes, gathered;
    /** The end of their copies. */
    Uploads::Mark copied;
  };
  /** `buffer` has room for the largest images, where the CPU renders for itself. */
  PreparedBatch prepare(int batch, const at::Tensor& buffer) const;
  /** Room for images of the CPU, which a GPU copies. */
  at::Tensor pixelBuffer() const;
  void begin();

  const Split& split_;
  BatchRange range_;
  Renderer renderer_;
  std::function<PlannedImage(int)> plan_;
  int next_;
  /** For a step on the CPU, which reads the pixels of one while the other is being filled. */
  at::Tensor buffers_[2];
  std::atomic<bool> abandoned_{false};
  /** Last: its destructor waits for the thread before the members that the thread uses go. */
  std::future<PreparedBatch> pending_;
};

struct EpochBatches {
  int epoch = 0;
  /** Index of the first batch that is given. */
  int from = 0;
  uint64_t seed = 0;
  int threads = 1;
  bool hasMasks = false;
  BatchShare share;
  std::optional<Renderer> renderer;
};

/** The augmented batches of an epoch. */
BatchSource trainingBatches(const Split& split, const TrainingSettings& settings,
                            const EpochBatches& batches);

struct LetterboxedBatches {
  int batch = 1, imageSize = 640, threads = 1;
  /** Labels have masks, where objects have outlines. */
  bool hasMasks = false;
};

/** Every image in the split's order, letterboxed. */
BatchSource letterboxedBatches(const Split& split, const LetterboxedBatches& batches);

}  // namespace vantage
