// The safetensors format, read with bounds checks and written all or nothing. No torch here.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace vantage {

struct StoredTensor {
  std::string name;
  /** F32, F16, BF16, F64, I64, I32, U8 … as the file says. */
  std::string dtype;
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
};

/** A file in memory. Fails with `bad_weights` where header and contents do not agree. */
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unique_ptr<uint8_t[]> data_;
};

/**
 * Writes to a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder:
 * a kill at any byte leaves the old file or the new one. Returns the bytes written.
 */
uint64_t writeTensors(const std::string& path, const std::vector<StoredTensor>& tensors,
                      const std::map<std::string, std::string>& metadata);

}  // namespace vantage
