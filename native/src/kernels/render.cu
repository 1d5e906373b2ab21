// Rendering plans on the GPU: a thread per pixel, running the definition of sample.h. Raw pointers
// and a stream, no torch.
#include "../image.h"

namespace vantage {
namespace {

/** Threads of a block across and down. */
constexpr int kWide = 32, kHigh = 8;

// A plan is read by every thread of its block, so the block takes it into shared memory first.
__global__ void renderPixels(const uint8_t* __restrict__ file, const uint8_t* __restrict__ stencils,
                             const Plan* __restrict__ plans, int size, float* __restrict__ out) {
  static_assert(sizeof(Plan) % sizeof(uint32_t) == 0, "a plan is copied word by word");
  __shared__ alignas(Plan) uint32_t words[sizeof(Plan) / sizeof(uint32_t)];
  const uint32_t* source = reinterpret_cast<const uint32_t*>(plans + blockIdx.z);
  for (unsigned i = threadIdx.y * kWide + threadIdx.x; i < sizeof(Plan) / sizeof(uint32_t);
       i += kWide * kHigh)
    words[i] = source[i];
  __syncthreads();
  const Plan& plan = *reinterpret_cast<const Plan*>(words);
  const int x = blockIdx.x * kWide + threadIdx.x, y = blockIdx.y * kHigh + threadIdx.y;
  if (x >= size || y >= size) return;
  const PixelSource from{file, stencils + blockIdx.z * stencilBytes(size), size};
  const Colour colour = planColour(from, plan, x, y);
  const int64_t plane = static_cast<int64_t>(size) * size;
  float* pixel = out + 3 * plane * blockIdx.z + static_cast<int64_t>(y) * size + x;
  pixel[0] = colour.r / 255;
  pixel[plane] = colour.g / 255;
  pixel[2 * plane] = colour.b / 255;
}

}  // namespace

int renderCuda(const Rendering& rendering, void* stream) {
  const auto& [file, stencils, plans, count, size, images] = rendering;
  const dim3 blocks((size + kWide - 1) / kWide, (size + kHigh - 1) / kHigh, count);
  renderPixels<<<blocks, dim3(kWide, kHigh), 0, static_cast<cudaStream_t>(stream)>>>(
      file, stencils, plans, size, images);
  return cudaGetLastError();
}

}  // namespace vantage
