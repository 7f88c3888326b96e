// The clients of an engine, and the request in each of its places.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/engine.hpp"
#include "support/check.h"

namespace sluice::engine {

struct LiveRequest;

struct Place {
  bool IsTaken() const { return is_answered || request != nullptr; }

  uint32_t generation = 0;
  bool is_answered = false;  // without a step, and the client has not read it yet
  LiveRequest* request = nullptr;
};

class ClientTable {
 public:
  ClientTable(int32_t max_clients, int32_t max_client_requests)
      : clients_(static_cast<size_t>(max_clients)),
        max_client_requests_(static_cast<size_t>(max_client_requests)) {}

  ClientId Add() {
    const auto free = std::find_if(clients_.begin(), clients_.end(),
                                   [](const Client& client) { return client.places.empty(); });
    if (free == clients_.end()) {
      throw Error(ErrorCode::kExhausted, "clients", ToText(std::ssize(clients_) + 1),
                  RangeText(0, std::ssize(clients_)));
    }
    free->places.resize(max_client_requests_);
    ++count_;
    return {static_cast<int32_t>(free - clients_.begin()), ++free->generation};
  }

  void Remove(ClientId id) {
    clients_[static_cast<size_t>(id.slot)].places = {};
    --count_;
  }

  int64_t count() const { return count_; }

  bool Has(ClientId id) const {
    if (id.slot < 0 || id.slot >= std::ssize(clients_)) return false;
    const Client& client = clients_[static_cast<size_t>(id.slot)];
    return !client.places.empty() && client.generation == id.generation;
  }

  std::span<Place> PlacesOf(ClientId id) { return clients_[static_cast<size_t>(id.slot)].places; }

  // For a new request. Throws Error when there is no such client or place, or it is taken.
  Place& FreePlace(ClientId id, RequestAddress address) {
    if (!Has(id)) ThrowInvalid("client", ToText(int64_t{id.slot}), "one that AddClient gave");
    const std::span<Place> places = PlacesOf(id);
    CheckInRange("address.slot", address.slot, 0, std::ssize(places) - 1);
    Place& place = places[static_cast<size_t>(address.slot)];
    if (place.IsTaken()) {
      ThrowInvalid("address.slot", ToText(int64_t{address.slot}),
                   "one with its last request ended");
    }
    return place;
  }

  // The place of a request that has not ended; null when there is none.
  Place* Find(ClientId id, RequestAddress address) {
    if (!Has(id) || address.slot < 0) return nullptr;
    const std::span<Place> places = PlacesOf(id);
    if (address.slot >= std::ssize(places)) return nullptr;
    Place& place = places[static_cast<size_t>(address.slot)];
    return place.IsTaken() && place.generation == address.generation ? &place : nullptr;
  }

 private:
  struct Client {
    uint32_t generation = 0;
    std::vector<Place> places;  // empty: not there
  };
  std::vector<Client> clients_;
  size_t max_client_requests_;
  int64_t count_ = 0;
};

}  // namespace sluice::engine
