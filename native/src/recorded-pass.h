// A step's passes through the network as recordings. At small batches a GPU computes a step faster
// than the host launches its some thousand operations; a recording is one launch. Losses stay
// outside: how many objects there are differs from batch to batch.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "device.h"
#include "network.h"

namespace vantage {

/** Forward and backward of batches of one shape, in training. */
class RecordedPass {
 public:
  /** For batches like `images`; memory is shared with `beside`, which may be null. */
  RecordedPass(Network& network, const at::Tensor& images, const RecordedPass* beside);
  RecordedPass(const RecordedPass&) = delete;

  /** A batch's maps, cut off from the network: a loss leaves its gradients with them. */
  NetworkMaps forward(const at::Tensor& images);
  /**
   * Leaves the parameters' gradients with the network's tensors, by those of the maps that
   * `forward` gave. They are overwritten by the next pass.
   */
  void backward();

 private:
  void runForward();
  void runBackward();

  Network& network_;
  at::Tensor images_;
  /** What the network gives, and the same as the loss gets it. */
  NetworkMaps maps_, leaves_;
  /** Gradients of the maps and of the learned tensors, in their order. */
  std::vector<at::Tensor> slopes_, gradients_;
  /** Last: the graphs are gone before what they compute with. */
  Recording forward_, backward_;
};

/** The passes of a training, by the shape of the batch and the precision. */
class RecordedPasses {
 public:
  explicit RecordedPasses(Network& network) : network_(network) {}

  /**
   * The pass for batches like `images`; null for a shape that no step was made of yet, as it may
   * not come again, and where there are shapes enough.
   */
  RecordedPass* passFor(const at::Tensor& images);
  /** To be told of each step that was made. */
  void countStep(const at::Tensor& images);
  /** Whether memory is held for recordings. */
  bool holdMemory() const { return first_ != nullptr; }

 private:
  struct Entry {
    int steps = 0;
    std::unique_ptr<RecordedPass> pass;
  };
  using Shape = std::tuple<int64_t, int64_t, int64_t, Precision>;
  Shape shapeOf(const at::Tensor& images) const {
    return {images.size(0), images.size(2), images.size(3), network_.precision()};
  }

  Network& network_;
  std::map<Shape, Entry> entries_;
  /** Whose memory the others share; null before the first. */
  const RecordedPass* first_ = nullptr;
};

}  // namespace vantage
