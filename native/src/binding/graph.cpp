// The graph of shared/detector/detector.ts: which fields a node has depends on its operation.
#include <map>

#include "options.h"

namespace vantage {
namespace {

const std::map<std::string, Op> kOps = {
    {"input", Op::input},       {"conv", Op::conv},         {"conv_transpose", Op::conv_transpose},
    {"add", Op::add},           {"concat", Op::concat},     {"slice", Op::slice},
    {"max_pool", Op::max_pool}, {"upsample", Op::upsample}, {"attention", Op::attention},
    {"values", Op::values},     {"detach", Op::detach},
};

Node readNode(const Fields& from) {
  Node node;
  const std::string op = from.text("op");
  const auto found = kOps.find(op);
  if (found == kOps.end()) refuseArgument(from.pathOf("op"), "is the unknown operation " + op);
  node.op = found->second;
  node.layer = from.integer("layer", 0, kIntMax);
  node.channels = from.integer("channels", 1, kIntMax);
  node.stride = from.integer("stride", 1, kIntMax);
  if (node.op == Op::add || node.op == Op::concat) node.inputs = from.indices("inputs");
  else if (node.op != Op::input) node.inputs = {from.integer("input", 0, kIntMax)};
  const auto read = [&](const char* name) { return from.integer(name, 0, kIntMax); };
  switch (node.op) {
    case Op::conv:
      node.kernel = read("kernel");
      node.step = read("step");
      node.groups = read("groups");
      node.normalized = from.flag("normalized");
      node.silu = from.flag("silu");
      [[fallthrough]];
    case Op::conv_transpose: node.name = from.text("name"); break;
    case Op::slice:
      node.from = read("from");
      node.to = read("to");
      break;
    case Op::max_pool: node.kernel = read("kernel"); break;
    case Op::upsample: node.factor = read("factor"); break;
    case Op::attention:
    case Op::values:
      node.heads = read("heads");
      node.key = read("key");
      node.value = read("value");
      break;
    default: break;
  }
  return node;
}

Branch readBranch(const Fields& from) {
  Branch branch{from.indices("box"), from.indices("cls"), {}};
  if (from.has("mask")) branch.mask = from.indices("mask");
  return branch;
}

}  // namespace

Graph readGraph(const Fields& from) {
  Graph graph;
  graph.variant = from.text("variant");
  graph.task = from.text("task");
  graph.classes = from.integer("classes", 1, kIntMax);
  for (const Napi::Value& node : from.list("nodes"))
    graph.nodes.push_back(readNode({node, from.pathOf("nodes", graph.nodes.size())}));
  graph.o2o = readBranch(from.object("o2o"));
  if (from.has("o2m")) graph.o2m = readBranch(from.object("o2m"));
  if (from.has("prototypes")) graph.prototypes = from.integer("prototypes", 0, kIntMax);
  if (from.has("semantic")) graph.semantic = from.integer("semantic", 0, kIntMax);
  return graph;
}

}  // namespace vantage
