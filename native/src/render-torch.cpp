// The rules of sample.h over planes of pixels, [images, size · size], step by step in its order of
// operations. What a plan says of a pixel's patch is gathered by the patch's index.
#include "render-torch.h"

#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>

#include "flags.h"

namespace vantage {
namespace {

/** A plan's two, and what it pastes. */
constexpr int64_t kLayers = 3, kPasteLayer = 2, kPatches = 4;
/** Pixels that are rendered at once: some fifty planes of numbers are alive at a time. */
constexpr int64_t kPixels = 1 << 21;
/** Numbers of a patch, and the ones that have to be whole. */
enum PatchNumber { kScaleX, kShiftX, kScaleY, kShiftY, kLeft, kTop, kRight, kBottom, kNumbers };
enum PatchWhole { kOffset, kWidth, kHeight, kWholes };

/** Plans as tables on the device. */
struct PlanTables {
  /** [images, layers, 6]; [images, layers, kNumbers, patches]; the same of whole numbers. */
  at::Tensor matrices, numbers, wholes;
  /** [images, 6]: mix, hue, saturation, value, and 1 where there are two layers, where it
   * recolours.
   */
  at::Tensor colours;
};

/** Memory that a GPU copies from without a wait. */
at::Tensor onDevice(const at::Tensor& host, const at::Device& device) {
  return device.is_cuda() ? host.pin_memory().to(device, host.scalar_type(), kNonBlocking) : host;
}

PlanTables tablesOf(const std::vector<Plan>& plans, const at::Device& device) {
  const auto count = static_cast<int64_t>(plans.size());
  const auto matrices = at::zeros({count, kLayers, 6}, at::kFloat);
  // A patch that is not there covers nothing, and is as large as an image may be small.
  const auto numbers = at::zeros({count, kLayers, kNumbers, kPatches}, at::kFloat);
  const auto wholes = at::zeros({count, kLayers, kWholes, kPatches}, at::kLong);
  const auto colours = at::zeros({count, 6}, at::kFloat);
  float *matrix = matrices.data_ptr<float>(), *number = numbers.data_ptr<float>();
  float* colour = colours.data_ptr<float>();
  int64_t* whole = wholes.data_ptr<int64_t>();
  for (const Plan& plan : plans) {
    for (int64_t l = 0; l < kLayers; ++l) {
      const bool isPaste = l == kPasteLayer;
      const Layer& layer = isPaste ? plan.paste : plan.layer[l];
      const bool isThere = isPaste ? plan.pastes != 0 : l < plan.layers;
      std::memcpy(matrix, layer.matrix, sizeof(layer.matrix));
      for (int64_t p = 0; p < (isThere ? layer.patches : 0); ++p) {
        const Patch& of = layer.patch[p];
        const float values[kNumbers] = {of.scaleX, of.shiftX, of.scaleY, of.shiftY,
                                        of.left,   of.top,    of.right,  of.bottom};
        for (int64_t i = 0; i < kNumbers; ++i) number[i * kPatches + p] = values[i];
        whole[kOffset * kPatches + p] = of.offset;
        whole[kWidth * kPatches + p] = of.width;
        whole[kHeight * kPatches + p] = of.height;
      }
      matrix += 6;
      number += kNumbers * kPatches;
      whole += kWholes * kPatches;
    }
    const bool isMixed = plan.layers > 1;
    const float values[6] = {plan.mix,
                             plan.hue,
                             plan.saturation,
                             plan.value,
                             isMixed ? 1.0f : 0.0f,
                             recolours(plan) ? 1.0f : 0.0f};
    std::memcpy(colour, values, sizeof(values));
    colour += 6;
  }
  return {onDevice(matrices, device), onDevice(numbers, device), onDevice(wholes, device),
          onDevice(colours, device)};
}

/** Channels of pixels in bytes, [images, pixels] each. */
struct Planes {
  at::Tensor r, g, b;
};

/** What one layer of some images shows. `matrix` [n, 6], `numbers` and `wholes` as of a table. */
Planes layerPlanes(const at::Tensor& file, const at::Tensor& matrix, const at::Tensor& numbers,
                   const at::Tensor& wholes, int size) {
  const int64_t images = matrix.size(0), pixels = int64_t{size} * size;
  const auto centres = at::arange(size, matrix.options()).add_(0.5);
  const auto x = centres.view({1, 1, size}), y = centres.view({1, size, 1});
  const auto along = [&](int64_t row) {
    const auto factor = [&](int64_t i) { return matrix.select(1, row + i).view({images, 1, 1}); };
    return (factor(0) * x + (factor(1) * y + factor(2))).view({images, pixels});
  };
  const auto canvasX = along(0), canvasY = along(3);
  // The first patch that covers a pixel; none is one beyond the last.
  auto patch = at::full({images, pixels}, kPatches, wholes.options());
  for (int64_t p = kPatches; p-- > 0;) {
    const auto side = [&](int64_t of) { return numbers.select(1, of).narrow(1, p, 1); };
    const auto covers = canvasX.ge(side(kLeft))
                            .logical_and_(canvasX.lt(side(kRight)))
                            .logical_and_(canvasY.ge(side(kTop)))
                            .logical_and_(canvasY.lt(side(kBottom)));
    patch.masked_fill_(covers, p);
  }
  const auto isBare = patch.eq(kPatches);
  patch.masked_fill_(isBare, 0);
  const auto number = [&](int64_t of) { return numbers.select(1, of).gather(1, patch); };
  const auto whole = [&](int64_t of) { return wholes.select(1, of).gather(1, patch); };
  const auto width = whole(kWidth), height = whole(kHeight);
  const auto position = [](const at::Tensor& scaled, const at::Tensor& side) {
    return at::minimum((scaled - 0.5).clamp_min_(0), (side - 1).to(at::kFloat));
  };
  const auto u = position(number(kScaleX) * canvasX + number(kShiftX), width);
  const auto v = position(number(kScaleY) * canvasY + number(kShiftY), height);
  const auto column = u.to(at::kLong), row = v.to(at::kLong);
  const auto right = u - column.to(at::kFloat), down = v - row.to(at::kFloat);
  const auto line = width * 3;
  const auto a = (whole(kOffset) + row * line).add_(column * 3).masked_fill_(isBare, 0);
  const auto beside = (column + 1).lt(width).to(at::kLong).mul_(3).masked_fill_(isBare, 0);
  const auto below = (row + 1).lt(height).to(at::kLong).mul_(line).masked_fill_(isBare, 0);
  const auto b = a + beside, c = a + below, d = c + beside;
  const auto w11 = right * down, w10 = down - w11, w01 = right - w11, w00 = (1 - right).sub_(w10);
  const auto channel = [&](int64_t of) {
    const auto bytes = [&](const at::Tensor& index) {
      return file.index_select(0, (index + of).flatten()).to(at::kFloat).view({images, pixels});
    };
    const auto sum = (w00 * bytes(a)).add_(w01 * bytes(b)).add_(w10 * bytes(c));
    return sum.add_(w11 * bytes(d)).masked_fill_(isBare, kFill);
  };
  return {channel(0), channel(1), channel(2)};
}

/** Bits of stencils as [images, pixels]: the first pixel is a byte's lowest bit. */
at::Tensor isPasted(const at::Tensor& stencils, int64_t pixels) {
  const auto bits = at::arange(8, stencils.options().dtype(at::kLong));
  const auto places = at::pow(2, bits).to(at::kByte);
  const auto isSet = stencils.unsqueeze(2).bitwise_and(places).ne(0);
  return isSet.view({stencils.size(0), pixels});
}

at::Tensor wrapped(const at::Tensor& value, double turn) {
  return at::where(value.ge(turn), value - turn, value);
}

/** As `recoloured` of sample.h. `hue`, `saturation` and `value` are [n, 1]. */
Planes recoloured(const Planes& from, const at::Tensor& hue, const at::Tensor& saturation,
                  const at::Tensor& value) {
  const auto& [r, g, b] = from;
  const auto high = at::maximum(at::maximum(r, g), b), low = at::minimum(at::minimum(r, g), b);
  const auto chroma = high - low, slope = chroma.clamp_min(1e-6f).reciprocal();
  const auto ofRed = (g - b) * slope, ofGreen = (b - r) * slope + 2, ofBlue = (r - g) * slope + 4;
  const auto turned =
      at::where(r.ge(high), ofRed, at::where(g.ge(high), ofGreen, ofBlue)) + hue * 6;
  const auto wheel = wrapped(at::where(turned.lt(0), turned + 6, turned), 6);
  const auto bright = (high * value).clamp_max_(255);
  const auto span = bright * (saturation * chroma / high.clamp_min(1e-6f)).clamp_max_(1);
  const auto channel = [&](double origin) {
    const auto k = wrapped(wheel + origin, 6);
    return bright - span * at::minimum(k, 4 - k).clamp_(0, 1);
  };
  return {channel(5), channel(3), channel(1)};
}

}  // namespace

at::Tensor renderTorch(const PlanBytes& bytes, const std::vector<Plan>& plans, int size) {
  const at::NoGradGuard none;
  const auto& [file, stencils] = bytes;
  const auto count = static_cast<int64_t>(plans.size()), pixels = int64_t{size} * size;
  const bool mixes =
      std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.layers > 1; });
  const bool turns =
      std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return recolours(plan); });
  const PlanTables tables = tablesOf(plans, file.device());
  const auto images = at::empty({count, 3, size, size}, tables.colours.options());
  const int64_t together = std::max<int64_t>(kPixels / pixels, 1);
  for (int64_t from = 0; from < count; from += together) {
    const int64_t length = std::min(together, count - from);
    const auto layer = [&](int64_t index) {
      const auto part = [&](const at::Tensor& all) {
        return all.narrow(0, from, length).select(1, index);
      };
      return layerPlanes(file, part(tables.matrices), part(tables.numbers), part(tables.wholes),
                         size);
    };
    const auto colour = [&](int64_t index) {
      return tables.colours.narrow(0, from, length).narrow(1, index, 1);
    };
    Planes planes = layer(0);
    const auto where = [](const at::Tensor& is, const Planes& one, const Planes& other) {
      return Planes{at::where(is, one.r, other.r), at::where(is, one.g, other.g),
                    at::where(is, one.b, other.b)};
    };
    if (mixes) {
      const Planes second = layer(1);
      const auto mix = [&](const at::Tensor& a, const at::Tensor& b) {
        return b + colour(0) * (a - b);
      };
      planes = where(colour(4).gt(0),
                     {mix(planes.r, second.r), mix(planes.g, second.g), mix(planes.b, second.b)},
                     planes);
    }
    if (stencils.defined())
      planes =
          where(isPasted(stencils.narrow(0, from, length), pixels), layer(kPasteLayer), planes);
    if (turns)
      planes = where(colour(5).gt(0), recoloured(planes, colour(1), colour(2), colour(3)), planes);
    images.narrow(0, from, length)
        .view({length, 3, pixels})
        .copy_(at::stack({planes.r, planes.g, planes.b}, 1).div_(255));
  }
  return images;
}

}  // namespace vantage
