//! Whole transfers of files between two processes, by the methods of either end.

use crate::{Axis, AxisScale, Better, Canaries, Case, HeadlineSamples, Metric, Need, Overhead, SampleTags, Unit};

use crate::catalogue::axis_words::words;

/// The metrics of files that are in memory, in the order of reports.
pub const CACHED_METRICS: &[&Metric] = &[
    &TIME,
    &RATE,
    &SENDER_CPU,
    &RECEIVER_CPU,
    &SENDER_CALLS,
    &RECEIVER_CALLS,
    &SENDER_FAULTS,
    &RECEIVER_FAULTS,
    &SENDER_SWITCHES,
    &RECEIVER_SWITCHES,
    &SENDER_DEVICE,
    &RECEIVER_DEVICE,
];

/// The metrics of files that are not.
pub const COLD_METRICS: &[&Metric] = &[&COLD_TIME, &COLD_DEVICE];

words! {
    /// The files of a transfer.
    pub enum TransferFiles: "files", "files" {
        /// 10 files, 24,114 bytes together.
        Small = "small",
        /// 1 file of 12,022,885 bytes.
        One = "one",
        /// 2 files, 364,344,508 bytes together.
        Large = "large",
    }
}

words! {
    /// How the sender gets bytes from a file into a socket.
    pub enum SenderMethod: "sender", "sender's method" {
        /// pread into a buffer, and send from it.
        ReadWrite = "rw",
        /// The file mapped a window at a time, and sent from there.
        Mmap = "mmap",
        /// sendfile from the file to the socket.
        Sendfile = "sendfile",
        /// splice from the file into a pipe, and from there to the socket.
        Splice = "splice",
        /// pread into a buffer, and send from it with MSG_ZEROCOPY.
        ZeroCopy = "zerocopy",
        /// Several reads and sends in flight in a ring.
        Uring = "uring",
        /// Through a socket in the kernel: pread into a buffer, and write to the device of kelvin's module.
        KernelReadWrite = "kernel-rw",
        /// Through a socket in the kernel: the file mapped a window at a time, and copied into the device's window, which is sent.
        KernelMmap = "kernel-mmap",
    }
}

words! {
    /// How the receiver gets bytes from a socket into a file.
    pub enum ReceiverMethod: "receiver", "receiver's method" {
        /// recv into a buffer, and pwrite from it.
        ReadWrite = "rw",
        /// recv into the file, mapped a window at a time.
        Mmap = "mmap",
        /// splice from the socket into a pipe, and from there to the file.
        Splice = "splice",
        /// Several receives and writes in flight in a ring.
        Uring = "uring",
        /// Through a socket in the kernel: read from the device of kelvin's module into a buffer, and pwrite.
        KernelReadWrite = "kernel-rw",
        /// Through a socket in the kernel: received into the device's window, and copied into the file, mapped a window at a time.
        KernelMmap = "kernel-mmap",
    }
}

words! {
    /// How long a connection lasts.
    pub enum ConnectionPolicy: "connection", "connection" {
        /// One for each file.
        PerFile = "per-file",
        /// One for all files.
        Persistent = "persistent",
    }
}

words! {
    /// How a call waits for the socket, at both ends.
    pub enum WaitMode: "mode", "mode" {
        /// In the call itself.
        Blocking = "blocking",
        /// It does not; epoll does.
        Nonblocking = "nonblocking",
        /// It does not; a signal says when the socket is ready (O_ASYNC).
        Signal = "signal",
        /// As a request of a ring.
        Uring = "uring",
        /// In the call itself, though O_ASYNC is set on the socket, which is in the kernel: the published "asynchronous".
        Fasync = "fasync",
    }
}

words! {
    /// What the next file waits for.
    pub enum ReplyPolicy: "reply", "receiver's reply" {
        /// Nothing.
        None = "none",
        /// The receiver's reply to the one before.
        PerFile = "per-file",
    }
}

impl SenderMethod {
    /// The methods whose socket is the process's own.
    pub const USER_SPACE: [Self; 6] =
        [Self::ReadWrite, Self::Mmap, Self::Sendfile, Self::Splice, Self::ZeroCopy, Self::Uring];

    /// Whether a call moves a window.
    pub const fn is_mapping(self) -> bool {
        matches!(self, Self::Mmap | Self::KernelMmap)
    }
}

impl ReceiverMethod {
    /// The methods whose socket is the process's own.
    pub const USER_SPACE: [Self; 4] = [Self::ReadWrite, Self::Mmap, Self::Splice, Self::Uring];

    /// Whether a call moves a window.
    pub const fn is_mapping(self) -> bool {
        matches!(self, Self::Mmap | Self::KernelMmap)
    }
}

/// Whether an end of a cell is in the kernel.
pub fn has_kernel_end(case: &Case) -> bool {
    let sends = matches!(SenderMethod::of(case), Some(SenderMethod::KernelReadWrite | SenderMethod::KernelMmap));
    sends || matches!(ReceiverMethod::of(case), Some(ReceiverMethod::KernelReadWrite | ReceiverMethod::KernelMmap))
}

/// A cell with both ends in the kernel in place of its own, which are `rw` or `mmap`; `None` of another one.
pub fn with_kernel_ends(case: &Case) -> Option<Case> {
    let sender = match SenderMethod::of(case)? {
        SenderMethod::ReadWrite => SenderMethod::KernelReadWrite,
        SenderMethod::Mmap => SenderMethod::KernelMmap,
        _ => return None,
    };
    let receiver = match ReceiverMethod::of(case)? {
        ReceiverMethod::ReadWrite => ReceiverMethod::KernelReadWrite,
        ReceiverMethod::Mmap => ReceiverMethod::KernelMmap,
        _ => return None,
    };
    Some(case.clone().with_word(sender).with_word(receiver))
}

/// Pages that the methods `mmap` and `kernel-mmap` map, and move by one call. A category, since a few are compared and no curve is drawn.
pub const WINDOW: Axis = Axis::new("window", "window of mmap, pages", AxisScale::Category);

/// Bytes that a call moves at most, by every method that does not map. A category as well.
pub const BUFFER: Axis = Axis::new("buffer", "bytes of a call", AxisScale::Category);

impl TransferFiles {
    /// How many files there are, and their bytes together.
    pub const fn count_and_bytes(self) -> (u64, u64) {
        match self {
            Self::Small => (10, 24_114),
            Self::One => (1, 12_022_885),
            Self::Large => (2, 364_344_508),
        }
    }
}

/// The buffer of the published cells.
pub const PUBLISHED_BUFFER: u64 = 512;

/// The windows of the published cells, in pages, and buffers of as many bytes (with pages of 4 KiB): this many does a call move by
/// either method. The smaller one is also the buffer of the usual copying programs.
pub const EQUAL_CALL_SIZES: [(u64, u64); 2] = [(16, 64 << 10), (256, 1 << 20)];

/// What a cell has besides its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellSetting {
    /// How long a connection lasts.
    pub connection: ConnectionPolicy,
    /// Pages.
    pub window: u64,
    /// Bytes.
    pub buffer: u64,
}

/// A cell, whatever is sent: calls that block, and no replies.
pub fn cell(sender: SenderMethod, receiver: ReceiverMethod, setting: CellSetting) -> Case {
    let case = Case::new().with_word(sender).with_word(receiver).with_word(setting.connection);
    case.with_number(WINDOW, setting.window)
        .with_number(BUFFER, setting.buffer)
        .with_word(WaitMode::Blocking)
        .with_word(ReplyPolicy::None)
}

/// The cell around which factors are varied one at a time: the fastest of the published methods for files in memory, with the buffer
/// of the usual copying programs.
pub fn best_cell() -> Case {
    let (window, buffer) = EQUAL_CALL_SIZES[0];
    cell(
        SenderMethod::ReadWrite,
        ReceiverMethod::ReadWrite,
        CellSetting { connection: ConnectionPolicy::Persistent, window, buffer },
    )
}

/// The mode of a method of sending around the best cell: the ring has one of its own.
pub fn usual_mode(sender: SenderMethod) -> WaitMode {
    if sender == SenderMethod::Uring { WaitMode::Uring } else { WaitMode::Blocking }
}

/// Whether a metric is of a whole transfer. How fast a CPU that sleeps is woken decides much of it, and changes for seconds at a time,
/// with what else the host does: longer than several rounds.
pub fn is_whole_transfer(metric: &Metric) -> bool {
    metric.area() == TIME.area()
}

/// All samples, and no canary: two CPUs take part, and how deep the one that waits sleeps decides much.
const fn whole_transfer_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary)
        .with_axes([
            TransferFiles::AXIS,
            SenderMethod::AXIS,
            ReceiverMethod::AXIS,
            ConnectionPolicy::AXIS,
            WINDOW,
            BUFFER,
            WaitMode::AXIS,
            ReplyPolicy::AXIS,
        ])
        .headline(HeadlineSamples::AsFound)
        .canaries(Canaries::NONE)
        .overhead(Overhead::None)
        .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
        .not_in_cycles()
        .needs(Need::SecondCpu)
        .version(2)
}

const fn counted_metric(id: &'static str, summary: &'static str) -> Metric {
    whole_transfer_metric(id, summary).unit(Unit::Count, Better::Lower)
}

const fn device_bytes_metric(id: &'static str, summary: &'static str) -> Metric {
    whole_transfer_metric(id, summary).unit(Unit::Bytes, Better::Lower)
}

/// A transfer.
pub static TIME: Metric = whole_transfer_metric(
    "transfer.time",
    "From connecting until the receiver has written the last byte of the last file",
)
.baseline();

/// Its rate.
pub static RATE: Metric = whole_transfer_metric("transfer.rate", "Bytes of the files over the time of their transfer")
    .unit(Unit::BytesPerSecond, Better::Higher);

/// The sender's CPU.
pub static SENDER_CPU: Metric =
    whole_transfer_metric("transfer.sender.cpu", "CPU time of the sender within a transfer");

/// The receiver's CPU.
pub static RECEIVER_CPU: Metric =
    whole_transfer_metric("transfer.receiver.cpu", "CPU time of the receiver within a transfer");

/// The sender's calls.
pub static SENDER_CALLS: Metric =
    counted_metric("transfer.sender.calls", "System calls of the sender that move bytes, map the file or wait");

/// The receiver's calls.
pub static RECEIVER_CALLS: Metric =
    counted_metric("transfer.receiver.calls", "System calls of the receiver that move bytes, map the file or wait");

/// The sender's faults.
pub static SENDER_FAULTS: Metric =
    counted_metric("transfer.sender.faults", "Page faults of the sender within a transfer");

/// The receiver's faults.
pub static RECEIVER_FAULTS: Metric =
    counted_metric("transfer.receiver.faults", "Page faults of the receiver within a transfer");

/// The sender's switches.
pub static SENDER_SWITCHES: Metric =
    counted_metric("transfer.sender.switches", "Context switches of the sender within a transfer");

/// The receiver's switches.
pub static RECEIVER_SWITCHES: Metric =
    counted_metric("transfer.receiver.switches", "Context switches of the receiver within a transfer");

/// What the sender had to fetch.
pub static SENDER_DEVICE: Metric = device_bytes_metric(
    "transfer.sender.device",
    "Bytes that the sender read from a device within a transfer; none of files that are in memory",
);

/// What of the targets was written back.
pub static RECEIVER_DEVICE: Metric = device_bytes_metric(
    "transfer.receiver.device",
    "Bytes of the targets that had reached their device when the transfer ended and they were removed",
);

/// A transfer of files that are on the device only.
pub static COLD_TIME: Metric =
    whole_transfer_metric("transfer.cold", "A transfer of files that were dropped from memory before");

/// What the sender then fetches.
pub static COLD_DEVICE: Metric = device_bytes_metric(
    "transfer.cold.device",
    "Bytes that the sender read from a device within a transfer of files that were dropped from memory before",
);
