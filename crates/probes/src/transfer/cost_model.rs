//! The expected time of a transfer from what its calls, copies and pages cost: a model of both ends, pure.
//!
//! Each end makes one call after another, and both work at the same time: the busier one decides. To that comes what cannot
//! overlap: connecting, waking the receiver, and what one end does with the first segment or the other with the last.

use kelvin_transfer::datapath::{Mode, ReceiveMethod, ReceiveSetup, SendMethod, SendSetup};
use kelvin_transfer::message::ConnectionLifetime;
use kelvin_transfer::raw_protocol::{RawReceiveOptions, RawSendOptions};

use crate::memory::core_to_core::extra_line_times;

/// Bytes of a full segment over loopback: the most that IP can count, less the headers of IP and TCP with timestamps.
pub(super) const SEGMENT_BYTES: f64 = 65_483.0;
/// Bytes that one fault maps of a file in memory (fault-around).
const FAULT_AROUND_BYTES: f64 = 65_536.0;
/// Either end's part of a stream whose bytes are referred to: from a quarter of it to all, which is a factor of two either way.
const BY_REFERENCE_SHARE: f64 = 0.5;

/// A cost in nanoseconds, measured at a few sizes in bytes, the smallest first. Between them it lies on straight lines; below the
/// first it is that of the first, beyond the last it grows as before it.
#[derive(Clone, Debug)]
pub(super) struct CostCurve(Vec<(f64, f64)>);

impl CostCurve {
    /// Through at least two points.
    pub(super) fn new(points: Vec<(f64, f64)>) -> Self {
        debug_assert!(points.len() > 1 && points.is_sorted_by(|left, right| left.0 < right.0), "{points:?}");
        Self(points)
    }

    /// The cost at this many bytes.
    pub(super) fn cost_at(&self, bytes: f64) -> f64 {
        let upper = self.0.iter().position(|point| point.0 >= bytes).unwrap_or(self.0.len() - 1).max(1);
        let ((lower_bytes, low), (upper_bytes, high)) = (self.0[upper - 1], self.0[upper]);
        low + (high - low) * (bytes.max(lower_bytes) - lower_bytes) / (upper_bytes - lower_bytes)
    }

    /// The cost of all bytes of a file, this many by a call.
    fn calls_cost(&self, bytes: f64, call_bytes: f64) -> f64 {
        calls_cost(bytes, call_bytes, |bytes| self.cost_at(bytes))
    }
}

/// What blocks of a long file take longer than those of a short one, whose pages the caches hold when they are used again.
#[derive(Clone, Debug)]
pub(super) struct LongFileCost {
    /// Bytes of a short file, and of a long one.
    pub lengths: [f64; 2],
    /// By the size of the block.
    pub extra_cost: CostCurve,
}

/// What all bytes of a file cost, this many by a call.
fn calls_cost(bytes: f64, call_bytes: f64, cost_of: impl Fn(f64) -> f64) -> f64 {
    let rest = bytes % call_bytes;
    (bytes / call_bytes).floor() * cost_of(call_bytes) + if rest > 0.0 { cost_of(rest) } else { 0.0 }
}

/// What things cost one by one, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct TransferCosts {
    /// Connecting to a process that sleeps on another CPU.
    pub connect: f64,
    /// Connecting, and closing, where that wakes nobody: what accepting and closing take too.
    pub reconnect: f64,
    /// From a wake-up until the process runs on another CPU.
    pub wake: f64,
    /// What a send takes longer that wakes the receiver.
    pub wake_surcharge: f64,
    /// A message and its answer between two CPUs.
    pub round_trip: f64,
    /// Opening a file to read it, and closing it.
    pub open: f64,
    /// A packet through the stack.
    pub packet: f64,
    /// Sending and receiving a message of this many bytes.
    pub send: CostCurve,
    pub receive: CostCurve,
    /// A cache line from another CPU, which has read or written it.
    pub line: f64,
    /// Reading this many bytes of a file in memory by a call.
    pub read: CostCurve,
    /// A byte that comes from memory, where no call reads it into a buffer before.
    pub from_memory: f64,
    /// Mapping a window in the place of another, and the same of a window of 16 pages that were written to.
    pub window: f64,
    pub written_window: f64,
    /// A fault that maps pages of a file in memory.
    pub fault: f64,
    /// Creating a file and closing it; a block of this many bytes written to its end; and the extra time for each byte
    /// by which the file exceeds the caches.
    pub create: f64,
    pub block: CostCurve,
    pub long_file: LongFileCost,
    /// A byte of a buffer that is cleared when it is made.
    pub clear_byte: f64,
    /// A new file of this many bytes written through a mapping, from its creation to its end, and the window of that.
    pub mapped_file: CostCurve,
    pub mapped_window: f64,
    /// A byte of a stream that is sent by reference, or without a copy, if it is: what sending and receiving it take together, at most.
    pub byte_by_reference: Option<f64>,
    /// What a request of a ring takes longer than a call, if there is a ring.
    pub request: Option<f64>,
}

/// What is transferred, and how.
#[derive(Clone, Debug)]
pub(super) struct TransferShape<'a> {
    /// Bytes of each file.
    pub lengths: &'a [u64],
    pub sending: &'a RawSendOptions,
    pub receiving: &'a RawReceiveOptions,
}

/// The expected times of a transfer, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ExpectedTransfer {
    /// What the sender does, and the receiver.
    pub sender: f64,
    pub receiver: f64,
    /// How often the sender wakes the receiver within the stream, because that is the faster of the two.
    pub wakes: f64,
    /// What does not overlap.
    pub serial: f64,
    /// All.
    pub time: f64,
}

impl TransferCosts {
    /// How long a call that copies this many bytes waits for lines from the other CPU.
    fn cross_cpu_time(&self, bytes: f64) -> f64 {
        self.line * (1.0 + extra_line_times(bytes))
    }

    /// Either end's part of a byte that is sent by reference, or without a copy.
    fn by_reference_time(&self) -> f64 {
        BY_REFERENCE_SHARE * self.byte_by_reference.unwrap_or(0.0)
    }
}

impl TransferShape<'_> {
    /// The expected times.
    pub(super) fn expected_transfer(&self, costs: &TransferCosts) -> ExpectedTransfer {
        let lengths = || self.lengths.iter().map(|&bytes| bytes as f64);
        let files = self.lengths.len() as f64;
        let reconnect_time = if self.sending.connection == ConnectionLifetime::PerFile { costs.reconnect } else { 0.0 };
        let reconnect_total = reconnect_time * (files - 1.0);
        let sender =
            lengths().map(|bytes| sender_time(&self.sending.setup, bytes, costs)).sum::<f64>() + reconnect_total;
        let lines = lengths().map(|bytes| line_transfer_time(&self.sending.setup, bytes, costs)).sum::<f64>();
        // Over loopback the kernel copies what is sent without a copy when it arrives (skb_orphan_frags_rx). The
        // sender's call does that, or the receiver's that acknowledges and so has the next segment delivered.
        let is_copied = self.sending.setup.method == SendMethod::ZeroCopy;
        let arrival_copy = if is_copied { costs.by_reference_time() } else { 0.0 };
        let receive_time = |bytes| receiver_time(&self.receiving.setup, bytes, costs) + bytes * arrival_copy;
        let receiver = lengths().map(receive_time).sum::<f64>() + reconnect_total;
        // A sender that is ahead waits with its buffer full. A page comes back to it long after the other CPU has read
        // it: no cache of that CPU holds its lines any more.
        let sender = if sender + lines > receiver { sender + lines } else { sender };
        let segments = lengths().map(|bytes| (bytes / SEGMENT_BYTES).ceil().max(1.0)).sum::<f64>();
        let (send_per_segment, receive_per_segment) = (sender / segments, receiver / segments);
        // A receiver that is faster sleeps when it has all that there is; while it is being woken, more arrives.
        let wakes = segments * ((send_per_segment - receive_per_segment) / costs.wake).clamp(0.0, 1.0);
        let sender = sender + wakes * costs.wake_surcharge;
        // With replies nothing of a file overlaps the next one.
        let turns = if self.sending.reply { files } else { 1.0 };
        let reply_time = if self.sending.reply { files * costs.round_trip } else { 0.0 };
        let edge_segment = if sender > receiver { receive_per_segment } else { send_per_segment };
        // From the connection until the receiver may take what the sender sends: both make their buffers meanwhile, and a receiver that
        // is ready first sleeps again.
        let [sender_clearing, receiver_clearing] =
            [self.sending.setup.memory_bytes(), self.receiving.setup.memory_bytes()]
                .map(|bytes| bytes as f64 * costs.clear_byte);
        let ready_time = costs.wake
            + if sender_clearing > costs.wake + receiver_clearing { sender_clearing } else { receiver_clearing };
        let serial = costs.connect + ready_time + turns * edge_segment + reply_time;
        ExpectedTransfer { sender, receiver, wakes, serial, time: serial + sender.max(receiver) }
    }

    /// System calls of the sender as its path counts them, where its method fixes them.
    pub(super) fn sender_calls(&self) -> Option<f64> {
        let SendSetup { method, mode, buffer, window, .. } = self.sending.setup;
        let (framing, per_file) = (1.0, if self.sending.reply { 2.0 } else { 1.0 });
        let calls_of_file = |bytes: u64| match method {
            SendMethod::ReadWrite => Some(2.0 * call_count(bytes, buffer)),
            SendMethod::Mmap => Some(3.0 * call_count(bytes, window * kelvin_sys::mapping::page_bytes())),
            SendMethod::Sendfile => Some(call_count(bytes, buffer)),
            SendMethod::Splice | SendMethod::ZeroCopy | SendMethod::Uring => None,
        };
        let calls = self.lengths.iter().map(|&bytes| calls_of_file(bytes)).sum::<Option<f64>>()?;
        (mode == Mode::Blocking).then_some(framing + per_file * self.lengths.len() as f64 + calls)
    }

    /// Fewest and most system calls of the receiver, where its method bounds them: a call that finds less than it
    /// requests, at the end of a segment, leaves the rest to another. One that requests more of a long file than a
    /// sender sends at a time finds what has arrived.
    pub(super) fn receiver_calls(&self) -> Option<(f64, f64)> {
        let ReceiveSetup { method, mode, buffer, window, .. } = self.receiving.setup;
        let requested = if method == ReceiveMethod::Mmap { window * kelvin_sys::mapping::page_bytes() } else { buffer };
        let SendSetup { method: send_method, buffer: sent_bytes, .. } = self.sending.setup;
        let is_long = self.lengths.iter().any(|&bytes| bytes as f64 > SEGMENT_BYTES);
        if is_long && send_method != SendMethod::Mmap && sent_bytes < requested && (sent_bytes as f64) < SEGMENT_BYTES {
            return None;
        }
        let files = self.lengths.len() as f64;
        // Header and name; a reply; the end of each connection, but for the last, on which the end marker is read.
        let reply = if self.sending.reply { 1.0 } else { 0.0 };
        let ends = if self.sending.connection == ConnectionLifetime::PerFile { files - 1.0 } else { 0.0 };
        let framing = 1.0 + (2.0 + reply) * files + ends;
        let calls_of_file = |bytes: u64| {
            let segments = (bytes as f64 / SEGMENT_BYTES).ceil();
            match method {
                ReceiveMethod::ReadWrite => {
                    let calls = 2.0 * call_count(bytes, buffer);
                    Some((calls, calls + 2.0 * segments))
                }
                ReceiveMethod::Mmap => {
                    // Its length, a mapping, advice on it, and a receive.
                    let calls = 4.0 * call_count(bytes, window * kelvin_sys::mapping::page_bytes());
                    Some((calls, calls + segments))
                }
                ReceiveMethod::Splice | ReceiveMethod::Uring => None,
            }
        };
        let add_pairs = |sum: (f64, f64), term: (f64, f64)| (sum.0 + term.0, sum.1 + term.1);
        let file_calls = self.lengths.iter().map(|&bytes| calls_of_file(bytes));
        let calls = file_calls.collect::<Option<Vec<_>>>()?.into_iter().fold((framing, framing), add_pairs);
        (mode == Mode::Blocking).then_some(calls)
    }

    /// Fewest and most faults of the sender, if it maps files: one for what a window shows, or one for each 16 pages of it.
    pub(super) fn sender_faults(&self) -> Option<(f64, f64)> {
        let SendSetup { method, window, .. } = self.sending.setup;
        let window = window * kelvin_sys::mapping::page_bytes();
        let windows = || self.lengths.iter().map(move |&bytes| call_count(bytes, window)).sum::<f64>();
        let max_faults = self.lengths.iter().map(|&bytes| call_count(bytes, FAULT_AROUND_BYTES as usize)).sum::<f64>();
        (method == SendMethod::Mmap).then(|| (windows().min(max_faults), max_faults))
    }

    /// Pages of the receiver's mappings, if it maps files: each is written to for the first time.
    pub(super) fn receiver_pages(&self) -> Option<f64> {
        let pages = || self.lengths.iter().map(|&bytes| call_count(bytes, kelvin_sys::mapping::page_bytes())).sum();
        (self.receiving.setup.method == ReceiveMethod::Mmap).then(pages)
    }
}

/// How many parts of this many bytes there are.
fn call_count(bytes: u64, call_bytes: usize) -> f64 {
    bytes.div_ceil(call_bytes as u64) as f64
}

/// What the sender does for a file of this many bytes.
fn sender_time(setup: &SendSetup, bytes: f64, costs: &TransferCosts) -> f64 {
    let call_bytes = setup.buffer as f64;
    let (calls, byte_time) = match setup.method {
        SendMethod::ReadWrite | SendMethod::Uring => {
            (2.0, costs.read.calls_cost(bytes, call_bytes) + costs.send.calls_cost(bytes, call_bytes))
        }
        SendMethod::Mmap => {
            // The last one is mapped away.
            let windows =
                ((bytes / call_bytes).ceil() + 1.0) * costs.window + (bytes / FAULT_AROUND_BYTES).ceil() * costs.fault;
            (1.0, windows + costs.send.calls_cost(bytes, call_bytes) + bytes * costs.from_memory)
        }
        SendMethod::Sendfile | SendMethod::Splice => (1.0, bytes * costs.by_reference_time()),
        SendMethod::ZeroCopy => (2.0, costs.read.calls_cost(bytes, call_bytes) + bytes * costs.by_reference_time()),
    };
    // The header gathers with the file's bytes; the last of them leave at once.
    costs.open
        + costs.send.cost_at(0.0)
        + costs.packet
        + byte_time
        + ring_request_time(calls, bytes / call_bytes, costs)
}

/// How long the sender waits for lines of its socket's buffers, which the other CPU has read before, where its calls copy into them.
fn line_transfer_time(setup: &SendSetup, bytes: f64, costs: &TransferCosts) -> f64 {
    match setup.method {
        SendMethod::ReadWrite | SendMethod::Mmap | SendMethod::Uring => {
            calls_cost(bytes, setup.buffer as f64, |part| costs.cross_cpu_time(part))
        }
        SendMethod::Sendfile | SendMethod::Splice | SendMethod::ZeroCopy => 0.0,
    }
}

/// What the receiver does for a file of this many bytes.
fn receiver_time(setup: &ReceiveSetup, bytes: f64, costs: &TransferCosts) -> f64 {
    let call_bytes = setup.buffer as f64;
    let lines = calls_cost(bytes, call_bytes.min(SEGMENT_BYTES), |part| costs.cross_cpu_time(part));
    let framing = 2.0 * costs.receive.cost_at(0.0);
    let byte_time = match setup.method {
        ReceiveMethod::Mmap => {
            let extra_windows = (bytes / call_bytes).ceil() - (bytes / costs.mapped_window).ceil();
            let receive_time = costs.receive.calls_cost(bytes, call_bytes.min(SEGMENT_BYTES));
            costs.mapped_file.cost_at(bytes) + extra_windows.max(0.0) * costs.written_window + receive_time
        }
        // What has arrived is copied into the file, wherever it was before.
        ReceiveMethod::ReadWrite | ReceiveMethod::Splice | ReceiveMethod::Uring => {
            let [short_length, long_length] = costs.long_file.lengths;
            let share = ((bytes - short_length) / (long_length - short_length)).clamp(0.0, 1.0);
            let long_file = share * costs.long_file.extra_cost.calls_cost(bytes, call_bytes);
            let write_time = costs.create + costs.block.calls_cost(bytes, call_bytes) + long_file;
            write_time + costs.receive.calls_cost(bytes, call_bytes)
        }
    };
    framing + lines + byte_time + ring_request_time(2.0, bytes / call_bytes, costs)
}

/// What requests of a ring take longer than calls, of this many for each buffer.
fn ring_request_time(per_buffer: f64, buffers: f64, costs: &TransferCosts) -> f64 {
    costs.request.map_or(0.0, |surcharge| surcharge * per_buffer * buffers.ceil())
}

#[cfg(test)]
mod tests;
