// SPDX-License-Identifier: Apache-2.0
// The reader on objects made by hand: every field, every processor, and every kind of damage.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "object/formats.hpp"
#include "object/inspect.hpp"
#include "object/make_object.hpp"
#include "object/msgpack.hpp"
#include "object/toolchains.hpp"

using namespace hstu::jit;
using namespace hstu::test;
using nlohmann::json;

namespace {

std::string error_of(const std::string& bytes) {
  const auto info = read_object(bytes);
  REQUIRE_FALSE(info.ok());
  CHECK(info.error().kind == ErrorKind::kFailed);
  CHECK(info.error().message.find('\n') == std::string::npos);
  return info.error().message;
}

}  // namespace

TEST_CASE("The metadata of an AMD object is read field by field", "[object]") {
  const auto info = read_object(make_amd_object(0x53f, amd_metadata("attention", 120)));
  REQUIRE(info.ok());
  CHECK(info->format == "amdgpu");
  CHECK(info->target == "gfx90a");
  CHECK(info->target_features == "xnack any, sramecc any");
  CHECK(info->code_object_version == 4);
  REQUIRE(info->kernels.size() == 1);
  const KernelInfo& kernel = info->kernels[0];
  CHECK(kernel.name == "attention");
  CHECK(kernel.vgprs == 96);
  CHECK(kernel.agprs == 32);
  CHECK(kernel.sgprs == 40);
  CHECK(kernel.vgpr_spills == 3);
  CHECK(kernel.sgpr_spills == 4);
  CHECK(kernel.scratch_bytes == 128);
  CHECK(kernel.lds_bytes == 4096);
  CHECK(kernel.wave_width == 64);
  CHECK(kernel.max_workgroup == 256);
  CHECK_FALSE(kernel.matrix_instructions.has_value());
  REQUIRE(kernel.arguments.size() == 2);
  CHECK(kernel.arguments[0].name == "args");
  CHECK(kernel.arguments[0].kind == "by_value");
  CHECK(kernel.arguments[0].size == 120);
  CHECK(kernel.arguments[1].offset == 120);
  CHECK(kernel.arguments[1].kind == "hidden_global_offset_x");
}

TEST_CASE("The JSON report has the published keys, and null for what is not known", "[object]") {
  auto info = read_object(make_amd_object(0x53f, amd_metadata("attention", 120)));
  REQUIRE(info.ok());
  info->kernels[0].sgprs.reset();
  json out = json::parse(to_json(*info));
  CHECK(out["schema"] == "hstu-jit/inspect/1");
  CHECK(out["target"] == "gfx90a");
  json& kernel = out["kernels"][0];
  CHECK(kernel["spills"] == 7);  // VGPR and SGPR spills together
  CHECK(kernel["vgprs"] == 96);
  CHECK(kernel["sgprs"].is_null());
  CHECK(kernel["scratch_bytes"] == 128);
  CHECK(kernel["lds_bytes"] == 4096);
  CHECK(kernel["matrix_instructions"].is_null());
  CHECK(kernel["instructions"].is_null());
  CHECK(kernel["kernargs"][0]["size"] == 120);
  CHECK(out["note"].is_string());

  info->kernels[0].vgpr_spills.reset();
  info->kernels[0].sgpr_spills.reset();
  info->kernels[0].matrix_instructions = 12;
  info->kernels[0].instructions = {{"matrix", 12}, {"total", 40}};
  info->kernels[0].name = "bad \xff\xfe utf-8\n";
  info->note.clear();
  out = json::parse(to_json(*info, 2));
  CHECK(out["kernels"][0]["spills"].is_null());
  CHECK(out["kernels"][0]["matrix_instructions"] == 12);
  CHECK(out["kernels"][0]["instructions"]["total"] == 40);
  CHECK(out.find("note") == out.end());
  const std::string text = to_text(*info);
  CHECK(text.find('\xff') == std::string::npos);
  CHECK_THAT(text, ContainsSubstring("matrix instructions  12"));
}

TEST_CASE("Processor numbers are those of LLVM", "[object]") {
  if (!find_program("llvm-readelf-19")) {
    skipped("processor numbers", "no llvm-readelf-19");
    return;
  }
  auto folder = TempDir::create("object-test");
  REQUIRE(folder.ok());
  const std::string path = folder->path() + "/object";
  int compared = 0;
  for (unsigned machine = 0x2c; machine < 0x60; ++machine) {
    const std::string bytes = make_amd_object(machine | 0x500, amd_metadata("k", 8));
    REQUIRE(write_file_atomic(path, bytes).ok());
    const auto header = output_of({"llvm-readelf-19", "-h", path});
    REQUIRE(header);
    const size_t at = header->find(", gfx");
    if (at == std::string::npos) continue;  // younger than LLVM 19, or none
    const std::string theirs =
        header->substr(at + 2, header->find_first_of(",\n", at + 2) - at - 2);
    INFO(theirs);
    const auto ours = read_object(bytes);
    const bool old = theirs == "gfx602" || theirs == "gfx705" || theirs == "gfx805";
    REQUIRE(ours.ok() == !old);
    if (ours) {
      CHECK(ours->target == theirs);
      ++compared;
    }
  }
  CHECK(compared >= 35);
  CHECK(read_object(make_amd_object(0x54f, amd_metadata("k", 8)))->target == "gfx950");
}

TEST_CASE("Feature modes and versions come from the header", "[object]") {
  const json metadata = amd_metadata("k", 8);
  const auto features = [&](uint32_t flags, uint8_t abi = 3) {
    const auto info = read_object(make_amd_object(flags, metadata, abi));
    REQUIRE(info.ok());
    CHECK(info->code_object_version == abi + 2);
    return info->target_features;
  };
  CHECK(features(0x041) == "");
  CHECK(features(0x64c) == "xnack off, sramecc any");
  CHECK(features(0xb4c, 2) == "xnack on, sramecc off");
  CHECK(features(0xd30) == "xnack any, sramecc on");
  CHECK(features(0x030, 1) == "");
  CHECK(features(0x330, 1) == "xnack on, sramecc on");
  CHECK_THAT(error_of(make_amd_object(0x30, metadata, 0)), ContainsSubstring("version 3 to 6"));
  CHECK_THAT(error_of(make_amd_object(0x30, metadata, 9)), ContainsSubstring("ABI version 9"));
  CHECK_THAT(error_of(make_amd_object(0xff, metadata)), ContainsSubstring("0xff"));
}

TEST_CASE("What is no code object says so in one line", "[object]") {
  CHECK_THAT(error_of(""), ContainsSubstring("empty"));
  CHECK_THAT(error_of("\x7f"
                      "ELF"),
             ContainsSubstring("4 bytes"));
  CHECK_THAT(error_of(std::string(1000, 'x')), ContainsSubstring("not an ELF file"));
  CHECK_THAT(error_of("__CLANG_OFFLOAD_BUNDLE__" + std::string(100, '\0')),
             ContainsSubstring("--no-gpu-bundle-output"));
  CHECK_THAT(error_of(make_elf(8, 0, 0, 0, {})), ContainsSubstring("machine 8"));
  CHECK_THAT(error_of(make_elf(224, 64, 2, 0x3f, {})), ContainsSubstring("no AMDGPU metadata"));
  CHECK_THAT(error_of(make_elf(190, 51, 3, 0x5a, {})), ContainsSubstring("ABI version 3"));
  CHECK_THAT(error_of(make_elf(190, 51, 7, 0x5a055a, {})), ContainsSubstring("no symbol table"));
  std::string narrow = make_amd_object(0x3f, amd_metadata("k", 8));
  narrow[4] = 1;
  CHECK_THAT(error_of(narrow), ContainsSubstring("64-bit"));
}

TEST_CASE("Metadata that lies is refused", "[object]") {
  const auto refused = [](const json& metadata) {
    return error_of(make_amd_object(0x3f, metadata));
  };
  json good = amd_metadata("k", 8);
  const auto with = [&](const char* key, const json& value) {
    json changed = good;
    changed["amdhsa.kernels"][0][key] = value;
    return changed;
  };
  CHECK_THAT(refused(with(".vgpr_count", "many")), ContainsSubstring("malformed"));
  CHECK_THAT(refused(with(".vgpr_count", -1)), ContainsSubstring("malformed"));
  CHECK_THAT(refused(with(".vgpr_count", 5'000'000'000)), ContainsSubstring("malformed"));
  CHECK_THAT(refused(with(".private_segment_fixed_size", UINT64_MAX)),
             ContainsSubstring("malformed"));
  CHECK_THAT(refused(with(".args", 3)), ContainsSubstring("malformed"));
  CHECK_THAT(refused(with(".name", "")), ContainsSubstring("no name"));
  CHECK_THAT(refused(json::array()), ContainsSubstring("malformed"));
  // Keys of later versions are passed over, however deep.
  json deep = 1;
  for (int i = 0; i < 2000; ++i) deep = json::array({deep});
  const auto info = read_object(make_amd_object(0x3f, with(".a_future_key", deep)));
  REQUIRE(info.ok());
  CHECK(info->kernels[0].max_workgroup == 256);
}

TEST_CASE("MessagePack of every head is read as its encoder wrote it", "[object]") {
  const auto packed = [](const json& value) {
    const auto bytes = json::to_msgpack(value);
    return std::string(bytes.begin(), bytes.end());
  };
  for (const int64_t number :
       {int64_t{0}, int64_t{127}, int64_t{128}, int64_t{255}, int64_t{256}, int64_t{65535},
        int64_t{65536}, int64_t{4294967295}, int64_t{4294967296}, INT64_MAX, int64_t{-1},
        int64_t{-32}, int64_t{-33}, int64_t{-128}, int64_t{-129}, int64_t{-32768}, int64_t{-32769},
        int64_t{-2147483649}, INT64_MIN}) {
    const std::string bytes = packed(number);
    CHECK(object::MsgpackCursor(bytes).integer() == number);
  }
  for (const size_t size : {0, 1, 31, 32, 255, 256, 65535, 65536}) {
    const std::string text(size, 'x'), bytes = packed(text);
    CHECK(object::MsgpackCursor(bytes).text() == text);
    json list = json::array();
    for (size_t i = 0; i < size; ++i) list.push_back(i % 3 == 0 ? json(nullptr) : json(i * 0.5));
    const std::string list_bytes = packed(json::array({list, 7}));
    object::MsgpackCursor cursor(list_bytes);
    CHECK(cursor.array() == 2);
    CHECK(cursor.skip());
    CHECK(cursor.integer() == 7);
    CHECK_FALSE(cursor.next().has_value());  // the end
  }
  // Containers that claim more than the bytes left could hold.
  for (const char* lie : {"\xdf\xff\xff\xff\xff", "\xdd\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff",
                          "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff", "\xc1", "\x9f", "\x81"}) {
    CHECK_FALSE(object::MsgpackCursor(lie).skip());
  }
}

TEST_CASE("Cut short or damaged, an object gives an error or sane values", "[object]") {
  const std::string good = make_amd_object(0x53f, amd_metadata("attention", 120));
  for (size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(read_object(std::string_view(good).substr(0, size)).ok());  // the table is last
  }
  std::mt19937 random(1);
  int survived = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    auto info = read_object(bytes);
    if (!info) continue;
    ++survived;
    (void)to_text(*info);
    (void)to_json(*info);
  }
  CHECK(survived > 0);
}

TEST_CASE("Work stays bounded when sections or names are shared", "[object]") {
  // Thousands of sections over the same bytes: refused, not walked.
  std::vector<ElfSection> sections(3000, {"s", 7, make_note("GNU", 1, std::string(64, 'x'))});
  std::string bytes = make_elf(224, 64, 2, 0x3f, sections);
  uint64_t table = 0;
  std::memcpy(&table, bytes.data() + 40, 8);
  for (size_t i = 1; i <= sections.size(); ++i) {
    put<uint64_t>(bytes, table + 64 * i + 24, 0);
    put<uint64_t>(bytes, table + 64 * i + 32, bytes.size());
  }
  CHECK_THAT(error_of(bytes), ContainsSubstring("overlap"));
}
