// SPDX-License-Identifier: Apache-2.0
// Run-time libraries of GPUs, found and loaded while the program runs.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hip_table.hpp"
#include "base/result.hpp"
#include "device/device.hpp"

namespace hstu::jit {

struct HipSearch {
  std::shared_ptr<const HipApi> api;    // null when no library serves
  std::vector<LibraryProbe> libraries;  // in the order tried
};

// A library's symbols, and those it lacks.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  bool optional(const char* name, Function& slot) {
    void* symbol = dlsym(library_, name);
    static_assert(sizeof(slot) == sizeof(symbol));
    std::memcpy(&slot, &symbol, sizeof(slot));
    return symbol != nullptr;
  }
  template <typename Function>
  void required(const char* name, Function& slot) {
    if (!optional(name, slot)) missing_.emplace_back(name);
  }
  void missing(const char* name) { missing_.emplace_back(name); }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  void* library_;
  std::vector<std::string> missing_;
};

// Fills a table from an opened library whose file is `path`. Errors: what the library lacks.
using FillTable = Result<std::shared_ptr<const HipApi>> (*)(void* library, const std::string& path);
// For people: "HIP runtime 6.4.43484".
using VersionText = std::string (*)(const HipApi& api);

class LibraryFinder {
 public:
  LibraryFinder(FillTable fill, VersionText version) : fill_(fill), version_(version) {}

  // Each: true when a library serves. A copy this process has already loaded under one of `names`:
  bool use_loaded(std::span<const char* const> names);
  bool use_path(const std::string& name);
  void not_there(const std::string& name, const std::string& reason);

  HipSearch take() { return std::move(search_); }

 private:
  bool use(void* library, const std::string& name, const char* how);

  FillTable fill_;
  VersionText version_;
  HipSearch search_;
};

}  // namespace hstu::jit
