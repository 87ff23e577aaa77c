//! A local TCP stream by kelvin and the same by iperf3, interleaved.
//!
//! It shows whether kelvin's own figures are limited by the machine or by kelvin. It must not be used to rank the programs,
//! which differ in what they do around the work.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use kelvin_core::catalogue::Rival;
use kelvin_core::catalogue::net::{RIVAL_COMPARISON_TCP, RIVALS_TCP, RIVALS_TCP_KELVIN, RIVALS_TCP_OTHER};
use kelvin_sys::net;

use super::bulk::{BulkStreams, StreamCpus, StreamPlan};
use super::prelude::*;
use crate::program::{Program, ProgramOutput, equal_speed, run_alternating};

pub(super) static PROBE: Probe = Probe {
    summary: "A local TCP stream by kelvin and by iperf3, interleaved on the same CPUs (--rivals)",
    method: include_str!("rivals.md"),
    cases,
    run,
    predict,
    ..Probe::study(&[&RIVALS_TCP, &RIVALS_TCP_KELVIN, &RIVALS_TCP_OTHER])
};

/// Bytes of a message: what iperf3 sends at a time by itself.
const MESSAGE_BYTES: u64 = 128 << 10;
/// Time of a side: the least that iperf3 accepts.
const SIDE_TIME: Duration = Duration::from_secs(1);
/// How often iperf3 is tried until its server listens, and the pause before each further time.
const MAX_CONNECT_ATTEMPTS: u32 = 40;
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(25);
/// Factor either way within which the same work takes the same time.
const SPREAD: f64 = 1.25;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let placements = if effort == Effort::Quick { &[PairPlacement::TwoCpus][..] } else { PairPlacement::ALL };
    words(&[Rival::Iperf3]).numbers(MESSAGE, &[MESSAGE_BYTES]).words(placements)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let iperf = Program::find(Rival::Iperf3)?;
    let ends = StreamCpus { sender: bench.cpu(), receiver: partner_cpu(bench, case)? };
    let message = message_bytes(case)?;
    let pair = Link::pair(Protocol::Tcp).map_err(cannot_connect)?;
    let control = net::congestion_control(&pair.0).map_err(cannot_connect)?;
    let stream = StreamComparison { ends, message, control: &control };
    let [kelvin_rate, iperf_rate] = run_alternating(bench, || stream.run_kelvin(pair), || stream.run_iperf(&iperf))?;
    bench.note(format!("{} against kelvin, in messages of {message} bytes under {control}", iperf.describe()));
    bench.record(RIVAL_COMPARISON_TCP.ratio, vec![kelvin_rate / iperf_rate]);
    bench.note("what had arrived after a second");
    bench.record(RIVAL_COMPARISON_TCP.kelvin, vec![kelvin_rate]);
    bench.note("by its receiver's count");
    bench.record(RIVAL_COMPARISON_TCP.other, vec![iperf_rate]);
    Ok(())
}

fn cannot_connect(error: kelvin_sys::Error) -> ProbeError {
    ProbeError::fail(format!("cannot connect: {error}"))
}

/// The work of both sides.
struct StreamComparison<'a> {
    ends: StreamCpus,
    message: usize,
    control: &'a str,
}

impl StreamComparison<'_> {
    /// Bytes per second by kelvin.
    fn run_kelvin(&self, pair: (Link, Link)) -> ProbeResult<f64> {
        let bulk = BulkStreams::over_links(vec![pair], StreamPlan::tcp(self.message, vec![self.ends]))?;
        let before = bulk.totals()?;
        std::thread::sleep(SIDE_TIME);
        let rate = bulk.totals()?.rate_since(&before);
        bulk.finish()?;
        Ok(rate)
    }

    /// Bytes per second by iperf3.
    fn run_iperf(&self, iperf: &Program) -> ProbeResult<f64> {
        // A port that is free now; if another takes it first, the server reports it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let address = Ipv4Addr::LOCALHOST.to_string();
        let mut server = iperf.command();
        server.args(["--server", "--one-off", "--bind", &address, "--port", &port]);
        server.args(["--affinity", &self.ends.receiver.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let _server = iperf.spawn(&mut server)?;
        let mut attempts = 0;
        loop {
            std::thread::sleep(CONNECT_RETRY_PAUSE);
            attempts += 1;
            let mut client = iperf.command();
            client.args(["--client", &address, "--port", &port, "--json", "--time", &SIDE_TIME.as_secs().to_string()]);
            client.args(["--length", &self.message.to_string(), "--congestion", self.control]);
            client.args(["--affinity", &self.ends.sender.to_string()]);
            let output = iperf.run(&mut client)?;
            let is_early = output.failed.is_some() && output.one_line().contains("Connection refused");
            if !is_early || attempts == MAX_CONNECT_ATTEMPTS {
                return parse_arrived_rate(&output);
            }
        }
    }
}

/// Bytes per second in iperf3's words.
fn parse_arrived_rate(output: &ProgramOutput) -> ProbeResult<f64> {
    let no_stream = || ProbeError::fail(format!("iperf3 reports no stream: {}", output.one_line()));
    let report: serde_json::Value = kelvin_core::json::from_str(&output.printed).map_err(|_| no_stream())?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64().filter(|bits| *bits > 0.0);
    bits.map(|bits| bits / 8.0).filter(|_| output.failed.is_none()).ok_or_else(no_stream)
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    let reason = "net.bandwidth.tcp predicts the rate; here only the ratio of two programs counts";
    unpredicted_if(metric.id != RIVALS_TCP.id, reason)?;
    Ok(equal_speed(SPREAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::script_program;
    use crate::testing::with_facts;

    /// As iperf3 3.12 prints it, shortened.
    const IPERF_OUTPUT: &str = r#"{"start":{"version":"iperf 3.12"},"end":{"sum_sent":{"bytes":5368709120,"bits_per_second":42949672960.0},"sum_received":{"bytes":5367660544,"bits_per_second":42910000000.0}}}"#;

    fn stream() -> StreamComparison<'static> {
        let cpu = kelvin_sys::cpu::affinity().unwrap()[0];
        StreamComparison { ends: StreamCpus { sender: cpu, receiver: cpu }, message: 4096, control: "reno" }
    }

    #[test]
    fn iperf_received_rate_is_parsed() {
        let output = |printed: &str, failed: Option<&str>| ProgramOutput {
            printed: printed.into(),
            complaint: String::new(),
            failed: failed.map(str::to_owned),
        };
        assert_eq!(parse_arrived_rate(&output(IPERF_OUTPUT, None)).unwrap(), 42.91e9 / 8.0);
        for failed_output in [
            output(IPERF_OUTPUT, Some("exit status: 1")),
            output(r#"{"error":"unable to connect"}"#, None),
            output("", None),
        ] {
            assert!(
                matches!(parse_arrived_rate(&failed_output), Err(ProbeError::Fail(reason)) if reason.contains("no stream")),
                "{failed_output:?}"
            );
        }
    }

    #[test]
    fn client_retries_until_server_listens() {
        let directory = tempfile::tempdir().unwrap();
        let [attempt_file, answer_file] = ["tried", "said"].map(|name| directory.path().join(name));
        std::fs::write(&answer_file, IPERF_OUTPUT).unwrap();
        // Its second client is served.
        let text = format!(
            "case $1 in --version) echo iperf 3.12; exit;; --server) sleep 5; exit;; esac\n\
             if test -e {0}; then cat {1}; else touch {0}; echo '{{\"error\":\"unable to connect: Connection refused\"}}'; exit 1; fi",
            attempt_file.display(),
            answer_file.display()
        );
        let iperf = script_program(directory.path(), Rival::Iperf3, &text);
        assert_eq!(stream().run_iperf(&iperf).unwrap(), 42.91e9 / 8.0);
    }

    #[test]
    fn kelvin_side_transfers_bytes() {
        let pair = Link::pair(Protocol::Tcp).unwrap();
        assert!(stream().run_kelvin(pair).unwrap() > 0.0);
    }

    #[test]
    fn only_the_ratio_is_predicted() {
        with_facts(&[], |facts| {
            assert_eq!(predict(facts, &RIVALS_TCP, &Case::new()).unwrap().value, 1.0);
            assert!(predict(facts, &RIVALS_TCP_KELVIN, &Case::new()).is_err());
            assert!(predict(facts, &RIVALS_TCP_OTHER, &Case::new()).is_err());
        });
    }
}
