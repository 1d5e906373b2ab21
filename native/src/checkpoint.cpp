// Checkpoints: everything that the next step depends on, in one safetensors file. The averaged
// weights have their plain names, so that a checkpoint is a model as well; all else begins with
// `trainer.`. Made between steps; gathered gradients go along where a step is still to come. The
// same is what the first of several processes gives the others as they join.
#include <cstring>
#include <map>

#include "core.h"
#include "engine.h"
#include "flags.h"
#include "safetensors.h"
#include "trainer.h"

namespace vantage {
namespace {

constexpr const char* kCounters = "trainer.counters";

const char* dtypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return "F32";
    case at::kDouble: return "F64";
    case at::kLong: return "I64";
    default: throw EngineError("internal", "a checkpoint has no such type");
  }
}

/** Tensors that are to be stored or written over. Gradients only where some were gathered. */
std::vector<NamedTensor> partsOf(const Network& network, const Training& training,
                                 bool withGradients) {
  std::vector<NamedTensor> all = training.ema.state();
  const auto add = [&](const std::string& kind, const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& named : tensors)
      all.push_back(
          {kTrainerPrefix + kind + named.name, named.tensor.detach(), TensorKind::buffer});
  };
  add("model.", network.state());
  add("", training.optimizer.state());
  if (withGradients) add("gradient.", training.packed.learnedOf(training.optimizer.gradients()));
  all.push_back({"trainer.sums", training.sums, TensorKind::buffer});
  return all;
}

[[noreturn]] void refuse(const std::string& why) { throw EngineError("bad_weights", why); }

/** The file's tensor, which has to be as `like`. */
at::Tensor read(const std::map<std::string, const StoredTensor*>& stored, const std::string& name,
                const at::Tensor& like) {
  const auto found = stored.find(name);
  if (found == stored.end()) refuse("the checkpoint has no " + name);
  const StoredTensor& tensor = *found->second;
  if (tensor.dtype != dtypeOf(like) || at::IntArrayRef(tensor.shape) != like.sizes())
    refuse("the checkpoint has another " + name);
  const auto values = at::empty(tensor.shape, like.scalar_type());
  if (tensor.bytes > 0) std::memcpy(values.data_ptr(), tensor.data, tensor.bytes);
  return values;
}

}  // namespace

FileCopy copyOf(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> kept;
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor, kind] : tensors) {
    kept.push_back(tensor.detach().to(at::kCPU, tensor.scalar_type(), kBlocking, kCopy,
                                      at::MemoryFormat::Contiguous));
    const at::Tensor& copy = kept.back();
    stored.push_back({name, dtypeOf(copy), copy.sizes().vec(),
                      static_cast<const uint8_t*>(copy.data_ptr()), copy.nbytes()});
  }
  return [kept = std::move(kept), stored = std::move(stored)](const auto& path,
                                                              const auto& metadata) {
    return writeTensors(path, stored, metadata);
  };
}

FileCopy Engine::checkpoint() const {
  const at::NoGradGuard none;
  core_->needsTraining();
  const Training& training = *core_->training;
  auto all = partsOf(core_->network, training, training.gathered > 0);
  const auto counters = at::empty({2}, at::kLong);
  counters.data_ptr<int64_t>()[0] = training.ema.updates();
  counters.data_ptr<int64_t>()[1] = training.gathered;
  all.push_back({kCounters, counters, TensorKind::buffer});
  return copyOf(all);
}

std::map<std::string, std::string> Engine::restore(const std::string& path) {
  const at::NoGradGuard none;
  core_->needsTraining();
  core_->needsNoGroup();
  Training& training = *core_->training;
  const TensorFile file(path);
  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& tensor : file.tensors()) stored[tensor.name] = &tensor;
  const auto counters = read(stored, kCounters, at::empty({2}, at::kLong));
  const int64_t updates = counters.data_ptr<int64_t>()[0];
  const int64_t gathered = counters.data_ptr<int64_t>()[1];
  if (updates < 0 || gathered < 0) refuse("the checkpoint counts below 0");
  const auto all = partsOf(core_->network, training, gathered > 0);
  // A name more is what another optimiser keeps.
  if (stored.size() != all.size() + 1) refuse("the checkpoint is of another training");
  // All is read before anything is written over: a refusal leaves the engine as it was.
  std::vector<at::Tensor> values;
  for (const NamedTensor& named : all) values.push_back(read(stored, named.name, named.tensor));
  for (size_t i = 0; i < all.size(); ++i) all[i].tensor.copy_(values[i]);
  if (gathered == 0) training.optimizer.forget();
  training.ema.setUpdates(updates);
  training.gathered = gathered;
  return file.metadata();
}

void Engine::join(const GroupOptions& options) {
  const at::NoGradGuard none;
  core_->needsTraining();
  core_->needsNoGroup();
  Training& training = *core_->training;
  auto group = std::make_unique<Group>(options, core_->device);
  constexpr bool kWithGradients = true;
  for (const NamedTensor& named : partsOf(core_->network, training, kWithGradients))
    group->copyFromFirst(named.tensor);
  const auto counters = at::empty({2}, at::kLong);
  counters.data_ptr<int64_t>()[0] = training.ema.updates();
  counters.data_ptr<int64_t>()[1] = training.gathered;
  group->copyFromFirst(counters);
  training.ema.setUpdates(counters.data_ptr<int64_t>()[0]);
  training.gathered = counters.data_ptr<int64_t>()[1];
  core_->group = std::move(group);
  core_->buckets = std::make_unique<GradientBuckets>(core_->network.state(), *core_->group);
  if (options.synchronizesNorms) core_->network.setGroup(core_->group.get());
}

}  // namespace vantage
