//! System calls, signals and timers.

use crate::{Axis, AxisScale, Canaries, HeadlineSamples, Metric, Overhead, SampleTags};

use crate::catalogue::axis_words::words;

words! {
    /// A system call that does next to nothing, and how it is made.
    pub enum NullCall: "call", "system call" {
        /// getppid by the bare syscall instruction.
        Getppid = "getppid",
        /// gettid by the bare syscall instruction.
        Gettid = "gettid",
        /// The C library's getppid.
        LibraryGetppid = "libc_getppid",
        /// The C library's getpid, which some libraries cache.
        LibraryGetpid = "libc_getpid",
    }
}

/// File descriptors that one call watches.
pub const DESCRIPTORS: Axis = Axis::new("descriptors", "descriptors watched", AxisScale::Logarithmic);

/// How long a timer may be delayed to coalesce it with others.
pub const TIMER_SLACK: Axis = Axis::new("slack", "timer slack, ns", AxisScale::Logarithmic);

/// A call timed in batches; kernel entry is most of it. All of it is done from the first caches, in core cycles: between states of the
/// frequency 3.5 % apart its time moved by 0.83 to 1.16 of what the chain's did, and the null call's by 0.98 to 1.02.
const fn call_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).overhead(Overhead::ClockPairAndLoop).headline(HeadlineSamples::CycleNormalised)
}

/// A system call that does next to nothing.
pub static SYSCALL_NULL: Metric =
    Metric::duration("os.syscall.null", "A null system call, from user mode to the kernel and back")
        .with_axes([NullCall::AXIS])
        .overhead(Overhead::ClockPairAndLoop)
        .headline(HeadlineSamples::CycleNormalised)
        .baseline();

/// A read of a byte.
pub static SYSCALL_READ: Metric = call_metric("os.syscall.read", "A one-byte read from /dev/zero");

/// A write of a byte.
pub static SYSCALL_WRITE: Metric = call_metric("os.syscall.write", "A one-byte write to /dev/null");

/// A file's status by its path.
pub static SYSCALL_STAT: Metric = call_metric("os.syscall.stat", "stat of /dev/null by path");

/// An open file's status.
pub static SYSCALL_FSTAT: Metric = call_metric("os.syscall.fstat", "fstat of an open /dev/null");

/// Opening and closing a file.
pub static SYSCALL_OPEN_CLOSE: Metric =
    call_metric("os.syscall.open_close", "open of /dev/null for reading, and close");

/// Watching descriptors.
pub static SYSCALL_SELECT: Metric =
    call_metric("os.syscall.select", "A poll without waiting of descriptors of which none is ready")
        .with_axes([DESCRIPTORS]);

/// Mapping and unmapping memory.
pub static SYSCALL_MMAP_MUNMAP: Metric =
    call_metric("os.syscall.mmap_munmap", "mmap of 64 KiB of anonymous memory, and munmap untouched");

/// Installing a signal handler.
pub static SIGNAL_INSTALL: Metric = call_metric("os.signal.install", "A sigaction that installs a handler");

/// A signal to oneself.
pub static SIGNAL_DELIVER: Metric =
    call_metric("os.signal.deliver", "A signal to the thread itself: the sending call, the handler, and the return");

/// How late a sleep ends.
pub static TIMER_WAKEUP: Metric = Metric::duration("os.timer.wakeup", "How late a sleep of one millisecond ends")
    .with_axes([TIMER_SLACK])
    .overhead(Overhead::None)
    .headline(HeadlineSamples::AsFound)
    .canaries(Canaries::NONE)
    .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
    .not_in_cycles();
