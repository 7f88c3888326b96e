#include "cli/interrupt.h"

namespace sluice::cli {
namespace {

volatile std::sig_atomic_t noted_signal = 0;

void Note(int signal) { noted_signal = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  noted_signal = 0;
  struct sigaction action = {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESETHAND | SA_RESTART;  // what is being written is written whole
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_termination_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_termination_, nullptr);
}

int InterruptGuard::signal() const { return noted_signal; }

}  // namespace sluice::cli
