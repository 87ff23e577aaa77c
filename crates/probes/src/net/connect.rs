//! The cost of connecting to a process that accepts, of closing, and of both around a single request.
//!
//! Costs of the client's kernel. They must not be taken for the time until the server's program knows of the connection.

use kelvin_core::catalogue::net::{CLOSE, CONNECT, CRR, RTT_TCP, STACK_TCP, WAKE_TCP};

use super::accept_server::{AcceptServer, LocalAcceptServer, ServerWait};
use super::prelude::*;
use crate::os::switch::process_switch;
use crate::os::syscall_null;

pub(super) static PROBE: Probe = Probe {
    summary: "Connecting over TCP to a process that accepts, and closing",
    method: include_str!("connect.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&CONNECT, &CLOSE])
};

pub(super) static RATE: Probe = Probe {
    summary: "Connecting, one request with its answer, and closing, repeatedly",
    method: include_str!("connect_rate.md"),
    cases,
    run: run_transactions,
    predict: predict_transactions,
    ..Probe::measure(&[&CRR])
};

/// Transactions of one iteration. They are enough that cold caches after the canaries and the unanswered close at the
/// end are a small part of it.
const TRANSACTIONS_PER_ITERATION: u64 = 16;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let placements = if effort == Effort::Quick { &[PairPlacement::SameCpu] } else { PairPlacement::ALL };
    words(placements)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let cpu = partner_cpu(bench, case)?;
    let wait = if cpu == bench.cpu() { ServerWait::OnFutex } else { ServerWait::AsServer };
    let server = LocalAcceptServer::start(cpu, wait)?;
    let awaited_event =
        if wait == ServerWait::OnFutex { "the end of the timed call" } else { "connections, as a server" };
    bench.note(format!("accepting process on CPU {cpu}, waiting for {awaited_event}"));
    time_connect_and_close(bench, [&CONNECT, &CLOSE], &server)?;
    server.finish()
}

/// Times connecting and closing, one connection after the other.
pub(super) fn time_connect_and_close(
    bench: &mut Bench<'_>,
    metrics: [&Metric; 2],
    server: &impl AcceptServer,
) -> ProbeResult {
    bench.time_back_to_back(metrics, |clock| {
        let start = clock.start();
        let mut connection = server.connect()?;
        let connect_ticks = clock.stop().wrapping_sub(start);
        server.request(&mut connection)?;
        let start = clock.start();
        drop(connection);
        let close_ticks = clock.stop().wrapping_sub(start);
        server.await_client_close()?;
        Ok([connect_ticks, close_ticks])
    })
}

/// Connects, sends a request, receives its answer, and closes.
#[inline(always)]
pub(super) fn transact(server: &impl AcceptServer) -> ProbeResult {
    let mut connection = server.connect()?;
    server.request(&mut connection)
}

fn run_transactions(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let cpu = partner_cpu(bench, case)?;
    let server = LocalAcceptServer::start(cpu, ServerWait::AsServer)?;
    bench.note(format!("accepting process on CPU {cpu}"));
    bench.time_work(&CRR, TRANSACTIONS_PER_ITERATION as f64, |iterations| {
        for _ in 0..iterations * TRANSACTIONS_PER_ITERATION {
            transact(&server)?;
        }
        Ok(())
    })?;
    server.finish()
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let stack = measured(facts, &STACK_TCP, &Case::new().with_number(MESSAGE, SMALL_MESSAGE))?;
    let call = syscall_null::kernel_entry(facts)?;
    let packet = (stack - 2.0 * call.clone()).at_least_zero();
    let (packets, calls) = if metric.id == CONNECT.id { (3.0, 2.0) } else { (1.0, 1.0) };
    let local_cost = packets * packet.clone() + calls * call.clone();
    if PairPlacement::of(case) == Some(PairPlacement::SameCpu) {
        return Ok(local_cost.widen(2.0).derived("packets and calls"));
    }
    // One of the packets wakes the server: the cost of a send that wakes, beyond a packet and its call.
    let wake_up = (measured(facts, &WAKE_TCP, &Case::new())? - packet - call).at_least_zero();
    Ok((local_cost + wake_up).widen(2.0).derived("packets, calls and a wake-up"))
}

/// Client and server on one CPU, where a close includes the client's call alone.
pub(super) fn one_cpu_case() -> Case {
    Case::new().with_word(PairPlacement::SameCpu)
}

fn predict_transactions(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let connect = measured(facts, &CONNECT, case)?;
    let trip = measured(facts, &RTT_TCP, &case.clone().with_number(MESSAGE, SMALL_MESSAGE))?;
    let close = measured(facts, &CLOSE, case)?;
    let (time, name) = if PairPlacement::of(case) == Some(PairPlacement::SameCpu) {
        // The client waits for the server's turn: it closes as well, and has to get the CPU for it.
        let switch = process_switch(facts)?;
        (connect + trip + 2.0 * close + 2.0 * switch, "connect, ask, close twice and switch")
    } else {
        (connect + trip + close, "connect, ask and close")
    };
    Ok((1.0 / time).widen(2.0).derived(name))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::{SWITCH_COST, SYSCALL_NULL};

    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn cross_cpu_connect_adds_wake_up() {
        let case = Case::new().with_word(PairPlacement::TwoCpus);
        let values = [
            (STACK_TCP.id.as_str(), Some(3200.0)),
            (SYSCALL_NULL.id.as_str(), Some(100.0)),
            (WAKE_TCP.id.as_str(), Some(15_100.0)),
            (CONNECT.id.as_str(), Some(20_000.0)),
            (CLOSE.id.as_str(), Some(10_000.0)),
            (RTT_TCP.id.as_str(), Some(50_000.0)),
        ];
        with_facts(&values, |facts| {
            let close = predict(facts, &CLOSE, &case).unwrap();
            // A packet and its call take 3.1 of the 15.1 microseconds of a send that wakes.
            assert_eq!((close.value, close.low, close.high), (15_100.0, 7550.0, 30_200.0));
            assert_eq!(predict(facts, &CONNECT, &case).unwrap().value, 9200.0 + 12_000.0);
            // The server's turn overlaps the client's next one.
            assert_eq!(predict_transactions(facts, &CRR, &case).unwrap().value, 1e9 / 80_000.0);
        });
        with_facts(&values[..2], |facts| assert!(predict(facts, &CLOSE, &case).is_err()));
    }

    #[test]
    fn connect_is_three_packets_close_one() {
        let case = one_cpu_case();
        let values = [
            (STACK_TCP.id.as_str(), Some(3200.0)),
            (SYSCALL_NULL.id.as_str(), Some(100.0)),
            (CONNECT.id.as_str(), Some(12_000.0)),
            (CLOSE.id.as_str(), Some(3000.0)),
            (SWITCH_COST.id.as_str(), Some(1500.0)),
            (RTT_TCP.id.as_str(), Some(10_000.0)),
        ];
        with_facts(&values, |facts| {
            assert_eq!(predict(facts, &CONNECT, &case).unwrap().value, 9200.0);
            let close = predict(facts, &CLOSE, &case).unwrap();
            assert_eq!((close.value, close.low, close.high), (3100.0, 1550.0, 6200.0));
            // 12 + 10 + 2 x 3 + 2 x 1.5 microseconds.
            let rate = predict_transactions(facts, &CRR, &case).unwrap();
            assert!((rate.value - 1e9 / 31_000.0).abs() < 1e-6, "{}", rate.value);
            assert_eq!(rate.inputs.len(), 4);
        });
        with_facts(&values[..2], |facts| assert!(predict_transactions(facts, &CRR, &case).is_err()));
    }
}
