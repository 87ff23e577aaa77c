//! The child side: a process that runs one probe at one case once, and answers with its readings.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use kelvin_core::RoundOutcome;
use kelvin_sys::{cpu, process, store_bypass};

use crate::bench::Bench;
use crate::clock;
use crate::probe::Probe;
use crate::probe_error::ProbeError;
use crate::protocol::{RoundRequest, RoundResponse, encode_response};

/// CPU time that a probe with real-time priority may use without sleeping.
const REALTIME_CPU_LIMIT: Duration = Duration::from_millis(900);

/// Reads a request from standard input, runs its probe, and writes the answer to standard output.
///
/// # Errors
/// One line on what is wrong with the request or with sending the answer; a failure of the probe is part of the answer.
pub fn run_probe_process(probes: &[&Probe]) -> Result<(), String> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(|error| format!("cannot read the request: {error}"))?;
    let request: RoundRequest = serde_json::from_slice(&text).map_err(|error| format!("bad request: {error}"))?;
    process::die_with_parent(request.parent_pid);
    let probe = probes
        .iter()
        .find(|probe| probe.id == request.probe)
        .ok_or_else(|| format!("there is no probe {}", request.probe))?;
    let answer = match run_probe(probe, &request) {
        Ok(answer) => answer,
        Err(ProbeError::Skip(reason)) => RoundOutcome::Skipped(reason).into(),
        Err(ProbeError::Fail(reason)) => RoundOutcome::Failed(reason).into(),
    };
    let bytes = encode_response(&answer).map_err(|error| format!("cannot write the readings: {error}"))?;
    let mut output = std::io::stdout().lock();
    output.write_all(&bytes).and_then(|()| output.flush()).map_err(|error| format!("cannot answer: {error}"))
}

fn run_probe(probe: &Probe, request: &RoundRequest) -> Result<RoundResponse, ProbeError> {
    for group in &request.setup.cgroups {
        // 0 stands for the process that writes.
        std::fs::write(Path::new(group).join("cgroup.procs"), "0").map_err(|error| {
            ProbeError::skip(format!("needs the right to enter another control group (root): {error}"))
        })?;
    }
    if request.setup.allow_store_bypass {
        store_bypass::allow()
            .map_err(|error| ProbeError::skip(format!("needs the right to allow speculative store bypass: {error}")))?;
    }
    let cpu = request.setup.placement.cpu;
    cpu::pin(&[cpu]).map_err(|error| ProbeError::fail(format!("cannot pin to CPU {cpu}: {error}")))?;
    if request.setup.realtime {
        cpu::set_realtime_process(REALTIME_CPU_LIMIT)
            .map_err(|error| ProbeError::fail(format!("cannot get SCHED_FIFO: {error}")))?;
    }
    let metrics = probe.metrics.iter().filter(|metric| metric.is_measured_at(&request.case)).count();
    let mut bench = Bench::new(request, clock::clock_of_kind(request.setup.clock.kind), metrics);
    (probe.run)(&mut bench, &request.case)?;
    let extended_by = bench.used_extension();
    let readings = bench.into_readings();
    if readings.is_empty() {
        return Err(ProbeError::fail("the probe ended without a reading and without an error"));
    }
    Ok(RoundResponse { outcome: RoundOutcome::Measured(readings), extended_by })
}
