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

namespace {

long record_start(const std::string& self) {
  const std::string path = self + ".runs";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  (void)!::write(fd, "x", 1);
  ::close(fd);
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<long>(info.st_size) : 0;
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

}  // namespace

int main(int, char** argv) {
  const std::string self = argv[0];
  const std::string mode = self.substr(self.rfind('/') + 1);
  const long runs = record_start(self);
  if (mode == "count") return real_worker(argv);
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
  if (mode == "hang") {
    litter();
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) ::pause();
    }
    if (FILE* file = std::fopen((self + ".pid").c_str(), "w")) {
      std::fprintf(file, "%d", child);
      std::fclose(file);
    }
    while (true) ::pause();
  }
  if (mode == "flood") {
    static char block[65536];
    while (true) {
      if (::write(1, block, sizeof block) <= 0) ::pause();
    }
  }
  if (mode == "garbage") std::fputs("Segmentation fault (core dumped)\n", stdout);
  if (mode == "half") {
    std::fwrite("hstuwrk1\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0{\"outcome\":", 1, 35, stdout);
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
