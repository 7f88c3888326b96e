// The configuration of libzmq for packaging/static_libraries.sh: Linux, TCP and Unix sockets, no
// encryption (the traffic stays on one machine or in a network of its own), no multicast.
#pragma once
#define ZMQ_HAVE_LINUX
#define ZMQ_USE_CV_IMPL_STL11
#define ZMQ_IOTHREAD_POLLER_USE_EPOLL
#define ZMQ_IOTHREAD_POLLER_USE_EPOLL_CLOEXEC
#define ZMQ_POLL_BASED_ON_POLL
#define ZMQ_CACHELINE_SIZE 64
#define HAVE_POSIX_MEMALIGN 1
#define HAVE_FORK
#define HAVE_CLOCK_GETTIME
#define HAVE_MKDTEMP
#define HAVE_ACCEPT4
#define HAVE_STRNLEN
#define ZMQ_HAVE_IPC
#define ZMQ_HAVE_UIO
#define ZMQ_HAVE_NOEXCEPT
#define ZMQ_HAVE_IFADDRS
#define ZMQ_HAVE_EVENTFD
#define ZMQ_HAVE_EVENTFD_CLOEXEC
#define ZMQ_HAVE_O_CLOEXEC
#define ZMQ_HAVE_SOCK_CLOEXEC
#define ZMQ_HAVE_SO_BINDTODEVICE
#define ZMQ_HAVE_SO_PEERCRED
#define ZMQ_HAVE_BUSY_POLL
#define ZMQ_HAVE_SO_KEEPALIVE
#define ZMQ_HAVE_TCP_KEEPCNT
#define ZMQ_HAVE_TCP_KEEPIDLE
#define ZMQ_HAVE_TCP_KEEPINTVL
#define ZMQ_HAVE_PTHREAD_SETNAME_2
#define ZMQ_HAVE_PTHREAD_SET_AFFINITY
