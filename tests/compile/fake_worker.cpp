// SPDX-License-Identifier: Apache-2.0
// A compile worker that misbehaves. Its environment is scrubbed, so the name it is called by says
// how: tests make links to it. Each start is recorded in "<name>.runs", a byte a start.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "compile/job.hpp"

namespace {

using namespace hstu::jit;

long record_start(const std::string& self) {
  const std::string path = self + ".runs";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  (void)!::write(fd, "x", 1);
  ::close(fd);
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<long>(info.st_size) : 0;
}

void write_text(const std::string& path, const std::string& text) {
  if (FILE* file = std::fopen((path + ".new").c_str(), "w")) {
    std::fputs(text.c_str(), file);
    std::fclose(file);
    std::rename((path + ".new").c_str(), path.c_str());
  }
}

void litter() {  // what a killed compiler leaves
  const std::string path = std::string(std::getenv("TMPDIR")) + "/comgr-leftover";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ::close(fd);
}

int real_worker(char** argv) {
  ::execv(HSTU_REAL_WORKER, argv);
  return 70;
}

std::string all_input() {
  std::string bytes;
  char buffer[65536];
  for (ssize_t got; (got = ::read(0, buffer, sizeof buffer)) > 0;) {
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

void say(const std::string& bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
}

// The kernel a source defines.
std::string entry_of(const std::string& source) {
  const std::string sign = "#define HSTU_ENTRY ";
  const size_t at = source.find(sign);
  if (at == std::string::npos) return "twice";
  const size_t begin = at + sign.size();
  return source.substr(begin, source.find('\n', begin) - begin);
}

// A quick compile of something with the right name, recorded. "tiny-fails" rejects all kernels.
int tiny(const std::string& self, const std::string& mode) {
  Result<Job> job = decode_job(all_input());
  if (!job.ok()) return 2;
  if (job->probe) {
    say(encode_answer(run_job(*job)));
    return 0;
  }
  const std::string entry = entry_of(job->source);
  const std::string line = entry + "\n";
  const int fd = ::open((self + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  (void)!::write(fd, line.data(), line.size());
  ::close(fd);
  std::this_thread::sleep_for(std::chrono::milliseconds(mode == "tiny-slow" ? 3000 : 50));
  if (mode == "tiny-fails") {
    Answer answer;
    answer.outcome = Outcome::diagnostics;
    answer.message = "rejected";
    answer.log = "kernel:1: error: rejected by the test\n";
    say(encode_answer(answer));
    return 0;
  }
  if (mode == "tiny-strange") job->source = "extern \"C\" void another_kernel() {}\n";
  if (mode != "tiny-strange") job->source = "extern \"C\" void " + entry + "() {}\n";
  Answer answer = run_job(*job);
  if (mode == "tiny-foreign" && answer.object.size() > 20) {
    answer.object[18] = static_cast<char>(0xe0);  // e_machine: AMDGPU
    answer.object[19] = 0;
  }
  say(encode_answer(answer));
  return 0;
}

// Dies, or waits to be killed with its parent, at a step of a compile.
int at_step(const std::string& self, const std::string& mode, char** argv) {
  const bool waits = mode.rfind("wait-", 0) == 0;
  const std::string step = mode.substr(mode.find('-') + 1);
  const auto here = [&] {
    litter();
    if (!waits) ::raise(SIGKILL);
    write_text(self + ".pid", std::to_string(::getpid()));
    while (true) ::pause();
  };
  if (step == "start") here();
  const std::string input = all_input();
  if (step == "read") here();
  Result<Job> job = decode_job(input);
  if (!job.ok()) return 2;
  const std::string answer = encode_answer(run_job(*job));
  if (step == "compiled") here();
  if (step == "answering") {
    say(answer.substr(0, answer.size() / 2));
    here();
  }
  say(answer);
  if (step == "answered") here();
  (void)argv;
  return 0;
}

}  // namespace

int main(int, char** argv) {
  const std::string self = argv[0];
  const std::string mode = self.substr(self.rfind('/') + 1);
  const long runs = record_start(self);
  if (mode == "count") return real_worker(argv);
  if (mode.rfind("tiny", 0) == 0) return tiny(self, mode);
  if (mode.rfind("dies-", 0) == 0 || mode.rfind("wait-", 0) == 0) return at_step(self, mode, argv);
  if (mode.rfind("ld-linux-", 0) == 0) {  // the loader of another system
    for (const char* loader : {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"}) {
      ::execv(loader, argv);
    }
    return 127;
  }
  if (mode == "crash-once" && runs > 1) return real_worker(argv);
  if (mode == "crash" || mode == "crash-once") {
    litter();
    std::fputs("about to crash\n", stderr);
    std::fflush(stderr);
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
  }
  if (mode == "hang" || mode == "children") {
    litter();
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) ::pause();
    }
    write_text(self + ".pid", std::to_string(child));
    // The child holds the pipes of a worker that has answered.
    if (mode == "children") return real_worker(argv);
    while (true) ::pause();
  }
  if (mode == "flood") {
    static char block[65536];
    while (true) {
      if (::write(1, block, sizeof block) <= 0) ::pause();
    }
  }
  if (mode == "chatter") {  // as much on standard error, then the work
    static char block[65536];
    for (int i = 0; i < 4096; ++i) (void)!::write(2, block, sizeof block);
    return real_worker(argv);
  }
  if (mode == "garbage") std::fputs("Segmentation fault (core dumped)\n", stdout);
  if (mode == "half") {
    std::fwrite("hstuwrk1\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0{\"outcome\":", 1, 35, stdout);
  }
  if (mode == "huge") {  // an answer that claims to go on for ever
    std::fwrite("hstuwrk1\x02\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f{}", 1, 26, stdout);
  }
  if (mode == "cut" || mode == "long") {
    Result<Job> job = decode_job(all_input());
    if (!job.ok()) return 2;
    const std::string answer = encode_answer(run_job(*job));
    say(mode == "cut" ? answer.substr(0, answer.size() - 1) : answer + "x");
  }
  if (mode == "lies") {  // a whole answer without an object
    const char text[] =
        "{\"outcome\":\"ok\",\"message\":\"\",\"log\":\"\",\"version\":\"\",\"parts\":[],\"files\":"
        "[]}";
    std::fwrite("hstuwrk1", 1, 8, stdout);
    const unsigned char length[16] = {sizeof text - 1};
    std::fwrite(length, 1, 16, stdout);
    std::fputs(text, stdout);
  }
  if (mode == "fail") return 3;
  return 0;
}
