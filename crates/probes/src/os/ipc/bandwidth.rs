//! Bandwidth from one process to another: pipe, Unix socket, shared memory with a futex.
//!
//! Counted by the receiver. It must not be used as memory bandwidth: each byte is copied in and out.

use std::sync::Arc;

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::mem::BANDWIDTH_COPY;
use kelvin_core::catalogue::net::BANDWIDTH_UNIX;
use kelvin_core::catalogue::os::{
    HandoffMechanism, IPC_BANDWIDTH, MESSAGE, SWITCH_CHANNEL_CALLS, SWITCH_COST, SWITCH_CROSS_CPU,
};
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod, HandoffSide};
use kelvin_sys::message_stream::{MessageStream, StreamKind};
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::shared_memory::FutexScope;

use super::super::switch::process_switch;
use super::{MECHANISMS, mechanism_of};
use crate::memory::{bandwidth, core_to_core};
use crate::prelude::*;

/// Bytes of one iteration. The acknowledgement at the end of a batch takes a few microseconds on one CPU and some tens
/// between two. With this many bytes it is a few percent of the shortest batch.
const ITERATION_BYTES: u64 = 4 << 20;

pub(in crate::os) static PROBE: Probe = Probe {
    summary: "Bandwidth between two processes: over a pipe, over Unix sockets, or through shared memory",
    method: include_str!("bandwidth.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&IPC_BANDWIDTH])
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let messages: &[u64] = if effort == Effort::Thorough { &[4 << 10, 64 << 10] } else { &[64 << 10] };
    words(&MECHANISMS).numbers(MESSAGE, messages).words(PairPlacement::ALL)
}

fn message_case(mechanism: HandoffMechanism, placement: PairPlacement, bytes: u64) -> Case {
    Case::new().with_word(mechanism).with_word(placement).with_number(MESSAGE, bytes)
}

/// The receiving process and its acknowledgement channel.
struct StreamReceiver {
    stream: Arc<MessageStream>,
    acknowledgement: Arc<HandoffChannel>,
    partner: PartnerTask,
    message: Vec<u8>,
    sent: u64,
}

impl StreamReceiver {
    fn start(kind: StreamKind, message: usize, cpu: u32) -> ProbeResult<Self> {
        let start_error = "cannot start the receiver";
        let stream = Arc::new(MessageStream::new(kind).or_fail(start_error)?);
        let acknowledgement =
            Arc::new(HandoffChannel::new(HandoffMethod::Pipe, FutexScope::Processes).or_fail(start_error)?);
        let (receiver_stream, receiver_acknowledgement) = (Arc::clone(&stream), Arc::clone(&acknowledgement));
        let partner = PartnerTask::start(PartnerKind::Process, cpu, move |board| {
            receive_loop(&receiver_stream, &receiver_acknowledgement, message, board)
        });
        let partner = partner.or_fail(start_error)?;
        Ok(Self { stream, acknowledgement, partner, message: vec![0xa5; message], sent: 0 })
    }

    /// Sends this many messages, and waits until the receiver has them all.
    fn send(&mut self, messages: u64) -> ProbeResult {
        self.partner.set_work(self.sent + messages);
        for _ in 0..messages {
            self.sent += 1;
            self.message[..size_of::<u64>()].copy_from_slice(&self.sent.to_le_bytes());
            self.stream.send(&self.message)?;
        }
        self.acknowledgement.wait_for_turn(HandoffSide::Near)?;
        self.partner.check()?;
        let received = self.partner.done_work();
        if received != self.sent {
            return Err(ProbeError::fail(format!("{} messages were sent but {received} arrived", self.sent)));
        }
        Ok(())
    }

    /// Ends the receiver with one last message.
    fn finish(mut self) -> ProbeResult {
        self.partner.stop();
        self.send(1)?;
        Ok(self.partner.join()?)
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
        let outcome = stream.receive(&mut message).and_then(|()| {
            number += 1;
            if message[..size_of::<u64>()] == number.to_le_bytes() {
                Ok(())
            } else {
                Err(kelvin_sys::Error::other("a message arrived out of order"))
            }
        });
        if let Err(error) = outcome {
            // The sender waits for an acknowledgement: it must see the failure rather than hang.
            board.fail(&error);
            let _ = acknowledgement.hand_over(HandoffSide::Far);
            return Err(error);
        }
        if number == board.work() {
            board.report_done(number);
            let is_last = board.is_stopping();
            acknowledgement.hand_over(HandoffSide::Far)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let kind = match mechanism_of(case)? {
        HandoffMechanism::Pipe => StreamKind::Pipe,
        HandoffMechanism::Unix => StreamKind::Unix,
        _ => StreamKind::Shared,
    };
    let size = MESSAGE.number_in(case).filter(|&size| size >= 8 && ITERATION_BYTES.is_multiple_of(size));
    let size = size.or_fail(format!("the case needs a message of 8 to {ITERATION_BYTES} bytes, a power of two"))?;
    let cpu = super::partner_cpu(bench, case)?;
    let mut receiver = StreamReceiver::start(kind, size as usize, cpu)?;
    receiver.send(ITERATION_BYTES / size)?;
    bench.note(format!("receiver on CPU {cpu}; it checked the number of every message and counted them"));
    bench.time_work(&IPC_BANDWIDTH, ITERATION_BYTES as f64, |iterations| {
        receiver.send(iterations * (ITERATION_BYTES / size))
    })?;
    receiver.finish()
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let mechanism = mechanism_of(case)?;
    let bytes = required_number(MESSAGE, case)?;
    let placement = PairPlacement::of(case).unwrap_or(PairPlacement::TwoCpus);
    let message = bytes_of("message", bytes);
    let sockets = |placement: PairPlacement| {
        measured(facts, &BANDWIDTH_UNIX, &Case::new().with_word(placement).with_number(MESSAGE, bytes))
    };
    let (time, name) = match (mechanism, placement) {
        // The same bytes over the same sockets, measured without acknowledgements.
        (HandoffMechanism::Unix, _) => {
            let remark = "the same sockets, without acknowledgements";
            return Ok(sockets(placement)?.widen(1.3).explained(PredictionBasis::Derived, "the same", remark));
        }
        // A pipe holds one large message or several small ones: its ends take turns, on one CPU and on two.
        (HandoffMechanism::Pipe, _) => {
            let pipes = quantity("messages in a full pipe", (PIPE_BYTES / bytes).max(1) as f64, Unit::Count);
            if placement == PairPlacement::SameCpu {
                let switch = process_switch(facts)?;
                (message.clone() / sockets(placement)? + 2.0 * switch / pipes, "full pipes on one CPU")
            } else {
                let one_cpu = message_case(mechanism, PairPlacement::SameCpu, bytes);
                let same_cpu_rate = measured(facts, &IPC_BANDWIDTH, &one_cpu)?;
                let wake_up = measured(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(mechanism))?;
                let lines = core_to_core::extra_lines_latency(facts, bytes)?;
                (message.clone() / same_cpu_rate + 2.0 * wake_up / pipes + lines, "full pipes on two CPUs")
            }
        }
        // Copies in L2, and a futex that wakes the other end for each block.
        _ => {
            // It counts the bytes read and the bytes written.
            let copy = measured(facts, &BANDWIDTH_COPY, &bandwidth::second_level_case(facts.machine())?)? / 2.0;
            let copy_time = message.clone() / copy;
            if placement == PairPlacement::SameCpu {
                let futex = HandoffMechanism::Futex.between_processes();
                let [switch, calls] =
                    [&SWITCH_COST, &SWITCH_CHANNEL_CALLS].map(|metric| measured(facts, metric, &futex));
                (2.0 * (copy_time + switch?) + calls?, "copies and switches")
            } else {
                let wake_up = measured(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(mechanism))?;
                // Half of a wake-up is the waker's.
                (copy_time + wake_up / 2.0, "copies and a wake-up")
            }
        }
    };
    Ok((message / time).widen(SPREAD).derived(name))
}

/// Predicted range, factor either way.
const SPREAD: f64 = 2.0;

/// Bytes of a pipe, by default sixteen pages.
const PIPE_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_core::catalogue::mem::CORE_TO_CORE;

    #[test]
    fn messages_are_received_and_acknowledged() {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        for kind in [StreamKind::Pipe, StreamKind::Unix, StreamKind::Shared] {
            let mut receiver = StreamReceiver::start(kind, 4096, cpu).unwrap();
            receiver.send(100).unwrap();
            receiver.send(3).unwrap();
            assert_eq!(receiver.partner.done_work(), 103);
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
                id if id == IPC_BANDWIDTH.id.as_str() => {
                    assert_eq!(PairPlacement::of(case), Some(PairPlacement::SameCpu));
                    6.5536e9
                }
                id if id == BANDWIDTH_COPY.id.as_str() => 65.536e9,
                id if id == SWITCH_COST.id.as_str() => match HandoffMechanism::of(case)? {
                    HandoffMechanism::Pipe => 1000.0,
                    _ => 800.0,
                },
                id if id == SWITCH_CHANNEL_CALLS.id.as_str() => 400.0,
                id if id == SWITCH_CROSS_CPU.id.as_str() => 5000.0,
                id if id == CORE_TO_CORE.id.as_str() => 50.0,
                _ => return None,
            };
            Some(kelvin_core::MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let message_time = |mechanism, placement, message: u64| {
            let case = message_case(mechanism, placement, message);
            message as f64 * 1e9 / predict(&facts, &IPC_BANDWIDTH, &case).unwrap().value
        };
        use PairPlacement::{SameCpu, TwoCpus};
        let assert_close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-6, "{value} {expected}");
        assert_close(message_time(HandoffMechanism::Unix, TwoCpus, 64 << 10), 8000.0);
        assert_close(message_time(HandoffMechanism::Pipe, SameCpu, 64 << 10), 10_000.0);
        // Sixteen of them fill a pipe.
        assert_close(message_time(HandoffMechanism::Pipe, SameCpu, 4 << 10), 625.0);
        // 1023 lines in 5 ns each.
        assert_close(message_time(HandoffMechanism::Pipe, TwoCpus, 64 << 10), 25_115.0);
        assert_close(message_time(HandoffMechanism::Futex, SameCpu, 64 << 10), 6000.0);
        assert_close(message_time(HandoffMechanism::Futex, TwoCpus, 64 << 10), 4500.0);
    }

    #[test]
    fn a_message_out_of_order_is_an_error() {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        let mut receiver = StreamReceiver::start(StreamKind::Pipe, 64, cpu).unwrap();
        receiver.sent = 5;
        assert!(matches!(receiver.send(1), Err(ProbeError::Fail(_))));
    }
}
