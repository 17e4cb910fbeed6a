// SPDX-License-Identifier: Apache-2.0
#include "base/fork_mutex.hpp"

#include <pthread.h>

namespace hstu::jit {

// All there are, as a list. Its own mutex is taken first, so that none comes or goes meanwhile.
struct ForkMutexes {
  std::mutex mutex;
  ForkMutex* first = nullptr;

  static ForkMutexes& instance() {
    static ForkMutexes* list = [] {
      // Where this fails (no memory), forks are as they are without it.
      (void)::pthread_atfork(&before, &after, &after);
      return new ForkMutexes;  // never destroyed: others may outlive the statics of a library
    }();
    return *list;
  }

  static void before() {
    ForkMutexes& list = instance();
    list.mutex.lock();
    for (ForkMutex* each = list.first; each != nullptr; each = each->next_) each->mutex_.lock();
  }
  // The child's only thread is the copy of the one that locked.
  static void after() {
    ForkMutexes& list = instance();
    for (ForkMutex* each = list.first; each != nullptr; each = each->next_) each->mutex_.unlock();
    list.mutex.unlock();
  }

  void add(ForkMutex* one) {
    const std::lock_guard<std::mutex> guard(mutex);
    one->next_ = first;
    if (first != nullptr) first->previous_ = one;
    first = one;
  }
  void remove(ForkMutex* one) {
    const std::lock_guard<std::mutex> guard(mutex);
    (one->previous_ != nullptr ? one->previous_->next_ : first) = one->next_;
    if (one->next_ != nullptr) one->next_->previous_ = one->previous_;
  }
};

ForkMutex::ForkMutex() { ForkMutexes::instance().add(this); }
ForkMutex::~ForkMutex() { ForkMutexes::instance().remove(this); }

}  // namespace hstu::jit
