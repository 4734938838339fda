/* Loaded before the C library: fails, or ends the process at, the n-th change of a file below a folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[PATH_MAX];
static long seen, at = -1;
static int failure, stays; /* an errno, or below 0 the number of a signal; whether later changes fail, too */
static char last[64];

void torture_arm(const char *folder, long n, int what, int for_good) {
    strncpy(root, folder, sizeof root - 1);
    seen = 0, at = n, failure = what, stays = for_good, last[0] = 0;
}
long torture_seen(void) { return seen; }
const char *torture_last(void) { return last; }

static int below(const char *path) { return root[0] && path && !strncmp(path, root, strlen(root)); }

static int hit(const char *path, const char *what) {
    if (!below(path)) return 0;
    long now = __sync_fetch_and_add(&seen, 1);
    if (at < 0 || now < at || (now > at && !stays)) return 0;
    if (now == at) snprintf(last, sizeof last, "%s", what);
    return 1;
}

/* A full disk does not keep anybody from removing files. */
static int hit_removal(const char *path, const char *what) { return failure != ENOSPC && hit(path, what); }

static int fail(void) {
    if (failure < 0) { kill(getpid(), -failure); pause(); }
    errno = failure;
    return -1;
}

static const char *path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
    return path;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t n) {
    char path[PATH_MAX];
    if (root[0] && hit(path_of(fd, path), "write")) {
        if (n > 1) REAL(write)(fd, data, n / 2); /* the first half gets through, as on a disk that fills up */
        return fail();
    }
    return REAL(write)(fd, data, n);
}
int fsync(int fd) {
    char path[PATH_MAX];
    return root[0] && hit(path_of(fd, path), "fsync") ? fail() : REAL(fsync)(fd);
}
int ftruncate64(int fd, off64_t n) {
    char path[PATH_MAX];
    return root[0] && hit(path_of(fd, path), "ftruncate") ? fail() : REAL(ftruncate64)(fd, n);
}
int rename(const char *from, const char *to) { return hit(to, "rename") ? fail() : REAL(rename)(from, to); }
int mkdir(const char *path, mode_t mode) { return hit(path, "mkdir") ? fail() : REAL(mkdir)(path, mode); }
int unlink(const char *path) { return hit_removal(path, "unlink") ? fail() : REAL(unlink)(path); }
int rmdir(const char *path) { return hit_removal(path, "rmdir") ? fail() : REAL(rmdir)(path); }

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    if ((flags & O_CREAT) && hit(path, "open")) return fail();
    return real(path, flags, mode);
}
#define OPEN(name)                                                  \
    int name(const char *path, int flags, ...) {                    \
        va_list rest;                                               \
        va_start(rest, flags);                                      \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;   \
        va_end(rest);                                               \
        return opened(REAL(name), path, flags, mode);               \
    }
OPEN(open)
OPEN(open64)
