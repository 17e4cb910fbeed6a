// SPDX-License-Identifier: Apache-2.0
// Compiler libraries of another system's folder: its loader starts the worker, the paths stay ours.
#include "compile/root.hpp"

#include "base/temp_dir.hpp"
#include "compile/locate.hpp"
#include "helpers.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

#if defined(__aarch64__)
constexpr const char* kLoader = "/lib/ld-linux-aarch64.so.1";
#else
constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";
#endif
constexpr const char* kLibraries = "/usr/lib/some-linux-gnu";

// A folder that looks like another system's root. Its loader records each start and hands over to
// this system's (see fake_worker.cpp).
struct OtherSystem {
  TempDir dir = folder();
  std::string root = dir.path() + "/other system";
  std::string loader = root + kLoader;
  OtherSystem() {
    fs::create_directories(fs::path(loader).parent_path());
    fs::create_directories(root + kLibraries);
    fs::create_symlink(HSTU_FAKE_WORKER, loader);
  }
  size_t runs() const {
    std::error_code none;
    const auto size = fs::file_size(loader + ".runs", none);
    return none ? 0 : size;
  }
  std::string library(const std::string& from) const {
    const std::string path = root + kLibraries + from.substr(from.rfind('/'));
    fs::copy_file(from, path);  // follows links: the copy is a file of the other system
    return path;
  }
};

std::optional<std::string> hiprtc_or_skip() {
  const auto found = compiler_candidates(Driver::hiprtc);
  if (!found.empty() && find_toolchain(target("gfx90a"), "").ok()) return found.front();
  std::printf("SKIPPED: hipRTC of another system: no hipRTC for gfx90a here\n");
  return std::nullopt;
}

Job job_with(Driver driver, const std::string& library) {
  Job job;
  job.driver = driver;
  job.library = library;
  return job;
}

}  // namespace

TEST_CASE("the root of a library is the folder with another loader") {
  const OtherSystem other;
  const std::string library = other.library("/bin/true");
  CHECK(system_root_of("/bin/true").empty());
  CHECK(system_root_of("").empty());
  CHECK(system_root_of(library + ".missing").empty());
  CHECK(system_root_of(library) == other.root);
  // /lib64 may be a link into /usr, which then has the loader as well.
  fs::create_directory_symlink("../lib64", other.root + "/usr/lib64");
  CHECK(system_root_of(library) == other.root);
  // A link from here into the other system.
  const std::string link = other.dir.path() + "/libhiprtc.so.6";
  fs::create_symlink(library, link);
  CHECK(system_root_of(link) == other.root);
  // The loader could not be told of such folders.
  const std::string odd = other.dir.path() + "/a:b";
  fs::rename(other.root, odd);
  CHECK(system_root_of(odd + kLibraries + "/true").empty());
}

TEST_CASE("only libraries of another system change how the worker starts") {
  const OtherSystem other;
  const std::string library = other.library("/bin/true");
  const std::vector<std::string> plain{HSTU_REAL_WORKER, "--serve"};
  CHECK(worker_command(HSTU_REAL_WORKER, job_with(Driver::hiprtc, "/bin/true")) == plain);
  CHECK(worker_command(HSTU_REAL_WORKER, job_with(Driver::clang, library)) == plain);
  CHECK(worker_command(HSTU_REAL_WORKER, job_with(Driver::host, library)) == plain);

  fs::create_directories(other.root + "/etc/ld.so.conf.d");
  fs::create_directories(other.root + "/opt/rocm/lib");
  REQUIRE(write_file_atomic(other.root + "/etc/ld.so.conf.d/rocm.conf",
                            "# a comment\n/opt/rocm/lib\n/opt/missing\n")
              .ok());
  const auto command = worker_command(HSTU_REAL_WORKER, job_with(Driver::hiprtc, library));
  REQUIRE(command.size() == 5);
  CHECK(command[0] == other.loader);
  CHECK(command[1] == "--library-path");
  CHECK(command[2].rfind(other.root + kLibraries + ":" + other.root + "/opt/rocm/lib", 0) == 0);
  CHECK(command[2].find("missing") == std::string::npos);
  CHECK(command[3] == HSTU_REAL_WORKER);

  const std::string script = other.dir.path() + "/worker";
  REQUIRE(write_file_atomic(script, "#!/bin/sh\n", 0755).ok());
  CHECK(worker_command(script, job_with(Driver::hiprtc, library)) ==
        std::vector<std::string>{script, "--serve"});
}

TEST_CASE("hipRTC of another system compiles, and a warm start starts nothing") {
  const auto hiprtc = hiprtc_or_skip();
  if (!hiprtc) return;
  const OtherSystem other;
  const auto state = folder();
  const Result<Toolchain> own = find_toolchain(target("gfx90a"), "");
  REQUIRE(own.ok());
  const Environment library("HSTU_JIT_HIPRTC", other.library(*hiprtc));
  const Result<Toolchain> found = find_toolchain(target("gfx90a"), state.path());
  REQUIRE(found.ok());
  CHECK(other.runs() == 1);
  CHECK(found->driver == Driver::hiprtc);
  CHECK(found->id == own->id);  // the same content in another place

  const FakeWorker worker("count");
  CHECK(id_in_new_process("gfx90a", state.path()) == found->id);
  CHECK(worker.runs() == 0);
  CHECK(other.runs() == 1);

  const Result<CodeObject> object = compile(source(kGpuKernel), target("gfx90a"), *found, {});
  REQUIRE(object.ok());
  CHECK(worker.runs() == 1);
  CHECK(other.runs() == 2);
  const Result<CodeObject> same = compile(source(kGpuKernel), target("gfx90a"), *own, {});
  REQUIRE(same.ok());
  CHECK(other.runs() == 2);
  CHECK(object->bytes == same->bytes);
}

TEST_CASE("a loader that cannot start the worker is an error of one line") {
  const auto hiprtc = hiprtc_or_skip();
  if (!hiprtc) return;
  const OtherSystem other;
  fs::remove(other.loader);
  REQUIRE(write_file_atomic(other.loader, "#!/bin/sh\necho too old >&2\nexit 127\n", 0755).ok());
  const Environment library("HSTU_JIT_HIPRTC", other.library(*hiprtc));
  const Environment clang("HSTU_JIT_CLANG", "/nowhere/at/all");
  const Result<Toolchain> found = find_toolchain(target("gfx90a"), "");
  REQUIRE_FALSE(found.ok());
  CHECK_THAT(one_line(found.error()), ContainsSubstring("too old"));
}
