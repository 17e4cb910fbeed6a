// SPDX-License-Identifier: Apache-2.0
// Source: one self-contained translation unit, written from a Plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "plan/plan.hpp"

namespace hstu::jit {

struct Source {
  std::string head;   // comment for people: spec and plan; not part of any key
  std::string body;   // configuration and templates; complete without the head
  std::string entry;  // extern "C" name

  std::string text() const { return head + body; }
};

// `spec_json` goes into the head comment only.
Result<Source> write_source(const Plan& plan, std::string_view spec_json);

// The template files compiled into this program, and their text ("" if there is none).
std::vector<std::string> template_files();
std::string_view template_text(std::string_view file);

}  // namespace hstu::jit
