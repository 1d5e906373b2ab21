// A file of weights: eight bytes of length, a JSON header, then the tensors' bytes. Files come from
// anywhere, so a strict reader accepts just what the format allows of a header, and every offset is
// checked against the file's size before a byte of the tensors is read.
#include "safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>

#include "error.h"

namespace vantage {
namespace {

/** The format's own limit of a header. */
constexpr uint64_t kHeaderBytesMax = 100'000'000;
constexpr size_t kDimensionsMax = 16;
constexpr uint64_t kLengthBytes = 8;

[[noreturn]] void refuse(const std::string& why) { throw EngineError("bad_weights", why); }

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw EngineError("io_failed", what + " " + path + ": " + std::strerror(errno));
}

/** A file descriptor that is closed at the end of its scope. */
struct Descriptor {
  int number;
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
};

uint64_t bytesOf(const std::string& dtype) {
  static const std::map<std::string, uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8},
  };
  const auto found = sizes.find(dtype);
  if (found == sizes.end()) refuse("a tensor has the unknown type " + dtype);
  return found->second;
}

/** Reads the JSON that a header may be: an object of strings, or of dtype, shape and offsets. */
class HeaderReader {
 public:
  HeaderReader(const char* from, const char* to) : at_(from), end_(to) {}

  /** Calls `entry` at the value of every key of the object that comes next. */
  template <typename Entry>
  void object(Entry entry) {
    expect('{');
    if (next('}')) return;
    do {
      const std::string key = string();
      expect(':');
      entry(key);
    } while (next(','));
    expect('}');
  }

  std::vector<uint64_t> numbers() {
    std::vector<uint64_t> all;
    expect('[');
    if (next(']')) return all;
    do {
      if (all.size() == kDimensionsMax) refuse("a tensor of the header has too many dimensions");
      all.push_back(number());
    } while (next(','));
    expect(']');
    return all;
  }

  std::string string() {
    expect('"');
    std::string text;
    while (true) {
      if (at_ == end_) broken();
      const unsigned char letter = *at_++;
      if (letter == '"') return text;
      if (letter < 0x20) broken();
      if (letter != '\\') text += static_cast<char>(letter);
      else escape(text);
    }
  }

  /** Only white space may be left. */
  void finish() {
    skip();
    if (at_ != end_) broken();
  }

 private:
  [[noreturn]] static void broken() { refuse("its header is not what the format asks for"); }

  void skip() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
  }

  bool next(char wanted) {
    skip();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!next(wanted)) broken();
  }

  uint64_t number() {
    skip();
    if (at_ == end_ || *at_ < '0' || *at_ > '9') broken();
    uint64_t value = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') {
      if (value > (uint64_t{1} << 58)) refuse("its header has an impossible number");
      value = value * 10 + static_cast<uint64_t>(*at_++ - '0');
    }
    return value;
  }

  void escape(std::string& text) {
    if (at_ == end_) broken();
    static const std::map<char, char> plain = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'b', '\b'},
                                               {'f', '\f'}, {'n', '\n'},  {'r', '\r'}, {'t', '\t'}};
    const char letter = *at_++;
    if (letter != 'u') {
      const auto found = plain.find(letter);
      if (found == plain.end()) broken();
      text += found->second;
      return;
    }
    uint32_t code = unit();
    if (code >= 0xDC00 && code < 0xE000) broken();
    if (code >= 0xD800 && code < 0xDC00) {
      if (end_ - at_ < 2 || *at_++ != '\\' || *at_++ != 'u') broken();
      const uint32_t low = unit();
      if (low < 0xDC00 || low >= 0xE000) broken();
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    encode(code, text);
  }

  uint32_t unit() {
    if (end_ - at_ < 4) broken();
    uint32_t code = 0;
    for (int digit = 0; digit < 4; ++digit) {
      const char letter = *at_++;
      code <<= 4;
      if (letter >= '0' && letter <= '9') code += letter - '0';
      else if (letter >= 'a' && letter <= 'f') code += letter - 'a' + 10;
      else if (letter >= 'A' && letter <= 'F') code += letter - 'A' + 10;
      else broken();
    }
    return code;
  }

  static void encode(uint32_t code, std::string& text) {
    const auto tail = [&](int shift) {
      text += static_cast<char>(0x80 | ((code >> shift) & 0x3F));
    };
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += static_cast<char>(0xC0 | (code >> 6));
      tail(0);
    } else if (code < 0x10000) {
      text += static_cast<char>(0xE0 | (code >> 12));
      tail(6);
      tail(0);
    } else {
      text += static_cast<char>(0xF0 | (code >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
  }

  const char* at_;
  const char* end_;
};

struct Header {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

StoredTensor readTensor(HeaderReader& reader, const std::string& name, const uint8_t* body,
                        uint64_t bodyBytes) {
  StoredTensor tensor;
  tensor.name = name;
  std::vector<uint64_t> shape, offsets;
  std::set<std::string> seen;
  reader.object([&](const std::string& key) {
    if (!seen.insert(key).second) refuse("tensor " + name + " says " + key + " twice");
    if (key == "dtype") tensor.dtype = reader.string();
    else if (key == "shape") shape = reader.numbers();
    else if (key == "data_offsets") offsets = reader.numbers();
    else refuse("tensor " + name + " has the unknown field " + key);
  });
  if (seen.size() != 3 || offsets.size() != 2) refuse("tensor " + name + " is not fully described");
  if (offsets[0] > offsets[1] || offsets[1] > bodyBytes)
    refuse("tensor " + name + " leaves the file");
  uint64_t bytes = bytesOf(tensor.dtype);
  const bool isEmpty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  for (uint64_t side : shape) {
    // No tensor is larger than its file, so a product that would overflow is refused first.
    if (!isEmpty && side > bodyBytes / bytes) refuse("tensor " + name + " is larger than the file");
    bytes = isEmpty ? 0 : bytes * side;
    tensor.shape.push_back(static_cast<int64_t>(side));
  }
  if (bytes != offsets[1] - offsets[0])
    refuse("tensor " + name + " has not the bytes of its shape");
  tensor.data = body + offsets[0];
  tensor.bytes = bytes;
  return tensor;
}

Header readHeader(const uint8_t* data, uint64_t bytes) {
  if (bytes < kLengthBytes) refuse("it is too short to be a safetensors file");
  uint64_t length = 0;
  std::memcpy(&length, data, kLengthBytes);
  if (length > kHeaderBytesMax || length > bytes - kLengthBytes)
    refuse("its header is longer than the file or the format allows");
  const uint8_t* body = data + kLengthBytes + length;
  const uint64_t bodyBytes = bytes - kLengthBytes - length;
  const char* text = reinterpret_cast<const char*>(data) + kLengthBytes;
  Header header;
  std::set<std::string> names;
  HeaderReader reader(text, text + length);
  reader.object([&](const std::string& name) {
    if (!names.insert(name).second) refuse("it has " + name + " twice");
    if (name != "__metadata__") {
      header.tensors.push_back(readTensor(reader, name, body, bodyBytes));
      return;
    }
    reader.object([&](const std::string& key) {
      if (!header.metadata.emplace(key, reader.string()).second)
        refuse("its metadata has " + key + " twice");
    });
  });
  reader.finish();
  std::vector<const StoredTensor*> inOrder;
  for (const StoredTensor& tensor : header.tensors) inOrder.push_back(&tensor);
  std::sort(inOrder.begin(), inOrder.end(), [](const StoredTensor* one, const StoredTensor* other) {
    return std::make_pair(one->data, one->bytes) < std::make_pair(other->data, other->bytes);
  });
  const uint8_t* reached = body;
  for (const StoredTensor* tensor : inOrder) {
    if (tensor->data != reached) refuse("its tensors overlap or leave gaps");
    reached = tensor->data + tensor->bytes;
  }
  if (reached != body + bodyBytes) refuse("it is longer than its tensors");
  return header;
}

std::string quoted(const std::string& text) {
  static const char* digits = "0123456789abcdef";
  std::string out = "\"";
  for (const unsigned char letter : text) {
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += static_cast<char>(letter);
    } else if (letter < 0x20) {
      out += "\\u00";
      out += digits[letter >> 4];
      out += digits[letter & 15];
    } else {
      out += static_cast<char>(letter);
    }
  }
  return out + "\"";
}

std::string headerOf(const std::vector<StoredTensor>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto key = [&](const std::string& name) {
    if (text.back() != '{') text += ',';
    text += quoted(name) + ":";
  };
  if (!metadata.empty()) {
    key("__metadata__");
    text += '{';
    for (const auto& [name, value] : metadata) {
      key(name);
      text += quoted(value);
    }
    text += '}';
  }
  uint64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    key(tensor.name);
    text += "{\"dtype\":" + quoted(tensor.dtype) + ",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(tensor.shape[i]);
    }
    text += "],\"data_offsets\":[";
    text += std::to_string(offset);
    text += ',';
    offset += tensor.bytes;
    text += std::to_string(offset);
    text += "]}";
  }
  text += '}';
  // Tensors begin at a multiple of eight bytes.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void writeAll(int file, const void* data, uint64_t bytes, const std::string& path) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, next, std::min<uint64_t>(bytes, 1 << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("could not write", path);
    next += written;
    bytes -= static_cast<uint64_t>(written);
  }
}

void syncFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open.number < 0 || ::fsync(open.number) != 0) fail("could not sync", folder);
}

}  // namespace

/** Read rather than mapped: a file that shrinks under a map would end the process. */
TensorFile::TensorFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe would otherwise wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number < 0) fail("could not open", path);
  struct stat status{};
  if (::fstat(file.number, &status) != 0) fail("could not read", path);
  if (!S_ISREG(status.st_mode)) refuse(path + " is not a file");
  const uint64_t bytes = static_cast<uint64_t>(status.st_size);
  data_.reset(new uint8_t[bytes]);
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(file.number, data_.get() + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("could not read", path);
    if (got == 0) refuse("it became shorter while it was read");
    done += static_cast<uint64_t>(got);
  }
  Header header = readHeader(data_.get(), bytes);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

uint64_t writeTensors(const std::string& path, const std::vector<StoredTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::string header = headerOf(tensors, metadata);
  const uint64_t length = header.size();
  // Engines of one process may write to one path.
  static std::atomic<uint64_t> written{0};
  const std::string temporary =
      path + ".partial." + std::to_string(::getpid()) + "." + std::to_string(++written);
  uint64_t bytes = kLengthBytes + length;
  try {
    const Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.number < 0) fail("could not write", temporary);
    writeAll(file.number, &length, kLengthBytes, temporary);
    writeAll(file.number, header.data(), length, temporary);
    for (const StoredTensor& tensor : tensors) {
      writeAll(file.number, tensor.data, tensor.bytes, temporary);
      bytes += tensor.bytes;
    }
    if (::fsync(file.number) != 0) fail("could not sync", temporary);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail("could not name", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  syncFolder(path);
  return bytes;
}

}  // namespace vantage
