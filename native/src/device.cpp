// Devices as torch and CUDA show them; on the CPU, memory is the process's.
#include "device.h"

#include <malloc.h>

#include <fstream>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/cuda.h>
#include <torch/version.h>
#ifdef VANTAGE_GPU
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace vantage {
namespace {

/** A figure of /proc/self/status in bytes. */
uint64_t processBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field + ":", 0) == 0) return std::stoull(line.substr(field.size() + 1)) * 1024;
  return 0;
}

}  // namespace

std::string torchVersion() { return TORCH_VERSION; }

std::vector<Gpu> gpus() {
  std::vector<Gpu> found;
  const auto count = static_cast<int>(torch::cuda::device_count());
  for (int at = 0; at < count; ++at) {
    Gpu gpu{"GPU " + std::to_string(at), 0};
#ifdef VANTAGE_GPU
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, at) == cudaSuccess)
      gpu = {properties.name, properties.totalGlobalMem};
#endif
    found.push_back(gpu);
  }
  return found;
}

at::Device deviceOf(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  if (name != "cuda") throw EngineError("bad_argument", "device is cpu or cuda, not " + name);
  if (!torch::cuda::is_available()) {
#ifdef VANTAGE_GPU
    throw EngineError("gpu_unavailable", "torch sees no GPU on this machine");
#else
    throw EngineError("gpu_unavailable", "the engine was built with a torch without CUDA");
#endif
  }
  return at::Device(at::kCUDA, 0);
}

#ifdef VANTAGE_GPU
namespace {

/** Figures of torch's allocator for all of a device. */
template <typename Pick>
int64_t allocated(c10::DeviceIndex device, Pick pick) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
  return pick(stats.allocated_bytes[0]);
}

}  // namespace
#endif

int64_t gpuBytes() {
  int64_t sum = 0;
#ifdef VANTAGE_GPU
  for (int at = 0; at < static_cast<int>(torch::cuda::device_count()); ++at)
    sum += allocated(static_cast<c10::DeviceIndex>(at),
                     [](const auto& stat) { return stat.current; });
#endif
  return sum;
}

uint64_t memoryBytes(const at::Device& device) {
#ifdef VANTAGE_GPU
  if (device.is_cuda())
    return allocated(device.index(), [](const auto& stat) { return stat.current; });
#endif
  return processBytes("VmRSS");
}

uint64_t peakMemoryBytes(const at::Device& device) {
#ifdef VANTAGE_GPU
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return stats.reserved_bytes[0].peak;
  }
#endif
  return processBytes("VmHWM");
}

void resetPeakMemory(const at::Device& device) {
#ifdef VANTAGE_GPU
  if (device.is_cuda()) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
    return;
  }
#endif
  // 5 sets the process's high water mark back to what it uses now.
  std::ofstream("/proc/self/clear_refs") << "5";
}

void releaseMemory(const at::Device& device) {
#ifdef VANTAGE_GPU
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
#endif
#ifdef __GLIBC__
  // Every thread of an engine had a heap of its own.
  malloc_trim(0);
#endif
}

void synchronize(const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

void* currentStream(const at::Device& device) {
#ifdef VANTAGE_GPU
  if (device.is_cuda()) return c10::cuda::getCurrentCUDAStream(device.index()).stream();
#endif
  return nullptr;
}

Autocast::Autocast(bool on, const at::Device& device) : on_(on && device.is_cuda()) {
  if (!on_) return;
  namespace cast = at::autocast;
  // Every weight is used once a pass: keeping its cast copy would only hold memory.
  cache_ = cast::is_autocast_cache_enabled();
  cast::set_autocast_cache_enabled(false);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  before_ = cast::is_autocast_enabled(at::kCUDA);
  cast::set_autocast_enabled(at::kCUDA, true);
  cast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
#else
  before_ = cast::is_enabled();
  cast::set_enabled(true);
  cast::set_autocast_gpu_dtype(at::kBFloat16);
#endif
  cast::increment_nesting();
}

Autocast::~Autocast() {
  if (!on_) return;
  namespace cast = at::autocast;
  if (cast::decrement_nesting() == 0) cast::clear_cache();
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  cast::set_autocast_enabled(at::kCUDA, before_);
#else
  cast::set_enabled(before_);
#endif
  cast::set_autocast_cache_enabled(cache_);
}

}  // namespace vantage
