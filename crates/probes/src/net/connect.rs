//! What it takes to connect to a process that accepts, to close, and to do both for a single request.
//!
//! Costs of the kernel at this end. They must not be taken for the time until the other program knows of the connection.

use kelvin_harness::{Bench, Effort, Facts, Kind, Method, Probe, Stop};
use kelvin_model::{Basis, Better, Canaries, Case, Machine, Metric, NoPrediction, Prediction, Tags, Treatment, Unit};

use super::accepting::Accepting;
use super::axes::{MESSAGE, PLACEMENT, PLACEMENTS, SMALL, peer_cpu};
use super::rtt::HandOver;
use super::{rtt, stack};
use crate::os::syscall_null;
use crate::predict::Predicting;

/// No canaries, as with round trips: nothing happens between two connections that a client would not do.
const fn of_two(metric: Metric) -> Metric {
    metric
        .over_one(PLACEMENT)
        .canaries(Canaries::NONE)
        .headline(Treatment::AsFound)
        .contaminants(Tags::CONTAMINATED_UNLESS_PREEMPTED)
        .not_in_cycles()
}

static CONNECT: Metric = of_two(Metric::duration(
    "net.connect",
    "Connecting over TCP to a process that accepts, the making of the socket included",
))
.seed();
static CLOSE: Metric =
    of_two(Metric::duration("net.close", "Closing a TCP connection over which a request was answered")).seed();
static TRANSACTIONS: Metric = of_two(
    Metric::rate("net.crr", "Transactions per second of connecting, one request, its answer, and closing")
        .unit(Unit::PerSecond, Better::Higher),
);

pub(super) static PROBE: Probe = Probe {
    id: "net.connect",
    summary: "Connecting over TCP to a process that accepts, and closing",
    kind: Kind::Measure,
    method: Method {
        how: "The calls socket and connect to a process that listens on the loopback device, timed together; then, untimed, a \
              request of one byte and its answer, so that the connection is accepted; then the call close, timed. Each \
              connection is timed by itself. Both processes run on one CPU or each on its own. This end closes first, as \
              a client does; the accepting end sees that and resets the connection (SO_LINGER of 0 s), so that this end does \
              not stay in TIME_WAIT: no port is used up, however many connections are made.",
        prediction: "connect: the handshake runs within the call, three packets through the stack, each net.stack.tcp less its \
                     two null calls, and the two calls themselves. close: one packet and a call. Unremarkable within a factor of \
                     two, for making and freeing a socket is not counted, and up to a hand-over more (a switch on one CPU, \
                     waking another one between two, as in net.rtt.tcp): the packets wake the accepting process.",
        not_for: "The time until the other program has accepted; a connection over a network, where connect takes the round \
                  trip of the link; what TIME_WAIT costs.",
        pitfalls: &[
            "Ports that run out: 28,232 on most machines, and each one is taken for a minute by the end that closed first. \
             Nothing is left waiting here.",
            "A backlog that fills: a connect is answered by the kernel before the program accepts, and is dropped when too \
             many wait. Each connection is accepted before the next one is made.",
        ],
        sources: &["lmbench lat_connect", "tcp(7), socket(7)"],
    },
    metrics: &[&CONNECT, &CLOSE],
    inputs: &["net.stack.tcp", syscall_null::ID, "os.switch.process.pipe", "os.switch.cross_cpu"],
    cases,
    run,
    predict,
};

pub(super) static RATE: Probe = Probe {
    id: "net.crr",
    summary: "Connecting, one request with its answer, and closing, over and over",
    kind: Kind::Measure,
    method: Method {
        how: "A process connects over the loopback device to another one that listens, sends a byte, waits for a byte in answer, \
              and closes; one transaction after another, timed in batches. Both processes run on one CPU or each on its own. \
              As in net.connect the accepting end answers the close by a reset, so that no port stays in TIME_WAIT.",
        prediction: "One over the sum of net.connect, a round trip of net.rtt.tcp and net.close. Unremarkable within a factor of \
                     two: accepting, and making and freeing sockets at both ends, is not counted.",
        not_for: "Requests a second over connections that are kept; what a server does with many connections at once; the rate of \
                  netperf TCP_CRR, whose connections end in TIME_WAIT.",
        pitfalls: &[
            "Ports that run out: the figure falls off a cliff when all are in TIME_WAIT. Nothing is left waiting here.",
            "Many connections at a time taken for a faster connection: there is one here.",
        ],
        sources: &["netperf TCP_CRR", "tcp(7)"],
    },
    metrics: &[&TRANSACTIONS],
    inputs: &["net.connect", "net.rtt.tcp"],
    cases,
    run: run_transactions,
    predict: predict_transactions,
};

/// Transactions of one iteration. What a batch meets at its beginning, caches in which canaries were, and leaves to others
/// at its end, a close that is still to be answered, is then a small part of it.
const AT_ONCE: u64 = 16;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let all = PLACEMENTS.map(|placement| Case::new().with_word(&PLACEMENT.name, placement));
    if effort == Effort::Quick { all[..1].to_vec() } else { all.into() }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let cpu = peer_cpu(bench, case)?;
    let accepting = Accepting::start(cpu)?;
    bench.note(format!("accepting end on CPU {cpu}"));
    bench.time_each([&CONNECT, &CLOSE], |clock| {
        let start = clock.start();
        let mut connection = accepting.connect()?;
        let connected = clock.stop().wrapping_sub(start);
        accepting.ask(&mut connection)?;
        let start = clock.start();
        drop(connection);
        Ok([connected, clock.stop().wrapping_sub(start)])
    })?;
    accepting.finish()
}

fn run_transactions(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let cpu = peer_cpu(bench, case)?;
    let accepting = Accepting::start(cpu)?;
    bench.note(format!("accepting end on CPU {cpu}"));
    bench.time_work(&TRANSACTIONS, AT_ONCE as f64, |iterations| {
        for _ in 0..iterations * AT_ONCE {
            let mut connection = accepting.connect()?;
            accepting.ask(&mut connection)?;
        }
        Ok(())
    })?;
    accepting.finish()
}

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let stack = facts.measured(&stack::TCP_METRIC, &Case::new().with(&MESSAGE.name, SMALL))?;
    let call = facts.measured(&syscall_null::METRIC, &syscall_null::getppid())?;
    let packet = (stack.value - 2.0 * call.value).max(0.0);
    let (packets, calls) = if metric.id == CONNECT.id { (3.0, 2.0) } else { (1.0, 1.0) };
    let value = packets * packet + calls * call.value;
    let hand_over = HandOver::of(facts, case)?;
    let derivation = format!(
        "{packets} x {packet:.0} ns + {calls} x {:.0} ns = {value:.0} ns; up to twice that and {:.0} ns, for the packets wake \
         the other end",
        call.value, hand_over.nanoseconds
    );
    let predicting = Predicting::between(Basis::Derived, value, value / 2.0, 2.0 * value + hand_over.nanoseconds)
        .formula(format!("{packets} x (net.stack.tcp - 2 x null call) + {calls} x null call"))
        .input(stack)
        .input(call);
    Ok(hand_over.inputs.into_iter().fold(predicting, Predicting::input).derived_as(derivation))
}

fn predict_transactions(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let parts = [
        facts.measured(&CONNECT, case)?,
        facts.measured(&rtt::TCP_METRIC, &case.clone().with(&MESSAGE.name, SMALL))?,
        facts.measured(&CLOSE, case)?,
    ];
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    let each: Vec<String> = parts.iter().map(|part| format!("{:.0} ns {}", part.value, part.name)).collect();
    let derivation = format!("1 / ({}) = {:.0} a second", each.join(" + "), 1e9 / sum);
    let predicting = Predicting::within_factor(Basis::Derived, 1e9 / sum, 2.0)
        .formula("1 / (net.connect + net.rtt.tcp + net.close)");
    Ok(parts.into_iter().fold(predicting, Predicting::input).derived_as(derivation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn three_packets_connect_and_one_closes() {
        let case = Case::new().with_word("placement", "same_cpu");
        let known = [
            ("net.stack.tcp", Some(3200.0)),
            ("os.syscall.null", Some(100.0)),
            ("net.connect", Some(12_000.0)),
            ("net.close", Some(3000.0)),
            ("os.switch.process.pipe", Some(1500.0)),
            ("net.rtt.tcp", Some(10_000.0)),
        ];
        facts_about(&known, |facts| {
            assert_eq!(predict(facts, &CONNECT, &case).unwrap().value, 9200.0);
            let close = predict(facts, &CLOSE, &case).unwrap();
            assert_eq!((close.value, close.low, close.high), (3100.0, 1550.0, 7700.0));
            assert_eq!(predict_transactions(facts, &TRANSACTIONS, &case).unwrap().value, 40_000.0);
        });
        facts_about(&known[..2], |facts| assert!(predict_transactions(facts, &TRANSACTIONS, &case).is_err()));
    }
}
