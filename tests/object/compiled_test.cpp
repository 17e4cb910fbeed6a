// SPDX-License-Identifier: Apache-2.0
// The reader on what compilers make, against what the tools of those compilers say.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "object/inspect.hpp"
#include "object/toolchains.hpp"

using namespace hstu::jit;
using namespace hstu::test;

namespace {

const KernelInfo* find_kernel(const ObjectInfo& info, const std::string& name) {
  for (const KernelInfo& kernel : info.kernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

// Numbers of one kernel in the YAML that llvm-readelf prints; kernels are sorted by no rule, so
// each block between "- .agpr_count" or "- .args" is searched for its name.
std::map<std::string, int64_t> notes_of(const std::string& yaml, const std::string& kernel) {
  std::map<std::string, int64_t> numbers;
  const std::regex number("^    (\\.[a-z_]+): +([0-9]+)$");
  std::string block;
  size_t at = 0;
  bool ours = false;
  while (at < yaml.size()) {
    const size_t end = yaml.find('\n', at);
    std::string line = yaml.substr(at, end - at);
    at = end == yaml.npos ? yaml.size() : end + 1;
    if (line.substr(0, 5) == "  - .") {
      if (ours) return numbers;
      numbers.clear();
      line.replace(2, 1, " ");
    }
    std::smatch match;
    if (std::regex_match(line, match, number)) numbers[match[1]] = std::stoll(match[2]);
    if (std::regex_match(line, std::regex("^    \\.name: +" + kernel + "$"))) ours = true;
    if (line.substr(0, 7) == "amdhsa." && line.substr(0, 14) != "amdhsa.kernels" && ours) break;
  }
  return ours ? numbers : std::map<std::string, int64_t>{};
}

void compare_with_readelf(const std::string& path, const ObjectInfo& info) {
  const auto yaml = output_of({"llvm-readelf-19", "--notes", path});
  REQUIRE(yaml);
  for (const KernelInfo& kernel : info.kernels) {
    auto notes = notes_of(*yaml, kernel.name);
    INFO(kernel.name << " in " << path);
    REQUIRE(notes.size() >= 8);
    CHECK(kernel.vgprs == notes[".vgpr_count"]);
    if (notes.count(".agpr_count")) CHECK(kernel.agprs == notes[".agpr_count"]);
    CHECK(kernel.agprs.has_value() == (notes.count(".agpr_count") == 1));
    CHECK(kernel.sgprs == notes[".sgpr_count"]);
    CHECK(kernel.vgpr_spills == notes[".vgpr_spill_count"]);
    CHECK(kernel.sgpr_spills == notes[".sgpr_spill_count"]);
    CHECK(kernel.scratch_bytes == notes[".private_segment_fixed_size"]);
    CHECK(kernel.lds_bytes == notes[".group_segment_fixed_size"]);
    CHECK(kernel.wave_width == notes[".wavefront_size"]);
    CHECK(kernel.max_workgroup == notes[".max_flat_workgroup_size"]);
  }
}

void damage(const std::string& good) {
  for (size_t size = 0; size < good.size(); size += 37) {
    (void)read_object(std::string_view(good).substr(0, size));
  }
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (unsigned flips = 1 + random() % 8; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto info = read_object(bytes);
    if (info) (void)to_json(*info);
  }
}

}  // namespace

TEST_CASE("Objects of clang agree with llvm-readelf and llvm-objdump", "[object]") {
  const std::string target =
      GENERATE(as<std::string>(), "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201");
  auto folder = TempDir::create("object-test");
  REQUIRE(folder.ok());
  const bool cdna = target.substr(0, 4) == "gfx9";
  const auto bytes = clang_object(folder->path(), target,
                                  (cdna ? kMatrixKernel : "") + std::string(kSpillingKernel));
  if (!bytes || !find_program("llvm-readelf-19")) {
    skipped("clang objects " + target, "no clang++-19 and llvm-readelf-19");
    return;
  }
  auto info = read_object(*bytes);
  REQUIRE(info.ok());
  CHECK(info->target == target);
  CHECK(info->code_object_version == 5);
  REQUIRE(info->kernels.size() == (cdna ? 2 : 1));
  const std::string path = folder->path() + "/" + target + ".hsaco";
  compare_with_readelf(path, *info);

  count_instructions(*info, *bytes);
  CHECK(info->note == "");
  const auto listing = output_of({"llvm-objdump-19", "-d", path});
  REQUIRE(listing);
  // Spills are reported as such, with the scratch they go to.
  const KernelInfo* spilling = find_kernel(*info, "spilling");
  REQUIRE(spilling != nullptr);
  if (cdna) {
    CHECK(spilling->vgpr_spills.value() > 0);
    CHECK(spilling->scratch_bytes.value() > 0);
    CHECK(spilling->instructions.at("scratch") >= 2);
    // 80 loads and stores are the source's own; more would be scratch counted as memory.
    CHECK(spilling->instructions.at("global_read") <= 100);
    CHECK(spilling->instructions.at("global_write") == 80);
    CHECK(spilling->matrix_instructions == 0);
    const KernelInfo* matrix = find_kernel(*info, "matrix");
    REQUIRE(matrix != nullptr);
    CHECK(matrix->vgpr_spills == 0);
    CHECK(matrix->scratch_bytes == 0);
    CHECK(matrix->lds_bytes == 256);
    CHECK(matrix->matrix_instructions == count_of(*listing, "\tv_mfma"));
    CHECK(matrix->matrix_instructions == 5);
    CHECK(matrix->instructions.at("transcendental") == count_of(*listing, "\tv_rcp_"));
    CHECK(matrix->instructions.at("lds_write") == count_of(*listing, "\tds_write"));
    CHECK(matrix->instructions.at("lds_read") == count_of(*listing, "\tds_read"));
    CHECK(matrix->instructions.at("global_write") == 1);
    REQUIRE(matrix->arguments.size() == 1);
    CHECK(matrix->arguments[0].size == 32);
  }
  // The classes are a partition of the whole.
  for (const KernelInfo& kernel : info->kernels) {
    int64_t sum = 0;
    for (const auto& [name, count] : kernel.instructions) sum += name == "total" ? 0 : count;
    CHECK(sum == kernel.instructions.at("total"));
  }
  if (target == "gfx90a") damage(*bytes);
}

TEST_CASE("Objects of hipRTC agree with llvm-readelf", "[object]") {
  auto folder = TempDir::create("object-test");
  REQUIRE(folder.ok());
  const auto bytes =
      hiprtc_object(folder->path(), "gfx90a", kMatrixKernel + std::string(kSpillingKernel));
  if (!bytes || !find_program("llvm-readelf-19")) {
    skipped("hipRTC objects", "no hipRTC for gfx90a and llvm-readelf-19");
    return;
  }
  auto info = read_object(*bytes);
  REQUIRE(info.ok());
  CHECK(info->target == "gfx90a");
  CHECK(info->target_features == "xnack any, sramecc any");
  compare_with_readelf(folder->path() + "/hiprtc.hsaco", *info);
  const KernelInfo* matrix = find_kernel(*info, "matrix");
  REQUIRE(matrix != nullptr);
  REQUIRE_FALSE(matrix->arguments.empty());
  CHECK(matrix->arguments[0].kind == "by_value");
  CHECK(matrix->arguments[0].size == 32);
  count_instructions(*info, *bytes);
  CHECK(find_kernel(*info, "matrix")->matrix_instructions == 5);
  damage(*bytes);
}

TEST_CASE("Cubins agree with ptxas and cuobjdump", "[object]") {
  static const char* kSource = R"(
struct Args { float* a; const float* b; long n; int m; };
extern "C" __global__ void plain(Args x) {
  __shared__ float s[256];
  s[threadIdx.x] = x.b[threadIdx.x];
  __syncthreads();
  x.a[threadIdx.x] = s[255 - threadIdx.x] * x.m;
}
extern "C" __global__ void __launch_bounds__(128) stack(float* a, int n, short h) {
  float v[64];
  for (int i = 0; i < 64; i++) v[i] = a[i];
  float t = 0;
  for (int i = 0; i < n; i++) t += v[(i * h) & 63];
  a[threadIdx.x] = t;
}
)";
  const std::string target = GENERATE(as<std::string>(), "sm_80", "sm_90", "sm_90a");
  auto folder = TempDir::create("object-test");
  REQUIRE(folder.ok());
  auto bytes = nvrtc_object(folder->path(), target, kSource);
  if (bytes) {
    const auto info = read_object(*bytes);
    REQUIRE(info.ok());
    CHECK(info->target == target);
    CHECK(info->kernels.size() == 2);
    if (target == "sm_90a") damage(*bytes);
  } else {
    skipped("NVRTC cubins " + target, "no NVRTC");
  }

  const std::string source = folder->path() + "/k.cu", path = folder->path() + "/k.cubin";
  REQUIRE(write_file_atomic(source, kSource).ok());
  std::string nvcc = "nvcc";
  if (!find_program(nvcc)) nvcc = "/usr/local/cuda/bin/nvcc";
  const auto said =
      output_of({nvcc, "-cubin", "-arch=" + target, "-Xptxas", "-v", source, "-o", path});
  if (!said) {
    skipped("ptxas cubins " + target, "no nvcc");
    return;
  }
  const auto file = read_file(path);
  REQUIRE(file.ok());
  auto info = read_object(*file);
  REQUIRE(info.ok());
  CHECK(info->format == "cubin");
  CHECK(info->target == target);
  // "Function properties for NAME \n N bytes stack frame ... Used N registers, ..., N bytes smem"
  for (const KernelInfo& kernel : info->kernels) {
    const size_t at = said->find("entry function '" + kernel.name + "'");
    REQUIRE(at != std::string::npos);
    std::string text = said->substr(at);
    text = text.substr(0, text.find("Compile time"));
    std::smatch match;
    INFO(text);
    REQUIRE(std::regex_search(text, match, std::regex("Used ([0-9]+) registers")));
    CHECK(kernel.vgprs == std::stoi(match[1]));
    REQUIRE(std::regex_search(text, match, std::regex("([0-9]+) bytes stack frame")));
    CHECK(kernel.scratch_bytes == std::stoi(match[1]));
    const bool shared = std::regex_search(text, match, std::regex("([0-9]+) bytes smem"));
    // From sm_90 on the driver's own 1 KiB is part of the section, as cuobjdump reports it.
    const int reserved = target == "sm_80" ? 0 : shared ? 1024 : 0;
    CHECK(kernel.lds_bytes == (shared ? std::stoi(match[1]) + reserved : 0));
    CHECK_FALSE(kernel.vgpr_spills.has_value());
  }
  const KernelInfo* stack = find_kernel(*info, "stack");
  REQUIRE(stack != nullptr);
  CHECK(stack->scratch_bytes == 256);
  CHECK(stack->max_workgroup == 128);
  REQUIRE(stack->arguments.size() == 3);
  const std::pair<uint32_t, uint32_t> expected[] = {{0, 8}, {8, 4}, {12, 2}};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(stack->arguments[i].offset == expected[i].first);
    CHECK(stack->arguments[i].size == expected[i].second);
  }

  const auto usage = output_of({"cuobjdump", "--dump-resource-usage", path});
  count_instructions(*info, *file);
  if (!usage) {
    skipped("cuobjdump " + target, "no cuobjdump");
    return;
  }
  for (const KernelInfo& kernel : info->kernels) {
    const std::regex line("Function " + kernel.name +
                          ":\\s+REG:([0-9]+) STACK:([0-9]+) SHARED:([0-9]+)");
    std::smatch match;
    REQUIRE(std::regex_search(*usage, match, line));
    CHECK(kernel.vgprs == std::stoi(match[1]));
    CHECK(kernel.scratch_bytes == std::stoi(match[2]));
    CHECK(kernel.lds_bytes == std::stoi(match[3]));
  }
  CHECK(info->note == "");
  CHECK(find_kernel(*info, "plain")->instructions.at("lds_write") == 1);
  CHECK(find_kernel(*info, "plain")->instructions.at("barrier") == 1);
}

TEST_CASE("A shared object of the host names what it exports", "[object]") {
  auto folder = TempDir::create("object-test");
  REQUIRE(folder.ok());
  const std::string source = folder->path() + "/k.cpp", path = folder->path() + "/k.so";
  REQUIRE(write_file_atomic(source,
                            "static int hidden_one(int x) { return x + 1; }\n"
                            "__attribute__((visibility(\"hidden\"))) int hidden_two(int x) "
                            "{ return hidden_one(x); }\n"
                            "extern \"C\" int attention(int x) { return hidden_two(x) * x; }\n"
                            "extern \"C\" int other(int x) { return attention(x); }\n"
                            "int data = 3;\n")
              .ok());
  if (!output_of({"c++", "-O1", "-shared", "-fPIC", source, "-o", path})) {
    skipped("host objects", "no c++");
    return;
  }
  const auto bytes = read_file(path);
  REQUIRE(bytes.ok());
  auto info = read_object(*bytes);
  REQUIRE(info.ok());
  CHECK(info->format == "host");
  std::set<std::string> names;
  for (const KernelInfo& kernel : info->kernels) names.insert(kernel.name);
  CHECK(names == std::set<std::string>{"attention", "other"});
  count_instructions(*info, *bytes);
  if (find_program("objdump")) {
    CHECK(info->note == "");
    CHECK(find_kernel(*info, "attention")->instructions.at("total") > 1);
  }
  damage(*bytes);
}

TEST_CASE("Where no disassembler serves, the counts are absent and the note says why", "[object]") {
  auto folder = TempDir::create("object-test");
  REQUIRE(folder.ok());
  const auto bytes = clang_object(folder->path(), "gfx90a", kMatrixKernel);
  if (!bytes) {
    skipped("missing disassembler", "no clang++-19");
    return;
  }
  const auto note_with = [&](const std::string& program) {
    setenv("HSTU_JIT_OBJDUMP", program.c_str(), 1);
    auto info = read_object(*bytes);
    count_instructions(*info, *bytes);
    unsetenv("HSTU_JIT_OBJDUMP");
    CHECK_FALSE(info->kernels[0].matrix_instructions.has_value());
    CHECK(info->kernels[0].instructions.empty());
    CHECK(info->note.find('\n') == std::string::npos);
    return info->note;
  };
  CHECK_THAT(note_with("/nonexistent/objdump"), ContainsSubstring("is no program"));
  CHECK_THAT(note_with("false"), ContainsSubstring("exit code 1"));
  CHECK_THAT(note_with("true"), ContainsSubstring("shows no instruction"));

  // The processor decides which LLVM will do: none on an empty PATH.
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  setenv("ROCM_PATH", "/nonexistent", 1);
  auto info = read_object(*bytes);
  count_instructions(*info, *bytes);
  setenv("PATH", path.c_str(), 1);
  unsetenv("ROCM_PATH");
  CHECK_THAT(info->note, ContainsSubstring("no llvm-objdump of LLVM 12 or newer, which gfx90a"));
}
