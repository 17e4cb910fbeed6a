// SPDX-License-Identifier: Apache-2.0
// How the threads of a cpu launch share its work: a counter each of them draws from. The launcher
// fills it, starts N threads with the same queue, and may free it once all have returned.
#pragma once

namespace hstu {

struct WorkQueue {
  alignas(64) long long next;  // first item nobody has taken; starts at 0
  alignas(64) long long end;   // number of items: the grid of the plan
};

// The next item, or -1 when none is left. Items may be processed in any order by any thread.
inline long long take_work(WorkQueue* queue) {
  const long long item = __atomic_fetch_add(&queue->next, 1, __ATOMIC_RELAXED);
  return item < queue->end ? item : -1;
}

}  // namespace hstu
