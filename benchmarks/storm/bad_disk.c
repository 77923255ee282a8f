/* LD_PRELOAD library: simulates a disk that fails or is slow.

   While the file $STORM_SWITCH exists, writes below $STORM_DIR fail with EIO. If
   $STORM_DELAY_US is set, they take that many microseconds longer instead. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int fd) {
  const char *gate = getenv("STORM_SWITCH"), *dir = getenv("STORM_DIR");
  const char *delay = getenv("STORM_DELAY_US");
  char link[64], path[PATH_MAX];
  if (!gate || !dir || access(gate, F_OK)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  if (strncmp(path, dir, strlen(dir))) return 0;
  if (delay) {
    usleep(atoi(delay));
    return 0;
  }
  errno = EIO;
  return 1;
}

#define WRAP(type, name, params, args)                        \
  type name params {                                          \
    static type (*real) params;                               \
    if (!real) real = (type(*) params)dlsym(RTLD_NEXT, #name); \
    return fails(fd) ? -1 : real args;                        \
  }

WRAP(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRAP(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRAP(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, fdatasync, (int fd), (fd))
