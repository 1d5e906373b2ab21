// Devices as torch and CUDA show them; on the CPU, memory is the process's.
#include "device.h"

#include <malloc.h>
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <fstream>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#include <torch/version.h>
#include "flags.h"
// The oldest torch whose allocator was tried with graphs of CUDA.
#if defined(VANTAGE_GPU) && \
    (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11))
#define VANTAGE_GRAPHS
#include <ATen/cuda/CUDAGraph.h>
#endif
#ifdef VANTAGE_GPU
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace vantage {
namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool isAutocast(at::DeviceType type) { return at::autocast::is_autocast_enabled(type); }
void setAutocast(at::DeviceType type, bool isOn, at::ScalarType to) {
  at::autocast::set_autocast_enabled(type, isOn);
  if (isOn) at::autocast::set_autocast_dtype(type, to);
}
#else
bool isAutocast(at::DeviceType type) {
  return type == at::kCUDA ? at::autocast::is_enabled() : at::autocast::is_cpu_enabled();
}
void setAutocast(at::DeviceType type, bool isOn, at::ScalarType to) {
  if (type == at::kCUDA) {
    at::autocast::set_enabled(isOn);
    if (isOn) at::autocast::set_autocast_gpu_dtype(to);
  } else {
    at::autocast::set_cpu_enabled(isOn);
    if (isOn) at::autocast::set_autocast_cpu_dtype(to);
  }
}
#endif

#ifdef VANTAGE_GPU
/** Compute capability from which there is bf16: Ampere's. */
constexpr int kBf16Major = 8;
#endif

/** A figure of /proc/self/status in bytes. */
uint64_t processBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field + ":", 0) == 0) return std::stoull(line.substr(field.size() + 1)) * 1024;
  return 0;
}

}  // namespace

std::string torchVersion() { return TORCH_VERSION; }

std::string torchSource() { return VANTAGE_TORCH_SOURCE; }

bool hasCpuBf16() {
#if defined(__x86_64__)
  // Processors with AMX have these instructions as well.
  return __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__) && defined(HWCAP2_BF16)
  return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#else
  return false;
#endif
}

std::vector<Gpu> gpus() {
  std::vector<Gpu> all;
  const auto count = static_cast<int>(torch::cuda::device_count());
  for (int index = 0; index < count; ++index) {
    Gpu gpu;
    gpu.name = "GPU " + std::to_string(index);
#ifdef VANTAGE_GPU
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess)
      gpu = {properties.name, properties.totalGlobalMem, properties.major >= kBf16Major, {}};
    char bus[16] = {};
    if (cudaDeviceGetPCIBusId(bus, sizeof(bus), index) == cudaSuccess) gpu.pciBusId = bus;
#endif
    all.push_back(gpu);
  }
  return all;
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

/** A figure of torch's allocator for all memory of a device. */
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
  try {
    for (int index = 0; index < static_cast<int>(torch::cuda::device_count()); ++index)
      sum += allocated(static_cast<c10::DeviceIndex>(index),
                       [](const auto& stat) { return stat.current; });
  } catch (const c10::Error&) {
    // Nothing used the GPU yet: torch has not set its allocator up.
  }
#endif
  return sum;
}

uint64_t freeBytes(const at::Device& device) {
#ifdef VANTAGE_GPU
  if (device.is_cuda()) {
    // CUDA tells it of the thread's present GPU alone.
    const c10::cuda::CUDAGuard present(device.index());
    size_t free = 0, all = 0;
    if (cudaMemGetInfo(&free, &all) == cudaSuccess) return free;
  }
#endif
  (void)device;
  return 0;
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
  // Writing 5 resets the process's peak of resident memory (VmHWM) to its present size.
  std::ofstream("/proc/self/clear_refs") << "5";
}

void keepStepMemory(const at::Device& device) {
#ifdef __GLIBC__
  constexpr int kHeapEnd = 64 << 20, kBlock = 32 << 20;
  if (device.is_cuda()) return;
  // Whether it is refused or not, steps are the same.
  mallopt(M_TRIM_THRESHOLD, kHeapEnd);
  mallopt(M_MMAP_THRESHOLD, kBlock);
#endif
}

void releaseMemory(const at::Device& device) {
#ifdef VANTAGE_GPU
  try {
    if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const c10::Error&) {
    // Then it is not given back: whoever asks for that is mostly in trouble already.
  }
#endif
#ifdef __GLIBC__
  // glibc gave every thread of the engine a heap, and keeps what was freed there.
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

void useOwnStream(const at::Device& device) {
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl streams(device.type());
  streams.exchangeStream(streams.getStreamFromGlobalPool(device));
}

Uploads::Uploads(const at::Device& device) : device_(device) {
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl streams(device.type());
  // Never the stream of the steps: the pool gives another one each time.
  do stream_ = streams.getStreamFromGlobalPool(device);
  while (*stream_ == streams.getStream(device));
}

at::Tensor Uploads::begin(const at::Tensor& pinned) const {
  if (!stream_ || !pinned.defined()) return pinned;
  const c10::StreamGuard guard(*stream_);
  return pinned.to(device_, pinned.scalar_type(), kNonBlocking);
}

Uploads::Mark Uploads::mark() const {
  if (!stream_) return nullptr;
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(*stream_);
  return event;
}

void Uploads::await(const Mark& mark, const std::vector<at::Tensor>& copies) const {
  if (!mark) return;
  const auto reader = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  static_cast<c10::Event*>(mark.get())->block(reader);
  // Their memory is not given to a later copy before what reads them is done.
  for (const at::Tensor& copy : copies)
    if (copy.defined()) copy.record_stream(reader);
}

bool canRecord(const at::Device& device) {
#ifdef VANTAGE_GRAPHS
  return device.is_cuda();
#else
  (void)device;
  return false;
#endif
}

#ifdef VANTAGE_GRAPHS
/**
 * A graph of CUDA and the memory that it computes in. Not torch's `CUDAGraph`, which never releases
 * the memory of a capture that failed, and then counts the capture as being under way.
 */
struct Recording::Graph {
  Graph(const at::Device& device, at::cuda::MempoolId_t pool)
      : device(device.index()), pool(pool) {}
  ~Graph() {
    if (executable) cudaGraphExecDestroy(executable);
    if (!holdsPool) return;
    try {
      c10::cuda::CUDACachingAllocator::releasePool(device, pool);
    } catch (const c10::Error&) {
      // A destructor can't report it; the memory stays with the process.
    }
  }
  Graph(const Graph&) = delete;

  /** Captures what the work launches on the thread's stream, instead of executing it. */
  void capture(const std::function<void()>& work) {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
    const auto isCaptured = [stream](cudaStream_t other) { return other == stream; };
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(device, pool, isCaptured);
    holdsPool = true;
    cudaGraph_t graph = nullptr;
    std::exception_ptr failure;
    // Another thread prepares the next batch meanwhile: its calls are not captured.
    cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (status == cudaSuccess) {
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      status = cudaStreamEndCapture(stream, &graph);
    }
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
    if (status == cudaSuccess && !failure)
      status = cudaGraphInstantiateWithFlags(&executable, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (failure) {
      // The error of the invalidated capture, which the next call would report as its own.
      cudaGetLastError();
      std::rethrow_exception(failure);
    }
    C10_CUDA_CHECK(status);
  }

  void launch() const {
    C10_CUDA_CHECK(
        cudaGraphLaunch(executable, c10::cuda::getCurrentCUDAStream(device).stream()));
  }

  c10::DeviceIndex device;
  at::cuda::MempoolId_t pool;
  bool holdsPool = false;
  cudaGraphExec_t executable = nullptr;
};
#else
struct Recording::Graph {};
#endif

Recording::Recording(const at::Device& device, std::function<void()> work, const Recording* beside)
    : device_(device), work_(std::move(work)), beside_(beside) {}
Recording::~Recording() = default;

std::unique_ptr<Recording::Graph> Recording::record() const {
#ifdef VANTAGE_GRAPHS
  const bool isShared = beside_ && beside_->graph_;
  auto recorded = std::make_unique<Graph>(
      device_, isShared ? beside_->graph_->pool : at::cuda::graph_pool_handle());
  // A capture takes none of the memory that the allocator keeps from earlier steps, and the
  // allocator releases none while a capture is under way.
  releaseMemory(device_);
  recorded->capture(work_);
  return recorded;
#else
  return nullptr;
#endif
}

void Recording::run() {
  if (!wasRun_ || !canRecord(device_)) {
    work_();
    wasRun_ = true;
    return;
  }
  if (!graph_) graph_ = record();
#ifdef VANTAGE_GRAPHS
  graph_->launch();
#endif
}

Autocast::Autocast(Precision precision, const at::Device& device)
    : isOn_(precision != Precision::fp32), type_(device.type()) {
  if (!isOn_) return;
  namespace cast = at::autocast;
  // Every weight is used once a pass: keeping its cast copy would only hold memory.
  cache_ = cast::is_autocast_cache_enabled();
  cast::set_autocast_cache_enabled(kDisabled);
  before_ = isAutocast(type_);
  setAutocast(type_, kEnabled, precision == Precision::fp16 ? at::kHalf : at::kBFloat16);
  cast::increment_nesting();
}

Autocast::~Autocast() {
  if (!isOn_) return;
  namespace cast = at::autocast;
  if (cast::decrement_nesting() == 0) cast::clear_cache();
  setAutocast(type_, before_, at::kBFloat16);
  cast::set_autocast_cache_enabled(cache_);
}

}  // namespace vantage
