// The mapped file of a split, and plans of augmented images: mosaic, scale, shift, rotation, shear
// and flips are one affine map of each layer, so that an output pixel is interpolated once.
#include "image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "error.h"
#include "paste.h"
#include "random.h"
#include "ring.h"

namespace vantage {
namespace {

constexpr int kSideMax = 1 << 15;
/** Corners of a ring at most, and how many sides of an image they may lie outside of it. */
constexpr size_t kCornersMax = 1 << 16;
constexpr double kOutsideMax = 16;
constexpr double kPi = 3.14159265358979323846;
/** A box is kept while each of its sides has more pixels than this. */
constexpr double kSideMin = 2;
/** A box is kept while more of its scaled area is visible than this share. */
constexpr double kVisibleMin = 0.1;
/** An object of the image that is pasted from is chosen with this probability. */
constexpr double kPastedShare = 0.5;
/** A box is kept while its longer side is less than so many times the shorter one. */
constexpr double kAspectMax = 100;

/** What a random sequence decides: part of its key. */
enum Purpose : uint64_t { kOrder, kFirstLayer, kSecondLayer, kImage, kPaste };

void check(const ImageEntry& image, size_t index, int64_t bytes, int classes) {
  const auto refuse = [index](const std::string& why) {
    throw EngineError("bad_dataset", "image " + std::to_string(index) + " " + why);
  };
  if (image.width < 1 || image.height < 1 || image.width > kSideMax || image.height > kSideMax)
    refuse("is " + std::to_string(image.width) + " × " + std::to_string(image.height) + " pixels");
  const int64_t size = int64_t{3} * image.width * image.height;
  if (image.offset < 0 || image.offset > bytes || size > bytes - image.offset)
    refuse("does not lie within the file's " + std::to_string(bytes) + " bytes");
  for (const Truth& truth : image.truths) {
    if (!std::isfinite(truth.x1) || !std::isfinite(truth.y1) || !std::isfinite(truth.x2) ||
        !std::isfinite(truth.y2))
      refuse("has a box that is not finite");
    if (truth.x2 < truth.x1 || truth.y2 < truth.y1) refuse("has a box that ends before it begins");
    if (!(truth.cls >= 0 && truth.cls < static_cast<float>(classes)) ||
        truth.cls != std::floor(truth.cls))
      refuse("has a box whose class is none of the " + std::to_string(classes));
  }
  if (!image.rings.empty() && image.rings.size() != image.truths.size())
    refuse("does not have a ring a box");
  const double far = kOutsideMax * std::max(image.width, image.height);
  for (const Ring& ring : image.rings) {
    if (ring.empty()) continue;
    if (ring.size() < 3) refuse("has a ring of fewer than three corners");
    if (ring.size() > kCornersMax) refuse("has a ring of too many corners");
    for (const Point& corner : ring)
      if (!(std::abs(corner.x) <= far && std::abs(corner.y) <= far))
        refuse("has a ring that is not finite, or far outside of the image");
  }
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

[[noreturn]] void unreadable(const std::string& path) {
  throw EngineError("io_failed", "cannot read " + path + ": " + std::strerror(errno));
}

}  // namespace

ImageFile::ImageFile(const std::string& path, std::vector<ImageEntry> images, int classes)
    : images_(std::move(images)) {
  if (images_.empty()) throw EngineError("bad_dataset", "the split has no image");
  // O_NONBLOCK: opening a pipe would otherwise wait for its writer.
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status{};
  if (file.fd < 0 || fstat(file.fd, &status) != 0) unreadable(path);
  if (!S_ISREG(status.st_mode)) throw EngineError("io_failed", path + " is not a file");
  bytes_ = status.st_size;
  for (size_t i = 0; i < images_.size(); i++) check(images_[i], i, bytes_, classes);
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, file.fd, 0);
  if (mapped == MAP_FAILED) unreadable(path);
  data_ = static_cast<const uint8_t*>(mapped);
  std::swap(file_, file.fd);
}

ImageFile::~ImageFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(bytes_));
  if (file_ >= 0) close(file_);
}

void ImageFile::checkLength() const {
  struct stat status{};
  if (fstat(file_, &status) != 0) unreadable("the split's file");
  if (status.st_size < bytes_)
    throw EngineError("bad_dataset", "the split's file has become shorter: it had " +
                                         std::to_string(bytes_) + " bytes and has " +
                                         std::to_string(status.st_size));
}

namespace {

/** An affine map of the plane: rows of three. */
struct Affine {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;

  /** First `before`, then this. */
  Affine after(const Affine& before) const {
    return {a * before.a + b * before.d,     a * before.b + b * before.e,
            a * before.c + b * before.f + c, d * before.a + e * before.d,
            d * before.b + e * before.e,     d * before.c + e * before.f + f};
  }
  Affine inverse() const {
    const double det = a * e - b * d;
    return {e / det, -b / det, (b * f - c * e) / det, -d / det, a / det, (c * d - a * f) / det};
  }
  Point of(const Point& point) const {
    return {a * point.x + b * point.y + c, d * point.x + e * point.y + f};
  }
  Ring of(const Ring& ring) const {
    Ring moved;
    moved.reserve(ring.size());
    for (const Point& corner : ring) moved.push_back(of(corner));
    return moved;
  }
  Region of(const Region& region) const { return Region(of(region.corners())); }
  /** The upright box around the image of a box. */
  Truth of(const Truth& box) const {
    const double x[4] = {box.x1, box.x2, box.x1, box.x2}, y[4] = {box.y1, box.y1, box.y2, box.y2};
    double left = INFINITY, top = INFINITY, right = -INFINITY, bottom = -INFINITY;
    for (int i = 0; i < 4; i++) {
      const double u = a * x[i] + b * y[i] + c, v = d * x[i] + e * y[i] + f;
      left = std::min(left, u), right = std::max(right, u);
      top = std::min(top, v), bottom = std::max(bottom, v);
    }
    return {box.cls, static_cast<float>(left), static_cast<float>(top), static_cast<float>(right),
            static_cast<float>(bottom)};
  }
};

Truth clipped(const Truth& box, float left, float top, float right, float bottom) {
  return {box.cls, std::clamp(box.x1, left, right), std::clamp(box.y1, top, bottom),
          std::clamp(box.x2, left, right), std::clamp(box.y2, top, bottom)};
}

double areaOf(const Truth& box) {
  return static_cast<double>(box.x2 - box.x1) * static_cast<double>(box.y2 - box.y1);
}

Truth ofClass(float cls, Truth box) {
  box.cls = cls;
  return box;
}

/** A canvas with images on it, and their boxes on the canvas. */
struct Canvas {
  int size = 0;
  Layer layer{};
  std::vector<Truth> truths;
  /** One a truth: its whole ring, and the part of the canvas that its image covers. */
  struct LaidRing {
    Ring ring;
    int patch = 0;
  };
  std::vector<LaidRing> rings;

  explicit Canvas(int size) : size(size) {}

  struct Frame {
    int x, y, width, height;
  };

  /** Lays an image into a frame of the canvas, resized to it; crops what leaves the canvas. */
  void lay(const ImageEntry& image, const Frame& frame) {
    const auto& [x, y, width, height] = frame;
    Patch& patch = layer.patch[layer.patches++];
    patch.offset = image.offset;
    patch.width = image.width, patch.height = image.height;
    const double scaleX = static_cast<double>(image.width) / width;
    const double scaleY = static_cast<double>(image.height) / height;
    patch.scaleX = static_cast<float>(scaleX), patch.shiftX = static_cast<float>(-x * scaleX);
    patch.scaleY = static_cast<float>(scaleY), patch.shiftY = static_cast<float>(-y * scaleY);
    patch.left = static_cast<float>(std::max(x, 0));
    patch.top = static_cast<float>(std::max(y, 0));
    patch.right = static_cast<float>(std::min(x + width, size));
    patch.bottom = static_cast<float>(std::min(y + height, size));
    const Affine onto{1 / scaleX, 0, static_cast<double>(x), 0, 1 / scaleY, static_cast<double>(y)};
    const int index = layer.patches - 1;
    for (size_t i = 0; i < image.truths.size(); ++i) {
      const Truth& truth = image.truths[i];
      LaidRing laid{image.rings.empty() ? Ring() : onto.of(image.rings[i]), index};
      const Truth moved =
          laid.ring.empty()
              ? clipped(onto.of(truth), patch.left, patch.top, patch.right, patch.bottom)
              : ofClass(truth.cls, boundsOf(laid.ring, covered(index)));
      if (!(areaOf(moved) > 0)) continue;
      truths.push_back(moved);
      rings.push_back(std::move(laid));
    }
  }

  /** The part of the canvas that an image covers. */
  Region covered(int index) const {
    const Patch& patch = layer.patch[index];
    return Region::rectangle(patch.left, patch.top, patch.right, patch.bottom);
  }

  void letterbox(const ImageEntry& image) {
    const double ratio =
        std::min(static_cast<double>(size) / image.width, static_cast<double>(size) / image.height);
    const int width = std::max(1, static_cast<int>(std::lround(image.width * ratio)));
    const int height = std::max(1, static_cast<int>(std::lround(image.height * ratio)));
    const int left = static_cast<int>(std::lround((size - width) / 2.0 - 0.1));
    const int top = static_cast<int>(std::lround((size - height) / 2.0 - 0.1));
    lay(image, {left, top, width, height});
  }
};

/** Four images around a point of a canvas of twice the side; the first is `first`. */
Canvas mosaic(const ImageFile& file, int first, int size, RandomSequence& random) {
  Canvas canvas(2 * size);
  const int centreX = static_cast<int>(random.uniform(0.5 * size, 1.5 * size));
  const int centreY = static_cast<int>(random.uniform(0.5 * size, 1.5 * size));
  for (int i = 0; i < 4; i++) {
    const int index = i == 0 ? first : random.below(static_cast<int>(file.images().size()));
    const ImageEntry& image = file.images()[index];
    const double ratio = static_cast<double>(size) / std::max(image.width, image.height);
    const int width = std::max(1, static_cast<int>(std::lround(image.width * ratio)));
    const int height = std::max(1, static_cast<int>(std::lround(image.height * ratio)));
    canvas.lay(image, {i % 2 ? centreX : centreX - width, i < 2 ? centreY - height : centreY, width,
                       height});
  }
  return canvas;
}

/** Maps the canvas to the output: turns, scales and shears about the canvas's centre. */
struct RandomAffine {
  Affine map;
  double scale = 1;

  RandomAffine(const Augmentation& how, int canvas, int size, RandomSequence& random) {
    const double angle = random.uniform(-how.rotate, how.rotate) * kPi / 180;
    scale = std::max(0.01, random.uniform(1 - how.scale, 1 + how.scale));
    const double shearX = std::tan(random.uniform(-how.shear, how.shear) * kPi / 180);
    const double shearY = std::tan(random.uniform(-how.shear, how.shear) * kPi / 180);
    const double x = random.uniform(0.5 - how.translate, 0.5 + how.translate) * size;
    const double y = random.uniform(0.5 - how.translate, 0.5 + how.translate) * size;
    const double cosine = std::cos(angle) * scale, sine = std::sin(angle) * scale;
    const Affine centred{1, 0, -canvas / 2.0, 0, 1, -canvas / 2.0};
    const Affine turned{cosine, sine, 0, -sine, cosine, 0};
    const Affine sheared{1, shearX, 0, shearY, 1, 0};
    const Affine shifted{1, 0, x, 0, 1, y};
    map = shifted.after(sheared.after(turned.after(centred)));
  }
};

bool isKept(const Truth& box, double scaledArea) {
  const double width = static_cast<double>(box.x2) - box.x1;
  const double height = static_cast<double>(box.y2) - box.y1;
  return width > kSideMin && height > kSideMin && width * height > kVisibleMin * scaledArea &&
         std::max(width / height, height / width) < kAspectMax;
}

/** What layers are made of. */
struct LayerSource {
  const ImageFile& file;
  const TrainingSettings& settings;
  /** The epoch is one of the last, which have no mosaic, no mixup and nothing pasted. */
  bool isClosing;
};

/** What the output shows of an object. */
struct SeenObject {
  Truth truth;
  Ring ring;
};

/** An object of a canvas through a map; none where too little of it is seen. */
std::optional<SeenObject> seen(const Canvas& canvas, size_t index, const RandomAffine& affine,
                               int size) {
  const Truth& truth = canvas.truths[index];
  const Canvas::LaidRing& laid = canvas.rings[index];
  const double scaledArea = areaOf(truth) * affine.scale * affine.scale;
  if (laid.ring.empty()) {
    const float side = static_cast<float>(size);
    const Truth moved = clipped(affine.map.of(truth), 0, 0, side, side);
    if (!isKept(moved, scaledArea)) return std::nullopt;
    return SeenObject{moved, {}};
  }
  const Region frame = Region::rectangle(0, 0, size, size);
  const Region part = affine.map.of(canvas.covered(laid.patch)).within(frame);
  const Ring ring = affine.map.of(laid.ring);
  const Truth moved = ofClass(truth.cls, boundsOf(ring, part));
  if (!isKept(moved, scaledArea)) return std::nullopt;
  return SeenObject{moved, clipped(ring, part)};
}

/** A canvas's layer as it is seen through a map. */
Layer layerThrough(const Canvas& canvas, const Affine& map) {
  Layer layer = canvas.layer;
  const Affine back = map.inverse();
  const double rows[6] = {back.a, back.b, back.c, back.d, back.e, back.f};
  std::copy(rows, rows + 6, layer.matrix);
  return layer;
}

void add(PlannedImage& to, SeenObject object) {
  to.truths.push_back(object.truth);
  to.rings.push_back(std::move(object.ring));
}

/** Adds the image at `index` of the split, alone or as the first of a mosaic. */
void addLayer(PlannedImage& to, const LayerSource& source, int index, RandomSequence random) {
  const auto& [file, settings, isClosing] = source;
  const int size = settings.imageSize;
  const bool tiled = random.chance(settings.augmentation.mosaic) && !isClosing;
  Canvas canvas = tiled ? mosaic(file, index, size, random) : Canvas(size);
  if (!tiled) canvas.letterbox(file.images()[index]);
  const RandomAffine affine(settings.augmentation, canvas.size, size, random);
  to.plan.layer[to.plan.layers++] = layerThrough(canvas, affine.map);
  for (size_t i = 0; i < canvas.truths.size(); ++i)
    if (auto object = seen(canvas, i, affine, size)) add(to, std::move(*object));
}

/** Pastes some objects of the image at `index` that have outlines, at least one, if any is seen. */
void addPasted(PlannedImage& to, const LayerSource& source, int index, RandomSequence random) {
  const int size = source.settings.imageSize;
  Canvas canvas(size);
  canvas.letterbox(source.file.images()[index]);
  const RandomAffine affine(source.settings.augmentation, size, size, random);
  std::vector<SeenObject> outlined;
  for (size_t i = 0; i < canvas.truths.size(); ++i) {
    auto object = seen(canvas, i, affine, size);
    if (object && !object->ring.empty()) outlined.push_back(std::move(*object));
  }
  if (outlined.empty()) return;
  const auto sure = static_cast<size_t>(random.below(static_cast<int>(outlined.size())));
  for (size_t i = 0; i < outlined.size(); ++i) {
    if (!random.chance(kPastedShare) && i != sure) continue;
    add(to, std::move(outlined[i]));
    ++to.pasted;
  }
  to.plan.pastes = 1;
  to.plan.paste = layerThrough(canvas, affine.map);
}

enum class Axis { horizontal, vertical };

/** Mirrors an image: output x (horizontal) or y (vertical) becomes size − x or size − y. */
void flip(PlannedImage& image, Axis axis, int size) {
  const bool isHorizontal = axis == Axis::horizontal;
  const float side = static_cast<float>(size);
  for (Layer* layer : {&image.plan.layer[0], &image.plan.layer[1], &image.plan.paste})
    for (int row = 0; row < 2; row++) {
      float* m = layer->matrix + 3 * row;
      float& factor = isHorizontal ? m[0] : m[1];
      m[2] += factor * side;
      factor = -factor;
    }
  for (Truth& truth : image.truths) {
    float& low = isHorizontal ? truth.x1 : truth.y1;
    float& high = isHorizontal ? truth.x2 : truth.y2;
    const float mirrored = side - high;
    high = side - low;
    low = mirrored;
  }
  for (Ring& ring : image.rings)
    for (Point& corner : ring) {
      double& along = isHorizontal ? corner.x : corner.y;
      along = size - along;
    }
}

}  // namespace

std::vector<int> shuffled(int count, uint64_t seed, int epoch) {
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  RandomSequence random{seed, static_cast<uint64_t>(epoch), kOrder};
  for (int i = count - 1; i > 0; i--) std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

PlannedImage planTraining(const ImageFile& file, const std::vector<int>& order, const ImageKey& key,
                          const TrainingSettings& settings) {
  const Augmentation& how = settings.augmentation;
  const LayerSource source{file, settings, key.epoch >= settings.epochs - how.closeMosaic};
  const auto randomFor = [&](Purpose purpose) {
    return RandomSequence{key.seed, static_cast<uint64_t>(key.epoch), purpose,
                          static_cast<uint64_t>(key.position)};
  };
  PlannedImage image;
  addLayer(image, source, order[key.position], randomFor(kFirstLayer));
  RandomSequence random = randomFor(kImage);
  image.plan.mix = 1;
  if (random.chance(how.mixup) && !source.isClosing) {
    const int other = random.below(static_cast<int>(file.images().size()));
    image.plan.mix = static_cast<float>(random.beta32());
    addLayer(image, source, other, randomFor(kSecondLayer));
  }
  RandomSequence ofPaste = randomFor(kPaste);
  if (ofPaste.chance(how.copyPaste) && !source.isClosing) {
    const auto images = static_cast<int>(file.images().size());
    const int other = (order[key.position] + 1 + ofPaste.below(images - 1)) % images;
    addPasted(image, source, other, ofPaste);
  }
  const double hue = random.uniform(-1, 1) * how.hsv[0];
  image.plan.hue = static_cast<float>(hue - std::round(hue));
  image.plan.saturation = static_cast<float>(std::max(0.0, 1 + random.uniform(-1, 1) * how.hsv[1]));
  image.plan.value = static_cast<float>(std::max(0.0, 1 + random.uniform(-1, 1) * how.hsv[2]));
  if (random.chance(how.flipUpDown)) flip(image, Axis::vertical, settings.imageSize);
  if (random.chance(how.flipLeftRight)) flip(image, Axis::horizontal, settings.imageSize);
  if (image.pasted > 0) hideBelow(image, settings.imageSize);
  return image;
}

PlannedImage planLetterbox(const ImageEntry& image, int imageSize) {
  Canvas canvas(imageSize);
  canvas.letterbox(image);
  canvas.layer.matrix[0] = canvas.layer.matrix[4] = 1;
  PlannedImage planned;
  planned.plan.layers = 1;
  planned.plan.layer[0] = canvas.layer;
  planned.plan.mix = planned.plan.saturation = planned.plan.value = 1;
  planned.truths = std::move(canvas.truths);
  for (const Canvas::LaidRing& laid : canvas.rings)
    planned.rings.push_back(clipped(laid.ring, canvas.covered(laid.patch)));
  return planned;
}

}  // namespace vantage
