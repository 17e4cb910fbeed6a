// SPDX-License-Identifier: Apache-2.0
#include "cache/remote_transport.hpp"

#include "cache/remote_module.hpp"

namespace hstu::cache {

#ifndef HSTU_JIT_HAVE_CURL
std::unique_ptr<Transport> make_http_transport(const TransportOptions&, std::string* problem) {
  *problem =
      "built without libcurl (Debian: libcurl4-openssl-dev), which http:// and https:// need";
  return nullptr;
}
#endif

std::unique_ptr<Transport> make_transport(const TransportOptions& options, std::string* problem) {
  return options.url.redis() ? make_redis_transport(options, problem)
                             : make_http_transport(options, problem);
}

}  // namespace hstu::cache
