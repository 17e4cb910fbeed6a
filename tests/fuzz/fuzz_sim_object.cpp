// SPDX-License-Identifier: Apache-2.0
// A good code object with some bytes changed is refused with one line, or loads and its kernels
// launch or fault. An input is the machine, then changes of three bytes: where (two bytes), what.
// The listing, a disassembler's elsewhere, is the same each time.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../sim/handmade_object.hpp"
#include "sim/launch.hpp"

namespace {

using namespace hstu;
using namespace hstu::jit;

void expect(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

bool one_line(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  return !text.empty();
}

constexpr uint32_t kProcessors[] = {0x30, 0x3f, 0x4c, 0x4f, 0x41, 0x4e};

// An entry moved by preloaded arguments finds code too.
Result<Listing> listing(std::string_view) {
  static const Listing same = [] {
    std::string text;
    for (int i = 0; i < 66; ++i) text += "s_nop 0\n";
    return test::handmade_listing(text + "v_mov_b32_e32 v1, v0\ns_endpgm");
  }();
  return same;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const std::vector<std::string> good = [] {
    std::vector<std::string> objects;
    for (const uint32_t processor : kProcessors)
      objects.push_back(test::handmade_object(processor));
    return objects;
  }();
  std::string object = good[data[0] % good.size()];
  for (size_t at = 1; at + 3 <= size; at += 3) {
    const size_t where = static_cast<size_t>(data[at] | data[at + 1] << 8) % object.size();
    object[where] = static_cast<char>(data[at + 2]);
  }
  const auto code = sim::Code::load(object, listing);
  if (!code) {
    expect(one_line(code.error().message), "not one line", code.error().message);
    expect(size > 3, "the unchanged object does not load", code.error().message);
    return 0;
  }
  for (const sim::KernelEntry& kernel : (*code)->kernels()) {
    sim::LaunchRequest request;
    request.code = *code;
    request.kernel = &kernel;
    request.grid = {2, 1, 1};
    request.block = {64, 1, 1};
    request.dynamic_lds = 16;
    const std::string arguments(24, '\1');
    request.arguments = arguments;
    sim::LaunchReport report;
    sim::Options options;
    options.threads = 1;
    options.instructions_per_wave = 100;
    const Status ran = sim::run_launch(request, options, report);
    if (!ran) expect(one_line(ran.error().message), "not one line", ran.error().message);
    if (ran && !report.fault.empty()) expect(one_line(report.fault), "not one line", report.fault);
    if (size <= 3) expect(ran.ok() && report.fault.empty(), "does not run", report.fault);
  }
  return 0;
}
