// SPDX-License-Identifier: Apache-2.0
#include "engine/flight.hpp"

namespace hstu::jit {

void Flight::land(Outcome outcome, std::chrono::milliseconds failure_memory) {
  {
    const std::lock_guard<std::mutex> guard(arrival_->mutex);
    outcome_.emplace(std::move(outcome));
    try_again_ = Clock::now() + failure_memory;
    landed_.store(true, std::memory_order_release);
  }
  arrival_->landed.notify_all();
}

bool Flight::wait(std::chrono::milliseconds most) {
  if (landed()) return true;  // without the mutex: it may be a dead thread's in a child after fork
  std::unique_lock<std::mutex> lock(arrival_->mutex);
  return arrival_->landed.wait_for(lock, most, [this] { return landed(); });
}

Flights::Ticket Flights::join(const std::string& key) {
  std::shared_ptr<Flight> gone;  // destroyed after the lock is given back
  const std::lock_guard<ForkMutex> guard(mutex_);
  std::shared_ptr<Flight>& flight = flights_[key];
  if (flight && !flight->lost() && !flight->expired()) return {flight, false};
  gone = std::move(flight);
  flight = std::make_shared<Flight>();
  return {flight, true};
}

std::shared_ptr<const Kernel> Flights::find(const std::string& key) const {
  const std::lock_guard<ForkMutex> guard(mutex_);
  const auto at = flights_.find(key);
  if (at == flights_.end() || !at->second || !at->second->landed()) return nullptr;
  const Flight::Outcome& outcome = at->second->outcome();
  return outcome.ok() ? outcome->kernel : nullptr;
}

size_t Flights::kernels() const {
  const std::lock_guard<ForkMutex> guard(mutex_);
  size_t count = 0;
  for (const auto& [key, flight] : flights_) {
    if (flight && flight->landed() && flight->outcome().ok()) ++count;
  }
  return count;
}

}  // namespace hstu::jit
