// SPDX-License-Identifier: Apache-2.0
// The listing of a code object, against the assembler that made it.
#include "object/listing.hpp"

#include <cstdlib>
#include <optional>
#include <vector>

#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "object/formats.hpp"
#include "object/make_object.hpp"
#include "object/toolchains.hpp"
#include "target/target.hpp"

using namespace hstu::jit;
using namespace hstu::test;

namespace {

// Sets a variable for the life of this object.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace

TEST_CASE("A listing has every instruction with its address and length", "[object]") {
  auto folder = TempDir::create("listing-test");
  REQUIRE(folder.ok());
  // Lengths by the CDNA3 instruction formats: SOP1/VOP1/VOP2 4, VOP3/MFMA/DS/global 8, literal +4.
  const auto object = assemble_amd(folder->path(), "gfx942", R"(
  v_mov_b32_e32 v1, v0
  s_mov_b32 s4, 0x12345678
  v_fma_f32 v2, v1, v1, -v1
loop:
  ds_read_b128 v[4:7], v1 offset:16
  s_waitcnt lgkmcnt(0)
  v_add_u32_dpp v2, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf
  s_cbranch_scc1 loop
)");
  if (!object) {
    skipped("listing", "no clang-19 and ld.lld-19");
    return;
  }
  const auto listing = disassemble(*object);
  REQUIRE(listing.ok());
  CHECK(listing->disassembler.find("objdump") != std::string::npos);
  struct Want {
    const char* mnemonic;
    const char* operands;
    uint32_t bytes;
  };
  const std::vector<Want> want = {
      {"v_mov_b32_e32", "v1, v0", 4},
      {"s_mov_b32", "s4, 0x12345678", 8},
      {"v_fma_f32", "v2, v1, v1, -v1", 8},
      {"ds_read_b128", "v[4:7], v1 offset:16", 8},
      {"s_waitcnt", "lgkmcnt(0)", 4},
      {"v_add_u32_dpp", "v2, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf", 8},
      {"s_cbranch_scc1", "65530", 4},  // back over 8 + 4 + 8 + 4 bytes: -6 words
      {"s_endpgm", "", 4},
  };
  REQUIRE(listing->instructions.size() >= want.size());
  uint64_t address = listing->instructions[0].address;
  for (size_t i = 0; i < want.size(); ++i) {
    const ListedInstruction& got = listing->instructions[i];
    INFO(want[i].mnemonic);
    CHECK(got.mnemonic == want[i].mnemonic);
    CHECK(got.operands == want[i].operands);
    CHECK(got.bytes == want[i].bytes);
    CHECK(got.address == address);
    address += want[i].bytes;
  }
}

TEST_CASE("What cannot be listed is refused in one line", "[object]") {
  const auto elf = disassemble("no object");
  REQUIRE(!elf.ok());
  CHECK(elf.error().kind == ErrorKind::kFailed);
  const auto self = read_file("/proc/self/exe", uint64_t{1} << 30);
  REQUIRE(self.ok());
  const auto host = disassemble(*self);
  REQUIRE(!host.ok());
  CHECK(host.error().kind == ErrorKind::kFailed);
  CHECK(host.error().message == "code object: it is a host object, not an AMDGPU one");

  Variable none("HSTU_JIT_OBJDUMP", "/nowhere/objdump");
  const auto missing = disassemble(make_amd_object(0x4c, amd_metadata("k", 8)));
  REQUIRE(!missing.ok());
  CHECK(missing.error().kind == ErrorKind::kUnsupported);
  CHECK(missing.error().message.find("gfx942") != std::string::npos);
  CHECK(missing.error().message.find("HSTU_JIT_OBJDUMP=/nowhere/objdump is no program") !=
        std::string::npos);
  CHECK(missing.error().message.find('\n') == std::string::npos);
}

TEST_CASE("A target newer than every disassembler here names what to install", "[object]") {
  Variable path("PATH", "/nowhere");
  Variable rocm("ROCM_PATH", "/nowhere");
  const auto program = find_amd_disassembler("gfx950");
  REQUIRE(!program.ok());
  CHECK(program.error().kind == ErrorKind::kUnsupported);
  CHECK(program.error().message.find("install llvm-20") != std::string::npos);
}

TEST_CASE("The table of targets names disassemblers that know them", "[object]") {
  for (const Target& target : all_targets()) {
    if (target.vendor != Vendor::amd) continue;
    const object::AmdProcessor* found = nullptr;
    for (const object::AmdProcessor& processor : object::amd_processors()) {
      if (target.name == processor.name) found = &processor;
    }
    INFO(target.name);
    REQUIRE(found != nullptr);
    REQUIRE(std::string(target.oldest_disassembler).substr(0, 5) == "llvm-");
    CHECK(std::stoi(target.oldest_disassembler + 5) >= found->llvm);
  }
}
