// SPDX-License-Identifier: Apache-2.0
// Counts instructions by reading what a disassembler prints.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <unordered_map>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/text.hpp"
#include "object/classify.hpp"
#include "object/formats.hpp"

namespace hstu::jit {
namespace {

using object::InstructionSet;

struct Disassembler {
  std::string program;
  std::vector<std::string> options;
};

struct Instruction {
  std::string_view mnemonic, operands;
  std::optional<uint64_t> address;
};

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

std::optional<uint64_t> hex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// "<tab>v_mov_b32_e32 v0, 0    // 000000001A00:"
std::optional<Instruction> amd_instruction(std::string_view line) {
  if (line.empty() || line[0] != '\t') return std::nullopt;
  const size_t comment = line.find("//");
  if (comment == line.npos) return std::nullopt;
  Instruction found;
  std::string_view rest = line.substr(0, comment);
  found.mnemonic = take_word(rest);
  found.operands = trimmed(rest);
  found.address = hex(trimmed(line.substr(comment + 2)));
  return found.address && !found.mnemonic.empty() ? std::optional(found) : std::nullopt;
}

// "        /*0030*/              @!P0 LDC.64 R2, c[0x0][0x210] ;  /* 0x... */"
std::optional<Instruction> nvidia_instruction(std::string_view line) {
  line = trimmed(line);
  if (line.substr(0, 2) != "/*") return std::nullopt;
  const size_t end = line.find("*/");
  if (end == line.npos || line.substr(2, 2) == " 0") return std::nullopt;  // encoding words only
  std::string_view rest = line.substr(end + 2);
  rest = rest.substr(0, rest.find(';'));
  Instruction found;
  found.mnemonic = take_word(rest);
  if (found.mnemonic.substr(0, 1) == "@") found.mnemonic = take_word(rest);
  return found.mnemonic.empty() ? std::nullopt : std::optional(found);
}

// "    1139:<tab>push   %rbp"
std::optional<Instruction> host_instruction(std::string_view line) {
  const size_t colon = line.find(":\t");
  if (colon == line.npos || !hex(trimmed(line.substr(0, colon)))) return std::nullopt;
  std::string_view rest = line.substr(colon + 2);
  Instruction found;
  do {
    found.mnemonic = take_word(rest);
  } while (found.mnemonic == "lock" || found.mnemonic == "rep" || found.mnemonic == "repz" ||
           found.mnemonic == "bnd" || found.mnemonic == "notrack");
  return found.mnemonic.empty() ? std::nullopt : std::optional(found);
}

// The function a line opens: "0000000000001000 <name>:", "Function : name", ".text.name:".
std::string_view opened_function(std::string_view line) {
  const size_t function = line.find("Function : ");
  if (function != line.npos) return trimmed(line.substr(function + 11));
  line = trimmed(line);
  if (line.empty() || line.back() != ':') return {};
  if (line.substr(0, 6) == ".text.") return line.substr(6, line.size() - 7);
  const size_t open = line.find('<');
  if (open == line.npos || line.size() < open + 3 || line[line.size() - 2] != '>') return {};
  return line.substr(open + 1, line.size() - open - 3);
}

// The text of each kernel, so that padding and other functions are not counted as its own.
struct Range {
  uint64_t begin = 0, end = 0;
};
std::unordered_map<std::string, Range> function_ranges(std::string_view bytes) {
  std::unordered_map<std::string, Range> ranges;
  const Result<object::Elf> elf = object::parse_elf(bytes);
  if (!elf) return ranges;
  const object::Section* table = elf->find_type(object::kSymbolTable);
  if (table == nullptr) table = elf->find_type(object::kDynamicSymbols);
  if (table == nullptr) return ranges;
  const auto symbols = object::elf_symbols(*elf, *table);
  if (!symbols) return ranges;
  for (const object::Symbol& symbol : *symbols) {
    if (symbol.type == 2) {
      ranges[std::string(symbol.name)] = {symbol.value, symbol.value + symbol.size};
    }
  }
  return ranges;
}

InstructionSet instruction_set(const ObjectInfo& info) {
  if (info.format == "amdgpu") return InstructionSet::amd;
  return info.format == "cubin" ? InstructionSet::nvidia : InstructionSet::host;
}

// Before gfx940 scratch is reached by buffer instructions through a descriptor that the kernel gets
// in s[0:3] and usually first copies elsewhere.
class ScratchDescriptor {
 public:
  // To be told of each instruction in order; true when it reads or writes scratch.
  bool used_by(const Instruction& found) {
    constexpr std::string_view kSource = ", s[0:1]";
    const std::string_view operands = found.operands;
    if (!moved_ && found.mnemonic == "s_mov_b64" && operands.size() > kSource.size() &&
        operands.substr(operands.size() - kSource.size()) == kSource) {
      int first = 0;
      std::from_chars(operands.data() + 2, operands.data() + operands.size(), first);
      registers_ = fmt::format("s[{}:{}]", first, first + 3);
      moved_ = true;
    }
    return found.mnemonic.substr(0, 7) == "buffer_" && operands.find(registers_) != operands.npos;
  }

 private:
  std::string registers_ = "s[0:3]";
  bool moved_ = false;
};

// False when the listing shows no instruction of any kernel.
bool count_listing(ObjectInfo& info, std::string_view bytes, std::string_view listing) {
  const InstructionSet set = instruction_set(info);
  std::unordered_map<std::string, KernelInfo*> kernels;
  for (KernelInfo& kernel : info.kernels) {
    kernels[kernel.name] = &kernel;
    kernel.instructions.clear();
  }
  const auto ranges = set == InstructionSet::amd ? function_ranges(bytes)
                                                 : std::unordered_map<std::string, Range>{};
  KernelInfo* current = nullptr;
  Range range;
  ScratchDescriptor descriptor;
  bool any = false;
  while (!listing.empty()) {
    const size_t newline = listing.find('\n');
    const std::string_view line = listing.substr(0, newline);
    listing.remove_prefix(newline == listing.npos ? listing.size() : newline + 1);

    const std::string_view function = opened_function(line);
    if (!function.empty()) {
      const auto kernel = kernels.find(std::string(function));
      const bool local_label = function.substr(0, 2) == ".L";
      if (kernel != kernels.end()) {
        current = kernel->second;
        descriptor = {};
        const auto known = ranges.find(current->name);
        range = known == ranges.end() ? Range{0, UINT64_MAX} : known->second;
      } else if (!local_label) {
        current = nullptr;
      }
      continue;
    }
    if (current == nullptr) continue;
    const auto found = set == InstructionSet::amd      ? amd_instruction(line)
                       : set == InstructionSet::nvidia ? nvidia_instruction(line)
                                                       : host_instruction(line);
    if (!found) continue;
    if (found->address && (*found->address < range.begin || *found->address >= range.end)) continue;
    const char* kind = object::instruction_class(set, found->mnemonic);
    if (set == InstructionSet::amd && current->scratch_bytes.value_or(0) > 0 &&
        descriptor.used_by(*found)) {
      kind = "scratch";
    }
    ++current->instructions[kind];
    ++current->instructions["total"];
    any = true;
  }
  if (!any) return false;
  for (KernelInfo& kernel : info.kernels) {
    if (kernel.instructions.empty()) continue;
    const auto matrix = kernel.instructions.find("matrix");
    kernel.matrix_instructions = matrix == kernel.instructions.end() ? 0 : matrix->second;
  }
  return true;
}

// Major version an llvm-objdump says it is of; 0 when it does not say.
int llvm_version(const std::string& program) {
  const auto ran = run_process({{program, "--version"}, {}, {}, std::chrono::seconds(20), 1 << 16});
  if (!ran || !ran->succeeded()) return 0;
  const size_t at = ran->output.find("version ");
  int version = 0;
  if (at != std::string::npos) {
    const char* begin = ran->output.data() + at + 8;
    std::from_chars(begin, ran->output.data() + ran->output.size(), version);
  }
  return version;
}

// Disassemblers to try, best first; `why` gets one clause for each that will not do.
std::vector<Disassembler> candidates(const ObjectInfo& info, std::string& why) {
  std::vector<Disassembler> out;
  const auto passed = [&](const std::string& clause) { why += (why.empty() ? "" : "; ") + clause; };
  const auto add = [&](const std::string& program, std::vector<std::string> options) {
    if (const auto path = find_program(program)) out.push_back({*path, std::move(options)});
  };
  if (info.format == "host") {
    add("objdump", {"-d", "-w", "--no-show-raw-insn"});
    add("llvm-objdump", {"-d", "--no-show-raw-insn"});
    if (out.empty()) passed("no objdump on PATH (install binutils)");
    return out;
  }
  if (info.format == "cubin") {
    std::vector<std::string> folders = {""};
    for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) {
      if (const auto root = get_env(variable)) folders.push_back(*root + "/bin/");
    }
    folders.push_back("/usr/local/cuda/bin/");
    for (const std::string& folder : folders) add(folder + "cuobjdump", {"-sass"});
    for (const std::string& folder : folders) add(folder + "nvdisasm", {"-c"});
    if (out.empty()) passed("no cuobjdump or nvdisasm on PATH or in /usr/local/cuda/bin");
    return out;
  }

  const std::vector<std::string> options = {"-d", "--no-show-raw-insn"};
  if (const auto chosen = get_env("HSTU_JIT_OBJDUMP")) {
    add(*chosen, options);
    if (out.empty()) passed(fmt::format("HSTU_JIT_OBJDUMP={} is no program", printable(*chosen)));
    return out;  // a choice of the user's is not second-guessed
  }
  int wanted = 0;
  for (const object::AmdProcessor& processor : object::amd_processors()) {
    if (info.target == processor.name) wanted = processor.llvm;
  }
  constexpr int kNewest = 40;
  for (int version = kNewest; version >= wanted; --version) {
    add(fmt::format("llvm-objdump-{}", version), options);
  }
  const std::string rocm = get_env("ROCM_PATH").value_or("/opt/rocm");
  for (const std::string& program :
       {std::string("llvm-objdump"), rocm + "/llvm/bin/llvm-objdump"}) {
    const auto path = find_program(program);
    if (!path) continue;
    const int version = llvm_version(*path);
    if (version >= wanted) {
      out.push_back({*path, options});
    } else {
      passed(fmt::format("{} is of LLVM {}", *path, version));
    }
  }
  if (out.empty()) {
    passed(
        fmt::format("no llvm-objdump of LLVM {} or newer, which {} needs (install llvm-{} or "
                    "set HSTU_JIT_OBJDUMP)",
                    wanted, info.target, wanted));
  }
  return out;
}

}  // namespace

void count_instructions(ObjectInfo& info, std::string_view bytes) {
  if (info.kernels.empty()) {
    info.note = "instructions were not counted: there is no kernel";
    return;
  }
  std::string why;
  const std::vector<Disassembler> programs = candidates(info, why);
  const auto give_up = [&] { info.note = "instructions were not counted: " + why; };
  if (programs.empty()) return give_up();

  const Result<TempDir> folder = TempDir::create("inspect");
  const std::string path = folder ? folder->path() + "/object" : "";
  const Status written = folder ? write_file_atomic(path, bytes) : Status(folder.error());
  if (!written) {
    why = written.error().message;
    return give_up();
  }
  for (const Disassembler& disassembler : programs) {
    ProcessOptions options;
    options.argv = {disassembler.program};
    options.argv.insert(options.argv.end(), disassembler.options.begin(),
                        disassembler.options.end());
    options.argv.push_back(path);
    const Result<ProcessResult> ran = run_process(options);
    std::string failure;
    if (!ran) {
      failure = ran.error().message;
    } else if (!ran->succeeded()) {
      const std::string_view said = std::string_view(ran->errors).substr(0, ran->errors.find('\n'));
      failure = ran->how_it_ended() + (said.empty() ? "" : ": " + printable(said, 120));
    } else if (ran->output_cut) {
      failure = "its output is too long";
    } else if (!count_listing(info, bytes, ran->output)) {
      failure = "shows no instruction of a kernel";
    } else {
      info.note.clear();
      return;
    }
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", disassembler.program, failure);
  }
  give_up();
}

}  // namespace hstu::jit
