// SPDX-License-Identifier: Apache-2.0
// Which target a command works for, when --target, --device and the spec have a say in it.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "catch.hpp"
#include "object/make_object.hpp"
#include "program.hpp"

using nlohmann::json;

namespace {

// EF_AMDGPU_MACH of LLVM's "User Guide for AMDGPU Backend".
constexpr uint32_t kGfx90a = 0x3f, kGfx942 = 0x4c;

std::string planned_target(const Program& p, std::vector<std::string> options,
                           const std::string& spec = kSmallSpec) {
  std::vector<std::string> arguments = {"plan", "-", "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome o = p.run(arguments, spec);
  INFO(o.err);
  REQUIRE(o.code == 0);
  return json::parse(o.out)["target"];
}

}  // namespace

TEST_CASE("a simulated device names the target of plan, emit, mask and inspect") {
  const Program p;
  for (const char* target : {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}) {
    const std::string device = std::string("sim:") + target;
    CHECK(planned_target(p, {"--device", device}) == target);
    CHECK(planned_target(p, {"--device", device, "--target", target}) == target);
    json spec = json::parse(kSmallSpec);
    spec["device"] = device;
    CHECK(planned_target(p, {}, spec.dump()) == target);
  }
  const Outcome by_device = p.run({"emit", "-", "--device", "sim:gfx942"}, kSmallSpec);
  const Outcome by_target = p.run({"emit", "-", "--target", "gfx942"}, kSmallSpec);
  CHECK(by_device.code == 0);
  // The head comment holds the problem, which names the device or the target it was given.
  const auto code = [](const Outcome& o) { return o.out.substr(o.out.find("\nnamespace")); };
  CHECK(code(by_device) == code(by_target));
  CHECK(code(by_device) != code(p.run({"emit", "-", "--target", "cpu"}, kSmallSpec)));
  CHECK(planned_target(p, {"--device", "cpu"}).rfind("cpu:", 0) == 0);
  CHECK(planned_target(p, {}).rfind("cpu:", 0) == 0);
}

TEST_CASE("--target wins over the device of a spec where nothing runs") {
  const Program p;
  json spec = json::parse(kSmallSpec);
  for (const char* device : {"sim:gfx90a", "cpu", "hip:0"}) {
    spec["device"] = device;
    CHECK(planned_target(p, {"--target", "gfx942"}, spec.dump()) == "gfx942");
  }
}

TEST_CASE("--target and --device that contradict each other are a usage error") {
  const Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  const std::string object = p.folder() + "/k.o";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"plan", spec},
                                                  {"emit", spec},
                                                  {"compile", spec, "-o", object},
                                                  {"inspect", "--schedule", spec},
                                                  {"mask", "--tiles", spec}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--device", "sim:gfx90a", "--target", "gfx942"});
    check_refused(p.run(arguments), 2, {"gfx90a", "gfx942", "contradict"});
    arguments = command;
    arguments.insert(arguments.end(), {"--device", "sim:gfx90"});
    check_refused(p.run(arguments), 4, {"sim:gfx90a"});
  }
  CHECK_FALSE(hstu::jit::read_file(object));
  check_refused(p.run({"plan", spec, "--device", "cpu", "--target", "gfx942"}), 2, {"contradict"});
  // Of the spec alone it is an unsupported spec, as it is for "run".
  json both = json::parse(kSmallSpec);
  both["device"] = "sim:gfx90a";
  both["target"] = "gfx942";
  check_refused(p.run({"plan", "-"}, both.dump()), 4, {"/target", "sim:gfx942"});
}

TEST_CASE("inspect refuses an object of another target than the one named") {
  const Program p;
  const std::string bytes =
      hstu::test::make_amd_object(kGfx90a, hstu::test::amd_metadata("kernel", 64));
  const std::string object = p.file("k.hsaco", bytes);
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--target", "gfx942"},
        {"--device", "sim:gfx942"},
        {"--target", "cpu"},
        {"--target", "gfx90a", "--device", "sim:gfx1100"}}) {
    for (const bool schedule : {false, true}) {
      std::vector<std::string> arguments = {"inspect", object};
      if (schedule) arguments.push_back("--schedule");
      arguments.insert(arguments.end(), options.begin(), options.end());
      check_refused(p.run(arguments), 2, {"k.hsaco is for gfx90a", "contradicts --"});
    }
  }
  check_refused(p.run({"inspect", object, "--target", "gfx9"}), 4, {"gfx9"});
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"--target", "gfx90a"}, {"--device", "sim:gfx90a"}}) {
    std::vector<std::string> arguments = {"inspect", object};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome o = p.run(arguments);
    CHECK(o.code == 0);
    CHECK_THAT(o.out, ContainsSubstring("gfx90a"));
  }
}

TEST_CASE("compile writes an object of the simulated device's target") {
  const Program p;
  for (const auto& [target, machine] : {std::pair("gfx90a", kGfx90a), {"gfx942", kGfx942}}) {
    const std::string object = p.folder() + "/k.o";
    if (const std::string lack = p.missing(fmt::format("compiler for {}", target)); !lack.empty()) {
      fmt::print("SKIPPED: compile for sim:{}: {}\n", target, lack);
      continue;
    }
    const Outcome o = p.run(
        {"compile", "-", "--device", fmt::format("sim:{}", target), "-o", object}, kSmallSpec);
    INFO(o.err);
    REQUIRE(o.code == 0);
    const auto bytes = hstu::jit::read_file(object);
    REQUIRE(bytes.ok());
    REQUIRE(bytes->size() > 64);
    uint16_t elf_machine = 0;
    uint32_t flags = 0;
    std::memcpy(&elf_machine, bytes->data() + 18, sizeof elf_machine);
    std::memcpy(&flags, bytes->data() + 48, sizeof flags);
    CHECK(elf_machine == 224);  // EM_AMDGPU
    CHECK((flags & 0xff) == machine);
  }
}

TEST_CASE("a GPU target without its GPU: the message names the simulated one") {
  const Program p;
  json spec = json::parse(kSmallSpec);
  spec["device"] = "cpu";  // also where there is a GPU
  const Outcome o = p.run({"run", "-", "--target", "gfx90a"}, spec.dump());
  CHECK(o.code == 4);
  CHECK(o.lines_err() == 1);
  CHECK_THAT(o.err, ContainsSubstring("--device sim:gfx90a"));
  // There is no simulator of this one.
  const Outcome other = p.run({"run", "-", "--target", "sm_90a"}, spec.dump());
  CHECK(other.code == 4);
  CHECK(other.err.find("sim:") == std::string::npos);
}
