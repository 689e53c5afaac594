"""Which system calls are allowed in a jail, and the filters that enforce it.

Two filters stack.  ``FORK_SERVER`` is an allow-list that the fork server installs once and every program inherits.
``PROGRAM`` forbids a program the calls that only the fork server needs: creating processes, sending signals, passing
descriptors.  Each program installs it anew, and each rule takes time, so all other rules are in the first one.  (If a
jail cannot pass descriptors out, the pair is ``FORK_SERVER_CONNECTING`` and ``PROGRAM_CONNECTED``.)  A forbidden call
of a harmless program fails with an error number; a call that only an attack needs ends the program, and its verdict is
``violation``.

A small assembler turns policies into filters, so that no library has to be installed.  Promises: a filter implements
its policy (a test checks every call).  A call with another architecture's numbers (32-bit, x32) ends the program.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from dataclasses import dataclass
from functools import lru_cache

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

# Commands of ioctl: FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR and FS_IOC_SETVERSION.
_FLAGS_OF_FILES = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602)
_TIMES_OF_FILES = tuple(Rule(name, error(0)) for name in _names("utime utimes futimesat utimensat"))

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
    *_TIMES_OF_FILES,
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

# Landlock guards the content of files, not their modes and times, nor (before version 3) their length.  If a program
# sees the machine's own files and may own some, changing modes reports success and does nothing.
PROGRAM_AMONG_FILES = Policy(
    default=ALLOW,
    rules=(
        *_PROGRAM_RULES,
        *(Rule(name, error(0)) for name in _names("chmod fchmod fchmodat fchmodat2")),
        Rule("truncate", error(EPERM)),
    ),
)

# What tests could leave in the kernel when all their processes have ended.
TESTS = Policy(
    default=ALLOW,
    rules=(
        *(Rule(name, error(EPERM)) for name in _names("shmget semget msgget mq_open add_key request_key keyctl")),
        Rule("setpriority", error(EPERM), (Argument(0, 2),)),  # of all processes of the user
        # Of their folder, which is the next tests' folder, too, and may be their own.
        *(Rule(name, error(ENOTSUP)) for name in _UNSUPPORTED),
        *(Rule("ioctl", error(EPERM), (Argument(1, command),)) for command in _FLAGS_OF_FILES),
    ),
)

# Tests are trusted, but not the numbers and names that a program returns to them.  Used where tests run among the files
# and processes of the machine; all jobs of a slot have one folder there, so nothing that wiping it leaves may change.
TESTS_AMONG_FILES = Policy(
    default=ALLOW,
    rules=(
        *(rule for rule in PROGRAM_AMONG_FILES.rules if rule not in _PROGRAM_RULES),
        *_TIMES_OF_FILES,
        *(Rule(name, error(ENOTSUP)) for name in _UNSUPPORTED),
        *(Rule("ioctl", error(EPERM), (Argument(1, command),)) for command in _FLAGS_OF_FILES),
        *(Rule(name, error(EPERM)) for name in _names("socket mknod mknodat")),
    ),
)

# Where Landlock does not confine signals.  `tgkill` is how a process aborts itself.
_SIGNALS = _names("kill tkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo")
TESTS_WITHOUT_SIGNALS = Policy(default=ALLOW, rules=tuple(Rule(name, error(EPERM)) for name in _SIGNALS))


ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_TABLES = {
    "x86_64": """
        accept:43 accept4:288 access:21 acct:163 add_key:248 adjtimex:159 alarm:37 arch_prctl:158 bind:49
        bpf:321 brk:12 capset:126 chdir:80 chmod:90 chown:92 chroot:161 clock_adjtime:305 clock_getres:229
        clock_gettime:228 clock_nanosleep:230 clock_settime:227 clone:56 close:3 close_range:436 connect:42
        copy_file_range:326 creat:85 delete_module:176 dup:32 dup2:33 dup3:292 epoll_create:213
        epoll_create1:291 epoll_ctl:233 epoll_pwait:281 epoll_pwait2:441 epoll_wait:232 eventfd:284 eventfd2:290
        execve:59 execveat:322 exit:60 exit_group:231 faccessat:269 faccessat2:439 fadvise64:221 fallocate:285
        fanotify_init:300 fanotify_mark:301 fchdir:81 fchmod:91 fchmodat:268 fchmodat2:452 fchown:93
        fchownat:260 fcntl:72 fdatasync:75 fgetxattr:193 finit_module:313 flistxattr:196 flock:73 fork:57
        fremovexattr:199 fsconfig:431 fsetxattr:190 fsmount:432 fsopen:430 fspick:433 fstat:5 fstatfs:138
        fsync:74 ftruncate:77 futex:202 futex_waitv:449 futimesat:261 get_robust_list:274 getcpu:309 getcwd:79
        getdents:78 getdents64:217 getegid:108 geteuid:107 getgid:104 getgroups:115 getitimer:36 getpeername:52
        getpgid:121 getpgrp:111 getpid:39 getppid:110 getpriority:140 getrandom:318 getresgid:120 getresuid:118
        getrlimit:97 getrusage:98 getsid:124 getsockname:51 getsockopt:55 gettid:186 gettimeofday:96 getuid:102
        getxattr:191 init_module:175 inotify_add_watch:254 inotify_init:253 inotify_init1:294 io_uring_enter:426
        io_uring_register:427 io_uring_setup:425 ioctl:16 ioperm:173 iopl:172 ioprio_set:251 kcmp:312
        kexec_file_load:320 kexec_load:246 keyctl:250 kill:62 lchown:94 lgetxattr:192 link:86 linkat:265
        listen:50 listxattr:194 llistxattr:195 lookup_dcookie:212 lremovexattr:198 lseek:8 lsetxattr:189 lstat:6
        madvise:28 membarrier:324 memfd_create:319 memfd_secret:447 mincore:27 mkdir:83 mkdirat:258 mknod:133
        mknodat:259 mlock:149 mlock2:325 mlockall:151 mmap:9 modify_ldt:154 mount:165 mount_setattr:442
        move_mount:429 mprotect:10 mq_open:240 mq_unlink:241 mremap:25 msgctl:71 msgget:68 msgrcv:70 msgsnd:69
        msync:26 munmap:11 name_to_handle_at:303 nanosleep:35 newfstatat:262 open:2 open_by_handle_at:304
        open_tree:428 openat:257 openat2:437 pause:34 perf_event_open:298 personality:135 pidfd_getfd:438
        pidfd_open:434 pidfd_send_signal:424 pipe:22 pipe2:293 pivot_root:155 poll:7 ppoll:271 prctl:157
        pread64:17 preadv:295 preadv2:327 prlimit64:302 process_madvise:440 process_mrelease:448
        process_vm_readv:310 process_vm_writev:311 pselect6:270 ptrace:101 pwrite64:18 pwritev:296 pwritev2:328
        quotactl:179 quotactl_fd:443 read:0 readlink:89 readlinkat:267 readv:19 reboot:169 recvfrom:45
        recvmsg:47 removexattr:197 rename:82 renameat:264 renameat2:316 request_key:249 restart_syscall:219
        rmdir:84 rseq:334 rt_sigaction:13 rt_sigpending:127 rt_sigprocmask:14 rt_sigqueueinfo:129
        rt_sigreturn:15 rt_sigsuspend:130 rt_sigtimedwait:128 rt_tgsigqueueinfo:297 sched_get_priority_max:146
        sched_get_priority_min:147 sched_getaffinity:204 sched_getparam:143 sched_getscheduler:145
        sched_setaffinity:203 sched_setattr:314 sched_setparam:142 sched_setscheduler:144 sched_yield:24
        seccomp:317 select:23 semctl:66 semget:64 semop:65 semtimedop:220 sendfile:40 sendmsg:46 sendto:44
        set_robust_list:273 set_tid_address:218 setdomainname:171 setfsgid:123 setfsuid:122 setgid:106
        setgroups:116 sethostname:170 setitimer:38 setns:308 setpgid:109 setpriority:141 setregid:114
        setresgid:119 setresuid:117 setreuid:113 setrlimit:160 setsid:112 setsockopt:54 settimeofday:164
        setuid:105 setxattr:188 shmat:30 shmctl:31 shmdt:67 shmget:29 shutdown:48 sigaltstack:131 socket:41
        socketpair:53 splice:275 stat:4 statfs:137 statx:332 swapoff:168 swapon:167 symlink:88 symlinkat:266
        sysinfo:99 syslog:103 tee:276 tgkill:234 time:201 timer_create:222 timerfd_create:283
        timerfd_gettime:287 timerfd_settime:286 times:100 tkill:200 truncate:76 umask:95 umount2:166 uname:63
        unlink:87 unlinkat:263 unshare:272 userfaultfd:323 utime:132 utimensat:280 utimes:235 vfork:58
        vhangup:153 vmsplice:278 wait4:61 waitid:247 write:1 writev:20
    """,
    "aarch64": """
        accept:202 accept4:242 acct:89 add_key:217 adjtimex:171 bind:200 bpf:280 brk:214 capset:91 chdir:49
        chroot:51 clock_adjtime:266 clock_getres:114 clock_gettime:113 clock_nanosleep:115 clock_settime:112
        clone:220 close:57 close_range:436 connect:203 copy_file_range:285 delete_module:106 dup:23 dup3:24
        epoll_create1:20 epoll_ctl:21 epoll_pwait:22 epoll_pwait2:441 eventfd2:19 execve:221 execveat:281
        exit:93 exit_group:94 faccessat:48 faccessat2:439 fadvise64:223 fallocate:47 fanotify_init:262
        fanotify_mark:263 fchdir:50 fchmod:52 fchmodat:53 fchmodat2:452 fchown:55 fchownat:54 fcntl:25
        fdatasync:83 fgetxattr:10 finit_module:273 flistxattr:13 flock:32 fremovexattr:16 fsconfig:431
        fsetxattr:7 fsmount:432 fsopen:430 fspick:433 fstat:80 fstatfs:44 fsync:82 ftruncate:46 futex:98
        futex_waitv:449 get_robust_list:100 getcpu:168 getcwd:17 getdents64:61 getegid:177 geteuid:175
        getgid:176 getgroups:158 getitimer:102 getpeername:205 getpgid:155 getpid:172 getppid:173
        getpriority:141 getrandom:278 getresgid:150 getresuid:148 getrlimit:163 getrusage:165 getsid:156
        getsockname:204 getsockopt:209 gettid:178 gettimeofday:169 getuid:174 getxattr:8 init_module:105
        inotify_add_watch:27 inotify_init1:26 io_uring_enter:426 io_uring_register:427 io_uring_setup:425
        ioctl:29 ioprio_set:30 kcmp:272 kexec_file_load:294 kexec_load:104 keyctl:219 kill:129 lgetxattr:9
        linkat:37 listen:201 listxattr:11 llistxattr:12 lookup_dcookie:18 lremovexattr:15 lseek:62 lsetxattr:6
        madvise:233 membarrier:283 memfd_create:279 memfd_secret:447 mincore:232 mkdirat:34 mknodat:33 mlock:228
        mlock2:284 mlockall:230 mmap:222 mount:40 mount_setattr:442 move_mount:429 mprotect:226 mq_open:180
        mq_unlink:181 mremap:216 msgctl:187 msgget:186 msgrcv:188 msgsnd:189 msync:227 munmap:215
        name_to_handle_at:264 nanosleep:101 newfstatat:79 open_by_handle_at:265 open_tree:428 openat:56
        openat2:437 perf_event_open:241 personality:92 pidfd_getfd:438 pidfd_open:434 pidfd_send_signal:424
        pipe2:59 pivot_root:41 ppoll:73 prctl:167 pread64:67 preadv:69 preadv2:286 prlimit64:261
        process_madvise:440 process_mrelease:448 process_vm_readv:270 process_vm_writev:271 pselect6:72
        ptrace:117 pwrite64:68 pwritev:70 pwritev2:287 quotactl:60 quotactl_fd:443 read:63 readlinkat:78
        readv:65 reboot:142 recvfrom:207 recvmsg:212 removexattr:14 renameat:38 renameat2:276 request_key:218
        restart_syscall:128 rseq:293 rt_sigaction:134 rt_sigpending:136 rt_sigprocmask:135 rt_sigqueueinfo:138
        rt_sigreturn:139 rt_sigsuspend:133 rt_sigtimedwait:137 rt_tgsigqueueinfo:240 sched_get_priority_max:125
        sched_get_priority_min:126 sched_getaffinity:123 sched_getparam:121 sched_getscheduler:120
        sched_setaffinity:122 sched_setattr:274 sched_setparam:118 sched_setscheduler:119 sched_yield:124
        seccomp:277 semctl:191 semget:190 semop:193 semtimedop:192 sendfile:71 sendmsg:211 sendto:206
        set_robust_list:99 set_tid_address:96 setdomainname:162 setfsgid:152 setfsuid:151 setgid:144
        setgroups:159 sethostname:161 setitimer:103 setns:268 setpgid:154 setpriority:140 setregid:143
        setresgid:149 setresuid:147 setreuid:145 setrlimit:164 setsid:157 setsockopt:208 settimeofday:170
        setuid:146 setxattr:5 shmat:196 shmctl:195 shmdt:197 shmget:194 shutdown:210 sigaltstack:132 socket:198
        socketpair:199 splice:76 statfs:43 statx:291 swapoff:225 swapon:224 symlinkat:36 sysinfo:179 syslog:116
        tee:77 tgkill:131 timer_create:107 timerfd_create:85 timerfd_gettime:87 timerfd_settime:86 times:153
        tkill:130 truncate:45 umask:166 umount2:39 uname:160 unlinkat:35 unshare:97 userfaultfd:282 utimensat:88
        vhangup:58 vmsplice:75 wait4:260 waitid:95 write:64 writev:66
    """,
}

NUMBERS: dict[str, dict[str, int]] = {
    machine: {name: int(number) for name, number in (item.split(":") for item in table.split())}
    for machine, table in _TABLES.items()
}


_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_WORD = 0xFFFFFFFF


@lru_cache(maxsize=1)
def filters() -> dict[str, bytes]:
    """Return the filters for this machine by name; empty if the kernel has no seccomp.

    ``fork_server``, ``program`` and ``tests_process``; ``program_among_files`` and ``tests_among_files`` where there
    is no separate file system; ``tests_without_signals`` where Landlock does not confine them;
    ``fork_server_connecting`` and ``program_connected`` for jails that cannot pass descriptors out.
    """
    policies = {
        "fork_server": FORK_SERVER,
        "program": PROGRAM,
        "program_among_files": PROGRAM_AMONG_FILES,
        "tests_process": TESTS,
        "tests_among_files": TESTS_AMONG_FILES,
        "tests_without_signals": TESTS_WITHOUT_SIGNALS,
        "fork_server_connecting": FORK_SERVER_CONNECTING,
        "program_connected": PROGRAM_CONNECTED,
    }
    machine = platform.machine()
    if not _kernel_has_seccomp() or machine not in NUMBERS:
        return {}
    return {name: assemble(policy, machine) for name, policy in policies.items()}


def _kernel_has_seccomp() -> bool:
    get_mode = 21
    return platform.system() == "Linux" and bool(ctypes.CDLL(None).prctl(get_mode, 0, 0, 0, 0) >= 0)


def assemble(policy: Policy, machine: str) -> bytes:
    """Return the filter of ``policy`` for ``machine`` (as `platform.machine` names it, a key of `NUMBERS`)."""
    numbers = NUMBERS[machine]
    program = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, ARCHITECTURES[machine], 1, 0),
        _instruction(_RETURN, KILL),
        _instruction(_LOAD, _NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [_instruction(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1), _instruction(_RETURN, KILL)]
    blocks: dict[int, list[Rule]] = {}
    for rule in policy.rules:
        if rule.name in numbers:
            blocks.setdefault(numbers[rule.name], []).append(rule)
    for number, rules in blocks.items():
        block = b"".join(map(_assemble_rule, rules))
        if rules[-1].conditions:
            block += _instruction(_RETURN, policy.default)
        program += [_instruction(_JUMP_EQUAL, number, 0, len(block) // 8), block]
    program.append(_instruction(_RETURN, policy.default))
    return b"".join(program)


def _assemble_rule(rule: Rule) -> bytes:
    """Return instructions that return the rule's action if all conditions hold, and else fall through."""
    tests: list[tuple[int, int, int]] = []  # offset of a word, mask, value
    rest = _instruction(_RETURN, rule.action)
    for condition in rule.conditions:
        offset = _ARGUMENTS_AT + 8 * condition.index
        if condition.differs:  # one differing word is enough
            step = _instruction(_LOAD, offset) + _instruction(_JUMP_EQUAL, condition.value & _WORD, 0, 2)
            step += _instruction(_LOAD, offset + 4)
            rest = step + _instruction(_JUMP_EQUAL, condition.value >> 32, len(rest) // 8, 0) + rest
            continue
        for shift, place in ((0, offset), (32, offset + 4)):  # both machines store the low word first
            mask = condition.mask >> shift & _WORD
            if mask:
                tests.append((place, mask, condition.value >> shift & _WORD))
    for place, mask, value in reversed(tests):
        step = _instruction(_LOAD, place) + (_instruction(_AND, mask) if mask != _WORD else b"")
        step += _instruction(_JUMP_EQUAL, value, 0, len(rest) // 8)
        rest = step + rest
    return rest


def _instruction(code: int, constant: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, constant)
