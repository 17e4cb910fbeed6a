// SPDX-License-Identifier: Apache-2.0
#include "compile/job.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

namespace hstu::jit {
namespace {

using nlohmann::json;

// magic, length of the JSON, length of the blob (both 8 bytes, little-endian), JSON, blob.
constexpr std::string_view kMagic{"hstuwrk1", 8};
constexpr size_t kPrefix = 24;
constexpr uint64_t kMaxLength = uint64_t{1} << 30;

std::string frame(const json& head, std::string_view blob) {
  // A compiler's log may hold anything; the strict serialiser would throw.
  const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string bytes(kMagic);
  for (uint64_t length : {uint64_t{text.size()}, uint64_t{blob.size()}}) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  }
  return bytes.append(text).append(blob);
}

struct Frame {
  json head;
  std::string blob;
};

uint64_t take_length(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

std::optional<Frame> unframe(std::string_view bytes) {
  if (bytes.size() < kPrefix || bytes.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  const uint64_t head = take_length(bytes, 8);
  const uint64_t blob = take_length(bytes, 16);
  if (head > kMaxLength || blob > kMaxLength || bytes.size() != kPrefix + head + blob) {
    return std::nullopt;
  }
  Frame frame{json::parse(bytes.substr(kPrefix, head), nullptr, false),
              std::string(bytes.substr(kPrefix + head))};
  if (!frame.head.is_object()) return std::nullopt;
  return frame;
}

bool read(const json& head, const char* name, std::string* text) {
  const auto found = head.find(name);
  if (found == head.end() || !found->is_string()) return false;
  *text = found->get_ref<const std::string&>();
  return true;
}

bool read(const json& head, const char* name, std::vector<std::string>* list) {
  const auto found = head.find(name);
  if (found == head.end() || !found->is_array()) return false;
  for (const json& item : *found) {
    if (!item.is_string()) return false;
    list->push_back(item.get_ref<const std::string&>());
  }
  return true;
}

constexpr const char* kOutcomes[] = {"ok", "diagnostics", "unsupported_arch", "unusable"};

Error odd(const char* what) { return Error{ErrorKind::kInternal, what, "", ""}; }

}  // namespace

std::string encode_job(const Job& job) {
  return frame({{"probe", job.probe},
                {"driver", driver_name(job.driver)},
                {"library", job.library},
                {"target", job.target},
                {"options", job.options}},
               job.source);
}

std::string encode_answer(const Answer& answer) {
  return frame({{"outcome", kOutcomes[static_cast<int>(answer.outcome)]},
                {"message", answer.message},
                {"log", answer.log},
                {"version", answer.version},
                {"parts", answer.parts},
                {"files", answer.files}},
               answer.object);
}

Result<Job> decode_job(std::string_view bytes) {
  std::optional<Frame> frame = unframe(bytes);
  if (!frame) return odd("the request is not a whole frame");
  Job job;
  std::string driver;
  const auto probe = frame->head.find("probe");
  if (probe == frame->head.end() || !probe->is_boolean() || !read(frame->head, "driver", &driver) ||
      !read(frame->head, "library", &job.library) || !read(frame->head, "target", &job.target) ||
      !read(frame->head, "options", &job.options)) {
    return odd("the request lacks a field");
  }
  job.probe = probe->get<bool>();
  bool known = false;
  for (Driver each : {Driver::hiprtc, Driver::nvrtc, Driver::clang, Driver::host}) {
    if (driver != driver_name(each)) continue;
    job.driver = each;
    known = true;
  }
  if (!known) return odd("the request names an unknown driver");
  job.source = std::move(frame->blob);
  return job;
}

Result<Answer> decode_answer(std::string_view bytes) {
  std::optional<Frame> frame = unframe(bytes);
  if (!frame) return odd("the answer is not a whole frame");
  Answer answer;
  std::string outcome;
  if (!read(frame->head, "outcome", &outcome) || !read(frame->head, "message", &answer.message) ||
      !read(frame->head, "log", &answer.log) || !read(frame->head, "version", &answer.version) ||
      !read(frame->head, "parts", &answer.parts) || !read(frame->head, "files", &answer.files)) {
    return odd("the answer lacks a field");
  }
  bool known = false;
  for (int i = 0; i < 4; ++i) {
    if (outcome != kOutcomes[i]) continue;
    answer.outcome = static_cast<Outcome>(i);
    known = true;
  }
  if (!known) return odd("the answer has an unknown outcome");
  answer.object = std::move(frame->blob);
  if (answer.outcome == Outcome::ok && answer.object.substr(0, 4) !=
                                           "\x7f"
                                           "ELF") {
    return odd("the answer holds no ELF object");
  }
  return answer;
}

}  // namespace hstu::jit
