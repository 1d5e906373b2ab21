// NOT RUN HERE. An exported end-to-end ONNX file in C++ by onnxruntime's own API. `pixels` are the
// letterboxed image as three planes, RGB in 0 to 1 (runners/python/detect.py says how it is laid).

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <onnxruntime_cxx_api.h>

struct Detection {
  float x1, y1, x2, y2, score;
  int index;
};

std::vector<Detection> detect(const std::string& path, std::vector<float>& pixels, int64_t height,
                              int64_t width, float confidence) {
  Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "detect");
  Ort::Session session(environment, path.c_str(), Ort::SessionOptions{});
  const std::array<int64_t, 4> shape{1, 3, height, width};
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  auto images = Ort::Value::CreateTensor<float>(memory, pixels.data(), pixels.size(), shape.data(),
                                                shape.size());
  const char* inputs[] = {"images"};
  const char* outputs[] = {"output0"};
  auto given = session.Run(Ort::RunOptions{}, inputs, &images, 1, outputs, 1);
  const auto sides = given[0].GetTensorTypeAndShapeInfo().GetShape();
  const float* rows = given[0].GetTensorData<float>();
  std::vector<Detection> found;
  for (int64_t at = 0; at < sides[1]; ++at) {
    const float* row = rows + at * sides[2];
    // By falling score: what follows is less sure still.
    if (row[4] < confidence) break;
    found.push_back({row[0], row[1], row[2], row[3], row[4], static_cast<int>(row[5])});
  }
  return found;
}
