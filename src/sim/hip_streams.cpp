// SPDX-License-Identifier: Apache-2.0
// Streams and events of the simulated HIP run-time library.
#include <optional>

#include "sim/hip_state.hpp"

namespace hstu::jit::sim {

// Null is the default stream. Launches are over when they return, so all are always idle.
bool known_stream(void* stream) {
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return stream == nullptr || s.streams.find(stream) != nullptr;
}

namespace {

int stream_create(void** stream) {
  HSTU_SIM_ENTRY("stream_create");
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  *stream = s.streams.add(std::make_shared<int>(current_device));
  return 0;
}

int stream_destroy(void* stream) {
  HSTU_SIM_ENTRY("stream_destroy");
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return s.streams.remove(stream) ? 0 : kHipErrorInvalidHandle;
}

int stream_synchronize(void* stream) {
  HSTU_SIM_ENTRY("stream_synchronize");
  return known_stream(stream) ? 0 : kHipErrorInvalidHandle;
}

int device_synchronize() {
  HSTU_SIM_ENTRY("device_synchronize");
  return 0;
}

// The event as it is now; nothing for a handle that is none.
std::optional<Event> find_event(void* event) {
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const std::shared_ptr<Event> found = s.events.find(event);
  return found ? std::optional(*found) : std::nullopt;
}

int event_create(void** event) {
  HSTU_SIM_ENTRY("event_create");
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  *event = s.events.add(std::make_shared<Event>());
  return 0;
}

int event_destroy(void* event) {
  HSTU_SIM_ENTRY("event_destroy");
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return s.events.remove(event) ? 0 : kHipErrorInvalidHandle;
}

int event_record(void* event, void* stream) {
  HSTU_SIM_ENTRY("event_record");
  if (!known_stream(stream)) return kHipErrorInvalidHandle;
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const std::shared_ptr<Event> found = s.events.find(event);
  if (!found) return kHipErrorInvalidHandle;
  *found = {true, Clock::now()};
  return 0;
}

int event_synchronize(void* event) {
  HSTU_SIM_ENTRY("event_synchronize");
  return find_event(event) ? 0 : kHipErrorInvalidHandle;
}

// Times of the host: what simulating took.
int event_elapsed_time(float* milliseconds, void* from, void* to) {
  HSTU_SIM_ENTRY("event_elapsed_time");
  const std::optional<Event> first = find_event(from), second = find_event(to);
  if (!first || !second || !first->recorded || !second->recorded) return kHipErrorInvalidHandle;
  *milliseconds = std::chrono::duration<float, std::milli>(second->time - first->time).count();
  return 0;
}

}  // namespace

void add_stream_entries(HipApi& table) {
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.device_synchronize = device_synchronize;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_synchronize = event_synchronize;
  table.event_elapsed_time = event_elapsed_time;
}

}  // namespace hstu::jit::sim
