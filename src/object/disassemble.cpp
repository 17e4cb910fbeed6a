// SPDX-License-Identifier: Apache-2.0
#include "object/disassemble.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "base/text.hpp"
#include "object/formats.hpp"
#include "object/listing.hpp"

namespace hstu::jit {
namespace object {
namespace {

int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void add_program(std::vector<Disassembler>& out, const std::string& program,
                 std::vector<std::string> options) {
  if (const auto path = find_program(program)) out.push_back({*path, std::move(options)});
}

std::vector<Disassembler> host_disassemblers(std::string& why) {
  std::vector<Disassembler> out;
  add_program(out, "objdump", {"-d", "-w", "--no-show-raw-insn"});
  add_program(out, "llvm-objdump", {"-d", "--no-show-raw-insn"});
  if (out.empty()) why = "no objdump on PATH (install binutils)";
  return out;
}

std::vector<Disassembler> nvidia_disassemblers(std::string& why) {
  std::vector<Disassembler> out;
  std::vector<std::string> folders = {""};
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) {
    if (const auto root = get_env(variable)) folders.push_back(*root + "/bin/");
  }
  folders.push_back("/usr/local/cuda/bin/");
  for (const std::string& folder : folders) add_program(out, folder + "cuobjdump", {"-sass"});
  for (const std::string& folder : folders) add_program(out, folder + "nvdisasm", {"-c"});
  if (out.empty()) why = "no cuobjdump or nvdisasm on PATH or in /usr/local/cuda/bin";
  return out;
}

std::vector<Disassembler> amd_disassemblers(const std::string& target, std::string& why) {
  std::vector<Disassembler> out;
  const std::vector<std::string> options = {"-d", "--no-show-raw-insn"};
  if (const auto chosen = get_env("HSTU_JIT_OBJDUMP")) {
    add_program(out, *chosen, options);
    if (out.empty()) why = fmt::format("HSTU_JIT_OBJDUMP={} is no program", printable(*chosen));
    return out;  // a choice of the user's is not second-guessed
  }
  int wanted = 0;
  for (const AmdProcessor& processor : amd_processors()) {
    if (target == processor.name) wanted = processor.llvm;
  }
  constexpr int kNewest = 40;
  for (int version = kNewest; version >= wanted; --version) {
    add_program(out, fmt::format("llvm-objdump-{}", version), options);
  }
  const std::string rocm = get_env("ROCM_PATH").value_or("/opt/rocm");
  for (const std::string& program :
       {std::string("llvm-objdump"), rocm + "/llvm/bin/llvm-objdump"}) {
    const auto path = find_program(program);
    if (!path) continue;
    const auto answer = llvm_version(*path);
    const std::string version = answer ? *answer : "";
    if (leading_number(version) >= wanted) {
      out.push_back({*path, options});
    } else {
      why += fmt::format("{}{} is of LLVM {}", why.empty() ? "" : "; ", *path,
                         version.empty() ? "?" : version);
    }
  }
  if (out.empty()) {
    why += fmt::format(
        "{}no llvm-objdump of LLVM {} or newer, which {} needs (install llvm-{} or "
        "set HSTU_JIT_OBJDUMP)",
        why.empty() ? "" : "; ", wanted, target, wanted);
  }
  return out;
}

// The largest objects of ours take a second; a busy machine gets many more.
Result<std::chrono::milliseconds> time_limit() {
  const auto text = get_env("HSTU_JIT_OBJDUMP_TIMEOUT");
  if (!text) return std::chrono::milliseconds(30000);
  double seconds = 0;
  const char* last = text->data() + text->size();
  const auto [end, code] = std::from_chars(text->data(), last, seconds);
  if (code != std::errc() || end != last || !(seconds >= 0.001) || !(seconds <= 86400)) {
    return Error{ErrorKind::kUsage,
                 fmt::format("HSTU_JIT_OBJDUMP_TIMEOUT=\"{}\" is not a number of seconds between "
                             "0.001 and 86400",
                             printable(*text)),
                 "", ""};
  }
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// What is wrong with a run, or nothing.
std::string failure_of(const Result<ProcessResult>& ran) {
  if (!ran) return ran.error().message;
  if (ran->output_cut) return "its output is too long";
  if (ran->succeeded()) return "";
  const std::string_view said = std::string_view(ran->errors).substr(0, ran->errors.find('\n'));
  return ran->how_it_ended() + (said.empty() ? "" : ": " + printable(said, 120));
}

// llvm-objdump prints a branch target by name where a symbol stands; we always give the distance.
ListedInstruction listed(const AmdLine& line) {
  const bool branch =
      line.mnemonic.substr(0, 8) == "s_branch" || line.mnemonic.substr(0, 9) == "s_cbranch";
  return {
      line.address, line.bytes, std::string(line.mnemonic),
      branch && line.bytes == 4 ? std::to_string(line.word & 0xffff) : std::string(line.operands)};
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string_view take_line(std::string_view& text) {
  const size_t newline = text.find('\n');
  const std::string_view line = text.substr(0, newline);
  text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
  return line;
}

std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

std::optional<uint64_t> read_hex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<AmdLine> read_amd_line(std::string_view line) {
  if (line.empty() || line[0] != '\t') return std::nullopt;
  const size_t comment = line.rfind("//");
  if (comment == line.npos) return std::nullopt;
  AmdLine found;
  std::string_view rest = line.substr(0, comment);
  found.mnemonic = take_word(rest);
  found.operands = trimmed(rest);
  rest = trimmed(line.substr(comment + 2));
  const size_t colon = rest.find(':');
  const auto address = read_hex(rest.substr(0, colon));
  if (!address || colon == rest.npos || found.mnemonic.empty()) return std::nullopt;
  found.address = *address;
  rest.remove_prefix(colon + 1);
  // Encoding words follow, of 8 digits each; then "<kernel+0x120>" after a branch.
  for (std::string_view word = take_word(rest); word.size() == 8 && read_hex(word);
       word = take_word(rest)) {
    if (found.bytes == 0) found.word = static_cast<uint32_t>(*read_hex(word));
    found.bytes += 4;
  }
  return found.bytes > 0 ? std::optional(found) : std::nullopt;
}

Result<std::string> llvm_version(const std::string& program) {
  // Asked once: every target asks for it, and a program that hangs is waited for.
  static std::mutex mutex;
  static std::map<std::string, Result<std::string>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto at = known.find(program); at != known.end()) return at->second;
  const auto ask = [&]() -> Result<std::string> {
    const auto ran =
        run_process({{program, "--version"}, {}, {}, std::chrono::seconds(5), 1 << 16});
    if (ran && ran->timed_out) {
      return Error{ErrorKind::kTimeout,
                   fmt::format("{} --version: {}", program, ran->how_it_ended()), "", ""};
    }
    if (!ran || !ran->succeeded()) return std::string();
    const size_t at = ran->output.find("version ");
    if (at == std::string::npos) return std::string();
    const size_t begin = at + 8;
    const size_t end = ran->output.find_first_not_of("0123456789.", begin);
    return ran->output.substr(begin, end == std::string::npos ? end : end - begin);
  };
  return known.emplace(program, ask()).first->second;
}

std::vector<Disassembler> find_disassemblers(const std::string& format, const std::string& target,
                                             std::string& why) {
  why.clear();
  if (format == "host") return host_disassemblers(why);
  return format == "cubin" ? nvidia_disassemblers(why) : amd_disassemblers(target, why);
}

Status run_disassemblers(const ObjectInfo& info, std::string_view bytes,
                         const AcceptListing& accept) {
  std::string why;
  const std::vector<Disassembler> programs = find_disassemblers(info.format, info.target, why);
  if (programs.empty()) return Error{ErrorKind::kUnsupported, why, "", ""};
  const auto limit = time_limit();
  if (!limit) return limit.error();
  const auto no_room = [](Error error) {
    error.message += "; set TMPDIR to a folder with room";
    return error;
  };
  const Result<TempDir> folder = TempDir::create("hstu-jit-inspect-");
  if (!folder) return no_room(folder.error());
  const std::string path = folder->path() + "/object";
  if (Status written = write_file_atomic(path, bytes); !written) return no_room(written.error());
  bool hung = false;
  for (const Disassembler& disassembler : programs) {
    ProcessOptions options;
    options.argv = {disassembler.program};
    options.argv.insert(options.argv.end(), disassembler.options.begin(),
                        disassembler.options.end());
    options.argv.push_back(path);
    options.timeout = *limit;
    const Result<ProcessResult> ran = run_process(options);
    hung = hung || (ran && ran->timed_out);
    std::string failure = failure_of(ran);
    if (failure.empty()) {
      if (accept(disassembler.program, ran->output)) return {};
      failure = "shows no instruction of a kernel";
    }
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", disassembler.program, failure);
  }
  if (hung) why += "; HSTU_JIT_OBJDUMP_TIMEOUT sets the limit, HSTU_JIT_OBJDUMP the program";
  return Error{hung ? ErrorKind::kTimeout : ErrorKind::kUnsupported, why, "", ""};
}

}  // namespace object

Result<Listing> disassemble(std::string_view bytes) {
  const Result<ObjectInfo> info = read_object(bytes);
  if (!info) return info.error();
  if (info->format != "amdgpu") {
    return object::odd_object(fmt::format("it is a {} object, not an AMDGPU one", info->format));
  }
  Listing listing;
  const Status ran = object::run_disassemblers(
      *info, bytes, [&](const std::string& program, std::string_view text) {
        listing.disassembler = program;
        listing.instructions.clear();
        while (!text.empty()) {
          const auto line = object::read_amd_line(object::take_line(text));
          if (line) listing.instructions.push_back(object::listed(*line));
        }
        return !listing.instructions.empty();
      });
  if (!ran) {
    return Error(ran.error()).with_context(fmt::format("cannot disassemble {} code", info->target));
  }
  std::stable_sort(listing.instructions.begin(), listing.instructions.end(),
                   [](const auto& a, const auto& b) { return a.address < b.address; });
  return listing;
}

Result<std::string> find_amd_disassembler(const std::string& target) {
  std::string why;
  const auto programs = object::find_disassemblers("amdgpu", target, why);
  if (programs.empty()) return Error{ErrorKind::kUnsupported, why, "", ""};
  const auto version = object::llvm_version(programs.front().program);
  if (!version) return version.error();
  return programs.front().program + (version->empty() ? "" : " (LLVM " + *version + ")");
}

}  // namespace hstu::jit
