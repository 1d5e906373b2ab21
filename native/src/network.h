// The graph as a network of torch: parameters by the names of shared/detector.ts, and a forward
// pass that runs the nodes in order.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "graph.h"

namespace vantage {

/** A tensor of the state. Statistics of batch norm are not learned. */
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool learned = true;
};

/** Maps of a branch by level: [B, 4, H, W], [B, classes, H, W], [B, 32, H, W]. */
struct BranchMaps {
  std::vector<at::Tensor> box, cls, mask;
};

struct NetworkMaps {
  /** Empty in a deployed graph. */
  BranchMaps o2m;
  BranchMaps o2o;
  at::Tensor prototypes, semantic;
};

class Network {
 public:
  /** First weights by `seed`; the two branches begin as equal copies; biases as facts 1.4. */
  Network(const Graph& graph, at::Device device, int64_t seed);

  /** `images`: [B, 3, H, W], RGB in 0 to 1. `training`: statistics are those of the batch. */
  NetworkMaps forward(const at::Tensor& images, bool training);

  /** In the order of `stateTensors` of shared/detector.ts; the tensors are the network's own. */
  const std::vector<NamedTensor>& state() const { return state_; }
  const Graph& graph() const { return graph_; }
  at::Device device() const { return device_; }

 private:
  Graph graph_;
  at::Device device_;
  std::vector<NamedTensor> state_;
  /** Place in `state_` of a node's first tensor. */
  std::vector<int> first_;
};

/** Boxes in pixels [B, A, 4] and scores [B, A, classes] of a branch, anchors level by level. */
std::pair<at::Tensor, at::Tensor> decode(const BranchMaps& maps);

/** The two top-k steps of facts 1.4: [B, K, 6] = x1, y1, x2, y2, score, class; K = min(300, A). */
at::Tensor endToEnd(const at::Tensor& boxes, const at::Tensor& scores, int64_t limit = 300);

}  // namespace vantage
