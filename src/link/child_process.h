// Starts a program with pipes for its standard output and error. It is the first of a process group
// of its own, gets nothing else that is open here, and gets a signal when the thread that started
// it ends.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <span>
#include <string>

#include "link/file_descriptor.h"

namespace sluice::link {

struct ChildProcess {
  pid_t pid = -1;
  FileDescriptor pidfd;
  FileDescriptor output;  // neither blocks
  FileDescriptor errors;
};

// Throws Error when it cannot be run. The caller must wait for the process.
ChildProcess StartChild(std::span<const std::string> command, int death_signal = SIGKILL);

// "exit status 1", "signal 9 (Killed)"; empty while it runs. It stays to be waited for. "status
// unknown" when another part of the process has waited for it, or this process did not start it.
std::string EndOfChild(const FileDescriptor& pidfd);

// To all of its group, which has this number for as long as its first process was not waited for.
// False: another part of the process has waited for it, and nothing is sent.
bool SignalGroup(const ChildProcess& child, int signal);
// And waits for the first process.
void KillGroup(const ChildProcess& child);

}  // namespace sluice::link
