//! System calls, signals and timers.

use crate::{Axis, AxisScale, HeadlineSamples, Metric, Overhead, SampleTags};

use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics};

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
const fn call_metric(id: &'static str) -> Metric {
    duration(id).overhead(Overhead::ClockPairAndLoop).headline(HeadlineSamples::CycleNormalised)
}

metrics! {
    /// The metrics of system calls, in the order of reports.
    pub const SYSCALL_METRICS = [
        /// A null system call, from user mode to the kernel and back
        SYSCALL_NULL = call_metric("os.syscall.null").with_axes([NullCall::AXIS]).baseline(),
        /// A one-byte read from /dev/zero
        SYSCALL_READ = call_metric("os.syscall.read"),
        /// A one-byte write to /dev/null
        SYSCALL_WRITE = call_metric("os.syscall.write"),
        /// stat of /dev/null by path
        SYSCALL_STAT = call_metric("os.syscall.stat"),
        /// fstat of an open /dev/null
        SYSCALL_FSTAT = call_metric("os.syscall.fstat"),
        /// open of /dev/null for reading, and close
        SYSCALL_OPEN_CLOSE = call_metric("os.syscall.open_close"),
        /// A poll without waiting of descriptors of which none is ready
        SYSCALL_SELECT = call_metric("os.syscall.select").with_axes([DESCRIPTORS]),
        /// mmap of 64 KiB of anonymous memory, and munmap untouched
        SYSCALL_MMAP_MUNMAP = call_metric("os.syscall.mmap_munmap"),
    ];
}

metrics! {
    /// The metrics of signals and timers, in the order of reports.
    pub const SIGNAL_METRICS = [
        /// A sigaction that installs a handler
        SIGNAL_INSTALL = call_metric("os.signal.install"),
        /// A signal to the thread itself: the sending call, the handler, and the return
        SIGNAL_DELIVER = call_metric("os.signal.deliver"),
        /// How late a sleep of one millisecond ends
        TIMER_WAKEUP = duration("os.timer.wakeup")
            .with_axes([TIMER_SLACK])
            .overhead(Overhead::None)
            .unguarded()
            .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
            .not_in_cycles(),
    ];
}
