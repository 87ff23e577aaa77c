//! Bandwidth from one process to another: pipe, Unix socket, shared memory with a futex.
//!
//! Counted by the receiver. It must not be used as memory bandwidth: each byte is copied in and out.

use std::sync::Arc;

use kelvin_catalogue::Placement;
use kelvin_catalogue::os::{IPC_FUTEX_BANDWIDTH, IPC_PIPE_BANDWIDTH, IPC_UNIX_BANDWIDTH, MESSAGE};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::partner::{Board, PartnerTask, Task};
use kelvin_sys::shared::{Scope, Shared};
use kelvin_sys::stream::{self, Stream};
use kelvin_sys::token::{Channel, Means, Side};

/// Bytes of one iteration: the acknowledgement at the end of a batch, a few microseconds on one CPU and some tens
/// between two, is then within a few percent of the shortest batch.
const PARCEL: u64 = 4 << 20;

pub(in crate::os) static PIPE: Probe =
    probe("Bandwidth between two processes over a pipe", &[&IPC_PIPE_BANDWIDTH], |bench, case| {
        run(bench, case, stream::StreamKind::Pipe, &IPC_PIPE_BANDWIDTH)
    });

pub(in crate::os) static UNIX: Probe =
    probe("Bandwidth between two processes over Unix sockets", &[&IPC_UNIX_BANDWIDTH], |bench, case| {
        run(bench, case, stream::StreamKind::Unix, &IPC_UNIX_BANDWIDTH)
    });

pub(in crate::os) static FUTEX: Probe =
    probe("Bandwidth between two processes through shared memory", &[&IPC_FUTEX_BANDWIDTH], |bench, case| {
        run(bench, case, stream::StreamKind::Shared, &IPC_FUTEX_BANDWIDTH)
    });

/// The common method of the three.
const fn probe(
    summary: &'static str,
    metrics: &'static [&'static Metric],
    run: fn(&mut Bench<'_>, &Case) -> Result<(), Stop>,
) -> Probe {
    let id = metrics[0].id.as_str();
    Probe { id, summary, kind: ProbeKind::Measure, method: METHOD, metrics, inputs: &[], cases, run, predict }
}

const METHOD: Method = Method {
    how: "One process sends messages, another receives them into one buffer, pinned to one CPU or to two. A batch ends \
          when the receiver has acknowledged the last message, so nothing in flight is counted. Every message carries \
          its number, which the receiver checks; it reports how many it received. Pipe and sockets have the kernel's \
          default buffers (a pipe holds 64 KiB); the shared memory is four blocks of 64 KiB, each copied in by the \
          sender and out by the receiver, and passed by a futex wake. One iteration is 4 MiB, so that the \
          acknowledgement is within a few percent of the shortest batch.",
    prediction: "None: it would be two copies of every byte at the cache-to-cache copy rate, which the run does not \
                 measure, and a switch or a wake-up per buffer.",
    not_for: "Memory bandwidth; network sockets; zero-copy messages.",
    pitfalls: &[
        "Taking the sender's rate for the throughput: buffered bytes have not arrived. Here the receiver counts.",
        "Placement left to the scheduler: on two CPUs the copies overlap; on one they do not, but need no wake-up.",
        "A message larger than the pipe: the writer blocks in its write, and the pipe's size determines the figure.",
    ],
    sources: &["lmbench bw_pipe, bw_unix (64 KiB messages)", "pipe(7), unix(7), futex(2)"],
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let messages: &[u64] = if effort == Effort::Thorough { &[4 << 10, 64 << 10] } else { &[64 << 10] };
    let of = |&size: &u64| Placement::ALL.iter().map(move |&placement| Case::new().at(placement).with(MESSAGE, size));
    messages.iter().flat_map(of).collect()
}

/// The receiving process and its acknowledgement channel.
struct Receiver {
    stream: Arc<Stream>,
    acknowledgement: Arc<Channel>,
    board: Arc<Shared<Board>>,
    partner: Option<PartnerTask>,
    message: Vec<u8>,
    sent: u64,
}

impl Receiver {
    fn start(kind: stream::StreamKind, message: usize, cpu: u32) -> Result<Self, Stop> {
        let starting = |error| Stop::fail(format!("cannot start the receiver: {error}"));
        let stream = Arc::new(Stream::new(kind).map_err(starting)?);
        let acknowledgement = Arc::new(Channel::new(Means::Pipe, Scope::Processes).map_err(starting)?);
        let board = Board::new().map_err(starting)?;
        let (far, acknowledging) = (Arc::clone(&stream), Arc::clone(&acknowledgement));
        let partner =
            PartnerTask::start(Task::Process, cpu, &board, move |board| receive(&far, &acknowledging, message, board))
                .map_err(starting)?;
        Ok(Self { stream, acknowledgement, board, partner: Some(partner), message: vec![0xa5; message], sent: 0 })
    }

    /// Sends this many messages, and waits until the receiver has them all.
    fn send(&mut self, messages: u64) -> Result<(), Stop> {
        self.board.order(self.sent + messages);
        for _ in 0..messages {
            self.sent += 1;
            self.message[..size_of::<u64>()].copy_from_slice(&self.sent.to_le_bytes());
            self.stream.send(&self.message)?;
        }
        self.acknowledgement.take(Side::Near)?;
        self.board.check()?;
        let arrived = self.board.reported();
        if arrived != self.sent {
            return Err(Stop::fail(format!("{} messages were sent but {arrived} arrived", self.sent)));
        }
        Ok(())
    }

    /// Ends the receiver with one last message.
    fn finish(mut self) -> Result<(), Stop> {
        self.board.stop();
        self.send(1)?;
        self.partner.take().map_or(Ok(()), |partner| partner.join(&self.board).map_err(Stop::from))
    }
}

/// The receiver's loop: acknowledges each complete batch.
fn receive(stream: &Stream, acknowledgement: &Channel, size: usize, board: &Board) -> kelvin_sys::Result<()> {
    let mut message = vec![0u8; size];
    let mut number = 0u64;
    loop {
        let received = stream.receive(&mut message).and_then(|()| {
            number += 1;
            if message[..size_of::<u64>()] == number.to_le_bytes() {
                Ok(())
            } else {
                Err(kelvin_sys::Error::other("a message arrived out of order"))
            }
        });
        if let Err(error) = received {
            // The sender waits for an acknowledgement: it must see the failure rather than hang.
            board.fail(&error);
            let _ = acknowledgement.pass(Side::Far);
            return Err(error);
        }
        if number == board.ordered() {
            board.report(number);
            let last = board.stopping();
            acknowledgement.pass(Side::Far)?;
            if last {
                return Ok(());
            }
        }
    }
}

fn run(bench: &mut Bench<'_>, case: &Case, kind: stream::StreamKind, metric: &Metric) -> Result<(), Stop> {
    let size = MESSAGE.of(case).filter(|&size| size >= 8 && PARCEL.is_multiple_of(size));
    let size =
        size.ok_or_else(|| Stop::fail(format!("the case needs a message of 8 to {PARCEL} bytes, a power of two")))?;
    let cpu = super::partner_cpu(bench, case)?;
    let mut receiver = Receiver::start(kind, size as usize, cpu)?;
    receiver.send(PARCEL / size)?;
    bench.note(format!("receiver on CPU {cpu}; it checked the number of every message and counted them"));
    bench.time_work(metric, PARCEL as f64, |parcels| receiver.send(parcels * (PARCEL / size)))?;
    receiver.finish()
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because("it is derived from the cache-to-cache copy rate, which this run did not measure"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives_and_is_acknowledged() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        for kind in [stream::StreamKind::Pipe, stream::StreamKind::Unix, stream::StreamKind::Shared] {
            let mut receiver = Receiver::start(kind, 4096, cpu).unwrap();
            receiver.send(100).unwrap();
            receiver.send(3).unwrap();
            assert_eq!(receiver.board.reported(), 103);
            receiver.finish().unwrap();
        }
    }

    #[test]
    fn a_message_out_of_order_is_an_error() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        let mut receiver = Receiver::start(stream::StreamKind::Pipe, 64, cpu).unwrap();
        receiver.sent = 5;
        assert!(matches!(receiver.send(1), Err(Stop::Fail(_))));
    }
}
