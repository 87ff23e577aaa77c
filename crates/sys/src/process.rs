//! Creating and reaping processes: fork, vfork, posix_spawn, fork and execve.
//!
//! Nothing here allocates between the start of a child and its end, and the child of a timed fork touches only its
//! stack and one shared cell; see [`crate::fork_image`], which can exclude everything else.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::Access;
use rustix::process::{Pid, Resource, Rlimit, WaitId, WaitIdOptions};

use crate::clock::{Clock, ClockGettime, nanoseconds_by};
use crate::shared_memory::Shared;
use crate::thread_spawn::process_error;
use crate::{Error, Result, check_code};

/// Whether a [`SmallImage`](crate::fork_image::SmallImage) is in force, so that forked children lack most of this process's memory.
pub(crate) static SMALL_IMAGE: AtomicBool = AtomicBool::new(false);

/// A child of this process. Dropped, it is waited for.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
}

impl Child {
    /// Waits for its end and reaps it.
    ///
    /// # Errors
    /// Those of waitpid: `ECHILD` where SIGCHLD is ignored.
    #[inline(always)]
    pub fn wait(self) -> Result<ExitKind> {
        reap(self.into_id())
    }

    /// Whether it has ended; it is still to be waited for.
    pub fn has_ended(&self) -> bool {
        has_ended(self.pid)
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&self) {
        // SAFETY: takes no pointers; the child is not reaped, so the number is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Its number.
    #[cfg(test)]
    pub(crate) fn id(&self) -> libc::pid_t {
        self.pid
    }

    /// Its number; the caller must reap it.
    pub(crate) fn into_id(self) -> libc::pid_t {
        let pid = self.pid;
        std::mem::forget(self);
        pid
    }

    /// Waits for its end; an end other than status 0 is an error.
    ///
    /// # Errors
    /// Those of waitpid, and any end but `exit(0)`.
    #[inline(always)]
    pub fn wait_for_success(self) -> Result<()> {
        match self.wait()? {
            ExitKind::Exited(0) => Ok(()),
            ExitKind::Exited(status) => Err(Error::other(format!("a child that should succeed exited with {status}"))),
            ExitKind::Signalled(signal) => Err(Error::other(format!("a child was killed by signal {signal}"))),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = reap(self.pid);
    }
}

/// Whether a child has ended, which is left to be reaped.
pub(crate) fn has_ended(pid: libc::pid_t) -> bool {
    peek_exit(pid).map_or(true, |exit| exit.is_some())
}

/// How a child has ended, which is left to be reaped; `None` while it runs.
pub(crate) fn peek_exit(pid: libc::pid_t) -> Result<Option<ExitKind>> {
    let pid = Pid::from_raw(pid).ok_or_else(|| Error::from_raw_os_error(libc::ECHILD))?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(pid), options)?.map(|exit| match exit.exit_status() {
        Some(status) => ExitKind::Exited(status),
        None => ExitKind::Signalled(exit.terminating_signal().unwrap_or(0)),
    }))
}

#[inline(always)]
fn reap(pid: libc::pid_t) -> Result<ExitKind> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call; the process is a child of ours that nobody else waits for.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            break;
        }
        let error = Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if libc::WIFSIGNALED(status) {
        return Ok(ExitKind::Signalled(libc::WTERMSIG(status)));
    }
    Ok(ExitKind::Exited(libc::WEXITSTATUS(status)))
}

/// The child that a fork returned to its parent, or why there is none: `EAGAIN` with the limit of processes.
#[inline(always)]
fn fork_result(pid: libc::pid_t) -> Result<Child> {
    if pid == -1 { Err(process_error(Error::last_os_error())) } else { Ok(Child { pid }) }
}

/// A number in memory that a child shares with its parent.
#[derive(Debug)]
pub struct SharedCell(Shared<AtomicU64>);

impl SharedCell {
    /// A cell that holds 0.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn new() -> Result<Self> {
        Shared::new().map(Self)
    }

    /// The value last stored by any process.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores a value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

/// Forks a child that stores its first reading of `clock` into `cell`, and exits with status 0.
///
/// # Errors
/// Those of fork: `EAGAIN` at the limit of processes, `ENOMEM`. A scripted clock, which a child cannot read.
#[inline(never)]
#[unsafe(link_section = "kelvin_child")]
pub fn fork_and_stamp(clock: Clock, cell: &SharedCell) -> Result<Child> {
    if let Clock::Scripted(_) = clock {
        return Err(Error::other("a scripted clock lives in the parent's memory: a child cannot read it"));
    }
    let cell = std::ptr::from_ref::<AtomicU64>(&cell.0);
    // SAFETY: the child executes only the lines below: a reading of the clock, a store to shared memory, `_exit`. All
    // of it is async-signal-safe and touches nothing but its stack, its code, the C library and the shared page.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let stamp = match clock {
            Clock::MonotonicRaw => {
                // SAFETY: a constant of the program, which is clock_gettime.
                unsafe {
                    nanoseconds_by(
                        std::ptr::read_volatile(&raw const CHILD_CALLS.clock_gettime),
                        libc::CLOCK_MONOTONIC_RAW,
                    )
                }
            }
            _ => clock.stop(),
        };
        // SAFETY: the page is shared with the parent, which keeps it mapped until after the fork.
        unsafe {
            (*cell).store(stamp, Ordering::Release);
            exit_child(0);
        }
    }
    fork_result(pid)
}

/// Forks a child that exits at once with status 0.
///
/// # Errors
/// Those of fork: `EAGAIN` at the limit of processes, `ENOMEM`.
#[inline(never)]
#[unsafe(link_section = "kelvin_child")]
pub fn fork_and_exit() -> Result<Child> {
    // SAFETY: the child only calls `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child without running anything of ours.
        unsafe { exit_child(0) };
    }
    fork_result(pid)
}

/// Forks a child that does `work` and exits with the status that it returns. It is killed when its parent ends.
///
/// The child must not rely on other threads of this process: it has only its own. Memory that they were changing is
/// as it was, and locks that they held stay held; `work` that needs neither is the caller's promise to itself, broken
/// by a child that hangs, never by memory errors.
///
/// # Errors
/// Those of fork; refused while a [`SmallImage`](crate::fork_image::SmallImage) is in force, because the child would lack its heap.
pub fn fork_worker(work: impl FnOnce() -> u8) -> Result<Child> {
    if SMALL_IMAGE.load(Ordering::Acquire) {
        return Err(Error::other("a small image is in force: a forked child has no heap to work with"));
    }
    let parent = std::process::id();
    // No other thread is changing the heap that the child gets.
    #[cfg(any(test, target_env = "musl"))]
    let heap = crate::heap::lock();
    // SAFETY: all memory of this process is copied, so what `work` borrows exists in the child; it never returns into
    // the caller's frames, because `ExitOnDrop` ends it on a panic too.
    let pid = unsafe { libc::fork() };
    #[cfg(any(test, target_env = "musl"))]
    drop(heap);
    if pid == 0 {
        let _guard = ExitOnDrop;
        die_with_parent(parent);
        let status = work();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(status)) };
    }
    fork_result(pid)
}

/// Like `fork_worker`, in a child that has no descriptors but the standard ones and these: it keeps no file, pipe or connection of others open.
///
/// # Errors
/// As [`fork_worker`].
pub fn fork_worker_with(open: &[BorrowedFd<'_>], work: impl FnOnce() -> u8) -> Result<Child> {
    let mut open: Vec<libc::c_uint> = open.iter().map(|fd| fd.as_raw_fd() as libc::c_uint).collect();
    open.sort_unstable();
    fork_worker(|| {
        let mut first = libc::STDERR_FILENO as libc::c_uint + 1;
        for next in open.into_iter().chain([libc::c_uint::MAX]) {
            // SAFETY: takes no pointers. What owns these descriptors is the parent's: of its copies here, `work` uses none, and the
            // child runs no destructors of them.
            if next > first && unsafe { libc::syscall(libc::SYS_close_range, first, next - 1, 0) } != 0 {
                return 1;
            }
            first = next.saturating_add(1).max(first);
        }
        work()
    })
}

/// Ends a forked child that unwinds.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        // SAFETY: ends the process without running anything of ours.
        unsafe { libc::_exit(101) };
    }
}

/// The functions of the C library that children call while a [`SmallImage`](crate::fork_image::SmallImage) is in force. They are called through
/// this table, so that a page of the program's data is enough: the linker's own tables spread over many.
#[repr(C, align(32))]
struct ChildCalls {
    exit: unsafe extern "C" fn(libc::c_int) -> !,
    clock_gettime: ClockGettime,
    execve: Execve,
}

type Execve =
    unsafe extern "C" fn(*const libc::c_char, *const *const libc::c_char, *const *const libc::c_char) -> libc::c_int;

/// Among the data that is written to, which is small and stays as a whole: in the larger data that is only relocated its page would split what
/// fork leaves out in two.
#[unsafe(link_section = ".data.kelvin_child")]
static CHILD_CALLS: ChildCalls =
    ChildCalls { exit: libc::_exit, clock_gettime: libc::clock_gettime, execve: libc::execve };

/// The addresses of that table.
pub(crate) fn child_calls() -> std::ops::Range<usize> {
    let start = &raw const CHILD_CALLS as usize;
    start..start + size_of::<ChildCalls>()
}

/// Ends a child.
///
/// # Safety
/// As for `_exit`: the process ends without running anything of its own.
#[inline(always)]
unsafe fn exit_child(status: libc::c_int) -> ! {
    // SAFETY: a constant of the program, read so that the compiler does not call the function in another way; the rest is the caller's
    // promise.
    unsafe { std::ptr::read_volatile(&raw const CHILD_CALLS.exit)(status) }
}

/// First addresses of the routines whose children run this program's code while a [`SmallImage`](crate::fork_image::SmallImage) is in force. They
/// are in a section of their own, which linkers place behind all other code: they share their pages with little else, and what fork leaves
/// out of the code is one part.
pub(crate) fn child_routines() -> [usize; 3] {
    [
        fork_and_stamp as *const () as usize,
        fork_and_exit as *const () as usize,
        SpawnProgram::fork_and_execute as *const () as usize,
    ]
}

/// Creates a child by vfork that exits at once with status 0: it borrows this process's memory, and this thread sleeps
/// meanwhile.
///
/// The child never leaves the assembly and touches no memory, so that nothing returns twice.
///
/// # Errors
/// Those of clone: `EAGAIN` at the limit of processes, `ENOMEM`.
#[inline(always)]
pub fn vfork_and_exit() -> Result<Child> {
    child_of_raw(exit_in_child_raw(VFORK_CALL))
}

/// Creates a child by the bare call behind fork that exits at once with status 0. The C library's fork takes locks in a process with
/// several threads, so that they would wait for each other before the kernel is entered.
///
/// The child never leaves the assembly and touches no memory.
///
/// # Errors
/// Those of clone: `EAGAIN` at the limit of processes, `ENOMEM`.
#[inline(always)]
pub fn bare_fork_and_exit() -> Result<Child> {
    child_of_raw(exit_in_child_raw(FORK_CALL))
}

/// The child of a raw call, which returned its id or a negated errno.
#[inline(always)]
fn child_of_raw(result: i64) -> Result<Child> {
    if result < 0 {
        return Err(process_error(Error::from_raw_os_error(-result as i32)));
    }
    Ok(Child { pid: result as libc::pid_t })
}

/// The calls that make a child, by number.
#[cfg(target_arch = "x86_64")]
const VFORK_CALL: i64 = libc::SYS_vfork;
#[cfg(target_arch = "x86_64")]
const FORK_CALL: i64 = libc::SYS_fork;

/// The raw call of this number, of which the child exits: the child's id, or a negated errno.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn exit_in_child_raw(call: i64) -> i64 {
    let result: i64;
    // SAFETY: the child runs on the registers that it was given and ends within these lines; it writes no memory. The
    // parent goes on after them with only rax, rcx and r11 changed.
    unsafe {
        std::arch::asm!(
            "syscall", "test rax, rax", "jnz 2f", "xor edi, edi", "mov eax, {exit}", "syscall", "ud2", "2:",
            exit = const libc::SYS_exit_group, inout("rax") call => result,
            out("rdi") _, out("rcx") _, out("r11") _, options(nostack)
        );
    }
    result
}

/// The flags of clone for which vfork and fork stand: there are no such calls on this architecture.
#[cfg(target_arch = "aarch64")]
const VFORK_CALL: i64 = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as i64;
#[cfg(target_arch = "aarch64")]
const FORK_CALL: i64 = libc::SIGCHLD as i64;

/// The raw clone with these flags, of which the child exits: the child's id, or a negated errno.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn exit_in_child_raw(flags: i64) -> i64 {
    let result: i64;
    // SAFETY: the child runs on the registers that it was given and ends within these lines; it writes no memory. The
    // parent goes on after them with only x0 and x8 changed.
    unsafe {
        std::arch::asm!(
            "svc #0", "cbnz x0, 2f", "mov x8, {exit}", "svc #0", "brk #1", "2:",
            exit = const libc::SYS_exit_group, inout("x0") flags => result, inout("x8") libc::SYS_clone => _,
            in("x1") 0, in("x2") 0, in("x3") 0, in("x4") 0, options(nostack)
        );
    }
    result
}

/// A program with its arguments and an empty environment, ready for execve without any allocation.
#[derive(Clone, Copy, Debug)]
pub struct SpawnProgram {
    path: &'static CStr,
    arguments: [Option<&'static CStr>; 2],
}

/// Arguments, the program's own name, and the null at the end.
type ArgVector = [*const libc::c_char; 4];

impl SpawnProgram {
    /// A program with up to two arguments; `O_PATH` is not searched.
    pub const fn new(path: &'static CStr, arguments: [Option<&'static CStr>; 2]) -> Self {
        Self { path, arguments }
    }

    /// Its path.
    pub fn path(&self) -> &'static CStr {
        self.path
    }

    /// Whether this process may execute it.
    pub fn is_executable(&self) -> bool {
        rustix::fs::access(self.path, Access::EXEC_OK).is_ok()
    }

    fn vector(&self) -> ArgVector {
        let argument = |index: usize| self.arguments[index].map_or(std::ptr::null(), CStr::as_ptr);
        [self.path.as_ptr(), argument(0), argument(1), std::ptr::null()]
    }

    /// Forks a child that executes the program; status 127 means that execve failed.
    ///
    /// # Errors
    /// Those of fork.
    #[inline(never)]
    #[unsafe(link_section = "kelvin_child")]
    pub fn fork_and_execute(&self) -> Result<Child> {
        // On the stack before the fork, against the optimiser: the program itself may lie on the heap.
        let (path, arguments, environment) =
            std::hint::black_box((self.path.as_ptr(), self.vector(), [std::ptr::null()]));
        // SAFETY: the child only calls execve and `_exit`; the vectors are on the stack, which it has a copy of, and
        // the strings are constants of the program.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; both vectors end with a null pointer.
            unsafe {
                std::ptr::read_volatile(&raw const CHILD_CALLS.execve)(path, arguments.as_ptr(), environment.as_ptr());
                exit_child(127);
            }
        }
        fork_result(pid)
    }

    /// Starts the program by posix_spawn, without attributes or file actions.
    ///
    /// # Errors
    /// Those of posix_spawn, execve's among them.
    #[inline(always)]
    pub fn spawn(&self) -> Result<Child> {
        let (arguments, environment) = (self.vector(), [std::ptr::null::<libc::c_char>()]);
        let mut pid = 0;
        // SAFETY: path and vectors are valid and end as they must; posix_spawn changes neither, although its
        // signature allows it.
        let error = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                self.path.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                arguments.as_ptr().cast(),
                environment.as_ptr().cast(),
            )
        };
        check_code(error).map_err(process_error)?;
        Ok(Child { pid })
    }
}

/// Raises this process's limit of open files to the maximum (RLIMIT_NOFILE): shells and services start with 1,024,
/// because of select(2). Returns it.
pub fn raise_open_file_limit() -> Result<u64> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Ends the process at once, with this exit status: nothing that a library has registered for the end of the process is run, which may wait
/// for another process. What is buffered is lost.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: takes no pointers, and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Asks the kernel to kill the calling process when its parent dies, and exits if the parent is already dead.
pub fn die_with_parent(parent: u32) {
    end_with_parent_by(libc::SIGKILL, parent);
}

/// Asks the kernel to send the calling process this signal when its parent dies, and exits if the parent is already dead.
pub(crate) fn end_with_parent_by(signal: libc::c_int, parent: u32) {
    // SAFETY: prctl and getppid take no pointers; `_exit` ends the process without running anything of ours.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
        if libc::getppid() as u32 != parent {
            libc::_exit(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: &CStr = c"/bin/sh";

    fn exits_with_five() -> SpawnProgram {
        SpawnProgram::new(SHELL, [Some(c"-c"), Some(c"exit 5")])
    }

    #[test]
    fn forked_child_stamps_shared_cell() {
        let cell = SharedCell::new().unwrap();
        let before = Clock::MonotonicRaw.start();
        fork_and_stamp(Clock::MonotonicRaw, &cell).unwrap().wait_for_success().unwrap();
        let after = Clock::MonotonicRaw.stop();
        assert!((before..=after).contains(&cell.get()), "{before} {} {after}", cell.get());
    }

    #[test]
    fn exit_now_has_its_status() {
        let child = fork_worker(|| exit_now(7)).unwrap();
        assert_eq!(child.wait().unwrap(), ExitKind::Exited(7));
    }

    #[test]
    fn every_kind_of_process_is_reaped() {
        for fork in [fork_and_exit, vfork_and_exit, bare_fork_and_exit] {
            let child = fork().unwrap();
            let pid = child.pid;
            assert_ne!(pid as u32, std::process::id());
            assert_eq!(child.wait().unwrap(), ExitKind::Exited(0));
            assert!(!std::path::Path::new(&format!("/proc/{pid}/stat")).exists());
        }
    }

    #[test]
    fn fork_and_spawn_pass_arguments() {
        assert_eq!(exits_with_five().fork_and_execute().unwrap().wait().unwrap(), ExitKind::Exited(5));
        assert_eq!(exits_with_five().spawn().unwrap().wait().unwrap(), ExitKind::Exited(5));
    }

    #[test]
    fn missing_program_is_an_error() {
        let missing_program = SpawnProgram::new(c"/no/such/program", [None, None]);
        assert!(!missing_program.is_executable());
        assert_eq!(missing_program.fork_and_execute().unwrap().wait().unwrap(), ExitKind::Exited(127));
        assert_eq!(missing_program.spawn().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn worker_status_or_panic_is_returned() {
        assert_eq!(fork_worker(|| 9).unwrap().wait().unwrap(), ExitKind::Exited(9));
        let unwinding = fork_worker(|| std::panic::resume_unwind(Box::new("quietly")));
        assert_eq!(unwinding.unwrap().wait().unwrap(), ExitKind::Exited(101));
    }

    #[test]
    fn child_keeps_only_given_descriptors() {
        use std::io::{Read, Write};
        use std::os::fd::AsFd;
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (mut ends, other_end) = std::io::pipe().unwrap();
        let (wait, end) = std::io::pipe().unwrap();
        let kept_descriptors = [wait.as_fd(), writer.as_fd()];
        let child = fork_worker_with(&kept_descriptors, || {
            let is_written = (&writer).write_all(b"x").is_ok();
            u8::from(!(is_written && matches!((&wait).read(&mut [0]), Ok(0))))
        });
        let child = child.unwrap();
        reader.read_exact(&mut [0]).unwrap();
        // It has no copy of this one, though it still waits for the end of another, of which it has none either.
        drop(other_end);
        assert_eq!(ends.read(&mut [0]).unwrap(), 0);
        assert!(!child.has_ended());
        drop(end);
        assert_eq!(child.wait().unwrap(), ExitKind::Exited(0));
    }

    #[test]
    fn killed_child_has_ended_before_wait() {
        let child = fork_worker(|| {
            loop {
                std::thread::park()
            }
        })
        .unwrap();
        assert!(!child.has_ended());
        child.kill();
        while !child.has_ended() {}
        assert_eq!(child.wait().unwrap(), ExitKind::Signalled(libc::SIGKILL));
    }

    #[test]
    fn failure_error_has_status() {
        let error = exits_with_five().spawn().unwrap().wait_for_success().unwrap_err();
        assert_eq!(error.to_string(), "a child that should succeed exited with 5");
    }
}
