// The graph as a network of torch: parameters by the names of shared/detector.ts, and a forward
// pass that runs the nodes in order.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "error.h"
#include "graph.h"

namespace vantage {

/** A tensor of the state, always fp32. Statistics of batch norm are not learned. */
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool learned = true;
};

/** Maps of a branch by level: [B, 4, H, W], [B, classes, H, W], [B, 32, H, W]; fp32. */
struct BranchMaps {
  std::vector<at::Tensor> box, cls, mask;
};

struct NetworkMaps {
  /** Empty where the pass was not to give it. */
  BranchMaps o2m;
  BranchMaps o2o;
  at::Tensor prototypes, semantic;
};

/** What a forward pass does. */
struct Pass {
  /** Batch norm uses the batch's statistics. */
  bool training = false;
  /** With `training`: the stored statistics move towards the batch's. */
  bool moveStatistics = true;
  /** The branches that only training has are computed; without, neither is what they need. */
  bool everything = true;
};

class Network {
 public:
  /** First weights by `seed`; the two branches begin as equal copies; biases as facts 1.4. */
  Network(const Graph& graph, at::Device device, int64_t seed);
  /** Over the given tensors, in the order of `state()`: a second network on EMA's weights. */
  Network(const Graph& graph, at::Device device, std::vector<NamedTensor> state);

  /** `images`: [B, 3, H, W], RGB in 0 to 1, sides multiples of 32. */
  NetworkMaps forward(const at::Tensor& images, Pass pass);
  /** A step of training, or everything by the stored statistics. */
  NetworkMaps forward(const at::Tensor& images, bool training) {
    return forward(images, Pass{training, true, true});
  }
  /**
   * What predicts, with a copy of `state`: the one-to-one branch alone, batch norm folded into the
   * convolutions. Its state is that of `deployed` in shared/detector.ts.
   */
  Network deployed(const std::vector<NamedTensor>& state) const;

  /** In the order of `stateTensors` of shared/detector.ts; the tensors are the network's own. */
  const std::vector<NamedTensor>& state() const { return state_; }
  const Graph& graph() const { return graph_; }
  at::Device device() const { return device_; }
  int64_t parameters() const;
  /** Convolutions and products in bf16; the GPU only. Maps are fp32 all the same. */
  void setBf16(bool on) { bf16_ = on; }
  /**
   * Looked at before every node, forward and backward: while it is true, both fail with
   * `Interrupted`. A step takes seconds on a CPU, a node some hundredths of that.
   */
  void setStop(std::shared_ptr<const std::atomic<bool>> stop) { stop_ = std::move(stop); }
  /** Fails with `Interrupted` where the pass under way is to end. */
  void checkStop() const {
    if (stop_ && *stop_) throw Interrupted();
  }

 private:
  Network(const Graph& graph, at::Device device);
  at::Tensor run(const Node& node, int place, const std::vector<at::Tensor>& maps, Pass pass);
  at::Tensor convolve(const Node& node, int place, const at::Tensor& input, Pass pass);

  Graph graph_;
  at::Device device_;
  bool bf16_ = false;
  std::shared_ptr<const std::atomic<bool>> stop_;
  std::vector<NamedTensor> state_;
  /** Place in `state_` of a node's first tensor. */
  std::vector<int> first_;
};

/** Boxes in pixels [B, A, 4] and scores [B, A, classes] of a branch, anchors level by level. */
std::pair<at::Tensor, at::Tensor> decode(const BranchMaps& maps);

/** The two top-k steps of facts 1.4: [B, K, 6] = x1, y1, x2, y2, score, class; K = min(300, A). */
at::Tensor endToEnd(const at::Tensor& boxes, const at::Tensor& scores, int64_t limit = 300);

}  // namespace vantage
