// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/digest.hpp"

namespace hstu::cache {
namespace {

constexpr size_t kMaxDepth = 64;  // of a header

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using nlohmann::json;

constexpr size_t kDigestAt = 32;  // what comes before it is covered by it

void put(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint64_t take(std::string_view bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)])} << (8 * i);
  }
  return value;
}

std::string content_digest(std::string_view start, std::string_view rest) {
  std::string covered;
  covered.reserve(start.size() + rest.size());
  covered.append(start).append(rest);
  return hstu::jit::sha256_hex(covered);
}

DecodedEntry fault(EntryFault kind, std::string problem) {
  DecodedEntry decoded;
  decoded.fault = kind;
  decoded.problem = std::move(problem);
  return decoded;
}

DecodedEntry corrupt(std::string problem) { return fault(EntryFault::corrupt, std::move(problem)); }

const std::string* text_member(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return nullptr;
  return found->get_ptr<const json::string_t*>();
}

bool read_ingredients(const json& header, Ingredients* ingredients) {
  const auto list = header.find("ingredients");
  if (list == header.end() || !list->is_array()) return false;
  for (const json& pair : *list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return false;
    }
    ingredients->emplace_back(pair[0].get_ref<const std::string&>(),
                              pair[1].get_ref<const std::string&>());
  }
  return true;
}

}  // namespace

bool is_digest(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

hstu::jit::Result<std::string> encode_entry(const Artifact& artifact) {
  const auto refuse = [](std::string_view reason) {
    return Error{ErrorKind::kCache, fmt::format("cannot store the artifact: {}", reason), "", ""};
  };
  if (!is_digest(artifact.key.request) || !is_digest(artifact.key.toolchain)) {
    return refuse("its key is not made of two digests");
  }
  if (request_digest(artifact.ingredients) != artifact.key.request) {
    return refuse("its key is not the digest of its ingredients");
  }
  if (artifact.payload.size() > kMaxPayload) return refuse("its payload is larger than 1 GiB");

  json ingredients = json::array();
  for (const auto& [name, text] : artifact.ingredients) {
    ingredients.push_back(json::array({name, text}));
  }
  std::string header;
  try {
    header = json{{"request", artifact.key.request},
                  {"toolchain", artifact.key.toolchain},
                  {"ingredients", std::move(ingredients)},
                  {"metadata", artifact.metadata}}
                 .dump();
  } catch (const json::exception&) {  // the strict serialiser takes UTF-8 only
    return refuse("an ingredient or the metadata is not UTF-8 text");
  }
  header += '\n';
  if (header.size() > kMaxHeader) return refuse("its header is larger than 64 MiB");

  std::string start(kEntryMagic);
  put(&start, kEntryVersion, 4);
  put(&start, 0, 4);
  put(&start, header.size(), 8);
  put(&start, artifact.payload.size(), 8);
  const std::string rest = header + artifact.payload;
  return start + content_digest(start, rest) + rest;
}

bool nested_deeper(std::string_view json, size_t levels) {
  size_t depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if ((c == '{' || c == '[') && ++depth > levels) {
      return true;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return false;
}

DecodedEntry decode_entry(std::string_view bytes) {
  if (bytes.empty()) return corrupt("the file is empty");
  if (bytes.size() < kEntryPrefix) return corrupt("the file is shorter than an entry can be");
  if (bytes.substr(0, kEntryMagic.size()) != kEntryMagic)
    return corrupt("it does not start as one");
  const uint64_t version = take(bytes, 8, 4);
  if (version != kEntryVersion) {
    return fault(EntryFault::other_version,
                 fmt::format("it has format version {}, this program reads version {}", version,
                             kEntryVersion));
  }
  if (take(bytes, 12, 4) != 0) return corrupt("it has unknown flags");
  const uint64_t header_size = take(bytes, 16, 8);
  const uint64_t payload_size = take(bytes, 24, 8);
  if (header_size > kMaxHeader || payload_size > kMaxPayload) {
    return corrupt("its lengths are impossible");
  }
  const std::string_view rest = bytes.substr(kEntryPrefix);
  if (rest.size() != header_size + payload_size) {
    return corrupt(fmt::format("it has {} bytes, its header says {}", bytes.size(),
                               kEntryPrefix + header_size + payload_size));
  }
  if (bytes.substr(kDigestAt, 64) != content_digest(bytes.substr(0, kDigestAt), rest)) {
    return corrupt("its digest does not match its content");
  }

  if (nested_deeper(rest.substr(0, header_size), kMaxDepth)) {
    return corrupt("its header is nested too deeply");
  }
  const json header = json::parse(rest.substr(0, header_size), nullptr, false);
  if (!header.is_object()) return corrupt("its header is not a JSON object");
  const std::string* request = text_member(header, "request");
  const std::string* toolchain = text_member(header, "toolchain");
  const std::string* metadata = text_member(header, "metadata");
  DecodedEntry decoded;
  if (!request || !toolchain || !metadata || !is_digest(*request) || !is_digest(*toolchain) ||
      !read_ingredients(header, &decoded.artifact.ingredients)) {
    return corrupt("its header lacks a field or has one of a wrong type");
  }
  if (request_digest(decoded.artifact.ingredients) != *request) {
    return corrupt("its key is not the digest of its ingredients");
  }
  decoded.artifact.key = {*request, *toolchain};
  decoded.artifact.metadata = *metadata;
  decoded.artifact.payload = std::string(rest.substr(header_size));
  return decoded;
}

bool peek_header(std::string_view bytes, Ingredients* ingredients, std::string* metadata) {
  ingredients->clear();
  metadata->clear();
  if (bytes.size() < kEntryPrefix || bytes.substr(0, kEntryMagic.size()) != kEntryMagic ||
      take(bytes, 8, 4) != kEntryVersion) {
    return false;
  }
  const uint64_t header_size = take(bytes, 16, 8);
  if (header_size > bytes.size() - kEntryPrefix) return false;
  if (nested_deeper(bytes.substr(kEntryPrefix, header_size), kMaxDepth)) return false;
  const json header = json::parse(bytes.substr(kEntryPrefix, header_size), nullptr, false);
  if (!header.is_object()) return false;
  const std::string* text = text_member(header, "metadata");
  if (text == nullptr || !read_ingredients(header, ingredients)) {
    ingredients->clear();
    return false;
  }
  *metadata = *text;
  return true;
}

Ingredients peek_ingredients(std::string_view bytes) {
  Ingredients ingredients;
  std::string metadata;
  peek_header(bytes, &ingredients, &metadata);
  return ingredients;
}

}  // namespace hstu::cache
