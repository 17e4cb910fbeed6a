// SPDX-License-Identifier: Apache-2.0
// The fake NVIDIA driver's graphs: captured launches, recorded again at every launch of a graph.
#include "fake_cuda_state.hpp"

#ifndef FAKE_CUDA_OLD
using namespace fake_cuda;

FAKE_EXPORT int cuStreamBeginCapture_v2(void* stream, int mode) {
  if (const int code = enter_in_context("cuStreamBeginCapture")) return code;
  auto* own = static_cast<Stream*>(stream);
  if (own == nullptr || !known_stream(stream) || own->capturing != nullptr || mode < 0 ||
      mode > 2) {
    return misused("cuStreamBeginCapture");
  }
  own->capturing = *graphs.insert(new Graph).first;
  ++state.graphs;
  return 0;
}
FAKE_EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  auto* own = static_cast<Stream*>(stream);
  if (!known_stream(stream) || own == nullptr || own->capturing == nullptr) {
    return misused("cuStreamEndCapture");
  }
  const int code = enter_in_context("cuStreamEndCapture");
  Graph* made = own->capturing;
  own->capturing = nullptr;
  if (code != 0) {
    graphs.erase(made);
    delete made;
    ++state.graph_ends;
    return code;
  }
  *graph = made;
  return 0;
}
FAKE_EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  if (const int code = enter_in_context("cuStreamIsCapturing")) return code;
  auto* own = static_cast<Stream*>(stream);
  if (own == nullptr || !known_stream(stream)) return misused("cuStreamIsCapturing");
  *status = own->capturing != nullptr ? 1 : 0;
  return 0;
}
FAKE_EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph,
                                            unsigned long long flags) {
  if (const int code = enter_in_context("cuGraphInstantiate")) return code;
  if (graphs.count(static_cast<Graph*>(graph)) == 0 || flags != 0) {
    return misused("cuGraphInstantiate");
  }
  *executable = *executables.insert(new Graph(*static_cast<Graph*>(graph))).first;
  ++state.graphs;
  return 0;
}
FAKE_EXPORT int cuGraphLaunch(void* executable, void* stream) {
  if (const int code = enter_in_context("cuGraphLaunch")) return code;
  const auto found = executables.find(static_cast<Graph*>(executable));
  if (found == executables.end() || !known_stream(stream)) return misused("cuGraphLaunch");
  for (const FakeCudaLaunch& launch : (*found)->launches) state.launches.push_back(launch);
  return 0;
}
FAKE_EXPORT int cuGraphDestroy(void* graph) {
  const int code = enter("cuGraphDestroy");
  if (graphs.erase(static_cast<Graph*>(graph)) == 0) return misused("cuGraphDestroy");
  delete static_cast<Graph*>(graph);
  ++state.graph_ends;
  return code;
}
FAKE_EXPORT int cuGraphExecDestroy(void* executable) {
  const int code = enter("cuGraphExecDestroy");
  if (executables.erase(static_cast<Graph*>(executable)) == 0) {
    return misused("cuGraphExecDestroy");
  }
  delete static_cast<Graph*>(executable);
  ++state.graph_ends;
  return code;
}
#endif
