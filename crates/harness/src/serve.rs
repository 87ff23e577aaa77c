//! The child side: a process that runs one probe at one case once, and answers with its readings.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use kelvin_model::Attempt;
use kelvin_sys::{child, cpu};

use crate::bench::Bench;
use crate::clock;
use crate::probe::Probe;
use crate::protocol::{Answer, Request, frame};
use crate::stop::Stop;

/// CPU time that a probe with real-time priority may use without sleeping.
const REALTIME_BOUND: Duration = Duration::from_millis(900);

/// Reads a request from standard input, runs its probe, and writes the answer to standard output.
///
/// # Errors
/// One line on what is wrong with the request or with sending the answer; a failure of the probe is part of the answer.
pub fn serve(probes: &[&Probe]) -> Result<(), String> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(|error| format!("cannot read the request: {error}"))?;
    let request: Request = serde_json::from_slice(&text).map_err(|error| format!("bad request: {error}"))?;
    child::die_with_parent(request.parent);
    let probe = probes
        .iter()
        .find(|probe| probe.id == request.probe)
        .ok_or_else(|| format!("there is no probe {}", request.probe))?;
    let answer = match answer(probe, &request) {
        Ok(answer) => answer,
        Err(Stop::Skip(reason)) => Attempt::Skipped(reason).into(),
        Err(Stop::Fail(reason)) => Attempt::Failed(reason).into(),
    };
    let bytes = frame(&answer).map_err(|error| format!("cannot write the readings: {error}"))?;
    let mut output = std::io::stdout().lock();
    output.write_all(&bytes).and_then(|()| output.flush()).map_err(|error| format!("cannot answer: {error}"))
}

fn answer(probe: &Probe, request: &Request) -> Result<Answer, Stop> {
    for group in &request.setup.groups {
        // 0 stands for the process that writes.
        std::fs::write(Path::new(group).join("cgroup.procs"), "0")
            .map_err(|error| Stop::skip(format!("needs the right to enter another control group (root): {error}")))?;
    }
    let cpu = request.setup.placement.cpu;
    cpu::pin(&[cpu]).map_err(|error| Stop::fail(format!("cannot pin to CPU {cpu}: {error}")))?;
    if request.setup.realtime {
        cpu::realtime(REALTIME_BOUND).map_err(|error| Stop::fail(format!("cannot get SCHED_FIFO: {error}")))?;
    }
    let metrics = probe.metrics.iter().filter(|metric| metric.is_of(&request.case)).count();
    let mut bench = Bench::new(request, clock::of_kind(request.setup.clock.kind), metrics);
    (probe.run)(&mut bench, &request.case)?;
    let beyond = bench.beyond();
    let readings = bench.into_readings();
    if readings.is_empty() {
        return Err(Stop::fail("the probe ended without a reading and without an error"));
    }
    Ok(Answer { attempt: Attempt::Measured(readings), beyond })
}
