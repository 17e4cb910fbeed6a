// SPDX-License-Identifier: Apache-2.0
// Launches of a kernel that needs no compiler and no disassembler, on several host threads.
#include "sim/launch.hpp"

#include <numeric>

#include "catch.hpp"
#include "handmade_object.hpp"

namespace hstu::jit::sim {
namespace {

// Two waves exchange their work-items' numbers through LDS, add them to one counter and leave the
// last of them in the workgroup's own word.
constexpr const char* kExchange =
    "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"
    "v_lshlrev_b32_e32 v1, 2, v0\n"
    "s_waitcnt lgkmcnt(0)\n"
    "ds_write_b32 v1, v0\n"
    "s_waitcnt lgkmcnt(0)\n"
    "s_barrier\n"
    "v_xor_b32_e32 v2, 0x100, v1\n"
    "ds_read_b32 v3, v2\n"
    "v_mov_b32_e32 v4, 0\n"
    "s_waitcnt lgkmcnt(0)\n"
    "global_atomic_add v4, v3, s[4:5]\n"
    "s_lshl_b32 s6, s2, 2\n"
    "v_mov_b32_e32 v5, s6\n"
    "global_store_dword v5, v3, s[4:5] offset:64\n"
    "s_endpgm";

}  // namespace

TEST_CASE("simulator: workgroups on several host threads") {
  constexpr uint32_t kGroups = 200;
  for (const auto& [processor, name] : {std::pair(0x30u, "gfx908"), std::pair(0x3fu, "gfx90a")}) {
    const auto code = Code::load(test::handmade_object(processor), [](std::string_view) {
      return Result<Listing>(test::handmade_listing(kExchange));
    });
    REQUIRE(code.ok());
    CHECK((*code)->machine().target == name);
    for (const int threads : {1, 4}) {
      std::vector<uint32_t> words(16 + kGroups, 0xffffffffu);
      words[0] = 0;
      const auto begin = reinterpret_cast<uint64_t>(words.data());
      std::string arguments(16, '\0');
      test::put(arguments, 0, begin);
      LaunchRequest request;
      request.code = *code;
      request.kernel = (*code)->find("k");
      request.grid = {kGroups, 1, 1};
      request.block = {128, 1, 1};
      request.arguments = arguments;
      request.buffers = {{begin, begin + words.size() * 4, true, "buffer"}};
      Options options;
      options.threads = threads;
      options.instructions_per_wave = 1000;
      LaunchReport report;
      INFO(name << ", " << threads << " threads: " << report.fault);
      REQUIRE(run_launch(request, options, report).ok());
      CHECK(report.fault == "");
      CHECK(words[0] == kGroups * (127 * 128 / 2));
      for (uint32_t g = 0; g < kGroups; ++g) CHECK((words[16 + g] == 63 || words[16 + g] == 127));
      CHECK(report.counters.workgroups == kGroups);
      CHECK(report.counters.instruction_total() == uint64_t{kGroups} * 2 * 15);
      // Many threads meet a fault; the report has one.
      request.buffers[0].end -= 4;
      REQUIRE(run_launch(request, options, report).ok());
      CHECK(report.fault.find("global_store_dword") != std::string::npos);
      CHECK(report.fault.find("workgroup (199, 0, 0)") != std::string::npos);
    }
  }
}

}  // namespace hstu::jit::sim
