// Batch norm and SiLU on the GPU. A thread has some neighbouring channels, whose numbers it keeps,
// and walks down cells: a warp reads memory that lies side by side, whatever the channels.
#include "../norm-silu.h"

namespace vantage {
namespace {

constexpr int kThreads = 256, kLanesMax = 32;

/** Neighbouring values that a thread reads at once. */
template <typename Element, int kWide>
struct alignas(sizeof(Element) * kWide) Vector {
  Element at[kWide];
};

template <int kWide>
__device__ void readChannels(const NormMap& map, int first, NormChannel (&channels)[kWide]) {
#pragma unroll
  for (int i = 0; i < kWide; ++i)
    channels[i] = {map.mean[first + i], map.factor[first + i], map.weight[first + i],
                   map.bias[first + i]};
}

/** The channels and the cells that a thread has. */
template <int kWide>
struct Share {
  int first;
  int64_t cell, end;
  __device__ explicit Share(const NormMap& map)
      : first((blockIdx.y * blockDim.x + threadIdx.x) * kWide),
        cell(static_cast<int64_t>(blockIdx.x) * kNormCells + threadIdx.y) {
    const int64_t last = (static_cast<int64_t>(blockIdx.x) + 1) * kNormCells;
    end = last < map.cells ? last : map.cells;
    if (first >= map.channels) end = 0;
  }
  __device__ int64_t index(const NormMap& map) const { return cell * map.channels + first; }
};

template <typename Element, int kWide>
__global__ void forwardKernel(NormMap map, Element* result) {
  Share<kWide> share(map);
  if (share.cell >= share.end) return;
  NormChannel channels[kWide];
  readChannels(map, share.first, channels);
  for (; share.cell < share.end; share.cell += blockDim.y) {
    const int64_t index = share.index(map);
    const auto x = *reinterpret_cast<const Vector<Element, kWide>*>(
        static_cast<const Element*>(map.values) + index);
    Vector<Element, kWide> y;
#pragma unroll
    for (int i = 0; i < kWide; ++i) store(normSilu(wide(x.at[i]), channels[i]), y.at[i]);
    *reinterpret_cast<Vector<Element, kWide>*>(result + index) = y;
  }
}

template <typename Element, int kWide>
__global__ void sumsKernel(NormMap map, const Element* slopes, float* sums) {
  // All threads reach the barriers below, also those without a cell or a channel.
  Share<kWide> share(map);
  NormMeans own[kWide] = {};
  if (share.cell < share.end) {
    NormChannel channels[kWide];
    readChannels(map, share.first, channels);
    for (; share.cell < share.end; share.cell += blockDim.y) {
      const int64_t index = share.index(map);
      const auto x = *reinterpret_cast<const Vector<Element, kWide>*>(
          static_cast<const Element*>(map.values) + index);
      const auto dy = *reinterpret_cast<const Vector<Element, kWide>*>(slopes + index);
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const float normal = normalOf(wide(x.at[i]), channels[i]);
        const float slope = slopeOfNorm(wide(dy.at[i]), normal, channels[i]);
        own[i].slope += slope;
        own[i].product += slope * normal;
      }
    }
  }
  __shared__ NormMeans parts[kThreads][kWide];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kWide; ++i) parts[thread][i] = own[i];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      parts[thread][i].slope += parts[thread + half * blockDim.x][i].slope;
      parts[thread][i].product += parts[thread + half * blockDim.x][i].product;
    }
  }
  if (threadIdx.y != 0 || share.first >= map.channels) return;
  float* to = sums + static_cast<int64_t>(blockIdx.x) * 2 * map.channels + share.first;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    to[i] = parts[thread][i].slope;
    to[map.channels + i] = parts[thread][i].product;
  }
}

template <typename Element, int kWide>
__global__ void slopesKernel(NormMap map, const Element* slopes, const float* means,
                             Element* result) {
  Share<kWide> share(map);
  if (share.cell >= share.end) return;
  NormChannel channels[kWide];
  readChannels(map, share.first, channels);
  NormMeans own[kWide];
#pragma unroll
  for (int i = 0; i < kWide; ++i)
    own[i] = {means[share.first + i], means[map.channels + share.first + i]};
  for (; share.cell < share.end; share.cell += blockDim.y) {
    const int64_t index = share.index(map);
    const auto x = *reinterpret_cast<const Vector<Element, kWide>*>(
        static_cast<const Element*>(map.values) + index);
    const auto dy = *reinterpret_cast<const Vector<Element, kWide>*>(slopes + index);
    Vector<Element, kWide> dx;
#pragma unroll
    for (int i = 0; i < kWide; ++i)
      store(slopeOfMap(wide(dy.at[i]), wide(x.at[i]), channels[i], own[i]), dx.at[i]);
    *reinterpret_cast<Vector<Element, kWide>*>(result + index) = dx;
  }
}

/** Blocks of a map's cells and channels, and threads across channels and down cells. */
struct Launch {
  dim3 blocks, threads;
  Launch(const NormMap& map, int wide) {
    const int across = map.channels / wide;
    unsigned lanes = 1;
    while (lanes < kLanesMax && static_cast<int>(lanes) < across) lanes *= 2;
    threads = dim3(lanes, kThreads / lanes);
    blocks = dim3(static_cast<unsigned>(normBlocks(map.cells)),
                  (static_cast<unsigned>(across) + lanes - 1) / lanes);
  }
};

template <typename Element, int kWide, typename Body>
int launched(const NormMap& map, Body body) {
  body(Launch(map, kWide), Vector<Element, kWide>{});
  return cudaGetLastError();
}

/** Calls with a launch, and with the vector that the map's type and channels allow. */
template <typename Body>
int chosen(const NormMap& map, Body body) {
  constexpr int kWide = 4;
  const bool isWide = map.channels % kWide == 0;
  if (map.element == NormElement::bf16)
    return isWide ? launched<Bf16, kWide>(map, body) : launched<Bf16, 1>(map, body);
  return isWide ? launched<float, kWide>(map, body) : launched<float, 1>(map, body);
}

/** Launches a kernel template of a vector's type and width. */
template <typename Element, int kWide>
void forward(const Launch& launch, Vector<Element, kWide>, const NormMap& map, void* result,
             cudaStream_t stream) {
  forwardKernel<Element, kWide>
      <<<launch.blocks, launch.threads, 0, stream>>>(map, static_cast<Element*>(result));
}

template <typename Element, int kWide>
void summed(const Launch& launch, Vector<Element, kWide>, const NormMap& map, const void* slopes,
            float* sums, cudaStream_t stream) {
  sumsKernel<Element, kWide><<<launch.blocks, launch.threads, 0, stream>>>(
      map, static_cast<const Element*>(slopes), sums);
}

template <typename Element, int kWide>
void sloped(const Launch& launch, Vector<Element, kWide>, const NormMap& map, const void* slopes,
            const float* means, void* result, cudaStream_t stream) {
  slopesKernel<Element, kWide><<<launch.blocks, launch.threads, 0, stream>>>(
      map, static_cast<const Element*>(slopes), means, static_cast<Element*>(result));
}

}  // namespace

int normSiluCuda(const NormMap& map, void* result, void* stream) {
  return chosen(map, [&](const Launch& launch, auto vector) {
    forward(launch, vector, map, result, static_cast<cudaStream_t>(stream));
  });
}

int normSumsCuda(const NormMap& map, const void* slopes, float* sums, void* stream) {
  return chosen(map, [&](const Launch& launch, auto vector) {
    summed(launch, vector, map, slopes, sums, static_cast<cudaStream_t>(stream));
  });
}

int normSlopesCuda(const NormMap& map, const void* slopes, const float* means, void* result,
                   void* stream) {
  return chosen(map, [&](const Launch& launch, auto vector) {
    sloped(launch, vector, map, slopes, means, result, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace vantage
