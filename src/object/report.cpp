// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "object/inspect.hpp"

namespace hstu::jit {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::optional<int> total_spills(const KernelInfo& kernel) {
  if (!kernel.vgpr_spills && !kernel.sgpr_spills) return std::nullopt;
  return kernel.vgpr_spills.value_or(0) + kernel.sgpr_spills.value_or(0);
}

Json kernel_json(const KernelInfo& kernel) {
  Json arguments = Json::array();
  for (const KernelArgument& argument : kernel.arguments) {
    arguments.push_back({{"name", argument.name},
                         {"kind", argument.kind},
                         {"offset", argument.offset},
                         {"size", argument.size}});
  }
  Json instructions = nullptr;
  if (!kernel.instructions.empty()) {
    instructions = Json::object();
    for (const auto& [name, count] : kernel.instructions) instructions[name] = count;
  }
  return {{"name", kernel.name},
          {"vgprs", or_null(kernel.vgprs)},
          {"agprs", or_null(kernel.agprs)},
          {"sgprs", or_null(kernel.sgprs)},
          {"spills", or_null(total_spills(kernel))},
          {"vgpr_spills", or_null(kernel.vgpr_spills)},
          {"sgpr_spills", or_null(kernel.sgpr_spills)},
          {"scratch_bytes", or_null(kernel.scratch_bytes)},
          {"lds_bytes", or_null(kernel.lds_bytes)},
          {"wave_width", or_null(kernel.wave_width)},
          {"max_workgroup", or_null(kernel.max_workgroup)},
          {"matrix_instructions", or_null(kernel.matrix_instructions)},
          {"instructions", instructions},
          {"kernargs", arguments}};
}

template <typename T>
void add_row(std::string& out, const char* label, const std::optional<T>& value,
             const char* unit = "") {
  if (value) out += fmt::format("  {:<20} {}{}\n", label, *value, unit);
}

void add_kernel(std::string& out, const KernelInfo& kernel, bool nvidia) {
  out += fmt::format("kernel {}\n", printable(kernel.name, 400));
  add_row(out, nvidia ? "registers" : "VGPRs", kernel.vgprs);
  add_row(out, "AGPRs", kernel.agprs);
  add_row(out, "SGPRs", kernel.sgprs);
  add_row(out, "VGPR spills", kernel.vgpr_spills);
  add_row(out, "SGPR spills", kernel.sgpr_spills);
  add_row(out, nvidia ? "local memory" : "scratch", kernel.scratch_bytes, " bytes per lane");
  add_row(out, nvidia ? "shared memory" : "LDS", kernel.lds_bytes, " bytes");
  add_row(out, "wave width", kernel.wave_width);
  add_row(out, "largest workgroup", kernel.max_workgroup);
  add_row(out, "matrix instructions", kernel.matrix_instructions);
  if (!kernel.instructions.empty()) {
    out += "  instructions\n";
    for (const auto& [name, count] : kernel.instructions) {
      out += fmt::format("    {:<18} {}\n", name, count);
    }
  }
  if (!kernel.arguments.empty()) {
    out += "  arguments\n";
    for (const KernelArgument& argument : kernel.arguments) {
      out += fmt::format("    {:>4} +{:<5} {} {}\n", argument.offset, argument.size,
                         printable(argument.kind), printable(argument.name));
    }
  }
}

}  // namespace

std::string to_json(const ObjectInfo& info, int indent) {
  Json kernels = Json::array();
  for (const KernelInfo& kernel : info.kernels) kernels.push_back(kernel_json(kernel));
  Json out = {{"schema", "hstu-jit/inspect/1"},
              {"format", info.format},
              {"target", info.target},
              {"target_features", info.target_features},
              {"code_object_version",
               info.code_object_version == 0 ? Json(nullptr) : Json(info.code_object_version)},
              {"kernels", kernels}};
  if (!info.note.empty()) out["note"] = info.note;
  // A hostile object may name its kernels in bytes that are no UTF-8.
  return out.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const ObjectInfo& info) {
  const char* kind = info.format == "amdgpu"  ? "AMD code object"
                     : info.format == "cubin" ? "NVIDIA cubin"
                                              : "host shared object";
  std::string out = fmt::format("{} for {}", kind, info.target);
  if (!info.target_features.empty()) out += fmt::format(" ({})", info.target_features);
  if (info.code_object_version != 0) out += fmt::format(", version {}", info.code_object_version);
  out += '\n';
  if (info.kernels.empty()) out += "no kernels\n";
  for (const KernelInfo& kernel : info.kernels) add_kernel(out, kernel, info.format == "cubin");
  if (!info.note.empty()) out += fmt::format("note: {}\n", info.note);
  return out;
}

}  // namespace hstu::jit
