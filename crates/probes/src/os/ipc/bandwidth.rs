//! Bandwidth from one process to another: pipe, Unix socket, shared memory with a futex.
//!
//! Counted by the receiver. It must not be used as memory bandwidth: each byte is copied in and out.

use std::sync::Arc;

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::mem::BANDWIDTH_COPY;
use kelvin_core::catalogue::net::BANDWIDTH_UNIX;
use kelvin_core::catalogue::os::{
    IPC_FUTEX_BANDWIDTH, IPC_PIPE_BANDWIDTH, IPC_UNIX_BANDWIDTH, MESSAGE, SWITCH_CROSS_CPU, SWITCH_PROCESS_FUTEX,
    SWITCH_PROCESS_FUTEX_CALLS, SWITCH_PROCESS_PIPE, TokenChannel,
};
use kelvin_core::{Case, Machine, Metric, NoPrediction, Prediction, PredictionBasis, Unit};
use kelvin_harness::{Bench, Effort, Method, PredictionInputs, Probe, ProbeError, ProbeKind};
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod, HandoffSide};
use kelvin_sys::message_stream::{self, MessageStream};
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::shared_memory::{FutexScope, Shared};

use crate::formula::{Expr, given, measured};
use crate::memory::{bandwidth, core_to_core};

/// Bytes of one iteration: the acknowledgement at the end of a batch, a few microseconds on one CPU and some tens
/// between two, is then within a few percent of the shortest batch.
const ITERATION_BYTES: u64 = 4 << 20;

pub(in crate::os) static PIPE: Probe = Probe {
    predict: |facts, _, case| pipe_rate(facts, case),
    ..ipc_bandwidth_probe("Bandwidth between two processes over a pipe", &[&IPC_PIPE_BANDWIDTH], |bench, case| {
        run(bench, case, message_stream::StreamKind::Pipe, &IPC_PIPE_BANDWIDTH)
    })
};

pub(in crate::os) static UNIX: Probe = Probe {
    predict: |facts, _, case| socket_rate(facts, case),
    ..ipc_bandwidth_probe("Bandwidth between two processes over Unix sockets", &[&IPC_UNIX_BANDWIDTH], |bench, case| {
        run(bench, case, message_stream::StreamKind::Unix, &IPC_UNIX_BANDWIDTH)
    })
};

pub(in crate::os) static FUTEX: Probe = Probe {
    predict: |facts, _, case| shared_memory_rate(facts, case),
    ..ipc_bandwidth_probe(
        "Bandwidth between two processes through shared memory",
        &[&IPC_FUTEX_BANDWIDTH],
        |bench, case| run(bench, case, message_stream::StreamKind::Shared, &IPC_FUTEX_BANDWIDTH),
    )
};

/// The common method of the three.
const fn ipc_bandwidth_probe(
    summary: &'static str,
    metrics: &'static [&'static Metric],
    run: fn(&mut Bench<'_>, &Case) -> Result<(), ProbeError>,
) -> Probe {
    let id = metrics[0].id.as_str();
    let predict = |_: &PredictionInputs<'_>, _: &Metric, _: &Case| {
        Err(NoPrediction::new("each of the three has its own formula"))
    };
    Probe { id, summary, kind: ProbeKind::Measure, method: METHOD, metrics, cases, run, predict }
}

const METHOD: Method = Method {
    how: "One process sends messages, another receives them into one buffer, pinned to one CPU or to two. A batch ends \
          when the receiver has acknowledged the last message, so nothing in flight is counted. Every message carries \
          its number, which the receiver checks; it reports how many it received. Pipe and sockets have the kernel's \
          default buffers (a pipe holds 64 KiB); the shared memory is four blocks of 64 KiB, each copied in by the \
          sender and out by the receiver, and passed by a futex wake. One iteration is 4 MiB, so that the \
          acknowledgement is within a few percent of the shortest batch.",
    prediction: "Unix sockets: net.bandwidth.unix, the same stream without acknowledgements. A pipe holds 64 KiB, one message: \
                 on one CPU the time that message takes over Unix sockets, and a switch each way (os.switch.process.pipe), \
                 for it is full, then empty; between two CPUs nothing overlaps either: the time on one CPU as measured, a \
                 wake-up each way (os.switch.cross_cpu), and the message's lines, ten at a time (mem.core_to_core). Shared \
                 memory: on one CPU a copy in and a copy out, at half of mem.bandwidth.copy in L2, and a pass and a switch each way \
                 (os.switch.process.futex); between two CPUs the sender is the slower end: a copy, and its half of the \
                 wake-up.",
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
    let of = |&size: &u64| {
        PairPlacement::ALL.iter().map(move |&placement| Case::new().with_word(placement).with_number(MESSAGE, size))
    };
    messages.iter().flat_map(of).collect()
}

/// The receiving process and its acknowledgement channel.
struct StreamReceiver {
    stream: Arc<MessageStream>,
    acknowledgement: Arc<HandoffChannel>,
    board: Arc<Shared<PartnerStatus>>,
    partner: Option<PartnerTask>,
    message: Vec<u8>,
    sent: u64,
}

impl StreamReceiver {
    fn start(kind: message_stream::StreamKind, message: usize, cpu: u32) -> Result<Self, ProbeError> {
        let starting = |error| ProbeError::fail(format!("cannot start the receiver: {error}"));
        let stream = Arc::new(MessageStream::new(kind).map_err(starting)?);
        let acknowledgement =
            Arc::new(HandoffChannel::new(HandoffMethod::Pipe, FutexScope::Processes).map_err(starting)?);
        let board = PartnerStatus::new().map_err(starting)?;
        let (far, acknowledging) = (Arc::clone(&stream), Arc::clone(&acknowledgement));
        let partner = PartnerTask::start(PartnerKind::Process, cpu, &board, move |board| {
            receive_loop(&far, &acknowledging, message, board)
        })
        .map_err(starting)?;
        Ok(Self { stream, acknowledgement, board, partner: Some(partner), message: vec![0xa5; message], sent: 0 })
    }

    /// Sends this many messages, and waits until the receiver has them all.
    fn send(&mut self, messages: u64) -> Result<(), ProbeError> {
        self.board.set_work(self.sent + messages);
        for _ in 0..messages {
            self.sent += 1;
            self.message[..size_of::<u64>()].copy_from_slice(&self.sent.to_le_bytes());
            self.stream.send(&self.message)?;
        }
        self.acknowledgement.wait_for_turn(HandoffSide::Near)?;
        self.board.check()?;
        let arrived = self.board.done_work();
        if arrived != self.sent {
            return Err(ProbeError::fail(format!("{} messages were sent but {arrived} arrived", self.sent)));
        }
        Ok(())
    }

    /// Ends the receiver with one last message.
    fn finish(mut self) -> Result<(), ProbeError> {
        self.board.stop();
        self.send(1)?;
        self.partner.take().map_or(Ok(()), |partner| partner.join(&self.board).map_err(ProbeError::from))
    }
}

/// The receiver's loop: acknowledges each complete batch.
fn receive_loop(
    stream: &MessageStream,
    acknowledgement: &HandoffChannel,
    size: usize,
    board: &PartnerStatus,
) -> kelvin_sys::Result<()> {
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
            let _ = acknowledgement.hand_over(HandoffSide::Far);
            return Err(error);
        }
        if number == board.work() {
            board.report_done(number);
            let last = board.is_stopping();
            acknowledgement.hand_over(HandoffSide::Far)?;
            if last {
                return Ok(());
            }
        }
    }
}

fn run(
    bench: &mut Bench<'_>,
    case: &Case,
    kind: message_stream::StreamKind,
    metric: &Metric,
) -> Result<(), ProbeError> {
    let size = MESSAGE.number_in(case).filter(|&size| size >= 8 && ITERATION_BYTES.is_multiple_of(size));
    let size = size.ok_or_else(|| {
        ProbeError::fail(format!("the case needs a message of 8 to {ITERATION_BYTES} bytes, a power of two"))
    })?;
    let cpu = super::partner_cpu(bench, case)?;
    let mut receiver = StreamReceiver::start(kind, size as usize, cpu)?;
    receiver.send(ITERATION_BYTES / size)?;
    bench.note(format!("receiver on CPU {cpu}; it checked the number of every message and counted them"));
    bench.time_work(metric, ITERATION_BYTES as f64, |parcels| receiver.send(parcels * (ITERATION_BYTES / size)))?;
    receiver.finish()
}

/// Over sockets: the same bytes over the same sockets, measured without acknowledgements.
fn socket_rate(facts: &PredictionInputs<'_>, case: &Case) -> Result<Prediction, NoPrediction> {
    let stream = measured(facts, &BANDWIDTH_UNIX, case)?;
    Ok(stream.within(1.3).explained(PredictionBasis::Derived, "the same", "the same sockets, without acknowledgements"))
}

/// Over a pipe, which holds one large message or several small ones: its ends take turns, on one CPU and on two.
fn pipe_rate(facts: &PredictionInputs<'_>, case: &Case) -> Result<Prediction, NoPrediction> {
    let (bytes, message) = message_bytes(case)?;
    let on_one = Case::new().with_word(PairPlacement::SameCpu).with_number(MESSAGE, bytes);
    let pipes = given("messages in a full pipe", (PIPE_BYTES / bytes).max(1) as f64, Unit::Count);
    if PairPlacement::of(case) == Some(PairPlacement::SameCpu) {
        let stream = measured(facts, &BANDWIDTH_UNIX, &on_one)?;
        let switch = measured(facts, &SWITCH_PROCESS_PIPE, &Case::new())?;
        let time = message.clone() / stream + 2.0 * switch / pipes;
        return Ok((message / time).within(SPREAD).predict(PredictionBasis::Derived, "full pipes on one CPU"));
    }
    let alone = measured(facts, &IPC_PIPE_BANDWIDTH, &on_one)?;
    let woken = measured(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(TokenChannel::Pipe))?;
    let line = core_to_core::default_pair_latency(facts)?;
    let lines = given("cache lines / 10", core_to_core::extra_line_times(bytes as f64), Unit::Count) * line;
    let time = message.clone() / alone + 2.0 * woken / pipes + lines;
    Ok((message / time).within(SPREAD).predict(PredictionBasis::Derived, "full pipes on two CPUs"))
}

/// Through shared memory: copies in L2, and a futex that wakes the other end for each block.
fn shared_memory_rate(facts: &PredictionInputs<'_>, case: &Case) -> Result<Prediction, NoPrediction> {
    let (_, message) = message_bytes(case)?;
    // It counts the bytes read and the bytes written.
    let copy = measured(facts, &BANDWIDTH_COPY, &bandwidth::second_level_case(facts.machine())?)? / 2.0;
    let copying = message.clone() / copy;
    if PairPlacement::of(case) == Some(PairPlacement::SameCpu) {
        let switch = measured(facts, &SWITCH_PROCESS_FUTEX, &Case::new())?;
        let calls = measured(facts, &SWITCH_PROCESS_FUTEX_CALLS, &Case::new())?;
        let time = 2.0 * (copying + switch) + calls;
        return Ok((message / time).within(SPREAD).predict(PredictionBasis::Derived, "copies and switches"));
    }
    let woken = measured(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(TokenChannel::Futex))?;
    // Half of a wake-up is the waker's.
    let time = copying + woken / 2.0;
    Ok((message / time).within(SPREAD).predict(PredictionBasis::Derived, "copies and a wake-up"))
}

/// Predicted range, factor either way.
const SPREAD: f64 = 2.0;

/// Bytes of a pipe, by default sixteen pages.
const PIPE_BYTES: u64 = 64 << 10;

/// The bytes of a message, as a number and in formulas.
fn message_bytes(case: &Case) -> Result<(u64, Expr), NoPrediction> {
    let bytes = MESSAGE.number_in(case).ok_or_else(|| NoPrediction::new("the case has no message"))?;
    Ok((bytes, given("message", bytes as f64, Unit::Bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_core::catalogue::mem::CORE_TO_CORE;

    #[test]
    fn messages_are_received_and_acknowledged() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        for kind in
            [message_stream::StreamKind::Pipe, message_stream::StreamKind::Unix, message_stream::StreamKind::Shared]
        {
            let mut receiver = StreamReceiver::start(kind, 4096, cpu).unwrap();
            receiver.send(100).unwrap();
            receiver.send(3).unwrap();
            assert_eq!(receiver.board.done_work(), 103);
            receiver.finish().unwrap();
        }
    }

    #[test]
    fn byte_cost_is_copies_and_core_transfer() {
        let mut machine = crate::testing::machine();
        machine.topology.caches = crate::testing::caches(&[(1, 32 << 10), (2, 1 << 20)]);
        let measured = |id: &str, case: &Case| {
            let value = match id {
                id if id == BANDWIDTH_UNIX.id.as_str() => 8.192e9,
                id if id == IPC_PIPE_BANDWIDTH.id.as_str() => {
                    assert_eq!(PairPlacement::of(case), Some(PairPlacement::SameCpu));
                    6.5536e9
                }
                id if id == BANDWIDTH_COPY.id.as_str() => 65.536e9,
                id if id == SWITCH_PROCESS_PIPE.id.as_str() => 1000.0,
                id if id == SWITCH_PROCESS_FUTEX.id.as_str() => 800.0,
                id if id == SWITCH_PROCESS_FUTEX_CALLS.id.as_str() => 400.0,
                id if id == SWITCH_CROSS_CPU.id.as_str() => 5000.0,
                id if id == CORE_TO_CORE.id.as_str() => 50.0,
                _ => return None,
            };
            Some(kelvin_core::MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let takes = |probe: &Probe, placement, message: u64| {
            let case = Case::new().with_word(placement).with_number(MESSAGE, message);
            message as f64 * 1e9 / (probe.predict)(&facts, probe.metrics[0], &case).unwrap().value
        };
        use PairPlacement::{SameCpu, TwoCpus};
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        close(takes(&UNIX, TwoCpus, 64 << 10), 8000.0);
        close(takes(&PIPE, SameCpu, 64 << 10), 10_000.0);
        // Sixteen of them fill a pipe.
        close(takes(&PIPE, SameCpu, 4 << 10), 625.0);
        // 1023 lines in 5 ns each.
        close(takes(&PIPE, TwoCpus, 64 << 10), 25_115.0);
        close(takes(&FUTEX, SameCpu, 64 << 10), 6000.0);
        close(takes(&FUTEX, TwoCpus, 64 << 10), 4500.0);
    }

    #[test]
    fn a_message_out_of_order_is_an_error() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        let mut receiver = StreamReceiver::start(message_stream::StreamKind::Pipe, 64, cpu).unwrap();
        receiver.sent = 5;
        assert!(matches!(receiver.send(1), Err(ProbeError::Fail(_))));
    }
}
