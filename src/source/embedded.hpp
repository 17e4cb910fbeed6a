// SPDX-License-Identifier: Apache-2.0
// The template files, compiled into the program (written by embed.cmake).
#pragma once

namespace hstu::jit {

struct EmbeddedFile {
  const char* name;  // relative to templates/
  const char* text;
};

extern const EmbeddedFile kEmbeddedFiles[];
extern const int kEmbeddedFileCount;

}  // namespace hstu::jit
