// Weights of a graph and the forward pass. A node's map is freed once its last reader has run, so
// an evaluation holds a few maps instead of all of them; in training autograd keeps what it needs.
#include "network.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "device.h"
#include "error.h"
#include "flags.h"
#include "fused-norm.h"
#include "group-norm.h"

namespace vantage {
namespace {

constexpr double kNormEpsilon = 1e-3, kNormMomentum = 0.03;
/** First biases: five objects of all classes in an image of this side, boxes of ±2 cells. */
constexpr double kFirstObjects = 5, kFirstSide = 640, kFirstDistance = 2;
/** Tensors of a convolution with its norm, of which the first are learned. */
constexpr int kNormTensors = 6, kLearnedTensors = 3;

/** Uniform in ±bound, by a generator of ours: every torch and device begins with the same weights.
 */
class UniformWeights {
 public:
  explicit UniformWeights(int64_t seed) : random_(static_cast<uint64_t>(seed)) {}

  at::Tensor uniform(at::IntArrayRef shape, double bound) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    float* values = tensor.data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const double share = static_cast<double>(random_() >> 11) * 0x1p-53;
      values[i] = static_cast<float>((2 * share - 1) * bound);
    }
    return tensor;
  }

 private:
  std::mt19937_64 random_;
};

bool hasWeights(const Node& node) { return node.op == Op::conv || node.op == Op::conv_transpose; }

int tensorsOf(const Node& node) {
  if (!hasWeights(node)) return 0;
  return node.op == Op::conv && node.normalized ? kNormTensors : 2;
}

/** Which nodes the maps of a graph need. */
std::vector<bool> neededBy(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size());
  const auto need = [&](const std::vector<int>& indices) {
    for (int index : indices) needed[index] = true;
  };
  for (const Branch* branch : {&graph.o2o, &graph.o2m})
    for (const auto* indices : {&branch->box, &branch->cls, &branch->mask}) need(*indices);
  if (graph.prototypes >= 0) need({graph.prototypes});
  if (graph.semantic >= 0) need({graph.semantic});
  for (size_t index = needed.size(); index-- > 0;)
    if (needed[index]) need(graph.nodes[index].inputs);
  return needed;
}

/** Query, key and value of an attention's input: [B, heads, channels of a head, cells]. */
at::Tensor byHead(const Node& node, const at::Tensor& input) {
  return input.reshape({input.size(0), node.heads, 2 * node.key + node.value, -1});
}

at::Tensor valuesOfHeads(const Node& node, const at::Tensor& input) {
  return byHead(node, input).narrow(2, 2 * node.key, node.value);
}

at::Tensor asMap(const at::Tensor& heads, const at::Tensor& like) {
  return heads.reshape({like.size(0), -1, like.size(2), like.size(3)});
}

/** Matmul and softmax: one code for every torch, and at stride 32 there are few cells. */
at::Tensor attend(const Node& node, const at::Tensor& input) {
  const at::Tensor all = byHead(node, input);
  const at::Tensor query = all.narrow(2, 0, node.key), key = all.narrow(2, node.key, node.key);
  const double scale = std::pow(static_cast<double>(node.key), -0.5);
  const at::Tensor shares = at::softmax(at::matmul(query.transpose(2, 3), key) * scale, -1);
  const at::Tensor value = all.narrow(2, 2 * node.key, node.value);
  return asMap(at::matmul(value, shares.transpose(2, 3)), input);
}

/**
 * A map as losses get it. Its gradient comes back lying as the map does, whatever made it:
 * otherwise the order of a sum over its cells would depend on whether the pass is recorded.
 */
at::Tensor mapForLoss(const at::Tensor& map) {
  const at::Tensor full = map.to(at::kFloat);
  if (full.requires_grad())
    full.register_hook([format = full.suggest_memory_format()](const at::Tensor& slope) {
      return slope.contiguous(format);
    });
  return full;
}

/**
 * The map of a slice, and of those after it that share out the same map's channels in order: their
 * gradients are then joined once, instead of each laid into zeros and added. Nothing may change
 * such parts in place.
 */
void slice(const std::vector<Node>& nodes, const std::vector<bool>& needed, size_t index,
           std::vector<at::Tensor>& maps) {
  if (maps[index].defined()) return;
  const int of = nodes[index].inputs[0];
  std::vector<int64_t> sizes;
  int end = 0;
  for (size_t at = index; at < nodes.size() && needed[at]; ++at) {
    if (nodes[at].op != Op::slice || nodes[at].inputs[0] != of || nodes[at].from != end) break;
    sizes.push_back(nodes[at].to - nodes[at].from);
    end = nodes[at].to;
  }
  if (end != nodes[of].channels) {
    maps[index] = maps[of].narrow(1, nodes[index].from, nodes[index].to - nodes[index].from);
    return;
  }
  const auto parts = at::split_with_sizes(maps[of], sizes, 1);
  std::copy(parts.begin(), parts.end(), maps.begin() + static_cast<int64_t>(index));
}

}  // namespace

Network::Network(const Graph& graph, at::Device device) : graph_(graph), device_(device) {
  int next = 0;
  for (const Node& node : graph_.nodes) {
    first_.push_back(next);
    next += tensorsOf(node);
  }
}

Network::Network(const Graph& graph, at::Device device, std::vector<NamedTensor> state)
    : Network(graph, device) {
  state_ = std::move(state);
}

Network::Network(const Graph& graph, at::Device device, int64_t seed) : Network(graph, device) {
  UniformWeights weights(seed);
  std::map<std::string, at::Tensor> byName;
  const auto add = [&](const std::string& name, at::Tensor tensor, TensorKind kind) {
    // The one-to-one branch begins as a copy of the one-to-many's.
    const size_t branch = name.find(".o2o.");
    if (branch != std::string::npos) {
      const auto other = byName.find(std::string(name).replace(branch, 5, ".o2m."));
      if (other != byName.end() && other->second.sizes() == tensor.sizes()) tensor = other->second;
    }
    byName[name] = tensor;
    state_.push_back({name, tensor, kind});
  };
  const auto parameter = [&](const std::string& name, const at::Tensor& tensor) {
    add(name, tensor, TensorKind::parameter);
  };
  const auto buffer = [&](const std::string& name, const at::Tensor& tensor) {
    add(name, tensor, TensorKind::buffer);
  };
  for (const Node& node : graph_.nodes) {
    if (!hasWeights(node)) continue;
    const int64_t inputs = graph_.nodes[node.inputs[0]].channels, outputs = node.channels;
    if (node.op == Op::conv_transpose) {
      const double bound = 1 / std::sqrt(static_cast<double>(outputs) * 4);
      parameter(node.name + ".weight", weights.uniform({inputs, outputs, 2, 2}, bound));
      parameter(node.name + ".bias", weights.uniform({outputs}, bound));
      continue;
    }
    const int64_t of = inputs / node.groups;
    const double bound = 1 / std::sqrt(static_cast<double>(of * node.kernel * node.kernel));
    parameter(node.name + ".weight",
              weights.uniform({outputs, of, node.kernel, node.kernel}, bound));
    if (!node.normalized) {
      parameter(node.name + ".bias", weights.uniform({outputs}, bound));
      continue;
    }
    parameter(node.name + ".norm.weight", at::ones({outputs}));
    parameter(node.name + ".norm.bias", at::zeros({outputs}));
    buffer(node.name + ".norm.mean", at::zeros({outputs}));
    buffer(node.name + ".norm.variance", at::ones({outputs}));
    buffer(node.name + ".norm.batches", at::zeros({}));
  }
  for (const Branch* branch : {&graph_.o2m, &graph_.o2o}) {
    for (size_t level = 0; level < branch->box.size(); ++level) {
      const double cells = std::pow(kFirstSide / kStrides[level], 2);
      state_[first_[branch->box[level]] + 1].tensor.fill_(kFirstDistance);
      state_[first_[branch->cls[level]] + 1].tensor.fill_(
          std::log(kFirstObjects / graph_.classes / cells));
    }
  }
  // A copy each: branches that begin alike do not share memory.
  for (NamedTensor& entry : state_)
    entry.tensor =
        entry.tensor.to(device_, at::kFloat, kBlocking, kCopy).requires_grad_(entry.isLearned());
}

void Network::freeze(int layer) {
  frozen_ = layer;
  for (size_t index = 0; index < graph_.nodes.size(); ++index) {
    const Node& node = graph_.nodes[index];
    if (node.layer >= frozen_) continue;
    for (int i = first_[index]; i < first_[index] + tensorsOf(node); ++i) {
      state_[i].kind = TensorKind::frozen;
      state_[i].tensor.requires_grad_(kNoGradient);
    }
  }
}

void Network::setChannelsLast(bool isOn) {
  channelsLast_ = isOn;
  if (!isOn) return;
  for (size_t index = 0; index < graph_.nodes.size(); ++index) {
    const Node& node = graph_.nodes[index];
    // Others lie the same either way.
    if (!hasWeights(node) || node.groups > 1) continue;
    at::Tensor& weight = state_[first_[index]].tensor;
    weight = weight.detach()
                 .contiguous(at::MemoryFormat::ChannelsLast)
                 .requires_grad_(state_[first_[index]].isLearned());
  }
}

int64_t Network::parameters() const {
  int64_t sum = 0;
  for (size_t index = 0; index < graph_.nodes.size(); ++index)
    for (int i = 0; i < std::min(tensorsOf(graph_.nodes[index]), kLearnedTensors); ++i)
      sum += state_[first_[index] + i].tensor.numel();
  return sum;
}

NetworkMaps Network::forward(const at::Tensor& images, BatchNorm norm) {
  const bool isEvaluation = norm == BatchNorm::evaluation;
  const bool isCast = device_.is_cuda() || !isEvaluation;
  const Autocast autocast(isCast ? precision_ : Precision::fp32, device_);
  const std::vector<bool> needed = neededBy(graph_);
  const size_t count = graph_.nodes.size();
  std::vector<int> readers(count, 0);
  for (size_t index = 0; index < count; ++index)
    if (needed[index])
      for (int input : graph_.nodes[index].inputs) ++readers[input];

  NetworkMaps maps;
  std::vector<at::Tensor> results(count);
  std::map<int, at::Tensor*> wanted;
  const auto collect = [&](const std::vector<int>& indices, std::vector<at::Tensor>& into) {
    into.resize(indices.size());
    for (size_t level = 0; level < indices.size(); ++level) wanted[indices[level]] = &into[level];
  };
  const auto branch = [&](const Branch& of, BranchMaps& into) {
    collect(of.box, into.box);
    collect(of.cls, into.cls);
    collect(of.mask, into.mask);
  };
  branch(graph_.o2o, maps.o2o);
  branch(graph_.o2m, maps.o2m);
  if (graph_.prototypes >= 0) wanted[graph_.prototypes] = &maps.prototypes;
  if (graph_.semantic >= 0) wanted[graph_.semantic] = &maps.semantic;

  // Values of a pixel side by side: what convolutions and batch norm like.
  const at::Tensor pixels =
      isEvaluation || channelsLast_ ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
  std::vector<at::Tensor> counters;
  for (size_t index = 0; index < count; ++index) {
    if (!needed[index]) continue;
    const Node& node = graph_.nodes[index];
    checkStop();
    if (node.op == Op::input) results[index] = pixels;
    else if (node.op == Op::slice) slice(graph_.nodes, needed, index, results);
    else results[index] = run(node, index, results, norm);
    if (stop_ && results[index].requires_grad())
      results[index].register_hook([stop = stop_](const at::TensorBase&) {
        if (*stop) throw Interruption();
      });
    if (node.op == Op::conv && node.normalized && node.layer >= frozen_)
      counters.push_back(state_[first_[index] + kNormTensors - 1].tensor);
    const auto target = wanted.find(static_cast<int>(index));
    if (target != wanted.end()) *target->second = mapForLoss(results[index]);
    for (int input : node.inputs)
      if (--readers[input] == 0) results[input] = at::Tensor();
  }
  if (norm == BatchNorm::training && !counters.empty()) at::_foreach_add_(counters, 1);
  return maps;
}

at::Tensor Network::run(const Node& node, size_t index, const std::vector<at::Tensor>& maps,
                        BatchNorm norm) {
  const at::Tensor& input = maps[node.inputs[0]];
  switch (node.op) {
    case Op::conv: return convolve(node, index, input, norm);
    case Op::conv_transpose:
      return at::conv_transpose2d(input, state_[first_[index]].tensor,
                                  state_[first_[index] + 1].tensor, 2);
    case Op::add: return input + maps[node.inputs[1]];
    case Op::concat: {
      std::vector<at::Tensor> parts;
      for (int part : node.inputs) parts.push_back(maps[part]);
      return at::cat(parts, 1);
    }
    case Op::max_pool: return at::max_pool2d(input, node.kernel, 1, node.kernel / 2);
    case Op::upsample:
      return at::upsample_nearest2d(input,
                                    {input.size(2) * node.factor, input.size(3) * node.factor});
    case Op::attention: return attend(node, input);
    case Op::values: return asMap(valuesOfHeads(node, input), input);
    case Op::detach: return input.detach();
    case Op::slice:
    case Op::input: break;
  }
  throw EngineError("internal", "a node that does nothing was run");
}

at::Tensor Network::convolve(const Node& node, size_t index, const at::Tensor& input,
                             BatchNorm norm) {
  const NamedTensor* of = &state_[first_[index]];
  if (node.layer < frozen_) norm = BatchNorm::evaluation;
  const at::Tensor bias = node.normalized ? at::Tensor() : of[1].tensor;
  const int padding = node.kernel / 2;
  const Activation activation = node.silu ? Activation::silu : Activation::none;
  at::Tensor map = at::conv2d(input, of[0].tensor, bias, node.step, padding, 1, node.groups);
  if (node.normalized && group_ && norm == BatchNorm::training) {
    const NormTensors tensors{of[1].tensor, of[2].tensor, of[3].tensor, of[4].tensor};
    map = groupNorm(map, tensors, {kNormMomentum, kNormEpsilon}, *group_);
  } else if (node.normalized && norm != BatchNorm::evaluation && fusedNorm_ &&
             canFuseNorm(map, activation)) {
    const bool keeps = norm == BatchNorm::training;
    const NormTensors tensors{of[1].tensor, of[2].tensor, keeps ? of[3].tensor : at::Tensor(),
                              keeps ? of[4].tensor : at::Tensor()};
    return fusedNorm(map, tensors, {kNormMomentum, kNormEpsilon}, activation);
  } else if (node.normalized) {
    // Statistics that are given are used in evaluation and updated in training.
    const bool givesStatistics = norm != BatchNorm::batch;
    const at::Tensor mean = givesStatistics ? of[3].tensor : at::Tensor();
    const at::Tensor variance = givesStatistics ? of[4].tensor : at::Tensor();
    map = at::batch_norm(map, of[1].tensor, of[2].tensor, mean, variance,
                         norm != BatchNorm::evaluation, kNormMomentum, kNormEpsilon, kCudnn);
  }
  if (!node.silu) return map;
  // In training SiLU in place would keep a copy of its input for the gradient: no gain.
  return map.requires_grad() ? at::silu(map) : at::silu_(map);
}

Network Network::deployed(const std::vector<NamedTensor>& state) const {
  const at::NoGradGuard guard;
  Graph graph = graph_;
  graph.o2m = {};
  graph.semantic = -1;
  const std::vector<bool> needed = neededBy(graph);
  std::vector<NamedTensor> folded;
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    Node& node = graph.nodes[index];
    const NamedTensor* of = state.data() + first_[index];
    if (!needed[index]) {
      // Nothing runs it; without an operation it has no tensors either.
      node.op = Op::detach;
      continue;
    }
    if (!hasWeights(node)) continue;
    at::Tensor weight = of[0].tensor.detach(), bias = of[1].tensor.detach();
    if (node.op == Op::conv && node.normalized) {
      const at::Tensor factor = of[1].tensor / (of[4].tensor + kNormEpsilon).sqrt();
      weight = weight * factor.view({-1, 1, 1, 1});
      bias = of[2].tensor - of[3].tensor * factor;
      node.normalized = false;
    } else {
      weight = weight.clone();
      bias = bias.clone();
    }
    folded.push_back({node.name + ".weight", weight.detach(), TensorKind::buffer});
    folded.push_back({node.name + ".bias", bias.detach(), TensorKind::buffer});
  }
  Network network(graph, device_, std::move(folded));
  network.setPrecision(precision_);
  network.setStop(stop_);
  return network;
}

std::pair<at::Tensor, at::Tensor> decode(const BranchMaps& maps) {
  std::vector<at::Tensor> boxes, scores;
  for (size_t level = 0; level < maps.box.size(); ++level) {
    const at::Tensor& box = maps.box[level];
    const int64_t height = box.size(2), width = box.size(3);
    const auto options = box.options();
    const at::Tensor xs = at::arange(width, options) + 0.5, ys = at::arange(height, options) + 0.5;
    const at::Tensor centres = at::stack({xs.view({1, width}).expand({height, width}),
                                          ys.view({height, 1}).expand({height, width})},
                                         2)
                                   .view({1, height * width, 2});
    const at::Tensor sides = box.flatten(2).transpose(1, 2);
    const at::Tensor corners =
        at::cat({centres - sides.narrow(2, 0, 2), centres + sides.narrow(2, 2, 2)}, 2);
    boxes.push_back(corners * kStrides[level]);
    scores.push_back(maps.cls[level].flatten(2).transpose(1, 2).sigmoid());
  }
  return {at::cat(boxes, 1), at::cat(scores, 1)};
}

BestDetections endToEnd(const at::Tensor& boxes, const at::Tensor& scores, int64_t limit) {
  const int64_t anchors = scores.size(1), classes = scores.size(2);
  const int64_t kept = std::min(limit, anchors);
  const at::Tensor best = std::get<1>(scores.amax(-1).topk(kept, 1)).unsqueeze(-1);
  const at::Tensor candidates = scores.gather(1, best.expand({-1, -1, classes})).flatten(1);
  const auto [score, flat] = candidates.topk(kept, 1);
  const at::Tensor cls = flat.remainder(classes);
  const at::Tensor anchor = flat.div(classes, "floor").unsqueeze(-1);
  const at::Tensor chosen =
      boxes.gather(1, best.expand({-1, -1, 4})).gather(1, anchor.expand({-1, -1, 4}));
  const at::Tensor ofClass = cls.to(scores.scalar_type()).unsqueeze(-1);
  return {at::cat({chosen, score.unsqueeze(-1), ofClass}, 2), best.gather(1, anchor).squeeze(-1)};
}

}  // namespace vantage
