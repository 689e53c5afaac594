"""Which system calls are allowed in a jail, as data; `seccomp` turns it into filters.

Two filters stack.  ``FORK_SERVER`` is an allow-list that the fork server installs once and every program inherits.
``PROGRAM`` forbids a program the calls that only the fork server needs: creating processes, sending signals, passing
descriptors.  Each program installs it anew, and each rule takes time, so all other rules are in the first one.  (If a
jail cannot pass descriptors out, the pair is ``FORK_SERVER_CONNECTING`` and ``PROGRAM_CONNECTED``.)  A forbidden call
of a harmless program fails with an error number; a call that only an attack needs ends the program, and its verdict is
``violation``.
"""

from __future__ import annotations

from dataclasses import dataclass

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM, EINVAL, ENOSYS, ENOTSUP = 1, 22, 38, 95


def error(number: int) -> int:
    """Return the action that makes a call fail with an error number."""
    return 0x00050000 | number


@dataclass(frozen=True, slots=True)
class Argument:
    """A condition: argument ``index`` of the call, masked, equals ``value``; or, unmasked, ``differs`` from it."""

    index: int
    value: int
    mask: int = (1 << 64) - 1
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """The action for a call whose arguments meet all conditions; the first matching rule applies."""

    name: str
    action: int
    conditions: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A filter: its rules, and the action for a call that matches none."""

    default: int
    rules: tuple[Rule, ...]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FREE = _names("""
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3
open openat openat2 creat stat lstat fstat newfstatat statx access faccessat faccessat2 getdents getdents64 getcwd
chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink
readlinkat chmod fchmod fchmodat fchmodat2 truncate ftruncate fallocate fsync fdatasync umask statfs fstatfs
sendfile copy_file_range getxattr lgetxattr fgetxattr listxattr llistxattr
flistxattr pipe pipe2 eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
sendto recvfrom sendmsg shutdown setsockopt getsockname getpeername
mmap munmap mprotect mremap madvise msync brk membarrier
futex futex_waitv get_robust_list set_robust_list rseq set_tid_address arch_prctl
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause
alarm getitimer setitimer nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
getpid gettid getppid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid getpgrp getsid
getrlimit setrlimit getrusage getpriority sched_yield sched_getaffinity sched_getparam sched_getscheduler
sched_get_priority_max sched_get_priority_min uname getcpu getrandom restart_syscall
wait4 kill exit exit_group
""")

_ATTACK = _names("""
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_open pidfd_getfd
pidfd_send_signal bpf io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key userfaultfd
perf_event_open unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick
mount_setattr kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct quotactl
quotactl_fd open_by_handle_at name_to_handle_at iopl ioperm sethostname setdomainname settimeofday clock_settime
clock_adjtime adjtimex syslog vhangup fanotify_init fanotify_mark lookup_dcookie modify_ldt vmsplice
""")

# A harmless program may try these, perhaps through a library; they fail with an error.
_REFUSED = _names("""
socket connect bind listen accept accept4 execve execveat fork vfork tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo
memfd_create memfd_secret shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open
mq_unlink mknod mknodat chown fchown lchown fchownat setuid setgid setreuid setregid setresuid setresgid setgroups
setfsuid setfsgid setpgid setsid setpriority sched_setaffinity sched_setscheduler sched_setparam sched_setattr
ioprio_set capset inotify_init inotify_init1 inotify_add_watch splice tee mlock mlock2 mlockall timer_create
waitid recvmsg seccomp
""")

_UNSUPPORTED = _names("setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr")

_NEW_NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
_CLONE_THREAD = 0x10000
_O_ASYNC = 0x2000
_F_SETFL = 4
# Commands of fcntl without those for locks, and without those that direct signals at other processes (F_SETOWN,
# F_SETSIG, F_SETOWN_EX, F_NOTIFY).
_FCNTL = (0, 1, 2, 3, 1030, 1032)
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # used by isatty, set_blocking and set_inheritable
_SET_PDEATHSIG, _SET_SECCOMP = 1, 22
_PRCTL = (_SET_PDEATHSIG, 3, 15, 16, _SET_SECCOMP, 38, 39, 0x53564D41)  # names, seccomp, no_new_privs

_SOL_SOCKET, _MSG_OOB = 1, 1
# Options of a socket that are not counters of the machine, as SO_COOKIE is: type, error, buffers, domain, protocol.
_SOCKET_OPTIONS = (3, 4, 7, 8, 38, 39)
_F_GETLK, _F_OFD_GETLK = 5, 36
_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, and those of open files

# What a program could leave in the kernel for a later one, or share with one that runs at the same time, as far as the
# fork server does not need it either; see docs/sandbox.md.
_NO_TRACES = (
    # Load, memory and number of processes of the machine.
    Rule("sysinfo", error(EPERM)),
    # Which parts of files are in memory: reading brings them there, advice removes them.
    Rule("mincore", error(EPERM)),
    Rule("fadvise64", error(0)),
    Rule("preadv2", error(ENOTSUP), (Argument(5, 0, differs=True),)),
    # Locks belong to files of the machine.  A program is one process and needs none: they succeed and do nothing.
    Rule("flock", error(0)),
    *(Rule("fcntl", error(0), (Argument(1, command),)) for command in _LOCKS),
    *(Rule("fcntl", error(EINVAL), (Argument(1, command),)) for command in (_F_GETLK, _F_OFD_GETLK)),
    # Times of files: everybody who may write to a device of the machine may set its times.
    *(Rule(name, error(0)) for name in _names("utime utimes futimesat utimensat")),
    *(Rule("getsockopt", ALLOW, (Argument(1, _SOL_SOCKET), Argument(2, option))) for option in _SOCKET_OPTIONS),
    Rule("getsockopt", error(EPERM)),
    # No out-of-band data on the channel.
    *(Rule(name, error(EPERM), (Argument(3, _MSG_OOB, _MSG_OOB),)) for name in ("sendto", "recvfrom")),
)

FORK_SERVER = Policy(
    default=error(ENOSYS),  # also clone3, whose flags a filter cannot see: the C library then falls back to clone
    rules=(
        *_NO_TRACES,
        *(Rule(name, ALLOW) for name in _FREE),
        *(Rule(name, KILL) for name in _ATTACK),
        *(Rule(name, error(EPERM)) for name in _REFUSED),
        *(Rule(name, error(ENOTSUP)) for name in _UNSUPPORTED),
        *(Rule("clone", KILL, (Argument(0, flag, flag),)) for flag in _NEW_NAMESPACES),
        Rule("clone", ALLOW, (Argument(0, 0, sum(_NEW_NAMESPACES)),)),
        Rule("socketpair", ALLOW, (Argument(0, 1), Argument(1, 1, 0xF))),  # AF_UNIX, SOCK_STREAM
        *(Rule("fcntl", ALLOW, (Argument(1, command),)) for command in _FCNTL),
        Rule("fcntl", ALLOW, (Argument(1, _F_SETFL), Argument(2, 0, _O_ASYNC))),
        *(Rule("ioctl", ALLOW, (Argument(1, command),)) for command in _IOCTL),
        *(Rule("prctl", ALLOW, (Argument(0, option),)) for option in _PRCTL),
        Rule("prlimit64", ALLOW, (Argument(0, 0),)),
        Rule("personality", ALLOW, (Argument(0, 0xFFFFFFFF),)),
    ),
)

_CONNECTING = ("socket", "connect")

FORK_SERVER_CONNECTING = Policy(
    default=FORK_SERVER.default,
    rules=(
        *(rule for rule in FORK_SERVER.rules if rule.name not in _CONNECTING),
        Rule("socket", ALLOW, (Argument(0, 1),)),  # AF_UNIX
        Rule("connect", ALLOW),
    ),
)

_CLOCKS = ("clock_gettime", "clock_getres", "clock_nanosleep")

_PROGRAM_RULES = (
    # Process numbers, because threads use them up.  The answer is zero, as it is the same for every program.
    *(Rule(name, error(0)) for name in _names("getpid gettid getpgrp getpgid getsid set_tid_address")),
    # CPU time of other processes, whose numbers are negative.
    *(Rule(name, error(EINVAL), (Argument(0, 1 << 31, 1 << 31),)) for name in _CLOCKS),
    Rule("clone", error(EPERM), (Argument(0, 0, _CLONE_THREAD),)),
    *(Rule("prctl", error(EPERM), (Argument(0, option),)) for option in (_SET_PDEATHSIG, _SET_SECCOMP)),
    # A program could set a limit and die of it as if killed from outside.  So setting limits reports success and does
    # nothing: honest programs do it, too, for a larger stack, and keep the one that they have.
    Rule("setrlimit", error(0)),
    Rule("prlimit64", error(0), (Argument(0, 0), Argument(2, 0, differs=True))),
    *(Rule(name, error(EPERM)) for name in ("kill", "sendmsg", "wait4")),
)

PROGRAM = Policy(default=ALLOW, rules=_PROGRAM_RULES)

PROGRAM_CONNECTED = Policy(default=ALLOW, rules=(*_PROGRAM_RULES, *(Rule(name, error(EPERM)) for name in _CONNECTING)))

# Landlock guards the content of files, not their modes, nor (before version 3) their length.  If a program sees the
# machine's own files and may own some, changing modes reports success and does nothing.
PROGRAM_AMONG_FILES = Policy(
    default=ALLOW,
    rules=(
        *_PROGRAM_RULES,
        *(Rule(name, error(0)) for name in _names("chmod fchmod fchmodat fchmodat2")),
        Rule("truncate", error(EPERM)),
    ),
)

# Tests are trusted, but not the numbers and names that a program returns to them.  Used where tests run as the user of
# the sandbox, among that user's files and processes.
TESTS_AMONG_FILES = Policy(
    default=ALLOW,
    rules=(
        *(rule for rule in PROGRAM_AMONG_FILES.rules if rule not in _PROGRAM_RULES),
        *(Rule(name, error(EPERM)) for name in _names("socket kill tkill pidfd_send_signal mknod mknodat")),
    ),
)
