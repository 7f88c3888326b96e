// Closes its descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace sluice::link {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool IsOpen() const { return fd_ >= 0; }
  void Close() {
    if (IsOpen()) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

}  // namespace sluice::link
