// The kernel's twin on the CPU. A map is read in the order of its memory, which is what a pass
// waits for, in rows of some cells each. Loops go over neighbouring values of a row: the compiler
// makes vectors of them, in a copy of each function for the vectors of any CPU.
#include "norm-silu.h"

#include <algorithm>
#include <type_traits>
#include <vector>

// The loader takes the copy of a function that the CPU can run.
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define VANTAGE_VECTORS \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define VANTAGE_VECTORS
#endif
/** A lambda becomes part of whoever calls it, so of each copy. */
#define VANTAGE_INLINED __attribute__((always_inline))

namespace vantage {
namespace {

/** Values that are one vector where the CPU's are widest. */
constexpr int kLanes = 16;
/** Values of a row at least: with fewer, a sum would wait for itself in every cell. */
constexpr int kRowValues = 64;
/** Values whose moments are made at once: they are read twice, so they have to stay in a cache. */
constexpr int64_t kTileValues = 16384;

/** Cells of a row: a power of two, so that blocks have whole rows. */
int rowCells(const NormMap& map) {
  int cells = 1;
  while (cells * map.channels < kRowValues) cells *= 2;
  return cells;
}

/** Values of blocks, and of a row; the last row of a map may have fewer. */
struct Span {
  int64_t first, end, row;
  Span(const NormMap& map, NormBlocks blocks)
      : first(blocks.from * kNormCells * map.channels),
        end(std::min(blocks.to * kNormCells, map.cells) * map.channels),
        row(int64_t{rowCells(map)} * map.channels) {}
};

/** Numbers of channels, repeated for every cell of a row. */
std::vector<float> repeated(const float* numbers, const NormMap& map) {
  std::vector<float> row;
  for (int cell = rowCells(map); cell > 0; --cell)
    row.insert(row.end(), numbers, numbers + map.channels);
  return row;
}

/** Adds what belongs to a channel in the cells of a row. */
void fold(const std::vector<float>& row, const NormMap& map, float* sums) {
  std::copy_n(row.begin(), map.channels, sums);
  for (size_t i = map.channels; i < row.size(); ++i) sums[i % map.channels] += row[i];
}

/** What the values of a row are normalised by. */
struct RowNorms {
  std::vector<float> mean, factor, weight, bias;
  explicit RowNorms(const NormMap& map)
      : mean(repeated(map.mean, map)),
        factor(repeated(map.factor, map)),
        weight(repeated(map.weight, map)),
        bias(repeated(map.bias, map)) {}
  VANTAGE_HD NormChannel operator[](int64_t i) const {
    return {mean[i], factor[i], weight[i], bias[i]};
  }
};

/** Neighbouring values: copies, so that nothing else lies where they do. */
template <int kCount>
struct Run {
  float at[kCount];
};

template <int kCount, typename Element>
VANTAGE_HD Run<kCount> readRun(const Element* from) {
  Run<kCount> run;
  for (int i = 0; i < kCount; ++i) run.at[i] = wide(from[i]);
  return run;
}

template <int kCount, typename Element>
VANTAGE_HD void writeRun(const Run<kCount>& run, Element* to) {
  Element written[kCount];
  for (int i = 0; i < kCount; ++i) store(run.at[i], written[i]);
  memcpy(to, written, sizeof(written));
}

/** Calls with the index of a run's first value, that in its row, and the run's length. */
template <typename Body>
VANTAGE_HD void eachRun(int64_t first, int64_t end, int64_t width, Body body) {
  for (int64_t row = first; row < end; row += width) {
    const int64_t values = std::min(width, end - row);
    int64_t at = 0;
    for (; at + kLanes <= values; at += kLanes)
      body(row + at, at, std::integral_constant<int, kLanes>());
    for (; at < values; ++at) body(row + at, at, std::integral_constant<int, 1>());
  }
}

/** Calls with null of the map's type and with its activation, which the compiler then knows. */
template <typename Body>
VANTAGE_HD void typed(const NormMap& map, Body body) {
  constexpr std::integral_constant<Activation, Activation::silu> silu;
  constexpr std::integral_constant<Activation, Activation::none> none;
  const bool isSilu = map.activation == Activation::silu;
  if (map.element == NormElement::bf16) {
    constexpr Bf16* type = nullptr;
    return isSilu ? body(type, silu) : body(type, none);
  }
  constexpr float* type = nullptr;
  return isSilu ? body(type, silu) : body(type, none);
}

/** Moments of cells that come after `before` others, whose moments are in `to`. */
void merge(double mean, double squares, double cells, double before, NormMoments& to) {
  const double apart = mean - to.mean, share = cells / (before + cells);
  to.mean += apart * share;
  to.squares += squares + apart * apart * before * share;
}

}  // namespace

VANTAGE_VECTORS void normMomentsCpu(const NormMap& map, NormBlocks blocks, NormMoments* moments) {
  typed(map, [&](auto* type, auto) VANTAGE_INLINED {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(map.values);
    const int64_t row = Span(map, blocks).row;
    const int64_t tile = std::max<int64_t>(kTileValues / row, 1) * row;
    std::vector<float> sums(row), rests(row), means(map.channels), squares(map.channels),
        drift(map.channels);
    for (int64_t block = blocks.from; block < blocks.to; ++block) {
      const Span span(map, {block, block + 1});
      NormMoments* own = moments + block * map.channels;
      std::fill_n(own, map.channels, NormMoments{0, 0});
      for (int64_t first = span.first; first < span.end; first += tile) {
        const int64_t end = std::min(first + tile, span.end);
        const auto cells = static_cast<double>((end - first) / map.channels);
        std::fill(sums.begin(), sums.end(), 0.0f);
        eachRun(first, end, row, [&](int64_t index, int64_t at, auto lanes) VANTAGE_INLINED {
          const auto of = readRun<lanes>(x + index);
          auto sum = readRun<lanes>(&sums[at]);
          for (int i = 0; i < lanes; ++i) sum.at[i] += of.at[i];
          writeRun(sum, &sums[at]);
        });
        fold(sums, map, means.data());
        for (float& mean : means) mean /= static_cast<float>(cells);
        const std::vector<float> middle = repeated(means.data(), map);
        std::fill(sums.begin(), sums.end(), 0.0f);
        std::fill(rests.begin(), rests.end(), 0.0f);
        eachRun(first, end, row, [&](int64_t index, int64_t at, auto lanes) VANTAGE_INLINED {
          const auto of = readRun<lanes>(x + index), mean = readRun<lanes>(&middle[at]);
          auto sum = readRun<lanes>(&sums[at]), rest = readRun<lanes>(&rests[at]);
          for (int i = 0; i < lanes; ++i) {
            const float apart = of.at[i] - mean.at[i];
            rest.at[i] += apart;
            sum.at[i] += apart * apart;
          }
          writeRun(sum, &sums[at]);
          writeRun(rest, &rests[at]);
        });
        fold(sums, map, squares.data());
        fold(rests, map, drift.data());
        const auto before = static_cast<double>((first - span.first) / map.channels);
        for (int i = 0; i < map.channels; ++i) {
          // By how much the mean of the tile, rounded, is off.
          const double off = drift[i] / cells;
          merge(means[i] + off, squares[i] - off * drift[i], cells, before, own[i]);
        }
      }
    }
  });
}

void mergeNormMoments(const NormMap& map, const NormMoments* moments, NormMoments* merged) {
  std::fill_n(merged, map.channels, NormMoments{0, 0});
  for (int64_t block = 0; block < normBlocks(map.cells); ++block) {
    const int64_t before = block * kNormCells;
    const auto cells = static_cast<double>(std::min(kNormCells, map.cells - before));
    const NormMoments* of = moments + block * map.channels;
    for (int i = 0; i < map.channels; ++i)
      merge(of[i].mean, of[i].squares, cells, static_cast<double>(before), merged[i]);
  }
}

VANTAGE_VECTORS void normSiluCpu(const NormMap& map, NormBlocks blocks, void* result) {
  typed(map, [&](auto* type, auto activation) VANTAGE_INLINED {
    using Element = std::remove_pointer_t<decltype(type)>;
    constexpr Activation kActivation = decltype(activation)::value;
    const auto* x = static_cast<const Element*>(map.values);
    auto* y = static_cast<Element*>(result);
    const Span span(map, blocks);
    const RowNorms norms(map);
    eachRun(span.first, span.end, span.row,
            [&](int64_t index, int64_t at, auto lanes) VANTAGE_INLINED {
              auto run = readRun<lanes>(x + index);
              for (int i = 0; i < lanes; ++i)
                run.at[i] = normSilu<kActivation>(run.at[i], norms[at + i]);
              writeRun(run, y + index);
            });
  });
}

VANTAGE_VECTORS void normSumsCpu(const NormMap& map, NormBlocks blocks, const void* slopes,
                                 float* sums) {
  typed(map, [&](auto* type, auto activation) VANTAGE_INLINED {
    using Element = std::remove_pointer_t<decltype(type)>;
    constexpr Activation kActivation = decltype(activation)::value;
    const auto* x = static_cast<const Element*>(map.values);
    const auto* dy = static_cast<const Element*>(slopes);
    const RowNorms norms(map);
    const int64_t row = Span(map, blocks).row;
    std::vector<float> slope(row), product(row);
    for (int64_t block = blocks.from; block < blocks.to; ++block) {
      const Span span(map, {block, block + 1});
      std::fill(slope.begin(), slope.end(), 0.0f);
      std::fill(product.begin(), product.end(), 0.0f);
      eachRun(span.first, span.end, span.row,
              [&](int64_t index, int64_t at, auto lanes) VANTAGE_INLINED {
                const auto of = readRun<lanes>(x + index), towards = readRun<lanes>(dy + index);
                auto sum = readRun<lanes>(&slope[at]), products = readRun<lanes>(&product[at]);
                for (int i = 0; i < lanes; ++i) {
                  const float normal = normalOf(of.at[i], norms[at + i]);
                  const float own = slopeOfNorm<kActivation>(towards.at[i], normal, norms[at + i]);
                  sum.at[i] += own;
                  products.at[i] += own * normal;
                }
                writeRun(sum, &slope[at]);
                writeRun(products, &product[at]);
              });
      fold(slope, map, sums + block * 2 * map.channels);
      fold(product, map, sums + (block * 2 + 1) * map.channels);
    }
  });
}

VANTAGE_VECTORS void normSlopesCpu(const NormMap& map, NormBlocks blocks, const void* slopes,
                                   const float* means, void* result) {
  typed(map, [&](auto* type, auto activation) VANTAGE_INLINED {
    using Element = std::remove_pointer_t<decltype(type)>;
    constexpr Activation kActivation = decltype(activation)::value;
    const auto* x = static_cast<const Element*>(map.values);
    const auto* dy = static_cast<const Element*>(slopes);
    auto* dx = static_cast<Element*>(result);
    const Span span(map, blocks);
    const RowNorms norms(map);
    const std::vector<float> slope = repeated(means, map);
    const std::vector<float> product = repeated(means + map.channels, map);
    eachRun(span.first, span.end, span.row,
            [&](int64_t index, int64_t at, auto lanes) VANTAGE_INLINED {
              const auto of = readRun<lanes>(x + index);
              auto run = readRun<lanes>(dy + index);
              for (int i = 0; i < lanes; ++i)
                run.at[i] = slopeOfMap<kActivation>(run.at[i], of.at[i], norms[at + i],
                                                    {slope[at + i], product[at + i]});
              writeRun(run, dx + index);
            });
  });
}

}  // namespace vantage
