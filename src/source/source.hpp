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
// The same without a head.
Result<Source> write_body(const Plan& plan);

// Everything of a plan that its body is written from: plans with equal seeds have equal bodies, and
// as the body contains the seed's parts word for word, plans with other seeds have other bodies.
// Costs microseconds, where the body costs a hundred times that.
std::string source_seed(const Plan& plan);

// The template files compiled into this program, and their text ("" if there is none).
std::vector<std::string> template_files();
std::string_view template_text(std::string_view file);

}  // namespace hstu::jit
