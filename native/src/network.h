// The graph as a network of torch: parameters by the names of shared/detector/detector.ts, and a
// forward pass that runs the nodes in order.
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
#include "group.h"
#include "settings.h"

namespace vantage {

/**
 * Parameters are learned; statistics and counters of batch norm, and what training keeps, are not.
 * Nothing changes what is frozen, be it weights or statistics.
 */
enum class TensorKind { parameter, buffer, frozen };

/** A tensor of the state, always fp32. */
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  TensorKind kind = TensorKind::parameter;
  bool isLearned() const { return kind == TensorKind::parameter; }
};

/** Maps of a branch by level: [B, 4, H, W], [B, classes, H, W], [B, 32, H, W]; fp32. */
struct BranchMaps {
  std::vector<at::Tensor> box, cls, mask;
};

struct NetworkMaps {
  /** Empty for a deployed graph. */
  BranchMaps o2m;
  BranchMaps o2o;
  at::Tensor prototypes, semantic;
};

/** Which statistics batch norm uses. */
enum class BatchNorm {
  /** The stored ones. */
  evaluation,
  /** The batch's; the stored ones stay as they are. */
  batch,
  /** The batch's; the stored ones move towards them. */
  training,
};

class Network {
 public:
  /** First weights by `seed`; the two branches begin as equal copies; biases expect few objects. */
  Network(const Graph& graph, at::Device device, int64_t seed);
  /**
   * Layers before this one neither learn nor move their statistics: training passes no gradient
   * through them, and their batch norm is that of evaluation. To be called before anything refers
   * to the state.
   */
  void freeze(int layer);
  /** Over the given tensors, in the order of `state()`: a second network on EMA's weights. */
  Network(const Graph& graph, at::Device device, std::vector<NamedTensor> state);

  /** `images`: [B, 3, H, W], RGB in 0 to 1, sides multiples of 32. */
  NetworkMaps forward(const at::Tensor& images, BatchNorm norm);
  /**
   * What predicts, with a copy of `state`: the one-to-one branch alone, batch norm folded into the
   * convolutions. Its state is that of `deployed` in shared/detector/detector.ts.
   */
  Network deployed(const std::vector<NamedTensor>& state) const;

  /** The tensors in the order of `stateTensors` of shared/detector/detector.ts; not copies. */
  const std::vector<NamedTensor>& state() const { return state_; }
  const Graph& graph() const { return graph_; }
  at::Device device() const { return device_; }
  int64_t parameters() const;
  /**
   * What convolutions and products are computed in: on a GPU always, on a CPU in training alone.
   * Maps are fp32 all the same.
   */
  void setPrecision(Precision precision) { precision_ = precision; }
  Precision precision() const { return precision_; }
  /** Whether training makes batch norm and SiLU one operation of ours, where there is one. */
  void setFusedNorm(bool isOn) { fusedNorm_ = isOn; }
  /**
   * In training a pixel's values lie side by side, and so do those of the weights, which are moved.
   * To be called before anything refers to the state.
   */
  void setChannelsLast(bool isOn);
  /**
   * `stop` is read before every node, forward and backward: while it is true, both fail with
   * `Interruption`. A step takes seconds on a CPU, a node some hundredths of a step.
   */
  void setStop(std::shared_ptr<const std::atomic<bool>> stop) { stop_ = std::move(stop); }
  const std::shared_ptr<const std::atomic<bool>>& stop() const { return stop_; }
  /** In training, batch norm uses the statistics of the whole batch of these processes. */
  void setGroup(const Group* group) { group_ = group; }
  /** Fails with `Interruption` while `stop` is true. */
  void checkStop() const {
    if (stop_ && *stop_) throw Interruption();
  }

 private:
  Network(const Graph& graph, at::Device device);
  at::Tensor run(const Node& node, size_t index, const std::vector<at::Tensor>& maps,
                 BatchNorm norm);
  at::Tensor convolve(const Node& node, size_t index, const at::Tensor& input, BatchNorm norm);

  Graph graph_;
  at::Device device_;
  Precision precision_ = Precision::fp32;
  bool fusedNorm_ = true;
  bool channelsLast_ = false;
  std::shared_ptr<const std::atomic<bool>> stop_;
  const Group* group_ = nullptr;
  std::vector<NamedTensor> state_;
  int frozen_ = 0;
  /** Index in `state_` of a node's first tensor. */
  std::vector<int> first_;
};

/** Boxes in pixels [B, A, 4] and scores [B, A, classes] of a branch, anchors level by level. */
std::pair<at::Tensor, at::Tensor> decode(const BranchMaps& maps);

/**
 * The best detections without NMS: the best anchors by their best class, then the best pairs of
 * anchor and class of those. K = min(`limit`, A).
 */
struct BestDetections {
  /** [B, K, 6] = x1, y1, x2, y2, score, class. */
  at::Tensor rows;
  /** [B, K]: their anchors. */
  at::Tensor anchors;
};
BestDetections endToEnd(const at::Tensor& boxes, const at::Tensor& scores, int64_t limit = 300);

}  // namespace vantage
