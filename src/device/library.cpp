// SPDX-License-Identifier: Apache-2.0
#include "device/library.hpp"

#include <fmt/format.h>
#include <link.h>

#include <cstdlib>
#include <string_view>

#include "base/text.hpp"

namespace hstu::jit {
namespace {

// The loader's reason, without the name it usually begins with.
std::string last_loader_error(const std::string& name) {
  const char* error = dlerror();
  std::string_view text = error == nullptr ? "unknown reason" : error;
  if (text.substr(0, name.size() + 2) == name + ": ") text.remove_prefix(name.size() + 2);
  return printable(text, 300);
}

std::string path_of(void* library, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr ||
      map->l_name[0] == '\0') {
    return fallback;
  }
  return map->l_name;
}

}  // namespace

bool LibraryFinder::use(void* library, const std::string& name, const char* how) {
  const std::string path = path_of(library, name);
  Result<std::shared_ptr<const HipApi>> api = fill_(library, path);
  if (!api) {
    search_.libraries.push_back({name, false, api.error().message});
    return false;
  }
  search_.api = *api;
  search_.libraries.push_back(
      {name, true, fmt::format("{}{}{}", version_(**api), path == name ? "" : ", " + path, how)});
  return true;
}

bool LibraryFinder::use_loaded(std::span<const char* const> names) {
  for (const char* name : names) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library != nullptr && use(library, name, ", already loaded")) return true;
  }
  dlerror();  // what is not loaded is no news
  return false;
}

bool LibraryFinder::use_path(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    search_.libraries.push_back({name, false, last_loader_error(name)});
    return false;
  }
  return use(library, name, "");
}

void LibraryFinder::not_there(const std::string& name, const std::string& reason) {
  search_.libraries.push_back({name, false, reason});
}

}  // namespace hstu::jit
