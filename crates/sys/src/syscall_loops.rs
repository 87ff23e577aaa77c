//! Loops of bare system calls, every one checked: a failing call is fast, and would look like a record.
//!
//! Each loop takes the number of calls (or pairs of calls), so the caller times a batch.

use std::ffi::CStr;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use rustix::pipe::PipeFlags;

use crate::kernels::{system_call, system_calls};
use crate::{Error, Result, check, check_code};

/// The result of a bare call: what it returned, or its error.
#[inline(always)]
fn check_result(result: isize) -> Result<isize> {
    if result < 0 { Err(Error::from_raw_os_error(-result as i32)) } else { Ok(result) }
}

/// That a bare call moved one byte.
#[inline(always)]
fn check_byte(result: isize) -> Result<()> {
    match check_result(result)? {
        1 => Ok(()),
        bytes => Err(wrong_length(bytes)),
    }
}

#[cold]
fn wrong_length(bytes: isize) -> Error {
    Error::other(format!("it moved {bytes} bytes of 1"))
}

/// `calls` bare `gettid` calls; the value of the last one.
#[inline(always)]
pub fn gettid_loop(calls: u64) -> i64 {
    // SAFETY: gettid takes no arguments, and cannot fail.
    unsafe { system_calls(libc::SYS_gettid, calls) as i64 }
}

/// `calls` calls of the C library's `getpid`, cached or not; the value of the last one.
#[inline(always)]
pub fn libc_getpid_loop(calls: u64) -> i64 {
    let mut id = 0;
    for _ in 0..calls.max(1) {
        // SAFETY: takes no pointers. The compiler does not know the function, so it makes every call.
        id = unsafe { libc::getpid() };
    }
    i64::from(id)
}

/// `calls` calls of the C library's `getppid`; the value of the last one.
#[inline(always)]
pub fn libc_getppid_loop(calls: u64) -> i64 {
    let mut id = 0;
    for _ in 0..calls.max(1) {
        // SAFETY: takes no pointers. The compiler does not know the function, so it makes every call.
        id = unsafe { libc::getppid() };
    }
    i64::from(id)
}

/// A clock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelClock {
    /// `CLOCK_MONOTONIC`: time since boot, slewed by NTP.
    Monotonic,
    /// `CLOCK_MONOTONIC_RAW`: the same, not slewed.
    MonotonicRaw,
    /// `CLOCK_MONOTONIC_COARSE`: the same as of the last timer tick.
    MonotonicCoarse,
    /// `CLOCK_THREAD_CPUTIME_ID`: CPU time of the calling thread.
    ThreadCpu,
}

impl KernelClock {
    fn id(self) -> libc::clockid_t {
        match self {
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::MonotonicRaw => libc::CLOCK_MONOTONIC_RAW,
            Self::MonotonicCoarse => libc::CLOCK_MONOTONIC_COARSE,
            Self::ThreadCpu => libc::CLOCK_THREAD_CPUTIME_ID,
        }
    }
}

/// `calls` bare `clock_gettime` calls, past the vDSO.
#[inline(always)]
pub fn clock_gettime_loop(clock: KernelClock, calls: u64) -> Result<()> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [clock.id() as usize, (&raw mut time) as usize, 0, 0, 0, 0];
    for _ in 0..calls {
        // SAFETY: the second argument points to a timespec that lives to the end of the loop.
        check_result(unsafe { system_call(libc::SYS_clock_gettime, arguments) })?;
    }
    Ok(())
}

/// `calls` calls of the C library's `clock_gettime`, which goes through the vDSO where it can.
#[inline(always)]
pub fn libc_clock_gettime_loop(clock: KernelClock, calls: u64) -> Result<()> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = clock.id();
    for _ in 0..calls {
        // SAFETY: the second argument points to a timespec that lives to the end of the loop.
        check(unsafe { libc::clock_gettime(clock, std::hint::black_box(&raw mut time)) })?;
    }
    Ok(())
}

/// `calls` reads of one byte.
#[inline(always)]
pub fn read_loop(file: BorrowedFd<'_>, calls: u64) -> Result<()> {
    let mut byte = 0u8;
    let (file, address) = (file.as_raw_fd() as usize, (&raw mut byte) as usize);
    for _ in 0..calls {
        // SAFETY: the second argument points to one writable byte that lives to the end of the loop.
        check_byte(unsafe { system_call(libc::SYS_read, [file, address, 1, 0, 0, 0]) })?;
    }
    Ok(())
}

/// Reads one byte at each of these offsets of a file (pread).
#[inline(always)]
pub fn pread_loop(file: BorrowedFd<'_>, offsets: impl Iterator<Item = u64>) -> Result<()> {
    let mut byte = 0u8;
    let (file, address) = (file.as_raw_fd() as usize, (&raw mut byte) as usize);
    for offset in offsets {
        // SAFETY: the second argument points to one writable byte that lives to the end of the loop.
        check_byte(unsafe { system_call(libc::SYS_pread64, [file, address, 1, offset as usize, 0, 0]) })?;
    }
    Ok(())
}

/// Seeks to each of these offsets of a file, without reading (lseek).
#[inline(always)]
pub fn lseek_loop(file: BorrowedFd<'_>, offsets: impl Iterator<Item = u64>) -> Result<()> {
    let file = file.as_raw_fd() as usize;
    for offset in offsets {
        // SAFETY: lseek takes no pointers.
        let position = check_result(unsafe {
            system_call(libc::SYS_lseek, [file, offset as usize, libc::SEEK_SET as usize, 0, 0, 0])
        })?;
        if position as u64 != offset {
            return Err(Error::other(format!("it seeked to {position} instead of {offset}")));
        }
    }
    Ok(())
}

/// `calls` writes of one byte.
#[inline(always)]
pub fn write_loop(file: BorrowedFd<'_>, calls: u64) -> Result<()> {
    let byte = 0u8;
    let (file, address) = (file.as_raw_fd() as usize, (&raw const byte) as usize);
    for _ in 0..calls {
        // SAFETY: the second argument points to one byte that lives to the end of the loop.
        check_byte(unsafe { system_call(libc::SYS_write, [file, address, 1, 0, 0, 0]) })?;
    }
    Ok(())
}

/// `calls` calls of stat by path (`newfstatat`, which stat(3) uses).
#[inline(always)]
pub fn stat_loop(path: &CStr, calls: u64) -> Result<()> {
    // SAFETY: an all-zero stat is valid; the call fills it.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [libc::AT_FDCWD as usize, path.as_ptr() as usize, (&raw mut status) as usize, 0, 0, 0];
    for _ in 0..calls {
        // SAFETY: path and status live to the end of the loop, and a stat is what the call fills.
        check_result(unsafe { system_call(libc::SYS_newfstatat, arguments) })?;
    }
    Ok(())
}

/// `calls` calls of fstat.
#[inline(always)]
pub fn fstat_loop(file: BorrowedFd<'_>, calls: u64) -> Result<()> {
    // SAFETY: an all-zero stat is valid; the call fills it.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [file.as_raw_fd() as usize, (&raw mut status) as usize, 0, 0, 0, 0];
    for _ in 0..calls {
        // SAFETY: the status lives to the end of the loop, and a stat is what the call fills.
        check_result(unsafe { system_call(libc::SYS_fstat, arguments) })?;
    }
    Ok(())
}

/// `pairs` times: opens a file for reading (`openat`) and closes it.
#[inline(always)]
pub fn open_close_loop(path: &CStr, pairs: u64) -> Result<()> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let open = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0];
    for _ in 0..pairs {
        // SAFETY: the path lives to the end of the loop; the descriptor closed is the one just opened.
        unsafe {
            let descriptor = check_result(system_call(libc::SYS_openat, open))? as usize;
            check_result(system_call(libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]))?;
        }
    }
    Ok(())
}

/// `pairs` times: maps `bytes` of anonymous private memory and unmaps them, without touching a page.
#[inline(always)]
pub fn mmap_munmap_loop(bytes: usize, pairs: u64) -> Result<()> {
    // SAFETY: nothing is done with a mapping.
    unsafe { map_loop(bytes, pairs, |_| {}) }
}

/// `pairs` times: maps `bytes` of anonymous private memory, writes one byte of it, and unmaps it.
#[inline(always)]
pub fn mmap_touch_munmap_loop(bytes: usize, pairs: u64) -> Result<()> {
    // SAFETY: a mapping has at least one writable byte.
    unsafe { map_loop(bytes, pairs, |address| address.write_volatile(1)) }
}

/// `pairs` times: maps `bytes` of anonymous private memory, uses them by their address, and unmaps them.
///
/// # Safety
/// `touch` must access nothing but these bytes, and only while it runs.
#[inline(always)]
unsafe fn map_loop(bytes: usize, pairs: u64, touch: impl Fn(*mut u8)) -> Result<()> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    let map = [0, bytes, protection, flags, usize::MAX, 0];
    for _ in 0..pairs {
        // SAFETY: a fresh mapping at an address of the kernel's choice; only that mapping is used and unmapped.
        unsafe {
            let address = check_result(system_call(libc::SYS_mmap, map))? as usize;
            touch(address as *mut u8);
            check_result(system_call(libc::SYS_munmap, [address, bytes, 0, 0, 0, 0]))?;
        }
    }
    Ok(())
}

/// `files` times: creates a file of this name in a directory, closes it, and removes it.
///
/// # Errors
/// Those of the calls: `EEXIST` where there is one.
#[inline(always)]
pub fn create_unlink_loop(directory: BorrowedFd<'_>, name: &CStr, files: u64) -> Result<()> {
    let (directory, name) = (directory.as_raw_fd() as usize, name.as_ptr() as usize);
    let flags = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    let create = [directory, name, flags, 0o600, 0, 0];
    for _ in 0..files {
        // SAFETY: the name lives to the end of the loop; the descriptor closed is the one just opened.
        unsafe {
            let opened = check_result(system_call(libc::SYS_openat, create))? as usize;
            check_result(system_call(libc::SYS_close, [opened, 0, 0, 0, 0, 0]))?;
            check_result(system_call(libc::SYS_unlinkat, [directory, name, 0, 0, 0, 0]))?;
        }
    }
    Ok(())
}

/// `calls` wakes of a futex of this process (FUTEX_PRIVATE_FLAG) for which nobody waits.
///
/// # Errors
/// Those of futex, and a waiter that was woken.
#[inline(always)]
pub fn futex_wake_loop(word: &AtomicU32, calls: u64) -> Result<()> {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    let wake = [word.as_ptr() as usize, operation, 1, 0, 0, 0];
    for _ in 0..calls {
        // SAFETY: the word is valid; the kernel reads no other argument of this operation.
        match check_result(unsafe { system_call(libc::SYS_futex, wake) })? {
            0 => {}
            woken => return Err(Error::other(format!("it woke {woken} waiters of a futex that has none"))),
        }
    }
    Ok(())
}

/// Descriptors that are never ready, for select.
#[derive(Debug)]
pub struct SelectSet {
    /// Keeps the descriptors open.
    _pipes: Vec<OwnedFd>,
    set: libc::fd_set,
    max_descriptor: i32,
}

impl SelectSet {
    /// `count` duplicates of the read end of an empty pipe.
    ///
    /// # Errors
    /// Those of pipe and dup; too many descriptors for a set (1024).
    pub fn new(count: usize) -> Result<Self> {
        let check_fits = |descriptor: usize| match descriptor < libc::FD_SETSIZE {
            true => Ok(()),
            false => Err(Error::other(format!("descriptor {descriptor} does not fit a set of {}", libc::FD_SETSIZE))),
        };
        check_fits(count)?;
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let copies: Vec<OwnedFd> = (0..count).map(|_| read.try_clone()).collect::<Result<_>>()?;
        let max_descriptor = copies.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(-1);
        check_fits(max_descriptor.max(0) as usize)?;
        // SAFETY: an all-zero set is the empty one, and every descriptor is below its size.
        let set = unsafe {
            let mut set: libc::fd_set = std::mem::zeroed();
            copies.iter().for_each(|copy| libc::FD_SET(copy.as_raw_fd(), &raw mut set));
            set
        };
        Ok(Self { _pipes: [read, write].into_iter().chain(copies).collect(), set, max_descriptor })
    }

    /// `calls` polls of all of them (`pselect6` with a zero time-out). The set is copied before each call, because the
    /// call clears it.
    #[inline(always)]
    pub fn select_loop(&self, calls: u64) -> Result<()> {
        let zero_timeout = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..calls {
            let mut set = self.set;
            let mut time = zero_timeout;
            let sets = [self.max_descriptor as usize + 1, (&raw mut set) as usize, 0, 0, (&raw mut time) as usize, 0];
            // SAFETY: set and time are valid for the call, and the set reaches beyond the highest descriptor.
            match check_result(unsafe { system_call(libc::SYS_pselect6, sets) })? {
                0 => {}
                ready => return Err(Error::other(format!("select found {ready} descriptors of an empty pipe ready"))),
            }
        }
        Ok(())
    }
}

/// Sleeps until CLOCK_MONOTONIC reaches `deadline` nanoseconds.
///
/// # Errors
/// Those of clock_nanosleep; `EINTR` if a signal ended it early.
pub fn sleep_until(deadline: u64) -> Result<()> {
    let time = libc::timespec { tv_sec: (deadline / 1_000_000_000) as i64, tv_nsec: (deadline % 1_000_000_000) as i64 };
    // SAFETY: the time is valid; an absolute sleep writes nothing to the fourth argument.
    check_code(unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, std::ptr::null_mut())
    })
}

/// How many nanoseconds the kernel may delay this thread's timers to coalesce them (PR_SET_TIMERSLACK); the default is
/// 50,000.
pub fn timer_slack() -> Result<u64> {
    Ok(rustix::thread::current_timer_slack()?)
}

/// Sets it.
pub fn set_timer_slack(nanoseconds: u64) -> Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(nanoseconds))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Seek;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU64, Ordering};

    static TRAP_COUNT: AtomicU64 = AtomicU64::new(0);

    extern "C" fn count(_: libc::c_int) {
        TRAP_COUNT.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `calls` in a thread in which seccomp traps every system call `number`; returns their count.
    fn syscall_entries<R: 'static>(number: libc::c_long, calls: fn() -> R) -> u64 {
        let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            libc::sock_filter {
                code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                jt: 0,
                jf: 1,
                k: number as u32,
            },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let before = TRAP_COUNT.load(Ordering::Relaxed);
        std::thread::spawn(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: a handler that only counts; a filter that lives through the call that copies it, and that holds
            // for this thread alone.
            unsafe {
                assert_ne!(libc::signal(libc::SIGSYS, count as extern "C" fn(libc::c_int) as usize), libc::SIG_ERR);
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                let status = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
                assert_eq!(status, 0, "{}", Error::last_os_error());
            }
            std::hint::black_box(calls());
        })
        .join()
        .unwrap();
        TRAP_COUNT.load(Ordering::Relaxed) - before
    }

    #[test]
    fn every_null_call_enters_the_kernel_once() {
        assert_eq!(syscall_entries(libc::SYS_getppid, || crate::kernels::null_system_calls(7)), 7);
        assert_eq!(syscall_entries(libc::SYS_gettid, || gettid_loop(11)), 11);
        assert_eq!(syscall_entries(libc::SYS_getppid, || libc_getppid_loop(3)), 3);
        // The library's clock uses the vDSO where there is one, without entering the kernel; ours never does.
        assert_eq!(
            syscall_entries(libc::SYS_clock_gettime, || clock_gettime_loop(KernelClock::Monotonic, 5).unwrap()),
            5
        );
        // A C library either calls the kernel every time or caches the first answer.
        let entries = syscall_entries(libc::SYS_getpid, || libc_getpid_loop(13));
        assert!(entries == 13 || entries <= 1, "{entries}");
    }

    #[test]
    fn ids_are_correct() {
        // SAFETY: takes no pointers.
        assert_eq!(gettid_loop(2), unsafe { libc::syscall(libc::SYS_gettid) });
        assert_eq!(libc_getpid_loop(2), i64::from(std::process::id()));
        assert_eq!(libc_getppid_loop(2), i64::from(std::os::unix::process::parent_id()));
    }

    #[test]
    fn failing_calls_are_errors() {
        let zero = File::open("/dev/zero").unwrap();
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        read_loop(zero.as_fd(), 3).unwrap();
        write_loop(null.as_fd(), 3).unwrap();
        fstat_loop(null.as_fd(), 3).unwrap();
        stat_loop(c"/dev/null", 3).unwrap();
        open_close_loop(c"/dev/null", 3).unwrap();
        mmap_munmap_loop(64 << 10, 3).unwrap();
        for clock in
            [KernelClock::Monotonic, KernelClock::MonotonicRaw, KernelClock::MonotonicCoarse, KernelClock::ThreadCpu]
        {
            clock_gettime_loop(clock, 3).unwrap();
            libc_clock_gettime_loop(clock, 3).unwrap();
        }
        assert_eq!(read_loop(null.as_fd(), 1).unwrap_err().to_string(), "it moved 0 bytes of 1");
        let file = crate::mapping::memory_file().unwrap();
        file.set_len(3).unwrap();
        pread_loop(file.as_fd(), 0..3).unwrap();
        lseek_loop(file.as_fd(), [2, 0, 1].into_iter()).unwrap();
        assert_eq!((&file).stream_position().unwrap(), 1);
        assert_eq!(pread_loop(file.as_fd(), 2..4).unwrap_err().to_string(), "it moved 0 bytes of 1");
        assert_eq!(lseek_loop(file.as_fd(), std::iter::once(u64::MAX)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(write_loop(zero.as_fd(), 1).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(stat_loop(c"/nowhere", 1).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(open_close_loop(c"/nowhere", 1).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(mmap_munmap_loop(0, 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        mmap_touch_munmap_loop(64 << 10, 3).unwrap();
        assert_eq!(mmap_touch_munmap_loop(0, 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        futex_wake_loop(&AtomicU32::new(0), 3).unwrap();
    }

    #[test]
    fn created_files_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let directory = File::open(root.path()).unwrap();
        create_unlink_loop(directory.as_fd(), c"file", 3).unwrap();
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        File::create(root.path().join("file")).unwrap();
        let error = create_unlink_loop(directory.as_fd(), c"file", 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
    }

    #[test]
    fn each_touched_mapping_is_a_fault() {
        let faults = || crate::usage::read_usage(crate::usage::UsageScope::Thread).minor_faults;
        let before = faults();
        mmap_touch_munmap_loop(64 << 10, 50).unwrap();
        assert!(faults() - before >= 50);
    }

    #[test]
    fn open_and_map_loops_leak_nothing() {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        open_close_loop(c"/dev/null", 10_000).unwrap();
        for _ in 0..10 {
            SelectSet::new(100).unwrap();
        }
        // Other tests of this process open some hundred of their own meanwhile.
        assert!(descriptors() < before + 900);
        // Far more than the largest number of mappings that a process may have (65,530 by default).
        mmap_munmap_loop(64 << 10, 100_000).unwrap();
    }

    #[test]
    fn select_polls_given_descriptors() {
        let select_set = SelectSet::new(10).unwrap();
        select_set.select_loop(3).unwrap();
        drop(select_set);
        assert!(SelectSet::new(5000).is_err());
    }

    #[test]
    fn sleep_ends_after_deadline() {
        std::thread::spawn(|| {
            set_timer_slack(1).unwrap();
            assert_eq!(timer_slack().unwrap(), 1);
            let deadline = crate::clock::monotonic() + 1_000_000;
            sleep_until(deadline).unwrap();
            assert!(crate::clock::monotonic() >= deadline);
        })
        .join()
        .unwrap();
    }
}
