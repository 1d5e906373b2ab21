// NOT RUN HERE. An exported Core ML package on iOS 15 or macOS 12. The image is letterboxed before
// (runners/python/detect.py says how) into a pixel buffer of the size that the model asks for; Core
// ML divides by 255 itself. Both top-k steps are the host's: that of the Neural Engine falls back to
// the CPU.

import CoreML
import CoreVideo

struct Detection {
  let box: (x1: Float, y1: Float, x2: Float, y2: Float)
  let score: Float
  let index: Int
}

func detect(package: URL, image: CVPixelBuffer, confidence: Float) throws -> [Detection] {
  let model = try MLModel(contentsOf: MLModel.compileModel(at: package))
  let inputs = try MLDictionaryFeatureProvider(dictionary: [
    "images": MLFeatureValue(pixelBuffer: image)
  ])
  let outputs = try model.prediction(from: inputs)
  guard let boxes = outputs.featureValue(for: "boxes")?.multiArrayValue,
    let scores = outputs.featureValue(for: "scores")?.multiArrayValue
  else { return [] }
  return rowsOfHeads(boxes, scores).prefix { $0.score >= confidence }.map { $0 }
}

/// The best 300 anchors by their best class, then the best 300 of those anchors' scores, so that an
/// anchor may come with several classes.
func rowsOfHeads(_ boxes: MLMultiArray, _ scores: MLMultiArray) -> [Detection] {
  let anchors = scores.shape[1].intValue
  let classes = scores.shape[2].intValue
  let box = boxes.withUnsafeBufferPointer(ofType: Float.self) { Array($0) }
  let score = scores.withUnsafeBufferPointer(ofType: Float.self) { Array($0) }
  let best = (0..<anchors).map { score[($0 * classes)..<(($0 + 1) * classes)].max() ?? 0 }
  let surest = (0..<anchors).sorted { best[$0] > best[$1] }.prefix(300)
  let candidates = surest.flatMap { anchor in (0..<classes).map { anchor * classes + $0 } }
  return candidates.sorted { score[$0] > score[$1] }.prefix(min(300, anchors)).map { at in
    let from = 4 * (at / classes)
    return Detection(
      box: (box[from], box[from + 1], box[from + 2], box[from + 3]),
      score: score[at],
      index: at % classes)
  }
}
