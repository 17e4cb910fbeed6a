// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "check/test_problems.hpp"

using namespace hstu::jit;
using hstu::Dtype;

namespace {

// Ordinary values from a 32-bit Mersenne twister seeded with 13579.
const float kUniform[] = {-0.664559245f, -0.840997458f, -0.39710623f,
                          -0.333357334f, -0.765393198f, -0.0692943931f};
const float kNormal[] = {-1.04218268f, -1.24148238f, -0.0925301388f,
                         -1.0220443f,  1.74176204f,  0.520505965f};

std::string dense_bytes(const std::vector<uint16_t>& values) {
  std::string bytes;
  for (uint16_t value : values) {
    bytes += static_cast<char>(value & 255);
    bytes += static_cast<char>(value >> 8);
  }
  return bytes;
}

}  // namespace

TEST_CASE("the published random values") {
  const auto init = GENERATE(DataSpec::Init::uniform, DataSpec::Init::normal);
  const auto dtype = GENERATE(Dtype::fp16, Dtype::bf16);
  SmallProblem s;
  s.problem = jagged_problem();
  s.problem.data.init = init;
  s.problem.data.same_qkv = true;
  s.problem.head_dim_v = s.problem.head_dim_qk;
  s.problem.dtype = dtype;
  s.build();
  const float* want = init == DataSpec::Init::uniform ? kUniform : kNormal;
  for (int n = 0; n < 6; ++n) CHECK(s.tensors.q[n] == from_float(want[n], dtype));
  CHECK(s.tensors.k == s.tensors.q);
  CHECK(s.tensors.v == s.tensors.q);
}

TEST_CASE("streams differ by tensor and by seed") {
  SmallProblem s;
  s.problem = jagged_problem();
  s.problem.head_dim_v = s.problem.head_dim_qk;
  s.build();
  const HostTensors first = s.tensors;
  CHECK(first.q[0] == from_float(kNormal[0], Dtype::bf16));
  CHECK(first.q != first.k);
  CHECK(first.q != first.v);
  CHECK(first.k != first.v);
  s.build();
  CHECK(s.tensors.k == first.k);
  for (uint64_t seed : {uint64_t{13580}, uint64_t{13579} + (uint64_t{1} << 32)}) {
    s.problem.data.seed = seed;
    s.build();
    CHECK(s.tensors.q != first.q);
    CHECK(s.tensors.k != first.k);
  }
}

TEST_CASE("normal and uniform data have their moments") {
  const auto init = GENERATE(DataSpec::Init::uniform, DataSpec::Init::normal);
  SmallProblem s;
  s.problem = batched_problem();
  s.problem.uih_q = s.problem.uih_kv = {500, 500, 500, 500};
  s.problem.data.init = init;
  s.build();
  for (const auto* tensor : {&s.tensors.q, &s.tensors.k, &s.tensors.v}) {
    double sum = 0, squares = 0;
    for (uint16_t bits : *tensor) {
      const double value = to_double(bits, Dtype::bf16);
      sum += value;
      squares += value * value;
    }
    const auto count = static_cast<double>(tensor->size());
    CHECK(std::fabs(sum / count) < 0.02);
    CHECK(squares / count == Approx(init == DataSpec::Init::normal ? 1.0 : 1.0 / 3).epsilon(0.03));
  }
}

TEST_CASE("strided tensors hold the dense values, and NaN between them") {
  SmallProblem dense, strided;
  dense.problem = strided.problem = batched_problem();
  strided.problem.k_strides = StrideSpec{20000, 200, 64};
  dense.build();
  strided.build();
  REQUIRE(static_cast<int64_t>(strided.tensors.k.size()) == strided.geometry.k_elements);
  int64_t different = 0;
  for (int b = 0; b < 4; ++b)
    for (int j = 0; j < dense.geometry.sequences[b].seqlen_kv; ++j)
      for (int h = 0; h < 3; ++h)
        for (int d = 0; d < 24; ++d)
          different +=
              dense.tensors.k[key_offset(dense.geometry, dense.geometry.k, b, j, h) + d] !=
              strided.tensors.k[key_offset(strided.geometry, strided.geometry.k, b, j, h) + d];
  CHECK(different == 0);
  int64_t nans = 0;
  for (uint16_t bits : strided.tensors.k) nans += std::isnan(to_double(bits, Dtype::bf16));
  CHECK(nans == strided.geometry.k_elements - dense.geometry.k_elements);
  CHECK(strided.tensors.q == dense.tensors.q);
}

TEST_CASE("tensors from files") {
  auto folder = TempDir::create("hstu-data-test");
  REQUIRE(folder.ok());
  SmallProblem random, files;
  random.problem = files.problem = jagged_problem();
  random.build();
  DataSpec& data = files.problem.data;
  data.init = DataSpec::Init::files;
  data.q_file = folder->path() + "/q.dat";
  data.k_file = folder->path() + "/k.dat";
  data.v_file = folder->path() + "/v.dat";
  REQUIRE(write_file_atomic(data.q_file, dense_bytes(random.tensors.q)).ok());
  REQUIRE(write_file_atomic(data.k_file, dense_bytes(random.tensors.k)).ok());
  REQUIRE(write_file_atomic(data.v_file, dense_bytes(random.tensors.v)).ok());
  SECTION("are the bytes of the files") {
    files.build();
    CHECK(files.tensors.q == random.tensors.q);
    CHECK(files.tensors.k == random.tensors.k);
    CHECK(files.tensors.v == random.tensors.v);
  }
  const Geometry geometry = random.geometry;
  SECTION("of the wrong size are refused, naming both sizes") {
    const std::string bytes = dense_bytes(random.tensors.k);
    for (const std::string& wrong : {bytes.substr(2), bytes + "x", std::string()}) {
      REQUIRE(write_file_atomic(data.k_file, wrong).ok());
      const auto result = make_tensors(files.problem, geometry);
      REQUIRE(!result.ok());
      CHECK(result.error().kind == ErrorKind::kSpec);
      CHECK(result.error().pointer == "/data/files/k");
      CHECK_THAT(result.error().message, ContainsSubstring(std::to_string(bytes.size())));
      CHECK_THAT(result.error().message, ContainsSubstring(std::to_string(wrong.size())));
    }
  }
  SECTION("that are missing or no files are refused") {
    for (const std::string& path : {folder->path() + "/none", folder->path(), std::string()}) {
      data.v_file = path;
      const auto result = make_tensors(files.problem, geometry);
      REQUIRE(!result.ok());
      CHECK(result.error().kind == ErrorKind::kFailed);
      CHECK(result.error().pointer == "/data/files/v");
      CHECK_THAT(result.error().message, ContainsSubstring("'" + path + "'"));
    }
  }
}

TEST_CASE("sizes beyond memory are an error") {
  SmallProblem s;
  s.problem = jagged_problem();
  s.build();
  s.geometry.q_elements = int64_t{1} << 62;
  const auto result = make_tensors(s.problem, s.geometry);
  REQUIRE(!result.ok());
  CHECK_THAT(result.error().message, ContainsSubstring("memory"));
}
