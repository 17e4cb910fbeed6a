// SPDX-License-Identifier: Apache-2.0
// hipRTC and NVRTC, loaded at run time. Their interfaces have one shape, only the names differ.
#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "compile/client.hpp"
#include "compile/identity.hpp"
#include "compile/job.hpp"
#include "compile/root.hpp"

namespace hstu::jit {
namespace {

Answer answer_of(Outcome outcome, std::string message) {
  Answer answer;
  answer.outcome = outcome;
  answer.message = std::move(message);
  return answer;
}

// Frozen C signatures; a program is an opaque pointer, a status an int with 0 for success.
struct Rtc {
  using Program = void*;
  int (*create)(Program*, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*code_size)(Program, size_t*) = nullptr;
  int (*code)(Program, char*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  const char* (*error_text)(int) = nullptr;
};

template <typename Function>
bool find(void* library, const std::string& name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name.c_str()));
  return *function != nullptr;
}

bool find_all(void* library, const std::string& prefix, const std::string& code, Rtc* rtc) {
  return find(library, prefix + "CreateProgram", &rtc->create) &&
         find(library, prefix + "CompileProgram", &rtc->compile) &&
         find(library, prefix + "GetProgramLogSize", &rtc->log_size) &&
         find(library, prefix + "GetProgramLog", &rtc->log) &&
         find(library, prefix + "Get" + code + "Size", &rtc->code_size) &&
         find(library, prefix + "Get" + code, &rtc->code) &&
         find(library, prefix + "DestroyProgram", &rtc->destroy) &&
         find(library, prefix + "GetErrorString", &rtc->error_text);
}

// File names of comgr that this library may open by itself, as they stand in its bytes.
std::vector<std::string> comgr_names(const std::string& library) {
  constexpr std::string_view kStem = "libamd_comgr.so";
  std::vector<std::string> names;
  const Result<std::string> bytes = read_file(library, uint64_t{1} << 30);
  if (!bytes.ok()) return names;
  for (size_t at = bytes->find(kStem); at != std::string::npos; at = bytes->find(kStem, at + 1)) {
    const size_t end = bytes->find_first_not_of("0123456789.", at + kStem.size());
    std::string name = bytes->substr(at, std::min(end, bytes->size()) - at);
    if (name.size() > 64 || std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(std::move(name));
  }
  return names;
}

// comgr is the compiler inside hipRTC. Asking it is the only way to learn the known targets:
// hipRTC itself ends the process on others, and where its comgr is missing. `missing`: its name.
enum class Known { yes, no, cannot_tell };
Known comgr_knows(const std::string& library, const std::string& target, std::string* missing) {
  const std::string folder = library.substr(0, library.rfind('/') + 1);
  void* comgr = nullptr;
  const auto try_path = [&](const std::string& path) {
    if (comgr == nullptr) comgr = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  };
  const std::vector<std::string> loaded = loaded_compiler_libraries();
  for (const bool beside : {true, false}) {  // hipRTC 5 is linked with it
    for (const std::string& path : loaded) {
      const bool is_beside = path.substr(0, path.rfind('/') + 1) == folder;
      if (path.find("libamd_comgr") != std::string::npos && is_beside == beside) try_path(path);
    }
  }
  if (comgr == nullptr) {  // hipRTC 6 opens it when it compiles
    for (const std::string& name : comgr_names(library)) {
      try_path(folder + name);
      try_path(name);
      if (comgr == nullptr) *missing = name;
    }
    if (comgr != nullptr) missing->clear();
  }
  int (*count_of)(size_t*) = nullptr;
  int (*name_of)(size_t, const char**) = nullptr;
  size_t count = 0;
  if (comgr == nullptr || !find(comgr, "amd_comgr_get_isa_count", &count_of) ||
      !find(comgr, "amd_comgr_get_isa_name", &name_of) || count_of(&count) != 0) {
    return Known::cannot_tell;
  }
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    if (name_of(i, &name) != 0 || name == nullptr) continue;
    const std::string isa = name;  // "amdgcn-amd-amdhsa--gfx90a"
    const size_t dashes = isa.rfind("--");
    if (dashes != std::string::npos && isa.substr(dashes + 2) == target) return Known::yes;
  }
  return Known::no;
}

// NVRTC opens its built-in functions by name alone when it compiles: where the loader's path lacks
// them, those beside the library are already there.
void load_builtins(const std::string& library) {
  const std::string folder = library.substr(0, library.rfind('/') + 1);
  glob_t found{};
  if (::glob((folder + "libnvrtc-builtins.so.*").c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) ::dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
  }
  ::globfree(&found);
}

Known nvrtc_knows(void* library, const std::string& target) {
  int (*count_of)(int*) = nullptr;
  int (*list_of)(int*) = nullptr;
  int count = 0;
  if (!find(library, "nvrtcGetNumSupportedArchs", &count_of) ||
      !find(library, "nvrtcGetSupportedArchs", &list_of) || count_of(&count) != 0 || count <= 0) {
    return Known::cannot_tell;
  }
  std::vector<int> list(static_cast<size_t>(count));
  if (list_of(list.data()) != 0) return Known::cannot_tell;
  // "sm_90a": the number alone is in the list.
  const int number = target.rfind("sm_", 0) == 0 ? std::atoi(target.c_str() + 3) : 0;
  return std::find(list.begin(), list.end(), number) != list.end() ? Known::yes : Known::no;
}

std::string log_of(const Rtc& rtc, Rtc::Program program) {
  size_t size = 0;
  if (rtc.log_size(program, &size) != 0 || size == 0 || size > (size_t{64} << 20)) return {};
  std::string log(size + 1, '\0');  // one spare byte: some releases count without the final NUL
  if (rtc.log(program, log.data()) != 0) return {};
  log.resize(log.find('\0'));
  return log;
}

// "libamdhip64.so.5.2.21153" -> "5.2.21153": hiprtcVersion says 9.0 in every release.
std::string file_version(const std::string& library) {
  char* real = ::realpath(library.c_str(), nullptr);
  const std::string path = real ? real : library;
  std::free(real);
  const size_t at = path.rfind(".so.");
  return at == std::string::npos ? std::string("of unknown version") : path.substr(at + 4);
}

std::string version_of(const Job& job, void* library, const std::string& object) {
  if (job.driver == Driver::nvrtc) {
    int (*version)(int*, int*) = nullptr;
    int major = 0, minor = 0;
    if (find(library, "nvrtcVersion", &version) && version(&major, &minor) == 0) {
      return fmt::format("NVRTC {}.{}", major, minor);
    }
    return "NVRTC";
  }
  // The compiler signs the object it makes: "... clang version 15.0.6".
  std::string llvm;
  const size_t at = object.find("clang version ");
  if (at != std::string::npos) {
    llvm =
        ", " + printable(object.substr(at, object.find_first_of(std::string("\0\n", 2), at) - at));
  }
  return fmt::format("hipRTC {}{}", file_version(job.library), llvm);
}

}  // namespace

Answer run_rtc(const Job& job) {
  const bool nvidia = job.driver == Driver::nvrtc;
  const char* product = nvidia ? "NVRTC" : "hipRTC";
  // Never unloaded: both libraries leave threads and handlers behind.
  void* library = ::dlopen(job.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* said = ::dlerror();
    std::string reason = printable(said ? said : "?", 300);
    // Only the worker can be started under another loader.
    if (const std::string root = system_root_of(job.library); !root.empty()) {
      reason += fmt::format(" (it belongs to the system in {}{})", root,
                            compile_in_process() ? ": unset HSTU_JIT_COMPILE" : "");
    }
    return answer_of(Outcome::unusable, fmt::format("cannot load {}: {}", job.library, reason));
  }
  Rtc rtc;
  if (!find_all(library, nvidia ? "nvrtc" : "hiprtc", nvidia ? "CUBIN" : "Code", &rtc)) {
    return answer_of(Outcome::unusable,
                     fmt::format("{} lacks the functions of {}", job.library, product));
  }
  if (nvidia) load_builtins(job.library);
  std::string missing;
  const Known known =
      nvidia ? nvrtc_knows(library, job.target) : comgr_knows(job.library, job.target, &missing);
  if (!missing.empty()) {
    return answer_of(Outcome::unusable, fmt::format("{} needs {}, which is not there: install it",
                                                    job.library, printable(missing)));
  }
  if (known == Known::no) {
    return answer_of(Outcome::unsupported_arch,
                     fmt::format("{} ({}) does not know target {}", product, job.library,
                                 printable(job.target)));
  }

  Rtc::Program program = nullptr;
  const char* name = nvidia ? "hstu_kernel.cu" : "hstu_kernel.hip";
  int status = rtc.create(&program, job.source.c_str(), name, 0, nullptr, nullptr);
  const auto failure = [&](const char* step) {
    const char* text = rtc.error_text(status);
    return fmt::format("{} failed to {}: {}", product, step, text ? text : "?");
  };
  if (status != 0) return answer_of(Outcome::diagnostics, failure("take the source"));
  struct Destroyer {
    const Rtc& rtc;
    Rtc::Program* program;
    ~Destroyer() { rtc.destroy(program); }
  } const destroyer{rtc, &program};

  std::vector<const char*> options;
  for (const std::string& option : job.options) options.push_back(option.c_str());
  status = rtc.compile(program, static_cast<int>(options.size()), options.data());
  Answer answer;
  answer.log = log_of(rtc, program);
  size_t size = 0;
  if (status != 0) {
    answer.outcome = Outcome::diagnostics;
    answer.message = failure("compile");
    return answer;
  }
  status = rtc.code_size(program, &size);
  if (status == 0 && size > 0 && size <= (size_t{1} << 30)) {
    answer.object.resize(size);
    status = rtc.code(program, answer.object.data());
  }
  if (status != 0 || answer.object.empty()) {
    answer.outcome = Outcome::diagnostics;
    answer.message = failure("give the object");
    answer.object.clear();
    return answer;
  }
  answer.outcome = Outcome::ok;
  if (job.probe) {  // after the compile: parts of the compiler are loaded by it
    answer.version = version_of(job, library, answer.object);
    for (const std::string& path : loaded_compiler_libraries()) {
      answer.files.push_back(path);
      answer.parts.push_back(path.substr(path.rfind('/') + 1) + " " + file_identity(path));
    }
  }
  return answer;
}

}  // namespace hstu::jit
