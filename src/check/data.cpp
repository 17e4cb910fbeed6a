// SPDX-License-Identifier: Apache-2.0
// Input tensors: random streams and files.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "check/check.hpp"
#include "check/parallel.hpp"

namespace hstu::jit {
namespace {

constexpr uint16_t kPoison = 0x7fff;  // NaN in fp16 and in bf16

// One tensor of the problem and where its elements go.
struct Place {
  const char* name;  // "q"
  const Strides& strides;
  int64_t elements;  // with the gaps between strides
  int32_t dims;
  bool keys;  // of the key side
};

int64_t dense_elements(const Problem& problem, const Geometry& geometry, const Place& place) {
  return (place.keys ? geometry.tokens_kv : geometry.tokens_q) * problem.heads * place.dims;
}

// Calls next() for each element, in the order of the dense tensor.
template <typename Next>
void fill(const Problem& problem, const Geometry& geometry, const Place& place,
          std::vector<uint16_t>& out, Next next) {
  for (size_t b = 0; b < geometry.sequences.size(); ++b) {
    const Geometry::Sequence& sequence = geometry.sequences[b];
    const int32_t tokens = place.keys ? sequence.seqlen_kv : sequence.seqlen_q;
    for (int32_t i = 0; i < tokens; ++i)
      for (int32_t h = 0; h < problem.heads; ++h) {
        uint16_t* row = out.data() + (place.keys ? key_offset(geometry, place.strides, b, i, h)
                                                 : query_offset(geometry, place.strides, b, i, h));
        for (int32_t d = 0; d < place.dims; ++d) row[d] = next();
      }
  }
}

// Seed of the stream of tensor `index` (q: 0). std::mt19937 takes 32 bits, so a longer seed is
// folded; SplitMix64's finaliser keeps neighbouring seeds from meeting.
uint32_t stream_seed(uint64_t seed, uint64_t index) {
  if (index == 0 && seed <= UINT32_MAX) return static_cast<uint32_t>(seed);
  uint64_t z = seed + index * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return static_cast<uint32_t>((z ^ z >> 31) >> 32);
}

void fill_random(const Problem& problem, const Geometry& geometry, const Place& place,
                 uint32_t seed, std::vector<uint16_t>& out) {
  std::mt19937 generator(seed);
  const Dtype dtype = problem.dtype;
  if (problem.data.init == DataSpec::Init::normal) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    fill(problem, geometry, place, out, [&] { return from_float(normal(generator), dtype); });
  } else {
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    fill(problem, geometry, place, out, [&] { return from_float(uniform(generator), dtype); });
  }
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Status fill_from_file(const Problem& problem, const Geometry& geometry, const Place& place,
                      const std::string& path, std::vector<uint16_t>& out) {
  const std::string pointer = fmt::format("/data/files/{}", place.name);
  std::error_code error;
  // Asked before opening: a pipe or a device would block, or never end.
  const bool regular = std::filesystem::is_regular_file(path, error);
  const uintmax_t found = regular ? std::filesystem::file_size(path, error) : 0;
  if (!regular || error)
    return Error{ErrorKind::kFailed,
                 fmt::format("cannot read {} from '{}': {}", place.name, path,
                             error ? error.message() : "not a regular file"),
                 pointer, ""};
  const auto expected = static_cast<uintmax_t>(dense_elements(problem, geometry, place)) * 2;
  if (found != expected)
    return Error{ErrorKind::kSpec,
                 fmt::format("'{}' has {} bytes, but {} of this problem has {} ({} values of 2 "
                             "bytes)",
                             path, found, place.name, expected, expected / 2),
                 pointer, ""};
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file)
    return Error{
        ErrorKind::kFailed,
        fmt::format("cannot read {} from '{}': {}", place.name, path, std::strerror(errno)),
        pointer, ""};
  std::vector<uint8_t> buffer(size_t{1} << 16);
  size_t at = 0, size = 0;
  bool cut = false;
  fill(problem, geometry, place, out, [&]() -> uint16_t {
    if (at == size && !cut) {
      size = std::fread(buffer.data(), 1, buffer.size(), file.get()) & ~size_t{1};
      at = 0;
      cut = size == 0;
    }
    if (cut) return kPoison;
    at += 2;
    return static_cast<uint16_t>(buffer[at - 2] | buffer[at - 1] << 8);
  });
  if (cut)
    return Error{ErrorKind::kFailed, fmt::format("'{}' ended or failed while it was read", path),
                 pointer, ""};
  return {};
}

}  // namespace

Result<HostTensors> make_tensors(const Problem& problem, const Geometry& geometry) {
  const Place places[3] = {{"q", geometry.q, geometry.q_elements, problem.head_dim_qk, false},
                           {"k", geometry.k, geometry.k_elements, problem.head_dim_qk, true},
                           {"v", geometry.v, geometry.v_elements, problem.head_dim_v, true}};
  const std::string* files[3] = {&problem.data.q_file, &problem.data.k_file, &problem.data.v_file};
  HostTensors tensors;
  std::vector<uint16_t>* outs[3] = {&tensors.q, &tensors.k, &tensors.v};
  Status statuses[3];
  const bool done = parallel_for(3, [&](size_t n) {
    outs[n]->assign(static_cast<size_t>(places[n].elements), kPoison);
    if (problem.data.init == DataSpec::Init::files) {
      statuses[n] = fill_from_file(problem, geometry, places[n], *files[n], *outs[n]);
    } else {
      const uint32_t seed = stream_seed(problem.data.seed, problem.data.same_qkv ? 0 : n);
      fill_random(problem, geometry, places[n], seed, *outs[n]);
    }
  });
  if (!done)
    return Error{ErrorKind::kFailed,
                 fmt::format("not enough memory for q, k and v ({:.0f} bytes); use a smaller "
                             "problem",
                             2 * (static_cast<double>(geometry.q_elements) +
                                  static_cast<double>(geometry.k_elements) +
                                  static_cast<double>(geometry.v_elements))),
                 "", ""};
  for (Status& status : statuses)
    if (!status) return std::move(status).error();
  return tensors;
}

}  // namespace hstu::jit
