// Refuses a graph that the network could not run: in a graph that passes, every map has the shape
// that its node states. The limits are far beyond those of the family's graphs.
#include "graph.h"

#include <set>

#include "error.h"

namespace vantage {
namespace {

constexpr size_t kNodesMax = 10'000;
constexpr int kStrideMax = 4096;
constexpr int kChannelsMax = 65'536, kClassesMax = 10'000, kKernelMax = 63, kPrototypes = 32;

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw EngineError("bad_argument", "graph: " + where + " " + why);
}

/** Checks one node against the nodes that it reads. */
class NodeCheck {
 public:
  NodeCheck(const Graph& graph, size_t index)
      : graph_(graph), node_(graph.nodes[index]), index_(static_cast<int>(index)) {}

  void check() {
    need(node_.channels >= 1 && node_.channels <= kChannelsMax, "has impossible channels");
    need(node_.stride >= 1 && node_.stride <= kStrideMax, "has an impossible stride");
    need(node_.inputs.size() <= kNodesMax, "has too many inputs");
    for (int input : node_.inputs) need(input >= 0 && input < index_, "reads a node after it");
    need(node_.op == Op::input ? node_.inputs.empty() : !node_.inputs.empty(), "lacks its input");
    shapes();
  }

 private:
  void shapes() {
    if (node_.op == Op::input) {
      need(index_ == 0 && node_.channels == 3 && node_.stride == 1, "is an input of its own kind");
      return;
    }
    const int channels = of(0).channels, stride = of(0).stride;
    need(node_.kernel >= 1 && node_.kernel % 2 == 1 && node_.kernel <= kKernelMax,
         "needs an odd kernel");
    switch (node_.op) {
      case Op::conv:
        need(node_.step >= 1 && node_.step <= kStrides[2], "has an impossible step");
        need(
            node_.groups >= 1 && channels % node_.groups == 0 && node_.channels % node_.groups == 0,
            "has groups that do not divide its channels");
        return same(node_.channels, stride * node_.step);
      case Op::conv_transpose:
        need(stride % 2 == 0, "is finer than the image");
        return same(node_.channels, stride / 2);
      case Op::add:
        need(node_.inputs.size() == 2 && of(1).channels == channels && of(1).stride == stride,
             "adds unequal maps");
        return same(channels, stride);
      case Op::concat: {
        int64_t sum = 0;
        for (size_t i = 0; i < node_.inputs.size(); ++i) {
          need(of(i).stride == stride, "joins maps of unequal strides");
          sum += of(i).channels;
        }
        need(sum <= kChannelsMax, "has impossible channels");
        return same(static_cast<int>(sum), stride);
      }
      case Op::slice:
        need(node_.from >= 0 && node_.from < node_.to && node_.to <= channels,
             "cuts outside of its input");
        return same(node_.to - node_.from, stride);
      case Op::max_pool: return same(channels, stride);
      case Op::upsample:
        need(node_.factor >= 1 && stride % node_.factor == 0, "is finer than the image");
        return same(channels, stride / node_.factor);
      case Op::attention:
      case Op::values:
        need(node_.heads >= 1 && node_.key >= 1 && node_.value >= 1 && node_.key <= channels &&
                 node_.value <= channels &&
                 int64_t{node_.heads} * (2 * node_.key + node_.value) == channels,
             "has heads that are not its input's");
        return same(node_.heads * node_.value, stride);
      case Op::detach: return same(channels, stride);
      case Op::input: return;
    }
  }

  const Node& of(size_t input) const { return graph_.nodes[node_.inputs[input]]; }

  void same(int channels, int stride) const {
    need(node_.channels == channels, "does not have the channels that it gives");
    need(node_.stride == stride, "does not have the stride that it gives");
  }

  void need(bool holds, const char* why) const {
    if (!holds) refuse("node " + std::to_string(index_), why);
  }

  const Graph& graph_;
  const Node& node_;
  int index_;
};

void checkMaps(const Graph& graph, const std::string& name, const std::vector<int>& indices,
               int channels) {
  if (indices.size() != 3) refuse(name, "needs a node for each of three levels");
  for (size_t level = 0; level < indices.size(); ++level) {
    const int index = indices[level];
    if (index < 0 || index >= static_cast<int>(graph.nodes.size()))
      refuse(name, "names a node that is not there");
    const Node& node = graph.nodes[index];
    if (node.channels != channels || node.stride != kStrides[level])
      refuse(name, "names a node of another shape");
    if (node.op != Op::conv || node.normalized || node.silu)
      refuse(name, "needs plain convolutions");
  }
}

void checkBranch(const Graph& graph, const std::string& name, const Branch& branch) {
  checkMaps(graph, name + ".box", branch.box, 4);
  checkMaps(graph, name + ".cls", branch.cls, graph.classes);
  if (graph.hasMasks() != !branch.mask.empty())
    refuse(name + ".mask", "and prototypes are there together or not at all");
  if (!branch.mask.empty()) checkMaps(graph, name + ".mask", branch.mask, kPrototypes);
}

void checkMap(const Graph& graph, const std::string& name, int index, int channels, int stride) {
  if (index < 0) return;
  if (index >= static_cast<int>(graph.nodes.size())) refuse(name, "is a node that is not there");
  const Node& node = graph.nodes[index];
  if (node.channels != channels || node.stride != stride) refuse(name, "is of another shape");
}

}  // namespace

void check(const Graph& graph) {
  if (graph.nodes.empty() || graph.nodes.size() > kNodesMax)
    refuse("it", "has no or too many nodes");
  if (graph.nodes[0].op != Op::input) refuse("node 0", "must be the input");
  if (graph.classes < 1 || graph.classes > kClassesMax) refuse("it", "has impossible classes");
  std::set<std::string> names;
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[index];
    NodeCheck(graph, index).check();
    if (node.op != Op::conv && node.op != Op::conv_transpose) continue;
    if (node.name.empty() || !names.insert(node.name).second)
      refuse("node " + std::to_string(index), "needs a name of its own");
  }
  checkBranch(graph, "o2o", graph.o2o);
  if (!graph.o2m.box.empty()) checkBranch(graph, "o2m", graph.o2m);
  checkMap(graph, "prototypes", graph.prototypes, kPrototypes, 4);
  checkMap(graph, "semantic", graph.semantic, graph.classes, kStrides[0]);
  if (graph.semantic >= 0 && !graph.hasMasks()) refuse("semantic", "needs prototypes");
}

}  // namespace vantage
