/* Records what a process does to the files below one directory, for the power-cut proof (tests/src/power).
 *
 * Preloaded into a server. Every change of a file or directory below $POWER_ROOT (write, length, hole, creation, rename,
 * removal) is appended to $POWER_TRACE/<pid>.trace and then carried out, both under one lock: the order of the trace is
 * the order of the changes. A sync is noted when it begins and when it returned without error; sync_file_range is none.
 *
 * $POWER_GATE is a file of two bytes. While its first is not 0 no further change begins; its second is 1 while one is
 * under way: a killer that closes the gate, waits for a 0 and then kills leaves a trace that says exactly what was done.
 *
 * With POWER_KILL_AFTER=N the process kills itself in place of the change or sync that follows the first N, holding the lock.
 *
 * With POWER_LIE=1 no fdatasync is noted: to the trace it did nothing and said that it did. It is carried out all the
 * same, because a log that still has unsynced pages in the cache refuses to start.
 *
 * What could change a file unseen (a shared writable mapping, copying inside the kernel) ends the process by abort().
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The numbers are those of `Kind` in tests/src/power/trace.rs. */
enum kind {
    OPENED = 1, /* inode, a: 1 if it was made by this, b: its length; a path */
    WRITTEN,    /* inode, a: offset; the bytes */
    LENGTH,     /* inode, a: the length that it is set to */
    HOLE,       /* inode, a: offset, b: bytes */
    EXTENDED,   /* inode, a: the least length that it has now */
    RENAMED,    /* two paths with a zero byte between them */
    REMOVED,    /* a path */
    DIRECTORY,  /* inode; a path */
    SYNC_BEGAN, /* inode, a: number of the sync in this process */
    SYNC_ENDED  /* inode, a: that number */
};

struct header {
    uint32_t kind;
    uint32_t bytes;
    uint64_t time_ns;
    uint64_t inode;
    uint64_t a;
    uint64_t b;
};

static char root[PATH_MAX];
static size_t root_bytes;
static int trace_fd = -1;
static volatile unsigned char *gate;
static int lies;
static uint64_t changes, kill_after = UINT64_MAX;
static uint64_t syncs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *why) {
    dprintf(2, "power shim: %s\n", why);
    abort();
}

__attribute__((constructor)) static void begin(void) {
    const char *root_variable = getenv("POWER_ROOT"), *traces = getenv("POWER_TRACE"), *gates = getenv("POWER_GATE");
    if (!root_variable || !traces || !gates) return;
    if (!realpath(root_variable, root)) die("POWER_ROOT is no directory");
    root_bytes = strlen(root);
    lies = getenv("POWER_LIE") != NULL;
    const char *changes_left = getenv("POWER_KILL_AFTER");
    if (changes_left) kill_after = strtoull(changes_left, NULL, 10);
    int gate_fd = (int)syscall(SYS_openat, AT_FDCWD, gates, O_RDWR | O_CLOEXEC, 0);
    if (gate_fd < 0) die("POWER_GATE does not open");
    gate = mmap(NULL, 2, PROT_READ | PROT_WRITE, MAP_SHARED, gate_fd, 0);
    if (gate == MAP_FAILED) die("POWER_GATE is not mapped");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%d.trace", traces, (int)getpid());
    trace_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (trace_fd < 0) die("the trace is not made");
    /* One is there already where another program started this one in its own place; it has changed nothing. */
    struct stat made;
    if (fstat(trace_fd, &made) || made.st_size) die("the trace is another process's");
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Holding the lock. */
static void note(uint32_t kind, uint64_t inode, uint64_t a, uint64_t b, const struct iovec *parts, int count) {
    struct iovec all[66];
    struct header header = {.kind = kind, .time_ns = now_ns(), .inode = inode, .a = a, .b = b};
    size_t bytes = sizeof header;
    if (count > 64) die("too many parts in one write");
    all[0] = (struct iovec){&header, sizeof header};
    for (int part = 0; part < count; part++) {
        all[part + 1] = parts[part];
        bytes += parts[part].iov_len;
        header.bytes += (uint32_t)parts[part].iov_len;
    }
    if (syscall(SYS_writev, trace_fd, all, count + 1) != (ssize_t)bytes) die("the trace is not written");
}

static void note_path(uint32_t kind, uint64_t inode, uint64_t a, uint64_t b, const char *path) {
    struct iovec part = {(void *)path, strlen(path)};
    note(kind, inode, a, b, &part, 1);
}

/* Takes the lock; where the gate is closed it stays here for good. */
static void enter(void) {
    pthread_mutex_lock(&lock);
    gate[1] = 1;
    __sync_synchronize();
    if (gate[0]) {
        gate[1] = 0;
        pthread_mutex_unlock(&lock);
        for (;;) pause();
    }
    if (changes++ == kill_after) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

static void leave(void) {
    int kept = errno;
    __sync_synchronize();
    gate[1] = 0;
    pthread_mutex_unlock(&lock);
    errno = kept;
}

/* The root itself counts: its syncs make the names of the data directories durable. */
static int below_root(const char *path) {
    return strncmp(path, root, root_bytes) == 0 && (path[root_bytes] == '/' || path[root_bytes] == 0);
}

/* The absolute path of a name, without following its last part; 0 if it is not below the root. */
static int resolve(int at, const char *name, char *path) {
    char copy[PATH_MAX], above[PATH_MAX];
    if (trace_fd < 0 || !name || !*name) return 0;
    if (name[0] == '/' || at == AT_FDCWD) {
        snprintf(copy, sizeof copy, "%s", name);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t bytes = readlink(link, above, sizeof above - 1);
        if (bytes < 0) return 0;
        above[bytes] = 0;
        if (snprintf(copy, sizeof copy, "%s/%s", above, name) >= (int)sizeof copy) return 0;
    }
    size_t end = strlen(copy);
    while (end > 1 && copy[end - 1] == '/') copy[--end] = 0;
    char *slash = strrchr(copy, '/');
    const char *last = slash ? slash + 1 : copy;
    if (slash == copy) return 0;
    if (slash) *slash = 0;
    if (!realpath(slash ? copy : ".", above)) return 0;
    if (snprintf(path, PATH_MAX, "%s/%s", above, last) >= PATH_MAX) return 0;
    return below_root(path);
}

/* Whether a descriptor is a file or directory below the root; its inode number. */
static int watched(int fd, uint64_t *inode, int directories) {
    struct stat found;
    char link[64], path[PATH_MAX];
    if (trace_fd < 0 || fd == trace_fd || fstat(fd, &found)) return 0;
    if (!S_ISREG(found.st_mode) && !(directories && S_ISDIR(found.st_mode))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (bytes < 0) return 0;
    path[bytes] = 0;
    *inode = found.st_ino;
    return below_root(path);
}

static int open_as(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!resolve(at, name, path)) return (int)syscall(SYS_openat, at, name, flags, mode);
    enter();
    struct stat before, after;
    int was_there = stat(path, &before) == 0;
    int fd = (int)syscall(SYS_openat, at, name, flags, mode);
    char link[64], real[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = fd < 0 ? -1 : readlink(link, real, sizeof real - 1);
    /* Where a symbolic link led, that is what was opened. */
    if (bytes > 0) {
        real[bytes] = 0;
        snprintf(path, sizeof path, "%s", real);
    }
    if (fd >= 0 && fstat(fd, &after) == 0) {
        note_path(OPENED, after.st_ino, !was_there, (uint64_t)after.st_size, path);
        if ((flags & O_TRUNC) && was_there) note(LENGTH, after.st_ino, 0, 0, NULL, 0);
    }
    leave();
    return fd;
}

#define MODE(mode) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = (mode_t)va_arg(rest, int); \
        va_end(rest); \
    }

#undef open
#undef open64
#undef openat
#undef openat64
int open(const char *name, int flags, ...) { MODE(mode) return open_as(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(mode) return open_as(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(mode) return open_as(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(mode) return open_as(at, name, flags, mode); }
int creat(const char *name, mode_t mode) { return open_as(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return open_as(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static size_t sum(const struct iovec *parts, int count) {
    size_t bytes = 0;
    for (int part = 0; part < count; part++) bytes += parts[part].iov_len;
    return bytes;
}

/* A write at `offset`, or at the descriptor's own place where that is -1. */
static ssize_t write_as(int fd, const struct iovec *parts, int count, off_t offset) {
    uint64_t inode;
    int here = offset < 0;
    if (!watched(fd, &inode, 0)) {
        return here ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, offset, 0);
    }
    enter();
    off_t at = offset;
    if (here) {
        int flags = (int)syscall(SYS_fcntl, fd, F_GETFL, 0);
        at = lseek(fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
    }
    note(WRITTEN, inode, (uint64_t)at, 0, parts, count);
    ssize_t done = here ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, offset, 0);
    if (done != (ssize_t)sum(parts, count)) die("a write was cut short");
    leave();
    return done;
}

ssize_t write(int fd, const void *data, size_t bytes) {
    uint64_t inode;
    if (!watched(fd, &inode, 0)) return syscall(SYS_write, fd, data, bytes);
    struct iovec part = {(void *)data, bytes};
    return write_as(fd, &part, 1, -1);
}
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) {
    struct iovec part = {(void *)data, bytes};
    return write_as(fd, &part, 1, offset);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return pwrite64(fd, data, bytes, offset); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_as(fd, parts, count, -1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return write_as(fd, parts, count, offset);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return write_as(fd, parts, count, offset); }

int ftruncate64(int fd, off64_t length) {
    uint64_t inode;
    if (!watched(fd, &inode, 0)) return (int)syscall(SYS_ftruncate, fd, length);
    enter();
    note(LENGTH, inode, (uint64_t)length, 0, NULL, 0);
    if (syscall(SYS_ftruncate, fd, length)) die("a length was not set");
    leave();
    return 0;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes) {
    uint64_t inode;
    if (!watched(fd, &inode, 0)) return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
    enter();
    int done = (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
    if (done == 0) {
        if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
            note(HOLE, inode, (uint64_t)offset, (uint64_t)bytes, NULL, 0);
        } else if (mode == 0) {
            note(EXTENDED, inode, (uint64_t)(offset + bytes), 0, NULL, 0);
        } else if (mode != FALLOC_FL_KEEP_SIZE) {
            die("an unknown fallocate");
        }
    }
    leave();
    return done;
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) { return fallocate64(fd, mode, offset, bytes); }
int posix_fallocate64(int fd, off64_t offset, off64_t bytes) { return fallocate64(fd, 0, offset, bytes) ? errno : 0; }
int posix_fallocate(int fd, off_t offset, off_t bytes) { return fallocate64(fd, 0, offset, bytes) ? errno : 0; }

static int rename_as(int from_at, const char *from, int to_at, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    int from_here = resolve(from_at, from, old), to_here = resolve(to_at, to, new);
    if (!from_here && !to_here) return (int)syscall(SYS_renameat2, from_at, from, to_at, to, 0);
    if (!from_here || !to_here) die("a rename crosses the root");
    enter();
    int done = (int)syscall(SYS_renameat2, from_at, from, to_at, to, 0);
    struct iovec parts[] = {{old, strlen(old) + 1}, {new, strlen(new)}};
    if (done == 0) note(RENAMED, 0, 0, 0, parts, 2);
    leave();
    return done;
}
int rename(const char *from, const char *to) { return rename_as(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return rename_as(from_at, from, to_at, to); }

static int remove_as(int at, const char *name, int flags) {
    char path[PATH_MAX];
    if (!resolve(at, name, path)) return (int)syscall(SYS_unlinkat, at, name, flags);
    enter();
    int done = (int)syscall(SYS_unlinkat, at, name, flags);
    if (done == 0) note_path(REMOVED, 0, 0, 0, path);
    leave();
    return done;
}
int unlink(const char *name) { return remove_as(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return remove_as(AT_FDCWD, name, AT_REMOVEDIR); }
int unlinkat(int at, const char *name, int flags) { return remove_as(at, name, flags); }

static int mkdir_as(int at, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!resolve(at, name, path)) return (int)syscall(SYS_mkdirat, at, name, mode);
    enter();
    struct stat made;
    int done = (int)syscall(SYS_mkdirat, at, name, mode);
    if (done == 0 && stat(path, &made) == 0) note_path(DIRECTORY, made.st_ino, 0, 0, path);
    leave();
    return done;
}
int mkdir(const char *name, mode_t mode) { return mkdir_as(AT_FDCWD, name, mode); }
int mkdirat(int at, const char *name, mode_t mode) { return mkdir_as(at, name, mode); }

/* A sync runs beside changes, as it does without this; only its notes are made under the lock. */
static int sync_as(int fd, long call) {
    uint64_t inode;
    if (!watched(fd, &inode, 1)) return (int)syscall(call, fd);
    if (lies && call == SYS_fdatasync) return (int)syscall(call, fd);
    enter();
    uint64_t number = ++syncs;
    note(SYNC_BEGAN, inode, number, 0, NULL, 0);
    leave();
    int done = (int)syscall(call, fd);
    int kept = errno;
    if (done == 0) {
        enter();
        note(SYNC_ENDED, inode, number, 0, NULL, 0);
        leave();
    }
    errno = kept;
    return done;
}
int fsync(int fd) { return sync_as(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_as(fd, SYS_fdatasync); }

void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset) {
    uint64_t inode;
    if (fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE) && watched(fd, &inode, 0)) {
        die("a file is changed through a mapping");
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return mmap64(address, bytes, protection, flags, fd, offset);
}

#define UNSEEN(fd, what) \
    uint64_t inode; \
    if (watched(fd, &inode, 0)) die(what " changes a file unseen")

ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes, unsigned flags) {
    UNSEEN(out, "copy_file_range");
    return syscall(SYS_copy_file_range, in, in_at, out, out_at, bytes, flags);
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t bytes) {
    UNSEEN(out, "sendfile");
    return syscall(SYS_sendfile, out, in, at, bytes);
}
ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes, unsigned flags) {
    UNSEEN(out, "splice");
    return syscall(SYS_splice, in, in_at, out, out_at, bytes, flags);
}
/* A symbolic link counts as an empty file: nothing but its name matters. */
int symlink(const char *from, const char *to) {
    char path[PATH_MAX];
    if (!resolve(AT_FDCWD, to, path)) return (int)syscall(SYS_symlinkat, from, AT_FDCWD, to);
    enter();
    struct stat made;
    int done = (int)syscall(SYS_symlinkat, from, AT_FDCWD, to);
    if (done == 0 && lstat(path, &made) == 0) note_path(OPENED, made.st_ino, 1, 0, path);
    leave();
    return done;
}
int link(const char *from, const char *to) {
    char path[PATH_MAX];
    if (resolve(AT_FDCWD, to, path)) die("a link is made");
    return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}
