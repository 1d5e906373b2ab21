// Devices and their memory, and what differs between the generations of torch: the only file that
// reads torch's version.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include "engine.h"

namespace vantage {

/** `cpu` or `cuda`; fails with `gpu_unavailable`. */
at::Device deviceOf(const std::string& name);
std::vector<Gpu> gpus();
std::string torchVersion();
/** Whether this build's torch is a `wheel` of PyPI or of the `system`. */
std::string torchSource();
/** The CPU has instructions for bf16; without them torch computes it in software, slowly. */
bool hasCpuBf16();

/** Bytes in use: of the GPU by tensors of this process, of the CPU by the whole process. */
uint64_t memoryBytes(const at::Device& device);
/** The maximum of `memoryBytes` since `resetPeakMemory`. */
uint64_t peakMemoryBytes(const at::Device& device);
void resetPeakMemory(const at::Device& device);
/** Bytes that are free on that GPU beside what torch keeps for later tensors; else 0. */
uint64_t freeBytes(const at::Device& device);
/** Bytes of GPU memory that tensors of this process hold. */
int64_t gpuBytes();
/**
 * From now on, what this process frees of a CPU's maps stays with it for the next step, up to the
 * bounds that glibc reaches by itself where it sees large blocks come and go: 64 MB at a heap's
 * end, and blocks up to 32 MB. Given back in between, every page is mapped and zeroed anew.
 */
void keepStepMemory(const at::Device& device);
/** Gives unused memory, which allocators would keep, back to the system. */
void releaseMemory(const at::Device& device);
/** Waits until the device has done what it was given. */
void synchronize(const at::Device& device);
/** The cudaStream_t that torch is using; null on the CPU. */
void* currentStream(const at::Device& device);
/**
 * Gives what the calling thread launches on a GPU from now on a stream of its own, as recordings
 * ask for one that is not the default.
 */
void useOwnStream(const at::Device& device);

/** Copies to a GPU beside what it computes, on a stream of their own; on a CPU there are none. */
class Uploads {
 public:
  /** Null where nothing was copied. */
  using Mark = std::shared_ptr<void>;

  explicit Uploads(const at::Device& device);
  /** Begins a copy, on any thread, of memory that is pinned; on a CPU gives the tensor itself. */
  at::Tensor begin(const at::Tensor& pinned) const;
  /** The end of the copies that were begun. */
  Mark mark() const;
  /**
   * What the calling thread launches from now on waits for the mark, on the GPU; the host does not
   * wait. `copies` are those that it is going to read.
   */
  void await(const Mark& mark, const std::vector<at::Tensor>& copies) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;
};

/** Whether a recording saves launches on that device; elsewhere its work is done anew. */
bool canRecord(const at::Device& device);

/**
 * Work that is the same every time, on tensors that stay where they are. On a GPU what it launches
 * is recorded as one graph of CUDA, and launched as one; on a CPU it is done anew.
 */
class Recording {
 public:
  /** Memory that the work allocates is shared with `beside`, which is done before it. */
  Recording(const at::Device& device, std::function<void()> work, const Recording* beside);
  ~Recording();
  Recording(const Recording&) = delete;

  /**
   * Does the work. The first time it is done as it is, so that libraries load and choose what a
   * recording does not allow them to; the second time on a GPU it is recorded: the host runs it
   * once, and what it leaves stays where it is until the host lets it go.
   */
  void run();

 private:
  struct Graph;
  std::unique_ptr<Graph> record() const;

  at::Device device_;
  std::function<void()> work_;
  const Recording* beside_;
  bool wasRun_ = false;
  std::unique_ptr<Graph> graph_;
};

/** Autocast to a precision on the device while it lives; no effect for fp32. */
class Autocast {
 public:
  Autocast(Precision precision, const at::Device& device);
  ~Autocast();
  Autocast(const Autocast&) = delete;

 private:
  bool isOn_, before_ = false, cache_ = false;
  at::DeviceType type_;
};

}  // namespace vantage
