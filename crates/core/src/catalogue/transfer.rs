//! Whole transfers of files between two processes, by the methods of either end.

use crate::{Axis, AxisScale, Better, Case, Metric, Need, Overhead, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics};

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
    let is_kernel_sender =
        matches!(SenderMethod::of(case), Some(SenderMethod::KernelReadWrite | SenderMethod::KernelMmap));
    is_kernel_sender
        || matches!(ReceiverMethod::of(case), Some(ReceiverMethod::KernelReadWrite | ReceiverMethod::KernelMmap))
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
const fn whole_transfer_metric(id: &'static str) -> Metric {
    duration(id)
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
        .unguarded()
        .overhead(Overhead::None)
        .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
        .not_in_cycles()
        .needs(Need::SecondCpu)
        .version(2)
}

const fn counted_metric(id: &'static str) -> Metric {
    whole_transfer_metric(id).unit(Unit::Count, Better::Lower)
}

const fn device_bytes_metric(id: &'static str) -> Metric {
    whole_transfer_metric(id).unit(Unit::Bytes, Better::Lower)
}

metrics! {
    /// The metrics of files that are in memory, in the order of reports.
    pub const CACHED_METRICS = [
        /// From connecting until the receiver has written the last byte of the last file
        TIME = whole_transfer_metric("transfer.time").baseline(),
        /// Bytes of the files over the time of their transfer
        RATE = whole_transfer_metric("transfer.rate").unit(Unit::BytesPerSecond, Better::Higher),
        /// CPU time of the sender within a transfer
        SENDER_CPU = whole_transfer_metric("transfer.sender.cpu"),
        /// CPU time of the receiver within a transfer
        RECEIVER_CPU = whole_transfer_metric("transfer.receiver.cpu"),
        /// System calls of the sender that move bytes, map the file or wait
        SENDER_CALLS = counted_metric("transfer.sender.calls"),
        /// System calls of the receiver that move bytes, map the file or wait
        RECEIVER_CALLS = counted_metric("transfer.receiver.calls"),
        /// Page faults of the sender within a transfer
        SENDER_FAULTS = counted_metric("transfer.sender.faults"),
        /// Page faults of the receiver within a transfer
        RECEIVER_FAULTS = counted_metric("transfer.receiver.faults"),
        /// Context switches of the sender within a transfer
        SENDER_SWITCHES = counted_metric("transfer.sender.switches"),
        /// Context switches of the receiver within a transfer
        RECEIVER_SWITCHES = counted_metric("transfer.receiver.switches"),
        /// Bytes that the sender read from a device within a transfer; none of files that are in memory
        SENDER_DEVICE = device_bytes_metric("transfer.sender.device"),
        /// Bytes of the targets that had reached their device when the transfer ended and they were removed
        RECEIVER_DEVICE = device_bytes_metric("transfer.receiver.device"),
    ];
}

metrics! {
    /// The metrics of files that are not.
    pub const COLD_METRICS = [
        /// A transfer of files that were dropped from memory before
        COLD_TIME = whole_transfer_metric("transfer.cold"),
        /// Bytes that the sender read from a device within a transfer of files that were dropped from memory before
        COLD_DEVICE = device_bytes_metric("transfer.cold.device"),
    ];
}
