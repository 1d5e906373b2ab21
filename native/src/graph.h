// The graph of shared/detector/detector.ts as plain values: what the network is built from.
// No torch here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace vantage {

enum class Op {
  input,
  conv,
  conv_transpose,
  add,
  concat,
  slice,
  max_pool,
  upsample,
  attention,
  values,
  detach
};

/** One operation; which fields count depends on `op`, as in shared/detector/detector.ts. */
struct Node {
  Op op = Op::input;
  int layer = 0, channels = 0, stride = 1;
  std::string name;
  std::vector<int> inputs;
  int kernel = 1, step = 1, groups = 1;
  bool normalized = false, silu = false;
  int from = 0, to = 0, factor = 2;
  int heads = 1, key = 0, value = 0;
};

/** Indices of the nodes of a branch's maps, finest level first. `mask` is empty for detection. */
struct Branch {
  std::vector<int> box, cls, mask;
};

struct Graph {
  std::string variant, task;
  int classes = 0;
  std::vector<Node> nodes;
  /** Absent in a deployed graph: no maps. */
  Branch o2m;
  Branch o2o;
  int prototypes = -1, semantic = -1;

  bool hasMasks() const { return prototypes >= 0; }
  /** Numbers that losses are: total, box, cls, dfl, and with masks mask and semantic. */
  int lossItems() const { return hasMasks() ? 6 : 4; }
};

/** Fails with `bad_argument` where the nodes do not fit together. */
void check(const Graph& graph);

/** The layer of the head, the last one: those before it are backbone and neck. */
constexpr int kHeadLayer = 23;

/** Pixels of the input to a cell of each level. */
constexpr int kStrides[3] = {8, 16, 32};

}  // namespace vantage
